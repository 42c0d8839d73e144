//! Amounts by second, for rates and sparklines; durations of the last seconds, for percentiles.

use traceweir_analysis::report::Latencies;
use traceweir_format::time::FileTime;

/// Number of seconds that a [`History`] covers.
pub(super) const HISTORY_SECONDS: usize = 60;
/// How many seconds each half of a [`RecentLatencies`] covers.
const HALF_SECONDS: i64 = 15;
/// Units of a [`FileTime`] in a second.
const FILE_TIME_UNITS: i64 = 10_000_000;

/// A second of wall time, as its number since the epoch of [`FileTime`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Second(pub(super) i64);

impl Second {
    /// Returns the second that a time is in.
    pub(super) const fn of_time(time: FileTime) -> Self {
        Self(time.0.div_euclid(FILE_TIME_UNITS))
    }

    /// Returns the second that is this many seconds earlier.
    pub(super) const fn minus(self, seconds: i64) -> Self {
        Self(self.0.saturating_sub(seconds))
    }
}

/// Amounts by second.
#[derive(Clone, Debug)]
pub(super) struct History {
    /// The amounts of the last seconds. A second is at its number modulo the length.
    amounts: [u64; HISTORY_SECONDS],
    /// The latest second with an amount.
    newest: Second,
    /// The sum of all amounts, also of those that `amounts` no longer contains.
    total: u64,
}

impl Default for History {
    fn default() -> Self {
        Self { amounts: [0; HISTORY_SECONDS], newest: Second(i64::MIN), total: 0 }
    }
}

impl History {
    /// Adds an amount to a second. If the second is too old, only the total grows.
    #[inline]
    pub(super) fn add(&mut self, second: Second, amount: u64) {
        self.total = self.total.saturating_add(amount);
        if second != self.newest && !self.advance(second) {
            return;
        }
        if let Some(slot) = self.amounts.get_mut(slot_of(second)) {
            *slot = slot.saturating_add(amount);
        }
    }

    /// Moves the history on to a second. Returns whether the history contains the second.
    fn advance(&mut self, second: Second) -> bool {
        let ahead = second.0.saturating_sub(self.newest.0);
        if ahead <= 0 {
            return ahead.unsigned_abs() < HISTORY_SECONDS as u64;
        }
        // Each second between the two had no amount.
        for number in 0..ahead.min(HISTORY_SECONDS as i64) {
            if let Some(slot) = self.amounts.get_mut(slot_of(second.minus(number))) {
                *slot = 0;
            }
        }
        self.newest = second;
        true
    }

    /// Returns the amount of a second.
    pub(super) fn amount_in(&self, second: Second) -> u64 {
        let behind = self.newest.0.saturating_sub(second.0);
        if !(0..HISTORY_SECONDS as i64).contains(&behind) {
            return 0;
        }
        self.amounts.get(slot_of(second)).copied().unwrap_or(0)
    }

    /// Returns the amounts of `count` seconds, the last of which is `until`, the oldest first.
    pub(super) fn amounts_until(&self, until: Second, count: usize) -> Vec<u64> {
        (0..count as i64).rev().map(|behind| self.amount_in(until.minus(behind))).collect()
    }

    /// Returns the sum of all amounts.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// Returns whether the last [`HISTORY_SECONDS`] before `now` have no amount.
    pub(super) const fn is_idle(&self, now: Second) -> bool {
        now.0.saturating_sub(self.newest.0) >= HISTORY_SECONDS as i64
    }

    /// Adds the amounts of another history.
    pub(super) fn absorb(&mut self, other: &Self) {
        let before = self.total;
        for behind in (0..HISTORY_SECONDS as i64).rev() {
            let second = other.newest.minus(behind);
            let amount = other.amount_in(second);
            if amount > 0 {
                self.add(second, amount);
            }
        }
        self.total = before.saturating_add(other.total);
    }
}

/// Returns the index of a second in a history.
const fn slot_of(second: Second) -> usize {
    // The remainder is less than the length.
    second.0.rem_euclid(HISTORY_SECONDS as i64) as usize
}

/// The durations of the last 15 to 30 seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentLatencies {
    current: Latencies,
    previous: Latencies,
    /// The first second of `current`.
    current_from: Second,
}

impl RecentLatencies {
    /// Adds a duration.
    pub(super) fn add(&mut self, second: Second, nanoseconds: u64) {
        let age = second.0.saturating_sub(self.current_from.0);
        if age >= HALF_SECONDS {
            let last = std::mem::take(&mut self.current);
            self.previous = if age < 2 * HALF_SECONDS { last } else { Latencies::default() };
            self.current_from = second;
        }
        self.current.add(nanoseconds);
    }

    /// Adds the durations of others.
    pub(super) fn absorb(&mut self, other: &Self) {
        self.current.merge(&other.current);
        self.previous.merge(&other.previous);
        self.current_from = self.current_from.max(other.current_from);
    }

    /// Returns the durations that are recent now.
    pub(super) fn recent(&self, now: Second) -> Latencies {
        let age = now.0.saturating_sub(self.current_from.0);
        if age >= 2 * HALF_SECONDS {
            return Latencies::default();
        }
        let mut recent = self.current.clone();
        if age < HALF_SECONDS {
            recent.merge(&self.previous);
        }
        recent
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn second_that_is_too_old_counts_only_in_the_total() {
        let mut history = History::default();
        history.add(Second(100), 5);
        history.add(Second(99), 2);
        history.add(Second(40), 7);
        assert_eq!((history.amount_in(Second(100)), history.amount_in(Second(99))), (5, 2));
        assert_eq!((history.amount_in(Second(40)), history.amount_in(Second(101))), (0, 0));
        assert_eq!(history.total(), 14);
        assert_eq!(history.amounts_until(Second(101), 3), [2, 5, 0]);
        assert!(!history.is_idle(Second(159)) && history.is_idle(Second(160)));
    }

    #[test]
    fn extreme_seconds_neither_overflow_nor_take_long() {
        let mut history = History::default();
        for second in [i64::MAX, i64::MIN, 0, i64::MAX - 1] {
            history.add(Second(second), u64::MAX);
        }
        assert_eq!(history.amount_in(Second(i64::MAX)), u64::MAX);
        assert_eq!(history.amount_in(Second(i64::MIN)), 0);
        let mut latencies = RecentLatencies::default();
        for second in [i64::MAX, i64::MIN, 0] {
            latencies.add(Second(second), u64::MAX);
        }
        assert_eq!(latencies.recent(Second(i64::MAX)).count, 3);
    }

    #[test]
    fn durations_leave_after_two_halves() {
        let mut latencies = RecentLatencies::default();
        latencies.add(Second(100), 1_000);
        latencies.add(Second(115), 9_000);
        let counts = [115, 129, 130, 144, 145].map(|now| latencies.recent(Second(now)).count);
        assert_eq!(counts, [2, 2, 1, 1, 0]);
        latencies.add(Second(200), 1);
        assert_eq!(latencies.recent(Second(200)).count, 1, "older durations are dropped after a gap");
    }

    proptest! {
        #[test]
        fn history_agrees_with_a_map(additions in proptest::collection::vec((0_i64..200, 0_u64..9), 0..200)) {
            let mut history = History::default();
            let mut halves = [History::default(), History::default()];
            let mut expected: BTreeMap<i64, u64> = BTreeMap::new();
            let mut newest = 0;
            for (number, (second, amount)) in additions.iter().enumerate() {
                history.add(Second(*second), *amount);
                halves[number % 2].add(Second(*second), *amount);
                newest = newest.max(*second);
                if newest - second < HISTORY_SECONDS as i64 {
                    *expected.entry(*second).or_default() += amount;
                }
            }
            for second in newest - HISTORY_SECONDS as i64 + 1..=newest {
                prop_assert_eq!(history.amount_in(Second(second)), expected.get(&second).copied().unwrap_or(0));
            }
            let total: u64 = additions.iter().map(|(_, amount)| amount).sum();
            let [mut merged, other] = halves;
            merged.absorb(&other);
            prop_assert_eq!((history.total(), merged.total()), (total, total));
        }
    }
}
