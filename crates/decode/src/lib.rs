//! Decodes event payloads: finds the schema of an event and walks its payload.
//!
//! ```text
//!   Record ──▶ source::Decoder ──▶ &Schema ──▶ Walker::walk ──▶ Visitor (value, array, struct)
//!                   ▲                                              │
//!   TraceLogging metadata · manifests in the trace, in XML,        ▼
//!   PE and ELF files · embedded schemas · kernel tables · WPP  format::{text, json}
//! ```
//!
//! A [`schema::Schema`] is the one model that all sources produce. The decoder finds it once for
//! each kind of event; the walker then visits each payload without copying it. [`tdh`] answers the
//! queries of tdh.h from schemas; [`expand`] and [`message`] build the messages of events. For
//! whole traces, [`actors`] finds the processes and threads of events, [`stack`] joins call stacks
//! to their events, [`managed_code`] names the code that the .NET runtime generated, and `symbols`
//! finds the functions of addresses.
//!
//! Everything from a file is hostile: schemas are checked when they are built and payloads while
//! they are walked. An event that cannot be decoded is reported with the reason, as [`Undecoded`].
#![forbid(unsafe_code)]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

pub mod actors;
pub mod error;
pub mod expand;
pub mod format;
pub mod managed_code;
pub mod message;
#[cfg(test)]
#[path = "../../../tests/support/pdb.rs"]
mod pdb_file;
pub mod plain;
pub mod schema;
#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
pub mod source;
pub mod stack;
#[cfg(feature = "symbols")]
pub mod symbols;
pub mod tdh;
pub mod value;
pub mod walk;

pub use error::{Error, Result, Undecoded};
pub use schema::Schema;
pub use source::Decoder;
