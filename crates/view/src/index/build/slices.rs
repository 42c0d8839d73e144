//! Nested slices: the time between the start and the stop event of an activity.
//!
//! ```text
//!   Start A ── Start B ── Stop B ── Stop A        lane 0  [ A                ]
//!                                                 lane 1        [ B ]
//! ```
//!
//! A stop ends the last start of the same task on its thread; with an activity id or the number of a
//! garbage collection, also one of another thread: the last one of all threads. The task of a classic
//! event is its class.

use std::collections::{BTreeMap, HashMap, HashSet};

use traceweir_format::header::{Family, Record};
use traceweir_format::kernel::hook::is_kernel_class;
use traceweir_format::{Guid, dotnet};

use super::super::Index;
use super::super::kinds::KindIndex;
use super::super::series::Item;
use super::super::threads::{EventTime, MAX_LANES, ThreadIndex};
use super::switches::TraceEnds;

/// Opcodes of events that begin and end an activity.
pub(super) const START: u8 = 1;
pub(super) const STOP: u8 = 2;
/// Ids of the events of the .NET runtime that begin and end a garbage collection. Their payload
/// begins with its number.
const GC_START: u16 = 1;
const GC_END: u16 = 2;
/// The most slices that are open at the same time.
const MAX_OPEN_SLICES: usize = 1 << 16;

/// What start and stop of an activity have in common: provider, task and, without a task, the id of
/// the start.
type SliceTask = (Guid, u16, u16);

/// Which of the activities of a task an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ActivityKey {
    /// The last one of the thread.
    Last,
    Id(Guid),
    /// The number of a garbage collection in a process.
    Collection(u32, u32),
}

/// A slice whose end has not come.
#[derive(Clone, Copy, Debug)]
struct OpenSlice {
    task: SliceTask,
    activity: ActivityKey,
    start: i64,
    row: u64,
    /// Index of the trace.
    file: usize,
    kind: KindIndex,
    version: u8,
    lane: usize,
}

impl OpenSlice {
    /// Returns the key of the slice among those that other threads can end: slices of one activity are
    /// next to each other, in the order of their starts.
    fn shared_key(&self) -> Option<SharedKey> {
        (self.activity != ActivityKey::Last).then_some((self.task, self.activity, self.row))
    }
}

/// Task, activity, and row of the start.
type SharedKey = (SliceTask, ActivityKey, u64);

/// The slices whose ends have not come.
#[derive(Debug, Default)]
pub(super) struct OpenSlices {
    by_thread: HashMap<ThreadIndex, Vec<OpenSlice>>,
    /// The threads of the slices that other threads can end.
    shared: BTreeMap<SharedKey, ThreadIndex>,
    count: usize,
    /// The activities that ended at least once. Starts of others are only marks.
    ending_tasks: HashSet<SliceTask>,
}

/// An event that may begin or end a slice.
#[derive(Clone, Copy)]
pub(super) struct SliceEvent {
    pub(super) at: EventTime,
    pub(super) thread: ThreadIndex,
    pub(super) kind: KindIndex,
    pub(super) row: u64,
}

impl OpenSlices {
    /// Begins or ends a slice, if the opcode of an event says so.
    pub(super) fn add_event(&mut self, record: &Record<'_>, event: SliceEvent, index: &mut Index) {
        let descriptor = record.descriptor();
        if !matches!(descriptor.opcode, START | STOP) {
            return;
        }
        // Starts and ends of processes and threads do not nest.
        let is_classic = record.family() != Family::Event;
        if is_classic && (record.provider().is_null() || is_kernel_class(&record.provider())) {
            return;
        }
        // Without a task, the ids of start and stop follow each other.
        let id = descriptor.id.saturating_sub(u16::from(descriptor.opcode == STOP));
        let task = (record.provider(), descriptor.task, if descriptor.task == 0 { id } else { 0 });
        let activity = read_activity(record);
        if descriptor.opcode == START {
            self.begin(task, activity, descriptor.version, event);
        } else {
            self.end(task, activity, event, index);
        }
    }

    fn begin(&mut self, task: SliceTask, activity: ActivityKey, version: u8, event: SliceEvent) {
        if self.count >= MAX_OPEN_SLICES || event.thread == ThreadIndex::OTHER {
            return;
        }
        let open = self.by_thread.entry(event.thread).or_default();
        let is_same = |slice: &OpenSlice| slice.task == task && slice.activity == activity;
        if let Some(known) = open.iter().position(is_same) {
            // Some providers write two events at a start, also two versions of one.
            if open.get(known).is_some_and(|slice| (slice.kind, slice.version) != (event.kind, version)) {
                return;
            }
            // The start of an activity that never ends is replaced.
            if open.len() >= MAX_LANES && !self.ending_tasks.contains(&task) {
                let replaced = open.remove(known);
                replaced.shared_key().and_then(|key| self.shared.remove(&key));
                self.count = self.count.saturating_sub(1);
            }
        }
        let lane = (0..MAX_LANES).find(|lane| open.iter().all(|slice| slice.lane != *lane));
        if let Some(lane) = lane {
            self.count = self.count.saturating_add(1);
            let (start, row, kind) = (event.at.ns, event.row, event.kind);
            let file = event.at.file;
            let slice = OpenSlice { task, activity, start, row, file, kind, version, lane };
            slice.shared_key().and_then(|key| self.shared.insert(key, event.thread));
            open.push(slice);
        }
    }

    fn end(&mut self, task: SliceTask, activity: ActivityKey, event: SliceEvent, index: &mut Index) {
        if self.ending_tasks.len() < MAX_OPEN_SLICES {
            self.ending_tasks.insert(task);
        }
        let is_match = |slice: &OpenSlice| {
            let is_any = [slice.activity, activity].contains(&ActivityKey::Last);
            slice.task == task && (is_any || slice.activity == activity)
        };
        let mut owner = event.thread;
        let mut found = self.by_thread.get(&owner).and_then(|open| open.iter().rposition(is_match));
        if found.is_none() && activity != ActivityKey::Last {
            // The activity may have begun on another thread.
            let same = (task, activity, 0)..=(task, activity, u64::MAX);
            if let Some(((.., row), thread)) = self.shared.range(same).next_back() {
                let is_last = |slice: &OpenSlice| slice.row == *row;
                owner = *thread;
                found = self.by_thread.get(thread).and_then(|open| open.iter().position(is_last));
            }
        }
        let (Some(found), Some(open)) = (found, self.by_thread.get_mut(&owner)) else { return };
        let slice = open.remove(found);
        slice.shared_key().and_then(|key| self.shared.remove(&key));
        self.count = self.count.saturating_sub(1);
        if open.is_empty() {
            self.by_thread.remove(&owner);
        }
        add_slice(owner, &slice, event.at.ns, index);
    }

    /// Ends the open slices of activities that usually end, at the end of their trace.
    pub(super) fn finish(&mut self, ends: &TraceEnds, index: &mut Index) {
        let mut unfinished: Vec<(ThreadIndex, OpenSlice)> = Vec::new();
        for (thread, slices) in self.by_thread.drain() {
            let ends = |slice: &OpenSlice| self.ending_tasks.contains(&slice.task);
            unfinished.extend(slices.into_iter().filter(ends).map(|slice| (thread, slice)));
        }
        unfinished.sort_by_key(|(thread, slice)| (*thread, slice.start, slice.row));
        for (thread, slice) in unfinished {
            add_slice(thread, &slice, ends.end_of(slice.file), index);
        }
        self.shared.clear();
        self.count = 0;
    }
}

fn read_activity(record: &Record<'_>) -> ActivityKey {
    let is_collection =
        record.provider() == dotnet::RUNTIME && matches!(record.descriptor().id, GC_START | GC_END);
    if is_collection && let Some(number) = record.payload().first_chunk::<4>() {
        return ActivityKey::Collection(record.process_id(), u32::from_le_bytes(*number));
    }
    record.activity().filter(|id| *id != Guid::NULL).map_or(ActivityKey::Last, ActivityKey::Id)
}

fn add_slice(thread: ThreadIndex, slice: &OpenSlice, end: i64, index: &mut Index) {
    let Index { threads, store, .. } = index;
    if !threads.has_lane(thread, slice.lane) {
        return;
    }
    let Some(lane) = threads.get_mut(thread).and_then(|thread| thread.lanes.get_mut(slice.lane)) else {
        return;
    };
    let duration = u64::try_from(end.saturating_sub(slice.start)).unwrap_or(0);
    lane.push(Item { start: slice.start, duration, value: slice_value(slice.row, slice.kind) }, store);
}

/// Returns the value of a slice or mark of a thread: row and kind.
pub(super) fn slice_value(row: u64, kind: KindIndex) -> u64 {
    row << 18 | u64::from(kind.0) << 2
}
