//! The runs of threads on processors, as the scheduler of reports finds them.

use std::collections::{BTreeMap, HashMap, HashSet};

use traceweir_analysis::report::{ContextSwitch, RunSpan, Scheduler};
use traceweir_format::header::NO_ID;

use super::ActivityTables;
use super::event::{Activity, ActivityEvent, Switch};
use super::lives::ThreadIndex;

/// A time span in which a thread ran, cut at the start of the time span that the filters select.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) thread: ThreadIndex,
    /// Number of the machine.
    pub(crate) machine: u16,
    /// Number of the processor.
    pub(crate) cpu: u16,
    pub(crate) from_ns: i64,
    pub(crate) to_ns: i64,
    pub(crate) end: RunEnd,
    /// The wake that made the thread ready, if the traces contain it and the run is not cut.
    pub(crate) wake: Option<Wake>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// The processor switched to another thread. The numbers are those of [`Switch`].
    Switch { state: u8, reason: u8 },
    /// The thread ended, and the switch away from it is missing.
    ThreadEnd,
    /// The traces ended.
    TraceEnd,
}

/// A thread became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wake {
    pub(crate) time_ns: i64,
    /// The thread that woke it, if known.
    pub(crate) waker: Option<ThreadIndex>,
}

/// Follows switches, wakes and ends of threads. The tables have at most one entry for each thread in
/// [`Lives`](super::Lives), whose number is limited.
#[derive(Debug, Default)]
pub(crate) struct ThreadRuns {
    /// A scheduler for each machine.
    schedulers: BTreeMap<u16, Scheduler<()>>,
    /// The first wake of each thread since it last ran.
    wakes: HashMap<ThreadIndex, Wake>,
    /// The wakes of the threads that run.
    running_wakes: HashMap<ThreadIndex, Wake>,
    /// The processors, with their machines, whose present runs the filters select.
    selected: HashSet<(u16, u16)>,
}

impl ThreadRuns {
    /// Adds an event, selected or not, and returns the run that it ends if the filters select that run.
    pub(crate) fn add(&mut self, tables: &ActivityTables, event: &ActivityEvent) -> Option<Run> {
        let (time_ns, machine) = (event.time_ns, event.machine);
        match &event.activity {
            Activity::Switch(switch) => self.add_switch(tables, event, switch),
            Activity::Wake { thread: Some(thread), waker } => {
                let id = scheduler_id(tables, Some(*thread));
                self.schedulers.entry(machine).or_default().record_wake(time_ns, id);
                self.wakes.entry(*thread).or_insert(Wake { time_ns, waker: *waker });
                None
            }
            Activity::ThreadEnd(thread) => {
                let id = scheduler_id(tables, Some(*thread));
                self.schedulers.entry(machine).or_default().record_end(time_ns, id);
                self.wakes.remove(thread);
                None
            }
            _ => None,
        }
    }

    fn add_switch(&mut self, tables: &ActivityTables, event: &ActivityEvent, switch: &Switch) -> Option<Run> {
        let (time_ns, machine, cpu) = (event.time_ns, event.machine, event.cpu);
        let Switch { state, reason, .. } = *switch;
        let (new, old) = (scheduler_id(tables, switch.new), scheduler_id(tables, switch.old));
        let scheduler = self.schedulers.entry(machine).or_default();
        let context_switch = ContextSwitch { cpu, new, old, state, reason };
        let (span, thread_return) = scheduler.record_switch(time_ns, context_switch, ());
        let run = span.and_then(|span| {
            let is_switched = span.thread == old && span.to == time_ns;
            let end = if is_switched { RunEnd::Switch { state, reason } } else { RunEnd::ThreadEnd };
            self.new_run(tables, (machine, cpu), span, end)
        });
        let is_selected = self.selected.remove(&(machine, cpu));
        if switch.selects_new {
            self.selected.insert((machine, cpu));
        }
        // A wake of a thread that still ran does not count.
        switch.old.and_then(|old| self.wakes.remove(&old));
        if let (Some(new), Some(thread_return)) = (switch.new, thread_return) {
            let wake = self.wakes.remove(&new);
            match wake.filter(|wake| thread_return.woken_at == Some(wake.time_ns)) {
                Some(wake) => self.running_wakes.insert(new, wake),
                None => self.running_wakes.remove(&new),
            };
        }
        run.filter(|_| is_selected)
    }

    /// Returns since when a thread runs on a processor; `None` if it does not run there.
    pub(crate) fn running_since(
        &self,
        tables: &ActivityTables,
        event: &ActivityEvent,
        thread: ThreadIndex,
    ) -> Option<i64> {
        let scheduler = self.schedulers.get(&event.machine)?;
        let since_ns = scheduler.running_since(event.cpu, scheduler_id(tables, Some(thread)))?;
        Some(since_ns.max(tables.from_ns))
    }

    /// Ends the threads that still run, in the order of the processors. Returns the selected runs.
    pub(crate) fn finish(&mut self, tables: &ActivityTables, end_ns: i64) -> Vec<Run> {
        let mut runs = Vec::new();
        for (machine, mut scheduler) in std::mem::take(&mut self.schedulers) {
            for (cpu, span) in scheduler.take_running(end_ns) {
                let end = if span.to < end_ns { RunEnd::ThreadEnd } else { RunEnd::TraceEnd };
                let run = self.new_run(tables, (machine, cpu), span, end);
                runs.extend(run.filter(|_| self.selected.contains(&(machine, cpu))));
            }
        }
        runs
    }

    /// Returns the run of a span; `None` for the idle thread, and for a run that ends before the time
    /// span of the filters.
    fn new_run(
        &mut self,
        tables: &ActivityTables,
        (machine, cpu): (u16, u16),
        span: RunSpan,
        end: RunEnd,
    ) -> Option<Run> {
        let thread = ThreadIndex(span.thread.checked_sub(1)?);
        let wake = self.running_wakes.remove(&thread).filter(|_| span.from >= tables.from_ns);
        let (from_ns, to_ns) = (span.from.max(tables.from_ns), span.to);
        let is_shown = span.from >= tables.from_ns || to_ns > from_ns;
        is_shown.then_some(Run { thread, machine, cpu, from_ns, to_ns, end, wake })
    }
}

/// Returns the id under which the scheduler follows a thread. The scheduler reserves 0 for idle threads
/// and [`NO_ID`] for unknown ones, so others have their index plus one.
pub(crate) fn scheduler_id(tables: &ActivityTables, thread: Option<ThreadIndex>) -> u32 {
    let Some(index) = thread else { return NO_ID };
    let is_idle = tables.lives.thread(index).is_some_and(|thread| thread.tid == 0);
    if is_idle { 0 } else { index.0.saturating_add(1) }
}
