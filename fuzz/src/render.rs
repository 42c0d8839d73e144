//! Renders a payload as text, as JSON and as its message, and checks the guarantees of each.

use traceweir_decode::format::{Style, json, text};
use traceweir_decode::schema::{Field, MAX_DEPTH};
use traceweir_decode::source::PreparedSchema;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_decode::{Decoder, Schema};
use traceweir_format::Record;

/// Renders the values that a walk visits, and counts them.
#[derive(Default)]
pub struct Render {
    json: Vec<u8>,
    text: Vec<u8>,
    /// Offset at which the text of each top-level field ends, for message inserts.
    ends: Vec<usize>,
    depth: usize,
    in_array: Vec<bool>,
    visited: usize,
    style: Style,
}

/// The largest output in bytes. It lives only until the next record; a hostile record must not make
/// it large.
const MOST_OUTPUT: usize = 64 << 20;

impl Render {
    /// Walks a payload and checks the guarantees of walker and formatters. `numeric` ignores maps.
    pub fn payload(&mut self, known: &PreparedSchema, payload: &[u8], pointer_size: usize, numeric: bool) {
        *self = Self { style: Style { numeric }, ..Self::default() };
        let schema = &known.schema;
        self.json.push(b'{');
        let mut with_keys = Keyed { render: self, known };
        let result = Walker::default().walk(schema, payload, pointer_size, &mut with_keys);
        if let Ok(rest) = &result {
            assert!(payload.ends_with(rest), "the rest is the end of the payload");
        }
        let most = allowance(schema, payload.len());
        assert!(self.visited <= most, "{} values visited, {most} allowed", self.visited);
        assert!((self.depth, self.in_array.len()) == (0, 0), "arrays and structures end where they began");
        self.json.push(b'}');
        assert!(self.json.len().max(self.text.len()) < MOST_OUTPUT, "output is bounded");
        check_json(&self.json);
        assert!(std::str::from_utf8(&self.text).is_ok(), "text is UTF-8");
        self.message(known);
        // An error has a text and a status.
        if let Err(error) = result {
            assert!(!error.to_string().is_empty());
            assert_ne!(error.status().0, 0);
        }
    }

    fn message(&self, known: &PreparedSchema) {
        let Some(message) = &known.message else { return };
        let mut out = Vec::new();
        message.expand(&mut out, &mut |number, spec, out| {
            let end = number.checked_sub(1).and_then(|n| self.ends.get(n)).copied();
            let start = number.checked_sub(2).and_then(|n| self.ends.get(n)).copied().unwrap_or(0);
            let Some(text) = end.and_then(|end| self.text.get(start..end)) else { return false };
            let text = String::from_utf8_lossy(text);
            match spec {
                Some(spec) if spec.is_text() => spec.text(&text, out),
                Some(spec) => spec.number(text.len() as i128, 8, out),
                None => out.extend_from_slice(text.as_bytes()),
            }
            true
        });
        assert!(std::str::from_utf8(&out).is_ok(), "messages are UTF-8");
    }

    fn separate(&mut self) {
        if !matches!(self.json.last(), Some(b'{' | b'[')) {
            self.json.push(b',');
        }
    }

    fn end_of_field(&mut self) {
        if self.depth == 0 && self.in_array.is_empty() {
            self.ends.push(self.text.len());
        }
    }
}

/// Returns the most values that the walker documents: each byte may be one value inside each level
/// of structures, and values of size 0 have an allowance.
fn allowance(schema: &Schema, payload: usize) -> usize {
    payload * (MAX_DEPTH + 1) + (payload + schema.fields().len()) * 2 + 64 + MAX_DEPTH
}

fn check_json(bytes: &[u8]) {
    let parsed = serde_json::from_slice::<serde::de::IgnoredAny>(bytes);
    assert!(parsed.is_ok(), "{parsed:?}: {}", String::from_utf8_lossy(bytes));
}

struct Keyed<'r> {
    render: &'r mut Render,
    known: &'r PreparedSchema,
}

impl Keyed<'_> {
    /// Writes a comma if one is due, and the key if an object is open.
    fn key(&mut self, index: usize) {
        self.render.separate();
        if self.render.in_array.last() != Some(&true) {
            self.render.json.extend_from_slice(self.known.json_key(index));
        }
    }
}

impl<'p> Visitor<'p> for Keyed<'_> {
    fn value(&mut self, index: usize, field: &Field, value: Value<'p>) {
        self.key(index);
        let render = &mut *self.render;
        render.visited += 1;
        json(field, &value, render.style, &mut render.json);
        text(field, &value, render.style, &mut render.text);
        render.end_of_field();
    }

    fn begin_array(&mut self, index: usize, _: &Field, _: usize) {
        self.key(index);
        self.render.json.push(b'[');
        self.render.in_array.push(true);
    }

    fn end_array(&mut self, _: usize, _: &Field) {
        assert_eq!(self.render.in_array.pop(), Some(true));
        self.render.json.push(b']');
        self.render.end_of_field();
    }

    fn begin_struct(&mut self, index: usize, _: &Field) {
        self.key(index);
        self.render.visited += 1;
        self.render.json.push(b'{');
        self.render.in_array.push(false);
        self.render.depth += 1;
    }

    fn end_struct(&mut self, _: usize, _: &Field) {
        assert_eq!(self.render.in_array.pop(), Some(false));
        self.render.depth -= 1;
        self.render.json.push(b'}');
        self.render.end_of_field();
    }
}

/// A decoder with its renderer, for one record after the other.
#[derive(Default)]
pub struct Decoding {
    /// The decoder, for manifests and message formats.
    pub decoder: Decoder,
    render: Render,
}

impl Decoding {
    /// Learns from a record, finds its schema and renders it both ways.
    pub fn record(&mut self, record: &Record<'_>) {
        self.decoder.observe(record);
        match self.decoder.find(record) {
            Ok(found) => {
                assert!(record.payload().ends_with(found.payload), "a payload is the end of its record");
                for numeric in [false, true] {
                    self.render.payload(found.prepared, found.payload, record.pointer_size(), numeric);
                }
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert_ne!(error.status().0, 0);
            }
        }
    }
}
