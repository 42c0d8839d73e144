//! Controllers in C: the tables of the contract without a daemon and with one, and what their
//! sessions recorded.

use std::path::Path;
use std::process::Command;

use traceweir_format::binary_path::BinaryPath;
use traceweir_format::etl;
use traceweir_format::spec::event::class;

use crate::support::{
    C, CPP, Daemon, Link, SANITIZE, Workshop, expect_success, has, has_sanitizers, here, rows,
};

/// Returns the ids of the provider events in a file.
fn ids(file: &Path) -> Vec<u16> {
    let trace = etl::Trace::open(std::fs::File::open(file).unwrap()).unwrap();
    let mut events = trace.events();
    let mut ids = Vec::new();
    while let Some(record) = events.next().unwrap() {
        if record.provider() != class::EVENT_TRACE {
            ids.push(record.descriptor().id);
        }
    }
    ids
}

/// Makes a command that runs a program under another one.
fn around(program: &Path, around: &[&str]) -> Command {
    match around {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    }
}

fn run_alone(program: &Path, by: &[&str]) {
    let (runtime, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = around(program, by);
    let output = expect_success(command.arg(logs.path()).env("TRACEWEIR_RUNTIME_DIR", runtime.path()));
    assert!(rows(&output) > 150, "{output}");
    assert!(!runtime.path().join("control.sock").exists(), "nothing of this starts a daemon");
    assert_eq!(ids(&logs.path().join("own.etl")), [1]);
    assert_eq!(ids(&logs.path().join("next.etl")), [1]);
    assert!(!logs.path().join("never.etl").exists(), "what is refused leaves no file");
}

/// Runs a program with a daemon. `only_daemon`: without sessions in the program's own process.
fn run_with_daemon(program: &Path, by: &[&str], only_daemon: bool) {
    let (daemon, logs) = (Daemon::new(), tempfile::tempdir().unwrap());
    let mut command = around(program, by);
    command.arg(logs.path()).args(only_daemon.then_some("daemon"));
    let output = expect_success(command.env("TRACEWEIR_RUNTIME_DIR", daemon.folder.path()));
    assert!(rows(&output) > 140, "{output}");
    assert_eq!(ids(&logs.path().join("whole.etl")), [1]);
    assert_eq!(ids(&logs.path().join("second.etl")), [1]);
    assert_eq!(ids(&logs.path().join("snapshot.etl")), [2]);
    assert!(only_daemon || ids(&logs.path().join("private.etl")) == [2]);
    assert!(!logs.path().join("other.etl").exists(), "what is refused leaves no file");
    assert!(logs.path().join("narrow-ä.etl").exists());
}

pub(crate) fn build(workshop: &Workshop, compiler: &str, name: &str, flags: &[&str]) -> std::path::PathBuf {
    let flags = [flags, &["-pthread"]].concat();
    workshop.build(compiler, &here("tests/c").join(name), &flags, Link::Shared)
}

#[test]
fn without_a_daemon_errors_are_reported_and_private_sessions_run() {
    let workshop = Workshop::new();
    for compiler in C.compilers() {
        run_alone(&build(&workshop, compiler, "control_alone.c", &[]), &[]);
    }
}

#[test]
fn sessions_live_from_start_to_stop_by_the_published_functions() {
    let workshop = Workshop::new();
    for compiler in C.compilers() {
        run_with_daemon(&build(&workshop, compiler, "control.c", &[]), &[], false);
    }
}

#[test]
fn controllers_are_cpp_too() {
    let workshop = Workshop::new();
    for compiler in CPP.compilers() {
        let flags = ["-std=c++17", "-x", "c++"];
        run_alone(&build(&workshop, compiler, "control_alone.c", &flags), &[]);
        run_with_daemon(&build(&workshop, compiler, "control.c", &flags), &[], false);
    }
}

#[test]
fn sanitizers_find_nothing_in_controllers() {
    if has_sanitizers("gcc") {
        let workshop = Workshop::new();
        run_alone(&build(&workshop, "gcc", "control_alone.c", &SANITIZE), &[]);
        run_with_daemon(&build(&workshop, "gcc", "control.c", &SANITIZE), &[], false);
    }
}

#[test]
fn valgrind_finds_nothing_in_controllers() {
    if has("valgrind") {
        let workshop = Workshop::new();
        // Private sessions need what valgrind does not support: memory that is mapped twice.
        let program = build(&workshop, "gcc", "control.c", &[]);
        run_with_daemon(&program, &["valgrind", "--quiet", "--error-exitcode=9"], true);
    }
}

#[test]
fn nothing_is_read_or_written_past_the_callers_memory() {
    let (workshop, daemon, logs) = (Workshop::new(), Daemon::new(), tempfile::tempdir().unwrap());
    let program = build(&workshop, "gcc", "control_edges.c", &[]);
    let output = expect_success(daemon.command(&program).arg(logs.path()));
    assert!(rows(&output) > 250, "{output}");
    assert!(logs.path().join("snapshot.etl").exists());
}

#[test]
fn information_without_a_daemon_is_returned_if_none_runs() {
    let workshop = Workshop::new();
    let program = build(&workshop, "gcc", "asked_alone.c", &[]);
    let (runtime, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = Command::new(&program);
    // No daemon can be started either.
    command.arg(logs.path()).env("TRACEWEIR_RUNTIME_DIR", runtime.path()).env("TRACEWEIR_DAEMON", "/nowhere");
    assert!(rows(&expect_success(&mut command)) > 150);
    assert!(!runtime.path().join("control.sock").exists(), "nothing of this starts a daemon");
    let trace = etl::Trace::open(std::fs::File::open(logs.path().join("tracked.etl")).unwrap()).unwrap();
    let (mut events, mut tracked) = (trace.events(), Vec::new());
    while let Some(record) = events.next().unwrap() {
        if BinaryPath::is_in(&record) {
            let module = BinaryPath::parse(record.payload()).unwrap();
            assert_eq!(Path::new(&module.path), program.canonicalize().unwrap());
            tracked.extend(module.guids.iter().map(|guid| guid.data1));
        }
    }
    assert_eq!(tracked, [0xC0FF_EE09, 0xC0FF_EE0A]);
}

#[test]
fn information_without_a_daemon_is_returned_if_its_socket_is_unusable() {
    let workshop = Workshop::new();
    let program = build(&workshop, "gcc", "asked_alone.c", &[]);
    let (runtime, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // A socket of another kind: no daemon can answer there.
    let _other = std::os::unix::net::UnixListener::bind(runtime.path().join("control.sock")).unwrap();
    let mut command = Command::new(&program);
    command.arg(logs.path()).arg("1117").env("TRACEWEIR_RUNTIME_DIR", runtime.path());
    assert!(rows(&expect_success(&mut command)) > 120);
}
