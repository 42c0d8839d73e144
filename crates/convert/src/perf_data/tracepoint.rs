//! Tracepoints: the formats that a recording holds, and the values in the data of samples.
//!
//! ```text
//!   17 08 44 "tracing" │ version, NUL │ u8 endian │ u8 long │ u32 page │
//!   "header_page" NUL u64 size, text │ "header_event" NUL u64 size, text │
//!   u32 count: u64 size, text (ftrace) │
//!   u32 systems: name NUL, u32 count: u64 size, text │ …
//!
//!   text   name: sched_switch
//!          ID: 310
//!          format:
//!              field:char prev_comm[16];  offset:8;  size:16;  signed:0;
//! ```
//!
//! A `__data_loc` field holds offset and size of its value, which follows the fields; a
//! `__rel_loc` field counts the offset from its own end.
//!
//! Source: the page "Event Tracing" of the Linux documentation; the container as written by the
//! function `read_tracing_data` of perf.

use std::collections::HashMap;

use traceweir_format::wire::{Cursor, u16_at};

/// The first bytes of tracing data.
const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// The most tracepoints that are kept.
const MAX_FORMATS: usize = 1 << 14;
/// The most fields of a tracepoint.
const MAX_FIELDS: usize = 256;
/// The longest name of a system, event or field in bytes.
const MAX_NAME_BYTES: usize = 256;
/// The most elements of an array.
const MAX_ELEMENTS: u32 = 1 << 12;
/// The most memory of all formats in bytes.
const MAX_FORMAT_BYTES: usize = 32 << 20;

/// The meaning of the bytes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldType {
    /// A number of 1, 2, 4 or 8 bytes.
    Number { bytes: u8, is_signed: bool },
    /// An address, shown in hexadecimal.
    Address,
    /// Text up to a NUL or the end of the field.
    Text,
    /// Numbers of one size.
    Numbers { bytes: u8, is_signed: bool, count: u16 },
    /// Bytes without a known meaning.
    Bytes,
}

/// Where the value of a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValuePlace {
    InField,
    /// Offset from the start of the data.
    Dynamic,
    /// Offset from the end of the field.
    Relative,
}

/// A field of a tracepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TracepointField {
    pub(super) name: String,
    pub(super) ty: FieldType,
    offset: usize,
    size: usize,
    place: ValuePlace,
}

impl TracepointField {
    /// Returns the bytes of the value; `None` if the data does not hold the field. A value outside
    /// the field is empty if the data does not hold it.
    pub(super) fn value<'b>(&self, data: &'b [u8]) -> Option<&'b [u8]> {
        let end = self.offset.saturating_add(self.size);
        let field = data.get(self.offset..end)?;
        if self.place == ValuePlace::InField {
            return Some(field);
        }
        let base = if self.place == ValuePlace::Relative { end } else { 0 };
        let offset = base.saturating_add(usize::from(u16_at(field, 0)));
        let size = usize::from(u16_at(field, 2));
        Some(data.get(offset..offset.saturating_add(size)).unwrap_or_default())
    }

    /// Returns the value as a number, with its sign extended; `None` if the data does not hold it.
    pub(super) fn number(&self, data: &[u8]) -> Option<i64> {
        let is_signed = matches!(self.ty, FieldType::Number { is_signed: true, .. });
        Some(read_number(self.value(data)?, is_signed))
    }
}

/// Reads a little-endian number of up to eight bytes.
fn read_number(bytes: &[u8], is_signed: bool) -> i64 {
    let is_negative = is_signed && bytes.last().is_some_and(|byte| *byte >= 0x80);
    let mut word = if is_negative { [0xFF; 8] } else { [0; 8] };
    word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    i64::from_le_bytes(word)
}

/// The format of a tracepoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tracepoint {
    pub(super) system: String,
    pub(super) name: String,
    /// The fields, without those that all tracepoints have.
    pub(super) fields: Vec<TracepointField>,
    /// The field with the flags that all tracepoints have.
    pub(super) flags: Option<TracepointField>,
}

impl Tracepoint {
    /// Returns a field by name.
    pub(super) fn field(&self, name: &str) -> Option<&TracepointField> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Returns the estimated memory in bytes.
    fn memory(&self) -> usize {
        let fields =
            self.fields.iter().map(|field| size_of::<TracepointField>().saturating_add(field.name.len()));
        let names = self.system.len().saturating_add(self.name.len());
        fields.fold(names, usize::saturating_add).saturating_add(size_of::<Self>())
    }
}

/// The formats by id.
#[derive(Default)]
struct FormatTable {
    formats: HashMap<u64, Tracepoint>,
    /// Estimated memory of the formats.
    bytes: usize,
}

impl FormatTable {
    /// Adds a format, as far as the limits allow.
    fn add(&mut self, id: u64, mut format: Tracepoint) {
        format.fields.shrink_to_fit();
        let bytes = self.bytes.saturating_add(format.memory());
        if self.formats.len() < MAX_FORMATS && bytes <= MAX_FORMAT_BYTES {
            self.bytes = bytes;
            self.formats.insert(id, format);
        }
    }
}

/// Reads the formats in tracing data, by id. Returns those before the first damage.
pub(super) fn read_formats(bytes: &[u8]) -> HashMap<u64, Tracepoint> {
    let mut table = FormatTable::default();
    // Whatever was read before the damage is used.
    let _ = read_sections(bytes, &mut table);
    table.formats
}

fn read_sections(bytes: &[u8], table: &mut FormatTable) -> traceweir_format::Result<()> {
    let mut cursor = Cursor::new("tracing data", bytes);
    if cursor.bytes(MAGIC.len())? != MAGIC {
        return Err(cursor.invalid("does not begin with the bytes of tracing data"));
    }
    cursor.ansi_z();
    // The byte order, the size of a long, the size of a page.
    cursor.bytes(6)?;
    for _ in ["header_page", "header_event"] {
        cursor.ansi_z();
        take_sized(&mut cursor)?;
    }
    for _ in 0..cursor.u32()? {
        take_sized(&mut cursor)?;
    }
    for _ in 0..cursor.u32()? {
        let system = to_name(cursor.ansi_z());
        for _ in 0..cursor.u32()? {
            let text = String::from_utf8_lossy(take_sized(&mut cursor)?);
            if let Some((id, format)) = parse_format(&system, &text) {
                table.add(id, format);
            }
        }
    }
    Ok(())
}

/// Takes a size of eight bytes, and as many bytes.
fn take_sized<'b>(cursor: &mut Cursor<'b>) -> traceweir_format::Result<&'b [u8]> {
    let size = cursor.u64()?;
    cursor.bytes(usize::try_from(size).unwrap_or(usize::MAX))
}

fn to_name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..MAX_NAME_BYTES).unwrap_or(bytes)).into_owned()
}

/// Parses the text of a format. Returns the id of the tracepoint and its format.
fn parse_format(system: &str, text: &str) -> Option<(u64, Tracepoint)> {
    let mut format = Tracepoint { system: system.to_owned(), ..Tracepoint::default() };
    let mut id = None;
    for line in text.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix("name:") {
            format.name = to_name(name.trim().as_bytes());
        } else if let Some(number) = line.strip_prefix("ID:") {
            id = number.trim().parse().ok();
        } else if line.starts_with("print fmt:") {
            break;
        } else if let Some(field) = line.strip_prefix("field:").and_then(parse_field) {
            if field.name == "common_flags" {
                format.flags = Some(field);
            } else if !field.name.starts_with("common_") && format.fields.len() < MAX_FIELDS {
                format.fields.push(field);
            }
        }
    }
    (!format.name.is_empty()).then_some((id?, format))
}

/// Parses `unsigned int x[4];  offset:8;  size:16;  signed:0;`.
fn parse_field(text: &str) -> Option<TracepointField> {
    let mut parts = text.split(';').map(str::trim);
    let declaration = parts.next()?;
    let (mut offset, mut size, mut is_signed) = (None, None, false);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", number)) => offset = number.parse().ok(),
            Some(("size", number)) => size = number.parse().ok(),
            Some(("signed", number)) => is_signed = number != "0",
            _ => {}
        }
    }
    let (place, declaration) = match declaration.split_once(' ') {
        Some(("__data_loc", rest)) => (ValuePlace::Dynamic, rest),
        Some(("__rel_loc", rest)) => (ValuePlace::Relative, rest),
        _ => (ValuePlace::InField, declaration),
    };
    // `type name`, `type name[4]`, and `type[] name` of dynamic fields.
    let (element, name) = declaration.rsplit_once([' ', '*'])?;
    let (name, length) = name.split_once('[').map_or((name, None), |(name, length)| (name, Some(length)));
    let is_array = length.is_some() || element.ends_with("[]");
    let element = element.trim_end_matches("[]").trim();
    let is_pointer = declaration.contains('*') && !is_array;
    let (size, is_dynamic) = (size?, place != ValuePlace::InField);
    let count = length.and_then(|length| length.trim_end_matches(']').parse::<u32>().ok());
    let ty = match () {
        () if is_dynamic && is_char(element) => FieldType::Text,
        // The number of elements follows from the size of each value.
        () if is_dynamic => FieldType::Bytes,
        () if is_pointer && size == 8 => FieldType::Address,
        () if is_array => array_type(element, size, count, is_signed),
        () => match size {
            1 | 2 | 4 | 8 => FieldType::Number { bytes: u8::try_from(size).ok()?, is_signed },
            _ => FieldType::Bytes,
        },
    };
    Some(TracepointField { name: to_name(name.as_bytes()), ty, offset: offset?, size, place })
}

fn is_char(element: &str) -> bool {
    element == "char" || element == "const char"
}

/// Returns the type of an array in a field of this size.
fn array_type(element: &str, size: usize, count: Option<u32>, is_signed: bool) -> FieldType {
    if is_char(element) {
        return FieldType::Text;
    }
    let count = count.filter(|count| (1..=MAX_ELEMENTS).contains(count));
    let count = count.and_then(|count| u16::try_from(count).ok());
    let count = count.filter(|count| size.is_multiple_of(usize::from(*count)));
    let each = count.and_then(|count| size.checked_div(usize::from(count)));
    match (each, count) {
        // Arrays of bytes are shown as bytes.
        (Some(bytes @ (2 | 4 | 8)), Some(count)) => {
            FieldType::Numbers { bytes: u8::try_from(bytes).unwrap_or(8), is_signed, count }
        }
        _ => FieldType::Bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch\nID: 310\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
        \tfield:const void * place;\toffset:40;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] path;\toffset:48;\tsize:4;\tsigned:0;\n\
        \tfield:__rel_loc u8[] blob;\toffset:52;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long args[6];\toffset:56;\tsize:48;\tsigned:0;\n\n\
        print fmt: \"field:int x; offset:1; size:1;\", REC->x\n";

    #[test]
    fn fields_have_the_types_of_their_declarations() {
        let (id, format) = parse_format("sched", SWITCH).unwrap();
        let types: Vec<_> = format.fields.iter().map(|field| (&*field.name, field.ty)).collect();
        assert_eq!((id, &*format.system, &*format.name), (310, "sched", "sched_switch"));
        assert_eq!(
            types,
            [
                ("prev_comm", FieldType::Text),
                ("prev_pid", FieldType::Number { bytes: 4, is_signed: true }),
                ("prev_state", FieldType::Number { bytes: 8, is_signed: true }),
                ("place", FieldType::Address),
                ("path", FieldType::Text),
                ("blob", FieldType::Bytes),
                ("args", FieldType::Numbers { bytes: 8, is_signed: false, count: 6 }),
            ]
        );
        assert!(format.flags.is_some());
    }

    #[test]
    fn values_come_from_the_field_or_from_where_it_points() {
        let (_, format) = parse_format("sched", SWITCH).unwrap();
        let mut data = vec![0; 120];
        data[24..28].copy_from_slice(&(-5_i32).to_le_bytes());
        // Offset 104, four bytes; offset 108 counts from the end of the field, which is at 56.
        data[48..56].copy_from_slice(&[104, 0, 4, 0, 52, 0, 3, 0]);
        data[104..111].copy_from_slice(b"abc\0xyz");
        let path = format.field("path").unwrap();
        assert_eq!(format.field("prev_pid").unwrap().number(&data), Some(-5));
        assert_eq!(path.value(&data), Some(&b"abc\0"[..]));
        assert_eq!(format.field("blob").unwrap().value(&data), Some(&b"xyz"[..]));
        assert_eq!(path.value(&data[..52]), Some(&b""[..]), "the value is beyond the end");
        assert_eq!(path.value(&data[..51]), None, "the field is beyond the end");
    }

    #[test]
    fn arrays_have_numbers_only_if_these_fill_the_field() {
        let ty = |text: &str| parse_field(text).unwrap().ty;
        let numbers = FieldType::Numbers { bytes: 2, is_signed: false, count: 5 };
        assert_eq!(ty("u16 a[5]; offset:8; size:10; signed:0;"), numbers);
        assert_eq!(ty("u16 a[4]; offset:8; size:10; signed:0;"), FieldType::Bytes);
        assert_eq!(ty("__data_loc u32[1] a; offset:8; size:4; signed:0;"), FieldType::Bytes);
    }

    #[test]
    fn memory_of_formats_is_bounded() {
        let mut table = FormatTable::default();
        let field = parse_field("u16 a[5]; offset:8; size:10; signed:0;").unwrap();
        let field = TracepointField { name: "x".repeat(MAX_NAME_BYTES), ..field };
        let format = Tracepoint { fields: vec![field; MAX_FIELDS], ..Tracepoint::default() };
        (0..1000).for_each(|id| table.add(id, format.clone()));
        let bytes: usize = table.formats.values().map(Tracepoint::memory).sum();
        assert!(bytes <= MAX_FORMAT_BYTES && table.formats.len() > 100);
    }

    #[test]
    fn damaged_formats_and_tracing_data_are_read_without_panic() {
        let mut data = MAGIC.to_vec();
        data.extend(b"0.6\0\0\x08\0\x10\0\0");
        for name in ["header_page\0", "header_event\0"] {
            data.extend(name.as_bytes());
            data.extend(2_u64.to_le_bytes());
            data.extend(b"xx");
        }
        data.extend(0_u32.to_le_bytes());
        data.extend(1_u32.to_le_bytes());
        data.extend(b"sched\0");
        data.extend(1_u32.to_le_bytes());
        data.extend((SWITCH.len() as u64).to_le_bytes());
        data.extend(SWITCH.as_bytes());
        assert_eq!(read_formats(&data)[&310].name, "sched_switch");
        for length in 0..data.len() {
            assert!(read_formats(&data[..length]).is_empty());
        }
        for at in 0..data.len() {
            for byte in [0, 0x7F, 0xFF] {
                let mut damaged = data.clone();
                damaged[at] = byte;
                for format in read_formats(&damaged).values() {
                    let _ = format.fields.iter().map(|field| field.number(&[0xFF; 64])).max();
                }
            }
        }
    }
}
