//! Marks (`--mark`): self-describing events that the user adds, each with a time and a text.

use anyhow::Result;
use traceweir::relog::{Output, TraceEvent};
use traceweir_analysis::mark::{self, MarkSchema};
use traceweir_format::header::event::EventHeader;
use traceweir_format::time::FileTime;

use crate::text::{Moment, escape};

/// Marks that have not been written yet, the latest first.
pub(super) struct Marks(Vec<(FileTime, String)>);

impl Marks {
    /// Converts the marks of the command line; relative times count from `start`.
    pub(super) fn new(typed: &[(Moment, String)], start: FileTime) -> Self {
        let mut marks: Vec<_> =
            typed.iter().map(|(time, text)| (time.to_wall_time(start), text.clone())).collect();
        marks.sort_by_key(|(time, _)| *time);
        marks.reverse();
        Self(marks)
    }

    /// Returns warnings about marks outside the time span of the traces.
    pub(super) fn warnings_outside(self, (first, last): (FileTime, FileTime)) -> Vec<String> {
        let outside = self.0.into_iter().rev().filter(|(time, _)| *time < first || *time > last);
        outside
            .map(|(time, text)| {
                let text = escape(&text);
                format!("the mark {text:?} at {time} is outside the trace, which is from {first} to {last}")
            })
            .collect()
    }

    /// Writes the marks that precede an event of this time.
    #[inline]
    pub(super) fn write_before(&mut self, time: FileTime, output: &mut Output) -> Result<()> {
        while let Some((mark_time, text)) = self.0.pop_if(|(mark_time, _)| *mark_time < time) {
            write_mark(mark_time, &text, output)?;
        }
        Ok(())
    }

    /// Writes the marks that remain after the last event.
    pub(super) fn write_remaining(&mut self, output: &mut Output) -> Result<()> {
        while let Some((time, text)) = self.0.pop() {
            write_mark(time, &text, output)?;
        }
        Ok(())
    }
}

fn write_mark(time: FileTime, text: &str, output: &mut Output) -> Result<()> {
    let schema = MarkSchema::new()?;
    let header = EventHeader {
        provider: schema.provider,
        process_id: std::process::id(),
        descriptor: mark::DESCRIPTOR,
        items: &schema.items(),
        ..EventHeader::default()
    };
    let mut record = Vec::new();
    header.encode(&schema.encode_text(text), &mut record)?;
    // Input 0, processor 0.
    let mut mark = TraceEvent::from_record(0, 0, &record)?;
    mark.set_time(time)?;
    Ok(output.inject(&mark)?)
}
