//! One line an event, for people.
//!
//! ```text
//! 2020-07-29 00:07:00.6821234 [4] 3988/4032 PerfView  PerfView/ManifestData  Format=1 MajorVersion=1 …
//! time (UTC)                  cpu pid/tid   process   provider/event         fields
//! ```

use traceweir_decode::Undecoded;
use traceweir_decode::format::Style;
use traceweir_decode::schema::Origin;
use traceweir_decode::walk::Walker;

use super::fields::TextFields;
use super::message::Messages;
use super::{Sink, Stamp, push_hex, push_id, push_plain, unnamed_event};
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
    message: Vec<u8>,
}

impl Text {
    pub(crate) fn new(style: Style, colour: bool) -> Self {
        let (walker, messages, message) = (Walker::default(), Messages::default(), Vec::new());
        Self { style, colour, stamp: Stamp::default(), walker, messages, message }
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
        let (pid, tid) =
            event.attributed.map_or((record.process_id(), record.thread_id()), |a| (a.pid, a.tid));
        push_id(pid, out);
        out.push(b'/');
        push_id(tid, out);
        if let Some(process) = event.process {
            out.push(b' ');
            push_plain(process.as_bytes(), out);
        }
        out.extend_from_slice(b"  ");
        self.paint(NAME, out);
        match event.provider {
            Some(name) => push_plain(name.as_bytes(), out),
            None => out.extend_from_slice(&record.provider().to_ascii()),
        }
        out.push(b'/');
        match event.found.as_ref().ok().and_then(|f| f.known.event_name.as_deref()) {
            Some(name) => push_plain(name.as_bytes(), out),
            None => out.extend_from_slice(unnamed_event(record).as_bytes()),
        }
        self.paint(PLAIN, out);
    }

    /// What the event says.
    fn what(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Option<Undecoded> {
        let found = match &event.found {
            Ok(found) => found,
            Err(reason) => {
                self.undecoded(reason, event.record.payload(), out);
                return None;
            }
        };
        if found.known.schema.origin == Origin::Wpp {
            self.message.clear();
            if let Some(walked) = self.messages.expand(&event.record, found, self.style, &mut self.message) {
                out.push(b' ');
                push_plain(&self.message, out);
                let misfit = walked.err();
                if let Some(reason) = &misfit {
                    self.undecoded(reason, found.payload, out);
                }
                return misfit;
            }
        }
        let mut fields = TextFields::new(out, self.style);
        let rest =
            self.walker.walk(&found.known.schema, found.payload, event.record.pointer_size(), &mut fields);
        match &rest {
            Ok([]) => {}
            Ok(extra) => {
                out.extend_from_slice(b" +0x");
                push_hex(&extra[..extra.len().min(SHOWN)], out);
            }
            Err(reason) => self.undecoded(reason, found.payload, out),
        }
        rest.err()
    }

    fn undecoded(&self, reason: &Undecoded, payload: &[u8], out: &mut Vec<u8>) {
        self.paint(BAD, out);
        if !payload.is_empty() {
            out.extend_from_slice(b" 0x");
            push_hex(&payload[..payload.len().min(SHOWN)], out);
            if payload.len() > SHOWN {
                out.extend_from_slice("…".as_bytes());
            }
        }
        out.extend_from_slice(b" (");
        push_plain(reason.to_string().as_bytes(), out);
        out.push(b')');
        self.paint(PLAIN, out);
    }
}

impl Sink for Text {
    fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Option<Undecoded> {
        self.paint(DIM, out);
        let start = out.len();
        self.stamp.push(event.time, out);
        // People read a blank more easily than a T.
        if let Some(t) = out.get_mut(start..).and_then(|s| s.iter_mut().find(|b| **b == b'T')) {
            *t = b' ';
        }
        self.paint(PLAIN, out);
        self.who(event, out);
        let misfit = self.what(event, out);
        out.push(b'\n');
        misfit
    }
}
