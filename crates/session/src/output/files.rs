//! Which file buffers go to: the first, the next of a row, another one, none.
//!
//! ```text
//!   start ──▶ file 1 ──limit, Increment──▶ file 2 ──…──▶ file n ──stop──▶ final
//!                │ each: created, then the one before is finalised with the counts of its own time
//!                ├──Update──▶ another file, or another row
//!                └──Convert──▶ no file; live from now on
//! ```
//!
//! F1 A buffer is in one file: the file changes between buffers only. F2 What was lost is in the header of the file during which it was noticed, so the
//! headers of a row sum up to the session's counts. F3 While the next file cannot be had, the one before is as it was.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use traceweir_format::spec::status::Status;
use traceweir_transport::clock::Anchor;

use super::{Log, Output, counts};
use crate::config::{self, Mode};
use crate::engine::NextFile;
use crate::error::{Error, Result};
use crate::logfile::{Flight, LogFile, Written, failed};
use crate::pool::Buffer;

/// A row of files.
pub(crate) struct Row {
    pattern: PathBuf,
    /// Number of the file that is written.
    number: u32,
    next: NextFile,
}

impl Row {
    /// From its first file on.
    pub(crate) fn new(pattern: PathBuf, next: NextFile) -> Self {
        Self { pattern, number: 1, next }
    }

    fn name(&self) -> PathBuf {
        config::numbered(&self.pattern, self.number)
    }
}

/// Full buffers that gather before they are written (FlushThreshold).
pub(crate) struct Held {
    buffers: Vec<Buffer>,
    threshold: usize,
}

impl Held {
    pub(crate) fn new(threshold: u32) -> Self {
        Self { buffers: Vec::new(), threshold: threshold as usize }
    }

    /// Adds buffers, unless they are to be written now: then all there are are in `row`.
    pub(super) fn add(&mut self, row: &mut VecDeque<Buffer>) -> bool {
        if self.buffers.is_empty() && row.len() >= self.threshold {
            return true;
        }
        self.buffers.extend(row.drain(..));
        self.buffers.len() >= self.threshold && self.hand_over(row, usize::MAX)
    }

    /// Gives the first of what is held, so many at most. Whether there are any.
    pub(super) fn hand_over(&mut self, row: &mut VecDeque<Buffer>, most: usize) -> bool {
        row.extend(self.buffers.drain(..self.buffers.len().min(most)));
        !row.is_empty()
    }
}

impl Output {
    /// Begins with the file that the session was started with, if any.
    pub(crate) fn open_log(&mut self, file: Option<File>) -> Result<()> {
        let mode = Mode(self.facts.config.log_file_mode);
        let named = self.facts.config.log_file.clone();
        self.log = match file {
            _ if mode.is_buffering() => Log::Flight(Flight::default(), file),
            Some(file) => {
                let name = self.row.as_ref().map(Row::name).or(named);
                let log = self.begin_file(file, name.as_ref(), *self.facts.clock.anchor())?;
                if let Some(name) = name {
                    self.set_name(name);
                }
                Log::File(Box::new(log))
            }
            None if named.is_some() || !mode.is_real_time() => {
                let why = "the log file was not passed along";
                return Err(Error::Properties { status: Status::ERROR_BAD_PATHNAME, why });
            }
            None => Log::None,
        };
        self.note_written();
        Ok(())
    }

    /// The stamp that events to come must not be below.
    pub(crate) fn floor(&self) -> i64 {
        if let Log::File(file) = &self.log { file.floor() } else { i64::MIN }
    }

    fn begin_file(&self, file: File, name: Option<&PathBuf>, anchor: Anchor) -> Result<LogFile> {
        let name = name.map(PathBuf::as_path);
        let storage = self.shared.store(file);
        if Mode(self.facts.config.log_file_mode).appends() {
            LogFile::append_to(storage, &self.facts, name, anchor)
        } else {
            LogFile::create(Box::new(storage), &self.facts, name, anchor)
        }
    }

    fn set_name(&mut self, name: PathBuf) {
        self.shared.set_log_file(&name);
        self.facts.config.log_file = Some(name);
    }

    /// How many buffers the file has.
    pub(super) fn note_written(&self) {
        if let Log::File(file) = &self.log {
            self.shared.stats.buffers_written.store(file.buffers_written(), Relaxed);
        }
    }

    /// Appends the first buffer in hand to the file, or to the next of the row.
    pub(super) fn append(&mut self) -> Written {
        // The loss of this very buffer belongs to the counts of a file that ends with it.
        let events = self.in_hand.front().map_or(0, |buffer| buffer.events);
        let lost = |output: &Self| counts(&output.shared.stats, events);
        let mut now = lost(self);
        for _ in 0..2 {
            let (Log::File(file), Some(buffer)) = (&mut self.log, self.in_hand.front_mut()) else {
                return Written::No;
            };
            match file.append(buffer, || now) {
                Written::Full => {}
                written => return written,
            }
            if let Err(error) = self.next_file() {
                now = lost(self);
                if let Log::File(file) = &mut self.log {
                    file.finalise(now);
                }
                return Written::Ended(error.status());
            }
        }
        // A file of a row has room for one buffer at least.
        Written::Full
    }

    /// Goes on in the next file of the row.
    pub(super) fn next_file(&mut self) -> Result<()> {
        if let Log::File(file) = &self.log
            && file.has_ended()
        {
            return Err(Error::Ended);
        }
        let Some(row) = &mut self.row else {
            let why = "the session writes no row of files";
            return Err(Error::Properties { status: Status::ERROR_INVALID_FUNCTION, why });
        };
        let before = row.number;
        row.number = row.number.checked_add(1).ok_or(failed(Status::ERROR_NO_SYSTEM_RESOURCES))?;
        let name = row.name();
        let begun = (row.next)(&name).and_then(|further| {
            let mut file = self.begin_file(further.file, Some(&name), *self.facts.clock.anchor())?;
            file.keep(further.claim);
            Ok(file)
        });
        match begun {
            Ok(file) => {
                self.replace(file, name);
                Ok(())
            }
            Err(error) => {
                if let Some(row) = &mut self.row {
                    row.number = before;
                }
                Err(error)
            }
        }
    }

    /// Goes on in another file, or another row.
    pub(super) fn switch_file(&mut self, file: File, name: PathBuf, next: Option<NextFile>) -> Result<()> {
        let row = next.map(|next| Row::new(name.clone(), next));
        if self.row.as_ref().zip(row.as_ref()).is_some_and(|(a, b)| a.pattern == b.pattern) {
            let why = "these are the log files now";
            return Err(Error::Properties { status: Status::ERROR_BAD_PATHNAME, why });
        }
        let name = row.as_ref().map_or(name, Row::name);
        let anchor = Anchor::now(self.facts.clock.counter());
        let begun = self.begin_file(file, Some(&name), anchor)?;
        self.row = row.or(self.row.take());
        self.replace(begun, name);
        Ok(())
    }

    fn replace(&mut self, mut next: LogFile, name: PathBuf) {
        self.count_overwritten();
        self.set_name(name);
        // Read once: what is lost meanwhile is counted in the next file.
        let lost = counts(&self.shared.stats, 0);
        next.counts_from(lost);
        let before = std::mem::replace(&mut self.log, Log::File(Box::new(next)));
        if let Log::File(mut before) = before {
            before.finalise(lost);
        }
        self.note_written();
    }

    /// Finishes the file for good and goes on live.
    pub(super) fn convert(&mut self) -> Result<()> {
        self.count_overwritten();
        let log = std::mem::replace(&mut self.log, Log::None);
        self.row = None;
        self.shared.change(|config| config.log_file = None);
        self.facts.config = self.shared.config();
        self.set_real_time(true);
        let Log::File(mut file) = log else { return Ok(()) };
        match file.finalise(counts(&self.shared.stats, 0)) {
            None => Ok(()),
            Some(status) => Err(failed(status)),
        }
    }
}
