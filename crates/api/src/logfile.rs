//! Opening a log file for a session, with the rights of the caller.
//!
//! ```text
//!   /home/me/logs/lunch.etl
//!    └──┬─┘└┬┘└┬─┘ └───┬───┘
//!       │   │  │       └─ never through a link; created with mode 0640, or opened
//!       └───┴──┴───────── folders, entered one by one, each by its descriptor; a link is followed
//!                         only where no other user can put one
//! ```
//!
//! 1. The daemon empties and writes the file; it can never write where the caller could not.
//! 2. In a world-writable folder, an existing file is accepted only if the caller owns it and it
//!    has no second hard link.
//! 3. Nothing is emptied here: the daemon may still refuse, and then the old log is unchanged.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;
use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_NEWFILE;
use traceweir_format::spec::status::Status;
use traceweir_session::config::sequence_file_name;
use traceweir_session::{LOG_FILE_RIGHTS, open_folder};

use crate::error::{Error, Result};

/// A log file that was opened or created for a session.
#[derive(Debug)]
pub(crate) struct OpenedLogFile {
    file: File,
    folder: OwnedFd,
    path: PathBuf,
    is_new: bool,
}

impl OpenedLogFile {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if path.as_os_str().is_empty() {
            return Err(Error::refused(Status::ERROR_BAD_PATHNAME, "the log file has no name"));
        }
        let path = std::path::absolute(path).map_err(|e| file_error(path, e))?;
        let Some((folder_path, Component::Normal(name))) = path.parent().zip(path.components().next_back())
        else {
            return Err(bad_path_error(&path, "not a file"));
        };
        let folder =
            open_folder(folder_path, effective_user()).map_err(|e| folder_error(&path, folder_path, e))?;
        let (file, is_new) =
            traceweir_session::open_log_file(&folder, Path::new(name), effective_user(), LOG_FILE_RIGHTS)
                .map_err(|e| match e {
                    traceweir_session::Error::File(source) => file_error(&path, source),
                    other => Error::refused(other.status(), format!("{}: {other}", path.display())),
                })?;
        Ok(Self { file, folder, path, is_new })
    }

    /// Opens or creates the first file of a sequence. The daemon creates the others in the same
    /// folder.
    pub(crate) fn open_first(pattern: &Path) -> Result<Self> {
        Self::open(&sequence_file_name(pattern, 1))
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the folder as an `O_PATH` descriptor.
    pub(crate) fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes an unused file if it was created here and still has its name.
    pub(crate) fn discard(self) {
        let (Ok(opened), Ok(named)) = (self.file.metadata(), self.path.symlink_metadata()) else { return };
        if self.is_new && (opened.dev(), opened.ino()) == (named.dev(), named.ino()) {
            // An empty file that stays behind is harmless.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A log file, or the first of a sequence, and the name for the daemon: the absolute path, or the
/// pattern of the sequence.
pub(crate) struct SessionLog {
    pub(crate) file: OpenedLogFile,
    pub(crate) name: PathBuf,
    is_sequence: bool,
}

impl SessionLog {
    /// Opens the file that a session of this mode writes.
    pub(crate) fn open(path: &Path, mode: u32) -> Result<Self> {
        if mode & EVENT_TRACE_FILE_MODE_NEWFILE == 0 {
            let file = OpenedLogFile::open(path)?;
            let name = file.path().to_owned();
            return Ok(Self { file, name, is_sequence: false });
        }
        let name = std::path::absolute(path).map_err(|e| file_error(path, e))?;
        traceweir_session::config::check_sequence_pattern(&name)?;
        Ok(Self { file: OpenedLogFile::open_first(&name)?, name, is_sequence: true })
    }
}

/// Returns the descriptors for a request: the file, and the folder of a sequence.
pub(crate) fn descriptors(log: Option<&SessionLog>) -> Vec<BorrowedFd<'_>> {
    let Some(log) = log else { return Vec::new() };
    let folder = log.is_sequence.then(|| log.file.folder().as_fd());
    [log.file.file().as_fd()].into_iter().chain(folder).collect()
}

fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn folder_error(path: &Path, folder: &Path, error: Errno) -> Error {
    match error {
        Errno::NOENT => {
            let reason = format!("{}: folder {} does not exist", path.display(), folder.display());
            Error::refused(Status::ERROR_PATH_NOT_FOUND, reason)
        }
        Errno::NOTDIR => bad_path_error(path, "a part of the path is not a folder"),
        Errno::LOOP => denied_error(path, "the path contains a symbolic link that other users can change"),
        other => file_error(path, other),
    }
}

fn file_error(path: &Path, error: impl Into<io::Error>) -> Error {
    Error::File { path: path.to_owned(), source: error.into() }
}

fn denied_error(path: &Path, reason: &str) -> Error {
    Error::refused(Status::ERROR_ACCESS_DENIED, format!("{}: {reason}", path.display()))
}

fn bad_path_error(path: &Path, reason: &str) -> Error {
    Error::refused(Status::ERROR_BAD_PATHNAME, format!("{}: {reason}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn open_status(path: &Path) -> Status {
        OpenedLogFile::open(path).expect_err("the path should be refused").status()
    }

    #[test]
    fn new_file_denies_other_users_and_is_removed_if_unused() {
        let dir = tempfile::tempdir().unwrap();
        let log = OpenedLogFile::open(&dir.path().join("a.etl")).unwrap();
        assert_eq!(log.file().metadata().unwrap().permissions().mode() & 0o137, 0);
        let path = log.path().to_owned();
        assert!(path.is_absolute() && path.exists());
        log.discard();
        assert!(!path.exists());
    }

    #[test]
    fn existing_file_keeps_its_bytes_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old.etl");
        fs::write(&path, "old").unwrap();
        let mut log = OpenedLogFile::open(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        log.file.write_all(b"new").unwrap();
        log.discard();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn replaced_file_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.etl");
        let log = OpenedLogFile::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        log.discard();
        assert!(path.exists());
    }

    #[test]
    fn missing_folders_links_and_non_files_have_different_statuses() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        symlink(&file, dir.path().join("link")).unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        assert_eq!(open_status(&dir.path().join("none/a.etl")), Status::ERROR_PATH_NOT_FOUND);
        assert_eq!(open_status(&file.join("a.etl")), Status::ERROR_BAD_PATHNAME);
        assert_eq!(open_status(&dir.path().join("link")), Status::ERROR_ACCESS_DENIED);
        assert_eq!(open_status(&dir.path().join("folder")), Status::ERROR_BAD_PATHNAME);
        assert_eq!(open_status(&dir.path().join("folder/..")), Status::ERROR_BAD_PATHNAME);
        assert_eq!(open_status(Path::new("/")), Status::ERROR_BAD_PATHNAME);
        assert_eq!(open_status(Path::new("")), Status::ERROR_BAD_PATHNAME);
    }

    #[test]
    fn folder_link_is_followed_only_where_others_cannot_change_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        symlink(dir.path().join("real"), dir.path().join("link")).unwrap();
        symlink(dir.path().join("real"), open.join("link")).unwrap();
        fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(OpenedLogFile::open(&dir.path().join("link/a.etl")).is_ok());
        assert_eq!(open_status(&open.join("link/b.etl")), Status::ERROR_ACCESS_DENIED);
        fs::set_permissions(&open, PermissionsExt::from_mode(0o1777)).unwrap();
        assert!(
            OpenedLogFile::open(&open.join("link/c.etl")).is_ok(),
            "a link of this user that no other user can replace must be followed"
        );
    }

    #[test]
    fn in_world_writable_folder_only_own_file_with_one_name_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        let path = dir.path().join("a.etl");
        fs::write(&path, "").unwrap();
        assert!(OpenedLogFile::open(&path).is_ok());
        fs::hard_link(&path, dir.path().join("second")).unwrap();
        assert_eq!(open_status(&path), Status::ERROR_ACCESS_DENIED);
    }
}
