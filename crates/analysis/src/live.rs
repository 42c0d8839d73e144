//! Reads a live session as a stream of decoded events.
//!
//! A live session cannot be read ahead. An event that arrives before its schema is shown undecoded.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::Result;
use traceweir::consumer::{self, Item, Lost};
use traceweir_decode::Decoder;
use traceweir_decode::actors::Actors;
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::spec::event::class;
use traceweir_format::stack_key::Definitions;
use traceweir_format::time::FileTime;

use crate::event::{DescribedEvent, EventContext, ReadFlow, describe_record};
use crate::observer::ReadObserver;
use crate::processes;
use crate::schema_files::{SchemaFiles, load_schemas, load_traced_programs};

/// After this time, the name of a process is read again.
const MAX_NAME_AGE: Duration = Duration::from_secs(1);
/// Maximum number of process names that are kept.
const MAX_PROCESS_NAMES: usize = 4096;

/// What the events of a live session have described so far.
#[derive(Default)]
pub struct LiveContext {
    /// Schemas.
    pub decoder: Decoder,
    /// Processes and threads.
    pub actors: Actors,
    /// Call stacks that are stored once.
    pub stacks: Definitions,
}

impl LiveContext {
    /// Learns from an event that describes others.
    pub fn observe(&mut self, record: &Record<'_>) {
        self.stacks.observe(record);
        if Actors::is_informative(record)
            && let Ok(schema_match) = self.decoder.find(record)
        {
            self.actors.observe(record, &schema_match);
        }
        self.decoder.observe(record);
    }
}

/// Calls `on_record` for every event, until the session ends, the trace is closed or `on_record`
/// stops. The context has learned from the event already.
pub fn read_records(
    trace: consumer::Trace,
    schemas: &SchemaFiles,
    observer: &dyn ReadObserver,
    mut on_record: impl FnMut(&consumer::Event<'_>, &mut LiveContext) -> Result<ReadFlow>,
) -> Result<Lost> {
    let mut context = LiveContext::default();
    load_schemas(&mut context.decoder, schemas, observer)?;
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
        context.observe(event.record);
        // The header of the session is not an event of a provider.
        if event.record.provider() == class::EVENT_TRACE {
            if context.decoder.has_tracked() && !schemas.ignores_programs {
                load_traced_programs(&mut context.decoder, observer);
            }
            return ControlFlow::Continue(());
        }
        match on_record(&event, &mut context) {
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

/// Calls `on_event` for every record that `accepts` returns true for, until the session ends, the
/// trace is closed or `on_event` stops.
pub fn read_events(
    trace: consumer::Trace,
    schemas: &SchemaFiles,
    observer: &dyn ReadObserver,
    mut accepts: impl FnMut(&Record<'_>, FileTime) -> bool,
    mut on_event: impl FnMut(&DescribedEvent<'_>) -> Result<ReadFlow>,
) -> Result<Lost> {
    let start = trace.header().start_time;
    let mut process_names = ProcessNames::default();
    read_records(trace, schemas, observer, |event, context| {
        if !accepts(event.record, event.time) {
            return Ok(ReadFlow::Continue);
        }
        let LiveContext { decoder, actors, stacks } = context;
        let context = EventContext {
            file: event.trace,
            clock: event.clock,
            time: event.time,
            start,
            images: None,
            symbols: None,
            stacks,
        };
        let mut described = describe_record(event.record, context, decoder, actors);
        if described.process.is_none() {
            let pid = described.actor.map_or(event.record.process_id(), |actor| actor.pid);
            described.process = process_names.find(pid, Instant::now());
        }
        on_event(&described)
    })
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
