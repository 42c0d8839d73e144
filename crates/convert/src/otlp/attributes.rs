//! Attributes: names with typed values, in the JSON encoding of OTLP.
//!
//! ```text
//!   {"key":"Count","value":{"intValue":"7"}}
//!
//!   field   integer       other number   Boolean     bytes          text, GUID, time, SID, names
//!   value   intValue      doubleValue    boolValue   bytesValue     stringValue
//!           as text                                  in Base64
//!   array   arrayValue    structure   kvlistValue
//! ```
//!
//! Integers above the range of a signed 64-bit number become texts. A key occurs once: a name that
//! occurs again gets a number. [`push_string`] is the one function that writes names and texts.

use traceweir_analysis::event::DescribedEvent;
use traceweir_decode::format::{Style, push_json, push_json_string};
use traceweir_decode::schema::{Field, FieldKind, Schema};
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::spec::types::OutType;

use crate::json::UniqueKeys;

/// The most bytes of the attributes of one event. A few bytes of payload can give a long text.
const MAX_ATTRIBUTE_BYTES: usize = 1 << 20;
/// The most attributes of one event.
const MAX_ATTRIBUTES: usize = 4096;
/// The bytes of a key in the set of keys, without its text.
const KEY_BYTES: usize = 64;

/// Appends a text in quotes, with escapes.
pub(crate) fn push_string(text: &str, out: &mut Vec<u8>) {
    push_json_string(text, out);
}

/// Appends `"key":` after a comma, unless the object begins there.
pub(crate) fn push_key(key: &str, out: &mut Vec<u8>) {
    push_separator(out);
    push_string(key, out);
    out.push(b':');
}

/// Appends a comma between elements and members.
pub(crate) fn push_separator(out: &mut Vec<u8>) {
    if !matches!(out.last(), Some(b'{' | b'[') | None) {
        out.push(b',');
    }
}

/// Attributes that are being built: the elements of a JSON array.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    json: Vec<u8>,
    keys: UniqueKeys,
    /// Number of attributes that were left out.
    pub(crate) dropped: u64,
}

impl Attributes {
    pub(crate) fn clear(&mut self) {
        self.json.clear();
        self.keys.clear();
        self.dropped = 0;
    }

    /// Returns the elements of the array.
    pub(crate) fn json(&self) -> &[u8] {
        &self.json
    }

    /// Returns the estimated memory, in bytes. The set of keys has a copy of each key.
    pub(crate) fn memory_bytes(&self) -> usize {
        let keys = self.keys.len().saturating_mul(KEY_BYTES).saturating_add(self.json.len());
        self.json.capacity().saturating_add(keys)
    }

    fn is_full(&self) -> bool {
        self.json.len() > MAX_ATTRIBUTE_BYTES || self.keys.len() >= MAX_ATTRIBUTES
    }

    /// Begins an attribute; its value must follow, and then [`end`](Self::end).
    fn begin(&mut self, key: &str) {
        let unique = self.keys.make_unique(key);
        if !self.json.is_empty() {
            self.json.push(b',');
        }
        self.json.extend_from_slice(b"{\"key\":");
        push_string(&unique, &mut self.json);
        self.json.extend_from_slice(b",\"value\":");
    }

    fn end(&mut self) {
        self.json.push(b'}');
    }

    pub(crate) fn add_text(&mut self, key: &str, text: &str) {
        self.begin(key);
        push_text_value(text, &mut self.json);
        self.end();
    }

    /// Adds a text of a further event. `prefix` precedes a name that occurs already.
    pub(crate) fn add_prefixed_text(&mut self, prefix: &str, key: &str, text: &str) {
        if self.is_full() {
            self.dropped = self.dropped.saturating_add(1);
        } else if self.keys.contains(key) {
            self.add_text(&format!("{prefix}{key}"), text);
        } else {
            self.add_text(key, text);
        }
    }

    pub(crate) fn add_integer(&mut self, key: &str, number: u64) {
        self.begin(key);
        push_unsigned_value(number, &mut self.json);
        self.end();
    }

    fn add_bytes(&mut self, key: &str, bytes: &[u8]) {
        self.begin(key);
        push_bytes_value(bytes, &mut self.json);
        self.end();
    }

    /// Adds the fields of an event. `prefix` precedes names that occur already. Returns whether all
    /// fields could be decoded.
    pub(crate) fn add_fields(
        &mut self,
        event: &DescribedEvent<'_>,
        prefix: &str,
        walker: &mut Walker,
    ) -> bool {
        let schema_match = match &event.schema_match {
            Ok(schema_match) => schema_match,
            Err(reason) => {
                if !event.record.payload().is_empty() {
                    self.add_bytes("etw.payload", limit(event.record.payload()));
                }
                self.add_text("etw.undecoded", &reason.to_string());
                return false;
            }
        };
        let schema = &schema_match.prepared.schema;
        let mut visitor = FieldVisitor { attributes: self, schema, prefix, containers: Vec::new() };
        let walked = walker.walk(schema, schema_match.payload, event.record.pointer_size(), &mut visitor);
        if let Err(reason) = &walked {
            if self.is_full() {
                self.dropped = self.dropped.saturating_add(1);
            } else {
                self.add_text("etw.undecoded", &reason.to_string());
            }
        }
        walked.is_ok() || self.is_full()
    }
}

fn limit(bytes: &[u8]) -> &[u8] {
    bytes.get(..1 << 16).unwrap_or(bytes)
}

fn push_text_value(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"stringValue\":");
    push_string(text, out);
    out.push(b'}');
}

/// Appends an integer: as a text, because readers of JSON round large numbers.
fn push_unsigned_value(number: u64, out: &mut Vec<u8>) {
    let kind = if i64::try_from(number).is_ok() { "intValue" } else { "stringValue" };
    out.extend_from_slice(format!("{{\"{kind}\":\"{number}\"}}").as_bytes());
}

fn push_bytes_value(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"bytesValue\":\"");
    push_base64(bytes, out);
    out.extend_from_slice(b"\"}");
}

fn push_base64(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in bytes.chunks(3) {
        let mut word = [0; 4];
        word.iter_mut().skip(1).zip(group).for_each(|(to, from)| *to = *from);
        let word = u32::from_be_bytes(word);
        for (index, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let digit = DIGITS.get((word >> shift & 63) as usize).copied().unwrap_or(b'=');
            out.push(if index <= group.len() { digit } else { b'=' });
        }
    }
}

/// Appends the value of a field as an `AnyValue`.
fn push_value(field: &Field, value: &Value<'_>, out: &mut Vec<u8>) {
    let (output, has_map) = match &field.kind {
        FieldKind::Value { output, map, .. } => (*output, map.is_some()),
        FieldKind::Struct { .. } => (OutType::NULL, false),
    };
    let is_plain = !has_map && matches!(output, OutType::NULL | OutType::HEXBINARY | OutType::NOPRINT);
    match *value {
        Value::Null => out.extend_from_slice(b"{}"),
        Value::Bytes(bytes) if is_plain => push_bytes_value(bytes, out),
        Value::F32(number) if is_plain => push_double(number.into(), out),
        Value::F64(number) if is_plain => push_double(number, out),
        _ => push_formatted(field, value, out),
    }
}

fn push_double(number: f64, out: &mut Vec<u8>) {
    let text = match number {
        _ if number.is_nan() => "\"NaN\"".to_owned(),
        _ if number.is_infinite() && number > 0.0 => "\"Infinity\"".to_owned(),
        _ if number.is_infinite() => "\"-Infinity\"".to_owned(),
        _ => format!("{number:?}"),
    };
    out.extend_from_slice(format!("{{\"doubleValue\":{text}}}").as_bytes());
}

/// Appends a value in the form that its schema demands: a number, a Boolean or a text.
fn push_formatted(field: &Field, value: &Value<'_>, out: &mut Vec<u8>) {
    let mut json = Vec::new();
    push_json(field, value, Style::default(), &mut json);
    let is_integer = value.as_u64().is_some() && !matches!(value, Value::Bool(_));
    let digits = json.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(&json);
    let number = std::str::from_utf8(digits).ok().filter(|_| is_integer);
    let (kind, value): (&str, &[u8]) = match (number.and_then(|text| text.parse::<i64>().ok()), json.first())
    {
        (Some(number), _) => {
            out.extend_from_slice(format!("{{\"intValue\":\"{number}\"}}").as_bytes());
            return;
        }
        (None, Some(b'"')) => ("stringValue", &json),
        (None, Some(b't' | b'f')) => ("boolValue", &json),
        (None, Some(b'n') | None) => return out.extend_from_slice(b"{}"),
        (None, Some(_)) => ("doubleValue", &json),
    };
    out.extend_from_slice(format!("{{\"{kind}\":").as_bytes());
    out.extend_from_slice(value);
    out.push(b'}');
}

/// What surrounds a value.
#[derive(Debug)]
enum Container {
    Array,
    /// With the keys of its members.
    Structure(UniqueKeys),
}

/// Builds attributes from the fields of a payload.
struct FieldVisitor<'a> {
    attributes: &'a mut Attributes,
    schema: &'a Schema,
    prefix: &'a str,
    /// The arrays and structures that are open, the innermost last.
    containers: Vec<Container>,
}

impl FieldVisitor<'_> {
    /// Begins a value: an attribute, a member of a structure, or an element of an array.
    fn begin(&mut self, field: &Field) {
        let name = &*field.name;
        let attributes = &mut *self.attributes;
        match self.containers.last_mut() {
            None if !self.prefix.is_empty() && attributes.keys.contains(name) => {
                attributes.begin(&format!("{}{name}", self.prefix));
            }
            None => attributes.begin(name),
            Some(Container::Structure(keys)) => {
                let unique = keys.make_unique(name);
                push_separator(&mut attributes.json);
                attributes.json.extend_from_slice(b"{\"key\":");
                push_string(&unique, &mut attributes.json);
                attributes.json.extend_from_slice(b",\"value\":");
            }
            Some(Container::Array) => push_separator(&mut attributes.json),
        }
    }

    fn end(&mut self) {
        if !matches!(self.containers.last(), Some(Container::Array)) {
            self.attributes.end();
        }
    }

    fn open(&mut self, field: &Field, container: Container, start: &[u8]) {
        self.begin(field);
        self.attributes.json.extend_from_slice(start);
        self.containers.push(container);
    }

    fn close(&mut self) {
        self.containers.pop();
        self.attributes.json.extend_from_slice(b"]}}");
        self.end();
    }
}

impl<'p> Visitor<'p> for FieldVisitor<'_> {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        if self.schema.is_padding(field) {
            return;
        }
        self.begin(field);
        push_value(field, &value, &mut self.attributes.json);
        self.end();
    }

    fn begin_array(&mut self, _: usize, field: &Field, _: usize) {
        self.open(field, Container::Array, b"{\"arrayValue\":{\"values\":[");
    }

    fn end_array(&mut self, _: usize, _: &Field) {
        self.close();
    }

    fn begin_struct(&mut self, _: usize, field: &Field) {
        self.open(field, Container::Structure(UniqueKeys::default()), b"{\"kvlistValue\":{\"values\":[");
    }

    fn end_struct(&mut self, _: usize, _: &Field) {
        self.close();
    }

    fn is_full(&self) -> bool {
        self.attributes.is_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_decode::schema::SchemaOrigin;
    use traceweir_format::spec::types::InType;

    fn base64(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        push_base64(bytes, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn base64_has_the_published_test_vectors() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ];
        for (text, expected) in vectors {
            assert_eq!(base64(text.as_bytes()), expected);
        }
        assert_eq!(base64(&[0xFF, 0xEF, 0xBE]), "/+++");
    }

    #[test]
    fn padding_is_left_out_and_members_have_unique_keys() {
        let mut schema = Schema::default();
        schema.origin = SchemaOrigin::Kernel;
        let fields = vec![
            Field::value("x", InType::UINT8, OutType::NULL),
            Field::value("Reserved", InType::UINT8, OutType::NOPRINT),
            Field::new("s", FieldKind::Struct { first: 3, members: 2 }),
            Field::value("x", InType::UINT8, OutType::NULL),
            Field::value("x", InType::UINT8, OutType::NULL),
        ];
        let schema = schema.seal(fields, 3).unwrap();
        let mut attributes = Attributes::default();
        let mut visitor =
            FieldVisitor { attributes: &mut attributes, schema: &schema, prefix: "", containers: Vec::new() };
        Walker::default().walk(&schema, &[1, 2, 3, 4], 8, &mut visitor).unwrap();
        let json = [b"[", attributes.json(), b"]"].concat();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let keys = |list: &serde_json::Value| -> Vec<String> {
            list.as_array().unwrap().iter().map(|a| a["key"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(keys(&json), ["x", "s"]);
        assert_eq!(keys(&json[1]["value"]["kvlistValue"]["values"]), ["x", "x:2"]);
    }

    #[test]
    fn hostile_names_stay_in_their_strings_and_keys_are_unique() {
        let mut attributes = Attributes::default();
        for name in ["a", "a", "\"}],\"x\":[{\"", "\u{0}\n\u{2028}\\", "a:2"] {
            attributes.add_text(name, name);
        }
        attributes.add_integer("big", u64::MAX);
        attributes.add_integer("small", 5);
        let json = [b"[", attributes.json(), b"]"].concat();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let keys: Vec<&str> = json.as_array().unwrap().iter().map(|a| a["key"].as_str().unwrap()).collect();
        assert_eq!(keys, ["a", "a:2", "\"}],\"x\":[{\"", "\u{0}\n\u{2028}\\", "a:2:2", "big", "small"]);
        assert_eq!(json[2]["value"]["stringValue"], keys[2]);
        assert_eq!(json[5]["value"]["stringValue"], "18446744073709551615");
        assert_eq!(json[6]["value"]["intValue"], "5");
    }
}
