//! Decoding handles: WPP message formats, and options that decide how messages are shown.

use std::ffi::c_void;

use traceweir::Status;
use traceweir_decode::source::LookupKind;
use traceweir_decode::tdh::{MessageFacts, WppMessages};

use super::answer::{Room, text};
use super::event::{
    CONTEXT_GMT, CONTEXT_PDB_PATH, CONTEXT_POINTER_SIZE, CONTEXT_TMF_FILE, CONTEXT_TMF_SEARCH_PATH, CONTEXTS,
    add_path, pointer_size, read_query, shown_time, text_at,
};
use super::table::Table;
use super::{MAX_NAME, format};
use crate::types::record::EventRecord;
use crate::types::tdh::TdhContext;
use crate::{boundary, ptr};

static OPEN: Table<Decoding> = Table::new();

/// The message formats and options of a handle.
#[derive(Debug, Default)]
struct Decoding {
    messages: WppMessages,
    set: [Option<Parameter>; CONTEXTS],
}

#[derive(Clone, Debug)]
enum Parameter {
    Number(u64),
    Text(String),
}

impl Decoding {
    fn number(&self, kind: u32) -> Option<u64> {
        match self.set.get(kind as usize)? {
            Some(Parameter::Number(number)) => Some(*number),
            _ => None,
        }
    }

    fn set(&mut self, kind: u32, parameter: Parameter) -> Status {
        if let Parameter::Text(path) = &parameter
            && let Err(refusal) = add_path(&mut self.messages, kind, path)
        {
            return refusal.status();
        }
        match self.set.get_mut(kind as usize) {
            Some(slot) => *slot = Some(parameter),
            None => return Status::ERROR_INVALID_PARAMETER,
        }
        Status::ERROR_SUCCESS
    }
}

fn with_decoding(handle: *mut c_void, body: impl FnOnce(&mut Decoding) -> Status) -> Status {
    if handle.is_null() {
        return Status::ERROR_INVALID_PARAMETER;
    }
    OPEN.with(handle.addr(), body).unwrap_or(Status::ERROR_INVALID_HANDLE)
}

/// Opens a decoding handle.
///
/// # Safety
///
/// `handle` is NULL, or a handle can be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhOpenDecodingHandle(handle: *mut *mut c_void) -> u32 {
    boundary::status(|| {
        if handle.is_null() {
            return Status::ERROR_INVALID_PARAMETER;
        }
        match OPEN.add(Decoding::default()) {
            Ok(made) => {
                // SAFETY: by the contract.
                unsafe { ptr::store(handle, std::ptr::without_provenance_mut(made)) };
                Status::ERROR_SUCCESS
            }
            Err(status) => status,
        }
    })
}

/// Closes a decoding handle.
#[unsafe(no_mangle)]
pub extern "C" fn TdhCloseDecodingHandle(handle: *mut c_void) -> u32 {
    boundary::status(|| match OPEN.remove(handle.addr()) {
        Some(_) => Status::ERROR_SUCCESS,
        None if handle.is_null() => Status::ERROR_INVALID_PARAMETER,
        None => Status::ERROR_INVALID_HANDLE,
    })
}

/// Sets an option of a handle: the location of message formats, or how values are shown.
///
/// # Safety
///
/// `context` is NULL or valid; a text that it names ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhSetDecodingParameter(handle: *mut c_void, context: *const TdhContext) -> u32 {
    boundary::status(|| {
        // SAFETY: by the contract.
        let Some(context) = (unsafe { ptr::copied(context) }) else { return Status::ERROR_INVALID_PARAMETER };
        let value = context.parameter_value;
        let parameter = match context.parameter_type {
            CONTEXT_GMT => Some(Parameter::Number(u64::from(value != 0))),
            CONTEXT_POINTER_SIZE => pointer_size(value).map(|_| Parameter::Number(value)),
            // SAFETY: by the contract.
            CONTEXT_TMF_FILE | CONTEXT_TMF_SEARCH_PATH | CONTEXT_PDB_PATH => {
                // SAFETY: by the contract.
                unsafe { text_at(value) }.filter(|path| !path.is_empty()).map(Parameter::Text)
            }
            _ => None,
        };
        let Some(parameter) = parameter else { return Status::ERROR_INVALID_PARAMETER };
        with_decoding(handle, |decoding| decoding.set(context.parameter_type, parameter))
    })
}

/// Returns an option of a handle: a number in the context itself, a text in the buffer whose
/// address and size in bytes the context has.
///
/// # Safety
///
/// `context` is NULL or valid; the buffer that it names has as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhGetDecodingParameter(handle: *mut c_void, context: *mut TdhContext) -> u32 {
    boundary::status(|| {
        // SAFETY: by the contract.
        let Some(mut parameter) = (unsafe { ptr::copied(context.cast_const()) }) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        if parameter.parameter_type as usize >= CONTEXTS {
            return Status::ERROR_INVALID_PARAMETER;
        }
        let mut set = None;
        let status = with_decoding(handle, |decoding| {
            set = decoding.set.get(parameter.parameter_type as usize).cloned().flatten();
            Status::ERROR_SUCCESS
        });
        if status != Status::ERROR_SUCCESS {
            return status;
        }
        let status = match set {
            None => return Status::ERROR_NOT_FOUND,
            Some(Parameter::Number(number)) => {
                let bytes = if parameter.parameter_type == CONTEXT_GMT { 1 } else { 4 };
                (parameter.parameter_value, parameter.parameter_size) = (number, bytes);
                Status::ERROR_SUCCESS
            }
            Some(Parameter::Text(path)) => {
                let Ok(address) = usize::try_from(parameter.parameter_value) else {
                    return Status::ERROR_INVALID_PARAMETER;
                };
                let buffer = std::ptr::with_exposed_provenance_mut::<u8>(address);
                // SAFETY: by the contract; the size is a local variable.
                let Some(room) = (unsafe { Room::new(buffer, &raw mut parameter.parameter_size) }) else {
                    return Status::ERROR_INVALID_PARAMETER;
                };
                room.put(&format::wide(&path), &[])
            }
        };
        // SAFETY: by the contract.
        unsafe { ptr::store(context, parameter) };
        status
    })
}

/// Formats a message as text; [`WppMessages::property`].
///
/// # Safety
///
/// Pointers are NULL or valid, including those in the record; `buffer` has `*size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhGetWppMessage(
    handle: *mut c_void,
    event: *const EventRecord,
    size: *mut u32,
    buffer: *mut u8,
) -> u32 {
    boundary::status(|| {
        let name = Some("FormattedString".to_owned());
        // SAFETY: by the contract.
        unsafe { message_property(handle, event, name, size, buffer) }
    })
}

/// Returns a property of a message; [`WppMessages::property`].
///
/// # Safety
///
/// As [`TdhGetWppMessage`]; `name` is NULL or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhGetWppProperty(
    handle: *mut c_void,
    event: *const EventRecord,
    name: *const u16,
    size: *mut u32,
    buffer: *mut u8,
) -> u32 {
    // SAFETY: by the contract.
    boundary::status(|| unsafe { message_property(handle, event, text(name, MAX_NAME), size, buffer) })
}

/// # Safety
///
/// As [`TdhGetWppMessage`].
unsafe fn message_property(
    handle: *mut c_void,
    event: *const EventRecord,
    name: Option<String>,
    size: *mut u32,
    buffer: *mut u8,
) -> Status {
    // SAFETY: by the contract.
    let (query, room) = unsafe { (read_query(event, 0, std::ptr::null()), Room::new(buffer, size)) };
    let (Some(query), Some(room), Some(name)) = (query, room, name) else {
        return Status::ERROR_INVALID_PARAMETER;
    };
    with_decoding(handle, |decoding| {
        if query.event.kind != LookupKind::Message {
            return Status::ERROR_NOT_FOUND;
        }
        let pointer =
            decoding.number(CONTEXT_POINTER_SIZE).and_then(pointer_size).unwrap_or(query.pointer_size);
        let is_gmt = decoding.number(CONTEXT_GMT) == Some(1);
        let display =
            MessageFacts { time: shown_time(query.time, is_gmt), pointer_size: pointer, sequence: None };
        room.answer(decoding.messages.property(&query.event, &display, &name))
    })
}
