//! Rules for ControlTrace: query, stop, flush, and their errors. `rule.rs` explains the rows.

use traceweir::Provider;
use traceweir::controller::{EnableParams, SessionConfig, SessionRef, Update};
use traceweir_format::spec::session::EVENT_TRACE_BUFFERING_MODE;

use crate::helpers::{
    ACTIVE_CONNECTIONS, BAD_PATHNAME, CallbackLog, Fixture, INSTANCE_NOT_FOUND, INVALID_PARAMETER, KEYWORD,
    LEVEL, SUCCESS, event, events_of, header_of, new_guid, status, until,
};
use crate::processes::OtherProcess;
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 4 #QUERY", D, "returns the id, the configuration and the names",
        a_query_returns_the_configuration),
    rule!("controller 4 #QUERY", D, "a session is found by id and by name, ignoring case",
        sessions_are_found_by_id_and_name),
    rule!("controller 4 #STOP", D, "everything written before is in the file, and its header is final",
        a_stop_writes_everything),
    rule!("controller 4 #STOP", D, "all providers are disabled", a_stop_disables_providers),
    rule!("controller 4 #STOP", D, "the name, the GUID and the file are free again", a_stop_frees_the_names),
    rule!("controller 4 #FLUSH", D, "active buffers are written", a_flush_writes_active_buffers),
    rule!("controller 4 #FLUSH", D, "in buffering mode each FLUSH writes a snapshot to the file that it names",
        each_flush_is_a_snapshot),
    rule!("controller 4", D, "no id and no name → 87", a_session_must_be_named),
    rule!("controller 4", D, "any control code for a session that is not running → 4201",
        commands_on_a_stopped_session_fail),
    rule!("controller 4", D, "stop while a stop is in progress → 2402", second_stop_is_refused),
    rule!("controller 4", D, "a flush into the file of another session → 161",
        snapshots_do_not_overwrite_logs),
];

fn a_query_returns_the_configuration(fixture: &Fixture) {
    let config = SessionConfig { flush_timer: 5, maximum_file_size: 30, ..fixture.config() };
    let session = fixture.start(&config);
    let properties = fixture.query(&session);
    assert_eq!(properties.id, session.properties.id);
    assert_eq!(properties.config, session.properties.config);
    assert_eq!((properties.config.flush_timer, properties.config.maximum_file_size), (5, 30));
    assert_eq!((&properties.config.name, &properties.config.log_file), (&config.name, &config.log_file));
}

fn sessions_are_found_by_id_and_name(fixture: &Fixture) {
    let session = fixture.start(&fixture.config());
    let name = &session.properties.config.name;
    for spelling in [name.clone(), name.to_uppercase(), name.to_lowercase()] {
        assert_eq!(fixture.connect().query(&SessionRef::Name(spelling)).unwrap().id, session.properties.id);
    }
    assert_eq!(fixture.query(&session).id, session.properties.id);
}

fn a_stop_writes_everything(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    for number in 0..500 {
        provider.write(&event(number), &[b"payload"]).unwrap();
    }
    let end = fixture.stop(session);
    let path = end.config.log_file.clone().unwrap();
    let ids: Vec<u16> = events_of(&path).iter().map(|seen| seen.descriptor.id).collect();
    assert_eq!(ids, (0..500).collect::<Vec<_>>());
    let header = header_of(&path);
    assert_ne!(header.end_time.0, 0);
    assert_eq!(header.buffers_written, end.buffers_written);
}

fn a_stop_disables_providers(fixture: &Fixture) {
    let (calls, guid, session) = (CallbackLog::default(), new_guid(), fixture.start(&fixture.config()));
    let provider = Provider::register(guid, calls.callback()).unwrap();
    fixture.enable(&session, guid, &EnableParams::default());
    assert!(provider.enabled(LEVEL, KEYWORD));
    fixture.stop(session);
    until("the callback is called with the code 0", || calls.last().code == 0);
    assert!(!provider.enabled(LEVEL, KEYWORD));
}

fn a_stop_frees_the_names(fixture: &Fixture) {
    let config = SessionConfig { guid: new_guid(), ..fixture.config() };
    for _ in 0..3 {
        fixture.stop(fixture.start(&config));
    }
}

fn a_flush_writes_active_buffers(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let path = session.properties.config.log_file.clone().unwrap();
    let length = || std::fs::metadata(&path).unwrap().len();
    let before = length();
    provider.write(&event(1), &[b"x"]).unwrap();
    let after = fixture.connect().flush(&session.id, None).unwrap();
    assert_eq!(after.events, 1);
    assert!(length() > before);
}

fn each_flush_is_a_snapshot(fixture: &Fixture) {
    let config =
        SessionConfig { log_file_mode: EVENT_TRACE_BUFFERING_MODE, log_file: None, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    let (first, second) = (fixture.unique_path(), fixture.unique_path());
    provider.write(&event(1), &[]).unwrap();
    fixture.connect().flush(&session.id, Some(first.clone())).unwrap();
    provider.write(&event(2), &[]).unwrap();
    fixture.connect().flush(&session.id, Some(second.clone())).unwrap();
    fixture.stop(session);
    let ids =
        |path: &std::path::Path| events_of(path).iter().map(|event| event.descriptor.id).collect::<Vec<_>>();
    assert_eq!((ids(&first), ids(&second)), (vec![1], vec![1, 2]));
}

fn a_session_must_be_named(fixture: &Fixture) {
    let mut controller = fixture.connect();
    for session in [SessionRef::Id(0), SessionRef::Name(String::new())] {
        assert_eq!(status(controller.query(&session)), INVALID_PARAMETER, "{session:?}");
    }
}

fn commands_on_a_stopped_session_fail(fixture: &Fixture) {
    let session = fixture.start(&fixture.config());
    let stopped = [session.id.clone(), SessionRef::Name(session.properties.config.name.clone())];
    fixture.stop(session);
    let unknown = [SessionRef::Id(0x77_0001), SessionRef::Name("no such session".to_owned())];
    let mut controller = fixture.connect();
    for session in stopped.iter().chain(&unknown) {
        assert_eq!(status(controller.query(session)), INSTANCE_NOT_FOUND, "query {session:?}");
        assert_eq!(status(controller.stop(session)), INSTANCE_NOT_FOUND, "stop {session:?}");
        assert_eq!(status(controller.flush(session, None)), INSTANCE_NOT_FOUND, "flush {session:?}");
        let update = Update { flush_timer: Some(3), ..Update::default() };
        assert_eq!(status(controller.update(session, &update)), INSTANCE_NOT_FOUND, "update {session:?}");
    }
}

fn second_stop_is_refused(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    let process = OtherProcess::start(guid, None);
    fixture.enable(&session, guid, &EnableParams::default());
    // A process that does not answer delays the first stop.
    process.freeze();
    let id = session.id.clone();
    let mut controller = fixture.connect();
    let first = std::thread::spawn(move || status(controller.stop(&id)));
    until("the first stop has begun", || status(fixture.connect().flush(&session.id, None)) != SUCCESS);
    assert_eq!(status(fixture.connect().stop(&session.id)), ACTIVE_CONNECTIONS);
    assert_eq!(first.join().unwrap(), SUCCESS);
}

fn snapshots_do_not_overwrite_logs(fixture: &Fixture) {
    let log = fixture.start(&fixture.config());
    let recorder = fixture.start(&SessionConfig {
        log_file_mode: EVENT_TRACE_BUFFERING_MODE,
        log_file: None,
        ..fixture.config()
    });
    let path = log.properties.config.log_file.clone();
    assert_eq!(status(fixture.connect().flush(&recorder.id, path)), BAD_PATHNAME);
    assert_eq!(fixture.stop_and_read(log), []);
}
