//! Captures that have ended but are not closed yet.
//!
//! ```text
//!   Capture::end ─▶ ClosingCapture ─▶ the caller continues
//!                      │
//!   last CaptureControl dropped: perf events are closed, the kprobe is removed
//!                      └──▶ ClosingCapture is dropped
//! ```
//!
//! The kernel waits for all processors when the last event of a tracepoint is closed. With many
//! tracepoints that takes seconds. A process that exits meanwhile would leave its kprobe in the
//! kernel, so the process must wait for the closing ([`wait_until_closed`]).

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static CLOSING_COUNT: Mutex<usize> = Mutex::new(0);
static COUNT_CHANGED: Condvar = Condvar::new();

fn lock_count() -> MutexGuard<'static, usize> {
    CLOSING_COUNT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts one capture while it is being closed.
#[derive(Debug)]
pub(crate) struct ClosingCapture(());

impl ClosingCapture {
    pub(crate) fn begin() -> Self {
        let mut count = lock_count();
        *count = count.saturating_add(1);
        Self(())
    }
}

impl Drop for ClosingCapture {
    fn drop(&mut self) {
        let mut count = lock_count();
        *count = count.saturating_sub(1);
        COUNT_CHANGED.notify_all();
    }
}

/// Waits until all ended captures of this process are closed, at most for `timeout`.
///
/// Returns whether they are closed.
pub fn wait_until_closed(timeout: Duration) -> bool {
    let waited = COUNT_CHANGED.wait_timeout_while(lock_count(), timeout, |count| *count > 0);
    *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_ends_when_the_last_capture_is_closed() {
        let (first, second) = (ClosingCapture::begin(), ClosingCapture::begin());
        assert!(!wait_until_closed(Duration::ZERO));
        drop(first);
        assert!(!wait_until_closed(Duration::ZERO));
        let closer = std::thread::spawn(move || drop(second));
        assert!(wait_until_closed(Duration::from_secs(60)));
        closer.join().unwrap();
    }
}
