//! Reads the table of declarations (`fixtures/tracelogging/declarations.txt`), and computes the
//! expected bytes of each event.

use std::path::Path;

use traceweir_format::spec::event::CHANNEL_TRACELOGGING;
use traceweir_format::tracelogging::{Arity, FieldMetadata, MetadataBuilder, TYPE_STRUCT};

use crate::kinds::{CUSTOM_SCHEMA, FieldKind, PACKED_BYTES};

/// One event of the table.
pub(crate) struct EventDeclaration {
    pub(crate) name: String,
    /// In the order of the table, including repetitions.
    pub(crate) attributes: Vec<(String, u64)>,
    pub(crate) fields: Vec<Field>,
}

pub(crate) struct Field {
    pub(crate) content: FieldContent,
    pub(crate) name: String,
    pub(crate) tag: Option<u32>,
    /// Whether the field has `format=Default`, which only Rust's `write_event!` can
    /// state explicitly.
    pub(crate) has_default_format: bool,
}

pub(crate) enum FieldContent {
    Value(FieldKind),
    Array(FieldKind),
    /// An array whose count is in the metadata.
    Fixed(FieldKind, u16),
    /// A structure with this number of members.
    Struct(u8),
    /// In type with its flags, and out type.
    Packed(u8, u8),
}

/// Reads the whole table.
pub(crate) fn read_declarations() -> Vec<EventDeclaration> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tracelogging/declarations.txt");
    let text = std::fs::read_to_string(&path).expect("cannot read the table");
    let mut table: Vec<EventDeclaration> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        if let Some(event) = line.strip_prefix("event ") {
            let mut words = event.split(' ');
            let name = words.next().expect("an event has no name").to_owned();
            table.push(EventDeclaration {
                name,
                attributes: words.map(parse_attribute).collect(),
                fields: Vec::new(),
            });
        } else {
            table
                .last_mut()
                .expect("there is no event before the field")
                .fields
                .push(parse_field(line.trim_start()));
        }
    }
    table
}

fn parse_attribute(word: &str) -> (String, u64) {
    let (key, value) = word.split_once('=').unwrap_or_else(|| panic!("{word} is not an attribute"));
    (key.to_owned(), value.parse().unwrap_or_else(|error| panic!("{word}: {error}")))
}

fn parse_field(line: &str) -> Field {
    let mut parts = line.splitn(3, '"');
    let (content, name, options) = (parts.next(), parts.next(), parts.next());
    let (Some(content), Some(name), Some(options)) = (content, name, options) else {
        panic!("{line} is not a field")
    };
    let tag = options.trim().strip_prefix("tag=").map(|tag| tag.parse().expect("a tag is not a number"));
    let has_default_format = options.trim() == "format=Default";
    Field { content: parse_content(content.trim()), name: name.to_owned(), tag, has_default_format }
}

fn parse_content(word: &str) -> FieldContent {
    let parse_number = |text: &str| text.parse().unwrap_or_else(|error| panic!("{word}: {error}"));
    if let Some(count) = word.strip_prefix("Struct/") {
        return FieldContent::Struct(parse_number(count) as u8);
    }
    if let Some(types) = word.strip_prefix("Packed:") {
        let (in_type, out_type) =
            types.split_once(':').expect("a packed field lacks its in type or out type");
        return FieldContent::Packed(parse_number(in_type) as u8, parse_number(out_type) as u8);
    }
    match word.strip_suffix(']').and_then(|array| array.split_once('[')) {
        None => FieldContent::Value(FieldKind::find(word)),
        Some((kind, "")) => FieldContent::Array(FieldKind::find(kind)),
        Some((kind, count)) => FieldContent::Fixed(FieldKind::find(kind), parse_number(count)),
    }
}

impl EventDeclaration {
    /// Returns the last value of an attribute, if it is set.
    pub(crate) fn find_attribute(&self, key: &str) -> Option<u64> {
        self.attributes.iter().rev().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    pub(crate) fn attribute_or(&self, key: &str, default: u64) -> u64 {
        self.find_attribute(key).unwrap_or(default)
    }

    /// Returns the bitwise or of all values of an attribute.
    pub(crate) fn combine_attributes(&self, key: &str) -> u64 {
        self.attributes
            .iter()
            .filter(|(name, _)| name == key)
            .fold(0, |combined, (_, value)| combined | value)
    }

    /// Returns the bytes of the event descriptor in memory.
    pub(crate) fn descriptor(&self) -> Vec<u8> {
        let mut bytes = (self.attribute_or("id", 0) as u16).to_le_bytes().to_vec();
        bytes.extend(
            [("version", 0), ("channel", u64::from(CHANNEL_TRACELOGGING)), ("level", 5), ("opcode", 0)]
                .map(|(key, default)| self.attribute_or(key, default) as u8),
        );
        // The task.
        bytes.extend([0, 0]);
        bytes.extend(self.combine_attributes("keyword").to_le_bytes());
        bytes
    }

    /// Returns the metadata that the builder makes for the event.
    pub(crate) fn metadata(&self) -> Vec<u8> {
        let mut builder = MetadataBuilder::new(&self.name, self.combine_attributes("tag") as u32);
        for field in &self.fields {
            let (in_type, out, arity) = match &field.content {
                FieldContent::Value(kind) if kind.name == "Custom" => {
                    (kind.in_type, kind.out_type, Arity::Custom(CUSTOM_SCHEMA))
                }
                FieldContent::Value(kind) => (kind.in_type, kind.out_type, Arity::Scalar),
                FieldContent::Array(kind) => (kind.in_type, kind.out_type, Arity::Variable),
                FieldContent::Fixed(kind, count) => (kind.in_type, kind.out_type, Arity::Fixed(*count)),
                FieldContent::Struct(members) => (TYPE_STRUCT, *members, Arity::Scalar),
                // The flag 0x40 marks an array; the low five bits are the type.
                FieldContent::Packed(in_type, out) if in_type & 0x40 != 0 => {
                    (in_type & 0x1F, *out, Arity::Variable)
                }
                FieldContent::Packed(in_type, out) => (*in_type, *out, Arity::Scalar),
            };
            let tags = field.tag.unwrap_or(0);
            builder.add(&FieldMetadata { name: field.name.as_bytes(), in_type, out, tags, arity });
        }
        builder.finish().unwrap_or_else(|error| panic!("{}: {error}", self.name)).to_vec()
    }

    /// Returns the data of all fields, without gaps.
    pub(crate) fn payload(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in &self.fields {
            match &field.content {
                FieldContent::Value(kind) => bytes.extend(&kind.bytes()[0]),
                FieldContent::Array(kind) => {
                    // An array has all three values of its kind.
                    bytes.extend(3u16.to_le_bytes());
                    bytes.extend(kind.bytes().concat());
                }
                FieldContent::Fixed(kind, count) => {
                    bytes.extend(kind.bytes()[..usize::from(*count)].concat())
                }
                FieldContent::Struct(_) => {}
                FieldContent::Packed(..) => bytes.extend(PACKED_BYTES),
            }
        }
        bytes
    }
}
