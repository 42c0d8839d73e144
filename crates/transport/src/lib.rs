//! Communication between processes: rings in shared memory, control messages over a Unix socket,
//! and the counter that both sides read.
//!
//! ```text
//!   provider process                            owner: the daemon, or the same process for a
//!   ────────────────                            private session
//!                                               ────────────────────────────────────────────
//!   ring::Outlet ──records──▶ region (memory file) ──▶ ring::RegionReader ──▶ session
//!        └──────── wake (eventfd) ─────────────────▶
//!   socket::Connection ◀──── message::Message, descriptors, peer identity ────▶ socket::Listener
//!
//!   consumer process
//!   live::QueueReader ◀── finished buffers (memory file, read only) ── live::QueueWriter
//! ```
//!
//! `abi` defines the layout of a region, `map` maps it, `clock` reads the counter, and `cpu` counts
//! the CPUs. `runtime` has the folders in which daemons and providers find each other, `enabled`
//! the file of enabled providers, and `inherited` closes descriptors that a daemon inherited.
//!
//! This crate does not know what an event means: a record is bytes with a length and a stamp.
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(windows)]
compile_error!(
    "sessions and the daemon run on Linux only; on Windows, use the providers of crate `traceweir`"
);

pub mod abi;
pub mod clock;
pub mod cpu;
#[cfg(not(loom))]
pub mod enabled;
pub mod error;
pub mod inherited;
pub mod live;
pub mod map;
pub mod message;
mod random;
pub mod ring;
pub mod runtime;
#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
pub mod socket;
mod sync;

pub use error::{Error, Result};
