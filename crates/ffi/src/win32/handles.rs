//! Handles of every kind: closing and copying them, and the handles that stand for the current
//! process and thread.

use std::ffi::c_void;

use traceweir::Status;

use super::objects::{current, registry};
use super::{CURRENT_PROCESS, CURRENT_THREAD, PROCESS_TOKEN, files, to_bool};
use crate::ptr;

// Options of DuplicateHandle.
const DUPLICATE_CLOSE_SOURCE: u32 = 0x1;
const DUPLICATE_SAME_ACCESS: u32 = 0x2;

/// Returns the handle of the current process.
#[unsafe(no_mangle)]
pub extern "C" fn GetCurrentProcess() -> *mut c_void {
    std::ptr::without_provenance_mut(CURRENT_PROCESS)
}

/// Returns the handle that stands for the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn GetCurrentThread() -> *mut c_void {
    std::ptr::without_provenance_mut(CURRENT_THREAD)
}

/// Closes the handle of a file or an object. Returns `false` for any other handle.
fn close(handle: *mut c_void) -> bool {
    files::close_file(handle) || registry::close(handle.addr())
}

/// Closes a handle. Also accepts the handles that stand for this process, its token and the calling
/// thread, which need not be closed. Any other handle is invalid here.
#[unsafe(no_mangle)]
pub extern "C" fn CloseHandle(handle: *mut c_void) -> i32 {
    to_bool(|| {
        let is_constant = [CURRENT_PROCESS, CURRENT_THREAD, PROCESS_TOKEN].contains(&handle.addr());
        if is_constant || close(handle) { Ok(()) } else { Err(Status::ERROR_INVALID_HANDLE) }
    })
}

/// Makes a second handle of a file or object. Both process handles must be that of the current
/// process. DUPLICATE_CLOSE_SOURCE closes the first handle, even if no second one is made.
///
/// # Safety
///
/// `target` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn DuplicateHandle(
    source_process: *mut c_void,
    source: *mut c_void,
    target_process: *mut c_void,
    target: *mut *mut c_void,
    _access: u32,
    _inherit: i32,
    options: u32,
) -> i32 {
    to_bool(|| {
        if options & !(DUPLICATE_CLOSE_SOURCE | DUPLICATE_SAME_ACCESS) != 0 {
            return Err(Status::ERROR_INVALID_PARAMETER);
        }
        if source_process.addr() != CURRENT_PROCESS || target_process.addr() != CURRENT_PROCESS {
            return Err(Status::ERROR_INVALID_HANDLE);
        }
        let copy = if target.is_null() { None } else { Some(duplicate(source)) };
        let closes = options & DUPLICATE_CLOSE_SOURCE != 0;
        let has_closed = closes && close(source);
        match copy {
            // SAFETY: the caller passes NULL or a writable `target`.
            Some(copy) => unsafe { ptr::store(target, copy?) },
            None if has_closed => {}
            None if closes => return Err(Status::ERROR_INVALID_HANDLE),
            None => return Err(Status::ERROR_INVALID_PARAMETER),
        }
        Ok(())
    })
}

fn duplicate(source: *mut c_void) -> Result<*mut c_void, Status> {
    if [CURRENT_PROCESS, PROCESS_TOKEN].contains(&source.addr()) {
        return Ok(source);
    }
    if let Some(copy) = files::duplicate_file(source) {
        return Ok(copy);
    }
    registry::duplicate(current::find_target(source)).map(std::ptr::without_provenance_mut)
}
