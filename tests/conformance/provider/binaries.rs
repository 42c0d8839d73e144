//! Rules for binary tracking: every session that enables a provider records the path of the
//! provider's module. `rule.rs` explains the rows.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use traceweir::consumer::{self, Item, Trace};
use traceweir::controller::{EnableCode, EnableParams, SessionConfig};
use traceweir::private::PrivateSession;
use traceweir::{Guid, Provider};
use traceweir_format::binary_path::BinaryPath;
use traceweir_format::header::Record;
use traceweir_format::spec::event::{EventInfoClass, class};
use traceweir_format::spec::session::{
    EVENT_TRACE_COMPRESSED_MODE, EVENT_TRACE_FILE_MODE_APPEND, EVENT_TRACE_FILE_MODE_CIRCULAR,
    EVENT_TRACE_FILE_MODE_NEWFILE, EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_REAL_TIME_MODE,
};
use traceweir_format::tracelogging::TraitsBuilder;

use crate::helpers::{Fixture, RecordedEvent, Session, event, events_of, new_guid};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("info 3.18", D, "the session gets an event of EventTraceGuid, opcode 0x43, that connects GUID and path",
        binary_path_is_recorded),
    rule!("info 3.18", D, "file sessions have the event among their first events",
        binary_path_precedes_other_events),
    rule!("info 3.18", D, "real-time sessions get the event live", binary_path_is_delivered_live),
    rule!("info 3.18", D, "sessions that enable the provider later get the event, too",
        later_sessions_get_the_binary_path),
    rule!("info 3.18", P, "each file of a file sequence, and a circular log, has the event",
        each_file_has_the_binary_path),
    rule!("info 3.18", P, "an appended or compressed file has the event",
        appended_and_compressed_files_have_the_binary_path),
    rule!("info 3.18", P, "after the path comes the build id in hexadecimal, empty if unknown; the decode GUID is recorded too",
        binary_path_has_build_id_and_decode_guid),
    rule!("info 3.18", P, "private sessions in the process get the event, too",
        private_sessions_get_the_binary_path),
    rule!("provider 6 #BinaryTrackInfo", D, "if the provider does not set BinaryTrackInfo, the event is not recorded",
        binary_path_needs_the_call),
    rule!("provider 6 #BinaryTrackInfo", P, "the event is recorded once per registration, even if requested several times",
        binary_path_is_recorded_once),
];

const BINARY_PATH_OPCODE: u8 = 0x43;

fn track_binary(provider: &Provider) {
    provider.set_information(EventInfoClass::EventProviderBinaryTrackInfo.0, None).unwrap();
}

/// Returns the binary paths among these events.
fn binary_paths(seen: &[RecordedEvent]) -> Vec<BinaryPath> {
    let is_binary_path = |event: &&RecordedEvent| {
        event.provider == class::EVENT_TRACE && event.descriptor.opcode == BINARY_PATH_OPCODE
    };
    seen.iter().filter(is_binary_path).map(|event| BinaryPath::parse(&event.payload).unwrap()).collect()
}

/// Returns whether the binary path is that of this program, for this provider.
fn is_own_binary(binary: &BinaryPath, provider: Guid) -> bool {
    let program = std::fs::canonicalize("/proc/self/exe").unwrap();
    binary.guids.first() == Some(&provider)
        && binary.process_id == std::process::id()
        && Path::new(&binary.path) == program
}

/// Fails unless the file has exactly one binary path: that of this program, for this provider.
#[track_caller]
fn assert_binary_recorded(path: &Path, provider: Guid) {
    let binaries = binary_paths(&events_of(path));
    assert!(
        matches!(&binaries[..], [binary] if is_own_binary(binary, provider)),
        "{}: {binaries:?}",
        path.display()
    );
}

fn binary_path_is_recorded(fixture: &Fixture) {
    let (session, provider, guid) = fixture.start_with_provider(&EnableParams::default());
    track_binary(&provider);
    let seen = fixture.stop_and_read(session);
    let [binary] = &binary_paths(&seen)[..] else { panic!("not one binary path: {seen:?}") };
    assert!(is_own_binary(binary, guid), "{binary:?}");
    assert_eq!(binary.tag, provider.handle().to_raw());
    assert_eq!(seen[0].process, std::process::id());
}

fn binary_path_precedes_other_events(fixture: &Fixture) {
    let (session, provider, guid) = fixture.start_with_provider(&EnableParams::default());
    for _ in 0..1_000 {
        provider.write(&event(1), &[&[0; 100]]).unwrap();
    }
    fixture.connect().flush(&session.id, None).unwrap();
    track_binary(&provider);
    fixture.connect().flush(&session.id, None).unwrap();
    let path = session.properties.config.log_file.clone().unwrap();
    let end = fixture.stop(session);
    let seen = events_of(&path);
    assert!(is_own_binary(&binary_paths(&seen[..1])[0], guid), "the binary path is not the first event");
    // The session does not count the event with the path.
    assert_eq!((seen.len(), end.events), (1_001, 1_000));
}

fn binary_path_is_delivered_live(fixture: &Fixture) {
    let config =
        SessionConfig { log_file_mode: EVENT_TRACE_REAL_TIME_MODE, log_file: None, ..fixture.config() };
    let (session, provider, guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    let trace = Trace::live(&session.properties.config.name).unwrap();
    track_binary(&provider);
    fixture.connect().flush(&session.id, None).unwrap();
    let mut binaries = Vec::new();
    let start = Instant::now();
    let id = session.id.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            let _ = fixture.connect().stop(&id);
        });
        let result = consumer::process(vec![trace], |item| {
            if let Item::Event(event) = item
                && BinaryPath::is_in(event.record)
            {
                binaries.push(BinaryPath::parse(event.record.payload()).unwrap());
            }
            if start.elapsed().as_secs() > 20 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        result.unwrap();
    });
    assert!(matches!(&binaries[..], [binary] if is_own_binary(binary, guid)), "{binaries:?}");
}

fn later_sessions_get_the_binary_path(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    let provider = Provider::register(guid, None).unwrap();
    track_binary(&provider);
    fixture.enable(&session, guid, &EnableParams::default());
    let second = fixture.start(&fixture.config());
    fixture.enable(&second, guid, &EnableParams::default());
    for session in [session, second] {
        assert_binary_recorded(&fixture.stop(session).config.log_file.unwrap(), guid);
    }
}

/// Starts a session with this configuration, and enables a new provider that tracks its binary.
fn start_tracked_session(fixture: &Fixture, config: &SessionConfig) -> (Session, Provider, Guid) {
    let (guid, session) = (new_guid(), fixture.start(config));
    let provider = Provider::register(guid, None).unwrap();
    track_binary(&provider);
    fixture.enable(&session, guid, &EnableParams::default());
    (session, provider, guid)
}

fn each_file_has_the_binary_path(fixture: &Fixture) {
    let pattern = fixture.folder().join(format!("tracked {}-%d.etl", crate::helpers::unique_number()));
    let file = |number: u32| pattern.to_string_lossy().replace("%d", &number.to_string());
    let config = SessionConfig {
        log_file_mode: EVENT_TRACE_FILE_MODE_NEWFILE,
        maximum_file_size: 1,
        log_file: Some(pattern.clone()),
        ..fixture.config()
    };
    let (session, provider, guid) = start_tracked_session(fixture, &config);
    for _ in 0..2 {
        provider.write(&event(1), &[]).unwrap();
        fixture.connect().increment(&session.id).unwrap();
    }
    drop(fixture.stop(session));
    for number in 1..=3 {
        assert_binary_recorded(Path::new(&file(number)), guid);
    }
    let circular = SessionConfig {
        log_file_mode: EVENT_TRACE_FILE_MODE_CIRCULAR,
        maximum_file_size: 1,
        ..fixture.config()
    };
    let (session, provider, guid) = start_tracked_session(fixture, &circular);
    for _ in 0..6_000 {
        let _ = provider.write(&event(1), &[&[0; 500]]);
        if provider.write(&event(1), &[]).is_err() {
            fixture.connect().flush(&session.id, None).unwrap();
        }
    }
    assert_binary_recorded(&fixture.stop(session).config.log_file.unwrap(), guid);
}

fn appended_and_compressed_files_have_the_binary_path(fixture: &Fixture) {
    for (log_file_mode, clock) in [
        (EVENT_TRACE_FILE_MODE_APPEND, 2),
        (EVENT_TRACE_COMPRESSED_MODE | EVENT_TRACE_FILE_MODE_SEQUENTIAL, 1),
    ] {
        let config = SessionConfig { log_file_mode, clock, ..fixture.config() };
        let (session, _provider, guid) = start_tracked_session(fixture, &config);
        assert_binary_recorded(&fixture.stop(session).config.log_file.unwrap(), guid);
    }
}

fn binary_path_has_build_id_and_decode_guid(fixture: &Fixture) {
    let (guid, decode, session) = (new_guid(), new_guid(), fixture.start(&fixture.config()));
    let traits = TraitsBuilder::new("Tracked").decode_guid(&decode).finish().unwrap().to_vec();
    let provider = Provider::register_with_traits(guid, &traits, None).unwrap();
    track_binary(&provider);
    fixture.enable(&session, guid, &EnableParams::default());
    let binaries = binary_paths(&fixture.stop_and_read(session));
    assert_eq!(binaries[0].guids, [guid, decode]);
    let id = &binaries[0].build_id;
    assert!(id.chars().all(|digit| digit.is_ascii_hexdigit()) && id.len().is_multiple_of(2), "{id}");
}

fn private_sessions_get_the_binary_path(fixture: &Fixture) {
    let config = fixture.config();
    let path = config.log_file.clone().unwrap();
    let (guid, session) = (new_guid(), PrivateSession::start(&config).unwrap());
    let provider = Provider::register(guid, None).unwrap();
    session.enable(guid, &EnableParams::default()).unwrap();
    track_binary(&provider);
    assert_eq!(session.stop().unwrap().events_lost, 0);
    assert_binary_recorded(&path, guid);
}

fn binary_path_needs_the_call(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    provider.write(&event(1), &[]).unwrap();
    assert_eq!(fixture.stop_and_read(session).len(), 1);
}

fn binary_path_is_recorded_once(fixture: &Fixture) {
    let (session, provider, guid) = fixture.start_with_provider(&EnableParams::default());
    track_binary(&provider);
    track_binary(&provider);
    let params = EnableParams::default();
    fixture.connect().enable(&session.id, guid, EnableCode::CaptureState, &params, 10_000).unwrap();
    fixture.disable(&session, guid);
    fixture.enable(&session, guid, &params);
    let seen = fixture.stop_and_read(session);
    assert_eq!(binary_paths(&seen).len(), 1, "{seen:?}");
    let record = binary_paths(&seen)[0].to_record().unwrap();
    assert!(BinaryPath::is_in(&Record::parse(&record, 0).unwrap()));
}
