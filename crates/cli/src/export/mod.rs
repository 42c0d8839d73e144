//! Events in the formats people and programs read. One sink a format; all append to one buffer.

mod csv;
mod fields;
mod json;
mod message;
mod stamp;
mod text;
mod xml;

pub(crate) use json::write_json_string;
pub(crate) use stamp::Stamp;
pub(crate) use text::Text;

use traceweir_decode::format::Style;

use crate::cli::Format;
use crate::traces::Event;

/// Writes events in one format.
pub(crate) trait Sink {
    /// What stands before the first event.
    fn begin(&mut self, _out: &mut Vec<u8>) {}
    /// One event.
    fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>);
    /// What stands after the last event.
    fn end(&mut self, _out: &mut Vec<u8>) {}
}

/// The sink of a format.
pub(crate) fn sink(format: Format, style: Style, colour: bool) -> Box<dyn Sink> {
    match format {
        Format::Text => Box::new(Text::new(style, colour)),
        Format::Jsonl => Box::new(json::Json::new(style)),
        Format::Csv => Box::new(csv::Csv::new(style)),
        Format::Xml => Box::new(xml::Xml::new(style)),
    }
}

/// An id as people print it: -1 where there is none.
fn push_id(id: u32, out: &mut Vec<u8>) {
    if id == u32::MAX {
        out.extend_from_slice(b"-1");
    } else {
        traceweir_decode::format::decimal(id, out);
    }
}

/// Bytes as pairs of hexadecimal digits.
fn push_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for b in bytes {
        out.extend_from_slice(&[DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]);
    }
}
