//! Writes the fields of an event as JSON, equal to the member `fields` of `weir dump --format jsonl`.

use traceweir_analysis::grep::MAX_FIELDS_BYTES;
use traceweir_decode::Undecoded;
use traceweir_decode::format::{Style, is_plain_json, push_json, push_u64};
use traceweir_decode::schema::{Field, FieldKind};
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::source::prepared::PreparedSchema;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::spec::types::{InType, OutType};

/// The largest integer that JSON shows as a number.
const MAX_JSON_NUMBER: u64 = 1 << 53;

const STYLE: Style = Style { numeric: false };

/// Returns whether an unsigned integer of a field is shown in decimal, without names.
#[inline]
fn shows_decimal(field: &Field) -> bool {
    matches!(
        &field.kind,
        FieldKind::Value {
            input: InType::UINT8 | InType::UINT16 | InType::UINT32 | InType::UINT64,
            output: OutType::NULL | OutType::PID | OutType::TID,
            map: None,
        }
    )
}

/// The brackets that are open: two bits each, the innermost lowest; 3 for an array, 2 for a
/// structure. Schemas nest at most 8 deep, so 64 bits suffice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JsonNesting(u64);

impl JsonNesting {
    /// Returns whether no bracket is open.
    pub(crate) const fn is_closed(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    fn push_label(self, prepared: &PreparedSchema, index: usize, out: &mut Vec<u8>) {
        if !matches!(out.last(), Some(b'{' | b'[')) {
            out.push(b',');
        }
        if self.0 & 1 == 0 {
            prepared.push_json_key(index, out);
        }
    }

    /// Opens an array or structure that is a value of its own, without a label.
    pub(crate) fn open_unlabelled(&mut self, is_array: bool, out: &mut Vec<u8>) {
        out.push(if is_array { b'[' } else { b'{' });
        self.0 = self.0 << 2 | 2 | u64::from(is_array);
    }

    pub(crate) fn open(
        &mut self,
        prepared: &PreparedSchema,
        index: usize,
        is_array: bool,
        out: &mut Vec<u8>,
    ) {
        self.push_label(prepared, index, out);
        self.open_unlabelled(is_array, out);
    }

    pub(crate) fn close(&mut self, is_array: bool, out: &mut Vec<u8>) {
        self.0 >>= 2;
        out.push(if is_array { b']' } else { b'}' });
    }

    #[inline(always)]
    pub(crate) fn push_value(
        self,
        prepared: &PreparedSchema,
        index: usize,
        field: &Field,
        value: &Value<'_>,
        out: &mut Vec<u8>,
    ) {
        self.push_label(prepared, index, out);
        push_field_value(field, value, out);
    }
}

#[inline(always)]
fn push_field_value(field: &Field, value: &Value<'_>, out: &mut Vec<u8>) {
    match *value {
        Value::U8(v) if shows_decimal(field) => push_u64(v.into(), out),
        Value::U16(v) if shows_decimal(field) => push_u64(v.into(), out),
        Value::U32(v) if shows_decimal(field) => push_u64(v.into(), out),
        Value::U64(v) if shows_decimal(field) && v <= MAX_JSON_NUMBER => push_u64(v, out),
        Value::Text8(bytes) if is_plain_json(bytes) && has_no_map(field) => {
            out.push(b'"');
            out.extend_from_slice(bytes);
            out.push(b'"');
        }
        _ => push_json(field, value, STYLE, out),
    }
}

/// Appends the payload of an event as a JSON object, and returns the bytes that no field claimed. If
/// the payload does not fit the schema, the object has the fields before the defect.
#[inline]
pub(crate) fn push_payload<'p>(
    walker: &mut Walker,
    schema_match: &SchemaMatch<'_, 'p>,
    pointer_size: usize,
    out: &mut Vec<u8>,
) -> Result<&'p [u8], Undecoded> {
    let (prepared, payload) = (schema_match.prepared, schema_match.payload);
    let start = out.len();
    out.push(b'{');
    let flat = if prepared.schema.is_flat() { push_flat(prepared, payload, pointer_size, out) } else { None };
    let walked = match flat {
        Some(rest) => Ok(rest),
        None => {
            out.truncate(start.saturating_add(1));
            let mut fields = JsonFields::new(out, prepared);
            walker.walk(&prepared.schema, payload, pointer_size, &mut fields)
        }
    };
    out.push(b'}');
    walked
}

/// Appends the fields of a [flat](traceweir_decode::schema::Schema::is_flat) schema, as [`JsonFields`]
/// does, and returns the bytes that no field claimed. Returns `None` for a payload that lacks fields
/// or whose fields are too long: only a walk says what is wrong.
#[inline(always)]
fn push_flat<'p>(
    prepared: &PreparedSchema,
    payload: &'p [u8],
    pointer_size: usize,
    out: &mut Vec<u8>,
) -> Option<&'p [u8]> {
    let start = out.len();
    let max_len = start.saturating_add(MAX_FIELDS_BYTES);
    let mut rest = payload;
    for (index, field) in prepared.schema.top().iter().enumerate() {
        if rest.is_empty() {
            return None;
        }
        if prepared.schema.is_padding(field) {
            (_, rest) = field.fast_path().split_value(rest, pointer_size)?;
            continue;
        }
        if out.len() > start {
            out.push(b',');
        }
        prepared.push_json_key(index, out);
        let value;
        (value, rest) = field.fast_path().split_value(rest, pointer_size)?;
        push_field_value(field, &value, out);
        if out.len() > max_len {
            return None;
        }
    }
    Some(rest)
}

#[inline]
fn has_no_map(field: &Field) -> bool {
    matches!(field.kind, FieldKind::Value { map: None, .. })
}

/// Writes `"name":value` pairs.
struct JsonFields<'a> {
    out: &'a mut Vec<u8>,
    prepared: &'a PreparedSchema,
    nesting: JsonNesting,
    max_len: usize,
}

impl<'a> JsonFields<'a> {
    /// Creates a visitor that appends to `out`, which ends with `{`.
    fn new(out: &'a mut Vec<u8>, prepared: &'a PreparedSchema) -> Self {
        let max_len = out.len().saturating_add(MAX_FIELDS_BYTES);
        Self { out, prepared, nesting: JsonNesting::default(), max_len }
    }
}

impl<'p> Visitor<'p> for JsonFields<'_> {
    #[inline(always)]
    fn value(&mut self, index: usize, field: &Field, value: Value<'p>) {
        if self.prepared.schema.is_padding(field) {
            return;
        }
        self.nesting.push_value(self.prepared, index, field, &value, self.out);
    }
    fn begin_array(&mut self, index: usize, _: &Field, _: usize) {
        self.nesting.open(self.prepared, index, true, self.out);
    }
    fn end_array(&mut self, _: usize, _: &Field) {
        self.nesting.close(true, self.out);
    }
    fn begin_struct(&mut self, index: usize, _: &Field) {
        self.nesting.open(self.prepared, index, false, self.out);
    }
    fn end_struct(&mut self, _: usize, _: &Field) {
        self.nesting.close(false, self.out);
    }
    #[inline]
    fn is_full(&self) -> bool {
        self.out.len() > self.max_len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use traceweir_decode::schema::{Schema, SchemaOrigin, ValueMap};

    fn field(name: &str, input: InType, output: OutType) -> Field {
        Field::value(name, input, output)
    }

    #[test]
    fn flat_payloads_equal_walked_ones_at_every_length() {
        let map = ValueMap::new("m", false, [(7, "seven \"7\"".to_owned())]);
        let kind = FieldKind::Value { input: InType::UINT8, output: OutType::NULL, map: Some(Arc::new(map)) };
        let fields = vec![
            field("a", InType::UINT8, OutType::NULL),
            Field::new("named", kind),
            field("padding", InType::UINT16, OutType::NOPRINT),
            field("b", InType::UINT32, OutType::HEXINT32),
            field("c", InType::UINT64, OutType::NULL),
            field("d", InType::INT32, OutType::NULL),
            field("p", InType::POINTER, OutType::NULL),
            field("plain", InType::ANSISTRING, OutType::NULL),
            field("escaped", InType::ANSISTRING, OutType::NULL),
            field("wide", InType::UNICODESTRING, OutType::NULL),
        ];
        let count = fields.len();
        let mut payload = vec![200, 7, 1, 2];
        payload.extend_from_slice(&77_u32.to_le_bytes());
        payload.extend_from_slice(&u64::MAX.to_le_bytes());
        payload.extend_from_slice(&(-5_i32).to_le_bytes());
        payload.extend_from_slice(&[0xAB; 8]);
        payload.extend_from_slice(b"plain\0a\"b\xE9\0x\0\xAC\x20\0\0rest");
        for origin in [SchemaOrigin::Kernel, SchemaOrigin::TraceLogging] {
            let mut schema = Schema::default().seal(fields.clone(), count).unwrap();
            schema.origin = origin;
            assert!(schema.is_flat());
            let prepared = PreparedSchema::new(schema);
            for (end, pointer_size) in (0..=payload.len()).flat_map(|end| [(end, 4), (end, 8)]) {
                let payload = &payload[..end];
                let (mut flat, mut walked) = (b"before".to_vec(), b"before{".to_vec());
                let schema_match = SchemaMatch { prepared: &prepared, payload };
                let flat_rest = push_payload(&mut Walker::default(), &schema_match, pointer_size, &mut flat);
                let mut fields = JsonFields::new(&mut walked, &prepared);
                let rest = Walker::default().walk(&prepared.schema, payload, pointer_size, &mut fields);
                walked.push(b'}');
                let texts = [&flat, &walked].map(|text| String::from_utf8(text.clone()).unwrap());
                assert_eq!(texts[0], texts[1], "{end} bytes, pointers of {pointer_size}");
                assert_eq!(flat_rest, rest, "{end} bytes, pointers of {pointer_size}");
            }
        }
    }
}
