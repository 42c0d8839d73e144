//! The reader of Traceweir, run as a child process: decodes every field of every event of a file,
//! in order.
//!
//! ```text
//!   Events::next ──▶ Decoder::find ──▶ Walker::walk ──▶ ValueSum or FieldPrinter
//! ```
//!
//! One thread, one pass, no knowledge of the file in advance.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::path::Path;

use traceweir_decode::format::{self, Style};
use traceweir_decode::schema::{Field, SchemaOrigin};
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_decode::{Decoder, Schema};
use traceweir_format::Record;
use traceweir_format::etl::Trace;
use traceweir_format::time::{FileTime, UNITS_PER_SECOND};

use crate::error::{Error, Result};
use crate::process;

/// Buffered text is written out when it reaches this many bytes.
const FLUSH_BYTES: usize = 1 << 18;

/// Number of sample events that a reader decoded, and the sum of their fields. The log-file header
/// is decoded too, but not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventTally {
    pub(crate) events: u64,
    /// Sum of all number fields, wrapping.
    pub(crate) sum: u64,
}

/// Decodes every field of every event.
pub(crate) fn decode(path: &Path) -> Result<EventTally> {
    let trace = Trace::open(File::open(path).map_err(Error::file(path))?)?;
    let (mut decoder, mut walker) = (Decoder::new(), Walker::default());
    let mut total = EventTally::default();
    let mut events = trace.events();
    while let Some(record) = events.next()? {
        let mut values = ValueSum::default();
        if let Ok(schema_match) = decoder.find(&record) {
            let is_decoded = walker
                .walk(&schema_match.prepared.schema, schema_match.payload, record.pointer_size(), &mut values)
                .is_ok();
            if is_decoded && schema_match.prepared.schema.origin == SchemaOrigin::TraceLogging {
                total.events += 1;
                total.sum = total.sum.wrapping_add(values.sum);
            }
        }
        black_box((record.time(), record.process_id(), record.thread_id(), record.cpu(), values.text_sum));
    }
    Ok(total)
}

/// Decodes a file and prints the values that the parent process checks: events, sum, peak memory in
/// KiB.
pub(crate) fn decode_and_report(path: &Path) -> Result<()> {
    let tally = decode(path)?;
    println!("{} {} {}", tally.events, tally.sum, process::peak_memory_kib());
    Ok(())
}

/// Sums over all values, so that the compiler cannot skip any. Of a text or byte field, the length
/// and the first and last byte are added.
#[derive(Default)]
struct ValueSum {
    sum: u64,
    text_sum: u64,
}

impl<'p> Visitor<'p> for ValueSum {
    #[inline]
    fn value(&mut self, _: usize, _: &Field, value: Value<'p>) {
        match value {
            Value::Text8(text) | Value::Text16(text) | Value::Bytes(text) => {
                let ends = text.first().zip(text.last()).map_or(0, |(a, b)| u64::from(*a) + u64::from(*b));
                self.text_sum += ends + text.len() as u64;
            }
            number => self.sum = self.sum.wrapping_add(number.as_u64().unwrap_or(0)),
        }
    }
}

/// Prints a line for each event with the facts that babeltrace2 prints: time, processor, process,
/// thread, names and fields.
pub(crate) fn print(path: &Path) -> Result<()> {
    let trace = Trace::open(File::open(path).map_err(Error::file(path))?)?;
    let mut decoder = Decoder::new();
    let mut lines = TextLines::default();
    let mut out = std::io::stdout().lock();
    let mut events = trace.events();
    while let Some(record) = events.next()? {
        lines.write_head(trace.clock().file_time(record.time()), &record);
        match decoder.find(&record) {
            Ok(schema_match) => {
                lines.write_body(&schema_match.prepared.schema, &record, schema_match.payload)
            }
            Err(reason) => lines.out.extend_from_slice(reason.to_string().as_bytes()),
        }
        lines.out.push(b'\n');
        if lines.out.len() >= FLUSH_BYTES {
            out.write_all(&lines.out).map_err(Error::file(path))?;
            lines.out.clear();
        }
    }
    out.write_all(&lines.out).map_err(Error::file(path))
}

/// Lines of text under construction.
#[derive(Default)]
struct TextLines {
    out: Vec<u8>,
    walker: Walker,
    /// The second of the last event, since the epoch of `FileTime`.
    second: i64,
    /// The date and time of `second` as text. It is kept, because most events are in the same
    /// second as the event before. Empty before the first event.
    second_text: Vec<u8>,
}

impl TextLines {
    fn write_head(&mut self, time: FileTime, record: &Record<'_>) {
        let (second, units) = (time.0.div_euclid(UNITS_PER_SECOND), time.0.rem_euclid(UNITS_PER_SECOND));
        if self.second_text.is_empty() || self.second != second {
            let text = FileTime(second * UNITS_PER_SECOND).to_string();
            let up_to_second = text.find('.').map_or(&*text, |dot| &text[..dot]);
            self.second = second;
            self.second_text = up_to_second.as_bytes().to_vec();
        }
        self.out.extend_from_slice(&self.second_text);
        // A leading 1 keeps the zeros of the fraction; then a dot replaces the 1.
        let from = self.out.len();
        format::push_decimal(units + UNITS_PER_SECOND, &mut self.out);
        self.out[from] = b'.';
        for (name, number) in [
            (&b"Z cpu="[..], u32::from(record.cpu())),
            (b" pid=", record.process_id()),
            (b" tid=", record.thread_id()),
        ] {
            self.out.extend_from_slice(name);
            format::push_decimal(number, &mut self.out);
        }
        self.out.push(b' ');
    }

    fn write_body(&mut self, schema: &Schema, record: &Record<'_>, payload: &[u8]) {
        let names = &schema.names;
        self.out.extend_from_slice(names.provider.as_deref().unwrap_or_default().as_bytes());
        self.out.push(b'/');
        self.out.extend_from_slice(names.event.as_deref().unwrap_or_default().as_bytes());
        let mut fields = FieldPrinter { out: &mut self.out };
        if let Err(reason) = self.walker.walk(schema, payload, record.pointer_size(), &mut fields) {
            self.out.extend_from_slice(format!(" {reason}").as_bytes());
        }
    }
}

struct FieldPrinter<'o> {
    out: &'o mut Vec<u8>,
}

impl<'p> Visitor<'p> for FieldPrinter<'_> {
    #[inline]
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        self.out.push(b' ');
        self.out.extend_from_slice(field.name.as_bytes());
        self.out.push(b'=');
        format::push_text(field, &value, Style::default(), self.out);
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {
        self.out.extend_from_slice(b" [");
    }
    fn end_array(&mut self, _: usize, _: &Field) {
        self.out.extend_from_slice(b" ]");
    }
    fn begin_struct(&mut self, _: usize, _: &Field) {
        self.out.extend_from_slice(b" {");
    }
    fn end_struct(&mut self, _: usize, _: &Field) {
        self.out.extend_from_slice(b" }");
    }
}
