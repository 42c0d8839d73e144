//! Events that cannot be decoded, each for a different reason.

use traceweir_format::Guid;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::message::MessageHeader;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor, ExtType, class};
use traceweir_format::tracelogging::MetadataBuilder;
use traceweir_format::wire::Put;

use super::{Maker, SelfDescribing, WRITER, session};

const UNKNOWN_PROVIDER: Guid = Guid::from_u128(0x0000_dead_0000_4000_8000_0000_0000_0001);

pub(super) fn make() -> Vec<u8> {
    let mut maker = Maker::new(session("undecodable"));
    // No schema exists.
    let descriptor =
        EventDescriptor { id: 17, version: 1, level: 3, keyword: 2, ..EventDescriptor::default() };
    maker.event(
        0,
        EventHeader { provider: UNKNOWN_PROVIDER, descriptor, ..EventHeader::default() },
        &[1, 2, 3, 4, 5],
    );
    maker.event(0, EventHeader { provider: UNKNOWN_PROVIDER, descriptor, ..EventHeader::default() }, &[]);
    maker.event(
        0,
        EventHeader { provider: UNKNOWN_PROVIDER, descriptor, ..EventHeader::default() },
        &[0xAB; 100],
    );
    // Metadata with a wrong size, and metadata that ends in the middle of a field.
    let broken = SelfDescribing::new("Traceweir.Fixture.Broken");
    for metadata in [&[0xFF, 0x7F, 0, b'X', 0][..], &[8, 0, 0, b'X', 0, b'f', 0, 0x80]] {
        let items = [Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata }];
        maker.event(1, EventHeader { items: &items, ..broken.header }, &[9, 9]);
    }
    // A payload that ends inside a number, a text without its terminator, and a payload that is too
    // long.
    let mut m = MetadataBuilder::new("Short", 0);
    m.add_field("whole", 6, 0, 0).add_field("cut", 8, 0, 0).add_field("missing", 8, 0, 0);
    broken.write(&mut maker, 1, &mut m, &[1, 0, 2, 0], &[]);
    m.reset("NoEnd", 0).add_field("text", 1, 0, 0);
    broken.write(&mut maker, 1, &mut m, &[b'h', 0, b'i', 0], &[]);
    m.reset("Long", 0).add_field("number", 8, 0, 0);
    broken.write(&mut maker, 1, &mut m, &[1, 0, 0, 0, 0xEE, 0xFF], &[]);
    // An array that claims more elements than there are bytes.
    m.reset("Greedy", 0).add_array("many", 10, 0, 0);
    broken.write(&mut maker, 1, &mut m, &[0xFF, 0xFF, 1, 2, 3], &[]);
    // Only traits, on a channel that promises metadata.
    let descriptor = EventDescriptor { channel: CHANNEL_TRACELOGGING, ..EventDescriptor::default() };
    let header = EventHeader { provider: UNKNOWN_PROVIDER, descriptor, ..EventHeader::default() };
    maker.event(1, header, &[0xFF, 0xFF, 0]);
    kernel_and_others(&mut maker);
    maker.finish()
}

fn kernel_and_others(maker: &mut Maker) {
    // A kernel event without a published layout, and one whose payload is truncated inside a field.
    maker.system(0, 0x12FF, 2, (4, 8), &[7, 7, 7]);
    let mut p = Vec::new();
    p.put_u64(0x7FF7_0000_1234).put_u16(9);
    maker.perf(0, hook::SAMPLED_PROFILE, 2, &p);
    // WPP numbers mean nothing without a format.
    let (time, ids) = (Some(maker.next_time()), Some((WRITER.1, WRITER.0)));
    let header = MessageHeader {
        number: 3,
        pointer_size: 8,
        sequence: Some(9),
        guid: Some(UNKNOWN_PROVIDER),
        time,
        ids,
    };
    maker.message(0, header, &[1, 2]);
    // A schema without content, and extended data items that extend beyond their record.
    maker.classic(0, class::EVENT_METADATA, 32, 0, &[1, 2, 3]);
    let items = [Item { kind: ExtType::RELATED_ACTIVITYID, data: &[0; 16] }];
    let time = maker.next_time();
    let header = EventHeader {
        time,
        process_id: WRITER.0,
        thread_id: WRITER.1,
        provider: UNKNOWN_PROVIDER,
        items: &items,
        ..EventHeader::default()
    };
    let mut record = Vec::new();
    header.encode(&[5; 8], &mut record).unwrap();
    record[0x50..0x52].copy_from_slice(&0xFFF8_u16.to_le_bytes());
    maker.raw(0, &record);
}
