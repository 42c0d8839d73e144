//! The page of a report: a headline, tables, and how numbers look in them.

use std::fmt::Write;

use anyhow::Result;

use crate::analysis::{Analysis, Latencies};
use crate::cli::Tables;
use crate::cmd::{counted, grouped};
use crate::exit::Outcome;
use crate::export::{Object, plain};
use crate::output::Output;
use crate::table::table;
use crate::traces::Reading;

/// Characters of a name in a table; objects have all of it.
const LONGEST: usize = 100;

/// A report in the making.
pub(super) struct Page {
    text: String,
    shown: Tables,
}

impl Page {
    pub(super) fn new(shown: Tables) -> Self {
        Self { text: String::new(), shown }
    }

    /// Whether objects are wanted.
    pub(super) const fn is_json(&self) -> bool {
        self.shown.json
    }

    /// Rows of a table that are shown.
    pub(super) const fn top(&self) -> usize {
        if self.shown.top == 0 { usize::MAX } else { self.shown.top }
    }

    /// A line for people.
    pub(super) fn line(&mut self, line: &str) {
        if !self.shown.json {
            self.text.push_str(line);
            self.text.push('\n');
        }
    }

    /// An object for programs.
    pub(super) fn object(&mut self, object: &Object) {
        if self.shown.json {
            self.text.push_str(&object.finish());
            self.text.push('\n');
        }
    }

    /// A table of rows, or their objects.
    pub(super) fn table<T, const N: usize>(
        &mut self,
        title: &str,
        head: [(&str, bool); N],
        rows: &[T],
        cells: impl Fn(&T) -> [String; N],
        object: impl Fn(&T) -> Object,
    ) {
        let shown = rows.get(..rows.len().min(self.top())).unwrap_or_default();
        if self.shown.json {
            shown.iter().for_each(|row| self.object(&object(row)));
            return;
        }
        if rows.is_empty() {
            return;
        }
        let mut lines = vec![head.map(|(name, _)| name.to_owned())];
        lines.extend(shown.iter().map(cells));
        let _ = write!(self.text, "\n{title}\n{}", table(&lines, &head.map(|(_, right)| right)));
        self.more(rows.len() - shown.len());
    }

    /// Says that there are rows that are not shown.
    pub(super) fn more(&mut self, hidden: usize) {
        if hidden > 0 {
            self.line(&format!("{} more (--top 0 shows all)", grouped(hidden as u64)));
        }
    }

    /// What the sessions lost, and what is wrong with the files.
    pub(super) fn losses(&mut self, analysis: &Analysis, reading: &Reading) {
        let is_damaged = reading.outcome >= Outcome::Damaged;
        if let Some((there, said)) = analysis.missing_buffers() {
            let there = grouped(there);
            self.line(&format!("the file is cut: {there} of {} are there", counted(said, "buffer")));
        } else if is_damaged {
            self.line("the file is damaged: what follows is about what could be read of it");
        }
        let (events, buffers) = analysis.lost();
        if events > 0 || buffers > 0 {
            let (events, buffers) = (counted(events, "event"), counted(buffers, "buffer"));
            self.line(&format!("lost: {events} and {buffers}; what follows is about the rest"));
        } else if !analysis.is_finalised() {
            self.line("lost: not told, for the session has not closed the file");
        } else if reading.outcome == Outcome::Fine {
            self.line("lost: nothing, as the sessions tell");
        } else if !is_damaged {
            self.line("lost: events, as buffers say, which do not tell how many");
        }
    }

    pub(super) fn print(self) -> Result<()> {
        let mut output = Output::open(None)?;
        output.buffer().extend_from_slice(self.text.as_bytes());
        output.flush()
    }
}

/// The object of a headline.
pub(super) fn summary(analysis: &Analysis, reading: &Reading) -> Object {
    let (events, buffers) = analysis.lost();
    let mut object = Object::new();
    object.text("by", "summary").number("events_lost", events).number("buffers_lost", buffers);
    object.raw("damaged", if reading.outcome >= Outcome::Damaged { "true" } else { "false" });
    object.number("recorded_ns", analysis.recorded());
    object
}

/// How long was recorded, for people.
pub(super) fn recorded(analysis: &Analysis) -> String {
    format!("{:.3} s", analysis.recorded() as f64 / 1e9)
}

/// A name in a table.
pub(super) fn name(text: &str) -> String {
    let text = plain(text);
    if text.chars().count() <= LONGEST {
        return text;
    }
    text.chars().take(LONGEST - 1).chain(['…']).collect()
}

/// So much of a whole, as a number from 0 to 1, and its standard error as a sample of that size has it.
pub(super) fn share(part: u64, whole: u64) -> (f64, f64) {
    if whole == 0 {
        return (0.0, 0.0);
    }
    let share = part as f64 / whole as f64;
    (share, (share * (1.0 - share).max(0.0) / whole as f64).sqrt())
}

/// The same for people: `12.3 ±0.4`.
pub(super) fn percent_with_error(part: u64, whole: u64) -> String {
    let (share, error) = share(part, whole);
    format!("{:.1} ±{:.1}", share * 100.0, error * 100.0)
}

/// So much of a whole, in percent.
pub(super) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}", share(part, whole).0 * 100.0)
}

/// Nanoseconds as milliseconds.
pub(super) fn milliseconds(nanoseconds: u64) -> String {
    let thousandths = nanoseconds.saturating_add(500) / 1000;
    format!("{}.{:03}", grouped(thousandths / 1000), thousandths % 1000)
}

/// Three percentiles in microseconds: half, nearly all, all.
pub(super) fn percentiles(all: &Latencies) -> [String; 3] {
    [50, 99, 100].map(|percent| match all.percentile(percent) {
        Some(nanoseconds) => {
            let tenths = nanoseconds.saturating_add(50) / 100;
            format!("{}.{}", grouped(tenths / 10), tenths % 10)
        }
        None => "-".to_owned(),
    })
}

/// The same as members of an object; null where there are none.
pub(super) fn put_percentiles(all: &Latencies, object: &mut Object) {
    for (key, percent) in [("latency_p50_ns", 50), ("latency_p99_ns", 99), ("latency_max_ns", 100)] {
        match all.percentile(percent) {
            Some(nanoseconds) => object.number(key, nanoseconds),
            None => object.raw(key, "null"),
        };
    }
}

/// A number with a fraction as a member of an object.
pub(super) fn put_fraction(object: &mut Object, key: &str, value: f64) {
    object.raw(key, &format!("{value:.6}"));
}

/// The number of a process as a member of an object: null where there is none.
pub(super) fn put_pid(object: &mut Object, pid: Option<u32>) {
    match pid {
        Some(pid) => object.number("pid", pid),
        None => object.raw("pid", "null"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_people() {
        assert_eq!(
            (milliseconds(1_234_567_890), milliseconds(499)),
            ("1,234.568".to_owned(), "0.000".to_owned())
        );
        assert_eq!((percent_with_error(1, 4), percent(1, 3)), ("25.0 ±21.7".to_owned(), "33.3".to_owned()));
        assert_eq!(percent_with_error(0, 0), "0.0 ±0.0");
        let mut all = Latencies::default();
        assert_eq!(percentiles(&all), ["-", "-", "-"]);
        all.add(1500);
        assert_eq!(percentiles(&all), ["1.5", "1.5", "1.5"]);
        assert_eq!(name(&"x".repeat(200)).chars().count(), LONGEST);
    }

    #[test]
    fn names_of_strangers_stay_in_their_cell() {
        let hostile = name("a\u{1b}[31m\n\u{9b}\u{202e}\u{2028}b");
        assert!(hostile.starts_with("a\\x1b[31m\\n"), "{hostile}");
        assert!(
            !hostile.chars().any(|c| c.is_control() || matches!(c, '\u{202e}' | '\u{2028}')),
            "{hostile}"
        );
    }
}
