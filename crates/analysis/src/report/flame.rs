//! The stacks of a flame graph, and their weights.

use std::collections::HashMap;

use traceweir_decode::stack::{Joined, Stack};

use super::{
    CallPaths, CodeKind, ContextSwitch, EventThread, NodeId, Occurrence, ReportEvent, Scheduler, StackTree,
    TRUNCATED, ThreadReturn, ThreadSelection, TimeWindow, TraceFacts, is_truncated,
};

/// The unit of a stack's weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackMeasure {
    /// Number of samples.
    Samples,
    /// Duration of waits, in nanoseconds.
    Waits,
    /// Number of events that were selected by name or id.
    Events,
}

impl StackMeasure {
    /// Returns the noun for one counted event.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Samples => "sample",
            Self::Waits => "wait",
            Self::Events => "event",
        }
    }

    /// Returns the title of a page.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Samples => "Processor time by samples",
            Self::Waits => "Time that threads waited",
            Self::Events => "Events by where they came from",
        }
    }
}

/// What a graph shows.
#[derive(Clone, Copy, Debug)]
pub struct FlameOptions {
    /// The unit of the weights.
    pub measure: StackMeasure,
    /// Whether stacks begin with their thread, after their process.
    pub by_thread: bool,
    /// Whether samples of idle processors are included.
    pub includes_idle: bool,
}

/// Stacks and their weights.
pub struct FlameGraph {
    /// The functions and processes of the stacks.
    pub paths: CallPaths,
    /// The stacks and their weights.
    pub tree: StackTree,
    /// The unit of the weights.
    pub measure: StackMeasure,
    /// The weight of all stacks.
    pub total_weight: u64,
    /// Number of samples, waits or events.
    pub event_count: u64,
    /// Number of samples, waits or events without a stack.
    pub no_stack_count: u64,
    /// Number of stacks that were truncated at the frame limit.
    pub truncations: u64,
    /// Stacks whose user part has only one function.
    pub stacks_without_callers: u64,
    /// Whether the traces name files of code.
    pub has_images: bool,
    /// Weight of samples of idle processors that were left out.
    pub idle_weight: u64,
    /// Weight of processes and threads that were not selected.
    pub unselected_weight: u64,
    includes_idle: bool,
    /// The processes and threads that the graph covers.
    pub thread_selection: ThreadSelection,
    window: TimeWindow,
    schedulers: HashMap<usize, Scheduler<Option<NodeId>>>,
}

impl FlameGraph {
    /// Creates a graph of the selected processes and threads in a time window.
    pub fn new(options: FlameOptions, thread_selection: ThreadSelection, window: TimeWindow) -> Self {
        let mut paths = CallPaths::new(options.by_thread);
        paths.marks_truncated = true;
        Self {
            paths,
            tree: StackTree::new(StackTree::DEFAULT_MAX_NODES),
            measure: options.measure,
            total_weight: 0,
            event_count: 0,
            no_stack_count: 0,
            truncations: 0,
            stacks_without_callers: 0,
            has_images: false,
            idle_weight: 0,
            unselected_weight: 0,
            includes_idle: options.includes_idle,
            thread_selection,
            window,
            schedulers: HashMap::new(),
        }
    }

    /// Adds an event of the trace with its stack.
    pub fn add_event(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>) {
        let (event, stack) = (&joined.event, &joined.stack);
        let is_inside = self.window.contains(event.time_ns);
        match event.occurrence {
            Occurrence::Switch(switch) => self.add_switch(facts, joined, switch),
            Occurrence::Ready { thread } => {
                self.schedulers.entry(event.file).or_default().record_wake(event.time_ns, thread)
            }
            Occurrence::Sample { is_idle: true, weight, thread, .. } if is_inside && !self.includes_idle => {
                self.add_idle_sample(facts, joined, thread, weight);
            }
            Occurrence::Sample { thread, address, weight, .. } if is_inside => {
                let thread = self.paths.find_thread(facts, event, stack, thread);
                self.add_stack(facts, joined, thread, Some(address), weight);
            }
            Occurrence::Chosen { pid, thread } if is_inside => {
                // The owner of the stack caused the event, whichever thread the event is about.
                let (pid, tid) = stack.owner.unwrap_or((pid, thread));
                let process = self.paths.find_process(facts, event, pid);
                self.add_stack(facts, joined, EventThread { process, pid, tid }, None, 1);
            }
            _ => {}
        }
    }

    /// Counts a sample of an idle processor, unless a selection leaves out its thread.
    fn add_idle_sample(&mut self, facts: &TraceFacts, joined: &Joined<ReportEvent>, tid: u32, weight: u64) {
        if !self.thread_selection.is_limited() || self.is_selected(facts, joined, tid) {
            self.idle_weight += weight;
        }
    }

    fn add_stack(
        &mut self,
        facts: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        thread: EventThread,
        innermost: Option<u64>,
        weight: u64,
    ) {
        if !self.thread_selection.contains(&self.paths.processes, thread.process, thread.tid) {
            self.unselected_weight += weight;
            return;
        }
        let path = self.paths.resolve(facts, joined, thread, innermost).to_vec();
        let node = self.tree.find_or_add(&path);
        self.truncations += u64::from(is_truncated(&joined.stack));
        self.stacks_without_callers += u64::from(self.paths.lacks_callers(facts, &joined.stack, &path));
        self.has_images |= facts.has_images();
        self.add_weight(node, joined.stack.is_empty(), weight);
    }

    /// Adds a weight to a stack.
    pub fn add_weight(&mut self, node: NodeId, is_without_stack: bool, weight: u64) {
        self.tree.add_weight(node, weight);
        self.total_weight = self.total_weight.saturating_add(weight);
        self.event_count += 1;
        self.no_stack_count += u64::from(is_without_stack);
    }

    /// Adds the wait of the thread that the switch resumes. The thread waited at the stack where it
    /// was switched out or, if that stack is unknown, at its current stack.
    fn add_switch(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>, switch: ContextSwitch) {
        let event = &joined.event;
        // A stack belongs to the old thread or to the new thread.
        let owner = joined.stack.owner.map(|(_, thread)| thread);
        let old_node =
            if owner == Some(switch.old) && switch.old != 0 && self.is_selected(facts, joined, switch.old) {
                Some(self.find_stack_node(facts, joined, switch.old))
            } else {
                None
            };
        let (_, thread_return) =
            self.schedulers.entry(event.file).or_default().record_switch(event.time_ns, switch, old_node);
        let Some(ThreadReturn { thread, to, absence: Some(absence), .. }) = thread_return else { return };
        let waited_ns = self.window.overlap_ns(absence.from, to);
        if absence.reason.is_none() || waited_ns == 0 {
            return;
        }
        if !self.is_selected(facts, joined, thread) {
            self.unselected_weight = self.unselected_weight.saturating_add(waited_ns);
            return;
        }
        let new_node = if owner == Some(switch.new) {
            Some(self.find_stack_node(facts, joined, switch.new))
        } else {
            None
        };
        let wait_node = absence.stack.or(new_node);
        let node = wait_node.unwrap_or_else(|| {
            let without_stack = Joined { event: event.clone(), stack: Stack::default() };
            self.find_stack_node(facts, &without_stack, thread)
        });
        // The stack may be that of an earlier switch, so its path has to show whether it was
        // truncated.
        self.truncations += u64::from(wait_node.is_some() && self.is_marked_truncated(node));
        self.add_weight(node, wait_node.is_none(), waited_ns);
    }

    fn is_selected(&mut self, facts: &TraceFacts, joined: &Joined<ReportEvent>, tid: u32) -> bool {
        let thread = self.paths.find_thread(facts, &joined.event, &joined.stack, tid);
        self.thread_selection.contains(&self.paths.processes, thread.process, tid)
    }

    fn find_stack_node(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>, tid: u32) -> NodeId {
        let thread = self.paths.find_thread(facts, &joined.event, &joined.stack, tid);
        let path = self.paths.resolve(facts, joined, thread, None);
        self.tree.find_or_add(path)
    }

    /// Returns whether the stack of a node begins with the mark of truncated stacks, after its
    /// process and thread.
    fn is_marked_truncated(&self, node: NodeId) -> bool {
        let path = self.tree.path(node);
        let mut first_functions = path.iter().take(3).map(|id| self.paths.functions.get(*id));
        first_functions
            .any(|function| function.kind == CodeKind::Other && function.name.as_deref() == Some(TRUNCATED))
    }

    /// Returns whether context switches have been added.
    pub fn has_switches(&self) -> bool {
        !self.schedulers.is_empty()
    }

    /// Returns the weight of stacks that end in code without a file and a name.
    pub fn unknown_weight(&self) -> u64 {
        let is_unknown = |node: NodeId| {
            let innermost = self.paths.functions.get(self.tree.function(node));
            innermost.kind == CodeKind::Unknown && innermost.name.is_none()
        };
        let ends = self.tree.stack_ends().into_iter().filter(|(node, _)| is_unknown(*node));
        ends.fold(0, |sum, (_, weight)| sum.saturating_add(weight))
    }
}
