//! Which component answers information calls: the library alone, a running daemon, a daemon started
//! for the call, or a session of this process.

use std::path::Path;
use std::time::{Duration, Instant};

use traceweir::controller::info::{Answer, ProfileInterval, Query, Set};
use traceweir::controller::{
    Controller, EnableParams, NO_SESSION, OutputBuffer, Responder, SessionConfig,
    configure_last_branch_record_bytes, enumerate_bytes, query_bytes, set_bytes,
};
use traceweir::{Guid, PrivateSession, Provider};
use traceweir_format::binary_path::BinaryPath;
use traceweir_format::etl;
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::Listener;

use crate::support::until;
use crate::support_daemon::{daemon_program, run_in_own_process, this_test};

fn status(result: traceweir::Result<()>) -> u32 {
    result.err().map_or(0, |e| e.status().0)
}

fn set(session: u64, class: u32, bytes: &[u8]) -> u32 {
    status(set_bytes(Responder::FoundDaemon, session, class, Some(bytes), bytes.len()))
}

fn query(session: u64, class: u32, length: usize) -> u32 {
    status(query_bytes(Responder::FoundDaemon, session, class, Some(&[0; 4]), length).result)
}

#[test]
fn silent_daemon_does_not_block_classes_that_need_no_daemon() {
    run_in_own_process("info_asked::silent_daemon_does_not_block_classes_that_need_no_daemon", |folder| {
        let silent = Listener::bind(&RuntimeDir::from_path(folder).control_socket(), 0o600).unwrap();
        for (class, session, length) in
            [(7, 0, 1 << 16), (11, 0, 8), (17, 9, 8), (22, 9, 4), (25, 0, 1 << 16)]
        {
            assert_eq!(query(session, class, length), 0, "{class}");
        }
        assert_eq!([query(0, 11, 7), query(9, 19, 3), query(0, 23, 3), query(0, 23, 4)], [24, 24, 24, 87]);
        assert_eq!([set(9, 7, &[]), set(9, 18, &[]), set(0, 18, &[1]), set(9, 5, &[0; 8])], [50, 24, 87, 87]);
        let own = enumerate_bytes(Responder::FoundDaemon, 2, None, OutputBuffer { length: 0, is_null: true });
        assert_eq!((status(own.result), own.return_length), (0, Some(0)));
        let branches =
            |count| configure_last_branch_record_bytes(Responder::FoundDaemon, 9, 0, Some(&[0; 120]), count);
        assert_eq!(status(branches(5)), 87);
        // A call that waits for the daemon connects to it first.
        assert!(silent.accept().unwrap().is_none(), "no call connected to the daemon");
        // A class that needs the daemon waits for it, then fails because the daemon does not
        // answer.
        let start = Instant::now();
        assert_eq!(query(9, 19, 4), 1450);
        assert!(start.elapsed() > Duration::from_secs(2));
        assert!(silent.accept().unwrap().is_some(), "the call connected to the daemon");
    });
}

/// Environment variable of a process that finds no daemon and can start one.
const STARTS: &str = "TRACEWEIR_TEST_STARTS";

#[test]
#[ignore = "run by other tests in a separate process"]
fn starting_role() {
    let Some(folder) = std::env::var_os(STARTS) else { return };
    let folder = Path::new(&folder);
    let is_there = || Controller::find_at(folder).unwrap().is_some();
    let interval = [0_u32.to_le_bytes(), 20_000_u32.to_le_bytes()].concat();
    // Invalid calls, queries, and calls about an unknown session start no daemon.
    assert_eq!([set(0, 5, &interval[..7]), set(7, 5, &interval), set(0, 6, &[0; 20])], [24, 87, 87]);
    assert_eq!([set(7, 18, &[1]), set(7, 10, &[]), query(0, 5, 8), query(0, 19, 4)], [4201, 4201, 0, 0]);
    assert!(!is_there());
    // The daemon keeps the settings, and refuses a caller without the right to profile the system.
    let done = set(0, 5, &interval);
    assert!(is_there());
    let mut daemon = Controller::find_at(folder).unwrap().expect("a daemon");
    let answer = daemon.query_information(&NO_SESSION, Query::SampledProfileInterval(0)).unwrap();
    let Answer::SampledProfileInterval(ProfileInterval { source: 0, interval }) = answer else {
        panic!("{answer:?}")
    };
    match done {
        0 => assert_eq!(interval, 20_000),
        // Without the privilege, or without perf events in this kernel.
        1314 | 50 => assert_ne!(interval, 20_000),
        other => panic!("{other}"),
    }
    // The daemon stays as long as it keeps a setting, so the default is set again.
    let usual = [0_u32.to_le_bytes(), 10_000_u32.to_le_bytes()].concat();
    assert!(done != 0 || set(0, 5, &usual) == 0);
}

#[test]
fn only_a_system_setting_starts_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let (program, runtime) = (daemon_program(folder.path()), folder.path().join("run"));
    let mut role = this_test("info_asked::starting_role");
    role.env("TRACEWEIR_DAEMON", &program).env("TRACEWEIR_RUNTIME_DIR", &runtime).env(STARTS, &runtime);
    assert!(role.status().unwrap().success());
    let socket = RuntimeDir::from_path(&runtime).control_socket();
    until("the idle daemon to leave", || !socket.exists());
}

/// Returns the providers whose modules a file names, in the order of the file.
fn tracked_providers(file: &Path) -> Vec<Guid> {
    let trace = etl::Trace::open(std::fs::File::open(file).unwrap()).unwrap();
    let (mut events, mut providers) = (trace.events(), Vec::new());
    while let Some(record) = events.next().unwrap() {
        if BinaryPath::is_in(&record) {
            providers.extend(BinaryPath::parse(record.payload()).unwrap().guids);
        }
    }
    providers
}

#[test]
fn session_of_this_process_records_modules_of_its_providers() {
    run_in_own_process("info_asked::session_of_this_process_records_modules_of_its_providers", |folder| {
        let file = folder.join("own.etl");
        let config = SessionConfig {
            name: "own".into(),
            log_file: Some(file.clone()),
            log_file_mode: 1,
            ..Default::default()
        };
        let session = PrivateSession::start(&config).unwrap();
        let id = session.query().id;
        let [first, second, third, fourth, other] = [1, 2, 3, 4, 5].map(Guid::from_u128);
        let enable = |provider| session.enable(provider, &EnableParams::default()).unwrap();
        let register = |provider| Provider::register(provider, None).unwrap();
        let _held = [register(first), register(second), register(other)];
        enable(first);
        session.track_binaries(true).unwrap();
        enable(second);
        enable(third);
        let _later = register(third);
        let _never = register(fourth);
        session.set_information(&Set::ProviderBinaryTracking(false)).unwrap();
        enable(fourth);
        let own = || Responder::Private(&session);
        assert_eq!(status(set_bytes(own(), id, 18, Some(&[0]), 1)), 0);
        assert_eq!(status(set_bytes(own(), id, 10, None, 0)), 50);
        assert_eq!(status(set_bytes(own(), id, 10, Some(&[0; 15]), 15)), 24);
        assert_eq!(status(query_bytes(own(), id, 23, Some(&[0; 4]), 4).result), 50);
        assert_eq!(status(query_bytes(own(), id, 19, Some(&[0; 4]), 4).result), 0);
        assert_eq!(status(configure_last_branch_record_bytes(own(), id, 0, None, 0)), 50);
        let held = std::sync::Arc::new(session);
        held.end().unwrap();
        assert!(held.track_binaries(true).is_err(), "the session has ended");
        // The start of the file has them in the order of the processors on which they were written.
        let mut listed = tracked_providers(&file);
        listed.sort();
        assert_eq!(listed, [first, second, third]);
    });
}
