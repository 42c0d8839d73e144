//! Whose turn it is among many files that are read as one stream.
//!
//! ```text
//!   settle(file) ──▶ heap by (wall time, file) ──▶ turn() ──▶ one event of that file ──▶ settle(file) …
//!                └─▶ memory of open buffers ──▶ excess(): the file that has had its buffers open for longest gives them back
//! ```
//!
//! 1. Only a file that was read can have another next event: the others keep their places, so an event costs the logarithm of the number of files.
//! 2. Of equal times the first file comes first.
//! 3. A file that may load nothing twice is read to the end of what it has open.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Events, ReadAt};
use crate::time::{Clock, FileTime};

/// Memory for open buffers of all files together; beyond it, buffers are given back and loaded again.
const TOGETHER: usize = 256 << 20;

/// The turns of files that are read together.
#[derive(Debug, Default)]
pub struct Together {
    heap: BinaryHeap<Reverse<(FileTime, usize)>>,
    /// Whose turn it is whatever the time.
    held: Option<usize>,
    /// Memory of each file, and of all.
    open: Vec<Memory>,
    total: usize,
    /// Those that got memory, oldest first; some may have none any more.
    order: VecDeque<usize>,
}

#[derive(Clone, Debug, Default)]
struct Memory {
    bytes: usize,
    is_in_order: bool,
}

impl Together {
    /// Asks a file when its next event is: at first, and whenever it was read. False where it has none.
    pub fn settle<R: ReadAt>(&mut self, file: usize, events: &mut Events<'_, R>, clock: &Clock) -> bool {
        let time = events.likely_time();
        self.note(file, events.resident_bytes());
        let Some(raw) = time else { return false };
        if events.is_hurried() && events.resident_bytes() > 0 {
            self.hold(file);
        } else {
            self.heap.push(Reverse((clock.file_time(raw), file)));
        }
        true
    }

    /// Gives a file the next turn.
    pub fn hold(&mut self, file: usize) {
        self.held = Some(file);
    }

    /// The file whose next event is the earliest.
    #[inline]
    pub fn turn(&mut self) -> Option<usize> {
        self.held.take().or_else(|| self.heap.pop().map(|Reverse((_, file))| file))
    }

    /// A file that must [give its memory back](Events::park), as long as there are such; one keeps its own.
    pub fn excess(&mut self) -> Option<usize> {
        while self.total > TOGETHER {
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

    /// Keeps what memory a file has.
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
    fn of_equal_times_the_first_file_comes_first_and_who_is_held_before_all() {
        let mut turns = Together::default();
        for turn in [(5, 2), (3, 1), (5, 0), (3, 7)] {
            turns.heap.push(Reverse((FileTime(turn.0), turn.1)));
        }
        turns.hold(9);
        let all: Vec<_> = core::iter::from_fn(|| turns.turn()).collect();
        assert_eq!(all, [9, 1, 7, 0, 2]);
    }

    #[test]
    fn the_oldest_give_their_memory_back_until_the_rest_fits() {
        let mut turns = Together::default();
        for file in 0..10 {
            turns.note(file, TOGETHER / 4);
        }
        turns.note(1, 0);
        let gone: Vec<_> = core::iter::from_fn(|| turns.excess()).collect();
        assert_eq!(gone, [0, 2, 3, 4, 5]);
        turns.note(6, TOGETHER * 2);
        let gone: Vec<_> = core::iter::from_fn(|| turns.excess()).collect();
        assert_eq!((gone, turns.total), (vec![6], TOGETHER / 4 * 3));
        for file in [7, 8] {
            turns.note(file, 0);
        }
        turns.note(9, TOGETHER * 2);
        assert_eq!((turns.excess(), turns.excess()), (None, None), "one keeps its own");
        assert_eq!((turns.total, turns.order.len()), (TOGETHER * 2, 1));
    }
}
