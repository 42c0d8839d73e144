//! Rules for limits: each test reaches a limit. `rule.rs` explains the rows.

use traceweir::controller::info::{Answer, Query};
use traceweir::controller::{EnableParams, NO_SESSION, SessionConfig};
use traceweir::private::PrivateSession;
use traceweir::provider::MAX_REGISTRATIONS;
use traceweir::{Guid, Provider};
use traceweir_format::spec::session::{
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING, EVENT_TRACE_REAL_TIME_MODE,
};

use crate::controller::daemon::{connect_to, start_with_settings};
use crate::helpers::{
    DISK_FULL, Fixture, KEYWORD, LEVEL, NO_SYSTEM_RESOURCES, Session, event, new_guid, status,
};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 3.2 #15", D, "a 65th session → 1450, and nothing changes",
        sixty_fifth_session_is_refused),
    rule!("controller 3.2 #14, #15", P, "the free disk space is checked before the number of sessions",
        full_disk_is_reported_before_session_limit),
    rule!("provider 2", D, "a 1,025th registration in a process → 1450", registration_1025_is_refused),
    rule!("controller 6", D, "a ninth session that enables a provider → 1450, and nothing changes",
        ninth_enable_of_a_provider_is_refused),
    rule!("api 4", D, "a buffer of 16 MiB works; larger sizes are clamped, not refused",
        buffers_of_16_mib_are_the_largest),
    rule!("api 4", D, "an event of 128 blocks can have the maximum size", event_of_128_blocks_is_written),
    rule!("api 4", D, "the session limit can be set from 32 to 256; one more session → 1450",
        session_limit_can_be_configured),
    rule!("controller 10", D, "private sessions do not count toward the limit of 64 sessions",
        private_sessions_do_not_count_as_sessions),
];

/// Returns the configuration of a session with as little memory as possible.
fn small_config(fixture: &Fixture) -> SessionConfig {
    SessionConfig { buffer_size: 4, maximum_buffers: 1, ..fixture.config() }
}

fn sixty_fifth_session_is_refused(fixture: &Fixture) {
    let (guid, sessions): (Guid, Vec<Session>) =
        (new_guid(), (0..64).map(|_| fixture.start(&small_config(fixture))).collect());
    let provider = Provider::register(guid, None).unwrap();
    fixture.enable(&sessions[0], guid, &EnableParams::default());
    let query_all = || {
        let sessions = fixture.connect().query_all().unwrap().into_iter();
        sessions.map(|session| (session.id, session.config)).collect::<Vec<_>>()
    };
    let before = query_all();
    assert_eq!(before.len(), 64);
    let one_more = small_config(fixture);
    assert_eq!(fixture.start_status(&one_more), NO_SYSTEM_RESOURCES);
    assert!(!one_more.log_file.unwrap().exists(), "the refused session left a file");
    assert_eq!(query_all(), before);
    assert!(provider.enabled(LEVEL, KEYWORD), "the refused session disabled the provider");
    let mut sessions = sessions;
    fixture.stop(sessions.pop().unwrap());
    fixture.stop(fixture.start(&small_config(fixture)));
}

fn full_disk_is_reported_before_session_limit(fixture: &Fixture) {
    let sessions: Vec<Session> = (0..64).map(|_| fixture.start(&small_config(fixture))).collect();
    let huge = SessionConfig { maximum_file_size: u32::MAX, ..small_config(fixture) };
    assert_eq!(fixture.start_status(&huge), DISK_FULL);
    let config = small_config(fixture);
    let path = config.log_file.clone().unwrap();
    std::fs::write(&path, "old").unwrap();
    assert_eq!(fixture.start_status(&config), NO_SYSTEM_RESOURCES);
    assert_eq!(std::fs::read(path).unwrap(), b"old", "the refused session changed the file");
    drop(sessions);
}

fn registration_1025_is_refused(fixture: &Fixture) {
    let (session, provider, guid) = fixture.start_with_provider(&EnableParams::default());
    let mut registrations = Vec::new();
    let refusal = loop {
        match Provider::register(guid, None) {
            Ok(provider) => registrations.push(provider),
            Err(e) => break e.status(),
        }
        assert!(registrations.len() < 2 * MAX_REGISTRATIONS, "no registration was refused");
    };
    assert_eq!((refusal, registrations.len() + 1), (NO_SYSTEM_RESOURCES, MAX_REGISTRATIONS));
    assert!(
        registrations.iter().all(|provider| provider.enabled(LEVEL, KEYWORD)),
        "a registration is not enabled"
    );
    registrations.last().unwrap().write(&event(1), &[]).unwrap();
    provider.write(&event(2), &[]).unwrap();
    registrations.pop();
    registrations.push(Provider::register(guid, None).unwrap());
    assert_eq!(status(Provider::register(guid, None)), NO_SYSTEM_RESOURCES);
    drop(registrations);
    assert_eq!(fixture.stop_and_read(session).len(), 2);
}

fn ninth_enable_of_a_provider_is_refused(fixture: &Fixture) {
    let guid = new_guid();
    let provider = Provider::register(guid, None).unwrap();
    let mut sessions: Vec<Session> = (0..9).map(|_| fixture.start(&small_config(fixture))).collect();
    let ninth = sessions.pop().unwrap();
    for session in &sessions {
        fixture.enable(session, guid, &EnableParams::default());
    }
    let find_entry = || {
        fixture
            .connect()
            .provider_entries()
            .unwrap()
            .into_iter()
            .find(|entry| entry.provider == guid)
            .unwrap()
    };
    let before = find_entry();
    assert_eq!(status(fixture.try_enable(&ninth, guid, &EnableParams::default())), NO_SYSTEM_RESOURCES);
    assert_eq!(find_entry(), before);
    assert_eq!(before.sessions.len(), 8);
    fixture.enable(&sessions[0], guid, &crate::helpers::enable_params(4, 0, 0));
    provider.write(&event(1), &[b"to eight"]).unwrap();
    fixture.disable(&sessions[7], guid);
    fixture.enable(&ninth, guid, &EnableParams::default());
    assert_eq!(fixture.stop_and_read(ninth), []);
    assert!(sessions.into_iter().all(|session| fixture.stop_and_read(session).len() == 1));
}

fn buffers_of_16_mib_are_the_largest(fixture: &Fixture) {
    for requested_kib in [16_384, 16_385, u32::MAX] {
        let config = SessionConfig {
            buffer_size: requested_kib,
            log_file_mode: EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
            ..fixture.config()
        };
        let (guid, session) = (new_guid(), fixture.start(&config));
        assert_eq!(session.properties.config.buffer_size, 16_384, "{requested_kib} KiB");
        let provider = Provider::register(guid, None).unwrap();
        fixture.enable(&session, guid, &EnableParams::default());
        for id in 0..200 {
            while provider.write(&event(id), &[&[0x77; 30_000]]).is_err() {
                std::thread::yield_now();
            }
        }
        let end = fixture.stop(session);
        let seen = crate::helpers::events_of(end.config.log_file.as_deref().unwrap());
        assert_eq!(
            seen.iter().map(|event| event.descriptor.id).collect::<Vec<_>>(),
            (0..200).collect::<Vec<_>>()
        );
    }
}

fn event_of_128_blocks_is_written(fixture: &Fixture) {
    let config = SessionConfig { buffer_size: 128, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    // An event has at most 65,535 bytes, of which the header takes 80. 127 blocks have 511 bytes
    // each; the last block has all other bytes.
    let (block, last_block) = (vec![0xB1; 511], vec![0xE5; 65_535 - 80 - 127 * 511]);
    let mut blocks = vec![&block[..]; 127];
    blocks.push(&last_block);
    assert_eq!(provider.write(&event(1), &blocks), Ok(()));
    let seen = fixture.stop_and_read(session);
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].payload, blocks.concat());
}

fn private_sessions_do_not_count_as_sessions(fixture: &Fixture) {
    let sessions: Vec<Session> = (0..64).map(|_| fixture.start(&small_config(fixture))).collect();
    let private = PrivateSession::start(&fixture.config()).unwrap();
    assert_eq!(fixture.start_status(&small_config(fixture)), NO_SYSTEM_RESOURCES);
    private.stop().unwrap();
    let _private = PrivateSession::start(&fixture.config()).unwrap();
    drop(sessions);
    let _sessions: Vec<Session> = (0..64).map(|_| fixture.start(&small_config(fixture))).collect();
}

fn session_limit_can_be_configured(fixture: &Fixture) {
    // An invalid setting is ignored, so that the default applies.
    for (setting, limit) in [(32, 32), (70, 70), (31, 64), (257, 64)] {
        let (folder, _daemon) = start_with_settings(fixture, &format!("max_sessions = {setting}\n"));
        let mut controller = connect_to(&folder);
        let answer = controller.query_information(&NO_SESSION, Query::MaxLoggers).unwrap();
        assert_eq!(answer, Answer::MaxLoggers(limit), "max_sessions = {setting}");
        let mut start = || {
            controller.start(&SessionConfig {
                log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
                log_file: None,
                ..small_config(fixture)
            })
        };
        assert!((0..limit).all(|_| start().is_ok()), "max_sessions = {setting}: a session was refused");
        assert_eq!(status(start()), NO_SYSTEM_RESOURCES, "max_sessions = {setting}");
    }
}
