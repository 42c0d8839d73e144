//! Compilers, and programs made with them.
//!
//! gcc is part of what the project needs. g++, clang, sanitizers and valgrind are extras: what is missing is said, and fails where `TRACEWEIR_REQUIRE` asks for it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// What every source must compile with.
pub(crate) const STRICT: &[&str] = &["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// A compiler of one language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compiler {
    pub(crate) program: &'static str,
    pub(crate) cpp: bool,
}

pub(crate) const GCC: Compiler = Compiler { program: "gcc", cpp: false };
pub(crate) const GPP: Compiler = Compiler { program: "g++", cpp: true };
const CLANG: Compiler = Compiler { program: "clang", cpp: false };
const CLANGPP: Compiler = Compiler { program: "clang++", cpp: true };

impl Compiler {
    pub(crate) fn standards(self) -> [&'static str; 2] {
        if self.cpp { ["-std=c++17", "-std=c++20"] } else { ["-std=c11", "-std=c17"] }
    }
}

/// Those that are here.
pub(crate) fn compilers() -> Vec<Compiler> {
    [GCC, GPP, CLANG, CLANGPP].into_iter().filter(|c| has(c.program)).collect()
}

/// Those of C++ that are here.
pub(crate) fn cpp_compilers() -> Vec<Compiler> {
    compilers().into_iter().filter(|c| c.cpp).collect()
}

/// Whether a program is here; says so where it is not.
pub(crate) fn has(program: &'static str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    assert!(found || program != "gcc", "a C compiler is part of what the project needs");
    if !found {
        skip(program, &format!("{program} is not on this machine"));
    }
    found
}

fn skip(extra: &str, why: &str) {
    let required = std::env::var("TRACEWEIR_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|r| r == "all" || r == extra), "required: {why}");
    // The harness captures `eprintln!` but not the stream itself.
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped {}: {why}", thread.name().unwrap_or("a test"));
}

/// The folder of these tests, which has the sources.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tlg")
}

/// A folder for what is made.
pub(crate) struct Workshop(TempDir);

impl Workshop {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder for programs"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A source of this text.
    pub(crate) fn source(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("the source can be written");
        path
    }

    /// The compiler's verdict on a source. It is taken as the compiler's language, whatever its name ends in.
    pub(crate) fn compile(&self, compiler: Compiler, source: &Path, flags: &[&str]) -> Output {
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
        let mut command = Command::new(compiler.program);
        command.arg("-I").arg(include).arg("-I").arg(sources());
        command.args(flags).args(["-x", if compiler.cpp { "c++" } else { "c" }]).arg(source).args(["-x", "none"]);
        command.output().expect("the compiler runs")
    }

    /// A program, or the compiler's complaints as the test's failure.
    #[track_caller]
    pub(crate) fn build(&self, compiler: Compiler, source: &Path, flags: &[&str]) -> PathBuf {
        let program = self.path("program");
        let out = program.to_str().expect("a path in UTF-8");
        let verdict = self.compile(compiler, source, &[flags, STRICT, &["-o", out]].concat());
        let complaints = String::from_utf8_lossy(&verdict.stderr);
        assert!(verdict.status.success(), "{compiler:?} {flags:?} {}:\n{complaints}", source.display());
        program
    }

    /// Fails unless the source compiles strictly.
    #[track_caller]
    pub(crate) fn accepts(&self, compiler: Compiler, source: &Path, flags: &[&str]) {
        let verdict = self.compile(compiler, source, &[flags, STRICT, &["-fsyntax-only"]].concat());
        let complaints = String::from_utf8_lossy(&verdict.stderr);
        assert!(verdict.status.success(), "{compiler:?} {flags:?} {}:\n{complaints}", source.display());
    }
}

/// Runs a program that must succeed, and gives what it printed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    assert!(status.success(), "{command:?}: {status}\n{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("it prints UTF-8")
}
