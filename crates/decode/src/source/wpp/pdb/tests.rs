use std::io::Cursor;

use super::*;
use proptest::prelude::*;
use traceweir_format::spec::types::{InType, OutType};
use traceweir_format::wire::Put;

use crate::pdb_file::{PAGE, container, module, symbol};
use crate::schema::{Field, SchemaOrigin};

const NO_STREAM: u16 = 0xFFFF;

fn encode_annotation(strings: &[&str]) -> Vec<u8> {
    let mut body = Vec::new();
    // The offset and section of the code, and the number of strings.
    body.put_u32(0x1000).put_u16(1).put_u16(u16::try_from(strings.len()).unwrap());
    for string in strings {
        body.put_ansi_z(string);
    }
    symbol(S_ANNOTATION, &body)
}

/// Encodes a global procedure whose scope ends at offset `end` of the module stream.
fn encode_procedure(name: &str, end: u32) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u32(0).put_u32(end);
    // Next scope, code length, start and end of debugging, type index, code offset.
    for field in [0, 0x40, 0, 0x3F, 0x1001, 0x1000_u32] {
        body.put_u32(field);
    }
    body.put_u16(1).put_u8(0).put_ansi_z(name);
    // S_GPROC32.
    symbol(0x1110, &body)
}

fn encode_debug_stream(globals: u16, modules: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    // Signature, version, age; then streams and build numbers, in which only the global symbols
    // have a stream; then the size of the modules.
    stream.put_u32(u32::MAX).put_u32(19_990_903).put_u32(1);
    stream.put_u16(NO_STREAM).put_u16(0).put_u16(NO_STREAM).put_u16(0).put_u16(globals).put_u16(0);
    stream.put_u32(u32::try_from(modules.len()).unwrap());
    stream.resize(64, 0);
    stream.put(modules);
    stream
}

/// Builds a PDB with one module of these symbols and these global symbols.
fn build_pdb(symbols: &[u8], globals: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    stream.put_u32(4).put(symbols);
    let modules = module(5, u32::try_from(stream.len()).unwrap());
    container(&[vec![], vec![], vec![], encode_debug_stream(6, &modules), vec![], stream, globals.to_vec()])
}

const SECTION: &str = "2158e7d3-9867-cde3-18b5-9713c628abdf disk // SRC=read.c MJ= MN=";

fn encode_two_messages() -> Vec<u8> {
    let first = "#typev read_c10 10 \"%0%!FUNC! read %10!d!\n\" // LEVEL=Noise FLAGS=IO";
    let second = "#typev read_c11 11 \"%0%!FUNC!\" // LEVEL=Noise FUNC=Named";
    let in_procedure = encode_annotation(&["TMF:", SECTION, first, "{", "Irp->Length, ItemLong -- 10", "}"]);
    let after_procedure = encode_annotation(&["TMF:", SECTION, second, "{", "}"]);
    let control = encode_annotation(&["TMC:", "0b67e6f7-ae91-470c-b4b6-dcd6a9034e18", "DiskTrace", "IO"]);
    let placeholder = encode_procedure("ReadBlock", 0);
    let end = u32::try_from(4 + placeholder.len() + in_procedure.len()).unwrap();
    let mut symbols = encode_procedure("ReadBlock", end);
    // 0x0006 is S_END.
    symbols.put(&in_procedure).put(&symbol(0x0006, &[])).put(&control).put(&after_procedure);
    symbols
}

#[test]
fn annotations_of_a_module_give_its_messages() {
    let parsed = load(Cursor::new(build_pdb(&encode_two_messages(), &[]))).unwrap();
    assert_eq!(parsed.warnings, []);
    let [first, second] = &parsed.formats[..] else { panic!("{parsed:?}") };
    assert_eq!(first.guid.to_string(), "2158e7d3-9867-cde3-18b5-9713c628abdf");
    assert_eq!((first.number, second.number), (10, 11));
    assert_eq!(first.schema.origin, SchemaOrigin::Wpp);
    assert_eq!(first.schema.message.as_deref(), Some("ReadBlock read %1!d!"));
    assert_eq!(first.schema.top(), [Field::value("Irp->Length", InType::INT32, OutType::NULL)]);
    assert_eq!(
        first.info.function.as_deref(),
        Some("ReadBlock"),
        "the enclosing procedure must give the function"
    );
    assert_eq!(first.info.flags.as_deref(), Some("IO"));
    assert_eq!(first.info.source_file.as_deref(), Some("read.c"));
    assert_eq!(second.info.function.as_deref(), Some("Named"), "the value of FUNC= must take precedence");
    assert!(second.schema.top().is_empty());
}

#[test]
fn annotation_after_the_end_of_a_procedure_has_no_function() {
    let message = encode_annotation(&["TMF:", SECTION, "#typev t 1 \"%!FUNC!.\"", "{", "}"]);
    // The procedure ends at offset 8, before the annotation.
    let mut symbols = encode_procedure("Other", 8);
    symbols.put(&message);
    let parsed = load(Cursor::new(build_pdb(&symbols, &[]))).unwrap();
    assert_eq!(parsed.formats[0].info.function, None);
    assert_eq!(parsed.formats[0].schema.message.as_deref(), Some("."));
}

#[test]
fn global_symbols_are_read_too() {
    let message = encode_annotation(&["TMF:", SECTION, "#typev t 1 \"x\"", "{", "}"]);
    let parsed = load(Cursor::new(build_pdb(&[], &message))).unwrap();
    assert_eq!(parsed.formats.len(), 1);
}

#[test]
fn damaged_module_loses_only_its_own_messages() {
    let message = encode_annotation(&["TMF:", SECTION, "#typev t 1 \"x\"", "{", "}"]);
    let mut bad = vec![0; 4];
    bad.put_u32(9);
    let mut good = Vec::new();
    good.put_u32(4).put(&message);
    let good_size = u32::try_from(good.len()).unwrap();
    // An unsupported signature, a size past the stream, two modules without a stream, and the good
    // module. Missing streams are normal in a stripped PDB, so only the first two give a warning.
    let modules =
        [module(4, 8), module(5, u32::MAX), module(77, 8), module(NO_STREAM, 8), module(5, good_size)]
            .concat();
    let file = container(&[vec![], vec![], vec![], encode_debug_stream(NO_STREAM, &modules), bad, good]);
    let parsed = load(Cursor::new(file)).unwrap();
    assert_eq!(parsed.formats.len(), 1);
    assert_eq!(parsed.warnings, [(0, "symbols of a module cannot be read"); 2]);
}

#[test]
fn annotation_with_missing_strings_gives_a_warning() {
    let mut message = encode_annotation(&["TMF:", SECTION, "#typev t 1 \"x\"", "{", "}"]);
    // Byte 10 is the low byte of the number of strings.
    message[10] = 200;
    let parsed = load(Cursor::new(build_pdb(&message, &[]))).unwrap();
    assert_eq!(parsed.formats.len(), 1);
    assert!(
        parsed
            .warnings
            .iter()
            .any(|(_, warning)| *warning == "the annotation has fewer strings than it declares")
    );
}

#[test]
fn other_files_and_pdbs_without_messages_are_errors() {
    assert!(matches!(load(Cursor::new(vec![0; 10_000])), Err(Error::Binary(_))));
    assert!(matches!(load(Cursor::new(vec![])), Err(Error::Binary(_))));
    assert!(matches!(load(Cursor::new(build_pdb(&[], &[]))), Err(Error::NoMetadata(_))));
    let control = encode_annotation(&["TMC:", SECTION, "#typev t 1 \"x\"", "{", "}"]);
    assert!(matches!(load(Cursor::new(build_pdb(&control, &[]))), Err(Error::NoMetadata(_))));
}

#[test]
fn stream_longer_than_the_file_is_refused() {
    let mut file = build_pdb(&encode_two_messages(), &[]);
    // The directory is in page 4: the number of streams, then their lengths. Make stream 3 longer
    // than the file, then as long as possible.
    for size in [0x0100_0000_u32, 0xFFFF_FFFE] {
        file[4 * PAGE + 16..4 * PAGE + 20].copy_from_slice(&size.to_le_bytes());
        assert!(matches!(load(Cursor::new(&file)), Err(Error::Binary(_))));
    }
}

#[test]
fn shared_module_stream_is_read_within_the_budget() {
    let mut stream = Vec::new();
    stream.put_u32(4).put(&encode_annotation(&["TMF:", SECTION, "#typev t 1 \"x\"", "{", "}"]));
    // Symbols of an unused kind fill the stream.
    while stream.len() < 40 * PAGE {
        stream.put(&symbol(0x1012, &[0; 1000]));
    }
    let modules = module(5, u32::try_from(stream.len()).unwrap()).repeat(500);
    let file = container(&[vec![], vec![], vec![], encode_debug_stream(NO_STREAM, &modules), vec![], stream]);
    let parsed = load(Cursor::new(file)).unwrap();
    assert!((3..10).contains(&parsed.formats.len()), "{}", parsed.formats.len());
    assert_eq!(
        parsed.formats.len() + parsed.warnings.len(),
        500,
        "every module must give a message or a warning"
    );
}

#[test]
fn holes_of_a_file_are_not_read_into_memory() {
    let mut file = tempfile::tempfile().unwrap();
    io::Write::write_all(&mut file, &build_pdb(&encode_two_messages(), &[])).unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!(load_file(file.try_clone().unwrap()).unwrap().formats.len(), 2);
    file.set_len(1 << 30).unwrap();
    assert_eq!(load_file(file.try_clone().unwrap()).unwrap().formats.len(), 2);
    let mut bounded = BoundedFile::new(&file, length_from_stored_blocks(&file.metadata().unwrap())).unwrap();
    let slice = |size: usize| [SourceSlice { offset: 0, size }];
    assert!(bounded.view(&slice(metadata.len() as usize)).is_ok());
    assert!(bounded.view(&slice(8 << 20)).is_err());
    // A stream above the memory limit is refused however long the file is.
    let mut unlimited = BoundedFile::new(&file, u64::MAX).unwrap();
    assert!(unlimited.view(&slice(1 << 20)).is_ok() && unlimited.view(&slice((256 << 20) + 1)).is_err());
    file.set_len(9 << 30).unwrap();
    assert!(matches!(load_file(file), Err(Error::Binary(_))));
}

#[test]
fn pdb_must_be_a_regular_file() {
    let (reading, _writing) = io::pipe().unwrap();
    let pipe = File::from(std::os::fd::OwnedFd::from(reading));
    assert!(matches!(load_file(pipe), Err(Error::Binary(reason)) if reason.contains("regular file")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damaged_files_never_panic(changes in proptest::collection::vec((0_usize..8 * PAGE, any::<u8>()), 1..8), cut in 0_usize..9 * PAGE) {
        let mut file = build_pdb(&encode_two_messages(), &[]);
        let length = file.len();
        for (at, byte) in changes {
            file[at % length] = byte;
        }
        file.truncate(cut.max(PAGE));
        let _ = load(Cursor::new(file));
    }

    #[test]
    fn damaged_tables_never_panic(page in prop::sample::select(vec![0_usize, 3, 4, 5, 6]), changes in proptest::collection::vec((0_usize..240, any::<u8>()), 1..6)) {
        let mut file = build_pdb(&encode_two_messages(), &[]);
        for (at, byte) in changes {
            // The magic number stays, because otherwise nothing after it would be read.
            let at = page * PAGE + at + if page == 0 { 32 } else { 0 };
            file[at] = byte;
        }
        let _ = load(Cursor::new(file));
    }
}
