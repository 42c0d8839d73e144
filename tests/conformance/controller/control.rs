//! ControlTrace: query, stop, flush, and their errors.

use traceweir::Provider;
use traceweir::controller::{EnableParams, SessionConfig, SessionRef, Update};

use crate::other::Other;
use crate::rule::{Rule, rule};
use crate::stage::{Calls, Stage, event, events_of, header_of, new_provider, status, until};

pub(crate) const RULES: &[Rule] = &[
    rule!(
        "controller 4 #QUERY",
        D,
        "fills everything: configuration, counters, names",
        a_query_fills_everything
    ),
    rule!(
        "controller 4 #QUERY",
        D,
        "a session is found by id and by name, whatever the case",
        sessions_are_found
    ),
    rule!(
        "controller 4 #STOP",
        D,
        "everything written before is in the file, and its header is final",
        a_stop_writes_everything
    ),
    rule!("controller 4 #STOP", D, "all providers are disabled", a_stop_disables_providers),
    rule!("controller 4 #STOP", D, "the name, the GUID and the file are free again", a_stop_frees_the_names),
    rule!("controller 4 #FLUSH", D, "active buffers are written", a_flush_writes_active_buffers),
    rule!(
        "controller 4 #FLUSH",
        D,
        "in buffering mode each call writes a snapshot to the file it names",
        each_flush_is_a_snapshot
    ),
    rule!("controller 4", D, "no id and no name → 87", a_session_must_be_named),
    rule!("controller 4", D, "a session that is not running → 4201, for each code", not_running),
    rule!("controller 4", D, "stop while a stop is in progress → 2402", a_second_stop),
    rule!(
        "controller 4",
        D,
        "a flush into the file of another session → 161",
        snapshots_do_not_overwrite_logs
    ),
];

fn a_query_fills_everything(stage: &Stage) {
    let config = SessionConfig { flush_timer: 5, maximum_file_size: 30, ..stage.config() };
    let session = stage.start(&config);
    let properties = stage.query(&session);
    assert_eq!(properties.id, session.properties.id);
    assert_eq!(properties.config, session.properties.config);
    assert_eq!((properties.config.flush_timer, properties.config.maximum_file_size), (5, 30));
    assert_eq!((&properties.config.name, &properties.config.log_file), (&config.name, &config.log_file));
}

fn sessions_are_found(stage: &Stage) {
    let session = stage.start(&stage.config());
    let name = &session.properties.config.name;
    for spelling in [name.clone(), name.to_uppercase(), name.to_lowercase()] {
        assert_eq!(stage.controller().query(&SessionRef::Name(spelling)).unwrap().id, session.properties.id);
    }
    assert_eq!(stage.query(&session).id, session.properties.id);
}

fn a_stop_writes_everything(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    for number in 0..500 {
        provider.write(&event(number, 4, 1), &[b"payload"]).unwrap();
    }
    let end = stage.end(session);
    let path = end.config.log_file.clone().unwrap();
    let ids: Vec<u16> = events_of(&path).iter().map(|seen| seen.descriptor.id).collect();
    assert_eq!(ids, (0..500).collect::<Vec<_>>());
    let header = header_of(&path);
    assert_ne!(header.end_time.0, 0);
    assert_eq!(header.buffers_written, end.buffers_written);
}

fn a_stop_disables_providers(stage: &Stage) {
    let (calls, guid, session) = (Calls::default(), new_provider(), stage.start(&stage.config()));
    let provider = Provider::register(guid, calls.callback()).unwrap();
    stage.enable(&session, guid, &EnableParams::default());
    assert!(provider.enabled(4, 1));
    stage.end(session);
    until("the last call", || calls.last().code == 0);
    assert!(!provider.enabled(4, 1));
}

fn a_stop_frees_the_names(stage: &Stage) {
    let config = SessionConfig { guid: new_provider(), ..stage.config() };
    for _ in 0..3 {
        stage.end(stage.start(&config));
    }
}

fn a_flush_writes_active_buffers(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    let path = session.properties.config.log_file.clone().unwrap();
    let length = || std::fs::metadata(&path).unwrap().len();
    let before = length();
    provider.write(&event(1, 4, 1), &[b"x"]).unwrap();
    let after = stage.controller().flush(&session.id, None).unwrap();
    assert_eq!(after.events, 1);
    assert!(length() > before);
}

fn each_flush_is_a_snapshot(stage: &Stage) {
    let config = SessionConfig { log_file_mode: 0x400, log_file: None, ..stage.config() };
    let (guid, session) = (new_provider(), stage.start(&config));
    let provider = Provider::register(guid, None).unwrap();
    stage.enable(&session, guid, &EnableParams::default());
    let (one, two) = (stage.path(), stage.path());
    provider.write(&event(1, 4, 1), &[]).unwrap();
    stage.controller().flush(&session.id, Some(one.clone())).unwrap();
    provider.write(&event(2, 4, 1), &[]).unwrap();
    stage.controller().flush(&session.id, Some(two.clone())).unwrap();
    stage.end(session);
    let ids =
        |path: &std::path::Path| events_of(path).iter().map(|event| event.descriptor.id).collect::<Vec<_>>();
    assert_eq!((ids(&one), ids(&two)), (vec![1], vec![1, 2]));
}

fn a_session_must_be_named(stage: &Stage) {
    let mut controller = stage.controller();
    for nothing in [SessionRef::Id(0), SessionRef::Name(String::new())] {
        assert_eq!(status(controller.query(&nothing)), 87, "{nothing:?}");
    }
}

fn not_running(stage: &Stage) {
    let session = stage.start(&stage.config());
    let old = [session.id.clone(), SessionRef::Name(session.properties.config.name.clone())];
    stage.end(session);
    let never = [SessionRef::Id(0x77_0001), SessionRef::Name("nobody has this name".to_owned())];
    let mut controller = stage.controller();
    for session in old.iter().chain(&never) {
        assert_eq!(status(controller.query(session)), 4201, "query {session:?}");
        assert_eq!(status(controller.stop(session)), 4201, "stop {session:?}");
        assert_eq!(status(controller.flush(session, None)), 4201, "flush {session:?}");
        let update = Update { flush_timer: Some(3), ..Update::default() };
        assert_eq!(status(controller.update(session, &update)), 4201, "update {session:?}");
    }
}

fn a_second_stop(stage: &Stage) {
    let (guid, session) = (new_provider(), stage.start(&stage.config()));
    let other = Other::start(guid, None);
    stage.enable(&session, guid, &EnableParams::default());
    // A process that does not answer delays the first stop.
    other.freeze();
    let id = session.id.clone();
    let mut controller = stage.controller();
    let first = std::thread::spawn(move || status(controller.stop(&id)));
    until("the first stop", || status(stage.controller().flush(&session.id, None)) != 0);
    assert_eq!(status(stage.controller().stop(&session.id)), 2402);
    assert_eq!(first.join().unwrap(), 0);
}

fn snapshots_do_not_overwrite_logs(stage: &Stage) {
    let log = stage.start(&stage.config());
    let recorder = stage.start(&SessionConfig { log_file_mode: 0x400, log_file: None, ..stage.config() });
    let path = log.properties.config.log_file.clone();
    assert_eq!(status(stage.controller().flush(&recorder.id, path)), 161);
    assert_eq!(stage.stop(log), []);
}
