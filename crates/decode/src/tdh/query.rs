//! Queries about one event to a decoder that has the event's schema: the decoder of a
//! [`Library`](super::Library), or one that has read a trace.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use traceweir_format::Guid;
use traceweir_format::spec::event::class;
use traceweir_format::wire::u16_at;

use super::event_info::{EventInfo, encode_map_info};
use super::listed::MetadataSizes;
use super::property::{self, PropertyStep};
use super::{Answer, MAX_ANSWER_BYTES, Refusal};
use crate::schema::{Count, Field, FieldKind, Schema};
use crate::source::prepared::SchemaId;
use crate::source::{Decoder, LookupEvent, LookupKind, PreparedSchema, SchemaMatch};
use crate::value::Value;
use crate::walk::{Visitor, Walker};

/// The size limit of all cached structures, in bytes. When they exceed it, the cache is cleared.
const MAX_CACHED_BYTES: usize = 256 << 20;

/// A decoder that answers queries about events, and the structures that it has encoded.
#[derive(Debug, Default)]
pub struct QueryDecoder {
    /// The decoder that finds the schemas.
    pub decoder: Decoder,
    infos: EventInfoCache,
}

impl QueryDecoder {
    /// Creates a decoder without the built-in schemas of well-known providers.
    #[must_use]
    pub fn without_well_known() -> Self {
        Self { decoder: Decoder::without_well_known(), ..Self::default() }
    }

    /// Returns the TRACE_EVENT_INFO of an event; the caller fills in the descriptor.
    pub fn event_info(&mut self, event: &LookupEvent<'_>, pointer_size: usize) -> Answer<Cow<'_, [u8]>> {
        let matched = find_published(&mut self.decoder, event)?;
        let schema = &matched.prepared.schema;
        if let Some(sizes) = metadata_sizes(event, &matched) {
            let info = EventInfo::encode_with_metadata(schema, Some(sizes));
            return Ok(complete_info(&info, schema, event.payload, pointer_size)?.into_owned().into());
        }
        complete_info(self.infos.get_or_encode(matched.prepared), schema, matched.payload, pointer_size)
    }

    /// Returns the bytes of a property.
    pub fn property<'p>(
        &mut self,
        event: &LookupEvent<'p>,
        pointer_size: usize,
        path: &[PropertyStep<'_>],
    ) -> Answer<&'p [u8]> {
        let matched = find_published(&mut self.decoder, event)?;
        let schema = &matched.prepared.schema;
        if let Some(sizes) = metadata_sizes(event, &matched) {
            let info = EventInfo::encode_with_metadata(schema, Some(sizes));
            return property::find_property(info.property_schema(schema), event.payload, pointer_size, path);
        }
        let info = self.infos.get_or_encode(matched.prepared);
        property::find_property(info.property_schema(schema), matched.payload, pointer_size, path)
    }

    /// Returns the EVENT_MAP_INFO of a map of the event, by its name.
    pub fn map(&mut self, event: &LookupEvent<'_>, name: &str) -> Answer<Vec<u8>> {
        let map = encode_map_by_name(&find_published(&mut self.decoder, event)?.prepared.schema, name);
        map.ok_or(Refusal::NotFound("there is no map of this name")).and_then(check_answer_size)
    }
}

/// Types of classic events that the decoder knows, but Windows does not: class and opcode.
/// For these, consumers rely on the status that unknown events have.
const UNPUBLISHED_TYPES: [(Guid, u8); 1] = [(class::SYS_CONFIG_EX, 37)];

/// Finds the schema of an event that Windows describes too.
fn find_published<'d, 'p>(decoder: &'d mut Decoder, event: &LookupEvent<'p>) -> Answer<SchemaMatch<'d, 'p>> {
    let kind = (event.provider, event.descriptor.opcode);
    if event.kind == LookupKind::Classic && UNPUBLISHED_TYPES.contains(&kind) {
        return Err(Refusal::NotFound("Windows has no schema of this event"));
    }
    Ok(decoder.find_event(event)?)
}

/// The encoded structures of schemas, each encoded on first use.
#[derive(Debug, Default)]
struct EventInfoCache {
    infos: HashMap<SchemaId, EventInfo, BuildHasherDefault<SchemaIdHasher>>,
    bytes: usize,
}

impl EventInfoCache {
    fn get_or_encode(&mut self, prepared: &PreparedSchema) -> &EventInfo {
        if self.bytes > MAX_CACHED_BYTES {
            *self = Self::default();
        }
        match self.infos.entry(prepared.id()) {
            Entry::Occupied(info) => info.into_mut(),
            Entry::Vacant(vacant) => {
                let info = EventInfo::encode(&prepared.schema);
                self.bytes = self.bytes.saturating_add(info.memory_bytes());
                vacant.insert(info)
            }
        }
    }
}

/// Hashes schema ids. The ids come from a counter of this process, so no input can make them
/// collide.
#[derive(Debug, Default)]
struct SchemaIdHasher(u64);

impl Hasher for SchemaIdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio, which spreads consecutive numbers.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Returns the sizes of the metadata before the payload that a schema describes; `None` if the
/// schema describes the complete payload, which is the usual case.
#[inline]
fn metadata_sizes(event: &LookupEvent<'_>, matched: &SchemaMatch<'_, '_>) -> Option<MetadataSizes> {
    let size = event.payload.len().checked_sub(matched.payload.len()).filter(|size| *size > 0)?;
    let traits_size = u16_at(event.payload, 0);
    let metadata_size = u16::try_from(size).ok()?.checked_sub(traits_size)?;
    Some([traits_size, metadata_size])
}

/// Returns the bytes of a structure, with the count or length of an open property from the payload.
fn complete_info<'i>(
    info: &'i EventInfo,
    event_schema: &Schema,
    payload: &[u8],
    pointer_size: usize,
) -> Answer<Cow<'i, [u8]>> {
    let bytes = info.bytes().ok_or(Refusal::AnswerTooLarge)?;
    let Some(open) = info.open_property() else { return Ok(bytes.into()) };
    let mut counter = ElementCounter { index: open.index(), count: 0 };
    // If the payload is too short, the elements before its end are counted.
    let _ = Walker::default().walk(info.property_schema(event_schema), payload, pointer_size, &mut counter);
    Ok(info.with_open_property(open, counter.count).into())
}

/// Encodes the map of this name that a field of the schema has, as EVENT_MAP_INFO.
pub(super) fn encode_map_by_name(schema: &Schema, name: &str) -> Option<Vec<u8>> {
    schema.fields().iter().find_map(|field| match &field.kind {
        FieldKind::Value { map: Some(map), .. } if *map.name == *name => {
            Some(encode_map_info(map, schema.origin))
        }
        _ => None,
    })
}

/// Returns a structure unless it is larger than [`MAX_ANSWER_BYTES`].
pub(super) fn check_answer_size(bytes: Vec<u8>) -> Answer<Vec<u8>> {
    if bytes.len() > MAX_ANSWER_BYTES { Err(Refusal::AnswerTooLarge) } else { Ok(bytes) }
}

/// Counts the elements of one array, or the bytes of one value.
struct ElementCounter {
    index: usize,
    count: u16,
}

impl<'p> Visitor<'p> for ElementCounter {
    fn value(&mut self, index: usize, field: &Field, value: Value<'p>) {
        // An array of characters arrives as one text.
        let elements = match (value, &field.kind) {
            (Value::Text16(text), FieldKind::Value { input, .. }) if input.size(8).is_some() => {
                text.len() / 2
            }
            (Value::Text8(text), FieldKind::Value { input, .. }) if input.size(8).is_some() => text.len(),
            (Value::Bytes(bytes), _) if field.count == Count::One => bytes.len(),
            _ => 1,
        };
        if index == self.index {
            self.count = self.count.saturating_add(u16::try_from(elements).unwrap_or(u16::MAX));
        }
    }
    fn begin_struct(&mut self, index: usize, _field: &Field) {
        if index == self.index {
            self.count = self.count.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use traceweir_format::spec::event::EventDescriptor;
    use traceweir_format::spec::status::Status;

    use super::*;

    #[test]
    fn event_that_windows_does_not_describe_has_no_information() {
        let lookup = |opcode: u8| LookupEvent {
            kind: LookupKind::Classic,
            provider: class::SYS_CONFIG_EX,
            descriptor: EventDescriptor { opcode, ..EventDescriptor::default() },
            payload: &[0; 16],
            ..LookupEvent::default()
        };
        let mut queries = QueryDecoder::default();
        let path = [PropertyStep { name: "FileVersionLow", element: None }];
        let statuses = [
            queries.event_info(&lookup(37), 8).err(),
            queries.property(&lookup(37), 8, &path).err(),
            queries.map(&lookup(37), "FileVersionLow").err(),
        ];
        for refusal in statuses {
            assert_eq!(refusal.map(|refusal| refusal.status()), Some(Status::ERROR_NOT_FOUND));
        }
        assert!(queries.event_info(&lookup(33), 8).is_ok());
        // The decoder itself still names it.
        let matched = queries.decoder.find_event(&lookup(37)).unwrap();
        assert_eq!(matched.prepared.schema.names.event.as_deref(), Some("SysConfigEx/Opcode(37)"));
    }
}
