//! Events of 32-bit programs and of a 32-bit kernel in a 64-bit file.

use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::ExtType;
use traceweir_format::tracelogging::MetadataBuilder;
use traceweir_format::wire::Put;

use super::manifest::{EVERYTHING, TYPES, types};
use super::{Maker, SelfDescribing, WRITER, session};

pub(super) fn make() -> Vec<u8> {
    let mut maker = Maker::new(session("narrow"));
    let header =
        EventHeader { pointer_size: 4, provider: EVERYTHING, descriptor: TYPES, ..EventHeader::default() };
    maker.event(0, header, &types(4));

    let mut small = SelfDescribing::new("Traceweir.Fixture.Narrow");
    small.header.pointer_size = 4;
    let mut m = MetadataBuilder::new("Pointer", 0);
    m.add_field("address", 20, 0, 0);
    let mut stack = Vec::new();
    stack.put_u64(77).put_u32(0x0040_1000).put_u32(0x0040_2000);
    small.write(
        &mut maker,
        0,
        &mut m,
        &0x0040_3000_u32.to_le_bytes(),
        &[Item { kind: ExtType::STACK_TRACE32, data: &stack }],
    );

    let mut p = Vec::new();
    p.put_u32(0x0040_0000).put_u32(0x1_0000).put_u32(WRITER.0).put_u32(1).put_u32(1_714_000_000).put(&[0; 4]);
    p.put_u32(0x0040_0000).put(&[0; 16]).put_wide_z("\\Device\\HarddiskVolume1\\small.exe");
    let time = maker.next_time();
    let header = SystemHeader {
        pointer_size: 4,
        version: 3,
        hook: hook::IMAGE_LOAD,
        thread_id: WRITER.1,
        process_id: WRITER.0,
        time,
        cpu_times: None,
    };
    let mut record = Vec::new();
    header.encode(&p, &mut record).unwrap();
    maker.raw(0, &record);

    let mut p = Vec::new();
    p.put_u32(0x0040_1234).put_u32(WRITER.1).put_u16(1).put(&[0, 0]);
    let time = maker.next_time();
    record.clear();
    // Two counters are between the header and the payload.
    let header = PerfInfoHeader {
        pointer_size: 4,
        version: 2,
        hook: hook::SAMPLED_PROFILE,
        time,
        counters: &[11, 22],
    };
    header.encode(&p, &mut record).unwrap();
    maker.raw(0, &record);
    maker.finish()
}
