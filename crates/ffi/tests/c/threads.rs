//! Threads, objects, locks and console handlers of Windows in C and C++ programs.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{
    C, CPP, Link, ProgramFolder, SANITIZER_FLAGS, checked_rows, crate_path, expect_success, has_program,
    has_sanitizers,
};

fn source_path(name: &str) -> PathBuf {
    crate_path("tests/c").join(name)
}

/// Builds and runs `threads.c`, `locks.c` and `console.c`, and checks that they checked enough.
fn run_programs(programs: &ProgramFolder, compiler: &str, flags: &[&str], link: Link) {
    for (name, min_rows) in [("threads.c", 4000), ("locks.c", 100), ("console.c", 12)] {
        let program = programs.build(compiler, &source_path(name), flags, link);
        let output = expect_success(&mut Command::new(&program));
        assert!(checked_rows(&output) >= min_rows, "{name}: {output}");
    }
}

#[test]
fn threads_objects_and_locks_behave_as_published() {
    let programs = ProgramFolder::new();
    for compiler in C.compilers() {
        run_programs(&programs, compiler, &[], Link::Shared);
    }
    for compiler in CPP.compilers() {
        for width in [&["-x", "c++"][..], &["-x", "c++", "-DUNICODE", "-std=c++20"]] {
            run_programs(&programs, compiler, width, Link::Shared);
        }
    }
}

#[test]
fn threads_work_in_a_program_with_the_static_library() {
    run_programs(&ProgramFolder::new(), "gcc", &[], Link::Static);
}

#[test]
fn sanitizers_report_no_error_in_threads() {
    if has_sanitizers("gcc") {
        run_programs(&ProgramFolder::new(), "gcc", &SANITIZER_FLAGS, Link::Shared);
    }
}

#[test]
fn valgrind_reports_no_error_in_threads() {
    if has_program("valgrind") {
        let programs = ProgramFolder::new();
        let program = programs.build("gcc", &source_path("threads.c"), &["-DROUNDS=50"], Link::Shared);
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--error-exitcode=9", "--fair-sched=yes"]).arg(program);
        expect_success(&mut command);
    }
}

/// A source that defines some of the names itself, and includes only headers for tracing.
const OWN_NAMES_SOURCE: &str = "#include <winsock2.h>\n#include <evntprov.h>\n#include <evntcons.h>\n#include <tdh.h>\n\
    static long InterlockedIncrement(long volatile *number) { return ++*number; }\n\
    static void Sleep(unsigned seconds) { (void)seconds; }\n\
    typedef struct { int mine; } CRITICAL_SECTION;\n\
    int main(void) { CRITICAL_SECTION own = {1}; long number = 0; Sleep(1); return InterlockedIncrement(&number) != own.mine; }\n";

#[test]
fn source_that_includes_only_tracing_headers_may_define_the_names() {
    let folder = tempfile::tempdir().unwrap();
    for language in [C, CPP] {
        let file = folder.path().join(format!("own.{}", language.extension));
        std::fs::write(&file, OWN_NAMES_SOURCE).unwrap();
        for compiler in language.compilers() {
            let mut command = Command::new(compiler);
            command.args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]).arg(crate_path("include"));
            expect_success(command.arg(&file));
        }
    }
}
