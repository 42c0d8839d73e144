//! Tests with sound, damaged and malicious compiled manifests.

use std::time::{Duration, Instant};

use traceweir_format::spec::types::{InType, OutType};
use traceweir_format::wire::Put;

use super::build::{
    PROVIDER, PatchedBytes, compile_test_manifest, encode_message_table, encode_messages, encode_text_record,
    for_each_damaged_copy,
};
use super::*;
use crate::schema::{Count, FieldKind, Length};

fn read_with_messages(blob: &[u8]) -> Vec<ProviderSchemas> {
    read_providers(blob, &MessageTable::parse(&encode_messages()).unwrap()).unwrap()
}

fn text_or_none(name: &Option<Arc<str>>) -> &str {
    name.as_deref().unwrap_or("(none)")
}

#[test]
fn events_get_names_messages_and_keywords() {
    let providers = read_with_messages(&compile_test_manifest(true));
    assert_eq!(providers.len(), 1);
    assert_eq!((providers[0].id, text_or_none(&providers[0].name)), (PROVIDER, "Example-Provider"));
    let events = &providers[0].events;
    assert_eq!(
        events.iter().map(|e| (e.descriptor.id, e.descriptor.version)).collect::<Vec<_>>(),
        [(1, 0), (1, 1), (2, 0)]
    );
    let full = &events[0].schema;
    assert_eq!(full.provider, PROVIDER);
    assert_eq!(full.message.as_deref(), Some("Did %1 with %2%n"));
    let n = &full.names;
    assert_eq!(
        [&n.provider, &n.task, &n.opcode, &n.level, &n.channel].map(text_or_none),
        ["Example-Provider", "Work task", "Own begin", "Error", "Example-Provider/Operational",]
    );
    assert_eq!(n.keywords, [(0x10, "Network".into()), (1 << 40, "DiskKeyword".into())]);
    let levels = &read_with_messages(&compile_test_manifest(true))[0].value_names.levels;
    let levels: Vec<_> =
        levels.iter().map(|level| (level.value, &*level.name, level.text.as_deref())).collect();
    assert_eq!(levels, [(2, "win:Error", Some("Error")), (4, "win:Informational", None)]);
}

#[test]
fn names_fall_back_to_the_name_record_and_to_the_value() {
    let events = &read_with_messages(&compile_test_manifest(true))[0].events;
    let n = &events[1].schema.names;
    assert_eq!(
        [&n.opcode, &n.level].map(text_or_none),
        ["Start", "Informational"],
        "without message 99 the name record must be used"
    );
    assert_eq!(events[1].schema.message, None);
    let n = &events[2].schema.names;
    assert_eq!(
        [&n.task, &n.opcode, &n.level].map(text_or_none),
        ["Work task", "Own begin", "Error"],
        "with offset 0 the value must be used"
    );
    assert_eq!(events[2].schema.message, None, "a message that does not exist must be left out");

    let bare = read_providers(&compile_test_manifest(true), &MessageTable::default()).unwrap();
    let n = &bare[0].events[0].schema.names;
    assert_eq!([&n.task, &n.opcode, &n.level].map(text_or_none), ["WorkTask", "OwnStart", "Error"]);
}

#[test]
fn an_event_without_a_template_has_no_fields() {
    let events = &read_with_messages(&compile_test_manifest(true))[0].events;
    assert!(events[1].schema.fields().is_empty());
    assert_eq!(events[0].schema.fields(), events[2].schema.fields());
}

#[test]
fn item_flags_decide_count_and_length() {
    let providers = read_with_messages(&compile_test_manifest(true));
    let schema = &providers[0].events[0].schema;
    let shape: Vec<_> =
        schema.fields().iter().map(|f| (&*f.name, f.count, f.length, f.is_referenced)).collect();
    let (one, natural) = (Count::One, Length::Natural);
    assert_eq!(
        shape,
        [
            ("Size", one, natural, false),
            ("Length", one, natural, true),
            ("Data", one, Length::Field(1), false),
            ("Label", one, Length::Fixed(12), false),
            ("Stack", Count::Fixed(2), natural, false),
            ("Accesses", Count::Field(1), natural, false),
            ("Values", Count::Field(1), natural, false),
            ("Key", one, natural, false),
            ("Name", one, natural, false),
        ]
    );
    assert_eq!(schema.top().len(), 7);
    assert_eq!(schema.fields()[6].kind, FieldKind::Struct { first: 7, members: 2 });
    let pointer = FieldKind::Value { input: InType::POINTER, output: OutType::HEXINT64, map: None };
    assert_eq!(schema.fields()[4].kind, pointer);
}

#[test]
fn maps_of_both_versions_read_alike() {
    for has_flag_word in [true, false] {
        let providers = read_with_messages(&compile_test_manifest(has_flag_word));
        let map_of = |field: usize| match &providers[0].events[0].schema.fields()[field].kind {
            FieldKind::Value { map: Some(map), .. } => map.clone(),
            kind => panic!("{kind:?} has no map"),
        };
        let (size, access) = (map_of(0), map_of(5));
        assert_eq!(
            (&*size.name, size.is_bit_map, size.value(1), size.value(9)),
            ("SizeMap", false, Some("Small"), Some("Large"))
        );
        assert_eq!(size.value(5), None, "an entry whose message does not exist must be left out");
        assert_eq!((&*access.name, access.is_bit_map), ("AccessMap", true));
        assert_eq!(access.entries(), [(1, "Read".into()), (2, "Write".into())]);
    }
}

#[test]
fn the_size_field_ends_the_blob() {
    let mut blob = compile_test_manifest(true);
    let size = blob.len();
    blob.put(&[0xAA; 7]);
    assert_eq!(trim_to_size(&blob).unwrap().len(), size);
    assert_eq!(read_with_messages(&blob)[0].events.len(), 3);
    assert!(read_providers(&blob[..size - 1], &MessageTable::default()).is_err());
    assert!(read_providers(b"CRAM\x10\0\0\0", &MessageTable::default()).is_err());
}

#[test]
fn damaged_input_never_panics() {
    let table = MessageTable::parse(&encode_messages()).unwrap();
    for has_flag_word in [true, false] {
        for_each_damaged_copy(&compile_test_manifest(has_flag_word), |blob| {
            let _ = read_providers(blob, &table);
        });
    }
}

/// Reads a hostile blob and checks that it is refused for this reason and without delay.
fn assert_refused_quickly(blob: &PatchedBytes, messages: &MessageTable, reason: &str) {
    let start = Instant::now();
    let error = read_providers(&blob.0, messages).unwrap_err().to_string();
    assert!(error.contains(reason), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5), "took {:?}", start.elapsed());
}

/// Builds the start of a blob whose `providers` all refer to the same block, which follows.
fn build_blob_header(size: usize, providers: u32) -> PatchedBytes {
    let mut b = PatchedBytes::default();
    b.0.put(b"CRIM").put_u32(size as u32).put_u16(5).put_u16(1).put_u32(providers);
    for _ in 0..providers {
        b.0.put_guid(&PROVIDER).put_u32(16 + 20 * providers);
    }
    b
}

#[test]
fn shared_provider_block_does_not_multiply_events() {
    // Sizes of CRIM and its 4000 providers, WEVT with one element, EVNT and its 4000 events.
    let mut b = build_blob_header(16 + 20 * 4000 + 24 + 16 + 48 * 4000, 4000);
    b.0.put(b"WEVT").put_u32(0).put_u32(u32::MAX).put_u32(1).put_u32(4);
    let events = b.reserve_u32();
    b.fill_position(events);
    b.0.put(b"EVNT").put_u32(0).put_u32(4000).put_u32(0).put(&[0; 48 * 4000]);
    assert_refused_quickly(&b, &MessageTable::default(), "records of the manifest overlap");
}

#[test]
fn shared_name_table_does_not_multiply_entries() {
    // Sizes: 36 for CRIM and one provider, 16 for WEVT and 8 for each of its elements, 12 for LEVL
    // and 12 for each of its entries. All elements refer to the same LEVL.
    let (elements, entries) = (8000_u32, 8000_u32);
    let mut b = build_blob_header(36 + 16 + (8 * elements + 12 + 12 * entries) as usize, 1);
    b.0.put(b"WEVT").put_u32(0).put_u32(u32::MAX).put_u32(elements);
    for _ in 0..elements {
        b.0.put_u32(0).put_u32(36 + 16 + 8 * elements);
    }
    b.0.put(b"LEVL").put_u32(0).put_u32(entries);
    b.0.put(&vec![0; 12 * entries as usize]);
    assert_refused_quickly(&b, &MessageTable::default(), "records of the manifest overlap");
}

/// Builds a blob of `events` events with one template of `items` items; each item has the bytes
/// `item` and the name `name`.
fn build_blob_with_template(events: usize, items: usize, item: [u32; 4], name: &[u8]) -> PatchedBytes {
    let mut b = build_blob_header(0, 1);
    b.0.put(b"WEVT").put_u32(0).put_u32(u32::MAX).put_u32(1).put_u32(4);
    let list = b.reserve_u32();
    b.fill_position(list);
    b.0.put(b"EVNT").put_u32(0).put_u32(events as u32).put_u32(0);
    let template = b.position() + 48 * events as u32;
    for id in 0..events {
        b.0.put_u64(id as u64).put_u64(0).put_u32(u32::MAX).put_u32(template).put(&[0; 24]);
    }
    b.0.put(b"TEMP").put_u32(0).put_u32(items as u32).put_u32(items as u32).put_u32(template + 40);
    b.0.put_u32(1).put_guid(&PROVIDER);
    let name_at = b.position() + 20 * items as u32;
    for _ in 0..items {
        item.into_iter().for_each(|word| {
            b.0.put_u32(word);
        });
        b.0.put_u32(name_at);
    }
    b.0.put(name);
    b.fill_u32(4, b.position());
    b
}

#[test]
fn events_may_share_a_template_but_not_without_bound() {
    let value = [0, 8, 0, 0];
    let sound = build_blob_with_template(100, 20, value, &encode_text_record("Field"));
    let events = &read_providers(&sound.0, &MessageTable::default()).unwrap()[0].events;
    assert!(events.len() == 100 && events.iter().all(|e| e.schema.top().len() == 20));
    let no_messages = MessageTable::default();
    assert_refused_quickly(
        &build_blob_with_template(4000, 4000, value, &encode_text_record("Field")),
        &no_messages,
        "too many fields in all events",
    );
    assert_refused_quickly(
        &build_blob_with_template(1, 4097, value, &encode_text_record("Field")),
        &no_messages,
        "too many items",
    );
}

#[test]
fn cyclic_structures_and_shared_members_are_refused() {
    // An item with the flag 1 is a structure. Its second word holds the index of its first member
    // (low half) and the number of its members (high half).
    for (first, members, reason) in [
        (0_u32, 1_u32, "share members"),
        (1, 1, "share members"),
        (0, 0xFFFF, "share members"),
        (0, 0, "out of range"),
        (0xFFFF, 0xFFFF, "out of range"),
    ] {
        let blob = build_blob_with_template(1, 8, [1, first | members << 16, 0, 0], &encode_text_record("S"));
        assert_refused_quickly(&blob, &MessageTable::default(), reason);
    }
    let self_member = build_blob_with_template(1, 1, [1, 1 << 16, 0, 0], &encode_text_record("S"));
    assert_refused_quickly(&self_member, &MessageTable::default(), "out of range");
}

#[test]
fn maps_do_not_multiply_a_long_message() {
    let entries = 40_000_u32;
    // The map is directly after the item, at the usual place of the item's name, which here follows
    // the map. The sizes are those of CRIM, WEVT, EVNT, the event, TEMP and the item.
    let map = 36 + 24 + 16 + 48 + 40 + 20;
    let mut b = build_blob_with_template(1, 1, [0, 8, map, 0], &[]);
    assert_eq!(b.position(), map);
    b.0.put(b"VMAP").put_u32(20 + 8 * entries);
    let map_name = b.reserve_u32();
    b.0.put_u32(0).put_u32(entries);
    for value in 0..entries {
        b.0.put_u32(value).put_u32(1);
    }
    b.fill_position(map_name);
    b.fill_position(map as usize - 4);
    b.0.put(&encode_text_record("Map"));
    b.fill_position(4);
    let table_with_message = |text: &str| MessageTable::parse(&encode_message_table(&[(1, text)])).unwrap();
    assert_refused_quickly(&b, &table_with_message(&"x".repeat(30_000)), "too much text in maps");
    let providers = read_providers(&b.0, &table_with_message("x")).unwrap();
    let FieldKind::Value { map: Some(map), .. } = &providers[0].events[0].schema.fields()[0].kind else {
        panic!("no map");
    };
    assert_eq!(map.entries().len(), 40_000);
}
