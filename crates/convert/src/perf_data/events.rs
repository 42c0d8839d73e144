//! Writes tracepoints as events that describe themselves.
//!
//! ```text
//!   sched:sched_stat_runtime   provider "sched", GUID as the hash of that name
//!                              event "sched_stat_runtime", one field for each field of the format
//!
//!   tracepoint   number       pointer     char[]      numbers    other
//!   field        number       hex 64      UTF-8 text  array      bytes
//! ```

use std::collections::HashMap;

use traceweir_format::Guid;
use traceweir_format::etl::WriteAt;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor, ExtType};
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};
use traceweir_format::wire::Put;

use super::output::{Moment, TaskIds, TraceOutput};
use super::record::until_nul;
use super::stacks::CallStack;
use super::tracepoint::{FieldType, Tracepoint};

const LEVEL_INFORMATION: u8 = 4;

// Types of TraceLogging. Source: Documented ("TraceLoggingProvider.h").
const IN_ANSI_STRING: u8 = 2;
const IN_BINARY: u8 = 14;
const IN_HEX64: u8 = 21;
const OUT_UTF8: u8 = 35;

/// Number types by size in bytes: signed, unsigned.
const fn number_type(bytes: u8, is_signed: bool) -> u8 {
    match (bytes, is_signed) {
        (1, true) => 3,
        (1, false) => 4,
        (2, true) => 5,
        (2, false) => 6,
        (4, true) => 7,
        (4, false) => 8,
        (_, true) => 9,
        (_, false) => 10,
    }
}

/// What all events of one tracepoint share.
struct EventTemplate {
    provider: Guid,
    traits: Vec<u8>,
    metadata: Vec<u8>,
}

impl EventTemplate {
    /// Builds the description of a tracepoint; `None` if it is too large.
    fn new(format: &Tracepoint) -> Option<Self> {
        let mut builder = MetadataBuilder::new(&format.name, 0);
        for field in &format.fields {
            let name = field.name.as_str();
            match field.ty {
                FieldType::Number { bytes, is_signed } => {
                    builder.add_field(name, number_type(bytes, is_signed), 0, 0)
                }
                FieldType::Address => builder.add_field(name, IN_HEX64, 0, 0),
                FieldType::Text => builder.add_field(name, IN_ANSI_STRING, OUT_UTF8, 0),
                FieldType::Numbers { bytes, is_signed, count } => {
                    builder.add_fixed_array(name, number_type(bytes, is_signed), 0, 0, count)
                }
                FieldType::Bytes => builder.add_field(name, IN_BINARY, 0, 0),
            };
        }
        Some(Self {
            provider: Guid::from_provider_name(&format.system),
            traits: TraitsBuilder::new(&format.system).finish().ok()?.to_vec(),
            metadata: builder.finish().ok()?.to_vec(),
        })
    }
}

/// Appends the payload of an event. Each value has exactly the size that its type demands, whatever
/// the data of the sample holds.
fn put_payload(format: &Tracepoint, data: &[u8], out: &mut Vec<u8>) {
    let put_padded = |bytes: &[u8], size: usize, out: &mut Vec<u8>| {
        let bytes = bytes.get(..size).unwrap_or(bytes);
        let end = out.len().saturating_add(size);
        out.put(bytes).resize(end, 0);
    };
    for field in &format.fields {
        let value = field.value(data);
        match field.ty {
            FieldType::Number { bytes, .. } => put_padded(value, bytes.into(), out),
            FieldType::Address => put_padded(value, 8, out),
            FieldType::Text => {
                out.put(until_nul(value)).put_u8(0);
            }
            FieldType::Numbers { bytes, count, .. } => {
                put_padded(value, usize::from(bytes).saturating_mul(count.into()), out);
            }
            FieldType::Bytes => {
                let value = value.get(..usize::from(u16::MAX)).unwrap_or(value);
                out.put_u16(u16::try_from(value.len()).unwrap_or(0)).put(value);
            }
        }
    }
}

/// Writes tracepoints.
#[derive(Default)]
pub(super) struct TracepointEvents {
    /// Templates by the id of the tracepoint; `None` for tracepoints that cannot be described.
    templates: HashMap<u64, Option<EventTemplate>>,
    payload: Vec<u8>,
    stack: Vec<u8>,
}

impl TracepointEvents {
    /// Writes the event of a sample, with its stack. Returns false if the event is too large.
    pub(super) fn write<W: WriteAt>(
        &mut self,
        (id, format): (u64, &Tracepoint),
        data: &[u8],
        (ids, stack): (TaskIds, &CallStack),
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> traceweir_format::Result<bool> {
        let template = self.templates.entry(id).or_insert_with(|| EventTemplate::new(format));
        let Some(template) = template else { return Ok(false) };
        self.payload.clear();
        put_payload(format, data, &mut self.payload);
        self.stack.clear();
        self.stack.put_u64(0).put(&stack.kernel).put(&stack.user);
        let items = [
            Item { kind: ExtType::PROV_TRAITS, data: &template.traits },
            Item { kind: ExtType::EVENT_SCHEMA_TL, data: &template.metadata },
            Item { kind: ExtType::STACK_TRACE64, data: &self.stack },
        ];
        let items = if stack.is_empty() { items.get(..2).unwrap_or_default() } else { &items };
        let descriptor = EventDescriptor {
            channel: CHANNEL_TRACELOGGING,
            level: LEVEL_INFORMATION,
            ..EventDescriptor::default()
        };
        let header = EventHeader {
            thread_id: ids.tid,
            process_id: ids.pid,
            time: at.time,
            provider: template.provider,
            descriptor,
            items,
            ..EventHeader::default()
        };
        out.write_event(at, &header, &self.payload)
    }
}
