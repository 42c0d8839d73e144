//! One open buffer of a merge, and a position in its records, which are read in time order.
//!
//! ```text
//!   stamps never decrease   records are read in the order of the buffer
//!   stamps decrease         `group_heads` = [ 0x148, 0x048, 0x2C0 … ]: offsets of groups, sorted
//!                           by (stamp, offset); records are read group by group
//! ```
//!
//! A group is a stamped record and the unstamped records after it. Unstamped records at the start
//! of the buffer are a group too.
//!
//! A record without a stamp has the time of the record before it, or of the previous buffer if it
//! is the first record. The merge may free the bytes of an open buffer; the position stays.

use alloc::vec::Vec;

use super::index::BufferRef;
use super::load::{LoadedBuffer, Loader};
use crate::buffer::HEADER_SIZE;
use crate::header::{Measure, Record, measure, measure_common, time_of, time_of_common};
use crate::wire::align8;
use crate::{Error, Result};

/// Opens buffers before the merge needs them, on other threads.
pub(super) trait OpenAhead: core::fmt::Debug + Send {
    /// Announces that a buffer with a stamp will be needed. `loader` may have memory to load it
    /// into.
    fn request(&mut self, index: usize, buffer: &BufferRef, loader: &mut Loader);

    /// Returns a requested buffer if it is open, or will be soon.
    fn take(&mut self, index: usize) -> Option<OpenedBuffer>;
}

/// An opened buffer, and the defects of its bytes and its records.
#[derive(Debug)]
pub(super) struct OpenedBuffer {
    pub(super) lane: Lane,
    pub(super) defects: [Option<Error>; 2],
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Position of the buffer in `Trace::buffers`.
    pub(super) buffer: usize,
    pub(super) cpu: u16,
    /// Stamp of the current record.
    pub(super) time: i64,
    /// Whether the bytes are in memory.
    pub(super) is_resident: bool,
    loaded: LoadedBuffer,
    /// Offset of the current record.
    at: usize,
    /// The current record; `None` at the end.
    current: Option<Measure>,
    /// Time of the records before the first stamp.
    inherited: i64,
    is_unordered: bool,
    /// Offsets of group heads in time order, if `is_unordered`.
    group_heads: Vec<u32>,
    /// Index of the current group in `group_heads`.
    group: usize,
    has_short_instance_headers: bool,
}

impl Lane {
    /// Opens a loaded buffer and scans it once. Also returns the defect that ends its records, if
    /// there is one. A lane without records is already at its end.
    pub(super) fn open(
        buffer: usize,
        cpu: u16,
        loaded: LoadedBuffer,
        inherited: i64,
        has_short_instance_headers: bool,
    ) -> (Self, Result<()>) {
        let mut lane =
            Self { buffer, cpu, inherited, has_short_instance_headers, time: inherited, ..Self::default() };
        lane.at = loaded.start;
        let (is_ordered, scan_result) = lane.check_order(&loaded);
        lane.is_unordered = !is_ordered;
        lane.set_bytes(loaded);
        if let Some(&first) = lane.group_heads.first() {
            lane.at = first as usize;
        }
        lane.measure_current();
        (lane, scan_result)
    }

    fn set_bytes(&mut self, loaded: LoadedBuffer) {
        self.loaded = loaded;
        self.is_resident = true;
        if self.is_unordered {
            self.group_heads = self.find_group_heads();
        }
    }

    /// Sets the bytes again after [`Lane::free_bytes`]. If the current record has changed, returns
    /// false and ends the lane.
    pub(super) fn restore_bytes(&mut self, loaded: LoadedBuffer) -> bool {
        self.set_bytes(loaded);
        let expected = self.current;
        let is_unchanged = self.measure_at(self.at) == expected && expected.is_some();
        if !is_unchanged {
            self.current = None;
        }
        is_unchanged
    }

    /// Takes the bytes out of the lane; [`Lane::restore_bytes`] puts them back.
    pub(super) fn free_bytes(&mut self) -> LoadedBuffer {
        self.is_resident = false;
        self.group_heads = Vec::new();
        core::mem::take(&mut self.loaded)
    }

    /// Returns the bytes that [`Lane::free_bytes`] frees. A reused vector can have up to twice as many;
    /// which one was reused depends on the threads, and the order of events must not.
    pub(super) fn memory_bytes(&self) -> usize {
        self.loaded.bytes.len().saturating_add(self.group_heads.len().saturating_mul(4))
    }

    pub(super) const fn is_finished(&self) -> bool {
        self.current.is_none()
    }

    #[inline(always)]
    pub(super) fn current_record(&self) -> Option<Record<'_>> {
        Some(Record::new(self.loaded.bytes.get(self.at..)?, self.current?, self.cpu, self.time))
    }

    /// Returns the offset of the current record in a buffer that [`Trace::load`](super::Trace::load)
    /// has loaded; `None` at the end.
    #[inline]
    pub(super) fn offset_in_buffer(&self) -> Option<u32> {
        self.current?;
        let in_records = self.at.checked_sub(self.loaded.start)?;
        u32::try_from(in_records.checked_add(HEADER_SIZE)?).ok()
    }

    /// Moves to the next record. Returns false at the end of the buffer.
    #[inline]
    pub(super) fn step(&mut self) -> bool {
        let Some(record) = self.current else { return false };
        self.at = self.at.saturating_add(align8(record.size));
        if self.is_unordered && !self.is_record_unstamped() {
            self.group = self.group.saturating_add(1);
            let Some(&head) = self.group_heads.get(self.group) else {
                self.current = None;
                return false;
            };
            self.at = head as usize;
            // Applies only to the group at the start of the buffer, which may have no stamp.
            self.time = self.inherited;
        }
        self.measure_current();
        self.current.is_some()
    }

    /// Moves to the next record if that record is of a common family and the buffer is in time
    /// order. Otherwise changes nothing and returns false; the caller then uses [`Lane::step`].
    #[inline(always)]
    pub(super) fn step_to_common(&mut self) -> bool {
        let Some(record) = self.current else { return false };
        let at = self.at.wrapping_add(align8(record.size));
        let remaining = self.bytes_from(at);
        let Some(next) = measure_common(remaining).filter(|_| !self.is_unordered) else { return false };
        (self.at, self.current, self.time) = (at, Some(next), time_of_common(remaining, next.family));
        true
    }

    #[inline]
    fn measure_current(&mut self) {
        self.current = self.measure_at(self.at);
        if let Some(record) = self.current {
            self.time = time_of(self.bytes_from(self.at), record.family).unwrap_or(self.time);
        }
    }

    #[inline(always)]
    fn bytes_from(&self, at: usize) -> &[u8] {
        self.loaded.bytes.get(at..).unwrap_or_default()
    }

    /// Measures the record at an offset; `None` at a defect, which the scan has reported.
    #[inline]
    fn measure_at(&self, at: usize) -> Option<Measure> {
        measure(self.bytes_from(at), 0, self.has_short_instance_headers).ok().flatten()
    }

    fn is_record_unstamped(&self) -> bool {
        self.measure_at(self.at).is_some_and(|m| time_of(self.bytes_from(self.at), m.family).is_none())
    }

    /// Returns whether stamps never decrease, and the defect that ends the records, if there is
    /// one.
    fn check_order(&self, loaded: &LoadedBuffer) -> (bool, Result<()>) {
        let (mut at, mut time, mut is_ordered) = (loaded.start, None, true);
        loop {
            let remaining = loaded.bytes.get(at..).unwrap_or_default();
            if let Some(event) = measure_common(remaining) {
                let stamp = time_of_common(remaining, event.family);
                is_ordered &= time.is_none_or(|previous| previous <= stamp);
                time = Some(stamp);
                at = at.wrapping_add(align8(event.size));
                continue;
            }
            match measure(remaining, loaded.base.saturating_add(at as u64), self.has_short_instance_headers) {
                Ok(Some(m)) => {
                    let stamp = time_of(remaining, m.family).or(time).unwrap_or(self.inherited);
                    is_ordered &= time.is_none_or(|previous| previous <= stamp);
                    time = Some(stamp);
                    at = at.saturating_add(align8(m.size));
                }
                Ok(None) => return (is_ordered, Ok(())),
                Err(defect) => return (is_ordered, Err(defect)),
            }
        }
    }

    /// Returns the offsets of group heads by stamp, ties in the order of the buffer.
    fn find_group_heads(&self) -> Vec<u32> {
        let mut heads = Vec::new();
        let mut at = self.loaded.start;
        while let Some(m) = self.measure_at(at) {
            if heads.is_empty() || time_of(self.bytes_from(at), m.family).is_some() {
                heads.push(u32::try_from(at).unwrap_or(u32::MAX));
            }
            at = at.saturating_add(align8(m.size));
        }
        let stamp = |at: u32| {
            let remaining = self.bytes_from(at as usize);
            let family = self.measure_at(at as usize).map(|m| m.family);
            family.and_then(|family| time_of(remaining, family)).unwrap_or(self.inherited)
        };
        heads.shrink_to_fit();
        // Sorted in place: a copy of the stamps could take as much memory as the buffer.
        heads.sort_unstable_by_key(|&at| (stamp(at), at));
        heads
    }
}
