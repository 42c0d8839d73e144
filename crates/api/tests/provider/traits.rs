//! Traits that are set while the daemon is stopped: events of the name that they bring are
//! collected, or counted as missed.

use std::path::Path;

use rustix::process::Signal;
use traceweir::controller::{EnableCode, EnableParams};
use traceweir::{Guid, Provider};
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::Message;

use crate::daemon::{Process, listen};
use crate::early::{Apart, EACH, session};
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

/// A daemon with a session that wants the name, and no other provider.
fn daemon_that_wants_the_name() -> Apart {
    let mut apart = Apart::start();
    let (guid, params) = (Guid::from_provider_name(NAME), EnableParams::default());
    apart.controller.enable(&session(), PROVIDER, EnableCode::Disable, &params, 0).unwrap();
    apart.controller.enable_named(&session(), guid, NAME, EnableCode::Enable, &params, 0).unwrap();
    apart
}

fn register_and_name() -> Provider {
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(!provider.enabled(4, 0), "it has no name yet");
    provider.set_traits(&traits()).unwrap();
    assert!(provider.enabled(4, 0), "by the daemon's file");
    for n in 0..EACH {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
    provider
}

#[test]
fn name_set_while_the_daemon_is_stopped_brings_the_events_of_a_process_that_ends() {
    let mut apart = daemon_that_wants_the_name();
    apart.stop_daemon();
    apart.stage.spawn("name after registration").succeeded();
    apart.signal(Signal::CONT);
    until("all events are collected or counted", || {
        let properties = apart.controller.query(&session()).unwrap();
        properties.events + u64::from(properties.uncounted_processes) * EACH >= EACH
    });
    assert_eq!(apart.uncounted(), 0);
    assert_eq!(apart.end(EACH), (EACH, 0));
}

fn name_after_registration(_: &Path) {
    let provider = register_and_name();
    // As a program that is killed: nothing is taken back.
    std::mem::forget(provider);
    std::process::exit(0);
}

#[test]
fn name_set_while_the_daemon_is_stopped_brings_the_events_of_a_process_that_stays() {
    let mut apart = daemon_that_wants_the_name();
    apart.stop_daemon();
    let child = apart.stage.spawn("name and stay");
    wait_for_mark(apart.stage.folder.path(), "before");
    apart.signal(Signal::CONT);
    until("the first half", || apart.controller.query(&session()).unwrap().events == EACH);
    mark(apart.stage.folder.path(), "after");
    child.succeeded();
    until("the second half", || apart.controller.query(&session()).unwrap().events == 2 * EACH);
    assert_eq!(apart.uncounted(), 0);
    assert_eq!(apart.end(2 * EACH), (2 * EACH, 0));
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
fn process_that_went_on_before_its_traits_were_answered_reports_it_with_its_enable() {
    const SESSION: u64 = 0x10001;
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn("unanswered traits");
    let mut process = Process::accept(&listener);
    let registration = process.await_register();
    process.answer(&Message::Registered { registration });
    assert!(matches!(process.next(), Message::SetTraits { .. }));
    // A daemon without a file, which answers when the process has gone on.
    wait_for_mark(stage.folder.path(), "named");
    process.give_region(SESSION);
    process.enable(0, registration, SESSION, EnableCode::Enable, EnableParams::default());
    process.answer(&Message::Done);
    assert_eq!(process.expect_failed(), (0, Some(registration), SESSION, 1460));
    // What is enabled from now on has missed nothing.
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
