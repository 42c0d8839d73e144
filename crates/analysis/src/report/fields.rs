//! Reads numeric fields of an event by name.

use traceweir_decode::schema::Field;
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::Record;

struct NumberFields<const N: usize> {
    names: [&'static str; N],
    values: [Option<u64>; N],
}

impl<'p, const N: usize> Visitor<'p> for NumberFields<N> {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        for (name, slot) in self.names.iter().zip(&mut self.values) {
            if *field.name == **name && slot.is_none() {
                *slot = value.bits();
            }
        }
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {}
    fn end_array(&mut self, _: usize, _: &Field) {}
    fn begin_struct(&mut self, _: usize, _: &Field) {}
    fn end_struct(&mut self, _: usize, _: &Field) {}
}

/// Returns the bits of the fields with these names; `None` for a field that is missing or not a
/// number.
pub(super) fn read_numbers<const N: usize>(
    walker: &mut Walker,
    record: &Record<'_>,
    schema_match: &SchemaMatch<'_, '_>,
    names: [&'static str; N],
) -> [Option<u64>; N] {
    let mut fields = NumberFields { names, values: [None; N] };
    // If the payload ends early, the fields before its end have been read.
    let _ =
        walker.walk(&schema_match.prepared.schema, schema_match.payload, record.pointer_size(), &mut fields);
    fields.values
}
