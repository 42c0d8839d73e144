//! Reads which addresses a program has in memory, from the headers of its ELF file.
//!
//! ```text
//!   header 00 7F "ELF" │ 04 class 2 │ 05 byte order 1 │ 20 program headers │ 36 size │ 38 count
//!   program header 00 type │ 04 flags │ 08 offset │ 10 address │ 20 bytes in the file
//! ```
//!
//! Only 64-bit little-endian files are read. Source: elf(5).

use std::fs::File;

use traceweir_format::etl::ReadAt;
use traceweir_format::linux::image::{ImageLayout, Segment};
use traceweir_format::wire::{u16_at, u32_at, u64_at};

use traceweir_decode::symbols::elf::find_build_id;

use super::features::{BuildId, pad_build_id};

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;
const MAX_PROGRAM_HEADERS: u16 = 512;
const MAX_NOTE_BYTES: u64 = 64 << 10;
const LOADED: u32 = 1;
const NOTES: u32 = 4;
const EXECUTABLE: u32 = 1;
/// The smallest page size.
const PAGE_BYTES: u64 = 4096;

/// The segments of a program, and its build id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) build_id: Option<BuildId>,
    segments: Vec<Segment>,
}

fn read_bytes(file: &File, offset: u64, count: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(count).ok()?];
    let read = file.read_at(offset, &mut bytes).ok()?;
    (read == bytes.len()).then_some(bytes)
}

impl Program {
    /// Reads the headers of a file; `None` if it is no ELF file of the supported form.
    pub(super) fn read(file: &File) -> Option<Self> {
        let header = read_bytes(file, 0, HEADER_BYTES as u64)?;
        let [0x7F, b'E', b'L', b'F', 2, 1, ..] = header.as_slice() else { return None };
        let count = u16_at(&header, 0x38).min(MAX_PROGRAM_HEADERS);
        if u64::from(u16_at(&header, 0x36)) != PROGRAM_HEADER_BYTES {
            return None;
        }
        let size = PROGRAM_HEADER_BYTES.checked_mul(count.into())?;
        let list = read_bytes(file, u64_at(&header, 0x20), size)?;
        let mut program = Self::default();
        for entry in list.chunks_exact(PROGRAM_HEADER_BYTES as usize) {
            let (offset, length) = (u64_at(entry, 8), u64_at(entry, 0x20));
            match u32_at(entry, 0) {
                LOADED if length > 0 => {
                    let is_code = u32_at(entry, 4) & EXECUTABLE != 0;
                    program.segments.push(Segment { address: u64_at(entry, 0x10), offset, length, is_code });
                }
                NOTES if program.build_id.is_none() && length <= MAX_NOTE_BYTES => {
                    let notes = read_bytes(file, offset, length).unwrap_or_default();
                    program.build_id = find_build_id(&notes).and_then(pad_build_id);
                }
                _ => {}
            }
        }
        Some(program)
    }

    /// Returns the layout of the image of which the bytes from file offset `offset` are mapped at
    /// `start`; `None` if the headers describe no such image.
    pub(super) fn find_layout(&self, start: u64, offset: u64) -> Option<ImageLayout> {
        ImageLayout::from_segments(&self.segments, PAGE_BYTES, start, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_program_has_segments_and_damage_causes_no_panic() {
        let path = std::env::current_exe().unwrap();
        let program = Program::read(&File::open(&path).unwrap()).unwrap();
        assert!(program.segments.iter().any(|segment| segment.is_code));
        let bytes = std::fs::read(&path).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let damaged_path = folder.path().join("damaged");
        for at in (0..0x200).step_by(3) {
            let mut damaged = bytes[..0x1000].to_vec();
            damaged[at] ^= 0xFF;
            std::fs::write(&damaged_path, &damaged).unwrap();
            if let Some(program) = Program::read(&File::open(&damaged_path).unwrap()) {
                let _ = program.find_layout(u64::MAX, u64::MAX);
                let _ = program.find_layout(0x7F00_0000_0000, 0x1000);
            }
        }
    }
}
