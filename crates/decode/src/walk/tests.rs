//! The walker by type, by count and length, at the ends of payloads, and against anything.

use proptest::prelude::*;
use traceweir_format::wire::Put;

use super::*;
use crate::schema::MAX_DEPTH;
use traceweir_format::Guid;
use traceweir_format::spec::types::OutType;

/// What a visitor saw, in order.
#[derive(Clone, Debug, PartialEq)]
enum Seen<'p> {
    Value(usize, Value<'p>),
    Array(usize, usize),
    EndArray(usize),
    Struct(usize),
    EndStruct(usize),
}

#[derive(Default)]
struct Recorder<'p>(Vec<Seen<'p>>);

impl<'p> Visitor<'p> for Recorder<'p> {
    fn value(&mut self, index: usize, _: &Field, value: Value<'p>) {
        self.0.push(Seen::Value(index, value));
    }
    fn begin_array(&mut self, index: usize, _: &Field, count: usize) {
        self.0.push(Seen::Array(index, count));
    }
    fn end_array(&mut self, index: usize, _: &Field) {
        self.0.push(Seen::EndArray(index));
    }
    fn begin_struct(&mut self, index: usize, _: &Field) {
        self.0.push(Seen::Struct(index));
    }
    fn end_struct(&mut self, index: usize, _: &Field) {
        self.0.push(Seen::EndStruct(index));
    }
}

type Walked<'p> = (Vec<Seen<'p>>, Result<&'p [u8], Undecoded>);

fn walk<'p>(schema: &Schema, payload: &'p [u8], pointer_size: usize) -> Walked<'p> {
    let mut seen = Recorder::default();
    let rest = Walker::default().walk(schema, payload, pointer_size, &mut seen);
    (seen.0, rest)
}

fn sealed(fields: Vec<Field>, top: usize) -> Schema {
    Schema::default().seal(fields, top).unwrap()
}

/// Takes so many values and no more.
struct Sated(usize);

impl<'p> Visitor<'p> for Sated {
    fn value(&mut self, _: usize, _: &Field, _: Value<'p>) {
        self.0 = self.0.saturating_sub(1);
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {}
    fn end_array(&mut self, _: usize, _: &Field) {}
    fn begin_struct(&mut self, _: usize, _: &Field) {}
    fn end_struct(&mut self, _: usize, _: &Field) {}
    fn is_full(&self) -> bool {
        self.0 == 0
    }
}

#[test]
fn a_visitor_that_has_had_enough_ends_the_walk() {
    let row = flat(vec![of(InType::UINT8), of(InType::UINT8), of(InType::UINT8)]);
    let array = flat(vec![of(InType::UINT8).times(Count::ToEnd)]);
    let nested = sealed(vec![structure(1, 1).times(Count::Fixed(9)), of(InType::UINT8)], 1);
    for schema in [row, array, nested] {
        let ended = Walker::default().walk(&schema, &[0; 9], 8, &mut Sated(2));
        assert_eq!(ended, Err(Undecoded::TooLarge));
        assert!(Walker::default().walk(&schema, &[0; 9], 8, &mut Sated(10)).is_ok());
    }
}

/// All fields on the top level.
fn flat(fields: Vec<Field>) -> Schema {
    let top = fields.len();
    sealed(fields, top)
}

fn of(input: InType) -> Field {
    Field::value("f", input, OutType::NULL)
}

fn shown(input: InType, output: OutType) -> Field {
    Field::value("f", input, output)
}

fn structure(first: u16, members: u16) -> Field {
    Field::new("s", Kind::Struct { first, members })
}

/// The values of a walk that succeeds and leaves `rest` bytes.
#[track_caller]
fn values<'p>(schema: &Schema, payload: &'p [u8], rest: usize) -> Vec<Value<'p>> {
    let (seen, result) = walk(schema, payload, 8);
    assert_eq!(result.map(<[u8]>::len), Ok(rest));
    let value = |s| if let Seen::Value(_, v) = s { Some(v) } else { None };
    seen.into_iter().filter_map(value).collect()
}

#[track_caller]
fn too_short(schema: &Schema, payload: &[u8], at: usize) {
    let (_, result) = walk(schema, payload, 8);
    assert_eq!(result, Err(Undecoded::PayloadTooShort { field: "f".into(), offset: at }));
}

#[track_caller]
fn bad_field(schema: &Schema, payload: &[u8], at: usize) -> Vec<String> {
    let (seen, result) = walk(schema, payload, 8);
    assert!(matches!(&result, Err(Undecoded::BadField { offset, .. }) if *offset == at), "{result:?}");
    seen.iter().map(|s| format!("{s:?}")).collect()
}

const GUID: Guid = Guid::from_u128(0x00112233_4455_6677_8899_aabbccddeeff);
/// S-1-5-32-544.
const SID: [u8; 16] = [1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x20, 2, 0, 0];

#[test]
fn each_fixed_type_takes_its_size() {
    let bytes: [u8; 16] = [0xF1, 0xF2, 0xF3, 0xF4, 5, 6, 7, 0xF8, 9, 10, 11, 12, 13, 14, 15, 16];
    let word = u64::from_le_bytes(*bytes.first_chunk().unwrap());
    for (input, size, expected) in [
        (InType::INT8, 1, Value::I8(-15)),
        (InType::UINT8, 1, Value::U8(0xF1)),
        (InType::INT16, 2, Value::I16(-3343)),
        (InType::UINT16, 2, Value::U16(0xF2F1)),
        (InType::INT32, 4, Value::I32(0xF4F3_F2F1_u32.cast_signed())),
        (InType::UINT32, 4, Value::U32(0xF4F3_F2F1)),
        (InType::HEXINT32, 4, Value::U32(0xF4F3_F2F1)),
        (InType::INT64, 8, Value::I64(word.cast_signed())),
        (InType::UINT64, 8, Value::U64(word)),
        (InType::HEXINT64, 8, Value::U64(word)),
        (InType::FLOAT, 4, Value::F32(f32::from_bits(0xF4F3_F2F1))),
        (InType::DOUBLE, 8, Value::F64(f64::from_bits(word))),
        (InType::BOOLEAN, 4, Value::Bool(true)),
        (InType::GUID, 16, Value::Guid(Guid::from_bytes(&bytes))),
        (InType::FILETIME, 8, Value::FileTime(word.cast_signed())),
        (
            InType::SYSTEMTIME,
            16,
            Value::SystemTime([0xF2F1, 0xF4F3, 0x605, 0xF807, 0xA09, 0xC0B, 0xE0D, 0x100F]),
        ),
        (InType::POINTER, 8, Value::Pointer(word)),
        (InType::SIZET, 8, Value::Pointer(word)),
        (InType::UNICODECHAR, 2, Value::Text16(&bytes[..2])),
        (InType::ANSICHAR, 1, Value::Text8(&bytes[..1])),
    ] {
        let schema = flat(vec![of(input)]);
        assert_eq!(values(&schema, &bytes, 16 - size), [expected], "{input:?}");
        assert_eq!(values(&schema, &bytes[..size], 0), [expected], "{input:?} that fits exactly");
        assert_eq!(values(&schema, &[], 0), [], "{input:?} of an older layout is absent");
        if size > 1 {
            too_short(&schema, &bytes[..size - 1], 0);
        }
    }
}

#[test]
fn pointers_have_the_size_of_the_event() {
    let schema = flat(vec![of(InType::POINTER), of(InType::SIZET)]);
    let payload = [1, 0, 0, 0, 2, 0, 0, 0];
    let (seen, rest) = walk(&schema, &payload, 4);
    assert_eq!(seen, [Seen::Value(0, Value::Pointer(1)), Seen::Value(1, Value::Pointer(2))]);
    assert_eq!(rest, Ok(&[][..]));
    assert_eq!(values(&schema, &payload, 0), [Value::Pointer(0x2_0000_0001)], "the second one is absent");
}

#[test]
fn booleans_have_four_bytes_and_any_of_them_counts() {
    let schema = flat(vec![of(InType::BOOLEAN).times(Count::ToEnd)]);
    assert_eq!(values(&schema, &[0, 0, 0, 0, 0, 0, 0, 1], 0), [Value::Bool(false), Value::Bool(true)]);
}

#[test]
fn null_takes_nothing() {
    let schema = flat(vec![of(InType::NULL), of(InType::UINT8), of(InType::NULL)]);
    assert_eq!(values(&schema, &[7], 0), [Value::Null, Value::U8(7), Value::Null]);
}

#[test]
fn counted_types_carry_their_size_in_bytes() {
    let data: &[u8] = &[b'a', 0, b'b', 0];
    for (input, prefix, expected) in [
        (InType::COUNTEDSTRING, &[4, 0][..], Value::Text16(data)),
        (InType::COUNTEDANSISTRING, &[4, 0], Value::Text8(data)),
        (InType::COUNTEDBINARY, &[4, 0], Value::Bytes(data)),
        (InType::MOF_COUNTEDSTRING, &[4, 0], Value::Text16(data)),
        (InType::MOF_COUNTEDANSISTRING, &[4, 0], Value::Text8(data)),
        (InType::REVERSEDCOUNTEDSTRING, &[0, 4], Value::Text16(data)),
        (InType::REVERSEDCOUNTEDANSISTRING, &[0, 4], Value::Text8(data)),
        (InType::HEXDUMP, &[4, 0, 0, 0], Value::Bytes(data)),
    ] {
        let schema = flat(vec![of(input), of(InType::UINT8)]);
        let payload = [prefix, data, &[9, 10]].concat();
        assert_eq!(values(&schema, &payload, 1), [expected, Value::U8(9)], "{input:?}");
        too_short(&schema, &payload[..prefix.len() + 3], prefix.len());
        too_short(&schema, &payload[..prefix.len() - 1], 0);
        let empty = vec![0; prefix.len()];
        assert_eq!(values(&schema, &empty, 0).len(), 1, "{input:?} of no bytes");
    }
}

#[test]
fn text_to_the_end_takes_all_and_stops_at_a_nul() {
    let schema = |input| flat(vec![of(InType::UINT8), of(input)]);
    let wide = schema(InType::NONNULLTERMINATEDSTRING);
    assert_eq!(values(&wide, b"\x01a\0b\0", 0)[1], Value::Text16(b"a\0b\0"));
    assert_eq!(values(&wide, b"\x01a\0\0\0b\0", 0)[1], Value::Text16(b"a\0"));
    let narrow = schema(InType::NONNULLTERMINATEDANSISTRING);
    assert_eq!(values(&narrow, b"\x01ab", 0)[1], Value::Text8(b"ab"));
    assert_eq!(values(&narrow, b"\x01a\0b", 0)[1], Value::Text8(b"a"));
}

#[test]
fn strings_end_at_their_nul_and_the_last_one_may_lack_it() {
    let wide = flat(vec![of(InType::UNICODESTRING), of(InType::UNICODESTRING)]);
    assert_eq!(values(&wide, b"a\0\0\0b\0\0\0", 0), [Value::Text16(b"a\0"), Value::Text16(b"b\0")]);
    assert_eq!(values(&wide, b"a\0\0\0b\0", 0), [Value::Text16(b"a\0"), Value::Text16(b"b\0")]);
    assert_eq!(
        values(&wide, b"a\0\0\0b\0\0", 0),
        [Value::Text16(b"a\0"), Value::Text16(b"b\0")],
        "half a NUL"
    );
    assert_eq!(values(&wide, b"\0\0\0\0", 0), [Value::Text16(b""), Value::Text16(b"")]);
    assert_eq!(values(&wide, b"a\0\0\0", 0), [Value::Text16(b"a\0")]);
    let narrow = flat(vec![of(InType::ANSISTRING), of(InType::ANSISTRING)]);
    assert_eq!(values(&narrow, b"a\0b\0", 0), [Value::Text8(b"a"), Value::Text8(b"b")]);
    assert_eq!(values(&narrow, b"a\0b", 0), [Value::Text8(b"a"), Value::Text8(b"b")]);
    assert_eq!(values(&narrow, b"\0\0z", 1), [Value::Text8(b""), Value::Text8(b"")]);
}

#[test]
fn lengths_count_characters_of_wide_text_and_bytes_of_all_else() {
    for (input, length, expected) in [
        (InType::UNICODESTRING, 2, Value::Text16(b"a\0b\0")),
        (InType::ANSISTRING, 4, Value::Text8(b"a")),
        (InType::BINARY, 4, Value::Bytes(b"a\0b\0")),
    ] {
        let fixed = flat(vec![of(input).long(Length::Fixed(length)), of(InType::UINT8)]);
        assert_eq!(values(&fixed, b"a\0b\0!", 0), [expected, Value::U8(b'!')], "{input:?}");
        too_short(&fixed, b"a\0b", 0);
        let by_field = flat(vec![of(InType::UINT16), of(input).long(Length::Field(0)), of(InType::UINT8)]);
        let payload = [&length.to_le_bytes(), &b"a\0b\0!"[..]].concat();
        assert_eq!(values(&by_field, &payload, 0)[1..], [expected, Value::U8(b'!')], "{input:?}");
        too_short(&by_field, &payload[..5], 2);
        assert_eq!(values(&by_field, &[0, 0, 9], 0).len(), 3, "{input:?} of length 0");
        assert_eq!(values(&by_field, &[0, 0], 0).len(), 2, "nothing is enough for length 0");
    }
}

#[test]
fn lengths_of_types_that_know_their_size_are_ignored() {
    let fields = vec![
        of(InType::UINT8),
        of(InType::UINT32).long(Length::Field(0)),
        of(InType::GUID).long(Length::Fixed(0)),
    ];
    let schema = flat(fields);
    assert_eq!(values(&schema, &[0, 1, 0, 0, 0], 0), [Value::U8(0), Value::U32(1)]);
    assert_eq!(values(&schema, &[0], 0), [Value::U8(0)]);
}

#[test]
fn binary_without_a_length_is_an_address_or_the_rest() {
    let bytes = [3; 20];
    let address = flat(vec![shown(InType::BINARY, OutType::IPV6)]);
    assert_eq!(values(&address, &bytes, 4), [Value::Bytes(&bytes[..16])]);
    too_short(&address, &bytes[..15], 0);
    assert_eq!(values(&flat(vec![of(InType::BINARY)]), &bytes, 0), [Value::Bytes(&bytes)]);
}

#[test]
fn sids_say_their_own_size() {
    let schema = flat(vec![of(InType::SID), of(InType::UINT8)]);
    let payload = [&SID[..], &[7]].concat();
    assert_eq!(values(&schema, &payload, 0), [Value::Sid(&SID), Value::U8(7)]);
    too_short(&schema, &SID[..15], 0);
    too_short(&schema, &SID[..1], 0);
    let mut many = [0; 80];
    many[1] = 16;
    bad_field(&schema, &many, 0);
    many[1] = 15;
    assert_eq!(values(&schema, &many, 11), [Value::Sid(&many[..68]), Value::U8(0)]);
}

#[test]
fn sid_blocks_are_four_zeros_or_two_pointers_and_a_sid() {
    let schema = flat(vec![of(InType::WBEMSID), of(InType::UINT8)]);
    for pointer_size in [4, 8] {
        let none = [0, 0, 0, 0, 7];
        let (seen, rest) = walk(&schema, &none, pointer_size);
        assert_eq!(seen, [Seen::Value(0, Value::Null), Seen::Value(1, Value::U8(7))]);
        assert_eq!(rest, Ok(&[][..]));
        let payload = [&vec![1; pointer_size * 2][..], &SID, &[7]].concat();
        let (seen, rest) = walk(&schema, &payload, pointer_size);
        assert_eq!(seen, [Seen::Value(0, Value::Sid(&SID)), Seen::Value(1, Value::U8(7))]);
        assert_eq!(rest, Ok(&[][..]));
    }
    too_short(&schema, &[1; 3], 0);
    too_short(&schema, &[1; 15], 0);
    too_short(&schema, &[1; 17], 16);
}

#[test]
fn types_without_a_layout_are_refused() {
    for code in [24, 26, 99, 299, 311, u16::MAX] {
        assert_eq!(bad_field(&flat(vec![of(InType(code))]), &[1; 8], 0), Vec::<String>::new(), "{code}");
    }
}

#[test]
fn arrays_of_each_count_are_announced_and_closed() {
    let elements = |index| {
        let value = |v| Seen::Value(index, Value::U16(v));
        vec![Seen::Array(index, 2), value(1), value(2), Seen::EndArray(index)]
    };
    let two: &[u8] = &[1, 0, 2, 0];
    let fixed = flat(vec![of(InType::UINT16).times(Count::Fixed(2))]);
    assert_eq!(walk(&fixed, two, 8), (elements(0), Ok(&[][..])));
    let prefixed = flat(vec![of(InType::UINT16).times(Count::Prefixed)]);
    assert_eq!(walk(&prefixed, &[&[2, 0], two, &[9]].concat(), 8), (elements(0), Ok(&[9][..])));
    let to_end = flat(vec![of(InType::UINT16).times(Count::ToEnd)]);
    assert_eq!(
        walk(&to_end, &[two, &[9]].concat(), 8),
        (elements(0), Ok(&[9][..])),
        "half an element is left"
    );
    let by_field = flat(vec![of(InType::UINT8), of(InType::UINT16).times(Count::Field(0))]);
    let (seen, rest) = walk(&by_field, &[2, 1, 0, 2, 0], 8);
    assert_eq!((&seen[1..], rest), (&elements(1)[..], Ok(&[][..])));
}

#[test]
fn empty_arrays_are_arrays() {
    let nothing = [Seen::Array(0, 0), Seen::EndArray(0)];
    assert_eq!(walk(&flat(vec![of(InType::UINT16).times(Count::Fixed(0))]), &[], 8).0, nothing);
    assert_eq!(walk(&flat(vec![of(InType::UINT16).times(Count::ToEnd)]), &[], 8).0, nothing);
    assert_eq!(walk(&flat(vec![of(InType::UINT16).times(Count::Prefixed)]), &[0, 0], 8).0, nothing);
    assert_eq!(
        walk(&flat(vec![of(InType::UINT16).times(Count::Prefixed)]), &[], 8).0,
        [],
        "not even a count"
    );
    let by_field = flat(vec![of(InType::UINT8), of(InType::UINT16).times(Count::Field(0))]);
    assert_eq!(walk(&by_field, &[0], 8).0[1..], [Seen::Array(1, 0), Seen::EndArray(1)]);
}

#[test]
fn an_array_cut_short_is_closed_and_an_error() {
    let schema = flat(vec![of(InType::UINT16).times(Count::Fixed(3))]);
    let (seen, result) = walk(&schema, &[1, 0, 2, 0, 3], 8);
    let value = |v| Seen::Value(0, Value::U16(v));
    assert_eq!(seen, [Seen::Array(0, 3), value(1), value(2), Seen::EndArray(0)]);
    assert_eq!(result, Err(Undecoded::PayloadTooShort { field: "f".into(), offset: 4 }));
}

#[test]
fn arrays_of_strings_need_bytes_for_each() {
    let schema = |count| flat(vec![of(InType::ANSISTRING).times(Count::Fixed(count))]);
    assert_eq!(values(&schema(3), b"a\0\0b", 0), [Value::Text8(b"a"), Value::Text8(b""), Value::Text8(b"b")]);
    too_short(&schema(4), b"a\0\0b", 4);
    let to_end = flat(vec![of(InType::UNICODESTRING).times(Count::ToEnd)]);
    assert_eq!(values(&to_end, b"a\0\0\0b\0", 0), [Value::Text16(b"a\0"), Value::Text16(b"b\0")]);
}

#[test]
fn arrays_of_characters_are_one_text() {
    let text8 = [Seen::Value(0, Value::Text8(b"ab"))];
    let text16 = [Seen::Value(0, Value::Text16(b"a\0b\0"))];
    for field in
        [shown(InType::UINT8, OutType::STRING), shown(InType::INT8, OutType::STRING), of(InType::ANSICHAR)]
    {
        assert_eq!(walk(&flat(vec![field.clone().times(Count::Fixed(4))]), b"ab\0c", 8).0, text8);
        assert_eq!(walk(&flat(vec![field.clone().times(Count::Prefixed)]), b"\x02\0ab", 8).0, text8);
        assert_eq!(walk(&flat(vec![field.times(Count::ToEnd)]), b"ab\0", 8).0, text8);
    }
    for field in [shown(InType::UINT16, OutType::STRING), of(InType::UNICODECHAR)] {
        assert_eq!(walk(&flat(vec![field.clone().times(Count::Fixed(3))]), b"a\0b\0\0\0", 8).0, text16);
        assert_eq!(
            walk(&flat(vec![field.clone().times(Count::ToEnd)]), b"a\0b\0!", 8),
            (text16.to_vec(), Ok(&b"!"[..]))
        );
        too_short(&flat(vec![field.times(Count::Fixed(3))]), b"a\0b\0\0", 0);
    }
}

#[test]
fn structures_nest_and_repeat() {
    // S[2] { a, T { b, c[2] } }, d
    let pair = of(InType::UINT8).times(Count::Fixed(2));
    let fields = vec![
        structure(2, 2).times(Count::Fixed(2)),
        of(InType::UINT8),
        of(InType::UINT8),
        structure(4, 2),
        of(InType::UINT8),
        pair,
    ];
    let schema = sealed(fields, 2);
    let v = |index, value| Seen::Value(index, Value::U8(value));
    let element = |n: u8| {
        vec![
            Seen::Struct(0),
            v(2, n),
            Seen::Struct(3),
            v(4, n + 1),
            Seen::Array(5, 2),
            v(5, n + 2),
            v(5, n + 3),
            Seen::EndArray(5),
            Seen::EndStruct(3),
            Seen::EndStruct(0),
        ]
    };
    let expected =
        [vec![Seen::Array(0, 2)], element(1), element(5), vec![Seen::EndArray(0), v(1, 9)]].concat();
    assert_eq!(walk(&schema, &[1, 2, 3, 4, 5, 6, 7, 8, 9], 8), (expected, Ok(&[][..])));
    too_short(&schema, &[1, 2, 3, 4, 5, 6], 6);
}

#[test]
fn structures_repeat_to_the_end_of_the_payload() {
    let fields = vec![structure(1, 2).times(Count::ToEnd), of(InType::UINT8), of(InType::ANSISTRING)];
    let seen = values(&sealed(fields, 1), b"\x01a\0\x02b\0\x03", 0);
    assert_eq!(
        seen,
        [Value::U8(1), Value::Text8(b"a"), Value::U8(2), Value::Text8(b"b"), Value::U8(3), Value::Text8(b"")]
    );
}

#[test]
fn members_refer_to_their_own_element() {
    let fields = vec![
        structure(1, 2).times(Count::Prefixed),
        of(InType::UINT8),
        of(InType::UINT8).times(Count::Field(1)),
    ];
    let seen = values(&sealed(fields, 1), &[2, 0, 1, 10, 2, 20, 21], 0);
    assert_eq!(seen, [1, 10, 2, 20, 21].map(Value::U8));
}

#[test]
fn each_integer_type_can_be_a_count() {
    for (input, bytes) in [
        (InType::INT8, &[2][..]),
        (InType::UINT16, &[2, 0]),
        (InType::HEXINT32, &[2, 0, 0, 0]),
        (InType::INT64, &[2, 0, 0, 0, 0, 0, 0, 0]),
        (InType::POINTER, &[2, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        let schema = flat(vec![of(input), of(InType::UINT8).times(Count::Field(0))]);
        let payload = [bytes, &[5, 6]].concat();
        assert_eq!(values(&schema, &payload, 0)[1..], [Value::U8(5), Value::U8(6)], "{input:?}");
    }
}

#[test]
fn counts_that_are_not_known_yet_are_errors() {
    let forward = flat(vec![of(InType::UINT8).times(Count::Field(1)), of(InType::UINT8)]);
    bad_field(&forward, &[1, 1], 0);
    let text = flat(vec![of(InType::ANSISTRING), of(InType::BINARY).long(Length::Field(0))]);
    bad_field(&text, b"2\0ab", 2);
    let itself = flat(vec![of(InType::UINT8).times(Count::Field(0))]);
    bad_field(&itself, &[1, 1], 0);
}

#[test]
fn referenced_values_do_not_outlive_their_event() {
    let schema = flat(vec![of(InType::UINT8), of(InType::UINT8).times(Count::Field(0))]);
    let forward = flat(vec![of(InType::UINT8).times(Count::Field(1)), of(InType::UINT8)]);
    let mut walker = Walker::default();
    assert!(walker.walk(&schema, &[1, 1], 8, &mut Recorder::default()).is_ok());
    assert!(walker.walk(&forward, &[1, 1], 8, &mut Recorder::default()).is_err());
}

#[test]
fn payloads_may_end_at_a_field_boundary_and_bytes_may_remain() {
    let schema = flat(vec![of(InType::UINT8), of(InType::UINT16), of(InType::ANSISTRING), of(InType::GUID)]);
    let mut payload = vec![1, 2, 0];
    payload.put_ansi_z("x").put_guid(&GUID).put_u8(99);
    for (length, count, rest) in [(0, 0, 0), (1, 1, 0), (3, 2, 0), (5, 3, 0), (21, 4, 0), (22, 4, 1)] {
        assert_eq!(values(&schema, &payload[..length], rest).len(), count, "{length} bytes");
    }
    too_short(&schema, &payload[..2], 1);
    too_short(&schema, &payload[..20], 5);
    let nothing = flat(vec![]);
    assert_eq!(values(&nothing, &payload, 22), []);
}

#[test]
fn a_structure_does_not_end_early() {
    let schema = sealed(vec![structure(1, 2), of(InType::UINT8), of(InType::UINT8)], 1);
    too_short(&schema, &[1], 1);
    assert_eq!(values(&schema, &[], 0), [], "but it may be absent");
}

#[test]
fn many_small_structures_are_as_good_as_few_large_ones() {
    // Eight structures around each byte.
    let mut fields: Vec<_> = (1..=8).map(|first| structure(first, 1)).collect();
    fields[0].count = Count::ToEnd;
    fields.push(of(InType::UINT8));
    assert_eq!(values(&sealed(fields, 1), &[7; 5000], 0).len(), 5000);
    let optional = vec![
        structure(1, 4).times(Count::ToEnd),
        of(InType::UINT16),
        of(InType::BINARY).long(Length::Field(1)),
        of(InType::UINT8).times(Count::Field(1)),
        of(InType::NULL),
    ];
    assert_eq!(values(&sealed(optional, 1), &[0; 600], 0).len(), 300 * 3);
}

#[test]
fn hostile_counts_of_nothing_are_bounded() {
    let empty = Field::new("s", Kind::Struct { first: 1, members: 0 });
    let no_text = of(InType::UNICODESTRING).long(Length::Fixed(0));
    for field in [empty, of(InType::NULL), no_text.clone(), of(InType::NONNULLTERMINATEDSTRING)] {
        for count in [Count::Fixed(u16::MAX), Count::Prefixed] {
            let schema = flat(vec![field.clone().times(count)]);
            let (seen, result) = walk(&schema, &[0xFF, 0xFF], 8);
            assert!(matches!(result, Err(Undecoded::BadField { .. })), "{field:?}");
            assert!(seen.len() < 200, "{} for {field:?}", seen.len());
        }
    }
    // Arrays of arrays of arrays of nothing.
    let mut fields: Vec<_> =
        (1..=MAX_DEPTH as u16).map(|first| structure(first, 1).times(Count::Fixed(u16::MAX))).collect();
    fields.push(no_text.times(Count::Fixed(u16::MAX)));
    let (seen, result) = walk(&sealed(fields, 1), &[1; 100], 8);
    assert!(result.is_err() && seen.len() < 2000, "{}", seen.len());
    // One byte for four thousand members.
    let mut fields = vec![structure(1, 4001).times(Count::ToEnd), of(InType::UINT8)];
    fields.resize(4002, of(InType::NULL));
    let (seen, result) = walk(&sealed(fields, 1), &[1; 1000], 8);
    assert!(result.is_err() && seen.len() < 20_000, "{}", seen.len());
}

#[test]
fn impossible_counts_and_lengths_are_refused() {
    for input in [InType::INT32, InType::INT64] {
        for field in [of(InType::UINT8).times(Count::Field(0)), of(InType::NULL).times(Count::Field(0))] {
            assert_eq!(
                bad_field(&flat(vec![of(input), field]), &[0xFF; 12], input.size(8).unwrap()).len(),
                1
            );
        }
        let long = flat(vec![of(input), of(InType::UNICODESTRING).long(Length::Field(0))]);
        too_short(&long, &[0xFF; 9], input.size(8).unwrap());
    }
}

/// Sizes of the types that the oracle knows.
const SIMPLE: [(InType, usize); 8] = [
    (InType::UINT8, 1),
    (InType::UINT16, 2),
    (InType::UINT32, 4),
    (InType::UINT64, 8),
    (InType::FILETIME, 8),
    (InType::POINTER, 8),
    (InType::GUID, 16),
    (InType::ANSISTRING, 0),
];

/// A slow and obvious walker of simple types: the offset and size of each value, and the bytes left if all went well.
fn oracle(schema: &Schema, payload: &[u8]) -> (Vec<(usize, usize)>, Option<usize>) {
    let (mut at, mut found) = (0, Vec::new());
    for field in schema.top() {
        if at == payload.len() && field.count != Count::Fixed(0) {
            break;
        }
        let count = match field.count {
            Count::Fixed(n) => n.into(),
            Count::Prefixed => {
                let Some(prefix) = payload.get(at..at + 2) else { return (found, None) };
                at += 2;
                usize::from(prefix[0]) + 256 * usize::from(prefix[1])
            }
            _ => 1,
        };
        let Kind::Value { input, .. } = field.kind else { panic!("no structures here") };
        let size = SIMPLE.iter().find(|s| s.0 == input).unwrap().1;
        for _ in 0..count {
            let left = &payload[at..];
            let (text, step) = match left.iter().position(|&b| b == 0) {
                _ if size > 0 => (size, size),
                Some(n) => (n, n + 1),
                None => (left.len(), left.len()),
            };
            let no_string = size == 0 && left.is_empty() && field.count != Count::One;
            if step > left.len() || no_string {
                return (found, None);
            }
            found.push((at, text));
            at += step;
        }
    }
    (found, Some(payload.len() - at))
}

/// The bytes that a value stands for.
fn size_of(value: &Value<'_>) -> usize {
    match value {
        Value::U8(_) => 1,
        Value::U16(_) => 2,
        Value::U32(_) => 4,
        Value::Guid(_) => 16,
        Value::Text8(text) => text.len(),
        _ => 8,
    }
}

fn simple_field() -> impl Strategy<Value = Field> {
    let count = prop_oneof![4 => Just(Count::One), 1 => (0_u16..4).prop_map(Count::Fixed), 1 => Just(Count::Prefixed)];
    ((0..SIMPLE.len()), count).prop_map(|(i, count)| of(SIMPLE[i].0).times(count))
}

fn any_field() -> impl Strategy<Value = Field> {
    let input = prop_oneof![0_u16..27, 299_u16..312];
    let output = prop_oneof![0_u16..40, 299_u16..303];
    let value =
        (input, output).prop_map(|(i, o)| Kind::Value { input: InType(i), output: OutType(o), map: None });
    let kind = prop_oneof![3 => value, 1 => (0_u16..14, 0_u16..5).prop_map(|(first, members)| Kind::Struct { first, members })];
    let count = prop_oneof![
        4 => Just(Count::One),
        1 => prop_oneof![0_u16..5, any::<u16>()].prop_map(Count::Fixed),
        1 => (0_u16..14).prop_map(Count::Field),
        1 => Just(Count::Prefixed),
        1 => Just(Count::ToEnd),
    ];
    let length = prop_oneof![
        3 => Just(Length::Natural),
        1 => prop_oneof![0_u16..5, any::<u16>()].prop_map(Length::Fixed),
        1 => (0_u16..14).prop_map(Length::Field),
    ];
    (kind, count, length).prop_map(|(kind, count, length)| Field::new("f", kind).times(count).long(length))
}

fn small_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![3 => any::<u8>(), 2 => 0_u8..4], 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn simple_schemas_read_as_the_oracle_reads_them(
        fields in prop::collection::vec(simple_field(), 0..8),
        payload in small_bytes(),
    ) {
        let schema = flat(fields);
        let (expected, left) = oracle(&schema, &payload);
        let (seen, result) = walk(&schema, &payload, 8);
        prop_assert_eq!(result.as_ref().map(|r| r.len()).ok(), left);
        let sizes: Vec<_> = seen.iter().filter_map(|s| match s {
            Seen::Value(_, v) => Some(size_of(v)),
            _ => None,
        }).collect();
        if left.is_some() {
            prop_assert_eq!(&sizes, &expected.iter().map(|e| e.1).collect::<Vec<_>>());
            for (seen, (at, size)) in seen.iter().filter(|s| matches!(s, Seen::Value(..))).zip(expected) {
                let Seen::Value(_, value) = seen else { unreachable!() };
                let bytes = &payload[at..at + size];
                match value {
                    Value::Text8(text) => prop_assert_eq!(*text, bytes),
                    Value::Guid(guid) => prop_assert_eq!(&guid.to_bytes()[..], bytes),
                    other => prop_assert_eq!(&other.as_u64().unwrap().to_le_bytes()[..size], bytes),
                }
            }
        }
    }

    #[test]
    fn any_schema_on_any_payload_is_bounded(
        fields in prop::collection::vec(any_field(), 0..14),
        top in 0_usize..14,
        payload in small_bytes(),
        narrow: bool,
    ) {
        let top = top.min(fields.len());
        let Ok(schema) = Schema::default().seal(fields, top) else { return Ok(()) };
        let (seen, result) = walk(&schema, &payload, if narrow { 4 } else { 8 });
        if let Ok(rest) = result {
            prop_assert!(payload.ends_with(rest));
        }
        let allowance = (payload.len() + schema.fields().len()) * 2 + 64;
        let values = seen.iter().filter(|s| matches!(s, Seen::Value(..))).count();
        prop_assert!(values <= payload.len() + allowance, "{} values", values);
        let begun = seen.iter().filter(|s| matches!(s, Seen::Array(..) | Seen::Struct(_))).count();
        prop_assert!(begun <= 2 * (payload.len() * (MAX_DEPTH + 1) + allowance), "{} arrays and structures", begun);
        let mut open = Vec::new();
        for seen in seen {
            match seen {
                Seen::Array(i, _) => open.push((true, i)),
                Seen::Struct(i) => open.push((false, i)),
                Seen::EndArray(i) => prop_assert_eq!(open.pop(), Some((true, i))),
                Seen::EndStruct(i) => prop_assert_eq!(open.pop(), Some((false, i))),
                Seen::Value(..) => {}
            }
        }
        prop_assert!(open.is_empty());
    }
}
