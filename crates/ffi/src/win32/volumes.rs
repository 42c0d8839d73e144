//! Drive letters and volumes of Windows: there are none here.
//!
//! Programs list them to translate the paths that the kernel of Windows reports. Traces of this
//! system have the paths of Linux, which need no translation, so the lists are empty.

use std::ffi::c_void;

use traceweir::Status;

use super::to_bool;
use crate::text::TextUnit;
use crate::{last_error, ptr};

/// INVALID_HANDLE_VALUE.
const INVALID_HANDLE: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

/// Returns the drive letters, one bit each: there are none.
#[unsafe(no_mangle)]
pub extern "C" fn GetLogicalDrives() -> u32 {
    last_error::set(Status::ERROR_SUCCESS);
    0
}

/// Answers a query about device names: no name exists, and the list of all names is empty.
///
/// # Safety
///
/// `name` is not read; `target` is NULL or has `capacity` units.
unsafe fn query_device<U: TextUnit>(name: *const U, target: *mut U, capacity: u32) -> u32 {
    if !name.is_null() {
        last_error::set(Status::ERROR_FILE_NOT_FOUND);
        return 0;
    }
    if target.is_null() || capacity == 0 {
        last_error::set(Status::ERROR_INSUFFICIENT_BUFFER);
        return 0;
    }
    // The list ends with an empty name.
    // SAFETY: `target` has at least one unit.
    unsafe { ptr::store(target, U::default()) };
    1
}

/// Returns the target of a device name, or the list of all device names if `name` is NULL. There
/// are no device names.
///
/// # Safety
///
/// `target` is NULL or has `capacity` units.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QueryDosDeviceW(name: *const u16, target: *mut u16, capacity: u32) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `query_device` requires no more.
    unsafe { query_device(name, target, capacity) }
}

/// Like [`QueryDosDeviceW`], in UTF-8.
///
/// # Safety
///
/// As [`QueryDosDeviceW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QueryDosDeviceA(name: *const u8, target: *mut u8, capacity: u32) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `query_device` requires no more.
    unsafe { query_device(name, target, capacity) }
}

/// Begins the list of volumes: it is empty, so the last error is ERROR_NO_MORE_FILES.
///
/// # Safety
///
/// No requirements: `name` is not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FindFirstVolumeW(_name: *mut u16, _capacity: u32) -> *mut c_void {
    last_error::set(Status::ERROR_NO_MORE_FILES);
    INVALID_HANDLE
}

/// Like [`FindFirstVolumeW`], in UTF-8.
///
/// # Safety
///
/// As [`FindFirstVolumeW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FindFirstVolumeA(_name: *mut u8, _capacity: u32) -> *mut c_void {
    last_error::set(Status::ERROR_NO_MORE_FILES);
    INVALID_HANDLE
}

/// Continues a list of volumes. No handle of a list exists, so every handle is invalid.
///
/// # Safety
///
/// No requirements: `name` is not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FindNextVolumeW(_list: *mut c_void, _name: *mut u16, _capacity: u32) -> i32 {
    to_bool(|| Err(Status::ERROR_INVALID_HANDLE))
}

/// Like [`FindNextVolumeW`], in UTF-8.
///
/// # Safety
///
/// As [`FindNextVolumeW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FindNextVolumeA(_list: *mut c_void, _name: *mut u8, _capacity: u32) -> i32 {
    to_bool(|| Err(Status::ERROR_INVALID_HANDLE))
}

/// Ends a list of volumes. No handle of a list exists, so every handle is invalid.
#[unsafe(no_mangle)]
pub extern "C" fn FindVolumeClose(_list: *mut c_void) -> i32 {
    to_bool(|| Err(Status::ERROR_INVALID_HANDLE))
}
