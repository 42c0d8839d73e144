//! The clocks of a capture.

use rustix::time::ClockId;

/// Converts `CLOCK_MONOTONIC` nanoseconds, the clock of perf events, to a session's clocks.
pub trait Clock {
    /// Returns the raw counter value, which puts records in order.
    fn raw(&self, ns: u64) -> u64;
    /// Returns the time on the session's own clock, for times inside payloads.
    fn stamp(&self, ns: u64) -> i64;
    /// Converts a duration to ticks of the performance counter.
    fn ticks(&self, ns: u64) -> u64;
}

/// Returns the current `CLOCK_MONOTONIC` time in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    read_clock_ns(ClockId::Monotonic)
}

/// Returns the current time of a clock in nanoseconds.
pub(crate) fn read_clock_ns(clock: ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// A test clock whose values all count nanoseconds.
#[cfg(test)]
pub(crate) struct NanosecondClock;

#[cfg(test)]
impl Clock for NanosecondClock {
    fn raw(&self, ns: u64) -> u64 {
        ns
    }

    fn stamp(&self, ns: u64) -> i64 {
        i64::try_from(ns).unwrap_or(i64::MAX)
    }

    fn ticks(&self, ns: u64) -> u64 {
        ns
    }
}
