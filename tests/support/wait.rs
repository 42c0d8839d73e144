//! Waits for conditions that must become true. The time limit only ends tests that would hang: it
//! is long enough that a slow machine never reaches it.
#![allow(dead_code)] // Each test program uses only some of these functions.

use std::time::{Duration, Instant};

/// Time limit of one wait: longer than any step takes, however busy the machine is.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until `holds` returns true. `condition` describes the awaited condition.
#[track_caller]
pub(crate) fn until(condition: &str, mut holds: impl FnMut() -> bool) {
    eventually(condition, || holds().then_some(()));
}

/// Polls until `poll` returns a value, and returns the value. `condition` describes the awaited
/// condition.
#[track_caller]
pub(crate) fn eventually<T>(condition: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(start.elapsed() < TEST_TIMEOUT, "timed out while waiting until: {condition}");
        std::thread::sleep(POLL_INTERVAL);
    }
}
