//! Converts records to activities: takes what is needed out of a decoded event, then attributes it to
//! processes and threads.
//!
//! ```text
//!   DescribedEvent ──prepare──▶ Prepared ──convert──▶ Converted: activities
//! ```
//!
//! There are two steps, because a decoded event borrows the tables that attribution needs.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_analysis::event::DescribedEvent;
use traceweir_analysis::report::{
    ContextSwitch, KernelEvent, LifeChange, ProcessEvent, ThreadEvent, Transfer, is_disk_event,
    is_network_event, read_kernel_event,
};
use traceweir_decode::walk::Walker;
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::kernel::{event_name, hook};
use traceweir_format::stack_walk::{StackWalk, is_kernel_address};

use super::counters::{counter_values, is_counter_event};
use super::event::{Activity, EventDetail, Sample, Switch};
use super::fields::{FieldValue, Fields, read_fields};
use super::lives::MachineTime;
use super::slices::{SliceBuilder, slice_event, system_call_event};
use super::survey::TraceContext;
use super::{ActivityTables, MissingCounts, NeededActivity};

/// The most bytes of the name of a provider or an event.
const MAX_NAME_BYTES: usize = 1024;
/// The most names of providers and events without a schema to keep.
const MAX_NAMES: usize = 1 << 14;

/// A record with its trace and time.
#[derive(Clone, Copy)]
pub(super) struct Source<'r, 'b> {
    pub(super) file: usize,
    pub(super) record: &'r Record<'b>,
    pub(super) machine: u16,
    pub(super) time_ns: i64,
}

impl Source<'_, '_> {
    fn at(&self) -> MachineTime {
        MachineTime { machine: self.machine, time_ns: self.time_ns }
    }
}

/// An activity that a record means.
pub(super) struct Converted {
    pub(super) activity: Activity,
    /// The instruction address of a sample.
    pub(super) address: Option<u64>,
    /// The process of the stack, unless the stack names its owner.
    pub(super) pid: u32,
    pub(super) may_have_stack: bool,
}

/// The content of a record, before it is attributed.
pub(super) enum Prepared {
    /// A kernel event, with the process and thread that it concerns.
    Kernel((u32, u32), KernelEvent),
    Event {
        ids: (u32, u32),
        detail: EventDetail,
        is_counter: bool,
    },
    Nothing,
}

/// The start of a system call with its address, or the end with its result.
#[derive(Clone, Copy)]
enum SystemCall {
    Start(u64),
    End(u32),
}

/// Converts records to activities.
pub(super) struct Converter {
    walker: Walker,
    pub(super) slices: SliceBuilder,
    /// Names of providers and events that no schema contains.
    names: HashMap<String, Arc<str>>,
    /// The thread on each processor of each machine.
    running: HashMap<(u16, u16), u32>,
    /// The current sampling interval of each trace.
    intervals: HashMap<usize, u64>,
    needed: NeededActivity,
    pub(super) counts: MissingCounts,
}

impl Converter {
    pub(super) fn new(slices: SliceBuilder, needed: NeededActivity) -> Self {
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
    pub(super) fn prepare(&mut self, event: &DescribedEvent<'_>) -> Prepared {
        let record = &event.record;
        let ids = event.concerned_ids();
        let (Some(hook), Ok(schema)) = (record.hook(), &event.schema_match) else {
            return self.prepare_event(event, ids);
        };
        if is_only_fact(hook) {
            return Prepared::Nothing;
        }
        let is_read = match hook {
            hook::COMPACT_SWITCHES => {
                self.counts.compact_switches = self.counts.compact_switches.saturating_add(1);
                return Prepared::Nothing;
            }
            hook::CONTEXT_SWITCH
            | hook::READY_THREAD
            | hook::SAMPLED_PROFILE
            | hook::PROFILE_START
            | hook::PROFILE_SET_INTERVAL
            | hook::PROCESS_START
            | hook::PROCESS_END
            | hook::THREAD_START
            | hook::THREAD_END => true,
            _ if !self.needed.events => return Prepared::Nothing,
            hook::SYSCALL_ENTER | hook::SYSCALL_EXIT => true,
            _ => is_disk_event(hook) || is_network_event(hook),
        };
        let kernel_event = is_read.then(|| read_kernel_event(&mut self.walker, record, schema)).flatten();
        kernel_event.map_or_else(|| self.prepare_event(event, ids), |event| Prepared::Kernel(ids, event))
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
            Some(name) if name.len() <= MAX_NAME_BYTES => name,
            Some(name) => shorten_name(&name),
            None if record.hook().is_some() => self.intern(event_name(&record.provider(), descriptor.opcode)),
            None => self.intern(format!("event {}", descriptor.id)),
        };
        let provider = match schema.and_then(|schema| schema.prepared.schema.names.provider.clone()) {
            Some(provider) if provider.len() <= MAX_NAME_BYTES => provider,
            Some(provider) => shorten_name(&provider),
            None => match event.provider {
                Some(provider) => self.intern(shorten_name(provider).to_string()),
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
    pub(super) fn convert(
        &mut self,
        prepared: Prepared,
        source: Source<'_, '_>,
        context: &mut TraceContext,
        tables: &mut ActivityTables,
        out: &mut Vec<Converted>,
    ) {
        match prepared {
            Prepared::Nothing => {}
            Prepared::Kernel(ids, event) => {
                self.convert_kernel_event(ids, event, source, context, tables, out);
            }
            Prepared::Event { ids, detail, is_counter } => {
                let values = if is_counter { counter_values(&detail) } else { Vec::new() };
                if values.is_empty() {
                    return self.convert_event(ids, detail, source, tables, out);
                }
                let process = tables.lives.find_or_add_process(source.at(), ids.0);
                let activity = Activity::Counters { process, values };
                out.push(Converted { activity, address: None, pid: NO_ID, may_have_stack: false });
            }
        }
    }

    fn convert_kernel_event(
        &mut self,
        ids: (u32, u32),
        event: KernelEvent,
        source: Source<'_, '_>,
        context: &mut TraceContext,
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
        match event {
            KernelEvent::Switch { switch, new_priority, old_priority } => {
                let ContextSwitch { new, old, state, reason, .. } = switch;
                self.running.insert((source.machine, source.record.cpu()), new);
                let ((new, _), (old, pid)) = (find_thread(new), find_thread(old));
                let stack_thread = None;
                let switch = Switch { new, new_priority, old, old_priority, state, reason, stack_thread };
                add(Activity::Switch(switch), None, pid, true);
            }
            KernelEvent::Ready { thread } => {
                // The header names the thread that wakes.
                let waker = match source.record.thread_id() {
                    NO_ID => self.running.get(&(source.machine, source.record.cpu())).copied(),
                    waker => Some(waker),
                };
                let waker = waker.filter(|waker| *waker != 0).and_then(|waker| find_thread(waker).0);
                add(Activity::Wake { thread: find_thread(thread).0, waker }, None, NO_ID, false);
            }
            KernelEvent::Sample { thread, address, weight, is_idle } => {
                let interval_ns = self.intervals.get(&source.file).copied().or(context.interval_ns);
                let is_kernel = is_kernel_address(address, source.record.pointer_size());
                let (thread, pid) = find_thread(thread);
                let sample = Sample { thread, weight, interval_ns, is_kernel, is_idle };
                add(Activity::Sample(sample), Some(address).filter(|_| !is_idle), pid, !is_idle);
            }
            KernelEvent::Interval(interval) => {
                self.intervals.insert(source.file, interval.saturating_mul(100));
            }
            KernelEvent::Process(ProcessEvent { change, pid, .. }) => {
                if let Some(process) = tables.lives.find_or_add_process(at, pid) {
                    let is_start = change == LifeChange::Start;
                    let new = if is_start { Activity::ProcessStart } else { Activity::ProcessEnd };
                    add(new(process), None, pid, false);
                }
            }
            KernelEvent::Thread(ThreadEvent { change, tid, pid, .. }) => {
                if let Some(thread) = tables.lives.find_or_add_thread(at, tid, pid) {
                    let is_start = change == LifeChange::Start;
                    let new = if is_start { Activity::ThreadStart } else { Activity::ThreadEnd };
                    add(new(thread), None, NO_ID, false);
                }
            }
            KernelEvent::Disk(disk) => {
                let transfer = Transfer {
                    disk: disk.disk,
                    operation: disk.operation,
                    bytes: disk.bytes,
                    duration_ns: disk.duration_ns(context.counter_hz),
                    thread: disk.thread,
                    pid: source.record.process_id(),
                    file_name: None,
                };
                let (thread, pid) = find_thread(disk.thread.unwrap_or_else(|| source.record.thread_id()));
                add(Activity::Disk { thread, transfer }, None, pid, self.needed.event_stacks);
            }
            KernelEvent::Network(transfer) => {
                let pid = transfer.pid.unwrap_or(NO_ID);
                let process = tables.lives.find_or_add_process(at, pid);
                add(Activity::Network { process, transfer }, None, pid, self.needed.event_stacks);
            }
            KernelEvent::SystemCallStart { address } => {
                self.convert_system_call(ids, SystemCall::Start(address), source, context, tables, out);
            }
            KernelEvent::SystemCallEnd { status } => {
                self.convert_system_call(ids, SystemCall::End(status), source, context, tables, out);
            }
            KernelEvent::File(_) => {}
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
        match slice_event(source.record, source.machine) {
            Some(event) if event.is_start => {
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

    /// Begins or ends the slice of a system call.
    fn convert_system_call(
        &mut self,
        ids: (u32, u32),
        call: SystemCall,
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
        let (machine, provider) = (source.machine, source.record.provider());
        // A call that did not return, such as the end of a thread, ends with the next one.
        let stop = system_call_event(machine, tid, provider, false);
        let mut ended = self.slices.end(&stop);
        let field = |name: &str, value| vec![(Arc::from(name), value)];
        if let Some(slice) = ended.pop() {
            for inner in ended {
                add(Activity::SliceEnd { slice: inner, stop: None });
            }
            let stop = match call {
                SystemCall::Start(_) => None,
                SystemCall::End(status) => {
                    let fields = Fields::from_values(field("Status", FieldValue::Unsigned(status.into())));
                    Some(Arc::new(EventDetail { fields, ..(*slice.detail).clone() }))
                }
            };
            add(Activity::SliceEnd { slice, stop });
        }
        let SystemCall::Start(address) = call else { return };
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
        let start = system_call_event(machine, tid, provider, true);
        if let Some(slice) = self.slices.begin(&start, source.time_ns, Some(thread), &Arc::new(detail)) {
            add(Activity::SliceBegin(slice));
        }
    }
}

/// Returns the start of a name that is too long.
fn shorten_name(name: &str) -> Arc<str> {
    let end = (0..=MAX_NAME_BYTES.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    name.get(..end.unwrap_or(0)).unwrap_or_default().into()
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
