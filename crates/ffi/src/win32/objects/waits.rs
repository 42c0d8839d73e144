//! Waits for objects, and sleeps. Nothing is alertable: there are no asynchronous procedure calls.

use std::ffi::c_void;
use std::time::Duration;

use traceweir::Status;

use super::super::INFINITE;
use super::current::{find_target, register_thread};
use super::registry::{self, Target};
use crate::{boundary, last_error, ptr};

/// WAIT_FAILED.
const WAIT_FAILED: u32 = u32::MAX;
/// MAXIMUM_WAIT_OBJECTS.
const MAX_WAIT_OBJECTS: u32 = 64;

/// Converts a timeout in milliseconds; `None` never expires.
fn to_timeout(milliseconds: u32) -> Option<Duration> {
    (milliseconds != INFINITE).then(|| Duration::from_millis(milliseconds.into()))
}

/// Waits for objects. On failure it sets the last error and returns WAIT_FAILED.
fn wait(targets: impl FnOnce() -> Result<Vec<Target>, Status>, for_all: bool, milliseconds: u32) -> u32 {
    let wait = || registry::wait(&targets()?, for_all, to_timeout(milliseconds), register_thread());
    boundary::catch_panic(Err(Status::ERROR_NOACCESS), wait).unwrap_or_else(|status| {
        last_error::set(status);
        WAIT_FAILED
    })
}

/// Waits for one object.
#[unsafe(no_mangle)]
pub extern "C" fn WaitForSingleObject(handle: *mut c_void, milliseconds: u32) -> u32 {
    wait(|| Ok(vec![find_target(handle)]), false, milliseconds)
}

/// Like [`WaitForSingleObject`].
#[unsafe(no_mangle)]
pub extern "C" fn WaitForSingleObjectEx(handle: *mut c_void, milliseconds: u32, _alertable: i32) -> u32 {
    wait(|| Ok(vec![find_target(handle)]), false, milliseconds)
}

/// Reads the handles of a wait.
///
/// # Safety
///
/// `handles` is NULL or has `count` elements.
unsafe fn read_targets(count: u32, handles: *const *mut c_void) -> Result<Vec<Target>, Status> {
    if count == 0 || count > MAX_WAIT_OBJECTS {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    // SAFETY: the caller passes NULL or `count` handles.
    let handles =
        unsafe { ptr::read_array(handles, count as usize) }.ok_or(Status::ERROR_INVALID_PARAMETER)?;
    Ok(handles.iter().map(|handle| find_target(*handle)).collect())
}

/// Waits for one or all of up to 64 objects.
///
/// # Safety
///
/// `handles` is NULL or has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn WaitForMultipleObjects(
    count: u32,
    handles: *const *mut c_void,
    for_all: i32,
    milliseconds: u32,
) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `read_targets` requires no more.
    wait(|| unsafe { read_targets(count, handles) }, for_all != 0, milliseconds)
}

/// Like [`WaitForMultipleObjects`].
///
/// # Safety
///
/// As [`WaitForMultipleObjects`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn WaitForMultipleObjectsEx(
    count: u32,
    handles: *const *mut c_void,
    for_all: i32,
    milliseconds: u32,
    _alertable: i32,
) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `read_targets` requires no more.
    wait(|| unsafe { read_targets(count, handles) }, for_all != 0, milliseconds)
}

/// Suspends the calling thread for a time, or for ever.
fn sleep(milliseconds: u32) {
    match to_timeout(milliseconds) {
        Some(Duration::ZERO) => std::thread::yield_now(),
        Some(time) => std::thread::sleep(time),
        None => loop {
            std::thread::sleep(Duration::from_secs(u32::MAX.into()));
        },
    }
}

/// Suspends the calling thread. 0 only yields the processor.
#[unsafe(no_mangle)]
pub extern "C" fn Sleep(milliseconds: u32) {
    sleep(milliseconds);
}

/// Like [`Sleep`]; returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn SleepEx(milliseconds: u32, _alertable: i32) -> u32 {
    sleep(milliseconds);
    0
}
