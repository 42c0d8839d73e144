//! Sends collected records out: full buffers, the partly filled buffers of a flush, and pieces for
//! live consumers.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;

use traceweir_format::buffer::HEADER_SIZE;
use traceweir_format::spec::session::BUFFER_FLAG_EVENTS_LOST;

use super::{Collector, CpuStream};
use crate::error::Result;
use crate::messages::Job;
use crate::pool::Buffer;
use crate::shared::SharedState;

/// Smallest limit of the bytes that a live consumer holds to sort events.
const MIN_HELD_LIMIT_BYTES: usize = 1 << 20;
/// Largest limit of the bytes that a live consumer holds to sort events.
const MAX_HELD_LIMIT_BYTES: usize = 64 << 20;

impl Collector {
    /// Submits all partly filled buffers.
    pub(crate) fn flush(&mut self) {
        let last = self.streams.iter().rposition(|s| s.buffer.as_ref().is_some_and(|b| !b.is_empty()));
        for (index, stream) in self.streams.iter_mut().enumerate() {
            if let Some(mut buffer) = stream.buffer.take_if(|b| !b.is_empty()) {
                buffer.ends_flush = Some(index) == last;
                submit(buffer, &self.shared, &self.jobs, &self.reported_lost);
            }
        }
    }

    /// Submits the buffers of late streams: another backlog to fill them may never come. The late
    /// buffers of a flight recorder wait until they are full, because each submitted buffer
    /// replaces the oldest one in the history; snapshots copy partly filled buffers.
    pub(super) fn send_late(&mut self) {
        let is_buffering = self.shared.mode().is_buffering();
        for stream in self.streams.iter_mut().filter(|stream| stream.is_late) {
            match stream.buffer.take_if(|buffer| buffer.is_empty() || !is_buffering) {
                Some(empty) if empty.is_empty() => self.shared.pool.return_buffer(empty),
                Some(buffer) => submit(buffer, &self.shared, &self.jobs, &self.reported_lost),
                None => {}
            }
        }
    }

    /// Copies all partly filled buffers, for a snapshot.
    pub(crate) fn copy_partial(&self) -> Result<Vec<Buffer>> {
        let buffers = self.streams.iter().filter_map(|stream| stream.buffer.as_ref());
        buffers.filter(|buffer| !buffer.is_empty()).map(Buffer::copy).collect()
    }

    /// Takes the partly filled buffers that a flight recorder has at its end.
    pub(crate) fn take_partial(&mut self) -> Vec<Buffer> {
        let buffers = self.streams.iter_mut().filter_map(|stream| stream.buffer.take());
        buffers.filter(|buffer| !buffer.is_empty()).collect()
    }

    /// Sends live consumers the new records, followed by the completeness stamp; the buffers stay
    /// in use. Returns whether all records were sent. The others are delivered later, at the latest
    /// with the full buffers.
    #[must_use]
    pub(crate) fn deliver(&mut self) -> bool {
        let is_all_sent = self.deliver_pieces(true);
        if is_all_sent {
            self.report_complete();
        }
        is_all_sent
    }

    /// Sends live consumers the new records. With `ends_flush`, marks the last piece as the end of
    /// a flush. Returns whether all were sent.
    fn deliver_pieces(&mut self, ends_flush: bool) -> bool {
        let is_new = |b: &Buffer| b.filled > b.delivered;
        let last = self.streams.iter().rposition(|s| s.buffer.as_ref().is_some_and(is_new));
        for (index, stream) in self.streams.iter_mut().enumerate() {
            let Some(buffer) = stream.buffer.as_mut() else { continue };
            let ends_flush = ends_flush && Some(index) == last;
            if !deliver_piece(buffer, ends_flush, &self.shared, &self.jobs, &self.reported_lost) {
                return false;
            }
        }
        true
    }

    /// Sends live consumers the completeness stamp, after a flush or delivery of everything that
    /// was drained. A record that comes later gets a stamp after the completeness stamp, even if it
    /// was written earlier or the system's time went back (K3 in collect.rs).
    pub(crate) fn report_complete(&mut self) {
        let newest = self.streams.iter().map(|stream| stream.min_stamp).max().unwrap_or(i64::MIN);
        // The drain took everything published before it began. After a flush, consumers also assume
        // that they have everything up to the newest stamp of the previous flush or delivery, so
        // the completeness stamp must not be lower.
        let drained = self.clock.stamp(self.drain_start).saturating_sub(1);
        let complete = self.complete.max(drained).max(self.newest_at_last_flush);
        self.newest_at_last_flush = newest;
        for stream in self.streams.iter_mut().filter(|stream| !stream.is_late) {
            stream.min_raw = stream.min_raw.max(self.drain_start);
        }
        self.send_complete(complete);
    }

    /// Sends live consumers the stamp up to which they have everything.
    fn send_complete(&mut self, complete: i64) {
        (self.complete, self.unreported_bytes) = (complete, 0);
        for stream in self.streams.iter_mut().filter(|stream| !stream.is_late) {
            stream.min_stamp = stream.min_stamp.max(complete.saturating_add(1));
        }
        // Without the writer thread there are no consumers.
        let _ = self.jobs.send(Job::Complete(complete));
    }

    /// Returns the bytes after which live consumers get another completeness stamp: a quarter of
    /// the bytes that they hold before they stop waiting for order.
    pub(super) fn report_interval_bytes(&self) -> usize {
        let queue = self.shared.maximum_buffers().saturating_mul(self.shared.pool.buffer_bytes());
        queue.clamp(MIN_HELD_LIMIT_BYTES, MAX_HELD_LIMIT_BYTES) / 4
    }

    /// Delivers the collected records and the completeness stamp between two flushes, also during a
    /// drain. Otherwise a consumer would hold everything from the other CPUs until the buffer of an
    /// idle CPU is full.
    #[cold]
    pub(super) fn report_progress(&mut self) {
        if self.shared.stats.consumers.load(Relaxed) == 0 {
            self.unreported_bytes = 0;
            return;
        }
        let merged_stamp =
            |stream: &CpuStream| stream.merged_up_to.map_or(i64::MIN, |raw| self.clock.stamp(raw));
        // No stream writes a stamp below its last stamp or below the stamp up to which it was
        // merged.
        let streams = self.streams.iter().filter(|stream| !stream.is_late);
        let next = streams.map(|stream| stream.min_stamp.max(merged_stamp(stream))).min();
        let complete = next.unwrap_or(0).saturating_sub(1);
        if complete > self.complete.max(0) && self.deliver_pieces(false) {
            self.send_complete(complete);
        }
    }
}

/// Marks a buffer if events were lost that no earlier buffer reports.
fn mark_new_losses(buffer: &mut Buffer, shared: &SharedState, reported_lost: &AtomicU64) {
    let lost = shared.stats.events_lost();
    if reported_lost.fetch_max(lost, Relaxed) < lost {
        buffer.loss_flags |= BUFFER_FLAG_EVENTS_LOST;
        buffer.undelivered_loss |= BUFFER_FLAG_EVENTS_LOST;
    }
}

/// Sends live consumers the new records of a buffer. Returns `false` if the writer is busy or has
/// ended, or if there is no memory for a copy.
pub(super) fn deliver_piece(
    buffer: &mut Buffer,
    ends_flush: bool,
    shared: &SharedState,
    jobs: &Sender<Job>,
    reported_lost: &AtomicU64,
) -> bool {
    if buffer.filled <= buffer.delivered {
        return true;
    }
    let size = buffer.filled.saturating_sub(buffer.delivered).saturating_add(HEADER_SIZE);
    if !shared.reserve_piece(size) {
        return false;
    }
    mark_new_losses(buffer, shared, reported_lost);
    let events = buffer.events.saturating_sub(buffer.delivered_events);
    let Some(mut piece) = buffer.copy_from(buffer.delivered, events) else {
        shared.release_piece(size);
        return false;
    };
    piece.ends_flush = ends_flush;
    (buffer.delivered, buffer.delivered_events, buffer.undelivered_loss) = (buffer.filled, buffer.events, 0);
    jobs.send(Job::Live(piece)).is_ok()
}

/// Sends a buffer to the writer.
pub(super) fn submit(
    mut buffer: Buffer,
    shared: &SharedState,
    jobs: &Sender<Job>,
    reported_lost: &AtomicU64,
) {
    mark_new_losses(&mut buffer, shared, reported_lost);
    shared.pool.count_submitted();
    if let Err(rejected) = jobs.send(Job::Buffer(buffer)) {
        // The writer thread has ended: the buffer is lost.
        if let Job::Buffer(buffer) = rejected.0 {
            shared.stats.count_unwritten(buffer.events);
            shared.pool.return_buffer(buffer);
        }
        shared.pool.count_finished();
    }
}
