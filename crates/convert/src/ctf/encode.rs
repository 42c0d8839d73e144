//! Encodes payloads as their layout says, little-endian and without padding.

use traceweir_decode::format::{Style, push_text};
use traceweir_decode::schema::{Field, FieldKind};
use traceweir_decode::value::Value;
use traceweir_decode::walk::Visitor;
use traceweir_format::spec::types::OutType;

use super::layout::{FieldType, IntegerType, Layout};

/// The limit of the encoded fields of one event: a few bytes of a payload can describe many values.
const MAX_EVENT_BYTES: usize = 4 << 20;

/// The character that stands for NUL in texts, which end with NUL.
pub(super) const NUL_SYMBOL: &str = "\u{2400}";

/// An array or structure that has not ended.
enum OpenField {
    /// The position of the count, and the number of elements so far.
    Array {
        count_at: usize,
        count: u32,
    },
    Struct,
}

/// Encodes the fields of one event.
pub(super) struct PayloadEncoder<'a> {
    layout: &'a Layout,
    out: &'a mut Vec<u8>,
    open: Vec<OpenField>,
    /// The number of top-level fields that the payload has.
    present: usize,
    /// The top-level texts that are empty, one bit each.
    empty_texts: u64,
    /// Whether a value did not have the type of its field.
    has_failed: bool,
}

impl<'a> PayloadEncoder<'a> {
    pub(super) fn new(layout: &'a Layout, out: &'a mut Vec<u8>) -> Self {
        Self { layout, out, open: Vec::new(), present: 0, empty_texts: 0, has_failed: false }
    }

    /// Returns the number of top-level fields and the texts of these that are empty; `None` if a value
    /// does not have the type of its field.
    pub(super) fn finish(self) -> Option<(usize, u64)> {
        (!self.has_failed && self.open.is_empty()).then_some((self.present, self.empty_texts))
    }

    /// Counts an element of the innermost array, or a top-level field.
    fn count(&mut self, index: usize) {
        match self.open.last_mut() {
            Some(OpenField::Array { count, .. }) => *count = count.saturating_add(1),
            Some(OpenField::Struct) => {}
            None => {
                // The payload has the top-level fields in order, without gaps.
                self.has_failed |= index != self.present;
                self.present = index.saturating_add(1);
            }
        }
    }

    fn encode_value(&mut self, field: &Field, field_type: FieldType, value: &Value<'_>) -> Option<()> {
        match (field_type, *value) {
            (FieldType::Integer(integer), _) => encode_integer(integer, value, self.out)?,
            (FieldType::Float32, Value::F32(number)) => self.out.extend_from_slice(&number.to_le_bytes()),
            (FieldType::Float64, Value::F64(number)) => self.out.extend_from_slice(&number.to_le_bytes()),
            (FieldType::Bytes, Value::Bytes(bytes)) => push_bytes(bytes, self.out),
            (FieldType::Padding, _) => {}
            (FieldType::Text, _) => encode_text(field, value, self.out),
            _ => return None,
        }
        Some(())
    }
}

impl<'p> Visitor<'p> for PayloadEncoder<'_> {
    fn value(&mut self, index: usize, field: &Field, value: Value<'p>) {
        self.count(index);
        let start = self.out.len();
        let encoded =
            self.layout.field_type(index).and_then(|field_type| self.encode_value(field, field_type, &value));
        self.has_failed |= encoded.is_none();
        let is_empty_text = self.layout.field_type(index) == Some(FieldType::Text)
            && self.out.len() == start.saturating_add(1);
        if is_empty_text && self.open.is_empty() {
            self.empty_texts |=
                u32::try_from(index).ok().and_then(|index| 1_u64.checked_shl(index)).unwrap_or(0);
        }
    }

    fn begin_array(&mut self, index: usize, _: &Field, _: usize) {
        self.count(index);
        self.open.push(OpenField::Array { count_at: self.out.len(), count: 0 });
        self.out.extend_from_slice(&[0; 4]);
    }

    fn end_array(&mut self, _: usize, _: &Field) {
        let Some(OpenField::Array { count_at, count }) = self.open.pop() else {
            self.has_failed = true;
            return;
        };
        if let Some(bytes) = self.out.get_mut(count_at..count_at.saturating_add(4)) {
            bytes.copy_from_slice(&count.to_le_bytes());
        }
    }

    fn begin_struct(&mut self, index: usize, _: &Field) {
        self.count(index);
        self.open.push(OpenField::Struct);
    }

    fn end_struct(&mut self, _: usize, _: &Field) {
        self.has_failed |= !matches!(self.open.pop(), Some(OpenField::Struct));
    }

    fn is_full(&self) -> bool {
        self.out.len() > MAX_EVENT_BYTES
    }
}

fn encode_integer(integer: IntegerType, value: &Value<'_>, out: &mut Vec<u8>) -> Option<()> {
    let mut number = value.as_u64()?;
    if integer.is_port
        && let Ok(port) = u16::try_from(value.bits()?)
    {
        number = port.swap_bytes().into();
    }
    out.extend_from_slice(number.to_le_bytes().get(..usize::from(integer.bytes))?);
    Some(())
}

/// Appends a value as text. Dates are in UTC, as the Z at their end says.
fn encode_text(field: &Field, value: &Value<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    match value {
        Value::Guid(guid) => out.extend_from_slice(&guid.to_ascii()),
        _ => push_text(field, value, Style::default(), out),
    }
    let is_date = matches!(value, Value::FileTime(_) | Value::SystemTime(_))
        || (value.as_u64().is_some() && has_date_type(field));
    let text = out.get(start..).unwrap_or_default();
    if is_date && text.contains(&b'T') && !text.ends_with(b"Z") {
        out.push(b'Z');
    }
    end_text(start, out);
}

fn has_date_type(field: &Field) -> bool {
    let FieldKind::Value { output, map: None, .. } = &field.kind else { return false };
    matches!(*output, OutType::DATETIME | OutType::DATETIME_UTC | OutType::CIMDATETIME)
}

/// Ends a text that begins at `start`.
fn end_text(start: usize, out: &mut Vec<u8>) {
    let text = out.get(start..).unwrap_or_default();
    if text.contains(&0) || std::str::from_utf8(text).is_err() {
        let clean = String::from_utf8_lossy(text).replace('\0', NUL_SYMBOL);
        out.truncate(start);
        out.extend_from_slice(clean.as_bytes());
    }
    out.push(0);
}

/// Appends a text.
pub(super) fn push_text_field(text: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(text);
    end_text(start, out);
}

/// Appends a number of bytes and the bytes.
pub(super) fn push_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(bytes);
}
