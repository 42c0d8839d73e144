//! What time it is on a live session's clock.
//!
//! Sessions are on this machine: their stamps are its counter itself, or its system time. Which counter is found by looking which one
//! shows what the session's header makes expect; where none does, the time is reckoned from the latest stamp and when it came.

use std::time::{Instant, SystemTime};

use traceweir_format::time::{Clock, ClockKind, FileTime, UNIX_EPOCH};
use traceweir_transport::clock::Counter;

/// Seconds by which a counter may differ from what is expected: wall clocks are set, rates are measured.
const TOLERANCE_SECONDS: i128 = 10;
/// And the part of the session's age by which it may.
const TOLERANCE_PART: i128 = 1000;

/// A session's clock, read from here.
#[derive(Clone, Copy, Debug)]
pub(super) enum Now {
    /// This counter.
    Counter(Counter),
    /// System time.
    Wall,
    /// Unknown, but for the latest stamp and when it came.
    Reckoned,
}

impl Now {
    /// How to read this clock.
    pub(super) fn of(clock: &Clock) -> Self {
        if clock.kind == ClockKind::SystemTime {
            return Self::Wall;
        }
        let expected = i128::from(clock.raw(wall()));
        let age = (expected - i128::from(clock.anchor)).abs();
        let tolerance = i128::from(clock.rate) * TOLERANCE_SECONDS + age / TOLERANCE_PART;
        let shows_it = |counter: &Counter| (i128::from(counter.now()) - expected).abs() <= tolerance;
        let counters = [Counter::best(), Counter::Monotonic];
        counters.into_iter().find(shows_it).map_or(Self::Reckoned, Self::Counter)
    }

    /// The time now, given the latest stamp and when it came.
    pub(super) fn read(self, clock: &Clock, (came, stamp): (Instant, i64)) -> i64 {
        match self {
            Self::Counter(counter) => i64::try_from(counter.now()).unwrap_or(i64::MAX),
            Self::Wall => wall().0,
            Self::Reckoned => {
                let ticks = came.elapsed().as_nanos().saturating_mul(clock.rate.into()) / 1_000_000_000;
                stamp.saturating_add(i64::try_from(ticks).unwrap_or(i64::MAX))
            }
        }
    }
}

fn wall() -> FileTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    FileTime(i64::try_from(since.as_nanos() / 100).map_or(i64::MAX, |units| units.saturating_add(UNIX_EPOCH)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_transport::clock::{Anchor, frequency};

    #[test]
    fn the_counter_of_a_session_is_recognised() {
        for counter in [Counter::best(), Counter::Monotonic] {
            let anchor = Anchor::now(counter);
            let (rate, start) = (frequency(counter), anchor.wall);
            let clock =
                Clock { kind: ClockKind::Qpc, rate, anchor: i64::try_from(anchor.counter).unwrap(), start };
            assert!(matches!(Now::of(&clock), Now::Counter(found) if found == counter));
            let now = Now::of(&clock).read(&clock, (Instant::now(), 0));
            assert!(now >= clock.anchor);
        }
    }

    #[test]
    fn a_clock_that_is_none_of_this_machine_is_reckoned_from_stamps() {
        let clock = Clock { kind: ClockKind::Qpc, rate: 1000, anchor: 0, start: FileTime(wall().0 - 1) };
        assert!(matches!(Now::of(&clock), Now::Reckoned));
        let came = Instant::now().checked_sub(std::time::Duration::from_secs(2)).unwrap();
        assert!(Now::Reckoned.read(&clock, (came, 500)) >= 2500);
    }

    #[test]
    fn system_time_is_read_as_such() {
        let clock = Clock { kind: ClockKind::SystemTime, rate: 1, anchor: 0, start: FileTime(0) };
        let before = wall().0;
        assert!(Now::of(&clock).read(&clock, (Instant::now(), 0)) >= before);
    }
}
