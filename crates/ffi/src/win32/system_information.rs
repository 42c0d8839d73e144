//! winternl.h: information about the system by class. The only class here is
//! SystemPerformanceTraceInformation, and the only kind of information in it is the group masks of
//! a session. Programs set them this way before TraceSetInformation existed.
//!
//! ```text
//!   EVENT_TRACE_GROUPMASK_INFORMATION   0 u32 kind (1) │ 8 u64 session │ 16 u32 × 8 masks
//!       NtQuerySystemInformation ─▶ TraceQueryInformation ┐
//!       NtSetSystemInformation ───▶ TraceSetInformation ──┴─ TraceSystemTraceEnableFlagsInfo
//! ```
//!
//! Source: not published by Microsoft; the layout as in public programs that use it.

use std::ffi::c_void;

use traceweir::Status;
use traceweir_format::spec::info::InfoClass;

use crate::evntrace::information::{TraceQueryInformation, TraceSetInformation};
use crate::{boundary, ptr};

/// SystemPerformanceTraceInformation.
const PERFORMANCE_TRACE: u32 = 31;
/// EventTraceGroupMaskInformation.
const GROUP_MASK: u32 = 1;

const STATUS_NOT_IMPLEMENTED: i32 = 0xC000_0002_u32.cast_signed();
const STATUS_INVALID_INFO_CLASS: i32 = 0xC000_0003_u32.cast_signed();
const STATUS_INFO_LENGTH_MISMATCH: i32 = 0xC000_0004_u32.cast_signed();
const STATUS_ACCESS_VIOLATION: i32 = 0xC000_0005_u32.cast_signed();

/// EVENT_TRACE_GROUPMASK_INFORMATION.
#[derive(Clone, Copy)]
#[repr(C)]
struct GroupMaskInformation {
    kind: u32,
    session: u64,
    masks: [u32; 8],
}

/// Size of EVENT_TRACE_GROUPMASK_INFORMATION.
const GROUP_MASK_BYTES: u32 = 48;
/// Size of the masks in it.
const MASK_BYTES: u32 = 32;
const _: () = assert!(size_of::<GroupMaskInformation>() == GROUP_MASK_BYTES as usize);

/// Converts a Win32 code to the NTSTATUS of the same meaning or, if none is listed here, to an
/// NTSTATUS that contains the code.
fn to_nt_status(status: u32) -> i32 {
    const FACILITY_NTWIN32: u32 = 0xC007_0000;
    let nt_status = match Status(status) {
        Status::ERROR_SUCCESS => 0,
        Status::ERROR_ACCESS_DENIED => 0xC000_0022,
        Status::ERROR_INVALID_HANDLE => 0xC000_0008,
        Status::ERROR_INVALID_PARAMETER => 0xC000_000D,
        Status::ERROR_NOT_SUPPORTED => 0xC000_00BB,
        Status::ERROR_NO_SYSTEM_RESOURCES => 0xC000_009A,
        Status::ERROR_PRIVILEGE_NOT_HELD => 0xC000_0061,
        Status::ERROR_WMI_INSTANCE_NOT_FOUND => 0xC000_0296,
        Status(code) => FACILITY_NTWIN32 | code & 0xFFFF,
    };
    nt_status.cast_signed()
}

/// Reads the caller's structure.
///
/// # Safety
///
/// `information` is NULL or has `length` bytes.
unsafe fn read_group_mask(
    class: u32,
    information: *const c_void,
    length: u32,
) -> Result<GroupMaskInformation, i32> {
    if class != PERFORMANCE_TRACE {
        return Err(STATUS_INVALID_INFO_CLASS);
    }
    // Every kind begins with its number.
    if (length as usize) < size_of::<u32>() {
        return Err(STATUS_INFO_LENGTH_MISMATCH);
    }
    // SAFETY: the caller passes NULL or at least these four bytes.
    let kind = unsafe { ptr::read_value(information.cast::<u32>()) }.ok_or(STATUS_ACCESS_VIOLATION)?;
    if kind != GROUP_MASK {
        return Err(STATUS_NOT_IMPLEMENTED);
    }
    if (length as usize) < size_of::<GroupMaskInformation>() {
        return Err(STATUS_INFO_LENGTH_MISMATCH);
    }
    // SAFETY: `information` is not NULL and has the bytes of the structure.
    unsafe { ptr::read_value(information.cast()) }.ok_or(STATUS_ACCESS_VIOLATION)
}

/// Returns the group masks of the session that the structure names.
///
/// # Safety
///
/// `information` is NULL or has `length` bytes; `return_length` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn NtQuerySystemInformation(
    class: u32,
    information: *mut c_void,
    length: u32,
    return_length: *mut u32,
) -> i32 {
    boundary::catch_panic(STATUS_ACCESS_VIOLATION, || {
        // SAFETY: the caller fulfils the `# Safety` section; `read_group_mask` requires no more.
        let mut group_mask = match unsafe { read_group_mask(class, information, length) } {
            Ok(group_mask) => group_mask,
            Err(status) => {
                let needed = if status == STATUS_INFO_LENGTH_MISMATCH { GROUP_MASK_BYTES } else { 0 };
                // SAFETY: the caller passes NULL or a writable `return_length`.
                unsafe { ptr::store(return_length, needed) };
                return status;
            }
        };
        let flags_class = InfoClass::TraceSystemTraceEnableFlagsInfo.number();
        let masks = &raw mut group_mask.masks;
        // SAFETY: `masks` has 32 bytes; the length is not asked for.
        let status = unsafe {
            TraceQueryInformation(
                group_mask.session,
                flags_class,
                masks.cast(),
                MASK_BYTES,
                std::ptr::null_mut(),
            )
        };
        if status == 0 {
            // SAFETY: `information` has the bytes of the structure; `return_length` is NULL or can
            // be written.
            unsafe {
                ptr::store(information.cast(), group_mask);
                ptr::store(return_length, GROUP_MASK_BYTES);
            }
        }
        to_nt_status(status)
    })
}

/// Sets the group masks of the session that the structure names.
///
/// # Safety
///
/// `information` is NULL or has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn NtSetSystemInformation(class: u32, information: *mut c_void, length: u32) -> i32 {
    boundary::catch_panic(STATUS_ACCESS_VIOLATION, || {
        // SAFETY: the caller fulfils the `# Safety` section; `read_group_mask` requires no more.
        let group_mask = match unsafe { read_group_mask(class, information, length) } {
            Ok(group_mask) => group_mask,
            Err(status) => return status,
        };
        let flags_class = InfoClass::TraceSystemTraceEnableFlagsInfo.number();
        let masks = &raw const group_mask.masks;
        // SAFETY: `masks` has 32 bytes.
        let status =
            unsafe { TraceSetInformation(group_mask.session, flags_class, masks.cast(), MASK_BYTES) };
        to_nt_status(status)
    })
}

/// The same as [`NtQuerySystemInformation`].
///
/// # Safety
///
/// As [`NtQuerySystemInformation`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ZwQuerySystemInformation(
    class: u32,
    information: *mut c_void,
    length: u32,
    return_length: *mut u32,
) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section of `NtQuerySystemInformation`.
    unsafe { NtQuerySystemInformation(class, information, length, return_length) }
}

/// The same as [`NtSetSystemInformation`].
///
/// # Safety
///
/// As [`NtSetSystemInformation`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ZwSetSystemInformation(class: u32, information: *mut c_void, length: u32) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section of `NtSetSystemInformation`.
    unsafe { NtSetSystemInformation(class, information, length) }
}
