//! The Linux kernel as the system provider: what perf events tell becomes kernel events with the published layouts.
//!
//! ```text
//!   groups, stacks, intervals (Wanted) ──▶ Control ──opens──▶ perf events of each processor
//!                                                                 │ rings
//!   /proc, connector ──▶ State: processes, threads, files …       ▼
//!                              ▲            └──────────────▶ Capture::look: all rings in time order ──▶ family/…: one handler a tracepoint
//!                              └─────────────────────────────────┘                                            │ Out
//!                                                          queues of finished records, one a processor ◀──────┘  + stacks behind their events
//! ```
//!
//! 1. A capture serves one session. It knows no sessions: whoever drives it asks it to look, and takes the records of each processor in order.
//! 2. Records are finished but for their time, which the session writes when it has put them in order; times inside payloads are converted by the [`Clock`] that comes
//!    with each look.
//! 3. Perf records are handled in the order of their time across all processors, so that state is what it was at that moment. What comes late is handled late.
//! 4. What the kernel could not write into a ring is counted for its processor.
//! 5. Nothing is invented: what Linux does not tell is left out (`docs/spec/kernel-events.md`).
//!
//! `unsafe` is in `perf_ring` only: the system call, the mapping, the ring's two words.
#![deny(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

mod asked;
mod capture;
mod closing;
mod control;
mod counter;
pub mod error;
mod family;
mod groups;
mod kallsyms;
mod opened;
mod out;
mod patient;
mod per_thread;
mod perf_ring;
mod plain;
mod proc;
mod record;
mod spec;
mod stack;
mod state;
mod targets;
mod tracefs;

pub use capture::{Capture, Captured};
pub use closing::wait_until_closed;
pub use control::{Control, Scope, Wanted};
pub use counter::{Counter, MAX_COUNTERS};
pub use error::{Error, Result};
pub use groups::{Group, Groups};
pub use patient::is_patient_worker;

/// From `CLOCK_MONOTONIC_RAW` in nanoseconds, which perf events are stamped with, to the clocks of a session.
pub trait Clock {
    /// The raw counter that puts records in order.
    fn raw(&self, ns: u64) -> u64;
    /// The session's own clock, for times inside payloads.
    fn stamp(&self, ns: u64) -> i64;
    /// A span of time in ticks of the performance counter.
    fn ticks(&self, ns: u64) -> u64;
}

/// Who writes events that nobody in particular caused: this process and thread.
pub(crate) fn writer() -> (u32, u32) {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    (std::process::id(), u32::try_from(thread).unwrap_or(0))
}

/// `CLOCK_MONOTONIC_RAW`, nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicRaw);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// A session whose clocks all count nanoseconds, for tests of what is inside.
#[cfg(test)]
pub(crate) struct Plain;

#[cfg(test)]
impl Clock for Plain {
    fn raw(&self, ns: u64) -> u64 {
        ns
    }

    fn stamp(&self, ns: u64) -> i64 {
        i64::try_from(ns).unwrap_or(i64::MAX)
    }

    fn ticks(&self, ns: u64) -> u64 {
        ns
    }
}
