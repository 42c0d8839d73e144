//! Where processor time went, by samples.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use traceweir_decode::stack::Joined;

use super::span::EventSpan;
use super::{
    CallPaths, CodeKind, EventThread, FunctionId, Occurrence, ProcessId, ReportEvent, StackTree,
    ThreadSelection, TimeWindow, TraceFacts, is_truncated,
};

/// Maximum number of rows of a table. Only the table of threads can exceed it, because `analysis`
/// limits the numbers of functions and processes. `over_limit` counts the samples without a row.
const MAX_ROWS: usize = 1 << 19;
/// Maximum number of sampling intervals to remember; an undamaged trace has only a few.
const MAX_INTERVALS: usize = 64;

/// Sample counts of a function or module.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleCount {
    /// Samples taken in the function or module itself.
    pub own: u64,
    /// Samples with the function or module anywhere in the stack.
    pub all: u64,
}

/// The order of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionOrder {
    /// Most samples of its own first.
    Own,
    /// Most samples with what it calls first.
    All,
}

/// What a report of samples includes.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleOptions {
    /// Whether samples of idle processors are reported.
    pub includes_idle: bool,
    /// Whether the call paths of all samples are kept, for callers and callees.
    pub keeps_stacks: bool,
}

/// The samples of a trace by function, module, process and thread.
pub struct SampleReport {
    /// The functions and processes of the report.
    pub call_paths: CallPaths,
    /// The processes and threads that the report covers.
    pub thread_selection: ThreadSelection,
    window: TimeWindow,
    /// Whether samples of idle processors are reported.
    pub includes_idle: bool,
    by_function: HashMap<FunctionId, SampleCount>,
    /// By the label of the module.
    by_module: HashMap<String, SampleCount>,
    by_process: HashMap<ProcessId, u64>,
    by_thread: HashMap<(ProcessId, u32), u64>,
    /// The number of samples that the report counts.
    pub total: u64,
    /// Samples of idle processors.
    pub idle: u64,
    /// Samples of processes and threads that were not selected.
    pub unselected: u64,
    /// Samples without a stack.
    pub without_stack: u64,
    /// Samples whose stack was truncated at the frame limit.
    pub truncated_stacks: u64,
    /// Samples whose stack has only the function that ran.
    pub without_callers: u64,
    /// Samples of threads beyond the maximum number of rows.
    pub over_limit: u64,
    /// Sampling intervals of the trace, in units of 100 ns.
    pub intervals: BTreeSet<u64>,
    /// The time from the first to the last counted event.
    pub span: EventSpan,
    /// Processors with samples.
    pub cpus: BTreeSet<u16>,
    /// The call paths of all samples, for callers and callees of a function.
    pub tree: Option<StackTree>,
}

impl SampleReport {
    /// Creates a report of the selected processes and threads in a time window.
    pub fn new(options: SampleOptions, thread_selection: ThreadSelection, window: TimeWindow) -> Self {
        Self {
            call_paths: CallPaths::new(false),
            thread_selection,
            window,
            includes_idle: options.includes_idle,
            by_function: HashMap::new(),
            by_module: HashMap::new(),
            by_process: HashMap::new(),
            by_thread: HashMap::new(),
            total: 0,
            idle: 0,
            unselected: 0,
            without_stack: 0,
            truncated_stacks: 0,
            without_callers: 0,
            over_limit: 0,
            intervals: BTreeSet::new(),
            span: EventSpan::default(),
            cpus: BTreeSet::new(),
            tree: options.keeps_stacks.then(|| StackTree::new(StackTree::DEFAULT_MAX_NODES)),
        }
    }

    /// Adds an event of a trace. Events arrive in time order.
    pub fn add_event(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>) {
        let Joined { event, stack } = joined;
        let (thread, address, weight, is_idle) = match event.occurrence {
            Occurrence::Sample { thread, address, weight, is_idle } => (thread, address, weight, is_idle),
            Occurrence::Interval(units) => {
                if self.intervals.len() < MAX_INTERVALS {
                    self.intervals.insert(units);
                }
                return;
            }
            _ => return,
        };
        if !self.window.contains(event.time_ns) {
            return;
        }
        self.span.add(event.time_ns);
        self.cpus.insert(event.cpu);
        if is_idle {
            self.idle += weight;
            if !self.includes_idle {
                return;
            }
        }
        let thread = self.call_paths.find_thread(facts, event, stack, thread);
        let EventThread { process, tid, .. } = thread;
        if !self.thread_selection.contains(&self.call_paths.processes, process, tid) {
            self.unselected += weight;
            return;
        }
        self.total += weight;
        if stack.is_empty() {
            self.without_stack += weight;
        }
        if is_truncated(stack) {
            self.truncated_stacks += weight;
        }
        update_row(&mut self.by_process, process, |count| *count += weight);
        self.call_paths.learn_thread_name(facts, event, process, tid);
        if !update_row(&mut self.by_thread, (process, tid), |count| *count += weight) {
            self.over_limit += weight;
        }
        let path = self.call_paths.resolve(facts, joined, thread, Some(address)).to_vec();
        if self.call_paths.lacks_callers(facts, stack, &path) {
            self.without_callers += weight;
        }
        if let Some(tree) = &mut self.tree {
            let node = tree.find_or_add(&path);
            tree.add_weight(node, weight);
        }
        self.count_call_path(&path, weight);
    }

    /// Counts each function and module of a stack once in `all`, and the innermost in `own`.
    fn count_call_path(&mut self, path: &[FunctionId], weight: u64) {
        let functions = &self.call_paths.functions;
        let is_code = |id: &&FunctionId| functions.get(**id).kind != CodeKind::Process;
        let distinct: BTreeSet<FunctionId> = path.iter().filter(is_code).copied().collect();
        for id in &distinct {
            update_row(&mut self.by_function, *id, |count| count.all += weight);
        }
        let modules: BTreeSet<&str> = distinct.iter().map(|id| functions.get(*id).module_label()).collect();
        for module in modules {
            update_row(&mut self.by_module, module.to_owned(), |count| count.all += weight);
        }
        if let Some(innermost) = path.iter().rev().find(is_code) {
            update_row(&mut self.by_function, *innermost, |count| count.own += weight);
            let module = functions.get(*innermost).module_label().to_owned();
            update_row(&mut self.by_module, module, |count| count.own += weight);
        }
    }

    /// Returns the time between samples, if it is known and never changed.
    pub fn interval_ns(&self) -> Option<u64> {
        let mut intervals = self.intervals.iter();
        intervals.next().filter(|_| intervals.next().is_none()).map(|units| units.saturating_mul(100))
    }

    /// Returns the functions with their samples, sorted by their own samples or by all samples.
    pub fn functions(&self, order: FunctionOrder) -> Vec<(FunctionId, SampleCount)> {
        let mut rows: Vec<_> = self.by_function.iter().map(|(id, count)| (*id, *count)).collect();
        let label = |id: FunctionId| self.call_paths.functions.get(id).label();
        rows.sort_by_cached_key(|(id, count)| {
            let weights = match order {
                FunctionOrder::Own => (count.own, count.all),
                FunctionOrder::All => (count.all, count.own),
            };
            (u64::MAX - weights.0, u64::MAX - weights.1, label(*id), *id)
        });
        rows
    }

    /// Returns the modules with their samples, those with the most samples of their own first.
    pub fn modules(&self) -> Vec<(&str, SampleCount)> {
        let mut rows: Vec<_> = self.by_module.iter().map(|(name, count)| (&**name, *count)).collect();
        rows.sort_by_key(|(name, count)| (u64::MAX - count.own, u64::MAX - count.all, *name));
        rows
    }

    /// Returns the processes with their samples, those with the most samples first.
    pub fn processes(&self) -> Vec<(ProcessId, u64)> {
        let mut rows: Vec<_> = self.by_process.iter().map(|(id, samples)| (*id, *samples)).collect();
        rows.sort_by_cached_key(|(id, samples)| {
            (u64::MAX - samples, self.call_paths.processes.label(*id), *id)
        });
        rows
    }

    /// Returns the threads (process and thread id) with their samples, those with the most samples
    /// first.
    pub fn threads(&self) -> Vec<((ProcessId, u32), u64)> {
        let mut rows: Vec<_> = self.by_thread.iter().map(|(key, samples)| (*key, *samples)).collect();
        rows.sort_by_cached_key(|((id, tid), samples)| {
            (u64::MAX - samples, self.call_paths.processes.label(*id), *tid)
        });
        rows
    }
}

/// Changes a row; returns false if the row is new and the table is full.
fn update_row<K: Eq + Hash, V: Default>(
    rows: &mut HashMap<K, V>,
    key: K,
    change: impl FnOnce(&mut V),
) -> bool {
    let has_room = rows.len() < MAX_ROWS || rows.contains_key(&key);
    if has_room {
        change(rows.entry(key).or_default());
    }
    has_room
}
