//! Small input that unpacks to large output, and files that need all buffers in memory at once.
//!
//! The limits apply to the peak number of bytes that the allocator counts.

use super::streams::encode_long_copy;
use super::*;
use traceweir_format::kernel::hook;

/// Encodes a stream of some hundred bytes that unpacks to these records and filler, `len` bytes in
/// total.
fn compression_bomb(records: &[Vec<u8>], len: usize) -> Vec<u8> {
    let mut plain = records.concat();
    plain.push(0xFF);
    let mut stream = Vec::new();
    let mut tokens: Vec<(bool, Vec<u8>)> = plain.iter().map(|&b| (false, vec![b])).collect();
    tokens.push((true, encode_long_copy(1, (len - plain.len()) as u32)));
    for group in tokens.chunks(32) {
        let flags =
            (0..32).fold(0_u32, |f, i| f << 1 | u32::from(group.get(i).is_none_or(|(is_copy, _)| *is_copy)));
        stream.put_u32(flags);
        group.iter().for_each(|(_, bytes)| stream.extend(bytes));
    }
    stream
}

/// Builds a file with a compression bomb on each of 2,048 processors. Each unpacks to a buffer of
/// `offset` bytes. Every eighth bomb has three events, the others one.
pub(super) fn file_of_bombs(offset: u32) -> Vec<u8> {
    let len = offset as usize - HEADER_SIZE;
    let one_event = compression_bomb(&[encode_event(ANCHOR + 1, 1, 8)], len);
    let three_events = compression_bomb(&[1, 2, 3].map(|n| encode_event(ANCHOR + n, n as usize, 8)), len);
    let mut bytes =
        build_file(Options { compressed: true, buffer_size: offset, processors: 2048, ..options() }, &[]);
    for cpu in 0..2048 {
        append_compressed_buffer(
            &mut bytes,
            cpu,
            offset,
            i64::from(cpu) + 1,
            if cpu % 8 == 0 { &three_events } else { &one_event },
        );
    }
    bytes
}

/// Reads at most `max_events` events and asserts their order. Returns the number of events and of
/// defects.
fn read_in_order(bytes: &[u8], max_events: u64) -> (u64, u64) {
    let trace = Trace::open(bytes).unwrap();
    let mut events = trace.events();
    let (mut count, mut last) = (0, (0, 0));
    while let Some(record) = events.next().unwrap().filter(|_| count < max_events) {
        let position = (record.time(), record.cpu());
        assert!(position >= last, "{position:?} after {last:?}");
        (count, last) = (count + 1, position);
    }
    (count, events.damage().count)
}

#[test]
fn bombs_on_many_processors_take_little_more_memory_than_one() {
    // Unpacking the first hundred bombs proves as much as unpacking all 32 GiB.
    let bytes = file_of_bombs(16 << 20);
    assert!(bytes.len() < MIB / 2);
    let ((events, damage), peak) = measure_peak(|| read_in_order(&bytes, 100));
    assert_eq!((events, damage), (100, 0));
    assert!(peak < 32 * MIB, "reading took {peak} bytes");
}

#[test]
fn bombs_are_read_in_order_with_little_memory() {
    let bytes = file_of_bombs(256 << 10);
    let ((events, damage), peak) = measure_peak(|| read_in_order(&bytes, u64::MAX));
    // The header event, one event of each bomb, and two more of every eighth.
    assert_eq!((events, damage), (1 + 2048 + 2 * 256, 0));
    assert!(peak < 16 * MIB, "{peak} bytes for a file that claims 512 MiB");
}

#[test]
fn reloaded_buffers_continue_at_their_position() {
    // The events are highly repetitive, so that the file and the memory budget are small compared
    // with the unpacked buffers.
    let buffer_size = 512 << 10;
    let mut writer =
        Writer::create(Vec::new(), Options { compressed: true, buffer_size, ..options() }).unwrap();
    let mut written = Vec::new();
    for n in 0..7_i64 {
        for cpu in 0..64_u16 {
            let time = ANCHOR + 100 * n + i64::from(cpu * 37 % 64);
            let record = encode_event(time, usize::from(cpu), 60_000);
            writer.write_record(cpu, &record).unwrap();
            written.push((time, cpu));
        }
    }
    let bytes = writer.finish(Summary::default()).unwrap();
    written.sort_unstable();
    let (read, peak) = measure_peak(|| {
        let trace = Trace::open(&bytes).unwrap();
        let mut events = trace.events();
        let mut read = Vec::new();
        while let Some(record) = events.next().unwrap() {
            if record.hook().is_none() {
                assert!(
                    record.payload().len() == 60_000
                        && record.payload().iter().all(|&b| b == record.cpu() as u8)
                );
                read.push((record.time(), record.cpu()));
            }
        }
        read
    });
    assert_eq!(read, written);
    assert!(peak < 12 * MIB, "{peak} bytes; 27 MiB would keep all buffers");
}

#[test]
fn very_many_open_buffers_are_read_in_order_with_bounded_memory() {
    // Each buffer spans the whole time of the trace, so all must be open before any ends.
    let count = 20_000_i64;
    let mut bytes = build_file(options(), &[]);
    for n in 0..count {
        let perf = |time| PerfInfoHeader {
            pointer_size: 8,
            version: 2,
            hook: hook::SAMPLED_PROFILE,
            time,
            counters: &[],
        };
        let mut records = encode_record(|out| perf(ANCHOR + 1).encode(b"", out));
        perf(ANCHOR + 2 * count - n).encode(b"", &mut records).unwrap();
        let size = (HEADER_SIZE + records.len()) as u32;
        let header = BufferHeader {
            buffer_size: size,
            offset: size,
            sequence_number: n + 1,
            flags: BUFFER_FLAG_PROC_INDEX,
            ..Default::default()
        };
        bytes.put(&header.to_bytes()).put(&records);
    }
    let ((events, damage), peak) = measure_peak(|| read_in_order(&bytes, u64::MAX));
    assert_eq!((events, damage), (1 + 2 * count as u64, 0));
    assert!(peak < 8 * bytes.len(), "{peak} bytes for a file of {}", bytes.len());
}

#[test]
fn sorting_a_buffer_takes_less_memory_than_the_buffer() {
    let buffer_size = 2 << 20;
    let mut records = Vec::new();
    // Each record is a header of 16 bytes.
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
    let bytes = build_file(Options { buffer_size: buffer_size as u32, ..options() }, &[(0, vec![records])]);
    let ((events, _), peak) = measure_peak(|| read_in_order(&bytes, u64::MAX));
    assert_eq!(events, 1 + count as u64);
    assert!(peak < 2 * buffer_size, "reading took {peak} bytes");
}
