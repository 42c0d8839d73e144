//! One line an event, for people.
//!
//! ```text
//! 2020-07-29 00:07:00.6821234 [4] 3988/4032 PerfView  PerfView/ManifestData  Format=1 MajorVersion=1 …
//! time (UTC)                  cpu pid/tid   process   provider/event         fields
//!     PerfView.exe+0x1a2b                             with --stacks: where it was called, innermost frame first
//!     0x7ff812345678                                  in what the trace does not tell of
//!     shop!sell+0x2b  /src/sell.c:12                  with --symbols, also for code addresses of kernel events
//! ```

use traceweir_decode::Undecoded;
use traceweir_decode::format::{Style, decimal, hex_lower, push_line};
use traceweir_decode::schema::Origin;
use traceweir_decode::walk::Walker;

use super::fields::TextFields;
use super::{Sink, Stamp, frames, items, push_hex, push_id, unnamed_event};
use crate::cli::Show;
use crate::event::Event;
use traceweir_decode::message::Messages;

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
    stacks: bool,
    stamp: Stamp,
    walker: Walker,
    messages: Messages,
    message: Vec<u8>,
    /// The last words of some processors.
    last: Vec<Words>,
}

/// What stands between time and fields: processor, process, thread, provider and event.
#[derive(Default)]
struct Words {
    /// Processor, process and thread.
    who: (u16, u32, u32),
    /// Bytes of the title at the end of the words.
    title: usize,
    words: Vec<u8>,
}

impl Words {
    fn are(&self, who: (u16, u32, u32), title: &[u8]) -> bool {
        self.who == who && self.title == title.len() && self.words.ends_with(title)
    }
}

/// Processors whose last words are kept.
const SLOTS: usize = 64;

impl Text {
    pub(crate) fn new(style: Style, show: Show, colour: bool) -> Self {
        let (walker, messages, message) = (Walker::default(), Messages::default(), Vec::new());
        let (stacks, stamp, last) = (show.stacks, Stamp::new(b' '), Vec::new());
        Self { style, colour, stacks, stamp, walker, messages, message, last }
    }

    fn paint(&self, code: &[u8], out: &mut Vec<u8>) {
        if self.colour {
            out.extend_from_slice(code);
        }
    }

    /// Who did what. Events of one kind follow each other, so the last words for a processor often serve again.
    fn who(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let (record, about) = (&event.record, event.attributed);
        let (pid, tid) = about.map_or((record.process_id(), record.thread_id()), |a| (a.pid, a.tid));
        let title = event.found.as_ref().ok().and_then(|f| f.known.title.as_deref());
        let slot = usize::from(record.cpu()) % SLOTS;
        let kept = title.filter(|_| event.process.is_none()).zip(self.last.get(slot));
        if let Some((_, last)) = kept.filter(|(title, last)| last.are((record.cpu(), pid, tid), title)) {
            return out.extend_from_slice(&last.words);
        }
        let start = out.len();
        self.words(event, (pid, tid), title, out);
        if title.is_some() && event.process.is_none() && !self.colour {
            self.last.resize_with(SLOTS, Words::default);
            if let (Some(last), Some(words)) = (self.last.get_mut(slot), out.get(start..)) {
                last.who = (record.cpu(), pid, tid);
                last.title = title.map_or(0, <[u8]>::len);
                last.words.clear();
                last.words.extend_from_slice(words);
            }
        }
    }

    fn words(&self, event: &Event<'_>, (pid, tid): (u32, u32), title: Option<&[u8]>, out: &mut Vec<u8>) {
        out.extend_from_slice(b" [");
        decimal(event.record.cpu(), out);
        out.extend_from_slice(b"] ");
        push_id(pid, out);
        out.push(b'/');
        push_id(tid, out);
        if let Some(process) = event.process {
            out.push(b' ');
            push_line(process.as_bytes(), out);
        }
        out.extend_from_slice(b"  ");
        self.paint(NAME, out);
        match title {
            Some(title) => out.extend_from_slice(title),
            None => untitled(event, out),
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
            if let Some(walked) =
                self.messages.expand(found, event.record.pointer_size(), self.style, &mut self.message)
            {
                out.push(b' ');
                push_line(&self.message, out);
                let misfit = walked.err();
                if let Some(reason) = &misfit {
                    self.undecoded(reason, found.payload, out);
                }
                return misfit;
            }
        }
        let mut fields = TextFields::new(out, found.known, self.style);
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
        push_line(reason.to_string().as_bytes(), out);
        out.push(b')');
        self.paint(PLAIN, out);
    }
}

/// Provider and event, where not both have a name of their own.
fn untitled(event: &Event<'_>, out: &mut Vec<u8>) {
    let record = &event.record;
    match event.provider {
        Some(name) => push_line(name.as_bytes(), out),
        None => out.extend_from_slice(&record.provider().to_ascii()),
    }
    out.push(b'/');
    match event.found.as_ref().ok().and_then(|f| f.known.event_name.as_deref()) {
        Some(name) => push_line(name.as_bytes(), out),
        None => out.extend_from_slice(unnamed_event(record).as_bytes()),
    }
}

/// The call stack, one frame a line.
fn push_frames(event: &Event<'_>, out: &mut Vec<u8>) {
    let record = &event.record;
    let frames = event.frames().into_iter().flatten();
    frames.for_each(|address| push_frame(event, (record.process_id(), record.time()), (address, false), out));
}

/// The lines of one frame of a process at a time, by what the trace of an event tells; `is_exact` where the address is not one to return to.
pub(crate) fn push_frame(
    event: &Event<'_>,
    (pid, time): (u32, i64),
    (address, is_exact): (u64, bool),
    out: &mut Vec<u8>,
) {
    if event.symbols.is_some() {
        return frames::push_address(event, (pid, time), address, is_exact, out);
    }
    out.extend_from_slice(b"    ");
    let number = match event.images.and_then(|images| images.locate(pid, address, time)) {
        Some((name, offset)) => {
            push_line(name.as_bytes(), out);
            out.push(b'+');
            offset
        }
        None => address,
    };
    out.extend_from_slice(b"0x");
    hex_lower(number, out);
    out.push(b'\n');
}

impl Sink for Text {
    fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Option<Undecoded> {
        self.paint(DIM, out);
        self.stamp.push(event.time, out);
        self.paint(PLAIN, out);
        self.who(event, out);
        let misfit = self.what(event, out);
        items::push_text(&event.record, out);
        out.push(b'\n');
        if event.symbols.is_some() {
            frames::push_text(event, &mut self.walker, out);
        } else if self.stacks {
            push_frames(event, out);
        }
        misfit
    }
}
