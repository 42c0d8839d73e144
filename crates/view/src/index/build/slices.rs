//! Nested slices: the time between the start and the stop event of an activity.
//!
//! ```text
//!   Start A ── Start B ── Stop B ── Stop A        lane 0  [ A                ]
//!                                                 lane 1        [ B ]
//! ```
//!
//! Starts and stops pair as [`traceweir_analysis::pairs`] describes.

use traceweir_analysis::pairs::{OpenPair, OpenPairs, PairEvent, PairPosition};
use traceweir_format::header::Record;

use super::super::Index;
use super::super::kinds::KindIndex;
use super::super::series::Item;
use super::super::threads::{EventTime, MAX_LANES, ThreadIndex};
use super::switches::TraceEnds;

/// A slice whose end has not come.
#[derive(Clone, Copy, Debug)]
struct OpenSlice {
    start: i64,
    row: u64,
    /// Index of the trace.
    file: usize,
    kind: KindIndex,
    lane: usize,
}

/// The slices whose ends have not come.
#[derive(Debug)]
pub(super) struct OpenSlices(OpenPairs<ThreadIndex, OpenSlice>);

impl Default for OpenSlices {
    fn default() -> Self {
        Self(OpenPairs::with_max_per_thread(MAX_LANES))
    }
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
    /// Begins or ends a slice, if the event is a start or a stop.
    pub(super) fn add_event(&mut self, record: &Record<'_>, event: SliceEvent, index: &mut Index) {
        let Some(pair_event) = PairEvent::from_record(record, event.thread) else { return };
        if !pair_event.is_start {
            if let Some(OpenPair { start, data, .. }) = self.0.end(&pair_event) {
                add_slice(start.thread, &data, event.at.ns, index);
            }
        } else if event.thread != ThreadIndex::OTHER {
            self.0.begin(&pair_event, |_, open| {
                let is_free = |lane: &usize| open.iter().all(|pair| pair.data.lane != *lane);
                // A thread has fewer open slices than lanes, so there is a free one.
                let lane = (0..MAX_LANES).find(is_free).unwrap_or(MAX_LANES);
                let SliceEvent { at, kind, row, .. } = event;
                OpenSlice { start: at.ns, row, file: at.file, kind, lane }
            });
        }
    }

    /// Ends the open slices of activities that usually end, at the end of their trace.
    pub(super) fn finish(&mut self, ends: &TraceEnds, index: &mut Index) {
        let open = &mut self.0;
        for thread in open.threads() {
            while let Some(pair) = open.remove(PairPosition { thread, index: 0 }) {
                if open.has_stopped(pair.start.task) {
                    add_slice(thread, &pair.data, ends.end_of(pair.data.file), index);
                }
            }
        }
    }
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
