//! Reads the schemas that a merge put into a trace: TRACE_EVENT_INFO and EVENT_MAP_INFO as event
//! payloads.
//!
//! ```text
//!   opcode 32: TRACE_EVENT_INFO
//!   00 GUID provider
//!   10 GUID event (MOF or WPP class)
//!   20 EVENT_DESCRIPTOR
//!   30 u32 decoding source
//!   34 9 × u32 → provider, level, channel, keywords (list), task, opcode, event message,
//!      provider message, BinXML
//!   58 u32 BinXML size
//!   5C u32 → event name, 60 u32 → attributes
//!   64 u32 number of properties, 68 u32 number of top-level properties
//!   6C u32 template flags (low 4 bits), tags (28 bits)
//!   70 properties × 24 bytes
//!
//!   property                                           opcode 33: GUID provider, EVENT_MAP_INFO
//!   00 u32 flags                                       00 u32 → name
//!   04 u32 → name                                      04 u32 flags
//!   08 u16 in type, u16 out type, u32 → map name       08 u32 entries
//!      or u16 first member, u16 members, u32 0         0C u32 value type: 0 number, 1 text
//!   10 u16 count or index, 12 u16 length or index      10 entries × { u32 → text
//!   14 u32 tags                                                       │ u32 value or → text }
//! ```
//!
//! Offsets count from the start of the structure, 0 is "none", texts are NUL-terminated UTF-16.
//! Maps arrive in separate records, before or after the events that use them: an
//! [`EmbeddedEvent`] keeps the names of its maps until the decoder has seen these maps.
//!
//! Texts are shared, and their total size may not exceed the payload; the payload also bounds the
//! number of properties. BinXML is not read.
//!
//! Source: Documented ("TRACE_EVENT_INFO", "EVENT_PROPERTY_INFO", "EVENT_MAP_INFO"); their use as
//! payloads Observed in a merged trace of .NET 4.5.2 (61 events and 24 maps).

use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::spec::types::{InType, OutType};
use traceweir_format::wire::Cursor;

use super::wevt::property::{Property, SizeRule, check_members};
use super::wevt::texts::SharedTexts;
use crate::schema::{Field, FieldKind, MAX_FIELDS, Schema, SchemaNames, SchemaOrigin, ValueMap};
use crate::{Error, Result};
use traceweir_format::spec::types::map;
use traceweir_format::spec::types::property::{
    PROPERTY_HAS_CUSTOM_SCHEMA, PROPERTY_HAS_TAGS, PROPERTY_PARAM_COUNT, PROPERTY_PARAM_FIXED_COUNT,
    PROPERTY_PARAM_FIXED_LENGTH, PROPERTY_PARAM_LENGTH, PROPERTY_STRUCT,
};

/// The `DecodingSource` of a classic (MOF) event, which has an activity name in the place of the
/// event name.
const DECODING_SOURCE_WBEM: u32 = 1;

/// The mask of a property's tags, which take the low 28 bits.
const TAGS_MASK: u32 = 0x0FFF_FFFF;

/// Indexes of fields with the names of their maps.
pub type MapNames = Vec<(usize, Arc<str>)>;

/// An event that a TRACE_EVENT_INFO describes.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddedEvent {
    /// GUID of the provider.
    pub provider: Guid,
    /// GUID of the MOF or WPP class; for manifest events null or the GUID of the task.
    pub event_guid: Guid,
    /// Id, version and the other attributes of the event.
    pub descriptor: EventDescriptor,
    /// The kind of schema source: 0 manifest, 1 MOF, 2 WPP, 3 TraceLogging.
    pub decoding_source: u32,
    /// The names and fields.
    pub schema: Schema,
    /// Fields that have a map, by their index in [`Schema::fields`], with the map's name.
    pub map_names: MapNames,
}

impl EmbeddedEvent {
    /// Returns whether the schema describes a MOF class. The decoder finds it by class and type
    /// instead of provider and id.
    #[must_use]
    pub fn is_classic(&self) -> bool {
        self.decoding_source == DECODING_SOURCE_WBEM
    }
}

/// Reads the payload of an EventInfo record: a TRACE_EVENT_INFO.
pub fn parse_event_info(payload: &[u8]) -> Result<EmbeddedEvent> {
    let mut info = Cursor::new("TRACE_EVENT_INFO", payload);
    let mut texts = SharedTexts::new("TRACE_EVENT_INFO text", payload);
    let (provider, event_guid) = (info.guid()?, info.guid()?);
    let descriptor = EventDescriptor::from_bytes(info.array()?);
    let decoding_source = info.u32()?;
    let mut names =
        SchemaNames { provider: texts.read_terminated_label(info.u32()?)?, ..SchemaNames::default() };
    names.level = texts.read_terminated_label(info.u32()?)?;
    names.channel = texts.read_terminated_label(info.u32()?)?;
    names.keywords = pair_keywords(info.u32()?, descriptor.keyword, &mut texts)?;
    names.task = texts.read_terminated_label(info.u32()?)?;
    names.opcode = texts.read_terminated_label(info.u32()?)?;
    let message = texts.read_terminated_label(info.u32()?)?;
    let (_provider_message, _binxml, _binxml_size) = (info.u32()?, info.u32()?, info.u32()?);
    let (event_name, _attributes) = (info.u32()?, info.u32()?);
    if decoding_source != DECODING_SOURCE_WBEM {
        names.event = texts.read_terminated_label(event_name)?;
    }
    let (count, top, flags_and_tags) = (info.u32()?, info.u32()?, info.u32()?);
    let (fields, map_names) = read_properties(count, &mut info, &mut texts)?;
    let mut schema = Schema::default().seal(fields, usize::try_from(top).unwrap_or(usize::MAX))?;
    schema.origin = SchemaOrigin::Embedded;
    schema.provider = provider;
    schema.names = names;
    schema.message = message;
    schema.tags = flags_and_tags >> 4;
    Ok(EmbeddedEvent { provider, event_guid, descriptor, decoding_source, schema, map_names })
}

/// Pairs each keyword name with its bit, or with 0 if the pairing is not certain.
///
/// Names are in the order of their bits, but bits without a name leave no gap. The bits that
/// usually have no name are the highest ones, which stand for channels, and those below them, which
/// are predefined. So the function compares the number of names with the number of set bits: of all
/// bits, then without the channel bits, then also without the predefined bits. At the first match,
/// each name gets its bit; without a match, every name gets 0.
fn pair_keywords(offset: u32, keyword: u64, texts: &mut SharedTexts<'_>) -> Result<Vec<(u64, Arc<str>)>> {
    if offset == 0 {
        return Ok(Vec::new());
    }
    let names = texts.read_list(offset)?;
    let mut candidates = [u64::MAX, (1 << 56) - 1, (1 << 48) - 1].into_iter().map(|mask| keyword & mask);
    let bits = candidates.find(|bits| usize::try_from(bits.count_ones()) == Ok(names.len()));
    let set_bits = (0..u64::BITS).map(|n| 1_u64 << n).filter(|bit| bits.unwrap_or(0) & bit != 0);
    Ok(set_bits.chain(std::iter::repeat(0)).zip(names).collect())
}

/// Reads a property array as fields with the names of their maps.
fn read_properties(
    count: u32,
    info: &mut Cursor<'_>,
    texts: &mut SharedTexts<'_>,
) -> Result<(Vec<Field>, MapNames)> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > MAX_FIELDS {
        return Err(info.invalid("too many properties").into());
    }
    let (mut fields, mut map_names) = (Vec::new(), Vec::new());
    for index in 0..count {
        let (property, map) = read_property(info, texts)?;
        if let Some(map) = map {
            map_names.push((index, map));
        }
        fields.push(property.into_field());
    }
    check_members(&fields)?;
    Ok((fields, map_names))
}

fn read_property(info: &mut Cursor<'_>, texts: &mut SharedTexts<'_>) -> Result<(Property, Option<Arc<str>>)> {
    let (flags, name) = (info.u32()?, info.u32()?);
    let (type_or_first_member, output_or_members, map_offset) = (info.u16()?, info.u16()?, info.u32()?);
    let (count, length, tags) = (info.u16()?, info.u16()?, info.u32()?);
    let has_flag = |flag: u32| flags & flag != 0;
    let (kind, map) = if has_flag(PROPERTY_STRUCT) {
        (FieldKind::Struct { first: type_or_first_member, members: output_or_members }, None)
    } else {
        // For a field with a custom schema, the offset is that of the schema, not of a map name.
        let map = if has_flag(PROPERTY_HAS_CUSTOM_SCHEMA) {
            None
        } else {
            texts.read_terminated_label(map_offset)?
        };
        let (input, output) = (InType(type_or_first_member), OutType(output_or_members));
        (FieldKind::Value { input, output, map: None }, map)
    };
    let property = Property {
        name: texts.read_terminated(name)?,
        kind,
        count: (SizeRule::new(has_flag(PROPERTY_PARAM_FIXED_COUNT), has_flag(PROPERTY_PARAM_COUNT)), count),
        length: (
            SizeRule::new(has_flag(PROPERTY_PARAM_FIXED_LENGTH), has_flag(PROPERTY_PARAM_LENGTH)),
            length,
        ),
        tags: if has_flag(PROPERTY_HAS_TAGS) { tags & TAGS_MASK } else { 0 },
    };
    Ok((property, map))
}

/// Reads the payload of an EventMapInfo record: the provider and an EVENT_MAP_INFO.
pub fn parse_event_map(payload: &[u8]) -> Result<(Guid, ValueMap)> {
    let mut start = Cursor::new("EVENT_MAP_INFO", payload);
    let provider = start.guid()?;
    let bytes = start.rest();
    let mut info = Cursor::new("EVENT_MAP_INFO", bytes);
    let mut texts = SharedTexts::new("EVENT_MAP_INFO text", bytes);
    let (name, flags, count, value_type) = (info.u32()?, info.u32()?, info.u32()?, info.u32()?);
    if flags & map::MANIFEST_PATTERNMAP != 0 {
        return Err(Error::Schema("a pattern map does not give names to values"));
    }
    let wbem_flags = map::WBEM_VALUEMAP | map::WBEM_FLAG;
    let is_bit_map =
        flags & (map::MANIFEST_BITMAP | map::WBEM_BITMAP) != 0 || flags & wbem_flags == wbem_flags;
    let mut entries = Vec::new();
    // Each entry gets a copy of its text, and many entries may refer to one long text. So the
    // copies together may have at most twice the size of the structure. Texts that are not shared
    // always fit: in UTF-8 they take at most one and a half times their size in UTF-16.
    let mut text_bytes_left = bytes.len().saturating_mul(2);
    for index in 0..count {
        let (text, value) = (info.u32()?, info.u32()?);
        let value = match (flags & map::WBEM_NO_MAP != 0, value_type) {
            (true, _) if is_bit_map => 1_u64.checked_shl(index),
            (true, _) => Some(index.into()),
            (false, 0) => Some(value.into()),
            (false, _) => parse_number(&texts.read_terminated(value)?),
        };
        let text = texts.read_terminated(text)?;
        text_bytes_left =
            text_bytes_left.checked_sub(text.len()).ok_or(Error::Schema("too much text in a map"))?;
        entries.extend(value.map(|v| (v, text.to_string())));
    }
    Ok((provider, ValueMap::new(&texts.read_terminated(name)?, is_bit_map, entries)))
}

/// Parses a number as MOF classes write it: decimal, or hexadecimal with `0x`.
fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
