//! The writer thread: writes full buffers to the file and to live consumers, then returns them to
//! the pool.
//!
//! ```text
//!   Job::Buffer ──▶ realtime ──▶ held to the flush threshold ──▶ file or flight recorder ──▶ pool
//!   Job::Live   ──▶ realtime                          (a copy of what a buffer holds so far)
//!   Job::…      ──▶ requests, in order: earlier buffers are written before the answer
//! ```
//!
//! - O1 Every buffer is written, kept or counted, and returns to the pool.
//! - O2 When the file ends by itself, the owner is notified once; later buffers count as not
//!   written, and live delivery continues.
//! - O3 A held buffer is written before any request is answered, at each flush, and when the
//!   collector is short of buffers.
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
use crate::fault::{FAULT, contained};
use crate::logfile::{Facts, Flight, LogFile, Written};
use crate::messages::{Done, Ended, Job, OutputUpdate};
use crate::pool::Buffer;
use crate::realtime::Realtime;
use crate::shared::Shared;
use crate::stats::Stats;

/// Bytes of one write to the log file, unless a single buffer is larger: enough to keep the device
/// busy while the next buffers are filled.
const MAX_WRITE: usize = 1 << 20;

/// Destination of the buffers of a session.
enum Log {
    /// The session has no log: live delivery only.
    None,
    /// Buffers go to a log file.
    File(Box<LogFile>),
    /// Memory, written on request to the session's own file.
    Flight(Flight, Option<File>),
}

/// The writer thread's state.
pub(crate) struct Output {
    shared: Arc<Shared>,
    facts: Facts,
    log: Log,
    live: Option<Realtime<QueueWriter>>,
    /// Set if the log is a file sequence.
    sequence: Option<FileSequence>,
    /// Full buffers below the flush threshold.
    held: HeldBuffers,
    /// Buffers that are being written; counted as lost if this thread panics.
    in_hand: VecDeque<Buffer>,
    /// Copies of the buffers that a flight recorder fills, while a snapshot is written.
    partial: Vec<Buffer>,
    on_end: Option<Box<dyn FnOnce(Ended) + Send>>,
    /// Number of free buffers that a flight recorder keeps by dropping its oldest, so that the
    /// collector need not wait.
    reserve: u32,
    /// Set when the session is being finalised, with the callback of the request.
    ending: Option<Option<Done<Properties>>>,
    /// The job that follows the buffers being written; still served if this thread panics.
    next: Option<Job>,
}

impl Output {
    /// Creates the state of a writer thread whose log is not open yet.
    pub(crate) fn new(
        shared: Arc<Shared>,
        facts: Facts,
        sequence: Option<FileSequence>,
        on_end: Box<dyn FnOnce(Ended) + Send>,
    ) -> Self {
        let room = shared.maximum_buffers();
        let is_live = Mode(facts.config.log_file_mode).is_real_time();
        let live = is_live.then(|| Realtime::new(shared.pool.buffer_bytes(), room, facts.logger_id));
        Self {
            log: Log::None,
            live,
            sequence,
            held: HeldBuffers::new(shared.flush_threshold),
            in_hand: VecDeque::new(),
            partial: Vec::new(),
            on_end: Some(on_end),
            reserve: (facts.config.minimum_buffers / 8).clamp(1, 16),
            ending: None,
            next: None,
            shared,
            facts,
        }
    }

    /// Runs jobs until the stop.
    pub(crate) fn run(&mut self, jobs: &Receiver<Job>) {
        while let Some(job) = self.next.take().or_else(|| jobs.recv().ok()) {
            match job {
                Job::Buffer(buffer) => {
                    self.in_hand.push_back(buffer);
                    self.next = self.gather(jobs);
                    self.take_buffers();
                }
                Job::Live(mut piece) => {
                    if let Some(live) = &mut self.live {
                        live.deliver(&mut piece, &self.shared.stats);
                    }
                    self.shared.piece_arrived(piece.filled);
                    self.note_full();
                }
                Job::Module(record) => {
                    if let Log::File(file) = &mut self.log
                        && Mode(self.facts.config.log_file_mode).has_open_front()
                    {
                        file.add_module(&record);
                    }
                    self.facts.modules.push(record);
                }
                Job::Complete(stamp) => {
                    if let Some(live) = &mut self.live {
                        live.complete(stamp);
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
                    let written = self.snapshot(file);
                    self.partial = Vec::new();
                    done(written.map(|()| self.shared.properties()));
                }
                Job::Update(update) => self.update(*update),
                Job::Increment(done) => {
                    self.write_out();
                    let begun = self.next_file();
                    done(begun.map(|()| self.shared.properties()));
                }
                Job::Convert(done) => {
                    self.write_out();
                    let converted = self.convert();
                    done(converted.map(|()| self.shared.properties()));
                }
                Job::OpenConsumer(done) => done(self.open_consumer()),
                Job::CloseConsumer(id) => self.close_consumer(id),
                Job::Fault => self.end(FAULT),
                Job::Stop { partial, at, done } => {
                    (self.ending, self.partial) = (Some(done), partial);
                    if let Log::File(file) = &mut self.log {
                        file.stop_at(at);
                    }
                    self.stop();
                    return;
                }
            }
            Stats::note_thread_time(&self.shared.stats.writer_ns);
        }
        // The collector has ended without a stop: finalise the file all the same.
        self.stop();
    }

    /// Returns the largest number of buffers in one write.
    fn in_one_write(&self) -> usize {
        MAX_WRITE.checked_div(self.shared.pool.buffer_bytes()).unwrap_or(1).max(1)
    }

    /// Takes the buffers that already wait, up to the size of one write. Returns the job after
    /// them, if it is no buffer.
    fn gather(&mut self, jobs: &Receiver<Job>) -> Option<Job> {
        // The collector needs free buffers meanwhile.
        let limit = self.in_one_write().min(self.shared.maximum_buffers() / 4);
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
    fn take_buffers(&mut self) {
        if let Some(live) = &mut self.live {
            for buffer in &mut self.in_hand {
                live.deliver(buffer, &self.shared.stats);
            }
            self.note_full();
        }
        if !matches!(self.log, Log::File(_)) {
            self.log_each();
        } else if self.held.add(&mut self.in_hand) {
            self.write();
        }
    }

    /// Writes all held buffers.
    fn write_out(&mut self) {
        let most = self.in_one_write();
        while self.held.hand_over(&mut self.in_hand, most) {
            self.write();
        }
    }

    /// Writes the buffers in hand to the file, with one write if possible.
    fn write(&mut self) {
        if let Log::File(file) = &mut self.log
            && self.in_hand.len() > 1
            && file.append_batch(self.in_hand.make_contiguous())
        {
            for buffer in self.in_hand.drain(..) {
                self.shared.pool.give(buffer);
                self.shared.pool.settled();
            }
            self.note_written();
            return;
        }
        self.log_each();
    }

    fn log_each(&mut self) {
        while !self.in_hand.is_empty() {
            let written = self.append();
            let Some(buffer) = self.in_hand.pop_front() else { return };
            self.finish_buffer(buffer, written);
        }
    }

    /// Counts the result of writing a buffer, then returns it to the pool or keeps it in the flight
    /// recorder.
    fn finish_buffer(&mut self, buffer: Buffer, written: Written) {
        match &mut self.log {
            Log::None => self.shared.pool.give(buffer),
            Log::File(_) => {
                match written {
                    Written::Yes => self.note_written(),
                    Written::No | Written::Full | Written::Ended(_) => {
                        self.shared.stats.count_unwritten(buffer.events);
                    }
                }
                self.shared.pool.give(buffer);
                self.shared.pool.settled();
                if let Written::Ended(status) = written {
                    self.end(status);
                }
                return;
            }
            Log::Flight(flight, _) => {
                flight.keep(buffer);
                while self.shared.pool.available() < self.reserve {
                    let Some(oldest) = flight.take_oldest() else { break };
                    self.shared.pool.give(oldest);
                }
            }
        }
        self.shared.pool.settled();
    }

    /// Records that the session ends by itself, and notifies its owner once.
    fn end(&mut self, status: Status) {
        self.shared.stats.end_status.store(status.0, Relaxed);
        if let Some(on_end) = self.on_end.take() {
            on_end(Ended { status });
        }
    }

    fn snapshot(&mut self, file: Option<(File, PathBuf)>) -> Result<()> {
        let Log::Flight(flight, own) = &mut self.log else { return Ok(()) };
        let lost = lost_counts(&self.shared.stats, 0);
        let (file, name) = match (file, own) {
            (Some((file, name)), _) => (file, Some(name)),
            (None, Some(own)) => (own.try_clone().map_err(Error::File)?, self.facts.config.log_file.clone()),
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
        let OutputUpdate { file, next, partial, real_time, done } = update;
        self.set_real_time(real_time);
        self.partial = partial;
        let changed = match file {
            Some(file) if matches!(self.log, Log::Flight(..)) => self.snapshot(Some(file)),
            Some((file, name)) => self.switch_file(file, name, next),
            None => Ok(()),
        };
        self.partial = Vec::new();
        self.note_full();
        done(changed.map(|()| self.shared.properties()));
    }

    /// Counts the buffers that another process has changed in the log file.
    fn count_overwritten(&mut self) {
        if let Log::File(file) = &mut self.log {
            self.shared.stats.count_overwritten(file.overwritten());
        }
    }

    fn stop(&mut self) {
        self.write_out();
        self.count_overwritten();
        let stats = &self.shared.stats;
        let failed = match &mut self.log {
            Log::File(file) => file.finalise(lost_counts(stats, 0)),
            Log::Flight(_, Some(_)) => self.snapshot(None).err().map(|error| error.status()),
            Log::Flight(_, None) | Log::None => None,
        };
        if matches!(self.log, Log::Flight(..)) {
            // It is written, or the error is reported below.
            (self.log, self.partial) = (Log::None, Vec::new());
        }
        self.end_live();
        if let Some(status) = failed {
            self.end(status);
        }
        Stats::note_thread_time(&self.shared.stats.writer_ns);
        self.answer_stop();
    }

    /// Answers the stop request with the final properties.
    fn answer_stop(&mut self) {
        if let Some(done) = self.ending.take().flatten() {
            done(Ok(self.shared.properties()));
        }
    }
}

/// The end of the session after this thread has panicked (see [`crate::fault`]).
impl Output {
    /// Ends the session and waits for its stop.
    pub(crate) fn end_after_panic(mut self, jobs: &Receiver<Job>) {
        self.give_up_all();
        // The file stays as it is.
        contained(|| self.log = Log::None);
        contained(|| self.end_live());
        contained(|| self.end(FAULT));
        // The stop itself may have caused the panic.
        while self.ending.is_none() {
            let Some(job) = self.next.take().or_else(|| jobs.recv().ok()) else { return };
            match job {
                Job::Buffer(buffer) => self.give_up(buffer),
                Job::Live(piece) => self.shared.piece_arrived(piece.filled),
                Job::Stop { partial, done, .. } => {
                    self.count_partial(&partial);
                    self.ending = Some(done);
                }
                // The callback is the caller's code and may panic.
                other => {
                    contained(|| other.refuse());
                }
            }
        }
        self.answer_stop();
    }

    /// Counts all unwritten buffers as lost and returns them to the pool.
    fn give_up_all(&mut self) {
        self.held.hand_over(&mut self.in_hand, usize::MAX);
        while let Some(buffer) = self.in_hand.pop_front() {
            self.give_up(buffer);
        }
        if let Log::Flight(flight, _) = &mut self.log {
            // These counted as finished when they were kept.
            while let Some(kept) = flight.take_oldest() {
                self.shared.stats.count_unwritten(kept.events);
                self.shared.pool.give(kept);
            }
        }
        let partial = std::mem::take(&mut self.partial);
        // Before the stop, the originals of these copies still come.
        if self.ending.is_some() {
            self.count_partial(&partial);
        }
    }

    fn count_partial(&self, partial: &[Buffer]) {
        partial.iter().for_each(|buffer| self.shared.stats.count_unwritten(buffer.events));
    }

    /// Counts a buffer as lost and returns it to the pool.
    fn give_up(&self, buffer: Buffer) {
        self.shared.stats.count_unwritten(buffer.events);
        self.shared.pool.give(buffer);
        self.shared.pool.settled();
    }
}

/// Returns the events and buffers lost so far, including a buffer of `events` events that is about
/// to be counted.
fn lost_counts(stats: &Stats, events: u32) -> (u64, u32) {
    let buffers = stats.log_buffers_lost.load(Relaxed).saturating_add(u32::from(events > 0));
    let buffers = buffers.saturating_add(stats.overwritten_buffers.load(Relaxed));
    (stats.events_lost().saturating_add(u64::from(events)), buffers)
}
