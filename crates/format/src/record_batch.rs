//! Copies of records that outlive the buffers they came from, for example for another thread.

use alloc::vec::Vec;

use crate::header::Record;

/// Records in the order in which they were added, each with a value of the caller.
#[derive(Debug)]
pub struct RecordBatch<T> {
    bytes: Vec<u8>,
    entries: Vec<BatchEntry<T>>,
}

#[derive(Debug)]
struct BatchEntry<T> {
    /// The record without its bytes.
    record: Record<'static>,
    /// Offset of its end in the bytes of the batch.
    end: usize,
    value: T,
}

impl<T> Default for RecordBatch<T> {
    fn default() -> Self {
        Self { bytes: Vec::new(), entries: Vec::new() }
    }
}

impl<T> RecordBatch<T> {
    /// Adds a copy of a record.
    #[inline]
    pub fn push(&mut self, record: &Record<'_>, value: T) {
        self.bytes.extend_from_slice(record.bytes());
        let (record, end) = (record.with_bytes(&[]), self.bytes.len());
        self.entries.push(BatchEntry { record, end, value });
    }

    /// Returns the bytes of all records.
    #[inline]
    #[must_use]
    pub const fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of records.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no records.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes all records and keeps their memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// Returns the records and their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Record<'_>, &T)> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let bytes = self.bytes.get(start..entry.end).unwrap_or_default();
            start = entry.end;
            (entry.record.with_bytes(bytes), &entry.value)
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::header::event::EventHeader;

    #[test]
    fn records_are_returned_as_they_were_added() {
        let mut batch = RecordBatch::default();
        let encode = |time: i64, payload: &[u8]| {
            let mut bytes = Vec::new();
            EventHeader { time, thread_id: 7, ..EventHeader::default() }.encode(payload, &mut bytes).unwrap();
            bytes
        };
        for round in 0..2 {
            for number in 0..3_u8 {
                let bytes = encode(i64::from(number), &vec![number; usize::from(number) * 5]);
                batch.push(&Record::parse(&bytes, u16::from(number)).unwrap(), number);
            }
            assert_eq!((batch.len(), batch.is_empty()), (3, false), "round {round}");
            for (record, number) in batch.iter() {
                let expected = vec![*number; usize::from(*number) * 5];
                assert_eq!((record.payload(), record.cpu()), (&expected[..], u16::from(*number)));
                assert_eq!((record.time(), record.thread_id()), (i64::from(*number), 7));
            }
            batch.clear();
            assert_eq!((batch.byte_count(), batch.iter().count()), (0, 0));
        }
    }
}
