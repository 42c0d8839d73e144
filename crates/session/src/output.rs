//! The writer thread: writes full buffers to the file and to live consumers, then returns them to
//! the pool.
//!
//! ```text
//!   Job::Buffer ──▶ realtime ──▶ held to the flush threshold ──▶ file or flight recorder ──▶ pool
//!   Job::Live   ──▶ realtime                          (a copy of the records so far)
//!   Job::…      ──▶ requests, in order; those about the log write earlier buffers first
//! ```
//!
//! - O1 Every buffer is written, kept by the flight recorder or counted as lost. Each returns to
//!   the pool in the end.
//! - O2 When the file ends without a stop, `on_end` is called once; later buffers count as not
//!   written, and live delivery continues.
//! - O3 A held buffer is written before a request about the log is answered, at each flush, and
//!   when the collector is short of buffers.
//!
//! `output/files.rs` decides which file a buffer goes to.

mod files;
mod live;

pub(crate) use files::FileSequence;
use files::HeldBuffers;

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;

use traceweir_format::spec::status::Status;
use traceweir_transport::live::QueueWriter;
use traceweir_transport::message::Properties;

use crate::config::Mode;
use crate::error::{Error, Result, refuse};
use crate::fault::{FAULT, contain_panic};
use crate::logfile::{AppendResult, FlightRecorder, LogFile, SessionFacts};
use crate::messages::{Done, Ended, Job, OutputUpdate};
use crate::pool::Buffer;
use crate::realtime::Realtime;
use crate::shared::SharedState;
use crate::stats::SessionStats;

/// Bytes of one write to the log file, unless a buffer or the flush threshold is larger: enough to
/// keep the device busy while the next buffers are filled.
const MAX_WRITE_BYTES: usize = 1 << 20;

/// Destination of the buffers of a session.
enum LogTarget {
    /// The session has no log: live delivery only.
    None,
    /// Buffers go to a log file.
    File(Box<LogFile>),
    /// Buffers stay in memory and are written to this file on request.
    FlightRecorder(FlightRecorder, Option<File>),
}

/// The writer thread's state.
pub(crate) struct Output {
    shared: Arc<SharedState>,
    facts: SessionFacts,
    log: LogTarget,
    live: Option<Realtime<QueueWriter>>,
    /// Set if the log is a file sequence.
    sequence: Option<FileSequence>,
    /// Full buffers below the flush threshold.
    held: HeldBuffers,
    /// Buffers that are being written; counted as lost if this thread panics.
    in_hand: VecDeque<Buffer>,
    /// The buffers that a flight recorder is filling, while a snapshot is written; copies, except
    /// at the stop.
    partial: Vec<Buffer>,
    on_end: Option<Box<dyn FnOnce(Ended) + Send>>,
    /// Number of free buffers that a flight recorder keeps by dropping its oldest, so that the
    /// collector need not wait.
    min_free_buffers: u32,
    /// Set when the session is being finalised; contains the callback of the request, if it has
    /// one.
    stop_request: Option<Option<Done<Properties>>>,
    /// The job that follows the buffers being written; still served if this thread panics.
    next_job: Option<Job>,
}

impl Output {
    /// Creates the state of a writer thread whose log is not open yet.
    pub(crate) fn new(
        shared: Arc<SharedState>,
        facts: SessionFacts,
        sequence: Option<FileSequence>,
        on_end: Box<dyn FnOnce(Ended) + Send>,
    ) -> Self {
        let max_backlog = shared.maximum_buffers();
        let is_live = Mode(facts.config.log_file_mode).is_real_time();
        let live = is_live.then(|| Realtime::new(shared.pool.buffer_bytes(), max_backlog, facts.logger_id));
        Self {
            log: LogTarget::None,
            live,
            sequence,
            held: HeldBuffers::new(shared.flush_threshold),
            in_hand: VecDeque::new(),
            partial: Vec::new(),
            on_end: Some(on_end),
            min_free_buffers: (facts.config.minimum_buffers / 8).clamp(1, 16),
            stop_request: None,
            next_job: None,
            shared,
            facts,
        }
    }

    /// Runs jobs until the stop.
    pub(crate) fn run(&mut self, jobs: &Receiver<Job>) {
        while let Some(job) = self.next_job.take().or_else(|| jobs.recv().ok()) {
            match job {
                Job::Buffer(buffer) => {
                    self.in_hand.push_back(buffer);
                    self.next_job = self.take_waiting_buffers(jobs);
                    self.process_buffers();
                }
                Job::Live(mut piece) => {
                    if let Some(live) = &mut self.live {
                        live.deliver(&mut piece, &self.shared.stats);
                    }
                    self.shared.release_piece(piece.filled);
                    self.publish_full();
                }
                Job::Module(record) => {
                    if let LogTarget::File(file) = &mut self.log
                        && Mode(self.facts.config.log_file_mode).can_rewrite_header()
                    {
                        file.add_module(&record);
                    }
                    self.facts.modules.push(record);
                }
                Job::Complete(stamp) => {
                    if let Some(live) = &mut self.live {
                        live.set_complete(stamp);
                    }
                }
                Job::WriteOut => self.write_out(),
                Job::Flush(done) => {
                    self.write_out();
                    self.count_overwritten();
                    done(Ok(self.shared.properties()));
                }
                Job::Snapshot { file, partial, done } => {
                    self.partial = partial;
                    let result = self.snapshot(file);
                    self.partial = Vec::new();
                    done(result.map(|()| self.shared.properties()));
                }
                Job::Update(update) => self.update(*update),
                Job::Increment(done) => {
                    self.write_out();
                    let result = self.continue_in_next_file();
                    done(result.map(|()| self.shared.properties()));
                }
                Job::Convert(done) => {
                    self.write_out();
                    let result = self.convert();
                    done(result.map(|()| self.shared.properties()));
                }
                Job::OpenConsumer(done) => done(self.open_consumer()),
                Job::CloseConsumer(id) => self.close_consumer(id),
                Job::Fault => self.notify_end(FAULT),
                Job::Stop { partial, end, done } => {
                    (self.stop_request, self.partial) = (Some(done), partial);
                    if let LogTarget::File(file) = &mut self.log {
                        file.stop_at(end);
                    }
                    self.stop();
                    return;
                }
            }
            SessionStats::record_thread_time(&self.shared.stats.writer_ns);
        }
        // The collector has ended without a stop: finalise the file nevertheless.
        self.stop();
    }

    /// Returns how many buffers fit [`MAX_WRITE_BYTES`], at least one.
    fn max_buffers_per_write(&self) -> usize {
        MAX_WRITE_BYTES.checked_div(self.shared.pool.buffer_bytes()).unwrap_or(1).max(1)
    }

    /// Takes the buffers that already wait, up to the size of one write. Returns the job after
    /// them, if it is not a buffer.
    fn take_waiting_buffers(&mut self, jobs: &Receiver<Job>) -> Option<Job> {
        // The collector needs free buffers while this thread writes.
        let limit = self.max_buffers_per_write().min(self.shared.maximum_buffers() / 4);
        while self.in_hand.len() < limit {
            match jobs.try_recv() {
                Ok(Job::Buffer(buffer)) => self.in_hand.push_back(buffer),
                Ok(job) => return Some(job),
                Err(_) => break,
            }
        }
        None
    }

    /// Delivers the buffers in hand to live consumers, and writes them once enough are held.
    fn process_buffers(&mut self) {
        if let Some(live) = &mut self.live {
            for buffer in &mut self.in_hand {
                live.deliver(buffer, &self.shared.stats);
            }
            self.publish_full();
        }
        if !matches!(self.log, LogTarget::File(_)) {
            self.append_each();
        } else if self.held.add(&mut self.in_hand) {
            self.write();
        }
    }

    /// Writes all held buffers.
    fn write_out(&mut self) {
        let max_buffers = self.max_buffers_per_write();
        while self.held.hand_over(&mut self.in_hand, max_buffers) {
            self.write();
        }
    }

    /// Writes the buffers in hand to the file, with one write if possible.
    fn write(&mut self) {
        if let LogTarget::File(file) = &mut self.log
            && self.in_hand.len() > 1
            && file.append_batch(self.in_hand.make_contiguous())
        {
            for buffer in self.in_hand.drain(..) {
                self.shared.pool.return_buffer(buffer);
                self.shared.pool.count_finished();
            }
            self.publish_buffers_written();
            return;
        }
        self.append_each();
    }

    fn append_each(&mut self) {
        while !self.in_hand.is_empty() {
            let result = self.append();
            let Some(buffer) = self.in_hand.pop_front() else { return };
            self.finish_buffer(buffer, result);
        }
    }

    /// Counts the result of writing a buffer, then returns it to the pool or keeps it in the flight
    /// recorder.
    fn finish_buffer(&mut self, buffer: Buffer, result: AppendResult) {
        match &mut self.log {
            LogTarget::None => self.shared.pool.return_buffer(buffer),
            LogTarget::File(_) => {
                match result {
                    AppendResult::Appended => self.publish_buffers_written(),
                    AppendResult::AlreadyEnded | AppendResult::Full | AppendResult::Ended(_) => {
                        self.shared.stats.count_unwritten(buffer.events);
                    }
                }
                self.shared.pool.return_buffer(buffer);
                self.shared.pool.count_finished();
                if let AppendResult::Ended(status) = result {
                    self.notify_end(status);
                }
                return;
            }
            LogTarget::FlightRecorder(flight, _) => {
                flight.keep(buffer);
                while self.shared.pool.available() < self.min_free_buffers {
                    let Some(oldest) = flight.take_oldest() else { break };
                    self.shared.pool.return_buffer(oldest);
                }
            }
        }
        self.shared.pool.count_finished();
    }

    /// Records that the session ends by itself, and calls `on_end` the first time.
    fn notify_end(&mut self, status: Status) {
        self.shared.stats.end_status.store(status.0, Relaxed);
        if let Some(on_end) = self.on_end.take() {
            on_end(Ended { status });
        }
    }

    fn snapshot(&mut self, file: Option<(File, PathBuf)>) -> Result<()> {
        let LogTarget::FlightRecorder(flight, session_file) = &mut self.log else { return Ok(()) };
        let lost = count_losses(&self.shared.stats, 0);
        let (file, name) = match (file, session_file) {
            (Some((file, name)), _) => (file, Some(name)),
            (None, Some(session_file)) => {
                (session_file.try_clone().map_err(Error::File)?, self.facts.config.log_file.clone())
            }
            (None, None) => {
                let reason = "the flight recorder has no file to be written to";
                return refuse(Status::ERROR_BAD_PATHNAME, reason);
            }
        };
        let storage = Box::new(self.shared.new_storage(file));
        let written = flight.snapshot(storage, &self.facts, name.as_deref(), &mut self.partial, lost)?;
        self.shared.stats.buffers_written.store(written, Relaxed);
        Ok(())
    }

    fn update(&mut self, update: OutputUpdate) {
        self.write_out();
        let OutputUpdate { file, open_next_file: next, partial, is_real_time: real_time, done } = update;
        self.set_real_time(real_time);
        self.partial = partial;
        let result = match file {
            Some(file) if matches!(self.log, LogTarget::FlightRecorder(..)) => self.snapshot(Some(file)),
            Some((file, name)) => self.switch_file(file, name, next),
            None => Ok(()),
        };
        self.partial = Vec::new();
        self.publish_full();
        done(result.map(|()| self.shared.properties()));
    }

    /// Counts the buffers that another process has changed in the log file.
    fn count_overwritten(&mut self) {
        if let LogTarget::File(file) = &mut self.log {
            self.shared.stats.count_overwritten(file.take_overwritten());
        }
    }

    fn stop(&mut self) {
        self.write_out();
        self.count_overwritten();
        let stats = &self.shared.stats;
        let failure = match &mut self.log {
            LogTarget::File(file) => file.finalise(count_losses(stats, 0)),
            LogTarget::FlightRecorder(_, Some(_)) => self.snapshot(None).err().map(|error| error.status()),
            LogTarget::FlightRecorder(_, None) | LogTarget::None => None,
        };
        if matches!(self.log, LogTarget::FlightRecorder(..)) {
            // The history is written, has no file, or the error is reported below.
            (self.log, self.partial) = (LogTarget::None, Vec::new());
        }
        self.end_live();
        if let Some(status) = failure {
            self.notify_end(status);
        }
        SessionStats::record_thread_time(&self.shared.stats.writer_ns);
        self.answer_stop();
    }

    /// Answers the stop request with the final properties.
    fn answer_stop(&mut self) {
        if let Some(done) = self.stop_request.take().flatten() {
            done(Ok(self.shared.properties()));
        }
    }
}

/// The end of the session after this thread has panicked (see [`crate::fault`]).
impl Output {
    /// Ends the session, and refuses all requests until its stop.
    pub(crate) fn end_after_panic(mut self, jobs: &Receiver<Job>) {
        self.count_all_as_lost();
        // The file stays unfinalised.
        contain_panic(|| self.log = LogTarget::None);
        contain_panic(|| self.end_live());
        contain_panic(|| self.notify_end(FAULT));
        // The stop itself may have caused the panic.
        while self.stop_request.is_none() {
            let Some(job) = self.next_job.take().or_else(|| jobs.recv().ok()) else { return };
            match job {
                Job::Buffer(buffer) => self.count_as_lost(buffer),
                Job::Live(piece) => self.shared.release_piece(piece.filled),
                Job::Stop { partial, done, .. } => {
                    self.count_partial(&partial);
                    self.stop_request = Some(done);
                }
                // The callback is the caller's code and may panic.
                other => {
                    contain_panic(|| other.refuse());
                }
            }
        }
        self.answer_stop();
    }

    /// Counts all unwritten buffers as lost and returns them to the pool.
    fn count_all_as_lost(&mut self) {
        self.held.hand_over(&mut self.in_hand, usize::MAX);
        while let Some(buffer) = self.in_hand.pop_front() {
            self.count_as_lost(buffer);
        }
        if let LogTarget::FlightRecorder(flight, _) = &mut self.log {
            // These buffers counted as finished when the flight recorder got them.
            while let Some(oldest) = flight.take_oldest() {
                self.shared.stats.count_unwritten(oldest.events);
                self.shared.pool.return_buffer(oldest);
            }
        }
        let partial = std::mem::take(&mut self.partial);
        // Before the stop, these are copies; their originals are counted when they come.
        if self.stop_request.is_some() {
            self.count_partial(&partial);
        }
    }

    fn count_partial(&self, partial: &[Buffer]) {
        partial.iter().for_each(|buffer| self.shared.stats.count_unwritten(buffer.events));
    }

    /// Counts a buffer as lost and returns it to the pool.
    fn count_as_lost(&self, buffer: Buffer) {
        self.shared.stats.count_unwritten(buffer.events);
        self.shared.pool.return_buffer(buffer);
        self.shared.pool.count_finished();
    }
}

/// Returns the events and buffers lost so far, including a buffer of `events` events that is about
/// to be counted.
fn count_losses(stats: &SessionStats, events: u32) -> (u64, u32) {
    let buffers = stats.log_buffers_lost.load(Relaxed).saturating_add(u32::from(events > 0));
    let buffers = buffers.saturating_add(stats.overwritten_buffers.load(Relaxed));
    (stats.events_lost().saturating_add(u64::from(events)), buffers)
}
