//! The ring protocol: moves records from the threads of a process to the owner of its region,
//! without a lock that any thread waits for.
//!
//! ```text
//!                    tail            read           head                        tail + ring_bytes
//!   ─ ─ ─ ─ ─ ─ ─ ─ ─┼───────────────┼──────────────┼───────────────────────────┼─ ─ ─▶ positions
//!    free again      │ being given   │ published    │ free: only for the        │ not yet
//!                    │ back          │ records      │ writer                    │
//!
//!   process                                         owner
//!   Outlet::write ─▶ rseq (ring c) ───┐
//!                 └▶ lock (ring n+c) ─┴─ head ─────▶ poll ─ peek ─ take ─ release ─ tail, read
//!                                     └─ eventfd ──▶ (asleep)
//! ```
//!
//! Each CPU `c` of `n` has two rings in a region, so that a ring has exactly one rule by which
//! writers exclude each other: a restartable sequence (`rseq.rs`), or the lock word
//! (`fallback.rs`). A write by either rule ends with a single store of `head`.
//!
//! # Invariants
//!
//! - **R1** A record exists if and only if `head` was stored after it. That store is the last
//!   access of a writer to the ring's data. A writer that is killed before the store has written
//!   nothing; a writer that is killed after it has written a complete record. No space is ever
//!   reserved for an unfinished record.
//! - **R2** One writer at a time is inside a ring: by the sequence on rings `0 … cpus − 1`, by the
//!   lock on rings `cpus … 2·cpus − 1`.
//! - **R3** The writer touches only positions from `head` to `tail + ring_bytes`; the reader only
//!   those from `tail` to `head`: it reads records from `read` to `head`, and gives back pages from
//!   `tail` to `read`.
//! - **R4** A record, with its prefix and padding, is contiguous. If it does not fit before the
//!   ring's end, a marker stands there and the record is at the start of the ring; one store of
//!   `head` publishes the marker and the record.
//! - **R5** After [`Outlet::close`] no thread publishes: the generation changes first; then a
//!   memory barrier aborts every sequence that may have seen the old generation; then every lock is
//!   taken and kept. The addresses stay mapped forever, and a late writer that reaches a lock word
//!   there does not release the locks of the next region.
//! - **R6** The owner is woken at most once for each position it has read to, when a ring holds
//!   `wake_at` unread bytes.
//! - **R7** The owner trusts nothing: a ring that breaks a rule ends its region ([`Damaged`]) and
//!   does not affect other regions.
//! - **R8** The process counts in `lost` every record that was offered and not published, unless
//!   its outlet was closed.
//!
//! # Test points
//!
//! With the feature `test-points` a test can kill a writer at: `before_write`, `published`,
//! `fallback_locked`, `fallback_copied`, `fallback_published`, `fallback_unlocked`, `before_wake`,
//! `after_wake`, `before_lost`, `after_lost`.
//!
//! # Limits
//!
//! The protocol knows nothing of events, and gives no order across rings: the reader merges by
//! stamp. Nor does it promise that stamps increase within a ring: a CPU may read its counter a
//! little before it has the lock, and the reader raises such a stamp to the preceding stamp.
//!
//! A ring that was busy and then idle keeps the pages that were written, until the writer comes
//! around again or the region is dropped. Bytes before the tail are those that the writer fills
//! next, up to `tail + ring_bytes`. The writer may fill them at any time, so the owner cannot
//! return their pages.
//!
//! A `fork` in a signal handler that has interrupted a write of the same thread leaves two threads
//! in that write; the child must not return into it.

#[cfg(not(loom))]
mod block;
#[cfg(not(loom))]
mod copy;
#[cfg(not(loom))]
mod doorbell;
#[cfg(not(loom))]
pub mod drain;
#[cfg(not(loom))]
mod fallback;
#[cfg(any(not(loom), test))]
mod gate;
#[cfg(not(loom))]
mod gather;
#[cfg(all(test, loom))]
mod model;
#[cfg(not(loom))]
pub mod outlet;
#[cfg(not(loom))]
mod points;
#[cfg(all(not(loom), target_arch = "x86_64"))]
mod rseq;
#[cfg(all(not(loom), not(target_arch = "x86_64")))]
#[path = "ring/rseq_absent.rs"]
mod rseq;
#[cfg(not(loom))]
mod straight;
#[cfg(not(loom))]
mod view;
#[cfg(any(not(loom), test))]
mod words;

#[cfg(not(loom))]
pub use block::{Block, Blocks};
#[doc(hidden)]
#[cfg(not(loom))]
pub use copy::{MAX_SMALL_BYTES, copy_array, copy_small};
#[cfg(not(loom))]
pub use doorbell::{Doorbell, RungLines};
#[cfg(not(loom))]
pub use drain::{Damaged, RecordPrefix, RegionReader, RingReader, create_memory};
#[cfg(any(not(loom), test))]
pub use gate::Ticket;
#[cfg(not(loom))]
pub use gather::Gather;
#[cfg(not(loom))]
pub use outlet::{Outlet, RegionSource, WriteFailure, prepare_wake, supports_rseq};
#[cfg(not(loom))]
pub use straight::{Header, MIN_SCHEMA_BYTES, Straight};

/// Result of an attempt to write in a restartable sequence or under a lock.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteOutcome {
    /// The record is in this ring.
    Published {
        /// Index of the ring.
        ring: usize,
        /// Position after the record.
        end: u64,
    },
    /// The ring is full.
    Full {
        /// Index of the ring.
        ring: usize,
    },
    /// The outlet is closed or serves another session by now.
    Closed,
    /// The thread has no restartable sequences, or all locks are taken.
    Unavailable,
}
