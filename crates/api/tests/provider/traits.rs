//! Traits that name a provider while the daemon is stopped: sessions that enable the name collect the
//! events, or count them as missed.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use traceweir::controller::{EnableCode, EnableParams};
use traceweir::{ControlCode, Provider, Status};
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::Message;

use crate::daemon::{FailedOrder, ProcessConnection, listen};
use crate::early::{DaemonProcess, EVENTS_PER_PROVIDER, session};
use crate::{INFORMATION, PROVIDER, Scenario, ScenarioRunner, event, set_mark, until, wait_for_mark};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("name after registration", name_and_end),
    ("name and stay", name_and_stay),
    ("unanswered traits", set_traits_without_answer),
];

const NAME: &str = "Traceweir.Test.NamedLate";

fn traits() -> Vec<u8> {
    TraitsBuilder::new(NAME).finish().unwrap().to_vec()
}

/// Starts a daemon with a session that enables the name, and no other provider.
fn start_daemon_for_name() -> DaemonProcess {
    let daemon_process = DaemonProcess::start();
    let session = daemon_process.controller.session("log");
    session.request(PROVIDER, ControlCode::Disable).timeout(Duration::ZERO).apply().unwrap();
    session.enable(NAME).timeout(Duration::ZERO).apply().unwrap();
    daemon_process
}

fn register_and_name() -> Provider {
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(!provider.enabled(INFORMATION, 0), "the provider has no name yet");
    provider.set_traits(&traits()).unwrap();
    assert!(provider.enabled(INFORMATION, 0), "enabled by the daemon's file");
    for n in 0..EVENTS_PER_PROVIDER {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
    provider
}

#[test]
fn events_of_ended_process_are_collected_after_name_is_set_while_daemon_is_stopped() {
    let mut daemon_process = start_daemon_for_name();
    daemon_process.stop_daemon();
    daemon_process.runner.spawn("name after registration").assert_success();
    daemon_process.signal(Signal::CONT);
    until("all events are collected or counted", || {
        let properties = daemon_process.controller.query(&session()).unwrap();
        properties.events + u64::from(properties.uncounted_processes) * EVENTS_PER_PROVIDER
            >= EVENTS_PER_PROVIDER
    });
    assert_eq!(daemon_process.uncounted(), 0);
    assert_eq!(daemon_process.end(EVENTS_PER_PROVIDER), (EVENTS_PER_PROVIDER, 0));
}

fn name_and_end(_: &Path) {
    let provider = register_and_name();
    // Ends like a killed program: nothing is unregistered.
    std::mem::forget(provider);
    std::process::exit(0);
}

#[test]
fn events_of_running_process_are_collected_after_name_is_set_while_daemon_is_stopped() {
    let mut daemon_process = start_daemon_for_name();
    daemon_process.stop_daemon();
    let child = daemon_process.runner.spawn("name and stay");
    wait_for_mark(daemon_process.runner.folder.path(), "before");
    daemon_process.signal(Signal::CONT);
    until("the first half is collected", || {
        daemon_process.controller.query(&session()).unwrap().events == EVENTS_PER_PROVIDER
    });
    set_mark(daemon_process.runner.folder.path(), "after");
    child.assert_success();
    until("the second half is collected", || {
        daemon_process.controller.query(&session()).unwrap().events == 2 * EVENTS_PER_PROVIDER
    });
    assert_eq!(daemon_process.uncounted(), 0);
    assert_eq!(daemon_process.end(2 * EVENTS_PER_PROVIDER), (2 * EVENTS_PER_PROVIDER, 0));
}

fn name_and_stay(folder: &Path) {
    let provider = register_and_name();
    set_mark(folder, "before");
    wait_for_mark(folder, "after");
    for n in 0..EVENTS_PER_PROVIDER {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
}

#[test]
fn process_whose_traits_timed_out_reports_missed_events_at_enable() {
    const SESSION: u64 = 0x10001;
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let scenario = runner.spawn("unanswered traits");
    let mut process = ProcessConnection::accept(&listener);
    let registration = process.await_register();
    process.answer(&Message::Registered { registration });
    assert!(matches!(process.receive(), Message::SetTraits { .. }));
    // The test plays a daemon without an enable file, which answers after the process has gone on.
    wait_for_mark(runner.folder.path(), "named");
    process.send_new_region(SESSION);
    process.enable(0, registration, SESSION, EnableCode::Enable, EnableParams::default());
    process.answer(&Message::Done);
    assert_eq!(
        process.expect_failed(),
        FailedOrder {
            order: 0,
            registration: Some(registration),
            session: SESSION,
            status: Status::ERROR_TIMEOUT,
        }
    );
    // A later enable has missed nothing.
    process.enable(8, registration, SESSION, EnableCode::Enable, EnableParams::default());
    process.expect_ack(8);
    set_mark(runner.folder.path(), "done");
    scenario.assert_success();
}

fn set_traits_without_answer(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    provider.set_traits(&traits()).unwrap();
    set_mark(folder, "named");
    until("the provider is enabled", || provider.enabled(INFORMATION, 0));
    wait_for_mark(folder, "done");
}
