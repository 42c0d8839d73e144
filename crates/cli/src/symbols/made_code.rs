//! Code that programs made while they ran, as they wrote it down in `/tmp/perf-PID.map`.
//!
//! Anybody may put such a file there: it is believed if it belongs to the user of the process, or to whoever asks. Numbers of processes are used again, and
//! nothing in the file says which was meant, so it is for traces that were just made.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use traceweir::consumer::open_program;
use traceweir_decode::symbols::{Table, demangle, listing};

use super::{Frame, Options};

/// Processes whose lists are looked for, and memory for them.
const MAX_PROCESSES: usize = 1024;
const MAX_BYTES: usize = 256 << 20;
/// The longest list.
const MAX_LIST: u64 = 64 << 20;

/// Whether an image is memory that code may have been made in, rather than a file: as perf has it.
pub(super) fn is_made_in(path: &str) -> bool {
    ["//anon", "/dev/zero", "/anon_hugepage", "/memfd:", "/SYSV", "[heap", "[stack"]
        .iter()
        .any(|it| path.starts_with(it))
}

/// Lists of made code.
#[derive(Default)]
pub(super) struct MadeCode {
    by_process: HashMap<u32, Option<Table>>,
    bytes: usize,
}

impl MadeCode {
    /// The function at an address of a process and its user.
    pub(super) fn frame(
        &mut self,
        options: &Options,
        (process, user): (u32, Option<u32>),
        address: u64,
    ) -> Option<Frame> {
        if !self.by_process.contains_key(&process) {
            if self.by_process.len() >= MAX_PROCESSES || self.bytes > MAX_BYTES {
                return None;
            }
            let list = read(options, process, user);
            self.bytes = self.bytes.saturating_add(list.as_ref().map_or(0, Table::bytes));
            self.by_process.insert(process, list);
        }
        let symbol = self.by_process.get(&process)?.as_ref()?.lookup(address)?;
        Some(Frame {
            module: Some(name(process).into()),
            function: Some(Arc::from(demangle(&symbol.text()))),
            offset: address.saturating_sub(symbol.start),
            ..Frame::default()
        })
    }
}

fn name(process: u32) -> String {
    format!("perf-{process}.map")
}

fn read(options: &Options, process: u32, user: Option<u32>) -> Option<Table> {
    let path = options.here(&format!("/tmp/{}", name(process)));
    let file = open_program(&path)?;
    let found = file.metadata().ok()?;
    let is_trusted = found.uid() == rustix::process::geteuid().as_raw() || Some(found.uid()) == user;
    if !is_trusted || found.len() > MAX_LIST {
        return None;
    }
    listing::of_made_code(file).ok()
}
