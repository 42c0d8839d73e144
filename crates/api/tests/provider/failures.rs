//! Orders that a process cannot carry out: it reports the failure to the daemon, and continues.

use std::path::Path;

use traceweir::controller::{EnableCode, EnableParams};
use traceweir::provider::link_state;
use traceweir::{Guid, Provider};
use traceweir_transport::abi::control;
use traceweir_transport::message::Message;

use crate::daemon::{Process, listen, params};
use crate::{PROVIDER, Scenario, Stage, event, mark, until, wait_for_mark};

pub(crate) const SCENARIOS: &[Scenario] =
    &[("two registrations", two_registrations), ("one registration", one_registration)];

/// Outlets of a process, and entries of a registration: the sessions that can enable it.
const OUTLETS: u64 = 64;
const ENTRIES: u64 = 32;

#[test]
fn refused_registration_does_not_affect_others_or_the_connection() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn("two registrations");
    let mut process = Process::accept(&listener);
    process.serve_one(0x10001);
    let second = process.await_register();
    process.answer(&Message::Refused { status: 1450, reason: "one is enough".into() });
    wait_for_mark(stage.folder.path(), "written");
    assert_eq!(process.collect().0.len(), 1, "the first is enabled as before");
    assert!(!process.is_gone());
    // A refusal that answers no request changes nothing.
    process.send(&Message::Refused { status: 5, reason: "nothing in particular".into() });
    let (first, _) = process.registered[0];
    process.enable(7, first, 0x10001, EnableCode::Disable, EnableParams::default());
    process.expect_ack(7);
    mark(stage.folder.path(), "done");
    // The second registration was never announced to this daemon, so its end is not announced
    // either.
    assert_eq!(process.next(), Message::Unregister { registration: first });
    mark(stage.folder.path(), "heard");
    assert_ne!(first, second);
    scenario.succeeded();
}

fn two_registrations(folder: &Path) {
    let first = Provider::register(PROVIDER, None).unwrap();
    let second = Provider::register(Guid::from_u128(2), None).unwrap();
    assert!(first.enabled(4, 0) && !second.enabled(4, 0));
    assert!(link_state().iter().any(|line| line.contains("one is enough")), "{:?}", link_state());
    first.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    mark(folder, "written");
    wait_for_mark(folder, "done");
    assert!(!first.enabled(0, 0));
    drop(second);
    drop(first);
    // The control thread sends `Unregister` before the process ends.
    wait_for_mark(folder, "heard");
}

fn one_registration(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    wait_for_mark(folder, "write");
    until("a session", || provider.enabled(4, 0));
    provider.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    mark(folder, "written");
    wait_for_mark(folder, "done");
}

#[test]
fn unmappable_region_is_reported_and_can_be_sent_again() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn("one registration");
    let mut process = Process::accept(&listener);
    let registration = process.await_register();
    let all = || (EnableCode::Enable, EnableParams::default());
    // An empty memory file.
    let empty = rustix::fs::memfd_create("empty", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    process.send_region(0x10001, &empty);
    process.enable(0, registration, 0x10001, all().0, all().1);
    process.enable(7, registration, 0x10001, all().0, all().1);
    let (order, failed_registration, session, status) = process.expect_failed();
    assert_eq!((order, failed_registration, session), (0, None, 0x10001), "the region");
    assert_ne!(status, 0);
    assert_eq!(process.expect_failed(), (7, None, 0x10001, status), "an order for it");
    process.expect_ack(7);
    process.send(&Message::CloseSession { order: 8, session: 0x10001 });
    process.expect_ack(8);
    // The process no longer knows the session.
    process.enable(9, registration, 0x10001, all().0, all().1);
    process.expect_ack(9);

    process.give_region(0x10001);
    process.enable(10, registration, 0x10001, all().0, all().1);
    process.expect_ack(10);
    mark(stage.folder.path(), "write");
    wait_for_mark(stage.folder.path(), "written");
    assert_eq!(process.collect().0.len(), 1);
    mark(stage.folder.path(), "done");
    scenario.succeeded();
}

#[test]
fn sessions_beyond_the_limits_of_a_process_are_reported() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn("one registration");
    let mut process = Process::accept(&listener);
    let registration = process.await_register();
    for session in 1..=OUTLETS {
        process.give_region(session);
    }
    process.give_region(OUTLETS + 1);
    assert_eq!(process.expect_failed(), (0, None, OUTLETS + 1, 1450), "outlets");
    for session in 1..=ENTRIES {
        process.enable(0, registration, session, EnableCode::Enable, EnableParams::default());
    }
    let next = ENTRIES + 1;
    process.enable(7, registration, next, EnableCode::Enable, EnableParams::default());
    assert_eq!(process.expect_failed(), (7, Some(registration), next, 1450), "entries of a registration");
    process.expect_ack(7);
    // A closed session frees its outlet for another one.
    process.send(&Message::CloseSession { order: 8, session: 1 });
    process.expect_ack(8);
    process.give_region(OUTLETS + 1);
    process.enable(9, registration, OUTLETS + 1, EnableCode::Enable, EnableParams::default());
    process.expect_ack(9);
    mark(stage.folder.path(), "write");
    wait_for_mark(stage.folder.path(), "written");
    assert_eq!(process.collect().0.len(), 1);
    mark(stage.folder.path(), "done");
    scenario.succeeded();
}

#[test]
fn write_stopped_during_session_close_is_reported() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn("one registration");
    let mut process = Process::accept(&listener);
    let registration = process.await_register();
    let memory = process.give_region(0x10001);
    process.enable(7, registration, 0x10001, EnableCode::Enable, EnableParams::default());
    process.expect_ack(7);
    // Sets the lock of the first ring that has one, as a thread stopped inside it would.
    let layout = params().layout;
    let lock = layout.control_offset(usize::from(layout.cpus())) + control::LOCK;
    rustix::io::pwrite(&memory, &1u32.to_ne_bytes(), lock as u64).unwrap();
    process.send(&Message::CloseSession { order: 8, session: 0x10001 });
    assert_eq!(process.expect_failed(), (8, None, 0x10001, 1460));
    process.expect_ack(8);

    process.give_region(0x20001);
    process.enable(9, registration, 0x20001, EnableCode::Enable, EnableParams::default());
    process.expect_ack(9);
    mark(stage.folder.path(), "write");
    wait_for_mark(stage.folder.path(), "written");
    assert_eq!(process.collect().0.len(), 1, "the next session has memory of its own");
    mark(stage.folder.path(), "done");
    scenario.succeeded();
}
