//! The table of declarations: the same bytes from C and from C++ as from the builder.

use std::process::Command;

use traceweir_format::tracelogging::TraitsBuilder;

use crate::compiler::{Workbench, compilers};
use crate::generate::Runtime;
use crate::kinds::KINDS;
use crate::support::expect_success;
use crate::table::{Declaration, FieldContent};
use crate::{generate, table};

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".to_owned() } else { bytes.iter().map(|b| format!("{b:02x}")).collect() }
}

/// Returns the line that a program must print for an event; the last word has the types of its
/// blocks.
pub(crate) fn expected(event: &Declaration) -> String {
    let mut traits = TraitsBuilder::new("Table");
    let traits = hex(traits.finish().expect("traits of a name"));
    format!(
        "event {} {traits} {} {}",
        hex(&event.descriptor()),
        hex(&event.metadata()),
        hex(&event.payload())
    )
}

#[test]
fn metadata_from_c_and_cpp_equal_those_of_the_builder() {
    let (table, workbench) = (table::read(), Workbench::new());
    let source = workbench.source("table.c", &generate::program(&table, Runtime::Hooks));
    for compiler in compilers() {
        let program = workbench.build(compiler, &source, &[compiler.standards()[0], "-O0"]);
        let printed = expect_success(&mut Command::new(program));
        assert_eq!(printed.lines().count(), table.len(), "{compiler:?}: a line for each event");
        for (line, event) in printed.lines().zip(&table) {
            let (what, types) = line.rsplit_once(' ').expect("the types of the blocks");
            assert_eq!(what, expected(event), "{compiler:?}: {}", event.name);
            assert!(
                types.starts_with("0201") && types[4..].bytes().all(|b| b == b'0'),
                "{}: {types}",
                event.name
            );
        }
    }
}

#[test]
fn the_table_has_every_kind_and_every_array() {
    let table = table::read();
    assert!(table.len() >= 150, "{} declarations", table.len());
    let what = || table.iter().flat_map(|e| &e.fields).map(|f| &f.what);
    for kind in KINDS {
        let is = |k: &crate::kinds::Kind| k.name == kind.name;
        assert!(what().any(|w| matches!(w, FieldContent::Value(k) if is(k))), "{}", kind.name);
        if !kind.initialisers().is_empty() {
            assert!(what().any(|w| matches!(w, FieldContent::Array(k) if is(k))), "{}Array", kind.name);
            assert!(
                what().any(|w| matches!(w, FieldContent::Fixed(k, _) if is(k))),
                "{}FixedArray",
                kind.name
            );
        }
    }
}

#[test]
fn the_table_compiles_strictly_in_every_standard() {
    let workbench = Workbench::new();
    let source = workbench.source("table.c", &generate::program(&table::read(), Runtime::Hooks));
    for compiler in compilers() {
        workbench.accepts(compiler, &source, &[compiler.standards()[1]]);
    }
}
