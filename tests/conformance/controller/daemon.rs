//! Rules for finding a daemon, for answers without a daemon, for low latency, and for paths that
//! cannot be log files. `rule.rs` explains the rows.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use traceweir::Status;
use traceweir::consumer::Trace;
use traceweir::controller::{Controller, EnableCode, EnableParams, SessionConfig, SessionRef, Update};

use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::Listener;

use crate::helpers::{
    BAD_PATHNAME, FILE_NOT_FOUND, Fixture, INSTANCE_NOT_FOUND, PATH_NOT_FOUND, TEST_TIMEOUT, event,
    eventually, new_guid, status, unique_number, until,
};
use crate::processes::Daemon;
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("project", P, "a search for a daemon starts none", search_for_a_daemon_starts_none),
    rule!("project", P, "without a daemon, lists are empty, and a query by name or id → 4201",
        lists_without_a_daemon_are_empty),
    rule!("project", P, "without a daemon, stop, update, flush and enable → 4201 and start no daemon",
        changes_without_a_daemon_fail),
    rule!("project", P, "sessions of two daemons are independent", daemons_do_not_share_sessions),
    rule!("project", P, "a daemon that does not answer is an error that names its socket",
        unresponsive_daemon_is_an_error),
    rule!("project", P, "low latency: an event is collected when it is written, without a flush",
        low_latency_collects_events_when_written),
    rule!("project", P, "opening a missing file → 2; opening a file in a missing folder → 3",
        missing_file_and_missing_folder_differ),
    rule!("api 5.1", P, "a log file that is a folder → 161", folder_is_not_a_log_file),
    rule!("api 5.1", P, "a path with a component that is too long → 161", too_long_path_component_is_refused),
    rule!("api 5.1", P, "a path through a file that is not a folder → 161", path_through_a_file_is_refused),
];

/// Starts a daemon with these settings, and returns it with its folder.
pub(crate) fn start_with_settings(fixture: &Fixture, settings: &str) -> (PathBuf, Daemon) {
    let folder = make_folder_with(fixture, "traceweir.conf", settings);
    let daemon = Daemon::start(&folder);
    (folder, daemon)
}

/// Makes a folder for a daemon, with a file in it. `name` may be a path with one subfolder.
pub(super) fn make_folder_with(fixture: &Fixture, name: &str, text: &str) -> PathBuf {
    let path = unused_folder(fixture).join(name);
    write_trusted_file(&path, text);
    path.ancestors().find(|folder| folder.parent() == Some(fixture.folder())).unwrap().to_owned()
}

/// Writes a file that a daemon trusts: only the daemon's user may write the file and its folders.
fn write_trusted_file(path: &Path, text: &str) {
    for folder in [path.parent().and_then(Path::parent), path.parent()].into_iter().flatten() {
        if std::fs::create_dir(folder).is_ok() {
            std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700)).unwrap();
        }
    }
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

fn unused_folder(fixture: &Fixture) -> PathBuf {
    fixture.folder().join(format!("daemon {}", unique_number()))
}

/// Starts a daemon, connects a controller and ends the daemon.
fn connect_and_end_daemon(fixture: &Fixture) -> (PathBuf, Controller) {
    let folder = unused_folder(fixture);
    let daemon = Daemon::start(&folder);
    let controller = connect_to(&folder);
    drop(daemon);
    (folder, controller)
}

/// Waits until the daemon in a folder answers, and returns a controller.
pub(crate) fn connect_to(folder: &Path) -> Controller {
    eventually("the daemon answers", || Controller::find_at(folder).ok().flatten())
}

fn search_for_a_daemon_starts_none(fixture: &Fixture) {
    let folder = unused_folder(fixture);
    assert!(Controller::find_at(&folder).unwrap().is_none());
    assert!(!folder.exists());
}

fn lists_without_a_daemon_are_empty(fixture: &Fixture) {
    let (_folder, mut controller) = connect_and_end_daemon(fixture);
    assert_eq!(controller.query_all().unwrap(), []);
    assert_eq!(controller.provider_entries().unwrap(), []);
    for session in [SessionRef::Id(0x1_0001), SessionRef::Name("no such session".to_owned())] {
        assert_eq!(status(controller.query(&session)), INSTANCE_NOT_FOUND);
    }
}

fn changes_without_a_daemon_fail(fixture: &Fixture) {
    let (folder, mut controller) = connect_and_end_daemon(fixture);
    let session = SessionRef::Name("no such session".to_owned());
    assert_eq!(status(controller.stop(&session)), INSTANCE_NOT_FOUND);
    assert_eq!(status(controller.update(&session, &Update::default())), INSTANCE_NOT_FOUND);
    assert_eq!(status(controller.flush(&session, None)), INSTANCE_NOT_FOUND);
    let enabled = controller.enable(&session, new_guid(), EnableCode::Enable, &EnableParams::default(), 0);
    assert_eq!(status(enabled), INSTANCE_NOT_FOUND);
    assert!(Controller::find_at(&folder).unwrap().is_none());
}

fn daemons_do_not_share_sessions(fixture: &Fixture) {
    let config = fixture.config();
    let _session = fixture.start(&config);
    let folder = unused_folder(fixture);
    let _second_daemon = Daemon::start(&folder);
    let mut controller = connect_to(&folder);
    assert_eq!(status(controller.query(&SessionRef::Name(config.name.clone()))), INSTANCE_NOT_FOUND);
    let same_name = SessionConfig { log_file: Some(fixture.unique_path()), ..config };
    let id = controller.start(&same_name).unwrap().id;
    controller.stop(&SessionRef::Id(id)).unwrap();
}

fn unresponsive_daemon_is_an_error(fixture: &Fixture) {
    let folder = make_folder_with(fixture, "note", "");
    let socket = RuntimeDir::from_path(&folder).control_socket();
    let _listener = Listener::bind(&socket, 0o600).unwrap();
    let error = Controller::find_at(&folder).unwrap_err();
    assert!(error.to_string().contains(&socket.display().to_string()), "{error}");
}

fn low_latency_collects_events_when_written(fixture: &Fixture) {
    let config = SessionConfig { low_latency: true, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    // The session polls once a second anyway. Without low latency, 300 events would take five
    // minutes.
    let start = Instant::now();
    for number in 1..=300 {
        provider.write(&event(1), &[]).unwrap();
        until("the event is collected", || fixture.query(&session).events == number);
        assert!(start.elapsed() < TEST_TIMEOUT, "only {number} events have been collected");
    }
}

fn missing_file_and_missing_folder_differ(fixture: &Fixture) {
    assert_eq!(status(Trace::open(fixture.unique_path())), FILE_NOT_FOUND);
    assert_eq!(status(Trace::open(fixture.folder().join("missing").join("x.etl"))), PATH_NOT_FOUND);
}

fn start_status_with_log(fixture: &Fixture, path: PathBuf) -> Status {
    fixture.start_status(&SessionConfig { log_file: Some(path), ..fixture.config() })
}

fn folder_is_not_a_log_file(fixture: &Fixture) {
    assert_eq!(start_status_with_log(fixture, fixture.folder().to_owned()), BAD_PATHNAME);
}

fn too_long_path_component_is_refused(fixture: &Fixture) {
    assert_eq!(start_status_with_log(fixture, fixture.folder().join("x".repeat(256))), BAD_PATHNAME);
}

fn path_through_a_file_is_refused(fixture: &Fixture) {
    let file = fixture.unique_path();
    std::fs::write(&file, "").unwrap();
    assert_eq!(start_status_with_log(fixture, file.join("x.etl")), BAD_PATHNAME);
}
