//! The buffers of one processor that wait for delivery.
//!
//! ```text
//!   held   [ lost? │ record record record ] [ record record ] …      oldest first
//!                    ▲ next, under its `key`
//! ```
//!
//! 1. Keys never decrease: key = max(previous key, min(stamp, the buffer's stamp)). A stamp that is
//!    too low affects no other record. A stamp that is too high delays the following records of its
//!    buffer, at most to the buffer's stamp. The record itself keeps its stamp.
//! 2. A buffer's loss comes before its first record; a malformed record ends its buffer and counts
//!    as a loss.

use std::collections::VecDeque;

use traceweir_format::buffer::{BufferHeader, HEADER_SIZE};
use traceweir_format::header::{Measure, Record, measure};
use traceweir_format::wire::align8;

use super::Lost;

/// One finished buffer, copied out of its queue.
#[derive(Debug)]
pub(super) struct HeldBuffer {
    bytes: Vec<u8>,
    /// Offset of the end of its records.
    end: usize,
    /// Offset of the next record.
    at: usize,
    /// The buffer's own stamp: no key of its records is later. 0 if it has none.
    stamp: i64,
    lost: Option<Lost>,
}

impl HeldBuffer {
    /// Holds a buffer, with the loss that was noticed with it.
    pub(super) fn new(bytes: Vec<u8>, header: &BufferHeader, lost: Option<Lost>) -> Self {
        let end = header.valid_bytes(bytes.len());
        Self { bytes, end, at: HEADER_SIZE, stamp: header.time_stamp, lost }
    }

    /// Holds a loss without a buffer.
    pub(super) fn from_loss(lost: Lost, stamp: i64) -> Self {
        Self { bytes: Vec::new(), end: 0, at: 0, stamp, lost: Some(lost) }
    }

    fn remaining_bytes(&self) -> &[u8] {
        self.bytes.get(self.at..self.end).unwrap_or_default()
    }
}

/// The next item of a stream.
#[derive(Debug)]
pub(super) enum NextItem<'s> {
    Lost(Lost),
    Record(Record<'s>),
}

/// The held buffers of one processor.
#[derive(Debug)]
pub(super) struct ProcessorStream {
    pub(super) cpu: u16,
    /// The stream is for one buffer that arrived after newer buffers of its processor.
    pub(super) is_late: bool,
    /// Key of the next item.
    pub(super) key: i64,
    /// All records of this processor up to this stamp have arrived.
    pub(super) complete_to: i64,
    held: VecDeque<HeldBuffer>,
    next: Option<Measure>,
    /// The trace has the short instance headers of layouts before 1.1.
    has_short_instance_headers: bool,
}

impl ProcessorStream {
    pub(super) fn new(cpu: u16, has_short_instance_headers: bool) -> Self {
        Self {
            cpu,
            is_late: false,
            key: i64::MIN,
            complete_to: i64::MIN,
            held: VecDeque::new(),
            next: None,
            has_short_instance_headers,
        }
    }

    /// Creates a stream for one late buffer.
    pub(super) fn new_late(cpu: u16, has_short_instance_headers: bool) -> Self {
        Self { is_late: true, ..Self::new(cpu, has_short_instance_headers) }
    }

    /// Adds a buffer and returns whether the stream was empty and is not any more. Buffers without
    /// records go to `spent`.
    pub(super) fn add(&mut self, held: HeldBuffer, spent: &mut Vec<Vec<u8>>) -> bool {
        let was_empty = self.held.is_empty();
        self.complete_to = self.complete_to.max(held.stamp);
        self.held.push_back(held);
        was_empty && self.find_next(spent)
    }

    /// Returns the next item.
    #[inline]
    pub(super) fn front(&self) -> Option<NextItem<'_>> {
        let held = self.held.front()?;
        if let Some(lost) = held.lost {
            return Some(NextItem::Lost(lost));
        }
        Some(NextItem::Record(Record::new(held.remaining_bytes(), self.next?, self.cpu, self.key)))
    }

    /// Moves past the next item and returns whether there is more. Finished buffers go to `spent`.
    #[inline]
    pub(super) fn step(&mut self, spent: &mut Vec<Vec<u8>>) -> bool {
        if let Some(held) = self.held.front_mut()
            && held.lost.take().is_none()
        {
            held.at = held.at.saturating_add(self.next.map_or(0, |m| align8(m.size)));
        }
        self.find_next(spent)
    }

    /// Finds the next item and its key; returns whether there is one.
    #[inline]
    fn find_next(&mut self, spent: &mut Vec<Vec<u8>>) -> bool {
        while let Some(held) = self.held.front_mut() {
            match measure(held.remaining_bytes(), held.at as u64, self.has_short_instance_headers) {
                Ok(next) => self.next = next,
                Err(_) => {
                    (self.next, held.end) = (None, held.at);
                    held.lost.get_or_insert_default();
                }
            }
            let limit = if held.stamp > 0 { held.stamp } else { i64::MAX };
            if let Some(next) = self.next {
                let stamp = Record::new(held.remaining_bytes(), next, self.cpu, self.key).time();
                self.key = self.key.max(stamp.min(limit));
                return true;
            }
            if held.lost.is_some() {
                self.key = self.key.max(held.stamp);
                return true;
            }
            spent.extend(self.held.pop_front().map(|h| h.bytes));
        }
        false
    }
}
