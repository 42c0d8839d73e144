//! Writing of events through EventWriteTransfer and its relatives.
#![allow(unsafe_code)]

use std::ptr;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;

use super::event::{Block, Blocks, CallerEvent, CallerPayload, MAX_BLOCKS};
use super::functions::{EventWriteEx, EventWriteString, EventWriteTransfer};
use super::registration::SlotRef;
use crate::error::WriteError;

/// Maximum number of data descriptors of an event: one for its metadata, the others for its
/// payload.
const MAX_DESCRIPTORS: usize = MAX_BLOCKS + 1;

/// The arguments that only EventWriteEx has.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    excluded: u64,
    flags: u32,
}

impl Options {
    /// Takes over the arguments of EventWriteEx, which Windows checks.
    #[inline(always)]
    pub(crate) fn from_write_ex(sessions: u64, flags: u32) -> Result<Self, WriteError> {
        Ok(Self { excluded: sessions, flags })
    }
}

/// Writes an event that passed level and keyword.
#[inline(always)]
pub(crate) fn write(slot: SlotRef, event: &CallerEvent<'_>) -> Result<(), WriteError> {
    with_descriptors(event, |count, data| {
        let (activity, related) = (to_pointer(event.activity), to_pointer(event.related));
        // SAFETY: the descriptor and the ids live during the call; `data` has `count` descriptors
        // of memory that the event borrows.
        unsafe { EventWriteTransfer(slot.0, event.descriptor, activity, related, count, data) }
    })
}

/// Writes an event that passed level and keyword and has nothing but a descriptor and a payload.
#[inline(always)]
pub(crate) fn write_plain(
    slot: SlotRef,
    descriptor: &EventDescriptor,
    data: &[&[u8]],
) -> Result<(), WriteError> {
    write(slot, &CallerEvent::new(descriptor, data))
}

/// Writes a self-describing event, which has passed level and keyword and has no activity ids.
#[inline(always)]
pub(crate) fn write_described(
    slot: SlotRef,
    descriptor: &EventDescriptor,
    metadata: &[u8],
    payload: Blocks<'_>,
) -> Result<(), WriteError> {
    let event =
        CallerEvent { metadata: Some(metadata), ..CallerEvent::from_blocks(descriptor, payload.as_slice()) };
    write(slot, &event)
}

/// Writes an event with the options of EventWriteEx.
pub(crate) fn write_excluding(
    slot: SlotRef,
    event: &CallerEvent<'_>,
    options: &Options,
) -> Result<(), WriteError> {
    let Options { excluded, flags } = *options;
    with_descriptors(event, |count, data| {
        let (activity, related) = (to_pointer(event.activity), to_pointer(event.related));
        // SAFETY: as in `write`.
        unsafe { EventWriteEx(slot.0, event.descriptor, excluded, flags, activity, related, count, data) }
    })
}

/// Writes a text as an event. A NUL ends the text.
pub(crate) fn write_string(slot: SlotRef, level: u8, keyword: u64, text: &str) -> Result<(), WriteError> {
    let units: Vec<u16> = text.encode_utf16().take_while(|unit| *unit != 0).chain([0]).collect();
    // SAFETY: the units end with a NUL and live during the call.
    to_result(unsafe { EventWriteString(slot.0, level, keyword, units.as_ptr()) })
}

/// Calls `write` with the data descriptors of an event: its metadata, if it has any, and its
/// payload.
fn with_descriptors(
    event: &CallerEvent<'_>,
    write: impl FnOnce(u32, *const Block<'_>) -> u32,
) -> Result<(), WriteError> {
    let mut descriptors = [Block::EMPTY; MAX_DESCRIPTORS];
    let mut count = 0_usize;
    let mut add = |block| {
        if let Some(place) = descriptors.get_mut(count) {
            *place = block;
        }
        count += 1;
    };
    if let Some(metadata) = event.metadata {
        add(Block::new_metadata(metadata));
    }
    match event.payload {
        CallerPayload::Slices(slices) => slices.iter().for_each(|slice| add(Block::new(slice))),
        CallerPayload::Blocks(blocks) => blocks.iter().for_each(|block| add(*block)),
    }
    if count > MAX_DESCRIPTORS {
        return Err(WriteError::InvalidParameter);
    }
    to_result(write(count as u32, descriptors.as_ptr()))
}

fn to_pointer(id: Option<&Guid>) -> *const Guid {
    id.map_or(ptr::null(), ptr::from_ref)
}

fn to_result(status: u32) -> Result<(), WriteError> {
    let errors = [
        WriteError::InvalidHandle,
        WriteError::InvalidParameter,
        WriteError::TooLarge,
        WriteError::MoreData,
        WriteError::LogFileFull,
    ];
    match status {
        0 => Ok(()),
        // Other codes also mean that a session did not get the event.
        _ => Err(errors.into_iter().find(|e| e.status().0 == status).unwrap_or(WriteError::NoRoom)),
    }
}
