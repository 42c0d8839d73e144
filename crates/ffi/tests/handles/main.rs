//! Invalid handles of every kind, and handles that many threads use at once: the statuses of calls,
//! and the reports of sanitizers.
//!
//! | Run with | What is checked |
//! |---|---|
//! | no sanitizer | that calls return, and their status |
//! | AddressSanitizer, UndefinedBehaviorSanitizer | programs, and allocations by the library |
//! | ThreadSanitizer | programs, library and std, all built for it (`thread-sanitizer.sh`) |

#[path = "../../../../tests/support/sandbox.rs"]
mod sandbox;
#[path = "../support/mod.rs"]
mod support;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandbox::refuse;
use support::{
    Link, ProgramFolder, SANITIZER_FLAGS, STRICT_FLAGS, TestDaemon, checked_rows, crate_path, expect_success,
    has_sanitizers, skip,
};

/// Builds and runs a program of this folder, and returns its output.
fn build_and_run(programs: &ProgramFolder, name: &str, flags: &[&str]) -> String {
    let source = crate_path("tests/handles").join(name);
    run_program(&programs.build("gcc", &source, &[flags, &["-pthread"]].concat(), Link::Shared), false)
}

/// Runs a program with a daemon, a trace and a manifest, and returns its output. If
/// `shares_descriptor_table`, the library's threads use the descriptor table of the program.
fn run_program(program: &Path, shares_descriptor_table: bool) -> String {
    let (daemon, folder) = (TestDaemon::new(), tempfile::tempdir().unwrap());
    std::fs::copy(crate_path("../../fixtures/etl/manifest.etl"), folder.path().join("manifest.etl")).unwrap();
    let mut command = daemon.command(program);
    command.arg(folder.path()).arg(crate_path("../../fixtures/manifests/everything.man"));
    if shares_descriptor_table {
        let refuse_separate_tables = || {
            refuse(&[libc::SYS_close_range, libc::SYS_unshare]);
            Ok(())
        };
        // SAFETY: the closure runs between fork and exec. The other threads hold no lock that it
        // takes, except that of the allocator, which the C library hands over to the child.
        unsafe { command.pre_exec(refuse_separate_tables) };
    }
    expect_success(command.env("TRACEWEIR_MANIFESTS", "/nowhere"))
}

#[test]
fn wrong_handle_returns_its_error_and_has_no_other_effect() {
    let output = build_and_run(&ProgramFolder::new(), "table.c", &[]);
    assert!(checked_rows(&output) > 3000, "{output}");
}

#[test]
fn exactly_one_racing_thread_ends_a_handle() {
    build_and_run(&ProgramFolder::new(), "threads.c", &[]);
}

#[test]
fn sanitizers_report_no_error() {
    if has_sanitizers("gcc") {
        let programs = ProgramFolder::new();
        build_and_run(&programs, "table.c", &SANITIZER_FLAGS);
        build_and_run(&programs, "threads.c", &SANITIZER_FLAGS);
    }
}

/// The files for programs that ThreadSanitizer checks.
struct SanitizerTools {
    /// The folder of a library that was built for ThreadSanitizer.
    library: PathBuf,
    /// The static library of Rust's ThreadSanitizer runtime.
    runtime: PathBuf,
}

fn find_thread_sanitizer() -> Option<SanitizerTools> {
    let Some(library) = std::env::var_os("TRACEWEIR_THREAD_SANITIZER").map(PathBuf::from) else {
        skip("thread-sanitizer", "TRACEWEIR_THREAD_SANITIZER does not name what thread-sanitizer.sh builds");
        return None;
    };
    // "none" means that the script found no sources of the standard library and has reported it. A
    // machine without them is not required to run this test.
    if library.as_os_str() == "none" {
        skip::record("thread-sanitizer", "the sources of the standard library are not available");
        return None;
    }
    let sysroot = expect_success(Command::new("rustc").args(["--print", "sysroot"]));
    let targets = Path::new(sysroot.trim()).join("lib/rustlib");
    // The folder of the library is named after the profile, and its parent folder after the target.
    let triple = library
        .parent()
        .and_then(Path::file_name)
        .expect("the folder of the library has no parent named after the target");
    let files = std::fs::read_dir(targets.join(triple).join("lib")).unwrap().map(|file| file.unwrap().path());
    let runtime = files.into_iter().find(|path| path.to_string_lossy().ends_with("_rt.tsan.a"));
    let runtime = runtime.expect("Rust has no runtime of ThreadSanitizer for this target");
    Some(SanitizerTools { library, runtime })
}

/// Builds a program and links it with a library for ThreadSanitizer.
///
/// The runtime is Rust's, because that of a C compiler may be of another version and lack functions
/// that the library calls.
fn build_for_thread_sanitizer(source: &Path, tools: &SanitizerTools, folder: &Path) -> PathBuf {
    let SanitizerTools { library, runtime } = tools;
    let name = source.file_stem().unwrap();
    let (object, program) = (folder.join(name).with_extension("o"), folder.join(name));
    let mut compile = Command::new("gcc");
    // The sanitizer does not see fences. The programs do not depend on them; `MemoryBarrier` is one.
    compile.args(STRICT_FLAGS).args(["-Wno-tsan", "-g", "-fsanitize=thread", "-I"]);
    compile.arg(crate_path("include"));
    expect_success(compile.arg("-c").arg(source).arg("-o").arg(&object));
    let mut link = Command::new("gcc");
    link.arg(&object).arg("-Wl,--whole-archive").arg(runtime).arg("-Wl,--no-whole-archive");
    link.args(["-Wl,--export-dynamic", "-L"]).arg(library).arg("-ltraceweir_c");
    link.arg(format!("-Wl,-rpath,{},--disable-new-dtags", library.display()));
    expect_success(link.args(["-pthread", "-ldl", "-lm", "-lrt", "-lresolv", "-o"]).arg(&program));
    program
}

#[test]
fn thread_sanitizer_reports_no_race() {
    let Some(tools) = find_thread_sanitizer() else { return };
    let folder = tempfile::tempdir().unwrap();
    // First checks that ThreadSanitizer finds a real race: two threads make the library write to
    // the same address.
    let race = build_for_thread_sanitizer(&crate_path("tests/handles/race.c"), &tools, folder.path());
    let output = Command::new(&race).output().unwrap();
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(report.contains("data race") && report.contains("EventActivityIdControl"), "{report}");
    // ThreadSanitizer takes equal descriptor numbers for the same file, even if the library's
    // threads have another descriptor table. So the library has to share the program's table here.
    for name in ["table.c", "threads.c"] {
        run_program(
            &build_for_thread_sanitizer(&crate_path("tests/handles").join(name), &tools, folder.path()),
            true,
        );
    }
    let decoding = build_for_thread_sanitizer(&crate_path("tests/c/tdh_threads.c"), &tools, folder.path());
    let mut command = Command::new(decoding);
    command.arg(crate_path("../../fixtures/manifests/everything.man"));
    expect_success(command.env("TRACEWEIR_MANIFESTS", "/nowhere"));
    for name in ["threads.c", "locks.c"] {
        let source = crate_path("tests/c").join(name);
        expect_success(&mut Command::new(build_for_thread_sanitizer(&source, &tools, folder.path())));
    }
}
