//! Opens traces: plain, in a ZIP archive, or gzip-compressed.
//!
//! Archives are unpacked to an unlinked temporary file, so nothing is left however the program
//! ends. The size of an unpacked archive is limited: a decompression bomb is an error.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use traceweir::consumer::TraceFile;
use traceweir_format::etl::Trace;

use crate::text::plain;

/// Maximum ratio of unpacked to packed bytes. Traces with much padding reach a few hundred.
const MAX_RATIO: u64 = 1000;
/// Unpacked bytes that are always allowed.
const ALWAYS_ALLOWED: u64 = 64 << 20;

/// One opened trace.
pub(crate) struct Input {
    /// The path as given, followed by the name of the member for archives.
    pub(crate) name: String,
    pub(crate) trace: Trace<TraceFile>,
    /// Damage of the archive it comes from.
    pub(crate) damage: Option<String>,
}

/// Opens traces; an archive may contain several.
pub(crate) fn open_all(paths: &[PathBuf]) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    for path in paths {
        inputs.extend(open_one(path)?);
    }
    Ok(inputs)
}

/// Opens the traces of one path.
pub(crate) fn open_one(path: &Path) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    open(path, &mut inputs).with_context(|| plain(&path.display().to_string()))?;
    Ok(inputs)
}

/// Returns whether two paths lead to the same file.
pub(crate) fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().filter(|m| m.is_file()).map(|m| (m.dev(), m.ino()));
    identity(a).is_some_and(|a| identity(b) == Some(a))
}

/// Opens a file. An error has its documented status, and the message of the system.
fn open_file(path: &Path) -> traceweir::Result<File> {
    File::open(path).map_err(|source| {
        let message = source.to_string();
        let status = traceweir::Error::File { path: path.to_owned(), source }.status();
        traceweir::Error::refused(status, message)
    })
}

fn open(path: &Path, inputs: &mut Vec<Input>) -> Result<()> {
    let standard_input = path.as_os_str() == "-";
    let mut file = open_file(if standard_input { Path::new("/dev/stdin") } else { path })?;
    if file.metadata()?.is_dir() {
        bail!("is a folder; name the traces in it");
    }
    if file.metadata()?.file_type().is_char_device() || file.metadata()?.file_type().is_block_device() {
        bail!("is a device, not a trace");
    }
    if !file.metadata()?.is_file() {
        // Random access needs a regular file, so data from a pipe is stored first.
        let stored = unpack(file, &mut Budget::new(u64::MAX))?;
        if let Some(damage) = stored.damage {
            bail!("cannot be read to its end: {damage}");
        }
        file = stored.file;
    }
    file.seek(SeekFrom::Start(0))?;
    let mut magic = [0; 4];
    let got = read_up_to(&mut file, &mut magic)?;
    file.seek(SeekFrom::Start(0))?;
    let name = plain(&path.display().to_string());
    match magic.get(..got).unwrap_or_default() {
        [b'P', b'K', 3 | 5, ..] => open_zip(file, &name, inputs),
        [0x1F, 0x8B, ..] => {
            let mut budget = Budget::new(file.metadata()?.len());
            let unpacked = unpack(flate2::read::MultiGzDecoder::new(file), &mut budget)?;
            inputs.push(Input { name, trace: Trace::open(unpacked.file.into())?, damage: unpacked.damage });
            Ok(())
        }
        _ => {
            inputs.push(Input { name, trace: Trace::open(file.into())?, damage: None });
            Ok(())
        }
    }
}

fn open_zip(file: File, name: &str, inputs: &mut Vec<Input>) -> Result<()> {
    // One budget for all members: they may share packed bytes, and their declared sizes are not
    // trusted.
    let mut budget = Budget::new(file.metadata()?.len());
    let mut archive = zip::ZipArchive::new(file).context("unreadable ZIP archive")?;
    let before = inputs.len();
    for index in 0..archive.len() {
        let member = archive.by_index(index).context("unreadable ZIP member")?;
        let member_name = plain(&member.name().context("unreadable ZIP member")?);
        if !member_name.to_ascii_lowercase().ends_with(".etl") {
            continue;
        }
        let unpacked = unpack(member, &mut budget).with_context(|| member_name.clone())?;
        let trace = Trace::open(unpacked.file.into()).with_context(|| member_name.clone())?;
        inputs.push(Input { name: format!("{name}:{member_name}"), trace, damage: unpacked.damage });
    }
    if inputs.len() == before {
        bail!("the archive contains no .etl file");
    }
    Ok(())
}

/// The number of bytes that may still be unpacked from an archive.
struct Budget {
    packed: u64,
    limit: u64,
    left: u64,
}

impl Budget {
    fn new(packed: u64) -> Self {
        let limit = packed.saturating_mul(MAX_RATIO).max(ALWAYS_ALLOWED);
        Self { packed, limit, left: limit }
    }

    fn spend(&mut self, bytes: usize) -> Result<()> {
        let Some(left) = self.left.checked_sub(bytes as u64) else {
            bail!("refusing the archive: it expands to more than {} bytes from {}", self.limit, self.packed);
        };
        self.left = left;
        Ok(())
    }
}

/// An unlinked temporary file, and why it may be incomplete.
struct Unpacked {
    file: File,
    damage: Option<String>,
}

/// Copies to an unlinked temporary file, within the budget.
fn unpack(mut from: impl Read, budget: &mut Budget) -> Result<Unpacked> {
    let mut to = tempfile::tempfile().context("cannot create a temporary file")?;
    let mut piece = vec![0; 256 << 10];
    let mut total = 0_u64;
    let mut damage = None;
    loop {
        let n = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            // A truncated or damaged archive still has a valid beginning.
            Err(e) if total > 0 => {
                damage = Some(format!("the archive is damaged after {total} unpacked bytes: {e}"));
                break;
            }
            Err(e) => return Err(e).context("cannot unpack"),
        };
        total = total.saturating_add(n as u64);
        budget.spend(n)?;
        to.write_all(piece.get(..n).unwrap_or_default()).context("cannot store the unpacked trace")?;
    }
    Ok(Unpacked { file: to, damage })
}

fn read_up_to(file: &mut File, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read(buf.get_mut(done..).unwrap_or_default())? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}
