//! Disk, file and network events of programs of known behaviour: an extra, which needs the right to open tracepoints.
//!
//! Others use this machine at the same time: what is counted is told apart by thread, file, port or size.

mod disk;
mod file;
mod network;
mod support;
