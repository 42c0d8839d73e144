//! Delivery of an event to several sessions, or to one that requests additional data.
//!
//! ```text
//!   choose  by level, keyword, exclusion, in-private flag and filters     ──▶ chosen sessions
//!   check   room in all chosen sessions that are not independent, before the first write
//!           (nothing is reserved: best effort)
//!   write   to each: the plain record, or one with event key and stack; flags request the items
//!           that only the session's owner can add
//!           a session without room: counted there, and withheld from (and counted in) all
//!           others that are not independent
//! ```
//!
//! | Property of an enable | Effect on the event | Done by |
//! |---|---|---|
//! | SID, TS_ID, PSM_KEY, PROCESS_START_KEY, SOURCE_CONTAINER_TRACKING | items 2, 3, 9, 13, 16 |
//! the owner of the session, requested by a flag in the ring |
//! | STACK_TRACE | item 6: the frames from the caller of the write on (stack.rs) | this module |
//! | EVENT_KEY | item 10: the same in all sessions that get the event (keys.rs) | this module |
//! | EXCLUDE_INPRIVATE | not delivered if written as in private | this module |
//!
//! A record with a key or a stack is composed in memory of a pool (scratch.rs). If the whole pool
//! is
//! in use, all chosen sessions count the event as lost.
//!
//! The usual event, for one session that requests only events, does not pass through this module.

use traceweir_format::header::MAX_RECORD;
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_EVENT_KEY as EVENT_KEY,
    EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE as EXCLUDE_INPRIVATE,
    EVENT_ENABLE_PROPERTY_PROCESS_START_KEY as START_KEY, EVENT_ENABLE_PROPERTY_PSM_KEY as PSM_KEY,
    EVENT_ENABLE_PROPERTY_SID as SID, EVENT_ENABLE_PROPERTY_SOURCE_CONTAINER_TRACKING as CONTAINER,
    EVENT_ENABLE_PROPERTY_STACK_TRACE as STACK_TRACE, EVENT_ENABLE_PROPERTY_TS_ID as TS_ID,
};
use traceweir_format::spec::event::{
    EVENT_HEADER_FLAG_STRING_ONLY, EVENT_WRITE_FLAG_INPRIVATE, EVENT_WRITE_FLAG_NO_FAULTING,
};
use traceweir_transport::abi;
use traceweir_transport::message::PROPERTY_INDEPENDENT as INDEPENDENT;
use traceweir_transport::ring::Failure;

use super::enable::SessionEnable;
use super::registration::Slot;
use super::scratch::{Claim, Composer, Scratch};
use super::stack;
use super::stage::Stage;
use super::write::{Event, Extras, Items, Overrides, compose, traits_of};
use super::{WriteError, filter, keys};
use crate::client::outlets;

/// Enable properties that add to the plain record of an event.
pub(super) const SPECIAL: u32 = SID | TS_ID | STACK_TRACE | PSM_KEY | START_KEY | EVENT_KEY | CONTAINER;

/// The sessions that an event is withheld from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Except {
    /// Bits of the excluded sessions.
    pub(super) sessions: u64,
    /// Also exclude sessions that reject in-private events.
    pub(super) in_private: bool,
}

impl Except {
    /// Reads the arguments of EventWriteEx. Bits without a session change nothing.
    pub(super) fn new(sessions: u64, flags: u32) -> Result<Self, WriteError> {
        if flags & !(EVENT_WRITE_FLAG_NO_FAULTING | EVENT_WRITE_FLAG_INPRIVATE) != 0 {
            return Err(WriteError::InvalidParameter);
        }
        Ok(Self { sessions, in_private: flags & EVENT_WRITE_FLAG_INPRIVATE != 0 })
    }
}

/// One event on its way to sessions.
pub(super) struct Delivery<'e> {
    pub(super) slot: &'e Slot,
    pub(super) what: &'e Event<'e>,
    pub(super) overrides: &'e Overrides<'e>,
    pub(super) thread: u32,
    /// Bits of the sessions that get the event, that get a stack with it, and that get a key.
    chosen: u64,
    with_stack: u64,
    with_key: u64,
    /// Data of the stack item.
    frames: &'e [u8],
    key: u64,
}

/// The origin of the record that is written.
pub(super) enum Source<'s, 'a> {
    /// Composed once, and equal for all sessions.
    Stack(&'s mut Stage<'a>),
    /// Composed for each session.
    Pool(&'s mut Composer),
}

impl<'e> Delivery<'e> {
    #[inline(always)]
    pub(super) fn new(
        slot: &'e Slot,
        what: &'e Event<'e>,
        overrides: &'e Overrides<'e>,
        thread: u32,
    ) -> Self {
        Self { slot, what, overrides, thread, chosen: 0, with_stack: 0, with_key: 0, frames: &[], key: 0 }
    }

    /// Chooses the sessions that want the event and are not in `except`. `passed_cell` is the cell
    /// of filters that already passed the event, or 0.
    #[inline(never)]
    pub(super) fn choose(&mut self, except: Except, passed_cell: u16) {
        for enable in self.slot.session_enables() {
            let is_excepted = except.sessions & enable.bit() != 0
                || except.in_private && enable.property & EXCLUDE_INPRIVATE != 0;
            if is_excepted || !enable.takes(self.what.descriptor.level, self.what.descriptor.keyword) {
                continue;
            }
            // The check covered the filters of the session that was the only one then; this one may
            // differ.
            let is_passed = passed_cell != 0 && passed_cell == enable.filters.number;
            if enable.filtered && !is_passed && !filter::passes(self.slot, &enable, self.what) {
                continue;
            }
            self.chosen |= enable.bit();
            if enable.property & EVENT_KEY != 0 {
                self.with_key |= enable.bit();
            }
            if filter::wants_stack(self.slot, &enable, self.what) {
                self.with_stack |= enable.bit();
            }
        }
    }

    pub(super) fn is_for_nobody(&self) -> bool {
        self.chosen == 0
    }

    /// Returns whether a session gets more than the plain record.
    pub(super) fn is_rich(&self) -> bool {
        self.with_stack | self.with_key != 0
    }

    fn chosen(&self) -> impl Iterator<Item = SessionEnable> {
        self.slot.session_enables().filter(|enable| self.chosen & enable.bit() != 0)
    }

    /// Writes records that are composed in the pool. `inside` is an address in the frame of the
    /// function that was called to write.
    #[inline(never)]
    pub(super) fn write_from_pool(&mut self, inside: usize) -> Result<(), WriteError> {
        let Some(mut claim) = Claim::new() else {
            self.chosen().for_each(|enable| outlets::get(enable.outlet).count_lost(enable.ticket));
            return Err(WriteError::NoRoom);
        };
        let Scratch { composer, frames, unwinding } = &mut *claim;
        let size = self.compose(composer, &Extras::new(None, None), |_| ());
        if size > MAX_RECORD {
            return Err(WriteError::TooLarge);
        }
        if self.with_key != 0 {
            self.key = keys::next(unwinding.work.bytes());
        }
        if self.with_stack != 0 {
            // A string has one more function of this library between its caller and the record.
            let is_string = self.what.flags & EVENT_HEADER_FLAG_STRING_ONLY != 0;
            let skip = self.overrides.depth + usize::from(is_string);
            let caller = std::ptr::from_ref(self.what).addr();
            stack::capture(frames, unwinding, stack::From { inside, caller, skip });
        }
        Delivery { frames: frames.data(), ..*self }.write_all(size, Source::Pool(composer))
    }

    /// Composes the record, passes it to `then` and returns its size in bytes.
    #[inline(never)]
    fn compose(
        &self,
        composer: &mut Composer,
        extras: &Extras<'_>,
        then: impl FnOnce(&mut Stage<'_>),
    ) -> usize {
        let (metadata, related) = (self.what.metadata, self.what.related);
        let items = Items::with(traits_of(self.slot, self.overrides), metadata, related, Some(extras));
        let mut stage = composer.stage();
        let size = compose(&mut stage, self.slot, self.what, self.overrides, self.thread, &items);
        then(&mut stage);
        size
    }

    /// Returns why one of the sessions that are not independent cannot take the event. `size` is
    /// that of the plain record.
    #[inline(never)]
    fn obstacle(&self, size: usize) -> Option<WriteError> {
        self.chosen().filter(|enable| enable.property & INDEPENDENT == 0).find_map(|enable| {
            let size = size + self.extras(&enable).size();
            if size > MAX_RECORD {
                return Some(WriteError::MoreData);
            }
            outlets::get(enable.outlet).check_room(enable.ticket, size).err().and_then(write_error)
        })
    }

    /// Returns the items that a session gets besides the plain record.
    fn extras(&self, enable: &SessionEnable) -> Extras<'_> {
        let key = (self.with_key & enable.bit() != 0).then_some(self.key);
        let has_stack = self.with_stack & enable.bit() != 0;
        Extras::new(key, has_stack.then_some(self.frames))
    }

    /// Writes the event to all chosen sessions. `size` is that of the plain record.
    #[inline(never)]
    pub(super) fn write_all(&self, size: usize, mut source: Source<'_, '_>) -> Result<(), WriteError> {
        let is_for_one = self.chosen & self.chosen.wrapping_sub(1) == 0;
        let obstacle = if is_for_one { None } else { self.obstacle(size) };
        let mut result = obstacle.map_or(Ok(()), Err);
        for enable in self.chosen() {
            if obstacle.is_some() && enable.property & INDEPENDENT == 0 {
                outlets::get(enable.outlet).count_lost(enable.ticket);
                continue;
            }
            let written = match &mut source {
                Source::Stack(stage) => self.hand_over(&enable, stage),
                Source::Pool(composer) => self.write_rich(&enable, size, composer),
            };
            result = result.and(written);
        }
        result
    }

    fn write_rich(
        &self,
        enable: &SessionEnable,
        size: usize,
        composer: &mut Composer,
    ) -> Result<(), WriteError> {
        let extras = self.extras(enable);
        if size + extras.size() > MAX_RECORD {
            // The event itself is not too large; the items of this session make it so, which is a
            // loss of this session.
            outlets::get(enable.outlet).count_lost(enable.ticket);
            return Err(WriteError::MoreData);
        }
        let mut written = Ok(());
        self.compose(composer, &extras, |stage| written = self.hand_over(enable, stage));
        written
    }

    fn hand_over(&self, enable: &SessionEnable, stage: &mut Stage<'_>) -> Result<(), WriteError> {
        let mut record = stage.gather();
        record.flags = self.overrides.ring_flags() | owner_flags(enable.property);
        let written = outlets::get(enable.outlet).write(enable.ticket, self.thread, &mut record);
        written.err().and_then(write_error).map_or(Ok(()), Err)
    }
}

/// Returns whether a session wants an event.
pub(super) fn is_for(slot: &Slot, enable: &SessionEnable, what: &Event<'_>) -> bool {
    enable.takes(what.descriptor.level, what.descriptor.keyword)
        && (!enable.filtered || filter::passes(slot, enable, what))
}

/// Converts a ring failure to a write error; `None` if the session ended meanwhile, since no
/// session wants the event then.
#[inline(always)]
pub(super) fn write_error(failure: Failure) -> Option<WriteError> {
    match failure {
        Failure::Closed => None,
        Failure::Full => Some(WriteError::NoRoom),
        Failure::OwnerFull => Some(WriteError::LogFileFull),
        Failure::TooLarge => Some(WriteError::MoreData),
    }
}

/// Returns the record flags that request items from the owner of the session.
fn owner_flags(property: u32) -> u16 {
    const REQUESTED: [(u32, u16); 5] = [
        (SID, abi::WITH_SID),
        (TS_ID, abi::WITH_TS_ID),
        (PSM_KEY, abi::WITH_PSM_KEY),
        (START_KEY, abi::WITH_START_KEY),
        (CONTAINER, abi::WITH_CONTAINER),
    ];
    REQUESTED.iter().fold(0, |flags, (bit, flag)| if property & bit != 0 { flags | flag } else { flags })
}
