//! Events with stacks: context switches, wakes and samples wait for their stacks, and then become
//! run spans, states of threads, waits and samples.

use std::collections::HashMap;

use traceweir_analysis::report::{ContextSwitch, Scheduler, ThreadReturn, UnfinishedState};
use traceweir_decode::stack::{Joined, Joiner, Stack, StackClaim};
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::stack_key::Definitions;
use traceweir_format::stack_walk::StackWalk;

use super::super::stacks::StackId;
use super::super::threads::{EventTime, ThreadIndex};
use super::super::{CpuIndex, Index, RowPosition, ThreadState};

/// The most threads that the schedulers of all traces follow.
const MAX_SCHEDULED_THREADS: usize = 1 << 18;
/// The threads that the scheduler of a trace follows however many traces there are.
const MIN_SCHEDULED_THREADS: usize = 1 << 8;
/// The time between two samples of a trace that does not contain it, and the longest one, in units of
/// 100 ns.
const DEFAULT_SAMPLE_INTERVAL: u64 = 10_000;
const MAX_SAMPLE_INTERVAL: u64 = 10_000_000;
/// The most wakes that wait for their thread to run.
const MAX_WAKERS: usize = 1 << 17;

/// A thread and its id.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberedThread {
    pub(super) index: ThreadIndex,
    pub(super) tid: u32,
}

impl NumberedThread {
    /// Returns the id under which the scheduler follows the thread: its index, so that reused thread
    /// ids are different threads. The idle threads have index 0, which is their id too.
    const fn scheduler_id(self) -> u32 {
        if self.tid == NO_ID { NO_ID } else { self.index.0 }
    }
}

/// An event that waits for its stack.
#[derive(Debug)]
pub(super) enum Pending {
    Switch {
        at: EventTime,
        cpu: u16,
        new: NumberedThread,
        old: NumberedThread,
        state: u8,
        reason: u8,
    },
    Ready {
        at: EventTime,
        thread: NumberedThread,
        waker: ThreadIndex,
    },
    Sample {
        at: EventTime,
        cpu: u16,
        thread: ThreadIndex,
        address: u64,
        weight: u64,
        is_kernel: bool,
        /// The sample shows that the processor was idle.
        is_idle: bool,
    },
    /// A thread ended.
    End {
        at: EventTime,
        thread: NumberedThread,
    },
    /// A trace has no further events.
    TraceEnd {
        file: usize,
        end: i64,
    },
}

/// The time of the last event of each trace.
#[derive(Debug, Default)]
pub(super) struct TraceEnds(Vec<i64>);

impl TraceEnds {
    /// Records an event of a trace.
    pub(super) fn add(&mut self, file: usize, time: i64) {
        if file >= self.0.len() && file < RowPosition::MAX_FILES {
            self.0.resize(file + 1, 0);
        }
        if let Some(end) = self.0.get_mut(file) {
            *end = time;
        }
    }

    /// Returns the time of the last event of a trace.
    pub(super) fn end_of(&self, file: usize) -> i64 {
        self.0.get(file).copied().unwrap_or(0)
    }
}

/// The scheduler of one trace.
#[derive(Debug)]
struct TraceScheduler {
    scheduler: Scheduler<StackId>,
    machine: u16,
    has_switches: bool,
}

/// Joins events with their stacks.
#[derive(Debug, Default)]
pub(super) struct Switches {
    joiner: Joiner<Pending>,
    schedulers: HashMap<usize, TraceScheduler>,
    /// Who woke a thread that has not run since.
    wakers: HashMap<u32, (i64, ThreadIndex)>,
    /// How many traces of each machine have context switches now.
    switching_traces: HashMap<u16, usize>,
    /// The time between two samples of each trace, in units of 100 ns.
    sample_intervals: HashMap<usize, u64>,
}

/// A record in its trace.
#[derive(Clone, Copy)]
pub(super) struct TraceRecord<'r, 'b> {
    pub(super) file: usize,
    pub(super) record: &'r Record<'b>,
    /// Wall time in units of 100 ns.
    pub(super) wall: i64,
}

impl Switches {
    /// Adds an event, which waits for its stack.
    pub(super) fn add(
        &mut self,
        source: TraceRecord<'_, '_>,
        pending: Pending,
        stacks: Option<&Definitions>,
    ) {
        let claim = StackClaim::from_record(source.record, source.file, source.wall);
        let frames = stacks.and_then(|stacks| stacks.frames(source.record));
        self.joiner.expect(claim, pending, 0, frames.into_iter().flatten());
    }

    /// Adds an event without a stack, in the order of the others.
    pub(super) fn add_without_stack(&mut self, claim: StackClaim, pending: Pending) {
        self.joiner.add_without_stack(claim, pending, 0);
    }

    /// Adds a stack to the event that it belongs to.
    pub(super) fn attach(
        &mut self,
        source: TraceRecord<'_, '_>,
        stack: &StackWalk<'_>,
        stacks: &Definitions,
    ) {
        self.joiner.attach(stack, (source.file, source.record.cpu(), source.wall), stacks, |_| 0);
    }

    /// Adds the events whose stacks are complete to the index.
    #[inline]
    pub(super) fn flush(&mut self, index: &mut Index) {
        while let Some(joined) = self.joiner.next_ready() {
            self.add_joined(joined, index);
        }
    }

    /// Ends the input: adds the events that wait for stacks, and the states that last until the end
    /// of their trace.
    pub(super) fn finish(&mut self, ends: &TraceEnds, index: &mut Index) {
        self.joiner.end();
        self.flush(index);
        let mut files: Vec<usize> = self.schedulers.keys().copied().collect();
        files.sort_unstable();
        for file in files {
            self.finish_trace(file, ends.end_of(file), index);
        }
        self.wakers.clear();
    }

    /// Adds the states that last until the end of a trace.
    fn finish_trace(&mut self, file: usize, end: i64, index: &mut Index) {
        let Some(TraceScheduler { scheduler, machine, has_switches }) = self.schedulers.remove(&file) else {
            return;
        };
        if has_switches && let Some(traces) = self.switching_traces.get_mut(&machine) {
            *traces = traces.saturating_sub(1);
        }
        for state in scheduler.end(end) {
            add_unfinished(&state, machine, &self.wakers, end, index);
        }
    }

    fn add_joined(&mut self, joined: Joined<Pending>, index: &mut Index) {
        let Joined { event, stack } = joined;
        match event {
            Pending::Sample { at, cpu, thread, address, weight, is_kernel, is_idle } => {
                self.add_estimate(at, cpu, thread, weight, index);
                if is_idle {
                    return;
                }
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
            Pending::Ready { at, thread, waker } => {
                let id = thread.scheduler_id();
                self.with_scheduler(at, index, |scheduler| scheduler.record_wake(at.ns, id));
                if self.wakers.len() < MAX_WAKERS {
                    self.wakers.entry(id).or_insert((at.ns, waker));
                }
            }
            Pending::End { at, thread } => {
                let id = thread.scheduler_id();
                let absence = self.with_scheduler(at, index, |scheduler| scheduler.record_end(at.ns, id));
                if let Some((absence, woken_at)) = absence {
                    let state = UnfinishedState::Absent(id, absence, woken_at);
                    add_unfinished(&state, at.machine, &self.wakers, at.ns, index);
                }
                self.wakers.remove(&id);
            }
            Pending::TraceEnd { file, end } => self.finish_trace(file, end, index),
            Pending::Switch { at, cpu, new, old, state, reason } => {
                let owner = stack.owner.map(|(_, tid)| tid);
                let node = if owner.is_some() { index.stacks.add(&stack) } else { StackId::default() };
                let node_of =
                    |tid: u32| if owner == Some(tid) && tid != 0 { node } else { StackId::default() };
                let switch =
                    ContextSwitch { cpu, new: new.scheduler_id(), old: old.scheduler_id(), state, reason };
                let (run, thread_return) = self.with_scheduler(at, index, |scheduler| {
                    scheduler.record_switch(at.ns, switch, node_of(old.tid))
                });
                if let Some(scheduler) = self.schedulers.get_mut(&at.file)
                    && !std::mem::replace(&mut scheduler.has_switches, true)
                {
                    *self.switching_traces.entry(at.machine).or_default() += 1;
                }
                if let Some(run) = run {
                    let cpu = index.find_or_add_cpu(at.machine, cpu);
                    index.add_run(cpu, ThreadIndex(run.thread), run.from, run.to);
                }
                let Some(thread_return) = thread_return else { return };
                let waker = self.wakers.remove(&thread_return.thread);
                let waker =
                    waker.filter(|(time, _)| thread_return.woken_at == Some(*time)).map(|(_, waker)| waker);
                add_return(&thread_return, waker, node_of(new.tid), index);
            }
        }
    }

    /// Sets the time between two samples of a trace, in units of 100 ns.
    pub(super) fn set_sample_interval(&mut self, file: usize, interval: u64) {
        self.sample_intervals.insert(file, interval.clamp(1, MAX_SAMPLE_INTERVAL));
    }

    /// Adds the time that a sample stands for, unless a trace of its machine has context switches.
    fn add_estimate(&mut self, at: EventTime, cpu: u16, thread: ThreadIndex, weight: u64, index: &mut Index) {
        if self.switching_traces.get(&at.machine).is_some_and(|traces| *traces > 0) {
            return;
        }
        let interval = self.sample_intervals.get(&at.file).copied().unwrap_or(DEFAULT_SAMPLE_INTERVAL);
        let duration = weight.saturating_mul(interval).saturating_mul(100);
        let from = at.ns.saturating_sub_unsigned(duration).max(0);
        let cpu = index.find_or_add_cpu(at.machine, cpu);
        index.add_estimate(cpu, thread, from, at.ns);
    }

    /// Passes an event to the scheduler of its trace, and counts what the scheduler misses.
    fn with_scheduler<T>(
        &mut self,
        at: EventTime,
        index: &mut Index,
        add: impl FnOnce(&mut Scheduler<StackId>) -> T,
    ) -> T {
        let new_scheduler = || {
            let limit = MAX_SCHEDULED_THREADS / index.machines.traces().max(1);
            let scheduler = Scheduler::with_max_threads(limit.max(MIN_SCHEDULED_THREADS));
            TraceScheduler { scheduler, machine: at.machine, has_switches: false }
        };
        let scheduler = &mut self.schedulers.entry(at.file).or_insert_with(new_scheduler).scheduler;
        let missed = |scheduler: &Scheduler<StackId>| scheduler.gaps.saturating_add(scheduler.over_limit);
        let before = missed(scheduler);
        let result = add(scheduler);
        index.gaps = index.gaps.saturating_add(missed(scheduler).saturating_sub(before));
        result
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
    index.waits.push_span(to, duration, &values, &mut index.store);
}

/// Adds a state that lasts until the end of the thread or trace.
fn add_unfinished(
    state: &UnfinishedState<StackId>,
    machine: u16,
    wakers: &HashMap<u32, (i64, ThreadIndex)>,
    end: i64,
    index: &mut Index,
) {
    match state {
        UnfinishedState::Running(cpu, run) => {
            let cpu: CpuIndex = index.find_or_add_cpu(machine, *cpu);
            index.add_run(cpu, ThreadIndex(run.thread), run.from, run.to);
        }
        UnfinishedState::Absent(number, absence, woken_at) => {
            let thread = ThreadIndex(*number);
            let Some(reason) = absence.reason else {
                return index.add_state(thread, ThreadState::Ready, 0, absence.from, end);
            };
            let wait_end = woken_at.unwrap_or(end).max(absence.from);
            index.add_state(thread, ThreadState::Waiting, reason.into(), absence.from, wait_end);
            let waker = wakers.get(number).filter(|(time, _)| *woken_at == Some(*time));
            let waker = waker.map_or(0, |(_, waker)| u64::from(waker.0));
            index.add_state(thread, ThreadState::Ready, waker, wait_end, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use traceweir_format::logfile::LogFileHeader;

    use super::*;
    use crate::index::machines::Machines;

    #[test]
    fn traces_share_the_limit_of_threads() {
        let header = LogFileHeader::default();
        let count_missed = |traces: usize| {
            let mut index = Index::new(tempfile::tempfile().unwrap());
            index.machines = Machines::from_traces((0..traces).map(|_| ("a", &header)));
            let mut switches = Switches::default();
            for thread in 1..=1000 {
                let at = EventTime { ns: 1, file: traces / 2, machine: 0, stamp: 1 };
                switches.with_scheduler(at, &mut index, |scheduler| scheduler.record_wake(at.ns, thread));
            }
            index.gaps
        };
        assert_eq!([0, 1, 100].map(count_missed), [0, 0, 0]);
        assert_eq!(count_missed(4096), 1000 - MIN_SCHEDULED_THREADS as u64);
    }
}
