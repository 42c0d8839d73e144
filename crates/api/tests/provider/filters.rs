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
use crate::{PATIENCE, PROVIDER, Scenario, Stage, alarm, event, read, sequential};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("filters of private sessions", private_sessions),
    ("filters for the callback", for_the_callback),
    ("filters that break a rule", broken_rules),
    ("filters that change", changing),
    ("filters by a daemon", with_a_daemon),
];

fn with(filters: Vec<Filter>) -> EnableParams {
    EnableParams { filters, ..EnableParams::default() }
}

fn ids(filter_in: bool, ids: &[u16]) -> Filter {
    Filter { kind: EVENT_FILTER_TYPE_EVENT_ID, data: encode::event_ids(filter_in, ids) }
}

fn names(filter_in: bool, names: &[&str]) -> Filter {
    let data = encode::event_names(Gate::default(), filter_in, names);
    Filter { kind: EVENT_FILTER_TYPE_EVENT_NAME, data }
}

fn wide(kind: u32, text: &str) -> Filter {
    Filter { kind, data: encode::name_list(&[text]) }
}

fn schematized(id: u16, data: &[u8]) -> Filter {
    let mut bytes = [&id.to_le_bytes()[..], &[0; 14]].concat();
    bytes.extend((24 + data.len() as u32).to_le_bytes());
    bytes.extend([&[0; 4], data].concat());
    Filter { kind: EVENT_FILTER_TYPE_SCHEMATIZED, data: bytes }
}

/// Writes events 1 to 4 with a number, and two TraceLogging events whose payload is their name.
fn write_all(provider: &Provider) {
    for id in 1..=4 {
        provider.write(&event(id), &[&u64::from(id).to_le_bytes()]).unwrap();
    }
    for (number, name) in [(100_u64, "hundred"), (101, "more")] {
        let metadata = MetadataBuilder::new(name, 0).finish().unwrap().to_vec();
        provider.event(&event(0)).metadata(&metadata).write(&[&number.to_le_bytes()]).unwrap();
    }
}

fn numbers(folder: &Path, file: &str) -> Vec<u64> {
    let (seen, lost) = read(&folder.join(file));
    assert_eq!(lost, 0, "a filtered event does not count as lost");
    seen.iter().map(super::RecordedEvent::number).collect()
}

#[test]
fn private_session_gets_events_that_pass_its_filters() {
    Stage::new().run("filters of private sessions");
}

fn private_sessions(folder: &Path) {
    let session = |name: &str| PrivateSession::start(&sequential(name, folder.join(name))).unwrap();
    let (one, two, three) = (session("one"), session("two"), session("three"));
    let early = Provider::register(PROVIDER, None).unwrap();
    one.enable(PROVIDER, &with(vec![ids(true, &[2, 3])])).unwrap();
    two.enable(PROVIDER, &with(vec![ids(false, &[2, 3]), names(true, &["more"])])).unwrap();
    // A provider registered later is filtered as well.
    let late = Provider::register(PROVIDER, None).unwrap();
    assert!(late.enabled(4, 1) && late.event_enabled(&event(2)));
    write_all(&early);
    write_all(&late);
    // Each call replaces all filters; a call without filters removes them.
    three.enable(PROVIDER, &with(vec![names(false, &["hundred", "more"]), ids(true, &[4])])).unwrap();
    one.enable(PROVIDER, &with(vec![])).unwrap();
    two.disable(PROVIDER).unwrap();
    write_all(&late);
    // An event that no session lets through is not checked for its size.
    one.disable(PROVIDER).unwrap();
    let large = vec![0; 70_000];
    assert_eq!(early.write(&event(3), &[&large]), Ok(()));
    assert_eq!(early.write(&event(4), &[&large]), Err(traceweir::WriteError::TooLarge));
    assert_eq!(one.stop().unwrap().events_lost + two.stop().unwrap().events_lost, 0);
    assert_eq!(
        three.stop().unwrap().events_lost,
        0,
        "an event too large for every session does not count as lost"
    );
    assert_eq!(numbers(folder, "one"), [2, 3, 100, 101, 2, 3, 100, 101, 1, 2, 3, 4, 100, 101]);
    assert_eq!(numbers(folder, "two"), [1, 4, 101, 1, 4, 101]);
    let (seen, lost) = read(&folder.join("three"));
    assert_eq!((seen.iter().map(super::RecordedEvent::number).collect::<Vec<_>>(), lost), (vec![4], 0));
}

/// One callback call: code, the single filter, and filters of the provider's own types.
type Call = (u32, Option<(u32, Vec<u8>)>, Vec<(u32, Vec<u8>)>);

fn recorder() -> (Arc<Mutex<Vec<Call>>>, EnableCallback) {
    let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
    let to = Arc::clone(&calls);
    let callback = Box::new(move |n: &EnableNotice<'_>| {
        let own = n.own_filters.iter().map(|(kind, data)| (*kind, data.to_vec())).collect();
        to.lock().unwrap().push((n.code, n.filter.map(|(kind, data)| (kind, data.to_vec())), own));
    });
    (calls, callback)
}

/// Returns the ids, data and session bits of the filters in a chain.
fn chain(call: &Call) -> Vec<(u16, Vec<u8>, u64)> {
    let Some((EVENT_FILTER_TYPE_SCHEMATIZED, bytes)) = &call.1 else { return Vec::new() };
    Header::chain(bytes).map(|h| (h.id, h.data.to_vec(), h.instance)).collect()
}

#[test]
fn callback_gets_filters_of_all_sessions_in_one_chain() {
    Stage::new().run("filters for the callback");
}

fn for_the_callback(folder: &Path) {
    let session = |name: &str| PrivateSession::start(&sequential(name, folder.join(name))).unwrap();
    let (a, b) = (session("a"), session("b"));
    let (calls, callback) = recorder();
    let _provider = Provider::register(PROVIDER, Some(callback)).unwrap();
    let last = || calls.lock().unwrap().last().cloned().unwrap();
    let count = || calls.lock().unwrap().len();

    a.enable(PROVIDER, &with(vec![schematized(1, b"first")])).unwrap();
    let [(1, data, bit_a)] = &chain(&last())[..] else { panic!("{:?}", last()) };
    assert_eq!((data.as_slice(), bit_a.count_ones()), (&b"first"[..], 1));
    b.enable(PROVIDER, &with(vec![schematized(2, b"")])).unwrap();
    let [(1, _, again), (2, _, bit_b)] = chain(&last())[..] else { panic!("{:?}", last()) };
    assert!(again == *bit_a && bit_b.count_ones() == 1 && bit_b != *bit_a);

    // The same filters again are no change; other filters are, even those that the callback does
    // not see.
    assert_eq!(count(), 2);
    b.enable(PROVIDER, &with(vec![schematized(2, b"")])).unwrap();
    assert_eq!(count(), 2);
    b.enable(PROVIDER, &with(vec![schematized(2, b""), ids(true, &[1])])).unwrap();
    assert_eq!((count(), chain(&last()).len()), (3, 2));
    b.enable(PROVIDER, &with(vec![schematized(2, b""), ids(true, &[2])])).unwrap();
    assert_eq!((count(), chain(&last()).len()), (4, 2));

    // Filters of the provider's own types arrive unchanged.
    let own = |kind, data: &[u8]| Filter { kind, data: data.to_vec() };
    a.enable(PROVIDER, &with(vec![own(9, b"nine"), own(3, b"three")])).unwrap();
    assert_eq!(chain(&last()).len(), 1, "the other session's");
    assert_eq!(last().2, [(9, b"nine".to_vec()), (3, b"three".to_vec())]);
    b.enable(PROVIDER, &with(vec![own(9, b"other")])).unwrap();
    assert_eq!(last().1, Some((9, b"other".to_vec())), "the filter of this enable");
    assert_eq!(last().2.len(), 3);

    let (late, callback) = recorder();
    let registered = Provider::register(PROVIDER, Some(callback)).unwrap();
    assert_eq!(late.lock().unwrap().iter().map(|call| call.2.len()).collect::<Vec<_>>(), [3]);
    drop(registered);
    a.disable(PROVIDER).unwrap();
    assert_eq!(last().2, [(9, b"other".to_vec())]);
    b.disable(PROVIDER).unwrap();
    assert_eq!(last(), (0, None, vec![]));
}

#[test]
fn invalid_filters_change_nothing() {
    Stage::new().run("filters that break a rule");
}

fn broken_rules(folder: &Path) {
    let session = PrivateSession::start(&sequential("s", folder.join("s"))).unwrap();
    let provider = Provider::register(PROVIDER, None).unwrap();
    session.enable(PROVIDER, &with(vec![ids(true, &[2])])).unwrap();
    let pid = Filter { kind: EVENT_FILTER_TYPE_PID, data: std::process::id().to_le_bytes().to_vec() };
    for filters in [
        vec![pid],
        vec![wide(EVENT_FILTER_TYPE_EXECUTABLE_NAME, "a")],
        vec![ids(true, &[])],
        vec![ids(true, &[7; 65])],
        vec![ids(true, &[7]), ids(true, &[8])],
        vec![Filter { kind: 0x8000_0040, data: vec![] }],
        vec![Filter { kind: EVENT_FILTER_TYPE_PAYLOAD, data: b"EPF1".to_vec() }],
        (1..=14).map(|kind| Filter { kind, data: vec![] }).collect(),
    ] {
        let refused = session.enable(PROVIDER, &with(filters.clone()));
        assert_eq!(refused.unwrap_err().status(), Status::ERROR_INVALID_PARAMETER, "{filters:?}");
    }
    write_all(&provider);
    session.stop().unwrap();
    assert_eq!(numbers(folder, "s"), [2, 100, 101], "the filters from before");
}

#[test]
fn filters_can_change_during_writes_and_signal_handlers() {
    Stage::new().run("filters that change");
}

static IN_HANDLER: std::sync::OnceLock<Provider> = std::sync::OnceLock::new();
static HANDLED: AtomicU64 = AtomicU64::new(0);

fn in_handler() {
    if let Some(provider) = IN_HANDLER.get() {
        HANDLED.fetch_add(1, Ordering::Relaxed);
        for id in [1, 3] {
            let _ = provider.write(&event(id), &[&u64::from(id).to_le_bytes()]);
        }
    }
}

fn changing(folder: &Path) {
    let session = PrivateSession::start(&sequential("s", folder.join("s"))).unwrap();
    session.enable(PROVIDER, &with(vec![ids(true, &[1])])).unwrap();
    IN_HANDLER.set(Provider::register(PROVIDER, None).unwrap()).unwrap();
    alarm::start(300, in_handler);
    let (stop, offered, changes) = (AtomicBool::new(false), AtomicU64::new(0), 2000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let provider = Provider::register(PROVIDER, None).unwrap();
            while !stop.load(Ordering::Relaxed) {
                // A full ring loses events, which are counted and do not matter here.
                let _ = provider.write(&event(1), &[&1u64.to_le_bytes()]);
                let _ = provider.write(&event(3), &[&3u64.to_le_bytes()]);
                offered.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        for n in 0..changes {
            // Each enable has new ids, which never include event 3.
            let others: Vec<u16> = (0..20).map(|i| 100 + n % 1000 * 20 + i).chain([1]).collect();
            session.enable(PROVIDER, &with(vec![ids(true, &others), names(true, &["x"])])).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    alarm::stop();
    session.stop().unwrap();
    let (seen, lost) = read(&folder.join("s"));
    let (ones, threes) =
        (seen.iter().filter(|s| s.id == 1).count(), seen.iter().filter(|s| s.id == 3).count());
    let offered = offered.into_inner() + HANDLED.load(Ordering::Relaxed);
    assert!(offered > 100 && HANDLED.load(Ordering::Relaxed) > 0);
    assert!(ones as u64 + lost >= offered, "{ones} + {lost} of {offered}: every filter lets event 1 through");
    assert!(threes < usize::from(changes) * 4, "{threes}: at moments of change only");
}

#[test]
fn daemon_and_process_each_apply_their_filters() {
    Stage::new().run("filters by a daemon");
}

fn with_a_daemon(folder: &Path) {
    let mut daemon = RealDaemon::start(&folder.join("run"));
    let controller = &mut daemon.controller;
    let mut start =
        |name: &str| SessionRef::Id(controller.start(&sequential(name, folder.join(name))).unwrap().id);
    let (ahead, here, elsewhere) = (start("ahead"), start("here"), start("elsewhere"));
    let millis = PATIENCE.as_millis() as u32;
    let mut enable = |session: &SessionRef, filters: Vec<Filter>| {
        controller
            .enable(session, PROVIDER, EnableCode::Enable, &with(filters), millis)
            .map_err(|e| e.status())
    };
    let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().to_uppercase();
    let program = wide(EVENT_FILTER_TYPE_EXECUTABLE_NAME, &format!("nobody; {program}\0"));
    let pid = |pid: u32| Filter { kind: EVENT_FILTER_TYPE_PID, data: pid.to_le_bytes().to_vec() };

    enable(&ahead, vec![program.clone(), ids(true, &[1])]).unwrap();
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.event_enabled(&event(1)) && !provider.event_enabled(&event(2)), "enabled ahead");
    enable(&here, vec![pid(std::process::id()), names(true, &["hundred"]), ids(false, &[1])]).unwrap();
    enable(&elsewhere, vec![pid(std::process::id()), wide(EVENT_FILTER_TYPE_EXECUTABLE_NAME, "nobody")])
        .unwrap();
    write_all(&provider);
    // Outside its new scope, the session gets nothing more.
    enable(&here, vec![pid(1), names(true, &["hundred"])]).unwrap();
    enable(&elsewhere, vec![program, ids(true, &[4])]).unwrap();
    write_all(&provider);
    for filters in [
        vec![pid(1), pid(2)],
        vec![ids(true, &[])],
        vec![Filter { kind: EVENT_FILTER_TYPE_TRACEHANDLE, data: vec![0; 8] }],
        vec![Filter { kind: 0x8000_0040, data: vec![] }],
        (1..=14).map(|kind| Filter { kind, data: vec![] }).collect(),
    ] {
        assert_eq!(enable(&ahead, filters.clone()), Err(Status::ERROR_INVALID_PARAMETER), "{filters:?}");
    }
    let disabled =
        controller.enable(&elsewhere, PROVIDER, EnableCode::Disable, &EnableParams::default(), millis);
    disabled.unwrap();
    write_all(&provider);
    for session in [&ahead, &here, &elsewhere] {
        controller.stop(session).unwrap();
    }
    assert_eq!(numbers(folder, "ahead"), [1, 100, 101, 1, 100, 101, 1, 100, 101]);
    assert_eq!(numbers(folder, "here"), [2, 3, 4, 100]);
    assert_eq!(numbers(folder, "elsewhere"), [4, 100, 101]);
    drop(provider);
}
