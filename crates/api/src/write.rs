//! The path of an event to every session that wants it.
//!
//! ```text
//!   slices, data descriptors, blocks of macros ──▶ `CallerEvent`      provider, descriptor, string
//!   1  enabled?          level and keyword, then filters              `registration::enable`
//!   2  usual event       one session, which requests no extended data
//!                        items: straight into the ring                straight
//!   3  everything else   sessions are chosen, the record is composed
//!                        on the stack or in a pool, and written
//!                        to each                                      staged, compose
//! ```
//!
//! | File | Contents |
//! |---|---|
//! | `descriptor`, `string` | data descriptors of C programs, and texts, as events |
//! | `straight` | step 2 |
//! | `staged` | step 3: choice of sessions, delivery to several |
//! | `compose` | the bytes of a record: header and extended data items |
//! | `stage`, `scratch` | the memory in which a record is composed: on the stack, in a pool |
//! | `keys`, `stack` | event keys and call stacks |
//!
//! Invariants
//!
//! 1. A write waits for no lock and, unless it is a string of more than 511 UTF-16 units, allocates
//!    nothing: a signal handler may write. The usual event makes no system call, except to ring the
//!    doorbell.
//! 2. An event that a session wants ends up in the session's ring or in its count of lost events,
//!    unless it is refused as invalid or too large for any session.
//! 3. A write uses at most 2 KiB of stack, whatever the event contains and sessions request: blocks
//!    stay in the caller's memory, and larger records are composed in a pool (`scratch`). If no
//!    memory in the pool is free, the event is lost.
//! 4. A forked child that has not registered again writes no byte to a region of the parent; see
//!    `process::fork`.
//! 5. The functions that a program calls are `inline(always)`, down to one that is `inline(never)`.
//!    So every build has the same frames of the library on the stack. They are left out: the call
//!    stack of an event begins at the program's call.

mod compose;
mod descriptor;
mod keys;
mod scratch;
mod stack;
mod stage;
mod staged;
mod straight;
mod string;
#[cfg(test)]
mod tests;

use traceweir_format::spec::event::{
    EVENT_WRITE_FLAG_INPRIVATE, EVENT_WRITE_FLAG_NO_FAULTING, EventDescriptor,
};
use traceweir_transport::ring::{Block, Blocks};

use crate::error::WriteError;
use crate::event::{CallerEvent, MAX_BLOCKS};
use crate::registration::RegistrationSlot;

pub(crate) use descriptor::write_descriptors;
pub use descriptor::{DataDescriptor, try_straight, try_straight_described};
pub(crate) use string::{write_string, write_wide_string};

/// Values that only some callers pass with an event.
///
/// They are separate from [`CallerEvent`], and handled in separate functions, so that the usual
/// event does not pay for them.
#[derive(Clone, Copy)]
pub(crate) struct Options<'a> {
    /// The provider's metadata, for a registration without traits.
    traits: &'a [u8],
    /// The time stamp in the clock of the session.
    stamp: Option<u64>,
    /// Bits of the sessions that do not get the event.
    excluded: u64,
    /// Sessions that reject in-private events do not get the event either.
    is_in_private: bool,
    /// Number of further frames of this library that the event's call stack leaves out. The frame
    /// of the function into which [`staged::deliver`] is inlined is always left out.
    skipped_frames: usize,
}

impl Options<'_> {
    const NONE: Self =
        Self { traits: &[], stamp: None, excluded: 0, is_in_private: false, skipped_frames: 0 };

    /// Reads the arguments of EventWriteEx. Bits without a session change nothing.
    #[inline(always)]
    pub(crate) fn from_write_ex(sessions: u64, flags: u32) -> Result<Self, WriteError> {
        if flags & !(EVENT_WRITE_FLAG_NO_FAULTING | EVENT_WRITE_FLAG_INPRIVATE) != 0 {
            return Err(WriteError::InvalidParameter);
        }
        let is_in_private = flags & EVENT_WRITE_FLAG_INPRIVATE != 0;
        Ok(Self { excluded: sessions, is_in_private, ..Self::NONE })
    }
}

/// Writes an event that passed level and keyword.
#[inline(always)]
pub(crate) fn write(slot: &RegistrationSlot, event: &CallerEvent<'_>) -> Result<(), WriteError> {
    // Check the filters before a frame for the record exists: an event that a filter rejects costs
    // a fraction of a write. A cell holds the filters of a session (see `crate::filter`); 0 means
    // that the filters of several sessions, or none, were checked.
    let Some(passed_cell) = slot.check_filters(event) else { return Ok(()) };
    // The event is copied to the stack only when it is written.
    let event = *event;
    deliver(slot, &event, passed_cell)
}

#[inline(never)]
fn deliver(slot: &RegistrationSlot, event: &CallerEvent<'_>, passed_cell: u16) -> Result<(), WriteError> {
    let Some(payload) = Blocks::from_slices(event.blocks) else { return too_large_error(event.blocks) };
    if straight::try_write(slot, event, payload, passed_cell) {
        return Ok(());
    }
    staged::deliver(slot, event, &Options::NONE, passed_cell)
}

/// Returns the error for an event with a block larger than any record: `InvalidParameter` if it
/// also has too many blocks.
#[cold]
fn too_large_error(blocks: &[Block<'_>]) -> Result<(), WriteError> {
    Err(if blocks.len() > MAX_BLOCKS { WriteError::InvalidParameter } else { WriteError::TooLarge })
}

/// Writes an event that passed level and keyword and has nothing but a descriptor and a payload.
// As in `write_described`, all arguments of the call fit in registers, and the sizes of the blocks are
// added up where the compiler usually knows most of them.
#[inline(always)]
pub(crate) fn write_plain(
    slot: &RegistrationSlot,
    descriptor: &EventDescriptor,
    data: &[&[u8]],
) -> Result<(), WriteError> {
    let blocks = Block::from_slices(data);
    if slot.is_filtered() {
        return write(slot, &CallerEvent::from_blocks(descriptor, blocks));
    }
    match Blocks::from_slices(blocks) {
        Some(payload) => deliver_plain(slot, descriptor, blocks, payload.bytes()),
        None => too_large_error(blocks),
    }
}

#[inline(never)]
fn deliver_plain(
    slot: &RegistrationSlot,
    descriptor: &EventDescriptor,
    blocks: &[Block<'_>],
    bytes: usize,
) -> Result<(), WriteError> {
    if straight::try_write_plain(slot, descriptor, None, Blocks::with_total(blocks, bytes)) {
        return Ok(());
    }
    let event = CallerEvent::from_blocks(descriptor, blocks);
    write_with_options(slot, &event, &Options { skipped_frames: 1, ..Options::NONE })
}

/// Writes a self-describing event, which has passed level and keyword and has no activity ids.
// All arguments fit in registers. The sizes of the blocks are added up where the blocks are made:
// the compiler usually knows most of them there.
#[inline(always)]
pub(crate) fn write_described(
    slot: &RegistrationSlot,
    descriptor: &EventDescriptor,
    metadata: &[u8],
    payload: Blocks<'_>,
) -> Result<(), WriteError> {
    if slot.only_filter_cell().is_some() {
        let event = CallerEvent {
            metadata: Some(metadata),
            ..CallerEvent::from_blocks(descriptor, payload.as_slice())
        };
        return write(slot, &event);
    }
    deliver_described(slot, descriptor, metadata, payload.as_slice(), payload.bytes())
}

#[inline(never)]
fn deliver_described(
    slot: &RegistrationSlot,
    descriptor: &EventDescriptor,
    metadata: &[u8],
    blocks: &[Block<'_>],
    bytes: usize,
) -> Result<(), WriteError> {
    if straight::try_write_plain(slot, descriptor, Some(metadata), Blocks::with_total(blocks, bytes)) {
        return Ok(());
    }
    let event = CallerEvent { metadata: Some(metadata), ..CallerEvent::from_blocks(descriptor, blocks) };
    write_with_options(slot, &event, &Options { skipped_frames: 1, ..Options::NONE })
}

/// Writes an event to all sessions except excluded ones. The event passed level and keyword, and
/// its blocks are slices.
#[inline(never)]
pub(crate) fn write_excluding(
    slot: &RegistrationSlot,
    event: &CallerEvent<'_>,
    options: &Options<'_>,
) -> Result<(), WriteError> {
    let Some(passed_cell) = slot.check_filters(event) else { return Ok(()) };
    if Blocks::from_slices(event.blocks).is_none() {
        return too_large_error(event.blocks);
    }
    staged::deliver(slot, event, options, passed_cell)
}

/// Writes an event, which has passed level and keyword, with options. Each of its blocks has less
/// than 4 GiB.
#[inline(always)]
fn write_with_options(
    slot: &RegistrationSlot,
    event: &CallerEvent<'_>,
    options: &Options<'_>,
) -> Result<(), WriteError> {
    let Some(passed_cell) = slot.check_filters(event) else { return Ok(()) };
    deliver_staged(slot, event, options, passed_cell)
}

/// Runs step 3 outside of the functions that are inlined into the program.
#[inline(never)]
fn deliver_staged(
    slot: &RegistrationSlot,
    event: &CallerEvent<'_>,
    options: &Options<'_>,
    passed_cell: u16,
) -> Result<(), WriteError> {
    staged::deliver(slot, event, options, passed_cell)
}
