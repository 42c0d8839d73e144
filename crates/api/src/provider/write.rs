//! Writing one event to every session that wants it.
//!
//! ```text
//!   handle? enabled? parameters? ──▶ forked? ──▶ header, items, small blocks on the stack ──▶ for each session that wants it: its outlet
//! ```
//!
//! The bytes are those of the file (`traceweir_format::header::event`), but for the time stamp and the process id, which are left zero: whoever owns the
//! session fills them in. Extended items come in this order: traits (12), schema (11), related activity (1), event key (10), stack (6). Where the traits name a
//! GUID to decode by, that one stands in the header, and the provider's own in an item (14) in front of all others.
//!
//! ```text
//!   one session that asks for nothing but the event  ──▶ straight: from where the pieces lie into the ring (straight.rs)
//!     not possible right now, or several sessions    ──▶ put together on the stack, then `deliver`
//!   a session that asks for more, or large metadata  ──▶ put together in memory of a pool (scratch.rs), then `deliver`
//! ```
//!
//! Invariants
//!
//! 1. Nothing is allocated, no lock is taken, the system is called at most to wake a session's owner: a signal handler may write.
//! 2. An event that was wanted ends up in a session's ring or in its count of losses, unless it is refused as wrong or too large for any session.
//! 3. At most 2 KiB of stack are used, whatever the event has and sessions ask for: blocks stay where the caller described them, and what needs more room is put
//!    together in a pool (scratch.rs). A pool that is empty is a loss like any other.
//! 4. In a forked child that has not registered anew, no byte goes to a region of the parent; see `client::fork`.

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

/// What the first word of a header says besides size and flags.
const MARKER: u64 = (HeaderType::EVENT_HEADER64.0 as u64) << 16 | 0xC0 << 24;

/// Blocks that one event may have.
pub const MAX_BLOCKS: usize = 128;

/// Bytes of the usual items besides traits and metadata: heads and padding of both, and a related activity.
const ITEMS_AROUND: usize = 2 * (ITEM_HEAD + 7) + ITEM_HEAD + 16;
/// Bytes of strings that are written from the stack.
const SHORT_STRING: usize = 256;

/// What is written, besides what the registration knows.
#[derive(Clone, Copy)]
pub(super) struct Event<'a> {
    pub(super) descriptor: &'a EventDescriptor,
    pub(super) flags: u16,
    pub(super) metadata: Option<&'a [u8]>,
    pub(super) activity: Option<&'a Guid>,
    pub(super) related: Option<&'a Guid>,
    /// The payload where it lies.
    pub(super) data: &'a [Block<'a>],
    /// Blocks that are no payload stand in `data`, too, and are left out.
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

    /// The blocks of payload, one after the other.
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

/// What a caller gives with one event in place of what the registration or the session's owner knows.
///
/// Apart from [`Event`], and looked at in functions of its own: the usual event has none of it and pays for none.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    /// The provider's metadata, for a registration without traits.
    pub(super) traits: &'a [u8],
    /// The time stamp, in the clock of the session.
    pub(super) stamp: Option<u64>,
    /// Functions of this library between the caller and the frame that the event lies in.
    pub(super) depth: usize,
}

impl Given<'_> {
    pub(super) const NOTHING: Self = Self { traits: &[], stamp: None, depth: 0 };

    /// Flags of a record in the ring.
    #[inline(always)]
    pub(super) fn ring_flags(&self) -> u16 {
        if self.stamp.is_some() { KEEP_STAMP } else { 0 }
    }
}

/// Writes an event that the hot words let through.
#[inline(always)]
pub(super) fn write(slot: &Slot, what: &Event<'_>) -> Result<(), WriteError> {
    // Before there is a frame for the record: what a filter keeps back costs a fraction of what is written.
    let Some(asked) = asked(slot, what) else { return Ok(()) };
    // Laid down only now, where it is written.
    let what = *what;
    write_wanted(slot, &what, asked)
}

/// The cell of an only session's filters if they let the event through, 0 where nobody was asked or several were; `None` where nobody wants it.
///
/// The answer is for these filters alone: sessions come and go between this look at them and the next.
#[inline(always)]
pub(super) fn asked(slot: &Slot, what: &Event<'_>) -> Option<u16> {
    let Some(only) = slot.filters_of_all() else { return Some(0) };
    filter::wanted(slot, only, what).then_some(only)
}

#[inline(never)]
fn write_wanted(slot: &Slot, what: &Event<'_>, asked: u16) -> Result<(), WriteError> {
    let Some(blocks) = Blocks::of_slices(what.data) else { return too_large(what) };
    if straight::write_blocks(slot, what, blocks, asked) {
        return Ok(());
    }
    let given = &Given::NOTHING;
    staged(slot, what, given, asked, Except::default())
}

/// A block is larger than any record.
#[cold]
fn too_large(what: &Event<'_>) -> Result<(), WriteError> {
    Err(if what.data.len() > MAX_BLOCKS { WriteError::InvalidParameter } else { WriteError::TooLarge })
}

/// Writes an event whose blocks are described already; `what` has none. The caller has asked for its level and keyword.
// Blocks are added up where they are made: as a rule the compiler knows most of their sizes there.
#[inline(always)]
pub(super) fn write_blocks(slot: &Slot, what: &Event<'_>, blocks: Blocks<'_>) -> Result<(), WriteError> {
    let Some(asked) = asked(slot, what) else { return Ok(()) };
    let what = *what;
    write_wanted_blocks(slot, &what, blocks, asked)
}

/// The same of a self-described event without activities of its own. All that is handed on is in registers.
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
    let Some(asked) = asked(slot, &event) else { return Ok(()) };
    write_longer(slot, &event, blocks, asked)
}

#[inline(never)]
fn write_wanted_blocks(
    slot: &Slot,
    what: &Event<'_>,
    blocks: Blocks<'_>,
    asked: u16,
) -> Result<(), WriteError> {
    if straight::write_blocks(slot, what, blocks, asked) {
        return Ok(());
    }
    write_longer(slot, what, blocks, asked)
}

/// The longer way of an event whose blocks are described. Part of whoever calls it, which is one function below the program's.
#[inline(always)]
fn write_longer(slot: &Slot, what: &Event<'_>, blocks: Blocks<'_>, asked: u16) -> Result<(), WriteError> {
    let given = Given { depth: 1, ..Given::NOTHING };
    write_given(slot, &Event { data: blocks.all(), ..*what }, &given, asked, Except::default())
}

/// Writes an event that came with more than an event usually does, and not to everybody. `asked` is what [`asked()`] said of it.
#[inline(never)]
pub(super) fn write_given(
    slot: &Slot,
    what: &Event<'_>,
    given: &Given<'_>,
    asked: u16,
    except: Except,
) -> Result<(), WriteError> {
    staged(slot, what, given, asked, except)
}

/// The same, but not to everybody.
#[inline(never)]
pub(super) fn write_except(slot: &Slot, what: &Event<'_>, except: Except) -> Result<(), WriteError> {
    if asked(slot, what).is_none() {
        return Ok(());
    }
    if Blocks::of_slices(what.data).is_none() {
        return too_large(what);
    }
    let given = &Given::NOTHING;
    staged(slot, what, given, 0, except)
}

/// Finds out who gets the event, has the record put together and written. Part of whoever calls it, which call stacks begin behind.
///
/// The record is put together in another function: filters and call stacks, which need more stack than others, are done with before there is a frame with a
/// record in it, or are for records that lie in the pool.
#[inline(always)]
fn staged(
    slot: &Slot,
    what: &Event<'_>,
    given: &Given<'_>,
    asked: u16,
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
    let mut delivery = Delivery::new(slot, what, given, thread);
    delivery.choose(except, asked);
    if delivery.is_for_nobody() {
        return Ok(());
    }
    if !delivery.is_rich() && is_small(slot, what, traits_of(slot, given)) {
        return write_from_stack(&mut delivery);
    }
    delivery.write_from_pool(std::hint::black_box(&raw const mark).addr())
}

/// Puts the record together in this function's frame.
#[inline(never)]
fn write_from_stack(delivery: &mut Delivery<'_>) -> Result<(), WriteError> {
    let Delivery { slot, what, given, thread, .. } = *delivery;
    let mut words = Stage::EMPTY;
    let mut stage = Stage::new(&mut words);
    let size = compose_small(&mut stage, slot, what, given, traits_of(slot, given), thread);
    if size > MAX_RECORD {
        return Err(WriteError::TooLarge);
    }
    delivery.write_all(size, Source::Stack(&mut stage))
}

/// Writes a string as an event: UTF-16 with its terminator, no id, the thread's activity.
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
        // One more than a record can have is enough to be refused by its size: a text of any length costs no more memory than that.
        long = units(text).take(MAX_RECORD + 1).collect::<Vec<u8>>();
        &long
    };
    write(slot, &Event { flags, ..Event::new(&descriptor, &[data]) })
}

/// A text in UTF-16 with its terminator, as far as there is room.
#[inline(always)]
fn fill<'a>(room: &'a mut [u8], text: &str) -> &'a [u8] {
    let mut length = 0;
    for (to, from) in room.iter_mut().zip(units(text)) {
        *to = from;
        length += 1;
    }
    room.get(..length).unwrap_or(&[])
}

/// The same of a text that is UTF-16 already, for a façade whose function calls this.
#[inline(never)]
pub(super) fn write_wide_string(slot: &Slot, level: u8, keyword: u64, text: &[u8]) -> Result<(), WriteError> {
    let descriptor = EventDescriptor { level, keyword, ..EventDescriptor::default() };
    let flags = EVENT_HEADER_FLAG_STRING_ONLY;
    let given = Given { depth: 1, ..Given::NOTHING };
    let (data, except) = ([text], Except::default());
    let event = Event { flags, ..Event::new(&descriptor, &data) };
    // No closure here: it would be a function between the caller and the record in a build without optimization.
    let Some(asked) = asked(slot, &event) else { return Ok(()) };
    write_given(slot, &event, &given, asked, except)
}

fn units(text: &str) -> impl Iterator<Item = u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes)
}

/// The traits that an event carries: those of the registration, else those that came with it.
#[inline(always)]
pub(super) fn traits_of<'a>(slot: &Slot, given: &Given<'a>) -> &'a [u8] {
    let traits = slot.traits();
    if traits.is_empty() { given.traits } else { traits }
}

/// Whether a record without anything that only some sessions get has its items in the staged words, and its payload in one run of blocks.
#[inline(always)]
fn is_small(slot: &Slot, what: &Event<'_>, traits: &[u8]) -> bool {
    let bytes = traits.len().saturating_add(what.metadata.map_or(0, <[u8]>::len));
    let is_decoded_otherwise = !traits.is_empty() && slot.decoding().is_some();
    !is_decoded_otherwise && !what.is_mixed && Stage::has_room_for_items(bytes.saturating_add(ITEMS_AROUND))
}

/// The record of such an event; how many bytes it has.
#[inline(always)]
fn compose_small<'a>(
    stage: &mut Stage<'a>,
    slot: &Slot,
    what: &Event<'a>,
    given: &Given<'_>,
    traits: &[u8],
    thread: u32,
) -> usize {
    stage.begin(header(slot, what, given, thread));
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

/// Appends the payload and says what the record is.
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

/// The same with any items. A record with more than [`MAX_RECORD`] says something wrong about its size.
#[inline(never)]
pub(super) fn compose<'a>(
    stage: &mut Stage<'a>,
    slot: &Slot,
    what: &Event<'a>,
    given: &Given<'_>,
    thread: u32,
    items: &'a Items<'a>,
) -> usize {
    stage.begin(header(slot, what, given, thread));
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

/// EVENT_HEADER as words, but for the first; the offsets are those of `traceweir_format::header::event`.
#[inline(always)]
fn header(slot: &Slot, what: &Event<'_>, given: &Given<'_>, thread: u32) -> [u64; event::SIZE / 8] {
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
    let stamp = given.stamp.unwrap_or(0);
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

/// The provider is one thing, what its events are decoded by another.
#[cold]
fn decode_by(stage: &mut Stage<'_>, decoding: &'static Decoding) {
    stage.set_provider(decoding.provider);
    stage.push(&decoding.control);
}

/// Counts the event in every session behind these outlets that wants it. Whether any does.
#[cold]
fn count_lost(slot: &Slot, what: &Event<'_>, outlets: u64) -> bool {
    let mut any = false;
    for wish in slot.wishes() {
        if outlets & (1 << wish.outlet) != 0 && deliver::is_for(slot, &wish, what) {
            outlets::get(wish.outlet).count_lost(wish.ticket);
            any = true;
        }
    }
    any
}

/// Counts an event for which there is no memory.
#[cold]
fn lose(slot: &Slot, what: &Event<'_>) -> Result<(), WriteError> {
    if count_lost(slot, what, u64::MAX) { Err(WriteError::NoRoom) } else { Ok(()) }
}

/// Before a forked child has registered anew: what the parent's sessions want is counted there as lost; a registration that has sessions of
/// the child's own by now writes to those.
#[cold]
fn in_forked_child(slot: &Slot, what: &Event<'_>, inherited: u64) -> Result<u32, WriteError> {
    if count_lost(slot, what, inherited) { Err(WriteError::NoRoom) } else { Ok(fork::thread_id()) }
}
