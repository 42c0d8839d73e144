//! Comma-separated values (RFC 4180) with a header line; the fields of an event share one column.

use traceweir_decode::Undecoded;
use traceweir_decode::format::{Style, decimal, hex_lower};
use traceweir_decode::walk::Walker;

use super::fields::TextFields;
use super::message::Messages;
use super::stamp::push_milliseconds;
use super::{Sink, Stamp, push_hex, push_id};
use crate::traces::Event;

const COLUMNS: &[u8] = b"time,ms,provider,guid,event,id,version,level,opcode,task,keywords,pid,tid,cpu,process,len,fields,message,raw,undecoded\r\n";

/// Writes rows.
pub(super) struct Csv {
    style: Style,
    stamp: Stamp,
    walker: Walker,
    messages: Messages,
    cell: Vec<u8>,
}

impl Csv {
    pub(super) fn new(style: Style) -> Self {
        let (walker, messages, cell) = (Walker::default(), Messages::default(), Vec::new());
        Self { style, stamp: Stamp::new(b'T'), walker, messages, cell }
    }

    /// Fills `cell` with the fields; says what is wrong with a payload that does not fit.
    fn fields(&mut self, event: &Event<'_>) -> Option<Undecoded> {
        self.cell.clear();
        let found = event.found.as_ref().ok()?;
        let mut fields = TextFields::new(&mut self.cell, found.known, self.style);
        let schema = &found.known.schema;
        match self.walker.walk(schema, found.payload, event.record.pointer_size(), &mut fields) {
            Ok([]) => None,
            Ok(extra) => {
                self.cell.extend_from_slice(b" +0x");
                push_hex(extra, &mut self.cell);
                None
            }
            Err(reason) => Some(reason),
        }
    }
}

fn push_cell(text: &[u8], out: &mut Vec<u8>) {
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

impl Sink for Csv {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(COLUMNS);
    }

    fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Option<Undecoded> {
        let record = &event.record;
        let d = record.descriptor();
        self.stamp.push(event.time, out);
        out.extend_from_slice(b"Z,");
        push_milliseconds(event.since_start(), out);
        out.push(b',');
        push_cell(event.provider.unwrap_or_default().as_bytes(), out);
        out.push(b',');
        out.extend_from_slice(&record.provider().to_ascii());
        out.push(b',');
        let name = event.found.as_ref().ok().and_then(|f| f.known.event_name.as_deref());
        push_cell(name.unwrap_or_default().as_bytes(), out);
        for number in [d.id, u16::from(d.version), u16::from(d.level), u16::from(d.opcode), d.task] {
            out.push(b',');
            decimal(number, out);
        }
        out.extend_from_slice(b",0x");
        hex_lower(d.keyword, out);
        out.push(b',');
        push_id(record.process_id(), out);
        out.push(b',');
        push_id(record.thread_id(), out);
        out.push(b',');
        decimal(record.cpu(), out);
        out.push(b',');
        push_cell(event.process.unwrap_or_default().as_bytes(), out);
        out.push(b',');
        decimal(record.payload().len(), out);
        out.push(b',');
        let misfit = self.fields(event);
        push_cell(self.cell.trim_ascii_start(), out);
        out.push(b',');
        self.cell.clear();
        if let Ok(found) = &event.found {
            self.messages.expand(record, found, self.style, &mut self.cell);
        }
        push_cell(&self.cell, out);
        out.push(b',');
        let undecoded = match &event.found {
            Ok(found) => misfit.as_ref().map(|reason| (reason, found.payload)),
            Err(reason) => Some((reason, record.payload())),
        };
        if let Some((_, payload)) = undecoded {
            push_hex(payload, out);
        }
        out.push(b',');
        if let Some((reason, _)) = undecoded {
            push_cell(reason.to_string().as_bytes(), out);
        }
        out.extend_from_slice(b"\r\n");
        misfit
    }
}
