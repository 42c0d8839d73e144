//! Reads the control groups of a process. [`traceweir_format::linux::cgroup`] interprets them.

use std::fs::File;
use std::io::Read;

pub use traceweir_format::linux::cgroup::{application, container, is_container_id, package};

/// The most bytes that are read of a file in `/proc`.
const MAX_READ_BYTES: u64 = 64 << 10;

/// Returns the text of `/proc/PID/cgroup`, for the functions re-exported here; empty if the file
/// cannot be read.
#[must_use]
pub fn read(pid: u32) -> String {
    read_limited(&format!("/proc/{pid}/cgroup")).unwrap_or_default()
}

/// Reads the first 64 KiB of a file, as text.
#[must_use]
pub fn read_limited(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_READ_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
