//! Connections of a process to a daemon that starts before it, after it, or never.

use std::path::Path;
use std::time::Instant;

use traceweir::controller::{EnableCode, EnableParams};
use traceweir::provider::link_state;
use traceweir::{PrivateSession, Provider};
use traceweir_transport::message::Message;
use traceweir_transport::runtime::RuntimeDir;

use crate::daemon::{Process, listen, socket_of};
use crate::sandbox::refuse;
use crate::{
    PATIENCE, PROVIDER, Scenario, Stage, event, everything, mark, read, sequential, until, wait_for_mark,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("daemon first", daemon_first),
    ("provider first", provider_first),
    ("silent daemon", silent_daemon),
    ("no folder", no_folder),
    ("sandbox", sandbox),
];

#[test]
fn first_event_after_registration_reaches_existing_session() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn("daemon first");
    let mut process = Process::accept(&listener);
    assert_eq!(process.pid(), scenario.id());
    process.serve_one(0x10001);
    wait_for_mark(stage.folder.path(), "written");
    let (payloads, lost) = process.collect();
    assert_eq!((payloads.len(), lost), (100, 0));

    // The callback has run when a change is acknowledged.
    let (registration, _) = process.registered[0];
    let params = EnableParams { level: 2, ..EnableParams::default() };
    process.enable(7, registration, 0x10001, EnableCode::CaptureState, params.clone());
    process.expect_ack(7);
    assert!(stage.path("state 0").exists(), "the level is that of the session");
    process.enable(8, registration, 0x10001, EnableCode::Enable, params);
    process.expect_ack(8);
    // Orders for unknown registrations and sessions are acknowledged too.
    process.enable(9, registration + 1, 0x10001, EnableCode::Enable, EnableParams::default());
    process.enable(10, registration, 0x30001, EnableCode::Enable, EnableParams::default());
    process.expect_ack(9);
    process.expect_ack(10);
    process.send(&Message::CloseSession { order: 11, session: 0x10001 });
    process.expect_ack(11);
    mark(stage.folder.path(), "closed");
    assert_eq!(process.next(), Message::Unregister { registration });
    mark(stage.folder.path(), "heard");
    scenario.succeeded();
    let socket = socket_of(&RuntimeDir::from_path(&stage.runtime()), process.pid());
    assert_eq!(socket, None, "a process removes its socket when it ends");
}

fn daemon_first(folder: &Path) {
    let marks = folder.to_owned();
    let callback = Box::new(move |n: &traceweir::provider::EnableNotice<'_>| {
        if n.code == 2 {
            mark(&marks, &format!("state {}", n.level));
        }
    });
    let provider = Provider::register(PROVIDER, Some(callback)).unwrap();
    assert!(provider.enabled(255, 1));
    for n in 0..100u64 {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
    mark(folder, "written");
    wait_for_mark(folder, "closed");
    until("the end of the session", || !provider.enabled(0, 0));
    drop(provider);
    // The control thread sends `Unregister` before the process ends.
    wait_for_mark(folder, "heard");
    std::process::exit(0);
}

#[test]
fn daemon_started_later_finds_provider_and_can_leave() {
    let stage = Stage::new();
    let scenario = stage.spawn("provider first");
    wait_for_mark(stage.folder.path(), "registered");
    for round in ["first", "second"] {
        let mut process = Process::knock(&stage.runtime(), scenario.id());
        process.serve_one(0x10001);
        wait_for_mark(stage.folder.path(), round);
        assert_eq!(process.collect().0.len(), 10);
        // A killed daemon sends no message either.
        drop(process);
        wait_for_mark(stage.folder.path(), &format!("{round} gone"));
    }
    scenario.succeeded();
}

#[test]
fn process_reconnects_after_daemon_drops_it() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn("provider first");
    for round in ["first", "second"] {
        let mut process = Process::accept(&listener);
        assert_eq!(process.pid(), scenario.id());
        process.serve_one(0x10001);
        wait_for_mark(stage.folder.path(), round);
        assert_eq!(process.collect().0.len(), 10);
        drop(process);
        wait_for_mark(stage.folder.path(), &format!("{round} gone"));
    }
    scenario.succeeded();
}

fn provider_first(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    mark(folder, "registered");
    for round in ["first", "second"] {
        until("a session", || provider.enabled(4, 0));
        for n in 0..10u64 {
            provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
        }
        mark(folder, round);
        until("the end of the daemon", || !provider.enabled(0, 0));
        mark(folder, &format!("{round} gone"));
    }
}

#[test]
fn silent_daemon_delays_only_the_first_registration() {
    let stage = Stage::new();
    let _listener = listen(&stage.runtime());
    stage.run("silent daemon");
}

fn silent_daemon(_: &Path) {
    let start = Instant::now();
    // The first registration waits one second; if each did, this would take a quarter of an hour.
    let all: Vec<Provider> = (0..1_000).map(|_| Provider::register(PROVIDER, None).unwrap()).collect();
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    assert!(!all[0].enabled(0, 0));
}

#[test]
fn registration_succeeds_without_a_runtime_directory() {
    Stage::new().run_with("no folder", |c| {
        c.env("TRACEWEIR_RUNTIME_DIR", "/proc/nowhere");
    });
}

fn no_folder(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(link_state().iter().any(|l| l.contains("not listening")), "{:?}", link_state());
    works_alone(folder, &provider);
}

/// Asserts that a private session works without a daemon.
fn works_alone(folder: &Path, provider: &Provider) {
    let session = PrivateSession::start(&sequential("alone", folder.join("alone.etl"))).unwrap();
    session.enable(PROVIDER, &everything()).unwrap();
    provider.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    session.stop().unwrap();
    assert_eq!(read(&folder.join("alone.etl")).0.len(), 1);
}

#[test]
fn registration_succeeds_without_threads_and_sockets() {
    Stage::new().run("sandbox");
}

fn sandbox(_: &Path) {
    refuse(&[libc::SYS_clone, libc::SYS_clone3, libc::SYS_socket, libc::SYS_memfd_create]);
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(!provider.enabled(0, 0));
    provider.write(&event(1), &[b"no session is enabled"]).unwrap();
    assert!(link_state().iter().any(|l| l.contains("no control thread")), "{:?}", link_state());
}
