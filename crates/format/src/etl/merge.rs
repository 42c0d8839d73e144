//! Merges the buffers of a file into one sequence of events in time order, with one buffer per
//! processor in memory.
//!
//! Within a processor, buffers follow each other in time; across processors there is no order. Each
//! processor has its next *unopened* buffer in the heap, under the stamp of its first record, and
//! its open lanes:
//!
//! ```text
//!   heap (time, cpu, buffer) ──pop──▶ if unopened: load, queue the CPU's next ──▶ current lane
//!   current lane ──emit while its next record is not later than the heap's top──▶ back to the heap
//! ```
//!
//! Invariants
//! * A buffer is opened before any record later than its first one is emitted, so overlapping
//!   buffers (a clock set back, a damaged file) still come out in order.
//! * Ties go to the lower processor, then to the earlier buffer; records of one buffer keep their
//!   order.
//! * A buffer that begins without a stamp follows the last record of its predecessor.
//! * A buffer whose stamps decrease is sorted, stably. Stamps earlier than its first one are
//!   emitted when the buffer is opened: to know them earlier, the reader would have to read the
//!   whole file twice.
//! * When open buffers exceed the budget, those needed last are freed and loaded again when their
//!   turn comes. The budget grows with the size of the file, not with the sizes that it claims, so
//!   a small file with large claims stays cheap.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::ReadAt;
use super::index::{BufferRef, MAX_DEFECTS};
use super::lane::Lane;
use super::load::{Loaded, Loader};
use super::reader::Trace;
use crate::header::Record;
use crate::{Error, Result};

/// Bytes of open buffers that are always allowed in addition to the largest one.
const SLACK: usize = 4 << 20;
/// Above this, open buffers may take only a few times the length of the file.
const AMPLE: usize = 256 << 20;
/// Bytes that may be loaded a second time. Ordinary files need none; this bounds the cost of files
/// crafted to need many.
const RELOAD_BYTES: u64 = 256 << 20;
const RELOADS: u64 = 8;
/// Overlapping plain buffers may all be open, up to this many bytes.
const OVERLAP: u64 = 48 << 20;
/// The best compression ratio of real files: to a twentieth. Files that exceed it are crafted.
const BEST_PACKING: usize = 20;

/// Defects met while reading: the first ones and their number.
#[derive(Clone, Debug, Default)]
pub struct Damage {
    /// The first defects, at most a thousand.
    pub defects: Vec<Error>,
    /// The number of all defects.
    pub count: u64,
}

impl Damage {
    fn add(&mut self, error: Error) {
        self.count = self.count.saturating_add(1);
        if self.defects.len() < MAX_DEFECTS {
            self.defects.push(error);
        }
    }
}

/// A position in the order of emission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    /// Time, processor and index of the buffer in the trace's index, as one number: the heap
    /// compares keys for every second event.
    key: u128,
    /// The lane that has the buffer open, or [`NOT_OPEN`].
    slot: usize,
}

const NOT_OPEN: usize = usize::MAX;

impl Turn {
    #[inline]
    fn new(time: i64, cpu: u16, buffer: usize, slot: usize) -> Self {
        let ascending = time.cast_unsigned() ^ (1 << 63);
        let place = u64::from(cpu) << 48 | (buffer as u64 & 0xFFFF_FFFF_FFFF);
        Self { key: u128::from(ascending) << 64 | u128::from(place), slot }
    }

    #[inline]
    fn time(&self) -> i64 {
        ((self.key >> 64) as u64 ^ (1 << 63)).cast_signed()
    }

    fn cpu(&self) -> u16 {
        (self.key >> 48) as u16
    }

    fn buffer(&self) -> usize {
        (self.key as u64 & 0xFFFF_FFFF_FFFF) as usize
    }
}

/// Yields the events of one file in time order.
#[derive(Debug)]
pub struct Events<'t, R> {
    trace: &'t Trace<R>,
    heap: BinaryHeap<Reverse<Turn>>,
    lanes: Vec<Lane>,
    /// Free slots of `lanes`.
    free: Vec<usize>,
    current: Option<usize>,
    /// Whether the current record has been returned.
    step: bool,
    /// The key of the first turn in the heap; the current lane continues alone until then.
    horizon: u128,
    loader: Loader,
    open_bytes: usize,
    budget: usize,
    read_bytes: u64,
    /// Bytes that may still be loaded again; at 0, the time order is given up.
    reloads: u64,
    damage: Damage,
    /// Buffers that have been read to their end, if the caller wants them ([`Events::note_ends`]).
    ends: Option<VecDeque<usize>>,
}

impl<R: ReadAt> Trace<R> {
    /// Returns all events in time order.
    pub fn events(&self) -> Events<'_, R> {
        Events::new(self)
    }
}

impl<'t, R: ReadAt> Events<'t, R> {
    fn new(trace: &'t Trace<R>) -> Self {
        let mut events = Self {
            trace,
            heap: BinaryHeap::new(),
            lanes: Vec::new(),
            free: Vec::new(),
            current: None,
            step: false,
            horizon: u128::MAX,
            loader: Loader::default(),
            open_bytes: 0,
            budget: 0,
            read_bytes: 0,
            reloads: RELOAD_BYTES.saturating_add(trace.file_size().saturating_mul(RELOADS)),
            damage: Damage::default(),
            ends: None,
        };
        let buffers = trace.buffers();
        let mut cpus = 0_usize;
        let mut cpu = None;
        for (index, b) in buffers.iter().enumerate().filter(|(_, b)| cpu.replace(b.cpu) != Some(b.cpu)) {
            cpus = cpus.saturating_add(1);
            events.queue_unstamped(index, b.cpu, b.first_time);
            events.queue_stamped(index, b.cpu);
        }
        let largest = buffers.iter().map(|b| b.memory as usize).max().unwrap_or(0);
        events.budget = budget(largest, cpus, trace.file_size());
        events
    }

    /// Returns the next event; `None` after the last. Damage is skipped and kept for
    /// [`Events::damage`].
    #[allow(clippy::should_implement_trait)] // The record borrows from the reader.
    #[inline(always)]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        if !self.ready()? {
            return Ok(None);
        }
        self.step = true;
        Ok(self.current.and_then(|slot| self.lanes.get(slot)).and_then(Lane::record))
    }

    /// Returns the raw stamp of the event that [`Events::next`] returns next.
    #[inline]
    pub fn peek_time(&mut self) -> Result<Option<i64>> {
        Ok(if self.ready()? {
            self.current.and_then(|slot| self.lanes.get(slot)).map(|l| l.time)
        } else {
            None
        })
    }

    /// Records from now on which buffers have been read to their end, for [`Events::next_end`].
    pub fn note_ends(&mut self) {
        self.ends.get_or_insert_default();
    }

    /// Returns whether [`Events::next_end`] has a buffer to return.
    #[must_use]
    pub fn has_end(&self) -> bool {
        self.ends.as_ref().is_some_and(|ends| !ends.is_empty())
    }

    /// Returns the next buffer all of whose events have been returned, in the order in which the
    /// buffers ended.
    ///
    /// The last event of a buffer is still the current one until [`Events::next`] or
    /// [`Events::peek_time`] has moved past it.
    pub fn next_end(&mut self) -> Option<BufferRef> {
        let index = self.ends.as_mut()?.pop_front()?;
        self.trace.buffers().get(index).copied()
    }

    fn note_end(&mut self, buffer: usize) {
        if let Some(ends) = &mut self.ends {
            ends.push_back(buffer);
        }
    }

    /// Returns the defects met so far.
    #[must_use]
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Returns the bytes of the file read so far, for a progress display.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.read_bytes
    }

    /// Returns whether there is a next record, which is then that of the current lane.
    #[inline(always)]
    fn ready(&mut self) -> Result<bool> {
        if self.step_within_lane() {
            self.step = false;
            return Ok(true);
        }
        self.advance()
    }

    /// Moves within the current lane, if its next record is the next one of all.
    #[inline(always)]
    fn step_within_lane(&mut self) -> bool {
        let Some(lane) = self.current.and_then(|slot| self.lanes.get_mut(slot)) else { return false };
        self.step && lane.step_before((self.horizon >> 64) as u64)
    }

    /// Makes `current` the lane with the next record.
    fn advance(&mut self) -> Result<bool> {
        if let Some((slot, lane)) = self.current.and_then(|slot| Some((slot, self.lanes.get_mut(slot)?))) {
            if !self.step {
                return Ok(true);
            }
            self.step = false;
            if lane.step() {
                let turn = Turn::new(lane.time, lane.cpu, lane.buffer, slot);
                if turn.key < self.horizon {
                    return Ok(true);
                }
                if self.swap_with_first(turn) {
                    return Ok(true);
                }
                self.heap.push(Reverse(turn));
            } else {
                self.close(slot);
            }
            self.current = None;
        }
        self.take_first_turn()
    }

    /// Continues with the first turn of the heap and puts `turn` into the heap instead; false if
    /// the buffer of the first turn is not in memory.
    #[inline]
    fn swap_with_first(&mut self, turn: Turn) -> bool {
        let Some(mut top) = self.heap.peek_mut() else { return false };
        let slot = top.0.slot;
        if !self.lanes.get(slot).is_some_and(|l| l.resident) {
            return false;
        }
        top.0 = turn;
        drop(top);
        self.current = Some(slot);
        self.horizon = self.heap.peek().map_or(u128::MAX, |r| r.0.key);
        true
    }

    /// Takes the first turn from the heap and opens its buffer if needed.
    #[cold]
    fn take_first_turn(&mut self) -> Result<bool> {
        while let Some(Reverse(turn)) = self.heap.pop() {
            let slot = match turn.slot {
                NOT_OPEN => self.open(turn)?,
                slot => self.make_resident(slot)?,
            };
            let Some((slot, lane)) = slot.and_then(|slot| Some((slot, self.lanes.get(slot)?))) else {
                continue;
            };
            let actual = Turn::new(lane.time, lane.cpu, lane.buffer, slot);
            // With no reloads left, a lane is read to its end at once.
            let next = self.heap.peek().filter(|_| self.reloads > 0);
            self.horizon = next.map_or(u128::MAX, |r| r.0.key);
            // A sorted buffer may begin earlier or later than its first record showed.
            if actual.key > self.horizon {
                self.heap.push(Reverse(actual));
                continue;
            }
            self.current = Some(slot);
            return Ok(true);
        }
        Ok(false)
    }

    /// Loads the buffer of a turn; `None` if it has no records.
    fn open(&mut self, turn: Turn) -> Result<Option<usize>> {
        let Some(this) = self.trace.buffers().get(turn.buffer()).copied() else { return Ok(None) };
        let next = turn.buffer().saturating_add(1);
        if this.stamped {
            self.queue_stamped(next, this.cpu);
        }
        if !this.has_records {
            self.note_end(turn.buffer());
            self.queue_unstamped(next, this.cpu, turn.time());
            return Ok(None);
        }
        let (loaded, damage) = self.load(&this)?;
        self.read_bytes = self.read_bytes.saturating_add(u64::from(this.size));
        let (lane, scanned) =
            Lane::open((turn.buffer(), turn.cpu()), loaded, turn.time(), self.trace.old_instances());
        for defect in damage.into_iter().chain(scanned.err()) {
            self.damage.add(defect);
        }
        self.open_bytes = self.open_bytes.saturating_add(lane.cost());
        let done = lane.is_done();
        let slot = self.free.pop().unwrap_or(self.lanes.len());
        match self.lanes.get_mut(slot) {
            Some(free) => *free = lane,
            None => self.lanes.push(lane),
        }
        if done {
            self.close(slot);
            return Ok(None);
        }
        Ok(Some(slot))
    }

    fn load(&mut self, buffer: &BufferRef) -> Result<(Loaded, Option<Error>)> {
        self.make_room(buffer.memory as usize);
        self.loader.load(self.trace.source(), buffer, self.trace.session_buffer_size())
    }

    /// Frees a slot and queues a following buffer that has no stamp of its own.
    fn close(&mut self, slot: usize) {
        let Some(lane) = self.lanes.get_mut(slot) else { return };
        self.open_bytes = self.open_bytes.saturating_sub(lane.cost());
        let (buffer, cpu, time) = (lane.buffer, lane.cpu, lane.time);
        self.loader.recycle(lane.empty());
        self.free.push(slot);
        self.note_end(buffer);
        self.queue_unstamped(buffer.saturating_add(1), cpu, time);
    }

    /// Queues the processor's first buffer from `index` on that has a stamp.
    fn queue_stamped(&mut self, index: usize, cpu: u16) {
        let rest = self.trace.buffers().iter().enumerate().skip(index);
        if let Some((buffer, b)) = rest.take_while(|(_, b)| b.cpu == cpu).find(|(_, b)| b.stamped) {
            self.heap.push(Reverse(Turn::new(b.first_time, cpu, buffer, NOT_OPEN)));
        }
    }

    /// Queues the buffer at `index` if it is the processor's and has no stamp.
    fn queue_unstamped(&mut self, index: usize, cpu: u16, time: i64) {
        if self.trace.buffers().get(index).is_some_and(|b| b.cpu == cpu && !b.stamped) {
            self.heap.push(Reverse(Turn::new(time, cpu, index, NOT_OPEN)));
        }
    }

    /// Frees the bytes of the lanes that are needed last until `more` bytes fit the budget, and
    /// some to spare.
    fn make_room(&mut self, more: usize) {
        if self.open_bytes.saturating_add(more) <= self.budget {
            return;
        }
        let mut resident: Vec<(i64, usize)> = Vec::new();
        resident.extend(
            self.lanes.iter().enumerate().filter(|(_, l)| l.resident).map(|(slot, l)| (l.time, slot)),
        );
        resident.sort_unstable();
        // Freeing several at once keeps the search cheap when very many small buffers are open.
        let goal = self.budget.saturating_sub(more).min(self.budget / 2);
        while let Some((_, slot)) = resident.pop().filter(|_| self.open_bytes > goal) {
            if let Some(lane) = self.lanes.get_mut(slot) {
                self.open_bytes = self.open_bytes.saturating_sub(lane.cost());
                drop(lane.empty());
            }
        }
    }

    /// Counts bytes that were loaded again; reports a defect when the limit is reached.
    fn charge(&mut self, bytes: u32, offset: u64) {
        let before = self.reloads;
        self.reloads = before.saturating_sub(u64::from(bytes));
        if before > 0 && self.reloads == 0 {
            let reason = "too many large buffers overlap in time; from here on events are in order within a buffer only";
            self.damage.add(Error::Invalid { what: "order of buffers", offset, reason });
        }
    }

    /// Returns the stamp of the next event as far as it is known without loading anything: exact
    /// except for a buffer whose stamps decrease.
    pub(super) fn likely_time(&mut self) -> Option<i64> {
        if let Some(slot) = self.current.filter(|_| core::mem::take(&mut self.step)) {
            let lane = self.lanes.get_mut(slot).and_then(|lane| lane.step().then_some(&*lane));
            match lane.map(|lane| Turn::new(lane.time, lane.cpu, lane.buffer, slot)) {
                Some(turn) if turn.key < self.horizon => {}
                Some(turn) => {
                    self.heap.push(Reverse(turn));
                    self.current = None;
                }
                None => {
                    self.close(slot);
                    self.current = None;
                }
            }
        }
        let current = self.current.and_then(|slot| self.lanes.get(slot)).map(|l| l.time);
        current.or_else(|| self.heap.peek().map(|r| r.0.time()))
    }

    /// Returns whether the reload limit is used up, so that the caller should read this file to its
    /// end.
    #[must_use]
    pub(super) fn is_hurried(&self) -> bool {
        self.reloads == 0
    }

    /// Returns the bytes of memory that open buffers take.
    #[must_use]
    pub(super) fn resident_bytes(&self) -> usize {
        self.open_bytes
    }

    /// Frees the memory of open buffers; they are loaded again when needed. For readers of many
    /// files at once.
    pub(super) fn park(&mut self) {
        if self.step {
            return;
        }
        if let Some((slot, lane)) = self.current.take().and_then(|slot| Some((slot, self.lanes.get(slot)?))) {
            self.heap.push(Reverse(Turn::new(lane.time, lane.cpu, lane.buffer, slot)));
        }
        for lane in self.lanes.iter_mut().filter(|l| l.resident) {
            self.open_bytes = self.open_bytes.saturating_sub(lane.cost());
            drop(lane.empty());
        }
    }

    /// Loads the bytes of a lane again if they were freed; `None` if the file has changed
    /// meanwhile.
    fn make_resident(&mut self, slot: usize) -> Result<Option<usize>> {
        let missing = self.lanes.get(slot).filter(|l| !l.resident).map(|l| l.buffer);
        let Some(this) = missing.and_then(|b| self.trace.buffers().get(b)).copied() else {
            return Ok(Some(slot));
        };
        let (loaded, _) = self.load(&this)?;
        self.charge(this.size.max(this.memory), this.offset);
        let Some(lane) = self.lanes.get_mut(slot) else { return Ok(None) };
        let same = lane.refill(loaded);
        self.open_bytes = self.open_bytes.saturating_add(lane.cost());
        if !same {
            let reason = "its bytes changed while the file was read";
            self.damage.add(Error::Invalid { what: "buffer", offset: this.offset, reason });
            self.close(slot);
            return Ok(None);
        }
        Ok(Some(slot))
    }
}

/// Returns the allowed bytes of open buffers: a buffer for each processor, as far as the file's
/// length makes that believable, or some of the file's own bytes.
fn budget(largest: usize, cpus: usize, file_size: u64) -> usize {
    let length = usize::try_from(file_size).unwrap_or(usize::MAX);
    let believable = length.saturating_mul(BEST_PACKING).min(AMPLE.max(length.saturating_mul(4)));
    let overlapping = usize::try_from(file_size.min(OVERLAP)).unwrap_or(usize::MAX);
    let open = cpus.saturating_mul(largest).min(believable).max(overlapping);
    SLACK.saturating_add(largest).saturating_add(open)
}
