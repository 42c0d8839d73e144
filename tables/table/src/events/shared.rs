//! Values that many rows share: what follows from the kind of an event, and from its thread.
//!
//! ```text
//!   row   kind   source      kind   provider, event, level, …      source   ids, process, processor
//!     0      0        0         0   Shop, Order, 4, …                   0   7, 7, app, 1
//!     1      0        1         1   Shop, Brew, 5, …                    1   8, 9, app, 0
//!     2      1        1
//! ```
//!
//! A row stores the numbers of its kind and its source. The arrays are made from them at the end of a
//! batch.

use std::sync::Arc;

use arrow_array::types::{UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, ArrowPrimitiveType, PrimitiveArray};
use traceweir_decode::source::prepared::SchemaId;
use traceweir_format::Guid;
use traceweir_format::header::NO_ID;
use traceweir_format::spec::event::EventDescriptor;

use super::columns::EventColumn;
use crate::dictionary::NameKey;

/// The number of recent values that are found again.
const SLOTS: usize = 128;

/// What follows from the kind of an event. Names are keys of dictionaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// The schema, which names its provider, and the provider; `None` if the names may change while
    /// the schema remains.
    pub(super) of: Option<(SchemaId, Guid)>,
    pub(super) descriptor: EventDescriptor,
    pub(super) host: NameKey,
    pub(super) provider: NameKey,
    pub(super) provider_id: NameKey,
    pub(super) event: NameKey,
}

/// Where an event was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) process_id: u32,
    pub(super) thread_id: u32,
    pub(super) writer_process_id: u32,
    pub(super) writer_thread_id: u32,
    pub(super) cpu: u16,
    /// A key of the dictionary of the column.
    pub(super) process: NameKey,
}

impl Source {
    /// Returns a slot for [`SharedValues`].
    #[inline]
    pub(super) const fn slot(&self) -> usize {
        (self.thread_id.wrapping_mul(0x9E37_79B1) >> 16) as usize ^ self.cpu as usize
    }
}

/// Different values, and for each row the number of its value.
#[derive(Debug)]
pub(super) struct SharedValues<T> {
    values: Vec<T>,
    rows: Vec<u32>,
    /// Numbers of recent values, which may be those of values before the last [`Self::clear`].
    slots: [u32; SLOTS],
}

impl<T> Default for SharedValues<T> {
    fn default() -> Self {
        Self { values: Vec::new(), rows: Vec::new(), slots: [0; SLOTS] }
    }
}

impl<T: Copy + PartialEq> SharedValues<T> {
    /// Returns the value that a row with this slot had last, or any other value.
    #[inline]
    pub(super) fn recent(&self, slot: usize) -> Option<&T> {
        self.values.get(*self.slots.get(slot % SLOTS)? as usize)
    }

    /// Appends a row with [the recent value of a slot](Self::recent).
    #[inline]
    pub(super) fn repeat(&mut self, slot: usize) {
        self.rows.push(self.slots.get(slot % SLOTS).copied().unwrap_or(0));
    }

    /// Appends a row.
    #[inline]
    pub(super) fn push(&mut self, slot: usize, value: T) {
        if self.recent(slot) != Some(&value) {
            self.add_value(slot, value);
        }
        self.repeat(slot);
    }

    #[cold]
    fn add_value(&mut self, slot: usize, value: T) {
        // Batches have fewer rows than 2³².
        let number = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.push(value);
        if let Some(recent) = self.slots.get_mut(slot % SLOTS) {
            *recent = number;
        }
    }

    /// Removes all rows and values.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.rows.clear();
    }

    /// Returns a part of the value of each row.
    pub(super) fn of_rows<U: Copy + Default>(&self, part: impl Fn(&T) -> U) -> impl Iterator<Item = U> {
        let parts: Vec<U> = self.values.iter().map(part).collect();
        self.rows.iter().map(move |number| parts.get(*number as usize).copied().unwrap_or_default())
    }

    fn numbers<N: ArrowPrimitiveType>(&self, part: impl Fn(&T) -> N::Native) -> ArrayRef {
        if let [value] = self.values.as_slice() {
            return Arc::new(PrimitiveArray::<N>::from_value(part(value), self.rows.len()));
        }
        Arc::new(PrimitiveArray::<N>::from_iter_values(self.of_rows(part)))
    }
}

impl SharedValues<Kind> {
    /// The columns that are made from kinds.
    pub(super) const COLUMNS: [EventColumn; 10] = [
        EventColumn::Host,
        EventColumn::Provider,
        EventColumn::ProviderId,
        EventColumn::Event,
        EventColumn::Id,
        EventColumn::Version,
        EventColumn::Opcode,
        EventColumn::Task,
        EventColumn::Level,
        EventColumn::Keywords,
    ];

    /// Returns the array of a column of numbers; `None` for other columns.
    pub(super) fn array(&self, column: EventColumn) -> Option<ArrayRef> {
        Some(match column {
            EventColumn::Id => self.numbers::<UInt16Type>(|kind| kind.descriptor.id),
            EventColumn::Version => self.numbers::<UInt8Type>(|kind| kind.descriptor.version),
            EventColumn::Opcode => self.numbers::<UInt8Type>(|kind| kind.descriptor.opcode),
            EventColumn::Task => self.numbers::<UInt16Type>(|kind| kind.descriptor.task),
            EventColumn::Level => self.numbers::<UInt8Type>(|kind| kind.descriptor.level),
            EventColumn::Keywords => self.numbers::<UInt64Type>(|kind| kind.descriptor.keyword),
            _ => return None,
        })
    }
}

impl SharedValues<Source> {
    /// The columns that are made from sources.
    pub(super) const COLUMNS: [EventColumn; 6] = [
        EventColumn::ProcessId,
        EventColumn::Process,
        EventColumn::ThreadId,
        EventColumn::WriterProcessId,
        EventColumn::WriterThreadId,
        EventColumn::Cpu,
    ];

    /// Returns the array of a column of numbers; `None` for other columns.
    pub(super) fn array(&self, column: EventColumn) -> Option<ArrayRef> {
        Some(match column {
            EventColumn::ProcessId => self.ids(|source| source.process_id),
            EventColumn::ThreadId => self.ids(|source| source.thread_id),
            EventColumn::WriterProcessId => self.ids(|source| source.writer_process_id),
            EventColumn::WriterThreadId => self.ids(|source| source.writer_thread_id),
            EventColumn::Cpu => self.numbers::<UInt16Type>(|source| source.cpu),
            _ => return None,
        })
    }

    fn ids(&self, part: impl Fn(&Source) -> u32 + Copy) -> ArrayRef {
        if self.values.iter().map(part).any(|id| id == NO_ID) {
            let ids = self.of_rows(move |source| Some(part(source)).filter(|id| *id != NO_ID));
            return Arc::new(ids.collect::<PrimitiveArray<UInt32Type>>());
        }
        self.numbers::<UInt32Type>(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_get_their_values_however_slots_collide() {
        let mut shared = SharedValues::default();
        let mut expected = Vec::new();
        for batch in 0..3_u32 {
            for number in 0..1000_u32 {
                let value = (number * number + batch) % 37;
                // Some values change their slot, and all values of a slot collide with others.
                shared.push((value % 5 + batch) as usize, value);
                expected.push(value);
            }
            assert_eq!(shared.of_rows(|value| *value).collect::<Vec<_>>(), expected);
            shared.clear();
            expected.clear();
        }
    }

    #[test]
    fn unknown_ids_are_null() {
        let mut sources = SharedValues::default();
        for id in [7, NO_ID, 7] {
            let source = Source {
                process_id: id,
                thread_id: 8,
                writer_process_id: 7,
                writer_thread_id: 8,
                cpu: 3,
                process: 0,
            };
            sources.push(source.slot(), source);
        }
        let nulls = |column| sources.array(column).unwrap().null_count();
        assert_eq!((nulls(EventColumn::ProcessId), nulls(EventColumn::ThreadId)), (1, 0));
        assert!(sources.array(EventColumn::Process).is_none());
    }
}
