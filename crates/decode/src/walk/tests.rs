//! Tests of the walker, and the helpers that they share.
//!
//! ```text
//!   types    each type by itself          ends   where payloads stop
//!   counts   arrays and structures        any    random schemas against an oracle
//!   header   the names in the log-file header, in the place of two pointers
//! ```

mod any;
mod counts;
mod ends;
mod header;
mod types;

use traceweir_format::wire::Put;

use super::*;
use crate::schema::MAX_DEPTH;
use traceweir_format::Guid;
use traceweir_format::spec::types::OutType;

/// One call that the visitor received.
#[derive(Clone, Debug, PartialEq)]
enum Call<'p> {
    Value(usize, Value<'p>),
    Array(usize, usize),
    EndArray(usize),
    Struct(usize),
    EndStruct(usize),
}

#[derive(Default)]
struct Recorder<'p>(Vec<Call<'p>>);

impl<'p> Visitor<'p> for Recorder<'p> {
    fn value(&mut self, index: usize, _: &Field, value: Value<'p>) {
        self.0.push(Call::Value(index, value));
    }
    fn begin_array(&mut self, index: usize, _: &Field, count: usize) {
        self.0.push(Call::Array(index, count));
    }
    fn end_array(&mut self, index: usize, _: &Field) {
        self.0.push(Call::EndArray(index));
    }
    fn begin_struct(&mut self, index: usize, _: &Field) {
        self.0.push(Call::Struct(index));
    }
    fn end_struct(&mut self, index: usize, _: &Field) {
        self.0.push(Call::EndStruct(index));
    }
}

type RecordedWalk<'p> = (Vec<Call<'p>>, Result<&'p [u8], Undecoded>);

fn walk<'p>(schema: &Schema, payload: &'p [u8], pointer_size: usize) -> RecordedWalk<'p> {
    let mut calls = Recorder::default();
    let remaining = Walker::default().walk(schema, payload, pointer_size, &mut calls);
    (calls.0, remaining)
}

fn seal_schema(fields: Vec<Field>, top: usize) -> Schema {
    Schema::default().seal(fields, top).unwrap()
}

/// A visitor that accepts this many values and no more.
struct LimitedVisitor(usize);

impl<'p> Visitor<'p> for LimitedVisitor {
    fn value(&mut self, _: usize, _: &Field, _: Value<'p>) {
        self.0 = self.0.saturating_sub(1);
    }
    fn is_full(&self) -> bool {
        self.0 == 0
    }
}

#[test]
fn full_visitor_ends_the_walk() {
    let row = schema_of(vec![field_of(InType::UINT8), field_of(InType::UINT8), field_of(InType::UINT8)]);
    let array = array_of(InType::UINT8, Count::ToEnd);
    let nested =
        seal_schema(vec![struct_field(1, 1).with_count(Count::Fixed(9)), field_of(InType::UINT8)], 1);
    for schema in [row, array, nested] {
        let ended = Walker::default().walk(&schema, &[0; 9], 8, &mut LimitedVisitor(2));
        assert_eq!(ended, Err(Undecoded::TooLarge));
        assert!(Walker::default().walk(&schema, &[0; 9], 8, &mut LimitedVisitor(10)).is_ok());
    }
}

/// Builds a schema with all fields on the top level.
fn schema_of(fields: Vec<Field>) -> Schema {
    let top = fields.len();
    seal_schema(fields, top)
}

/// Builds a schema with one array.
fn array_of(input: InType, count: Count) -> Schema {
    schema_of(vec![field_of(input).with_count(count)])
}

fn field_of(input: InType) -> Field {
    Field::value("f", input, OutType::NULL)
}

fn field_with_out_type(input: InType, output: OutType) -> Field {
    Field::value("f", input, output)
}

fn struct_field(first: u16, members: u16) -> Field {
    Field::new("s", FieldKind::Struct { first, members })
}

/// Returns the values of a walk that succeeds and leaves `remaining` bytes.
#[track_caller]
fn values_of<'p>(schema: &Schema, payload: &'p [u8], remaining: usize) -> Vec<Value<'p>> {
    let (calls, result) = walk(schema, payload, 8);
    assert_eq!(result.map(<[u8]>::len), Ok(remaining));
    let to_value = |call| if let Call::Value(_, value) = call { Some(value) } else { None };
    calls.into_iter().filter_map(to_value).collect()
}

#[track_caller]
fn assert_too_short(schema: &Schema, payload: &[u8], at: usize) {
    let (_, result) = walk(schema, payload, 8);
    assert_eq!(result, Err(Undecoded::PayloadTooShort { field: "f".into(), offset: at }));
}

/// Checks that the walk ends at a bad field at offset `at`; returns the calls before it.
#[track_caller]
fn assert_bad_field(schema: &Schema, payload: &[u8], at: usize) -> Vec<String> {
    let (calls, result) = walk(schema, payload, 8);
    assert!(matches!(&result, Err(Undecoded::BadField { offset, .. }) if *offset == at), "{result:?}");
    calls.iter().map(|call| format!("{call:?}")).collect()
}

const GUID: Guid = Guid::from_u128(0x00112233_4455_6677_8899_aabbccddeeff);
/// The SID S-1-5-32-544.
const SID: [u8; 16] = [1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x20, 2, 0, 0];
