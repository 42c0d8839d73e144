//! The performance counter: `QueryPerformanceCounter` and `QueryPerformanceFrequency`.
//!
//! The counter is CLOCK_MONOTONIC in nanoseconds, which is also the clock of sessions that use the
//! performance counter. So a program can compare its own readings with raw time stamps of events.

use traceweir::Status;

use super::to_bool;
use crate::ptr;

/// Ticks of the performance counter in a second.
const FREQUENCY: i64 = 1_000_000_000;

fn read_counter() -> Result<i64, Status> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` can be written.
    if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) } != 0 {
        return Err(Status::ERROR_NOT_SUPPORTED);
    }
    Ok(now.tv_sec.saturating_mul(FREQUENCY).saturating_add(now.tv_nsec))
}

/// Stores a number, unless its address is NULL.
///
/// # Safety
///
/// `at` is NULL or can be written.
unsafe fn store(at: *mut i64, number: Result<i64, Status>) -> i32 {
    to_bool(|| {
        if at.is_null() {
            return Err(Status::ERROR_NOACCESS);
        }
        // SAFETY: the caller passes a writable address.
        unsafe { ptr::store(at, number?) };
        Ok(())
    })
}

/// Stores the current value of the performance counter.
///
/// # Safety
///
/// `count` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QueryPerformanceCounter(count: *mut i64) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section; `store` requires no more.
    unsafe { store(count, read_counter()) }
}

/// Stores the ticks of the performance counter in a second.
///
/// # Safety
///
/// `frequency` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QueryPerformanceFrequency(frequency: *mut i64) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section; `store` requires no more.
    unsafe { store(frequency, Ok(FREQUENCY)) }
}
