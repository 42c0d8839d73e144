//! Builds an index: takes records in time order and adds what they mean to the tracks.
//!
//! ```text
//!   record ─▶ row of the event table, mark of its kind
//!     switch, wake, sample ─▶ Switches ─▶ run spans, states, waits, samples
//!     start, stop ─▶ OpenSlices ─▶ nested slices      transfers ─▶ table of transfers, counters
//!     allocation, fault ─▶ counters
//! ```

mod fields;
mod slices;
mod switches;

use traceweir_analysis::event::describes_file;
use traceweir_analysis::report::{
    ContextSwitch, KernelEvent, NetworkKind, NetworkTransfer, is_network_event, read_kernel_event,
    read_numbers, ticks_to_ns,
};
use traceweir_decode::Decoder;
use traceweir_decode::actors::Actor;
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::stack::{StackClaim, StackThreads};
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::{Family, NO_ID, Record};
use traceweir_format::kernel::{class_name, hook};
use traceweir_format::stack_walk::{StackWalk, is_kernel_address};
use traceweir_format::time::{Clock, FileTime};

use self::fields::NameFields;
use self::slices::{OpenSlices, SliceEvent, slice_value};
use self::switches::{NumberedThread, Pending, Switches, TraceEnds, TraceRecord};
use super::facts::Facts;
use super::kinds::{KindIndex, KindKey, KindNames, NewKind};
use super::series::Item;
use super::threads::{EventTime, ThreadIndex};
use super::{Index, RowPosition, Transfer};

/// The waker of a thread if it is not known, or if an interrupt of an idle processor woke the thread.
const UNKNOWN_WAKER: ThreadIndex = ThreadIndex::IDLE;
/// Memory for the newest items of all tracks; above it, tracks write theirs to the file.
const MAX_OPEN_BYTES: usize = 64 << 20;
/// Rows between two checks of the memory.
const CHECK_ROWS: u64 = 1 << 17;

/// Adds records to an index.
pub(crate) struct Builder {
    walker: Walker,
    switches: Switches,
    slices: OpenSlices,
    ends: TraceEnds,
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
            switches: Switches::default(),
            slices: OpenSlices::default(),
            ends: TraceEnds::default(),
            start,
            next_check: CHECK_ROWS,
        }
    }

    /// Adds the next record in time order.
    pub(crate) fn add(&mut self, placed: Placed<'_, '_>, facts: &mut Facts, index: &mut Index) {
        let Placed { file, clock, record, position } = placed;
        let offset = clock.start.0.saturating_sub(self.start.0).saturating_mul(100);
        let ns = offset.saturating_add(clock.nanos_since_start(record.time())).max(0);
        let machine = index.machines.of_file(file);
        let at = EventTime { ns: ns.max(index.events.last_time()), file, machine, stamp: record.time() };
        if facts.observe(file, record) {
            index.informative.push(at.ns, &[position.0], &mut index.store);
        }
        if describes_file(record) {
            return;
        }
        self.ends.add(file, at.ns);
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
        let header = (record.process_id(), record.thread_id());
        let is_about_other =
            header != (NO_ID, NO_ID) && actor.is_some_and(|actor| (actor.pid, actor.tid) != header);
        let values = [position.0, thread.0.into(), kind.0.into(), record.cpu().into()];
        index.events.push(at.ns, &values, &mut index.store);
        if let Some(kind) = index.kinds.get_mut(kind) {
            kind.is_about_others |= is_about_other;
        }
        let mark = Item { start: at.ns, duration: 0, value: row << 2 };
        index.kinds.add_mark(kind, mark, &mut index.store);
        let event = SliceEvent { at, thread, kind, row };
        if let Some(thread) = index.threads.get_mut(thread) {
            thread.events = thread.events.saturating_add(1);
            if thread.states.is_empty() {
                let item = Item { start: at.ns, duration: 0, value: slice_value(row, kind) };
                thread.marks.push(item, &mut index.store);
            }
        }
        self.add_meaning(placed, event, facts, index);
        self.switches.flush(index);
        if index.events.rows() >= self.next_check {
            self.next_check = index.events.rows().saturating_add(CHECK_ROWS);
            index.limit_open_bytes(MAX_OPEN_BYTES);
        }
    }

    /// Ends a trace before others; `wall` is the wall time of its last record.
    pub(crate) fn end_trace(&mut self, file: usize, wall: FileTime, index: &mut Index) {
        let end = self.ends.end_of(file);
        let claim =
            StackClaim { source: file, time: 0, wall: wall.0, cpu: 0, threads: StackThreads::Running };
        self.switches.add_without_stack(claim, Pending::TraceEnd { file, end });
        self.switches.flush(index);
    }

    /// Ends the input: adds what waits for something that has not come.
    pub(crate) fn finish(&mut self, index: &mut Index) {
        self.switches.finish(&self.ends, index);
        self.slices.finish(&self.ends, index);
    }

    fn add_meaning(
        &mut self,
        placed: Placed<'_, '_>,
        event: SliceEvent,
        facts: &mut Facts,
        index: &mut Index,
    ) {
        let Placed { file, clock, record, .. } = placed;
        let SliceEvent { at, thread, .. } = event;
        if matches!(record.family(), Family::Event | Family::Full | Family::Instance) {
            return self.slices.add_event(record, event, index);
        }
        let Some(hook) = record.hook() else { return };
        let source = TraceRecord { file, record, wall: clock.file_time(record.time()).0 };
        if let Some(stack) = StackWalk::parse(record) {
            if let Some(facts) = facts.files.get(file) {
                self.switches.attach(source, &stack, &facts.stacks);
            }
            return;
        }
        let is_relevant = matches!(
            hook,
            hook::CONTEXT_SWITCH
                | hook::READY_THREAD
                | hook::SAMPLED_PROFILE
                | hook::PROFILE_START
                | hook::PROFILE_SET_INTERVAL
                | hook::PROFILE_END
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
                | hook::THREAD_END
                | hook::THREAD_DC_START
                | hook::THREAD_DC_END
                | hook::VIRTUAL_ALLOC
                | hook::VIRTUAL_FREE
        );
        if is_page_fault(hook) {
            return index.add_to_counter("Page faults", "", at.ns, 1);
        }
        if !is_relevant && !is_network_event(hook) {
            return;
        }
        let counter_hz = facts.counter_hz(file);
        let Ok(schema) = facts.decoder.find(record) else { return };
        match hook {
            hook::DISK_READ | hook::DISK_WRITE | hook::DISK_FLUSH | hook::FILE_READ | hook::FILE_WRITE => {
                self.add_transfer(hook, record, &schema, (event, counter_hz), index);
            }
            hook::VIRTUAL_ALLOC | hook::VIRTUAL_FREE => {
                let [bytes] = read_numbers(&mut self.walker, record, &schema, ["RegionSize"]);
                let name = if hook == hook::VIRTUAL_ALLOC { "Memory allocated" } else { "Memory freed" };
                index.add_to_counter(name, "bytes", at.ns, bytes.unwrap_or(0));
            }
            hook::THREAD_END => {
                let tid = index.threads.get(thread).map_or(NO_ID, |thread| thread.tid);
                let thread = NumberedThread { index: thread, tid };
                let claim = StackClaim::from_record(record, file, source.wall);
                self.switches.add_without_stack(claim, Pending::End { at, thread });
            }
            hook::THREAD_SET_NAME | hook::THREAD_START | hook::THREAD_DC_START | hook::THREAD_DC_END => {
                let mut names = NameFields::default();
                self.walk(record, &schema, &mut names);
                index.threads.set_name(thread, names.thread_name.trim_end());
            }
            hook::FILE_CREATE
            | hook::FILE_NAME
            | hook::FILE_NAME_CREATE
            | hook::FILE_NAME_RUNDOWN
            | hook::FILE_NAME_DELETE => {
                let mut names = NameFields::default();
                self.walk(record, &schema, &mut names);
                index.files.set_name(names.file_object, names.file_name.trim_end());
            }
            _ => {
                let Some(kernel_event) = read_kernel_event(&mut self.walker, record, &schema) else { return };
                if let Some(pending) = self.add_kernel_event(kernel_event, record, event, index) {
                    self.switches.add(source, pending, facts.files.get(file).map(|facts| &facts.stacks));
                }
            }
        }
    }

    /// Adds a kernel event to the index, or returns what must wait for its stack.
    fn add_kernel_event(
        &mut self,
        kernel_event: KernelEvent,
        record: &Record<'_>,
        event: SliceEvent,
        index: &mut Index,
    ) -> Option<Pending> {
        let (at, cpu) = (event.at, record.cpu());
        let mut find_thread =
            |tid: u32| NumberedThread { index: index.threads.find_or_add(tid, None, at), tid };
        match kernel_event {
            KernelEvent::Switch { switch: ContextSwitch { new, old, state, reason, .. }, .. } => {
                let (new, old) = (find_thread(new), find_thread(old));
                index.running.insert((at.machine, cpu), new.index);
                Some(Pending::Switch { at, cpu, new, old, state, reason })
            }
            KernelEvent::Ready { thread } => {
                let thread = find_thread(thread);
                let waker = find_waker(record, thread.index, event, index);
                Some(Pending::Ready { at, thread, waker })
            }
            KernelEvent::Sample { thread, address, weight, is_idle } => {
                let thread = find_thread(thread).index;
                let is_kernel = is_kernel_address(address, record.pointer_size());
                Some(Pending::Sample { at, cpu, thread, address, weight, is_kernel, is_idle })
            }
            KernelEvent::Interval(interval) => {
                self.switches.set_sample_interval(at.file, interval);
                None
            }
            KernelEvent::Network(transfer) => {
                add_network_transfer(&transfer, event, index);
                None
            }
            _ => None,
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

    fn add_transfer(
        &mut self,
        hook: u16,
        record: &Record<'_>,
        schema: &SchemaMatch<'_, '_>,
        (event, counter_hz): (SliceEvent, u64),
        index: &mut Index,
    ) {
        let names = ["TransferSize", "IoSize", "HighResResponseTime", "FileKey", "FileObject"];
        let [disk_bytes, file_bytes, ticks, key, object] =
            read_numbers(&mut self.walker, record, schema, names);
        let bytes = disk_bytes.or(file_bytes).unwrap_or(0);
        let duration = ticks.and_then(|ticks| ticks_to_ns(ticks, counter_hz)).unwrap_or(0);
        let file = index.files.find_or_add([key.unwrap_or(0), object.unwrap_or(0)]);
        let (transfer, counter) = match hook {
            hook::DISK_READ => (Transfer::DiskRead, Some("Disk read")),
            hook::DISK_WRITE => (Transfer::DiskWrite, Some("Disk write")),
            hook::FILE_READ => (Transfer::FileRead, None),
            hook::FILE_WRITE => (Transfer::FileWrite, None),
            _ => (Transfer::DiskFlush, None),
        };
        let SliceEvent { at, thread, row, .. } = event;
        let values = [duration, bytes, thread.0.into(), file.into(), transfer as u64, row];
        index.transfers.push(at.ns, &values, &mut index.store);
        if let Some(name) = counter {
            index.add_to_counter(name, "bytes", at.ns, bytes);
        }
    }
}

/// Returns the thread that wakes another one.
fn find_waker(record: &Record<'_>, woken: ThreadIndex, event: SliceEvent, index: &mut Index) -> ThreadIndex {
    let at = event.at;
    // The header names the thread that wakes; the attribution is to the thread that is woken.
    let waker = match record.thread_id() {
        NO_ID => index.running.get(&(at.machine, record.cpu())).copied().unwrap_or(UNKNOWN_WAKER),
        tid => index.threads.find_or_add(tid, None, at),
    };
    let waker = if waker == woken { event.thread } else { waker };
    if waker == ThreadIndex::OTHER { UNKNOWN_WAKER } else { waker }
}

/// Returns whether a hook id is that of a page fault.
const fn is_page_fault(hook: u16) -> bool {
    matches!(
        hook,
        hook::TRANSITION_FAULT
            | hook::DEMAND_ZERO_FAULT
            | hook::COPY_ON_WRITE
            | hook::ACCESS_VIOLATION
            | hook::HARD_FAULT
    )
}

fn add_network_transfer(transfer: &NetworkTransfer, event: SliceEvent, index: &mut Index) {
    let (direction, counter) = match transfer.kind {
        NetworkKind::Send => (Transfer::Send, "Network sent"),
        NetworkKind::Receive => (Transfer::Receive, "Network received"),
        _ => return,
    };
    let connection = match transfer.ends {
        Some((local, remote)) => index.files.find_or_add_connection(&format!("{local} ↔ {remote}")),
        None => 0,
    };
    let SliceEvent { at, thread, row, .. } = event;
    let values = [0, transfer.bytes, thread.0.into(), connection.into(), direction as u64, row];
    index.transfers.push(at.ns, &values, &mut index.store);
    index.add_to_counter(counter, "bytes", at.ns, transfer.bytes);
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
    let key = KindKey { provider, descriptor, hook, schema: schema.map(|schema| schema.prepared.id()) };
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
    index.kinds.add(NewKind { key, names, row })
}

#[cfg(test)]
mod tests;
