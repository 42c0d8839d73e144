//! Named points at which a test may kill a writer: `TRACEWEIR_TEST_POINT=name:N` makes the N-th
//! pass of the point raise SIGKILL.
//!
//! Without the feature `test-points` a point compiles to nothing.

/// Does nothing.
#[cfg(not(feature = "test-points"))]
#[inline(always)]
pub(super) fn pass(_name: &'static str) {}

/// Kills the process if this is the chosen pass of the chosen test point.
#[cfg(feature = "test-points")]
pub(super) fn pass(name: &'static str) {
    use core::sync::atomic::{AtomicU64, Ordering};
    use std::sync::OnceLock;

    static CHOSEN: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static PASSED: AtomicU64 = AtomicU64::new(0);

    let chosen = CHOSEN.get_or_init(|| {
        let value = std::env::var("TRACEWEIR_TEST_POINT").ok()?;
        let (name, count) = value.split_once(':')?;
        Some((name.to_owned(), count.parse().ok()?))
    });
    if let Some((chosen, count)) = chosen
        && chosen == name
        && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == *count
    {
        // SAFETY: no memory is involved; the process ends here.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        loop {
            std::thread::park();
        }
    }
}
