//! Files by mode: circular and wrapped, appended, file sequences, one stream for all processors,
//! compressed in part.

use super::*;
use traceweir_format::kernel::hook;

/// Returns a file of ten buffers of one processor, two events each, all at one time: only sequence
/// numbers show their order.
pub(super) fn circular() -> Vec<u8> {
    let plan: Vec<_> =
        (0..10).map(|n| (0, vec![event(ANCHOR + 5, 2 * n, 8), event(ANCHOR + 5, 2 * n + 1, 8)])).collect();
    file(Options { log_file_mode: EVENT_TRACE_FILE_MODE_CIRCULAR, maximum_file_size: 1, ..options() }, &plan)
}

fn ids(seen: &[Seen]) -> Vec<u16> {
    seen.iter().map(|s| Record::parse(&s.bytes, 0).unwrap().descriptor().id).collect()
}

/// Returns the file after wrapping: only `room` data buffers fit, and later ones replaced the
/// first.
pub(super) fn wrapped(file: &[u8], room: usize) -> Vec<u8> {
    let buffers: Vec<&[u8]> = file.chunks(1024).collect();
    let mut out = buffers[0].to_vec();
    let mut slots = vec![&[][..]; room];
    for (n, buffer) in buffers[1..].iter().enumerate() {
        slots[n % room] = buffer;
    }
    out.extend(slots.concat());
    out
}

#[test]
fn a_circular_file_that_did_not_wrap_reads_as_any_other() {
    assert_eq!(findings(&circular()), []);
    assert_eq!(ids(&data(&circular())), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_circular_file_that_lost_its_newest_buffers_is_not_taken_for_a_wrapped_one() {
    let whole = circular();
    let cut = &whole[..6 * 1024];
    assert_eq!(Trace::open(cut).unwrap().missing_buffers(), Some((11, 6)));
    assert_eq!(findings(cut), [(Rule::BuffersWritten, BUFFERS_WRITTEN as u64)]);
    assert_eq!(Trace::open(&whole[..]).unwrap().missing_buffers(), None);
    assert_eq!(Trace::open(&wrapped(&whole, 3)[..]).unwrap().missing_buffers(), None);
}

#[test]
fn a_wrapped_circular_file_comes_in_order_of_acquisition() {
    for room in 1..10 {
        let file = wrapped(&circular(), room);
        assert_eq!(Trace::open(&file).unwrap().header().buffers_written, 11, "all ever written");
        assert_eq!(ids(&data(&file)), (20 - 2 * room as u16..20).collect::<Vec<_>>());
        assert_eq!(findings(&file), []);
        let mut crashed = file.clone();
        crash(&mut crashed);
        repairs(&crashed);
    }
}

#[test]
fn a_wrapped_file_of_many_processors_comes_in_time_order() {
    let mut file = small(false);
    put(&mut file, MODE, &EVENT_TRACE_FILE_MODE_CIRCULAR.to_le_bytes());
    let all = data(&file);
    let wrapped = wrapped(&file, 7);
    let seen = data(&wrapped);
    let kept: Vec<_> =
        all.into_iter().filter(|s| Record::parse(&s.bytes, 0).unwrap().descriptor().id >= 10).collect();
    assert_eq!(seen, kept);
    assert_eq!(findings(&wrapped), []);
}

#[test]
fn an_appended_session_follows_the_first() {
    let session = |anchor: i64, first: usize| {
        let o = Options {
            clock_type: 2,
            anchor,
            start_time: FileTime(anchor),
            boot_time: FileTime(1),
            log_file_mode: EVENT_TRACE_FILE_MODE_APPEND,
            ..options()
        };
        let plan = [(0, vec![event(anchor + 1, first, 8)]), (1, vec![event(anchor + 2, first + 1, 8)])];
        file(o, &plan)
    };
    let mut both = session(START.0, 1);
    both.extend(session(START.0 + 1_000_000, 3));
    put(&mut both, BUFFERS_WRITTEN, &6_u32.to_le_bytes());
    put(&mut both, END_TIME, &(START.0 + 2_000_000).to_le_bytes());
    assert_eq!(findings(&both), []);
    let seen = read(&both);
    let hooks = seen.iter().filter(|s| fake::is_log_file_header(&s.bytes)).count();
    assert_eq!((seen.len(), hooks), (6, 2), "the second header is reported as the event it is");
    assert_eq!(ids(&data(&both)), [1, 2, 3, 4]);
    let trace = Trace::open(&both).unwrap();
    assert_eq!(
        (trace.clock().kind, trace.clock().anchor),
        (ClockKind::SystemTime, START.0),
        "the first one anchors"
    );
    crash(&mut both);
    repairs(&both);
}

#[test]
fn new_file_segment_continues_sequence_numbers() {
    let mut file = small(false);
    for (n, (at, _)) in buffers(&file).into_iter().enumerate().skip(1) {
        put(&mut file, at + 0x18, &(907 + n as i64).to_le_bytes());
    }
    assert_eq!(findings(&file), []);
    assert_eq!(data(&file), data(&small(false)));
}

#[test]
fn one_stream_for_all_processors_is_one_queue() {
    let mode = 0x1000_0001;
    let plan: Vec<_> = (0..6).map(|n| (0, vec![event(ANCHOR + n, n as usize, 8)])).collect();
    let bytes = file(Options { log_file_mode: mode, ..options() }, &plan);
    let trace = Trace::open(&bytes).unwrap();
    assert_eq!((trace.header().processors, trace.header().log_file_mode), (1, mode));
    assert!(data(&bytes).iter().all(|s| s.cpu == 0));
    assert_eq!(findings(&bytes), []);
}

#[test]
fn plain_and_compressed_buffers_may_be_mixed() {
    // Bytes without repetition do not shrink, so their buffer is stored.
    let mut noise = Vec::new();
    let mut state = 1_u32;
    noise.resize_with(600, || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let perf = |time| PerfInfoHeader {
        pointer_size: 8,
        version: 2,
        hook: hook::SAMPLED_PROFILE,
        time,
        counters: &[],
    };
    let stored = encode(|out| perf(ANCHOR + 2).encode(&noise, out));
    let plan =
        [(0, vec![event(ANCHOR + 1, 1, 500)]), (0, vec![stored]), (0, vec![event(ANCHOR + 3, 3, 500)])];
    let mixed = file(Options { compressed: true, ..options() }, &plan);
    let flags: Vec<_> =
        buffers(&mixed).iter().map(|(_, h)| (h.is_compressed(), h.buffer_size <= h.offset)).collect();
    assert_eq!(flags[1..], [(true, true), (false, true), (true, true)], "none is larger than its contents");
    assert_eq!(findings(&mixed), []);
    assert_eq!(data(&mixed).len(), 3);

    // The flag of the buffer decides, not the mode of the file.
    let mut unsaid = mixed.clone();
    put(&mut unsaid, MODE, &1_u32.to_le_bytes());
    assert_eq!(data(&unsaid), data(&mixed));
    let first = (buffers(&mixed)[1].0 + 0x34) as u64;
    assert_eq!(findings(&unsaid), [(Rule::Compression, first)], "once a file");
    let (again, done) = repaired(&unsaid);
    assert_eq!((again, done.salvaged), (unsaid, 0), "repair does not change the mode");
}

#[test]
fn records_after_saved_offset_are_read() {
    let extra =
        PerfInfoHeader { pointer_size: 8, version: 2, hook: hook::BUILD_INFO, time: ANCHOR, counters: &[] };
    let header_records = encode(|out| extra.encode(b"a build\0", out));
    let mut file =
        file(Options { compressed: true, header_records, ..options() }, &[(0, vec![event(ANCHOR, 1, 8)])]);
    let offset = buffers(&file)[0].1.offset;
    put(&mut file, 4, &(offset - 24).to_le_bytes());
    assert_eq!(read(&file).len(), 3);
    assert_eq!(findings(&file), []);
    crash(&mut file);
    repairs(&file);
}
