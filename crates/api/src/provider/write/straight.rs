//! The fast path for the usual event: one session that requests only events, written straight from
//! the memory that holds its parts.
//!
//! ```text
//!   registration   provider │ traits, as an item                          ┐
//!   thread         id, activity                                           ├─▶ the ring: `Straight`
//!   program        descriptor │ metadata │ blocks                         ┘
//! ```
//!
//! This path reports no failure and counts nothing. An event of another kind, or without room in
//! the ring, takes the longer path, which reports the reason.
#![allow(unsafe_code)]

use traceweir_format::Guid;
use traceweir_format::spec::event::{
    EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA as EVENT_METADATA, EVENT_DATA_DESCRIPTOR_TYPE_NONE as NONE,
    EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA as PROVIDER_METADATA, EVENT_HEADER_FLAG_EXTENDED_INFO,
    EventDescriptor, ExtType,
};
use traceweir_transport::ring::{Blocks, Header, Straight};

use super::items::item_word;
use super::{Event, MARKER, MAX_BLOCKS};
use crate::client::outlets;
use crate::client::thread::{self, ThisThread};
use crate::provider::descriptor::DataDescriptor;
use crate::provider::enable::Sole;
use crate::provider::registration::{Handle, Slot};

/// Writes an event whose blocks are described, if that is possible right now, and returns whether
/// it was. `passed_cell` is the cell of filters that passed the event, 0 if none were checked.
#[inline(always)]
pub(super) fn write_blocks(slot: &Slot, what: &Event<'_>, blocks: Blocks<'_>, passed_cell: u16) -> bool {
    // The thread first, as in the longer path: in a forked child that is registering, sessions read
    // before would be the parent's.
    let (Some(this), Some(sole)) = (thread::ready(), slot.sole(passed_cell)) else { return false };
    blocks.all().len() <= MAX_BLOCKS && offer(slot, this, sole, what, blocks)
}

/// Like [`write_blocks`], for a self-described event without activity ids and one session without
/// filters.
#[inline(always)]
pub(super) fn write_described(
    slot: &Slot,
    descriptor: &EventDescriptor,
    metadata: &[u8],
    blocks: Blocks<'_>,
) -> bool {
    blocks.all().len() <= MAX_BLOCKS && described(slot, bytes_of_descriptor(descriptor), metadata, blocks)
}

#[inline(always)]
fn described(slot: &Slot, descriptor: &[u8; 16], metadata: &[u8], blocks: Blocks<'_>) -> bool {
    let Some(this) = thread::ready() else { return false };
    let (Some(sole), true) = (slot.sole(0), is_wanted(slot, descriptor)) else { return false };
    hand_over(slot, (this, sole), descriptor, 0, Some(metadata), None, blocks)
}

#[inline(always)]
fn offer(slot: &Slot, this: &ThisThread, sole: Sole, what: &Event<'_>, blocks: Blocks<'_>) -> bool {
    // Checked again, now that the session is known: the caller checked the words of earlier
    // sessions.
    if !slot.enabled(what.descriptor.level, what.descriptor.keyword) {
        return false;
    }
    let descriptor = bytes_of_descriptor(what.descriptor);
    let activity = what.activity.map(bytes_of_guid);
    what.related.is_none()
        && hand_over(slot, (this, sole), descriptor, what.flags, what.metadata, activity, blocks)
}

/// Writes an event that a C program passes to EventWriteTransfer, for a façade.
///
/// Returns whether it was written; otherwise the caller takes the longer path, which checks
/// everything again.
///
/// # Safety
///
/// Pointers are NULL or valid: `data` has `count` elements, and each of them is NULL or the address
/// of as many bytes as its size says, which do not change during the call.
// Inlined into the function that a C program calls: one frame for both.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn write_straight(
    handle: u64,
    descriptor: *const EventDescriptor,
    activity: *const Guid,
    related: *const Guid,
    count: u32,
    data: *const DataDescriptor,
) -> bool {
    let Some(handle) = Handle::from_raw(handle) else { return false };
    let has_blocks = !data.is_null() && data.is_aligned();
    if descriptor.is_null() || !related.is_null() || count as usize > MAX_BLOCKS || count != 0 && !has_blocks
    {
        return false;
    }
    // SAFETY: by the contract; bytes need no alignment.
    let (descriptor, activity) =
        unsafe { (&*descriptor.cast::<[u8; 16]>(), activity.cast::<[u8; 16]>().as_ref()) };
    // SAFETY: by the contract, and aligned.
    let blocks = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, count as usize) } };
    let slot = handle.slot;
    let Some(this) = thread::ready() else { return false };
    let (Some(sole), true) = (slot.sole(0), is_wanted(slot, descriptor)) else { return false };
    let (mut metadata, mut payload) = (None, blocks);
    let typed = slot.honours_types();
    if typed
        && let [provider, event, behind @ ..] = blocks
        && (provider.kind, event.kind) == (PROVIDER_METADATA, EVENT_METADATA)
    {
        // The provider's metadata come with the registration; otherwise this is an event of a rarer
        // kind.
        // SAFETY: by the contract.
        let (true, Ok(bytes)) = (slot.has_traits() && provider.is_there(), unsafe { event.bytes() }) else {
            return false;
        };
        (metadata, payload) = (Some(bytes), behind);
    }
    // SAFETY: by the contract.
    let Some(payload) = (unsafe { plain_blocks(payload, typed) }) else { return false };
    hand_over(slot, (this, sole), descriptor, 0, metadata, activity, payload)
}

/// Writes an event of the TraceLogging macros, for a façade.
///
/// Descriptor and metadata are constants of the program, there are no activity ids, and the
/// provider's metadata come with the registration.
///
/// # Safety
///
/// `descriptor` and `metadata` are valid, the latter for `metadata_bytes`; `data` as in
/// [`write_straight`], but never NULL.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn write_described_straight(
    handle: u64,
    descriptor: *const EventDescriptor,
    metadata: *const u8,
    metadata_bytes: u32,
    count: u32,
    data: *const DataDescriptor,
) -> bool {
    let Some(handle) = Handle::from_raw(handle) else { return false };
    if count as usize > MAX_BLOCKS || !handle.slot.has_traits() {
        return false;
    }
    // SAFETY: by the contract.
    let (metadata, blocks) = unsafe {
        (
            std::slice::from_raw_parts(metadata, metadata_bytes as usize),
            std::slice::from_raw_parts(data, count as usize),
        )
    };
    // SAFETY: by the contract.
    let Some(payload) = (unsafe { plain_blocks(blocks, true) }) else { return false };
    // SAFETY: by the contract; bytes need no alignment.
    described(handle.slot, unsafe { &*descriptor.cast() }, metadata, payload)
}

/// Returns the blocks if all are payload; `None` if one is missing or of another kind.
///
/// # Safety
///
/// Each block is NULL, or the address of as many bytes as its size says, which can be read and do
/// not change for `'a`.
#[inline(always)]
unsafe fn plain_blocks(blocks: &[DataDescriptor], typed: bool) -> Option<Blocks<'_>> {
    let mut bytes = 0_usize;
    for block in blocks {
        if !block.is_there() || typed && block.kind != NONE {
            return None;
        }
        // Less than 2³² each, and few.
        bytes = bytes.wrapping_add(block.size as usize);
    }
    // SAFETY: by the contract; every block that has a size has an address, and these are their
    // bytes.
    Some(unsafe { Blocks::described(blocks.as_ptr().cast(), blocks.len(), bytes) })
}

/// Checks a descriptor's level and keyword against the hot words.
#[inline(always)]
fn is_wanted(slot: &Slot, descriptor: &[u8; 16]) -> bool {
    let [_, _, _, _, level, _, _, _, keyword @ ..] = *descriptor;
    slot.enabled(level, u64::from_le_bytes(keyword))
}

#[inline(always)]
fn hand_over(
    slot: &Slot,
    (this, sole): (&ThisThread, Sole),
    descriptor: &[u8; 16],
    flags: u16,
    metadata: Option<&[u8]>,
    activity: Option<&[u8; 16]>,
    blocks: Blocks<'_>,
) -> bool {
    let Some(items) = slot.traits_item(metadata.is_some()) else { return false };
    let schema = metadata.map(|bytes| (item_word(ExtType::EVENT_SCHEMA_TL, bytes.len(), false), bytes));
    let extended = if items.is_empty() && schema.is_none() { 0 } else { EVENT_HEADER_FLAG_EXTENDED_INFO };
    let header = Header {
        first: MARKER | u64::from(flags | extended) << 32,
        thread: this.id(),
        provider: slot.provider_in_memory(),
        descriptor,
        activity: activity.unwrap_or_else(|| bytes_of_guid(this.activity_in_memory())),
    };
    let Some(record) = Straight::new(&header, items, schema, blocks, 0) else { return false };
    outlets::get(sole.outlet).write_straight(sole.ticket, &record)
}

#[inline(always)]
fn bytes_of_descriptor(descriptor: &EventDescriptor) -> &[u8; 16] {
    const { assert!(size_of::<EventDescriptor>() == 16 && cfg!(target_endian = "little")) };
    // SAFETY: `repr(C)` with sixteen bytes of fields, so without padding; the fields lie in the
    // order of the header.
    unsafe { &*std::ptr::from_ref(descriptor).cast() }
}

#[inline(always)]
fn bytes_of_guid(guid: &Guid) -> &[u8; 16] {
    const { assert!(size_of::<Guid>() == 16 && cfg!(target_endian = "little")) };
    // SAFETY: as above.
    unsafe { &*std::ptr::from_ref(guid).cast() }
}
