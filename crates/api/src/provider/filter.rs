//! Which events pass the filters of a session, and which get a stack.
//!
//! ```text
//!   enable ──▶ compile: filters → words ──▶ cells: a place in memory that is never given back ──▶ its number in the entry (`enable`)
//!   write  ──▶ wanted: do all sessions have filters, and does none let the event through? nothing more is done
//!          ──▶ passes: for each session with filters
//!          ──▶ wants_stack: for each session that wants stacks
//! ```
//!
//! | Filter | of manifest events | of TraceLogging events |
//! |---|---|---|
//! | event ids | listed, or not listed | ignored |
//! | payload | predicates of its id and version | ignored |
//! | event names | ignored | of those in the level/keyword part: listed, or not listed |
//! | stacks by id, by name | as above | as above |
//! | stacks by level and keyword | admitted, or not admitted | the same |
//!
//! An event with metadata of its own is a TraceLogging event. All filters of a kind must pass.
//!
//! Invariants
//!
//! 1. Looking takes no lock, allocates nothing and waits for nobody; see `cells` for why that is sound.
//! 2. A filter that changes while it is looked at lets the event pass: one event at the moment of change.
//! 3. An event of a session without filters is not looked at here at all.

mod bytes;
mod cells;
mod compile;
mod payload;
mod table;
#[cfg(test)]
mod tests;

use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_STACK_TRACE as STACK_TRACE;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::Filter;

use super::enable::Wish;
use super::registration::Slot;
use super::write::Event;
use cells::Words;
use compile::{IDS, NAMES, OWN, PAYLOAD, SCHEMATIZED, STACK_IDS, STACK_LEVEL_KW, STACK_NAMES};
use table::Sight;

/// The channel of TraceLogging events.
const TRACELOGGING: u8 = 11;

/// The filters of one session for one registration: a number, and what they are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filters {
    /// The cell; 0: none. Twelve bits.
    pub(super) number: u16,
    /// Some decide about events.
    pub(super) of_events: bool,
    /// Some decide about stacks.
    pub(super) of_stacks: bool,
}

const _: () = assert!(cells::CELLS <= 1 << 12);

impl Filters {
    /// Compiles the filters of an enable call. They are in use until [`release`](Self::release).
    pub(super) fn of(filters: &[Filter]) -> Result<Self, Refused> {
        let compiled = compile::compile(filters).map_err(|_| Refused::Invalid)?;
        if compiled.words.is_empty() {
            return Ok(Self::default());
        }
        let number = cells::intern(&compiled.words).ok_or(Refused::NoRoom)?;
        Ok(Self { number, of_events: compiled.of_events, of_stacks: compiled.of_stacks })
    }

    /// They are not named by an entry any more.
    pub(super) fn release(self) {
        cells::release(self.number);
    }

    /// The schematized filter, if there is one.
    pub(super) fn schematized(self) -> Option<Vec<u8>> {
        cells::read(self.number, |words| {
            let at = words.size(SCHEMATIZED);
            (at != 0).then(|| stored(words, at))
        })?
    }

    /// The filters whose types the provider defines.
    pub(super) fn own(self) -> Vec<(u32, Vec<u8>)> {
        let read = cells::read(self.number, |words| {
            let at = words.size(OWN);
            let mut next = at + 1;
            (0..if at == 0 { 0 } else { words.size(at) })
                .map_while(|_| {
                    let (kind, data) = ((words.get(next) >> 32) as u32, stored(words, next));
                    next += 1 + data.len().div_ceil(8);
                    (kind != 0).then_some((kind, data))
                })
                .collect()
        });
        read.unwrap_or_default()
    }
}

/// Why filters are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// They break a rule.
    Invalid,
    /// The process has too many.
    NoRoom,
}

impl Refused {
    /// Status and reason.
    pub(crate) const fn reason(self) -> (Status, &'static str) {
        match self {
            Self::Invalid => (Status::ERROR_INVALID_PARAMETER, "a filter is not as its type says"),
            Self::NoRoom => {
                (Status::ERROR_NO_SYSTEM_RESOURCES, "this process has too many filters; disable some")
            }
        }
    }
}

/// Bytes behind their number.
fn stored(words: Words<'_>, at: usize) -> Vec<u8> {
    let length = words.get(at) as u16;
    let bytes = (1..=usize::from(length).div_ceil(8)).flat_map(|i| words.get(at + i).to_le_bytes());
    bytes.take(length.into()).collect()
}

/// Whether filters of strangers pass an event, as a session's would; `None` where they are refused. For fuzzing.
#[doc(hidden)]
#[must_use]
pub fn filters_pass(filters: &[Filter], descriptor: &EventDescriptor, data: &[&[u8]]) -> Option<bool> {
    let filters = Filters::of(filters).ok()?;
    let passes = cells::read(filters.number, |words| pass(words, &Event::new(descriptor, data)));
    filters.release();
    Some(passes.unwrap_or(true))
}

/// Whether an event that level and keyword let through passes the session's filters.
#[inline(never)]
pub(super) fn passes(_slot: &Slot, wish: &Wish, event: &Event<'_>) -> bool {
    cells::read(wish.filters.number, |words| pass(words, event)).unwrap_or(true)
}

#[inline(always)]
fn pass(words: Words<'_>, event: &Event<'_>) -> bool {
    let d = event.descriptor;
    if let Some(metadata) = event.metadata {
        let names = words.size(NAMES);
        return names == 0 || table::name_passes(words, names, d.level, d.keyword, metadata);
    }
    let (ids, payload) = (words.size(IDS), words.size(PAYLOAD));
    (ids == 0 || table::id_passes(words, ids, d.id))
        && (payload == 0 || payload::passes(words, payload, event))
}

/// Where all sessions have filters: whether one of them wants the event. Asked before anything is put together. `only` is the cell of the only
/// session's filters as the caller saw it ([`Slot::filters_of_all`]), 0 where there are several: it may be another one at any time.
#[inline(always)] // Whoever writes knows which it is.
pub(super) fn wanted(slot: &Slot, only: u16, event: &Event<'_>) -> bool {
    // By value: an event that is kept back at sight never has to lie in memory.
    let at_sight = match event.metadata {
        Some(metadata) => named_at_sight(only, metadata),
        None => numbered_at_sight(only, event.descriptor.id),
    };
    match at_sight {
        Sight::Passes => true,
        Sight::Fails => false,
        Sight::Unclear => {
            let event = *event;
            wanted_by_all_means(slot, only, &event)
        }
    }
}

#[inline(never)]
fn named_at_sight(only: u16, metadata: &[u8]) -> Sight {
    at_sight(only, |words| match words.size(NAMES) {
        0 => Sight::Passes,
        names => table::name_at_sight(words.section(names), metadata),
    })
}

#[inline(never)]
fn numbered_at_sight(only: u16, id: u16) -> Sight {
    at_sight(only, |words| {
        let ids = words.size(IDS);
        if ids != 0 && !table::id_passes(words, ids, id) {
            return Sight::Fails;
        }
        if words.get(PAYLOAD) == 0 { Sight::Passes } else { Sight::Unclear }
    })
}

#[inline(always)]
fn at_sight(only: u16, look: impl FnOnce(Words<'_>) -> Sight) -> Sight {
    // Number 0 holds nothing.
    if only == 0 { Sight::Unclear } else { cells::read(only, look).unwrap_or(Sight::Passes) }
}

#[cold]
#[inline(never)]
fn wanted_by_all_means(slot: &Slot, only: u16, event: &Event<'_>) -> bool {
    if only == 0 {
        return wanted_by_any(slot, event);
    }
    cells::read(only, |words| pass(words, event)).unwrap_or(true)
}

#[inline(never)]
fn wanted_by_any(slot: &Slot, event: &Event<'_>) -> bool {
    let d = event.descriptor;
    slot.wishes().any(|wish| wish.takes(d.level, d.keyword) && (!wish.filtered || passes(slot, &wish, event)))
}

/// Whether a session may want an event, as far as its descriptor tells: level, keyword and id.
pub(super) fn may_want(slot: &Slot, d: &EventDescriptor) -> bool {
    d.channel == TRACELOGGING
        || slot.wishes().any(|wish| {
            let id_passes = |words: Words<'_>| {
                let ids = words.size(IDS);
                ids == 0 || table::id_passes(words, ids, d.id)
            };
            wish.takes(d.level, d.keyword)
                && (!wish.filtered || cells::read(wish.filters.number, id_passes).unwrap_or(true))
        })
}

/// Whether the session wants the stack of an event that it gets.
#[inline]
pub(super) fn wants_stack(_slot: &Slot, wish: &Wish, event: &Event<'_>) -> bool {
    wish.property & STACK_TRACE != 0 && (!wish.filters.of_stacks || stack_passes(wish, event))
}

fn stack_passes(wish: &Wish, event: &Event<'_>) -> bool {
    cells::read(wish.filters.number, |words| {
        let d = event.descriptor;
        let by_kind = match event.metadata {
            None => {
                let ids = words.size(STACK_IDS);
                ids == 0 || table::id_passes(words, ids, d.id)
            }
            Some(metadata) => {
                let names = words.size(STACK_NAMES);
                names == 0 || table::name_passes(words, names, d.level, d.keyword, metadata)
            }
        };
        let gate = words.size(STACK_LEVEL_KW);
        by_kind && (gate == 0 || table::level_keyword_passes(words, gate, d.level, d.keyword))
    })
    .unwrap_or(true)
}
