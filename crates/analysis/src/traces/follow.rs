//! Reads the buffers that a session adds to a file, after the file was read once.
//!
//! ```text
//!   TraceSet::read ──▶ FollowedTrace: end of the last whole buffer
//!     read_added: index the file again ──▶ new buffers ──▶ their records, sorted by time ──▶ events
//! ```
//!
//! 1. A session appends whole buffers. A buffer that is not whole yet is read later.
//! 2. Records are in time order within the buffers that one call reads. A processor with few events
//!    flushes its buffer late, so its events may come after later ones of another processor.
//! 3. The file is followed by its descriptor, not by its name.

use std::cell::RefCell;
use std::fmt;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use traceweir::consumer::TraceFile;
use traceweir::{LogFileMode, Status};
use traceweir_format::buffer::{HEADER_SIZE, Records};
use traceweir_format::etl::{BufferRef, Trace};
use traceweir_format::header::Record;
use traceweir_format::time::FileTime;

use super::{SurveyTables, TraceSet, describe_losses, survey_record};
use crate::event::{DescribedEvent, EventContext, ReadFlow, describe_record};
use crate::schema_files::load_traced_programs;

/// The part of a growing file that has been read.
#[derive(Debug)]
pub struct FollowedTrace {
    /// End of the last buffer that was read.
    end: u64,
    is_finalised: bool,
    losses: Option<String>,
    /// Size and time of change of the file at the last reading, if a later change would have
    /// another time.
    settled_state: Option<FileState>,
}

/// The size of a file, and when it was changed.
type FileState = (u64, SystemTime);

/// File systems may store the times of changes with a resolution of some milliseconds. A change
/// that is older than this has another time than any later change.
const TIME_RESOLUTION: Duration = Duration::from_secs(1);

/// Why a trace cannot be followed. The text is the name of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowError {
    /// There is not exactly one trace.
    SeveralTraces,
    /// The trace comes from an archive or a pipe.
    Unpacked(String),
    /// The file is circular: its oldest events are overwritten.
    Circular(String),
    /// The file is preallocated: its size does not show how much is written.
    Preallocated(String),
}

impl FollowError {
    /// Returns the Win32 status of the error.
    pub const fn status(&self) -> Status {
        Status::ERROR_NOT_SUPPORTED
    }
}

impl fmt::Display for FollowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SeveralTraces => f.write_str("only one file can be followed"),
            Self::Unpacked(name) => write!(f, "{name}: an archive or a pipe cannot be followed"),
            Self::Circular(name) => write!(f, "{name}: a circular file cannot be followed"),
            Self::Preallocated(name) => write!(f, "{name}: a preallocated file cannot be followed"),
        }
    }
}

impl std::error::Error for FollowError {}

impl FollowedTrace {
    /// Returns whether the session has finalised the file, so that nothing is added any more.
    pub const fn is_finalised(&self) -> bool {
        self.is_finalised
    }

    /// Returns the losses that the file reports.
    pub fn losses(&self) -> Option<&str> {
        self.losses.as_deref()
    }
}

impl TraceSet {
    /// Returns the state of a file before it is followed.
    pub fn follow(&self) -> Result<FollowedTrace, FollowError> {
        let [input] = &self.inputs[..] else {
            return Err(FollowError::SeveralTraces);
        };
        let name = || input.name.clone();
        if input.is_unpacked {
            return Err(FollowError::Unpacked(name()));
        }
        let mode = LogFileMode::new(input.trace.header().log_file_mode);
        if mode.contains(LogFileMode::CIRCULAR) {
            return Err(FollowError::Circular(name()));
        }
        if mode.contains(LogFileMode::PREALLOCATE) {
            return Err(FollowError::Preallocated(name()));
        }
        let end = end_of_whole_buffers(&input.trace);
        let losses = describe_losses(&input.trace);
        Ok(FollowedTrace { end, is_finalised: input.trace.is_finalised(), losses, settled_state: None })
    }

    /// Returns whether the session has written the last buffer of each file completely.
    pub fn ends_with_whole_buffers(&self) -> bool {
        self.inputs.iter().all(|input| {
            let last = input.trace.buffers().iter().max_by_key(|buffer| buffer.offset);
            last.is_none_or(|buffer| is_whole(&input.trace, buffer))
        })
    }

    /// Calls `on_event` for every record that was added since the last call and that `accepts`
    /// returns true for. Returns `Stop` if `on_event` did.
    pub fn read_added(
        &mut self,
        followed: &mut FollowedTrace,
        mut accepts: impl FnMut(&Record<'_>, FileTime) -> bool,
        mut on_event: impl FnMut(&DescribedEvent<'_>) -> Result<ReadFlow>,
    ) -> Result<ReadFlow> {
        let start = self.start();
        let Self { inputs, decoder, actors, images, symbols, stacks, reads_programs, observer, .. } = self;
        let (Some(input), Some(actors), Some(stacks)) =
            (inputs.first(), actors.first_mut(), stacks.first_mut())
        else {
            return Ok(ReadFlow::Stop);
        };
        let file = input.trace.source().as_file().try_clone().context("cannot open the file again")?;
        let state = file.metadata().and_then(|metadata| Ok((metadata.len(), metadata.modified()?)));
        let state: FileState = state.with_context(|| input.name.clone())?;
        if followed.settled_state == Some(state) {
            return Ok(ReadFlow::Continue);
        }
        let is_settled = state.1.elapsed().is_ok_and(|age| age > TIME_RESOLUTION);
        followed.settled_state = is_settled.then_some(state);
        let trace = Trace::open(TraceFile::from(file)).with_context(|| input.name.clone())?;
        let buffers = new_buffers(&trace, followed.end)?;
        followed.end = buffers.iter().map(LoadedBuffer::end).max().unwrap_or(followed.end);
        followed.is_finalised = trace.is_finalised();
        followed.losses = describe_losses(&trace);
        let mut records: Vec<Record<'_>> = buffers.iter().flat_map(LoadedBuffer::records).collect();
        records.sort_by_key(Record::time);
        for record in &records {
            let (images, symbols) = (images.first_mut(), symbols.first_mut().map(RefCell::get_mut));
            let time = trace.clock().file_time(record.time());
            survey_record(record, time, decoder, SurveyTables { actors, images, symbols, stacks });
        }
        if *reads_programs && decoder.has_tracked() {
            load_traced_programs(decoder, &**observer);
        }
        for record in &records {
            let clock = trace.clock();
            let time = clock.file_time(record.time());
            if !accepts(record, time) {
                actors.follow(record);
                continue;
            }
            let (images, symbols) = (images.first(), symbols.first());
            let context = EventContext { file: 0, clock, time, start, images, symbols, stacks };
            if on_event(&describe_record(record, context, decoder, actors))? == ReadFlow::Stop {
                return Ok(ReadFlow::Stop);
            }
        }
        Ok(ReadFlow::Continue)
    }
}

/// A buffer in memory: its header, then its records.
struct LoadedBuffer {
    buffer: BufferRef,
    bytes: Vec<u8>,
}

impl LoadedBuffer {
    fn end(&self) -> u64 {
        self.buffer.offset.saturating_add(self.buffer.size.into())
    }

    /// Returns the records up to the first damaged one.
    fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut records = Records::new(&self.bytes, HEADER_SIZE, self.buffer.offset, self.buffer.cpu, false);
        std::iter::from_fn(move || records.next().ok().flatten())
    }
}

/// Returns whether the file has all bytes of a buffer.
fn is_whole(trace: &Trace<TraceFile>, buffer: &BufferRef) -> bool {
    let claimed = trace.buffer_header(buffer).map_or(u32::MAX, |header| header.buffer_size);
    claimed <= buffer.size
}

/// Returns the end of the last buffer before the first one that is not whole.
fn end_of_whole_buffers(trace: &Trace<TraceFile>) -> u64 {
    let buffers = trace.buffers_as_written().into_iter().take_while(|buffer| is_whole(trace, buffer));
    buffers.map(|buffer| buffer.offset.saturating_add(buffer.size.into())).max().unwrap_or(0)
}

/// Loads the whole buffers at or after an offset, in file order.
fn new_buffers(trace: &Trace<TraceFile>, from: u64) -> Result<Vec<LoadedBuffer>> {
    let mut loaded = Vec::new();
    for buffer in trace.buffers_as_written().into_iter().filter(|buffer| buffer.offset >= from) {
        if !is_whole(trace, &buffer) {
            break;
        }
        let mut bytes = Vec::new();
        trace.load(&buffer, &mut bytes)?;
        loaded.push(LoadedBuffer { buffer, bytes });
    }
    Ok(loaded)
}
