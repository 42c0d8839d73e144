//! The Linux kernel as the system provider: turns perf events into kernel events with the
//! published layouts.
//!
//! ```text
//!   groups, stacks, intervals (Wanted) ──▶ Control ──opens──▶ perf events of each processor
//!                                                                  │ rings
//!   /proc, connector ──▶ State: processes, threads, files … ──▶ Capture::look: all rings
//!                              ▲                                in time order
//!                              └── updated by ──────────────────── family/…: one handler
//!                                                                  for each tracepoint
//!                                                                  │ Out
//!   session ◀── queues of finished records, one per processor ◀────┘
//!               (each event followed by its stacks)
//! ```
//!
//! 1. A capture serves one session, but it does not depend on the session crate: its owner calls
//!    [`Capture::look`] to poll it and takes the records of each processor in order.
//! 2. Records are complete except for their time stamp, which the session writes once it has
//!    sorted them. The [`Clock`] passed to each poll converts times inside payloads.
//! 3. Perf records are handled in time order across all processors, so that the state matches the
//!    moment of the event. Records that arrive late are handled late.
//! 4. Records that the kernel could not write into a ring are counted as lost for that processor.
//! 5. Nothing is invented: facts that Linux does not report are left out
//!    (`docs/spec/kernel-events.md`).
//!
//! Only `perf_ring` contains `unsafe` code: the system call, the mapping, the ring's two words.
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

/// Converts `CLOCK_MONOTONIC_RAW` nanoseconds, the clock of perf events, to a session's clocks.
pub trait Clock {
    /// Returns the raw counter value, which puts records in order.
    fn raw(&self, ns: u64) -> u64;
    /// Returns the time on the session's own clock, for times inside payloads.
    fn stamp(&self, ns: u64) -> i64;
    /// Converts a duration to ticks of the performance counter.
    fn ticks(&self, ns: u64) -> u64;
}

/// Returns the ids of this process and thread, the writer of events with no other originator.
pub(crate) fn writer() -> (u32, u32) {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    (std::process::id(), u32::try_from(thread).unwrap_or(0))
}

/// Returns the current `CLOCK_MONOTONIC_RAW` time in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicRaw);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// A test clock whose values all count nanoseconds.
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
