//! PE and ELF files built by hand, with and without event metadata.

use traceweir_format::wire::Put;

use super::*;
use crate::Error;
use crate::source::wevt::build::{
    PatchedBytes, compile_test_manifest, encode_message_table, encode_messages, for_each_damaged_copy,
};

/// The address of the only section of a built PE file, relative to the load address.
const SECTION_RVA: u32 = 0x1000;

/// A resource: type (an id or a name), language id, bytes. Type 11 is a message table. Language
/// 0x409 is US English, 0x407 is German.
type Resource<'a> = (Result<u16, &'a str>, u16, &'a [u8]);

/// Builds a `.rsrc` section. Resources of one type must be adjacent; each resource has the id 1.
fn build_resource_section(resources: &[Resource<'_>]) -> Vec<u8> {
    const SUBDIRECTORY: u32 = 0x8000_0000;
    let mut b = PatchedBytes::default();
    let types: Vec<_> = resources.chunk_by(|a, b| a.0 == b.0).collect();
    let put_directory = |b: &mut PatchedBytes, named: usize, ids: usize| {
        b.0.put(&[0; 12]).put_u16(named as u16).put_u16(ids as u16);
    };
    let named = types.iter().filter(|t| t[0].0.is_err()).count();
    put_directory(&mut b, named, types.len() - named);
    let (mut name_holes, mut type_holes) = (Vec::new(), Vec::new());
    for t in &types {
        match t[0].0 {
            Ok(id) => {
                b.0.put_u32(id.into());
            }
            Err(name) => name_holes.push((b.reserve_u32(), name)),
        }
        type_holes.push(b.reserve_u32());
    }
    for (t, hole) in types.iter().zip(type_holes) {
        b.fill_u32(hole, b.position() | SUBDIRECTORY);
        put_directory(&mut b, 0, 1);
        b.0.put_u32(1);
        let languages = b.reserve_u32();
        b.fill_u32(languages, b.position() | SUBDIRECTORY);
        put_directory(&mut b, 0, t.len());
        let mut entries = Vec::new();
        for (_, language, _) in *t {
            b.0.put_u32((*language).into());
            entries.push(b.reserve_u32());
        }
        for ((_, _, bytes), entry) in t.iter().zip(entries) {
            b.fill_position(entry);
            let address = b.position() + 16 + SECTION_RVA;
            b.0.put_u32(address).put_u32(bytes.len() as u32).put_u64(0).put(bytes);
            b.0.resize(b.0.len().next_multiple_of(4), 0);
        }
    }
    for (hole, name) in name_holes {
        b.fill_u32(hole, b.position() | SUBDIRECTORY);
        b.0.put_u16(name.len() as u16).put_wide_z(name);
    }
    b.0
}

/// Builds a PE file of one section: the resources in `section`, or 16 zeros and no resources.
fn build_pe_file(is_64_bit: bool, section: Option<&[u8]>) -> Vec<u8> {
    let body = section.unwrap_or(&[0; 16]);
    let optional_size = if is_64_bit { 240 } else { 224 };
    // DOS header, signature, file header, optional header, one section header.
    let headers = 64 + 4 + 20 + optional_size + 40;
    let mut out = Vec::new();
    out.put(b"MZ").put(&[0; 58]).put_u32(64).put(b"PE\0\0");
    // Machine, number of sections, time and symbols, size of the optional header, characteristics.
    out.put_u16(if is_64_bit { 0x8664 } else { 0x14C })
        .put_u16(1)
        .put(&[0; 12])
        .put_u16(optional_size as u16)
        .put_u16(0x2022);
    let optional = out.len();
    out.put_u16(if is_64_bit { 0x20B } else { 0x10B });
    // The optional header ends with 16 data directories; the third is that of the resources.
    out.resize(optional + optional_size - 16 * 8 - 4, 0);
    out.put_u32(16).put(&[0; 16]);
    match section {
        Some(section) => out.put_u32(SECTION_RVA).put_u32(section.len() as u32),
        None => out.put_u64(0),
    };
    out.resize(optional + optional_size, 0);
    // Name, size and address in memory, size and offset in the file.
    out.put(b".rsrc\0\0\0")
        .put_u32(body.len() as u32)
        .put_u32(SECTION_RVA)
        .put_u32(body.len() as u32)
        .put_u32(headers as u32);
    out.put(&[0; 16]);
    assert_eq!(out.len(), headers);
    out.put(body);
    out
}

/// Builds a 64-bit or 32-bit ELF file with one named section besides its string table.
fn build_elf_file(is_64_bit: bool, name: &str, body: &[u8]) -> Vec<u8> {
    build_elf_with_sections(is_64_bit, &[(name, 1, body)])
}

/// Builds an ELF file with these sections, each given as name, type and content.
pub(in crate::source) fn build_elf_with_sections(
    is_64_bit: bool,
    sections: &[(&str, u32, &[u8])],
) -> Vec<u8> {
    let mut strings = vec![0];
    let mut names: Vec<usize> = Vec::new();
    for name in sections.iter().map(|s| s.0).chain([".shstrtab"]) {
        names.push(strings.len());
        strings.put_ansi_z(name);
    }
    let (header, entry) = if is_64_bit { (64, 64) } else { (52, 40) };
    let mut contents: Vec<(u32, Vec<u8>)> = sections.iter().map(|s| (s.1, s.2.to_vec())).collect();
    // Type 3 is a string table.
    contents.push((3, strings));
    let size: usize = contents.iter().map(|c| c.1.len().next_multiple_of(8)).sum();
    let table_at = (header + size).next_multiple_of(8);
    let put_word = |out: &mut Vec<u8>, v: usize| {
        if is_64_bit {
            out.put_u64(v as u64)
        } else {
            out.put_u32(v as u32)
        };
    };
    let mut out = Vec::new();
    // Class, byte order, version; shared object, machine, version; entry, program headers, section
    // headers; flags and sizes; number of sections, and the one with their names.
    out.put(b"\x7FELF").put(&[if is_64_bit { 2 } else { 1 }, 1, 1]).put(&[0; 9]);
    out.put_u16(3).put_u16(if is_64_bit { 62 } else { 3 }).put_u32(1);
    put_word(&mut out, 0);
    put_word(&mut out, 0);
    put_word(&mut out, table_at);
    out.put_u32(0).put_u16(header as u16).put_u16(0).put_u16(0).put_u16(entry as u16);
    out.put_u16(contents.len() as u16 + 1).put_u16(contents.len() as u16);
    assert_eq!(out.len(), header);
    let mut offsets = Vec::new();
    for (_, body) in &contents {
        offsets.push(out.len());
        out.put(body);
        out.resize(header + (out.len() - header).next_multiple_of(8), 0);
    }
    out.resize(table_at + entry, 0);
    for (((kind, body), at), name) in contents.iter().zip(offsets).zip(names) {
        // Name, type, flags, address, offset, size, link and info, alignment, entry size.
        out.put_u32(name as u32).put_u32(*kind);
        put_word(&mut out, 0);
        put_word(&mut out, 0);
        put_word(&mut out, at);
        put_word(&mut out, body.len());
        out.put_u64(0);
        put_word(&mut out, 4);
        put_word(&mut out, 0);
    }
    out
}

/// Returns the level name of the first event, which comes from the message table if there is one.
fn first_level_name(file: &[u8]) -> String {
    let providers = load(file).unwrap();
    assert_eq!((providers.len(), providers[0].events.len()), (1, 3));
    providers[0].events[0].schema.names.level.as_deref().unwrap().to_string()
}

#[test]
fn pe_files_of_both_widths_give_their_providers() {
    let (blob, texts) = (compile_test_manifest(true), encode_messages());
    let section = build_resource_section(&[(Err("WEVT_TEMPLATE"), 0x409, &blob), (Ok(11), 0x409, &texts)]);
    for is_64_bit in [true, false] {
        let file = build_pe_file(is_64_bit, Some(&section));
        assert_eq!(load(&file).unwrap()[0].events[0].schema.message.as_deref(), Some("Did %1 with %2%n"));
    }
}

#[test]
fn english_messages_are_preferred_to_other_languages() {
    let (blob, german, english) = (
        compile_test_manifest(true),
        encode_message_table(&[(1, "Fehler")]),
        encode_message_table(&[(1, "Oops")]),
    );
    let file = |messages: &[Resource<'_>]| {
        let mut resources = vec![(Err("WEVT_TEMPLATE"), 0x407, &blob[..])];
        resources.extend(messages);
        build_pe_file(true, Some(&build_resource_section(&resources)))
    };
    assert_eq!(first_level_name(&file(&[(Ok(11), 0x407, &german), (Ok(11), 0x409, &english)])), "Oops");
    assert_eq!(first_level_name(&file(&[(Ok(11), 0x407, &german)])), "Fehler");
    assert_eq!(first_level_name(&file(&[])), "Error", "without messages the level must keep its name");
}

#[test]
fn elf_files_hold_the_manifest_and_then_the_messages() {
    for is_64_bit in [true, false] {
        let mut body = compile_test_manifest(true);
        assert_eq!(first_level_name(&build_elf_file(is_64_bit, ELF_SECTION, &body)), "Error");
        body.put_u64(0);
        assert_eq!(
            first_level_name(&build_elf_file(is_64_bit, ELF_SECTION, &body)),
            "Error",
            "padding must read as an empty message table"
        );
        body.truncate(body.len() - 8);
        body.resize(body.len().next_multiple_of(4), 0);
        body.put(&encode_message_table(&[(1, "Oops")]));
        assert_eq!(first_level_name(&build_elf_file(is_64_bit, ELF_SECTION, &body)), "Oops");
    }
}

#[test]
fn missing_metadata_and_broken_files_are_different_errors() {
    let icon = build_resource_section(&[(Ok(3), 0x409, b"icon")]);
    for file in
        [build_pe_file(true, None), build_pe_file(false, Some(&icon)), build_elf_file(true, ".text", b"code")]
    {
        assert!(matches!(load(&file), Err(Error::NoMetadata(_))));
    }
    for file in [&b""[..], b"MZ", b"\x7FELF", b"<xml/>", b"plain"] {
        assert!(matches!(load(file), Err(Error::Binary(_))), "{file:?}");
    }
}

#[test]
fn first_bytes_decide_the_kind() {
    for (bytes, kind) in [
        (&b"MZ\x90"[..], ProviderFileKind::Pe),
        (b"\x7FELF\x02", ProviderFileKind::Elf),
        (b"<?xml", ProviderFileKind::Xml),
        (b"\xEF\xBB\xBF\r\n <a/>", ProviderFileKind::Xml),
        (b"\xFF\xFE<\0?\0", ProviderFileKind::Xml),
        (b"\xFE\xFF\0<\0?", ProviderFileKind::Xml),
        (b"", ProviderFileKind::Other),
        (b"PK\x03\x04", ProviderFileKind::Other),
    ] {
        assert_eq!(detect_file_kind(bytes), kind, "{bytes:?}");
    }
}

#[test]
fn damaged_input_never_panics() {
    // Damages files with small contents: a manifest without providers (signature, size 16, version
    // 5.1, count 0) and one message. Other tests damage the contents.
    let texts = encode_message_table(&[(1, "Oops")]);
    let section = build_resource_section(&[
        (Err("WEVT_TEMPLATE"), 0x409, b"CRIM\x10\0\0\0\x05\0\x01\0\0\0\0\0"),
        (Ok(11), 0x409, &texts),
    ]);
    for file in [
        build_pe_file(true, Some(&section)),
        build_pe_file(false, Some(&section)),
        build_elf_file(true, ELF_SECTION, b"CRIM\x10\0\0\0\x05\0\x01\0\0\0\0\0"),
        build_elf_file(false, ELF_SECTION, b"CRIM\x10\0\0\0\x05\0\x01\0\0\0\0\0"),
    ] {
        assert!(load(&file).is_ok());
        for_each_damaged_copy(&file, |bytes| {
            let _ = load(bytes);
        });
    }
}
