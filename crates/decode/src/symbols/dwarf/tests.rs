//! Tests with hostile sections that demand much work.

use std::time::{Duration, Instant};

use super::*;

/// Abbreviations: 1 is a unit with an address and a line program, 2 a function with an address and
/// a name at an offset of the texts. Each has its number, its tag, whether it has children, and
/// pairs of attribute and form that a pair of zeros ends.
const ABBREVIATIONS: [u8; 27] = [
    1, 0x11, 1, 0x11, 0x01, 0x12, 0x07, 0x10, 0x17, 0, 0, // low_pc, high_pc, stmt_list
    2, 0x2E, 0, 0x11, 0x01, 0x12, 0x07, 0x03, 0x0E, 0, 0, // low_pc, high_pc, name
    0, 0, 0, 0, 0,
];
/// The address of the first function; each has 16 bytes.
const CODE_START: u64 = 0x1000;

/// Builds a unit of adjacent functions, all with the same name, and its sections.
fn build_sections(functions: u64, abbreviations: &[u8], texts: Vec<u8>, lines: Vec<u8>) -> Sections {
    let unit = (CODE_START, functions * 16);
    build_sections_of(unit, (0..functions).map(|at| (CODE_START + at * 16, 16)), abbreviations, texts, lines)
}

/// Builds a unit and its functions. The unit and each function have a start and a size in bytes.
fn build_sections_of(
    unit: (u64, u64),
    functions: impl IntoIterator<Item = (u64, u64)>,
    abbreviations: &[u8],
    texts: Vec<u8>,
    lines: Vec<u8>,
) -> Sections {
    // Version 4, abbreviations at offset 0, addresses of 8 bytes; then abbreviation 1, the unit.
    let mut info = vec![4, 0, 0, 0, 0, 0, 8, 1];
    info.extend(unit.0.to_le_bytes());
    info.extend(unit.1.to_le_bytes());
    info.extend([0; 4]);
    for (start, size) in functions {
        info.push(2);
        info.extend(start.to_le_bytes());
        info.extend(size.to_le_bytes());
        info.extend([0; 4]);
    }
    info.push(0);
    let mut unit = u32::try_from(info.len()).unwrap().to_le_bytes().to_vec();
    unit.extend(info);
    let mut sections = Sections::default();
    sections.add(SectionId::DebugInfo, unit);
    sections.add(SectionId::DebugAbbrev, abbreviations.to_vec());
    sections.add(SectionId::DebugStr, texts);
    sections.add(SectionId::DebugLine, lines);
    sections
}

/// Builds a line program of version 4 without lines, with this many one-byte folders.
fn build_line_program(folders: usize) -> Vec<u8> {
    // From `minimum_instruction_length` to `opcode_base`.
    let mut header = vec![1, 1, 1, 0, 1, 1];
    header.extend([b'a', 0].repeat(folders));
    header.extend([0, 0]);
    let mut program = u32::try_from(header.len() + 6).unwrap().to_le_bytes().to_vec();
    program.extend([4, 0]);
    program.extend(u32::try_from(header.len()).unwrap().to_le_bytes());
    program.extend(header);
    program
}

fn function_name_at(sections: Sections, address: u64) -> Option<Arc<str>> {
    let mut dwarf = Dwarf::new(sections, RunTimeEndian::Little);
    dwarf.find(address).first().and_then(|site| site.function.clone())
}

#[test]
fn sound_unit_has_its_functions() {
    let sound = build_sections(3, &ABBREVIATIONS, b"work\0".to_vec(), build_line_program(3));
    assert_eq!(function_name_at(sound, CODE_START + 40).as_deref(), Some("work"));
}

#[test]
fn range_past_the_last_address_is_skipped() {
    let build = |unit, functions: [(u64, u64); 2], abbreviations: &[u8]| {
        build_sections_of(unit, functions, abbreviations, b"work\0".to_vec(), build_line_program(3))
    };
    let (sound, damaged) = ((CODE_START, 16), (CODE_START, u64::MAX));
    let find = |sections| function_name_at(sections, CODE_START + 8);
    assert_eq!(find(build(sound, [damaged, sound], &ABBREVIATIONS)).as_deref(), Some("work"));
    assert_eq!(find(build(sound, [damaged, damaged], &ABBREVIATIONS)), None);
    assert_eq!(find(build(damaged, [sound, sound], &ABBREVIATIONS)), None);
    // Here `high_pc` is the constant 16, so both numbers of a function are starts, of which `gimli`
    // uses the last.
    let two_starts = [
        1, 0x11, 1, 0x11, 0x01, 0x12, 0x07, 0x10, 0x17, 0, 0, // low_pc, high_pc, stmt_list
        2, 0x2E, 0, 0x11, 0x01, 0x11, 0x01, 0x12, 0x21, 16, 0x03, 0x0E, 0,
        0, // low_pc twice, high_pc, name
        0, 0, 0,
    ];
    let (last_used, damaged) = ((u64::MAX - 16, CODE_START), (CODE_START, u64::MAX));
    assert_eq!(find(build(sound, [damaged, last_used], &two_starts)).as_deref(), Some("work"));
}

#[test]
fn search_for_the_end_of_a_text_is_bounded() {
    let start = Instant::now();
    let hostile = build_sections(50_000, &ABBREVIATIONS, vec![b'a'; 64 << 20], build_line_program(3));
    assert_eq!(function_name_at(hostile, CODE_START + 40), None);
    assert!(start.elapsed() < Duration::from_secs(15), "took {:?}", start.elapsed());
}

#[test]
fn unit_with_too_many_abbreviations_or_folders_is_skipped() {
    // A third abbreviation, with attributes that take no bytes.
    let mut abbreviations = ABBREVIATIONS[..22].to_vec();
    abbreviations.extend([3, 0x2E, 0]);
    abbreviations.extend([0x3F, 0x19].repeat(1 << 20));
    abbreviations.extend([0; 3]);
    assert_eq!(
        function_name_at(
            build_sections(3, &abbreviations, b"work\0".to_vec(), build_line_program(3)),
            CODE_START
        ),
        None
    );
    assert_eq!(
        function_name_at(
            build_sections(3, &ABBREVIATIONS, b"work\0".to_vec(), build_line_program(2 << 20)),
            CODE_START
        ),
        None
    );
}
