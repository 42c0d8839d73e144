//! A compact histogram of durations, exact to one part in 32.
//!
//! ```text
//!   0 … 63 ns    one bucket each
//!   beyond       32 buckets for each power of two: 64-65, 66-67, … 126-127 | 128-131, 132-135, …
//! ```
//!
//! A percentile is reported as the upper end of its bucket, but never above the longest duration;
//! sum, number and longest are exact.

use std::collections::BTreeMap;

/// Each power of two is divided into 2 to the power of this.
const FINE: u32 = 5;

/// Durations in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latencies {
    counts: BTreeMap<u16, u64>,
    pub(crate) number: u64,
    pub(crate) sum: u64,
    pub(crate) longest: u64,
}

impl Latencies {
    pub(crate) fn add(&mut self, nanoseconds: u64) {
        let count = self.counts.entry(slot(nanoseconds)).or_default();
        *count = count.saturating_add(1);
        self.number = self.number.saturating_add(1);
        self.sum = self.sum.saturating_add(nanoseconds);
        self.longest = self.longest.max(nanoseconds);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (slot, more) in &other.counts {
            let count = self.counts.entry(*slot).or_default();
            *count = count.saturating_add(*more);
        }
        self.number = self.number.saturating_add(other.number);
        self.sum = self.sum.saturating_add(other.sum);
        self.longest = self.longest.max(other.longest);
    }

    /// Returns the smallest duration that the given percentage does not exceed; `None` if there are
    /// none.
    pub(crate) fn percentile(&self, percent: u64) -> Option<u64> {
        // The rank is rounded up: of a hundred the 99th is p99, of ten the last.
        let rank = (u128::from(self.number) * u128::from(percent)).div_ceil(100).max(1);
        let mut before = 0_u128;
        self.counts.iter().find_map(|(slot, count)| {
            before += u128::from(*count);
            (before >= rank).then(|| upper(*slot).min(self.longest))
        })
    }
}

/// Returns the bucket of a duration.
fn slot(n: u64) -> u16 {
    let width = 64 - n.leading_zeros();
    let shift = width.saturating_sub(FINE + 1);
    // At most 63 in the low bits, and the shift above them.
    ((shift << FINE) as u16).saturating_add((n >> shift) as u16)
}

/// Returns the longest duration of a bucket.
fn upper(slot: u16) -> u64 {
    let slot = u32::from(slot);
    let shift = (slot >> FINE).saturating_sub(1);
    let low = u64::from(slot - (shift << FINE));
    // The last bucket ends at `u64::MAX`.
    let end = (u128::from(low) + 1) << shift;
    u64::try_from(end - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        for n in (0..5000).chain([u64::MAX, u64::MAX / 2, 1 << 40]) {
            let end = upper(slot(n));
            assert!(end >= n && slot(end) == slot(n), "{n}");
            assert!(end == u64::MAX || slot(end + 1) == slot(n) + 1, "{n}");
        }
        assert_eq!((upper(slot(63)), upper(slot(64)), upper(slot(127))), (63, 65, 127));
    }

    proptest! {
        #[test]
        fn percentiles_are_exact_within_one_part_in_32(
            mut all in proptest::collection::vec(0_u64..10_000_000_000, 1..300),
            percent in 1_u64..=100,
        ) {
            let mut ours = Latencies::default();
            let mut halves = [Latencies::default(), Latencies::default()];
            for (index, n) in all.iter().enumerate() {
                ours.add(*n);
                halves[index % 2].add(*n);
            }
            all.sort_unstable();
            let exact = all[(all.len() * percent as usize).div_ceil(100) - 1];
            let percentile = ours.percentile(percent).unwrap();
            prop_assert!(percentile >= exact && percentile - exact <= exact / 32, "{percentile} for {exact}");
            prop_assert_eq!(ours.percentile(100), all.last().copied());
            let [mut one, other] = halves;
            one.merge(&other);
            prop_assert_eq!(one, ours);
        }
    }
}
