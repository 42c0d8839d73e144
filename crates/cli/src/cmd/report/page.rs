//! The output of a report: a headline, tables, and the format of their numbers.

use std::fmt::Write;

use anyhow::Result;
use traceweir_analysis::report::{Analysis, Latencies, ProcessId, ProcessTable, TraceMark};
use traceweir_analysis::traces::ReadSummary;

use crate::cli::TableArgs;
use crate::output::print_text;
use crate::reading::{print_defects, print_warnings};
use crate::text::{JsonObject, Paint, TerminalStyle, escape, format_count, format_number, format_table};

/// Maximum number of characters of a name in a table; JSON contains the whole name.
const MAX_NAME_CHARS: usize = 100;

/// The names of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableNames {
    pub(super) title: &'static str,
    /// The heading of the last column, which labels the rows.
    pub(super) column: &'static str,
    /// The value of the field `by` in the rows' JSON objects.
    pub(super) json_kind: &'static str,
}

/// A report that is being written.
pub(super) struct ReportPage {
    text: String,
    options: TableArgs,
    style: TerminalStyle,
}

impl ReportPage {
    pub(super) fn new(options: TableArgs) -> Self {
        Self { text: String::new(), options, style: TerminalStyle::for_stdout() }
    }

    pub(super) const fn is_json(&self) -> bool {
        self.options.json
    }

    /// Returns the maximum number of rows of a table.
    pub(super) const fn max_rows(&self) -> usize {
        if self.options.top == 0 { usize::MAX } else { self.options.top }
    }

    /// Adds a line, unless the output is JSON.
    pub(super) fn add_line(&mut self, line: &str) {
        if !self.options.json {
            self.text.push_str(&self.style.wrap(line, 0));
            self.text.push('\n');
        }
    }

    /// Adds a line in the colour of warnings, unless the output is JSON.
    fn add_warning(&mut self, line: &str) {
        if !self.options.json {
            let line = self.style.paint(Paint::Warning, &self.style.wrap(line, 0));
            self.text.push_str(&line);
            self.text.push('\n');
        }
    }

    /// Adds an object, if the output is JSON.
    pub(super) fn add_object(&mut self, object: &JsonObject) {
        if self.options.json {
            self.text.push_str(&object.finish());
            self.text.push('\n');
        }
    }

    /// Adds a table of rows, or their JSON objects. `columns` has the name of each column, and
    /// whether it is aligned to the right.
    pub(super) fn add_table<T, const N: usize>(
        &mut self,
        title: &str,
        columns: [(&str, bool); N],
        rows: &[T],
        to_cells: impl Fn(&T) -> [String; N],
        to_object: impl Fn(&T) -> JsonObject,
    ) {
        let shown = rows.get(..rows.len().min(self.max_rows())).unwrap_or_default();
        if self.options.json {
            shown.iter().for_each(|row| self.add_object(&to_object(row)));
            return;
        }
        if rows.is_empty() {
            return;
        }
        let mut lines = vec![columns.map(|(name, _)| name.to_owned())];
        lines.extend(shown.iter().map(to_cells));
        let title = self.style.paint(Paint::Heading, title);
        let _ = write!(self.text, "\n{title}\n{}", format_table(&lines, &columns.map(|(_, right)| right)));
        self.note_hidden_rows(rows.len() - shown.len());
    }

    /// Adds a line with the number of rows that are not shown.
    pub(super) fn note_hidden_rows(&mut self, hidden: usize) {
        if hidden > 0 {
            self.add_line(&format!("{} more (--top 0 shows all)", format_number(hidden as u64)));
        }
    }

    /// Adds a line with the number of events of processes and threads that are not selected, if
    /// there are any.
    pub(super) fn add_unselected(&mut self, count: u64) {
        if count > 0 {
            self.add_line(&format!("of other processes and threads: {}, left out", format_number(count)));
        }
    }

    /// Adds lines about lost events, lost buffers and damaged files.
    pub(super) fn add_losses(&mut self, analysis: &Analysis, reading: &ReadSummary) {
        let is_damaged = reading.is_damaged;
        if let Some((present, written)) = analysis.missing_buffers() {
            let present = format_number(present);
            self.add_warning(&format!(
                "the file is truncated: it contains {present} of {}",
                format_count(written, "buffer")
            ));
        } else if is_damaged {
            self.add_warning("the file is damaged: the report covers the readable part");
        }
        let (events, buffers) = analysis.lost_events_and_buffers();
        if events > 0 || buffers > 0 {
            let (events, buffers) = (format_count(events, "event"), format_count(buffers, "buffer"));
            self.add_warning(&format!("lost: {events} and {buffers}; the report covers the rest"));
        } else if !analysis.is_finalised() {
            self.add_line("lost: unknown, because the session has not closed the file");
        } else if !reading.losses.is_empty() {
            self.add_warning("lost: events; buffers report a loss, but not how many");
        } else if !is_damaged {
            self.add_line("lost: nothing, according to the sessions");
        }
    }

    /// Adds a table of the marks in the time span, if there are any.
    pub(super) fn add_marks(&mut self, analysis: &Analysis) {
        let to_cells =
            |mark: &&TraceMark| [format!("{:.6}", mark.time_ns as f64 / 1e9), format_name(&mark.text)];
        self.add_table("marks", [("s", true), ("text", false)], &analysis.marks(), to_cells, |mark| {
            let mut object = JsonObject::new();
            object.text("by", "mark").raw("time_ns", &mark.time_ns.to_string()).text("text", &mark.text);
            object
        });
    }

    /// Prints the page, then the warnings of the reading. A page for people contains the losses, so
    /// they are not repeated.
    pub(super) fn print(self, reading: &ReadSummary) -> Result<()> {
        print_text(&self.text)?;
        if self.options.json {
            print_warnings(reading);
        } else {
            print_defects(reading);
        }
        Ok(())
    }
}

/// Returns the JSON object of a headline.
pub(super) fn summary_object(analysis: &Analysis, reading: &ReadSummary) -> JsonObject {
    let (events, buffers) = analysis.lost_events_and_buffers();
    let mut object = JsonObject::new();
    object.text("by", "summary").number("events_lost", events).number("buffers_lost", buffers);
    object.raw("damaged", if reading.is_damaged { "true" } else { "false" });
    object.number("recorded_ns", analysis.recorded_ns());
    object
}

/// Formats the recorded time in seconds.
pub(super) fn format_recorded_time(analysis: &Analysis) -> String {
    format!("{:.3} s", analysis.recorded_ns() as f64 / 1e9)
}

pub(super) fn format_name(text: &str) -> String {
    let text = escape(text);
    if text.chars().count() <= MAX_NAME_CHARS {
        return text;
    }
    text.chars().take(MAX_NAME_CHARS - 1).chain(['…']).collect()
}

/// Returns the share of `part` in `total`, from 0 to 1, and the standard error of the share for a
/// sample of that size.
pub(super) fn share_with_error(part: u64, total: u64) -> (f64, f64) {
    if total == 0 {
        return (0.0, 0.0);
    }
    let share = part as f64 / total as f64;
    (share, (share * (1.0 - share).max(0.0) / total as f64).sqrt())
}

/// Formats a share with its standard error in percent: `12.3 ±0.4`.
pub(super) fn format_share(part: u64, total: u64) -> String {
    let (share, error) = share_with_error(part, total);
    format!("{:.1} ±{:.1}", share * 100.0, error * 100.0)
}

pub(super) fn format_percent(part: u64, total: u64) -> String {
    format!("{:.1}", share_with_error(part, total).0 * 100.0)
}

/// Formats nanoseconds as milliseconds.
pub(super) fn format_ms(nanoseconds: u64) -> String {
    let thousandths = nanoseconds.saturating_add(500) / 1000;
    format!("{}.{:03}", format_number(thousandths / 1000), thousandths % 1000)
}

/// Formats the 50th, 99th and 100th percentile in microseconds.
pub(super) fn format_percentiles(latencies: &Latencies) -> [String; 3] {
    [50, 99, 100].map(|percent| match latencies.percentile(percent) {
        Some(nanoseconds) => {
            let tenths = nanoseconds.saturating_add(50) / 100;
            format!("{}.{}", format_number(tenths / 10), tenths % 10)
        }
        None => "-".to_owned(),
    })
}

/// Adds the 50th, 99th and 100th percentile to an object; null if there are no latencies.
pub(super) fn put_percentiles(latencies: &Latencies, object: &mut JsonObject) {
    for (key, percent) in [("latency_p50_ns", 50), ("latency_p99_ns", 99), ("latency_max_ns", 100)] {
        match latencies.percentile(percent) {
            Some(nanoseconds) => object.number(key, nanoseconds),
            None => object.raw(key, "null"),
        };
    }
}

pub(super) fn put_fraction(object: &mut JsonObject, key: &str, value: f64) {
    object.raw(key, &format!("{value:.6}"));
}

/// Adds pid and name of a process to an object; null if they are unknown, and for `None`.
pub(super) fn put_process(object: &mut JsonObject, processes: &ProcessTable, id: Option<ProcessId>) {
    match id.and_then(|id| processes.pid(id)) {
        Some(pid) => object.number("pid", pid),
        None => object.raw("pid", "null"),
    };
    object.optional("process", id.and_then(|id| processes.name(id)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_people() {
        assert_eq!((format_ms(1_234_567_890), format_ms(499)), ("1,234.568".to_owned(), "0.000".to_owned()));
        assert_eq!((format_share(1, 4), format_percent(1, 3)), ("25.0 ±21.7".to_owned(), "33.3".to_owned()));
        assert_eq!(format_share(0, 0), "0.0 ±0.0");
        let mut latencies = Latencies::default();
        assert_eq!(format_percentiles(&latencies), ["-", "-", "-"]);
        latencies.add(1500);
        assert_eq!(format_percentiles(&latencies), ["1.5", "1.5", "1.5"]);
        assert_eq!(format_name(&"x".repeat(200)).chars().count(), MAX_NAME_CHARS);
    }

    #[test]
    fn hostile_names_stay_in_their_cell() {
        let hostile = format_name("a\u{1b}[31m\n\u{9b}\u{202e}\u{2028}b");
        assert!(hostile.starts_with("a\\x1b[31m\\n"), "{hostile}");
        assert!(
            !hostile.chars().any(|c| c.is_control() || matches!(c, '\u{202e}' | '\u{2028}')),
            "{hostile}"
        );
    }
}
