//! The code that the kernel puts into each process.
//!
//! It is no file: this process has one of its own, which is the same as that of a trace if the build ids are. Where a trace tells none, nothing says that it is.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor};
use std::os::unix::fs::FileExt;

use traceweir_decode::symbols::Elf;
use traceweir_decode::symbols::elf::Parts;

use super::module::is_build;
use crate::images::DebugId;

/// The largest one; it has a few pages.
const MAX_BYTES: u64 = 1 << 20;
/// What the kernel calls it.
const NAME: &str = "[vdso]";

/// Whether an image is that code.
pub(super) fn is_one(path: &str) -> bool {
    path == NAME
}

/// The one of this process, if it is that of the trace.
pub(super) fn own(id: &DebugId) -> Option<Elf> {
    let bytes = bytes()?;
    let parts = Parts { symbols: true, dwarf: false };
    Elf::read(Cursor::new(bytes), parts, |identity| is_build(&identity.build_id, id)).ok()?
}

/// The memory of this process where it lies.
pub(super) fn bytes() -> Option<Vec<u8>> {
    let lines = BufReader::new(File::open("/proc/self/maps").ok()?).lines();
    let line = lines.map_while(Result::ok).find(|line| line.ends_with(NAME))?;
    let (from, to) = line.split_once(' ')?.0.split_once('-')?;
    let from = u64::from_str_radix(from, 16).ok()?;
    let length = u64::from_str_radix(to, 16).ok()?.checked_sub(from).filter(|it| *it <= MAX_BYTES)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, from).ok()?;
    Some(bytes)
}
