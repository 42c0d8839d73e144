//! Tests of `weir cc`, which runs a compiler on sources that were written for Windows: the size of
//! `long`, the compiler options that builds use, queries that are passed on unchanged, and programs
//! with wide characters of 16 bits.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use super::{arg, make_folder, write_file};
use crate::util::{Run, c_library, root, weir_command};

/// A source that compiles only if `long` has 32 bits and `time_t` has the system's size.
const SOURCE: &str = r##"
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <windows.h>
#include <evntprov.h>
#include <TraceLoggingProvider.h>
TRACELOGGING_DEFINE_PROVIDER(provider, "Long", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
#pragma pack(push, 1)
struct block {
    unsigned short kind;
    unsigned long length;
    long int offset;
    long long total;
};
#pragma pack(pop)
_Static_assert(sizeof(struct block) == 18, "packed");
_Static_assert(sizeof(long) == 4 && sizeof(1L) == 4 && sizeof(long long) == 8 && sizeof(long double) > 8, "sizes");
_Static_assert(sizeof(time_t) == 8 && sizeof(int64_t) == 8 && sizeof(INT64_C(1)) == 8 && sizeof(size_t) == 8, "system");
_Static_assert(LONG_MAX == 0x7fffffff && ULONG_MAX == 0xffffffff && ~0UL == ULONG_MAX, "limits");
int main(void) {
    struct block block = {1, 0xFFFFFFFFUL, -1L, 1LL << 40};
    long value = -5;
    LONG same = value;
    TraceLoggingRegister(provider);
    TraceLoggingWrite(provider, "Event", TraceLoggingLong(value), TraceLoggingInt32(same));
    TraceLoggingUnregister(provider);
    printf("%s:%d %u %d %lld\n", __FILE__, __LINE__, block.length, block.offset, block.total);
    return 0;
}
"##;

/// Runs `weir cc` in a folder, with the headers of the source tree and the library of this build.
fn run_cc(folder: &TempDir, options: &[&str], command: &[&str]) -> Run {
    let headers = root().join("crates/ffi/include");
    let mut run = weir_command(["cc", "--include", arg(&headers), "--lib", arg(folder.path())]);
    finish(run.args(options).args(command).current_dir(folder.path()))
}

fn finish(command: &mut Command) -> Run {
    let Output { status, stdout, stderr } = command.output().unwrap();
    Run { code: status.code().unwrap(), stdout, stderr: String::from_utf8(stderr).unwrap() }
}

/// Makes a folder with the library under the name that programs link.
fn make_build_folder() -> TempDir {
    let folder = make_folder();
    for name in ["libtraceweir.so", "libtraceweir.so.0"] {
        std::os::unix::fs::symlink(c_library().with_extension("so"), folder.path().join(name)).unwrap();
    }
    folder
}

fn run_program(folder: &TempDir, name: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(folder.path().join(name));
    // The program finds the library by the path that `weir cc` gave it.
    command.args(arguments).env_remove("LD_LIBRARY_PATH").env("TRACEWEIR_RUNTIME_DIR", folder.path());
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// The output of [`SOURCE`]: file and line of the `printf`, then `length`, `offset` and `total`.
const EXPECTED_LINE: &str = "source.c:29 4294967295 -1 1099511627776\n";

#[test]
fn long_has_32_bits_outside_system_headers() {
    let folder = make_build_folder();
    write_file(&folder, "source.c", SOURCE.as_bytes());
    let run = run_cc(&folder, &["--32-bit-long"], &["gcc", "-Wall", "-Werror", "source.c", "-o", "program"])
        .expect(0);
    assert_eq!(run.stderr, "");
    assert_eq!(run_program(&folder, "program", &[]), EXPECTED_LINE);
    // Without the option the same source does not compile.
    let run = run_cc(&folder, &[], &["gcc", "-c", "source.c"]).expect(1);
    assert!(run.stderr.contains("packed"), "{}", run.stderr);
}

/// Without `--wide`, `%ld` has 64 bits: the compiler warns, also without options that ask for it.
#[test]
fn long_in_a_format_of_linux_is_warned_of() {
    let folder = make_folder();
    let source =
        "#include <stdio.h>\nint read(const char *text, long *to) { return sscanf(text, \"%ld\", to); }\n";
    write_file(&folder, "a.c", source.as_bytes());
    let warnings = |options: &[&str], command: &[&str]| run_cc(&folder, options, command).expect(0).stderr;
    let stderr = warnings(&["--32-bit-long"], &["gcc", "-c", "a.c"]);
    assert!(stderr.contains("a.c:2") && stderr.contains("-Wformat"), "{stderr}");
    assert_eq!(warnings(&["--32-bit-long"], &["gcc", "-Wno-format", "-c", "a.c"]), "");
    assert_eq!(warnings(&["--32-bit-long", "--wide"], &["gcc", "-Wall", "-c", "a.c"]), "");
    assert_eq!(warnings(&[], &["gcc", "-Wall", "-c", "a.c"]), "");
}

#[test]
fn compiling_linking_and_dependency_files_work_as_builds_use_them() {
    let folder = make_build_folder();
    write_file(&folder, "source.c", SOURCE.as_bytes());
    write_file(&folder, "other.c", b"#include \"other.h\"\nlong other(void) { return sizeof(long); }\n");
    write_file(&folder, "other.h", b"long other(void);\n");
    std::fs::create_dir(folder.path().join("out")).unwrap();
    let cc = |command: &[&str]| run_cc(&folder, &["--32-bit-long"], command).expect(0);
    cc(&["gcc", "-MMD", "-MP", "-c", "-o", "out/other.o", "other.c"]);
    let dependencies = std::fs::read_to_string(folder.path().join("out/other.d")).unwrap();
    assert_eq!(dependencies, "out/other.o: other.c other.h\nother.h:\n");
    cc(&["gcc", "-MD", "-MT", "target", "-MF", "named", "-c", "source.c"]);
    let dependencies = std::fs::read_to_string(folder.path().join("named")).unwrap();
    assert!(dependencies.starts_with("target: source.c "), "{dependencies}");
    assert!(dependencies.contains("windows.h"), "{dependencies}");
    cc(&["gcc", "source.o", "out/other.o", "-o", "program"]);
    assert_eq!(run_program(&folder, "program", &[]), EXPECTED_LINE);
    // An error message names the line and column of the original source, and `weir cc` returns the
    // exit status of the compiler.
    write_file(&folder, "wrong.c", b"long a;\nlong *b = 5 +;\n");
    let run = run_cc(&folder, &["--32-bit-long"], &["gcc", "-c", "wrong.c"]).expect(1);
    assert!(run.stderr.contains("wrong.c:2:14: error"), "{}", run.stderr);
    assert!(!folder.path().join("wrong.o").exists());
}

/// Builds with many objects pass them in files: `gcc @objects.rsp -o app`.
#[test]
fn response_files_are_read_as_by_gcc() {
    let folder = make_build_folder();
    write_file(&folder, "source.c", SOURCE.as_bytes());
    write_file(
        &folder,
        "two words.c",
        b"_Static_assert(sizeof(NAME) == 4 && sizeof(long) == 4, \"long\");\n",
    );
    write_file(&folder, "flags", b"-Wall '-DNAME=unsigned long'\n");
    write_file(&folder, "sources", b"@flags source.c 'two words.c'\n");
    write_file(&folder, "objects", b"source.o two\\ words.o\n");
    run_cc(&folder, &["--32-bit-long"], &["gcc", "-c", "@sources"]).expect(0);
    for options in [&[][..], &["--32-bit-long"]] {
        run_cc(&folder, options, &["gcc", "@objects", "-o", "program"]).expect(0);
        assert_eq!(run_program(&folder, "program", &[]), EXPECTED_LINE);
    }
    let run = run_cc(&folder, &["--32-bit-long"], &["gcc", "-c", "@missing"]).expect(1);
    assert!(run.stderr.contains("@missing"), "{}", run.stderr);
}

/// An option that follows such a value has its effect in the preprocessor, too.
#[test]
fn values_of_options_are_no_sources() {
    let folder = make_folder();
    write_file(&folder, "a.c", b"_Static_assert(sizeof(TYPE) == SIZE, \"long\");\n");
    let command = ["gcc", "-B", "/nonexistent", "-DTYPE=long", "--sysroot", "/", "-DSIZE=4", "-c", "a.c"];
    run_cc(&folder, &["--32-bit-long"], &command).expect(0);
    assert!(folder.path().join("a.o").is_file());
}

#[test]
fn source_is_read_from_standard_input() {
    let folder = make_folder();
    let source = write_file(&folder, "input", b"#error reached\n");
    let headers = root().join("crates/ffi/include");
    let mut command = weir_command(["cc", "--include", arg(&headers), "--32-bit-long"]);
    command.args(["gcc", "-x", "c", "-", "-c", "-o", "a.o"]).current_dir(folder.path());
    let run = finish(command.stdin(std::fs::File::open(source).unwrap())).expect(1);
    assert!(run.stderr.contains("reached"), "{}", run.stderr);
}

#[test]
fn queries_pass_unchanged() {
    let folder = make_folder();
    let version = Command::new("gcc").arg("--version").output().unwrap().stdout;
    let run = run_cc(&folder, &["--wide", "--32-bit-long"], &["gcc", "--version"]).expect(0);
    assert_eq!(run.stdout, version);
    let run = run_cc(&folder, &[], &["gcc-that-does-not-exist", "-c", "a.c"]);
    assert!(run.expect(1).stderr.contains("gcc-that-does-not-exist"));
}

#[test]
fn wide_programs_are_compiled_and_linked() {
    let folder = make_build_folder();
    // The C++ part of the wide library takes long to compile and is not used here. The script
    // leaves it out without a C++ compiler.
    let mut build = Command::new(root().join("crates/ffi/wide/build.sh"));
    assert!(build.arg(folder.path()).env("CXX", "/nonexistent").status().unwrap().success());
    let source = r##"
        #include <windows.h>
        #include <stdio.h>
        #include <wchar.h>
        int wmain(int count, wchar_t **arguments) {
            long value = 0;
            if (sscanf("-7", "%ld", &value) != 1 || (int)value != -7)
                return 2;
            wprintf(L"%d %s %ld %I64u %zu\n", count, arguments[1], value, 1ULL << 40, sizeof(long));
            return wcscmp(arguments[1], L"größe");
        }
    "##;
    write_file(&folder, "wide.c", source.as_bytes());
    run_cc(&folder, &["--wide", "--32-bit-long"], &["gcc", "-O2", "wide.c", "-o", "both"]).expect(0);
    assert_eq!(run_program(&folder, "both", &["größe"]), "2 größe -7 1099511627776 4\n");
    run_cc(&folder, &["--wide"], &["gcc", "-c", "wide.c"]).expect(0);
    run_cc(&folder, &["--wide"], &["gcc", "wide.o", "-o", "wide"]).expect(0);
    assert_eq!(run_program(&folder, "wide", &["größe"]), "2 größe -7 1099511627776 8\n");
}

#[test]
fn missing_headers_and_libraries_are_named() {
    let folder = make_folder();
    let file = write_file(&folder, "a.c", b"int main(void) { return 0; }\n");
    let run = |options: &[&str]| {
        let mut command = weir_command(["cc"]);
        finish(command.args(options).args(["gcc", arg(&file)]).current_dir(folder.path()))
    };
    let nowhere = arg(Path::new("/nonexistent"));
    assert!(run(&["--include", nowhere]).expect(1).stderr.contains("evntprov.h"));
    assert!(run(&["--wide", "--lib", nowhere]).expect(1).stderr.contains("libtraceweir-wide.a"));
}
