//! The session engine: collects the records of a session's processes and writes them out.
//!
//! ```text
//!   regions of ─┐                                    ┌─▶ logfile   sequential, circular, append,
//!   processes  ─┼─▶ collect ──full buffers──▶ output ┤             file sequence, snapshot
//!              ─┘      ▲ merge: order per CPU        └─▶ realtime  live consumers, backlog
//!                      └────────── pool ◀── buffers ──┘
//!   collector thread                   writer thread
//! ```
//!
//! Every event that a process writes is written to the file, delivered to a consumer, or counted as
//! lost. Circular files and flight recorders later overwrite their oldest events, which do not
//! count as lost.
//!
//! - S1 A record leaves its ring only when it is in a buffer or counted as lost.
//! - S2 A buffer that cannot be written or delivered adds its events to a counter.
//! - S3 At each drain, the session reads from every region how many events its process could not
//!   write. The last drain of a region comes just before the region is dropped.
//!
//! Without a free buffer, records stay in the rings, and processes count the events that do not
//! fit: only the session ever waits for a disk or a consumer.
//!
//! `engine` has the handle of a session and its threads. `config` and `info` check settings,
//! `identity` and `record` set the ids in records, `region` chooses ring sizes, `capture` takes in
//! kernel events, `stacks` stores equal call stacks once, and `open` and `storage` open and write
//! files.
//!
//! The engine knows no sockets and no names of other sessions. It interprets no payloads except
//! those of the records that name the executables and libraries of providers (`modules`). It is
//! `forbid(unsafe_code)`: only `transport` touches shared memory.
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
pub mod groups;
pub mod identity;
mod ids;
pub mod info;
mod logfile;
mod merge;
mod message_sequence;
mod messages;
mod modules;
mod open;
mod output;
mod pool;
mod process_record;
mod program;
mod realtime;
mod record;
mod region;
mod schedule;
mod shared;
mod stacks;
mod stats;
mod storage;

#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;

pub use config::Config;
pub use engine::{AttachedRegion, Session, StartOptions};
pub use error::{Error, Result};
pub use fault::{FAULT, is_panic_contained};
pub use identity::Identity;
pub use ids::{ConsumerId, RegionId};
pub use messages::{Done, Ended, NextFile, OpenedConsumer, SequenceFile};
pub use open::{LOG_FILE_RIGHTS, check_link, create_output, open_folder, open_log_file};
pub use program::Program;
pub use record::ThreadIdMapping;
pub use stacks::CachedStacks;
