//! Rules for write failures that sessions share, and for provider groups. `rule.rs` explains the
//! rows.

use traceweir::controller::{EnableCode, EnableParams, SessionConfig};
use traceweir::{Guid, Provider};
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::session::{
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_INDEPENDENT_SESSION_MODE,
};
use traceweir_format::tracelogging::TraitsBuilder;

use crate::helpers::{
    Fixture, KEYWORD, LEVEL, MORE_DATA, SUCCESS, Session, enable_params, event, event_with, new_guid, status,
};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 2.2", D, "an event that cannot be written to one session is written to none", event_that_fails_in_one_session_reaches_none),
    rule!("controller 2 #0x8000000", D, "an independent session neither shares the failures of other sessions nor causes theirs",
        independent_sessions_fail_alone),
    rule!("controller 6 #PROVIDER_GROUP", D, "the GUID names a group: its members are enabled",
        a_group_is_enabled),
    rule!("controller 6 #PROVIDER_GROUP", D, "a member that registers later is enabled too, a provider with the group's GUID is not",
        later_group_member_is_enabled),
    rule!("controller 6 #PROVIDER_GROUP", D, "disabling the group disables its members", a_group_is_disabled),
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

fn register_member(group: Guid) -> Provider {
    let traits = TraitsBuilder::new("Member").group(&group).finish().unwrap().to_vec();
    Provider::register_with_traits(new_guid(), &traits, None).unwrap()
}

fn group_params(level: u8) -> EnableParams {
    EnableParams { property: EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, ..enable_params(level, 0, 0) }
}

fn a_group_is_enabled(fixture: &Fixture) {
    let (group, session) = (new_guid(), fixture.start(&fixture.config()));
    let (first, second, other_groups_member) =
        (register_member(group), register_member(group), register_member(new_guid()));
    fixture.enable(&session, group, &group_params(3));
    for (id, provider) in [&first, &second, &other_groups_member].into_iter().enumerate() {
        provider.write(&event_with(u16::try_from(id).unwrap(), 3, 1), &[]).unwrap();
        provider.write(&event(9), &[]).unwrap();
    }
    let ids: Vec<u16> = fixture.stop_and_read(session).iter().map(|seen| seen.descriptor.id).collect();
    assert_eq!(ids, [0, 1]);
}

fn later_group_member_is_enabled(fixture: &Fixture) {
    let (group, session) = (new_guid(), fixture.start(&fixture.config()));
    fixture.enable(&session, group, &group_params(0));
    assert!(register_member(group).enabled(LEVEL, KEYWORD), "the later member is not enabled");
    assert!(
        !Provider::register(group, None).unwrap().enabled(LEVEL, KEYWORD),
        "a provider that is not a member is enabled"
    );
}

fn a_group_is_disabled(fixture: &Fixture) {
    let (group, session) = (new_guid(), fixture.start(&fixture.config()));
    let provider = register_member(group);
    fixture.enable(&session, group, &group_params(0));
    assert!(provider.enabled(LEVEL, KEYWORD));
    let disabled =
        fixture.connect().enable(&session.id, group, EnableCode::Disable, &group_params(0), 10_000);
    assert_eq!(status(disabled), SUCCESS);
    assert!(!provider.enabled(LEVEL, KEYWORD), "the member is still enabled");
}
