//! Who is at the other end of a connected socket, as the kernel keeps it with the socket.
//!
//! ```text
//!   SO_PEERCRED   process id, user, group         SO_PEERGROUPS   the other groups         SO_PEERPIDFD   the process itself
//! ```
//!
//! All of it was fixed when the connection was made: a process id may be another's by now, a descriptor of a process never is.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::{MAX_GROUPS, Peer};
use crate::error::{Error, Result};

/// The same number on all architectures that this runs on; the C library's crate does not have it for all.
const SO_PEERGROUPS: libc::c_int = 59;
/// The same, for a descriptor of the peer's process (Linux 6.5).
const SO_PEERPIDFD: libc::c_int = 77;

/// The credentials that the kernel keeps with a connected socket. The system call is made here, as a process id of 0 (a peer outside this
/// process's namespace) has no place in `rustix`'s type.
pub(super) fn peer_of(socket: &OwnedFd) -> Result<Peer> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `found` is a plain struct of the size passed along, and `length` a number; both outlive the call.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(Error::system("SO_PEERCRED", std::io::Error::last_os_error()));
    }
    Ok(Peer { pid: found.pid.cast_unsigned(), uid: found.uid, gid: found.gid })
}

/// A descriptor of the process that the kernel keeps with a connected socket.
pub(super) fn process_of(socket: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let mut found: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `found` is a number of the size passed along, and `length` a number; both outlive the call.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    // SAFETY: the system has just made it for us, and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(found) })
}

/// The groups that the kernel keeps with a connected socket.
pub(super) fn groups_of(socket: BorrowedFd<'_>) -> Option<Vec<u32>> {
    let mut groups = vec![0_u32; MAX_GROUPS];
    let mut length = libc::socklen_t::try_from(size_of_val(groups.as_slice())).ok()?;
    // SAFETY: `groups` has room for `length` bytes, and any bytes make numbers; both outlive the call.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return None;
    }
    groups.truncate(length as usize / size_of::<u32>());
    groups.sort_unstable();
    groups.shrink_to_fit();
    Some(groups)
}
