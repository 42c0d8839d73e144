//! `weir report file`: reports what processes did with files.

use std::sync::Arc;

use anyhow::{Result, bail};
use traceweir_analysis::report::file::{FileReport, FileTotals};
use traceweir_analysis::report::rows::{Rows, row_label};
use traceweir_analysis::report::{Analysis, FileOperationKind, NeededEvents, ProcessId};
use traceweir_analysis::traces::ReadSummary;

use super::page::{
    ReportPage, TableNames, format_ms, format_name, format_percentiles, format_recorded_time,
    put_percentiles, put_process, summary_object,
};
use crate::cli::ReportFileArgs;
use crate::exit::CommandOutcome;
use crate::progress::TerminalObserver;
use crate::reading::reading_outcome;
use crate::text::{JsonObject, format_count, format_number};

pub(super) fn run(options: &ReportFileArgs) -> Result<CommandOutcome> {
    let needed = NeededEvents { file_operations: true, ..NeededEvents::default() };
    let selection = &options.selection;
    let mut analysis = Analysis::open(&selection.options(), needed, TerminalObserver::create(false))?;
    let thread_selection = selection.thread_selection();
    let mut files = FileReport::new(thread_selection, analysis.window);
    let reading = analysis.read(|facts, joined| files.add_event(facts, joined))?;
    files.count_unfinished();
    let tables = FileTables { report: &files };
    tables.check_not_empty()?;
    let mut page = ReportPage::new(options.tables);
    tables.add_to_page(&analysis, &reading, &mut page);
    page.add_marks(&analysis);
    page.print(&reading)?;
    Ok(reading_outcome(&reading))
}

/// Prints the tables of a report.
struct FileTables<'r> {
    report: &'r FileReport,
}

impl FileTables<'_> {
    /// Fails if there is nothing to report: zeros would look like a result.
    fn check_not_empty(&self) -> Result<()> {
        if self.report.totals.operations == 0 && self.report.unselected > 0 {
            bail!(
                "{}",
                self.report
                    .thread_selection
                    .no_match_message(&self.report.paths.processes, "file operations")
            );
        }
        if self.report.totals.operations == 0 {
            bail!(
                "no file operations in the trace, or none in the selected time; weir record --kernel file -- CMD records them (as root, or with CAP_PERFMON)"
            );
        }
        Ok(())
    }

    fn add_to_page(&self, analysis: &Analysis, reading: &ReadSummary, page: &mut ReportPage) {
        let totals = &self.report.totals;
        let mut object = summary_object(analysis, reading);
        put_totals(totals, &mut object);
        object.number("others", self.report.unselected);
        page.add_object(&object);
        let seconds = self.report.span.seconds();
        page.add_line(&format!(
            "{} from first to last in {seconds:.3} s, of {} recorded: {} of {}, {} of {}",
            format_count(totals.operations, "operation"),
            format_recorded_time(analysis),
            format_count(totals.reads, "read"),
            format_count(totals.read_bytes, "byte"),
            format_count(totals.writes, "write"),
            format_count(totals.written_bytes, "byte"),
        ));
        page.add_unselected(self.report.unselected);
        let untimed = totals.operations.saturating_sub(totals.time.count);
        if untimed > 0 {
            page.add_line(&format!(
                "{} without a time: the trace has no end of them (group FILE_IO)",
                format_count(untimed, "operation")
            ));
        }
        page.add_losses(analysis, reading);
        let process_label = |id: &ProcessId| self.report.paths.processes.label(*id);
        let put_id = |id: &ProcessId, object: &mut JsonObject| {
            put_process(object, &self.report.paths.processes, Some(*id));
        };
        add_table(
            page,
            TableNames { title: "processes", column: "process", json_kind: "process" },
            &self.report.by_process,
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
            &self.report.by_path,
            path_label,
            put_path,
        );
        let kind_label = |kind: &FileOperationKind| kind.name().to_owned();
        add_table(
            page,
            TableNames { title: "operations", column: "operation", json_kind: "operation" },
            &self.report.by_kind,
            kind_label,
            |_, _| {},
        );
    }
}

fn put_totals(totals: &FileTotals, object: &mut JsonObject) {
    object.number("operations", totals.operations);
    object.number("reads", totals.reads).number("read_bytes", totals.read_bytes);
    object.number("writes", totals.writes).number("written_bytes", totals.written_bytes);
    object.number("timed", totals.time.count).number("time_ns", totals.time.sum_ns);
    put_percentiles(&totals.time, object);
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
            put_totals(totals, &mut object);
            object
        },
    );
}
