//! The kernel trace that index files of the view belong to.

#[path = "../../tests/support/kernel_trace.rs"]
mod generator;

use std::io::Result;
use std::path::Path;

use generator::KernelTraceLayout;

/// One buffer of events, so that the index is a small input.
const LAYOUT: KernelTraceLayout =
    KernelTraceLayout { bytes: 300 << 10, cpus: 2, processes: 3, threads: 2, name_part: "" };

/// Writes the trace.
pub fn write(path: &Path) -> Result<()> {
    generator::write(path, LAYOUT).map(drop)
}
