//! Connections of a process to a daemon that starts before the process, after it, or never.

use std::path::Path;
use std::time::Instant;

use traceweir::controller::{EnableCode, EnableParams};
use traceweir::provider::link_state;
use traceweir::{ControlCode, PrivateSession, Provider};
use traceweir_transport::message::Message;
use traceweir_transport::runtime::RuntimeDir;

use crate::daemon::{ProcessConnection, find_socket, listen};
use crate::sandbox::refuse;
use crate::{
    INFORMATION, PROVIDER, Scenario, ScenarioRunner, TEST_TIMEOUT, all_events, event, file_config,
    read_events, set_mark, until, wait_for_mark,
};

const SESSION: u64 = 0x10001;

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("daemon first", register_after_daemon_started),
    ("two rounds", write_in_two_rounds),
    ("silent daemon", register_with_silent_daemon),
    ("no folder", register_without_runtime_folder),
    ("sandbox", register_without_threads_and_sockets),
];

#[test]
fn first_event_after_registration_reaches_existing_session() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let scenario = runner.spawn("daemon first");
    let mut process = ProcessConnection::accept(&listener);
    assert_eq!(process.pid(), scenario.id());
    process.serve_registration(SESSION);
    runner.wait_for_mark("written");
    let (payloads, lost) = process.collect();
    assert_eq!((payloads.len(), lost), (100, 0));

    // An order is acknowledged after the callback has run. For a capture of the state, the callback
    // gets the level with which the session enabled the provider (0), not that of the order (2).
    let (registration, _) = process.registered[0];
    let params = EnableParams { level: 2, ..EnableParams::default() };
    process.enable(7, registration, SESSION, EnableCode::CaptureState, params.clone());
    process.expect_ack(7);
    assert!(runner.path("state 0").exists(), "the callback did not get the level of the session");
    process.enable(8, registration, SESSION, EnableCode::Enable, params);
    process.expect_ack(8);
    // Orders for unknown registrations and sessions are acknowledged too.
    process.enable(9, registration + 1, SESSION, EnableCode::Enable, EnableParams::default());
    process.enable(10, registration, 0x30001, EnableCode::Enable, EnableParams::default());
    process.expect_ack(9);
    process.expect_ack(10);
    process.send(&Message::CloseSession { order: 11, session: SESSION });
    process.expect_ack(11);
    runner.set_mark("closed");
    assert_eq!(process.receive(), Message::Unregister { registration });
    runner.set_mark("unregister received");
    scenario.assert_success();
    let socket = find_socket(&RuntimeDir::from_path(&runner.runtime()), process.pid());
    assert_eq!(socket, None, "the socket of the ended process still exists");
}

fn register_after_daemon_started(folder: &Path) {
    let marks = folder.to_owned();
    let callback = Box::new(move |notice: &traceweir::provider::EnableNotice<'_>| {
        if notice.code == ControlCode::CaptureState.number() {
            set_mark(&marks, &format!("state {}", notice.level));
        }
    });
    let provider = Provider::register(PROVIDER, Some(callback)).unwrap();
    assert!(provider.enabled(255, 1));
    for n in 0..100u64 {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
    set_mark(folder, "written");
    wait_for_mark(folder, "closed");
    until("the session has ended", || !provider.enabled(0, 0));
    drop(provider);
    // Wait, so that the control thread can send `Unregister` before the process ends.
    wait_for_mark(folder, "unregister received");
    std::process::exit(0);
}

#[test]
fn daemon_started_later_finds_provider_and_can_leave() {
    let runner = ScenarioRunner::new();
    let scenario = runner.spawn("two rounds");
    runner.wait_for_mark("registered");
    for round in ["first", "second"] {
        let mut process = ProcessConnection::knock(&runner.runtime(), scenario.id());
        process.serve_registration(SESSION);
        runner.wait_for_mark(round);
        assert_eq!(process.collect().0.len(), 10);
        // Like a killed daemon, this closes the connection without a message.
        drop(process);
        runner.wait_for_mark(&format!("{round} gone"));
    }
    scenario.assert_success();
}

#[test]
fn process_reconnects_after_daemon_drops_it() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let scenario = runner.spawn("two rounds");
    for round in ["first", "second"] {
        let mut process = ProcessConnection::accept(&listener);
        assert_eq!(process.pid(), scenario.id());
        process.serve_registration(SESSION);
        runner.wait_for_mark(round);
        assert_eq!(process.collect().0.len(), 10);
        drop(process);
        runner.wait_for_mark(&format!("{round} gone"));
    }
    scenario.assert_success();
}

fn write_in_two_rounds(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    set_mark(folder, "registered");
    for round in ["first", "second"] {
        until("the provider is enabled", || provider.enabled(INFORMATION, 0));
        for n in 0..10u64 {
            provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
        }
        set_mark(folder, round);
        until("the daemon has left", || !provider.enabled(0, 0));
        set_mark(folder, &format!("{round} gone"));
    }
}

#[test]
fn silent_daemon_delays_only_the_first_registration() {
    let runner = ScenarioRunner::new();
    let _listener = listen(&runner.runtime());
    runner.run("silent daemon");
}

fn register_with_silent_daemon(_: &Path) {
    let start = Instant::now();
    // The first registration waits one second; if each did, this would take a quarter of an hour.
    let providers: Vec<Provider> = (0..1_000).map(|_| Provider::register(PROVIDER, None).unwrap()).collect();
    assert!(start.elapsed() < TEST_TIMEOUT, "{:?}", start.elapsed());
    assert!(!providers[0].enabled(0, 0));
}

#[test]
fn registration_succeeds_without_a_runtime_directory() {
    ScenarioRunner::new().run_with("no folder", |command| {
        command.env("TRACEWEIR_RUNTIME_DIR", "/proc/nowhere");
    });
}

fn register_without_runtime_folder(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(link_state().iter().any(|line| line.contains("not listening")), "{:?}", link_state());
    assert_private_session_works(folder, &provider);
}

/// Asserts that a private session works without a daemon.
fn assert_private_session_works(folder: &Path, provider: &Provider) {
    let session = PrivateSession::start(&file_config("alone", folder.join("alone.etl"))).unwrap();
    session.enable(PROVIDER, &all_events()).unwrap();
    provider.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    session.stop().unwrap();
    assert_eq!(read_events(&folder.join("alone.etl")).0.len(), 1);
}

#[test]
fn registration_succeeds_without_threads_and_sockets() {
    ScenarioRunner::new().run("sandbox");
}

fn register_without_threads_and_sockets(_: &Path) {
    refuse(&[libc::SYS_clone, libc::SYS_clone3, libc::SYS_socket, libc::SYS_memfd_create]);
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(!provider.enabled(0, 0));
    provider.write(&event(1), &[b"no session is enabled"]).unwrap();
    assert!(link_state().iter().any(|line| line.contains("no control thread")), "{:?}", link_state());
}
