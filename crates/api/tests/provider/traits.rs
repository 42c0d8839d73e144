//! Traits set while the daemon is stopped: events under the name that they add are collected, or
//! counted as missed.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use traceweir::controller::{EnableCode, EnableParams};
use traceweir::{ControlCode, Provider};
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::Message;

use crate::daemon::{Process, listen};
use crate::early::{DaemonProcess, EACH, session};
use crate::{PROVIDER, Scenario, Stage, event, mark, until, wait_for_mark};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("name after registration", name_after_registration),
    ("name and stay", name_and_stay),
    ("unanswered traits", unanswered_traits),
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
    assert!(!provider.enabled(4, 0), "the provider has no name yet");
    provider.set_traits(&traits()).unwrap();
    assert!(provider.enabled(4, 0), "enabled by the daemon's file");
    for n in 0..EACH {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
    provider
}

#[test]
fn events_of_ended_process_are_collected_after_name_is_set_while_daemon_is_stopped() {
    let mut daemon_process = start_daemon_for_name();
    daemon_process.stop_daemon();
    daemon_process.stage.spawn("name after registration").succeeded();
    daemon_process.signal(Signal::CONT);
    until("all events are collected or counted", || {
        let properties = daemon_process.controller.query(&session()).unwrap();
        properties.events + u64::from(properties.uncounted_processes) * EACH >= EACH
    });
    assert_eq!(daemon_process.uncounted(), 0);
    assert_eq!(daemon_process.end(EACH), (EACH, 0));
}

fn name_after_registration(_: &Path) {
    let provider = register_and_name();
    // Ends like a killed program: nothing is unregistered.
    std::mem::forget(provider);
    std::process::exit(0);
}

#[test]
fn events_of_running_process_are_collected_after_name_is_set_while_daemon_is_stopped() {
    let mut daemon_process = start_daemon_for_name();
    daemon_process.stop_daemon();
    let child = daemon_process.stage.spawn("name and stay");
    wait_for_mark(daemon_process.stage.folder.path(), "before");
    daemon_process.signal(Signal::CONT);
    until("the first half", || daemon_process.controller.query(&session()).unwrap().events == EACH);
    mark(daemon_process.stage.folder.path(), "after");
    child.succeeded();
    until("the second half", || daemon_process.controller.query(&session()).unwrap().events == 2 * EACH);
    assert_eq!(daemon_process.uncounted(), 0);
    assert_eq!(daemon_process.end(2 * EACH), (2 * EACH, 0));
}

fn name_and_stay(folder: &Path) {
    let provider = register_and_name();
    mark(folder, "before");
    wait_for_mark(folder, "after");
    for n in 0..EACH {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
}

#[test]
fn process_whose_traits_timed_out_reports_missed_events_at_enable() {
    const SESSION: u64 = 0x10001;
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn("unanswered traits");
    let mut process = Process::accept(&listener);
    let registration = process.await_register();
    process.answer(&Message::Registered { registration });
    assert!(matches!(process.next(), Message::SetTraits { .. }));
    // The test plays a daemon without an enable file, which answers after the process has gone on.
    wait_for_mark(stage.folder.path(), "named");
    process.give_region(SESSION);
    process.enable(0, registration, SESSION, EnableCode::Enable, EnableParams::default());
    process.answer(&Message::Done);
    assert_eq!(process.expect_failed(), (0, Some(registration), SESSION, 1460));
    // A later enable has missed nothing.
    process.enable(8, registration, SESSION, EnableCode::Enable, EnableParams::default());
    process.expect_ack(8);
    mark(stage.folder.path(), "done");
    scenario.succeeded();
}

fn unanswered_traits(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    provider.set_traits(&traits()).unwrap();
    mark(folder, "named");
    until("the session", || provider.enabled(4, 0));
    wait_for_mark(folder, "done");
}
