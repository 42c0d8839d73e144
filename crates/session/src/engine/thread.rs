//! The collector thread: drains the rings on wakes, commands and timers. Starts both threads.

mod change;
mod fall;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use traceweir_format::spec::status::Status;
use traceweir_transport::Error as TransportError;
use traceweir_transport::clock::{Anchor, Counter};
use traceweir_transport::message::Properties;

use super::shared::{Command, Shared};
use super::{Done, NextFile, Place, SourceId};
use crate::clock::SessionClock;
use crate::collect::{Collector, Reach};
use crate::config::{self, Config, Mode};
use crate::error::{Error, Result};
use crate::fault::contained;
use crate::flush::Schedule;
use crate::logfile::Facts;
use crate::output::{FileSequence, Held, Job, Log, Output};
use crate::pool::Buffer;
use crate::realtime::Realtime;
use crate::stats::Stats;

/// Stack size of a session's thread: nothing deep runs there.
const STACK: usize = 256 << 10;

/// Consecutive wakes that may find nothing before the thread pauses after each.
const IDLE_WAKES: u32 = 100;
/// Pause after a wake that finds nothing, beyond [`IDLE_WAKES`].
const IDLE_PAUSE: Duration = Duration::from_millis(1);

/// Nice value of a session's threads: writers must not keep the collector from a CPU.
const NICE: i32 = -10;

/// Starts a session's threads.
pub(super) fn start(mut config: Config, place: Place) -> Result<Arc<Shared>> {
    let logger_id = u16::try_from(place.id & 0xFFFF).unwrap_or(0);
    if logger_id == 0 {
        return refuse("the logger id of a session is not 0");
    }
    let counter = Counter::best();
    let clock = SessionClock::start(config.properties().clock, counter);
    config.set_clock(clock.kind());
    let shared = Arc::new(Shared::new(place.id, &config, counter)?);
    shared.has_roots_room.store(place.has_roots_room, Relaxed);
    let facts = Facts {
        config: config.properties().clone(),
        logger_id,
        processors: u32::from(shared.streams),
        starter: place.starter,
        clock: clock.clone(),
        modules: Vec::new(),
        groups: config::is_system_logger(config.properties()).then(|| shared.groups()),
    };
    let live = config.mode().is_real_time();
    let room = shared.maximum_buffers();
    let live = live.then(|| Realtime::new(config.buffer_bytes(), room, logger_id));
    let sequence = file_sequence(&config, place.next_file)?;
    let on_end = Some(place.on_end);
    let reserve = (config.properties().minimum_buffers / 8).clamp(1, 16);
    let held = Held::new(shared.flush_threshold);
    let mut output = Output {
        shared: Arc::clone(&shared),
        facts,
        log: Log::None,
        live,
        sequence,
        on_end,
        reserve,
        held,
        in_hand: VecDeque::new(),
        partial: Vec::new(),
        ending: None,
        next: None,
    };
    output.open_log(place.file)?;
    spawn(&shared, output, clock)?;
    Ok(shared)
}

fn file_sequence(config: &Config, next: Option<NextFile>) -> Result<Option<FileSequence>> {
    if !config.mode().is_file_sequence() {
        return Ok(None);
    }
    let pattern = config.properties().log_file.clone();
    let Some((next, pattern)) = next.zip(pattern) else {
        let why = "the folder of a file sequence was not passed along";
        return Err(Error::Properties { status: Status::ERROR_BAD_PATHNAME, why });
    };
    Ok(Some(FileSequence::new(pattern, next)))
}

fn refuse<T>(why: &'static str) -> Result<T> {
    Err(Error::Properties { status: Status::ERROR_INVALID_PARAMETER, why })
}

fn spawn(shared: &Arc<Shared>, mut output: Output, clock: SessionClock) -> Result<()> {
    let failed = |e| Error::Transport(TransportError::system("thread", e));
    let (jobs, inbox) = channel();
    let (ready, started) = channel();
    let config = shared.config();
    let mut collector = Collector::new(Arc::clone(shared), jobs.clone(), clock);
    collector.begin_at(output.floor());
    let mut collector_thread = CollectorThread {
        shared: Arc::clone(shared),
        collector,
        jobs,
        schedule: Schedule::new(Instant::now(), Config::flush_seconds(&config)),
        low_latency: config.low_latency,
        mode: Mode(config.log_file_mode),
        is_behind: false,
        leaving: Vec::new(),
        ending: None,
    };
    let writer = std::thread::Builder::new().name("weir-write".into()).stack_size(STACK);
    // If the second thread cannot start, the first finds its inbox closed and finalises the file.
    writer
        .spawn(move || {
            raise_priority();
            if !contained(|| output.run(&inbox)) {
                output.end_after_panic(&inbox);
            }
        })
        .map_err(failed)?;
    let collect = std::thread::Builder::new().name("weir-collect".into()).stack_size(STACK);
    collect
        .spawn(move || {
            let id = rustix::thread::gettid().as_raw_nonzero().get();
            collector_thread.shared.stats.logger_thread_id.store(u32::try_from(id).unwrap_or(0), Relaxed);
            raise_priority();
            // Fails only if no caller waits any more.
            let _ = ready.send(());
            if !contained(|| collector_thread.run()) {
                collector_thread.end_after_panic();
            }
        })
        .map_err(failed)?;
    // Fails only if the thread ended at once; then every request is refused.
    let _ = started.recv();
    Ok(())
}

/// Raises the priority of this thread, if allowed: daemons of ordinary users run without.
fn raise_priority() {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}

/// The state of the collector thread.
struct CollectorThread {
    shared: Arc<Shared>,
    collector: Collector,
    jobs: Sender<Job>,
    schedule: Schedule,
    low_latency: bool,
    mode: Mode,
    /// Whether live consumers still lack records because the writer was busy.
    is_behind: bool,
    /// Sources to drop after the next drain.
    leaving: Vec<SourceId>,
    /// Set when the session is to stop, with the callback of the request.
    ending: Option<Option<Done<Properties>>>,
}

/// Whether the thread continues.
#[derive(PartialEq, Eq)]
enum Next {
    On,
    Stop,
}

impl CollectorThread {
    fn run(&mut self) {
        let mut idle = 0_u32;
        loop {
            self.shared.wait(self.schedule.pause(Instant::now()));
            let had_commands = self.shared.has_commands();
            if self.commands() == Next::Stop {
                break;
            }
            let useful = self.turn() || had_commands;
            Stats::note_thread_time(&self.shared.stats.collector_ns);
            idle = if useful { 0 } else { idle.saturating_add(1) };
            if idle > IDLE_WAKES {
                // A process wakes this thread again and again for nothing: limit the cost.
                std::thread::sleep(IDLE_PAUSE);
            }
        }
    }

    /// Drains once and does what is due. Returns whether there was anything to do.
    fn turn(&mut self) -> bool {
        let due = self.schedule.due(Instant::now());
        let reach = if self.leaving.is_empty() { Reach::BeforeDrain } else { Reach::All };
        let drained = self.collector.drain(reach);
        let leaving = std::mem::take(&mut self.leaving);
        if !leaving.is_empty() {
            self.collector.remove(&leaving);
        }
        if due.flush {
            self.flush_all();
        } else if self.low_latency && self.mode.is_real_time() && (drained.took || self.is_behind) {
            self.is_behind = !self.collector.deliver();
        }
        if due.beat {
            self.collector.do_housekeeping();
        }
        let flows = drained.took || drained.waits || self.is_behind;
        self.schedule.plan_next_drain(Instant::now(), self.low_latency && flows);
        flows || due.flush || due.beat
    }

    /// Submits everything that was collected.
    fn flush_all(&mut self) {
        self.collector.flush();
        self.is_behind = false;
        if self.shared.flush_threshold > 1 {
            self.send(Job::WriteOut);
        }
        if self.mode.is_real_time() {
            self.collector.report_complete();
        }
    }

    fn commands(&mut self) -> Next {
        while let Some(command) = self.shared.next_command() {
            match command {
                Command::Capture(source) => {
                    // If this fails, the capture is polled on schedule only.
                    let _ = self.shared.listen_to(source.wake());
                    self.collector.capture(source);
                }
                Command::Detach(source) => self.leaving.push(source),
                Command::Flush(file, done) => self.flush(file, done),
                Command::Update(update, file, next, done) => self.update(&update, file, next, done),
                Command::Increment(done) => self.increment(done),
                Command::Convert(done) => self.convert(done),
                Command::CacheStacks(cache, owners) => self.collector.cache_stacks(cache, owners),
                Command::Open(done) => {
                    self.collector.reopen();
                    self.send(Job::Open(done));
                }
                Command::Close(id) => self.send(Job::Close(id)),
                Command::Stop(done) => {
                    self.ending = Some(done);
                    self.stop();
                    return Next::Stop;
                }
            }
        }
        Next::On
    }

    /// Sends a request to the writer thread.
    fn send(&self, job: Job) {
        if let Err(refused) = self.jobs.send(job) {
            refused.0.refuse();
        }
    }

    /// Collects and submits everything; a flight recorder keeps its buffers.
    fn collect_all(&mut self) {
        self.collector.drain(Reach::All);
        if !self.mode.is_buffering() {
            self.flush_all();
        }
    }

    /// Like [`collect_all`](Self::collect_all), and copies the buffers that a flight recorder
    /// fills.
    fn gather(&mut self) -> Result<Vec<Buffer>> {
        self.collect_all();
        if self.mode.is_buffering() { self.collector.copy_partial() } else { Ok(Vec::new()) }
    }

    fn flush(&mut self, file: Option<(std::fs::File, PathBuf)>, done: Done<Properties>) {
        match self.gather() {
            Err(error) => done(Err(error)),
            Ok(partial) if self.mode.is_buffering() => self.send(Job::Snapshot { file, partial, done }),
            Ok(_) => self.send(Job::Flush(done)),
        }
    }

    fn stop(&mut self) {
        self.collector.end_capture();
        self.collect_all();
        let partial = self.collector.take_partial();
        let at = Anchor::now(Counter::best());
        self.collector.finish();
        Stats::note_thread_time(&self.shared.stats.collector_ns);
        // Before the answer: a caller that gets it finds the session ended.
        self.close();
        self.end(partial, at);
    }

    /// Refuses all waiting and later commands.
    fn close(&self) {
        for command in self.shared.close() {
            command.refuse();
        }
    }

    /// Makes the writer thread finish and answer the stop.
    fn end(&mut self, partial: Vec<Buffer>, at: Anchor) {
        let done = self.ending.take().flatten();
        self.send(Job::Stop { partial, at, done });
    }
}
