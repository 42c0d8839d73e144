//! Analyses event traces, without printing anything.
//!
//! ```text
//!   files, archives ─▶ input ─▶ traces ─┐                     ┌─▶ selection: filter, grep, number
//!   live session ──────────────▶ live ──┴─▶ event: schema, ───┼─▶ frames: functions of its stack
//!                                           names, process    └─▶ the caller
//!
//!   kernel events ─▶ report: joined with stacks ─▶ rows of tables, call trees, flame graphs
//! ```
//!
//! Reading prints nothing. It passes progress and warnings to a
//! [`ReadObserver`](observer::ReadObserver).
#![forbid(unsafe_code)]

pub mod event;
pub mod filter;
pub mod frames;
pub mod grep;
pub mod hosts;
pub mod images;
pub mod input;
pub mod live;
pub mod mark;
pub mod observer;
pub mod pairs;
#[cfg(test)]
#[path = "../../../tests/support/pdb.rs"]
mod pdb_file;
pub mod processes;
pub mod report;
pub mod schema_files;
pub mod selection;
#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
pub mod symbols;
pub mod text;
pub mod traces;
pub mod undecoded;
pub mod user_folders;
