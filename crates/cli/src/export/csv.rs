//! The CSV format (RFC 4180) with a header line; the fields of an event share one column. With
//! `--items`, extended data items have further columns at the end.

use traceweir_analysis::event::DescribedEvent;
use traceweir_decode::Undecoded;
use traceweir_decode::format::{Style, hex_lower, push_decimal, push_escaped_text};
use traceweir_decode::walk::Walker;
use traceweir_format::header::Record;

use super::fields::TextFields;
use super::time_text::push_milliseconds;
use super::{EventSink, TimeFormatter, describe_undecoded, items, push_hex, push_id};
use crate::cli::ShownParts;
use traceweir_decode::expand::MessageExpander;

const COLUMNS: &[u8] = b"time,ms,provider,guid,event,id,version,level,opcode,task,keywords,pid,tid,cpu,process,len,fields,message,raw,undecoded,attributed_pid,attributed_tid,activity,related,stack";

pub(super) struct CsvSink {
    style: Style,
    /// Whether there are columns for extended data items.
    has_item_columns: bool,
    time_formatter: TimeFormatter,
    walker: Walker,
    messages: MessageExpander,
    cell: Vec<u8>,
    scratch: Vec<u8>,
}

impl CsvSink {
    pub(super) fn new(style: Style, show: ShownParts) -> Self {
        let (walker, messages, cell) = (Walker::default(), MessageExpander::default(), Vec::new());
        Self {
            style,
            has_item_columns: show.items,
            time_formatter: TimeFormatter::new(b'T'),
            walker,
            messages,
            cell,
            scratch: Vec::new(),
        }
    }

    /// Fills `cell` with the fields; returns an error if the payload does not fit its schema.
    fn fill_cell_with_fields(&mut self, event: &DescribedEvent<'_>) -> Option<Undecoded> {
        self.cell.clear();
        let schema_match = event.schema_match.as_ref().ok()?;
        let mut fields =
            TextFields::new(&mut self.cell, schema_match.prepared, self.style, &mut self.scratch);
        match self.walker.walk(
            &schema_match.prepared.schema,
            schema_match.payload,
            event.record.pointer_size(),
            &mut fields,
        ) {
            Ok([]) => None,
            Ok(extra) => {
                self.cell.extend_from_slice(b" +0x");
                push_hex(extra, &mut self.cell);
                None
            }
            Err(reason) => Some(reason),
        }
    }

    /// Appends the columns up to the payload length, with a comma at the end.
    fn write_identity(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) {
        let record = &event.record;
        let descriptor = record.descriptor();
        self.time_formatter.push_time(event.time, out);
        out.extend_from_slice(b"Z,");
        push_milliseconds(event.ns_since_start(), out);
        out.push(b',');
        push_cell(event.provider.unwrap_or_default().as_bytes(), out);
        out.push(b',');
        out.extend_from_slice(&record.provider().to_ascii());
        out.push(b',');
        let name = event
            .schema_match
            .as_ref()
            .ok()
            .and_then(|schema_match| schema_match.prepared.event_name.as_deref());
        push_cell(name.unwrap_or_default().as_bytes(), out);
        for number in [
            descriptor.id,
            u16::from(descriptor.version),
            u16::from(descriptor.level),
            u16::from(descriptor.opcode),
            descriptor.task,
        ] {
            out.push(b',');
            push_decimal(number, out);
        }
        out.extend_from_slice(b",0x");
        hex_lower(descriptor.keyword, out);
        out.push(b',');
        push_id(record.process_id(), out);
        out.push(b',');
        push_id(record.thread_id(), out);
        out.push(b',');
        push_decimal(record.cpu(), out);
        out.push(b',');
        push_cell(event.process.unwrap_or_default().as_bytes(), out);
        out.push(b',');
        push_decimal(record.payload().len(), out);
        out.push(b',');
    }

    /// Appends the extended data items, one column each.
    fn write_items(&mut self, record: &Record<'_>, out: &mut Vec<u8>) {
        for name in items::ITEM_NAMES {
            out.push(b',');
            self.cell.clear();
            items::push_item(record, name, &mut self.cell);
            push_cell(&self.cell, out);
        }
    }
}

/// Appends the attributed process and thread, the activities, and the stack as addresses separated
/// by blanks; a column without a value is empty.
fn push_context(event: &DescribedEvent<'_>, out: &mut Vec<u8>) {
    if let Some(actor) = event.actor {
        push_id(actor.pid, out);
    }
    out.push(b',');
    if let Some(actor) = event.actor {
        push_id(actor.tid, out);
    }
    for activity in [event.record.activity(), event.record.items().related_activity()] {
        out.push(b',');
        if let Some(id) = activity {
            out.extend_from_slice(&id.to_ascii());
        }
    }
    out.push(b',');
    for (index, frame) in event.frames().into_iter().flatten().enumerate() {
        out.extend_from_slice(if index == 0 { b"0x" } else { b" 0x" });
        hex_lower(frame, out);
    }
}

/// Appends a cell. Escapes its lines if the text contains control characters (except line ends and
/// tabs), or the bytes 0xC2 or 0xE2. These bytes begin further characters that terminals interpret.
fn push_cell(text: &[u8], out: &mut Vec<u8>) {
    let may_be_interpreted = |b: &u8| matches!(b, 0..=8 | 11 | 12 | 14..=31 | 0x7F | 0xC2 | 0xE2);
    if text.iter().any(may_be_interpreted) {
        let mut clean = Vec::new();
        for (index, line) in text.split(|b| *b == b'\n').enumerate() {
            if index > 0 {
                clean.push(b'\n');
            }
            push_escaped_text(line, &mut clean);
        }
        return push_quoted(&clean, out);
    }
    push_quoted(text, out);
}

fn push_quoted(text: &[u8], out: &mut Vec<u8>) {
    if !text.iter().any(|b| matches!(b, b',' | b'"' | b'\r' | b'\n')) {
        return out.extend_from_slice(text);
    }
    out.push(b'"');
    for b in text {
        if *b == b'"' {
            out.push(b'"');
        }
        out.push(*b);
    }
    out.push(b'"');
}

impl EventSink for CsvSink {
    fn write_start(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(COLUMNS);
        if self.has_item_columns {
            for name in items::ITEM_NAMES {
                out.push(b',');
                out.extend_from_slice(name.as_bytes());
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    fn write_event(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) -> Option<Undecoded> {
        let record = &event.record;
        self.write_identity(event, out);
        let misfit = self.fill_cell_with_fields(event);
        push_cell(self.cell.trim_ascii_start(), out);
        out.push(b',');
        self.cell.clear();
        if let Ok(schema_match) = &event.schema_match {
            self.messages.expand(schema_match, record.pointer_size(), self.style, &mut self.cell);
        }
        push_cell(&self.cell, out);
        out.push(b',');
        let undecoded = match &event.schema_match {
            Ok(schema_match) => misfit.as_ref().map(|reason| (reason, schema_match.payload)),
            Err(reason) => Some((reason, record.payload())),
        };
        if let Some((_, payload)) = undecoded {
            push_hex(payload, out);
        }
        out.push(b',');
        if let Some((reason, _)) = undecoded {
            push_cell(describe_undecoded(reason).as_bytes(), out);
        }
        out.push(b',');
        push_context(event, out);
        if self.has_item_columns {
            self.write_items(record, out);
        }
        out.extend_from_slice(b"\r\n");
        misfit
    }
}
