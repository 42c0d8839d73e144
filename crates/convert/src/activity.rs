//! The activity of traces: processes, threads, scheduling, samples, slices, instants, counters,
//! transfers and losses, in time order.
//!
//! ```text
//!   traces ──survey──▶ schemas, processes and threads, images, stacks, tasks that stop
//!     │
//!     └──main pass──▶ ActivityEvent ──▶ joined with its stack ──▶ the converter of a format
//! ```
//!
//! A1  Events are delivered in time order, each once. An event waits for its stack only if the traces
//!     contain stacks of other events.
//! A2  Every table that grows with the traces has a limit. What does not fit is counted, and
//!     [`ActivitySummary::notes`] says so.
//! A3  Nothing is guessed: an unknown thread has no process, an unknown address no function.
//! A4  Events that only describe processes, threads, images, files and stacks are not delivered. The
//!     events that refer to them have their content.

mod converter;
mod counters;
mod event;
mod fields;
mod frame_tree;
mod lives;
mod network;
mod reader;
mod runs;
mod slices;
mod stacks;
mod survey;
#[cfg(test)]
pub(crate) mod test_input;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::text::format_count;
use traceweir_analysis::traces::{ReadSummary, TraceSet};
use traceweir_analysis::undecoded::UndecodedEvents;
use traceweir_format::time::FileTime;

use crate::ConvertInput;

pub use event::{Activity, ActivityEvent, EventDetail, Loss, Sample, Slice, SliceId, SliceTrack, Switch};
pub use fields::{FieldValue, Fields};
pub(crate) use frame_tree::{FrameTree, NodeIndex};
pub use lives::{Life, Lives, Process, ProcessIndex, Thread, ThreadIndex};
pub use network::{network_bytes, network_fields, network_name};
pub(crate) use runs::{Run, RunEnd, ThreadRuns, scheduler_id};
pub use stacks::{CodeMapping, MappingIndex, StackFrame, StackResolver};
pub(crate) use survey::number_machines;

/// Ids of further machines are moved by this distance, so that they differ from those of the first.
const MACHINE_ID_DISTANCE: u32 = 1 << 24;

/// What events refer to.
pub struct ActivityTables {
    /// The processes and threads.
    pub lives: Lives,
    /// The files of code in stacks.
    pub stacks: StackResolver,
    /// The traces.
    pub traces: Vec<TraceFacts>,
    /// When the first trace starts.
    pub start: FileTime,
    /// The time from boot to the start of the first trace, if its header contains it.
    pub boot_to_start_ns: Option<i64>,
    /// When the time span that the filters select begins, in nanoseconds since the first trace began.
    pub from_ns: i64,
    /// Number of the first processor of each machine in outputs that cannot tell machines apart.
    first_cpus: Vec<u32>,
}

/// Facts about a trace.
#[derive(Clone, Debug)]
pub struct TraceFacts {
    /// Name of the trace.
    pub name: Arc<str>,
    /// Number of the machine.
    pub machine: u16,
    /// Whether the trace was recorded on Linux.
    pub is_linux: bool,
    /// Number of processors.
    pub processors: u32,
}

impl ActivityTables {
    /// Returns nanoseconds since 1970 at the start of the first trace.
    pub fn start_unix_ns(&self) -> i64 {
        i64::try_from(self.start.unix_ns()).unwrap_or_default()
    }

    /// Returns the id of a process or thread in outputs that cannot tell machines apart: the id itself
    /// on the first machine.
    pub const fn output_id(machine: u16, id: u32) -> u32 {
        if machine == 0 {
            return id & i32::MAX.cast_unsigned();
        }
        (machine as u32).wrapping_mul(MACHINE_ID_DISTANCE).wrapping_add(id) & i32::MAX.cast_unsigned()
    }

    /// The first id for what is no process or thread of a trace; [`Self::output_id`] returns lower ids.
    pub const FIRST_MADE_UP_ID: u32 = 1 << 31;

    /// Returns the number of a processor in outputs that cannot tell machines apart.
    pub fn output_cpu(&self, machine: u16, cpu: u16) -> u32 {
        self.first_cpus.get(usize::from(machine)).copied().unwrap_or(0).saturating_add(cpu.into())
    }

    /// Returns the output id of the process of a thread and that of the thread; `None` for unknown
    /// ones.
    pub fn output_ids(&self, thread: Option<ThreadIndex>) -> (Option<u32>, Option<u32>) {
        let Some(thread) = thread.and_then(|index| self.lives.thread(index)) else { return (None, None) };
        let process = thread.process.and_then(|index| self.lives.process(index));
        let pid = process.map(|process| Self::output_id(process.machine, process.pid));
        (pid, Some(Self::output_id(thread.machine, thread.tid)))
    }

    /// Returns whether the traces come from several machines.
    pub fn has_several_machines(&self) -> bool {
        self.traces.iter().any(|trace| trace.machine > 0)
    }
}

/// The result of reading the activity.
pub struct ActivitySummary {
    /// Number of events that met the criteria.
    pub events: u64,
    /// Number of lost events and lost buffers, if the sessions report them.
    pub lost: (u64, u64),
    /// What is missing or uncertain, one line each.
    pub notes: Vec<String>,
    /// Damage and losses.
    pub reading: ReadSummary,
    /// Time of the last event, in nanoseconds since the first trace began.
    pub end_ns: i64,
    /// What the events refer to.
    pub tables: ActivityTables,
}

/// What a converter needs of the activity. Reading less takes less time.
#[derive(Clone, Copy, Debug)]
pub struct NeededActivity {
    /// Whether slices, instants and counters are needed, with their fields.
    pub events: bool,
    /// Whether stacks of slices and instants are needed. Samples and switches always have theirs.
    pub event_stacks: bool,
}

/// Reads traces, and calls `on_event` for each event in time order.
pub fn read_activity(
    input: &ConvertInput,
    needed: NeededActivity,
    mut on_event: impl FnMut(&ActivityTables, &ActivityEvent) -> Result<()>,
) -> Result<ActivitySummary> {
    let mut traces = TraceSet::open(&input.files, &input.schemas, Arc::clone(&input.observer))?;
    traces.choose_threads(None);
    let filter = EventFilter::new(&input.criteria, traces.start());
    let mut survey = survey::survey_traces(input, &mut traces)?;
    if let (Some(from), _) = filter.time_span() {
        survey.tables.from_ns = survey::ns_between(traces.start(), from).max(0);
    }
    let mut lost = (0_u64, 0_u64);
    for trace in &traces.inputs {
        let header = trace.trace.header();
        lost.0 = lost.0.saturating_add(header.events_lost.into());
        lost.1 = lost.1.saturating_add(header.buffers_lost.into());
    }
    let done = reader::read_events(&mut traces, survey, &filter, needed, &mut on_event)?;
    let reader::EventsRead { events, end_ns, reading, counts, tables } = done;
    let mut notes = Vec::new();
    counts.describe(&mut notes);
    Ok(ActivitySummary { events, lost, notes, reading, end_ns, tables })
}

/// Counts what the stream of events lacks.
#[derive(Debug, Default)]
struct MissingCounts {
    compact_switches: u64,
    incomplete_fields: u64,
    undecoded: UndecodedEvents,
    over_limit: u64,
    forced_ends: u64,
    has_several_machines: bool,
}

impl MissingCounts {
    fn describe(&self, notes: &mut Vec<String>) {
        if self.compact_switches > 0 {
            let count = format_count(self.compact_switches, "batch");
            notes.push(format!("context switches in the compact form were not decoded: {count}"));
        }
        if self.incomplete_fields > 0 {
            let count = format_count(self.incomplete_fields, "event");
            notes.push(format!("fields are missing, because they are damaged or too many: {count}"));
        }
        notes.extend(self.undecoded.describe());
        if self.over_limit > 0 {
            let count = format_count(self.over_limit, "event");
            notes.push(format!("there are too many processes or threads; without one: {count}"));
        }
        if self.forced_ends > 0 {
            let count = format_count(self.forced_ends, "activity");
            notes.push(format!("ended early, because the activity around them ended: {count}"));
        }
        if self.has_several_machines {
            notes.push(format!(
                "the traces are of several machines: ids of processes and threads of each further machine are moved by {MACHINE_ID_DISTANCE}"
            ));
        }
    }
}
