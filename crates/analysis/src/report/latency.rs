//! A compact histogram of durations, exact to one part in 32.
//!
//! ```text
//!   0 … 63 ns    one bucket each
//!   beyond       32 buckets for each power of two: 64-65, 66-67, … 126-127 | 128-131, 132-135, …
//! ```
//!
//! A percentile is reported as the upper end of its bucket, but never above the longest duration;
//! sum, count and maximum are exact.

use std::collections::BTreeMap;

/// Each power of two is divided into `1 << SUB_BUCKET_BITS` buckets.
const SUB_BUCKET_BITS: u32 = 5;

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Number of durations by bucket index.
    buckets: BTreeMap<u16, u64>,
    pub count: u64,
    pub sum_ns: u64,
    longest_ns: u64,
}

impl Latencies {
    pub fn add(&mut self, nanoseconds: u64) {
        let count = self.buckets.entry(bucket_index(nanoseconds)).or_default();
        *count = count.saturating_add(1);
        self.count = self.count.saturating_add(1);
        self.sum_ns = self.sum_ns.saturating_add(nanoseconds);
        self.longest_ns = self.longest_ns.max(nanoseconds);
    }

    pub fn merge(&mut self, other: &Self) {
        for (bucket, added) in &other.buckets {
            let count = self.buckets.entry(*bucket).or_default();
            *count = count.saturating_add(*added);
        }
        self.count = self.count.saturating_add(other.count);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    /// Returns the duration in nanoseconds that `percent` percent of the durations do not exceed,
    /// rounded up to the end of its bucket; `None` for an empty histogram.
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        // The rank is rounded up: p99 is the 99th of 100 durations, and the last of 10 durations.
        let rank = (u128::from(self.count) * u128::from(percent)).div_ceil(100).max(1);
        let mut cumulative = 0_u128;
        self.buckets.iter().find_map(|(bucket, count)| {
            cumulative += u128::from(*count);
            (cumulative >= rank).then(|| bucket_end(*bucket).min(self.longest_ns))
        })
    }
}

fn bucket_index(nanoseconds: u64) -> u16 {
    let width = 64 - nanoseconds.leading_zeros();
    let shift = width.saturating_sub(SUB_BUCKET_BITS + 1);
    // `nanoseconds >> shift` is at most 63.
    ((shift << SUB_BUCKET_BITS) as u16).saturating_add((nanoseconds >> shift) as u16)
}

/// Returns the longest duration of a bucket.
fn bucket_end(index: u16) -> u64 {
    let index = u32::from(index);
    let shift = (index >> SUB_BUCKET_BITS).saturating_sub(1);
    let low = u64::from(index - (shift << SUB_BUCKET_BITS));
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
            let end = bucket_end(bucket_index(n));
            assert!(end >= n && bucket_index(end) == bucket_index(n), "{n}");
            assert!(end == u64::MAX || bucket_index(end + 1) == bucket_index(n) + 1, "{n}");
        }
        assert_eq!(
            (bucket_end(bucket_index(63)), bucket_end(bucket_index(64)), bucket_end(bucket_index(127))),
            (63, 65, 127)
        );
    }

    proptest! {
        #[test]
        fn percentiles_are_exact_within_one_part_in_32(
            mut durations in proptest::collection::vec(0_u64..10_000_000_000, 1..300),
            percent in 1_u64..=100,
        ) {
            let mut histogram = Latencies::default();
            let mut halves = [Latencies::default(), Latencies::default()];
            for (index, n) in durations.iter().enumerate() {
                histogram.add(*n);
                halves[index % 2].add(*n);
            }
            durations.sort_unstable();
            let exact = durations[(durations.len() * percent as usize).div_ceil(100) - 1];
            let percentile = histogram.percentile(percent).unwrap();
            prop_assert!(percentile >= exact && percentile - exact <= exact / 32, "{percentile} for {exact}");
            prop_assert_eq!(histogram.percentile(100), durations.last().copied());
            let [mut merged, other] = halves;
            merged.merge(&other);
            prop_assert_eq!(merged, histogram);
        }
    }
}
