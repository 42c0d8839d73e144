//! Errors of measurements. The peer is the tool that Traceweir is compared with.

use std::path::{Path, PathBuf};

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The reason why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// `traceweir-format` rejected a trace.
    #[error(transparent)]
    Format(#[from] traceweir_format::Error),
    /// An operation on a file or folder failed.
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    /// A system call failed.
    #[error("{operation}: {source}")]
    System { operation: &'static str, source: nix::Error },
    /// A child process failed.
    #[error("{program}: {reason}")]
    Program { program: String, reason: String },
    /// A call to `traceweir` failed.
    #[error(transparent)]
    Traceweir(#[from] traceweir::Error),
    /// Traceweir or the peer did not complete the measured work.
    #[error("{0}")]
    IncompleteRun(String),
    /// Traceweir or the peer read events other than those that were written.
    #[error("{reader} read events other than those that were written: {reason}")]
    WrongEvents { reader: &'static str, reason: String },
}

impl Error {
    /// Adds the path to an I/O error.
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), source }
    }

    /// Adds the name of the operation to a system error.
    pub(crate) fn system(operation: &'static str) -> impl FnOnce(nix::Error) -> Self {
        move |source| Self::System { operation, source }
    }
}
