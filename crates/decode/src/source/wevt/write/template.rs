//! Writes the templates and maps of a compiled manifest, and the XML shape of events.
//!
//! ```text
//!   0F 01 01 00                                                        fragment
//!   01 FFFF size EventData 02                                          <EventData>
//!     41 FFFF size Data attributes 06 Name 05 01 text 02               <Data Name="text">
//!     0D index type 04                                                 %index</Data>
//!   04 00                                                              </EventData>
//! ```
//!
//! `size` and `attributes` are the sizes in bytes of the rest of the element and of its attributes.
//! Names are inline: hash, length, UTF-16, NUL. A structure is one substitution.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::wire::Put;

use super::super::template::{
    COUNT_IN_ITEM_FLAG, FIXED_COUNT_FLAG, FIXED_LENGTH_FLAG, LENGTH_IN_ITEM_FLAG, STRUCT_FLAG,
};
use super::PatchedBlob;
use super::messages::{MessageIds, MessageKind};
use crate::schema::{Count, Field, FieldKind, Length, Schema};
use crate::source::manifest::{EventDefinition, MapDefinition};
use crate::{Error, Result};

/// The kind of a template with the shape `EventData`.
const EVENT_DATA: u32 = 1;

/// Writes MAPS; returns the offset of each map by name.
pub(super) fn write_maps(
    blob: &mut PatchedBlob,
    messages: &mut MessageIds,
    maps: &[MapDefinition],
) -> Result<HashMap<Arc<str>, u32>> {
    let mut sorted: Vec<&MapDefinition> = maps.iter().collect();
    sorted.sort_by(|a, b| a.map.name.cmp(&b.map.name));
    let start = blob.begin_structure(b"MAPS");
    blob.put_count(sorted.len())?;
    let holes: Vec<_> = sorted.iter().map(|_| blob.reserve_u32()).collect();
    let mut offsets = HashMap::with_capacity(sorted.len());
    let mut names = Vec::with_capacity(sorted.len());
    for (map, hole) in sorted.iter().zip(holes) {
        offsets.insert(map.map.name.clone(), blob.position()?);
        blob.fill_position(hole)?;
        let start = blob.begin_structure(if map.map.is_bit_map { b"BMAP" } else { b"VMAP" });
        names.push((blob.reserve_u32(), &*map.map.name));
        blob.bytes.put_u32(u32::from(map.map.is_bit_map));
        blob.put_count(map.entries.len())?;
        let kind = if map.map.is_bit_map { MessageKind::BitMap } else { MessageKind::ValueMap };
        for (value, text, _) in &map.entries {
            blob.bytes.put_u32(*value).put_u32(messages.assign_id(kind, text.as_deref())?);
        }
        blob.end_structure(start)?;
    }
    blob.put_text_records(names)?;
    blob.end_structure(start)?;
    Ok(offsets)
}

/// Writes TTBL: each template that an event uses, once; returns their offsets.
pub(super) fn write_templates<'e>(
    blob: &mut PatchedBlob,
    events: &'e [EventDefinition],
    maps: &HashMap<Arc<str>, u32>,
) -> Result<HashMap<&'e str, u32>> {
    let start = blob.begin_structure(b"TTBL");
    let count = blob.reserve_u32();
    let mut offsets = HashMap::new();
    for event in events {
        let Some(id) = event.template.as_deref() else { continue };
        if event.event.schema.fields().is_empty() || offsets.contains_key(id) {
            continue;
        }
        offsets.insert(id, blob.position()?);
        write_template(blob, id, &event.event.schema, maps)?;
    }
    blob.fill_u32(count, u32::try_from(offsets.len()).unwrap_or(u32::MAX));
    blob.end_structure(start)?;
    Ok(offsets)
}

fn write_template(
    blob: &mut PatchedBlob,
    id: &str,
    schema: &Schema,
    maps: &HashMap<Arc<str>, u32>,
) -> Result<()> {
    let start = blob.begin_structure(b"TEMP");
    blob.put_count(schema.top().len())?;
    blob.put_count(schema.fields().len())?;
    let items = blob.reserve_u32();
    blob.bytes.put_u32(EVENT_DATA).put_guid(&Guid::from_provider_name(id));
    write_fragment(blob, schema.top())?;
    blob.pad_to_4();
    blob.fill_position(items)?;
    let mut names = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        names.push((write_item(blob, field, maps)?, &*field.name));
    }
    blob.put_text_records(names)?;
    blob.end_structure(start)
}

/// Writes an item; returns the hole for the offset of its name.
fn write_item(blob: &mut PatchedBlob, field: &Field, maps: &HashMap<Arc<str>, u32>) -> Result<usize> {
    let (count_flag, count) = match field.count {
        Count::One => (0, 0),
        Count::Fixed(n) => (FIXED_COUNT_FLAG, n),
        Count::Field(index) => (COUNT_IN_ITEM_FLAG, index),
        Count::Prefixed | Count::ToEnd => return Err(Error::Schema("a count that manifests do not have")),
    };
    let (length_flag, length) = match field.length {
        Length::Natural => (0, 0),
        Length::Fixed(n) => (FIXED_LENGTH_FLAG, n),
        Length::Field(index) => (LENGTH_IN_ITEM_FLAG, index),
    };
    let flags = count_flag | length_flag;
    match &field.kind {
        FieldKind::Struct { first, members } => {
            blob.bytes.put_u32(flags | STRUCT_FLAG).put_u16(*first).put_u16(*members).put_u32(0);
        }
        FieldKind::Value { input, output, map } => {
            let to_byte =
                |n: u16| u8::try_from(n).map_err(|_| Error::Schema("a type that manifests do not have"));
            let map = map.as_ref().and_then(|map| maps.get(&map.name)).copied().unwrap_or(0);
            blob.bytes
                .put_u32(flags)
                .put_u8(to_byte(input.0)?)
                .put_u8(to_byte(output.0)?)
                .put_u16(0)
                .put_u32(map);
        }
    }
    blob.bytes.put_u16(count).put_u16(length);
    Ok(blob.reserve_u32())
}

/// Writes the XML shape of an event with these fields.
fn write_fragment(blob: &mut PatchedBlob, fields: &[Field]) -> Result<()> {
    blob.bytes.put(&[0x0F, 1, 1, 0, 0x01]).put_u16(u16::MAX);
    let outer = blob.reserve_u32();
    write_xml_name(blob, "EventData");
    blob.bytes.put_u8(0x02);
    for (index, field) in (0_u16..).zip(fields) {
        blob.bytes.put_u8(0x41).put_u16(u16::MAX);
        let element = blob.reserve_u32();
        write_xml_name(blob, "Data");
        let attributes = blob.reserve_u32();
        blob.bytes.put_u8(0x06);
        write_xml_name(blob, "Name");
        let name: Vec<u16> = field.name.encode_utf16().take(usize::from(u16::MAX)).collect();
        blob.bytes.put_u8(0x05).put_u8(1).put_u16(u16::try_from(name.len()).unwrap_or(u16::MAX));
        for unit in name {
            blob.bytes.put_u16(unit);
        }
        fill_size_after(blob, attributes)?;
        let kind = match &field.kind {
            FieldKind::Value { input, .. } => u8::try_from(input.0).unwrap_or(0),
            FieldKind::Struct { .. } => 0,
        };
        blob.bytes.put_u8(0x02).put_u8(0x0D).put_u16(index).put_u8(kind).put_u8(0x04);
        fill_size_after(blob, element)?;
    }
    blob.bytes.put_u8(0x04);
    fill_size_after(blob, outer)?;
    blob.bytes.put_u8(0x00);
    Ok(())
}

/// Fills in a size that counts the bytes after it.
fn fill_size_after(blob: &mut PatchedBlob, hole: usize) -> Result<()> {
    let size = blob.position()?.saturating_sub(u32::try_from(hole).unwrap_or(u32::MAX)).saturating_sub(4);
    blob.fill_u32(hole, size);
    Ok(())
}

fn write_xml_name(blob: &mut PatchedBlob, name: &str) {
    // The hash that BinXML defines for names.
    let hash =
        name.encode_utf16().fold(0_u32, |hash, unit| hash.wrapping_mul(65599).wrapping_add(unit.into()));
    let [low, high, ..] = hash.to_le_bytes();
    let length = u16::try_from(name.encode_utf16().count()).unwrap_or(u16::MAX);
    blob.bytes.put(&[low, high]).put_u16(length).put_wide_z(name);
}
