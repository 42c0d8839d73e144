//! evntrace.h for controllers: information about sessions, providers and the machine, by class.
//!
//! ```text
//!   TraceSetInformation, TraceQueryInformation, ─┬─ id of a session in this process ─▶ Private
//!   TraceConfigureLastBranchRecord               └─ any other id ───────────────────▶ FoundDaemon
//!   EnumerateTraceGuidsEx ─────────────────────────────────────────────────────────▶ FoundDaemon
//!
//!   Private, FoundDaemon ──▶ controller::…_bytes ──▶ status and ReturnLength of the caller
//! ```
//!
//! The core (the crate `traceweir`) defines the classes, the lengths of their buffers, the order in
//! which errors are detected, and the classes that need a daemon.

use std::ffi::c_void;

use traceweir::controller::info::{ClassicEventId, Query};
use traceweir::controller::{self, OutputBuffer, Responder};
use traceweir::{PrivateSession, Status};

use super::sessions;
use crate::boundary::IntoStatus;
use crate::{boundary, ptr};

/// One byte more than a GUID has.
const GUID_BYTES_PLUS_ONE: usize = 17;
/// One event more than TraceConfigureLastBranchRecord allows.
const BRANCH_EVENTS_PLUS_ONE: usize = 5;

/// Selects the responder to a call: the session in this process, or the daemon.
fn select_responder(in_process: Option<&PrivateSession>) -> Responder<'_> {
    in_process.map_or(Responder::FoundDaemon, Responder::Private)
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
    boundary::to_status(|| {
        let length = length as usize;
        // SAFETY: the caller passes NULL or readable memory as `info`.
        let info = unsafe { bytes_or_none(info, length) };
        let in_process = sessions::find_in_process(session);
        let responder = select_responder(in_process.as_deref());
        controller::set_bytes(responder, session, class, info, length).into_status()
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
    boundary::to_status(|| {
        let count = count as usize;
        // One event more than allowed is enough for the core to refuse the call.
        let length = count.min(BRANCH_EVENTS_PLUS_ONE).saturating_mul(ClassicEventId::SIZE);
        // SAFETY: the caller passes NULL or readable memory as `events`.
        let events = unsafe { bytes_or_none(events, length) };
        let in_process = sessions::find_in_process(session);
        let responder = select_responder(in_process.as_deref());
        controller::configure_last_branch_record_bytes(responder, session, configuration, events, count)
            .into_status()
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
    boundary::to_status(|| {
        let length = length as usize;
        // SAFETY: the caller passes NULL or `length` bytes, and no more than `length` are read.
        let input = unsafe { bytes_or_none(info, length.min(Query::input_size(class))) };
        let in_process = sessions::find_in_process(session);
        let responder = select_responder(in_process.as_deref());
        let answer = controller::query_bytes(responder, session, class, input, length);
        // SAFETY: the caller fulfils the `# Safety` section; `store_answer` requires no more.
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
    boundary::to_status(|| {
        if return_length.is_null() {
            return Status::ERROR_INVALID_PARAMETER;
        }
        // The core refuses more bytes than a GUID has, so one more is enough to read.
        // SAFETY: the caller passes NULL or `input_length` bytes.
        let input = unsafe { bytes_or_none(input, (input_length as usize).min(GUID_BYTES_PLUS_ONE)) };
        let output_buffer = OutputBuffer { length: output_length as usize, is_null: output.is_null() };
        let answer = controller::enumerate_bytes(Responder::FoundDaemon, class, input, output_buffer);
        // SAFETY: the caller fulfils the `# Safety` section; `store_answer` requires no more.
        unsafe { store_answer(answer, output, return_length) }
    })
}

/// Returns the bytes at a caller's address; `None` for NULL.
///
/// # Safety
///
/// `at` is NULL, or has `length` bytes, which do not change for `'a`.
unsafe fn bytes_or_none<'a>(at: *const c_void, length: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller guarantees that `at` is NULL or valid.
    (!at.is_null()).then(|| unsafe { ptr::read_array(at.cast::<u8>(), length) })?
}

/// Writes an answer to the caller's memory, and returns its status.
///
/// # Safety
///
/// `buffer` has at least the size that was passed to the core for this answer; `return_length` is
/// NULL or valid.
unsafe fn store_answer(
    answer: controller::InformationAnswer,
    buffer: *mut c_void,
    return_length: *mut u32,
) -> Status {
    if !answer.answer.is_empty() {
        // SAFETY: the core returns an empty answer if the buffer is too small, so this one fits.
        unsafe { ptr::write_bytes(buffer.cast(), &answer.answer) };
    }
    if let Some(length) = answer.return_length {
        // SAFETY: the caller passes NULL or a writable `return_length`.
        unsafe { ptr::store(return_length, length) };
    }
    answer.result.into_status()
}
