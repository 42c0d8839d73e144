//! Expands the message of an event with its fields as inserts.

use crate::error::Undecoded;
use crate::format::{Style, push_text};
use crate::message::InsertFormat;
use crate::schema::Field;
use crate::source::SchemaMatch;
use crate::value::Value;
use crate::walk::{Visitor, Walker};

/// The size limit of all inserts of a message in bytes, since a few bytes of payload can give a
/// long text.
const MAX_INSERT_BYTES: usize = 4 << 20;

/// Expands the messages of events; keeps its memory between events.
#[derive(Debug, Default)]
pub struct MessageExpander {
    walker: Walker,
    inserts: Inserts,
}

/// The top-level fields of one event as text, and as numbers if they are integers, pointers or
/// Booleans.
#[derive(Debug, Default)]
struct Inserts {
    text: Vec<u8>,
    /// For each insert, the end of its text and, if it is a number, its value and the size of its
    /// type in bytes.
    ends: Vec<(usize, Option<(i128, usize)>)>,
    depth: usize,
    style: Style,
}

impl MessageExpander {
    /// Appends the message of an event and returns whether the payload fits the schema. Returns
    /// `None` if the event has no message.
    pub fn expand(
        &mut self,
        matched: &SchemaMatch<'_, '_>,
        pointer_size: usize,
        style: Style,
        out: &mut Vec<u8>,
    ) -> Option<Result<(), Undecoded>> {
        let message = matched.prepared.message.as_ref()?;
        self.inserts.text.clear();
        self.inserts.ends.clear();
        (self.inserts.depth, self.inserts.style) = (0, style);
        // If the payload ends early, the message keeps the placeholders of later fields (`%3`).
        let schema = &matched.prepared.schema;
        let walked = self.walker.walk(schema, matched.payload, pointer_size, &mut self.inserts);
        let inserts = &self.inserts;
        message.expand(out, &mut |number, format, out| inserts.append_insert(number, format, out));
        Some(walked.map(|_| ()))
    }
}

impl Inserts {
    fn append_insert(&self, number: usize, format: Option<&InsertFormat>, out: &mut Vec<u8>) -> bool {
        let Some(index) = number.checked_sub(1) else { return false };
        let Some((end, value)) = self.ends.get(index) else { return false };
        let start = index.checked_sub(1).and_then(|previous| self.ends.get(previous)).map_or(0, |e| e.0);
        let text = self.text.get(start..*end).unwrap_or_default();
        match (format, value) {
            (Some(format), Some((value, bytes))) if !format.is_text() => {
                format.push_number(*value, *bytes, out)
            }
            (Some(format), _) => format.push_text(&String::from_utf8_lossy(text), out),
            (None, _) => out.extend_from_slice(text),
        }
        true
    }

    fn end_insert(&mut self, value: Option<(i128, usize)>) {
        if self.depth == 0 {
            self.ends.push((self.text.len(), value));
        }
    }

    fn close_bracket(&mut self, bracket: u8) {
        self.text.push(bracket);
        self.depth = self.depth.saturating_sub(1);
        self.end_insert(None);
    }

    fn open_bracket(&mut self, bracket: u8) {
        self.push_separator();
        self.text.push(bracket);
        self.depth = self.depth.saturating_add(1);
    }

    fn push_separator(&mut self) {
        if self.depth > 0 && !matches!(self.text.last(), Some(b'[' | b'{')) {
            self.text.extend_from_slice(b", ");
        }
    }
}

impl<'p> Visitor<'p> for Inserts {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        self.push_separator();
        push_text(field, &value, self.style, &mut self.text);
        self.end_insert(integer_and_size(&value));
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {
        self.open_bracket(b'[');
    }
    fn end_array(&mut self, _: usize, _: &Field) {
        self.close_bracket(b']');
    }
    fn begin_struct(&mut self, _: usize, _: &Field) {
        self.open_bracket(b'{');
    }
    fn end_struct(&mut self, _: usize, _: &Field) {
        self.close_bracket(b'}');
    }
    fn is_full(&self) -> bool {
        self.text.len() > MAX_INSERT_BYTES
    }
}

/// Returns an integer, pointer or Boolean as a number, and the size of its type in bytes.
fn integer_and_size(value: &Value<'_>) -> Option<(i128, usize)> {
    Some(match *value {
        Value::I8(v) => (i128::from(v), 1),
        Value::U8(v) => (i128::from(v), 1),
        Value::I16(v) => (i128::from(v), 2),
        Value::U16(v) => (i128::from(v), 2),
        Value::I32(v) => (i128::from(v), 4),
        Value::U32(v) => (i128::from(v), 4),
        Value::I64(v) => (i128::from(v), 8),
        Value::U64(v) | Value::Pointer(v) => (i128::from(v), 8),
        Value::Bool(v) => (i128::from(v), 4),
        _ => return None,
    })
}
