//! Checks whether a command can be run, before the session starts.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::text::escape;

const STATUS_CANNOT_RUN: u8 = 126;
const STATUS_NOT_FOUND: u8 = 127;
/// Search path if PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Why a command cannot be run, and the exit status that shells return for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandFailure {
    pub(super) text: String,
    pub(super) status: u8,
}

impl CommandFailure {
    pub(super) fn new(program: &OsStr, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        let status =
            if error.kind() == io::ErrorKind::NotFound { STATUS_NOT_FOUND } else { STATUS_CANNOT_RUN };
        Self { text: format!("cannot run {}: {error}", escape(&program.to_string_lossy())), status }
    }
}

/// Checks whether a command exists and can be executed. A name is searched in the folders of PATH,
/// as when the command is started; a path is used directly.
pub(super) fn check_command(program: &OsStr) -> Result<(), CommandFailure> {
    check_on_path(program, &std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into()))
}

fn check_on_path(program: &OsStr, path: &OsStr) -> Result<(), CommandFailure> {
    let to_failure = |error| CommandFailure::new(program, error);
    if program.as_bytes().contains(&b'/') {
        return check_file(Path::new(program)).map_err(to_failure);
    }
    let mut last_error = io::Error::from(io::ErrorKind::NotFound);
    for folder in std::env::split_paths(path) {
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        match check_file(&folder.join(program)) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => last_error = error,
            Err(_) => {}
        }
    }
    if last_error.kind() == io::ErrorKind::NotFound {
        let text = format!("cannot run {}: no such program on PATH", escape(&program.to_string_lossy()));
        return Err(CommandFailure { text, status: STATUS_NOT_FOUND });
    }
    Err(to_failure(last_error))
}

fn check_file(file: &Path) -> io::Result<()> {
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(access(file, Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn command_lookup_matches_shells() {
        let dir = tempfile::tempdir().unwrap();
        let create_file = |name: &str, mode| {
            let path = dir.path().join(name);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            path
        };
        let (run, text) = (create_file("run", 0o755), create_file("text", 0o644));
        let path = std::env::join_paths([Path::new("/nowhere"), dir.path()]).unwrap();
        let exit_status = |program: &OsStr| check_on_path(program, &path).err().map_or(0, |f| f.status);
        assert_eq!(exit_status("run".as_ref()), 0);
        assert_eq!(exit_status(run.as_os_str()), 0);
        assert_eq!(exit_status("text".as_ref()), STATUS_CANNOT_RUN, "a file without execute permission");
        assert_eq!(exit_status(text.as_os_str()), STATUS_CANNOT_RUN);
        assert_eq!(exit_status(dir.path().as_os_str()), STATUS_CANNOT_RUN, "a folder is not a program");
        assert_eq!(exit_status("none".as_ref()), STATUS_NOT_FOUND);
        assert_eq!(exit_status(dir.path().join("none").as_os_str()), STATUS_NOT_FOUND);
        assert!(check_on_path("none".as_ref(), &path).unwrap_err().text.contains("PATH"));
    }
}
