//! Enabling providers: before and after they register, with and without waiting, by process.

use std::process::{Child, Command};

use traceweir_format::Guid;
use traceweir_format::spec::enable::{
    EVENT_FILTER_TYPE_EXECUTABLE_NAME as EXECUTABLE_NAME, EVENT_FILTER_TYPE_PID as PID,
};
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{EnableCode, EnableParams, Filter, Message, SessionRef};

use crate::util::*;

fn params_for_pids(pids: &[u32]) -> EnableParams {
    let data = pids.iter().flat_map(|pid| pid.to_le_bytes()).collect();
    EnableParams { level: 4, filters: vec![Filter { kind: PID, data }], ..EnableParams::default() }
}

/// Another process that is killed when dropped.
struct SleepingProcess(Child);

impl SleepingProcess {
    fn new() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }
}

impl Drop for SleepingProcess {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn registration_receives_earlier_enables() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    let source = Guid::from_u128(9);
    let params = EnableParams { level: 3, match_any: 1, match_all: 2, source, ..EnableParams::default() };
    let message = enable_message_with(session, PROVIDER, EnableCode::Enable, params.clone(), 5000);
    assert_eq!(controller.request(message), Message::Done, "there is no process to wait for");

    let mut provider = daemon.provider();
    provider.register(7, PROVIDER);
    provider.receive_region(session);
    let params = EnableParams { source: Guid::NULL, ..params };
    let expected =
        EnableMessage { order: 0, registrations: vec![7], session, code: EnableCode::Enable, params };
    assert_eq!(provider.receive_enable(), expected, "an earlier enable has no order and no source");
    assert_eq!(provider.receive(), Message::Registered { registration: 7 });

    provider.register(8, PROVIDER);
    assert_eq!(provider.receive_enable().registration(), 8, "no second region is sent");
    assert_eq!(provider.receive(), Message::Registered { registration: 8 });
    provider.register_unenabled(9, Guid::from_u128(1));
}

#[test]
fn provider_name_is_kept_with_its_enable_and_must_be_printable() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    let enable_by_name = |name: &str| {
        let (session, code) = (SessionRef::Id(session), EnableCode::Enable);
        let (params, name) = (Box::default(), name.to_owned());
        Message::EnableProvider { session, provider: PROVIDER, code, params, name, timeout_ms: 0 }
    };
    let mut name_after = |message: Message, status: Status| {
        assert_eq!(controller.status(message), status);
        let Message::Providers { providers, .. } =
            controller.request(Message::QueryProviders { after: None })
        else {
            panic!("the reply is not a provider list")
        };
        providers.first().map(|entry| entry.sessions[0].name.clone()).unwrap_or_default()
    };
    assert_eq!(
        name_after(enable_by_name("\u{1b}[2J"), INVALID_PARAMETER),
        "",
        "no terminal control sequences"
    );
    assert_eq!(name_after(enable_by_name(&"n".repeat(256)), INVALID_PARAMETER), "");
    assert_eq!(name_after(enable_by_name("My Provider"), SUCCESS), "My Provider");
    assert_eq!(name_after(enable_by_name(""), SUCCESS), "My Provider", "an empty name changes nothing");
    let long = "é".repeat(255);
    assert_eq!(name_after(enable_by_name(&long), SUCCESS), long);
}

#[test]
fn enable_waits_for_every_registration_in_every_process() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    let (mut first, mut second) = (daemon.provider(), daemon.provider());
    first.register_unenabled(1, PROVIDER);
    first.register_unenabled(2, PROVIDER);
    second.register_unenabled(1, PROVIDER);
    let source = Guid::from_u128(9);
    let params = EnableParams { source, ..EnableParams::default() };
    controller.send(&enable_message_with(session, PROVIDER, EnableCode::Enable, params, 600_000));
    first.receive_region(session);
    let enables = first.receive_enables();
    assert_eq!((enables.registrations, enables.params.source), (vec![1, 2], source));
    second.receive_region(session);
    let second_enable = second.receive_enable();
    second.acknowledge(second_enable.order);
    // The acknowledgement of an earlier order does not end the wait.
    first.acknowledge(enables.order - 1);
    controller.assert_quiet();
    first.acknowledge(enables.order);
    assert_eq!(controller.receive(), Message::Done);

    controller.send(&enable_message(session, PROVIDER, EnableCode::Disable, 600_000));
    let EnableMessage { order, code, .. } = first.receive_enables();
    assert_eq!(code, EnableCode::Disable);
    assert!(first.receive_close(session) > order);
    let order = second.receive_enable().order;
    second.receive_close(session);
    second.acknowledge(order);
    drop(first);
    assert_eq!(controller.receive(), Message::Done, "a disconnected process is not waited for");
}

#[test]
fn process_that_never_answers_times_out_and_is_enabled_anyway() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    assert_eq!(controller.status(enable_message(session, PROVIDER, EnableCode::Enable, 30)), TIMEOUT);
    provider.receive_region(session);
    let order = provider.receive_enable().order;
    provider.acknowledge(order);
    let Message::Providers { providers, .. } = controller.request(Message::QueryProviders { after: None })
    else {
        panic!("unexpected reply")
    };
    assert_eq!(providers[0].sessions.len(), 1);
    controller.assert_quiet();
}

#[test]
fn waiting_call_delays_no_other_client() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    controller.send(&enable_message(session, PROVIDER, EnableCode::Enable, u32::MAX));
    provider.receive_region(session);
    let order = provider.receive_enable().order;
    let mut other_controller = daemon.controller();
    other_controller.query(session);
    other_controller.enable(session, Guid::from_u128(2));
    controller.assert_quiet();
    provider.acknowledge(order);
    assert_eq!(controller.receive(), Message::Done);
}

#[test]
fn state_is_captured_from_enabled_registrations() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let (a, b) = (controller.start(real_time_config("a")).id, controller.start(real_time_config("b")).id);
    assert_eq!(
        controller.status(enable_message(a, PROVIDER, EnableCode::CaptureState, 0)),
        INVALID_FUNCTION,
        "unknown provider"
    );
    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    let params = EnableParams { level: 3, ..EnableParams::default() };
    controller.request(enable_message_with(a, PROVIDER, EnableCode::Enable, params, 0));
    provider.receive_region(a);
    provider.receive_enable();
    assert_eq!(controller.request(enable_message(b, PROVIDER, EnableCode::CaptureState, 0)), Message::Done);
    assert_eq!(controller.request(enable_message(a, PROVIDER, EnableCode::CaptureState, 0)), Message::Done);
    let capture = provider.receive_enable();
    assert_eq!((capture.session, capture.code, capture.params.level), (a, EnableCode::CaptureState, 3));
    provider.assert_quiet();
}

#[test]
fn invalid_parameters_are_refused_and_change_nothing() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    assert_eq!(
        controller.status(enable_message(session, Guid::NULL, EnableCode::Enable, 0)),
        INVALID_PARAMETER
    );
    let invalid_params = params_for_pids(&[]);
    assert_eq!(
        controller.status(enable_message_with(session, PROVIDER, EnableCode::Enable, invalid_params, 0)),
        INVALID_PARAMETER
    );
    let Message::Providers { providers, .. } = controller.request(Message::QueryProviders { after: None })
    else {
        panic!("unexpected reply")
    };
    assert_eq!(providers, []);
    controller.disable(session, PROVIDER);
}

#[test]
fn process_filter_enables_only_those_processes() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    let (own_pid, other_process) = (std::process::id(), SleepingProcess::new());
    let mut enable_only = |pids: &[u32]| {
        let message = enable_message_with(session, PROVIDER, EnableCode::Enable, params_for_pids(pids), 0);
        assert_eq!(controller.request(message), Message::Done);
    };

    enable_only(&[other_process.0.id()]);
    provider.assert_quiet();
    provider.register_unenabled(2, PROVIDER);

    enable_only(&[other_process.0.id(), own_pid]);
    provider.receive_region(session);
    let enables = provider.receive_enables();
    assert_eq!(
        (enables.registrations, enables.code, enables.params.level),
        (vec![1, 2], EnableCode::Enable, 4)
    );
    assert_eq!(enables.params.filters, [], "the daemon has applied the filter");
    provider.register(3, PROVIDER);
    assert_eq!(provider.receive_enable().registration(), 3, "the process ran when the call was made");
    assert_eq!(provider.receive(), Message::Registered { registration: 3 });

    enable_only(&[other_process.0.id()]);
    let enables = provider.receive_enables();
    assert_eq!(
        (enables.registrations, enables.code),
        (vec![1, 2, 3], EnableCode::Disable),
        "each call replaces the one before"
    );
    provider.receive_close(session);
}

fn failed_message(order: u32, registration: Option<u32>, session: u64) -> Message {
    Message::Failed { order, registration, session, status: NO_SYSTEM_RESOURCES.0, reason: "no room".into() }
}

#[test]
fn process_that_cannot_map_its_region_is_reported_and_retried() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    let (mut provider, mut other_provider) = (daemon.provider(), daemon.provider());
    provider.register_unenabled(1, PROVIDER);
    other_provider.register_unenabled(1, PROVIDER);
    for _ in 0..2 {
        controller.send(&enable_message(session, PROVIDER, EnableCode::Enable, 600_000));
        provider.receive_region(session);
        let order = provider.receive_enable().order;
        provider.send(&failed_message(0, None, session));
        let close = provider.receive_close(session);
        provider.send(&failed_message(order, None, session));
        provider.acknowledge(close);
        controller.assert_quiet();
        let mut envelope = other_provider.receive_envelope();
        if matches!(envelope.message, Message::Region { .. }) {
            envelope = other_provider.receive_envelope();
        }
        let Message::Enable { order, .. } = envelope.message else { panic!("{:?}", envelope.message) };
        other_provider.acknowledge(order);
        let answer = controller.receive();
        assert_eq!(status(&answer), NO_SYSTEM_RESOURCES);
        let Message::Refused { reason, .. } = answer else { panic!("not refused") };
        assert!(reason.contains("no room") && reason.contains("process"), "{reason}");
    }
    until("the provider's region is detached", || controller.query(session).processes == 1);
    // A call with timeout 0 gets no error.
    controller.enable(session, PROVIDER);
    provider.receive_region(session);
    provider.receive_enable();
}

#[test]
fn failed_registration_does_not_affect_others_of_its_process() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    provider.register_unenabled(2, PROVIDER);
    controller.send(&enable_message(session, PROVIDER, EnableCode::Enable, 600_000));
    provider.receive_region(session);
    let Message::Enable { order, registrations, .. } = provider.receive() else { panic!("no enable") };
    assert_eq!(registrations, [1, 2]);
    provider.send(&failed_message(order, Some(1), session));
    provider.acknowledge(order);
    assert_eq!(status(&controller.receive()), NO_SYSTEM_RESOURCES);
    until("the region stays", || controller.query(session).processes == 1);
    // Only the second registration is enabled, and gets the disable.
    controller.send(&enable_message(session, PROVIDER, EnableCode::Disable, 0));
    let enable = provider.receive_enable();
    assert_eq!((enable.registration(), enable.code), (2, EnableCode::Disable));
    provider.receive_close(session);
}

#[test]
fn unrequested_failures_do_nothing() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    controller.enable(session, PROVIDER);
    provider.receive_region(session);
    provider.receive_enable();
    for order in [1, 77, u32::MAX] {
        provider.send(&failed_message(order, None, session));
    }
    provider.send(&failed_message(0, Some(9), session));
    provider.send(&failed_message(0, None, 12345));
    provider.register(2, PROVIDER);
    assert_eq!(provider.receive_enable().registration(), 2, "the connection still works");
    assert_eq!(provider.receive(), Message::Registered { registration: 2 });
}

#[test]
fn program_name_filter_applies_now_and_later() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().to_uppercase();
    let by_name = |names: &str| EnableParams {
        filters: vec![Filter {
            kind: EXECUTABLE_NAME,
            data: traceweir_format::filter::encode::name_list(&[names]),
        }],
        ..EnableParams::default()
    };
    let mut enable = |names: &str| {
        controller.request(enable_message_with(session, PROVIDER, EnableCode::Enable, by_name(names), 0))
    };
    let mut early = daemon.provider();
    early.register_unenabled(1, PROVIDER);
    assert_eq!(enable(&format!("other;{program}")), Message::Done);
    early.receive_region(session);
    assert_eq!(early.receive_enable().params, EnableParams::default(), "the daemon applies the filter");
    let mut late = daemon.provider();
    late.register(2, PROVIDER);
    late.receive_region(session);
    late.receive_enable();
    assert_eq!(late.receive(), Message::Registered { registration: 2 });
    // Another scope: processes outside of it are disabled, now and later.
    assert_eq!(enable("other"), Message::Done);
    for client in [&mut early, &mut late] {
        assert_eq!(client.receive_enable().code, EnableCode::Disable);
        let order = client.receive_close(session);
        client.acknowledge(order);
    }
    daemon.provider().register_unenabled(3, PROVIDER);
    for (names, is_valid) in [("", false), (";", false), (&*"n".repeat(513), false), ("n", true)] {
        let message = enable_message_with(session, PROVIDER, EnableCode::Enable, by_name(names), 0);
        let expected = if is_valid { SUCCESS } else { INVALID_PARAMETER };
        assert_eq!(controller.status(message), expected, "{names:?}");
    }
}

#[test]
fn large_filters_are_sent_once_per_process() {
    const REGISTRATION_COUNT: u32 = 1024;
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    let mut provider = daemon.provider();
    for number in 1..=REGISTRATION_COUNT {
        provider.register_unenabled(number, PROVIDER);
    }
    let filters = (1..=8).map(|kind| Filter { kind, data: vec![7; 1024] }).collect();
    let params = EnableParams { level: 4, filters, ..EnableParams::default() };
    // Several calls in a row while the provider reads nothing: the queue stays small.
    for _ in 0..8 {
        let call = enable_message_with(session, PROVIDER, EnableCode::Enable, params.clone(), 0);
        assert_eq!(controller.request(call), Message::Done);
    }
    controller.send(&enable_message_with(session, PROVIDER, EnableCode::Enable, params.clone(), 600_000));
    provider.receive_region(session);
    for _ in 0..=8 {
        let Message::Enable { order, registrations, params: received, .. } = provider.receive() else {
            panic!("unexpected reply")
        };
        assert_eq!((registrations.len(), *received == params), (REGISTRATION_COUNT as usize, true));
        provider.acknowledge(order);
    }
    assert_eq!(controller.receive(), Message::Done);
    controller.send(&enable_message(session, PROVIDER, EnableCode::Disable, 600_000));
    let Message::Enable { order, registrations, code: EnableCode::Disable, .. } = provider.receive() else {
        panic!("unexpected reply")
    };
    assert_eq!(registrations, (1..=REGISTRATION_COUNT).collect::<Vec<_>>());
    let close = provider.receive_close(session);
    provider.acknowledge(order);
    provider.acknowledge(close);
    assert_eq!(controller.receive(), Message::Done);
}
