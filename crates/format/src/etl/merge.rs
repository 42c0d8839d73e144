//! Merges the buffers of a file into one sequence of events in time order, usually with one buffer
//! per processor in memory.
//!
//! Within a processor, buffers follow each other in time; across processors there is no order. The
//! heap holds the next *unopened* buffer of each processor, under the stamp of its first record,
//! and all open lanes except the current one. The first of them is kept outside of the heap, as the
//! rival, because the events of two busy processors alternate often:
//!
//! ```text
//!   heap (time, cpu, buffer) ──pop──▶ if unopened: load, queue the CPU's next ──▶ current lane
//!   current lane ──emit while its next record is not later than the rival's──▶ becomes the rival,
//!                                                       or goes back to the heap for its first
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

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::hint::select_unpredictable;

use super::ReadAt;
use super::index::{BufferRef, MAX_DEFECTS};
use super::lane::{Lane, OpenAhead, OpenedBuffer};
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

/// Where a record lies in its file; [`Trace::record_at`] returns the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLocation {
    /// The index of the buffer in [`Trace::buffers`].
    pub buffer: u32,
    /// The offset in the buffer that [`Trace::load`] loads. Records begin at multiples of 8.
    pub offset: u32,
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
    /// A position after all others.
    const NONE: Self = Self { key: u128::MAX, slot: NOT_OPEN };

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

/// Buffers of a processor that are requested when one of it is opened.
const REQUESTS_AHEAD: usize = 2;

/// Yields the events of one file in time order.
#[derive(Debug)]
pub struct Events<'t, R> {
    trace: &'t Trace<R>,
    heap: BinaryHeap<Reverse<MergePosition>>,
    /// The position up to which the current lane is read; no position in the heap is before it.
    /// [`MergePosition::NONE`] without a current lane, and if the current lane is read to its end at
    /// once.
    rival: MergePosition,
    lanes: Vec<Lane>,
    /// Slots of `lanes` that can be reused.
    free_slots: Vec<usize>,
    /// Slot of the current lane.
    current: Option<usize>,
    /// Whether the current record has been returned.
    is_returned: bool,
    loader: Loader,
    open_bytes: usize,
    budget_bytes: usize,
    read_bytes: u64,
    /// Bytes that may still be loaded again. At 0, events are in order only within a buffer.
    reload_bytes_left: u64,
    damage: Damage,
    /// Buffers that have been read to their end, if the caller wants them ([`Events::note_ends`]).
    ends: Option<VecDeque<usize>>,
    ahead: Option<Box<dyn OpenAhead>>,
}

impl<R: ReadAt> Trace<R> {
    /// Returns all events in time order.
    pub fn events(&self) -> Events<'_, R> {
        Events::new(self)
    }

    /// Like [`Trace::events`]; other threads load and decompress the buffers.
    #[cfg(any(test, feature = "std"))]
    pub fn events_with(&self, threads: &super::BufferThreads) -> Events<'_, R>
    where
        R: Clone + Send + 'static,
    {
        let mut events = Events::new(self);
        events.load_with(threads);
        events
    }
}

impl<'t, R: ReadAt> Events<'t, R> {
    fn new(trace: &'t Trace<R>) -> Self {
        let mut events = Self {
            trace,
            heap: BinaryHeap::new(),
            rival: MergePosition::NONE,
            lanes: Vec::new(),
            free_slots: Vec::new(),
            current: None,
            is_returned: false,
            loader: Loader::default(),
            open_bytes: 0,
            budget_bytes: 0,
            read_bytes: 0,
            reload_bytes_left: RELOAD_BYTES.saturating_add(trace.file_size().saturating_mul(RELOADS_OF_FILE)),
            damage: Damage::default(),
            ends: None,
            ahead: None,
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

    /// Returns where the event lies that [`Events::next`] returns next; `None` at the end and unless
    /// [`Events::peek_time`] has moved to that event.
    #[inline]
    #[must_use]
    pub fn peek_location(&self) -> Option<RecordLocation> {
        let lane = self.current.filter(|_| !self.is_returned).and_then(|slot| self.lanes.get(slot))?;
        let buffer = u32::try_from(lane.buffer).ok()?;
        Some(RecordLocation { buffer, offset: lane.offset_in_buffer()? })
    }

    /// Makes other threads load and decompress the buffers.
    #[cfg(any(test, feature = "std"))]
    pub(super) fn load_with(&mut self, threads: &super::BufferThreads)
    where
        R: Clone + Send + 'static,
    {
        let trace = self.trace;
        self.ahead =
            threads.requests(trace.source(), trace.session_buffer_size(), trace.has_short_instance_headers());
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
        let current = self.current.filter(|_| self.is_returned);
        let Some((slot, lane)) = current.and_then(|slot| Some((slot, self.lanes.get_mut(slot)?))) else {
            return if self.current.is_some() { Ok(true) } else { self.open_first_lane() };
        };
        self.is_returned = false;
        if !lane.step_to_common() && !lane.step() {
            return self.end_lane(slot);
        }
        let (position, rival) = (MergePosition::new(lane.time, lane.cpu, lane.buffer, slot), self.rival);
        // Which of two busy processors has the next event is not predictable, so the usual case has
        // no branch on it.
        let stays = position.key < rival.key;
        let first_slot = select_unpredictable(stays, slot, rival.slot);
        let second = MergePosition {
            key: select_unpredictable(stays, rival.key, position.key),
            slot: select_unpredictable(stays, rival.slot, slot),
        };
        // Without a rival, the lane is read to its end.
        let is_before_heap =
            second == MergePosition::NONE || self.heap.peek().is_none_or(|third| second.key <= third.0.key);
        if is_before_heap && self.lanes.get(first_slot).is_some_and(|lane| lane.is_resident) {
            (self.current, self.rival) = (Some(first_slot), second);
            return Ok(true);
        }
        self.leave_lane(position)
    }

    /// Closes the current lane, which is at its end, and finds the next one.
    #[cold]
    fn end_lane(&mut self, slot: usize) -> Result<bool> {
        self.end_run();
        self.close(slot);
        self.open_first_lane()
    }

    /// Continues with the rival; `position` is that of the current lane. The next rival comes from
    /// the heap, or the rival's buffer is not in memory.
    fn leave_lane(&mut self, position: MergePosition) -> Result<bool> {
        if !self.lanes.get(self.rival.slot).is_some_and(|lane| lane.is_resident) {
            self.end_run();
            self.heap.push(Reverse(position));
            return self.open_first_lane();
        }
        self.current = Some(self.rival.slot);
        self.rival = position;
        if let Some(mut first) = self.heap.peek_mut()
            && first.0.key < position.key
        {
            core::mem::swap(&mut first.0, &mut self.rival);
        }
        Ok(true)
    }

    /// Leaves the current lane: all positions except its own are in the heap then.
    fn end_run(&mut self) {
        self.current = None;
        let rival = core::mem::replace(&mut self.rival, MergePosition::NONE);
        if rival != MergePosition::NONE {
            self.heap.push(Reverse(rival));
        }
    }

    /// Takes the first position from the heap and opens its buffer if needed. There must be no
    /// current lane.
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
            // A sorted buffer may begin earlier or later than its first record showed.
            if next.is_some_and(|next| actual.key > next.0.key) {
                self.heap.push(Reverse(actual));
                continue;
            }
            if self.reload_bytes_left > 0 {
                self.rival = self.heap.pop().map_or(MergePosition::NONE, |r| r.0);
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
        let OpenedBuffer { lane, defects } = self.open_lane(position, &buffer)?;
        self.read_bytes = self.read_bytes.saturating_add(u64::from(buffer.size));
        for defect in defects.into_iter().flatten() {
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

    fn open_lane(&mut self, position: MergePosition, buffer: &BufferRef) -> Result<OpenedBuffer> {
        let opened = self.ahead.as_mut().and_then(|ahead| ahead.take(position.buffer()));
        self.request_next(position.buffer(), buffer.cpu);
        if let Some(opened) = opened {
            // As much as without threads, so that the same lanes are open.
            self.free_lanes(buffer.memory_bytes as usize);
            return Ok(opened);
        }
        let (loaded, damage) = self.load(buffer)?;
        let (lane, scan) = Lane::open(
            position.buffer(),
            position.cpu(),
            loaded,
            position.time(),
            self.trace.has_short_instance_headers(),
        );
        Ok(OpenedBuffer { lane, defects: [damage, scan.err()] })
    }

    /// Requests the next buffers of a processor. An unstamped buffer may be opened after those that
    /// follow it, so it requests none.
    fn request_next(&mut self, index: usize, cpu: u16) {
        let Some(ahead) = &mut self.ahead else { return };
        let buffers = self.trace.buffers();
        if !buffers.get(index).is_some_and(|buffer| buffer.is_stamped) {
            return;
        }
        let following = buffers.iter().enumerate().skip(index.saturating_add(1));
        for (index, buffer) in following.take(REQUESTS_AHEAD).take_while(|(_, b)| b.cpu == cpu) {
            if buffer.is_stamped && buffer.has_records {
                ahead.request(index, buffer, &mut self.loader);
            }
        }
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
                Some(position) if position.key < self.rival.key => {}
                Some(position) => {
                    self.end_run();
                    self.heap.push(Reverse(position));
                }
                None => {
                    self.end_run();
                    self.close(slot);
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
        let current = self.current;
        self.end_run();
        if let Some((slot, lane)) = current.and_then(|slot| Some((slot, self.lanes.get(slot)?))) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etl::{Options, Summary, Writer};
    use crate::header::event::EventHeader;
    use crate::time::FileTime;

    /// Builds a file of three processors whose events alternate.
    fn alternating_file() -> Vec<u8> {
        let options = Options { anchor: 1, start_time: FileTime(10), logger_id: 7, ..Options::default() };
        let mut writer = Writer::create(Vec::new(), options).unwrap();
        for time in 10..40_i64 {
            let mut record = Vec::new();
            EventHeader { time, ..EventHeader::default() }.encode(b"", &mut record).unwrap();
            writer.write_record((time % 3) as u16, &record).unwrap();
        }
        writer.finish(Summary::default()).unwrap()
    }

    fn read_cpus(events: &mut Events<'_, Vec<u8>>) -> Vec<u16> {
        let mut cpus = Vec::new();
        while let Some(record) = events.next().unwrap() {
            if record.hook().is_none() {
                cpus.push(record.cpu());
            }
        }
        cpus
    }

    #[test]
    fn without_reloads_each_buffer_is_read_to_its_end() {
        let file = alternating_file();
        let trace = Trace::open(file).unwrap();
        let in_order: Vec<u16> = (10..40).map(|time| time % 3).collect();
        assert_eq!(read_cpus(&mut trace.events()), in_order);
        let mut events = trace.events();
        events.reload_bytes_left = 0;
        let mut runs = read_cpus(&mut events);
        assert_eq!(runs.len(), in_order.len());
        runs.dedup();
        assert_eq!(runs.len(), 3, "a buffer was left before its end: {runs:?}");
    }

    /// Opens all buffers and returns their bytes, for the budget.
    fn count_open_bytes(trace: &Trace<Vec<u8>>, spare_bytes: usize) -> usize {
        let mut events = trace.events();
        for _ in 0..4 {
            let bytes = Vec::with_capacity(spare_bytes);
            events.loader.recycle(LoadedBuffer { bytes, ..LoadedBuffer::default() });
        }
        let mut most = 0;
        while events.next().unwrap().is_some() {
            most = most.max(events.resident_bytes());
        }
        most
    }

    #[test]
    fn reused_vectors_do_not_change_the_budget() {
        let trace = Trace::open(alternating_file()).unwrap();
        let largest = trace.buffers().iter().map(|b| b.memory_bytes as usize).max().unwrap();
        assert_eq!(count_open_bytes(&trace, largest * 2), count_open_bytes(&trace, 0));
    }
}
