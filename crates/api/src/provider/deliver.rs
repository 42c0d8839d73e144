//! An event for several sessions, or for one that asks for more than the event says.
//!
//! ```text
//!   who?    level, keyword, excluded, in private, filters                 ──▶ chosen
//!   room?   in all chosen that are not independent, before the first write (nothing is reserved: best effort)
//!   write   to each: the plain record, or one with event key and stack; flags ask the session's owner for what only it knows
//!           a session without room: counted there, and withheld from (and counted in) all others that are not independent
//! ```
//!
//! | Property of an enable | What the event gets | By whom |
//! |---|---|---|
//! | SID, TS_ID, PSM_KEY, PROCESS_START_KEY, SOURCE_CONTAINER_TRACKING | items 2, 3, 9, 13, 16 | the owner of the session; a flag in the ring asks for it |
//! | STACK_TRACE | item 6: the frames from the caller of the write on (stack.rs) | here |
//! | EVENT_KEY | item 10: the same in all sessions that get the event (keys.rs) | here |
//! | EXCLUDE_INPRIVATE | not at all, where it was written as in private | here |
//!
//! A record with a key or a stack is put together in memory of a pool (scratch.rs). Where all of it is in use, the event is lost to all of them.
//!
//! The usual event, for one session that asks for nothing, never comes here.

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

use super::enable::Wish;
use super::registration::Slot;
use super::scratch::{Claim, Composer, Scratch};
use super::stack;
use super::stage::Stage;
use super::write::{Event, Extras, Given, Items, compose, traits_of};
use super::{WriteError, filter, keys};
use crate::client::outlets;

/// Properties that make more of an event than its plain record.
pub(super) const SPECIAL: u32 = SID | TS_ID | STACK_TRACE | PSM_KEY | START_KEY | EVENT_KEY | CONTAINER;

/// Whom an event is not for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Except {
    /// Sessions by their bits.
    pub(super) sessions: u64,
    /// Sessions that leave out what is done in private.
    pub(super) in_private: bool,
}

impl Except {
    /// As EventWriteEx says it. Bits of sessions that there are not change nothing.
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
    pub(super) given: &'e Given<'e>,
    pub(super) thread: u32,
    /// Sessions that get it, those that get a stack with it, and those that get a key, by their bits.
    chosen: u64,
    with_stack: u64,
    with_key: u64,
    /// Data of the stack item.
    frames: &'e [u8],
    key: u64,
}

/// Where a record comes from.
pub(super) enum Source<'s, 'a> {
    /// It was put together, and is the same for all sessions.
    Stack(&'s mut Stage<'a>),
    /// It is put together for each.
    Pool(&'s mut Composer),
}

impl<'e> Delivery<'e> {
    #[inline(always)]
    pub(super) fn new(slot: &'e Slot, what: &'e Event<'e>, given: &'e Given<'e>, thread: u32) -> Self {
        Self { slot, what, given, thread, chosen: 0, with_stack: 0, with_key: 0, frames: &[], key: 0 }
    }

    /// Finds out who gets it: everybody who wants it but for `except`. `asked` is the cell of filters that let it through, or 0.
    #[inline(never)]
    pub(super) fn choose(&mut self, except: Except, asked: u16) {
        for wish in self.slot.wishes() {
            let is_excepted = except.sessions & wish.bit() != 0
                || except.in_private && wish.property & EXCLUDE_INPRIVATE != 0;
            if is_excepted || !wish.takes(self.what.descriptor.level, self.what.descriptor.keyword) {
                continue;
            }
            // The filters of the session that was the only one then were asked; this one may be another.
            let is_asked = asked != 0 && asked == wish.filters.number;
            if wish.filtered && !is_asked && !filter::passes(self.slot, &wish, self.what) {
                continue;
            }
            self.chosen |= wish.bit();
            if wish.property & EVENT_KEY != 0 {
                self.with_key |= wish.bit();
            }
            if filter::wants_stack(self.slot, &wish, self.what) {
                self.with_stack |= wish.bit();
            }
        }
    }

    pub(super) fn is_for_nobody(&self) -> bool {
        self.chosen == 0
    }

    /// Whether a session gets more than the plain record.
    pub(super) fn is_rich(&self) -> bool {
        self.with_stack | self.with_key != 0
    }

    fn chosen(&self) -> impl Iterator<Item = Wish> {
        self.slot.wishes().filter(|wish| self.chosen & wish.bit() != 0)
    }

    /// Writes it by records that are put together in the pool. `inside` is an address in the frame of the function that was called to write.
    #[inline(never)]
    pub(super) fn write_from_pool(&mut self, inside: usize) -> Result<(), WriteError> {
        let Some(mut claim) = Claim::new() else {
            self.chosen().for_each(|wish| outlets::get(wish.outlet).count_lost(wish.ticket));
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
            let skip = self.given.depth + usize::from(is_string);
            let caller = std::ptr::from_ref(self.what).addr();
            stack::capture(frames, unwinding, stack::From { inside, caller, skip });
        }
        Delivery { frames: frames.data(), ..*self }.write_all(size, Source::Pool(composer))
    }

    /// Puts the record together and hands it to `then`; how many bytes it has.
    #[inline(never)]
    fn compose(
        &self,
        composer: &mut Composer,
        extras: &Extras<'_>,
        then: impl FnOnce(&mut Stage<'_>),
    ) -> usize {
        let (metadata, related) = (self.what.metadata, self.what.related);
        let items = Items::with(traits_of(self.slot, self.given), metadata, related, Some(extras));
        let mut stage = composer.stage();
        let size = compose(&mut stage, self.slot, self.what, self.given, self.thread, &items);
        then(&mut stage);
        size
    }

    /// Why one of the sessions that stand together cannot take it. `size` is that of the plain record.
    #[inline(never)]
    fn obstacle(&self, size: usize) -> Option<WriteError> {
        self.chosen().filter(|wish| wish.property & INDEPENDENT == 0).find_map(|wish| {
            let size = size + self.extras(&wish).size();
            if size > MAX_RECORD {
                return Some(WriteError::MoreData);
            }
            outlets::get(wish.outlet).look_for_room(wish.ticket, size).err().and_then(why)
        })
    }

    /// What a session gets besides the plain record.
    fn extras(&self, wish: &Wish) -> Extras<'_> {
        let key = (self.with_key & wish.bit() != 0).then_some(self.key);
        let has_stack = self.with_stack & wish.bit() != 0;
        Extras::new(key, has_stack.then_some(self.frames))
    }

    /// Hands it to all chosen sessions. `size` is that of the plain record.
    #[inline(never)]
    pub(super) fn write_all(&self, size: usize, mut source: Source<'_, '_>) -> Result<(), WriteError> {
        let is_for_one = self.chosen & self.chosen.wrapping_sub(1) == 0;
        let obstacle = if is_for_one { None } else { self.obstacle(size) };
        let mut result = obstacle.map_or(Ok(()), Err);
        for wish in self.chosen() {
            if obstacle.is_some() && wish.property & INDEPENDENT == 0 {
                outlets::get(wish.outlet).count_lost(wish.ticket);
                continue;
            }
            let written = match &mut source {
                Source::Stack(stage) => self.hand_over(&wish, stage),
                Source::Pool(composer) => self.write_rich(&wish, size, composer),
            };
            result = result.and(written);
        }
        result
    }

    fn write_rich(&self, wish: &Wish, size: usize, composer: &mut Composer) -> Result<(), WriteError> {
        let extras = self.extras(wish);
        if size + extras.size() > MAX_RECORD {
            // The event itself is not too large: what this session asks for makes it so, which is a loss of this session.
            outlets::get(wish.outlet).count_lost(wish.ticket);
            return Err(WriteError::MoreData);
        }
        let mut written = Ok(());
        self.compose(composer, &extras, |stage| written = self.hand_over(wish, stage));
        written
    }

    fn hand_over(&self, wish: &Wish, stage: &mut Stage<'_>) -> Result<(), WriteError> {
        let mut record = stage.gather();
        record.flags = self.given.ring_flags() | asked_of_owner(wish.property);
        let written = outlets::get(wish.outlet).write(wish.ticket, self.thread, &mut record);
        written.err().and_then(why).map_or(Ok(()), Err)
    }
}

/// Whether a session wants an event.
pub(super) fn is_for(slot: &Slot, wish: &Wish, what: &Event<'_>) -> bool {
    wish.takes(what.descriptor.level, what.descriptor.keyword)
        && (!wish.filtered || filter::passes(slot, wish, what))
}

/// What a failure is called; `None`: the session ended while we were on the way, and nobody wants the event any more.
#[inline(always)]
pub(super) fn why(failure: Failure) -> Option<WriteError> {
    match failure {
        Failure::Closed => None,
        Failure::Full => Some(WriteError::NoRoom),
        Failure::Shut => Some(WriteError::LogFileFull),
        Failure::TooLarge => Some(WriteError::MoreData),
    }
}

/// Flags of a record: items that the owner of the session adds.
fn asked_of_owner(property: u32) -> u16 {
    const ASKED: [(u32, u16); 5] = [
        (SID, abi::WITH_SID),
        (TS_ID, abi::WITH_TS_ID),
        (PSM_KEY, abi::WITH_PSM_KEY),
        (START_KEY, abi::WITH_START_KEY),
        (CONTAINER, abi::WITH_CONTAINER),
    ];
    ASKED.iter().fold(0, |flags, (bit, flag)| if property & bit != 0 { flags | flag } else { flags })
}
