//! Waiting for what must come. The limit never decides about right and wrong on a slow machine; it ends tests that would hang.
#![allow(dead_code)] // Each test program uses its part.

use std::time::{Duration, Instant};

/// Longer than anything takes on a machine that works at all, however busy it is with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Waits until something holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

/// Waits for something and gives it back.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(BETWEEN_LOOKS);
    }
}
