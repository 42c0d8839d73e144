//! Errors of the manifest compiler.

use std::fmt::Write;
use std::path::PathBuf;

use traceweir_decode::source::manifest::ManifestMistake;
use traceweir_format::spec::status::Status;

/// The result of compiling.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// An error of the manifest compiler.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file that failed.
        path: PathBuf,
        /// The error that the system returned.
        source: std::io::Error,
    },
    /// The manifest has mistakes.
    #[error("{}", list_mistakes(name, mistakes))]
    Manifest {
        /// The name of the manifest.
        name: String,
        /// All mistakes, in the order of their lines.
        mistakes: Vec<ManifestMistake>,
    },
    /// Definitions of the manifest have no compiled form.
    #[error("{name}: {source}")]
    Compile {
        /// The name of the manifest.
        name: String,
        /// The reason why the definitions cannot be compiled.
        source: traceweir_decode::Error,
    },
}

impl Error {
    /// Returns the Win32 status for this error.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Status::ERROR_FILE_NOT_FOUND
            }
            Self::File { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                Status::ERROR_ACCESS_DENIED
            }
            Self::File { .. } => Status::ERROR_INVALID_PARAMETER,
            Self::Manifest { .. } => Status::ERROR_XML_PARSE_ERROR,
            Self::Compile { source, .. } => source.status(),
        }
    }
}

/// Lists mistakes as compilers do: one per line, with file, line and column.
fn list_mistakes(name: &str, mistakes: &[ManifestMistake]) -> String {
    let mut text = String::new();
    for mistake in mistakes {
        let line_end = if text.is_empty() { "" } else { "\n" };
        let _ = write!(text, "{line_end}{name}:{}:{}: {}", mistake.line, mistake.column, mistake.reason);
    }
    text
}
