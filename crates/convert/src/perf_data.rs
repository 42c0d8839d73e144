//! Imports recordings of `perf record` as event traces.
//!
//! ```text
//!   perf.data ──first pass──▶ events, names, build ids, formats of tracepoints; first and last time
//!       │
//!       └──second pass──▶ sorted by time ──▶ sample      ─▶ PerfInfo/SampleProf, StackWalk/Stack
//!                                        ├─▶ sched_*     ─▶ Thread/CSwitch, Thread/ReadyThread
//!                                        ├─▶ tracepoint  ─▶ event that describes itself
//!                                        └─▶ FORK, COMM, EXIT, MMAP ─▶ processes, threads, images
//! ```
//!
//! 1. Stamps of the trace are nanoseconds of the recording's clock. Its wall time is known if the
//!    recording holds clock data (`perf record -k`). Else the recording is taken to end when its
//!    file was last changed, and a note says so.
//! 2. The event that measures CPU time best becomes the sampled profile: `cpu-clock` or
//!    `task-clock`, else `cycles`, else an event with a frequency, else the first one. With a
//!    frequency, a sample weighs as much as its period (`period`). Samples of all other events are
//!    `PerfInfo/PmcCounterProf`, whose source is named at the start.
//! 3. Memory is bounded. The largest parts are, in MiB: records that are sorted 96 (`sort`), buffers
//!    of processors 48 (`output`), formats of tracepoints and events that follow from them 64
//!    (`tracepoint`), stacks of waiting threads 32 (`schedule`), ids of events 36 (`attr`), names of
//!    files 32 (`features`, `images`). Tables of tasks, images and events have at most as many entries
//!    as take 100 more. The first pass reads sections of at most 32 MiB before these parts grow.
//! 4. Nothing in a recording is trusted. A record that is too short for its type is counted and
//!    left out.
//!
//! Not supported: compressed recordings (`-z`), folders of recordings (`--threads`), big-endian
//! machines, hardware traces (`intel_pt`), and unwinding the copies of user stacks that
//! `--call-graph dwarf` records: such a sample gets the user function that was running.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

mod attr;
mod elf;
mod events;
mod features;
mod file;
mod images;
mod importer;
mod output;
mod period;
mod profile;
mod record;
mod schedule;
mod sort;
mod stacks;
mod survey;
mod target;
mod tasks;
#[cfg(test)]
mod tests;
mod tracepoint;

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use traceweir_analysis::observer::ReadObserver;
use traceweir_analysis::text::escape_path;
use traceweir_format::etl::WriteAt;

use self::importer::Importer;
use self::survey::Survey;
use self::target::RecordingFile;
use crate::Conversion;

/// The name that the recording of a folder has.
pub const FILE_IN_FOLDER: &str = "data";

/// The name that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Imports the recording at `path`, and writes the trace to `output`, an empty file. The path `-` is
/// standard input. `observer` receives the progress. A failure to write is an [`OutputError`].
pub fn import(path: &Path, output: File, observer: &dyn ReadObserver) -> Result<Conversion> {
    let failure = Cell::new(None);
    let run = || {
        let (file, modified) = open(path)?;
        let survey = Survey::read(&file, observer)?;
        let recording = RecordingFile { name: path.display().to_string(), modified };
        Importer::new(&file, survey, &recording, Output { file: output, failure: &failure })?.run(observer)
    };
    let conversion = run();
    match failure.take() {
        Some(error) => Err(OutputError(error).into()),
        None => conversion.with_context(|| escape_path(path)),
    }
}

/// A failure to write the trace. Other errors of an import are of the recording.
#[derive(Debug)]
pub struct OutputError(io::Error);

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for OutputError {}

/// The file of the trace. It remembers why it could not be written.
struct Output<'a> {
    file: File,
    failure: &'a Cell<Option<io::Error>>,
}

impl WriteAt for Output<'_> {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> traceweir_format::Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| {
            let reason = error.to_string();
            self.failure.set(Some(error));
            traceweir_format::Error::Io { offset, reason }
        })
    }
}

/// Imports a recording in memory, for tests.
#[doc(hidden)]
pub fn import_bytes(recording: &[u8]) -> Result<(Vec<u8>, Conversion)> {
    let survey = Survey::read(recording, &())?;
    let file = RecordingFile { name: "perf.data".to_owned(), modified: Some(SystemTime::UNIX_EPOCH) };
    let mut trace = Vec::new();
    let conversion = Importer::new(recording, survey, &file, &mut trace)?.run(&())?;
    Ok((trace, conversion))
}

/// Opens a recording, and returns when it was last changed. A pipe is copied to a temporary file,
/// because it has neither a length nor a second pass.
fn open(path: &Path) -> Result<(File, Option<SystemTime>)> {
    let is_standard_input = path.as_os_str() == STANDARD_INPUT;
    let source = if is_standard_input { Path::new("/dev/stdin") } else { path };
    let metadata = source.metadata().context("cannot open")?;
    if metadata.is_dir() {
        return open(&find_in_folder(path)?);
    }
    let kind = metadata.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        bail!("is a device, not a recording of perf");
    }
    let mut file = File::open(source).context("cannot open")?;
    if metadata.is_file() {
        return Ok((file, metadata.modified().ok()));
    }
    let mut copy = tempfile::tempfile().context("cannot create a temporary file")?;
    io::copy(&mut file, &mut copy).context("cannot copy the pipe to a temporary file")?;
    Ok((copy, None))
}

/// Returns the path of the recording in a folder.
fn find_in_folder(folder: &Path) -> Result<PathBuf> {
    let inner = folder.join(FILE_IN_FOLDER);
    if folder.join("data.0").exists() {
        bail!("has a recording of several threads (perf record --threads), which cannot be read");
    }
    if inner.is_file() {
        return Ok(inner);
    }
    if folder.join("perf.data").is_file() {
        bail!("is a folder: name the recording in it, perf.data");
    }
    bail!("is a folder without a recording of perf, whose name would be {FILE_IN_FOLDER}")
}
