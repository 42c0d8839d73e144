//! The queue of a processor's records that wait for the session.
//!
//! ```text
//!   bytes     taken ░░░░░░░░│ waiting ▓▓▓▓▓▓▓▓▓▓     entries   ░░░░│▓▓▓▓▓▓
//!                           └ start of the next                    └ next
//! ```
//!
//! 1. Taken records do not count as waiting, even while their bytes are still in the queue. A
//!    session takes records up to a certain time and leaves newer ones, so it is possible that the
//!    queue never becomes empty.
//! 2. When more bytes are taken than waiting, and more than [`KEPT_BYTES`], the waiting bytes move
//!    to the front. So at most one byte moves for each byte that was taken, and the taken part
//!    never exceeds the larger of the waiting part and [`KEPT_BYTES`]. The same holds for entries.
//! 3. The size of a waiting record includes its entry, which is nearly as large as the smallest
//!    records.
//! 4. When bytes move to the front, the queue also frees the memory that a burst required.

use traceweir_format::Result;

// Capacities, in bytes and in entries, that a queue keeps when it frees memory.
const KEPT_BYTES: usize = 4 << 20;
const KEPT_ENTRIES: usize = 1 << 16;

/// Where a record comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordOrigin {
    /// The processor whose ring had the record.
    pub cpu: u16,
    /// The process and the thread that ran when the kernel reported the event; `u32::MAX` if the
    /// event comes from elsewhere, such as a rundown.
    pub process_id: u32,
    /// See `process_id`.
    pub thread_id: u32,
}

/// A description of a record in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedRecord {
    /// Length in bytes, without padding.
    pub length: usize,
    /// The time of the event, in raw counter units.
    pub raw: u64,
    /// Whether this is the stack or the registers of the preceding event, whose time it repeats in
    /// the first eight bytes of its payload.
    pub is_stack: bool,
    /// Where the record comes from.
    pub origin: RecordOrigin,
}

/// The waiting records of one processor.
#[derive(Debug, Default)]
pub(crate) struct RecordQueue {
    bytes: Vec<u8>,
    entries: Vec<QueueEntry>,
    /// Index of the first waiting entry.
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct QueueEntry {
    start: usize,
    length: usize,
    raw: u64,
    is_stack: bool,
    origin: RecordOrigin,
}

impl RecordQueue {
    pub(crate) fn peek(&self) -> Option<QueuedRecord> {
        let QueueEntry { length, raw, is_stack, origin, .. } = *self.entries.get(self.next)?;
        Some(QueuedRecord { length, raw, is_stack, origin })
    }

    /// Copies as much of the next record as fits into `out`, and removes the record.
    pub(crate) fn pop_into(&mut self, out: &mut [u8]) {
        let Some(entry) = self.entries.get(self.next) else { return };
        let end = entry.start.saturating_add(entry.length.min(out.len()));
        if let (Some(from), Some(to)) =
            (self.bytes.get(entry.start..end), out.get_mut(..entry.length.min(out.len())))
        {
            to.copy_from_slice(from);
        }
        self.next = self.next.saturating_add(1);
        let is_mostly_taken = |taken: usize, total: usize, kept: usize| taken > kept.max(total / 2);
        if self.next == self.entries.len()
            || is_mostly_taken(self.taken_bytes(), self.bytes.len(), KEPT_BYTES)
            || is_mostly_taken(self.next, self.entries.len(), KEPT_ENTRIES)
        {
            self.drop_taken();
        }
    }

    /// Appends the bytes that `encode` writes. Returns whether encoding succeeded.
    pub(super) fn push(
        &mut self,
        record: QueuedRecord,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> bool {
        let start = self.bytes.len();
        if encode(&mut self.bytes).is_err() {
            self.bytes.truncate(start);
            return false;
        }
        let QueuedRecord { length, raw, is_stack, origin } = record;
        self.entries.push(QueueEntry { start, length, raw, is_stack, origin });
        true
    }

    /// Returns where the bytes of the newest record begin. The position is valid until a record is
    /// taken.
    pub(super) fn last_record_start(&self) -> Option<usize> {
        self.entries.last().map(|entry| entry.start)
    }

    pub(super) fn overwrite_u32(&mut self, position: usize, value: u32) {
        if let Some(bytes) = self.bytes.get_mut(position..).and_then(|tail| tail.first_chunk_mut::<4>()) {
            *bytes = value.to_le_bytes();
        }
    }

    /// Returns the bytes that a record of this length takes while it waits.
    pub(super) const fn cost_bytes(length: usize) -> usize {
        length.saturating_add(size_of::<QueueEntry>())
    }

    /// Returns the bytes that all waiting records take.
    pub(super) fn waiting_bytes(&self) -> usize {
        let entries = self.entries.len().saturating_sub(self.next);
        let bytes = self.bytes.len().saturating_sub(self.taken_bytes());
        bytes.saturating_add(entries.saturating_mul(size_of::<QueueEntry>()))
    }

    /// Returns the number of bytes in front of the waiting records.
    fn taken_bytes(&self) -> usize {
        self.entries.get(self.next).map_or(self.bytes.len(), |entry| entry.start)
    }

    /// Moves the waiting records to the front and frees unused memory.
    fn drop_taken(&mut self) {
        let taken = self.taken_bytes();
        self.bytes.drain(..taken);
        self.entries.drain(..self.next);
        self.next = 0;
        for entry in &mut self.entries {
            entry.start = entry.start.saturating_sub(taken);
        }
        self.bytes.shrink_to(KEPT_BYTES.max(self.bytes.len().saturating_mul(2)));
        self.entries.shrink_to(KEPT_ENTRIES.max(self.entries.len().saturating_mul(2)));
    }
}

#[cfg(test)]
impl RecordQueue {
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.next
    }

    /// Returns all bytes, including those of taken records.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push_record(queue: &mut RecordQueue, number: u64, length: usize) {
        let record = QueuedRecord { length, raw: number, is_stack: false, origin: RecordOrigin::default() };
        let byte = number.to_le_bytes()[0];
        assert!(queue.push(record, |bytes| {
            bytes.resize(bytes.len() + length, byte);
            Ok(())
        }));
    }

    #[test]
    fn queue_that_is_never_empty_drops_taken_records() {
        // Large records exceed the kept bytes, and small ones the kept entries.
        for (length, burst) in [(100 << 10, 100_u64), (1, 200_000)] {
            let mut queue = RecordQueue::default();
            let (mut next, mut bytes) = (0, vec![0; length]);
            for number in 0..5 * burst {
                push_record(&mut queue, number, length);
                if number % burst != 0 {
                    continue;
                }
                while queue.len() > 1 {
                    assert_eq!(queue.peek().map(|record| record.raw), Some(next));
                    queue.pop_into(&mut bytes);
                    assert!(
                        bytes.iter().all(|byte| *byte == next.to_le_bytes()[0]),
                        "the record does not have its bytes"
                    );
                    next += 1;
                    assert!(queue.taken_bytes() <= KEPT_BYTES.max(queue.waiting_bytes()));
                    assert!(queue.next <= KEPT_ENTRIES.max(queue.len()));
                }
                assert_eq!(queue.waiting_bytes(), RecordQueue::cost_bytes(length));
            }
            assert!(
                queue.waiting_bytes() > KEPT_BYTES || queue.len() > KEPT_ENTRIES,
                "the queue was not filled beyond its kept capacity"
            );
        }
    }

    #[test]
    fn memory_of_a_burst_is_freed() {
        let mut queue = RecordQueue::default();
        (0..200).for_each(|number| push_record(&mut queue, number, 100 << 10));
        (0..70_000).for_each(|number| push_record(&mut queue, number, 1));
        assert!(queue.bytes.capacity() > KEPT_BYTES && queue.entries.capacity() > KEPT_ENTRIES);
        while queue.peek().is_some() {
            queue.pop_into(&mut []);
        }
        assert_eq!((queue.waiting_bytes(), queue.bytes.len()), (0, 0));
        assert!(queue.bytes.capacity() <= KEPT_BYTES && queue.entries.capacity() <= KEPT_ENTRIES);
    }
}
