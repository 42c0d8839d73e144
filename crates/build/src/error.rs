//! Why a manifest could not be compiled.

use std::fmt::Write;
use std::path::PathBuf;

use traceweir_decode::source::manifest::Mistake;
use traceweir_format::spec::status::Status;

/// The result of compiling.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why a manifest could not be compiled.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A manifest that is not one, or not all of it.
    #[error("{}", listed(name, mistakes))]
    Manifest {
        /// The manifest.
        name: String,
        /// All that is wrong with it, in the order of its lines.
        mistakes: Vec<Mistake>,
    },
    /// Definitions that have no compiled form.
    #[error("{name}: {source}")]
    Compile {
        /// The manifest.
        name: String,
        /// What cannot be compiled.
        source: traceweir_decode::Error,
    },
}

impl Error {
    /// The Win32 status for this error.
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

/// Mistakes as compilers list them: one a line, each with its place.
fn listed(name: &str, mistakes: &[Mistake]) -> String {
    let mut text = String::new();
    for mistake in mistakes {
        let line_end = if text.is_empty() { "" } else { "\n" };
        let _ = write!(text, "{line_end}{name}:{}:{}: {}", mistake.line, mistake.column, mistake.why);
    }
    text
}
