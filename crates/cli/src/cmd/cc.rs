//! `weir cc`: runs a C or C++ compiler with the options that sources for Windows need.
//!
//! ```text
//!   typed                               runs
//!   weir cc --wide gcc -c app.c         gcc OPTIONS -c app.c
//!   weir cc --wide gcc app.o -o app     gcc OPTIONS app.o -o app LIBRARIES
//!   weir cc --32-bit-long gcc -c app.c  gcc -E app.c ─▶ rewrite `long` ─▶ gcc -c app.i
//! ```
//!
//! Invocations without an input, such as `--version`, pass unchanged. Response files (`@FILE`) are
//! read to find the inputs. Rewritten commands get a response file of their own then, because the
//! arguments may be too many for a command line.

mod arguments;
mod response;
mod rewrite;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use crate::cli::CcArgs;
use crate::exit::CommandOutcome;
use crate::text::quote_for_shell;
use arguments::{Argument, Invocation, Language, Stage};

/// Options for sources that are compiled with a `wchar_t` of 16 bits; `traceweir-wide.pc.in` has
/// the same. The compiler must not apply what it knows of the C library's `printf` to Windows'
/// formats.
const WIDE_OPTIONS: [&str; 12] = [
    "-fshort-wchar",
    "-include",
    "traceweir/wide.h",
    "-Wno-format",
    "-fno-builtin-printf",
    "-fno-builtin-fprintf",
    "-fno-builtin-sprintf",
    "-fno-builtin-snprintf",
    "-fno-builtin-vprintf",
    "-fno-builtin-vfprintf",
    "-fno-builtin-vsprintf",
    "-fno-builtin-vsnprintf",
];

/// Options that make `<limits.h>` and `<stdint.h>` describe a `long` of 32 bits.
const LONG_OPTIONS: [&str; 6] = [
    "-U__LONG_MAX__",
    "-D__LONG_MAX__=2147483647",
    "-U__SIZEOF_LONG__",
    "-D__SIZEOF_LONG__=4",
    "-include",
    "traceweir/long32.h",
];

/// Makes the compiler warn of a `long` in a format of the C library, whose `%ld` has 64 bits. An
/// option of the build, such as `-Wno-format`, comes later and overrides it.
const LONG_FORMAT_WARNING: &str = "-Wformat";

pub(super) fn run(options: &CcArgs) -> Result<CommandOutcome> {
    let (compiler, arguments) = options.command.split_first().context("no compiler is given")?;
    if Language::from_path(Path::new(compiler)).is_some() {
        let source = quote_for_shell(&compiler.to_string_lossy());
        bail!("{source} is a source, not a compiler: weir cc gcc {source}");
    }
    let expanded = response::expand(arguments)?;
    let invocation = Invocation::parse(expanded.as_deref().unwrap_or(arguments));
    if !invocation.has_inputs() {
        return run_compiler(Command::new(compiler).args(arguments));
    }
    let wrapper = Wrapper { options, compiler, has_response_files: expanded.is_some() };
    if options.is_long_32_bit && invocation.stage != Stage::Preprocess {
        wrapper.compile_rewritten(&invocation)
    } else {
        let mut words = wrapper.compile_options()?;
        words.extend_from_slice(arguments);
        words.extend(wrapper.libraries(&invocation)?);
        run_compiler(Command::new(compiler).args(words))
    }
}

struct Wrapper<'a> {
    options: &'a CcArgs,
    compiler: &'a OsStr,
    has_response_files: bool,
}

impl Wrapper<'_> {
    /// Returns the options for compiling. If `long` is rewritten, the headers are passed as system
    /// headers, so that their own `long` stays.
    fn compile_options(&self) -> Result<Vec<OsString>> {
        let headers = self.find_headers()?;
        let kind = if self.options.is_long_32_bit { "-isystem" } else { "-I" };
        let mut options: Vec<OsString> = Vec::new();
        if self.options.is_long_32_bit && !self.options.wide {
            options.push(LONG_FORMAT_WARNING.into());
        }
        if self.options.wide {
            options.extend(WIDE_OPTIONS.map(OsString::from));
            options.extend([kind.into(), headers.join("wide").into()]);
        }
        options.extend([kind.into(), headers.clone().into()]);
        options.extend([kind.into(), headers.join("case").into()]);
        Ok(options)
    }

    /// Returns the libraries, which follow all inputs, if the compiler is to link.
    fn libraries(&self, invocation: &Invocation) -> Result<Vec<OsString>> {
        if invocation.stage != Stage::Link {
            return Ok(Vec::new());
        }
        let folder =
            std::path::absolute(self.find_libraries()?).context("cannot resolve the current directory")?;
        let mut words = vec!["-L".into(), folder.clone().into()];
        if !super::shims::system_library_folders().contains(&folder) {
            // The dynamic loader does not search this folder by itself. A path after `-Wl,` must not
            // contain a comma.
            words.extend(["-Xlinker".into(), "-rpath".into(), "-Xlinker".into(), folder.into()]);
        }
        if self.options.wide {
            words.push("-ltraceweir-wide".into());
        }
        words.push("-ltraceweir".into());
        Ok(words)
    }

    /// Returns the compiler with arguments, which it reads from a response file in the folder if
    /// the caller used such files.
    fn command(&self, words: &[OsString], folder: &Path) -> Result<Command> {
        let mut command = Command::new(self.compiler);
        if self.has_response_files {
            let file = folder.join("arguments");
            std::fs::write(&file, response::join(words))
                .with_context(|| format!("cannot write {}", file.display()))?;
            let mut word = OsString::from("@");
            word.push(file);
            command.arg(word);
        } else {
            command.args(words);
        }
        Ok(command)
    }

    /// Preprocesses each source, rewrites `long`, and compiles the result.
    fn compile_rewritten(&self, invocation: &Invocation) -> Result<CommandOutcome> {
        let options = self.compile_options()?;
        let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
        let mut words: Vec<OsString> = Vec::new();
        // `-include` has its effect in the preprocessor and must not have it again.
        let mut remaining = options.iter();
        while let Some(option) = remaining.next() {
            if option == "-include" {
                remaining.next();
            } else {
                words.push(option.clone());
            }
        }
        for (number, argument) in invocation.arguments.iter().enumerate() {
            match argument {
                Argument::Source { path, language, is_explicit } => {
                    let subfolder = folder.path().join(number.to_string());
                    std::fs::create_dir(&subfolder)
                        .with_context(|| format!("cannot create {}", subfolder.display()))?;
                    let source = Source { path, language: *language };
                    let text = match self.preprocess(invocation, &source, &options, &subfolder)? {
                        Ok(text) => text,
                        Err(status) => return Ok(outcome_of(status)),
                    };
                    // The compiler derives names of outputs from this name.
                    let stem = Path::new(path).file_stem().unwrap_or(OsStr::new("source"));
                    let file = subfolder.join(stem).with_extension(language.preprocessed_extension());
                    std::fs::write(&file, rewrite::shorten_long(&text))
                        .with_context(|| format!("cannot write {}", file.display()))?;
                    let next = if *is_explicit { language.name() } else { "none" };
                    words.extend(["-x".into(), language.preprocessed_name().into(), file.into()]);
                    words.extend(["-x".into(), next.into()]);
                }
                Argument::Preprocessor(_) | Argument::Dependency(_) => {}
                Argument::Other(option) => words.extend_from_slice(option),
                Argument::Output(path) => words.extend(["-o".into(), path.clone()]),
                Argument::Input(path) => words.push(path.clone()),
            }
        }
        words.extend(self.libraries(invocation)?);
        run_compiler(&mut self.command(&words, folder.path())?)
    }

    /// Runs the preprocessor, which also writes the dependency file. Returns its output, or its
    /// exit status if it failed.
    fn preprocess(
        &self,
        invocation: &Invocation,
        source: &Source<'_>,
        options: &[OsString],
        folder: &Path,
    ) -> Result<std::result::Result<Vec<u8>, ExitStatus>> {
        let mut words: Vec<OsString> = vec!["-E".into()];
        words.extend_from_slice(options);
        if source.language == Language::C {
            words.extend(LONG_OPTIONS.map(OsString::from));
        }
        for argument in &invocation.arguments {
            match argument {
                Argument::Preprocessor(option) | Argument::Dependency(option) => {
                    words.extend_from_slice(option);
                }
                Argument::Other(option) if !invocation.is_stage_or_linker_option(option) => {
                    words.extend_from_slice(option);
                }
                _ => {}
            }
        }
        words.extend(invocation.dependency_options(source.path));
        words.extend(["-x".into(), source.language.name().into(), source.path.to_owned()]);
        // The source may be "-", the standard input.
        let output = self
            .command(&words, folder)?
            .stdin(Stdio::inherit())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot run {}", self.compiler.display()))?;
        Ok(if output.status.success() { Ok(output.stdout) } else { Err(output.status) })
    }

    fn find_headers(&self) -> Result<PathBuf> {
        let is_ours = |folder: &PathBuf| folder.join("evntprov.h").is_file();
        if let Some(folder) = &self.options.include {
            return is_ours(folder)
                .then(|| folder.clone())
                .with_context(|| format!("{} does not contain evntprov.h", folder.display()));
        }
        // In this order: an installation, a build folder, the system's folders.
        let near_program = super::shims::program_folder().into_iter().flat_map(|folder| {
            ["../include/traceweir", "../../crates/ffi/include"].map(|path| folder.join(path))
        });
        near_program
            .chain(["/usr/local/include/traceweir", "/usr/include/traceweir"].map(PathBuf::from))
            .find(is_ours)
            .context(
                "the headers are neither beside weir nor in the system's folders; name their folder with --include before the compiler, or install \
                 them (crates/ffi/install.sh)",
            )
    }

    fn find_libraries(&self) -> Result<PathBuf> {
        let file = if self.options.wide { "libtraceweir-wide.a" } else { "libtraceweir.so" };
        let folders = match &self.options.lib {
            Some(folder) => vec![folder.clone()],
            None => super::shims::library_folders(),
        };
        folders.into_iter().find(|folder| folder.join(file).exists()).with_context(|| match &self.options.lib {
            Some(folder) if self.options.wide => {
                format!("{} does not contain {file}, which crates/ffi/wide/build.sh DIR makes", folder.display())
            }
            Some(folder) => format!("{} does not contain {file}", folder.display()),
            None => format!(
                "{file} is neither beside weir nor in the system's library folders; name its folder with --lib before the compiler, or install it \
                 (crates/ffi/install.sh)"
            ),
        })
    }
}

struct Source<'a> {
    path: &'a OsStr,
    language: Language,
}

fn run_compiler(command: &mut Command) -> Result<CommandOutcome> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", Path::new(command.get_program()).display()))?;
    Ok(outcome_of(status))
}

/// Returns the compiler's exit status, as a shell reports it.
fn outcome_of(status: ExitStatus) -> CommandOutcome {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    match code.and_then(|code| u8::try_from(code).ok()) {
        Some(0) => CommandOutcome::Fine,
        Some(code) => CommandOutcome::Status(code),
        None => CommandOutcome::Status(1),
    }
}
