//! The enable state of a registration: the sessions that want its events, and which events each of
//! them wants.
//!
//! ```text
//!   hot words    level │ ignores_keyword_0 │ any │ all    what any session may want; checked first
//!   active       one bit for each entry in use
//!                bit 63: every session has event filters
//!                bits 32–43: with one session, the cell of its filters (see `filter`)
//!                bit 62: there is one session, and it requests no extended data items
//!                bits 44–48: the entry of that session; bits 49–54: its outlet
//!   entries      ticket │ any │ all │ level, outlet, filters, properties     for one session each
//! ```
//!
//! The level is stored as level + 1 and 0 means off, so "may any session want this event" is one
//! load and one compare. A session with level 0 wants all levels and is stored as 256.
//! `ignores_keyword_0` is 1 if every session ignores events without a keyword.
//!
//! Invariants
//!
//! 1. Entries and hot words are written under the client's lock only; writers of events read them
//!    without a lock.
//! 2. The hot words never reject an event that an entry accepts: level is the maximum, any the
//!    union, all the intersection.
//! 3. An entry is filled before its bit in `active` is set, and its ticket is cleared after the bit
//!    is cleared. A writer with an old view finds a ticket that the outlet refuses, or at worst a
//!    new session's ticket with the old session's level or filters. That concerns only an event
//!    that is written at the moment of the change.
//! 4. An entry in use holds one reference to its filters' cell (see `filter`), which is released
//!    when the entry is replaced or cleared.
//! 5. The upper half of `active` is a hint that every change renews. A writer that follows bit 63
//!    checks every entry. With one session, it checks only the cell of that session, because the
//!    level and masks of the session equal the hot words. No entry has a bit in the upper half, so
//!    a walk over the entries ends before it.
//!
//! This module does not know where sessions run: an entry names an outlet of the process by number.

use std::sync::atomic::{AtomicU64, Ordering};

use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_EVENT_KEY as EVENT_KEY, EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 as IGNORE_KEYWORD_0,
    EVENT_ENABLE_PROPERTY_PROCESS_START_KEY as START_KEY, EVENT_ENABLE_PROPERTY_PSM_KEY as PSM_KEY,
    EVENT_ENABLE_PROPERTY_SID as SID, EVENT_ENABLE_PROPERTY_SOURCE_CONTAINER_TRACKING as CONTAINER,
    EVENT_ENABLE_PROPERTY_STACK_TRACE as STACK_TRACE, EVENT_ENABLE_PROPERTY_TS_ID as TS_ID,
};
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor};
use traceweir_format::spec::status::Status;
use traceweir_transport::message::EnableParams;
use traceweir_transport::ring::Ticket;

use super::RegistrationSlot;
use crate::event::CallerEvent;
use crate::filter::{self, FilterRefusal, QuickResult, SessionFilters};
use crate::process::outlets::MAX_OUTLETS;

/// Maximum number of sessions that can have one registration enabled.
///
/// The sum of eight sessions of one daemon that enable the provider, eight that enable its group,
/// three private sessions of the process, eight of controllers, and five sessions of other daemons.
pub(crate) const MAX_ENABLE_ENTRIES: usize = 32;

/// Enable properties that add extended data items to an event.
const ITEM_PROPERTIES: u32 = SID | TS_ID | STACK_TRACE | PSM_KEY | START_KEY | EVENT_KEY | CONTAINER;

/// The reason that a session gets when all entries of a registration are in use.
const TOO_MANY_SESSIONS: &str = "the provider is enabled by too many sessions in this process";

/// The enable state of one session, as atomic words.
pub(crate) struct AtomicSessionEnable {
    ticket: AtomicU64,
    any: AtomicU64,
    all: AtomicU64,
    /// Bits 0–7: level; 8–15: outlet; 16–27: cell of the filters; 30: has event filters; 31: has
    /// stack filters; 32–63: enable properties.
    packed: AtomicU64,
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
    /// Whether filters decide about events or about their stacks.
    pub(crate) is_filtered: bool,
    pub(crate) filters: SessionFilters,
}

/// The outlet and ticket of a session that is the only one to enable a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnlySession {
    pub(crate) outlet: u8,
    pub(crate) ticket: Ticket,
}

/// Level and masks of all sessions together, as the callback gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CombinedEnable {
    pub(crate) level: u8,
    pub(crate) any: u64,
    pub(crate) all: u64,
}

/// In `active`: every session has event filters.
const ALL_FILTERED: u64 = 1 << 63;
/// In `active`: bit offset of the cell of the only session's filters.
const ONLY_CELL_SHIFT: u32 = 32;
/// In `active`: there is one session, and it requests no extended data items.
const HAS_ONLY_SESSION: u64 = 1 << 62;
/// In `active`: bit offset of the only session's entry.
const ONLY_ENTRY_SHIFT: u32 = 44;
/// In `active`: bit offset of the only session's outlet number.
const ONLY_OUTLET_SHIFT: u32 = 49;
const ONLY_OUTLET_MASK: u8 = 63;
const _: () = assert!(MAX_ENABLE_ENTRIES == 32 && MAX_OUTLETS == 64);
const HINT_BITS: u64 = 0xFFFF_FFFF << ONLY_CELL_SHIFT;
const _: () = assert!(MAX_ENABLE_ENTRIES <= ONLY_CELL_SHIFT as usize);
/// In byte 3 of an entry's packed word: filters decide about events.
const HAS_EVENT_FILTERS: u8 = 0x40;
/// In byte 3 of an entry's packed word: filters decide about stacks.
const HAS_STACK_FILTERS: u8 = 0x80;

impl SessionEnable {
    /// Returns the session's bit, which filters and the exclusion mask of EventWriteEx use.
    #[inline(always)]
    pub(crate) const fn bit(&self) -> u64 {
        1 << (self.outlet % 64)
    }

    /// Returns whether the session wants an event of this level and keyword.
    #[inline(always)]
    pub(crate) fn accepts(&self, level: u8, keyword: u64) -> bool {
        (self.level == 0 || level <= self.level)
            && if keyword == 0 {
                self.property & IGNORE_KEYWORD_0 == 0
            } else {
                keyword & all_if_zero(self.any) != 0 && keyword & self.all == self.all
            }
    }

    /// Returns whether the session wants an event, by level, keyword and filters.
    pub(crate) fn wants_event(&self, event: &CallerEvent<'_>) -> bool {
        self.accepts(event.descriptor.level, event.descriptor.keyword)
            && (!self.is_filtered || filter::passes(self.filters.cell, event))
    }

    /// Returns whether the session requests the stack of an event that it gets.
    #[inline]
    pub(crate) fn wants_stack(&self, event: &CallerEvent<'_>) -> bool {
        self.property & STACK_TRACE != 0
            && (!self.filters.has_stack_filters || filter::stack_passes(self.filters.cell, event))
    }
}

/// Expands a mask of 0, which requests everything.
#[inline(always)]
const fn all_if_zero(any: u64) -> u64 {
    if any == 0 { u64::MAX } else { any }
}

impl AtomicSessionEnable {
    pub(crate) const fn new() -> Self {
        Self {
            ticket: AtomicU64::new(0),
            any: AtomicU64::new(0),
            all: AtomicU64::new(0),
            packed: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn read(&self) -> SessionEnable {
        let packed = self.packed.load(Ordering::Relaxed).to_le_bytes();
        SessionEnable {
            ticket: Ticket(self.ticket.load(Ordering::Relaxed)),
            any: self.any.load(Ordering::Relaxed),
            all: self.all.load(Ordering::Relaxed),
            level: packed[0],
            outlet: packed[1],
            is_filtered: packed[3] & (HAS_EVENT_FILTERS | HAS_STACK_FILTERS) != 0,
            filters: SessionFilters {
                cell: u16::from_le_bytes([packed[2], packed[3] & 0x0F]),
                has_event_filters: packed[3] & HAS_EVENT_FILTERS != 0,
                has_stack_filters: packed[3] & HAS_STACK_FILTERS != 0,
            },
            property: u32::from_le_bytes([packed[4], packed[5], packed[6], packed[7]]),
        }
    }

    fn write(&self, enable: &SessionEnable) {
        let property = enable.property.to_le_bytes();
        let [low, high] = enable.filters.cell.to_le_bytes();
        let events = if enable.filters.has_event_filters { HAS_EVENT_FILTERS } else { 0 };
        let stacks = if enable.filters.has_stack_filters { HAS_STACK_FILTERS } else { 0 };
        let packed = u64::from_le_bytes([
            enable.level,
            enable.outlet,
            low,
            high & 0x0F | events | stacks,
            property[0],
            property[1],
            property[2],
            property[3],
        ]);
        self.any.store(enable.any, Ordering::Relaxed);
        self.all.store(enable.all, Ordering::Relaxed);
        self.packed.store(packed, Ordering::Relaxed);
        // Release: a reader of the ticket sees an `active` without the hints of the entry's former
        // session.
        self.ticket.store(enable.ticket.0, Ordering::Release);
    }
}

/// The result of a change of a session's enable state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnableChange {
    /// The session repeated its parameters.
    None,
    /// The state changed and the callback must be called.
    Changed,
    /// All entries of the registration are in use.
    Full,
    /// The filters were refused, and the session's former state is cleared.
    Refused(FilterRefusal),
}

impl EnableChange {
    pub(crate) const fn refusal(self) -> Option<(Status, &'static str)> {
        match self {
            Self::None | Self::Changed => None,
            Self::Full => Some((Status::ERROR_NO_SYSTEM_RESOURCES, TOO_MANY_SESSIONS)),
            Self::Refused(refusal) => Some(refusal.reason()),
        }
    }
}

/// Returns the cell of the only session's filters.
#[inline(always)]
const fn only_cell_in(active: u64) -> u16 {
    (active >> ONLY_CELL_SHIFT) as u16 & 0x0FFF
}

impl RegistrationSlot {
    /// Returns whether any session may want an event of this level and keyword.
    #[inline(always)]
    pub(crate) fn is_enabled(&self, level: u8, keyword: u64) -> bool {
        u32::from(level) < self.level.load(Ordering::Relaxed) && self.keyword_may_pass(keyword)
    }

    /// Returns whether any session may want this event, by level, keyword and id.
    #[inline]
    pub(crate) fn is_event_enabled(&self, event: &EventDescriptor) -> bool {
        self.is_enabled(event.level, event.keyword) && (!self.is_filtered() || self.may_pass_by_id(event))
    }

    fn may_pass_by_id(&self, event: &EventDescriptor) -> bool {
        let may_pass = |enable: SessionEnable| {
            enable.accepts(event.level, event.keyword)
                && (!enable.is_filtered || filter::id_passes(enable.filters.cell, event.id))
        };
        event.channel == CHANNEL_TRACELOGGING || self.session_enables().any(may_pass)
    }

    /// Checks the filters if every session has some. Returns the cell of the only session's filters
    /// if they pass the event, 0 if not every session has filters or one of several sessions wants
    /// the event, and `None` if no session wants the event.
    ///
    /// The result holds for these filters only: sessions come and go until the next check.
    #[inline(always)]
    pub(crate) fn check_filters(&self, event: &CallerEvent<'_>) -> Option<u16> {
        let Some(only) = self.only_filter_cell() else { return Some(0) };
        let passes = match filter::quick_check(only, event) {
            QuickResult::Passes => true,
            QuickResult::Fails => false,
            QuickResult::Unclear => {
                let event = *event;
                self.check_filters_fully(only, &event)
            }
        };
        passes.then_some(only)
    }

    #[cold]
    #[inline(never)]
    fn check_filters_fully(&self, only: u16, event: &CallerEvent<'_>) -> bool {
        if only == 0 {
            return self.session_enables().any(|enable| enable.wants_event(event));
        }
        filter::passes(only, event)
    }

    #[inline]
    fn keyword_may_pass(&self, keyword: u64) -> bool {
        if keyword == 0 {
            return self.ignores_keyword_0.load(Ordering::Relaxed) == 0;
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
    pub(crate) fn only_filter_cell(&self) -> Option<u16> {
        let active = self.active.load(Ordering::Relaxed);
        (active & ALL_FILTERED != 0).then_some(only_cell_in(active))
    }

    /// Returns the only session, if it requests no extended data items and has either no event
    /// filters or those of the cell `passed_cell`.
    ///
    /// The caller checks the hot words afterwards, which then equal what this session wants. The
    /// ticket of a session that has ended is refused by its outlet. The ticket of a session that
    /// replaced it, even with the same entry and outlet, is not returned with the hint of the
    /// former one.
    #[inline(always)]
    pub(crate) fn only_session(&self, passed_cell: u16) -> Option<OnlySession> {
        // Acquire as in `session_enables`.
        let active = self.active.load(Ordering::Acquire);
        let is_passed = active & ALL_FILTERED == 0 || passed_cell != 0 && passed_cell == only_cell_in(active);
        if active & HAS_ONLY_SESSION == 0 || !is_passed {
            return None;
        }
        let entry = self.entries.get((active >> ONLY_ENTRY_SHIFT) as usize % MAX_ENABLE_ENTRIES)?;
        let ticket = Ticket(entry.ticket.load(Ordering::Acquire));
        if self.active.load(Ordering::Relaxed) != active {
            return None;
        }
        Some(OnlySession { outlet: (active >> ONLY_OUTLET_SHIFT) as u8 & ONLY_OUTLET_MASK, ticket })
    }

    /// Iterates over the sessions that have this registration enabled.
    #[inline(always)]
    pub(crate) fn session_enables(&self) -> impl Iterator<Item = SessionEnable> {
        // Pairs with the release in `enable_session`: an entry whose bit is set is filled.
        let mut bits = self.active.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            let index = bits.trailing_zeros() as usize;
            bits &= bits.wrapping_sub(1);
            self.entries.get(index).map(AtomicSessionEnable::read)
        })
    }

    /// Returns whether any session has the registration enabled.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) & !HINT_BITS != 0
    }

    /// Enables the registration for a session, or changes the parameters of an enabled one.
    /// Requires the client's lock.
    pub(crate) fn enable_session(&self, outlet: u8, ticket: Ticket, params: &EnableParams) -> EnableChange {
        let filters = match SessionFilters::compile(&params.filters) {
            Ok(filters) => filters,
            Err(refusal) => {
                self.disable_sessions(1 << outlet);
                return EnableChange::Refused(refusal);
            }
        };
        let target = self.find_entry(outlet).or_else(|| self.find_free_entry());
        let Some((index, entry)) = target else {
            filters.release();
            return EnableChange::Full;
        };
        let enable = SessionEnable {
            outlet,
            ticket,
            level: params.level,
            any: params.match_any,
            all: params.match_all,
            property: params.property,
            is_filtered: filters.has_event_filters || filters.has_stack_filters,
            filters,
        };
        let bit = 1 << index;
        let before = (self.active.load(Ordering::Relaxed) & bit != 0).then(|| entry.read());
        entry.write(&enable);
        self.active.fetch_or(bit, Ordering::Release);
        self.update_hot_words();
        if let Some(before) = before {
            before.filters.release();
        }
        // Filters of equal content have the same cell, so equal values mean that nothing changed.
        if before == Some(enable) { EnableChange::None } else { self.count_change() }
    }

    /// Disables the registration for the sessions of these outlets and returns whether any had it
    /// enabled. Requires the client's lock.
    pub(crate) fn disable_sessions(&self, outlets: u64) -> bool {
        let mut cleared_bits = 0;
        for (index, entry) in self.used_entries() {
            if outlets & (1 << entry.read().outlet) != 0 {
                cleared_bits |= 1 << index;
            }
        }
        if cleared_bits == 0 {
            return false;
        }
        // All at once: a writer sees the old sessions or the remaining ones, which a forked child
        // relies on.
        self.active.fetch_and(!(cleared_bits | HINT_BITS), Ordering::Release);
        self.update_hot_words();
        for (index, entry) in self.entries.iter().enumerate() {
            if cleared_bits & (1 << index) != 0 {
                entry.ticket.store(0, Ordering::Relaxed);
                entry.read().filters.release();
            }
        }
        self.count_change();
        true
    }

    /// Combines the state of the sessions of these outlets for the callback; `None` if none of them
    /// has the registration enabled.
    pub(crate) fn combine_enables(&self, outlets: u64) -> Option<CombinedEnable> {
        let mut enables = self.session_enables().filter(|enable| outlets & (1 << enable.outlet) != 0);
        let first = enables.next()?;
        let Some(second) = enables.next() else {
            return Some(CombinedEnable { level: first.level, any: first.any, all: first.all });
        };
        let start = CombinedEnable { level: 0, any: 0, all: u64::MAX };
        Some([first, second].into_iter().chain(enables).fold(start, |combined, enable| CombinedEnable {
            level: combined.level.max(if enable.level == 0 { u8::MAX } else { enable.level }),
            any: combined.any | all_if_zero(enable.any),
            all: combined.all & enable.all,
        }))
    }

    /// Returns the enable state of the session of an outlet.
    pub(crate) fn find_enable(&self, outlet: u8) -> Option<SessionEnable> {
        self.find_entry(outlet).map(|(_, e)| e.read())
    }

    fn used_entries(&self) -> impl Iterator<Item = (usize, &AtomicSessionEnable)> {
        let bits = self.active.load(Ordering::Relaxed);
        self.entries.iter().enumerate().filter(move |(i, _)| bits & (1 << i) != 0)
    }

    /// Iterates over the bits and filters of the sessions that have the registration enabled.
    pub(crate) fn session_filters(&self) -> impl Iterator<Item = (u64, SessionFilters)> {
        self.session_enables().map(|enable| (enable.bit(), enable.filters))
    }

    fn find_entry(&self, outlet: u8) -> Option<(usize, &AtomicSessionEnable)> {
        self.used_entries().find(|(_, e)| e.read().outlet == outlet)
    }

    fn find_free_entry(&self) -> Option<(usize, &AtomicSessionEnable)> {
        let bits = self.active.load(Ordering::Relaxed);
        self.entries.iter().enumerate().find(|(i, _)| bits & (1 << i) == 0)
    }

    fn count_change(&self) -> EnableChange {
        self.version.fetch_add(1, Ordering::SeqCst);
        EnableChange::Changed
    }

    /// Recomputes the hot words and hints.
    fn update_hot_words(&self) {
        let (mut level, mut any, mut all, mut ignores_keyword_0) = (0, 0, u64::MAX, 1);
        let (mut is_filtered, mut sessions, mut cell, mut property, mut outlet) = (true, 0, 0, 0, 0);
        for enable in self.session_enables() {
            is_filtered &= enable.filters.has_event_filters;
            (sessions, cell) = (sessions + 1, enable.filters.cell);
            (property, outlet) = (property | enable.property, enable.outlet);
            level = level.max(if enable.level == 0 { 256 } else { u32::from(enable.level) + 1 });
            any |= all_if_zero(enable.any);
            all &= enable.all;
            ignores_keyword_0 &= u32::from(enable.property & IGNORE_KEYWORD_0 != 0);
        }
        // While the hints are cleared, writers check every entry.
        let active = self.active.fetch_and(!HINT_BITS, Ordering::Relaxed);
        let mut hints = if is_filtered && sessions > 0 { ALL_FILTERED } else { 0 };
        if sessions == 1 {
            let entry_and_outlet = u64::from(active.trailing_zeros()) << ONLY_ENTRY_SHIFT
                | u64::from(outlet) << ONLY_OUTLET_SHIFT;
            hints |= if is_filtered { u64::from(cell) << ONLY_CELL_SHIFT } else { 0 };
            hints |= if property & ITEM_PROPERTIES == 0 { HAS_ONLY_SESSION | entry_and_outlet } else { 0 };
        }
        self.any.store(any, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
        self.ignores_keyword_0.store(ignores_keyword_0, Ordering::Relaxed);
        // Stored last, so that writers do not see the provider enabled with masks that no session
        // requested. A writer may see another order, because its loads are relaxed: no harm.
        self.level.store(level, Ordering::Release);
        // Release: a writer that follows a hint finds the entry filled and the hot words of its
        // session.
        self.active.fetch_or(hints, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
