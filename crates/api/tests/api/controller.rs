//! Controllers with a fake daemon: the requests that they send, how they match answers, and how
//! failures are reported.

use std::fs;
use std::sync::{Arc, Mutex};

use traceweir::controller::{
    Controller, EnableCode, EnableParams, Properties, ProviderEntry, SessionConfig, SessionRef, Update,
};
use traceweir::{Error, Guid, Status};
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_REAL_TIME_MODE,
};
use traceweir_transport::message::{Control, Message};
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::Listener;

use crate::support;
use crate::support::{FakeDaemon, reply};

fn session_properties(name: &str) -> Properties {
    let config = SessionConfig { name: name.into(), ..Default::default() };
    Properties { id: 5, config, ..Default::default() }
}

fn refusal(status: Status) -> Message {
    Message::Refused { status: status.0, reason: "because".into() }
}

fn file_config(name: &str, path: &std::path::Path) -> SessionConfig {
    SessionConfig {
        name: name.into(),
        log_file: Some(path.into()),
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        ..Default::default()
    }
}

fn by_name(name: &str) -> SessionRef {
    SessionRef::Name(name.into())
}

#[test]
fn missing_or_stale_socket_means_no_daemon() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Controller::find_at(folder.path()).unwrap().is_none());
    assert!(Controller::find_at(&folder.path().join("missing")).unwrap().is_none());
    let socket = RuntimeDir::from_path(folder.path()).control_socket();
    drop(Listener::bind(&socket, 0o600).unwrap());
    assert!(socket.exists(), "the socket file was removed, unlike that of a killed daemon");
    assert!(Controller::find_at(folder.path()).unwrap().is_none());
}

#[test]
fn error_for_silent_daemon_names_its_socket() {
    let folder = tempfile::tempdir().unwrap();
    let socket = RuntimeDir::from_path(folder.path()).control_socket();
    let _listener = Listener::bind(&socket, 0o600).unwrap();
    match Controller::find_at(folder.path()) {
        Err(Error::Unreachable { socket: named, .. }) => assert_eq!(named, socket),
        other => panic!("{other:?}"),
    }
}

#[test]
fn other_protocol_version_is_refused_with_a_clear_error() {
    let greetings =
        [Message::Welcome { version: 99, daemon: 1 }, refusal(Status::ERROR_NOT_SUPPORTED), Message::Done];
    for greeting in greetings {
        let fake = FakeDaemon::with_greeting(greeting, |_, _| {});
        let error = Controller::find_at(fake.path()).unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert!(
            error.to_string().contains("version") && error.to_string().contains("control.sock"),
            "{error}"
        );
    }
}

#[test]
fn refused_connection_reports_the_status_of_the_daemon() {
    let fake = FakeDaemon::with_greeting(refusal(Status::ERROR_ACCESS_DENIED), |_, _| {});
    assert_eq!(Controller::find_at(fake.path()).unwrap_err().status(), Status::ERROR_ACCESS_DENIED);
}

#[test]
fn full_daemon_is_not_reported_as_missing() {
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::bind(&RuntimeDir::from_path(folder.path()).control_socket(), 0o600).unwrap();
    // The daemon refuses and closes the connection before or after it reads the client's greeting.
    for is_late in [false, true] {
        let error = std::thread::scope(|scope| {
            let client = scope.spawn(|| Controller::find_at(folder.path()));
            let connection = loop {
                if let Some(connection) = listener.accept().unwrap() {
                    break connection;
                }
                std::thread::yield_now();
            };
            if is_late {
                connection.receive(support::TEST_TIMEOUT).unwrap().unwrap();
            }
            connection
                .send(0, &refusal(Status::ERROR_NO_SYSTEM_RESOURCES), &[], support::TEST_TIMEOUT)
                .unwrap();
            drop(connection);
            client.join().unwrap().unwrap_err()
        });
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        assert_eq!(error.status(), Status::ERROR_NO_SYSTEM_RESOURCES);
    }
}

#[test]
fn start_sends_descriptor_and_absolute_path_of_the_log_file() {
    let received_start = Arc::new(Mutex::new(None));
    let sink = Arc::clone(&received_start);
    let fake = FakeDaemon::new(move |connection, envelope| {
        let Message::Start(config) = envelope.message else { panic!("{:?}", envelope.message) };
        *sink.lock().unwrap() = Some((config.log_file.clone(), envelope.descriptors.len()));
        reply(connection, envelope.request, &Message::Properties(Box::new(session_properties(&config.name))));
    });
    let mut controller = Controller::find_at(fake.path()).unwrap().unwrap();
    let log = fake.path().join("a.etl");
    assert_eq!(controller.start(&file_config("one", &log)).unwrap().config.name, "one");
    assert_eq!(received_start.lock().unwrap().take(), Some((Some(log.clone()), 1)));
    assert!(log.exists(), "the file of an accepted session was removed");
}

#[test]
fn refused_start_removes_a_new_log_file_and_keeps_an_old_one() {
    let fake = FakeDaemon::new(|connection, envelope| {
        reply(connection, envelope.request, &refusal(Status::ERROR_ALREADY_EXISTS))
    });
    let mut controller = Controller::find_at(fake.path()).unwrap().unwrap();
    let (new, old) = (fake.path().join("new.etl"), fake.path().join("old.etl"));
    fs::write(&old, "old").unwrap();
    for log in [&new, &old] {
        let error = controller.start(&file_config("one", log)).unwrap_err();
        assert_eq!(error.status(), Status::ERROR_ALREADY_EXISTS);
    }
    assert!(!new.exists());
    assert_eq!(fs::read(&old).unwrap(), b"old");
    let error = controller.flush(&by_name("x"), Some(new.clone())).unwrap_err();
    assert_eq!(error.status(), Status::ERROR_ALREADY_EXISTS);
    assert!(!new.exists());
}

#[test]
fn duplicate_name_is_reported_before_a_missing_folder() {
    let fake = FakeDaemon::new(|connection, envelope| {
        let answer = match envelope.message {
            Message::Control { session: SessionRef::Name(name), control: Control::Query } => match &*name {
                "runs" | "00000000-0000-0000-0000-000000000007" => {
                    Message::Properties(Box::new(session_properties("runs")))
                }
                _ => refusal(Status::ERROR_WMI_INSTANCE_NOT_FOUND),
            },
            other => panic!("{other:?}"),
        };
        reply(connection, envelope.request, &answer);
    });
    let mut controller = Controller::find_at(fake.path()).unwrap().unwrap();
    let missing = fake.path().join("none/a.etl");
    let mut start_status = |config: SessionConfig| controller.start(&config).unwrap_err().status();
    assert_eq!(start_status(file_config("one", &missing)), Status::ERROR_PATH_NOT_FOUND);
    assert_eq!(start_status(file_config("runs", &missing)), Status::ERROR_ALREADY_EXISTS);
    let with_used_guid = SessionConfig { guid: Guid::from_u128(7), ..file_config("one", &missing) };
    assert_eq!(start_status(with_used_guid), Status::ERROR_ALREADY_EXISTS);
    std::os::unix::fs::symlink("/dev/null", fake.path().join("link")).unwrap();
    let denied = file_config("runs", &fake.path().join("link"));
    assert_eq!(
        start_status(denied),
        Status::ERROR_ACCESS_DENIED,
        "a denied file is not reported before a duplicate name"
    );
}

#[test]
fn each_control_sends_its_message() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&received);
    let fake = FakeDaemon::new(move |connection, envelope| {
        let Message::Control { session, control } = envelope.message else {
            panic!("{:?}", envelope.message)
        };
        sink.lock().unwrap().push((session, control, envelope.descriptors.len()));
        // Only a flight recorder writes snapshots.
        let mut properties = session_properties("s");
        properties.config.log_file_mode = EVENT_TRACE_BUFFERING_MODE;
        reply(connection, envelope.request, &Message::Properties(Box::new(properties)));
    });
    let mut controller = Controller::find_at(fake.path()).unwrap().unwrap();
    let log = fake.path().join("snapshot.etl");
    let update = Update { flush_timer: Some(3), log_file: Some(log.clone()), ..Default::default() };
    controller.query(&by_name("s")).unwrap();
    controller.update(&SessionRef::Id(5), &update).unwrap();
    controller.flush(&by_name("s"), Some(log.clone())).unwrap();
    controller.flush(&by_name("s"), None).unwrap();
    controller.stop(&by_name("s")).unwrap();
    let expected = vec![
        (by_name("s"), Control::Query, 0),
        // The controller first queries the session, because the processes of a private session open
        // the file themselves.
        (SessionRef::Id(5), Control::Query, 0),
        (SessionRef::Id(5), Control::Update(update), 1),
        (by_name("s"), Control::Query, 0),
        (by_name("s"), Control::Flush { log_file: Some(log) }, 1),
        (by_name("s"), Control::Flush { log_file: None }, 0),
        (by_name("s"), Control::Stop, 0),
    ];
    assert_eq!(*received.lock().unwrap(), expected);
}

#[test]
fn enable_waits_for_done_and_returns_the_status() {
    let fake = FakeDaemon::new(|connection, envelope| {
        let Message::EnableProvider { code, timeout_ms, .. } = envelope.message else { panic!() };
        let answer = match (code, timeout_ms) {
            (EnableCode::Enable, _) => Message::Done,
            (_, 0) => refusal(Status::ERROR_WMI_INSTANCE_NOT_FOUND),
            _ => refusal(Status::ERROR_TIMEOUT),
        };
        reply(connection, envelope.request, &answer);
    });
    let mut controller = Controller::find_at(fake.path()).unwrap().unwrap();
    let mut enable = |code, timeout| {
        controller
            .enable(&by_name("s"), Guid::NULL, code, &EnableParams::default(), timeout)
            .map_err(|error| error.status())
    };
    assert_eq!(enable(EnableCode::Enable, u32::MAX), Ok(()));
    assert_eq!(enable(EnableCode::Disable, 0), Err(Status::ERROR_WMI_INSTANCE_NOT_FOUND));
    assert_eq!(enable(EnableCode::CaptureState, 1), Err(Status::ERROR_TIMEOUT));
}

#[test]
fn lists_are_requested_page_by_page() {
    let fake = FakeDaemon::new(|connection, envelope| {
        let numbers: Vec<u64> = (0..7).collect();
        let page = |from: u32| numbers.iter().skip(from as usize).take(3).copied();
        let answer = match envelope.message {
            Message::QueryAll { from } => {
                let sessions = page(from).map(|id| Properties { id, ..Default::default() }).collect();
                Message::Sessions { total: 7, sessions }
            }
            Message::QueryProviders { after } => {
                let guid = |id: u64| Guid::from_u128(u128::from(id) + 1);
                let entry = |id: u64| ProviderEntry { provider: guid(id), ..ProviderEntry::default() };
                let from = numbers.iter().position(|id| Some((guid(*id), false)) > after);
                // A daemon that promises more than it has, or repeats entries, must not cause an
                // endless loop.
                let from = from.unwrap_or(4).try_into().unwrap();
                Message::Providers { more: true, providers: page(from).map(entry).collect() }
            }
            other => panic!("{other:?}"),
        };
        reply(connection, envelope.request, &answer);
    });
    let mut controller = Controller::find_at(fake.path()).unwrap().unwrap();
    let ids: Vec<u64> = controller.query_all().unwrap().iter().map(|properties| properties.id).collect();
    assert_eq!(ids, (0..7).collect::<Vec<_>>());
    let providers: Vec<Guid> =
        controller.provider_entries().unwrap().iter().map(|entry| entry.provider).collect();
    assert_eq!(providers, (1..=7).map(Guid::from_u128).collect::<Vec<_>>());
}

#[test]
fn answers_to_other_requests_are_ignored() {
    let fake = FakeDaemon::new(|connection, envelope| {
        reply(connection, envelope.request + 100, &refusal(Status::ERROR_BUSY));
        reply(connection, 0, &Message::Done);
        reply(connection, envelope.request, &Message::Properties(Box::new(session_properties("right"))));
        reply(connection, envelope.request, &Message::Properties(Box::new(session_properties("twice"))));
    });
    let mut controller = Controller::find_at(fake.path()).unwrap().unwrap();
    for _ in 0..3 {
        assert_eq!(controller.query(&by_name("s")).unwrap().config.name, "right");
    }
}

#[test]
fn unexpected_kind_of_answer_is_an_error() {
    let fake = FakeDaemon::new(|connection, envelope| reply(connection, envelope.request, &Message::Done));
    let mut controller = Controller::find_at(fake.path()).unwrap().unwrap();
    let error = controller.query(&by_name("s")).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }) && error.to_string().contains("Done"), "{error}");
}

#[test]
fn controller_finds_no_sessions_after_daemon_exit_and_uses_a_restarted_daemon() {
    let fake = FakeDaemon::new(|_, _| {});
    let folder = fake.path().to_owned();
    let mut controller = Controller::find_at(&folder).unwrap().unwrap();
    let socket = controller.socket();
    drop(fake);
    fs::create_dir_all(&folder).unwrap();
    let error = controller.query(&by_name("s")).unwrap_err();
    assert_eq!(error.status(), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
    assert!(controller.query_all().unwrap().is_empty());
    assert!(controller.provider_entries().unwrap().is_empty());
    let result = controller.start(&SessionConfig {
        name: "s".into(),
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
        ..Default::default()
    });
    assert!(matches!(result, Err(Error::NoDaemon { .. })), "a controller of `find_at` started a daemon");

    let listener = Listener::bind(&socket, 0o600).unwrap();
    let restarted = std::thread::spawn(move || {
        let mut connection = None;
        support::until("the controller connects", || {
            connection = listener.accept().unwrap();
            connection.is_some()
        });
        let connection = connection.unwrap();
        for message in [
            Message::Welcome { version: 1, daemon: 2 },
            Message::Properties(Box::new(session_properties("new"))),
        ] {
            let request = connection.receive(support::TEST_TIMEOUT).unwrap().unwrap().request;
            reply(&connection, request, &message);
        }
    });
    assert_eq!(controller.query(&by_name("s")).unwrap().config.name, "new");
    restarted.join().unwrap();
    fs::remove_dir_all(&folder).unwrap();
}
