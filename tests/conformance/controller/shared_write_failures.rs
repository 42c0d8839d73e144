//! Rules for write failures that sessions share. `rule.rs` explains the rows.

use traceweir::Provider;
use traceweir::controller::{EnableParams, SessionConfig};
use traceweir_format::spec::session::{
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_INDEPENDENT_SESSION_MODE,
};

use crate::helpers::{Fixture, MORE_DATA, Session, event, new_guid};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 2.2", D, "an event that cannot be written to one session is written to none", event_that_fails_in_one_session_reaches_none),
    rule!("controller 2 #0x8000000", D, "an independent session neither shares the failures of other sessions nor causes theirs",
        independent_sessions_fail_alone),
];

const INDEPENDENT: u32 = EVENT_TRACE_INDEPENDENT_SESSION_MODE | EVENT_TRACE_FILE_MODE_SEQUENTIAL;

/// Starts two sessions for one provider, with small and with large buffers: an event of 5,000 bytes
/// fits only into large buffers.
fn start_pair(fixture: &Fixture, small_mode: u32, large_mode: u32) -> (Session, Session, Provider) {
    let guid = new_guid();
    let provider = Provider::register(guid, None).unwrap();
    let start = |mode, buffer_size| {
        let session = fixture.start(&SessionConfig { log_file_mode: mode, buffer_size, ..fixture.config() });
        fixture.enable(&session, guid, &EnableParams::default());
        session
    };
    (start(small_mode, 4), start(large_mode, 64), provider)
}

/// Stops a session and returns how many events it recorded and lost.
fn stop_and_count(fixture: &Fixture, session: Session) -> (u64, u64) {
    let end = fixture.stop(session);
    (end.events, end.events_lost)
}

fn event_that_fails_in_one_session_reaches_none(fixture: &Fixture) {
    let (small, large, provider) =
        start_pair(fixture, EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_FILE_MODE_SEQUENTIAL);
    assert_eq!(provider.write(&event(1), &[&[0; 5_000]]).map_err(|e| e.status()), Err(MORE_DATA));
    provider.write(&event(2), &[b"fits"]).unwrap();
    assert_eq!((stop_and_count(fixture, small), stop_and_count(fixture, large)), ((1, 1), (1, 1)));
}

fn independent_sessions_fail_alone(fixture: &Fixture) {
    for (small_mode, large_mode) in
        [(INDEPENDENT, EVENT_TRACE_FILE_MODE_SEQUENTIAL), (EVENT_TRACE_FILE_MODE_SEQUENTIAL, INDEPENDENT)]
    {
        let (small, large, provider) = start_pair(fixture, small_mode, large_mode);
        assert_eq!(provider.write(&event(1), &[&[0; 5_000]]).map_err(|e| e.status()), Err(MORE_DATA));
        assert_eq!(
            (stop_and_count(fixture, small), stop_and_count(fixture, large)),
            ((0, 1), (1, 0)),
            "modes {small_mode:#x} and {large_mode:#x}"
        );
    }
}
