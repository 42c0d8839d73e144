//! Code that programs generated at run time, as they list it in `/tmp/perf-PID.map`.
//!
//! Any user can create such a file, so it is used only if it belongs to the user of the process or
//! to the user of this process. Pids are reused, and the file does not identify its process, so the
//! list is reliable only for recent traces.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use traceweir::consumer::open_program;
use traceweir_decode::symbols::{SymbolTable, demangle, listing};

use super::{SymbolFrame, SymbolOptions};

/// Maximum number of processes whose list is searched for.
const MAX_PROCESSES: usize = 1024;
/// Once the lists in memory exceed this size, no further list is read.
const MAX_TOTAL_LIST_BYTES: usize = 256 << 20;
/// Maximum size of a file with a list.
const MAX_LIST_BYTES: u64 = 64 << 20;

/// Returns whether an image path is a name that perf gives to memory without a file, which may
/// contain generated code.
pub(super) fn is_anonymous_memory(path: &str) -> bool {
    ["//anon", "/dev/zero", "/anon_hugepage", "/memfd:", "/SYSV", "[heap", "[stack"]
        .iter()
        .any(|prefix| path.starts_with(prefix))
}

pub(super) struct GeneratedCode {
    by_process: HashMap<u32, Option<SymbolTable>>,
    bytes: usize,
    max_bytes: usize,
}

impl Default for GeneratedCode {
    fn default() -> Self {
        Self { by_process: HashMap::new(), bytes: 0, max_bytes: MAX_TOTAL_LIST_BYTES }
    }
}

impl GeneratedCode {
    pub(super) fn limit_bytes(&mut self, bytes: usize) {
        self.max_bytes = bytes.min(MAX_TOTAL_LIST_BYTES);
    }

    /// Returns the function at an address of a process. `user` is the user of the process, if
    /// known.
    pub(super) fn find_frame(
        &mut self,
        options: &SymbolOptions,
        (process, user): (u32, Option<u32>),
        address: u64,
    ) -> Option<SymbolFrame> {
        if !self.by_process.contains_key(&process) {
            if self.by_process.len() >= MAX_PROCESSES || self.bytes > self.max_bytes {
                return None;
            }
            let list = read_perf_map(options, process, user);
            self.bytes = self.bytes.saturating_add(list.as_ref().map_or(0, SymbolTable::bytes));
            self.by_process.insert(process, list);
        }
        let symbol = self.by_process.get(&process)?.as_ref()?.lookup(address)?;
        Some(SymbolFrame {
            module: Some(map_file_name(process).into()),
            function: Some(Arc::from(demangle(&symbol.text()))),
            offset: address.saturating_sub(symbol.start),
            ..SymbolFrame::default()
        })
    }
}

fn map_file_name(process: u32) -> String {
    format!("perf-{process}.map")
}

fn read_perf_map(options: &SymbolOptions, process: u32, user: Option<u32>) -> Option<SymbolTable> {
    let path = options.local_path(&format!("/tmp/{}", map_file_name(process)));
    let file = open_program(&path)?;
    let metadata = file.metadata().ok()?;
    let is_trusted = metadata.uid() == rustix::process::geteuid().as_raw() || Some(metadata.uid()) == user;
    if !is_trusted || metadata.len() > MAX_LIST_BYTES {
        return None;
    }
    listing::read_perf_map(file).ok()
}
