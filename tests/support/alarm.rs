//! A timer signal that repeatedly interrupts the process on any of its threads and runs a function.
//!
//! Another thread may still be inside the signal handler when the timer is already off. So `stop`
//! first sets `CLOSED` and then waits for running handlers. A handler that starts later sees
//! `CLOSED` and does not call the function; a handler that did not see it is counted in `ENTERED`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::wait::until;

static CALLBACK: OnceLock<fn()> = OnceLock::new();
static CLOSED: AtomicBool = AtomicBool::new(false);
static ENTERED: AtomicU64 = AtomicU64::new(0);
static RETURNED: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    ENTERED.fetch_add(1, Ordering::SeqCst);
    if !CLOSED.load(Ordering::SeqCst)
        && let Some(run) = CALLBACK.get()
    {
        run();
    }
    RETURNED.fetch_add(1, Ordering::SeqCst);
}

/// Calls `run` from a signal handler every `interval_us` microseconds from now on. `run` must be
/// async-signal-safe. A process can start the timer only once.
pub(crate) fn start(interval_us: i64, run: fn()) {
    assert!(CALLBACK.set(run).is_ok(), "the process has started a timer before");
    // SAFETY: the handler touches atomics and calls a function that is safe in a signal handler.
    unsafe { libc::signal(libc::SIGALRM, on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    set_timer(interval_us);
}

/// Stops the timer. After this function returns, no thread is inside `run` or will enter it.
pub(crate) fn stop() {
    set_timer(0);
    CLOSED.store(true, Ordering::SeqCst);
    until("all signal handlers have returned", || {
        // RETURNED is loaded first: otherwise a handler that enters and returns between the two
        // loads could hide a handler that is still running.
        let returned = RETURNED.load(Ordering::SeqCst);
        ENTERED.load(Ordering::SeqCst) == returned
    });
}

/// Sets the interval of the timer; 0 turns the timer off.
fn set_timer(interval_us: i64) {
    let interval = libc::timeval { tv_sec: 0, tv_usec: interval_us };
    let value = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: the call reads `value`, which outlives it, and gets no pointer to write to.
    assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const value, std::ptr::null_mut()) }, 0);
}
