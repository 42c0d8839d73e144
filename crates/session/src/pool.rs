//! The session's buffers: how many exist, which are free, and waiting for one.
//!
//! ```text
//!   free ──try_take──▶ a stream fills it ──count_submitted──▶ the writer has it
//!    ▲                                                         │ count_finished: one job less
//!    └───────────────────── return_buffer ─────────────────────┘                 in progress
//! ```
//!
//! - P1 No buffer is allocated if `maximum` or more exist. At least one exists, allocated before
//!   the session starts: the session works, if slowly, with a single buffer.
//! - P2 The minimum number of buffers is allocated before the start as well, up to a
//!   [limit](MAX_PREALLOCATED_BYTES); others are allocated on demand. No buffer is freed before the
//!   session ends, and none is lost when a thread panics, so that P1 still holds.
//! - P3 Each finished job wakes the waiting thread, and [`Pool::wait_for_buffer`] reports when no
//!   job is in progress that could free a buffer.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use traceweir_format::buffer::{HEADER_SIZE, Records};
use traceweir_format::header::time_of;
use traceweir_format::spec::status::Status;
use traceweir_transport::map::check_headroom;

use crate::error::{Error, Result};
use crate::storage::ALIGNMENT;

/// The most bytes of buffers that are allocated before the session starts.
const MAX_PREALLOCATED_BYTES: usize = 64 << 20;

/// Bytes that can begin at a page boundary, from where a device transfers them directly, without a
/// copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct AlignedBytes {
    memory: Vec<u8>,
    /// Offset of the first byte in `memory`.
    start: usize,
}

impl AlignedBytes {
    /// Allocates `size` zeros at a multiple of [`ALIGNMENT`], if there is memory.
    fn allocate_aligned(size: usize) -> Option<Self> {
        let mut memory = Vec::new();
        let total_bytes = size.checked_add(ALIGNMENT)?;
        check_headroom(total_bytes).ok()?;
        memory.try_reserve_exact(total_bytes).ok()?;
        memory.resize(total_bytes, 0);
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        memory.truncate(start.checked_add(size)?);
        Some(Self { memory, start })
    }

    /// Allocates capacity for `bytes` bytes, not aligned, if there is memory. The result is empty.
    fn with_capacity(bytes: usize) -> Option<Self> {
        let mut memory = Vec::new();
        check_headroom(bytes).ok()?;
        memory.try_reserve_exact(bytes).ok()?;
        Some(Self { memory, start: 0 })
    }

    /// Changes the number of bytes.
    pub(crate) fn resize(&mut self, size: usize, value: u8) {
        self.memory.resize(self.start.saturating_add(size), value);
    }

    /// Appends bytes, if there is memory; otherwise changes nothing and returns `false`.
    #[must_use]
    pub(crate) fn try_extend(&mut self, added: &[u8]) -> bool {
        let total_bytes = self.memory.len().saturating_add(added.len());
        let fits = total_bytes <= self.memory.capacity()
            || (check_headroom(total_bytes).is_ok() && self.memory.try_reserve(added.len()).is_ok());
        if fits {
            self.memory.extend_from_slice(added);
        }
        fits
    }
}

#[cfg(test)]
impl From<Vec<u8>> for AlignedBytes {
    fn from(memory: Vec<u8>) -> Self {
        Self { memory, start: 0 }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.memory.get(self.start..).unwrap_or_default()
    }
}

impl DerefMut for AlignedBytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.start..).unwrap_or_default()
    }
}

/// A buffer with the layout of the file: space for the header, then records of one CPU.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    pub(crate) bytes: AlignedBytes,
    /// Bytes in use, including the space for the header; a multiple of eight.
    pub(crate) filled: usize,
    /// CPU of the records.
    pub(crate) cpu: u16,
    /// Whether the buffer belongs to a late stream.
    pub(crate) is_late: bool,
    /// Number of records in the buffer.
    pub(crate) events: u32,
    /// Stamp of the last record.
    pub(crate) time: i64,
    /// The latest stamp before stamps decreased, if they did: the records must then be sorted.
    pub(crate) latest_before_decrease: Option<i64>,
    /// Loss flags of the buffer in the file.
    pub(crate) loss_flags: u16,
    /// Loss flags that live consumers have not got yet.
    pub(crate) undelivered_loss: u16,
    /// Whether a flush ends with this buffer.
    pub(crate) ends_flush: bool,
    /// Bytes that live consumers have, including the space for the header.
    pub(crate) delivered: usize,
    /// Events in the delivered bytes.
    pub(crate) delivered_events: u32,
}

/// A record with a stamp, and the records without a stamp that follow it.
struct RecordGroup {
    stamp: i64,
    start: usize,
    end: usize,
}

impl Buffer {
    /// Allocates a buffer of `size` bytes.
    fn allocate(size: usize) -> Result<Self> {
        let reason = "out of memory for a session buffer";
        let no_memory = Error::Properties { status: Status::ERROR_NOT_ENOUGH_MEMORY, reason };
        Ok(Self { bytes: AlignedBytes::allocate_aligned(size).ok_or(no_memory)?, ..Self::default() })
    }

    /// Copies a buffer that is still being filled.
    pub(crate) fn copy(&self) -> Result<Self> {
        let mut copy = Self::allocate(self.bytes.len())?;
        copy.bytes.copy_from_slice(&self.bytes);
        let Self { filled, cpu, is_late, events, time, loss_flags, undelivered_loss, ends_flush, .. } = *self;
        let (bytes, delivered) = (copy.bytes, HEADER_SIZE);
        let copy = Self {
            bytes,
            filled,
            cpu,
            is_late,
            events,
            time,
            loss_flags,
            undelivered_loss,
            ends_flush,
            ..copy
        };
        Ok(Self { delivered, latest_before_decrease: self.latest_before_decrease, ..copy })
    }

    /// Empties the buffer for records of `cpu`.
    pub(crate) fn reset(&mut self, cpu: u16) {
        let bytes = std::mem::take(&mut self.bytes);
        *self = Self { bytes, filled: HEADER_SIZE, delivered: HEADER_SIZE, cpu, ..Self::default() };
    }

    /// Records that later stamps may be lower than those of the records in the buffer.
    pub(crate) fn expect_lower_stamps(&mut self) {
        self.latest_before_decrease = self.latest_before_decrease.max(Some(self.time));
    }

    /// Sorts the records by stamp, if stamps decreased: readers go by the stamp of the first
    /// record. Without memory for a copy the records stay unsorted; readers accept this, but may
    /// deliver such records later than others.
    pub(crate) fn sort_records(&mut self) {
        let Some(latest) = self.latest_before_decrease.take() else { return };
        self.time = self.time.max(latest);
        let Some(mut groups) = self.find_record_groups() else { return };
        if groups.is_sorted_by_key(|group| group.stamp) {
            return;
        }
        let Some(mut sorted) = AlignedBytes::with_capacity(self.filled) else { return };
        // Equal stamps keep their order.
        groups.sort_unstable_by_key(|group| (group.stamp, group.start));
        for RecordGroup { start, end, .. } in groups {
            if !sorted.try_extend(self.bytes.get(start..end).unwrap_or_default()) {
                return;
            }
        }
        let records = self.bytes.get_mut(HEADER_SIZE..self.filled);
        if let Some(records) = records.filter(|records| records.len() == sorted.len()) {
            records.copy_from_slice(&sorted);
        }
    }

    /// Returns the record groups of the buffer; `None` without memory or if a record is invalid.
    fn find_record_groups(&self) -> Option<Vec<RecordGroup>> {
        let mut groups: Vec<RecordGroup> = Vec::new();
        let count = self.events as usize;
        check_headroom(count.saturating_mul(size_of::<RecordGroup>())).ok()?;
        groups.try_reserve_exact(count).ok()?;
        let bytes = self.bytes.get(..self.filled)?;
        let mut records = Records::new(bytes, HEADER_SIZE, 0, self.cpu, false);
        let mut start = HEADER_SIZE;
        while let Some(record) = records.next().ok()? {
            let end = start.saturating_add(record.bytes().len().next_multiple_of(8));
            match (time_of(record.bytes(), record.family()), groups.last_mut()) {
                (None, Some(group)) => group.end = end,
                (stamp, _) => groups.push(RecordGroup { stamp: stamp.unwrap_or(i64::MIN), start, end }),
            }
            start = end;
        }
        Some(groups).filter(|_| start == self.filled)
    }

    /// Returns whether the buffer holds no record.
    pub(crate) fn is_empty(&self) -> bool {
        self.filled <= HEADER_SIZE
    }

    /// Copies the records from offset `start` on, which are `events` events, if there is memory.
    /// The copy is only as large as its header and records.
    pub(crate) fn copy_from(&self, start: usize, events: u32) -> Option<Self> {
        let records = self.bytes.get(start..self.filled).unwrap_or_default();
        let mut bytes = AlignedBytes::with_capacity(HEADER_SIZE.saturating_add(records.len()))?;
        bytes.resize(HEADER_SIZE, 0);
        if !bytes.try_extend(records) {
            return None;
        }
        let filled = bytes.len();
        let Self { cpu, is_late, time, loss_flags, undelivered_loss, ends_flush, .. } = *self;
        let (delivered, delivered_events) = (HEADER_SIZE, 0);
        let copy = Self {
            bytes,
            filled,
            cpu,
            is_late,
            events,
            time,
            loss_flags,
            undelivered_loss,
            ..Self::default()
        };
        Some(Self { ends_flush, delivered, delivered_events, ..copy })
    }
}

/// Result of waiting for a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolWait {
    /// A buffer may be available now.
    Again,
    /// No job is in progress that would free a buffer.
    NoneInProgress,
}

#[derive(Debug)]
struct PoolState {
    free: Vec<Buffer>,
    /// Number of allocated buffers.
    existing: u32,
    /// Largest number of allocated buffers.
    maximum: u32,
    /// Number of buffers that the writer has not finished.
    in_progress: u32,
}

/// The buffer pool of one session.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<PoolState>,
    job_finished: Condvar,
    buffer_bytes: usize,
}

impl Pool {
    /// Creates a pool with one buffer; fails if there is no memory for it.
    pub(crate) fn new(buffer_bytes: usize, maximum: u32) -> Result<Self> {
        let first = Buffer::allocate(buffer_bytes)?;
        let state = PoolState { free: vec![first], existing: 1, maximum: maximum.max(1), in_progress: 0 };
        Ok(Self { state: Mutex::new(state), job_finished: Condvar::new(), buffer_bytes })
    }

    /// Allocates buffers until `target_buffers` exist, up to [`MAX_PREALLOCATED_BYTES`] and as far
    /// as there is memory.
    pub(crate) fn preallocate(&self, target_buffers: u32) {
        let affordable = MAX_PREALLOCATED_BYTES.checked_div(self.buffer_bytes).unwrap_or(0);
        let mut state = self.lock();
        let target_buffers =
            target_buffers.min(state.maximum).min(u32::try_from(affordable).unwrap_or(u32::MAX));
        while state.existing < target_buffers {
            let Ok(buffer) = Buffer::allocate(self.buffer_bytes) else { return };
            state.free.push(buffer);
            state.existing = state.existing.saturating_add(1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the size of a buffer.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Takes a free buffer or allocates one; `None` at the maximum or without memory.
    pub(crate) fn try_take(&self) -> Option<Buffer> {
        let mut state = self.lock();
        if let Some(buffer) = state.free.pop() {
            return Some(buffer);
        }
        if state.existing >= state.maximum {
            return None;
        }
        let Ok(buffer) = Buffer::allocate(self.buffer_bytes) else {
            // The existing buffers have to suffice: there is at least one (P1).
            state.maximum = state.existing;
            return None;
        };
        state.existing = state.existing.saturating_add(1);
        Some(buffer)
    }

    /// Returns a buffer to the pool.
    pub(crate) fn return_buffer(&self, buffer: Buffer) {
        self.lock().free.push(buffer);
    }

    /// Counts a buffer that is sent to the writer.
    pub(crate) fn count_submitted(&self) {
        let mut state = self.lock();
        state.in_progress = state.in_progress.saturating_add(1);
    }

    /// Counts a buffer that the writer has finished, and wakes the waiting thread.
    pub(crate) fn count_finished(&self) {
        let mut state = self.lock();
        state.in_progress = state.in_progress.saturating_sub(1);
        drop(state);
        self.job_finished.notify_all();
    }

    /// Waits until a buffer may be available, or nothing is in progress that could free one.
    pub(crate) fn wait_for_buffer(&self) -> PoolWait {
        let must_wait = |state: &mut PoolState| {
            state.free.is_empty() && state.existing >= state.maximum && state.in_progress > 0
        };
        let state =
            self.job_finished.wait_while(self.lock(), must_wait).unwrap_or_else(PoisonError::into_inner);
        if state.free.is_empty() && state.existing >= state.maximum {
            PoolWait::NoneInProgress
        } else {
            PoolWait::Again
        }
    }

    /// Changes the maximum; existing buffers stay.
    pub(crate) fn set_maximum(&self, maximum: u32) {
        self.lock().maximum = maximum.max(1);
        self.job_finished.notify_all();
    }

    /// Returns how many buffers can be taken without waiting.
    pub(crate) fn available(&self) -> u32 {
        let state = self.lock();
        let free = u32::try_from(state.free.len()).unwrap_or(u32::MAX);
        free.saturating_add(state.maximum.saturating_sub(state.existing))
    }

    /// Returns how many buffers exist and how many of those are in use.
    pub(crate) fn counts(&self) -> (u32, u32) {
        let state = self.lock();
        let free = u32::try_from(state.free.len()).unwrap_or(u32::MAX);
        (state.existing, state.existing.saturating_sub(free))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn pool_reuses_free_buffers_up_to_maximum() {
        let pool = Pool::new(1024, 2).unwrap();
        let (first, second) = (pool.try_take().unwrap(), pool.try_take().unwrap());
        assert_eq!(first.bytes.len(), 1024);
        assert!(pool.try_take().is_none());
        assert_eq!(pool.counts(), (2, 2));
        pool.return_buffer(first);
        assert_eq!((pool.counts(), pool.available()), ((2, 1), 1));
        assert!(pool.try_take().is_some());
        pool.set_maximum(3);
        assert!(pool.try_take().is_some());
        drop(second);
    }

    #[test]
    fn minimum_is_allocated_before_start_up_to_a_limit() {
        let pool = Pool::new(1024, 6).unwrap();
        pool.preallocate(4);
        assert_eq!((pool.counts(), pool.available()), ((4, 0), 6));
        pool.preallocate(u32::MAX);
        assert_eq!(pool.counts(), (6, 0));
        let large = Pool::new(MAX_PREALLOCATED_BYTES / 2, 6).unwrap();
        large.preallocate(6);
        assert_eq!(large.counts(), (2, 0));
    }

    #[test]
    fn first_buffer_is_reused_without_memory_for_more() {
        let error = Pool::new(usize::MAX, 4).unwrap_err();
        assert_eq!(error.status(), Status::ERROR_NOT_ENOUGH_MEMORY);
        // One buffer exists, and no other can be allocated.
        let pool = Pool { buffer_bytes: usize::MAX, ..Pool::new(1024, 4).unwrap() };
        for _ in 0..3 {
            let buffer = pool.try_take().unwrap();
            assert!(pool.try_take().is_none());
            assert_eq!(
                pool.wait_for_buffer(),
                PoolWait::NoneInProgress,
                "the waiting thread has to submit partly filled buffers"
            );
            pool.count_submitted();
            pool.return_buffer(buffer);
            pool.count_finished();
            assert_eq!(pool.wait_for_buffer(), PoolWait::Again);
        }
        assert_eq!(pool.counts(), (1, 0));
    }

    #[test]
    fn finished_job_wakes_waiting_thread() {
        let pool = Arc::new(Pool::new(1024, 1).unwrap());
        assert_eq!(pool.wait_for_buffer(), PoolWait::Again, "no buffer is free");
        let buffer = pool.try_take().unwrap();
        assert_eq!(pool.wait_for_buffer(), PoolWait::NoneInProgress);
        pool.count_submitted();
        let waiting = std::thread::spawn({
            let pool = Arc::clone(&pool);
            move || pool.wait_for_buffer()
        });
        pool.return_buffer(buffer);
        pool.count_finished();
        assert_eq!(waiting.join().unwrap(), PoolWait::Again);
    }
}
