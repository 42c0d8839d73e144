//! The stacks of a flame graph, and their weights.

use std::collections::HashMap;

use traceweir_decode::stack::{Joined, Stack};

use crate::analysis::{
    Back, Kind, NodeId, Occurrence, Paths, ProcessId, ReportEvent, Scheduler, Switch, TRUNCATED,
    ThreadSelection, TraceFacts, Tree, Window, is_truncated,
};
use crate::cli::Flame;
use crate::text::{counted, grouped};

/// What a stack is weighted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// Number of samples.
    Samples,
    /// Duration of waits, in nanoseconds.
    Waits,
    /// Number of events of chosen names.
    Events,
}

impl Measure {
    /// Returns the noun for one of them.
    pub(super) const fn event(self) -> &'static str {
        match self {
            Self::Samples => "sample",
            Self::Waits => "wait",
            Self::Events => "event",
        }
    }

    /// Returns the title of a page.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Samples => "Processor time by samples",
            Self::Waits => "Time that threads waited",
            Self::Events => "Events by where they came from",
        }
    }
}

/// Stacks and their weights.
pub(super) struct Graph {
    pub(super) paths: Paths,
    pub(super) tree: Tree,
    pub(super) measure: Measure,
    pub(super) total: u64,
    /// Number of samples, waits or events.
    pub(super) events: u64,
    pub(super) without_stack: u64,
    /// Number of stacks that were truncated at the frame limit.
    pub(super) truncated: u64,
    idle: u64,
    others: u64,
    with_idle: bool,
    wanted: ThreadSelection,
    window: Window,
    schedulers: HashMap<usize, Scheduler<Option<NodeId>>>,
}

impl Graph {
    pub(super) fn new(options: &Flame, measure: Measure, window: Window) -> Self {
        let mut paths = Paths::new(options.by_thread);
        paths.marks_truncated = true;
        Self {
            paths,
            tree: Tree::new(Tree::LIMIT),
            measure,
            total: 0,
            events: 0,
            without_stack: 0,
            truncated: 0,
            idle: 0,
            others: 0,
            with_idle: options.idle,
            wanted: ThreadSelection::new(&options.selection.process, &options.selection.thread),
            window,
            schedulers: HashMap::new(),
        }
    }

    pub(super) fn add(&mut self, known: &mut TraceFacts, joined: &Joined<ReportEvent>) {
        let (seen, stack) = (&joined.what, &joined.stack);
        let is_inside = self.window.contains(seen.time);
        match seen.what {
            Occurrence::Switch(switch) => self.switch(known, joined, switch),
            Occurrence::Ready { thread } => {
                self.schedulers.entry(seen.file).or_default().ready(seen.time, thread)
            }
            Occurrence::Sample { is_idle: true, weight, .. } if is_inside && !self.with_idle => {
                self.idle += weight
            }
            Occurrence::Sample { thread, address, weight, .. } if is_inside => {
                let (pid, process) = self.paths.process(known, seen, stack, thread);
                self.count(known, joined, (process, pid, thread), Some(address), weight);
            }
            Occurrence::Chosen { pid, thread } if is_inside => {
                // The owner of the stack caused the event, whichever thread the event is about.
                let (pid, thread) = stack.owner.unwrap_or((pid, thread));
                let process = self.paths.process_by_pid(known, seen, pid);
                self.count(known, joined, (process, pid, thread), None, 1);
            }
            _ => {}
        }
    }

    fn count(
        &mut self,
        known: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        owner: (ProcessId, u32, u32),
        innermost: Option<u64>,
        weight: u64,
    ) {
        if !self.wanted.wants(&self.paths.processes, owner.0, owner.2) {
            self.others += weight;
            return;
        }
        let path = self.paths.resolve(known, joined, owner, innermost);
        let node = self.tree.node(path);
        self.truncated += u64::from(is_truncated(&joined.stack));
        self.add_weight(node, joined.stack.is_empty(), weight);
    }

    fn add_weight(&mut self, node: NodeId, is_without_stack: bool, weight: u64) {
        self.tree.add_weight(node, weight);
        self.total = self.total.saturating_add(weight);
        self.events += 1;
        self.without_stack += u64::from(is_without_stack);
    }

    /// Counts a wait: a thread that comes back has waited at the stack where it left, or at its
    /// current stack.
    fn switch(&mut self, known: &mut TraceFacts, joined: &Joined<ReportEvent>, switch: Switch) {
        let seen = &joined.what;
        let owner = joined.stack.owner.map(|(_, thread)| thread);
        let leaves = if owner == Some(switch.old) && switch.old != 0 && self.wants(known, joined, switch.old)
        {
            Some(self.node(known, joined, switch.old))
        } else {
            None
        };
        let (_, back) = self.schedulers.entry(seen.file).or_default().switch(seen.time, switch, leaves);
        let Some(Back { thread, to, away: Some(away), .. }) = back else { return };
        let waited = self.window.part(away.from, to);
        if away.reason.is_none() || waited == 0 {
            return;
        }
        if !self.wants(known, joined, thread) {
            self.others = self.others.saturating_add(waited);
            return;
        }
        let comes = if owner == Some(switch.new) { Some(self.node(known, joined, switch.new)) } else { None };
        let wait_node = away.stack.or(comes);
        let node = wait_node.unwrap_or_else(|| {
            let without_stack = Joined { what: seen.clone(), stack: Stack::default() };
            self.node(known, &without_stack, thread)
        });
        // The tree knows the stack even if the thread left long ago.
        self.truncated += u64::from(wait_node.is_some() && self.is_marked_truncated(node));
        self.add_weight(node, wait_node.is_none(), waited);
    }

    fn wants(&mut self, known: &TraceFacts, joined: &Joined<ReportEvent>, thread: u32) -> bool {
        let (_, process) = self.paths.process(known, &joined.what, &joined.stack, thread);
        self.wanted.wants(&self.paths.processes, process, thread)
    }

    fn node(&mut self, known: &mut TraceFacts, joined: &Joined<ReportEvent>, thread: u32) -> NodeId {
        let (pid, process) = self.paths.process(known, &joined.what, &joined.stack, thread);
        let path = self.paths.resolve(known, joined, (process, pid, thread), None);
        self.tree.node(path)
    }

    /// Formats the total.
    pub(super) fn amount(&self) -> String {
        let left_out = match (self.idle, self.others) {
            (0, 0) => String::new(),
            (idle, 0) => format!("; {} of idle processors left out", grouped(idle)),
            (_, _) => "; other processes and threads left out".to_owned(),
        };
        match self.measure {
            Measure::Samples => counted(self.total, "sample") + &left_out,
            Measure::Waits => {
                let seconds = self.total as f64 / 1e9;
                format!("{seconds:.3} s in {}{left_out}", counted(self.events, "wait"))
            }
            Measure::Events => counted(self.total, "event") + &left_out,
        }
    }

    /// Returns whether the stack of a node begins with the mark of truncated stacks, after its
    /// process and thread.
    fn is_marked_truncated(&self, node: NodeId) -> bool {
        let path = self.tree.path(node);
        let mut begin = path.iter().take(3).map(|id| self.paths.functions.get(*id));
        begin.any(|function| function.kind == Kind::Other && function.name.as_deref() == Some(TRUNCATED))
    }

    /// Formats how many stacks were truncated.
    pub(super) fn truncation_note(&self) -> String {
        let (truncated, all) = (grouped(self.truncated), counted(self.events, self.measure.event()));
        format!("truncated at the frame limit: the stacks of {truncated} of {all}, marked (cut)")
    }

    /// Explains why there is nothing to draw.
    pub(super) fn empty_reason(&self) -> String {
        if self.others > 0 && self.wanted.is_limited() {
            return self
                .wanted
                .no_match_message(&self.paths.processes, &(self.measure.event().to_owned() + "s"));
        }
        if self.idle > 0 {
            return format!(
                "no samples except {} of idle processors, which --idle draws",
                grouped(self.idle)
            );
        }
        match self.measure {
            Measure::Samples => "no samples: the trace has none of the sampled profile (PROFILE, 0x0F2E), which weir record --kernel cpu records; --kind off-cpu and --event NAME draw other events",
            Measure::Waits => "no waits: the trace has no context switches (CSWITCH, 0x0524), which weir record --kernel sched records",
            Measure::Events => "no such event: weir stats FILE lists the events of a trace",
        }
        .to_owned()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a graph of these stacks.
    pub(in super::super) fn graph_of(stacks: &[(&[&str], u64)]) -> Graph {
        let mut graph = Graph {
            paths: Paths::new(false),
            tree: Tree::new(Tree::LIMIT),
            measure: Measure::Samples,
            total: 0,
            events: 0,
            without_stack: 0,
            truncated: 0,
            idle: 0,
            others: 0,
            with_idle: false,
            wanted: ThreadSelection::default(),
            window: Window::default(),
            schedulers: HashMap::new(),
        };
        for (stack, weight) in stacks {
            let path: Vec<_> =
                stack.iter().map(|name| graph.paths.functions.named(name, Kind::Program)).collect();
            let node = graph.tree.node(&path);
            graph.add_weight(node, false, *weight);
        }
        graph
    }
}
