//! Converts context switches and wakes to durations: which threads ran, which were absent, and why.
//!
//! ```text
//!   processor 0   ──[ idle ]──┤ A runs ├──[ B ]──┤ A ├──   a switch: new and old thread, reason
//!   thread A                  └RunSpan─┘  Absence └ ThreadReturn
//!                                         wait ─▶ wake ─▶ runs: latency counts from the wake
//! ```
//!
//! S1  A thread runs from the switch to it until the switch away from it on the same processor. If
//!     a switch in between was lost, the time is not reported, and the gap is counted. A switch was
//!     lost if the old thread is not the thread that ran there, or if that thread appears on
//!     another processor.
//! S2  A thread is absent from the switch away from it until a processor switches to it again.
//!     Absences that began before the trace are not reported. Those that end after it, and threads
//!     that still run, are in [`Scheduler::end`].
//! S3  The first wake during an absence counts. Wakes of a running thread do not count.
//! S4  The idle threads, which all have id 0, run but are never absent.
//! S5  If a user records only their own threads, a switch names one thread and has [`NO_ID`] in
//!     place of the other. [`NO_ID`] neither runs nor is absent. The activity of the processor in
//!     that time is unknown, but is not a gap.
//!
//! S6  A thread that ended runs until the switch away from it or, if that switch is missing, until
//!     its end.
//!
//! The caller chooses the unit of time.

use std::collections::HashMap;

use traceweir_format::header::NO_ID;
use traceweir_format::kernel::thread_state::{TERMINATED, WAITING};

/// Maximum number of threads to follow, unless another is set; events of further threads are counted.
const MAX_THREADS: usize = 1 << 18;

/// A switch from one thread to another.
#[derive(Clone, Copy, Debug)]
pub struct ContextSwitch {
    /// Number of the processor.
    pub cpu: u16,
    /// The thread that runs next; 0 is the idle thread.
    pub new: u32,
    /// The thread that stops running.
    pub old: u32,
    /// New state of the old thread, as in `OldThreadState`.
    pub state: u8,
    /// Wait reason of the old thread, as in `OldThreadWaitReason`.
    pub reason: u8,
}

/// A time span in which a thread ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSpan {
    /// The thread.
    pub thread: u32,
    /// Start, in the time of the caller.
    pub from: i64,
    /// End, in the time of the caller.
    pub to: i64,
}

/// When and why a thread stopped running, with the caller's data for the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence<S> {
    /// When the thread stopped running.
    pub from: i64,
    /// Wait reason; `None` if the thread was preempted.
    pub reason: Option<u8>,
    /// The data that the caller gave with the switch.
    pub stack: S,
}

/// A thread that runs again, or for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadReturn<S> {
    /// The thread.
    pub thread: u32,
    /// When the thread began to run.
    pub to: i64,
    /// Why the thread did not run before; `None` if it runs for the first time in the trace.
    pub absence: Option<Absence<S>>,
    /// When the thread became ready, if the trace contains it.
    pub woken_at: Option<i64>,
}

/// What a thread does at the end of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnfinishedState<S> {
    /// The thread runs on a processor.
    Running(u16, RunSpan),
    /// The thread waits or is ready; the last value is when it became ready.
    Absent(u32, Absence<S>, Option<i64>),
}

#[derive(Debug)]
struct ThreadState<S> {
    absence: Option<Absence<S>>,
    woken_at: Option<i64>,
    /// The processor that the thread runs on, if known.
    cpu: Option<u16>,
}

/// The thread on a processor, and since when it runs.
#[derive(Clone, Copy, Debug)]
struct RunningThread {
    thread: u32,
    since: i64,
    /// When the thread ended, while the switch away from it has not come.
    ended_at: Option<i64>,
}

impl RunningThread {
    /// Returns the time span in which the thread ran.
    const fn span_until(self, time: i64) -> RunSpan {
        RunSpan { thread: self.thread, from: if self.since < time { self.since } else { time }, to: time }
    }
}

/// Follows switches and wakes in time order.
#[derive(Debug)]
pub struct Scheduler<S> {
    cpus: HashMap<u16, RunningThread>,
    threads: HashMap<u32, ThreadState<S>>,
    max_threads: usize,
    /// Number of time spans with a missing switch.
    pub gaps: u64,
    /// Number of switches and wakes of threads beyond the limit.
    pub over_limit: u64,
}

impl<S> Default for Scheduler<S> {
    fn default() -> Self {
        Self::with_max_threads(MAX_THREADS)
    }
}

impl<S> Scheduler<S> {
    /// Creates a scheduler that follows at most this many threads.
    #[must_use]
    pub fn with_max_threads(max_threads: usize) -> Self {
        Self { cpus: HashMap::new(), threads: HashMap::new(), max_threads, gaps: 0, over_limit: 0 }
    }

    /// Records a switch; `stack` is the caller's data for the old thread. Returns the time span in
    /// which the old thread ran, and the return of the new thread, as far as they are known.
    pub fn record_switch(
        &mut self,
        time: i64,
        switch: ContextSwitch,
        stack: S,
    ) -> (Option<RunSpan>, Option<ThreadReturn<S>>) {
        for thread in [switch.old, switch.new] {
            self.remove_from_other_cpu(thread, switch.cpu);
        }
        let next = RunningThread { thread: switch.new, since: time, ended_at: None };
        let run = match self.cpus.insert(switch.cpu, next) {
            None => None,
            Some(running) if running.thread == switch.old => {
                (switch.old != NO_ID).then(|| running.span_until(time))
            }
            Some(running) => {
                if running.ended_at.is_none() {
                    self.gaps += 1;
                    // The switch away from this thread is missing, so its state is unknown.
                    self.threads.remove(&running.thread);
                }
                running.ended_at.map(|end| running.span_until(end))
            }
        };
        self.start_absence(time, switch, stack);
        (run, self.end_absence(time, switch))
    }

    /// Removes a thread that is now on `cpu` from another processor, if a switch was lost.
    fn remove_from_other_cpu(&mut self, thread: u32, cpu: u16) {
        let other_cpu = self.threads.get(&thread).and_then(|thread| thread.cpu).filter(|other| *other != cpu);
        if let Some(other_cpu) = other_cpu {
            self.gaps += 1;
            self.cpus.remove(&other_cpu);
            self.threads.remove(&thread);
        }
    }

    fn start_absence(&mut self, time: i64, switch: ContextSwitch, stack: S) {
        if is_idle_or_unknown(switch.old) {
            return;
        }
        if switch.state == TERMINATED {
            self.threads.remove(&switch.old);
            return;
        }
        let reason = (switch.state == WAITING).then_some(switch.reason);
        let absence = Some(Absence { from: time, reason, stack });
        if let Some(thread) = self.find_or_add_thread(switch.old) {
            *thread = ThreadState { absence, woken_at: None, cpu: None };
        }
    }

    fn end_absence(&mut self, time: i64, switch: ContextSwitch) -> Option<ThreadReturn<S>> {
        if is_idle_or_unknown(switch.new) {
            return None;
        }
        let thread = self.find_or_add_thread(switch.new)?;
        let (absence, woken_at) = (thread.absence.take(), thread.woken_at.take());
        thread.cpu = Some(switch.cpu);
        Some(ThreadReturn { thread: switch.new, to: time, absence, woken_at })
    }

    /// Records that a thread became ready to run.
    pub fn record_wake(&mut self, time: i64, thread: u32) {
        if is_idle_or_unknown(thread) {
            return;
        }
        if let Some(thread) = self.find_or_add_thread(thread)
            && thread.cpu.is_none()
        {
            thread.woken_at.get_or_insert(time);
        }
    }

    /// Records that a thread ended (S6). Returns its absence and when it became ready, if it did not
    /// run.
    pub fn record_end(&mut self, time: i64, thread: u32) -> Option<(Absence<S>, Option<i64>)> {
        if is_idle_or_unknown(thread) {
            return None;
        }
        let state = self.threads.remove(&thread)?;
        let running = state.cpu.and_then(|cpu| self.cpus.get_mut(&cpu));
        if let Some(running) = running.filter(|running| running.thread == thread) {
            running.ended_at.get_or_insert(time);
        }
        Some((state.absence?, state.woken_at))
    }

    /// Returns since when a thread runs on a processor; `None` if it does not run there or has ended.
    pub fn running_since(&self, cpu: u16, thread: u32) -> Option<i64> {
        let running = self.cpus.get(&cpu)?;
        (running.thread == thread && running.ended_at.is_none()).then_some(running.since)
    }

    /// Ends the time of the threads that run. Returns their processors and time spans, in the order
    /// of the processors.
    pub fn take_running(&mut self, time: i64) -> Vec<(u16, RunSpan)> {
        let span_of = |(cpu, running): (u16, RunningThread)| {
            (cpu, running.span_until(running.ended_at.unwrap_or(time).min(time)))
        };
        let mut spans: Vec<(u16, RunSpan)> = self.cpus.drain().map(span_of).collect();
        spans.retain(|(_, span)| span.thread != NO_ID);
        spans.sort_unstable_by_key(|(cpu, _)| *cpu);
        spans
    }

    /// Ends the input at a time. Returns what the threads do then, in the order of their ids.
    pub fn end(mut self, time: i64) -> Vec<UnfinishedState<S>> {
        let mut states: Vec<(u32, u16, UnfinishedState<S>)> = Vec::new();
        for (cpu, span) in self.take_running(time) {
            states.push((span.thread, cpu, UnfinishedState::Running(cpu, span)));
        }
        for (thread, state) in self.threads {
            if let Some(absence) = state.absence {
                states.push((thread, 0, UnfinishedState::Absent(thread, absence, state.woken_at)));
            }
        }
        states.sort_by_key(|(thread, cpu, _)| (*thread, *cpu));
        states.into_iter().map(|(_, _, state)| state).collect()
    }

    /// Returns the state of a thread, and adds the thread if it is new; `None` beyond the limit.
    fn find_or_add_thread(&mut self, thread: u32) -> Option<&mut ThreadState<S>> {
        if self.threads.len() >= self.max_threads && !self.threads.contains_key(&thread) {
            self.over_limit += 1;
            return None;
        }
        let new_state = || ThreadState { absence: None, woken_at: None, cpu: None };
        Some(self.threads.entry(thread).or_insert_with(new_state))
    }
}

/// Returns whether a thread id is that of the idle threads (S4) or [`NO_ID`] (S5).
const fn is_idle_or_unknown(thread: u32) -> bool {
    matches!(thread, 0 | NO_ID)
}

#[cfg(test)]
mod tests;
