//! Forked children: each event that a child writes is recorded or counted as lost, and the child
//! changes nothing of its parent's.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use traceweir::classic::{self, INVALID_LOGGER, TraceError};
use traceweir::{PrivateSession, Provider, Status};

use crate::daemon::{Process, listen};
use crate::sandbox::refuse;
use crate::{PROVIDER, Scenario, Stage, event, everything, mark, read, sequential, until, wait_for_mark};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("fork", fork_while_traced),
    ("fork in a sandbox", fork_in_a_sandbox),
    ("raw clone", raw_clone),
    ("fork with a private session", fork_private),
    ("first registrations", first_registrations),
    ("fork with a classic provider", fork_classic),
    ("fork and end in a sandbox", fork_and_end_in_a_sandbox),
];

const EACH: u64 = 300;

/// Writes [`EACH`] events, numbered from `from`.
fn write(provider: &Provider, from: u64) {
    for n in from..from + EACH {
        // A lost event is counted by the library.
        let _ = provider.write(&event(1), &[&n.to_le_bytes()]);
    }
}

/// Runs `body` in a child process that `make` creates, and asserts that the child succeeds.
pub(crate) fn in_child(make: impl FnOnce() -> libc::pid_t, body: impl FnOnce()) {
    match make() {
        0 => {
            // A child that panics must not stay alive because of its other threads.
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            std::process::exit(i32::from(ended.is_err()));
        }
        child => {
            assert!(child > 0);
            let mut status = 0;
            // SAFETY: waits for the child made above.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "exit status of the child");
        }
    }
}

pub(crate) fn fork() -> libc::pid_t {
    // SAFETY: only this thread continues in the child; the other threads of this process sleep and
    // hold no lock.
    unsafe { libc::fork() }
}

fn numbers(payloads: &[Vec<u8>]) -> HashSet<u64> {
    payloads.iter().map(|p| u64::from_le_bytes(p[..8].try_into().unwrap())).collect()
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
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn(scenario);
    let mut parent = Process::accept(&listener);
    parent.serve_one(0x10001);
    let mut child = Process::accept(&listener);
    assert_ne!(child.pid(), parent.pid());
    child.serve_one(0x10001);
    wait_for_mark(stage.folder.path(), "parent wrote");
    let (by_parent, counted_by_parent) = parent.collect();
    let (by_child, counted_by_child) = child.collect();
    assert_eq!(numbers(&by_parent), (0..EACH).collect::<HashSet<_>>());
    assert!(numbers(&by_child).iter().all(|n| (1000..1000 + EACH).contains(n)));
    assert_eq!(by_child.len() as u64 + counted_by_child + counted_by_parent, EACH, "written or counted once");
    assert!(child.is_gone(), "the child has ended");
    assert!(!parent.is_gone(), "the parent has not");
    mark(stage.folder.path(), "done");
    scenario.succeeded();
}

/// Like [`fork_while_traced`], in a process whose library has no descriptor table of its own, so
/// that the child has copies of all descriptors.
fn fork_in_a_sandbox(folder: &Path) {
    refuse(&[libc::SYS_close_range, libc::SYS_unshare]);
    fork_while_traced(folder);
}

fn fork_while_traced(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.enabled(4, 0));
    in_child(fork, || write(&provider, 1000));
    write(&provider, 0);
    mark(folder, "parent wrote");
    wait_for_mark(folder, "done");
}

#[test]
fn daemon_notices_end_of_sandboxed_parent_while_child_lives() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn("fork and end in a sandbox");
    let mut parent = Process::accept(&listener);
    parent.serve_one(0x10001);
    wait_for_mark(stage.folder.path(), "forked");
    until("the parent's connection has ended", || parent.is_gone());
    mark(stage.folder.path(), "done");
    scenario.succeeded();
}

/// The library's sockets are in the program's descriptor table here, which a fork copies.
fn fork_and_end_in_a_sandbox(folder: &Path) {
    refuse(&[libc::SYS_close_range, libc::SYS_unshare]);
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.enabled(4, 0));
    if fork() == 0 {
        mark(folder, "forked");
        // Longer than the test waits. A test that has failed removes the folder; one that was
        // killed does not.
        for _ in 0..60_000 {
            if !folder.exists() || folder.join("done").exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    // SAFETY: ends the process as a signal does; nothing of it runs after that.
    unsafe { libc::_exit(0) };
}

#[test]
fn raw_clone_counts_events_as_lost_until_it_registers() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn("raw clone");
    let mut parent = Process::accept(&listener);
    parent.serve_one(0x10001);
    // The child announces both registrations when it makes the second.
    let mut child = Process::accept(&listener);
    child.serve_one(0x10001);
    let second = child.await_register();
    child.answer(&traceweir_transport::message::Message::Registered { registration: second });
    wait_for_mark(stage.folder.path(), "parent wrote");
    let (by_parent, counted_by_parent) = parent.collect();
    assert_eq!((numbers(&by_parent), counted_by_parent), ((0..EACH).collect(), EACH));
    let (by_child, counted_by_child) = child.collect();
    assert_eq!((numbers(&by_child), counted_by_child), ((2000..2000 + EACH).collect(), 0));
    mark(stage.folder.path(), "done");
    scenario.succeeded();
}

fn raw_clone(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    // SAFETY: like `fork`, without the C library's knowledge; the other threads of this process
    // sleep and hold no lock.
    let clone = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as libc::pid_t;
    in_child(clone, || {
        write(&provider, 1000);
        let _another = Provider::register(traceweir::Guid::from_u128(4), None).unwrap();
        write(&provider, 2000);
    });
    write(&provider, 0);
    mark(folder, "parent wrote");
    wait_for_mark(folder, "done");
}

#[test]
fn forked_child_does_not_affect_private_session_of_parent() {
    let stage = Stage::new();
    stage.run("fork with a private session");
    let (seen, lost) = read(&stage.path("forked.etl"));
    let found: HashSet<u64> = seen.iter().map(|s| s.number()).collect();
    assert_eq!(found, (0..2 * EACH).collect::<HashSet<_>>());
    assert_eq!(seen.len() as u64, 2 * EACH);
    assert!(lost <= EACH);
}

fn fork_private(folder: &Path) {
    let mut session = Some(PrivateSession::start(&sequential("forked", folder.join("forked.etl"))).unwrap());
    session.as_ref().unwrap().enable(PROVIDER, &everything()).unwrap();
    let provider = Provider::register(PROVIDER, None).unwrap();
    write(&provider, 0);
    in_child(fork, || {
        write(&provider, 1000);
        let inherited = session.take().unwrap();
        assert!(inherited.flush(None).is_err());
        assert!(inherited.enable(PROVIDER, &everything()).is_err());
        drop(inherited);
        // The child can have a session of its own.
        let own = PrivateSession::start(&sequential("own", folder.join("own.etl"))).unwrap();
        own.enable(PROVIDER, &everything()).unwrap();
        write(&provider, 5000);
        let end = own.stop().unwrap();
        assert_eq!(end.events + end.events_lost, EACH);
        let (seen, lost) = read(&folder.join("own.etl"));
        assert_eq!(seen.len() as u64 + lost, EACH);
        assert!(seen.iter().all(|s| s.process == std::process::id()));
    });
    write(&provider, EACH);
    session.take().unwrap().stop().unwrap();
}

#[test]
fn concurrent_first_registrations_share_one_control_thread() {
    Stage::new().run("first registrations");
}

fn first_registrations(_: &Path) {
    // Each child is a process that has not used the library before.
    for _ in 0..100 {
        in_child(fork, || {
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
            until("the end of the threads", || !threads().contains(&"first".to_owned()));
            assert_eq!(threads().iter().filter(|name| *name == "traceweir").count(), 1, "{:?}", threads());
        });
    }
}

/// Returns the names of the threads of this process.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.map(|name| name.trim_end().to_owned()).collect()
}

#[test]
fn forked_child_of_classic_provider_gets_its_own_logger_handle() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn("fork with a classic provider");
    let mut parent = Process::accept(&listener);
    parent.serve_one(0x10001);
    let mut child = Process::accept(&listener);
    child.serve_one(0x10001);
    wait_for_mark(stage.folder.path(), "parent wrote");
    let both = (numbers(&parent.collect().0), numbers(&child.collect().0));
    assert_eq!(both, (HashSet::from([1, 3]), HashSet::from([2])));
    mark(stage.folder.path(), "done");
    scenario.succeeded();
}

fn fork_classic(folder: &Path) {
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
    in_child(fork, || {
        until("a logger", || logger_handle.load(Ordering::SeqCst) != logger);
        assert_eq!(trace(logger, 9), Err(TraceError::InvalidHandle), "the parent's logger handle");
        trace(logger_handle.load(Ordering::SeqCst), 2).unwrap();
    });
    trace(logger, 3).unwrap();
    mark(folder, "parent wrote");
    wait_for_mark(folder, "done");
}
