//! What was collected goes out: full buffers, those that a flush ends, and pieces for live consumers.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;

use traceweir_format::buffer::HEADER_SIZE;
use traceweir_format::spec::session::BUFFER_FLAG_EVENTS_LOST;

use super::{Collector, Stream};
use crate::engine::Shared;
use crate::error::Result;
use crate::output::Job;
use crate::pool::Buffer;

/// Bytes that a live consumer holds at least, and at most, to put events in order.
const LEAST_HELD: usize = 1 << 20;
const MOST_HELD: usize = 64 << 20;

impl Collector {
    /// Sends all partly filled buffers out.
    pub(crate) fn flush(&mut self) {
        let last = self.streams.iter().rposition(|s| s.buffer.as_ref().is_some_and(|b| !b.is_empty()));
        for (index, stream) in self.streams.iter_mut().enumerate() {
            if let Some(mut buffer) = stream.buffer.take_if(|b| !b.is_empty()) {
                buffer.ends_flush = Some(index) == last;
                submit(buffer, &self.shared, &self.jobs, &mut self.told_lost);
            }
        }
    }

    /// Sends the buffers of late streams out: another backlog to fill them may never come. Those of
    /// a flight recorder wait until they are full, as each one that goes out takes the place of the
    /// oldest in the history; snapshots have them as they are.
    pub(super) fn send_late(&mut self) {
        let is_buffering = self.shared.mode().is_buffering();
        for stream in self.streams.iter_mut().filter(|stream| stream.is_late) {
            match stream.buffer.take_if(|buffer| buffer.is_empty() || !is_buffering) {
                Some(empty) if empty.is_empty() => self.shared.pool.give(empty),
                Some(buffer) => submit(buffer, &self.shared, &self.jobs, &mut self.told_lost),
                None => {}
            }
        }
    }

    /// Copies all partly filled buffers.
    pub(crate) fn copy_partial(&self) -> Result<Vec<Buffer>> {
        let buffers = self.streams.iter().filter_map(|stream| stream.buffer.as_ref());
        buffers.filter(|buffer| !buffer.is_empty()).map(Buffer::copy).collect()
    }

    /// Takes the partly filled buffers that a flight recorder has at its end.
    pub(crate) fn take_partial(&mut self) -> Vec<Buffer> {
        let buffers = self.streams.iter_mut().filter_map(|stream| stream.buffer.take());
        buffers.filter(|buffer| !buffer.is_empty()).collect()
    }

    /// Sends live consumers what they have not had, and then how far they have everything; the buffers go on filling. Whether all went
    /// out: what the writer is too busy for is to be delivered later, and goes with the full buffers at the latest.
    #[must_use]
    pub(crate) fn deliver(&mut self) -> bool {
        let all = self.deliver_pieces(true);
        if all {
            self.tell_complete();
        }
        all
    }

    /// Sends live consumers what they have not had, the last piece with the marker of a flush where one ends.
    fn deliver_pieces(&mut self, ends_flush: bool) -> bool {
        let is_new = |b: &Buffer| b.filled > b.delivered;
        let last = self.streams.iter().rposition(|s| s.buffer.as_ref().is_some_and(is_new));
        for (index, stream) in self.streams.iter_mut().enumerate() {
            let Some(buffer) = stream.buffer.as_mut() else { continue };
            let ends_flush = ends_flush && Some(index) == last;
            if !deliver_piece(buffer, ends_flush, &self.shared, &self.jobs, &mut self.told_lost) {
                return false;
            }
        }
        true
    }

    /// Tells live consumers how far they have everything: after a flush or delivery of all that was drained. Whatever comes later is
    /// written as later (K3): a record whose writer was held up before it published, or the first ones after the system's time went back.
    pub(crate) fn tell_complete(&mut self) {
        let newest = self.streams.iter().map(|stream| stream.time).max().unwrap_or(i64::MIN);
        // The drain took everything published before it began. What consumers can tell from the buffers themselves, that a flush
        // completes what the one before it ended with, is kept true as well.
        let drained = self.clock.stamp(self.drained).saturating_sub(1);
        let complete = self.told.max(drained).max(self.newest);
        self.newest = newest;
        for stream in self.streams.iter_mut().filter(|stream| !stream.is_late) {
            stream.key = stream.key.max(self.drained);
        }
        self.tell(complete);
    }

    /// Tells live consumers that they have everything up to this stamp.
    fn tell(&mut self, complete: i64) {
        (self.told, self.untold) = (complete, 0);
        for stream in self.streams.iter_mut().filter(|stream| !stream.is_late) {
            stream.time = stream.time.max(complete.saturating_add(1));
        }
        // Where the writer is gone, so are the consumers.
        let _ = self.jobs.send(Job::Complete(complete));
    }

    /// Bytes collected after which live consumers are told how far they have everything. They hold at least
    /// [`LEAST_HELD`] bytes, and at most [`MOST_HELD`], before they give up on order.
    pub(super) fn tell_after(&self) -> usize {
        let queue = self.shared.maximum_buffers().saturating_mul(self.shared.pool.buffer_bytes());
        queue.clamp(LEAST_HELD, MOST_HELD) / 4
    }

    /// Delivers what was collected and tells live consumers how far they have everything, between two flushes
    /// and also in the middle of a drain. Without that, a consumer would hold all that the other processors
    /// deliver while the buffer of an idle one is not full.
    #[cold]
    pub(super) fn tell_progress(&mut self) {
        if self.shared.stats.consumers.load(Relaxed) == 0 {
            self.untold = 0;
            return;
        }
        let merged = |stream: &Stream| stream.merged.map_or(i64::MIN, |raw| self.clock.stamp(raw));
        // No stream writes an earlier stamp than its last one, nor than what it was merged up to.
        let streams = self.streams.iter().filter(|stream| !stream.is_late);
        let next = streams.map(|stream| stream.time.max(merged(stream))).min();
        let complete = next.unwrap_or(0).saturating_sub(1);
        if complete > self.told.max(0) && self.deliver_pieces(false) {
            self.tell(complete);
        }
    }
}

/// Lets a buffer tell of losses that no other has told of.
fn tell_lost(buffer: &mut Buffer, shared: &Shared, told: &mut u64) {
    let lost = shared.stats.events_lost();
    if lost > *told {
        *told = lost;
        buffer.loss |= BUFFER_FLAG_EVENTS_LOST;
        buffer.news |= BUFFER_FLAG_EVENTS_LOST;
    }
}

/// Sends live consumers what they have not had of a buffer. Whether they have all of it then: not
/// where the writer is too busy, or gone, or there is no memory.
pub(super) fn deliver_piece(
    buffer: &mut Buffer,
    ends_flush: bool,
    shared: &Shared,
    jobs: &Sender<Job>,
    told: &mut u64,
) -> bool {
    if buffer.filled <= buffer.delivered {
        return true;
    }
    let size = buffer.filled.saturating_sub(buffer.delivered).saturating_add(HEADER_SIZE);
    if !shared.send_piece(size) {
        return false;
    }
    tell_lost(buffer, shared, told);
    let events = buffer.events.saturating_sub(buffer.delivered_events);
    let Some(mut piece) = buffer.copy_from(buffer.delivered, events) else {
        shared.piece_arrived(size);
        return false;
    };
    piece.ends_flush = ends_flush;
    (buffer.delivered, buffer.delivered_events, buffer.news) = (buffer.filled, buffer.events, 0);
    jobs.send(Job::Live(piece)).is_ok()
}

/// Sends a buffer to the writer.
pub(super) fn submit(mut buffer: Buffer, shared: &Shared, jobs: &Sender<Job>, told: &mut u64) {
    tell_lost(&mut buffer, shared, told);
    shared.pool.submitted();
    if let Err(refused) = jobs.send(Job::Buffer(buffer)) {
        // The writer is gone: what it would have written is lost.
        if let Job::Buffer(buffer) = refused.0 {
            shared.stats.count_unwritten(buffer.events);
            shared.pool.give(buffer);
        }
        shared.pool.settled();
    }
}
