//! Fuzzes untrusted filters: the input is a type, then the bytes of the filter. An accepted filter
//! reads back equal after it was encoded, unless the builder does not accept its values.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir::EventDescriptor;
use traceweir::controller::Filter;
use traceweir::provider::filters_pass;
use traceweir_format::filter::payload::{self, Operand, Value};
use traceweir_format::filter::{self, EventIds, EventNames, Gate, Header, LevelKeyword, encode};
use traceweir_format::spec::enable::*;
use traceweir_format::{Guid, spec::event::class::SYSTEM_TRACE_CONTROL};

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first_chunk() else { return };
    let kind = u32::from_le_bytes(*kind);
    let single_check = filter::check(kind, data);
    for (provider, is_group) in [(Guid::NULL, false), (Guid::NULL, true), (SYSTEM_TRACE_CONTROL, false)] {
        let once = filter::check_all([(kind, data)].into_iter(), &provider, is_group);
        assert!(
            once.is_err() || single_check.is_ok() || kind == EVENT_FILTER_TYPE_NONE,
            "a call must not accept a filter that the single check refuses"
        );
        let twice = filter::check_all([(kind, data); 2].into_iter(), &provider, is_group);
        assert!(
            twice.is_err() || kind == EVENT_FILTER_TYPE_NONE,
            "a call must refuse two filters of one type"
        );
    }
    // All views are tried, regardless of the type: a view that accepts the bytes also accepts the
    // encoding of the parsed values.
    check_event_ids(data);
    check_event_names(data);
    check_level_keyword(data);
    check_lists(data);
    check_headers(data);
    if let Ok(filters) = payload::Filters::parse(data) {
        check_payload_filters(&filters, data);
        check_evaluation(&filters, data);
    }
});

fn check_event_ids(data: &[u8]) {
    let Ok(view) = EventIds::parse(data) else { return };
    let ids: Vec<u16> = view.ids().collect();
    let encoded = encode::event_ids(view.filter_in, &ids);
    let back = EventIds::parse(&encoded).expect("encoded bytes can be parsed");
    assert_eq!((back.filter_in, back.ids().collect::<Vec<_>>()), (view.filter_in, ids));
}

fn check_event_names(data: &[u8]) {
    let Ok(view) = EventNames::parse(data) else { return };
    let names: Vec<&[u8]> = view.names().collect();
    let encoded = encode::event_names(view.gate, view.filter_in, &names);
    assert!(data.len() >= encoded.len(), "encoding must not add bytes");
    let back = EventNames::parse(&encoded).expect("encoded bytes can be parsed");
    assert_eq!((back.gate, back.filter_in), (view.gate, view.filter_in));
    assert_eq!(back.names().collect::<Vec<_>>(), names);
    check_gate(view.gate);
}

fn check_level_keyword(data: &[u8]) {
    let Ok(view) = LevelKeyword::parse(data) else { return };
    assert_eq!(LevelKeyword::parse(&encode::level_keyword(view.gate, view.filter_in)), Ok(view));
    check_gate(view.gate);
}

fn check_gate(gate: Gate) {
    for level in [0, 1, gate.level, u8::MAX] {
        for keyword in [0, gate.any, gate.all, gate.any | gate.all, !gate.any, u64::MAX] {
            let in_level = gate.level == 0 || level <= gate.level;
            let has_all = keyword & gate.all == gate.all;
            let in_keyword = gate.any == 0 || keyword == 0 || (keyword & gate.any != 0 && has_all);
            assert_eq!(gate.admits(level, keyword), in_level && in_keyword);
        }
    }
}

fn check_lists(data: &[u8]) {
    if let Ok(ids) = filter::parse_pids(data) {
        assert_eq!(encode::pids(&ids), data, "process ids must have one encoding");
    }
    if let Ok(names) = filter::parse_names_as_given(data) {
        assert_eq!(filter::parse_names_as_given(&encode::name_list(&names)), Ok(names.clone()));
        let lower: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
        assert_eq!(filter::parse_name_list(data), Ok(lower));
    }
}

fn check_headers(data: &[u8]) {
    assert!(Header::chain(data).count() <= data.len() / filter::HEADER_BYTES, "a chain must go forward");
    let Ok(view) = Header::parse(data) else { return };
    let (mut chain, mut last) = (Vec::new(), 0);
    filter::append_to_chain(&mut chain, &mut last, data, 1);
    filter::append_to_chain(&mut chain, &mut last, data, 2);
    let headers: Vec<_> = Header::chain(&chain).collect();
    assert_eq!(
        headers.iter().map(|header| (header.id, header.instance)).collect::<Vec<_>>(),
        [(view.id, 1), (view.id, 2)]
    );
    assert!(headers.iter().all(|header| header.data == view.data));
}

fn check_payload_filters(filters: &payload::Filters<'_>, data: &[u8]) {
    assert!(filters.iter().count() * 24 <= data.len(), "each filter takes at least 24 bytes");
    let Some(encoded) = rebuild_filters(filters) else { return };
    let back = payload::Filters::parse(&encoded).expect("encoded bytes can be parsed");
    assert_eq!(back.iter().count(), filters.iter().count());
    for (back, original) in back.iter().zip(filters.iter()) {
        assert_eq!((back.event_id, back.event_version), (original.event_id, original.event_version));
        assert_eq!((back.any, back.required), (original.any, original.required));
        assert!(back.predicates().eq(original.predicates()));
        // Fields after the last one that a predicate uses are left out.
        assert!(back.fields().eq(original.fields().take(back.fields().count())));
    }
}

/// Checks that the result of filters does not depend on how the payload is split into blocks. The
/// payload is the bytes of the filters.
fn check_evaluation(filters: &payload::Filters<'_>, data: &[u8]) {
    let filter_list = [Filter { kind: EVENT_FILTER_TYPE_PAYLOAD, data: data.to_vec() }];
    for filter in filters.iter() {
        let (id, version) = (filter.event_id, filter.event_version);
        let descriptor = EventDescriptor { id, version, ..EventDescriptor::default() };
        for from in [0, data.len() / 2, data.len()] {
            let payload = data.get(from..).unwrap_or_default();
            let unsplit = filters_pass(&filter_list, &descriptor, &[payload]);
            for cut in [1, 7, payload.len() / 2] {
                let (first, second) = payload.split_at(cut.min(payload.len()));
                assert_eq!(
                    filters_pass(&filter_list, &descriptor, &[first, &[], second]),
                    unsplit,
                    "the result changes if the payload is split at {cut}"
                );
            }
        }
    }
}

/// Builds the same filters from their values; `None` if the builder does not accept a value, such
/// as a number that its field never has.
fn rebuild_filters(filters: &payload::Filters<'_>) -> Option<Vec<u8>> {
    let mut builder = payload::Builder::new();
    for filter in filters.iter() {
        let mut event = payload::Event::new(filter.event_id, filter.event_version, filter.any);
        for field in filter.fields() {
            event.add_field(field).ok()?;
        }
        for predicate in filter.predicates() {
            let is_range =
                matches!(predicate.operator, PayloadOperator::BETWEEN | PayloadOperator::NOTBETWEEN);
            let operand = match predicate.value {
                Value::Numbers(low, high) if is_range => Operand::Range(low, high),
                Value::Numbers(number, _) => Operand::Number(number),
                Value::Guid(guid) => Operand::Guid(guid),
                Value::Text(text) => Operand::Text(text),
            };
            event.add_predicate(predicate.field, predicate.kind, predicate.operator, operand).ok()?;
        }
        builder.add(&event, filter.required).expect("the rebuilt filter is not longer than the original");
    }
    Some(builder.finish().expect("the builder has filters"))
}
