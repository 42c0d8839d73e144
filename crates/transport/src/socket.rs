//! Skeleton: connections with descriptors and peer identity.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use crate::error::Result;
use crate::message::Message;

/// Who is at the other end, as the kernel vouches for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id in this process's namespace.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A message with its request number and descriptors.
#[derive(Debug)]
pub struct Envelope {
    /// Number of the request; a reply carries that of its request; 0 where no reply is wanted.
    pub request: u32,
    /// What is said.
    pub message: Message,
    /// Descriptors that came with it, at most four.
    pub descriptors: Vec<OwnedFd>,
}

/// One end of a control connection (SOCK_SEQPACKET: a packet is a message).
#[derive(Debug)]
pub struct Connection {
    _private: (),
}

impl Connection {
    /// Connects to a socket, waiting at most so long.
    pub fn connect(path: &Path, within: Duration) -> Result<Self> {
        let _ = (path, within);
        todo!()
    }

    /// Takes a connected socket over.
    pub fn from_fd(socket: OwnedFd) -> Result<Self> {
        let _ = socket;
        todo!()
    }

    /// Two connected ends in this process, for tests.
    pub fn pair() -> Result<(Self, Self)> {
        todo!()
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> Peer {
        todo!()
    }

    /// Sends a message, waiting at most so long for room (zero: not at all; then `TimedOut`).
    pub fn send(&self, request: u32, message: &Message, descriptors: &[BorrowedFd<'_>], within: Duration) -> Result<()> {
        let _ = (request, message, descriptors, within);
        todo!()
    }

    /// Receives a message, waiting at most so long (zero: not at all). `None` when none came.
    pub fn receive(&self, within: Duration) -> Result<Option<Envelope>> {
        let _ = within;
        todo!()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        todo!()
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    _private: (),
}

impl Listener {
    /// Binds and listens; `mode` are the permission bits of the socket file. A stale socket (nobody listens) is replaced; a live one is
    /// an error with `EADDRINUSE`.
    pub fn bind(path: &Path, mode: u32) -> Result<Self> {
        let _ = (path, mode);
        todo!()
    }

    /// Takes a listening socket over (socket activation).
    pub fn from_fd(socket: OwnedFd) -> Result<Self> {
        let _ = socket;
        todo!()
    }

    /// The next waiting connection, if any.
    pub fn accept(&self) -> Result<Option<Connection>> {
        todo!()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        todo!()
    }
}
