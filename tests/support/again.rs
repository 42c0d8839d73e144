//! Checks of a machine on which others run too: what is measured may be disturbed, and is then measured again.

/// Makes a check as often as it takes, at most so often; what fails every time fails.
#[allow(dead_code)] // Each test program uses its part.
pub(crate) fn again(times: u32, check: impl Fn()) {
    for _ in 1..times {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(&check)).is_ok() {
            return;
        }
    }
    check();
}
