//! tdh.h: decoding of events.
//!
//! ```text
//!   EVENT_RECORD ──event──▶ LookupEvent ──▶ Library (one per process) ──▶ the caller's buffer,
//!                                                                         or the required size
//! ```
//!
//! `traceweir_decode::tdh` makes the structures; this module handles addresses, sizes and handles.
//! Every buffer with its size keeps the published contract: for a buffer that is too small, the
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
use traceweir_decode::tdh::{Answer, Library, PropertyStep, QueryDecoder, Refusal};

use crate::consumer;
use crate::types::record::EventRecord;
use crate::types::tdh::{EventMapInfo, PropertyDataDescriptor, TdhContext, TraceEventInfo};
use crate::{boundary, ptr};
use answer::{Room, text};
use event::{EventQuery, read_query};

/// The schemas that the process knows.
static LIBRARY: LazyLock<Mutex<Library>> = LazyLock::new(|| Mutex::new(installed()));

/// Folders with manifests that replace the installed ones, separated by colons.
const FOLDERS_VARIABLE: &str = "TRACEWEIR_MANIFESTS";

/// Returns the library of installed manifests. A program with more privileges than its caller
/// ignores the caller's environment variable.
fn installed() -> Library {
    let folders = std::env::var_os(FOLDERS_VARIABLE).filter(|_| !is_privileged_by_file());
    folders.map_or_else(Library::new, |list| Library::in_folders(std::env::split_paths(&list).collect()))
}

pub(crate) fn library() -> MutexGuard<'static, Library> {
    // A panic leaves the library consistent: schemas are added one by one.
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks about an event: first the process's own schemas, then those of the event's trace.
#[inline]
fn ask<T>(event: &LookupEvent<'_>, mut question: impl FnMut(&mut QueryDecoder) -> Answer<T>) -> Answer<T> {
    let answer = question(library().queries(event));
    or_ask_trace(answer, question)
}

/// Returns the answer or, if the process has no schema, that of the event's trace.
#[inline]
fn or_ask_trace<T>(answer: Answer<T>, question: impl FnMut(&mut QueryDecoder) -> Answer<T>) -> Answer<T> {
    match answer {
        // A refusal of the trace adds nothing to this one, except for a payload that does not match
        // its schema.
        Err(refusal) if refusal.is_missing_schema() => consumer::ask_traces(question).unwrap_or(Err(refusal)),
        answer => answer,
    }
}

/// The most characters in a name.
const MAX_NAME: usize = 1 << 15;

impl boundary::Outcome for Answer<()> {
    fn status(self) -> Status {
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
    boundary::status(|| {
        // SAFETY: by the contract.
        let (query, room) = unsafe { (read_query(event, count, context), Room::new(buffer, size)) };
        let (Some(query), Some(room)) = (query, room) else { return Status::ERROR_INVALID_PARAMETER };
        let descriptor = query.event.descriptor;
        if query.event.kind == LookupKind::Message {
            return query.with_messages(|messages| {
                put_event_info(&room, messages.event_info(&query.event), &descriptor)
            });
        }
        let put = |bytes: &[u8]| {
            room.put(bytes, &[(offset_of!(TraceEventInfo, event_descriptor), &descriptor.to_bytes())])
        };
        let info = ask(&query.event, |queries| {
            queries.event_info(&query.event, query.pointer_size).map(|bytes| put(&bytes))
        });
        info.unwrap_or_else(|refusal| refusal.status())
    })
}

/// Stores a TRACE_EVENT_INFO with the descriptor of the event in it.
fn put_event_info(room: &Room, info: Answer<impl AsRef<[u8]>>, descriptor: &EventDescriptor) -> Status {
    let bytes = match &info {
        Ok(bytes) => bytes.as_ref(),
        Err(refusal) => return refusal.status(),
    };
    room.put(bytes, &[(offset_of!(TraceEventInfo, event_descriptor), &descriptor.to_bytes())])
}

/// Calls `body` with the bytes of a property.
fn with_property(
    query: &EventQuery<'_>,
    names: &[(String, Option<u32>)],
    body: impl FnOnce(&[u8]) -> Status,
) -> Status {
    if query.event.kind == LookupKind::Message {
        let [(name, _)] = names else { return Status::ERROR_INVALID_PARAMETER };
        return query.with_messages(|messages| {
            match messages.property(&query.event, &query.display(), name) {
                Ok(bytes) => body(&bytes),
                Err(refusal) => refusal.status(),
            }
        });
    }
    let path: Vec<_> = names.iter().map(|(name, element)| PropertyStep { name, element: *element }).collect();
    let found = ask(&query.event, |queries| queries.property(&query.event, query.pointer_size, &path));
    match found {
        Ok(bytes) => body(bytes),
        Err(refusal) => refusal.status(),
    }
}

/// Reads the names of a property and of the structures around it. Returns `None` if one is NULL or
/// too long.
///
/// # Safety
///
/// `at` is NULL, or has `count` elements, whose names are NULL or end with a NUL.
unsafe fn read_names(count: u32, at: *const PropertyDataDescriptor) -> Option<Vec<(String, Option<u32>)>> {
    /// Structures nest at most eight deep.
    const MAX_STEPS: usize = 9;
    let count = usize::try_from(count).ok().filter(|count| (1..=MAX_STEPS).contains(count))?;
    // SAFETY: by the contract.
    let descriptors = unsafe { ptr::array(at, count) }?;
    let read_name = |descriptor: &PropertyDataDescriptor| {
        let address = std::ptr::with_exposed_provenance(usize::try_from(descriptor.property_name).ok()?);
        // SAFETY: by the contract.
        let name = unsafe { text(address, MAX_NAME) }?;
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
    boundary::status(|| {
        // SAFETY: by the contract.
        let (query, names) = unsafe { (read_query(event, count, context), read_names(steps, properties)) };
        let (Some(query), Some(names), false) = (query, names, size.is_null()) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        with_property(&query, &names, |bytes| {
            // SAFETY: by the contract.
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
    boundary::status(|| {
        // SAFETY: by the contract.
        let (query, names) = unsafe { (read_query(event, count, context), read_names(steps, properties)) };
        // SAFETY: by the contract; the size is a local variable.
        let room = unsafe { Room::new(buffer, &raw mut size) };
        let (Some(query), Some(names), Some(room), false) = (query, names, room, buffer.is_null()) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        with_property(&query, &names, |bytes| room.put(bytes, &[]))
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
    boundary::status(|| {
        // SAFETY: by the contract.
        let (query, room) = unsafe { (read_query(event, 0, std::ptr::null()), Room::new(buffer, size)) };
        // SAFETY: by the contract.
        let (Some(query), Some(room), Some(name)) = (query, room, unsafe { text(name, MAX_NAME) }) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        if query.event.kind == LookupKind::Message {
            return Refusal::NotFound("map in a message").status();
        }
        let map = library().map(&query.event, &name);
        room.answer(or_ask_trace(map, |queries| queries.map(&query.event, &name)))
    })
}
