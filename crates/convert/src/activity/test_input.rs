//! Traces for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use traceweir_analysis::filter::FilterCriteria;
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::symbols::SymbolOptions;

use crate::ConvertInput;

#[path = "../../../../tests/support/kernel_trace.rs"]
pub(crate) mod kernel_trace;
#[path = "../../../../tests/support/skip.rs"]
mod skip;

use kernel_trace::{KernelTraceLayout, KernelWriter, Switch};

/// The traces of the project that need no further files.
pub(crate) const FIXTURES: [&str; 9] = [
    "tracelogging",
    "eventsource",
    "manifest",
    "kernel",
    "wpp",
    "merged",
    "narrow",
    "undecodable",
    "crashed",
];

/// Returns the path of a trace of the project.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/etl/{name}.etl"))
}

/// Returns the text of the events of a trace of the project, as `weir dump --format jsonl` prints them.
pub(crate) fn expected_events(name: &str) -> Vec<serde_json::Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/expected/{name}.jsonl"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the input of a conversion of whole traces.
pub(crate) fn input(files: &[PathBuf]) -> ConvertInput {
    ConvertInput {
        files: files.to_vec(),
        schemas: SchemaFiles { ignores_programs: true, ..SchemaFiles::default() },
        symbols: SymbolOptions::default(),
        criteria: FilterCriteria::default(),
        observer: Arc::new(()),
    }
}

/// A trace in a folder that is removed with it.
pub(crate) struct TestTrace {
    pub(crate) path: PathBuf,
    _folder: tempfile::TempDir,
}

impl TestTrace {
    /// Writes a trace of two processors.
    pub(crate) fn write(lost_events: u32, write: impl FnOnce(&mut KernelWriter)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.etl");
        let mut writer = KernelWriter::create(&path, 2).unwrap();
        write(&mut writer);
        writer.finish(10_000_000, lost_events).unwrap();
        Self { path, _folder: folder }
    }

    /// Writes a busy trace of about this size.
    pub(crate) fn generate(bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.etl");
        let layout = KernelTraceLayout { bytes, cpus: 2, processes: 5, threads: 4, name_part: "\"</p>\n" };
        kernel_trace::write(&path, layout).unwrap();
        Self { path, _folder: folder }
    }

    /// Writes a file of these bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.etl");
        std::fs::write(&path, bytes).unwrap();
        Self { path, _folder: folder }
    }

    pub(crate) fn input(&self) -> ConvertInput {
        input(std::slice::from_ref(&self.path))
    }
}

/// Returns a recorded trace, if this machine has it.
pub(crate) fn sample_trace(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("TRACEWEIR_SAMPLES").map(PathBuf::from);
    let path = folder.map(|folder| folder.join(name)).filter(|path| path.exists());
    if path.is_none() {
        skip::skip("samples", "the folder with sample traces is absent");
    }
    path
}

/// Writes a trace in which the threads 71 of process 70 and 81 of process 80 take turns on processor 1:
/// thread 71 runs from 100 to 250 and from 300 to 400, and waits in between.
pub(crate) fn write_turns() -> TestTrace {
    TestTrace::write(0, |writer| {
        for (pid, tid, name) in [(70, 71, "first.exe"), (80, 81, "second.exe")] {
            writer.put_process(pid, name, "").unwrap();
            writer.put_thread(pid, tid).unwrap();
        }
        for (time, new_tid, old_tid) in [(100, 71, 81), (250, 81, 71), (300, 71, 81), (400, 81, 71)] {
            let switch = Switch { new_tid, old_tid, old_state: 5, wait_reason: 6 };
            writer.put_switch(1, time, switch).unwrap();
        }
    })
}
