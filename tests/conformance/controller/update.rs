//! Rules for UPDATE: which properties change and which stay. `rule.rs` explains the rows.

use traceweir::controller::{EnableParams, Properties, SessionConfig, Update};
use traceweir_format::spec::session::{EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_REAL_TIME_MODE};

use crate::helpers::{
    BAD_PATHNAME, Fixture, INSTANCE_NOT_FOUND, INVALID_PARAMETER, PATH_NOT_FOUND, SUCCESS, Session, event,
    events_of, status,
};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 4.1 #FlushTimer", D, "a new flush timer applies; 0 keeps the old one", flush_timer_changes),
    rule!("controller 4.1 #LogFileName", D, "the session continues in the new file; earlier events are in the old one",
        log_file_switches),
    rule!("controller 4.1 #LogFileName", P, "the name of the current file → 161", the_same_file_is_refused),
    rule!("controller 4.1 #LogFileName", D, "the file of another session → 161",
        another_sessions_file_is_refused),
    rule!("controller 4.1 #LogFileName", D, "in buffering mode a snapshot is written to the new file",
        flight_recorder_writes_a_snapshot_to_its_new_file),
    rule!("controller 4.1 #LogFileName", D, "without a file name, the file stays", log_file_stays_without_a_new_name),
    rule!("controller 4.1 #LogFileMode", D, "real-time is switched on and off", real_time_switches),
    rule!("controller 4.1 #EnableFlags", D, "a value other than 0 for a session that receives no kernel events → 87",
        enable_flags_update_needs_a_system_logger),
    rule!("controller 4.1 #LogFileName", P, "a new file in a missing directory → 3, and the session continues",
        missing_folder_keeps_the_session),
    rule!("controller 4.1 #MaximumBuffers", D, "a new maximum applies; 0 keeps the old one", maximum_buffers_change),
    rule!("controller 4.1 #MaximumBuffers", D, "in buffering mode the maximum is ignored: there are as many buffers as the minimum",
        flight_recorder_ignores_the_maximum),
];

#[track_caller]
fn update_session(fixture: &Fixture, session: &Session, update: Update) -> Properties {
    fixture.connect().update(&session.id, &update).expect("the session was not updated")
}

fn flush_timer_changes(fixture: &Fixture) {
    let session = fixture.start(&SessionConfig { flush_timer: 9, ..fixture.config() });
    let properties = update_session(fixture, &session, Update { flush_timer: Some(4), ..Update::default() });
    assert_eq!(properties.config.flush_timer, 4);
    let properties = update_session(fixture, &session, Update { flush_timer: Some(0), ..Update::default() });
    assert_eq!(properties.config.flush_timer, 4);
    assert_eq!(fixture.query(&session).config.flush_timer, 4);
}

fn log_file_switches(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let (old_path, new_path) = (session.properties.config.log_file.clone().unwrap(), fixture.unique_path());
    provider.write(&event(1), &[]).unwrap();
    let properties =
        update_session(fixture, &session, Update { log_file: Some(new_path.clone()), ..Update::default() });
    assert_eq!(properties.config.log_file.as_ref(), Some(&new_path));
    provider.write(&event(2), &[]).unwrap();
    let ids = |seen: &[crate::helpers::RecordedEvent]| {
        seen.iter().map(|event| event.descriptor.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&fixture.stop_and_read(session)), [2]);
    assert_eq!(ids(&events_of(&old_path)), [1]);
}

fn the_same_file_is_refused(fixture: &Fixture) {
    let session = fixture.start(&fixture.config());
    let same_file = Update { log_file: session.properties.config.log_file.clone(), ..Update::default() };
    assert_eq!(status(fixture.connect().update(&session.id, &same_file)), BAD_PATHNAME);
    assert_eq!(fixture.stop_and_read(session), [], "the refused update changed the log");
}

fn another_sessions_file_is_refused(fixture: &Fixture) {
    let (first, second) = (fixture.start(&fixture.config()), fixture.start(&fixture.config()));
    let file_of_second = Update { log_file: second.properties.config.log_file.clone(), ..Update::default() };
    assert_eq!(status(fixture.connect().update(&first.id, &file_of_second)), BAD_PATHNAME);
    assert_eq!((fixture.stop_and_read(first), fixture.stop_and_read(second)), (vec![], vec![]));
}

fn flight_recorder_writes_a_snapshot_to_its_new_file(fixture: &Fixture) {
    let config =
        SessionConfig { log_file_mode: EVENT_TRACE_BUFFERING_MODE, log_file: None, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    provider.write(&event(1), &[]).unwrap();
    let path = fixture.unique_path();
    update_session(fixture, &session, Update { log_file: Some(path.clone()), ..Update::default() });
    assert_eq!(events_of(&path).len(), 1);
}

fn log_file_stays_without_a_new_name(fixture: &Fixture) {
    let session = fixture.start(&fixture.config());
    let properties = update_session(fixture, &session, Update::default());
    assert_eq!(properties.config, session.properties.config);
}

fn real_time_switches(fixture: &Fixture) {
    use traceweir::consumer::Trace;
    let session = fixture.start(&fixture.config());
    assert_eq!(status(Trace::live(&session.properties.config.name)), INSTANCE_NOT_FOUND);
    let properties = update_session(fixture, &session, Update { real_time: Some(true), ..Update::default() });
    assert_eq!(
        (properties.config.log_file_mode & EVENT_TRACE_REAL_TIME_MODE, properties.config.flush_timer),
        (EVENT_TRACE_REAL_TIME_MODE, 1)
    );
    assert_eq!(status(Trace::live(&session.properties.config.name)), SUCCESS);
    let properties =
        update_session(fixture, &session, Update { real_time: Some(false), ..Update::default() });
    assert_eq!(properties.config.log_file_mode & EVENT_TRACE_REAL_TIME_MODE, 0);
    assert_eq!(status(Trace::live(&session.properties.config.name)), INSTANCE_NOT_FOUND);
}

fn maximum_buffers_change(fixture: &Fixture) {
    let session = fixture.start(&SessionConfig { maximum_buffers: 60, ..fixture.config() });
    let properties =
        update_session(fixture, &session, Update { maximum_buffers: Some(90), ..Update::default() });
    assert_eq!(properties.config.maximum_buffers, 90);
    let properties =
        update_session(fixture, &session, Update { maximum_buffers: Some(0), ..Update::default() });
    assert_eq!(properties.config.maximum_buffers, 90);
}

fn flight_recorder_ignores_the_maximum(fixture: &Fixture) {
    let config = SessionConfig {
        log_file_mode: EVENT_TRACE_BUFFERING_MODE,
        minimum_buffers: 40,
        log_file: None,
        ..fixture.config()
    };
    let session = fixture.start(&config);
    for maximum in [1, 90] {
        let properties =
            update_session(fixture, &session, Update { maximum_buffers: Some(maximum), ..Update::default() });
        assert_eq!((properties.config.minimum_buffers, properties.config.maximum_buffers), (40, 40));
    }
}

fn enable_flags_update_needs_a_system_logger(fixture: &Fixture) {
    let session = fixture.start(&fixture.config());
    let update_of = |flags| Update { enable_flags: Some(flags), ..Update::default() };
    assert_eq!(status(fixture.connect().update(&session.id, &update_of(1))), INVALID_PARAMETER);
    assert_eq!(status(fixture.connect().update(&session.id, &update_of(0))), SUCCESS);
}

fn missing_folder_keeps_the_session(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let update = Update { log_file: Some(fixture.folder().join("missing/x.etl")), ..Update::default() };
    assert_eq!(status(fixture.connect().update(&session.id, &update)), PATH_NOT_FOUND);
    provider.write(&event(1), &[]).unwrap();
    assert_eq!(fixture.stop_and_read(session).len(), 1);
}
