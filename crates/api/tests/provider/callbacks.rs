//! Enable callbacks: when they are called, and with which values.

use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use traceweir::controller::EnableParams;
use traceweir::provider::EnableCallback;
use traceweir::{Guid, PrivateSession, Provider};
use traceweir_format::tracelogging::TraitsBuilder;

use crate::{PROVIDER, Scenario, Stage, event, everything, read, sequential, until};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("late registration", late_registration),
    ("two sessions", two_sessions),
    ("inside the callback", inside_the_callback),
    ("blocked callback", blocked_callback),
];

/// Code, level, match-any, match-all, source, and whether the callback ran on the test's thread.
type Call = (u32, u8, u64, u64, Guid, bool);

fn recorder() -> (Arc<Mutex<Vec<Call>>>, EnableCallback) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (to, mine) = (Arc::clone(&calls), std::thread::current().id());
    let callback = Box::new(move |n: &traceweir::provider::EnableNotice<'_>| {
        let own = std::thread::current().id() == mine;
        to.lock().unwrap().push((n.code, n.level, n.match_any, n.match_all, n.source, own));
    });
    (calls, callback)
}

fn params(level: u8, any: u64, all: u64) -> EnableParams {
    EnableParams { level, match_any: any, match_all: all, ..EnableParams::default() }
}

#[test]
fn callback_runs_before_late_registration_returns() {
    Stage::new().run("late registration");
}

fn late_registration(folder: &Path) {
    let session = PrivateSession::start(&sequential("late", folder.join("late.etl"))).unwrap();
    let source = Guid::from_u128(77);
    session.enable(PROVIDER, &EnableParams { source, ..params(0, 6, 0) }).unwrap();
    let (calls, callback) = recorder();
    let provider = Provider::register(PROVIDER, Some(callback)).unwrap();
    // The values of the single session, without a source, on this thread.
    assert_eq!(*calls.lock().unwrap(), [(1, 0, 6, 0, Guid::NULL, true)]);
    assert!(provider.enabled(255, 2));
    session.stop().unwrap();
    assert_eq!(calls.lock().unwrap()[1..], [(0, 0, 0, 0, Guid::NULL, false)]);
    assert!(!provider.enabled(0, 0));
}

#[test]
fn callback_gets_combined_settings_once_per_change() {
    Stage::new().run("two sessions");
}

fn two_sessions(folder: &Path) {
    let (calls, callback) = recorder();
    let provider = Provider::register(PROVIDER, Some(callback)).unwrap();
    assert!(calls.lock().unwrap().is_empty(), "no session is enabled yet");
    let a = PrivateSession::start(&sequential("a", folder.join("a.etl"))).unwrap();
    let b = PrivateSession::start(&sequential("b", folder.join("b.etl"))).unwrap();
    let source = Guid::from_u128(5);
    a.enable(PROVIDER, &EnableParams { source, ..params(3, 1, 12) }).unwrap();
    a.enable(PROVIDER, &EnableParams { source, ..params(3, 1, 12) }).unwrap();
    b.enable(PROVIDER, &params(5, 2, 4)).unwrap();
    assert!(provider.enabled(5, 0b0111) && !provider.enabled(6, 0b0111) && !provider.enabled(5, 0b1000));
    a.disable(PROVIDER).unwrap();
    b.disable(PROVIDER).unwrap();
    b.disable(PROVIDER).unwrap();
    let want = [
        (1, 3, 1, 12, source, false),
        (1, 5, 3, 4, Guid::NULL, false),
        (1, 5, 2, 4, Guid::NULL, false),
        (0, 0, 0, 0, Guid::NULL, false),
    ];
    assert_eq!(*calls.lock().unwrap(), want);
}

#[test]
fn callback_can_write_register_and_unregister() {
    Stage::new().run("inside the callback");
}

fn inside_the_callback(folder: &Path) {
    let slot: Arc<Mutex<Option<Provider>>> = Arc::default();
    let (inside, done) = (Arc::clone(&slot), Arc::new(Mutex::new(false)));
    let finished = Arc::clone(&done);
    let callback: EnableCallback = Box::new(move |_| {
        let provider = inside.lock().unwrap().take().unwrap();
        provider.write(&event(9), &[&1u64.to_le_bytes()]).unwrap();
        let another = Provider::register(PROVIDER, None).unwrap();
        another.write(&event(10), &[&2u64.to_le_bytes()]).unwrap();
        drop(provider);
        *finished.lock().unwrap() = true;
    });
    *slot.lock().unwrap() = Some(Provider::register(PROVIDER, Some(callback)).unwrap());
    let session = PrivateSession::start(&sequential("inside", folder.join("inside.etl"))).unwrap();
    session.enable(PROVIDER, &everything()).unwrap();
    until("the callback", || *done.lock().unwrap());
    session.stop().unwrap();
    let ids: Vec<u16> = read(&folder.join("inside.etl")).0.iter().map(|s| s.id).collect();
    assert_eq!(ids, [9, 10]);
    // A callback that panics does not affect the others.
    let _angry = Provider::register(PROVIDER, Some(Box::new(|_| panic!("as planned")))).unwrap();
    let (calls, callback) = recorder();
    let _calm = Provider::register(PROVIDER, Some(callback)).unwrap();
    let session = PrivateSession::start(&sequential("panic", folder.join("panic.etl"))).unwrap();
    session.enable(PROVIDER, &everything()).unwrap();
    until("the other callback", || calls.lock().unwrap().len() == 1);
}

#[test]
fn blocked_callback_delays_registrations_by_a_second_in_all() {
    Stage::new().run("blocked callback");
}

/// How long a registration waits for the control thread on a busy machine.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Calls that wait for the control thread: half of them register, half of them set traits.
const CALLS: u32 = 6;

fn blocked_callback(folder: &Path) {
    let (began, callback_began) = channel();
    let (go_on, may_end) = channel::<()>();
    let (began, may_end) = (Mutex::new(began), Mutex::new(may_end));
    let callback: EnableCallback = Box::new(move |_| {
        began.lock().unwrap().send(()).unwrap();
        let _ = may_end.lock().unwrap().recv();
    });
    let _blocking = Provider::register(PROVIDER, Some(callback)).unwrap();
    let session = PrivateSession::start(&sequential("blocked", folder.join("blocked.etl"))).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| session.enable(PROVIDER, &everything()).unwrap());
        callback_began.recv().unwrap();
        let start = Instant::now();
        // The callback ends after these return: its lock could be held by this thread.
        for number in 1..=CALLS / 2 {
            let provider = Provider::register(Guid::from_u128(number.into()), None).unwrap();
            provider.set_traits(&traits()).unwrap();
        }
        let waited = start.elapsed();
        drop(go_on);
        // Each call alone would wait this long: the excluded behaviour takes a minute.
        assert!(waited < SEND_TIMEOUT * CALLS * 2 / 3, "{waited:?}");
    });
    session.disable(PROVIDER).unwrap();
    session.stop().unwrap();
}

fn traits() -> Vec<u8> {
    TraitsBuilder::new("Blocked").finish().unwrap().to_vec()
}
