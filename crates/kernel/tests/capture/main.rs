//! Real captures of programs of known behaviour.
//!
//! Most tests need the right to open tracepoints and are skipped without it.

#[path = "../../../../tests/support/again.rs"]
mod again;
mod config;
mod image;
mod interrupt;
mod io;
mod memory;
mod process;
mod profile;
mod schedule;
mod stacks;
mod support;
mod switches;
mod syscall;
mod told;
