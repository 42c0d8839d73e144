//! Controllers with a real daemon: sessions from start to stop, documented statuses, and daemons on
//! demand.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use traceweir::controller::access::{Ace, AceKind, DEFAULT_TRACE_SECURITY, Rights, SecurityOperation, Sid};
use traceweir::controller::{
    Controller, EnableCode, EnableEntry, EnableParams, Properties, SessionConfig, SessionRef, Update,
};
use traceweir::{Guid, Result, Status};
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_FILE_MODE_CIRCULAR, EVENT_TRACE_FILE_MODE_NEWFILE,
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_REAL_TIME_MODE,
};

use crate::support::until;
use crate::support_daemon;
use crate::support_daemon::{start_daemon_in_temp_folder, test_command, write_daemon_program};

fn connect(folder: &Path) -> Controller {
    Controller::find_at(folder).unwrap().expect("the daemon does not answer")
}

fn file_config(name: &str, path: &Path) -> SessionConfig {
    SessionConfig {
        name: name.into(),
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        log_file: Some(path.into()),
        ..Default::default()
    }
}

fn live_config(name: &str) -> SessionConfig {
    SessionConfig { name: name.into(), log_file_mode: EVENT_TRACE_REAL_TIME_MODE, ..Default::default() }
}

fn by_name(name: &str) -> SessionRef {
    SessionRef::Name(name.into())
}

fn status<T: std::fmt::Debug>(result: Result<T>) -> Status {
    result.expect_err("the call was not refused").status()
}

#[test]
fn access_lists_can_be_set_extended_queried_and_removed() {
    let (folder, _daemon) = start_daemon_in_temp_folder();
    let mut controller = connect(folder.path());
    let (object, user) = (Guid::from_u128(7), Sid::user(1000));
    let default = controller.access(DEFAULT_TRACE_SECURITY).unwrap();
    assert_eq!(controller.access(object).unwrap(), default, "an unknown GUID lacks the default list");
    let right = Rights::TRACELOG_GUID_ENABLE;
    controller.set_access(object, SecurityOperation::ADD_DACL, &user, right, true).unwrap();
    let mut expected = default.clone();
    expected.dacl.as_mut().unwrap().add(Ace::new(AceKind::Allow, user, right));
    assert_eq!(controller.access(object).unwrap(), expected);
    controller.set_access(object, SecurityOperation::SET_DACL, &Sid::EVERYONE, right, false).unwrap();
    controller.set_access(object, SecurityOperation::SET_SACL, &user, right, false).unwrap();
    controller.set_access(object, SecurityOperation::ADD_SACL, &user, right, true).unwrap();
    let list = controller.access(object).unwrap();
    assert_eq!(list.dacl.unwrap().entries, [Ace::new(AceKind::Deny, Sid::EVERYONE, right)]);
    assert_eq!(
        list.sacl.unwrap().entries,
        [Ace::new(AceKind::Audit, user, right)],
        "the allow flag has an effect in a SACL"
    );
    assert_eq!(controller.access_lists().unwrap(), [object]);
    // The operations are 0 to 3.
    for operation in [4, u32::MAX].map(SecurityOperation) {
        let refused = controller.set_access(object, operation, &user, right, true);
        assert_eq!(status(refused), Status::ERROR_INVALID_PARAMETER);
    }
    controller.remove_access(object).unwrap();
    controller.remove_access(object).unwrap();
    assert_eq!(controller.access(object).unwrap(), default);
    assert_eq!(controller.access_lists().unwrap(), []);
}

#[test]
fn session_runs_from_start_to_stop() {
    let (folder, _daemon) = start_daemon_in_temp_folder();
    let mut controller = connect(folder.path());
    let log = folder.path().join("a.etl");
    let started = controller.start(&file_config("Lunch", &log)).unwrap();
    assert!(started.id & 0xFFFF != 0 && started.config.guid != Guid::NULL && started.number_of_buffers > 0);
    assert_eq!(started.config.log_file.as_deref(), Some(log.as_path()));
    assert_eq!(controller.query(&by_name("lunch")).unwrap().id, started.id, "another session was found");
    let by_id = SessionRef::Id(started.id);
    assert_eq!(controller.query(&by_id).unwrap().config.name, "Lunch");

    let update = Update { flush_timer: Some(7), ..Default::default() };
    assert_eq!(controller.update(&by_id, &update).unwrap().config.flush_timer, 7);
    controller.flush(&by_id, None).unwrap();
    let ended = controller.stop(&by_id).unwrap();
    assert_eq!((ended.events, ended.events_lost), (0, 0));
    assert_eq!(status(controller.query(&by_id)), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
    let trace = traceweir::consumer::Trace::open(&log).unwrap();
    assert_eq!(trace.header().session_name, "Lunch");
    assert!(trace.header().end_time.0 != 0, "the file is not finalised");
}

#[test]
fn all_sessions_and_enabled_providers_are_listed() {
    let (folder, _daemon) = start_daemon_in_temp_folder();
    let mut controller = connect(folder.path());
    assert!(controller.query_all().unwrap().is_empty());
    let names: Vec<String> = (0..40).map(|n| format!("session {n}")).collect();
    let small_config = |name: &String| SessionConfig { buffer_size: 4, ..live_config(name) };
    let ids: Vec<u64> = names.iter().map(|name| controller.start(&small_config(name)).unwrap().id).collect();
    let mut listed: Vec<Properties> = controller.query_all().unwrap();
    listed.sort_by_key(|properties| ids.iter().position(|id| *id == properties.id));
    assert_eq!(listed.iter().map(|properties| properties.config.name.clone()).collect::<Vec<_>>(), names);

    let provider_guid = |n: u8| Guid::from_provider_name(&format!("provider {n}"));
    let params = EnableParams { level: 4, match_any: 0xF0, ..Default::default() };
    for n in 0..50 {
        let session = SessionRef::Id(ids[0]);
        controller.enable(&session, provider_guid(n), EnableCode::Enable, &params, 1000).unwrap();
    }
    let providers = controller.provider_entries().unwrap();
    assert_eq!(providers.len(), 50);
    let entry = providers.iter().find(|entry| entry.provider == provider_guid(3)).unwrap();
    let enable = EnableEntry { session: ids[0], level: 4, any: 0xF0, ..EnableEntry::default() };
    assert_eq!(entry.sessions, [enable]);
    for id in ids {
        controller.stop(&SessionRef::Id(id)).unwrap();
    }
    assert!(controller.query_all().unwrap().is_empty());
}

#[test]
fn refusals_have_documented_statuses_and_leave_no_file() {
    let (folder, _daemon) = start_daemon_in_temp_folder();
    let mut controller = connect(folder.path());
    let (log, other) = (folder.path().join("a.etl"), folder.path().join("b.etl"));
    controller.start(&file_config("one", &log)).unwrap();
    assert_eq!(status(controller.start(&file_config("ONE", &other))), Status::ERROR_ALREADY_EXISTS);
    assert_eq!(status(controller.start(&file_config("two", &log))), Status::ERROR_BAD_PATHNAME);
    let two_file_modes = SessionConfig {
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_FILE_MODE_CIRCULAR,
        maximum_file_size: 1,
        ..file_config("two", &other)
    };
    assert_eq!(status(controller.start(&two_file_modes)), Status::ERROR_INVALID_PARAMETER);
    let without_file = SessionConfig { log_file: None, ..file_config("two", &other) };
    assert_eq!(status(controller.start(&without_file)), Status::ERROR_BAD_PATHNAME);
    let in_missing_folder = file_config("two", &folder.path().join("none/c.etl"));
    assert_eq!(status(controller.start(&in_missing_folder)), Status::ERROR_PATH_NOT_FOUND);
    let with_long_name = SessionConfig { name: "n".repeat(1024), ..live_config("") };
    assert_eq!(status(controller.start(&with_long_name)), Status::ERROR_INVALID_PARAMETER);
    assert!(!other.exists());

    let absent = by_name("absent");
    let not_found = Status::ERROR_WMI_INSTANCE_NOT_FOUND;
    assert_eq!(status(controller.query(&absent)), not_found);
    assert_eq!(status(controller.stop(&absent)), not_found);
    assert_eq!(status(controller.flush(&absent, None)), not_found);
    assert_eq!(status(controller.update(&absent, &Update::default())), not_found);
    let params = EnableParams::default();
    let provider = Guid::from_provider_name("p");
    assert_eq!(status(controller.enable(&absent, provider, EnableCode::Enable, &params, 0)), not_found);
    controller.stop(&by_name("one")).unwrap();
}

#[test]
fn flight_recorder_writes_snapshot_to_the_file_of_the_flush() {
    let (folder, _daemon) = start_daemon_in_temp_folder();
    let mut controller = connect(folder.path());
    let config = SessionConfig {
        name: "black box".into(),
        log_file_mode: EVENT_TRACE_BUFFERING_MODE,
        ..Default::default()
    };
    controller.start(&config).unwrap();
    let snapshot = folder.path().join("snapshot.etl");
    controller.flush(&by_name("black box"), Some(snapshot.clone())).unwrap();
    let trace = traceweir::consumer::Trace::open(&snapshot).unwrap();
    assert_eq!(trace.header().session_name, "black box");
    controller.stop(&by_name("black box")).unwrap();
}

#[test]
fn controller_survives_a_restart_of_the_daemon() {
    let (folder, daemon) = start_daemon_in_temp_folder();
    let mut controller = connect(folder.path());
    controller.start(&live_config("first")).unwrap();
    drop(daemon);
    assert!(controller.query_all().unwrap().is_empty(), "sessions are listed without a daemon");
    let _second = support_daemon::DaemonInThread::new(folder.path());
    controller.start(&live_config("second")).unwrap();
    assert_eq!(controller.query_all().unwrap().len(), 1);
    controller.stop(&by_name("second")).unwrap();
}

#[test]
#[ignore = "run by other tests in a separate process"]
fn controller_role() {
    if std::env::var_os("TRACEWEIR_DAEMON").is_none() {
        return;
    }
    let name = format!("of {}", std::process::id());
    let mut controller = Controller::find_or_start(None).unwrap();
    let id = controller.start(&live_config(&name)).unwrap().id;
    let again =
        Controller::find(None).unwrap().expect("the daemon is not running").query(&by_name(&name)).unwrap();
    assert_eq!(again.id, id);
}

#[test]
fn concurrent_controllers_start_one_daemon_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let (program, runtime) = (write_daemon_program(folder.path()), folder.path().join("run"));
    let start = || {
        let mut command = test_command("controller_daemon::controller_role");
        command.env("TRACEWEIR_DAEMON", &program).env("TRACEWEIR_RUNTIME_DIR", &runtime);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..4).map(|_| start()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let mut controller = connect(&runtime);
    let sessions = controller.query_all().unwrap();
    assert_eq!(sessions.len(), 4, "the daemon does not have the sessions of all controllers");
    for session in sessions {
        controller.stop(&SessionRef::Id(session.id)).unwrap();
    }
    // A new connection or request would restart the daemon's idle time, so the test checks the
    // socket file.
    until("the idle daemon has left", || !controller.socket().exists());
    assert!(fs::read_to_string(runtime.join("daemon.log")).is_ok());
}

/// Returns the configuration of a file sequence `NAME-N.etl` in a folder.
fn file_sequence(folder: &Path, name: &str) -> SessionConfig {
    SessionConfig {
        log_file_mode: EVENT_TRACE_FILE_MODE_NEWFILE,
        maximum_file_size: 1,
        ..file_config("sequence", &folder.join(format!("{name}-%d.etl")))
    }
}

fn is_finalised_file(path: &Path) -> bool {
    let trace = traceweir::consumer::Trace::open(path).unwrap();
    trace.header().end_time.0 != 0 && trace.header().file_name == path.to_str().unwrap()
}

#[test]
fn file_sequence_advances_on_request_and_can_be_replaced() {
    let (folder, _daemon) = start_daemon_in_temp_folder();
    let mut controller = connect(folder.path());
    let path = |name: &str| folder.path().join(name);
    let started = controller.start(&file_sequence(folder.path(), "a")).unwrap();
    assert_eq!(started.config.log_file, Some(path("a-1.etl")));
    let next = controller.increment(&by_name("sequence")).unwrap();
    assert_eq!(next.config.log_file, Some(path("a-2.etl")));
    assert!(is_finalised_file(&path("a-1.etl")) && !is_finalised_file(&path("a-2.etl")));
    let update_to = |log_file| Update { log_file: Some(log_file), ..Update::default() };
    assert_eq!(
        status(controller.update(&by_name("sequence"), &update_to(path("a-%d.etl")))),
        Status::ERROR_BAD_PATHNAME
    );
    assert!(is_finalised_file(&path("a-1.etl")), "the refused update changed the old file");
    assert_eq!(
        status(controller.update(&by_name("sequence"), &update_to(path("b.etl")))),
        Status::ERROR_INVALID_PARAMETER
    );
    assert!(!path("b.etl").exists());
    let other = controller.update(&by_name("sequence"), &update_to(path("b-%d.etl"))).unwrap();
    assert_eq!(other.config.log_file, Some(path("b-1.etl")));
    controller.increment(&by_name("sequence")).unwrap();
    controller.stop(&by_name("sequence")).unwrap();
    for name in ["a-1.etl", "a-2.etl", "b-1.etl", "b-2.etl"] {
        assert!(is_finalised_file(&path(name)), "{name}");
    }
}

#[test]
fn refused_file_sequence_leaves_no_file() {
    let (folder, _daemon) = start_daemon_in_temp_folder();
    let mut controller = connect(folder.path());
    controller.start(&live_config("sequence")).unwrap();
    assert_eq!(status(controller.start(&file_sequence(folder.path(), "a"))), Status::ERROR_ALREADY_EXISTS);
    assert!(!folder.path().join("a-1.etl").exists());
    let two_numbers = SessionConfig { name: "two".into(), ..file_sequence(folder.path(), "%d") };
    assert_eq!(status(controller.start(&two_numbers)), Status::ERROR_INVALID_PARAMETER);
    assert_eq!(status(controller.increment(&by_name("sequence"))), Status::ERROR_INVALID_FUNCTION);
    assert_eq!(status(controller.increment(&by_name("absent"))), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
    controller.stop(&by_name("sequence")).unwrap();
}

#[test]
fn session_with_a_file_can_become_real_time() {
    let (folder, _daemon) = start_daemon_in_temp_folder();
    let mut controller = connect(folder.path());
    let log = folder.path().join("a.etl");
    controller.start(&file_config("lunch", &log)).unwrap();
    let converted = controller.convert_to_real_time(&by_name("lunch")).unwrap();
    assert_eq!(
        (converted.config.log_file, converted.config.log_file_mode),
        (None, EVENT_TRACE_REAL_TIME_MODE)
    );
    assert!(is_finalised_file(&log));
    let again = controller.convert_to_real_time(&by_name("lunch"));
    assert_eq!(status(again), Status::ERROR_INVALID_FUNCTION);
    controller.stop(&by_name("lunch")).unwrap();
}
