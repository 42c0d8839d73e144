//! `weir report sched`: reports which threads ran and waited, by context switches.

use anyhow::{Result, bail};
use traceweir_analysis::report::switches::{ProcessorTotals, SwitchReport, ThreadTotals};
use traceweir_analysis::report::wait_cause::WaitCause;
use traceweir_analysis::report::{Analysis, NeededEvents, ProcessId};
use traceweir_analysis::traces::ReadSummary;
use traceweir_decode::format::push_json_string;

use super::page::{
    ReportPage, format_ms, format_name, format_percent, format_percentiles, format_recorded_time,
    put_fraction, put_percentiles, put_process, share_with_error, summary_object,
};
use crate::cli::ReportSchedArgs;
use crate::exit::CommandOutcome;
use crate::progress::TerminalObserver;
use crate::reading::reading_outcome;
use crate::text::{JsonObject, escape, format_count, format_number, json_array};

/// Maximum number of functions of a blocked stack in text; JSON contains all.
const MAX_SHOWN_FRAMES: usize = 24;

/// Columns that the tables of processes and of threads share: name, and whether the column is
/// aligned to the right.
const TOTALS_COLUMNS: [(&str, bool); 10] = [
    ("running ms", true),
    ("%", true),
    ("switches", true),
    ("waiting ms", true),
    ("ready ms", true),
    ("mostly for", false),
    ("wakes", true),
    ("p50 µs", true),
    ("p99 µs", true),
    ("max µs", true),
];

pub(super) fn run(options: &ReportSchedArgs) -> Result<CommandOutcome> {
    let needed = NeededEvents { switches: true, ..NeededEvents::default() };
    let selection = &options.selection;
    let mut analysis =
        Analysis::open(&selection.options_with(&options.symbols), needed, TerminalObserver::create(false))?;
    let thread_selection = selection.thread_selection();
    let mut report = SwitchReport::new(thread_selection, analysis.window);
    let reading = analysis.read(|facts, joined| report.add_event(facts, joined))?;
    let tables = SwitchTables { report: &report };
    tables.check_not_empty()?;
    let mut page = ReportPage::new(options.tables);
    tables.add_to_page(&analysis, &reading, &mut page);
    page.add_marks(&analysis);
    page.print(&reading)?;
    Ok(reading_outcome(&reading))
}

/// Prints the tables of a report.
struct SwitchTables<'r> {
    report: &'r SwitchReport,
}

impl SwitchTables<'_> {
    /// Fails if there is nothing to report: zeros would look like a result.
    fn check_not_empty(&self) -> Result<()> {
        // `switches` is not tested, because a time span without a switch may still have running
        // threads.
        if self.report.processors.is_empty() && self.report.compact_batches == 0 {
            bail!(
                "no context switches: the trace has none (CSWITCH, 0x0524); weir record --kernel sched -o sched.etl records them"
            );
        }
        if !self.report.has_selected_threads() && self.report.thread_selection.is_limited() {
            bail!(
                "{}",
                self.report.thread_selection.no_match_message(&self.report.paths.processes, "switches")
            );
        }
        Ok(())
    }

    /// Adds headline and tables.
    fn add_to_page(&self, analysis: &Analysis, reading: &ReadSummary, page: &mut ReportPage) {
        let threads = self.report.threads();
        let selected_totals = self.report.selected_totals();
        self.add_headline(analysis, reading, page);
        if self.report.thread_selection.is_limited() {
            let switches = format_count(selected_totals.switches, "switch");
            let running = format_ms(selected_totals.running_ns);
            let threads = format_count(threads.len() as u64, "thread");
            page.add_line(&format!(
                "selected: {threads}, {switches} to them, running {running} ms; the lines above, and processors, cover the whole trace"
            ));
        }
        let total_ns = self.report.total_ns(analysis.recorded_ns());
        self.add_processor_table(page);
        self.add_process_table(total_ns, page);
        self.add_thread_table(&threads, total_ns, page);
        self.add_cause_table(&selected_totals, page);
        self.add_blocked_stacks(page);
    }

    /// Formats the switches that no row counts.
    fn format_other_switches(&self) -> String {
        let counts = [
            (self.report.switches_to_idle, "to idle"),
            (self.report.switches_to_unknown, "to threads out of scope"),
        ];
        let parts = counts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<_> = parts.map(|(count, to)| format!("{} {to}", format_number(*count))).collect();
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    }

    fn add_headline(&self, analysis: &Analysis, reading: &ReadSummary, page: &mut ReportPage) {
        let seconds = self.report.span.seconds();
        let (gaps, over_limit) = (self.report.gaps(), self.report.over_limit());
        let mut object = summary_object(analysis, reading);
        object
            .number("switches", self.report.switches)
            .number("wakes", self.report.wakes)
            .number("gaps", gaps);
        object
            .number("compact_batches", self.report.compact_batches)
            .number("without_stack", self.report.no_stack_count);
        object.number("cut", self.report.truncations);
        put_fraction(&mut object, "seconds", seconds);
        object.raw("partial", if self.report.partial_traces.is_empty() { "false" } else { "true" });
        page.add_object(&object);
        page.add_line(&format!(
            "{}{} and {} in {seconds:.3} s on {}",
            format_count(self.report.switches, "switch"),
            self.format_other_switches(),
            format_count(self.report.wakes, "wake"),
            format_count(self.report.processors.len() as u64, "processor")
        ));
        if self.report.wakes == 0 && self.report.switches > 0 {
            page.add_line("no wakes in the trace (--kernel sched records them, with CAP_PERFMON): waiting times include the time that threads were ready, and there are no latencies");
        }
        if !self.report.partial_traces.is_empty() {
            let length = format_recorded_time(analysis);
            page.add_line(&format!(
                "switches of some threads only, as for an unprivileged user: the rest of the processors' time is not known; % is of the {length} recorded"
            ));
        }
        if gaps > 0 {
            page.add_line(&format!("left out: {} with a missing switch", format_count(gaps, "interval")));
        }
        if self.report.compact_batches > 0 {
            page.add_line(&format!(
                "not read: {} of switches in the compact form",
                format_count(self.report.compact_batches, "batch")
            ));
        }
        if over_limit > 0 {
            let events = format_count(over_limit, "event");
            page.add_line(&format!("left out: {events} of threads beyond the maximum number"));
        }
        if self.report.no_stack_count > 0 {
            let switches = format_count(self.report.no_stack_count, "switch");
            let share = format_percent(self.report.no_stack_count, self.report.switches);
            let reason = match self.report.partial_traces.is_empty() {
                true => "",
                false => "; switches of an unprivileged user have none",
            };
            page.add_line(&format!("without a stack: {switches} ({share} %){reason}"));
        }
        if self.report.truncations > 0 {
            let share = format_percent(self.report.truncations, self.report.switches);
            page.add_line(&format!(
                "truncated at the frame limit: {} ({share} %), marked (cut)",
                format_count(self.report.truncations, "stack")
            ));
        }
        page.add_losses(analysis, reading);
    }

    fn add_processor_table(&self, page: &mut ReportPage) {
        let rows: Vec<(&(usize, u16), &ProcessorTotals)> = self.report.processors.iter().collect();
        let known_ns = |processor: &ProcessorTotals| processor.busy_ns.saturating_add(processor.idle_ns);
        let columns =
            [("processor", true), ("busy %", true), ("busy ms", true), ("idle ms", true), ("switches", true)];
        page.add_table(
            "processors, from their first to their last switch",
            columns,
            &rows,
            |((file, cpu), processor)| {
                let hide_if_partial = |text: String| match self.report.partial_traces.contains(file) {
                    true => "not known".to_owned(),
                    false => text,
                };
                [
                    cpu.to_string(),
                    hide_if_partial(format_percent(processor.busy_ns, known_ns(processor))),
                    hide_if_partial(format_ms(processor.busy_ns)),
                    hide_if_partial(format_ms(processor.idle_ns)),
                    format_number(processor.switches),
                ]
            },
            |((file, cpu), processor)| {
                let mut object = JsonObject::new();
                object.text("by", "processor").number("cpu", *cpu).number("file", *file as u64);
                object.number("switches", processor.switches);
                if self.report.partial_traces.contains(file) {
                    object.raw("busy_ns", "null").raw("idle_ns", "null").raw("busy_share", "null");
                } else {
                    object.number("busy_ns", processor.busy_ns).number("idle_ns", processor.idle_ns);
                    put_fraction(
                        &mut object,
                        "busy_share",
                        share_with_error(processor.busy_ns, known_ns(processor)).0,
                    );
                }
                object
            },
        );
    }

    fn add_process_table(&self, total_ns: u64, page: &mut ReportPage) {
        let label = |id: ProcessId| self.report.paths.processes.label(id);
        let rows = self.report.processes();
        let [a, b, c, d, e, f, g, h, i, j] = TOTALS_COLUMNS;
        let columns = [a, b, c, d, e, f, g, h, i, j, ("process", false)];
        page.add_table(
            "processes",
            columns,
            &rows,
            |(id, totals)| {
                let [a, b, c, d, e, f, g, h, i, j] = self.totals_cells(totals, total_ns);
                [a, b, c, d, e, f, g, h, i, j, format_name(&label(*id))]
            },
            |(id, totals)| self.totals_object("process", *id, totals),
        );
    }

    fn add_thread_table(
        &self,
        rows: &[(&(ProcessId, u32), &ThreadTotals)],
        total_ns: u64,
        page: &mut ReportPage,
    ) {
        let label = |id: ProcessId| self.report.paths.processes.label(id);
        let [a, b, c, d, e, f, g, h, i, j] = TOTALS_COLUMNS;
        let columns = [a, b, c, d, e, f, g, h, i, j, ("thread", false), ("process", false)];
        page.add_table(
            "threads",
            columns,
            rows,
            |((id, tid), totals)| {
                let [a, b, c, d, e, f, g, h, i, j] = self.totals_cells(totals, total_ns);
                let thread = format_name(&self.report.paths.thread_label(*id, *tid));
                [a, b, c, d, e, f, g, h, i, j, thread, format_name(&label(*id))]
            },
            |((id, tid), totals)| {
                let mut object = self.totals_object("thread", *id, totals);
                object.number("tid", *tid).optional("thread", self.report.paths.thread_name(*id, *tid));
                object
            },
        );
    }

    fn totals_cells(&self, totals: &ThreadTotals, total_ns: u64) -> [String; 10] {
        let main_cause = totals.waits.iter().max_by_key(|(_, waits)| waits.duration_ns);
        let main_cause = main_cause.map_or_else(
            || "-".to_owned(),
            |(cause, _)| format_name(&cause.label(&self.report.paths.functions)),
        );
        let [p50, p99, max] = format_percentiles(&totals.latency);
        [
            format_ms(totals.running_ns),
            format_percent(totals.running_ns, total_ns),
            format_number(totals.switches),
            format_ms(totals.waiting_ns),
            format_ms(totals.ready_ns),
            main_cause,
            format_number(totals.latency.count),
            p50,
            p99,
            max,
        ]
    }

    fn totals_object(&self, by: &str, id: ProcessId, totals: &ThreadTotals) -> JsonObject {
        let mut object = JsonObject::new();
        object.text("by", by).text("name", &self.report.paths.processes.label(id));
        put_process(&mut object, &self.report.paths.processes, Some(id));
        object.number("running_ns", totals.running_ns).number("switches", totals.switches);
        object.number("waiting_ns", totals.waiting_ns).number("ready_ns", totals.ready_ns);
        object.number("pushed_aside", totals.preemptions).number("wakes", totals.latency.count);
        put_percentiles(&totals.latency, &mut object);
        let reasons = totals.waits.iter().map(|(cause, waits)| {
            let mut object = JsonObject::new();
            object
                .text("reason", &cause.label(&self.report.paths.functions))
                .number("times", waits.count)
                .number("ns", waits.duration_ns);
            object.finish()
        });
        object.raw("waits", &json_array(reasons));
        object
    }

    fn add_cause_table(&self, totals: &ThreadTotals, page: &mut ReportPage) {
        let label = |cause: WaitCause| cause.label(&self.report.paths.functions);
        let rows = self.report.wait_causes(totals);
        let columns = [("waits", true), ("waiting ms", true), ("for", false)];
        page.add_table(
            "waits, by cause",
            columns,
            &rows,
            |(cause, waits)| {
                [format_number(waits.count), format_ms(waits.duration_ns), format_name(&label(*cause))]
            },
            |(cause, waits)| {
                let mut object = JsonObject::new();
                object.text("by", "reason").text("name", &label(*cause));
                object.number("times", waits.count).number("waiting_ns", waits.duration_ns);
                object
            },
        );
    }

    /// Adds the stacks at which threads waited longest.
    fn add_blocked_stacks(&self, page: &mut ReportPage) {
        let ends = self.report.blocked_stacks.stack_ends();
        let total_ns = ends.iter().fold(0_u64, |sum, (_, time_ns)| sum.saturating_add(*time_ns));
        if ends.is_empty() {
            return;
        }
        page.add_line(&format!("\nblocked stacks, {} ms in all", format_ms(total_ns)));
        for (node, time_ns) in ends.iter().take(page.max_rows()) {
            let labels: Vec<String> = self
                .report
                .blocked_stacks
                .path(*node)
                .iter()
                .map(|id| self.report.paths.functions.get(*id).label())
                .collect();
            let mut object = JsonObject::new();
            object.text("by", "stack").number("blocked_ns", *time_ns);
            put_fraction(&mut object, "share", share_with_error(*time_ns, total_ns).0);
            object.raw("stack", &json_array(labels.iter().map(|label| json_text(label))));
            page.add_object(&object);
            let process = labels.first().map(|label| escape(label)).unwrap_or_default();
            page.add_line(&format!(
                "{:>14} ms {:>5} %  {process}",
                format_ms(*time_ns),
                format_percent(*time_ns, total_ns)
            ));
            for label in labels.iter().skip(1).rev().take(MAX_SHOWN_FRAMES) {
                page.add_line(&format!("{:27}{}", "", format_name(label)));
            }
            if labels.len() > MAX_SHOWN_FRAMES + 1 {
                page.add_line(&format!("{:27}… and {} more", "", labels.len() - MAX_SHOWN_FRAMES - 1));
            }
        }
        page.note_hidden_rows(ends.len().saturating_sub(page.max_rows()));
        if self.report.blocked_stacks.merged_stacks() > 0 {
            page.add_line("too many stacks: the rest is (other)");
        }
    }
}

fn json_text(text: &str) -> String {
    let mut out = Vec::new();
    push_json_string(text, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}
