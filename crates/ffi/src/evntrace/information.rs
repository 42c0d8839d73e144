//! evntrace.h for controllers: information about sessions, providers and the machine, by class.
//!
//! ```text
//!   TraceSetInformation, TraceQueryInformation, EnumerateTraceGuidsEx ─▶ Question ─▶ ask ─▶ Answer ─▶ status and ReturnLength of the caller
//! ```
//!
//! Which classes there are, how long their bytes are and which mistake is told first is not known here: `ask` is the one way to who knows.

use std::ffi::c_void;

use traceweir::Status;
use traceweir::controller::{Controller, info};

use super::sessions;
use crate::{boundary, ptr};

/// Bytes of a GUID, and one.
const GUID_AND_ONE: usize = 17;

/// What is asked. Buffers are `None` where they are NULL, whatever their length.
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

/// Has a question answered, by the daemon that is there: [`info::set_bytes`], [`info::query_bytes`], [`info::enumerate_bytes`].
fn ask(question: Question<'_>) -> Answer {
    let mut daemon = match Controller::find(None) {
        Ok(daemon) => daemon,
        Err(error) => return Answer { status: error.status(), return_length: None },
    };
    let daemon = daemon.as_mut();
    let (session, outcome) = match question {
        Question::Set { session, class, info, length } => {
            let result = info::set_bytes(daemon, session, class, info, length);
            (session, info::Outcome { result, return_length: None })
        }
        Question::Query { session, class, info, length } => {
            (session, info::query_bytes(daemon, session, class, info, length))
        }
        Question::Enumerate { class, input, output, output_length } => {
            (0, info::enumerate_bytes(daemon, class, input, output, output_length))
        }
    };
    let status = outcome.result.map_or_else(|error| error.status(), |()| Status::ERROR_SUCCESS);
    // The daemon knows nothing of a session in this process, which has no information to set or to tell.
    let is_own = status == Status::ERROR_WMI_INSTANCE_NOT_FOUND && sessions::is_own(session);
    let status = if is_own { Status::ERROR_NOT_SUPPORTED } else { status };
    Answer { status, return_length: outcome.return_length }
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
        let info = unsafe { bytes(info, length) };
        ask(Question::Set { session, class, info, length }).status
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
        let info = unsafe { room(info, length) };
        let answer = ask(Question::Query { session, class, info, length });
        // SAFETY: by the contract.
        unsafe { tell(&answer, return_length) }
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
        // SAFETY: by the contract. Copied, as it may lie where the answer goes; one byte more than a GUID is enough to see that it is too long.
        let input = unsafe { bytes(input, (input_length as usize).min(GUID_AND_ONE)) }.map(<[u8]>::to_vec);
        // SAFETY: by the contract.
        let output = unsafe { room(output, output_length) };
        let answer = ask(Question::Enumerate { class, input: input.as_deref(), output, output_length });
        // SAFETY: by the contract.
        unsafe { tell(&answer, return_length) }
    })
}

/// The bytes of a caller; `None` for NULL.
///
/// # Safety
///
/// `at` is NULL, or has `length` bytes, which stay as they are for `'a`.
unsafe fn bytes<'a>(at: *const c_void, length: usize) -> Option<&'a [u8]> {
    // SAFETY: by the contract.
    (!at.is_null()).then(|| unsafe { ptr::array(at.cast::<u8>(), length) })?
}

/// A caller's buffer; `None` for NULL.
///
/// # Safety
///
/// `at` is NULL, or has `length` bytes, which nobody else reads or writes for `'a`.
unsafe fn room<'a>(at: *mut c_void, length: usize) -> Option<&'a mut [u8]> {
    // SAFETY: not NULL, so by the contract; bytes have no alignment, and a length of C no more than 32 bits.
    (!at.is_null()).then(|| unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), length) })
}

/// Brings an answer to the caller.
///
/// # Safety
///
/// `return_length` is NULL or valid.
unsafe fn tell(answer: &Answer, return_length: *mut u32) -> Status {
    if let Some(length) = answer.return_length {
        // SAFETY: by the contract.
        unsafe { ptr::store(return_length, length) };
    }
    answer.status
}
