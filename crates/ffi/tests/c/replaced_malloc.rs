//! Programs that replace `malloc` with an allocator that registers providers while it holds its
//! lock ("below its lock").

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use traceweir::Guid;
use traceweir::controller::{EnableParams, SessionConfig};

use crate::controllers::build_program;
use crate::support::{Link, ProgramFolder, TestDaemon, crate_path, expect_success};

const FIRST: Guid = Guid::from_u128(0xC0FF_EE21_1111_2222_0102_0304_0506_0708);
const SECOND: Guid = Guid::from_u128(0xC0FF_EE22_1111_2222_0102_0304_0506_0708);
const EVENT_COUNT: usize = 10_000;
/// The most that a registration may take on a busy machine. One that waits for a thread which waits
/// for the allocator's lock takes longer.
const MAX_REGISTRATION: Duration = Duration::from_millis(900);

fn source_path(name: &str) -> std::path::PathBuf {
    crate_path("tests/c").join(name)
}

fn build_allocator(programs: &ProgramFolder) -> std::path::PathBuf {
    build_program(programs, "gcc", "locked_malloc.c", &["-shared", "-fPIC"])
}

/// Runs the program while a session records both providers, and checks that no event is missing.
fn run_and_check(program: &Path, configure: impl FnOnce(&mut Command)) {
    let daemon = TestDaemon::new();
    let config = SessionConfig { ring_bytes: 4 << 20, maximum_buffers: 200, ..SessionConfig::default() };
    let session = daemon.record_with_config("heard", &[FIRST, SECOND], &EnableParams::default(), config);
    let mut command = daemon.command(program);
    configure(&mut command);
    let output = expect_success(&mut command);
    let numbers: Vec<u64> = output.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [first_us, second_us, allocations] = numbers[..] else { panic!("{output}") };
    for us in [first_us, second_us] {
        assert!(Duration::from_micros(us) < MAX_REGISTRATION, "a registration took {us} µs");
    }
    let ids = session.stop(0, |record| record.descriptor().id);
    let count = |id| ids.iter().filter(|other| **other == id).count();
    assert_eq!((count(1), count(2)), (allocations as usize, EVENT_COUNT));
}

#[test]
fn preloaded_allocator_registers_below_its_lock() {
    let programs = ProgramFolder::new();
    let allocator = build_allocator(&programs);
    // The program calls functions of the allocator, so it is linked with the allocator too.
    let flags = ["-pthread", "-Wl,--no-as-needed", allocator.to_str().unwrap()];
    let program = programs.build("gcc", &source_path("locked_malloc_user.c"), &flags, Link::Shared);
    run_and_check(&program, |command| {
        command.env("LD_PRELOAD", &allocator);
    });
}

#[test]
fn allocator_of_a_statically_linked_program_registers_below_its_lock() {
    let programs = ProgramFolder::new();
    let allocator = source_path("locked_malloc.c");
    let flags = ["-pthread", allocator.to_str().unwrap()];
    run_and_check(&programs.build("gcc", &source_path("locked_malloc_user.c"), &flags, Link::Static), |_| ());
}

#[test]
fn threads_start_at_load_only_if_malloc_is_replaced() {
    let programs = ProgramFolder::new();
    let allocator = build_allocator(&programs);
    let runtime = tempfile::tempdir().unwrap();
    for kind in [["-fPIE", "-pie"], ["-fno-pie", "-no-pie"]] {
        let flags = [&kind[..], &["-pthread", "-Wl,--no-as-needed"]].concat();
        let program = programs.build("gcc", &source_path("count_threads.c"), &flags, Link::Shared);
        let count_threads = |preloaded: Option<&Path>| {
            let mut command = Command::new(&program);
            command.env("TRACEWEIR_RUNTIME_DIR", runtime.path());
            expect_success(command.envs(preloaded.map(|path| ("LD_PRELOAD", path))))
        };
        assert_eq!(count_threads(None), "1\n", "{kind:?}");
        // The main thread and three threads of the library.
        assert_eq!(count_threads(Some(&allocator)), "4\n", "{kind:?}");
    }
}

#[test]
fn shell_runs_and_forks_with_the_preloaded_allocator() {
    let programs = ProgramFolder::new();
    let (allocator, daemon) = (build_allocator(&programs), TestDaemon::new());
    let session = daemon.record("heard", &[FIRST], &EnableParams::default());
    for _ in 0..10 {
        let mut command = daemon.command(Path::new("/bin/sh"));
        command.args(["-c", "echo one; (echo two); cat /dev/null | cat"]).env("LD_PRELOAD", &allocator);
        let output = expect_success(&mut command);
        assert_eq!(output, "one\ntwo\n");
    }
    // The allocator registers, but writes events only after a program calls `trace_allocations`.
    assert_eq!(session.stop(0, |record| record.descriptor().id), []);
}
