//! A function that a timer has interrupt the process all the time, on whichever thread it finds.
//!
//! Another thread may still be inside it when the timer is off already. So it is closed first, and then waited for: who comes late
//! sees that it is closed, and who does not see it has been counted.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::wait::until;

static RUN: OnceLock<fn()> = OnceLock::new();
static CLOSED: AtomicBool = AtomicBool::new(false);
static ENTERED: AtomicU64 = AtomicU64::new(0);
static LEFT: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    ENTERED.fetch_add(1, Ordering::SeqCst);
    if !CLOSED.load(Ordering::SeqCst)
        && let Some(run) = RUN.get()
    {
        run();
    }
    LEFT.fetch_add(1, Ordering::SeqCst);
}

/// Has `run`, which must be safe in a signal handler, called from now on. Once in a process.
pub(crate) fn start(every_microseconds: i64, run: fn()) {
    assert!(RUN.set(run).is_ok(), "a process has one timer");
    // SAFETY: the handler touches atomics and calls what is safe in one.
    unsafe { libc::signal(libc::SIGALRM, on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    set_timer(every_microseconds);
}

/// Ends it; when this returns, nobody is inside `run`, and nobody will be.
pub(crate) fn stop() {
    set_timer(0);
    CLOSED.store(true, Ordering::SeqCst);
    until("the end of the handlers", || ENTERED.load(Ordering::SeqCst) == LEFT.load(Ordering::SeqCst));
}

fn set_timer(microseconds: i64) {
    let every = libc::timeval { tv_sec: 0, tv_usec: microseconds };
    let value = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: sets the timer of this process.
    assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const value, std::ptr::null_mut()) }, 0);
}
