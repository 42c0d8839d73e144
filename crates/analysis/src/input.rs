//! Opens traces: plain, in a ZIP archive, or gzip-compressed.
//!
//! Archives are unpacked to an unlinked temporary file, which the system removes however the
//! program ends. The size of an unpacked archive is limited: a decompression bomb is an error.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, bail};
use traceweir::consumer::TraceFile;
use traceweir_format::etl::Trace;

use crate::text::{escape, format_count, format_number};

/// Maximum ratio of unpacked to packed bytes. Traces with much padding reach a few hundred.
const MAX_UNPACK_RATIO: u64 = 1000;
/// Unpacked size that is allowed for every archive.
const MIN_UNPACK_LIMIT_BYTES: u64 = 64 << 20;

/// Size of the chunks in which data is unpacked.
const CHUNK_BYTES: usize = 256 << 10;

/// Number of bytes that decide whether a file is a text.
const TEXT_SAMPLE_BYTES: usize = 512;

/// First bytes of a recording of `perf record`.
const PERF_MAGIC: &[u8] = b"PERFILE2";

/// Data of standard input, if it is a pipe. A command that reads traces twice gets the same data.
static STORED_PIPE: Mutex<Option<File>> = Mutex::new(None);

/// One opened trace.
pub struct TraceInput {
    /// The path, escaped for display; for a ZIP archive followed by `:` and the name of the member.
    pub name: String,
    /// The trace.
    pub trace: Trace<TraceFile>,
    /// Whether the trace was copied from an archive or a pipe.
    pub is_unpacked: bool,
    /// Damage of the archive that contained the trace.
    pub damage: Option<String>,
}

/// Opens traces; an archive may contain several.
pub fn open_paths(paths: &[PathBuf]) -> Result<Vec<TraceInput>> {
    let mut inputs = Vec::new();
    for path in paths {
        inputs.extend(open_path(path)?);
    }
    Ok(inputs)
}

/// Opens the trace at a path, or the traces of an archive. The path `-` is standard input.
pub fn open_path(path: &Path) -> Result<Vec<TraceInput>> {
    let mut inputs = Vec::new();
    open_into(path, &mut inputs).with_context(|| escape(&path.display().to_string()))?;
    Ok(inputs)
}

/// A trace that cannot be opened.
#[derive(Debug)]
pub struct OpenError {
    /// Path of the trace. The message does not contain it, because [`open_path`] adds it.
    pub path: PathBuf,
    error: traceweir::Error,
}

impl OpenError {
    /// Returns the Win32 status of the error.
    pub fn status(&self) -> traceweir::Status {
        self.error.status()
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// A file that is a recording of `perf record`, not a trace.
#[derive(Debug)]
pub struct PerfRecordingError {
    /// Path of the recording. The message does not contain it, because [`open_path`] adds it.
    pub path: PathBuf,
}

impl fmt::Display for PerfRecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("is a recording of perf, not a trace")
    }
}

impl std::error::Error for PerfRecordingError {}

/// Opens a file. An error has the Win32 status of the failed open, but not the path in its message:
/// `open_path` adds the path.
fn open_file(path: &Path) -> traceweir::Result<File> {
    File::open(path).map_err(|source| {
        let message = source.to_string();
        let status = traceweir::Error::File { path: path.to_owned(), source }.status();
        traceweir::Error::refused(status, message)
    })
}

fn open_into(path: &Path, inputs: &mut Vec<TraceInput>) -> Result<()> {
    let is_standard_input = path.as_os_str() == "-";
    let file = open_file(if is_standard_input { Path::new("/dev/stdin") } else { path });
    let mut file = file.map_err(|error| OpenError { path: path.to_owned(), error })?;
    if file.metadata()?.is_dir() {
        bail!("is a folder; name the traces in it");
    }
    if file.metadata()?.file_type().is_char_device() || file.metadata()?.file_type().is_block_device() {
        bail!("is a device, not a trace");
    }
    let is_pipe = !file.metadata()?.is_file();
    if is_pipe && is_standard_input {
        let mut stored = STORED_PIPE.lock().unwrap_or_else(PoisonError::into_inner);
        if stored.is_none() {
            *stored = Some(store_pipe(file)?);
        }
        file = stored.as_ref().context("cannot read standard input")?.try_clone()?;
    } else if is_pipe {
        file = store_pipe(file)?;
    }
    file.seek(SeekFrom::Start(0))?;
    let mut magic = [0; 8];
    let magic_len = read_up_to(&mut file, &mut magic)?;
    file.seek(SeekFrom::Start(0))?;
    let name = escape(&path.display().to_string());
    match magic.get(..magic_len).unwrap_or_default() {
        [b'P', b'K', 3 | 5, ..] => open_zip(file, &name, inputs),
        [0x1F, 0x8B, ..] => {
            let mut budget = UnpackBudget::new(file.metadata()?.len());
            let unpacked = unpack(flate2::read::MultiGzDecoder::new(file), &mut budget)?;
            let damage = unpacked.archive_damage();
            let trace = open_trace(unpacked.file)?;
            inputs.push(TraceInput { name, trace, is_unpacked: true, damage });
            Ok(())
        }
        PERF_MAGIC => Err(PerfRecordingError { path: path.to_owned() }.into()),
        _ => {
            let trace = open_trace(file)?;
            inputs.push(TraceInput { name, trace, is_unpacked: is_pipe, damage: None });
            Ok(())
        }
    }
}

/// Stores the data of a pipe, because random access needs a regular file.
fn store_pipe(pipe: File) -> Result<File> {
    let UnpackedFile { file, failure } = unpack(pipe, &mut UnpackBudget::unlimited())?;
    if let Some(ReadFailure { total_bytes, error }) = failure {
        bail!("reading failed after {}: {error}", format_count(total_bytes, "byte"));
    }
    Ok(file)
}

/// Opens a trace. The error for an empty file or a text file says what the file is.
fn open_trace(file: File) -> Result<Trace<TraceFile>> {
    let mut content = file.try_clone()?;
    Trace::open(file.into()).map_err(|error| match describe_other_content(&mut content) {
        Ok(Some(description)) => anyhow!("{description}"),
        _ => error.into(),
    })
}

/// Describes a file that is empty or that begins with text; `None` for other content.
fn describe_other_content(file: &mut File) -> io::Result<Option<&'static str>> {
    let mut start = [0; TEXT_SAMPLE_BYTES];
    file.seek(SeekFrom::Start(0))?;
    let length = read_up_to(file, &mut start)?;
    let start = start.get(..length).unwrap_or_default();
    // The sample may end within a character.
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(start.get(..error.valid_up_to()).unwrap_or_default()).unwrap_or_default()
        }
        Err(_) => return Ok(None),
    };
    let is_text = !text.is_empty() && !text.contains(|c: char| c.is_control() && !c.is_ascii_whitespace());
    Ok(match length {
        0 => Some("the file is empty"),
        _ if is_text => Some("is a text file, not a trace"),
        _ => None,
    })
}

fn open_zip(file: File, name: &str, inputs: &mut Vec<TraceInput>) -> Result<()> {
    // All members share one budget: they may share packed bytes, and their declared sizes are not
    // trusted.
    let mut budget = UnpackBudget::new(file.metadata()?.len());
    let mut archive = zip::ZipArchive::new(file).context("unreadable ZIP archive")?;
    let old_count = inputs.len();
    for index in 0..archive.len() {
        let member = archive.by_index(index).context("unreadable ZIP member")?;
        let member_name = escape(&member.name().context("unreadable ZIP member")?);
        if !member_name.to_ascii_lowercase().ends_with(".etl") {
            continue;
        }
        let unpacked = unpack(member, &mut budget).with_context(|| member_name.clone())?;
        let damage = unpacked.archive_damage();
        let trace = open_trace(unpacked.file).with_context(|| member_name.clone())?;
        let name = format!("{name}:{member_name}");
        inputs.push(TraceInput { name, trace, is_unpacked: true, damage });
    }
    if inputs.len() == old_count {
        bail!("the archive contains no .etl file");
    }
    Ok(())
}

/// The number of bytes that may still be unpacked from an archive.
struct UnpackBudget {
    packed_bytes: u64,
    limit_bytes: u64,
    remaining_bytes: u64,
}

impl UnpackBudget {
    fn new(packed_bytes: u64) -> Self {
        let limit_bytes = packed_bytes.saturating_mul(MAX_UNPACK_RATIO).max(MIN_UNPACK_LIMIT_BYTES);
        Self { packed_bytes, limit_bytes, remaining_bytes: limit_bytes }
    }

    const fn unlimited() -> Self {
        Self { packed_bytes: u64::MAX, limit_bytes: u64::MAX, remaining_bytes: u64::MAX }
    }

    fn spend(&mut self, bytes: usize) -> Result<()> {
        let Some(remaining) = self.remaining_bytes.checked_sub(bytes as u64) else {
            bail!(
                "refusing the archive: it expands to more than {} from {}",
                format_count(self.limit_bytes, "byte"),
                format_number(self.packed_bytes)
            );
        };
        self.remaining_bytes = remaining;
        Ok(())
    }
}

/// An unlinked temporary file, and the reason if it is incomplete.
struct UnpackedFile {
    file: File,
    failure: Option<ReadFailure>,
}

struct ReadFailure {
    /// Number of bytes that were unpacked before the failure.
    total_bytes: u64,
    error: io::Error,
}

impl UnpackedFile {
    /// Describes the failure as damage of the archive that the file was unpacked from.
    fn archive_damage(&self) -> Option<String> {
        let ReadFailure { total_bytes, error } = self.failure.as_ref()?;
        let unpacked = format_count(*total_bytes, "unpacked byte");
        Some(format!("the archive is damaged: reading failed after {unpacked}: {error}"))
    }
}

/// Copies the data of an archive or pipe to an unlinked temporary file, within the budget.
fn unpack(mut from: impl Read, budget: &mut UnpackBudget) -> Result<UnpackedFile> {
    let mut to = tempfile::tempfile().context("cannot create a temporary file")?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut total_bytes = 0_u64;
    let mut failure = None;
    loop {
        let n = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            // A truncated or damaged archive still has a valid beginning.
            Err(error) if total_bytes > 0 => {
                failure = Some(ReadFailure { total_bytes, error });
                break;
            }
            Err(e) => return Err(e).context("reading failed"),
        };
        total_bytes = total_bytes.saturating_add(n as u64);
        budget.spend(n)?;
        to.write_all(chunk.get(..n).unwrap_or_default()).context("cannot write the temporary file")?;
    }
    Ok(UnpackedFile { file: to, failure })
}

fn read_up_to(file: &mut File, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match file.read(buf.get_mut(filled..).unwrap_or_default())? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}
