//! Writes the fields of an event as JSON, equal to the member `fields` of `weir dump --format jsonl`.

use traceweir_analysis::grep::MAX_FIELDS_BYTES;
use traceweir_decode::format::{Style, is_plain_json, push_json, push_u64};
use traceweir_decode::schema::{Field, FieldKind};
use traceweir_decode::source::prepared::PreparedSchema;
use traceweir_decode::value::Value;
use traceweir_decode::walk::Visitor;
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
}

#[inline]
fn has_no_map(field: &Field) -> bool {
    matches!(field.kind, FieldKind::Value { map: None, .. })
}

/// Writes `"name":value` pairs.
pub(crate) struct JsonFields<'a> {
    out: &'a mut Vec<u8>,
    prepared: &'a PreparedSchema,
    nesting: JsonNesting,
    max_len: usize,
}

impl<'a> JsonFields<'a> {
    /// Creates a visitor that appends to `out`, which ends with `{`.
    pub(crate) fn new(out: &'a mut Vec<u8>, prepared: &'a PreparedSchema) -> Self {
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
