//! Private sessions in simulated processes: some run the session, some refuse it, and one reports
//! on a session in which it takes no part.

use traceweir_format::Guid;
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_PRIVATE_IN_PROC,
    EVENT_TRACE_PRIVATE_LOGGER_MODE,
};
use traceweir_transport::message::{Control, Message, Properties, SessionConfig, SessionRef};

use crate::util::*;

fn private_config(name: &str) -> SessionConfig {
    SessionConfig {
        name: name.into(),
        guid: PROVIDER,
        log_file_mode: EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        log_file: Some("/x/app.etl".into()),
        ..SessionConfig::default()
    }
}

fn start_message(config: SessionConfig) -> Message {
    Message::Start(Box::new(config))
}

/// Receives a `PrivateStart`: order, session, configuration.
fn receive_start(provider: &mut Client) -> (u32, u64, SessionConfig) {
    match provider.receive() {
        Message::PrivateStart { order, session, config, .. } => (order, session, *config),
        other => panic!("no start: {other:?}"),
    }
}

fn receive_control(provider: &mut Client) -> (u32, Control) {
    match provider.receive() {
        Message::PrivateControl { order, control, .. } => (order, control),
        other => panic!("no control: {other:?}"),
    }
}

fn send_state(provider: &Client, order: u32, session: u64, status: u32, events: u64) {
    let properties = Box::new(Properties { events, id: 99, ..Properties::default() });
    let reason = if status == 0 { String::new() } else { "no".into() };
    let message = Message::PrivateState { order, session, status, reason, properties };
    provider.connection.send(0, &message, &[], TEST_TIMEOUT).unwrap();
}

fn query_message(name: &str) -> Message {
    Message::Control { session: SessionRef::Name(name.into()), control: Control::Query }
}

#[test]
fn first_process_gets_the_plain_file_name_unless_it_fails() {
    let daemon = Daemon::start();
    let (mut controller, mut first, mut second) = (daemon.controller(), daemon.provider(), daemon.provider());
    first.register_unenabled(1, PROVIDER);
    second.register_unenabled(1, PROVIDER);
    let request = controller.send(&start_message(private_config("App")));
    let (order, session, config) = receive_start(&mut first);
    assert_eq!(config.log_file.as_deref(), Some("/x/app.etl".as_ref()));
    let (_, _, config) = receive_start(&mut second);
    let numbered = format!("/x/app.etl_{}", std::process::id());
    assert_eq!(config.log_file.as_deref(), Some(numbered.as_ref()));
    send_state(&first, order, session, DISK_FULL.0, 0);
    send_state(&second, order, session, 0, 5);
    let answer = controller.receive_envelope();
    assert_eq!(answer.request, request);
    let started = expect_properties(answer.message);
    assert_eq!(
        (started.id, started.processes, started.events),
        (session, 1, 5),
        "a start succeeds if one process runs the session"
    );

    let mut third = daemon.provider();
    third.register(1, PROVIDER);
    let (order, _, config) = receive_start(&mut third);
    assert_eq!(
        (order, config.log_file.as_deref()),
        (0, Some("/x/app.etl".as_ref())),
        "no process has the plain name"
    );
    assert_eq!(third.receive(), Message::Registered { registration: 1 });
    third.register_unenabled(2, PROVIDER);
    third.register_unenabled(3, Guid::from_u128(1));
}

#[test]
fn sums_include_disconnected_processes_without_waiting_for_them() {
    let daemon = Daemon::start();
    let (mut controller, mut first, mut second) = (daemon.controller(), daemon.provider(), daemon.provider());
    first.register_unenabled(1, PROVIDER);
    second.register_unenabled(1, PROVIDER);
    controller.send(&start_message(private_config("App")));
    let (order, session, _) = receive_start(&mut first);
    receive_start(&mut second);
    send_state(&first, order, session, 0, 10);
    send_state(&second, order, session, 0, 20);
    assert_eq!(expect_properties(controller.receive()).events, 30);
    // Reports of a process that takes no part, or on an unknown session, are ignored; a report of a
    // member counts even if its order is unknown.
    let outsider = daemon.provider();
    send_state(&outsider, order, session, 0, 1000);
    send_state(&first, 4711, session, 0, 11);
    send_state(&first, 0, 4711, 0, 1000);

    controller.send(&Message::Control { session: SessionRef::Id(session), control: Control::Stop });
    assert_eq!(receive_control(&mut first).1, Control::Stop);
    let (order, _) = receive_control(&mut second);
    drop(first);
    send_state(&second, order, session, 0, 22);
    let end = expect_properties(controller.receive());
    // 11 events in the last report of the first process, and 22 of the second.
    assert_eq!((end.events, end.processes), (33, 1));
    assert_eq!(controller.status(query_message("App")), WMI_INSTANCE_NOT_FOUND);
}

#[test]
fn session_fails_if_all_its_processes_refuse() {
    let daemon = Daemon::start();
    let (mut controller, mut first) = (daemon.controller(), daemon.provider());
    first.register_unenabled(1, PROVIDER);
    controller.send(&start_message(private_config("App")));
    let (order, session, _) = receive_start(&mut first);
    send_state(&first, order, session, NO_SYSTEM_RESOURCES.0, 0);
    assert_eq!(status(&controller.receive()), NO_SYSTEM_RESOURCES);
    assert_eq!(controller.status(query_message("App")), WMI_INSTANCE_NOT_FOUND);
    first.assert_quiet();
}

#[test]
fn private_sessions_have_their_own_limit_and_end_with_their_connection() {
    let daemon = Daemon::start_in(tempfile::tempdir().unwrap(), |options| options.max_sessions = 1);
    let mut controller = daemon.controller();
    controller.start(real_time_config("one"));
    let mut tied = daemon.controller();
    for n in 0..20 {
        let config = SessionConfig { tied: true, ..private_config(&format!("p{n}")) };
        assert_eq!(expect_properties(tied.request(start_message(config))).processes, 0);
    }
    assert_eq!(controller.status(start_message(real_time_config("two"))), NO_SYSTEM_RESOURCES);
    assert_eq!(tied.status(start_message(private_config("ONE"))), ALREADY_EXISTS, "the name is in use");
    match controller.request(Message::QueryAll { from: 0 }) {
        Message::Sessions { total, .. } => assert_eq!(total, 1),
        other => panic!("{other:?}"),
    }
    drop(tied);
    until("the sessions have ended", || controller.status(query_message("p19")) == WMI_INSTANCE_NOT_FOUND);
    for n in 0..256 {
        controller.request(start_message(private_config(&format!("p{n}"))));
    }
    assert_eq!(controller.status(start_message(private_config("one more"))), NO_SYSTEM_RESOURCES);
}

#[test]
fn in_process_session_is_refused() {
    let daemon = Daemon::start();
    let config = SessionConfig {
        log_file_mode: EVENT_TRACE_PRIVATE_IN_PROC
            | EVENT_TRACE_PRIVATE_LOGGER_MODE
            | EVENT_TRACE_BUFFERING_MODE,
        log_file: None,
        ..private_config("App")
    };
    assert_eq!(daemon.controller().status(start_message(config)), INVALID_PARAMETER);
}
