//! Processes and their regions.

use traceweir_format::Guid;
use traceweir_format::spec::session::EVENT_TRACE_INDEPENDENT_SESSION_MODE;
use traceweir_transport::message::{
    Control, EnableCode, EnableParams, Message, PROPERTY_INDEPENDENT, SessionConfig, SessionRef,
};

use crate::util::*;

/// A session with a file that has the provider enabled.
fn session(daemon: &Daemon, controller: &mut Client, name: &str) -> u64 {
    let id = controller.start(to_file(name, &daemon.path(&format!("{name}.etl")))).id;
    controller.enable(id, PROVIDER);
    id
}

#[test]
fn events_of_a_process_reach_the_file() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let id = session(&daemon, &mut controller, "s");
    let mut provider = daemon.provider();
    provider.register(1, PROVIDER);
    let region = provider.hear_region(id);
    provider.hear_enable();
    assert_eq!(provider.hear(), Message::Registered { registration: 1 });
    until("the process counts", || controller.query(id).processes == 1);
    assert_eq!(write_events(region, 1000), 0);
    let end = controller.stop(id);
    assert_eq!((end.events, end.events_lost), (1000, 0));
    assert_eq!(finished_events(&daemon.path("s.etl")), 1000);
}

#[test]
fn what_a_vanished_process_wrote_is_collected() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let (a, b) = (session(&daemon, &mut controller, "a"), session(&daemon, &mut controller, "b"));
    let mut provider = daemon.provider();
    provider.register(1, PROVIDER);
    let first = provider.hear_region(a);
    provider.hear_enable();
    let second = provider.hear_region(b);
    provider.hear_enable();
    assert_eq!(write_events(first, 10) + write_events(second, 20), 0);
    drop(provider);
    until("the process is forgotten", || controller.query(a).processes + controller.query(b).processes == 0);
    let Message::Providers { providers, .. } = controller.ask(Message::QueryProviders { after: None }) else {
        panic!()
    };
    assert_eq!(providers[0].pids, [], "only the enables are left");
    assert_eq!((controller.stop(a).events, controller.stop(b).events), (10, 20));
    assert_eq!(finished_events(&daemon.path("a.etl")), 10);
    assert_eq!(finished_events(&daemon.path("b.etl")), 20);
}

#[test]
fn a_region_stays_until_the_last_registration_is_gone() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let id = session(&daemon, &mut controller, "s");
    controller.enable(id, Guid::from_u128(2));
    let mut provider = daemon.provider();
    provider.register(1, PROVIDER);
    let region = provider.hear_region(id);
    provider.hear_enable();
    provider.hear();
    until("the process counts", || controller.query(id).processes == 1);
    provider.register(2, Guid::from_u128(2));
    provider.hear_enable();
    provider.hear();
    assert_eq!(provider.ask(Message::Unregister { registration: 1 }), Message::Done);
    assert_eq!(write_events(region, 10), 0);
    controller.disable(id, Guid::from_u128(2));
    assert_eq!(provider.hear_enable().3, EnableCode::Disable);
    let order = provider.hear_close(id);
    assert_eq!(controller.query(id).processes, 1, "until it says so");
    provider.acknowledge(order);
    until("the region is given up", || controller.query(id).processes == 0);
    assert_eq!(controller.stop(id).events, 10);
}

#[test]
fn a_region_that_is_being_closed_does_not_stand_in_for_a_new_one() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let id = session(&daemon, &mut controller, "s");
    let mut provider = daemon.provider();
    provider.register(1, PROVIDER);
    let old = provider.hear_region(id);
    provider.hear_enable();
    provider.hear();
    provider.say(&Message::Unregister { registration: 1 });
    let order = provider.hear_close(id);
    provider.hear();
    provider.register(2, PROVIDER);
    let new = provider.hear_region(id);
    provider.hear_enable();
    provider.hear();
    assert_eq!(write_events(old, 10) + write_events(new, 20), 0);
    provider.acknowledge(order);
    until("the old one is given up", || controller.query(id).processes == 1);
    let request = controller.say(&Message::Control { session: SessionRef::Id(id), control: Control::Stop });
    let order = provider.hear_close(id);
    provider.acknowledge(order);
    let answer = controller.next();
    assert_eq!(answer.request, request);
    assert_eq!(properties(answer.message).events, 30);
}

#[test]
fn a_process_that_never_closes_a_region_keeps_a_few_of_them_at_most() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let id = session(&daemon, &mut controller, "s");
    let mut provider = daemon.provider();
    for registration in 0..100 {
        provider.register(registration, PROVIDER);
        provider.hear_region(id);
        provider.hear_enable();
        provider.hear();
        provider.say(&Message::Unregister { registration });
        provider.hear_close(id);
        provider.hear();
    }
    until("regions are given up", || controller.query(id).processes <= 17);
}

#[test]
fn the_1025th_registration_is_refused() {
    let daemon = Daemon::start();
    let mut provider = daemon.provider();
    for registration in 0..1024 {
        provider.register_quietly(registration, Guid::from_u128(u128::from(registration) + 1));
    }
    let more =
        Message::Register { registration: 5000, provider: PROVIDER, traits: Vec::new(), classic: false };
    assert_eq!(provider.status(more), 1450);
    assert_eq!(provider.ask(Message::Unregister { registration: 0 }), Message::Done);
    provider.register_quietly(5000, PROVIDER);
}

#[test]
fn a_process_hears_which_sessions_are_independent_from_the_daemon_alone() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let mut provider = daemon.provider();
    provider.register_quietly(1, PROVIDER);
    for (name, mode) in [("beside", 0), ("independent", EVENT_TRACE_INDEPENDENT_SESSION_MODE)] {
        let config = live(name);
        let log_file_mode = config.log_file_mode | mode;
        let session = controller.start(SessionConfig { log_file_mode, ..config }).id;
        for property in [0x1, 0x1 | PROPERTY_INDEPENDENT] {
            let params = EnableParams { property, ..EnableParams::default() };
            controller.ask(enable_with(session, PROVIDER, EnableCode::Enable, params, 0));
        }
        provider.hear_region(session);
        let wanted = if mode == 0 { 0x1 } else { 0x1 | PROPERTY_INDEPENDENT };
        for _ in 0..2 {
            assert_eq!(provider.hear_enable().4.property, wanted, "{name}");
        }
    }
}
