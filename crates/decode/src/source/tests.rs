//! Which schema an event gets, by what the decoder has seen before.

use traceweir_format::header::classic::{ClassicHeader, Instance};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::message::MessageHeader;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::spec::event::class;
use traceweir_format::spec::types::{InType, OutType};
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};
use traceweir_format::wire::Put;

use super::wevt::build::Bytes;
use super::*;
use crate::schema::{Field, Kind, Origin};

const PROVIDER: Guid = Guid::from_u128(0x00c0ffee_0000_4000_8000_000000000001);
const OTHER: Guid = Guid::from_u128(0x00c0ffee_0000_4000_8000_000000000002);
const CLASS: Guid = Guid::from_u128(0x00c0ffee_0000_4000_8000_000000000003);

fn encoded(header: &EventHeader<'_>, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    header.encode(payload, &mut out).unwrap();
    out
}

/// An event of [`PROVIDER`] without items.
fn event(id: u16, version: u8, payload: &[u8]) -> Vec<u8> {
    let descriptor = EventDescriptor { id, version, ..Default::default() };
    encoded(&EventHeader { provider: PROVIDER, descriptor, ..Default::default() }, payload)
}

fn with_items(items: &[Item<'_>], descriptor: EventDescriptor, payload: &[u8]) -> Vec<u8> {
    encoded(&EventHeader { provider: PROVIDER, descriptor, items, ..Default::default() }, payload)
}

fn classic(class: Guid, opcode: u8, version: u16, payload: &[u8]) -> Vec<u8> {
    let header = ClassicHeader {
        pointer_size: 8,
        opcode,
        level: 0,
        version,
        thread_id: 0,
        process_id: 0,
        time: 0,
        class,
        cpu_times: (0, 0),
        instance: None,
    };
    let mut out = Vec::new();
    header.encode(payload, &mut out).unwrap();
    out
}

fn observe(decoder: &mut Decoder, record: &[u8]) {
    assert!(decoder.observe(&Record::parse(record, 0).unwrap()));
}

/// The names of the fields that an event is found to have.
fn fields(decoder: &mut Decoder, record: &[u8]) -> Result<Vec<String>, Undecoded> {
    let found = decoder.find(&Record::parse(record, 0).unwrap())?;
    Ok(found.known.schema.top().iter().map(|f| f.name.to_string()).collect())
}

#[track_caller]
fn has(decoder: &mut Decoder, record: &[u8], expected: &[&str]) {
    assert_eq!(fields(decoder, record).unwrap(), expected);
}

fn unknown(decoder: &mut Decoder, record: &[u8]) {
    assert_eq!(fields(decoder, record), Err(Undecoded::NoSchema));
}

/// A manifest whose events, by id and version, have one field of the given name.
fn manifest(events: &[(u16, u8, &str)]) -> String {
    let mut xml = format!(
        "<instrumentationManifest xmlns=\"http://schemas.microsoft.com/win/2004/08/events\"><instrumentation><events>\
         <provider name=\"Test-Provider\" guid=\"{{{PROVIDER}}}\"><templates>"
    );
    for (id, version, field) in events {
        xml += &format!(
            "<template tid=\"t{id}_{version}\"><data name=\"{field}\" inType=\"win:UInt32\"/></template>"
        );
    }
    xml += "</templates><events>";
    for (id, version, _) in events {
        xml += &format!("<event value=\"{id}\" version=\"{version}\" template=\"t{id}_{version}\"/>");
    }
    xml + "</events></provider></events></instrumentation></instrumentationManifest>"
}

const CHUNK: EventDescriptor = EventDescriptor {
    id: 0xFFFE,
    version: 1,
    channel: 0,
    level: 0,
    opcode: 0xFE,
    task: 0xFFFE,
    keyword: u64::MAX,
};

fn chunk_of(provider: Guid, total: u16, number: u16, body: &str) -> Vec<u8> {
    let mut payload = vec![1, 1, 0, 0x5B];
    payload.put_u16(total).put_u16(number).put(body.as_bytes());
    encoded(&EventHeader { provider, descriptor: CHUNK, ..Default::default() }, &payload)
}

/// A manifest as `count` chunks.
fn chunks(xml: &str, count: usize) -> Vec<Vec<u8>> {
    let size = xml.len().div_ceil(count);
    let parts: Vec<_> = xml.as_bytes().chunks(size).map(|c| std::str::from_utf8(c).unwrap()).collect();
    let total = parts.len() as u16;
    (0..total).zip(parts).map(|(n, part)| chunk_of(PROVIDER, total, n, part)).collect()
}

/// A TRACE_EVENT_INFO of one field, which may name a map. With an event GUID it is one of a classic class.
fn info(event_guid: Guid, descriptor: EventDescriptor, field: &str, map: Option<&str>) -> Vec<u8> {
    info_from(u32::from(!event_guid.is_null()), event_guid, descriptor, field, map)
}

fn info_from(
    decoding_source: u32,
    event_guid: Guid,
    descriptor: EventDescriptor,
    field: &str,
    map: Option<&str>,
) -> Vec<u8> {
    let mut b = Bytes::default();
    b.0.put_guid(&PROVIDER).put_guid(&event_guid).put(&descriptor.to_bytes()).put_u32(decoding_source);
    let provider = b.hole();
    b.0.put(&[0; 11 * 4]).put_u32(1).put_u32(1).put_u32(0).put_u32(0);
    let name = b.hole();
    b.0.put_u16(8).put_u16(8);
    let map_name = b.hole();
    b.0.put_u16(1).put_u16(4).put_u32(0);
    b.land(provider);
    b.0.put_wide_z("Embedded-Provider");
    b.land(name);
    b.0.put_wide_z(field);
    if let Some(map) = map {
        b.land(map_name);
        b.0.put_wide_z(map);
    }
    classic(class::EVENT_METADATA, 32, 0, &b.0)
}

/// An EVENT_MAP_INFO with one name.
fn map(name: &str, value: u32, text: &str) -> Vec<u8> {
    let mut b = Bytes::default();
    let at = b.hole();
    b.0.put_u32(1).put_u32(1).put_u32(0);
    let text_at = b.hole();
    b.0.put_u32(value);
    b.land(at);
    b.0.put_wide_z(name);
    b.land(text_at);
    b.0.put_wide_z(text);
    classic(class::EVENT_METADATA, 33, 0, &[&PROVIDER.to_bytes()[..], &b.0].concat())
}

fn id_of(id: u16, version: u8) -> EventDescriptor {
    EventDescriptor { id, version, ..Default::default() }
}

/// What the map of the only field calls a value.
fn named(decoder: &mut Decoder, record: &[u8], value: u64) -> Option<String> {
    let found = decoder.find(&Record::parse(record, 0).unwrap()).unwrap();
    match &found.known.schema.top()[0].kind {
        Kind::Value { map, .. } => map.as_ref()?.value(value).map(ToString::to_string),
        Kind::Struct { .. } => None,
    }
}

#[test]
fn tracelogging_events_describe_themselves() {
    let mut traits = TraitsBuilder::new("Self.Provider");
    let mut metadata = MetadataBuilder::new("Request", 0);
    let items = [
        Item { kind: ExtType::PROV_TRAITS, data: traits.finish().unwrap() },
        Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata.add_field("url", 1, 0, 0).finish().unwrap() },
    ];
    let record = with_items(&items, EventDescriptor { channel: 11, ..Default::default() }, b"x\0\0\0");
    let mut decoder = Decoder::new();
    let found = decoder.find(&Record::parse(&record, 0).unwrap()).unwrap();
    assert_eq!((found.known.schema.origin, found.payload), (Origin::TraceLogging, &b"x\0\0\0"[..]));
    assert_eq!(found.known.event_name.as_deref(), Some("Request"));
    assert_eq!(found.known.schema.names.provider.as_deref(), Some("Self.Provider"));
    assert_eq!(found.known.json_key(0), b"\"url\":");
    let first: *const Known = found.known;
    let again = decoder.find(&Record::parse(&record, 0).unwrap()).unwrap();
    assert!(std::ptr::eq(first, again.known), "the second one comes from the cache");
}

#[test]
fn metadata_of_one_hash_is_still_told_apart() {
    // The cheap hash looks at the ends only; these differ in the middle.
    let metadata = |middle: char| {
        let mut builder = MetadataBuilder::new("AnEventOfALongName", 0);
        builder.add_field(&format!("{middle}{middle}"), 8, 0, 0).add_field("AFieldOfALongName", 8, 0, 0);
        builder.finish().unwrap().to_vec()
    };
    let mut decoder = Decoder::new();
    for middle in ['a', 'b', 'a', 'b'] {
        let blob = metadata(middle);
        let items = [Item { kind: ExtType::EVENT_SCHEMA_TL, data: &blob }];
        let record = with_items(&items, EventDescriptor::default(), &[]);
        has(&mut decoder, &record, &[&format!("{middle}{middle}"), "AFieldOfALongName"]);
    }
}

#[test]
fn traits_and_providers_are_part_of_the_identity() {
    let mut metadata = MetadataBuilder::new("e", 0);
    let metadata = metadata.finish().unwrap();
    let mut decoder = Decoder::new();
    for (provider, name) in [(PROVIDER, "A"), (PROVIDER, "B"), (OTHER, "A"), (PROVIDER, "A")] {
        let mut traits = TraitsBuilder::new(name);
        let items = [
            Item { kind: ExtType::PROV_TRAITS, data: traits.finish().unwrap() },
            Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata },
        ];
        let record = encoded(&EventHeader { provider, items: &items, ..Default::default() }, &[]);
        let found = decoder.find(&Record::parse(&record, 0).unwrap()).unwrap();
        assert_eq!(found.known.schema.names.provider.as_deref(), Some(name));
        assert_eq!(found.known.schema.provider, provider);
    }
}

#[test]
fn bad_metadata_is_said_to_be_bad() {
    let items = [Item { kind: ExtType::EVENT_SCHEMA_TL, data: &[200, 0, 0] }];
    let record = with_items(&items, EventDescriptor::default(), &[]);
    assert!(matches!(fields(&mut Decoder::new(), &record), Err(Undecoded::BadMetadata(_))));
}

#[test]
fn metadata_in_the_payload_is_found_on_its_channel() {
    let mut traits = TraitsBuilder::new("Late.Provider");
    let mut metadata = MetadataBuilder::new("Late", 0);
    let metadata = metadata.add_field("n", 8, 0, 0).finish().unwrap();
    let payload = [traits.finish().unwrap(), metadata, &[5, 0, 0, 0]].concat();
    let record = |channel| with_items(&[], EventDescriptor { channel, ..Default::default() }, &payload);
    let mut decoder = Decoder::new();
    let (here, elsewhere) = (record(11), record(0));
    let found = decoder.find(&Record::parse(&here, 0).unwrap()).unwrap();
    assert_eq!((found.known.event_name.as_deref(), found.payload), (Some("Late"), &[5, 0, 0, 0][..]));
    assert_eq!(found.known.schema.names.provider.as_deref(), Some("Late.Provider"));
    unknown(&mut decoder, &elsewhere);
    for short in [0, 1, 2, 10, traits.finish().unwrap().len() + 3] {
        let record =
            with_items(&[], EventDescriptor { channel: 11, ..Default::default() }, &payload[..short]);
        unknown(&mut decoder, &record);
    }
}

#[test]
fn a_manifest_in_the_trace_arrives_in_chunks() {
    let mut decoder = Decoder::new();
    let record = event(1, 0, &[0; 4]);
    unknown(&mut decoder, &record);
    for chunk in chunks(&manifest(&[(1, 0, "a")]), 3) {
        unknown(&mut decoder, &record);
        observe(&mut decoder, &chunk);
    }
    has(&mut decoder, &record, &["a"]);
    assert_eq!(decoder.provider_name(&PROVIDER), Some("Test-Provider"));
    let chunk = chunks("<x/>", 1).remove(0);
    has(
        &mut decoder,
        &chunk,
        &["Format", "MajorVersion", "MinorVersion", "Magic", "TotalChunks", "ChunkNumber", "Manifest"],
    );
}

#[test]
fn the_id_of_the_event_counts_and_not_that_of_the_manifest() {
    let mut decoder = Decoder::new();
    observe(&mut decoder, &chunk_of(OTHER, 1, 0, &manifest(&[(1, 0, "a")])));
    unknown(&mut decoder, &event(1, 0, &[]));
    let header = EventHeader { provider: OTHER, descriptor: id_of(1, 0), ..Default::default() };
    has(&mut decoder, &encoded(&header, &[]), &["a"]);
}

#[test]
fn chunks_out_of_order_wait_for_the_next_set() {
    let mut decoder = Decoder::new();
    let record = event(1, 0, &[]);
    let set = chunks(&manifest(&[(1, 0, "a")]), 3);
    for n in [1, 0, 2] {
        observe(&mut decoder, &set[n]);
    }
    unknown(&mut decoder, &record);
    for n in [1, 2] {
        observe(&mut decoder, &set[n]);
    }
    has(&mut decoder, &record, &["a"]);
}

#[test]
fn a_partial_set_is_dropped_when_another_begins() {
    let mut decoder = Decoder::new();
    let (old, new) = (chunks(&manifest(&[(1, 0, "old")]), 3), chunks(&manifest(&[(1, 0, "new")]), 3));
    for chunk in [&old[0], &old[1], &new[0], &new[1], &new[2], &old[2]] {
        observe(&mut decoder, chunk);
    }
    has(&mut decoder, &event(1, 0, &[]), &["new"]);
}

#[test]
fn two_processes_may_send_one_manifest_at_the_same_time() {
    let mut decoder = Decoder::new();
    let set = chunks(&manifest(&[(1, 0, "a")]), 2);
    for n in [0, 0, 1, 1] {
        observe(&mut decoder, &set[n]);
    }
    has(&mut decoder, &event(1, 0, &[]), &["a"]);
}

#[test]
fn the_last_complete_manifest_counts_and_repetitions_cost_nothing() {
    let mut decoder = Decoder::new();
    let first = chunks(&manifest(&[(1, 0, "first"), (2, 0, "kept")]), 2);
    (0..50).for_each(|_| first.iter().for_each(|c| observe(&mut decoder, c)));
    assert_eq!(decoder.known.len(), 2);
    for chunk in chunks(&manifest(&[(1, 0, "second")]), 1) {
        observe(&mut decoder, &chunk);
    }
    has(&mut decoder, &event(1, 0, &[]), &["second"]);
    has(&mut decoder, &event(2, 0, &[]), &["kept"]);
}

#[test]
fn chunks_that_are_none_change_nothing() {
    let mut decoder = Decoder::new();
    let xml = manifest(&[(1, 0, "a")]);
    let sound = chunk_of(PROVIDER, 1, 0, &xml);
    for (at, value) in [(0x50, 2), (0x53, 0), (0x54, 0), (0x56, 9)] {
        let mut bad = sound.clone();
        bad[at] = value;
        observe(&mut decoder, &bad);
        unknown(&mut decoder, &event(1, 0, &[]));
    }
    observe(&mut decoder, &chunk_of(PROVIDER, 1, 0, "<instrumentationManifest><broken"));
    observe(&mut decoder, &encoded(&EventHeader { descriptor: CHUNK, ..Default::default() }, &[1, 1]));
    unknown(&mut decoder, &event(1, 0, &[]));
    observe(&mut decoder, &sound);
    has(&mut decoder, &event(1, 0, &[]), &["a"]);
}

#[test]
fn incomplete_manifests_are_bounded() {
    let mut decoder = Decoder::new();
    let body = "x".repeat(60_000);
    for sender in 0..1200_u32 {
        let provider = Guid { data1: sender, ..PROVIDER };
        observe(&mut decoder, &chunk_of(provider, 2, 0, &body));
    }
    assert!(decoder.in_trace.arriving() <= 64 << 20, "{}", decoder.in_trace.arriving());
    assert!(decoder.in_trace.arriving() > 60 << 20);
}

#[test]
fn other_versions_are_read_with_the_nearest_lower_layout() {
    let mut decoder = Decoder::new();
    decoder.add_manifest(manifest(&[(1, 2, "two"), (1, 5, "five"), (1, 9, "nine")]).as_bytes()).unwrap();
    for (version, field) in
        [(2, "two"), (3, "two"), (4, "two"), (5, "five"), (8, "five"), (9, "nine"), (255, "nine")]
    {
        has(&mut decoder, &event(1, version, &[]), &[field]);
    }
    has(&mut decoder, &event(1, 0, &[]), &["two"]);
    unknown(&mut decoder, &event(2, 2, &[]));
}

#[test]
fn the_trace_knows_better_than_merging_and_merging_better_than_the_user() {
    let mut decoder = Decoder::new();
    let record = event(1, 0, &[]);
    assert_eq!(decoder.add_manifest(manifest(&[(1, 0, "given"), (1, 7, "given7")]).as_bytes()), Ok(2));
    has(&mut decoder, &record, &["given"]);
    observe(&mut decoder, &info(Guid::NULL, id_of(1, 0), "embedded", None));
    has(&mut decoder, &record, &["embedded"]);
    observe(&mut decoder, &chunks(&manifest(&[(1, 0, "in_trace")]), 1)[0]);
    has(&mut decoder, &record, &["in_trace"]);
    decoder.add_manifest(manifest(&[(1, 0, "given again")]).as_bytes()).unwrap();
    observe(&mut decoder, &info(Guid::NULL, id_of(1, 0), "embedded again", None));
    has(&mut decoder, &record, &["in_trace"]);
    has(&mut decoder, &event(1, 7, &[]), &["given7"]);
}

#[test]
fn maps_may_come_before_or_after_the_schemas_that_name_them() {
    let (described, its_map) = (info(Guid::NULL, id_of(3, 1), "f", Some("M")), map("M", 7, "Seven "));
    let record = event(3, 1, &[7, 0, 0, 0]);
    for order in [[&described, &its_map], [&its_map, &described]] {
        let mut decoder = Decoder::new();
        for learned in order {
            observe(&mut decoder, learned);
        }
        assert_eq!(named(&mut decoder, &record, 7).as_deref(), Some("Seven"));
        assert_eq!(decoder.provider_name(&PROVIDER), Some("Embedded-Provider"));
        assert_eq!(decoder.known.len(), 1, "a map makes no second schema");
    }
    let mut decoder = Decoder::new();
    observe(&mut decoder, &described);
    assert_eq!(named(&mut decoder, &record, 7), None);
    observe(&mut decoder, &map("Another", 7, "Wrong"));
    assert_eq!(named(&mut decoder, &record, 7), None);
    observe(&mut decoder, &its_map);
    observe(&mut decoder, &map("M", 7, "Too late"));
    assert_eq!(named(&mut decoder, &record, 7).as_deref(), Some("Seven"));
}

#[test]
fn damaged_embedded_schemas_are_left_out() {
    let mut decoder = Decoder::new();
    let sound = info(Guid::NULL, id_of(3, 1), "f", None);
    let payload = &sound[0x30..];
    for end in (0..0x88).step_by(5) {
        observe(&mut decoder, &classic(class::EVENT_METADATA, 32, 0, &payload[..end]));
        observe(&mut decoder, &classic(class::EVENT_METADATA, 33, 0, &payload[..end]));
    }
    observe(&mut decoder, &classic(class::EVENT_METADATA, 99, 0, payload));
    unknown(&mut decoder, &event(3, 1, &[]));
}

#[test]
fn embedded_schemas_cannot_fill_the_memory() {
    let mut decoder = Decoder::new();
    decoder.in_trace.leave(1000);
    for id in 0..2000 {
        observe(&mut decoder, &info(Guid::NULL, id_of(id, 0), "f", Some("M")));
        observe(&mut decoder, &map(&id.to_string(), 7, "Seven"));
    }
    assert!((10..1000).contains(&decoder.known.len()), "{}", decoder.known.len());
    observe(&mut decoder, &chunks(&manifest(&[(1, 0, "late")]), 1)[0]);
    has(&mut decoder, &event(1, 0, &[]), &["f"]);
}

#[test]
fn texts_that_many_fields_share_are_paid_for_by_each() {
    let long: Arc<str> = "n".repeat(60_000).into();
    let field = Field { name: long, ..Field::value("", InType::UINT8, OutType::NULL) };
    let schema = Schema::default().seal(vec![field; 50], 50).unwrap();
    let size = Known::derived_bytes(&schema);
    assert!(size >= 50 * 60_000, "{size}");
    let mut decoder = Decoder { derived_bytes: MAX_DERIVED_BYTES - size - 1, ..Decoder::default() };
    assert!(decoder.keep(schema.clone()).is_ok());
    assert!(decoder.keep(schema).is_err());
    assert!(fields(&mut decoder, &system(0x0301, 4, false)).is_ok(), "kernel tables need no room");
}

#[test]
fn a_decode_guid_or_control_guid_stands_for_the_provider() {
    let mut decoder = Decoder::new();
    decoder.add_manifest(manifest(&[(1, 0, "a")]).as_bytes()).unwrap();
    let mut traits = TraitsBuilder::new("Controlled");
    let traits = traits.decode_guid(&PROVIDER).finish().unwrap().to_vec();
    let guid = PROVIDER.to_bytes();
    for item in [
        Item { kind: ExtType::PROV_TRAITS, data: &traits },
        Item { kind: ExtType::CONTROL_GUID, data: &guid },
    ] {
        let items = [item];
        let header =
            EventHeader { provider: OTHER, descriptor: id_of(1, 0), items: &items, ..Default::default() };
        has(&mut decoder, &encoded(&header, &[]), &["a"]);
    }
    let header = EventHeader { provider: OTHER, descriptor: id_of(1, 0), ..Default::default() };
    unknown(&mut decoder, &encoded(&header, &[]));
}

#[test]
fn strings_need_no_schema() {
    let mut decoder = Decoder::new();
    let descriptor = EventDescriptor { level: 4, keyword: 8, ..Default::default() };
    let header = EventHeader { flags: EVENT_HEADER_FLAG_STRING_ONLY, descriptor, ..Default::default() };
    has(&mut decoder, &encoded(&header, b"h\0i\0"), &["Message"]);
    has(&mut decoder, &with_items(&[], descriptor, b"h\0i\0\0\0"), &["Message"]);
    for payload in [&b"\0\0"[..], b"h\0i\0", b"h\0\0\0i\0\0\0", b"h\0i\0\0"] {
        unknown(&mut decoder, &with_items(&[], descriptor, payload));
    }
    unknown(&mut decoder, &with_items(&[], EventDescriptor { id: 1, ..descriptor }, b"h\0i\0\0\0"));
}

fn system(hook: u16, version: u8, compact: bool) -> Vec<u8> {
    let cpu_times = (!compact).then_some((0, 0));
    let header =
        SystemHeader { pointer_size: 8, version, hook, thread_id: 0, process_id: 0, time: 0, cpu_times };
    let mut out = Vec::new();
    header.encode(&[0; 64], &mut out).unwrap();
    out
}

#[test]
fn kernel_events_are_in_the_tables() {
    let mut decoder = Decoder::new();
    let name = |decoder: &mut Decoder, record: &[u8]| {
        decoder.find(&Record::parse(record, 0).unwrap()).unwrap().known.event_name.clone()
    };
    for compact in [false, true] {
        assert_eq!(name(&mut decoder, &system(0x0301, 4, compact)).as_deref(), Some("Process/Start"));
    }
    let mut sample = Vec::new();
    let header = PerfInfoHeader { pointer_size: 8, version: 2, hook: 0x0F2E, time: 0, counters: &[] };
    header.encode(&[0; 16], &mut sample).unwrap();
    assert!(name(&mut decoder, &sample).is_some());
    assert_eq!(name(&mut decoder, &classic(class::PROCESS, 1, 4, &[])).as_deref(), Some("Process/Start"));
    let mut instance = Vec::new();
    let header = ClassicHeader {
        pointer_size: 8,
        opcode: 1,
        level: 0,
        version: 4,
        thread_id: 0,
        process_id: 0,
        time: 0,
        class: class::PROCESS,
        cpu_times: (0, 0),
        instance: Some(Instance { id: 1, parent_id: 0, parent_class: Guid::NULL }),
    };
    header.encode(&[], &mut instance).unwrap();
    assert_eq!(name(&mut decoder, &instance).as_deref(), Some("Process/Start"));
}

#[test]
fn kernel_versions_past_the_tables_use_the_newest_layout() {
    let mut decoder = Decoder::new();
    let newest = fields(&mut decoder, &system(0x0301, 4, false)).unwrap();
    for version in 5..=255 {
        assert_eq!(fields(&mut decoder, &system(0x0301, version, false)).unwrap(), newest);
    }
    assert_eq!(decoder.known.len(), 1, "versions of one layout share it");
    assert_ne!(fields(&mut decoder, &system(0x0301, 1, false)).unwrap(), newest);
    let error = Err(Undecoded::NoKernelLayout { hook: 0x1020, version: 2 });
    assert_eq!(fields(&mut decoder, &system(0x1020, 2, false)), error);
    assert_eq!(fields(&mut decoder, &system(0x1020, 2, false)), error, "from the cache");
}

#[test]
fn classic_events_are_found_by_class_and_type_when_merging_described_them() {
    let mut decoder = Decoder::new();
    let of_type = |opcode, version| EventDescriptor { opcode, version, ..Default::default() };
    let record = classic(CLASS, 10, 2, &[0; 4]);
    unknown(&mut decoder, &record);
    observe(&mut decoder, &info(CLASS, of_type(10, 2), "ten", Some("M")));
    observe(&mut decoder, &info(CLASS, of_type(11, 2), "eleven", None));
    has(&mut decoder, &record, &["ten"]);
    has(&mut decoder, &classic(CLASS, 11, 2, &[]), &["eleven"]);
    unknown(&mut decoder, &classic(CLASS, 12, 2, &[]));
    observe(&mut decoder, &map("M", 1, "One"));
    assert_eq!(named(&mut decoder, &record, 1).as_deref(), Some("One"));
}

#[test]
fn a_manifest_event_may_name_the_guid_of_its_task() {
    let mut decoder = Decoder::new();
    observe(&mut decoder, &info_from(0, CLASS, id_of(5, 1), "f", None));
    has(&mut decoder, &event(5, 1, &[]), &["f"]);
    unknown(&mut decoder, &classic(CLASS, 0, 1, &[]));
}

#[test]
fn no_embedded_schema_overrides_a_kernel_table() {
    let mut decoder = Decoder::new();
    let before = fields(&mut decoder, &system(0x0301, 4, false)).unwrap();
    let descriptor = EventDescriptor { opcode: 1, version: 4, ..Default::default() };
    observe(&mut decoder, &info(class::PROCESS, descriptor, "forged", None));
    assert_eq!(fields(&mut decoder, &system(0x0301, 4, false)).unwrap(), before);
    let mut fresh = Decoder::new();
    observe(&mut fresh, &info(class::PROCESS, descriptor, "forged", None));
    assert_eq!(fields(&mut fresh, &system(0x0301, 4, false)).unwrap(), before);
}

#[test]
fn messages_need_their_format() {
    const TMF: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tmf/sample.tmf"));
    let guid: Guid = "6f1c2b5a-0d3e-4a77-9c58-1b2f3a4d5e6f".parse().unwrap();
    let message = |number, guid| {
        let mut out = Vec::new();
        let header = MessageHeader { number, pointer_size: 8, sequence: None, guid, time: None, ids: None };
        header.encode(&[1, 0, 0, 0, 2, 0, 0, 0], &mut out).unwrap();
        out
    };
    let mut decoder = Decoder::new();
    let known = message(10, Some(guid));
    assert_eq!(fields(&mut decoder, &known), Err(Undecoded::NoMessageFormat));
    assert_eq!(decoder.add_tmf(TMF).unwrap().formats, 5);
    let found = decoder.find(&Record::parse(&known, 0).unwrap()).unwrap();
    assert_eq!((found.known.schema.origin, found.payload.len()), (Origin::Wpp, 8));
    assert!(found.known.message.is_some());
    for other in [message(99, Some(guid)), message(10, Some(OTHER)), message(10, None)] {
        assert_eq!(fields(&mut decoder, &other), Err(Undecoded::NoMessageFormat));
    }
}

#[test]
fn events_with_damaged_items_are_not_guessed_at() {
    let mut decoder = Decoder::new();
    decoder.add_manifest(manifest(&[(1, 0, "a")]).as_bytes()).unwrap();
    let mut record = with_items(&[Item { kind: ExtType::SID, data: &[0; 12] }], id_of(1, 0), &[0; 4]);
    has(&mut decoder, &record, &["a"]);
    record[0x56] = 0xFF;
    assert!(matches!(fields(&mut decoder, &record), Err(Undecoded::BadMetadata(_))));
}

#[test]
fn records_without_a_layout_say_so() {
    let record = [16, 0, 13, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(fields(&mut Decoder::new(), &record), Err(Undecoded::UnknownRecord(13)));
}

#[test]
fn ordinary_events_teach_nothing() {
    let mut decoder = Decoder::new();
    for record in [event(1, 0, &[]), system(0x0301, 4, false), classic(class::PROCESS, 1, 4, &[])] {
        assert!(!decoder.observe(&Record::parse(&record, 0).unwrap()));
    }
}

#[test]
fn a_located_schema_can_be_fetched_later() {
    let mut decoder = Decoder::new();
    decoder.add_manifest(manifest(&[(1, 0, "a")]).as_bytes()).unwrap();
    let record = event(1, 0, &[1, 2, 3, 4]);
    let located = decoder.locate(&Record::parse(&record, 0).unwrap()).unwrap();
    let found = decoder.get(&located);
    assert_eq!((&*found.known.schema.top()[0].name, found.payload), ("a", &[1, 2, 3, 4][..]));
}
