//! Builds PDB files without a compiler.
#![allow(dead_code)] // Each test program uses only some of these functions.

use traceweir_format::Guid;
use traceweir_format::wire::Put;

/// Size of a page in bytes.
pub(crate) const PAGE: usize = 4096;
/// Signature of the PDB that [`functions`] builds.
pub(crate) const SIGNATURE: Guid = Guid::from_u128(0x3844DBB9_2017_4967_BE7A_A4A2C20430FA);
pub(crate) const AGE: u32 = 3;

/// Builds a symbol record: length, kind, body, padding to four bytes.
pub(crate) fn symbol(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    let padding = (4 - (body.len() + 4) % 4) % 4;
    record.put_u16(u16::try_from(2 + body.len() + padding).unwrap()).put_u16(kind).put(body);
    record.resize(record.len() + padding, 0);
    record
}

/// Builds the entry of one module in the module list of the debug stream. `stream` is the number
/// of the stream with the module's symbols.
pub(crate) fn module(stream: u16, symbols_bytes: u32) -> Vec<u8> {
    let mut entry = vec![0; 32];
    entry.put_u16(0).put_u16(stream).put_u32(symbols_bytes);
    entry.resize(64, 0);
    entry.put_ansi_z("read.obj").put_ansi_z("read.obj");
    entry.resize(entry.len().next_multiple_of(4), 0);
    entry
}

/// Builds a multi-stream file: a header page, two pages of the free page map, the page that lists
/// the pages of the directory, the directory, and the streams.
pub(crate) fn container(streams: &[Vec<u8>]) -> Vec<u8> {
    let mut directory = Vec::new();
    directory.put_u32(u32::try_from(streams.len()).unwrap());
    for stream in streams {
        directory.put_u32(u32::try_from(stream.len()).unwrap());
    }
    // The first five pages are the header, the free page map, the list and the directory.
    let mut pages = Vec::new();
    for stream in streams {
        for chunk in stream.chunks(PAGE) {
            directory.put_u32(u32::try_from(5 + pages.len() / PAGE).unwrap());
            pages.put(chunk);
            pages.resize(pages.len().next_multiple_of(PAGE), 0);
        }
    }
    assert!(directory.len() <= PAGE, "the directory takes more than one page");
    let mut file = b"Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0".to_vec();
    let page_count = u32::try_from(5 + pages.len() / PAGE).unwrap();
    // The header: page size, page of the free page map, number of pages, size of the directory,
    // unknown, page of the list.
    file.put_u32(4096)
        .put_u32(1)
        .put_u32(page_count)
        .put_u32(u32::try_from(directory.len()).unwrap())
        .put_u32(0)
        .put_u32(3);
    file.resize(3 * PAGE, 0);
    // The list: the directory is in page 4.
    file.put_u32(4);
    file.resize(4 * PAGE, 0);
    file.put(&directory);
    file.resize(5 * PAGE, 0);
    file.put(&pages);
    file
}

fn procedure(kind: u16, name: &str, (section, offset, length): (u16, u32, u32)) -> Vec<u8> {
    let mut body = Vec::new();
    // Parent, end, next, length, start and end for debuggers, type, offset.
    for field in [0, 0, 0, length, 0, 0, 0x1001, offset] {
        body.put_u32(field);
    }
    body.put_u16(section).put_u8(0).put_ansi_z(name);
    symbol(kind, &body)
}

/// Builds a public symbol (`S_PUB32`). The flag 2 marks a function.
fn public_symbol(name: &str, flags: u32, (section, offset): (u16, u32)) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u32(flags).put_u32(offset).put_u16(section).put_ansi_z(name);
    symbol(0x110E, &body)
}

/// Builds a PDB with `shop::sell` at 0x1100, 0x40 bytes long, `helper` at 0x5010 and the public
/// symbol `shop::other` at 0x1200. `moved` is the stream that maps moved code (OMAP), or
/// `u16::MAX` for none.
///
/// Streams: 1 identity, 3 debug information, 5 a module, 6 global symbols, 7 section headers.
pub(crate) fn functions(moved: u16) -> Vec<u8> {
    let mut identity = Vec::new();
    // Version, time stamp, age, signature, and an empty table of named streams.
    identity.put_u32(20_000_404).put_u32(1).put_u32(1).put(&SIGNATURE.to_bytes());
    identity.put_u32(0).put_u32(0).put_u32(0).put_u32(0).put_u32(0);
    let mut symbols = Vec::new();
    // 0x1110 is a global procedure, 0x110F a local one.
    symbols.put_u32(4).put(&procedure(0x1110, "shop::sell", (1, 0x100, 0x40)));
    symbols.put(&procedure(0x110F, "helper", (2, 0x10, 0x20)));
    symbols.put(&procedure(0x110F, "of no section", (9, 0x10, 0x20)));
    let globals = [
        public_symbol("?sell@shop@@YAXXZ", 2, (1, 0x100)),
        public_symbol("?other@shop@@YAXXZ", 2, (1, 0x200)),
        public_symbol("data", 0, (1, 0x300)),
    ]
    .concat();
    let modules = module(5, u32::try_from(symbols.len()).unwrap());
    let mut debug = Vec::new();
    // Signature, version, age; then stream numbers and versions, of which only 6 (the global
    // symbols) is used; then the size of the module list.
    debug.put_u32(u32::MAX).put_u32(19_990_903).put_u32(AGE);
    for stream in [u16::MAX, 0, u16::MAX, 0, 6, 0] {
        debug.put_u16(stream);
    }
    debug.put_u32(u32::try_from(modules.len()).unwrap());
    debug.resize(48, 0);
    // Size of the list of optional streams, which follows the modules.
    debug.put_u32(22);
    debug.resize(64, 0);
    debug.put(&modules);
    for optional_stream in [u16::MAX, u16::MAX, u16::MAX, moved, moved, 7] {
        debug.put_u16(optional_stream);
    }
    debug.resize(debug.len() + 10, 0xFF);
    // Two section headers of 40 bytes, each with the section's address at offset 12.
    let mut sections = vec![0; 80];
    sections[12..16].copy_from_slice(&0x1000_u32.to_le_bytes());
    let second_address = 40 + 12;
    sections[second_address..second_address + 4].copy_from_slice(&0x5000_u32.to_le_bytes());
    container(&[vec![], identity, vec![], debug, vec![], symbols, globals, sections])
}
