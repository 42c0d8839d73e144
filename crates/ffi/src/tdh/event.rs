//! EVENT_RECORD and TDH_CONTEXT as the decoder takes them.

use std::sync::{LazyLock, Mutex, PoisonError};

use traceweir::Status;
use traceweir_decode::source::{Event, EventKind};
use traceweir_decode::tdh::{Answer, Messages, Said};
use traceweir_format::spec::event::{
    EVENT_HEADER_FLAG_32_BIT_HEADER, EVENT_HEADER_FLAG_CLASSIC_HEADER, EVENT_HEADER_FLAG_STRING_ONLY,
    EVENT_HEADER_FLAG_TRACE_MESSAGE, ExtType,
};
use traceweir_format::time::{FileTime, UNITS_PER_SECOND, UNIX_EPOCH};

use super::answer::text;
use crate::ptr;
use crate::text::MAX_PATH_UNITS;
use crate::types::record::EventRecord;
use crate::types::tdh::TdhContext;

pub(super) const CONTEXT_TMF_FILE: u32 = 0;
pub(super) const CONTEXT_TMF_SEARCH_PATH: u32 = 1;
pub(super) const CONTEXT_GMT: u32 = 2;
pub(super) const CONTEXT_POINTER_SIZE: u32 = 3;
pub(super) const CONTEXT_PDB_PATH: u32 = 4;
/// Types of contexts.
pub(super) const CONTEXTS: usize = 5;

/// An event that somebody asks about, with what they say besides.
pub(super) struct Asked<'p> {
    pub(super) event: Event<'p>,
    pub(super) pointer_size: usize,
    pub(super) time: i64,
    /// Times are shown as UTC.
    pub(super) is_gmt: bool,
    /// Where message formats are: type and path.
    paths: Vec<(u32, String)>,
}

/// Message formats of the paths that were named last.
#[derive(Default)]
struct Last {
    paths: Vec<(u32, String)>,
    messages: Messages,
}

/// What a record and its contexts say; `None` where either is wrong.
///
/// # Safety
///
/// Pointers are NULL or valid, those in the record among them; `context` has `count` elements. What they point to stays as it is for `'p`.
pub(super) unsafe fn asked<'p>(
    event: *const EventRecord,
    count: u32,
    context: *const TdhContext,
) -> Option<Asked<'p>> {
    // SAFETY: by the contract.
    let record = unsafe { ptr::copied(event) }?;
    let header = &record.event_header;
    let kind = match header.flags {
        flags if flags & EVENT_HEADER_FLAG_TRACE_MESSAGE != 0 => EventKind::Message,
        flags if flags & EVENT_HEADER_FLAG_CLASSIC_HEADER != 0 => EventKind::Classic,
        _ => EventKind::Described,
    };
    let mut event = Event {
        kind,
        provider: header.provider_id,
        descriptor: header.event_descriptor,
        string_only: header.flags & EVENT_HEADER_FLAG_STRING_ONLY != 0,
        // SAFETY: by the contract.
        payload: unsafe {
            ptr::array(record.user_data.cast_const().cast(), usize::from(record.user_data_length))
        }?,
        ..Event::default()
    };
    // SAFETY: by the contract.
    let items =
        unsafe { ptr::array(record.extended_data.cast_const(), usize::from(record.extended_data_count)) }?;
    for item in items {
        if matches!(
            ExtType(item.ext_type),
            ExtType::PROV_TRAITS | ExtType::EVENT_SCHEMA_TL | ExtType::CONTROL_GUID
        ) {
            // SAFETY: by the contract.
            let data = unsafe { ptr::bytes_at(item.data_ptr, item.data_size.into()) }?;
            event.take_item(ExtType(item.ext_type), data);
        }
    }
    let pointer_size = if header.flags & EVENT_HEADER_FLAG_32_BIT_HEADER != 0 { 4 } else { 8 };
    let mut asked = Asked { event, pointer_size, time: header.time_stamp, is_gmt: false, paths: Vec::new() };
    // SAFETY: by the contract.
    unsafe { asked.take_contexts(count, context) }?;
    Some(asked)
}

impl Asked<'_> {
    /// # Safety
    ///
    /// As [`asked`].
    unsafe fn take_contexts(&mut self, count: u32, context: *const TdhContext) -> Option<()> {
        let count = usize::try_from(count).ok().filter(|count| *count <= CONTEXTS)?;
        let mut met = [false; CONTEXTS];
        // SAFETY: by the contract.
        for one in unsafe { ptr::array(context, count) }? {
            let met = met.get_mut(usize::try_from(one.parameter_type).ok()?)?;
            if std::mem::replace(met, true) {
                return None;
            }
            match one.parameter_type {
                CONTEXT_GMT => self.is_gmt = one.parameter_value != 0,
                CONTEXT_POINTER_SIZE => self.pointer_size = pointer_size(one.parameter_value)?,
                // SAFETY: by the contract.
                kind => self.paths.push((kind, unsafe { text_at(one.parameter_value) }?)),
            }
        }
        Some(())
    }

    /// What a message is asked about with.
    pub(super) fn said(&self) -> Said {
        Said { time: shown_time(self.time, self.is_gmt), pointer_size: self.pointer_size, sequence: None }
    }

    /// Calls with the formats of messages that the contexts name; those that were named last are kept.
    pub(super) fn with_messages(&self, body: impl FnOnce(&mut Messages) -> Status) -> Status {
        static LAST: LazyLock<Mutex<Last>> = LazyLock::new(Mutex::default);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if last.paths != self.paths {
            let mut messages = Messages::default();
            for (kind, path) in &self.paths {
                if let Err(refusal) = add_path(&mut messages, *kind, path) {
                    return refusal.status();
                }
            }
            *last = Last { paths: self.paths.clone(), messages };
        }
        body(&mut last.messages)
    }
}

/// Adds a file or a search path of message formats.
pub(super) fn add_path(messages: &mut Messages, kind: u32, path: &str) -> Answer<()> {
    match kind {
        CONTEXT_TMF_FILE => messages.add_tmf(path.as_ref()),
        CONTEXT_PDB_PATH => messages.add_pdb(path.as_ref()),
        _ => {
            messages.add_search_path(path);
            Ok(())
        }
    }
}

/// The text at an address that a structure holds as a number.
///
/// # Safety
///
/// It is 0, or there are characters up to a NUL.
pub(super) unsafe fn text_at(address: u64) -> Option<String> {
    let at = std::ptr::with_exposed_provenance(usize::try_from(address).ok()?);
    // SAFETY: by the contract.
    unsafe { text(at, MAX_PATH_UNITS) }
}

/// The bytes of a pointer; there are two kinds.
pub(super) fn pointer_size(value: u64) -> Option<usize> {
    usize::try_from(value).ok().filter(|size| matches!(size, 4 | 8))
}

/// A time as it is shown: in UTC, or as clocks on the wall have it.
pub(super) fn shown_time(time: i64, is_gmt: bool) -> FileTime {
    let seconds = time.saturating_sub(UNIX_EPOCH).div_euclid(UNITS_PER_SECOND);
    let offset = if is_gmt { 0 } else { wall_offset(seconds) };
    FileTime(time.saturating_add(offset.saturating_mul(UNITS_PER_SECOND)))
}

/// By how many seconds clocks on the wall are ahead of UTC.
fn wall_offset(seconds: i64) -> i64 {
    // SAFETY: numbers and a pointer that may be NULL.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both are valid and our own.
    let made = unsafe { libc::localtime_r(&seconds, &mut parts) };
    if made.is_null() { 0 } else { parts.tm_gmtoff }
}
