//! Which component answers information calls: the library alone, a running daemon, a daemon started
//! for the call, or a session of this process.

use std::path::Path;
use std::time::{Duration, Instant};

use traceweir::controller::info::{Answer, ProfileInterval, Query, Set};
use traceweir::controller::{
    Controller, EnableParams, NO_SESSION, OutputBuffer, Responder, SessionConfig,
    configure_last_branch_record_bytes, enumerate_bytes, query_bytes, set_bytes,
};
use traceweir::{Guid, PrivateSession, Provider, Status};
use traceweir_format::binary_path::BinaryPath;
use traceweir_format::etl;
use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_SEQUENTIAL;
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::Listener;

use crate::support::until;
use crate::support_daemon::{run_in_own_process, test_command, write_daemon_program};

const BAD_LENGTH: Status = Status::ERROR_BAD_LENGTH;
const INVALID_PARAMETER: Status = Status::ERROR_INVALID_PARAMETER;
const NOT_FOUND: Status = Status::ERROR_WMI_INSTANCE_NOT_FOUND;

fn to_status(result: traceweir::Result<()>) -> Status {
    result.err().map_or(Status::ERROR_SUCCESS, |error| error.status())
}

fn set_status(session: u64, class: u32, bytes: &[u8]) -> Status {
    to_status(set_bytes(Responder::FoundDaemon, session, class, Some(bytes), bytes.len()))
}

fn query_status(session: u64, class: u32, length: usize) -> Status {
    to_status(query_bytes(Responder::FoundDaemon, session, class, Some(&[0; 4]), length).result)
}

#[test]
fn silent_daemon_does_not_block_classes_that_need_no_daemon() {
    run_in_own_process(
        "info_responder::silent_daemon_does_not_block_classes_that_need_no_daemon",
        |folder| {
            let silent = Listener::bind(&RuntimeDir::from_path(folder).control_socket(), 0o600).unwrap();
            // Profile sources (7), version (11), limits of the periodic capture state (17), number
            // of counters (22) and their owners (25).
            for (class, session, length) in
                [(7, 0, 1 << 16), (11, 0, 8), (17, 9, 8), (22, 9, 4), (25, 0, 1 << 16)]
            {
                assert_eq!(query_status(session, class, length), Status::ERROR_SUCCESS, "class {class}");
            }
            // The library also refuses invalid arguments by itself. The functions take session,
            // class, and length or bytes.
            assert_eq!(
                [
                    query_status(0, 11, 7),
                    query_status(9, 19, 3),
                    query_status(0, 23, 3),
                    query_status(0, 23, 4)
                ],
                [BAD_LENGTH, BAD_LENGTH, BAD_LENGTH, INVALID_PARAMETER]
            );
            assert_eq!(
                [
                    set_status(9, 7, &[]),
                    set_status(9, 18, &[]),
                    set_status(0, 18, &[1]),
                    set_status(9, 5, &[0; 8])
                ],
                [Status::ERROR_NOT_SUPPORTED, BAD_LENGTH, INVALID_PARAMETER, INVALID_PARAMETER]
            );
            let providers =
                enumerate_bytes(Responder::FoundDaemon, 2, None, OutputBuffer { length: 0, is_null: true });
            assert_eq!(
                (to_status(providers.result), providers.return_length),
                (Status::ERROR_SUCCESS, Some(0))
            );
            let configure_branches = |count| {
                configure_last_branch_record_bytes(Responder::FoundDaemon, 9, 0, Some(&[0; 120]), count)
            };
            assert_eq!(to_status(configure_branches(5)), Status::ERROR_INVALID_PARAMETER);
            // A call that waits for the daemon connects to it first.
            assert!(silent.accept().unwrap().is_none(), "a call connected to the daemon");
            // A class that needs the daemon waits for it, then fails because the daemon does not
            // answer.
            let start = Instant::now();
            assert_eq!(query_status(9, 19, 4), Status::ERROR_NO_SYSTEM_RESOURCES);
            assert!(start.elapsed() > Duration::from_secs(2));
            assert!(silent.accept().unwrap().is_some(), "the call did not connect to the daemon");
        },
    );
}

/// Environment variable with the runtime directory of a process that can start a daemon there.
const STARTING_ROLE: &str = "TRACEWEIR_TEST_STARTS";

/// 64 profile sources: more than a processor has counters.
const TOO_MANY_SOURCES: [u8; 256] = [0; 256];

#[test]
#[ignore = "run by other tests in a separate process"]
fn starting_role() {
    let Some(folder) = std::env::var_os(STARTING_ROLE) else { return };
    let folder = Path::new(&folder);
    let is_daemon_running = || Controller::find_at(folder).unwrap().is_some();
    // A TRACE_PROFILE_INTERVAL: source 0 (the timer) and its interval.
    let interval = [0_u32.to_le_bytes(), 20_000_u32.to_le_bytes()].concat();
    // Invalid calls, queries, and calls about an unknown session start no daemon.
    assert_eq!(
        [set_status(0, 5, &interval[..7]), set_status(7, 5, &interval), set_status(0, 6, &TOO_MANY_SOURCES)],
        [BAD_LENGTH, INVALID_PARAMETER, INVALID_PARAMETER]
    );
    assert_eq!(
        [set_status(7, 18, &[1]), set_status(7, 10, &[]), query_status(0, 5, 8), query_status(0, 19, 4)],
        [NOT_FOUND, NOT_FOUND, Status::ERROR_SUCCESS, Status::ERROR_SUCCESS]
    );
    assert!(!is_daemon_running());
    // The daemon keeps the settings, and refuses a caller without the right to profile the system.
    let outcome = set_status(0, 5, &interval);
    assert!(is_daemon_running());
    let mut daemon = Controller::find_at(folder).unwrap().expect("the daemon does not answer");
    let answer = daemon.query_information(&NO_SESSION, Query::SampledProfileInterval(0)).unwrap();
    let Answer::SampledProfileInterval(ProfileInterval { source: 0, interval }) = answer else {
        panic!("{answer:?}")
    };
    match outcome {
        Status::ERROR_SUCCESS => assert_eq!(interval, 20_000),
        // Without the privilege, or without perf events in this kernel.
        Status::ERROR_PRIVILEGE_NOT_HELD | Status::ERROR_NOT_SUPPORTED => assert_ne!(interval, 20_000),
        other => panic!("{other}"),
    }
    // The daemon stays as long as it keeps a setting, so the default is set again.
    let default_interval = [0_u32.to_le_bytes(), 10_000_u32.to_le_bytes()].concat();
    assert!(outcome != Status::ERROR_SUCCESS || set_status(0, 5, &default_interval) == Status::ERROR_SUCCESS);
}

#[test]
fn only_a_system_setting_starts_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let (program, runtime) = (write_daemon_program(folder.path()), folder.path().join("run"));
    let mut role = test_command("info_responder::starting_role");
    role.env("TRACEWEIR_DAEMON", &program)
        .env("TRACEWEIR_RUNTIME_DIR", &runtime)
        .env(STARTING_ROLE, &runtime);
    assert!(role.status().unwrap().success());
    let socket = RuntimeDir::from_path(&runtime).control_socket();
    until("the idle daemon has left", || !socket.exists());
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
    run_in_own_process(
        "info_responder::session_of_this_process_records_modules_of_its_providers",
        |folder| {
            let file = folder.join("in-process.etl");
            let config = SessionConfig {
                name: "in process".into(),
                log_file: Some(file.clone()),
                log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
                ..Default::default()
            };
            let session = PrivateSession::start(&config).unwrap();
            let id = session.query().id;
            let [first, second, third, fourth, other] = [1, 2, 3, 4, 5].map(Guid::from_u128);
            let enable = |provider| session.enable(provider, &EnableParams::default()).unwrap();
            let register = |provider| Provider::register(provider, None).unwrap();
            let _registered = [register(first), register(second), register(other)];
            enable(first);
            session.track_binaries(true).unwrap();
            enable(second);
            enable(third);
            let _later = register(third);
            let _untracked = register(fourth);
            session.set_information(&Set::ProviderBinaryTracking(false)).unwrap();
            enable(fourth);
            let in_process = || Responder::Private(&session);
            assert_eq!(to_status(set_bytes(in_process(), id, 18, Some(&[0]), 1)), Status::ERROR_SUCCESS);
            assert_eq!(to_status(set_bytes(in_process(), id, 10, None, 0)), Status::ERROR_NOT_SUPPORTED);
            assert_eq!(
                to_status(set_bytes(in_process(), id, 10, Some(&[0; 15]), 15)),
                Status::ERROR_BAD_LENGTH
            );
            assert_eq!(
                to_status(query_bytes(in_process(), id, 23, Some(&[0; 4]), 4).result),
                Status::ERROR_NOT_SUPPORTED
            );
            assert_eq!(
                to_status(query_bytes(in_process(), id, 19, Some(&[0; 4]), 4).result),
                Status::ERROR_SUCCESS
            );
            assert_eq!(
                to_status(configure_last_branch_record_bytes(in_process(), id, 0, None, 0)),
                Status::ERROR_NOT_SUPPORTED
            );
            let session = std::sync::Arc::new(session);
            session.end().unwrap();
            assert!(session.track_binaries(true).is_err(), "a session that has ended accepted a setting");
            // The start of the file has the modules in the order of the processors on which they
            // were written.
            let mut listed = tracked_providers(&file);
            listed.sort();
            assert_eq!(listed, [first, second, third]);
        },
    );
}
