//! EVENT_RECORD and TDH_CONTEXT in the form that the decoder takes.

use std::sync::{LazyLock, Mutex, PoisonError};

use traceweir::Status;
use traceweir_decode::source::{LookupEvent, LookupKind};
use traceweir_decode::tdh::{Answer, MessageFacts, WppMessages};
use traceweir_format::spec::event::{
    EVENT_HEADER_FLAG_32_BIT_HEADER, EVENT_HEADER_FLAG_CLASSIC_HEADER, EVENT_HEADER_FLAG_PROCESSOR_INDEX,
    EVENT_HEADER_FLAG_STRING_ONLY, EVENT_HEADER_FLAG_TRACE_MESSAGE, ExtType,
};
use traceweir_format::time::{FileTime, UNITS_PER_SECOND, UNIX_EPOCH_AS_FILETIME};
use traceweir_format::wire::u32_at;

use super::answer::read_utf16;
use crate::ptr;
use crate::text::MAX_PATH_UNITS;
use crate::types::record::EventRecord;
use crate::types::tdh::TdhContext;

// Values of the enumeration TDH_CONTEXT_TYPE.
pub(super) const CONTEXT_TMF_FILE: u32 = 0;
pub(super) const CONTEXT_TMF_SEARCH_PATH: u32 = 1;
pub(super) const CONTEXT_GMT: u32 = 2;
pub(super) const CONTEXT_POINTER_SIZE: u32 = 3;
pub(super) const CONTEXT_PDB_PATH: u32 = 4;
/// The number of context types.
pub(super) const CONTEXT_TYPE_COUNT: usize = 5;

/// An event that a caller asks about, with the options of the call.
pub(super) struct EventQuery<'p> {
    pub(super) event: LookupEvent<'p>,
    pub(super) pointer_size: usize,
    /// What the header says about a message.
    facts: MessageFacts,
    /// Whether times are shown in UTC.
    pub(super) is_gmt: bool,
    /// The locations of message formats: context type and path.
    paths: Vec<(u32, String)>,
}

/// The message formats of the most recent query, and the paths from which they were read.
#[derive(Default)]
struct LastMessages {
    paths: Vec<(u32, String)>,
    messages: WppMessages,
}

/// Reads a record and its contexts. Returns `None` if either is invalid.
///
/// # Safety
///
/// Pointers are NULL or valid, including those in the record; `context` has `count` elements. The
/// memory that they point to does not change for `'p`.
pub(super) unsafe fn read_query<'p>(
    event: *const EventRecord,
    count: u32,
    context: *const TdhContext,
) -> Option<EventQuery<'p>> {
    // SAFETY: the caller passes NULL or a readable `event`.
    let record = unsafe { ptr::read_value(event) }?;
    let header = &record.event_header;
    let kind = match header.flags {
        flags if flags & EVENT_HEADER_FLAG_TRACE_MESSAGE != 0 => LookupKind::Message,
        flags if flags & EVENT_HEADER_FLAG_CLASSIC_HEADER != 0 => LookupKind::Classic,
        _ => LookupKind::Described,
    };
    let mut event = LookupEvent {
        kind,
        provider: header.provider_id,
        descriptor: header.event_descriptor,
        string_only: header.flags & EVENT_HEADER_FLAG_STRING_ONLY != 0,
        // SAFETY: the caller guarantees that `record.user_data` is NULL or valid.
        payload: unsafe {
            ptr::read_array(record.user_data.cast_const().cast(), usize::from(record.user_data_length))
        }?,
        ..LookupEvent::default()
    };
    // SAFETY: the caller guarantees that `record.extended_data` is NULL or valid.
    let items = unsafe {
        ptr::read_array(record.extended_data.cast_const(), usize::from(record.extended_data_count))
    }?;
    let mut facts = message_facts(&record);
    for item in items {
        let kind = ExtType(item.ext_type);
        if matches!(
            kind,
            ExtType::PROV_TRAITS | ExtType::EVENT_SCHEMA_TL | ExtType::CONTROL_GUID | ExtType::INSTANCE_INFO
        ) {
            // SAFETY: the caller passes NULL or a readable `item.data_ptr`.
            let data = unsafe { ptr::read_bytes_at(item.data_ptr, item.data_size.into()) }?;
            event.take_item(kind, data);
            if kind == ExtType::INSTANCE_INFO {
                facts.sequence = u32_at(data, 0);
            }
        }
    }
    facts.control_guid = event.control.unwrap_or_default();
    let pointer_size = if header.flags & EVENT_HEADER_FLAG_32_BIT_HEADER != 0 { 4 } else { 8 };
    let mut query = EventQuery { event, pointer_size, facts, is_gmt: false, paths: Vec::new() };
    // SAFETY: the caller fulfils the `# Safety` section; `read_contexts` requires no more.
    unsafe { query.read_contexts(count, context) }?;
    Some(query)
}

/// Returns what the header of a record says about a message. Its sequence number and the provider
/// through which it was enabled are in extended data items.
fn message_facts(record: &EventRecord) -> MessageFacts {
    let header = &record.event_header;
    let index = record.buffer_context.processor_index;
    MessageFacts {
        time: FileTime(header.time_stamp),
        version: header.event_descriptor.version,
        thread_id: header.thread_id,
        process_id: header.process_id,
        processor: if header.flags & EVENT_HEADER_FLAG_PROCESSOR_INDEX != 0 { index } else { index & 0xFF },
        user_ticks: header.user_time,
        kernel_ticks: header.kernel_time,
        ..MessageFacts::default()
    }
}

impl EventQuery<'_> {
    /// Sets the options that the contexts contain. Returns `None` for an invalid context or two of
    /// one type.
    ///
    /// # Safety
    ///
    /// As [`read_query`].
    unsafe fn read_contexts(&mut self, count: u32, context: *const TdhContext) -> Option<()> {
        let count = usize::try_from(count).ok().filter(|count| *count <= CONTEXT_TYPE_COUNT)?;
        let mut parameters_set = [false; CONTEXT_TYPE_COUNT];
        // SAFETY: the caller guarantees that `context` is NULL or valid.
        for context in unsafe { ptr::read_array(context, count) }? {
            let is_set = parameters_set.get_mut(usize::try_from(context.parameter_type).ok()?)?;
            if std::mem::replace(is_set, true) {
                return None;
            }
            match context.parameter_type {
                CONTEXT_GMT => self.is_gmt = context.parameter_value != 0,
                CONTEXT_POINTER_SIZE => self.pointer_size = check_pointer_size(context.parameter_value)?,
                // SAFETY: the caller guarantees that the value is 0 or the address of a text with a
                // terminator.
                kind => self.paths.push((kind, unsafe { text_at(context.parameter_value) }?)),
            }
        }
        Some(())
    }

    /// Returns what the header says about a message, with the pointer size and the time zone that
    /// the options select.
    pub(super) fn message_facts(&self) -> MessageFacts {
        MessageFacts {
            display_time: display_time(self.facts.time, self.is_gmt),
            pointer_size: self.pointer_size,
            ..self.facts
        }
    }

    /// Calls `body` with the message formats that the contexts name. The most recent ones are
    /// cached.
    pub(super) fn with_messages(&self, body: impl FnOnce(&mut WppMessages) -> Status) -> Status {
        static LAST: LazyLock<Mutex<LastMessages>> = LazyLock::new(Mutex::default);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if last.paths != self.paths {
            let mut messages = WppMessages::default();
            for (kind, path) in &self.paths {
                if let Err(refusal) = add_path(&mut messages, *kind, path) {
                    return refusal.status();
                }
            }
            *last = LastMessages { paths: self.paths.clone(), messages };
        }
        body(&mut last.messages)
    }
}

/// Adds a file or a search path of message formats.
pub(super) fn add_path(messages: &mut WppMessages, kind: u32, path: &str) -> Answer<()> {
    match kind {
        CONTEXT_TMF_FILE => messages.add_tmf(path.as_ref()),
        CONTEXT_PDB_PATH => messages.add_pdb(path.as_ref()),
        _ => {
            messages.add_search_path(path);
            Ok(())
        }
    }
}

/// Reads the text at an address that a structure holds as a number.
///
/// # Safety
///
/// `address` is 0, or the address of characters that end with a NUL.
pub(super) unsafe fn text_at(address: u64) -> Option<String> {
    let at = std::ptr::with_exposed_provenance(usize::try_from(address).ok()?);
    // SAFETY: the caller passes NULL or a text with a terminator as `at`.
    unsafe { read_utf16(at, MAX_PATH_UNITS) }
}

/// Returns the size of a pointer if it is valid: 4 or 8 bytes.
pub(super) fn check_pointer_size(value: u64) -> Option<usize> {
    usize::try_from(value).ok().filter(|size| matches!(size, 4 | 8))
}

/// Converts a time for display: to UTC, or to local time.
fn display_time(time: FileTime, is_gmt: bool) -> FileTime {
    let FileTime(time) = time;
    let seconds = time.saturating_sub(UNIX_EPOCH_AS_FILETIME).div_euclid(UNITS_PER_SECOND);
    let offset = if is_gmt { 0 } else { local_offset_seconds(seconds) };
    FileTime(time.saturating_add(offset.saturating_mul(UNITS_PER_SECOND)))
}

/// Returns by how many seconds local time is ahead of UTC at a Unix time.
fn local_offset_seconds(seconds: i64) -> i64 {
    // SAFETY: the structure consists of numbers and a pointer that may be NULL.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both addresses are of local variables.
    let converted = unsafe { libc::localtime_r(&seconds, &mut parts) };
    if converted.is_null() { 0 } else { parts.tm_gmtoff }
}
