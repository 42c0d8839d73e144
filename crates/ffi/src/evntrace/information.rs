//! evntrace.h for controllers: information about sessions, providers and the machine, by class.
//!
//! ```text
//!   TraceSetInformation, TraceQueryInformation, EnumerateTraceGuidsEx ─▶ Question ─▶ ask ─▶ Answer ─▶ buffer and length of the caller
//! ```
//!
//! Which classes there are, how long their bytes are and which mistake is told first is not known here: [`ask`] is the one way to who knows.

use std::ffi::c_void;

use traceweir::Status;

use crate::{boundary, ptr};

#[allow(dead_code)] // Read by whoever answers.
/// What is asked. Buffers are `None` where they are NULL, whatever their length.
pub(super) enum Question<'a> {
    Set {
        session: u64,
        class: i32,
        given: Option<&'a [u8]>,
        length: u32,
    },
    /// Some classes say in the buffer what is asked about.
    Query {
        session: u64,
        class: i32,
        buffer: Option<&'a [u8]>,
        length: u32,
    },
    Enumerate {
        class: i32,
        given: Option<&'a [u8]>,
        length: u32,
        room: u32,
    },
}

/// What comes of it.
pub(super) struct Answer {
    pub(super) status: Status,
    /// For the caller's buffer, no more than fits; empty where nothing is to be written.
    pub(super) bytes: Vec<u8>,
    /// For ReturnLength; `None` leaves it alone.
    pub(super) return_length: Option<u32>,
}

/// Has a question answered.
pub(super) fn ask(_question: &Question<'_>) -> Answer {
    Answer { status: Status::ERROR_CALL_NOT_IMPLEMENTED, bytes: Vec::new(), return_length: None }
}

/// Sets what a class is about.
///
/// # Safety
///
/// `given` is NULL, or has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TraceSetInformation(
    session: u64,
    class: i32,
    given: *const c_void,
    length: u32,
) -> u32 {
    boundary::status(|| {
        // SAFETY: by the contract.
        let given = unsafe { bytes(given, length) };
        ask(&Question::Set { session, class, given, length }).status
    })
}

/// Tells what a class is about.
///
/// # Safety
///
/// `buffer` is NULL, or has `length` bytes; `return_length` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TraceQueryInformation(
    session: u64,
    class: i32,
    buffer: *mut c_void,
    length: u32,
    return_length: *mut u32,
) -> u32 {
    boundary::status(|| {
        // SAFETY: by the contract.
        let given = unsafe { bytes(buffer, length) };
        let answer = ask(&Question::Query { session, class, buffer: given, length });
        // SAFETY: by the contract.
        unsafe { put(&answer, buffer, length, return_length) }
    })
}

/// Lists providers or groups, or tells about one.
///
/// # Safety
///
/// `given` and `buffer` are NULL, or have as many bytes as `length` and `room` say; `return_length` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EnumerateTraceGuidsEx(
    class: i32,
    given: *const c_void,
    length: u32,
    buffer: *mut c_void,
    room: u32,
    return_length: *mut u32,
) -> u32 {
    boundary::status(|| {
        if return_length.is_null() || buffer.is_null() && room != 0 {
            return Status::ERROR_INVALID_PARAMETER;
        }
        // SAFETY: by the contract.
        let given = unsafe { bytes(given, length) };
        let answer = ask(&Question::Enumerate { class, given, length, room });
        // SAFETY: by the contract.
        unsafe { put(&answer, buffer, room, return_length) }
    })
}

/// # Safety
///
/// `at` is NULL, or has `length` bytes, which stay as they are for `'a`.
unsafe fn bytes<'a>(at: *const c_void, length: u32) -> Option<&'a [u8]> {
    // SAFETY: by the contract.
    (!at.is_null()).then(|| unsafe { ptr::array(at.cast::<u8>(), length as usize) })?
}

/// # Safety
///
/// `buffer` is NULL, or has `room` bytes; `return_length` is NULL or valid.
unsafe fn put(answer: &Answer, buffer: *mut c_void, room: u32, return_length: *mut u32) -> Status {
    let fits = answer.bytes.len() <= room as usize;
    if !buffer.is_null() && fits {
        // SAFETY: there is room for it.
        unsafe {
            std::ptr::copy_nonoverlapping(answer.bytes.as_ptr(), buffer.cast::<u8>(), answer.bytes.len())
        };
    }
    if let Some(length) = answer.return_length {
        // SAFETY: by the contract.
        unsafe { ptr::store(return_length, length) };
    }
    answer.status
}
