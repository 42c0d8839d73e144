//! The usual event: for one session that asks for nothing but it, with what every event of its provider has, written from where its pieces lie.
//!
//! ```text
//!   registration   provider │ traits, as an item                          ┐
//!   thread         id, activity                                           ├──▶ the ring (`traceweir_transport::ring::Straight`)
//!   program        descriptor │ metadata │ blocks                         ┘
//! ```
//!
//! Nothing here fails or is counted. An event of another kind, or for which there is no room right now, goes the longer way, which says why.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use traceweir_format::Guid;
use traceweir_format::spec::event::{
    EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA as EVENT_METADATA, EVENT_DATA_DESCRIPTOR_TYPE_NONE as NONE,
    EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA as PROVIDER_METADATA, EVENT_HEADER_FLAG_EXTENDED_INFO,
    EventDescriptor, ExtType,
};
use traceweir_transport::ring::{Block, Blocks, Header, Straight};

use super::items::item_word;
use super::{Event, MARKER, MAX_BLOCKS};
use crate::client::outlets;
use crate::client::thread;
use crate::provider::descriptor::DataDescriptor;
use crate::provider::enable::Sole;
use crate::provider::registration::Slot;

/// Blocks of an event in slices that are written in this way: as many as find room in a small frame.
const MOST_SLICES: usize = 16;

/// Writes an event that its slot's words let through, where that is possible right now; whether it was. `asked` is the cell of filters that let it through, 0 where
/// none were asked.
#[inline(always)]
pub(super) fn write(slot: &Slot, what: &Event<'_>, asked: u16) -> bool {
    let mut room = [const { MaybeUninit::uninit() }; MOST_SLICES];
    let Some(sole) = slot.sole(asked) else { return false };
    let Some(blocks) = Blocks::of_slices(&mut room, what.data) else { return false };
    what.related.is_none()
        && hand_over(slot, sole, what.descriptor, what.flags, what.metadata, what.activity, blocks)
}

/// The same of one whose blocks are described already, as `what` does not tell.
#[inline(always)]
pub(super) fn write_blocks(slot: &Slot, what: &Event<'_>, blocks: &[Block<'_>], asked: u16) -> bool {
    let Some(sole) = slot.sole(asked) else { return false };
    // With one session its words are exactly what it wants.
    slot.enabled(what.descriptor.level, what.descriptor.keyword)
        && what.related.is_none()
        && blocks.len() <= MAX_BLOCKS
        && hand_over(
            slot,
            sole,
            what.descriptor,
            what.flags,
            what.metadata,
            what.activity,
            Blocks::new(blocks),
        )
}

/// The same of an event that a C program describes, and that no filters were asked about.
///
/// # Safety
///
/// Each block's address is NULL, or that of so many bytes as its size says, which can be read and do not change during the call.
#[inline(never)]
pub(in crate::provider) unsafe fn write_described(
    slot: &Slot,
    descriptor: &EventDescriptor,
    activity: Option<&Guid>,
    blocks: &[DataDescriptor],
) -> bool {
    let Some(sole) = slot.sole(0) else { return false };
    if blocks.len() > MAX_BLOCKS {
        return false;
    }
    let (mut metadata, mut payload) = (None, blocks);
    let typed = slot.honours_types();
    if typed
        && let [provider, event, behind @ ..] = blocks
        && (provider.kind, event.kind) == (PROVIDER_METADATA, EVENT_METADATA)
    {
        // What the provider says of itself comes with the registration, or this is an event of a rarer kind.
        // SAFETY: by the contract.
        let (true, Ok(bytes)) = (slot.has_traits() && provider.is_there(), unsafe { event.bytes() }) else {
            return false;
        };
        (metadata, payload) = (Some(bytes), behind);
    }
    if !payload.iter().all(|block| block.is_there() && (!typed || block.kind == NONE)) {
        return false;
    }
    // SAFETY: by the contract, and every block that has a size has an address.
    let payload = unsafe { Blocks::described(payload.as_ptr().cast(), payload.len()) };
    hand_over(slot, sole, descriptor, 0, metadata, activity, payload)
}

#[inline(always)]
fn hand_over(
    slot: &Slot,
    sole: Sole,
    descriptor: &EventDescriptor,
    flags: u16,
    metadata: Option<&[u8]>,
    activity: Option<&Guid>,
    blocks: Blocks<'_>,
) -> bool {
    let (Some(this), Some(items)) = (thread::ready(), slot.traits_item(metadata.is_some())) else {
        return false;
    };
    let schema = metadata.map(|bytes| (item_word(ExtType::EVENT_SCHEMA_TL, bytes.len(), false), bytes));
    let extended = if items.is_empty() && schema.is_none() { 0 } else { EVENT_HEADER_FLAG_EXTENDED_INFO };
    let header = Header {
        first: MARKER | u64::from(flags | extended) << 32,
        thread: this.id(),
        provider: slot.provider_in_memory(),
        descriptor: bytes_of_descriptor(descriptor),
        activity: bytes_of_guid(activity.unwrap_or_else(|| this.activity_in_memory())),
    };
    let Some(record) = Straight::new(&header, items, schema, blocks, 0) else { return false };
    outlets::get(sole.outlet).write_straight(sole.ticket, &record)
}

#[inline(always)]
fn bytes_of_descriptor(descriptor: &EventDescriptor) -> &[u8; 16] {
    const { assert!(size_of::<EventDescriptor>() == 16 && cfg!(target_endian = "little")) };
    // SAFETY: `repr(C)` with sixteen bytes of fields, so without padding; the fields lie in the order of the header.
    unsafe { &*std::ptr::from_ref(descriptor).cast() }
}

#[inline(always)]
fn bytes_of_guid(guid: &Guid) -> &[u8; 16] {
    const { assert!(size_of::<Guid>() == 16 && cfg!(target_endian = "little")) };
    // SAFETY: as above.
    unsafe { &*std::ptr::from_ref(guid).cast() }
}
