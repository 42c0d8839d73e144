//! Slices: the time between the start event and the stop event of an activity.
//!
//! ```text
//!   survey      every start and stop ──▶ tasks that stop, tasks that overlap others
//!   main pass   start of a task that stops ──▶ SliceBegin      stop ──▶ SliceEnd
//! ```
//!
//! S1  A stop ends the last start of the same task on its thread. With an activity id, it also ends
//!     the last start on another thread. The task of a classic event is its class. Without a task,
//!     the id of the start identifies it.
//! S2  The start of a task that never stops, and a stop without a start, are not slices.
//! S3  Slices of the track of a thread nest. Tasks whose slices overlap others without nesting, or end
//!     on another thread, are on tracks of their own.
//! S4  A nested slice that ends before those inside of it ends them too.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use traceweir_format::header::{Family, Record};
use traceweir_format::kernel::hook::is_kernel_class;
use traceweir_format::{Guid, dotnet};

use super::event::{EventDetail, Slice, SliceId, SliceTrack};
use super::lives::ThreadIndex;

/// Opcodes of events that begin and end an activity.
const START: u8 = 1;
const STOP: u8 = 2;
/// Ids of the events of the .NET runtime that begin and end a garbage collection. Their payload
/// begins with its number.
const GC_START: u16 = 1;
const GC_END: u16 = 2;
/// The most slices that are open at the same time.
const MAX_OPEN_SLICES: usize = 1 << 16;
/// The most slices that are open on one thread.
const MAX_OPEN_PER_THREAD: usize = 256;
/// The most tracks of one task in one process.
const MAX_LANES: usize = 256;
/// The most tasks to remember.
const MAX_TASKS: usize = 1 << 16;
/// The most bytes of fields that open slices keep.
const MAX_DETAIL_BYTES: usize = 32 << 20;

/// Provider, task and, without a task, the id of the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SliceTask {
    provider: Guid,
    task: u16,
    id: u16,
}

/// Which of the activities of a task an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ActivityKey {
    /// The last one of the thread.
    Last,
    Id(Guid),
    /// The number of a garbage collection in a process.
    Collection(u32, u32),
}

/// A thread by machine and id.
pub(super) type ThreadKey = (u16, u32);

/// An event that may begin or end a slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct SliceEvent {
    thread: ThreadKey,
    pid: u32,
    task: SliceTask,
    activity: ActivityKey,
    is_start: bool,
    version: u8,
    event_id: u16,
}

impl SliceEvent {
    /// Returns the slice event of a record; `None` if the opcode is neither start nor stop.
    pub(super) fn from_record(record: &Record<'_>, machine: u16) -> Option<Self> {
        let descriptor = record.descriptor();
        if !matches!(descriptor.opcode, START | STOP)
            || !matches!(record.family(), Family::Event | Family::Full | Family::Instance)
        {
            return None;
        }
        // Starts and ends of processes and threads do not nest.
        let is_classic = record.family() != Family::Event;
        if is_classic && (record.provider().is_null() || is_kernel_class(&record.provider())) {
            return None;
        }
        // Without a task, the ids of start and stop follow each other.
        let is_start = descriptor.opcode == START;
        let id = descriptor.id.saturating_sub(u16::from(!is_start));
        let task = SliceTask {
            provider: record.provider(),
            task: descriptor.task,
            id: if descriptor.task == 0 { id } else { 0 },
        };
        Some(Self {
            thread: (machine, record.thread_id()),
            pid: record.process_id(),
            task,
            activity: read_activity(record),
            is_start,
            version: descriptor.version,
            event_id: descriptor.id,
        })
    }

    /// Returns the slice event of a system call's start or end.
    pub(super) fn for_system_call(thread: ThreadKey, provider: Guid, is_start: bool) -> Self {
        let task = SliceTask { provider, task: 0, id: 0 };
        // Each thread has its own track.
        let (pid, activity) = (thread.1, ActivityKey::Last);
        Self { thread, pid, task, activity, is_start, version: 0, event_id: 0 }
    }

    /// Returns whether the event begins a slice.
    pub(super) const fn is_start(&self) -> bool {
        self.is_start
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

/// What a survey of all traces finds out about tasks.
#[derive(Debug, Default)]
pub(super) struct SliceTasks {
    stopping: HashSet<SliceTask>,
    overlapping: HashSet<SliceTask>,
}

/// Finds out which tasks stop and which overlap others.
#[derive(Debug, Default)]
pub(super) struct SliceSurvey {
    open: OpenSlices<()>,
    tasks: SliceTasks,
    /// A task that stopped, and a task whose slice began inside of it and was still open.
    overlaps: HashSet<(SliceTask, SliceTask)>,
}

impl SliceSurvey {
    /// Observes an event.
    pub(super) fn observe(&mut self, event: &SliceEvent) {
        if event.is_start {
            self.open.begin(event, &self.tasks.stopping, |_| ());
            return;
        }
        if self.tasks.stopping.len() < MAX_TASKS {
            self.tasks.stopping.insert(event.task);
        }
        let Some(found) = self.open.find(event) else { return };
        if found.owner != event.thread && self.tasks.overlapping.len() < MAX_TASKS {
            self.tasks.overlapping.insert(event.task);
        }
        for inner in self.open.inner_tasks(&found) {
            if self.overlaps.len() < MAX_TASKS {
                self.overlaps.insert((event.task, inner));
            }
        }
        self.open.remove(&found);
    }

    /// Adds system calls as a task that stops. They have tracks of their own: a process writes an event
    /// within a system call, so the activity that the event begins overlaps the call.
    pub(super) fn add_system_calls(&mut self, event: &SliceEvent) {
        self.tasks.stopping.insert(event.task);
        self.tasks.overlapping.insert(event.task);
    }

    /// Returns what the survey found.
    pub(super) fn finish(self) -> SliceTasks {
        let mut tasks = self.tasks;
        // A start that never stops overlaps nothing.
        let overlaps = self.overlaps.into_iter().filter(|(_, inner)| tasks.stopping.contains(inner));
        let overlapping: Vec<SliceTask> = overlaps.map(|(outer, _)| outer).collect();
        tasks.overlapping.extend(overlapping);
        tasks
    }
}

/// A slice whose end has not come.
#[derive(Debug)]
struct OpenSlice<T> {
    id: u64,
    event: SliceEvent,
    data: T,
}

/// The position of an open slice.
#[derive(Debug)]
struct OpenPosition {
    owner: ThreadKey,
    index: usize,
}

/// The slices whose ends have not come, by thread. `T` is the caller's data about a slice.
#[derive(Debug)]
struct OpenSlices<T> {
    by_thread: HashMap<ThreadKey, Vec<OpenSlice<T>>>,
    /// The threads of the slices that other threads can end: slices of one activity are next to each
    /// other, in the order of their starts.
    shared: BTreeMap<(SliceTask, ActivityKey, u64), ThreadKey>,
    count: usize,
    next_id: u64,
}

impl<T> Default for OpenSlices<T> {
    fn default() -> Self {
        Self { by_thread: HashMap::new(), shared: BTreeMap::new(), count: 0, next_id: 1 }
    }
}

impl<T> OpenSlices<T> {
    /// Opens a slice; `new_data` gets its id. Returns the id, or `None` if the event begins no slice.
    fn begin(
        &mut self,
        event: &SliceEvent,
        stopping: &HashSet<SliceTask>,
        new_data: impl FnOnce(u64) -> T,
    ) -> Option<u64> {
        let open = self.by_thread.entry(event.thread).or_default();
        let is_same =
            |slice: &OpenSlice<T>| slice.event.task == event.task && slice.event.activity == event.activity;
        if let Some(known) = open.iter().position(is_same) {
            let kind = |event: &SliceEvent| (event.event_id, event.version);
            // Some providers write two events at a start, also two versions of one.
            if open.get(known).is_some_and(|slice| kind(&slice.event) != kind(event)) {
                return None;
            }
            // The start of an activity that never ends is replaced.
            if open.len() >= MAX_OPEN_PER_THREAD && !stopping.contains(&event.task) {
                let replaced = open.remove(known);
                self.shared.remove(&(event.task, event.activity, replaced.id));
                self.count = self.count.saturating_sub(1);
            }
        }
        if open.len() >= MAX_OPEN_PER_THREAD || self.count >= MAX_OPEN_SLICES {
            if open.is_empty() {
                self.by_thread.remove(&event.thread);
            }
            return None;
        }
        let id = self.next_id;
        self.next_id = id.saturating_add(1);
        open.push(OpenSlice { id, event: *event, data: new_data(id) });
        self.count = self.count.saturating_add(1);
        if event.activity != ActivityKey::Last {
            self.shared.insert((event.task, event.activity, id), event.thread);
        }
        Some(id)
    }

    /// Finds the slice that a stop ends (S1).
    fn find(&self, stop: &SliceEvent) -> Option<OpenPosition> {
        let is_match = |slice: &OpenSlice<T>| {
            let is_any = [slice.event.activity, stop.activity].contains(&ActivityKey::Last);
            slice.event.task == stop.task && (is_any || slice.event.activity == stop.activity)
        };
        let own = self.by_thread.get(&stop.thread).and_then(|open| open.iter().rposition(is_match));
        if let Some(index) = own {
            return Some(OpenPosition { owner: stop.thread, index });
        }
        if stop.activity == ActivityKey::Last {
            return None;
        }
        // The activity may have begun on another thread.
        let same = (stop.task, stop.activity, 0)..=(stop.task, stop.activity, u64::MAX);
        let ((.., id), owner) = self.shared.range(same).next_back()?;
        let index = self.by_thread.get(owner)?.iter().position(|slice| slice.id == *id)?;
        Some(OpenPosition { owner: *owner, index })
    }

    /// Returns the tasks of the slices that began after another one on its thread.
    fn inner_tasks(&self, position: &OpenPosition) -> Vec<SliceTask> {
        let open = self.by_thread.get(&position.owner).map(Vec::as_slice).unwrap_or_default();
        open.iter().skip(position.index.saturating_add(1)).map(|slice| slice.event.task).collect()
    }

    fn remove(&mut self, position: &OpenPosition) -> Option<OpenSlice<T>> {
        let open = self.by_thread.get_mut(&position.owner)?;
        if position.index >= open.len() {
            return None;
        }
        let slice = open.remove(position.index);
        if open.is_empty() {
            self.by_thread.remove(&position.owner);
        }
        self.shared.remove(&(slice.event.task, slice.event.activity, slice.id));
        self.count = self.count.saturating_sub(1);
        Some(slice)
    }
}

/// The tracks of one task in one process that have an open slice.
type LaneKey = (u16, u32, SliceTask);

/// Begins and ends the slices of the main pass.
#[derive(Debug, Default)]
pub(super) struct SliceBuilder {
    open: OpenSlices<Slice>,
    tasks: SliceTasks,
    lanes: HashMap<LaneKey, Vec<bool>>,
    detail_bytes: usize,
    /// Number of nested slices that ended with the slice around them (S4).
    pub(super) forced_ends: u64,
}

impl SliceBuilder {
    pub(super) fn new(tasks: SliceTasks) -> Self {
        Self { tasks, ..Self::default() }
    }

    /// Begins a slice, unless its task never stops or there are too many open slices.
    pub(super) fn begin(
        &mut self,
        event: &SliceEvent,
        begin_ns: i64,
        thread: Option<ThreadIndex>,
        detail: &Arc<EventDetail>,
    ) -> Option<Slice> {
        if !self.tasks.stopping.contains(&event.task) {
            return None;
        }
        let track = if self.tasks.overlapping.contains(&event.task) {
            SliceTrack::Task { lane: self.take_lane(event)? }
        } else {
            SliceTrack::Thread
        };
        let bytes = detail.memory_bytes();
        let has_room = self.detail_bytes.saturating_add(bytes) <= MAX_DETAIL_BYTES;
        let detail = if has_room { Arc::clone(detail) } else { Arc::new(detail.without_fields()) };
        let mut slice = None;
        self.open.begin(event, &self.tasks.stopping, |id| {
            let new = Slice { id: SliceId(id), track, begin_ns, thread, detail };
            slice.insert(new).clone()
        });
        match (&slice, track) {
            (Some(slice), _) => {
                let kept = slice.detail.memory_bytes();
                self.detail_bytes = self.detail_bytes.saturating_add(kept);
            }
            (None, SliceTrack::Task { lane }) => self.release_lane(event, lane),
            (None, SliceTrack::Thread) => {}
        }
        slice
    }

    /// Ends a slice. Returns the ended slices, the innermost first; none if there is no start.
    pub(super) fn end(&mut self, stop: &SliceEvent) -> Vec<Slice> {
        let Some(position) = self.open.find(stop) else { return Vec::new() };
        let mut ended = Vec::new();
        let open = self.open.by_thread.get(&position.owner).map(Vec::as_slice).unwrap_or_default();
        let is_nested = |slice: &OpenSlice<Slice>| slice.data.track == SliceTrack::Thread;
        if open.get(position.index).is_some_and(is_nested) {
            let inner = open.iter().enumerate().skip(position.index.saturating_add(1));
            let inner: Vec<usize> = inner.filter(|(_, slice)| is_nested(slice)).map(|(i, _)| i).collect();
            for index in inner.into_iter().rev() {
                self.forced_ends = self.forced_ends.saturating_add(1);
                ended.extend(self.close(&OpenPosition { owner: position.owner, index }));
            }
        }
        ended.extend(self.close(&position));
        ended
    }

    /// Ends all open slices, for the end of the traces. The innermost slices of a thread are first.
    pub(super) fn end_all(&mut self) -> Vec<Slice> {
        let mut owners: Vec<ThreadKey> = self.open.by_thread.keys().copied().collect();
        owners.sort_unstable();
        let mut ended = Vec::new();
        for owner in owners {
            while let Some(count) = self.open.by_thread.get(&owner).map(Vec::len) {
                ended.extend(self.close(&OpenPosition { owner, index: count.saturating_sub(1) }));
            }
        }
        ended
    }

    fn close(&mut self, position: &OpenPosition) -> Option<Slice> {
        let slice = self.open.remove(position)?;
        if let SliceTrack::Task { lane } = slice.data.track {
            self.release_lane(&slice.event, lane);
        }
        let bytes = slice.data.detail.memory_bytes();
        self.detail_bytes = self.detail_bytes.saturating_sub(bytes);
        Some(slice.data)
    }

    /// Takes the first free track of the task of an event; `None` if all are in use.
    fn take_lane(&mut self, event: &SliceEvent) -> Option<u32> {
        let lanes = self.lanes.entry((event.thread.0, event.pid, event.task)).or_default();
        let free = lanes.iter().position(|is_used| !is_used).unwrap_or(lanes.len());
        if free >= MAX_LANES {
            return None;
        }
        if lanes.len() <= free {
            lanes.resize(free.saturating_add(1), false);
        }
        if let Some(lane) = lanes.get_mut(free) {
            *lane = true;
        }
        u32::try_from(free).ok()
    }

    fn release_lane(&mut self, event: &SliceEvent, lane: u32) {
        let key = (event.thread.0, event.pid, event.task);
        let Some(lanes) = self.lanes.get_mut(&key) else { return };
        if let Some(is_used) = lanes.get_mut(lane as usize) {
            *is_used = false;
        }
        if lanes.iter().all(|is_used| !is_used) {
            self.lanes.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: ThreadKey = (0, 7);

    fn event(is_start: bool, task: u16, activity: Option<u128>) -> SliceEvent {
        let activity = activity.map_or(ActivityKey::Last, |id| ActivityKey::Id(Guid::from_u128(id)));
        let task = SliceTask { provider: Guid::from_u128(1), task, id: 0 };
        SliceEvent { thread: THREAD, pid: 1, task, activity, is_start, version: 0, event_id: 0 }
    }

    fn on_thread(tid: u32, event: SliceEvent) -> SliceEvent {
        SliceEvent { thread: (0, tid), ..event }
    }

    /// Runs both passes over events, a nanosecond apart. Returns begin, end and track of each slice in
    /// the order of the ends.
    fn run(events: &[SliceEvent]) -> Vec<(i64, i64, SliceTrack)> {
        let mut survey = SliceSurvey::default();
        events.iter().for_each(|event| survey.observe(event));
        let mut builder = SliceBuilder::new(survey.finish());
        let mut slices = Vec::new();
        let detail = Arc::new(EventDetail::default());
        let mut time = 0;
        let mut add = |ended: Vec<Slice>, time| {
            slices.extend(ended.into_iter().map(|slice| (slice.begin_ns, time, slice.track)));
        };
        for event in events {
            time += 1;
            if event.is_start {
                builder.begin(event, time, None, &detail);
            } else {
                add(builder.end(event), time);
            }
        }
        add(builder.end_all(), time + 1);
        assert_eq!((builder.open.count, builder.open.shared.len(), builder.lanes.len()), (0, 0, 0));
        assert_eq!(builder.detail_bytes, 0);
        slices
    }

    #[test]
    fn slices_of_one_thread_nest() {
        let slices = run(&[
            event(true, 1, None),
            event(true, 2, None),
            event(true, 9, None),
            event(false, 2, None),
            event(false, 1, None),
            event(false, 3, None),
        ]);
        // Task 9 never stops, and task 3 never starts.
        assert_eq!(slices, [(2, 4, SliceTrack::Thread), (1, 5, SliceTrack::Thread)]);
    }

    #[test]
    fn overlapping_activities_have_their_own_tracks() {
        let slices = run(&[
            event(true, 1, Some(10)),
            event(true, 1, Some(11)),
            event(false, 1, Some(10)),
            event(false, 1, Some(11)),
        ]);
        assert_eq!(slices, [(1, 3, SliceTrack::Task { lane: 0 }), (2, 4, SliceTrack::Task { lane: 1 })]);
    }

    #[test]
    fn stop_on_another_thread_ends_the_activity() {
        let slices = run(&[
            on_thread(1, event(true, 1, Some(10))),
            on_thread(2, event(false, 1, Some(10))),
            on_thread(1, event(true, 2, None)),
            on_thread(2, event(false, 2, None)),
        ]);
        // Without an activity id, only the thread itself can end it: it lasts until the end.
        assert_eq!(slices, [(1, 2, SliceTrack::Task { lane: 0 }), (3, 5, SliceTrack::Thread)]);
    }

    #[test]
    fn open_slices_are_limited() {
        let mut events: Vec<SliceEvent> = (0..70_000_u32)
            .map(|number| on_thread(number % 1000, event(true, 1, Some(u128::from(number) + 1))))
            .collect();
        events.push(event(false, 1, Some(1 << 100)));
        let slices = run(&events);
        assert!(slices.len() <= MAX_OPEN_SLICES, "{}", slices.len());
    }

    proptest::proptest! {
        /// Slices of a thread's track never overlap without nesting, whatever the events are.
        #[test]
        fn slices_of_a_thread_track_always_nest(
            steps in proptest::collection::vec((0..3_u32, proptest::bool::ANY, 0..4_u16, 0..3_u128), 0..120),
        ) {
            let events: Vec<SliceEvent> = steps
                .into_iter()
                .map(|(tid, is_start, task, activity)| {
                    on_thread(tid, event(is_start, task, (activity > 0).then_some(activity)))
                })
                .collect();
            let mut survey = SliceSurvey::default();
            events.iter().for_each(|event| survey.observe(event));
            let mut builder = SliceBuilder::new(survey.finish());
            let mut tracks: HashMap<u32, Vec<SliceId>> = HashMap::new();
            let detail = Arc::new(EventDetail::default());
            let check_end = |tracks: &mut HashMap<u32, Vec<SliceId>>, slice: &Slice| {
                if slice.track == SliceTrack::Thread {
                    let stack = tracks.get_mut(&slice.thread.unwrap().0).unwrap();
                    assert_eq!(stack.pop(), Some(slice.id));
                }
            };
            for event in &events {
                let tid = event.thread.1;
                if event.is_start {
                    let begun = builder.begin(event, 0, Some(ThreadIndex(tid)), &detail);
                    if let Some(slice) = begun.filter(|slice| slice.track == SliceTrack::Thread) {
                        tracks.entry(tid).or_default().push(slice.id);
                    }
                } else {
                    builder.end(event).iter().for_each(|slice| check_end(&mut tracks, slice));
                }
            }
            builder.end_all().iter().for_each(|slice| check_end(&mut tracks, slice));
            assert!(tracks.values().all(Vec::is_empty));
        }
    }
}
