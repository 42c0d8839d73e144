//! The main pass: converts records to events of the stream, and joins them with their stacks.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::event::{DescribedEvent, EventContext, ReadFlow, describe_record, describes_file};
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::grep::Grep;
use traceweir_analysis::report::{
    Occurrence, Transfer, convert_network_event, is_disk_event, is_network_event,
};
use traceweir_analysis::traces::{ReadSummary, TraceSet, read_records};
use traceweir_decode::Decoder;
use traceweir_decode::format::Style;
use traceweir_decode::schema::Field;
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::stack::{Joined, Joiner, Stack, StackClaim};
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::kernel::{event_name, hook};
use traceweir_format::stack_walk::{StackWalk, is_kernel_address};
use traceweir_format::time::Clock;

use super::event::{Activity, ActivityEvent, EventDetail, Loss, Sample, Switch};
use super::fields::{FieldValue, Fields, read_fields};
use super::lives::{MachineTime, ThreadIndex};
use super::slices::{SliceBuilder, SliceEvent};
use super::stacks::CodeContext;
use super::survey::{Survey, TraceContext, read_life_fields, time_of};
use super::{ActivityTables, MissingCounts, NeededActivity};

/// Bits of a sample's `Flags` field: the sample was taken in a DPC or an ISR.
const IN_INTERRUPT: u64 = 3;
/// The profile source of the sampling timer.
const TIMER_SOURCE: u64 = 0;
/// The most values of one event of counters.
const MAX_COUNTERS: usize = 64;
/// The most names of providers and events without a schema to keep.
const MAX_NAMES: usize = 1 << 14;

/// An event that waits for its stack.
#[derive(Debug)]
struct Pending {
    time_ns: i64,
    machine: u16,
    cpu: u16,
    code: CodeContext,
    /// The instruction address of a sample.
    address: Option<u64>,
    activity: Activity,
}

/// A loss whose time has not come.
struct PendingLoss {
    time_ns: i64,
    machine: u16,
    loss: Loss,
}

/// The result of the main pass.
pub(super) struct EventsRead {
    /// Number of events that passed the filter.
    pub(super) events: u64,
    /// Time of the last event.
    pub(super) end_ns: i64,
    pub(super) reading: ReadSummary,
    pub(super) counts: MissingCounts,
    pub(super) tables: ActivityTables,
}

/// Reads the events that pass the filter, and counts what is missing.
pub(super) fn read_events(
    traces: &mut TraceSet,
    survey: Survey,
    filter: &EventFilter,
    needed: NeededActivity,
    on_event: &mut dyn FnMut(&ActivityTables, &ActivityEvent) -> Result<()>,
) -> Result<EventsRead> {
    let start = traces.start();
    let TraceSet { inputs, decoder, loading, observer, .. } = traces;
    let Survey { mut contexts, mut tables, tasks, has_stack_events } = survey;
    let mut joiner: Joiner<Pending> = Joiner::default();
    if !has_stack_events {
        joiner.end();
    }
    let mut losses = pending_losses(&contexts, inputs.iter().map(|input| input.trace.clock()), &tables);
    let mut converter = Converter::new(SliceBuilder::new(tasks), needed);
    let mut grep = Grep::new(filter, Style::default());
    let mut converted: Vec<Converted> = Vec::new();
    let mut now_ns = 0_i64;
    let mut events = 0_u64;
    let reading = read_records(inputs, loading.as_ref(), &**observer, |file, clock, record| {
        let Some(context) = contexts.get_mut(file) else { return Ok(ReadFlow::Continue) };
        if filter.head.is_some_and(|head| events >= head) {
            return Ok(ReadFlow::Stop);
        }
        let wall_time = clock.file_time(record.time());
        now_ns = time_of(record, clock, context.offset_ns).max(now_ns);
        let source = Source { file, record, machine: context.machine, time_ns: now_ns };
        let claim = StackClaim::from_record(record, file, wall_time.0);
        while let Some(PendingLoss { machine, loss, .. }) = losses.pop_if(|loss| loss.time_ns <= now_ns) {
            let mut pending = source.pending(Activity::Loss(loss));
            pending.machine = machine;
            joiner.add_without_stack(claim, pending, 0);
        }
        if let Some(stack) = StackWalk::parse(record) {
            joiner.attach(&stack, (file, record.cpu(), wall_time.0), &context.stacks, |_| 0);
        }
        if filter.accepts_header(record, wall_time) {
            let (images, symbols, stacks) = (None, None, &context.stacks);
            let event_context = EventContext { file, clock, time: wall_time, start, images, symbols, stacks };
            let event = describe_record(record, event_context, decoder, &mut context.actors);
            if filter.accepts(&event) && grep.accepts(&event) && !describes_file(record) {
                events = events.saturating_add(1);
                let prepared = converter.prepare(&event);
                converter.convert(prepared, source, context, decoder, &mut tables, &mut converted);
            }
        } else {
            context.actors.follow(record);
        }
        for Converted { activity, address, pid, may_have_stack } in converted.drain(..) {
            let bytes = memory_bytes(&activity);
            let mut pending = source.pending(activity);
            (pending.code.pid, pending.address) = (pid, address);
            if may_have_stack {
                let frames = context.stacks.frames(record);
                joiner.expect(claim, pending, bytes, frames.into_iter().flatten());
            } else {
                joiner.add_without_stack(claim, pending, bytes);
            }
        }
        while let Some(joined) = joiner.next_ready() {
            deliver(joined, &mut contexts, &mut tables, on_event)?;
        }
        Ok(ReadFlow::Continue)
    })?;
    joiner.end();
    while let Some(joined) = joiner.next_ready() {
        deliver(joined, &mut contexts, &mut tables, on_event)?;
    }
    let mut deliver_last = |machine, activity| {
        let (time_ns, cpu, stack) = (now_ns, 0, Vec::new());
        on_event(&tables, &ActivityEvent { time_ns, machine, cpu, stack, activity })
    };
    for slice in converter.slices.end_all() {
        deliver_last(0, Activity::SliceEnd { slice, stop: None })?;
    }
    for (input, context) in inputs.iter().zip(&contexts) {
        let header = input.trace.header();
        if header.events_lost > 0 || header.buffers_lost > 0 {
            let (events, buffers) = (Some(header.events_lost.into()), Some(header.buffers_lost.into()));
            let trace = input.name.as_str().into();
            deliver_last(context.machine, Activity::Loss(Loss { trace, cpu: None, events, buffers }))?;
        }
    }
    let Converter { slices, mut counts, .. } = converter;
    counts.forced_ends = slices.forced_ends;
    counts.over_limit = tables.lives.over_limit;
    counts.has_several_machines = tables.has_several_machines();
    Ok(EventsRead { events, end_ns: now_ns, reading, counts, tables })
}

/// Returns the losses of single processors, the latest first.
fn pending_losses<'c>(
    contexts: &[TraceContext],
    clocks: impl Iterator<Item = &'c Clock>,
    tables: &ActivityTables,
) -> Vec<PendingLoss> {
    let mut losses = Vec::new();
    for ((context, clock), facts) in contexts.iter().zip(clocks).zip(&tables.traces) {
        for (cpu, stamp) in &context.losses {
            let time_ns = context.offset_ns.saturating_add(clock.nanos_since_start(*stamp));
            let (trace, events, buffers) = (Arc::clone(&facts.name), None, None);
            let loss = Loss { trace, cpu: Some(*cpu), events, buffers };
            losses.push(PendingLoss { time_ns, machine: context.machine, loss });
        }
    }
    losses.sort_by_key(|loss| std::cmp::Reverse(loss.time_ns));
    losses
}

/// Returns the memory that an activity holds outside of its own struct.
fn memory_bytes(activity: &Activity) -> usize {
    match activity {
        Activity::Instant { detail, .. } => detail_bytes(detail),
        Activity::SliceBegin(slice) => detail_bytes(&slice.detail),
        Activity::SliceEnd { stop: Some(stop), .. } => detail_bytes(stop),
        Activity::Counters { values, .. } => values.len().saturating_mul(size_of::<(Arc<str>, f64)>()),
        _ => 0,
    }
}

fn detail_bytes(detail: &EventDetail) -> usize {
    size_of::<EventDetail>().saturating_add(detail.fields.memory_bytes())
}

/// Resolves the stack of an event, and delivers the event.
fn deliver(
    joined: Joined<Pending>,
    contexts: &mut [TraceContext],
    tables: &mut ActivityTables,
    on_event: &mut dyn FnMut(&ActivityTables, &ActivityEvent) -> Result<()>,
) -> Result<()> {
    let Joined { event, stack } = joined;
    let Pending { time_ns, machine, cpu, code: mut code_context, address, mut activity } = event;
    let has_frames = !stack.is_empty() || address.is_some();
    let mut frames = Vec::new();
    if has_frames && let Some(context) = contexts.get_mut(code_context.file) {
        if let Activity::Switch(switch) = &mut activity {
            switch.stack_thread = stack_thread(&stack, switch, tables);
        }
        if code_context.pid == NO_ID {
            code_context.pid = stack.owner.map_or(NO_ID, |(process, _)| process);
        }
        frames = tables.stacks.resolve(&mut context.code, code_context, &stack, address);
    }
    on_event(tables, &ActivityEvent { time_ns, machine, cpu, stack: frames, activity })
}

/// Returns the thread of a switch that owns a stack.
fn stack_thread(stack: &Stack, switch: &Switch, tables: &ActivityTables) -> Option<ThreadIndex> {
    let (_, owner) = stack.owner?;
    [switch.old, switch.new]
        .into_iter()
        .flatten()
        .find(|index| tables.lives.thread(*index).is_some_and(|thread| thread.tid == owner && owner != 0))
}

/// A record with its trace and time.
#[derive(Clone, Copy)]
struct Source<'r, 'b> {
    file: usize,
    record: &'r Record<'b>,
    machine: u16,
    time_ns: i64,
}

impl Source<'_, '_> {
    fn at(&self) -> MachineTime {
        MachineTime { machine: self.machine, time_ns: self.time_ns }
    }

    fn pending(&self, activity: Activity) -> Pending {
        let (stamp, pointer_size) = (self.record.time(), self.record.pointer_size());
        let code = CodeContext { file: self.file, pid: NO_ID, stamp, pointer_size };
        let (machine, cpu) = (self.machine, self.record.cpu());
        Pending { time_ns: self.time_ns, machine, cpu, code, address: None, activity }
    }
}

/// An activity that a record means.
struct Converted {
    activity: Activity,
    address: Option<u64>,
    /// The process of the stack, unless the stack names its owner.
    pid: u32,
    may_have_stack: bool,
}

/// The content of a record, before it is attributed.
enum Prepared {
    Switch { new: u32, old: u32, priorities: [i8; 2], state: u8, reason: u8 },
    Ready { thread: u32 },
    Sample { thread: u32, address: u64, weight: u64, is_idle: bool },
    Interval(u64),
    Process { pid: u32, is_start: bool },
    Thread { tid: u32, pid: Option<u32>, is_start: bool },
    Disk { transfer: Transfer, ticks: Option<u64> },
    Network,
    SystemCall { ids: (u32, u32), address: Option<u64>, status: Option<u64> },
    Event { ids: (u32, u32), detail: EventDetail, is_counter: bool },
    Nothing,
}

/// Converts records to activities.
struct Converter {
    walker: Walker,
    slices: SliceBuilder,
    /// Names of providers and events that no schema contains.
    names: HashMap<String, Arc<str>>,
    /// The thread on each processor of each machine.
    running: HashMap<(u16, u16), u32>,
    /// The current sampling interval of each trace.
    intervals: HashMap<usize, u64>,
    needed: NeededActivity,
    counts: MissingCounts,
}

impl Converter {
    fn new(slices: SliceBuilder, needed: NeededActivity) -> Self {
        Self {
            walker: Walker::default(),
            slices,
            names: HashMap::new(),
            running: HashMap::new(),
            intervals: HashMap::new(),
            needed,
            counts: MissingCounts::default(),
        }
    }

    /// Takes what is needed out of an event.
    fn prepare(&mut self, event: &DescribedEvent<'_>) -> Prepared {
        let record = &event.record;
        let header_ids = (record.process_id(), record.thread_id());
        let ids = event.actor.map_or(header_ids, |actor| (actor.pid, actor.tid));
        let (Some(hook), Ok(schema)) = (record.hook(), &event.schema_match) else {
            return self.prepare_event(event, ids);
        };
        if is_only_fact(hook) {
            return Prepared::Nothing;
        }
        let prepared = match hook {
            hook::CONTEXT_SWITCH => self.prepare_switch(record, schema),
            hook::READY_THREAD => {
                let [thread] = read_numbers(&mut self.walker, record, schema, ["ThreadId"]);
                to_u32(thread).map(|thread| Prepared::Ready { thread })
            }
            hook::COMPACT_SWITCHES => {
                self.counts.compact_switches = self.counts.compact_switches.saturating_add(1);
                Some(Prepared::Nothing)
            }
            hook::SAMPLED_PROFILE => self.prepare_sample(record, schema),
            hook::PROFILE_START | hook::PROFILE_SET_INTERVAL => {
                read_interval_fields(record, schema, &mut self.walker).map(Prepared::Interval)
            }
            hook::PROCESS_START | hook::PROCESS_END | hook::THREAD_START | hook::THREAD_END => {
                let fields = read_life_fields(&mut self.walker, record, schema);
                let is_start = matches!(hook, hook::PROCESS_START | hook::THREAD_START);
                if matches!(hook, hook::PROCESS_START | hook::PROCESS_END) {
                    fields.process.pid.map(|pid| Prepared::Process { pid, is_start })
                } else {
                    let pid = fields.thread.pid;
                    fields.thread.tid.map(|tid| Prepared::Thread { tid, pid, is_start })
                }
            }
            _ if !self.needed.events => Some(Prepared::Nothing),
            hook::SYSCALL_ENTER | hook::SYSCALL_EXIT => {
                let names = ["SysCallAddress", "SysCallNtStatus"];
                let [address, status] = read_numbers(&mut self.walker, record, schema, names);
                Some(Prepared::SystemCall { ids, address, status })
            }
            _ if is_disk_event(hook) => self.prepare_disk(hook, record, schema),
            _ if is_network_event(hook) => Some(Prepared::Network),
            _ => None,
        };
        prepared.unwrap_or_else(|| self.prepare_event(event, ids))
    }

    fn prepare_switch(&mut self, record: &Record<'_>, schema: &SchemaMatch<'_, '_>) -> Option<Prepared> {
        let names = [
            "NewThreadId",
            "OldThreadId",
            "OldThreadState",
            "OldThreadWaitReason",
            "NewThreadPriority",
            "OldThreadPriority",
        ];
        let [new, old, state, reason, new_priority, old_priority] =
            read_numbers(&mut self.walker, record, schema, names);
        let to_u8 = |number: Option<u64>| u8::try_from(number?).ok();
        let to_priority = |number: Option<u64>| to_u8(number).map_or(0, u8::cast_signed);
        Some(Prepared::Switch {
            new: to_u32(new)?,
            old: to_u32(old)?,
            priorities: [to_priority(new_priority), to_priority(old_priority)],
            state: to_u8(state)?,
            reason: to_u8(reason)?,
        })
    }

    fn prepare_sample(&mut self, record: &Record<'_>, schema: &SchemaMatch<'_, '_>) -> Option<Prepared> {
        let names = ["InstructionPointer", "ThreadId", "Count", "Flags"];
        let [address, thread, count, flags] = read_numbers(&mut self.walker, record, schema, names);
        let thread = to_u32(thread)?;
        let is_idle = thread == 0 && flags.unwrap_or(0) & IN_INTERRUPT == 0;
        Some(Prepared::Sample { thread, address: address?, weight: count.unwrap_or(1).max(1), is_idle })
    }

    fn prepare_disk(
        &mut self,
        hook: u16,
        record: &Record<'_>,
        schema: &SchemaMatch<'_, '_>,
    ) -> Option<Prepared> {
        let names = ["DiskNumber", "TransferSize", "HighResResponseTime", "IssuingThreadId"];
        let [disk, bytes, ticks, thread] = read_numbers(&mut self.walker, record, schema, names);
        let operation = match hook {
            hook::DISK_READ | hook::OPTICAL_READ => "read",
            hook::DISK_WRITE | hook::OPTICAL_WRITE => "write",
            _ => "flush",
        };
        let transfer = Transfer {
            disk: to_u32(disk)?,
            operation,
            bytes: bytes.unwrap_or(0),
            duration_ns: None,
            thread: to_u32(thread),
            pid: record.process_id(),
            file_name: None,
        };
        Some(Prepared::Disk { transfer, ticks })
    }

    /// Prepares an event with all its names and fields.
    fn prepare_event(&mut self, event: &DescribedEvent<'_>, ids: (u32, u32)) -> Prepared {
        if !self.needed.events || StackWalk::is_stack_walk(&event.record) {
            return Prepared::Nothing;
        }
        let record = &event.record;
        let descriptor = record.descriptor();
        let fields = match &event.schema_match {
            Ok(schema) => read_fields(&mut self.walker, schema, record.pointer_size()),
            Err(_) => Fields::from_raw(record.payload()),
        };
        if fields.is_incomplete {
            self.counts.incomplete_fields = self.counts.incomplete_fields.saturating_add(1);
        }
        let schema = event.schema_match.as_ref().ok();
        let name = match schema.and_then(|schema| schema.prepared.event_name.clone()) {
            Some(name) => name,
            None if record.hook().is_some() => self.intern(event_name(&record.provider(), descriptor.opcode)),
            None => self.intern(format!("event {}", descriptor.id)),
        };
        let provider = match schema.and_then(|schema| schema.prepared.schema.names.provider.clone()) {
            Some(provider) => provider,
            None => match event.provider {
                Some(provider) => self.intern(provider.to_owned()),
                None => self.intern(record.provider().to_string()),
            },
        };
        let is_kernel = record.hook().is_some();
        let is_counter = is_counter_event(is_kernel, &name);
        let detail = EventDetail {
            provider,
            name,
            level: descriptor.level,
            id: if is_kernel { descriptor.opcode.into() } else { descriptor.id },
            activity: record.activity().filter(|id| !id.is_null()),
            related_activity: record.items().related_activity().filter(|id| !id.is_null()),
            fields,
        };
        Prepared::Event { ids, detail, is_counter }
    }

    fn intern(&mut self, name: String) -> Arc<str> {
        if let Some(known) = self.names.get(&name) {
            return Arc::clone(known);
        }
        let interned: Arc<str> = name.as_str().into();
        if self.names.len() < MAX_NAMES {
            self.names.insert(name, Arc::clone(&interned));
        }
        interned
    }

    /// Attributes the content of a record to processes and threads, and adds what it means to `out`.
    fn convert(
        &mut self,
        prepared: Prepared,
        source: Source<'_, '_>,
        context: &mut TraceContext,
        decoder: &mut Decoder,
        tables: &mut ActivityTables,
        out: &mut Vec<Converted>,
    ) {
        let (at, stamp) = (source.at(), source.record.time());
        let mut add = |activity, address, pid, may_have_stack| {
            out.push(Converted { activity, address, pid, may_have_stack });
        };
        let actors = &context.actors;
        let mut find_thread = |tid: u32| {
            let pid = actors.process_of(tid, stamp);
            (tables.lives.find_or_add_thread(at, tid, pid), pid.unwrap_or(NO_ID))
        };
        match prepared {
            Prepared::Nothing => {}
            Prepared::Switch { new, old, priorities: [new_priority, old_priority], state, reason } => {
                self.running.insert((source.machine, source.record.cpu()), new);
                let ((new, _), (old, pid)) = (find_thread(new), find_thread(old));
                let stack_thread = None;
                let switch = Switch { new, new_priority, old, old_priority, state, reason, stack_thread };
                add(Activity::Switch(switch), None, pid, true);
            }
            Prepared::Ready { thread } => {
                // The header names the thread that wakes.
                let waker = match source.record.thread_id() {
                    NO_ID => self.running.get(&(source.machine, source.record.cpu())).copied(),
                    waker => Some(waker),
                };
                let waker = waker.filter(|waker| *waker != 0).and_then(|waker| find_thread(waker).0);
                add(Activity::Wake { thread: find_thread(thread).0, waker }, None, NO_ID, false);
            }
            Prepared::Sample { thread, address, weight, is_idle } => {
                let interval_ns = self.intervals.get(&source.file).copied().or(context.interval_ns);
                let is_kernel = is_kernel_address(address, source.record.pointer_size());
                let (thread, pid) = find_thread(thread);
                let sample = Sample { thread, weight, interval_ns, is_kernel, is_idle };
                add(Activity::Sample(sample), Some(address).filter(|_| !is_idle), pid, !is_idle);
            }
            Prepared::Interval(interval_ns) => {
                self.intervals.insert(source.file, interval_ns);
            }
            Prepared::Process { pid, is_start } => {
                if let Some(process) = tables.lives.find_or_add_process(at, pid) {
                    let is_start = if is_start { Activity::ProcessStart } else { Activity::ProcessEnd };
                    add(is_start(process), None, pid, false);
                }
            }
            Prepared::Thread { tid, pid, is_start } => {
                if let Some(thread) = tables.lives.find_or_add_thread(at, tid, pid) {
                    let is_start = if is_start { Activity::ThreadStart } else { Activity::ThreadEnd };
                    add(is_start(thread), None, NO_ID, false);
                }
            }
            Prepared::Disk { mut transfer, ticks } => {
                let to_ns = |ticks: u64| {
                    let product = u128::from(ticks).saturating_mul(1_000_000_000);
                    product.checked_div(context.counter_hz.into())
                };
                let duration_ns = ticks.and_then(to_ns);
                transfer.duration_ns = duration_ns.map(|ns| u64::try_from(ns).unwrap_or(u64::MAX));
                let tid = transfer.thread.unwrap_or_else(|| source.record.thread_id());
                let (thread, pid) = find_thread(tid);
                add(Activity::Disk { thread, transfer }, None, pid, self.needed.event_stacks);
            }
            Prepared::Network => {
                let hook = source.record.hook().unwrap_or(0);
                let network = convert_network_event(&mut self.walker, hook, source.record, decoder);
                if let Some(Occurrence::Network(transfer)) = network {
                    let pid = transfer.pid.unwrap_or(NO_ID);
                    let process = tables.lives.find_or_add_process(at, pid);
                    add(Activity::Network { process, transfer }, None, pid, self.needed.event_stacks);
                }
            }
            Prepared::SystemCall { ids, address, status } => {
                self.convert_system_call(ids, (address, status), source, context, tables, out);
            }
            Prepared::Event { ids, detail, is_counter } => {
                if is_counter {
                    let values = counter_values(&detail);
                    if !values.is_empty() {
                        let process = tables.lives.find_or_add_process(at, ids.0);
                        add(Activity::Counters { process, values }, None, NO_ID, false);
                        return;
                    }
                }
                self.convert_event(ids, detail, source, tables, out);
            }
        }
    }

    fn convert_event(
        &mut self,
        ids: (u32, u32),
        detail: EventDetail,
        source: Source<'_, '_>,
        tables: &mut ActivityTables,
        out: &mut Vec<Converted>,
    ) {
        let (pid, tid) = ids;
        let thread = tables.lives.find_or_add_thread(source.at(), tid, Some(pid).filter(|pid| *pid != NO_ID));
        let detail = Arc::new(detail);
        let may_have_stack = self.needed.event_stacks;
        let mut add = |activity, may_have_stack| {
            out.push(Converted { activity, address: None, pid, may_have_stack });
        };
        let slice_event = SliceEvent::from_record(source.record, source.machine);
        match slice_event {
            Some(event) if event.is_start() => {
                match self.slices.begin(&event, source.time_ns, thread, &detail) {
                    Some(slice) => add(Activity::SliceBegin(slice), may_have_stack),
                    None => add(Activity::Instant { thread, detail }, may_have_stack),
                }
            }
            Some(event) => {
                let mut ended = self.slices.end(&event);
                let Some(subject) = ended.pop() else {
                    return add(Activity::Instant { thread, detail }, may_have_stack);
                };
                for slice in ended {
                    add(Activity::SliceEnd { slice, stop: None }, false);
                }
                add(Activity::SliceEnd { slice: subject, stop: Some(detail) }, may_have_stack);
            }
            None => add(Activity::Instant { thread, detail }, may_have_stack),
        }
    }

    /// Begins or ends the slice of a system call, which has an address or a status.
    fn convert_system_call(
        &mut self,
        ids: (u32, u32),
        (address, status): (Option<u64>, Option<u64>),
        source: Source<'_, '_>,
        context: &mut TraceContext,
        tables: &mut ActivityTables,
        out: &mut Vec<Converted>,
    ) {
        let (pid, tid) = ids;
        let known_pid = Some(pid).filter(|pid| *pid != NO_ID);
        let Some(thread) = tables.lives.find_or_add_thread(source.at(), tid, known_pid) else { return };
        let mut add = |activity| {
            out.push(Converted { activity, address: None, pid, may_have_stack: false });
        };
        let key = (source.machine, tid);
        let provider = source.record.provider();
        // A call that did not return, such as the end of a thread, ends with the next one.
        let stop = SliceEvent::for_system_call(key, provider, false);
        let mut ended = self.slices.end(&stop);
        let is_end = status.is_some();
        let field = |name: &str, value| vec![(Arc::from(name), value)];
        if let Some(slice) = ended.pop() {
            for inner in ended {
                add(Activity::SliceEnd { slice: inner, stop: None });
            }
            let detail = status.map(|status| {
                let values = field("Status", FieldValue::Unsigned(status));
                let fields = Fields::from_values(values);
                Arc::new(EventDetail { fields, ..(*slice.detail).clone() })
            });
            add(Activity::SliceEnd { slice, stop: detail });
        }
        if is_end {
            return;
        }
        let address = address.unwrap_or(0);
        let function = context.code.symbols.resolve(pid, address, source.record.time());
        let name = function.first().and_then(|function| function.function.clone());
        let name = name.unwrap_or_else(|| self.intern("system call".to_owned()));
        let values = field("Address", FieldValue::Text(format!("{address:#x}").into()));
        let detail = EventDetail {
            provider: self.intern("System calls".to_owned()),
            name,
            fields: Fields::from_values(values),
            ..EventDetail::default()
        };
        let start = SliceEvent::for_system_call(key, provider, true);
        if let Some(slice) = self.slices.begin(&start, source.time_ns, Some(thread), &Arc::new(detail)) {
            add(Activity::SliceBegin(slice));
        }
    }
}

/// Returns whether an event only describes what other events refer to (A4).
const fn is_only_fact(hook: u16) -> bool {
    matches!(
        hook,
        hook::PROCESS_DC_START
            | hook::PROCESS_DC_END
            | hook::PROCESS_DEFUNCT
            | hook::THREAD_DC_START
            | hook::THREAD_DC_END
            | hook::THREAD_SET_NAME
            | hook::IMAGE_DC_START
            | hook::IMAGE_DC_END
            | hook::KERNEL_BASE
            | hook::FILE_NAME
            | hook::FILE_NAME_RUNDOWN
            | hook::STACK_KEY_CREATE
            | hook::STACK_KEY_DELETE
            | hook::STACK_KEY_RUNDOWN
            | hook::STACK_WALK
            | hook::STACK_KEY_KERNEL
            | hook::STACK_KEY_USER
            | hook::RUNDOWN_COMPLETE
            | hook::GROUP_MASKS
            | hook::END_GROUP_MASKS
    )
}

/// Returns whether the numbers of an event are values of counters, by its name.
fn is_counter_event(is_kernel: bool, name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    if is_kernel {
        return name.starts_with("Process/PerfCtr") || last.starts_with("MemInfo");
    }
    last.ends_with("Counters") || last.ends_with("Counter") || last.starts_with("GCHeapStats")
}

/// Returns names and values of the counters in an event: the counter of an `EventCounters` event, or
/// all numbers that are not ids.
fn counter_values(detail: &EventDetail) -> Vec<(Arc<str>, f64)> {
    let event = detail.name.rsplit('/').next().unwrap_or(&detail.name);
    let payload = match detail.fields.get("Payload") {
        Some(FieldValue::Struct(members)) => members.as_slice(),
        _ => &detail.fields.values,
    };
    let find = |name: &str| payload.iter().find(|(key, _)| **key == *name).map(|(_, value)| value);
    if let Some(FieldValue::Text(name)) = find("Name") {
        let value = ["Mean", "Increment", "Value"].into_iter().find_map(|name| find(name)?.as_f64());
        return value.map(|value| (Arc::from(&**name), value)).into_iter().collect();
    }
    let is_id = |name: &str| name.ends_with("Id") || name.ends_with("ID") || name == "Count";
    payload
        .iter()
        .filter(|(name, _)| !is_id(name))
        .filter_map(|(name, value)| Some((format!("{event} {name}").into(), value.as_f64()?)))
        .take(MAX_COUNTERS)
        .collect()
}

fn to_u32(number: Option<u64>) -> Option<u32> {
    u32::try_from(number?).ok()
}

/// Numbers by the names of their fields.
struct NumberFields<const N: usize> {
    names: [&'static str; N],
    values: [Option<u64>; N],
}

impl<'p, const N: usize> Visitor<'p> for NumberFields<N> {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        for (name, slot) in self.names.iter().zip(&mut self.values) {
            if *field.name == **name && slot.is_none() {
                *slot = value.bits();
            }
        }
    }
}

/// Returns the bits of the fields with these names; `None` for a field that is missing or not a
/// number.
fn read_numbers<const N: usize>(
    walker: &mut Walker,
    record: &Record<'_>,
    schema: &SchemaMatch<'_, '_>,
    names: [&'static str; N],
) -> [Option<u64>; N] {
    let mut fields = NumberFields { names, values: [None; N] };
    // If the payload ends early, the fields before its end have been read.
    let _ = walker.walk(&schema.prepared.schema, schema.payload, record.pointer_size(), &mut fields);
    fields.values
}

fn read_interval_fields(
    record: &Record<'_>,
    schema: &SchemaMatch<'_, '_>,
    walker: &mut Walker,
) -> Option<u64> {
    let [source, interval] = read_numbers(walker, record, schema, ["Source", "NewInterval"]);
    let units = interval.filter(|interval| source == Some(TIMER_SOURCE) && *interval > 0)?;
    Some(units.saturating_mul(100))
}

/// Returns the sampling interval of the timer that an event sets, in nanoseconds.
pub(super) fn read_interval(record: &Record<'_>, decoder: &mut Decoder, walker: &mut Walker) -> Option<u64> {
    let schema = decoder.find(record).ok()?;
    read_interval_fields(record, &schema, walker)
}
