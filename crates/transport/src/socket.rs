//! Control connections: messages, descriptors and the identity of the other end over a Unix socket.
//!
//! ```text
//!   Listener ──accept──▶ Connection ◀── SOCK_SEQPACKET ──▶ Connection
//!      │                     │          one packet = one message + up to 4 descriptors
//!      │                     └─ peer: pid, uid, gid from SO_PEERCRED, fixed at the connect
//!      └─ a socket file, which is stale once the listening process has ended
//! ```
//!
//! 1. No call waits longer than its timeout, whatever the other end does; zero means not at all.
//! 2. Received descriptors belong to their envelope and are closed with it. A packet that was
//!    truncated, has too many descriptors, or is not a message, is an error; its descriptors are
//!    closed. Closing may wait, so a process that receives from untrusted peers leaves the closing
//!    to a [`Janitor`].
//! 3. A socket file appears under its name only when the socket listens and the permissions are
//!    set: it is bound under another name, prepared, and renamed. So a client whose connection is
//!    refused knows that the socket is stale.
//! 4. An accepted connection takes no descriptors until [`Connection::allow_descriptors`], unless
//!    [`Listener::allow_descriptors`] was called. Refusing descriptors needs Linux 6.16; with older
//!    kernels, peers can send them at any time.
//! 5. End of file, `EPIPE` and `ECONNRESET` are all [`Error::Closed`]. No signal is raised.
//!    Messages that the other end sent before are received first.
//! 6. If the program shares the descriptor table with this library, each use of a socket is
//!    preceded by a check that its number still refers to the socket ([`GuardedDescriptor`]). If it
//!    does not, the use fails with [`Error::Closed`], and the number is neither used nor closed.
//!
//! Any number of threads may send; one at a time may receive. This module does not decide which end
//! may send which message.

mod address;
mod held;
mod janitor;
mod peer;
mod rights;

#[cfg(test)]
mod tests;

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, accept_with, recvmsg, sendmsg, socketpair,
    sockopt,
};

use crate::error::{Error, Result};
use crate::message::{MAX_DESCRIPTORS, MAX_MESSAGE_BYTES, Message};
pub use address::BACKLOG;
pub use held::GuardedDescriptor;
pub use janitor::Janitor;
use peer::{peer_credentials, peer_group_ids, peer_process};

/// Size of the ancillary data (SCM_RIGHTS) of a packet that is sent.
const SENT_RIGHTS_BYTES: usize = rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS));
/// Space for the ancillary data of a received packet, which can carry 253 descriptors (SCM_MAX_FD).
/// With less space, the kernel would close the excess descriptors on the receiving thread, which
/// can block.
const RECEIVED_RIGHTS_BYTES: usize = rustix::cmsg_space!(ScmRights(253));
/// Largest number of a peer's groups that are read. A user can be in 65536 groups, but storing so
/// many for each connection would let peers use up memory.
pub const MAX_GROUPS: usize = 1024;
const SOCKET_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// The process at the other end, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id in this process's namespace; 0 for a process that is not visible here.
    pub pid: u32,
    /// User id of the process.
    pub uid: u32,
    /// Group id of the process.
    pub gid: u32,
}

/// A message with its request number and descriptors.
#[derive(Debug)]
pub struct Envelope {
    /// Number of the request, which its reply repeats; 0 if no reply is expected.
    pub request: u32,
    /// The message itself.
    pub message: Message,
    /// Descriptors that came with it, at most four.
    pub descriptors: Vec<OwnedFd>,
}

/// One end of a control connection (SOCK_SEQPACKET: a packet is a message).
#[derive(Debug)]
pub struct Connection {
    socket: GuardedDescriptor,
    peer: Peer,
}

impl Connection {
    /// Connects to a socket, waiting at most `timeout`.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self> {
        Self::from_fd(address::connect(path, true, WaitDeadline::after(timeout))?)
    }

    /// Connects like [`connect`](Self::connect), but takes no descriptors until
    /// [`allow_descriptors`](Self::allow_descriptors) is called.
    pub fn connect_without_descriptors(path: &Path, timeout: Duration) -> Result<Self> {
        Self::from_fd(address::connect(path, false, WaitDeadline::after(timeout))?)
    }

    /// Takes over a connected socket.
    pub fn from_fd(socket: OwnedFd) -> Result<Self> {
        prepare_socket(&socket)?;
        let peer = peer_credentials(&socket)?;
        Ok(Self { socket: GuardedDescriptor::plain(socket), peer })
    }

    /// Moves the connection to a descriptor of `lowest` or more, and checks before each use that
    /// the program has not closed it.
    #[must_use]
    pub fn guard(self, lowest: RawFd) -> Self {
        Self { socket: self.socket.guard(lowest), ..self }
    }

    /// Returns whether the descriptor still refers to this connection.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.socket.is_intact()
    }

    /// Leaves the closing of the connection and of rejected descriptors to a janitor.
    #[must_use]
    pub fn with_janitor(mut self, janitor: &Janitor) -> Self {
        self.socket.set_janitor(janitor);
        self
    }

    /// Lets the other end send descriptors from now on.
    pub fn allow_descriptors(&self) -> Result<()> {
        rights::set_passing(self, true).map(drop)
    }

    /// Lets the other end send no descriptors from now on.
    pub fn refuse_descriptors(&self) -> Result<()> {
        rights::set_passing(self, false).map(drop)
    }

    /// Creates two connected ends in this process, for tests.
    pub fn pair() -> Result<(Self, Self)> {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SOCKET_FLAGS, None)
            .map_err(|e| Error::system("socketpair", e))?;
        Ok((Self::from_fd(a)?, Self::from_fd(b)?))
    }

    /// Returns the process at the other end. For a connection to a listener, this is the process
    /// that called `listen`.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns the supplementary groups that the other end had when [`peer`](Self::peer) was fixed,
    /// sorted; `None` if the system does not report them (Linux before 4.13), or if there are more
    /// than [`MAX_GROUPS`].
    #[must_use]
    pub fn peer_groups(&self) -> Option<Vec<u32>> {
        self.socket.check().ok()?;
        peer_group_ids(self.socket.as_fd())
    }

    /// Returns whether the process that [`peer`](Self::peer) names has ended; another process may
    /// have its id by now. Returns `false` if the system does not report the end (Linux before
    /// 6.5).
    #[must_use]
    pub fn peer_has_ended(&self) -> bool {
        match peer_process(self.socket.as_fd()) {
            Ok(process) => {
                let no_wait = Some(&Timespec { tv_sec: 0, tv_nsec: 0 });
                // The descriptor of a process becomes readable when the process has ended.
                poll(&mut [PollFd::new(&process, PollFlags::IN)], no_wait).is_ok_and(|ready| ready > 0)
            }
            // The errors for a process that was already reaped.
            Err(e) => matches!(e, Errno::SRCH | Errno::INVAL),
        }
    }

    /// Sends a message, waiting at most `timeout` (with zero not at all) for free space. Fails with
    /// `TimedOut` if no space becomes free in time.
    pub fn send(
        &self,
        request: u32,
        message: &Message,
        descriptors: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<()> {
        if descriptors.len() > MAX_DESCRIPTORS {
            return Err(Error::Invalid("a message carries four descriptors at most"));
        }
        let mut bytes = Vec::new();
        message.encode(request, &mut bytes)?;
        let deadline = WaitDeadline::after(timeout);
        loop {
            match self.send_packet(&bytes, descriptors) {
                Ok(sent) if sent == bytes.len() => return Ok(()),
                Ok(_) => return Err(Error::Invalid("the system truncated a message")),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if !deadline.wait(self.as_fd(), PollFlags::OUT)? {
                        return Err(Error::TimedOut);
                    }
                }
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return Err(Error::Closed),
                Err(e) => return Err(Error::system("sending a message", e)),
            }
        }
    }

    fn send_packet(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
        self.socket.check()?;
        let mut space = [MaybeUninit::uninit(); SENT_RIGHTS_BYTES];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::NOBUFS);
        }
        sendmsg(self, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    /// Receives a message, waiting at most `timeout` (with zero not at all). Returns `None` if no
    /// message came.
    pub fn receive(&self, timeout: Duration) -> Result<Option<Envelope>> {
        let deadline = WaitDeadline::after(timeout);
        let mut was_reset = false;
        loop {
            match self.receive_packet() {
                Ok(envelope) => return envelope.map(Some),
                Err(Errno::INTR) => {}
                // The peer closed its end without having read everything. The kernel reports that
                // once, before the messages that the peer has sent.
                Err(Errno::CONNRESET) if !was_reset => was_reset = true,
                Err(Errno::AGAIN) => {
                    if !deadline.wait(self.as_fd(), PollFlags::IN)? {
                        return Ok(None);
                    }
                }
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return Err(Error::Closed),
                Err(e) => return Err(Error::system("receiving a message", e)),
            }
        }
    }

    /// Receives the next packet. The outer error is that of the system call; the inner error says
    /// what is wrong with the packet.
    fn receive_packet(&self) -> rustix::io::Result<Result<Envelope>> {
        self.socket.check()?;
        // The length is read first, so that a provider, which gets small messages, needs no memory
        // for the largest message.
        let length = self.peek_length()?.min(MAX_MESSAGE_BYTES);
        let mut bytes = vec![0; length];
        let mut space = [MaybeUninit::uninit(); RECEIVED_RIGHTS_BYTES];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(self, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
        let mut descriptors = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                descriptors.extend(rights);
            }
        }
        bytes.truncate(received.bytes);
        let is_truncated = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        match decode_packet(&bytes, is_truncated || descriptors.len() > MAX_DESCRIPTORS) {
            Ok((request, message)) => Ok(Ok(Envelope { request, message, descriptors })),
            Err(e) => {
                if let Some(janitor) = self.socket.janitor() {
                    janitor.dispose(descriptors);
                }
                Ok(Err(e))
            }
        }
    }

    /// Returns the size of the next packet without taking it; 0 at the end of the connection.
    fn peek_length(&self) -> rustix::io::Result<usize> {
        let flags = RecvFlags::PEEK | RecvFlags::TRUNC | RecvFlags::DONTWAIT;
        let (_, length) = rustix::net::recv(self, &mut [0_u8; 0][..], flags)?;
        Ok(length)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: GuardedDescriptor,
}

impl Listener {
    /// Binds and listens; `mode` is the permission bits of the socket file. Replaces a stale
    /// socket, on which no process listens. Fails with `EADDRINUSE` if a process listens on the
    /// socket, or if the file is not a socket.
    ///
    /// If two listeners replace the same stale socket at the same moment, the later one wins; the
    /// caller must hold a lock if this can happen. Dropping the listener leaves a stale socket
    /// file; remove it if it must not stay.
    pub fn bind(path: &Path, mode: u32) -> Result<Self> {
        address::listen(path, mode).map(|socket| Self { socket: GuardedDescriptor::plain(socket) })
    }

    /// Moves the listener to a descriptor of `lowest` or more, and checks before each use that the
    /// program has not closed it.
    #[must_use]
    pub fn guard(self, lowest: RawFd) -> Self {
        Self { socket: self.socket.guard(lowest) }
    }

    /// Returns whether the descriptor still refers to this listener.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.socket.is_intact()
    }

    /// Takes over a listening socket (socket activation).
    pub fn from_fd(socket: OwnedFd) -> Result<Self> {
        prepare_socket(&socket)?;
        if !sockopt::socket_acceptconn(&socket).map_err(|e| Error::system("SO_ACCEPTCONN", e))? {
            return Err(Error::Invalid("the socket does not listen"));
        }
        // The setting does not apply to connections that already wait: their descriptors are still
        // received.
        rights::set_passing(&socket, false)?;
        Ok(Self { socket: GuardedDescriptor::plain(socket) })
    }

    /// Lets connections take descriptors from the start, even before they are accepted. The caller
    /// may [refuse](Connection::refuse_descriptors) descriptors after the accept.
    pub fn allow_descriptors(&self) -> Result<()> {
        rights::set_passing(&self.socket, true).map(drop)
    }

    /// Accepts the next waiting connection, if any. The connection takes no descriptors yet, unless
    /// [`allow_descriptors`](Self::allow_descriptors) was called.
    pub fn accept(&self) -> Result<Option<Connection>> {
        loop {
            self.socket.check().map_err(|_| Error::Closed)?;
            match accept_with(&self.socket, SOCKET_FLAGS) {
                Ok(socket) => return Connection::from_fd(socket).map(Some),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(e) => return Err(Error::system("accepting a connection", e)),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Decodes request number and message of a packet.
fn decode_packet(bytes: &[u8], is_too_large: bool) -> Result<(u32, Message)> {
    // This is an empty packet, which this protocol never sends, or the end of the connection.
    if bytes.is_empty() {
        return Err(Error::Closed);
    }
    if is_too_large {
        return Err(Error::Invalid("a packet is larger than a message, or has more than four descriptors"));
    }
    Message::decode(bytes)
}

/// Checks the type of a socket, and makes it non-blocking and close-on-exec.
fn prepare_socket(socket: &OwnedFd) -> Result<()> {
    let kind = sockopt::socket_type(socket).map_err(|e| Error::system("SO_TYPE", e))?;
    let domain = sockopt::socket_domain(socket).map_err(|e| Error::system("SO_DOMAIN", e))?;
    if kind != SocketType::SEQPACKET || domain != AddressFamily::UNIX {
        return Err(Error::Invalid("not a Unix socket of type SOCK_SEQPACKET"));
    }
    rustix::io::ioctl_fionbio(socket, true).map_err(|e| Error::system("FIONBIO", e))?;
    rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::CLOEXEC).map_err(|e| Error::system("F_SETFD", e))
}

/// End of a wait; `None` for a time beyond the range of the clock.
#[derive(Clone, Copy, Debug)]
struct WaitDeadline(Option<Instant>);

impl WaitDeadline {
    fn after(timeout: Duration) -> Self {
        Self(Instant::now().checked_add(timeout))
    }

    /// Returns the remaining time; `None` means forever.
    fn remaining(self) -> Option<Duration> {
        self.0.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Waits until the socket is ready; returns `false` when the time is over.
    fn wait(self, socket: BorrowedFd<'_>, events: PollFlags) -> Result<bool> {
        loop {
            let remaining = self.remaining();
            if remaining == Some(Duration::ZERO) {
                return Ok(false);
            }
            let limit = remaining.and_then(|remaining| Timespec::try_from(remaining).ok());
            match poll(&mut [PollFd::from_borrowed_fd(socket, events)], limit.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(e) => return Err(Error::system("poll", e)),
            }
        }
    }
}
