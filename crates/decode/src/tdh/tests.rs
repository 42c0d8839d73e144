use proptest::prelude::*;
use traceweir_format::Guid;
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor, class};
use traceweir_format::spec::types::{InType, OutType};
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};

use super::event_info::encode_map_info;
use super::property::find_property;
use super::*;
use crate::schema::{Count, Field, FieldKind, Length, Schema, ValueMap};
use crate::source::embedded::{parse_event_info, parse_event_map};
use crate::source::{LookupEvent, manifest, tracelogging};
use crate::value::Value;

const EVERYTHING: &[u8] = include_bytes!("../../../../fixtures/manifests/everything.man");
const PROVIDER: Guid = Guid::from_u128(0x6f0a4d5e_3c41_4a53_9c0b_1f2e3d4c5b6a);

fn value_field(name: &str, input: InType) -> Field {
    Field::value(name, input, OutType::NULL)
}

fn step(name: &str) -> PropertyStep<'_> {
    PropertyStep { name, element: None }
}

const fn element(name: &str, element: u32) -> PropertyStep<'_> {
    PropertyStep { name, element: Some(element) }
}

/// Builds a schema of four parts: `n`; `n` structures, each of an id and a text; three words; three
/// characters.
fn rows_schema() -> Schema {
    let fields = vec![
        value_field("n", InType::UINT8),
        Field::new("rows", FieldKind::Struct { first: 4, members: 2 }).with_count(Count::Field(0)),
        value_field("words", InType::UINT16).with_count(Count::Fixed(3)),
        Field::value("chars", InType::UINT8, OutType::STRING).with_count(Count::Fixed(3)),
        value_field("id", InType::UINT8),
        value_field("text", InType::ANSISTRING),
    ];
    Schema::default().seal(fields, 4).unwrap()
}

const ROWS_PAYLOAD: &[u8] = b"\x02\x0aone\0\x0btwo\0\x01\0\x02\0\x03\0xyz";

#[test]
fn a_property_is_found_by_its_structures_and_elements() {
    let schema = rows_schema();
    for (steps, bytes) in [
        (&[step("n")][..], &b"\x02"[..]),
        (&[element("n", 0)], b"\x02"),
        (&[step("rows")], b"\x0aone\0\x0btwo\0"),
        (&[element("rows", 1)], b"\x0btwo\0"),
        (&[element("rows", 0), step("text")], b"one\0"),
        (&[element("rows", 1), step("id")], b"\x0b"),
        (&[element("rows", 1), step("text")], b"two\0"),
        (&[step("words")], b"\x01\0\x02\0\x03\0"),
        (&[element("words", 2)], b"\x03\0"),
        (&[step("chars")], b"xyz"),
        (&[element("chars", 1)], b"y"),
    ] {
        assert_eq!(find_property(&schema, ROWS_PAYLOAD, 8, steps), Ok(bytes), "{steps:?}");
    }
}

#[test]
fn missing_properties_and_invalid_paths_are_different_errors() {
    let (schema, status) = (rows_schema(), |steps: &[PropertyStep<'_>]| {
        find_property(&rows_schema(), ROWS_PAYLOAD, 8, steps).unwrap_err().status()
    });
    assert_eq!(status(&[step("N")]), Status::ERROR_NOT_FOUND, "names must be case-sensitive");
    assert_eq!(status(&[step("id")]), Status::ERROR_NOT_FOUND, "a path to a member must name its structure");
    assert_eq!(status(&[element("rows", 2)]), Status::ERROR_NOT_FOUND);
    assert_eq!(status(&[element("words", 3)]), Status::ERROR_NOT_FOUND);
    assert_eq!(status(&[element("chars", 3)]), Status::ERROR_NOT_FOUND);
    assert_eq!(status(&[step("n"), step("id")]), Status::ERROR_NOT_FOUND);
    assert_eq!(status(&[element("n", 1)]), Status::ERROR_INVALID_PARAMETER);
    assert_eq!(
        status(&[step("rows"), step("id")]),
        Status::ERROR_INVALID_PARAMETER,
        "a path into an array of structures must name the element"
    );
    assert_eq!(status(&[]), Status::ERROR_INVALID_PARAMETER);
    assert_eq!(
        find_property(&schema, b"\x02\x0aon", 8, &[element("rows", 1)]).unwrap_err().status(),
        Status::ERROR_EVT_INVALID_EVENT_DATA
    );
}

#[test]
fn count_and_length_prefixes_become_properties() {
    let mut builder = MetadataBuilder::new("e", 0);
    builder
        // In types: 6 UINT16, 14 BINARY (with a length prefix), 25 COUNTEDBINARY.
        .add_array("list", 6, 0, 0)
        .add_struct_array("s", 2, 0)
        .add_field("blob", 14, 0, 0)
        .add_field("own", 25, 0, 0);
    let schema = tracelogging::build_schema(Guid::NULL, None, builder.finish().unwrap()).unwrap();
    let info = EventInfo::encode(&schema);
    let listed = info.property_schema(&schema);
    let names: Vec<_> = listed.fields().iter().map(|f| &*f.name).collect();
    assert_eq!(names, ["list.Count", "list", "s.Count", "s", "blob.Length", "blob", "own"]);
    assert_eq!(listed.top().len(), 4);
    let fields = listed.fields();
    assert_eq!((fields[1].count, fields[3].count), (Count::Field(0), Count::Field(2)));
    assert_eq!(fields[3].kind, FieldKind::Struct { first: 4, members: 3 });
    assert_eq!(fields[5].length, Length::Field(4));
    assert!(matches!(fields[6].kind, FieldKind::Value { input: InType::COUNTEDBINARY, .. }));
    let payload = b"\x02\0\x07\0\x08\0\x01\0\x02\0\xAA\xBB\x01\0\xCC";
    assert_eq!(find_property(listed, payload, 8, &[element("list", 1)]), Ok(&b"\x08\0"[..]));
    assert_eq!(find_property(listed, payload, 8, &[element("s", 0), step("blob")]), Ok(&b"\xAA\xBB"[..]));
    assert_eq!(find_property(listed, payload, 8, &[element("s", 0), step("own")]), Ok(&b"\x01\0\xCC"[..]));
}

#[test]
fn metadata_before_the_payload_becomes_the_first_properties() {
    let mut builder = MetadataBuilder::new("e", 0);
    let metadata = builder
        .add_field("n", 4, 0, 0)
        .add_field("blob", 14, 0, 0)
        .add_struct("s", 1, 0)
        .add_field("m", 4, 0, 0);
    let metadata = metadata.finish().unwrap().to_vec();
    let traits = TraitsBuilder::new("p").finish().unwrap().to_vec();
    let payload = [&traits[..], &metadata, b"\x07\x02\0\xAA\xBB\x09"].concat();
    let descriptor = EventDescriptor { channel: CHANNEL_TRACELOGGING, ..EventDescriptor::default() };
    let event = LookupEvent { descriptor, payload: &payload, ..LookupEvent::default() };
    let mut library = Library::new();
    let info = library.event_info(&event, 8).unwrap().into_owned();
    let read = parse_event_info(&info).unwrap().schema;
    let names: Vec<_> = read.fields().iter().map(|f| &*f.name).collect();
    assert_eq!(names, ["ProviderMetadata", "EventMetadata", "n", "blob.Length", "blob", "s", "m"]);
    // The properties cover the complete payload.
    let mut property_bytes = Vec::new();
    for name in &names[..6] {
        property_bytes.extend_from_slice(library.property(&event, 8, &[step(name)]).unwrap());
    }
    assert_eq!(property_bytes, payload);
    assert_eq!(library.property(&event, 8, &[element("s", 0), step("m")]), Ok(&b"\x09"[..]));
    // If the metadata come separately, the payload contains none.
    let separate =
        LookupEvent { traits: Some(&traits), metadata: Some(&metadata), payload: b"\x07", ..event };
    assert_eq!(library.property(&separate, 8, &[step("n")]), Ok(&b"\x07"[..]));
    let info = library.event_info(&separate, 8).unwrap().into_owned();
    assert_eq!(parse_event_info(&info).unwrap().schema.fields().len(), 5);
}

#[test]
fn event_info_is_encoded_once_for_each_schema() {
    let event =
        |metadata| LookupEvent { metadata: Some(metadata), payload: b"\x07", ..LookupEvent::default() };
    let [metadata, other_metadata] = ["one", "other"]
        .map(|name| MetadataBuilder::new(name, 0).add_field("n", 4, 0, 0).finish().unwrap().to_vec());
    let mut queries = QueryDecoder::default();
    let mut info_address = |metadata| queries.event_info(&event(metadata), 8).unwrap().as_ptr();
    let first = info_address(&metadata);
    assert_ne!(info_address(&other_metadata), first);
    assert_eq!(info_address(&metadata), first);
}

#[test]
fn filter_info_lists_the_fields_of_filters() {
    let manifest_text = |filters: &str| {
        format!(
            "<instrumentationManifest><provider name='P' guid='{PROVIDER}'><templates><template tid='T'>\
             <data name='a' inType='win:UInt8'/></template></templates><filters>{filters}</filters></provider>\
             </instrumentationManifest>"
        )
    };
    let list_filters = |filters: &str| {
        let mut library = Library::new();
        library.load_memory(manifest_text(filters).as_bytes())?;
        library.filter_list(PROVIDER)
    };
    let filters = list_filters(
        "<filter name='G' value='9'/><filter name='F' value='2' version='3' tid='T' message='m'/>",
    );
    let [first, second] = <[Vec<u8>; 2]>::try_from(filters.unwrap()).unwrap();
    // PROVIDER_FILTER_INFO: id at 0, version at 1, number of properties at 12. Its 16 bytes precede
    // the properties, of 24 bytes each, and the texts.
    assert_eq!(first[..4], [2, 3, 0, 0], "filters must be ordered by id");
    assert_eq!(first[12..16], [1, 0, 0, 0]);
    assert_eq!(first.len(), 16 + 24 + 4 + 4, "there must be one property and two texts of one character");
    assert_eq!((second[..4].to_vec(), second.len()), (vec![9, 0, 0, 0], 16));
    assert_eq!(list_filters("").unwrap_err().status(), Status::ERROR_NOT_FOUND);
    assert_eq!(Library::new().filter_list(PROVIDER).unwrap_err().status(), Status::ERROR_FILE_NOT_FOUND);
    for wrong in
        ["<filter name='F'/>", "<filter name='F' value='256'/>", "<filter name='F' value='1' tid='U'/>"]
    {
        assert_eq!(list_filters(wrong).unwrap_err().status(), Status::ERROR_XML_PARSE_ERROR, "{wrong}");
    }
}

#[test]
fn encoded_schema_reads_back_equal() {
    for provider in manifest::parse(EVERYTHING).unwrap() {
        for event in &provider.events {
            let info = EventInfo::encode(&event.schema);
            let mut bytes = info.bytes().unwrap().to_vec();
            // A schema has no descriptor, so the test adds it at its place in TRACE_EVENT_INFO.
            bytes[32..48].copy_from_slice(&event.descriptor.to_bytes());
            let read = parse_event_info(&bytes).unwrap();
            assert_eq!((read.provider, read.descriptor), (provider.id, event.descriptor));
            assert_eq!((read.decoding_source, read.schema.top().len()), (0, event.schema.top().len()));
            let (n, expected_names) = (&read.schema.names, &event.schema.names);
            assert_eq!(
                [&n.provider, &n.task, &n.opcode, &n.level, &n.channel],
                [
                    &expected_names.provider,
                    &expected_names.task,
                    &expected_names.opcode,
                    &expected_names.level,
                    &expected_names.channel
                ]
            );
            assert_eq!((&n.event, &read.schema.message), (&expected_names.event, &event.schema.message));
            let maps: Vec<_> = read.map_names.iter().map(|(at, name)| (*at, name.to_string())).collect();
            let mut expected = Vec::new();
            for (at, (read, field)) in read.schema.fields().iter().zip(event.schema.fields()).enumerate() {
                if let FieldKind::Value { map: Some(map), .. } = &field.kind {
                    expected.push((at, map.name.to_string()));
                }
                assert_eq!(*read, field.clone().with_map(None), "{}", field.name);
            }
            assert_eq!(maps, expected);
        }
    }
}

#[test]
fn encoded_map_reads_back_and_its_texts_end_with_a_blank() {
    let map = ValueMap::new("Colour", true, [(1, "red".to_owned()), (4, "green".to_owned())]);
    let bytes = encode_map_info(&map, crate::schema::SchemaOrigin::Manifest);
    assert_eq!(parse_event_map(&[&PROVIDER.to_bytes()[..], &bytes].concat()), Ok((PROVIDER, map.clone())));
    let text: Vec<u8> = "red \0green \0".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(bytes.ends_with(&text));
    assert_eq!(bytes[4], 2, "the map must have the flag of a bitmap");
    let classic = encode_map_info(&map, crate::schema::SchemaOrigin::Kernel);
    // EVENTMAP_INFO_FLAG_WBEM_BITMAP.
    assert_eq!(classic[4], 16);
    assert!(!classic.ends_with(&text));
}

#[test]
fn names_are_returned_only_if_they_cover_all_bits() {
    let entries = || [(1, "read"), (4, "run"), (0, "none")].into_iter();
    assert_eq!(map_names(true, entries(), &Value::U32(5)), Ok(vec!["read", "run"]));
    assert_eq!(map_names(true, entries(), &Value::U8(0)), Ok(vec!["none"]));
    assert_eq!(map_names(false, entries(), &Value::U16(4)), Ok(vec!["run"]));
    for (is_bit_map, number) in [(true, 7), (true, 2), (false, 5)] {
        assert_eq!(
            map_names(is_bit_map, entries(), &Value::U32(number)).unwrap_err().status(),
            Status::ERROR_EVT_INVALID_EVENT_DATA
        );
    }
    assert!(map_names(false, entries(), &Value::U64(1 << 32 | 1)).is_err());
    assert!(map_names(false, entries(), &Value::Text8(b"1")).is_err());
}

fn test_event(id: u16, version: u8) -> LookupEvent<'static> {
    let descriptor = EventDescriptor { id, version, ..EventDescriptor::default() };
    LookupEvent { provider: PROVIDER, descriptor, ..LookupEvent::default() }
}

#[test]
fn unloaded_manifest_no_longer_describes_events() {
    let mut library = Library::new();
    let status = |library: &mut Library| {
        library
            .event_info(&test_event(1, 2), 8)
            .map_or_else(|reason| reason.status(), |_| Status::ERROR_SUCCESS)
    };
    assert_eq!(status(&mut library), Status::ERROR_NOT_FOUND);
    library.load_memory(EVERYTHING).unwrap();
    library.load_memory(EVERYTHING).unwrap();
    assert_eq!(status(&mut library), Status::ERROR_SUCCESS);
    // A header of 8 bytes, and five descriptors, although the manifest was loaded twice.
    assert_eq!(library.event_list(PROVIDER).unwrap().len(), 8 + 5 * 16);
    assert!(library.load_memory(b"<no manifest").is_err());
    assert_eq!(status(&mut library), Status::ERROR_SUCCESS, "an unusable manifest must change nothing");
    library.unload(&ManifestOrigin::from_memory(EVERYTHING)).unwrap();
    assert_eq!(status(&mut library), Status::ERROR_NOT_FOUND);
    assert_eq!(
        library.unload(&ManifestOrigin::from_memory(EVERYTHING)).unwrap_err().status(),
        Status::ERROR_NOT_FOUND
    );
    assert_eq!(library.event_list(PROVIDER).unwrap_err().status(), Status::ERROR_FILE_NOT_FOUND);
}

#[test]
fn count_of_an_open_array_is_filled_in() {
    let fields = vec![
        value_field("first", InType::UINT8),
        value_field("rest", InType::UINT16).with_count(Count::ToEnd),
    ];
    let info = EventInfo::encode(&Schema::default().seal(fields, 2).unwrap());
    assert_eq!(info.open_property(), Some(OpenProperty::Elements(1)));
    let bytes = info.with_open_property(OpenProperty::Elements(1), 3);
    let read = parse_event_info(&bytes).unwrap();
    assert_eq!(read.schema.fields()[1].count, Count::Fixed(3));
}

#[test]
fn text_shared_by_fields_is_stored_once() {
    let map = std::sync::Arc::new(ValueMap::new(&"long".repeat(4096), false, []));
    let fields: Vec<_> =
        (0..4096).map(|_| value_field("x", InType::UINT8).with_map(Some(map.clone()))).collect();
    let info = EventInfo::encode(&Schema::default().seal(fields, 4096).unwrap());
    assert!(info.bytes().unwrap().len() < 256 << 10);
}

proptest! {
    #[test]
    fn any_metadata_and_payload_stay_within_bounds(
        fields in prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(0x98), Just(0x8e), 1_u8..26, 0x40_u8..0x5a], 0..120),
        payload in prop::collection::vec(any::<u8>(), 0..80),
        at in any::<u32>(),
    ) {
        let metadata = [&(fields.len() as u16 + 5).to_le_bytes()[..], b"\0e\0", &fields].concat();
        let traits = TraitsBuilder::new("p").finish().unwrap().to_vec();
        let event = LookupEvent { metadata: Some(&metadata), traits: Some(&traits), payload: &payload, ..LookupEvent::default() };
        let mut library = Library::new();
        let Ok(info) = library.event_info(&event, 8).map(|info| info.into_owned()) else { return Ok(()) };
        let read = parse_event_info(&info);
        prop_assert!(read.is_ok(), "{read:?}");
        let read = read.unwrap().schema;
        for field in read.top() {
            for element in [None, Some(at % 4), Some(at)] {
                if let Ok(bytes) = library.property(&event, 8, &[PropertyStep { name: &field.name, element }]) {
                    prop_assert!(payload.as_ptr_range().contains(&bytes.as_ptr()) || bytes.is_empty());
                }
                if let FieldKind::Struct { first, members } = field.kind {
                    for member in read.members(first, members) {
                        let _ = library.property(&event, 8, &[PropertyStep { name: &field.name, element }, step(&member.name)]);
                    }
                }
            }
        }
    }

    #[test]
    fn any_type_is_read_within_its_data(input in 0_u16..320, output in 0_u16..310, length in 0_u16..40, data in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(decoded) = decode_value(InType(input), OutType(output), length, 8, &data) {
            prop_assert!(decoded.consumed <= data.len());
            decoded.text(&mut Vec::new());
        }
    }
}

#[test]
fn property_bytes_of_header_event_stay_pointers() {
    let schema = crate::source::kernel::build_schema(&class::EVENT_TRACE, 0, 2).unwrap();
    let header = LogFileHeader { session_name: "session".into(), ..LogFileHeader::default() };
    let mut payload = header.to_payload();
    // The two pointers are 5 and 6.
    payload[0x38..0x48].copy_from_slice(&[5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
    for (name, bytes) in [("LoggerName", &payload[0x38..0x40]), ("LogFileName", &payload[0x40..0x48])] {
        assert_eq!(find_property(&schema, &payload, 8, &[step(name)]).unwrap(), bytes);
    }
    let name: Vec<u8> = "session\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(find_property(&schema, &payload, 8, &[step("SessionNameString")]).unwrap(), name);
}

fn event_info_names(schema: &Schema) -> crate::schema::SchemaNames {
    parse_event_info(EventInfo::encode(schema).bytes().unwrap()).unwrap().schema.names.clone()
}

#[test]
fn provider_of_kernel_events_has_its_windows_name() {
    for class in [class::PROCESS, class::EVENT_TRACE] {
        let schema =
            crate::source::kernel::build_schema(&class, if class == class::PROCESS { 1 } else { 0 }, 2);
        assert_eq!(event_info_names(&schema.unwrap()).provider.as_deref(), Some("MSNT_SystemTrace"));
    }
    let added_by_merge = crate::source::kernel::build_schema(&class::IMAGE_ID, 0, 2).unwrap();
    assert_eq!(event_info_names(&added_by_merge).provider.as_deref(), Some("KernelTraceControl"));
}

#[test]
fn tracelogging_event_name_is_also_its_task() {
    let mut builder = MetadataBuilder::new("Order", 0);
    let schema = tracelogging::build_schema(Guid::NULL, None, builder.finish().unwrap()).unwrap();
    let names = event_info_names(&schema);
    assert_eq!((names.event.as_deref(), names.task.as_deref()), (Some("Order"), Some("Order")));
}
