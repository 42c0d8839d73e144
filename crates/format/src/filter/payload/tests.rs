use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::*;

const U32: Type = Type::Integer { bytes: 4, signed: false };

/// Returns a small valid filter.
pub(in crate::filter) fn sample_filter() -> Vec<u8> {
    let (any, required) = (true, true);
    let mut event_filter = Event::new(7, 1, any);
    let number = event_filter.add_field(Field::single(Shape::Fixed(4))).unwrap();
    let text = event_filter.add_field(Field::single(Shape::Utf16Z)).unwrap();
    event_filter.add_field(Field::single(Shape::Sid)).unwrap();
    event_filter.add_predicate(number, U32, Operator::BETWEEN, Operand::Range(3, 9)).unwrap();
    event_filter.add_predicate(text, Type::Utf16, Operator::CONTAINS, Operand::Text("größe")).unwrap();
    let mut builder = Builder::new();
    builder.add(&event_filter, required).unwrap();
    builder.finish().unwrap()
}

#[test]
fn built_filter_reads_back() {
    let blob = sample_filter();
    // Magic, version 1, one filter.
    assert_eq!(&blob[..8], b"EPF1\x01\0\x01\0");
    let filters: Vec<_> = Filters::parse(&blob).unwrap().iter().collect();
    let [filter] = filters[..] else { panic!("{filters:?}") };
    assert_eq!((filter.event_id, filter.event_version, filter.any, filter.required), (7, 1, true, true));
    let fields: Vec<_> = filter.fields().collect();
    assert_eq!(
        fields,
        [Field::single(Shape::Fixed(4)), Field::single(Shape::Utf16Z)],
        "fields after the last used one were kept"
    );
    let predicates: Vec<_> = filter.predicates().collect();
    let between = Predicate { field: 0, kind: U32, operator: Operator::BETWEEN, value: Value::Numbers(3, 9) };
    let contains =
        Predicate {
            field: 1, kind: Type::Utf16, operator: Operator::CONTAINS, value: Value::Text("größe")
        };
    assert_eq!(predicates, [between, contains]);
}

#[test]
fn every_field_and_type_round_trips() {
    for shape in [
        Shape::Fixed(9),
        Shape::Utf16Z,
        Shape::AnsiZ,
        Shape::Counted,
        Shape::Sid,
        Shape::Length { field: 3, unit: 2 },
    ] {
        for count in [Count::Fixed(1), Count::Fixed(700), Count::Field(9)] {
            let field = Field { shape, count };
            assert_eq!(Field::from_word(field.to_word()), Some(field));
        }
    }
    let type_bytes: Vec<u8> =
        (0..=255).filter(|b| Type::from_byte(*b).is_some_and(|kind| kind.to_byte() == *b)).collect();
    // Unsigned integers, signed integers (16 plus their size), GUID, UTF-16 text, ANSI text.
    assert_eq!(type_bytes, [1, 2, 4, 8, 17, 18, 20, 24, 32, 33, 34]);
    assert_eq!((0..=255).filter(|b| Type::from_byte(*b).is_some()).count(), type_bytes.len());
}

#[test]
fn invalid_predicates_fields_and_blobs_are_rejected() {
    let mut event_filter = Event::new(1, 0, false);
    let field = event_filter.add_field(Field::single(Shape::Fixed(1))).unwrap();
    let (signed_byte, guid) = (Type::Integer { bytes: 1, signed: true }, Operand::Guid(Guid::NULL));
    for (kind, operator, operand) in [
        (signed_byte, Operator::EQ, Operand::Number(128)),
        (signed_byte, Operator::EQ, Operand::Number(-129)),
        (signed_byte, Operator::EQ, Operand::Range(1, 2)),
        (signed_byte, Operator::BETWEEN, Operand::Number(1)),
        (signed_byte, Operator::MODULO, Operand::Number(0)),
        (signed_byte, Operator::CONTAINS, Operand::Text("1")),
        (signed_byte, Operator::EQ, Operand::Text("1")),
        (signed_byte, Operator(9), Operand::Number(1)),
        (signed_byte, Operator::INVALID, Operand::Number(1)),
        (Type::Guid, Operator::EQ, guid),
        (Type::Ansi, Operator::EQ, Operand::Text("a")),
        (Type::Ansi, Operator::IS, guid),
    ] {
        assert!(
            event_filter.add_predicate(field, kind, operator, operand).is_err(),
            "{kind:?} {operator:?} {operand:?}"
        );
    }
    assert!(
        event_filter.add_predicate(1, signed_byte, Operator::EQ, Operand::Number(1)).is_err(),
        "accepted a missing field"
    );
    assert!(Builder::new().add(&event_filter, false).is_err(), "accepted a filter without predicate");
    assert!(Builder::new().finish().is_err(), "accepted a blob without filter");
    for n in [-128, 127, 0, -1, 5, 6, 7, 8] {
        event_filter.add_predicate(field, signed_byte, Operator::EQ, Operand::Number(n)).unwrap();
    }
    assert!(
        event_filter.add_predicate(field, signed_byte, Operator::EQ, Operand::Number(1)).is_err(),
        "accepted a ninth predicate"
    );
    assert!(
        event_filter.add_field(Field::single(Shape::Length { field: 1, unit: 1 })).is_err(),
        "accepted a reference to itself"
    );
    assert!(
        event_filter.add_field(Field { shape: Shape::Sid, count: Count::Field(1) }).is_err(),
        "accepted a reference to itself"
    );
    assert!(event_filter.add_field(Field::single(Shape::Length { field: 0, unit: 0 })).is_err());
    let largest = i128::from(u64::MAX);
    let unsigned_word = Type::Integer { bytes: 8, signed: false };
    let mut event_filter = Event::new(1, 0, false);
    event_filter.add_field(Field::single(Shape::Fixed(8))).unwrap();
    event_filter.add_predicate(0, unsigned_word, Operator::LE, Operand::Number(largest)).unwrap();
    assert!(
        event_filter.add_predicate(0, unsigned_word, Operator::LE, Operand::Number(largest + 1)).is_err()
    );
}

#[test]
fn blob_is_limited_to_4096_bytes() {
    let mut event_filter = Event::new(1, 0, false);
    event_filter.add_field(Field::single(Shape::AnsiZ)).unwrap();
    // The text fills the blob except for the head of the blob (8), the head (8) and the one field
    // (8) of the filter, the head of the predicate (8), and the length of the text (2).
    let text = String::from_utf8(vec![b'x'; 4096 - 8 - 8 - 8 - 8 - 2]).unwrap();
    event_filter.add_predicate(0, Type::Ansi, Operator::IS, Operand::Text(&text)).unwrap();
    let mut builder = Builder::new();
    builder.add(&event_filter, false).unwrap();
    assert_eq!(builder.finish().unwrap().len(), 4096);
    assert!(Filters::parse(&builder.finish().unwrap()).is_ok());
    assert!(matches!(builder.add(&event_filter, false), Err(crate::Error::TooLarge { .. })));
}

#[test]
fn damaged_blobs_are_rejected_or_read_without_panic() {
    let blob = sample_filter();
    for length in 0..blob.len() {
        assert!(Filters::parse(&blob[..length]).is_err(), "parsed a prefix of {length} bytes");
    }
    for at in 0..blob.len() {
        for value in [0, 1, 2, 3, 5, 8, 16, 32, 35, 127, 128, 255] {
            let mut damaged = blob.clone();
            damaged[at] = value;
            let Ok(filters) = Filters::parse(&damaged) else { continue };
            for filter in filters.iter() {
                let fields = filter.fields().count();
                assert!(filter.predicates().count() >= 1);
                assert!(filter.predicates().all(|predicate| usize::from(predicate.field) < fields));
            }
        }
    }
}

#[test]
fn case_folding_maps_each_character_to_one_upper_case_character() {
    for (from, to) in
        [('a', 'A'), ('z', 'Z'), ('{', '{'), ('`', '`'), ('ö', 'Ö'), ('ß', 'ß'), ('я', 'Я'), ('1', '1')]
    {
        assert_eq!(fold_case(from.into()), u32::from(to));
    }
    assert_eq!(fold_case(0xD800), 0xD800);
    assert_eq!(fold_case(0x11_0080), 0x11_0080);
}
