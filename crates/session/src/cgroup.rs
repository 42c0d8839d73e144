//! The control groups of a process, as the system tells them; what they mean is in [`traceweir_format::linux::cgroup`].

use std::fs::File;
use std::io::Read;

pub use traceweir_format::linux::cgroup::{application, container, is_container_id, package};

/// Bytes of a file in `/proc` that are looked at.
const READ: u64 = 64 << 10;

/// The control groups of a process, for the functions below; empty where they cannot be read.
#[must_use]
pub fn of(pid: u32) -> String {
    beginning(&format!("/proc/{pid}/cgroup")).unwrap_or_default()
}

/// The beginning of a file, as much as is ever looked at of one in `/proc`.
#[must_use]
pub fn beginning(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(READ).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
