//! Payloads that end early, and counts that no payload can hold.

use super::*;

#[test]
fn payloads_may_end_at_a_field_boundary_and_bytes_may_remain() {
    let schema = schema_of(vec![
        field_of(InType::UINT8),
        field_of(InType::UINT16),
        field_of(InType::ANSISTRING),
        field_of(InType::GUID),
    ]);
    let mut payload = vec![1, 2, 0];
    payload.put_ansi_z("x").put_guid(&GUID).put_u8(99);
    // Bytes of the payload, values read, bytes left.
    for (length, count, remaining) in [(0, 0, 0), (1, 1, 0), (3, 2, 0), (5, 3, 0), (21, 4, 0), (22, 4, 1)] {
        assert_eq!(values_of(&schema, &payload[..length], remaining).len(), count, "{length} bytes");
    }
    assert_too_short(&schema, &payload[..2], 1);
    assert_too_short(&schema, &payload[..20], 5);
    let nothing = schema_of(vec![]);
    assert_eq!(values_of(&nothing, &payload, 22), []);
}

#[test]
fn payload_must_not_end_inside_a_structure() {
    let schema = seal_schema(vec![struct_field(1, 2), field_of(InType::UINT8), field_of(InType::UINT8)], 1);
    assert_too_short(&schema, &[1], 1);
    assert_eq!(values_of(&schema, &[], 0), [], "the structure must be absent");
}

#[test]
fn many_small_structures_stay_within_the_allowance() {
    // Each byte is inside eight structures.
    let mut fields: Vec<_> = (1..=8).map(|first| struct_field(first, 1)).collect();
    fields[0].count = Count::ToEnd;
    fields.push(field_of(InType::UINT8));
    assert_eq!(values_of(&seal_schema(fields, 1), &[7; 5000], 0).len(), 5000);
    let mostly_empty = vec![
        struct_field(1, 4).with_count(Count::ToEnd),
        field_of(InType::UINT16),
        field_of(InType::BINARY).with_length(Length::Field(1)),
        field_of(InType::UINT8).with_count(Count::Field(1)),
        field_of(InType::NULL),
    ];
    // Each element takes two bytes, the zero count, and gives three values: the count, the empty
    // bytes and the null. Its array is empty.
    assert_eq!(values_of(&seal_schema(mostly_empty, 1), &[0; 600], 0).len(), 300 * 3);
}

#[test]
fn hostile_counts_of_empty_values_are_bounded() {
    let empty = Field::new("s", FieldKind::Struct { first: 1, members: 0 });
    let no_text = field_of(InType::UNICODESTRING).with_length(Length::Fixed(0));
    for field in [empty, field_of(InType::NULL), no_text.clone(), field_of(InType::NONNULLTERMINATEDSTRING)] {
        for count in [Count::Fixed(u16::MAX), Count::Prefixed] {
            let schema = schema_of(vec![field.clone().with_count(count)]);
            let (calls, result) = walk(&schema, &[0xFF, 0xFF], 8);
            assert!(matches!(result, Err(Undecoded::BadField { .. })), "{field:?}");
            assert!(calls.len() < 200, "{} calls for {field:?}", calls.len());
        }
    }
    // Arrays of arrays of arrays of empty values.
    let mut fields: Vec<_> = (1..=MAX_DEPTH as u16)
        .map(|first| struct_field(first, 1).with_count(Count::Fixed(u16::MAX)))
        .collect();
    fields.push(no_text.with_count(Count::Fixed(u16::MAX)));
    let (calls, result) = walk(&seal_schema(fields, 1), &[1; 100], 8);
    assert!(result.is_err() && calls.len() < 2000, "{} calls", calls.len());
    // Each element of 4,001 members needs one byte only.
    let mut fields = vec![struct_field(1, 4001).with_count(Count::ToEnd), field_of(InType::UINT8)];
    fields.resize(4002, field_of(InType::NULL));
    let (calls, result) = walk(&seal_schema(fields, 1), &[1; 1000], 8);
    assert!(result.is_err() && calls.len() < 20_000, "{} calls", calls.len());
}

#[test]
fn impossible_counts_and_lengths_are_refused() {
    for input in [InType::INT32, InType::INT64] {
        for field in [
            field_of(InType::UINT8).with_count(Count::Field(0)),
            field_of(InType::NULL).with_count(Count::Field(0)),
        ] {
            assert_eq!(
                assert_bad_field(
                    &schema_of(vec![field_of(input), field]),
                    &[0xFF; 12],
                    input.size(8).unwrap()
                )
                .len(),
                1
            );
        }
        let long =
            schema_of(vec![field_of(input), field_of(InType::UNICODESTRING).with_length(Length::Field(0))]);
        assert_too_short(&long, &[0xFF; 9], input.size(8).unwrap());
    }
}
