//! Writing one event to every session that wants it.
//!
//! ```text
//!   handle? enabled? parameters? ──▶ forked? ──▶ header, items, small blocks on the stack
//!     ──▶ for each session that wants it: its outlet
//! ```
//!
//! The bytes are those of the file (`traceweir_format::header::event`), except for the time stamp
//! and the process id, which stay zero: the owner of the session fills them in. Extended data items
//! come in this order: traits (12), schema (11), related activity (1), event key (10), stack (6).
//! If the traits name a GUID to decode by, the header has that GUID and an item (14) before all
//! others has the provider's own.
//!
//! ```text
//!   one session that requests only events     ──▶ straight into the ring (straight.rs)
//!     not possible now, or several sessions   ──▶ composed on the stack, then `deliver`
//!   a session with more requests, or large    ──▶ composed in memory of a pool (scratch.rs),
//!     metadata                                    then `deliver`
//! ```
//!
//! Invariants
//!
//! 1. A write allocates nothing and takes no lock, and calls the system at most to wake a session's
//!    owner: a signal handler may write.
//! 2. An event that a session wants ends up in the session's ring or in its count of lost events,
//!    unless it is refused as invalid or too large for any session.
//! 3. A write uses at most 2 KiB of stack, whatever the event contains and sessions request: blocks
//!    stay where the caller described them, and larger records are composed in a pool (scratch.rs).
//!    An exhausted pool counts as a lost event.
//! 4. A forked child that has not registered again writes no byte to a region of the parent; see
//!    `client::fork`.

mod items;
pub(super) mod straight;
#[cfg(test)]
mod tests;

use traceweir_format::Guid;
use traceweir_format::header::extended::ITEM_HEAD;
use traceweir_format::header::{MAX_RECORD, event};
use traceweir_format::spec::event::{
    EVENT_HEADER_FLAG_EXTENDED_INFO, EVENT_HEADER_FLAG_STRING_ONLY, EventDescriptor, ExtType, HeaderType,
};
use traceweir_transport::abi::KEEP_STAMP;
use traceweir_transport::ring::{Block, Blocks};

use super::deliver::{self, Delivery, Except, Source};
use super::registration::{Decoding, Slot};
use super::scratch::Claim;
use super::stack::Work;
use super::stage::Stage;
use super::{WriteError, activity, filter};
use crate::client::fork::{self, Writer};
use crate::client::outlets;
use items::item_word;
pub(super) use items::{Extras, Items, item_head};

/// The bits of the first header word other than size and flags.
const MARKER: u64 = (HeaderType::EVENT_HEADER64.0 as u64) << 16 | 0xC0 << 24;

/// Maximum number of blocks of one event.
pub const MAX_BLOCKS: usize = 128;

/// Bytes of the usual items besides traits and metadata: heads and padding of both, and a related
/// activity.
const ITEMS_AROUND: usize = 2 * (ITEM_HEAD + 7) + ITEM_HEAD + 16;
/// Maximum size in bytes of a string that is written from the stack.
const SHORT_STRING: usize = 256;

/// An event as its caller passed it.
#[derive(Clone, Copy)]
pub(super) struct Event<'a> {
    pub(super) descriptor: &'a EventDescriptor,
    pub(super) flags: u16,
    pub(super) metadata: Option<&'a [u8]>,
    pub(super) activity: Option<&'a Guid>,
    pub(super) related: Option<&'a Guid>,
    /// The payload blocks in the caller's memory.
    pub(super) data: &'a [Block<'a>],
    /// `data` also contains blocks other than payload, which are skipped.
    pub(super) is_mixed: bool,
}

impl<'a> Event<'a> {
    #[inline(always)]
    pub(super) fn new(descriptor: &'a EventDescriptor, data: &'a [&'a [u8]]) -> Self {
        Self::described(descriptor, Block::from_slices(data))
    }

    #[inline(always)]
    pub(super) const fn described(descriptor: &'a EventDescriptor, data: &'a [Block<'a>]) -> Self {
        Self { descriptor, flags: 0, metadata: None, activity: None, related: None, data, is_mixed: false }
    }

    /// Iterates over the payload blocks in order.
    pub(super) fn payload(&self) -> Payload<'a> {
        Payload { blocks: self.data.iter(), is_mixed: self.is_mixed }
    }
}

/// The blocks of an event's payload.
#[derive(Clone)]
pub(super) struct Payload<'a> {
    blocks: std::slice::Iter<'a, Block<'a>>,
    is_mixed: bool,
}

impl<'a> Iterator for Payload<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let is_mixed = self.is_mixed;
        self.blocks.find(|block| !is_mixed || block.kind() == 0).map(Block::bytes)
    }
}

/// Values that a caller passes with one event in place of those of the registration or session.
///
/// They are separate from [`Event`], and handled in separate functions, so that the usual event
/// does not pay for them.
#[derive(Clone, Copy)]
pub(super) struct Overrides<'a> {
    /// The provider's metadata, for a registration without traits.
    pub(super) traits: &'a [u8],
    /// The time stamp in the clock of the session.
    pub(super) stamp: Option<u64>,
    /// Number of library functions between the caller and the frame that holds the event.
    pub(super) depth: usize,
}

impl Overrides<'_> {
    pub(super) const NONE: Self = Self { traits: &[], stamp: None, depth: 0 };

    /// Returns the flags of the record in the ring.
    #[inline(always)]
    pub(super) fn ring_flags(&self) -> u16 {
        if self.stamp.is_some() { KEEP_STAMP } else { 0 }
    }
}

/// Writes an event that passed the hot words.
#[inline(always)]
pub(super) fn write(slot: &Slot, what: &Event<'_>) -> Result<(), WriteError> {
    // Before a frame for the record exists: an event that a filter rejects costs a fraction of a
    // write.
    let Some(passed_cell) = check_filters(slot, what) else { return Ok(()) };
    // Copied to the stack only now, when it is written.
    let what = *what;
    write_wanted(slot, &what, passed_cell)
}

/// Checks the filters if every session has some. Returns the cell of the only session's filters if
/// they pass the event, 0 if there are no filters on all sessions or several sessions, and `None`
/// if no session wants the event.
///
/// The result holds for these filters only: sessions come and go until the next check.
#[inline(always)]
pub(super) fn check_filters(slot: &Slot, what: &Event<'_>) -> Option<u16> {
    let Some(only) = slot.filters_of_all() else { return Some(0) };
    filter::wanted(slot, only, what).then_some(only)
}

#[inline(never)]
fn write_wanted(slot: &Slot, what: &Event<'_>, passed_cell: u16) -> Result<(), WriteError> {
    let Some(blocks) = Blocks::of_slices(what.data) else { return too_large(what) };
    if straight::write_blocks(slot, what, blocks, passed_cell) {
        return Ok(());
    }
    let overrides = &Overrides::NONE;
    staged(slot, what, overrides, passed_cell, Except::default())
}

/// Returns the error for an event with a block larger than any record.
#[cold]
fn too_large(what: &Event<'_>) -> Result<(), WriteError> {
    Err(if what.data.len() > MAX_BLOCKS { WriteError::InvalidParameter } else { WriteError::TooLarge })
}

/// Writes an event whose blocks are described already; `what` has none. The caller has checked
/// level and keyword.
// The sizes are added up where the blocks are made: the compiler usually knows most of them there.
#[inline(always)]
pub(super) fn write_blocks(slot: &Slot, what: &Event<'_>, blocks: Blocks<'_>) -> Result<(), WriteError> {
    let Some(passed_cell) = check_filters(slot, what) else { return Ok(()) };
    let what = *what;
    write_wanted_blocks(slot, &what, blocks, passed_cell)
}

/// Like [`write_blocks`], for a self-described event without activity ids. All arguments fit in
/// registers.
#[inline(always)]
pub(super) fn write_described(
    slot: &Slot,
    descriptor: &EventDescriptor,
    metadata: &[u8],
    blocks: Blocks<'_>,
) -> Result<(), WriteError> {
    if slot.filters_of_all().is_some() {
        let event = Event { metadata: Some(metadata), ..Event::new(descriptor, &[]) };
        return write_blocks(slot, &event, blocks);
    }
    write_wanted_described(slot, descriptor, metadata, blocks.all(), blocks.bytes())
}

#[inline(never)]
fn write_wanted_described(
    slot: &Slot,
    descriptor: &EventDescriptor,
    metadata: &[u8],
    blocks: &[Block<'_>],
    bytes: usize,
) -> Result<(), WriteError> {
    let blocks = Blocks::counted(blocks, bytes);
    if straight::write_described(slot, descriptor, metadata, blocks) {
        return Ok(());
    }
    let event = Event { metadata: Some(metadata), ..Event::new(descriptor, &[]) };
    let Some(passed_cell) = check_filters(slot, &event) else { return Ok(()) };
    write_longer(slot, &event, blocks, passed_cell)
}

#[inline(never)]
fn write_wanted_blocks(
    slot: &Slot,
    what: &Event<'_>,
    blocks: Blocks<'_>,
    passed_cell: u16,
) -> Result<(), WriteError> {
    if straight::write_blocks(slot, what, blocks, passed_cell) {
        return Ok(());
    }
    write_longer(slot, what, blocks, passed_cell)
}

/// Writes an event with described blocks through the pool or stack. Inlined into its callers, which
/// are one function below the program's.
#[inline(always)]
fn write_longer(
    slot: &Slot,
    what: &Event<'_>,
    blocks: Blocks<'_>,
    passed_cell: u16,
) -> Result<(), WriteError> {
    let overrides = Overrides { depth: 1, ..Overrides::NONE };
    write_with_overrides(
        slot,
        &Event { data: blocks.all(), ..*what },
        &overrides,
        passed_cell,
        Except::default(),
    )
}

/// Writes an event with overrides and excluded sessions. `passed_cell` is the result of
/// [`check_filters`].
#[inline(never)]
pub(super) fn write_with_overrides(
    slot: &Slot,
    what: &Event<'_>,
    overrides: &Overrides<'_>,
    passed_cell: u16,
    except: Except,
) -> Result<(), WriteError> {
    staged(slot, what, overrides, passed_cell, except)
}

/// Writes an event to all sessions except excluded ones.
#[inline(never)]
pub(super) fn write_except(slot: &Slot, what: &Event<'_>, except: Except) -> Result<(), WriteError> {
    if check_filters(slot, what).is_none() {
        return Ok(());
    }
    if Blocks::of_slices(what.data).is_none() {
        return too_large(what);
    }
    let overrides = &Overrides::NONE;
    staged(slot, what, overrides, 0, except)
}

/// Chooses the sessions, composes the record and writes it. Inlined into its callers, where call
/// stacks begin.
///
/// Another function composes the record: filters and call stacks, which need more stack than the
/// rest, are finished before a frame holds a record, or work on records in the pool.
#[inline(always)]
fn staged(
    slot: &Slot,
    what: &Event<'_>,
    overrides: &Overrides<'_>,
    passed_cell: u16,
    except: Except,
) -> Result<(), WriteError> {
    if what.data.len() > MAX_BLOCKS {
        return Err(WriteError::InvalidParameter);
    }
    let thread = match fork::writer() {
        Writer::Thread(thread) => thread,
        Writer::Forked(inherited) => in_forked_child(slot, what, inherited)?,
    };
    let mark = 0_u8;
    let mut delivery = Delivery::new(slot, what, overrides, thread);
    delivery.choose(except, passed_cell);
    if delivery.is_for_nobody() {
        return Ok(());
    }
    if !delivery.is_rich() && is_small(slot, what, traits_of(slot, overrides)) {
        return write_from_stack(&mut delivery);
    }
    delivery.write_from_pool(std::hint::black_box(&raw const mark).addr())
}

/// Composes the record in this function's frame and writes it.
#[inline(never)]
fn write_from_stack(delivery: &mut Delivery<'_>) -> Result<(), WriteError> {
    let Delivery { slot, what, overrides, thread, .. } = *delivery;
    let mut words = Stage::EMPTY;
    let mut stage = Stage::new(&mut words);
    let size = compose_small(&mut stage, slot, what, overrides, traits_of(slot, overrides), thread);
    if size > MAX_RECORD {
        return Err(WriteError::TooLarge);
    }
    delivery.write_all(size, Source::Stack(&mut stage))
}

/// Writes a string event: UTF-16 with its terminator, no id, the thread's activity.
#[inline(never)]
pub(super) fn write_string(slot: &Slot, level: u8, keyword: u64, text: &str) -> Result<(), WriteError> {
    let descriptor = EventDescriptor { level, keyword, ..EventDescriptor::default() };
    let flags = EVENT_HEADER_FLAG_STRING_ONLY;
    let bytes = text.encode_utf16().count().saturating_add(1).saturating_mul(2);
    let (mut short, mut scratch, long);
    let data = if bytes <= SHORT_STRING {
        short = [0; SHORT_STRING];
        fill(&mut short, text)
    } else if bytes <= Work::BYTES {
        let Some(claim) = Claim::new() else { return lose(slot, &Event::new(&descriptor, &[])) };
        scratch = claim;
        fill(scratch.unwinding.work.bytes(), text)
    } else {
        // One byte more than a record can have is enough to be refused by size, so a text of any
        // length needs no more memory than that.
        long = units(text).take(MAX_RECORD + 1).collect::<Vec<u8>>();
        &long
    };
    write(slot, &Event { flags, ..Event::new(&descriptor, &[data]) })
}

/// Encodes a text as UTF-16 with its terminator, as far as there is room.
#[inline(always)]
fn fill<'a>(room: &'a mut [u8], text: &str) -> &'a [u8] {
    let mut length = 0;
    for (to, from) in room.iter_mut().zip(units(text)) {
        *to = from;
        length += 1;
    }
    room.get(..length).unwrap_or(&[])
}

/// Like [`write_string`], for UTF-16 text from a façade whose function calls this.
#[inline(never)]
pub(super) fn write_wide_string(slot: &Slot, level: u8, keyword: u64, text: &[u8]) -> Result<(), WriteError> {
    let descriptor = EventDescriptor { level, keyword, ..EventDescriptor::default() };
    let flags = EVENT_HEADER_FLAG_STRING_ONLY;
    let overrides = Overrides { depth: 1, ..Overrides::NONE };
    let (data, except) = ([text], Except::default());
    let event = Event { flags, ..Event::new(&descriptor, &data) };
    // No closure here: it would be a function between the caller and the record in an unoptimized
    // build.
    let Some(passed_cell) = check_filters(slot, &event) else { return Ok(()) };
    write_with_overrides(slot, &event, &overrides, passed_cell, except)
}

fn units(text: &str) -> impl Iterator<Item = u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes)
}

/// Returns the traits that an event carries: those of the registration, else those of the call.
#[inline(always)]
pub(super) fn traits_of<'a>(slot: &Slot, overrides: &Overrides<'a>) -> &'a [u8] {
    let traits = slot.traits();
    if traits.is_empty() { overrides.traits } else { traits }
}

/// Returns whether the items of a plain record fit into the staged words and its payload is one run
/// of blocks.
#[inline(always)]
fn is_small(slot: &Slot, what: &Event<'_>, traits: &[u8]) -> bool {
    let bytes = traits.len().saturating_add(what.metadata.map_or(0, <[u8]>::len));
    let is_decoded_otherwise = !traits.is_empty() && slot.decoding().is_some();
    !is_decoded_otherwise && !what.is_mixed && Stage::has_room_for_items(bytes.saturating_add(ITEMS_AROUND))
}

/// Composes the record of such an event and returns its size in bytes.
#[inline(always)]
fn compose_small<'a>(
    stage: &mut Stage<'a>,
    slot: &Slot,
    what: &Event<'a>,
    overrides: &Overrides<'_>,
    traits: &[u8],
    thread: u32,
) -> usize {
    stage.begin(header(slot, what, overrides, thread));
    if traits.is_empty() && what.metadata.is_none() && what.related.is_none() {
        return finish(stage, what, 0);
    }
    let behind_schema = what.related.is_some();
    let behind_traits = what.metadata.is_some() || behind_schema;
    let traits = (item_word(ExtType::PROV_TRAITS, traits.len(), behind_traits), traits);
    let schema = what
        .metadata
        .map(|metadata| (item_word(ExtType::EVENT_SCHEMA_TL, metadata.len(), behind_schema), metadata));
    let related = what.related.map(|id| {
        let [low, high] = id.to_words();
        [item_word(ExtType::RELATED_ACTIVITYID, 16, false), low, high]
    });
    stage.stage_items([(!traits.1.is_empty()).then_some(traits), schema], related);
    finish(stage, what, EVENT_HEADER_FLAG_EXTENDED_INFO)
}

/// Appends the payload, writes the first header word and returns the size in bytes.
#[inline(always)]
fn finish<'a>(stage: &mut Stage<'a>, what: &Event<'a>, flags: u16) -> usize {
    if what.is_mixed {
        stage.push_payload_among(what.data);
    } else {
        stage.push_payload(what.data);
    }
    stage.set_first(stage.size() as u64 | MARKER | u64::from(what.flags | flags) << 32);
    stage.size()
}

/// Like [`compose_small`], with any items. The size field of a record above [`MAX_RECORD`] is
/// wrong.
#[inline(never)]
pub(super) fn compose<'a>(
    stage: &mut Stage<'a>,
    slot: &Slot,
    what: &Event<'a>,
    overrides: &Overrides<'_>,
    thread: u32,
    items: &'a Items<'a>,
) -> usize {
    stage.begin(header(slot, what, overrides, thread));
    if items.any {
        if !items.traits.1.is_empty()
            && let Some(decoding) = slot.decoding()
        {
            decode_by(stage, decoding);
        }
        items.push_to(stage);
    }
    finish(stage, what, if items.any { EVENT_HEADER_FLAG_EXTENDED_INFO } else { 0 })
}

/// Returns EVENT_HEADER as words, except for the first word; the offsets are those of
/// `traceweir_format::header::event`.
#[inline(always)]
fn header(slot: &Slot, what: &Event<'_>, overrides: &Overrides<'_>, thread: u32) -> [u64; event::SIZE / 8] {
    let provider = slot.provider_words();
    let d = what.descriptor;
    let descriptor = u64::from(d.id)
        | u64::from(d.version) << 16
        | u64::from(d.channel) << 24
        | u64::from(d.level) << 32
        | u64::from(d.opcode) << 40
        | u64::from(d.task) << 48;
    let activity = match what.activity {
        Some(id) => id.to_words(),
        None => activity::current().to_words(),
    };
    let stamp = overrides.stamp.unwrap_or(0);
    [
        0,
        u64::from(thread),
        stamp,
        provider[0],
        provider[1],
        descriptor,
        d.keyword,
        0,
        activity[0],
        activity[1],
    ]
}

/// Sets the GUID to decode by, which differs from the provider.
#[cold]
fn decode_by(stage: &mut Stage<'_>, decoding: &'static Decoding) {
    stage.set_provider(decoding.provider);
    stage.push(&decoding.control);
}

/// Counts the event as lost in every session of these outlets that wants it, and returns whether
/// any does.
#[cold]
fn count_lost(slot: &Slot, what: &Event<'_>, outlets: u64) -> bool {
    let mut any = false;
    for enable in slot.session_enables() {
        if outlets & (1 << enable.outlet) != 0 && deliver::is_for(slot, &enable, what) {
            outlets::get(enable.outlet).count_lost(enable.ticket);
            any = true;
        }
    }
    any
}

/// Counts an event as lost because the pool is exhausted.
#[cold]
fn lose(slot: &Slot, what: &Event<'_>) -> Result<(), WriteError> {
    if count_lost(slot, what, u64::MAX) { Err(WriteError::NoRoom) } else { Ok(()) }
}

/// Handles a write in a forked child that has not registered again.
///
/// The parent's sessions that want the event count it as lost. A registration with sessions of the
/// child writes to those.
#[cold]
fn in_forked_child(slot: &Slot, what: &Event<'_>, inherited: u64) -> Result<u32, WriteError> {
    if count_lost(slot, what, inherited) { Err(WriteError::NoRoom) } else { Ok(fork::thread_id()) }
}
