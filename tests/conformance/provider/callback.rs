//! Rules for the enable callback. `rule.rs` explains the rows.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use traceweir::controller::{EnableCode, EnableParams, Filter};
use traceweir::{Guid, Provider};
use traceweir_format::filter::Header;
use traceweir_format::spec::enable::EVENT_FILTER_TYPE_SCHEMATIZED;

use crate::helpers::{CallbackCall, CallbackLog, Fixture, enable_params, new_guid, until};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("provider 3 #IsEnabled", D, "0: no session; 1: at least one session; 2: capture state",
        callback_gets_three_codes),
    rule!("provider 3 #IsEnabled", D, "disabling one of two sessions delivers 1",
        disabling_one_of_two_sessions_is_no_disable),
    rule!("provider 3 #Level", D, "the maximum of levels, the union of Any, the intersection of All",
        callback_gets_combined_values),
    rule!("provider 3 #Level", P, "in combination a level of 0 counts as 255, Any 0 as all ones",
        zero_combines_as_everything),
    rule!("provider 3 #Level", H, "the values of a single session are passed unchanged",
        values_of_one_session_are_passed_unchanged),
    rule!("provider 3 #Source", D, "is the controller's source GUID", callback_gets_the_source),
    rule!("provider 3 #Source", D, "is zero at the end of a session and for an enable without a source",
        callback_without_source_gets_zero),
    rule!("provider 3 #Filter", D, "is absent without filters", callback_without_filters_gets_none),
    rule!("provider 3 #Filter", D, "the schematized filters of all sessions are one chain; each has the bit of its session",
        schematized_filters_are_chained),
    rule!("provider 3 #Filter", D, "filters whose types a provider defines arrive unchanged",
        provider_defined_filters_arrive_unchanged),
    rule!("provider 3", P, "capture state has level and masks of the requesting session",
        capture_state_has_the_values_of_its_session),
    rule!("provider 3", D, "the callback is called on enable, change, disable, capture state, end of a session",
        callback_runs_on_every_change),
    rule!("provider 3", P, "the callback is not called if nothing changed, except for capture state",
        callback_does_not_run_without_change),
    rule!("provider 3", P, "calls of one registration never overlap and come in order",
        calls_of_a_registration_never_overlap),
    rule!("provider 3", P, "all calls except one during the registration come from a thread of the library",
        later_calls_use_a_library_thread),
];

/// Registers a provider whose callback records its calls.
fn register_with_log() -> (CallbackLog, Guid, Provider) {
    let (calls, guid) = (CallbackLog::default(), new_guid());
    let provider = Provider::register(guid, calls.callback()).unwrap();
    (calls, guid, provider)
}

/// Returns the code, the level and the masks of each call.
fn recorded_states(calls: &CallbackLog) -> Vec<(u32, u8, u64, u64)> {
    calls.all().iter().map(CallbackCall::code_level_masks).collect()
}

fn capture_state(fixture: &Fixture, session: &crate::helpers::Session, guid: Guid) {
    let params = EnableParams::default();
    fixture.connect().enable(&session.id, guid, EnableCode::CaptureState, &params, 10_000).unwrap();
}

fn callback_gets_three_codes(fixture: &Fixture) {
    let (calls, guid, _provider) = register_with_log();
    let session = fixture.start(&fixture.config());
    fixture.enable(&session, guid, &EnableParams::default());
    capture_state(fixture, &session, guid);
    fixture.disable(&session, guid);
    assert_eq!(calls.all().iter().map(|call| call.code).collect::<Vec<_>>(), [1, 2, 0]);
}

fn disabling_one_of_two_sessions_is_no_disable(fixture: &Fixture) {
    let (calls, guid, _provider) = register_with_log();
    let (first, second) = (fixture.start(&fixture.config()), fixture.start(&fixture.config()));
    fixture.enable(&first, guid, &enable_params(3, 1, 0));
    fixture.enable(&second, guid, &enable_params(5, 2, 0));
    fixture.disable(&second, guid);
    assert_eq!(calls.last().code_level_masks(), (1, 3, 1, 0));
    fixture.disable(&first, guid);
    assert_eq!(calls.last().code, 0);
}

fn callback_gets_combined_values(fixture: &Fixture) {
    let (calls, guid, _provider) = register_with_log();
    let (first, second) = (fixture.start(&fixture.config()), fixture.start(&fixture.config()));
    fixture.enable(&first, guid, &enable_params(3, 1, 0b110));
    fixture.enable(&second, guid, &enable_params(5, 2, 0b011));
    assert_eq!(calls.last().code_level_masks(), (1, 5, 3, 0b010));
}

fn zero_combines_as_everything(fixture: &Fixture) {
    let (calls, guid, _provider) = register_with_log();
    let (first, second) = (fixture.start(&fixture.config()), fixture.start(&fixture.config()));
    fixture.enable(&first, guid, &enable_params(3, 1, 0));
    fixture.enable(&second, guid, &enable_params(0, 0, 0));
    assert_eq!(calls.last().code_level_masks(), (1, 255, u64::MAX, 0));
}

fn values_of_one_session_are_passed_unchanged(fixture: &Fixture) {
    let (calls, guid, _provider) = register_with_log();
    let session = fixture.start(&fixture.config());
    fixture.enable(&session, guid, &enable_params(0, 0, 7));
    assert_eq!(calls.last().code_level_masks(), (1, 0, 0, 7));
}

fn callback_gets_the_source(fixture: &Fixture) {
    let (calls, guid, _provider) = register_with_log();
    let (session, source) = (fixture.start(&fixture.config()), Guid::from_u128(0x50_0e_ce));
    fixture.enable(&session, guid, &EnableParams { source, ..enable_params(1, 0, 0) });
    assert_eq!(calls.last().source, source);
}

fn callback_without_source_gets_zero(fixture: &Fixture) {
    let (calls, guid, _provider) = register_with_log();
    let session = fixture.start(&fixture.config());
    fixture.enable(&session, guid, &enable_params(1, 0, 0));
    assert_eq!(calls.last().source, Guid::NULL);
    fixture.enable(&session, guid, &EnableParams { source: Guid::from_u128(5), ..enable_params(2, 0, 0) });
    fixture.stop(session);
    until("the callback reports the end of the session", || calls.last().code == 0);
    assert_eq!(calls.last().source, Guid::NULL);
}

fn callback_without_filters_gets_none(fixture: &Fixture) {
    let (calls, guid, _provider) = register_with_log();
    fixture.enable(&fixture.start(&fixture.config()), guid, &EnableParams::default());
    assert_eq!(calls.all()[0].filter, None);
}

/// Returns enable parameters with a schematized filter that has this data.
pub(super) fn schematized(data: &[u8]) -> EnableParams {
    // EVENT_FILTER_HEADER: Id 9, Version 1, InstanceId 0, Size, NextOffset 0.
    let size = u32::try_from(24 + data.len()).unwrap();
    let header = [&[9, 0, 1, 0, 0, 0, 0, 0][..], &[0; 8], &size.to_le_bytes(), &[0; 4]].concat();
    let filters = vec![Filter { kind: EVENT_FILTER_TYPE_SCHEMATIZED, data: [&header, data].concat() }];
    EnableParams { filters, ..EnableParams::default() }
}

/// Returns the data and the session bit of each schematized filter that a call received.
pub(super) fn chain_of(call: &CallbackCall) -> Vec<(Vec<u8>, u64)> {
    let Some((EVENT_FILTER_TYPE_SCHEMATIZED, bytes)) = &call.filter else { return Vec::new() };
    Header::chain(bytes).map(|filter| (filter.data.to_vec(), filter.instance)).collect()
}

fn schematized_filters_are_chained(fixture: &Fixture) {
    let (calls, guid, _provider) = register_with_log();
    let (first, second) = (fixture.start(&fixture.config()), fixture.start(&fixture.config()));
    fixture.enable(&first, guid, &schematized(b"of the first"));
    let chain = chain_of(&calls.last());
    assert_eq!(chain.len(), 1);
    assert_eq!((&chain[0].0[..], chain[0].1.count_ones()), (&b"of the first"[..], 1));
    fixture.enable(&second, guid, &schematized(b"of the second!"));
    let mut chain = chain_of(&calls.last());
    chain.sort();
    assert_eq!(chain.len(), 2);
    assert_eq!((&chain[0].0[..], &chain[1].0[..]), (&b"of the first"[..], &b"of the second!"[..]));
    assert!(
        chain[1].1.count_ones() == 1 && chain[0].1 != chain[1].1,
        "the filters do not have one session bit each: {chain:?}"
    );
    fixture.disable(&first, guid);
    assert_eq!(chain_of(&calls.last()), [chain.remove(1)]);
}

fn provider_defined_filters_arrive_unchanged(fixture: &Fixture) {
    type Received = Arc<Mutex<Vec<(u32, Vec<u8>)>>>;
    let (guid, received) = (new_guid(), Received::default());
    let received_clone = Arc::clone(&received);
    let callback = move |notice: &traceweir::provider::EnableNotice<'_>| {
        let filters = notice.own_filters.iter().map(|(kind, data)| (*kind, data.to_vec()));
        *received_clone.lock().unwrap() = filters.collect();
    };
    let _provider = Provider::register(guid, Some(Box::new(callback))).unwrap();
    let (first, second) = (fixture.start(&fixture.config()), fixture.start(&fixture.config()));
    let with_filter = |kind, data: &[u8]| EnableParams {
        filters: vec![Filter { kind, data: data.to_vec() }],
        ..EnableParams::default()
    };
    fixture.enable(&first, guid, &with_filter(0x1234, b"any bytes"));
    fixture.enable(&second, guid, &with_filter(0x7FFF_FFFF, &[0; 1024]));
    let mut received = received.lock().unwrap().clone();
    received.sort();
    assert_eq!(received, [(0x1234, b"any bytes".to_vec()), (0x7FFF_FFFF, vec![0; 1024])]);
}

fn capture_state_has_the_values_of_its_session(fixture: &Fixture) {
    let (calls, guid, _provider) = register_with_log();
    let (first, second) = (fixture.start(&fixture.config()), fixture.start(&fixture.config()));
    fixture.enable(&first, guid, &enable_params(3, 1, 4));
    fixture.enable(&second, guid, &enable_params(5, 2, 8));
    capture_state(fixture, &first, guid);
    assert_eq!(calls.last().code_level_masks(), (2, 3, 1, 4));
    capture_state(fixture, &second, guid);
    assert_eq!(calls.last().code_level_masks(), (2, 5, 2, 8));
}

fn callback_runs_on_every_change(fixture: &Fixture) {
    let (calls, guid, _provider) = register_with_log();
    let session = fixture.start(&fixture.config());
    fixture.enable(&session, guid, &enable_params(3, 1, 0));
    fixture.enable(&session, guid, &enable_params(4, 1, 0));
    capture_state(fixture, &session, guid);
    fixture.disable(&session, guid);
    fixture.enable(&session, guid, &enable_params(2, 1, 0));
    fixture.stop(session);
    until("the callback has been called six times", || calls.all().len() == 6);
    let expected = [(1, 3, 1, 0), (1, 4, 1, 0), (2, 4, 1, 0), (0, 0, 0, 0), (1, 2, 1, 0), (0, 0, 0, 0)];
    assert_eq!(recorded_states(&calls), expected);
}

fn callback_does_not_run_without_change(fixture: &Fixture) {
    let (calls, guid, _provider) = register_with_log();
    let session = fixture.start(&fixture.config());
    for _ in 0..3 {
        fixture.enable(&session, guid, &enable_params(3, 1, 0));
    }
    assert_eq!(calls.all().len(), 1);
    capture_state(fixture, &session, guid);
    capture_state(fixture, &session, guid);
    assert_eq!(calls.all().len(), 3);
    fixture.disable(&session, guid);
    fixture.disable(&session, guid);
    assert_eq!(calls.all().len(), 4);
}

fn calls_of_a_registration_never_overlap(fixture: &Fixture) {
    let (guid, running, max_running) = (new_guid(), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let levels: Arc<Mutex<Vec<u8>>> = Arc::default();
    let (running_clone, max_clone, levels_clone) =
        (Arc::clone(&running), Arc::clone(&max_running), Arc::clone(&levels));
    let callback = move |notice: &traceweir::provider::EnableNotice<'_>| {
        max_clone.fetch_max(running_clone.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        levels_clone.lock().unwrap().push(notice.level);
        std::thread::sleep(Duration::from_millis(1));
        running_clone.fetch_sub(1, Ordering::SeqCst);
    };
    let _provider = Provider::register(guid, Some(Box::new(callback))).unwrap();
    let session = fixture.start(&fixture.config());
    let mut controller = fixture.connect();
    for level in 1..=100 {
        controller.enable(&session.id, guid, EnableCode::Enable, &enable_params(level, 0, 0), 0).unwrap();
    }
    until("the callback has the last level", || levels.lock().unwrap().last() == Some(&100));
    assert_eq!(max_running.load(Ordering::SeqCst), 1, "calls overlap");
    assert!(levels.lock().unwrap().is_sorted(), "the calls are not in order");
}

fn later_calls_use_a_library_thread(fixture: &Fixture) {
    let (calls, guid, _provider) = register_with_log();
    let session = fixture.start(&fixture.config());
    fixture.enable(&session, guid, &enable_params(1, 0, 0));
    fixture.enable(&session, guid, &enable_params(2, 0, 0));
    let threads: Vec<_> = calls.all().iter().map(|call| call.thread).collect();
    assert_eq!(threads.len(), 2);
    assert!(threads[0] == threads[1] && threads[0] != std::thread::current().id());
}
