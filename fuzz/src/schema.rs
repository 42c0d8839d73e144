//! Builds schemas from the bytes of a fuzz input, for the `payload` target.
//!
//! ```text
//!   00 fields 0..31 │ 01 top-level fields │ 02 bit 0: 4-byte pointers │ 03 fields × 8 bytes
//!   then the payload
//!   field   kind │ in type │ out type │ count kind │ count │ length kind │ length │ map
//! ```
//!
//! A structure has the index of its first member in place of the in type, and the number of its
//! members in place of the out type.

use std::sync::Arc;

use traceweir_decode::Schema;
use traceweir_decode::schema::{Count, Field, FieldKind, Length, ValueMap};
use traceweir_format::spec::types::{InType, OutType};

/// Returns a schema, a pointer size and the payload after them; `None` if the bytes end early or
/// the schema is rejected.
#[must_use]
pub fn schema_from_bytes(bytes: &[u8]) -> Option<(Schema, usize, &[u8])> {
    let ([field_count, top, flags], mut remaining) = bytes.split_first_chunk::<3>()?;
    let mut fields = Vec::new();
    for index in 0..field_count % 32 {
        let (row, after) = remaining.split_first_chunk::<8>()?;
        fields.push(field_from_row(index, row));
        remaining = after;
    }
    let mut schema = Schema::default();
    schema.message = Some("%1 of %2!08x!: %3!-20.5s!%n%4!c!%%%5!p!".into());
    let top = usize::from(*top) % (fields.len() + 1);
    let schema = schema.seal(fields, top).ok()?;
    Some((schema, if flags & 1 == 0 { 8 } else { 4 }, remaining))
}

/// Maps a byte to a type number. The first block has `block_size` types; further types begin at
/// 300.
fn type_number(byte: u8, block_size: u8) -> u16 {
    if byte < block_size { byte.into() } else { 300 + u16::from(byte - block_size) }
}

fn field_from_row(index: u8, row: &[u8; 8]) -> Field {
    let [kind, input, output, count_kind, count, length_kind, length, map] = *row;
    let (wide_count, wide_length) = (u16::from(count), u16::from(length));
    let kind = if kind % 4 == 3 {
        FieldKind::Struct { first: u16::from(input), members: u16::from(output) % 32 }
    } else {
        let (input, output) = (InType(type_number(input % 40, 26)), OutType(type_number(output % 44, 40)));
        FieldKind::Value { input, output, map: None }
    };
    let count = match count_kind % 8 {
        0..=2 => Count::One,
        3 => Count::Fixed(wide_count),
        4 => Count::Fixed(wide_count << 8 | 0xFF),
        5 => Count::Field(wide_count % 32),
        6 => Count::Prefixed,
        _ => Count::ToEnd,
    };
    let length = match length_kind % 4 {
        0 | 1 => Length::Natural,
        2 => Length::Fixed(wide_length),
        _ => Length::Field(wide_length % 32),
    };
    let map = (map & 1 != 0).then(|| Arc::new(value_map(map)));
    Field::new(&format!("f{}\"\\\n", index / 2), kind).with_count(count).with_length(length).with_map(map)
}

fn value_map(byte: u8) -> ValueMap {
    let entries =
        [(0, "none"), (1, "one "), (4, "quoted \" four"), (u64::from(byte), "other"), (12, "twelve")];
    ValueMap::new("map", byte & 2 != 0, entries.map(|(value, text)| (value, text.to_string())))
}
