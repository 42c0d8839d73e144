//! Common Trace Format 1.8: a folder that babeltrace2 and Trace Compass open.
//!
//! ```text
//!   OUT/metadata    TSDL text: the clock, the stream, one event class per event type
//!   OUT/stream_N    packets of the events of one trace and processor, in time order
//!
//!   event ──▶ layout: the types of its fields ──▶ encode: its bytes ──▶ streams: packets
//!                 └──▶ metadata: its class, by text
//! ```
//!
//! F1  The metadata is written last, because the schema of an event type may come late in a trace. An
//!     event type gets the number of its class when its first event is written.
//!
//! F2  The bytes of an event fit the text of its class. A payload that ends early, that has more bytes
//!     than its schema, or that has other empty texts, has a class of its own. A payload that does not
//!     fit its schema, or that has none, is written as bytes.
//!
//! F3  Timestamps in a stream never decrease. An event that is earlier than those before it in its
//!     stream goes to another stream of the same processor.
//!
//! F4  All tables have limits. Event types beyond the limit share class 0.
//!
//! Source: the specification of CTF 1.8.3, <https://diamon.org/ctf/v1.8.3/>.

mod classes;
mod encode;
mod layout;
mod streams;
mod tsdl;

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use traceweir_analysis::event::{DescribedEvent, ReadFlow, describes_file};
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::selection::EventSelection;
use traceweir_analysis::text::{escape_path, format_count};
use traceweir_analysis::traces::TraceSet;
use traceweir_analysis::undecoded::MissingSchemas;
use traceweir_decode::expand::MessageExpander;
use traceweir_decode::format::Style;
use traceweir_decode::walk::Walker;
use traceweir_format::header::NO_ID;
use traceweir_format::time::FileTime;

use self::classes::{ClassTable, PayloadShape, UndecodedEvent};
use self::encode::{PayloadEncoder, push_bytes, push_text_field};
use self::streams::{PacketEvent, StreamSet};
use self::tsdl::TraceDescription;
use crate::{Conversion, ConvertInput};

/// Name of the file that describes the streams.
const METADATA_FILE: &str = "metadata";
/// Beginning of the names of the stream files.
const STREAM_PREFIX: &str = "stream_";

/// Returns whether a trace in this format has a file of this name.
pub fn has_file(name: &str) -> bool {
    let number = name.strip_prefix(STREAM_PREFIX);
    name == METADATA_FILE
        || number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The bit of an empty message in [`PayloadShape::empty_texts`].
const MESSAGE_BIT: u32 = 63;
/// The text of the context where there is none. It is not empty, because babeltrace2 2.0.4 shows an
/// empty text as that of an earlier event.
const NO_TEXT: &[u8] = b"-";

/// The largest number of frames of a stack that is written.
const MAX_FRAMES: usize = u16::MAX as usize;

/// Writes the events of traces into an empty folder.
pub fn convert(input: &ConvertInput, folder: &Path) -> Result<Conversion> {
    let mut traces = TraceSet::open(&input.files, &input.schemas, input.observer.clone())?;
    traces.choose_threads(None);
    let filter = EventFilter::new(&input.criteria, traces.start());
    let mut selection = EventSelection::new(&filter);
    let description = TraceDescription::new(&traces);
    let mut writer = TraceWriter::new(folder, traces.start(), &description);
    let mut events = 0_u64;
    let reading = traces.read(
        |record, time| filter.accepts_header(record, time),
        |event| {
            if !selection.accepts(event) {
                return Ok(ReadFlow::Continue);
            }
            writer.write_event(event)?;
            events = events.saturating_add(u64::from(!describes_file(&event.record)));
            Ok(selection.count(event))
        },
    )?;
    let losses = traces.inputs.iter().map(|input| u64::from(input.trace.header().events_lost));
    let notes = writer.finish(folder, &description, losses)?;
    Ok(Conversion { events, written: events, written_noun: "event", notes, reading })
}

/// Writes events to streams and collects their classes.
struct TraceWriter {
    classes: ClassTable,
    streams: StreamSet,
    walker: Walker,
    expander: MessageExpander,
    /// Wall time of the first trace's start, in nanoseconds since 1970.
    start_ns: i64,
    undecoded: u64,
    missing: MissingSchemas,
    payload: Vec<u8>,
    message: Vec<u8>,
    bytes: Vec<u8>,
}

impl TraceWriter {
    fn new(folder: &Path, start: FileTime, description: &TraceDescription) -> Self {
        Self {
            classes: ClassTable::default(),
            streams: StreamSet::new(folder, description.uuid),
            walker: Walker::default(),
            expander: MessageExpander::default(),
            start_ns: i64::try_from(start.unix_ns()).unwrap_or_default(),
            undecoded: 0,
            missing: MissingSchemas::default(),
            payload: Vec::new(),
            message: Vec::new(),
            bytes: Vec::new(),
        }
    }

    fn write_event(&mut self, event: &DescribedEvent<'_>) -> Result<()> {
        let class = match self.encode_fields(event) {
            Ok(class) => class,
            Err(reason) => self.encode_undecoded(event, &reason),
        };
        self.encode_context(event);
        self.bytes.extend_from_slice(&self.payload);
        let time = self.start_ns.saturating_add(event.ns_since_start());
        self.streams.add_event(PacketEvent {
            file: event.file,
            cpu: event.record.cpu(),
            // Readers convert times to signed nanoseconds.
            time: u64::try_from(time).unwrap_or(0),
            class,
            bytes: &self.bytes,
        })
    }

    /// Encodes the fields of an event and returns its class, or the reason why it has none.
    fn encode_fields(&mut self, event: &DescribedEvent<'_>) -> Result<u32, String> {
        let schema_match = event.schema_match.as_ref().map_err(ToString::to_string)?;
        let prepared = schema_match.prepared;
        let layout = self.classes.layout(prepared);
        self.payload.clear();
        let mut encoder = PayloadEncoder::new(&layout, &mut self.payload);
        let pointer_size = event.record.pointer_size();
        let walked = self.walker.walk(&prepared.schema, schema_match.payload, pointer_size, &mut encoder);
        let present = encoder.finish();
        let extra = walked.map_err(|reason| reason.to_string())?;
        let (present, mut empty_texts) = present.ok_or("a value of another type than its field")?;
        if !extra.is_empty() {
            push_bytes(extra, &mut self.payload);
        }
        if prepared.message.is_some() {
            self.message.clear();
            let style = Style::default();
            let expanded = self.expander.expand(schema_match, pointer_size, style, &mut self.message);
            let message = if expanded.is_some() { &*self.message } else { &[][..] };
            push_text_field(message, &mut self.payload);
            empty_texts |= u64::from(message.is_empty()) << MESSAGE_BIT;
        }
        let shape = PayloadShape { present, has_extra: !extra.is_empty(), empty_texts };
        let class = self.classes.find_typed(event, prepared, shape).ok_or("too many event types")?;
        Ok(class)
    }

    /// Encodes the payload of an event as bytes, and returns its class.
    fn encode_undecoded(&mut self, event: &DescribedEvent<'_>, reason: &str) -> u32 {
        self.undecoded = self.undecoded.saturating_add(1);
        if let Err(reason) = &event.schema_match {
            self.missing.add(event, reason);
        }
        self.payload.clear();
        let undecoded = UndecodedEvent::new(event);
        let class = self.classes.find_undecoded(&undecoded);
        if class == ClassTable::SHARED {
            push_text_field(undecoded.name.as_bytes(), &mut self.payload);
        }
        push_text_field(reason.as_bytes(), &mut self.payload);
        push_bytes(event.record.payload(), &mut self.payload);
        class
    }

    /// Encodes what all events have besides their fields; [`tsdl`] describes it.
    fn encode_context(&mut self, event: &DescribedEvent<'_>) {
        let record = &event.record;
        let (pid, tid) = event.concerned_ids();
        let descriptor = record.descriptor();
        let provider = self.classes.provider_number(record.provider());
        let out = &mut self.bytes;
        out.clear();
        for id in [pid, tid] {
            let id = if id == NO_ID { -1 } else { i64::from(id) };
            out.extend_from_slice(&id.to_le_bytes());
        }
        out.extend_from_slice(&record.cpu().to_le_bytes());
        let process = event.process.filter(|process| !process.is_empty());
        push_text_field(process.map_or(NO_TEXT, str::as_bytes), out);
        out.extend_from_slice(&provider.to_le_bytes());
        if provider == ClassTable::UNLISTED_PROVIDER {
            push_text_field(&record.provider().to_ascii(), out);
        } else {
            push_text_field(NO_TEXT, out);
        }
        out.extend_from_slice(&descriptor.id.to_le_bytes());
        out.extend_from_slice(&[descriptor.version, descriptor.level, descriptor.opcode]);
        out.extend_from_slice(&descriptor.task.to_le_bytes());
        out.extend_from_slice(&descriptor.keyword.to_le_bytes());
        let related = if event.may_have_items { record.items().related_activity() } else { None };
        for activity in [record.activity(), related] {
            let text = activity.map(|activity| activity.to_ascii());
            push_text_field(text.as_ref().map_or(NO_TEXT, |text| &text[..]), out);
        }
        let count_at = out.len();
        out.extend_from_slice(&[0; 2]);
        let mut frames = 0_u16;
        for frame in event.frames().into_iter().flatten().take(MAX_FRAMES) {
            out.extend_from_slice(&frame.to_le_bytes());
            frames = frames.saturating_add(1);
        }
        if let Some(count) = out.get_mut(count_at..count_at.saturating_add(2)) {
            count.copy_from_slice(&frames.to_le_bytes());
        }
    }

    /// Writes the rest of the streams and the metadata, and returns notes on what the output lacks.
    fn finish(
        self,
        folder: &Path,
        description: &TraceDescription,
        losses: impl Iterator<Item = u64>,
    ) -> Result<Vec<String>> {
        let moved = self.streams.finish(losses)?;
        let path = folder.join(METADATA_FILE);
        let start = description.format(&self.classes.list_providers());
        let parts = [start.as_bytes(), self.classes.declarations().as_bytes()];
        File::create_new(&path)
            .and_then(|mut file| parts.into_iter().try_for_each(|part| file.write_all(part)))
            .with_context(|| format!("cannot write {}", escape_path(&path)))?;
        let mut notes = Vec::new();
        if self.undecoded > 0 {
            let events = format_count(self.undecoded, "event");
            notes.push(format!("without fields: {events} that could not be decoded; the payload is bytes"));
            notes.extend(self.missing.describe());
        }
        if moved > 0 {
            let events = format_count(moved, "event");
            notes.push(format!("{events} far out of time order got the time of the event before"));
        }
        if self.classes.is_full() {
            notes.push("too many event types; the others have no fields, but their payload".to_owned());
        }
        Ok(notes)
    }
}

#[cfg(test)]
mod tests;
