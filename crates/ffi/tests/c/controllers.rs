//! Controllers in C, without a daemon and with one, and the events that their sessions record.

use std::path::Path;
use std::process::Command;

use traceweir_format::binary_path::BinaryPath;
use traceweir_format::etl;
use traceweir_format::spec::event::class;

use crate::support::{
    C, CPP, Link, ProgramFolder, SANITIZER_FLAGS, TestDaemon, checked_rows, crate_path, expect_success,
    has_program, has_sanitizers,
};

/// Returns the ids of the provider events in a file.
fn read_event_ids(file: &Path) -> Vec<u16> {
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

/// Returns a command that runs a program under another program, such as valgrind.
fn wrap_command(program: &Path, wrapper: &[&str]) -> Command {
    match wrapper {
        [] => Command::new(program),
        [first, arguments @ ..] => {
            let mut command = Command::new(first);
            command.args(arguments).arg(program);
            command
        }
    }
}

fn run_without_daemon(program: &Path, wrapper: &[&str]) {
    let (runtime, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = wrap_command(program, wrapper);
    let output = expect_success(command.arg(logs.path()).env("TRACEWEIR_RUNTIME_DIR", runtime.path()));
    assert!(checked_rows(&output) > 150, "{output}");
    assert!(!runtime.path().join("control.sock").exists(), "a call started a daemon");
    assert_eq!(read_event_ids(&logs.path().join("own.etl")), [1]);
    assert_eq!(read_event_ids(&logs.path().join("next.etl")), [1]);
    assert!(!logs.path().join("never.etl").exists(), "a refused session left a file");
}

/// Runs a program with a daemon. The program also starts private sessions unless
/// `skips_private_sessions`.
fn run_with_daemon(program: &Path, wrapper: &[&str], skips_private_sessions: bool) {
    let (daemon, logs) = (TestDaemon::new(), tempfile::tempdir().unwrap());
    let mut command = wrap_command(program, wrapper);
    command.arg(logs.path()).args(skips_private_sessions.then_some("daemon"));
    let output = expect_success(command.env("TRACEWEIR_RUNTIME_DIR", daemon.folder.path()));
    assert!(checked_rows(&output) > 140, "{output}");
    assert_eq!(read_event_ids(&logs.path().join("whole.etl")), [1]);
    assert_eq!(read_event_ids(&logs.path().join("second.etl")), [1]);
    assert_eq!(read_event_ids(&logs.path().join("snapshot.etl")), [2]);
    assert!(skips_private_sessions || read_event_ids(&logs.path().join("private.etl")) == [2]);
    assert!(!logs.path().join("other.etl").exists(), "a refused session left a file");
    assert!(logs.path().join("narrow-ä.etl").exists());
}

pub(crate) fn build_program(
    programs: &ProgramFolder,
    compiler: &str,
    name: &str,
    flags: &[&str],
) -> std::path::PathBuf {
    let flags = [flags, &["-pthread"]].concat();
    programs.build(compiler, &crate_path("tests/c").join(name), &flags, Link::Shared)
}

#[test]
fn without_a_daemon_errors_are_reported_and_private_sessions_run() {
    let programs = ProgramFolder::new();
    for compiler in C.compilers() {
        run_without_daemon(&build_program(&programs, compiler, "control_alone.c", &[]), &[]);
    }
}

#[test]
fn published_functions_control_a_session_from_start_to_stop() {
    let programs = ProgramFolder::new();
    for compiler in C.compilers() {
        run_with_daemon(&build_program(&programs, compiler, "control.c", &[]), &[], false);
    }
}

/// The number of runs in one call of `enable_at_once.c`. Each run starts a session, enables, writes
/// and stops.
const ENABLE_RUNS: u32 = 100;

fn run_enable_at_once(arguments: &[&str]) {
    let (programs, daemon, logs) = (ProgramFolder::new(), TestDaemon::new(), tempfile::tempdir().unwrap());
    let program = build_program(&programs, "gcc", "enable_at_once.c", &[]);
    let mut command = daemon.command(&program);
    expect_success(command.arg(logs.path()).arg(ENABLE_RUNS.to_string()).args(arguments));
    for run in 0..ENABLE_RUNS {
        let file = logs.path().join(format!("run-{run}.etl"));
        assert_eq!(read_event_ids(&file), [1, 2, 3], "run {run}");
    }
}

#[test]
fn first_event_after_an_enable_without_timeout_is_recorded() {
    run_enable_at_once(&[]);
}

#[test]
fn first_event_after_an_enable_without_timeout_is_recorded_on_a_busy_machine() {
    run_enable_at_once(&["busy"]);
}

#[test]
fn controllers_compile_and_run_as_cpp() {
    let programs = ProgramFolder::new();
    for compiler in CPP.compilers() {
        let flags = ["-std=c++17", "-x", "c++"];
        run_without_daemon(&build_program(&programs, compiler, "control_alone.c", &flags), &[]);
        run_with_daemon(&build_program(&programs, compiler, "control.c", &flags), &[], false);
    }
}

#[test]
fn sanitizers_report_no_error_in_controllers() {
    if has_sanitizers("gcc") {
        let programs = ProgramFolder::new();
        run_without_daemon(&build_program(&programs, "gcc", "control_alone.c", &SANITIZER_FLAGS), &[]);
        run_with_daemon(&build_program(&programs, "gcc", "control.c", &SANITIZER_FLAGS), &[], false);
    }
}

#[test]
fn valgrind_reports_no_error_in_controllers() {
    if has_program("valgrind") {
        let programs = ProgramFolder::new();
        // Valgrind does not support memory that is mapped twice, which private sessions need.
        let program = build_program(&programs, "gcc", "control.c", &[]);
        run_with_daemon(&program, &["valgrind", "--quiet", "--error-exitcode=9"], true);
    }
}

#[test]
fn no_call_reads_or_writes_past_the_callers_memory() {
    let (programs, daemon, logs) = (ProgramFolder::new(), TestDaemon::new(), tempfile::tempdir().unwrap());
    let program = build_program(&programs, "gcc", "control_edges.c", &[]);
    let output = expect_success(daemon.command(&program).arg(logs.path()));
    assert!(checked_rows(&output) > 250, "{output}");
    assert!(logs.path().join("snapshot.etl").exists());
}

#[test]
fn calls_that_need_no_daemon_do_not_start_one() {
    let programs = ProgramFolder::new();
    let program = build_program(&programs, "gcc", "information_alone.c", &[]);
    let (runtime, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = Command::new(&program);
    // The program of the daemon does not exist, so a call that starts a daemon fails.
    command.arg(logs.path()).env("TRACEWEIR_RUNTIME_DIR", runtime.path()).env("TRACEWEIR_DAEMON", "/nowhere");
    assert!(checked_rows(&expect_success(&mut command)) > 150);
    assert!(!runtime.path().join("control.sock").exists(), "a call started a daemon");
    let trace = etl::Trace::open(std::fs::File::open(logs.path().join("tracked.etl")).unwrap()).unwrap();
    let (mut events, mut tracked) = (trace.events(), Vec::new());
    while let Some(record) = events.next().unwrap() {
        if BinaryPath::is_in(&record) {
            let module = BinaryPath::parse(record.payload()).unwrap();
            assert_eq!(Path::new(&module.path), program.canonicalize().unwrap());
            tracked.extend(module.guids.iter().map(|guid| guid.data1));
        }
    }
    // PROVIDER and LATER_PROVIDER of the program.
    assert_eq!(tracked, [0xC0FF_EE09, 0xC0FF_EE0A]);
}

#[test]
fn start_without_the_daemons_program_explains_itself_once() {
    let programs = ProgramFolder::new();
    let source = "#include <evntrace.h>\n#include <stdlib.h>\nint main(void) {\n\
                  EVENT_TRACE_PROPERTIES *p = (EVENT_TRACE_PROPERTIES *)calloc(1, sizeof *p + 64);\n\
                  TRACEHANDLE id;\np->Wnode.BufferSize = sizeof *p + 64;\np->Wnode.Flags = WNODE_FLAG_TRACED_GUID;\np->LogFileMode = EVENT_TRACE_REAL_TIME_MODE;\n\
                  p->LoggerNameOffset = sizeof *p;\nULONG first = StartTraceA(&id, \"a\", p);\n\
                  return !(first == ERROR_NO_SYSTEM_RESOURCES && StartTraceA(&id, \"a\", p) == first);\n}\n";
    let file = programs.path("explained.c");
    std::fs::write(&file, source).unwrap();
    let program = programs.build("gcc", &file, &[], Link::Shared);
    let runtime = tempfile::tempdir().unwrap();
    let mut command = Command::new(&program);
    let output = command
        .env("TRACEWEIR_RUNTIME_DIR", runtime.path())
        .env("TRACEWEIR_DAEMON", "/nowhere/weir")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    assert_eq!(printed.lines().count(), 1, "{printed}");
    assert!(printed.starts_with("libtraceweir: ") && printed.contains("/nowhere/weir"), "{printed}");
}

#[test]
fn unusable_socket_fails_only_calls_that_need_a_daemon() {
    let programs = ProgramFolder::new();
    let program = build_program(&programs, "gcc", "information_alone.c", &[]);
    let (runtime, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // A daemon uses another type of socket, so calls fail with ERROR_IO_DEVICE (1117) here.
    let _stream_socket = std::os::unix::net::UnixListener::bind(runtime.path().join("control.sock")).unwrap();
    let mut command = Command::new(&program);
    command.arg(logs.path()).arg("1117").env("TRACEWEIR_RUNTIME_DIR", runtime.path());
    assert!(checked_rows(&expect_success(&mut command)) > 120);
}
