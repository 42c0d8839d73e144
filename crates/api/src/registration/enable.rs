//! The enable state of a registration: which sessions want which events.
//!
//! ```text
//!   hot words    level │ strict │ any │ all       union of what all sessions want; checked first
//!   active       one bit for each entry in use
//!                bit 63: every session has event filters
//!                bits 32–43: with one session, the cell of its filters
//!                bit 62: there is one session, and it requests only events
//!                bits 44–48: the entry of that session; bits 49–54: its outlet
//!   entries      ticket │ any │ all │ level, outlet, filters, properties     for one session each
//! ```
//!
//! The level is stored as level + 1 and 0 means off, so "may any session want this event" is one
//! load and one compare. A session with level 0 wants all levels and is stored as 256.
//!
//! Invariants
//!
//! 1. Entries and hot words are written under the client's lock only; writers of events read them
//!    without a lock.
//! 2. The hot words never reject an event that an entry accepts: level is the maximum, any the
//!    union, all the intersection.
//! 3. An entry is filled before its bit in `active` is set, and its ticket is cleared after the bit
//!    is cleared. A writer with an old view finds a ticket that the outlet refuses, or at worst a
//!    new session's ticket with the old session's level or filters: one event at the moment of
//!    change.
//! 4. An entry in use holds one reference to its filters' cell (see `filter`), which is released
//!    when the entry is replaced or cleared.
//! 5. The upper half of `active` is a hint that every change renews. A writer that follows bit 63
//!    checks every entry or, with one session, the cell of that session, whose level and masks then
//!    equal the hot words. No entry has a bit in the upper half, so a walk over the entries ends
//!    before it.
//!
//! This module does not know where sessions run: an entry names an outlet of the process by number.

use std::sync::atomic::{AtomicU64, Ordering};

use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_EVENT_KEY as EVENT_KEY, EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 as IGNORE_KEYWORD_0,
    EVENT_ENABLE_PROPERTY_PROCESS_START_KEY as START_KEY, EVENT_ENABLE_PROPERTY_PSM_KEY as PSM_KEY,
    EVENT_ENABLE_PROPERTY_SID as SID, EVENT_ENABLE_PROPERTY_SOURCE_CONTAINER_TRACKING as CONTAINER,
    EVENT_ENABLE_PROPERTY_STACK_TRACE as STACK_TRACE, EVENT_ENABLE_PROPERTY_TS_ID as TS_ID,
};
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::EnableParams;
use traceweir_transport::ring::Ticket;

use super::Slot;
use crate::event::Event;
use crate::filter::{self, Filters, QuickResult, Refused};
use crate::process::outlets::OUTLETS;

/// Maximum number of sessions that can have one registration enabled.
///
/// One daemon needs eight by GUID and eight by group; private sessions need three of the process
/// and eight from outside; five remain for another daemon.
pub(crate) const MAX_ENTRIES: usize = 32;

/// Enable properties that add to the plain record of an event.
const ADDS_ITEMS: u32 = SID | TS_ID | STACK_TRACE | PSM_KEY | START_KEY | EVENT_KEY | CONTAINER;

/// The channel of TraceLogging events.
const TRACELOGGING: u8 = 11;

/// The reason that a session gets when all entries of a registration are in use.
const TOO_MANY: &str = "the provider is enabled by too many sessions in this process";

/// The enable state of one session, as atomic words.
pub(crate) struct Entry {
    ticket: AtomicU64,
    any: AtomicU64,
    all: AtomicU64,
    /// Bits 0–7: level; 8–15: outlet; 16–27: cell of the filters; 30: has event filters; 31: has
    /// stack filters; 32–63: enable properties.
    rest: AtomicU64,
}

/// A copy of one session's enable state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionEnable {
    pub(crate) outlet: u8,
    pub(crate) ticket: Ticket,
    pub(crate) level: u8,
    pub(crate) any: u64,
    pub(crate) all: u64,
    pub(crate) property: u32,
    /// Filters decide about events or about their stacks.
    pub(crate) filtered: bool,
    pub(crate) filters: Filters,
}

/// Outlet and ticket of the only session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnlySession {
    pub(crate) outlet: u8,
    pub(crate) ticket: Ticket,
}

/// Level and masks of all sessions together, as the callback gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Combined {
    pub(crate) level: u8,
    pub(crate) any: u64,
    pub(crate) all: u64,
}

/// In `active`: every session has event filters.
const ALL_FILTERED: u64 = 1 << 63;
/// In `active`: bit offset of the cell of the only session's filters.
const ONLY_CELL: u32 = 32;
/// In `active`: there is one session, and it requests only events.
const SOLE: u64 = 1 << 62;
/// In `active`: bit offset of that session's entry.
const SOLE_ENTRY: u32 = 44;
/// In `active`: bit offset of that session's outlet number.
const SOLE_OUTLET: u32 = 49;
const SOLE_OUTLET_BITS: u8 = 63;
const _: () = assert!(MAX_ENTRIES == 32 && OUTLETS == 64);
const HINTS: u64 = 0xFFFF_FFFF << ONLY_CELL;
const _: () = assert!(MAX_ENTRIES <= ONLY_CELL as usize);
/// In the upper byte of an entry's filters: the filters decide about events, or about stacks.
const OF_EVENTS: u8 = 0x40;
const OF_STACKS: u8 = 0x80;

impl SessionEnable {
    /// Returns the session's bit, which filters and the exclusion mask of EventWriteEx use.
    #[inline(always)]
    pub(crate) const fn bit(&self) -> u64 {
        1 << (self.outlet % 64)
    }

    /// Returns whether the session wants an event of this level and keyword.
    #[inline(always)]
    pub(crate) fn takes(&self, level: u8, keyword: u64) -> bool {
        (self.level == 0 || level <= self.level)
            && if keyword == 0 {
                self.property & IGNORE_KEYWORD_0 == 0
            } else {
                keyword & all_if_zero(self.any) != 0 && keyword & self.all == self.all
            }
    }

    /// Returns whether the session wants an event, by level, keyword and filters.
    pub(crate) fn wants(&self, event: &Event<'_>) -> bool {
        self.takes(event.descriptor.level, event.descriptor.keyword)
            && (!self.filtered || filter::passes(self.filters.number, event))
    }

    /// Returns whether the session requests the stack of an event that it gets.
    #[inline]
    pub(crate) fn wants_stack(&self, event: &Event<'_>) -> bool {
        self.property & STACK_TRACE != 0
            && (!self.filters.of_stacks || filter::stack_passes(self.filters.number, event))
    }
}

/// Expands a mask of 0, which requests everything.
#[inline(always)]
const fn all_if_zero(any: u64) -> u64 {
    if any == 0 { u64::MAX } else { any }
}

impl Entry {
    pub(crate) const fn new() -> Self {
        Self {
            ticket: AtomicU64::new(0),
            any: AtomicU64::new(0),
            all: AtomicU64::new(0),
            rest: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn read(&self) -> SessionEnable {
        let rest = self.rest.load(Ordering::Relaxed).to_le_bytes();
        SessionEnable {
            ticket: Ticket(self.ticket.load(Ordering::Relaxed)),
            any: self.any.load(Ordering::Relaxed),
            all: self.all.load(Ordering::Relaxed),
            level: rest[0],
            outlet: rest[1],
            filtered: rest[3] & (OF_EVENTS | OF_STACKS) != 0,
            filters: Filters {
                number: u16::from_le_bytes([rest[2], rest[3] & 0x0F]),
                of_events: rest[3] & OF_EVENTS != 0,
                of_stacks: rest[3] & OF_STACKS != 0,
            },
            property: u32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]]),
        }
    }

    fn write(&self, enable: &SessionEnable) {
        let p = enable.property.to_le_bytes();
        let [low, high] = enable.filters.number.to_le_bytes();
        let events = if enable.filters.of_events { OF_EVENTS } else { 0 };
        let stacks = if enable.filters.of_stacks { OF_STACKS } else { 0 };
        let rest = u64::from_le_bytes([
            enable.level,
            enable.outlet,
            low,
            high & 0x0F | events | stacks,
            p[0],
            p[1],
            p[2],
            p[3],
        ]);
        self.any.store(enable.any, Ordering::Relaxed);
        self.all.store(enable.all, Ordering::Relaxed);
        self.rest.store(rest, Ordering::Relaxed);
        // Release: a reader of the ticket sees an `active` without the hints of the entry's former
        // session.
        self.ticket.store(enable.ticket.0, Ordering::Release);
    }
}

/// The result of a change of a session's enable state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The session repeated its parameters.
    None,
    /// The state changed and the callback must be called.
    Changed,
    /// All entries of the registration are in use.
    Full,
    /// The filters were refused, and the session's former state is cleared.
    Refused(Refused),
}

impl Change {
    /// Returns the status and reason of a refusal.
    pub(crate) const fn refusal(self) -> Option<(Status, &'static str)> {
        match self {
            Self::None | Self::Changed => None,
            Self::Full => Some((Status::ERROR_NO_SYSTEM_RESOURCES, TOO_MANY)),
            Self::Refused(refusal) => Some(refusal.reason()),
        }
    }
}

/// Returns the cell of the only session's filters.
#[inline(always)]
const fn cell_in(active: u64) -> u16 {
    (active >> ONLY_CELL) as u16 & 0x0FFF
}

impl Slot {
    /// Returns whether any session may want an event of this level and keyword.
    #[inline(always)]
    pub(crate) fn enabled(&self, level: u8, keyword: u64) -> bool {
        u32::from(level) < self.level.load(Ordering::Relaxed) && self.keyword_may_pass(keyword)
    }

    /// Returns whether any session may want this event, by level, keyword and id.
    #[inline]
    pub(crate) fn event_enabled(&self, event: &EventDescriptor) -> bool {
        self.enabled(event.level, event.keyword) && (!self.is_filtered() || self.may_pass_by_id(event))
    }

    fn may_pass_by_id(&self, event: &EventDescriptor) -> bool {
        let may_pass = |enable: SessionEnable| {
            enable.takes(event.level, event.keyword)
                && (!enable.filtered || filter::id_passes(enable.filters.number, event.id))
        };
        event.channel == TRACELOGGING || self.session_enables().any(may_pass)
    }

    /// Checks the filters if every session has some. Returns the cell of the only session's filters
    /// if they pass the event, 0 if not every session has filters or there are several sessions,
    /// and `None` if no session wants the event.
    ///
    /// The result holds for these filters only: sessions come and go until the next check.
    #[inline(always)]
    pub(crate) fn check_filters(&self, event: &Event<'_>) -> Option<u16> {
        let Some(only) = self.filters_of_all() else { return Some(0) };
        let passes = match filter::quick_check(only, event) {
            QuickResult::Passes => true,
            QuickResult::Fails => false,
            QuickResult::Unclear => {
                let event = *event;
                self.passes_all_checks(only, &event)
            }
        };
        passes.then_some(only)
    }

    #[cold]
    #[inline(never)]
    fn passes_all_checks(&self, only: u16, event: &Event<'_>) -> bool {
        if only == 0 {
            return self.session_enables().any(|enable| enable.wants(event));
        }
        filter::passes(only, event)
    }

    #[inline]
    fn keyword_may_pass(&self, keyword: u64) -> bool {
        if keyword == 0 {
            return self.strict.load(Ordering::Relaxed) == 0;
        }
        let all = self.all.load(Ordering::Relaxed);
        keyword & self.any.load(Ordering::Relaxed) != 0 && keyword & all == all
    }

    /// Returns whether every session that has the registration enabled has event filters.
    #[inline(always)]
    pub(crate) fn is_filtered(&self) -> bool {
        self.active.load(Ordering::Relaxed) & ALL_FILTERED != 0
    }

    /// Returns the cell of the only session's filters if every session has event filters; 0 if
    /// there are several sessions.
    #[inline(always)]
    pub(crate) fn filters_of_all(&self) -> Option<u16> {
        let active = self.active.load(Ordering::Relaxed);
        (active & ALL_FILTERED != 0).then_some(cell_in(active))
    }

    /// Returns the only session, if it requests nothing but events and has no event filters or
    /// those of the cell `passed_cell`.
    ///
    /// The caller checks the hot words afterwards, which then equal what this session wants. The
    /// ticket of a session that has ended is refused by its outlet. The ticket of a session that
    /// replaced it, even with the same entry and outlet, is not returned with the hint of the
    /// former one.
    #[inline(always)]
    pub(crate) fn only_session(&self, passed_cell: u16) -> Option<OnlySession> {
        // Acquire as in `session_enables`.
        let active = self.active.load(Ordering::Acquire);
        let is_passed = active & ALL_FILTERED == 0 || passed_cell != 0 && passed_cell == cell_in(active);
        if active & SOLE == 0 || !is_passed {
            return None;
        }
        let entry = self.entries.get((active >> SOLE_ENTRY) as usize % MAX_ENTRIES)?;
        let ticket = Ticket(entry.ticket.load(Ordering::Acquire));
        if self.active.load(Ordering::Relaxed) != active {
            return None;
        }
        Some(OnlySession { outlet: (active >> SOLE_OUTLET) as u8 & SOLE_OUTLET_BITS, ticket })
    }

    /// Iterates over the sessions that have this registration enabled.
    #[inline(always)]
    pub(crate) fn session_enables(&self) -> impl Iterator<Item = SessionEnable> {
        // Pairs with the release in `enable_session`: an entry whose bit is set is filled.
        let mut bits = self.active.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            let index = bits.trailing_zeros() as usize;
            bits &= bits.wrapping_sub(1);
            self.entries.get(index).map(Entry::read)
        })
    }

    /// Returns whether any session has the registration enabled.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) & !HINTS != 0
    }

    /// Enables the registration for a session or changes its parameters. Requires the client's
    /// lock.
    pub(crate) fn enable_session(&self, outlet: u8, ticket: Ticket, params: &EnableParams) -> Change {
        let filters = match Filters::compile(&params.filters) {
            Ok(filters) => filters,
            Err(refusal) => {
                self.disable_sessions(1 << outlet);
                return Change::Refused(refusal);
            }
        };
        let place = self.entry_of(outlet).or_else(|| self.free_entry());
        let Some((index, entry)) = place else {
            filters.release();
            return Change::Full;
        };
        let enable = SessionEnable {
            outlet,
            ticket,
            level: params.level,
            any: params.match_any,
            all: params.match_all,
            property: params.property,
            filtered: filters.of_events || filters.of_stacks,
            filters,
        };
        let bit = 1 << index;
        let before = (self.active.load(Ordering::Relaxed) & bit != 0).then(|| entry.read());
        entry.write(&enable);
        self.active.fetch_or(bit, Ordering::Release);
        self.refresh();
        // Filters of equal content have the same cell, so equal values mean that nothing changed.
        if let Some(before) = before {
            before.filters.release();
        }
        if before == Some(enable) { Change::None } else { self.bump() }
    }

    /// Disables the registration for the sessions of these outlets and returns whether any had it
    /// enabled. Requires the client's lock.
    pub(crate) fn disable_sessions(&self, outlets: u64) -> bool {
        let mut gone = 0;
        for (index, entry) in self.used_entries() {
            if outlets & (1 << entry.read().outlet) != 0 {
                gone |= 1 << index;
            }
        }
        if gone == 0 {
            return false;
        }
        // All at once: a writer sees the old sessions or the rest, which a forked child relies on.
        self.active.fetch_and(!(gone | HINTS), Ordering::Release);
        self.refresh();
        for (index, entry) in self.entries.iter().enumerate() {
            if gone & (1 << index) != 0 {
                entry.ticket.store(0, Ordering::Relaxed);
                entry.read().filters.release();
            }
        }
        self.bump();
        true
    }

    /// Combines the state of the sessions of these outlets for the callback; `None` if none of them
    /// has the registration enabled.
    pub(crate) fn combined(&self, outlets: u64) -> Option<Combined> {
        let mut all = self.session_enables().filter(|w| outlets & (1 << w.outlet) != 0);
        let first = all.next()?;
        let Some(second) = all.next() else {
            return Some(Combined { level: first.level, any: first.any, all: first.all });
        };
        let start = Combined { level: 0, any: 0, all: u64::MAX };
        Some([first, second].into_iter().chain(all).fold(start, |c, w| Combined {
            level: c.level.max(if w.level == 0 { u8::MAX } else { w.level }),
            any: c.any | all_if_zero(w.any),
            all: c.all & w.all,
        }))
    }

    /// Returns the enable state of the session of an outlet.
    pub(crate) fn enable_of_outlet(&self, outlet: u8) -> Option<SessionEnable> {
        self.entry_of(outlet).map(|(_, e)| e.read())
    }

    fn used_entries(&self) -> impl Iterator<Item = (usize, &Entry)> {
        let bits = self.active.load(Ordering::Relaxed);
        self.entries.iter().enumerate().filter(move |(i, _)| bits & (1 << i) != 0)
    }

    /// Iterates over the bits and filters of the sessions that have the registration enabled.
    pub(crate) fn filters(&self) -> impl Iterator<Item = (u64, Filters)> {
        self.session_enables().map(|enable| (enable.bit(), enable.filters))
    }

    fn entry_of(&self, outlet: u8) -> Option<(usize, &Entry)> {
        self.used_entries().find(|(_, e)| e.read().outlet == outlet)
    }

    fn free_entry(&self) -> Option<(usize, &Entry)> {
        let bits = self.active.load(Ordering::Relaxed);
        self.entries.iter().enumerate().find(|(i, _)| bits & (1 << i) == 0)
    }

    fn bump(&self) -> Change {
        self.version.fetch_add(1, Ordering::SeqCst);
        Change::Changed
    }

    /// Recomputes the hot words and hints.
    fn refresh(&self) {
        let (mut level, mut any, mut all, mut strict) = (0, 0, u64::MAX, 1);
        let (mut filtered, mut sessions, mut cell, mut property, mut outlet) = (true, 0, 0, 0, 0);
        for enable in self.session_enables() {
            filtered &= enable.filters.of_events;
            (sessions, cell) = (sessions + 1, enable.filters.number);
            (property, outlet) = (property | enable.property, enable.outlet);
            level = level.max(if enable.level == 0 { 256 } else { u32::from(enable.level) + 1 });
            any |= all_if_zero(enable.any);
            all &= enable.all;
            strict &= u32::from(enable.property & IGNORE_KEYWORD_0 != 0);
        }
        // While the hints are cleared, writers check every entry.
        let active = self.active.fetch_and(!HINTS, Ordering::Relaxed);
        let mut hints = if filtered && sessions > 0 { ALL_FILTERED } else { 0 };
        if sessions == 1 {
            let place = u64::from(active.trailing_zeros()) << SOLE_ENTRY | u64::from(outlet) << SOLE_OUTLET;
            hints |= if filtered { u64::from(cell) << ONLY_CELL } else { 0 };
            hints |= if property & ADDS_ITEMS == 0 { SOLE | place } else { 0 };
        }
        self.any.store(any, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
        self.strict.store(strict, Ordering::Relaxed);
        // Last, so that a provider is not seen as enabled with masks that no session requested. On
        // other processors the order may differ, which is harmless.
        self.level.store(level, Ordering::Release);
        // Release: a writer that follows a hint finds the entry filled and the hot words of its
        // session.
        self.active.fetch_or(hints, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
