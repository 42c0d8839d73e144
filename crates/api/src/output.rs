//! Output files of tools: created without following links that other users can change.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};

/// Creates a file for output, or empties an existing one; with `new`, it must not exist.
///
/// A symbolic link is followed only if other users cannot replace it. In a world-writable folder,
/// only a file that the caller owns is emptied.
///
/// Fails with `ERROR_ACCESS_DENIED` for other links and files, with `ERROR_ALREADY_EXISTS` if
/// `new` is set and the file exists, and with errors of the system.
pub fn create(path: &Path, new: bool) -> Result<File> {
    let user = rustix::process::geteuid().as_raw();
    traceweir_session::create_output(path, user, new).map_err(|error| add_path(path, error))
}

pub(crate) fn add_path(path: &Path, error: traceweir_session::Error) -> Error {
    match error {
        traceweir_session::Error::File(source) => Error::File { path: path.to_owned(), source },
        other => Error::refused(other.status(), format!("{}: {other}", path.display())),
    }
}
