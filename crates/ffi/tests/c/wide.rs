//! Programs that are compiled with a `wchar_t` of 16 bits and linked with `libtraceweir-wide`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use traceweir::Guid;
use traceweir::controller::EnableParams;

use crate::support::{
    CPP, ProgramFolder, TestDaemon, checked_rows, crate_path, expect_success, wide_library_folder,
};

/// Returns the options of `traceweir-wide.pc`, for the headers of the source tree.
fn compile_options() -> Vec<String> {
    let description = std::fs::read_to_string(crate_path("traceweir-wide.pc.in")).unwrap();
    let line = description.lines().find_map(|line| line.strip_prefix("Cflags: ")).unwrap();
    let headers = crate_path("include");
    let mut options: Vec<String> = line
        .replace("${includedir}", headers.to_str().unwrap())
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    options.push(format!("-I{}", headers.display()));
    options
}

/// Compiles `tests/c/wide/NAME` and links it.
#[track_caller]
fn build(programs: &ProgramFolder, compiler: &str, name: &str, options: &[&str]) -> PathBuf {
    let program = programs.path(&format!("{name}-{compiler}"));
    let mut command = Command::new(compiler);
    command
        .args(["-Wall", "-Wextra", "-Werror", "-DUNICODE", "-D_UNICODE"])
        .args(compile_options())
        .args(options)
        .arg(crate_path("tests/c/wide").join(name))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(wide_library_folder())
        .arg("-ltraceweir-wide")
        .arg("-L")
        .arg(programs.folder.path())
        .args(["-ltraceweir", "-Wl,-rpath,$ORIGIN,--disable-new-dtags"]);
    expect_success(&mut command);
    program
}

/// Builds and runs a C program without and with optimization.
#[track_caller]
fn run_c(name: &str, arguments: &[&str]) -> String {
    let programs = ProgramFolder::new();
    let mut output = String::new();
    for level in ["-O0", "-O2"] {
        let program = build(&programs, "gcc", name, &[level, "-std=gnu11"]);
        output = expect_success(Command::new(program).args(arguments));
    }
    output
}

#[test]
fn formats_are_those_of_windows() {
    let output = run_c("formats.c", &["Größe", "😀"]);
    assert!(checked_rows(&output) > 150, "{output}");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(
        lines[..5],
        ["wide Größe narrow €", "narrow 😀 1099511627776", "😀", "put", "ends"],
        "{output}"
    );
}

#[test]
fn wide_functions_work_on_16_bits() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_c("text.c", &[folder.path().to_str().unwrap()]);
    assert!(checked_rows(&output) > 50, "{output}");
}

fn run_with_input(command: &mut Command, input: &str) -> Output {
    let mut run =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    run.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    run.wait_with_output().unwrap()
}

/// `%lu` stores 32 bits and `%I64u` stores 64, also in narrow `sscanf`, `fscanf` and `scanf`.
#[test]
fn scanned_numbers_have_the_sizes_of_windows() {
    let programs = ProgramFolder::new();
    for options in [["-O0", "-std=gnu11"], ["-O2", "-std=gnu11"]] {
        check_scans("C", &build(&programs, "gcc", "scan.c", &options));
    }
    for compiler in CPP.compilers().filter(|compiler| *compiler == "g++") {
        check_scans("C++", &build(&programs, compiler, "scan.c", &["-O2", "-std=c++17", "-xc++"]));
    }
}

fn check_scans(name: &str, program: &Path) {
    let output = run_with_input(&mut Command::new(program), "7 8");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{name}: {errors}");
    let rows = checked_rows(&String::from_utf8(output.stdout).unwrap());
    assert!(rows > 80, "{name}: {rows} rows");
}

#[test]
fn strings_and_streams_of_cpp_work_on_16_bits() {
    let folder = tempfile::tempdir().unwrap();
    let programs = ProgramFolder::new();
    for compiler in CPP.compilers() {
        // The library is compiled with the system's compiler. Code of another compiler may call
        // its C++ functions by other symbol names.
        if compiler != "g++" {
            continue;
        }
        for options in [["-O0", "-std=c++17"], ["-O2", "-std=c++17"], ["-O0", "-std=c++20"]] {
            let program =
                build(&programs, compiler, "strings.cpp", &[&options[..], &["-DTRACEWEIR_SAL1"]].concat());
            let output = run_with_input(Command::new(&program).arg(folder.path()), "17 zeilenende ä\n");
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{options:?}: {errors}");
            assert_eq!(errors, "error\n", "{options:?}");
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.starts_with("größe BEEF 😀\n😀\nprinted\nnarrow\nrows: "), "{options:?}: {text}");
            assert!(checked_rows(&text) >= 30);
        }
    }
}

/// A program links this static library into itself. Its functions must be hidden, so that they do
/// not replace functions in the shared libraries that the program uses.
#[test]
fn library_exports_nothing() {
    let symbols = expect_success(
        Command::new("readelf").arg("-Ws").arg(wide_library_folder().join("libtraceweir-wide.a")),
    );
    let mut defined = 0;
    for line in symbols.lines() {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, _, binding @ ("GLOBAL" | "WEAK" | "UNIQUE"), visibility, section, name] = columns[..]
        else {
            continue;
        };
        if section != "UND" && name != "main" {
            assert_eq!(visibility, "HIDDEN", "{binding} {name}");
            defined += 1;
        }
    }
    assert!(defined > 150, "{defined}");
}

/// Runs a copy of `build.sh` with compilers that only count their calls.
struct FakeBuild {
    folder: tempfile::TempDir,
}

impl FakeBuild {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["wide", "include"] {
            expect_success(Command::new("cp").arg("-R").arg(crate_path(name)).arg(folder.path()));
        }
        let build = Self { folder };
        build.install_compiler("cc", "1.0");
        build.install_compiler("c++", "1.0");
        build
    }

    fn install_compiler(&self, name: &str, version: &str) {
        let script = format!(
            "[ \"$1\" != --version ] || {{ echo {version}; exit; }}\n\
             echo call >> {}\nfor output; do :; done\necho > \"$output\"\n",
            self.folder.path().join("calls").display()
        );
        std::fs::write(self.folder.path().join(name), script).unwrap();
    }

    /// Returns whether the script compiled the library. The shell runs all scripts: a script that
    /// was just written may still be open in a process that another test forked, and then cannot
    /// be run by itself.
    fn compiles(&self) -> bool {
        let (folder, calls) = (self.folder.path(), self.folder.path().join("calls"));
        let _ = std::fs::remove_file(&calls);
        let shell = |name: &str| format!("sh {}", folder.join(name).display());
        let mut script = Command::new("sh");
        script.arg(folder.join("wide/build.sh")).arg(folder.join("out"));
        expect_success(script.env("CC", shell("cc")).env("CXX", shell("c++")));
        assert!(folder.join("out/libtraceweir-wide.a").is_file());
        calls.exists()
    }
}

#[test]
fn library_is_compiled_again_if_headers_or_compilers_change() {
    let build = FakeBuild::new();
    let path = |name: &str| build.folder.path().join(name);
    assert!(build.compiles() && !build.compiles());
    for name in ["include/winerror.h", "wide/scan.c", "wide/build.sh"] {
        std::fs::OpenOptions::new().append(true).open(path(name)).unwrap().write_all(b"\n").unwrap();
        assert!(build.compiles() && !build.compiles(), "{name}");
    }
    build.install_compiler("cc", "2.0");
    assert!(build.compiles() && !build.compiles(), "another version");
    std::fs::remove_file(path("c++")).unwrap();
    assert!(build.compiles() && !build.compiles(), "no C++ compiler");
    build.install_compiler("c++", "1.0");
    assert!(build.compiles() && !build.compiles(), "a C++ compiler again");
    // The time of a file does not matter.
    expect_success(Command::new("touch").arg(path("include/windows.h")));
    assert!(!build.compiles());
    std::fs::remove_file(path("out/libtraceweir-wide.a")).unwrap();
    assert!(build.compiles());
}

const PROVIDER: Guid = Guid::from_u128(0xC0FF_EE20_1111_2222_0102_0304_0506_0708);

/// A wide program writes events, and a wide program decodes them.
#[test]
fn wide_fields_are_recorded_and_decoded() {
    let (programs, daemon) = (ProgramFolder::new(), TestDaemon::new());
    let mut built: Vec<PathBuf> = vec![build(&programs, "gcc", "events.c", &["-O1", "-std=gnu11"])];
    for compiler in CPP.compilers().filter(|compiler| *compiler == "g++") {
        built.push(build(&programs, compiler, "events.c", &["-O1", "-std=c++17", "-xc++"]));
    }
    for (number, program) in built.iter().enumerate() {
        let name = format!("wide{number}");
        let params = EnableParams { level: 5, ..EnableParams::default() };
        let session = daemon.record(&name, &[PROVIDER], &params);
        expect_success(daemon.command(program).args(["write", "größe"]));
        assert_eq!(session.stop(0, |_| ()).len(), 2);
        let file = daemon.folder.path().join(&name).with_extension("etl");
        assert_eq!(read_back(&daemon, program, &file), "Sized name=größe count=42\ngröße: größe\n");
    }
}

fn read_back(daemon: &TestDaemon, program: &Path, file: &Path) -> String {
    expect_success(daemon.command(program).arg("read").arg(file))
}
