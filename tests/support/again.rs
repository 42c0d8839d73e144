//! Repeats measurements that other processes on the machine may disturb.

/// Runs `check` until it passes, at most `times` times. The panic of the last attempt fails the
/// test.
#[allow(dead_code)] // Each test program uses its part.
pub(crate) fn again(times: u32, check: impl Fn()) {
    for _ in 1..times {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(&check)).is_ok() {
            return;
        }
    }
    check();
}
