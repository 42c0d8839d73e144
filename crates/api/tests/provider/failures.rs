//! Orders that a process cannot carry out: it reports the failure to the daemon, and continues.

use std::path::Path;

use traceweir::controller::{EnableCode, EnableParams};
use traceweir::provider::link_state;
use traceweir::{Guid, Provider, Status};
use traceweir_transport::abi::control;
use traceweir_transport::message::Message;

use crate::daemon::{FailedOrder, ProcessConnection, listen, region_params};
use crate::{INFORMATION, PROVIDER, Scenario, ScenarioRunner, event, set_mark, until, wait_for_mark};

pub(crate) const SCENARIOS: &[Scenario] =
    &[("two registrations", register_twice), ("one registration", register_and_write)];

const NO_RESOURCES: Status = Status::ERROR_NO_SYSTEM_RESOURCES;
const SESSION: u64 = 0x10001;
const NEXT_SESSION: u64 = 0x20001;
/// The number of outlets of a process.
const OUTLETS: u64 = 64;
/// The number of enable entries of a registration.
const MAX_ENABLES: u64 = 32;

#[test]
fn refused_registration_does_not_affect_others_or_the_connection() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let scenario = runner.spawn("two registrations");
    let mut process = ProcessConnection::accept(&listener);
    process.serve_registration(SESSION);
    let second = process.await_register();
    process.answer(&Message::Refused { status: NO_RESOURCES.0, reason: "one is enough".into() });
    runner.wait_for_mark("written");
    assert_eq!(process.collect().0.len(), 1, "the first registration is no longer enabled");
    assert!(!process.has_disconnected());
    // A refusal that answers no request changes nothing.
    process.send(&Message::Refused {
        status: Status::ERROR_ACCESS_DENIED.0,
        reason: "nothing in particular".into(),
    });
    let (first, _) = process.registered[0];
    process.enable(7, first, SESSION, EnableCode::Disable, EnableParams::default());
    process.expect_ack(7);
    runner.set_mark("done");
    // The daemon refused the second registration, so its end is not announced.
    assert_eq!(process.receive(), Message::Unregister { registration: first });
    runner.set_mark("unregister received");
    assert_ne!(first, second);
    scenario.assert_success();
}

fn register_twice(folder: &Path) {
    let first = Provider::register(PROVIDER, None).unwrap();
    let second = Provider::register(Guid::from_u128(2), None).unwrap();
    assert!(first.enabled(INFORMATION, 0) && !second.enabled(INFORMATION, 0));
    assert!(link_state().iter().any(|line| line.contains("one is enough")), "{:?}", link_state());
    first.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    set_mark(folder, "written");
    wait_for_mark(folder, "done");
    assert!(!first.enabled(0, 0));
    drop(second);
    drop(first);
    // Waits, so that the control thread can send `Unregister` before the process ends.
    wait_for_mark(folder, "unregister received");
}

fn register_and_write(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    wait_for_mark(folder, "write");
    until("the provider is enabled", || provider.enabled(INFORMATION, 0));
    provider.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    set_mark(folder, "written");
    wait_for_mark(folder, "done");
}

#[test]
fn unmappable_region_is_reported_and_can_be_sent_again() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let scenario = runner.spawn("one registration");
    let mut process = ProcessConnection::accept(&listener);
    let registration = process.await_register();
    let enable = |process: &ProcessConnection, order| {
        process.enable(order, registration, SESSION, EnableCode::Enable, EnableParams::default());
    };
    // An empty memory file cannot be mapped as a region.
    let empty = rustix::fs::memfd_create("empty", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    process.send_region(SESSION, &empty);
    enable(&process, 0);
    enable(&process, 7);
    let failed = process.expect_failed();
    let status = failed.status;
    assert_eq!(failed, FailedOrder::new(0, None, SESSION, status), "wrong failure of the region");
    assert_ne!(status, Status::ERROR_SUCCESS);
    assert_eq!(
        process.expect_failed(),
        FailedOrder::new(7, None, SESSION, status),
        "wrong failure of the enable for the region"
    );
    process.expect_ack(7);
    process.send(&Message::CloseSession { order: 8, session: SESSION });
    process.expect_ack(8);
    // The process no longer knows the session, and acknowledges the enable without a failure.
    enable(&process, 9);
    process.expect_ack(9);

    process.send_new_region(SESSION);
    enable(&process, 10);
    process.expect_ack(10);
    runner.set_mark("write");
    runner.wait_for_mark("written");
    assert_eq!(process.collect().0.len(), 1);
    runner.set_mark("done");
    scenario.assert_success();
}

#[test]
fn sessions_beyond_the_limits_of_a_process_are_reported() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let scenario = runner.spawn("one registration");
    let mut process = ProcessConnection::accept(&listener);
    let registration = process.await_register();
    for session in 1..=OUTLETS {
        process.send_new_region(session);
    }
    process.send_new_region(OUTLETS + 1);
    assert_eq!(
        process.expect_failed(),
        FailedOrder::new(0, None, OUTLETS + 1, NO_RESOURCES),
        "wrong failure of a region without a free outlet"
    );
    for session in 1..=MAX_ENABLES {
        process.enable(0, registration, session, EnableCode::Enable, EnableParams::default());
    }
    let next = MAX_ENABLES + 1;
    process.enable(7, registration, next, EnableCode::Enable, EnableParams::default());
    assert_eq!(
        process.expect_failed(),
        FailedOrder::new(7, Some(registration), next, NO_RESOURCES),
        "wrong failure of an enable without a free entry"
    );
    process.expect_ack(7);
    // A closed session frees its outlet for another one.
    process.send(&Message::CloseSession { order: 8, session: 1 });
    process.expect_ack(8);
    process.send_new_region(OUTLETS + 1);
    process.enable(9, registration, OUTLETS + 1, EnableCode::Enable, EnableParams::default());
    process.expect_ack(9);
    runner.set_mark("write");
    runner.wait_for_mark("written");
    assert_eq!(process.collect().0.len(), 1);
    runner.set_mark("done");
    scenario.assert_success();
}

#[test]
fn write_stopped_during_session_close_is_reported() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let scenario = runner.spawn("one registration");
    let mut process = ProcessConnection::accept(&listener);
    let registration = process.await_register();
    let memory = process.send_new_region(SESSION);
    process.enable(7, registration, SESSION, EnableCode::Enable, EnableParams::default());
    process.expect_ack(7);
    // Sets the lock of the first ring that has one, like a thread that is stopped while it holds
    // the lock.
    let layout = region_params().layout;
    let lock = layout.control_offset(usize::from(layout.cpus())) + control::LOCK;
    rustix::io::pwrite(&memory, &1u32.to_ne_bytes(), lock as u64).unwrap();
    process.send(&Message::CloseSession { order: 8, session: SESSION });
    assert_eq!(process.expect_failed(), FailedOrder::timeout(8, None, SESSION));
    process.expect_ack(8);

    process.send_new_region(NEXT_SESSION);
    process.enable(9, registration, NEXT_SESSION, EnableCode::Enable, EnableParams::default());
    process.expect_ack(9);
    runner.set_mark("write");
    runner.wait_for_mark("written");
    assert_eq!(process.collect().0.len(), 1, "the next session did not get the event");
    runner.set_mark("done");
    scenario.assert_success();
}
