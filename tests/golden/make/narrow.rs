//! Events of 32-bit programs and of a 32-bit kernel in a 64-bit file.

use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::ExtType;
use traceweir_format::tracelogging::MetadataBuilder;
use traceweir_format::wire::Put;

use super::manifest::{EVERYTHING, TYPES_EVENT, types_payload};
use super::{SelfDescribing, TraceMaker, WRITER_PROCESS, WRITER_THREAD, session_options};

pub(super) fn make() -> Vec<u8> {
    let mut maker = TraceMaker::new(session_options("narrow"));
    let header = EventHeader {
        pointer_size: 4,
        provider: EVERYTHING,
        descriptor: TYPES_EVENT,
        ..EventHeader::default()
    };
    maker.write_event(0, header, &types_payload(4));

    let mut narrow_program = SelfDescribing::new("Traceweir.Fixture.Narrow");
    narrow_program.header.pointer_size = 4;
    let mut metadata = MetadataBuilder::new("Pointer", 0);
    metadata.add_field("address", 20, 0, 0);
    let mut stack = Vec::new();
    // The match id, and two frames of 32 bits.
    stack.put_u64(77).put_u32(0x0040_1000).put_u32(0x0040_2000);
    narrow_program.write(
        &mut maker,
        0,
        &mut metadata,
        &0x0040_3000_u32.to_le_bytes(),
        &[Item { kind: ExtType::STACK_TRACE32, data: &stack }],
    );

    // Base, size, process, checksum, time stamp, signature; default base, reserved, name.
    let mut payload = Vec::new();
    payload
        .put_u32(0x0040_0000)
        .put_u32(0x1_0000)
        .put_u32(WRITER_PROCESS)
        .put_u32(1)
        .put_u32(1_714_000_000)
        .put(&[0; 4]);
    payload.put_u32(0x0040_0000).put(&[0; 16]).put_wide_z("\\Device\\HarddiskVolume1\\small.exe");
    let time = maker.next_time();
    let header = SystemHeader {
        pointer_size: 4,
        version: 3,
        hook: hook::IMAGE_LOAD,
        thread_id: WRITER_THREAD,
        process_id: WRITER_PROCESS,
        time,
        cpu_times: None,
    };
    let mut record = Vec::new();
    header.encode(&payload, &mut record).unwrap();
    maker.write_raw(0, &record);

    // Instruction pointer, thread, count, reserved.
    let mut payload = Vec::new();
    payload.put_u32(0x0040_1234).put_u32(WRITER_THREAD).put_u16(1).put(&[0, 0]);
    let time = maker.next_time();
    record.clear();
    // The record has two counters between its header and its payload.
    let header = PerfInfoHeader {
        pointer_size: 4,
        version: 2,
        hook: hook::SAMPLED_PROFILE,
        time,
        counters: &[11, 22],
    };
    header.encode(&payload, &mut record).unwrap();
    maker.write_raw(0, &record);
    maker.finish()
}
