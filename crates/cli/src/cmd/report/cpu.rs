//! `weir report cpu`: reports where processor time went, by samples.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use anyhow::{Result, bail};
use traceweir_decode::stack::Joined;

use super::page::{
    Page, milliseconds, name, percent, percent_with_error, put_fraction, put_pid, share, summary,
};
use crate::analysis::{
    Analysis, FunctionId, Kind, Occurrence, Paths, ProcessId, ReportEvent, ThreadSelection, TraceFacts,
    Wants, Window, is_truncated,
};
use crate::cli::{ReportCpu, Schemas};
use crate::exit::Outcome;
use crate::text::{Object, counted, grouped};
use crate::traces::Reading;

/// Maximum number of rows of one table. Functions, modules and processes have their own limits;
/// samples of threads beyond this one are counted separately.
const MAX_ROWS: usize = 1 << 19;

/// Runs `weir report cpu`.
pub(super) fn run(options: &ReportCpu) -> Result<Outcome> {
    let wants = Wants { samples: true, ..Wants::default() };
    let selection = &options.selection;
    let span = (selection.from, selection.to);
    let mut analysis =
        Analysis::open(&selection.files.files, span, &options.symbols, &Schemas::default(), wants)?;
    let mut samples = Samples::new(options, analysis.window);
    let reading = analysis.read(|known, joined| samples.add(known, joined))?;
    samples.check_not_empty()?;
    let mut page = Page::new(options.tables);
    samples.headline(&analysis, &reading, &mut page);
    samples.tables(&mut page);
    page.print()?;
    reading.print_warnings();
    Ok(reading.outcome)
}

/// Samples of a function or module: those taken in it, and those with it anywhere in the stack.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    own: u64,
    all: u64,
}

struct Samples {
    paths: Paths,
    wanted: ThreadSelection,
    window: Window,
    with_idle: bool,
    by_function: HashMap<FunctionId, Count>,
    /// By the label of the module.
    by_module: HashMap<String, Count>,
    by_process: HashMap<ProcessId, u64>,
    by_thread: HashMap<(ProcessId, u32), u64>,
    total: u64,
    idle: u64,
    /// Samples of processes and threads that were not selected.
    others: u64,
    without_stack: u64,
    truncated: u64,
    /// Samples of threads beyond the maximum number of rows.
    beyond: u64,
    intervals: BTreeSet<u64>,
    first: Option<i64>,
    last: i64,
    cpus: BTreeSet<u16>,
}

impl Samples {
    fn new(options: &ReportCpu, window: Window) -> Self {
        Self {
            paths: Paths::new(false),
            wanted: ThreadSelection::new(&options.selection.process, &options.selection.thread),
            window,
            with_idle: options.idle,
            by_function: HashMap::new(),
            by_module: HashMap::new(),
            by_process: HashMap::new(),
            by_thread: HashMap::new(),
            total: 0,
            idle: 0,
            others: 0,
            without_stack: 0,
            truncated: 0,
            beyond: 0,
            intervals: BTreeSet::new(),
            first: None,
            last: 0,
            cpus: BTreeSet::new(),
        }
    }

    fn add(&mut self, known: &mut TraceFacts, joined: &Joined<ReportEvent>) {
        let Joined { what: seen, stack } = joined;
        let (thread, address, weight, is_idle) = match seen.what {
            Occurrence::Sample { thread, address, weight, is_idle } => (thread, address, weight, is_idle),
            Occurrence::Interval(units) => {
                // A sound trace has only a few.
                if self.intervals.len() < 64 {
                    self.intervals.insert(units);
                }
                return;
            }
            _ => return,
        };
        if !self.window.contains(seen.time) {
            return;
        }
        self.first.get_or_insert(seen.time);
        self.last = seen.time;
        self.cpus.insert(seen.cpu);
        if is_idle {
            self.idle += weight;
            if !self.with_idle {
                return;
            }
        }
        let (pid, process) = self.paths.process(known, seen, stack, thread);
        if !self.wanted.wants(&self.paths.processes, process, thread) {
            self.others += weight;
            return;
        }
        self.total += weight;
        if stack.is_empty() {
            self.without_stack += weight;
        }
        if is_truncated(stack) {
            self.truncated += weight;
        }
        add(&mut self.by_process, process, |count| *count += weight);
        self.paths.learn_thread_name(known, seen, process, thread);
        if !add(&mut self.by_thread, (process, thread), |count| *count += weight) {
            self.beyond += weight;
        }
        let path = self.paths.resolve(known, joined, (process, pid, thread), Some(address)).to_vec();
        self.count_path(&path, weight);
    }

    /// Counts each function and module of a stack once in `all`, and the innermost in `own`.
    fn count_path(&mut self, path: &[FunctionId], weight: u64) {
        let functions = &self.paths.functions;
        let code = |id: &&FunctionId| functions.get(**id).kind != Kind::Process;
        let distinct: BTreeSet<FunctionId> = path.iter().filter(code).copied().collect();
        for id in &distinct {
            add(&mut self.by_function, *id, |count| count.all += weight);
        }
        let modules: BTreeSet<&str> = distinct.iter().map(|id| functions.get(*id).module_label()).collect();
        for module in modules {
            add(&mut self.by_module, module.to_owned(), |count| count.all += weight);
        }
        if let Some(innermost) = path.iter().rev().find(code) {
            add(&mut self.by_function, *innermost, |count| count.own += weight);
            let module = functions.get(*innermost).module_label().to_owned();
            add(&mut self.by_module, module, |count| count.own += weight);
        }
    }

    /// Fails if there is nothing to report: zeros would look like a result.
    fn check_not_empty(&self) -> Result<()> {
        if self.total == 0 && self.wanted.is_limited() && self.others > 0 {
            bail!("{}", self.wanted.no_match_message(&self.paths.processes, "samples"));
        }
        if self.total == 0 && self.idle == 0 {
            bail!(
                "no samples: the trace has none in this time (PROFILE, 0x0F2E); weir record --kernel cpu -o cpu.etl records them"
            );
        }
        Ok(())
    }

    /// Returns the time between samples in nanoseconds, if it never changed.
    fn interval(&self) -> Option<u64> {
        let mut all = self.intervals.iter();
        all.next().filter(|_| all.next().is_none()).map(|units| units.saturating_mul(100))
    }

    fn headline(&self, analysis: &Analysis, reading: &Reading, page: &mut Page) {
        let seconds = self.first.map_or(0.0, |first| self.last.saturating_sub(first) as f64 / 1e9);
        let mut object = summary(analysis, reading);
        object.number("samples", self.total).number("idle", self.idle).number("others", self.others);
        object.number("without_stack", self.without_stack).number("cut", self.truncated);
        object.number("processors", self.cpus.len() as u64);
        put_fraction(&mut object, "seconds", seconds);
        match self.interval() {
            Some(interval) => object.number("interval_ns", interval),
            None => object.raw("interval_ns", "null"),
        };
        page.object(&object);
        let sample_count = self.total + self.others + if self.with_idle { 0 } else { self.idle };
        let processors = counted(self.cpus.len() as u64, "processor");
        page.line(&format!("{} in {seconds:.3} s on {processors}", counted(sample_count, "sample")));
        page.line(&self.interval_line());
        let idle = if self.with_idle { "reported as the others" } else { "left out (--idle)" };
        page.line(&format!(
            "of idle processors: {} ({} %), {idle}",
            grouped(self.idle),
            percent(self.idle, sample_count)
        ));
        if self.others > 0 {
            page.line(&format!("of other processes and threads: {}, left out", grouped(self.others)));
        }
        page.line(&format!(
            "reported: {}; without a stack: {} ({} %), counted by their address alone",
            counted(self.total, "sample"),
            grouped(self.without_stack),
            percent(self.without_stack, self.total)
        ));
        if self.truncated > 0 {
            let (truncated, share) = (counted(self.truncated, "stack"), percent(self.truncated, self.total));
            page.line(&format!(
                "truncated at the frame limit: {truncated} ({share} %); their outermost functions are not counted"
            ));
        }
        page.losses(analysis, reading);
        if self.beyond > 0 {
            page.line(&format!("too many threads: {} are in no row", counted(self.beyond, "sample")));
        }
        if self.paths.functions.is_full() {
            page.line("too many functions: the rest is (other)");
        }
    }

    fn interval_line(&self) -> String {
        let ms = |units: u64| format!("{} ms", milliseconds(units.saturating_mul(100)));
        match (self.interval(), self.intervals.len()) {
            (Some(interval), _) => format!("sampled every {}", ms(interval / 100)),
            (None, 0) => "the sampling interval is unknown".to_owned(),
            (None, _) => {
                let all: Vec<String> = self.intervals.iter().map(|units| ms(*units)).collect();
                format!("the sampling interval changed ({}): samples have different weights", all.join(", "))
            }
        }
    }

    fn tables(&self, page: &mut Page) {
        let mut functions: Vec<(FunctionId, Count)> =
            self.by_function.iter().map(|(k, v)| (*k, *v)).collect();
        let label = |id: FunctionId| self.paths.functions.get(id).label();
        functions
            .sort_by_cached_key(|(id, count)| (u64::MAX - count.own, u64::MAX - count.all, label(*id), *id));
        let by_own: Vec<_> = functions.iter().filter(|(_, count)| count.own > 0).copied().collect();
        self.functions("functions, by their own samples", &by_own, page);
        if !page.is_json() {
            functions.sort_by_cached_key(|(id, count)| {
                (u64::MAX - count.all, u64::MAX - count.own, label(*id), *id)
            });
            self.functions("functions, with what they call", &functions, page);
        } else {
            let rest: Vec<_> = functions.into_iter().filter(|(_, count)| count.own == 0).collect();
            self.functions("", &rest, page);
        }
        self.modules(page);
        self.processes(page);
        self.threads(page);
    }

    fn functions(&self, title: &str, rows: &[(FunctionId, Count)], page: &mut Page) {
        let head = [
            ("own", true),
            ("own %", true),
            ("all", true),
            ("all %", true),
            ("own ms", true),
            ("function", false),
        ];
        let cells =
            |(id, count): &(FunctionId, Count)| self.counts(count, &self.paths.functions.get(*id).label());
        page.table(title, head, rows, cells, |(id, count)| {
            let function = self.paths.functions.get(*id);
            let mut object = self.object("function", &function.label(), count);
            object
                .optional("module", function.module.as_deref())
                .optional("function", function.name.as_deref());
            object.raw("inlined", if function.is_inlined { "true" } else { "false" });
            object
        });
    }

    fn modules(&self, page: &mut Page) {
        let mut rows: Vec<_> = self.by_module.iter().collect();
        rows.sort_by_key(|(name, count)| (u64::MAX - count.own, u64::MAX - count.all, (*name).clone()));
        let head = [
            ("own", true),
            ("own %", true),
            ("all", true),
            ("all %", true),
            ("own ms", true),
            ("module", false),
        ];
        page.table(
            "modules",
            head,
            &rows,
            |(name, count)| self.counts(count, name),
            |(name, count)| self.object("module", name, count),
        );
    }

    fn counts(&self, count: &Count, label: &str) -> [String; 6] {
        [
            grouped(count.own),
            percent_with_error(count.own, self.total),
            grouped(count.all),
            percent_with_error(count.all, self.total),
            self.time(count.own),
            name(label),
        ]
    }

    fn time(&self, samples: u64) -> String {
        self.interval().map_or_else(|| "-".to_owned(), |ns| milliseconds(samples.saturating_mul(ns)))
    }

    fn object(&self, by: &str, label: &str, count: &Count) -> Object {
        let mut object = Object::new();
        object.text("by", by).text("name", label).number("own", count.own).number("all", count.all);
        let ((own, own_error), (all, all_error)) =
            (share(count.own, self.total), share(count.all, self.total));
        put_fraction(&mut object, "own_share", own);
        put_fraction(&mut object, "own_error", own_error);
        put_fraction(&mut object, "all_share", all);
        put_fraction(&mut object, "all_error", all_error);
        object
    }

    fn processes(&self, page: &mut Page) {
        let label = |id: ProcessId| self.paths.processes.label(id);
        let mut rows: Vec<_> = self.by_process.iter().map(|(id, n)| (*id, *n)).collect();
        rows.sort_by_cached_key(|(id, n)| (u64::MAX - n, label(*id), *id));
        let head = [("samples", true), ("%", true), ("ms", true), ("process", false)];
        let cells = |(id, n): &(ProcessId, u64)| {
            [grouped(*n), percent_with_error(*n, self.total), self.time(*n), name(&label(*id))]
        };
        page.table("processes", head, &rows, cells, |(id, n)| self.process_object("process", *id, *n));
    }

    fn threads(&self, page: &mut Page) {
        let label = |id: ProcessId| self.paths.processes.label(id);
        let mut rows: Vec<_> = self.by_thread.iter().map(|(key, n)| (*key, *n)).collect();
        rows.sort_by_cached_key(|((id, tid), n)| (u64::MAX - n, label(*id), *tid));
        let head = [("samples", true), ("%", true), ("ms", true), ("thread", false), ("process", false)];
        let cells = |((id, tid), n): &((ProcessId, u32), u64)| {
            let share = percent_with_error(*n, self.total);
            let thread = name(&self.paths.thread_label(*id, *tid));
            [grouped(*n), share, self.time(*n), thread, name(&label(*id))]
        };
        page.table("threads", head, &rows, cells, |((id, tid), n)| {
            let mut object = self.process_object("thread", *id, *n);
            object.number("tid", *tid).optional("thread", self.paths.thread_name(*id, *tid));
            object
        });
    }

    fn process_object(&self, by: &str, id: ProcessId, samples: u64) -> Object {
        let mut object = Object::new();
        object.text("by", by).text("name", &self.paths.processes.label(id)).number("samples", samples);
        put_pid(&mut object, self.paths.processes.pid(id));
        object.optional("process", self.paths.processes.name(id));
        let (share, error) = share(samples, self.total);
        put_fraction(&mut object, "share", share);
        put_fraction(&mut object, "error", error);
        object
    }
}

/// Changes a row, unless it is new and the table is full; returns whether it did.
fn add<K: Eq + Hash, V: Default>(rows: &mut HashMap<K, V>, key: K, change: impl FnOnce(&mut V)) -> bool {
    let has_room = rows.len() < MAX_ROWS || rows.contains_key(&key);
    if has_room {
        change(rows.entry(key).or_default());
    }
    has_room
}
