//! Tests of the readers on the test program itself, and on hostile files.

use std::fs::File;
use std::io::Cursor;
use std::time::{Duration, Instant};

use super::elf::ElfParts;
use super::*;

const ALL_PARTS: ElfParts = ElfParts { symbols: true, dwarf: true };

/// Reads the file of this program.
fn read_own_program() -> Vec<u8> {
    std::fs::read("/proc/self/exe").unwrap()
}

/// Returns the linked address of code of this program.
fn linked_address(address: usize, identity: &ElfIdentity) -> u64 {
    let exe = std::env::current_exe().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let first = maps.lines().find(|line| line.ends_with(exe.to_str().unwrap())).unwrap();
    let (from, columns) = first.split_once('-').unwrap();
    let offset = columns.split(' ').nth(2).unwrap();
    let [from, offset] = [from, offset].map(|hex| u64::from_str_radix(hex, 16).unwrap());
    address as u64 - (from - offset) + identity.base
}

#[inline(never)]
fn known_function(number: u64) -> u64 {
    std::hint::black_box(number) + 3
}

#[test]
fn a_function_of_this_program_is_found_by_symbol_and_by_line() {
    let mut elf = Elf::read(File::open("/proc/self/exe").unwrap(), ALL_PARTS, |_| true).unwrap().unwrap();
    assert_eq!(known_function(1), 4);
    let address = linked_address(known_function as fn(u64) -> u64 as usize, &elf.identity);
    let symbol = elf.symbols.lookup(address).unwrap();
    assert!(demangle(&symbol.text()).ends_with("symbols::tests::known_function"), "{}", symbol.text());
    assert_eq!(symbol.start, address);
    let sites = elf.dwarf.as_mut().unwrap().find(address);
    let site = sites.last().unwrap();
    // With line tables only, compilers leave out functions that contain no inlined functions.
    assert!(site.function.as_deref().is_none_or(|name| name.ends_with("known_function")), "{site:?}");
    assert!(site.file.as_deref().unwrap().ends_with("symbols/tests.rs"), "{site:?}");
    assert!(site.line.is_some() && !site.is_inlined && site.start == address, "{site:?}");
    assert!(elf.dwarf.as_mut().unwrap().find(1).is_empty());
}

#[test]
fn rejected_identity_prevents_reading() {
    let read = |is_accepted| Elf::read(Cursor::new(read_own_program()), ALL_PARTS, |_| is_accepted).unwrap();
    assert!(read(false).is_none());
    assert!(read(true).is_some());
}

/// Returns copies of a program that are cut short, or damaged in their section headers.
fn damaged_copies(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut copies: Vec<Vec<u8>> =
        [0, 15, 16, 63, 64, 100, 4096].iter().map(|n| bytes[..*n].to_vec()).collect();
    copies.push(bytes[..bytes.len() / 2].to_vec());
    // The section headers, of 64 bytes each, are at the end; `e_shoff` at offset 40 locates them.
    // Each copy overwrites one field in all of them: sh_offset (24), sh_size (32), sh_link (40) or
    // sh_type (4).
    let sections = u64::from_le_bytes(*bytes[40..].first_chunk().unwrap()) as usize;
    for (step, value) in [(24, 0xFF), (32, 0x7F), (24, 0), (40, 1), (4, 0xFF)] {
        let mut bad = bytes.to_vec();
        for at in (sections..bad.len().saturating_sub(64)).step_by(64) {
            bad[at + step..at + step + 4].fill(value);
        }
        copies.push(bad);
    }
    copies
}

#[test]
fn damaged_elf_files_never_panic() {
    let bytes = read_own_program();
    for bad in damaged_copies(&bytes) {
        if let Ok(Some(mut elf)) = Elf::read(Cursor::new(bad), ALL_PARTS, |_| true)
            && let Some(dwarf) = &mut elf.dwarf
        {
            for address in (0..200_000).step_by(10_000) {
                let _ = dwarf.find(address);
            }
        }
    }
}

#[test]
fn damaged_dwarf_sections_never_panic() {
    let bytes = read_own_program();
    let elf = object::File::parse(&*bytes).unwrap();
    let read_section = |id: gimli::SectionId| {
        use object::{Object, ObjectSection};
        let section =
            elf.section_by_name(id.name()).and_then(|section| section.data().ok().map(<[u8]>::to_vec));
        // A part of the section is enough, and fast.
        section.map(|mut bytes| {
            bytes.truncate(100_000);
            bytes
        })
    };
    let mut random = 12345_u64;
    for _ in 0..60 {
        let mut sections = dwarf::Sections::default();
        for id in dwarf::Sections::IDS {
            let mut bytes = read_section(id).unwrap_or_default();
            for _ in 0..20 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (random >> 33) as usize % bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = (random >> 25) as u8;
                }
            }
            sections.add(id, bytes);
        }
        let mut dwarf = Dwarf::new(sections, gimli::RunTimeEndian::Little);
        for address in (0..2_000_000).step_by(100_000) {
            let _ = dwarf.find(address);
        }
    }
}

/// Builds one unit in which many functions have the same long list of ranges.
fn build_shared_ranges(functions: usize, ranges: usize) -> dwarf::Sections {
    let mut sections = dwarf::Sections::default();
    // 1: unit with children, low_pc and ranges; 2: subprogram without children, name and ranges.
    let abbreviations =
        [1, 0x11, 1, 0x11, 0x01, 0x55, 0x17, 0, 0, 2, 0x2E, 0, 0x03, 0x08, 0x55, 0x17, 0, 0, 0];
    // Version 4, abbreviations at offset 0, addresses of 8 bytes; then abbreviation 1, the unit.
    let mut info = vec![4, 0, 0, 0, 0, 0, 8, 1];
    info.extend([0; 8]);
    info.extend([0; 4]);
    for _ in 0..functions {
        info.extend([2, b'f', 0, 0, 0, 0, 0]);
    }
    info.push(0);
    let mut unit = u32::try_from(info.len()).unwrap().to_le_bytes().to_vec();
    unit.extend(info);
    let mut list = Vec::new();
    for at in 0..ranges as u64 {
        list.extend((at * 16 + 1).to_le_bytes());
        list.extend((at * 16 + 9).to_le_bytes());
    }
    list.extend([0; 16]);
    sections.add(gimli::SectionId::DebugInfo, unit);
    sections.add(gimli::SectionId::DebugAbbrev, abbreviations.to_vec());
    sections.add(gimli::SectionId::DebugRanges, list);
    sections
}

#[test]
fn shared_range_list_ends_reading_early() {
    let mut sound = Dwarf::new(build_shared_ranges(1, 4), gimli::RunTimeEndian::Little);
    // Address 18 is in the second range, 17..25.
    let sites = sound.find(18);
    assert_eq!(sites.first().and_then(|site| site.function.as_deref()), Some("f"));
    assert_eq!(sites.first().map(|site| site.start), Some(17));
    // Ten thousand functions with a hundred thousand ranges each.
    let start = Instant::now();
    let mut hostile = Dwarf::new(build_shared_ranges(10_000, 100_000), gimli::RunTimeEndian::Little);
    let _ = hostile.find(18);
    assert!(start.elapsed() < Duration::from_secs(40), "took {:?}", start.elapsed());
}

#[test]
fn other_files_are_not_pdbs() {
    for bytes in [Vec::new(), b"Microsoft C/C++ MSF 7.00\r\n\x1ADS\0\0\0".to_vec(), read_own_program()] {
        assert!(Pdb::read(Cursor::new(bytes), |_, _| true).is_err());
    }
}

#[test]
fn kernel_build_id_is_found_among_other_notes() {
    let note = |name: &[u8], kind: u8, data: &[u8]| {
        let mut note = vec![name.len() as u8, 0, 0, 0, data.len() as u8, 0, 0, 0, kind, 0, 0, 0];
        note.extend(name);
        note.resize(note.len().next_multiple_of(4), 0);
        note.extend(data);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    };
    let notes =
        // Only a note of name "GNU" and type 3 is a build id.
        [note(b"Xen\0", 3, &[1, 2, 3]), note(b"GNU\0", 1, &[9]), note(b"GNU\0", 3, &[7; 20])].concat();
    assert_eq!(elf::find_build_id(&notes), Some(&[7; 20][..]));
    for end in 0..notes.len() {
        assert_eq!(elf::find_build_id(&notes[..end]), None);
    }
    assert_eq!(elf::find_build_id(&[0xFF; 64]), None);
}
