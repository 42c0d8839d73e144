//! Generates a Rust program from the table. The program writes each event with `write_event!`, and
//! then each event with the builder, at run time.
//!
//! The same text is a program for `traceweir` and for the published crates `tracelogging` and
//! `tracelogging_dynamic`; only its first lines differ. Values are written as the bytes that must
//! be in the event.

use std::fmt::Write;

use crate::kinds::{FieldKind, PACKED_BYTES};
use crate::table::{EventDeclaration, Field, FieldContent};

/// The crates whose macros and builder a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TracingCrates {
    Traceweir,
    Published,
}

impl TracingCrates {
    fn prologue(self) -> &'static str {
        match self {
            Self::Traceweir => {
                "use traceweir::tracelogging::{self as tlg, dynamic};\n\
                 fn id(bytes: [u8; 16]) -> traceweir::Guid { traceweir::Guid::from_bytes(&bytes) }\n"
            }
            Self::Published => {
                "use tracelogging as tlg;\nuse tracelogging_dynamic as dynamic;\n\
                 fn id(bytes: [u8; 16]) -> tlg::Guid { tlg::Guid::from_bytes_le(&bytes) }\n"
            }
        }
    }
}

const PROVIDERS: &str = r#"use dynamic::{Channel, EventBuilder, InType, Level, Opcode, OutType};
tlg::define_provider!(TABLE, "Table", id("00000001-0002-0003-0405-060708090a0b"));
type DynamicProvider<'a> = &'a dynamic::Provider;
fn expect_success(status: u32) {
    assert_eq!(status, 0);
}
"#;
const MAIN_START: &str = r#"fn main() {
    let (name, bytes) = ("Table", [1, 0, 0, 0, 2, 0, 3, 0, 4, 5, 6, 7, 8, 9, 10, 11]);
    let provider = std::pin::pin!(dynamic::Provider::new_with_id(name, &dynamic::Provider::options(), &id(bytes)));
    // Safety: neither provider moves, and both are unregistered before the program ends.
    expect_success(unsafe { TABLE.register() });
    expect_success(unsafe { provider.as_ref().register() });
    let mut builder = EventBuilder::new();
"#;

/// The name of each kind, its form in `write_event!`, and a format if the form does not imply it.
const MACRO_FORMS: &[(&str, &str, &str)] = &[
    ("Int8", "i8", ""),
    ("UInt8", "u8", ""),
    ("Int16", "i16", ""),
    ("UInt16", "u16", ""),
    ("Int32", "i32", ""),
    ("UInt32", "u32", ""),
    ("Int64", "i64", ""),
    ("UInt64", "u64", ""),
    ("IntPtr", "isize", ""),
    ("UIntPtr", "usize", ""),
    ("Long", "i64", ""),
    ("ULong", "u64", ""),
    ("HexInt8", "i8_hex", ""),
    ("HexUInt8", "u8_hex", ""),
    ("HexInt16", "i16_hex", ""),
    ("HexUInt16", "u16_hex", ""),
    ("HexInt32", "i32_hex", ""),
    ("HexUInt32", "u32_hex", ""),
    ("HexInt64", "i64_hex", ""),
    ("HexUInt64", "u64_hex", ""),
    ("HexIntPtr", "isize_hex", ""),
    ("HexUIntPtr", "usize_hex", ""),
    ("HexLong", "i64_hex", ""),
    ("HexULong", "u64_hex", ""),
    ("Pointer", "pointer", ""),
    ("CodePointer", "codepointer", ""),
    ("Float32", "f32", ""),
    ("Float64", "f64", ""),
    ("Boolean", "bool8", ""),
    ("Bool", "bool32", ""),
    ("Char", "char8_cp1252", ""),
    ("Char16", "char16", ""),
    ("WChar", "char16", ""),
    ("Pid", "pid", ""),
    ("Tid", "tid", ""),
    ("Port", "port", ""),
    ("IPv4Address", "ipv4", ""),
    ("WinError", "win_error", ""),
    // Fields of `win_ntstatus` are hexadecimal, those of `TraceLoggingNTStatus` in C are not.
    ("NTStatus", "u32", "NtStatus"),
    ("HResult", "hresult", ""),
    ("FileTime", "win_filetime", ""),
    ("FileTimeUtc", "win_filetime", "DateTimeUtc"),
    ("SystemTime", "win_systemtime", ""),
    ("SystemTimeUtc", "win_systemtime_utc", ""),
    ("Guid", "guid", ""),
    ("IPv6Address", "ipv6", ""),
    ("SocketAddress", "socketaddress", ""),
    ("Sid", "win_sid", ""),
    ("String", "cstr8_cp1252", ""),
    ("Utf8String", "cstr8", ""),
    ("String16", "cstr16", ""),
    ("WideString", "cstr16", ""),
    ("CountedString", "str8_cp1252", ""),
    ("CountedUtf8String", "str8", ""),
    ("CountedString16", "str16", ""),
    ("CountedWideString", "str16", ""),
    ("AnsiString", "str8_cp1252", ""),
    ("UnicodeString", "str16", ""),
    ("Binary", "binary", ""),
    ("BinaryEx", "binary", "Pkcs7WithTypeInfo"),
    ("BinaryBuffer", "binary", ""),
    ("BinaryBufferEx", "binary", "Json"),
];

/// Each in type, the suffix of the builder's function for it, and the type of value that
/// [`format_value`] formats.
const BUILDER_ADDERS: &[(u8, &str, &str)] = &[
    (1, "cstr16", "terminated16"),
    (2, "cstr8", "terminated8"),
    (3, "i8", "i8"),
    (4, "u8", "u8"),
    (5, "i16", "i16"),
    (6, "u16", "u16"),
    (7, "i32", "i32"),
    (8, "u32", "u32"),
    (9, "i64", "i64"),
    (10, "u64", "u64"),
    (11, "f32", "f32"),
    (12, "f64", "f64"),
    (13, "bool32", "i32"),
    (14, "binary", "counted8"),
    (15, "guid", "guid"),
    (17, "filetime", "i64"),
    (18, "systemtime", "[u16; 8]"),
    (19, "sid", "bytes"),
    (20, "hex32", "u32"),
    (21, "hex64", "u64"),
    (22, "str16", "counted16"),
    (23, "str8", "counted8"),
];

/// The bit of an in type that marks an array whose count is in the payload.
const VARIABLE_COUNT_FLAG: u8 = 64;
/// The bits of an in type without its flags.
const IN_TYPE_MASK: u8 = 31;

/// Returns whether Rust has forms for all fields of an event: there are none for arrays whose count
/// is in the metadata, and none for custom fields.
pub(crate) fn has_rust_form(event: &EventDeclaration) -> bool {
    let has_form = |field: &Field| match &field.content {
        FieldContent::Value(kind) => kind.name != "Custom",
        FieldContent::Array(_) | FieldContent::Struct(_) | FieldContent::Packed(..) => true,
        FieldContent::Fixed(..) => false,
    };
    event.fields.iter().all(has_form)
}

/// Returns the complete program.
pub(crate) fn generate_program(table: &[EventDeclaration], crates: TracingCrates) -> String {
    let mut text = format!("{}{PROVIDERS}", crates.prologue());
    // Each function writes 16 events: debug builds give every value of a function a separate place
    // on the stack.
    for (i, events) in table.chunks(16).enumerate() {
        let _ = writeln!(text, "fn by_macro{i}() {{");
        events.iter().for_each(|event| text += &format_macro_statement(event));
        let _ = writeln!(
            text,
            "}}\nfn by_builder{i}(builder: &mut EventBuilder, provider: DynamicProvider<'_>) {{"
        );
        events.iter().for_each(|event| text += &format_builder_statement(event));
        text += "}\n";
    }
    text += MAIN_START;
    let parts = table.len().div_ceil(16);
    (0..parts).for_each(|i| text += &format!("    by_macro{i}();\n"));
    (0..parts).for_each(|i| text += &format!("    by_builder{i}(&mut builder, &provider);\n"));
    text + "    expect_success(TABLE.unregister());\n    expect_success(provider.unregister());\n}\n"
}

fn format_macro_statement(event: &EventDeclaration) -> String {
    let EventDeclaration { name, fields, .. } = event;
    let mut text = format!(
        "    expect_success(tlg::write_event!(TABLE, \"{name}\", keyword({})",
        event.combine_attributes("keyword")
    );
    for option in ["level", "opcode", "channel"] {
        if let Some(value) = event.find_attribute(option) {
            let _ = write!(text, ", {option}({value})");
        }
    }
    if event.find_attribute("tag").is_some() {
        let _ = write!(text, ", tag({})", event.combine_attributes("tag"));
    }
    if let Some(id) = event.find_attribute("id") {
        let _ = write!(text, ", id_version({id}, {})", event.attribute_or("version", 0));
    }
    let mut remaining_fields = fields.iter();
    while let Some(field) = format_macro_field(&mut remaining_fields) {
        let _ = write!(text, ",\n        {field}");
    }
    text + "));\n"
}

/// Formats the next field, for a structure with its members.
fn format_macro_field<'a>(remaining_fields: &mut impl Iterator<Item = &'a Field>) -> Option<String> {
    let Field { content, name, tag, has_default_format } = remaining_fields.next()?;
    let mut tag = tag.map_or(String::new(), |tag| format!(", tag({tag})"));
    if *has_default_format {
        tag += ", format(Default)";
    }
    Some(match content {
        FieldContent::Struct(count) => {
            let members: Vec<_> = (0..*count).map_while(|_| format_macro_field(remaining_fields)).collect();
            format!("struct(\"{name}\"{tag}, {{ {} }})", members.join(", "))
        }
        FieldContent::Packed(in_type, out) => {
            let slice = if in_type & VARIABLE_COUNT_FLAG != 0 { "_slice" } else { "" };
            let format = if *out == 0 { String::new() } else { format!(", format({out})") };
            format!(
                "raw_field{slice}(\"{name}\", {}, &{}{tag}{format})",
                in_type & IN_TYPE_MASK,
                format_bytes(PACKED_BYTES)
            )
        }
        FieldContent::Value(kind) | FieldContent::Array(kind) | FieldContent::Fixed(kind, _) => {
            let &(_, form, format) = MACRO_FORMS
                .iter()
                .find(|(name, ..)| *name == kind.name)
                .expect("the kind has no form in Rust");
            let format = if format.is_empty() { String::new() } else { format!(", format({format})") };
            let is_slice = matches!(content, FieldContent::Array(_));
            let value = format_values(kind, macro_value_type(kind, form), is_slice);
            format!("{form}{}(\"{name}\", &{value}{tag}{format})", if is_slice { "_slice" } else { "" })
        }
    })
}

/// Returns the type of a value of a form.
fn macro_value_type<'a>(kind: &FieldKind, form: &'a str) -> &'a str {
    let base = form.strip_suffix("_hex").unwrap_or(form);
    match (kind.in_type, base) {
        (_, "bool8") => "bool",
        (_, "char8_cp1252") => "u8",
        (_, "char16" | "port") => "u16",
        (_, "pid" | "tid" | "win_error") => "u32",
        (_, "hresult" | "bool32") => "i32",
        (_, "pointer" | "codepointer") => "usize",
        (_, "ipv4") => "[u8; 4]",
        (_, "ipv6") => "counted8",
        (1 | 2 | 14 | 15 | 17 | 18 | 19 | 22 | 23, _) => find_adder(kind.in_type).1,
        _ => base,
    }
}

fn find_adder(in_type: u8) -> (&'static str, &'static str) {
    let adder = BUILDER_ADDERS.iter().find(|(adder_type, ..)| *adder_type == in_type);
    let &(_, add, value) =
        adder.unwrap_or_else(|| panic!("the builder has no function for in type {in_type}"));
    (add, value)
}

fn format_builder_statement(event: &EventDeclaration) -> String {
    let (level, keyword, tag) = (
        event.attribute_or("level", 5),
        event.combine_attributes("keyword"),
        event.combine_attributes("tag"),
    );
    let mut text = format!(
        "    builder.reset(\"{}\", Level::from_int({level}), {keyword}, {tag})\n        .opcode(Opcode::from_int({}))\
         .channel(Channel::from_int({})).id_version({}, {})",
        event.name,
        event.attribute_or("opcode", 0),
        event.attribute_or("channel", 11),
        event.attribute_or("id", 0),
        event.attribute_or("version", 0),
    );
    for Field { content, name, tag, .. } in &event.fields {
        let tag = tag.unwrap_or(0);
        let _ = match content {
            FieldContent::Struct(count) => write!(text, "\n        .add_struct(\"{name}\", {count}, {tag})"),
            FieldContent::Packed(in_type, out) => {
                let (kind, in_type) = if in_type & VARIABLE_COUNT_FLAG != 0 {
                    ("vcount", in_type & IN_TYPE_MASK)
                } else {
                    ("scalar", *in_type)
                };
                write!(
                    text,
                    "\n        .raw_add_meta_{kind}(\"{name}\", InType::from_int({in_type}), OutType::from_int({out}), {tag})\
                     .raw_add_data_slice(&{})",
                    format_bytes(PACKED_BYTES)
                )
            }
            FieldContent::Value(kind) | FieldContent::Array(kind) | FieldContent::Fixed(kind, _) => {
                let (add, value_type) = find_adder(kind.in_type);
                let is_slice = matches!(content, FieldContent::Array(_));
                let is_reference = is_slice || !matches!(value_type.as_bytes(), [b'i' | b'u' | b'f', ..]);
                let (suffix, reference_sign) =
                    (if is_slice { "_sequence" } else { "" }, if is_reference { "&" } else { "" });
                let value = format_values(kind, value_type, is_slice);
                let out = kind.out_type;
                write!(
                    text,
                    "\n        .add_{add}{suffix}(\"{name}\", {reference_sign}{value}, OutType::from_int({out}), {tag})"
                )
            }
        };
    }
    text + ";\n    expect_success(builder.write(provider, None, None));\n"
}

/// Formats the first value of a kind, or an array of all three.
fn format_values(kind: &FieldKind, value_type: &str, is_slice: bool) -> String {
    let formatted: Vec<_> = kind.bytes().iter().map(|bytes| format_value(value_type, bytes)).collect();
    if is_slice { format!("[{}]", formatted.join(", ")) } else { formatted[0].clone() }
}

/// Formats a value that has these bytes in the event.
fn format_value(value_type: &str, bytes: &[u8]) -> String {
    let end = bytes.len();
    match value_type {
        "bool" => (bytes[0] != 0).to_string(),
        "guid" => format!("id({})", format_bytes(bytes)),
        "bytes" | "[u8; 4]" => format_bytes(bytes),
        "counted8" => format_bytes(&bytes[2..]),
        "terminated8" => format_bytes(&bytes[..end - 1]),
        "[u16; 8]" => format_words(bytes),
        "counted16" => format_words(&bytes[2..]),
        "terminated16" => format_words(&bytes[..end - 2]),
        number => format!("{number}::from_le_bytes({bytes:?})"),
    }
}

/// Formats bytes as an array of `u8`.
fn format_bytes(bytes: &[u8]) -> String {
    let formatted: Vec<_> = bytes.iter().map(|byte| format!("{byte}_u8")).collect();
    format!("[{}]", formatted.join(", "))
}

fn format_words(bytes: &[u8]) -> String {
    let word = |pair: &[u8]| format!("{}_u16", u16::from_le_bytes([pair[0], pair[1]]));
    let formatted: Vec<_> = bytes.chunks(2).map(word).collect();
    format!("[{}]", formatted.join(", "))
}
