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

use crate::support::until;
use crate::support_daemon;
use crate::support_daemon::{daemon_program, in_own_folder, this_test};

const REAL_TIME: u32 = 0x100;

fn controller(folder: &Path) -> Controller {
    Controller::find_at(folder).unwrap().expect("a daemon")
}

fn to_file(name: &str, path: &Path) -> SessionConfig {
    SessionConfig { name: name.into(), log_file_mode: 1, log_file: Some(path.into()), ..Default::default() }
}

fn live(name: &str) -> SessionConfig {
    SessionConfig { name: name.into(), log_file_mode: REAL_TIME, ..Default::default() }
}

fn named(name: &str) -> SessionRef {
    SessionRef::Name(name.into())
}

fn status<T: std::fmt::Debug>(result: Result<T>) -> Status {
    result.expect_err("refused").status()
}

#[test]
fn access_lists_can_be_set_extended_queried_and_removed() {
    let (folder, _daemon) = in_own_folder();
    let mut controller = controller(folder.path());
    let (object, who) = (Guid::from_u128(7), Sid::user(1000));
    let default = controller.access(DEFAULT_TRACE_SECURITY).unwrap();
    assert_eq!(controller.access(object).unwrap(), default, "an unknown GUID has that of the default");
    let right = Rights::TRACELOG_GUID_ENABLE;
    controller.set_access(object, SecurityOperation::ADD_DACL, &who, right, true).unwrap();
    let mut expected = default.clone();
    expected.dacl.as_mut().unwrap().add(Ace::new(AceKind::Allow, who, right));
    assert_eq!(controller.access(object).unwrap(), expected);
    controller.set_access(object, SecurityOperation::SET_DACL, &Sid::EVERYONE, right, false).unwrap();
    controller.set_access(object, SecurityOperation::SET_SACL, &who, right, false).unwrap();
    controller.set_access(object, SecurityOperation::ADD_SACL, &who, right, true).unwrap();
    let list = controller.access(object).unwrap();
    assert_eq!(list.dacl.unwrap().entries, [Ace::new(AceKind::Deny, Sid::EVERYONE, right)]);
    assert_eq!(
        list.sacl.unwrap().entries,
        [Ace::new(AceKind::Audit, who, right)],
        "allow says nothing there"
    );
    assert_eq!(controller.access_lists().unwrap(), [object]);
    for operation in [4, u32::MAX].map(SecurityOperation) {
        let refused = controller.set_access(object, operation, &who, right, true);
        assert_eq!(status(refused), Status::ERROR_INVALID_PARAMETER);
    }
    controller.remove_access(object).unwrap();
    controller.remove_access(object).unwrap();
    assert_eq!(controller.access(object).unwrap(), default);
    assert_eq!(controller.access_lists().unwrap(), []);
}

#[test]
fn session_runs_from_start_to_stop() {
    let (folder, _daemon) = in_own_folder();
    let mut controller = controller(folder.path());
    let log = folder.path().join("a.etl");
    let started = controller.start(&to_file("Lunch", &log)).unwrap();
    assert!(started.id & 0xFFFF != 0 && started.config.guid != Guid::NULL && started.number_of_buffers > 0);
    assert_eq!(started.config.log_file.as_deref(), Some(log.as_path()));
    assert_eq!(controller.query(&named("lunch")).unwrap().id, started.id, "names have no case");
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
    assert!(trace.header().end_time.0 != 0, "finalised");
}

#[test]
fn all_sessions_and_enabled_providers_are_listed() {
    let (folder, _daemon) = in_own_folder();
    let mut controller = controller(folder.path());
    assert!(controller.query_all().unwrap().is_empty());
    let names: Vec<String> = (0..40).map(|n| format!("session {n}")).collect();
    let small = |name: &String| SessionConfig { buffer_size: 4, ..live(name) };
    let ids: Vec<u64> = names.iter().map(|n| controller.start(&small(n)).unwrap().id).collect();
    let mut listed: Vec<Properties> = controller.query_all().unwrap();
    listed.sort_by_key(|p| ids.iter().position(|id| *id == p.id));
    assert_eq!(listed.iter().map(|p| p.config.name.clone()).collect::<Vec<_>>(), names);

    let guid = |n: u8| Guid::from_provider_name(&format!("provider {n}"));
    let params = EnableParams { level: 4, match_any: 0xF0, ..Default::default() };
    for n in 0..50 {
        let session = SessionRef::Id(ids[0]);
        controller.enable(&session, guid(n), EnableCode::Enable, &params, 1000).unwrap();
    }
    let providers = controller.provider_entries().unwrap();
    assert_eq!(providers.len(), 50);
    let one = providers.iter().find(|p| p.provider == guid(3)).unwrap();
    let enable = EnableEntry { session: ids[0], level: 4, any: 0xF0, ..EnableEntry::default() };
    assert_eq!(one.sessions, [enable]);
    for id in ids {
        controller.stop(&SessionRef::Id(id)).unwrap();
    }
    assert!(controller.query_all().unwrap().is_empty());
}

#[test]
fn refusals_have_documented_statuses_and_leave_no_file() {
    let (folder, _daemon) = in_own_folder();
    let mut controller = controller(folder.path());
    let (log, other) = (folder.path().join("a.etl"), folder.path().join("b.etl"));
    controller.start(&to_file("one", &log)).unwrap();
    assert_eq!(status(controller.start(&to_file("ONE", &other))), Status::ERROR_ALREADY_EXISTS);
    assert_eq!(status(controller.start(&to_file("two", &log))), Status::ERROR_BAD_PATHNAME);
    let both = SessionConfig { log_file_mode: 3, maximum_file_size: 1, ..to_file("two", &other) };
    assert_eq!(status(controller.start(&both)), Status::ERROR_INVALID_PARAMETER);
    let nowhere = SessionConfig { log_file: None, ..to_file("two", &other) };
    assert_eq!(status(controller.start(&nowhere)), Status::ERROR_BAD_PATHNAME);
    let far = to_file("two", &folder.path().join("none/c.etl"));
    assert_eq!(status(controller.start(&far)), Status::ERROR_PATH_NOT_FOUND);
    let long = SessionConfig { name: "n".repeat(1024), ..live("") };
    assert_eq!(status(controller.start(&long)), Status::ERROR_INVALID_PARAMETER);
    assert!(!other.exists());

    let absent = named("absent");
    let unknown = Status::ERROR_WMI_INSTANCE_NOT_FOUND;
    assert_eq!(status(controller.query(&absent)), unknown);
    assert_eq!(status(controller.stop(&absent)), unknown);
    assert_eq!(status(controller.flush(&absent, None)), unknown);
    assert_eq!(status(controller.update(&absent, &Update::default())), unknown);
    let params = EnableParams::default();
    let provider = Guid::from_provider_name("p");
    assert_eq!(status(controller.enable(&absent, provider, EnableCode::Enable, &params, 0)), unknown);
    controller.stop(&named("one")).unwrap();
}

#[test]
fn flight_recorder_writes_snapshot_to_the_file_of_the_flush() {
    let (folder, _daemon) = in_own_folder();
    let mut controller = controller(folder.path());
    let config = SessionConfig { name: "black box".into(), log_file_mode: 0x400, ..Default::default() };
    controller.start(&config).unwrap();
    let snapshot = folder.path().join("snapshot.etl");
    controller.flush(&named("black box"), Some(snapshot.clone())).unwrap();
    let trace = traceweir::consumer::Trace::open(&snapshot).unwrap();
    assert_eq!(trace.header().session_name, "black box");
    controller.stop(&named("black box")).unwrap();
}

#[test]
fn controller_survives_a_restart_of_the_daemon() {
    let (folder, daemon) = in_own_folder();
    let mut controller = controller(folder.path());
    controller.start(&live("first")).unwrap();
    drop(daemon);
    assert!(controller.query_all().unwrap().is_empty(), "an idle system");
    let _second = support_daemon::DaemonInThread::new(folder.path());
    controller.start(&live("second")).unwrap();
    assert_eq!(controller.query_all().unwrap().len(), 1);
    controller.stop(&named("second")).unwrap();
}

#[test]
#[ignore = "run by other tests in a separate process"]
fn controller_role() {
    if std::env::var_os("TRACEWEIR_DAEMON").is_none() {
        return;
    }
    let name = format!("of {}", std::process::id());
    let mut controller = Controller::find_or_start(None).unwrap();
    let id = controller.start(&live(&name)).unwrap().id;
    let again = Controller::find(None).unwrap().expect("found now").query(&named(&name)).unwrap();
    assert_eq!(again.id, id);
}

#[test]
fn concurrent_controllers_start_one_daemon_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let (program, runtime) = (daemon_program(folder.path()), folder.path().join("run"));
    let start = || {
        let mut command = this_test("controller_daemon::controller_role");
        command.env("TRACEWEIR_DAEMON", &program).env("TRACEWEIR_RUNTIME_DIR", &runtime);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..4).map(|_| start()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let mut controller = controller(&runtime);
    let sessions = controller.query_all().unwrap();
    assert_eq!(sessions.len(), 4, "sessions outlive their controllers, in one daemon");
    for session in sessions {
        controller.stop(&SessionRef::Id(session.id)).unwrap();
    }
    // A connection would keep the daemon alive, so the test checks the socket file.
    until("the idle daemon to leave", || !controller.socket().exists());
    assert!(fs::read_to_string(runtime.join("daemon.log")).is_ok());
}

/// Returns the configuration of a file sequence `NAME-N.etl` in a folder.
fn file_sequence(folder: &Path, name: &str) -> SessionConfig {
    SessionConfig {
        log_file_mode: 8,
        maximum_file_size: 1,
        ..to_file("sequence", &folder.join(format!("{name}-%d.etl")))
    }
}

fn is_final(path: &Path) -> bool {
    let trace = traceweir::consumer::Trace::open(path).unwrap();
    trace.header().end_time.0 != 0 && trace.header().file_name == path.to_str().unwrap()
}

#[test]
fn file_sequence_advances_on_request_and_can_be_replaced() {
    let (folder, _daemon) = in_own_folder();
    let mut controller = controller(folder.path());
    let path = |name: &str| folder.path().join(name);
    let started = controller.start(&file_sequence(folder.path(), "a")).unwrap();
    assert_eq!(started.config.log_file, Some(path("a-1.etl")));
    let next = controller.increment(&named("sequence")).unwrap();
    assert_eq!(next.config.log_file, Some(path("a-2.etl")));
    assert!(is_final(&path("a-1.etl")) && !is_final(&path("a-2.etl")));
    let to = |log_file| Update { log_file: Some(log_file), ..Update::default() };
    assert_eq!(
        status(controller.update(&named("sequence"), &to(path("a-%d.etl")))),
        Status::ERROR_BAD_PATHNAME
    );
    assert!(is_final(&path("a-1.etl")), "the old file is as it was");
    assert_eq!(
        status(controller.update(&named("sequence"), &to(path("b.etl")))),
        Status::ERROR_INVALID_PARAMETER
    );
    assert!(!path("b.etl").exists());
    let other = controller.update(&named("sequence"), &to(path("b-%d.etl"))).unwrap();
    assert_eq!(other.config.log_file, Some(path("b-1.etl")));
    controller.increment(&named("sequence")).unwrap();
    controller.stop(&named("sequence")).unwrap();
    for name in ["a-1.etl", "a-2.etl", "b-1.etl", "b-2.etl"] {
        assert!(is_final(&path(name)), "{name}");
    }
}

#[test]
fn refused_file_sequence_leaves_no_file() {
    let (folder, _daemon) = in_own_folder();
    let mut controller = controller(folder.path());
    controller.start(&live("sequence")).unwrap();
    assert_eq!(status(controller.start(&file_sequence(folder.path(), "a"))), Status::ERROR_ALREADY_EXISTS);
    assert!(!folder.path().join("a-1.etl").exists());
    let two = SessionConfig { name: "two".into(), ..file_sequence(folder.path(), "%d") };
    assert_eq!(status(controller.start(&two)), Status::ERROR_INVALID_PARAMETER);
    assert_eq!(status(controller.increment(&named("sequence"))), Status::ERROR_INVALID_FUNCTION);
    assert_eq!(status(controller.increment(&named("absent"))), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
    controller.stop(&named("sequence")).unwrap();
}

#[test]
fn session_with_a_file_can_become_real_time() {
    let (folder, _daemon) = in_own_folder();
    let mut controller = controller(folder.path());
    let log = folder.path().join("a.etl");
    controller.start(&to_file("lunch", &log)).unwrap();
    let now = controller.convert_to_real_time(&named("lunch")).unwrap();
    assert_eq!((now.config.log_file, now.config.log_file_mode), (None, REAL_TIME));
    assert!(is_final(&log));
    let again = controller.convert_to_real_time(&named("lunch"));
    assert_eq!(status(again), Status::ERROR_INVALID_FUNCTION);
    controller.stop(&named("lunch")).unwrap();
}
