//! Starts a session: checks its options, opens its log, and starts its two threads.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;

use traceweir_format::spec::status::Status;
use traceweir_transport::Error as TransportError;
use traceweir_transport::clock::Counter;

use super::StartOptions;
use super::collector::CollectorThread;
use crate::clock::SessionClock;
use crate::collect::Collector;
use crate::config::{self, Config};
use crate::error::{Error, Result, refuse};
use crate::fault::contain_panic;
use crate::logfile::SessionFacts;
use crate::messages::NextFile;
use crate::output::{FileSequence, Output};
use crate::shared::SharedState;

/// Stack size of a session's thread, which makes no deep calls.
const STACK_BYTES: usize = 256 << 10;

/// Nice value of a session's threads: busy processes must not keep the collector from a CPU.
const NICE_VALUE: i32 = -10;

/// Creates the state of a session, opens its log and starts its threads.
pub(super) fn start(mut config: Config, options: StartOptions) -> Result<Arc<SharedState>> {
    let logger_id = u16::try_from(options.id & 0xFFFF).unwrap_or(0);
    if logger_id == 0 {
        return refuse(Status::ERROR_INVALID_PARAMETER, "the logger id of a session must not be 0");
    }
    let counter = Counter::best();
    let clock = SessionClock::start(config.properties().clock, counter);
    config.set_clock(clock.kind());
    let shared = Arc::new(SharedState::new(options.id, &config, counter)?);
    shared.may_use_reserved_blocks.store(options.may_use_reserved_blocks, Relaxed);
    let facts = SessionFacts {
        config: config.properties().clone(),
        logger_id,
        processors: u32::from(shared.streams),
        starter: options.starter,
        clock: clock.clone(),
        modules: Vec::new(),
        groups: config::is_system_logger(config.properties()).then(|| shared.groups()),
    };
    let sequence = new_file_sequence(&config, options.next_file)?;
    let mut output = Output::new(Arc::clone(&shared), facts, sequence, options.on_end);
    output.open_log(options.file)?;
    spawn_threads(&shared, output, clock)?;
    Ok(shared)
}

fn new_file_sequence(config: &Config, next: Option<NextFile>) -> Result<Option<FileSequence>> {
    if !config.mode().is_file_sequence() {
        return Ok(None);
    }
    let pattern = config.properties().log_file.clone();
    match next.zip(pattern) {
        Some((next, pattern)) => Ok(Some(FileSequence::new(pattern, next))),
        None => {
            refuse(Status::ERROR_BAD_PATHNAME, "the pattern or the file opener of a file sequence is missing")
        }
    }
}

fn spawn_threads(shared: &Arc<SharedState>, mut output: Output, clock: SessionClock) -> Result<()> {
    let thread_error = |e| Error::Transport(TransportError::system("thread", e));
    let (jobs, inbox) = channel();
    let (ready, started) = channel();
    let mut collector = Collector::new(Arc::clone(shared), jobs.clone(), clock);
    collector.set_floor(output.floor());
    let mut collector = CollectorThread::new(Arc::clone(shared), collector, jobs);
    let thread = std::thread::Builder::new().name("weir-write".into()).stack_size(STACK_BYTES);
    // If the second thread cannot start, the first finds its inbox closed and finalises the file.
    thread
        .spawn(move || {
            raise_priority();
            if !contain_panic(|| output.run(&inbox)) {
                output.end_after_panic(&inbox);
            }
        })
        .map_err(thread_error)?;
    let thread = std::thread::Builder::new().name("weir-collect".into()).stack_size(STACK_BYTES);
    thread
        .spawn(move || {
            collector.publish_thread_id();
            raise_priority();
            // Fails only if no caller waits any more.
            let _ = ready.send(());
            if !contain_panic(|| collector.run()) {
                collector.end_after_panic();
            }
        })
        .map_err(thread_error)?;
    // Fails only if the thread ended at once; then every request is refused.
    let _ = started.recv();
    Ok(())
}

/// Raises the priority of this thread. Without the privilege, the priority stays unchanged.
fn raise_priority() {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE_VALUE);
}
