//! The main pass: converts records to events of the stream, and joins them with their stacks.

use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::event::{DescribedEvent, EventContext, ReadFlow, describe_record, describes_file};
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::selection::EventSelection;
use traceweir_analysis::traces::{ReadSummary, TraceSet, read_records};
use traceweir_decode::stack::{Joined, Joiner, Stack, StackClaim};
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::kernel::hook;
use traceweir_format::stack_walk::StackWalk;
use traceweir_format::time::Clock;

use super::converter::{Converted, Converter, Source, is_scheduling};
use super::event::{Activity, ActivityEvent, Loss, Switch};
use super::lives::ThreadIndex;
use super::slices::{SliceBuilder, slice_event};
use super::stacks::CodeContext;
use super::survey::{Survey, TraceContext, ns_between, time_of};
use super::{ActivityTables, MissingCounts, NeededActivity};

/// An event that waits for its stack.
#[derive(Debug)]
struct Pending {
    time_ns: i64,
    machine: u16,
    cpu: u16,
    code: CodeContext,
    /// The instruction address of a sample.
    address: Option<u64>,
    is_selected: bool,
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
    /// Time of the last event, or the end of the time span that the filters select if it is earlier.
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
    let names_filter = filter.without_ids();
    let mut selection = EventSelection::new(&names_filter);
    let mut converted: Vec<Converted> = Vec::new();
    let (from, to) = filter.time_span();
    let limit_ns = to.map_or(i64::MAX, |to| ns_between(start, to));
    // The time of the last record, and that of the last one that became an event.
    let (mut now_ns, mut last_ns) = (0_i64, 0_i64);
    let mut events = 0_u64;
    // Whether the filters select no more events, because there were as many as they allow.
    let mut is_full = false;
    let reading = read_records(inputs, loading.as_ref(), &**observer, |file, clock, record| {
        let Some(context) = contexts.get_mut(file) else { return Ok(ReadFlow::Continue) };
        let wall_time = clock.file_time(record.time());
        now_ns = time_of(record, clock, context.offset_ns).max(now_ns);
        let is_inside = filter.accepts_time(wall_time);
        // A run or a wait may begin before the time span. It is selected as if it began with the span.
        let shown_time = from.map_or(wall_time, |from| wall_time.max(from));
        let is_followed = is_scheduling(record) && filter.accepts_time(shown_time);
        // Slices pair whatever the filters select (S5 of `slices`).
        let pair = slice_event(record, context.machine).filter(|_| needed.events && is_inside);
        let is_call = needed.events && is_inside && is_system_call(record);
        let accepts_header = (is_inside || is_followed) && filter.accepts_header(record, shown_time);
        let mut source =
            Source { file, record, machine: context.machine, time_ns: now_ns, filter, is_selected: true };
        let claim = StackClaim::from_record(record, file, wall_time.0);
        while let Some(PendingLoss { time_ns, machine, loss }) = losses.pop_if(|loss| loss.time_ns <= now_ns)
        {
            if !(tables.from_ns..=limit_ns).contains(&time_ns) {
                continue;
            }
            let mut pending = new_pending(&source, Activity::Loss(loss));
            (pending.machine, pending.time_ns) = (machine, now_ns.min(limit_ns).max(last_ns));
            joiner.add_without_stack(claim, pending, 0);
        }
        if let Some(stack) = StackWalk::parse(record) {
            joiner.attach(&stack, (file, record.cpu(), wall_time.0), &context.stacks, |_| 0);
        }
        let ends_slice =
            pair.as_ref().is_some_and(|pair| !pair.is_start && converter.slices.ends_selected(pair));
        if accepts_header || is_followed || is_call || ends_slice {
            let (images, symbols, stacks) = (None, None, &context.stacks);
            let event_context = EventContext { file, clock, time: wall_time, start, images, symbols, stacks };
            let event = describe_record(record, event_context, decoder, &mut context.actors);
            let is_switch = record.hook() == Some(hook::CONTEXT_SWITCH);
            source.is_selected = accepts_header
                && !is_full
                && !describes_file(record)
                && selection.accepts(&event)
                && (is_switch || accepts_actor(&event, &source, &tables));
            let is_needed = (is_followed || is_call) && event.schema_match.is_ok();
            if source.is_selected || is_needed || ends_slice {
                last_ns = now_ns;
                let prepared = converter.prepare(&event);
                converter.convert(prepared, source, context, &mut tables, &mut converted);
                if let Some(Activity::Switch(switch)) = converted.first().map(|first| &first.activity) {
                    // A switch is an event of both threads.
                    source.is_selected &= switch.selects_new || switch.selects_old;
                }
                source.is_selected &= is_inside;
                if source.is_selected {
                    events = events.saturating_add(1);
                    is_full = selection.count_record(record) == ReadFlow::Stop;
                } else {
                    converted.retain(|converted| is_followed_activity(&converted.activity));
                }
            } else if let Some(pair) = &pair {
                converter.follow_pair(pair, now_ns, &mut converted);
            }
        } else {
            context.actors.follow(record);
            if let Some(pair) = &pair {
                converter.follow_pair(pair, now_ns, &mut converted);
            }
        }
        for Converted { activity, address, pid, may_have_stack } in converted.drain(..) {
            let bytes = memory_bytes(&activity);
            let mut pending = new_pending(&source, activity);
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
        // The stops of the selected starts follow the last selected event.
        let is_done = is_full && !converter.slices.has_selected();
        Ok(if is_done { ReadFlow::Stop } else { ReadFlow::Continue })
    })?;
    joiner.end();
    while let Some(joined) = joiner.next_ready() {
        deliver(joined, &mut contexts, &mut tables, on_event)?;
    }
    let end_ns = now_ns.min(limit_ns).max(last_ns);
    let mut deliver_last = |machine, activity| {
        let (time_ns, cpu, is_selected, stack) = (end_ns, 0, true, Vec::new());
        on_event(&tables, &ActivityEvent { time_ns, machine, cpu, is_selected, stack, activity })
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
    Ok(EventsRead { events, end_ns, reading, counts, tables })
}

/// Returns whether the process and thread of an event pass. The process of a thread that the trace does
/// not describe is that of its stacks.
fn accepts_actor(event: &DescribedEvent<'_>, source: &Source<'_, '_>, tables: &ActivityTables) -> bool {
    if source.filter.accepts_actor(event) {
        return true;
    }
    let (NO_ID, tid) = event.concerned_ids() else { return false };
    let thread = tables.lives.find_thread(source.machine, tid, source.time_ns);
    let process = thread.and_then(|thread| tables.lives.process(tables.lives.process_of(thread)?));
    process.is_some_and(|process| source.filter.accepts_ids(process.pid, tid))
}

/// Returns whether an activity is delivered although the filters do not select its event: it is needed
/// to follow threads, or ends a slice.
const fn is_followed_activity(activity: &Activity) -> bool {
    matches!(
        activity,
        Activity::Switch(_) | Activity::Wake { .. } | Activity::ThreadEnd(_) | Activity::SliceEnd { .. }
    )
}

/// Returns whether a record is the start or the end of a system call.
fn is_system_call(record: &Record<'_>) -> bool {
    matches!(record.hook(), Some(hook::SYSCALL_ENTER | hook::SYSCALL_EXIT))
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
        Activity::Instant { detail, .. } => detail.memory_bytes(),
        Activity::SliceBegin(slice) => slice.detail.memory_bytes(),
        Activity::SliceEnd { stop: Some(stop), .. } => stop.memory_bytes(),
        Activity::Counters { values, .. } => values.len().saturating_mul(size_of::<(Arc<str>, f64)>()),
        _ => 0,
    }
}

/// Resolves the stack of an event, and delivers the event.
fn deliver(
    joined: Joined<Pending>,
    contexts: &mut [TraceContext],
    tables: &mut ActivityTables,
    on_event: &mut dyn FnMut(&ActivityTables, &ActivityEvent) -> Result<()>,
) -> Result<()> {
    let Joined { event, stack } = joined;
    let Pending { time_ns, machine, cpu, code: mut code_context, address, is_selected, mut activity } = event;
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
    on_event(tables, &ActivityEvent { time_ns, machine, cpu, is_selected, stack: frames, activity })
}

/// Returns the selected thread of a switch that owns a stack.
fn stack_thread(stack: &Stack, switch: &Switch, tables: &ActivityTables) -> Option<ThreadIndex> {
    let (_, owner) = stack.owner?;
    [switch.old.filter(|_| switch.selects_old), switch.new.filter(|_| switch.selects_new)]
        .into_iter()
        .flatten()
        .find(|index| tables.lives.thread(*index).is_some_and(|thread| thread.tid == owner && owner != 0))
}

/// Creates an event of a record, without stack and address.
fn new_pending(source: &Source<'_, '_>, activity: Activity) -> Pending {
    let (stamp, pointer_size) = (source.record.time(), source.record.pointer_size());
    let code = CodeContext { file: source.file, pid: NO_ID, stamp, pointer_size };
    let (machine, cpu) = (source.machine, source.record.cpu());
    // The filters select a slice by its start.
    let is_selected = source.is_selected || matches!(activity, Activity::SliceEnd { .. });
    Pending { time_ns: source.time_ns, machine, cpu, code, address: None, is_selected, activity }
}
