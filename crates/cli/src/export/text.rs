//! The text format: one line per event, for people.
//!
//! ```text
//! 2020-07-29 00:07:00.6821234 I [4] 3988/4032 PerfView  PerfView/ManifestData  Format=1 …
//! time (UTC, or --time) level cpu pid/tid   process     provider/event         fields
//!     PerfView.exe+0x1a2b               with --stacks: the call stack, innermost frame first
//!     0x7ff812345678                    an address in no known module
//!     shop!sell+0x2b  /src/sell.c:12    with --symbols, also for code addresses of kernel events
//! ```

use traceweir_decode::Undecoded;
use traceweir_decode::format::{Style, hex_lower, push_decimal, push_escaped_text};
use traceweir_decode::schema::SchemaOrigin;
use traceweir_decode::walk::Walker;
use traceweir_format::header::{Family, Record};
use traceweir_format::kernel::class_name;

use super::fields::TextFields;
use super::{
    EventSink, TimeColumn, describe_undecoded, format_unnamed_event, frames, items, push_hex, push_id,
};
use crate::cli::ShownParts;
use crate::event::DescribedEvent;
use traceweir_decode::expand::MessageExpander;

/// The letters of the levels 0 to 5; level 0 is always enabled.
const LEVEL_LETTERS: [u8; 6] = *b"-CEWIV";
/// The letter of levels that only a provider defines.
const OTHER_LEVEL: u8 = b'+';

const COLOUR_CRITICAL: &[u8] = b"\x1b[1;31m";
const COLOUR_TIME: &[u8] = b"\x1b[2m";
const COLOUR_NAME: &[u8] = b"\x1b[36m";
const COLOUR_ERROR: &[u8] = b"\x1b[31m";
const COLOUR_WARNING: &[u8] = b"\x1b[33m";
const COLOUR_INFORMATION: &[u8] = b"\x1b[32m";
const COLOUR_RESET: &[u8] = b"\x1b[0m";

/// Maximum number of undecoded bytes to show.
const MAX_SHOWN_BYTES: usize = 64;

pub(crate) struct TextSink {
    style: Style,
    is_colourful: bool,
    shows_stacks: bool,
    time_column: TimeColumn,
    walker: Walker,
    messages: MessageExpander,
    message: Vec<u8>,
    /// The last origins of processors; a processor uses the slot `cpu % PROCESSOR_SLOTS`.
    last_origins: Vec<OriginText>,
}

/// The text between time and fields: processor, process, thread, provider and event.
#[derive(Default)]
struct OriginText {
    /// Processor, process and thread.
    writer: (u16, u32, u32),
    /// Length in bytes of the title (provider and event) at the end of the text.
    title_len: usize,
    text: Vec<u8>,
}

impl OriginText {
    fn matches_event(&self, writer: (u16, u32, u32), title: &[u8]) -> bool {
        self.writer == writer && self.title_len == title.len() && self.text.ends_with(title)
    }
}

/// Number of slots in `last_origins`.
const PROCESSOR_SLOTS: usize = 64;

impl TextSink {
    pub(crate) fn new(style: Style, show: ShownParts, is_colourful: bool) -> Self {
        let (walker, messages, message) = (Walker::default(), MessageExpander::default(), Vec::new());
        let (time_column, last_origins) = (TimeColumn::new(show.time), Vec::new());
        let shows_stacks = show.stacks;
        Self { style, is_colourful, shows_stacks, time_column, walker, messages, message, last_origins }
    }

    fn paint(&self, code: &[u8], out: &mut Vec<u8>) {
        if self.is_colourful {
            out.extend_from_slice(code);
        }
    }

    /// Writes the letter of the level; a space for messages and kernel events, which have no level.
    fn write_level(&self, record: &Record<'_>, out: &mut Vec<u8>) {
        out.push(b' ');
        let level = record.descriptor().level;
        let has_level = match record.family() {
            Family::Event => true,
            Family::Full | Family::Instance => level > 0 || class_name(&record.provider()).is_none(),
            _ => false,
        };
        if !has_level {
            return out.push(b' ');
        }
        let letter = LEVEL_LETTERS.get(usize::from(level)).copied().unwrap_or(OTHER_LEVEL);
        let colour = match level {
            1 => COLOUR_CRITICAL,
            2 => COLOUR_ERROR,
            3 => COLOUR_WARNING,
            4 => COLOUR_INFORMATION,
            _ => COLOUR_TIME,
        };
        self.paint(colour, out);
        out.push(letter);
        self.paint(COLOUR_RESET, out);
    }

    /// Writes processor, process, thread, provider and event. Consecutive events of a processor
    /// often have the same origin, so the last text is reused, except with colours, with a process
    /// name, or without a title.
    fn write_origin(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) {
        let (record, actor) = (&event.record, event.actor);
        let (pid, tid) =
            actor.map_or((record.process_id(), record.thread_id()), |actor| (actor.pid, actor.tid));
        let title =
            event.schema_match.as_ref().ok().and_then(|schema_match| schema_match.prepared.title.as_deref());
        let slot = usize::from(record.cpu()) % PROCESSOR_SLOTS;
        let cached = title.filter(|_| event.process.is_none()).zip(self.last_origins.get(slot));
        if let Some((_, last)) =
            cached.filter(|(title, last)| last.matches_event((record.cpu(), pid, tid), title))
        {
            return out.extend_from_slice(&last.text);
        }
        let start = out.len();
        self.write_new_origin(event, (pid, tid), title, out);
        if title.is_some() && event.process.is_none() && !self.is_colourful {
            self.last_origins.resize_with(PROCESSOR_SLOTS, OriginText::default);
            if let (Some(last), Some(origin)) = (self.last_origins.get_mut(slot), out.get(start..)) {
                last.writer = (record.cpu(), pid, tid);
                last.title_len = title.map_or(0, <[u8]>::len);
                last.text.clear();
                last.text.extend_from_slice(origin);
            }
        }
    }

    fn write_new_origin(
        &self,
        event: &DescribedEvent<'_>,
        (pid, tid): (u32, u32),
        title: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(b" [");
        push_decimal(event.record.cpu(), out);
        out.extend_from_slice(b"] ");
        push_id(pid, out);
        out.push(b'/');
        push_id(tid, out);
        if let Some(process) = event.process {
            out.push(b' ');
            push_escaped_text(process.as_bytes(), out);
        }
        out.extend_from_slice(b"  ");
        self.paint(COLOUR_NAME, out);
        match title {
            Some(title) => out.extend_from_slice(title),
            None => write_untitled(event, out),
        }
        self.paint(COLOUR_RESET, out);
    }

    /// Writes the fields of an event, or the message of a WPP event. Returns the reason if the
    /// payload does not fit its schema.
    fn write_payload(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) -> Option<Undecoded> {
        let schema_match = match &event.schema_match {
            Ok(schema_match) => schema_match,
            Err(reason) => {
                self.write_undecoded(reason, event.record.payload(), out);
                return None;
            }
        };
        if schema_match.prepared.schema.origin == SchemaOrigin::Wpp {
            self.message.clear();
            if let Some(walked) =
                self.messages.expand(schema_match, event.record.pointer_size(), self.style, &mut self.message)
            {
                out.push(b' ');
                push_escaped_text(&self.message, out);
                let misfit = walked.err();
                if let Some(reason) = &misfit {
                    self.write_undecoded(reason, schema_match.payload, out);
                }
                return misfit;
            }
        }
        let mut fields = TextFields::new(out, schema_match.prepared, self.style);
        let walked = self.walker.walk(
            &schema_match.prepared.schema,
            schema_match.payload,
            event.record.pointer_size(),
            &mut fields,
        );
        match &walked {
            Ok([]) => {}
            Ok(extra) => {
                out.extend_from_slice(b" +0x");
                push_hex(&extra[..extra.len().min(MAX_SHOWN_BYTES)], out);
            }
            Err(reason) => self.write_undecoded(reason, schema_match.payload, out),
        }
        walked.err()
    }

    fn write_undecoded(&self, reason: &Undecoded, payload: &[u8], out: &mut Vec<u8>) {
        self.paint(COLOUR_WARNING, out);
        if !payload.is_empty() {
            out.extend_from_slice(b" 0x");
            push_hex(&payload[..payload.len().min(MAX_SHOWN_BYTES)], out);
            if payload.len() > MAX_SHOWN_BYTES {
                out.extend_from_slice("…".as_bytes());
            }
        }
        out.extend_from_slice(b" (");
        push_escaped_text(describe_undecoded(reason).as_bytes(), out);
        out.push(b')');
        self.paint(COLOUR_RESET, out);
    }
}

/// Writes provider and event if one of them has no name.
fn write_untitled(event: &DescribedEvent<'_>, out: &mut Vec<u8>) {
    let record = &event.record;
    match event.provider {
        Some(name) => push_escaped_text(name.as_bytes(), out),
        None => out.extend_from_slice(&record.provider().to_ascii()),
    }
    out.push(b'/');
    match event
        .schema_match
        .as_ref()
        .ok()
        .and_then(|schema_match| schema_match.prepared.event_name.as_deref())
    {
        Some(name) => push_escaped_text(name.as_bytes(), out),
        None => out.extend_from_slice(format_unnamed_event(record).as_bytes()),
    }
}

/// Appends the call stack, one frame per line.
fn push_frames(event: &DescribedEvent<'_>, out: &mut Vec<u8>) {
    let record = &event.record;
    let frames = event.frames().into_iter().flatten();
    frames.for_each(|address| push_frame(event, (record.process_id(), record.time()), (address, false), out));
}

/// Appends the lines of a frame in a process at a given time, with module or symbols if known.
/// `is_exact` means that the address is not a return address.
pub(crate) fn push_frame(
    event: &DescribedEvent<'_>,
    (pid, time): (u32, i64),
    (address, is_exact): (u64, bool),
    out: &mut Vec<u8>,
) {
    if event.symbols.is_some() {
        return frames::push_address(event, (pid, time), address, is_exact, out);
    }
    out.extend_from_slice(b"    ");
    let number = match event.images.and_then(|images| images.find_name(pid, address, time)) {
        Some((name, offset)) => {
            push_escaped_text(name.as_bytes(), out);
            out.push(b'+');
            offset
        }
        None => address,
    };
    out.extend_from_slice(b"0x");
    hex_lower(number, out);
    out.push(b'\n');
}

impl EventSink for TextSink {
    fn write_event(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) -> Option<Undecoded> {
        self.paint(COLOUR_TIME, out);
        self.time_column.push_time(event, out);
        self.paint(COLOUR_RESET, out);
        self.write_level(&event.record, out);
        self.write_origin(event, out);
        let misfit = self.write_payload(event, out);
        items::push_text(&event.record, out);
        out.push(b'\n');
        if event.symbols.is_some() {
            frames::push_text(event, &mut self.walker, out);
        } else if self.shows_stacks {
            push_frames(event, out);
        }
        misfit
    }
}
