//! Detection of a control thread that waits for a lock of the program.
//!
//! A thread that registers may hold a lock that the control thread needs, such as that of an
//! allocator. The kernel shows in which system call a thread waits, with the arguments of the call;
//! a lock is a futex. If several checks in a row find the control thread waiting for the same futex,
//! and it does not wait there by design, the registering thread goes on without it.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use super::Client;

/// The time between two checks.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(15);
/// Number of checks that must find the same futex: for 200 ms. A lock of the C library's `malloc` is
/// held much longer than usual if its holder waits for a processor of a busy machine. A thread that
/// goes on too early loses its first events, one that goes on too late only takes longer.
const CHECK_COUNT: u32 = 14;

/// What the control thread is doing, for threads that wait for it.
#[derive(Debug, Default)]
pub(super) struct ControlThreadWatch {
    /// The id of the control thread; 0 if there is none.
    thread: AtomicI32,
    /// The control thread waits for the callback thread.
    awaits_callback: AtomicBool,
}

impl ControlThreadWatch {
    /// Watches the calling thread.
    pub(super) fn watch_this_thread(&self) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    }

    /// Runs `wait`, in which the control thread waits for the callback thread, not for a lock of
    /// the program.
    pub(super) fn await_callback<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.awaits_callback.store(true, Ordering::Relaxed);
        let result = wait();
        self.awaits_callback.store(false, Ordering::Relaxed);
        result
    }

    /// Returns the address of the futex that the control thread waits for, if it waits for one.
    fn awaited_futex(&self) -> Option<usize> {
        if self.awaits_callback.load(Ordering::Relaxed) {
            return None;
        }
        let thread = self.thread.load(Ordering::Relaxed);
        let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).ok()?;
        parse_futex(&call)
    }
}

/// Parses a line of `/proc/…/syscall`: the number of the call, and its arguments in hexadecimal.
fn parse_futex(call: &str) -> Option<usize> {
    let mut words = call.split_whitespace();
    if words.next()?.parse() != Ok(libc::SYS_futex) {
        return None;
    }
    usize::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()
}

/// The checks of one thread that waits for the control thread.
#[derive(Debug)]
pub(super) struct LockChecks {
    checked_at: Instant,
    futex: Option<usize>,
    count: u32,
}

impl LockChecks {
    pub(super) fn new() -> Self {
        Self { checked_at: Instant::now(), futex: None, count: 0 }
    }

    /// Returns whether the control thread waits for a lock of the program. Returns `false` without
    /// a check if the last check was less than [`CHECK_INTERVAL`] ago.
    pub(super) fn is_control_thread_blocked(&mut self, client: &Client) -> bool {
        if self.checked_at.elapsed() < CHECK_INTERVAL {
            return false;
        }
        self.checked_at = Instant::now();
        // A futex inside the client is a lock of the library, not of the program.
        let start = std::ptr::from_ref(client).addr();
        let own = start..start.saturating_add(size_of::<Client>());
        self.count_check(client.control_watch.awaited_futex().filter(|futex| !own.contains(futex)))
    }

    fn count_check(&mut self, futex: Option<usize>) -> bool {
        self.count = if futex == self.futex { self.count.saturating_add(1) } else { 1 };
        self.futex = futex;
        futex.is_some() && self.count >= CHECK_COUNT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn futex_is_parsed_from_a_system_call() {
        let futex = libc::SYS_futex;
        assert_eq!(
            parse_futex(&format!("{futex} 0x7f10 0x80 0x2 0x0 0x0 0x0 0x7ffe 0x7f1a\n")),
            Some(0x7f10)
        );
        for other in ["running\n", "-1 0x7ffe 0x7f1a\n", "7 0x7f10 0x1\n", "", "x", &format!("{futex}\n")] {
            assert_eq!(parse_futex(other), None, "{other:?}");
        }
    }

    #[test]
    fn thread_that_waits_for_a_lock_is_found() {
        let (watch, lock) = (ControlThreadWatch::default(), Mutex::new(()));
        std::thread::scope(|scope| {
            let held = lock.lock().unwrap();
            scope.spawn(|| {
                watch.watch_this_thread();
                drop(lock.lock().unwrap());
            });
            let start = Instant::now();
            while watch.awaited_futex().is_none() {
                assert!(start.elapsed() < Duration::from_secs(60), "the thread does not wait for the lock");
                std::thread::sleep(Duration::from_millis(1));
            }
            let address = std::ptr::from_ref(&lock).addr();
            let found = watch.awaited_futex().unwrap();
            assert!((address..address + size_of::<Mutex<()>>()).contains(&found));
            watch.await_callback(|| assert_eq!(watch.awaited_futex(), None));
            drop(held);
        });
    }

    #[test]
    fn thread_is_blocked_after_several_checks_with_one_futex() {
        let mut checks = LockChecks::new();
        // Another futex, or none, begins the count again.
        for futex in [Some(1), Some(2), None, Some(2)] {
            for _ in 1..CHECK_COUNT {
                assert!(!checks.count_check(futex), "blocked too early by {futex:?}");
            }
        }
        assert!(checks.count_check(Some(2)) && checks.count_check(Some(2)));
        assert!(!LockChecks::new().count_check(None));
    }
}
