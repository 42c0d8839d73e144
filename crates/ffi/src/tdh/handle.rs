//! Decoding handles: WPP message formats, and options that decide how messages are shown.

use std::ffi::c_void;

use traceweir::Status;
use traceweir_decode::source::LookupKind;
use traceweir_decode::tdh::{MessageFacts, WppMessages};

use super::answer::{OutputBuffer, read_utf16};
use super::event::{
    CONTEXT_GMT, CONTEXT_PDB_PATH, CONTEXT_POINTER_SIZE, CONTEXT_TMF_FILE, CONTEXT_TMF_SEARCH_PATH,
    CONTEXT_TYPE_COUNT, add_path, check_pointer_size, display_time, read_query, text_at,
};
use super::table::HandleTable;
use super::{MAX_NAME_CHARS, format};
use crate::types::record::EventRecord;
use crate::types::tdh::TdhContext;
use crate::{boundary, ptr};

static DECODING_HANDLES: HandleTable<DecodingState> = HandleTable::new();

/// The message formats and options of a handle.
#[derive(Debug, Default)]
struct DecodingState {
    messages: WppMessages,
    parameters: [Option<DecodingParameter>; CONTEXT_TYPE_COUNT],
}

#[derive(Clone, Debug)]
enum DecodingParameter {
    Number(u64),
    Text(String),
}

impl DecodingState {
    fn number_parameter(&self, kind: u32) -> Option<u64> {
        match self.parameters.get(kind as usize)? {
            Some(DecodingParameter::Number(number)) => Some(*number),
            _ => None,
        }
    }

    fn set_parameter(&mut self, kind: u32, parameter: DecodingParameter) -> Status {
        if let DecodingParameter::Text(path) = &parameter
            && let Err(refusal) = add_path(&mut self.messages, kind, path)
        {
            return refusal.status();
        }
        match self.parameters.get_mut(kind as usize) {
            Some(slot) => *slot = Some(parameter),
            None => return Status::ERROR_INVALID_PARAMETER,
        }
        Status::ERROR_SUCCESS
    }
}

fn with_decoding(handle: *mut c_void, body: impl FnOnce(&mut DecodingState) -> Status) -> Status {
    if handle.is_null() {
        return Status::ERROR_INVALID_PARAMETER;
    }
    DECODING_HANDLES.with_entry(handle.addr(), body).unwrap_or(Status::ERROR_INVALID_HANDLE)
}

/// Opens a decoding handle.
///
/// # Safety
///
/// `handle` is NULL, or a handle can be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhOpenDecodingHandle(handle: *mut *mut c_void) -> u32 {
    boundary::to_status(|| {
        if handle.is_null() {
            return Status::ERROR_INVALID_PARAMETER;
        }
        match DECODING_HANDLES.add(DecodingState::default()) {
            Ok(opened) => {
                // SAFETY: the caller passes NULL or a writable `handle`.
                unsafe { ptr::store(handle, std::ptr::without_provenance_mut(opened)) };
                Status::ERROR_SUCCESS
            }
            Err(status) => status,
        }
    })
}

/// Closes a decoding handle.
#[unsafe(no_mangle)]
pub extern "C" fn TdhCloseDecodingHandle(handle: *mut c_void) -> u32 {
    boundary::to_status(|| match DECODING_HANDLES.remove(handle.addr()) {
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
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or a readable `context`.
        let Some(context) = (unsafe { ptr::read_value(context) }) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        let value = context.parameter_value;
        let parameter = match context.parameter_type {
            CONTEXT_GMT => Some(DecodingParameter::Number(u64::from(value != 0))),
            CONTEXT_POINTER_SIZE => check_pointer_size(value).map(|_| DecodingParameter::Number(value)),
            CONTEXT_TMF_FILE | CONTEXT_TMF_SEARCH_PATH | CONTEXT_PDB_PATH => {
                // SAFETY: the caller passes NULL or a text with a terminator as `value`.
                unsafe { text_at(value) }.filter(|path| !path.is_empty()).map(DecodingParameter::Text)
            }
            _ => None,
        };
        let Some(parameter) = parameter else { return Status::ERROR_INVALID_PARAMETER };
        with_decoding(handle, |decoding| decoding.set_parameter(context.parameter_type, parameter))
    })
}

/// Returns an option of a handle: a number in the context itself, a text in the buffer whose
/// address and size in bytes the context contains.
///
/// # Safety
///
/// `context` is NULL or valid; the buffer that it names has as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhGetDecodingParameter(handle: *mut c_void, context: *mut TdhContext) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or a readable `context`.
        let Some(mut parameter) = (unsafe { ptr::read_value(context.cast_const()) }) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        if parameter.parameter_type as usize >= CONTEXT_TYPE_COUNT {
            return Status::ERROR_INVALID_PARAMETER;
        }
        let mut stored = None;
        let status = with_decoding(handle, |decoding| {
            stored = decoding.parameters.get(parameter.parameter_type as usize).cloned().flatten();
            Status::ERROR_SUCCESS
        });
        if status != Status::ERROR_SUCCESS {
            return status;
        }
        let status = match stored {
            None => return Status::ERROR_NOT_FOUND,
            Some(DecodingParameter::Number(number)) => {
                let bytes = if parameter.parameter_type == CONTEXT_GMT { 1 } else { 4 };
                (parameter.parameter_value, parameter.parameter_size) = (number, bytes);
                Status::ERROR_SUCCESS
            }
            Some(DecodingParameter::Text(path)) => {
                let Ok(address) = usize::try_from(parameter.parameter_value) else {
                    return Status::ERROR_INVALID_PARAMETER;
                };
                let buffer = std::ptr::with_exposed_provenance_mut::<u8>(address);
                // SAFETY: the caller guarantees that the buffer has the size in `parameter`.
                let Some(output) = (unsafe { OutputBuffer::new(buffer, &raw mut parameter.parameter_size) })
                else {
                    return Status::ERROR_INVALID_PARAMETER;
                };
                output.write(&format::encode_utf16_bytes(&path), &[])
            }
        };
        // SAFETY: the caller passes NULL or a writable `context`.
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
    boundary::to_status(|| {
        let name = Some("FormattedString".to_owned());
        // SAFETY: the caller fulfils the `# Safety` section; `store_message_property` requires no
        // more.
        unsafe { store_message_property(handle, event, name, size, buffer) }
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
    // SAFETY: the caller fulfils the `# Safety` section; the two functions require no more.
    boundary::to_status(|| unsafe {
        store_message_property(handle, event, read_utf16(name, MAX_NAME_CHARS), size, buffer)
    })
}

/// Stores a property of a message, shown with the options of a handle.
///
/// # Safety
///
/// As [`TdhGetWppMessage`].
unsafe fn store_message_property(
    handle: *mut c_void,
    event: *const EventRecord,
    name: Option<String>,
    size: *mut u32,
    buffer: *mut u8,
) -> Status {
    // SAFETY: the caller guarantees that `event`, `buffer` and `size` are NULL or valid.
    let (query, output) =
        unsafe { (read_query(event, 0, std::ptr::null()), OutputBuffer::new(buffer, size)) };
    let (Some(query), Some(output), Some(name)) = (query, output, name) else {
        return Status::ERROR_INVALID_PARAMETER;
    };
    with_decoding(handle, |decoding| {
        if query.event.kind != LookupKind::Message {
            return Status::ERROR_NOT_FOUND;
        }
        let pointer_size = decoding
            .number_parameter(CONTEXT_POINTER_SIZE)
            .and_then(check_pointer_size)
            .unwrap_or(query.pointer_size);
        let is_gmt = decoding.number_parameter(CONTEXT_GMT) == Some(1);
        let facts = MessageFacts { time: display_time(query.time, is_gmt), pointer_size, sequence: None };
        output.write_answer(decoding.messages.property(&query.event, &facts, &name))
    })
}
