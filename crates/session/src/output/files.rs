//! Chooses the file that buffers go to: the first, the next of a sequence, another one, or none.
//!
//! ```text
//!   start ──▶ file 1 ──limit, Increment──▶ file 2 ──…──▶ file n ──stop──▶ finalised
//!                │ each: created, then the previous one is finalised with its own counts
//!                ├──Update──▶ another file, or another sequence
//!                └──Convert──▶ no file; live from now on
//! ```
//!
//! - F1 A buffer is in one file: the file changes only between buffers.
//! - F2 A loss is counted in the header of the file that was current when the session noticed the
//!   loss, so the headers of a sequence sum up to the session's counts.
//! - F3 If the next file cannot be opened, the current file stays open, unless it is full: then the
//!   session ends.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use traceweir_format::spec::status::Status;
use traceweir_transport::clock::Anchor;

use super::{LogTarget, Output, count_losses};
use crate::config::{self, Mode};
use crate::error::{Error, Result, refuse};
use crate::fault::contain_panic;
use crate::logfile::{AppendResult, FlightRecorder, LogFile, write_error};
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

/// Full buffers that are held until there are enough to write them together (FlushThreshold).
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

    /// Moves the first held buffers to `batch`, at most `max_buffers`. Returns whether `batch` has
    /// any.
    pub(super) fn hand_over(&mut self, batch: &mut VecDeque<Buffer>, max_buffers: usize) -> bool {
        batch.extend(self.buffers.drain(..self.buffers.len().min(max_buffers)));
        !batch.is_empty()
    }
}

impl Output {
    /// Opens the log with the file that the session was started with, if any.
    pub(crate) fn open_log(&mut self, file: Option<File>) -> Result<()> {
        let mode = Mode(self.facts.config.log_file_mode);
        let configured_name = self.facts.config.log_file.clone();
        self.log = match file {
            _ if mode.is_buffering() => LogTarget::FlightRecorder(FlightRecorder::default(), file),
            Some(file) => {
                let name = self.sequence.as_ref().map(FileSequence::name).or(configured_name);
                let log = self.open_log_file(file, name.as_ref(), *self.facts.clock.anchor())?;
                if let Some(name) = name {
                    self.set_name(name);
                }
                LogTarget::File(Box::new(log))
            }
            None if configured_name.is_some() || !mode.is_real_time() => {
                return refuse(Status::ERROR_BAD_PATHNAME, "the log file was not passed along");
            }
            None => LogTarget::None,
        };
        self.publish_buffers_written();
        Ok(())
    }

    /// Returns the lowest stamp that later events may have.
    pub(crate) fn floor(&self) -> i64 {
        if let LogTarget::File(file) = &self.log { file.floor() } else { i64::MIN }
    }

    fn open_log_file(&self, file: File, name: Option<&PathBuf>, anchor: Anchor) -> Result<LogFile> {
        let name = name.map(PathBuf::as_path);
        let storage = self.shared.new_storage(file);
        if Mode(self.facts.config.log_file_mode).is_appending() {
            LogFile::append_to(storage, &self.facts, name, anchor)
        } else {
            let mut file = LogFile::create(Box::new(storage), &self.facts, name, anchor)?;
            let shared = Arc::clone(&self.shared);
            file.compress_with_threads(Box::new(move |work| {
                // The panic of a thread is repeated by the writer thread, whose panic ends the
                // session.
                contain_panic(work);
                shared.stats.add_helper_time();
            }));
            Ok(file)
        }
    }

    fn set_name(&mut self, name: PathBuf) {
        self.shared.set_log_file(&name);
        self.facts.config.log_file = Some(name);
    }

    /// Publishes how many buffers the file has.
    pub(super) fn publish_buffers_written(&self) {
        if let LogTarget::File(file) = &self.log {
            self.shared.stats.buffers_written.store(file.buffers_written(), Relaxed);
        }
    }

    /// Appends the first buffer in hand to the file, or to the next one of the sequence.
    pub(super) fn append(&mut self) -> AppendResult {
        // If this buffer ends the file, the buffer is lost, and the header of the file counts it.
        let events = self.in_hand.front().map_or(0, |buffer| buffer.events);
        let count = |output: &Self| count_losses(&output.shared.stats, events);
        let mut losses = count(self);
        // First the current file; if it is full, the next one.
        for _ in 0..2 {
            let (LogTarget::File(file), Some(buffer)) = (&mut self.log, self.in_hand.front_mut()) else {
                return AppendResult::AlreadyEnded;
            };
            match file.append(buffer, || losses) {
                AppendResult::Full => {}
                written => return written,
            }
            if let Err(error) = self.continue_in_next_file() {
                losses = count(self);
                if let LogTarget::File(file) = &mut self.log {
                    file.finalise(losses);
                }
                return AppendResult::Ended(error.status());
            }
        }
        // A file of a sequence has room for at least one buffer.
        AppendResult::Full
    }

    /// Continues in the next file of the sequence.
    pub(super) fn continue_in_next_file(&mut self) -> Result<()> {
        if let LogTarget::File(file) = &self.log
            && file.has_ended()
        {
            return Err(Error::Ended);
        }
        let Some(sequence) = &mut self.sequence else {
            return refuse(Status::ERROR_INVALID_FUNCTION, "the session does not write a file sequence");
        };
        let previous_number = sequence.number;
        sequence.number =
            sequence.number.checked_add(1).ok_or(write_error(Status::ERROR_NO_SYSTEM_RESOURCES))?;
        let name = sequence.name();
        let new_file = (sequence.next)(&name).and_then(|next| {
            let mut file = self.open_log_file(next.file, Some(&name), *self.facts.clock.anchor())?;
            file.keep_claim(next.claim);
            Ok(file)
        });
        match new_file {
            Ok(file) => {
                self.replace_file(file, name);
                Ok(())
            }
            Err(error) => {
                if let Some(sequence) = &mut self.sequence {
                    sequence.number = previous_number;
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
        let new_file = self.open_log_file(file, Some(&name), anchor)?;
        self.sequence = sequence.or(self.sequence.take());
        self.replace_file(new_file, name);
        Ok(())
    }

    fn replace_file(&mut self, mut next: LogFile, name: PathBuf) {
        self.count_overwritten();
        self.set_name(name);
        // Read once: later losses are counted in the next file.
        let lost = count_losses(&self.shared.stats, 0);
        next.set_losses_in_earlier_files(lost);
        let previous = std::mem::replace(&mut self.log, LogTarget::File(Box::new(next)));
        if let LogTarget::File(mut previous) = previous {
            previous.finalise(lost);
        }
        self.publish_buffers_written();
    }

    /// Finalises the file for good and continues live.
    pub(super) fn convert(&mut self) -> Result<()> {
        self.count_overwritten();
        let log = std::mem::replace(&mut self.log, LogTarget::None);
        self.sequence = None;
        self.shared.change_config(|config| config.log_file = None);
        self.facts.config = self.shared.config();
        self.set_real_time(true);
        let LogTarget::File(mut file) = log else { return Ok(()) };
        match file.finalise(count_losses(&self.shared.stats, 0)) {
            None => Ok(()),
            Some(status) => Err(write_error(status)),
        }
    }
}
