//! Reads the start addresses of functions of a stripped file from its unwind table.
//!
//! ```text
//!   .eh_frame_hdr    0 version 1 │ 1 encoding of .eh_frame │ 2 0x03: u32 │ 3 0x3B: i32 from section
//!                    │ 4 .eh_frame │ 8 count │ C { function i32, entry i32 } × count
//! ```
//!
//! The first number of each part is its offset in hexadecimal. Byte 2 means that the count is a
//! u32, byte 3 that the table has i32 distances from the start of the section. Linkers write only
//! this form; other forms are ignored.
//!
//! Source: Documented ("Linux Standard Base Core Specification", exception frames).

use object::Endianness;
use object::ReadRef;
use object::read::elf::{FileHeader, SectionHeader, SectionTable};
use traceweir_format::wire;

/// The most functions that are kept.
const MAX_STARTS: usize = 1 << 20;
const TABLE_VERSION: u8 = 1;
const COUNT_U32: u8 = 0x03;
const TABLE_RELATIVE_I32: u8 = 0x3B;
/// The size of the header before the table, in bytes.
const HEADER_BYTES: usize = 12;
/// The size of a table entry, in bytes.
const ENTRY_BYTES: usize = 8;

/// Returns the linked start addresses of functions, ascending; empty if the file has no such table
/// or is big-endian.
pub(super) fn read_starts<'data, Elf, R>(
    sections: &SectionTable<'data, Elf, R>,
    endian: Endianness,
    file: R,
) -> Vec<u64>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let section = sections.section_by_name(endian, b".eh_frame_hdr").map(|(_, section)| section);
    let Some(section) = section.filter(|_| endian == Endianness::Little) else { return Vec::new() };
    let bytes = section.data(endian, file).unwrap_or_default();
    parse_table(bytes, section.sh_addr(endian).into()).unwrap_or_default()
}

/// Parses the bytes of the section, whose linked address is `section_address`.
fn parse_table(bytes: &[u8], section_address: u64) -> Option<Vec<u64>> {
    let [TABLE_VERSION, _, COUNT_U32, TABLE_RELATIVE_I32] = *bytes.first_chunk::<4>()? else { return None };
    let count = usize::try_from(wire::u32_at(bytes, 8)).ok()?.min(MAX_STARTS);
    let entries = bytes.get(HEADER_BYTES..)?.chunks_exact(ENTRY_BYTES).take(count);
    let mut starts: Vec<u64> = entries
        .map(|entry| section_address.wrapping_add_signed(i64::from(wire::u32_at(entry, 0).cast_signed())))
        .collect();
    // In sound files the entries are sorted already.
    starts.sort_unstable();
    starts.dedup();
    Some(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_gives_sorted_function_starts() {
        let mut bytes = vec![1, 0x1B, 3, 0x3B, 0, 0, 0, 0, 9, 0, 0, 0];
        for start in [-16_i32, 32, 0, 32] {
            bytes.extend(start.to_le_bytes());
            bytes.extend([0; 4]);
        }
        bytes.push(7);
        assert_eq!(
            parse_table(&bytes, 0x1000).unwrap(),
            [0xFF0, 0x1000, 0x1020],
            "a count above the number of entries must have no effect"
        );
        assert!(parse_table(&bytes[..12], 0).unwrap().is_empty());
        bytes[3] = 0x1B;
        assert_eq!(parse_table(&bytes, 0), None);
        assert_eq!(parse_table(&[1], 0), None);
    }
}
