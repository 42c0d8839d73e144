use super::*;
use crate::schema::Count;
use crate::source::wpp::lines::MAX_NAME_BYTES;
use proptest::prelude::*;
use traceweir_format::spec::types::OutType;

const SAMPLE: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tmf/sample.tmf"));
const GUID: &str = "6f1c2b5a-0d3e-4a77-9c58-1b2f3a4d5e6f";

fn field_types(format: &MessageFormat) -> Vec<(&str, InType, OutType)> {
    let type_of = |field: &'_ Field| match field.kind {
        FieldKind::Value { input, output, .. } => (input, output),
        FieldKind::Struct { .. } => panic!("{} is a structure", field.name),
    };
    format.schema.top().iter().map(|f| (&*f.name, type_of(f).0, type_of(f).1)).collect()
}

/// Builds a file of one section with these lines.
fn file_with_lines(lines: &str) -> Vec<u8> {
    format!("{GUID} comp // SRC=a.c MJ= MN=\n{lines}").into_bytes()
}

fn message_text(format: &MessageFormat) -> &str {
    format.schema.message.as_deref().unwrap()
}

#[test]
fn the_sample_gives_its_messages_in_order() {
    let parsed = parse(SAMPLE).unwrap();
    let messages: Vec<_> = parsed
        .formats
        .iter()
        .map(|f| (f.number, f.info.type_name.as_deref().unwrap(), message_text(f)))
        .collect();
    assert_eq!(
        messages,
        [
            (10, "queue_c41", "QueueInsert depth is %1!d! of %2!u! (100%%)"),
            (11, "queue_c58", "open \"%1!s!\" as %2!s! // see %3!s!"),
            (12, "queue_c60", "no arguments"),
            (
                10,
                "net_cpp7",
                "NETWORK: %1!s! from %2!s!:%3!s! access %4!s! tag %5!c! code %6!d! %7!s! ptr %8!p!\nsecond line"
            ),
            (11, "net_cpp9", "%1!d! %2!s! <?>"),
        ]
    );
    assert_eq!(
        parsed.warnings,
        [
            // The number of the line in the file, and the warning.
            (18, "the directive is skipped"),
            (38, "the item type is not known: from here on the payload is raw")
        ]
    );
}

#[test]
fn messages_of_the_sample_have_names_from_their_source() {
    let parsed = parse(SAMPLE).unwrap();
    let [first, second, .., last] = &parsed.formats[..] else { panic!("{parsed:?}") };
    assert_eq!(first.guid, GUID.parse().unwrap());
    assert_eq!(first.schema.provider, first.guid);
    assert_eq!(first.schema.origin, SchemaOrigin::Wpp);
    assert_eq!(first.schema.names.provider.as_deref(), Some("blockdev"));
    assert_eq!(first.schema.event_name().as_deref(), Some("queue_c41"));
    let some_text = |t: &str| Some(t.into());
    let expected = WppInfo {
        component: some_text("blockdev"),
        major: some_text("Storage"),
        minor: some_text("Queue"),
        source_file: some_text("queue.c"),
        function: some_text("QueueInsert"),
        level: some_text("TRACE_LEVEL_INFORMATION"),
        flags: some_text("TRACE_QUEUE"),
        type_name: some_text("queue_c41"),
    };
    assert_eq!(first.info, expected);
    assert_eq!(
        second.info.function.as_deref(),
        Some("Queue<int, 4>::Open"),
        "blanks in a function name must be kept"
    );
    assert_eq!(last.guid.to_string(), "0a1b2c3d-1111-4222-8333-944455566677");
    assert_eq!((&last.info.source_file, &last.info.major), (&some_text("net.cpp"), &None));
}

#[test]
fn arguments_of_the_sample_have_their_types() {
    let parsed = parse(SAMPLE).unwrap();
    let null = OutType::NULL;
    assert_eq!(
        field_types(&parsed.formats[0]),
        [("Queue->Depth", InType::INT32, null), ("max(Queue->Limit, 1)", InType::UINT32, null)]
    );
    assert_eq!(
        field_types(&parsed.formats[1]),
        [
            ("name", InType::ANSISTRING, null),
            ("&Path", InType::COUNTEDSTRING, null),
            ("KeGetCurrentIrql()", InType::UINT8, null)
        ]
    );
    assert_eq!(
        field_types(&parsed.formats[3]),
        [
            ("Status", InType::UINT32, OutType::NTSTATUS),
            ("Peer", InType::UINT32, OutType::IPV4),
            ("Port", InType::UINT16, OutType::PORT),
            ("Access", InType::UINT32, OutType::HEXINT32),
            ("Tag", InType::ANSICHAR, null),
            ("Code", InType::INT8, null),
            ("LOG_LENSTR(Buffer, (USHORT)Length)", InType::COUNTEDBINARY, null),
            ("this", InType::POINTER, null)
        ]
    );
    let FieldKind::Value { map: Some(irql), .. } = &parsed.formats[1].schema.top()[2].kind else {
        panic!("the third field has no map")
    };
    assert_eq!(irql.value(2), Some("DPC"));
}

#[test]
fn unknown_type_leaves_the_remaining_payload_raw() {
    let parsed = parse(SAMPLE).unwrap();
    let last = parsed.formats.last().unwrap();
    assert_eq!(
        field_types(last),
        [("First", InType::INT16, OutType::NULL), ("Odd", InType::UINT8, OutType::HEXINT8)]
    );
    assert_eq!(last.schema.top()[1].count, Count::ToEnd);
}

#[test]
fn encodings_and_line_ends_do_not_matter() {
    let text = std::str::from_utf8(SAMPLE).unwrap();
    let expected = parse(SAMPLE).unwrap();
    let dos = text.replace('\n', "\r\n");
    let with_bom = [b"\xEF\xBB\xBF", dos.as_bytes()].concat();
    let little: Vec<u8> = [0xFEFF].into_iter().chain(dos.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = [0xFEFF].into_iter().chain(dos.encode_utf16()).flat_map(u16::to_be_bytes).collect();
    for (name, bytes) in
        [("CRLF", dos.as_bytes()), ("BOM", &with_bom), ("UTF-16LE", &little), ("UTF-16BE", &big)]
    {
        assert_eq!(parse(bytes).unwrap(), expected, "{name}");
    }
    let ansi = parse(b"6f1c2b5a-0d3e-4a77-9c58-1b2f3a4d5e6f c\n#typev t 1 \"gr\xFC\xDFe\"").unwrap();
    assert_eq!(message_text(&ansi.formats[0]), "grüße");
}

#[test]
fn argument_lines_are_read_from_their_end() {
    let numbered_argument = |expression, item, names, number| {
        Some(ArgumentLine { expression, item, names, number: Some(number) })
    };
    for (line, expected) in [
        ("a, ItemLong -- 10", numbered_argument("a", "ItemLong", "", 10)),
        ("f(a, b), ItemLong--11", numbered_argument("f(a, b)", "ItemLong", "", 11)),
        ("x--, ItemListLong (A, B(1), C) -- 12", numbered_argument("x--", "ItemListLong", "A, B(1), C", 12)),
        (
            "\"a, ItemLong -- 3\", ItemString -- 13",
            numbered_argument("\"a, ItemLong -- 3\"", "ItemString", "", 13),
        ),
        ("a, ItemLong // 10", numbered_argument("a", "ItemLong", "", 10)),
        ("a, ItemLong", Some(ArgumentLine { expression: "a", item: "ItemLong", names: "", number: None })),
        (", ItemLong -- 10", numbered_argument("Arg", "ItemLong", "", 10)),
        ("ItemLong -- 10", None),
        ("a, ItemLong -- ten", None),
        ("a, ItemLong) -- 10", None),
        ("a, not an item -- 10", None),
        ("", None),
    ] {
        assert_eq!(parse_argument(line), expected, "{line}");
    }
}

#[test]
fn inserts_follow_argument_numbers_and_fields_follow_lines() {
    let parsed =
        parse(&file_with_lines("#typev t 1 \"%11!d! %10!s!\"\n{\nb, ItemString -- 11\na, ItemLong -- 10\n}"))
            .unwrap();
    assert_eq!(message_text(&parsed.formats[0]), "%1!d! %2!s!");
    assert_eq!(&*parsed.formats[0].schema.top()[0].name, "b");
}

#[test]
fn faulty_message_does_not_affect_others() {
    let good = "#typev good 7 \"fine\"\n{\n}\n";
    for (bad, reason) in [
        (
            "#typev t many \"x\"\n{\na, ItemLong -- 10\n}\n",
            "the message has no name or no number up to 65535",
        ),
        ("#typev t 65536 \"x\"\n", "the message has no name or no number up to 65535"),
        ("#typev t 1 no quotes\n{\n}\n", "the message has no text in quotes"),
        ("#typev t 1 \"no end\n{\na, ItemLong -- 10\n}\n", "the message text does not end"),
        ("#typev t 1 \"no end\n", "the message text does not end"),
        ("not a line of this format\n", "the line is neither a GUID, a directive nor a comment"),
        ("#enumv e\n{\nx, 1\n}\n", "the directive is skipped"),
    ] {
        let parsed = parse(&file_with_lines(&format!("{bad}{good}"))).unwrap();
        assert_eq!(parsed.formats.len(), 1, "{bad}");
        assert_eq!((parsed.formats[0].number, message_text(&parsed.formats[0])), (7, "fine"), "{bad}");
        assert_eq!(parsed.warnings.iter().map(|w| w.1).collect::<Vec<_>>(), [reason], "{bad}");
    }
    let parsed =
        parse(&file_with_lines(&format!("#typev t 1 \"x\"\n{{\na, ItemLong -- 10\n{good}"))).unwrap();
    assert_eq!(parsed.formats.len(), 2, "a block without its end must keep its message");
    assert_eq!(parsed.formats[0].schema.top().len(), 1);
    assert_eq!(parsed.warnings, [(5, "the block before this message does not end")]);
    let parsed =
        parse(&file_with_lines("#typev t 1 \"%10!d!\"\n{\nno item\nb, ItemLong -- 11\n}\n")).unwrap();
    assert_eq!(message_text(&parsed.formats[0]), "<?>");
    assert_eq!(&*parsed.formats[0].schema.top()[0].name, "Data");
}

#[test]
fn files_without_messages_are_errors() {
    for bytes in [&b""[..], b"hello", &file_with_lines("")] {
        assert_eq!(parse(bytes), Err(Error::Tmf { line: 1, reason: "the file describes no message" }));
    }
    let without_guid = parse(b"#typev t 1 \"x\"\n{\n}\n");
    assert!(without_guid.is_err(), "a message without a GUID must be refused");
}

#[test]
fn sizes_are_bounded() {
    assert!(matches!(parse(&vec![b' '; MAX_FILE_BYTES + 1]), Err(Error::Tmf { line: 0, .. })));

    let long = format!("#typev t 1 \"{}\"\n#typev t 2 \"short\"\n", "x".repeat(MAX_LINE_BYTES));
    let parsed = parse(&file_with_lines(&long)).unwrap();
    assert_eq!((parsed.formats.len(), parsed.formats[0].number), (1, 2));
    assert_eq!(parsed.warnings, [(2, "the line is longer than 64 KiB")]);

    let arguments: String = (0..300).map(|n| format!("a, ItemLong -- {}\n", n + 10)).collect();
    let parsed = parse(&file_with_lines(&format!("#typev t 1 \"x\"\n{{\n{arguments}}}\n"))).unwrap();
    assert_eq!(
        parsed.formats[0].schema.top().len(),
        MAX_ARGUMENTS + 1,
        "the last field must hold the remaining raw bytes"
    );

    let parsed = parse(&[file_with_lines("#typev t 1 \"x\"\n"), b"junk\n".repeat(2000)].concat()).unwrap();
    assert_eq!(parsed.warnings.len(), super::super::MAX_WARNINGS);

    let text = "\nx".repeat(100);
    assert!(
        parse(&file_with_lines(&format!("#typev t 1 \"{text}\"\n"))).is_err(),
        "a text of more than 32 lines must be refused"
    );

    let component = "é".repeat(1000);
    let parsed = parse(format!("{GUID} {component}\n#typev t 1 \"x\"\n").as_bytes()).unwrap();
    assert_eq!(parsed.formats[0].info.component.as_ref().unwrap().len(), MAX_NAME_BYTES);
}

#[test]
fn number_of_messages_is_limited() {
    let error = parse(&file_with_lines(&"#type t 1 \"\"\n".repeat(MAX_MESSAGES + 1))).unwrap_err();
    assert!(matches!(error, Error::Tmf { reason: "more than a million messages", .. }));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn pieces_of_the_format_in_any_order_never_panic(picks in proptest::collection::vec(0_usize..24, 0..60)) {
        let pieces = [
            "\n", "{\n", "}\n", "#typev ", "#type", "t 1 ", "\"", "%", "%10!d!", "%0", "!", " // ", "LEVEL=", "FUNC=", "SRC=",
            "6f1c2b5a-0d3e-4a77-9c58-1b2f3a4d5e6f ", "a, ItemLong -- 10\n", "ItemSetLong(", ")", ", ", "--", "é", "\u{FEFF}", "99999",
        ];
        let text: String = picks.iter().map(|&n| pieces[n]).collect();
        if let Ok(parsed) = parse(text.as_bytes()) {
            prop_assert!(!parsed.formats.is_empty());
        }
    }

    #[test]
    fn damaged_samples_never_panic(at in 0..SAMPLE.len(), byte: u8, cut in 0..SAMPLE.len()) {
        let mut bytes = SAMPLE.to_vec();
        bytes[at] = byte;
        bytes.truncate(cut);
        let _ = parse(&bytes);
    }
}
