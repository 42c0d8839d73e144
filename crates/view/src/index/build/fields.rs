//! Picks the fields of events that the index needs.

use traceweir_decode::format::{Style, push_text};
use traceweir_decode::schema::Field;
use traceweir_decode::value::Value;
use traceweir_decode::walk::Visitor;

/// Numbers by the names of their fields.
pub(super) struct NumberFields<const N: usize> {
    pub(super) names: [&'static str; N],
    pub(super) values: [Option<u64>; N],
}

impl<'p, const N: usize> Visitor<'p> for NumberFields<N> {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        for (name, slot) in self.names.iter().zip(&mut self.values) {
            if *field.name == **name && slot.is_none() {
                *slot = value.bits();
            }
        }
    }
}

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
