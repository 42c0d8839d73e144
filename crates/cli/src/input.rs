//! Traces as people have them: plain, in a ZIP archive, or gzip-compressed.
//!
//! Archives are unpacked to a temporary file that has no name any more, so nothing is left behind however the program ends. How far an
//! archive may expand is capped: a bomb is an error.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use traceweir::consumer::TraceFile;
use traceweir_format::etl::Trace;

use crate::export::plain;

/// Unpacked bytes for each packed byte. Traces full of filler reach a few hundred.
const MAX_RATIO: u64 = 1000;
/// Unpacked bytes that are always allowed.
const ALWAYS_ALLOWED: u64 = 64 << 20;

/// One opened trace.
pub(crate) struct Input {
    /// The path as given; the member's name behind it for archives.
    pub(crate) name: String,
    pub(crate) trace: Trace<TraceFile>,
    /// What is wrong with the archive it comes from.
    pub(crate) damage: Option<String>,
}

/// Opens traces; an archive may hold several.
pub(crate) fn open_all(paths: &[PathBuf]) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    for path in paths {
        inputs.extend(open_one(path)?);
    }
    Ok(inputs)
}

/// Opens one path.
pub(crate) fn open_one(path: &Path) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    open(path, &mut inputs).with_context(|| plain(&path.display().to_string()))?;
    Ok(inputs)
}

/// Whether two paths lead to one file, by whatever name.
pub(crate) fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().filter(|m| m.is_file()).map(|m| (m.dev(), m.ino()));
    identity(a).is_some_and(|a| identity(b) == Some(a))
}

/// Opens a file; what fails has its published status, and the system's own words.
fn open_file(path: &Path) -> traceweir::Result<File> {
    File::open(path).map_err(|source| {
        let words = source.to_string();
        let status = traceweir::Error::File { path: path.to_owned(), source }.status();
        traceweir::Error::refused(status, words)
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
        // Reading at offsets needs a real file; what comes through a pipe is stored first.
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
    // One budget for all: members may share their packed bytes, and what they say of their size may be a lie.
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
        bail!("the archive holds no .etl file");
    }
    Ok(())
}

/// How many bytes may still come out of an archive.
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

    fn take(&mut self, bytes: usize) -> Result<()> {
        let Some(left) = self.left.checked_sub(bytes as u64) else {
            bail!("the archive expands to more than {} bytes from {}: refused", self.limit, self.packed);
        };
        self.left = left;
        Ok(())
    }
}

/// An unlinked temporary file, and why it may not be all there is.
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
            // A cut or damaged archive still holds a valid beginning.
            Err(e) if total > 0 => {
                damage = Some(format!("the archive is damaged after {total} unpacked bytes: {e}"));
                break;
            }
            Err(e) => return Err(e).context("cannot unpack"),
        };
        total = total.saturating_add(n as u64);
        budget.take(n)?;
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
