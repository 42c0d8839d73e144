//! The Linux kernel as the system provider: turns perf events into kernel events with the
//! published layouts.
//!
//! ```text
//!   CaptureSettings: groups, stacks, … ──▶ CaptureControl ──opens──▶ perf events of each processor
//!                                                                  │ rings
//!                                                               Capture::poll: all rings in
//!                                                               time order
//!                                                                  │
//!   /proc, connector ──▶ Tasks: processes and threads ◀──────── family/…: one handler for
//!                                                               each perf event
//!                                                                  │ Out
//!   session ◀── queues of finished records, one per stream ◀───────┘
//!               (each event followed by its stacks)
//! ```
//!
//! 1. A capture serves one session, but it does not depend on the session crate: the caller
//!    polls it with [`Capture::poll`] and takes the records of each processor in order.
//! 2. Records are complete except for their time stamp, which the session writes once it has
//!    sorted them. The [`Clock`] passed to each poll converts times inside payloads.
//! 3. Perf records are handled in time order across all processors, so that the state matches the
//!    moment of the event. Records that arrive late are handled late.
//! 4. Records that the kernel could not write into a ring are counted as lost for that processor.
//! 5. Nothing is invented: facts that Linux does not report are left out
//!    (`docs/spec/kernel-events.md`).
//!
//! `targets` and `open_events` choose and open the perf events, `tracefs` describes tracepoints,
//! `perf_ring` maps the rings, `record` parses their records, and `stack` finds call stacks. Only
//! `perf_ring` contains `unsafe` code: the system calls, the mapping, the ring's two words.
#![deny(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

mod activity;
mod attributes;
mod blocking;
mod capture;
mod clock;
mod closing;
mod control;
mod counter;
pub mod error;
mod families;
mod family;
mod groups;
mod kallsyms;
mod maps;
mod open_events;
mod out;
mod per_task;
mod perf_ring;
mod plain;
mod proc;
mod record;
mod scope;
mod settings;
mod spec;
mod stack;
mod targets;
mod tasks;
mod tracefs;

pub use blocking::is_blocking_worker;
pub use capture::Capture;
pub use clock::{Clock, now_ns};
pub use closing::wait_until_closed;
pub use control::CaptureControl;
pub use counter::{Counter, MAX_COUNTERS};
pub use error::{Error, Result};
pub use groups::{Group, Groups};
pub use out::{QueuedRecord, RecordOrigin};
pub use settings::{CaptureScope, CaptureSettings, ProcessTree};
