//! The mapping between the raw counter and `CLOCK_MONOTONIC`, in both directions.
//!
//! ```text
//!   ns │              ╱ settled segment: the measured rate, from one second after the renewal on
//!      │         ╱·╱    correcting segment: from the renewal on, with a rate that leads back to
//!      │     ╱            the clock
//!      │ ╱  segments of the previous renewal
//!      └──────────────────── counter
//! ```
//!
//! - N1 Times never decrease with the counter.
//! - N2 A renewal causes no step: counter values since the previous renewal keep their times, and
//!   the difference from the clock is removed within the following second.
//! - N3 Only a large difference makes a new start: the machine was suspended or moved, which stops
//!   one of the clocks. Counter values before the new start never have times after it.

/// Fractional bits of a rate.
const FRACTION_BITS: u32 = 48;
const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// Difference between mapping and clock up to which the rate corrects it.
const MAX_SLEWED_NS: u64 = 10_000_000;
/// The difference may be larger by the time since the last renewal, divided by this number: the
/// rate of `CLOCK_MONOTONIC` itself is adjusted by up to 1/2000.
const MAX_RATE_ERROR_DIVISOR: u64 = 1000;

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockPair {
    pub(super) counter: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) ns: i64,
}

/// A straight line through one pair.
#[derive(Clone, Copy, Debug)]
struct Segment {
    begin: ClockPair,
    /// Nanoseconds per tick, in fixed point.
    rate: u64,
}

impl Segment {
    /// Returns the time of a counter value before or after the beginning.
    #[inline]
    fn ns(&self, counter: u64) -> i64 {
        // The difference as a signed number: no two stamps of a machine are 2⁶³ ticks apart.
        let ticks = i128::from(counter.wrapping_sub(self.begin.counter).cast_signed());
        let ns = ticks.saturating_mul(i128::from(self.rate)) >> FRACTION_BITS;
        self.begin.ns.saturating_add(i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX }))
    }

    /// Returns the lowest counter value with at least this time.
    fn first_counter(&self, ns: i64) -> u64 {
        let distance = i128::from(ns).saturating_sub(i128::from(self.begin.ns)) << FRACTION_BITS;
        let rate = i128::from(self.rate).max(1);
        // Rounded up: `ns` rounds down.
        let ticks = distance.div_euclid(rate).saturating_add(i128::from(distance.rem_euclid(rate) != 0));
        let counter = i128::from(self.begin.counter).saturating_add(ticks);
        u64::try_from(counter.max(0)).unwrap_or(u64::MAX)
    }
}

/// Converts between the raw counter and `CLOCK_MONOTONIC`.
#[derive(Clone, Debug)]
pub(super) struct CounterMapping {
    /// In the order of their beginnings; the last two are the correcting and the settled segment.
    segments: [Segment; 4],
    /// The pair of the last renewal, as measured.
    measured: ClockPair,
    ticks_per_second: u64,
}

impl CounterMapping {
    /// Starts a mapping at a pair.
    pub(super) fn new(start: ClockPair, ticks_per_second: u64) -> Self {
        let rate = fixed_point_rate(NANOS_PER_SECOND.unsigned_abs(), ticks_per_second).unwrap_or(1);
        Self { segments: [Segment { begin: start, rate }; 4], measured: start, ticks_per_second }
    }

    /// Returns the time of a counter value, in nanoseconds of `CLOCK_MONOTONIC`.
    #[inline]
    pub(super) fn ns(&self, counter: u64) -> i64 {
        let [oldest, later @ ..] = &self.segments;
        // A time is at most that of the beginning of every later segment (N1).
        let mut max_ns = i64::MAX;
        for segment in later.iter().rev() {
            if counter >= segment.begin.counter {
                return segment.ns(counter).min(max_ns);
            }
            max_ns = max_ns.min(segment.begin.ns);
        }
        oldest.ns(counter).min(max_ns)
    }

    /// Returns the lowest counter value with at least this time.
    pub(super) fn first_counter(&self, ns: i64) -> u64 {
        let [.., newest] = &self.segments;
        let mut first = newest.first_counter(ns).max(newest.begin.counter);
        for (index, pair) in self.segments.windows(2).enumerate().rev() {
            let [segment, next] = pair else { continue };
            // Times before the next segment do not exceed that of its beginning.
            if ns > next.begin.ns {
                break;
            }
            // The oldest segment continues before its beginning.
            let lowest = if index == 0 { 0 } else { segment.begin.counter };
            first = segment.first_counter(ns).max(lowest).min(next.begin.counter);
        }
        first
    }

    /// Returns whether the last renewal is at least half a second old, or the counter was reset.
    pub(super) fn needs_renewal(&self, counter: u64) -> bool {
        counter.abs_diff(self.measured.counter) >= self.ticks_per_second / 2
    }

    /// Follows `CLOCK_MONOTONIC`, with a pair that was just read.
    pub(super) fn renew(&mut self, now: ClockPair) {
        let expected = self.ns(now.counter);
        let ticks = now.counter.saturating_sub(self.measured.counter);
        let elapsed_ns = now.ns.saturating_sub(self.measured.ns).max(0).unsigned_abs();
        let max_slewed_ns = MAX_SLEWED_NS.saturating_add(elapsed_ns / MAX_RATE_ERROR_DIVISOR);
        self.measured = now;
        let [_, second, correcting, settled] = self.segments;
        let rate = settled.rate;
        let restarted = Segment { begin: now, rate };
        // The counter was reset: no older segment is valid.
        if ticks == 0 {
            self.segments = [restarted; 4];
            return;
        }
        // The last two segments that have begun.
        let [first, second] =
            if settled.begin.counter < now.counter { [correcting, settled] } else { [second, correcting] };
        if now.ns.abs_diff(expected) > max_slewed_ns {
            self.segments = [first, second, restarted, restarted];
            return;
        }
        let rate = fixed_point_rate(elapsed_ns, ticks).unwrap_or(rate);
        let begin = ClockPair { ns: expected, ..now };
        let correcting = Segment { begin, rate: corrected_rate(rate, now.ns.saturating_sub(expected)) };
        let counter = now.counter.saturating_add(self.ticks_per_second);
        let settled = Segment { begin: ClockPair { counter, ns: correcting.ns(counter) }, rate };
        self.segments = [first, second, correcting, settled];
    }
}

/// Returns `ns` per `ticks` in fixed point; `None` if either stood still or the rate has no such
/// form.
fn fixed_point_rate(ns: u64, ticks: u64) -> Option<u64> {
    let rate = (u128::from(ns) << FRACTION_BITS).checked_div(u128::from(ticks))?;
    u64::try_from(rate).ok().filter(|rate| *rate > 0)
}

/// Returns the rate that gains `error_ns` in a second, at least half of and at most one and a half
/// times `rate`.
fn corrected_rate(rate: u64, error_ns: i64) -> u64 {
    let error_ns = error_ns.clamp(-NANOS_PER_SECOND / 2, NANOS_PER_SECOND / 2);
    let correction = i128::from(rate).saturating_mul(error_ns.into()) / i128::from(NANOS_PER_SECOND);
    u64::try_from(i128::from(rate).saturating_add(correction)).unwrap_or(rate).max(1)
}

#[cfg(test)]
mod tests;
