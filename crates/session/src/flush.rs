//! The collector's schedule: next drain, next flush, next housekeeping.
//!
//! ```text
//!   wake of a process ──▶ drain
//!   flush timer       ──▶ drain, then send partly filled buffers out     only if a timer is set
//!   beat, each second ──▶ drain, then follow clocks, return idle pages
//!   low latency       ──▶ drain again 1 ms after one that found records, until one finds none
//! ```

use std::time::{Duration, Instant};

/// Interval of drain and housekeeping, if nothing else is due.
pub(crate) const BEAT: Duration = Duration::from_secs(1);
/// Pause between drains in low latency mode, while events arrive.
const LOW_LATENCY_PAUSE: Duration = Duration::from_millis(1);

/// Tasks that are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// The collector is to send partly filled buffers out.
    pub(crate) flush: bool,
    /// Housekeeping is due.
    pub(crate) beat: bool,
}

/// The timers of the collector.
#[derive(Debug)]
pub(crate) struct Schedule {
    period: Option<Duration>,
    flush: Instant,
    beat: Instant,
    again: Option<Instant>,
}

impl Schedule {
    /// Creates a schedule that starts now. `flush_seconds` of 0 means no flush timer.
    pub(crate) fn new(now: Instant, flush_seconds: u32) -> Self {
        let mut schedule = Self { period: None, flush: now, beat: now + BEAT, again: None };
        schedule.set_period(now, flush_seconds);
        schedule
    }

    /// Changes the flush timer; 0 seconds turns it off.
    pub(crate) fn set_period(&mut self, now: Instant, seconds: u32) {
        self.period = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
        self.flush = now + self.period.unwrap_or_default();
    }

    /// Plans another drain in 1 ms if `soon`, or cancels it.
    pub(crate) fn plan_next_drain(&mut self, now: Instant, soon: bool) {
        self.again = soon.then(|| now + LOW_LATENCY_PAUSE);
    }

    /// Returns the time until something is due.
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

    /// Returns the tasks that are due now and plans them again one period later.
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
        schedule.plan_next_drain(start, true);
        assert_eq!(schedule.pause(start), LOW_LATENCY_PAUSE);
        schedule.plan_next_drain(start, false);
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
