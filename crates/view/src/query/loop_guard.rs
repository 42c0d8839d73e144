//! Ends loops over a trace when the limits of a question are reached.

use crate::limits::QueryLimits;

/// Items between two checks.
const ITEMS: u32 = 1024;

/// Checks the limits of a question every [`ITEMS`] items of a loop.
#[derive(Debug)]
pub(super) struct LoopGuard<'l> {
    limits: &'l QueryLimits,
    items_left: u32,
    has_stopped: bool,
}

impl<'l> LoopGuard<'l> {
    pub(super) const fn new(limits: &'l QueryLimits) -> Self {
        Self { limits, items_left: 1, has_stopped: false }
    }

    /// Counts an item. Returns whether the loop may go on.
    #[inline]
    pub(super) fn may_continue(&mut self) -> bool {
        self.items_left -= 1;
        if self.items_left == 0 {
            self.items_left = ITEMS;
            self.has_stopped = self.has_stopped || self.limits.is_over();
        }
        !self.has_stopped
    }

    /// Returns whether the loop had to end early.
    pub(super) const fn has_stopped(&self) -> bool {
        self.has_stopped
    }
}
