//! Filters of several types, each after the number of its type.

use traceweir_format::filter::payload::{Builder, Count, Event, Field, Operand, Shape, Type};
use traceweir_format::filter::{Gate, encode};
use traceweir_format::spec::enable::*;
use traceweir_format::wire::Put;
use traceweir_format::{Guid, Result};

use super::Seeds;

pub(super) fn filter_seeds() -> Seeds {
    let gate = Gate { any: 0x30, all: 0x10, level: 4 };
    let mut header = Vec::new();
    // EVENT_FILTER_HEADER: id, version, reserved, instance, size, offset of the next; then data.
    header.put_u16(7).put_u8(1).put(&[0; 5]).put_u64(0).put_u32(28).put_u32(0).put(b"data");
    [
        ("ids", EVENT_FILTER_TYPE_EVENT_ID, encode::event_ids(true, &[1, 2, 0xFFFF])),
        ("names", EVENT_FILTER_TYPE_EVENT_NAME, encode::event_names(gate, false, &["One", "Two"])),
        ("level", EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, encode::level_keyword(gate, true)),
        ("pids", EVENT_FILTER_TYPE_PID, encode::pids(&[1, 4711])),
        ("programs", EVENT_FILTER_TYPE_EXECUTABLE_NAME, encode::name_list(&["nginx", "größe"])),
        ("schematized", EVENT_FILTER_TYPE_SCHEMATIZED, header),
        ("payload", EVENT_FILTER_TYPE_PAYLOAD, encode_payload_filter().expect("the filter is valid")),
        ("own", 7, b"agreed on".to_vec()),
    ]
    .into_iter()
    .map(|(name, kind, data)| (name, [&kind.to_le_bytes()[..], &data].concat()))
    .collect()
}

fn encode_payload_filter() -> Result<Vec<u8>> {
    // A filter for event 7, version 1, of which one predicate is enough.
    let mut event = Event::new(7, 1, true);
    let count = event.add_field(Field::single(Shape::Fixed(4)))?;
    let text = event.add_field(Field::single(Shape::Utf16Z))?;
    let id = event.add_field(Field { shape: Shape::Fixed(16), count: Count::Field(count) })?;
    let counted = event.add_field(Field::single(Shape::Length { field: count, unit: 2 }))?;
    let number = Type::Integer { bytes: 4, signed: true };
    event.add_predicate(count, number, PayloadOperator::BETWEEN, Operand::Range(-3, 9))?;
    event.add_predicate(text, Type::Utf16, PayloadOperator::CONTAINS, Operand::Text("größe"))?;
    event.add_predicate(id, Type::Guid, PayloadOperator::IS, Operand::Guid(Guid::from_u128(5)))?;
    event.add_predicate(counted, Type::Utf16, PayloadOperator::ISNOT, Operand::Text("x"))?;
    let mut blob = Builder::new();
    // Once as a required filter, and once as one that is not required.
    blob.add(&event, true)?;
    blob.add(&event, false)?;
    blob.finish()
}
