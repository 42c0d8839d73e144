//! The fields of an event as a payload filter describes them: from the start of the payload to the
//! first field whose size only a decoder can find.

use traceweir_format::filter::payload::{self, Shape, Type};
use traceweir_format::spec::types::{InType, OutType};

use crate::schema::{Count, Field, FieldKind, Length, Schema, ValueMap};
use crate::source::EventSchema;

/// The size of a pointer in bytes: filters apply to events of processes on this machine.
const POINTER_SIZE: usize = 8;

/// A field that a filter describes.
#[derive(Clone, Debug)]
pub struct DescribedField<'s> {
    /// The names of the structures that contain the field, and its own name, separated by dots.
    pub path: String,
    /// The field's number in the filter.
    pub at: u8,
    /// The type in the payload.
    pub input: InType,
    map: Option<&'s ValueMap>,
    /// The field's index in the schema.
    index: usize,
}

impl DescribedField<'_> {
    /// Returns the type for comparisons; `None` if the field is neither a number, a GUID nor text.
    #[must_use]
    pub fn comparison_type(&self) -> Option<Type> {
        let integer = |bytes, signed| Type::Integer { bytes, signed };
        Some(match self.input {
            InType::INT8 => integer(1, true),
            InType::UINT8 => integer(1, false),
            InType::INT16 => integer(2, true),
            InType::UINT16 => integer(2, false),
            InType::INT32 => integer(4, true),
            InType::UINT32 | InType::HEXINT32 | InType::BOOLEAN => integer(4, false),
            InType::INT64 => integer(8, true),
            InType::UINT64 | InType::HEXINT64 | InType::FILETIME | InType::POINTER | InType::SIZET => {
                integer(8, false)
            }
            InType::GUID => Type::Guid,
            InType::UNICODESTRING | InType::COUNTEDSTRING => Type::Utf16,
            InType::ANSISTRING | InType::COUNTEDANSISTRING => Type::Ansi,
            _ => return None,
        })
    }

    /// Parses a value as a number: decimal, hexadecimal, a Boolean, or a name in the field's map.
    #[must_use]
    pub fn parse_number(&self, text: &str) -> Option<i128> {
        let text = text.trim();
        let (digits, is_negative) = text.strip_prefix('-').map_or((text, false), |digits| (digits, true));
        let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            Some(hex) => i128::from_str_radix(hex, 16).ok(),
            None => digits.parse().ok(),
        };
        let number = number.map(|number: i128| if is_negative { number.saturating_neg() } else { number });
        let is_boolean = self.input == InType::BOOLEAN;
        number.or(match text.to_ascii_lowercase().as_str() {
            "true" if is_boolean => Some(1),
            "false" if is_boolean => Some(0),
            name => {
                let mut entries = self.map.into_iter().flat_map(ValueMap::entries);
                entries.find(|(_, entry)| entry.to_lowercase() == name).map(|(value, _)| i128::from(*value))
            }
        })
    }
}

/// A filter under construction for one event, with all fields that a filter can describe.
#[derive(Debug)]
pub struct FilterLayout<'s> {
    /// The filter; the caller adds predicates to it.
    pub event: payload::Event,
    schema: &'s Schema,
    fields: Vec<DescribedField<'s>>,
    /// The first field that a filter cannot describe; no field after it can be described either.
    end: Option<String>,
}

impl<'s> FilterLayout<'s> {
    /// Describes the fields of an event. With `is_any_enough`, one matching predicate is enough.
    #[must_use]
    pub fn new(event: &'s EventSchema, is_any_enough: bool) -> Self {
        let descriptor = &event.descriptor;
        let filter = payload::Event::new(descriptor.id, descriptor.version, is_any_enough);
        let mut layout = Self { event: filter, schema: &event.schema, fields: Vec::new(), end: None };
        layout.describe_fields(0, event.schema.top(), "");
        layout
    }

    /// Describes fields, and the members of structures recursively; structures nest at most eight
    /// deep.
    fn describe_fields(&mut self, first: usize, fields: &'s [Field], prefix: &str) {
        for (index, field) in (first..).zip(fields) {
            if self.end.is_some() {
                return;
            }
            let path = format!("{prefix}{}", field.name);
            match &field.kind {
                FieldKind::Struct { first, members } if field.count == Count::One => {
                    let schema = self.schema;
                    self.describe_fields(
                        usize::from(*first),
                        schema.members(*first, *members),
                        &format!("{path}."),
                    );
                }
                FieldKind::Struct { .. } => self.end = Some(path),
                FieldKind::Value { input, output, map } => {
                    let described = self.describe(field, *input, *output);
                    match described.and_then(|field| self.event.add_field(field).ok()) {
                        Some(at) => {
                            self.fields.push(DescribedField {
                                path,
                                at,
                                input: *input,
                                map: map.as_deref(),
                                index,
                            });
                        }
                        None => self.end = Some(path),
                    }
                }
            }
        }
    }

    fn describe(&self, field: &Field, input: InType, output: OutType) -> Option<payload::Field> {
        let shape = match input {
            InType::UNICODESTRING => self.shape_with_length(field.length, 2, Some(Shape::Utf16Z))?,
            InType::ANSISTRING => self.shape_with_length(field.length, 1, Some(Shape::AnsiZ))?,
            InType::BINARY => {
                let natural = (output == OutType::IPV6).then_some(Shape::Fixed(16));
                self.shape_with_length(field.length, 1, natural)?
            }
            InType::COUNTEDSTRING | InType::COUNTEDANSISTRING | InType::COUNTEDBINARY => Shape::Counted,
            InType::SID => Shape::Sid,
            fixed => Shape::Fixed(u16::try_from(fixed.size(POINTER_SIZE)?).ok()?),
        };
        let count = match field.count {
            Count::One => payload::Count::Fixed(1),
            Count::Fixed(count) => payload::Count::Fixed(count),
            Count::Field(index) => payload::Count::Field(self.filter_field_number(index)?),
            Count::Prefixed | Count::ToEnd => return None,
        };
        Some(payload::Field { shape, count })
    }

    fn shape_with_length(&self, length: Length, unit: u16, without_length: Option<Shape>) -> Option<Shape> {
        match length {
            Length::Natural => without_length,
            Length::Fixed(units) => units.checked_mul(unit).map(Shape::Fixed),
            Length::Field(index) => Some(Shape::Length { field: self.filter_field_number(index)?, unit }),
        }
    }

    /// Returns the number that a field of the schema has in the filter.
    fn filter_field_number(&self, index: u16) -> Option<u8> {
        self.fields.iter().find(|field| field.index == usize::from(index)).map(|field| field.at)
    }

    /// Finds a field by its name, or by its path (the names of its structures and its name),
    /// ignoring case.
    pub fn find(&self, name: &str) -> Result<DescribedField<'s>, String> {
        let lowercase_name = name.to_lowercase();
        let has_path = |field: &&DescribedField<'_>| field.path.to_lowercase() == lowercase_name;
        let has_name = |field: &&DescribedField<'_>| {
            field
                .path
                .rsplit_once('.')
                .is_some_and(|(_, field_name)| field_name.to_lowercase() == lowercase_name)
        };
        let field = self.fields.iter().find(has_path).or_else(|| self.fields.iter().find(has_name));
        field.cloned().ok_or_else(|| self.missing_field_error(name))
    }

    fn missing_field_error(&self, name: &str) -> String {
        let field_name = name.rsplit('.').next().unwrap_or(name).to_lowercase();
        let is_in_schema = self.schema.fields().iter().any(|field| field.name.to_lowercase() == field_name);
        if let (Some(end), true) = (&self.end, is_in_schema) {
            return format!(
                "{name} cannot be compared: a filter sees the fields before {end}, whose size only a decoder finds"
            );
        }
        let paths: Vec<_> = self.fields.iter().map(|field| field.path.as_str()).collect();
        format!("there is no field {name:?}: the event has {}", paths.join(", "))
    }
}
