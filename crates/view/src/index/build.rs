//! Builds an index: takes records in time order and adds what they mean to the tracks.
//!
//! ```text
//!   record ─▶ row of the event table, mark of its kind
//!     switch, wake, sample ─▶ Joiner (waits for the stack) ─▶ Scheduler ─▶ run spans, states, waits
//!     start, stop ─▶ nested slices            transfers ─▶ table of transfers, counters
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use traceweir_analysis::event::describes_file;
use traceweir_analysis::report::{
    ContextSwitch, NetworkKind, NetworkTransfer, Occurrence, Scheduler, ThreadReturn, convert_network_event,
    is_network_event,
};
use traceweir_decode::Decoder;
use traceweir_decode::actors::Actor;
use traceweir_decode::format::{Style, push_text};
use traceweir_decode::schema::Field;
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::stack::{Joined, Joiner, Stack, StackClaim};
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::Guid;
use traceweir_format::header::{Family, NO_ID, Record};
use traceweir_format::kernel::{class_name, hook};
use traceweir_format::stack_walk::{StackWalk, is_kernel_address};
use traceweir_format::time::{Clock, FileTime};

use super::facts::Facts;
use super::kinds::{KindIndex, KindKey, KindNames};
use super::series::{Item, Series, ValueKind};
use super::stacks::StackId;
use super::threads::{EventTime, MAX_LANES, ThreadIndex};
use super::{Index, RowPosition, ThreadState, Transfer};

/// Bits of a sample's `Flags` field: the sample was taken in a DPC or an ISR.
const IN_INTERRUPT: u64 = 3;
/// Opcodes of events that begin and end an activity.
const START: u8 = 1;
const STOP: u8 = 2;
/// The most slices that are open at the same time.
const MAX_OPEN_SLICES: usize = 1 << 16;
/// Memory for the newest items of all tracks; above it, tracks write theirs to the file.
const MAX_OPEN_BYTES: usize = 64 << 20;
/// Rows between two checks of the memory.
const CHECK_ROWS: u64 = 1 << 17;
/// The highest processor number that gets a track.
const MAX_CPUS: usize = 1 << 12;

/// An event that waits for its stack.
#[derive(Debug)]
enum Pending {
    Switch {
        at: EventTime,
        cpu: u16,
        new: (ThreadIndex, u32),
        old: (ThreadIndex, u32),
        state: u8,
        reason: u8,
    },
    Ready {
        at: EventTime,
        thread: (ThreadIndex, u32),
        waker: ThreadIndex,
    },
    Sample {
        at: EventTime,
        thread: ThreadIndex,
        address: u64,
        weight: u64,
        is_kernel: bool,
    },
}

/// What start and stop of an activity have in common: provider, task and, without a task, the id of
/// the start.
type SliceTask = (Guid, u16, u16);

/// A slice whose end has not come.
#[derive(Clone, Copy, Debug)]
struct OpenSlice {
    task: SliceTask,
    activity: Option<Guid>,
    start: i64,
    row: u64,
    kind: KindIndex,
    lane: usize,
}

/// Adds records to an index.
pub(crate) struct Builder {
    walker: Walker,
    joiner: Joiner<Pending>,
    schedulers: HashMap<usize, Scheduler<StackId>>,
    /// Who woke a thread that has not run since.
    wakers: HashMap<u32, (i64, ThreadIndex)>,
    slices: HashMap<ThreadIndex, Vec<OpenSlice>>,
    open_slices: usize,
    /// The activities that ended at least once. Starts of others are only marks.
    ending_tasks: HashSet<SliceTask>,
    /// When the first trace starts.
    start: FileTime,
    next_check: u64,
}

/// A record with its trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'r, 'b> {
    pub(crate) file: usize,
    pub(crate) clock: &'r Clock,
    pub(crate) record: &'r Record<'b>,
    pub(crate) position: RowPosition,
}

impl Builder {
    pub(crate) fn new(start: FileTime) -> Self {
        Self {
            walker: Walker::default(),
            joiner: Joiner::default(),
            schedulers: HashMap::new(),
            wakers: HashMap::new(),
            slices: HashMap::new(),
            open_slices: 0,
            ending_tasks: HashSet::new(),
            start,
            next_check: CHECK_ROWS,
        }
    }

    /// Adds the next record in time order.
    pub(crate) fn add(&mut self, placed: Placed<'_, '_>, facts: &mut Facts, index: &mut Index) {
        let Placed { file, clock, record, position } = placed;
        let offset = clock.start.0.saturating_sub(self.start.0).saturating_mul(100);
        let ns = offset.saturating_add(clock.nanos_since_start(record.time())).max(0);
        let at = EventTime { ns: ns.max(index.events.last_time()), file, stamp: record.time() };
        if facts.observe(file, record) {
            index.informative.push(at.ns, &[position.0], &mut index.store);
        }
        if describes_file(record) {
            return;
        }
        let row = index.events.rows();
        let located = facts.decoder.locate(record);
        let Some(file_facts) = facts.files.get_mut(file) else { return };
        file_facts.actors.follow(record);
        let schema = located.as_ref().ok().map(|located| facts.decoder.get(located));
        let actor = match &schema {
            Some(schema) => file_facts.actors.attribute(record, schema),
            None => file_facts.actors.running(record),
        };
        let thread = find_thread(record, actor, at, index);
        let kind = find_kind(record, schema.as_ref(), row, &facts.decoder, index);
        let values = [position.0, thread.0.into(), kind.0.into(), record.cpu().into()];
        index.events.push(at.ns, &values, &mut index.store);
        if let Some(kind) = index.kinds.get_mut(kind) {
            kind.marks.push(Item { start: at.ns, duration: 0, value: row << 2 }, &mut index.store);
        }
        if let Some(thread) = index.threads.get_mut(thread) {
            thread.events = thread.events.saturating_add(1);
        }
        self.add_meaning(placed, at, (thread, kind, row), facts, index);
        while let Some(joined) = self.joiner.next_ready() {
            self.add_joined(joined, index);
        }
        if index.events.rows() >= self.next_check {
            self.next_check = index.events.rows().saturating_add(CHECK_ROWS);
            index.limit_open_bytes(MAX_OPEN_BYTES);
        }
    }

    /// Ends the input: adds what waits for something that has not come.
    pub(crate) fn finish(&mut self, index: &mut Index) {
        self.joiner.end();
        while let Some(joined) = self.joiner.next_ready() {
            self.add_joined(joined, index);
        }
        let end = index.events.last_time();
        let mut unfinished: Vec<(ThreadIndex, OpenSlice)> = Vec::new();
        for (thread, slices) in self.slices.drain() {
            let ends = |slice: &OpenSlice| self.ending_tasks.contains(&slice.task);
            unfinished.extend(slices.into_iter().filter(ends).map(|slice| (thread, slice)));
        }
        unfinished.sort_by_key(|(thread, slice)| (*thread, slice.start));
        for (thread, slice) in unfinished {
            add_slice(thread, &slice, end, index);
        }
        self.open_slices = 0;
    }

    fn add_meaning(
        &mut self,
        placed: Placed<'_, '_>,
        at: EventTime,
        (thread, kind, row): (ThreadIndex, KindIndex, u64),
        facts: &mut Facts,
        index: &mut Index,
    ) {
        let Placed { file, clock, record, .. } = placed;
        if record.family() == Family::Event {
            if matches!(record.descriptor().opcode, START | STOP) {
                self.add_slice_event(record, at, thread, (kind, row), index);
            }
            return;
        }
        let Some(hook) = record.hook() else { return };
        let wall = clock.file_time(record.time()).0;
        if let Some(stack) = StackWalk::parse(record) {
            if let Some(facts) = facts.files.get(file) {
                self.joiner.attach(&stack, (file, record.cpu(), wall), &facts.stacks, |_| 0);
            }
            return;
        }
        let is_relevant = matches!(
            hook,
            hook::CONTEXT_SWITCH
                | hook::READY_THREAD
                | hook::SAMPLED_PROFILE
                | hook::DISK_READ
                | hook::DISK_WRITE
                | hook::DISK_FLUSH
                | hook::FILE_READ
                | hook::FILE_WRITE
                | hook::FILE_CREATE
                | hook::FILE_NAME
                | hook::FILE_NAME_CREATE
                | hook::FILE_NAME_RUNDOWN
                | hook::FILE_NAME_DELETE
                | hook::THREAD_SET_NAME
                | hook::THREAD_START
                | hook::THREAD_DC_START
                | hook::THREAD_DC_END
        );
        if is_network_event(hook) {
            if let Some(Occurrence::Network(transfer)) =
                convert_network_event(&mut self.walker, hook, record, &mut facts.decoder)
            {
                add_network_transfer(&transfer, at, thread, index);
            }
            return;
        }
        if !is_relevant {
            return;
        }
        let counter_hz = facts.counter_hz(file);
        let Ok(schema) = facts.decoder.find(record) else { return };
        let pending = match hook {
            hook::CONTEXT_SWITCH => self.read_switch(record, &schema, at, index),
            hook::READY_THREAD => self.read_ready(record, &schema, at, thread, index),
            hook::SAMPLED_PROFILE => self.read_sample(record, &schema, at, index),
            hook::DISK_READ | hook::DISK_WRITE | hook::DISK_FLUSH | hook::FILE_READ | hook::FILE_WRITE => {
                return self.add_transfer(hook, record, &schema, (at, thread, counter_hz), index);
            }
            hook::THREAD_SET_NAME | hook::THREAD_START | hook::THREAD_DC_START | hook::THREAD_DC_END => {
                let mut names = NameFields::default();
                self.walk(record, &schema, &mut names);
                index.threads.set_name(thread, names.thread_name.trim_end());
                return;
            }
            _ => {
                let mut names = NameFields::default();
                self.walk(record, &schema, &mut names);
                index.files.set_name(names.file_object, names.file_name.trim_end());
                return;
            }
        };
        if let Some(pending) = pending {
            let claim = StackClaim::from_record(record, file, wall);
            let frames = facts.files.get(file).and_then(|facts| facts.stacks.frames(record));
            self.joiner.expect(claim, pending, 0, frames.into_iter().flatten());
        }
    }

    fn walk<'p>(
        &mut self,
        record: &Record<'_>,
        schema: &SchemaMatch<'_, 'p>,
        visitor: &mut impl Visitor<'p>,
    ) {
        // If the payload ends early, the fields before its end have been read.
        let _ = self.walker.walk(&schema.prepared.schema, schema.payload, record.pointer_size(), visitor);
    }

    fn read_numbers<const N: usize>(
        &mut self,
        record: &Record<'_>,
        schema: &SchemaMatch<'_, '_>,
        names: [&'static str; N],
    ) -> [Option<u64>; N] {
        let mut fields = NumberFields { names, values: [None; N] };
        self.walk(record, schema, &mut fields);
        fields.values
    }

    fn read_switch(
        &mut self,
        record: &Record<'_>,
        schema: &SchemaMatch<'_, '_>,
        at: EventTime,
        index: &mut Index,
    ) -> Option<Pending> {
        let names = ["NewThreadId", "OldThreadId", "OldThreadState", "OldThreadWaitReason"];
        let [new, old, state, reason] = self.read_numbers(record, schema, names);
        let to_u8 = |number: Option<u64>| u8::try_from(number?).ok();
        let mut to_thread = |number: Option<u64>| {
            let tid = u32::try_from(number?).ok()?;
            Some((index.threads.find_or_add(tid, None, at), tid))
        };
        let (new, old) = (to_thread(new)?, to_thread(old)?);
        index.running.insert(record.cpu(), new.0);
        Some(Pending::Switch {
            at,
            cpu: record.cpu(),
            new,
            old,
            state: to_u8(state)?,
            reason: to_u8(reason)?,
        })
    }

    fn read_ready(
        &mut self,
        record: &Record<'_>,
        schema: &SchemaMatch<'_, '_>,
        at: EventTime,
        attributed: ThreadIndex,
        index: &mut Index,
    ) -> Option<Pending> {
        let [tid] = self.read_numbers(record, schema, ["ThreadId"]);
        let tid = u32::try_from(tid?).ok()?;
        let thread = index.threads.find_or_add(tid, None, at);
        // The header names the thread that wakes; the attribution is to the thread that is woken.
        let waker = match record.thread_id() {
            NO_ID => index.running.get(&record.cpu()).copied().unwrap_or(ThreadIndex::OTHER),
            tid => index.threads.find_or_add(tid, None, at),
        };
        let waker = if waker == thread { attributed } else { waker };
        Some(Pending::Ready { at, thread: (thread, tid), waker })
    }

    fn read_sample(
        &mut self,
        record: &Record<'_>,
        schema: &SchemaMatch<'_, '_>,
        at: EventTime,
        index: &mut Index,
    ) -> Option<Pending> {
        let names = ["InstructionPointer", "ThreadId", "Count", "Flags"];
        let [address, tid, count, flags] = self.read_numbers(record, schema, names);
        let tid = u32::try_from(tid?).ok()?;
        if tid == 0 && flags.unwrap_or(0) & IN_INTERRUPT == 0 {
            return None;
        }
        let thread = index.threads.find_or_add(tid, None, at);
        let address = address?;
        let is_kernel = is_kernel_address(address, record.pointer_size());
        Some(Pending::Sample { at, thread, address, weight: count.unwrap_or(1).max(1), is_kernel })
    }

    fn add_transfer(
        &mut self,
        hook: u16,
        record: &Record<'_>,
        schema: &SchemaMatch<'_, '_>,
        (at, thread, counter_hz): (EventTime, ThreadIndex, u64),
        index: &mut Index,
    ) {
        let names = ["TransferSize", "IoSize", "HighResResponseTime", "FileKey", "FileObject"];
        let [disk_bytes, file_bytes, ticks, key, object] = self.read_numbers(record, schema, names);
        let bytes = disk_bytes.or(file_bytes).unwrap_or(0);
        let duration = u128::from(ticks.unwrap_or(0)) * 1_000_000_000;
        let duration = duration.checked_div(u128::from(counter_hz)).unwrap_or(0);
        let duration = u64::try_from(duration).unwrap_or(u64::MAX);
        let file = index.files.find_or_add([key.unwrap_or(0), object.unwrap_or(0)]);
        let (transfer, counter) = match hook {
            hook::DISK_READ => (Transfer::DiskRead, Some("Disk read")),
            hook::DISK_WRITE => (Transfer::DiskWrite, Some("Disk write")),
            hook::FILE_READ => (Transfer::FileRead, None),
            hook::FILE_WRITE => (Transfer::FileWrite, None),
            _ => (Transfer::DiskFlush, None),
        };
        let values = [duration, bytes, thread.0.into(), file.into(), transfer as u64];
        index.transfers.push(at.ns, &values, &mut index.store);
        if let Some(name) = counter {
            index.add_to_counter(name, "bytes", at.ns, bytes);
        }
    }

    fn add_joined(&mut self, joined: Joined<Pending>, index: &mut Index) {
        let Joined { event, stack } = joined;
        match event {
            Pending::Sample { at, thread, address, weight, is_kernel } => {
                let node = if stack.is_empty() {
                    let mut alone = Stack::default();
                    if is_kernel { &mut alone.kernel } else { &mut alone.user }.push(address);
                    index.stacks.add(&alone)
                } else {
                    index.stacks.add(&stack)
                };
                let values = [thread.0.into(), node.0.into(), weight.min(u32::MAX.into())];
                index.samples.push(at.ns, &values, &mut index.store);
            }
            Pending::Ready { at, thread: (thread, tid), waker } => {
                let id = scheduler_id(thread, tid);
                self.schedulers.entry(at.file).or_default().record_wake(at.ns, id);
                if self.wakers.len() < 1 << 17 {
                    self.wakers.entry(id).or_insert((at.ns, waker));
                }
            }
            Pending::Switch { at, cpu, new, old, state, reason } => {
                let owner = stack.owner.map(|(_, tid)| tid);
                let node = if owner.is_some() { index.stacks.add(&stack) } else { StackId::default() };
                let node_of =
                    |tid: u32| if owner == Some(tid) && tid != 0 { node } else { StackId::default() };
                let switch = ContextSwitch {
                    cpu,
                    new: scheduler_id(new.0, new.1),
                    old: scheduler_id(old.0, old.1),
                    state,
                    reason,
                };
                let scheduler = self.schedulers.entry(at.file).or_default();
                let (run, thread_return) = scheduler.record_switch(at.ns, switch, node_of(old.1));
                index.gaps = scheduler.gaps;
                if let Some(run) = run {
                    index.add_run(cpu, ThreadIndex(run.thread), run.from, run.to);
                }
                let Some(thread_return) = thread_return else { return };
                let waker = self.wakers.remove(&thread_return.thread);
                let waker =
                    waker.filter(|(time, _)| thread_return.woken_at == Some(*time)).map(|(_, waker)| waker);
                add_return(&thread_return, waker, node_of(new.1), index);
            }
        }
    }

    fn add_slice_event(
        &mut self,
        record: &Record<'_>,
        at: EventTime,
        thread: ThreadIndex,
        (kind, row): (KindIndex, u64),
        index: &mut Index,
    ) {
        let descriptor = record.descriptor();
        let activity = record.activity();
        // Without a task, the ids of start and stop follow each other.
        let id = descriptor.id.saturating_sub(u16::from(descriptor.opcode == STOP));
        let task = (record.provider(), descriptor.task, if descriptor.task == 0 { id } else { 0 });
        if descriptor.opcode == START {
            if self.open_slices >= MAX_OPEN_SLICES || thread == ThreadIndex::OTHER {
                return;
            }
            let open = self.slices.entry(thread).or_default();
            let is_same = |slice: &OpenSlice| slice.task == task && slice.activity == activity;
            if let Some(known) = open.iter().position(is_same) {
                // Some providers write two events at a start.
                if open.get(known).is_some_and(|slice| slice.kind != kind) {
                    return;
                }
                if !self.ending_tasks.contains(&task) {
                    open.remove(known);
                    self.open_slices = self.open_slices.saturating_sub(1);
                }
            }
            let Some(lane) = (0..MAX_LANES).find(|lane| open.iter().all(|slice| slice.lane != *lane)) else {
                return;
            };
            self.open_slices += 1;
            open.push(OpenSlice { task, activity, start: at.ns, row, kind, lane });
            return;
        }
        if self.ending_tasks.len() < MAX_OPEN_SLICES {
            self.ending_tasks.insert(task);
        }
        let is_match = |slice: &OpenSlice| {
            slice.task == task
                && (activity.is_none() || slice.activity.is_none() || slice.activity == activity)
        };
        let mut owner = thread;
        let mut found = self.slices.get(&thread).and_then(|open| open.iter().rposition(is_match));
        if found.is_none() && activity.is_some() {
            // The activity may have begun on another thread.
            let elsewhere = self.slices.iter().take(1 << 12).find_map(|(thread, open)| {
                let at = open.iter().rposition(|slice| is_match(slice) && slice.activity == activity)?;
                Some((*thread, at))
            });
            if let Some((thread, at)) = elsewhere {
                (owner, found) = (thread, Some(at));
            }
        }
        let (Some(found), Some(open)) = (found, self.slices.get_mut(&owner)) else { return };
        let slice = open.remove(found);
        self.open_slices = self.open_slices.saturating_sub(1);
        if open.is_empty() {
            self.slices.remove(&owner);
        }
        add_slice(owner, &slice, at.ns, index);
    }
}

fn add_network_transfer(transfer: &NetworkTransfer, at: EventTime, thread: ThreadIndex, index: &mut Index) {
    let (direction, counter) = match transfer.kind {
        NetworkKind::Send => (Transfer::Send, "Network sent"),
        NetworkKind::Receive => (Transfer::Receive, "Network received"),
        _ => return,
    };
    let connection = match transfer.ends {
        Some((local, remote)) => index.files.find_or_add_connection(&format!("{local} ↔ {remote}")),
        None => 0,
    };
    let values = [0, transfer.bytes, thread.0.into(), connection.into(), direction as u64];
    index.transfers.push(at.ns, &values, &mut index.store);
    index.add_to_counter(counter, "bytes", at.ns, transfer.bytes);
}

fn add_slice(thread: ThreadIndex, slice: &OpenSlice, end: i64, index: &mut Index) {
    let Index { threads, store, .. } = index;
    let Some(thread) = threads.get_mut(thread) else { return };
    while thread.lanes.len() <= slice.lane {
        thread.lanes.push(Series::new(ValueKind::Classes));
    }
    let duration = u64::try_from(end.saturating_sub(slice.start)).unwrap_or(0);
    let value = slice.row << 18 | u64::from(slice.kind.0) << 2;
    if let Some(lane) = thread.lanes.get_mut(slice.lane) {
        lane.push(Item { start: slice.start, duration, value }, store);
    }
}

/// Adds the states of a thread that runs again.
fn add_return(
    thread_return: &ThreadReturn<StackId>,
    waker: Option<ThreadIndex>,
    new_node: StackId,
    index: &mut Index,
) {
    let (thread, to) = (ThreadIndex(thread_return.thread), thread_return.to);
    let woken_at = thread_return.woken_at;
    let waker_index = waker.map_or(0, |waker| u64::from(waker.0));
    let Some(absence) = &thread_return.absence else {
        if let Some(woken_at) = woken_at {
            index.add_state(thread, ThreadState::Ready, waker_index, woken_at, to);
        }
        return;
    };
    let Some(reason) = absence.reason else {
        index.add_state(thread, ThreadState::Ready, 0, absence.from, to);
        return;
    };
    let wait_end = woken_at.unwrap_or(to).max(absence.from);
    index.add_state(thread, ThreadState::Waiting, reason.into(), absence.from, wait_end);
    index.add_state(thread, ThreadState::Ready, waker_index, wait_end, to);
    let node = if absence.stack == StackId::default() { new_node } else { absence.stack };
    let duration = u64::try_from(to.saturating_sub(absence.from)).unwrap_or(0);
    let values = [duration, thread.0.into(), node.0.into(), waker_index, reason.into()];
    index.waits.push(to, &values, &mut index.store);
}

/// Returns the id under which the scheduler follows a thread: its index, so that reused thread ids
/// are different threads. The idle threads have index 0, which is their id too.
const fn scheduler_id(thread: ThreadIndex, tid: u32) -> u32 {
    if tid == NO_ID { NO_ID } else { thread.0 }
}

fn find_thread(record: &Record<'_>, actor: Option<Actor>, at: EventTime, index: &mut Index) -> ThreadIndex {
    let header = (record.process_id(), record.thread_id());
    let (pid, tid) = actor.map_or(header, |actor| (actor.pid, actor.tid));
    match record.hook() {
        Some(hook::THREAD_START) => index.threads.begin(tid, pid, at),
        Some(hook::THREAD_END | hook::THREAD_DC_START | hook::THREAD_DC_END) => {
            index.threads.find_or_add(tid, Some(pid), at)
        }
        // Of other kernel events, the process may be guessed from the thread.
        Some(_) if actor.is_some() && tid != NO_ID => index.threads.find_or_add(tid, None, at),
        _ => index.threads.find_or_add(tid, Some(pid), at),
    }
}

fn find_kind(
    record: &Record<'_>,
    schema: Option<&SchemaMatch<'_, '_>>,
    row: u64,
    decoder: &Decoder,
    index: &mut Index,
) -> KindIndex {
    let (provider, descriptor, hook) = (record.provider(), record.descriptor(), record.hook());
    let key = KindKey {
        provider,
        id: hook.unwrap_or(descriptor.id),
        version: descriptor.version,
        opcode: descriptor.opcode,
        schema: schema.map(|schema| schema.prepared.id()),
    };
    if let Some(kind) = index.kinds.find(&key) {
        return kind;
    }
    let kernel_name = hook.map(|_| match class_name(&provider) {
        Some(class) => format!("Windows Kernel ({class})"),
        None => "Windows Kernel".to_owned(),
    });
    let schema_name = schema.and_then(|schema| schema.prepared.schema.names.provider.as_deref());
    let names = KindNames {
        provider: kernel_name.as_deref().or(schema_name).or_else(|| decoder.provider_name(&provider)),
        event: schema.and_then(|schema| schema.prepared.event_name.as_ref()),
    };
    index.kinds.add(key, names, descriptor, (hook, row))
}

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

/// The names that an event defines.
#[derive(Default)]
struct NameFields {
    file_object: u64,
    file_name: String,
    thread_name: String,
}

impl<'p> Visitor<'p> for NameFields {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let to_text = || {
            let mut text = Vec::new();
            push_text(field, &value, Style::default(), &mut text);
            String::from_utf8_lossy(&text).into_owned()
        };
        match &*field.name {
            "FileObject" => self.file_object = value.bits().unwrap_or(0),
            "FileName" | "OpenPath" => self.file_name = to_text(),
            "ThreadName" => self.thread_name = to_text(),
            _ => {}
        }
    }
}

/// The files and connections of transfers. Keys of files are reused, so a key can stand for several files.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) names: Vec<Option<Arc<str>>>,
    by_key: HashMap<u64, u32>,
    connections: HashMap<Arc<str>, u32>,
}

impl Default for Files {
    fn default() -> Self {
        Self { names: vec![None], by_key: HashMap::new(), connections: HashMap::new() }
    }
}

impl Files {
    const MAX_FILES: usize = 1 << 17;
    const MAX_NAME_CHARS: usize = 400;

    /// Returns the file of the first key that is known, and else adds the first key that is not 0.
    fn find_or_add(&mut self, keys: [u64; 2]) -> u32 {
        let used = keys.into_iter().filter(|key| *key != 0);
        if let Some(file) = used.clone().find_map(|key| self.by_key.get(&key)) {
            return *file;
        }
        used.clone().next().map_or(0, |key| self.add(key, None))
    }

    fn add(&mut self, key: u64, name: Option<Arc<str>>) -> u32 {
        if self.names.len() >= Self::MAX_FILES {
            return 0;
        }
        let file = u32::try_from(self.names.len()).unwrap_or(0);
        self.names.push(name);
        self.by_key.insert(key, file);
        file
    }

    fn find_or_add_connection(&mut self, name: &str) -> u32 {
        if let Some(file) = self.connections.get(name) {
            return *file;
        }
        if self.names.len() >= Self::MAX_FILES {
            return 0;
        }
        let (file, name) = (u32::try_from(self.names.len()).unwrap_or(0), Arc::<str>::from(name));
        self.names.push(Some(Arc::clone(&name)));
        self.connections.insert(name, file);
        file
    }

    fn set_name(&mut self, key: u64, name: &str) {
        if key == 0 || name.is_empty() {
            return;
        }
        let name: Arc<str> = name.chars().take(Self::MAX_NAME_CHARS).collect::<String>().into();
        let known = self.by_key.get(&key).and_then(|file| self.names.get_mut(*file as usize));
        match known {
            Some(Some(known)) if *known == name => {}
            Some(unnamed @ None) => *unnamed = Some(name),
            _ => {
                self.add(key, Some(name));
            }
        }
    }
}
