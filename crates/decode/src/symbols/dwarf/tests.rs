//! Tests with sections that demand more work than they are worth.

use std::time::{Duration, Instant};

use super::*;

/// Abbreviations: 1 is a unit with an address and a line program, 2 a function with an address and
/// a name at an offset of the texts.
const SHAPES: [u8; 27] = [
    1, 0x11, 1, 0x11, 0x01, 0x12, 0x07, 0x10, 0x17, 0, 0, // low_pc, high_pc, stmt_list
    2, 0x2E, 0, 0x11, 0x01, 0x12, 0x07, 0x03, 0x0E, 0, 0, // low_pc, high_pc, name
    0, 0, 0, 0, 0,
];
/// The address of the first function; each has 16 bytes.
const CODE: u64 = 0x1000;

/// Builds a unit of functions, all with the same name, and its sections.
fn sections(functions: u64, shapes: &[u8], texts: Vec<u8>, lines: Vec<u8>) -> Sections {
    let mut info = vec![4, 0, 0, 0, 0, 0, 8, 1];
    info.extend(CODE.to_le_bytes());
    info.extend((functions * 16).to_le_bytes());
    info.extend([0; 4]);
    for at in 0..functions {
        info.push(2);
        info.extend((CODE + at * 16).to_le_bytes());
        info.extend(16_u64.to_le_bytes());
        info.extend([0; 4]);
    }
    info.push(0);
    let mut unit = u32::try_from(info.len()).unwrap().to_le_bytes().to_vec();
    unit.extend(info);
    let mut all = Sections::default();
    all.set(SectionId::DebugInfo, unit);
    all.set(SectionId::DebugAbbrev, shapes.to_vec());
    all.set(SectionId::DebugStr, texts);
    all.set(SectionId::DebugLine, lines);
    all
}

/// Builds a line program of version 4 without lines, with this many one-byte folders.
fn lines(folders: usize) -> Vec<u8> {
    let mut head = vec![1, 1, 1, 0, 1, 1];
    head.extend([b'a', 0].repeat(folders));
    head.extend([0, 0]);
    let mut all = u32::try_from(head.len() + 6).unwrap().to_le_bytes().to_vec();
    all.extend([4, 0]);
    all.extend(u32::try_from(head.len()).unwrap().to_le_bytes());
    all.extend(head);
    all
}

fn name(sections: Sections, address: u64) -> Option<Arc<str>> {
    let mut dwarf = Dwarf::new(sections, RunTimeEndian::Little);
    dwarf.find(address).first().and_then(|site| site.function.clone())
}

#[test]
fn sound_unit_has_its_functions() {
    let sound = sections(3, &SHAPES, b"work\0".to_vec(), lines(3));
    assert_eq!(name(sound, CODE + 40).as_deref(), Some("work"));
}

#[test]
fn search_for_the_end_of_a_text_is_bounded() {
    let began = Instant::now();
    let hostile = sections(50_000, &SHAPES, vec![b'a'; 64 << 20], lines(3));
    assert_eq!(name(hostile, CODE + 40), None);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn unit_with_too_many_abbreviations_or_folders_is_skipped() {
    // A third abbreviation, with attributes that take no bytes.
    let mut shapes = SHAPES[..22].to_vec();
    shapes.extend([3, 0x2E, 0]);
    shapes.extend([0x3F, 0x19].repeat(1 << 20));
    shapes.extend([0; 3]);
    assert_eq!(name(sections(3, &shapes, b"work\0".to_vec(), lines(3)), CODE), None);
    assert_eq!(name(sections(3, &SHAPES, b"work\0".to_vec(), lines(2 << 20)), CODE), None);
}
