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
/// The largest description of a tracepoint in bytes. Each of its events repeats it.
const MAX_METADATA_BYTES: usize = 8 << 10;

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
            metadata: builder.finish().ok().filter(|bytes| bytes.len() <= MAX_METADATA_BYTES)?.to_vec(),
        })
    }
}

/// Appends the payload of an event to the empty `out`. Returns false if the data of the sample does
/// not hold all fields, or if fields overlap, so that a few bytes would become a long payload.
fn put_payload(format: &Tracepoint, data: &[u8], out: &mut Vec<u8>) -> bool {
    /// Bytes that are not in the data: the NUL of a text, the length of bytes.
    const ADDED_BYTES: usize = 2;
    let limit = data.len().saturating_add(format.fields.len().saturating_mul(ADDED_BYTES));
    for field in &format.fields {
        let Some(value) = field.value(data) else { return false };
        match field.ty {
            // The field has exactly the size of its type.
            FieldType::Number { .. } | FieldType::Address | FieldType::Numbers { .. } => out.put(value),
            FieldType::Text => out.put(until_nul(value)).put_u8(0),
            FieldType::Bytes => {
                let value = value.get(..usize::from(u16::MAX)).unwrap_or(value);
                out.put_u16(u16::try_from(value.len()).unwrap_or(0)).put(value)
            }
        };
        if out.len() > limit {
            return false;
        }
    }
    true
}

/// Writes tracepoints.
#[derive(Default)]
pub(super) struct TracepointEvents {
    /// Templates by the id of the tracepoint; `None` for tracepoints that cannot be described.
    templates: HashMap<u64, Option<EventTemplate>>,
    payload: Vec<u8>,
    stack: Vec<u8>,
    /// Number of events written.
    pub(super) written: u64,
}

impl TracepointEvents {
    /// Writes the event of a sample, with its stack. Returns false if the data of the sample does not
    /// fit the format.
    pub(super) fn write<W: WriteAt>(
        &mut self,
        (id, format): (u64, &Tracepoint),
        data: &[u8],
        (ids, stack): (TaskIds, &CallStack),
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> traceweir_format::Result<bool> {
        let template = self.templates.entry(id).or_insert_with(|| EventTemplate::new(format));
        let Some(template) = template else {
            out.oversized = out.oversized.saturating_add(1);
            return Ok(true);
        };
        self.payload.clear();
        if !put_payload(format, data, &mut self.payload) {
            return Ok(false);
        }
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
        let is_written = out.write_event(at, &header, &self.payload)?;
        self.written = self.written.saturating_add(is_written.into());
        Ok(true)
    }
}
