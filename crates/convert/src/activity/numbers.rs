//! Reads numbers of kernel events by the names of their fields.

use traceweir_decode::schema::Field;
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::Record;

/// The profile source of the sampling timer.
const TIMER_SOURCE: u64 = 0;

/// Numbers by the names of their fields.
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
}

/// Returns the bits of the fields with these names; `None` for a field that is missing or not a
/// number.
pub(super) fn read_numbers<const N: usize>(
    walker: &mut Walker,
    record: &Record<'_>,
    schema: &SchemaMatch<'_, '_>,
    names: [&'static str; N],
) -> [Option<u64>; N] {
    let mut fields = NumberFields { names, values: [None; N] };
    // If the payload ends early, the fields before its end have been read.
    let _ = walker.walk(&schema.prepared.schema, schema.payload, record.pointer_size(), &mut fields);
    fields.values
}

/// Returns the sampling interval of the timer that an event sets, in nanoseconds.
pub(super) fn read_interval(
    record: &Record<'_>,
    schema: &SchemaMatch<'_, '_>,
    walker: &mut Walker,
) -> Option<u64> {
    let [source, interval] = read_numbers(walker, record, schema, ["Source", "NewInterval"]);
    let units = interval.filter(|interval| source == Some(TIMER_SOURCE) && *interval > 0)?;
    Some(units.saturating_mul(100))
}
