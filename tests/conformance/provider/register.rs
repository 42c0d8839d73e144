//! Rules for EventRegister and EventUnregister. `rule.rs` explains the rows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use traceweir::controller::{Controller, EnableParams};
use traceweir::provider::Handle;
use traceweir::{Guid, Provider};

use crate::helpers::{
    CallbackLog, Fixture, INVALID_HANDLE, KEYWORD, LEVEL, enable_params, event, new_guid, until,
};
use crate::processes::{Daemon, OtherProcess};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("provider 2", D, "a registration has a non-zero handle", handles_are_not_zero),
    rule!("provider 2", D, "the same GUID may be registered many times; the registrations are independent",
        guid_can_be_registered_many_times),
    rule!("provider 2", P, "a provider that is enabled already: the callback runs before the registration returns, on the calling thread",
        callback_runs_before_registration_returns),
    rule!("provider 2", D, "the source of the callback during the registration is zero", the_first_callback_has_no_source),
    rule!("provider 2", O, "unregistering 0 or a stale handle → 6, without side effect",
        unregistering_a_stale_handle_fails),
    rule!("provider 2", P, "unregistering waits for a running callback",
        unregistering_waits_for_the_callback),
    rule!("provider 2", P, "unregistering from inside the callback does not wait",
        unregistering_in_the_callback_does_not_wait),
    rule!("provider 2", O, "writing with a stale handle → 6", stale_handles_do_not_write),
    rule!("provider 2", D, "a stale handle is not enabled", stale_handles_are_not_enabled),
    rule!("provider 2", D, "registrations are listed while they exist", registrations_are_listed),
    rule!("provider 2", P, "without a daemon a registration succeeds; it is announced when a daemon appears",
        later_daemon_learns_of_registrations),
];

fn handles_are_not_zero(_fixture: &Fixture) {
    let provider = Provider::register(new_guid(), None).unwrap();
    assert_ne!(provider.handle().to_raw(), 0);
    assert_eq!(Handle::from_raw(provider.handle().to_raw()), Some(provider.handle()));
}

fn guid_can_be_registered_many_times(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    let calls: Vec<CallbackLog> = (0..5).map(|_| CallbackLog::default()).collect();
    let mut providers: Vec<_> =
        calls.iter().map(|calls| Provider::register(guid, calls.callback()).unwrap()).collect();
    fixture.enable(&session, guid, &EnableParams::default());
    assert!(calls.iter().all(|calls| calls.all().len() == 1), "a callback was not called exactly once");
    for (id, provider) in (1..).zip(&providers) {
        provider.write(&event(id), &[]).unwrap();
    }
    providers.pop();
    assert!(
        providers.iter().all(|provider| provider.enabled(LEVEL, KEYWORD)),
        "another registration was disabled"
    );
    assert_eq!(fixture.stop_and_read(session).len(), 5);
}

fn callback_runs_before_registration_returns(fixture: &Fixture) {
    let (calls, guid, session) = (CallbackLog::default(), new_guid(), fixture.start(&fixture.config()));
    fixture.enable(&session, guid, &enable_params(3, 6, 2));
    let _provider = Provider::register(guid, calls.callback()).unwrap();
    let calls = calls.all();
    assert_eq!(calls.len(), 1);
    assert_eq!((calls[0].code_level_masks(), calls[0].thread), ((1, 3, 6, 2), std::thread::current().id()));
}

fn the_first_callback_has_no_source(fixture: &Fixture) {
    let (calls, guid, session) = (CallbackLog::default(), new_guid(), fixture.start(&fixture.config()));
    fixture.enable(&session, guid, &EnableParams { source: Guid::from_u128(77), ..EnableParams::default() });
    let _provider = Provider::register(guid, calls.callback()).unwrap();
    assert_eq!(calls.last().source, Guid::NULL);
}

fn unregistering_a_stale_handle_fails(fixture: &Fixture) {
    let (session, provider, guid) = fixture.start_with_provider(&EnableParams::default());
    assert_eq!(Handle::from_raw(0), None);
    let handle = Provider::register(guid, None).unwrap().into_handle();
    assert!(handle.unregister().is_ok());
    assert_eq!(handle.unregister().unwrap_err().status(), INVALID_HANDLE);
    assert_eq!(Handle::from_raw(handle.to_raw()), None);
    // A new registration may reuse the slot of the old one; the stale handle must not affect it.
    let new_providers: Vec<_> = (0..8).map(|_| Provider::register(guid, None).unwrap()).collect();
    assert_eq!(handle.unregister().unwrap_err().status(), INVALID_HANDLE);
    assert!(
        new_providers.iter().all(|provider| provider.handle().is_current()),
        "the stale handle unregistered a new provider"
    );
    provider.write(&event(1), &[]).unwrap();
    assert_eq!(fixture.stop_and_read(session).len(), 1);
}

fn unregistering_waits_for_the_callback(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    let (callback_started, callback_ended) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (started, ended) = (Arc::clone(&callback_started), Arc::clone(&callback_ended));
    let callback = move |_: &traceweir::provider::EnableNotice<'_>| {
        started.store(true, Ordering::Release);
        std::thread::sleep(Duration::from_millis(300));
        ended.store(true, Ordering::Release);
    };
    let provider = Provider::register(guid, Some(Box::new(callback))).unwrap();
    let _ = fixture.connect().enable(
        &session.id,
        guid,
        traceweir::controller::EnableCode::Enable,
        &EnableParams::default(),
        0,
    );
    until("the callback has started", || callback_started.load(Ordering::Acquire));
    drop(provider);
    assert!(callback_ended.load(Ordering::Acquire), "the callback was still running");
}

fn unregistering_in_the_callback_does_not_wait(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    let provider_slot: Arc<Mutex<Option<Provider>>> = Arc::default();
    let slot_in_callback = Arc::clone(&provider_slot);
    let callback = move |_: &traceweir::provider::EnableNotice<'_>| {
        let provider = slot_in_callback.lock().unwrap().take();
        drop(provider);
    };
    let provider = Provider::register(guid, Some(Box::new(callback))).unwrap();
    let handle = provider.handle();
    *provider_slot.lock().unwrap() = Some(provider);
    fixture.enable(&session, guid, &EnableParams::default());
    assert!(!handle.is_current(), "the provider is still registered");
}

fn stale_handles_do_not_write(fixture: &Fixture) {
    let (session, provider, guid) = fixture.start_with_provider(&EnableParams::default());
    let handle = Provider::register(guid, None).unwrap().into_handle();
    let write = || {
        let written = handle.provider().and_then(|provider| provider.write(&event(1), &[]));
        written.map_err(|error| error.status())
    };
    assert_eq!(write(), Ok(()));
    handle.unregister().unwrap();
    assert_eq!(write(), Err(INVALID_HANDLE));
    drop(provider);
    assert_eq!(fixture.stop_and_read(session).len(), 1);
}

fn stale_handles_are_not_enabled(fixture: &Fixture) {
    let (_session, _provider, guid) = fixture.start_with_provider(&EnableParams::default());
    let handle = Provider::register(guid, None).unwrap().into_handle();
    let is_enabled = || handle.provider().is_ok_and(|provider| provider.enabled(LEVEL, KEYWORD));
    assert!(is_enabled());
    handle.unregister().unwrap();
    assert!(!is_enabled());
}

fn registrations_are_listed(fixture: &Fixture) {
    let guid = new_guid();
    let find_entry =
        || fixture.connect().provider_entries().unwrap().into_iter().find(|entry| entry.provider == guid);
    assert_eq!(find_entry(), None);
    let provider = Provider::register(guid, None).unwrap();
    assert_eq!(find_entry().unwrap().pids, [std::process::id()]);
    drop(provider);
    until("the registration has ended", || find_entry().is_none());
}

fn later_daemon_learns_of_registrations(fixture: &Fixture) {
    let (guid, folder) = (new_guid(), fixture.folder().join("a daemon that comes later"));
    let other = OtherProcess::start(guid, Some(&folder));
    let _daemon = Daemon::start(&folder);
    until("the daemon knows the registration", || {
        let Ok(Some(mut controller)) = Controller::find_at(&folder) else { return false };
        controller
            .provider_entries()
            .unwrap()
            .iter()
            .any(|entry| entry.provider == guid && entry.pids == [other.id()])
    });
}
