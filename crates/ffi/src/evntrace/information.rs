//! evntrace.h for controllers: information about sessions, providers and the machine, by class.
//!
//! ```text
//!   TraceSetInformation, TraceQueryInformation ─┬─ id of a session in this process ─▶ Private
//!   EnumerateTraceGuidsEx                       └─ any other id ────────────▶ FoundDaemon
//!
//!   Private, FoundDaemon ──▶ controller::…_bytes ──▶ status and ReturnLength of the caller
//! ```
//!
//! The core defines the classes, the lengths of their bytes, the order of errors and the classes
//! that need a daemon.

use std::ffi::c_void;

use traceweir::controller::info::{ClassicEventId, Query};
use traceweir::controller::{self, OutputBuffer, Responder};
use traceweir::{PrivateSession, Result, Status};

use super::sessions;
use crate::{boundary, ptr};

/// One byte more than a GUID has.
const GUID_AND_ONE: usize = 17;
/// One event more than TraceConfigureLastBranchRecord allows.
const EVENTS_AND_ONE: usize = 5;

/// Returns what answers a call about a session: the session in this process, or the daemon.
fn responder(own: Option<&PrivateSession>) -> Responder<'_> {
    own.map_or(Responder::FoundDaemon, Responder::Private)
}

fn outcome(result: Result<()>) -> Status {
    result.map_or_else(|error| error.status(), |()| Status::ERROR_SUCCESS)
}

/// Sets the information of a class; [`controller::set_bytes`].
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
        let own = sessions::find_own(session);
        outcome(controller::set_bytes(responder(own.as_deref()), session, class, info, length))
    })
}

/// Records the last branches at kernel events; [`controller::configure_last_branch_record_bytes`].
///
/// # Safety
///
/// `events` is NULL, or has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TraceConfigureLastBranchRecord(
    session: u64,
    configuration: u32,
    events: *const c_void,
    count: u32,
) -> u32 {
    boundary::status(|| {
        let count = count as usize;
        // One more than allowed is enough for the core to refuse them.
        let length = count.min(EVENTS_AND_ONE).saturating_mul(ClassicEventId::SIZE);
        // SAFETY: by the contract.
        let events = unsafe { bytes(events, length) };
        let own = sessions::find_own(session);
        let responder = responder(own.as_deref());
        outcome(controller::configure_last_branch_record_bytes(
            responder,
            session,
            configuration,
            events,
            count,
        ))
    })
}

/// Returns the information of a class; [`controller::query_bytes`].
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
        // SAFETY: by the contract; only the input of the class is read from the buffer.
        let input = unsafe { bytes(info, length.min(Query::input_size(class))) };
        let own = sessions::find_own(session);
        let answer = controller::query_bytes(responder(own.as_deref()), session, class, input, length);
        // SAFETY: by the contract.
        unsafe { store_answer(answer, info, return_length) }
    })
}

/// Lists providers or groups, or describes one; [`controller::enumerate_bytes`].
///
/// # Safety
///
/// `input` and `output` are NULL, or have as many bytes as their lengths say; `return_length` is
/// NULL or valid.
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
        // SAFETY: by the contract. One byte more than a GUID is enough for the core to refuse it.
        let input = unsafe { bytes(input, (input_length as usize).min(GUID_AND_ONE)) };
        let room = OutputBuffer { length: output_length as usize, is_null: output.is_null() };
        let answer = controller::enumerate_bytes(Responder::FoundDaemon, class, input, room);
        // SAFETY: by the contract.
        unsafe { store_answer(answer, output, return_length) }
    })
}

/// Returns the bytes at a caller's address; `None` for NULL.
///
/// # Safety
///
/// `at` is NULL, or has `length` bytes, which stay as they are for `'a`.
unsafe fn bytes<'a>(at: *const c_void, length: usize) -> Option<&'a [u8]> {
    // SAFETY: by the contract.
    (!at.is_null()).then(|| unsafe { ptr::array(at.cast::<u8>(), length) })?
}

/// Writes an answer to the caller's memory, and returns its status.
///
/// # Safety
///
/// `buffer` has the room for which the answer was made; `return_length` is NULL or valid.
unsafe fn store_answer(
    answer: controller::InformationAnswer,
    buffer: *mut c_void,
    return_length: *mut u32,
) -> Status {
    if !answer.answer.is_empty() {
        // SAFETY: by the contract: the answer is empty if it does not fit.
        unsafe { ptr::put(buffer.cast(), &answer.answer) };
    }
    if let Some(length) = answer.return_length {
        // SAFETY: by the contract.
        unsafe { ptr::store(return_length, length) };
    }
    outcome(answer.result)
}
