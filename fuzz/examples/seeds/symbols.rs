//! Files, lists and names of functions. The function in the ELF file contains an inlined function.

use traceweir_format::wire::Put;

use super::Seeds;
use super::containers::build_multi_stream_file;

const TEXT_ADDRESS: u64 = 0x10;

fn with_kind(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind], bytes].concat()
}

pub(crate) fn symbol_seeds() -> Seeds {
    vec![
        ("elf", with_kind(0, &build_elf())),
        ("pdb", with_kind(1, &build_pdb())),
        (
            "kallsyms",
            with_kind(
                2,
                b"0000000000000010 T _text\n0000000000000020 t work\t[shop]\n0000000000000030 W weak\n",
            ),
        ),
        ("perf-map", with_kind(3, b"10 8 LazyCompile:~work app.js:3\n0x18 8 stub\n")),
        ("cplusplus", with_kind(4, b"_ZN4shop4CartIiSt6vectorIiSaIiEEE3addEib.cold")),
        ("rust", with_kind(4, b"_RNvMs_CsjBeKmZ3lN2t_4shopINtB4_4CartlE3add")),
        ("microsoft", with_kind(4, b"?add@?$Cart@H@shop@@QEAAXHV?$vector@HV?$allocator@H@std@@@std@@@Z")),
        ("notes", with_kind(5, b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0\x01\x02\x03\x04")),
    ]
}

/// Returns debug information of the function `sell`, of the inlined function `add`, and of the
/// lines of these two functions.
fn build_debug_info() -> [(&'static str, Vec<u8>); 3] {
    // 1 unit: name, stmt_list, low_pc, high_pc; 2 add: name, inline; 3 sell: name, low_pc, high_pc;
    // 4 inlined: origin, low_pc, high_pc, call_file, call_line.
    let abbreviations = vec![
        1, 0x11, 1, 0x03, 0x08, 0x10, 0x17, 0x11, 0x01, 0x12, 0x0B, 0, 0, //
        2, 0x2E, 0, 0x03, 0x08, 0x20, 0x0B, 0, 0, //
        3, 0x2E, 1, 0x03, 0x08, 0x11, 0x01, 0x12, 0x0B, 0, 0, //
        4, 0x1D, 0, 0x31, 0x13, 0x11, 0x01, 0x12, 0x0B, 0x58, 0x0B, 0x59, 0x0B, 0, 0, 0,
    ];
    let mut unit = Vec::new();
    unit.put_u16(4).put_u32(0).put_u8(8);
    unit.put_u8(1).put(b"shop.c\0").put_u32(0).put_u64(TEXT_ADDRESS).put_u8(0x40);
    let add = u32::try_from(4 + unit.len()).expect("the number fits");
    unit.put_u8(2).put(b"add\0").put_u8(1);
    unit.put_u8(3).put(b"sell\0").put_u64(TEXT_ADDRESS).put_u8(0x40);
    unit.put_u8(4).put_u32(add).put_u64(TEXT_ADDRESS + 8).put_u8(8).put_u8(1).put_u8(3).put(&[0, 0]);
    let mut info = Vec::new();
    info.put_u32(u32::try_from(unit.len()).expect("the number fits")).put(&unit);
    // Version 4: one file; two rows, and the end.
    let mut header = Vec::new();
    header
        .put(&[1, 1, 1, 0xFB, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0])
        .put(b"shop.c\0")
        .put(&[0, 0, 0, 0]);
    let mut program = Vec::new();
    program.put_u16(4).put_u32(u32::try_from(header.len()).expect("the number fits")).put(&header);
    program.put(&[0, 9, 2]).put_u64(TEXT_ADDRESS).put(&[0x14, 0x2, 8, 0x13, 0x2, 0x38, 0, 1, 1]);
    let mut lines = Vec::new();
    lines.put_u32(u32::try_from(program.len()).expect("the number fits")).put(&program);
    [(".debug_info", info), (".debug_abbrev", abbreviations), (".debug_line", lines)]
}

/// Returns a program with a note, symbols, and the debug information above.
fn build_elf() -> Vec<u8> {
    let mut symbols = vec![0; 24];
    symbols.put_u32(1).put_u8(0x12).put_u8(0).put_u16(1).put_u64(TEXT_ADDRESS).put_u64(0x40);
    let mut note = Vec::new();
    note.put_u32(4).put_u32(4).put_u32(3).put(b"GNU\0\x01\x02\x03\x04");
    // Name, type, flags, link, entry size, content.
    let mut sections = vec![
        (".text", 1, 6, 0, 0, vec![0x90; 0x40]),
        (".note.gnu.build-id", 7, 2, 0, 0, note),
        (".symtab", 2, 0, 4, 24, symbols),
        (".strtab", 3, 0, 0, 0, b"\0sell\0".to_vec()),
    ];
    sections.extend(build_debug_info().map(|(name, bytes)| (name, 1, 0, 0, 0, bytes)));
    let (mut names, mut name_offsets) = (vec![0], Vec::new());
    for (name, ..) in sections.iter().chain([&(".shstrtab", 3, 0, 0, 0, Vec::new())]) {
        name_offsets.push(u32::try_from(names.len()).expect("the number fits"));
        names.put_ansi_z(name);
    }
    sections.push((".shstrtab", 3, 0, 0, 0, names));
    let (mut body, mut headers) = (Vec::new(), vec![0; 64]);
    let header_bytes = 64 + 56;
    for ((_, kind, flags, link, entry, content), name) in sections.iter().zip(name_offsets) {
        headers.put_u32(name).put_u32(*kind).put_u64(*flags).put_u64(TEXT_ADDRESS);
        headers.put_u64((header_bytes + body.len()) as u64).put_u64(content.len() as u64);
        headers.put_u32(*link).put_u32(0).put_u64(1).put_u64(*entry);
        body.put(content);
        body.resize(body.len().next_multiple_of(8), 0);
    }
    let count = u16::try_from(sections.len() + 1).expect("the number fits");
    let mut out = Vec::new();
    out.put(b"\x7FELF\x02\x01\x01").put(&[0; 9]).put_u16(3).put_u16(62).put_u32(1).put_u64(0).put_u64(64);
    out.put_u64((header_bytes + body.len()) as u64).put_u32(0).put_u16(64).put_u16(56).put_u16(1).put_u16(64);
    out.put_u16(count).put_u16(count - 1);
    out.put_u32(1).put_u32(5).put_u64(0).put_u64(0).put_u64(0).put_u64(0x400).put_u64(0x400).put_u64(4096);
    out.put(&body).put(&headers);
    out
}

/// Returns a PDB with a procedure and a public symbol.
fn build_pdb() -> Vec<u8> {
    let record = |kind: u16, body: &[u8]| {
        let mut out = Vec::new();
        let size = (body.len() + 4).next_multiple_of(4) - 2;
        out.put_u16(u16::try_from(size).expect("the number fits")).put_u16(kind).put(body);
        out.resize(size + 2, 0);
        out
    };
    // S_GPROC32 (0x1110 below): parent, end, next, size, debug start and end, type, offset;
    // section, flags, name.
    let mut procedure = Vec::new();
    for field in [0, 0, 0, 0x40, 0, 0, 0x1001, 0x10_u32] {
        procedure.put_u32(field);
    }
    procedure.put_u16(1).put_u8(0).put_ansi_z("shop::sell");
    // S_PUB32 (0x110E below): flags, offset, section, name.
    let mut public = Vec::new();
    public.put_u32(2).put_u32(0x80).put_u16(1).put_ansi_z("?add@shop@@YAXXZ");
    let mut symbols = Vec::new();
    symbols.put_u32(4).put(&record(0x1110, &procedure));
    let globals = record(0x110E, &public);
    // Version of the format, time, age, GUID.
    let mut identity = Vec::new();
    identity.put_u32(20_000_404).put_u32(1).put_u32(1).put(&[7; 16]).put(&[0; 20]);
    let mut module = vec![0; 32];
    module.put_u16(0).put_u16(5).put_u32(u32::try_from(symbols.len()).expect("the number fits"));
    module.resize(64, 0);
    module.put_ansi_z("a.obj").put_ansi_z("a.obj");
    let mut debug = Vec::new();
    debug.put_u32(u32::MAX).put_u32(19_990_903).put_u32(1);
    for stream in [u16::MAX, 0, u16::MAX, 0, 6, 0] {
        debug.put_u16(stream);
    }
    debug.put_u32(u32::try_from(module.len()).expect("the number fits"));
    debug.resize(48, 0);
    // Size of the list of optional streams, which follows the modules.
    debug.put_u32(22);
    debug.resize(64, 0);
    debug.put(&module);
    for stream in [u16::MAX, u16::MAX, u16::MAX, u16::MAX, u16::MAX, 7] {
        debug.put_u16(stream);
    }
    debug.resize(debug.len() + 10, 0xFF);
    // The only section begins at the start of the image.
    let section = vec![0; 40];
    build_multi_stream_file(&[&[], &identity, &[], &debug, &[], &symbols, &globals, &section])
}
