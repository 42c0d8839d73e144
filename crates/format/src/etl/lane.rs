//! One open buffer in the merge: a position in its records, in time order.
//!
//! ```text
//!   stamps never decrease   at ──▶ next record in the buffer
//!   stamps decrease         order = [ 0x148, 0x048, 0x2C0 … ] by (stamp, offset), heads of groups
//!                           group = a stamped record and the unstamped ones that follow it
//! ```
//!
//! A record without a stamp has the time of the record before it; the first record of a buffer that
//! of the previous buffer. The merge may free the bytes of a buffer meanwhile; the position stays.

use alloc::vec::Vec;

use super::load::Loaded;
use crate::Result;
use crate::header::{Measure, Record, measure, measure_event, time_of};
use crate::wire::{align8, i64_at};

#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Index of the buffer in the trace's index.
    pub(super) buffer: usize,
    pub(super) cpu: u16,
    /// Stamp of the next record.
    pub(super) time: i64,
    /// Whether the bytes are in memory.
    pub(super) resident: bool,
    loaded: Loaded,
    /// Offset of the next record.
    at: usize,
    next: Option<Measure>,
    /// Time of the records before the first stamp.
    inherited: i64,
    shuffled: bool,
    /// Offsets of group heads in time order, if `shuffled`.
    order: Vec<u32>,
    group: usize,
    old_instances: bool,
}

impl Lane {
    /// Scans a loaded buffer once and returns the defect that ends its records, if there is one. A
    /// lane without records is already at its end.
    pub(super) fn open(
        (buffer, cpu): (usize, u16),
        loaded: Loaded,
        inherited: i64,
        old_instances: bool,
    ) -> (Self, Result<()>) {
        let mut lane = Self { buffer, cpu, inherited, old_instances, time: inherited, ..Self::default() };
        lane.at = loaded.start;
        let (ordered, scanned) = lane.scan(&loaded);
        lane.shuffled = !ordered;
        lane.fill(loaded);
        if let Some(&first) = lane.order.first() {
            lane.at = first as usize;
        }
        lane.inspect_record();
        (lane, scanned)
    }

    /// Sets the bytes of the buffer.
    fn fill(&mut self, loaded: Loaded) {
        self.loaded = loaded;
        self.resident = true;
        if self.shuffled {
            self.order = self.groups();
        }
    }

    /// Sets the bytes again after [`Lane::empty`]; false if they have changed.
    pub(super) fn refill(&mut self, loaded: Loaded) -> bool {
        self.fill(loaded);
        let before = self.next;
        let same = self.measure_at(self.at) == before && before.is_some();
        if !same {
            self.next = None;
        }
        same
    }

    /// Frees the bytes until they are needed again.
    pub(super) fn empty(&mut self) -> Loaded {
        self.resident = false;
        self.order = Vec::new();
        core::mem::take(&mut self.loaded)
    }

    /// Returns the bytes of memory that [`Lane::empty`] frees.
    pub(super) fn cost(&self) -> usize {
        self.loaded.bytes.capacity().saturating_add(self.order.capacity().saturating_mul(4))
    }

    pub(super) const fn is_done(&self) -> bool {
        self.next.is_none()
    }

    #[inline(always)]
    pub(super) fn record(&self) -> Option<Record<'_>> {
        Some(Record::new(self.loaded.bytes.get(self.at..)?, self.next?, self.cpu, self.time))
    }

    /// Moves to the next record; false at the end of the buffer.
    #[inline]
    pub(super) fn step(&mut self) -> bool {
        let Some(this) = self.next else { return false };
        self.at = self.at.saturating_add(align8(this.size));
        if self.shuffled && !self.stays_in_group() {
            self.group = self.group.saturating_add(1);
            let Some(&head) = self.order.get(self.group) else {
                self.next = None;
                return false;
            };
            self.at = head as usize;
            self.time = self.inherited;
        }
        self.inspect_record();
        self.next.is_some()
    }

    /// Moves to the next record if it is an EVENT, the buffer is in time order, and its stamp, as
    /// an ascending number, is below `limit`. Otherwise nothing changes, and the caller uses
    /// [`Lane::step`].
    #[inline(always)]
    pub(super) fn step_before(&mut self, limit: u64) -> bool {
        let Some(this) = self.next else { return false };
        let at = self.at.wrapping_add(align8(this.size));
        let rest = self.rest(at);
        let Some(next) = measure_event(rest).filter(|_| !self.shuffled) else { return false };
        let time = i64_at(rest, 0x10);
        if time.cast_unsigned() ^ (1 << 63) >= limit {
            return false;
        }
        (self.at, self.next, self.time) = (at, Some(next), time);
        true
    }

    #[inline]
    fn inspect_record(&mut self) {
        self.next = self.measure_at(self.at);
        if let Some(next) = self.next {
            self.time = time_of(self.rest(self.at), next.family).unwrap_or(self.time);
        }
    }

    #[inline(always)]
    fn rest(&self, at: usize) -> &[u8] {
        self.loaded.bytes.get(at..).unwrap_or_default()
    }

    /// Measures the record at an offset; `None` at a defect, which the scan has reported.
    #[inline]
    fn measure_at(&self, at: usize) -> Option<Measure> {
        measure(self.rest(at), 0, self.old_instances).ok().flatten()
    }

    fn stays_in_group(&self) -> bool {
        self.measure_at(self.at).is_some_and(|m| time_of(self.rest(self.at), m.family).is_none())
    }

    /// Returns whether stamps never decrease, and the defect that ends the records, if there is
    /// one.
    fn scan(&self, loaded: &Loaded) -> (bool, Result<()>) {
        let (mut at, mut time, mut ordered) = (loaded.start, None, true);
        loop {
            let rest = loaded.bytes.get(at..).unwrap_or_default();
            if let Some(event) = measure_event(rest) {
                let stamp = i64_at(rest, 0x10);
                ordered &= time.is_none_or(|before| before <= stamp);
                time = Some(stamp);
                at = at.wrapping_add(align8(event.size));
                continue;
            }
            match measure(rest, loaded.base.saturating_add(at as u64), self.old_instances) {
                Ok(Some(m)) => {
                    let stamp = time_of(rest, m.family).or(time).unwrap_or(self.inherited);
                    ordered &= time.is_none_or(|before| before <= stamp);
                    time = Some(stamp);
                    at = at.saturating_add(align8(m.size));
                }
                Ok(None) => return (ordered, Ok(())),
                Err(defect) => return (ordered, Err(defect)),
            }
        }
    }

    /// Returns the offsets of group heads by stamp, ties in the order of the buffer.
    fn groups(&self) -> Vec<u32> {
        let mut heads = Vec::new();
        let mut at = self.loaded.start;
        while let Some(m) = self.measure_at(at) {
            if heads.is_empty() || time_of(self.rest(at), m.family).is_some() {
                heads.push(u32::try_from(at).unwrap_or(u32::MAX));
            }
            at = at.saturating_add(align8(m.size));
        }
        let stamp = |at: u32| {
            let rest = self.rest(at as usize);
            let family = self.measure_at(at as usize).map(|m| m.family);
            family.and_then(|family| time_of(rest, family)).unwrap_or(self.inherited)
        };
        // Sorted in place: a copy of the stamps would take more memory than the buffer.
        heads.sort_unstable_by_key(|&at| (stamp(at), at));
        heads
    }
}
