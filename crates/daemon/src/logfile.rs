//! Log files as controllers pass them: already open, with the rights of whoever asked.
//!
//! ```text
//!   the loop:   Passed, how many ─▶ a thread of its own:   look at it ─▶ Claim, or in use ─▶ empty it ─▶ the session
//!                    └─ not wanted: the janitor                              └─ held with the session, free when dropped
//! ```
//!
//! The daemon opens no file by name, so it never writes where the caller could not. What arrives is a descriptor; it must be a regular
//! file, open for reading and writing, and no other session's file. Even looking at it may wait for the server of a remote file
//! system, and so may closing it: the loop does neither.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FileType, OFlags};
use traceweir_format::spec::status::Status;
use traceweir_session::{Error, Result};
use traceweir_transport::socket::Janitor;

use crate::error::Refusal;

/// Which file: device and inode.
type FileKey = (u64, u64);

/// Descriptors that came with a request; those that nobody takes are for the janitor.
#[derive(Debug)]
pub(crate) struct Passed {
    descriptors: Vec<OwnedFd>,
    janitor: Janitor,
}

impl Passed {
    /// What came.
    pub(crate) fn new(descriptors: Vec<OwnedFd>, janitor: &Janitor) -> Self {
        Self { descriptors, janitor: janitor.clone() }
    }

    /// Whether as many came as files are named: one or none.
    pub(crate) fn check(&self, named: bool) -> Result<(), Refusal> {
        let invalid = |why: &str| Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, why));
        match (named, self.descriptors.len()) {
            (true, 1) | (false, 0) => Ok(()),
            (true, 0) => invalid("a log file is named but none was passed along"),
            _ => invalid("more files were passed along than are named"),
        }
    }

    /// The file, empty, and the claim on it; nothing where none came. Takes its time.
    pub(crate) fn open(mut self, files: &Files) -> Result<(Option<File>, Option<Claim>)> {
        let Some(fd) = self.descriptors.pop() else { return Ok((None, None)) };
        let claim = files.claim(check(&fd)?)?;
        let file = File::from(fd);
        file.set_len(0).map_err(Error::File)?;
        Ok((Some(file), Some(claim)))
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        self.janitor.dispose(std::mem::take(&mut self.descriptors));
    }
}

/// The files that sessions write, or are about to write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files(Arc<Mutex<BTreeSet<FileKey>>>);

impl Files {
    fn claim(&self, key: FileKey) -> Result<Claim> {
        if !self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
            return Err(refused(Status::ERROR_BAD_PATHNAME, "the log file is in use by a session"));
        }
        Ok(Claim { files: self.clone(), key })
    }
}

/// A file that nobody else may write while this lives.
#[derive(Debug)]
pub(crate) struct Claim {
    files: Files,
    key: FileKey,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.files.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

fn check(fd: &OwnedFd) -> Result<FileKey> {
    let bad = |why| refused(Status::ERROR_BAD_PATHNAME, why);
    let invalid = |why| refused(Status::ERROR_INVALID_PARAMETER, why);
    let stat = rustix::fs::fstat(fd).map_err(|_| bad("the log file cannot be looked at"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(bad("the log file is not a regular file"));
    }
    let flags = rustix::fs::fcntl_getfl(fd).map_err(|_| bad("the log file cannot be looked at"))?;
    if flags & OFlags::RWMODE != OFlags::RDWR {
        return Err(invalid("the log file must be open for reading and writing"));
    }
    // Buffers are written at their place; with O_APPEND the kernel would put them elsewhere.
    if flags.contains(OFlags::APPEND) {
        return Err(invalid("the log file must not be open for appending"));
    }
    Ok((stat.st_dev, stat.st_ino))
}

fn refused(status: Status, why: &'static str) -> Error {
    Error::Properties { status, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    fn passed(files: Vec<OwnedFd>) -> Passed {
        Passed::new(files, &Janitor::new())
    }

    fn status(named: bool, files: Vec<OwnedFd>) -> Status {
        let passed = passed(files);
        let checked = passed.check(named).err().map(|refusal| refusal.status);
        let opened = || passed.open(&Files::default()).err().map(|e| e.status());
        checked.or_else(opened).unwrap_or(Status::ERROR_SUCCESS)
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
    fn two_names_of_one_file_are_one_file_and_only_what_is_claimed_is_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&a, "old").unwrap();
        std::fs::hard_link(&a, &b).unwrap();
        let files = Files::default();
        let open = |path| {
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            passed(vec![file.into()]).open(&files)
        };
        let first = open(&a).unwrap();
        std::fs::write(&a, "new").unwrap();
        assert_eq!(open(&b).unwrap_err().status(), Status::ERROR_BAD_PATHNAME, "in use");
        assert_eq!(std::fs::read(&a).unwrap(), b"new");
        drop(first);
        assert!(open(&b).is_ok(), "free again");
    }
}
