//! Compares the bytes that C and C++ programs pass for the table of declarations with those of the
//! builder.

use std::process::Command;

use traceweir_format::tracelogging::TraitsBuilder;

use crate::compiler::{SourceFolder, compilers};
use crate::generate::Runtime;
use crate::kinds::FIELD_KINDS;
use crate::support::expect_success;
use crate::table::{EventDeclaration, FieldContent};
use crate::{generate, table};

fn encode_hex(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".to_owned() } else { bytes.iter().map(|byte| format!("{byte:02x}")).collect() }
}

/// Returns the line that a program must print for an event, without its last word, which has the
/// types of the blocks.
pub(crate) fn expected_line(event: &EventDeclaration) -> String {
    let mut traits = TraitsBuilder::new("Table");
    let traits = encode_hex(traits.finish().expect("the traits are invalid"));
    format!(
        "event {} {traits} {} {}",
        encode_hex(&event.descriptor()),
        encode_hex(&event.metadata()),
        encode_hex(&event.payload())
    )
}

#[test]
fn metadata_from_c_and_cpp_equal_those_of_the_builder() {
    let (table, folder) = (table::read_declarations(), SourceFolder::new());
    let source = folder.write_source("table.c", &generate::generate_program(&table, Runtime::Hooks));
    for compiler in compilers() {
        let program = folder.build(compiler, &source, &[compiler.standards()[0], "-O0"]);
        let printed = expect_success(&mut Command::new(program));
        assert_eq!(
            printed.lines().count(),
            table.len(),
            "{compiler:?}: the program did not print one line for each event"
        );
        for (line, event) in printed.lines().zip(&table) {
            let (printed_event, types) =
                line.rsplit_once(' ').expect("the line does not end with the types of the blocks");
            assert_eq!(printed_event, expected_line(event), "{compiler:?}: {}", event.name);
            // The blocks are the traits (2), the metadata (1) and the payload (0).
            assert!(
                types.starts_with("0201") && types[4..].bytes().all(|digit| digit == b'0'),
                "{}: {types}",
                event.name
            );
        }
    }
}

#[test]
fn table_has_every_kind_and_every_array() {
    let table = table::read_declarations();
    assert!(table.len() >= 150, "{} declarations", table.len());
    let contents = || table.iter().flat_map(|event| &event.fields).map(|field| &field.content);
    for kind in FIELD_KINDS {
        let is_kind = |field_kind: &crate::kinds::FieldKind| field_kind.name == kind.name;
        assert!(
            contents().any(|content| matches!(content, FieldContent::Value(value) if is_kind(value))),
            "the table has no {}",
            kind.name
        );
        if !kind.c_initializers().is_empty() {
            assert!(
                contents().any(|content| matches!(content, FieldContent::Array(array) if is_kind(array))),
                "the table has no {}Array",
                kind.name
            );
            assert!(
                contents().any(|content| matches!(content, FieldContent::Fixed(array, _) if is_kind(array))),
                "the table has no {}FixedArray",
                kind.name
            );
        }
    }
}

#[test]
fn table_compiles_strictly_in_the_newer_standard() {
    let folder = SourceFolder::new();
    let source = folder
        .write_source("table.c", &generate::generate_program(&table::read_declarations(), Runtime::Hooks));
    for compiler in compilers() {
        folder.assert_compiles(compiler, &source, &[compiler.standards()[1]]);
    }
}
