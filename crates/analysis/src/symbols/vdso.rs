//! The vDSO, the code that the kernel maps into each process.
//!
//! The vDSO is not a file. The vDSO of this process is used only if it has the same build id as the
//! vDSO in the trace.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor};
use std::os::unix::fs::FileExt;

use traceweir_decode::symbols::Elf;
use traceweir_decode::symbols::elf::ElfParts;

use crate::images::DebugId;

/// Maximum size; a vDSO has a few pages.
const MAX_VDSO_BYTES: u64 = 1 << 20;
/// The name of the vDSO in `/proc/PID/maps`.
const VDSO_NAME: &str = "[vdso]";

pub(super) fn is_vdso(path: &str) -> bool {
    path == VDSO_NAME
}

/// Reads the vDSO of this process, if it has the build id `id`.
pub(super) fn read_matching(id: &DebugId) -> Option<Elf> {
    let bytes = read_bytes()?;
    let parts = ElfParts { symbols: true, dwarf: false };
    Elf::read(Cursor::new(bytes), parts, |identity| id.matches_build_id(&identity.build_id)).ok()?
}

/// Returns the bytes of the vDSO in this process.
pub(super) fn read_bytes() -> Option<Vec<u8>> {
    let lines = BufReader::new(File::open("/proc/self/maps").ok()?).lines();
    let line = lines.map_while(Result::ok).find(|line| line.ends_with(VDSO_NAME))?;
    let (from, to) = line.split_once(' ')?.0.split_once('-')?;
    let from = u64::from_str_radix(from, 16).ok()?;
    let length =
        u64::from_str_radix(to, 16).ok()?.checked_sub(from).filter(|length| *length <= MAX_VDSO_BYTES)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, from).ok()?;
    Some(bytes)
}
