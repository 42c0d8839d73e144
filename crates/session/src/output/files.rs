//! Chooses the file that buffers go to: the first, the next of a sequence, another one, or none.
//!
//! ```text
//!   start ──▶ file 1 ──limit, Increment──▶ file 2 ──…──▶ file n ──stop──▶ final
//!                │ each: created, then the previous one is finalised with its own counts
//!                ├──Update──▶ another file, or another sequence
//!                └──Convert──▶ no file; live from now on
//! ```
//!
//! - F1 A buffer is in one file: the file changes only between buffers.
//! - F2 A loss is counted in the header of the file during which it was noticed, so the headers of
//!   a sequence sum up to the session's counts.
//! - F3 While the next file cannot be opened, the previous one stays unchanged.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use traceweir_format::spec::status::Status;
use traceweir_transport::clock::Anchor;

use super::{Log, Output, lost_counts};
use crate::config::{self, Mode};
use crate::error::{Error, Result, refuse};
use crate::logfile::{Flight, LogFile, Written, failed};
use crate::messages::NextFile;
use crate::pool::Buffer;

/// A file sequence (EVENT_TRACE_FILE_MODE_NEWFILE).
pub(crate) struct FileSequence {
    pattern: PathBuf,
    /// Number of the current file.
    number: u32,
    next: NextFile,
}

impl FileSequence {
    /// Starts a sequence at its first file.
    pub(crate) fn new(pattern: PathBuf, next: NextFile) -> Self {
        Self { pattern, number: 1, next }
    }

    fn name(&self) -> PathBuf {
        config::sequence_file_name(&self.pattern, self.number)
    }
}

/// Full buffers that are collected before they are written (FlushThreshold).
pub(super) struct HeldBuffers {
    buffers: Vec<Buffer>,
    threshold: usize,
}

impl HeldBuffers {
    pub(super) fn new(threshold: u32) -> Self {
        Self { buffers: Vec::new(), threshold: threshold as usize }
    }

    /// Holds the buffers in `batch`. Returns `true` if the threshold is reached; then `batch` has
    /// all held buffers, to be written now.
    pub(super) fn add(&mut self, batch: &mut VecDeque<Buffer>) -> bool {
        if self.buffers.is_empty() && batch.len() >= self.threshold {
            return true;
        }
        self.buffers.extend(batch.drain(..));
        self.buffers.len() >= self.threshold && self.hand_over(batch, usize::MAX)
    }

    /// Moves the first held buffers to `batch`, at most `most`. Returns whether `batch` has any.
    pub(super) fn hand_over(&mut self, batch: &mut VecDeque<Buffer>, most: usize) -> bool {
        batch.extend(self.buffers.drain(..self.buffers.len().min(most)));
        !batch.is_empty()
    }
}

impl Output {
    /// Opens the log with the file that the session was started with, if any.
    pub(crate) fn open_log(&mut self, file: Option<File>) -> Result<()> {
        let mode = Mode(self.facts.config.log_file_mode);
        let named = self.facts.config.log_file.clone();
        self.log = match file {
            _ if mode.is_buffering() => Log::Flight(Flight::default(), file),
            Some(file) => {
                let name = self.sequence.as_ref().map(FileSequence::name).or(named);
                let log = self.begin_file(file, name.as_ref(), *self.facts.clock.anchor())?;
                if let Some(name) = name {
                    self.set_name(name);
                }
                Log::File(Box::new(log))
            }
            None if named.is_some() || !mode.is_real_time() => {
                return refuse(Status::ERROR_BAD_PATHNAME, "the log file was not passed along");
            }
            None => Log::None,
        };
        self.note_written();
        Ok(())
    }

    /// Returns the stamp that later events must not be below.
    pub(crate) fn floor(&self) -> i64 {
        if let Log::File(file) = &self.log { file.floor() } else { i64::MIN }
    }

    fn begin_file(&self, file: File, name: Option<&PathBuf>, anchor: Anchor) -> Result<LogFile> {
        let name = name.map(PathBuf::as_path);
        let storage = self.shared.new_storage(file);
        if Mode(self.facts.config.log_file_mode).is_appending() {
            LogFile::append_to(storage, &self.facts, name, anchor)
        } else {
            LogFile::create(Box::new(storage), &self.facts, name, anchor)
        }
    }

    fn set_name(&mut self, name: PathBuf) {
        self.shared.set_log_file(&name);
        self.facts.config.log_file = Some(name);
    }

    /// Publishes how many buffers the file has.
    pub(super) fn note_written(&self) {
        if let Log::File(file) = &self.log {
            self.shared.stats.buffers_written.store(file.buffers_written(), Relaxed);
        }
    }

    /// Appends the first buffer in hand to the file, or to the next one of the sequence.
    pub(super) fn append(&mut self) -> Written {
        // If the file ends with this buffer, the buffer's loss belongs to the file's counts.
        let events = self.in_hand.front().map_or(0, |buffer| buffer.events);
        let lost = |output: &Self| lost_counts(&output.shared.stats, events);
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
        // A file of a sequence has room for at least one buffer.
        Written::Full
    }

    /// Continues in the next file of the sequence.
    pub(super) fn next_file(&mut self) -> Result<()> {
        if let Log::File(file) = &self.log
            && file.has_ended()
        {
            return Err(Error::Ended);
        }
        let Some(sequence) = &mut self.sequence else {
            return refuse(Status::ERROR_INVALID_FUNCTION, "the session does not write a file sequence");
        };
        let before = sequence.number;
        sequence.number = sequence.number.checked_add(1).ok_or(failed(Status::ERROR_NO_SYSTEM_RESOURCES))?;
        let name = sequence.name();
        let begun = (sequence.next)(&name).and_then(|next| {
            let mut file = self.begin_file(next.file, Some(&name), *self.facts.clock.anchor())?;
            file.keep_claim(next.claim);
            Ok(file)
        });
        match begun {
            Ok(file) => {
                self.replace(file, name);
                Ok(())
            }
            Err(error) => {
                if let Some(sequence) = &mut self.sequence {
                    sequence.number = before;
                }
                Err(error)
            }
        }
    }

    /// Continues in another file or file sequence.
    pub(super) fn switch_file(&mut self, file: File, name: PathBuf, next: Option<NextFile>) -> Result<()> {
        let sequence = next.map(|next| FileSequence::new(name.clone(), next));
        if self.sequence.as_ref().zip(sequence.as_ref()).is_some_and(|(a, b)| a.pattern == b.pattern) {
            return refuse(Status::ERROR_BAD_PATHNAME, "these already are the log files");
        }
        let name = sequence.as_ref().map_or(name, FileSequence::name);
        let anchor = Anchor::now(self.facts.clock.counter());
        let begun = self.begin_file(file, Some(&name), anchor)?;
        self.sequence = sequence.or(self.sequence.take());
        self.replace(begun, name);
        Ok(())
    }

    fn replace(&mut self, mut next: LogFile, name: PathBuf) {
        self.count_overwritten();
        self.set_name(name);
        // Read once: later losses are counted in the next file.
        let lost = lost_counts(&self.shared.stats, 0);
        next.counts_from(lost);
        let before = std::mem::replace(&mut self.log, Log::File(Box::new(next)));
        if let Log::File(mut before) = before {
            before.finalise(lost);
        }
        self.note_written();
    }

    /// Finalises the file for good and continues live.
    pub(super) fn convert(&mut self) -> Result<()> {
        self.count_overwritten();
        let log = std::mem::replace(&mut self.log, Log::None);
        self.sequence = None;
        self.shared.change_config(|config| config.log_file = None);
        self.facts.config = self.shared.config();
        self.set_real_time(true);
        let Log::File(mut file) = log else { return Ok(()) };
        match file.finalise(lost_counts(&self.shared.stats, 0)) {
            None => Ok(()),
            Some(status) => Err(failed(status)),
        }
    }
}
