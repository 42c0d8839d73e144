//! How much work a file is worth.
//!
//! A few bytes can ask for a lot: a thousand functions may share one list of a million ranges, a thousand units one table of abbreviations. Each step is
//! paid for here; where the purse is empty, or the time is up, the look ends with what was found so far.

use std::time::{Duration, Instant};

/// Steps between two looks at the clock.
const CLOCK_EVERY: u64 = 4096;
/// Bytes of a text that cost a step.
const BYTES_OF_STEP: usize = 64;

/// What may still be done.
#[derive(Debug)]
pub(super) struct Effort {
    left: u64,
    until: Instant,
    unchecked: u64,
}

impl Effort {
    /// So many steps, and so much time.
    pub(super) fn new(steps: u64, time: Duration) -> Self {
        let now = Instant::now();
        Self { left: steps, until: now.checked_add(time).unwrap_or(now), unchecked: 0 }
    }

    /// Pays for steps; `None` where there is nothing left to pay with.
    pub(super) fn pay(&mut self, steps: usize) -> Option<()> {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        self.left = self.left.checked_sub(steps)?;
        self.unchecked = self.unchecked.saturating_add(steps);
        if self.unchecked >= CLOCK_EVERY {
            return self.check();
        }
        Some(())
    }

    /// Pays for a text that is looked at.
    pub(super) fn pay_for_bytes(&mut self, bytes: usize) -> Option<()> {
        self.pay(bytes.checked_div(BYTES_OF_STEP).unwrap_or(0))
    }

    /// Looks at the clock now: before a step whose length is not known.
    pub(super) fn check(&mut self) -> Option<()> {
        self.unchecked = 0;
        (Instant::now() <= self.until).then_some(())
    }
}
