//! The table of declarations (`fixtures/tracelogging/declarations.txt`): read, and told as what each event must be.

use std::path::Path;

use traceweir_format::tracelogging::{Arity, FieldMetadata, MetadataBuilder, TYPE_STRUCT};

use crate::kinds::{CUSTOM_SCHEMA, Kind, PACKED_BYTES};

/// One event of the table.
pub(crate) struct Declaration {
    pub(crate) name: String,
    /// In the order they are written, repeats included.
    pub(crate) attributes: Vec<(String, u64)>,
    pub(crate) fields: Vec<Field>,
}

pub(crate) struct Field {
    pub(crate) what: What,
    pub(crate) name: String,
    pub(crate) tag: Option<u32>,
    /// Where a form can say so, that it is shown as its type says.
    pub(crate) format_default: bool,
}

pub(crate) enum What {
    Value(Kind),
    Array(Kind),
    Fixed(Kind, u16),
    Struct(u8),
    /// In type with its flags, out type.
    Packed(u8, u8),
}

/// The whole table.
pub(crate) fn read() -> Vec<Declaration> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tracelogging/declarations.txt");
    let text = std::fs::read_to_string(&path).expect("the table can be read");
    let mut table: Vec<Declaration> = Vec::new();
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()) {
        if let Some(event) = line.strip_prefix("event ") {
            let mut words = event.split(' ');
            let name = words.next().expect("a name").to_owned();
            table.push(Declaration { name, attributes: words.map(attribute).collect(), fields: Vec::new() });
        } else {
            table.last_mut().expect("fields follow an event").fields.push(field(line.trim_start()));
        }
    }
    table
}

fn attribute(word: &str) -> (String, u64) {
    let (key, value) = word.split_once('=').unwrap_or_else(|| panic!("{word} is no attribute"));
    (key.to_owned(), value.parse().unwrap_or_else(|e| panic!("{word}: {e}")))
}

fn field(line: &str) -> Field {
    let mut parts = line.splitn(3, '"');
    let (what, name, rest) = (parts.next(), parts.next(), parts.next());
    let (Some(what), Some(name), Some(rest)) = (what, name, rest) else { panic!("{line} is no field") };
    let tag = rest.trim().strip_prefix("tag=").map(|t| t.parse().expect("a tag is a number"));
    let format_default = rest.trim() == "format=Default";
    Field { what: self::what(what.trim()), name: name.to_owned(), tag, format_default }
}

fn what(word: &str) -> What {
    let number = |text: &str| text.parse().unwrap_or_else(|e| panic!("{word}: {e}"));
    if let Some(count) = word.strip_prefix("Struct/") {
        return What::Struct(number(count) as u8);
    }
    if let Some(types) = word.strip_prefix("Packed:") {
        let (in_type, out) = types.split_once(':').expect("in and out type");
        return What::Packed(number(in_type) as u8, number(out) as u8);
    }
    match word.strip_suffix(']').and_then(|w| w.split_once('[')) {
        None => What::Value(Kind::named(word)),
        Some((kind, "")) => What::Array(Kind::named(kind)),
        Some((kind, count)) => What::Fixed(Kind::named(kind), number(count)),
    }
}

impl Declaration {
    /// What an attribute is set to in the end, if it is written.
    pub(crate) fn given(&self, key: &str) -> Option<u64> {
        self.attributes.iter().rev().find(|(k, _)| k == key).map(|(_, v)| *v)
    }

    pub(crate) fn last(&self, key: &str, default: u64) -> u64 {
        self.given(key).unwrap_or(default)
    }

    pub(crate) fn all(&self, key: &str) -> u64 {
        self.attributes.iter().filter(|(k, _)| k == key).fold(0, |all, (_, v)| all | v)
    }

    /// The event descriptor as it is in memory.
    pub(crate) fn descriptor(&self) -> Vec<u8> {
        let mut bytes = (self.last("id", 0) as u16).to_le_bytes().to_vec();
        bytes.extend(
            [("version", 0), ("channel", 11), ("level", 5), ("opcode", 0)]
                .map(|(k, d)| self.last(k, d) as u8),
        );
        bytes.extend([0, 0]);
        bytes.extend(self.all("keyword").to_le_bytes());
        bytes
    }

    /// The metadata that the builder makes of it.
    pub(crate) fn metadata(&self) -> Vec<u8> {
        let mut builder = MetadataBuilder::new(&self.name, self.all("tag") as u32);
        for field in &self.fields {
            let (in_type, out, arity) = match &field.what {
                What::Value(kind) if kind.name == "Custom" => {
                    (kind.in_type, kind.out, Arity::Custom(CUSTOM_SCHEMA))
                }
                What::Value(kind) => (kind.in_type, kind.out, Arity::Scalar),
                What::Array(kind) => (kind.in_type, kind.out, Arity::Variable),
                What::Fixed(kind, count) => (kind.in_type, kind.out, Arity::Fixed(*count)),
                What::Struct(members) => (TYPE_STRUCT, *members, Arity::Scalar),
                What::Packed(in_type, out) if in_type & 64 != 0 => (in_type & 31, *out, Arity::Variable),
                What::Packed(in_type, out) => (*in_type, *out, Arity::Scalar),
            };
            let tags = field.tag.unwrap_or(0);
            builder.add(&FieldMetadata { name: field.name.as_bytes(), in_type, out, tags, arity });
        }
        builder.finish().unwrap_or_else(|e| panic!("{}: {e}", self.name)).to_vec()
    }

    /// The data of its fields, end to end.
    pub(crate) fn payload(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in &self.fields {
            match &field.what {
                What::Value(kind) => bytes.extend(&kind.bytes()[0]),
                What::Array(kind) => {
                    bytes.extend(3u16.to_le_bytes());
                    bytes.extend(kind.bytes().concat());
                }
                What::Fixed(kind, count) => bytes.extend(kind.bytes()[..usize::from(*count)].concat()),
                What::Struct(_) => {}
                What::Packed(..) => bytes.extend(PACKED_BYTES),
            }
        }
        bytes
    }
}
