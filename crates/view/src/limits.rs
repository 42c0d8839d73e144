//! When the work on a question ends before its answer is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The deadline of a question, and whether its client has gone. Loops that are linear in the trace
/// check [`is_over`](Self::is_over) every 1,024 items and after every buffer that they load.
#[derive(Clone, Debug)]
pub(crate) struct QueryLimits {
    deadline: Instant,
    is_cancelled: Arc<AtomicBool>,
}

impl QueryLimits {
    /// Returns limits with a deadline this long from now. They also end when the flag is set.
    pub(crate) fn new(time: Duration, is_cancelled: Arc<AtomicBool>) -> Self {
        Self { deadline: Instant::now() + time, is_cancelled }
    }

    /// Returns limits for work that must be complete, such as an export.
    pub(crate) fn unlimited() -> Self {
        Self::new(Duration::from_secs(365 * 86_400), Arc::default())
    }

    /// Returns whether the client has gone.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Returns whether the work must end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_cancelled() || Instant::now() >= self.deadline
    }
}

/// Cancels the work on a question when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// Returns the flag that is set when the guard is dropped.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_at_the_deadline_or_without_client() {
        let guard = CancelOnDrop::default();
        assert!(QueryLimits::new(Duration::ZERO, guard.flag()).is_over());
        let limits = QueryLimits::new(Duration::from_secs(3600), guard.flag());
        assert!(!limits.is_over() && !limits.is_cancelled());
        drop(guard);
        assert!(limits.is_over() && limits.is_cancelled());
    }
}
