//! Receives what reading traces reports besides events: progress and warnings.

use std::fmt;
use std::path::PathBuf;

use crate::text::{escape, escape_path, format_number};

/// A pass over the buffers of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPass {
    /// Collects what events need that come earlier in the traces: schemas, processes, images, stacks.
    Survey,
    /// Delivers events.
    Events,
}

/// Gets the number of bytes that a pass has read. It is dropped at the end of the pass.
pub type PassProgress = Box<dyn FnMut(u64)>;

/// Receives the progress and the warnings of reading traces. The implementation for `()` ignores
/// both.
pub trait ReadObserver: Send + Sync {
    /// Begins a pass over this many bytes. A survey can happen during another pass. Returns `None` if
    /// the progress of the pass is not needed.
    fn begin_pass(&self, pass: ReadPass, total_bytes: u64) -> Option<PassProgress>;

    /// Receives a warning.
    fn warn(&self, warning: &Warning);
}

impl ReadObserver for () {
    fn begin_pass(&self, _: ReadPass, _: u64) -> Option<PassProgress> {
        None
    }

    fn warn(&self, _: &Warning) {}
}

/// Number of [`Pass::update`] calls for each call of the observer.
const CALLS_PER_UPDATE: u32 = 4096;

/// The progress of a pass.
pub(crate) struct Pass {
    progress: Option<PassProgress>,
    calls: u32,
}

impl Pass {
    pub(crate) fn begin(observer: &dyn ReadObserver, pass: ReadPass, total_bytes: u64) -> Self {
        Self { progress: observer.begin_pass(pass, total_bytes), calls: 0 }
    }

    /// Reports the position. Callers call this for each event, so only every
    /// [`CALLS_PER_UPDATE`]th call does any work.
    #[inline]
    pub(crate) fn update(&mut self, bytes_read: impl FnOnce() -> u64) {
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(CALLS_PER_UPDATE)
            && let Some(progress) = &mut self.progress
        {
            progress(bytes_read());
        }
    }
}

/// A problem of reading that ends nothing: part of the result is missing or uncertain.
///
/// The text of a warning is one line, and untrusted text in it is escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A line of a message format file cannot be used.
    UnusableLine {
        /// The message format file.
        file: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Why the line cannot be used.
        reason: &'static str,
    },
    /// Further lines of a message format file cannot be used.
    MoreUnusableLines {
        /// The message format file.
        file: PathBuf,
        /// Number of the lines without a warning of their own.
        count: u64,
    },
    /// The manifest in a traced program cannot be used.
    TracedProgram {
        /// Path of the program in the trace.
        path: String,
        /// Why its manifest cannot be used.
        reason: String,
    },
    /// Symbols of a file or of the kernel are missing or uncertain.
    Symbols {
        /// The file, or "the kernel".
        subject: String,
        /// What is wrong.
        problem: SymbolProblem,
    },
    /// Further warnings about symbols are left out.
    MoreSymbols,
    /// The trace has no build ids of files, so the files at their paths are used.
    AssumedFiles(FileList),
    /// Files with symbols cannot be opened.
    MissingFiles(FileList),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnusableLine { file, line, reason } => write!(f, "{}:{line}: {reason}", escape_path(file)),
            Self::MoreUnusableLines { file, count } => {
                write!(f, "{}: and {} more", escape_path(file), format_number(*count))
            }
            Self::TracedProgram { path, reason } => {
                write!(f, "{}: {reason}; events of its providers may lack their names", path.escape_debug())
            }
            Self::Symbols { subject, problem } => f.write_str(&escape(&format!("{subject}: {problem}"))),
            Self::MoreSymbols => f.write_str("further warnings about symbols are not shown"),
            Self::AssumedFiles(files) => {
                let paths =
                    if files.count == 1 { "the file at that path" } else { "the files at those paths" };
                let names = escape(&files.to_string());
                write!(f, "the trace does not contain the build id of {names}: using {paths}")
            }
            Self::MissingFiles(files) => write!(
                f,
                "{} cannot be opened: functions in {} have no names",
                escape(&files.to_string()),
                files.pronoun()
            ),
        }
    }
}

/// Why functions of a file or of the kernel have no names, or doubtful ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SymbolProblem {
    /// The file has more symbols than are kept.
    Truncated,
    /// The file is not the one that was traced.
    OtherFile,
    /// The PDB does not belong to the traced image.
    OtherPdb,
    /// The PDB cannot be read, for this reason.
    UnreadablePdb(String),
    /// The trace has no event with the address of the kernel.
    NoKernelAddress,
    /// The symbols of the running kernel cannot be read.
    UnreadableKernel,
    /// The running kernel hides its addresses.
    HiddenKernel,
    /// The running kernel is not the one that was traced.
    OtherKernel,
}

impl fmt::Display for SymbolProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => {
                "it has more symbols than are kept; functions may have no name, or that of an earlier function"
            }
            Self::OtherFile => "it is not the file that was traced, so its symbols do not apply",
            Self::OtherPdb => "it is not the PDB of the traced image: its signature or age differs",
            Self::UnreadablePdb(error) => return write!(f, "cannot be used for symbols: {error}"),
            Self::NoKernelAddress => "the trace does not contain its address; its functions have no names",
            Self::UnreadableKernel => "its symbols cannot be read here",
            Self::HiddenKernel => "its symbols are hidden (/proc/kallsyms shows zeros)",
            Self::OtherKernel => "the trace is of another boot or machine, whose symbols are not here",
        })
    }
}

/// Files that one warning is about: their number and the names of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileList {
    /// The first names, in order.
    pub names: Vec<String>,
    /// Number of all files.
    pub count: usize,
}

impl FileList {
    /// Returns the pronoun for the files, as an object.
    pub const fn pronoun(&self) -> &'static str {
        if self.count == 1 { "it" } else { "them" }
    }
}

impl fmt::Display for FileList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((last, others)) = self.names.split_last() else { return Ok(()) };
        let more = self.count.saturating_sub(self.names.len());
        match (others.is_empty(), more) {
            (true, 0) => f.write_str(last),
            (false, 0) => write!(f, "{} and {last}", others.join(", ")),
            _ => write!(f, "{} and {more} more", self.names.join(", ")),
        }
    }
}
