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
use traceweir_format::wire::{u16_at, u32_at, u64_at};

use traceweir_decode::symbols::elf::find_build_id;

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
    pub(super) build_id: Vec<u8>,
    segments: Vec<Segment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    offset: u64,
    length: u64,
    is_code: bool,
}

/// Address range of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImageLayout {
    /// The address of the file's first byte, whether it is mapped or not.
    pub(super) base: u64,
    pub(super) size: u64,
    /// The base that the headers of the file request.
    pub(super) default_base: u64,
}

const fn page_start(address: u64) -> u64 {
    address & !PAGE_BYTES.wrapping_sub(1)
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
                NOTES if program.build_id.is_empty() && length <= MAX_NOTE_BYTES => {
                    let notes = read_bytes(file, offset, length).unwrap_or_default();
                    program.build_id = find_build_id(&notes).unwrap_or_default().to_vec();
                }
                _ => {}
            }
        }
        Some(program)
    }

    /// Returns the layout of the image of which the bytes from file offset `offset` are mapped at
    /// `start`; `None` if the headers describe no such image.
    pub(super) fn find_layout(&self, start: u64, offset: u64) -> Option<ImageLayout> {
        let contains_offset = |segment: &&Segment| {
            page_start(segment.offset) <= offset && offset < segment.offset.saturating_add(segment.length)
        };
        let code = self.segments.iter().filter(|segment| segment.is_code).find(contains_offset);
        let segment = code.or_else(|| self.segments.iter().find(contains_offset))?;
        let lowest = self.segments.iter().min_by_key(|segment| segment.address)?;
        let default_base = page_start(lowest.address).checked_sub(page_start(lowest.offset))?;
        let in_segment = offset.checked_sub(page_start(segment.offset))?;
        let from_base = page_start(segment.address).checked_add(in_segment)?.checked_sub(default_base)?;
        let base = start.checked_sub(from_base)?;
        let ends = self.segments.iter().map(|segment| segment.address.saturating_add(segment.length));
        let end = page_start(ends.max()?.checked_add(PAGE_BYTES.wrapping_sub(1))?);
        let size = end.checked_sub(default_base)?;
        base.checked_add(size)?;
        Some(ImageLayout { base, size, default_base })
    }
}

/// Returns the layout of an image by its mapping alone.
pub(super) fn layout_of_mapping(start: u64, length: u64, offset: u64) -> ImageLayout {
    let (base, before) = start.checked_sub(offset).map_or((start, 0), |base| (base, offset));
    ImageLayout { base, size: before.saturating_add(length), default_base: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_follows_the_segments_of_the_file() {
        let segment = |address, offset, length, is_code| Segment { address, offset, length, is_code };
        let segments = vec![
            segment(0x40_0000, 0, 0x5C4, false),
            segment(0x40_15C8, 0x5C8, 0x158, true),
            segment(0x40_2720, 0x720, 0x160, false),
        ];
        let program = Program { build_id: Vec::new(), segments };
        // The code segment begins in the first page of the file, at 0x1000 of the image.
        let layout = program.find_layout(0x40_1000, 0);
        assert_eq!(layout, Some(ImageLayout { base: 0x40_0000, size: 0x3000, default_base: 0x40_0000 }));
        assert_eq!(program.find_layout(0x40_1000, 0x9000), None, "no segment has this offset");
        assert_eq!(program.find_layout(0, 0), None, "the base would be below address 0");
        assert_eq!(layout_of_mapping(0x1_2000, 0x1000, 0x2000).base, 0x1_0000);
        assert_eq!(layout_of_mapping(0x1000, 0x1000, 0x2000).base, 0x1000);
    }

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
