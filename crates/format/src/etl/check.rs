//! Checks a file against the rules of the format and reports every violation with its offset.
//!
//! The reader tolerates many violations; the checker reports all of them. One finding is
//! one broken rule at one offset. Findings come in this order, each group in file order unless
//! stated otherwise:
//!
//! ```text
//!   log-file header   rule by rule
//!   buffer sequence   gaps, damaged sizes, a truncated end
//!   buffer headers    buffer by buffer; last, sequence numbers used twice, by number
//!   contents          buffer by buffer (in circular files, by sequence number): unpacking,
//!                     records, filler
//! ```
//!
//! Most broken rules are faults. Some are **remarks** ([`Rule::is_remark`]): intact files break
//! these rules too, and nothing in the file shows whether this one is intact. Stamps are such a
//! case: a provider may supply stamps (EVENT_DATA_DESCRIPTOR_TYPE_TIMESTAMP_OVERRIDE,
//! WNODE_FLAG_USE_TIMESTAMP) that are earlier than the stamps around them. Records do not show
//! where a stamp came from. A session may also collect events late, from memory that a process had
//! filled before the session adopted it, and write them into separate buffers. Readers sort the
//! events, so none is lost. A file with nothing but remarks is sound.
//!
//! Buffers from before Windows Vista lack or misuse most header fields: only their `Offset`,
//! processor, records and stamps are checked. Where `Offset` is impossible, filler is not checked,
//! because its start is unknown.
//!
//! Not checked, because good files differ in it or readers do not depend on it: `SavedOffset`,
//! `CurrentOffset` and time of a buffer, gaps in sequence numbers, padding after records, reserved
//! bytes, the logger id of header buffers, stamps against start and end of the session, and
//! payloads. Flags and counts of lost events are facts about the session, not findings.

mod heads;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::load::{LoadedBuffer, Loader};
use super::reader::Trace;
use super::{BufferRef, ReadAt};
use crate::buffer::{BufferHeader, FILLER, HEADER_SIZE};
use crate::spec::session::{BufferType, EVENT_TRACE_FILE_MODE_CIRCULAR};
use crate::{Error, Result, header};

/// A rule that a file can break.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// `EndTime` is set when a session stops.
    NotFinalised,
    /// `BuffersWritten` is the number of buffers in the file; in a circular file that has wrapped,
    /// it also counts overwritten buffers.
    BuffersWritten,
    /// Boot, start and end time are in this order.
    HeaderTimes,
    /// The clock type is 1, 2 or 3 (or 0 before Windows Vista) and has a rate.
    ClockType,
    /// The session buffer size lies between 1 KiB and 16 MiB.
    SessionBufferSize,
    /// The pointer size is 4 or 8, and both names end inside the log-file header event.
    LogFileHeader,
    /// Buffers follow each other without gaps to the end of the file.
    BufferSequence,
    /// The first buffer is of type HEADER.
    FirstBuffer,
    /// `Offset` is a multiple of eight, not inside the buffer header and, unless the buffer is
    /// compressed, not after the end of the buffer.
    BufferOffset,
    /// Buffers in a file have the state "flush".
    BufferState,
    /// Flags and type of a buffer are known values, and the first buffer is not compressed.
    BufferKind,
    /// The processor index is below `NumberOfProcessors`, if that number is known and the file is
    /// finalised.
    Processor,
    /// The data buffers of a session have one logger id; at most one finding per file.
    LoggerId,
    /// Sequence numbers are unique within a session.
    SequenceNumber,
    /// A compressed buffer unpacks to exactly `Offset` bytes, header included, and takes at most
    /// as many bytes in the file. The log-file mode includes compression if a buffer is compressed;
    /// at most one finding per file reports the mode.
    Compression,
    /// In finalised files that are not circular, the last buffer has the flush marker. Of the other
    /// data buffers, only the last one of an earlier session may have this marker.
    FlushMarker,
    /// A record has a known marker, a possible size and lies inside its buffer.
    Record,
    /// A plain buffer holds nothing but 0xFF after its records; the finding is at the first other
    /// byte.
    Filler,
    /// Extended data items lie inside their record.
    ExtendedItems,
    /// Stamps do not decrease within a buffer. A remark.
    TimeInBuffer,
    /// Stamps do not decrease from buffer to buffer of a processor. A remark.
    TimeAcrossBuffers,
}

impl Rule {
    /// Returns a short name for people and scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotFinalised => "not-finalised",
            Self::BuffersWritten => "buffers-written",
            Self::HeaderTimes => "header-times",
            Self::ClockType => "clock-type",
            Self::SessionBufferSize => "session-buffer-size",
            Self::LogFileHeader => "log-file-header",
            Self::FirstBuffer => "first-buffer",
            Self::BufferState => "buffer-state",
            Self::Processor => "processor",
            Self::LoggerId => "logger-id",
            Self::Filler => "filler",
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

    /// Returns whether intact files break the rule too, so that a finding is a remark and not a
    /// fault.
    #[must_use]
    pub const fn is_remark(self) -> bool {
        matches!(self, Self::TimeInBuffer | Self::TimeAcrossBuffers)
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
    /// The broken rule.
    pub rule: Rule,
    /// Offset in the file. For a record of a compressed buffer: the buffer's offset plus the
    /// record's offset in the unpacked buffer.
    pub offset: u64,
    /// A description of the violation.
    pub detail: String,
}

/// Passes each finding to `report` and returns the number of readable events.
pub fn check<R: ReadAt>(trace: &Trace<R>, report: &mut dyn FnMut(Finding)) -> Result<u64> {
    let mut checker =
        Checker { trace, report, loader: Loader::default(), events: 0, last_stamps: BTreeMap::new() };
    checker.check_log_file_header()?;
    for defect in trace.defects() {
        let offset = match defect {
            Error::Truncated { offset, .. } | Error::Invalid { offset, .. } | Error::Hole { offset, .. } => {
                *offset
            }
            _ => trace.end_of_buffers(),
        };
        checker.report_finding(Rule::BufferSequence, offset, defect.to_string());
    }
    checker.check_buffers()?;
    Ok(checker.events)
}

struct Checker<'a, R> {
    trace: &'a Trace<R>,
    report: &'a mut dyn FnMut(Finding),
    loader: Loader,
    events: u64,
    /// The last stamp of each processor's data buffers so far.
    last_stamps: BTreeMap<u16, i64>,
}

impl<R: ReadAt> Checker<'_, R> {
    fn report_finding(&mut self, rule: Rule, offset: u64, detail: String) {
        (self.report)(Finding { rule, offset, detail });
    }

    fn check_buffers(&mut self) -> Result<()> {
        let mut buffers = Vec::with_capacity(self.trace.buffers().len());
        let mut raw = [0; HEADER_SIZE];
        for buffer in self.trace.buffers() {
            if self.trace.source().read_at(buffer.offset, &mut raw)? == HEADER_SIZE {
                buffers.push((*buffer, BufferHeader::parse(&raw)));
            }
        }
        buffers.sort_by_key(|(b, _)| b.offset);
        self.check_buffer_headers(&buffers);
        if self.is_circular() {
            // In other files, and in circular files that have not wrapped, file order is the order
            // of sequence numbers.
            buffers.sort_by_key(|(b, _)| b.sequence);
        }
        for (buffer, header) in &buffers {
            let (loaded, damage) =
                self.loader.load(self.trace.source(), buffer, self.trace.session_buffer_size())?;
            if let Some(defect) = damage {
                self.report_finding(Rule::Compression, buffer.offset, defect.to_string());
            }
            if buffer.has_records {
                self.check_records(buffer, header, &loaded);
            }
            self.check_filler(buffer, header)?;
            self.loader.recycle(loaded);
        }
        Ok(())
    }

    fn is_circular(&self) -> bool {
        self.trace.header().log_file_mode & EVENT_TRACE_FILE_MODE_CIRCULAR != 0
    }

    /// Checks the bytes between `Offset` and the end of a plain buffer.
    fn check_filler(&mut self, buffer: &BufferRef, header: &BufferHeader) -> Result<()> {
        if buffer.is_compressed
            || heads::has_bad_offset(header, buffer)
            || !self.trace.header().has_modern_buffers()
        {
            return Ok(());
        }
        let end = buffer.offset.saturating_add(u64::from(buffer.size));
        let mut at = buffer.offset.saturating_add(u64::from(header.offset));
        let mut block = [0; 4096];
        while at < end {
            let remaining = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX);
            let part = block.get_mut(..remaining.min(4096)).unwrap_or_default();
            let length = self.trace.source().read_at(at, part)?;
            if let Some(index) = part.iter().take(length).position(|&byte| byte != FILLER) {
                let detail = "a byte other than 0xFF after the records of the buffer".to_string();
                self.report_finding(Rule::Filler, at.saturating_add(index as u64), detail);
                break;
            }
            if length == 0 {
                break;
            }
            at = at.saturating_add(length as u64);
        }
        Ok(())
    }

    fn check_records(&mut self, buffer: &BufferRef, header: &BufferHeader, loaded: &LoadedBuffer) {
        let mut walk = crate::buffer::Records::new(
            &loaded.bytes,
            loaded.start,
            loaded.base,
            buffer.cpu,
            self.trace.has_short_instance_headers(),
        );
        let mut previous: Option<i64> = None;
        loop {
            let at = loaded.base.saturating_add(walk.position() as u64);
            let record = match walk.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(defect) => {
                    let lost = loaded.bytes.len().saturating_sub(walk.position());
                    self.report_finding(
                        Rule::Record,
                        at,
                        format!("{defect}; {lost} bytes of the buffer cannot be read"),
                    );
                    break;
                }
            };
            self.events = self.events.saturating_add(1);
            if record.has_damaged_items() {
                self.report_finding(
                    Rule::ExtendedItems,
                    at,
                    "extended data items exceed the record".to_string(),
                );
            }
            let time = header::time_of(record.bytes(), record.family());
            if let Some(time) = time {
                self.check_stamp_order(at, time, previous, buffer.cpu);
            }
            previous = time.or(previous);
        }
        // The stamp in a header buffer is the clock anchor. Events may have earlier stamps.
        let is_header = buffer.offset == 0 || header.kind() == BufferType::HEADER;
        if let Some(time) = previous.filter(|_| !is_header) {
            self.last_stamps.insert(buffer.cpu, time);
        }
    }

    /// Compares a stamp with the previous one in its buffer or in the processor's previous buffer.
    fn check_stamp_order(&mut self, at: u64, time: i64, previous: Option<i64>, cpu: u16) {
        match (previous, self.last_stamps.get(&cpu)) {
            (Some(earlier), _) if time < earlier => {
                self.report_finding(Rule::TimeInBuffer, at, format!("stamp {time} after {earlier}"));
            }
            (None, Some(&earlier)) if time < earlier => {
                let detail = format!("stamp {time} after {earlier} on processor {cpu}");
                self.report_finding(Rule::TimeAcrossBuffers, at, detail);
            }
            _ => {}
        }
    }
}
