//! Marks (`--mark`): self-describing events that the user adds, each with a time and a text.

use anyhow::Result;
use traceweir::relog::{Output, TraceEvent};
use traceweir_format::Guid;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor, ExtType};
use traceweir_format::time::FileTime;
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};
use traceweir_format::wire::Put;

use crate::text::{Moment, escape};

/// The provider of marks.
const PROVIDER: &str = "Traceweir.Relog";
/// In type of the text field: 8-bit text up to a NUL.
const IN_TYPE_ANSI: u8 = 2;
/// Out type of the text field: shown as UTF-8.
const OUT_TYPE_UTF8: u8 = 35;
const LEVEL_INFO: u8 = 4;

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
    let (mut traits, mut metadata) = (TraitsBuilder::new(PROVIDER), MetadataBuilder::new("Mark", 0));
    let items = [
        Item { kind: ExtType::PROV_TRAITS, data: traits.finish()? },
        Item {
            kind: ExtType::EVENT_SCHEMA_TL,
            data: metadata.add_field("text", IN_TYPE_ANSI, OUT_TYPE_UTF8, 0).finish()?,
        },
    ];
    let header = EventHeader {
        provider: Guid::from_provider_name(PROVIDER),
        process_id: std::process::id(),
        descriptor: EventDescriptor {
            channel: CHANNEL_TRACELOGGING,
            level: LEVEL_INFO,
            ..EventDescriptor::default()
        },
        items: &items,
        ..EventHeader::default()
    };
    let (mut payload, mut record) = (Vec::new(), Vec::new());
    payload.put_ansi_z(text);
    header.encode(&payload, &mut record)?;
    // Input 0, processor 0.
    let mut mark = TraceEvent::from_record(0, 0, &record)?;
    mark.set_time(time)?;
    Ok(output.inject(&mark)?)
}
