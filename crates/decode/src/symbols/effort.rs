//! Limits the work that is done for one file.
//!
//! A few bytes can demand much work: a thousand functions may share one list of a million ranges, a
//! thousand units one table of abbreviations. Each step is subtracted from a budget here; when the
//! budget or the time is used up, reading ends with what was found so far.

use std::time::{Duration, Instant};

/// The number of steps between two reads of the clock.
const CLOCK_EVERY: u64 = 4096;
/// The number of bytes of text that cost one step.
const BYTES_OF_STEP: usize = 64;

/// The remaining steps and time.
#[derive(Debug)]
pub(super) struct Effort {
    left: u64,
    until: Instant,
    unchecked: u64,
}

impl Effort {
    /// Creates a budget of steps and time.
    pub(super) fn new(steps: u64, time: Duration) -> Self {
        let now = Instant::now();
        Self { left: steps, until: now.checked_add(time).unwrap_or(now), unchecked: 0 }
    }

    /// Subtracts steps; returns `None` when the budget or the time is used up.
    pub(super) fn pay(&mut self, steps: usize) -> Option<()> {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        self.left = self.left.checked_sub(steps)?;
        self.unchecked = self.unchecked.saturating_add(steps);
        if self.unchecked >= CLOCK_EVERY {
            return self.check();
        }
        Some(())
    }

    /// Subtracts the steps for a text that is read.
    pub(super) fn pay_for_bytes(&mut self, bytes: usize) -> Option<()> {
        self.pay(bytes.checked_div(BYTES_OF_STEP).unwrap_or(0))
    }

    /// Reads the clock at once, before a step of unknown length.
    pub(super) fn check(&mut self) -> Option<()> {
        self.unchecked = 0;
        (Instant::now() <= self.until).then_some(())
    }
}
