//! Reads the events of a report, each with its complete stack.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use traceweir_decode::Decoder;
use traceweir_decode::stack::{Joined, Joiner, Stack, StackClaim};
use traceweir_decode::walk::Walker;
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;
use traceweir_format::stack_key::Definitions;
use traceweir_format::stack_walk::StackWalk;
use traceweir_format::time::{Clock, FileTime};

use super::event::{Occurrence, ReportEvent, Transfer};
use super::events_with_stacks::EventsWithStacks;
use super::fields::read_numbers;
use super::io::{
    convert_file_event, convert_network_event, convert_system_call, is_disk_event, is_file_event,
    is_network_event, is_system_call_event,
};
use super::scheduler::ContextSwitch;
use super::trace_facts::TraceFacts;
use crate::event::{EventContext, ReadFlow, describe_record, describes_file};
use crate::filter::EventFilter;
use crate::observer::ReadObserver;
use crate::schema_files::{SchemaFiles, load_traced_programs};
use crate::symbols::{SymbolOptions, TraceSymbols};
use crate::text::Moment;
use crate::traces::{ReadSummary, TraceSet, read_records};

/// Bits of a sample's `Flags` field: the sample was taken in a DPC or an ISR.
const IN_INTERRUPT: u64 = 3;
/// The profile source of the sampling timer.
const TIMER_SOURCE: u64 = 0;

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
        let offset = clock.start.0.saturating_sub(self.start.0).saturating_mul(100);
        offset.saturating_add(clock.nanos_since_start(record.time()))
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
        let hook = record.hook()?;
        let needed = self.needed;
        match hook {
            hook::SAMPLED_PROFILE | hook::PROFILE_START | hook::PROFILE_SET_INTERVAL | hook::PROFILE_END
                if needed.samples =>
            {
                self.convert_sample(hook, record, decoder)
            }
            hook::COMPACT_SWITCHES if needed.switches => Some(Occurrence::CompactSwitches),
            hook::CONTEXT_SWITCH | hook::READY_THREAD | hook::THREAD_END if needed.switches => {
                self.convert_switch(hook, record, decoder)
            }
            _ if needed.transfers && is_disk_event(hook) => {
                self.convert_transfer(hook, record, facts, decoder)
            }
            _ if needed.network && is_network_event(hook) => {
                convert_network_event(&mut self.walker, hook, record, decoder)
            }
            _ if needed.file_operations && is_file_event(hook) => {
                convert_file_event(&mut self.walker, hook, record, facts, decoder)
            }
            _ if needed.system_calls && is_system_call_event(hook) => {
                convert_system_call(&mut self.walker, hook, record, facts, decoder)
            }
            _ => None,
        }
    }

    fn convert_sample(
        &mut self,
        hook: u16,
        record: &Record<'_>,
        decoder: &mut Decoder,
    ) -> Option<Occurrence> {
        let schema = decoder.find(record).ok()?;
        if hook != hook::SAMPLED_PROFILE {
            let [source, interval] =
                read_numbers(&mut self.walker, record, &schema, ["Source", "NewInterval"]);
            return interval
                .filter(|interval| source == Some(TIMER_SOURCE) && *interval > 0)
                .map(Occurrence::Interval);
        }
        let names = ["InstructionPointer", "ThreadId", "Count", "Flags"];
        let [address, thread, count, flags] = read_numbers(&mut self.walker, record, &schema, names);
        let thread = u32::try_from(thread?).ok()?;
        let is_idle = thread == 0 && flags.unwrap_or(0) & IN_INTERRUPT == 0;
        Some(Occurrence::Sample { thread, address: address?, weight: count.unwrap_or(1).max(1), is_idle })
    }

    fn convert_switch(
        &mut self,
        hook: u16,
        record: &Record<'_>,
        decoder: &mut Decoder,
    ) -> Option<Occurrence> {
        let schema = decoder.find(record).ok()?;
        if hook == hook::READY_THREAD {
            let [thread] = read_numbers(&mut self.walker, record, &schema, ["ThreadId"]);
            return Some(Occurrence::Ready { thread: u32::try_from(thread?).ok()? });
        }
        if hook == hook::THREAD_END {
            let [thread] = read_numbers(&mut self.walker, record, &schema, ["TThreadId"]);
            return Some(Occurrence::ThreadEnd { thread: u32::try_from(thread?).ok()? });
        }
        let names = ["NewThreadId", "OldThreadId", "OldThreadState", "OldThreadWaitReason"];
        let [new, old, state, reason] = read_numbers(&mut self.walker, record, &schema, names);
        let to_u8 = |number: Option<u64>| u8::try_from(number?).ok();
        Some(Occurrence::Switch(ContextSwitch {
            cpu: record.cpu(),
            new: u32::try_from(new?).ok()?,
            old: u32::try_from(old?).ok()?,
            state: to_u8(state)?,
            reason: to_u8(reason)?,
        }))
    }

    fn convert_transfer(
        &mut self,
        hook: u16,
        record: &Record<'_>,
        facts: &TraceFacts,
        decoder: &mut Decoder,
    ) -> Option<Occurrence> {
        let schema = decoder.find(record).ok()?;
        let names = ["DiskNumber", "TransferSize", "HighResResponseTime", "IssuingThreadId", "FileObject"];
        let [disk, bytes, ticks, thread, key] = read_numbers(&mut self.walker, record, &schema, names);
        let operation = match hook {
            hook::DISK_READ | hook::OPTICAL_READ => "read",
            hook::DISK_WRITE | hook::OPTICAL_WRITE => "write",
            _ => "flush",
        };
        let to_nanoseconds = |ticks: u64| {
            let rate = u128::from(facts.counter_hz);
            let product = u128::from(ticks) * 1_000_000_000;
            product.checked_div(rate).map(|nanoseconds| u64::try_from(nanoseconds).unwrap_or(u64::MAX))
        };
        Some(Occurrence::Transfer(Transfer {
            disk: u32::try_from(disk?).ok()?,
            operation,
            bytes: bytes.unwrap_or(0),
            duration_ns: ticks.and_then(to_nanoseconds),
            thread: thread.and_then(|thread| u32::try_from(thread).ok()),
            pid: record.process_id(),
            file_name: key.and_then(|key| facts.file_name(key, record.time())),
        }))
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
        let header_ids = (record.process_id(), record.thread_id());
        let (pid, thread) = event.actor.map_or(header_ids, |actor| (actor.pid, actor.tid));
        Some(Occurrence::Chosen { pid, thread })
    }
}
