//! Counts and lengths: arrays, structures, and fields that hold the count or length of others.

use super::*;

#[test]
fn arrays_of_each_count_are_announced_and_closed() {
    let elements = |index| {
        let value = |v| Call::Value(index, Value::U16(v));
        vec![Call::Array(index, 2), value(1), value(2), Call::EndArray(index)]
    };
    let two: &[u8] = &[1, 0, 2, 0];
    let fixed = array_of(InType::UINT16, Count::Fixed(2));
    assert_eq!(walk(&fixed, two, 8), (elements(0), Ok(&[][..])));
    let prefixed = array_of(InType::UINT16, Count::Prefixed);
    assert_eq!(walk(&prefixed, &[&[2, 0], two, &[9]].concat(), 8), (elements(0), Ok(&[9][..])));
    let to_end = array_of(InType::UINT16, Count::ToEnd);
    assert_eq!(
        walk(&to_end, &[two, &[9]].concat(), 8),
        (elements(0), Ok(&[9][..])),
        "half an element must remain"
    );
    let by_field =
        schema_of(vec![field_of(InType::UINT8), field_of(InType::UINT16).with_count(Count::Field(0))]);
    let (calls, remaining) = walk(&by_field, &[2, 1, 0, 2, 0], 8);
    assert_eq!((&calls[1..], remaining), (&elements(1)[..], Ok(&[][..])));
}

#[test]
fn empty_arrays_are_announced_and_closed() {
    let nothing = [Call::Array(0, 0), Call::EndArray(0)];
    assert_eq!(walk(&array_of(InType::UINT16, Count::Fixed(0)), &[], 8).0, nothing);
    assert_eq!(walk(&array_of(InType::UINT16, Count::ToEnd), &[], 8).0, nothing);
    assert_eq!(walk(&array_of(InType::UINT16, Count::Prefixed), &[0, 0], 8).0, nothing);
    assert_eq!(
        walk(&array_of(InType::UINT16, Count::Prefixed), &[], 8).0,
        [],
        "a payload without a count must give no array"
    );
    let by_field =
        schema_of(vec![field_of(InType::UINT8), field_of(InType::UINT16).with_count(Count::Field(0))]);
    assert_eq!(walk(&by_field, &[0], 8).0[1..], [Call::Array(1, 0), Call::EndArray(1)]);
}

#[test]
fn array_cut_short_is_closed_and_reported() {
    let schema = array_of(InType::UINT16, Count::Fixed(3));
    let (calls, result) = walk(&schema, &[1, 0, 2, 0, 3], 8);
    let value = |v| Call::Value(0, Value::U16(v));
    assert_eq!(calls, [Call::Array(0, 3), value(1), value(2), Call::EndArray(0)]);
    assert_eq!(result, Err(Undecoded::PayloadTooShort { field: "f".into(), offset: 4 }));
}

#[test]
fn arrays_of_strings_need_bytes_for_each() {
    let schema = |count| array_of(InType::ANSISTRING, Count::Fixed(count));
    assert_eq!(
        values_of(&schema(3), b"a\0\0b", 0),
        [Value::Text8(b"a"), Value::Text8(b""), Value::Text8(b"b")]
    );
    assert_too_short(&schema(4), b"a\0\0b", 4);
    let to_end = array_of(InType::UNICODESTRING, Count::ToEnd);
    assert_eq!(values_of(&to_end, b"a\0\0\0b\0", 0), [Value::Text16(b"a\0"), Value::Text16(b"b\0")]);
}

#[test]
fn arrays_of_characters_are_one_text() {
    let text8 = [Call::Value(0, Value::Text8(b"ab"))];
    let text16 = [Call::Value(0, Value::Text16(b"a\0b\0"))];
    for field in [
        field_with_out_type(InType::UINT8, OutType::STRING),
        field_with_out_type(InType::INT8, OutType::STRING),
        field_of(InType::ANSICHAR),
    ] {
        assert_eq!(walk(&schema_of(vec![field.clone().with_count(Count::Fixed(4))]), b"ab\0c", 8).0, text8);
        assert_eq!(
            walk(&schema_of(vec![field.clone().with_count(Count::Prefixed)]), b"\x02\0ab", 8).0,
            text8
        );
        assert_eq!(walk(&schema_of(vec![field.with_count(Count::ToEnd)]), b"ab\0", 8).0, text8);
    }
    for field in [field_with_out_type(InType::UINT16, OutType::STRING), field_of(InType::UNICODECHAR)] {
        assert_eq!(
            walk(&schema_of(vec![field.clone().with_count(Count::Fixed(3))]), b"a\0b\0\0\0", 8).0,
            text16
        );
        assert_eq!(
            walk(&schema_of(vec![field.clone().with_count(Count::ToEnd)]), b"a\0b\0!", 8),
            (text16.to_vec(), Ok(&b"!"[..]))
        );
        assert_too_short(&schema_of(vec![field.with_count(Count::Fixed(3))]), b"a\0b\0\0", 0);
    }
}

#[test]
fn structures_nest_and_repeat() {
    // S[2] { a, T { b, c[2] } }, d: the first two fields are the top level. A structure has the
    // index of its first member and the number of its members.
    let pair = field_of(InType::UINT8).with_count(Count::Fixed(2));
    let fields = vec![
        struct_field(2, 2).with_count(Count::Fixed(2)),
        field_of(InType::UINT8),
        field_of(InType::UINT8),
        struct_field(4, 2),
        field_of(InType::UINT8),
        pair,
    ];
    let schema = seal_schema(fields, 2);
    let v = |index, value| Call::Value(index, Value::U8(value));
    let element = |n: u8| {
        vec![
            Call::Struct(0),
            v(2, n),
            Call::Struct(3),
            v(4, n + 1),
            Call::Array(5, 2),
            v(5, n + 2),
            v(5, n + 3),
            Call::EndArray(5),
            Call::EndStruct(3),
            Call::EndStruct(0),
        ]
    };
    let expected =
        [vec![Call::Array(0, 2)], element(1), element(5), vec![Call::EndArray(0), v(1, 9)]].concat();
    assert_eq!(walk(&schema, &[1, 2, 3, 4, 5, 6, 7, 8, 9], 8), (expected, Ok(&[][..])));
    assert_too_short(&schema, &[1, 2, 3, 4, 5, 6], 6);
}

#[test]
fn structures_repeat_to_the_end_of_the_payload() {
    let fields = vec![
        struct_field(1, 2).with_count(Count::ToEnd),
        field_of(InType::UINT8),
        field_of(InType::ANSISTRING),
    ];
    let calls = values_of(&seal_schema(fields, 1), b"\x01a\0\x02b\0\x03", 0);
    assert_eq!(
        calls,
        [Value::U8(1), Value::Text8(b"a"), Value::U8(2), Value::Text8(b"b"), Value::U8(3), Value::Text8(b"")]
    );
}

#[test]
fn members_refer_to_their_own_element() {
    let fields = vec![
        struct_field(1, 2).with_count(Count::Prefixed),
        field_of(InType::UINT8),
        field_of(InType::UINT8).with_count(Count::Field(1)),
    ];
    let calls = values_of(&seal_schema(fields, 1), &[2, 0, 1, 10, 2, 20, 21], 0);
    assert_eq!(calls, [1, 10, 2, 20, 21].map(Value::U8));
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
        let schema = schema_of(vec![field_of(input), field_of(InType::UINT8).with_count(Count::Field(0))]);
        let payload = [bytes, &[5, 6]].concat();
        assert_eq!(values_of(&schema, &payload, 0)[1..], [Value::U8(5), Value::U8(6)], "{input:?}");
    }
}

#[test]
fn references_to_unread_or_text_fields_are_errors() {
    let forward =
        schema_of(vec![field_of(InType::UINT8).with_count(Count::Field(1)), field_of(InType::UINT8)]);
    assert_bad_field(&forward, &[1, 1], 0);
    let text =
        schema_of(vec![field_of(InType::ANSISTRING), field_of(InType::BINARY).with_length(Length::Field(0))]);
    assert_bad_field(&text, b"2\0ab", 2);
    let self_reference = array_of(InType::UINT8, Count::Field(0));
    assert_bad_field(&self_reference, &[1, 1], 0);
}

#[test]
fn referenced_values_do_not_outlive_their_event() {
    let schema =
        schema_of(vec![field_of(InType::UINT8), field_of(InType::UINT8).with_count(Count::Field(0))]);
    let forward =
        schema_of(vec![field_of(InType::UINT8).with_count(Count::Field(1)), field_of(InType::UINT8)]);
    let mut walker = Walker::default();
    assert!(walker.walk(&schema, &[1, 1], 8, &mut Recorder::default()).is_ok());
    assert!(walker.walk(&forward, &[1, 1], 8, &mut Recorder::default()).is_err());
}
