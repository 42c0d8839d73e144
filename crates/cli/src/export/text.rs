//! One line an event, for people.
//!
//! ```text
//! 2020-07-29 00:07:00.6821234 [4] 3988/4032 PerfView  PerfView/ManifestData  Format=1 MajorVersion=1 …
//! time (UTC)                  cpu pid/tid   process   provider/event         fields
//! ```

use traceweir_decode::format::Style;
use traceweir_decode::schema::Origin;
use traceweir_decode::walk::Walker;

use super::fields::TextFields;
use super::message::Messages;
use super::{Sink, Stamp, push_hex, push_id};
use crate::traces::Event;

const DIM: &[u8] = b"\x1b[2m";
const NAME: &[u8] = b"\x1b[36m";
const BAD: &[u8] = b"\x1b[33m";
const PLAIN: &[u8] = b"\x1b[0m";

/// Bytes of an undecoded payload that are shown.
const SHOWN: usize = 64;

/// Writes lines.
pub(crate) struct Text {
    style: Style,
    colour: bool,
    stamp: Stamp,
    walker: Walker,
    messages: Messages,
}

impl Text {
    pub(crate) fn new(style: Style, colour: bool) -> Self {
        Self { style, colour, stamp: Stamp::default(), walker: Walker::default(), messages: Messages::default() }
    }

    fn paint(&self, code: &[u8], out: &mut Vec<u8>) {
        if self.colour {
            out.extend_from_slice(code);
        }
    }

    /// Who did what: the line without its time.
    fn who(&self, event: &Event<'_>, out: &mut Vec<u8>) {
        let record = &event.record;
        out.extend_from_slice(b" [");
        traceweir_decode::format::decimal(record.cpu(), out);
        out.extend_from_slice(b"] ");
        let (pid, tid) = event.attributed.map_or((record.process_id(), record.thread_id()), |a| (a.pid, a.tid));
        push_id(pid, out);
        out.push(b'/');
        push_id(tid, out);
        if let Some(process) = event.process {
            out.push(b' ');
            out.extend_from_slice(process.as_bytes());
        }
        out.extend_from_slice(b"  ");
        self.paint(NAME, out);
        match event.provider {
            Some(name) => out.extend_from_slice(name.as_bytes()),
            None => out.extend_from_slice(&record.provider().to_ascii()),
        }
        out.push(b'/');
        match event.found.as_ref().ok().and_then(|f| f.known.event_name.as_deref()) {
            Some(name) => out.extend_from_slice(name.as_bytes()),
            None => {
                let d = record.descriptor();
                traceweir_decode::format::decimal(if record.hook().is_some() { u16::from(d.opcode) } else { d.id }, out);
            }
        }
        self.paint(PLAIN, out);
        out.extend_from_slice(b" ");
    }

    /// What the event says.
    fn what(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let found = match &event.found {
            Ok(found) => found,
            Err(reason) => return self.undecoded(&reason.to_string(), event.record.payload(), out),
        };
        if found.known.schema.origin == Origin::Wpp {
            out.push(b' ');
            if self.messages.expand(&event.record, found, self.style, out) {
                return;
            }
        }
        let mut fields = TextFields::new(out, self.style);
        let rest =
            self.walker.walk(&found.known.schema, found.payload, event.record.pointer_size(), &mut fields);
        match rest {
            Ok([]) => {}
            Ok(extra) => {
                out.extend_from_slice(b" +0x");
                push_hex(&extra[..extra.len().min(SHOWN)], out);
            }
            Err(reason) => self.undecoded(&reason.to_string(), found.payload, out),
        }
    }

    fn undecoded(&self, reason: &str, payload: &[u8], out: &mut Vec<u8>) {
        self.paint(BAD, out);
        if !payload.is_empty() {
            out.extend_from_slice(b" 0x");
            push_hex(&payload[..payload.len().min(SHOWN)], out);
            if payload.len() > SHOWN {
                out.extend_from_slice("…".as_bytes());
            }
        }
        out.extend_from_slice(b" (");
        out.extend_from_slice(reason.as_bytes());
        out.push(b')');
        self.paint(PLAIN, out);
    }
}

impl Sink for Text {
    fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        self.paint(DIM, out);
        let start = out.len();
        self.stamp.push(event.time, out);
        // People read a blank more easily than a T.
        if let Some(t) = out.get_mut(start..).and_then(|s| s.iter_mut().find(|b| **b == b'T')) {
            *t = b' ';
        }
        self.paint(PLAIN, out);
        self.who(event, out);
        self.what(event, out);
        out.push(b'\n');
    }
}
