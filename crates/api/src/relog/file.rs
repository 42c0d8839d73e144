//! The output on disk, under a temporary name until it is complete.
//!
//! ```text
//!   create   .NAME.PID-N.part in the folder of NAME, a new file: readable by its owner, and by the
//!            group if all inputs and the replaced file are; never by others
//!   write    if it fails, the error of the system is kept
//!   commit   renamed to NAME                  dropped without a commit: removed
//! ```
//!
//! For an output that must be new, the commit fails if anything has the final name by then, even a
//! link, and leaves it unchanged.
//!
//! The folder is entered once, without following links that other users can change, and the file
//! is created, renamed and removed in the entered folder.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, linkat, openat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;
use traceweir_format::etl::WriteAt;
use traceweir_format::spec::status::Status;

use crate::error::{Error, Result};

/// Number of attempts to find a free name.
const MAX_NAME_ATTEMPTS: u32 = 100;

/// A file that does not have its final name yet.
#[derive(Debug)]
pub(super) struct PartialFile {
    file: File,
    folder: OwnedFd,
    /// Temporary name in the folder.
    temporary_name: OsString,
    /// The path of the finished file.
    path: PathBuf,
    /// The final name must be free.
    is_new: bool,
    is_committed: bool,
    /// The error of a failed write.
    failure: Option<io::Error>,
}

impl PartialFile {
    /// Creates a file that will replace the one at `path`, unless that is an input or not a regular
    /// file. With `is_new`, it replaces nothing.
    pub(super) fn create(path: &Path, inputs: &[PathBuf], is_new: bool) -> Result<Self> {
        let resolved = Self::check(path, inputs)?;
        if is_new && path.symlink_metadata().is_ok() {
            return Err(already_exists_error(path));
        }
        let path = if is_new { path.to_owned() } else { resolved };
        let folder = enter_folder(&path)?;
        let (file, temporary_name) = create_temporary(&folder, &path, output_mode(&path, inputs))?;
        Ok(Self { file, folder, temporary_name, path, is_new, is_committed: false, failure: None })
    }

    /// Checks whether an output can be created at `path`, and returns the path with links resolved.
    pub(super) fn check(path: &Path, inputs: &[PathBuf]) -> Result<PathBuf> {
        let path = resolve_output(path)?;
        if inputs.iter().any(|input| is_same_file(input, &path)) {
            let reason = format!("{} is an input; name another file for the output", path.display());
            return Err(Error::refused(Status::ERROR_SHARING_VIOLATION, reason));
        }
        Ok(path)
    }

    /// Gives the file its final name.
    pub(super) fn commit(&mut self) -> Result<()> {
        let name = self.path.file_name().unwrap_or_default();
        let renamed = if self.is_new {
            rename_to_new(&self.folder, &self.temporary_name, name)
        } else {
            renameat(&self.folder, &self.temporary_name, &self.folder, name).map_err(io::Error::from)
        };
        match renamed {
            Ok(()) => self.is_committed = true,
            Err(error) if self.is_new && error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(already_exists_error(&self.path));
            }
            Err(error) => return Err(self.file_error(error)),
        }
        Ok(())
    }

    /// Returns the system's error if it caused an error of the writer.
    pub(super) fn explain(&mut self, error: traceweir_format::Error) -> Error {
        match self.failure.take() {
            Some(source) => self.file_error(source),
            None => error.into(),
        }
    }

    fn file_error(&self, source: io::Error) -> Error {
        Error::File { path: self.path.clone(), source }
    }
}

impl WriteAt for PartialFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> traceweir_format::Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|source| {
            let reason = source.to_string();
            self.failure = Some(source);
            traceweir_format::Error::Io { offset, reason }
        })
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_committed {
            // An error is ignored: the file may be gone already, and no caller gets the error.
            let _ = unlinkat(&self.folder, &self.temporary_name, AtFlags::empty());
        }
    }
}

fn already_exists_error(path: &Path) -> Error {
    Error::refused(Status::ERROR_ALREADY_EXISTS, format!("{}: the file exists already", path.display()))
}

/// Renames without replacing.
fn rename_to_new(folder: &OwnedFd, from: &OsStr, to: &OsStr) -> io::Result<()> {
    match renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
        // For a file system without NOREPLACE: a hard link never replaces an existing name, and
        // follows no link.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            linkat(folder, from, folder, to, AtFlags::empty())?;
            Ok(unlinkat(folder, from, AtFlags::empty())?)
        }
        renamed => Ok(renamed?),
    }
}

/// Resolves a link at the end of a path. Refuses anything that a file cannot replace, and links
/// that other users can change.
fn resolve_output(path: &Path) -> Result<PathBuf> {
    let refuse = |reason: &str| {
        let reason = format!("{}: {reason}", path.display());
        Err(Error::refused(Status::ERROR_BAD_PATHNAME, reason))
    };
    if path.file_name().is_none() {
        return refuse("the output needs a file name");
    }
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => refuse("this is a folder; name a file in it"),
        Ok(metadata) if !metadata.is_file() => refuse("the output must be a regular file"),
        // The output replaces the target of a link. Anything else is replaced by name.
        Ok(_) if check_link(path)? => {
            path.canonicalize().map_err(|source| Error::File { path: path.to_owned(), source })
        }
        // There is nothing, or only a dangling link: the links on the path are checked all the
        // same. Errors of the system are reported when the file is created.
        Err(_) => match check_link(path) {
            Err(error @ Error::Refused { .. }) => Err(error),
            _ => Ok(path.to_owned()),
        },
        Ok(_) => Ok(path.to_owned()),
    }
}

/// Returns whether a path is a symbolic link. Refuses a link that other users could have created.
fn check_link(path: &Path) -> Result<bool> {
    traceweir_session::check_link(path, effective_user())
        .map_err(|error| crate::output::add_path(path, error))
}

fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Enters the folder of a path. Fails with an error of the system if, after [`resolve_output`], the
/// path has got a link that other users can change.
fn enter_folder(path: &Path) -> Result<OwnedFd> {
    let file_error = |source| Error::File { path: path.to_owned(), source };
    let absolute = std::path::absolute(path).map_err(file_error)?;
    match traceweir_session::open_folder(absolute.parent().unwrap_or(Path::new("/")), effective_user()) {
        Err(Errno::NOENT) => Err(no_folder_error(path)),
        folder => folder.map_err(|error| file_error(error.into())),
    }
}

fn no_folder_error(path: &Path) -> Error {
    let reason = format!("{}: there is no such folder", path.display());
    Error::refused(Status::ERROR_PATH_NOT_FOUND, reason)
}

/// Returns the permissions of the output before the umask: those of session files, but readable by
/// the group only if all inputs and the replaced file are.
fn output_mode(path: &Path, inputs: &[PathBuf]) -> u32 {
    let read_mode = |path: &Path| {
        path.metadata().ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.mode())
    };
    let file_modes = inputs.iter().map(PathBuf::as_path).chain([path]).filter_map(read_mode);
    file_modes.fold(0o640, |mode, file_mode| mode & (file_mode | 0o600))
}

fn create_temporary(folder: &OwnedFd, path: &Path, mode: u32) -> Result<(File, OsString)> {
    const FLAGS: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let file_error = |source| Error::File { path: path.to_owned(), source };
    let name = path.file_name().unwrap_or_default();
    let mut last_error = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..MAX_NAME_ATTEMPTS {
        let mut temporary_name = OsString::from(".");
        // A name may have 255 bytes; the additions take up to 30 of them.
        match name.len() {
            0..=220 => temporary_name.push(name),
            _ => temporary_name.push("relog"),
        }
        temporary_name.push(format!(
            ".{}-{}.part",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        match openat(folder, &temporary_name, FLAGS, Mode::from_raw_mode(mode)) {
            Ok(file) => return Ok((file.into(), temporary_name)),
            Err(error @ Errno::EXIST) => last_error = error.into(),
            Err(Errno::NOENT) => return Err(no_folder_error(path)),
            Err(error) => return Err(file_error(error.into())),
        }
    }
    Err(file_error(last_error))
}

/// Returns whether two paths lead to the same file.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|m| (m.dev(), m.ino()));
    identity(a).is_some_and(|a| identity(b) == Some(a))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn list_names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            folder.read_dir().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn file_appears_only_when_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.etl");
        fs::write(&path, "before").unwrap();
        let mut temporary = PartialFile::create(&path, &[], false).unwrap();
        temporary.write_at(0, b"after").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before");
        drop(temporary);
        assert_eq!(list_names(folder.path()), ["out.etl"], "the temporary file must be removed");
        let mut temporary = PartialFile::create(&path, &[], false).unwrap();
        temporary.write_at(0, b"after").unwrap();
        temporary.commit().unwrap();
        drop(temporary);
        assert_eq!(fs::read(&path).unwrap(), b"after");
        assert_eq!(list_names(folder.path()), ["out.etl"]);
    }

    #[test]
    fn new_output_replaces_nothing_at_commit() {
        let folder = tempfile::tempdir().unwrap();
        let (path, precious) = (folder.path().join("out.etl"), folder.path().join("precious"));
        fs::write(&precious, "precious").unwrap();
        let mut temporary = PartialFile::create(&path, &[], true).unwrap();
        temporary.write_at(0, b"after").unwrap();
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        assert_eq!(temporary.commit().unwrap_err().status(), Status::ERROR_ALREADY_EXISTS);
        drop(temporary);
        assert_eq!(list_names(folder.path()), ["out.etl", "precious"]);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        assert_eq!(PartialFile::create(&path, &[], true).unwrap_err().status(), Status::ERROR_ALREADY_EXISTS);
        fs::remove_file(&path).unwrap();
        let mut temporary = PartialFile::create(&path, &[], true).unwrap();
        temporary.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn full_disk_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let mut temporary = PartialFile::create(&folder.path().join("out.etl"), &[], false).unwrap();
        temporary.file = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = temporary.write_at(0, b"x").unwrap_err();
        let error = temporary.explain(error);
        assert_eq!(error.status(), Status::ERROR_DISK_FULL, "{error}");
        assert!(error.to_string().contains("out.etl"), "{error}");
    }

    #[test]
    fn inputs_folders_and_devices_are_refused_as_outputs() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("in.etl");
        fs::write(&input, "precious").unwrap();
        let (hard, soft) = (folder.path().join("hard.etl"), folder.path().join("soft.etl"));
        fs::hard_link(&input, &hard).unwrap();
        std::os::unix::fs::symlink(&input, &soft).unwrap();
        let create_status = |path: &Path| {
            PartialFile::create(path, std::slice::from_ref(&input), false).unwrap_err().status()
        };
        for name in [&input, &hard, &soft] {
            assert_eq!(create_status(name), Status::ERROR_SHARING_VIOLATION);
        }
        assert_eq!(create_status(folder.path()), Status::ERROR_BAD_PATHNAME);
        assert_eq!(create_status(Path::new("/dev/null")), Status::ERROR_BAD_PATHNAME);
        assert_eq!(create_status(Path::new("")), Status::ERROR_BAD_PATHNAME);
        assert_eq!(create_status(&folder.path().join("none/out.etl")), Status::ERROR_PATH_NOT_FOUND);
        assert_eq!(fs::read(&input).unwrap(), b"precious");
    }
}
