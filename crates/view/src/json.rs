//! Writes JSON.

use traceweir_decode::format::push_json_string;

/// Builds a JSON text. The caller keeps keys and values in order; commas come from the writer.
#[derive(Debug, Default)]
pub(crate) struct JsonWriter {
    out: Vec<u8>,
    needs_comma: bool,
}

impl JsonWriter {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Returns the size of the text so far.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    fn begin_value(&mut self) {
        if std::mem::replace(&mut self.needs_comma, true) {
            self.out.push(b',');
        }
    }

    pub(crate) fn open(&mut self, bracket: u8) {
        self.begin_value();
        self.out.push(bracket);
        self.needs_comma = false;
    }

    pub(crate) fn close(&mut self, bracket: u8) {
        self.out.push(bracket);
        self.needs_comma = true;
    }

    pub(crate) fn key(&mut self, key: &str) {
        self.text(key);
        self.out.push(b':');
        self.needs_comma = false;
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.begin_value();
        push_json_string(text, &mut self.out);
    }

    pub(crate) fn optional_text(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None => self.raw("null"),
        }
    }

    pub(crate) fn raw(&mut self, value: &str) {
        self.begin_value();
        self.out.extend_from_slice(value.as_bytes());
    }

    pub(crate) fn number(&mut self, number: impl Into<i128>) {
        self.raw(&number.into().to_string());
    }

    pub(crate) fn float(&mut self, number: f64) {
        if number.is_finite() { self.raw(&number.to_string()) } else { self.raw("null") }
    }

    pub(crate) fn flag(&mut self, value: bool) {
        self.raw(if value { "true" } else { "false" });
    }

    pub(crate) fn object(&mut self, fill: impl FnOnce(&mut Self)) {
        self.open(b'{');
        fill(self);
        self.close(b'}');
    }

    pub(crate) fn array(&mut self, fill: impl FnOnce(&mut Self)) {
        self.open(b'[');
        fill(self);
        self.close(b']');
    }
}
