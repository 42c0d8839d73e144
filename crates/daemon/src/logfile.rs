//! Log files as controllers pass them: already open, with the rights of whoever asked.
//!
//! ```text
//!   the loop:   Passed, how many ─▶ a thread of its own:   look at it ─▶ Claim, or in use ─▶ empty it ─▶ the session
//!                    └─ not wanted: the janitor                              └─ held with the session, free when dropped
//! ```
//!
//! For who asks, the daemon opens no file by name with its own rights, so it never writes where the caller could not; only for autologgers, which
//! nobody asks for, it does (`autologger/logs.rs`). What arrives is a descriptor; it must be a regular
//! file, open for reading and writing, and no other session's file. Behind the first file of a row comes the folder, in which the others are made with the rights
//! of who asked (`logfile/row.rs`). Even looking at a file may wait for the server of a remote file system, and so may closing it: the loop does neither.
//!
//! Room: the file system must have as much as the file may take, and the system's own (that of `/`) the reserve besides. So it is for the first file of a session,
//! for each further one of a row, and for one that an update names. What a file that is to be replaced takes now counts as free; it is emptied only when everything
//! else is settled. What a file system keeps back for root counts for root's sessions only, whoever the daemon is; the session keeps to that for as long as it
//! writes (`session/storage/room`).

mod row;

pub(crate) use row::next_file;

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FileType, OFlags};
use traceweir_format::spec::session::{
    EVENT_TRACE_FILE_MODE_APPEND, EVENT_TRACE_FILE_MODE_NEWFILE, EVENT_TRACE_USE_KBYTES_FOR_SIZE,
};
use traceweir_format::spec::status::Status;
use traceweir_session::{Error, Result};
use traceweir_transport::message::SessionConfig;
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

    /// Whether nothing came.
    pub(crate) fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// The descriptor, where exactly one came.
    pub(crate) fn take_only(&mut self) -> Option<OwnedFd> {
        if self.descriptors.len() == 1 { self.descriptors.pop() } else { None }
    }

    /// Gives a descriptor back, to be closed with care.
    pub(crate) fn put_back(&mut self, descriptor: OwnedFd) {
        self.descriptors.push(descriptor);
    }

    /// Whether what came is what is named.
    pub(crate) fn check(&self, named: Named) -> Result<(), Refusal> {
        let invalid = |reason: &str| Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, reason));
        match (named, self.descriptors.len()) {
            (Named::Row, 2) | (Named::File, 1) | (Named::Nothing, 0) => Ok(()),
            (Named::File | Named::Row, 0) => invalid("a log file is named but none was passed along"),
            (Named::Row, 1) => invalid("the folder of a row of files was not passed along"),
            _ => invalid("more files were passed along than are named"),
        }
    }

    /// The file, emptied, and the claim on it, and the folder; nothing where none came. Takes its time.
    pub(crate) fn open(self, files: &Files, terms: &Terms) -> Result<Opened> {
        let opened = self.look(files, terms)?;
        if let Some(file) = opened.file.as_ref().filter(|_| !terms.keeps) {
            file.set_len(0).map_err(Error::File)?;
        }
        Ok(opened)
    }

    /// As [`open`](Self::open), and leaves the file as it is.
    pub(crate) fn look(mut self, files: &Files, terms: &Terms) -> Result<Opened> {
        let mut descriptors = std::mem::take(&mut self.descriptors).into_iter();
        let Some(fd) = descriptors.next() else { return Ok(Opened::default()) };
        let folder = descriptors.next();
        let rights = rustix::fs::fstat(&fd).map_or(0, |stat| stat.st_mode);
        if let Some(folder) = &folder {
            check_folder(folder)?;
        }
        let claim = files.claim(check(&fd)?)?;
        let file = File::from(fd);
        check_room(&file, terms, files.reserve())?;
        Ok(Opened { file: Some(file), claim: Some(claim), folder, rights })
    }
}

/// What a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// No file.
    Nothing,
    /// A file.
    File,
    /// A row of files.
    Row,
}

impl Named {
    /// What a session of this mode has where it has a file name, or none.
    pub(crate) fn by(mode: u32, has_name: bool) -> Self {
        match has_name {
            false => Self::Nothing,
            true if mode & EVENT_TRACE_FILE_MODE_NEWFILE != 0 => Self::Row,
            true => Self::File,
        }
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    /// What it holds is kept: the session goes on with it.
    keeps: bool,
    /// There must be room for so many bytes, and the reserve.
    most_bytes: Option<u64>,
    /// What the file system keeps back for root is there for it.
    is_roots: bool,
}

impl Terms {
    /// For the log of a session of this configuration that this user asked for.
    pub(crate) fn of_log(config: &SessionConfig, uid: u32) -> Self {
        let unit = if config.log_file_mode & EVENT_TRACE_USE_KBYTES_FOR_SIZE != 0 { 10 } else { 20 };
        let most_bytes = Some(u64::from(config.maximum_file_size) << unit);
        let keeps = config.log_file_mode & EVENT_TRACE_FILE_MODE_APPEND != 0;
        Self { keeps, most_bytes, is_roots: uid == 0 }
    }

    /// For a snapshot that this user asked for.
    pub(crate) fn of_snapshot(uid: u32) -> Self {
        Self { is_roots: uid == 0, ..Self::default() }
    }

    /// Whether what the file system keeps back for root is there for the file.
    pub(crate) fn has_roots_room(&self) -> bool {
        self.is_roots
    }
}

/// What came along, as a session takes it.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// The file.
    pub(crate) file: Option<File>,
    /// Nobody else writes it while this is there.
    pub(crate) claim: Option<Claim>,
    /// Where the further files of a row are made.
    pub(crate) folder: Option<OwnedFd>,
    /// Rights of the file, which those get too.
    pub(crate) rights: u32,
}

impl Drop for Passed {
    fn drop(&mut self) {
        self.janitor.dispose(std::mem::take(&mut self.descriptors));
    }
}

/// The files that sessions write, or are about to write, and what is kept free beside them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    claims: Arc<Mutex<BTreeSet<FileKey>>>,
    reserve: Arc<AtomicU64>,
}

impl Files {
    /// Keeps so many bytes free on the system's own file system.
    pub(crate) fn set_reserve(&self, bytes: u64) {
        self.reserve.store(bytes, Relaxed);
    }

    fn reserve(&self) -> u64 {
        self.reserve.load(Relaxed)
    }

    fn claim(&self, key: FileKey) -> Result<Claim> {
        if !self.claims.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
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
        self.files.claims.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

fn check(fd: &OwnedFd) -> Result<FileKey> {
    let bad = |reason| refused(Status::ERROR_BAD_PATHNAME, reason);
    let invalid = |reason| refused(Status::ERROR_INVALID_PARAMETER, reason);
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

fn check_folder(fd: &OwnedFd) -> Result<()> {
    let stat = rustix::fs::fstat(fd).ok();
    if stat.is_none_or(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Directory) {
        return Err(refused(Status::ERROR_BAD_PATHNAME, "what was passed as the folder of a row is none"));
    }
    Ok(())
}

/// Whether there is room for a file on these terms (0 bytes: no limit), and for the reserve where it would be the system's.
fn check_room(file: impl AsFd, terms: &Terms, reserve: u64) -> Result<()> {
    let Some(most) = terms.most_bytes else { return Ok(()) };
    let unknown = |_| refused(Status::ERROR_BAD_PATHNAME, "the log file cannot be looked at");
    let stat = rustix::fs::fstat(&file).map_err(unknown)?;
    let of_system = rustix::fs::stat("/").is_ok_and(|root| root.st_dev == stat.st_dev);
    let needed = most.saturating_add(if of_system { reserve } else { 0 });
    let system = rustix::fs::fstatvfs(&file).map_err(unknown)?;
    let taken = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    let blocks = if terms.is_roots { system.f_bfree } else { system.f_bavail };
    let free = blocks.saturating_mul(system.f_frsize).saturating_add(taken);
    if free < needed {
        let reason =
            "there is less free space than the log may take and the reserve (TRACEWEIR_RESERVE_MB) asks for";
        return Err(refused(Status::ERROR_DISK_FULL, reason));
    }
    Ok(())
}

fn refused(status: Status, reason: &'static str) -> Error {
    Error::Properties { status, why: reason }
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
        let checked = passed.check(Named::by(0, named)).err().map(|refusal| refusal.status);
        let opened = || passed.open(&Files::default(), &Terms::default()).err().map(|e| e.status());
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
            passed(vec![file.into()]).open(&files, &Terms::default())
        };
        let first = open(&a).unwrap();
        std::fs::write(&a, "new").unwrap();
        assert_eq!(open(&b).unwrap_err().status(), Status::ERROR_BAD_PATHNAME, "in use");
        assert_eq!(std::fs::read(&a).unwrap(), b"new");
        drop(first);
        assert!(open(&b).is_ok(), "free again");
    }

    #[test]
    fn a_row_comes_with_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "").unwrap();
        let file = || OwnedFd::from(OpenOptions::new().read(true).write(true).open(&path).unwrap());
        let folder = || OwnedFd::from(File::open(dir.path()).unwrap());
        let row = |files: Vec<OwnedFd>| {
            let passed = passed(files);
            let checked = passed.check(Named::by(8, true)).err().map(|refusal| refusal.status);
            let opened = || passed.open(&Files::default(), &Terms::default()).err().map(|e| e.status());
            checked.or_else(opened)
        };
        assert_eq!(row(vec![file(), folder()]), None);
        assert_eq!(row(vec![file()]), Some(Status::ERROR_INVALID_PARAMETER));
        assert_eq!(row(vec![file(), folder(), folder()]), Some(Status::ERROR_INVALID_PARAMETER));
        assert_eq!(row(vec![file(), file()]), Some(Status::ERROR_BAD_PATHNAME), "no folder");
        assert_eq!(row(vec![folder(), file()]), Some(Status::ERROR_BAD_PATHNAME), "no file");
    }

    #[test]
    fn a_file_that_is_refused_for_want_of_room_is_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.etl");
        std::fs::write(&path, "old").unwrap();
        let open = |files: &Files, config: &SessionConfig| {
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            let opened = passed(vec![file.into()]).open(files, &Terms::of_log(config, 1));
            opened.map(|_| ()).map_err(|e| e.status())
        };
        let limit =
            |mib| SessionConfig { maximum_file_size: mib, log_file_mode: 1, ..SessionConfig::default() };
        assert_eq!(open(&Files::default(), &limit(u32::MAX)), Err(Status::ERROR_DISK_FULL));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        let full = Files::default();
        full.set_reserve(u64::MAX / 2);
        let of_system = rustix::fs::stat("/").unwrap().st_dev == rustix::fs::stat(&path).unwrap().st_dev;
        let expected = if of_system { Err(Status::ERROR_DISK_FULL) } else { Ok(()) };
        assert_eq!(open(&full, &limit(0)), expected, "the reserve is for the system's own file system");
        let keeps = SessionConfig { log_file_mode: 4, ..limit(1) };
        assert_eq!(open(&Files::default(), &keeps), Ok(()));
        if of_system {
            assert_eq!(std::fs::read(&path).unwrap(), b"old", "to be continued");
        }
        assert_eq!(open(&Files::default(), &limit(1)), Ok(()));
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }
}
