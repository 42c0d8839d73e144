//! Converts records to activities: takes what is needed out of a decoded event, then attributes it to
//! processes and threads.
//!
//! ```text
//!   DescribedEvent ──prepare──▶ Prepared ──convert──▶ Converted: activities
//! ```
//!
//! There are two steps, because a decoded event borrows the tables that attribution needs.

mod system_call;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use traceweir_analysis::event::DescribedEvent;
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::pairs::pair_name;
use traceweir_analysis::report::{
    ContextSwitch, KernelEvent, LifeChange, ProcessEvent, ThreadEvent, Transfer, is_disk_event,
    is_network_event, read_kernel_event,
};
use traceweir_decode::walk::Walker;
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::kernel::{event_name, hook};
use traceweir_format::stack_walk::{StackWalk, is_kernel_address};

use self::system_call::SystemCall;
use super::counters::{counter_values, is_counter_event};
use super::event::{Activity, EventDetail, Sample, Switch};
use super::fields::{Fields, read_fields};
use super::lives::{MachineTime, ThreadIndex};
use super::slices::{SliceBuilder, SliceEvent, slice_event};
use super::survey::TraceContext;
use super::{ActivityTables, MissingCounts, NeededActivity};
use crate::message::MessageReader;

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
    pub(super) filter: &'r EventFilter,
    /// Whether the filters select the event. The threads of a switch are checked later.
    pub(super) is_selected: bool,
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

/// Converts records to activities.
pub(super) struct Converter {
    walker: Walker,
    messages: MessageReader,
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
            messages: MessageReader::default(),
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
        let mut fields = match &event.schema_match {
            Ok(schema) => read_fields(&mut self.walker, schema, record.pointer_size()),
            Err(reason) => {
                self.counts.undecoded.add(event, reason);
                Fields::from_raw(record.payload())
            }
        };
        if fields.is_incomplete {
            self.counts.incomplete_fields = self.counts.incomplete_fields.saturating_add(1);
        }
        let schema = event.schema_match.as_ref().ok();
        if let Some(message) = schema.and_then(|schema| self.messages.read(schema, record.pointer_size())) {
            fields.add_text(self.intern("message".to_owned()), &message);
        }
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
            keyword: descriptor.keyword,
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
                let (new_tid, old_tid) = (new, old);
                let ((new, _), (old, pid)) = (find_thread(new), find_thread(old));
                let is_accepted = |thread: Option<ThreadIndex>, tid: u32| {
                    let process = thread.and_then(|thread| tables.lives.process_of(thread));
                    let process = process.and_then(|process| tables.lives.process(process));
                    source.filter.accepts_ids(process.map_or(NO_ID, |process| process.pid), tid)
                };
                let selects_new = source.is_selected && is_accepted(new, new_tid);
                let selects_old = source.is_selected && is_accepted(old, old_tid);
                let stack_thread = None;
                let switch = Switch {
                    new,
                    new_priority,
                    selects_new,
                    old,
                    selects_old,
                    old_priority,
                    state,
                    reason,
                    stack_thread,
                };
                add(Activity::Switch(switch), None, pid, selects_new || selects_old);
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

    /// Begins or ends a slice by an event that the filters do not select, unless that ends a slice that
    /// they select: such an event is converted.
    pub(super) fn follow_pair(&mut self, event: &SliceEvent, time_ns: i64, out: &mut Vec<Converted>) {
        if event.is_start {
            return self.slices.begin_unselected(event, time_ns);
        }
        for slice in self.slices.end(event).into_iter().filter(|slice| slice.is_selected) {
            let activity = Activity::SliceEnd { slice, stop: None };
            out.push(Converted { activity, address: None, pid: NO_ID, may_have_stack: false });
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
        let slice_event = slice_event(source.record, source.machine);
        let name = match pair_name(&detail.name) {
            name if slice_event.is_none() || name == &*detail.name => Arc::clone(&detail.name),
            name => self.intern(name.to_owned()),
        };
        let mut add = |activity, may_have_stack| {
            out.push(Converted { activity, address: None, pid, may_have_stack });
        };
        match slice_event {
            Some(event) if event.is_start => {
                match self.slices.begin(&event, source.time_ns, thread, name, &detail) {
                    Some(slice) => add(Activity::SliceBegin(slice), may_have_stack),
                    None => add(Activity::Instant { thread, detail }, may_have_stack),
                }
            }
            Some(event) => {
                let mut ended = self.slices.end(&event);
                let subject = ended.pop();
                for slice in ended {
                    add(Activity::SliceEnd { slice, stop: None }, false);
                }
                let Some(subject) = subject.filter(|slice| slice.is_selected) else {
                    return add(Activity::Instant { thread, detail }, may_have_stack);
                };
                let stop = Some(Arc::new(self.stop_detail(&subject.detail, &detail)));
                out.push(Converted {
                    activity: Activity::SliceEnd { slice: subject, stop },
                    address: None,
                    pid,
                    may_have_stack,
                });
            }
            None => add(Activity::Instant { thread, detail }, may_have_stack),
        }
    }

    /// Returns the detail of a stop event without the attributes that the start event has too. Names
    /// that both events have get the prefix `stop.`, because viewers show the fields of both together.
    fn stop_detail(&mut self, start: &EventDetail, stop: &EventDetail) -> EventDetail {
        let (start_attributes, mut fields) = (start.attributes(), stop.fields.clone());
        let attributes = stop.attributes().into_iter().filter(|value| !start_attributes.contains(value));
        fields.values.extend(attributes);
        let start_values = start.fields.values.iter().chain(&start_attributes);
        let start_names: HashSet<&str> = start_values.map(|(name, _)| &**name).collect();
        for (name, _) in &mut fields.values {
            if start_names.contains(&**name) {
                *name = self.intern(format!("stop.{}", shorten_name(name)));
            }
        }
        let (provider, name) = (Arc::clone(&stop.provider), Arc::clone(&stop.name));
        EventDetail { provider, name, fields, ..EventDetail::default() }
    }
}

/// Returns whether a record says which threads run or can run. All of these are read, whatever the
/// filters select.
pub(super) fn is_scheduling(record: &Record<'_>) -> bool {
    matches!(record.hook(), Some(hook::CONTEXT_SWITCH | hook::READY_THREAD | hook::THREAD_END))
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
