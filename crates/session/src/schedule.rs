//! The collector's schedule: next drain, next flush, next housekeeping.
//!
//! ```text
//!   wake of a process ──▶ drain
//!   flush timer       ──▶ drain, then send partly filled buffers out     only if a timer is set
//!   each second       ──▶ drain, then housekeeping: send late events out, update the clock
//!                         conversion, return idle pages
//!   low latency       ──▶ drain again 1 ms after a drain that found records or left some
//! ```

use std::time::{Duration, Instant};

/// Interval of housekeeping, and of drains if nothing else is due.
pub(crate) const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);
/// Pause between drains in low latency mode, while events arrive.
const LOW_LATENCY_PAUSE: Duration = Duration::from_millis(1);

/// Tasks that are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) flush: bool,
    pub(crate) housekeeping: bool,
}

/// The timers of the collector.
#[derive(Debug)]
pub(crate) struct Schedule {
    flush_period: Option<Duration>,
    next_flush: Instant,
    next_housekeeping: Instant,
    next_drain: Option<Instant>,
}

impl Schedule {
    /// Creates a schedule that starts now. `flush_seconds` of 0 means no flush timer.
    pub(crate) fn new(now: Instant, flush_seconds: u32) -> Self {
        let mut schedule = Self {
            flush_period: None,
            next_flush: now,
            next_housekeeping: now + HOUSEKEEPING_INTERVAL,
            next_drain: None,
        };
        schedule.set_period(now, flush_seconds);
        schedule
    }

    /// Restarts the flush timer with a new period; 0 seconds turns the timer off.
    pub(crate) fn set_period(&mut self, now: Instant, seconds: u32) {
        self.flush_period = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
        self.next_flush = now + self.flush_period.unwrap_or_default();
    }

    /// Plans another drain after the low latency pause if `is_wanted`; otherwise cancels a planned
    /// drain.
    pub(crate) fn plan_next_drain(&mut self, now: Instant, is_wanted: bool) {
        self.next_drain = is_wanted.then(|| now + LOW_LATENCY_PAUSE);
    }

    /// Returns the time until the next task is due.
    pub(crate) fn time_to_next_task(&self, now: Instant) -> Duration {
        let mut next = self.next_housekeeping;
        if self.flush_period.is_some() {
            next = next.min(self.next_flush);
        }
        if let Some(drain) = self.next_drain {
            next = next.min(drain);
        }
        next.saturating_duration_since(now)
    }

    /// Returns the tasks that are due now and plans them again one interval later.
    pub(crate) fn take_due(&mut self, now: Instant) -> Due {
        let mut due = Due::default();
        if let Some(flush_period) = self.flush_period.filter(|_| now >= self.next_flush) {
            due.flush = true;
            self.next_flush = now + flush_period;
        }
        if now >= self.next_housekeeping {
            due.housekeeping = true;
            self.next_housekeeping = now + HOUSEKEEPING_INTERVAL;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_timer_is_the_next_task() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 0);
        assert_eq!(schedule.time_to_next_task(start), HOUSEKEEPING_INTERVAL);
        schedule.plan_next_drain(start, true);
        assert_eq!(schedule.time_to_next_task(start), LOW_LATENCY_PAUSE);
        schedule.plan_next_drain(start, false);
        assert_eq!(schedule.time_to_next_task(start), HOUSEKEEPING_INTERVAL);
    }

    #[test]
    fn housekeeping_is_due_once_an_interval() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 0);
        let later = start + HOUSEKEEPING_INTERVAL;
        assert_eq!(schedule.take_due(later), Due { flush: false, housekeeping: true });
        assert_eq!(schedule.take_due(later), Due::default());
    }

    #[test]
    fn flush_is_due_once_a_period() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 3);
        let flushes = (1..=9).filter(|&s| schedule.take_due(start + Duration::from_secs(s)).flush).count();
        assert_eq!(flushes, 3);
        schedule.set_period(start, 0);
        assert!(!schedule.take_due(start + Duration::from_secs(99)).flush);
    }
}
