//! Creates and connects to socket files with paths of any length. A path appears only when its
//! socket accepts connections.
//!
//! ```text
//!   bind     .1f3a…  (a random name in the same folder)
//!   chmod    .1f3a…  mode
//!   listen
//!   rename   .1f3a… → control.sock       unless that name is taken:
//!                                           a listening socket, another file → EADDRINUSE
//!                                           a socket that refuses → stale: replaced
//! ```
//!
//! An address holds 107 bytes. A longer path is reached through its opened folder as
//! `/proc/thread-self/fd/N` (not `/proc/self`, as a thread may have its own descriptor table).

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, sockopt};

use super::{SOCKET_FLAGS, WaitDeadline, rights};
use crate::error::{Error, Result};
use crate::random::random;

/// Number of connections that may wait to be accepted. Even a large machine rarely starts more
/// processes at once.
pub const BACKLOG: i32 = 1024;

/// A socket address, and the open folder that keeps it valid.
struct Address {
    address: SocketAddrUnix,
    _folder: Option<OwnedFd>,
}

impl Address {
    fn new(path: &Path) -> Result<Self> {
        match SocketAddrUnix::new(path) {
            Ok(address) => Ok(Self { address, _folder: None }),
            Err(Errno::NAMETOOLONG) => Self::through_folder(path),
            Err(e) => Err(Error::system("naming a socket", e)),
        }
    }

    fn through_folder(path: &Path) -> Result<Self> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::Invalid("the path of a socket has no file name"));
        };
        let folder =
            rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|e| Error::system("opening the folder of a socket", e))?;
        let short_path = PathBuf::from(format!("/proc/thread-self/fd/{}", folder.as_raw_fd())).join(name);
        let address = SocketAddrUnix::new(short_path).map_err(|e| Error::system("naming a socket", e))?;
        Ok(Self { address, _folder: Some(folder) })
    }
}

fn create_socket(flags: SocketFlags) -> Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|e| Error::system("socket", e))
}

/// Connects a new socket to the listener at a path. If the socket must not take descriptors, it
/// refuses them already before it connects.
pub(super) fn connect(path: &Path, allows_descriptors: bool, deadline: WaitDeadline) -> Result<OwnedFd> {
    let address = Address::new(path)?;
    // A non-blocking connect fails while the listener's queue is full, and nothing signals when the
    // queue has space again. A blocking connect is limited by the send timeout.
    let socket = create_socket(SocketFlags::CLOEXEC)?;
    if !allows_descriptors {
        rights::set_passing(&socket, false)?;
    }
    loop {
        let remaining = deadline.remaining();
        // A send timeout of zero would mean no limit, so the last attempt does not block.
        match remaining {
            Some(Duration::ZERO) => rustix::io::ioctl_fionbio(&socket, true),
            _ => sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, remaining),
        }
        .map_err(|e| Error::system("limiting the time to connect", e))?;
        match rustix::net::connect(&socket, &address.address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(Error::TimedOut),
            Err(e) => return Err(Error::system("connecting", e)),
        }
    }
}

/// Creates a socket that listens at a path.
pub(super) fn listen(path: &Path, mode: u32) -> Result<OwnedFd> {
    let socket = create_socket(SOCKET_FLAGS)?;
    rights::set_passing(&socket, false)?;
    let unready_path = path.with_file_name(format!(".{:016x}", random()));
    let address = Address::new(&unready_path)?;
    rustix::net::bind(&socket, &address.address).map_err(|e| Error::system("binding a socket", e))?;
    let result = publish_socket(&socket, &unready_path, path, mode);
    if result.is_err() {
        // The error of `publish_socket` is reported, not the one of the removal.
        let _ = std::fs::remove_file(&unready_path);
    }
    result.map(|()| socket)
}

fn publish_socket(socket: &OwnedFd, unready_path: &Path, path: &Path, mode: u32) -> Result<()> {
    rustix::fs::chmodat(CWD, unready_path, Mode::from_raw_mode(mode), AtFlags::empty())
        .map_err(|e| Error::system("setting the permissions of a socket", e))?;
    rustix::net::listen(socket, BACKLOG).map_err(|e| Error::system("listening", e))?;
    match rustix::fs::renameat_with(CWD, unready_path, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(()),
        // EINVAL: the file system does not support RENAME_NOREPLACE.
        Err(Errno::EXIST | Errno::INVAL) => {}
        Err(e) => return Err(Error::system("placing a socket", e)),
    }
    if !is_free_or_stale(path)? {
        return Err(Error::system("binding a socket", Errno::ADDRINUSE));
    }
    rustix::fs::rename(unready_path, path).map_err(|e| Error::system("placing a socket", e))
}

/// Returns whether no file has this path, or the file is a socket that no process listens on.
fn is_free_or_stale(path: &Path) -> Result<bool> {
    match rustix::fs::lstat(path) {
        Err(Errno::NOENT) => return Ok(true),
        Err(e) => return Err(Error::system("inspecting a socket", e)),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Socket => return Ok(false),
        Ok(_) => {}
    }
    // A refused connection means that no process listens; ENOENT, that the file was removed
    // meanwhile. Other errors mean that the socket is in use: its queue is full, or it is of
    // another type.
    let address = Address::new(path)?;
    let result = rustix::net::connect(&create_socket(SOCKET_FLAGS)?, &address.address);
    Ok(matches!(result, Err(Errno::CONNREFUSED | Errno::NOENT)))
}
