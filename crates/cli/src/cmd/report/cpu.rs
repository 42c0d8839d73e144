//! `weir report cpu`: reports where processor time went, by samples.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use anyhow::{Result, bail};
use traceweir_analysis::report::{
    Analysis, CallPaths, CodeKind, EventThread, FunctionId, NeededEvents, Occurrence, ProcessId, ReportEvent,
    StackTree, ThreadSelection, TimeWindow, TraceFacts, is_truncated,
};
use traceweir_analysis::traces::ReadSummary;
use traceweir_decode::stack::Joined;

use super::callers::{FunctionNeighbours, find_neighbours};
use super::page::{
    EventSpan, ReportPage, format_ms, format_name, format_percent, format_share, put_fraction, put_process,
    share_with_error, summary_object,
};
use crate::cli::ReportCpuArgs;
use crate::exit::CommandOutcome;
use crate::progress::TerminalObserver;
use crate::reading::{missing_callers_note, reading_outcome};
use crate::text::{JsonObject, format_count, format_number};

/// Maximum number of rows of a table. Only the table of threads can exceed it, because `analysis`
/// limits the numbers of functions and processes. `over_limit` counts the samples without a row.
const MAX_ROWS: usize = 1 << 19;
/// Maximum number of sampling intervals to remember; an undamaged trace has only a few.
const MAX_INTERVALS: usize = 64;

pub(super) fn run(options: &ReportCpuArgs) -> Result<CommandOutcome> {
    let needed = NeededEvents { samples: true, ..NeededEvents::default() };
    let mut analysis = Analysis::open(
        &options.selection.options_with(&options.symbols),
        needed,
        TerminalObserver::create(false),
    )?;
    let mut samples = SampleReport::new(options, analysis.window);
    let reading = analysis.read(|facts, joined| samples.add_event(facts, joined))?;
    samples.check_not_empty()?;
    let mut page = ReportPage::new(options.tables);
    samples.add_headline(&analysis, &reading, &mut page);
    match (&options.function, &samples.tree) {
        (Some(name), Some(tree)) => {
            let is_linux = analysis.has_linux_trace();
            let neighbours = find_neighbours(&samples.call_paths.functions, tree, name, is_linux)?;
            samples.add_neighbours(&neighbours, is_linux, &mut page);
        }
        _ => samples.add_tables(&mut page),
    }
    page.print(&reading)?;
    Ok(reading_outcome(&reading))
}

/// Sample counts of a function or module.
#[derive(Clone, Copy, Debug, Default)]
struct SampleCount {
    /// Samples taken in the function or module itself.
    own: u64,
    /// Samples with the function or module anywhere in the stack.
    all: u64,
}

struct SampleReport {
    call_paths: CallPaths,
    thread_selection: ThreadSelection,
    window: TimeWindow,
    includes_idle: bool,
    by_function: HashMap<FunctionId, SampleCount>,
    /// By the label of the module.
    by_module: HashMap<String, SampleCount>,
    by_process: HashMap<ProcessId, u64>,
    by_thread: HashMap<(ProcessId, u32), u64>,
    /// The number of samples that the report counts.
    total: u64,
    /// Samples of idle processors, which are reported only with `--idle`.
    idle: u64,
    /// Samples of processes and threads that were not selected.
    unselected: u64,
    without_stack: u64,
    truncated_stacks: u64,
    /// Samples whose stack has only the function that ran.
    without_callers: u64,
    /// Samples of threads beyond the maximum number of rows.
    over_limit: u64,
    /// Sampling intervals of the trace, in units of 100 ns.
    intervals: BTreeSet<u64>,
    span: EventSpan,
    cpus: BTreeSet<u16>,
    /// The call paths of all samples, for callers and callees of a function.
    tree: Option<StackTree>,
}

impl SampleReport {
    fn new(options: &ReportCpuArgs, window: TimeWindow) -> Self {
        Self {
            call_paths: CallPaths::new(false),
            thread_selection: options.selection.thread_selection(),
            window,
            includes_idle: options.idle,
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
            tree: options.function.as_ref().map(|_| StackTree::new(StackTree::DEFAULT_MAX_NODES)),
        }
    }

    fn add_event(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>) {
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

    /// Fails if there is nothing to report: zeros would look like a result.
    fn check_not_empty(&self) -> Result<()> {
        if self.total == 0 && self.thread_selection.is_limited() && self.unselected > 0 {
            bail!("{}", self.thread_selection.no_match_message(&self.call_paths.processes, "samples"));
        }
        if self.total == 0 && self.idle == 0 {
            bail!(
                "no samples: the trace has no CPU samples, or none in the selected time; weir record --kernel cpu -- CMD records them"
            );
        }
        Ok(())
    }

    /// Returns the time between samples, if it is known and never changed.
    fn interval_ns(&self) -> Option<u64> {
        let mut intervals = self.intervals.iter();
        intervals.next().filter(|_| intervals.next().is_none()).map(|units| units.saturating_mul(100))
    }

    fn add_headline(&self, analysis: &Analysis, reading: &ReadSummary, page: &mut ReportPage) {
        let seconds = self.span.seconds();
        let mut object = summary_object(analysis, reading);
        object.number("samples", self.total).number("idle", self.idle).number("others", self.unselected);
        object.number("without_stack", self.without_stack).number("cut", self.truncated_stacks);
        object.number("processors", self.cpus.len() as u64);
        put_fraction(&mut object, "seconds", seconds);
        match self.interval_ns() {
            Some(interval) => object.number("interval_ns", interval),
            None => object.raw("interval_ns", "null"),
        };
        page.add_object(&object);
        let sample_count = self.total + self.unselected + if self.includes_idle { 0 } else { self.idle };
        let processors = format_count(self.cpus.len() as u64, "processor");
        page.add_line(&format!("{} in {seconds:.3} s on {processors}", format_count(sample_count, "sample")));
        page.add_line(&self.format_interval());
        if self.idle > 0 {
            let idle = if self.includes_idle {
                "reported like the others"
            } else {
                "left out (--idle includes them)"
            };
            page.add_line(&format!(
                "of idle processors: {} ({} %), {idle}",
                format_number(self.idle),
                format_percent(self.idle, sample_count)
            ));
        }
        page.add_unselected(self.unselected);
        if self.total < sample_count {
            page.add_line(&format!("reported: {}", format_count(self.total, "sample")));
        }
        if self.without_stack > 0 {
            page.add_line(&format!(
                "without a stack: {} ({} %), counted by their address alone",
                format_number(self.without_stack),
                format_percent(self.without_stack, self.total)
            ));
        }
        page.add_line(
            "± is the standard error of a share: the true share lies within it in two of three cases",
        );
        if self.truncated_stacks > 0 {
            let (truncated, share) = (
                format_count(self.truncated_stacks, "stack"),
                format_percent(self.truncated_stacks, self.total),
            );
            page.add_line(&format!(
                "truncated at the frame limit: {truncated} ({share} %); their outermost functions are not counted"
            ));
        }
        if let Some(note) = missing_callers_note(self.without_callers, self.total) {
            page.add_line(&note);
        }
        page.add_losses(analysis, reading);
        if self.over_limit > 0 {
            page.add_line(&format!(
                "too many threads: {} in no row of threads",
                format_count(self.over_limit, "sample")
            ));
        }
        if self.call_paths.functions.is_full() {
            page.add_line("too many functions: the others are counted as (other)");
        }
    }

    fn format_interval(&self) -> String {
        let format_units = |units: u64| format!("{} ms", format_ms(units.saturating_mul(100)));
        match (self.interval_ns(), self.intervals.len()) {
            (Some(interval), _) => format!("sampled every {}", format_units(interval / 100)),
            (None, 0) => "the sampling interval is unknown".to_owned(),
            (None, _) => {
                let intervals: Vec<String> =
                    self.intervals.iter().map(|units| format_units(*units)).collect();
                let intervals = intervals.join(", ");
                format!("the sampling interval changed ({intervals}): samples stand for different times")
            }
        }
    }

    fn add_tables(&self, page: &mut ReportPage) {
        let mut functions: Vec<(FunctionId, SampleCount)> =
            self.by_function.iter().map(|(k, v)| (*k, *v)).collect();
        let label = |id: FunctionId| self.call_paths.functions.get(id).label();
        functions
            .sort_by_cached_key(|(id, count)| (u64::MAX - count.own, u64::MAX - count.all, label(*id), *id));
        let by_own: Vec<_> = functions.iter().filter(|(_, count)| count.own > 0).copied().collect();
        self.add_function_table("functions, by their own samples", &by_own, page);
        if !page.is_json() {
            functions.sort_by_cached_key(|(id, count)| {
                (u64::MAX - count.all, u64::MAX - count.own, label(*id), *id)
            });
            self.add_function_table("functions, with what they call", &functions, page);
        } else {
            // In JSON, each function has one object: those with own samples above, the others here.
            let without_own: Vec<_> = functions.into_iter().filter(|(_, count)| count.own == 0).collect();
            self.add_function_table("", &without_own, page);
        }
        self.add_module_table(page);
        self.add_process_table(page);
        self.add_thread_table(page);
    }

    /// Adds the samples of a function, and its callers and callees.
    fn add_neighbours(&self, neighbours: &FunctionNeighbours, is_linux: bool, page: &mut ReportPage) {
        let FunctionNeighbours { label, own, all, callers, callees } = neighbours;
        let count = SampleCount { own: *own, all: *all };
        page.add_object(&self.count_to_json("target", label, &count));
        page.add_line(&format!(
            "function {}: {} with what it calls ({} %), {} of its own ({} %)",
            format_name(label),
            format_count(*all, "sample"),
            format_share(*all, self.total),
            format_number(*own),
            format_share(*own, self.total)
        ));
        if is_linux && !callers.is_empty() {
            page.add_line("if it was recorded without --unwind, stacks lack the direct caller of a function without a frame of its own, such as a leaf function");
        }
        for (title, by, rows) in [("callers", "caller", callers), ("callees", "callee", callees)] {
            let columns = [("samples", true), ("%", true), ("% of all", true), (by, false)];
            page.add_table(
                title,
                columns,
                rows,
                |(name, samples)| {
                    [
                        format_number(*samples),
                        format_percent(*samples, *all),
                        format_share(*samples, self.total),
                        format_name(name),
                    ]
                },
                |(name, samples)| {
                    let mut object = JsonObject::new();
                    object.text("by", by).text("name", name).number("samples", *samples);
                    put_fraction(&mut object, "share", share_with_error(*samples, *all).0);
                    put_fraction(&mut object, "share_of_all", share_with_error(*samples, self.total).0);
                    object
                },
            );
        }
    }

    fn add_function_table(&self, title: &str, rows: &[(FunctionId, SampleCount)], page: &mut ReportPage) {
        let columns = [
            ("own", true),
            ("own %", true),
            ("all", true),
            ("all %", true),
            ("own ms", true),
            ("function", false),
        ];
        let cells = |(id, count): &(FunctionId, SampleCount)| {
            self.format_count_cells(count, &self.call_paths.functions.get(*id).label())
        };
        page.add_table(title, columns, rows, cells, |(id, count)| {
            let function = self.call_paths.functions.get(*id);
            let mut object = self.count_to_json("function", &function.label(), count);
            object
                .optional("module", function.module.as_deref())
                .optional("function", function.name.as_deref());
            object.raw("inlined", if function.is_inlined { "true" } else { "false" });
            object
        });
    }

    fn add_module_table(&self, page: &mut ReportPage) {
        let mut rows: Vec<_> = self.by_module.iter().collect();
        rows.sort_by_key(|(name, count)| (u64::MAX - count.own, u64::MAX - count.all, (*name).clone()));
        let columns = [
            ("own", true),
            ("own %", true),
            ("all", true),
            ("all %", true),
            ("own ms", true),
            ("module", false),
        ];
        page.add_table(
            "modules",
            columns,
            &rows,
            |(name, count)| self.format_count_cells(count, name),
            |(name, count)| self.count_to_json("module", name, count),
        );
    }

    fn format_count_cells(&self, count: &SampleCount, label: &str) -> [String; 6] {
        [
            format_number(count.own),
            format_share(count.own, self.total),
            format_number(count.all),
            format_share(count.all, self.total),
            self.format_sample_time(count.own),
            format_name(label),
        ]
    }

    /// Formats the time that samples stand for, in milliseconds, with no more digits than the
    /// interval justifies.
    fn format_sample_time(&self, samples: u64) -> String {
        let Some(interval_ns) = self.interval_ns() else { return "-".to_owned() };
        let tenths = samples.saturating_mul(interval_ns).saturating_add(50_000) / 100_000;
        match interval_ns >= 1_000_000 {
            true => format_number(tenths.saturating_add(5) / 10),
            false => format!("{}.{}", format_number(tenths / 10), tenths % 10),
        }
    }

    fn count_to_json(&self, by: &str, label: &str, count: &SampleCount) -> JsonObject {
        let mut object = JsonObject::new();
        object.text("by", by).text("name", label).number("own", count.own).number("all", count.all);
        let ((own, own_error), (all, all_error)) =
            (share_with_error(count.own, self.total), share_with_error(count.all, self.total));
        put_fraction(&mut object, "own_share", own);
        put_fraction(&mut object, "own_error", own_error);
        put_fraction(&mut object, "all_share", all);
        put_fraction(&mut object, "all_error", all_error);
        object
    }

    fn add_process_table(&self, page: &mut ReportPage) {
        let label = |id: ProcessId| self.call_paths.processes.label(id);
        let mut rows: Vec<_> = self.by_process.iter().map(|(id, n)| (*id, *n)).collect();
        rows.sort_by_cached_key(|(id, n)| (u64::MAX - n, label(*id), *id));
        let columns = [("samples", true), ("%", true), ("ms", true), ("process", false)];
        let cells = |(id, n): &(ProcessId, u64)| {
            [
                format_number(*n),
                format_share(*n, self.total),
                self.format_sample_time(*n),
                format_name(&label(*id)),
            ]
        };
        page.add_table("processes", columns, &rows, cells, |(id, n)| self.process_object("process", *id, *n));
    }

    fn add_thread_table(&self, page: &mut ReportPage) {
        let label = |id: ProcessId| self.call_paths.processes.label(id);
        let mut rows: Vec<_> = self.by_thread.iter().map(|(key, n)| (*key, *n)).collect();
        rows.sort_by_cached_key(|((id, tid), n)| (u64::MAX - n, label(*id), *tid));
        let columns = [("samples", true), ("%", true), ("ms", true), ("thread", false), ("process", false)];
        let cells = |((id, tid), n): &((ProcessId, u32), u64)| {
            let share = format_share(*n, self.total);
            let thread = format_name(&self.call_paths.thread_label(*id, *tid));
            [format_number(*n), share, self.format_sample_time(*n), thread, format_name(&label(*id))]
        };
        page.add_table("threads", columns, &rows, cells, |((id, tid), n)| {
            let mut object = self.process_object("thread", *id, *n);
            object.number("tid", *tid).optional("thread", self.call_paths.thread_name(*id, *tid));
            object
        });
    }

    fn process_object(&self, by: &str, id: ProcessId, samples: u64) -> JsonObject {
        let mut object = JsonObject::new();
        object.text("by", by).text("name", &self.call_paths.processes.label(id)).number("samples", samples);
        put_process(&mut object, &self.call_paths.processes, Some(id));
        let (share, error) = share_with_error(samples, self.total);
        put_fraction(&mut object, "share", share);
        put_fraction(&mut object, "error", error);
        object
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
