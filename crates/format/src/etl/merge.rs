//! All events of a file in time order, with one buffer per processor in memory.
//!
//! Within a processor buffers follow each other in time; across processors there is no order. Each processor has at
//! most one *unopened* buffer in the heap, under the stamp of its first record, and the lanes it has open:
//!
//! ```text
//!   heap   (time, cpu, ordinal) ──pop──▶ unopened? load it, queue the processor's next one ──▶ current lane
//!   current lane ──emit while its next record is not later than the heap's top──▶ back into the heap
//! ```
//!
//! Invariants
//! * A buffer is opened before any record later than its first one is emitted, so overlapping buffers (a clock set
//!   back, a damaged file) still come out in order.
//! * Ties go to the lower processor, then to the earlier buffer; records of one buffer keep their order.
//! * A buffer whose stamps decrease is sorted, stably.
//! * When open buffers exceed the budget, the one needed last gives its bytes back and is loaded again when its turn comes.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::ReadAt;
use super::index::BufferRef;
use super::load::{Loaded, Loader};
use super::reader::Trace;
use crate::header::{Measure, Record, measure, time_of};
use crate::wire::align8;
use crate::{Error, Result};

/// Bytes of open buffers that are always allowed, whatever the number of processors.
const BUDGET: usize = 32 << 20;

/// Defects met while reading: the first of them, and how many there were.
#[derive(Clone, Debug, Default)]
pub struct Damage {
    /// The first defects, at most a thousand.
    pub defects: Vec<Error>,
    /// All of them.
    pub count: u64,
}

impl Damage {
    fn add(&mut self, error: Error) {
        self.count = self.count.saturating_add(1);
        if self.defects.len() < 1000 {
            self.defects.push(error);
        }
    }
}

/// Position of a lane in the order of emission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    time: i64,
    cpu: u16,
    /// Index of the buffer in the trace's index: file order within a processor.
    buffer: usize,
}

#[derive(Debug)]
struct Lane {
    buffer: usize,
    loaded: Loaded,
    /// Whether the bytes are in memory.
    resident: bool,
    /// Offset of the next record.
    at: usize,
    next: Measure,
    time: i64,
    /// Record offsets in time order, when the buffer's own order is not; `at` is then an element.
    sorted: Vec<u32>,
    sorted_at: usize,
}

/// Yields the events of one file in time order.
#[derive(Debug)]
pub struct Events<'t, R> {
    trace: &'t Trace<R>,
    heap: BinaryHeap<Reverse<Turn>>,
    lanes: Vec<Lane>,
    current: Option<usize>,
    /// Size of the record to step over before the next one.
    step: bool,
    /// Time of the first turn in the heap, or the end of time.
    horizon: Option<Turn>,
    loader: Loader,
    open_bytes: usize,
    budget: usize,
    read_bytes: u64,
    damage: Damage,
}

impl<'t, R: ReadAt> Events<'t, R> {
    pub(super) fn new(trace: &'t Trace<R>) -> Self {
        let buffers = trace.buffers();
        let mut heap = BinaryHeap::new();
        let mut cpus = 0_usize;
        for (index, b) in buffers.iter().enumerate() {
            let first = index.checked_sub(1).and_then(|i| buffers.get(i)).is_none_or(|before| before.cpu != b.cpu);
            if first {
                cpus = cpus.saturating_add(1);
                heap.push(Reverse(Turn { time: b.first_time, cpu: b.cpu, buffer: index }));
            }
        }
        let session = trace.session_buffer_size() as usize;
        Self {
            trace,
            heap,
            lanes: Vec::new(),
            current: None,
            step: false,
            horizon: None,
            loader: Loader::default(),
            open_bytes: 0,
            budget: BUDGET.saturating_add(cpus.saturating_mul(session).min(8 * BUDGET)),
            read_bytes: 0,
            damage: Damage::default(),
        }
    }

    /// The next event; `None` after the last. Damage is skipped and kept for [`Events::damage`].
    #[allow(clippy::should_implement_trait)] // The record borrows from the reader.
    #[inline]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        if !self.advance()? {
            return Ok(None);
        }
        self.step = true;
        Ok(self.current_record())
    }

    /// The raw stamp of the event that [`Events::next`] gives next.
    #[inline]
    pub fn peek_time(&mut self) -> Result<Option<i64>> {
        Ok(if self.advance()? { self.current.and_then(|i| self.lanes.get(i)).map(|l| l.time) } else { None })
    }

    /// What was wrong so far.
    #[must_use]
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Bytes of the file that have been read so far, for a progress display.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.read_bytes
    }

    /// Makes `current` the lane with the next record.
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        if let Some(lane) = self.current.and_then(|i| self.lanes.get_mut(i)) {
            if !self.step {
                return Ok(true);
            }
            self.step = false;
            if lane.step(self.trace.old_instances()) {
                let turn = lane.turn(self.trace.buffers());
                if self.horizon.is_none_or(|h| turn < h) {
                    return Ok(true);
                }
                self.heap.push(Reverse(turn));
            } else {
                self.close_current();
            }
            self.current = None;
        }
        self.choose()
    }

    #[inline]
    fn current_record(&self) -> Option<Record<'_>> {
        let lane = self.lanes.get(self.current?)?;
        let cpu = self.trace.buffers().get(lane.buffer)?.cpu;
        Some(Record::new(lane.loaded.bytes.get(lane.at..)?, lane.next, cpu, lane.time))
    }

    /// Takes the first turn from the heap, opening its buffer if need be.
    #[cold]
    fn choose(&mut self) -> Result<bool> {
        while let Some(Reverse(turn)) = self.heap.pop() {
            let lane = match self.lanes.iter().position(|l| l.buffer == turn.buffer) {
                Some(lane) => self.make_resident(lane)?,
                None => match self.open(turn.buffer)? {
                    Some(lane) => lane,
                    None => continue,
                },
            };
            self.horizon = self.heap.peek().map(|r| r.0);
            let Some(opened) = self.lanes.get(lane) else { continue };
            let actual = opened.turn(self.trace.buffers());
            // A sorted buffer may begin earlier or later than its first record said.
            if self.horizon.is_some_and(|h| actual > h) {
                self.heap.push(Reverse(actual));
                continue;
            }
            self.current = Some(lane);
            return Ok(true);
        }
        Ok(false)
    }

    fn open(&mut self, buffer: usize) -> Result<Option<usize>> {
        let buffers = self.trace.buffers();
        let Some(this) = buffers.get(buffer) else { return Ok(None) };
        let next = buffer.saturating_add(1);
        if let Some(following) = buffers.get(next).filter(|f| f.cpu == this.cpu) {
            self.heap.push(Reverse(Turn { time: following.first_time, cpu: this.cpu, buffer: next }));
        }
        if !this.has_records {
            return Ok(None);
        }
        self.make_room(this.size as usize);
        let (loaded, damage) = self.loader.load(self.trace.source(), this, self.trace.session_buffer_size())?;
        self.read_bytes = self.read_bytes.saturating_add(u64::from(this.size));
        if let Some(defect) = damage {
            self.damage.add(defect);
        }
        match Lane::new(buffer, loaded, this.first_time, self.trace.old_instances(), &mut self.damage) {
            Ok(lane) => {
                self.open_bytes = self.open_bytes.saturating_add(lane.loaded.bytes.len());
                self.lanes.push(lane);
                Ok(Some(self.lanes.len().saturating_sub(1)))
            }
            Err(empty) => {
                self.loader.recycle(empty);
                Ok(None)
            }
        }
    }

    fn close_current(&mut self) {
        if let Some(index) = self.current.filter(|&i| i < self.lanes.len()) {
            let lane = self.lanes.swap_remove(index);
            self.open_bytes = self.open_bytes.saturating_sub(lane.loaded.bytes.len());
            self.loader.recycle(lane.loaded);
        }
    }

    /// Gives back the bytes of the lanes that are needed last until `more` bytes fit the budget.
    fn make_room(&mut self, more: usize) {
        while self.open_bytes.saturating_add(more) > self.budget {
            let last = self.lanes.iter_mut().filter(|l| l.resident).max_by_key(|l| (l.time, l.buffer));
            let Some(lane) = last else { return };
            self.open_bytes = self.open_bytes.saturating_sub(lane.loaded.bytes.len());
            lane.loaded.bytes = Vec::new();
            lane.resident = false;
        }
    }

    fn make_resident(&mut self, lane: usize) -> Result<usize> {
        let missing = self.lanes.get(lane).filter(|l| !l.resident).map(|l| l.buffer);
        if let Some(this) = missing.and_then(|b| self.trace.buffers().get(b)) {
            self.make_room(this.size as usize);
            let (loaded, _) = self.loader.load(self.trace.source(), this, self.trace.session_buffer_size())?;
            self.open_bytes = self.open_bytes.saturating_add(loaded.bytes.len());
            if let Some(l) = self.lanes.get_mut(lane) {
                (l.loaded, l.resident) = (loaded, true);
            }
        }
        Ok(lane)
    }
}

impl Lane {
    /// Scans a loaded buffer once; one without records comes back as the error.
    fn new(
        buffer: usize,
        loaded: Loaded,
        first_time: i64,
        old_instances: bool,
        damage: &mut Damage,
    ) -> core::result::Result<Self, Loaded> {
        let mut scan = Scan { at: loaded.start, time: first_time, records: 0, ordered: true };
        let defect = scan.run(&loaded, old_instances, None);
        if let Err(error) = defect {
            damage.add(error);
        }
        if scan.records == 0 {
            return Err(loaded);
        }
        let mut sorted = Vec::new();
        if !scan.ordered {
            let mut order = Vec::with_capacity(scan.records);
            let mut again = Scan { at: loaded.start, time: first_time, records: 0, ordered: true };
            let _ = again.run(&loaded, old_instances, Some(&mut order));
            order.sort_by_key(|&(time, _)| time);
            sorted = order.into_iter().map(|(_, at)| at).collect();
        }
        let at = sorted.first().map_or(loaded.start, |&at| at as usize);
        let next = measure(loaded.bytes.get(at..).unwrap_or_default(), 0, old_instances).ok().flatten();
        let Some(next) = next else { return Err(loaded) };
        let time = time_of(loaded.bytes.get(at..).unwrap_or_default(), next.family).unwrap_or(first_time);
        Ok(Self { buffer, loaded, resident: true, at, next, time, sorted, sorted_at: 0 })
    }

    fn turn(&self, buffers: &[BufferRef]) -> Turn {
        let cpu = buffers.get(self.buffer).map_or(0, |b| b.cpu);
        Turn { time: self.time, cpu, buffer: self.buffer }
    }

    /// Goes to the next record; `false` at the end of the buffer.
    #[inline]
    fn step(&mut self, old_instances: bool) -> bool {
        if self.sorted.is_empty() {
            self.at = self.at.saturating_add(align8(self.next.size));
        } else {
            self.sorted_at = self.sorted_at.saturating_add(1);
            let Some(&at) = self.sorted.get(self.sorted_at) else { return false };
            self.at = at as usize;
        }
        let rest = self.loaded.bytes.get(self.at..).unwrap_or_default();
        // The scan has reported what is wrong behind the last good record.
        match measure(rest, 0, old_instances) {
            Ok(Some(next)) => {
                self.next = next;
                self.time = time_of(rest, next.family).unwrap_or(self.time);
                true
            }
            _ => false,
        }
    }
}

struct Scan {
    at: usize,
    time: i64,
    records: usize,
    ordered: bool,
}

impl Scan {
    fn run(&mut self, loaded: &Loaded, old: bool, mut order: Option<&mut Vec<(i64, u32)>>) -> Result<()> {
        loop {
            let rest = loaded.bytes.get(self.at..).unwrap_or_default();
            let Some(m) = measure(rest, loaded.base.saturating_add(self.at as u64), old)? else {
                return Ok(());
            };
            let time = time_of(rest, m.family).unwrap_or(self.time);
            self.ordered &= self.records == 0 || time >= self.time;
            self.time = time;
            if let Some(order) = &mut order {
                order.push((time, u32::try_from(self.at).unwrap_or(u32::MAX)));
            }
            self.records = self.records.saturating_add(1);
            self.at = self.at.saturating_add(align8(m.size));
        }
    }
}
