//! Schemas of the properties that TDH lists for an event, where these differ from the event's own
//! fields: counts and lengths become properties, and a WPP message has ten properties with fixed
//! names.
//!
//! Self-describing events have 16-bit numbers before arrays and bytes. TDH lists such a number as a
//! separate property, to which the array or the bytes refer:
//!
//! ```text
//!   schema       a │ values (count first) │ blob (length first)
//!   properties   a │ values.Count │ values (count: field 1) │ blob.Length │ blob (length: field 3)
//! ```
//!
//! If a provider could not pass metadata to ETW separately, the metadata comes before the payload.
//! It then becomes the first two properties, so that a caller that walks the payload by its
//! properties arrives at the fields:
//!
//! ```text
//!   properties   ProviderMetadata (bytes, NOPRINT) │ EventMetadata (bytes, NOPRINT) │ a │ …
//! ```
//!
//! Members stay adjacent and come after all fields of the level above, so the levels are laid out
//! again, one after the other.
//!
//! Source: Documented in outline ("TraceLogging"); the name of the count Observed in the
//! output of public viewers.

use std::collections::VecDeque;

use traceweir_format::spec::types::{InType, OutType};

use crate::schema::{Count, Field, FieldKind, Length, Schema, SchemaOrigin};

/// The sizes of the metadata before a payload: of the provider, then of the event.
pub(super) type MetadataSizes = [u16; 2];

/// The names and types of the properties of a WPP message (TdhGetWppProperty).
const WPP_PROPERTIES: [(&str, InType); 10] = [
    ("FormattedString", InType::UNICODESTRING),
    ("SequenceNum", InType::UINT32),
    ("FunctionName", InType::UNICODESTRING),
    ("ComponentName", InType::UNICODESTRING),
    ("SubComponentName", InType::UNICODESTRING),
    ("TraceGuid", InType::GUID),
    ("GuidTypeName", InType::UNICODESTRING),
    ("SystemTime", InType::UNICODESTRING),
    ("FlagsName", InType::UNICODESTRING),
    ("LevelName", InType::UNICODESTRING),
];

/// Returns the schema that lists the properties of a WPP message.
pub(super) fn wpp_property_schema() -> Schema {
    let fields: Vec<_> =
        WPP_PROPERTIES.iter().map(|(name, input)| Field::value(name, *input, OutType::NULL)).collect();
    let top = fields.len();
    let mut schema = Schema::default();
    schema.origin = SchemaOrigin::Wpp;
    // Sealing cannot fail: the fields are few, and none refers to another.
    schema.seal(fields, top).unwrap_or_default()
}

/// Returns the schema with counts, lengths and preceding metadata as fields. Returns `None` if
/// there are none of these, or if the fields would be too many.
pub(super) fn expand_prefixes(schema: &Schema, metadata_sizes: Option<MetadataSizes>) -> Option<Schema> {
    let is_plain = |field: &Field| field.count != Count::Prefixed && !field.has_listed_length;
    if metadata_sizes.is_none() && schema.fields().iter().all(is_plain) {
        return None;
    }
    let mut expansion = PrefixExpansion {
        fields: Vec::new(),
        indexes: vec![0; schema.fields().len()],
        pending_structs: VecDeque::new(),
    };
    for (name, size) in
        ["ProviderMetadata", "EventMetadata"].into_iter().zip(metadata_sizes.into_iter().flatten())
    {
        let mut bytes = Field::value(name, InType::BINARY, OutType::NOPRINT);
        bytes.length = Length::Fixed(size);
        expansion.fields.push(bytes);
    }
    expansion.add_level(schema, 0, schema.top().len())?;
    let top = expansion.fields.len();
    while let Some((structure, first, members)) = expansion.pending_structs.pop_front() {
        let start = u16::try_from(expansion.fields.len()).ok()?;
        expansion.add_level(schema, first, members)?;
        let count = u16::try_from(expansion.fields.len()).ok()?.checked_sub(start)?;
        expansion.fields.get_mut(structure)?.kind = FieldKind::Struct { first: start, members: count };
    }
    expansion.update_references(schema);
    let mut expanded = Schema::default();
    expanded.origin = schema.origin;
    expanded.provider = schema.provider;
    expanded.seal(expansion.fields, top).ok()
}

struct PrefixExpansion {
    fields: Vec<Field>,
    /// The new index of each field of the schema.
    indexes: Vec<u16>,
    /// Structures whose members are still to be laid out: new index, first member in the schema,
    /// number of members.
    pending_structs: VecDeque<(usize, usize, usize)>,
}

impl PrefixExpansion {
    fn add_level(&mut self, schema: &Schema, first: usize, count: usize) -> Option<()> {
        for (index, field) in schema.fields().iter().enumerate().skip(first).take(count) {
            let mut field = field.clone();
            if field.count == Count::Prefixed {
                let number = self.add_number_field(&field.name, "Count")?;
                field.count = Count::Field(number);
            } else if field.has_listed_length {
                let number = self.add_number_field(&field.name, "Length")?;
                field.length = Length::Field(number);
                if let FieldKind::Value { input, .. } = &mut field.kind {
                    *input = InType::BINARY;
                }
            }
            if let FieldKind::Struct { first, members } = field.kind {
                self.pending_structs.push_back((self.fields.len(), usize::from(first), usize::from(members)));
            }
            *self.indexes.get_mut(index)? = u16::try_from(self.fields.len()).ok()?;
            self.fields.push(field);
        }
        Some(())
    }

    /// Adds the field for the count or length that precedes a field; returns its index.
    fn add_number_field(&mut self, name: &str, kind: &str) -> Option<u16> {
        let index = u16::try_from(self.fields.len()).ok()?;
        self.fields.push(Field::value(&format!("{name}.{kind}"), InType::UINT16, OutType::NULL));
        Some(index)
    }

    /// Updates references to the new indexes; references to an added count or length field are
    /// already right.
    fn update_references(&mut self, schema: &Schema) {
        for (old, index) in schema.fields().iter().zip(&self.indexes) {
            let new_index = |index: u16| self.indexes.get(usize::from(index)).copied().unwrap_or(u16::MAX);
            let Some(field) = self.fields.get_mut(usize::from(*index)) else { continue };
            if let Count::Field(index) = old.count {
                field.count = Count::Field(new_index(index));
            }
            if let Length::Field(index) = old.length {
                field.length = Length::Field(new_index(index));
            }
        }
    }
}
