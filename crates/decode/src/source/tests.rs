//! Tests of schema lookup: which schema an event gets after the records that the decoder has seen.

mod embedded;
mod kernel;
mod kernel_providers;
mod manifests;
mod self_described;
mod well_known;

use traceweir_format::header::classic::{ClassicHeader, Instance};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::message::MessageHeader;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::{EVENT_HEADER_FLAG_STRING_ONLY, ExtType, class};
use traceweir_format::spec::types::{InType, OutType};
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};
use traceweir_format::wire::Put;

use super::wevt::build::PatchedBytes;
use super::*;
use crate::schema::{Field, FieldKind, SchemaOrigin};

const PROVIDER: Guid = Guid::from_u128(0x00c0ffee_0000_4000_8000_000000000001);
const OTHER_PROVIDER: Guid = Guid::from_u128(0x00c0ffee_0000_4000_8000_000000000002);
const CLASS: Guid = Guid::from_u128(0x00c0ffee_0000_4000_8000_000000000003);

fn encode_event(header: &EventHeader<'_>, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    header.encode(payload, &mut out).unwrap();
    out
}

/// Encodes an event of [`PROVIDER`] without extended data items.
fn encode_plain_event(id: u16, version: u8, payload: &[u8]) -> Vec<u8> {
    let descriptor = EventDescriptor { id, version, ..Default::default() };
    encode_event(&EventHeader { provider: PROVIDER, descriptor, ..Default::default() }, payload)
}

fn encode_event_with_items(items: &[Item<'_>], descriptor: EventDescriptor, payload: &[u8]) -> Vec<u8> {
    encode_event(&EventHeader { provider: PROVIDER, descriptor, items, ..Default::default() }, payload)
}

fn encode_classic(class: Guid, opcode: u8, version: u16, payload: &[u8]) -> Vec<u8> {
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

fn encode_system(hook: u16, version: u8, is_compact: bool) -> Vec<u8> {
    let cpu_times = (!is_compact).then_some((0, 0));
    let header =
        SystemHeader { pointer_size: 8, version, hook, thread_id: 0, process_id: 0, time: 0, cpu_times };
    let mut out = Vec::new();
    header.encode(&[0; 64], &mut out).unwrap();
    out
}

fn observe_record(decoder: &mut Decoder, record: &[u8]) {
    assert!(decoder.observe(&Record::parse(record, 0).unwrap()));
}

/// Returns the names of the fields in the schema of an event.
fn schema_field_names(decoder: &mut Decoder, record: &[u8]) -> Result<Vec<String>, Undecoded> {
    let found = decoder.find(&Record::parse(record, 0).unwrap())?;
    Ok(found.prepared.schema.top().iter().map(|f| f.name.to_string()).collect())
}

#[track_caller]
fn assert_fields(decoder: &mut Decoder, record: &[u8], expected: &[&str]) {
    assert_eq!(schema_field_names(decoder, record).unwrap(), expected);
}

fn assert_no_schema(decoder: &mut Decoder, record: &[u8]) {
    assert_eq!(schema_field_names(decoder, record), Err(Undecoded::NoSchema));
}

/// Builds a manifest whose events, by id and version, have one field of the given name.
fn build_manifest_xml(events: &[(u16, u8, &str)]) -> String {
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

/// The descriptor of the events by which an EventSource writes its manifest.
const CHUNK_DESCRIPTOR: EventDescriptor = EventDescriptor {
    id: 0xFFFE,
    version: 1,
    channel: 0,
    level: 0,
    opcode: 0xFE,
    task: 0xFFFE,
    keyword: u64::MAX,
};

fn encode_chunk(provider: Guid, total: u16, number: u16, body: &str) -> Vec<u8> {
    // Format, major and minor version, magic number; then the number of chunks and of this one.
    let mut payload = vec![1, 1, 0, 0x5B];
    payload.put_u16(total).put_u16(number).put(body.as_bytes());
    encode_event(&EventHeader { provider, descriptor: CHUNK_DESCRIPTOR, ..Default::default() }, &payload)
}

/// Splits a manifest into `count` chunks.
fn encode_chunks(xml: &str, count: usize) -> Vec<Vec<u8>> {
    let size = xml.len().div_ceil(count);
    let parts: Vec<_> = xml.as_bytes().chunks(size).map(|c| std::str::from_utf8(c).unwrap()).collect();
    let total = parts.len() as u16;
    (0..total).zip(parts).map(|(n, part)| encode_chunk(PROVIDER, total, n, part)).collect()
}

/// Builds a TRACE_EVENT_INFO of one field, which may name a map. With an event GUID it describes a
/// MOF class.
fn encode_info(event_guid: Guid, descriptor: EventDescriptor, field: &str, map: Option<&str>) -> Vec<u8> {
    encode_info_from(u32::from(!event_guid.is_null()), event_guid, descriptor, field, map)
}

/// Like [`encode_info`], with the number of a decoding source (0 manifest, 1 MOF).
fn encode_info_from(
    decoding_source: u32,
    event_guid: Guid,
    descriptor: EventDescriptor,
    field: &str,
    map: Option<&str>,
) -> Vec<u8> {
    let mut b = PatchedBytes::default();
    b.0.put_guid(&PROVIDER).put_guid(&event_guid).put(&descriptor.to_bytes()).put_u32(decoding_source);
    let provider = b.reserve_u32();
    // The other offsets, the numbers of properties and top-level properties, the flags of the
    // event, and those of the property.
    b.0.put(&[0; 11 * 4]).put_u32(1).put_u32(1).put_u32(0).put_u32(0);
    let name = b.reserve_u32();
    // In and out type (UINT32); after the map: count, length, tags.
    b.0.put_u16(8).put_u16(8);
    let map_name = b.reserve_u32();
    b.0.put_u16(1).put_u16(4).put_u32(0);
    b.fill_position(provider);
    b.0.put_wide_z("Embedded-Provider");
    b.fill_position(name);
    b.0.put_wide_z(field);
    if let Some(map) = map {
        b.fill_position(map_name);
        b.0.put_wide_z(map);
    }
    encode_classic(class::EVENT_METADATA, in_trace::OPCODE_EVENT_INFO, 0, &b.0)
}

/// Builds an EVENT_MAP_INFO with one entry: `text` for `value`.
fn encode_map(name: &str, value: u32, text: &str) -> Vec<u8> {
    let mut b = PatchedBytes::default();
    let name_at = b.reserve_u32();
    b.0.put_u32(1).put_u32(1).put_u32(0);
    let text_at = b.reserve_u32();
    b.0.put_u32(value);
    b.fill_position(name_at);
    b.0.put_wide_z(name);
    b.fill_position(text_at);
    b.0.put_wide_z(text);
    encode_classic(
        class::EVENT_METADATA,
        in_trace::OPCODE_EVENT_MAP,
        0,
        &[&PROVIDER.to_bytes()[..], &b.0].concat(),
    )
}

fn descriptor_of(id: u16, version: u8) -> EventDescriptor {
    EventDescriptor { id, version, ..Default::default() }
}

/// Returns the name that the map of the only field has for a value.
fn find_value_name(decoder: &mut Decoder, record: &[u8], value: u64) -> Option<String> {
    let found = decoder.find(&Record::parse(record, 0).unwrap()).unwrap();
    match &found.prepared.schema.top()[0].kind {
        FieldKind::Value { map, .. } => map.as_ref()?.value(value).map(ToString::to_string),
        FieldKind::Struct { .. } => None,
    }
}

#[test]
fn strings_need_no_schema() {
    let mut decoder = Decoder::new();
    let descriptor = EventDescriptor { level: 4, keyword: 8, ..Default::default() };
    let header = EventHeader { flags: EVENT_HEADER_FLAG_STRING_ONLY, descriptor, ..Default::default() };
    assert_fields(&mut decoder, &encode_event(&header, b"h\0i\0"), &["Message"]);
    assert_fields(&mut decoder, &encode_event_with_items(&[], descriptor, b"h\0i\0\0\0"), &["Message"]);
    // Without the flag, the payload must be one text with its terminator. These are an empty text,
    // a text without terminator, two texts, and an odd number of bytes.
    for payload in [&b"\0\0"[..], b"h\0i\0", b"h\0\0\0i\0\0\0", b"h\0i\0\0"] {
        assert_no_schema(&mut decoder, &encode_event_with_items(&[], descriptor, payload));
    }
    assert_no_schema(
        &mut decoder,
        &encode_event_with_items(&[], EventDescriptor { id: 1, ..descriptor }, b"h\0i\0\0\0"),
    );
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
    let described = message(10, Some(guid));
    assert_eq!(schema_field_names(&mut decoder, &described), Err(Undecoded::NoMessageFormat));
    assert_eq!(decoder.add_tmf(TMF).unwrap().formats, 5);
    let found = decoder.find(&Record::parse(&described, 0).unwrap()).unwrap();
    assert_eq!((found.prepared.schema.origin, found.payload.len()), (SchemaOrigin::Wpp, 8));
    assert!(found.prepared.message.is_some());
    for undescribed in [message(99, Some(guid)), message(10, Some(OTHER_PROVIDER)), message(10, None)] {
        assert_eq!(schema_field_names(&mut decoder, &undescribed), Err(Undecoded::NoMessageFormat));
    }
}

#[test]
fn events_with_damaged_items_are_not_decoded() {
    let mut decoder = Decoder::new();
    decoder.add_manifest(build_manifest_xml(&[(1, 0, "a")]).as_bytes()).unwrap();
    let mut record =
        encode_event_with_items(&[Item { kind: ExtType::SID, data: &[0; 12] }], descriptor_of(1, 0), &[0; 4]);
    assert_fields(&mut decoder, &record, &["a"]);
    // The size of the item now exceeds the record.
    record[0x56] = 0xFF;
    assert!(matches!(schema_field_names(&mut decoder, &record), Err(Undecoded::BadMetadata(_))));
}

#[test]
fn unknown_record_types_are_reported() {
    // Size 16, type 13.
    let record = [16, 0, 13, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(schema_field_names(&mut Decoder::new(), &record), Err(Undecoded::UnknownRecord(13)));
}

#[test]
fn ordinary_events_are_not_observed() {
    let mut decoder = Decoder::new();
    for record in [
        encode_plain_event(1, 0, &[]),
        encode_system(hook::PROCESS_START, 4, false),
        encode_classic(class::PROCESS, 1, 4, &[]),
    ] {
        assert!(!decoder.observe(&Record::parse(&record, 0).unwrap()));
    }
}

#[test]
fn a_located_schema_can_be_fetched_later() {
    let mut decoder = Decoder::new();
    decoder.add_manifest(build_manifest_xml(&[(1, 0, "a")]).as_bytes()).unwrap();
    let record = encode_plain_event(1, 0, &[1, 2, 3, 4]);
    let located = decoder.locate(&Record::parse(&record, 0).unwrap()).unwrap();
    let found = decoder.get(&located);
    assert_eq!((&*found.prepared.schema.top()[0].name, found.payload), ("a", &[1, 2, 3, 4][..]));
}
