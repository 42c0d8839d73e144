//! Captures of programs with known behaviour.
//!
//! Most tests need access to tracepoints and are skipped without it.

#[path = "../../../../tests/support/again.rs"]
mod again;
mod config;
mod decoded;
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
