//! Status codes as text, as windows.h has it: FormatMessage for the codes that tracing functions return, and LocalFree.
//!
//! Texts are those of [`Status`]. There are no message tables of modules here and no inserts: whoever asks for such gets ERROR_NOT_SUPPORTED.

use std::ffi::{c_char, c_void};

use traceweir::Status;

use crate::{boundary, last_error, ptr};

const FORMAT_MESSAGE_ALLOCATE_BUFFER: u32 = 0x0100;
const FORMAT_MESSAGE_FROM_SYSTEM: u32 = 0x1000;
/// Characters of a buffer that is allocated, at most: what the published function allows.
const MAX_CHARACTERS: u32 = 64 << 10;

/// The text of a code in UTF-16.
///
/// # Safety
///
/// `buffer` is NULL, or has room for `size` characters, or with FORMAT_MESSAGE_ALLOCATE_BUFFER for an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FormatMessageW(
    flags: u32,
    _source: *const c_void,
    code: u32,
    _language: u32,
    buffer: *mut u16,
    size: u32,
    _arguments: *mut c_void,
) -> u32 {
    // SAFETY: by the contract.
    tell(|| unsafe { put(flags, &text_of(code).encode_utf16().collect::<Vec<_>>(), buffer, size) })
}

/// The text of a code in UTF-8.
///
/// # Safety
///
/// As [`FormatMessageW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FormatMessageA(
    flags: u32,
    _source: *const c_void,
    code: u32,
    _language: u32,
    buffer: *mut c_char,
    size: u32,
    _arguments: *mut c_void,
) -> u32 {
    // SAFETY: by the contract.
    tell(|| unsafe { put(flags, text_of(code).as_bytes(), buffer.cast(), size) })
}

fn text_of(code: u32) -> String {
    Status(code).win32().to_string()
}

/// What a function that returns a length returns.
fn tell(body: impl FnOnce() -> Result<u32, Status>) -> u32 {
    let outcome = boundary::guarded(Err(Status::ERROR_NOACCESS), body);
    outcome.unwrap_or_else(|status| {
        last_error::set(status);
        0
    })
}

/// Puts a text and its terminator where it is wanted.
///
/// # Safety
///
/// As [`FormatMessageW`].
unsafe fn put<T: Copy + Default>(flags: u32, text: &[T], buffer: *mut T, size: u32) -> Result<u32, Status> {
    if flags & FORMAT_MESSAGE_FROM_SYSTEM == 0 {
        return Err(Status::ERROR_NOT_SUPPORTED);
    }
    if buffer.is_null() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    let length = u32::try_from(text.len()).map_err(|_| Status::ERROR_INSUFFICIENT_BUFFER)?;
    let (to, room) = if flags & FORMAT_MESSAGE_ALLOCATE_BUFFER == 0 {
        (buffer, size)
    } else {
        let room = size.min(MAX_CHARACTERS).max(length.saturating_add(1));
        // SAFETY: no more than a number of bytes is asked for.
        let made: *mut T = unsafe { libc::calloc(room as usize, size_of::<T>()) }.cast();
        if made.is_null() {
            return Err(Status::ERROR_NOT_ENOUGH_MEMORY);
        }
        // SAFETY: by the contract, `buffer` is where an address can be written.
        unsafe { ptr::store(buffer.cast::<*mut T>(), made) };
        (made, room)
    };
    if length >= room {
        return Err(Status::ERROR_INSUFFICIENT_BUFFER);
    }
    for (at, character) in text.iter().chain(&[T::default()]).enumerate() {
        // SAFETY: there is room for `room` characters, of which `length + 1` are written.
        unsafe { ptr::store(to.wrapping_add(at), *character) };
    }
    Ok(length)
}

/// Gives back what a function of this library allocated for its caller; returns NULL.
///
/// # Safety
///
/// `memory` is NULL, or such an address, which was not given back before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LocalFree(memory: *mut c_void) -> *mut c_void {
    // SAFETY: by the contract, it came from `calloc`.
    unsafe { libc::free(memory) };
    std::ptr::null_mut()
}
