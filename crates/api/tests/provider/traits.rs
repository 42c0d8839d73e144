//! Providers that get their name, by traits, while the daemon is suspended (by SIGSTOP): sessions
//! that enable the name collect the events, or count the process as one that missed events.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use traceweir::controller::{EnableCode, EnableParams};
use traceweir::{ControlCode, Provider};
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::Message;

use crate::daemon::{FailedOrder, ProcessConnection, listen};
use crate::early::{DaemonProcess, EVENT_COUNT, session};
use crate::{INFORMATION, PROVIDER, Scenario, ScenarioRunner, event, set_mark, until, wait_for_mark};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("name after registration", name_and_end),
    ("name and stay", name_and_stay),
    ("unanswered traits", set_traits_without_answer),
];

const NAME: &str = "Traceweir.Test.NamedLate";

fn name_traits() -> Vec<u8> {
    TraitsBuilder::new(NAME).finish().unwrap().to_vec()
}

/// Starts a daemon with a session that enables only the name, not the GUID of [`PROVIDER`].
fn start_daemon_for_name() -> DaemonProcess {
    let daemon_process = DaemonProcess::start();
    let session = daemon_process.controller.session("log");
    session.request(PROVIDER, ControlCode::Disable).timeout(Duration::ZERO).apply().unwrap();
    session.enable(NAME).timeout(Duration::ZERO).apply().unwrap();
    daemon_process
}

fn register_and_name() -> Provider {
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(!provider.enabled(INFORMATION, 0), "enabled before the provider has its name");
    provider.set_traits(&name_traits()).unwrap();
    assert!(provider.enabled(INFORMATION, 0), "not enabled by the daemon's file");
    for n in 0..EVENT_COUNT {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
    provider
}

#[test]
fn events_of_ended_process_are_collected_after_name_is_set_while_daemon_is_suspended() {
    let mut daemon_process = start_daemon_for_name();
    daemon_process.suspend_daemon();
    daemon_process.runner.spawn("name after registration").assert_success();
    daemon_process.signal(Signal::CONT);
    until("all events are collected, or the process is counted", || {
        let properties = daemon_process.controller.query(&session()).unwrap();
        properties.events + u64::from(properties.uncounted_processes) * EVENT_COUNT >= EVENT_COUNT
    });
    assert_eq!(daemon_process.uncounted(), 0);
    assert_eq!(daemon_process.end(EVENT_COUNT), (EVENT_COUNT, 0));
}

fn name_and_end(_: &Path) {
    let provider = register_and_name();
    // Ends like a killed program: nothing is unregistered.
    std::mem::forget(provider);
    std::process::exit(0);
}

#[test]
fn events_of_running_process_are_collected_after_name_is_set_while_daemon_is_suspended() {
    let mut daemon_process = start_daemon_for_name();
    daemon_process.suspend_daemon();
    let child = daemon_process.runner.spawn("name and stay");
    daemon_process.runner.wait_for_mark("before");
    daemon_process.signal(Signal::CONT);
    until("the first half is collected", || {
        daemon_process.controller.query(&session()).unwrap().events == EVENT_COUNT
    });
    daemon_process.runner.set_mark("after");
    child.assert_success();
    until("the second half is collected", || {
        daemon_process.controller.query(&session()).unwrap().events == 2 * EVENT_COUNT
    });
    assert_eq!(daemon_process.uncounted(), 0);
    assert_eq!(daemon_process.end(2 * EVENT_COUNT), (2 * EVENT_COUNT, 0));
}

fn name_and_stay(folder: &Path) {
    let provider = register_and_name();
    set_mark(folder, "before");
    wait_for_mark(folder, "after");
    for n in 0..EVENT_COUNT {
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
    // The test plays a daemon without a file of enabled providers, and answers only after the
    // process has stopped waiting.
    runner.wait_for_mark("named");
    process.send_new_region(SESSION);
    process.enable(0, registration, SESSION, EnableCode::Enable, EnableParams::default());
    process.answer(&Message::Done);
    assert_eq!(process.expect_failed(), FailedOrder::timeout(0, Some(registration), SESSION));
    // The process has missed no events of a further enable, so it acknowledges the order.
    process.enable(8, registration, SESSION, EnableCode::Enable, EnableParams::default());
    process.expect_ack(8);
    runner.set_mark("done");
    scenario.assert_success();
}

fn set_traits_without_answer(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    provider.set_traits(&name_traits()).unwrap();
    set_mark(folder, "named");
    until("the provider is enabled", || provider.enabled(INFORMATION, 0));
    wait_for_mark(folder, "done");
}
