//! Writing one event to every session that wants it.
//!
//! ```text
//!   handle? enabled? parameters? ──▶ forked? ──▶ header, items, payload on the stack ──▶ for each session that wants it: its outlet
//! ```
//!
//! The bytes are those of the file (`traceweir_format::header::event`), but for the time stamp and the process id, which are left zero: whoever owns the
//! session fills them in. Extended items come in this order: traits (12), schema (11), related activity (1).
//!
//! Invariants
//!
//! 1. Nothing is allocated, no lock is taken, the system is called at most to wake a session's owner: a signal handler may write.
//! 2. An event that was wanted ends up in a session's ring or in its count of losses.
//! 3. In a forked child that has not registered anew, no byte goes to a region of the parent; see `client::fork`.

use traceweir_format::Guid;
use traceweir_format::header::{MAX_RECORD, event};
use traceweir_format::spec::event::{EVENT_HEADER_FLAG_EXTENDED_INFO, EventDescriptor, ExtType, HeaderType};
use traceweir_transport::ring::Failure;

use super::registration::Slot;
use super::stage::Stage;
use super::{WriteError, activity, filter};
use crate::client::fork::{self, Writer};
use crate::client::outlets;

/// Blocks that one event may have.
pub const MAX_BLOCKS: usize = 128;

/// Bytes in front of the data of an extended item.
const ITEM_HEAD: usize = 8;
const ZEROS: [u8; 8] = [0; 8];

/// What is written, besides what the registration knows.
#[derive(Clone, Copy)]
pub(super) struct Event<'a> {
    pub(super) descriptor: &'a EventDescriptor,
    pub(super) flags: u16,
    pub(super) metadata: Option<&'a [u8]>,
    pub(super) activity: Option<&'a Guid>,
    pub(super) related: Option<&'a Guid>,
    pub(super) data: &'a [&'a [u8]],
}

impl<'a> Event<'a> {
    pub(super) const fn new(descriptor: &'a EventDescriptor, data: &'a [&'a [u8]]) -> Self {
        Self { descriptor, flags: 0, metadata: None, activity: None, related: None, data }
    }
}

/// Writes an event that the hot words let through.
#[inline(always)]
pub(super) fn write(slot: &Slot, what: &Event<'_>) -> Result<(), WriteError> {
    // Before there is a frame for the record: what a filter keeps back costs a fraction of what is written.
    if slot.is_filtered() && !filter::wanted(slot, what) {
        return Ok(());
    }
    write_wanted(slot, what)
}

#[inline(never)]
fn write_wanted(slot: &Slot, what: &Event<'_>) -> Result<(), WriteError> {
    if what.data.len() > MAX_BLOCKS {
        return Err(WriteError::InvalidParameter);
    }
    let thread = match fork::writer() {
        Writer::Thread(thread) => thread,
        Writer::Forked(inherited) => in_forked_child(slot, what, inherited)?,
    };
    let related = what.related.map(|g| g.to_bytes());
    let items = Items::new(slot.traits(), what.metadata, related.as_ref());
    let mut stage = Stage::empty();
    if compose(&mut stage, slot, what, thread, &items) > MAX_RECORD {
        count_lost(slot, what, u64::MAX);
        return Err(WriteError::TooLarge);
    }
    deliver(slot, what, thread, &mut stage)
}

/// The record on the stack; how many bytes it has. One with more than [`MAX_RECORD`] says something wrong about its size.
#[inline(always)]
fn compose<'a>(
    stage: &mut Stage<'a>,
    slot: &Slot,
    what: &Event<'a>,
    thread: u32,
    items: &'a Items<'a>,
) -> usize {
    stage.begin(header(slot, what, thread));
    if items.any {
        items.push_to(stage);
    }
    stage.push_all(what.data);
    let flags = what.flags | if items.any { EVENT_HEADER_FLAG_EXTENDED_INFO } else { 0 };
    let marker = u64::from(HeaderType::EVENT_HEADER64.0) << 16 | 0xC0 << 24;
    stage.set_first(stage.size() as u64 | marker | u64::from(flags) << 32);
    stage.size()
}

/// EVENT_HEADER as words, but for the first; the offsets are those of `traceweir_format::header::event`.
#[inline(always)]
fn header(slot: &Slot, what: &Event<'_>, thread: u32) -> [u64; event::SIZE / 8] {
    let provider = slot.provider_words();
    let d = what.descriptor;
    let descriptor = u64::from(d.id)
        | u64::from(d.version) << 16
        | u64::from(d.channel) << 24
        | u64::from(d.level) << 32
        | u64::from(d.opcode) << 40
        | u64::from(d.task) << 48;
    let activity = match what.activity {
        Some(id) => words_of(id),
        None => words_of(&activity::current()),
    };
    [0, u64::from(thread), 0, provider[0], provider[1], descriptor, d.keyword, 0, activity[0], activity[1]]
}

#[inline(always)]
fn words_of(id: &Guid) -> [u64; 2] {
    [
        u64::from(id.data1) | u64::from(id.data2) << 32 | u64::from(id.data3) << 48,
        u64::from_le_bytes(id.data4),
    ]
}

/// The extended items of one event: heads that stay on the stack until the record is written, and the data where it lies.
struct Items<'a> {
    any: bool,
    traits: ([u8; ITEM_HEAD], &'a [u8]),
    schema: ([u8; ITEM_HEAD], Option<&'a [u8]>),
    related: ([u8; ITEM_HEAD], Option<&'a [u8; 16]>),
}

impl<'a> Items<'a> {
    // Plain fields and no list: a list is filled here and read there, and that costs more than the whole event.
    #[inline(always)]
    fn new(traits: &'a [u8], metadata: Option<&'a [u8]>, related: Option<&'a [u8; 16]>) -> Self {
        let behind_traits = metadata.is_some() || related.is_some();
        Self {
            any: behind_traits || !traits.is_empty(),
            traits: (item_head(ExtType::PROV_TRAITS, traits.len(), behind_traits), traits),
            schema: (
                item_head(ExtType::EVENT_SCHEMA_TL, metadata.map_or(0, <[u8]>::len), related.is_some()),
                metadata,
            ),
            related: (item_head(ExtType::RELATED_ACTIVITYID, 16, false), related),
        }
    }

    #[inline(always)]
    fn push_to(&'a self, stage: &mut Stage<'a>) {
        if !self.traits.1.is_empty() {
            push_item(stage, &self.traits.0, self.traits.1);
        }
        if let Some(metadata) = self.schema.1 {
            push_item(stage, &self.schema.0, metadata);
        }
        if let Some(related) = self.related.1 {
            push_item(stage, &self.related.0, related);
        }
    }
}

/// What stands in front of an item's data. Sizes beyond 16 bits are cut: then the record is too large as well, and is refused by its own size.
#[inline(always)]
fn item_head(kind: ExtType, length: usize, another_follows: bool) -> [u8; ITEM_HEAD] {
    let whole = (ITEM_HEAD + length).next_multiple_of(8) as u16;
    let head = u64::from(whole)
        | u64::from(kind.0) << 16
        | u64::from(another_follows) << 32
        | u64::from(length as u16) << 48;
    head.to_le_bytes()
}

#[inline(always)]
fn push_item<'a>(stage: &mut Stage<'a>, head: &'a [u8; ITEM_HEAD], data: &'a [u8]) {
    stage.push(head);
    stage.push(data);
    stage.push(&ZEROS[..data.len().wrapping_neg() % 8]);
}

/// Hands the record to every session that wants it; the first failure is returned.
#[inline(always)]
fn deliver(slot: &Slot, what: &Event<'_>, thread: u32, stage: &mut Stage<'_>) -> Result<(), WriteError> {
    let mut result = Ok(());
    for wish in slot.wishes() {
        if !wish.takes(what.descriptor.level, what.descriptor.keyword) {
            continue;
        }
        if wish.filtered && !filter::passes(slot, &wish, what) {
            continue;
        }
        let failure = match outlets::get(wish.outlet).write(wish.ticket, thread, &mut stage.gather()) {
            // Closed: the session ended while we were on the way. Nobody wants the event any more.
            Ok(()) | Err(Failure::Closed) => continue,
            Err(Failure::Full) => WriteError::NoRoom,
            Err(Failure::TooLarge) => WriteError::MoreData,
        };
        result = result.and(Err(failure));
    }
    result
}

/// Counts the event in every session behind these outlets that wants it. Whether any does.
#[cold]
fn count_lost(slot: &Slot, what: &Event<'_>, outlets: u64) -> bool {
    let mut any = false;
    let d = what.descriptor;
    for wish in slot.wishes() {
        let takes = wish.takes(d.level, d.keyword) && (!wish.filtered || filter::passes(slot, &wish, what));
        if takes && outlets & (1 << wish.outlet) != 0 {
            outlets::get(wish.outlet).count_lost(wish.ticket);
            any = true;
        }
    }
    any
}

/// Before a forked child has registered anew: what the parent's sessions want is counted there as lost; a registration that has sessions of
/// the child's own by now writes to those.
#[cold]
fn in_forked_child(slot: &Slot, what: &Event<'_>, inherited: u64) -> Result<u32, WriteError> {
    if count_lost(slot, what, inherited) { Err(WriteError::NoRoom) } else { Ok(fork::thread_id()) }
}

#[cfg(test)]
mod tests {
    use traceweir_format::header::event::EventHeader;
    use traceweir_format::header::extended::Item;

    use super::*;
    use crate::provider::registration::{Handle, Traits};

    const PROVIDER: Guid = Guid::from_u128(0x11223344_5566_7788_99aa_bbccddeeff00);

    fn composed(slot: &Slot, what: &Event<'_>) -> Vec<u8> {
        let related = what.related.map(|g| g.to_bytes());
        let items = Items::new(slot.traits(), what.metadata, related.as_ref());
        let mut stage = Stage::empty();
        compose(&mut stage, slot, what, 4711, &items);
        let gather = stage.gather();
        let mut bytes: Vec<u8> = gather.staged.iter().flat_map(|w| w.to_ne_bytes()).collect();
        bytes.truncate(16 + gather.staged_bytes);
        bytes.drain(..16);
        gather.rest.iter().for_each(|p| bytes.extend_from_slice(p));
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn encoded(what: &Event<'_>, traits: &[u8], activity: Guid) -> Vec<u8> {
        let related = what.related.map(|g| g.to_bytes());
        let mut items = Vec::new();
        if !traits.is_empty() {
            items.push(Item { kind: ExtType::PROV_TRAITS, data: traits });
        }
        items.extend(what.metadata.map(|data| Item { kind: ExtType::EVENT_SCHEMA_TL, data }));
        items.extend(related.as_ref().map(|data| Item { kind: ExtType::RELATED_ACTIVITYID, data }));
        let header = EventHeader {
            flags: what.flags,
            thread_id: 4711,
            provider: PROVIDER,
            descriptor: *what.descriptor,
            activity,
            items: &items,
            ..EventHeader::default()
        };
        let mut out = Vec::new();
        header.encode(&what.data.concat(), &mut out).unwrap();
        out
    }

    #[test]
    fn every_event_has_the_bytes_that_the_format_gives_it() {
        let descriptor = EventDescriptor {
            id: 0x1234,
            version: 5,
            channel: 11,
            level: 4,
            opcode: 9,
            task: 0xBEEF,
            keyword: 0x8000_0000_0000_0012,
        };
        let (mine, other) = (activity::create(), activity::create());
        activity::set(mine);
        let long: Vec<u8> = (0..3000u32).map(|i| i as u8).collect();
        for traits_len in [0, 5, 8, 70, 900] {
            let traits: &'static Traits = Box::leak(Box::new(Traits(long[..traits_len].into())));
            let handle = Handle::claim(PROVIDER, (traits_len != 0).then_some(traits), None).unwrap();
            for metadata in [None, Some(&long[..0]), Some(&long[..13]), Some(&long[7..1200])] {
                for (activity, related) in [(None, None), (Some(&other), Some(&mine))] {
                    for lengths in [&[][..], &[3], &[8, 4, 2], &[200], &[5, 64, 65, 1], &[16; 100]] {
                        let data: Vec<&[u8]> = lengths.iter().map(|n| &long[*n..2 * n]).collect();
                        let what =
                            Event { flags: 4, metadata, activity, related, ..Event::new(&descriptor, &data) };
                        let want = encoded(&what, &long[..traits_len], *activity.unwrap_or(&mine));
                        assert_eq!(composed(handle.slot(), &what), want, "{traits_len} {lengths:?}");
                    }
                }
            }
            assert!(handle.retire());
            handle.release();
        }
    }
}
