//! The JSON format: one object per line.

use traceweir_analysis::event::DescribedEvent;
use traceweir_decode::Undecoded;
use traceweir_decode::format::{Style, hex_lower, push_decimal, push_json_string};
use traceweir_decode::source::prepared::SchemaId;
use traceweir_decode::walk::Walker;
use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;

use super::fields::JsonFields;
use super::time_text::push_milliseconds;
use super::{EventSink, TimeFormatter, describe_undecoded, frames, items, push_hex, push_id};
use traceweir_decode::expand::MessageExpander;

pub(super) struct JsonSink {
    style: Style,
    time_formatter: TimeFormatter,
    walker: Walker,
    expander: MessageExpander,
    message_buffer: Vec<u8>,
    recent_identities: Vec<IdentityText>,
}

/// The schema, provider and descriptor of an event, and the members of its object that show them.
#[derive(Default)]
struct IdentityText {
    /// `None` in an unused slot.
    key: Option<(SchemaId, Guid, EventDescriptor)>,
    text: Vec<u8>,
}

/// Number of slots in `recent_identities`.
const IDENTITY_SLOTS: usize = 64;

impl JsonSink {
    pub(super) fn new(style: Style) -> Self {
        let mut recent_identities = Vec::new();
        recent_identities.resize_with(IDENTITY_SLOTS, IdentityText::default);
        Self {
            style,
            time_formatter: TimeFormatter::new(b'T'),
            walker: Walker::default(),
            expander: MessageExpander::default(),
            message_buffer: Vec::new(),
            recent_identities,
        }
    }

    fn write_header(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) {
        let record = &event.record;
        out.extend_from_slice(b"{\"time\":\"");
        self.time_formatter.push_time(event.time, out);
        out.extend_from_slice(b"Z\",\"ms\":");
        push_milliseconds(event.ns_since_start(), out);
        self.write_identity(event, out);
        out.extend_from_slice(b",\"pid\":");
        push_id(record.process_id(), out);
        out.extend_from_slice(b",\"tid\":");
        push_id(record.thread_id(), out);
        out.extend_from_slice(b",\"cpu\":");
        push_decimal(record.cpu(), out);
        out.extend_from_slice(b",\"len\":");
        push_decimal(record.payload().len(), out);
    }

    /// Writes the members from `provider` to `keywords`. They are the same for most events of a
    /// schema, so recent texts are reused.
    fn write_identity(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) {
        let (guid, descriptor) = (event.record.provider(), event.record.descriptor());
        // Without a schema that names it, the name of a provider may change when the decoder
        // learns one.
        let prepared = event.schema_match.as_ref().ok().map(|schema_match| schema_match.prepared);
        let Some(prepared) = prepared.filter(|prepared| prepared.schema.names.provider.is_some()) else {
            return push_identity(event, guid, descriptor, out);
        };
        let slot = (guid.data1 ^ u32::from(descriptor.id) ^ u32::from(descriptor.opcode)) as usize;
        let Some(recent) = self.recent_identities.get_mut(slot % IDENTITY_SLOTS) else { return };
        let key = (prepared.id(), guid, descriptor);
        if recent.key != Some(key) {
            recent.key = Some(key);
            recent.text.clear();
            push_identity(event, guid, descriptor, &mut recent.text);
        }
        out.extend_from_slice(&recent.text);
    }

    /// Returns the error if the payload does not fit its schema. An event without a schema is no
    /// such error: the result is `None`.
    fn write_fields(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) -> Option<Undecoded> {
        out.extend_from_slice(b",\"fields\":{");
        let schema_match = match &event.schema_match {
            Ok(schema_match) => schema_match,
            Err(reason) => {
                out.push(b'}');
                push_undecoded(&describe_undecoded(reason), event.record.payload(), out);
                return None;
            }
        };
        let mut fields = JsonFields::new(out, schema_match.prepared, self.style);
        let walked = self.walker.walk(
            &schema_match.prepared.schema,
            schema_match.payload,
            event.record.pointer_size(),
            &mut fields,
        );
        out.push(b'}');
        match &walked {
            Ok([]) => {}
            Ok(extra) => {
                out.extend_from_slice(b",\"extra\":\"");
                push_hex(extra, out);
                out.push(b'"');
            }
            Err(reason) => push_undecoded(&describe_undecoded(reason), schema_match.payload, out),
        }
        self.message_buffer.clear();
        if self
            .expander
            .expand(schema_match, event.record.pointer_size(), self.style, &mut self.message_buffer)
            .is_some()
        {
            out.extend_from_slice(b",\"message\":");
            push_json_string(&String::from_utf8_lossy(&self.message_buffer), out);
        }
        walked.err()
    }
}

fn push_identity(event: &DescribedEvent<'_>, guid: Guid, descriptor: EventDescriptor, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"provider\":");
    push_name(event.provider, out);
    out.extend_from_slice(b",\"guid\":\"");
    out.extend_from_slice(&guid.to_ascii());
    out.extend_from_slice(b"\",\"event\":");
    push_name(
        event.schema_match.as_ref().ok().and_then(|schema_match| schema_match.prepared.event_name.as_deref()),
        out,
    );
    for (key, number) in [
        (&b",\"id\":"[..], descriptor.id),
        (b",\"version\":", u16::from(descriptor.version)),
        (b",\"level\":", u16::from(descriptor.level)),
        (b",\"opcode\":", u16::from(descriptor.opcode)),
        (b",\"task\":", descriptor.task),
    ] {
        out.extend_from_slice(key);
        push_decimal(number, out);
    }
    out.extend_from_slice(b",\"keywords\":\"0x");
    hex_lower(descriptor.keyword, out);
    out.push(b'"');
}

fn push_name(name: Option<&str>, out: &mut Vec<u8>) {
    match name {
        Some(name) => push_json_string(name, out),
        None => out.extend_from_slice(b"null"),
    }
}

fn push_undecoded(reason: &str, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"raw\":\"");
    push_hex(payload, out);
    out.extend_from_slice(b"\",\"undecoded\":");
    push_json_string(reason, out);
}

fn push_guid(key: &[u8], guid: Option<Guid>, out: &mut Vec<u8>) {
    if let Some(guid) = guid {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(key);
        out.extend_from_slice(b"\":\"");
        out.extend_from_slice(&guid.to_ascii());
        out.push(b'"');
    }
}

fn push_stack(event: &DescribedEvent<'_>, out: &mut Vec<u8>) {
    let Some(frames) = event.frames() else { return };
    out.extend_from_slice(b",\"stack\":[");
    for frame in frames {
        if !out.ends_with(b"[") {
            out.push(b',');
        }
        out.extend_from_slice(b"\"0x");
        hex_lower(frame, out);
        out.push(b'"');
    }
    out.push(b']');
}

impl EventSink for JsonSink {
    fn write_event(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) -> Option<Undecoded> {
        self.write_header(event, out);
        if let Some(actor) = event.actor {
            out.extend_from_slice(b",\"attributed\":{\"pid\":");
            push_id(actor.pid, out);
            out.extend_from_slice(b",\"tid\":");
            push_id(actor.tid, out);
            out.push(b'}');
        }
        if let Some(process) = event.process {
            out.extend_from_slice(b",\"process\":");
            push_json_string(process, out);
        }
        push_guid(b"activity", event.record.activity(), out);
        push_guid(b"related", event.record.items().related_activity(), out);
        items::push_json(&event.record, out);
        if event.symbols.is_some() {
            frames::push_json(event, &mut self.walker, out);
        } else {
            push_stack(event, out);
        }
        let error = self.write_fields(event, out);
        out.extend_from_slice(b"}\n");
        error
    }
}
