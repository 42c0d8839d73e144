//! Output files of tools: created without following links that other users can change.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};

/// Creates a file for output, or empties the one that is there; with `new`, it must not be there.
///
/// A symbolic link is followed only where other users cannot put another one in its place. In a
/// folder that everybody can write, only a file of the caller's own is replaced.
///
/// Statuses: `ERROR_ACCESS_DENIED` for such links and files, `ERROR_ALREADY_EXISTS`, and those of
/// the system.
pub fn create(path: &Path, new: bool) -> Result<File> {
    let user = rustix::process::geteuid().as_raw();
    traceweir_session::create_output(path, user, new).map_err(|error| explain(path, error))
}

/// Adds the path to an error.
pub(crate) fn explain(path: &Path, error: traceweir_session::Error) -> Error {
    match error {
        traceweir_session::Error::File(source) => Error::File { path: path.to_owned(), source },
        other => Error::refused(other.status(), format!("{}: {other}", path.display())),
    }
}
