//! Every rule of the format that a file breaks, with the place.
//!
//! The reader forgives what it can; this says what it forgave. One finding is one broken rule at one offset, in file order.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::load::{Loaded, Loader};
use super::reader::Trace;
use super::{BufferRef, ReadAt};
use crate::buffer::{BufferHeader, HEADER_SIZE};
use crate::spec::session::{BUFFER_FLAG_FLUSH_MARKER, BufferType, EVENT_TRACE_FILE_MODE_CIRCULAR};
use crate::{Error, Result, header};

/// A rule that a file can break.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// `EndTime` is set when a session stops.
    NotFinalised,
    /// `BuffersWritten` counts the buffers of the file.
    BuffersWritten,
    /// Boot, start and end follow each other.
    HeaderTimes,
    /// The clock type is 1, 2 or 3 and has a rate.
    ClockType,
    /// The session buffer size lies between 1 KiB and 16 MiB.
    SessionBufferSize,
    /// Buffers follow each other without gaps to the end of the file.
    BufferSequence,
    /// `Offset` lies inside the buffer and is a multiple of eight.
    BufferOffset,
    /// Flags and type of a buffer are known ones.
    BufferKind,
    /// Sequence numbers are unique.
    SequenceNumber,
    /// A compressed buffer unpacks to exactly its `Offset`.
    Compression,
    /// The last buffer, and no other data buffer, ends a flush batch.
    FlushMarker,
    /// A record has a known marker, a possible size and lies inside its buffer.
    Record,
    /// Extended items lie inside their record.
    ExtendedItems,
    /// Stamps do not decrease within a buffer.
    TimeInBuffer,
    /// Stamps do not decrease from buffer to buffer of a processor.
    TimeAcrossBuffers,
}

impl Rule {
    /// A short name for people and scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotFinalised => "not-finalised",
            Self::BuffersWritten => "buffers-written",
            Self::HeaderTimes => "header-times",
            Self::ClockType => "clock-type",
            Self::SessionBufferSize => "session-buffer-size",
            Self::BufferSequence => "buffer-sequence",
            Self::BufferOffset => "buffer-offset",
            Self::BufferKind => "buffer-kind",
            Self::SequenceNumber => "sequence-number",
            Self::Compression => "compression",
            Self::FlushMarker => "flush-marker",
            Self::Record => "record",
            Self::ExtendedItems => "extended-items",
            Self::TimeInBuffer => "time-in-buffer",
            Self::TimeAcrossBuffers => "time-across-buffers",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which rule.
    pub rule: Rule,
    /// Where in the file; inside a compressed buffer, counted in its unpacked bytes from the buffer's start.
    pub offset: u64,
    /// What is wrong.
    pub detail: String,
}

/// Reports each broken rule to `report`, and returns the number of events that can be read.
pub fn check<R: ReadAt>(trace: &Trace<R>, report: &mut dyn FnMut(Finding)) -> Result<u64> {
    let mut checker = Checker { trace, report, loader: Loader::default(), events: 0, last: BTreeMap::new() };
    checker.log_file_header();
    for defect in trace.defects() {
        let offset = match defect {
            Error::Truncated { offset, .. } | Error::Invalid { offset, .. } => *offset,
            _ => trace.zero_tail_start(),
        };
        checker.found(Rule::BufferSequence, offset, defect.to_string());
    }
    checker.buffers()?;
    Ok(checker.events)
}

struct Checker<'a, R> {
    trace: &'a Trace<R>,
    report: &'a mut dyn FnMut(Finding),
    loader: Loader,
    events: u64,
    /// Last stamp of each processor.
    last: BTreeMap<u16, i64>,
}

impl<R: ReadAt> Checker<'_, R> {
    fn found(&mut self, rule: Rule, offset: u64, detail: String) {
        (self.report)(Finding { rule, offset, detail });
    }

    fn log_file_header(&mut self) {
        let h = self.trace.header();
        if !self.trace.is_finalised() {
            let detail = "EndTime is 0: the session never finalised the file (weir repair does)";
            self.found(Rule::NotFinalised, 0x78, detail.to_string());
        }
        let there = self.trace.buffers().len() as u64;
        let circular = h.log_file_mode & EVENT_TRACE_FILE_MODE_CIRCULAR != 0;
        let said = u64::from(h.buffers_written);
        if said != there && !(circular && said > there) {
            let detail = format!("BuffersWritten is {said}, the file has {there} buffers");
            self.found(Rule::BuffersWritten, 0x8C, detail);
        }
        if h.end_time.0 != 0 && h.end_time < h.start_time {
            let detail = format!("the session ends ({}) before it starts ({})", h.end_time, h.start_time);
            self.found(Rule::HeaderTimes, 0x78, detail);
        }
        if h.boot_time > h.start_time {
            let detail =
                format!("the machine boots ({}) after the session starts ({})", h.boot_time, h.start_time);
            self.found(Rule::HeaderTimes, self.trace.header_offset(0xF0), detail);
        }
        let rated = match h.clock_type {
            1 => h.perf_freq > 0,
            2 => true,
            3 => h.cpu_speed_mhz > 0,
            _ => h.versions[0] < 6 && h.clock_type == 0,
        };
        if !rated {
            let (kind, frequency, speed) = (h.clock_type, h.perf_freq, h.cpu_speed_mhz);
            let detail =
                format!("clock type {kind} with a counter of {frequency} Hz and {speed} MHz has no rate");
            self.found(Rule::ClockType, self.trace.header_offset(0x108), detail);
        }
        if h.plausible_buffer_size().is_none() {
            self.found(Rule::SessionBufferSize, 0x68, format!("session buffer size is {}", h.buffer_size));
        }
    }

    fn buffers(&mut self) -> Result<()> {
        let mut buffers = Vec::with_capacity(self.trace.buffers().len());
        let mut raw = [0; HEADER_SIZE];
        for buffer in self.trace.buffers() {
            if self.trace.source().read_at(buffer.offset, &mut raw)? == HEADER_SIZE {
                buffers.push((*buffer, BufferHeader::parse(&raw)));
            }
        }
        buffers.sort_by_key(|(b, _)| b.offset);
        self.buffer_headers(&buffers);
        if self.is_circular() {
            // File order is order of acquisition but for wrapped files.
            buffers.sort_by_key(|(b, _)| b.sequence);
        }
        for (buffer, head) in &buffers {
            let (loaded, damage) =
                self.loader.load(self.trace.source(), buffer, self.trace.session_buffer_size())?;
            if let Some(defect) = damage {
                self.found(Rule::Compression, buffer.offset, defect.to_string());
            }
            if buffer.has_records {
                self.records(buffer, head, &loaded);
            }
            self.loader.recycle(loaded);
        }
        Ok(())
    }

    fn is_circular(&self) -> bool {
        self.trace.header().log_file_mode & EVENT_TRACE_FILE_MODE_CIRCULAR != 0
    }

    /// The rules for headers, of buffers in file order.
    fn buffer_headers(&mut self, buffers: &[(BufferRef, BufferHeader)]) {
        let modern = self.trace.header().has_modern_buffers();
        let mut sequences = Vec::with_capacity(buffers.len());
        let mut session = 0_u32;
        for (index, (buffer, head)) in buffers.iter().enumerate() {
            self.buffer_offset(head, buffer);
            if !modern {
                continue;
            }
            self.buffer_kind(head, buffer);
            let next = buffers.get(index.saturating_add(1)).map(|(_, next)| next.kind());
            self.flush_marker(head, buffer.offset, next);
            // An appended session counts from the start again.
            session = session.saturating_add(u32::from(head.kind() == BufferType::HEADER));
            sequences.push((session, head.sequence_number, buffer.offset));
        }
        self.sequence_numbers(sequences);
    }

    fn buffer_offset(&mut self, head: &BufferHeader, buffer: &BufferRef) {
        let offset = u64::from(head.offset);
        let past = !buffer.compressed && offset > u64::from(head.within(buffer.size).buffer_size);
        if offset < HEADER_SIZE as u64 || offset % 8 != 0 || past {
            let detail = format!("Offset {:#x} in a buffer of {:#x} bytes", head.offset, head.buffer_size);
            self.found(Rule::BufferOffset, buffer.offset.saturating_add(0x30), detail);
        }
    }

    fn buffer_kind(&mut self, head: &BufferHeader, buffer: &BufferRef) {
        let at = buffer.offset;
        if head.is_compressed() && !buffer.compressed {
            self.found(
                Rule::BufferKind,
                at.saturating_add(0x34),
                "the header buffer is marked as compressed".to_string(),
            );
        }
        if head.flags & !0x7F != 0 {
            self.found(
                Rule::BufferKind,
                at.saturating_add(0x34),
                format!("unknown flags {:#06x}", head.flags),
            );
        }
        if head.buffer_type > BufferType::DBG_INFO.0 {
            self.found(
                Rule::BufferKind,
                at.saturating_add(0x36),
                format!("unknown type {}", head.buffer_type),
            );
        }
    }

    /// The last buffer of a session has the marker: the last one of the file, or before another session's header.
    fn flush_marker(&mut self, head: &BufferHeader, at: u64, next: Option<BufferType>) {
        let marked = head.flags & BUFFER_FLAG_FLUSH_MARKER != 0;
        let is_last = next.is_none();
        let may_be_marked = is_last || head.kind() == BufferType::HEADER || next == Some(BufferType::HEADER);
        if !self.trace.is_finalised()
            || self.is_circular()
            || (marked || !is_last) && (!marked || may_be_marked)
        {
            return;
        }
        let which = if marked { "a buffer in the middle of the file" } else { "the last buffer" };
        let detail = format!("{which} {} the flush marker", if marked { "has" } else { "lacks" });
        self.found(Rule::FlushMarker, at.saturating_add(0x34), detail);
    }

    fn sequence_numbers(&mut self, mut sequences: Vec<(u32, i64, u64)>) {
        sequences.sort_unstable();
        for pair in sequences.windows(2) {
            if let [(before, first, _), (session, second, offset)] = pair
                && (before, first) == (session, second)
            {
                let detail = format!("number {second} again");
                self.found(Rule::SequenceNumber, offset.saturating_add(0x18), detail);
            }
        }
    }

    fn records(&mut self, buffer: &BufferRef, head: &BufferHeader, loaded: &Loaded) {
        let mut walk = crate::buffer::Records::new(
            &loaded.bytes,
            loaded.start,
            loaded.base,
            buffer.cpu,
            self.trace.old_instances(),
        );
        let mut before: Option<i64> = None;
        loop {
            let at = loaded.base.saturating_add(walk.position() as u64);
            let record = match walk.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(defect) => {
                    let lost = loaded.bytes.len().saturating_sub(walk.position());
                    self.found(
                        Rule::Record,
                        at,
                        format!("{defect}; {lost} bytes of the buffer cannot be read"),
                    );
                    break;
                }
            };
            self.events = self.events.saturating_add(1);
            if record.items_damaged() {
                self.found(Rule::ExtendedItems, at, "extended items leave the record".to_string());
            }
            let time = header::time_of(record.bytes(), record.family());
            if let Some(time) = time {
                self.stamp_order(at, time, before, buffer.cpu);
            }
            before = time.or(before);
        }
        // A header buffer carries the anchor, which later events may precede.
        let is_header = buffer.offset == 0 || head.kind() == BufferType::HEADER;
        if let Some(time) = before.filter(|_| !is_header) {
            self.last.insert(buffer.cpu, time);
        }
    }

    /// Compares a stamp with the one before it, in its buffer or in the processor's buffer before.
    fn stamp_order(&mut self, at: u64, time: i64, before: Option<i64>, cpu: u16) {
        match (before, self.last.get(&cpu)) {
            (Some(earlier), _) if time < earlier => {
                self.found(Rule::TimeInBuffer, at, format!("stamp {time} after {earlier}"));
            }
            (None, Some(&earlier)) if time < earlier => {
                let detail = format!("stamp {time} after {earlier} on processor {cpu}");
                self.found(Rule::TimeAcrossBuffers, at, detail);
            }
            _ => {}
        }
    }
}
