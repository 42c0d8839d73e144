//! tdh.h: what events mean.
//!
//! ```text
//!   EVENT_RECORD ──event──▶ Event ──▶ Library (one for the process) ──answer──▶ the caller's buffer, or the size that it needs
//! ```
//!
//! Structures are made by `traceweir_decode::tdh`; here are addresses, sizes and handles. Every pair of a buffer and its size keeps the published contract: a
//! buffer that is too small gets ERROR_INSUFFICIENT_BUFFER and the size, one that is not gets the size that was used.
//!
//! | File | What it knows |
//! |---|---|
//! | `answer` | buffers and sizes, texts from C |
//! | `event` | EVENT_RECORD and TDH_CONTEXT |
//! | `format` | TdhFormatProperty |
//! | `providers` | lists, manifests |
//! | `handle` | decoding handles, WPP messages |
//! | `filter` | payload filters |
//! | `table` | handles that are never addresses |

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
use traceweir_decode::Decoder;
use traceweir_decode::source::{Event, EventKind};
use traceweir_decode::tdh::{Answer, Library, Refusal, Wanted};

use crate::consumer::schemas;
use crate::types::record::EventRecord;
use crate::types::tdh::{EventMapInfo, PropertyDataDescriptor, TdhContext, TraceEventInfo};
use crate::{boundary, ptr};
use answer::{Room, text};
use event::{Asked, asked};

/// What the process knows of providers.
static LIBRARY: LazyLock<Mutex<Library>> = LazyLock::new(|| Mutex::new(installed()));

/// Other folders with manifests than those where they are installed, separated by colons.
const FOLDERS_VARIABLE: &str = "TRACEWEIR_MANIFESTS";

/// What is installed: for a program that has more rights than its caller, never where the caller says.
fn installed() -> Library {
    let given = std::env::var_os(FOLDERS_VARIABLE).filter(|_| !is_privileged_by_file());
    given.map_or_else(Library::new, |list| Library::in_folders(std::env::split_paths(&list).collect()))
}

pub(crate) fn library() -> MutexGuard<'static, Library> {
    // What a panic left behind is whole: schemas are added one by one.
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks about an event: what the process knows, and where that is nothing, what the event's trace says.
#[inline]
fn ask<T>(event: &Event<'_>, mut question: impl FnMut(&mut Decoder) -> Answer<T>) -> Answer<T> {
    let answer = question(library().decoder(event));
    or_of_its_trace(answer, question)
}

/// The answer, or that of the event's trace where there is none.
#[inline]
fn or_of_its_trace<T>(answer: Answer<T>, question: impl FnMut(&mut Decoder) -> Answer<T>) -> Answer<T> {
    match answer {
        // A refusal of the trace says no more than this one, but for a payload that its schema does not fit.
        Err(refusal) if refusal.is_ignorance() => schemas::ask(question).unwrap_or(Err(refusal)),
        answer => answer,
    }
}

/// The most characters of a name.
const MAX_NAME: usize = 1 << 15;

impl boundary::Outcome for Answer<()> {
    fn status(self) -> Status {
        self.map_or_else(|refusal| refusal.status(), |()| Status::ERROR_SUCCESS)
    }
}

/// TRACE_EVENT_INFO of an event; [`Library::event_info`].
///
/// # Safety
///
/// Pointers are NULL or valid: `event` is a record whose addresses are valid, `context` has `count` elements, `buffer` has `*size` bytes.
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
        let (asked, room) = unsafe { (asked(event, count, context), Room::new(buffer, size)) };
        let (Some(asked), Some(room)) = (asked, room) else { return Status::ERROR_INVALID_PARAMETER };
        let descriptor = asked.event.descriptor;
        if asked.event.kind == EventKind::Message {
            return asked
                .with_messages(|messages| described(&room, messages.event_info(&asked.event), &descriptor));
        }
        let put = |bytes: &[u8]| {
            room.put(bytes, &[(offset_of!(TraceEventInfo, event_descriptor), &descriptor.to_bytes())])
        };
        let info = ask(&asked.event, |decoder| {
            decoder.event_info(&asked.event, asked.pointer_size).map(|bytes| put(&bytes))
        });
        info.unwrap_or_else(|refusal| refusal.status())
    })
}

/// Answers with TRACE_EVENT_INFO and puts the descriptor in.
fn described(room: &Room, info: Answer<impl AsRef<[u8]>>, descriptor: &EventDescriptor) -> Status {
    let bytes = match &info {
        Ok(bytes) => bytes.as_ref(),
        Err(refusal) => return refusal.status(),
    };
    room.put(bytes, &[(offset_of!(TraceEventInfo, event_descriptor), &descriptor.to_bytes())])
}

/// The bytes of a property.
fn bytes_of(
    asked: &Asked<'_>,
    names: &[(String, Option<u32>)],
    give: impl FnOnce(&[u8]) -> Status,
) -> Status {
    if asked.event.kind == EventKind::Message {
        let [(name, _)] = names else { return Status::ERROR_INVALID_PARAMETER };
        return asked.with_messages(|messages| match messages.property(&asked.event, &asked.said(), name) {
            Ok(bytes) => give(&bytes),
            Err(refusal) => refusal.status(),
        });
    }
    let wanted: Vec<_> = names.iter().map(|(name, element)| Wanted { name, element: *element }).collect();
    let found = ask(&asked.event, |decoder| decoder.property(&asked.event, asked.pointer_size, &wanted));
    match found {
        Ok(bytes) => give(bytes),
        Err(refusal) => refusal.status(),
    }
}

/// The names of a property and its structures; `None` if one is NULL or endless.
///
/// # Safety
///
/// `at` is NULL, or has `count` elements, whose names are NULL or end with a NUL.
unsafe fn names_of(count: u32, at: *const PropertyDataDescriptor) -> Option<Vec<(String, Option<u32>)>> {
    /// Structures nest at most eight deep.
    const MAX_STEPS: usize = 9;
    let count = usize::try_from(count).ok().filter(|count| (1..=MAX_STEPS).contains(count))?;
    // SAFETY: by the contract.
    let described = unsafe { ptr::array(at, count) }?;
    let name = |one: &PropertyDataDescriptor| {
        let address = std::ptr::with_exposed_provenance(usize::try_from(one.property_name).ok()?);
        // SAFETY: by the contract.
        let name = unsafe { text(address, MAX_NAME) }?;
        Some((name, (one.array_index != u32::MAX).then_some(one.array_index)))
    };
    described.iter().map(name).collect()
}

/// The size of a property; [`Library::property`].
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
        let (asked, names) = unsafe { (asked(event, count, context), names_of(steps, properties)) };
        let (Some(asked), Some(names), false) = (asked, names, size.is_null()) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        bytes_of(&asked, &names, |bytes| {
            // SAFETY: by the contract.
            unsafe { ptr::store(size, u32::try_from(bytes.len()).unwrap_or(u32::MAX)) };
            Status::ERROR_SUCCESS
        })
    })
}

/// The bytes of a property; [`Library::property`].
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
        let (asked, names) = unsafe { (asked(event, count, context), names_of(steps, properties)) };
        // SAFETY: by the contract; the size is our own.
        let room = unsafe { Room::new(buffer, &raw mut size) };
        let (Some(asked), Some(names), Some(room), false) = (asked, names, room, buffer.is_null()) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        bytes_of(&asked, &names, |bytes| room.put(bytes, &[]))
    })
}

/// EVENT_MAP_INFO of a map; [`Library::map`].
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
        let (asked, room) = unsafe { (asked(event, 0, std::ptr::null()), Room::new(buffer, size)) };
        // SAFETY: by the contract.
        let (Some(asked), Some(room), Some(name)) = (asked, room, unsafe { text(name, MAX_NAME) }) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        if asked.event.kind == EventKind::Message {
            return Refusal::NotFound("map in a message").status();
        }
        let map = library().map(&asked.event, &name);
        room.answer(or_of_its_trace(map, |decoder| decoder.map(&asked.event, &name)))
    })
}
