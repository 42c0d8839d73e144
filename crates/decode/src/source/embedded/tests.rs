//! TRACE_EVENT_INFO and EVENT_MAP_INFO records, sound and damaged.

use traceweir_format::wire::Put;

use super::*;
use crate::schema::{Count, Length};
use crate::source::wevt::build::{PROVIDER, PatchedBytes, for_each_damaged_copy};

/// One property: flags; in and out type, or first member and number of members; map name; count;
/// length; tags; name. Flags: 1 structure, 2 length in another property, 4 count in another
/// property, 0x10 fixed length, 0x20 fixed count, 0x40 tags, 0x80 custom schema.
type PropertyRow = (u32, [u16; 2], &'static str, u16, u16, u32, &'static str);

const ROWS: [PropertyRow; 7] = [
    (0, [8, 8], "SizeMap", 1, 4, 0, "Size"),
    (0, [16, 19], "", 2, 4, 0, "Stack"),
    (2, [14, 25], "", 1, 0, 0, "Address"),
    (0x61, [5, 2], "", 3, 0, 0xF123_4567, "Pairs"),
    (0x90, [1, 1], "schema", 1, 6, 0, "Custom"),
    (4, [8, 8], "SizeMap", 0, 4, 0, "Sizes"),
    (0, [1, 1], "", 1, 0, 0, "Name"),
];

/// Appends a text, if it is not empty, and stores its offset in the reserved u32 at `hole`.
fn put_text(b: &mut PatchedBytes, hole: usize, text: &str) {
    if !text.is_empty() {
        b.fill_position(hole);
        b.0.put_wide_z(text);
    }
}

/// Encodes a TRACE_EVENT_INFO with `top` top-level properties.
fn encode_info(rows: &[PropertyRow], top: u32, keyword: u64, keywords: &[&str]) -> Vec<u8> {
    let d = EventDescriptor { id: 12, version: 1, channel: 16, level: 4, opcode: 1, task: 3, keyword };
    let mut b = PatchedBytes::default();
    b.0.put_guid(&PROVIDER).put_guid(&Guid::NULL).put(&d.to_bytes()).put_u32(0);
    let holes: Vec<_> = (0..12).map(|_| b.reserve_u32()).collect();
    // The last number holds the tags (5) and the template flags (1).
    b.0.put_u32(rows.len() as u32).put_u32(top).put_u32(0x50 | 1);
    let mut pending = Vec::new();
    for &(flags, [input, output], map, count, length, tags, name) in rows {
        b.0.put_u32(flags);
        pending.push((b.reserve_u32(), name));
        b.0.put_u16(input).put_u16(output);
        pending.push((b.reserve_u32(), map));
        b.0.put_u16(count).put_u16(length).put_u32(tags);
    }
    // Provider, level, channel, task, opcode, message, provider message, event name. The numbers
    // count the offsets of TRACE_EVENT_INFO; offset 3 leads to the keywords (below).
    for (hole, t) in [
        (0, "Example-Provider"),
        (1, "win:Informational "),
        (2, "Example/Analytic"),
        (4, "Work"),
        (5, "win:Start"),
        (6, "Did %1 "),
        (7, "Provider message "),
        (10, "OwnName"),
    ] {
        put_text(&mut b, holes[hole], t);
    }
    if !keywords.is_empty() {
        b.fill_position(holes[3]);
        for k in keywords {
            b.0.put_wide_z(k);
        }
        b.0.put_u16(0);
    }
    for (hole, t) in pending {
        put_text(&mut b, hole, t);
    }
    b.0
}

/// Encodes a provider GUID and an EVENT_MAP_INFO.
fn encode_map(flags: u32, value_type: u32, entries: &[(&str, u32)]) -> Vec<u8> {
    let mut b = PatchedBytes::default();
    let name = b.reserve_u32();
    b.0.put_u32(flags).put_u32(entries.len() as u32).put_u32(value_type);
    let holes: Vec<_> = entries
        .iter()
        .map(|(_, value)| {
            let hole = b.reserve_u32();
            b.0.put_u32(*value);
            hole
        })
        .collect();
    put_text(&mut b, name, "SizeMap");
    for (hole, (t, _)) in holes.into_iter().zip(entries) {
        put_text(&mut b, hole, t);
    }
    let mut out = Vec::new();
    out.put_guid(&PROVIDER).put(&b.0);
    out
}

#[test]
fn an_event_gets_names_and_fields() {
    let event =
        parse_event_info(&encode_info(&ROWS, 5, 0x8000_0000_0000_00A0, &["FILEIO", "CREATE "])).unwrap();
    assert_eq!((event.provider, event.event_guid, event.decoding_source), (PROVIDER, Guid::NULL, 0));
    assert_eq!((event.descriptor.id, event.descriptor.version, event.descriptor.task), (12, 1, 3));
    let n = &event.schema.names;
    let names =
        [&n.provider, &n.event, &n.task, &n.opcode, &n.level, &n.channel].map(|t| t.as_deref().unwrap());
    assert_eq!(names, ["Example-Provider", "OwnName", "Work", "Start", "Informational", "Example/Analytic"]);
    assert_eq!(n.keywords, [(0x20, "FILEIO".into()), (0x80, "CREATE".into())]);
    assert_eq!(event.schema.message.as_deref(), Some("Did %1"));
    assert_eq!((event.schema.origin, event.schema.tags), (SchemaOrigin::Embedded, 5));

    // Tags have 28 bits: 0xF123_4567 becomes 0x0123_4567.
    let shape: Vec<_> = event.schema.fields().iter().map(|f| (&*f.name, f.count, f.length, f.tags)).collect();
    let (one, natural) = (Count::One, Length::Natural);
    assert_eq!(
        shape,
        [
            ("Size", one, natural, 0),
            ("Stack", Count::Fixed(2), natural, 0),
            ("Address", one, Length::Field(0), 0),
            ("Pairs", Count::Fixed(3), natural, 0x0123_4567),
            ("Custom", one, Length::Fixed(6), 0),
            ("Sizes", Count::Field(0), natural, 0),
            ("Name", one, natural, 0),
        ]
    );
    assert_eq!(event.schema.top().len(), 5);
    assert_eq!(event.schema.fields()[3].kind, FieldKind::Struct { first: 5, members: 2 });
    assert_eq!(
        event.map_names,
        [(0, "SizeMap".into()), (5, "SizeMap".into())],
        "a custom schema must not count as a map"
    );
}

#[test]
fn keywords_are_paired_with_bits_only_when_that_is_certain() {
    let keyword_masks = |keyword, names: &[&str]| -> Vec<u64> {
        parse_event_info(&encode_info(&[], 0, keyword, names))
            .unwrap()
            .schema
            .names
            .keywords
            .iter()
            .map(|k| k.0)
            .collect()
    };
    assert_eq!(keyword_masks(0x1_0800, &["a", "b"]), [0x800, 0x1_0000]);
    assert_eq!(keyword_masks(0x4000_0000_0000_0020, &["a"]), [0x20], "the channel bit must get no name");
    assert_eq!(
        keyword_masks(0x8001_0000_0000_0001, &["a", "b"]),
        [1, 1 << 48],
        "a predefined keyword must get its name"
    );
    assert_eq!(keyword_masks(0x8001_0000_0000_0001, &["a"]), [1]);
    assert_eq!(keyword_masks(0x7, &["a"]), [0], "one name must not be paired with three bits");
    assert_eq!(keyword_masks(0x1, &["a", "b"]), [0, 0]);
    assert!(keyword_masks(0x1, &[]).is_empty());
}

#[test]
fn fields_refer_to_maps_by_name() {
    let event = parse_event_info(&encode_info(&ROWS, 5, 0, &[])).unwrap();
    let (provider, map) = parse_event_map(&encode_map(1, 0, &[("Large ", 7), ("Small ", 2)])).unwrap();
    assert_eq!((provider, &*map.name, map.is_bit_map), (PROVIDER, "SizeMap", false));
    assert_eq!((map.value(2), map.value(7), map.value(1)), (Some("Small"), Some("Large"), None));
    let named: Vec<_> = event.map_names.iter().map(|(index, name)| (*index, &**name)).collect();
    assert_eq!(named, [(0, "SizeMap"), (5, "SizeMap")]);
    assert_eq!(event.schema.names.task.as_deref(), Some("Work"));
}

#[test]
fn classic_map_values_come_from_positions_numbers_or_texts() {
    let entries = |flags, value_type, rows: &[(&str, u32)]| {
        let (_, map) = parse_event_map(&encode_map(flags, value_type, rows)).unwrap();
        (map.is_bit_map, map.entries().iter().map(|e| e.0).collect::<Vec<_>>())
    };
    let rows = [("a", 9), ("b", 4)];
    assert_eq!(entries(map::MANIFEST_BITMAP, 0, &rows), (true, vec![9, 4]), "bits must keep their order");
    assert_eq!(entries(map::WBEM_NO_MAP | map::WBEM_VALUEMAP, 0, &rows), (false, vec![0, 1]));
    assert_eq!(entries(map::WBEM_NO_MAP | map::WBEM_BITMAP, 0, &rows), (true, vec![1, 2]));
    assert_eq!(entries(map::WBEM_FLAG | map::WBEM_VALUEMAP, 0, &rows), (true, vec![9, 4]));
    // `at(n)` is the offset of text n, after the header, three entries and the name (16 bytes). The
    // values of the first two entries are each other's texts; the third value is not a number.
    let at = |n: u32| 0x10 + 8 * 3 + 16 + n * 8;
    let texts = [("0x1", at(1)), ("22 ", at(0)), ("x", at(2))];
    assert_eq!(entries(map::WBEM_VALUEMAP, 1, &texts), (false, vec![1, 22]));
    assert!(
        parse_event_map(&encode_map(map::MANIFEST_PATTERNMAP, 0, &rows)).is_err(),
        "pattern maps must be refused"
    );
}

#[test]
fn hostile_counts_and_texts_are_refused() {
    let mut many = encode_info(&ROWS, 5, 0, &[]);
    // The number of properties.
    many[0x64..0x68].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(parse_event_info(&many).is_err());
    assert!(
        parse_event_info(&encode_info(&ROWS, 8, 0, &[])).is_err(),
        "more top-level properties than properties must be refused"
    );
    let self_member: PropertyRow = (1, [0, 1], "", 1, 0, 0, "Self");
    assert!(parse_event_info(&encode_info(&[self_member], 1, 0, &[])).is_err());

    // A thousand entries that share one long text.
    let mut b = Vec::new();
    b.put_guid(&PROVIDER).put_u32(16 + 8 * 1000).put_u32(1).put_u32(1000).put_u32(0);
    for value in 0..1000 {
        b.put_u32(16 + 8 * 1000).put_u32(value);
    }
    b.put_wide_z(&"x".repeat(20_000));
    assert!(parse_event_map(&b).is_err());
}

#[test]
fn damaged_input_never_panics() {
    for_each_damaged_copy(&encode_info(&ROWS, 5, 0xA0, &["FILEIO", "CREATE"]), |bytes| {
        let _ = parse_event_info(bytes);
    });
    for_each_damaged_copy(&encode_map(1, 0, &[("Large ", 7), ("Small ", 2)]), |bytes| {
        let _ = parse_event_map(bytes);
    });
    for_each_damaged_copy(&encode_map(8, 1, &[("7", 0x28), ("0x8", 0x30)]), |bytes| {
        let _ = parse_event_map(bytes);
    });
}
