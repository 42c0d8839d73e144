//! The heap of the process: `HeapAlloc`, `HeapFree`. Texts that `FormatMessage` allocated belong to
//! it, too.

use std::ffi::c_void;

use traceweir::Status;

use super::to_bool;
use crate::boundary;
use crate::format_message::TEXTS;

/// The handle of the only heap.
const PROCESS_HEAP: *mut c_void = std::ptr::without_provenance_mut(0x10);

/// Returns the handle of the heap.
#[unsafe(no_mangle)]
pub extern "C" fn GetProcessHeap() -> *mut c_void {
    PROCESS_HEAP
}

/// Allocates zeroed memory. Returns NULL for another heap, or if there is no memory.
#[unsafe(no_mangle)]
pub extern "C" fn HeapAlloc(heap: *mut c_void, _flags: u32, bytes: usize) -> *mut c_void {
    boundary::catch_panic(std::ptr::null_mut(), || {
        if heap != PROCESS_HEAP {
            return std::ptr::null_mut();
        }
        TEXTS.allocate(bytes).unwrap_or(std::ptr::null_mut())
    })
}

/// Frees memory. Returns FALSE for an address that was not allocated; the last error is then
/// ERROR_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub extern "C" fn HeapFree(heap: *mut c_void, _flags: u32, memory: *mut c_void) -> i32 {
    to_bool(|| {
        if heap == PROCESS_HEAP && (memory.is_null() || TEXTS.free(memory)) {
            return Ok(());
        }
        Err(Status::ERROR_INVALID_PARAMETER)
    })
}
