//! Small PE, ELF and PDB files that hold event metadata.

use traceweir_format::wire::Put;

fn to_u16(n: usize) -> u16 {
    u16::try_from(n).expect("the number fits")
}

fn to_u32(n: usize) -> u32 {
    u32::try_from(n).expect("the number fits")
}

/// Returns an ELF file whose first section is `.etw_manifest`.
pub(crate) fn build_elf(body: &[u8]) -> Vec<u8> {
    // The file header: a shared object (3) for x86-64 (62), with three section headers of 64 bytes
    // at `table`; section 2 has the section names.
    let strings = b"\0.etw_manifest\0.shstrtab\0";
    let table = (64 + body.len() + strings.len()).next_multiple_of(8);
    let mut out = Vec::new();
    out.put(b"\x7FELF\x02\x01\x01").put(&[0; 9]).put_u16(3).put_u16(62).put_u32(1).put_u64(0).put_u64(0);
    out.put_u64(table as u64).put_u32(0).put_u16(64).put_u16(0).put_u16(0).put_u16(64).put_u16(3).put_u16(2);
    out.put(body).put(strings);
    out.resize(table + 64, 0);
    // Offset of the name, type (1 contents, 3 strings), position, size.
    for (name, kind, at, size) in [(1, 1, 64, body.len()), (15, 3, 64 + body.len(), strings.len())] {
        out.put_u32(name).put_u32(kind).put_u64(0).put_u64(0).put_u64(at as u64).put_u64(size as u64);
        out.put_u64(0).put_u64(1).put_u64(0);
    }
    out
}

/// Returns a PE file with one resource, type `WEVT_TEMPLATE`, name 1, English.
pub(crate) fn build_pe(body: &[u8]) -> Vec<u8> {
    const SECTION_RVA: u32 = 0x1000;
    const SUBDIRECTORY: u32 = 0x8000_0000;
    let mut resources = Vec::new();
    // Each directory has 24 bytes and one entry: a name or id, and an offset. The data entry is at
    // 72, the name at 88.
    let put_directory = |out: &mut Vec<u8>, named: u16, ids: u16, (name_or_id, offset): (u32, u32)| {
        out.put(&[0; 12]).put_u16(named).put_u16(ids).put_u32(name_or_id).put_u32(offset);
    };
    put_directory(&mut resources, 1, 0, (88 | SUBDIRECTORY, 24 | SUBDIRECTORY));
    put_directory(&mut resources, 0, 1, (1, 48 | SUBDIRECTORY));
    put_directory(&mut resources, 0, 1, (0x409, 72));
    let data = 120;
    resources.put_u32(SECTION_RVA + data).put_u32(to_u32(body.len())).put_u64(0);
    resources.put_u16(13).put_wide_z("WEVT_TEMPLATE");
    resources.resize(data as usize, 0);
    resources.put(body);

    let mut out = Vec::new();
    // DOS header; COFF header for x86-64 with one section; optional header of 240 bytes (PE32+)
    // with 16 data directories, of which the third names the resources.
    out.put(b"MZ").put(&[0; 58]).put_u32(64).put(b"PE\0\0").put_u16(0x8664).put_u16(1).put(&[0; 12]);
    out.put_u16(240).put_u16(0x2022).put_u16(0x20B).put(&[0; 106]).put_u32(16).put(&[0; 16]);
    out.put_u32(SECTION_RVA).put_u32(to_u32(resources.len())).put(&[0; 104]);
    let headers = to_u32(out.len() + 40);
    let size = to_u32(resources.len());
    out.put(b".rsrc\0\0\0")
        .put_u32(size)
        .put_u32(SECTION_RVA)
        .put_u32(size)
        .put_u32(headers)
        .put(&[0; 16])
        .put(&resources);
    out
}

/// Returns a PDB of small pages, whose only module has one annotation with a message format.
pub(crate) fn build_pdb() -> Vec<u8> {
    let strings = [
        "TMF:",
        "2158e7d3-9867-cde3-18b5-9713c628abdf disk // SRC=read.c MJ= MN=",
        "#typev read_c10 10 \"%0read %10!d!\" // LEVEL=Noise FLAGS=IO",
        "{",
        "Irp->Length, ItemLong -- 10",
        "}",
    ];
    // S_ANNOTATION (0x1019 below): offset, section, number of strings, strings.
    let mut body = Vec::new();
    body.put_u32(0x1000).put_u16(1).put_u16(to_u16(strings.len()));
    strings.iter().for_each(|s| discard(body.put_ansi_z(s)));
    body.resize(body.len().next_multiple_of(4), 0);
    let mut symbols = Vec::new();
    symbols.put_u32(4).put_u16(to_u16(body.len() + 2)).put_u16(0x1019).put(&body);
    // A module: flags, stream of its symbols (5), their size, …, names.
    let mut module = vec![0; 32];
    module.put_u16(0).put_u16(5).put_u32(to_u32(symbols.len()));
    module.resize(64, 0);
    module.put_ansi_z("a.obj").put_ansi_z("a.obj");
    // The stream of debug information (DBI): signature, version, age, streams that do not exist
    // (0xFFFF), size of the list of modules.
    let mut debug = Vec::new();
    debug
        .put_u32(u32::MAX)
        .put_u32(19_990_903)
        .put_u32(1)
        .put_u16(0xFFFF)
        .put_u16(0)
        .put_u16(0xFFFF)
        .put_u16(0);
    debug.put_u16(0xFFFF).put_u16(0).put_u32(to_u32(module.len()));
    debug.resize(64, 0);
    debug.put(&module);
    build_multi_stream_file(&[&[], &[], &[], &debug, &[], &symbols])
}

/// Turns the result of a `Put` method into `()`, for closures that return nothing.
fn discard(_: &mut Vec<u8>) {}

/// Returns a PDB of these streams: header page, two pages of the free map, the directory's page
/// list, the directory, then the streams.
pub(crate) fn build_multi_stream_file(streams: &[&[u8]]) -> Vec<u8> {
    const PAGE_BYTES: usize = 512;
    let (mut directory, mut pages) = (Vec::new(), Vec::new());
    directory.put_u32(to_u32(streams.len()));
    streams.iter().for_each(|s| discard(directory.put_u32(to_u32(s.len()))));
    for part in streams.iter().flat_map(|s| s.chunks(PAGE_BYTES)) {
        directory.put_u32(to_u32(5 + pages.len() / PAGE_BYTES));
        pages.put(part);
        pages.resize(pages.len().next_multiple_of(PAGE_BYTES), 0);
    }
    let mut file = b"Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0".to_vec();
    let page_count = to_u32(5 + pages.len() / PAGE_BYTES);
    file.put_u32(to_u32(PAGE_BYTES))
        .put_u32(1)
        .put_u32(page_count)
        .put_u32(to_u32(directory.len()))
        .put_u32(0)
        .put_u32(3);
    file.resize(3 * PAGE_BYTES, 0);
    file.put_u32(4);
    file.resize(4 * PAGE_BYTES, 0);
    file.put(&directory);
    file.resize(5 * PAGE_BYTES, 0);
    file.put(&pages);
    file
}
