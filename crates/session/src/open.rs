//! Opens log files and output files safely in folders that other users may write.
//!
//! ```text
//!   /home/me/logs          folders are entered one by one, each by its descriptor
//!    └──┬─┘└┬┘└┬─┘         a link is followed only if no user except root and this one can
//!       └───┴──┘           create or replace it
//!   folder (descriptor) ── name ──▶ missing:  created, exclusively, never through a link
//!                                   exists:   must be a plain file, not a link; in a folder that
//!                                             all users can write, it must belong to the user and
//!                                             have no other hard link
//! ```
//!
//! Opening a log file does not truncate it. Controllers open the file of a session with their own
//! privileges. A daemon opens further files of a sequence with the privileges of the user who
//! started the session, and files of autologgers with its own privileges. All follow these rules.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use traceweir_format::spec::status::Status;

use crate::error::{Error, Result, refuse};

/// Permission bits of a new log file, before the umask.
pub const LOG_FILE_RIGHTS: u32 = 0o640;
const WORLD_WRITABLE: u32 = 0o002;
const GROUP_OR_WORLD_WRITABLE: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// Retry limit for a file that appears and disappears between two calls.
const MAX_RETRIES: u32 = 8;

const FOREIGN_LINK_REASON: &str = "a symbolic link that other users can change is not followed";
const LINK_REASON: &str = "a log file is not written through a symbolic link";

/// Opens an absolute folder step by step, for this user. Fails with `LOOP` if other users can
/// change a link in the path.
pub fn open_folder(folder: &Path, user: u32) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = rustix::fs::openat(CWD, "/", flags, Mode::empty())?;
    for step in folder.components() {
        let name = match step {
            Component::Normal(name) => Path::new(name),
            Component::ParentDir => Path::new(".."),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => continue,
        };
        dir = match rustix::fs::openat(&dir, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            // The kernel reports a link with these errors.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let link = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                if FileType::from_raw_mode(link.st_mode) != FileType::Symlink {
                    return Err(Errno::NOTDIR);
                }
                if !is_protected_link(&link, &rustix::fs::fstat(&dir)?, user) {
                    return Err(Errno::LOOP);
                }
                rustix::fs::openat(&dir, name, flags, Mode::empty())?
            }
            other => other?,
        };
    }
    Ok(dir)
}

/// Returns whether only this user and root can create or replace a link: the folder is theirs, and
/// either no other user can write it, or it is sticky and the link is theirs too.
fn is_protected_link(link: &Stat, folder: &Stat, user: u32) -> bool {
    let has_trusted_owner = |stat: &Stat| stat.st_uid == user || stat.st_uid == 0;
    let is_writable_by_others = folder.st_mode & GROUP_OR_WORLD_WRITABLE != 0;
    has_trusted_owner(folder)
        && (!is_writable_by_others || (folder.st_mode & STICKY != 0 && has_trusted_owner(link)))
}

/// Opens a log file for reading and writing as this user, whose privileges the calling thread has.
/// If it does not exist, creates it with `rights`, limited to [`LOG_FILE_RIGHTS`], and returns
/// `true`.
pub fn open_log_file(folder: impl AsFd, name: &Path, user: u32, rights: u32) -> Result<(File, bool)> {
    let folder = folder.as_fd();
    // The file may appear or disappear between the two calls; retry a few times.
    for _ in 0..MAX_RETRIES {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mode = Mode::from_raw_mode(rights & LOG_FILE_RIGHTS);
        match rustix::fs::openat(folder, name, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Ok(file) => return Ok((file.into(), true)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(file_error(error)),
        }
        match open_existing(folder, name, flags, user) {
            Err(Error::File(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => return other.map(|file| (file, false)),
        }
    }
    Err(file_error(Errno::AGAIN))
}

/// Opens an existing log file.
fn open_existing(folder: BorrowedFd<'_>, name: &Path, flags: OFlags, user: u32) -> Result<File> {
    let before = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(file_error)?;
    match FileType::from_raw_mode(before.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => return refuse(Status::ERROR_ACCESS_DENIED, LINK_REASON),
        _ => return refuse(Status::ERROR_BAD_PATHNAME, "this is not a plain file"),
    }
    let file = match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::LOOP) => return refuse(Status::ERROR_ACCESS_DENIED, LINK_REASON),
        Err(error) => return Err(file_error(error)),
    };
    let stat = rustix::fs::fstat(&file).map_err(file_error)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return refuse(Status::ERROR_BAD_PATHNAME, "this is not a plain file");
    }
    let folder_stat = rustix::fs::fstat(folder).map_err(file_error)?;
    let is_foreign = stat.st_uid != user || stat.st_nlink != 1;
    if folder_stat.st_mode & WORLD_WRITABLE != 0 && is_foreign {
        let reason = "in a folder that everybody can write, a log file replaces only a file of your own";
        return refuse(Status::ERROR_ACCESS_DENIED, reason);
    }
    Ok(file.into())
}

/// Opens an output file for writing as this user; creates or truncates it. If `must_be_new` is set
/// and the file exists, fails with [`std::io::ErrorKind::AlreadyExists`].
///
/// Follows a symbolic link only if other users cannot replace it. In a folder that all users can
/// write, does not write a file of another user or with other hard links.
pub fn create_output(path: &Path, user: u32, must_be_new: bool) -> Result<File> {
    let path = std::path::absolute(path).map_err(Error::File)?;
    let Some((folder, Component::Normal(name))) = path.parent().zip(path.components().next_back()) else {
        return refuse(Status::ERROR_BAD_PATHNAME, "this is not the name of a file");
    };
    let folder = match open_folder(folder, user) {
        Err(Errno::LOOP) => return refuse(Status::ERROR_ACCESS_DENIED, FOREIGN_LINK_REASON),
        folder => folder.map_err(file_error)?,
    };
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    for _ in 0..MAX_RETRIES {
        let exclusive = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        match rustix::fs::openat(&folder, name, exclusive, Mode::from_raw_mode(0o666)) {
            Err(Errno::EXIST) if !must_be_new => {}
            file => return Ok(file.map_err(file_error)?.into()),
        }
        match open_existing_output(folder.as_fd(), Path::new(name), flags, user) {
            Err(Error::File(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => return other,
        }
    }
    Err(file_error(Errno::AGAIN))
}

/// Opens an existing output, and truncates it if it is a plain file.
fn open_existing_output(folder: BorrowedFd<'_>, name: &Path, flags: OFlags, user: u32) -> Result<File> {
    let existing_stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(file_error)?;
    let folder_stat = rustix::fs::fstat(folder).map_err(file_error)?;
    if FileType::from_raw_mode(existing_stat.st_mode) == FileType::Symlink {
        if !is_protected_link(&existing_stat, &folder_stat, user) {
            return refuse(Status::ERROR_ACCESS_DENIED, FOREIGN_LINK_REASON);
        }
        let flags = flags | OFlags::CREATE | OFlags::TRUNC;
        let file = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o666));
        return Ok(file.map_err(file_error)?.into());
    }
    let is_plain = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let check_owner = |stat: &Stat| {
        let is_foreign = stat.st_uid != user || is_plain(stat) && stat.st_nlink != 1;
        if folder_stat.st_mode & WORLD_WRITABLE == 0 || !is_foreign {
            return Ok(());
        }
        let reason = "in a folder that everybody can write, an output replaces only a file of your own";
        refuse(Status::ERROR_ACCESS_DENIED, reason)
    };
    // Checked before the open: opening a pipe of another user waits for that user.
    check_owner(&existing_stat)?;
    let file = match rustix::fs::openat(folder, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::LOOP) => return refuse(Status::ERROR_ACCESS_DENIED, FOREIGN_LINK_REASON),
        file => file.map_err(file_error)?,
    };
    let stat = rustix::fs::fstat(&file).map_err(file_error)?;
    check_owner(&stat)?;
    let is_plain = is_plain(&stat);
    let file = File::from(file);
    if is_plain {
        file.set_len(0).map_err(Error::File)?;
    }
    Ok(file)
}

/// Returns whether a path is a symbolic link. Fails for a link that other users could have created.
pub fn check_link(path: &Path, user: u32) -> Result<bool> {
    let path = std::path::absolute(path).map_err(Error::File)?;
    let Some((folder, Component::Normal(name))) = path.parent().zip(path.components().next_back()) else {
        return Ok(false);
    };
    let folder = match open_folder(folder, user) {
        Err(Errno::LOOP) => return refuse(Status::ERROR_ACCESS_DENIED, FOREIGN_LINK_REASON),
        folder => folder.map_err(file_error)?,
    };
    let existing_stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(file_error)?;
    if FileType::from_raw_mode(existing_stat.st_mode) != FileType::Symlink {
        return Ok(false);
    }
    if !is_protected_link(&existing_stat, &rustix::fs::fstat(&folder).map_err(file_error)?, user) {
        return refuse(Status::ERROR_ACCESS_DENIED, FOREIGN_LINK_REASON);
    }
    Ok(true)
}

fn file_error(error: Errno) -> Error {
    Error::File(error.into())
}
