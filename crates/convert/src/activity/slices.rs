//! Slices: the time between the start event and the stop event of an activity.
//!
//! ```text
//!   survey      every start and stop ──▶ tasks that stop, tasks that overlap others
//!   main pass   start of a task that stops ──▶ SliceBegin      stop ──▶ SliceEnd
//! ```
//!
//! S1  Starts and stops pair as [`traceweir_analysis::pairs`] describes. A thread is identified by its
//!     machine, process and thread id.
//! S2  The start of a task that never stops, and a stop without a start, are not slices.
//! S3  Slices of the track of a thread nest. Tasks whose slices overlap others without nesting, or end
//!     on another thread, are on tracks of their own.
//! S4  A nested slice that ends before those inside of it ends them too.
//! S5  The filters select slices by their start events. Those that they do not select take part in
//!     the pairing all the same, without names and fields, and are not delivered.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use traceweir_analysis::pairs::{
    Begun, OpenPair, OpenPairs, PairActivity, PairEvent, PairPosition, PairTask,
};
use traceweir_format::Guid;
use traceweir_format::header::Record;

use super::event::{EventDetail, Slice, SliceId, SliceTrack};
use super::lives::ThreadIndex;

/// The most slices that are open on one thread.
const MAX_OPEN_PER_THREAD: usize = 256;
/// The most tracks of one task in one process.
const MAX_LANES: usize = 256;
/// The most tasks to remember.
const MAX_TASKS: usize = 1 << 16;
/// The most bytes of fields that open slices keep.
const MAX_DETAIL_BYTES: usize = 32 << 20;

/// A thread by machine, process and thread id.
pub(super) type ThreadKey = (u16, u32, u32);

/// An event that may begin or end a slice.
pub(super) type SliceEvent = PairEvent<ThreadKey>;

/// Returns the slice event of a record; `None` if the record is neither a start nor a stop.
pub(super) fn slice_event(record: &Record<'_>, machine: u16) -> Option<SliceEvent> {
    SliceEvent::from_record(record, (machine, record.process_id(), record.thread_id()))
}

/// Returns the slice event of the start or end of a system call. The thread id stands for the process,
/// so that the calls of each thread have a track of their own.
pub(super) const fn system_call_event(machine: u16, tid: u32, provider: Guid, is_start: bool) -> SliceEvent {
    let (thread, task) = ((machine, tid, tid), PairTask::of_provider(provider));
    SliceEvent { thread, task, activity: PairActivity::None, is_start, id_and_version: (0, 0) }
}

/// What a survey of all traces finds out about tasks.
#[derive(Debug, Default)]
pub(super) struct SliceTasks {
    stopping: HashSet<PairTask>,
    overlapping: HashSet<PairTask>,
}

/// Finds out which tasks stop and which overlap others.
#[derive(Debug)]
pub(super) struct SliceSurvey {
    open: OpenPairs<ThreadKey, ()>,
    overlapping: HashSet<PairTask>,
    /// A task that stopped, and a task whose slice began inside of it and was still open.
    overlaps: HashSet<(PairTask, PairTask)>,
}

impl SliceSurvey {
    pub(super) fn new() -> Self {
        let open = OpenPairs::with_max_per_thread(MAX_OPEN_PER_THREAD);
        Self { open, overlapping: HashSet::new(), overlaps: HashSet::new() }
    }

    /// Observes an event.
    pub(super) fn observe(&mut self, event: &SliceEvent) {
        if event.is_start {
            self.open.begin(event, |_, _| ());
            return;
        }
        let found = self.open.find(event);
        if let Some(PairPosition { thread, index }) = found {
            if thread != event.thread && self.overlapping.len() < MAX_TASKS {
                self.overlapping.insert(event.task);
            }
            for inner in self.open.open_on(thread).iter().skip(index.saturating_add(1)) {
                if self.overlaps.len() < MAX_TASKS {
                    self.overlaps.insert((event.task, inner.start.task));
                }
            }
        }
        self.open.end(event);
    }

    /// Adds system calls as a task that stops. They have tracks of their own: a process writes an event
    /// within a system call, so the activity that the event begins overlaps the call.
    pub(super) fn add_system_calls(&mut self, task: PairTask) {
        self.open.add_stopping(task);
        if self.overlapping.len() < MAX_TASKS {
            self.overlapping.insert(task);
        }
    }

    /// Returns what the survey found.
    pub(super) fn finish(self) -> SliceTasks {
        let Self { open, mut overlapping, overlaps } = self;
        let stopping = open.into_stopping();
        // A start that never stops overlaps nothing.
        let overlaps = overlaps.into_iter().filter(|(_, inner)| stopping.contains(inner));
        overlapping.extend(overlaps.map(|(outer, _)| outer));
        SliceTasks { stopping, overlapping }
    }
}

/// The tracks of one task in one process that have an open slice.
type LaneKey = (u16, u32, PairTask);

/// Begins and ends the slices of the main pass.
#[derive(Debug)]
pub(super) struct SliceBuilder {
    open: OpenPairs<ThreadKey, Slice>,
    tasks: SliceTasks,
    lanes: HashMap<LaneKey, Vec<bool>>,
    detail_bytes: usize,
    /// Name and detail of the slices that the filters do not select.
    no_name: Arc<str>,
    no_detail: Arc<EventDetail>,
    /// Number of open slices that the filters select.
    selected: usize,
    /// Number of nested slices that ended with the slice around them (S4).
    pub(super) forced_ends: u64,
}

impl SliceBuilder {
    pub(super) fn new(tasks: SliceTasks) -> Self {
        let mut open = OpenPairs::with_max_per_thread(MAX_OPEN_PER_THREAD);
        tasks.stopping.iter().for_each(|task| open.add_stopping(*task));
        Self {
            open,
            tasks,
            lanes: HashMap::new(),
            detail_bytes: 0,
            no_name: "".into(),
            no_detail: Arc::default(),
            selected: 0,
            forced_ends: 0,
        }
    }

    /// Begins a slice, unless its task never stops or there are too many open slices.
    pub(super) fn begin(
        &mut self,
        event: &SliceEvent,
        begin_ns: i64,
        thread: Option<ThreadIndex>,
        name: Arc<str>,
        detail: &Arc<EventDetail>,
    ) -> Option<Slice> {
        self.open_slice(
            event,
            Slice {
                id: SliceId(0),
                track: SliceTrack::Thread,
                begin_ns,
                thread,
                name,
                detail: Arc::clone(detail),
                is_selected: true,
            },
        )
    }

    /// Begins a slice that the filters do not select.
    pub(super) fn begin_unselected(&mut self, event: &SliceEvent, begin_ns: i64) {
        let (name, detail) = (Arc::clone(&self.no_name), Arc::clone(&self.no_detail));
        let (id, track, thread, is_selected) = (SliceId(0), SliceTrack::Thread, None, false);
        self.open_slice(event, Slice { id, track, begin_ns, thread, name, detail, is_selected });
    }

    /// Returns whether a slice is open that the filters select.
    pub(super) const fn has_selected(&self) -> bool {
        self.selected > 0
    }

    /// Returns whether a stop ends a slice that the filters select.
    pub(super) fn ends_selected(&self, stop: &SliceEvent) -> bool {
        let found = self.open.find(stop);
        let pair = found.and_then(|found| self.open.open_on(found.thread).get(found.index));
        pair.is_some_and(|pair| pair.data.is_selected)
    }

    /// Opens a slice, and gives it its id and its track.
    fn open_slice(&mut self, event: &SliceEvent, slice: Slice) -> Option<Slice> {
        if !self.tasks.stopping.contains(&event.task) {
            return None;
        }
        let track = if self.tasks.overlapping.contains(&event.task) {
            SliceTrack::Task { lane: self.take_lane(event)? }
        } else {
            SliceTrack::Thread
        };
        let bytes = kept_bytes(&slice);
        let has_room = self.detail_bytes.saturating_add(bytes) <= MAX_DETAIL_BYTES;
        let detail = if has_room { slice.detail } else { Arc::new(slice.detail.without_fields()) };
        let mut new_slice = Slice { track, detail, ..slice };
        let mut slice = None;
        // No start gives way to another one, because the tasks of all open starts stop.
        let begun = self.open.begin(event, |id, _| {
            new_slice.id = SliceId(id);
            slice.insert(new_slice).clone()
        });
        match (&slice, track) {
            (Some(slice), _) => {
                debug_assert!(matches!(begun, Begun::Open { replaced: None, .. }), "{begun:?}");
                self.detail_bytes = self.detail_bytes.saturating_add(kept_bytes(slice));
                self.selected = self.selected.saturating_add(usize::from(slice.is_selected));
            }
            (None, SliceTrack::Task { lane }) => self.release_lane(event, lane),
            (None, SliceTrack::Thread) => {}
        }
        slice
    }

    /// Ends a slice. Returns the ended slices, the innermost first; none if there is no start. Those
    /// inside of the slice are left out if the filters do not select them; the slice itself is not.
    pub(super) fn end(&mut self, stop: &SliceEvent) -> Vec<Slice> {
        let Some(position) = self.open.find(stop) else { return Vec::new() };
        let PairPosition { thread, index } = position;
        let mut ended = Vec::new();
        let open = self.open.open_on(thread);
        let is_nested = |pair: &OpenPair<ThreadKey, Slice>| pair.data.track == SliceTrack::Thread;
        if open.get(index).is_some_and(is_nested) {
            let inner = open.iter().enumerate().skip(index.saturating_add(1));
            let inner: Vec<usize> = inner.filter(|(_, pair)| is_nested(pair)).map(|(i, _)| i).collect();
            for index in inner.into_iter().rev() {
                let inner = self.close(PairPosition { thread, index }).filter(|slice| slice.is_selected);
                self.forced_ends = self.forced_ends.saturating_add(u64::from(inner.is_some()));
                ended.extend(inner);
            }
        }
        ended.extend(self.close(position));
        ended
    }

    /// Ends all open slices, for the end of the traces, and returns those that the filters select.
    /// The innermost slices of a thread are first.
    pub(super) fn end_all(&mut self) -> Vec<Slice> {
        let mut ended = Vec::new();
        for thread in self.open.threads() {
            while let Some(index) = self.open.open_on(thread).len().checked_sub(1) {
                let slice = self.close(PairPosition { thread, index });
                ended.extend(slice.filter(|slice| slice.is_selected));
            }
        }
        ended
    }

    fn close(&mut self, position: PairPosition<ThreadKey>) -> Option<Slice> {
        let pair = self.open.remove(position)?;
        if let SliceTrack::Task { lane } = pair.data.track {
            self.release_lane(&pair.start, lane);
        }
        self.detail_bytes = self.detail_bytes.saturating_sub(kept_bytes(&pair.data));
        self.selected = self.selected.saturating_sub(usize::from(pair.data.is_selected));
        Some(pair.data)
    }

    /// Takes the first free track of the task of an event; `None` if all are in use.
    fn take_lane(&mut self, event: &SliceEvent) -> Option<u32> {
        let lanes = self.lanes.entry(lane_key(event)).or_default();
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
        let key = lane_key(event);
        let Some(lanes) = self.lanes.get_mut(&key) else { return };
        if let Some(is_used) = lanes.get_mut(lane as usize) {
            *is_used = false;
        }
        if lanes.iter().all(|is_used| !is_used) {
            self.lanes.remove(&key);
        }
    }
}

/// Returns the memory of the detail of an open slice. Those that are not selected share one.
fn kept_bytes(slice: &Slice) -> usize {
    if slice.is_selected { slice.detail.memory_bytes() } else { 0 }
}

const fn lane_key(event: &SliceEvent) -> LaneKey {
    let (machine, pid, _) = event.thread;
    (machine, pid, event.task)
}

#[cfg(test)]
mod tests {
    use traceweir_analysis::pairs::MAX_OPEN_PAIRS;

    use super::*;

    const THREAD: ThreadKey = (0, 1, 7);

    fn event(is_start: bool, task: u16, activity: Option<u128>) -> SliceEvent {
        let activity = activity.map_or(PairActivity::None, |id| PairActivity::Id(Guid::from_u128(id)));
        let task = PairTask::of_provider(Guid::from_u128(task.into()));
        SliceEvent { thread: THREAD, task, activity, is_start, id_and_version: (0, 0) }
    }

    fn on_thread(tid: u32, event: SliceEvent) -> SliceEvent {
        SliceEvent { thread: (0, 1, tid), ..event }
    }

    /// Runs both passes over events, a nanosecond apart. Returns begin, end and track of each slice in
    /// the order of the ends.
    fn run(events: &[SliceEvent]) -> Vec<(i64, i64, SliceTrack)> {
        let mut survey = SliceSurvey::new();
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
                builder.begin(event, time, None, "".into(), &detail);
            } else {
                add(builder.end(event), time);
            }
        }
        add(builder.end_all(), time + 1);
        assert!(builder.open.is_empty() && builder.lanes.is_empty());
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
        assert!(slices.len() <= MAX_OPEN_PAIRS, "{}", slices.len());
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
            let mut survey = SliceSurvey::new();
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
                let tid = event.thread.2;
                if event.is_start {
                    let begun = builder.begin(event, 0, Some(ThreadIndex(tid)), "".into(), &detail);
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
