//! What the daemon keeps back, so that who takes much leaves something for others.
//!
//! ```text
//!   connections   0 ─────────── guests in all ────────── providers in all ───────────── all
//!                                   3072                     3840                      4096
//!                                                              └─ controllers and consumers always find a place
//!   descriptors   0 ── guests' providers ── all providers ── controllers, consumers, sessions ── limit
//!                                       └─ a quarter (1024 at most) and a sixteenth (32 to 256) are kept back
//!   sessions      0 ── one guest ──── guests in all ─── all
//!                        half          all but an eighth (8 of 64)
//!   their memory  0 ──────────── guests in all ──────── half of the memory
//!                                 three quarters of that
//!   questions about private sessions
//!                 0 ── one guest ──── guests in all ─── all
//!                        64               192           256
//!   requests that wait for a change of the kernel's events: others' are served before guests'
//!                 0 ── one guest ──── guests in all ─── all
//!                         8               32            64
//! ```
//!
//! A guest is who is neither root nor the daemon's own user. Descriptors get the lowest number that is free: the number of one that
//! was just made tells how many there are, give or take those that were closed since.

use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Resource, getrlimit};
use traceweir_transport::message::MAX_REGISTRATIONS;

/// Connections at most.
pub(crate) const MAX_LINKS: usize = 4096;
/// Of those, connections of one guest.
pub(crate) const MAX_LINKS_OF_GUEST: usize = 1024;
/// Of those, connections of all guests who may not control the daemon.
const MAX_LINKS_OF_GUESTS: usize = 3072;
/// Processes that register providers.
pub(crate) const MAX_PROVIDERS: usize = 3840;
/// Connections of one process: each copy of the library that its modules bring along has one.
pub(crate) const MAX_PER_PROCESS: usize = 8;
/// Registrations of all processes of one user: as many as 128 processes can have, and few enough to be looked through.
pub(crate) const MAX_REGISTRATIONS_OF_USER: usize = 128 * MAX_REGISTRATIONS;
/// Regions that one process may have made before its registrations come: as many as it can write to.
pub(crate) const MAX_OFFERED: usize = 64;
/// Regions of one process that may be waiting to be closed; past that they are given up at once.
pub(crate) const MAX_CLOSING: usize = 16;
/// The same of all guests.
pub(crate) const MAX_CLOSING_OF_GUESTS: usize = 1024;

/// Requests about private sessions that may be under way.
pub(crate) const MAX_PENDING: usize = 256;
/// Of those, requests of one guest.
pub(crate) const MAX_PENDING_OF_GUEST: usize = 64;
/// Of those, requests of all guests.
pub(crate) const MAX_PENDING_OF_GUESTS: usize = 192;
/// Requests that may wait for a change of the kernel's events. They wait before it is known what their askers may do.
pub(crate) const MAX_WAITING: usize = 64;
/// Of those, requests of one guest.
pub(crate) const MAX_WAITING_OF_GUEST: usize = 8;
/// Of those, requests of all guests.
pub(crate) const MAX_WAITING_OF_GUESTS: usize = 32;
/// Private sessions at most; each process runs eight of them.
pub(crate) const MAX_PRIVATES: usize = 256;
/// Of those, private sessions of one guest.
pub(crate) const MAX_PRIVATES_OF_GUEST: usize = 64;

/// PeerName asks for something that there is little of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant {
    /// His user.
    pub(crate) uid: u32,
    /// He is a guest.
    pub(crate) is_guest: bool,
}

impl Claimant {
    /// Whether he may have one more of what others have: of one guest and of all guests no more than this.
    pub(crate) fn has_room(
        self,
        held: impl Iterator<Item = Self>,
        of_guest: usize,
        of_guests: usize,
    ) -> bool {
        if !self.is_guest {
            return true;
        }
        let (mut his, mut all) = (0_usize, 0_usize);
        for other in held.filter(|it| it.is_guest) {
            his += usize::from(other.uid == self.uid);
            all += 1;
        }
        his < of_guest && all < of_guests
    }
}

/// Sessions that one guest may have of so many.
pub(crate) fn sessions_of_guest(most: usize) -> usize {
    (most / 2).max(1)
}

/// Sessions that all guests may have of so many: the others are for root and the daemon's own user.
pub(crate) fn sessions_of_guests(most: usize) -> usize {
    most.saturating_sub(most / 8)
}

/// PeerName is connected when somebody new comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// Connections.
    pub(crate) all: usize,
    /// Of those, connections of guests.
    pub(crate) guests: usize,
    /// Of those, connections of the same user as the new one's.
    pub(crate) of_user: usize,
}

impl Crowd {
    /// Whether a guest leaves room for those who control the daemon.
    pub(crate) fn has_room_for_guest(self) -> bool {
        self.of_user < MAX_LINKS_OF_GUEST && self.guests < MAX_LINKS_OF_GUESTS && self.has_room()
    }

    /// Whether there is any room.
    pub(crate) fn has_room(self) -> bool {
        self.all < MAX_LINKS
    }
}

/// How many descriptors this process may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    limit: u64,
}

impl Descriptors {
    /// By the limit that holds now.
    pub(crate) fn of_process() -> Self {
        Self { limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) }
    }

    /// As if the limit were this.
    #[cfg(test)]
    pub(crate) fn limited_to(limit: u64) -> Self {
        Self { limit }
    }

    /// Descriptors that providers leave to controllers and sessions.
    fn reserve(self) -> u64 {
        (self.limit / 16).clamp(32, 256).min(self.limit / 2)
    }

    /// Returns whether a descriptor that was just made is one of those kept back: from guests, or from all providers.
    pub(crate) fn are_scarce(self, made: impl AsFd, for_guest: bool) -> bool {
        let reserve = if for_guest { (self.limit / 4).min(1024) } else { self.reserve() };
        u64::try_from(made.as_fd().as_raw_fd()).is_ok_and(|number| number >= self.limit - reserve)
    }
}

/// Bytes that the buffers of all sessions may take: half of the memory.
pub(crate) fn pool_budget() -> u64 {
    traceweir_session::config::memory() / 2
}

/// Of those, bytes past which guests get none.
pub(crate) fn pool_of_guests(budget: u64) -> u64 {
    budget - budget / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_descriptors_are_not_for_guests_and_the_very_last_for_nobody() {
        let made = std::fs::File::open("/dev/null").unwrap();
        let number = u64::try_from(made.as_raw_fd()).unwrap();
        let scarce = |limit, guest| Descriptors::limited_to(limit).are_scarce(&made, guest);
        assert_eq!((scarce(number + 2000, true), scarce(number + 2000, false)), (false, false));
        let some = number + number / 8 + 1;
        assert!(scarce(some, true));
        assert_eq!((scarce(number + 1, true), scarce(1, false)), (true, true));
    }

    #[test]
    fn guests_leave_room_for_those_who_control_however_many_there_are() {
        let crowd = |all, guests, of_user| Crowd { all, guests, of_user };
        assert!(crowd(100, 100, 100).has_room_for_guest());
        assert!(!crowd(1024, 1024, 1024).has_room_for_guest(), "one alone");
        let four = crowd(3072, 3072, 768);
        assert!(!four.has_room_for_guest() && four.has_room(), "four together");
        assert!(crowd(4095, 0, 4095).has_room() && !crowd(4096, 0, 0).has_room());
        const { assert!(MAX_LINKS_OF_GUESTS < MAX_PROVIDERS && MAX_PROVIDERS < MAX_LINKS) };
    }

    #[test]
    fn guests_leave_sessions_for_who_owns_the_daemon() {
        assert_eq!((sessions_of_guest(64), sessions_of_guests(64)), (32, 56));
        assert_eq!((sessions_of_guest(1), sessions_of_guests(1)), (1, 1));
        let (ann, bob) = (Claimant { uid: 1, is_guest: true }, Claimant { uid: 2, is_guest: true });
        let root = Claimant { uid: 0, is_guest: false };
        let held = [ann, ann, bob, root, root];
        assert!(bob.has_room(held.into_iter(), 2, 4) && root.has_room(held.into_iter(), 0, 0));
        assert!(!ann.has_room(held.into_iter(), 2, 4), "has two already");
        assert!(!bob.has_room(held.into_iter(), 2, 3), "guests have three");
        const { assert!(MAX_PENDING_OF_GUEST < MAX_PENDING_OF_GUESTS && MAX_PENDING_OF_GUESTS < MAX_PENDING) };
    }

    #[test]
    fn buffers_may_take_half_of_the_memory() {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let kib: u64 = text.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
        let budget = pool_budget() / 1024;
        assert!(budget > kib / 4 && budget < kib, "{budget} of {kib}");
    }
}
