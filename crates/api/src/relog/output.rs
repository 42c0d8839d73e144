//! The new file: one header for all inputs, one clock, the records of each processor in its
//! buffers.
//!
//! ```text
//!   input 0 (starts first)   stamps unchanged ───────────────────────────┐
//!   input 1, same clock      stamps unchanged ───────────────────────────┼─▶ processor's buffer
//!   input 2, another clock   raw ─▶ wall time ─▶ first stamp of that time ┘
//! ```
//!
//! 1. A converted stamp is the first of its 100 ns in the output's clock, or the previous stamp of
//!    the processor if that has the same wall time: so events in wall-time order are in stamp
//!    order, and no stamp of another input is changed.
//! 2. Memory: a buffer for each processor that has events. By default these take at most 256 MiB
//!    and have the size of the inputs' largest buffer, up to 1 MiB, or less if very many processors
//!    have events.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use traceweir_format::buffer::{MAX_BUFFER, MIN_BUFFER};
use traceweir_format::etl::{Options, Summary as WriterSummary, Writer};
use traceweir_format::header::{Record, edit};
use traceweir_format::kernel;
use traceweir_format::spec::session::{BUFFER_FLAG_BUFFER_LOST, BUFFER_FLAG_EVENTS_LOST};
use traceweir_format::spec::status::Status;
use traceweir_format::stack_key;
use traceweir_format::time::{Clock, FileTime};
use traceweir_format::wire::{align8, i64_at};

use super::event::{EventKind, EventStamp, TraceEvent};
use super::file::PartialFile;
use super::head::{self, EarliestTimes};
use super::input::{Input, concatenate_padded};
use super::{Settings, is_log_file_header};
use crate::consumer::{Event, Lost};
use crate::error::{Error, Result};

/// Maximum number of kinds of kernel events whose payload stamps are cached.
const MAX_CACHED_KINDS: usize = 4096;

/// Number of stack keys for each input. Sessions number their keys consecutively, and a file with
/// more keys would have gigabytes. 64 such ranges fit into keys of 32 bits too.
const STACK_KEYS_PER_INPUT: u64 = 1 << 26;

/// Statistics of the written file.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of events, including the log-file header and all others of the header buffer.
    pub events: u64,
    /// Number of injected events among them.
    pub injected: u64,
    /// Records of the inputs that the header of the output replaces: log-file headers, and names of
    /// systems other than that of the input that starts first.
    pub folded: u64,
    /// Number of buffers, including the header buffer.
    pub buffers: u32,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Events that the inputs' sessions lost.
    pub events_lost: u32,
    /// Buffers that the inputs' sessions lost.
    pub buffers_lost: u32,
    /// Events whose extended data items do not fit their record: the items became the beginning of
    /// the payload, as readers treat them.
    pub items_dropped: u64,
    /// Start time in the header.
    pub start: FileTime,
    /// End time in the header.
    pub end: FileTime,
}

/// The conversion from an input to the output.
#[derive(Debug)]
struct InputConversion {
    /// The input's clock; `None` if stamps stay unchanged.
    clock: Option<Clock>,
    /// Records in the header buffer of the output that come again among the events.
    header_records: Vec<Vec<u8>>,
    /// The input is from a machine other than the one that the header describes.
    is_of_other_machine: bool,
    /// Offset that is added to stack keys, so that the keys of two inputs differ.
    stack_key_offset: u64,
}

/// The file that is being written.
#[derive(Debug)]
pub struct Output {
    writer: Writer<PartialFile>,
    clock: Clock,
    conversions: Vec<InputConversion>,
    /// The last stamp of each processor.
    last_stamps: Vec<i64>,
    scratch: Vec<u8>,
    /// Offsets of stamps in the payloads of kernel events, by hook, version and pointer size.
    payload_stamps: HashMap<(u16, u8, usize), Vec<usize>>,
    earliest_times: EarliestTimes,
    /// The latest wall time that was written.
    latest: FileTime,
    /// The wall time of the last event that was read.
    current_time: FileTime,
    /// The end of the inputs' sessions, if all of them have one.
    inputs_end: Option<FileTime>,
    summary: Summary,
}

impl Output {
    /// Creates a file at `path` for the events of `inputs`. `paths` are input files, which must not
    /// be replaced.
    ///
    /// Fails like [`Relogger::process`](super::Relogger::process).
    pub fn create(path: &Path, paths: &[PathBuf], inputs: &[Input], settings: &Settings) -> Result<Self> {
        let Some((first_index, first)) = inputs.iter().enumerate().min_by_key(|(_, i)| i.start()) else {
            return Err(Error::refused(Status::ERROR_INVALID_PARAMETER, "there is nothing to relog"));
        };
        let is_valid_size =
            |size: u32| size.is_multiple_of(MIN_BUFFER) && (MIN_BUFFER..=MAX_BUFFER).contains(&size);
        if settings.buffer_size.is_some_and(|size| !is_valid_size(size)) {
            let reason = "buffers have a multiple of 1,024 bytes, from 1 KiB to 16 MiB";
            return Err(Error::refused(Status::ERROR_INVALID_PARAMETER, reason));
        }
        let clock = first.clock;
        let mut options = head::writer_options(inputs, first, settings);
        let partial_file = PartialFile::create(path, paths, settings.new)?;
        // Records that do not fit into the header buffer come among the events.
        options.header_records = concatenate_padded(&first.header_records);
        let fits = !first.header.has_short_instance_headers() && options.header_buffer().is_ok();
        let header_records = if fits { first.header_records.as_slice() } else { &[] };
        if !fits {
            options.header_records = Vec::new();
        }
        let conversions = inputs.iter().enumerate().map(|(index, input)| InputConversion {
            clock: (!head::clocks_agree(&input.clock, &clock)).then_some(input.clock),
            header_records: if index == first_index { header_records.to_vec() } else { Vec::new() },
            is_of_other_machine: index != first_index && !head::are_of_one_machine(input, first),
            stack_key_offset: (index as u64).wrapping_mul(STACK_KEYS_PER_INPUT),
        });
        let conversions = conversions.collect();
        let sum = |count: fn(&Input) -> u32| inputs.iter().map(count).fold(0, u32::saturating_add);
        let summary = Summary {
            events: (header_records.len() as u64).saturating_add(1),
            events_lost: sum(|i| i.header.events_lost),
            buffers_lost: sum(|i| i.header.buffers_lost),
            ..Summary::default()
        };
        let mut output = Self {
            writer: create_writer(partial_file, options, settings.threads)?,
            clock,
            conversions,
            last_stamps: Vec::new(),
            scratch: Vec::new(),
            payload_stamps: HashMap::new(),
            earliest_times: EarliestTimes::new(settings.from, header_records),
            latest: clock.start,
            current_time: first.start(),
            inputs_end: head::inputs_end(inputs, settings),
            summary,
        };
        let flags = inputs.iter().fold(0, |flags, input| flags | input.loss_flags);
        output.writer.flag_loss(0, flags)?;
        Ok(output)
    }

    /// Writes an event, like [`keep_record`](Self::keep_record).
    pub fn keep(&mut self, event: &Event<'_>) -> Result<()> {
        self.keep_record(event.trace, event.record)
    }

    /// Checks whether a file could be created at `path`, like [`create`](Self::create), as far as
    /// that is possible without creating it.
    pub fn check(path: &Path, paths: &[PathBuf]) -> Result<()> {
        PartialFile::check(path, paths).map(drop)
    }

    /// Writes a record of an input, unchanged except for the conversions that [`relog`](super)
    /// lists. Skips log-file headers, names of systems other than the header's, and records that
    /// the header buffer has already.
    pub fn keep_record(&mut self, input: usize, record: &Record<'_>) -> Result<()> {
        if is_log_file_header(record) || self.is_folded(input, record) {
            self.summary.folded = self.summary.folded.saturating_add(1);
            return Ok(());
        }
        if self.take_header_record(input, record) {
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        let result = self.keep_converted(input, record, &mut bytes);
        self.scratch = bytes;
        result
    }

    fn keep_converted(&mut self, input: usize, record: &Record<'_>, bytes: &mut Vec<u8>) -> Result<()> {
        let clock = self.conversion_clock(input)?;
        let cpu = record.cpu();
        let Some(clock) = clock else {
            let record_bytes = record.bytes();
            if record_bytes.len() == align8(record_bytes.len()) && self.is_unchanged(input, record) {
                return self.write(cpu, record.time(), record_bytes);
            }
            self.copy_record(input, record, bytes)?;
            return self.write(cpu, record.time(), bytes);
        };
        self.copy_record(input, record, bytes)?;
        let time = self.to_output_stamp(clock.file_time(record.time()), cpu);
        edit::set_time(bytes, record.family(), time);
        self.convert_payload(record, &clock, bytes);
        self.write(cpu, time, bytes)
    }

    fn is_unchanged(&self, input: usize, record: &Record<'_>) -> bool {
        record.instance().is_none()
            && !record.has_damaged_items()
            && (self.stack_key_offset(input) == 0 || !stack_key::has_key(record))
    }

    fn copy_record(&mut self, input: usize, record: &Record<'_>, bytes: &mut Vec<u8>) -> Result<()> {
        if !edit::modernise(record, bytes)? {
            bytes.extend_from_slice(record.bytes());
            bytes.resize(align8(bytes.len()), 0);
        }
        self.correct_record(input, record, bytes);
        Ok(())
    }

    /// Adds the input's offset to the stack keys of a record, and clears the flag of extended data
    /// items that do not fit the record.
    fn correct_record(&mut self, input: usize, record: &Record<'_>, bytes: &mut [u8]) {
        let offset = self.stack_key_offset(input);
        if offset != 0 && !record.has_damaged_items() {
            stack_key::shift_key(record, bytes, offset);
        }
        let is_dropped = edit::clear_damaged_items_flag(record, bytes);
        self.summary.items_dropped = self.summary.items_dropped.saturating_add(u64::from(is_dropped));
    }

    fn stack_key_offset(&self, input: usize) -> u64 {
        self.conversions.get(input).map_or(0, |conversion| conversion.stack_key_offset)
    }

    /// Writes a changed copy of an event, or a new one.
    pub fn inject(&mut self, event: &TraceEvent) -> Result<()> {
        let clock = self.conversion_clock(event.input)?;
        let cpu = event.cpu;
        let time = match (event.stamp, clock) {
            (EventStamp::Raw(raw), None) => raw,
            (EventStamp::Raw(raw), Some(clock)) => self.to_output_stamp(clock.file_time(raw), cpu),
            (EventStamp::Wall(time), _) => self.to_output_stamp(time, cpu),
        };
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        bytes.extend_from_slice(event.bytes());
        edit::set_time(&mut bytes, event.family(), time);
        self.correct_record(event.input, &event.record()?, &mut bytes);
        let result = self.write(cpu, time, &bytes);
        self.scratch = bytes;
        result?;
        // Injected events belong to the file, whenever the sessions ended.
        self.inputs_end = self.inputs_end.map(|end| end.max(self.clock.file_time(time)));
        self.earliest_times.note_injected(time);
        self.summary.injected = self.summary.injected.saturating_add(1);
        Ok(())
    }

    /// Creates an event for an input, at the time of the last event that was read.
    pub fn create_event(&self, input: usize, kind: EventKind) -> Result<TraceEvent> {
        self.conversion_clock(input)?;
        TraceEvent::new(input, kind, self.current_time)
    }

    /// Returns the clock of the output.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Adds a loss of a live session to the counts.
    pub fn note_loss(&mut self, lost: Lost) -> Result<()> {
        let add = |sum: u32, more: u64| sum.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
        self.summary.events_lost = add(self.summary.events_lost, lost.events);
        self.summary.buffers_lost = add(self.summary.buffers_lost, lost.buffers);
        let flag = if lost.buffers > 0 { BUFFER_FLAG_BUFFER_LOST } else { BUFFER_FLAG_EVENTS_LOST };
        Ok(self.writer.flag_loss(0, flag)?)
    }

    pub(super) fn set_current_time(&mut self, time: FileTime) {
        self.current_time = time;
    }

    /// Returns whether the record names a system that the header does not describe.
    fn is_folded(&self, input: usize, record: &Record<'_>) -> bool {
        head::is_system_name(record)
            && self.conversions.get(input).is_some_and(|conversion| conversion.is_of_other_machine)
    }

    /// Returns whether the record is in the header buffer already, and forgets it: each is expected
    /// only once.
    pub(super) fn take_header_record(&mut self, input: usize, record: &Record<'_>) -> bool {
        let Some(header_records) =
            self.conversions.get_mut(input).map(|conversion| &mut conversion.header_records)
        else {
            return false;
        };
        let index = header_records.iter().position(|bytes| bytes == record.bytes());
        if let Some(index) = index {
            header_records.swap_remove(index);
        }
        index.is_some()
    }

    /// Writes the remaining buffers and the final header, and gives the file its name.
    pub fn finish(mut self) -> Result<Summary> {
        let Clock { anchor, start, .. } = self.earliest_times.start_clock(&self.clock);
        self.writer.set_start(anchor, start);
        let end = self.inputs_end.unwrap_or(self.latest).max(start).max(FileTime(1));
        let (events_lost, buffers_lost) = (self.summary.events_lost, self.summary.buffers_lost);
        let result = self.writer.finalise(&WriterSummary { end_time: end, events_lost, buffers_lost });
        result.map_err(|error| self.writer.sink_mut().explain(error))?;
        let (bytes, buffers) = (self.writer.length(), self.writer.buffers_written());
        self.writer.sink_mut().commit()?;
        Ok(Summary { bytes, buffers, start, end, ..self.summary })
    }

    /// Returns the clock of an input if its stamps are converted.
    fn conversion_clock(&self, input: usize) -> Result<Option<Clock>> {
        let conversion = self.conversions.get(input);
        let no_input_error =
            || Error::refused(Status::ERROR_INVALID_PARAMETER, format!("there is no input {input}"));
        Ok(conversion.ok_or_else(no_input_error)?.clock)
    }

    /// Returns the stamp of a wall time, not before the previous one of the processor with the same
    /// wall time.
    fn to_output_stamp(&self, time: FileTime, cpu: u16) -> i64 {
        let first = self.clock.first_raw(time);
        match self.last_stamps.get(usize::from(cpu)) {
            Some(&last) if self.clock.file_time(last) == time => first.max(last),
            _ => first,
        }
    }

    fn write(&mut self, cpu: u16, time: i64, bytes: &[u8]) -> Result<()> {
        let written = self.writer.write(cpu, time, bytes);
        written.map_err(|error| self.writer.sink_mut().explain(error))?;
        let index = usize::from(cpu);
        if self.last_stamps.len() <= index {
            self.last_stamps.resize(index.saturating_add(1), i64::MIN);
        }
        if let Some(last) = self.last_stamps.get_mut(index) {
            *last = time;
        }
        self.latest = self.latest.max(self.clock.file_time(time));
        self.earliest_times.note_event(time);
        self.summary.events = self.summary.events.saturating_add(1);
        Ok(())
    }

    /// Converts the known stamps in the payload of a kernel event.
    fn convert_payload(&mut self, record: &Record<'_>, clock: &Clock, bytes: &mut [u8]) {
        let Some(hook) = record.hook() else { return };
        let (descriptor, pointer) = (record.descriptor(), record.pointer_size());
        let key = (hook, descriptor.version, pointer);
        if self.payload_stamps.len() >= MAX_CACHED_KINDS && !self.payload_stamps.contains_key(&key) {
            self.payload_stamps.clear();
        }
        let offsets = self.payload_stamps.entry(key).or_insert_with(|| {
            let shape = kernel::shape_of(&record.provider(), descriptor.opcode, descriptor.version);
            shape.map_or_else(Vec::new, |(shape, _)| shape.raw_time_offsets(pointer).collect())
        });
        let start = record.bytes().len().saturating_sub(record.payload().len());
        for offset in offsets {
            let at = start.saturating_add(*offset);
            let end = at.saturating_add(8);
            if end > record.bytes().len() {
                continue;
            }
            let raw = i64_at(bytes, at);
            let converted = self.clock.first_raw(clock.file_time(raw));
            if let Some(field) = bytes.get_mut(at..end).filter(|_| raw != 0) {
                field.copy_from_slice(&converted.to_le_bytes());
            }
        }
    }
}

fn create_writer(
    mut partial_file: PartialFile,
    options: Options,
    threads: usize,
) -> Result<Writer<PartialFile>> {
    // A failed `Writer::create` drops its file. So the header is written through a reference first:
    // if that fails, `explain` can distinguish a full disk from an invalid option.
    if let Err(error) = Writer::create(&mut partial_file, options.clone()) {
        return Err(partial_file.explain(error));
    }
    let mut writer = Writer::create(partial_file, options)?;
    writer.compress_with_threads(threads, Box::new(|work| work()));
    Ok(writer)
}
