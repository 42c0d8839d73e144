//! Live consumers: each has a queue that the session fills without ever waiting.
//!
//! ```text
//!   no consumer     buffers ──▶ backlog (at most as many as the session may have; further ones are
//!                   dropped and counted)
//!   first consumer  (opens while there is no other) backlog ──▶ its queue, then live buffers
//!   others          live buffers ──▶ each queue; a full queue loses the buffer for its consumer,
//!                   counted
//! ```
//!
//! - V1 Buffers that a consumer does not get are counted, and the flags of the next buffer it gets
//!   report them.
//! - V2 Delivery does not affect the file: it leaves the bytes of the buffer unchanged.
//! - V3 A buffer may be delivered in pieces, each once: [`Buffer::delivered`] is the position.
//! - V4 The header of a late buffer has no stamp: consumers sort its events separately from those
//!   of the normal stream of its CPU.

use std::collections::VecDeque;

use traceweir_format::buffer::{BufferHeader, HEADER_SIZE, STATE_FLUSH};
use traceweir_format::spec::session::{
    BUFFER_FLAG_BUFFER_LOST, BUFFER_FLAG_EVENTS_LOST, BUFFER_FLAG_FLUSH_MARKER, BUFFER_FLAG_PROC_INDEX,
    BufferType,
};
use traceweir_transport::live::QueueWriter;

use crate::ids::ConsumerId;
use crate::pool::Buffer;
use crate::stats::SessionStats;

/// Largest number of consumers of a session.
pub(crate) const MAX_CONSUMERS: usize = 8;

/// The writing side of a consumer's queue.
pub(crate) trait ConsumerQueue {
    fn push(&mut self, buffer: &[u8]) -> bool;
    fn set_lost(&mut self, buffers: u64, events: u64);
    fn set_complete(&mut self, stamp: i64);
    fn end(&mut self);
}

impl ConsumerQueue for QueueWriter {
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
struct LiveConsumer<Q> {
    id: ConsumerId,
    queue: Q,
    buffers_lost: u64,
    events_lost: u64,
    /// Loss flags for the next buffer of this consumer.
    pending_flags: u16,
}

impl<Q: ConsumerQueue> LiveConsumer<Q> {
    /// Delivers a piece, after writing `header` to its start.
    fn deliver(&mut self, header: &BufferHeader, piece: &mut [u8], events: u32, stats: &SessionStats) {
        let header = BufferHeader { flags: header.flags | self.pending_flags, ..*header };
        if let Some(start) = piece.first_chunk_mut() {
            *start = header.to_bytes();
        }
        if self.queue.push(piece) {
            self.pending_flags = 0;
            return;
        }
        stats.count_undelivered(events);
        self.report_lost(1, u64::from(events));
        // The next buffer reports these loss flags. The flush marker is not kept: a later flush has
        // its own.
        self.pending_flags |= header.flags & (BUFFER_FLAG_EVENTS_LOST | BUFFER_FLAG_BUFFER_LOST);
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
    consumers: Vec<LiveConsumer<Q>>,
    backlog: VecDeque<Buffer>,
    /// Buffers and events that the backlog could not take.
    backlog_lost: (u64, u64),
    /// Size of a session buffer in bytes.
    buffer_bytes: usize,
    /// Largest number of buffers in the backlog.
    max_backlog: usize,
    logger_id: u16,
    sequence_number: i64,
    next_id: u64,
}

impl<Q: ConsumerQueue> Realtime<Q> {
    pub(crate) fn new(buffer_bytes: usize, max_backlog: usize, logger_id: u16) -> Self {
        Self {
            consumers: Vec::new(),
            backlog: VecDeque::new(),
            backlog_lost: (0, 0),
            buffer_bytes,
            max_backlog,
            logger_id,
            sequence_number: 0,
            next_id: 1,
        }
    }

    /// Returns whether the backlog is full and has dropped a buffer, and there is no consumer.
    pub(crate) fn is_full(&self) -> bool {
        self.backlog_lost.0 > 0 && self.consumers.is_empty() && self.backlog.len() >= self.max_backlog
    }

    /// Changes the size of the backlog.
    pub(crate) fn set_max_backlog(&mut self, max_backlog: usize) {
        self.max_backlog = max_backlog;
    }

    /// Returns the number of consumers.
    pub(crate) fn consumer_count(&self) -> usize {
        self.consumers.len()
    }

    /// Returns the number of buffers in the backlog. The queue of the first consumer must have room
    /// for all of them.
    pub(crate) fn backlog_len(&self) -> usize {
        self.backlog.len()
    }

    /// Delivers the records of a buffer that consumers do not have yet.
    pub(crate) fn deliver(&mut self, buffer: &mut Buffer, stats: &SessionStats) {
        if buffer.filled <= buffer.delivered {
            return;
        }
        let events = buffer.events.saturating_sub(buffer.delivered_events);
        if self.consumers.is_empty() {
            match buffer.copy_from(buffer.delivered, events) {
                Some(piece) => self.add_to_backlog(piece, stats),
                None => self.count_lost_from_backlog(events, stats),
            }
        } else {
            self.push(buffer, events, stats);
        }
        (buffer.delivered, buffer.delivered_events, buffer.undelivered_loss) =
            (buffer.filled, buffer.events, 0);
    }

    /// Pushes the undelivered part of a buffer to all consumers. The header temporarily replaces
    /// the bytes before that part.
    fn push(&mut self, buffer: &mut Buffer, events: u32, stats: &SessionStats) {
        self.sequence_number = self.sequence_number.saturating_add(1);
        let start = buffer.delivered.saturating_sub(HEADER_SIZE);
        let header = self.buffer_header(buffer, buffer.filled.saturating_sub(start));
        let Some(piece) = buffer.bytes.get_mut(start..buffer.filled) else { return };
        let Some(replaced) = piece.first_chunk::<HEADER_SIZE>().copied() else { return };
        for consumer in &mut self.consumers {
            consumer.deliver(&header, piece, events, stats);
        }
        if let Some(start) = piece.first_chunk_mut() {
            *start = replaced;
        }
    }

    fn buffer_header(&self, buffer: &Buffer, valid_bytes: usize) -> BufferHeader {
        let offset = u32::try_from(valid_bytes).unwrap_or(u32::MAX);
        let marker = if buffer.ends_flush { BUFFER_FLAG_FLUSH_MARKER } else { 0 };
        BufferHeader {
            buffer_size: u32::try_from(self.buffer_bytes).unwrap_or(u32::MAX),
            saved_offset: offset,
            current_offset: offset,
            // The stamp of a buffer promises that its CPU is complete up to there. A late buffer
            // cannot promise that, so it has none.
            time_stamp: if buffer.is_late { 0 } else { buffer.time },
            sequence_number: self.sequence_number,
            processor_index: buffer.cpu,
            logger_id: self.logger_id,
            state: STATE_FLUSH,
            offset,
            flags: BUFFER_FLAG_PROC_INDEX | buffer.undelivered_loss | marker,
            buffer_type: BufferType::GENERIC.0,
        }
    }

    /// Adds a piece to the backlog: to the last buffer of its CPU if it fits, otherwise as a new
    /// buffer. Late pieces have buffers of their own in the backlog. Their stamps may be lower than
    /// those of earlier pieces, so these buffers are sorted when a consumer opens.
    fn add_to_backlog(&mut self, piece: Buffer, stats: &SessionStats) {
        let records = piece.bytes.get(HEADER_SIZE..).unwrap_or_default();
        let last =
            self.backlog.iter_mut().rev().find(|last| (last.cpu, last.is_late) == (piece.cpu, piece.is_late));
        let fits = |last: &Buffer| last.filled.saturating_add(records.len()) <= self.buffer_bytes;
        if let Some(last) = last.filter(|last| fits(last))
            && last.bytes.try_extend(records)
        {
            if piece.is_late {
                last.expect_lower_stamps();
            }
            last.filled = last.bytes.len();
            last.events = last.events.saturating_add(piece.events);
            (last.time, last.undelivered_loss) = (piece.time, last.undelivered_loss | piece.undelivered_loss);
            return;
        }
        if self.backlog.len() >= self.max_backlog {
            return self.count_lost_from_backlog(piece.events, stats);
        }
        self.backlog.push_back(piece);
    }

    /// Counts a buffer that the backlog could not take.
    fn count_lost_from_backlog(&mut self, events: u32, stats: &SessionStats) {
        stats.count_undelivered(events);
        self.backlog_lost.0 = self.backlog_lost.0.saturating_add(1);
        self.backlog_lost.1 = self.backlog_lost.1.saturating_add(u64::from(events));
    }

    /// Informs all consumers that no event with a lower stamp will follow.
    pub(crate) fn set_complete(&mut self, stamp: i64) {
        for consumer in &mut self.consumers {
            consumer.queue.set_complete(stamp);
        }
    }

    /// Adds a consumer and returns its id. The first consumer gets the backlog.
    pub(crate) fn open(&mut self, queue: Q, stats: &SessionStats) -> ConsumerId {
        let id = ConsumerId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        let is_first = self.consumers.is_empty();
        self.consumers.push(LiveConsumer { id, queue, buffers_lost: 0, events_lost: 0, pending_flags: 0 });
        if !is_first {
            return id;
        }
        for mut buffer in std::mem::take(&mut self.backlog) {
            buffer.sort_records();
            let events = buffer.events;
            self.push(&mut buffer, events, stats);
        }
        let (buffers, events) = std::mem::take(&mut self.backlog_lost);
        if let Some(consumer) = self.consumers.first_mut().filter(|_| buffers > 0) {
            // The session counted these buffers when the backlog dropped them.
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

    /// Ends all queues and counts the backlog as lost.
    pub(crate) fn end(&mut self, stats: &SessionStats) {
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
