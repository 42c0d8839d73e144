//! The ring protocol: how records get from the threads of a process to the owner of a session without a lock that anybody waits for.
//!
//! ```text
//!                    tail            read           head                        tail + ring_bytes
//!   ─ ─ ─ ─ ─ ─ ─ ─ ─┼───────────────┼──────────────┼───────────────────────────┼─ ─ ─ ─ ─ ─ ▶ positions
//!    free again      │ being given   │ published    │ free: the writer's        │ not yet
//!                    │ back          │ records      │ alone                     │
//!
//!   process                                         owner
//!   Outlet::write ─▶ rseq (ring c) ───┐
//!                 └▶ lock (ring n+c) ─┴─ head ─────▶ look ─ peek ─ take ─ release ─ tail, read
//!                                     └─ eventfd ──▶ (asleep)
//! ```
//!
//! Each processor has two rings in a region, so that a ring has exactly one rule by which writers exclude each other:
//! a restartable sequence (`rseq.rs`), or the lock word (`fallback.rs`). Both end in the same single store.
//!
//! # Invariants
//!
//! - **R1** A record exists if and only if `head` was stored behind it. That store is the last thing a writer does to the ring; whoever is
//!   killed before it has written nothing, whoever is killed after it has written a whole record. Nothing is ever
//!   reserved and unfinished.
//! - **R2** One writer at a time is inside a ring: by the sequence on rings `0 … cpus − 1`, by the lock on rings `cpus … 2·cpus − 1`.
//! - **R3** The writer touches only positions from `head` to `tail + ring_bytes`; the reader only those from `read` to `head`.
//! - **R4** A record, with its prefix and padding, is contiguous. Where it does not fit before the ring's end a marker stands there and the
//!   record is at the start; both are published by the same store.
//! - **R5** After [`Outlet::close`] nobody publishes: the generation changes first; then a memory barrier aborts every sequence that
//!   may have seen the old one; then every lock is taken and kept. The addresses stay mapped for ever, and whoever comes late to a
//!   lock word there leaves the locks of the next region alone.
//! - **R6** The owner is woken at most once for each position it has read to, when a ring holds `wake_at` unread bytes.
//! - **R7** The owner believes nothing: a ring that breaks a rule ends its region ([`Damaged`]) and disturbs no other.
//! - **R8** Every record that was offered and not published is counted in `lost`, by the process, unless its outlet was closed.
//!
//! # Points
//!
//! With the feature `test-points` a test can have a writer killed at: `before_write`, `published`, `fallback_locked`, `fallback_copied`,
//! `fallback_published`, `fallback_unlocked`, `before_wake`, `after_wake`, `before_lost`, `after_lost`.
//!
//! # What it does not do
//!
//! It does not know what an event is, and it gives no order across rings: whoever drains merges by stamp. Nor does it promise that stamps
//! rise within a ring: a processor may read its counter a little before it has the lock, and whoever drains raises such a stamp to the
//! last one.
//!
//! A ring that was busy and then falls silent keeps the pages it has touched, at most its own size, until it comes around again or
//! its region goes: bytes behind the tail are the writer's, and nothing takes them away. That is the price of writers who ask nobody.
//!
//! A `fork` in a signal handler that has interrupted a write of its own thread leaves two threads in that write; the child must not
//! return into it.

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
#[path = "rseq_absent.rs"]
mod rseq;
#[cfg(not(loom))]
mod straight;
#[cfg(not(loom))]
mod view;
#[cfg(any(not(loom), test))]
mod words;

#[cfg(not(loom))]
pub use doorbell::{Doorbell, Rings};
#[cfg(not(loom))]
pub use drain::{Damaged, Head, RegionReader, RingReader, create_memory};
#[cfg(not(loom))]
pub use gather::Gather;
#[cfg(not(loom))]
pub use outlet::{Failure, Outlet, RegionSource, Ticket, is_restartable, prepare_wake};
#[cfg(not(loom))]
pub use straight::{Block, Blocks, Header, SHORTEST_SCHEMA, Straight};

/// What became of an attempt to write, by either rule.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It is in this ring.
    Published {
        /// The ring.
        ring: usize,
        /// Position behind the record.
        end: u64,
    },
    /// The ring has no room.
    Full {
        /// The ring.
        ring: usize,
    },
    /// The outlet serves somebody else by now.
    Closed,
    /// The rule does not serve this thread now: it has no sequence, or all locks are taken.
    Unfit,
}
