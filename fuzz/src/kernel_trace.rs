//! The kernel trace that index files of the view belong to.

#[path = "../../tests/support/kernel_trace.rs"]
mod generator;

use std::io::Result;
use std::path::Path;

use generator::KernelTraceLayout;

/// Only processes, threads and files, so that the index is a small input.
const LAYOUT: KernelTraceLayout =
    KernelTraceLayout { bytes: 1, cpus: 2, processes: 3, threads: 2, name_part: "" };

/// Writes the trace.
pub fn write(path: &Path) -> Result<()> {
    generator::write(path, LAYOUT).map(drop)
}
