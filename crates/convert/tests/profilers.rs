//! Converts damaged traces to the formats of profilers: whatever the damage, the output is whole.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::filter::FilterCriteria;
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_convert::{Conversion, ConvertInput, chrome, firefox, perfetto, pprof};

/// Returns whether an output is whole.
type IsWhole = fn(&[u8]) -> bool;

/// Writes a format.
type Convert = fn(&ConvertInput, &mut dyn Write) -> Result<Conversion>;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/etl/{name}.etl"))
}

fn input(path: &Path) -> ConvertInput {
    ConvertInput {
        files: vec![path.to_owned()],
        schemas: SchemaFiles { ignores_programs: true, ..SchemaFiles::default() },
        symbols: SymbolOptions::default(),
        criteria: FilterCriteria::default(),
        observer: Arc::new(()),
    }
}

/// Returns whether bytes are a sequence of length-delimited fields of number 1.
fn is_packet_stream(mut bytes: &[u8]) -> bool {
    while let Some((tag, rest)) = bytes.split_first() {
        let (mut length, mut shift, mut read) = (0_usize, 0, 0);
        for byte in rest {
            length |= usize::from(byte & 0x7F) << shift;
            (shift, read) = (shift + 7, read + 1);
            if byte & 0x80 == 0 {
                break;
            }
        }
        match rest.get(read + length..).filter(|_| *tag == 10) {
            Some(next) => bytes = next,
            None => return false,
        }
    }
    true
}

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(bytes).is_ok()
}

fn is_gzip(bytes: &[u8]) -> bool {
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut content).is_ok() && !content.is_empty()
}

/// Each format with a check of its outputs.
const FORMATS: [(Convert, IsWhole); 4] = [
    (perfetto::convert, is_packet_stream),
    (chrome::convert, is_json),
    (firefox::convert, is_json),
    (pprof::convert, is_gzip),
];

/// Returns the next number of a sequence that only depends on its start (xorshift).
fn next_number(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn damaged_traces_become_whole_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.etl");
    let (mut state, mut converted) = (0x9E37_79B9_7F4A_7C15_u64, 0);
    for name in ["kernel", "tracelogging", "manifest", "merged", "narrow"] {
        let original = std::fs::read(fixture(name)).unwrap();
        for _ in 0..12 {
            let mut bytes = original.clone();
            for _ in 0..=next_number(&mut state) % 20 {
                let position = next_number(&mut state) as usize % bytes.len();
                // The header stays, so that most files can be opened.
                bytes[position.max(0x300)] = next_number(&mut state) as u8;
            }
            std::fs::write(&path, &bytes).unwrap();
            for (convert, is_whole) in FORMATS {
                let mut out = Vec::new();
                if convert(&input(&path), &mut out).is_ok() {
                    assert!(is_whole(&out), "{name}: the output is damaged");
                    converted += 1;
                }
            }
        }
    }
    assert!(converted > 100, "only {converted} conversions of damaged traces ended");
}

#[test]
fn criteria_select_the_converted_events() {
    let mut selected = input(&fixture("kernel"));
    selected.criteria.events = vec!["SampleProf".to_owned()];
    let all = chrome::convert(&input(&fixture("kernel")), &mut Vec::new()).unwrap();
    let mut out = Vec::new();
    let conversion = chrome::convert(&selected, &mut out).unwrap();
    assert_eq!((conversion.events, all.events), (2, 43));
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    assert_eq!(events.iter().filter(|event| event["ph"] == "P").count(), 2);
    // The names of processes and threads are known, although their events were not selected.
    assert!(events.iter().any(|event| event["args"]["name"] == "child.exe"));
}

#[test]
fn failing_output_ends_the_conversion() {
    /// Accepts no bytes.
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    for (convert, _) in FORMATS {
        assert!(convert(&input(&fixture("kernel")), &mut Full).is_err());
    }
}
