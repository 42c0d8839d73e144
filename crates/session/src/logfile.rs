//! The log file: sequential, circular, appending, one of a sequence, or a flight recorder's
//! snapshot.
//!
//! ```text
//!   sequential       header │ 1 │ 2 │ 3 │ 4 │ …
//!                    up to the limit, where the file is finalised and the session ends
//!   circular         header │ 7 │ 8 │ 3 │ 4 │ 5 │ 6 │
//!                    never past the limit; holds the newest buffers of each CPU
//!   appending        header │ 1 │ 2 ┊ 3 │ 4 │ …
//!                    an earlier file, continued; the counts in its header are sums
//!   file sequence    header │ 1 │ 2 │  header │ 1 │ …
//!                    at the limit the next file begins; each is complete and has separate counts
//!   preallocated     header │ 1 │ 2 │ zeros       limit
//!                    any mode above, with its full length from the start; truncated when finalised
//!   flight recorder  memory: 5 6 7 8 + partial ──flush, stop──▶ header │ 5 │ 6 │ 7 │ 8 │ …
//! ```
//!
//! - L1 Buffers are written whole: a file is valid up to its last buffer at any time.
//! - L2 After a failed write, the file is truncated after its last whole buffer and finalised,
//!   which needs no new blocks. (A device that fails while a circular log overwrites its oldest
//!   buffer may leave this buffer torn.)
//! - L3 A finalised file takes no more buffers; its header is written again at the stop, with the
//!   final counts.
//! - L4 Buffers of a CPU are written in the order in which they were filled.
//! - L5 The files of a sequence have the clock anchor of the session (the same moment on all
//!   clocks): no event in them is earlier than this anchor, however long its buffer took to fill.

mod append;
mod facts;
mod ledger;

pub(crate) use facts::SessionFacts;
pub(crate) use ledger::Overwritten;

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::num::NonZero;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use traceweir_format::etl::{BufferInPlace, RunWork, Summary, WriteAt, Writer};
use traceweir_format::spec::status::Status;
use traceweir_format::time::FileTime;
use traceweir_transport::clock::Anchor;
use traceweir_transport::error::status_of;

use crate::clock::SessionClock;
use crate::config::{self, FileLimit, Mode};
use crate::error::{Error, Result};
use crate::modules;
use crate::pool::Buffer;
use crate::storage::Storage;
use ledger::{Ledger, WrittenBuffer};

/// The most threads that compress the buffers of a file.
const MAX_COMPRESSING_THREADS: usize = 8;

/// The error of the last failed write, if any.
#[derive(Clone, Debug, Default)]
struct LastWriteError(Arc<Mutex<Option<io::Error>>>);

impl LastWriteError {
    fn set(&self, error: io::Error) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn take(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn take_status(&self) -> Status {
        self.take().map_or(Status::ERROR_IO_DEVICE, |error| status_of(&error))
    }
}

/// Storage that keeps the error of a failed write: errors of the format crate contain only text.
struct LogDisk {
    storage: Box<dyn Storage>,
    failure: LastWriteError,
}

impl WriteAt for LogDisk {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> traceweir_format::Result<()> {
        self.write_pieces_at(offset, &[bytes])
    }

    fn write_pieces_at(&mut self, offset: u64, pieces: &[&[u8]]) -> traceweir_format::Result<()> {
        self.storage.write_pieces_at(pieces, offset).map_err(|error| {
            let reason = error.to_string();
            self.failure.set(error);
            traceweir_format::Error::Io { offset, reason }
        })
    }
}

fn as_in_place(buffer: &mut Buffer) -> BufferInPlace<'_> {
    let Buffer { cpu, time, loss_flags, filled, bytes, .. } = buffer;
    BufferInPlace { cpu: *cpu, time: *time, loss_flags: *loss_flags, bytes, filled: *filled }
}

/// Result of writing a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendResult {
    /// The buffer is in the file.
    Appended,
    /// The file was finalised before and takes no more buffers.
    AlreadyEnded,
    /// The file was finalised now, for this reason; `ERROR_SUCCESS` at the limit.
    Ended(Status),
    /// The file is full: the buffer belongs in the next file of the sequence.
    Full,
}

/// An open log file.
pub(crate) struct LogFile {
    writer: Writer<LogDisk>,
    limit: Option<u64>,
    /// Whether another file follows at the limit.
    is_in_sequence: bool,
    /// Whether the file is preallocated, and so longer than the written bytes.
    is_preallocated: bool,
    anchor: Anchor,
    clock: SessionClock,
    failure: LastWriteError,
    /// Events and buffers lost before the file began: earlier files of the sequence count them.
    losses_in_earlier_files: (u64, u32),
    /// Lost events and buffers that the header of a continued file already counted.
    losses_in_continued_header: (u32, u32),
    /// Stamp of the last event that a continued file already had.
    floor: i64,
    /// Time at which the file was finalised.
    end_time: Option<FileTime>,
    /// Time at which the session stopped; a file that is finalised earlier ends at that earlier
    /// time.
    stop_time: Option<Anchor>,
    /// The buffers that the file should hold.
    ledger: Ledger,
    /// Keeps other sessions from writing the file.
    _claim: Option<Box<dyn Any + Send>>,
}

impl LogFile {
    /// Empties the storage, writes the header buffer, and preallocates the file if the mode asks
    /// for it.
    pub(crate) fn create(
        mut storage: Box<dyn Storage>,
        facts: &SessionFacts,
        name: Option<&Path>,
        anchor: Anchor,
    ) -> Result<Self> {
        storage.truncate(0).map_err(Error::File)?;
        let failure = LastWriteError::default();
        let disk = LogDisk { storage, failure: failure.clone() };
        let writer = Writer::create(disk, facts.options(name, &anchor))
            .map_err(|error| failure.take().map_or(Error::Format(error), Error::File))?;
        let mut file = Self::new(writer, facts, anchor, failure);
        file.preallocate(facts)?;
        Ok(file)
    }

    /// Compresses buffers with several threads, which pass their work to `run_work`.
    pub(crate) fn compress_with_threads(&mut self, run_work: RunWork) {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        self.writer.compress_with_threads(processors.min(MAX_COMPRESSING_THREADS), run_work);
    }

    fn new(
        mut writer: Writer<LogDisk>,
        facts: &SessionFacts,
        anchor: Anchor,
        failure: LastWriteError,
    ) -> Self {
        let limit = config::file_limit(&facts.config);
        if let FileLimit::Wrap(bytes) = limit {
            writer.wrap_at(bytes);
        }
        let header_size = u32::try_from(writer.position()).unwrap_or(0);
        let mut ledger = Ledger::new(header_size);
        ledger.record_state(&*writer.sink_mut().storage);
        Self {
            writer,
            ledger,
            limit: if let FileLimit::Stop(bytes) | FileLimit::Next(bytes) = limit {
                Some(bytes)
            } else {
                None
            },
            is_in_sequence: matches!(limit, FileLimit::Next(_)),
            is_preallocated: false,
            anchor,
            clock: facts.clock.clone(),
            failure,
            losses_in_earlier_files: (0, 0),
            losses_in_continued_header: (0, 0),
            floor: i64::MIN,
            end_time: None,
            stop_time: None,
            _claim: None,
        }
    }

    /// Preallocates the file, if the mode asks for it. If that fails, removes the preallocated
    /// bytes again.
    fn preallocate(&mut self, facts: &SessionFacts) -> Result<()> {
        let mode = Mode(facts.config.log_file_mode);
        let (FileLimit::Stop(bytes) | FileLimit::Next(bytes) | FileLimit::Wrap(bytes)) =
            config::file_limit(&facts.config)
        else {
            return Ok(());
        };
        if !mode.is_preallocated() || mode.is_buffering() || bytes <= self.writer.length() {
            return Ok(());
        }
        self.is_preallocated = true;
        let preallocated = self.writer.sink_mut().storage.preallocate(bytes);
        self.record_own_write();
        if preallocated.is_err() {
            self.truncate_to_written();
        }
        preallocated.map_err(Error::File)
    }

    /// Sets the losses that earlier files count, so that this file counts only later losses.
    pub(crate) fn set_losses_in_earlier_files(&mut self, lost: (u64, u32)) {
        self.losses_in_earlier_files = lost;
    }

    /// Keeps a claim on the file while it is written.
    pub(crate) fn keep_claim(&mut self, claim: Box<dyn Any + Send>) {
        self._claim = Some(claim);
    }

    /// Returns the lowest stamp that later events may have.
    pub(crate) fn floor(&self) -> i64 {
        self.floor
    }

    /// Appends a buffer. At the limit of a file that is not in a sequence, and after a failed
    /// write, finalises the file with the counts that `lost` returns.
    pub(crate) fn append(&mut self, buffer: &mut Buffer, lost: impl FnOnce() -> (u64, u32)) -> AppendResult {
        if self.end_time.is_some() {
            return AppendResult::AlreadyEnded;
        }
        let size = buffer.bytes.len() as u64;
        if self.limit.is_some_and(|limit| self.writer.position().saturating_add(size) > limit) {
            if self.is_in_sequence {
                return AppendResult::Full;
            }
            self.finalise(lost());
            return AppendResult::Ended(Status::ERROR_SUCCESS);
        }
        self.check_file_state();
        buffer.sort_records();
        let start = self.writer.position();
        if self.writer.append_in_place(as_in_place(buffer)).is_ok() {
            let after = self.writer.position();
            // A compressed buffer is shorter than `size`; a circular log may have wrapped around.
            let size = if after > start { after.saturating_sub(start) } else { size };
            self.record_written(buffer, after.saturating_sub(size), size);
            self.record_own_write();
            return AppendResult::Appended;
        }
        let status = self.failure.take_status();
        self.truncate_to_written();
        self.finalise(lost());
        AppendResult::Ended(status)
    }

    /// Appends several buffers with one write. Returns `false` if that is not possible; then none
    /// is in the file.
    pub(crate) fn append_batch(&mut self, buffers: &mut [Buffer]) -> bool {
        let size = buffers.iter().map(|b| b.bytes.len() as u64).sum();
        let fits = self.limit.is_none_or(|limit| self.writer.position().saturating_add(size) <= limit);
        if self.end_time.is_some() || !fits || !self.writer.can_append_contiguously(buffers.len()) {
            return false;
        }
        self.check_file_state();
        let mut offset = self.writer.position();
        buffers.iter_mut().for_each(Buffer::sort_records);
        let mut batch: Vec<BufferInPlace<'_>> = buffers.iter_mut().map(as_in_place).collect();
        let Ok(sizes) = self.writer.append_all_in_place(&mut batch) else {
            self.truncate_to_written();
            return false;
        };
        for (buffer, size) in buffers.iter_mut().zip(sizes) {
            let size = u64::from(size);
            self.record_written(buffer, offset, size);
            offset = offset.saturating_add(size);
        }
        self.record_own_write();
        true
    }

    /// Compares the file with the written buffers. Returns the changes by other processes since the
    /// last call.
    pub(crate) fn take_overwritten(&mut self) -> Overwritten {
        self.compare();
        self.ledger.take_overwritten()
    }

    /// Compares the file with the written buffers, unless the file is finalised: then it no longer
    /// belongs to the session.
    fn compare(&mut self) {
        if self.end_time.is_none() {
            self.ledger.compare(&*self.writer.sink_mut().storage);
        }
    }

    /// Notes whether another process changed the file since the session's last write. If so, the
    /// next `compare` reads the buffer headers.
    fn check_file_state(&mut self) {
        self.ledger.check_state(&*self.writer.sink_mut().storage);
    }

    /// Records the state of the file after a write by the session, for the next `check_file_state`.
    fn record_own_write(&mut self) {
        self.ledger.record_state(&*self.writer.sink_mut().storage);
    }

    fn record_written(&mut self, buffer: &Buffer, offset: u64, size: u64) {
        self.ledger.add(&WrittenBuffer { offset, size, events: buffer.events, time: buffer.time });
    }

    /// Adds the record of a module to the front of the file. Does nothing if the file has ended or
    /// the record does not fit.
    pub(crate) fn add_module(&mut self, record: &[u8]) {
        if self.end_time.is_none() {
            self.check_file_state();
            let time = self.clock.anchor_stamp(&self.anchor);
            // A failed write is repeated with the final header.
            let _ = self.writer.add_header_record(&modules::with_time(record, time));
            self.record_own_write();
        }
    }

    /// Truncates the file after its last whole buffer. If that fails, readers ignore the
    /// bytes after that buffer.
    fn truncate_to_written(&mut self) {
        let length = self.writer.length();
        let _ = self.writer.sink_mut().storage.truncate(length);
        self.record_own_write();
    }

    /// Sets the end time of the recording; the file may be finalised later.
    pub(crate) fn stop_at(&mut self, end: Anchor) {
        self.stop_time = Some(end);
    }

    /// Writes the final header with the numbers of lost events and buffers. May be repeated with
    /// later counts. Returns the status of a failed write.
    pub(crate) fn finalise(&mut self, (events_lost, buffers_lost): (u64, u32)) -> Option<Status> {
        self.compare();
        let end_time = *self
            .end_time
            .get_or_insert_with(|| self.stop_time.unwrap_or_else(|| Anchor::now(self.clock.counter())).wall);
        let events_lost =
            u32::try_from(events_lost.saturating_sub(self.losses_in_earlier_files.0)).unwrap_or(u32::MAX);
        let summary = Summary {
            end_time,
            events_lost: events_lost.saturating_add(self.losses_in_continued_header.0),
            buffers_lost: buffers_lost
                .saturating_sub(self.losses_in_earlier_files.1)
                .saturating_add(self.losses_in_continued_header.1),
        };
        let result = self.writer.finalise(&summary);
        if self.is_preallocated {
            self.truncate_to_written();
        }
        result.err().map(|_| self.failure.take_status())
    }

    /// Returns whether the file takes no more buffers.
    pub(crate) fn has_ended(&self) -> bool {
        self.end_time.is_some()
    }

    /// Returns the number of buffers written, including the header buffer.
    pub(crate) fn buffers_written(&self) -> u32 {
        self.writer.buffers_written()
    }
}

/// A flight recorder: keeps the last buffers in memory.
#[derive(Debug, Default)]
pub(crate) struct FlightRecorder {
    history: VecDeque<Buffer>,
}

impl FlightRecorder {
    /// Adds a full buffer to the history.
    pub(crate) fn keep(&mut self, buffer: Buffer) {
        self.history.push_back(buffer);
    }

    /// Removes the oldest buffer.
    pub(crate) fn take_oldest(&mut self) -> Option<Buffer> {
        self.history.pop_front()
    }

    /// Writes the history, followed by `partial`, as a complete file. Returns the number of buffers
    /// written.
    pub(crate) fn snapshot(
        &mut self,
        storage: Box<dyn Storage>,
        facts: &SessionFacts,
        name: Option<&Path>,
        partial: &mut [Buffer],
        lost: (u64, u32),
    ) -> Result<u32> {
        let mut file = LogFile::create(storage, facts, name, *facts.clock.anchor())?;
        // A flight recorder is limited by its memory: its file has no limit.
        file.limit = None;
        for buffer in self.history.iter_mut().chain(partial) {
            match file.append(buffer, || lost) {
                AppendResult::Appended => {}
                AppendResult::Ended(status) => return Err(write_error(status)),
                AppendResult::AlreadyEnded | AppendResult::Full => break,
            }
        }
        match file.finalise(lost) {
            None => Ok(file.buffers_written()),
            Some(status) => Err(write_error(status)),
        }
    }
}

pub(crate) fn write_error(status: Status) -> Error {
    Error::Properties { status, reason: "the log file could not be completely written" }
}

#[cfg(test)]
mod tests;
