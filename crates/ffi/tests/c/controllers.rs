//! Controllers in C: the tables of the contract without a daemon and with one, and what their sessions recorded.

use std::path::Path;
use std::process::Command;

use traceweir::Guid;
use traceweir::controller::EnableParams;
use traceweir::controller::access::{Rights, SecurityOperation, Sid};
use traceweir_format::etl;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::event::class;

use crate::support::{C, CPP, Daemon, Link, Workshop, expect_success, has, here, skip};

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

fn rows(output: &str) -> u32 {
    let line = output.lines().find_map(|line| line.strip_prefix("rows: "));
    line.unwrap_or_else(|| panic!("no rows: {output}")).parse().unwrap()
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
    const FLAGS: [&str; 3] =
        ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];
    let workshop = Workshop::new();
    let probe = workshop.path("probe.c");
    std::fs::write(&probe, "int main(void) { return 0; }\n").unwrap();
    let built =
        Command::new("gcc").args(FLAGS).arg(&probe).arg("-o").arg(workshop.path("probe")).output().unwrap();
    if !built.status.success() {
        return skip("sanitizers", "gcc has no sanitizers");
    }
    run_alone(&build(&workshop, "gcc", "control_alone.c", &FLAGS), &[]);
    run_with_daemon(&build(&workshop, "gcc", "control.c", &FLAGS), &[], false);
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

/// A user who is a guest of a daemon for all.
const GUEST: u32 = 64_314;

/// Has a list name the guest: who is named by none is not let in.
fn let_in(daemon: &Daemon) {
    let (add, guest) = (SecurityOperation::ADD_DACL, Sid::user(GUEST));
    daemon.controller().set_access(Guid::from_u128(1), add, &guest, Rights::WMIGUID_SET, true).unwrap();
}

fn is_root() -> bool {
    // Root's effective capabilities: to profile the system, and to be somebody else.
    let needed = 1_u64 << 38 | 1 << 21 | 1 << 7;
    let is_root = std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or("0");
        u64::from_str_radix(bits.trim(), 16).is_ok_and(|bits| bits & needed == needed)
    });
    if !is_root {
        skip("root", "without root nobody can be made who has fewer rights");
    }
    is_root
}

#[test]
fn every_call_of_the_table_of_information_returns_the_same_from_c() {
    if !is_root() {
        return;
    }
    let devices = std::fs::read_dir("/sys/bus/event_source/devices").into_iter().flatten().flatten();
    let processors: Vec<_> =
        devices.filter(|it| it.file_name().to_string_lossy().starts_with("cpu")).collect();
    let has_branches = processors.iter().any(|it| it.path().join("caps/branches").exists());
    let (workshop, daemon, logs) = (Workshop::new(), Daemon::for_all(), tempfile::tempdir().unwrap());
    let_in(&daemon);
    // Where the guest, too, can read it.
    let table = daemon.folder.path().join("classes.txt");
    std::fs::copy(here("../../fixtures/information/classes.txt"), &table).unwrap();
    let mut command = daemon.command(&build(&workshop, "gcc", "information_table.c", &[]));
    command.arg(table).arg(logs.path());
    for fact in [!processors.is_empty(), has_branches] {
        command.arg(u8::from(fact).to_string());
    }
    let output = expect_success(command.arg(GUEST.to_string()));
    let all: u32 = output.lines().filter_map(|line| line.strip_prefix("rows: ")?.parse::<u32>().ok()).sum();
    assert_eq!(output.matches("rows: ").count(), 3, "plain, guest, and all the others: {output}");
    assert!(all > 2000, "{output}");
}

/// A group of the program, by its number there.
fn group(number: u32) -> Guid {
    Guid::from_u128(u128::from(number) << 96)
}

#[test]
fn who_may_not_join_a_group_is_told_and_not_enabled_by_it() {
    if !is_root() {
        return;
    }
    let (barred, open) = (group(0xC0FF_EE40), group(0xC0FF_EE41));
    let workshop = Workshop::new();
    for (mode, status) in [("-D_USER_MODE", "0x80070005u"), ("-D_KERNEL_MODE", "0xC0000022u")] {
        let daemon = Daemon::for_all();
        let (add, guest) = (SecurityOperation::ADD_DACL, Sid::user(GUEST));
        daemon.controller().set_access(barred, add, &guest, Rights::TRACELOG_JOIN_GROUP, false).unwrap();
        let property = EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
        let params = EnableParams { level: 4, property, ..EnableParams::default() };
        let recording = daemon.record("groups", &[barred, open], &params);
        let status = format!("-DSTATUS_OR_HRESULT={status}");
        let program = build(&workshop, "gcc", "group_refused.c", &[mode, &status]);
        expect_success(daemon.command(&program).arg(GUEST.to_string()));
        let members = |group| daemon.controller().group_info(group).unwrap().members.len();
        assert_eq!((members(barred), members(open)), (0, 0), "all have left");
        assert_eq!(recording.stop(0, |record| record.descriptor().id), [1]);
    }
}
