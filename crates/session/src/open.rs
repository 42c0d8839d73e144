//! Opening a log file: the way to its folder, and its name in there.
//!
//! ```text
//!   /home/me/logs          folders are entered one by one, each by its descriptor
//!    └──┬─┘└┬┘└┬─┘         a link is followed only where it is root's or the user's and nobody else can put another in its place
//!       └───┴──┘
//!   folder (descriptor) ── name ──▶ not there:  created, exclusively, never through a link
//!                                   there:      a plain file, not a link; where everybody can write the folder, a file of the user's own with one name
//! ```
//!
//! Nothing is emptied here. Controllers open the file of a session like this, with their own rights, and a daemon the further files of a row, with the rights
//! of who started it, and those of autologgers, with its own: one rule for all.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use traceweir_format::spec::status::Status;

use crate::error::{Error, Result};

/// Rights of a new log file, less the umask.
pub const LOG_FILE_RIGHTS: u32 = 0o640;
const ALL_WRITE: u32 = 0o002;
const ANY_OTHER_WRITES: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// Looks at a file that comes and goes meanwhile.
const ROUNDS: u32 = 8;

const LINK: &str = "a log file is not written through a symbolic link";

/// Enters an absolute folder step by step, for this user; `LOOP` where a link on the way is one that others can change.
pub fn enter(folder: &Path, user: u32) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = rustix::fs::openat(CWD, "/", flags, Mode::empty())?;
    for step in folder.components() {
        let name = match step {
            Component::Normal(name) => Path::new(name),
            Component::ParentDir => Path::new(".."),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => continue,
        };
        dir = match rustix::fs::openat(&dir, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            // How a link is refused when a folder is wanted.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let link = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                if FileType::from_raw_mode(link.st_mode) != FileType::Symlink {
                    return Err(Errno::NOTDIR);
                }
                if !is_own_link(&link, &rustix::fs::fstat(&dir)?, user) {
                    return Err(Errno::LOOP);
                }
                rustix::fs::openat(&dir, name, flags, Mode::empty())?
            }
            other => other?,
        };
    }
    Ok(dir)
}

/// Whether a link was put where it is by this user or by root, and nobody else can put another one in its place.
fn is_own_link(link: &Stat, folder: &Stat, user: u32) -> bool {
    let own = |stat: &Stat| stat.st_uid == user || stat.st_uid == 0;
    let others_write = folder.st_mode & ANY_OTHER_WRITES != 0;
    own(folder) && (!others_write || (folder.st_mode & STICKY != 0 && own(link)))
}

/// Opens a log file for reading and writing as this user, whose rights the calling thread has; creates it with these rights where it is not there, and then
/// says `true`.
pub fn open_log_file(folder: impl AsFd, name: &Path, user: u32, rights: u32) -> Result<(File, bool)> {
    let folder = folder.as_fd();
    // Between the two looks the file may come or go; a few rounds settle it.
    for _ in 0..ROUNDS {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mode = Mode::from_raw_mode(rights & LOG_FILE_RIGHTS);
        match rustix::fs::openat(folder, name, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Ok(file) => return Ok((file.into(), true)),
            Err(Errno::EXIST) => {}
            Err(e) => return Err(failed(e)),
        }
        match existing(folder, name, flags, user) {
            Err(Error::File(e)) if e.kind() == std::io::ErrorKind::NotFound => {}
            other => return other.map(|file| (file, false)),
        }
    }
    Err(failed(Errno::AGAIN))
}

/// Opens a file that is there already.
fn existing(folder: BorrowedFd<'_>, name: &Path, flags: OFlags, user: u32) -> Result<File> {
    let before = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    match FileType::from_raw_mode(before.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => return refuse(Status::ERROR_ACCESS_DENIED, LINK),
        _ => return refuse(Status::ERROR_BAD_PATHNAME, "this is no plain file"),
    }
    let file = match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::LOOP) => return refuse(Status::ERROR_ACCESS_DENIED, LINK),
        Err(e) => return Err(failed(e)),
    };
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return refuse(Status::ERROR_BAD_PATHNAME, "this is no plain file");
    }
    let around = rustix::fs::fstat(folder).map_err(failed)?;
    let foreign = stat.st_uid != user || stat.st_nlink != 1;
    if around.st_mode & ALL_WRITE != 0 && foreign {
        let why = "in a folder that everybody can write, a log file replaces only a file of your own";
        return refuse(Status::ERROR_ACCESS_DENIED, why);
    }
    Ok(file.into())
}

fn failed(error: Errno) -> Error {
    Error::File(error.into())
}

fn refuse<T>(status: Status, why: &'static str) -> Result<T> {
    Err(Error::Properties { status, why })
}
