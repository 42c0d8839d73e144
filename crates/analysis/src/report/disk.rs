//! Disk operations and their latency.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::stack::Joined;
use traceweir_format::header::NO_ID;

use super::rows::OTHER_LABEL;
use super::span::EventSpan;
use super::{
    CallPaths, Latencies, Occurrence, ProcessId, ReportEvent, ThreadSelection, TimeWindow, TraceFacts,
    Transfer,
};

/// Maximum number of rows of all tables together; further rows are added up in one row per table.
const MAX_ROWS: usize = 1 << 17;

/// Totals of transfers.
#[derive(Clone, Debug, Default)]
pub struct TransferTotals {
    /// Number of reads.
    pub reads: u64,
    /// Bytes of all reads.
    pub read_bytes: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes of all writes.
    pub written_bytes: u64,
    /// Number of flushes.
    pub flushes: u64,
    /// Durations of the transfers whose duration is known.
    pub latency: Latencies,
}

impl TransferTotals {
    fn add_transfer(&mut self, transfer: &Transfer) {
        match transfer.operation {
            "read" => {
                self.reads += 1;
                self.read_bytes = self.read_bytes.saturating_add(transfer.bytes);
            }
            "write" => {
                self.writes += 1;
                self.written_bytes = self.written_bytes.saturating_add(transfer.bytes);
            }
            _ => self.flushes += 1,
        }
        if let Some(duration_ns) = transfer.duration_ns {
            self.latency.add(duration_ns);
        }
    }

    /// Returns the number of all operations.
    pub const fn operations(&self) -> u64 {
        self.reads + self.writes + self.flushes
    }
}

/// A table of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskTable {
    /// One row per disk.
    Disks,
    /// One row per process.
    Processes,
    /// One row per file.
    Files,
}

/// What a row counts the operations of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskRowKey {
    /// A disk by its number.
    Disk(u32),
    /// A process.
    Process(ProcessId),
    /// A file; `None` for operations without a known file.
    File(Option<Arc<str>>),
    /// All rows of a table beyond [`MAX_ROWS`].
    Other(DiskTable),
}

impl DiskRowKey {
    /// Returns the table of the row.
    pub const fn table(&self) -> DiskTable {
        match self {
            Self::Disk(_) => DiskTable::Disks,
            Self::Process(_) => DiskTable::Processes,
            Self::File(_) => DiskTable::Files,
            Self::Other(table) => *table,
        }
    }
}

/// The operations of a trace by disk, process and file.
#[derive(Default)]
pub struct DiskReport {
    /// The functions and processes of the report.
    pub paths: CallPaths,
    /// The processes and threads that the report covers.
    pub thread_selection: ThreadSelection,
    window: TimeWindow,
    /// The totals of all rows.
    pub totals: TransferTotals,
    rows: HashMap<DiskRowKey, TransferTotals>,
    disk_names: HashMap<u32, Arc<str>>,
    /// Events of processes and threads that are not selected.
    pub unselected: u64,
    /// The time from the first to the last counted event.
    pub span: EventSpan,
}

impl DiskReport {
    /// Creates a report of the selected processes and threads in a time window.
    pub fn new(thread_selection: ThreadSelection, window: TimeWindow) -> Self {
        Self { thread_selection, window, ..Self::default() }
    }

    /// Adds an event of a trace. Events arrive in time order.
    pub fn add_event(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>) {
        let event = &joined.event;
        let Occurrence::Transfer(transfer) = &event.occurrence else { return };
        if !self.window.contains(event.time_ns) {
            return;
        }
        let thread = transfer.thread.unwrap_or(NO_ID);
        let pid = transfer.thread.map_or(transfer.pid, |thread| facts.process_of(thread, event.stamp));
        let process = self.paths.find_process(facts, event, pid);
        if !self.thread_selection.contains(&self.paths.processes, process, thread) {
            self.unselected += 1;
            return;
        }
        self.span.add(event.time_ns);
        self.totals.add_transfer(transfer);
        if !self.disk_names.contains_key(&transfer.disk)
            && self.disk_names.len() < MAX_ROWS
            && let Some(name) = facts.disk_name(transfer.disk, event.stamp)
        {
            self.disk_names.insert(transfer.disk, name);
        }
        for key in [
            DiskRowKey::Disk(transfer.disk),
            DiskRowKey::Process(process),
            DiskRowKey::File(transfer.file_name.clone()),
        ] {
            let has_room = self.rows.len() < MAX_ROWS || self.rows.contains_key(&key);
            let key = if has_room { key } else { DiskRowKey::Other(key.table()) };
            self.rows.entry(key).or_default().add_transfer(transfer);
        }
    }

    /// Returns whether the file of any operation is known.
    pub fn has_files(&self) -> bool {
        self.rows.keys().any(|key| matches!(key, DiskRowKey::File(Some(_))))
    }

    /// Returns the rows of a table, those with the greatest total latency first.
    pub fn rows(&self, table: DiskTable) -> Vec<(&DiskRowKey, &TransferTotals)> {
        let mut rows: Vec<_> = self.rows.iter().filter(|(key, _)| key.table() == table).collect();
        rows.sort_by_cached_key(|(key, totals)| {
            (u64::MAX - totals.latency.sum_ns, u64::MAX - totals.operations(), self.row_label(key))
        });
        rows
    }

    /// Returns the name of a disk, if the trace contains it.
    pub fn disk_name(&self, number: u32) -> Option<&str> {
        self.disk_names.get(&number).map(|name| &**name)
    }

    /// Formats the key of a row for people.
    pub fn row_label(&self, key: &DiskRowKey) -> String {
        match key {
            DiskRowKey::Disk(number) => disk_label(*number, self.disk_name(*number)),
            DiskRowKey::Process(id) => self.paths.processes.label(*id),
            DiskRowKey::File(Some(file)) => file.to_string(),
            DiskRowKey::File(None) => "(no file)".to_owned(),
            DiskRowKey::Other(_) => OTHER_LABEL.to_owned(),
        }
    }
}

/// Formats number and name of a disk. Linux numbers are major << 20 | minor, larger than any disk
/// number of Windows.
fn disk_label(number: u32, name: Option<&str>) -> String {
    let number_text = match number >> 20 {
        0 => number.to_string(),
        major => format!("{major}:{}", number & 0xF_FFFF),
    };
    match name {
        Some(name) if number >> 20 == 0 => format!("{name} (disk {number_text})"),
        Some(name) => format!("{name} ({number_text})"),
        None => format!("disk {number_text}"),
    }
}
