//! Event Trace Log (`.etl`) files as bytes and as structures, in both directions.
//!
//! ```text
//!   bytes ──ReadAt──▶ etl::Trace ──▶ one buffer per CPU ──▶ etl::Events ──▶ Record (borrowed)
//!   Record ◀── header::{system, perfinfo, classic, event, message} ◀── buffer::Records
//!   structures ──▶ etl::Writer ──▶ bytes
//! ```
//!
//! | Modules | Content |
//! |---|---|
//! | `etl`, `buffer`, `logfile`, `header`, `time` | files, buffers, headers, records, clocks |
//! | `kernel`, `stack_walk`, `stack_key` | payloads of kernel events, and call stacks |
//! | `binary_path` | the event that names the binary of a provider |
//! | `dotnet` | the events of the .NET runtime that name generated code |
//! | `tracelogging` | schemas that events carry, traits of providers |
//! | `filter`, `info`, `security` | filters, information classes, access lists |
//! | `linux` | process information of procfs; states of threads, addresses of programs |
//! | `spec` | published constants |
//! | `lznt1`, `xpress` | compression |
//! | `guid`, `text`, `wire`, `error` | GUIDs, text, reading and writing of numbers, errors |
//!
//! The crate opens no file, starts no thread and reads no clock: callers supply bytes through
//! [`etl::ReadAt`] and receive bytes from [`etl::Writer`]. Every layout is defined once, for
//! reader, writer and tests. All input is treated as hostile: wrong sizes are errors with an
//! offset, never panics.
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod binary_path;
pub mod buffer;
pub mod dotnet;
pub mod error;
pub mod etl;
pub mod filter;
pub mod guid;
pub mod header;
pub mod info;
pub mod kernel;
pub mod linux;
pub mod logfile;
pub mod lznt1;
pub mod name_pattern;
pub mod record_batch;
pub mod security;
pub mod spec;
pub mod stack_key;
pub mod stack_walk;
pub mod text;
pub mod time;
pub mod tracelogging;
pub mod wire;
pub mod xpress;

pub use error::{Error, Result};
pub use guid::Guid;
pub use header::Record;
