//! Records of every family, with payloads that their schemas describe.

use traceweir_format::header::classic::{ClassicHeader, Instance};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::message::MessageHeader;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::{
    CHANNEL_TRACELOGGING, EVENT_HEADER_FLAG_STRING_ONLY, EventDescriptor, ExtType, class,
};
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};
use traceweir_format::wire::Put;
use traceweir_format::{Guid, Result};

const PROVIDER: Guid = Guid::from_u128(0x00c0ffee_0000_4000_8000_000000000001);

fn encode_record(encode: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out).expect("a small record can be encoded");
    out
}

/// Returns records: TraceLogging, manifest chunk, string; two kernel events; a message; an embedded
/// schema, its map and an event that it describes; a classic event with an instance.
pub(crate) fn all_records() -> Vec<Vec<u8>> {
    vec![
        tracelogging_event(),
        manifest_chunk(),
        string_event(),
        system_event(),
        sampled_profile(),
        wpp_message(),
        classic_event(class::EVENT_METADATA, 32, None, &event_info()),
        classic_event(class::EVENT_METADATA, 33, None, &event_map()),
        described_event(),
        classic_event(
            class::PROCESS,
            1,
            Some(Instance { id: 1, parent_id: 0, parent_class: Guid::NULL }),
            &[0; 24],
        ),
    ]
}

fn tracelogging_event() -> Vec<u8> {
    let mut traits = TraitsBuilder::new("Seed");
    let mut metadata = MetadataBuilder::new("Event", 0);
    metadata.add_field("text", 1, 0, 0).add_array("numbers", 8, 4, 0);
    let items = [
        Item {
            kind: ExtType::STACK_TRACE64,
            data: &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x80, 0xFF, 0xFF],
        },
        Item { kind: ExtType::PROV_TRAITS, data: traits.finish().expect("the traits are short enough") },
        Item {
            kind: ExtType::EVENT_SCHEMA_TL,
            data: metadata.finish().expect("the metadata is short enough"),
        },
    ];
    let descriptor = EventDescriptor { channel: CHANNEL_TRACELOGGING, level: 5, ..Default::default() };
    let mut payload = Vec::new();
    payload.put_wide_z("text").put_u16(2).put_u32(7).put_u32(8);
    let header =
        EventHeader { time: 10, provider: PROVIDER, descriptor, items: &items, ..Default::default() };
    encode_record(|out| header.encode(&payload, out))
}

fn manifest_chunk() -> Vec<u8> {
    let descriptor = EventDescriptor {
        id: 0xFFFE,
        task: 0xFFFE,
        opcode: 0xFE,
        version: 1,
        keyword: u64::MAX,
        ..Default::default()
    };
    let xml = "<instrumentationManifest><instrumentation><events><provider name=\"P\" guid=\"{00c0ffee-0000-4000-8000-000000000001}\">\
<templates><template tid=\"t\"><data name=\"a\" inType=\"win:UInt32\"/></template></templates>\
<events><event value=\"1\" version=\"0\" template=\"t\"/></events></provider></events></instrumentation></instrumentationManifest>";
    let mut payload = Vec::new();
    // Format, version 1.0, magic number; number of chunks, number of this chunk; text.
    payload.put(&[1, 1, 0, 0x5B]).put_u16(1).put_u16(0).put(xml.as_bytes());
    encode_record(|out| {
        EventHeader { time: 20, provider: PROVIDER, descriptor, ..Default::default() }.encode(&payload, out)
    })
}

fn string_event() -> Vec<u8> {
    let mut payload = Vec::new();
    payload.put_wide_z("a string");
    encode_record(|out| {
        EventHeader {
            time: 30,
            flags: EVENT_HEADER_FLAG_STRING_ONLY,
            provider: PROVIDER,
            ..Default::default()
        }
        .encode(&payload, out)
    })
}

fn described_event() -> Vec<u8> {
    let descriptor = EventDescriptor { id: 12, version: 1, ..Default::default() };
    let mut payload = Vec::new();
    payload.put_u32(3).put_wide_z("name");
    let header =
        EventHeader { time: 60, pointer_size: 4, provider: PROVIDER, descriptor, ..Default::default() };
    encode_record(|out| header.encode(&payload, out))
}

fn system_event() -> Vec<u8> {
    let header = SystemHeader {
        pointer_size: 8,
        version: 4,
        hook: hook::PROCESS_START,
        thread_id: 1,
        process_id: 2,
        time: 40,
        cpu_times: Some((0, 0)),
    };
    let mut payload = Vec::new();
    // Key, process, parent, session, status, page table, flags; a SID after 16 bytes; texts.
    payload.put_u64(1).put_u32(2).put_u32(3).put_u32(4).put_u32(0).put_u64(5).put_u32(0);
    payload.put(&[9, 0, 0, 0, 0, 0, 0, 0]).put_u64(0).put(&[1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0]);
    payload.put_ansi_z("seed").put_wide_z("seed --all").put_wide_z("").put_wide_z("");
    encode_record(|out| header.encode(&payload, out))
}

fn sampled_profile() -> Vec<u8> {
    let header =
        PerfInfoHeader { pointer_size: 8, version: 2, hook: hook::SAMPLED_PROFILE, time: 41, counters: &[1] };
    encode_record(|out| header.encode(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0], out))
}

fn wpp_message() -> Vec<u8> {
    let (guid, ids) = (Some(PROVIDER), Some((1, 2)));
    let header = MessageHeader { number: 10, pointer_size: 8, sequence: None, guid, time: Some(50), ids };
    encode_record(|out| header.encode(b"argument\0", out))
}

fn classic_event(class: Guid, opcode: u8, instance: Option<Instance>, payload: &[u8]) -> Vec<u8> {
    let header = ClassicHeader {
        pointer_size: 8,
        opcode,
        level: 0,
        version: 2,
        thread_id: 1,
        process_id: 2,
        time: 55,
        class,
        cpu_times: (0, 0),
        instance,
    };
    encode_record(|out| header.encode(payload, out))
}

/// Returns a TRACE_EVENT_INFO of two fields, the first with a map.
pub(crate) fn event_info() -> Vec<u8> {
    let descriptor = EventDescriptor { id: 12, version: 1, ..Default::default() };
    let mut out = Vec::new();
    let strings = 0x70 + 2 * 24;
    out.put_guid(&PROVIDER).put_guid(&Guid::NULL).put(&descriptor.to_bytes()).put_u32(0).put_u32(strings);
    out.put(&[0; 4 * 5]).put_u32(strings + 10).put(&[0; 4 * 5]).put_u32(2).put_u32(2).put_u32(1);
    out.put_u32(0)
        .put_u32(strings + 20)
        .put_u16(8)
        .put_u16(8)
        .put_u32(strings + 24)
        .put_u16(1)
        .put_u16(4)
        .put_u32(0);
    out.put_u32(0).put_u32(strings + 28).put_u16(1).put_u16(1).put_u32(0).put_u16(1).put_u16(0).put_u32(0);
    assert_eq!(out.len(), strings as usize);
    out.put_wide_z("Seed").put_wide_z("A %1").put_wide_z("a").put_wide_z("M").put_wide_z("b");
    out
}

/// Returns the EVENT_MAP_INFO of the bit map that the first field of [`event_info`] names.
pub(crate) fn event_map() -> Vec<u8> {
    let mut out = Vec::new();
    out.put_guid(&PROVIDER).put_u32(32).put_u32(2).put_u32(2).put_u32(0);
    out.put_u32(36).put_u32(1).put_u32(42).put_u32(2).put_wide_z("M").put_wide_z("r ").put_wide_z("w ");
    out
}
