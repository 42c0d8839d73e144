//! Rules for filters that select events or the events that get a stack: which events arrive, and
//! which filters a callback receives. `rule.rs` explains the rows.

use traceweir::controller::{EnableParams, Filter};
use traceweir::private::PrivateSession;
use traceweir::{Guid, Provider, Status};
use traceweir_format::filter::Header;
use traceweir_format::filter::payload::{Builder, Event, Field, Operand, Shape, Type};
use traceweir_format::spec::enable::PayloadOperator;
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, EVENT_FILTER_TYPE_PID, EVENT_FILTER_TYPE_SYSTEM_FLAGS,
    EVENT_FILTER_TYPE_TRACEHANDLE,
};
use traceweir_format::spec::event::ExtType;
use traceweir_format::tracelogging::MetadataBuilder;

use crate::helpers::{
    CallbackLog, Fixture, INVALID_PARAMETER, RecordedEvent, SUCCESS, event, event_with, new_guid, status,
};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 7 #SCHEMATIZED", D, "the callback gets the filter, with the bit of its session",
        schematized_filter_reaches_the_callback),
    rule!("controller 7 #SCHEMATIZED", D, "one descriptor holds the chain of all sessions' filters",
        chain_holds_the_filters_of_all_sessions),
    rule!("controller 7 #SCHEMATIZED", P, "a Size field that differs from the filter's size, or more than 1,024 bytes → 87",
        schematized_filter_of_wrong_size_is_refused),
    rule!("controller 7 #EVENT_ID", D, "FilterIn: only events with a listed id arrive; otherwise all except those", id_filter_selects_or_excludes_ids),
    rule!("controller 7 #EVENT_ID", D, "filters of event ids do not apply to TraceLogging events",
        id_filter_ignores_tracelogging),
    rule!("controller 7 #EVENT_ID", P, "no id, more than 64 ids, or a number of ids other than Count → 87",
        id_filter_has_1_to_64_ids),
    rule!("controller 7 #EVENT_NAME", D, "FilterIn: only events with a listed name arrive; otherwise all except those",
        name_filter_selects_or_excludes_names),
    rule!("controller 7 #EVENT_NAME", D, "filters of names apply to TraceLogging events only",
        name_filter_ignores_manifest_events),
    rule!("controller 7 #EVENT_NAME", D, "events outside the filter's level and keywords are not affected",
        name_filter_affects_only_its_level_and_keywords),
    rule!("controller 7 #EVENT_NAME", D, "MatchAllKeyword is unused when MatchAnyKeyword is 0",
        match_all_is_unused_without_match_any),
    rule!("project", P, "Level 0 of a name filter means all levels", name_filter_level_0_is_all),
    rule!("controller 7 #EVENT_NAME", P, "a wrong number of names, or more than 4,096 bytes → 87",
        name_filter_of_wrong_size_is_refused),
    rule!("controller 7 #PAYLOAD", D, "events with the filter's id arrive only if their payload passes; other ids always arrive",
        payload_filter_selects_events),
    rule!("controller 7 #PAYLOAD", P, "data that no library function built, or more than 4,096 bytes → 87",
        malformed_payload_filter_is_refused),
    rule!("api 4", H, "8 predicates per payload filter; a ninth is refused", ninth_predicate_is_refused),
    rule!("controller 7", D, "all filters of a call must pass", all_filters_must_pass),
    rule!("controller 7 #STACKWALK", D, "of the manifest events, only those with a listed id get a stack; all events arrive",
        stacks_are_selected_by_id),
    rule!("controller 7 #STACKWALK_NAME", D, "of the TraceLogging events, only those with a listed name get a stack",
        stacks_are_selected_by_name),
    rule!("controller 7 #STACKWALK_LEVEL_KW", D, "only events with the filter's level and keywords get a stack",
        stacks_are_selected_by_level_and_keyword),
    rule!("controller 7", D, "stack filters without the stack property: no stacks at all",
        stack_filters_need_the_stack_property),
    rule!("controller 7", P, "with several stack filters each must pass", all_stack_filters_must_pass),
    rule!("controller 7 #STACKWALK_LEVEL_KW", P, "a size other than 24 bytes → 87", level_filter_of_wrong_size_is_refused),
    rule!("controller 7", P, "a filter of ids, names or payloads for a group → 87",
        event_filters_are_refused_for_groups),
    rule!("controller 7 #SYSTEM_FLAGS, #TRACEHANDLE", P, "these filters for a provider other than the kernel's → 87",
        kernel_filters_are_refused_for_other_providers),
];

const SCHEMATIZED: u32 = 0x8000_0000;
const PAYLOAD: u32 = 0x8000_0100;
const EVENT_ID: u32 = 0x8000_0200;
const EVENT_NAME: u32 = 0x8000_0400;
const STACKWALK: u32 = 0x8000_1000;
const STACKWALK_NAME: u32 = 0x8000_2000;
const STACKWALK_LEVEL_KW: u32 = 0x8000_4000;
const STACK_TRACE: u32 = 0x4;

fn filter(kind: u32, parts: &[&[u8]]) -> Filter {
    Filter { kind, data: parts.concat() }
}

fn id_filter(kind: u32, filter_in: bool, id_list: &[u16]) -> Filter {
    let listed: Vec<u8> = id_list.iter().flat_map(|id| id.to_le_bytes()).collect();
    let count = u16::try_from(id_list.len()).unwrap().to_le_bytes();
    // FilterIn, reserved, Count, ids.
    filter(kind, &[&[u8::from(filter_in), 0], &count, &listed])
}

/// The part of a filter that selects by level and keywords: any, all, level.
type LevelKeywords = (u64, u64, u8);
const EVERYTHING: LevelKeywords = (0, 0, 0);

fn name_filter(kind: u32, (any, all, level): LevelKeywords, filter_in: bool, names: &[&str]) -> Filter {
    let listed: Vec<u8> = names.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect();
    let count = u16::try_from(names.len()).unwrap().to_le_bytes();
    let level = [level, u8::from(filter_in)];
    // MatchAnyKeyword, MatchAllKeyword, Level, FilterIn, NameCount, names.
    filter(kind, &[&any.to_le_bytes(), &all.to_le_bytes(), &level, &count, &listed])
}

fn level_keyword((any, all, level): LevelKeywords, filter_in: bool) -> Filter {
    let level = [level, u8::from(filter_in), 0, 0, 0, 0, 0, 0];
    filter(STACKWALK_LEVEL_KW, &[&any.to_le_bytes(), &all.to_le_bytes(), &level])
}

/// Returns a filter with a header of 24 bytes. The header begins with the id and has the size of
/// header and data at offset 16.
fn schematized_filter(id: u16, data: &[u8]) -> Filter {
    let size = u32::try_from(24 + data.len()).unwrap().to_le_bytes();
    filter(SCHEMATIZED, &[&id.to_le_bytes(), &[0; 14], &size, &[0; 4], data])
}

fn params_with(property: u32, filters: Vec<Filter>) -> EnableParams {
    EnableParams { property, filters, ..EnableParams::default() }
}

/// The TraceLogging events that [`write_test_events`] writes after the manifest events 1 to 4:
/// name, level, keyword. Their numbers start at 100.
const NAMED_EVENTS: [(&str, u8, u64); 4] =
    [("start", 4, 1), ("stop", 4, 2), ("start", 5, 3), ("pause", 2, 4)];

fn write_test_events(provider: &Provider) {
    for id in 1..=4 {
        provider.write(&event(id), &[&u32::from(id).to_le_bytes()]).unwrap();
    }
    for (event_number, (name, level, keyword)) in (100u32..).zip(NAMED_EVENTS) {
        let metadata = MetadataBuilder::new(name, 0).finish().unwrap().to_vec();
        let data = [&event_number.to_le_bytes()[..]];
        provider.event(&event_with(0, level, keyword)).metadata(&metadata).write(&data).unwrap();
    }
}

fn event_number(seen: &RecordedEvent) -> u32 {
    u32::from_le_bytes(seen.payload[..4].try_into().unwrap())
}

/// Returns the numbers of the events that arrive with these filters, and the numbers of those
/// events that have a stack.
fn recorded_numbers(fixture: &Fixture, property: u32, filters: Vec<Filter>) -> (Vec<u32>, Vec<u32>) {
    let (session, provider, _guid) = fixture.start_with_provider(&params_with(property, filters));
    write_test_events(&provider);
    let seen = fixture.stop_and_read(session);
    let has_stack =
        |event: &&RecordedEvent| event.items.iter().any(|(kind, _)| *kind == ExtType::STACK_TRACE64);
    (seen.iter().map(event_number).collect(), seen.iter().filter(has_stack).map(event_number).collect())
}

/// Returns the numbers of the manifest events and of the TraceLogging events that arrive.
fn recorded_by_kind(fixture: &Fixture, filters: Vec<Filter>) -> (Vec<u32>, Vec<u32>) {
    recorded_numbers(fixture, 0, filters).0.into_iter().partition(|event_number| *event_number < 100)
}

fn enable_status(fixture: &Fixture, provider: Guid, params: &EnableParams) -> Status {
    status(fixture.try_enable(&fixture.start(&fixture.config()), provider, params))
}

#[track_caller]
fn assert_all_refused(fixture: &Fixture, filters: Vec<Filter>) {
    for filter in filters {
        let length = filter.data.len();
        let status = enable_status(fixture, new_guid(), &params_with(0, vec![filter.clone()]));
        assert_eq!(status, INVALID_PARAMETER, "filter {:#x} of {length} bytes", filter.kind);
    }
}

/// Returns id, data and session bit of each filter in the chain that the callback received last.
fn received_chain(calls: &CallbackLog) -> Vec<(u16, Vec<u8>, u64)> {
    let Some((SCHEMATIZED, bytes)) = calls.last().filter else { return Vec::new() };
    Header::chain(&bytes).map(|filter| (filter.id, filter.data.to_vec(), filter.instance)).collect()
}

fn schematized_filter_reaches_the_callback(fixture: &Fixture) {
    let (calls, guid, session) = (CallbackLog::default(), new_guid(), fixture.start(&fixture.config()));
    let _provider = Provider::register(guid, calls.callback()).unwrap();
    fixture.enable(&session, guid, &params_with(0, vec![schematized_filter(7, b"as agreed")]));
    let [(7, data, bit)] = &received_chain(&calls)[..] else {
        panic!("the callback received other filters: {:?}", calls.last())
    };
    assert_eq!((&data[..], bit.count_ones()), (&b"as agreed"[..], 1));
}

fn chain_holds_the_filters_of_all_sessions(fixture: &Fixture) {
    let (calls, guid) = (CallbackLog::default(), new_guid());
    let _provider = Provider::register(guid, calls.callback()).unwrap();
    let (first_session, second_session) =
        (fixture.start(&fixture.config()), fixture.start(&fixture.config()));
    fixture.enable(&first_session, guid, &params_with(0, vec![schematized_filter(1, b"first")]));
    fixture.enable(&second_session, guid, &params_with(0, vec![schematized_filter(2, b"second")]));
    let [(1, first, first_bit), (2, second, second_bit)] = &received_chain(&calls)[..] else {
        panic!("the callback received other filters: {:?}", calls.last())
    };
    assert_eq!((&first[..], &second[..]), (&b"first"[..], &b"second"[..]));
    assert_eq!(first_bit & second_bit, 0, "two sessions have the same bit");
    fixture.disable(&first_session, guid);
    assert_eq!(received_chain(&calls).len(), 1);
}

fn schematized_filter_of_wrong_size_is_refused(fixture: &Fixture) {
    // A wrong size field, a part of a header, and 24 + 1,001 bytes.
    let mut wrong_size = schematized_filter(1, b"data");
    wrong_size.data[16] += 1;
    assert_all_refused(
        fixture,
        vec![wrong_size, filter(SCHEMATIZED, &[&[0; 23]]), schematized_filter(1, &[0; 1_001])],
    );
    assert_eq!(
        enable_status(fixture, new_guid(), &params_with(0, vec![schematized_filter(1, &[0; 1_000])])),
        SUCCESS
    );
}

fn id_filter_selects_or_excludes_ids(fixture: &Fixture) {
    assert_eq!(recorded_by_kind(fixture, vec![id_filter(EVENT_ID, true, &[2, 3, 9])]).0, [2, 3]);
    assert_eq!(recorded_by_kind(fixture, vec![id_filter(EVENT_ID, false, &[2, 3, 9])]).0, [1, 4]);
}

fn id_filter_ignores_tracelogging(fixture: &Fixture) {
    // The TraceLogging events have the id 0: the first filter does not list it, the second
    // excludes it.
    for (filter_in, listed) in [(true, 7), (false, 0)] {
        assert_eq!(
            recorded_by_kind(fixture, vec![id_filter(EVENT_ID, filter_in, &[listed])]).1,
            [100, 101, 102, 103]
        );
    }
}

fn id_filter_has_1_to_64_ids(fixture: &Fixture) {
    let many: Vec<u16> = (1..=65).collect();
    let mut short = id_filter(EVENT_ID, true, &many[..3]);
    short.data.pop();
    let mut long = id_filter(EVENT_ID, true, &many[..3]);
    long.data.extend([9, 0]);
    assert_all_refused(
        fixture,
        vec![id_filter(EVENT_ID, true, &[]), id_filter(EVENT_ID, true, &many), short, long],
    );
    assert_all_refused(fixture, vec![id_filter(STACKWALK, true, &[]), id_filter(STACKWALK, true, &many)]);
    assert_eq!(
        enable_status(fixture, new_guid(), &params_with(0, vec![id_filter(EVENT_ID, true, &many[..64])])),
        SUCCESS
    );
}

fn name_filters(level_keywords: LevelKeywords, filter_in: bool, names: &[&str]) -> Vec<Filter> {
    vec![name_filter(EVENT_NAME, level_keywords, filter_in, names)]
}

fn name_filter_selects_or_excludes_names(fixture: &Fixture) {
    assert_eq!(recorded_by_kind(fixture, name_filters(EVERYTHING, true, &["start", "other"])).1, [100, 102]);
    assert_eq!(recorded_by_kind(fixture, name_filters(EVERYTHING, false, &["start", "other"])).1, [101, 103]);
}

fn name_filter_ignores_manifest_events(fixture: &Fixture) {
    assert_eq!(
        recorded_by_kind(fixture, name_filters(EVERYTHING, true, &["absent"])),
        (vec![1, 2, 3, 4], vec![])
    );
}

fn name_filter_affects_only_its_level_and_keywords(fixture: &Fixture) {
    // Events outside the filter's level and keywords arrive. The other events do not, because none
    // has a listed name.
    assert_eq!(recorded_by_kind(fixture, name_filters((0, 0, 4), true, &["absent"])).1, [102]);
    assert_eq!(recorded_by_kind(fixture, name_filters((2, 0, 0), true, &["absent"])).1, [100, 103]);
    assert_eq!(recorded_by_kind(fixture, name_filters((2, 1, 0), true, &["absent"])).1, [100, 101, 103]);
}

fn match_all_is_unused_without_match_any(fixture: &Fixture) {
    // No event has the keyword 1 << 40. If it were applied, all events would be outside the filter
    // and arrive.
    assert_eq!(
        recorded_by_kind(fixture, name_filters((0, 1 << 40, 0), true, &["absent"])).1,
        [0_u32; 0],
        "MatchAllKeyword was applied without MatchAnyKeyword"
    );
}

fn name_filter_level_0_is_all(fixture: &Fixture) {
    assert_eq!(
        recorded_by_kind(fixture, name_filters((0, 0, 0), false, &["start", "stop", "pause"])).1,
        [0_u32; 0]
    );
}

fn name_filter_of_wrong_size_is_refused(fixture: &Fixture) {
    let valid = || name_filter(EVENT_NAME, EVERYTHING, true, &["one", "two"]);
    // The number of names is at offset 18.
    let mut count_too_high = valid();
    count_too_high.data[18] = 3;
    let mut count_too_low = valid();
    count_too_low.data[18] = 1;
    let mut unterminated = valid();
    unterminated.data.pop();
    let long = "x".repeat(4_096 - 20);
    let none = name_filter(EVENT_NAME, EVERYTHING, true, &[]);
    assert_all_refused(
        fixture,
        vec![
            count_too_high,
            count_too_low,
            unterminated,
            none,
            name_filter(EVENT_NAME, EVERYTHING, true, &[&long]),
        ],
    );
    let longest = name_filters(EVERYTHING, true, &[&long[1..]]);
    assert_eq!(enable_status(fixture, new_guid(), &params_with(0, longest)), SUCCESS);
}

/// Returns a payload filter for event 3 with a number of at most `maximum`.
fn payload_filter(maximum: i128) -> Filter {
    let mut event = Event::new(3, 0, false);
    let field = event.add_field(Field::single(Shape::Fixed(4))).unwrap();
    let kind = Type::Integer { bytes: 4, signed: false };
    event.add_predicate(field, kind, PayloadOperator::LE, Operand::Number(maximum)).unwrap();
    let mut builder = Builder::new();
    builder.add(&event, false).unwrap();
    Filter { kind: PAYLOAD, data: builder.finish().unwrap() }
}

fn payload_filter_selects_events(fixture: &Fixture) {
    assert_eq!(recorded_numbers(fixture, 0, vec![payload_filter(2)]).0, [1, 2, 4, 100, 101, 102, 103]);
    assert_eq!(recorded_numbers(fixture, 0, vec![payload_filter(3)]).0, [1, 2, 3, 4, 100, 101, 102, 103]);
}

fn malformed_payload_filter_is_refused(fixture: &Fixture) {
    let mut long = payload_filter(1);
    long.data.resize(4_097, 0);
    assert_all_refused(
        fixture,
        vec![filter(PAYLOAD, &[]), filter(PAYLOAD, &[b"EPF1"]), filter(PAYLOAD, &[&[7; 64]]), long],
    );
}

fn ninth_predicate_is_refused(_: &Fixture) {
    let mut event = Event::new(3, 0, false);
    let field = event.add_field(Field::single(Shape::Fixed(4))).unwrap();
    let kind = Type::Integer { bytes: 4, signed: false };
    let mut add = || event.add_predicate(field, kind, PayloadOperator::LE, Operand::Number(7));
    assert!((0..8).all(|_| add().is_ok()));
    assert!(add().is_err());
}

fn all_filters_must_pass(fixture: &Fixture) {
    let by_id = || id_filter(EVENT_ID, true, &[2, 3]);
    let by_name = name_filter(EVENT_NAME, EVERYTHING, false, &["stop"]);
    assert_eq!(
        recorded_by_kind(fixture, vec![by_id(), payload_filter(2), by_name]),
        (vec![2], vec![100, 102, 103])
    );
    let other_process = filter(EVENT_FILTER_TYPE_PID, &[&1u32.to_le_bytes()]);
    assert_eq!(recorded_numbers(fixture, 0, vec![by_id(), other_process]).0, [0_u32; 0]);
}

fn numbers_with_stack(fixture: &Fixture, filters: Vec<Filter>) -> Vec<u32> {
    let (recorded, with_stack) = recorded_numbers(fixture, STACK_TRACE, filters);
    assert_eq!(recorded, [1, 2, 3, 4, 100, 101, 102, 103], "stack filters dropped events");
    with_stack
}

fn stacks_are_selected_by_id(fixture: &Fixture) {
    assert_eq!(numbers_with_stack(fixture, vec![id_filter(STACKWALK, true, &[2])]), [2, 100, 101, 102, 103]);
    assert_eq!(
        numbers_with_stack(fixture, vec![id_filter(STACKWALK, false, &[2])]),
        [1, 3, 4, 100, 101, 102, 103]
    );
}

fn stacks_are_selected_by_name(fixture: &Fixture) {
    let by_name = |filter_in| vec![name_filter(STACKWALK_NAME, EVERYTHING, filter_in, &["start"])];
    assert_eq!(numbers_with_stack(fixture, by_name(true)), [1, 2, 3, 4, 100, 102]);
    assert_eq!(numbers_with_stack(fixture, by_name(false)), [1, 2, 3, 4, 101, 103]);
}

fn stacks_are_selected_by_level_and_keyword(fixture: &Fixture) {
    assert_eq!(
        numbers_with_stack(fixture, vec![level_keyword((0, 0, 4), true)]),
        [1, 2, 3, 4, 100, 101, 103]
    );
    assert_eq!(numbers_with_stack(fixture, vec![level_keyword((0, 0, 4), false)]), [102]);
    assert_eq!(numbers_with_stack(fixture, vec![level_keyword((2, 0, 0), true)]), [101, 102]);
}

fn stack_filters_need_the_stack_property(fixture: &Fixture) {
    assert_eq!(
        recorded_numbers(fixture, 0, vec![id_filter(STACKWALK, true, &[2]), level_keyword(EVERYTHING, true)])
            .1,
        [0_u32; 0]
    );
}

fn all_stack_filters_must_pass(fixture: &Fixture) {
    let by_level = || level_keyword((0, 0, 4), true);
    assert_eq!(
        numbers_with_stack(fixture, vec![id_filter(STACKWALK, true, &[2]), by_level()]),
        [2, 100, 101, 103]
    );
    let by_name = name_filter(STACKWALK_NAME, EVERYTHING, true, &["start"]);
    assert_eq!(
        numbers_with_stack(fixture, vec![id_filter(STACKWALK, true, &[2]), by_name, by_level()]),
        [2, 100]
    );
}

fn level_filter_of_wrong_size_is_refused(fixture: &Fixture) {
    let wrong = [0, 18, 23, 25, 48].map(|bytes| filter(STACKWALK_LEVEL_KW, &[&vec![0; bytes]]));
    assert_all_refused(fixture, wrong.to_vec());
}

fn event_filters_are_refused_for_groups(fixture: &Fixture) {
    let by_name = name_filter(EVENT_NAME, EVERYTHING, true, &["start"]);
    for filter in [id_filter(EVENT_ID, true, &[1]), by_name, payload_filter(1)] {
        let (kind, group) = (filter.kind, params_with(EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, vec![filter]));
        assert_eq!(enable_status(fixture, new_guid(), &group), INVALID_PARAMETER, "{kind:#x}");
    }
}

fn kernel_filters_are_refused_for_other_providers(fixture: &Fixture) {
    assert_all_refused(
        fixture,
        vec![
            filter(EVENT_FILTER_TYPE_SYSTEM_FLAGS, &[&[0; 4]]),
            filter(EVENT_FILTER_TYPE_TRACEHANDLE, &[&[0; 8]]),
        ],
    );
    let private = PrivateSession::start(&fixture.config()).unwrap();
    let params = params_with(0, vec![filter(EVENT_FILTER_TYPE_TRACEHANDLE, &[&[0; 8]])]);
    assert_eq!(status(private.enable(new_guid(), &params)), INVALID_PARAMETER);
}
