//! Captures of programs with known behaviour.
//!
//! Most tests need access to tracepoints and are skipped without it. `retry` repeats a test that
//! failed because of other load on the machine or an idle processor: every second attempt keeps all
//! processors busy.

mod config;
mod decoded;
mod image;
mod interrupt;
mod io;
mod memory;
mod process;
mod profile;
#[path = "../../../../tests/support/retry.rs"]
mod retry;
mod schedule;
mod stacks;
mod support;
mod switches;
mod syscall;
