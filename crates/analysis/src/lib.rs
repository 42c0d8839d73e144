//! Analyses event traces, without printing anything.
//!
//! ```text
//!   files, archives ──▶ input ──▶ traces ──┐                        ┌──▶ filter, grep
//!   live session ─────────────────▶ live ──┴──▶ event: an event ────┼──▶ frames: functions of its stack
//!                                    with names, process, schema    └──▶ the caller
//!
//!   kernel events ──▶ report: stacks joined to their events ──▶ rows of tables, call trees, flame graphs
//! ```
//!
//! Reading prints nothing. It passes progress and warnings to a [`ReadObserver`](observer::ReadObserver).
#![forbid(unsafe_code)]

pub mod event;
pub mod filter;
pub mod grep;
pub mod images;
pub mod input;
pub mod live;
pub mod observer;
#[cfg(test)]
#[path = "../../../tests/support/pdb.rs"]
mod pdb_file;
pub mod processes;
pub mod report;
pub mod schema_files;
#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
pub mod symbols;
pub mod text;
pub mod traces;
pub mod user_folders;
