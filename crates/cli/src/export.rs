//! Writes events in the output formats. Each format has a sink; all append to one buffer.

mod csv;
mod fields;
mod frames;
mod items;
mod json;
mod text;
mod time_column;
mod time_text;
mod xml;

use text::TextSink;
pub(crate) use text::push_frame;
use time_column::TimeColumn;
use time_text::TimeFormatter;

use traceweir_analysis::event::DescribedEvent;
use traceweir_decode::Undecoded;
use traceweir_decode::format::Style;
use traceweir_format::header::{Family, NO_ID, Record};
use traceweir_format::kernel::class_name;

use crate::cli::{OutputFormat, ShownParts};

pub(crate) trait EventSink {
    /// Writes the start of the output, before the first event.
    fn write_start(&mut self, _out: &mut Vec<u8>) {}
    /// Writes one event. Returns an error if the payload does not fit its schema, but `None` for an
    /// event without a schema.
    fn write_event(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) -> Option<Undecoded>;
    /// Writes the end of the output, after the last event.
    fn write_end(&mut self, _out: &mut Vec<u8>) {}
}

pub(crate) fn create_sink(
    format: OutputFormat,
    style: Style,
    show: ShownParts,
    is_colourful: bool,
) -> Box<dyn EventSink + Send> {
    match format {
        OutputFormat::Text => Box::new(TextSink::new(style, show, is_colourful)),
        OutputFormat::Jsonl => Box::new(json::JsonSink::new(style)),
        OutputFormat::Csv => Box::new(csv::CsvSink::new(style, show)),
        OutputFormat::Xml => Box::new(xml::XmlSink::new(style)),
    }
}

/// Returns a substitute for the name of an unnamed event: the id, or class and type of a classic
/// event.
pub(crate) fn format_unnamed_event(record: &Record<'_>) -> String {
    let descriptor = record.descriptor();
    match (record.family(), class_name(&record.provider())) {
        (Family::Event | Family::Message, _) => descriptor.id.to_string(),
        (_, Some(class)) => format!("{class}/{}", descriptor.opcode),
        (_, None) => descriptor.opcode.to_string(),
    }
}

/// Describes why an event is not decoded, with the option that would help.
fn describe_undecoded(reason: &Undecoded) -> String {
    let advice = match reason {
        Undecoded::NoSchema => ": give its manifest or binary with --manifest",
        Undecoded::NoMessageFormat => ": give its TMF with --tmf or its PDB with --pdb",
        _ => "",
    };
    format!("{reason}{advice}")
}

/// Appends a process or thread id; -1 for `NO_ID`.
fn push_id(id: u32, out: &mut Vec<u8>) {
    if id == NO_ID {
        out.extend_from_slice(b"-1");
    } else {
        traceweir_decode::format::push_decimal(id, out);
    }
}

/// Appends bytes as pairs of hexadecimal digits.
fn push_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}
