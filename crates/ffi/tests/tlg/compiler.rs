//! Compilers, and programs that need no library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::{C, CPP, STRICT, expect_success, here};

/// A compiler of one language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compiler {
    pub(crate) program: &'static str,
    pub(crate) cpp: bool,
}

pub(crate) const GCC: Compiler = Compiler { program: "gcc", cpp: false };

impl Compiler {
    /// Returns the older and the newer standard that it must support.
    pub(crate) fn standards(self) -> [&'static str; 2] {
        if self.cpp { ["-std=c++17", "-std=c++20"] } else { ["-std=c11", "-std=c17"] }
    }

    /// Returns the flag for a source whose name does not show its language.
    pub(crate) fn language(self) -> &'static str {
        if self.cpp { "-xc++" } else { "-xc" }
    }
}

/// Returns the installed compilers.
pub(crate) fn compilers() -> Vec<Compiler> {
    let c = C.compilers().map(|program| Compiler { program, cpp: false });
    c.chain(cpp_compilers()).collect()
}

/// Returns the installed C++ compilers.
pub(crate) fn cpp_compilers() -> Vec<Compiler> {
    CPP.compilers().map(|program| Compiler { program, cpp: true }).collect()
}

/// Returns the folder of these tests, which has the sources.
pub(crate) fn sources() -> PathBuf {
    here("tests/tlg")
}

/// A folder for sources and programs.
pub(crate) struct Workbench(TempDir);

impl Workbench {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder for programs"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a source with this text.
    pub(crate) fn source(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("the source can be written");
        path
    }

    fn command(compiler: Compiler, source: &Path, flags: &[&str]) -> Command {
        let mut command = Command::new(compiler.program);
        command.arg("-I").arg(here("include")).arg("-I").arg(sources());
        command.args(flags).arg(compiler.language()).arg(source).arg("-xnone");
        command
    }

    /// Compiles a source and returns the compiler's output.
    pub(crate) fn compile(&self, compiler: Compiler, source: &Path, flags: &[&str]) -> Output {
        Self::command(compiler, source, flags).output().expect("the compiler runs")
    }

    /// Builds a program; fails the test with the compiler's output.
    #[track_caller]
    pub(crate) fn build(&self, compiler: Compiler, source: &Path, flags: &[&str]) -> PathBuf {
        let program = self.path("program");
        let mut command = Self::command(compiler, source, &[&STRICT[..], flags].concat());
        expect_success(command.arg("-o").arg(&program));
        program
    }

    /// Fails unless the source compiles with strict flags.
    #[track_caller]
    pub(crate) fn accepts(&self, compiler: Compiler, source: &Path, flags: &[&str]) {
        expect_success(&mut Self::command(
            compiler,
            source,
            &[&STRICT[..], &["-fsyntax-only"], flags].concat(),
        ));
    }
}
