//! Searches for text in events, independent of the output format.
//!
//! The search covers names, values without escapes and the message. For an event that cannot be
//! decoded completely, it also covers the payload, read as 8-bit and as 16-bit text.

use memchr::memmem;
use traceweir_decode::expand::MessageExpander;
use traceweir_decode::format::{Style, push_text, push_utf16_text};
use traceweir_decode::schema::Field;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};

use crate::event::DescribedEvent;
use crate::filter::EventFilter;

/// Maximum size of the text that the fields of one event become. The limit is needed because a few
/// bytes of metadata can repeat a long name very often.
pub const MAX_FIELDS_BYTES: usize = 4 << 20;

/// Finds the text of a filter in events, ignoring case.
pub struct Grep<'f> {
    finder: Option<memmem::Finder<'f>>,
    walker: Walker,
    messages: MessageExpander,
    search_text: SearchText,
}

impl<'f> Grep<'f> {
    /// Creates a search for the text of a filter. `style` is the style of the values.
    pub fn new(filter: &'f EventFilter, style: Style) -> Self {
        let finder = filter.text.as_ref().map(|text| memmem::Finder::new(text.as_bytes()));
        let search_text = SearchText { text: Vec::new(), style };
        Self { finder, walker: Walker::default(), messages: MessageExpander::default(), search_text }
    }

    /// Returns whether an event contains the text, or the filter has none.
    #[inline]
    pub fn accepts(&mut self, event: &DescribedEvent<'_>) -> bool {
        self.finder.is_none() || self.contains_text(event)
    }

    fn contains_text(&mut self, event: &DescribedEvent<'_>) -> bool {
        let Some(finder) = &self.finder else { return true };
        let out = &mut self.search_text;
        out.text.clear();
        let name = event
            .schema_match
            .as_ref()
            .ok()
            .and_then(|schema_match| schema_match.prepared.event_name.as_deref());
        for (name, end) in [(event.process, b'\n'), (event.provider, b'/'), (name, b'\n')] {
            out.text.extend_from_slice(name.unwrap_or_default().as_bytes());
            out.text.push(end);
        }
        match &event.schema_match {
            Ok(schema_match) => {
                let schema = &schema_match.prepared.schema;
                let walked = self.walker.walk(schema, schema_match.payload, event.record.pointer_size(), out);
                if !matches!(walked, Ok([])) {
                    out.add_payload(schema_match.payload);
                }
                self.messages.expand(schema_match, event.record.pointer_size(), out.style, &mut out.text);
            }
            Err(_) => out.add_payload(event.record.payload()),
        }
        let lowercase_text = String::from_utf8_lossy(&out.text).to_lowercase();
        finder.find(lowercase_text.as_bytes()).is_some()
    }
}

/// The text of an event, one line per value.
struct SearchText {
    text: Vec<u8>,
    style: Style,
}

impl SearchText {
    /// Adds bytes of unknown meaning as 8-bit and as 16-bit text; 16-bit text may start at an odd
    /// offset.
    fn add_payload(&mut self, payload: &[u8]) {
        self.text.extend_from_slice(payload);
        for start in [0, 1] {
            self.text.push(b'\n');
            push_utf16_text(payload.get(start..).unwrap_or_default(), &mut self.text);
        }
        self.text.push(b'\n');
    }

    fn add_field_name(&mut self, field: &Field) {
        self.text.extend_from_slice(field.name.as_bytes());
        self.text.push(b'=');
    }
}

impl<'p> Visitor<'p> for SearchText {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        self.add_field_name(field);
        push_text(field, &value, self.style, &mut self.text);
        self.text.push(b'\n');
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {}
    fn end_array(&mut self, _: usize, _: &Field) {}
    fn begin_struct(&mut self, _: usize, field: &Field) {
        self.add_field_name(field);
        self.text.push(b'\n');
    }
    fn end_struct(&mut self, _: usize, _: &Field) {}
    fn is_full(&self) -> bool {
        self.text.len() > MAX_FIELDS_BYTES
    }
}
