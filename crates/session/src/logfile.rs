//! The log file: sequential, circular, appending, one of a sequence, or a flight recorder's
//! snapshot.
//!
//! ```text
//!   sequential       header │ 1 │ 2 │ 3 │ 4 │ …
//!                    up to the limit, where the file is finalised and the session ends
//!   circular         header │ 7 │ 8 │ 3 │ 4 │ 5 │ 6 │
//!                    never past the limit; the last buffers of each CPU are there
//!   appending        header │ 1 │ 2 ┊ 3 │ 4 │ …
//!                    an earlier file, continued; counts of its header are sums
//!   file sequence    header │ 1 │ 2 │  header │ 1 │ …
//!                    at the limit the next file begins; each is complete, with its own counts
//!   preallocated     header │ 1 │ 2 │ zeros       limit
//!                    any of these, with its full length from the start; cut when finalised
//!   flight recorder  memory: 5 6 7 8 + partial ──flush, stop──▶ header │ 5 │ 6 │ 7 │ 8 │ …
//! ```
//!
//! - L1 Buffers are written whole: a file is valid up to its last buffer at any time.
//! - L2 A failed write leaves nothing behind: the file is cut after its last whole buffer and
//!   finalised, which needs no new blocks. (A device that fails while a circular log overwrites its
//!   oldest buffer may leave that one torn.)
//! - L3 A finalised file takes no more buffers; its header is written again at the stop, with the
//!   final counts.
//! - L4 Buffers of a CPU are written in the order in which they were filled.
//! - L5 The files of a sequence have the clock anchor of the session: no event in them is earlier,
//!   however long its buffer took to fill.

mod append;
mod facts;
mod ledger;

pub(crate) use facts::Facts;
pub(crate) use ledger::Overwritten;

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use traceweir_format::etl::{InPlace, Summary, WriteAt, Writer};
use traceweir_format::spec::status::Status;
use traceweir_format::time::FileTime;
use traceweir_transport::clock::Anchor;
use traceweir_transport::error::status_of;

use crate::clock::SessionClock;
use crate::config::{self, Limit, Mode};
use crate::error::{Error, Result};
use crate::modules;
use crate::pool::Buffer;
use crate::storage::Storage;
use ledger::{Ledger, WrittenBuffer};

/// The error of the last failed write, if any.
#[derive(Clone, Debug, Default)]
struct Failure(Arc<Mutex<Option<io::Error>>>);

impl Failure {
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

/// Storage that keeps its I/O error: errors of the format carry only text.
struct Disk {
    storage: Box<dyn Storage>,
    failure: Failure,
}

impl WriteAt for Disk {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> traceweir_format::Result<()> {
        self.write_row_at(offset, &[bytes])
    }

    fn write_row_at(&mut self, offset: u64, pieces: &[&[u8]]) -> traceweir_format::Result<()> {
        self.storage.write_pieces_at(pieces, offset).map_err(|error| {
            let reason = error.to_string();
            self.failure.set(error);
            traceweir_format::Error::Io { offset, reason }
        })
    }
}

fn in_place(buffer: &mut Buffer) -> InPlace<'_> {
    let Buffer { cpu, time, loss, filled, bytes, .. } = buffer;
    InPlace { cpu: *cpu, time: *time, loss: *loss, bytes, filled: *filled }
}

/// Result of writing a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The buffer is in the file.
    Yes,
    /// The file was finalised before and takes no more buffers.
    No,
    /// The file was finalised now, for this reason; `ERROR_SUCCESS` at the limit.
    Ended(Status),
    /// The buffer belongs into the next file of the sequence.
    Full,
}

/// An open log file.
pub(crate) struct LogFile {
    writer: Writer<Disk>,
    limit: Option<u64>,
    /// Whether another file follows at the limit.
    is_in_sequence: bool,
    /// Whether the file is preallocated, and so longer than what was written.
    is_reserved: bool,
    anchor: Anchor,
    clock: SessionClock,
    failure: Failure,
    /// Events and buffers lost before the file began, which it does not count.
    before: (u64, u32),
    /// Events and buffers lost that its header counted before it was continued.
    carried: (u32, u32),
    /// Stamp of its last event before it was continued.
    floor: i64,
    /// Time at which it was finalised.
    ended: Option<FileTime>,
    /// Time at which the session stopped; a file that is finalised earlier ends at that earlier
    /// time.
    stopped: Option<Anchor>,
    /// The buffers that the file should hold.
    ledger: Ledger,
    /// Keeps other sessions from writing the file.
    _claim: Option<Box<dyn Any + Send>>,
}

impl LogFile {
    /// Empties the storage and writes the header buffer.
    pub(crate) fn create(
        mut storage: Box<dyn Storage>,
        facts: &Facts,
        name: Option<&Path>,
        anchor: Anchor,
    ) -> Result<Self> {
        storage.truncate(0).map_err(Error::File)?;
        let failure = Failure::default();
        let disk = Disk { storage, failure: failure.clone() };
        let writer = Writer::create(disk, facts.options(name, &anchor))
            .map_err(|error| failure.take().map_or(Error::Format(error), Error::File))?;
        let mut file = Self::new(writer, facts, anchor, failure);
        file.reserve(facts)?;
        Ok(file)
    }

    fn new(mut writer: Writer<Disk>, facts: &Facts, anchor: Anchor, failure: Failure) -> Self {
        let limit = config::file_limit(&facts.config);
        if let Limit::Wrap(bytes) = limit {
            writer.wrap_at(bytes);
        }
        let header_size = u32::try_from(writer.position()).unwrap_or(0);
        let mut ledger = Ledger::new(header_size);
        ledger.note(&*writer.sink_mut().storage);
        Self {
            writer,
            ledger,
            limit: if let Limit::Stop(bytes) | Limit::Next(bytes) = limit { Some(bytes) } else { None },
            is_in_sequence: matches!(limit, Limit::Next(_)),
            is_reserved: false,
            anchor,
            clock: facts.clock.clone(),
            failure,
            before: (0, 0),
            carried: (0, 0),
            floor: i64::MIN,
            ended: None,
            stopped: None,
            _claim: None,
        }
    }

    /// Preallocates the file, if the mode asks for it. If that fails, the session does not start,
    /// and the file is as before.
    fn reserve(&mut self, facts: &Facts) -> Result<()> {
        let mode = Mode(facts.config.log_file_mode);
        let (Limit::Stop(bytes) | Limit::Next(bytes) | Limit::Wrap(bytes)) =
            config::file_limit(&facts.config)
        else {
            return Ok(());
        };
        if !mode.is_preallocated() || mode.is_buffering() || bytes <= self.writer.length() {
            return Ok(());
        }
        self.is_reserved = true;
        let reserved = self.writer.sink_mut().storage.reserve(bytes);
        self.note_own_write();
        if reserved.is_err() {
            self.cut();
        }
        reserved.map_err(Error::File)
    }

    /// Sets the losses before this file, so that it counts only later ones.
    pub(crate) fn counts_from(&mut self, lost: (u64, u32)) {
        self.before = lost;
    }

    /// Keeps a claim on the file while it is written.
    pub(crate) fn keep_claim(&mut self, claim: Box<dyn Any + Send>) {
        self._claim = Some(claim);
    }

    /// Returns the stamp that later events must not be below.
    pub(crate) fn floor(&self) -> i64 {
        self.floor
    }

    /// Appends a buffer. If the file ends with it or cannot take it, finalises the file with the
    /// counts that `lost` returns.
    pub(crate) fn append(&mut self, buffer: &mut Buffer, lost: impl FnOnce() -> (u64, u32)) -> Written {
        if self.ended.is_some() {
            return Written::No;
        }
        let size = buffer.bytes.len() as u64;
        if self.limit.is_some_and(|limit| self.writer.position().saturating_add(size) > limit) {
            if self.is_in_sequence {
                return Written::Full;
            }
            self.finalise(lost());
            return Written::Ended(Status::ERROR_SUCCESS);
        }
        self.inspect();
        buffer.sort_records();
        let before = self.writer.position();
        if self.writer.append_in_place(in_place(buffer)).is_ok() {
            let after = self.writer.position();
            // A circular log may have wrapped around.
            let size = if after > before { after.saturating_sub(before) } else { size };
            self.note_written(buffer, after.saturating_sub(size), size);
            self.note_own_write();
            return Written::Yes;
        }
        let status = self.failure.take_status();
        self.cut();
        self.finalise(lost());
        Written::Ended(status)
    }

    /// Appends several buffers with one write. Returns `false` if that is not possible; then none
    /// is in the file.
    pub(crate) fn append_batch(&mut self, buffers: &mut [Buffer]) -> bool {
        let size = buffers.iter().map(|b| b.bytes.len() as u64).sum();
        let fits = self.limit.is_none_or(|limit| self.writer.position().saturating_add(size) <= limit);
        if self.ended.is_some() || !fits || !self.writer.has_room_in_a_row(buffers.len()) {
            return false;
        }
        self.inspect();
        let mut offset = self.writer.position();
        buffers.iter_mut().for_each(Buffer::sort_records);
        let mut batch: Vec<InPlace<'_>> = buffers.iter_mut().map(in_place).collect();
        let done = self.writer.append_row_in_place(&mut batch).is_ok();
        if !done {
            self.cut();
            return false;
        }
        for buffer in buffers {
            let size = buffer.bytes.len() as u64;
            self.note_written(buffer, offset, size);
            offset = offset.saturating_add(size);
        }
        self.note_own_write();
        true
    }

    /// Compares the file with what was written, and returns what other processes have changed since
    /// the last call.
    pub(crate) fn overwritten(&mut self) -> Overwritten {
        self.compare();
        self.ledger.take_found()
    }

    /// Compares the file with what was written, unless it is finalised: then it no longer belongs
    /// to the session.
    fn compare(&mut self) {
        if self.ended.is_none() {
            self.ledger.compare(&*self.writer.sink_mut().storage);
        }
    }

    fn inspect(&mut self) {
        self.ledger.inspect(&*self.writer.sink_mut().storage);
    }

    fn note_own_write(&mut self) {
        self.ledger.note(&*self.writer.sink_mut().storage);
    }

    fn note_written(&mut self, buffer: &Buffer, offset: u64, size: u64) {
        self.ledger.add(&WrittenBuffer { offset, size, events: buffer.events, time: buffer.time });
    }

    /// Adds the record of a module to the front of the file. Does nothing if the file has ended or
    /// has no room there.
    pub(crate) fn add_module(&mut self, record: &[u8]) {
        if self.ended.is_none() {
            self.inspect();
            let time = self.clock.anchor_stamp(&self.anchor);
            // A failed write is repeated with the final header.
            let _ = self.writer.add_header_record(&modules::stamped(record, time));
            self.note_own_write();
        }
    }

    /// Removes a partly written buffer. If that fails too, readers ignore the torn buffer.
    fn cut(&mut self) {
        let length = self.writer.length();
        let _ = self.writer.sink_mut().storage.truncate(length);
        self.note_own_write();
    }

    /// Sets the end time of the recording; the file may be finalised later.
    pub(crate) fn stop_at(&mut self, end: Anchor) {
        self.stopped = Some(end);
    }

    /// Writes the final header with the numbers of lost events and buffers. May be repeated with
    /// later counts.
    pub(crate) fn finalise(&mut self, (events_lost, buffers_lost): (u64, u32)) -> Option<Status> {
        self.compare();
        let end_time = *self.ended.get_or_insert_with(|| {
            let end = self.stopped.unwrap_or_else(|| Anchor::now(self.clock.counter()));
            self.writer.set_perf_freq(self.clock.refined(&self.anchor, &end));
            end.wall
        });
        let events_lost = u32::try_from(events_lost.saturating_sub(self.before.0)).unwrap_or(u32::MAX);
        let summary = Summary {
            end_time,
            events_lost: events_lost.saturating_add(self.carried.0),
            buffers_lost: buffers_lost.saturating_sub(self.before.1).saturating_add(self.carried.1),
        };
        let done = self.writer.finalise(&summary);
        if self.is_reserved {
            self.cut();
        }
        done.err().map(|_| self.failure.take_status())
    }

    /// Returns whether the file takes no more buffers.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns the number of buffers written, including the header buffer.
    pub(crate) fn buffers_written(&self) -> u32 {
        self.writer.buffers_written()
    }
}

/// A flight recorder: keeps the last buffers in memory.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    history: VecDeque<Buffer>,
}

impl Flight {
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
        facts: &Facts,
        name: Option<&Path>,
        partial: &mut [Buffer],
        lost: (u64, u32),
    ) -> Result<u32> {
        let mut file = LogFile::create(storage, facts, name, *facts.clock.anchor())?;
        // A flight recorder is limited by its memory: its file has no limit.
        file.limit = None;
        for buffer in self.history.iter_mut().chain(partial) {
            match file.append(buffer, || lost) {
                Written::Yes => {}
                Written::Ended(status) => return Err(failed(status)),
                Written::No | Written::Full => break,
            }
        }
        match file.finalise(lost) {
            None => Ok(file.buffers_written()),
            Some(status) => Err(failed(status)),
        }
    }
}

pub(crate) fn failed(status: Status) -> Error {
    Error::Properties { status, reason: "the log file could not be completely written" }
}

#[cfg(test)]
mod tests;
