//! tdh.h: decoding of events.
//!
//! ```text
//!   EVENT_RECORD ──event──▶ LookupEvent ──▶ Library (one per process) ──▶ the caller's buffer,
//!                                                                         or the required size
//! ```
//!
//! `traceweir_decode::tdh` makes the structures; this module handles addresses, sizes and handles.
//! Buffers and their sizes follow the published contract: for a buffer that is too small, the
//! function returns ERROR_INSUFFICIENT_BUFFER and the required size; otherwise the size that was
//! used.
//!
//! | File | Responsibility |
//! |---|---|
//! | `answer` | buffers and sizes, text from C |
//! | `event` | EVENT_RECORD and TDH_CONTEXT |
//! | `format` | TdhFormatProperty |
//! | `providers` | lists, manifests |
//! | `handle` | decoding handles, WPP messages |
//! | `filter` | payload filters |
//! | `table` | handles, which are never addresses |

mod answer;
mod event;
pub mod filter;
pub mod format;
pub mod handle;
pub mod providers;
mod table;

use std::mem::offset_of;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use traceweir::controller::is_privileged_by_file;
use traceweir::{EventDescriptor, Status};
use traceweir_decode::source::{LookupEvent, LookupKind};
use traceweir_decode::tdh::{Answer, FOLDERS_VARIABLE, Library, PropertyStep, QueryDecoder, Refusal};

use crate::consumer;
use crate::types::record::EventRecord;
use crate::types::tdh::{EventMapInfo, PropertyDataDescriptor, TdhContext, TraceEventInfo};
use crate::{boundary, ptr};
use answer::{OutputBuffer, read_utf16};
use event::{EventQuery, read_query};

/// The schemas that the process knows.
static LIBRARY: LazyLock<Mutex<Library>> = LazyLock::new(|| Mutex::new(open_installed_library()));

/// Returns a [`Library`] of the manifests in the folders that the environment variable
/// [`FOLDERS_VARIABLE`] lists, by default in the folders of installed manifests. A program with
/// more privileges than its caller ignores the variable.
fn open_installed_library() -> Library {
    let folders = std::env::var_os(FOLDERS_VARIABLE).filter(|_| !is_privileged_by_file());
    folders.map_or_else(Library::new, |list| Library::in_folders(std::env::split_paths(&list).collect()))
}

pub(crate) fn lock_library() -> MutexGuard<'static, Library> {
    // A panic leaves the `Library` consistent: schemas are added one by one.
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks about an event: first the schemas of the process, then those of the event's trace, then the
/// built-in ones.
#[inline]
fn ask_about_event<T>(
    event: &LookupEvent<'_>,
    mut question: impl FnMut(&mut QueryDecoder) -> Answer<T>,
) -> Answer<T> {
    let answer = question(lock_library().decoder_for(event));
    or_ask_trace(answer, question)
}

/// Returns the answer or, if the process has no schema, the answer of the event's trace or of the
/// built-in schemas.
#[inline]
fn or_ask_trace<T>(answer: Answer<T>, mut question: impl FnMut(&mut QueryDecoder) -> Answer<T>) -> Answer<T> {
    let is_missing = |answer: &Answer<T>| answer.as_ref().is_err_and(Refusal::is_missing_schema);
    if !is_missing(&answer) {
        return answer;
    }
    // If the trace refuses too, its refusal replaces this one: it may be more specific, such as a
    // payload that does not match its schema.
    let answer = consumer::ask_traces(&mut question).unwrap_or(answer);
    if is_missing(&answer) { question(lock_library().well_known()) } else { answer }
}

/// The most characters in the name of a property or map.
const MAX_NAME_CHARS: usize = 1 << 15;

impl boundary::IntoStatus for Answer<()> {
    fn into_status(self) -> Status {
        self.map_or_else(|refusal| refusal.status(), |()| Status::ERROR_SUCCESS)
    }
}

/// Returns the TRACE_EVENT_INFO of an event; [`Library::event_info`].
///
/// # Safety
///
/// Pointers are NULL or valid: `event` is a record whose addresses are valid, `context` has `count`
/// elements, `buffer` has `*size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhGetEventInformation(
    event: *const EventRecord,
    count: u32,
    context: *const TdhContext,
    buffer: *mut TraceEventInfo,
    size: *mut u32,
) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller guarantees that `event`, `context`, `buffer` and `size` are NULL or
        // valid.
        let (query, output) = unsafe { (read_query(event, count, context), OutputBuffer::new(buffer, size)) };
        let (Some(query), Some(output)) = (query, output) else { return Status::ERROR_INVALID_PARAMETER };
        let descriptor = query.event.descriptor;
        if query.event.kind == LookupKind::Message {
            return query.with_messages(|messages| {
                write_event_info(&output, messages.event_info(&query.event), &descriptor)
            });
        }
        let write = |bytes: &[u8]| {
            output.write(bytes, &[(offset_of!(TraceEventInfo, event_descriptor), &descriptor.to_bytes())])
        };
        let info = ask_about_event(&query.event, |queries| {
            queries.event_info(&query.event, query.pointer_size).map(|bytes| write(&bytes))
        });
        info.unwrap_or_else(|refusal| refusal.status())
    })
}

/// Stores a TRACE_EVENT_INFO with the descriptor of the event in it.
fn write_event_info(
    output: &OutputBuffer,
    info: Answer<impl AsRef<[u8]>>,
    descriptor: &EventDescriptor,
) -> Status {
    let bytes = match &info {
        Ok(bytes) => bytes.as_ref(),
        Err(refusal) => return refusal.status(),
    };
    output.write(bytes, &[(offset_of!(TraceEventInfo, event_descriptor), &descriptor.to_bytes())])
}

/// Calls `body` with the bytes of a property. `names` are those of [`read_names`].
fn with_property(
    query: &EventQuery<'_>,
    names: &[(String, Option<u32>)],
    body: impl FnOnce(&[u8]) -> Status,
) -> Status {
    if query.event.kind == LookupKind::Message {
        // A message has no structures, so its property has a single name.
        let [(name, _)] = names else { return Status::ERROR_INVALID_PARAMETER };
        return query.with_messages(|messages| {
            match messages.property(&query.event, &query.message_facts(), name) {
                Ok(bytes) => body(&bytes),
                Err(refusal) => refusal.status(),
            }
        });
    }
    let path: Vec<_> = names.iter().map(|(name, element)| PropertyStep { name, element: *element }).collect();
    let property =
        ask_about_event(&query.event, |queries| queries.property(&query.event, query.pointer_size, &path));
    match property {
        Ok(bytes) => body(bytes),
        Err(refusal) => refusal.status(),
    }
}

/// Reads the names that lead to a property: those of the structures that contain it, outermost
/// first, then its own. Each has the index of an array element, or none. Returns `None` for an
/// invalid name or number of names.
///
/// # Safety
///
/// `at` is NULL, or has `count` elements, whose names are NULL or end with a NUL.
unsafe fn read_names(count: u32, at: *const PropertyDataDescriptor) -> Option<Vec<(String, Option<u32>)>> {
    /// A property in at most eight nested structures.
    const MAX_STEPS: usize = 9;
    let count = usize::try_from(count).ok().filter(|count| (1..=MAX_STEPS).contains(count))?;
    // SAFETY: the caller guarantees that `at` is NULL or valid.
    let descriptors = unsafe { ptr::read_array(at, count) }?;
    let read_name = |descriptor: &PropertyDataDescriptor| {
        let address = std::ptr::with_exposed_provenance(usize::try_from(descriptor.property_name).ok()?);
        // SAFETY: the caller passes NULL or a text with a terminator as `address`.
        let name = unsafe { read_utf16(address, MAX_NAME_CHARS) }?;
        Some((name, (descriptor.array_index != u32::MAX).then_some(descriptor.array_index)))
    };
    descriptors.iter().map(read_name).collect()
}

/// Returns the size of a property; [`Library::property`].
///
/// # Safety
///
/// As [`TdhGetEventInformation`]; `properties` has `steps` elements, whose names end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhGetPropertySize(
    event: *const EventRecord,
    count: u32,
    context: *const TdhContext,
    steps: u32,
    properties: *const PropertyDataDescriptor,
    size: *mut u32,
) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller fulfils the `# Safety` section, and the two reads require no more.
        let (query, names) = unsafe { (read_query(event, count, context), read_names(steps, properties)) };
        let (Some(query), Some(names), false) = (query, names, size.is_null()) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        with_property(&query, &names, |bytes| {
            // SAFETY: the caller passes NULL or a writable `size`.
            unsafe { ptr::store(size, u32::try_from(bytes.len()).unwrap_or(u32::MAX)) };
            Status::ERROR_SUCCESS
        })
    })
}

/// Returns the bytes of a property; [`Library::property`].
///
/// # Safety
///
/// As [`TdhGetPropertySize`]; `buffer` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhGetProperty(
    event: *const EventRecord,
    count: u32,
    context: *const TdhContext,
    steps: u32,
    properties: *const PropertyDataDescriptor,
    mut size: u32,
    buffer: *mut u8,
) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller fulfils the `# Safety` section, and the two reads require no more.
        let (query, names) = unsafe { (read_query(event, count, context), read_names(steps, properties)) };
        // SAFETY: the caller guarantees that `buffer` has `size` bytes; `size` is a local variable.
        let output = unsafe { OutputBuffer::new(buffer, &raw mut size) };
        let (Some(query), Some(names), Some(output), false) = (query, names, output, buffer.is_null()) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        with_property(&query, &names, |bytes| output.write(bytes, &[]))
    })
}

/// Returns the EVENT_MAP_INFO of a map; [`Library::map`].
///
/// # Safety
///
/// As [`TdhGetEventInformation`]; `name` is NULL or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhGetEventMapInformation(
    event: *const EventRecord,
    name: *const u16,
    buffer: *mut EventMapInfo,
    size: *mut u32,
) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller guarantees that `event`, `buffer` and `size` are NULL or valid.
        let (query, output) =
            unsafe { (read_query(event, 0, std::ptr::null()), OutputBuffer::new(buffer, size)) };
        // SAFETY: the caller passes NULL or a text with a terminator as `name`.
        let (Some(query), Some(output), Some(name)) =
            (query, output, unsafe { read_utf16(name, MAX_NAME_CHARS) })
        else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        if query.event.kind == LookupKind::Message {
            return Refusal::NotFound("there is no map in a message").status();
        }
        let map = lock_library().map(&query.event, &name);
        output.write_answer(or_ask_trace(map, |queries| queries.map(&query.event, &name)))
    })
}
