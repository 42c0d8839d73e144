//! The attributes of events: which parts their samples have, and which event a record belongs to.
//!
//! ```text
//!   attribute   00 u32 type │ 04 u32 size │ 08 config │ 10 period or frequency │ 18 sample parts
//!               20 read format │ 28 flags │ … │ 48 branch type │ 50 user registers │ 58 u32 stack
//!               5C i32 clock │ 60 registers
//!
//!   sample      [id] ip pid,tid time addr [id] stream cpu period …     id: with IDENTIFIER, or with ID
//!   others      … pid,tid time [id] stream cpu [id]                    at the end of the record
//! ```
//!
//! Source: the manual page perf_event_open(2).

use std::collections::HashMap;

use traceweir_format::wire::{u32_at, u64_at};

use super::file::RECORD_HEADER_BYTES;

/// The size of the attribute in its first version.
const MIN_ATTR_BYTES: usize = 64;
/// The most events of a recording.
const MAX_EVENTS: usize = 1 << 16;
/// The most ids of all events: as many as a table of 2²¹ buckets holds. An event has one for each
/// processor and thread.
const MAX_IDS: usize = 7 << 18;
/// The longest name of an event in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Parts of a sample (`sample_type`).
pub(super) mod part {
    pub(in super::super) const IP: u64 = 1;
    pub(in super::super) const TID: u64 = 1 << 1;
    pub(in super::super) const TIME: u64 = 1 << 2;
    pub(in super::super) const ADDR: u64 = 1 << 3;
    pub(in super::super) const READ: u64 = 1 << 4;
    pub(in super::super) const CALLCHAIN: u64 = 1 << 5;
    pub(in super::super) const ID: u64 = 1 << 6;
    pub(in super::super) const CPU: u64 = 1 << 7;
    pub(in super::super) const PERIOD: u64 = 1 << 8;
    pub(in super::super) const STREAM_ID: u64 = 1 << 9;
    pub(in super::super) const RAW: u64 = 1 << 10;
    pub(in super::super) const BRANCH_STACK: u64 = 1 << 11;
    pub(in super::super) const REGS_USER: u64 = 1 << 12;
    pub(in super::super) const STACK_USER: u64 = 1 << 13;
    pub(in super::super) const IDENTIFIER: u64 = 1 << 16;
}

const FLAG_FREQUENCY: u64 = 1 << 10;
const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;

/// Types of events (`type`).
const TYPE_HARDWARE: u32 = 0;
const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// The attribute of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventAttr {
    kind: u32,
    pub(super) config: u64,
    /// Period or, with `FLAG_FREQUENCY`, frequency.
    period: u64,
    parts: u64,
    pub(super) read_format: u64,
    flags: u64,
    pub(super) branch_type: u64,
    /// The numbers of the user registers in samples, one bit each.
    pub(super) user_registers: u64,
}

impl EventAttr {
    /// Parses an attribute; `None` if it is shorter than any version of it.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= MIN_ATTR_BYTES).then(|| Self {
            kind: u32_at(bytes, 0),
            config: u64_at(bytes, 8),
            period: u64_at(bytes, 0x10),
            parts: u64_at(bytes, 0x18),
            read_format: u64_at(bytes, 0x20),
            flags: u64_at(bytes, 0x28),
            // Fields beyond the end of a shorter attribute read as 0.
            branch_type: u64_at(bytes, 0x48),
            user_registers: u64_at(bytes, 0x50),
        })
    }

    /// Returns whether samples have a part.
    pub(super) const fn has(&self, part: u64) -> bool {
        self.parts & part != 0
    }

    /// Returns whether records other than samples end with time and ids.
    pub(super) const fn has_sample_id(&self) -> bool {
        self.flags & FLAG_SAMPLE_ID_ALL != 0
    }

    pub(super) const fn is_tracepoint(&self) -> bool {
        self.kind == TYPE_TRACEPOINT
    }

    /// Returns whether the event is a tracepoint of which the recording has only a part: perf records
    /// tracepoints at a limited rate if a frequency was chosen for all events.
    pub(super) const fn is_limited_tracepoint(&self) -> bool {
        self.is_tracepoint() && (self.has_frequency() || self.period > 1)
    }

    /// Returns whether the event samples running code: it is neither a tracepoint nor the dummy
    /// event that only reports processes and mappings.
    pub(super) const fn takes_samples(&self) -> bool {
        /// `PERF_COUNT_SW_DUMMY`.
        const DUMMY: u64 = 9;
        !(self.is_tracepoint() || self.kind == TYPE_SOFTWARE && self.config == DUMMY)
    }

    /// Returns whether the event has samples, and they do not name their processor.
    pub(super) const fn lacks_processor(&self) -> bool {
        (self.takes_samples() || self.is_tracepoint()) && !self.has(part::CPU)
    }

    /// Returns how well the event measures CPU time: the larger, the better; 0 if it does not.
    pub(super) const fn clock_rank(&self) -> u32 {
        match (self.kind, self.config & 0xFFFF_FFFF) {
            // The clock of the processor and of the task, in nanoseconds.
            (TYPE_SOFTWARE, 0 | 1) => 3,
            // Cycles; with a frequency, samples come in regular intervals.
            (TYPE_HARDWARE, 0) => 2,
            (TYPE_SOFTWARE | TYPE_TRACEPOINT, _) => 0,
            _ => self.has_frequency() as u32,
        }
    }

    /// Returns the time between two samples in nanoseconds, if it is known.
    pub(super) fn interval_ns(&self) -> Option<u64> {
        if self.has_frequency() {
            return NS_PER_SECOND.checked_div(self.period).filter(|interval| *interval > 0);
        }
        (self.clock_rank() == 3 && self.period > 0).then_some(self.period)
    }

    /// Returns whether perf changes the period all the time, to take samples at a frequency.
    pub(super) const fn has_frequency(&self) -> bool {
        self.flags & FLAG_FREQUENCY != 0
    }

    /// Returns the period of samples; 0 if it varies.
    pub(super) const fn fixed_period(&self) -> u64 {
        if self.has_frequency() { 0 } else { self.period }
    }

    const fn count_parts(&self, parts: u64) -> usize {
        (self.parts & parts).count_ones() as usize
    }

    /// Returns the offset of the id in a sample; `None` if samples have no id.
    fn id_offset_in_sample(&self) -> Option<usize> {
        if self.has(part::IDENTIFIER) {
            return Some(RECORD_HEADER_BYTES);
        }
        let before = part::IP | part::TID | part::TIME | part::ADDR;
        let offset = RECORD_HEADER_BYTES.saturating_add(self.count_parts(before).saturating_mul(8));
        self.has(part::ID).then_some(offset)
    }

    /// Returns the distance of the id from the end of other records; `None` if they have no id.
    fn id_offset_from_end(&self) -> Option<usize> {
        if !self.has_sample_id() {
            return None;
        }
        if self.has(part::IDENTIFIER) {
            return Some(8);
        }
        let after = self.count_parts(part::STREAM_ID | part::CPU).saturating_mul(8);
        self.has(part::ID).then_some(after.saturating_add(8))
    }
}

/// An event of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordedEvent {
    pub(super) attr: EventAttr,
    /// The name, if the recording has one.
    pub(super) name: String,
}

/// The events of a recording, by id.
#[derive(Debug, Default)]
pub(super) struct EventTable {
    pub(super) events: Vec<RecordedEvent>,
    by_id: HashMap<u64, usize>,
    /// The index of the event that becomes the sampled profile.
    main: Option<usize>,
}

impl EventTable {
    /// Adds an event with its ids, as far as the limits allow.
    pub(super) fn add(&mut self, attr: EventAttr, ids: impl Iterator<Item = u64>) {
        let index = self.events.len();
        if index >= MAX_EVENTS {
            return;
        }
        let measures_better = |main: &RecordedEvent| attr.clock_rank() > main.attr.clock_rank();
        if attr.takes_samples() && self.main_event().is_none_or(measures_better) {
            self.main = Some(index);
        }
        self.events.push(RecordedEvent { attr, name: String::new() });
        for id in ids {
            if self.by_id.len() < MAX_IDS {
                self.by_id.insert(id, index);
            }
        }
    }

    /// Returns the index of the event that becomes the sampled profile: the first of those that
    /// measure CPU time best.
    pub(super) const fn main(&self) -> Option<usize> {
        self.main
    }

    /// Returns the event that becomes the sampled profile.
    pub(super) fn main_event(&self) -> Option<&RecordedEvent> {
        self.events.get(self.main?)
    }

    /// Sets the name of the event with an id.
    pub(super) fn set_name(&mut self, id: u64, name: &[u8]) {
        if let Some(event) = self.by_id.get(&id).and_then(|index| self.events.get_mut(*index)) {
            event.name = String::from_utf8_lossy(name.get(..MAX_NAME_BYTES).unwrap_or(name)).into_owned();
        }
    }

    /// Returns the index of the event that a sample belongs to. perf requires that all events of a
    /// recording have their ids at the same offset.
    pub(super) fn find_for_sample(&self, record: &[u8]) -> Option<usize> {
        self.find(|attr| attr.id_offset_in_sample(), record)
    }

    /// Returns the event whose attribute describes the end of a record other than a sample.
    pub(super) fn find_for_other(&self, record: &[u8]) -> Option<&EventAttr> {
        let offset = |attr: &EventAttr| record.len().checked_sub(attr.id_offset_from_end()?);
        let index = self.find(offset, record)?;
        self.events.get(index).map(|event| &event.attr)
    }

    fn find(&self, offset: impl Fn(&EventAttr) -> Option<usize>, record: &[u8]) -> Option<usize> {
        let first = self.events.first()?;
        let Some(offset) = offset(&first.attr) else { return Some(0) };
        let id = u64_at(record, offset);
        match self.by_id.get(&id) {
            Some(index) => Some(*index),
            // Records that perf made up for the state before the recording have the id 0.
            None => (id == 0 || self.events.len() == 1).then_some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_is_missing_only_where_samples_would_have_it() {
        let lacks =
            |kind, config, parts| EventAttr { kind, config, parts, ..EventAttr::default() }.lacks_processor();
        assert!(lacks(TYPE_HARDWARE, 0, part::TIME) && lacks(TYPE_TRACEPOINT, 310, part::TIME));
        assert!(!lacks(TYPE_HARDWARE, 0, part::TIME | part::CPU));
        assert!(!lacks(TYPE_SOFTWARE, 9, part::TIME), "the dummy event has no samples");
    }
}
