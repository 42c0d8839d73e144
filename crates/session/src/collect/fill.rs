//! Copies records into the buffer of their stream, sets their ids and stamps ("signs" them), and
//! adds extended data items.
//!
//! A record that with its items exceeds 64 KiB or the buffer is dropped and counted under
//! `no_room`.

use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::time::Duration;

use traceweir_format::buffer::HEADER_SIZE;
use traceweir_transport::abi::{BINARY_PATH, KEEP_STAMP, MAX_RECORD_BYTES, WITH_ITEMS};
use traceweir_transport::ring::RecordPrefix;

use super::CpuStream;
use super::send::{deliver_piece, submit};
use crate::capture;
use crate::clock::SessionClock;
use crate::merge::{MergeRing, RecordSink};
use crate::messages::Job;
use crate::modules::{self, ModuleAdded};
use crate::pool::{Buffer, PoolWait};
use crate::record::{RegionWriter, StampPolicy};
use crate::shared::SharedState;
use crate::stacks::StackCache;

/// Copies records into the buffer of a stream.
pub(super) struct BufferFiller<'a, 'w> {
    pub(super) streams: &'a mut [CpuStream],
    pub(super) stream_index: usize,
    pub(super) writers: &'a mut [&'w mut RegionWriter],
    pub(super) clock: &'a SessionClock,
    pub(super) shared: &'a SharedState,
    pub(super) jobs: &'a Sender<Job>,
    pub(super) reported_lost: &'a AtomicU64,
    /// Whether other threads fill buffers of further streams at the same time.
    pub(super) is_in_parallel: bool,
    pub(super) events: u64,
    pub(super) damaged: u64,
    /// Records that are too large with their extended data items, and the stacks of skipped events.
    pub(super) too_large: u64,
    /// Offset of the record that was stored last.
    pub(super) last_offset: usize,
    /// Cache that stores equal stacks once.
    pub(super) stacks: Option<&'a mut StackCache>,
}

/// Adds the counts even if the drain panics: the buffers hold these events in any case.
impl Drop for BufferFiller<'_, '_> {
    fn drop(&mut self) {
        let stats = &self.shared.stats;
        stats.events.fetch_add(self.events, Relaxed);
        stats.damaged.fetch_add(self.damaged, Relaxed);
        stats.no_room.fetch_add(self.too_large, Relaxed);
    }
}

impl BufferFiller<'_, '_> {
    /// Submits the stream's buffer and takes a free one. Returns whether a buffer was free.
    #[cold]
    fn replace_buffer(&mut self) -> bool {
        let Some(stream) = self.streams.get_mut(self.stream_index) else { return false };
        if let Some(full) = stream.buffer.take() {
            submit(full, self.shared, self.jobs, self.reported_lost);
        }
        let Some(mut buffer) = self.shared.pool.try_take() else { return false };
        buffer.reset(stream.cpu);
        buffer.is_late = stream.is_late;
        stream.buffer = Some(buffer);
        stream.defined_keys.clear();
        true
    }

    /// Prepares a late stream for records from this raw stamp on. If the stamp is below the last
    /// one of the stream, the stream restarts at the session's start in the same buffer, whose
    /// records are sorted before they are written. Live consumers get the records of the buffer so
    /// far; if they cannot take them now, the buffer is submitted.
    pub(super) fn restart_at(&mut self, stamp: u64, start: (u64, i64)) {
        let Some(stream) = self.streams.get_mut(self.stream_index).filter(|stream| stamp < stream.min_raw)
        else {
            return;
        };
        if let Some(buffer) = stream.buffer.as_mut().filter(|buffer| !buffer.is_empty()) {
            buffer.expect_lower_stamps();
            let is_live = self.shared.mode().is_real_time();
            if is_live
                && !deliver_piece(buffer, false, self.shared, self.jobs, self.reported_lost)
                && let Some(buffer) = stream.buffer.take()
            {
                submit(buffer, self.shared, self.jobs, self.reported_lost);
            }
        }
        stream.defined_keys.clear();
        (stream.min_raw, stream.min_stamp) = start;
    }
}

impl BufferFiller<'_, '_> {
    /// Stores a record with `gap` bytes left in front of it for extended data items. `None`
    /// compiles without any item handling. Returns `false`, and takes nothing, if no buffer is
    /// free.
    #[inline(always)]
    fn store<R: MergeRing>(
        &mut self,
        source: usize,
        ring: &mut R,
        prefix: &RecordPrefix,
        stamp: u64,
        gap: Option<usize>,
    ) -> bool {
        let total_length = prefix.length.saturating_add(gap.unwrap_or(0));
        let padded = total_length.next_multiple_of(8);
        let fits = |b: &Buffer| b.filled.saturating_add(padded) <= b.bytes.len();
        let fits_buffer =
            self.streams.get(self.stream_index).and_then(|s| s.buffer.as_ref()).is_some_and(fits);
        if !fits_buffer && !self.replace_buffer() {
            return false;
        }
        let (Some(stream), Some(writer)) =
            (self.streams.get_mut(self.stream_index), self.writers.get_mut(source))
        else {
            return false;
        };
        let Some(buffer) = stream.buffer.as_mut() else { return false };
        let end = buffer.filled.saturating_add(padded);
        let Some(space) = buffer.bytes.get_mut(buffer.filled..end) else { return false };
        // The record covers everything except the padding.
        if let Some(padding) = space.last_chunk_mut::<8>() {
            *padding = [0; 8];
        }
        let Some(record) = space.get_mut(gap.unwrap_or(0)..total_length) else { return false };
        ring.take(record);
        // A late record gets the stamp of its predecessor (M4 in merge.rs), or one after the
        // completeness stamp (K3 in collect.rs).
        stream.min_raw = stream.min_raw.max(stamp);
        stream.min_stamp = stream.min_stamp.max(self.clock.stamp(stream.min_raw));
        let latest = stream.min_stamp;
        let policy = if prefix.flags & KEEP_STAMP != 0 {
            StampPolicy::Kept { latest }
        } else {
            StampPolicy::Replaced(latest)
        };
        let mut end = end;
        let mut is_valid = writer.sign(record, policy);
        if gap.is_some() && is_valid {
            let new_length =
                space.get_mut(..total_length).and_then(|space| writer.add_items(space, prefix.flags));
            is_valid = new_length.is_some();
            end = buffer.filled.saturating_add(new_length.unwrap_or(0).next_multiple_of(8));
        }
        if !is_valid {
            self.damaged = self.damaged.saturating_add(1);
            return true;
        }
        self.last_offset = buffer.filled;
        buffer.filled = end;
        buffer.events = buffer.events.saturating_add(1);
        buffer.time = stream.min_stamp;
        self.events = self.events.saturating_add(1);
        true
    }

    #[cold]
    fn put_flagged<R: MergeRing>(
        &mut self,
        source: usize,
        ring: &mut R,
        prefix: &RecordPrefix,
        stamp: u64,
    ) -> bool {
        if prefix.flags & BINARY_PATH == 0 {
            return self.put_with_items(source, ring, prefix, stamp);
        }
        let before = self.events;
        if !self.store(source, ring, prefix, stamp, None) {
            return false;
        }
        if self.events != before {
            self.keep_module(source, prefix.length);
        }
        true
    }

    /// Keeps the record stored last, which names a provider's module, for the front of files. If
    /// the front is the only place for the record, removes it from the events.
    fn keep_module(&mut self, source: usize, length: usize) {
        let (Some(stream), Some(writer)) =
            (self.streams.get_mut(self.stream_index), self.writers.get(source))
        else {
            return;
        };
        let Some(buffer) = stream.buffer.as_mut() else { return };
        let start = buffer.filled.saturating_sub(length.next_multiple_of(8));
        let Some(record) = buffer.bytes.get_mut(start..buffer.filled) else { return };
        if !modules::check_and_set_process(record, length, writer.process_id()) {
            return;
        }
        let mut modules = self.shared.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let added = modules.add(record);
        if added == ModuleAdded::New {
            let _ = self.jobs.send(Job::Module(record.to_vec()));
        }
        if added != ModuleAdded::NoRoom && self.shared.keeps_modules_at_front() {
            buffer.filled = start;
            buffer.events = buffer.events.saturating_sub(1);
            self.events = self.events.saturating_sub(1);
        }
    }

    /// Stores any record and replaces its stack with a key.
    #[cold]
    fn put_with_stack_key<R: MergeRing>(
        &mut self,
        source: usize,
        ring: &mut R,
        prefix: &RecordPrefix,
        stamp: u64,
    ) -> bool {
        let before = self.events;
        let is_special = prefix.flags & (WITH_ITEMS | BINARY_PATH) != 0;
        let is_put = if is_special {
            self.put_flagged(source, ring, prefix, stamp)
        } else {
            self.store(source, ring, prefix, stamp, None)
        };
        let (Some(stream), Some(stacks)) = (self.streams.get_mut(self.stream_index), self.stacks.as_mut())
        else {
            return is_put;
        };
        if let Some(buffer) = stream.buffer.as_mut().filter(|_| self.events != before) {
            let range = (self.last_offset, buffer.filled);
            let (filled, added) = stacks.replace(
                &mut buffer.bytes,
                range,
                stream.min_stamp,
                self.stream_index,
                &mut stream.defined_keys,
            );
            buffer.filled = filled;
            buffer.events = buffer.events.saturating_add(added);
            self.events = self.events.saturating_add(u64::from(added));
        }
        is_put
    }

    #[cold]
    fn put_with_items<R: MergeRing>(
        &mut self,
        source: usize,
        ring: &mut R,
        prefix: &RecordPrefix,
        stamp: u64,
    ) -> bool {
        let Some(writer) = self.writers.get_mut(source) else { return false };
        let gap = writer.item_bytes(prefix.flags);
        let total_length = prefix.length.saturating_add(gap);
        let max_bytes = self.shared.pool.buffer_bytes().saturating_sub(HEADER_SIZE);
        if total_length <= MAX_RECORD_BYTES && total_length.next_multiple_of(8) <= max_bytes {
            return self.store(source, ring, prefix, stamp, Some(gap));
        }
        ring.take(&mut []);
        self.too_large = self.too_large.saturating_add(1);
        true
    }
}

impl BufferFiller<'_, '_> {
    /// Skips a captured record that is too large, or the stack of a skipped event: the stack would
    /// seem to belong to another event.
    #[cold]
    fn skip_captured<R: MergeRing>(&mut self, ring: &mut R, may_have_stacks: bool) -> bool {
        ring.take(&mut []);
        self.too_large = self.too_large.saturating_add(1);
        if let Some(stream) = self.streams.get_mut(self.stream_index).filter(|_| may_have_stacks) {
            stream.captured_time = None;
        }
        true
    }

    /// Copies a captured record into the buffer.
    fn put_captured<R: MergeRing>(&mut self, ring: &mut R, prefix: &RecordPrefix, stamp: u64) -> bool {
        let padded = prefix.length.next_multiple_of(8);
        let max_bytes = self.shared.pool.buffer_bytes().saturating_sub(HEADER_SIZE);
        let (is_stack, is_complete) = (capture::is_stack(prefix), capture::is_complete(prefix));
        let may_have_stacks = !is_stack && !is_complete;
        let is_orphan_stack =
            is_stack && self.streams.get(self.stream_index).is_some_and(|s| s.captured_time.is_none());
        if prefix.length > MAX_RECORD_BYTES || padded > max_bytes || is_orphan_stack {
            return self.skip_captured(ring, may_have_stacks);
        }
        let fits = |b: &Buffer| b.filled.saturating_add(padded) <= b.bytes.len();
        let fits_buffer =
            self.streams.get(self.stream_index).and_then(|s| s.buffer.as_ref()).is_some_and(fits);
        if !fits_buffer && !self.replace_buffer() {
            return false;
        }
        let Some(stream) = self.streams.get_mut(self.stream_index) else { return false };
        let Some(buffer) = stream.buffer.as_mut() else { return false };
        let end = buffer.filled.saturating_add(padded);
        let Some(space) = buffer.bytes.get_mut(buffer.filled..end) else { return false };
        if let Some(padding) = space.last_chunk_mut::<8>() {
            *padding = [0; 8];
        }
        let Some(record) = space.get_mut(..prefix.length) else { return false };
        ring.take(record);
        stream.min_raw = stream.min_raw.max(stamp);
        stream.min_stamp = stream.min_stamp.max(self.clock.stamp(stream.min_raw));
        let event_time = stream.captured_time.filter(|_| is_stack);
        let is_signed = capture::set_times(record, stream.min_stamp, event_time);
        if may_have_stacks {
            stream.captured_time = is_signed.then_some(stream.min_stamp);
        }
        if !is_signed {
            self.damaged = self.damaged.saturating_add(1);
            return true;
        }
        let range = (buffer.filled, end);
        buffer.filled = end;
        buffer.events = buffer.events.saturating_add(1);
        buffer.time = stream.min_stamp;
        self.events = self.events.saturating_add(1);
        let may_use_key = |stacks: &StackCache| is_stack || is_complete && stacks.includes_user_events();
        if let Some(stacks) = self.stacks.as_mut().filter(|stacks| may_use_key(stacks)) {
            let (filled, added) = stacks.replace(
                &mut buffer.bytes,
                range,
                stream.min_stamp,
                self.stream_index,
                &mut stream.defined_keys,
            );
            buffer.filled = filled;
            buffer.events = buffer.events.saturating_add(added);
            self.events = self.events.saturating_add(u64::from(added));
        }
        true
    }
}

impl<R: MergeRing> RecordSink<R> for BufferFiller<'_, '_> {
    #[inline]
    fn put(&mut self, source: usize, ring: &mut R, prefix: &RecordPrefix, stamp: u64) -> bool {
        if ring.is_captured() {
            return self.put_captured(ring, prefix, stamp);
        }
        if self.stacks.as_ref().is_some_and(|stacks| stacks.includes_user_events()) {
            return self.put_with_stack_key(source, ring, prefix, stamp);
        }
        if prefix.flags & (WITH_ITEMS | BINARY_PATH) != 0 {
            return self.put_flagged(source, ring, prefix, stamp);
        }
        self.store(source, ring, prefix, stamp, None)
    }

    fn wait_for_space(&mut self) -> bool {
        if self.is_in_parallel {
            // Only a thread that is alone may wait: buffers may be in streams of other threads, or
            // below the flush threshold.
            return self.shared.pool.available() > 0;
        }
        if self.shared.flush_threshold > 1 {
            // Full buffers below the flush threshold may be waiting; they are needed now.
            let _ = self.jobs.send(Job::WriteOut);
        }
        if self.shared.pool.wait_for_buffer() == PoolWait::Again {
            return true;
        }
        // Other streams are filling all buffers: submit the partly filled buffers.
        let mut submitted_any = false;
        for stream in &mut *self.streams {
            if let Some(buffer) = stream.buffer.take_if(|b| !b.is_empty()) {
                submit(buffer, self.shared, self.jobs, self.reported_lost);
                submitted_any = true;
            } else if let Some(empty) = stream.buffer.take() {
                self.shared.pool.return_buffer(empty);
            }
        }
        if !submitted_any {
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}
