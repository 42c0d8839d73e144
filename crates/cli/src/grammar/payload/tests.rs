use traceweir_decode::source::read_manifest;
use traceweir_format::filter::payload::{Filters, Predicate, Type, Value};
use traceweir_format::spec::enable::PayloadOperator as Operator;

use super::*;

/// Encodes `conditions` with the manifest `everything.man`, or returns the error.
fn encode_conditions(conditions: &[&str]) -> Result<Vec<u8>, String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/manifests/everything.man");
    let providers = read_manifest(&std::fs::read(path).unwrap()).unwrap();
    let events: Vec<_> = providers[0].events.iter().collect();
    encode(&events, conditions.iter().copied()).map_err(|(_, reason)| reason)
}

#[test]
fn operators_and_types_become_predicates() {
    let integer = |bytes, signed| Type::Integer { bytes, signed };
    let guid = "b3864c38-4273-58c5-545b-8b3608343471";
    for (comparison, field, kind, operator, value) in [
        ("U16 == 443", 5, integer(2, false), Operator::EQ, Value::Numbers(443, 443)),
        ("u16=0x1bb", 5, integer(2, false), Operator::EQ, Value::Numbers(443, 443)),
        ("I8 != -5", 2, integer(1, true), Operator::NE, Value::Numbers(-5, -5)),
        ("I64 < 7", 8, integer(8, true), Operator::LT, Value::Numbers(7, 7)),
        ("U8<=7", 3, integer(1, false), Operator::LE, Value::Numbers(7, 7)),
        ("Hex32 > 0xC0000000", 18, integer(4, false), Operator::GT, Value::Numbers(0xC000_0000, 0xC000_0000)),
        ("Pointer >= 1", 14, integer(8, false), Operator::GE, Value::Numbers(1, 1)),
        ("U32 % 100", 7, integer(4, false), Operator::MODULO, Value::Numbers(100, 100)),
        ("I32 in -1..10", 6, integer(4, true), Operator::BETWEEN, Value::Numbers(-1, 10)),
        ("I32 not in -1..10", 6, integer(4, true), Operator::NOTBETWEEN, Value::Numbers(-1, 10)),
        ("Boolean == true", 12, integer(4, false), Operator::EQ, Value::Numbers(1, 1)),
        (
            "Guid == {b3864c38-4273-58c5-545b-8b3608343471}",
            13,
            Type::Guid,
            Operator::IS,
            Value::Guid(guid.parse().unwrap()),
        ),
        ("Unicode is 'two words'", 0, Type::Utf16, Operator::IS, Value::Text("two words")),
        ("Unicode is not a", 0, Type::Utf16, Operator::ISNOT, Value::Text("a")),
        ("Ansi contains 'and or ='", 1, Type::Ansi, Operator::CONTAINS, Value::Text("and or =")),
        ("CountedAnsi not contains x", 21, Type::Ansi, Operator::DOESNTCONTAIN, Value::Text("x")),
    ] {
        let bytes =
            encode_conditions(&[&format!("1: {comparison}")]).unwrap_or_else(|e| panic!("{comparison}: {e}"));
        let filters = Filters::parse(&bytes).unwrap();
        let event_filters: Vec<_> = filters.iter().collect();
        assert_eq!(
            (event_filters.len(), event_filters[0].event_id, event_filters[0].event_version),
            (1, 1, 2),
            "{comparison}"
        );
        let predicates: Vec<_> = event_filters[0].predicates().collect();
        assert_eq!(predicates, [Predicate { field, kind, operator, value }], "{comparison}");
        // The filter describes the fields up to the compared one.
        assert_eq!(event_filters[0].fields().count(), usize::from(field) + 1, "{comparison}");
    }
}

#[test]
fn events_are_found_by_id_version_and_name() {
    // Event id, whether one true predicate is enough, number of predicates.
    let describe_filters = |conditions: &[&str]| -> Vec<(u16, bool, usize)> {
        let bytes = encode_conditions(conditions).unwrap_or_else(|e| panic!("{conditions:?}: {e}"));
        let filters = Filters::parse(&bytes).unwrap();
        filters.iter().map(|filter| (filter.event_id, filter.any, filter.predicates().count())).collect()
    };
    assert_eq!(describe_filters(&["1.2: U8 == 1 and U16 == 2"]), [(1, false, 2)]);
    assert_eq!(describe_filters(&["typesevent: U8 == 1 || U16 == 2 or U32 == 3"]), [(1, true, 3)]);
    assert_eq!(
        describe_filters(&["1: U8 == 1", "2: Count > 3", "MapsEvent: State == 1"]),
        [(1, false, 1), (2, false, 1), (3, false, 1)]
    );
    // `Name`, a string of fixed length, follows an array whose size an earlier field gives.
    assert_eq!(describe_filters(&["2: Name == x"]), [(2, false, 1)]);
}

#[test]
fn impossible_comparisons_are_errors() {
    for (condition, word) in [
        ("U8 == 1", "EVENT: FIELD OPERATOR VALUE"),
        ("1.1: U8 == 1", "unknown event \"1.1\""),
        ("99: U8 == 1", "1 (Connect"),
        ("1: Nothing == 1", "the event has Unicode, Ansi"),
        ("1: Float == 1", "cannot be compared"),
        ("1: U8 contains 1", "is a number"),
        ("1: Guid < 1", "is a GUID"),
        ("1: Unicode < a", "is text"),
        ("1: U8 == many", "expected a number"),
        ("1: U8 == 256", "range"),
        ("1: I32 in 5", "1..10"),
        ("1: U32 % 0", "divided by 0"),
        ("1: U8 ~ 5", "is not an operator"),
        ("1: U8 ==", "a value is missing"),
        ("1: U8 == 1 and U16 == 2 or U32 == 3", "all by or"),
        ("1: U8 == 1 but U16 == 2", "expected and, or, or the end"),
        ("1: Unicode == 'open", "not closed"),
        ("2: Left == 1", "only a decoder finds"),
    ] {
        let reason = encode_conditions(&[condition]).unwrap_err();
        assert!(reason.contains(word), "{condition}: {reason}");
    }
    assert!(encode(&[], ["1: A == 1"].into_iter()).unwrap_err().1.contains("--manifest"));
}
