//! Generates a program, valid as C and as C++, from the table. The program writes each event once,
//! and prints the arguments that the macros pass.

use std::fmt::Write;

use crate::kinds::{FIELD_KINDS, FieldSample, PACKED_BYTES};
use crate::table::{EventDeclaration, Field, FieldContent};

/// The receiver of the events of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runtime {
    /// `hooks.h`, which prints the events.
    Hooks,
    /// The library, which writes the events to sessions.
    Library,
}

const PROLOGUE: &str = r#"#include <TraceLoggingProvider.h>

struct ansi_string { UINT16 Length, MaximumLength; char *Buffer; };
struct unicode_string { UINT16 Length, MaximumLength; WCHAR *Buffer; };
static char sample_ansi_text[] = "ansi";
static WCHAR sample_unicode_text[] = u"uni";
static const struct ansi_string sample_ansi = {4, 5, sample_ansi_text};
static const struct unicode_string sample_unicode = {4, 8, sample_unicode_text};
static const UINT8 sample_sid[] = {1, 2, 0, 0, 0, 0, 0, 5, 0x20, 0, 0, 0, 0x20, 2, 0, 0};
"#;

/// Returns the complete program for a table.
pub(crate) fn generate_program(table: &[EventDeclaration], runtime: Runtime) -> String {
    generate_program_from_statements(&table.iter().map(format_statement).collect::<Vec<_>>(), runtime)
}

/// Returns the complete program for events that are given as C statements.
pub(crate) fn generate_program_from_statements(events: &[String], runtime: Runtime) -> String {
    let has_hooks = runtime == Runtime::Hooks;
    let mut text = if has_hooks { format!("#include \"hooks.h\"\n{PROLOGUE}") } else { PROLOGUE.to_owned() };
    for kind in FIELD_KINDS.iter().filter(|kind| !kind.c_initializers().is_empty()) {
        let values = kind.c_initializers().join(", ");
        let _ = writeln!(text, "static {} const sample_{}[3] = {{{values}}};", kind.c_type, kind.name);
    }
    let packed: Vec<String> = PACKED_BYTES.iter().map(u8::to_string).collect();
    let _ = writeln!(text, "static const UINT8 sample_packed[] = {{{}}};", packed.join(", "));
    text += "TRACELOGGING_DEFINE_PROVIDER(g_table, \"Table\", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));\n";
    // Each function writes 16 events: compile time grows faster than the size of a function.
    for (i, chunk) in events.chunks(16).enumerate() {
        let _ = writeln!(text, "static void part{i}(void) {{");
        for event in chunk {
            text += event;
            text += if has_hooks { "    hook_print();\n" } else { "" };
        }
        text += "}\n";
    }
    text += "int main(void) {\n";
    text += if has_hooks { "    hook.enabled_at_register = TRUE;\n" } else { "" };
    text += "    if (TraceLoggingRegister(g_table) != S_OK) {\n        return 1;\n    }\n";
    (0..events.len().div_ceil(16)).for_each(|i| {
        let _ = writeln!(text, "    part{i}();");
    });
    text + "    TraceLoggingUnregister(g_table);\n    return 0;\n}\n"
}

fn format_statement(event: &EventDeclaration) -> String {
    let mut text = format!("    TraceLoggingWrite(g_table, \"{}\"", event.name);
    let version = event.attributes.iter().find(|(key, _)| key == "version").map_or(0, |(_, value)| *value);
    for (key, value) in &event.attributes {
        let _ = match key.as_str() {
            "level" => write!(text, ", TraceLoggingLevel({value})"),
            "keyword" => write!(text, ", TraceLoggingKeyword({value}u)"),
            "opcode" => write!(text, ", TraceLoggingOpcode({value})"),
            "channel" => write!(text, ", TraceLoggingChannel({value})"),
            "tag" => write!(text, ", TraceLoggingEventTag({value})"),
            "id" => write!(text, ", TraceLoggingIdVersion({value}, {version})"),
            _ => Ok(()),
        };
    }
    event.fields.iter().for_each(|field| text = format!("{text},\n        {}", format_field_macro(field)));
    text + ");\n"
}

fn format_field_macro(field: &Field) -> String {
    let tag = field.tag.map_or(String::new(), |tag| format!(", \"what it is\", {tag}"));
    let name = format!("\"{}\"{tag}", field.name);
    match &field.content {
        FieldContent::Value(kind) => match kind.sample {
            FieldSample::Argument(arguments, _) => format!("TraceLogging{}({arguments}, {name})", kind.name),
            _ => format!("TraceLogging{0}(sample_{0}[0], {name})", kind.name),
        },
        FieldContent::Array(kind) => format!("TraceLogging{0}Array(sample_{0}, 3, {name})", kind.name),
        FieldContent::Fixed(kind, count) => {
            format!("TraceLogging{0}FixedArray(sample_{0}, {count}, {name})", kind.name)
        }
        FieldContent::Struct(members) => format!("TraceLoggingStruct({members}, {name})"),
        FieldContent::Packed(in_type, 0) => {
            format!("TraceLoggingPackedField(sample_packed, sizeof sample_packed, {in_type}, {name})")
        }
        FieldContent::Packed(in_type, out) => {
            format!(
                "TraceLoggingPackedFieldEx(sample_packed, sizeof sample_packed, {in_type}, {out}, {name})"
            )
        }
    }
}
