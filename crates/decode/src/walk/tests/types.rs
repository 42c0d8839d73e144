//! Types: the number of bytes that a value takes, and the value that results.

use super::*;

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
        let schema = schema_of(vec![field_of(input)]);
        assert_eq!(values_of(&schema, &bytes, 16 - size), [expected], "{input:?}");
        assert_eq!(values_of(&schema, &bytes[..size], 0), [expected], "{input:?} that fits exactly");
        assert_eq!(values_of(&schema, &[], 0), [], "{input:?} of an older layout is absent");
        if size > 1 {
            assert_too_short(&schema, &bytes[..size - 1], 0);
        }
    }
}

#[test]
fn pointers_have_the_pointer_size_of_the_event() {
    let schema = schema_of(vec![field_of(InType::POINTER), field_of(InType::SIZET)]);
    let payload = [1, 0, 0, 0, 2, 0, 0, 0];
    let (calls, remaining) = walk(&schema, &payload, 4);
    assert_eq!(calls, [Call::Value(0, Value::Pointer(1)), Call::Value(1, Value::Pointer(2))]);
    assert_eq!(remaining, Ok(&[][..]));
    assert_eq!(
        values_of(&schema, &payload, 0),
        [Value::Pointer(0x2_0000_0001)],
        "the second pointer must be absent"
    );
}

#[test]
fn boolean_is_true_if_any_of_its_four_bytes_is_set() {
    let schema = array_of(InType::BOOLEAN, Count::ToEnd);
    assert_eq!(values_of(&schema, &[0, 0, 0, 0, 0, 0, 0, 1], 0), [Value::Bool(false), Value::Bool(true)]);
}

#[test]
fn null_takes_no_bytes() {
    let schema = schema_of(vec![field_of(InType::NULL), field_of(InType::UINT8), field_of(InType::NULL)]);
    assert_eq!(values_of(&schema, &[7], 0), [Value::Null, Value::U8(7), Value::Null]);
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
        let schema = schema_of(vec![field_of(input), field_of(InType::UINT8)]);
        let payload = [prefix, data, &[9, 10]].concat();
        assert_eq!(values_of(&schema, &payload, 1), [expected, Value::U8(9)], "{input:?}");
        assert_too_short(&schema, &payload[..prefix.len() + 3], prefix.len());
        assert_too_short(&schema, &payload[..prefix.len() - 1], 0);
        let empty = vec![0; prefix.len()];
        assert_eq!(values_of(&schema, &empty, 0).len(), 1, "{input:?} of no bytes");
    }
}

#[test]
fn text_to_the_end_takes_all_and_stops_at_a_nul() {
    let schema = |input| schema_of(vec![field_of(InType::UINT8), field_of(input)]);
    let wide = schema(InType::NONNULLTERMINATEDSTRING);
    assert_eq!(values_of(&wide, b"\x01a\0b\0", 0)[1], Value::Text16(b"a\0b\0"));
    assert_eq!(values_of(&wide, b"\x01a\0\0\0b\0", 0)[1], Value::Text16(b"a\0"));
    let narrow = schema(InType::NONNULLTERMINATEDANSISTRING);
    assert_eq!(values_of(&narrow, b"\x01ab", 0)[1], Value::Text8(b"ab"));
    assert_eq!(values_of(&narrow, b"\x01a\0b", 0)[1], Value::Text8(b"a"));
}

#[test]
fn strings_end_at_their_nul_and_the_last_one_may_lack_it() {
    let wide = schema_of(vec![field_of(InType::UNICODESTRING), field_of(InType::UNICODESTRING)]);
    assert_eq!(values_of(&wide, b"a\0\0\0b\0\0\0", 0), [Value::Text16(b"a\0"), Value::Text16(b"b\0")]);
    assert_eq!(values_of(&wide, b"a\0\0\0b\0", 0), [Value::Text16(b"a\0"), Value::Text16(b"b\0")]);
    assert_eq!(
        values_of(&wide, b"a\0\0\0b\0\0", 0),
        [Value::Text16(b"a\0"), Value::Text16(b"b\0")],
        "half a NUL must end the text"
    );
    assert_eq!(values_of(&wide, b"\0\0\0\0", 0), [Value::Text16(b""), Value::Text16(b"")]);
    assert_eq!(values_of(&wide, b"a\0\0\0", 0), [Value::Text16(b"a\0")]);
    let narrow = schema_of(vec![field_of(InType::ANSISTRING), field_of(InType::ANSISTRING)]);
    assert_eq!(values_of(&narrow, b"a\0b\0", 0), [Value::Text8(b"a"), Value::Text8(b"b")]);
    assert_eq!(values_of(&narrow, b"a\0b", 0), [Value::Text8(b"a"), Value::Text8(b"b")]);
    assert_eq!(values_of(&narrow, b"\0\0z", 1), [Value::Text8(b""), Value::Text8(b"")]);
}

#[test]
fn lengths_count_utf16_characters_or_bytes() {
    for (input, length, expected) in [
        (InType::UNICODESTRING, 2, Value::Text16(b"a\0b\0")),
        (InType::ANSISTRING, 4, Value::Text8(b"a")),
        (InType::BINARY, 4, Value::Bytes(b"a\0b\0")),
    ] {
        let fixed =
            schema_of(vec![field_of(input).with_length(Length::Fixed(length)), field_of(InType::UINT8)]);
        assert_eq!(values_of(&fixed, b"a\0b\0!", 0), [expected, Value::U8(b'!')], "{input:?}");
        assert_too_short(&fixed, b"a\0b", 0);
        let by_field = schema_of(vec![
            field_of(InType::UINT16),
            field_of(input).with_length(Length::Field(0)),
            field_of(InType::UINT8),
        ]);
        let payload = [&length.to_le_bytes(), &b"a\0b\0!"[..]].concat();
        assert_eq!(values_of(&by_field, &payload, 0)[1..], [expected, Value::U8(b'!')], "{input:?}");
        assert_too_short(&by_field, &payload[..5], 2);
        assert_eq!(values_of(&by_field, &[0, 0, 9], 0).len(), 3, "{input:?} of length 0");
        assert_eq!(values_of(&by_field, &[0, 0], 0).len(), 2, "a value of length 0 must need no bytes");
    }
}

#[test]
fn lengths_of_fixed_size_types_are_ignored() {
    let fields = vec![
        field_of(InType::UINT8),
        field_of(InType::UINT32).with_length(Length::Field(0)),
        field_of(InType::GUID).with_length(Length::Fixed(0)),
    ];
    let schema = schema_of(fields);
    assert_eq!(values_of(&schema, &[0, 1, 0, 0, 0], 0), [Value::U8(0), Value::U32(1)]);
    assert_eq!(values_of(&schema, &[0], 0), [Value::U8(0)]);
}

#[test]
fn binary_without_a_length_is_an_address_or_extends_to_the_end() {
    let bytes = [3; 20];
    let address = schema_of(vec![field_with_out_type(InType::BINARY, OutType::IPV6)]);
    assert_eq!(values_of(&address, &bytes, 4), [Value::Bytes(&bytes[..16])]);
    assert_too_short(&address, &bytes[..15], 0);
    assert_eq!(values_of(&schema_of(vec![field_of(InType::BINARY)]), &bytes, 0), [Value::Bytes(&bytes)]);
}

#[test]
fn sids_hold_their_own_size() {
    let schema = schema_of(vec![field_of(InType::SID), field_of(InType::UINT8)]);
    let payload = [&SID[..], &[7]].concat();
    assert_eq!(values_of(&schema, &payload, 0), [Value::Sid(&SID), Value::U8(7)]);
    assert_too_short(&schema, &SID[..15], 0);
    assert_too_short(&schema, &SID[..1], 0);
    // Byte 1 is the number of parts of 4 bytes, at most 15, after the first 8 bytes.
    let mut many = [0; 80];
    many[1] = 16;
    assert_bad_field(&schema, &many, 0);
    many[1] = 15;
    assert_eq!(values_of(&schema, &many, 11), [Value::Sid(&many[..68]), Value::U8(0)]);
}

#[test]
fn sid_blocks_are_four_zeros_or_two_pointers_and_a_sid() {
    let schema = schema_of(vec![field_of(InType::WBEMSID), field_of(InType::UINT8)]);
    for pointer_size in [4, 8] {
        let none = [0, 0, 0, 0, 7];
        let (calls, remaining) = walk(&schema, &none, pointer_size);
        assert_eq!(calls, [Call::Value(0, Value::Null), Call::Value(1, Value::U8(7))]);
        assert_eq!(remaining, Ok(&[][..]));
        let payload = [&vec![1; pointer_size * 2][..], &SID, &[7]].concat();
        let (calls, remaining) = walk(&schema, &payload, pointer_size);
        assert_eq!(calls, [Call::Value(0, Value::Sid(&SID)), Call::Value(1, Value::U8(7))]);
        assert_eq!(remaining, Ok(&[][..]));
    }
    assert_too_short(&schema, &[1; 3], 0);
    assert_too_short(&schema, &[1; 15], 0);
    assert_too_short(&schema, &[1; 17], 16);
}

#[test]
fn types_without_a_layout_are_refused() {
    for code in [24, 26, 99, 299, 311, u16::MAX] {
        assert_eq!(
            assert_bad_field(&schema_of(vec![field_of(InType(code))]), &[1; 8], 0),
            Vec::<String>::new(),
            "{code}"
        );
    }
}
