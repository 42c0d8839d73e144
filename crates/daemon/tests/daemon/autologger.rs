//! Autologgers over restarts, and definition files that are not trusted.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use tempfile::TempDir;
use traceweir_daemon::Folders;
use traceweir_daemon::autologger::{Autologgers, State};
use traceweir_transport::message::{Control, EnableCode, Message, Properties, SessionRef};
use traceweir_transport::runtime::RuntimeDir;

use crate::util::*;

/// Creates a folder in which a daemon will be started.
fn home() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    RuntimeDir::from_path(&dir.path().join("run")).ensure().unwrap();
    let folder = dir.path().join("run/autologger.d");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    dir
}

fn put(dir: &Path, name: &str, text: &str) {
    let path = dir.join("run/autologger.d").join(format!("{name}.conf"));
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
}

/// A definition that differs from others by its GUID.
fn text(number: u32, more: &str) -> String {
    format!(
        "Start = 1\nGuid = \"00000000-0000-0000-0000-0000000000{number:02}\"\n{more}\n[{PROVIDER}]\nEnabled = 1\nEnableLevel = 4\n"
    )
}

fn state(dir: &Path, name: &str) -> State {
    Autologgers::new(Folders::for_runtime(&RuntimeDir::from_path(&dir.join("run"))).unwrap()).state(name)
}

fn query(controller: &mut Client, name: &str) -> Message {
    controller.request(Message::Control { session: SessionRef::Name(name.into()), control: Control::Query })
}

fn running(daemon: &Daemon) -> Vec<Properties> {
    match daemon.controller().request(Message::QueryAll { from: 0 }) {
        Message::Sessions { sessions, .. } => sessions,
        other => panic!("no sessions: {other:?}"),
    }
}

#[test]
fn autologger_runs_before_the_first_client_is_answered() {
    let dir = home();
    put(dir.path(), "Boot", &text(1, "FlushTimer = 1\nMaximumBuffers = 40"));
    let daemon = Daemon::start_in(dir, |_| {});
    let properties = properties(query(&mut daemon.controller(), "boot"));
    let config = &properties.config;
    assert_eq!(
        (config.log_file_mode, config.maximum_file_size, config.clock),
        (1, 100, 1),
        "the published defaults"
    );
    assert_eq!((config.flush_timer, config.maximum_buffers), (1, 40));
    let log = daemon.runtime().path().join("log/Boot.etl");
    assert_eq!(config.log_file.as_deref(), Some(log.as_path()));

    let mut provider = daemon.provider();
    provider.register(1, PROVIDER);
    let region = provider.receive_region(properties.id);
    let (order, _, session, code, params) = provider.receive_enable();
    assert_eq!((order, session, code, params.level), (0, properties.id, EnableCode::Enable, 4));
    assert_eq!(provider.receive(), Message::Registered { registration: 1 });
    assert_eq!(write_events(region, 100), 0);
    drop(provider);

    let dir = daemon.stop();
    assert_eq!(finished_events(&dir.path().join("run/log/Boot.etl")), 100);
    assert_eq!(state(dir.path(), "Boot"), State { status: Some(0), ..State::default() });
}

#[test]
fn autologger_enables_providers_older_than_the_daemon() {
    let dir = home();
    put(dir.path(), "Boot", &text(1, ""));
    // The socket of a provider process, to which the daemon connects when it starts.
    let runtime = RuntimeDir::from_path(&dir.path().join("run"));
    let path = runtime.new_provider_socket(std::process::id());
    let listener = traceweir_transport::socket::Listener::bind(&path, 0o600).unwrap();
    let daemon = Daemon::start_in(dir, |_| {});
    let mut provider = crate::life::answer_knock(&listener, new_instance());
    provider.register(1, PROVIDER);
    let session = running(&daemon)[0].id;
    let region = provider.receive_region(session);
    assert_eq!(provider.receive_enable().2, session);
    assert_eq!(provider.receive(), Message::Registered { registration: 1 });
    assert_eq!(write_events(region, 10), 0);
    drop(provider);
    assert_eq!(finished_events(&daemon.stop().path().join("run/log/Boot.etl")), 10);
}

#[test]
fn generations_wrap_over_restarts_and_failed_starts_use_none() {
    let mut dir = home();
    let log = dir.path().join("app.etl");
    let generation = |dir: &TempDir, n: u32| dir.path().join(format!("app.etl.000{n}")).exists();
    let file_name = format!("FileName = \"{}\"\nFileMax = 2", log.display());
    for (counter, there) in [(1, [true, false]), (2, [true, true]), (1, [true, true])] {
        put(dir.path(), "App", &text(1, &file_name));
        dir = Daemon::start_in(dir, |_| {}).stop();
        assert_eq!(
            state(dir.path(), "App"),
            State { status: Some(0), file_counter: counter, ..State::default() }
        );
        assert_eq!([generation(&dir, 1), generation(&dir, 2)], there);
    }
    assert!(!log.exists(), "each generation has its number");
    let nowhere = format!("FileName = \"{}/none/a.etl\"\nFileMax = 2", dir.path().display());
    put(dir.path(), "App", &text(1, &nowhere));
    dir = Daemon::start_in(dir, |_| {}).stop();
    assert_eq!(state(dir.path(), "App"), State { status: Some(3), file_counter: 1, ..State::default() });
    // Invalid values are corrected: at most sixteen generations.
    put(dir.path(), "App", &text(1, &file_name.replace("= 2", "= 99")));
    for _ in 0..16 {
        dir = Daemon::start_in(dir, |_| {}).stop();
    }
    assert_eq!(state(dir.path(), "App").file_counter, 1);
    assert!(dir.path().join("app.etl.0016").exists() && !dir.path().join("app.etl.0017").exists());
}

#[test]
fn invalid_definition_affects_only_its_own_session() {
    let dir = home();
    let folder = dir.path().join("run/autologger.d");
    put(dir.path(), "good", &text(1, "LogFileMode = 0x108"));
    put(dir.path(), "off", &text(2, "").replace("Start = 1", "Start = 0"));
    put(dir.path(), "typo", &text(3, "Colour = 1"));
    put(dir.path(), "twin", &text(1, "LogFileMode = 0x100"));
    put(dir.path(), "open", &text(4, ""));
    fs::set_permissions(folder.join("open.conf"), Permissions::from_mode(0o666)).unwrap();
    symlink(folder.join("good.conf"), folder.join("link.conf")).unwrap();
    put(dir.path(), "long", &"#".repeat(70_000));
    fs::create_dir(folder.join("folder.conf")).unwrap();
    let daemon = Daemon::start_in(dir, |_| {});
    let names: Vec<_> = running(&daemon).into_iter().map(|p| p.config.name).collect();
    assert_eq!(names, ["good"]);
    assert_eq!(running(&daemon)[0].config.log_file_mode, 0x100, "corrected: no file sequence");
    let dir = daemon.stop();
    let status = |name| state(dir.path(), name).status;
    assert_eq!((status("good"), status("off")), (Some(0), None));
    assert_eq!(status("twin"), Some(183), "a session with its GUID is running");
    for name in ["typo", "open", "link", "long", "folder"] {
        assert_eq!(status(name), Some(87), "{name}");
    }
}

#[test]
fn folder_writable_by_others_is_ignored() {
    let dir = home();
    put(dir.path(), "a", &text(1, "LogFileMode = 0x100"));
    fs::set_permissions(dir.path().join("run/autologger.d"), Permissions::from_mode(0o777)).unwrap();
    let daemon = Daemon::start_in(dir, |_| {});
    assert_eq!(running(&daemon).len(), 0);
}

#[test]
fn provider_that_cannot_be_enabled_is_stored_and_the_session_runs() {
    let dir = home();
    for n in 1..=9 {
        put(dir.path(), &format!("s{n}"), &text(n, "LogFileMode = 0x100"));
    }
    let daemon = Daemon::start_in(dir, |_| {});
    assert_eq!(running(&daemon).len(), 9);
    let dir = daemon.stop();
    let refused: Vec<_> = (1..=9).flat_map(|n| state(dir.path(), &format!("s{n}")).refused).collect();
    assert_eq!(refused, [(PROVIDER.to_string(), 1450)], "eight sessions enable one provider");
}

#[test]
fn only_an_autologger_may_be_non_stoppable() {
    let dir = home();
    put(dir.path(), "stays", &text(1, "LogFileMode = 0x140"));
    let daemon = Daemon::start_in(dir, |_| {});
    assert_eq!(running(&daemon)[0].config.log_file_mode, 0x140);
    let mut config = live("mine");
    config.log_file_mode |= 0x40;
    assert_eq!(daemon.controller().status(Message::Start(Box::new(config))), 87);
    let dir = daemon.stop();
    assert_eq!(state(dir.path(), "stays").status, Some(0), "the daemon can always shut down");
}
