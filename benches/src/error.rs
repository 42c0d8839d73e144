//! Why there is no figure.

use std::path::{Path, PathBuf};

/// The result of a part of the measurement.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a measurement could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The library refused a trace.
    #[error(transparent)]
    Format(#[from] traceweir_format::Error),
    /// A file or folder.
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    /// A question to the system.
    #[error("{what}: {source}")]
    System { what: &'static str, source: nix::Error },
    /// A program that was started.
    #[error("{program}: {why}")]
    Program { program: String, why: String },
    /// A call to the library under measurement.
    #[error(transparent)]
    Traceweir(#[from] traceweir::Error),
    /// A side did not do what it was to be measured at.
    #[error("{0}")]
    Unfit(String),
    /// Both sides must have the same events; they have not.
    #[error("{who} does not give the events that were written: {why}")]
    Unequal { who: &'static str, why: String },
}

impl Error {
    /// Says which file it was.
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), source }
    }

    /// Says what was asked.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(nix::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
