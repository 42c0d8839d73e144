//! Log files as controllers pass them: already open, with the rights of whoever asked.
//!
//! The daemon opens no file by name, so it never writes where the caller could not. What arrives is a descriptor; it must be a regular
//! file, open for reading and writing, and no other session's file.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, OFlags};
use traceweir_format::spec::status::Status;

use crate::error::Refusal;

/// Which file: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileKey {
    dev: u64,
    ino: u64,
}

/// A file that passed the checks, still with its old content.
#[derive(Debug)]
pub(crate) struct LogFile {
    /// Which.
    pub(crate) key: FileKey,
    /// It.
    pub(crate) file: File,
}

/// Checks the descriptors that came with a request: one where a file is named, none otherwise.
pub(crate) fn accept(named: bool, descriptors: Vec<OwnedFd>) -> Result<Option<LogFile>, Refusal> {
    let mut descriptors = descriptors.into_iter();
    match (named, descriptors.next(), descriptors.next()) {
        (false, None, _) => Ok(None),
        (true, Some(fd), None) => check(fd).map(Some),
        (true, None, _) => Err(invalid("a log file is named but none was passed along")),
        _ => Err(invalid("more files were passed along than are named")),
    }
}

fn check(fd: OwnedFd) -> Result<LogFile, Refusal> {
    let bad = |why| Refusal::new(Status::ERROR_BAD_PATHNAME, why);
    let stat = rustix::fs::fstat(&fd).map_err(|_| bad("the log file cannot be looked at"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(bad("the log file is not a regular file"));
    }
    let flags = rustix::fs::fcntl_getfl(&fd).map_err(|_| bad("the log file cannot be looked at"))?;
    if flags & OFlags::RWMODE != OFlags::RDWR {
        return Err(invalid("the log file must be open for reading and writing"));
    }
    // Buffers are written at their place; with O_APPEND the kernel would put them elsewhere.
    if flags.contains(OFlags::APPEND) {
        return Err(invalid("the log file must not be open for appending"));
    }
    Ok(LogFile { key: FileKey { dev: stat.st_dev, ino: stat.st_ino }, file: File::from(fd) })
}

fn invalid(why: &str) -> Refusal {
    Refusal::new(Status::ERROR_INVALID_PARAMETER, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    fn status(named: bool, files: Vec<OwnedFd>) -> Status {
        accept(named, files).err().map_or(Status::ERROR_SUCCESS, |refusal| refusal.status)
    }

    #[test]
    fn a_file_is_taken_only_as_it_must_be_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.etl");
        let open = |options: &mut OpenOptions| OwnedFd::from(options.open(&path).unwrap());
        let both = || open(OpenOptions::new().read(true).write(true).create(true).truncate(false));
        assert_eq!(status(true, vec![both()]), Status::ERROR_SUCCESS);
        assert_eq!(status(false, vec![]), Status::ERROR_SUCCESS);
        assert_eq!(status(true, vec![]), Status::ERROR_INVALID_PARAMETER);
        assert_eq!(status(false, vec![both()]), Status::ERROR_INVALID_PARAMETER);
        assert_eq!(status(true, vec![both(), both()]), Status::ERROR_INVALID_PARAMETER);
        assert_eq!(status(true, vec![open(OpenOptions::new().read(true))]), Status::ERROR_INVALID_PARAMETER);
        assert_eq!(status(true, vec![open(OpenOptions::new().write(true))]), Status::ERROR_INVALID_PARAMETER);
        let append = open(OpenOptions::new().read(true).append(true));
        assert_eq!(status(true, vec![append]), Status::ERROR_INVALID_PARAMETER);
        let folder = OwnedFd::from(File::open(dir.path()).unwrap());
        assert_eq!(status(true, vec![folder]), Status::ERROR_BAD_PATHNAME);
        let device = OwnedFd::from(OpenOptions::new().read(true).write(true).open("/dev/null").unwrap());
        assert_eq!(status(true, vec![device]), Status::ERROR_BAD_PATHNAME);
    }

    #[test]
    fn two_names_of_one_file_are_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        File::create(&a).unwrap();
        std::fs::hard_link(&a, &b).unwrap();
        let key = |path| {
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            accept(true, vec![file.into()]).unwrap().unwrap().key
        };
        assert_eq!(key(&a), key(&b));
    }
}
