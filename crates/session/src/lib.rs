//! The session engine: what a session does with records, without sockets.
//!
//! ```text
//!   region of a process ─┐                                   ┌─▶ logfile   sequential, circular, appending, a row, snapshot of a flight recorder
//!   region of a process ─┼─▶ collect ──full buffers──▶ output ┤
//!   region of a process ─┘      ▲ merge: order per processor  └─▶ realtime  queues of live consumers, backlog
//!                               └────────── pool ◀── buffers ──┘
//!   collector thread                          writer thread
//! ```
//!
//! An event that a process offered is in the file, in a consumer's hands, or counted: S1 a record leaves its ring only when it is
//! in a buffer; S2 a buffer that cannot be written or delivered adds its events to a counter; S3 what the processes themselves
//! could not write is read from their regions at each drain and once more when they leave. Where there is no free buffer, records
//! stay in the rings, and the processes count what then finds no room: nobody ever waits for a disk or a consumer but the session.
//!
//! The engine knows no sockets, no names of other sessions and no payloads. It is `forbid(unsafe_code)`: shared memory is
//! touched by `transport` alone.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod capture;
pub mod cgroup;
mod clock;
mod collect;
pub mod config;
mod engine;
pub mod error;
mod fault;
mod flush;
pub mod groups;
pub mod identity;
pub mod info;
mod logfile;
mod merge;
mod modules;
mod open;
mod output;
mod pool;
mod realtime;
mod record;
mod region;
mod sequence;
mod stacks;
mod stats;
mod storage;

#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;

pub use config::Config;
pub use engine::{Attached, Done, Ended, Further, Live, NextFile, Place, Session, SourceId};
pub use error::{Error, Result};
pub use fault::{FAULT, is_contained};
pub use identity::Identity;
pub use open::{LOG_FILE_RIGHTS, create_output, enter, is_trusted_link, open_log_file};
pub use record::Threads;
pub use stacks::StacksOf;
