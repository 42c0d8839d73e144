//! Disk, file and network events of programs with known behaviour. These tests need access to
//! tracepoints.
//!
//! Other processes use this machine at the same time, so the tests select their own events by
//! thread, file, port or size.

mod disk;
mod file;
mod network;
mod support;
