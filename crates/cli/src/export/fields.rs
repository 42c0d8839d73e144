//! Visitors that write the fields of an event as text or JSON.

use traceweir_decode::format::{Style, json, text};
use traceweir_decode::schema::{Field, Kind, Origin};
use traceweir_decode::source::Known;
use traceweir_decode::value::Value;
use traceweir_decode::walk::Visitor;
use traceweir_format::spec::types::OutType;

/// Whether a field is not meant to be seen.
pub(super) fn is_hidden(field: &Field) -> bool {
    matches!(field.kind, Kind::Value { output: OutType::NOPRINT, .. })
}

/// Whether the value of a field is shown as words, which may hold anything.
fn is_worded(field: &Field, value: &Value<'_>) -> bool {
    matches!(value, Value::Text16(_) | Value::Text8(_) | Value::Bytes(_))
        || matches!(
            field.kind,
            Kind::Value { output: OutType::STRING, .. } | Kind::Value { map: Some(_), .. }
        )
}

/// Which of the open brackets are arrays: one bit each, the innermost lowest.
#[derive(Clone, Copy, Debug, Default)]
struct Nesting(u64);

impl Nesting {
    fn push(&mut self, array: bool) {
        self.0 = self.0 << 1 | u64::from(array);
    }
    fn pop(&mut self) {
        self.0 >>= 1;
    }
    fn in_array(self) -> bool {
        self.0 & 1 != 0
    }
}

/// Writes `"name":value` pairs.
pub(super) struct JsonFields<'a> {
    pub(super) out: &'a mut Vec<u8>,
    known: &'a Known,
    style: Style,
    hide: bool,
    nesting: Nesting,
}

impl<'a> JsonFields<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, known: &'a Known, style: Style) -> Self {
        // Padding of kernel events is nobody's data; what a provider marks so is still data for programs.
        let hide = known.schema.origin == Origin::Kernel;
        Self { out, known, style, hide, nesting: Nesting::default() }
    }

    #[inline]
    fn lead(&mut self, index: usize) {
        if !matches!(self.out.last(), Some(b'{' | b'[')) {
            self.out.push(b',');
        }
        if !self.nesting.in_array() {
            self.out.extend_from_slice(self.known.json_key(index));
        }
    }
}

impl<'p> Visitor<'p> for JsonFields<'_> {
    #[inline]
    fn value(&mut self, index: usize, field: &Field, value: Value<'p>) {
        if self.hide && is_hidden(field) {
            return;
        }
        self.lead(index);
        json(field, &value, self.style, self.out);
    }
    fn begin_array(&mut self, index: usize, _: &Field, _: usize) {
        self.lead(index);
        self.out.push(b'[');
        self.nesting.push(true);
    }
    fn end_array(&mut self, _: usize, _: &Field) {
        self.nesting.pop();
        self.out.push(b']');
    }
    fn begin_struct(&mut self, index: usize, _: &Field) {
        self.lead(index);
        self.out.push(b'{');
        self.nesting.push(false);
    }
    fn end_struct(&mut self, _: usize, _: &Field) {
        self.nesting.pop();
        self.out.push(b'}');
    }
}

/// Writes `name=value` pairs for people.
pub(super) struct TextFields<'a> {
    pub(super) out: &'a mut Vec<u8>,
    style: Style,
    nesting: Nesting,
}

impl<'a> TextFields<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, style: Style) -> Self {
        Self { out, style, nesting: Nesting::default() }
    }

    #[inline]
    fn lead(&mut self, field: &Field) {
        if !matches!(self.out.last(), Some(b'{' | b'[' | b' ')) {
            self.out.push(b' ');
        }
        if !self.nesting.in_array() {
            // TraceLogging names may hold anything.
            let plain = !field.name.is_empty() && field.name.bytes().all(is_plain);
            if plain {
                self.out.extend_from_slice(field.name.as_bytes());
            } else {
                let start = self.out.len();
                self.out.push(b'"');
                self.out.extend_from_slice(field.name.as_bytes());
                quote_if_needed(self.out, start);
            }
            self.out.push(b'=');
        }
    }
}

impl<'p> Visitor<'p> for TextFields<'_> {
    #[inline]
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        if is_hidden(field) {
            return;
        }
        self.lead(field);
        if !is_worded(field, &value) {
            return text(field, &value, self.style, self.out);
        }
        let start = self.out.len();
        self.out.push(b'"');
        text(field, &value, self.style, self.out);
        quote_if_needed(self.out, start);
    }
    fn begin_array(&mut self, _: usize, field: &Field, _: usize) {
        self.lead(field);
        self.out.push(b'[');
        self.nesting.push(true);
    }
    fn end_array(&mut self, _: usize, _: &Field) {
        self.nesting.pop();
        self.out.push(b']');
    }
    fn begin_struct(&mut self, _: usize, field: &Field) {
        self.lead(field);
        self.out.push(b'{');
        self.nesting.push(false);
    }
    fn end_struct(&mut self, _: usize, _: &Field) {
        self.nesting.pop();
        self.out.push(b'}');
    }
}

/// Whether a byte may stand in a word without quotes.
const fn is_plain(b: u8) -> bool {
    b.is_ascii_graphic() && !matches!(b, b'"' | b'{' | b'}' | b'[' | b']' | b'=')
}

/// Closes the quotes opened at `start`, or takes them away from a single plain word. Control characters are escaped.
fn quote_if_needed(out: &mut Vec<u8>, start: usize) {
    let word = out.get(start + 1..).unwrap_or_default();
    if !word.is_empty() && word.iter().copied().all(is_plain) {
        out.copy_within(start + 1.., start);
        out.pop();
        return;
    }
    // 0xC2 leads the control characters beyond ASCII.
    if word.iter().any(|b| *b < 0x20 || matches!(b, b'"' | 0x7F | 0xC2)) {
        let word = out.split_off(start + 1);
        for (index, piece) in word.split(|b| *b == b'"').enumerate() {
            if index > 0 {
                out.extend_from_slice(b"\\\"");
            }
            super::push_plain(piece, out);
        }
    }
    out.push(b'"');
}
