//! Tests with hostile files whose symbols demand much work.

use std::cell::Cell;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::time::{Duration, Instant};

use object::elf::{SHF_EXECINSTR, SHT_DYNSYM, SHT_PROGBITS, SHT_STRTAB, SHT_SYMTAB};

use super::super::table::MAX_NAME_BYTES;
use super::*;

const SYMBOLS_ONLY: ElfParts = ElfParts { symbols: true, dwarf: false };
const HEADER_BYTES: usize = 64;

/// Builds a file of sections, each with its kind, flags, link, and its range in the bytes after the
/// header.
fn build_file(body: &[u8], sections: &[(u32, u32, u32, std::ops::Range<usize>)]) -> Vec<u8> {
    let mut file = vec![0x7F, b'E', b'L', b'F', 2, 1, 1];
    file.resize(16, 0);
    // Each field of the header from `e_type` (ET_DYN) and `e_machine` (x86-64) to `e_flags`, with
    // its size in bytes; then the fields from `e_ehsize` to `e_shstrndx`, of 2 bytes each.
    for (value, size) in [(3, 2), (62, 2), (1, 4), (0, 8), (0, 8), (HEADER_BYTES + body.len(), 8), (0, 4)] {
        file.extend(&value.to_le_bytes()[..size]);
    }
    let names = sections.iter().position(|(kind, ..)| *kind == SHT_STRTAB).unwrap() + 1;
    for value in [HEADER_BYTES, 56, 0, 64, sections.len() + 1, names] {
        file.extend(&value.to_le_bytes()[..2]);
    }
    file.extend(body);
    file.extend([0; 64]);
    for (kind, flags, link, range) in sections {
        let (at, size) = (HEADER_BYTES + range.start, range.len());
        file.extend([0; 4]);
        file.extend(kind.to_le_bytes());
        for word in [u64::from(*flags), 0, at as u64, size as u64] {
            file.extend(word.to_le_bytes());
        }
        file.extend(link.to_le_bytes());
        file.extend([0; 12]);
        // The size of an entry: that of a symbol.
        file.extend(24_u64.to_le_bytes());
    }
    file
}

/// Encodes adjacent functions of 16 bytes with names at these offsets.
fn encode_functions(names: impl Iterator<Item = usize>) -> Vec<u8> {
    let mut symbols = Vec::new();
    for (index, name) in names.enumerate() {
        symbols.extend((name as u32).to_le_bytes());
        // A global function in section 2.
        symbols.extend([0x12, 0, 2, 0]);
        symbols.extend((0x1000 + 16 * index as u64).to_le_bytes());
        symbols.extend(16_u64.to_le_bytes());
    }
    symbols
}

/// Builds a file with one table of symbols.
fn build_file_with_symbols(symbols: &[u8], names: &[u8]) -> Vec<u8> {
    let body = [symbols, names].concat();
    let code = (SHT_PROGBITS, SHF_EXECINSTR, 0, 0..0);
    let table = (SHT_SYMTAB, 0, 3, 0..symbols.len());
    build_file(&body, &[table, code, (SHT_STRTAB, 0, 0, symbols.len()..body.len())])
}

fn read_symbol_table(file: Vec<u8>) -> SymbolTable {
    Elf::read(Cursor::new(file), SYMBOLS_ONLY, |_| true).unwrap().unwrap().symbols
}

#[test]
fn sound_symbols_are_complete() {
    let table = read_symbol_table(build_file_with_symbols(
        &encode_functions([1, 5, 900].into_iter()),
        b"\0one\0two\0",
    ));
    // The third function, at 0x1020, has a name past the end of the names, so it is left out.
    let name = |address| table.lookup(address).map(|symbol| symbol.text().into_owned());
    assert_eq!((name(0x1008).as_deref(), name(0x101F).as_deref()), (Some("one"), Some("two")));
    assert_eq!((name(0x1020), table.is_cut()), (None, false));
}

#[test]
fn oversized_symbol_table_does_not_hide_the_other() {
    const TOO_LARGE: usize = 24 * (12 << 20);
    let symbols = encode_functions([1, 5].into_iter());
    let body = [&symbols[..], b"\0one\0two\0"].concat();
    let names = (SHT_STRTAB, 0, 0, symbols.len()..body.len());
    let code = (SHT_PROGBITS, SHF_EXECINSTR, 0, 0..0);
    let (large, small) = ((SHT_SYMTAB, 0, 3, 0..TOO_LARGE), (SHT_DYNSYM, 0, 3, 0..symbols.len()));
    let table = read_symbol_table(build_file(&body, &[large, code, names, small]));
    assert!(table.lookup(0x1008).is_some_and(|symbol| symbol.name == b"one"));
    assert!(table.lookup(0x1018).is_some_and(|symbol| symbol.name == b"two"));
    assert!(table.is_cut(), "the table must report that it is incomplete");
}

#[test]
fn search_for_the_end_of_a_name_is_bounded() {
    let start = Instant::now();
    let table =
        read_symbol_table(build_file_with_symbols(&encode_functions(0..400_000), &vec![b'a'; 8 << 20]));
    assert!(start.elapsed() < Duration::from_secs(30), "took {:?}", start.elapsed());
    assert!(table.is_empty() && table.is_cut());
}

#[test]
fn overlapping_names_fill_the_table_up_to_its_limit() {
    let mut names = vec![b'a'; MAX_NAME_BYTES];
    names.push(0);
    let table = read_symbol_table(build_file_with_symbols(&encode_functions((0..20_000).map(|_| 0)), &names));
    assert!(table.is_cut() && table.len() > 1000, "{}", table.len());
    assert!(table.lookup(0x1000).is_some_and(|symbol| symbol.name.len() == MAX_NAME_BYTES));
}

/// A file that counts the bytes that are read.
struct CountingFile<'a> {
    file: Cursor<Vec<u8>>,
    bytes_read: &'a Cell<u64>,
}

impl Read for CountingFile<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(to)?;
        self.bytes_read.set(self.bytes_read.get() + count as u64);
        Ok(count)
    }
}

impl Seek for CountingFile<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[test]
fn only_one_of_many_symbol_tables_is_read() {
    let symbols = encode_functions((0..50_000).map(|_| 1));
    let body = [&symbols[..], b"\0name\0"].concat();
    let mut sections = vec![(SHT_STRTAB, 0, 0, symbols.len()..body.len())];
    sections.extend((0..1000).map(|at| (SHT_SYMTAB, 0, 1, 24 * at..symbols.len())));
    let file = build_file(&body, &sections);
    let (length, bytes_read) = (file.len() as u64, Cell::new(0));
    let file = CountingFile { file: Cursor::new(file), bytes_read: &bytes_read };
    let elf = Elf::read(file, SYMBOLS_ONLY, |_| true).unwrap().unwrap();
    assert_eq!(elf.symbols.len(), 50_000);
    let bytes_read = bytes_read.get();
    assert!(bytes_read <= 2 * length, "{bytes_read} bytes read of a file of {length}");
}
