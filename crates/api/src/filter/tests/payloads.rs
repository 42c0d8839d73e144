//! Tests payload filters, with the payload in one block and in several.

use proptest::prelude::*;
use traceweir_format::Guid;
use traceweir_format::filter::payload::{
    Builder, Count, Event as FilteredEvent, Field, Operand, Shape, Type,
};
use traceweir_format::spec::enable::PayloadOperator as Operator;

use super::*;

const U32: Type = Type::Integer { bytes: 4, signed: false };
const I16: Type = Type::Integer { bytes: 2, signed: true };

/// Combines the filters of events, each with a flag that says whether it is required.
fn payload_filter(events: &[(FilteredEvent, bool)]) -> Filter {
    let mut out = Builder::new();
    events.iter().for_each(|(event, required)| out.add(event, *required).unwrap());
    Filter { kind: EVENT_FILTER_TYPE_PAYLOAD, data: out.finish().unwrap() }
}

/// Returns a filter on event 7 version 1 with one field and one predicate.
fn one_field_filter(shape: Shape, kind: Type, operator: Operator, operand: Operand<'_>) -> Filter {
    let mut event = FilteredEvent::new(7, 1, false);
    let field = event.add_field(Field::single(shape)).unwrap();
    event.add_predicate(field, kind, operator, operand).unwrap();
    payload_filter(&[(event, false)])
}

fn passes_blocks(filter: &Filter, data: &[&[u8]]) -> bool {
    let (slot, enable) = enable(0, vec![filter.clone()]);
    let d = EventDescriptor { version: 1, ..event(7, 4, 1) };
    let passed = passes(enable.filters.cell, &CallerEvent::new(&d, data));
    slot.disable_sessions(u64::MAX);
    passed
}

/// Returns whether a filter passes a payload, and asserts the same result for one block, single
/// bytes, and two halves around empty blocks.
fn passes_payload(filter: &Filter, payload: &[u8]) -> bool {
    let passes_as_one_block = passes_blocks(filter, &[payload]);
    let bytes: Vec<&[u8]> = payload.chunks(1).collect();
    assert_eq!(passes_blocks(filter, &bytes), passes_as_one_block, "{payload:?}");
    let (first, second) = payload.split_at(payload.len() / 2);
    assert_eq!(passes_blocks(filter, &[&[], first, &[], &[], second]), passes_as_one_block, "{payload:?}");
    passes_as_one_block
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

#[test]
fn numbers_compare_with_their_signs() {
    // The results are those for the numbers −4, −3, 0 and 7.
    for (operator, operand, holds) in [
        (Operator::EQ, Operand::Number(-3), [false, true, false, false]),
        (Operator::NE, Operand::Number(-3), [true, false, true, true]),
        (Operator::LE, Operand::Number(-3), [true, true, false, false]),
        (Operator::GT, Operand::Number(-3), [false, false, true, true]),
        (Operator::LT, Operand::Number(-3), [true, false, false, false]),
        (Operator::GE, Operand::Number(-3), [false, true, true, true]),
        (Operator::BETWEEN, Operand::Range(-3, 0), [false, true, true, false]),
        (Operator::NOTBETWEEN, Operand::Range(-3, 0), [true, false, false, true]),
        (Operator::BETWEEN, Operand::Range(5, -5), [false; 4]),
        (Operator::MODULO, Operand::Number(3), [false, true, true, false]),
        (Operator::IS, Operand::Number(-3), [false, true, false, false]),
        (Operator::ISNOT, Operand::Number(-3), [true, false, true, true]),
    ] {
        let filter = one_field_filter(Shape::Fixed(2), I16, operator, operand);
        let seen = [-4_i16, -3, 0, 7].map(|n| passes_payload(&filter, &n.to_le_bytes()));
        assert_eq!(seen, holds, "{operator:?}");
    }
    let large = one_field_filter(
        Shape::Fixed(8),
        Type::Integer { bytes: 8, signed: false },
        Operator::GE,
        Operand::Number(i128::from(u64::MAX)),
    );
    assert!(passes_payload(&large, &u64::MAX.to_le_bytes()));
    assert!(!passes_payload(&large, &(u64::MAX - 1).to_le_bytes()));
    let short = one_field_filter(Shape::Fixed(2), I16, Operator::NE, Operand::Number(1));
    assert!(
        !passes_payload(&short, &[9]) && !passes_payload(&short, &[]),
        "a missing field must fail its predicate"
    );
}

#[test]
fn texts_compare_without_regard_to_case() {
    for (kind, shape) in [(Type::Utf16, Shape::Utf16Z), (Type::Ansi, Shape::AnsiZ)] {
        let bytes =
            |text: &str| if kind == Type::Utf16 { utf16(text) } else { [text.as_bytes(), b"\0"].concat() };
        for (operator, wanted, text, holds) in [
            (Operator::CONTAINS, "ÖL", "Rohöl brennt", true),
            (Operator::CONTAINS, "öl", "rohoel", false),
            (Operator::CONTAINS, "aab", "AAAB", true),
            (Operator::CONTAINS, "abab", "ababb", true),
            (Operator::CONTAINS, "abac", "ababac", true),
            (Operator::CONTAINS, "", "x", true),
            (Operator::CONTAINS, "", "", true),
            (Operator::CONTAINS, "x", "", false),
            (Operator::DOESNTCONTAIN, "x", "", true),
            (Operator::DOESNTCONTAIN, "X", "axb", false),
            (Operator::IS, "Grün𝄞", "grÜN𝄞", true),
            (Operator::IS, "grü", "grün", false),
            (Operator::IS, "grün", "grü", false),
            (Operator::IS, "", "", true),
            (Operator::ISNOT, "grün", "GRÜN", false),
            (Operator::ISNOT, "grün", "blau", true),
        ] {
            let filter = one_field_filter(shape, kind, operator, Operand::Text(wanted));
            assert_eq!(
                passes_payload(&filter, &bytes(text)),
                holds,
                "{kind:?} {operator:?} {wanted:?} {text:?}"
            );
            assert!(!passes_payload(&filter, &[]), "an empty payload must fail");
        }
        let filter = one_field_filter(shape, kind, Operator::IS, Operand::Text("ab"));
        let text = bytes("ab");
        assert!(passes_payload(&filter, &text[..text.len() - 1]), "a text may end with the payload");
    }
    // The search continues after invalid characters.
    let broken = one_field_filter(Shape::AnsiZ, Type::Ansi, Operator::CONTAINS, Operand::Text("b"));
    assert!(passes_payload(&broken, b"\xFF\xC3b\0") && passes_payload(&broken, b"\xF0\x9Fb"));
    let lone = one_field_filter(Shape::Utf16Z, Type::Utf16, Operator::CONTAINS, Operand::Text("b"));
    assert!(passes_payload(&lone, &[0, 0xD8, b'b', 0, 0, 0]) && !passes_payload(&lone, &[0, 0xD8]));
}

#[test]
fn guid_predicates_compare_all_bytes() {
    let guid = Guid::from_u128(0x0123_4567_89AB_CDEF_0011_2233_4455_6677);
    let other = Guid::from_u128(0x0123_4567_89AB_CDEF_0011_2233_4455_6678);
    for (operator, passes_equal) in [(Operator::IS, true), (Operator::ISNOT, false)] {
        let filter = one_field_filter(Shape::Fixed(16), Type::Guid, operator, Operand::Guid(guid));
        assert_eq!(passes_payload(&filter, &guid.to_bytes()), passes_equal);
        assert_eq!(passes_payload(&filter, &other.to_bytes()), !passes_equal);
        assert!(!passes_payload(&filter, &guid.to_bytes()[..15]));
    }
}

#[test]
fn field_is_found_after_fields_of_every_shape() {
    let mut event = FilteredEvent::new(7, 1, false);
    let length = event.add_field(Field::single(Shape::Fixed(1))).unwrap();
    let count = event.add_field(Field::single(Shape::Fixed(2))).unwrap();
    for field in [
        Field::single(Shape::Utf16Z),
        Field::single(Shape::AnsiZ),
        Field::single(Shape::Counted),
        Field::single(Shape::Sid),
        Field::single(Shape::Length { field: length, unit: 2 }),
        Field { shape: Shape::Fixed(3), count: Count::Fixed(2) },
        Field { shape: Shape::AnsiZ, count: Count::Field(count) },
        Field { shape: Shape::Fixed(4), count: Count::Fixed(0) },
    ] {
        event.add_field(field).unwrap();
    }
    let wanted = event.add_field(Field::single(Shape::Fixed(4))).unwrap();
    event.add_predicate(wanted, U32, Operator::EQ, Operand::Number(0x1234_5678)).unwrap();
    let filter = payload_filter(&[(event, false)]);
    // Length 3 and count 2, then the fields of the list in order.
    let mut payload = vec![3, 2, 0];
    payload.extend(utf16("x\u{100}"));
    payload.extend(b"yz\0");
    payload.extend(b"\x05\0abcde");
    // A SID with two sub-authorities.
    payload.extend([1, 2, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 1, 1, 1, 1]);
    // Three units of two bytes, then two elements of three bytes.
    payload.extend([9; 6]);
    payload.extend([8; 6]);
    payload.extend(b"one\0two\0");
    let full_payload = [payload.clone(), 0x1234_5678_u32.to_le_bytes().to_vec(), vec![7; 9]].concat();
    assert!(passes_payload(&filter, &full_payload));
    assert!(!passes_payload(&filter, &[payload.clone(), vec![0; 4]].concat()));
    for cut in 0..payload.len() + 4 {
        assert!(!passes_payload(&filter, &full_payload[..cut]), "{cut}");
    }
}

#[test]
fn filters_of_one_event_combine_by_their_flags() {
    // Each number in `wanted` makes a predicate: the field is at most this number. With `any`, one
    // true predicate is enough.
    let make_event = |id, version, any, wanted: &[u32]| {
        let mut event = FilteredEvent::new(id, version, any);
        let field = event.add_field(Field::single(Shape::Fixed(4))).unwrap();
        wanted.iter().for_each(|n| {
            event.add_predicate(field, U32, Operator::LE, Operand::Number((*n).into())).unwrap()
        });
        event
    };
    let five = 5_u32.to_le_bytes();
    // The tested event has the id 7, version 1 and the field 5. The flag of each filter says
    // whether it is required. All required filters must pass; of the others, one must.
    for (events, passed) in [
        (vec![(make_event(7, 1, false, &[5, 4]), false)], false),
        (vec![(make_event(7, 1, true, &[5, 4]), false)], true),
        (vec![(make_event(7, 1, true, &[4, 4]), false)], false),
        (vec![(make_event(7, 1, false, &[5]), true), (make_event(7, 1, false, &[4]), false)], false),
        (vec![(make_event(7, 1, false, &[5]), true), (make_event(7, 1, false, &[5]), false)], true),
        (vec![(make_event(7, 1, false, &[4]), true), (make_event(7, 1, false, &[5]), false)], false),
        (vec![(make_event(7, 1, false, &[4]), false), (make_event(7, 1, false, &[5]), false)], true),
        (vec![(make_event(7, 1, false, &[5]), true), (make_event(7, 1, false, &[5]), true)], true),
        (vec![(make_event(8, 1, false, &[4]), true), (make_event(7, 2, false, &[4]), true)], true),
    ] {
        assert_eq!(passes_payload(&payload_filter(&events), &five), passed, "{events:?}");
    }
    let (slot, enable) = enable(0, vec![payload_filter(&[(make_event(7, 1, false, &[4]), true)])]);
    let (d, metadata) = (EventDescriptor { version: 1, ..event(7, 4, 1) }, metadata("n"));
    let data: [&[u8]; 1] = [&five];
    let event = CallerEvent { metadata: Some(&metadata), ..CallerEvent::new(&d, &data) };
    assert!(passes(enable.filters.cell, &event), "TraceLogging events must pass payload filters");
    slot.disable_sessions(u64::MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn text_search_agrees_with_plain_search(
        text in "[abAB]{0,40}", wanted in "[ab]{0,6}", before in any::<u32>(), cut in 0_usize..50,
    ) {
        let mut event = FilteredEvent::new(7, 1, false);
        event.add_field(Field::single(Shape::Fixed(4))).unwrap();
        let field = event.add_field(Field::single(Shape::AnsiZ)).unwrap();
        event.add_predicate(field, Type::Ansi, Operator::CONTAINS, Operand::Text(&wanted)).unwrap();
        let filter = payload_filter(&[(event, false)]);
        let payload = [&before.to_le_bytes()[..], text.as_bytes(), b"\0"].concat();
        let (first, second) = payload.split_at(cut.min(payload.len()));
        prop_assert_eq!(passes_blocks(&filter, &[first, second]), text.to_lowercase().contains(&wanted));
    }

    #[test]
    fn damaged_filter_and_arbitrary_payload_are_harmless(
        at in 0_usize..400, value: u8, payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut event = FilteredEvent::new(7, 1, true);
        let number = event.add_field(Field::single(Shape::Fixed(2))).unwrap();
        event.add_field(Field { shape: Shape::Counted, count: Count::Field(number) }).unwrap();
        let text = event.add_field(Field::single(Shape::Length { field: number, unit: 1 })).unwrap();
        event.add_predicate(number, I16, Operator::MODULO, Operand::Number(5)).unwrap();
        event.add_predicate(text, Type::Utf16, Operator::CONTAINS, Operand::Text("abc")).unwrap();
        let mut filter = payload_filter(&[(event.clone(), true), (event, false)]);
        let at = at % filter.data.len();
        filter.data[at] = value;
        let slot = RegistrationSlot::new();
        let params = EnableParams { filters: vec![filter], ..EnableParams::default() };
        if slot.enable_session(3, Ticket(1), &params).refusal().is_none() {
            let enable = slot.find_enable(3).unwrap();
            let d = EventDescriptor { version: 1, ..super::event(7, 4, 1) };
            let _ = passes(enable.filters.cell, &CallerEvent::new(&d, &[&payload]));
            slot.disable_sessions(u64::MAX);
        }
    }
}
