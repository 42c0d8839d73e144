//! Controls whether a socket takes descriptors (SCM_RIGHTS) at all: `SO_PASSRIGHTS`, Linux 6.16.
//!
//! ```text
//!   listener: no ──connect──▶ the connection, before it is accepted: no
//!                                 │     a sender gets EPERM, nothing arrives
//!                                 └─ accepted, and the peer is one that sends descriptors: yes
//! ```
//!
//! The last close of a received descriptor may wait for a network or file server that the sender
//! controls. So it is best not to receive descriptors from untrusted peers. Before Linux 6.16,
//! every process that can connect can send descriptors; the [`Janitor`](super::Janitor) closes
//! them.

use std::os::fd::{AsFd, AsRawFd};

use crate::error::{Error, Result};

/// `SO_PASSRIGHTS` on architectures with the common option numbers.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Sets whether a socket takes descriptors. Returns `false` if the kernel lacks the option or a
/// sandbox refuses it: the socket then takes descriptors.
pub(super) fn set_passing(socket: impl AsFd, is_passing: bool) -> Result<bool> {
    let value = libc::c_int::from(is_passing);
    // SAFETY: `value` is a number of the size passed along, and outlives the call.
    let status = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if status == 0 {
        return Ok(true);
    }
    let e = std::io::Error::last_os_error();
    match e.raw_os_error() {
        // EPERM: some sandboxes refuse options that they do not know.
        Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP | libc::EINVAL | libc::EPERM) => Ok(false),
        _ => Err(Error::system("SO_PASSRIGHTS", e)),
    }
}
