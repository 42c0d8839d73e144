//! EventSource events, the chunks of the manifest that describes the events, and one more event.

use traceweir_format::Guid;
use traceweir_format::header::event::EventHeader;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::wire::Put;

use super::{TraceMaker, session_options, start_time};
use crate::util::root;

const SHOP: Guid = Guid::from_u128(0x0b9c8e2a_58f7_5d7c_9b1e_3f3a1c2d4e5f);
/// Chunks are small, so that the manifest takes several.
const CHUNK_BYTES: usize = 1000;

pub(super) fn make() -> Vec<u8> {
    let mut maker = TraceMaker::new(session_options("eventsource"));
    for (order, payment) in [(1, 1_u32), (2, 2), (3, 9)] {
        let mut payload = Vec::new();
        payload.put_guid(&Guid::from_u128(order)).put_u32(payment).put_u32(u32::from(payment != 2));
        payload.put_i64(start_time().0 + 36_000_000_000).put(&12.5_f64.to_le_bytes());
        let descriptor =
            EventDescriptor { id: 1, level: 4, opcode: 1, task: 1, keyword: 1, ..EventDescriptor::default() };
        write_shop_event(&mut maker, descriptor, &payload);
    }
    let descriptor = EventDescriptor {
        id: 2,
        version: 1,
        level: 5,
        opcode: 2,
        task: 1,
        keyword: 1,
        ..EventDescriptor::default()
    };
    write_shop_event(&mut maker, descriptor, &[]);
    // EventSource gives an event without a task the task 65534 − id.
    let mut payload = Vec::new();
    payload.put_u32(3).put(&[0xCA, 0xFE, 0x01]).put_u64(0x7FF6_0000_1000);
    write_shop_event(
        &mut maker,
        EventDescriptor { id: 3, level: 3, task: 65531, ..EventDescriptor::default() },
        &payload,
    );
    write_manifest_chunks(&mut maker);
    let mut payload = Vec::new();
    payload.put_wide_z("said after the manifest");
    write_shop_event(&mut maker, EventDescriptor { task: 65534, ..EventDescriptor::default() }, &payload);
    maker.finish()
}

fn write_shop_event(maker: &mut TraceMaker, descriptor: EventDescriptor, payload: &[u8]) {
    maker.write_event(0, EventHeader { provider: SHOP, descriptor, ..EventHeader::default() }, payload);
}

fn write_manifest_chunks(maker: &mut TraceMaker) {
    let xml = std::fs::read(root().join("fixtures/manifests/eventsource.man")).unwrap();
    let chunks: Vec<_> = xml.chunks(CHUNK_BYTES).collect();
    for (index, chunk) in chunks.iter().enumerate() {
        let mut payload = Vec::new();
        // Format 1, version 1.0, the magic byte, the number of chunks, and the index of this chunk.
        payload.put(&[1, 1, 0, 0x5B]).put_u16(u16::try_from(chunks.len()).unwrap());
        payload.put_u16(u16::try_from(index).unwrap()).put(chunk);
        let descriptor =
            EventDescriptor { id: 0xFFFE, opcode: 0xFE, task: 0xFFFE, ..EventDescriptor::default() };
        write_shop_event(maker, descriptor, &payload);
    }
}
