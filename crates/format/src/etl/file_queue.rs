//! Chooses the next file among many that are read as one stream.
//!
//! ```text
//!   push(file) ──▶ heap by (wall time, file) ──▶ pop() ──▶ one event of that file
//!              └─▶ memory of open buffers ──▶ excess(): the longest open file, to be freed
//! ```
//!
//! 1. Only the file that was read has a new next event. The others keep their positions in the
//!    heap, so an event costs the logarithm of the number of files.
//! 2. Of equal times, the first file comes first.
//! 3. A file that has used up its reload limit is read to the end of its open buffers.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Events, ReadAt};
use crate::time::{Clock, FileTime};

/// Memory for open buffers of all files together; above it, buffers are freed and loaded again.
const MAX_OPEN_BYTES: usize = 256 << 20;

/// The files that are read together, by the time of their next events.
#[derive(Debug, Default)]
pub struct FileQueue {
    heap: BinaryHeap<Reverse<(FileTime, usize)>>,
    /// The file that comes next whatever the time of its next event.
    front: Option<usize>,
    /// Memory of each file; `total` is the sum.
    open: Vec<Memory>,
    total: usize,
    /// Files that have open buffers, oldest first; some may have freed them already.
    order: VecDeque<usize>,
}

#[derive(Clone, Debug, Default)]
struct Memory {
    bytes: usize,
    is_in_order: bool,
}

impl FileQueue {
    /// Queues a file by the time of its next event. Called at the start and whenever the file was
    /// read. False if the file has no more events.
    pub fn push<R: ReadAt>(&mut self, file: usize, events: &mut Events<'_, R>, clock: &Clock) -> bool {
        let time = events.likely_time();
        self.note(file, events.resident_bytes());
        let Some(raw) = time else { return false };
        if events.is_hurried() && events.resident_bytes() > 0 {
            self.push_front(file);
        } else {
            self.heap.push(Reverse((clock.file_time(raw), file)));
        }
        true
    }

    /// Makes a file the next one, whatever the time of its next event.
    pub fn push_front(&mut self, file: usize) {
        self.front = Some(file);
    }

    /// Removes and returns the file with the earliest next event.
    #[inline]
    pub fn pop(&mut self) -> Option<usize> {
        self.front.take().or_else(|| self.heap.pop().map(|Reverse((_, file))| file))
    }

    /// Returns a file that must [free its memory](Events::park), as long as there are such files.
    /// One file always keeps its memory.
    pub fn excess(&mut self) -> Option<usize> {
        while self.total > MAX_OPEN_BYTES {
            let oldest = self.order.pop_front()?;
            let Some(memory) = self.open.get_mut(oldest) else { continue };
            if memory.bytes == self.total {
                self.order.push_front(oldest);
                return None;
            }
            memory.is_in_order = false;
            let bytes = core::mem::take(&mut memory.bytes);
            if bytes > 0 {
                self.total = self.total.saturating_sub(bytes);
                return Some(oldest);
            }
        }
        None
    }

    /// Records how much memory a file has.
    #[inline]
    fn note(&mut self, file: usize, bytes: usize) {
        if self.open.len() <= file {
            self.open.resize(file.saturating_add(1), Memory::default());
        }
        let Some(memory) = self.open.get_mut(file) else { return };
        self.total = self.total.saturating_sub(memory.bytes).saturating_add(bytes);
        memory.bytes = bytes;
        if bytes > 0 && !core::mem::replace(&mut memory.is_in_order, true) {
            self.order.push_back(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn ties_go_to_the_first_file_and_front_file_goes_first() {
        let mut queue = FileQueue::default();
        for (time, file) in [(5, 2), (3, 1), (5, 0), (3, 7)] {
            queue.heap.push(Reverse((FileTime(time), file)));
        }
        queue.push_front(9);
        let all: Vec<_> = core::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(all, [9, 1, 7, 0, 2]);
    }

    #[test]
    fn oldest_files_free_memory_until_the_rest_fits() {
        let mut queue = FileQueue::default();
        for file in 0..10 {
            queue.note(file, MAX_OPEN_BYTES / 4);
        }
        queue.note(1, 0);
        let gone: Vec<_> = core::iter::from_fn(|| queue.excess()).collect();
        assert_eq!(gone, [0, 2, 3, 4, 5]);
        queue.note(6, MAX_OPEN_BYTES * 2);
        let gone: Vec<_> = core::iter::from_fn(|| queue.excess()).collect();
        assert_eq!((gone, queue.total), (vec![6], MAX_OPEN_BYTES / 4 * 3));
        for file in [7, 8] {
            queue.note(file, 0);
        }
        queue.note(9, MAX_OPEN_BYTES * 2);
        assert_eq!((queue.excess(), queue.excess()), (None, None), "one keeps its own");
        assert_eq!((queue.total, queue.order.len()), (MAX_OPEN_BYTES * 2, 1));
    }
}
