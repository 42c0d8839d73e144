//! Handles of every kind, wrong in every way and used by many threads at once: the status that
//! calls return, and what sanitizers find.
//!
//! | Watched by | Checks |
//! |---|---|
//! | no sanitizer | that calls return, and with which status |
//! | AddressSanitizer, UndefinedBehaviorSanitizer | programs, and allocations of the library |
//! | ThreadSanitizer | also the library and std, built for it (`thread-sanitizer.sh`) |

#[path = "../../../../tests/support/sandbox.rs"]
mod sandbox;
#[path = "../support/mod.rs"]
mod support;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandbox::refuse;
use support::{Daemon, Link, SANITIZE, STRICT, Workshop, expect_success, has_sanitizers, here, rows, skip};

/// Builds and runs a program of this folder, and returns its output.
fn run(workshop: &Workshop, name: &str, flags: &[&str]) -> String {
    let source = here("tests/handles").join(name);
    run_built(&workshop.build("gcc", &source, &[flags, &["-pthread"]].concat(), Link::Shared), false)
}

/// Runs a program with a daemon, a trace and a manifest, and returns its output. With one
/// descriptor table, the library's threads share that of the program.
fn run_built(program: &Path, has_one_table: bool) -> String {
    let (daemon, folder) = (Daemon::new(), tempfile::tempdir().unwrap());
    std::fs::copy(here("../../fixtures/etl/manifest.etl"), folder.path().join("manifest.etl")).unwrap();
    let mut command = daemon.command(program);
    command.arg(folder.path()).arg(here("../../fixtures/manifests/everything.man"));
    if has_one_table {
        let refuse_tables = || {
            refuse(&[libc::SYS_close_range, libc::SYS_unshare]);
            Ok(())
        };
        // SAFETY: between fork and exec of a process whose other threads hold no lock that this
        // takes, except that of the allocator, which the C library hands over to the child.
        unsafe { command.pre_exec(refuse_tables) };
    }
    expect_success(command.env("TRACEWEIR_MANIFESTS", "/nowhere"))
}

#[test]
fn wrong_handle_returns_its_error_and_has_no_other_effect() {
    let output = run(&Workshop::new(), "table.c", &[]);
    assert!(rows(&output) > 3000, "{output}");
}

#[test]
fn exactly_one_racing_thread_ends_a_handle() {
    run(&Workshop::new(), "threads.c", &[]);
}

#[test]
fn sanitizers_find_nothing() {
    if has_sanitizers("gcc") {
        let workshop = Workshop::new();
        run(&workshop, "table.c", &SANITIZE);
        run(&workshop, "threads.c", &SANITIZE);
    }
}

/// Returns the folder of a library that was built for ThreadSanitizer, and the compiler's runtime
/// for it.
fn thread_sanitizer() -> Option<(PathBuf, PathBuf)> {
    let Some(library) = std::env::var_os("TRACEWEIR_THREAD_SANITIZER").map(PathBuf::from) else {
        skip("thread-sanitizer", "TRACEWEIR_THREAD_SANITIZER does not name what thread-sanitizer.sh builds");
        return None;
    };
    // The script has looked for the sources and reported that there are none: a machine without
    // them is not required to run this test.
    if library.as_os_str() == "none" {
        skip::record("thread-sanitizer", "the sources of the standard library cannot be had here");
        return None;
    }
    let sysroot = expect_success(Command::new("rustc").args(["--print", "sysroot"]));
    let targets = Path::new(sysroot.trim()).join("lib/rustlib");
    // The folder is named after the profile; its parent after the target.
    let triple = library.parent().and_then(Path::file_name).expect("a target");
    let files = std::fs::read_dir(targets.join(triple).join("lib")).unwrap().map(|file| file.unwrap().path());
    let runtime = files.into_iter().find(|path| path.to_string_lossy().ends_with("_rt.tsan.a"));
    Some((library, runtime.expect("Rust's runtime of ThreadSanitizer")))
}

/// Builds a program that ThreadSanitizer watches, together with the library that it calls.
///
/// The runtime is Rust's: C compilers of other versions have most of its functions, but not all.
fn build_watched(source: &Path, (library, runtime): &(PathBuf, PathBuf), into: &Path) -> PathBuf {
    let name = source.file_stem().unwrap();
    let (object, program) = (into.join(name).with_extension("o"), into.join(name));
    let mut compile = Command::new("gcc");
    compile.args(STRICT).args(["-g", "-fsanitize=thread", "-I"]).arg(here("include"));
    expect_success(compile.arg("-c").arg(source).arg("-o").arg(&object));
    let mut link = Command::new("gcc");
    link.arg(&object).arg("-Wl,--whole-archive").arg(runtime).arg("-Wl,--no-whole-archive");
    link.args(["-Wl,--export-dynamic", "-L"]).arg(library).arg("-ltraceweir_c");
    link.arg(format!("-Wl,-rpath,{},--disable-new-dtags", library.display()));
    expect_success(link.args(["-pthread", "-ldl", "-lm", "-lrt", "-lresolv", "-o"]).arg(&program));
    program
}

#[test]
fn thread_sanitizer_finds_nothing() {
    let Some(tools) = thread_sanitizer() else { return };
    let folder = tempfile::tempdir().unwrap();
    // First checks that it finds a real race: two threads that make the library write to one place.
    let race = build_watched(&here("tests/handles/race.c"), &tools, folder.path());
    let output = Command::new(&race).output().unwrap();
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(report.contains("data race") && report.contains("EventActivityIdControl"), "{report}");
    // ThreadSanitizer assumes one descriptor table for a process, and takes the same number in
    // another table for the same file.
    for name in ["table.c", "threads.c"] {
        run_built(&build_watched(&here("tests/handles").join(name), &tools, folder.path()), true);
    }
    let decoding = build_watched(&here("tests/c/tdh_threads.c"), &tools, folder.path());
    let mut command = Command::new(decoding);
    command.arg(here("../../fixtures/manifests/everything.man"));
    expect_success(command.env("TRACEWEIR_MANIFESTS", "/nowhere"));
}
