//! When: the next drain, the next flush, the next look around.
//!
//! ```text
//!   wake of a process ──▶ drain
//!   flush timer       ──▶ drain, partly filled buffers go out            only where a timer is set
//!   beat, each second ──▶ drain, clocks are followed, idle pages go back
//!   low latency       ──▶ drain again 1 ms after one that found something, until one finds nothing
//! ```

use std::time::{Duration, Instant};

/// At least so often everything is looked at.
pub(crate) const BEAT: Duration = Duration::from_secs(1);
/// The pause between drains while events flow, in low latency.
const AGAIN: Duration = Duration::from_millis(1);

/// What is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Partly filled buffers are to go out.
    pub(crate) flush: bool,
    /// It is time to look around.
    pub(crate) beat: bool,
}

/// The collector's timetable.
#[derive(Debug)]
pub(crate) struct Schedule {
    period: Option<Duration>,
    flush: Instant,
    beat: Instant,
    again: Option<Instant>,
}

impl Schedule {
    /// From now on; a period of 0 seconds is none.
    pub(crate) fn new(now: Instant, flush_seconds: u32) -> Self {
        let mut schedule = Self { period: None, flush: now, beat: now + BEAT, again: None };
        schedule.set_period(now, flush_seconds);
        schedule
    }

    /// Changes the flush timer.
    pub(crate) fn set_period(&mut self, now: Instant, seconds: u32) {
        self.period = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
        self.flush = now + self.period.unwrap_or_default();
    }

    /// Events flow: look again soon.
    pub(crate) fn look_again(&mut self, now: Instant, soon: bool) {
        self.again = soon.then(|| now + AGAIN);
    }

    /// How long nothing is due.
    pub(crate) fn pause(&self, now: Instant) -> Duration {
        let mut next = self.beat;
        if self.period.is_some() {
            next = next.min(self.flush);
        }
        if let Some(again) = self.again {
            next = next.min(again);
        }
        next.saturating_duration_since(now)
    }

    /// What is due now; it is then due again one period later.
    pub(crate) fn due(&mut self, now: Instant) -> Due {
        let mut due = Due::default();
        if let Some(period) = self.period.filter(|_| now >= self.flush) {
            due.flush = true;
            self.flush = now + period;
        }
        if now >= self.beat {
            due.beat = true;
            self.beat = now + BEAT;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_of_the_timers_ends_the_pause() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 0);
        assert_eq!(schedule.pause(start), BEAT);
        schedule.look_again(start, true);
        assert_eq!(schedule.pause(start), AGAIN);
        schedule.look_again(start, false);
        let later = start + BEAT;
        assert_eq!(schedule.due(later), Due { flush: false, beat: true });
        assert_eq!(schedule.due(later), Due::default());
    }

    #[test]
    fn the_flush_timer_ticks_once_a_period() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 3);
        let ticks = (1..=9).filter(|&s| schedule.due(start + Duration::from_secs(s)).flush).count();
        assert_eq!(ticks, 3);
        schedule.set_period(start, 0);
        assert!(!schedule.due(start + Duration::from_secs(99)).flush);
    }
}
