//! Reads the events of a report, each with its complete stack.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use traceweir_decode::Decoder;
use traceweir_decode::stack::{Joined, Joiner, Stack, StackClaim};
use traceweir_decode::walk::Walker;
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::kernel::hook;
use traceweir_format::stack_key::Definitions;
use traceweir_format::stack_walk::StackWalk;
use traceweir_format::time::{Clock, FileTime};

use super::event::{Occurrence, ReportEvent, Transfer};
use super::events_with_stacks::EventsWithStacks;
use super::io::{FileFields, is_disk_event, is_file_event, is_network_event};
use super::io_event::{FileOperation, FileOperationKind};
use super::kernel_event::{DiskOperation, KernelEvent, read_kernel_event};
use super::trace_facts::TraceFacts;
use crate::event::{EventContext, ReadFlow, describe_record, describes_file};
use crate::filter::EventFilter;
use crate::mark::MarkSchema;
use crate::observer::ReadObserver;
use crate::schema_files::{SchemaFiles, load_traced_programs};
use crate::symbols::{SymbolOptions, TraceSymbols};
use crate::text::Moment;
use crate::traces::{ReadSummary, TraceSet, read_records};

/// The events that a report needs.
#[derive(Debug, Default)]
pub struct NeededEvents {
    /// CPU samples.
    pub samples: bool,
    /// Context switches and wakes.
    pub switches: bool,
    /// Disk operations.
    pub transfers: bool,
    /// Events of TCP and UDP.
    pub network: bool,
    /// File operations.
    pub file_operations: bool,
    /// System calls.
    pub system_calls: bool,
    /// Names or ids of events. If the list is not empty, the report gets only these events.
    pub events: Vec<String>,
}

/// A time span in nanoseconds since the first trace began.
#[derive(Clone, Copy, Debug)]
pub struct TimeWindow {
    /// The first time of the span.
    pub from: i64,
    /// The last time of the span.
    pub to: i64,
}

impl Default for TimeWindow {
    /// Returns the span that contains all times.
    fn default() -> Self {
        Self { from: i64::MIN, to: i64::MAX }
    }
}

impl TimeWindow {
    /// Returns whether the window contains a time. `to` has a resolution of 100 ns: the window
    /// includes the 99 ns after it.
    pub const fn contains(self, time: i64) -> bool {
        self.from <= time && time <= self.to.saturating_add(99)
    }

    /// Returns how many nanoseconds of a span lie in the window.
    pub fn overlap_ns(self, from: i64, to: i64) -> u64 {
        let (from, to) = (from.max(self.from), to.min(self.to));
        u64::try_from(to.saturating_sub(from)).unwrap_or(0)
    }
}

/// The traces of a report, and how to read them.
#[derive(Clone, Debug, Default)]
pub struct AnalysisOptions {
    /// Paths of traces and archives.
    pub files: Vec<PathBuf>,
    /// Number of threads, if it is not chosen by the size of the traces.
    pub threads: Option<NonZero<usize>>,
    /// Start of the time window.
    pub from: Option<Moment>,
    /// End of the time window.
    pub to: Option<Moment>,
    /// Where and how to search for symbols.
    pub symbols: SymbolOptions,
    /// Sources of event schemas, for events that are selected by name or id.
    pub schemas: SchemaFiles,
}

/// The most marks of the traces that a report keeps.
const MAX_MARKS: usize = 10_000;

/// A mark that `weir mark` or `weir relog --mark` wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceMark {
    /// Time in nanoseconds since the first trace began.
    pub time_ns: i64,
    /// The text as written, unescaped.
    pub text: String,
}

/// Opened traces, ready for a report.
pub struct Analysis {
    traces: TraceSet,
    facts: Vec<TraceFacts>,
    start: FileTime,
    /// Time of the latest event or, if later, of the end of a session.
    end: FileTime,
    needed: NeededEvents,
    filter: EventFilter,
    /// Filled only if events are selected by name or id.
    events_with_stacks: EventsWithStacks,
    marks: Vec<TraceMark>,
    /// The selected time.
    pub window: TimeWindow,
}

impl Analysis {
    /// Returns whether one of the traces was recorded on Linux.
    pub fn has_linux_trace(&self) -> bool {
        self.facts.iter().any(TraceFacts::is_linux)
    }

    /// Opens traces and reads them once for their facts.
    pub fn open(
        options: &AnalysisOptions,
        needed: NeededEvents,
        observer: Arc<dyn ReadObserver>,
    ) -> Result<Self> {
        let mut traces = TraceSet::open(&options.files, &options.schemas, observer)?;
        traces.choose_threads(options.threads);
        let observer = Arc::clone(&traces.observer);
        let start = traces.start();
        let definitions = Definitions::default();
        let mut facts: Vec<TraceFacts> = Vec::new();
        for input in &traces.inputs {
            let rate = u64::try_from(input.trace.header().perf_freq).unwrap_or(0);
            let symbols = TraceSymbols::new(options.symbols.clone(), Arc::clone(&observer));
            facts.push(TraceFacts::new(definitions.with_shared_limit(), symbols, rate));
        }
        let is_by_name = !needed.events.is_empty();
        let (mark_schema, mut marks) = (MarkSchema::new()?, Vec::new());
        // The header of a session that did not end contains no end time.
        let mut end =
            traces.inputs.iter().map(|input| input.trace.header().end_time).fold(start, FileTime::max);
        read_records(&traces.inputs, traces.loading.as_ref(), &*observer, |file, clock, record| {
            end = end.max(clock.file_time(record.time()));
            if let Some(facts) = facts.get_mut(file) {
                facts.observe(record, &mut traces.decoder);
                if needed.system_calls {
                    facts.actors.read_switch_ahead(record);
                }
            }
            if is_by_name {
                traces.decoder.observe(record);
            }
            if marks.len() < MAX_MARKS
                && let Some(text) = mark_schema.read_text(record)
            {
                marks.push(TraceMark { time_ns: time_since_ns(start, clock, record), text });
            }
            Ok(ReadFlow::Continue)
        })?;
        if is_by_name && !options.schemas.ignores_programs {
            load_traced_programs(&mut traces.decoder, &*observer);
        }
        let filter = EventFilter::for_events(&needed.events);
        let to_ns = |moment: Moment| moment.to_wall_time(start).0.saturating_sub(start.0).saturating_mul(100);
        let window =
            TimeWindow { from: options.from.map_or(i64::MIN, to_ns), to: options.to.map_or(i64::MAX, to_ns) };
        Ok(Self {
            traces,
            facts,
            start,
            end,
            needed,
            filter,
            events_with_stacks: EventsWithStacks::default(),
            marks,
            window,
        })
    }

    /// Returns the numbers of events and buffers that the sessions report as lost.
    pub fn lost_events_and_buffers(&self) -> (u64, u64) {
        let headers = self.traces.inputs.iter().map(|input| input.trace.header());
        headers.fold((0, 0), |(events, buffers), header| {
            (events + u64::from(header.events_lost), buffers + u64::from(header.buffers_lost))
        })
    }

    /// Returns the names of the kernel events that have stacks. Empty unless [`Self::read`] has
    /// read events that were selected by name or id.
    pub fn events_with_stacks(&self) -> Vec<&str> {
        self.events_with_stacks.names()
    }

    /// Returns the marks in the window, at most the first 10,000 of the traces.
    pub fn marks(&self) -> Vec<&TraceMark> {
        self.marks.iter().filter(|mark| self.window.contains(mark.time_ns)).collect()
    }

    /// Returns the recorded time in the window.
    pub fn recorded_ns(&self) -> u64 {
        let end_ns = self.end.0.saturating_sub(self.start.0).saturating_mul(100);
        self.window.overlap_ns(0, end_ns)
    }

    /// Returns the number of buffers in the truncated files and the number that their headers
    /// count; `None` if no file is truncated.
    pub fn missing_buffers(&self) -> Option<(u64, u64)> {
        let per_file = self.traces.inputs.iter().filter_map(|input| input.trace.missing_buffers());
        per_file
            .map(|(written, present)| (present, written))
            .reduce(|a, b| (a.0.saturating_add(b.0), a.1.saturating_add(b.1)))
    }

    /// Returns whether all sessions ended and recorded their losses.
    pub fn is_finalised(&self) -> bool {
        self.traces.inputs.iter().all(|input| input.trace.is_finalised())
    }

    /// Calls `on_event` for every event of the report, in time order, with its stack and the facts
    /// of its trace.
    ///
    /// Events outside the window are passed too, because a span that began before the window may
    /// reach into it.
    pub fn read(
        &mut self,
        mut on_event: impl FnMut(&mut TraceFacts, &Joined<ReportEvent>),
    ) -> Result<ReadSummary> {
        let Self { traces, facts, start, needed, filter, events_with_stacks, .. } = self;
        let is_by_name = !needed.events.is_empty();
        let TraceSet { inputs, decoder, loading, observer, .. } = traces;
        let mut converter = RecordConverter { walker: Walker::default(), needed, filter, start: *start };
        let mut joiner: Joiner<ReportEvent> = Joiner::default();
        // The time and time stamp of the last event of each trace.
        let mut ends: BTreeMap<usize, (i64, i64)> = BTreeMap::new();
        let mut deliver = |facts: &mut [TraceFacts], joined: Joined<ReportEvent>| {
            if let Some(facts) = facts.get_mut(joined.event.file) {
                on_event(facts, &joined);
            }
        };
        let reading = read_records(inputs, loading.as_ref(), &**observer, |file, clock, record| {
            let wall_time = clock.file_time(record.time());
            if converter.needed.switches && !describes_file(record) {
                ends.insert(file, (converter.time_ns(clock, record), record.time()));
            }
            if let Some(trace_facts) = facts.get_mut(file) {
                if converter.needed.system_calls {
                    trace_facts.actors.follow(record);
                }
                if let Some(stack) = StackWalk::parse(record) {
                    if is_by_name {
                        events_with_stacks.observe_stack(file, &stack);
                    }
                    joiner.attach(&stack, (file, record.cpu(), wall_time.0), &trace_facts.stacks, |_| 0);
                } else if let Some(event) =
                    converter.convert_record(file, clock, record, trace_facts, decoder)
                {
                    if is_by_name {
                        events_with_stacks.observe_event(file, record, decoder);
                    }
                    let claim = StackClaim::from_record(record, file, wall_time.0);
                    let frames = trace_facts.stacks.frames(record);
                    joiner.expect(claim, event, 0, frames.into_iter().flatten());
                } else if is_by_name {
                    events_with_stacks.observe_event(file, record, decoder);
                }
            }
            while let Some(joined) = joiner.next_ready() {
                deliver(facts, joined);
            }
            Ok(ReadFlow::Continue)
        })?;
        joiner.end();
        while let Some(joined) = joiner.next_ready() {
            deliver(facts, joined);
        }
        for (file, (time_ns, stamp)) in ends {
            let occurrence = Occurrence::TraceEnd;
            let event = ReportEvent { file, cpu: 0, pointer_size: 8, stamp, time_ns, occurrence };
            deliver(facts, Joined { event, stack: Stack::default() });
        }
        Ok(reading)
    }
}

/// Returns the time of a record, in nanoseconds since `start`.
fn time_since_ns(start: FileTime, clock: &Clock, record: &Record<'_>) -> i64 {
    let offset = clock.start.0.saturating_sub(start.0).saturating_mul(100);
    offset.saturating_add(clock.nanos_since_start(record.time()))
}

/// Converts records to events of a report.
struct RecordConverter<'a> {
    walker: Walker,
    needed: &'a NeededEvents,
    filter: &'a EventFilter,
    start: FileTime,
}

impl RecordConverter<'_> {
    /// Returns the time of a record, in nanoseconds since the first trace began.
    fn time_ns(&self, clock: &Clock, record: &Record<'_>) -> i64 {
        time_since_ns(self.start, clock, record)
    }

    /// Returns the event of a record, if the report needs it.
    fn convert_record(
        &mut self,
        file: usize,
        clock: &Clock,
        record: &Record<'_>,
        facts: &mut TraceFacts,
        decoder: &mut Decoder,
    ) -> Option<ReportEvent> {
        let occurrence = if self.needed.events.is_empty() {
            self.convert_kernel_event(record, facts, decoder)?
        } else {
            self.convert_chosen_event(file, clock, record, facts, decoder)?
        };
        let time_ns = self.time_ns(clock, record);
        let (cpu, pointer_size) = (record.cpu(), record.pointer_size());
        Some(ReportEvent { file, cpu, pointer_size, stamp: record.time(), time_ns, occurrence })
    }

    fn convert_kernel_event(
        &mut self,
        record: &Record<'_>,
        facts: &TraceFacts,
        decoder: &mut Decoder,
    ) -> Option<Occurrence> {
        let (hook, needed) = (record.hook()?, self.needed);
        let is_needed = match hook {
            hook::COMPACT_SWITCHES => return needed.switches.then_some(Occurrence::CompactSwitches),
            hook::SAMPLED_PROFILE | hook::PROFILE_START | hook::PROFILE_SET_INTERVAL | hook::PROFILE_END => {
                needed.samples
            }
            hook::CONTEXT_SWITCH | hook::READY_THREAD | hook::THREAD_END => needed.switches,
            hook::SYSCALL_ENTER | hook::SYSCALL_EXIT => needed.system_calls,
            _ => {
                needed.transfers && is_disk_event(hook)
                    || needed.network && is_network_event(hook)
                    || needed.file_operations && is_file_event(hook)
            }
        };
        if !is_needed {
            return None;
        }
        let schema = decoder.find(record).ok()?;
        let running_thread = || {
            let header_thread = Some(record.thread_id()).filter(|tid| *tid != NO_ID);
            header_thread.or_else(|| facts.actors.running(record).map(|actor| actor.tid))
        };
        Some(match read_kernel_event(&mut self.walker, record, &schema)? {
            KernelEvent::Sample { thread, address, weight, is_idle } => {
                Occurrence::Sample { thread, address, weight, is_idle }
            }
            KernelEvent::Interval(interval) => Occurrence::Interval(interval),
            KernelEvent::Switch { switch, .. } => Occurrence::Switch(switch),
            KernelEvent::Ready { thread } => Occurrence::Ready { thread },
            KernelEvent::Thread(thread) => Occurrence::ThreadEnd { thread: thread.tid },
            KernelEvent::Process(_) => return None,
            KernelEvent::Disk(operation) => Occurrence::Transfer(name_transfer(operation, record, facts)),
            KernelEvent::Network(transfer) => Occurrence::Network(transfer),
            KernelEvent::File(fields) if hook == hook::FILE_OPERATION_END => {
                Occurrence::FileEnd { irp: fields.irp, bytes: fields.transferred_bytes }
            }
            KernelEvent::File(fields) => {
                let kind = FileOperationKind::from_hook(hook)?;
                Occurrence::FileStart(name_file_operation(kind, fields, record, facts))
            }
            KernelEvent::SystemCallStart { address } => {
                Occurrence::SystemCallStart { thread: running_thread(), address }
            }
            KernelEvent::SystemCallEnd { status } => {
                Occurrence::SystemCallEnd { thread: running_thread(), status }
            }
        })
    }

    /// Converts an event that was selected by name or id, with the thread that the event concerns.
    fn convert_chosen_event(
        &mut self,
        file: usize,
        clock: &Clock,
        record: &Record<'_>,
        facts: &mut TraceFacts,
        decoder: &mut Decoder,
    ) -> Option<Occurrence> {
        let TraceFacts { actors, stacks, .. } = facts;
        let time = clock.file_time(record.time());
        let context =
            EventContext { file, clock, time, start: self.start, images: None, stacks, symbols: None };
        let event = describe_record(record, context, decoder, actors);
        if !self.filter.accepts(&event) {
            return None;
        }
        let (pid, thread) = event.concerned_ids();
        Some(Occurrence::Chosen { pid, thread })
    }
}

/// Returns a disk operation with its duration and the name of its file.
fn name_transfer(operation: DiskOperation, record: &Record<'_>, facts: &TraceFacts) -> Transfer {
    Transfer {
        disk: operation.disk,
        operation: operation.operation,
        bytes: operation.bytes,
        duration_ns: operation.duration_ns(facts.counter_hz),
        thread: operation.thread,
        pid: record.process_id(),
        file_name: operation.file_key.and_then(|key| facts.file_name(key, record.time())),
    }
}

/// Returns a file operation with the path of its file: that of the event, or the name that the trace
/// defines for the file.
fn name_file_operation(
    kind: FileOperationKind,
    fields: FileFields,
    record: &Record<'_>,
    facts: &TraceFacts,
) -> FileOperation {
    let named = |key: u64| (key != 0).then(|| facts.file_name(key, record.time())).flatten();
    let path = Some(fields.path).filter(|path| !path.is_empty()).map(Arc::from);
    FileOperation {
        kind,
        irp: fields.irp,
        thread: fields.thread,
        pid: record.process_id(),
        file_object: fields.file_object,
        requested_bytes: fields.requested_bytes,
        path: path.or_else(|| named(fields.file_key)).or_else(|| named(fields.file_object)),
    }
}
