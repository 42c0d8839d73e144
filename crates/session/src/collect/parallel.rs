//! Drains the streams of many CPUs with several threads.
//!
//! ```text
//!   one turn:  now, new regions ─┬─▶ thread: streams  0 to 15 ─┐
//!                                ├─▶ thread: streams 16 to 31 ─┼─▶ all have ended: completeness stamp
//!                                └─▶ this thread: the others ──┘
//! ```
//!
//! 1. A thread has its streams, their buffers and their rings for itself, and a copy of the writer of
//!    each region. The threads share the pool, the queue to the writer thread and some counters: a few
//!    operations for each buffer, none for each event.
//! 2. The counter is read and new regions are taken in before the threads start, in this order: a
//!    process that attaches later writes only stamps after the counter value, up to which the
//!    threads merge (K8). In a drain of all records, each stream is merged up to the time of its
//!    poll.
//! 3. Threads are started only for much data: for streams that a first turn did not empty, or after a
//!    drain that took [`MIN_PARALLEL_BYTES`]. They end with the turn.
//! 4. A thread that finds no free buffer ends its turn. Streams of other threads may hold all
//!    buffers, so the next turn is one of the collector alone, which submits them and waits. The same
//!    follows if a thread could not be started.
//! 5. Sessions with a capture or a stack cache are drained by one thread. The collector takes a
//!    backlog before it starts threads; if a slice of it is not enough, the next turn is one of the
//!    collector alone.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::thread::Builder;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use traceweir_transport::ring::RingReader;

use super::fill::BufferFiller;
use super::{Collector, CpuStream, DrainReach, SLICE_BYTES, TurnLimit, merge_all, open_lanes};
use crate::clock::SessionClock;
use crate::fault::contain_panic;
use crate::merge::MergeOutcome;
use crate::messages::Job;
use crate::record::RegionWriter;
use crate::shared::SharedState;

/// Streams of one thread. A thread collects what 16 CPUs write if each writes about a million
/// events a second (docs/scaling.md); a CPU that only writes events produces more than a thread
/// collects.
pub(super) const STREAMS_PER_THREAD: usize = 16;
/// After a drain of this many bytes, several threads drain from the first turn on.
pub(super) const MIN_PARALLEL_BYTES: usize = 4 << 20;
/// Smallest number of bytes that a stream takes in a turn.
const MIN_SLICE_BYTES: usize = 16 << 10;
/// Stack of a helping thread.
pub(super) const HELPER_STACK_BYTES: usize = 256 << 10;

/// What all threads of a turn share.
#[derive(Clone, Copy)]
struct TurnContext<'c> {
    clock: &'c SessionClock,
    shared: &'c SharedState,
    jobs: &'c Sender<Job>,
    reported_lost: &'c AtomicU64,
    limit: TurnLimit,
}

/// Consecutive streams, which one thread drains.
struct StreamGroup<'g> {
    /// Index of the first stream.
    first: usize,
    streams: &'g mut [CpuStream],
    /// Rings of the streams, each slice with the index of its source.
    rings: Vec<(usize, &'g mut [RingReader])>,
    /// The writers of all sources.
    writers: Vec<&'g mut RegionWriter>,
    /// Indices of the streams with more records.
    unfinished: Vec<usize>,
    outcome: MergeOutcome,
    taken_bytes: usize,
    /// The group was not merged, or ran out of buffers.
    needs_lone_turn: bool,
}

impl Collector {
    /// Returns whether several threads should merge these streams in this turn.
    pub(super) fn can_merge_in_parallel(&self, turn: u32, unfinished: &[usize]) -> bool {
        let group_of = |stream: usize| stream / self.streams_per_thread.max(1);
        let has_several_groups =
            unfinished.first().zip(unfinished.last()).is_some_and(|(a, b)| group_of(*a) != group_of(*b));
        has_several_groups
            && (turn > 1 || self.last_drain_bytes >= MIN_PARALLEL_BYTES)
            && !self.needs_lone_turn
            && self.captures.is_empty()
            && self.stacks.is_none()
            && !self.has_backlog
    }

    /// Merges up to [`SLICE_BYTES`] of each of these streams, with one thread for each group of
    /// streams. Retains the streams with more.
    pub(super) fn merge_in_parallel(
        &mut self,
        unfinished: &mut Vec<usize>,
        reach: DrainReach,
        outcome: &mut MergeOutcome,
    ) {
        let now = self.clock.counter().now();
        self.add_attached_sources();
        for stream_index in 0..usize::from(self.shared.streams) {
            if self.has_backlog {
                self.merge_backlog(stream_index, SLICE_BYTES, outcome);
            }
        }
        if self.has_backlog {
            return;
        }
        // Live consumers get no completeness stamp during a turn, so it is short for them.
        let is_live = self.shared.stats.consumers.load(Relaxed) > 0;
        let turn_bytes = if is_live { self.report_interval_bytes() } else { usize::MAX };
        let fair_share = turn_bytes.checked_div(unfinished.len()).unwrap_or(0);
        let limit = self.turn_limit(now, fair_share.clamp(MIN_SLICE_BYTES, SLICE_BYTES), reach);
        let context = TurnContext {
            clock: &self.clock,
            shared: &self.shared,
            jobs: &self.jobs,
            reported_lost: &self.reported_lost,
            limit,
        };
        let streams = self.streams.get_mut(..usize::from(self.shared.streams)).unwrap_or_default();
        let mut groups: Vec<StreamGroup<'_>> = streams
            .chunks_mut(self.streams_per_thread)
            .enumerate()
            .map(|(index, streams)| StreamGroup::new(index.saturating_mul(self.streams_per_thread), streams))
            .collect();
        let copies = groups.len().saturating_sub(1);
        for (index, source) in self.sources.iter_mut().enumerate() {
            let writer = &mut source.writer;
            source.writer_copies.resize_with(copies, || writer.clone());
            let writers = std::iter::once(writer).chain(&mut source.writer_copies);
            groups.iter_mut().zip(writers).for_each(|(group, writer)| group.writers.push(writer));
            let Some(reader) = source.reader.as_mut() else { continue };
            let (fast, locked) = reader.rings().split_at_mut_checked(self.cpus).unwrap_or_default();
            for rings in [fast, locked] {
                let parts = rings.chunks_mut(self.streams_per_thread);
                groups.iter_mut().zip(parts).for_each(|(group, part)| group.rings.push((index, part)));
            }
        }
        for stream in unfinished.drain(..) {
            let group = stream.checked_div(self.streams_per_thread).and_then(|index| groups.get_mut(index));
            group.into_iter().for_each(|group| group.unfinished.push(stream));
        }
        groups.retain(|group| !group.unfinished.is_empty());
        merge_groups(&mut groups, context, self.helper_stack_bytes);
        let mut taken_bytes = 0_usize;
        for group in &mut groups {
            taken_bytes = taken_bytes.saturating_add(group.taken_bytes);
            unfinished.append(&mut group.unfinished);
            outcome.has_taken |= group.outcome.has_taken;
            outcome.has_waiting |= group.outcome.has_waiting;
            outcome.damaged.append(&mut group.outcome.damaged);
        }
        let is_short = groups.iter().any(|group| group.needs_lone_turn);
        drop(groups);
        #[cfg(test)]
        {
            self.parallel_turns += 1;
        }
        self.needs_lone_turn = is_short || self.shared.pool.available() == 0;
        self.count_taken_bytes(taken_bytes);
    }
}

/// Merges the last group on this thread and the others on threads of their own.
fn merge_groups(groups: &mut [StreamGroup<'_>], context: TurnContext<'_>, helper_stack_bytes: usize) {
    let Some((own_group, others)) = groups.split_last_mut() else { return };
    let is_completed = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for group in others {
            // The group is used again below if no thread can be started.
            let group = &mut *group;
            let thread = Builder::new().name("weir-collect".into()).stack_size(helper_stack_bytes);
            let work = move || {
                group.move_near_cpus();
                // The panic of a thread ends this session, as one of the collector does.
                let is_completed = contain_panic(|| group.merge(context));
                context.shared.stats.add_helper_time();
                is_completed
            };
            match thread.spawn_scoped(scope, work) {
                Ok(thread) => threads.push(thread),
                // The next turn, which is one of the collector alone, takes the streams.
                Err(_) => break,
            }
        }
        own_group.merge(context);
        // The scope waits for threads that are not joined here.
        threads.into_iter().all(|thread| thread.join().unwrap_or(false))
    });
    assert!(is_completed, "a thread that drains has panicked");
}

impl<'g> StreamGroup<'g> {
    fn new(first: usize, streams: &'g mut [CpuStream]) -> Self {
        let (rings, writers, unfinished) = (Vec::new(), Vec::new(), Vec::new());
        let outcome = MergeOutcome::default();
        Self { first, streams, rings, writers, unfinished, outcome, taken_bytes: 0, needs_lone_turn: true }
    }

    /// Lets this thread run only on the CPUs of the streams, which have the rings in their caches, if
    /// it may run on all of them.
    fn move_near_cpus(&self) {
        let Ok(allowed) = sched_getaffinity(None) else { return };
        let mut cpus = CpuSet::new();
        for cpu in self.streams.iter().map(|stream| usize::from(stream.cpu)) {
            if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
                return;
            }
            cpus.set(cpu);
        }
        // Where that is not allowed, the thread runs anywhere.
        let _ = sched_setaffinity(None, &cpus);
    }

    /// Merges the unfinished streams.
    fn merge(&mut self, context: TurnContext<'_>) {
        self.needs_lone_turn = false;
        let mut finished = Vec::new();
        for &stream in &self.unfinished {
            let index = stream.saturating_sub(self.first);
            let mut filler = BufferFiller {
                streams: self.streams,
                stream_index: index,
                writers: &mut self.writers,
                clock: context.clock,
                shared: context.shared,
                jobs: context.jobs,
                reported_lost: context.reported_lost,
                is_in_parallel: true,
                events: 0,
                damaged: 0,
                too_large: 0,
                last_offset: 0,
                stacks: None,
            };
            let rings = self.rings.iter_mut();
            let rings = rings.filter_map(|(source, rings)| Some((*source, rings.get_mut(index)?)));
            (self.outcome.has_more, self.outcome.bytes) = (false, 0);
            let lanes = open_lanes(rings, &mut self.outcome);
            merge_all(lanes, context.limit, &mut filler, &mut self.outcome);
            drop(filler);
            self.taken_bytes = self.taken_bytes.saturating_add(self.outcome.bytes);
            if !self.outcome.has_more {
                finished.push(stream);
                if let Some(stream) = self.streams.get_mut(index) {
                    stream.merged_up_to = Some(context.limit.now);
                }
            } else if self.outcome.bytes < context.limit.bytes {
                self.needs_lone_turn = true;
            }
        }
        self.unfinished.retain(|stream| !finished.contains(stream));
    }
}
