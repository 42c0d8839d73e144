//! Which threads ran and waited, by context switches.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use traceweir_decode::stack::Joined;
use traceweir_format::header::NO_ID;

use super::rows::MAX_ROWS;
use super::span::EventSpan;
use super::wait_cause::{WaitCause, WaitCauses};
use super::{
    CallPaths, ContextSwitch, Latencies, NodeId, Occurrence, ProcessId, ReportEvent, RunSpan, Scheduler,
    StackTree, ThreadReturn, ThreadSelection, TimeWindow, TraceFacts, is_truncated,
};

/// Maximum number of nodes in the tree of blocked stacks.
const MAX_NODES: usize = 1 << 19;

/// Totals of one thread or several threads.
#[derive(Clone, Debug, Default)]
pub struct ThreadTotals {
    /// Time in which the threads ran.
    pub running_ns: u64,
    /// Number of switches to the thread.
    pub switches: u64,
    /// Time in which the threads waited.
    pub waiting_ns: u64,
    /// Time in which the threads were ready to run.
    pub ready_ns: u64,
    /// Number of times that a thread stopped running while it was ready.
    pub preemptions: u64,
    /// The times from each wakeup to the switch that followed it.
    pub latency: Latencies,
    /// The waits by cause.
    pub waits: BTreeMap<WaitCause, WaitTotals>,
}

/// Number and duration of the waits for one cause.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitTotals {
    /// Number of waits.
    pub count: u64,
    /// Duration of the waits.
    pub duration_ns: u64,
}

impl WaitTotals {
    fn add(&mut self, count: u64, duration_ns: u64) {
        self.count = self.count.saturating_add(count);
        self.duration_ns = self.duration_ns.saturating_add(duration_ns);
    }
}

impl ThreadTotals {
    fn merge(&mut self, other: &Self) {
        self.running_ns = self.running_ns.saturating_add(other.running_ns);
        self.switches = self.switches.saturating_add(other.switches);
        self.waiting_ns = self.waiting_ns.saturating_add(other.waiting_ns);
        self.ready_ns = self.ready_ns.saturating_add(other.ready_ns);
        self.preemptions = self.preemptions.saturating_add(other.preemptions);
        self.latency.merge(&other.latency);
        for (cause, waits) in &other.waits {
            self.waits.entry(*cause).or_default().add(waits.count, waits.duration_ns);
        }
    }
}

/// Totals of one processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessorTotals {
    /// Time in which a thread ran.
    pub busy_ns: u64,
    /// Time in which the idle thread ran.
    pub idle_ns: u64,
    /// Number of switches on the processor.
    pub switches: u64,
}

/// The state of the report: one scheduler per trace, and the totals of all.
pub struct SwitchReport {
    /// The functions and processes of the report.
    pub paths: CallPaths,
    /// The processes and threads that the tables cover.
    pub thread_selection: ThreadSelection,
    window: TimeWindow,
    schedulers: HashMap<usize, Scheduler<Option<NodeId>>>,
    /// By process and thread id. Threads beyond [`MAX_ROWS`] are added up in one row.
    rows: HashMap<(ProcessId, u32), ThreadTotals>,
    /// By trace index and processor number.
    pub processors: BTreeMap<(usize, u16), ProcessorTotals>,
    /// Indices of traces with the switches of some threads only. The rest of the processors' time
    /// is unknown there.
    pub partial_traces: BTreeSet<usize>,
    /// Stacks at which threads waited, weighted in nanoseconds.
    pub blocked_stacks: StackTree,
    causes: WaitCauses,
    /// Number of switches in the time window.
    pub switches: u64,
    /// Switches to the idle thread.
    pub switches_to_idle: u64,
    /// Switches to threads that the trace does not identify.
    pub switches_to_unknown: u64,
    /// Number of wakes.
    pub wakes: u64,
    /// Events that contain several switches, which are not decoded.
    pub compact_batches: u64,
    /// Switches without a stack of either thread.
    pub no_stack_count: u64,
    /// Switches whose stack was truncated at the frame limit.
    pub truncations: u64,
    /// The time from the first to the last counted event.
    pub span: EventSpan,
}

impl SwitchReport {
    /// Creates a report of the selected processes and threads in a time window.
    pub fn new(thread_selection: ThreadSelection, window: TimeWindow) -> Self {
        let mut paths = CallPaths::new(false);
        paths.marks_truncated = true;
        Self {
            paths,
            thread_selection,
            window,
            schedulers: HashMap::new(),
            rows: HashMap::new(),
            processors: BTreeMap::new(),
            partial_traces: BTreeSet::new(),
            blocked_stacks: StackTree::new(MAX_NODES),
            causes: WaitCauses::default(),
            switches: 0,
            switches_to_idle: 0,
            switches_to_unknown: 0,
            wakes: 0,
            compact_batches: 0,
            no_stack_count: 0,
            truncations: 0,
            span: EventSpan::default(),
        }
    }

    /// Adds an event of a trace. Events arrive in time order.
    pub fn add_event(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>) {
        let event = &joined.event;
        let is_inside = self.window.contains(event.time_ns);
        if is_inside {
            self.span.add(event.time_ns);
        }
        match event.occurrence {
            Occurrence::Switch(switch) => self.add_switch(facts, joined, switch, is_inside),
            Occurrence::Ready { thread } => {
                self.wakes += u64::from(is_inside);
                self.schedulers.entry(event.file).or_default().record_wake(event.time_ns, thread);
            }
            Occurrence::ThreadEnd { thread } => {
                let scheduler = self.schedulers.get_mut(&event.file);
                scheduler.and_then(|scheduler| scheduler.record_end(event.time_ns, thread));
            }
            Occurrence::TraceEnd => self.end_trace(facts, event),
            Occurrence::CompactSwitches => self.compact_batches += u64::from(is_inside),
            _ => {}
        }
    }

    /// Adds the time of the threads that run when a trace ends.
    fn end_trace(&mut self, facts: &TraceFacts, event: &ReportEvent) {
        let Some(scheduler) = self.schedulers.get_mut(&event.file) else { return };
        for (cpu, run) in scheduler.take_running(event.time_ns) {
            self.add_run(facts, &ReportEvent { cpu, ..event.clone() }, run);
        }
    }

    fn add_switch(
        &mut self,
        facts: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        switch: ContextSwitch,
        is_inside: bool,
    ) {
        let (event, stack) = (&joined.event, &joined.stack);
        self.switches += u64::from(is_inside);
        self.switches_to_idle += u64::from(is_inside && switch.new == 0);
        self.switches_to_unknown += u64::from(is_inside && switch.new == NO_ID);
        self.no_stack_count += u64::from(is_inside && stack.is_empty());
        self.truncations += u64::from(is_inside && is_truncated(stack));
        if switch.old == NO_ID || switch.new == NO_ID {
            self.partial_traces.insert(event.file);
        }
        // A stack belongs to the old thread or to the new thread.
        let owner = stack.owner.map(|(_, thread)| thread);
        let old_node = if owner == Some(switch.old) && switch.old != 0 {
            self.find_stack_node(facts, joined, switch.old)
        } else {
            None
        };
        let (run, thread_return) =
            self.schedulers.entry(event.file).or_default().record_switch(event.time_ns, switch, old_node);
        if let Some(run) = run {
            self.add_run(facts, event, run);
        }
        self.processors.entry((event.file, switch.cpu)).or_default().switches += u64::from(is_inside);
        if let Some(thread_return) = thread_return {
            let new_node = if owner == Some(switch.new) {
                self.find_stack_node(facts, joined, switch.new)
            } else {
                None
            };
            self.add_return(facts, joined, thread_return, new_node, is_inside);
        }
    }

    /// Returns the stack of a thread as a node; `None` if the thread is not selected, so that
    /// symbols of other processes are not loaded.
    fn find_stack_node(
        &mut self,
        facts: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        tid: u32,
    ) -> Option<NodeId> {
        let thread = self.paths.find_thread(facts, &joined.event, &joined.stack, tid);
        if !self.thread_selection.contains(&self.paths.processes, thread.process, tid) {
            return None;
        }
        let path = self.paths.resolve(facts, joined, thread, None);
        Some(self.blocked_stacks.find_or_add(path))
    }

    fn add_run(&mut self, facts: &TraceFacts, event: &ReportEvent, run: RunSpan) {
        let run_ns = self.window.overlap_ns(run.from, run.to);
        let processor = self.processors.entry((event.file, event.cpu)).or_default();
        if run.thread == 0 {
            processor.idle_ns = processor.idle_ns.saturating_add(run_ns);
            return;
        }
        processor.busy_ns = processor.busy_ns.saturating_add(run_ns);
        let row = self.thread_row(facts, event, run.thread);
        row.running_ns = row.running_ns.saturating_add(run_ns);
    }

    /// Adds the wait or preemption that ended when a thread was switched in.
    fn add_return(
        &mut self,
        facts: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        thread_return: ThreadReturn<Option<NodeId>>,
        new_node: Option<NodeId>,
        is_inside: bool,
    ) {
        let (event, window) = (&joined.event, self.window);
        let reason_and_node = thread_return
            .absence
            .as_ref()
            .and_then(|absence| Some((absence.reason?, absence.stack.or(new_node))));
        let cause = reason_and_node.and_then(|(reason, node)| {
            self.causes.find(facts.is_linux(), reason, node, &self.blocked_stacks, &self.paths.functions)
        });
        let row = self.thread_row(facts, event, thread_return.thread);
        row.switches += u64::from(is_inside);
        if let Some(woken_at) = thread_return.woken_at.filter(|_| is_inside) {
            row.latency.add(u64::try_from(thread_return.to.saturating_sub(woken_at)).unwrap_or(0));
        }
        // Without an absence, the thread runs for the first time in the trace: it is ready from its
        // wake.
        let Some(absence) = thread_return.absence else {
            if let Some(woken_at) = thread_return.woken_at {
                row.ready_ns = row.ready_ns.saturating_add(window.overlap_ns(woken_at, thread_return.to));
            }
            return;
        };
        if absence.reason.is_none() {
            row.preemptions += u64::from(is_inside);
            row.ready_ns = row.ready_ns.saturating_add(window.overlap_ns(absence.from, thread_return.to));
            return;
        }
        // A wait ends with the wake; from then on, the thread is ready.
        let wait_end = thread_return.woken_at.unwrap_or(thread_return.to).max(absence.from);
        let waited_ns = window.overlap_ns(absence.from, wait_end);
        row.waiting_ns = row.waiting_ns.saturating_add(waited_ns);
        row.ready_ns = row.ready_ns.saturating_add(window.overlap_ns(wait_end, thread_return.to));
        if let Some(cause) = cause {
            row.waits.entry(cause).or_default().add(u64::from(is_inside), waited_ns);
        }
        let absent_ns = window.overlap_ns(absence.from, thread_return.to);
        self.add_blocked_stack(facts, joined, thread_return.thread, absence.stack.or(new_node), absent_ns);
    }

    /// Increases the weight of the stack at which a selected thread waited by the time in which the
    /// thread did not run.
    fn add_blocked_stack(
        &mut self,
        facts: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        tid: u32,
        node: Option<NodeId>,
        absent_ns: u64,
    ) {
        let thread = self.paths.find_thread(facts, &joined.event, &joined.stack, tid);
        if absent_ns == 0 || !self.thread_selection.contains(&self.paths.processes, thread.process, tid) {
            return;
        }
        let node = node.unwrap_or_else(|| {
            let without_stack =
                Joined { event: joined.event.clone(), stack: traceweir_decode::stack::Stack::default() };
            let path = self.paths.resolve(facts, &without_stack, thread, None);
            self.blocked_stacks.find_or_add(path)
        });
        self.blocked_stacks.add_weight(node, absent_ns);
    }

    fn thread_row(&mut self, facts: &TraceFacts, event: &ReportEvent, thread: u32) -> &mut ThreadTotals {
        let pid = facts.process_of(thread, event.stamp);
        let key = (self.paths.find_process(facts, event, pid), thread);
        self.paths.learn_thread_name(facts, event, key.0, thread);
        let has_room = self.rows.len() < MAX_ROWS || self.rows.contains_key(&key);
        self.rows.entry(if has_room { key } else { (ProcessId::default(), 0) }).or_default()
    }

    /// Returns the selected threads (process and thread id), those that ran longest first.
    pub fn threads(&self) -> Vec<(&(ProcessId, u32), &ThreadTotals)> {
        let mut rows: Vec<_> = self.selected_rows().collect();
        rows.sort_by_cached_key(|((process, tid), totals)| {
            (u64::MAX - totals.running_ns, self.paths.processes.label(*process), *tid)
        });
        rows
    }

    /// Returns the processes of the selected threads, those that ran longest first.
    pub fn processes(&self) -> Vec<(ProcessId, ThreadTotals)> {
        let mut processes: HashMap<ProcessId, ThreadTotals> = HashMap::new();
        for ((process, _), totals) in self.selected_rows() {
            processes.entry(*process).or_default().merge(totals);
        }
        let mut rows: Vec<_> = processes.into_iter().collect();
        rows.sort_by_cached_key(|(process, totals)| {
            (u64::MAX - totals.running_ns, self.paths.processes.label(*process), *process)
        });
        rows
    }

    /// Returns the totals of the selected threads.
    pub fn selected_totals(&self) -> ThreadTotals {
        let mut sum = ThreadTotals::default();
        self.selected_rows().for_each(|(_, totals)| sum.merge(totals));
        sum
    }

    /// Returns whether a selected thread ran or waited.
    pub fn has_selected_threads(&self) -> bool {
        self.selected_rows().next().is_some()
    }

    /// Returns the causes of waits, those with the longest waits first.
    pub fn wait_causes(&self, totals: &ThreadTotals) -> Vec<(WaitCause, WaitTotals)> {
        let mut rows: Vec<_> = totals.waits.iter().map(|(cause, waits)| (*cause, *waits)).collect();
        rows.sort_by_cached_key(|(cause, waits)| {
            (u64::MAX - waits.duration_ns, cause.label(&self.paths.functions))
        });
        rows
    }

    /// Returns the time that is 100 %: the time of all processors or, if that is unknown,
    /// `recorded_ns`.
    pub fn total_ns(&self, recorded_ns: u64) -> u64 {
        if !self.partial_traces.is_empty() {
            return recorded_ns;
        }
        self.processors.values().fold(0, |sum: u64, processor| {
            sum.saturating_add(processor.busy_ns).saturating_add(processor.idle_ns)
        })
    }

    /// Returns the number of intervals that were left out because a switch is missing.
    pub fn gaps(&self) -> u64 {
        self.schedulers.values().map(|scheduler| scheduler.gaps).sum()
    }

    /// Returns the number of events of threads beyond the maximum number.
    pub fn over_limit(&self) -> u64 {
        self.schedulers.values().map(|scheduler| scheduler.over_limit).sum()
    }

    fn selected_rows(&self) -> impl Iterator<Item = (&(ProcessId, u32), &ThreadTotals)> {
        let is_selected = |(process, thread): &(ProcessId, u32)| {
            self.thread_selection.contains(&self.paths.processes, *process, *thread)
        };
        self.rows.iter().filter(move |(key, _)| is_selected(key))
    }
}
