//! What a trace tells about itself, gathered by a look ahead: rundown events, definitions of stacks and names of files may stand at its end.

use std::cell::OnceCell;
use std::sync::Arc;

use traceweir_decode::Decoder;
use traceweir_decode::actors::Actors;
use traceweir_decode::stack::Stack;
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::stack_key::Definitions;

use super::functions::At;
use super::names::Names;
use super::{FunctionId, Functions, Seen};
use crate::symbols::{Options, Symbols};

/// What is known about one trace.
pub(crate) struct Known {
    pub(super) actors: Actors,
    pub(super) stacks: Definitions,
    files: Names,
    threads: Names,
    disks: Names,
    symbols: Symbols,
    is_of_linux: OnceCell<bool>,
    /// Ticks a second of the performance counter.
    pub(super) counter_rate: u64,
}

impl Known {
    pub(super) fn new(stacks: Definitions, symbols: Options, counter_rate: u64) -> Self {
        Self {
            actors: Actors::default(),
            stacks,
            files: Names::of_files(),
            threads: Names::of_threads(),
            disks: Names::of_disks(),
            symbols: Symbols::new(symbols),
            is_of_linux: OnceCell::new(),
            counter_rate,
        }
    }

    /// Learns from a record. Schemas are told to the decoder by whoever reads.
    pub(super) fn observe(&mut self, record: &Record<'_>, decoder: &mut Decoder) {
        self.symbols.observe(record);
        self.stacks.observe(record);
        let is_of_actors = Actors::is_informative(record);
        let names = [&mut self.files, &mut self.threads, &mut self.disks];
        let mut named = names.into_iter().find(|it| it.is_informative(record));
        if (is_of_actors || named.is_some())
            && let Ok(found) = decoder.find(record)
        {
            if is_of_actors {
                self.actors.observe(record, &found);
            }
            if let Some(names) = &mut named {
                names.observe(record, &found);
            }
        }
    }

    /// Whether the trace was made on Linux; to be asked after the look ahead.
    pub(crate) fn is_of_linux(&self) -> bool {
        *self.is_of_linux.get_or_init(|| self.symbols.are_of_linux())
    }

    /// The process that a thread belonged to at a time, or [`NO_ID`].
    pub(crate) fn process_of(&self, tid: u32, time: i64) -> u32 {
        self.actors.process_of(tid, time).unwrap_or(NO_ID)
    }

    /// The program of a process at a time.
    pub(crate) fn program_of(&self, pid: u32, time: i64) -> Option<&str> {
        self.actors.image_of(pid, time)
    }

    /// The file that a key meant at a time.
    pub(crate) fn file(&self, key: u64, time: i64) -> Option<Arc<str>> {
        self.files.at(key, time)
    }

    /// The name of a thread at a time.
    pub(crate) fn thread_name(&self, tid: u32, time: i64) -> Option<Arc<str>> {
        self.threads.at(u64::from(tid), time)
    }

    /// The name of a disk.
    pub(crate) fn disk_name(&self, number: u32, time: i64) -> Option<Arc<str>> {
        self.disks.at(u64::from(number), time)
    }

    /// The functions of an event's stack, outermost first; of the process `pid` unless the stack says whose it is.
    pub(crate) fn functions(
        &mut self,
        seen: &Seen,
        stack: &Stack,
        pid: u32,
        functions: &mut Functions,
        out: &mut Vec<FunctionId>,
    ) {
        let process = stack.owner.map_or(pid, |(process, _)| process);
        let Self { actors, symbols, .. } = self;
        functions.of_stack(symbols, stack, at(actors, seen, process), out);
    }

    /// The functions at one address, outermost first.
    pub(crate) fn function(
        &mut self,
        seen: &Seen,
        address: u64,
        pid: u32,
        functions: &mut Functions,
        out: &mut Vec<FunctionId>,
    ) {
        let Self { actors, symbols, .. } = self;
        let begin = out.len();
        functions.of_address(symbols, address, at(actors, seen, pid), out);
        if let Some(added) = out.get_mut(begin..) {
            added.reverse();
        }
    }
}

/// Where and when something was seen.
fn at<'a>(actors: &'a Actors, seen: &Seen, process: u32) -> At<'a> {
    let program = actors.image_of(process, seen.stamp);
    At { process, time: seen.stamp, pointer_size: seen.pointer_size, program }
}
