//! Finds the process and thread that an event is about, from the kernel events of the trace itself.
//!
//! ```text
//!   thread 42  ──start──[ process 7 ]──end──      ──start──[ process 9 ]────▶   ids are reused
//!   lookup     (thread, time) ──▶ process,  (process, time) ──▶ image name
//! ```
//!
//! Without a start event, as with rundown events, a span begins at the end of the id's previous
//! span, or before the trace. Without an end event, it lasts until the id gets another meaning. The
//! memory that a hostile trace can make this module keep is bounded.
//!
//! A kernel event that names no thread in its header, and neither process nor thread in its
//! payload, is about the thread that runs on its processor, if the trace records context switches.

mod processors;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use traceweir_format::header::{NO_ID, Record};
use traceweir_format::kernel::hook::{self, type_of};
use traceweir_format::spec::event::class;
use traceweir_format::spec::types::OutType;

use self::processors::Processors;
use crate::format::{Style, push_text};
use crate::schema::{Field, FieldKind};
use crate::source::SchemaMatch;
use crate::value::Value;
use crate::walk::{Visitor, Walker};

/// The most bytes for the spans of all processes, unless [`Actors::share_limits`] divides them. The
/// spans of all threads have the same limit.
const MAX_SPAN_BYTES: usize = 24 << 20;
/// The estimated memory of one span without its image name, in bytes.
const BYTES_PER_SPAN: usize = 96;

/// The high byte of the hook ids of process events.
const PROCESS_GROUP: u8 = 3;
/// The high byte of the hook ids of thread events.
const THREAD_GROUP: u8 = 5;

/// The longest image name that is kept, in bytes.
const MAX_IMAGE_NAME_BYTES: usize = 1024;

/// A time span in which an id had one meaning.
#[derive(Clone, Debug)]
struct IdSpan<T> {
    from: i64,
    until: i64,
    meaning: T,
}

/// All spans of one kind of id; the spans of each id are in order of time.
#[derive(Debug)]
struct IdSpans<T> {
    lists: Vec<Vec<IdSpan<T>>>,
    /// The index in `lists` by id.
    by_id: HashMap<u32, u32>,
    /// Results of recent lookups in `by_id`, which hashes with the standard hasher.
    recent: RecentIds,
    bytes: usize,
    max_bytes: usize,
}

impl<T> Default for IdSpans<T> {
    fn default() -> Self {
        Self {
            lists: Vec::new(),
            by_id: HashMap::default(),
            recent: RecentIds::default(),
            bytes: 0,
            max_bytes: MAX_SPAN_BYTES,
        }
    }
}

impl<T> IdSpans<T> {
    /// Returns the index in `lists` of the spans of an id.
    #[inline]
    fn list_of(&self, id: u32) -> Option<usize> {
        let found = self.recent.find(id).unwrap_or_else(|| {
            let found = self.by_id.get(&id).copied();
            self.recent.remember(id, found);
            found
        });
        found.and_then(|index| usize::try_from(index).ok())
    }

    /// Adds the latest span of an id.
    fn push(&mut self, id: u32, span: IdSpan<T>) {
        let list = self.list_of(id).and_then(|index| self.lists.get_mut(index));
        if let Some(list) = list {
            return list.push(span);
        }
        let index = u32::try_from(self.lists.len()).unwrap_or(NO_LIST);
        self.lists.push(vec![span]);
        self.by_id.insert(id, index);
        self.recent.remember(id, Some(index));
    }
}

const RECENT_ID_COUNT: usize = 256;
/// Marks an id without spans in [`RecentIds`].
const NO_LIST: u32 = u32::MAX;

/// The results of recent lookups: one word for each slot, with the id in its upper half and the
/// index of its list in its lower half. The words are atomic only to be changed by a lookup.
#[derive(Debug)]
struct RecentIds(Box<[AtomicU64]>);

impl Default for RecentIds {
    fn default() -> Self {
        // The upper half of each word is an id that belongs to another slot.
        let words = (0..RECENT_ID_COUNT as u64).map(|slot| AtomicU64::new(!slot << 32));
        Self(words.collect())
    }
}

impl RecentIds {
    /// Returns the index of a list, or `None` within if the id has none; `None` if the table does
    /// not have the id.
    #[inline]
    fn find(&self, id: u32) -> Option<Option<u32>> {
        let word = self.slot(id)?.load(Ordering::Relaxed);
        let index = u32::try_from(word & u64::from(u32::MAX)).ok()?;
        (word >> 32 == u64::from(id)).then_some((index != NO_LIST).then_some(index))
    }

    fn remember(&self, id: u32, index: Option<u32>) {
        if let Some(slot) = self.slot(id) {
            slot.store(u64::from(id) << 32 | u64::from(index.unwrap_or(NO_LIST)), Ordering::Relaxed);
        }
    }

    #[inline]
    fn slot(&self, id: u32) -> Option<&AtomicU64> {
        self.0.get(usize::try_from(id).ok()? & (RECENT_ID_COUNT - 1))
    }
}

impl<T: Clone + PartialEq> IdSpans<T> {
    /// Records a start, end or rundown event; events come in order of time. `size` is the memory
    /// that `meaning` holds, in bytes.
    fn record(&mut self, id: u32, life: LifeEvent, time: i64, meaning: T, size: usize) {
        let cost = BYTES_PER_SPAN.saturating_add(size);
        let is_within_limit = self.bytes.saturating_add(cost) <= self.max_bytes;
        let list = self.list_of(id).and_then(|index| self.lists.get_mut(index));
        let last = list.and_then(|spans| spans.last_mut());
        let continues_last = last.as_ref().is_some_and(|s| s.until == i64::MAX && s.meaning == meaning);
        // Without a start event the span begins when the id became free, or before the trace.
        let free_since = last.as_ref().map_or(i64::MIN, |s| if s.until == i64::MAX { time } else { s.until });
        if let Some(span) = last.filter(|s| s.until == i64::MAX) {
            match life {
                LifeEvent::End if continues_last => span.until = time,
                LifeEvent::Rundown if continues_last => {}
                // The trace has no end event for the previous span.
                _ => span.until = time,
            }
        }
        if (continues_last && life != LifeEvent::Start) || !is_within_limit {
            return;
        }
        let from = if life == LifeEvent::Start { time } else { free_since };
        let until = if life == LifeEvent::End { time } else { i64::MAX };
        self.bytes = self.bytes.saturating_add(cost);
        self.push(id, IdSpan { from, until, meaning });
    }

    /// Returns the meaning of an id at a time: that of the span that holds the time, else that of
    /// the nearest span.
    fn find(&self, id: u32, time: i64) -> Option<&T> {
        let spans = self.lists.get(self.list_of(id)?)?;
        let next_index = spans.partition_point(|span| span.from <= time);
        let previous = next_index.checked_sub(1).and_then(|index| spans.get(index));
        let next = spans.get(next_index);
        let nearest = match (previous, next) {
            (Some(p), Some(n)) if time > p.until && n.from.abs_diff(time) < time.abs_diff(p.until) => Some(n),
            _ => previous.or(next),
        };
        nearest.map(|span| &span.meaning)
    }
}

/// The kind of a process or thread event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LifeEvent {
    Start,
    End,
    Rundown,
}

impl LifeEvent {
    const fn from_opcode(opcode: u8) -> Option<Self> {
        match opcode {
            1 => Some(Self::Start),
            2 => Some(Self::End),
            // DCStart, DCEnd and Defunct; only processes have Defunct.
            3 | 4 | 39 => Some(Self::Rundown),
            _ => None,
        }
    }
}

/// The process and thread that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Process id, or [`NO_ID`].
    pub pid: u32,
    /// Thread id, or [`NO_ID`].
    pub tid: u32,
}

/// The processes and threads of a trace.
#[derive(Debug, Default)]
pub struct Actors {
    threads: IdSpans<u32>,
    processes: IdSpans<Arc<str>>,
    processors: Processors,
    walker: Walker,
}

/// The first process id, the first thread id, and the image name in the payload of an event.
#[derive(Default)]
struct PayloadIds {
    pid: Option<u32>,
    tid: Option<u32>,
    image: Option<Arc<str>>,
}

impl<'p> Visitor<'p> for PayloadIds {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let FieldKind::Value { output, .. } = &field.kind else { return };
        let id = || value.as_u64().and_then(|v| u32::try_from(v).ok());
        match *output {
            OutType::PID if self.pid.is_none() => self.pid = id(),
            OutType::TID if self.tid.is_none() => self.tid = id(),
            _ if &*field.name == "ImageFileName" => {
                let mut name = Vec::new();
                push_text(field, &value, Style::default(), &mut name);
                name.truncate(MAX_IMAGE_NAME_BYTES);
                self.image = Some(String::from_utf8_lossy(&name).into());
            }
            _ => {}
        }
    }
}

impl Actors {
    /// Divides the memory limit among traces that are read together.
    pub fn share_limits(&mut self, traces: usize) {
        let max_bytes = MAX_SPAN_BYTES.checked_div(traces).unwrap_or(MAX_SPAN_BYTES);
        (self.threads.max_bytes, self.processes.max_bytes) = (max_bytes, max_bytes);
    }

    /// Returns whether [`Actors::observe`] may learn from an event.
    #[inline]
    #[must_use]
    pub fn is_informative(record: &Record<'_>) -> bool {
        record.hook().is_some_and(|hook| {
            let [opcode, group] = hook.to_le_bytes();
            matches!(group, PROCESS_GROUP | THREAD_GROUP) && LifeEvent::from_opcode(opcode).is_some()
        })
    }

    /// Learns from a process or thread event.
    pub fn observe(&mut self, record: &Record<'_>, matched: &SchemaMatch<'_, '_>) {
        let (class, Some(life)) = (record.provider(), LifeEvent::from_opcode(record.descriptor().opcode))
        else {
            return;
        };
        let ids = read_payload_ids(record, matched, &mut self.walker);
        let time = record.time();
        match (ids.pid, ids.tid, ids.image) {
            (Some(pid), _, Some(image)) if class == class::PROCESS => {
                let size = image.len();
                self.processes.record(pid, life, time, image, size);
            }
            (Some(pid), Some(tid), _) if class == class::THREAD => {
                self.threads.record(tid, life, time, pid, 0)
            }
            _ => {}
        }
    }

    /// Reads a context switch ahead of time order, to learn which threads run when the trace
    /// begins.
    #[inline]
    pub fn read_switch_ahead(&mut self, record: &Record<'_>) {
        self.processors.record_switch(record, true);
    }

    /// Follows context switches in time order, to know which threads run.
    #[inline]
    pub fn follow(&mut self, record: &Record<'_>) {
        self.processors.record_switch(record, false);
    }

    /// Returns the thread that runs on the processor of a kernel event whose header names no
    /// thread, if the context switches of the trace name it.
    #[must_use]
    pub fn running(&self, record: &Record<'_>) -> Option<Actor> {
        self.to_actor(find_running(&self.processors, record), record)
    }

    /// Returns a copy of what is known of the processors, to follow the context switches apart from
    /// the spans of processes and threads, which threads can share.
    #[must_use]
    pub fn switch_follower(&self) -> SwitchFollower {
        SwitchFollower(self.processors.clone())
    }

    /// Returns a running thread and its process at the time of an event.
    #[must_use]
    pub fn to_actor(&self, running: Option<u32>, record: &Record<'_>) -> Option<Actor> {
        let tid = running?;
        Some(Actor { pid: self.process_of(tid, record.time()).unwrap_or(NO_ID), tid })
    }

    /// Returns the process and thread that a kernel event is about, if they differ from those in
    /// its header.
    pub fn attribute(&mut self, record: &Record<'_>, matched: &SchemaMatch<'_, '_>) -> Option<Actor> {
        let running = find_running(&self.processors, record);
        let mut walker = core::mem::take(&mut self.walker);
        let actor = self.attribute_with(record, matched, running, &mut walker);
        self.walker = walker;
        actor
    }

    /// Like [`Actors::attribute`], for a thread that does not follow the context switches: `running`
    /// is the result of [`SwitchFollower::running_thread`] at the time of the event.
    pub fn attribute_with(
        &self,
        record: &Record<'_>,
        matched: &SchemaMatch<'_, '_>,
        running: Option<u32>,
        walker: &mut Walker,
    ) -> Option<Actor> {
        record.hook()?;
        let ids = read_ids(record, matched, walker);
        let header = Actor { pid: record.process_id(), tid: record.thread_id() };
        let actor = match ids {
            (Some(pid), Some(tid)) => Actor { pid, tid },
            // The payload of a configuration event names the process of a service; the header names
            // the thread that requested the event.
            (Some(pid), None) if record.provider() == class::CONFIG => Actor { pid, tid: header.tid },
            // Either a thread of the image's process loads the image (then the header names this
            // thread), or a thread of the parent process does.
            (Some(pid), None) if is_image_load(record) && pid == header.pid => header,
            (Some(pid), None) => Actor { pid, tid: NO_ID },
            (None, Some(tid)) => Actor { pid: self.process_of(tid, record.time()).unwrap_or(NO_ID), tid },
            (None, None) => return self.to_actor(running, record),
        };
        (actor != header).then_some(actor)
    }

    /// Returns the process that a thread belonged to at a time.
    #[must_use]
    pub fn process_of(&self, tid: u32, time: i64) -> Option<u32> {
        // All idle threads have the id 0 and belong to process 0.
        self.threads.find(tid, time).copied().or((tid == 0).then_some(0))
    }

    /// Returns the image name of a process at the time of an event. For a process end this is the
    /// image before the event: a process that executes another program ends and starts with the
    /// same time stamp.
    #[must_use]
    pub fn image_at(&self, pid: u32, record: &Record<'_>) -> Option<&str> {
        let is_end = record.hook() == Some(hook::PROCESS_END);
        self.image_of(pid, record.time().saturating_sub(i64::from(is_end)))
    }

    /// Returns the image name of a process at a time.
    #[inline]
    #[must_use]
    pub fn image_of(&self, pid: u32, time: i64) -> Option<&str> {
        if self.processes.lists.is_empty() {
            return None;
        }
        self.processes.find(pid, time).map(|image| &**image)
    }
}

/// Follows the context switches of a trace in time order.
#[derive(Clone, Debug)]
pub struct SwitchFollower(Processors);

impl SwitchFollower {
    /// Follows a record in time order; see [`Actors::follow`].
    #[inline]
    pub fn follow(&mut self, record: &Record<'_>) {
        self.0.record_switch(record, false);
    }

    /// Returns the thread that runs on the processor of a kernel event whose header names no thread.
    #[inline]
    #[must_use]
    pub fn running_thread(&self, record: &Record<'_>) -> Option<u32> {
        find_running(&self.0, record)
    }
}

#[inline]
fn find_running(processors: &Processors, record: &Record<'_>) -> Option<u32> {
    record.hook().filter(|_| record.thread_id() == NO_ID)?;
    processors.running_thread(record.cpu(), record.time())
}

/// Walks a payload for its ids and image name. A payload that ends early still gives the ids before
/// its end.
fn read_payload_ids(record: &Record<'_>, matched: &SchemaMatch<'_, '_>, walker: &mut Walker) -> PayloadIds {
    let mut ids = PayloadIds::default();
    let _ = walker.walk(&matched.prepared.schema, matched.payload, record.pointer_size(), &mut ids);
    ids
}

/// Returns the first process id and the first thread id in a payload, without a walk if the schema
/// shows where they are.
#[inline]
fn read_ids(
    record: &Record<'_>,
    matched: &SchemaMatch<'_, '_>,
    walker: &mut Walker,
) -> (Option<u32>, Option<u32>) {
    if let Some(offsets) = matched.prepared.id_offsets(record.pointer_size()) {
        return offsets.read(matched.payload);
    }
    let ids = read_payload_ids(record, matched, walker);
    (ids.pid, ids.tid)
}

fn is_image_load(record: &Record<'_>) -> bool {
    record.provider() == class::IMAGE && record.descriptor().opcode == type_of(hook::IMAGE_LOAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_id_keeps_each_meaning_in_its_time() {
        let mut spans = IdSpans::default();
        spans.record(42, LifeEvent::Rundown, 100, 7, 0);
        spans.record(42, LifeEvent::End, 200, 7, 0);
        spans.record(42, LifeEvent::Start, 300, 9, 0);
        let process_at = |time| spans.find(42, time).copied();
        assert_eq!(
            (process_at(0), process_at(150), process_at(299), process_at(301), process_at(i64::MAX)),
            (Some(7), Some(7), Some(9), Some(9), Some(9))
        );
        assert_eq!(spans.find(43, 0), None);
    }

    #[test]
    fn missing_end_does_not_hide_the_next_start() {
        let mut spans = IdSpans::default();
        spans.record(1, LifeEvent::Start, 10, "a", 0);
        spans.record(1, LifeEvent::Start, 20, "b", 0);
        assert_eq!((spans.find(1, 15), spans.find(1, 25)), (Some(&"a"), Some(&"b")));
    }

    #[test]
    fn spans_are_bounded_and_found_by_time() {
        let mut spans = IdSpans::default();
        for time in 0..1_000_000_i64 {
            spans.record(7, LifeEvent::Start, time, time, 0);
        }
        assert!(spans.bytes <= MAX_SPAN_BYTES && spans.by_id.len() == 1);
        let span_count = spans.lists[0].len() as i64;
        for time in (0..span_count).step_by(997) {
            assert_eq!(spans.find(7, time), Some(&time));
        }
        for id in 0..1_000_000 {
            spans.record(id, LifeEvent::End, 0, 0, 1 << 10);
        }
        assert!(
            spans.bytes <= MAX_SPAN_BYTES && spans.by_id.len() < 1000,
            "ids without spans must not get empty lists"
        );
    }

    #[test]
    fn traces_that_are_read_together_share_the_limit() {
        let mut actors = Actors::default();
        actors.share_limits(4096);
        for id in 0..100_000 {
            actors.threads.record(id, LifeEvent::Start, 0, 1, 0);
            actors.processes.record(id, LifeEvent::Start, 0, "p".into(), 1);
        }
        assert!(actors.threads.bytes <= MAX_SPAN_BYTES / 4096);
        assert!(actors.processes.bytes <= MAX_SPAN_BYTES / 4096);
        assert!(actors.threads.by_id.len() > 10);
    }

    #[test]
    fn ids_that_share_a_slot_keep_their_own_spans() {
        let mut spans = IdSpans::default();
        assert_eq!((spans.find(0, 0), spans.find(u32::MAX, 0)), (None, None));
        for id in (0..2000).chain([u32::MAX]) {
            assert_eq!(spans.find(id, 0), None);
            spans.record(id, LifeEvent::Rundown, 0, id, 0);
            assert_eq!(spans.find(id, 0), Some(&id));
        }
        assert!((0..2000).chain([u32::MAX]).all(|id| spans.find(id, 0) == Some(&id)));
    }

    #[test]
    fn end_without_start_covers_the_time_before() {
        let mut spans = IdSpans::default();
        spans.record(5, LifeEvent::End, 10, 3, 0);
        assert_eq!(spans.find(5, -1), Some(&3));
    }
}
