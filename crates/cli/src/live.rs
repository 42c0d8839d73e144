//! Reads a live session as a stream of decoded events, and prints them soon after they arrive.
//!
//! ```text
//!   daemon ──buffers──▶ consumer ──records──▶ describe ──▶ printer ──▶ Screen
//!                                      flushed at most 10 ms after the first byte
//! ```
//!
//! A live session cannot be read ahead. An event that arrives before its schema is shown undecoded.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use traceweir::consumer::{self, Item, Lost};
use traceweir_decode::Decoder;
use traceweir_decode::actors::Actors;
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::spec::event::class;
use traceweir_format::stack_key::Definitions;
use traceweir_format::time::FileTime;

use crate::cli::SchemaArgs;
use crate::event::{DescribedEvent, EventContext, ReadFlow, describe_record};
use crate::output::BufferedOutput;
use crate::processes;
use crate::schema_files::load_traced_programs;
use crate::traces::load_schemas;

/// How long output is collected before it is written.
const FLUSH_DELAY: Duration = Duration::from_millis(10);
/// How long the flushing thread waits before it checks whether the screen still exists.
const MAX_IDLE_WAIT: Duration = Duration::from_secs(1);
/// After this time, the name of a process is read again.
const MAX_NAME_AGE: Duration = Duration::from_secs(1);
/// Maximum number of process names that are kept.
const MAX_PROCESS_NAMES: usize = 4096;

/// Calls `on_event` for every record that `accepts` returns true for, until the session ends, the
/// trace is closed or `on_event` stops.
pub(crate) fn read_events(
    trace: consumer::Trace,
    schemas: &SchemaArgs,
    mut accepts: impl FnMut(&Record<'_>, FileTime) -> bool,
    mut on_event: impl FnMut(&DescribedEvent<'_>) -> Result<ReadFlow>,
) -> Result<Lost> {
    let start = trace.header().start_time;
    let mut decoder = Decoder::new();
    load_schemas(&mut decoder, schemas)?;
    let mut actors = Actors::default();
    let mut stacks = Definitions::default();
    let mut process_names = ProcessNames::default();
    let mut lost = Lost::default();
    let mut failure = None;
    consumer::process(vec![trace], |item| {
        let event = match item {
            Item::Event(event) => event,
            Item::Lost(new_losses) => {
                lost.events = lost.events.saturating_add(new_losses.events);
                lost.buffers = lost.buffers.saturating_add(new_losses.buffers);
                return ControlFlow::Continue(());
            }
            _ => return ControlFlow::Continue(()),
        };
        stacks.observe(event.record);
        if Actors::is_informative(event.record)
            && let Ok(schema_match) = decoder.find(event.record)
        {
            actors.observe(event.record, &schema_match);
        }
        // The header of the session is not an event of a provider.
        if event.record.provider() == class::EVENT_TRACE {
            decoder.observe(event.record);
            if decoder.has_tracked() && !schemas.no_binaries {
                load_traced_programs(&mut decoder);
            }
            return ControlFlow::Continue(());
        }
        if !accepts(event.record, event.time) {
            decoder.observe(event.record);
            return ControlFlow::Continue(());
        }
        let context = EventContext {
            file: event.trace,
            clock: event.clock,
            time: event.time,
            start,
            images: None,
            symbols: None,
            stacks: &stacks,
        };
        let mut described = describe_record(event.record, context, &mut decoder, &mut actors);
        if described.process.is_none() {
            let pid = described.actor.map_or(event.record.process_id(), |actor| actor.pid);
            described.process = process_names.find(pid, Instant::now());
        }
        match on_event(&described) {
            Ok(ReadFlow::Continue) => ControlFlow::Continue(()),
            Ok(ReadFlow::Stop) => ControlFlow::Break(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    match failure {
        Some(error) => Err(error),
        None => Ok(lost),
    }
}

/// Names of running processes, for events whose session does not describe its processes.
#[derive(Default)]
struct ProcessNames {
    by_pid: HashMap<u32, ProcessName>,
}

struct ProcessName {
    read: Instant,
    /// The name of the program; `None` if there was no such process.
    name: Option<String>,
}

impl ProcessNames {
    /// Returns the name of the program that a process runs, as `/proc` had it at most
    /// [`MAX_NAME_AGE`] ago: ids are reused, and a process can start another program.
    fn find(&mut self, pid: u32, now: Instant) -> Option<&str> {
        if pid == 0 || pid == NO_ID {
            return None;
        }
        let is_fresh = |entry: &ProcessName| now.saturating_duration_since(entry.read) < MAX_NAME_AGE;
        if !self.by_pid.get(&pid).is_some_and(is_fresh) {
            if self.by_pid.len() >= MAX_PROCESS_NAMES {
                self.by_pid.clear();
            }
            let name = processes::program_of(pid);
            let name = name.and_then(|program| program.rsplit('/').next().map(str::to_owned));
            self.by_pid.insert(pid, ProcessName { read: now, name });
        }
        self.by_pid.get(&pid).and_then(|entry| entry.name.as_deref())
    }
}

/// Standard output for live events. On a terminal, each event is written at once. Otherwise, events
/// that arrive together are written together, and a single event after [`FLUSH_DELAY`].
#[derive(Clone)]
pub(crate) struct Screen {
    shared: Arc<SharedScreen>,
}

struct SharedScreen {
    state: Mutex<ScreenState>,
    output_added: Condvar,
}

struct ScreenState {
    output: BufferedOutput,
    /// The error of the last flush, until it is returned.
    failure: Option<anyhow::Error>,
}

impl Screen {
    pub(crate) fn open() -> Result<Self> {
        let state = Mutex::new(ScreenState { output: BufferedOutput::open(None)?, failure: None });
        let shared = Arc::new(SharedScreen { state, output_added: Condvar::new() });
        let weak = Arc::downgrade(&shared);
        let flush_repeatedly = move || {
            while let Some(shared) = weak.upgrade() {
                shared.flush_when_written();
            }
        };
        std::thread::Builder::new()
            .name("output".to_owned())
            .spawn(flush_repeatedly)
            .context("cannot start a thread")?;
        Ok(Self { shared })
    }

    /// Returns whether the output may have colours.
    pub(crate) fn is_colourful(&self) -> bool {
        self.shared.lock().output.is_colourful()
    }

    /// Calls `append` with the output buffer; fails if earlier output could not be written.
    pub(crate) fn write_with<T>(&self, append: impl FnOnce(&mut Vec<u8>) -> T) -> Result<T> {
        let mut state = self.shared.lock();
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        let result = append(state.output.buffer());
        state.output.flush_if_full()?;
        if !state.output.buffer().is_empty() {
            self.shared.output_added.notify_one();
        }
        Ok(result)
    }

    /// Writes the remaining output.
    pub(crate) fn flush(&self) -> Result<()> {
        let mut state = self.shared.lock();
        match state.failure.take() {
            Some(failure) => Err(failure),
            None => state.output.flush(),
        }
    }
}

impl SharedScreen {
    fn lock(&self) -> MutexGuard<'_, ScreenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for output, then for more output during [`FLUSH_DELAY`], and writes all of it.
    fn flush_when_written(&self) {
        let state = self.lock();
        let is_idle = |state: &mut ScreenState| state.output.buffer().is_empty();
        let waited = self.output_added.wait_timeout_while(state, MAX_IDLE_WAIT, is_idle);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        if waited.timed_out() {
            return;
        }
        std::thread::sleep(FLUSH_DELAY);
        let mut state = self.lock();
        if let Err(error) = state.output.flush() {
            state.output.buffer().clear();
            state.failure = Some(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_is_read_again_after_its_age() {
        let mut names = ProcessNames::default();
        let (pid, start) = (std::process::id(), Instant::now());
        let program = std::env::current_exe().unwrap();
        assert_eq!(names.find(pid, start), program.file_name().unwrap().to_str());
        names.by_pid.insert(pid, ProcessName { read: start, name: Some("old".to_owned()) });
        assert_eq!(names.find(pid, start + MAX_NAME_AGE / 2), Some("old"));
        assert_ne!(names.find(pid, start + MAX_NAME_AGE), Some("old"));
        assert_eq!(names.find(NO_ID, start), None);
        assert_eq!(names.find(0, start), None);
    }
}
