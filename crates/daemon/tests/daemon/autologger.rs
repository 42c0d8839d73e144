//! Autologgers over restarts, and definition files that are not trusted.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use tempfile::TempDir;
use traceweir_daemon::DaemonFolders;
use traceweir_daemon::autologger::{AutologgerState, Autologgers};
use traceweir_format::spec::session::{EVENT_TRACE_NONSTOPPABLE_MODE, EVENT_TRACE_REAL_TIME_MODE};
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Control, EnableCode, Message, Properties, SessionRef};
use traceweir_transport::runtime::RuntimeDir;

use crate::util::*;

/// Creates a folder in which a daemon will be started.
fn create_folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    RuntimeDir::from_path(&dir.path().join("run")).ensure().unwrap();
    let folder = dir.path().join("run/autologger.d");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    dir
}

fn write_definition(dir: &Path, name: &str, text: &str) {
    let path = dir.join("run/autologger.d").join(format!("{name}.conf"));
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
}

/// Returns a definition with a GUID that ends in `number`, and with `more_lines`.
fn definition_text(number: u32, more_lines: &str) -> String {
    format!(
        "Start = 1\nGuid = \"00000000-0000-0000-0000-0000000000{number:02}\"\n{more_lines}\n[{PROVIDER}]\nEnabled = 1\nEnableLevel = 4\n"
    )
}

fn stored_state(dir: &Path, name: &str) -> AutologgerState {
    Autologgers::new(DaemonFolders::for_runtime(&RuntimeDir::from_path(&dir.join("run"))).unwrap())
        .state(name)
}

fn query_session(controller: &mut Client, name: &str) -> Message {
    controller.request(Message::Control { session: SessionRef::Name(name.into()), control: Control::Query })
}

fn running_sessions(daemon: &Daemon) -> Vec<Properties> {
    match daemon.controller().request(Message::QueryAll { from: 0 }) {
        Message::Sessions { sessions, .. } => sessions,
        other => panic!("no sessions: {other:?}"),
    }
}

#[test]
fn autologger_runs_before_the_first_client_is_answered() {
    let dir = create_folder();
    write_definition(dir.path(), "Boot", &definition_text(1, "FlushTimer = 1\nMaximumBuffers = 40"));
    let daemon = Daemon::start_in(dir, |_| {});
    let properties = expect_properties(query_session(&mut daemon.controller(), "boot"));
    let config = &properties.config;
    assert_eq!(
        (config.log_file_mode, config.maximum_file_size, config.clock),
        (1, 100, 1),
        "the documented defaults"
    );
    assert_eq!((config.flush_timer, config.maximum_buffers), (1, 40));
    let log = daemon.runtime().path().join("log/Boot.etl");
    assert_eq!(config.log_file.as_deref(), Some(log.as_path()));

    let mut provider = daemon.provider();
    provider.register(1, PROVIDER);
    let region = provider.receive_region(properties.id);
    let EnableMessage { order, session, code, params, .. } = provider.receive_enable();
    assert_eq!((order, session, code, params.level), (0, properties.id, EnableCode::Enable, 4));
    assert_eq!(provider.receive(), Message::Registered { registration: 1 });
    assert_eq!(write_events(region, 100), 0);
    drop(provider);

    let dir = daemon.stop();
    assert_eq!(count_events_of_finalised_file(&dir.path().join("run/log/Boot.etl")), 100);
    assert_eq!(
        stored_state(dir.path(), "Boot"),
        AutologgerState { status: Some(SUCCESS.0), ..AutologgerState::default() }
    );
}

#[test]
fn autologger_enables_providers_older_than_the_daemon() {
    let dir = create_folder();
    write_definition(dir.path(), "Boot", &definition_text(1, ""));
    // The socket of a provider process, to which the daemon connects when it starts.
    let runtime = RuntimeDir::from_path(&dir.path().join("run"));
    let path = runtime.new_provider_socket(std::process::id());
    let listener = traceweir_transport::socket::Listener::bind(&path, 0o600).unwrap();
    let daemon = Daemon::start_in(dir, |_| {});
    let mut provider = crate::life::answer_knock(&listener, new_instance());
    provider.register(1, PROVIDER);
    let session = running_sessions(&daemon)[0].id;
    let region = provider.receive_region(session);
    assert_eq!(provider.receive_enable().session, session);
    assert_eq!(provider.receive(), Message::Registered { registration: 1 });
    assert_eq!(write_events(region, 10), 0);
    drop(provider);
    assert_eq!(count_events_of_finalised_file(&daemon.stop().path().join("run/log/Boot.etl")), 10);
}

#[test]
fn generations_wrap_over_restarts_and_failed_starts_use_none() {
    let mut dir = create_folder();
    let log = dir.path().join("app.etl");
    let has_generation =
        |dir: &TempDir, number: u32| dir.path().join(format!("app.etl.000{number}")).exists();
    let file_name = format!("FileName = \"{}\"\nFileMax = 2", log.display());
    for (counter, expected_generations) in [(1, [true, false]), (2, [true, true]), (1, [true, true])] {
        write_definition(dir.path(), "App", &definition_text(1, &file_name));
        dir = Daemon::start_in(dir, |_| {}).stop();
        assert_eq!(
            stored_state(dir.path(), "App"),
            AutologgerState { status: Some(SUCCESS.0), file_counter: counter, ..AutologgerState::default() }
        );
        assert_eq!([has_generation(&dir, 1), has_generation(&dir, 2)], expected_generations);
    }
    assert!(!log.exists(), "each generation has its number");
    let nowhere = format!("FileName = \"{}/none/a.etl\"\nFileMax = 2", dir.path().display());
    write_definition(dir.path(), "App", &definition_text(1, &nowhere));
    dir = Daemon::start_in(dir, |_| {}).stop();
    assert_eq!(
        stored_state(dir.path(), "App"),
        AutologgerState { status: Some(PATH_NOT_FOUND.0), file_counter: 1, ..AutologgerState::default() }
    );
    // `FileMax = 99` is corrected to 16, the most generations.
    write_definition(dir.path(), "App", &definition_text(1, &file_name.replace("= 2", "= 99")));
    for _ in 0..16 {
        dir = Daemon::start_in(dir, |_| {}).stop();
    }
    assert_eq!(stored_state(dir.path(), "App").file_counter, 1);
    assert!(dir.path().join("app.etl.0016").exists() && !dir.path().join("app.etl.0017").exists());
}

#[test]
fn invalid_definition_affects_only_its_own_session() {
    let dir = create_folder();
    let folder = dir.path().join("run/autologger.d");
    // LogFileMode 0x100 is real-time mode; 0x8 asks for a file sequence.
    write_definition(dir.path(), "good", &definition_text(1, "LogFileMode = 0x108"));
    write_definition(dir.path(), "off", &definition_text(2, "").replace("Start = 1", "Start = 0"));
    write_definition(dir.path(), "typo", &definition_text(3, "Colour = 1"));
    write_definition(dir.path(), "twin", &definition_text(1, "LogFileMode = 0x100"));
    write_definition(dir.path(), "open", &definition_text(4, ""));
    fs::set_permissions(folder.join("open.conf"), Permissions::from_mode(0o666)).unwrap();
    symlink(folder.join("good.conf"), folder.join("link.conf")).unwrap();
    write_definition(dir.path(), "long", &"#".repeat(70_000));
    fs::create_dir(folder.join("folder.conf")).unwrap();
    let daemon = Daemon::start_in(dir, |_| {});
    let names: Vec<_> = running_sessions(&daemon).into_iter().map(|session| session.config.name).collect();
    assert_eq!(names, ["good"]);
    assert_eq!(
        running_sessions(&daemon)[0].config.log_file_mode,
        EVENT_TRACE_REAL_TIME_MODE,
        "LogFileMode is corrected: no file sequence without a file"
    );
    let dir = daemon.stop();
    let status = |name| stored_state(dir.path(), name).status.map(Status);
    assert_eq!((status("good"), status("off")), (Some(SUCCESS), None));
    assert_eq!(status("twin"), Some(ALREADY_EXISTS), "a session with its GUID is running");
    for name in ["typo", "open", "link", "long", "folder"] {
        assert_eq!(status(name), Some(INVALID_PARAMETER), "{name}");
    }
}

#[test]
fn folder_writable_by_others_is_ignored() {
    let dir = create_folder();
    write_definition(dir.path(), "a", &definition_text(1, "LogFileMode = 0x100"));
    fs::set_permissions(dir.path().join("run/autologger.d"), Permissions::from_mode(0o777)).unwrap();
    let daemon = Daemon::start_in(dir, |_| {});
    assert_eq!(running_sessions(&daemon).len(), 0);
}

#[test]
fn refused_provider_is_recorded_in_the_state_and_the_session_runs() {
    let dir = create_folder();
    for n in 1..=9 {
        write_definition(dir.path(), &format!("s{n}"), &definition_text(n, "LogFileMode = 0x100"));
    }
    let daemon = Daemon::start_in(dir, |_| {});
    assert_eq!(running_sessions(&daemon).len(), 9);
    let dir = daemon.stop();
    let refused: Vec<_> = (1..=9).flat_map(|n| stored_state(dir.path(), &format!("s{n}")).refused).collect();
    assert_eq!(
        refused,
        [(PROVIDER.to_string(), NO_SYSTEM_RESOURCES.0)],
        "at most eight sessions enable one provider"
    );
}

#[test]
fn only_an_autologger_may_be_non_stoppable() {
    let dir = create_folder();
    // Real-time and non-stoppable mode.
    write_definition(dir.path(), "stays", &definition_text(1, "LogFileMode = 0x140"));
    let daemon = Daemon::start_in(dir, |_| {});
    assert_eq!(
        running_sessions(&daemon)[0].config.log_file_mode,
        EVENT_TRACE_REAL_TIME_MODE | EVENT_TRACE_NONSTOPPABLE_MODE
    );
    let mut config = real_time_config("mine");
    config.log_file_mode |= EVENT_TRACE_NONSTOPPABLE_MODE;
    assert_eq!(daemon.controller().status(Message::Start(Box::new(config))), INVALID_PARAMETER);
    let dir = daemon.stop();
    assert_eq!(
        stored_state(dir.path(), "stays").status.map(Status),
        Some(SUCCESS),
        "the start succeeded, and the daemon can shut down"
    );
}
