//! The collector thread: drains the rings on wakes, commands and timers, and carries commands out.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use traceweir_format::spec::status::Status;
use traceweir_transport::clock::{Anchor, Counter};
use traceweir_transport::message::{Properties, Update};

use crate::collect::{Collector, DrainReach};
use crate::config::{self, Config, Mode};
use crate::error::{Result, refuse};
use crate::fault::contain_panic;
use crate::ids::RegionId;
use crate::messages::{CollectorCommand, Done, Job, NextFile, OutputUpdate};
use crate::pool::Buffer;
use crate::schedule::{HOUSEKEEPING_INTERVAL, Schedule};
use crate::shared::SharedState;
use crate::stats::SessionStats;

/// Number of consecutive wakes without work that the thread accepts before it pauses.
const MAX_IDLE_WAKES: u32 = 100;
/// Pause after each wake without work beyond [`MAX_IDLE_WAKES`].
const IDLE_PAUSE: Duration = Duration::from_millis(1);

/// The state of the collector thread.
pub(super) struct CollectorThread {
    shared: Arc<SharedState>,
    collector: Collector,
    jobs: Sender<Job>,
    schedule: Schedule,
    is_low_latency: bool,
    mode: Mode,
    /// Whether live consumers still lack records because the writer was busy.
    has_undelivered: bool,
    /// Sources to remove after the next drain.
    leaving: Vec<RegionId>,
    /// Set when the session is to stop; contains the callback of the request, if it has one.
    stop_request: Option<Option<Done<Properties>>>,
}

impl CollectorThread {
    pub(super) fn new(shared: Arc<SharedState>, collector: Collector, jobs: Sender<Job>) -> Self {
        let config = shared.config();
        Self {
            shared,
            collector,
            jobs,
            schedule: Schedule::new(Instant::now(), Config::flush_seconds(&config)),
            is_low_latency: config.low_latency,
            mode: Mode(config.log_file_mode),
            has_undelivered: false,
            leaving: Vec::new(),
            stop_request: None,
        }
    }

    /// Publishes the id of this thread.
    pub(super) fn publish_thread_id(&self) {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        self.shared.stats.logger_thread_id.store(u32::try_from(id).unwrap_or(0), Relaxed);
    }

    /// Runs until a stop command.
    pub(super) fn run(&mut self) {
        let mut idle = 0_u32;
        loop {
            self.shared.wait(self.schedule.time_to_next_task(Instant::now()));
            let had_commands = self.shared.has_commands_or_sources();
            if self.run_commands().is_break() {
                break;
            }
            let had_work = self.drain_and_run_due_tasks() || had_commands;
            SessionStats::record_thread_time(&self.shared.stats.collector_ns);
            idle = if had_work { 0 } else { idle.saturating_add(1) };
            if idle > MAX_IDLE_WAKES {
                // A process wakes this thread repeatedly without publishing records: limit the
                // cost.
                std::thread::sleep(IDLE_PAUSE);
            }
        }
    }

    /// Drains once and runs the tasks that are due. Returns whether there was work.
    fn drain_and_run_due_tasks(&mut self) -> bool {
        let due = self.schedule.take_due(Instant::now());
        // For a source that leaves, this drain is the last, so it must take everything.
        let reach = if self.leaving.is_empty() { DrainReach::BeforeDrain } else { DrainReach::All };
        let drained = self.collector.drain(reach);
        let leaving = std::mem::take(&mut self.leaving);
        if !leaving.is_empty() {
            self.collector.remove_sources(&leaving);
        }
        if due.flush {
            self.flush_all();
        } else if self.is_low_latency
            && self.mode.is_real_time()
            && (drained.has_taken || self.has_undelivered)
        {
            self.has_undelivered = !self.collector.deliver();
        }
        if due.housekeeping {
            self.collector.do_housekeeping();
        }
        let is_active = drained.has_taken || drained.has_waiting || self.has_undelivered;
        self.schedule.plan_next_drain(Instant::now(), self.is_low_latency && is_active);
        is_active || due.flush || due.housekeeping
    }

    /// Submits everything that was collected.
    fn flush_all(&mut self) {
        self.collector.flush();
        self.has_undelivered = false;
        if self.shared.flush_threshold > 1 {
            self.send(Job::WriteOut);
        }
        if self.mode.is_real_time() {
            self.collector.report_complete();
        }
    }

    /// Carries out all waiting commands; breaks at a stop.
    fn run_commands(&mut self) -> ControlFlow<()> {
        while let Some(command) = self.shared.next_command() {
            match command {
                CollectorCommand::Capture(source) => {
                    // If this fails, the capture is polled on schedule only.
                    let _ = self.shared.listen_to(source.wake_fd());
                    self.collector.start_capture(source);
                }
                CollectorCommand::Detach(region) => self.leaving.push(region),
                CollectorCommand::Flush(file, done) => self.flush(file, done),
                CollectorCommand::Update(update, file, next, done) => self.update(&update, file, next, done),
                CollectorCommand::Increment(done) => self.increment(done),
                CollectorCommand::Convert(done) => self.convert(done),
                CollectorCommand::CacheStacks(cache, owners) => self.collector.set_stack_cache(cache, owners),
                CollectorCommand::OpenConsumer(done) => {
                    self.collector.reopen();
                    self.send(Job::OpenConsumer(done));
                }
                CollectorCommand::CloseConsumer(id) => self.send(Job::CloseConsumer(id)),
                CollectorCommand::Stop(done) => {
                    self.stop_request = Some(done);
                    self.stop();
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Sends a job to the writer thread; refuses it if the thread has ended.
    fn send(&self, job: Job) {
        if let Err(rejected) = self.jobs.send(job) {
            rejected.0.refuse();
        }
    }

    /// Collects and submits everything; a flight recorder keeps its buffers.
    fn collect_all(&mut self) {
        self.collector.drain(DrainReach::All);
        if !self.mode.is_buffering() {
            self.flush_all();
        }
    }

    /// Like [`collect_all`](Self::collect_all), and copies the buffers that a flight recorder
    /// fills.
    fn collect_for_snapshot(&mut self) -> Result<Vec<Buffer>> {
        self.collect_all();
        if self.mode.is_buffering() { self.collector.copy_partial() } else { Ok(Vec::new()) }
    }

    fn flush(&mut self, file: Option<(File, PathBuf)>, done: Done<Properties>) {
        match self.collect_for_snapshot() {
            Err(error) => done(Err(error)),
            Ok(partial) if self.mode.is_buffering() => self.send(Job::Snapshot { file, partial, done }),
            Ok(_) => self.send(Job::Flush(done)),
        }
    }

    fn stop(&mut self) {
        self.collector.end_captures();
        self.collect_all();
        let partial = self.collector.take_partial();
        let end = Anchor::now(Counter::best());
        self.collector.finish();
        SessionStats::record_thread_time(&self.shared.stats.collector_ns);
        // Before the stop is answered, so that its caller finds the session ended.
        self.refuse_commands();
        self.finish_writer(partial, end);
    }

    /// Refuses all waiting and later commands.
    fn refuse_commands(&self) {
        for command in self.shared.close() {
            command.refuse();
        }
    }

    /// Makes the writer thread finish and answer the stop.
    fn finish_writer(&mut self, partial: Vec<Buffer>, end: Anchor) {
        let done = self.stop_request.take().flatten();
        self.send(Job::Stop { partial, end, done });
    }
}

/// Requests that change file, mode or limits.
impl CollectorThread {
    fn increment(&mut self, done: Done<Properties>) {
        if !self.mode.is_file_sequence() {
            let reason = "only a session that writes a file sequence (new-file mode) has a next file";
            return done(refuse(Status::ERROR_INVALID_FUNCTION, reason));
        }
        // Events that were written before the call belong to the previous file.
        self.collect_all();
        self.send(Job::Increment(done));
    }

    fn convert(&mut self, done: Done<Properties>) {
        let has_file = self.shared.config().log_file.is_some();
        if !has_file || self.mode.is_buffering() || self.mode.is_private() {
            let reason = "the session is private, is a flight recorder, or has no log file to give up";
            return done(refuse(Status::ERROR_INVALID_FUNCTION, reason));
        }
        self.collect_all();
        self.mode = self.mode.without_file();
        self.set_mode();
        self.send(Job::Convert(done));
    }

    /// Publishes a changed mode, adjusts the flush timer to it, and forgets the stack definitions.
    fn set_mode(&mut self) {
        self.shared.change_config(|config| {
            config.log_file_mode = self.mode.0;
            if self.mode.is_real_time() && config.flush_timer == 0 {
                config.flush_timer = 1;
            }
        });
        self.schedule.set_period(Instant::now(), Config::flush_seconds(&self.shared.config()));
        self.collector.forget_stack_definitions();
    }

    fn update(
        &mut self,
        update: &Update,
        file: Option<File>,
        next: Option<NextFile>,
        done: Done<Properties>,
    ) {
        if let Err(error) = self.check_update(update, file.is_some(), next.is_some()) {
            return done(Err(error));
        }
        if let Some(seconds) = update.flush_timer.filter(|&s| s > 0) {
            self.shared.change_config(|config| config.flush_timer = seconds);
        }
        if let Some(flags) = update.enable_flags {
            self.shared.set_enable_flags(flags);
        }
        if let Some(maximum) = update.maximum_buffers.filter(|&n| n > 0) {
            self.shared.set_maximum_buffers(maximum);
        }
        let real_time = update.real_time.unwrap_or(self.mode.is_real_time());
        self.mode = self.mode.with_real_time(real_time);
        self.set_mode();
        self.collector.reopen();
        // Events that were written before the call belong to the previous file.
        let partial = match self.collect_for_snapshot() {
            Ok(partial) => partial,
            Err(error) => return done(Err(error)),
        };
        let file = file.zip(update.log_file.clone());
        self.send(Job::Update(Box::new(OutputUpdate {
            file,
            open_next_file: next,
            partial,
            is_real_time: real_time,
            done,
        })));
    }

    fn check_update(&self, update: &Update, has_file: bool, has_next: bool) -> Result<()> {
        let invalid = |reason| refuse(Status::ERROR_INVALID_PARAMETER, reason);
        let bad_path = |reason| refuse(Status::ERROR_BAD_PATHNAME, reason);
        let config = self.shared.config();
        let mode = self.mode;
        config::check_enable_flags(&config, update.enable_flags.unwrap_or(0))?;
        let changes_delivery = update.real_time.is_some_and(|on| on != mode.is_real_time());
        if changes_delivery && (mode.is_buffering() || mode.is_private() || mode.is_appending()) {
            return invalid("this kind of session does not deliver events live");
        }
        if changes_delivery && config.log_file.is_none() && update.log_file.is_none() {
            return invalid("without live delivery, the session needs a log file");
        }
        if mode.is_private() && update.maximum_buffers.is_some_and(|n| n > 0) {
            return invalid("only file and flush timer of a private session can be changed");
        }
        if update.log_file.is_some() != has_file || has_file && mode.is_file_sequence() != has_next {
            return bad_path("a log file must come with its name and, only for a file sequence, an opener");
        }
        let Some(name) = &update.log_file else { return Ok(()) };
        let mut first_file = name.clone();
        if mode.is_file_sequence() {
            config::check_sequence_pattern(name)?;
            first_file = config::sequence_file_name(name, 1);
        }
        if config.log_file.as_ref() == Some(name) || config.log_file == Some(first_file) {
            return bad_path("this already is the log file");
        }
        Ok(())
    }
}

/// The end of the session after this thread has panicked (see [`crate::fault`]).
impl CollectorThread {
    /// Ends the session, and refuses all commands until its stop.
    pub(super) fn end_after_panic(mut self) {
        contain_panic(|| self.collector.abandon());
        self.send(Job::Fault);
        // The stop itself may have caused the panic.
        while self.stop_request.is_none() {
            self.shared.wait(HOUSEKEEPING_INTERVAL);
            self.refuse_until_stop();
        }
        contain_panic(|| self.refuse_commands());
        let end = Anchor::now(Counter::best());
        self.finish_writer(Vec::new(), end);
    }

    fn refuse_until_stop(&mut self) {
        drop(self.shared.take_attached());
        while let Some(command) = self.shared.next_command() {
            if let CollectorCommand::Stop(done) = command {
                self.stop_request = Some(done);
                return;
            }
            // The callback is the caller's code and may panic.
            contain_panic(|| command.refuse());
        }
    }
}
