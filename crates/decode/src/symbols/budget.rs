//! Limits the work of reading one file or unit.
//!
//! A few bytes can demand much work: a thousand functions may share one list of a million ranges, a
//! thousand units one table of abbreviations. Each step is subtracted from a budget here. When the
//! budget or the time is used up, reading ends; the results so far are kept.

use std::time::{Duration, Instant};

/// The number of steps between two reads of the clock.
const STEPS_PER_CLOCK_READ: u64 = 4096;
/// The number of bytes of text that cost one step.
const BYTES_PER_STEP: usize = 64;

/// The remaining steps and time.
#[derive(Debug)]
pub(super) struct WorkBudget {
    steps_left: u64,
    deadline: Instant,
    steps_since_clock: u64,
}

impl WorkBudget {
    pub(super) fn new(steps: u64, time: Duration) -> Self {
        let now = Instant::now();
        Self { steps_left: steps, deadline: now.checked_add(time).unwrap_or(now), steps_since_clock: 0 }
    }

    /// Subtracts steps; returns `None` when the budget or the time is used up.
    pub(super) fn spend(&mut self, steps: usize) -> Option<()> {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        self.steps_left = self.steps_left.checked_sub(steps)?;
        self.steps_since_clock = self.steps_since_clock.saturating_add(steps);
        if self.steps_since_clock >= STEPS_PER_CLOCK_READ {
            return self.check_time();
        }
        Some(())
    }

    /// Subtracts the steps for a text that is read.
    pub(super) fn spend_for_bytes(&mut self, bytes: usize) -> Option<()> {
        self.spend(bytes.checked_div(BYTES_PER_STEP).unwrap_or(0))
    }

    /// Reads the clock immediately, before a step of unknown length. Returns `None` after the
    /// deadline.
    pub(super) fn check_time(&mut self) -> Option<()> {
        self.steps_since_clock = 0;
        (Instant::now() <= self.deadline).then_some(())
    }
}
