//! Merges the rings of one CPU into one stream in time order.
//!
//! ```text
//!   ring of process A   10 ── 14 ── 15 ────────── 40 ┐
//!   ring of process B   11 ── 12 ──────── 30 ────────┼─▶ 10 11 12 14 15 30
//!   ring of process B'  ───────────────────────── 41 ┘
//!                                              ▲ now, read before the rings are polled:
//!                                                40 and 41 are younger and wait
//! ```
//!
//! - M1 Each ring is in the order of its stamps, or its process is at fault.
//! - M2 Records published before `now` are merged by stamp.
//! - M3 A record younger than `now` waits for the next drain, when all rings can show the records
//!   that belong before it. One that is [`FUTURE`] or more ahead is not from this machine's counter
//!   and counts as written now.
//! - M4 A late record (its writer was delayed between reading the counter and publishing) gets the
//!   stamp of its predecessor: stamps of the stream never decrease.
//! - M5 A drain takes only what a ring held when it was polled, so that it ends.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use traceweir_transport::ring::{Damaged, Head, RingReader};

/// Limit by which a stamp may be ahead of now and still be believed.
pub(crate) const FUTURE: Duration = Duration::from_millis(10);

/// Bytes taken from a ring after which they are given back to its writer.
const RELEASE_AFTER: usize = 64 << 10;

/// The reading side of a ring.
pub(crate) trait Ring {
    fn poll(&mut self) -> Result<bool, Damaged>;
    fn peek(&mut self) -> Result<Option<Head>, Damaged>;
    fn take(&mut self, out: &mut [u8]);
    fn release(&mut self);
    /// Returns whether its records come from a capture instead of a process.
    #[inline(always)]
    fn is_captured(&self) -> bool {
        false
    }
}

impl Ring for RingReader {
    #[inline]
    fn poll(&mut self) -> Result<bool, Damaged> {
        Self::poll(self)
    }

    #[inline]
    fn peek(&mut self) -> Result<Option<Head>, Damaged> {
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

/// A ring with records, and the index of its source.
pub(crate) struct Lane<'r, R> {
    pub(crate) ring: &'r mut R,
    pub(crate) source: usize,
    next: Head,
    taken: usize,
}

impl<'r, R: Ring> Lane<'r, R> {
    /// Polls a ring; `None` if it is empty.
    pub(crate) fn open(ring: &'r mut R, source: usize) -> Result<Option<Self>, Damaged> {
        if !ring.poll()? {
            return Ok(None);
        }
        match ring.peek()? {
            Some(next) => Ok(Some(Self { ring, source, next, taken: 0 })),
            None => {
                // Only the unused end of the ring was read.
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

/// Limits of a merge, in ticks of the counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    /// Value of the counter now.
    pub(crate) now: u64,
    /// Ticks by which a stamp may be ahead of `now` and make its record wait; with 0, no record
    /// waits.
    pub(crate) ahead: u64,
    /// Bytes after which the next stream has its turn.
    pub(crate) bytes: usize,
}

impl Until {
    /// Returns the stamp to use for a record, or `None` if the record has to wait.
    #[inline]
    fn admit(&self, stamp: u64) -> Option<u64> {
        if stamp <= self.now {
            Some(stamp)
        } else if stamp.saturating_sub(self.now) < self.ahead {
            None
        } else {
            Some(self.now)
        }
    }
}

/// Receives the merged records.
pub(crate) trait Sink<R> {
    /// Takes the next record of `ring`, which `head` describes, and stamps it `stamp`. Returns
    /// `false`, and takes nothing, if there is no room.
    fn put(&mut self, source: usize, ring: &mut R, head: &Head, stamp: u64) -> bool;

    /// Waits for room. All rings have been released before the call.
    fn wait_for_room(&mut self);
}

/// Result of a merge.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Whether any record was taken.
    pub(crate) took: bool,
    /// Whether any record waits for the next drain.
    pub(crate) waits: bool,
    /// Whether the merge stopped at its byte limit with records left.
    pub(crate) more: bool,
    /// Bytes of the records that were taken.
    pub(crate) bytes: usize,
    /// Indices of sources whose rings broke the protocol.
    pub(crate) damaged: Vec<usize>,
}

/// Merges lanes into a sink by stamp.
pub(crate) fn merge<R: Ring>(
    lanes: &mut [Lane<'_, R>],
    until: Until,
    sink: &mut impl Sink<R>,
    outcome: &mut Outcome,
) {
    let mut order: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::with_capacity(lanes.len());
    for (index, lane) in lanes.iter().enumerate() {
        match until.admit(lane.next.stamp) {
            Some(stamp) => order.push(Reverse((stamp, index))),
            None => outcome.waits = true,
        }
    }
    let mut left = until.bytes;
    while let Some(Reverse((stamp, index))) = order.pop() {
        if left == 0 {
            outcome.more = true;
            break;
        }
        let limit = order.peek().map_or(u64::MAX, |Reverse((stamp, _))| *stamp);
        let run = Run { index, limit, until, left: &mut left };
        if let Some(stamp) = run.drain(lanes, stamp, sink, outcome) {
            order.push(Reverse((stamp, index)));
        }
    }
    outcome.bytes = outcome.bytes.saturating_add(until.bytes.saturating_sub(left));
    for lane in lanes {
        lane.ring.release();
    }
}

/// Consecutive records of one lane.
struct Run<'a> {
    index: usize,
    /// The oldest stamp of the other lanes.
    limit: u64,
    until: Until,
    left: &'a mut usize,
}

impl Run<'_> {
    /// Takes records from the lane while no other lane has an older one. Returns the stamp of the
    /// next record, if the lane has more.
    fn drain<R: Ring>(
        self,
        lanes: &mut [Lane<'_, R>],
        mut stamp: u64,
        sink: &mut impl Sink<R>,
        outcome: &mut Outcome,
    ) -> Option<u64> {
        let Self { index, limit, until, left } = self;
        while stamp <= limit && *left > 0 {
            let lane = lanes.get_mut(index)?;
            if !sink.put(lane.source, lane.ring, &lane.next, stamp) {
                for lane in &mut *lanes {
                    lane.ring.release();
                    lane.taken = 0;
                }
                sink.wait_for_room();
                continue;
            }
            outcome.took = true;
            lane.taken = lane.taken.saturating_add(lane.next.length);
            *left = left.saturating_sub(lane.next.length.max(1));
            if lane.taken >= RELEASE_AFTER {
                lane.ring.release();
                lane.taken = 0;
            }
            match lane.ring.peek() {
                Ok(Some(next)) => lane.next = next,
                Ok(None) => return None,
                Err(Damaged) => {
                    outcome.damaged.push(lane.source);
                    return None;
                }
            }
            match until.admit(lane.next.stamp) {
                Some(next) => stamp = next,
                None => {
                    outcome.waits = true;
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

    /// A ring in plain memory: records are (stamp, number); a stamp of `BROKEN` is damage.
    #[derive(Debug, Default)]
    struct Fake {
        records: VecDeque<(u64, u64)>,
        seen: usize,
        released: bool,
    }

    const BROKEN: u64 = u64::MAX;

    impl Ring for Fake {
        fn poll(&mut self) -> Result<bool, Damaged> {
            self.seen = self.records.len();
            Ok(self.seen > 0)
        }

        fn peek(&mut self) -> Result<Option<Head>, Damaged> {
            let first = if self.seen == 0 { None } else { self.records.front() };
            match first {
                Some(&(BROKEN, _)) => Err(Damaged),
                Some(&(stamp, _)) => Ok(Some(Head { length: 8, cpu: 0, flags: 0, stamp })),
                None => Ok(None),
            }
        }

        fn take(&mut self, out: &mut [u8]) {
            self.released = false;
            self.seen -= 1;
            let (_, number) = self.records.pop_front().unwrap();
            out.copy_from_slice(&number.to_le_bytes());
        }

        fn release(&mut self) {
            self.released = true;
        }
    }

    /// Collects (stamp, number); refuses each `refuse`-th time.
    #[derive(Default)]
    struct Collected {
        records: Vec<(u64, u64)>,
        refuse: usize,
        calls: usize,
        waited: usize,
    }

    impl Sink<Fake> for Collected {
        fn put(&mut self, _: usize, ring: &mut Fake, _: &Head, stamp: u64) -> bool {
            self.calls += 1;
            if self.refuse != 0 && self.calls.is_multiple_of(self.refuse) {
                return false;
            }
            let mut number = [0; 8];
            ring.take(&mut number);
            self.records.push((stamp, u64::from_le_bytes(number)));
            true
        }

        fn wait_for_room(&mut self) {
            self.waited += 1;
        }
    }

    fn fakes(stamps: &[&[u64]]) -> Vec<Fake> {
        let mut number = 0;
        let mut one = |stamps: &[u64]| {
            let records = stamps
                .iter()
                .map(|&stamp| {
                    number += 1;
                    (stamp, number)
                })
                .collect();
            Fake { records, ..Fake::default() }
        };
        stamps.iter().map(|stamps| one(stamps)).collect()
    }

    fn drain(rings: &mut [Fake], until: Until, sink: &mut Collected) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lanes: Vec<_> = rings
            .iter_mut()
            .enumerate()
            .filter_map(|(i, ring)| Lane::open(ring, i).unwrap_or(None))
            .collect();
        merge(&mut lanes, until, sink, &mut outcome);
        outcome
    }

    const UNTIL: Until = Until { now: 100, ahead: 50, bytes: usize::MAX };

    #[test]
    fn records_come_by_stamp_and_younger_ones_wait() {
        let mut rings = fakes(&[&[10, 14, 15, 120], &[11, 12, 30], &[121]]);
        let mut sink = Collected::default();
        let outcome = drain(&mut rings, UNTIL, &mut sink);
        let stamps: Vec<_> = sink.records.iter().map(|r| r.0).collect();
        assert_eq!(stamps, [10, 11, 12, 14, 15, 30]);
        assert!(outcome.took && outcome.waits && outcome.damaged.is_empty());
        assert!(rings[..2].iter().all(|r| r.released));
        let later = drain(&mut rings, Until { now: 200, ..UNTIL }, &mut sink);
        assert_eq!(sink.records.len(), 8);
        assert!(!later.waits);
    }

    #[test]
    fn stamp_far_ahead_counts_as_now_and_final_merge_leaves_nothing() {
        let mut sink = Collected::default();
        drain(&mut fakes(&[&[10, 150, 160]]), UNTIL, &mut sink);
        assert_eq!(sink.records, [(10, 1), (100, 2), (100, 3)]);
        let mut sink = Collected::default();
        let outcome = drain(&mut fakes(&[&[10, 101]]), Until { ahead: 0, ..UNTIL }, &mut sink);
        assert_eq!((sink.records.len(), outcome.waits), (2, false));
    }

    #[test]
    fn damage_ends_its_own_lane_only() {
        let mut sink = Collected::default();
        let outcome = drain(&mut fakes(&[&[10, BROKEN, 11], &[5, 20]]), UNTIL, &mut sink);
        assert_eq!(outcome.damaged, [0]);
        assert_eq!(sink.records.iter().map(|r| r.0).collect::<Vec<_>>(), [5, 10, 20]);
    }

    proptest! {
        #[test]
        fn each_record_comes_once_and_in_order(
            rings in prop::collection::vec(prop::collection::vec(0_u64..200, 0..40), 0..6),
            refuse in 0_usize..5,
        ) {
            let sorted: Vec<Vec<u64>> =
                rings.into_iter().map(|mut r| { r.sort_unstable(); r }).collect();
            let mut all: Vec<u64> = sorted.iter().flatten().copied().collect();
            all.sort_unstable();
            let views: Vec<&[u64]> = sorted.iter().map(Vec::as_slice).collect();
            let mut rings = fakes(&views);
            // If every call were refused, the merge would never end.
            let mut sink = Collected { refuse: if refuse == 1 { 2 } else { refuse }, ..Collected::default() };
            drain(&mut rings, UNTIL, &mut sink);
            drain(&mut rings, Until { now: 1000, ..UNTIL }, &mut sink);
            let mut numbers: Vec<u64> = sink.records.iter().map(|r| r.1).collect();
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (1..=all.len() as u64).collect::<Vec<_>>());
            // Waiting records came with the second drain; within each drain, stamps increase.
            let falls = sink.records.windows(2).filter(|w| w[0].0 > w[1].0).count();
            prop_assert!(falls <= 1);
        }
    }
}
