//! Picks the fields of events that the index needs.

use traceweir_decode::format::{Style, push_text};
use traceweir_decode::schema::Field;
use traceweir_decode::value::Value;
use traceweir_decode::walk::Visitor;

/// The names that an event defines.
#[derive(Default)]
pub(super) struct NameFields {
    pub(super) file_object: u64,
    pub(super) file_name: String,
    pub(super) thread_name: String,
}

impl<'p> Visitor<'p> for NameFields {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let to_text = || {
            let mut text = Vec::new();
            push_text(field, &value, Style::default(), &mut text);
            String::from_utf8_lossy(&text).into_owned()
        };
        match &*field.name {
            "FileObject" => self.file_object = value.bits().unwrap_or(0),
            "FileName" | "OpenPath" => self.file_name = to_text(),
            "ThreadName" => self.thread_name = to_text(),
            _ => {}
        }
    }
}
