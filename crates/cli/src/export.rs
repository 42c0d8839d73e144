//! Writes events in the output formats. Each format has a sink; all append to one buffer.

mod csv;
mod fields;
mod frames;
mod items;
mod json;
mod stamp;
mod text;
mod xml;

pub(crate) use fields::MAX_FIELDS;
use stamp::Stamp;
use text::Text;
pub(crate) use text::push_frame;

use traceweir_decode::Undecoded;
use traceweir_decode::format::Style;
use traceweir_format::header::{Family, Record};
use traceweir_format::kernel::class_name;

use crate::cli::{OutputFormat, ShownParts};
use crate::event::Event;

/// Writes events in one format.
pub(crate) trait Sink {
    /// Writes what precedes the first event.
    fn begin(&mut self, _out: &mut Vec<u8>) {}
    /// Writes one event. Returns an error if the payload does not fit its schema.
    fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Option<Undecoded>;
    /// Writes what follows the last event.
    fn end(&mut self, _out: &mut Vec<u8>) {}
}

/// Returns the sink of a format.
pub(crate) fn sink(
    format: OutputFormat,
    style: Style,
    show: ShownParts,
    colour: bool,
) -> Box<dyn Sink + Send> {
    match format {
        OutputFormat::Text => Box::new(Text::new(style, show, colour)),
        OutputFormat::Jsonl => Box::new(json::Json::new(style)),
        OutputFormat::Csv => Box::new(csv::Csv::new(style, show)),
        OutputFormat::Xml => Box::new(xml::Xml::new(style)),
    }
}

/// Returns a substitute for the name of an event without one: its id, or class and type of a
/// classic event.
pub(crate) fn unnamed_event(record: &Record<'_>) -> String {
    let d = record.descriptor();
    match (record.family(), class_name(&record.provider())) {
        (Family::Event | Family::Message, _) => d.id.to_string(),
        (_, Some(class)) => format!("{class}/{}", d.opcode),
        (_, None) => d.opcode.to_string(),
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

/// Appends an id; -1 if there is none.
fn push_id(id: u32, out: &mut Vec<u8>) {
    if id == u32::MAX {
        out.extend_from_slice(b"-1");
    } else {
        traceweir_decode::format::decimal(id, out);
    }
}

/// Appends bytes as pairs of hexadecimal digits.
fn push_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for b in bytes {
        out.extend_from_slice(&[DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]);
    }
}
