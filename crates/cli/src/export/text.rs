//! The text format: one line per event, for people.
//!
//! ```text
//! 2020-07-29 00:07:00.6821234 I [4] 3988/4032 PerfView  PerfView/ManifestData  Format=1 …
//! time (UTC, or --time) level cpu pid/tid   process     provider/event         fields
//!     PerfView.exe+0x1a2b               with --stacks: the call stack, innermost frame first
//!     0x7ff812345678                    an address in no known module
//!     shop!sell+0x2b  /src/sell.c:12    with --symbols, also for code addresses of kernel events
//! ```

use traceweir_analysis::event::DescribedEvent;
use traceweir_decode::Undecoded;
use traceweir_decode::format::{PaddedText, Style, hex_lower, push_decimal, push_escaped_text};
use traceweir_decode::schema::SchemaOrigin;
use traceweir_decode::walk::Walker;
use traceweir_format::header::{Family, Record};
use traceweir_format::kernel::class_name;

use super::fields::TextFields;
use super::{
    EventSink, TimeColumn, describe_undecoded, format_unnamed_event, frames, items, push_hex, push_id,
};
use crate::cli::ShownParts;
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
    /// Memory for [`TextFields`].
    scratch: Vec<u8>,
    /// The texts of recent writers.
    recent_writers: Vec<Option<WriterText>>,
}

/// The processor, process and thread of an event, and the text that shows them.
struct WriterText {
    cpu: u16,
    pid: u32,
    tid: u32,
    process: Option<Vec<u8>>,
    text: PaddedText,
}

/// Number of slots in `recent_writers`.
const WRITER_SLOTS: usize = 128;

impl TextSink {
    pub(crate) fn new(style: Style, show: ShownParts, is_colourful: bool) -> Self {
        let mut recent_writers = Vec::new();
        recent_writers.resize_with(WRITER_SLOTS, || None);
        Self {
            style,
            is_colourful,
            shows_stacks: show.stacks,
            time_column: TimeColumn::new(show.time),
            walker: Walker::default(),
            messages: MessageExpander::default(),
            message: Vec::new(),
            scratch: Vec::new(),
            recent_writers,
        }
    }

    fn paint(&self, code: &[u8], out: &mut Vec<u8>) {
        if self.is_colourful {
            out.extend_from_slice(code);
        }
    }

    /// Writes the letter of the level; a space for messages and kernel events, which have no level.
    fn write_level(&self, record: &Record<'_>, out: &mut Vec<u8>) {
        let level = record.descriptor().level;
        let has_level = match record.family() {
            Family::Event => true,
            Family::Full | Family::Instance => level > 0 || class_name(&record.provider()).is_none(),
            _ => false,
        };
        if !has_level {
            return out.extend_from_slice(b"  ");
        }
        let letter = LEVEL_LETTERS.get(usize::from(level)).copied().unwrap_or(OTHER_LEVEL);
        if !self.is_colourful {
            return out.extend_from_slice(&[b' ', letter]);
        }
        out.push(b' ');
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

    /// Writes processor, process, thread, provider and event.
    fn write_origin(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) {
        self.write_writer(event, out);
        self.paint(COLOUR_NAME, out);
        let title =
            event.schema_match.as_ref().ok().and_then(|schema_match| schema_match.prepared.title.as_ref());
        match title {
            Some(title) => title.push(out),
            None => write_untitled(event, out),
        }
        self.paint(COLOUR_RESET, out);
    }

    /// Writes processor, process and thread. Many events in a row have the same, so recent texts
    /// are reused.
    fn write_writer(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) {
        let (record, process) = (&event.record, event.process.map(str::as_bytes));
        let cpu = record.cpu();
        let (pid, tid) = event.concerned_ids();
        let slot = (usize::from(cpu).wrapping_mul(31) ^ tid as usize) % WRITER_SLOTS;
        let Some(recent) = self.recent_writers.get_mut(slot) else { return };
        let is_same = |recent: &&WriterText| {
            (recent.cpu, recent.pid, recent.tid) == (cpu, pid, tid) && recent.process.as_deref() == process
        };
        if let Some(recent) = recent.as_ref().filter(is_same) {
            return recent.text.push(out);
        }
        let start = out.len();
        push_writer(cpu, (pid, tid), process, out);
        let text = PaddedText::new(&out[start..]);
        *recent = Some(WriterText { cpu, pid, tid, process: process.map(<[u8]>::to_vec), text });
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
        let mut fields = TextFields::new(out, schema_match.prepared, self.style, &mut self.scratch);
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

/// Appends processor, process and thread, with blanks around them.
fn push_writer(cpu: u16, (pid, tid): (u32, u32), process: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(b" [");
    push_decimal(cpu, out);
    out.extend_from_slice(b"] ");
    push_id(pid, out);
    out.push(b'/');
    push_id(tid, out);
    if let Some(process) = process {
        out.push(b' ');
        push_escaped_text(process, out);
    }
    out.extend_from_slice(b"  ");
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
        if event.may_have_items {
            items::push_text(&event.record, out);
        }
        out.push(b'\n');
        if event.symbols.is_some() {
            frames::push_text(event, &mut self.walker, out);
        } else if self.shows_stacks {
            push_frames(event, out);
        }
        misfit
    }
}
