//! `weir report disk`: reports disk operations and their latency.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use traceweir_analysis::report::{
    Analysis, CallPaths, Latencies, NeededEvents, Occurrence, ProcessId, ReportEvent, ThreadSelection,
    TimeWindow, TraceFacts, Transfer,
};
use traceweir_analysis::traces::ReadSummary;
use traceweir_decode::stack::Joined;
use traceweir_format::header::NO_ID;

use super::page::{
    EventSpan, ReportPage, format_ms, format_name, format_percentiles, format_recorded_time, put_percentiles,
    put_process, summary_object,
};
use super::rows::OTHER_LABEL;
use crate::cli::ReportDiskArgs;
use crate::exit::CommandOutcome;
use crate::progress::TerminalObserver;
use crate::reading::reading_outcome;
use crate::text::{JsonObject, format_count, format_number};

/// Maximum number of rows of all tables together; further rows are added up in one row per table.
const MAX_ROWS: usize = 1 << 17;

pub(super) fn run(options: &ReportDiskArgs) -> Result<CommandOutcome> {
    let needed = NeededEvents { transfers: true, ..NeededEvents::default() };
    let selection = &options.selection;
    let mut analysis = Analysis::open(&selection.options(), needed, TerminalObserver::create(false))?;
    let thread_selection = selection.thread_selection();
    let mut disks = DiskReport { thread_selection, window: analysis.window, ..DiskReport::default() };
    let reading = analysis.read(|facts, joined| disks.add_event(facts, joined))?;
    if disks.totals.operations() == 0 && disks.unselected > 0 {
        bail!("{}", disks.thread_selection.no_match_message(&disks.paths.processes, "operations"));
    }
    if disks.totals.operations() == 0 {
        bail!(
            "no disk operations in the trace, or none in the selected time; weir record --kernel disk -- CMD records them (as root, or with CAP_PERFMON)"
        );
    }
    let mut page = ReportPage::new(options.tables);
    disks.add_to_page(&analysis, &reading, &mut page);
    page.print(&reading)?;
    Ok(reading_outcome(&reading))
}

/// Totals of transfers.
#[derive(Clone, Debug, Default)]
struct TransferTotals {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
    flushes: u64,
    latency: Latencies,
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

    const fn operations(&self) -> u64 {
        self.reads + self.writes + self.flushes
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum RowKey {
    Disk(u32),
    Process(ProcessId),
    File(Option<Arc<str>>),
    /// All rows of a table beyond [`MAX_ROWS`].
    Other(&'static str),
}

impl RowKey {
    const fn table_name(&self) -> &'static str {
        match self {
            Self::Disk(_) => "disk",
            Self::Process(_) => "process",
            Self::File(_) => "file",
            Self::Other(table) => table,
        }
    }
}

#[derive(Default)]
struct DiskReport {
    paths: CallPaths,
    thread_selection: ThreadSelection,
    window: TimeWindow,
    totals: TransferTotals,
    rows: HashMap<RowKey, TransferTotals>,
    disk_names: HashMap<u32, Arc<str>>,
    unselected: u64,
    span: EventSpan,
}

impl DiskReport {
    fn add_event(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>) {
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
        for key in
            [RowKey::Disk(transfer.disk), RowKey::Process(process), RowKey::File(transfer.file_name.clone())]
        {
            let has_room = self.rows.len() < MAX_ROWS || self.rows.contains_key(&key);
            let key = if has_room { key } else { RowKey::Other(key.table_name()) };
            self.rows.entry(key).or_default().add_transfer(transfer);
        }
    }

    fn add_to_page(&self, analysis: &Analysis, reading: &ReadSummary, page: &mut ReportPage) {
        let seconds = self.span.seconds();
        let mut object = summary_object(analysis, reading);
        put_totals(&self.totals, &mut object);
        object.number("others", self.unselected);
        page.add_object(&object);
        let totals = &self.totals;
        page.add_line(&format!(
            "{} from first to last in {seconds:.3} s, of {} recorded: {} of {}, {} of {}, {}",
            format_count(totals.operations(), "operation"),
            format_recorded_time(analysis),
            format_count(totals.reads, "read"),
            format_count(totals.read_bytes, "byte"),
            format_count(totals.writes, "write"),
            format_count(totals.written_bytes, "byte"),
            format_count(totals.flushes, "flush"),
        ));
        page.add_unselected(self.unselected);
        let untimed = totals.operations().saturating_sub(totals.latency.count);
        if untimed > 0 {
            page.add_line(&format!("{} without a latency", format_count(untimed, "operation")));
        }
        page.add_losses(analysis, reading);
        self.add_table("disks", "disk", page);
        self.add_table("processes", "process", page);
        if self.has_files() {
            self.add_table("files", "file", page);
        } else if totals.operations() > 0 {
            page.add_line("\nno files: the trace does not contain the file of an operation");
        }
    }

    /// Returns whether the file of any operation is known.
    fn has_files(&self) -> bool {
        self.rows.keys().any(|key| matches!(key, RowKey::File(Some(_))))
    }

    fn add_table(&self, title: &str, table: &'static str, page: &mut ReportPage) {
        let mut rows: Vec<_> = self.rows.iter().filter(|(key, _)| key.table_name() == table).collect();
        rows.sort_by_cached_key(|(key, totals)| {
            (u64::MAX - totals.latency.sum_ns, u64::MAX - totals.operations(), self.row_label(key))
        });
        let columns = [
            ("reads", true),
            ("bytes", true),
            ("writes", true),
            ("bytes", true),
            ("flushes", true),
            ("busy ms", true),
            ("p50 µs", true),
            ("p99 µs", true),
            ("max µs", true),
            (table, false),
        ];
        page.add_table(
            title,
            columns,
            &rows,
            |(key, totals)| {
                let [p50, p99, max] = format_percentiles(&totals.latency);
                [
                    format_number(totals.reads),
                    format_number(totals.read_bytes),
                    format_number(totals.writes),
                    format_number(totals.written_bytes),
                    format_number(totals.flushes),
                    format_ms(totals.latency.sum_ns),
                    p50,
                    p99,
                    max,
                    format_name(&self.row_label(key)),
                ]
            },
            |(key, totals)| self.row_object(key, totals),
        );
    }

    fn row_object(&self, key: &RowKey, totals: &TransferTotals) -> JsonObject {
        let mut object = JsonObject::new();
        object.text("by", key.table_name()).text("name", &self.row_label(key));
        match key {
            RowKey::Disk(number) => {
                object.number("disk", *number);
                object.optional("disk_name", self.disk_names.get(number).map(|name| &**name));
            }
            RowKey::Process(id) => {
                put_process(&mut object, &self.paths.processes, Some(*id));
            }
            RowKey::File(file) => {
                object.optional("file", file.as_deref());
            }
            RowKey::Other(_) => {}
        }
        put_totals(totals, &mut object);
        object
    }

    fn row_label(&self, key: &RowKey) -> String {
        match key {
            RowKey::Disk(number) => disk_label(*number, self.disk_names.get(number).map(|name| &**name)),
            RowKey::Process(id) => self.paths.processes.label(*id),
            RowKey::File(Some(file)) => file.to_string(),
            RowKey::File(None) => "(no file)".to_owned(),
            RowKey::Other(_) => OTHER_LABEL.to_owned(),
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

fn put_totals(totals: &TransferTotals, object: &mut JsonObject) {
    object.number("reads", totals.reads).number("read_bytes", totals.read_bytes);
    object.number("writes", totals.writes).number("written_bytes", totals.written_bytes);
    object.number("flushes", totals.flushes).number("latency_sum_ns", totals.latency.sum_ns);
    put_percentiles(&totals.latency, object);
}
