//! The current time on a live session's clock.
//!
//! Sessions run on this machine: their stamps come from one of its counters or its system time. The
//! right counter is the one whose value is close to the prediction from the session's header. If
//! there is none, the time is estimated from the latest stamp and its arrival.

use std::time::Instant;

use traceweir_format::time::{Clock, ClockKind, FileTime};
use traceweir_transport::clock::Counter;

/// Seconds by which a counter may differ from its prediction: wall clocks are adjusted, and rates
/// are measured inexactly.
const TOLERANCE_SECONDS: i128 = 10;
/// A counter may differ by a further 1/1000 of the session's age.
const AGE_TOLERANCE_DIVISOR: i128 = 1000;

/// A way to read a session's clock.
#[derive(Clone, Copy, Debug)]
pub(super) enum ClockReader {
    /// This counter of the machine.
    Counter(Counter),
    /// The system time.
    Wall,
    /// Estimated from the latest stamp and its arrival.
    Estimated,
}

impl ClockReader {
    /// Determines how to read this clock.
    pub(super) fn for_clock(clock: &Clock) -> Self {
        if clock.kind == ClockKind::SystemTime {
            return Self::Wall;
        }
        let expected = i128::from(clock.raw(FileTime::now()));
        let age = (expected - i128::from(clock.anchor)).abs();
        let tolerance = i128::from(clock.rate) * TOLERANCE_SECONDS + age / AGE_TOLERANCE_DIVISOR;
        let matches_prediction =
            |counter: &Counter| (i128::from(counter.now()) - expected).abs() <= tolerance;
        let counters = [Counter::Monotonic, Counter::best()];
        counters.into_iter().find(matches_prediction).map_or(Self::Estimated, Self::Counter)
    }

    /// Returns the current time in ticks of the clock; `arrival` is the time at which the latest
    /// stamp, `stamp`, arrived.
    pub(super) fn read(self, clock: &Clock, (arrival, stamp): (Instant, i64)) -> i64 {
        match self {
            Self::Counter(counter) => i64::try_from(counter.now()).unwrap_or(i64::MAX),
            Self::Wall => FileTime::now().0,
            Self::Estimated => {
                let ticks = arrival.elapsed().as_nanos().saturating_mul(clock.rate.into()) / 1_000_000_000;
                stamp.saturating_add(i64::try_from(ticks).unwrap_or(i64::MAX))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_transport::clock::{Anchor, frequency};

    #[test]
    fn counter_of_a_session_is_recognised() {
        for counter in [Counter::best(), Counter::Monotonic] {
            let anchor = Anchor::now(counter);
            let (rate, start) = (frequency(counter), anchor.wall);
            let clock =
                Clock { kind: ClockKind::Qpc, rate, anchor: i64::try_from(anchor.counter).unwrap(), start };
            assert!(
                matches!(ClockReader::for_clock(&clock), ClockReader::Counter(chosen) if chosen == counter)
            );
            let now = ClockReader::for_clock(&clock).read(&clock, (Instant::now(), 0));
            assert!(now >= clock.anchor);
        }
    }

    #[test]
    fn foreign_clock_is_estimated_from_stamps() {
        let clock =
            Clock { kind: ClockKind::Qpc, rate: 1000, anchor: 0, start: FileTime(FileTime::now().0 - 1) };
        assert!(matches!(ClockReader::for_clock(&clock), ClockReader::Estimated));
        let arrival = Instant::now().checked_sub(std::time::Duration::from_secs(2)).unwrap();
        assert!(ClockReader::Estimated.read(&clock, (arrival, 500)) >= 2500);
    }

    #[test]
    fn system_time_clock_reads_system_time() {
        let clock = Clock { kind: ClockKind::SystemTime, rate: 1, anchor: 0, start: FileTime(0) };
        let before = FileTime::now().0;
        assert!(ClockReader::for_clock(&clock).read(&clock, (Instant::now(), 0)) >= before);
    }
}
