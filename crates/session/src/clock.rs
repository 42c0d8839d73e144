//! Converts the raw counter that stamps records to the session's clock.
//!
//! ```text
//!   clock type      stamp
//!   1 counter       CLOCK_MONOTONIC in nanoseconds: the raw counter, converted by `mapping`, which
//!                   is renewed each second
//!   2 system time   wall + (raw − base) × rate, with 48 fractional bits; base, wall and rate are
//!                   set again each second
//!   3 cycles        the raw counter itself; the file gives its frequency in MHz
//! ```
//!
//! - C1 The conversion is monotonic between two settings of the base, and for the counter also
//!   across renewals, unless the machine was suspended.
//! - C2 When the base is set, system time follows the machine's clock forward at once and back by
//!   at most ten milliseconds. A clock that was set back further is not followed, so that stamps do
//!   not stand still. Streams never write a stamp before the last one.
//! - C3 All clocks use the same mapping to order captured events, which have stamps of
//!   `CLOCK_MONOTONIC`, among those of processes.

mod mapping;

use traceweir_format::time::{ClockKind, UNITS_PER_SECOND};
use traceweir_transport::clock::{Anchor, Counter, frequency, refined_frequency};

use mapping::{ClockPair, CounterMapping};

/// Fractional bits of the rate.
const FRACTION_BITS: u32 = 48;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// Ticks per second of the performance counter, which is `CLOCK_MONOTONIC` in nanoseconds.
const PERFORMANCE_FREQUENCY: u64 = NANOS_PER_SECOND;
/// Limit up to which system time is followed back, in 100 ns.
const MAX_BACK_UNITS: i64 = UNITS_PER_SECOND / 100;

/// The clock of a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionClock {
    kind: ClockKind,
    counter: Counter,
    start: Anchor,
    /// The raw counter as `CLOCK_MONOTONIC`.
    mapping: CounterMapping,
    /// Counter value that corresponds to `wall`.
    base: u64,
    /// System time of the base, as FILETIME.
    wall: i64,
    /// Units of 100 ns per tick, in fixed point.
    rate: u64,
}

impl SessionClock {
    /// Starts a clock of an ETW type now: 0 and unknown numbers are the counter. Without a cycle
    /// counter, CPU cycles become system time.
    pub(crate) fn start(kind: u32, counter: Counter) -> Self {
        let kind = match ClockKind::from_number(kind) {
            Some(ClockKind::CpuCycles) if counter == Counter::Monotonic => ClockKind::SystemTime,
            kind => kind.unwrap_or(ClockKind::Qpc),
        };
        Self::from_anchor(kind, counter, Anchor::now(counter), frequency(counter))
    }

    fn from_anchor(kind: ClockKind, counter: Counter, start: Anchor, ticks_per_second: u64) -> Self {
        let mapping = CounterMapping::new(clock_pair(&start), ticks_per_second);
        let (base, wall) = (start.counter, start.wall.0);
        Self { kind, counter, start, mapping, base, wall, rate: fixed_point_rate(ticks_per_second) }
    }

    /// Returns the ETW number of the clock type.
    pub(crate) fn kind(&self) -> u32 {
        self.kind.number()
    }

    /// Returns the counter that raw stamps come from.
    pub(crate) fn counter(&self) -> Counter {
        self.counter
    }

    /// Returns the start of the session, which file headers contain.
    pub(crate) fn anchor(&self) -> &Anchor {
        &self.start
    }

    /// Returns the time of `anchor` as a stamp, for a file header.
    pub(crate) fn anchor_stamp(&self, anchor: &Anchor) -> i64 {
        match self.kind {
            ClockKind::Qpc => clock_pair(anchor).ns,
            ClockKind::SystemTime => anchor.wall.0,
            ClockKind::CpuCycles => counter_stamp(anchor.counter),
        }
    }

    /// Converts a raw counter value to a stamp.
    #[inline]
    pub(crate) fn stamp(&self, raw: u64) -> i64 {
        match self.kind {
            ClockKind::Qpc => self.mapping.ns(raw),
            ClockKind::SystemTime => self.system_time(raw),
            ClockKind::CpuCycles => counter_stamp(raw),
        }
    }

    #[inline]
    fn system_time(&self, raw: u64) -> i64 {
        // Values before the base are valid too: all lie within seconds of the base.
        let ticks = i128::from(counter_stamp(raw.wrapping_sub(self.base)));
        let units = ticks.saturating_mul(i128::from(self.rate)) >> FRACTION_BITS;
        self.wall.saturating_add(i64::try_from(units).unwrap_or(i64::MAX))
    }

    /// Returns the first raw counter value with at least this stamp.
    pub(crate) fn first_raw(&self, stamp: i64) -> u64 {
        match self.kind {
            ClockKind::Qpc => return self.mapping.first_counter(stamp),
            ClockKind::CpuCycles => return u64::try_from(stamp).unwrap_or(0),
            ClockKind::SystemTime => {}
        }
        let units = i128::from(stamp).saturating_sub(i128::from(self.wall)) << FRACTION_BITS;
        let rate = i128::from(self.rate).max(1);
        // Rounded up: `stamp` rounds down.
        let ticks = units.div_euclid(rate).saturating_add(i128::from(units.rem_euclid(rate) != 0));
        let raw = i128::from(self.base).saturating_add(ticks);
        u64::try_from(raw.max(0)).unwrap_or(u64::MAX)
    }

    /// Returns the raw counter value at a time of `CLOCK_MONOTONIC`; the start of the session for
    /// earlier times.
    pub(crate) fn raw_at(&self, monotonic_ns: u64) -> u64 {
        let ns = i64::try_from(monotonic_ns).unwrap_or(i64::MAX);
        self.mapping.first_counter(ns).max(self.start.counter)
    }

    /// Renews the mapping to `CLOCK_MONOTONIC` if that is due.
    pub(crate) fn renew_mapping(&mut self) {
        if self.mapping.needs_renewal(self.counter.now()) {
            self.mapping.renew(clock_pair(&Anchor::now(self.counter)));
        }
    }

    /// Sets a new base, for clocks that have one.
    pub(crate) fn update_base(&mut self) {
        if self.kind == ClockKind::SystemTime {
            let now = Anchor::now(self.counter);
            let rate = fixed_point_rate(refined_frequency(self.counter, &self.start, &now));
            self.rebase(&now, rate);
        }
    }

    /// Sets later stamps back by `units` of 100 ns, as after a step of the machine's clock.
    #[cfg(test)]
    pub(crate) fn set_back(&mut self, units: i64) {
        self.wall -= units;
    }

    fn rebase(&mut self, now: &Anchor, rate: u64) {
        let expected = self.stamp(now.counter);
        let is_set_back = now.wall.0 < expected.saturating_sub(MAX_BACK_UNITS);
        self.wall = if is_set_back { expected } else { now.wall.0 };
        self.base = now.counter;
        self.rate = rate;
    }

    /// Returns the ticks per second of the raw counter, as known at the start.
    pub(crate) fn frequency(&self) -> u64 {
        frequency(self.counter).max(1)
    }

    /// Returns the ticks per second of the performance counter, which file headers contain
    /// (PerfFreq): with the clock of cycles, those of the raw counter.
    pub(crate) fn performance_frequency(&self) -> u64 {
        if self.kind == ClockKind::CpuCycles { self.frequency() } else { PERFORMANCE_FREQUENCY }
    }

    /// Converts a duration to ticks of the performance counter.
    pub(crate) fn performance_ticks(&self, ns: u64) -> u64 {
        let ticks = u128::from(ns).saturating_mul(self.performance_frequency().into());
        u64::try_from(ticks / u128::from(NANOS_PER_SECOND)).unwrap_or(u64::MAX)
    }
}

fn clock_pair(anchor: &Anchor) -> ClockPair {
    ClockPair { counter: anchor.counter, ns: i64::try_from(anchor.monotonic_ns).unwrap_or(i64::MAX) }
}

/// Returns the 64 bits of the counter as a stamp: no counter reaches the sign bit.
const fn counter_stamp(raw: u64) -> i64 {
    raw as i64
}

fn fixed_point_rate(ticks_per_second: u64) -> u64 {
    let units = (UNITS_PER_SECOND.unsigned_abs() as u128) << FRACTION_BITS;
    let rate = units.checked_div(u128::from(ticks_per_second)).unwrap_or(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_format::time::FileTime;

    fn anchor(counter: u64, wall: i64) -> Anchor {
        Anchor { counter, monotonic_ns: counter, wall: FileTime(wall) }
    }

    fn system_clock(ticks_per_second: u64) -> SessionClock {
        SessionClock::from_anchor(
            ClockKind::SystemTime,
            Counter::Cycles,
            anchor(1_000, 500_000_000),
            ticks_per_second,
        )
    }

    #[test]
    fn cycles_become_system_time_without_cycle_counter() {
        let kind = |kind, counter| SessionClock::start(kind, counter).kind();
        assert_eq!([0, 1, 2, 3].map(|requested| kind(requested, Counter::Monotonic)), [1, 1, 2, 2]);
        assert_eq!(kind(3, Counter::Cycles), 3);
    }

    #[test]
    fn cycles_are_the_raw_value() {
        let clock =
            SessionClock::from_anchor(ClockKind::CpuCycles, Counter::Cycles, anchor(7, 9), 3_000_000_000);
        assert_eq!(clock.stamp(0x7FFF_0000_0000_0001), 0x7FFF_0000_0000_0001);
        assert_eq!(clock.anchor_stamp(clock.anchor()), 7);
        assert_eq!([-1, 0, 12].map(|stamp| clock.first_raw(stamp)), [0, 0, 12]);
        assert_eq!(clock.performance_frequency(), clock.frequency());
        assert_eq!(clock.performance_ticks(2_000_000_000), 2 * clock.frequency());
    }

    #[test]
    fn counter_is_the_monotonic_clock_in_nanoseconds() {
        let start = Anchor { counter: 6_000, monotonic_ns: 50_000, wall: FileTime(9) };
        let clock = SessionClock::from_anchor(ClockKind::Qpc, Counter::Cycles, start, 3_000_000_000);
        assert_eq!(clock.anchor_stamp(clock.anchor()), 50_000);
        assert_eq!([6_000, 6_300, 3_000].map(|raw| clock.stamp(raw)), [50_000, 50_099, 49_000]);
        assert_eq!(clock.first_raw(50_100), 6_301, "the rate is rounded down");
        assert_eq!([50_100, 10].map(|ns| clock.raw_at(ns)), [6_301, 6_000]);
        assert_eq!(clock.performance_frequency(), 1_000_000_000);
        assert_eq!(clock.performance_ticks(123_456_789_012), 123_456_789_012);
        // Without a cycle counter, stamps already are nanoseconds.
        let start = Anchor { counter: 70, monotonic_ns: 70, wall: FileTime(9) };
        let mut clock = SessionClock::from_anchor(ClockKind::Qpc, Counter::Monotonic, start, 1_000_000_000);
        for now in [1_500_000_000, 9_000_000_001] {
            clock.mapping.renew(ClockPair { counter: now, ns: now.cast_signed() });
            assert_eq!(
                [70, now, now + 12_345].map(|raw| clock.stamp(raw).cast_unsigned()),
                [70, now, now + 12_345]
            );
        }
    }

    #[test]
    fn started_clock_agrees_with_the_monotonic_clock() {
        let clock = SessionClock::start(1, Counter::best());
        let now = Anchor::now(clock.counter());
        let error_ns = clock.stamp(now.counter) - clock.anchor_stamp(&now);
        assert!(error_ns.abs() < 1_000_000, "{error_ns} ns");
    }

    #[test]
    fn system_time_counts_100_ns_at_any_rate() {
        for rate in [1_000_000_u64, 10_000_000, 24_000_000, 1_000_000_000, 3_123_456_789] {
            let clock = system_clock(rate);
            for seconds in [0_u64, 1, 3600, 86_400 * 30] {
                let expected = 500_000_000 + i64::try_from(seconds).unwrap() * UNITS_PER_SECOND;
                let stamp = clock.stamp(1_000 + seconds * rate);
                let error = expected - stamp;
                // At gigahertz, 48 fractional bits allow an error of one part in 10¹¹.
                assert!(
                    (0..=1 + expected / 100_000_000_000).contains(&error),
                    "{rate} Hz, {seconds} s: {error}"
                );
            }
            assert_eq!(clock.anchor_stamp(clock.anchor()), 500_000_000);
            assert!(clock.stamp(0) <= 500_000_000, "a counter value before the start has a later stamp");
        }
    }

    #[test]
    fn first_raw_value_of_a_stamp_is_exact() {
        for rate in [1_000_000_u64, 10_000_000, 24_000_000, 3_123_456_789] {
            let clock = SessionClock::from_anchor(
                ClockKind::SystemTime,
                Counter::Cycles,
                anchor(u64::MAX >> 8, 500_000_000),
                rate,
            );
            for stamp in [500_000_000, 500_000_001, 500_000_777, 499_999_990, 987_654_321] {
                let raw = clock.first_raw(stamp);
                assert!(clock.stamp(raw) >= stamp && clock.stamp(raw - 1) < stamp, "{rate} Hz: {stamp}");
            }
            assert!(clock.first_raw(i64::MAX) > u64::MAX >> 8, "the conversion overflowed");
            assert_eq!(system_clock(rate).first_raw(i64::MIN), 0);
        }
    }

    #[test]
    fn system_time_follows_the_machine_clock_except_far_back() {
        let rate = fixed_point_rate(10_000_000);
        let mut clock = system_clock(10_000_000);
        clock.rebase(&anchor(11_000, 500_090_000), rate);
        assert_eq!(clock.stamp(11_000), 500_090_000, "a clock set forward is not followed");
        clock.rebase(&anchor(12_000, 500_091_000 - MAX_BACK_UNITS), rate);
        assert_eq!(clock.stamp(12_000), 500_091_000 - MAX_BACK_UNITS, "a small step back is not followed");
        let before = clock.stamp(13_000);
        clock.rebase(&anchor(13_000, 5), rate);
        assert_eq!(clock.stamp(13_000), before, "a clock set far back is followed");
        assert_eq!(clock.stamp(14_000), before + 1_000, "stamps stand still");
    }
}
