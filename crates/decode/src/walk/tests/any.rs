//! Random schemas on random payloads.
//!
//! For simple schemas an oracle that steps through the bytes gives the expected values. For all
//! others the walk must end, stay inside the payload and close every array and structure that it
//! began.

use proptest::prelude::*;

use super::*;

/// Types that the oracle reads, with their sizes; 0 for terminated strings.
const SIMPLE_TYPES: [(InType, usize); 8] = [
    (InType::UINT8, 1),
    (InType::UINT16, 2),
    (InType::UINT32, 4),
    (InType::UINT64, 8),
    (InType::FILETIME, 8),
    (InType::POINTER, 8),
    (InType::GUID, 16),
    (InType::ANSISTRING, 0),
];

/// Walks simple types in the plainest way, as the oracle. Returns the offset and size of each
/// value, and the bytes left if the walk succeeds.
fn walk_plainly(schema: &Schema, payload: &[u8]) -> (Vec<(usize, usize)>, Option<usize>) {
    let (mut at, mut values) = (0, Vec::new());
    for field in schema.top() {
        // Fields after the end of the payload are absent, except arrays of 0 elements.
        if at == payload.len() && field.count != Count::Fixed(0) {
            break;
        }
        let count = match field.count {
            Count::Fixed(n) => n.into(),
            Count::Prefixed => {
                let Some(prefix) = payload.get(at..at + 2) else { return (values, None) };
                at += 2;
                usize::from(prefix[0]) + 256 * usize::from(prefix[1])
            }
            _ => 1,
        };
        let FieldKind::Value { input, .. } = field.kind else { panic!("{} is a structure", field.name) };
        let size = SIMPLE_TYPES.iter().find(|simple| simple.0 == input).unwrap().1;
        for _ in 0..count {
            let bytes_left = &payload[at..];
            let (value_size, step) = match bytes_left.iter().position(|&b| b == 0) {
                _ if size > 0 => (size, size),
                Some(n) => (n, n + 1),
                None => (bytes_left.len(), bytes_left.len()),
            };
            // A string that is missing at the end of the payload is an error only in an array.
            let lacks_string = size == 0 && bytes_left.is_empty() && field.count != Count::One;
            if step > bytes_left.len() || lacks_string {
                return (values, None);
            }
            values.push((at, value_size));
            at += step;
        }
    }
    (values, Some(payload.len() - at))
}

/// Returns the size of a value in the payload, in bytes, without a terminator.
fn value_bytes(value: &Value<'_>) -> usize {
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
    ((0..SIMPLE_TYPES.len()), count).prop_map(|(i, count)| field_of(SIMPLE_TYPES[i].0).with_count(count))
}

fn any_field() -> impl Strategy<Value = Field> {
    // Types of manifests have low numbers, and those of MOF classes begin at 300. The ranges
    // include numbers without a type.
    let input = prop_oneof![0_u16..27, 299_u16..312];
    let output = prop_oneof![0_u16..40, 299_u16..303];
    let value = (input, output).prop_map(|(i, o)| FieldKind::Value {
        input: InType(i),
        output: OutType(o),
        map: None,
    });
    let kind = prop_oneof![3 => value, 1 => (0_u16..14, 0_u16..5).prop_map(|(first, members)| FieldKind::Struct { first, members })];
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
    (kind, count, length)
        .prop_map(|(kind, count, length)| Field::new("f", kind).with_count(count).with_length(length))
}

fn short_payload() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![3 => any::<u8>(), 2 => 0_u8..4], 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn simple_schemas_read_as_the_oracle_reads_them(
        fields in prop::collection::vec(simple_field(), 0..8),
        payload in short_payload(),
    ) {
        let schema = schema_of(fields);
        let (expected, bytes_left) = walk_plainly(&schema, &payload);
        let (calls, result) = walk(&schema, &payload, 8);
        prop_assert_eq!(result.as_ref().map(|r| r.len()).ok(), bytes_left);
        let sizes: Vec<_> = calls.iter().filter_map(|call| match call {
            Call::Value(_, v) => Some(value_bytes(v)),
            _ => None,
        }).collect();
        if bytes_left.is_some() {
            prop_assert_eq!(&sizes, &expected.iter().map(|e| e.1).collect::<Vec<_>>());
            for (call, (at, size)) in calls.iter().filter(|call| matches!(call, Call::Value(..))).zip(expected) {
                let Call::Value(_, value) = call else { unreachable!() };
                let bytes = &payload[at..at + size];
                match value {
                    Value::Text8(text) => prop_assert_eq!(*text, bytes),
                    Value::Guid(guid) => prop_assert_eq!(&guid.to_bytes()[..], bytes),
                    number => prop_assert_eq!(&number.as_u64().unwrap().to_le_bytes()[..size], bytes),
                }
            }
        }
    }

    #[test]
    fn walk_of_any_schema_on_any_payload_is_bounded(
        fields in prop::collection::vec(any_field(), 0..14),
        top in 0_usize..14,
        payload in short_payload(),
        is_32_bit: bool,
    ) {
        let top = top.min(fields.len());
        let Ok(schema) = Schema::default().seal(fields, top) else { return Ok(()) };
        let (calls, result) = walk(&schema, &payload, if is_32_bit { 4 } else { 8 });
        if let Ok(remaining) = result {
            prop_assert!(payload.ends_with(remaining));
        }
        // The walk's allowance for values that take no bytes (`walk.rs`).
        let allowance = (payload.len() + schema.fields().len()) * 2 + 64;
        let values = calls.iter().filter(|call| matches!(call, Call::Value(..))).count();
        prop_assert!(values <= payload.len() + allowance, "{} values", values);
        let begun = calls.iter().filter(|call| matches!(call, Call::Array(..) | Call::Struct(_))).count();
        prop_assert!(begun <= 2 * (payload.len() * (MAX_DEPTH + 1) + allowance), "{} arrays and structures", begun);
        let mut open = Vec::new();
        for call in calls {
            match call {
                Call::Array(i, _) => open.push((true, i)),
                Call::Struct(i) => open.push((false, i)),
                Call::EndArray(i) => prop_assert_eq!(open.pop(), Some((true, i))),
                Call::EndStruct(i) => prop_assert_eq!(open.pop(), Some((false, i))),
                Call::Value(..) => {}
            }
        }
        prop_assert!(open.is_empty());
    }
}
