//! The text format: one line per event, for people.
//!
//! ```text
//! 2020-07-29 00:07:00.6821234 [4] 3988/4032 PerfView  PerfView/ManifestData  Format=1 …
//! time (UTC)                  cpu pid/tid   process   provider/event         fields
//!     PerfView.exe+0x1a2b               with --stacks: the call stack, innermost frame first
//!     0x7ff812345678                    an address in no known module
//!     shop!sell+0x2b  /src/sell.c:12    with --symbols, also for code addresses of kernel events
//! ```

use traceweir_decode::Undecoded;
use traceweir_decode::format::{Style, decimal, hex_lower, push_line};
use traceweir_decode::schema::Origin;
use traceweir_decode::walk::Walker;

use super::fields::TextFields;
use super::{Sink, Stamp, describe_undecoded, frames, items, push_hex, push_id, unnamed_event};
use crate::cli::ShownParts;
use crate::event::Event;
use traceweir_decode::expand::MessageExpander;

const DIM: &[u8] = b"\x1b[2m";
const NAME: &[u8] = b"\x1b[36m";
const BAD: &[u8] = b"\x1b[33m";
const PLAIN: &[u8] = b"\x1b[0m";

/// Maximum number of bytes of an undecoded payload to show.
const SHOWN: usize = 64;

/// Writes events as lines of text.
pub(crate) struct Text {
    style: Style,
    colour: bool,
    stacks: bool,
    stamp: Stamp,
    walker: Walker,
    messages: MessageExpander,
    message: Vec<u8>,
    /// The last words of each processor slot.
    last: Vec<Words>,
}

/// The text between time and fields: processor, process, thread, provider and event.
#[derive(Default)]
struct Words {
    /// Processor, process and thread.
    writer: (u16, u32, u32),
    /// Length of the title at the end of the words, in bytes.
    title: usize,
    words: Vec<u8>,
}

impl Words {
    fn match_event(&self, writer: (u16, u32, u32), title: &[u8]) -> bool {
        self.writer == writer && self.title == title.len() && self.words.ends_with(title)
    }
}

/// Number of slots for the last words of processors.
const SLOTS: usize = 64;

impl Text {
    pub(crate) fn new(style: Style, show: ShownParts, colour: bool) -> Self {
        let (walker, messages, message) = (Walker::default(), MessageExpander::default(), Vec::new());
        let (stacks, stamp, last) = (show.stacks, Stamp::new(b' '), Vec::new());
        Self { style, colour, stacks, stamp, walker, messages, message, last }
    }

    fn paint(&self, code: &[u8], out: &mut Vec<u8>) {
        if self.colour {
            out.extend_from_slice(code);
        }
    }

    /// Writes processor, process, thread, provider and event. Events of one kind often follow each
    /// other, so the last words of a processor can often be reused.
    fn write_origin(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let (record, about) = (&event.record, event.attributed);
        let (pid, tid) = about.map_or((record.process_id(), record.thread_id()), |a| (a.pid, a.tid));
        let title = event.found.as_ref().ok().and_then(|f| f.prepared.title.as_deref());
        let slot = usize::from(record.cpu()) % SLOTS;
        let kept = title.filter(|_| event.process.is_none()).zip(self.last.get(slot));
        if let Some((_, last)) =
            kept.filter(|(title, last)| last.match_event((record.cpu(), pid, tid), title))
        {
            return out.extend_from_slice(&last.words);
        }
        let start = out.len();
        self.write_words(event, (pid, tid), title, out);
        if title.is_some() && event.process.is_none() && !self.colour {
            self.last.resize_with(SLOTS, Words::default);
            if let (Some(last), Some(words)) = (self.last.get_mut(slot), out.get(start..)) {
                last.writer = (record.cpu(), pid, tid);
                last.title = title.map_or(0, <[u8]>::len);
                last.words.clear();
                last.words.extend_from_slice(words);
            }
        }
    }

    fn write_words(
        &self,
        event: &Event<'_>,
        (pid, tid): (u32, u32),
        title: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) {
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

    /// Writes the fields or the message of the event.
    fn write_payload(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Option<Undecoded> {
        let found = match &event.found {
            Ok(found) => found,
            Err(reason) => {
                self.write_undecoded(reason, event.record.payload(), out);
                return None;
            }
        };
        if found.prepared.schema.origin == Origin::Wpp {
            self.message.clear();
            if let Some(walked) =
                self.messages.expand(found, event.record.pointer_size(), self.style, &mut self.message)
            {
                out.push(b' ');
                push_line(&self.message, out);
                let misfit = walked.err();
                if let Some(reason) = &misfit {
                    self.write_undecoded(reason, found.payload, out);
                }
                return misfit;
            }
        }
        let mut fields = TextFields::new(out, found.prepared, self.style);
        let rest =
            self.walker.walk(&found.prepared.schema, found.payload, event.record.pointer_size(), &mut fields);
        match &rest {
            Ok([]) => {}
            Ok(extra) => {
                out.extend_from_slice(b" +0x");
                push_hex(&extra[..extra.len().min(SHOWN)], out);
            }
            Err(reason) => self.write_undecoded(reason, found.payload, out),
        }
        rest.err()
    }

    fn write_undecoded(&self, reason: &Undecoded, payload: &[u8], out: &mut Vec<u8>) {
        self.paint(BAD, out);
        if !payload.is_empty() {
            out.extend_from_slice(b" 0x");
            push_hex(&payload[..payload.len().min(SHOWN)], out);
            if payload.len() > SHOWN {
                out.extend_from_slice("…".as_bytes());
            }
        }
        out.extend_from_slice(b" (");
        push_line(describe_undecoded(reason).as_bytes(), out);
        out.push(b')');
        self.paint(PLAIN, out);
    }
}

/// Writes provider and event where one of them has no name.
fn untitled(event: &Event<'_>, out: &mut Vec<u8>) {
    let record = &event.record;
    match event.provider {
        Some(name) => push_line(name.as_bytes(), out),
        None => out.extend_from_slice(&record.provider().to_ascii()),
    }
    out.push(b'/');
    match event.found.as_ref().ok().and_then(|f| f.prepared.event_name.as_deref()) {
        Some(name) => push_line(name.as_bytes(), out),
        None => out.extend_from_slice(unnamed_event(record).as_bytes()),
    }
}

/// Appends the call stack, one frame per line.
fn push_frames(event: &Event<'_>, out: &mut Vec<u8>) {
    let record = &event.record;
    let frames = event.frames().into_iter().flatten();
    frames.for_each(|address| push_frame(event, (record.process_id(), record.time()), (address, false), out));
}

/// Appends the lines of one frame of a process at a time, with module or symbols if known.
/// `is_exact` if the address is not a return address.
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
        self.write_origin(event, out);
        let misfit = self.write_payload(event, out);
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
