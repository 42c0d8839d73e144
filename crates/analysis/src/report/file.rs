//! What processes did with files.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::stack::Joined;
use traceweir_format::header::NO_ID;

use super::rows::Rows;
use super::span::EventSpan;
use super::{
    CallPaths, FileOperation, FileOperationKind, Latencies, Occurrence, ProcessId, ReportEvent,
    ThreadSelection, TimeWindow, TraceFacts, elapsed_ns,
};

/// Maximum number of operations whose end is awaited, and of open files whose path is remembered.
const MAX_PENDING: usize = 1 << 16;

/// Totals of file operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileTotals {
    /// Number of operations.
    pub operations: u64,
    /// Number of reads.
    pub reads: u64,
    /// Bytes of all reads.
    pub read_bytes: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes of all writes.
    pub written_bytes: u64,
    /// Durations of the operations whose end the trace contains.
    pub time: Latencies,
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
    pub const fn weight(&self) -> (u64, u64, u64) {
        (self.time.sum_ns, self.read_bytes.saturating_add(self.written_bytes), self.operations)
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

/// The file operations of a trace by process, path and kind.
#[derive(Default)]
pub struct FileReport {
    /// The functions and processes of the report.
    pub paths: CallPaths,
    /// The processes and threads that the report covers.
    pub thread_selection: ThreadSelection,
    window: TimeWindow,
    /// The totals of all rows.
    pub totals: FileTotals,
    /// One row per process.
    pub by_process: Rows<ProcessId, FileTotals>,
    /// One row per path; the key is `None` for files without a known path.
    pub by_path: Rows<Option<Arc<str>>, FileTotals>,
    /// One row per kind of operation.
    pub by_kind: Rows<FileOperationKind, FileTotals>,
    /// By trace and the number of the operation.
    pending: HashMap<(usize, u64), PendingOperation>,
    /// Paths of open files, by trace and number of the open file, for files that no event names.
    open_paths: HashMap<(usize, u64), Arc<str>>,
    /// Events of processes and threads that are not selected.
    pub unselected: u64,
    /// The time from the first to the last counted event.
    pub span: EventSpan,
}

impl FileReport {
    /// Creates a report of the selected processes and threads in a time window.
    pub fn new(thread_selection: ThreadSelection, window: TimeWindow) -> Self {
        Self { thread_selection, window, ..Self::default() }
    }

    /// Adds an event of a trace. Events arrive in time order.
    pub fn add_event(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>) {
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
    pub fn count_unfinished(&mut self) {
        for pending in std::mem::take(&mut self.pending).into_values() {
            self.add_end(&pending.rows, pending.requested_bytes, None);
        }
    }
}
