//! `weir report disk`: reports disk operations and their latency.

use anyhow::{Result, bail};
use traceweir_analysis::report::disk::{DiskReport, DiskRowKey, DiskTable, TransferTotals};
use traceweir_analysis::report::{Analysis, NeededEvents};
use traceweir_analysis::traces::ReadSummary;

use super::page::{
    ReportPage, format_ms, format_name, format_percentiles, format_recorded_time, put_percentiles,
    put_process, summary_object,
};
use crate::cli::ReportDiskArgs;
use crate::exit::CommandOutcome;
use crate::progress::TerminalObserver;
use crate::reading::reading_outcome;
use crate::text::{JsonObject, format_count, format_number};

pub(super) fn run(options: &ReportDiskArgs) -> Result<CommandOutcome> {
    let needed = NeededEvents { transfers: true, ..NeededEvents::default() };
    let selection = &options.selection;
    let mut analysis = Analysis::open(&selection.options(), needed, TerminalObserver::create(false))?;
    let thread_selection = selection.thread_selection();
    let mut disks = DiskReport::new(thread_selection, analysis.window);
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
    DiskTables { report: &disks }.add_to_page(&analysis, &reading, &mut page);
    page.add_marks(&analysis);
    page.print(&reading)?;
    Ok(reading_outcome(&reading))
}

/// Prints the tables of a report.
struct DiskTables<'r> {
    report: &'r DiskReport,
}

impl DiskTables<'_> {
    fn add_to_page(&self, analysis: &Analysis, reading: &ReadSummary, page: &mut ReportPage) {
        let seconds = self.report.span.seconds();
        let mut object = summary_object(analysis, reading);
        put_totals(&self.report.totals, &mut object);
        object.number("others", self.report.unselected);
        page.add_object(&object);
        let totals = &self.report.totals;
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
        page.add_unselected(self.report.unselected);
        let untimed = totals.operations().saturating_sub(totals.latency.count);
        if untimed > 0 {
            page.add_line(&format!("{} without a latency", format_count(untimed, "operation")));
        }
        page.add_losses(analysis, reading);
        self.add_table("disks", DiskTable::Disks, page);
        self.add_table("processes", DiskTable::Processes, page);
        if self.report.has_files() {
            self.add_table("files", DiskTable::Files, page);
        } else if totals.operations() > 0 {
            page.add_line("\nno files: the trace does not contain the file of an operation");
        }
    }

    fn add_table(&self, title: &str, table: DiskTable, page: &mut ReportPage) {
        let rows = self.report.rows(table);
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
            (row_kind(table), false),
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
                    format_name(&self.report.row_label(key)),
                ]
            },
            |(key, totals)| self.row_object(key, totals),
        );
    }

    fn row_object(&self, key: &DiskRowKey, totals: &TransferTotals) -> JsonObject {
        let mut object = JsonObject::new();
        object.text("by", row_kind(key.table())).text("name", &self.report.row_label(key));
        match key {
            DiskRowKey::Disk(number) => {
                object.number("disk", *number);
                object.optional("disk_name", self.report.disk_name(*number));
            }
            DiskRowKey::Process(id) => {
                put_process(&mut object, &self.report.paths.processes, Some(*id));
            }
            DiskRowKey::File(file) => {
                object.optional("file", file.as_deref());
            }
            DiskRowKey::Other(_) => {}
        }
        put_totals(totals, &mut object);
        object
    }
}

/// Returns what a table has one row for each of.
const fn row_kind(table: DiskTable) -> &'static str {
    match table {
        DiskTable::Disks => "disk",
        DiskTable::Processes => "process",
        DiskTable::Files => "file",
    }
}

fn put_totals(totals: &TransferTotals, object: &mut JsonObject) {
    object.number("reads", totals.reads).number("read_bytes", totals.read_bytes);
    object.number("writes", totals.writes).number("written_bytes", totals.written_bytes);
    object.number("flushes", totals.flushes).number("latency_sum_ns", totals.latency.sum_ns);
    put_percentiles(&totals.latency, object);
}
