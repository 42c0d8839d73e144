//! Controllers in C: the tables of the contract without a daemon and with one, and what their sessions recorded.

use std::path::Path;
use std::process::Command;

use traceweir_format::etl;
use traceweir_format::spec::event::class;

use crate::support::{
    C, CPP, Daemon, Link, SANITIZE, Workshop, expect_success, has, has_sanitizers, here, rows, skip,
};

/// Ids of the events of providers in a file.
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

/// A command around a program.
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

/// `only_daemon`: without sessions in the program's own memory.
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

fn build(workshop: &Workshop, compiler: &str, name: &str, flags: &[&str]) -> std::path::PathBuf {
    let flags = [flags, &["-pthread"]].concat();
    workshop.build(compiler, &here("tests/c").join(name), &flags, Link::Shared)
}

#[test]
fn without_a_daemon_mistakes_are_told_and_sessions_of_the_process_run() {
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
        // Sessions in the process need what valgrind does not have: memory that is mapped twice.
        let program = build(&workshop, "gcc", "control.c", &[]);
        run_with_daemon(&program, &["valgrind", "--quiet", "--error-exitcode=9"], true);
    }
}

/// The rows for a process without privileges are those of the test in Rust.
#[test]
fn every_call_of_the_table_of_information_returns_the_same_from_c() {
    let may_profile = std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or("0");
        u64::from_str_radix(bits.trim(), 16).is_ok_and(|bits| bits & (1 << 21 | 1 << 38) != 0)
    });
    if !may_profile {
        return skip("root", "without CAP_PERFMON most of the table cannot be tried");
    }
    let devices = std::fs::read_dir("/sys/bus/event_source/devices").into_iter().flatten().flatten();
    let processors: Vec<_> =
        devices.filter(|it| it.file_name().to_string_lossy().starts_with("cpu")).collect();
    let has_branches = processors.iter().any(|it| it.path().join("caps/branches").exists());
    let (workshop, daemon, logs) = (Workshop::new(), Daemon::new(), tempfile::tempdir().unwrap());
    let mut command = daemon.command(&build(&workshop, "gcc", "information_table.c", &[]));
    command.arg(here("../../fixtures/information/classes.txt")).arg(logs.path());
    for fact in [!processors.is_empty(), has_branches] {
        command.arg(u8::from(fact).to_string());
    }
    let output = expect_success(&mut command);
    assert!(rows(&output) > 600, "{output}");
}
