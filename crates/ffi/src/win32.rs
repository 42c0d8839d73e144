//! The functions that tracing programs call in addition to those for tracing: new GUIDs, SIDs, COM,
//! the heap, the version of Windows, privileges, the command line, files, libraries and volumes, IP
//! addresses, times, the performance counter, decompression, group masks, threads, objects, locks,
//! and Ctrl+C.
//!
//! They exist so that such programs link and run unchanged. Linux has no tokens, no COM and no
//! volumes; each function reports the state of Windows that comes closest to the state here.

pub mod addresses;
pub mod clock;
pub mod com;
pub mod command_line;
pub mod compression;
pub mod console;
pub mod files;
pub mod handles;
pub mod heap;
pub mod libraries;
pub mod locks;
pub mod objects;
pub mod sids;
pub mod system_information;
pub mod threads;
pub mod times;
pub mod token;
pub mod version;
pub mod volumes;

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use traceweir::{Guid, Status};
use traceweir_format::security::Sid;

use crate::format_message::TEXTS;
use crate::{boundary, last_error, ptr};

// HRESULTs.
const S_OK: i32 = 0;
const S_FALSE: i32 = 1;
const E_INVALIDARG: i32 = 0x8007_0057_u32.cast_signed();
const E_FAIL: i32 = 0x8000_4005_u32.cast_signed();

/// The handle that stands for the current process.
const CURRENT_PROCESS: usize = usize::MAX;
/// The handle that stands for the calling thread.
const CURRENT_THREAD: usize = CURRENT_PROCESS.wrapping_sub(1);
/// The handle that stands for the token of the current process.
const PROCESS_TOKEN: usize = CURRENT_PROCESS.wrapping_sub(3);

/// INFINITE: a timeout that never expires.
const INFINITE: u32 = u32::MAX;

/// Returns a number that no other handle of a file or object has or had. Handles are multiples of
/// 4, as on Windows. They start above the numbers that .NET and other libraries use for theirs.
fn new_handle() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x7000_0000);
    NEXT.fetch_add(4, Ordering::Relaxed)
}

/// Makes a random GUID of version 4.
///
/// # Safety
///
/// `guid` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CoCreateGuid(guid: *mut Guid) -> i32 {
    boundary::catch_panic(E_FAIL, || {
        if guid.is_null() {
            return E_INVALIDARG;
        }
        let mut bytes = [0_u8; 16];
        // SAFETY: `getrandom` writes at most `bytes.len()` bytes.
        let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        if usize::try_from(filled) != Ok(bytes.len()) {
            return E_FAIL;
        }
        let random = u128::from_le_bytes(bytes);
        // The version is 4, and the variant is that of RFC 9562.
        let version_4 = random & !(0xF000 << 64) & !(0xC000 << 48) | 0x4000 << 64 | 0x8000 << 48;
        // SAFETY: the caller passes NULL or a writable `guid`.
        unsafe { ptr::store(guid, Guid::from_u128(version_4)) };
        S_OK
    })
}

/// Returns the COM error of this thread: there is none.
///
/// # Safety
///
/// `error` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GetErrorInfo(reserved: u32, error: *mut *mut c_void) -> i32 {
    if reserved != 0 || error.is_null() {
        return E_INVALIDARG;
    }
    // SAFETY: the caller passes NULL or a writable `error`.
    unsafe { ptr::store(error, std::ptr::null_mut()) };
    S_FALSE
}

/// Runs a function that returns a BOOL. On failure it sets the last error and returns FALSE.
pub(super) fn to_bool(body: impl FnOnce() -> Result<(), Status>) -> i32 {
    match boundary::catch_panic(Err(Status::ERROR_NOACCESS), body) {
        Ok(()) => 1,
        Err(status) => {
            last_error::set(status);
            0
        }
    }
}

/// Formats a SID as text, in memory for LocalFree.
///
/// # Safety
///
/// `sid` is NULL or a SID, `text` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ConvertSidToStringSidA(sid: *const c_void, text: *mut *mut u8) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section; `write_sid_text` requires no more.
    to_bool(|| unsafe { write_sid_text(sid, text, |formatted| formatted.bytes().collect()) })
}

/// Like [`ConvertSidToStringSidA`], in UTF-16.
///
/// # Safety
///
/// As [`ConvertSidToStringSidA`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ConvertSidToStringSidW(sid: *const c_void, text: *mut *mut u16) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section; `write_sid_text` requires no more.
    to_bool(|| unsafe { write_sid_text(sid, text, |formatted| formatted.encode_utf16().collect()) })
}

/// Formats a SID and stores the address of the text.
///
/// # Safety
///
/// As [`ConvertSidToStringSidA`].
unsafe fn write_sid_text<U>(
    sid: *const c_void,
    text: *mut *mut U,
    encode: impl FnOnce(&str) -> Vec<U>,
) -> Result<(), Status> {
    if text.is_null() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    // SAFETY: the caller passes NULL or a SID, which begins with its revision and its count of
    // subauthorities.
    let [_, count] = unsafe { ptr::read_value(sid.cast::<[u8; 2]>()) }.ok_or(Status::ERROR_INVALID_SID)?;
    let bytes = 8_usize.saturating_add(usize::from(count).saturating_mul(4));
    // SAFETY: a SID has as many bytes as its count says.
    let bytes = unsafe { ptr::read_array(sid.cast::<u8>(), bytes) }.ok_or(Status::ERROR_INVALID_SID)?;
    let sid = Sid::parse(bytes).map_err(|_| Status::ERROR_INVALID_SID)?;
    let units = encode(&sid.to_string());
    let size = units.len().saturating_add(1).saturating_mul(size_of::<U>());
    let memory: *mut U = TEXTS.allocate(size).ok_or(Status::ERROR_NOT_ENOUGH_MEMORY)?.cast();
    for (index, unit) in units.into_iter().enumerate() {
        // SAFETY: the memory has one unit more than the text; that one stays 0.
        unsafe { ptr::store(memory.wrapping_add(index), unit) };
    }
    // SAFETY: the caller passes NULL or a writable `text`.
    unsafe { ptr::store(text, memory) };
    Ok(())
}
