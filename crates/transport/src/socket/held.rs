//! Descriptors of sockets and memory files that are checked before each use.
//!
//! ```text
//!   plain     only this library uses the descriptor table: no check
//!   guarded   the program shares the table: a high number, and before each use
//!             fstat: device, inode and kind are those of the file   ─▶ unchanged
//!                    anything else ─▶ the program closed the number: neither used nor closed
//! ```
//!
//! No two open files of these kinds have the same inode, so a number that refers to the inode
//! refers to the file. One race remains: within the microsecond between the check and the use, the
//! program could close the number and open another file under it.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::Janitor;

/// Device, inode and kind of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpenFileIdentity {
    device: u64,
    inode: u64,
    kind: FileType,
}

impl OpenFileIdentity {
    /// The identity of a descriptor that was closed before it could be guarded; equals no file.
    const CLOSED: Self = Self { device: u64::MAX, inode: u64::MAX, kind: FileType::Unknown };

    fn read(descriptor: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let stat = fstat(descriptor)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino, kind: FileType::from_raw_mode(stat.st_mode) })
    }
}

/// A socket or memory file that is closed on drop, unless the program has closed its number.
#[derive(Debug)]
pub struct GuardedDescriptor {
    /// Taken only when this value is dropped.
    descriptor: ManuallyDrop<OwnedFd>,
    /// File that the number must refer to; `None` if nothing else can close the number.
    identity: Option<OpenFileIdentity>,
    janitor: Option<Janitor>,
}

impl GuardedDescriptor {
    /// Holds a descriptor that nothing else can close.
    #[must_use]
    pub fn plain(descriptor: OwnedFd) -> Self {
        Self { descriptor: ManuallyDrop::new(descriptor), identity: None, janitor: None }
    }

    /// Holds a descriptor in a table that the program shares, under a number of `lowest` or more if
    /// one is free. Only for files whose inode no other file has: sockets, pipes, regular files;
    /// not for eventfds and the like, which share one inode.
    #[must_use]
    pub fn guarded(descriptor: OwnedFd, lowest: RawFd) -> Self {
        Self::plain(descriptor).guard(lowest)
    }

    /// Moves the descriptor to a number of `lowest` or more if one is free, and checks it before
    /// each use from now on.
    #[must_use]
    pub(super) fn guard(mut self, lowest: RawFd) -> Self {
        // The identity is read before the duplication, because the program may close the new number
        // as soon as it exists.
        let identity = OpenFileIdentity::read(self.as_fd()).unwrap_or(OpenFileIdentity::CLOSED);
        self.identity = Some(identity);
        match fcntl_dupfd_cloexec(&self, lowest) {
            Ok(high) => {
                // Dropping `self` closes the old number. This never waits, because the duplicate
                // stays open.
                let janitor = self.janitor.take();
                Self { descriptor: ManuallyDrop::new(high), identity: Some(identity), janitor }
            }
            // No such number is free, or the limit of descriptors is below `lowest`.
            Err(_) => self,
        }
    }

    /// Returns whether the number still refers to the original file.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.identity.is_none_or(|identity| OpenFileIdentity::read(self.as_fd()) == Ok(identity))
    }

    /// Fails like a connection that has ended if the number no longer refers to the original file.
    pub(super) fn check(&self) -> rustix::io::Result<()> {
        if self.is_intact() { Ok(()) } else { Err(Errno::NOTCONN) }
    }

    pub(super) fn set_janitor(&mut self, janitor: &Janitor) {
        self.janitor = Some(janitor.clone());
    }

    pub(super) fn janitor(&self) -> Option<&Janitor> {
        self.janitor.as_ref()
    }
}

impl AsFd for GuardedDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for GuardedDescriptor {
    fn drop(&mut self) {
        if !self.is_intact() {
            return;
        }
        // SAFETY: nothing else takes the descriptor, and this value is being dropped.
        let descriptor = unsafe { ManuallyDrop::take(&mut self.descriptor) };
        match &self.janitor {
            Some(janitor) => janitor.close(descriptor),
            None => drop(descriptor),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, FromRawFd};

    use rustix::net::{AddressFamily, SocketType, socketpair};

    use super::*;
    use crate::error::Error;
    use crate::message::Message;
    use crate::socket::{Connection, Listener, SOCKET_FLAGS};

    /// Makes a number refer to another open file.
    fn replace(number: BorrowedFd<'_>, with: &OwnedFd) -> OwnedFd {
        // SAFETY: the number belongs to the value under test, which finds another file under it and
        // does not close it any more; so only the returned value owns the number.
        unsafe {
            assert_eq!(libc::dup2(with.as_raw_fd(), number.as_raw_fd()), number.as_raw_fd());
            OwnedFd::from_raw_fd(number.as_raw_fd())
        }
    }

    fn create_pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SOCKET_FLAGS, None).unwrap()
    }

    #[test]
    fn guarded_socket_has_a_high_number_and_closes_itself() {
        let (near, far) = create_pair();
        let guarded = GuardedDescriptor::guarded(near, 500);
        assert!(guarded.as_fd().as_raw_fd() >= 500 && guarded.is_intact());
        drop(guarded);
        // A child that another test forks holds a copy until it calls exec.
        let mut ready = [rustix::event::PollFd::new(&far, rustix::event::PollFlags::IN)];
        let timeout = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        rustix::event::poll(&mut ready, Some(&timeout)).unwrap();
        assert_eq!(rustix::io::read(&far, &mut [0; 1]), Ok(0), "a number is still open");
    }

    #[test]
    fn socket_without_a_high_number_is_guarded_as_well() {
        let (near, _far) = create_pair();
        let number = near.as_raw_fd();
        let guarded = GuardedDescriptor::guarded(near, RawFd::MAX);
        assert_eq!(guarded.as_fd().as_raw_fd(), number);
        let (foreign, _far_foreign) = create_pair();
        let _replacement = replace(guarded.as_fd(), &foreign);
        assert!(!guarded.is_intact());
    }

    #[test]
    fn connection_whose_number_is_taken_is_neither_used_nor_closed() {
        let (ours, theirs) = Connection::pair().unwrap();
        let ours = ours.guard(500);
        ours.send(1, &Message::Done, &[], std::time::Duration::ZERO).unwrap();
        assert!(theirs.receive(std::time::Duration::ZERO).unwrap().is_some());

        let (near, far) = create_pair();
        let replacement = replace(ours.as_fd(), &near);
        drop(near);
        assert!(!ours.is_intact());
        let sent = ours.send(2, &Message::Done, &[], std::time::Duration::ZERO);
        assert!(matches!(sent, Err(Error::Closed)), "{sent:?}");
        assert_eq!(rustix::io::read(&far, &mut [0; 8]), Err(Errno::AGAIN), "something was written");
        rustix::io::write(&far, b"theirs").unwrap();
        let received = ours.receive(std::time::Duration::ZERO);
        assert!(matches!(received, Err(Error::Closed)), "{received:?}");
        drop(ours);
        assert_eq!(rustix::io::read(&replacement, &mut [0; 8]), Ok(6), "the file was read or closed");
    }

    #[test]
    fn listener_whose_number_is_taken_accepts_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let listen = |name: &str| Listener::bind(&dir.path().join(name), 0o600).unwrap();
        let ours = listen("ours").guard(500);
        let theirs = listen("theirs");
        let waiting = Connection::connect(&dir.path().join("theirs"), std::time::Duration::ZERO).unwrap();
        let copy = rustix::io::dup(&theirs).unwrap();
        let replacement = replace(ours.as_fd(), &copy);
        assert!(!ours.is_intact() && ours.accept().is_err());
        drop(ours);
        assert!(theirs.accept().unwrap().is_some(), "the connection was taken");
        assert!(fstat(&replacement).is_ok());
        drop(waiting);
    }
}
