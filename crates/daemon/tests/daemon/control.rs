//! Sessions from start to stop.

use std::fs;
use std::os::fd::OwnedFd;

use traceweir_format::Guid;
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_FILE_MODE_CIRCULAR, EVENT_TRACE_FILE_MODE_SEQUENTIAL,
    EVENT_TRACE_USE_KBYTES_FOR_SIZE,
};
use traceweir_transport::message::{
    Control, EnableCode, EnableEntry, Message, SessionConfig, SessionRef, Update,
};

use crate::util::*;

#[test]
fn session_is_started_queried_and_stopped() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let path = daemon.path("log.etl");
    fs::write(&path, vec![b'x'; 300_000]).unwrap();
    let started = controller.start(file_config("First", &path));
    assert_ne!(started.id & 0xFFFF, 0);
    assert!(!started.config.guid.is_null());
    assert_eq!(started.config.name, "First");

    for reference in [
        SessionRef::Id(started.id),
        SessionRef::Name("fIRST".into()),
        SessionRef::Name(started.config.guid.to_string()),
    ] {
        let answer = controller.request(Message::Control { session: reference, control: Control::Query });
        assert_eq!(expect_properties(answer).id, started.id);
    }
    let mut other_controller = daemon.controller();
    assert_eq!(other_controller.stop(started.id).id, started.id, "any controller may stop it");
    assert_eq!(status(&controller.control(started.id, Control::Query)), WMI_INSTANCE_NOT_FOUND);
    assert_eq!(status(&controller.control(started.id, Control::Stop)), WMI_INSTANCE_NOT_FOUND);
    assert_eq!(count_events_of_finalised_file(&path), 0, "the old content is gone");
}

#[test]
fn session_outlives_its_controller_and_its_name_is_free_after_the_stop() {
    let daemon = Daemon::start();
    let first = daemon.controller().start(real_time_config("name"));
    let mut controller = daemon.controller();
    controller.query(first.id);
    controller.stop(first.id);
    let second = controller.start(real_time_config("name"));
    assert_ne!(second.id, first.id);
    assert_eq!(
        status(&controller.control(first.id, Control::Query)),
        WMI_INSTANCE_NOT_FOUND,
        "a stale id finds no session"
    );
}

#[test]
fn names_guids_and_files_are_unique_and_sessions_limited() {
    let daemon = Daemon::start_in(tempfile::tempdir().unwrap(), |options| options.max_sessions = 2);
    let mut controller = daemon.controller();
    let path = daemon.path("log.etl");
    let guid = Guid::from_u128(5);
    let first = controller.start(SessionConfig { guid, ..file_config("one", &path) });
    let start = |config: SessionConfig| Message::Start(Box::new(config));
    let start_status = |controller: &mut Client, config: SessionConfig, files: &[&OwnedFd]| {
        status(&controller.request_with(start(config), files))
    };
    assert_eq!(
        start_status(&mut controller, real_time_config("ONE"), &[]),
        ALREADY_EXISTS,
        "the name is in use"
    );
    assert_eq!(
        start_status(&mut controller, SessionConfig { guid, ..real_time_config("two") }, &[]),
        ALREADY_EXISTS,
        "the GUID is in use"
    );
    let link = daemon.path("link.etl");
    fs::hard_link(&path, &link).unwrap();
    assert_eq!(
        start_status(&mut controller, file_config("two", &link), &[&open_log_file(&link)]),
        BAD_PATHNAME,
        "the file is in use"
    );
    assert_eq!(
        start_status(&mut controller, file_config("two", &link), &[]),
        INVALID_PARAMETER,
        "no descriptor was passed"
    );
    let folder = fs::File::open(daemon.path("")).unwrap().into();
    assert_eq!(
        start_status(&mut controller, file_config("two", &link), &[&folder]),
        BAD_PATHNAME,
        "a folder is not a log file"
    );
    let second = controller.start(real_time_config("two"));
    assert_eq!(
        start_status(&mut controller, real_time_config("three"), &[]),
        NO_SYSTEM_RESOURCES,
        "the limit of sessions is reached"
    );
    controller.stop(second.id);
    let third = controller.start(real_time_config("three"));
    controller.stop(first.id);
    controller.start(file_config("one", &link));
    controller.stop(third.id);
}

#[test]
fn contradictory_properties_are_refused() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let two_modes = SessionConfig {
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_FILE_MODE_CIRCULAR,
        ..file_config("x", &daemon.path("x.etl"))
    };
    let file = open_log_file(&daemon.path("x.etl"));
    assert_eq!(
        status(&controller.request_with(Message::Start(Box::new(two_modes)), &[&file])),
        INVALID_PARAMETER
    );
    let no_mode = SessionConfig { log_file_mode: 0, ..real_time_config("x") };
    assert_eq!(controller.status(Message::Start(Box::new(no_mode))), BAD_PATHNAME);
    controller.start(real_time_config("x"));
}

#[test]
fn update_changes_the_file_and_releases_the_old_one() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let (a, b) = (daemon.path("a.etl"), daemon.path("b.etl"));
    let session = controller.start(file_config("s", &a)).id;
    let update = Update { flush_timer: Some(7), ..Update::default() };
    assert_eq!(expect_properties(controller.control(session, Control::Update(update))).config.flush_timer, 7);
    expect_properties(controller.control(session, Control::Flush { log_file: None }));

    let update_file = |path: &std::path::Path| Message::Control {
        session: SessionRef::Id(session),
        control: Control::Update(Update { log_file: Some(path.into()), ..Update::default() }),
    };
    assert_eq!(
        status(&controller.request_with(update_file(&a), &[&open_log_file(&a)])),
        BAD_PATHNAME,
        "the session already uses this file"
    );
    let answer = controller.request_with(update_file(&b), &[&open_log_file(&b)]);
    assert_eq!(expect_properties(answer).config.log_file, Some(b.clone()));
    let other_session = controller.start(file_config("other", &a));
    assert_eq!(
        status(&controller.request_with(update_file(&a), &[&open_log_file(&a)])),
        BAD_PATHNAME,
        "another session uses this file now"
    );
    controller.stop(other_session.id);
    controller.stop(session);
    assert_eq!((count_events_of_finalised_file(&a), count_events_of_finalised_file(&b)), (0, 0));
}

#[test]
fn flight_recorder_writes_its_snapshot_to_the_file_passed_along() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    let session = controller
        .start(SessionConfig { log_file_mode: EVENT_TRACE_BUFFERING_MODE, ..real_time_config("recorder") })
        .id;
    controller.enable(session, PROVIDER);
    let region = provider.receive_region(session);
    provider.receive_enable();
    assert_eq!(write_events(region, 20), 0);
    let path = daemon.path("snapshot.etl");
    for _ in 0..2 {
        let control = Control::Flush { log_file: Some(path.clone()) };
        let message = Message::Control { session: SessionRef::Id(session), control };
        expect_properties(controller.request_with(message, &[&open_log_file(&path)]));
        assert_eq!(count_events_of_finalised_file(&path), 20);
    }
}

#[test]
fn all_sessions_and_providers_are_listed_page_by_page() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let ids: Vec<u64> =
        (0..40).map(|i| controller.start(real_time_config(&format!("{i}-{}", "n".repeat(900)))).id).collect();
    let mut listed_ids = Vec::new();
    loop {
        let from = u32::try_from(listed_ids.len()).unwrap();
        let Message::Sessions { total, sessions } = controller.request(Message::QueryAll { from }) else {
            panic!("unexpected reply")
        };
        assert_eq!(total, 40);
        listed_ids.extend(sessions.iter().map(|properties| properties.id));
        if listed_ids.len() >= 40 {
            break;
        }
        assert!(!sessions.is_empty());
    }
    assert_eq!(listed_ids, ids);

    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    let unregistered = Guid::from_u128(1);
    controller.enable(ids[0], unregistered);
    let Message::Providers { more: false, providers } =
        controller.request(Message::QueryProviders { after: None })
    else {
        panic!("unexpected reply")
    };
    let entries: Vec<_> =
        providers.iter().map(|entry| (entry.provider, entry.pids.clone(), entry.sessions.clone())).collect();
    let own_pid = std::process::id();
    assert_eq!(
        entries,
        [
            (unregistered, vec![], vec![EnableEntry { session: ids[0], ..EnableEntry::default() }]),
            (PROVIDER, vec![own_pid], vec![])
        ]
    );
    let Message::Sessions { total: 40, sessions } = controller.request(Message::QueryAll { from: 99 }) else {
        panic!("unexpected reply")
    };
    assert!(sessions.is_empty());
}

#[test]
fn second_stop_is_refused_while_the_first_is_under_way() {
    let daemon = Daemon::start();
    let (mut first, mut second) = (daemon.controller(), daemon.controller());
    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    let path = daemon.path("log.etl");
    let session = first.start(file_config("s", &path)).id;
    first.enable(session, PROVIDER);
    let region = provider.receive_region(session);
    provider.receive_enable();

    let request = first.send(&Message::Control { session: SessionRef::Id(session), control: Control::Stop });
    let order = provider.receive_close(session);
    // The provider has not acknowledged yet, so the stop is under way, unless this test was delayed
    // by more than the second that the daemon waits.
    let (early, query) = (second.control(session, Control::Stop), second.control(session, Control::Query));
    assert!([ACTIVE_CONNECTIONS, WMI_INSTANCE_NOT_FOUND].contains(&status(&early)), "{early:?}");
    assert!([SUCCESS, WMI_INSTANCE_NOT_FOUND].contains(&status(&query)), "{query:?}");
    let lost = write_events(region, 5);
    provider.acknowledge(order);
    let answer = first.receive_envelope();
    assert_eq!(answer.request, request);
    expect_properties(answer.message);
    assert!(count_events_of_finalised_file(&path) <= 5 - lost);
    assert_eq!(status(&second.control(session, Control::Query)), WMI_INSTANCE_NOT_FOUND);
}

#[test]
fn provider_that_never_acknowledges_delays_a_stop_only_briefly() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    let path = daemon.path("log.etl");
    let session = controller.start(file_config("s", &path)).id;
    controller.enable(session, PROVIDER);
    let region = provider.receive_region(session);
    let lost = write_events(region, 50);
    let end = controller.stop(session);
    assert_eq!(count_events_of_finalised_file(&path), 50 - lost);
    assert_eq!(end.events, 50 - lost as u64);
}

#[test]
fn session_that_reaches_its_size_limit_is_stopped() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    let path = daemon.path("log.etl");
    let mode = EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_USE_KBYTES_FOR_SIZE;
    let config = SessionConfig { log_file_mode: mode, maximum_file_size: 256, ..file_config("s", &path) };
    let session = controller.start(config).id;
    controller.enable(session, PROVIDER);
    let region = provider.receive_region(session);
    provider.receive_enable();
    write_events(region, 20_000);
    let order = provider.receive_close(session);
    provider.acknowledge(order);
    until("the session is gone", || {
        status(&controller.control(session, Control::Query)) == WMI_INSTANCE_NOT_FOUND
    });
    assert_eq!(
        controller.status(enable_message(session, PROVIDER, EnableCode::Enable, 0)),
        WMI_INSTANCE_NOT_FOUND
    );
    assert!(count_events_of_finalised_file(&path) > 0);
    assert!(fs::metadata(&path).unwrap().len() <= 256 * 1024);
    controller.start(file_config("s", &path));
}

#[test]
fn stop_of_an_ended_session_is_refused_and_removes_it_from_the_list() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let first = controller.start(real_time_config("first")).id;
    let second = controller.start(real_time_config("second")).id;
    controller.stop(first);
    controller.stop(second);
    assert_eq!(ended_names(&mut controller), ["second", "first"]);
    assert_eq!(status(&controller.control(first, Control::Stop)), WMI_INSTANCE_NOT_FOUND);
    assert_eq!(ended_names(&mut controller), ["second"]);
    assert_eq!(expect_properties(controller.control(first, Control::Outcome)).id, first);
    let by_name = |control| Message::Control { session: SessionRef::Name("SECOND".to_owned()), control };
    assert_eq!(controller.status(by_name(Control::Stop)), WMI_INSTANCE_NOT_FOUND);
    assert_eq!(ended_names(&mut controller), [""; 0]);
    // An ended session replaces earlier ones of the same name, and a stop of a running session
    // removes none.
    for _ in 0..2 {
        let again = controller.start(real_time_config("first")).id;
        controller.stop(again);
    }
    assert_eq!(ended_names(&mut controller), ["first"]);
    let running = controller.start(real_time_config("first")).id;
    assert_eq!(ended_names(&mut controller), ["first"]);
    controller.stop(running);
}
