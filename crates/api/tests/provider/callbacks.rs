//! Enable callbacks: when they are called, and with which values.

use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use traceweir::controller::EnableParams;
use traceweir::provider::EnableCallback;
use traceweir::{Guid, PrivateSession, Provider};
use traceweir_format::tracelogging::TraitsBuilder;

use crate::{PROVIDER, Scenario, ScenarioRunner, all_events, event, file_config, read_events, until};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("late registration", register_after_enable),
    ("two sessions", enable_in_two_sessions),
    ("inside the callback", write_and_register_in_callback),
    ("blocked callback", register_while_callback_blocks),
];

/// The arguments of one call of the callback.
#[derive(Debug, PartialEq)]
struct CallbackCall {
    /// 1 for an enable, 0 for a disable.
    code: u32,
    level: u8,
    match_any: u64,
    match_all: u64,
    source: Guid,
    is_on_test_thread: bool,
}

/// The call when the last session disables the provider.
const DISABLED: CallbackCall = CallbackCall {
    code: 0,
    level: 0,
    match_any: 0,
    match_all: 0,
    source: Guid::NULL,
    is_on_test_thread: false,
};

/// Returns a callback, and the list to which it adds its calls.
fn recording_callback() -> (Arc<Mutex<Vec<CallbackCall>>>, EnableCallback) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (recorded, test_thread) = (Arc::clone(&calls), std::thread::current().id());
    let callback = Box::new(move |notice: &traceweir::provider::EnableNotice<'_>| {
        recorded.lock().unwrap().push(CallbackCall {
            code: notice.code,
            level: notice.level,
            match_any: notice.match_any,
            match_all: notice.match_all,
            source: notice.source,
            is_on_test_thread: std::thread::current().id() == test_thread,
        });
    });
    (calls, callback)
}

fn params(level: u8, match_any: u64, match_all: u64) -> EnableParams {
    EnableParams { level, match_any, match_all, ..EnableParams::default() }
}

#[test]
fn callback_runs_before_late_registration_returns() {
    ScenarioRunner::new().run("late registration");
}

fn register_after_enable(folder: &Path) {
    let session = PrivateSession::start(&file_config("late", folder.join("late.etl"))).unwrap();
    let source = Guid::from_u128(77);
    session.enable(PROVIDER, &EnableParams { source, ..params(0, 6, 0) }).unwrap();
    let (calls, callback) = recording_callback();
    let provider = Provider::register(PROVIDER, Some(callback)).unwrap();
    // The callback gets the values of the single session, but not its source, and runs on this
    // thread.
    assert_eq!(
        *calls.lock().unwrap(),
        [CallbackCall { code: 1, match_any: 6, is_on_test_thread: true, ..DISABLED }]
    );
    assert!(provider.enabled(255, 2));
    session.stop().unwrap();
    assert_eq!(calls.lock().unwrap()[1..], [DISABLED]);
    assert!(!provider.enabled(0, 0));
}

#[test]
fn callback_gets_combined_settings_once_per_change() {
    ScenarioRunner::new().run("two sessions");
}

fn enable_in_two_sessions(folder: &Path) {
    let (calls, callback) = recording_callback();
    let provider = Provider::register(PROVIDER, Some(callback)).unwrap();
    assert!(calls.lock().unwrap().is_empty(), "the callback was called before an enable");
    let first = PrivateSession::start(&file_config("a", folder.join("a.etl"))).unwrap();
    let second = PrivateSession::start(&file_config("b", folder.join("b.etl"))).unwrap();
    let source = Guid::from_u128(5);
    first.enable(PROVIDER, &EnableParams { source, ..params(3, 1, 12) }).unwrap();
    first.enable(PROVIDER, &EnableParams { source, ..params(3, 1, 12) }).unwrap();
    second.enable(PROVIDER, &params(5, 2, 4)).unwrap();
    assert!(provider.enabled(5, 0b0111) && !provider.enabled(6, 0b0111) && !provider.enabled(5, 0b1000));
    first.disable(PROVIDER).unwrap();
    second.disable(PROVIDER).unwrap();
    second.disable(PROVIDER).unwrap();
    let expected = [
        CallbackCall { code: 1, level: 3, match_any: 1, match_all: 12, source, ..DISABLED },
        CallbackCall { code: 1, level: 5, match_any: 3, match_all: 4, ..DISABLED },
        CallbackCall { code: 1, level: 5, match_any: 2, match_all: 4, ..DISABLED },
        DISABLED,
    ];
    assert_eq!(*calls.lock().unwrap(), expected);
}

#[test]
fn callback_can_write_register_and_unregister() {
    ScenarioRunner::new().run("inside the callback");
}

fn write_and_register_in_callback(folder: &Path) {
    let slot: Arc<Mutex<Option<Provider>>> = Arc::default();
    let (slot_in_callback, is_done) = (Arc::clone(&slot), Arc::new(Mutex::new(false)));
    let is_done_in_callback = Arc::clone(&is_done);
    let callback: EnableCallback = Box::new(move |_| {
        let provider = slot_in_callback.lock().unwrap().take().unwrap();
        provider.write(&event(9), &[&1u64.to_le_bytes()]).unwrap();
        let another = Provider::register(PROVIDER, None).unwrap();
        another.write(&event(10), &[&2u64.to_le_bytes()]).unwrap();
        drop(provider);
        *is_done_in_callback.lock().unwrap() = true;
    });
    *slot.lock().unwrap() = Some(Provider::register(PROVIDER, Some(callback)).unwrap());
    let session = PrivateSession::start(&file_config("inside", folder.join("inside.etl"))).unwrap();
    session.enable(PROVIDER, &all_events()).unwrap();
    until("the callback has run", || *is_done.lock().unwrap());
    session.stop().unwrap();
    let ids: Vec<u16> = read_events(&folder.join("inside.etl")).0.iter().map(|event| event.id).collect();
    assert_eq!(ids, [9, 10]);
    // A callback that panics does not affect the others.
    let _panicking = Provider::register(PROVIDER, Some(Box::new(|_| panic!("on purpose")))).unwrap();
    let (calls, callback) = recording_callback();
    let _recording = Provider::register(PROVIDER, Some(callback)).unwrap();
    let session = PrivateSession::start(&file_config("panic", folder.join("panic.etl"))).unwrap();
    session.enable(PROVIDER, &all_events()).unwrap();
    until("the other callback has run", || calls.lock().unwrap().len() == 1);
}

#[test]
fn registrations_share_one_wait_for_a_blocked_callback() {
    ScenarioRunner::new().run("blocked callback");
}

/// How long a registration waits for the control thread on a busy machine.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Calls that wait for the control thread: half of them register, half of them set traits.
const CALLS: u32 = 6;

fn register_while_callback_blocks(folder: &Path) {
    let (began_sender, callback_began) = channel();
    let (unblock, may_end) = channel::<()>();
    let (began_sender, may_end) = (Mutex::new(began_sender), Mutex::new(may_end));
    let callback: EnableCallback = Box::new(move |_| {
        began_sender.lock().unwrap().send(()).unwrap();
        let _ = may_end.lock().unwrap().recv();
    });
    let _blocking = Provider::register(PROVIDER, Some(callback)).unwrap();
    let session = PrivateSession::start(&file_config("blocked", folder.join("blocked.etl"))).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| session.enable(PROVIDER, &all_events()).unwrap());
        callback_began.recv().unwrap();
        let start = Instant::now();
        // These calls must return before the callback ends, because a caller may hold a lock that
        // the callback needs.
        for number in 1..=CALLS / 2 {
            let provider = Provider::register(Guid::from_u128(number.into()), None).unwrap();
            provider.set_traits(&traits()).unwrap();
        }
        let waited = start.elapsed();
        drop(unblock);
        // If each call waited for the timeout, the calls would take a minute.
        assert!(waited < SEND_TIMEOUT * CALLS * 2 / 3, "{waited:?}");
    });
    session.disable(PROVIDER).unwrap();
    session.stop().unwrap();
}

fn traits() -> Vec<u8> {
    TraitsBuilder::new("Blocked").finish().unwrap().to_vec()
}
