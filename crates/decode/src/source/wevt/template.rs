//! Reads templates (the fields of events) and maps (the names of field values).
//!
//! ```text
//!   TEMP │ u32 size │ u32 top-level items │ u32 all items │ u32 → items │ u32 kind │ GUID │ BinXML
//!
//!   item    0  u32  flags: 1 struct, 2 fixed length, 4 length in item, 8 fixed count,
//!                 0x10 count in item
//!           4  u8 in type, u8 out type, u16 0     or, of a struct, u16 first member, u16 members
//!           8  u32  → map or 0
//!          12  u16  count, or index of the item that holds it
//!          14  u16  length, or index of the item that holds it
//!          16  u32  → name record
//!
//!   VMAP │ u32 20 + 8 n │ u32 → name │ u32 0 │ u32 n │ n × { u32 value │ u32 message } version 5.1
//!   BMAP                              u32 1
//!   VMAP │ u32 16 + 8 n │ u32 → name │         u32 n │ …                               version 3.1
//! ```
//!
//! The flags are not those of EVENT_PROPERTY_INFO. A map has the layout in which its size matches
//! its count. Templates and maps are read once, however many events use them; a map entry without a
//! text is left out.
//!
//! Source: Observed on the CLR's event resources; flag 2 and version 3.1 from public descriptions.

use std::sync::Arc;

use traceweir_format::spec::types::{InType, OutType};
use traceweir_format::wire::Cursor;

use super::WevtReader;
use super::property::{Property, SizeRule, check_members};
use crate::schema::{FieldKind, MAX_FIELDS, Schema, ValueMap};
use crate::{Error, Result};

const ITEM_BYTES: usize = 20;

pub(super) const STRUCT_FLAG: u32 = 0x01;
pub(super) const FIXED_LENGTH_FLAG: u32 = 0x02;
pub(super) const LENGTH_IN_ITEM_FLAG: u32 = 0x04;
pub(super) const FIXED_COUNT_FLAG: u32 = 0x08;
pub(super) const COUNT_IN_ITEM_FLAG: u32 = 0x10;

impl WevtReader<'_> {
    /// Returns the template at an offset as a schema that has only fields, no names of provider,
    /// event or task. Offset 0 means no fields. Each call subtracts the fields from the limit for
    /// all events.
    pub(super) fn cached_template(&mut self, offset: u32) -> Result<Schema> {
        if offset == 0 {
            return Ok(Schema::default());
        }
        let schema = match self.templates.get(&offset) {
            Some(cached) => cached.clone(),
            None => {
                let template = self.read_template(offset)?;
                self.templates.insert(offset, template.clone());
                template
            }
        };
        let fields = schema.fields().len();
        self.fields_left =
            self.fields_left.checked_sub(fields).ok_or(Error::Schema("too many fields in all events"))?;
        Ok(schema)
    }

    fn read_template(&mut self, offset: u32) -> Result<Schema> {
        let mut header = self.cursor_at(offset)?;
        if header.array::<4>()? != b"TEMP" {
            return Err(header.invalid("signature is not TEMP").into());
        }
        let (_size, top, count, items) = (header.u32()?, header.u32()?, header.u32()?, header.u32()?);
        let (top, count) = (top as usize, count as usize);
        if count > MAX_FIELDS {
            return Err(header.invalid("too many items").into());
        }
        self.spend_bytes(count.saturating_mul(ITEM_BYTES))?;
        let mut items = self.cursor_at(items)?;
        let fields =
            (0..count).map(|_| Ok(self.read_item(&mut items)?.into_field())).collect::<Result<Vec<_>>>()?;
        check_members(&fields)?;
        Schema::default().seal(fields, top)
    }

    fn read_item(&mut self, items: &mut Cursor<'_>) -> Result<Property> {
        let flags = items.u32()?;
        let [a, b, c, d] = *items.array::<4>()?;
        let (map, count, length, name) = (items.u32()?, items.u16()?, items.u16()?, items.u32()?);
        let kind = if flags & STRUCT_FLAG != 0 {
            FieldKind::Struct { first: u16::from_le_bytes([a, b]), members: u16::from_le_bytes([c, d]) }
        } else {
            let map = if map == 0 { None } else { Some(self.cached_map(map)?) };
            FieldKind::Value { input: InType(a.into()), output: OutType(b.into()), map }
        };
        Ok(Property {
            name: self.texts.read_record(name)?,
            kind,
            count: (SizeRule::new(flags & FIXED_COUNT_FLAG != 0, flags & COUNT_IN_ITEM_FLAG != 0), count),
            length: (SizeRule::new(flags & FIXED_LENGTH_FLAG != 0, flags & LENGTH_IN_ITEM_FLAG != 0), length),
            tags: 0,
        })
    }

    fn cached_map(&mut self, offset: u32) -> Result<Arc<ValueMap>> {
        if let Some(cached) = self.maps.get(&offset) {
            return Ok(cached.clone());
        }
        let mut map = self.cursor_at(offset)?;
        let is_bit_map = match map.array()? {
            b"VMAP" => false,
            b"BMAP" => true,
            _ => return Err(map.invalid("signature is neither VMAP nor BMAP").into()),
        };
        let (size, name, first, second) = (map.u32()?, map.u32()?, map.u32()?, map.u32()?);
        let fits = |header: u32, n: u32| n.checked_mul(8).and_then(|n| n.checked_add(header)) == Some(size);
        let count = if fits(20, second) {
            second
        } else if fits(16, first) {
            map.seek(map.position().saturating_sub(4))?;
            first
        } else {
            return Err(map.invalid("map size does not fit its count").into());
        };
        self.spend_bytes(size as usize)?;
        let name = self.texts.read_record(name)?;
        self.spend_map_text(&name)?;
        let entries = self.read_map_entries(&mut map, count)?;
        let map = Arc::new(ValueMap::new(&name, is_bit_map, entries));
        self.maps.insert(offset, map.clone());
        Ok(map)
    }

    fn read_map_entries(&mut self, map: &mut Cursor<'_>, count: u32) -> Result<Vec<(u64, String)>> {
        let mut entries = Vec::new();
        for _ in 0..count {
            let (value, message) = (map.u32()?, map.u32()?);
            let Some(text) = self.messages.get(message) else { continue };
            self.spend_map_text(text)?;
            entries.push((value.into(), text.to_string()));
        }
        Ok(entries)
    }

    /// Subtracts the length of a text from the limit for the texts of all maps.
    fn spend_map_text(&mut self, text: &str) -> Result<()> {
        let remaining = self.map_text_bytes_left.checked_sub(text.len());
        self.map_text_bytes_left = remaining.ok_or(Error::Schema("too much text in maps"))?;
        Ok(())
    }
}
