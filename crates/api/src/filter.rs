//! Event filters of sessions: which events pass, and which get a stack.
//!
//! ```text
//!   enable ──▶ compile: filters → words ──▶ cells: memory that is never freed
//!          ──▶ cell number in the entry (`registration::enable`)
//!   write  ──▶ quick_check: if all sessions have filters; most events are decided here
//!          ──▶ passes: for each session with filters
//!          ──▶ stack_passes: for each session that requests stacks and has filters for them
//! ```
//!
//! | Filter | manifest events | TraceLogging events |
//! |---|---|---|
//! | event ids | listed, or not listed | ignored |
//! | payload | predicates of its id and version | ignored |
//! | event names | ignored | among those of the level/keyword part: listed, or not listed |
//! | stacks by id, by name | as above | as above |
//! | stacks by level and keyword | admitted, or not admitted | the same |
//!
//! A filter passes either the events that it lists or those that it does not list; in the same way,
//! a filter by level and keyword passes the admitted events or the others.
//!
//! An event with its own metadata is a TraceLogging event. A name filter may have a level/keyword
//! part, and then applies only to the events that this part admits. All filters of the session that
//! apply to an event must pass it.
//!
//! | File | Contents |
//! |---|---|
//! | `compile` | filters as words that writers can search |
//! | `cells` | the memory of these words |
//! | `table` | search for ids and names |
//! | `payload`, `bytes` | payload filters; the payload as one run of bytes |
//!
//! Invariants
//!
//! 1. A check takes no lock, allocates nothing and does not wait; see `cells` for why that is
//!    sound.
//! 2. A filter that changes during a check passes the event. That concerns only an event that is
//!    written at the moment of the change.
//! 3. For a session without filters, no event is checked here.

mod bytes;
mod cells;
mod compile;
mod payload;
mod table;
#[cfg(test)]
mod tests;

use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::Filter;

use crate::event::CallerEvent;
use cells::CellWords;
use compile::{
    CompiledFilters, IDS, NAMES, PAYLOAD, PROVIDER_DEFINED, SCHEMATIZED, STACK_IDS, STACK_LEVEL_KW,
    STACK_NAMES,
};
pub(crate) use table::QuickResult;

/// The filters of one session for one registration: the number of their cell, and whether they
/// decide about events and stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionFilters {
    /// The cell number, twelve bits; 0 for none.
    pub(crate) cell: u16,
    /// Some filters decide about events.
    pub(crate) has_event_filters: bool,
    /// Some filters decide about stacks.
    pub(crate) has_stack_filters: bool,
}

const _: () = assert!(cells::MAX_CELLS <= 1 << 12);

impl SessionFilters {
    /// Compiles the filters of an enable call, and holds their cell until
    /// [`release`](Self::release).
    pub(crate) fn compile(filters: &[Filter]) -> Result<Self, FilterRefusal> {
        let compiled = compile::compile(filters).map_err(|_| FilterRefusal::Invalid)?;
        if compiled.words.is_empty() {
            return Ok(Self::default());
        }
        let cell = cells::intern(&compiled.words).ok_or(FilterRefusal::TooMany)?;
        let CompiledFilters { has_event_filters, has_stack_filters, .. } = compiled;
        Ok(Self { cell, has_event_filters, has_stack_filters })
    }

    /// Releases the cell when no entry names it any more.
    pub(crate) fn release(self) {
        cells::release(self.cell);
    }

    /// Returns the schematized filter as the controller sent it.
    pub(crate) fn schematized(self) -> Option<Vec<u8>> {
        cells::read(self.cell, |words| {
            let at = words.size(SCHEMATIZED);
            (at != 0).then(|| read_stored_bytes(words, at))
        })?
    }

    /// Returns the filters whose types the provider defines.
    pub(crate) fn provider_defined(self) -> Vec<(u32, Vec<u8>)> {
        let filters = cells::read(self.cell, |words| {
            let at = words.size(PROVIDER_DEFINED);
            let mut next = at + 1;
            (0..if at == 0 { 0 } else { words.size(at) })
                .map_while(|_| {
                    let (kind, data) = ((words.get(next) >> 32) as u32, read_stored_bytes(words, next));
                    next += 1 + data.len().div_ceil(8);
                    (kind != 0).then_some((kind, data))
                })
                .collect()
        });
        filters.unwrap_or_default()
    }
}

/// The reason why filters are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilterRefusal {
    /// A filter breaks a rule of its type.
    Invalid,
    /// The process has too many filters.
    TooMany,
}

impl FilterRefusal {
    /// Returns the status and the text of the reason.
    pub(crate) const fn reason(self) -> (Status, &'static str) {
        match self {
            Self::Invalid => (Status::ERROR_INVALID_PARAMETER, "a filter is malformed for its type"),
            Self::TooMany => {
                (Status::ERROR_NO_SYSTEM_RESOURCES, "this process has too many filters; disable some")
            }
        }
    }
}

/// Returns the bytes that follow their length word.
fn read_stored_bytes(words: CellWords<'_>, at: usize) -> Vec<u8> {
    let length = words.get(at) as u16;
    let bytes = (1..=usize::from(length).div_ceil(8)).flat_map(|i| words.get(at + i).to_le_bytes());
    bytes.take(length.into()).collect()
}

/// Returns whether untrusted filters pass an event, as the filters of a session would; `None` if
/// they are refused. For fuzzing.
#[doc(hidden)]
#[must_use]
pub fn filters_pass(filters: &[Filter], descriptor: &EventDescriptor, data: &[&[u8]]) -> Option<bool> {
    let filters = SessionFilters::compile(filters).ok()?;
    let passes = cells::read(filters.cell, |words| check_event(words, &CallerEvent::new(descriptor, data)));
    filters.release();
    Some(passes.unwrap_or(true))
}

/// Returns whether the filters of a cell pass an event that passed level and keyword.
#[inline(never)]
pub(crate) fn passes(cell: u16, event: &CallerEvent<'_>) -> bool {
    cells::read(cell, |words| check_event(words, event)).unwrap_or(true)
}

#[inline(always)]
fn check_event(words: CellWords<'_>, event: &CallerEvent<'_>) -> bool {
    let d = event.descriptor;
    if let Some(metadata) = event.metadata {
        let names = words.size(NAMES);
        return names == 0 || table::name_passes(words, names, d.level, d.keyword, metadata);
    }
    let (ids, payload) = (words.size(IDS), words.size(PAYLOAD));
    (ids == 0 || table::id_passes(words, ids, d.id))
        && (payload == 0 || payload::passes(words, payload, event))
}

/// Checks an event against the filters of a cell by its name or id alone, before a record is
/// composed. Cell 0 holds nothing and decides nothing.
#[inline(always)] // The writer knows which kind of event it has.
pub(crate) fn quick_check(cell: u16, event: &CallerEvent<'_>) -> QuickResult {
    // The arguments are values, so an event that this check rejects need not be stored in memory.
    match event.metadata {
        Some(metadata) => quick_check_name(cell, metadata),
        None => quick_check_id(cell, event.descriptor.id),
    }
}

#[inline(never)]
fn quick_check_name(cell: u16, metadata: &[u8]) -> QuickResult {
    quick_check_words(cell, |words| match words.size(NAMES) {
        0 => QuickResult::Passes,
        names => table::quick_check_name(words.section(names), metadata),
    })
}

#[inline(never)]
fn quick_check_id(cell: u16, id: u16) -> QuickResult {
    quick_check_words(cell, |words| {
        let ids = words.size(IDS);
        if ids != 0 && !table::id_passes(words, ids, id) {
            return QuickResult::Fails;
        }
        if words.get(PAYLOAD) == 0 { QuickResult::Passes } else { QuickResult::Unclear }
    })
}

#[inline(always)]
fn quick_check_words(cell: u16, check: impl FnOnce(CellWords<'_>) -> QuickResult) -> QuickResult {
    if cell == 0 { QuickResult::Unclear } else { cells::read(cell, check).unwrap_or(QuickResult::Passes) }
}

/// Returns whether the filters of a cell may pass a manifest event with this id.
pub(crate) fn id_passes(cell: u16, id: u16) -> bool {
    let passes = cells::read(cell, |words| {
        let ids = words.size(IDS);
        ids == 0 || table::id_passes(words, ids, id)
    });
    passes.unwrap_or(true)
}

/// Returns whether the filters of a cell pass the stack of an event.
pub(crate) fn stack_passes(cell: u16, event: &CallerEvent<'_>) -> bool {
    cells::read(cell, |words| {
        let d = event.descriptor;
        let is_listed = match event.metadata {
            None => {
                let ids = words.size(STACK_IDS);
                ids == 0 || table::id_passes(words, ids, d.id)
            }
            Some(metadata) => {
                let names = words.size(STACK_NAMES);
                names == 0 || table::name_passes(words, names, d.level, d.keyword, metadata)
            }
        };
        let level_keyword = words.size(STACK_LEVEL_KW);
        is_listed
            && (level_keyword == 0 || table::level_keyword_passes(words, level_keyword, d.level, d.keyword))
    })
    .unwrap_or(true)
}
