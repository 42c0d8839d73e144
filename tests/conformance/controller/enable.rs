//! Rules for EnableTraceEx2. `rule.rs` explains the rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use traceweir::controller::{EnableCode, EnableParams, Filter, SessionRef};
use traceweir::private::PrivateSession;
use traceweir::{Guid, Provider, Status};
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_ENABLE_KEYWORD_0, EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0, EVENT_FILTER_TYPE_PID,
};
use traceweir_format::spec::system::SYSTEM_PROVIDERS;

use crate::helpers::{
    CallbackLog, Fixture, INSTANCE_NOT_FOUND, INVALID_FUNCTION, INVALID_PARAMETER, KEYWORD, LEVEL, SUCCESS,
    TIMEOUT, enable_params, event, event_with, new_guid, status, until,
};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 6 #ENABLE", D, "events of the provider arrive", enabling_lets_events_through),
    rule!("controller 6 #DISABLE", D, "events of the provider no longer arrive", disabling_stops_events),
    rule!("controller 6 #CAPTURE_STATE", D, "the callback is called with the code 2",
        capture_state_calls_the_callback),
    rule!("controller 6", D, "each call replaces level, masks and properties; nothing is merged",
        each_call_replaces),
    rule!("controller 6", D, "each call replaces all filters; a call without filters removes them",
        each_call_replaces_filters),
    rule!("controller 6", D, "a provider can be enabled before it is registered",
        provider_is_enabled_before_it_registers),
    rule!("controller 6", D, "the source of an enable reaches the callback, and is zero at a later registration",
        source_of_an_enable_reaches_the_callback),
    rule!("controller 9.2", P, "a system provider on a session that is not a system logger → 87",
        system_providers_need_a_system_logger),
    rule!("controller 6", D, "an enable outlives the controller that made it", an_enable_outlives_its_controller),
    rule!("controller 6", D, "an enable ends with its session", an_enable_ends_with_its_session),
    rule!("controller 6", D, "timeout 0 returns at once", timeout_0_does_not_wait),
    rule!("controller 6", D, "with a timeout the call returns after all callbacks", a_timeout_waits_for_callbacks),
    rule!("controller 6", D, "an enable that times out → 1460, and it stays in force", enable_that_timed_out_stays_in_force),
    rule!("controller 6", D, "0xFFFFFFFF waits without limit", infinite_timeout_waits_for_callbacks),
    rule!("controller 6", D, "a null provider GUID, or session id 0 → 87", an_enable_needs_provider_and_session),
    rule!("controller 6", D, "a session that is not running → 4201", an_enable_needs_a_running_session),
    rule!("controller 6", P, "capture-state of an unknown GUID → 1", capture_state_of_an_unknown_guid_fails),
    rule!("controller 6", P, "disabling a provider that is not enabled succeeds",
        disabling_a_disabled_provider_succeeds),
    rule!("controller 6.1 #0x010", D, "events whose keyword is 0 are dropped", keyword_0_is_ignored),
    rule!("controller 6.1 #0x040", D, "ENABLE_KEYWORD_0 lets events without keyword through",
        keyword_0_can_be_enabled),
];

fn enabling_lets_events_through(fixture: &Fixture) {
    let (session, provider, guid) = fixture.start_with_provider(&EnableParams::default());
    provider.write(&event(1), &[b"data"]).unwrap();
    let seen = fixture.stop_and_read(session);
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].provider, &seen[0].payload[..]), (guid, &b"data"[..]));
}

fn disabling_stops_events(fixture: &Fixture) {
    let (session, provider, guid) = fixture.start_with_provider(&EnableParams::default());
    fixture.disable(&session, guid);
    assert!(!provider.enabled(0, 0));
    provider.write(&event(1), &[b"unrecorded"]).unwrap();
    assert_eq!(fixture.stop_and_read(session), []);
}

fn capture_state_calls_the_callback(fixture: &Fixture) {
    let (calls, guid, session) = (CallbackLog::default(), new_guid(), fixture.start(&fixture.config()));
    let _provider = Provider::register(guid, calls.callback()).unwrap();
    fixture.enable(&session, guid, &enable_params(3, 6, 2));
    let params = EnableParams::default();
    fixture.connect().enable(&session.id, guid, EnableCode::CaptureState, &params, 10_000).unwrap();
    assert_eq!(calls.last().code, 2);
}

fn each_call_replaces(fixture: &Fixture) {
    let (session, provider, guid) = fixture.start_with_provider(&enable_params(5, 0b1, 0));
    assert!(provider.enabled(5, 0b1) && !provider.enabled(5, 0b10));
    let strict =
        EnableParams { property: EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0, ..enable_params(2, 0b10, 0b10) };
    fixture.enable(&session, guid, &strict);
    assert!(provider.enabled(2, 0b10) && !provider.enabled(3, 0b10) && !provider.enabled(2, 0b1));
    assert!(!provider.enabled(1, 0));
    fixture.enable(&session, guid, &enable_params(2, 0b10, 0));
    assert!(provider.enabled(1, 0), "the property of the earlier enable stayed in force");
}

fn each_call_replaces_filters(fixture: &Fixture) {
    let other_process = Filter { kind: EVENT_FILTER_TYPE_PID, data: 1u32.to_le_bytes().to_vec() };
    let (session, provider, guid) = fixture
        .start_with_provider(&EnableParams { filters: vec![other_process], ..EnableParams::default() });
    assert!(!provider.enabled(LEVEL, KEYWORD), "a process that the filter does not list is enabled");
    fixture.enable(&session, guid, &EnableParams::default());
    assert!(provider.enabled(LEVEL, KEYWORD));
}

fn provider_is_enabled_before_it_registers(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    fixture.enable(&session, guid, &enable_params(4, 1, 0));
    let provider = Provider::register(guid, None).unwrap();
    provider.write(&event(1), &[b"the very first"]).unwrap();
    assert_eq!(fixture.stop_and_read(session).len(), 1);
}

fn an_enable_outlives_its_controller(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    let mut controller = fixture.connect();
    controller.enable(&session.id, guid, EnableCode::Enable, &EnableParams::default(), 0).unwrap();
    drop(controller);
    let provider = Provider::register(guid, None).unwrap();
    assert!(provider.enabled(LEVEL, KEYWORD));
}

fn an_enable_ends_with_its_session(fixture: &Fixture) {
    let (session, provider, guid) = fixture.start_with_provider(&EnableParams::default());
    let name = session.properties.config.name.clone();
    fixture.stop(session);
    until("the provider is disabled", || !provider.enabled(LEVEL, KEYWORD));
    let mut same_name_config = fixture.config();
    same_name_config.name = name;
    let _session = fixture.start(&same_name_config);
    let second = Provider::register(guid, None).unwrap();
    assert!(!second.enabled(LEVEL, KEYWORD), "a session of the same name inherited the enable");
}

/// The state of a callback that blocks until the rule releases it.
#[derive(Default)]
struct BlockingCallback {
    was_called: AtomicBool,
    may_return: AtomicBool,
    has_returned: AtomicBool,
}

impl BlockingCallback {
    fn has_returned(&self) -> bool {
        self.has_returned.load(Ordering::Acquire)
    }

    fn release(&self) {
        self.may_return.store(true, Ordering::Release);
    }

    fn wait_until_called(&self) {
        until("the callback is called", || self.was_called.load(Ordering::Acquire));
    }
}

/// Releases the callback at the end of the rule, even after a panic, because unregistering the
/// provider waits for the callback.
struct CallbackGuard(Arc<BlockingCallback>);

impl std::ops::Deref for CallbackGuard {
    type Target = BlockingCallback;

    fn deref(&self) -> &BlockingCallback {
        &self.0
    }
}

impl Drop for CallbackGuard {
    fn drop(&mut self) {
        self.release();
    }
}

fn register_blocking_provider(guid: Guid) -> (Provider, CallbackGuard) {
    let state = Arc::new(BlockingCallback::default());
    let in_callback = Arc::clone(&state);
    let callback = move |_: &traceweir::provider::EnableNotice<'_>| {
        in_callback.was_called.store(true, Ordering::Release);
        until("the callback may return", || in_callback.may_return.load(Ordering::Acquire));
        in_callback.has_returned.store(true, Ordering::Release);
    };
    (Provider::register(guid, Some(Box::new(callback))).unwrap(), CallbackGuard(state))
}

/// Enables a provider with this timeout. Returns the status of the call.
fn enable_within(fixture: &Fixture, session: &SessionRef, guid: Guid, timeout_ms: u32) -> Status {
    status(fixture.connect().enable(session, guid, EnableCode::Enable, &EnableParams::default(), timeout_ms))
}

fn timeout_0_does_not_wait(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    let (_provider, callback) = register_blocking_provider(guid);
    assert_eq!(enable_within(fixture, &session.id, guid, 0), SUCCESS);
    assert!(!callback.has_returned(), "the enable waited for the callback");
    callback.release();
    until("the callback has run", || callback.has_returned());
}

/// Checks that an enable with this timeout returns after the callback.
fn assert_enable_waits(fixture: &Fixture, timeout_ms: u32) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    let (_provider, callback) = register_blocking_provider(guid);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            callback.wait_until_called();
            // An enable that does not wait would return during this time.
            std::thread::sleep(Duration::from_millis(200));
            callback.release();
        });
        assert_eq!(enable_within(fixture, &session.id, guid, timeout_ms), SUCCESS);
        assert!(callback.has_returned());
    });
}

fn a_timeout_waits_for_callbacks(fixture: &Fixture) {
    assert_enable_waits(fixture, 120_000);
}

fn enable_that_timed_out_stays_in_force(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    let (provider, callback) = register_blocking_provider(guid);
    assert_eq!(enable_within(fixture, &session.id, guid, 100), TIMEOUT);
    assert!(!callback.has_returned());
    callback.release();
    until("the callback has run", || callback.has_returned());
    assert!(provider.enabled(LEVEL, KEYWORD));
    provider.write(&event(1), &[]).unwrap();
    assert_eq!(fixture.stop_and_read(session).len(), 1);
}

fn infinite_timeout_waits_for_callbacks(fixture: &Fixture) {
    assert_enable_waits(fixture, u32::MAX);
}

fn an_enable_needs_provider_and_session(fixture: &Fixture) {
    let session = fixture.start(&fixture.config());
    assert_eq!(enable_within(fixture, &session.id, Guid::NULL, 0), INVALID_PARAMETER);
    assert_eq!(enable_within(fixture, &SessionRef::Id(0), new_guid(), 0), INVALID_PARAMETER);
}

fn an_enable_needs_a_running_session(fixture: &Fixture) {
    let session = fixture.start(&fixture.config());
    let stopped = session.id.clone();
    fixture.stop(session);
    assert_eq!(enable_within(fixture, &stopped, new_guid(), 0), INSTANCE_NOT_FOUND);
}

fn capture_state_of_an_unknown_guid_fails(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    let mut controller = fixture.connect();
    let mut capture = || {
        status(controller.enable(&session.id, guid, EnableCode::CaptureState, &EnableParams::default(), 0))
    };
    assert_eq!(capture(), INVALID_FUNCTION);
    let provider = Provider::register(guid, None).unwrap();
    assert_eq!(capture(), SUCCESS, "the registered provider is unknown");
    drop(provider);
    until("the daemon has removed the registration", || capture() == INVALID_FUNCTION);
    fixture.enable(&session, guid, &EnableParams::default());
    assert_eq!(capture(), SUCCESS, "the enabled provider is unknown");
}

fn disabling_a_disabled_provider_succeeds(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    fixture.disable(&session, guid);
    fixture.enable(&session, guid, &EnableParams::default());
    fixture.disable(&session, guid);
    fixture.disable(&session, guid);
}

fn keyword_0_is_ignored(fixture: &Fixture) {
    let strict = EnableParams { property: EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0, ..enable_params(0, 0, 0) };
    let (session, provider, _guid) = fixture.start_with_provider(&strict);
    provider.write(&event_with(1, 4, 0), &[]).unwrap();
    provider.write(&event(2), &[]).unwrap();
    let ids: Vec<u16> = fixture.stop_and_read(session).iter().map(|seen| seen.descriptor.id).collect();
    assert_eq!(ids, [2]);
}

fn keyword_0_can_be_enabled(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams {
        property: EVENT_ENABLE_PROPERTY_ENABLE_KEYWORD_0,
        ..enable_params(4, 8, 0)
    });
    provider.write(&event_with(1, 4, 0), &[]).unwrap();
    assert_eq!(fixture.stop_and_read(session).len(), 1);
}

fn source_of_an_enable_reaches_the_callback(fixture: &Fixture) {
    let (guid, session, source) = (new_guid(), fixture.start(&fixture.config()), new_guid());
    let (early, late) = (CallbackLog::default(), CallbackLog::default());
    let _early = Provider::register(guid, early.callback()).unwrap();
    fixture.enable(&session, guid, &EnableParams { source, ..EnableParams::default() });
    let _late = Provider::register(guid, late.callback()).unwrap();
    assert_eq!((early.last().source, late.last().source), (source, Guid::NULL));
}

fn system_providers_need_a_system_logger(fixture: &Fixture) {
    let (session, private) =
        (fixture.start(&fixture.config()), PrivateSession::start(&fixture.config()).unwrap());
    for (name, guid) in SYSTEM_PROVIDERS {
        assert_eq!(enable_within(fixture, &session.id, guid, 0), INVALID_PARAMETER, "{name}");
        assert_eq!(status(private.enable(guid, &EnableParams::default())), INVALID_PARAMETER, "{name}");
    }
}
