//! Seeds of the converters: recordings of perf, and events with packets.

#[allow(dead_code)] // The tests of the import use more of it.
#[path = "../../../crates/convert/src/perf_data/tests/builder.rs"]
mod recording;

use traceweir_format::wire::Put;

use self::recording::Recording;
use super::Seeds;

const KERNEL: u64 = 0xFFFF_FFFF_8100_0000;
const KERNEL_MARKER: u64 = -128_i64 as u64;
const USER_MARKER: u64 = -512_i64 as u64;

/// Returns recordings: a file, a pipe, and records that are out of order.
pub(super) fn perf_data_seeds() -> Seeds {
    let mut small = Recording::new();
    small.comm(0, 100, 100, "shell", false);
    small.mapping(0, 100, 0x40_0000, 0x1000, 0, "/bin/shell");
    small.kernel_mapping(KERNEL, 0x100_0000, "[kernel.kallsyms]_text");
    small.fork(1000, 100, 200);
    small.comm(1100, 200, 200, "worker", true);
    small.sample(1200, 1, 200, 201, 0x50_0010, &[KERNEL_MARKER, KERNEL, USER_MARKER, 0x50_0010]);
    small.build_id("/bin/shell", &[7; 20]);
    let mut full = small.clone();
    full.round();
    full.switch(1400, 0, (100, 1), 201, &[KERNEL_MARKER, KERNEL]);
    full.switch(1300, 0, (201, 0), 100, &[]);
    full.tick(1350, 1, 200, 201, 77, "text");
    full.round();
    full.exit(1500, 200, 201);
    full.lost(1600, 5);
    vec![("file", small.finish()), ("pipe", full.finish_pipe()), ("rounds", full.finish())]
}

fn event(kind: u8, keyword: u64, payload: &[u8]) -> Vec<u8> {
    let mut event = vec![kind];
    let size = u16::try_from(payload.len()).expect("the payload is small");
    event.put_u64(keyword).put_u16(size).put(payload);
    event
}

fn fragment(bytes: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    let size = u32::try_from(bytes.len()).expect("the fragment is small");
    payload.put_u32(7).put_u32(7).put_u32(size).put(bytes);
    payload
}

/// Returns events of both providers of packets.
pub(super) fn packet_seeds() -> Seeds {
    const START: u64 = 0x4000_0000;
    const END: u64 = 0x8000_0000;
    let fragments = [
        event(0, START, &fragment(&[0x45; 30])),
        event(0, END, &fragment(&[0x45; 30])),
        event(1, 0, &fragment(&[0; 48])),
        event(0, START | END | 0x1_0000, &fragment(&[0x80; 30])),
    ];
    let mut switch = Vec::new();
    switch.put_u32(1).put_u32(5).put_u32(8).put_wide_z("port").put_wide_z("nic").put_wide_z("kind");
    switch.put_u32(0).put_u32(4).put(b"data").put_u32(40).put(&[1; 40]);
    let mut frame = Vec::new();
    frame.put_u64(7).put_u16(1).put_u16(1).put_u16(4).put_u16(1).put_u16(11).put_u16(1).put_u16(0);
    frame.put_u32(9).put_u32(1).put_u16(20).put_u16(4).put(b"data");
    let mut component = Vec::new();
    component.put_u16(11).put_u16(2).put_wide_z("nic").put_wide_z("text");
    let monitored = [event(3, 0, &component), event(4, 0x10, &frame), event(5, 0x10, &frame)];
    vec![
        ("fragments", fragments.concat()),
        ("switch", event(2, START | END, &switch)),
        ("monitored", monitored.concat()),
    ]
}
