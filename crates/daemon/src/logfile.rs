//! Log files that controllers pass to the daemon: already open, with the rights of the caller.
//!
//! ```text
//!   event loop               separate thread
//!   count descriptors ─────▶ check file ─▶ claim it, if free ─▶ check space ─▶ empty it ─▶ session
//!     └─ not needed: the janitor closes them    └─ the session holds the claim; drop releases it
//! ```
//!
//! The daemon opens no file by name for a caller, so it never writes where the caller could not. It
//! opens only the files of autologgers by name, because no caller requests those
//! (`autologger/logs.rs`). A caller passes a descriptor of a regular file that is open for reading
//! and writing and is not the file of another session. For a file sequence, the descriptor of the
//! folder follows the descriptor of the first file; the daemon creates the other files in that
//! folder with the rights of the caller (`logfile/sequence.rs`). Even inspecting a file may wait
//! for the server of a remote file system, and so may closing it: the event loop does neither.
//!
//! Disk space: the file system must have as much space as the maximum size of the file, and the
//! file system of `/` must have the reserve in addition. This applies to the first file of a
//! session, to each further file of a sequence, and to a file named by an update. Space that the
//! file already occupies counts as free. A file that is to be replaced is emptied only after all
//! checks. Blocks that a file system reserves for root count only for sessions of root, whichever
//! user runs the daemon; the session observes this while it writes (`session/storage/room`).

mod sequence;

pub(crate) use sequence::next_file;

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

/// Identifies a file: device and inode.
type ClaimKey = (u64, u64);

/// Descriptors that came with a request; the janitor closes those that are not used.
#[derive(Debug)]
pub(crate) struct PassedDescriptors {
    descriptors: Vec<OwnedFd>,
    janitor: Janitor,
}

impl PassedDescriptors {
    pub(crate) fn new(descriptors: Vec<OwnedFd>, janitor: &Janitor) -> Self {
        Self { descriptors, janitor: janitor.clone() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// Removes and returns the descriptor if there is exactly one.
    pub(crate) fn take_only(&mut self) -> Option<OwnedFd> {
        if self.descriptors.len() == 1 { self.descriptors.pop() } else { None }
    }

    /// Puts a descriptor back, so that the janitor closes it.
    pub(crate) fn put_back(&mut self, descriptor: OwnedFd) {
        self.descriptors.push(descriptor);
    }

    /// Checks that the descriptors match the files that the request names.
    pub(crate) fn check(&self, named: NamedFiles) -> Result<(), Refusal> {
        let refuse = |reason: &str| Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, reason));
        match (named, self.descriptors.len()) {
            (NamedFiles::Sequence, 2) | (NamedFiles::File, 1) | (NamedFiles::Nothing, 0) => Ok(()),
            (NamedFiles::File | NamedFiles::Sequence, 0) => {
                refuse("a log file is named but none was passed along")
            }
            (NamedFiles::Sequence, 1) => refuse("the folder of the file sequence was not passed along"),
            _ => refuse("more files were passed along than are named"),
        }
    }

    /// Checks and claims the passed file, and empties it unless the session appends to it. The
    /// result is empty if the request has no descriptor. May block.
    pub(crate) fn open(self, files: &ClaimedFiles, terms: &FileTerms) -> Result<OpenedFiles> {
        let opened = self.check_file(files, terms)?;
        if let Some(file) = opened.file.as_ref().filter(|_| !terms.appends) {
            file.set_len(0).map_err(Error::File)?;
        }
        Ok(opened)
    }

    /// Like [`open`](Self::open), but does not empty the file.
    pub(crate) fn check_file(mut self, files: &ClaimedFiles, terms: &FileTerms) -> Result<OpenedFiles> {
        let mut descriptors = std::mem::take(&mut self.descriptors).into_iter();
        let Some(fd) = descriptors.next() else { return Ok(OpenedFiles::default()) };
        let folder = descriptors.next();
        let rights = rustix::fs::fstat(&fd).map_or(0, |stat| stat.st_mode);
        if let Some(folder) = &folder {
            check_folder(folder)?;
        }
        let claim = files.claim(check_descriptor(&fd)?)?;
        let file = File::from(fd);
        check_free_space(&file, terms, files.reserve())?;
        Ok(OpenedFiles { file: Some(file), claim: Some(claim), folder, rights })
    }
}

/// The files that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedFiles {
    Nothing,
    File,
    /// The first file of a sequence, and the folder of the sequence.
    Sequence,
}

impl NamedFiles {
    /// Returns the files that a request with or without a file name needs for a session of this
    /// mode.
    pub(crate) fn from_mode(mode: u32, has_name: bool) -> Self {
        match has_name {
            false => Self::Nothing,
            true if mode & EVENT_TRACE_FILE_MODE_NEWFILE != 0 => Self::Sequence,
            true => Self::File,
        }
    }
}

/// The conditions for opening a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileTerms {
    /// Whether the session continues the file instead of emptying it.
    appends: bool,
    /// The maximum size of the file. This space must be free in addition to the reserve; `None`:
    /// free space is not checked at all.
    max_bytes: Option<u64>,
    /// Whether the file may use the blocks that the file system reserves for root.
    is_for_root: bool,
}

impl FileTerms {
    /// Returns the terms for the log of a session with this configuration, requested by this user.
    pub(crate) fn for_log(config: &SessionConfig, uid: u32) -> Self {
        let unit_shift = if config.log_file_mode & EVENT_TRACE_USE_KBYTES_FOR_SIZE != 0 { 10 } else { 20 };
        let max_bytes = Some(u64::from(config.maximum_file_size) << unit_shift);
        let appends = config.log_file_mode & EVENT_TRACE_FILE_MODE_APPEND != 0;
        Self { appends, max_bytes, is_for_root: uid == 0 }
    }

    /// Returns the terms for a snapshot requested by this user.
    pub(crate) fn for_snapshot(uid: u32) -> Self {
        Self { is_for_root: uid == 0, ..Self::default() }
    }

    pub(crate) fn may_use_reserved_blocks(&self) -> bool {
        self.is_for_root
    }
}

#[derive(Debug, Default)]
pub(crate) struct OpenedFiles {
    pub(crate) file: Option<File>,
    /// Keeps other sessions from writing the file.
    pub(crate) claim: Option<FileClaim>,
    /// The folder in which further files of a sequence are created.
    pub(crate) folder: Option<OwnedFd>,
    /// The mode of the file, which further files get too.
    pub(crate) rights: u32,
}

impl Drop for PassedDescriptors {
    fn drop(&mut self) {
        self.janitor.dispose(std::mem::take(&mut self.descriptors));
    }
}

/// The files that sessions write or are about to write, and the disk space reserve.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimedFiles {
    claims: Arc<Mutex<BTreeSet<ClaimKey>>>,
    reserve: Arc<AtomicU64>,
}

impl ClaimedFiles {
    /// Sets the reserve: the bytes that a log file on the file system of `/` must leave free.
    pub(crate) fn set_reserve(&self, bytes: u64) {
        self.reserve.store(bytes, Relaxed);
    }

    fn reserve(&self) -> u64 {
        self.reserve.load(Relaxed)
    }

    fn claim(&self, key: ClaimKey) -> Result<FileClaim> {
        if !self.claims.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
            return Err(properties_error(Status::ERROR_BAD_PATHNAME, "the log file is in use by a session"));
        }
        Ok(FileClaim { files: self.clone(), key })
    }
}

/// Reserves a file for one session until the claim is dropped.
#[derive(Debug)]
pub(crate) struct FileClaim {
    files: ClaimedFiles,
    key: ClaimKey,
}

impl Drop for FileClaim {
    fn drop(&mut self) {
        self.files.claims.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

fn check_descriptor(fd: &OwnedFd) -> Result<ClaimKey> {
    let bad_path = |reason| properties_error(Status::ERROR_BAD_PATHNAME, reason);
    let invalid_parameter = |reason| properties_error(Status::ERROR_INVALID_PARAMETER, reason);
    let stat = rustix::fs::fstat(fd).map_err(|_| bad_path("the log file cannot be inspected"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(bad_path("the log file is not a regular file"));
    }
    let flags = rustix::fs::fcntl_getfl(fd).map_err(|_| bad_path("the log file cannot be inspected"))?;
    if flags & OFlags::RWMODE != OFlags::RDWR {
        return Err(invalid_parameter("the log file must be open for reading and writing"));
    }
    // Buffers are written at fixed offsets; with O_APPEND the kernel would put them elsewhere.
    if flags.contains(OFlags::APPEND) {
        return Err(invalid_parameter("the log file must not be open for appending"));
    }
    Ok((stat.st_dev, stat.st_ino))
}

fn check_folder(fd: &OwnedFd) -> Result<()> {
    let stat = rustix::fs::fstat(fd).ok();
    if stat.is_none_or(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Directory) {
        return Err(properties_error(
            Status::ERROR_BAD_PATHNAME,
            "what was passed as the folder of the file sequence is not a folder",
        ));
    }
    Ok(())
}

/// Checks that there is space for the maximum size of a file and, on the file system of `/`, for
/// the reserve. A maximum of 0 means that the size is not limited; then only the reserve counts.
fn check_free_space(file: impl AsFd, terms: &FileTerms, reserve: u64) -> Result<()> {
    let Some(max_bytes) = terms.max_bytes else { return Ok(()) };
    let inspect_error = |_| properties_error(Status::ERROR_BAD_PATHNAME, "the log file cannot be inspected");
    let stat = rustix::fs::fstat(&file).map_err(inspect_error)?;
    let is_on_root = rustix::fs::stat("/").is_ok_and(|root| root.st_dev == stat.st_dev);
    let needed = max_bytes.saturating_add(if is_on_root { reserve } else { 0 });
    let file_system = rustix::fs::fstatvfs(&file).map_err(inspect_error)?;
    // `st_blocks` counts units of 512 bytes.
    let file_bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    let blocks = if terms.is_for_root { file_system.f_bfree } else { file_system.f_bavail };
    let free = blocks.saturating_mul(file_system.f_frsize).saturating_add(file_bytes);
    if free < needed {
        let reason = "there is less free space than the maximum size of the log plus the reserve (TRACEWEIR_RESERVE_MB)";
        return Err(properties_error(Status::ERROR_DISK_FULL, reason));
    }
    Ok(())
}

fn properties_error(status: Status, reason: &'static str) -> Error {
    Error::Properties { status, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_SEQUENTIAL;

    fn pass_descriptors(files: Vec<OwnedFd>) -> PassedDescriptors {
        PassedDescriptors::new(files, &Janitor::new())
    }

    fn open_status(named: bool, files: Vec<OwnedFd>) -> Status {
        let passed = pass_descriptors(files);
        let checked = passed.check(NamedFiles::from_mode(0, named)).err().map(|refusal| refusal.status);
        let opened =
            || passed.open(&ClaimedFiles::default(), &FileTerms::default()).err().map(|e| e.status());
        checked.or_else(opened).unwrap_or(Status::ERROR_SUCCESS)
    }

    #[test]
    fn only_regular_files_open_for_reading_and_writing_are_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.etl");
        let open = |options: &mut OpenOptions| OwnedFd::from(options.open(&path).unwrap());
        let read_write = || open(OpenOptions::new().read(true).write(true).create(true).truncate(false));
        assert_eq!(open_status(true, vec![read_write()]), Status::ERROR_SUCCESS);
        assert_eq!(open_status(false, vec![]), Status::ERROR_SUCCESS);
        assert_eq!(open_status(true, vec![]), Status::ERROR_INVALID_PARAMETER);
        assert_eq!(open_status(false, vec![read_write()]), Status::ERROR_INVALID_PARAMETER);
        assert_eq!(open_status(true, vec![read_write(), read_write()]), Status::ERROR_INVALID_PARAMETER);
        assert_eq!(
            open_status(true, vec![open(OpenOptions::new().read(true))]),
            Status::ERROR_INVALID_PARAMETER
        );
        assert_eq!(
            open_status(true, vec![open(OpenOptions::new().write(true))]),
            Status::ERROR_INVALID_PARAMETER
        );
        let append = open(OpenOptions::new().read(true).append(true));
        assert_eq!(open_status(true, vec![append]), Status::ERROR_INVALID_PARAMETER);
        let folder = OwnedFd::from(File::open(dir.path()).unwrap());
        assert_eq!(open_status(true, vec![folder]), Status::ERROR_BAD_PATHNAME);
        let device = OwnedFd::from(OpenOptions::new().read(true).write(true).open("/dev/null").unwrap());
        assert_eq!(open_status(true, vec![device]), Status::ERROR_BAD_PATHNAME);
    }

    #[test]
    fn hard_links_are_one_file_and_only_a_claimed_file_is_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&a, "old").unwrap();
        std::fs::hard_link(&a, &b).unwrap();
        let files = ClaimedFiles::default();
        let open = |path| {
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            pass_descriptors(vec![file.into()]).open(&files, &FileTerms::default())
        };
        let first = open(&a).unwrap();
        std::fs::write(&a, "new").unwrap();
        assert_eq!(open(&b).unwrap_err().status(), Status::ERROR_BAD_PATHNAME, "the file is in use");
        assert_eq!(std::fs::read(&a).unwrap(), b"new");
        drop(first);
        assert!(open(&b).is_ok(), "the file is free again");
    }

    #[test]
    fn file_sequence_needs_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "").unwrap();
        let file = || OwnedFd::from(OpenOptions::new().read(true).write(true).open(&path).unwrap());
        let folder = || OwnedFd::from(File::open(dir.path()).unwrap());
        let open_sequence = |files: Vec<OwnedFd>| {
            let passed = pass_descriptors(files);
            let checked = passed
                .check(NamedFiles::from_mode(EVENT_TRACE_FILE_MODE_NEWFILE, true))
                .err()
                .map(|refusal| refusal.status);
            let opened =
                || passed.open(&ClaimedFiles::default(), &FileTerms::default()).err().map(|e| e.status());
            checked.or_else(opened)
        };
        assert_eq!(open_sequence(vec![file(), folder()]), None);
        assert_eq!(open_sequence(vec![file()]), Some(Status::ERROR_INVALID_PARAMETER));
        assert_eq!(open_sequence(vec![file(), folder(), folder()]), Some(Status::ERROR_INVALID_PARAMETER));
        assert_eq!(
            open_sequence(vec![file(), file()]),
            Some(Status::ERROR_BAD_PATHNAME),
            "the second descriptor is not a folder"
        );
        assert_eq!(
            open_sequence(vec![folder(), file()]),
            Some(Status::ERROR_BAD_PATHNAME),
            "the first descriptor is not a file"
        );
    }

    #[test]
    fn file_refused_for_lack_of_space_is_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.etl");
        std::fs::write(&path, "old").unwrap();
        let open = |files: &ClaimedFiles, config: &SessionConfig| {
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            let opened = pass_descriptors(vec![file.into()]).open(files, &FileTerms::for_log(config, 1));
            opened.map(|_| ()).map_err(|e| e.status())
        };
        let limit = |mib| SessionConfig {
            maximum_file_size: mib,
            log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
            ..SessionConfig::default()
        };
        assert_eq!(open(&ClaimedFiles::default(), &limit(u32::MAX)), Err(Status::ERROR_DISK_FULL));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        let full = ClaimedFiles::default();
        full.set_reserve(u64::MAX / 2);
        let is_on_root = rustix::fs::stat("/").unwrap().st_dev == rustix::fs::stat(&path).unwrap().st_dev;
        let expected = if is_on_root { Err(Status::ERROR_DISK_FULL) } else { Ok(()) };
        assert_eq!(open(&full, &limit(0)), expected, "the reserve applies to the file system of / only");
        let appends = SessionConfig { log_file_mode: EVENT_TRACE_FILE_MODE_APPEND, ..limit(1) };
        assert_eq!(open(&ClaimedFiles::default(), &appends), Ok(()));
        // On other file systems, the open with `limit(0)` succeeded and emptied the file.
        if is_on_root {
            assert_eq!(std::fs::read(&path).unwrap(), b"old", "the session continues the file");
        }
        assert_eq!(open(&ClaimedFiles::default(), &limit(1)), Ok(()));
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }
}
