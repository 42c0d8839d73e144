//! Fuzzes the index files of `weir view`: an index of a small trace is opened, and asked every
//! question. Answers stay small, whatever the index describes.
#![no_main]

use std::fs::File;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use tempfile::NamedTempFile;
use traceweir_fuzz::kernel_trace;
use traceweir_view::probe::ask_index;

/// The largest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 10 << 20;

fn open_trace() -> File {
    static TRACE: OnceLock<NamedTempFile> = OnceLock::new();
    let trace = TRACE.get_or_init(|| {
        let trace = NamedTempFile::new().expect("a temporary file can be created");
        kernel_trace::write(trace.path()).expect("the trace can be written");
        trace
    });
    trace.reopen().expect("the trace can be opened")
}

fuzz_target!(|data: &[u8]| {
    let answered = ask_index(open_trace(), data.to_vec()).expect("the trace is valid");
    if let Some(largest) = answered {
        assert!(largest <= MAX_ANSWER_BYTES, "an answer has {largest} bytes");
    }
});
