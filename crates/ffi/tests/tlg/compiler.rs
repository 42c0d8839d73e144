//! Compilers, and programs that do not link `libtraceweir`: `hooks.h` replaces it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::{C, CPP, STRICT_FLAGS, crate_path, expect_success};

/// A compiler of one language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compiler {
    pub(crate) program: &'static str,
    pub(crate) is_cpp: bool,
}

pub(crate) const GCC: Compiler = Compiler { program: "gcc", is_cpp: false };

impl Compiler {
    /// Returns the older and the newer standard that the compiler must support.
    pub(crate) fn standards(self) -> [&'static str; 2] {
        if self.is_cpp { ["-std=c++17", "-std=c++20"] } else { ["-std=c11", "-std=c17"] }
    }

    /// Returns the flag for a source whose name does not show its language.
    pub(crate) fn language_flag(self) -> &'static str {
        if self.is_cpp { "-xc++" } else { "-xc" }
    }
}

/// Returns the installed compilers.
pub(crate) fn compilers() -> Vec<Compiler> {
    let c_compilers = C.compilers().map(|program| Compiler { program, is_cpp: false });
    c_compilers.chain(cpp_compilers()).collect()
}

/// Returns the installed C++ compilers.
pub(crate) fn cpp_compilers() -> Vec<Compiler> {
    CPP.compilers().map(|program| Compiler { program, is_cpp: true }).collect()
}

/// Returns the folder of these tests, which contains the C and C++ sources.
pub(crate) fn test_folder() -> PathBuf {
    crate_path("tests/tlg")
}

/// A folder for sources and programs.
pub(crate) struct SourceFolder(TempDir);

impl SourceFolder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("cannot create a temporary folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a source file, and returns its path.
    pub(crate) fn write_source(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("cannot write the source");
        path
    }

    fn command(compiler: Compiler, source: &Path, flags: &[&str]) -> Command {
        let mut command = Command::new(compiler.program);
        command.arg("-I").arg(crate_path("include")).arg("-I").arg(test_folder());
        // `-xnone` ends the effect of the language flag on later files.
        command.args(flags).arg(compiler.language_flag()).arg(source).arg("-xnone");
        command
    }

    /// Compiles a source and returns the compiler's output.
    pub(crate) fn compile(&self, compiler: Compiler, source: &Path, flags: &[&str]) -> Output {
        Self::command(compiler, source, flags).output().expect("cannot run the compiler")
    }

    /// Builds a program. If that fails, the test fails with the compiler's output.
    #[track_caller]
    pub(crate) fn build(&self, compiler: Compiler, source: &Path, flags: &[&str]) -> PathBuf {
        let program = self.path("program");
        let mut command = Self::command(compiler, source, &[&STRICT_FLAGS[..], flags].concat());
        expect_success(command.arg("-o").arg(&program));
        program
    }

    /// Asserts that the source compiles with strict flags.
    #[track_caller]
    pub(crate) fn assert_compiles(&self, compiler: Compiler, source: &Path, flags: &[&str]) {
        expect_success(&mut Self::command(
            compiler,
            source,
            &[&STRICT_FLAGS[..], &["-fsyntax-only"], flags].concat(),
        ));
    }
}
