//! Step 3 of a write (see `write`): an event for several sessions, for one that requests additional
//! data, or of a rarer kind.
//!
//! ```text
//!   choose  by level, keyword, exclusion, in-private flag and filters     ──▶ chosen sessions
//!   check   free space in all chosen sessions that are not independent, before the first write
//!           (nothing is reserved: best effort)
//!   write   to each: the plain record, or one with event key and stack; flags request the items
//!           that only the session's owner can add
//!           if a session that is not independent has no free space, no such session gets the
//!           event, and each of them counts it as lost; an independent session gets the event if
//!           it has free space itself
//! ```
//!
//! A session is independent if its mode has EVENT_TRACE_INDEPENDENT_SESSION_MODE.
//!
//! | Property of an enable | Effect on the event | Done by |
//! |---|---|---|
//! | SID, TS_ID, PSM_KEY | items 2, 3, 9 | the owner of the region, by a flag in the ring |
//! | PROCESS_START_KEY, SOURCE_CONTAINER_TRACKING | items 13, 16 | the same |
//! | STACK_TRACE | item 6: the frames from the caller of the write on (`stack`) | this module |
//! | EVENT_KEY | item 10: the same in all sessions that get the event (`keys`) | this module |
//! | EXCLUDE_INPRIVATE | an in-private event is not delivered | this module |
//!
//! A record with a key or a stack, or with large metadata, is composed in memory of a pool
//! (`scratch`); all others on the stack. If the whole pool is in use, all chosen sessions count the
//! event as lost.

use traceweir_format::header::MAX_RECORD_BYTES;
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_EVENT_KEY as EVENT_KEY,
    EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE as EXCLUDE_INPRIVATE,
    EVENT_ENABLE_PROPERTY_PROCESS_START_KEY as START_KEY, EVENT_ENABLE_PROPERTY_PSM_KEY as PSM_KEY,
    EVENT_ENABLE_PROPERTY_SID as SID, EVENT_ENABLE_PROPERTY_SOURCE_CONTAINER_TRACKING as CONTAINER,
    EVENT_ENABLE_PROPERTY_TS_ID as TS_ID,
};
use traceweir_format::spec::event::EVENT_HEADER_FLAG_STRING_ONLY;
use traceweir_transport::abi;
use traceweir_transport::message::PROPERTY_INDEPENDENT as INDEPENDENT;
use traceweir_transport::ring::WriteFailure;

use super::compose::{RecordItems, RecordSource, SessionItems};
use super::scratch::{Composer, RecordScratch, ScratchClaim};
use super::stage::Stage;
use super::{Options, WriteError, keys, stack};
use crate::event::{CallerEvent, MAX_BLOCKS};
use crate::filter;
use crate::process::outlets;
use crate::process::thread::{self, EventWriter};
use crate::registration::RegistrationSlot;
use crate::registration::enable::SessionEnable;

/// Chooses the sessions, composes the record and writes it. `passed_cell` is the result of
/// [`RegistrationSlot::check_filters`]. Inlined into its callers, where call stacks begin.
///
/// Separate functions compose the record, because filters and call stacks need the most stack: the
/// filters are finished before a frame holds a record, and call stacks go with records in the pool.
#[inline(always)]
pub(super) fn deliver(
    slot: &RegistrationSlot,
    event: &CallerEvent<'_>,
    options: &Options<'_>,
    passed_cell: u16,
) -> Result<(), WriteError> {
    if event.blocks.len() > MAX_BLOCKS {
        return Err(WriteError::InvalidParameter);
    }
    let thread = match thread::identify_writer() {
        EventWriter::Thread(thread) => thread,
        EventWriter::Forked(inherited) => handle_forked_child(slot, event, inherited)?,
    };
    // Its address is in the frame of the function that was called to write.
    let mark = 0_u8;
    let mut delivery = EventDelivery::new(RecordSource { slot, event, options, thread });
    delivery.choose_sessions(passed_cell);
    if delivery.chosen == 0 {
        return Ok(());
    }
    let needs_items = delivery.with_stack | delivery.with_key != 0;
    if !needs_items && delivery.source.is_small() {
        return delivery.compose_on_stack();
    }
    delivery.compose_in_pool(std::hint::black_box(&raw const mark).addr())
}

/// One event and the sessions that get it.
struct EventDelivery<'e> {
    source: RecordSource<'e>,
    /// Bits of the sessions that get the event.
    chosen: u64,
    /// Bits of the sessions that get a stack with it.
    with_stack: u64,
    /// Bits of the sessions that get a key with it.
    with_key: u64,
    /// Data of the stack item.
    frames: &'e [u8],
    key: u64,
}

/// The way in which the record is composed.
enum RecordComposition<'s, 'a> {
    /// Composed once, and equal for all sessions.
    Once(&'s mut Stage<'a>),
    /// Composed for each session.
    PerSession(&'s mut Composer),
}

impl<'e> EventDelivery<'e> {
    #[inline(always)]
    fn new(source: RecordSource<'e>) -> Self {
        Self { source, chosen: 0, with_stack: 0, with_key: 0, frames: &[], key: 0 }
    }

    /// Chooses the sessions that want the event and are not excluded. `passed_cell` is the cell of
    /// filters that already passed the event, or 0.
    #[inline(never)]
    fn choose_sessions(&mut self, passed_cell: u16) {
        let RecordSource { slot, event, options, .. } = self.source;
        for enable in slot.session_enables() {
            let is_excluded = options.excluded & enable.bit() != 0
                || options.is_in_private && enable.property & EXCLUDE_INPRIVATE != 0;
            if is_excluded || !enable.accepts(event.descriptor.level, event.descriptor.keyword) {
                continue;
            }
            // The check covered the filters of the session that was the only one then; this one may
            // differ.
            let is_passed = passed_cell != 0 && passed_cell == enable.filters.cell;
            if enable.is_filtered && !is_passed && !filter::passes(enable.filters.cell, event) {
                continue;
            }
            self.chosen |= enable.bit();
            if enable.property & EVENT_KEY != 0 {
                self.with_key |= enable.bit();
            }
            if enable.wants_stack(event) {
                self.with_stack |= enable.bit();
            }
        }
    }

    fn chosen_sessions(&self) -> impl Iterator<Item = SessionEnable> {
        self.source.slot.session_enables().filter(|enable| self.chosen & enable.bit() != 0)
    }

    /// Composes the record in this function's frame and writes it.
    #[inline(never)]
    fn compose_on_stack(&self) -> Result<(), WriteError> {
        let source = self.source;
        let mut words = Stage::EMPTY;
        let mut stage = Stage::new(&mut words);
        let size = source.compose_small(&mut stage);
        if size > MAX_RECORD_BYTES {
            return Err(WriteError::TooLarge);
        }
        self.publish_to_all(size, RecordComposition::Once(&mut stage))
    }

    /// Writes records that are composed in the pool. `inside` is an address in the frame of the
    /// function that was called to write.
    #[inline(never)]
    fn compose_in_pool(&mut self, inside: usize) -> Result<(), WriteError> {
        let Some(mut claim) = ScratchClaim::new() else {
            self.chosen_sessions().for_each(|enable| outlets::get(enable.outlet).count_lost(enable.ticket));
            return Err(WriteError::NoRoom);
        };
        let RecordScratch { composer, frames, unwinding } = &mut *claim;
        let size = self.compose(composer, &SessionItems::new(None, None), |_| ());
        if size > MAX_RECORD_BYTES {
            return Err(WriteError::TooLarge);
        }
        if self.with_key != 0 {
            self.key = keys::next_key(unwinding.work.bytes());
        }
        if self.with_stack != 0 {
            // A string has one more function of this library between its caller and the record.
            let is_string = self.source.event.flags & EVENT_HEADER_FLAG_STRING_ONLY != 0;
            let skip = self.source.options.skipped_frames + usize::from(is_string);
            let caller = std::ptr::from_ref(self.source.event).addr();
            stack::capture(frames, unwinding, stack::StackStart { inside, caller, skip });
        }
        EventDelivery { frames: frames.data(), ..*self }
            .publish_to_all(size, RecordComposition::PerSession(composer))
    }

    /// Composes the record, passes it to `then` and returns its size in bytes.
    #[inline(never)]
    fn compose(
        &self,
        composer: &mut Composer,
        session_items: &SessionItems<'_>,
        then: impl FnOnce(&mut Stage<'_>),
    ) -> usize {
        let source = self.source;
        let items = RecordItems::new(&source, session_items);
        let mut stage = composer.stage();
        let size = source.compose(&mut stage, &items);
        then(&mut stage);
        size
    }

    /// Returns why one of the sessions that are not independent cannot take the event. `size` is
    /// that of the plain record.
    #[inline(never)]
    fn find_obstacle(&self, size: usize) -> Option<WriteError> {
        self.chosen_sessions().filter(|enable| enable.property & INDEPENDENT == 0).find_map(|enable| {
            let size = size + self.items_for_session(&enable).size();
            if size > MAX_RECORD_BYTES {
                return Some(WriteError::MoreData);
            }
            outlets::get(enable.outlet).check_room(enable.ticket, size).err().and_then(to_write_error)
        })
    }

    /// Returns the items that a session gets in addition to the plain record.
    fn items_for_session(&self, enable: &SessionEnable) -> SessionItems<'_> {
        let key = (self.with_key & enable.bit() != 0).then_some(self.key);
        let has_stack = self.with_stack & enable.bit() != 0;
        SessionItems::new(key, has_stack.then_some(self.frames))
    }

    /// Writes the event to all chosen sessions. `size` is that of the plain record.
    #[inline(never)]
    fn publish_to_all(&self, size: usize, mut record: RecordComposition<'_, '_>) -> Result<(), WriteError> {
        // Whether only one bit is set.
        let is_for_one = self.chosen & self.chosen.wrapping_sub(1) == 0;
        let obstacle = if is_for_one { None } else { self.find_obstacle(size) };
        let mut result = obstacle.map_or(Ok(()), Err);
        for enable in self.chosen_sessions() {
            if obstacle.is_some() && enable.property & INDEPENDENT == 0 {
                outlets::get(enable.outlet).count_lost(enable.ticket);
                continue;
            }
            let written = match &mut record {
                RecordComposition::Once(stage) => self.publish(&enable, stage),
                RecordComposition::PerSession(composer) => self.compose_for_session(&enable, size, composer),
            };
            result = result.and(written);
        }
        result
    }

    /// Composes the record of one session in the pool and writes it.
    fn compose_for_session(
        &self,
        enable: &SessionEnable,
        size: usize,
        composer: &mut Composer,
    ) -> Result<(), WriteError> {
        let session_items = self.items_for_session(enable);
        if size + session_items.size() > MAX_RECORD_BYTES {
            // The event itself is not too large; the items of this session make it so, which is a
            // loss of this session.
            outlets::get(enable.outlet).count_lost(enable.ticket);
            return Err(WriteError::MoreData);
        }
        let mut written = Ok(());
        self.compose(composer, &session_items, |stage| written = self.publish(enable, stage));
        written
    }

    /// Writes a composed record into the ring of a session.
    fn publish(&self, enable: &SessionEnable, stage: &mut Stage<'_>) -> Result<(), WriteError> {
        let mut record = stage.gather();
        let keep_stamp = if self.source.options.stamp.is_some() { abi::KEEP_STAMP } else { 0 };
        record.flags = keep_stamp | owner_flags(enable.property);
        let written = outlets::get(enable.outlet).write(enable.ticket, self.source.thread, &mut record);
        written.err().and_then(to_write_error).map_or(Ok(()), Err)
    }
}

/// Counts the event as lost in every session of these outlets that wants it, and returns whether
/// any does.
#[cold]
fn count_lost(slot: &RegistrationSlot, event: &CallerEvent<'_>, outlets: u64) -> bool {
    let mut is_wanted = false;
    for enable in slot.session_enables() {
        if outlets & (1 << enable.outlet) != 0 && enable.wants_event(event) {
            outlets::get(enable.outlet).count_lost(enable.ticket);
            is_wanted = true;
        }
    }
    is_wanted
}

/// Counts an event as lost in all sessions that want it, because the pool is exhausted.
#[cold]
pub(super) fn count_lost_in_all(slot: &RegistrationSlot, event: &CallerEvent<'_>) -> Result<(), WriteError> {
    if count_lost(slot, event, u64::MAX) { Err(WriteError::NoRoom) } else { Ok(()) }
}

/// Handles a write in a forked child that has not registered again.
///
/// If sessions of the parent want the event, they count it as lost, and the write fails. Otherwise
/// returns the thread id, and the caller writes the event to the sessions of the child.
#[cold]
fn handle_forked_child(
    slot: &RegistrationSlot,
    event: &CallerEvent<'_>,
    inherited: u64,
) -> Result<u32, WriteError> {
    if count_lost(slot, event, inherited) { Err(WriteError::NoRoom) } else { Ok(thread::thread_id()) }
}

/// Converts a ring failure to a write error; `None` if the session ended meanwhile, and so does not
/// want the event any more.
#[inline(always)]
fn to_write_error(failure: WriteFailure) -> Option<WriteError> {
    match failure {
        WriteFailure::Closed => None,
        WriteFailure::Full => Some(WriteError::NoRoom),
        WriteFailure::OwnerFull => Some(WriteError::LogFileFull),
        WriteFailure::TooLarge => Some(WriteError::MoreData),
    }
}

/// Returns the record flags that request items from the owner of the region.
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
