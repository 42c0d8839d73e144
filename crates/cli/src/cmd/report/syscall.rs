//! `weir report syscall`: reports the system calls of processes.

use anyhow::{Result, bail};
use traceweir_analysis::report::rows::{Rows, row_label};
use traceweir_analysis::report::system_calls::{CallTotals, SystemCallReport};
use traceweir_analysis::report::{Analysis, NeededEvents, ProcessId};
use traceweir_analysis::traces::ReadSummary;

use super::page::{
    ReportPage, TableNames, format_ms, format_name, format_percentiles, format_recorded_time,
    put_percentiles, put_process, summary_object,
};
use crate::cli::ReportSyscallArgs;
use crate::exit::CommandOutcome;
use crate::progress::TerminalObserver;
use crate::reading::reading_outcome;
use crate::text::{JsonObject, format_count, format_number};

pub(super) fn run(options: &ReportSyscallArgs) -> Result<CommandOutcome> {
    let needed = NeededEvents { system_calls: true, ..NeededEvents::default() };
    let selection = &options.selection;
    let mut analysis =
        Analysis::open(&selection.options_with(&options.symbols), needed, TerminalObserver::create(false))?;
    let thread_selection = selection.thread_selection();
    let mut calls = SystemCallReport::new(thread_selection, analysis.window);
    let reading = analysis.read(|facts, joined| calls.add_event(facts, joined))?;
    let tables = CallTables { report: &calls };
    tables.check_not_empty()?;
    let mut page = ReportPage::new(options.tables);
    tables.add_to_page(&analysis, &reading, &mut page);
    page.add_marks(&analysis);
    page.print(&reading)?;
    Ok(reading_outcome(&reading))
}

/// Prints the tables of a report.
struct CallTables<'r> {
    report: &'r SystemCallReport,
}

impl CallTables<'_> {
    /// Fails if there is nothing to report: zeros would look like a result.
    fn check_not_empty(&self) -> Result<()> {
        if self.report.totals.calls == 0 && self.report.unselected > 0 {
            bail!(
                "{}",
                self.report.thread_selection.no_match_message(&self.report.paths.processes, "system calls")
            );
        }
        if self.report.totals.calls == 0 {
            bail!(
                "no system calls in the trace, or none in the selected time; weir record --kernel syscall -- CMD records them (as root, or with CAP_PERFMON)"
            );
        }
        Ok(())
    }

    fn add_to_page(&self, analysis: &Analysis, reading: &ReadSummary, page: &mut ReportPage) {
        let totals = &self.report.totals;
        let mut object = summary_object(analysis, reading);
        put_totals(totals, &mut object);
        object.number("without_thread", self.report.without_thread).number("others", self.report.unselected);
        page.add_object(&object);
        let seconds = self.report.span.seconds();
        page.add_line(&format!(
            "{} from first to last in {seconds:.3} s, of {} recorded: {} ms in {}, {}",
            format_count(totals.calls, "system call"),
            format_recorded_time(analysis),
            format_ms(totals.time.sum_ns),
            format_count(totals.time.count, "finished call"),
            format_count(totals.failures, "failure"),
        ));
        page.add_unselected(self.report.unselected);
        if self.report.without_thread > 0 {
            // If some threads are known, the trace has context switches.
            let cause = if totals.calls > self.report.without_thread {
                "their processors had no context switch before them"
            } else {
                "record context switches too (weir record --kernel syscall)"
            };
            page.add_line(&format!(
                "{} of unknown threads, without time: {cause}",
                format_count(self.report.without_thread, "call")
            ));
        }
        if self.report.without_name > 0 {
            page.add_line(&format!(
                "{} without a name: the trace has no address of their function",
                format_count(self.report.without_name, "call")
            ));
        }
        page.add_losses(analysis, reading);
        let process_label = |id: &ProcessId| self.report.paths.processes.label(*id);
        let put_id = |id: &ProcessId, object: &mut JsonObject| {
            put_process(object, &self.report.paths.processes, Some(*id));
        };
        add_table(
            page,
            TableNames { title: "system calls", column: "call", json_kind: "call" },
            &self.report.by_name,
            |name| name.to_string(),
            |_, _| {},
        );
        add_table(
            page,
            TableNames { title: "processes", column: "process", json_kind: "process" },
            &self.report.by_process,
            process_label,
            put_id,
        );
        add_table(
            page,
            TableNames {
                title: "system calls by process",
                column: "process and call",
                json_kind: "process_call",
            },
            &self.report.by_both,
            |(id, name)| format!("{}  {name}", process_label(id)),
            |(id, name), object| {
                put_id(id, object);
                object.text("call", name);
            },
        );
    }
}

fn put_totals(totals: &CallTotals, object: &mut JsonObject) {
    object.number("calls", totals.calls).number("failures", totals.failures);
    object.number("timed", totals.time.count).number("time_ns", totals.time.sum_ns);
    put_percentiles(&totals.time, object);
}

/// Adds a table whose last column labels the rows.
fn add_table<K: Eq + std::hash::Hash + Ord>(
    page: &mut ReportPage,
    names: TableNames,
    rows: &Rows<K, CallTotals>,
    label: impl Fn(&K) -> String,
    put_key: impl Fn(&K, &mut JsonObject),
) {
    let label = |key: &Option<&K>| row_label(*key, &label);
    let columns = [
        ("calls", true),
        ("failed", true),
        ("ms", true),
        ("p50 µs", true),
        ("p99 µs", true),
        ("max µs", true),
        (names.column, false),
    ];
    page.add_table(
        names.title,
        columns,
        &rows.sorted_by_weight(CallTotals::weight),
        |(key, totals)| {
            let [p50, p99, max] = format_percentiles(&totals.time);
            let time = if totals.time.count == 0 { "-".to_owned() } else { format_ms(totals.time.sum_ns) };
            let (calls, failures) = (format_number(totals.calls), format_number(totals.failures));
            [calls, failures, time, p50, p99, max, format_name(&label(key))]
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
