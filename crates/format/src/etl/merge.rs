//! Merges the buffers of a file into one sequence of events in time order, usually with one buffer
//! per processor in memory.
//!
//! Within a processor, buffers follow each other in time; across processors there is no order. The
//! heap holds the next *unopened* buffer of each processor, under the stamp of its first record,
//! and all open lanes except the current one:
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
//! * A buffer whose stamps decrease is sorted, stably. Records with stamps before its first one are
//!   emitted when the buffer is opened: to know them earlier, the reader would have to read the
//!   whole file twice.
//! * When open buffers exceed the budget, the buffers whose next records have the latest stamps are
//!   freed and loaded again later. The budget grows with the size of the file, not with the buffer
//!   sizes in its headers, so a small file with large claimed sizes uses little memory.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::ReadAt;
use super::index::{BufferRef, MAX_DEFECTS};
use super::lane::Lane;
use super::load::{LoadedBuffer, Loader};
use super::reader::Trace;
use crate::header::Record;
use crate::{Error, Result};

/// Bytes of open buffers that are always allowed in addition to the largest buffer.
const EXTRA_OPEN_BYTES: usize = 4 << 20;
/// The most bytes of open buffers in a small file. In a large file, open buffers may take four
/// times the file length if that is more.
const MAX_CHEAP_BYTES: usize = 256 << 20;
/// Bytes that may be loaded again, in addition to [`RELOADS_OF_FILE`] times the file length.
/// Ordinary files need no reload; the limit bounds the cost of crafted files.
const RELOAD_BYTES: u64 = 256 << 20;
/// The file length may be loaded this many times again, in addition to [`RELOAD_BYTES`].
const RELOADS_OF_FILE: u64 = 8;
/// Overlapping plain buffers may all be open, up to this many bytes.
const MAX_OVERLAP_BYTES: u64 = 48 << 20;
/// The highest compression ratio of real files; crafted files may exceed it.
const MAX_COMPRESSION_RATIO: usize = 20;

/// Defects met while reading: the first ones, and the number of all.
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
struct MergePosition {
    /// Time, processor and position of the buffer in [`Trace::buffers`], as one number, because the
    /// heap compares keys often.
    key: u128,
    /// The lane that has the buffer open, or [`NOT_OPEN`].
    slot: usize,
}

const NOT_OPEN: usize = usize::MAX;

impl MergePosition {
    #[inline]
    fn new(time: i64, cpu: u16, buffer: usize, slot: usize) -> Self {
        // With the sign bit flipped, unsigned numbers have the order of signed ones.
        let ascending = time.cast_unsigned() ^ (1 << 63);
        let cpu_and_buffer = u64::from(cpu) << 48 | (buffer as u64 & 0xFFFF_FFFF_FFFF);
        Self { key: u128::from(ascending) << 64 | u128::from(cpu_and_buffer), slot }
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
    heap: BinaryHeap<Reverse<MergePosition>>,
    lanes: Vec<Lane>,
    /// Slots of `lanes` that can be reused.
    free_slots: Vec<usize>,
    /// Slot of the current lane.
    current: Option<usize>,
    /// Whether the current record has been returned.
    is_returned: bool,
    /// The key of the first position in the heap; the current lane is read up to this key.
    horizon: u128,
    loader: Loader,
    open_bytes: usize,
    budget_bytes: usize,
    read_bytes: u64,
    /// Bytes that may still be loaded again. At 0, events are in order only within a buffer.
    reload_bytes_left: u64,
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
            free_slots: Vec::new(),
            current: None,
            is_returned: false,
            horizon: u128::MAX,
            loader: Loader::default(),
            open_bytes: 0,
            budget_bytes: 0,
            read_bytes: 0,
            reload_bytes_left: RELOAD_BYTES.saturating_add(trace.file_size().saturating_mul(RELOADS_OF_FILE)),
            damage: Damage::default(),
            ends: None,
        };
        let buffers = trace.buffers();
        let mut cpu_count = 0_usize;
        let mut cpu = None;
        for (index, b) in buffers.iter().enumerate().filter(|(_, b)| cpu.replace(b.cpu) != Some(b.cpu)) {
            cpu_count = cpu_count.saturating_add(1);
            events.queue_unstamped(index, b.cpu, b.first_time);
            events.queue_stamped(index, b.cpu);
        }
        let largest = buffers.iter().map(|b| b.memory_bytes as usize).max().unwrap_or(0);
        events.budget_bytes = open_bytes_budget(largest, cpu_count, trace.file_size());
        events
    }

    /// Returns the next event; `None` after the last. Damage is skipped and kept for
    /// [`Events::damage`].
    #[allow(clippy::should_implement_trait)] // The record borrows from the reader.
    #[inline(always)]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        if !self.find_next()? {
            return Ok(None);
        }
        self.is_returned = true;
        Ok(self.current.and_then(|slot| self.lanes.get(slot)).and_then(Lane::current_record))
    }

    /// Returns the raw stamp of the event that [`Events::next`] returns next.
    #[inline]
    pub fn peek_time(&mut self) -> Result<Option<i64>> {
        Ok(if self.find_next()? {
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

    fn record_end(&mut self, buffer: usize) {
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

    /// Returns whether there is a next record, and makes its lane the current lane.
    #[inline(always)]
    fn find_next(&mut self) -> Result<bool> {
        if self.step_within_lane() {
            self.is_returned = false;
            return Ok(true);
        }
        self.select_next_lane()
    }

    /// Moves within the current lane if its next record is the earliest of all lanes.
    #[inline(always)]
    fn step_within_lane(&mut self) -> bool {
        let Some(lane) = self.current.and_then(|slot| self.lanes.get_mut(slot)) else { return false };
        self.is_returned && lane.step_to_event_before((self.horizon >> 64) as u64)
    }

    /// Makes `current` the lane with the next record.
    fn select_next_lane(&mut self) -> Result<bool> {
        if let Some((slot, lane)) = self.current.and_then(|slot| Some((slot, self.lanes.get_mut(slot)?))) {
            if !self.is_returned {
                return Ok(true);
            }
            self.is_returned = false;
            if lane.step() {
                let position = MergePosition::new(lane.time, lane.cpu, lane.buffer, slot);
                if position.key < self.horizon {
                    return Ok(true);
                }
                if self.swap_with_first(position) {
                    return Ok(true);
                }
                self.heap.push(Reverse(position));
            } else {
                self.close(slot);
            }
            self.current = None;
        }
        self.open_first_lane()
    }

    /// Continues with the first position of the heap and puts `position` into the heap instead.
    /// Returns false if the buffer of the first position is not in memory.
    #[inline]
    fn swap_with_first(&mut self, position: MergePosition) -> bool {
        let Some(mut top) = self.heap.peek_mut() else { return false };
        let slot = top.0.slot;
        if !self.lanes.get(slot).is_some_and(|l| l.is_resident) {
            return false;
        }
        top.0 = position;
        drop(top);
        self.current = Some(slot);
        self.horizon = self.heap.peek().map_or(u128::MAX, |r| r.0.key);
        true
    }

    /// Takes the first position from the heap and opens its buffer if needed.
    #[cold]
    fn open_first_lane(&mut self) -> Result<bool> {
        while let Some(Reverse(position)) = self.heap.pop() {
            let slot = match position.slot {
                NOT_OPEN => self.open(position)?,
                slot => self.make_resident(slot)?,
            };
            let Some((slot, lane)) = slot.and_then(|slot| Some((slot, self.lanes.get(slot)?))) else {
                continue;
            };
            let actual = MergePosition::new(lane.time, lane.cpu, lane.buffer, slot);
            // With no reloads left, a lane is read to its end at once.
            let next = self.heap.peek().filter(|_| self.reload_bytes_left > 0);
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

    /// Loads the buffer of a position; `None` if the buffer has no records.
    fn open(&mut self, position: MergePosition) -> Result<Option<usize>> {
        let Some(buffer) = self.trace.buffers().get(position.buffer()).copied() else { return Ok(None) };
        let next = position.buffer().saturating_add(1);
        if buffer.is_stamped {
            self.queue_stamped(next, buffer.cpu);
        }
        if !buffer.has_records {
            self.record_end(position.buffer());
            self.queue_unstamped(next, buffer.cpu, position.time());
            return Ok(None);
        }
        let (loaded, damage) = self.load(&buffer)?;
        self.read_bytes = self.read_bytes.saturating_add(u64::from(buffer.size));
        let (lane, scan_result) = Lane::open(
            position.buffer(),
            position.cpu(),
            loaded,
            position.time(),
            self.trace.has_short_instance_headers(),
        );
        for defect in damage.into_iter().chain(scan_result.err()) {
            self.damage.add(defect);
        }
        self.open_bytes = self.open_bytes.saturating_add(lane.memory_bytes());
        let is_finished = lane.is_finished();
        let slot = self.free_slots.pop().unwrap_or(self.lanes.len());
        match self.lanes.get_mut(slot) {
            Some(free_lane) => *free_lane = lane,
            None => self.lanes.push(lane),
        }
        if is_finished {
            self.close(slot);
            return Ok(None);
        }
        Ok(Some(slot))
    }

    fn load(&mut self, buffer: &BufferRef) -> Result<(LoadedBuffer, Option<Error>)> {
        self.free_lanes(buffer.memory_bytes as usize);
        self.loader.load(self.trace.source(), buffer, self.trace.session_buffer_size())
    }

    /// Frees a slot and queues a following buffer that has no stamp of its own.
    fn close(&mut self, slot: usize) {
        let Some(lane) = self.lanes.get_mut(slot) else { return };
        self.open_bytes = self.open_bytes.saturating_sub(lane.memory_bytes());
        let (buffer, cpu, time) = (lane.buffer, lane.cpu, lane.time);
        self.loader.recycle(lane.free_bytes());
        self.free_slots.push(slot);
        self.record_end(buffer);
        self.queue_unstamped(buffer.saturating_add(1), cpu, time);
    }

    /// Queues the processor's first buffer from `index` on that has a stamp.
    fn queue_stamped(&mut self, index: usize, cpu: u16) {
        let following = self.trace.buffers().iter().enumerate().skip(index);
        if let Some((buffer, b)) = following.take_while(|(_, b)| b.cpu == cpu).find(|(_, b)| b.is_stamped) {
            self.heap.push(Reverse(MergePosition::new(b.first_time, cpu, buffer, NOT_OPEN)));
        }
    }

    /// Queues the buffer at `index` if it is the processor's and has no stamp.
    fn queue_unstamped(&mut self, index: usize, cpu: u16, time: i64) {
        if self.trace.buffers().get(index).is_some_and(|b| b.cpu == cpu && !b.is_stamped) {
            self.heap.push(Reverse(MergePosition::new(time, cpu, index, NOT_OPEN)));
        }
    }

    /// Frees the bytes of the lanes whose next records have the latest stamps, until `more_bytes`
    /// bytes fit the budget and at least half of the budget is free.
    fn free_lanes(&mut self, more_bytes: usize) {
        if self.open_bytes.saturating_add(more_bytes) <= self.budget_bytes {
            return;
        }
        let mut resident: Vec<(i64, usize)> = Vec::new();
        resident.extend(
            self.lanes.iter().enumerate().filter(|(_, l)| l.is_resident).map(|(slot, l)| (l.time, slot)),
        );
        resident.sort_unstable();
        // Freeing several at once keeps the search cheap when very many small buffers are open.
        let goal = self.budget_bytes.saturating_sub(more_bytes).min(self.budget_bytes / 2);
        while let Some((_, slot)) = resident.pop().filter(|_| self.open_bytes > goal) {
            if let Some(lane) = self.lanes.get_mut(slot) {
                self.open_bytes = self.open_bytes.saturating_sub(lane.memory_bytes());
                drop(lane.free_bytes());
            }
        }
    }

    /// Counts bytes that were loaded again; reports a defect when the limit is reached.
    fn count_reload(&mut self, bytes: u32, offset: u64) {
        let before = self.reload_bytes_left;
        self.reload_bytes_left = before.saturating_sub(u64::from(bytes));
        if before > 0 && self.reload_bytes_left == 0 {
            let reason = "too many large buffers overlap in time; from here on events are in order within a buffer only";
            self.damage.add(Error::Invalid { what: "order of buffers", offset, reason });
        }
    }

    /// Returns the stamp of the next event without loading a buffer. The stamp is exact except for
    /// a buffer whose stamps decrease.
    pub(super) fn estimate_time(&mut self) -> Option<i64> {
        if let Some(slot) = self.current.filter(|_| core::mem::take(&mut self.is_returned)) {
            let lane = self.lanes.get_mut(slot).and_then(|lane| lane.step().then_some(&*lane));
            match lane.map(|lane| MergePosition::new(lane.time, lane.cpu, lane.buffer, slot)) {
                Some(position) if position.key < self.horizon => {}
                Some(position) => {
                    self.heap.push(Reverse(position));
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

    /// Returns whether the reload limit is used up, so that the caller should read the open buffers
    /// of this file to their end.
    #[must_use]
    pub(super) fn has_used_up_reloads(&self) -> bool {
        self.reload_bytes_left == 0
    }

    /// Returns the bytes of memory that open buffers take.
    #[must_use]
    pub(super) fn resident_bytes(&self) -> usize {
        self.open_bytes
    }

    /// Frees the memory of open buffers; they are loaded again when needed. Does nothing if the
    /// position is still at a record that was returned. For readers of many files at once.
    pub(super) fn free_open_buffers(&mut self) {
        if self.is_returned {
            return;
        }
        if let Some((slot, lane)) = self.current.take().and_then(|slot| Some((slot, self.lanes.get(slot)?))) {
            self.heap.push(Reverse(MergePosition::new(lane.time, lane.cpu, lane.buffer, slot)));
        }
        for lane in self.lanes.iter_mut().filter(|l| l.is_resident) {
            self.open_bytes = self.open_bytes.saturating_sub(lane.memory_bytes());
            drop(lane.free_bytes());
        }
    }

    /// Loads the bytes of a lane again if they were freed; `None` if the file has changed
    /// meanwhile.
    fn make_resident(&mut self, slot: usize) -> Result<Option<usize>> {
        let missing = self.lanes.get(slot).filter(|l| !l.is_resident).map(|l| l.buffer);
        let Some(buffer) = missing.and_then(|b| self.trace.buffers().get(b)).copied() else {
            return Ok(Some(slot));
        };
        let (loaded, _) = self.load(&buffer)?;
        self.count_reload(buffer.size.max(buffer.memory_bytes), buffer.offset);
        let Some(lane) = self.lanes.get_mut(slot) else { return Ok(None) };
        let is_unchanged = lane.restore_bytes(loaded);
        self.open_bytes = self.open_bytes.saturating_add(lane.memory_bytes());
        if !is_unchanged {
            let reason = "the bytes changed while the file was read";
            self.damage.add(Error::Invalid { what: "buffer", offset: buffer.offset, reason });
            self.close(slot);
            return Ok(None);
        }
        Ok(Some(slot))
    }
}

/// Returns the allowed bytes of open buffers, which is the sum of
/// * the largest buffer size times the number of processors, as far as the file length makes that
///   plausible; at least the file length, up to [`MAX_OVERLAP_BYTES`]
/// * the largest buffer size once more
/// * [`EXTRA_OPEN_BYTES`]
fn open_bytes_budget(largest_bytes: usize, cpu_count: usize, file_size: u64) -> usize {
    let length = usize::try_from(file_size).unwrap_or(usize::MAX);
    let plausible_bytes =
        length.saturating_mul(MAX_COMPRESSION_RATIO).min(MAX_CHEAP_BYTES.max(length.saturating_mul(4)));
    let overlapping = usize::try_from(file_size.min(MAX_OVERLAP_BYTES)).unwrap_or(usize::MAX);
    let open = cpu_count.saturating_mul(largest_bytes).min(plausible_bytes).max(overlapping);
    EXTRA_OPEN_BYTES.saturating_add(largest_bytes).saturating_add(open)
}
