//! Files of each mode: circular and wrapped, appended, file sequences, one stream for all
//! processors, partly compressed.

use super::*;
use traceweir_format::kernel::hook;
use traceweir_format::spec::session::{
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING,
};

/// Returns a file of ten buffers of one processor, two events each, all with the same stamp: only
/// sequence numbers show their order.
pub(super) fn circular_file() -> Vec<u8> {
    let buffer_plan: Vec<_> = (0..10)
        .map(|n| (0, vec![encode_event(ANCHOR + 5, 2 * n, 8), encode_event(ANCHOR + 5, 2 * n + 1, 8)]))
        .collect();
    build_file(
        Options { log_file_mode: EVENT_TRACE_FILE_MODE_CIRCULAR, maximum_file_size: 1, ..options() },
        &buffer_plan,
    )
}

fn event_ids(events: &[ReadEvent]) -> Vec<u16> {
    events.iter().map(|event| Record::parse(&event.bytes, 0).unwrap().descriptor().id).collect()
}

/// Returns the file after wrapping: only `slots_in_file` data buffers fit, and later ones have
/// replaced earlier ones.
pub(super) fn wrap_file(file: &[u8], slots_in_file: usize) -> Vec<u8> {
    let buffers: Vec<&[u8]> = file.chunks(1024).collect();
    let mut out = buffers[0].to_vec();
    let mut slots = vec![&[][..]; slots_in_file];
    for (n, buffer) in buffers[1..].iter().enumerate() {
        slots[n % slots_in_file] = buffer;
    }
    out.extend(slots.concat());
    out
}

#[test]
fn circular_file_that_did_not_wrap_reads_like_a_sequential_file() {
    assert_eq!(check_file(&circular_file()), []);
    assert_eq!(event_ids(&read_data_events(&circular_file())), (0..20).collect::<Vec<_>>());
}

#[test]
fn circular_file_without_its_newest_buffers_reports_missing_buffers() {
    let original = circular_file();
    let truncated = &original[..6 * 1024];
    // 11 buffers according to the header, 6 in the file.
    assert_eq!(Trace::open(truncated).unwrap().missing_buffers(), Some((11, 6)));
    assert_eq!(check_file(truncated), [(Rule::BuffersWritten, BUFFERS_WRITTEN_OFFSET as u64)]);
    assert_eq!(Trace::open(&original[..]).unwrap().missing_buffers(), None);
    assert_eq!(Trace::open(&wrap_file(&original, 3)[..]).unwrap().missing_buffers(), None);
}

#[test]
fn wrapped_circular_file_is_read_in_order_of_sequence_numbers() {
    for slots_in_file in 1..10 {
        let file = wrap_file(&circular_file(), slots_in_file);
        assert_eq!(
            Trace::open(&file).unwrap().header().buffers_written,
            11,
            "the count lacks overwritten buffers"
        );
        assert_eq!(
            event_ids(&read_data_events(&file)),
            (20 - 2 * slots_in_file as u16..20).collect::<Vec<_>>()
        );
        assert_eq!(check_file(&file), []);
        let mut crashed = file.clone();
        undo_finalising(&mut crashed);
        assert_repairs(&crashed);
    }
}

#[test]
fn wrapped_file_of_many_processors_is_read_in_time_order() {
    let mut file = small_file(false);
    overwrite(&mut file, LOG_FILE_MODE_OFFSET, &EVENT_TRACE_FILE_MODE_CIRCULAR.to_le_bytes());
    let all = read_data_events(&file);
    let wrapped = wrap_file(&file, 7);
    let events = read_data_events(&wrapped);
    let expected: Vec<_> = all
        .into_iter()
        // Seven of twelve buffers remain, so the first five, with two events each, are overwritten.
        .filter(|event| Record::parse(&event.bytes, 0).unwrap().descriptor().id >= 10)
        .collect();
    assert_eq!(events, expected);
    assert_eq!(check_file(&wrapped), []);
}

#[test]
fn appended_session_follows_the_first_session() {
    let session = |anchor: i64, first: usize| {
        let options = Options {
            clock_type: ClockKind::SystemTime.number(),
            anchor,
            start_time: FileTime(anchor),
            boot_time: FileTime(1),
            log_file_mode: EVENT_TRACE_FILE_MODE_APPEND,
            ..options()
        };
        let buffer_plan = [
            (0, vec![encode_event(anchor + 1, first, 8)]),
            (1, vec![encode_event(anchor + 2, first + 1, 8)]),
        ];
        build_file(options, &buffer_plan)
    };
    let mut both = session(START.0, 1);
    both.extend(session(START.0 + 1_000_000, 3));
    overwrite(&mut both, BUFFERS_WRITTEN_OFFSET, &6_u32.to_le_bytes());
    overwrite(&mut both, END_TIME_OFFSET, &(START.0 + 2_000_000).to_le_bytes());
    assert_eq!(check_file(&both), []);
    let events = read_events(&both);
    let headers = events.iter().filter(|event| fake::is_log_file_header(&event.bytes)).count();
    assert_eq!((events.len(), headers), (6, 2), "the second header is not an event");
    assert_eq!(event_ids(&read_data_events(&both)), [1, 2, 3, 4]);
    let trace = Trace::open(&both).unwrap();
    assert_eq!(
        (trace.clock().kind, trace.clock().anchor),
        (ClockKind::SystemTime, START.0),
        "the first header does not anchor the clock"
    );
    undo_finalising(&mut both);
    assert_repairs(&both);
}

#[test]
fn new_file_segment_continues_sequence_numbers() {
    let mut file = small_file(false);
    for (n, (at, _)) in buffer_headers(&file).into_iter().enumerate().skip(1) {
        overwrite(&mut file, at + SEQUENCE_NUMBER, &(907 + n as i64).to_le_bytes());
    }
    assert_eq!(check_file(&file), []);
    assert_eq!(read_data_events(&file), read_data_events(&small_file(false)));
}

#[test]
fn one_stream_for_all_processors_is_read_as_processor_0() {
    let mode = EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING | EVENT_TRACE_FILE_MODE_SEQUENTIAL;
    let buffer_plan: Vec<_> = (0..6).map(|n| (0, vec![encode_event(ANCHOR + n, n as usize, 8)])).collect();
    let bytes = build_file(Options { log_file_mode: mode, ..options() }, &buffer_plan);
    let trace = Trace::open(&bytes).unwrap();
    assert_eq!((trace.header().processors, trace.header().log_file_mode), (1, mode));
    assert!(read_data_events(&bytes).iter().all(|event| event.cpu == 0));
    assert_eq!(check_file(&bytes), []);
}

#[test]
fn plain_and_compressed_buffers_may_be_mixed() {
    // Bytes without repetition do not shrink, so their buffer is stored plain.
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
    let noise_record = encode_record(|out| perf(ANCHOR + 2).encode(&noise, out));
    let buffer_plan = [
        (0, vec![encode_event(ANCHOR + 1, 1, 500)]),
        (0, vec![noise_record]),
        (0, vec![encode_event(ANCHOR + 3, 3, 500)]),
    ];
    let mixed = build_file(Options { compressed: true, ..options() }, &buffer_plan);
    let flags: Vec<_> =
        buffer_headers(&mixed).iter().map(|(_, h)| (h.is_compressed(), h.buffer_size <= h.offset)).collect();
    assert_eq!(
        flags[1..],
        [(true, true), (false, true), (true, true)],
        "a buffer is larger than its content"
    );
    assert_eq!(check_file(&mixed), []);
    assert_eq!(read_data_events(&mixed).len(), 3);

    // The flag of the buffer decides, not the mode of the file.
    let mut without_mode = mixed.clone();
    // Mode 1: sequential, without the bit for compression.
    overwrite(&mut without_mode, LOG_FILE_MODE_OFFSET, &1_u32.to_le_bytes());
    assert_eq!(read_data_events(&without_mode), read_data_events(&mixed));
    let first = (buffer_headers(&mixed)[1].0 + FLAGS) as u64;
    assert_eq!(check_file(&without_mode), [(Rule::Compression, first)], "not reported once per file");
    let (repaired, report) = repair_file(&without_mode);
    assert_eq!((repaired, report.salvaged), (without_mode, 0), "repair changed the file");
}

#[test]
fn records_after_saved_offset_are_read() {
    let extra =
        PerfInfoHeader { pointer_size: 8, version: 2, hook: hook::BUILD_INFO, time: ANCHOR, counters: &[] };
    let header_records = encode_record(|out| extra.encode(b"a build\0", out));
    let mut file = build_file(
        Options { compressed: true, header_records, ..options() },
        &[(0, vec![encode_event(ANCHOR, 1, 8)])],
    );
    let offset = buffer_headers(&file)[0].1.offset;
    // SavedOffset becomes the start of the build record, which has 24 bytes.
    overwrite(&mut file, 4, &(offset - 24).to_le_bytes());
    assert_eq!(read_events(&file).len(), 3);
    assert_eq!(check_file(&file), []);
    undo_finalising(&mut file);
    assert_repairs(&file);
}
