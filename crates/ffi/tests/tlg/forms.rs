//! Every macro of the field table with all optional arguments: no name, a name, a description,
//! tags; alone, as an array, as a fixed array.

use std::process::Command;

use crate::compiler::{Workbench, compilers};
use crate::generate::{Runtime, program_of};
use crate::kinds::{KINDS, Kind, Sample};
use crate::metadata::expected;
use crate::support::expect_success;
use crate::table::{Declaration, Field, FieldContent};

const TAG: u32 = 0x20_0000;
/// The arguments after the value.
const FORMS: [&str; 4] = ["", ", \"n\"", ", \"n\", \"what it is\"", ", \"n\", \"what it is\", 0x200000"];

type Shape = (String, String, String, fn(Kind) -> FieldContent);

/// Returns the packed fields, which have no kind.
fn packed() -> [Shape; 2] {
    let (data, name) = ("sample_packed, sizeof sample_packed", "sample_packed".to_owned());
    [
        ("PackedField".to_owned(), format!("{data}, TlgInBINARY"), name.clone(), |_| {
            FieldContent::Packed(14, 0)
        }),
        ("PackedFieldEx".to_owned(), format!("{data}, TlgInUINT8, TlgOutHEX"), name, |_| {
            FieldContent::Packed(4, 4)
        }),
    ]
}

/// Returns the shapes of a kind: the macro, its arguments up to the name, the default name, and the
/// content in the table.
fn shapes(kind: &Kind) -> Vec<Shape> {
    let (name, sample) = (kind.name, format!("sample_{}", kind.name));
    if let Sample::Argument(arguments, _) = kind.sample {
        let first = arguments.split(", ").next().expect("an argument").to_owned();
        return vec![(name.to_owned(), arguments.to_owned(), first, FieldContent::Value)];
    }
    vec![
        (name.to_owned(), format!("{sample}[0]"), format!("{sample}[0]"), FieldContent::Value),
        (format!("{name}Array"), format!("{sample}, 3"), sample.clone(), FieldContent::Array),
        (format!("{name}FixedArray"), format!("{sample}, 3"), sample, |kind| FieldContent::Fixed(kind, 3)),
    ]
}

/// Returns the statement, and the event that it must write.
fn row(kind: &Kind, shape: &Shape) -> (String, Declaration) {
    let (name, arguments, text, what) = shape;
    let fields: Vec<_> = FORMS.iter().map(|form| format!("TraceLogging{name}({arguments}{form})")).collect();
    let statement = format!("    TraceLoggingWrite(g_table, \"{name}\", {});\n", fields.join(", "));
    let named =
        |name: &str, tag| Field { what: what(*kind), name: name.to_owned(), tag, format_default: false };
    let fields = vec![named(text, None), named("n", None), named("n", None), named("n", Some(TAG))];
    (statement, Declaration { name: name.clone(), attributes: Vec::new(), fields })
}

#[test]
fn every_macro_takes_an_optional_name_description_and_tags() {
    let packed = packed().map(|shape| row(&KINDS[0], &shape));
    let fields = KINDS.iter().flat_map(|kind| shapes(kind).into_iter().map(|shape| row(kind, &shape)));
    let (statements, rows): (Vec<_>, Vec<_>) = fields.chain(packed).unzip();
    assert!(rows.len() > 150, "{} rows", rows.len());
    let workbench = Workbench::new();
    let source = workbench.source("forms.c", &program_of(&statements, Runtime::Hooks));
    for compiler in compilers() {
        let program = workbench.build(compiler, &source, &[compiler.standards()[0], "-O0"]);
        let printed = expect_success(&mut Command::new(program));
        assert_eq!(printed.lines().count(), rows.len(), "{compiler:?}: a line for each event");
        for (line, row) in printed.lines().zip(&rows) {
            let (what, _types) = line.rsplit_once(' ').expect("the types of the blocks");
            assert_eq!(what, expected(row), "{compiler:?}: TraceLogging{}", row.name);
        }
    }
}

#[test]
fn kinds_without_arrays_have_no_array_macros() {
    let mut text = String::from("#include <TraceLoggingProvider.h>\nextern int unit;\nint unit = 1;\n");
    let mut rows = 0;
    for kind in KINDS.iter().filter(|kind| kind.initialisers().is_empty()) {
        for shape in ["Array", "FixedArray"] {
            let name = format!("TraceLogging{}{shape}", kind.name);
            text += &format!("#ifdef {name}\n#error \"there is no {name}\"\n#endif\n");
            rows += 1;
        }
    }
    assert_eq!(rows, 36, "strings, SIDs, binary, socket addresses, IPv6 and custom");
    let workbench = Workbench::new();
    let source = workbench.source("none.c", &text);
    for compiler in compilers() {
        workbench.accepts(compiler, &source, &[compiler.standards()[0]]);
    }
}
