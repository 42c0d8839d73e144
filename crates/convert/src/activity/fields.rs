//! Reads the fields of an event into values that outlive the event.
//!
//! | value | stored as |
//! |---|---|
//! | integer, decimal or hexadecimal up to 32 bits | integer |
//! | pointer, 64-bit hexadecimal | text such as `0x1f` |
//! | text | text |
//! | mapped value, date, GUID, address, bytes | its JSON text without quotes |
//!
//! The number of values and the bytes of texts of one event are limited, because a few bytes of
//! metadata can describe many values.

use std::sync::Arc;

use traceweir_decode::format::{Style, push_json, push_text};
use traceweir_decode::schema::{Field, FieldKind, Schema};
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::spec::types::{InType, OutType};

/// The most values of one event.
const MAX_VALUES: usize = 1 << 12;
/// The most bytes of texts of one event; an event has at most 64 KiB, and UTF-16 may become longer.
const MAX_TEXT_BYTES: usize = 192 << 10;
/// The most bytes that are kept of a payload without a schema.
const MAX_RAW_BYTES: usize = 4096;

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldValue {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer without sign.
    Unsigned(u64),
    /// A negative integer.
    Signed(i64),
    /// A number with a fraction.
    Double(f64),
    /// A text.
    Text(Box<str>),
    /// Values of one type.
    Array(Vec<FieldValue>),
    /// Values with names.
    Struct(Vec<(Arc<str>, FieldValue)>),
}

impl FieldValue {
    /// Returns a number as `f64`; `None` for other values.
    #[allow(clippy::cast_precision_loss)] // Counters are shown, not compared.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Unsigned(value) => Some(*value as f64),
            Self::Signed(value) => Some(*value as f64),
            Self::Double(value) => Some(*value),
            _ => None,
        }
    }
}

/// The fields of an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    /// Names and values, in the order of the payload.
    pub values: Vec<(Arc<str>, FieldValue)>,
    /// Whether values are missing, because the event has too many or its payload is damaged.
    pub is_incomplete: bool,
    /// Estimated memory of the values.
    bytes: usize,
}

impl Fields {
    /// Returns fields that are not those of an event.
    pub(crate) fn from_values(values: Vec<(Arc<str>, FieldValue)>) -> Self {
        let bytes = values.len().saturating_mul(VALUE_BYTES * 2);
        Self { values, is_incomplete: false, bytes }
    }

    /// Adds a text that is not a field of the payload.
    pub(super) fn add_text(&mut self, name: Arc<str>, text: &str) {
        self.bytes = self.bytes.saturating_add(VALUE_BYTES).saturating_add(text.len());
        self.values.push((name, FieldValue::Text(text.into())));
    }

    /// Returns no fields, in place of fields that are left out.
    pub(super) const fn left_out() -> Self {
        Self { values: Vec::new(), is_incomplete: true, bytes: 0 }
    }

    /// Returns the estimated memory of the values, in bytes.
    pub(super) const fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the top-level field of a name.
    pub fn get(&self, name: &str) -> Option<&FieldValue> {
        self.values.iter().find(|(key, _)| **key == *name).map(|(_, value)| value)
    }

    /// Keeps the start of a payload without a schema as hexadecimal text.
    pub(super) fn from_raw(payload: &[u8]) -> Self {
        let kept = payload.get(..payload.len().min(MAX_RAW_BYTES)).unwrap_or_default();
        if kept.is_empty() {
            return Self::default();
        }
        let mut text = String::with_capacity(kept.len() * 2);
        for byte in kept {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
            }
        }
        let bytes = text.len() + VALUE_BYTES;
        let values = vec![(Arc::from("payload"), FieldValue::Text(text.into()))];
        Self { values, is_incomplete: payload.len() > kept.len(), bytes }
    }
}

/// Estimated memory of a value, without its text.
const VALUE_BYTES: usize = size_of::<(Arc<str>, FieldValue)>();

enum Container {
    Struct(Arc<str>, Vec<(Arc<str>, FieldValue)>),
    Array(Arc<str>, Vec<FieldValue>),
}

/// Collects values; the innermost open array or structure is the last container.
struct FieldCollector<'s> {
    schema: &'s Schema,
    open: Vec<Container>,
    top: Vec<(Arc<str>, FieldValue)>,
    count: usize,
    name_bytes: usize,
    text_bytes: usize,
    buffer: Vec<u8>,
}

impl FieldCollector<'_> {
    fn add(&mut self, name: &Arc<str>, value: FieldValue) {
        self.count = self.count.saturating_add(1);
        if !matches!(self.open.last(), Some(Container::Array(..))) {
            // A waiting event may be the last owner of the names of its fields.
            self.name_bytes = self.name_bytes.saturating_add(name.len());
        }
        match self.open.last_mut() {
            Some(Container::Struct(_, members)) => members.push((Arc::clone(name), value)),
            Some(Container::Array(_, elements)) => elements.push(value),
            None => self.top.push((Arc::clone(name), value)),
        }
    }

    fn close(&mut self) {
        match self.open.pop() {
            Some(Container::Struct(name, members)) => self.add(&name, FieldValue::Struct(members)),
            Some(Container::Array(name, elements)) => self.add(&name, FieldValue::Array(elements)),
            None => {}
        }
    }

    fn text(&mut self, text: &str) -> FieldValue {
        self.text_bytes = self.text_bytes.saturating_add(text.len());
        FieldValue::Text(text.into())
    }

    fn convert(&mut self, field: &Field, value: &Value<'_>) -> FieldValue {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let converted = match value {
            Value::Null => FieldValue::Null,
            Value::Bool(value) => FieldValue::Bool(*value),
            // The shortest decimal form that gives the 32-bit number, not all digits of the 64-bit one.
            Value::F32(value) => FieldValue::Double(value.to_string().parse().unwrap_or((*value).into())),
            Value::F64(value) => FieldValue::Double(*value),
            Value::Text8(_) | Value::Text16(_) => {
                push_text(field, value, Style::default(), &mut buffer);
                self.text(&String::from_utf8_lossy(&buffer))
            }
            _ => self.convert_displayed(field, value, &mut buffer),
        };
        self.buffer = buffer;
        converted
    }

    /// Converts a value whose out type may show it as something other than a number.
    fn convert_displayed(&mut self, field: &Field, value: &Value<'_>, buffer: &mut Vec<u8>) -> FieldValue {
        // The most common fields need no formatting. Hexadecimal types have a format of their own.
        if let FieldKind::Value { input, output: OutType::NULL, map: None } = &field.kind
            && [InType::UINT8, InType::UINT16, InType::UINT32, InType::UINT64].contains(input)
            && let Some(number) = value.as_u64()
        {
            return FieldValue::Unsigned(number);
        }
        push_json(field, value, Style::default(), buffer);
        let json = String::from_utf8_lossy(buffer);
        let inner = json.strip_prefix('"').and_then(|json| json.strip_suffix('"'));
        let digits = inner.unwrap_or(&json);
        // JSON has integers above 2⁵³ as texts.
        if value.as_u64().is_some() {
            if let Ok(number) = digits.parse::<u64>() {
                return FieldValue::Unsigned(number);
            }
            if let Ok(number) = digits.parse::<i64>() {
                return FieldValue::Signed(number);
            }
        }
        match (inner, &*json) {
            (None, "true") => FieldValue::Bool(true),
            (None, "false") => FieldValue::Bool(false),
            (None, "null") => FieldValue::Null,
            (Some(inner), _) if !inner.contains('\\') => self.text(inner),
            _ => {
                let mut text = Vec::new();
                push_text(field, value, Style::default(), &mut text);
                self.text(&String::from_utf8_lossy(&text))
            }
        }
    }
}

impl<'p> Visitor<'p> for FieldCollector<'_> {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        if self.schema.is_padding(field) {
            return;
        }
        let converted = self.convert(field, &value);
        self.add(&field.name, converted);
    }
    fn begin_array(&mut self, _: usize, field: &Field, _: usize) {
        self.open.push(Container::Array(Arc::clone(&field.name), Vec::new()));
    }
    fn end_array(&mut self, _: usize, _: &Field) {
        self.close();
    }
    fn begin_struct(&mut self, _: usize, field: &Field) {
        self.open.push(Container::Struct(Arc::clone(&field.name), Vec::new()));
    }
    fn end_struct(&mut self, _: usize, _: &Field) {
        self.close();
    }
    fn is_full(&self) -> bool {
        self.count >= MAX_VALUES || self.text_bytes >= MAX_TEXT_BYTES
    }
}

/// Reads the fields of an event.
pub(super) fn read_fields(
    walker: &mut Walker,
    schema_match: &SchemaMatch<'_, '_>,
    pointer_size: usize,
) -> Fields {
    let schema = &schema_match.prepared.schema;
    let mut collector = FieldCollector {
        schema,
        open: Vec::new(),
        top: Vec::new(),
        count: 0,
        name_bytes: 0,
        text_bytes: 0,
        buffer: Vec::new(),
    };
    let walked = walker.walk(schema, schema_match.payload, pointer_size, &mut collector);
    while !collector.open.is_empty() {
        collector.close();
    }
    let texts = collector.text_bytes.saturating_add(collector.name_bytes);
    let bytes = collector.count.saturating_mul(VALUE_BYTES * 2).saturating_add(texts);
    Fields { values: collector.top, is_incomplete: walked.is_err(), bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_decode::schema::{Count, SchemaOrigin};
    use traceweir_decode::source::PreparedSchema;

    fn read(fields: Vec<Field>, top: usize, payload: &[u8]) -> Fields {
        let prepared = PreparedSchema::new(Schema::default().seal(fields, top).unwrap());
        read_fields(&mut Walker::default(), &SchemaMatch { prepared: &prepared, payload }, 8)
    }

    #[test]
    fn values_keep_their_types() {
        let fields = vec![
            Field::value("u", InType::UINT32, OutType::NULL),
            Field::value("i", InType::INT32, OutType::NULL),
            Field::value("big", InType::UINT64, OutType::NULL),
            Field::value("hex", InType::UINT64, OutType::HEXINT64),
            Field::value("text", InType::ANSISTRING, OutType::NULL),
            Field::value("hex type", InType::HEXINT64, OutType::NULL),
        ];
        let mut payload = Vec::new();
        payload.extend_from_slice(&7_u32.to_le_bytes());
        payload.extend_from_slice(&(-7_i32).to_le_bytes());
        payload.extend_from_slice(&u64::MAX.to_le_bytes());
        payload.extend_from_slice(&0x1F_u64.to_le_bytes());
        payload.extend_from_slice(b"a\"b\\\x01\0");
        payload.extend_from_slice(&4_u64.to_le_bytes());
        let fields = read(fields, 6, &payload);
        assert_eq!(fields.get("hex type"), Some(&FieldValue::Text("0x4".into())));
        assert_eq!(fields.get("u"), Some(&FieldValue::Unsigned(7)));
        assert_eq!(fields.get("i"), Some(&FieldValue::Signed(-7)));
        assert_eq!(fields.get("big"), Some(&FieldValue::Unsigned(u64::MAX)));
        assert_eq!(fields.get("hex"), Some(&FieldValue::Text("0x1f".into())));
        assert_eq!(fields.get("text"), Some(&FieldValue::Text("a\"b\\\u{1}".into())));
        assert!(!fields.is_incomplete);
    }

    #[test]
    fn padding_of_kernel_events_is_left_out() {
        let fields = || {
            vec![
                Field::value("a", InType::UINT8, OutType::NULL),
                Field::value("Reserved", InType::UINT8, OutType::NOPRINT),
            ]
        };
        for (origin, count) in [(SchemaOrigin::Kernel, 1), (SchemaOrigin::Manifest, 2)] {
            let mut schema = Schema::default();
            schema.origin = origin;
            let schema = schema.seal(fields(), 2).unwrap();
            let prepared = PreparedSchema::new(schema);
            let schema_match = SchemaMatch { prepared: &prepared, payload: &[1, 2] };
            let fields = read_fields(&mut Walker::default(), &schema_match, 8);
            assert_eq!(fields.values.len(), count, "{origin:?}");
        }
    }

    #[test]
    fn arrays_and_structures_nest() {
        let fields = vec![
            Field::new("s", FieldKind::Struct { first: 1, members: 2 }).with_count(Count::Fixed(2)),
            Field::value("x", InType::UINT8, OutType::NULL),
            Field::value("y", InType::UINT8, OutType::NULL),
        ];
        let fields = read(fields, 1, &[1, 2, 3, 4]);
        let member = |x, y| {
            FieldValue::Struct(vec![
                ("x".into(), FieldValue::Unsigned(x)),
                ("y".into(), FieldValue::Unsigned(y)),
            ])
        };
        assert_eq!(fields.get("s"), Some(&FieldValue::Array(vec![member(1, 2), member(3, 4)])));
    }

    #[test]
    fn number_of_values_is_limited() {
        let fields = vec![Field::value("a", InType::UINT16, OutType::NULL).with_count(Count::ToEnd)];
        let fields = read(fields, 1, &[1; 60_000]);
        assert!(fields.is_incomplete);
        let Some(FieldValue::Array(elements)) = fields.get("a") else { panic!("{fields:?}") };
        assert_eq!(elements.len(), MAX_VALUES);
        let raw = Fields::from_raw(&[0xAB; MAX_RAW_BYTES + 1]);
        let Some(FieldValue::Text(text)) = raw.get("payload") else { panic!("{raw:?}") };
        assert!(raw.is_incomplete && text.len() == 2 * MAX_RAW_BYTES && text.starts_with("abab"));
    }

    #[test]
    fn damaged_payload_keeps_the_values_before_the_damage() {
        let fields = vec![
            Field::value("a", InType::UINT32, OutType::NULL),
            Field::value("b", InType::UINT32, OutType::NULL),
        ];
        let fields = read(fields, 2, &[1, 0, 0, 0, 2]);
        assert_eq!(fields.values.len(), 1);
        assert!(fields.is_incomplete);
    }
}
