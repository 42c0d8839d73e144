//! Filters of enables: which events arrive, what the callback receives, and what is refused, in
//! private sessions and with a real daemon.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use traceweir::controller::{EnableCode, EnableParams, Filter, SessionRef};
use traceweir::provider::{EnableCallback, EnableNotice};
use traceweir::{PrivateSession, Provider, Status};
use traceweir_format::filter::{Gate, Header, encode};
use traceweir_format::spec::enable::*;
use traceweir_format::tracelogging::MetadataBuilder;

use crate::daemon::RealDaemon;
use crate::{
    INFORMATION, PROVIDER, Scenario, ScenarioRunner, TEST_TIMEOUT, alarm, event, file_config, read_events,
};

const UNKNOWN_FILTER_TYPE: u32 = 0x8000_0040;

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("filters of private sessions", filter_private_sessions),
    ("filters for the callback", pass_filters_to_callback),
    ("filters that break a rule", refuse_invalid_filters),
    ("filters that change", change_filters_during_writes),
    ("filters by a daemon", filter_with_daemon),
];

fn params_with(filters: Vec<Filter>) -> EnableParams {
    EnableParams { filters, ..EnableParams::default() }
}

fn id_filter(filter_in: bool, ids: &[u16]) -> Filter {
    Filter { kind: EVENT_FILTER_TYPE_EVENT_ID, data: encode::event_ids(filter_in, ids) }
}

fn name_filter(filter_in: bool, names: &[&str]) -> Filter {
    let data = encode::event_names(Gate::default(), filter_in, names);
    Filter { kind: EVENT_FILTER_TYPE_EVENT_NAME, data }
}

fn name_list_filter(kind: u32, text: &str) -> Filter {
    Filter { kind, data: encode::name_list(&[text]) }
}

/// Returns an EVENT_FILTER_HEADER with its data: id, 14 bytes for version, reserved bytes and
/// instance, size, and no next filter.
fn schematized_filter(id: u16, data: &[u8]) -> Filter {
    let mut bytes = [&id.to_le_bytes()[..], &[0; 14]].concat();
    bytes.extend((24 + data.len() as u32).to_le_bytes());
    bytes.extend([&[0; 4], data].concat());
    Filter { kind: EVENT_FILTER_TYPE_SCHEMATIZED, data: bytes }
}

/// Writes events 1 to 4, and two TraceLogging events. Their payloads are the numbers 1 to 4, 100
/// and 101.
fn write_test_events(provider: &Provider) {
    for id in 1..=4 {
        provider.write(&event(id), &[&u64::from(id).to_le_bytes()]).unwrap();
    }
    for (number, name) in [(100_u64, "hundred"), (101, "more")] {
        let metadata = MetadataBuilder::new(name, 0).finish().unwrap().to_vec();
        provider.event(&event(0)).metadata(&metadata).write(&[&number.to_le_bytes()]).unwrap();
    }
}

fn read_numbers(folder: &Path, file: &str) -> Vec<u64> {
    let (seen, lost) = read_events(&folder.join(file));
    assert_eq!(lost, 0, "filtered events are counted as lost");
    seen.iter().map(super::RecordedEvent::payload_number).collect()
}

#[test]
fn private_session_gets_events_that_pass_its_filters() {
    ScenarioRunner::new().run("filters of private sessions");
}

fn filter_private_sessions(folder: &Path) {
    let start_session = |name: &str| PrivateSession::start(&file_config(name, folder.join(name))).unwrap();
    let [first, second, third] = ["one", "two", "three"].map(start_session);
    let registered_before = Provider::register(PROVIDER, None).unwrap();
    first.enable(PROVIDER, &params_with(vec![id_filter(true, &[2, 3])])).unwrap();
    second
        .enable(PROVIDER, &params_with(vec![id_filter(false, &[2, 3]), name_filter(true, &["more"])]))
        .unwrap();
    // A provider registered later is filtered as well.
    let late = Provider::register(PROVIDER, None).unwrap();
    assert!(late.enabled(INFORMATION, 1) && late.event_enabled(&event(2)));
    write_test_events(&registered_before);
    write_test_events(&late);
    // Each call replaces all filters; a call without filters removes them.
    third
        .enable(PROVIDER, &params_with(vec![name_filter(false, &["hundred", "more"]), id_filter(true, &[4])]))
        .unwrap();
    first.enable(PROVIDER, &params_with(vec![])).unwrap();
    second.disable(PROVIDER).unwrap();
    write_test_events(&late);
    // An event that no session lets through is not checked for its size.
    first.disable(PROVIDER).unwrap();
    let large = vec![0; 70_000];
    assert_eq!(registered_before.write(&event(3), &[&large]), Ok(()));
    assert_eq!(registered_before.write(&event(4), &[&large]), Err(traceweir::WriteError::TooLarge));
    assert_eq!(first.stop().unwrap().events_lost + second.stop().unwrap().events_lost, 0);
    assert_eq!(
        third.stop().unwrap().events_lost,
        0,
        "an event too large for every session is counted as lost"
    );
    assert_eq!(read_numbers(folder, "one"), [2, 3, 100, 101, 2, 3, 100, 101, 1, 2, 3, 4, 100, 101]);
    assert_eq!(read_numbers(folder, "two"), [1, 4, 101, 1, 4, 101]);
    let (seen, lost) = read_events(&folder.join("three"));
    assert_eq!(
        (seen.iter().map(super::RecordedEvent::payload_number).collect::<Vec<_>>(), lost),
        (vec![4], 0)
    );
}

/// The arguments of one call of the callback.
#[derive(Clone, Debug, PartialEq)]
struct CallbackCall {
    code: u32,
    filter: Option<(u32, Vec<u8>)>,
    /// The filters of the provider's own types.
    own_filters: Vec<(u32, Vec<u8>)>,
}

/// Returns a callback, and the list to which it adds its calls.
fn recording_callback() -> (Arc<Mutex<Vec<CallbackCall>>>, EnableCallback) {
    let calls: Arc<Mutex<Vec<CallbackCall>>> = Arc::default();
    let recorded = Arc::clone(&calls);
    let callback = Box::new(move |notice: &EnableNotice<'_>| {
        recorded.lock().unwrap().push(CallbackCall {
            code: notice.code,
            filter: notice.filter.map(|(kind, data)| (kind, data.to_vec())),
            own_filters: notice.own_filters.iter().map(|(kind, data)| (*kind, data.to_vec())).collect(),
        });
    });
    (calls, callback)
}

/// Returns the id, data and session bit of each filter in the chain of a call.
fn filter_chain(call: &CallbackCall) -> Vec<(u16, Vec<u8>, u64)> {
    let Some((EVENT_FILTER_TYPE_SCHEMATIZED, bytes)) = &call.filter else { return Vec::new() };
    Header::chain(bytes).map(|filter| (filter.id, filter.data.to_vec(), filter.instance)).collect()
}

#[test]
fn callback_gets_filters_of_all_sessions_in_one_chain() {
    ScenarioRunner::new().run("filters for the callback");
}

fn pass_filters_to_callback(folder: &Path) {
    let start_session = |name: &str| PrivateSession::start(&file_config(name, folder.join(name))).unwrap();
    let (first, second) = (start_session("a"), start_session("b"));
    let (calls, callback) = recording_callback();
    let _provider = Provider::register(PROVIDER, Some(callback)).unwrap();
    let last_call = || calls.lock().unwrap().last().cloned().unwrap();
    let call_count = || calls.lock().unwrap().len();

    first.enable(PROVIDER, &params_with(vec![schematized_filter(1, b"first")])).unwrap();
    let [(1, data, first_bit)] = &filter_chain(&last_call())[..] else { panic!("{:?}", last_call()) };
    assert_eq!((data.as_slice(), first_bit.count_ones()), (&b"first"[..], 1));
    second.enable(PROVIDER, &params_with(vec![schematized_filter(2, b"")])).unwrap();
    let [(1, _, first_bit_again), (2, _, second_bit)] = filter_chain(&last_call())[..] else {
        panic!("{:?}", last_call())
    };
    assert!(first_bit_again == *first_bit && second_bit.count_ones() == 1 && second_bit != *first_bit);

    // The same filters again are no change; other filters are, even those that the callback does
    // not see.
    assert_eq!(call_count(), 2);
    second.enable(PROVIDER, &params_with(vec![schematized_filter(2, b"")])).unwrap();
    assert_eq!(call_count(), 2);
    second.enable(PROVIDER, &params_with(vec![schematized_filter(2, b""), id_filter(true, &[1])])).unwrap();
    assert_eq!((call_count(), filter_chain(&last_call()).len()), (3, 2));
    second.enable(PROVIDER, &params_with(vec![schematized_filter(2, b""), id_filter(true, &[2])])).unwrap();
    assert_eq!((call_count(), filter_chain(&last_call()).len()), (4, 2));

    // Filters of the provider's own types arrive unchanged.
    let own_filter = |kind, data: &[u8]| Filter { kind, data: data.to_vec() };
    first.enable(PROVIDER, &params_with(vec![own_filter(9, b"nine"), own_filter(3, b"three")])).unwrap();
    assert_eq!(filter_chain(&last_call()).len(), 1, "not just the filter of the other session is left");
    assert_eq!(last_call().own_filters, [(9, b"nine".to_vec()), (3, b"three".to_vec())]);
    second.enable(PROVIDER, &params_with(vec![own_filter(9, b"other")])).unwrap();
    assert_eq!(
        last_call().filter,
        Some((9, b"other".to_vec())),
        "the callback did not get the filter of this enable"
    );
    assert_eq!(last_call().own_filters.len(), 3);

    let (late, callback) = recording_callback();
    let registered = Provider::register(PROVIDER, Some(callback)).unwrap();
    assert_eq!(late.lock().unwrap().iter().map(|call| call.own_filters.len()).collect::<Vec<_>>(), [3]);
    drop(registered);
    first.disable(PROVIDER).unwrap();
    assert_eq!(last_call().own_filters, [(9, b"other".to_vec())]);
    second.disable(PROVIDER).unwrap();
    assert_eq!(last_call(), CallbackCall { code: 0, filter: None, own_filters: vec![] });
}

#[test]
fn invalid_filters_change_nothing() {
    ScenarioRunner::new().run("filters that break a rule");
}

fn refuse_invalid_filters(folder: &Path) {
    let session = PrivateSession::start(&file_config("s", folder.join("s"))).unwrap();
    let provider = Provider::register(PROVIDER, None).unwrap();
    session.enable(PROVIDER, &params_with(vec![id_filter(true, &[2])])).unwrap();
    let pid = Filter { kind: EVENT_FILTER_TYPE_PID, data: std::process::id().to_le_bytes().to_vec() };
    // Two filters that only a daemon applies; no ids; more than 64 ids; two filters of one type; an
    // unknown type; a payload filter that ends after its signature; more than 13 filters.
    for filters in [
        vec![pid],
        vec![name_list_filter(EVENT_FILTER_TYPE_EXECUTABLE_NAME, "a")],
        vec![id_filter(true, &[])],
        vec![id_filter(true, &[7; 65])],
        vec![id_filter(true, &[7]), id_filter(true, &[8])],
        vec![Filter { kind: UNKNOWN_FILTER_TYPE, data: vec![] }],
        vec![Filter { kind: EVENT_FILTER_TYPE_PAYLOAD, data: b"EPF1".to_vec() }],
        (1..=14).map(|kind| Filter { kind, data: vec![] }).collect(),
    ] {
        let refused = session.enable(PROVIDER, &params_with(filters.clone()));
        assert_eq!(refused.unwrap_err().status(), Status::ERROR_INVALID_PARAMETER, "{filters:?}");
    }
    write_test_events(&provider);
    session.stop().unwrap();
    assert_eq!(read_numbers(folder, "s"), [2, 100, 101], "the filters of the last valid enable do not apply");
}

#[test]
fn filters_can_change_during_writes_and_signal_handlers() {
    ScenarioRunner::new().run("filters that change");
}

static HANDLER_PROVIDER: std::sync::OnceLock<Provider> = std::sync::OnceLock::new();
static HANDLER_CALLS: AtomicU64 = AtomicU64::new(0);

fn write_in_handler() {
    if let Some(provider) = HANDLER_PROVIDER.get() {
        HANDLER_CALLS.fetch_add(1, Ordering::Relaxed);
        for id in [1, 3] {
            let _ = provider.write(&event(id), &[&u64::from(id).to_le_bytes()]);
        }
    }
}

fn change_filters_during_writes(folder: &Path) {
    let session = PrivateSession::start(&file_config("s", folder.join("s"))).unwrap();
    session.enable(PROVIDER, &params_with(vec![id_filter(true, &[1])])).unwrap();
    HANDLER_PROVIDER.set(Provider::register(PROVIDER, None).unwrap()).unwrap();
    alarm::start(300, write_in_handler);
    let (is_stopping, offered, changes) = (AtomicBool::new(false), AtomicU64::new(0), 2000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let provider = Provider::register(PROVIDER, None).unwrap();
            while !is_stopping.load(Ordering::Relaxed) {
                // A full ring loses events, which are counted and do not matter here.
                let _ = provider.write(&event(1), &[&1u64.to_le_bytes()]);
                let _ = provider.write(&event(3), &[&3u64.to_le_bytes()]);
                offered.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        for n in 0..changes {
            // Each enable has new ids, which never include event 3.
            let passing_ids: Vec<u16> = (0..20).map(|i| 100 + n % 1000 * 20 + i).chain([1]).collect();
            session
                .enable(
                    PROVIDER,
                    &params_with(vec![id_filter(true, &passing_ids), name_filter(true, &["x"])]),
                )
                .unwrap();
        }
        is_stopping.store(true, Ordering::Relaxed);
    });
    alarm::stop();
    session.stop().unwrap();
    let (seen, lost) = read_events(&folder.join("s"));
    let count_id = |id| seen.iter().filter(|event| event.id == id).count();
    let (ones, threes) = (count_id(1), count_id(3));
    let offered = offered.into_inner() + HANDLER_CALLS.load(Ordering::Relaxed);
    assert!(offered > 100 && HANDLER_CALLS.load(Ordering::Relaxed) > 0);
    assert!(ones as u64 + lost >= offered, "{ones} recorded and {lost} lost of {offered} events");
    // An event with the id 3 passes only if the filter changes while it is checked: a few times per
    // change at most.
    assert!(threes < usize::from(changes) * 4, "{threes} events with the id 3 passed");
}

#[test]
fn daemon_and_process_each_apply_their_filters() {
    ScenarioRunner::new().run("filters by a daemon");
}

fn filter_with_daemon(folder: &Path) {
    let mut daemon = RealDaemon::start(&folder.join("run"));
    let controller = &mut daemon.controller;
    let mut start =
        |name: &str| SessionRef::Id(controller.start(&file_config(name, folder.join(name))).unwrap().id);
    let (ahead, here, elsewhere) = (start("ahead"), start("here"), start("elsewhere"));
    let timeout_ms = TEST_TIMEOUT.as_millis() as u32;
    let mut enable = |session: &SessionRef, filters: Vec<Filter>| {
        controller
            .enable(session, PROVIDER, EnableCode::Enable, &params_with(filters), timeout_ms)
            .map_err(|error| error.status())
    };
    let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().to_uppercase();
    let program = name_list_filter(EVENT_FILTER_TYPE_EXECUTABLE_NAME, &format!("absent; {program}\0"));
    let pid_filter = |pid: u32| Filter { kind: EVENT_FILTER_TYPE_PID, data: pid.to_le_bytes().to_vec() };

    enable(&ahead, vec![program.clone(), id_filter(true, &[1])]).unwrap();
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.event_enabled(&event(1)) && !provider.event_enabled(&event(2)), "not enabled ahead");
    enable(
        &here,
        vec![pid_filter(std::process::id()), name_filter(true, &["hundred"]), id_filter(false, &[1])],
    )
    .unwrap();
    enable(
        &elsewhere,
        vec![pid_filter(std::process::id()), name_list_filter(EVENT_FILTER_TYPE_EXECUTABLE_NAME, "absent")],
    )
    .unwrap();
    write_test_events(&provider);
    // Outside its new scope, the session gets nothing more.
    enable(&here, vec![pid_filter(1), name_filter(true, &["hundred"])]).unwrap();
    enable(&elsewhere, vec![program, id_filter(true, &[4])]).unwrap();
    write_test_events(&provider);
    for filters in [
        vec![pid_filter(1), pid_filter(2)],
        vec![id_filter(true, &[])],
        vec![Filter { kind: EVENT_FILTER_TYPE_TRACEHANDLE, data: vec![0; 8] }],
        vec![Filter { kind: UNKNOWN_FILTER_TYPE, data: vec![] }],
        (1..=14).map(|kind| Filter { kind, data: vec![] }).collect(),
    ] {
        assert_eq!(enable(&ahead, filters.clone()), Err(Status::ERROR_INVALID_PARAMETER), "{filters:?}");
    }
    let disabled =
        controller.enable(&elsewhere, PROVIDER, EnableCode::Disable, &EnableParams::default(), timeout_ms);
    disabled.unwrap();
    write_test_events(&provider);
    for session in [&ahead, &here, &elsewhere] {
        controller.stop(session).unwrap();
    }
    assert_eq!(read_numbers(folder, "ahead"), [1, 100, 101, 1, 100, 101, 1, 100, 101]);
    assert_eq!(read_numbers(folder, "here"), [2, 3, 4, 100]);
    assert_eq!(read_numbers(folder, "elsewhere"), [4, 100, 101]);
    drop(provider);
}
