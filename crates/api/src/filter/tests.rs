//! Tests filters: single rules here, payload filters in `payloads`, and in `truth` all combinations
//! against a direct implementation of the rules.

mod payloads;
mod truth;

use traceweir_format::filter::{Gate, encode};
use traceweir_format::spec::enable::*;
use traceweir_format::tracelogging::MetadataBuilder;
use traceweir_transport::message::EnableParams;
use traceweir_transport::ring::Ticket;

use super::*;
use crate::registration::RegistrationSlot;
use crate::registration::enable::SessionEnable;

const STACK_TRACE: u32 = EVENT_ENABLE_PROPERTY_STACK_TRACE;
const TRACELOGGING_CHANNEL: u8 = 11;

fn id_filter(kind: u32, filter_in: bool, ids: &[u16]) -> Filter {
    Filter { kind, data: encode::event_ids(filter_in, ids) }
}

fn gate(any: u64, all: u64, level: u8, filter_in: bool) -> (Gate, bool) {
    (Gate { any, all, level }, filter_in)
}

fn name_filter(kind: u32, (gate, filter_in): (Gate, bool), names: &[&str]) -> Filter {
    Filter { kind, data: encode::event_names(gate, filter_in, names) }
}

fn level_keyword_filter((gate, filter_in): (Gate, bool)) -> Filter {
    Filter { kind: EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, data: encode::level_keyword(gate, filter_in) }
}

fn metadata(name: &str) -> Vec<u8> {
    MetadataBuilder::new(name, 0).finish().unwrap().to_vec()
}

#[test]
fn ids_are_found_among_adjacent_and_distant_ones() {
    for listed in [&[0][..], &[65_535], &[1000], &[7, 7, 70], &[0, 1, 63, 64, 65, 1000, 65_535]] {
        for filter_in in [true, false] {
            let filters = [id_filter(EVENT_FILTER_TYPE_EVENT_ID, filter_in, listed)];
            // Every 61st id, and those at the ends and around the listed ones.
            let around = listed.iter().flat_map(|id| [id.wrapping_sub(1), *id, id.wrapping_add(1)]);
            for id in (0..=u16::MAX).step_by(61).chain(around) {
                let descriptor = EventDescriptor { id, ..EventDescriptor::default() };
                let passes = filters_pass(&filters, &descriptor, &[]);
                assert_eq!(passes, Some(listed.contains(&id) == filter_in), "{id} of {listed:?}");
            }
        }
    }
}

/// Returns a slot with one session that has these filters, and its enable state.
fn enable(property: u32, filters: Vec<Filter>) -> (RegistrationSlot, SessionEnable) {
    let slot = RegistrationSlot::new();
    let params = EnableParams { property, filters, ..EnableParams::default() };
    assert_eq!(slot.enable_session(3, Ticket(1), &params).refusal(), None);
    let enable = slot.find_enable(3).unwrap();
    (slot, enable)
}

/// Returns whether the session gets the event, and whether it gets a stack with it.
fn check_event(filters: Vec<Filter>, d: &EventDescriptor, name: Option<&str>) -> (bool, bool) {
    let (slot, enable) = enable(STACK_TRACE, filters);
    let metadata = name.map(metadata);
    let event = CallerEvent { metadata: metadata.as_deref(), ..CallerEvent::new(d, &[]) };
    let seen = (!enable.is_filtered || passes(enable.filters.cell, &event), enable.wants_stack(&event));
    assert_eq!(slot.check_filters(&event).is_some(), seen.0);
    slot.disable_sessions(u64::MAX);
    seen
}

fn event(id: u16, level: u8, keyword: u64) -> EventDescriptor {
    EventDescriptor { id, level, keyword, ..EventDescriptor::default() }
}

#[test]
fn every_listed_id_is_found_and_no_other() {
    for count in [1_usize, 2, 3, 17, 63, 64] {
        let listed: Vec<u16> = (0..count).map(|i| (i * 1021) as u16 ^ 0x00FF).collect();
        for filter_in in [true, false] {
            let (slot, enable) = enable(0, vec![id_filter(EVENT_FILTER_TYPE_EVENT_ID, filter_in, &listed)]);
            for id in 0..=u16::MAX {
                let passed = passes(enable.filters.cell, &CallerEvent::new(&event(id, 0, 0), &[]));
                assert_eq!(passed, listed.contains(&id) == filter_in, "{id} of {count}");
            }
            slot.disable_sessions(u64::MAX);
        }
    }
}

#[test]
fn every_name_is_found_and_no_other() {
    let words = ["", "a", "ab", "abc", "abcd", "abcdefg", "abcdefgh", "abcdefghi", "Grüße", "a b"];
    let mut listed: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
    listed.extend((0..300).map(|i| format!("name{i}")));
    let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
    let others = ["b", "abd", "abcdefgi", "abcdefghj", "name300", "Name1", "name1 ", "grüße", "abcdefghia"];
    for filter_in in [true, false] {
        let filter = || vec![name_filter(EVENT_FILTER_TYPE_EVENT_NAME, gate(0, 0, 0, filter_in), &listed)];
        for name in listed.iter().chain(&others) {
            let (passed, _) = check_event(filter(), &event(0, 4, 1), Some(name));
            assert_eq!(passed, listed.contains(name) == filter_in, "{name:?}");
        }
        // Metadata without a readable name has none of the names. The three are empty, end within
        // their size, and have tags that never end (each byte announces another one).
        let (slot, enable) = enable(0, filter());
        for broken in [&b""[..], b"\x01", b"\x04\x00\x80\x80"] {
            let d = event(0, 4, 1);
            let event = CallerEvent { metadata: Some(broken), ..CallerEvent::new(&d, &[]) };
            assert_eq!(passes(enable.filters.cell, &event), !filter_in);
        }
        slot.disable_sessions(u64::MAX);
    }
}

#[test]
fn id_filters_apply_to_manifest_events_and_name_filters_to_others() {
    let d = event(5, 4, 1);
    let by_id = || id_filter(EVENT_FILTER_TYPE_EVENT_ID, true, &[6]);
    let by_name = || name_filter(EVENT_FILTER_TYPE_EVENT_NAME, gate(0, 0, 0, true), &["other"]);
    assert!(!check_event(vec![by_id()], &d, None).0 && check_event(vec![by_id()], &d, Some("n")).0);
    assert!(check_event(vec![by_name()], &d, None).0 && !check_event(vec![by_name()], &d, Some("n")).0);
    assert!(
        !check_event(vec![by_id(), by_name()], &d, None).0
            && !check_event(vec![by_id(), by_name()], &d, Some("n")).0
    );
}

#[test]
fn name_filter_ignores_events_outside_its_level_keyword_part() {
    let filter = |any, all, level| {
        vec![name_filter(EVENT_FILTER_TYPE_EVENT_NAME, gate(any, all, level, false), &["n"])]
    };
    let passes = |any, all, level, d: EventDescriptor| check_event(filter(any, all, level), &d, Some("n")).0;
    assert!(!passes(0, 0, 0, event(0, 255, 9)));
    assert!(passes(0, 0, 3, event(0, 4, 1)) && !passes(0, 0, 3, event(0, 3, 1)));
    assert!(passes(2, 0, 0, event(0, 4, 1)) && !passes(2, 0, 0, event(0, 4, 3)));
    assert!(passes(2, 4, 0, event(0, 4, 2)) && !passes(2, 4, 0, event(0, 4, 6)));
    assert!(!passes(0, 4, 0, event(0, 4, 2)), "the all-mask must not be used without the any-mask");
}

#[test]
fn stack_is_captured_if_each_stack_filter_passes() {
    let d = event(5, 4, 1);
    let by_id = |id| id_filter(EVENT_FILTER_TYPE_STACKWALK, true, &[id]);
    let by_name = |name| name_filter(EVENT_FILTER_TYPE_STACKWALK_NAME, gate(0, 0, 0, true), &[name]);
    let by_level = |level, filter_in| level_keyword_filter(gate(0, 0, level, filter_in));
    for (filters, of_manifest, of_tracelogging) in [
        (vec![], true, true),
        (vec![by_id(5)], true, true),
        (vec![by_id(6)], false, true),
        (vec![by_name("n")], true, true),
        (vec![by_name("m")], true, false),
        (vec![by_level(4, true)], true, true),
        (vec![by_level(3, true)], false, false),
        (vec![by_level(3, false)], true, true),
        (vec![by_id(5), by_level(3, true)], false, false),
        (vec![by_id(5), by_name("m"), by_level(4, true)], true, false),
        (vec![by_id(6), by_name("n"), by_level(4, true)], false, true),
    ] {
        assert_eq!(check_event(filters.clone(), &d, None), (true, of_manifest), "{filters:?}");
        assert_eq!(check_event(filters.clone(), &d, Some("n")), (true, of_tracelogging), "{filters:?}");
        // Without the property there is no stack, whatever the filters are.
        let (slot, enable) = enable(0, filters);
        assert!(!enable.wants_stack(&CallerEvent::new(&d, &[])));
        slot.disable_sessions(u64::MAX);
    }
}

#[test]
fn filters_for_the_provider_are_kept_and_reject_no_events() {
    // An EVENT_FILTER_HEADER, with the size 31 at offset 16, and 7 bytes of data.
    let header: Vec<u8> = (0..16).chain([31, 0, 0, 0, 0, 0, 0, 0]).chain([9; 7]).collect();
    let provider_filter = |kind, length: usize| Filter { kind, data: vec![kind as u8; length] };
    let schematized = Filter { kind: EVENT_FILTER_TYPE_SCHEMATIZED, data: header.clone() };
    let (slot, enable) =
        enable(0, vec![provider_filter(3, 0), schematized, provider_filter(1, 1024), provider_filter(2, 9)]);
    assert!(!enable.is_filtered, "filters of the provider must not filter events");
    assert_eq!(enable.filters.schematized(), Some(header));
    let lengths: Vec<_> =
        enable.filters.provider_defined().into_iter().map(|(kind, data)| (kind, data.len())).collect();
    assert_eq!(lengths, [(3, 0), (1, 1024), (2, 9)]);
    slot.disable_sessions(u64::MAX);
    assert_eq!(SessionFilters::default().schematized(), None);
    assert_eq!(SessionFilters::default().provider_defined(), []);
}

#[test]
fn event_enabled_checks_ids_only_if_every_session_has_filters() {
    let (slot, _) = enable(0, vec![id_filter(EVENT_FILTER_TYPE_EVENT_ID, true, &[5])]);
    assert!(slot.is_event_enabled(&event(5, 4, 1)) && !slot.is_event_enabled(&event(6, 4, 1)));
    let of_tracelogging = EventDescriptor { channel: TRACELOGGING_CHANNEL, ..event(6, 4, 1) };
    assert!(slot.is_event_enabled(&of_tracelogging));
    slot.enable_session(4, Ticket(1), &EnableParams::default());
    assert!(slot.is_event_enabled(&event(6, 4, 1)), "a session without filters must get the event");
    slot.disable_sessions(u64::MAX);
}
