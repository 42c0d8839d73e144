//! Processes and their regions.

use traceweir_format::Guid;
use traceweir_format::spec::session::EVENT_TRACE_INDEPENDENT_SESSION_MODE;
use traceweir_transport::message::{
    Control, EnableCode, EnableParams, Message, PROPERTY_INDEPENDENT, SessionConfig, SessionRef,
};

use crate::util::*;

/// Starts a session that writes to a file, and enables the provider for it.
fn start_enabled_session(daemon: &Daemon, controller: &mut Client, name: &str) -> u64 {
    let id = controller.start(file_config(name, &daemon.path(&format!("{name}.etl")))).id;
    controller.enable(id, PROVIDER);
    id
}

#[test]
fn events_of_a_process_reach_the_file() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let id = start_enabled_session(&daemon, &mut controller, "s");
    let mut provider = daemon.provider();
    provider.register(1, PROVIDER);
    let region = provider.receive_region(id);
    provider.receive_enable();
    assert_eq!(provider.receive(), Message::Registered { registration: 1 });
    until("the process is counted", || controller.query(id).processes == 1);
    assert_eq!(write_events(region, 1000), 0);
    let end = controller.stop(id);
    assert_eq!((end.events, end.events_lost), (1000, 0));
    assert_eq!(count_events_of_finalised_file(&daemon.path("s.etl")), 1000);
}

#[test]
fn events_of_a_disconnected_process_are_collected() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let (a, b) = (
        start_enabled_session(&daemon, &mut controller, "a"),
        start_enabled_session(&daemon, &mut controller, "b"),
    );
    let mut provider = daemon.provider();
    provider.register(1, PROVIDER);
    let first = provider.receive_region(a);
    provider.receive_enable();
    let second = provider.receive_region(b);
    provider.receive_enable();
    assert_eq!(write_events(first, 10) + write_events(second, 20), 0);
    drop(provider);
    until("the process is removed", || controller.query(a).processes + controller.query(b).processes == 0);
    let Message::Providers { providers, .. } = controller.request(Message::QueryProviders { after: None })
    else {
        panic!("unexpected reply")
    };
    assert_eq!(providers[0].pids, [], "only the enables are left");
    assert_eq!((controller.stop(a).events, controller.stop(b).events), (10, 20));
    assert_eq!(count_events_of_finalised_file(&daemon.path("a.etl")), 10);
    assert_eq!(count_events_of_finalised_file(&daemon.path("b.etl")), 20);
}

#[test]
fn region_stays_until_the_last_registration_is_gone() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let id = start_enabled_session(&daemon, &mut controller, "s");
    controller.enable(id, Guid::from_u128(2));
    let mut provider = daemon.provider();
    provider.register(1, PROVIDER);
    let region = provider.receive_region(id);
    provider.receive_enable();
    provider.receive();
    until("the process is counted", || controller.query(id).processes == 1);
    provider.register(2, Guid::from_u128(2));
    provider.receive_enable();
    provider.receive();
    assert_eq!(provider.request(Message::Unregister { registration: 1 }), Message::Done);
    assert_eq!(write_events(region, 10), 0);
    controller.disable(id, Guid::from_u128(2));
    assert_eq!(provider.receive_enable().code, EnableCode::Disable);
    let order = provider.receive_close(id);
    assert_eq!(controller.query(id).processes, 1, "the region stays until the process acknowledges");
    provider.acknowledge(order);
    until("the region is detached", || controller.query(id).processes == 0);
    assert_eq!(controller.stop(id).events, 10);
}

#[test]
fn region_that_is_being_closed_is_not_reused() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let id = start_enabled_session(&daemon, &mut controller, "s");
    let mut provider = daemon.provider();
    provider.register(1, PROVIDER);
    let old = provider.receive_region(id);
    provider.receive_enable();
    provider.receive();
    provider.send(&Message::Unregister { registration: 1 });
    let order = provider.receive_close(id);
    provider.receive();
    provider.register(2, PROVIDER);
    let new = provider.receive_region(id);
    provider.receive_enable();
    provider.receive();
    assert_eq!(write_events(old, 10) + write_events(new, 20), 0);
    provider.acknowledge(order);
    until("the old region is detached", || controller.query(id).processes == 1);
    let request = controller.send(&Message::Control { session: SessionRef::Id(id), control: Control::Stop });
    let order = provider.receive_close(id);
    provider.acknowledge(order);
    let answer = controller.receive_envelope();
    assert_eq!(answer.request, request);
    assert_eq!(expect_properties(answer.message).events, 30);
}

#[test]
fn process_that_never_closes_regions_keeps_only_a_few() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let id = start_enabled_session(&daemon, &mut controller, "s");
    let mut provider = daemon.provider();
    for registration in 0..100 {
        provider.register(registration, PROVIDER);
        provider.receive_region(id);
        provider.receive_enable();
        provider.receive();
        provider.send(&Message::Unregister { registration });
        provider.receive_close(id);
        provider.receive();
    }
    // At most 16 regions that are being closed, and one that is closed last.
    until("regions are detached", || controller.query(id).processes <= 17);
}

#[test]
fn only_the_daemon_marks_sessions_as_independent() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    for (name, mode) in [("not independent", 0), ("independent", EVENT_TRACE_INDEPENDENT_SESSION_MODE)] {
        let config = real_time_config(name);
        let log_file_mode = config.log_file_mode | mode;
        let session = controller.start(SessionConfig { log_file_mode, ..config }).id;
        for property in [0x1, 0x1 | PROPERTY_INDEPENDENT] {
            let params = EnableParams { property, ..EnableParams::default() };
            controller.request(enable_message_with(session, PROVIDER, EnableCode::Enable, params, 0));
        }
        provider.receive_region(session);
        let expected = if mode == 0 { 0x1 } else { 0x1 | PROPERTY_INDEPENDENT };
        for _ in 0..2 {
            assert_eq!(provider.receive_enable().params.property, expected, "{name}");
        }
    }
}
