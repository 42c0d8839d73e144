//! `weir report file`: reports what processes did with files.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use traceweir_analysis::report::{
    Analysis, CallPaths, FileOperation, FileOperationKind, Latencies, NeededEvents, Occurrence, ProcessId,
    ReportEvent, ThreadSelection, TimeWindow, TraceFacts, elapsed_ns,
};
use traceweir_analysis::traces::ReadSummary;
use traceweir_decode::stack::Joined;
use traceweir_format::header::NO_ID;

use super::page::{
    EventSpan, ReportPage, TableNames, format_ms, format_name, format_percentiles, format_recorded_time,
    put_percentiles, put_process, summary_object,
};
use super::rows::{Rows, row_label};
use crate::cli::ReportFileArgs;
use crate::exit::CommandOutcome;
use crate::progress::TerminalObserver;
use crate::reading::reading_outcome;
use crate::text::{JsonObject, format_count, format_number};

/// Maximum number of operations whose end is awaited, and of open files whose path is remembered.
const MAX_PENDING: usize = 1 << 16;

pub(super) fn run(options: &ReportFileArgs) -> Result<CommandOutcome> {
    let needed = NeededEvents { file_operations: true, ..NeededEvents::default() };
    let selection = &options.selection;
    let mut analysis = Analysis::open(&selection.options(), needed, TerminalObserver::create(false))?;
    let thread_selection = selection.thread_selection();
    let mut files = FileReport { thread_selection, window: analysis.window, ..FileReport::default() };
    let reading = analysis.read(|facts, joined| files.add_event(facts, joined))?;
    files.count_unfinished();
    files.check_not_empty()?;
    let mut page = ReportPage::new(options.tables);
    files.add_to_page(&analysis, &reading, &mut page);
    page.print(&reading)?;
    Ok(reading_outcome(&reading))
}

/// Totals of file operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FileTotals {
    operations: u64,
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
    /// Durations of the operations whose end the trace contains.
    time: Latencies,
}

impl FileTotals {
    fn add_start(&mut self, kind: FileOperationKind) {
        self.operations += 1;
        match kind {
            FileOperationKind::Read => self.reads += 1,
            FileOperationKind::Write => self.writes += 1,
            _ => {}
        }
    }

    fn add_end(&mut self, end: OperationEnd) {
        match end.kind {
            FileOperationKind::Read => self.read_bytes = self.read_bytes.saturating_add(end.bytes),
            FileOperationKind::Write => self.written_bytes = self.written_bytes.saturating_add(end.bytes),
            _ => {}
        }
        if let Some(duration_ns) = end.duration_ns {
            self.time.add(duration_ns);
        }
    }

    /// Returns the key by which rows are sorted: time, then bytes, then operations.
    const fn weight(&self) -> (u64, u64, u64) {
        (self.time.sum_ns, self.read_bytes.saturating_add(self.written_bytes), self.operations)
    }

    fn put_into(&self, object: &mut JsonObject) {
        object.number("operations", self.operations);
        object.number("reads", self.reads).number("read_bytes", self.read_bytes);
        object.number("writes", self.writes).number("written_bytes", self.written_bytes);
        object.number("timed", self.time.count).number("time_ns", self.time.sum_ns);
        put_percentiles(&self.time, object);
    }
}

/// The end of an operation, or what is known about an operation without an end.
#[derive(Clone, Copy, Debug)]
struct OperationEnd {
    kind: FileOperationKind,
    bytes: u64,
    duration_ns: Option<u64>,
}

/// The rows that an operation belongs to.
#[derive(Clone, Debug)]
struct OperationRows {
    process: ProcessId,
    path: Option<Arc<str>>,
    kind: FileOperationKind,
}

/// An operation whose end is awaited.
#[derive(Clone, Debug)]
struct PendingOperation {
    rows: OperationRows,
    start_ns: i64,
    requested_bytes: u64,
}

#[derive(Default)]
struct FileReport {
    paths: CallPaths,
    thread_selection: ThreadSelection,
    window: TimeWindow,
    totals: FileTotals,
    by_process: Rows<ProcessId, FileTotals>,
    by_path: Rows<Option<Arc<str>>, FileTotals>,
    by_kind: Rows<FileOperationKind, FileTotals>,
    /// By trace and the number of the operation.
    pending: HashMap<(usize, u64), PendingOperation>,
    /// Paths of open files, by trace and number of the open file, for files that no event names.
    open_paths: HashMap<(usize, u64), Arc<str>>,
    unselected: u64,
    span: EventSpan,
}

impl FileReport {
    fn add_event(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>) {
        let event = &joined.event;
        match &event.occurrence {
            Occurrence::FileStart(operation) => self.add_start(facts, event, operation),
            Occurrence::FileEnd { irp, bytes } => {
                let Some(pending) = self.pending.remove(&(event.file, *irp)) else { return };
                let duration_ns = Some(elapsed_ns(pending.start_ns, event));
                self.add_end(&pending.rows, *bytes, duration_ns);
            }
            _ => {}
        }
    }

    fn add_start(&mut self, facts: &TraceFacts, event: &ReportEvent, operation: &FileOperation) {
        let path = self.find_path(event, operation);
        if !self.window.contains(event.time_ns) {
            return;
        }
        let thread = operation.thread.unwrap_or(NO_ID);
        let known_pid = facts.process_of(thread, event.stamp);
        let pid = if known_pid == NO_ID { operation.pid } else { known_pid };
        let process = self.paths.find_process(facts, event, pid);
        if !self.thread_selection.contains(&self.paths.processes, process, thread) {
            self.unselected += 1;
            return;
        }
        self.span.add(event.time_ns);
        let rows = OperationRows { process, path, kind: operation.kind };
        self.each_row(&rows, |totals| totals.add_start(rows.kind));
        let requested_bytes = operation.requested_bytes;
        let pending = PendingOperation { rows: rows.clone(), start_ns: event.time_ns, requested_bytes };
        let key = (event.file, operation.irp);
        // An operation with the number of another one shows that the end of the other is missing.
        let unfinished = if operation.irp == 0
            || (self.pending.len() >= MAX_PENDING && !self.pending.contains_key(&key))
        {
            Some(pending)
        } else {
            self.pending.insert(key, pending)
        };
        if let Some(unfinished) = unfinished {
            self.add_end(&unfinished.rows, unfinished.requested_bytes, None);
        }
    }

    /// Returns the path of an operation: the one that the event or the trace names, or else the one
    /// that the file was opened with.
    fn find_path(&mut self, event: &ReportEvent, operation: &FileOperation) -> Option<Arc<str>> {
        let key = (event.file, operation.file_object);
        if operation.kind == FileOperationKind::Open
            && let Some(path) = &operation.path
        {
            if self.open_paths.len() < MAX_PENDING || self.open_paths.contains_key(&key) {
                self.open_paths.insert(key, Arc::clone(path));
            }
            return Some(Arc::clone(path));
        }
        let opened = if operation.kind == FileOperationKind::Close {
            self.open_paths.remove(&key)
        } else {
            self.open_paths.get(&key).cloned()
        };
        operation.path.clone().or(opened)
    }

    fn add_end(&mut self, rows: &OperationRows, bytes: u64, duration_ns: Option<u64>) {
        let end = OperationEnd { kind: rows.kind, bytes, duration_ns };
        self.each_row(rows, |totals| totals.add_end(end));
    }

    fn each_row(&mut self, rows: &OperationRows, change: impl Fn(&mut FileTotals)) {
        change(&mut self.totals);
        change(self.by_process.get_mut(rows.process));
        change(self.by_path.get_mut(rows.path.clone()));
        change(self.by_kind.get_mut(rows.kind));
    }

    /// Counts the requested bytes of operations whose end the trace does not contain.
    fn count_unfinished(&mut self) {
        for pending in std::mem::take(&mut self.pending).into_values() {
            self.add_end(&pending.rows, pending.requested_bytes, None);
        }
    }

    /// Fails if there is nothing to report: zeros would look like a result.
    fn check_not_empty(&self) -> Result<()> {
        if self.totals.operations == 0 && self.unselected > 0 {
            bail!("{}", self.thread_selection.no_match_message(&self.paths.processes, "file operations"));
        }
        if self.totals.operations == 0 {
            bail!(
                "no file operations in the trace, or none in the selected time; weir record --kernel file -- CMD records them (as root, or with CAP_PERFMON)"
            );
        }
        Ok(())
    }

    fn add_to_page(&self, analysis: &Analysis, reading: &ReadSummary, page: &mut ReportPage) {
        let totals = &self.totals;
        let mut object = summary_object(analysis, reading);
        totals.put_into(&mut object);
        object.number("others", self.unselected);
        page.add_object(&object);
        let seconds = self.span.seconds();
        page.add_line(&format!(
            "{} from first to last in {seconds:.3} s, of {} recorded: {} of {}, {} of {}",
            format_count(totals.operations, "operation"),
            format_recorded_time(analysis),
            format_count(totals.reads, "read"),
            format_count(totals.read_bytes, "byte"),
            format_count(totals.writes, "write"),
            format_count(totals.written_bytes, "byte"),
        ));
        page.add_unselected(self.unselected);
        let untimed = totals.operations.saturating_sub(totals.time.count);
        if untimed > 0 {
            page.add_line(&format!(
                "{} without a time: the trace has no end of them (group FILE_IO)",
                format_count(untimed, "operation")
            ));
        }
        page.add_losses(analysis, reading);
        let process_label = |id: &ProcessId| self.paths.processes.label(*id);
        let put_id = |id: &ProcessId, object: &mut JsonObject| {
            put_process(object, &self.paths.processes, Some(*id));
        };
        add_table(
            page,
            TableNames { title: "processes", column: "process", json_kind: "process" },
            &self.by_process,
            process_label,
            put_id,
        );
        let path_label = |path: &Option<Arc<str>>| path.as_deref().unwrap_or("(no name)").to_owned();
        let put_path = |path: &Option<Arc<str>>, object: &mut JsonObject| {
            object.optional("file", path.as_deref());
        };
        add_table(
            page,
            TableNames { title: "files", column: "file", json_kind: "file" },
            &self.by_path,
            path_label,
            put_path,
        );
        let kind_label = |kind: &FileOperationKind| kind.name().to_owned();
        add_table(
            page,
            TableNames { title: "operations", column: "operation", json_kind: "operation" },
            &self.by_kind,
            kind_label,
            |_, _| {},
        );
    }
}

/// Adds a table whose last column labels the rows.
fn add_table<K: Eq + std::hash::Hash + Ord>(
    page: &mut ReportPage,
    names: TableNames,
    rows: &Rows<K, FileTotals>,
    label: impl Fn(&K) -> String,
    put_key: impl Fn(&K, &mut JsonObject),
) {
    let label = |key: &Option<&K>| row_label(*key, &label);
    let columns = [
        ("count", true),
        ("reads", true),
        ("bytes", true),
        ("writes", true),
        ("bytes", true),
        ("ms", true),
        ("p50 µs", true),
        ("p99 µs", true),
        ("max µs", true),
        (names.column, false),
    ];
    page.add_table(
        names.title,
        columns,
        &rows.sorted_by_weight(FileTotals::weight),
        |(key, totals)| {
            let [p50, p99, max] = format_percentiles(&totals.time);
            [
                format_number(totals.operations),
                format_number(totals.reads),
                format_number(totals.read_bytes),
                format_number(totals.writes),
                format_number(totals.written_bytes),
                if totals.time.count == 0 { "-".to_owned() } else { format_ms(totals.time.sum_ns) },
                p50,
                p99,
                max,
                format_name(&label(key)),
            ]
        },
        |(key, totals)| {
            let mut object = JsonObject::new();
            object.text("by", names.json_kind).text("name", &label(key));
            if let Some(key) = key {
                put_key(key, &mut object);
            }
            totals.put_into(&mut object);
            object
        },
    );
}
