//! Names, threads, symbols and stack definitions of a trace. A first pass over the trace gathers
//! them, because the events that contain them may be at the end of the trace.

use std::cell::OnceCell;
use std::sync::Arc;

use traceweir_decode::Decoder;
use traceweir_decode::actors::Actors;
use traceweir_decode::stack::Stack;
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::stack_key::Definitions;

use super::functions::CodeLocation;
use super::names::TraceNames;
use super::{FunctionId, FunctionTable, ReportEvent};
use crate::symbols::TraceSymbols;

pub struct TraceFacts {
    pub(super) actors: Actors,
    /// Definitions of stack keys.
    pub(super) stacks: Definitions,
    files: TraceNames,
    threads: TraceNames,
    disks: TraceNames,
    symbols: TraceSymbols,
    is_linux: OnceCell<bool>,
    /// Frequency of the performance counter, in Hz.
    pub(super) counter_hz: u64,
}

impl TraceFacts {
    pub(super) fn new(stacks: Definitions, symbols: TraceSymbols, counter_hz: u64) -> Self {
        Self {
            actors: Actors::default(),
            stacks,
            files: TraceNames::for_files(),
            threads: TraceNames::for_threads(),
            disks: TraceNames::for_disks(),
            symbols,
            is_linux: OnceCell::new(),
            counter_hz,
        }
    }

    /// Gathers the facts that a record contains. Schemas in records are not learned here: a caller
    /// that needs them also calls [`Decoder::observe`].
    pub(super) fn observe(&mut self, record: &Record<'_>, decoder: &mut Decoder) {
        self.symbols.observe(record);
        self.stacks.observe(record);
        let is_actor_event = Actors::is_informative(record);
        let names = [&mut self.files, &mut self.threads, &mut self.disks];
        let mut matching = names.into_iter().find(|names| names.is_informative(record));
        if (is_actor_event || matching.is_some())
            && let Ok(schema) = decoder.find(record)
        {
            if is_actor_event {
                self.actors.observe(record, &schema);
            }
            if let Some(names) = &mut matching {
                names.observe(record, &schema);
            }
        }
    }

    /// Returns whether the trace names files of code; valid after the first pass.
    pub fn has_images(&self) -> bool {
        self.symbols.has_images()
    }

    /// Returns whether the trace was recorded on Linux; valid after the first pass.
    pub fn is_linux(&self) -> bool {
        *self.is_linux.get_or_init(|| self.symbols.is_linux())
    }

    /// Returns the process that a thread belonged to at a time, or [`NO_ID`].
    pub fn process_of(&self, tid: u32, time: i64) -> u32 {
        self.actors.process_of(tid, time).unwrap_or(NO_ID)
    }

    /// Returns the program of a process at a time.
    pub fn program_of(&self, pid: u32, time: i64) -> Option<&str> {
        self.actors.image_of(pid, time)
    }

    /// Returns the file that a key stood for at a time.
    pub fn file_name(&self, key: u64, time: i64) -> Option<Arc<str>> {
        self.files.name_at(key, time)
    }

    pub fn thread_name(&self, tid: u32, time: i64) -> Option<Arc<str>> {
        self.threads.name_at(u64::from(tid), time)
    }

    pub fn disk_name(&self, number: u32, time: i64) -> Option<Arc<str>> {
        self.disks.name_at(u64::from(number), time)
    }

    /// Appends the functions of an event's stack, outermost first. The process is `pid`, unless the
    /// stack names its owner.
    pub fn resolve_stack(
        &mut self,
        event: &ReportEvent,
        stack: &Stack,
        pid: u32,
        functions: &mut FunctionTable,
        out: &mut Vec<FunctionId>,
    ) {
        let process = stack.owner.map_or(pid, |(process, _)| process);
        let Self { actors, symbols, .. } = self;
        functions.resolve_stack(symbols, stack, code_location(actors, event, process), out);
    }

    /// Appends the functions at one address, outermost first.
    pub fn resolve_address(
        &mut self,
        event: &ReportEvent,
        address: u64,
        pid: u32,
        functions: &mut FunctionTable,
        out: &mut Vec<FunctionId>,
    ) {
        let Self { actors, symbols, .. } = self;
        let begin = out.len();
        functions.resolve_address(symbols, address, code_location(actors, event, pid), out);
        if let Some(added) = out.get_mut(begin..) {
            added.reverse();
        }
    }
}

/// Returns the process and time of an event for resolving addresses.
fn code_location<'a>(actors: &'a Actors, event: &ReportEvent, process: u32) -> CodeLocation<'a> {
    let program = actors.image_of(process, event.stamp);
    CodeLocation { process, time: event.stamp, pointer_size: event.pointer_size, program }
}
