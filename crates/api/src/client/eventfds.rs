//! The descriptors of the waking thread: the bell of the control thread, and the eventfds of
//! outlets.
//!
//! ```text
//!                       table of the library           table of the program (in some sandboxes)
//!   control thread      eventfd                        two `GuardedDescriptor`s of a socket pair
//!   owner of an outlet  eventfd                        eventfd that the epoll of the seal watches
//! ```
//!
//! All eventfds share one inode, so `fstat` cannot distinguish those of the library from those of
//! the program. The seal can: an epoll instance finds what it watches by number *and* open file.
//!
//! ```text
//!   1  fstat(socket of the seal)         device and inode ─▶ the socket is the library's
//!   2  epoll_ctl(MOD, epoll, socket)     succeeds ─▶ the epoll instance watches that socket:
//!                                        it is the library's
//!   3  epoll_ctl(MOD, epoll, eventfd)    succeeds ─▶ the number leads to the file that was
//!                                        added: it is the library's
//! ```
//!
//! Steps 2 and 3 do not affect the program: its epoll instances do not watch the seal's socket, so
//! step 2 fails there, and every call on a descriptor that is not an epoll instance fails too.
//! No thread waits on the instance of the seal.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use traceweir_transport::socket::GuardedDescriptor;

use crate::process;
use crate::process::outlets::{MAX_OUTLETS, outlet_numbers};

const SOCKET_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// Bytes of wake-up requests that one call reads. Unread requests wake the control thread once
/// more.
const MAX_DRAINED_BYTES: usize = 4096;

/// The descriptor that wakes the control thread.
#[derive(Debug)]
pub(super) enum Bell {
    /// An eventfd that only the library can close.
    Counter(OwnedFd),
    /// A socket pair whose ends the program can close. Closing the far end wakes a thread that waits
    /// for the near end.
    Pair { near: GuardedDescriptor, far: GuardedDescriptor },
}

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        if !process::shares_descriptors() {
            return Ok(Self::Counter(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
        }
        let (near, far) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)?;
        let (near, far) = (guard_descriptor(near), guard_descriptor(far));
        process::remember_socket(near.as_fd());
        process::remember_socket(far.as_fd());
        Ok(Self::Pair { near, far })
    }

    /// Wakes the control thread.
    pub(super) fn ring(&self) {
        match self {
            Self::Counter(counter) => wake(counter.as_fd()),
            // A full socket wakes the control thread as well.
            Self::Pair { far, .. } if far.is_intact() => {
                let _ = rustix::net::send(far, b"!", SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            }
            Self::Pair { .. } => {}
        }
    }

    /// Consumes the rings so far; those of a socket pair up to [`MAX_DRAINED_BYTES`].
    pub(super) fn drain(&self) {
        match self {
            Self::Counter(counter) => {
                let _ = rustix::io::read(counter, &mut [0_u8; 8]);
            }
            Self::Pair { near, .. } if near.is_intact() => {
                let _ = rustix::net::recv(near, &mut [0_u8; MAX_DRAINED_BYTES][..], RecvFlags::DONTWAIT);
            }
            Self::Pair { .. } => {}
        }
    }

    /// Forgets a bell that the program closed, before another bell gets its numbers.
    pub(super) fn forget(&self) {
        if let Self::Pair { near, far } = self {
            process::forget_socket(near.as_fd());
            process::forget_socket(far.as_fd());
        }
    }

    /// Returns whether the bell's descriptors are still those of the library.
    pub(super) fn is_intact(&self) -> bool {
        match self {
            Self::Counter(_) => true,
            Self::Pair { near, far } => near.is_intact() && far.is_intact(),
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Counter(counter) => counter.as_fd(),
            Self::Pair { near, .. } => near.as_fd(),
        }
    }
}

/// Distinguishes eventfds of the library from others.
#[derive(Debug)]
struct Seal {
    socket: GuardedDescriptor,
    /// Taken only when the seal is dropped.
    epoll: Option<OwnedFd>,
}

impl Seal {
    fn new() -> io::Result<Self> {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)?;
        let socket = guard_descriptor(socket);
        let epoll = move_to_high_number(epoll::create(epoll::CreateFlags::CLOEXEC)?)?;
        epoll::add(&epoll, &socket, epoll::EventData::new_u64(0), epoll::EventFlags::empty())?;
        process::remember_socket(socket.as_fd());
        Ok(Self { socket, epoll: Some(epoll) })
    }

    fn watches(&self, descriptor: BorrowedFd<'_>) -> bool {
        let (data, none) = (epoll::EventData::new_u64(0), epoll::EventFlags::empty());
        let epoll = self.epoll.as_ref();
        epoll.is_some_and(|epoll| epoll::modify(epoll, descriptor, data, none).is_ok())
    }

    /// Returns whether the seal's descriptors are still those of the library.
    fn is_intact(&self) -> bool {
        self.socket.is_intact() && self.watches(self.socket.as_fd())
    }

    /// Returns whether the number of an eventfd still leads to the adopted file.
    fn owns(&self, eventfd: &OwnedFd) -> bool {
        self.is_intact() && self.watches(eventfd.as_fd())
    }

    /// Takes ownership of an eventfd, under a high number.
    fn adopt(&self, eventfd: OwnedFd) -> io::Result<OwnedFd> {
        let high = move_to_high_number(eventfd)?;
        let (data, none) = (epoll::EventData::new_u64(0), epoll::EventFlags::empty());
        let added = match &self.epoll {
            Some(epoll) if self.is_intact() => epoll::add(epoll, &high, data, none),
            _ => Err(Errno::BADF),
        };
        match added {
            // EXIST: the instance still watches this file under this number. An earlier copy was
            // closed, but the daemon keeps the file open.
            Ok(()) | Err(Errno::EXIST) => Ok(high),
            Err(e) => Err(e.into()),
        }
    }

    /// Closes an eventfd if it is still the library's.
    fn release(&self, eventfd: OwnedFd) {
        if self.owns(&eventfd) {
            // Dropping `eventfd` at the end of this function closes it.
            let _ = self.epoll.as_ref().map(|epoll| epoll::delete(epoll, &eventfd));
        } else {
            leave_open(eventfd);
        }
    }
}

impl Drop for Seal {
    fn drop(&mut self) {
        process::forget_socket(self.socket.as_fd());
        if !self.is_intact() {
            self.epoll.take().into_iter().for_each(leave_open);
        }
    }
}

/// The eventfds that wake the owners of outlets.
#[derive(Debug)]
pub(super) struct WakeEventfds {
    eventfds: [Option<OwnedFd>; MAX_OUTLETS],
    /// Only in a table that the program shares.
    seal: Option<Seal>,
    /// Outlets whose eventfds the program closed, or the seal could not adopt.
    lost: u64,
}

impl WakeEventfds {
    pub(super) const fn new() -> Self {
        Self { eventfds: [const { None }; MAX_OUTLETS], seal: None, lost: 0 }
    }

    /// Sets the eventfd that wakes the owner of an outlet; `false` if the seal cannot adopt it.
    pub(super) fn set(&mut self, outlet: u8, eventfd: OwnedFd) -> bool {
        self.clear(1 << (usize::from(outlet) % MAX_OUTLETS));
        let adopted = if process::shares_descriptors() { self.adopt(eventfd) } else { Ok(eventfd) };
        let at = usize::from(outlet) % MAX_OUTLETS;
        self.lost |= u64::from(adopted.is_err()) << at;
        self.eventfds[at] = adopted.ok();
        self.eventfds[at].is_some()
    }

    fn adopt(&mut self, eventfd: OwnedFd) -> io::Result<OwnedFd> {
        if !self.seal.as_ref().is_some_and(Seal::is_intact) {
            self.forget_closed(u64::MAX);
            // Dropped before the new seal gets its numbers.
            self.seal = None;
            self.seal = Some(Seal::new()?);
        }
        self.seal.as_ref().map_or_else(|| Err(Errno::BADF.into()), |seal| seal.adopt(eventfd))
    }

    /// Closes the eventfds of outlets.
    pub(super) fn clear(&mut self, outlets: u64) {
        for outlet in outlet_numbers(outlets) {
            let Some(eventfd) = self.eventfds[usize::from(outlet)].take() else { continue };
            match &self.seal {
                Some(seal) => seal.release(eventfd),
                None => drop(eventfd),
            }
        }
        self.lost &= !outlets;
    }

    /// Wakes the owners of outlets; `false` if the program has closed one of their eventfds.
    pub(super) fn wake(&mut self, outlets: u64) -> bool {
        let mut closed = 0;
        for outlet in outlet_numbers(outlets) {
            let Some(eventfd) = &self.eventfds[usize::from(outlet)] else { continue };
            if self.seal.as_ref().is_none_or(|seal| seal.owns(eventfd)) {
                wake(eventfd.as_fd());
            } else {
                closed |= 1 << outlet;
            }
        }
        self.forget_closed(closed);
        closed == 0
    }

    /// Forgets eventfds that the program closed, and returns the outlets that lost theirs since the
    /// last call.
    pub(super) fn take_lost(&mut self) -> u64 {
        let numbered = self.eventfds.iter().enumerate();
        let closed = numbered.filter(|(_, eventfd)| match (eventfd, &self.seal) {
            (Some(eventfd), Some(seal)) => !seal.owns(eventfd),
            _ => false,
        });
        let closed = closed.fold(0, |outlets, (outlet, _)| outlets | 1 << outlet);
        self.forget_closed(closed);
        std::mem::take(&mut self.lost)
    }

    /// Forgets eventfds without closing their numbers.
    fn forget_closed(&mut self, outlets: u64) {
        for outlet in outlet_numbers(outlets) {
            if let Some(eventfd) = self.eventfds[usize::from(outlet)].take() {
                leave_open(eventfd);
                self.lost |= 1 << outlet;
            }
        }
    }
}

/// Guards a descriptor whose inode no other descriptor has.
fn guard_descriptor(descriptor: OwnedFd) -> GuardedDescriptor {
    GuardedDescriptor::guarded(descriptor, process::lowest_library_fd())
}

/// Moves a descriptor to a high number, if one is free.
fn move_to_high_number(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    match fcntl_dupfd_cloexec(&descriptor, process::lowest_library_fd()) {
        Err(Errno::MFILE | Errno::INVAL) => Ok(descriptor),
        moved => Ok(moved?),
    }
}

/// Leaves a descriptor open whose number belongs to the program by now.
fn leave_open(descriptor: OwnedFd) {
    let _ = descriptor.into_raw_fd();
}

fn wake(eventfd: BorrowedFd<'_>) {
    // A full counter wakes the reader as well.
    let _ = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use std::os::fd::{AsRawFd, FromRawFd, RawFd};

    use super::*;

    /// Runs a test as a library thread that shares the program's descriptors.
    fn run_with_shared_descriptors(test: impl FnOnce() + Send + 'static) {
        let thread = std::thread::spawn(|| {
            process::simulate_shared_descriptors();
            test();
        });
        thread.join().unwrap();
    }

    fn new_eventfd() -> OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
    }

    /// Makes a number of the library lead to a file that the program opened.
    fn replace_descriptor(number: RawFd, with: OwnedFd) -> OwnedFd {
        // SAFETY: `dup2` closes the library's descriptor and makes the number this function's own;
        // the tested code must not close it any more.
        unsafe {
            assert_eq!(libc::dup2(with.as_raw_fd(), number), number);
            OwnedFd::from_raw_fd(number)
        }
    }

    fn read_eventfd(counter: &OwnedFd) -> rustix::io::Result<usize> {
        rustix::io::read(counter, &mut [0; 8])
    }

    #[test]
    fn eventfd_of_the_program_is_neither_written_nor_closed() {
        run_with_shared_descriptors(|| {
            let (mut wakes, owner_fd) = (WakeEventfds::new(), new_eventfd());
            assert!(wakes.set(3, rustix::io::dup(&owner_fd).unwrap()));
            assert!(wakes.set(4, new_eventfd()));
            assert!(wakes.wake(1 << 3) && read_eventfd(&owner_fd) == Ok(8));

            let number = wakes.eventfds[3].as_ref().unwrap().as_raw_fd();
            assert!(number >= process::lowest_library_fd());
            let program_fd = replace_descriptor(number, new_eventfd());
            assert!(!wakes.wake(1 << 3 | 1 << 4));
            assert_eq!(
                (read_eventfd(&owner_fd), read_eventfd(&program_fd)),
                (Err(Errno::AGAIN), Err(Errno::AGAIN))
            );
            assert_eq!(
                (wakes.take_lost(), wakes.take_lost()),
                (1 << 3, 0),
                "only outlet 3 must be lost, and only once"
            );
            wakes.clear(u64::MAX);
            assert_eq!(read_eventfd(&program_fd), Err(Errno::AGAIN), "the program's eventfd was closed");
        });
    }

    #[test]
    fn program_descriptors_under_the_numbers_of_the_seal_stay_unchanged() {
        run_with_shared_descriptors(|| {
            let mut wakes = WakeEventfds::new();
            assert!(wakes.set(0, new_eventfd()));
            let number = wakes.eventfds[0].as_ref().unwrap().as_raw_fd();
            let epoll_number = wakes.seal.as_ref().unwrap().epoll.as_ref().unwrap().as_raw_fd();
            // The program's eventfd and epoll instance have the numbers of the library's.
            let program_fd = replace_descriptor(number, new_eventfd());
            let watch = replace_descriptor(epoll_number, epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
            epoll::add(&watch, &program_fd, epoll::EventData::new_u64(7), epoll::EventFlags::IN).unwrap();
            assert!(!wakes.wake(1));
            assert_eq!(wakes.take_lost(), 1);
            assert!(wakes.set(0, new_eventfd()) && wakes.wake(1), "a new seal must adopt the new eventfd");

            assert_eq!(read_eventfd(&program_fd), Err(Errno::AGAIN));
            wake(program_fd.as_fd());
            let mut events: Vec<epoll::Event> = Vec::with_capacity(1);
            epoll::wait(&watch, rustix::buffer::spare_capacity(&mut events), None).unwrap();
            assert_eq!(events.first().map(|event| event.data.u64()), Some(7));
        });
    }

    #[test]
    fn closing_the_far_end_of_a_bell_wakes_the_control_thread() {
        run_with_shared_descriptors(|| {
            let bell = Bell::new().unwrap();
            let Bell::Pair { near, far } = &bell else { panic!("expected a socket pair: {bell:?}") };
            bell.ring();
            bell.drain();
            assert!(bell.is_intact());
            let number = far.as_fd().as_raw_fd();
            let (other, end) =
                rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None).unwrap();
            let program_fd = replace_descriptor(number, other);
            let mut ready = [rustix::event::PollFd::new(near, rustix::event::PollFlags::IN)];
            assert_eq!(rustix::event::poll(&mut ready, None), Ok(1));
            bell.ring();
            assert!(!bell.is_intact());
            assert_eq!(
                rustix::io::read(&end, &mut [0; 8]),
                Err(Errno::AGAIN),
                "the program's socket was written"
            );
            bell.forget();
            drop(bell);
            assert_eq!(rustix::io::write(&program_fd, b"!"), Ok(1), "the program's socket was closed");
        });
    }
}
