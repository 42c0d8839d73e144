//! Weights of samples that were taken at a frequency.
//!
//! perf begins with a period of 1 and changes it until samples come at the frequency. So a sample
//! stands for as much time as its period, not for the interval that follows from the frequency:
//!
//! ```text
//!   periods            1  1  80  9,000  250,000 │ 560,000  600,000  570,000  1,250,000
//!   usual period       the mean of those near the median, by events: 560,000
//!   weights            0  0   0      0        0 │       1        1        1          2
//! ```
//!
//! 1. The weight is the period in units of the usual period, rounded.
//! 2. Periods of less than half a unit add up; the sample that completes half a unit has the weight
//!    1, and the sum goes on from minus half a unit. So their total weight is right.
//! 3. A period that no event can reach within the recording, or within a second, is damaged and
//!    ignored: the sample has the weight 1.
//! 4. A sample of weight 0 is left out and counted: a sample of a trace has at least the weight 1.

const NS_PER_SECOND: u64 = 1_000_000_000;
/// The highest rate of any event, in events a nanosecond: several instructions a cycle.
const MAX_EVENTS_PER_NS: u64 = 32;
/// The number of buckets: one for each bit of a period.
const BUCKETS: usize = u64::BITS as usize;

/// The periods of the samples of one event, by their highest bit.
#[derive(Clone, Debug)]
pub(super) struct PeriodHistogram {
    /// Number and sum of the periods of each bucket.
    buckets: [(u64, u128); BUCKETS],
}

impl Default for PeriodHistogram {
    fn default() -> Self {
        Self { buckets: [(0, 0); BUCKETS] }
    }
}

impl PeriodHistogram {
    /// Adds the period of a sample. Period 0 stands for a sample without one.
    pub(super) fn add(&mut self, period: u64) {
        let bucket = period.checked_ilog2().and_then(|bit| self.buckets.get_mut(usize::try_from(bit).ok()?));
        if let Some((count, sum)) = bucket {
            *count = count.saturating_add(1);
            *sum = sum.saturating_add(period.into());
        }
    }

    /// Returns the usual period: half of all counted events lie in periods about as long, or longer.
    /// `None` if no sample has a period.
    fn usual_period(mut self, longest: u64) -> Option<u64> {
        let first_too_long = longest.checked_ilog2().map_or(0, |bit| bit as usize).saturating_add(1);
        self.buckets.iter_mut().skip(first_too_long).for_each(|bucket| *bucket = (0, 0));
        let total = self.buckets.iter().fold(0_u128, |sum, bucket| sum.saturating_add(bucket.1));
        let mut below = 0_u128;
        let median = self.buckets.iter().position(|(_, sum)| {
            below = below.saturating_add(*sum);
            *sum > 0 && below >= total.div_ceil(2)
        })?;
        // The neighbours belong to it, because usual periods may be on both sides of a power of two.
        let near = self.buckets.get(median.saturating_sub(1)..)?.iter().take(3);
        let (count, sum) = near.fold((0_u64, 0_u128), |(count, sum), bucket| {
            (count.saturating_add(bucket.0), sum.saturating_add(bucket.1))
        });
        u64::try_from(sum.checked_div(count.into())?).ok().filter(|period| *period > 0)
    }
}

/// Computes the weights of the samples of one event.
#[derive(Debug, Default)]
pub(super) struct PeriodWeights {
    /// The usual period; `None` if every sample has the weight 1.
    unit: Option<u64>,
    /// The sum of short periods that no weight stands for yet.
    rest: i128,
    /// The longest period that an event can reach within the recording.
    longest: u64,
}

impl PeriodWeights {
    /// `duration_ns` is the time from the first to the last record.
    pub(super) fn new(histogram: &PeriodHistogram, duration_ns: u64) -> Self {
        let longest = duration_ns.max(NS_PER_SECOND).saturating_mul(MAX_EVENTS_PER_NS);
        Self { unit: histogram.clone().usual_period(longest), rest: 0, longest }
    }

    /// Returns the weight of the next sample.
    pub(super) fn next(&mut self, period: u64) -> u16 {
        let Some(unit) = self.unit.filter(|_| (1..=self.longest).contains(&period)) else { return 1 };
        let half = unit.div_ceil(2);
        if period >= half {
            let doubled = u128::from(period).saturating_mul(2).saturating_add(unit.into());
            let weight = doubled.checked_div(u128::from(unit).saturating_mul(2));
            return weight.and_then(|weight| u16::try_from(weight).ok()).unwrap_or(u16::MAX);
        }
        self.rest = self.rest.saturating_add(period.into());
        if self.rest < half.into() {
            return 0;
        }
        self.rest = self.rest.saturating_sub(unit.into());
        1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn weigh(periods: &[u64]) -> Vec<u16> {
        let mut histogram = PeriodHistogram::default();
        periods.iter().for_each(|period| histogram.add(*period));
        let mut weights = PeriodWeights::new(&histogram, u64::MAX);
        periods.iter().map(|period| weights.next(*period)).collect()
    }

    #[test]
    fn first_samples_of_a_frequency_have_no_weight() {
        let mut periods = vec![1, 1, 80, 9_000, 250_000];
        periods.extend([560_000, 500_000, 530_000, 570_000].repeat(50));
        let weights = weigh(&periods);
        assert_eq!(weights[..5], [0, 0, 0, 0, 0]);
        assert!(weights[5..].iter().all(|weight| *weight == 1), "{weights:?}");
    }

    #[test]
    fn usual_periods_may_lie_on_both_sides_of_a_power_of_two() {
        let mut histogram = PeriodHistogram::default();
        [1_000_000, 1_100_000].repeat(50).into_iter().for_each(|period| histogram.add(period));
        assert_eq!(histogram.usual_period(u64::MAX), Some(1_050_000));
    }

    #[test]
    fn impossible_period_does_not_remove_the_other_samples() {
        let mut histogram = PeriodHistogram::default();
        let periods = [1_000_000, 1_000_000, 1 << 62, 1_000_000];
        periods.iter().for_each(|period| histogram.add(*period));
        let mut weights = PeriodWeights::new(&histogram, 1_000_000);
        assert_eq!(periods.map(|period| weights.next(period)), [1, 1, 1, 1]);
    }

    #[test]
    fn long_periods_have_a_higher_weight() {
        let mut periods = vec![1000; 20];
        periods.extend([1499, 1501, 3000]);
        let weights = weigh(&periods);
        assert_eq!(weights[..20], [1; 20]);
        assert!(weights[22] >= 2, "{weights:?}");
    }

    #[test]
    fn samples_without_a_period_have_the_weight_one() {
        assert_eq!(weigh(&[0, 0]), [1, 1]);
        assert_eq!(weigh(&[0, 5, 5]), [1, 1, 1]);
    }

    proptest! {
        #[test]
        fn total_weight_is_that_of_the_periods(periods in proptest::collection::vec(1_u64..2000, 1..200)) {
            let mut histogram = PeriodHistogram::default();
            periods.iter().for_each(|period| histogram.add(*period));
            let unit = histogram.clone().usual_period(u64::MAX).unwrap();
            let (short, long): (Vec<u64>, Vec<u64>) =
                periods.iter().partition(|period| **period < unit.div_ceil(2));
            let mut weights = PeriodWeights::new(&histogram, u64::MAX);
            let weight: u64 = short.iter().map(|period| u64::from(weights.next(*period))).sum();
            prop_assert!((weight * unit).abs_diff(short.iter().sum()) <= unit);
            for period in long {
                let weight = u64::from(weights.next(period));
                prop_assert!(weight >= 1 && (weight * unit).abs_diff(period) <= unit / 2 + 1);
            }
        }

        #[test]
        fn arbitrary_periods_have_weights(periods in proptest::collection::vec(any::<u64>(), 0..50)) {
            prop_assert_eq!(weigh(&periods).len(), periods.len());
        }
    }
}
