//! `weir report sched`: reports which threads ran and waited, by context switches.

mod cause;
mod tables;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Result, bail};
use traceweir_decode::stack::Joined;
use traceweir_format::header::NO_ID;

use self::cause::{Cause, Causes};
use super::page::Page;
use crate::analysis::{
    Analysis, Back, Latencies, NodeId, Occurrence, Paths, ProcessId, Ran, ReportEvent, Scheduler, Switch,
    ThreadSelection, TraceFacts, Tree, Wants, Window, is_truncated,
};
use crate::cli::{ReportSched, Schemas};
use crate::exit::Outcome;

/// Maximum number of threads; further ones are added up in one row.
const MAX_ROWS: usize = 1 << 17;
/// Maximum number of nodes in the tree of blocked stacks.
const MAX_NODES: usize = 1 << 19;

/// Runs `weir report sched`.
pub(super) fn run(options: &ReportSched) -> Result<Outcome> {
    let wants = Wants { switches: true, ..Wants::default() };
    let selection = &options.selection;
    let span = (selection.from, selection.to);
    let mut analysis =
        Analysis::open(&selection.files.files, span, &options.symbols, &Schemas::default(), wants)?;
    let wanted = ThreadSelection::new(&selection.process, &selection.thread);
    let mut machine = Machine::new(wanted, analysis.window);
    let reading = analysis.read(|known, joined| machine.add(known, joined))?;
    machine.check_not_empty()?;
    let mut page = Page::new(options.tables);
    machine.print(&analysis, &reading, &mut page);
    page.print()?;
    reading.print_warnings();
    Ok(reading.outcome)
}

/// What a thread did; times in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Totals {
    running: u64,
    /// Number of switches to it.
    switches: u64,
    waiting: u64,
    ready: u64,
    /// Number of times it was preempted.
    preempted: u64,
    /// Wakeup latencies of the threads.
    latency: Latencies,
    /// Number and duration of its waits, by cause.
    causes: BTreeMap<Cause, (u64, u64)>,
}

impl Totals {
    fn merge(&mut self, other: &Self) {
        self.running = self.running.saturating_add(other.running);
        self.switches = self.switches.saturating_add(other.switches);
        self.waiting = self.waiting.saturating_add(other.waiting);
        self.ready = self.ready.saturating_add(other.ready);
        self.preempted = self.preempted.saturating_add(other.preempted);
        self.latency.merge(&other.latency);
        for (cause, (times, nanoseconds)) in &other.causes {
            let sum = self.causes.entry(*cause).or_default();
            *sum = (sum.0.saturating_add(*times), sum.1.saturating_add(*nanoseconds));
        }
    }
}

/// What a processor did; times in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Processor {
    busy: u64,
    idle: u64,
    switches: u64,
}

/// The state of the report: one scheduler per trace, and the totals of all.
struct Machine {
    paths: Paths,
    wanted: ThreadSelection,
    window: Window,
    schedulers: HashMap<usize, Scheduler<Option<NodeId>>>,
    rows: HashMap<(ProcessId, u32), Totals>,
    processors: BTreeMap<(usize, u16), Processor>,
    /// Traces with the switches of some threads only, so that the rest of their processors' time is
    /// unknown.
    partial: BTreeSet<usize>,
    blocked: Tree,
    causes: Causes,
    switches: u64,
    wakes: u64,
    /// Events that contain several switches, which are not decoded.
    batches: u64,
    /// Switches without a stack of either thread.
    without_stack: u64,
    /// Switches whose stack was truncated at the frame limit.
    truncated: u64,
    first: Option<i64>,
    last: i64,
}

impl Machine {
    fn new(wanted: ThreadSelection, window: Window) -> Self {
        let mut paths = Paths::new(false);
        paths.marks_truncated = true;
        Self {
            paths,
            wanted,
            window,
            schedulers: HashMap::new(),
            rows: HashMap::new(),
            processors: BTreeMap::new(),
            partial: BTreeSet::new(),
            blocked: Tree::new(MAX_NODES),
            causes: Causes::default(),
            switches: 0,
            wakes: 0,
            batches: 0,
            without_stack: 0,
            truncated: 0,
            first: None,
            last: 0,
        }
    }

    /// Fails if there is nothing to report: zeros would look like a result.
    fn check_not_empty(&self) -> Result<()> {
        // A time span without a switch may still have running threads.
        if self.processors.is_empty() && self.batches == 0 {
            bail!(
                "no context switches: the trace has none (CSWITCH, 0x0524); weir record --kernel sched -o sched.etl records them"
            );
        }
        let mut threads = self.rows.keys();
        if !threads.any(|(process, thread)| self.wanted.wants(&self.paths.processes, *process, *thread))
            && self.wanted.is_limited()
        {
            bail!("{}", self.wanted.no_match_message(&self.paths.processes, "switches"));
        }
        Ok(())
    }

    fn add(&mut self, known: &mut TraceFacts, joined: &Joined<ReportEvent>) {
        let seen = &joined.what;
        let is_inside = self.window.contains(seen.time);
        if is_inside {
            self.first.get_or_insert(seen.time);
            self.last = seen.time;
        }
        match seen.what {
            Occurrence::Switch(switch) => self.switch(known, joined, switch, is_inside),
            Occurrence::Ready { thread } => {
                self.wakes += u64::from(is_inside);
                self.schedulers.entry(seen.file).or_default().ready(seen.time, thread);
            }
            Occurrence::Switches => self.batches += u64::from(is_inside),
            _ => {}
        }
    }

    fn switch(
        &mut self,
        known: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        switch: Switch,
        is_inside: bool,
    ) {
        let (seen, stack) = (&joined.what, &joined.stack);
        self.switches += u64::from(is_inside);
        self.without_stack += u64::from(is_inside && stack.is_empty());
        self.truncated += u64::from(is_inside && is_truncated(stack));
        if switch.old == NO_ID || switch.new == NO_ID {
            self.partial.insert(seen.file);
        }
        // A stack belongs to the thread that leaves, or to the one that comes.
        let owner = stack.owner.map(|(_, thread)| thread);
        let leaves = if owner == Some(switch.old) && switch.old != 0 {
            self.node(known, joined, switch.old)
        } else {
            None
        };
        let (ran, back) = self.schedulers.entry(seen.file).or_default().switch(seen.time, switch, leaves);
        if let Some(ran) = ran {
            self.ran(known, seen, ran);
        }
        self.processors.entry((seen.file, switch.cpu)).or_default().switches += u64::from(is_inside);
        if let Some(back) = back {
            let comes = if owner == Some(switch.new) { self.node(known, joined, switch.new) } else { None };
            self.back(known, joined, back, comes, is_inside);
        }
    }

    /// Returns the stack of a thread as a node, if the thread is selected: symbols of other
    /// processes are not even loaded.
    fn node(&mut self, known: &mut TraceFacts, joined: &Joined<ReportEvent>, thread: u32) -> Option<NodeId> {
        let (pid, process) = self.paths.process(known, &joined.what, &joined.stack, thread);
        if !self.wanted.wants(&self.paths.processes, process, thread) {
            return None;
        }
        let path = self.paths.resolve(known, joined, (process, pid, thread), None);
        Some(self.blocked.node(path))
    }

    fn ran(&mut self, known: &TraceFacts, seen: &ReportEvent, ran: Ran) {
        let part = self.window.part(ran.from, ran.to);
        let processor = self.processors.entry((seen.file, seen.cpu)).or_default();
        if ran.thread == 0 {
            processor.idle = processor.idle.saturating_add(part);
            return;
        }
        processor.busy = processor.busy.saturating_add(part);
        let row = self.row(known, seen, ran.thread);
        row.running = row.running.saturating_add(part);
    }

    fn back(
        &mut self,
        known: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        back: Back<Option<NodeId>>,
        comes: Option<NodeId>,
        is_inside: bool,
    ) {
        let (seen, window) = (&joined.what, self.window);
        let waits = back.away.as_ref().and_then(|away| Some((away.reason?, away.stack.or(comes))));
        let cause = waits.and_then(|(reason, node)| {
            self.causes.find(known.is_linux(), reason, node, (&self.blocked, &self.paths.functions))
        });
        let row = self.row(known, seen, back.thread);
        row.switches += u64::from(is_inside);
        if let Some(readied) = back.readied.filter(|_| is_inside) {
            row.latency.add(u64::try_from(back.to.saturating_sub(readied)).unwrap_or(0));
        }
        let Some(away) = back.away else {
            if let Some(readied) = back.readied {
                row.ready = row.ready.saturating_add(window.part(readied, back.to));
            }
            return;
        };
        if away.reason.is_none() {
            row.preempted += u64::from(is_inside);
            row.ready = row.ready.saturating_add(window.part(away.from, back.to));
            return;
        }
        let woken = back.readied.unwrap_or(back.to).max(away.from);
        let waited = window.part(away.from, woken);
        row.waiting = row.waiting.saturating_add(waited);
        row.ready = row.ready.saturating_add(window.part(woken, back.to));
        if let Some(cause) = cause {
            let sum = row.causes.entry(cause).or_default();
            *sum = (sum.0.saturating_add(u64::from(is_inside)), sum.1.saturating_add(waited));
        }
        self.block(known, joined, back.thread, away.stack.or(comes), window.part(away.from, back.to));
    }

    /// Adds the time that a selected thread was away to the stack at which it waited.
    fn block(
        &mut self,
        known: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        thread: u32,
        node: Option<NodeId>,
        time: u64,
    ) {
        let (pid, process) = self.paths.process(known, &joined.what, &joined.stack, thread);
        if time == 0 || !self.wanted.wants(&self.paths.processes, process, thread) {
            return;
        }
        let node = node.unwrap_or_else(|| {
            let without_stack =
                Joined { what: joined.what.clone(), stack: traceweir_decode::stack::Stack::default() };
            let path = self.paths.resolve(known, &without_stack, (process, pid, thread), None);
            self.blocked.node(path)
        });
        self.blocked.add_weight(node, time);
    }

    fn row(&mut self, known: &TraceFacts, seen: &ReportEvent, thread: u32) -> &mut Totals {
        let pid = known.process_of(thread, seen.stamp);
        let key = (self.paths.process_by_pid(known, seen, pid), thread);
        self.paths.learn_thread_name(known, seen, key.0, thread);
        let has_room = self.rows.len() < MAX_ROWS || self.rows.contains_key(&key);
        self.rows.entry(if has_room { key } else { (ProcessId::default(), 0) }).or_default()
    }
}
