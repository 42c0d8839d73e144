//! Step 2 of a write (see `write`): the usual event, for one session that requests no extended data
//! items, goes straight from the memory that holds its pieces into the ring.
//!
//! ```text
//!   registration   provider │ traits, as an item                          ┐
//!   thread         id, activity                                           ├─▶ the ring: `Straight`
//!   program        descriptor │ metadata │ blocks                         ┘
//! ```
//!
//! This step reports no failure and counts nothing. An event of another kind, or one that does
//! not fit into the ring, takes step 3, which reports the reason.
#![allow(unsafe_code)]

use traceweir_format::Guid;
use traceweir_format::spec::event::{EVENT_HEADER_FLAG_EXTENDED_INFO, EventDescriptor, ExtType};
use traceweir_transport::ring::{Blocks, Header, Straight};

use super::compose::FIRST_WORD_BITS;
use crate::event::{CallerEvent, MAX_BLOCKS, item_head};
use crate::process::outlets;
use crate::process::thread::{self, ThisThread};
use crate::registration::RegistrationSlot;
use crate::registration::enable::OnlySession;

/// The registration, the writing thread and the only session.
pub(super) struct StraightTarget<'a> {
    slot: &'a RegistrationSlot,
    thread: &'a ThisThread,
    session: OnlySession,
}

impl<'a> StraightTarget<'a> {
    /// Finds the session if it wants an event with this descriptor, requests no extended data
    /// items, and has no filters or those of the cell `passed_cell`.
    #[inline(always)]
    pub(super) fn find(slot: &'a RegistrationSlot, descriptor: &[u8; 16], passed_cell: u16) -> Option<Self> {
        // The thread is read first, as in step 3: sessions that are read before it could be the
        // parent's in a forked child that is registering.
        let (Some(thread), Some(session)) = (thread::known_thread(), slot.only_session(passed_cell)) else {
            return None;
        };
        // Checked again, now that the session is known: the caller may have checked the enable
        // state of earlier sessions.
        let [_, _, _, _, level, _, _, _, keyword @ ..] = *descriptor;
        slot.is_enabled(level, u64::from_le_bytes(keyword)).then_some(Self { slot, thread, session })
    }
}

/// The pieces of a usual event. It has no related activity, at most [`MAX_BLOCKS`] blocks, and
/// nothing that replaces values of the registration.
pub(super) struct UsualEvent<'a> {
    /// The descriptor, which may be unaligned in the memory of a C program.
    pub(super) descriptor: &'a [u8; 16],
    pub(super) flags: u16,
    pub(super) metadata: Option<&'a [u8]>,
    /// The activity id, which may be unaligned; the thread's if missing.
    pub(super) activity: Option<&'a [u8; 16]>,
    pub(super) payload: Blocks<'a>,
}

/// Writes an event with the blocks `payload` if it is a usual event and the ring has room, and
/// returns whether it was written. `passed_cell` is the cell of the filters that passed the event, 0
/// if none were checked.
#[inline(always)]
pub(super) fn try_write(
    slot: &RegistrationSlot,
    event: &CallerEvent<'_>,
    payload: Blocks<'_>,
    passed_cell: u16,
) -> bool {
    let descriptor = bytes_of_descriptor(event.descriptor);
    let Some(target) = StraightTarget::find(slot, descriptor, passed_cell) else { return false };
    if payload.as_slice().len() > MAX_BLOCKS || event.related.is_some() {
        return false;
    }
    let (flags, metadata, activity) = (event.flags, event.metadata, event.activity.map(bytes_of_guid));
    UsualEvent { descriptor, flags, metadata, activity, payload }.try_write(&target)
}

/// Like [`try_write`], for an event that no filters were checked for and that has only these parts:
/// they stay in registers.
#[inline(always)]
pub(super) fn try_write_plain(
    slot: &RegistrationSlot,
    descriptor: &EventDescriptor,
    metadata: Option<&[u8]>,
    payload: Blocks<'_>,
) -> bool {
    let descriptor = bytes_of_descriptor(descriptor);
    let Some(target) = StraightTarget::find(slot, descriptor, 0) else { return false };
    payload.as_slice().len() <= MAX_BLOCKS
        && UsualEvent { descriptor, flags: 0, metadata, activity: None, payload }.try_write(&target)
}

impl UsualEvent<'_> {
    /// Writes the event if it fits into the session's ring, and returns whether it was written.
    #[inline(always)]
    pub(super) fn try_write(&self, target: &StraightTarget<'_>) -> bool {
        let StraightTarget { slot, thread, session } = target;
        let Some(items) = slot.traits_item(self.metadata.is_some()) else { return false };
        let schema =
            self.metadata.map(|bytes| (item_head(ExtType::EVENT_SCHEMA_TL, bytes.len(), false), bytes));
        let extended = if items.is_empty() && schema.is_none() { 0 } else { EVENT_HEADER_FLAG_EXTENDED_INFO };
        let header = Header {
            first: FIRST_WORD_BITS | u64::from(self.flags | extended) << 32,
            thread: thread.id(),
            provider: slot.provider_in_memory(),
            descriptor: self.descriptor,
            activity: self.activity.unwrap_or_else(|| bytes_of_guid(thread.activity_in_memory())),
        };
        let Some(mut record) = Straight::new(&header, items, schema, self.payload, 0) else { return false };
        outlets::get(session.outlet).write_straight(session.ticket, &mut record)
    }
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
    // SAFETY: `repr(C)` with sixteen bytes of fields, so without padding.
    unsafe { &*std::ptr::from_ref(guid).cast() }
}
