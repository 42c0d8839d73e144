//! A schema whose counts and lengths are all fields, as properties have them.
//!
//! Self-describing events have 16-bit numbers in front of arrays and of bytes. TDH lists such a number as a property of its own, to which the
//! array or the bytes refer:
//!
//! ```text
//!   schema       a │ values (count in front) │ blob (length in front)
//!   properties   a │ values.Count │ values (count = 1) │ blob.Length │ blob (length = 3)
//! ```
//!
//! Where a provider could not make ETW keep descriptions apart, they stand in front of the payload; then they are its first two properties, so that whoever walks
//! the payload by its properties arrives at the fields:
//!
//! ```text
//!   properties   ProviderMetadata (bytes, not to be shown) │ EventMetadata (the same) │ a │ …
//! ```
//!
//! Members stay side by side and behind all fields of the level above, so levels are laid out anew, one after the other.
//!
//! Source: Documented in outline ("TraceLogging"); the name of the count Observed in what public viewers show.

use std::collections::VecDeque;

use traceweir_format::spec::types::{InType, OutType};

use crate::schema::{Count, Field, Kind, Length, Schema};

/// The sizes of the descriptions in front of a payload: of the provider, of the event.
pub(super) type InFront = [u16; 2];

/// The schema with such numbers as fields, and with what stands in front; `None` where there is neither, or would be too many fields.
pub(super) fn expanded(schema: &Schema, in_front: Option<InFront>) -> Option<Schema> {
    let is_plain = |field: &Field| field.count != Count::Prefixed && !field.has_listed_length;
    if in_front.is_none() && schema.fields().iter().all(is_plain) {
        return None;
    }
    let mut made =
        Made { fields: Vec::new(), places: vec![0; schema.fields().len()], levels: VecDeque::new() };
    for (name, size) in ["ProviderMetadata", "EventMetadata"].into_iter().zip(in_front.into_iter().flatten())
    {
        let mut bytes = Field::value(name, InType::BINARY, OutType::NOPRINT);
        bytes.length = Length::Fixed(size);
        made.fields.push(bytes);
    }
    made.level(schema, 0, schema.top().len())?;
    let top = made.fields.len();
    while let Some((owner, first, members)) = made.levels.pop_front() {
        let start = u16::try_from(made.fields.len()).ok()?;
        made.level(schema, first, members)?;
        let count = u16::try_from(made.fields.len()).ok()?.checked_sub(start)?;
        made.fields.get_mut(owner)?.kind = Kind::Struct { first: start, members: count };
    }
    made.refer_anew(schema);
    let mut expanded = Schema::default();
    expanded.origin = schema.origin;
    expanded.provider = schema.provider;
    expanded.seal(made.fields, top).ok()
}

struct Made {
    fields: Vec<Field>,
    /// Where each field of the schema stands now.
    places: Vec<u16>,
    /// Structures whose members are still to be laid out: where they stand, and their members in the schema.
    levels: VecDeque<(usize, usize, usize)>,
}

impl Made {
    fn level(&mut self, schema: &Schema, first: usize, count: usize) -> Option<()> {
        for (index, field) in schema.fields().iter().enumerate().skip(first).take(count) {
            let mut field = field.clone();
            if field.count == Count::Prefixed {
                let number = self.number(&field.name, "Count")?;
                field.count = Count::Field(number);
            } else if field.has_listed_length {
                let number = self.number(&field.name, "Length")?;
                field.length = Length::Field(number);
                if let Kind::Value { input, .. } = &mut field.kind {
                    *input = InType::BINARY;
                }
            }
            if let Kind::Struct { first, members } = field.kind {
                self.levels.push_back((self.fields.len(), usize::from(first), usize::from(members)));
            }
            *self.places.get_mut(index)? = u16::try_from(self.fields.len()).ok()?;
            self.fields.push(field);
        }
        Some(())
    }

    /// Adds the number in front of a field.
    fn number(&mut self, name: &str, what: &str) -> Option<u16> {
        let index = u16::try_from(self.fields.len()).ok()?;
        self.fields.push(Field::value(&format!("{name}.{what}"), InType::UINT16, OutType::NULL));
        Some(index)
    }

    /// Lets fields refer to where others stand now; those that refer to a new number do already.
    fn refer_anew(&mut self, schema: &Schema) {
        for (old, place) in schema.fields().iter().zip(&self.places) {
            let to = |index: u16| self.places.get(usize::from(index)).copied().unwrap_or(u16::MAX);
            let Some(field) = self.fields.get_mut(usize::from(*place)) else { continue };
            if let Count::Field(index) = old.count {
                field.count = Count::Field(to(index));
            }
            if let Length::Field(index) = old.length {
                field.length = Length::Field(to(index));
            }
        }
    }
}
