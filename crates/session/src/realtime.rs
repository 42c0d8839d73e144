//! Live consumers: each has a queue that the session fills without ever waiting.
//!
//! ```text
//!   no consumer     buffers ──▶ backlog (at most the session's maximum; then the newest are lost
//!                   and counted, and the backlog is full)
//!   the first one   backlog ──▶ its queue, then live buffers
//!   further ones    live buffers ──▶ each queue; a full queue loses the buffer for that consumer,
//!                   counted
//! ```
//!
//! - V1 Buffers that a consumer does not get are counted, and the flags of the next buffer it gets
//!   report them.
//! - V2 Delivery does not affect the file: the buffer's bytes are unchanged when it returns.
//! - V3 A buffer may be delivered in pieces, each once: `delivered` is the position.
//! - V4 The header of a late buffer has no stamp: consumers sort its events separately from those
//!   of its CPU.

use std::collections::VecDeque;

use traceweir_format::buffer::{BufferHeader, HEADER_SIZE, STATE_FLUSH};
use traceweir_format::spec::session::{
    BUFFER_FLAG_BUFFER_LOST, BUFFER_FLAG_EVENTS_LOST, BUFFER_FLAG_FLUSH_MARKER, BUFFER_FLAG_PROC_INDEX,
    BufferType,
};
use traceweir_transport::live::QueueWriter;

use crate::ids::ConsumerId;
use crate::pool::Buffer;
use crate::stats::Stats;

/// Largest number of consumers of a session.
pub(crate) const MAX_CONSUMERS: usize = 8;

/// The session's end of a consumer's queue.
pub(crate) trait Queue {
    fn push(&mut self, buffer: &[u8]) -> bool;
    fn set_lost(&mut self, buffers: u64, events: u64);
    fn set_complete(&mut self, stamp: i64);
    fn end(&mut self);
}

impl Queue for QueueWriter {
    fn push(&mut self, buffer: &[u8]) -> bool {
        Self::push(self, buffer)
    }

    fn set_lost(&mut self, buffers: u64, events: u64) {
        Self::set_lost(self, buffers, events);
    }

    fn set_complete(&mut self, stamp: i64) {
        Self::set_complete(self, stamp);
    }

    fn end(&mut self) {
        Self::end(self);
    }
}

#[derive(Debug)]
struct Consumer<Q> {
    id: ConsumerId,
    queue: Q,
    buffers_lost: u64,
    events_lost: u64,
    /// Loss flags for its next buffer.
    pending_flags: u16,
}

impl<Q: Queue> Consumer<Q> {
    /// Delivers a piece, after writing the header `head` to its start.
    fn deliver(&mut self, head: &BufferHeader, piece: &mut [u8], events: u32, stats: &Stats) {
        let head = BufferHeader { flags: head.flags | self.pending_flags, ..*head };
        if let Some(room) = piece.first_chunk_mut() {
            *room = head.to_bytes();
        }
        if self.queue.push(piece) {
            self.pending_flags = 0;
            return;
        }
        stats.count_undelivered(events);
        self.report_lost(1, u64::from(events));
        // Report the buffer's loss flags with the next one; the end of a flush comes again by
        // itself.
        self.pending_flags |= head.flags & (BUFFER_FLAG_EVENTS_LOST | BUFFER_FLAG_BUFFER_LOST);
    }

    fn report_lost(&mut self, buffers: u64, events: u64) {
        self.pending_flags |= BUFFER_FLAG_BUFFER_LOST;
        self.buffers_lost = self.buffers_lost.saturating_add(buffers);
        self.events_lost = self.events_lost.saturating_add(events);
        self.queue.set_lost(self.buffers_lost, self.events_lost);
    }
}

/// Live delivery of a session.
#[derive(Debug)]
pub(crate) struct Realtime<Q> {
    consumers: Vec<Consumer<Q>>,
    backlog: VecDeque<Buffer>,
    /// Buffers and events that the backlog could not take.
    backlog_lost: (u64, u64),
    /// Size of a session buffer in bytes.
    buffer_bytes: usize,
    /// Largest number of buffers in the backlog.
    room: usize,
    logger_id: u16,
    sequence: i64,
    next_id: u64,
}

impl<Q: Queue> Realtime<Q> {
    pub(crate) fn new(buffer_bytes: usize, room: usize, logger_id: u16) -> Self {
        Self {
            consumers: Vec::new(),
            backlog: VecDeque::new(),
            backlog_lost: (0, 0),
            buffer_bytes,
            room,
            logger_id,
            sequence: 0,
            next_id: 1,
        }
    }

    /// Returns whether the backlog has refused a buffer and no consumer has come since.
    pub(crate) fn is_full(&self) -> bool {
        self.backlog_lost.0 > 0 && self.consumers.is_empty() && self.backlog.len() >= self.room
    }

    /// Changes the size of the backlog.
    pub(crate) fn set_room(&mut self, room: usize) {
        self.room = room;
    }

    /// Returns the number of consumers.
    pub(crate) fn consumers(&self) -> usize {
        self.consumers.len()
    }

    /// Returns the number of slots that a new consumer's queue needs at least.
    pub(crate) fn backlog(&self) -> usize {
        self.backlog.len()
    }

    /// Delivers the part of a buffer that consumers have not had.
    pub(crate) fn deliver(&mut self, buffer: &mut Buffer, stats: &Stats) {
        if buffer.filled <= buffer.delivered {
            return;
        }
        let events = buffer.events.saturating_sub(buffer.delivered_events);
        if self.consumers.is_empty() {
            match buffer.copy_from(buffer.delivered, events) {
                Some(piece) => self.keep(piece, stats),
                None => self.lose_from_backlog(events, stats),
            }
        } else {
            self.push(buffer, events, stats);
        }
        (buffer.delivered, buffer.delivered_events, buffer.news) = (buffer.filled, buffer.events, 0);
    }

    /// Pushes the undelivered part of a buffer to all consumers. The header temporarily replaces
    /// the bytes before that part.
    fn push(&mut self, buffer: &mut Buffer, events: u32, stats: &Stats) {
        self.sequence = self.sequence.saturating_add(1);
        let start = buffer.delivered.saturating_sub(HEADER_SIZE);
        let head = self.buffer_header(buffer, buffer.filled.saturating_sub(start));
        let Some(piece) = buffer.bytes.get_mut(start..buffer.filled) else { return };
        let Some(before) = piece.first_chunk::<HEADER_SIZE>().copied() else { return };
        for consumer in &mut self.consumers {
            consumer.deliver(&head, piece, events, stats);
        }
        if let Some(room) = piece.first_chunk_mut() {
            *room = before;
        }
    }

    fn buffer_header(&self, buffer: &Buffer, valid: usize) -> BufferHeader {
        let offset = u32::try_from(valid).unwrap_or(u32::MAX);
        let marker = if buffer.ends_flush { BUFFER_FLAG_FLUSH_MARKER } else { 0 };
        BufferHeader {
            buffer_size: u32::try_from(self.buffer_bytes).unwrap_or(u32::MAX),
            saved_offset: offset,
            current_offset: offset,
            // No stamp: a late buffer does not say up to where its CPU is complete.
            time_stamp: if buffer.is_late { 0 } else { buffer.time },
            sequence_number: self.sequence,
            processor_index: buffer.cpu,
            logger_id: self.logger_id,
            state: STATE_FLUSH,
            offset,
            flags: BUFFER_FLAG_PROC_INDEX | buffer.news | marker,
            buffer_type: BufferType::GENERIC.0,
        }
    }

    /// Adds a piece to the backlog: to the last buffer of its CPU if it fits, otherwise as another
    /// one. Late pieces share buffers of their own, which are sorted when a consumer opens, because
    /// stamps of the next piece may be lower.
    fn keep(&mut self, piece: Buffer, stats: &Stats) {
        let records = piece.bytes.get(HEADER_SIZE..).unwrap_or_default();
        let last =
            self.backlog.iter_mut().rev().find(|kept| (kept.cpu, kept.is_late) == (piece.cpu, piece.is_late));
        let fits = |kept: &Buffer| kept.filled.saturating_add(records.len()) <= self.buffer_bytes;
        if let Some(kept) = last.filter(|kept| fits(kept))
            && kept.bytes.try_extend(records)
        {
            if piece.is_late {
                kept.expect_lower_stamps();
            }
            kept.filled = kept.bytes.len();
            kept.events = kept.events.saturating_add(piece.events);
            (kept.time, kept.news) = (piece.time, kept.news | piece.news);
            return;
        }
        if self.backlog.len() >= self.room {
            return self.lose_from_backlog(piece.events, stats);
        }
        self.backlog.push_back(piece);
    }

    /// Counts a buffer that the backlog could not take.
    fn lose_from_backlog(&mut self, events: u32, stats: &Stats) {
        stats.count_undelivered(events);
        self.backlog_lost.0 = self.backlog_lost.0.saturating_add(1);
        self.backlog_lost.1 = self.backlog_lost.1.saturating_add(u64::from(events));
    }

    /// Sends consumers their completeness stamp.
    pub(crate) fn complete(&mut self, stamp: i64) {
        for consumer in &mut self.consumers {
            consumer.queue.set_complete(stamp);
        }
    }

    /// Adds a consumer and returns its id. The first one gets the backlog.
    pub(crate) fn open(&mut self, queue: Q, stats: &Stats) -> ConsumerId {
        let id = ConsumerId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        let first = self.consumers.is_empty();
        self.consumers.push(Consumer { id, queue, buffers_lost: 0, events_lost: 0, pending_flags: 0 });
        if !first {
            return id;
        }
        for mut piece in std::mem::take(&mut self.backlog) {
            piece.sort_records();
            let events = piece.events;
            self.push(&mut piece, events, stats);
        }
        let (buffers, events) = std::mem::take(&mut self.backlog_lost);
        if let Some(consumer) = self.consumers.first_mut().filter(|_| buffers > 0) {
            // The session counted these when the backlog refused them.
            consumer.report_lost(buffers, events);
        }
        id
    }

    /// Removes a consumer.
    pub(crate) fn close(&mut self, id: ConsumerId) {
        self.consumers.retain_mut(|consumer| {
            if consumer.id == id {
                consumer.queue.end();
            }
            consumer.id != id
        });
    }

    /// Ends all queues. What no consumer fetched is counted as lost.
    pub(crate) fn end(&mut self, stats: &Stats) {
        for consumer in &mut self.consumers {
            consumer.queue.end();
        }
        self.consumers.clear();
        for piece in self.backlog.drain(..) {
            stats.count_undelivered(piece.events);
        }
    }
}

#[cfg(test)]
mod tests;
