//! Merges the rings of one CPU into one stream in time order.
//!
//! ```text
//!   ring of process A   10 ── 14 ── 15 ────────── 40 ┐
//!   ring of process B   11 ── 12 ──────── 30 ────────┼─▶ 10 11 12 14 15 30
//!   locked ring of B    ───────────────────────── 41 ┘
//!                                              ▲ now, read before the rings are polled:
//!                                                40 and 41 are younger and wait
//! ```
//!
//! - M1 Each ring is in the order of its stamps, except for late records (M4).
//! - M2 Records with stamps up to `now` are merged by stamp.
//! - M3 A record younger than `now` waits for the next drain, when all rings can show the records
//!   that belong before it. A stamp that is [`MAX_FUTURE`] or more ahead is not from this
//!   machine's counter: its record counts as written now.
//! - M4 The sink gives a late record (its writer was delayed between reading the counter and
//!   publishing) the stamp of its predecessor: stamps of the stream never decrease.
//! - M5 A drain takes only what a ring held when it was polled, so that it ends.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use traceweir_transport::ring::{Damaged, RecordPrefix, RingReader};

/// A stamp that is at least this far ahead of now does not come from this machine's counter (M3).
pub(crate) const MAX_FUTURE: Duration = Duration::from_millis(10);

/// Bytes taken from a ring after which they are given back to its writer.
const RELEASE_AFTER_BYTES: usize = 64 << 10;

/// The reading side of a ring.
pub(crate) trait MergeRing {
    fn poll(&mut self) -> Result<bool, Damaged>;
    fn peek(&mut self) -> Result<Option<RecordPrefix>, Damaged>;
    fn take(&mut self, out: &mut [u8]);
    fn release(&mut self);
    /// Returns whether the records of this ring come from a capture instead of a process.
    #[inline(always)]
    fn is_captured(&self) -> bool {
        false
    }
}

impl MergeRing for RingReader {
    #[inline]
    fn poll(&mut self) -> Result<bool, Damaged> {
        Self::poll(self)
    }

    #[inline]
    fn peek(&mut self) -> Result<Option<RecordPrefix>, Damaged> {
        Self::peek(self)
    }

    #[inline]
    fn take(&mut self, out: &mut [u8]) {
        Self::take(self, out);
    }

    #[inline]
    fn release(&mut self) {
        Self::release(self);
    }
}

/// A ring with records, and the index of its source (a region) in the collector; for a capture, the
/// index is `usize::MAX`.
pub(crate) struct RingLane<'r, R> {
    pub(crate) ring: &'r mut R,
    pub(crate) source: usize,
    next: RecordPrefix,
    taken_bytes: usize,
}

impl<'r, R: MergeRing> RingLane<'r, R> {
    /// Polls a ring; `None` if it is empty.
    pub(crate) fn open(ring: &'r mut R, source: usize) -> Result<Option<Self>, Damaged> {
        if !ring.poll()? {
            return Ok(None);
        }
        match ring.peek()? {
            Some(next) => Ok(Some(Self { ring, source, next, taken_bytes: 0 })),
            None => {
                // Unexpected: `poll` has found a record. The ring is treated as empty.
                ring.release();
                Ok(None)
            }
        }
    }

    /// Returns the stamp of the next record.
    pub(crate) fn stamp(&self) -> u64 {
        self.next.stamp
    }
}

/// Limits of a merge; times are in ticks of the counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeLimit {
    /// Counter value up to which records are merged: now or an earlier moment.
    pub(crate) now: u64,
    /// A record whose stamp is ahead of `now` by fewer ticks than this waits; with 0, none waits.
    pub(crate) max_ahead_ticks: u64,
    /// Bytes after which the next stream has its turn.
    pub(crate) bytes: usize,
}

impl MergeLimit {
    /// Returns the stamp to use for a record, or `None` if the record has to wait.
    #[inline]
    fn stamp_for(&self, stamp: u64) -> Option<u64> {
        if stamp <= self.now {
            Some(stamp)
        } else if stamp.saturating_sub(self.now) < self.max_ahead_ticks {
            None
        } else {
            Some(self.now)
        }
    }
}

/// Receives the merged records.
pub(crate) trait RecordSink<R> {
    /// Takes the next record of `ring`, which `prefix` describes, and stamps it `stamp`. Returns
    /// `false`, and takes nothing, if there is no room.
    fn put(&mut self, source: usize, ring: &mut R, prefix: &RecordPrefix, stamp: u64) -> bool;

    /// Waits for room, and returns whether there may be some; otherwise the merge ends. All rings
    /// have been released before the call.
    fn wait_for_space(&mut self) -> bool;
}

/// Result of a merge.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MergeOutcome {
    /// Whether any record was taken.
    pub(crate) has_taken: bool,
    /// Whether any record waits for the next drain.
    pub(crate) has_waiting: bool,
    /// Whether the merge stopped with records left, at its byte limit or without room.
    pub(crate) has_more: bool,
    /// Bytes of the records that were taken.
    pub(crate) bytes: usize,
    /// Indices of the sources (regions) whose rings broke the protocol.
    pub(crate) damaged: BTreeSet<usize>,
}

/// Merges lanes into a sink by stamp.
pub(crate) fn merge<R: MergeRing>(
    lanes: &mut [RingLane<'_, R>],
    limit: MergeLimit,
    sink: &mut impl RecordSink<R>,
    outcome: &mut MergeOutcome,
) {
    let mut heap: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::with_capacity(lanes.len());
    for (index, lane) in lanes.iter().enumerate() {
        match limit.stamp_for(lane.next.stamp) {
            Some(stamp) => heap.push(Reverse((stamp, index))),
            None => outcome.has_waiting = true,
        }
    }
    let mut bytes_left = limit.bytes;
    while let Some(Reverse((stamp, index))) = heap.pop() {
        if bytes_left == 0 || outcome.has_more {
            outcome.has_more = true;
            break;
        }
        let other_stamp = heap.peek().map_or(u64::MAX, |Reverse((stamp, _))| *stamp);
        let run = LaneRun { index, other_stamp, limit, bytes_left: &mut bytes_left };
        if let Some(stamp) = run.take_records(lanes, stamp, sink, outcome) {
            heap.push(Reverse((stamp, index)));
        }
    }
    outcome.bytes = outcome.bytes.saturating_add(limit.bytes.saturating_sub(bytes_left));
    for lane in lanes {
        lane.ring.release();
    }
}

/// Consecutive records of one lane.
struct LaneRun<'a> {
    index: usize,
    /// The oldest stamp of the other lanes.
    other_stamp: u64,
    limit: MergeLimit,
    bytes_left: &'a mut usize,
}

impl LaneRun<'_> {
    /// Takes records from the lane while no other lane has an older one. Returns the stamp of the
    /// next record, if the lane has more.
    fn take_records<R: MergeRing>(
        self,
        lanes: &mut [RingLane<'_, R>],
        mut stamp: u64,
        sink: &mut impl RecordSink<R>,
        outcome: &mut MergeOutcome,
    ) -> Option<u64> {
        let Self { index, other_stamp, limit, bytes_left } = self;
        while stamp <= other_stamp && *bytes_left > 0 {
            let lane = lanes.get_mut(index)?;
            if !sink.put(lane.source, lane.ring, &lane.next, stamp) {
                for lane in &mut *lanes {
                    lane.ring.release();
                    lane.taken_bytes = 0;
                }
                if !sink.wait_for_space() {
                    outcome.has_more = true;
                    return Some(stamp);
                }
                continue;
            }
            outcome.has_taken = true;
            lane.taken_bytes = lane.taken_bytes.saturating_add(lane.next.length);
            *bytes_left = bytes_left.saturating_sub(lane.next.length.max(1));
            if lane.taken_bytes >= RELEASE_AFTER_BYTES {
                lane.ring.release();
                lane.taken_bytes = 0;
            }
            match lane.ring.peek() {
                Ok(Some(next)) => lane.next = next,
                Ok(None) => return None,
                Err(Damaged) => {
                    outcome.damaged.insert(lane.source);
                    return None;
                }
            }
            match limit.stamp_for(lane.next.stamp) {
                Some(next) => stamp = next,
                None => {
                    outcome.has_waiting = true;
                    return None;
                }
            }
        }
        Some(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// A ring in plain memory: records are (stamp, number); a stamp of `DAMAGED_STAMP` is damage.
    #[derive(Debug, Default)]
    struct FakeRing {
        records: VecDeque<(u64, u64)>,
        polled_records: usize,
        is_released: bool,
    }

    const DAMAGED_STAMP: u64 = u64::MAX;

    impl MergeRing for FakeRing {
        fn poll(&mut self) -> Result<bool, Damaged> {
            self.polled_records = self.records.len();
            Ok(self.polled_records > 0)
        }

        fn peek(&mut self) -> Result<Option<RecordPrefix>, Damaged> {
            let first = if self.polled_records == 0 { None } else { self.records.front() };
            match first {
                Some(&(DAMAGED_STAMP, _)) => Err(Damaged),
                Some(&(stamp, _)) => Ok(Some(RecordPrefix { length: 8, cpu: 0, flags: 0, stamp })),
                None => Ok(None),
            }
        }

        fn take(&mut self, out: &mut [u8]) {
            self.is_released = false;
            self.polled_records -= 1;
            let (_, number) = self.records.pop_front().unwrap();
            out.copy_from_slice(&number.to_le_bytes());
        }

        fn release(&mut self) {
            self.is_released = true;
        }
    }

    /// Collects (stamp, number); refuses each `refuse_every`-th call of `put`.
    #[derive(Default)]
    struct CollectingSink {
        records: Vec<(u64, u64)>,
        refuse_every: usize,
        calls: usize,
        wait_calls: usize,
    }

    impl RecordSink<FakeRing> for CollectingSink {
        fn put(&mut self, _: usize, ring: &mut FakeRing, _: &RecordPrefix, stamp: u64) -> bool {
            self.calls += 1;
            if self.refuse_every != 0 && self.calls.is_multiple_of(self.refuse_every) {
                return false;
            }
            let mut number = [0; 8];
            ring.take(&mut number);
            self.records.push((stamp, u64::from_le_bytes(number)));
            true
        }

        fn wait_for_space(&mut self) -> bool {
            self.wait_calls += 1;
            true
        }
    }

    fn fake_rings(stamps: &[&[u64]]) -> Vec<FakeRing> {
        let mut number = 0;
        let mut fake_ring = |stamps: &[u64]| {
            let records = stamps
                .iter()
                .map(|&stamp| {
                    number += 1;
                    (stamp, number)
                })
                .collect();
            FakeRing { records, ..FakeRing::default() }
        };
        stamps.iter().map(|stamps| fake_ring(stamps)).collect()
    }

    fn merge_rings(rings: &mut [FakeRing], limit: MergeLimit, sink: &mut CollectingSink) -> MergeOutcome {
        let mut outcome = MergeOutcome::default();
        let mut lanes: Vec<_> = rings
            .iter_mut()
            .enumerate()
            .filter_map(|(i, ring)| RingLane::open(ring, i).unwrap_or(None))
            .collect();
        merge(&mut lanes, limit, sink, &mut outcome);
        outcome
    }

    const LIMIT_AT_100: MergeLimit = MergeLimit { now: 100, max_ahead_ticks: 50, bytes: usize::MAX };

    #[test]
    fn records_come_by_stamp_and_younger_ones_wait() {
        let mut rings = fake_rings(&[&[10, 14, 15, 120], &[11, 12, 30], &[121]]);
        let mut sink = CollectingSink::default();
        let outcome = merge_rings(&mut rings, LIMIT_AT_100, &mut sink);
        let stamps: Vec<_> = sink.records.iter().map(|r| r.0).collect();
        assert_eq!(stamps, [10, 11, 12, 14, 15, 30]);
        assert!(outcome.has_taken && outcome.has_waiting && outcome.damaged.is_empty());
        assert!(rings[..2].iter().all(|r| r.is_released));
        let later = merge_rings(&mut rings, MergeLimit { now: 200, ..LIMIT_AT_100 }, &mut sink);
        assert_eq!(sink.records.len(), 8);
        assert!(!later.has_waiting);
    }

    #[test]
    fn stamp_far_ahead_counts_as_now_and_final_merge_leaves_nothing() {
        let mut sink = CollectingSink::default();
        merge_rings(&mut fake_rings(&[&[10, 150, 160]]), LIMIT_AT_100, &mut sink);
        assert_eq!(sink.records, [(10, 1), (100, 2), (100, 3)]);
        let mut sink = CollectingSink::default();
        let outcome = merge_rings(
            &mut fake_rings(&[&[10, 101]]),
            MergeLimit { max_ahead_ticks: 0, ..LIMIT_AT_100 },
            &mut sink,
        );
        assert_eq!((sink.records.len(), outcome.has_waiting), (2, false));
    }

    #[test]
    fn damaged_ring_ends_only_its_own_lane() {
        let mut sink = CollectingSink::default();
        let outcome =
            merge_rings(&mut fake_rings(&[&[10, DAMAGED_STAMP, 11], &[5, 20]]), LIMIT_AT_100, &mut sink);
        assert_eq!(outcome.damaged, BTreeSet::from([0]));
        assert_eq!(sink.records.iter().map(|r| r.0).collect::<Vec<_>>(), [5, 10, 20]);
    }

    proptest! {
        #[test]
        fn each_record_comes_once_and_in_order(
            rings in prop::collection::vec(prop::collection::vec(0_u64..200, 0..40), 0..6),
            refuse_every in 0_usize..5,
        ) {
            let sorted: Vec<Vec<u64>> =
                rings.into_iter().map(|mut r| { r.sort_unstable(); r }).collect();
            let record_count = sorted.iter().flatten().count() as u64;
            let views: Vec<&[u64]> = sorted.iter().map(Vec::as_slice).collect();
            let mut rings = fake_rings(&views);
            // If every call were refused, the merge would never end.
            let mut sink = CollectingSink { refuse_every: if refuse_every == 1 { 2 } else { refuse_every }, ..CollectingSink::default() };
            merge_rings(&mut rings, LIMIT_AT_100, &mut sink);
            merge_rings(&mut rings, MergeLimit { now: 1000, ..LIMIT_AT_100 }, &mut sink);
            let mut numbers: Vec<u64> = sink.records.iter().map(|r| r.1).collect();
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (1..=record_count).collect::<Vec<_>>());
            // Waiting records came with the second merge; within each merge, stamps do not
            // decrease.
            let decreases = sink.records.windows(2).filter(|w| w[0].0 > w[1].0).count();
            prop_assert!(decreases <= 1);
        }
    }
}
