//! Waits on a word of memory until another thread changes it (futex). `errno` does not change.

use std::time::{Duration, Instant};

use super::super::INFINITE;

/// When a wait gives up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    pub(super) const NEVER: Self = Self(None);

    pub(super) fn after(milliseconds: u32) -> Self {
        let timeout = Duration::from_millis(milliseconds.into());
        Self((milliseconds != INFINITE).then(|| Instant::now().checked_add(timeout)).flatten())
    }

    fn remaining(self) -> Option<Duration> {
        self.0.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

/// Waits while the word has a value. May return for no reason. Returns `false` after the deadline.
pub(super) fn wait(word: *const u32, value: u32, deadline: Deadline) -> bool {
    let remaining = deadline.remaining();
    let timeout = remaining.map(|remaining| libc::timespec {
        tv_sec: libc::time_t::try_from(remaining.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: remaining.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    keep_errno(|| {
        // SAFETY: the kernel checks the address, and the timeout is NULL or valid.
        let result = unsafe { libc::syscall(libc::SYS_futex, word, operation, value, timeout) };
        // SAFETY: the function returns the address of this thread's `errno`.
        result == 0 || unsafe { *libc::__errno_location() } != libc::ETIMEDOUT
    })
}

/// Wakes up to `threads` threads that wait on a word.
pub(super) fn wake(word: *const u32, threads: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel only uses the address as a key.
    keep_errno(|| unsafe { libc::syscall(libc::SYS_futex, word, operation, threads) });
}

fn keep_errno<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: the function returns the address of this thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the address is that of this thread's `errno`.
    let before = unsafe { errno.read() };
    let result = call();
    // SAFETY: as above.
    unsafe { errno.write(before) };
    result
}
