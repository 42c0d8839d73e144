//! Every macro of the field table with all optional arguments: no name, a name, a description,
//! tags; alone, as an array, as a fixed array.

use std::process::Command;

use traceweir::tracelogging::{InType, OutType};

use crate::compiler::{SourceFolder, compilers};
use crate::generate::{Runtime, generate_program_from_statements};
use crate::kinds::{FIELD_KINDS, FieldKind, FieldSample};
use crate::metadata::expected_line;
use crate::support::expect_success;
use crate::table::{EventDeclaration, Field, FieldContent};

const TAG: u32 = 0x20_0000;
/// The arguments after the value.
const ARGUMENT_FORMS: [&str; 4] =
    ["", ", \"n\"", ", \"n\", \"what it is\"", ", \"n\", \"what it is\", 0x200000"];

/// One macro of a kind of field.
struct MacroShape {
    /// The suffix of the macro's name.
    name: String,
    /// The arguments before the field's name.
    arguments: String,
    default_name: String,
    content: fn(FieldKind) -> FieldContent,
}

/// Returns the macros of packed fields, which have no kind.
fn packed_shapes() -> [MacroShape; 2] {
    let (data, name) = ("sample_packed, sizeof sample_packed", "sample_packed".to_owned());
    [
        MacroShape {
            name: "PackedField".to_owned(),
            arguments: format!("{data}, TlgInBINARY"),
            default_name: name.clone(),
            content: |_| FieldContent::Packed(InType::Binary.as_int(), OutType::Default.as_int()),
        },
        MacroShape {
            name: "PackedFieldEx".to_owned(),
            arguments: format!("{data}, TlgInUINT8, TlgOutHEX"),
            default_name: name,
            content: |_| FieldContent::Packed(InType::U8.as_int(), OutType::Hex.as_int()),
        },
    ]
}

/// Returns the macros of a kind: for a value, and for arrays if there are any.
fn macro_shapes(kind: &FieldKind) -> Vec<MacroShape> {
    let (name, sample) = (kind.name, format!("sample_{}", kind.name));
    let shape = |name: String, arguments: String, default_name: &str, content| MacroShape {
        name,
        arguments,
        default_name: default_name.to_owned(),
        content,
    };
    if let FieldSample::Argument(arguments, _) = kind.sample {
        let first_argument = arguments.split(", ").next().expect("the macro has no argument");
        return vec![shape(name.to_owned(), arguments.to_owned(), first_argument, FieldContent::Value)];
    }
    vec![
        shape(name.to_owned(), format!("{sample}[0]"), &format!("{sample}[0]"), FieldContent::Value),
        shape(format!("{name}Array"), format!("{sample}, 3"), &sample, FieldContent::Array),
        shape(format!("{name}FixedArray"), format!("{sample}, 3"), &sample, |kind| {
            FieldContent::Fixed(kind, 3)
        }),
    ]
}

/// Returns the statement, and the event that it must write.
fn make_row(kind: &FieldKind, shape: &MacroShape) -> (String, EventDeclaration) {
    let MacroShape { name, arguments, default_name, content } = shape;
    let fields: Vec<_> =
        ARGUMENT_FORMS.iter().map(|form| format!("TraceLogging{name}({arguments}{form})")).collect();
    let statement = format!("    TraceLoggingWrite(g_table, \"{name}\", {});\n", fields.join(", "));
    let make_field = |name: &str, tag| Field {
        content: content(*kind),
        name: name.to_owned(),
        tag,
        has_default_format: false,
    };
    let fields = vec![
        make_field(default_name, None),
        make_field("n", None),
        make_field("n", None),
        make_field("n", Some(TAG)),
    ];
    (statement, EventDeclaration { name: name.clone(), attributes: Vec::new(), fields })
}

#[test]
fn every_macro_takes_an_optional_name_description_and_tags() {
    let packed = packed_shapes().map(|shape| make_row(&FIELD_KINDS[0], &shape));
    let fields = FIELD_KINDS
        .iter()
        .flat_map(|kind| macro_shapes(kind).into_iter().map(|shape| make_row(kind, &shape)));
    let (statements, rows): (Vec<_>, Vec<_>) = fields.chain(packed).unzip();
    assert!(rows.len() > 150, "{} rows", rows.len());
    let folder = SourceFolder::new();
    let source =
        folder.write_source("forms.c", &generate_program_from_statements(&statements, Runtime::Hooks));
    for compiler in compilers() {
        let program = folder.build(compiler, &source, &[compiler.standards()[0], "-O0"]);
        let printed = expect_success(&mut Command::new(program));
        assert_eq!(
            printed.lines().count(),
            rows.len(),
            "{compiler:?}: the program did not print one line for each event"
        );
        for (line, row) in printed.lines().zip(&rows) {
            let (event, _types) =
                line.rsplit_once(' ').expect("the line does not end with the types of the blocks");
            assert_eq!(event, expected_line(row), "{compiler:?}: TraceLogging{}", row.name);
        }
    }
}

#[test]
fn kinds_without_arrays_have_no_array_macros() {
    let mut text = String::from("#include <TraceLoggingProvider.h>\nextern int unit;\nint unit = 1;\n");
    let mut rows = 0;
    for kind in FIELD_KINDS.iter().filter(|kind| kind.c_initializers().is_empty()) {
        for shape in ["Array", "FixedArray"] {
            let name = format!("TraceLogging{}{shape}", kind.name);
            text += &format!("#ifdef {name}\n#error \"{name} is defined\"\n#endif\n");
            rows += 1;
        }
    }
    assert_eq!(rows, 36, "the kinds without arrays or the macros of each have changed");
    let folder = SourceFolder::new();
    let source = folder.write_source("none.c", &text);
    for compiler in compilers() {
        folder.assert_compiles(compiler, &source, &[compiler.standards()[0]]);
    }
}
