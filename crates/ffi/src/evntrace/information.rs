//! evntrace.h for controllers: information about sessions, providers and the machine, by class.
//!
//! ```text
//!   TraceSetInformation, TraceQueryInformation, EnumerateTraceGuidsEx ─▶ Question ─▶ ask ─▶ Answer ─▶ status and ReturnLength of the caller
//! ```
//!
//! Which classes there are, how long their bytes are and which mistake is told first is not known here: [`ask`] is the one way to who knows. Buffers are
//! copied, in and out: nothing is kept of memory that C may change meanwhile, and nothing of it is read that the answer does not need.

use std::ffi::c_void;

use traceweir::Status;

use crate::{boundary, ptr};

/// Bytes of a caller's buffer that are looked at: more than any class has use for.
const MOST: usize = 1 << 20;

/// What is asked. Buffers are `None` where they are NULL, whatever their length.
#[allow(dead_code)] // Read by who answers.
enum Question<'a> {
    Set {
        session: u64,
        class: u32,
        info: Option<&'a [u8]>,
        length: usize,
    },
    /// Some classes say in the buffer what is asked about.
    Query {
        session: u64,
        class: u32,
        info: Option<&'a mut [u8]>,
        length: usize,
    },
    Enumerate {
        class: u32,
        input: Option<&'a [u8]>,
        output: Option<&'a mut [u8]>,
        output_length: usize,
    },
}

/// What comes of it, apart from what was written into the buffer of the question.
struct Answer {
    status: Status,
    /// For ReturnLength; `None` leaves it alone.
    return_length: Option<u32>,
}

/// Has a question answered.
fn ask(_question: Question<'_>) -> Answer {
    Answer { status: Status::ERROR_CALL_NOT_IMPLEMENTED, return_length: None }
}

/// Sets what a class is about.
///
/// # Safety
///
/// `info` is NULL, or has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TraceSetInformation(
    session: u64,
    class: u32,
    info: *const c_void,
    length: u32,
) -> u32 {
    boundary::status(|| {
        let length = length as usize;
        // SAFETY: by the contract.
        let info = unsafe { copied(info, length) };
        ask(Question::Set { session, class, info: info.as_deref(), length }).status
    })
}

/// Tells what a class is about.
///
/// # Safety
///
/// `info` is NULL, or has `length` bytes; `return_length` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TraceQueryInformation(
    session: u64,
    class: u32,
    info: *mut c_void,
    length: u32,
    return_length: *mut u32,
) -> u32 {
    boundary::status(|| {
        let length = length as usize;
        // SAFETY: by the contract.
        let mut buffer = unsafe { copied(info, length) };
        let answer = ask(Question::Query { session, class, info: buffer.as_deref_mut(), length });
        // SAFETY: by the contract.
        unsafe { tell(&answer, buffer.as_deref(), info, return_length) }
    })
}

/// Lists providers or groups, or tells about one.
///
/// # Safety
///
/// `input` and `output` are NULL, or have as many bytes as their lengths say; `return_length` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EnumerateTraceGuidsEx(
    class: u32,
    input: *const c_void,
    input_length: u32,
    output: *mut c_void,
    output_length: u32,
    return_length: *mut u32,
) -> u32 {
    boundary::status(|| {
        if return_length.is_null() {
            return Status::ERROR_INVALID_PARAMETER;
        }
        let output_length = output_length as usize;
        // SAFETY: by the contract.
        let input = unsafe { copied(input, input_length as usize) };
        let mut buffer = (!output.is_null()).then(|| vec![0; output_length.min(MOST)]);
        let question = Question::Enumerate {
            class,
            input: input.as_deref(),
            output: buffer.as_deref_mut(),
            output_length: output_length.min(MOST),
        };
        let answer = ask(question);
        // SAFETY: by the contract.
        unsafe { tell(&answer, buffer.as_deref(), output, return_length) }
    })
}

/// A copy of a caller's bytes; `None` for NULL.
///
/// # Safety
///
/// `at` is NULL, or has `length` bytes.
unsafe fn copied(at: *const c_void, length: usize) -> Option<Vec<u8>> {
    // SAFETY: by the contract.
    (!at.is_null()).then(|| unsafe { ptr::array(at.cast::<u8>(), length.min(MOST)) }.map(<[u8]>::to_vec))?
}

/// Brings an answer to the caller: as much of the buffer as was written.
///
/// # Safety
///
/// `at` is NULL, or has as many bytes as the buffer; `return_length` is NULL or valid.
unsafe fn tell(answer: &Answer, buffer: Option<&[u8]>, at: *mut c_void, return_length: *mut u32) -> Status {
    let written =
        answer.return_length.filter(|_| answer.status == Status::ERROR_SUCCESS).unwrap_or(0) as usize;
    if let Some(bytes) = buffer.and_then(|buffer| buffer.get(..written)) {
        // SAFETY: there are as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast::<u8>(), bytes.len()) };
    }
    if let Some(length) = answer.return_length {
        // SAFETY: by the contract.
        unsafe { ptr::store(return_length, length) };
    }
    answer.status
}
