//! Skeleton.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use super::drain::RegionReader;
use crate::abi::RegionParams;
use crate::error::Result;

/// Where a region's memory comes from.
#[derive(Debug)]
pub enum RegionSource {
    /// A memory file from the owner, and the eventfd that wakes it.
    File {
        /// The sealed memory file.
        memory: OwnedFd,
        /// Written to wake the owner.
        wake: OwnedFd,
    },
    // The owner's side adds: memory of this very process, for private sessions.
}

/// Proof that an outlet was open at a certain time; a stale one is refused by [`Outlet::write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// Why a record was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No room: counted in the region.
    Full,
    /// Larger than the session can store: counted in the region.
    TooLarge,
    /// The outlet was closed or serves another session by now. Not counted.
    Closed,
}

/// A record to be written: bytes staged by the caller, then parts that are copied from where they are.
#[derive(Debug)]
pub struct Gather<'a> {
    /// [`crate::abi::PREFIX_BYTES`] of room for the prefix, then the beginning of the record. Eight-byte aligned; readable up to a multiple of eight.
    pub staged: &'a mut [u64],
    /// Bytes of the record in `staged`, behind the prefix room.
    pub staged_bytes: usize,
    /// What follows it.
    pub rest: &'a [IoSlice<'a>],
    /// Whether the stamp inside the record is to be kept.
    pub keep_stamp: bool,
}

/// One way out of this process into one session. Lives in a static and is never freed, so a writer that was interrupted for
/// any length of time finds memory to look at.
#[derive(Debug)]
pub struct Outlet {
    _private: (),
}

impl Outlet {
    /// A closed outlet.
    #[must_use]
    pub const fn new() -> Self {
        Self { _private: () }
    }

    /// Maps a region and lets writers in. One caller at a time opens and closes an outlet.
    pub fn open(&self, source: RegionSource, params: &RegionParams) -> Result<Ticket> {
        let _ = (source, params);
        todo!()
    }

    /// Opens it over memory of this process and gives the reading side: a private session.
    pub fn open_private(&self, params: &RegionParams, wake: OwnedFd) -> Result<(Ticket, RegionReader)> {
        let _ = (params, wake);
        todo!()
    }

    /// Shuts writers out. After the return no writer publishes any more, unless one was stopped inside the lock of a ring for longer
    /// than a tenth of a second (then `false`).
    pub fn close(&self) -> bool {
        todo!()
    }

    /// Writes one record. Takes no lock that can block, allocates nothing, calls the system only to wake the owner; safe in signal
    /// handlers. `thread` is the caller's thread id, not 0.
    #[inline]
    pub fn write(&self, ticket: Ticket, thread: u32, record: &mut Gather<'_>) -> Result<(), Failure> {
        let _ = (ticket, thread, record);
        todo!()
    }

    /// Counts an event that was offered but cannot be written (a forked child without a region of its own, a record that is too large).
    pub fn count_lost(&self, ticket: Ticket) {
        let _ = ticket;
        todo!()
    }
}

impl Default for Outlet {
    fn default() -> Self {
        Self::new()
    }
}
