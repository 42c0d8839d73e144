//! Renders a payload as text, as JSON and as its message, and checks the guarantees of each.

use traceweir_decode::format::{Style, push_json, push_text};
use traceweir_decode::schema::{Field, MAX_DEPTH};
use traceweir_decode::source::PreparedSchema;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_decode::{Decoder, Schema};
use traceweir_format::Record;

/// Renders the values that a walk visits, and counts them.
#[derive(Default)]
pub struct Renderer {
    json: Vec<u8>,
    text: Vec<u8>,
    /// Offset at which the text of each top-level field ends, for message inserts.
    field_ends: Vec<usize>,
    depth: usize,
    /// For each open array and structure, whether it is an array.
    in_array: Vec<bool>,
    visited: usize,
    style: Style,
}

/// The largest output of one record in bytes, whatever the record contains.
const MAX_OUTPUT_BYTES: usize = 64 << 20;

impl Renderer {
    /// Walks a payload and checks the guarantees of walker and formatters. `numeric` ignores maps.
    pub fn render_payload(
        &mut self,
        prepared: &PreparedSchema,
        payload: &[u8],
        pointer_size: usize,
        numeric: bool,
    ) {
        *self = Self { style: Style { numeric }, ..Self::default() };
        let schema = &prepared.schema;
        self.json.push(b'{');
        let mut keyed = KeyedRenderer { renderer: self, prepared };
        let result = Walker::default().walk(schema, payload, pointer_size, &mut keyed);
        if let Ok(remaining) = &result {
            assert!(payload.ends_with(remaining), "the remaining bytes must be the end of the payload");
        }
        let max_visited = max_visited_values(schema, payload.len());
        assert!(self.visited <= max_visited, "{} values visited, {max_visited} allowed", self.visited);
        assert!((self.depth, self.in_array.len()) == (0, 0), "every array and structure must be closed");
        self.json.push(b'}');
        assert!(self.json.len().max(self.text.len()) < MAX_OUTPUT_BYTES, "the output must be bounded");
        check_json(&self.json);
        assert!(std::str::from_utf8(&self.text).is_ok(), "the text must be UTF-8");
        self.check_message(prepared);
        // An error has a text and a status.
        if let Err(error) = result {
            assert!(!error.to_string().is_empty());
            assert_ne!(error.status().0, 0);
        }
    }

    fn check_message(&self, prepared: &PreparedSchema) {
        let Some(message) = &prepared.message else { return };
        let mut out = Vec::new();
        message.expand(&mut out, &mut |number, spec, out| {
            let field_end = |index: usize| self.field_ends.get(index).copied();
            let end = number.checked_sub(1).and_then(field_end);
            let start = number.checked_sub(2).and_then(field_end).unwrap_or(0);
            let Some(text) = end.and_then(|end| self.text.get(start..end)) else { return false };
            let text = String::from_utf8_lossy(text);
            match spec {
                Some(spec) if spec.is_text() => spec.push_text(&text, out),
                Some(spec) => spec.push_number(text.len() as i128, 8, out),
                None => out.extend_from_slice(text.as_bytes()),
            }
            true
        });
        assert!(std::str::from_utf8(&out).is_ok(), "the message must be UTF-8");
    }

    fn push_separator(&mut self) {
        if !matches!(self.json.last(), Some(b'{' | b'[')) {
            self.json.push(b',');
        }
    }

    fn end_field(&mut self) {
        if self.depth == 0 && self.in_array.is_empty() {
            self.field_ends.push(self.text.len());
        }
    }
}

/// Returns the largest number of values and structures that the walker may visit: each byte may be
/// a value inside [`MAX_DEPTH`] structures, and values of size 0 have an allowance.
fn max_visited_values(schema: &Schema, payload: usize) -> usize {
    payload * (MAX_DEPTH + 1) + (payload + schema.fields().len()) * 2 + 64 + MAX_DEPTH
}

fn check_json(bytes: &[u8]) {
    let parsed = serde_json::from_slice::<serde::de::IgnoredAny>(bytes);
    assert!(parsed.is_ok(), "{parsed:?}: {}", String::from_utf8_lossy(bytes));
}

struct KeyedRenderer<'r> {
    renderer: &'r mut Renderer,
    prepared: &'r PreparedSchema,
}

impl KeyedRenderer<'_> {
    /// Writes a comma if one is due, and the key if an object is open.
    fn push_key(&mut self, index: usize) {
        self.renderer.push_separator();
        if self.renderer.in_array.last() != Some(&true) {
            self.renderer.json.extend_from_slice(self.prepared.json_key(index));
        }
    }
}

impl<'p> Visitor<'p> for KeyedRenderer<'_> {
    fn value(&mut self, index: usize, field: &Field, value: Value<'p>) {
        self.push_key(index);
        let renderer = &mut *self.renderer;
        renderer.visited += 1;
        push_json(field, &value, renderer.style, &mut renderer.json);
        push_text(field, &value, renderer.style, &mut renderer.text);
        renderer.end_field();
    }

    fn begin_array(&mut self, index: usize, _: &Field, _: usize) {
        self.push_key(index);
        self.renderer.json.push(b'[');
        self.renderer.in_array.push(true);
    }

    fn end_array(&mut self, _: usize, _: &Field) {
        assert_eq!(self.renderer.in_array.pop(), Some(true));
        self.renderer.json.push(b']');
        self.renderer.end_field();
    }

    fn begin_struct(&mut self, index: usize, _: &Field) {
        self.push_key(index);
        self.renderer.visited += 1;
        self.renderer.json.push(b'{');
        self.renderer.in_array.push(false);
        self.renderer.depth += 1;
    }

    fn end_struct(&mut self, _: usize, _: &Field) {
        assert_eq!(self.renderer.in_array.pop(), Some(false));
        self.renderer.depth -= 1;
        self.renderer.json.push(b'}');
        self.renderer.end_field();
    }
}

/// A decoder with its renderer, for one record after the other.
#[derive(Default)]
pub struct RecordRenderer {
    /// The decoder, for manifests and message formats.
    pub decoder: Decoder,
    renderer: Renderer,
}

impl RecordRenderer {
    /// Learns from a record, finds its schema, and renders the payload with maps and without them.
    pub fn render_record(&mut self, record: &Record<'_>) {
        self.decoder.observe(record);
        match self.decoder.find(record) {
            Ok(found) => {
                assert!(
                    record.payload().ends_with(found.payload),
                    "the payload must be the end of the record"
                );
                for numeric in [false, true] {
                    self.renderer.render_payload(
                        found.prepared,
                        found.payload,
                        record.pointer_size(),
                        numeric,
                    );
                }
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert_ne!(error.status().0, 0);
            }
        }
    }
}
