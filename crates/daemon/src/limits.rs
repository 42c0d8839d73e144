//! Limits that keep resources available to other users.
//!
//! ```text
//!   connections   0 ─────────── all guests ─────────── all providers ─────────────── total
//!                                 3072                     3840                      4096
//!                  one guest: 1024, of these 64 before Hello
//!                                      reserved for controllers and consumers ────────┘
//!   descriptors   0 ── guests' providers ── all providers ── controllers, consumers, sessions
//!                     withheld from guests: a quarter (at most 1024)
//!                     withheld from all providers: a sixteenth (32 to 256)
//!   sessions      0 ── one guest ──── all guests ────── total
//!                        half         all except an eighth (8 of 64)
//!   their memory  0 ──────────── all guests ─────────── half of the memory
//!                                 three quarters of that
//!   requests about private sessions
//!                 0 ── one guest ──── all guests ────── total
//!                        64               192           256
//!   requests that wait until the kernel capture has changed (guests are served last)
//!                 0 ── one guest ──── all guests ────── total
//!                         8               32            64
//! ```
//!
//! A number or share stands below its name and is the maximum for it; the largest maximum is on the
//! right. A guest is a user other than root and the daemon's own user. The kernel gives a new
//! descriptor the lowest free number, so the number of a new descriptor shows approximately how
//! many are open.

use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Resource, getrlimit};
use traceweir_transport::message::MAX_REGISTRATIONS;

/// Maximum number of connections.
pub(crate) const MAX_LINKS: usize = 4096;
/// Maximum number of connections of one guest who may not control the daemon.
pub(crate) const MAX_LINKS_PER_GUEST: usize = 1024;
/// Maximum number of connections of one guest that have not sent `Hello`. Connections that the
/// daemon opened do not count.
pub(crate) const MAX_LINKS_BEFORE_HELLO_PER_GUEST: usize = 64;
/// Maximum number of connections of all guests; guests who may control the daemon may exceed it.
pub(crate) const MAX_LINKS_OF_ALL_GUESTS: usize = 3072;
/// Maximum number of connections of processes that register providers.
pub(crate) const MAX_PROVIDER_LINKS: usize = 3840;
/// Maximum number of connections of one process: each copy of the provider library in its modules
/// has one.
pub(crate) const MAX_LINKS_OF_PROCESS: usize = 8;
/// Maximum number of registrations of all processes of one user: as many as 128 processes can have,
/// and few enough to be searched.
pub(crate) const MAX_REGISTRATIONS_OF_USER: usize = 128 * MAX_REGISTRATIONS;
/// Maximum number of regions that one process may create before its registrations arrive: as many
/// as it can write to.
pub(crate) const MAX_OFFERED_REGIONS: usize = 64;
/// Maximum number of regions of one process that wait to be closed; further regions are detached at
/// once.
pub(crate) const MAX_CLOSING_REGIONS: usize = 16;
/// Once this many regions of all users wait to be closed, further regions of guests are detached at
/// once.
pub(crate) const CLOSING_REGIONS_BEFORE_GUESTS_DETACH: usize = 1024;

/// Maximum number of pending requests about private sessions.
pub(crate) const MAX_PENDING_REQUESTS: usize = 256;
/// Maximum number of pending requests of one guest about private sessions.
pub(crate) const MAX_PENDING_REQUESTS_PER_GUEST: usize = 64;
/// Maximum number of pending requests of all guests about private sessions.
pub(crate) const MAX_PENDING_REQUESTS_OF_ALL_GUESTS: usize = 192;
/// Maximum number of requests that wait until the kernel capture has changed. Their rights are
/// checked only after the wait.
pub(crate) const MAX_DEFERRED_REQUESTS: usize = 64;
/// Maximum number of requests of one guest that wait until the kernel capture has changed.
pub(crate) const MAX_DEFERRED_REQUESTS_PER_GUEST: usize = 8;
/// Maximum number of requests of all guests that wait until the kernel capture has changed.
pub(crate) const MAX_DEFERRED_REQUESTS_OF_ALL_GUESTS: usize = 32;
/// Maximum number of private sessions; each process runs at most eight of them.
pub(crate) const MAX_PRIVATE_SESSIONS: usize = 256;
/// Maximum number of private sessions of one guest.
pub(crate) const MAX_PRIVATE_SESSIONS_PER_GUEST: usize = 64;

/// The user that a limited resource is charged to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant {
    pub(crate) uid: u32,
    pub(crate) is_guest: bool,
}

impl Claimant {
    /// Returns whether the user may have one more of a resource. `holders` lists the current
    /// holders; `max_per_guest` and `max_of_all_guests` are the limits for one guest and for all
    /// guests together.
    pub(crate) fn is_below_limits(
        self,
        holders: impl Iterator<Item = Self>,
        max_per_guest: usize,
        max_of_all_guests: usize,
    ) -> bool {
        if !self.is_guest {
            return true;
        }
        let (mut own_count, mut guest_count) = (0_usize, 0_usize);
        for holder in holders.filter(|holder| holder.is_guest) {
            own_count += usize::from(holder.uid == self.uid);
            guest_count += 1;
        }
        own_count < max_per_guest && guest_count < max_of_all_guests
    }
}

/// Returns how many of `max_sessions` sessions one guest may have.
pub(crate) fn max_sessions_per_guest(max_sessions: usize) -> usize {
    (max_sessions / 2).max(1)
}

/// Returns how many of `max_sessions` sessions all guests may have: the others are for root and the
/// daemon's own user.
pub(crate) fn max_sessions_of_all_guests(max_sessions: usize) -> usize {
    max_sessions.saturating_sub(max_sessions / 8)
}

/// The connections that exist when a new one arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionCounts {
    pub(crate) all: usize,
    /// Connections of guests.
    pub(crate) guests: usize,
    /// Connections of the user of the new connection.
    pub(crate) of_user: usize,
    /// Connections of that user that have not sent `Hello`.
    pub(crate) before_hello_of_user: usize,
}

impl ConnectionCounts {
    /// Returns whether a guest that does not control the daemon may have another connection.
    pub(crate) fn is_below_guest_limits(self) -> bool {
        self.of_user < MAX_LINKS_PER_GUEST
            && self.guests < MAX_LINKS_OF_ALL_GUESTS
            && self.is_below_total_limit()
    }

    /// Returns whether a guest has reached its limit of connections before `Hello`.
    pub(crate) fn has_too_many_before_hello(self) -> bool {
        self.before_hello_of_user >= MAX_LINKS_BEFORE_HELLO_PER_GUEST
    }

    pub(crate) fn is_below_total_limit(self) -> bool {
        self.all < MAX_LINKS
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DescriptorLimit {
    limit: u64,
}

impl DescriptorLimit {
    pub(crate) fn current() -> Self {
        Self { limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) }
    }

    #[cfg(test)]
    pub(crate) fn limited_to(limit: u64) -> Self {
        Self { limit }
    }

    /// Returns the number of descriptors reserved for controllers and sessions.
    fn reserve(self) -> u64 {
        (self.limit / 16).clamp(32, 256).min(self.limit / 2)
    }

    /// Returns whether the number of a new descriptor is withheld from guests (`for_guest`), or
    /// from all providers.
    pub(crate) fn is_withheld(self, descriptor: impl AsFd, for_guest: bool) -> bool {
        let reserve = if for_guest { (self.limit / 4).min(1024) } else { self.reserve() };
        u64::try_from(descriptor.as_fd().as_raw_fd()).is_ok_and(|number| number >= self.limit - reserve)
    }
}

/// Returns how many bytes the buffers of all sessions may use: half of the memory.
pub(crate) fn max_pool_bytes() -> u64 {
    traceweir_session::config::memory_bytes() / 2
}

/// Returns how many of `budget` bytes the buffers of guests' sessions may use.
pub(crate) fn max_pool_bytes_of_all_guests(budget: u64) -> u64 {
    budget - budget / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_descriptors_are_withheld_from_guests_and_from_providers() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let number = u64::try_from(file.as_raw_fd()).unwrap();
        let is_withheld = |limit, guest| DescriptorLimit::limited_to(limit).is_withheld(&file, guest);
        assert_eq!((is_withheld(number + 2000, true), is_withheld(number + 2000, false)), (false, false));
        let slightly_more = number + number / 8 + 1;
        assert!(is_withheld(slightly_more, true));
        assert_eq!((is_withheld(number + 1, true), is_withheld(1, false)), (true, true));
    }

    #[test]
    fn guests_leave_connections_for_controllers() {
        let connections =
            |all, guests, of_user| ConnectionCounts { all, guests, of_user, before_hello_of_user: 0 };
        assert!(connections(100, 100, 100).is_below_guest_limits());
        assert!(!connections(1024, 1024, 1024).is_below_guest_limits(), "one guest has reached its limit");
        let counts = connections(3072, 3072, 768);
        assert!(
            !counts.is_below_guest_limits() && counts.is_below_total_limit(),
            "four guests together have reached the limit"
        );
        assert!(
            connections(4095, 0, 4095).is_below_total_limit()
                && !connections(4096, 0, 0).is_below_total_limit()
        );
        const { assert!(MAX_LINKS_OF_ALL_GUESTS < MAX_PROVIDER_LINKS && MAX_PROVIDER_LINKS < MAX_LINKS) };
    }

    #[test]
    fn guests_leave_sessions_for_root_and_the_daemon_user() {
        assert_eq!((max_sessions_per_guest(64), max_sessions_of_all_guests(64)), (32, 56));
        assert_eq!((max_sessions_per_guest(1), max_sessions_of_all_guests(1)), (1, 1));
        let (ann, bob) = (Claimant { uid: 1, is_guest: true }, Claimant { uid: 2, is_guest: true });
        let root = Claimant { uid: 0, is_guest: false };
        let holders = [ann, ann, bob, root, root];
        assert!(
            bob.is_below_limits(holders.into_iter(), 2, 4) && root.is_below_limits(holders.into_iter(), 0, 0)
        );
        assert!(!ann.is_below_limits(holders.into_iter(), 2, 4), "Ann has two already");
        assert!(!bob.is_below_limits(holders.into_iter(), 2, 3), "all guests have three already");
        const {
            assert!(
                MAX_PENDING_REQUESTS_PER_GUEST < MAX_PENDING_REQUESTS_OF_ALL_GUESTS
                    && MAX_PENDING_REQUESTS_OF_ALL_GUESTS < MAX_PENDING_REQUESTS
            )
        };
    }

    #[test]
    fn buffers_may_use_half_of_the_memory() {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let kib: u64 = text.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
        let budget = max_pool_bytes() / 1024;
        assert!(budget > kib / 4 && budget < kib, "{budget} of {kib}");
    }
}
