//! Visitors that write the fields of an event as text or JSON.

use traceweir_analysis::grep::MAX_FIELDS_BYTES;
use traceweir_decode::format::{
    Style, hex_lower, hex_upper, is_plain_json, is_plain_word, push_json, push_text, push_u64, push_word,
};
use traceweir_decode::schema::{Field, FieldKind};
use traceweir_decode::source::PreparedSchema;
use traceweir_decode::value::Value;
use traceweir_decode::walk::Visitor;
use traceweir_format::spec::types::{InType, OutType};

/// Returns whether a field is not meant for people.
fn is_hidden(field: &Field) -> bool {
    matches!(field.kind, FieldKind::Value { output: OutType::NOPRINT, .. })
}

/// Returns whether a value is written as text that may need quotes.
fn may_need_quotes(field: &Field, value: &Value<'_>) -> bool {
    matches!(value, Value::Text16(_) | Value::Text8(_) | Value::Bytes(_))
        || matches!(
            field.kind,
            FieldKind::Value { output: OutType::STRING, .. } | FieldKind::Value { map: Some(_), .. }
        )
}

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

/// Returns whether a pointer of a field is shown in hexadecimal, without names.
#[inline]
fn shows_address(field: &Field) -> bool {
    matches!(&field.kind, FieldKind::Value { output: OutType::NULL, map: None, .. })
}

/// The largest integer that JSON shows as a number.
const MAX_JSON_NUMBER: u64 = 1 << 53;

/// The open brackets, with two bits each and the innermost in the lowest bits: 3 for an array, 2
/// for a structure. 0 means no open bracket.
#[derive(Clone, Copy, Debug, Default)]
struct Nesting(u64);

impl Nesting {
    fn push(&mut self, is_array: bool) {
        self.0 = self.0 << 2 | 2 | u64::from(is_array);
    }
    fn pop(&mut self) {
        self.0 >>= 2;
    }
    fn is_in_array(self) -> bool {
        self.0 & 1 != 0
    }
}

/// Writes `"name":value` pairs.
pub(super) struct JsonFields<'a> {
    pub(super) out: &'a mut Vec<u8>,
    schema: &'a PreparedSchema,
    style: Style,
    nesting: Nesting,
    max_len: usize,
}

impl<'a> JsonFields<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, schema: &'a PreparedSchema, style: Style) -> Self {
        let max_len = out.len().saturating_add(MAX_FIELDS_BYTES);
        Self { out, schema, style, nesting: Nesting::default(), max_len }
    }

    #[inline(always)]
    fn write_label(&mut self, index: usize) {
        if !matches!(self.out.last(), Some(b'{' | b'[')) {
            self.out.push(b',');
        }
        if !self.nesting.is_in_array() {
            self.schema.push_json_key(index, self.out);
        }
    }
}

impl<'p> Visitor<'p> for JsonFields<'_> {
    #[inline(always)]
    fn value(&mut self, index: usize, field: &Field, value: Value<'p>) {
        if self.schema.schema.is_padding(field) {
            return;
        }
        self.write_label(index);
        match value {
            // Fast paths for the most common kinds; `push_json` formats them equally.
            Value::U8(v) if shows_decimal(field) => push_u64(v.into(), self.out),
            Value::U16(v) if shows_decimal(field) => push_u64(v.into(), self.out),
            Value::U32(v) if shows_decimal(field) => push_u64(v.into(), self.out),
            Value::U64(v) if shows_decimal(field) && v <= MAX_JSON_NUMBER => push_u64(v, self.out),
            Value::Pointer(v) if shows_address(field) => {
                self.out.extend_from_slice(b"\"0x");
                hex_lower(v, self.out);
                self.out.push(b'"');
            }
            Value::Text8(bytes) if is_plain_json(bytes) => {
                self.out.push(b'"');
                self.out.extend_from_slice(bytes);
                self.out.push(b'"');
            }
            _ => push_json(field, &value, self.style, self.out),
        }
    }
    fn begin_array(&mut self, index: usize, _: &Field, _: usize) {
        self.write_label(index);
        self.out.push(b'[');
        self.nesting.push(true);
    }
    fn end_array(&mut self, _: usize, _: &Field) {
        self.nesting.pop();
        self.out.push(b']');
    }
    fn begin_struct(&mut self, index: usize, _: &Field) {
        self.write_label(index);
        self.out.push(b'{');
        self.nesting.push(false);
    }
    fn end_struct(&mut self, _: usize, _: &Field) {
        self.nesting.pop();
        self.out.push(b'}');
    }
    #[inline]
    fn is_full(&self) -> bool {
        self.out.len() > self.max_len
    }
}

/// Writes `name=value` pairs for people.
pub(super) struct TextFields<'a> {
    pub(super) out: &'a mut Vec<u8>,
    schema: &'a PreparedSchema,
    style: Style,
    nesting: Nesting,
    /// Memory for text that may need quotes.
    scratch: &'a mut Vec<u8>,
    max_len: usize,
}

impl<'a> TextFields<'a> {
    /// `scratch` is memory that the events of a trace share.
    pub(super) fn new(
        out: &'a mut Vec<u8>,
        schema: &'a PreparedSchema,
        style: Style,
        scratch: &'a mut Vec<u8>,
    ) -> Self {
        let max_len = out.len().saturating_add(MAX_FIELDS_BYTES);
        Self { out, schema, style, nesting: Nesting::default(), scratch, max_len }
    }

    #[inline(always)]
    fn write_label(&mut self, index: usize) {
        if self.nesting.0 == 0 {
            // A label begins with a space: at the top level every field follows other text.
            self.schema.push_label(index, self.out);
        } else {
            self.write_inner_label(index);
        }
    }

    #[inline(never)]
    fn write_inner_label(&mut self, index: usize) {
        let is_first = matches!(self.out.last(), Some(b'{' | b'['));
        match (self.nesting.is_in_array(), is_first) {
            (true, true) => {}
            (true, false) => self.out.push(b' '),
            (false, is_first) => {
                let label = self.schema.label(index);
                self.out.extend_from_slice(if is_first { label.get(1..).unwrap_or_default() } else { label });
            }
        }
    }

    /// Writes a value of any kind.
    #[inline(never)]
    fn write_value(&mut self, field: &Field, value: &Value<'_>) {
        if !may_need_quotes(field, value) {
            return push_text(field, value, self.style, self.out);
        }
        self.scratch.clear();
        push_text(field, value, self.style, self.scratch);
        push_word(self.scratch, self.out);
    }
}

impl<'p> Visitor<'p> for TextFields<'_> {
    #[inline(always)]
    fn value(&mut self, index: usize, field: &Field, value: Value<'p>) {
        if is_hidden(field) {
            return;
        }
        self.write_label(index);
        match value {
            // Fast paths: most text is one plain word, and most numbers have the default out type.
            Value::Text8(bytes) if is_plain_word(bytes) => self.out.extend_from_slice(bytes),
            Value::U8(v) if shows_decimal(field) => push_u64(v.into(), self.out),
            Value::U16(v) if shows_decimal(field) => push_u64(v.into(), self.out),
            Value::U32(v) if shows_decimal(field) => push_u64(v.into(), self.out),
            Value::U64(v) if shows_decimal(field) => push_u64(v, self.out),
            Value::Pointer(v) if shows_address(field) => {
                self.out.extend_from_slice(b"0x");
                hex_upper(v, self.out);
            }
            _ => self.write_value(field, &value),
        }
    }
    fn begin_array(&mut self, index: usize, _: &Field, _: usize) {
        self.write_label(index);
        self.out.push(b'[');
        self.nesting.push(true);
    }
    fn end_array(&mut self, _: usize, _: &Field) {
        self.nesting.pop();
        self.out.push(b']');
    }
    fn begin_struct(&mut self, index: usize, _: &Field) {
        self.write_label(index);
        self.out.push(b'{');
        self.nesting.push(false);
    }
    fn end_struct(&mut self, _: usize, _: &Field) {
        self.nesting.pop();
        self.out.push(b'}');
    }
    #[inline]
    fn is_full(&self) -> bool {
        self.out.len() > self.max_len
    }
}
