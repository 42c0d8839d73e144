//! Handles of every kind, wrong in every way and used by many threads at once: what is said about them, and what sanitizers find.
//!
//! | Watched by | sees |
//! |---|---|
//! | nobody | what calls return, and that they do |
//! | AddressSanitizer, UndefinedBehaviorSanitizer | what the programs do, and every allocation of the library |
//! | ThreadSanitizer | the library too: it is built for it (`thread-sanitizer.sh`), standard library included |

#[path = "../../../../tests/support/sandbox.rs"]
mod sandbox;
#[path = "../support/mod.rs"]
mod support;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandbox::refuse;
use support::{Daemon, Link, SANITIZE, STRICT, Workshop, expect_success, has_sanitizers, here, rows, skip};

/// A program of this folder; its output.
fn run(workshop: &Workshop, name: &str, flags: &[&str]) -> String {
    let source = here("tests/handles").join(name);
    run_built(&workshop.build("gcc", &source, &[flags, &["-pthread"]].concat(), Link::Shared), false)
}

/// The same of one that was built, with a daemon, a trace and a manifest. With one table of descriptors, the library's threads share the program's.
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
        // SAFETY: between fork and exec of a process whose other threads hold no lock that this takes but that of the allocator, which the C library
        // takes over in the child.
        unsafe { command.pre_exec(refuse_tables) };
    }
    expect_success(command.env("TRACEWEIR_MANIFESTS", "/nowhere"))
}

#[test]
fn a_wrong_handle_is_told_what_is_wrong_and_nothing_else_happens() {
    let output = run(&Workshop::new(), "table.c", &[]);
    assert!(rows(&output) > 3000, "{output}");
}

#[test]
fn of_threads_that_race_for_a_handle_one_ends_it() {
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

/// The folder of a library that was built for ThreadSanitizer, and the compiler's runtime for it.
fn thread_sanitizer() -> Option<(PathBuf, PathBuf)> {
    let Some(library) = std::env::var_os("TRACEWEIR_THREAD_SANITIZER").map(PathBuf::from) else {
        skip("thread-sanitizer", "TRACEWEIR_THREAD_SANITIZER does not name what thread-sanitizer.sh builds");
        return None;
    };
    // Looked for and not to be had, which the script has said: no machine without its sources can be required to have it.
    if library.as_os_str() == "none" {
        skip::record("thread-sanitizer", "the sources of the standard library cannot be had here");
        return None;
    }
    let sysroot = expect_success(Command::new("rustc").args(["--print", "sysroot"]));
    let targets = Path::new(sysroot.trim()).join("lib/rustlib");
    // The folder is that of the target's name, and in it of the profile's.
    let triple = library.parent().and_then(Path::file_name).expect("a target");
    let files = std::fs::read_dir(targets.join(triple).join("lib")).unwrap().map(|file| file.unwrap().path());
    let runtime = files.into_iter().find(|path| path.to_string_lossy().ends_with("_rt.tsan.a"));
    Some((library, runtime.expect("Rust's runtime of ThreadSanitizer")))
}

/// A program of these sources that ThreadSanitizer watches, and the library that it calls with it.
///
/// The runtime is Rust's: C compilers of other versions know the same functions, but not all of them.
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
    // First that it finds what is there: two threads that have the library write to one place.
    let race = build_watched(&here("tests/handles/race.c"), &tools, folder.path());
    let output = Command::new(&race).output().unwrap();
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(report.contains("data race") && report.contains("EventActivityIdControl"), "{report}");
    // ThreadSanitizer knows one table of descriptors for a process, and takes the same number in another table for the same file.
    for name in ["table.c", "threads.c"] {
        run_built(&build_watched(&here("tests/handles").join(name), &tools, folder.path()), true);
    }
    let decoding = build_watched(&here("tests/c/tdh_threads.c"), &tools, folder.path());
    let mut command = Command::new(decoding);
    command.arg(here("../../fixtures/manifests/everything.man"));
    expect_success(command.env("TRACEWEIR_MANIFESTS", "/nowhere"));
}
