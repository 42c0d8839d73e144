//! Events whose schema or payload is missing or damaged in different ways.

use traceweir_format::Guid;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::message::MessageHeader;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor, ExtType, class};
use traceweir_format::tracelogging::MetadataBuilder;
use traceweir_format::wire::Put;

use super::{SelfDescribing, TraceMaker, WRITER_PROCESS, WRITER_THREAD, session_options};

const UNKNOWN_PROVIDER: Guid = Guid::from_u128(0x0000_dead_0000_4000_8000_0000_0000_0001);

pub(super) fn make() -> Vec<u8> {
    let mut maker = TraceMaker::new(session_options("undecodable"));
    // Events without a schema.
    let descriptor =
        EventDescriptor { id: 17, version: 1, level: 3, keyword: 2, ..EventDescriptor::default() };
    maker.write_event(
        0,
        EventHeader { provider: UNKNOWN_PROVIDER, descriptor, ..EventHeader::default() },
        &[1, 2, 3, 4, 5],
    );
    maker.write_event(
        0,
        EventHeader { provider: UNKNOWN_PROVIDER, descriptor, ..EventHeader::default() },
        &[],
    );
    maker.write_event(
        0,
        EventHeader { provider: UNKNOWN_PROVIDER, descriptor, ..EventHeader::default() },
        &[0xAB; 100],
    );
    // Metadata with a wrong size, and metadata that ends in the middle of a field.
    let broken = SelfDescribing::new("Traceweir.Fixture.Broken");
    for metadata in [&[0xFF, 0x7F, 0, b'X', 0][..], &[8, 0, 0, b'X', 0, b'f', 0, 0x80]] {
        let items = [Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata }];
        maker.write_event(1, EventHeader { items: &items, ..broken.header }, &[9, 9]);
    }
    // A payload that ends inside a number, a text without its terminator, and a payload that is too
    // long.
    let mut metadata = MetadataBuilder::new("Short", 0);
    metadata.add_field("whole", 6, 0, 0).add_field("cut", 8, 0, 0).add_field("missing", 8, 0, 0);
    broken.write(&mut maker, 1, &mut metadata, &[1, 0, 2, 0], &[]);
    metadata.reset("NoEnd", 0).add_field("text", 1, 0, 0);
    broken.write(&mut maker, 1, &mut metadata, &[b'h', 0, b'i', 0], &[]);
    metadata.reset("Long", 0).add_field("number", 8, 0, 0);
    broken.write(&mut maker, 1, &mut metadata, &[1, 0, 0, 0, 0xEE, 0xFF], &[]);
    // An array that claims more elements than there are bytes.
    metadata.reset("Greedy", 0).add_array("many", 10, 0, 0);
    broken.write(&mut maker, 1, &mut metadata, &[0xFF, 0xFF, 1, 2, 3], &[]);
    // A payload without usable metadata, on the channel of TraceLogging.
    let descriptor = EventDescriptor { channel: CHANNEL_TRACELOGGING, ..EventDescriptor::default() };
    let header = EventHeader { provider: UNKNOWN_PROVIDER, descriptor, ..EventHeader::default() };
    maker.write_event(1, header, &[0xFF, 0xFF, 0]);
    write_kernel_and_other_events(&mut maker);
    maker.finish()
}

fn write_kernel_and_other_events(maker: &mut TraceMaker) {
    // A kernel event without a published layout, and a kernel event whose payload ends inside a
    // field.
    maker.write_system(0, 0x12FF, 2, (4, 8), &[7, 7, 7]);
    let mut payload = Vec::new();
    payload.put_u64(0x7FF7_0000_1234).put_u16(9);
    maker.write_perf(0, hook::SAMPLED_PROFILE, 2, &payload);
    // A WPP message without a message format.
    let (time, ids) = (Some(maker.next_time()), Some((WRITER_THREAD, WRITER_PROCESS)));
    let header = MessageHeader {
        number: 3,
        pointer_size: 8,
        sequence: Some(9),
        guid: Some(UNKNOWN_PROVIDER),
        time,
        ids,
    };
    maker.write_message(0, header, &[1, 2]);
    // A truncated schema, and an extended data item that extends beyond its record.
    maker.write_classic(0, class::EVENT_METADATA, 32, 0, &[1, 2, 3]);
    let items = [Item { kind: ExtType::RELATED_ACTIVITYID, data: &[0; 16] }];
    let time = maker.next_time();
    let header = EventHeader {
        time,
        process_id: WRITER_PROCESS,
        thread_id: WRITER_THREAD,
        provider: UNKNOWN_PROVIDER,
        items: &items,
        ..EventHeader::default()
    };
    let mut record = Vec::new();
    header.encode(&[5; 8], &mut record).unwrap();
    // The total size of the item.
    record[0x50..0x52].copy_from_slice(&0xFFF8_u16.to_le_bytes());
    maker.write_raw(0, &record);
}
