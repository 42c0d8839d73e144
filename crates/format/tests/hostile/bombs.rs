//! Small input that unpacks to very much, and files that need everything in memory at once.
//!
//! Each limit is the largest number of bytes at one time, as counted by the allocator.

use super::streams::long_copy;
use super::*;
use traceweir_format::kernel::hook;

/// Returns a stream of some hundred bytes that unpacks to these records and then filler, `len`
/// bytes in all.
fn bomb(records: &[Vec<u8>], len: usize) -> Vec<u8> {
    let mut plain = records.concat();
    plain.push(0xFF);
    let mut out = Vec::new();
    let mut tokens: Vec<(bool, Vec<u8>)> = plain.iter().map(|&b| (false, vec![b])).collect();
    tokens.push((true, long_copy(1, (len - plain.len()) as u32)));
    for group in tokens.chunks(32) {
        let flags = (0..32).fold(0_u32, |f, i| f << 1 | u32::from(group.get(i).is_none_or(|t| t.0)));
        out.put_u32(flags);
        group.iter().for_each(|t| out.extend(&t.1));
    }
    out
}

/// 2,048 processors with a bomb each; every eighth has three events, the others one.
pub(super) fn bombs(offset: u32) -> Vec<u8> {
    let len = offset as usize - HEADER_SIZE;
    let once = bomb(&[event(ANCHOR + 1, 1, 8)], len);
    let thrice = bomb(&[1, 2, 3].map(|n| event(ANCHOR + n, n as usize, 8)), len);
    let mut bytes =
        file(Options { compressed: true, buffer_size: offset, processors: 2048, ..options() }, &[]);
    for cpu in 0..2048 {
        append_packed(
            &mut bytes,
            cpu,
            offset,
            i64::from(cpu) + 1,
            if cpu % 8 == 0 { &thrice } else { &once },
        );
    }
    bytes
}

/// Reads at most `most` events and asserts their order.
fn read_some(bytes: &[u8], most: u64) -> (u64, u64) {
    let trace = Trace::open(bytes).unwrap();
    let mut events = trace.events();
    let (mut count, mut last) = (0, (0, 0));
    while let Some(record) = events.next().unwrap().filter(|_| count < most) {
        let turn = (record.time(), record.cpu());
        assert!(turn >= last, "{turn:?} after {last:?}");
        (count, last) = (count + 1, turn);
    }
    (count, events.damage().count)
}

#[test]
fn many_processors_with_a_bomb_each_take_little_more_than_the_memory_of_one() {
    // Unpacking all 32 GiB proves no more than the first hundred bombs do.
    let bytes = bombs(16 << 20);
    assert!(bytes.len() < MIB / 2);
    let ((events, damage), peak) = peak_of(|| read_some(&bytes, 100));
    assert_eq!((events, damage), (100, 0));
    assert!(peak < 32 * MIB, "{peak}");
}

#[test]
fn bombs_that_free_their_memory_are_still_read_in_order() {
    let bytes = bombs(256 << 10);
    let ((events, damage), peak) = peak_of(|| read_some(&bytes, u64::MAX));
    assert_eq!((events, damage), (1 + 2048 + 2 * 256, 0));
    assert!(peak < 16 * MIB, "{peak} bytes, where 512 MiB are claimed");
}

#[test]
fn reloaded_buffers_continue_at_their_position() {
    // Highly repetitive, so that the file is small against its contents and the budget tight.
    let buffer_size = 512 << 10;
    let mut writer =
        Writer::create(Vec::new(), Options { compressed: true, buffer_size, ..options() }).unwrap();
    let mut written = Vec::new();
    for n in 0..7_i64 {
        for cpu in 0..64_u16 {
            let time = ANCHOR + 100 * n + i64::from(cpu * 37 % 64);
            let record = event(time, usize::from(cpu), 60_000);
            writer.write_record(cpu, &record).unwrap();
            written.push((time, cpu));
        }
    }
    let bytes = writer.finish(Summary::default()).unwrap();
    written.sort_unstable();
    let (seen, peak) = peak_of(|| {
        let trace = Trace::open(&bytes).unwrap();
        let mut events = trace.events();
        let mut seen = Vec::new();
        while let Some(record) = events.next().unwrap() {
            if record.hook().is_none() {
                assert!(
                    record.payload().len() == 60_000
                        && record.payload().iter().all(|&b| b == record.cpu() as u8)
                );
                seen.push((record.time(), record.cpu()));
            }
        }
        seen
    });
    assert_eq!(seen, written);
    assert!(peak < 12 * MIB, "{peak} bytes, where 27 MiB would be needed to keep all");
}

#[test]
fn very_many_open_buffers_stay_within_bounds_of_time_and_memory() {
    // Each spans the whole time, so all must be open before any ends.
    let count = 20_000_i64;
    let mut bytes = file(options(), &[]);
    for n in 0..count {
        let perf = |time| PerfInfoHeader {
            pointer_size: 8,
            version: 2,
            hook: hook::SAMPLED_PROFILE,
            time,
            counters: &[],
        };
        let mut records = encode(|out| perf(ANCHOR + 1).encode(b"", out));
        perf(ANCHOR + 2 * count - n).encode(b"", &mut records).unwrap();
        let size = (HEADER_SIZE + records.len()) as u32;
        let head = BufferHeader {
            buffer_size: size,
            offset: size,
            sequence_number: n + 1,
            flags: 0x20,
            ..Default::default()
        };
        bytes.put(&head.to_bytes()).put(&records);
    }
    let ((events, damage), peak) = peak_of(|| read_some(&bytes, u64::MAX));
    assert_eq!((events, damage), (1 + 2 * count as u64, 0));
    assert!(peak < 8 * bytes.len(), "{peak} bytes for a file of {}", bytes.len());
}

#[test]
fn sorting_a_buffer_takes_a_fraction_of_its_size() {
    let buffer_size = 2 << 20;
    let mut records = Vec::new();
    let count = (buffer_size - HEADER_SIZE) / 16;
    for n in 0..count as i64 {
        let perf = PerfInfoHeader {
            pointer_size: 8,
            version: 2,
            hook: hook::SAMPLED_PROFILE,
            time: ANCHOR + (n * 7919) % 10_007,
            counters: &[],
        };
        perf.encode(b"", &mut records).unwrap();
    }
    let bytes = file(Options { buffer_size: buffer_size as u32, ..options() }, &[(0, vec![records])]);
    let ((events, _), peak) = peak_of(|| read_some(&bytes, u64::MAX));
    assert_eq!(events, 1 + count as u64);
    assert!(peak < 2 * buffer_size, "{peak}");
}
