//! TraceLogging from C and from C++: programs of the bench, compiled on the measured machine with
//! `libtraceweir`.
//!
//! ```text
//!   cargo build --profile c -p traceweir-ffi ─▶ target/c/libtraceweir.so ┐
//!   peers/tracelogging.c, peers/disabled.c ── cc -O2, c++ -O2 ───────────┴─▶ run, or valgrind
//! ```
//!
//! One source serves both languages. A missing compiler or library is reported, and its figures
//! are left out.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::peer::this_program;
use crate::process::{self, program_error};
use crate::write::program::Program;

const HEADERS: &str = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../crates/ffi/include");

/// A language whose macros are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    C,
    Cpp,
}

impl Language {
    pub(crate) const ALL: [Self; 2] = [Self::C, Self::Cpp];

    /// Returns the name of the figure for a written event.
    pub(crate) const fn cost_figure(self) -> &'static str {
        match self {
            Self::C => "tracelogging_c_vs_lttng",
            Self::Cpp => "tracelogging_cpp_vs_lttng",
        }
    }

    /// Returns the name of the figure for a disabled event.
    pub(crate) const fn disabled_figure(self) -> &'static str {
        match self {
            Self::C => "tracelogging_c_disabled_extra_instructions",
            Self::Cpp => "tracelogging_cpp_disabled_extra_instructions",
        }
    }

    const fn compiler(self) -> &'static str {
        match self {
            Self::C => "cc",
            Self::Cpp => "c++",
        }
    }

    /// Returns the compiler options that select this language.
    const fn options(self) -> [&'static str; 3] {
        match self {
            Self::C => ["-O2", "-xc", "-std=gnu11"],
            Self::Cpp => ["-O2", "-xc++", "-std=gnu++17"],
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct NativePrograms {
    pub(crate) language: Language,
    /// Writes events under a load.
    pub(crate) writer: Program,
    /// Passes disabled events, or a flag test.
    pub(crate) disabled: Program,
}

impl NativePrograms {
    /// Compiles the programs of each language; prints the reason for those that fail.
    pub(crate) fn compile_all(folder: &Path) -> Vec<Self> {
        let library = match find_library() {
            Ok(library) => library,
            Err(reason) => {
                eprintln!("TraceLogging from C and C++ is left out: {reason}");
                return Vec::new();
            }
        };
        let compile = |language: Language| {
            let programs = Self::compile(folder, language, &library);
            programs.map_err(|reason| eprintln!("TraceLogging from {language:?} is left out: {reason}")).ok()
        };
        Language::ALL.into_iter().filter_map(compile).collect()
    }

    fn compile(folder: &Path, language: Language, library: &Path) -> Result<Self> {
        let options: Vec<&str> = language.options().into_iter().chain([HEADERS]).collect();
        let libraries = linker_options(library);
        let libraries: Vec<&str> = libraries.iter().map(String::as_str).collect();
        let compile = |source| Program::compile_by(language.compiler(), folder, source, &options, &libraries);
        Ok(Self { language, writer: compile("tracelogging")?, disabled: compile("disabled")? })
    }
}

/// Returns the compiler options of a program in C.
pub(crate) fn c_options() -> Vec<&'static str> {
    Language::C.options().into_iter().chain([HEADERS]).collect()
}

/// Returns the linker options for the library in a folder. `-xnone` ends the effect of `-xc`, which
/// would otherwise apply to the libraries too.
pub(crate) fn linker_options(library: &Path) -> [String; 5] {
    let folder = library.display();
    let rpath = format!("-Wl,-rpath,{folder},--disable-new-dtags");
    ["-xnone".to_owned(), format!("-L{folder}"), rpath, "-ltraceweir".to_owned(), "-lpthread".to_owned()]
}

/// Returns the folder of the library for C, which is rebuilt if cargo runs this program.
pub(crate) fn find_library() -> Result<PathBuf> {
    let own_path = this_program()?;
    let folder = own_path.ancestors().nth(2).unwrap_or(Path::new(".")).join("c");
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--profile", "c", "--package", "traceweir-ffi"]);
        let ended = process::run(&mut build, Stdio::null())?;
        if !ended.has_succeeded {
            return Err(program_error(&build, ended.stderr));
        }
    }
    if folder.join("libtraceweir.so").is_file() {
        return Ok(folder);
    }
    let reason = "does not exist; build it with: cargo build --profile c -p traceweir-ffi".to_owned();
    Err(Error::Program { program: folder.join("libtraceweir.so").display().to_string(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::program::write_sources;

    #[test]
    fn programs_compile_without_warnings_in_both_languages() {
        let _alone = process::lock_children();
        let folder = tempfile::tempdir().unwrap();
        write_sources(folder.path()).unwrap();
        for language in Language::ALL {
            for source in ["tracelogging.c", "disabled.c", "consumer.c", "tdh.c"] {
                let mut command = Command::new(language.compiler());
                command.args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", HEADERS]);
                command.args(language.options()).arg(source).current_dir(folder.path());
                let Ok(ended) = process::run(&mut command, Stdio::null()) else {
                    crate::skip::skip("peers", &format!("there is no {}", language.compiler()));
                    continue;
                };
                assert!(ended.has_succeeded, "{language:?} {source}: {}", ended.stderr);
            }
        }
    }
}
