//! Rules for in-process sessions: private sessions that the traced process starts itself.
//! `rule.rs` explains the rows.

use traceweir::Provider;
use traceweir::controller::{EnableParams, SessionConfig};
use traceweir::private::PrivateSession;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::session::{
    EVENT_TRACE_FILE_MODE_NEWFILE, EVENT_TRACE_FILE_MODE_PREALLOCATE, EVENT_TRACE_FILE_MODE_SEQUENTIAL,
    EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE, EVENT_TRACE_REAL_TIME_MODE,
};

use crate::helpers::{
    BAD_PATHNAME, CallbackLog, Fixture, INVALID_PARAMETER, NO_SYSTEM_RESOURCES, event, events_of, header_of,
    new_guid, status,
};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 10", D, "the session receives the events of its own process",
        private_session_gets_events_of_its_process),
    rule!("controller 10", D, "a fourth in-process session → 1450",
        fourth_in_process_session_is_refused),
    rule!("controller 10", D, "an in-process session with real-time, new-file or preallocate → 87",
        private_session_modes_are_limited),
    rule!("controller 10", D, "an enable of a provider group by an in-process session → 87", in_process_session_refuses_groups),
    rule!("controller 10", D, "a private session and a daemon's session both get an event",
        private_and_daemon_session_both_get_the_event),
    rule!("controller 10", D, "the file header has the modes of an in-process session",
        private_mode_is_in_the_file_header),
    rule!("controller 3.2 #12", D, "the file of another private session → 161",
        private_sessions_cannot_share_a_file),
    rule!("controller 10", D, "the callback is called for private sessions too",
        callbacks_are_called_for_private_sessions),
];

const IN_PROCESS: u32 = EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC;

fn private_session_gets_events_of_its_process(fixture: &Fixture) {
    let (guid, config) = (new_guid(), fixture.config());
    let session = PrivateSession::start(&config).unwrap();
    session.enable(guid, &EnableParams::default()).unwrap();
    let provider = Provider::register(guid, None).unwrap();
    provider.write(&event(1), &[b"own"]).unwrap();
    assert_eq!(session.stop().unwrap().events, 1);
    let seen = events_of(&config.log_file.unwrap());
    assert_eq!((seen.len(), seen[0].process), (1, std::process::id()));
}

fn fourth_in_process_session_is_refused(fixture: &Fixture) {
    let mut sessions: Vec<_> = (0..3).map(|_| PrivateSession::start(&fixture.config()).unwrap()).collect();
    assert_eq!(status(PrivateSession::start(&fixture.config())), NO_SYSTEM_RESOURCES);
    sessions.pop().unwrap().stop().unwrap();
    PrivateSession::start(&fixture.config()).unwrap().stop().unwrap();
}

fn private_session_modes_are_limited(fixture: &Fixture) {
    for mode in [
        EVENT_TRACE_REAL_TIME_MODE,
        EVENT_TRACE_FILE_MODE_NEWFILE,
        EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_FILE_MODE_PREALLOCATE,
    ] {
        let log_file = Some(fixture.folder().join("private %d.etl"));
        let config =
            SessionConfig { log_file_mode: mode, maximum_file_size: 8, log_file, ..fixture.config() };
        assert_eq!(status(PrivateSession::start(&config)), INVALID_PARAMETER, "mode {mode:#x}");
    }
}

fn in_process_session_refuses_groups(fixture: &Fixture) {
    let session = PrivateSession::start(&fixture.config()).unwrap();
    let group_params =
        EnableParams { property: EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, ..EnableParams::default() };
    assert_eq!(status(session.enable(new_guid(), &group_params)), INVALID_PARAMETER);
}

fn private_and_daemon_session_both_get_the_event(fixture: &Fixture) {
    let config = fixture.config();
    let private = PrivateSession::start(&config).unwrap();
    let (session, provider, guid) = fixture.start_with_provider(&EnableParams::default());
    private.enable(guid, &EnableParams::default()).unwrap();
    provider.write(&event(1), &[b"both"]).unwrap();
    private.stop().unwrap();
    assert_eq!((fixture.stop_and_read(session).len(), events_of(&config.log_file.unwrap()).len()), (1, 1));
}

fn private_mode_is_in_the_file_header(fixture: &Fixture) {
    let config = fixture.config();
    PrivateSession::start(&config).unwrap().stop().unwrap();
    assert_eq!(header_of(&config.log_file.unwrap()).log_file_mode & IN_PROCESS, IN_PROCESS);
}

fn private_sessions_cannot_share_a_file(fixture: &Fixture) {
    let config = fixture.config();
    let _first = PrivateSession::start(&config).unwrap();
    let second = SessionConfig { name: "another".to_owned(), ..config };
    assert_eq!(status(PrivateSession::start(&second)), BAD_PATHNAME);
}

fn callbacks_are_called_for_private_sessions(fixture: &Fixture) {
    let (calls, guid) = (CallbackLog::default(), new_guid());
    let _provider = Provider::register(guid, calls.callback()).unwrap();
    let session = PrivateSession::start(&fixture.config()).unwrap();
    session.enable(guid, &crate::helpers::enable_params(3, 5, 1)).unwrap();
    assert_eq!(calls.last().code_level_masks(), (1, 3, 5, 1));
    session.stop().unwrap();
    assert_eq!(calls.last().code, 0);
}
