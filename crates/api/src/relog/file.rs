//! The output on disk: another name until it is whole.
//!
//! ```text
//!   create   .NAME.PID-N.part beside NAME, new: for its owner, and for the group where all inputs and what is replaced are; never for others
//!   write    … a failure is remembered as the system said it
//!   commit   renamed to NAME                  dropped without it: removed
//! ```
//!
//! A file that has to be new is so when it is committed: whatever somebody lays under its name meanwhile, a link above all, stays.
//!
//! The folder is entered once, without following links that other users can change, and the file
//! is created, renamed and removed in there.

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

/// Tries for a name that nobody has.
const TRIES: u32 = 100;

/// A file that is not there yet under its name.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    folder: OwnedFd,
    /// Its name in the folder until it is whole.
    part: OsString,
    /// Its path after that.
    path: PathBuf,
    /// Nothing may be called that.
    new: bool,
    committed: bool,
    /// Why writing failed.
    failure: Option<io::Error>,
}

impl Part {
    /// Begins a file that will replace what is at `path`, unless that is one of the inputs or no plain file; a `new` one replaces nothing.
    pub(super) fn create(path: &Path, inputs: &[PathBuf], new: bool) -> Result<Self> {
        let settled = Self::check(path, inputs)?;
        if new && path.symlink_metadata().is_ok() {
            return Err(taken(path));
        }
        let path = if new { path.to_owned() } else { settled };
        let folder = enter_folder(&path)?;
        let (file, part) = begin(&folder, &path, mode(&path, inputs))?;
        Ok(Self { file, folder, part, path, new, committed: false, failure: None })
    }

    /// Where such a file goes, behind links.
    pub(super) fn check(path: &Path, inputs: &[PathBuf]) -> Result<PathBuf> {
        let path = settle(path)?;
        if inputs.iter().any(|input| is_same_file(input, &path)) {
            let why = format!("{} is an input; name another file for the output", path.display());
            return Err(Error::refused(Status::ERROR_SHARING_VIOLATION, why));
        }
        Ok(path)
    }

    /// Puts the file in its place.
    pub(super) fn commit(&mut self) -> Result<()> {
        let name = self.path.file_name().unwrap_or_default();
        let renamed = if self.new {
            rename_to_new(&self.folder, &self.part, name)
        } else {
            renameat(&self.folder, &self.part, &self.folder, name).map_err(io::Error::from)
        };
        match renamed {
            Ok(()) => self.committed = true,
            Err(error) if self.new && error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(taken(&self.path));
            }
            Err(error) => return Err(self.failed(error)),
        }
        Ok(())
    }

    /// The error of the system behind one of the writer's, where that is what it was.
    pub(super) fn explain(&mut self, error: traceweir_format::Error) -> Error {
        match self.failure.take() {
            Some(source) => self.failed(source),
            None => error.into(),
        }
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::File { path: self.path.clone(), source }
    }
}

impl WriteAt for Part {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> traceweir_format::Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|source| {
            let reason = source.to_string();
            self.failure = Some(source);
            traceweir_format::Error::Io { offset, reason }
        })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.committed {
            // It may be gone already, and nobody is left to be told.
            let _ = unlinkat(&self.folder, &self.part, AtFlags::empty());
        }
    }
}

fn taken(path: &Path) -> Error {
    Error::refused(Status::ERROR_ALREADY_EXISTS, format!("{}: it is there already", path.display()))
}

/// Renames, but replaces nothing.
fn rename_to_new(folder: &OwnedFd, from: &OsStr, to: &OsStr) -> io::Result<()> {
    match renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
        // A file system that cannot: a second name is never given to what has one already, and follows no link.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            linkat(folder, from, folder, to, AtFlags::empty())?;
            Ok(unlinkat(folder, from, AtFlags::empty())?)
        }
        renamed => Ok(renamed?),
    }
}

/// Resolves a link at the end of a path. Refuses what a file cannot replace, and links that other
/// users can change.
fn settle(path: &Path) -> Result<PathBuf> {
    let bad = |why: &str| {
        let why = format!("{}: {why}", path.display());
        Err(Error::refused(Status::ERROR_BAD_PATHNAME, why))
    };
    if path.file_name().is_none() {
        return bad("the output needs the name of a file");
    }
    match path.metadata() {
        Ok(there) if there.is_dir() => bad("this is a folder; name a file in it"),
        Ok(there) if !there.is_file() => bad("this is no plain file, which the output has to be"),
        // The target of a link is what the output replaces. Anything else is replaced by name.
        Ok(_) if is_trusted_link(path)? => {
            path.canonicalize().map_err(|source| Error::File { path: path.to_owned(), source })
        }
        // Nothing is there, or only a link to nothing: the way to it counts all the same. What the
        // system refuses is reported when the file is created.
        Err(_) => match is_trusted_link(path) {
            Err(error @ Error::Refused { .. }) => Err(error),
            _ => Ok(path.to_owned()),
        },
        Ok(_) => Ok(path.to_owned()),
    }
}

fn is_trusted_link(path: &Path) -> Result<bool> {
    traceweir_session::is_trusted_link(path, user()).map_err(|error| crate::output::explain(path, error))
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Enters the folder of a path. A link in it that other users can change, put there after
/// [`settle`], is an error of the system.
fn enter_folder(path: &Path) -> Result<OwnedFd> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let absolute = std::path::absolute(path).map_err(failed)?;
    match traceweir_session::enter(absolute.parent().unwrap_or(Path::new("/")), user()) {
        Err(Errno::NOENT) => Err(no_folder(path)),
        folder => folder.map_err(|error| failed(error.into())),
    }
}

fn no_folder(path: &Path) -> Error {
    let why = format!("{}: there is no such folder", path.display());
    Error::refused(Status::ERROR_PATH_NOT_FOUND, why)
}

/// Who may do what with the output, less the umask: as with files of sessions, but not more for the group than with any input and what is replaced.
fn mode(path: &Path, inputs: &[PathBuf]) -> u32 {
    let of_file =
        |path: &Path| path.metadata().ok().filter(|there| there.is_file()).map(|there| there.mode());
    let others = inputs.iter().map(PathBuf::as_path).chain([path]).filter_map(of_file);
    others.fold(0o640, |mode, other| mode & (other | 0o600))
}

fn begin(folder: &OwnedFd, path: &Path, mode: u32) -> Result<(File, OsString)> {
    const FLAGS: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let failed = |source| Error::File { path: path.to_owned(), source };
    let name = path.file_name().unwrap_or_default();
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..TRIES {
        let mut part = OsString::from(".");
        // A name may have 255 bytes; what is added takes up to 30 of them.
        match name.len() {
            0..=220 => part.push(name),
            _ => part.push("relog"),
        }
        part.push(format!(".{}-{}.part", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        match openat(folder, &part, FLAGS, Mode::from_raw_mode(mode)) {
            Ok(file) => return Ok((file.into(), part)),
            Err(error @ Errno::EXIST) => last = error.into(),
            Err(Errno::NOENT) => return Err(no_folder(path)),
            Err(error) => return Err(failed(error.into())),
        }
    }
    Err(failed(last))
}

/// Whether two paths lead to one file, by whatever name.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|m| (m.dev(), m.ino()));
    identity(a).is_some_and(|a| identity(b) == Some(a))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            folder.read_dir().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_when_it_is_whole_and_else_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.etl");
        fs::write(&path, "before").unwrap();
        let mut part = Part::create(&path, &[], false).unwrap();
        part.write_at(0, b"after").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before");
        drop(part);
        assert_eq!(names(folder.path()), ["out.etl"], "nothing is left behind");
        let mut part = Part::create(&path, &[], false).unwrap();
        part.write_at(0, b"after").unwrap();
        part.commit().unwrap();
        drop(part);
        assert_eq!(fs::read(&path).unwrap(), b"after");
        assert_eq!(names(folder.path()), ["out.etl"]);
    }

    #[test]
    fn what_is_laid_under_the_name_of_a_new_file_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (path, precious) = (folder.path().join("out.etl"), folder.path().join("precious"));
        fs::write(&precious, "precious").unwrap();
        let mut part = Part::create(&path, &[], true).unwrap();
        part.write_at(0, b"after").unwrap();
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        assert_eq!(part.commit().unwrap_err().status(), Status::ERROR_ALREADY_EXISTS);
        drop(part);
        assert_eq!(names(folder.path()), ["out.etl", "precious"]);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        assert_eq!(Part::create(&path, &[], true).unwrap_err().status(), Status::ERROR_ALREADY_EXISTS);
        fs::remove_file(&path).unwrap();
        let mut part = Part::create(&path, &[], true).unwrap();
        part.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn a_full_disk_is_told_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let mut part = Part::create(&folder.path().join("out.etl"), &[], false).unwrap();
        part.file = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = part.write_at(0, b"x").unwrap_err();
        let error = part.explain(error);
        assert_eq!(error.status(), Status::ERROR_DISK_FULL, "{error}");
        assert!(error.to_string().contains("out.etl"), "{error}");
    }

    #[test]
    fn inputs_folders_and_devices_are_no_outputs() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("in.etl");
        fs::write(&input, "precious").unwrap();
        let (hard, soft) = (folder.path().join("hard.etl"), folder.path().join("soft.etl"));
        fs::hard_link(&input, &hard).unwrap();
        std::os::unix::fs::symlink(&input, &soft).unwrap();
        let status =
            |path: &Path| Part::create(path, std::slice::from_ref(&input), false).unwrap_err().status();
        for name in [&input, &hard, &soft] {
            assert_eq!(status(name), Status::ERROR_SHARING_VIOLATION);
        }
        assert_eq!(status(folder.path()), Status::ERROR_BAD_PATHNAME);
        assert_eq!(status(Path::new("/dev/null")), Status::ERROR_BAD_PATHNAME);
        assert_eq!(status(Path::new("")), Status::ERROR_BAD_PATHNAME);
        assert_eq!(status(&folder.path().join("none/out.etl")), Status::ERROR_PATH_NOT_FOUND);
        assert_eq!(fs::read(&input).unwrap(), b"precious");
    }
}
