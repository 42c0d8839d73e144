//! The log-file header event: `LoggerName` and `LogFileName` show the names of session and file.
//!
//! In the payload these two fields are pointers of the process that wrote the file, or timer
//! sources since Windows 7; the names themselves follow the fixed part, as `SessionNameString` and
//! `LogFileNameString`.

use traceweir::relog::is_log_file_header;
use traceweir_decode::Undecoded;
use traceweir_decode::schema::{Field, Origin};
use traceweir_decode::source::Found;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::Record;
use traceweir_format::spec::types::{InType, OutType};

/// The pointers, and the fields that hold what they should lead to.
const NAMES: [(&str, &str); 2] = [("LoggerName", "SessionNameString"), ("LogFileName", "LogFileNameString")];

/// Walks the payload of an event.
#[inline]
pub(super) fn walk<'p, V: Visitor<'p>>(
    walker: &mut Walker,
    record: &Record<'_>,
    found: &Found<'_, 'p>,
    visitor: &mut V,
) -> Result<&'p [u8], Undecoded> {
    let schema = &found.known.schema;
    if schema.origin == Origin::Kernel && is_log_file_header(record) {
        return walk_header(walker, record, found, visitor);
    }
    walker.walk(schema, found.payload, record.pointer_size(), visitor)
}

#[cold]
fn walk_header<'p, V: Visitor<'p>>(
    walker: &mut Walker,
    record: &Record<'_>,
    found: &Found<'_, 'p>,
    visitor: &mut V,
) -> Result<&'p [u8], Undecoded> {
    let schema = &found.known.schema;
    let mut names = Names::default();
    // A payload that ends early has no names, and the second walk reports it.
    let _ = walker.walk(schema, found.payload, record.pointer_size(), &mut names);
    let mut named = Named { visitor, names };
    walker.walk(schema, found.payload, record.pointer_size(), &mut named)
}

/// The two names, as far as they are there.
#[derive(Default)]
struct Names<'p>([Option<Value<'p>>; 2]);

impl<'p> Visitor<'p> for Names<'p> {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        for (name, (_, holder)) in self.0.iter_mut().zip(NAMES) {
            if &*field.name == holder {
                *name = Some(value);
            }
        }
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {}
    fn end_array(&mut self, _: usize, _: &Field) {}
    fn begin_struct(&mut self, _: usize, _: &Field) {}
    fn end_struct(&mut self, _: usize, _: &Field) {}
}

/// Passes fields on, with the names in place of the pointers.
struct Named<'v, 'p, V> {
    visitor: &'v mut V,
    names: Names<'p>,
}

impl<'p, V: Visitor<'p>> Visitor<'p> for Named<'_, 'p, V> {
    fn value(&mut self, index: usize, field: &Field, value: Value<'p>) {
        let place = NAMES.iter().position(|(pointer, _)| *pointer == &*field.name);
        match place.and_then(|place| self.names.0.get_mut(place)).and_then(Option::take) {
            Some(name) => {
                let field = Field::value(&field.name, InType::UNICODESTRING, OutType::NULL);
                self.visitor.value(index, &field, name);
            }
            None => self.visitor.value(index, field, value),
        }
    }
    fn begin_array(&mut self, index: usize, field: &Field, count: usize) {
        self.visitor.begin_array(index, field, count);
    }
    fn end_array(&mut self, index: usize, field: &Field) {
        self.visitor.end_array(index, field);
    }
    fn begin_struct(&mut self, index: usize, field: &Field) {
        self.visitor.begin_struct(index, field);
    }
    fn end_struct(&mut self, index: usize, field: &Field) {
        self.visitor.end_struct(index, field);
    }
    fn is_full(&self) -> bool {
        self.visitor.is_full()
    }
}
