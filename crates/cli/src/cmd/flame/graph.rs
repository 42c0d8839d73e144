//! The stacks of a flame graph, and what they are weighed by.

use std::collections::HashMap;

use traceweir_decode::stack::{Joined, Stack};

use crate::analysis::{
    Back, CUT, Kind, Known, NodeId, Paths, ProcessId, Scheduler, Seen, Switch, Tree, Wanted, What, Window,
    is_cut,
};
use crate::cli::Flame;
use crate::cmd::{counted, grouped};

/// What stacks are weighed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// Samples, by number.
    Samples,
    /// Waits, by nanoseconds.
    Waits,
    /// Events of chosen names, by number.
    Events,
}

impl Measure {
    /// What one is called.
    pub(super) const fn event(self) -> &'static str {
        match self {
            Self::Samples => "sample",
            Self::Waits => "wait",
            Self::Events => "event",
        }
    }

    /// The title of a page.
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
    /// Samples, waits or events.
    pub(super) events: u64,
    pub(super) without_stack: u64,
    /// Stacks that go on behind the frames that were recorded.
    pub(super) cut: u64,
    idle: u64,
    others: u64,
    with_idle: bool,
    wanted: Wanted,
    window: Window,
    schedulers: HashMap<usize, Scheduler<Option<NodeId>>>,
}

impl Graph {
    pub(super) fn new(options: &Flame, measure: Measure, window: Window) -> Self {
        let mut paths = Paths::new(options.by_thread);
        paths.marks_cut = true;
        Self {
            paths,
            tree: Tree::new(Tree::LIMIT),
            measure,
            total: 0,
            events: 0,
            without_stack: 0,
            cut: 0,
            idle: 0,
            others: 0,
            with_idle: options.idle,
            wanted: Wanted::new(&options.selection.process, &options.selection.thread),
            window,
            schedulers: HashMap::new(),
        }
    }

    pub(super) fn add(&mut self, known: &mut Known, joined: &Joined<Seen>) {
        let (seen, stack) = (&joined.what, &joined.stack);
        let is_inside = self.window.contains(seen.time);
        match seen.what {
            What::Switch(it) => self.switch(known, joined, it),
            What::Ready { thread } => self.schedulers.entry(seen.file).or_default().ready(seen.time, thread),
            What::Sample { is_idle: true, weight, .. } if is_inside && !self.with_idle => self.idle += weight,
            What::Sample { thread, address, weight, .. } if is_inside => {
                let (pid, process) = self.paths.process(known, seen, stack, thread);
                self.count(known, joined, (process, pid, thread), Some(address), weight);
            }
            What::Chosen { pid, thread } if is_inside => {
                // Whose stack it is has done it, whomever the event is about.
                let (pid, thread) = stack.owner.unwrap_or((pid, thread));
                let process = self.paths.named(known, seen, pid);
                self.count(known, joined, (process, pid, thread), None, 1);
            }
            _ => {}
        }
    }

    fn count(
        &mut self,
        known: &mut Known,
        joined: &Joined<Seen>,
        who: (ProcessId, u32, u32),
        innermost: Option<u64>,
        weight: u64,
    ) {
        if !self.wanted.wants(&self.paths.processes, who.0, who.2) {
            self.others += weight;
            return;
        }
        let path = self.paths.of(known, joined, who, innermost);
        let node = self.tree.node(path);
        self.cut += u64::from(is_cut(&joined.stack));
        self.put(node, joined.stack.is_empty(), weight);
    }

    fn put(&mut self, node: NodeId, is_without_stack: bool, weight: u64) {
        self.tree.weigh(node, weight);
        self.total = self.total.saturating_add(weight);
        self.events += 1;
        self.without_stack += u64::from(is_without_stack);
    }

    /// A thread that comes back has waited where it left, or where it is found now.
    fn switch(&mut self, known: &mut Known, joined: &Joined<Seen>, it: Switch) {
        let seen = &joined.what;
        let owner = joined.stack.owner.map(|(_, thread)| thread);
        let leaves = if owner == Some(it.old) && it.old != 0 && self.wants(known, joined, it.old) {
            Some(self.node(known, joined, it.old))
        } else {
            None
        };
        let (_, back) = self.schedulers.entry(seen.file).or_default().switch(seen.time, it, leaves);
        let Some(Back { thread, to, away: Some(away), .. }) = back else { return };
        let waited = self.window.part(away.from, to);
        if away.reason.is_none() || waited == 0 {
            return;
        }
        if !self.wants(known, joined, thread) {
            self.others = self.others.saturating_add(waited);
            return;
        }
        let comes = if owner == Some(it.new) { Some(self.node(known, joined, it.new)) } else { None };
        let there = away.stack.or(comes);
        let node = there.unwrap_or_else(|| {
            let none = Joined { what: seen.clone(), stack: Stack::default() };
            self.node(known, &none, thread)
        });
        // The tree knows which stack it was, also where the thread left long ago.
        self.cut += u64::from(there.is_some() && self.is_marked(node));
        self.put(node, there.is_none(), waited);
    }

    fn wants(&mut self, known: &Known, joined: &Joined<Seen>, thread: u32) -> bool {
        let (_, process) = self.paths.process(known, &joined.what, &joined.stack, thread);
        self.wanted.wants(&self.paths.processes, process, thread)
    }

    fn node(&mut self, known: &mut Known, joined: &Joined<Seen>, thread: u32) -> NodeId {
        let (pid, process) = self.paths.process(known, &joined.what, &joined.stack, thread);
        let path = self.paths.of(known, joined, (process, pid, thread), None);
        self.tree.node(path)
    }

    /// How much there is, for people.
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

    /// Whether the stack of a node has the mark of those that were cut, below its process and thread.
    fn is_marked(&self, node: NodeId) -> bool {
        let path = self.tree.path(node);
        let mut begin = path.iter().take(3).map(|id| self.paths.functions.get(*id));
        begin.any(|it| it.kind == Kind::Other && it.name.as_deref() == Some(CUT))
    }

    /// How many stacks were cut, for people.
    pub(super) fn cuts(&self) -> String {
        let (cut, all) = (grouped(self.cut), counted(self.events, self.measure.event()));
        format!("cut at the limit of frames: the stacks of {cut} of {all}, marked (cut)")
    }

    /// Why there is nothing to draw.
    pub(super) fn emptiness(&self) -> String {
        if self.others > 0 && self.wanted.is_some_only() {
            return self.wanted.missed(&self.paths.processes, &(self.measure.event().to_owned() + "s"));
        }
        if self.idle > 0 {
            return format!("no samples but {} of idle processors, which --idle draws", grouped(self.idle));
        }
        match self.measure {
            Measure::Samples => "no samples: the trace has none of the sampled profile (PROFILE, 0x0F2E), which weir record --kernel cpu takes; --kind off-cpu and --event NAME draw other events",
            Measure::Waits => "no waits: the trace has no context switches (CSWITCH, 0x0524), which weir record --kernel sched takes",
            Measure::Events => "no such event: weir stats FILE lists the events of a trace",
        }
        .to_owned()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A graph of such stacks.
    pub(in super::super) fn graph_of(stacks: &[(&[&str], u64)]) -> Graph {
        let mut graph = Graph {
            paths: Paths::new(false),
            tree: Tree::new(Tree::LIMIT),
            measure: Measure::Samples,
            total: 0,
            events: 0,
            without_stack: 0,
            cut: 0,
            idle: 0,
            others: 0,
            with_idle: false,
            wanted: Wanted::default(),
            window: Window::default(),
            schedulers: HashMap::new(),
        };
        for (stack, weight) in stacks {
            let path: Vec<_> =
                stack.iter().map(|name| graph.paths.functions.named(name, Kind::Program)).collect();
            let node = graph.tree.node(&path);
            graph.put(node, false, *weight);
        }
        graph
    }
}
