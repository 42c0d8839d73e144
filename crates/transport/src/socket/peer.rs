//! The identity of the other end of a connected socket, as the kernel stores it with the socket.
//!
//! ```text
//!   SO_PEERCRED     process id, user, group
//!   SO_PEERGROUPS   supplementary groups
//!   SO_PEERPIDFD    a descriptor of the process
//! ```
//!
//! The kernel fixed this identity when the connection was made; that of a listener, when it called
//! `listen`. Another process may have the process id by now, but the descriptor of the process
//! still refers to the peer.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::{MAX_GROUPS, Peer};
use crate::error::{Error, Result};

/// Option for the groups of the peer. The `libc` crate does not define it for all architectures.
const SO_PEERGROUPS: libc::c_int = 59;
/// Option for a descriptor of the peer's process (Linux 6.5).
const SO_PEERPIDFD: libc::c_int = 77;

/// Returns the credentials that the kernel stores with a connected socket. Uses `libc`, because the
/// type of `rustix` cannot hold a process id of 0, which a peer outside this process's namespace
/// has.
pub(super) fn peer_credentials(socket: &OwnedFd) -> Result<Peer> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `credentials` is a plain struct of the size passed along, and `length` a number; both
    // outlive the call.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(Error::system("SO_PEERCRED", std::io::Error::last_os_error()));
    }
    Ok(Peer { pid: credentials.pid.cast_unsigned(), uid: credentials.uid, gid: credentials.gid })
}

/// Returns a descriptor of the process that the kernel stores with a connected socket.
pub(super) fn peer_process(socket: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let mut pidfd: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `pidfd` is a number of the size passed along, and `length` a number; both outlive the
    // call.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut pidfd).cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    // SAFETY: the kernel has just created the descriptor, and no other code knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

/// Returns the supplementary groups that the kernel stores with a connected socket, sorted; `None`
/// if there are more than `MAX_GROUPS`, or if they cannot be read.
pub(super) fn peer_group_ids(socket: BorrowedFd<'_>) -> Option<Vec<u32>> {
    let mut groups = vec![0_u32; MAX_GROUPS];
    let mut length = libc::socklen_t::try_from(size_of_val(groups.as_slice())).ok()?;
    // SAFETY: `groups` has `length` bytes, and every bit pattern is a valid `u32`; `groups` and
    // `length` outlive the call.
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
