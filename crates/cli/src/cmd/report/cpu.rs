//! `weir report cpu`: reports where processor time went, by samples.

use anyhow::{Error, Result, anyhow, bail};
use traceweir_analysis::report::callers::{FindFunctionError, FunctionNeighbours, find_neighbours};
use traceweir_analysis::report::samples::{FunctionOrder, SampleCount, SampleOptions, SampleReport};
use traceweir_analysis::report::{Analysis, FunctionId, NeededEvents, ProcessId};
use traceweir_analysis::traces::ReadSummary;

use super::page::{
    ReportPage, format_ms, format_name, format_percent, format_share, put_fraction, put_process,
    share_with_error, summary_object,
};
use crate::cli::ReportCpuArgs;
use crate::exit::CommandOutcome;
use crate::progress::TerminalObserver;
use crate::reading::{missing_callers_note, reading_outcome};
use crate::text::{JsonObject, escape, format_count, format_number};

pub(super) fn run(options: &ReportCpuArgs) -> Result<CommandOutcome> {
    let needed = NeededEvents { samples: true, ..NeededEvents::default() };
    let mut analysis = Analysis::open(
        &options.selection.options_with(&options.symbols),
        needed,
        TerminalObserver::create(false),
    )?;
    let sample_options =
        SampleOptions { includes_idle: options.idle, keeps_stacks: options.function.is_some() };
    let thread_selection = options.selection.thread_selection();
    let mut report = SampleReport::new(sample_options, thread_selection, analysis.window);
    let reading = analysis.read(|facts, joined| report.add_event(facts, joined))?;
    let samples = SampleTables { report: &report };
    samples.check_not_empty()?;
    let mut page = ReportPage::new(options.tables);
    samples.add_headline(&analysis, &reading, &mut page);
    match (&options.function, &report.tree) {
        (Some(name), Some(tree)) => {
            let is_linux = analysis.has_linux_trace();
            let neighbours = find_neighbours(&report.call_paths.functions, tree, name)
                .map_err(|error| explain_find_error(&error, name, is_linux))?;
            samples.add_neighbours(&neighbours, is_linux, &mut page);
        }
        _ => samples.add_tables(&mut page),
    }
    page.add_marks(&analysis);
    page.print(&reading)?;
    Ok(reading_outcome(&reading))
}

/// Maximum number of functions that an error message lists.
const MAX_LISTED: usize = 10;

/// Returns the error for a name that is not that of one function.
fn explain_find_error(error: &FindFunctionError, name: &str, is_linux: bool) -> Error {
    let FindFunctionError::Ambiguous(matches) = error else {
        let remedy = if is_linux {
            "; weir record --unwind 16K also finds callers without a frame pointer"
        } else {
            ""
        };
        return anyhow!(
            "no function of a sample has {:?} in its name; weir report cpu without --function lists the functions{remedy}",
            escape(name)
        );
    };
    let mut text = format!(
        "{} match {:?}; name one of them:",
        format_count(matches.len() as u64, "function"),
        escape(name)
    );
    for (label, samples) in matches.iter().take(MAX_LISTED) {
        text.push_str(&format!("\n  {}  ({})", escape(label), format_count(*samples, "sample")));
    }
    let hidden = matches.len().saturating_sub(MAX_LISTED);
    if hidden > 0 {
        text.push_str(&format!("\n  and {} more", format_number(hidden as u64)));
    }
    anyhow!("{text}")
}

/// Prints the tables of a report.
struct SampleTables<'r> {
    report: &'r SampleReport,
}

impl SampleTables<'_> {
    /// Fails if there is nothing to report: zeros would look like a result.
    fn check_not_empty(&self) -> Result<()> {
        if self.report.total == 0 && self.report.thread_selection.is_limited() && self.report.unselected > 0 {
            bail!(
                "{}",
                self.report.thread_selection.no_match_message(&self.report.call_paths.processes, "samples")
            );
        }
        if self.report.total == 0 && self.report.idle == 0 {
            bail!(
                "no samples: the trace has no CPU samples, or none in the selected time; weir record --kernel cpu -- CMD records them"
            );
        }
        Ok(())
    }

    fn add_headline(&self, analysis: &Analysis, reading: &ReadSummary, page: &mut ReportPage) {
        let seconds = self.report.span.seconds();
        let mut object = summary_object(analysis, reading);
        object
            .number("samples", self.report.total)
            .number("idle", self.report.idle)
            .number("others", self.report.unselected);
        object.number("without_stack", self.report.without_stack).number("cut", self.report.truncated_stacks);
        object.number("processors", self.report.cpus.len() as u64);
        put_fraction(&mut object, "seconds", seconds);
        match self.report.interval_ns() {
            Some(interval) => object.number("interval_ns", interval),
            None => object.raw("interval_ns", "null"),
        };
        page.add_object(&object);
        let sample_count = self.report.total
            + self.report.unselected
            + if self.report.includes_idle { 0 } else { self.report.idle };
        let processors = format_count(self.report.cpus.len() as u64, "processor");
        page.add_line(&format!("{} in {seconds:.3} s on {processors}", format_count(sample_count, "sample")));
        page.add_line(&self.format_interval());
        if self.report.idle > 0 {
            let idle = if self.report.includes_idle {
                "reported like the others"
            } else {
                "left out (--idle includes them)"
            };
            page.add_line(&format!(
                "of idle processors: {} ({} %), {idle}",
                format_number(self.report.idle),
                format_percent(self.report.idle, sample_count)
            ));
        }
        page.add_unselected(self.report.unselected);
        if self.report.total < sample_count {
            page.add_line(&format!("reported: {}", format_count(self.report.total, "sample")));
        }
        if self.report.without_stack > 0 {
            page.add_line(&format!(
                "without a stack: {} ({} %), counted by their address alone",
                format_number(self.report.without_stack),
                format_percent(self.report.without_stack, self.report.total)
            ));
        }
        page.add_line(
            "± is the standard error of a share: the true share lies within it in two of three cases",
        );
        if self.report.truncated_stacks > 0 {
            let (truncated, share) = (
                format_count(self.report.truncated_stacks, "stack"),
                format_percent(self.report.truncated_stacks, self.report.total),
            );
            page.add_line(&format!(
                "truncated at the frame limit: {truncated} ({share} %); their outermost functions are not counted"
            ));
        }
        if let Some(note) = missing_callers_note(self.report.without_callers, self.report.total) {
            page.add_line(&note);
        }
        page.add_losses(analysis, reading);
        if self.report.over_limit > 0 {
            page.add_line(&format!(
                "too many threads: {} in no row of threads",
                format_count(self.report.over_limit, "sample")
            ));
        }
        if self.report.call_paths.functions.is_full() {
            page.add_line("too many functions: the others are counted as (other)");
        }
    }

    fn format_interval(&self) -> String {
        let format_units = |units: u64| format!("{} ms", format_ms(units.saturating_mul(100)));
        match (self.report.interval_ns(), self.report.intervals.len()) {
            (Some(interval), _) => format!("sampled every {}", format_units(interval / 100)),
            (None, 0) => "the sampling interval is unknown".to_owned(),
            (None, _) => {
                let intervals: Vec<String> =
                    self.report.intervals.iter().map(|units| format_units(*units)).collect();
                let intervals = intervals.join(", ");
                format!("the sampling interval changed ({intervals}): samples stand for different times")
            }
        }
    }

    fn add_tables(&self, page: &mut ReportPage) {
        let functions = self.report.functions(FunctionOrder::Own);
        let by_own: Vec<_> = functions.iter().filter(|(_, count)| count.own > 0).copied().collect();
        self.add_function_table("functions, by their own samples", &by_own, page);
        if !page.is_json() {
            let by_all = self.report.functions(FunctionOrder::All);
            self.add_function_table("functions, with what they call", &by_all, page);
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
            format_share(*all, self.report.total),
            format_number(*own),
            format_share(*own, self.report.total)
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
                        format_share(*samples, self.report.total),
                        format_name(name),
                    ]
                },
                |(name, samples)| {
                    let mut object = JsonObject::new();
                    object.text("by", by).text("name", name).number("samples", *samples);
                    put_fraction(&mut object, "share", share_with_error(*samples, *all).0);
                    put_fraction(
                        &mut object,
                        "share_of_all",
                        share_with_error(*samples, self.report.total).0,
                    );
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
            self.format_count_cells(count, &self.report.call_paths.functions.get(*id).label())
        };
        page.add_table(title, columns, rows, cells, |(id, count)| {
            let function = self.report.call_paths.functions.get(*id);
            let mut object = self.count_to_json("function", &function.label(), count);
            object
                .optional("module", function.module.as_deref())
                .optional("function", function.name.as_deref());
            object.raw("inlined", if function.is_inlined { "true" } else { "false" });
            object
        });
    }

    fn add_module_table(&self, page: &mut ReportPage) {
        let rows = self.report.modules();
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
            format_share(count.own, self.report.total),
            format_number(count.all),
            format_share(count.all, self.report.total),
            self.format_sample_time(count.own),
            format_name(label),
        ]
    }

    /// Formats the time that samples stand for, in milliseconds, with no more digits than the
    /// interval justifies.
    fn format_sample_time(&self, samples: u64) -> String {
        let Some(interval_ns) = self.report.interval_ns() else { return "-".to_owned() };
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
            (share_with_error(count.own, self.report.total), share_with_error(count.all, self.report.total));
        put_fraction(&mut object, "own_share", own);
        put_fraction(&mut object, "own_error", own_error);
        put_fraction(&mut object, "all_share", all);
        put_fraction(&mut object, "all_error", all_error);
        object
    }

    fn add_process_table(&self, page: &mut ReportPage) {
        let label = |id: ProcessId| self.report.call_paths.processes.label(id);
        let rows = self.report.processes();
        let columns = [("samples", true), ("%", true), ("ms", true), ("process", false)];
        let cells = |(id, n): &(ProcessId, u64)| {
            [
                format_number(*n),
                format_share(*n, self.report.total),
                self.format_sample_time(*n),
                format_name(&label(*id)),
            ]
        };
        page.add_table("processes", columns, &rows, cells, |(id, n)| self.process_object("process", *id, *n));
    }

    fn add_thread_table(&self, page: &mut ReportPage) {
        let label = |id: ProcessId| self.report.call_paths.processes.label(id);
        let rows = self.report.threads();
        let columns = [("samples", true), ("%", true), ("ms", true), ("thread", false), ("process", false)];
        let cells = |((id, tid), n): &((ProcessId, u32), u64)| {
            let share = format_share(*n, self.report.total);
            let thread = format_name(&self.report.call_paths.thread_label(*id, *tid));
            [format_number(*n), share, self.format_sample_time(*n), thread, format_name(&label(*id))]
        };
        page.add_table("threads", columns, &rows, cells, |((id, tid), n)| {
            let mut object = self.process_object("thread", *id, *n);
            object.number("tid", *tid).optional("thread", self.report.call_paths.thread_name(*id, *tid));
            object
        });
    }

    fn process_object(&self, by: &str, id: ProcessId, samples: u64) -> JsonObject {
        let mut object = JsonObject::new();
        object
            .text("by", by)
            .text("name", &self.report.call_paths.processes.label(id))
            .number("samples", samples);
        put_process(&mut object, &self.report.call_paths.processes, Some(id));
        let (share, error) = share_with_error(samples, self.report.total);
        put_fraction(&mut object, "share", share);
        put_fraction(&mut object, "error", error);
        object
    }
}
