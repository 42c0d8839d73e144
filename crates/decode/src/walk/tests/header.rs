//! The log-file header event: names instead of two pointers.

use traceweir_format::logfile::LogFileHeader;
use traceweir_format::spec::event::class;
use traceweir_format::time::FileTime;

use super::*;
use crate::source::kernel;
use crate::tdh::decode_value;

/// Byte offset of the two pointers.
const POINTERS_OFFSET: usize = 0x38;
const NAMES: [(&str, &str); 5] = [
    ("session", "C:\\trace.etl"),
    ("s", "/tmp/t.etl"),
    ("", "file"),
    ("\u{1}\u{2}", "\u{3}"),
    ("a longer name of a session", ""),
];

/// Builds the payload of a header event whose pointers are 5 and 6.
fn header_payload(session: &str, file: &str, pointer_size: usize) -> Vec<u8> {
    let header = LogFileHeader {
        start_time: FileTime(133_000_000_000_000_000),
        boot_time: FileTime(132_999_000_000_000_001),
        perf_freq: 10_000_000,
        clock_type: 1,
        session_name: session.into(),
        file_name: file.into(),
        ..LogFileHeader::default()
    };
    let mut payload = header.to_payload();
    let mut pointers = Vec::new();
    for pointer in [5_u64, 6] {
        pointers.extend_from_slice(&pointer.to_le_bytes()[..pointer_size]);
    }
    payload.splice(POINTERS_OFFSET..POINTERS_OFFSET + 16, pointers);
    payload
}

/// Collects name, type and text of each field.
#[derive(Default)]
struct FieldTexts(Vec<(String, InType, String)>);

impl<'p> Visitor<'p> for FieldTexts {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let FieldKind::Value { input, .. } = field.kind else { return };
        let mut shown = Vec::new();
        crate::format::push_text(field, &value, crate::format::Style::default(), &mut shown);
        self.0.push((field.name.to_string(), input, String::from_utf8(shown).unwrap()));
    }
}

fn field_text(schema: &Schema, payload: &[u8], pointer_size: usize, name: &str) -> (InType, String) {
    let mut values = FieldTexts::default();
    Walker::default().walk(schema, payload, pointer_size, &mut values).unwrap();
    let (_, input, value) = values.0.into_iter().find(|(field, ..)| field == name).unwrap();
    (input, value)
}

#[test]
fn header_event_shows_names_instead_of_pointers() {
    let schema = kernel::build_schema(&class::EVENT_TRACE, 0, 2).unwrap();
    for pointer_size in [4, 8] {
        for (session, file) in NAMES {
            let payload = header_payload(session, file, pointer_size);
            for (field, name) in [
                ("LoggerName", session),
                ("LogFileName", file),
                ("SessionNameString", session),
                ("LogFileNameString", file),
            ] {
                let expected = (InType::UNICODESTRING, name.to_owned());
                assert_eq!(field_text(&schema, &payload, pointer_size, field), expected, "{field}");
            }
        }
        // The event ends with the session's name, so the file's name is unknown.
        let payload = header_payload("s", "f", pointer_size);
        let truncated = &payload[..payload.len() - 4];
        let text_of = |name| field_text(&schema, truncated, pointer_size, name);
        assert_eq!(text_of("LoggerName"), (InType::UNICODESTRING, "s".into()));
        assert_eq!(text_of("LogFileName"), (InType::POINTER, "0x6".into()));
    }
}

#[test]
fn pointer_of_header_event_is_formatted_as_its_name() {
    for pointer_size in [4, 8] {
        for (session, file) in NAMES {
            let payload = header_payload(session, file, pointer_size);
            let format_pointer = |at: usize, end: usize, opcode| {
                let remaining = &payload[at..end];
                let decoded =
                    decode_value(InType::POINTER, OutType::NULL, 0, pointer_size, remaining).unwrap();
                let decoded = decoded.shown_in(&class::EVENT_TRACE, opcode, pointer_size, remaining);
                assert_eq!(decoded.consumed, pointer_size);
                let mut out = Vec::new();
                decoded.text(&mut out);
                String::from_utf8(out).unwrap()
            };
            let (second, end) = (POINTERS_OFFSET + pointer_size, payload.len());
            assert_eq!(format_pointer(POINTERS_OFFSET, end, 0), session);
            assert_eq!(format_pointer(second, end, 0), file);
            // The pointer is shown as a number in another event, and if the bytes end before the
            // clock type, which precedes the names and, with 8-byte pointers, is at 0x110.
            assert_eq!(format_pointer(POINTERS_OFFSET, end, 5), "0x5");
            for end in second..second + 0x110 - POINTERS_OFFSET - 8 {
                assert_eq!(format_pointer(POINTERS_OFFSET, end, 0), "0x5");
            }
        }
    }
}
