//! Tests of writers that fork, clone or exec, that write in signal handlers, or that run in
//! sandboxes.

use std::os::unix::process::CommandExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use traceweir::Provider;

use crate::alarm;
use crate::fixture::{Daemon, WritePath, collect_reports, file_session_config};
use crate::roles::{PROVIDER, Progress, Report, Writer, role_variable, write_event};
use crate::tally::{EventTally, assert_sound};

const FILLER: [u8; 24] = [0x5A; 24];

/// The child role: runs one of the scenarios below.
pub(crate) fn run_role(words: &[&str]) {
    match words[0] {
        "fork" => write_around_fork(words[1], || {
            // SAFETY: the child only writes events and leaves by `_exit`.
            unsafe { libc::fork() }
        }),
        "clone" => write_around_fork(words[1], || {
            // SAFETY: the child only writes events and leaves by `_exit`. This call bypasses the C
            // library, so none of its fork handlers runs in the child.
            unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t }
        }),
        "exec" => write_around_exec(),
        "signal" => write_in_signal_handler(),
        "sandbox" => write_in_sandbox(words[1]),
        scenario => panic!("no such scenario: {scenario}"),
    }
}

fn print_report(offered: u64, refused: u64) {
    use std::io::Write as _;
    writeln!(std::io::stdout(), "\nreport {offered} {refused}").expect("standard output is not open");
}

/// Writes events with these numbers; returns how many calls were refused.
fn write_events(provider: &Provider, writer: u32, numbers: std::ops::Range<u64>) -> u64 {
    numbers.filter(|&n| !write_event(provider, writer, 0, n, &FILLER)).count() as u64
}

/// Writes events as writer 0 in the parent, before and after the fork. The child writes as writer 1
/// until a write succeeds (at most ten thousand attempts), and then writes a hundred more events.
fn write_around_fork(counters: &str, fork_process: impl Fn() -> libc::pid_t) {
    let progress = Progress::open(counters.as_ref());
    let provider = Provider::register(PROVIDER, None).expect("the provider did not register");
    let mut refused = write_events(&provider, 0, 0..100);
    let child = fork_process();
    if child == 0 {
        let mut number = 0;
        while !write_event(&provider, 1, 0, number, &FILLER) && number < 10_000 {
            number += 1;
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        write_events(&provider, 1, number + 1..number + 101);
        progress.counter(0).store(number + 101, Ordering::Release);
        // SAFETY: ends the child without running code of the test harness.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0);
    refused += write_events(&provider, 0, 100..200);
    let mut status = 0;
    // SAFETY: `status` outlives the call, and the child was created above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed");
    print_report(200, refused);
}

/// Writes as writer 0, then as writer 1 in the same process after exec.
fn write_around_exec() {
    let provider = Provider::register(PROVIDER, None).expect("the provider did not register");
    write_events(&provider, 0, 0..100);
    let (name, value) = Writer::new(1, 1, 100).role_variable();
    let mut command =
        std::process::Command::new(std::env::current_exe().expect("the test program has no path"));
    command.args(["--exact", "role", "--nocapture", "--test-threads=1"]).env(name, value);
    panic!("exec failed: {}", command.exec());
}

static PROVIDER_OF_HANDLER: OnceLock<Provider> = OnceLock::new();
static HANDLER_OFFERED: AtomicU64 = AtomicU64::new(0);
static HANDLER_REFUSED: AtomicU64 = AtomicU64::new(0);

fn write_from_handler() {
    let Some(provider) = PROVIDER_OF_HANDLER.get() else { return };
    let number = HANDLER_OFFERED.fetch_add(1, Ordering::Relaxed);
    if !write_event(provider, 1, 0, number, &FILLER) {
        HANDLER_REFUSED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes as writer 0 in the thread, and as writer 1 in a signal handler that interrupts it every
/// hundred microseconds.
fn write_in_signal_handler() {
    let provider = PROVIDER_OF_HANDLER
        .get_or_init(|| Provider::register(PROVIDER, None).expect("the provider did not register"));
    alarm::start(100, write_from_handler);
    let mut refused = 0;
    for burst in 0..100 {
        refused += write_events(provider, 0, burst * 300..(burst + 1) * 300);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    alarm::stop();
    print_report(
        30_000 + HANDLER_OFFERED.load(Ordering::Relaxed),
        refused + HANDLER_REFUSED.load(Ordering::Relaxed),
    );
}

/// Makes these system calls fail with EPERM in this process and all its threads from now on.
fn forbid_system_calls(calls: &[libc::c_long]) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    // Loads the number of the system call, at offset 0 of `seccomp_data`.
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for &call in calls {
        // Skips the return of the error unless the numbers are equal.
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
        let result =
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter);
        assert_eq!(result, 0, "seccomp failed: {}", std::io::Error::last_os_error());
    }
}

/// Registers a provider and writes events in a sandbox. Registering and writing must succeed, even
/// if the sandbox prevents the connection to the daemon.
fn write_in_sandbox(forbidden: &str) {
    forbid_system_calls(match forbidden {
        "sockets" => &[libc::SYS_socket, libc::SYS_connect, libc::SYS_bind],
        "memory" => &[libc::SYS_memfd_create],
        "threads" => &[libc::SYS_clone, libc::SYS_clone3],
        sandbox => panic!("no such sandbox: {sandbox}"),
    });
    let provider = Provider::register(PROVIDER, None).expect("registering failed in a sandbox");
    let refused = write_events(&provider, 0, 0..100);
    print_report(100, refused);
}

struct ScenarioOutcome {
    report: Report,
    tally: EventTally,
    lost: u64,
    /// Events that the scenario's child process offered, if it has one.
    offered_by_child: u64,
}

/// Runs a scenario against a session.
fn run_scenario(scenario: &str, path: WritePath) -> ScenarioOutcome {
    let daemon = Daemon::start();
    let counters = daemon.path("progress");
    let progress = Progress::open(&counters);
    let file = daemon.path("scenario.etl");
    let mut control = daemon.connect();
    let session = control.start(file_session_config("scenario", &file));
    let mut command =
        daemon.role_command(role_variable(&format!("scenario {scenario} {}", counters.display())));
    path.set_variable(&mut command);
    let report = collect_reports(vec![command.spawn().expect("the scenario did not start")]);
    let last = control.stop(session);
    assert_sound(&file);
    let offered_by_child = progress.counter(0).load(Ordering::Acquire);
    ScenarioOutcome { report, tally: EventTally::read(&file), lost: last.events_lost, offered_by_child }
}

#[test]
fn forked_child_writes_as_its_own_process_and_the_parent_continues() {
    for path in WritePath::BOTH {
        let ScenarioOutcome { report, tally, lost, offered_by_child } = run_scenario("fork", path);
        assert_eq!((report.offered, tally.count_missing(0, 1, 200)), (200, 0));
        assert_eq!(
            tally.count_missing(1, 1, offered_by_child),
            lost,
            "events of the child are missing but not counted as lost"
        );
        assert!(!tally.event_numbers_of_thread(1, 0).is_empty(), "no event of the child was recorded");
        assert_ne!(tally.pids[&0], tally.pids[&1]);
    }
}

#[test]
fn lost_events_of_a_raw_clone_are_counted_and_the_parent_continues() {
    for path in WritePath::BOTH {
        let ScenarioOutcome { tally, lost, offered_by_child, .. } = run_scenario("clone", path);
        assert_eq!(tally.count_missing(0, 1, 200), 0);
        assert!(offered_by_child > 100);
        assert_eq!(tally.count_missing(1, 1, offered_by_child), lost);
    }
}

#[test]
fn exec_keeps_events_written_before_it() {
    for path in WritePath::BOTH {
        let ScenarioOutcome { tally, lost, .. } = run_scenario("exec", path);
        assert_eq!((tally.count_missing(0, 1, 100), tally.count_missing(1, 1, 100), lost), (0, 0, 0));
        assert_eq!(tally.pids[&0], tally.pids[&1], "exec changed the process id");
    }
}

#[test]
fn signal_handlers_may_write_while_their_thread_writes() {
    for path in WritePath::BOTH {
        let ScenarioOutcome { report, tally, lost, .. } = run_scenario("signal", path);
        let handled = report.offered - 30_000;
        assert!(handled > 10, "the handler ran {handled} times");
        assert_eq!(tally.count_missing(0, 1, 30_000) + tally.count_missing(1, 1, handled), lost);
        assert_eq!(report.refused, lost);
    }
}

#[test]
fn registering_and_writing_succeed_in_sandboxes() {
    for forbidden in ["sockets", "memory", "threads"] {
        let ScenarioOutcome { report, tally, lost, .. } =
            run_scenario(&format!("sandbox {forbidden}"), WritePath::Sequence);
        assert_eq!(report, Report { offered: 100, refused: 0 }, "sandbox without {forbidden}");
        match forbidden {
            // The daemon creates the memory, so the process needs no permission for that.
            "memory" => assert_eq!((tally.count_missing(0, 1, 100), lost), (0, 0)),
            // Without sockets or threads, the process has no connection to the daemon.
            _ => assert_eq!((tally.len(), lost), (0, 0), "events were recorded without {forbidden}"),
        }
    }
}
