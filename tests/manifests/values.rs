//! Values for every field of an event: as Rust arguments, as C arguments, and as the bytes that the
//! arguments must become.
//!
//! The bytes are built from the schema alone, independently of the code under test.

use std::fmt::Write;

use traceweir_decode::schema::{Count, Field, FieldKind, Length, Schema};
use traceweir_format::spec::types::InType;

/// The size of the values: typical, smallest or large values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    Typical,
    Minimal,
    Large,
}

impl Variant {
    pub(super) const ALL: [Self; 3] = [Self::Typical, Self::Minimal, Self::Large];

    fn choose<T>(self, typical: T, minimal: T, large: T) -> T {
        match self {
            Self::Typical => typical,
            Self::Minimal => minimal,
            Self::Large => large,
        }
    }
}

/// The arguments of a call that writes an event, in Rust and in C, and the payload that it writes.
#[derive(Default)]
pub(super) struct WriteCall {
    pub(super) rust: Vec<String>,
    pub(super) c: Vec<String>,
    pub(super) bytes: Vec<u8>,
}

/// Builds the arguments for all fields of an event.
pub(super) fn build_call(schema: &Schema, template: &str, variant: Variant) -> WriteCall {
    let builder =
        ValueBuilder { schema, template, variant, prefix: format!("{}::", provider_module(schema)) };
    let mut call = WriteCall::default();
    builder.add_fields(schema.top(), 0, &mut |_, rust, c, bytes| {
        call.rust.extend(rust);
        call.c.push(c);
        call.bytes.extend(bytes);
    });
    call
}

pub(super) fn provider_module(schema: &Schema) -> String {
    schema.names.provider.as_deref().unwrap_or_default().to_lowercase().replace('-', "_")
}

struct ValueBuilder<'s> {
    schema: &'s Schema,
    template: &'s str,
    variant: Variant,
    /// Rust path of the provider's module, which contains the generated structures.
    prefix: String,
}

/// Formats bytes as a C compound literal, or as `NULL` if there are none.
fn c_bytes(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "NULL".to_owned();
    }
    let mut list = String::new();
    bytes.iter().for_each(|byte| _ = write!(list, "{byte},"));
    format!("(const unsigned char[]){{{list}}}")
}

/// Formats bytes as a Rust byte string.
fn rust_bytes(bytes: &[u8]) -> String {
    format!("b\"{}\"", bytes.escape_ascii())
}

fn utf16_bytes(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn c_utf16_literal(text: &str) -> String {
    let escaped: String = text.encode_utf16().fold(String::new(), |mut literal, unit| {
        match u8::try_from(unit) {
            Ok(byte @ (b'a'..=b'z' | b'A'..=b'Z' | b' ')) => literal.push(byte.into()),
            // The literal ends after the escape, which would include hexadecimal digits after it.
            _ => _ = write!(literal, "\\x{unit:04x}\" u\""),
        }
        literal
    });
    format!("u\"{escaped}\"")
}

impl ValueBuilder<'_> {
    /// Returns whether the event has structures. Nested sizes multiply, so values of such events
    /// are shorter: an event has at most 64 KiB.
    fn is_nested(&self) -> bool {
        self.schema.fields().len() > self.schema.top().len()
    }

    /// Returns the value of the size field `index`, which is the number of elements or units of the
    /// fields that refer to it.
    fn referenced_size(&self, index: u16) -> usize {
        let is_byte = matches!(
            self.schema.fields()[usize::from(index)].kind,
            FieldKind::Value { input: InType::UINT8, .. }
        );
        let largest = match (self.is_nested(), is_byte) {
            (true, _) => 40,
            (false, true) => 255,
            (false, false) => 300,
        };
        self.variant.choose(2, 0, largest)
    }

    /// Builds the values of consecutive fields, the first of which has the index `first`. `add`
    /// gets the index, the Rust value (`None` for a size field, which only C functions take), the C
    /// value and the bytes.
    fn add_fields(
        &self,
        fields: &[Field],
        first: usize,
        add: &mut dyn FnMut(usize, Option<String>, String, Vec<u8>),
    ) {
        for (index, field) in (first..).zip(fields) {
            if field.is_referenced {
                let size = self.referenced_size(index as u16);
                let FieldKind::Value { input, .. } = field.kind else {
                    panic!("a size field is not a number")
                };
                let bytes = (size as u64).to_le_bytes()[..byte_width(input)].to_vec();
                add(index, None, size.to_string(), bytes);
                continue;
            }
            let count = match field.count {
                Count::One => None,
                Count::Fixed(count) => Some(usize::from(count)),
                Count::Field(index) => Some(self.referenced_size(index)),
                _ => panic!("manifests have no such count"),
            };
            let (rust, c, bytes) = match (&field.kind, count) {
                (FieldKind::Struct { .. }, _) => self.struct_value(field, count),
                (FieldKind::Value { input, .. }, None) => self.single_value(*input, field.length, index),
                (FieldKind::Value { input, .. }, Some(count)) => {
                    self.array_value(*input, field.length, index, count)
                }
            };
            add(index, Some(rust), c, bytes);
        }
    }

    fn struct_value(&self, field: &Field, count: Option<usize>) -> (String, String, Vec<u8>) {
        let FieldKind::Struct { first, members } = field.kind else { panic!("the field is not a structure") };
        let members = self.schema.members(first, members);
        let (mut values, mut bytes) = (Vec::new(), Vec::new());
        for _ in 0..count.unwrap_or(1) {
            let mut named_values = String::new();
            self.add_fields(members, first.into(), &mut |index, rust, _, member_bytes| {
                if let Some(rust) = rust {
                    let name = members[index - usize::from(first)].name.to_lowercase();
                    let name = if name == "type" { "type_" } else { &name };
                    let _ = write!(named_values, "{name}: {rust}, ");
                }
                bytes.extend(member_bytes);
            });
            let (initial, tail) = self.template.split_at(1);
            let type_name = format!("{}{}{tail}{}", self.prefix, initial.to_uppercase(), field.name);
            values.push(format!("{type_name} {{ {named_values} }}"));
        }
        let rust = match count {
            None => format!("&{}", values[0]),
            Some(_) => format!("&[{}]", values.join(", ")),
        };
        (rust, format!("{}, {}", bytes.len(), c_bytes(&bytes)), bytes)
    }

    fn array_value(
        &self,
        input: InType,
        length: Length,
        index: usize,
        count: usize,
    ) -> (String, String, Vec<u8>) {
        let (mut rust, mut c, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for element in 0..count {
            let (element_rust, element_c, element_bytes) = self.single_value(input, length, index + element);
            rust.push(element_rust);
            c.push(element_c);
            bytes.extend(element_bytes);
        }
        let c = match input {
            // The number of characters, not of bytes.
            InType::UNICODESTRING => {
                format!("{}, (PCWSTR)(const void *){}", bytes.len() / 2, c_bytes(&bytes))
            }
            _ if count == 0 => "NULL".to_owned(),
            // A value passed by address has the same layout in memory as in the payload.
            InType::GUID => format!("(const GUID *)(const void *){}", c_bytes(&bytes)),
            _ => format!("(const {}[]){{{}}}", c_type(input), c.join(", ")),
        };
        (format!("&[{}]", rust.join(", ")), c, bytes)
    }

    /// Builds one value: the Rust argument, the C argument and the bytes.
    fn single_value(&self, input: InType, length: Length, index: usize) -> (String, String, Vec<u8>) {
        let variant = self.variant;
        // -1 has all bits set, so it is the largest value of an unsigned field.
        let number = variant.choose(index as i64 + 1, 0, -1);
        let text = variant.choose(
            format!("text é {index}"),
            String::new(),
            "\u{1d11e}x".repeat(if self.is_nested() { 5 } else { 300 }),
        );
        match input {
            InType::UNICODESTRING => match self.declared_length(length) {
                None => {
                    (format!("{text:?}"), c_utf16_literal(&text), [utf16_bytes(&text), vec![0; 2]].concat())
                }
                Some(units) => {
                    let text = "x".repeat(units);
                    (format!("{text:?}"), c_utf16_literal(&text), utf16_bytes(&text))
                }
            },
            InType::ANSISTRING => match self.declared_length(length) {
                None => (
                    format!("{text:?}.as_bytes()"),
                    format!("(PCSTR){}", c_bytes(&[text.as_bytes(), &[0]].concat())),
                    [text.as_bytes(), &[0]].concat(),
                ),
                Some(units) => {
                    let text = vec![b'y'; units];
                    (rust_bytes(&text), format!("(PCSTR){}", c_bytes(&text)), text)
                }
            },
            InType::BINARY => {
                let bytes: Vec<u8> = (0..self.declared_length(length).unwrap())
                    .map(|offset| (offset * 7 + index) as u8)
                    .collect();
                (rust_bytes(&bytes), c_bytes(&bytes), bytes)
            }
            InType::COUNTEDSTRING => {
                let bytes = utf16_bytes(&text);
                (
                    format!("{text:?}"),
                    format!("{}, {}", bytes.len(), c_utf16_literal(&text)),
                    prefix_with_length(&bytes),
                )
            }
            InType::COUNTEDANSISTRING | InType::COUNTEDBINARY => (
                rust_bytes(text.as_bytes()),
                format!("{}, {}", text.len(), c_bytes(text.as_bytes())),
                prefix_with_length(text.as_bytes()),
            ),
            InType::FLOAT => {
                let value = variant.choose(1.5_f32, f32::MIN, f32::MAX);
                (format!("{value:?}_f32"), format!("{value:e}f"), value.to_le_bytes().to_vec())
            }
            InType::DOUBLE => {
                let value = variant.choose(-2.25_f64, f64::MIN, f64::MAX);
                (format!("{value:?}_f64"), format!("{value:e}"), value.to_le_bytes().to_vec())
            }
            InType::BOOLEAN => {
                let value = variant.choose(true, false, true);
                (value.to_string(), i32::from(value).to_string(), i32::from(value).to_le_bytes().to_vec())
            }
            InType::GUID | InType::SYSTEMTIME => {
                let bytes: Vec<u8> =
                    (0..16).map(|offset| variant.choose(offset + index as u8, 0, 255)).collect();
                let rust = match input {
                    InType::GUID => format!("traceweir::Guid::from_bytes({})", rust_bytes(&bytes)),
                    _ => format!(
                        "{:?}",
                        bytes
                            .chunks(2)
                            .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
                            .collect::<Vec<_>>()
                    ),
                };
                let ty = if input == InType::GUID { "GUID" } else { "SYSTEMTIME" };
                (rust, format!("(const {ty} *)(const void *){}", c_bytes(&bytes)), bytes)
            }
            InType::SID => {
                let authorities = variant.choose(2, 0, 15);
                let mut bytes = vec![1, authorities, 0, 0, 0, 0, 0, 5];
                bytes.resize(8 + 4 * usize::from(authorities), 9);
                (rust_bytes(&bytes), c_bytes(&bytes), bytes)
            }
            InType::FILETIME => {
                let bytes = number.to_le_bytes().to_vec();
                (
                    format!("{}_u64", number as u64),
                    format!("(const FILETIME *)(const void *){}", c_bytes(&bytes)),
                    bytes,
                )
            }
            _ => integer_value(input, number),
        }
    }

    fn declared_length(&self, length: Length) -> Option<usize> {
        match length {
            Length::Natural => None,
            Length::Fixed(units) => Some(units.into()),
            Length::Field(index) => Some(self.referenced_size(index)),
        }
    }
}

fn prefix_with_length(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat()
}

fn byte_width(input: InType) -> usize {
    match input {
        InType::INT8 | InType::UINT8 => 1,
        InType::INT16 | InType::UINT16 => 2,
        InType::INT32 | InType::UINT32 | InType::HEXINT32 => 4,
        _ => 8,
    }
}

fn c_type(input: InType) -> &'static str {
    match input {
        InType::UINT32 => "ULONG",
        InType::INT64 => "LONGLONG",
        InType::DOUBLE => "double",
        InType::BOOLEAN => "BOOL",
        unexpected => panic!("the manifests have an array of {unexpected:?}"),
    }
}

fn integer_value(input: InType, number: i64) -> (String, String, Vec<u8>) {
    let bytes = number.to_le_bytes()[..byte_width(input)].to_vec();
    let mask = u64::MAX >> (64 - 8 * byte_width(input));
    let unsigned = number as u64 & mask;
    match input {
        InType::INT8 | InType::INT16 | InType::INT32 | InType::INT64 => {
            (format!("{number}"), format!("{number}"), bytes)
        }
        InType::POINTER => (format!("{unsigned}_usize"), format!("(const void *){unsigned}ull"), bytes),
        _ => (format!("{unsigned}"), format!("{unsigned}ull"), bytes),
    }
}
