//! Who wants which events of a registration.
//!
//! ```text
//!   hot words    level │ strict │ any │ all          what all sessions together may want; looked at before anything else
//!   active       one bit for each entry in use; bit 63: every one of them has filters; bits 32–43: where it is but one, the cell of its filters;
//!                bit 62: it is but one and asks for nothing but events; bits 44–48: which; bits 49–54: its outlet
//!   entries      ticket │ any │ all │ level, outlet, filters, properties          what one session wants, as its controller said it
//! ```
//!
//! The level is stored as level + 1 and 0 means off, so "may anybody want this event" is one load and one compare. A session that said 0 wants
//! all levels and is stored as 256.
//!
//! Invariants
//!
//! 1. Entries and hot words are written under the client's lock only; writers read them without one.
//! 2. The hot words never say no to an event that an entry would take: level is the maximum, any the union, all the intersection.
//! 3. An entry is filled before its bit in `active` is set and its ticket is cleared after the bit was. A writer that holds an old view finds a
//!    ticket that the outlet refuses, at worst a new session's ticket with the old session's level or filters: one event at the moment of change.
//! 4. An entry in use holds one use of its filters' cell (see `filter`), which ends when it is replaced or cleared.
//! 5. The upper half of `active` is a hint, renewed with every change: whoever follows bit 63 looks at every entry or, where it is but one, at its
//!    cell; its level and masks are the hot words then. No entry has a bit there, so a walk over the entries ends before it.
//!
//! It does not know where sessions live: an entry names an outlet of the process by its number.

use std::sync::atomic::{AtomicU64, Ordering};

use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 as IGNORE_KEYWORD_0;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::EnableParams;
use traceweir_transport::ring::Ticket;

use super::deliver::SPECIAL;
use super::filter::{self, Filters, Refused};
use super::registration::Slot;

/// Sessions that can have one registration enabled: of one daemon eight by its GUID and eight by its group, three private ones of the process and
/// eight from outside; five to spare for another daemon.
pub(crate) const MAX_ENTRIES: usize = 32;

/// Why a session cannot have a registration.
const TOO_MANY: &str = "the provider is enabled by too many sessions in this process";

/// What one session wants.
pub(super) struct Entry {
    ticket: AtomicU64,
    any: AtomicU64,
    all: AtomicU64,
    /// Level in bits 0–7, outlet in bits 8–15, cell of the filters in bits 16–27, bit 30: filters of events, bit 31: of stacks; properties in the
    /// upper half.
    rest: AtomicU64,
}

/// An entry as a writer needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) outlet: u8,
    pub(crate) ticket: Ticket,
    pub(crate) level: u8,
    pub(crate) any: u64,
    pub(crate) all: u64,
    pub(crate) property: u32,
    /// Filters decide about events, or about their stacks.
    pub(crate) filtered: bool,
    pub(crate) filters: Filters,
}

/// Where the events of the only session go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sole {
    pub(super) outlet: u8,
    pub(super) ticket: Ticket,
}

/// What the callback is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Combined {
    pub(crate) level: u8,
    pub(crate) any: u64,
    pub(crate) all: u64,
}

/// In `active`: every session has filters of events.
const ALL_FILTERED: u64 = 1 << 63;
/// In `active`: where the cell of the only session's filters stands.
const ONLY_CELL: u32 = 32;
/// In `active`: it is but one session, which asks for nothing but events; and where its number stands.
const SOLE: u64 = 1 << 62;
const SOLE_ENTRY: u32 = 44;
/// In `active`: the number of its outlet.
const SOLE_OUTLET: u32 = 49;
const SOLE_OUTLET_BITS: u8 = 63;
const _: () = assert!(MAX_ENTRIES == 32 && crate::client::outlets::OUTLETS == 64);
const HINTS: u64 = 0xFFFF_FFFF << ONLY_CELL;
const _: () = assert!(MAX_ENTRIES <= ONLY_CELL as usize);
/// In the upper byte of an entry's filters.
const OF_EVENTS: u8 = 0x40;
const OF_STACKS: u8 = 0x80;

impl Wish {
    /// The session's bit, as providers see it in their filters and name it when they leave sessions out.
    #[inline(always)]
    pub(crate) const fn bit(&self) -> u64 {
        1 << (self.outlet % 64)
    }

    /// Whether the session wants an event of this level and keyword.
    #[inline(always)]
    pub(crate) fn takes(&self, level: u8, keyword: u64) -> bool {
        (self.level == 0 || level <= self.level)
            && if keyword == 0 {
                self.property & IGNORE_KEYWORD_0 == 0
            } else {
                keyword & all_if_zero(self.any) != 0 && keyword & self.all == self.all
            }
    }
}

/// A mask of 0 asks for everything.
#[inline(always)]
const fn all_if_zero(any: u64) -> u64 {
    if any == 0 { u64::MAX } else { any }
}

impl Entry {
    pub(super) const fn new() -> Self {
        Self {
            ticket: AtomicU64::new(0),
            any: AtomicU64::new(0),
            all: AtomicU64::new(0),
            rest: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn read(&self) -> Wish {
        let rest = self.rest.load(Ordering::Relaxed).to_le_bytes();
        Wish {
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

    fn write(&self, wish: &Wish) {
        let p = wish.property.to_le_bytes();
        let [low, high] = wish.filters.number.to_le_bytes();
        let events = if wish.filters.of_events { OF_EVENTS } else { 0 };
        let stacks = if wish.filters.of_stacks { OF_STACKS } else { 0 };
        let rest = u64::from_le_bytes([
            wish.level,
            wish.outlet,
            low,
            high & 0x0F | events | stacks,
            p[0],
            p[1],
            p[2],
            p[3],
        ]);
        self.any.store(wish.any, Ordering::Relaxed);
        self.all.store(wish.all, Ordering::Relaxed);
        self.rest.store(rest, Ordering::Relaxed);
        // Release: whoever sees the ticket sees an `active` without the hints of whoever had the entry before.
        self.ticket.store(wish.ticket.0, Ordering::Release);
    }
}

/// What came of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The session said the same again.
    None,
    /// The callback is to be told.
    Changed,
    /// More sessions than a registration has entries.
    Full,
    /// Not with these filters; what the session wanted before is off as well.
    Refused(Refused),
}

impl Change {
    /// Why the session does not have what it asked for.
    pub(crate) const fn refusal(self) -> Option<(Status, &'static str)> {
        match self {
            Self::None | Self::Changed => None,
            Self::Full => Some((Status::ERROR_NO_SYSTEM_RESOURCES, TOO_MANY)),
            Self::Refused(why) => Some(why.reason()),
        }
    }
}

/// The cell of the only session's filters.
#[inline(always)]
const fn cell_in(active: u64) -> u16 {
    (active >> ONLY_CELL) as u16 & 0x0FFF
}

impl Slot {
    /// Whether any session may want an event of this level and keyword.
    #[inline(always)]
    pub(crate) fn enabled(&self, level: u8, keyword: u64) -> bool {
        u32::from(level) < self.level.load(Ordering::Relaxed) && self.keyword_may_pass(keyword)
    }

    /// Whether any session may want this event, as far as its descriptor tells.
    #[inline]
    pub(crate) fn event_enabled(&self, event: &EventDescriptor) -> bool {
        self.enabled(event.level, event.keyword) && (!self.is_filtered() || filter::may_want(self, event))
    }

    #[inline]
    fn keyword_may_pass(&self, keyword: u64) -> bool {
        if keyword == 0 {
            return self.strict.load(Ordering::Relaxed) == 0;
        }
        let all = self.all.load(Ordering::Relaxed);
        keyword & self.any.load(Ordering::Relaxed) != 0 && keyword & all == all
    }

    /// Whether every session that has it enabled has filters of events.
    #[inline(always)]
    pub(crate) fn is_filtered(&self) -> bool {
        self.active.load(Ordering::Relaxed) & ALL_FILTERED != 0
    }

    /// Where every session has filters of events: the cell of the only session's, 0 where there are several.
    #[inline(always)]
    pub(crate) fn filters_of_all(&self) -> Option<u16> {
        let active = self.active.load(Ordering::Relaxed);
        (active & ALL_FILTERED != 0).then_some(cell_in(active))
    }

    /// The only session, where it is but one, asks for nothing but events, and has no filters of events or those of the cell `asked`.
    ///
    /// Whoever follows it asks the hot words afterwards, which are then what this session wants. A session that is gone has a ticket that its outlet refuses; that of one which took
    /// its place, even with the same entry and outlet, is not given out with the hint of the one before.
    #[inline(always)]
    pub(super) fn sole(&self, asked: u16) -> Option<Sole> {
        // Acquire as in `wishes`.
        let active = self.active.load(Ordering::Acquire);
        let is_asked = active & ALL_FILTERED == 0 || asked != 0 && asked == cell_in(active);
        if active & SOLE == 0 || !is_asked {
            return None;
        }
        let entry = self.entries.get((active >> SOLE_ENTRY) as usize % MAX_ENTRIES)?;
        let ticket = Ticket(entry.ticket.load(Ordering::Acquire));
        if self.active.load(Ordering::Relaxed) != active {
            return None;
        }
        Some(Sole { outlet: (active >> SOLE_OUTLET) as u8 & SOLE_OUTLET_BITS, ticket })
    }

    /// The sessions that have this registration enabled.
    #[inline(always)]
    pub(crate) fn wishes(&self) -> impl Iterator<Item = Wish> {
        // Pairs with the release in `wish`: the entry behind a bit is filled.
        let mut bits = self.active.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            let index = bits.trailing_zeros() as usize;
            bits &= bits.wrapping_sub(1);
            self.entries.get(index).map(Entry::read)
        })
    }

    /// Whether any session has it enabled.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) & !HINTS != 0
    }

    /// A session wants this registration, or wants it differently. Under the client's lock.
    pub(crate) fn wish(&self, outlet: u8, ticket: Ticket, params: &EnableParams) -> Change {
        let filters = match Filters::of(&params.filters) {
            Ok(filters) => filters,
            Err(why) => {
                self.unwish(1 << outlet);
                return Change::Refused(why);
            }
        };
        let place = self.entry_of(outlet).or_else(|| self.free_entry());
        let Some((index, entry)) = place else {
            filters.release();
            return Change::Full;
        };
        let wish = Wish {
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
        entry.write(&wish);
        self.active.fetch_or(bit, Ordering::Release);
        self.refresh();
        if before.is_none_or(|before| before.ticket != ticket) {
            self.tell_module(&wish);
        }
        // Filters of the same content have the same number: nothing changed where all of it is equal.
        if let Some(before) = before {
            before.filters.release();
        }
        if before == Some(wish) { Change::None } else { self.bump() }
    }

    /// Sessions behind these outlets want it no more. Under the client's lock. Whether any did.
    pub(crate) fn unwish(&self, outlets: u64) -> bool {
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

    /// The values for the callback, of the sessions behind these outlets; `None` when none has it enabled.
    pub(crate) fn combined(&self, outlets: u64) -> Option<Combined> {
        let mut all = self.wishes().filter(|w| outlets & (1 << w.outlet) != 0);
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

    /// What the session behind an outlet wants.
    pub(crate) fn wish_of(&self, outlet: u8) -> Option<Wish> {
        self.entry_of(outlet).map(|(_, e)| e.read())
    }

    fn used_entries(&self) -> impl Iterator<Item = (usize, &Entry)> {
        let bits = self.active.load(Ordering::Relaxed);
        self.entries.iter().enumerate().filter(move |(i, _)| bits & (1 << i) != 0)
    }

    /// Filters of the sessions that have it enabled, with the bits of those.
    pub(super) fn filters(&self) -> impl Iterator<Item = (u64, Filters)> {
        self.wishes().map(|wish| (wish.bit(), wish.filters))
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

    /// Computes the hot words anew.
    fn refresh(&self) {
        let (mut level, mut any, mut all, mut strict) = (0, 0, u64::MAX, 1);
        let (mut filtered, mut sessions, mut cell, mut property, mut outlet) = (true, 0, 0, 0, 0);
        for wish in self.wishes() {
            filtered &= wish.filters.of_events;
            (sessions, cell) = (sessions + 1, wish.filters.number);
            (property, outlet) = (property | wish.property, wish.outlet);
            level = level.max(if wish.level == 0 { 256 } else { u32::from(wish.level) + 1 });
            any |= all_if_zero(wish.any);
            all &= wish.all;
            strict &= u32::from(wish.property & IGNORE_KEYWORD_0 != 0);
        }
        // Without a hint for a moment: then all is looked at.
        let active = self.active.fetch_and(!HINTS, Ordering::Relaxed);
        let mut hints = if filtered && sessions > 0 { ALL_FILTERED } else { 0 };
        if sessions == 1 {
            let place = u64::from(active.trailing_zeros()) << SOLE_ENTRY | u64::from(outlet) << SOLE_OUTLET;
            hints |= if filtered { u64::from(cell) << ONLY_CELL } else { 0 };
            hints |= if property & SPECIAL == 0 { SOLE | place } else { 0 };
        }
        self.any.store(any, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
        self.strict.store(strict, Ordering::Relaxed);
        // Last, so that a provider is not seen as on with masks that nobody asked for; on other processors this is a matter of chance and harmless.
        self.level.store(level, Ordering::Release);
        // Release: whoever follows a hint finds the entry filled, and words that are what its session wants.
        self.active.fetch_or(hints, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
