//! Forked children: each event that a child writes is recorded or counted as lost, and the child
//! does not affect its parent.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use traceweir::classic::{self, INVALID_LOGGER, TraceError};
use traceweir::{PrivateSession, Provider, Status};

use crate::daemon::{ProcessConnection, listen};
use crate::sandbox::refuse;
use crate::{
    INFORMATION, PROVIDER, Scenario, ScenarioRunner, all_events, event, file_config, read_events, set_mark,
    until, wait_for_mark,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("fork", fork_while_traced),
    ("fork in a sandbox", fork_in_a_sandbox),
    ("raw clone", raw_clone),
    ("fork with a private session", fork_with_private_session),
    ("first registrations", register_first_on_eight_threads),
    ("fork with a classic provider", fork_with_classic_provider),
    ("fork and end in a sandbox", fork_and_end_in_a_sandbox),
];

const EVENT_COUNT: u64 = 300;
const SESSION: u64 = 0x10001;

/// Writes [`EVENT_COUNT`] events, numbered from `from`.
fn write_events(provider: &Provider, from: u64) {
    for n in from..from + EVENT_COUNT {
        // A lost event is counted by the library.
        let _ = provider.write(&event(1), &[&n.to_le_bytes()]);
    }
}

/// Runs `body` in a child process that `create` creates, and asserts that the child succeeds.
pub(crate) fn run_in_child(create: impl FnOnce() -> libc::pid_t, body: impl FnOnce()) {
    match create() {
        0 => {
            // A child that panics must not stay alive because of its other threads.
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            std::process::exit(i32::from(ended.is_err()));
        }
        child => {
            assert!(child > 0);
            let mut status = 0;
            // SAFETY: waits for the child that `create` created; `status` is a local variable.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child failed");
        }
    }
}

pub(crate) fn fork() -> libc::pid_t {
    // SAFETY: only this thread continues in the child; the other threads of this process sleep and
    // hold no lock.
    unsafe { libc::fork() }
}

fn payload_numbers(payloads: &[Vec<u8>]) -> HashSet<u64> {
    payloads.iter().map(|payload| u64::from_le_bytes(payload[..8].try_into().unwrap())).collect()
}

#[test]
fn forked_child_registers_again_and_every_event_is_accounted_for() {
    child_registers_again("fork");
}

#[test]
fn sandboxed_forked_child_registers_again_and_every_event_is_accounted_for() {
    child_registers_again("fork in a sandbox");
}

fn child_registers_again(scenario: &str) {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let scenario = runner.spawn(scenario);
    let mut parent = ProcessConnection::accept(&listener);
    parent.serve_registration(SESSION);
    let mut child = ProcessConnection::accept(&listener);
    assert_ne!(child.pid(), parent.pid());
    child.serve_registration(SESSION);
    runner.wait_for_mark("parent wrote");
    let (by_parent, lost_by_parent) = parent.collect();
    let (by_child, lost_by_child) = child.collect();
    assert_eq!(payload_numbers(&by_parent), (0..EVENT_COUNT).collect::<HashSet<_>>());
    assert!(payload_numbers(&by_child).iter().all(|n| (1000..1000 + EVENT_COUNT).contains(n)));
    assert_eq!(
        by_child.len() as u64 + lost_by_child + lost_by_parent,
        EVENT_COUNT,
        "events are not recorded or counted as lost exactly once"
    );
    assert!(child.has_disconnected(), "the child is still connected");
    assert!(!parent.has_disconnected(), "the parent has disconnected");
    runner.set_mark("done");
    scenario.assert_success();
}

/// Like [`fork_while_traced`], in a process whose library has no separate descriptor table, so that
/// the child has copies of all descriptors.
fn fork_in_a_sandbox(folder: &Path) {
    refuse(&[libc::SYS_close_range, libc::SYS_unshare]);
    fork_while_traced(folder);
}

fn fork_while_traced(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.enabled(INFORMATION, 0));
    run_in_child(fork, || write_events(&provider, 1000));
    write_events(&provider, 0);
    set_mark(folder, "parent wrote");
    wait_for_mark(folder, "done");
}

#[test]
fn daemon_notices_end_of_sandboxed_parent_while_child_lives() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let scenario = runner.spawn("fork and end in a sandbox");
    let mut parent = ProcessConnection::accept(&listener);
    parent.serve_registration(SESSION);
    runner.wait_for_mark("forked");
    until("the parent's connection has ended", || parent.has_disconnected());
    runner.set_mark("done");
    scenario.assert_success();
}

/// The library's sockets are in the program's descriptor table here, which a fork copies.
fn fork_and_end_in_a_sandbox(folder: &Path) {
    refuse(&[libc::SYS_close_range, libc::SYS_unshare]);
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.enabled(INFORMATION, 0));
    if fork() == 0 {
        set_mark(folder, "forked");
        // Ten minutes at most: longer than the test waits. A failed test removes the folder, which
        // ends the loop; a killed test leaves the folder.
        for _ in 0..60_000 {
            if !folder.exists() || folder.join("done").exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    // SAFETY: ends the process at once, as a signal does; no code runs after the call.
    unsafe { libc::_exit(0) };
}

#[test]
fn raw_clone_counts_events_as_lost_until_it_registers() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let scenario = runner.spawn("raw clone");
    let mut parent = ProcessConnection::accept(&listener);
    parent.serve_registration(SESSION);
    // The child announces both registrations when it makes the second.
    let mut child = ProcessConnection::accept(&listener);
    child.serve_registration(SESSION);
    let second = child.await_register();
    child.answer(&traceweir_transport::message::Message::Registered { registration: second });
    runner.wait_for_mark("parent wrote");
    let (by_parent, lost_by_parent) = parent.collect();
    // What the child writes before its own registration is counted as lost in the parent's region.
    assert_eq!((payload_numbers(&by_parent), lost_by_parent), ((0..EVENT_COUNT).collect(), EVENT_COUNT));
    let (by_child, lost_by_child) = child.collect();
    assert_eq!((payload_numbers(&by_child), lost_by_child), ((2000..2000 + EVENT_COUNT).collect(), 0));
    runner.set_mark("done");
    scenario.assert_success();
}

fn raw_clone(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    // SAFETY: like `fork`, without the C library's knowledge; the other threads of this process
    // sleep and hold no lock.
    let clone = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as libc::pid_t;
    run_in_child(clone, || {
        write_events(&provider, 1000);
        let _another = Provider::register(traceweir::Guid::from_u128(4), None).unwrap();
        write_events(&provider, 2000);
    });
    write_events(&provider, 0);
    set_mark(folder, "parent wrote");
    wait_for_mark(folder, "done");
}

#[test]
fn forked_child_does_not_affect_private_session_of_parent() {
    let runner = ScenarioRunner::new();
    runner.run("fork with a private session");
    let (seen, lost) = read_events(&runner.path("forked.etl"));
    let numbers: HashSet<u64> = seen.iter().map(|event| event.payload_number()).collect();
    assert_eq!(numbers, (0..2 * EVENT_COUNT).collect::<HashSet<_>>());
    assert_eq!(seen.len() as u64, 2 * EVENT_COUNT);
    // The only events that may be lost are those that the child wrote to the inherited session.
    assert!(lost <= EVENT_COUNT);
}

fn fork_with_private_session(folder: &Path) {
    let mut session = Some(PrivateSession::start(&file_config("forked", folder.join("forked.etl"))).unwrap());
    session.as_ref().unwrap().enable(PROVIDER, &all_events()).unwrap();
    let provider = Provider::register(PROVIDER, None).unwrap();
    write_events(&provider, 0);
    run_in_child(fork, || {
        write_events(&provider, 1000);
        let inherited = session.take().unwrap();
        assert!(inherited.flush(None).is_err());
        assert!(inherited.enable(PROVIDER, &all_events()).is_err());
        drop(inherited);
        // The child can start its own session.
        let child_session = PrivateSession::start(&file_config("child", folder.join("child.etl"))).unwrap();
        child_session.enable(PROVIDER, &all_events()).unwrap();
        write_events(&provider, 5000);
        let end = child_session.stop().unwrap();
        assert_eq!(end.events + end.events_lost, EVENT_COUNT);
        let (seen, lost) = read_events(&folder.join("child.etl"));
        assert_eq!(seen.len() as u64 + lost, EVENT_COUNT);
        assert!(seen.iter().all(|event| event.process == std::process::id()));
    });
    write_events(&provider, EVENT_COUNT);
    session.take().unwrap().stop().unwrap();
}

#[test]
fn concurrent_first_registrations_share_one_control_thread() {
    ScenarioRunner::new().run("first registrations");
}

fn register_first_on_eight_threads(_: &Path) {
    // Each child is a process that has not used the library before.
    for _ in 0..100 {
        run_in_child(fork, || {
            let start = std::sync::Barrier::new(8);
            let register = || {
                start.wait();
                std::mem::forget(Provider::register(PROVIDER, None).unwrap());
            };
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    std::thread::Builder::new().name("first".into()).spawn_scoped(scope, register).unwrap();
                }
            });
            // While threads end, a listing of /proc/self/task is not reliable.
            until("the registering threads have ended", || !thread_names().contains(&"first".to_owned()));
            assert_eq!(
                thread_names().iter().filter(|name| *name == "traceweir").count(),
                1,
                "{:?}",
                thread_names()
            );
        });
    }
}

/// Returns the names of the threads of this process.
fn thread_names() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.map(|name| name.trim_end().to_owned()).collect()
}

#[test]
fn forked_child_of_classic_provider_gets_its_own_logger_handle() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let scenario = runner.spawn("fork with a classic provider");
    let mut parent = ProcessConnection::accept(&listener);
    parent.serve_registration(SESSION);
    let mut child = ProcessConnection::accept(&listener);
    child.serve_registration(SESSION);
    runner.wait_for_mark("parent wrote");
    let recorded = (payload_numbers(&parent.collect().0), payload_numbers(&child.collect().0));
    assert_eq!(recorded, (HashSet::from([1, 3]), HashSet::from([2])));
    runner.set_mark("done");
    scenario.assert_success();
}

fn fork_with_classic_provider(folder: &Path) {
    let logger_handle = Arc::new(AtomicU64::new(INVALID_LOGGER));
    let handle_in_callback = Arc::clone(&logger_handle);
    let _registration = classic::register(
        PROVIDER,
        &[],
        Box::new(move |notice| {
            handle_in_callback.store(notice.logger, Ordering::SeqCst);
            Status::ERROR_SUCCESS
        }),
    )
    .unwrap();
    let logger = logger_handle.load(Ordering::SeqCst);
    let trace = |logger, n: u64| classic::trace(logger, &classic::Event::default(), &[&n.to_le_bytes()]);
    trace(logger, 1).unwrap();
    run_in_child(fork, || {
        until("the child gets a logger handle", || logger_handle.load(Ordering::SeqCst) != logger);
        assert_eq!(
            trace(logger, 9),
            Err(TraceError::InvalidHandle),
            "the parent's logger handle is valid in the child"
        );
        trace(logger_handle.load(Ordering::SeqCst), 2).unwrap();
    });
    trace(logger, 3).unwrap();
    set_mark(folder, "parent wrote");
    wait_for_mark(folder, "done");
}
