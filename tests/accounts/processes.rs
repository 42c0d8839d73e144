//! Process life cycle around writing: fork, clone, exec, signals, sandboxes.

use std::os::unix::process::CommandExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use traceweir::Provider;

use crate::alarm;
use crate::fixture::{Daemon, WritePath, reports, to_file};
use crate::ledger::{Ledger, assert_sound};
use crate::roles::{PROVIDER, Progress, Report, Writer, other_role, write_one};

const FILLER: [u8; 24] = [0x5A; 24];

/// The child role: runs one of the scenarios below.
pub(crate) fn play(words: &[&str]) {
    match words[0] {
        "fork" => fork(words[1], || {
            // SAFETY: the child only writes events and leaves by `_exit`.
            unsafe { libc::fork() }
        }),
        "clone" => fork(words[1], || {
            // SAFETY: as fork, but without the C library: none of its fork handlers runs in the
            // child.
            unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t }
        }),
        "exec" => exec(),
        "signal" => signal(),
        "sandbox" => sandbox(words[1]),
        other => panic!("no such scenario: {other}"),
    }
}

fn print_report(offered: u64, refused: u64) {
    use std::io::Write as _;
    writeln!(std::io::stdout(), "\nreport {offered} {refused}").expect("standard output is open");
}

fn write_all(provider: &Provider, writer: u32, numbers: std::ops::Range<u64>) -> u64 {
    numbers.filter(|&n| !write_one(provider, writer, 0, n, &FILLER)).count() as u64
}

/// Writes as writer 0 in the parent, before and after the fork, and as writer 1 in the child: until
/// a write succeeds (at most ten thousand attempts), then a hundred more.
fn fork(pages: &str, split: impl Fn() -> libc::pid_t) {
    let progress = Progress::open(pages.as_ref());
    let provider = Provider::register(PROVIDER, None).expect("registered");
    let mut refused = write_all(&provider, 0, 0..100);
    let child = split();
    if child == 0 {
        let mut number = 0;
        while !write_one(&provider, 1, 0, number, &FILLER) && number < 10_000 {
            number += 1;
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        write_all(&provider, 1, number + 1..number + 101);
        progress.counter(0).store(number + 101, Ordering::Release);
        // SAFETY: ends the child at once; nothing of the harness may run twice.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0);
    refused += write_all(&provider, 0, 100..200);
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child ends well");
    print_report(200, refused);
}

/// Writes as writer 0, then as writer 1 in the same process after exec.
fn exec() {
    let provider = Provider::register(PROVIDER, None).expect("registered");
    write_all(&provider, 0, 0..100);
    let (name, value) = Writer::new(1, 1, 100).role();
    let mut again = std::process::Command::new(std::env::current_exe().expect("this binary"));
    again.args(["--exact", "role", "--nocapture", "--test-threads=1"]).env(name, value);
    panic!("exec failed: {}", again.exec());
}

static PROVIDER_OF_HANDLER: OnceLock<Provider> = OnceLock::new();
static HANDLED: AtomicU64 = AtomicU64::new(0);
static HANDLER_REFUSED: AtomicU64 = AtomicU64::new(0);

fn in_handler() {
    let Some(provider) = PROVIDER_OF_HANDLER.get() else { return };
    let number = HANDLED.fetch_add(1, Ordering::Relaxed);
    if !write_one(provider, 1, 0, number, &FILLER) {
        HANDLER_REFUSED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes as writer 0 in the thread, and as writer 1 in a signal handler that interrupts it every
/// hundred microseconds.
fn signal() {
    let provider =
        PROVIDER_OF_HANDLER.get_or_init(|| Provider::register(PROVIDER, None).expect("registered"));
    alarm::start(100, in_handler);
    let mut refused = 0;
    for burst in 0..100 {
        refused += write_all(provider, 0, burst * 300..(burst + 1) * 300);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    alarm::stop();
    print_report(30_000 + HANDLED.load(Ordering::Relaxed), refused + HANDLER_REFUSED.load(Ordering::Relaxed));
}

/// Makes these system calls fail with EPERM in this process and all its threads from now on.
fn forbid(calls: &[libc::c_long]) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for &call in calls {
        let jump = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        program.push(libc::sock_filter { code: jump, jt: 0, jf: 1, k: call as u32 });
        program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program outlives the call, which copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
        let done = libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter);
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }
}

/// Registers and writes in a sandbox: both succeed, even if the sandbox keeps the daemon from
/// learning of it.
fn sandbox(refused: &str) {
    forbid(match refused {
        "sockets" => &[libc::SYS_socket, libc::SYS_connect, libc::SYS_bind],
        "memory" => &[libc::SYS_memfd_create],
        "threads" => &[libc::SYS_clone, libc::SYS_clone3],
        other => panic!("no such sandbox: {other}"),
    });
    let provider = Provider::register(PROVIDER, None).expect("registering succeeds in a sandbox");
    let refused = write_all(&provider, 0, 0..100);
    print_report(100, refused);
}

/// Outcome of a scenario.
struct Outcome {
    report: Report,
    ledger: Ledger,
    lost: u64,
    /// Events that the scenario's child process offered, if it has one.
    by_child: u64,
}

/// Runs a scenario against a session.
fn run_scenario(scenario: &str, path: WritePath) -> Outcome {
    let daemon = Daemon::start();
    let pages = daemon.path("progress");
    let progress = Progress::open(&pages);
    let file = daemon.path("scenario.etl");
    let mut control = daemon.control();
    let session = control.start(to_file("scenario", &file));
    let mut command = daemon.child(other_role(&format!("special {scenario} {}", pages.display())));
    path.apply(&mut command);
    let report = reports(vec![command.spawn().expect("the scenario begins")]);
    let last = control.stop(session);
    assert_sound(&file);
    let by_child = progress.counter(0).load(Ordering::Acquire);
    Outcome { report, ledger: Ledger::read(&file), lost: last.events_lost, by_child }
}

#[test]
fn forked_child_writes_as_its_own_process_and_the_parent_continues() {
    for path in WritePath::BOTH {
        let Outcome { report, ledger, lost, by_child } = run_scenario("fork", path);
        assert_eq!((report.offered, ledger.missing(0, 1, 200)), (200, 0));
        assert_eq!(ledger.missing(1, 1, by_child), lost, "what the child wrote is there or counted");
        assert!(!ledger.thread_numbers(1, 0).is_empty(), "the child has a region of its own");
        assert_ne!(ledger.pids[&0], ledger.pids[&1]);
    }
}

#[test]
fn child_by_raw_clone_counts_its_events_as_lost_and_the_parent_continues() {
    for path in WritePath::BOTH {
        let Outcome { ledger, lost, by_child, .. } = run_scenario("clone", path);
        assert_eq!(ledger.missing(0, 1, 200), 0);
        assert!(by_child > 100);
        assert_eq!(ledger.missing(1, 1, by_child), lost);
    }
}

#[test]
fn exec_keeps_events_written_before_it() {
    for path in WritePath::BOTH {
        let Outcome { ledger, lost, .. } = run_scenario("exec", path);
        assert_eq!((ledger.missing(0, 1, 100), ledger.missing(1, 1, 100), lost), (0, 0, 0));
        assert_eq!(ledger.pids[&0], ledger.pids[&1], "the same process");
    }
}

#[test]
fn signal_handlers_may_write_while_their_thread_writes() {
    for path in WritePath::BOTH {
        let Outcome { report, ledger, lost, .. } = run_scenario("signal", path);
        let handled = report.offered - 30_000;
        assert!(handled > 10, "the handler ran {handled} times");
        assert_eq!(ledger.missing(0, 1, 30_000) + ledger.missing(1, 1, handled), lost);
        assert_eq!(report.refused, lost);
    }
}

#[test]
fn registering_and_writing_succeed_in_sandboxes() {
    for refused in ["sockets", "memory", "threads"] {
        let Outcome { report, ledger, lost, .. } =
            run_scenario(&format!("sandbox {refused}"), WritePath::Sequence);
        assert_eq!(report, Report { offered: 100, refused: 0 }, "{refused}");
        match refused {
            // The daemon makes the memory: the process needs no permission for that.
            "memory" => assert_eq!((ledger.missing(0, 1, 100), lost), (0, 0)),
            _ => assert_eq!((ledger.len(), lost), (0, 0), "{refused}: the daemon does not learn of it"),
        }
    }
}
