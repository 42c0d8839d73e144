//! Reads many files as one stream in time order.
//!
//! ```text
//!   push(file) ─┬▶ heap by (wall time, file) ──▶ next_file() ──▶ read(file): one event of the file
//!               └▶ memory of open buffers ──▶ take_excess_file(): the file open longest, to free
//! ```
//!
//! 1. Only the file that was read has a new next event. The others keep their positions in the
//!    heap, so an event costs the logarithm of the number of files.
//! 2. Of events with equal times, that of the file with the lower index comes first.
//! 3. Files of one counter can be read in the order of their stamps
//!    ([`share_clocks`](MergedFiles::share_clocks)). Each file relates its first stamp to a wall
//!    time in units of 100 ns, so wall times can put the events of two files in another order than
//!    their stamps do.
//! 4. The bytes that may be freed and loaded again are limited for each file. A file that has
//!    reached this limit is read to the end of its open buffers before any other file.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Events, ReadAt, Trace};
use crate::Result;
use crate::header::Record;
use crate::time::{Clock, FileTime, UNITS_PER_SECOND};

/// Memory for open buffers of all files together; above it, buffers are freed and loaded again.
const MAX_OPEN_BYTES: usize = 256 << 20;
/// Difference up to which two clocks of one counter may disagree about the wall time, in 100 ns.
const MAX_ADJUSTMENT_UNITS: u64 = UNITS_PER_SECOND.unsigned_abs();
/// They may disagree by a further 1/1000 of the time between the starts of their files.
const MAX_DRIFT_DIVISOR: u64 = 1000;

/// Several files that are read as one stream in time order.
///
/// The caller asks for the [next file](Self::next_file) and [reads](Self::read) one event of it.
#[derive(Debug)]
pub struct MergedFiles<'t, R> {
    files: Vec<MergedFile<'t, R>>,
    queue: FileQueue,
    /// Whether the files have been put into the queue.
    has_begun: bool,
    /// The file that `next_file` returned last.
    last: Option<usize>,
}

#[derive(Debug)]
struct MergedFile<'t, R> {
    clock: &'t Clock,
    /// The first file with this clock.
    clock_owner: usize,
    events: Events<'t, R>,
    is_done: bool,
}

impl<'t, R: ReadAt> MergedFiles<'t, R> {
    /// Starts at the first events of all files.
    pub fn new(traces: impl IntoIterator<Item = &'t Trace<R>>) -> Self {
        let to_file = |(clock_owner, trace): (usize, &'t Trace<R>)| MergedFile {
            clock: trace.clock(),
            clock_owner,
            events: trace.events(),
            is_done: false,
        };
        let files = traces.into_iter().enumerate().map(to_file).collect();
        Self { files, queue: FileQueue::default(), has_begun: false, last: None }
    }

    /// Makes other threads load and decompress the buffers. Must be called before the first event is
    /// read.
    #[cfg(any(test, feature = "std"))]
    pub fn load_with(&mut self, threads: &super::BufferThreads)
    where
        R: Clone + Send + 'static,
    {
        for file in &mut self.files {
            file.events.load_with(threads);
        }
    }

    /// Orders files whose stamps come from the same counter by their stamps, for readers that use
    /// the stamps and not the wall times. Must be called before the first event is read.
    pub fn share_clocks(&mut self) {
        let mut owners: Vec<(usize, &'t Clock)> = Vec::new();
        for (index, file) in self.files.iter_mut().enumerate() {
            match owners.iter().find(|(_, clock)| have_same_counter(clock, file.clock)) {
                Some(&(owner, clock)) => (file.clock_owner, file.clock) = (owner, clock),
                None => owners.push((index, file.clock)),
            }
        }
    }

    /// Returns the file whose next event is the earliest; of equal times, the first file. Returns
    /// `None` at the end of all files.
    ///
    /// If the caller records [ends of buffers](Events::note_ends), the file is returned once more
    /// for the buffers that end after its last event.
    #[inline(always)]
    pub fn next_file(&mut self) -> Option<usize> {
        match &self.files[..] {
            [only] => (!only.is_done).then_some(0),
            _ => self.take_earliest(),
        }
    }

    #[inline(never)]
    fn take_earliest(&mut self) -> Option<usize> {
        if !self.has_begun {
            self.has_begun = true;
            (0..self.files.len()).for_each(|file| self.schedule(file));
        }
        if let Some(file) = self.last {
            self.schedule(file);
            while let Some(file) = self.queue.take_excess_file().and_then(|file| self.files.get_mut(file)) {
                file.events.free_open_buffers();
            }
        }
        self.last = self.queue.pop();
        self.last
    }

    /// Puts a file into the queue, or marks it as done if it has nothing more to return.
    #[inline]
    fn schedule(&mut self, file: usize) {
        let Some(MergedFile { clock, clock_owner, events, is_done }) = self.files.get_mut(file) else {
            return;
        };
        if *is_done || self.queue.push(file, events, (clock, *clock_owner)) {
            return;
        }
        if events.has_end() {
            self.queue.push_front(file);
        } else {
            *is_done = true;
        }
    }

    /// Reads the next event of the file that [`next_file`](Self::next_file) returned; `None` if the
    /// file has no more events.
    #[inline(always)]
    pub fn read(&mut self, file: usize) -> Result<Option<Record<'_>>> {
        let Some(MergedFile { events, is_done, .. }) = self.files.get_mut(file) else { return Ok(None) };
        let record = events.next()?;
        *is_done = record.is_none();
        Ok(record)
    }

    /// Excludes a file from further reading.
    pub fn end(&mut self, file: usize) {
        if let Some(file) = self.files.get_mut(file) {
            file.is_done = true;
        }
    }

    /// Returns the events of one file.
    pub fn events_mut(&mut self, file: usize) -> Option<&mut Events<'t, R>> {
        self.files.get_mut(file).map(|file| &mut file.events)
    }

    /// Returns the events of each file.
    pub fn events(&self) -> impl Iterator<Item = &Events<'t, R>> {
        self.files.iter().map(|file| &file.events)
    }

    /// Returns the number of bytes that have been read of all files.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.events().map(Events::bytes_read).fold(0, u64::saturating_add)
    }
}

/// Returns whether two clocks count the same ticks. Then both give the same wall time for the first
/// stamp of `b`, except for adjustments of the wall clock between the starts of the files.
fn have_same_counter(a: &Clock, b: &Clock) -> bool {
    let difference = a.file_time(b.anchor).0.abs_diff(b.start.0);
    let max_difference =
        MAX_ADJUSTMENT_UNITS.saturating_add(a.start.0.abs_diff(b.start.0) / MAX_DRIFT_DIVISOR);
    a.kind == b.kind && a.rate == b.rate && difference <= max_difference
}

/// The position of a file in the order of reading. Only files with the same clock compare their
/// stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FilePosition {
    time: FileTime,
    clock_owner: usize,
    stamp: i64,
    file: usize,
}

/// The order in which the files are read.
#[derive(Debug, Default)]
struct FileQueue {
    heap: BinaryHeap<Reverse<FilePosition>>,
    /// The file that is read next regardless of time.
    front: Option<usize>,
    /// Memory of each file; `total_bytes` is the sum.
    memory: Vec<FileMemory>,
    total_bytes: usize,
    /// Files that have open buffers, oldest first; some may have freed them already.
    open_order: VecDeque<usize>,
}

#[derive(Clone, Debug, Default)]
struct FileMemory {
    bytes: usize,
    /// Whether `open_order` contains the file.
    is_listed: bool,
}

impl FileQueue {
    /// Queues a file by the time of its next event. Returns false if the file has no more events.
    fn push<R: ReadAt>(
        &mut self,
        file: usize,
        events: &mut Events<'_, R>,
        (clock, clock_owner): (&Clock, usize),
    ) -> bool {
        let stamp = events.estimate_time();
        self.set_memory(file, events.resident_bytes());
        let Some(stamp) = stamp else { return false };
        if events.has_used_up_reloads() && events.resident_bytes() > 0 {
            self.push_front(file);
        } else {
            self.heap.push(Reverse(FilePosition { time: clock.file_time(stamp), clock_owner, stamp, file }));
        }
        true
    }

    /// Makes a file the next one to be read.
    fn push_front(&mut self, file: usize) {
        self.front = Some(file);
    }

    /// Removes and returns the front file or, without one, the file with the earliest next event.
    #[inline]
    fn pop(&mut self) -> Option<usize> {
        self.front.take().or_else(|| self.heap.pop().map(|Reverse(next)| next.file))
    }

    /// Returns a file that must [free its memory](Events::free_open_buffers), as long as there are
    /// such files. One file always keeps its memory.
    fn take_excess_file(&mut self) -> Option<usize> {
        while self.total_bytes > MAX_OPEN_BYTES {
            let oldest = self.open_order.pop_front()?;
            let Some(memory) = self.memory.get_mut(oldest) else { continue };
            if memory.bytes == self.total_bytes {
                self.open_order.push_front(oldest);
                return None;
            }
            memory.is_listed = false;
            let bytes = core::mem::take(&mut memory.bytes);
            if bytes > 0 {
                self.total_bytes = self.total_bytes.saturating_sub(bytes);
                return Some(oldest);
            }
        }
        None
    }

    /// Records how much memory a file has.
    #[inline]
    fn set_memory(&mut self, file: usize, bytes: usize) {
        if self.memory.len() <= file {
            self.memory.resize(file.saturating_add(1), FileMemory::default());
        }
        let Some(memory) = self.memory.get_mut(file) else { return };
        self.total_bytes = self.total_bytes.saturating_sub(memory.bytes).saturating_add(bytes);
        memory.bytes = bytes;
        if bytes > 0 && !core::mem::replace(&mut memory.is_listed, true) {
            self.open_order.push_back(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ClockKind;
    use alloc::vec;

    #[test]
    fn front_file_precedes_earliest_file_and_ties_go_to_first() {
        let mut queue = FileQueue::default();
        for (time, file) in [(5, 2), (3, 1), (5, 0), (3, 7)] {
            let (time, clock_owner) = (FileTime(time), file);
            queue.heap.push(Reverse(FilePosition { time, clock_owner, stamp: 0, file }));
        }
        queue.push_front(9);
        let order: Vec<_> = core::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [9, 1, 7, 0, 2]);
    }

    #[test]
    fn clocks_of_one_counter_agree_about_the_wall_time() {
        let clock = |kind, rate, anchor, start| Clock { kind, rate, anchor, start: FileTime(start) };
        let first = clock(ClockKind::Qpc, 1_000_000_000, 500, 7_000_000_000);
        let hour = 3600 * UNITS_PER_SECOND;
        for (other, expected) in [
            (clock(ClockKind::Qpc, 1_000_000_000, 3_000_000_577, 7_030_000_001), true),
            // The wall clock was adjusted: by a second, and by 1/1000 in an hour.
            (clock(ClockKind::Qpc, 1_000_000_000, 500, 7_009_999_999), true),
            (clock(ClockKind::Qpc, 1_000_000_000, 500 + 3_603_000_000_000, 7_000_000_000 + hour), true),
            (clock(ClockKind::Qpc, 1_000_000_000, 500, 7_020_000_000), false),
            (clock(ClockKind::Qpc, 1_000_000_001, 500, 7_000_000_000), false),
            (clock(ClockKind::CpuCycles, 1_000_000_000, 500, 7_000_000_000), false),
            (clock(ClockKind::Qpc, 1_000_000_000, i64::MAX, i64::MIN), false),
        ] {
            assert_eq!(have_same_counter(&first, &other), expected, "{other:?}");
        }
        let system = clock(ClockKind::SystemTime, 10_000_000, 8_000_000_000, 8_000_000_000);
        assert!(have_same_counter(&Clock { anchor: 5, start: FileTime(5), ..system }, &system));
    }

    #[test]
    fn oldest_files_free_memory_until_the_remaining_files_fit() {
        let mut queue = FileQueue::default();
        for file in 0..10 {
            queue.set_memory(file, MAX_OPEN_BYTES / 4);
        }
        queue.set_memory(1, 0);
        let freed: Vec<_> = core::iter::from_fn(|| queue.take_excess_file()).collect();
        assert_eq!(freed, [0, 2, 3, 4, 5]);
        queue.set_memory(6, MAX_OPEN_BYTES * 2);
        let freed: Vec<_> = core::iter::from_fn(|| queue.take_excess_file()).collect();
        assert_eq!((freed, queue.total_bytes), (vec![6], MAX_OPEN_BYTES / 4 * 3));
        for file in [7, 8] {
            queue.set_memory(file, 0);
        }
        queue.set_memory(9, MAX_OPEN_BYTES * 2);
        assert_eq!(
            (queue.take_excess_file(), queue.take_excess_file()),
            (None, None),
            "the only file with memory freed it"
        );
        assert_eq!((queue.total_bytes, queue.open_order.len()), (MAX_OPEN_BYTES * 2, 1));
    }
}
