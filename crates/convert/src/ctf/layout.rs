//! The types of the fields of an event.
//!
//! | value | type |
//! |---|---|
//! | integer, pointer, Boolean | integer of the same size; a pointer has 64 bits |
//! | named value | enumeration |
//! | floating-point number | floating-point number |
//! | text, GUID, SID, date, address | string |
//! | bytes | sequence of bytes |
//! | structure | structure |
//! | several values | sequence |

use traceweir_decode::schema::{Count, Field, FieldKind, Schema, ValueMap};
use traceweir_format::spec::event::class;
use traceweir_format::spec::types::{InType, OutType};

use super::tsdl::{NameSet, push_string_literal};

/// The largest number of names of an enumeration that are written.
const MAX_ENUM_NAMES: usize = 1024;
/// The text of the fields of an event ends soon after this many bytes, because a few bytes of a trace
/// can give many fields the same long names. Longer texts are not used.
pub(super) const MAX_DECLARATIONS_BYTES: usize = 1 << 20;

/// The type of a field in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldType {
    /// An integer of so many bytes.
    Integer(IntegerType),
    /// A 32-bit floating-point number.
    Float32,
    /// A 64-bit floating-point number.
    Float64,
    /// A text of UTF-8, with a NUL at its end.
    Text,
    /// A number of bytes and the bytes.
    Bytes,
    /// A structure of other fields.
    Struct,
    /// Padding of a kernel event, which is left out.
    Padding,
}

/// The type of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IntegerType {
    pub(super) bytes: u8,
    pub(super) is_signed: bool,
    pub(super) is_hex: bool,
    /// Whether the payload has the bytes in network order, if the number has at most 16 bits.
    pub(super) is_port: bool,
}

/// The types of the fields of a schema, by index.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) types: Vec<FieldType>,
    /// The number of top-level fields.
    pub(super) top: usize,
}

impl Layout {
    pub(super) fn new(schema: &Schema) -> Self {
        // Two pointers of the log-file header stand for names.
        let is_header = schema.provider == class::EVENT_TRACE;
        let choose = |field: &Field| {
            if schema.is_padding(field) && field.count == Count::One {
                return FieldType::Padding;
            }
            choose_type(field, is_header)
        };
        let types = schema.fields().iter().map(choose).collect();
        Self { types, top: schema.top().len() }
    }

    /// Returns the type of a field.
    pub(super) fn field_type(&self, index: usize) -> Option<FieldType> {
        self.types.get(index).copied()
    }
}

fn choose_type(field: &Field, is_header: bool) -> FieldType {
    let FieldKind::Value { input, output, .. } = field.kind else { return FieldType::Struct };
    if is_text_array(field) {
        return FieldType::Text;
    }
    match input {
        InType::FLOAT => FieldType::Float32,
        InType::DOUBLE => FieldType::Float64,
        InType::BOOLEAN => integer(1, false, false),
        InType::POINTER if is_header && matches!(&*field.name, "LoggerName" | "LogFileName") => {
            FieldType::Text
        }
        InType::POINTER | InType::SIZET => integer(8, false, output != OutType::UNSIGNEDLONG),
        InType::FILETIME if output == OutType::ETWTIME => integer(8, true, false),
        InType::BINARY | InType::COUNTEDBINARY | InType::HEXDUMP => match output {
            OutType::IPV6
            | OutType::SOCKETADDRESS
            | OutType::STRING
            | OutType::UTF8
            | OutType::JSON
            | OutType::XML => FieldType::Text,
            _ => FieldType::Bytes,
        },
        InType::INT8
        | InType::UINT8
        | InType::INT16
        | InType::UINT16
        | InType::INT32
        | InType::UINT32
        | InType::HEXINT32
        | InType::INT64
        | InType::UINT64
        | InType::HEXINT64 => choose_integer_type(input, output),
        _ => FieldType::Text,
    }
}

const fn integer(bytes: u8, is_signed: bool, is_hex: bool) -> FieldType {
    FieldType::Integer(IntegerType { bytes, is_signed, is_hex, is_port: false })
}

fn choose_integer_type(input: InType, output: OutType) -> FieldType {
    let bytes = input.size(8).and_then(|size| u8::try_from(size).ok()).unwrap_or(8);
    match output {
        OutType::STRING if bytes <= 2 => return FieldType::Text,
        OutType::IPV4 | OutType::DATETIME | OutType::DATETIME_UTC | OutType::CIMDATETIME => {
            return FieldType::Text;
        }
        _ => {}
    }
    let is_signed = match output {
        OutType::BYTE | OutType::SHORT | OutType::INT | OutType::LONG => true,
        OutType::UNSIGNEDBYTE
        | OutType::UNSIGNEDSHORT
        | OutType::UNSIGNEDINT
        | OutType::UNSIGNEDLONG
        | OutType::PID
        | OutType::TID
        | OutType::PORT => false,
        _ => matches!(input, InType::INT8 | InType::INT16 | InType::INT32 | InType::INT64),
    };
    let is_hex_output = matches!(
        output,
        OutType::HEXINT8
            | OutType::HEXINT16
            | OutType::HEXINT32
            | OutType::HEXINT64
            | OutType::CODE_POINTER
            | OutType::ERRORCODE
            | OutType::NTSTATUS
            | OutType::HRESULT
    );
    let is_hex_input = matches!(input, InType::HEXINT32 | InType::HEXINT64);
    let is_hex = is_hex_output || (is_hex_input && output == OutType::NULL);
    let is_port = output == OutType::PORT;
    // A port has two bytes, also if the schema gives it one.
    let bytes = if is_port { bytes.max(2) } else { bytes };
    FieldType::Integer(IntegerType { bytes, is_signed, is_hex, is_port })
}

/// Returns whether an array is one text. The walk then returns one value.
fn is_text_array(field: &Field) -> bool {
    let FieldKind::Value { input, output, .. } = field.kind else { return false };
    let is_text = output == OutType::STRING;
    field.count != Count::One
        && match input {
            InType::UINT8 | InType::INT8 | InType::UINT16 => is_text,
            InType::ANSICHAR | InType::UNICODECHAR => true,
            _ => false,
        }
}

/// Appends the declarations of the first `present` fields of an event.
pub(super) fn push_declarations(
    schema: &Schema,
    layout: &Layout,
    present: usize,
    names: &mut NameSet,
    out: &mut String,
) {
    push_members(schema, layout, 0, present.min(layout.top), names, out, 2);
}

fn push_members(
    schema: &Schema,
    layout: &Layout,
    first: usize,
    count: usize,
    names: &mut NameSet,
    out: &mut String,
    depth: usize,
) {
    let fields = schema.fields().iter().enumerate().skip(first).take(count);
    for (index, field) in fields {
        if out.len() > MAX_DECLARATIONS_BYTES {
            return;
        }
        let field_type = layout.field_type(index);
        let Some(field_type) = field_type.filter(|kind| *kind != FieldType::Padding) else { continue };
        let is_sequence = field.count != Count::One && !is_text_array(field);
        let name = names.choose(&field.name);
        let indent = "\t".repeat(depth);
        let length = if is_sequence || field_type == FieldType::Bytes {
            let length = names.choose_length(&name);
            *out += &format!("{indent}u32 {length};\n");
            length
        } else {
            String::new()
        };
        // A sequence of bytes is a value; several of them are structures, each with its length.
        if field_type == FieldType::Bytes && !is_sequence {
            *out += &format!("{indent}x8 {name}[{length}];\n");
            continue;
        }
        out.push_str(&indent);
        match (field_type, &field.kind) {
            (FieldType::Struct, FieldKind::Struct { first, members }) => {
                out.push_str("struct {\n");
                let (first, members) = (usize::from(*first), usize::from(*members));
                let mut inner = NameSet::default();
                push_members(schema, layout, first, members, &mut inner, out, depth.saturating_add(1));
                *out += &format!("{indent}}}");
            }
            (FieldType::Bytes, _) => {
                *out += &format!(
                    "struct {{\n{indent}\tu32 __bytes_length;\n{indent}\tx8 _bytes[__bytes_length];\n{indent}}}"
                );
            }
            (FieldType::Integer(integer), FieldKind::Value { map: Some(map), .. }) => {
                push_enum(integer, map, out);
            }
            (FieldType::Integer(integer), _) => out.push_str(integer_name(integer)),
            (FieldType::Float32, _) => out.push_str("f32"),
            (FieldType::Float64, _) => out.push_str("f64"),
            _ => out.push_str("string"),
        }
        if is_sequence {
            *out += &format!(" {name}[{length}];\n");
        } else {
            *out += &format!(" {name};\n");
        }
    }
}

/// Returns the name of the type of an integer in the metadata.
const fn integer_name(integer: IntegerType) -> &'static str {
    match (integer.bytes, integer.is_signed, integer.is_hex) {
        (1, false, false) => "u8",
        (1, true, false) => "s8",
        (1, _, true) => "x8",
        (2, false, false) => "u16",
        (2, true, false) => "s16",
        (2, _, true) => "x16",
        (4, false, false) => "u32",
        (4, true, false) => "s32",
        (4, _, true) => "x32",
        (_, false, false) => "u64",
        (_, true, false) => "s64",
        (_, _, true) => "x64",
    }
}

/// Appends the type of an integer whose values have names. Names of bits are left out: readers show
/// names of single values only.
fn push_enum(integer: IntegerType, map: &ValueMap, out: &mut String) {
    let is_named = |(_, name): &&(u64, std::sync::Arc<str>)| !name.is_empty();
    let fits = |(value, _): &&(u64, std::sync::Arc<str>)| {
        integer.bytes >= 8 || *value >> (u32::from(integer.bytes).saturating_mul(8)) == 0
    };
    let names: Vec<_> = map.entries().iter().filter(is_named).filter(fits).take(MAX_ENUM_NAMES).collect();
    if map.is_bit_map || integer.is_port || names.is_empty() {
        let is_hex = integer.is_hex || map.is_bit_map;
        out.push_str(integer_name(IntegerType { is_hex, ..integer }));
        return;
    }
    *out += &format!("enum : {} {{ ", integer_name(integer));
    for (index, (value, name)) in names.into_iter().enumerate() {
        if out.len() > MAX_DECLARATIONS_BYTES {
            return;
        }
        if index > 0 {
            out.push_str(", ");
        }
        push_string_literal(name, out);
        let unused_bits = 64_u32.saturating_sub(u32::from(integer.bytes).saturating_mul(8));
        if integer.is_signed && !integer.is_hex {
            *out += &format!(" = {}", (*value << unused_bits).cast_signed() >> unused_bits);
        } else {
            *out += &format!(" = {value}");
        }
    }
    out.push_str(" }");
}
