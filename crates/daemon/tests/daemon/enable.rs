//! Enabling providers: before and after they register, with and without waiting, by process.

use std::process::{Child, Command};

use traceweir_format::Guid;
use traceweir_format::spec::enable::{
    EVENT_FILTER_TYPE_EXECUTABLE_NAME as EXECUTABLE_NAME, EVENT_FILTER_TYPE_PID as PID,
};
use traceweir_transport::message::{EnableCode, EnableParams, Filter, Message, SessionRef};

use crate::util::*;

fn pids(pids: &[u32]) -> EnableParams {
    let data = pids.iter().flat_map(|pid| pid.to_le_bytes()).collect();
    EnableParams { level: 4, filters: vec![Filter { kind: PID, data }], ..EnableParams::default() }
}

/// Another process, for as long as it is needed.
struct Other(Child);

impl Other {
    fn new() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_registration_hears_what_was_enabled_ahead_of_it() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    let source = Guid::from_u128(9);
    let params = EnableParams { level: 3, match_any: 1, match_all: 2, source, ..EnableParams::default() };
    let message = enable_with(session, PROVIDER, EnableCode::Enable, params.clone(), 5000);
    assert_eq!(controller.ask(message), Message::Done, "there is nobody to wait for");

    let mut provider = daemon.provider();
    provider.register(7, PROVIDER);
    provider.hear_region(session);
    let late = EnableParams { source: Guid::NULL, ..params };
    assert_eq!(provider.hear_enable(), (0, 7, session, EnableCode::Enable, late), "without order and source");
    assert_eq!(provider.hear(), Message::Registered { registration: 7 });

    provider.register(8, PROVIDER);
    assert_eq!(provider.hear_enable().1, 8, "the region is there already");
    assert_eq!(provider.hear(), Message::Registered { registration: 8 });
    provider.register_quietly(9, Guid::from_u128(1));
}

#[test]
fn what_a_provider_is_called_is_remembered_with_its_enable_and_kept_fit_to_print() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    let called = |name: &str| {
        let (session, code) = (SessionRef::Id(session), EnableCode::Enable);
        let (params, name) = (Box::default(), name.to_owned());
        Message::EnableProvider { session, provider: PROVIDER, code, params, name, timeout_ms: 0 }
    };
    let mut name_of = |message: Message, status: u32| {
        assert_eq!(controller.status(message), status);
        let Message::Providers { providers, .. } = controller.ask(Message::QueryProviders { after: None })
        else {
            panic!("another answer")
        };
        providers.first().map(|it| it.sessions[0].name.clone()).unwrap_or_default()
    };
    assert_eq!(name_of(called("\u{1b}[2J"), 87), "", "nothing that a terminal obeys");
    assert_eq!(name_of(called(&"n".repeat(256)), 87), "");
    assert_eq!(name_of(called("My Provider"), 0), "My Provider");
    assert_eq!(name_of(called(""), 0), "My Provider", "who gives none changes none");
    let long = "é".repeat(255);
    assert_eq!(name_of(called(&long), 0), long);
}

#[test]
fn every_registration_in_every_process_is_told_and_waited_for() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    let (mut one, mut two) = (daemon.provider(), daemon.provider());
    one.register_quietly(1, PROVIDER);
    one.register_quietly(2, PROVIDER);
    two.register_quietly(1, PROVIDER);
    let source = Guid::from_u128(9);
    let params = EnableParams { source, ..EnableParams::default() };
    controller.say(&enable_with(session, PROVIDER, EnableCode::Enable, params, 600_000));
    one.hear_region(session);
    let told = one.hear_enables();
    assert_eq!((told.1, told.4.source), (vec![1, 2], source));
    two.hear_region(session);
    let other = two.hear_enable();
    two.acknowledge(other.0);
    one.acknowledge(told.0 - 1);
    controller.assert_quiet();
    one.acknowledge(told.0);
    assert_eq!(controller.hear(), Message::Done);

    controller.say(&enable(session, PROVIDER, EnableCode::Disable, 600_000));
    let (order, _, _, code, _) = one.hear_enables();
    assert_eq!(code, EnableCode::Disable);
    assert!(one.hear_close(session) > order);
    let order = two.hear_enable().0;
    two.hear_close(session);
    two.acknowledge(order);
    drop(one);
    assert_eq!(controller.hear(), Message::Done, "who is gone is not waited for");
}

#[test]
fn a_process_that_never_answers_is_late_and_enabled_nonetheless() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    let mut provider = daemon.provider();
    provider.register_quietly(1, PROVIDER);
    assert_eq!(controller.status(enable(session, PROVIDER, EnableCode::Enable, 30)), 1460);
    provider.hear_region(session);
    let order = provider.hear_enable().0;
    provider.acknowledge(order);
    let Message::Providers { providers, .. } = controller.ask(Message::QueryProviders { after: None }) else {
        panic!()
    };
    assert_eq!(providers[0].sessions.len(), 1);
    controller.assert_quiet();
}

#[test]
fn nobody_else_waits_for_whoever_waits() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    let mut provider = daemon.provider();
    provider.register_quietly(1, PROVIDER);
    controller.say(&enable(session, PROVIDER, EnableCode::Enable, u32::MAX));
    provider.hear_region(session);
    let order = provider.hear_enable().0;
    let mut other = daemon.controller();
    other.query(session);
    other.enable(session, Guid::from_u128(2));
    controller.assert_quiet();
    provider.acknowledge(order);
    assert_eq!(controller.hear(), Message::Done);
}

#[test]
fn the_ninth_session_of_a_provider_is_refused() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let ids: Vec<u64> = (0..9).map(|i| controller.start(live(&i.to_string())).id).collect();
    for id in &ids[..8] {
        controller.enable(*id, PROVIDER);
    }
    assert_eq!(controller.status(enable(ids[8], PROVIDER, EnableCode::Enable, 0)), 1450);
    controller.enable(ids[0], PROVIDER);
    controller.stop(ids[3]);
    controller.enable(ids[8], PROVIDER);
}

#[test]
fn state_is_captured_from_those_the_session_has_enabled() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let (a, b) = (controller.start(live("a")).id, controller.start(live("b")).id);
    assert_eq!(controller.status(enable(a, PROVIDER, EnableCode::CaptureState, 0)), 1, "nobody knows it");
    let mut provider = daemon.provider();
    provider.register_quietly(1, PROVIDER);
    let params = EnableParams { level: 3, ..EnableParams::default() };
    controller.ask(enable_with(a, PROVIDER, EnableCode::Enable, params, 0));
    provider.hear_region(a);
    provider.hear_enable();
    assert_eq!(controller.ask(enable(b, PROVIDER, EnableCode::CaptureState, 0)), Message::Done);
    assert_eq!(controller.ask(enable(a, PROVIDER, EnableCode::CaptureState, 0)), Message::Done);
    let asked = provider.hear_enable();
    assert_eq!((asked.2, asked.3, asked.4.level), (a, EnableCode::CaptureState, 3));
    provider.assert_quiet();
}

#[test]
fn wrong_parameters_are_refused_and_change_nothing() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    assert_eq!(controller.status(enable(session, Guid::NULL, EnableCode::Enable, 0)), 87);
    let wrong = pids(&[]);
    assert_eq!(controller.status(enable_with(session, PROVIDER, EnableCode::Enable, wrong, 0)), 87);
    let Message::Providers { providers, .. } = controller.ask(Message::QueryProviders { after: None }) else {
        panic!()
    };
    assert_eq!(providers, []);
    controller.disable(session, PROVIDER);
}

#[test]
fn a_process_filter_enables_those_processes_and_no_others() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    let mut provider = daemon.provider();
    provider.register_quietly(1, PROVIDER);
    let (own, other) = (std::process::id(), Other::new());
    let mut filter = |pids_wanted: &[u32]| {
        let message = enable_with(session, PROVIDER, EnableCode::Enable, pids(pids_wanted), 0);
        assert_eq!(controller.ask(message), Message::Done);
    };

    filter(&[other.0.id()]);
    provider.assert_quiet();
    provider.register_quietly(2, PROVIDER);

    filter(&[other.0.id(), own]);
    provider.hear_region(session);
    let told = provider.hear_enables();
    assert_eq!((told.1, told.3, told.4.level), (vec![1, 2], EnableCode::Enable, 4));
    assert_eq!(told.4.filters, [], "carried out already");
    provider.register(3, PROVIDER);
    assert_eq!(provider.hear_enable().1, 3, "the process was there when the call was made");
    assert_eq!(provider.hear(), Message::Registered { registration: 3 });

    filter(&[other.0.id()]);
    let told = provider.hear_enables();
    assert_eq!((told.1, told.3), (vec![1, 2, 3], EnableCode::Disable), "each call replaces the one before");
    provider.hear_close(session);
}

fn failed(order: u32, registration: Option<u32>, session: u64) -> Message {
    Message::Failed { order, registration, session, status: 1450, reason: "no room".into() }
}

#[test]
fn a_process_that_cannot_map_its_region_is_told_of_and_tried_anew() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    let (mut provider, mut other) = (daemon.provider(), daemon.provider());
    provider.register_quietly(1, PROVIDER);
    other.register_quietly(1, PROVIDER);
    for _ in 0..2 {
        controller.say(&enable(session, PROVIDER, EnableCode::Enable, 600_000));
        provider.hear_region(session);
        let order = provider.hear_enable().0;
        provider.say(&failed(0, None, session));
        let close = provider.hear_close(session);
        provider.say(&failed(order, None, session));
        provider.acknowledge(close);
        controller.assert_quiet();
        let mut heard = other.next();
        if matches!(heard.message, Message::Region { .. }) {
            heard = other.next();
        }
        let Message::Enable { order, .. } = heard.message else { panic!("{:?}", heard.message) };
        other.acknowledge(order);
        let Message::Refused { status: 1450, reason } = controller.hear() else { panic!("not refused") };
        assert!(reason.contains("no room") && reason.contains("process"), "{reason}");
    }
    until("its region is given up", || controller.query(session).processes == 1);
    // One that does not wait is not told.
    controller.enable(session, PROVIDER);
    provider.hear_region(session);
    assert_eq!(provider.hear_enable().0, 0);
}

#[test]
fn a_registration_that_cannot_be_enabled_leaves_the_others_of_its_process_alone() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    let mut provider = daemon.provider();
    provider.register_quietly(1, PROVIDER);
    provider.register_quietly(2, PROVIDER);
    controller.say(&enable(session, PROVIDER, EnableCode::Enable, 600_000));
    provider.hear_region(session);
    let Message::Enable { order, registrations, .. } = provider.hear() else { panic!("no enable") };
    assert_eq!(registrations, [1, 2]);
    provider.say(&failed(order, Some(1), session));
    provider.acknowledge(order);
    assert_eq!(status(&controller.hear()), 1450);
    until("the region stays", || controller.query(session).processes == 1);
    // Only the second is enabled, and told of the end.
    controller.say(&enable(session, PROVIDER, EnableCode::Disable, 0));
    let told = provider.hear_enable();
    assert_eq!((told.1, told.3), (2, EnableCode::Disable));
    provider.hear_close(session);
}

#[test]
fn failures_that_nobody_asked_about_do_nothing() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    let mut provider = daemon.provider();
    provider.register_quietly(1, PROVIDER);
    controller.enable(session, PROVIDER);
    provider.hear_region(session);
    provider.hear_enable();
    for order in [1, 77, u32::MAX] {
        provider.say(&failed(order, None, session));
    }
    provider.say(&failed(0, Some(9), session));
    provider.say(&failed(0, None, 12345));
    provider.register(2, PROVIDER);
    assert_eq!(provider.hear_enable().1, 2, "neither closed nor refused");
    assert_eq!(provider.hear(), Message::Registered { registration: 2 });
}

#[test]
fn programs_are_meant_by_name_now_and_later() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().to_uppercase();
    let by_name = |names: &str| EnableParams {
        filters: vec![Filter {
            kind: EXECUTABLE_NAME,
            data: traceweir_format::filter::encode::name_list(&[names]),
        }],
        ..EnableParams::default()
    };
    let mut enable =
        |names: &str| controller.ask(enable_with(session, PROVIDER, EnableCode::Enable, by_name(names), 0));
    let mut early = daemon.provider();
    early.register_quietly(1, PROVIDER);
    assert_eq!(enable(&format!("other;{program}")), Message::Done);
    early.hear_region(session);
    assert_eq!(early.hear_enable().4, EnableParams::default(), "the scope does not travel on");
    let mut late = daemon.provider();
    late.register(2, PROVIDER);
    late.hear_region(session);
    late.hear_enable();
    assert_eq!(late.hear(), Message::Registered { registration: 2 });
    // Another scope: those outside of it are off, now and later.
    assert_eq!(enable("other"), Message::Done);
    for client in [&mut early, &mut late] {
        assert_eq!(client.hear_enable().3, EnableCode::Disable);
        let order = client.hear_close(session);
        client.acknowledge(order);
    }
    daemon.provider().register_quietly(3, PROVIDER);
    for (names, status) in [("", 87), (";", 87), (&*"n".repeat(513), 87), ("n", 0)] {
        let message = enable_with(session, PROVIDER, EnableCode::Enable, by_name(names), 0);
        assert_eq!(controller.status(message), status, "{names:?}");
    }
}

#[test]
fn large_filters_are_said_once_to_a_process_with_many_registrations() {
    const MANY: u32 = 1024;
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    let mut provider = daemon.provider();
    for number in 1..=MANY {
        provider.register_quietly(number, PROVIDER);
    }
    let filters = (1..=8).map(|kind| Filter { kind, data: vec![7; 1024] }).collect();
    let params = EnableParams { level: 4, filters, ..EnableParams::default() };
    // Several times in a row, and nobody reads: what is queued stays small.
    for _ in 0..20 {
        let call = enable_with(session, PROVIDER, EnableCode::Enable, params.clone(), 0);
        assert_eq!(controller.ask(call), Message::Done);
    }
    controller.say(&enable_with(session, PROVIDER, EnableCode::Enable, params.clone(), 600_000));
    provider.hear_region(session);
    for round in 0..=20 {
        let Message::Enable { order, registrations, params: told, .. } = provider.hear() else { panic!() };
        assert_eq!((registrations.len(), *told == params), (MANY as usize, true));
        assert_eq!(order != 0, round == 20);
        if order != 0 {
            provider.acknowledge(order);
        }
    }
    assert_eq!(controller.hear(), Message::Done);
    controller.say(&enable(session, PROVIDER, EnableCode::Disable, 600_000));
    let Message::Enable { order, registrations, code: EnableCode::Disable, .. } = provider.hear() else {
        panic!()
    };
    assert_eq!(registrations, (1..=MANY).collect::<Vec<_>>());
    let close = provider.hear_close(session);
    provider.acknowledge(order);
    provider.acknowledge(close);
    assert_eq!(controller.hear(), Message::Done);
}
