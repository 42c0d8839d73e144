//! Schemas of events as events of the trace, so that consumers decode it without the manifests.
//!
//! ```text
//!   Event         Payload                                     Written
//!   MetaData 32   TRACE_EVENT_INFO of an event kind           before its first event
//!   MetaData 33   provider GUID │ EVENT_MAP_INFO of a map     before the event kind that uses it
//! ```
//!
//! "MetaData" is the class of these events; the number is the opcode. Only events of manifests need
//! them: other events describe themselves, or their classes are built in.

use std::collections::HashSet;
use std::mem::offset_of;

use traceweir::consumer::Event;
use traceweir::relog::{EventKind, Output};
use traceweir::{EventDescriptor, Guid, Result};
use traceweir_decode::source::{LookupEvent, LookupKind};
use traceweir_format::header::{Family, Record};
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, ExtType, class};
use traceweir_format::text::decode_utf16;
use traceweir_format::text::until_nul16;
use traceweir_format::wire::u32_at;

use crate::tdh::lock_library;
use crate::types::tdh::{EventPropertyInfo, TraceEventInfo};

/// The most event kinds and maps whose schemas are written.
const MAX_KINDS: usize = 1 << 16;
const EVENT_INFO_OPCODE: u8 = 32;
const EVENT_MAP_OPCODE: u8 = 33;
/// DECODING_SOURCE of manifests.
const SOURCE_MANIFEST: u32 = 0;
/// The flag PropertyStruct: the property is a structure, so its union holds no map name.
const PROPERTY_STRUCT: u32 = 1;

/// Writes each schema once.
#[derive(Debug, Default)]
pub(super) struct SchemaWriter {
    /// Event kinds that were looked up: provider, id and version.
    kinds: HashSet<(Guid, u16, u8)>,
    /// Maps that were written: provider and name.
    maps: HashSet<(Guid, String)>,
}

impl SchemaWriter {
    /// Writes the schema of an event, if it comes from a manifest and was not written yet.
    pub(super) fn write_schema_of(&mut self, event: &Event<'_>, output: &mut Output) -> Result<()> {
        let record = event.record;
        let descriptor = record.descriptor();
        let kind = (record.provider(), descriptor.id, descriptor.version);
        if record.family() != Family::Event
            || descriptor.channel == CHANNEL_TRACELOGGING
            || self.kinds.len() >= MAX_KINDS
            || !self.kinds.insert(kind)
        {
            return Ok(());
        }
        for (opcode, payload) in self.find_schema(record) {
            let mut schema = output.create_event(event.trace, EventKind::Classic)?;
            schema.set_provider_id(&class::EVENT_METADATA)?;
            schema.set_descriptor(&EventDescriptor { opcode, ..EventDescriptor::default() })?;
            // A schema that is larger than any record is left out.
            if schema.set_payload(&payload).is_ok() {
                output.inject(&schema)?;
            }
        }
        Ok(())
    }

    /// Returns the opcodes and payloads of the events that describe a record: those for its maps,
    /// then the one for its schema. A map that was returned before is left out.
    fn find_schema(&mut self, record: &Record<'_>) -> Vec<(u8, Vec<u8>)> {
        let Some(lookup) = lookup_event(record) else { return Vec::new() };
        let mut library = lock_library();
        let decoder = library.decoder_for(&lookup);
        let Ok(info) = decoder.event_info(&lookup, record.pointer_size()) else { return Vec::new() };
        let mut info = info.into_owned();
        if u32_at(&info, offset_of!(TraceEventInfo, decoding_source)) != SOURCE_MANIFEST {
            return Vec::new();
        }
        // `event_info` leaves the descriptor to its caller.
        let at = offset_of!(TraceEventInfo, event_descriptor);
        let descriptor = record.descriptor().to_bytes();
        if let Some(place) = info.get_mut(at..at.saturating_add(descriptor.len())) {
            place.copy_from_slice(&descriptor);
        }
        let mut events = Vec::new();
        for name in map_names(&info) {
            if self.maps.len() < MAX_KINDS
                && self.maps.insert((record.provider(), name.clone()))
                && let Ok(map) = decoder.map(&lookup, &name)
            {
                events.push((EVENT_MAP_OPCODE, [&record.provider().to_bytes()[..], &map].concat()));
            }
        }
        events.push((EVENT_INFO_OPCODE, info));
        events
    }
}

/// Returns the parts of a record that a lookup needs; `None` for an event that describes itself.
fn lookup_event<'r>(record: &Record<'r>) -> Option<LookupEvent<'r>> {
    let mut lookup = LookupEvent {
        kind: LookupKind::Described,
        provider: record.provider(),
        descriptor: record.descriptor(),
        payload: record.payload(),
        ..LookupEvent::default()
    };
    for item in record.items() {
        if item.kind == ExtType::EVENT_SCHEMA_TL {
            return None;
        }
        lookup.take_item(item.kind, item.data);
    }
    Some(lookup)
}

/// Returns the names of the maps that the properties of a TRACE_EVENT_INFO refer to.
fn map_names(info: &[u8]) -> Vec<String> {
    let first = offset_of!(TraceEventInfo, event_property_info_array);
    let properties = info.get(first..).unwrap_or_default().chunks_exact(size_of::<EventPropertyInfo>());
    let count = u32_at(info, offset_of!(TraceEventInfo, property_count)) as usize;
    let name_offset = |property: &[u8]| {
        let is_struct = u32_at(property, offset_of!(EventPropertyInfo, flags)) & PROPERTY_STRUCT != 0;
        let offset = u32_at(property, offset_of!(EventPropertyInfo, map_name_offset)) as usize;
        Some(offset).filter(|offset| *offset != 0 && !is_struct)
    };
    let name_at = |offset: usize| Some(decode_utf16(until_nul16(info.get(offset..)?)));
    properties.take(count).filter_map(name_offset).filter_map(name_at).collect()
}
