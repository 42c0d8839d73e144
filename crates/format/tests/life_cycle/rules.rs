//! Breaks each rule of the check by changing a few bytes of a good file.

use super::*;

/// Writes `value` to a good file at `at`. Asserts that the check reports only `rule`, at `offset`.
fn assert_breaks(rule: Rule, offset: usize, at: usize, value: &[u8]) {
    assert_breaks_in(small_file(false), rule, offset, at, value);
}

fn assert_breaks_in(mut file: Vec<u8>, rule: Rule, offset: usize, at: usize, value: &[u8]) {
    assert_eq!(check_file(&file), []);
    overwrite(&mut file, at, value);
    assert_eq!(check_file(&file), [(rule, offset as u64)]);
}

// File offsets of buffers of the small file.
const FOURTH_BUFFER: usize = 3 * 1024;
const LAST_BUFFER: usize = 12 * 1024;

#[test]
fn good_files_break_no_rule() {
    for compressed in [false, true] {
        assert_eq!(check_file(&small_file(compressed)), []);
    }
}

#[test]
fn end_time_of_zero_is_reported() {
    assert_breaks(Rule::NotFinalised, 0x78, END_TIME_OFFSET, &[0; 8]);
}

#[test]
fn wrong_count_of_buffers_is_reported() {
    assert_breaks(Rule::BuffersWritten, 0x8C, BUFFERS_WRITTEN_OFFSET, &[12]);
    assert_breaks(Rule::BuffersWritten, 0x8C, BUFFERS_WRITTEN_OFFSET, &[14]);
}

#[test]
fn times_in_the_wrong_order_are_reported() {
    assert_breaks(Rule::HeaderTimes, 0x78, END_TIME_OFFSET, &(START.0 - 1).to_le_bytes());
    // 0xF8: BootTime.
    assert_breaks(Rule::HeaderTimes, 0x160, HEADER_PAYLOAD_OFFSET + 0xF8, &(START.0 + 1).to_le_bytes());
}

#[test]
fn clock_without_a_rate_is_reported() {
    // 0x110: clock type; 0x100: PerfFreq; 0x34: CpuSpeedInMHz.
    assert_breaks(Rule::ClockType, 0x178, HEADER_PAYLOAD_OFFSET + 0x110, &[4]);
    assert_breaks(Rule::ClockType, 0x178, HEADER_PAYLOAD_OFFSET + 0x110, &[0]);
    assert_breaks(Rule::ClockType, 0x178, HEADER_PAYLOAD_OFFSET + 0x100, &[0; 8]);
    let mut cycles = small_file(false);
    overwrite(&mut cycles, HEADER_PAYLOAD_OFFSET + 0x110, &[3]);
    assert_breaks_in(cycles, Rule::ClockType, 0x178, HEADER_PAYLOAD_OFFSET + 0x34, &[0; 4]);
}

#[test]
fn impossible_session_buffer_size_is_reported() {
    assert_breaks(Rule::SessionBufferSize, 0x68, HEADER_PAYLOAD_OFFSET, &1023_u32.to_le_bytes());
    assert_breaks(Rule::SessionBufferSize, 0x68, HEADER_PAYLOAD_OFFSET, &((16_u32 << 20) + 1).to_le_bytes());
}

#[test]
fn broken_buffer_sequence_is_reported() {
    assert_breaks(Rule::BufferSequence, FOURTH_BUFFER, FOURTH_BUFFER, &[0; 4]);
    assert_breaks(Rule::BufferSequence, FOURTH_BUFFER, FOURTH_BUFFER, &[0xFF; 4]);
    assert_breaks(Rule::BufferSequence, FOURTH_BUFFER, FOURTH_BUFFER, &1500_u32.to_le_bytes());
    for junk in [1, 0x47] {
        let mut file = small_file(false);
        file.resize(file.len() + junk, 7);
        assert_eq!(check_file(&file), [(Rule::BufferSequence, LAST_BUFFER as u64 + 1024)]);
    }
    let file = small_file(false);
    assert_eq!(check_file(&file[..file.len() - 1]), [(Rule::BufferSequence, LAST_BUFFER as u64)]);
}

#[test]
fn impossible_offset_is_reported() {
    // Offsets that are not a multiple of eight, inside the header, and past the end of the buffer.
    let offset = buffer_headers(&small_file(false))[3].1.offset;
    assert_breaks(
        Rule::BufferOffset,
        FOURTH_BUFFER + OFFSET,
        FOURTH_BUFFER + OFFSET,
        &(offset + 1).to_le_bytes(),
    );
    assert_breaks(
        Rule::BufferOffset,
        FOURTH_BUFFER + OFFSET,
        FOURTH_BUFFER + OFFSET,
        &0x40_u32.to_le_bytes(),
    );
    assert_breaks(
        Rule::BufferOffset,
        FOURTH_BUFFER + OFFSET,
        FOURTH_BUFFER + OFFSET,
        &1032_u32.to_le_bytes(),
    );
    assert_eq!(read_data_events(&small_file(false)).len(), 24);
}

#[test]
fn unknown_flags_and_types_are_reported() {
    // Flag 0x80 and type 8 are unknown; a header buffer cannot be compressed (0x40).
    assert_breaks(Rule::BufferKind, FOURTH_BUFFER + FLAGS, FOURTH_BUFFER + FLAGS, &0x00A0_u16.to_le_bytes());
    assert_breaks(Rule::BufferKind, FLAGS, FLAGS, &0x0061_u16.to_le_bytes());
    assert_breaks(Rule::BufferKind, FOURTH_BUFFER + TYPE, FOURTH_BUFFER + TYPE, &[8]);
}

#[test]
fn state_other_than_flush_is_reported() {
    assert_breaks(Rule::BufferState, FOURTH_BUFFER + STATE, FOURTH_BUFFER + STATE, &[1]);
    assert_breaks(Rule::BufferState, STATE, STATE, &[0]);
}

#[test]
fn first_buffer_of_another_type_is_reported() {
    assert_breaks(Rule::FirstBuffer, TYPE, TYPE, &[0]);
}

#[test]
fn impossible_processor_is_reported() {
    assert_breaks(Rule::Processor, LAST_BUFFER + PROCESSOR_INDEX, LAST_BUFFER + PROCESSOR_INDEX, &[3]);
    let mut unknown = small_file(false);
    // 0x0C: NumberOfProcessors.
    overwrite(&mut unknown, HEADER_PAYLOAD_OFFSET + 0x0C, &[0]);
    overwrite(&mut unknown, LAST_BUFFER + PROCESSOR_INDEX, &[3]);
    assert_eq!(check_file(&unknown), [], "compared with an unknown number of processors");
}

#[test]
fn different_logger_id_is_reported() {
    assert_breaks(Rule::LoggerId, FOURTH_BUFFER + LOGGER_ID, FOURTH_BUFFER + LOGGER_ID, &[8]);
    let mut every_other = small_file(false);
    for (at, _) in buffer_headers(&every_other).into_iter().skip(1).step_by(2) {
        overwrite(&mut every_other, at + LOGGER_ID, &[8]);
    }
    assert_eq!(
        check_file(&every_other),
        [(Rule::LoggerId, (2 * 1024 + LOGGER_ID) as u64)],
        "not reported once per file"
    );
    // The header buffer may have another logger id.
    let mut header = small_file(false);
    overwrite(&mut header, LOGGER_ID, &[8]);
    assert_eq!(check_file(&header), []);
}

#[test]
fn loss_and_backup_flags_break_no_rule() {
    for flag in [0x02, 0x04, 0x08, 0x10] {
        let mut file = small_file(false);
        overwrite(&mut file, FOURTH_BUFFER + FLAGS, &[0x20 | flag]);
        assert_eq!(check_file(&file), [], "{flag:#x}");
    }
}

#[test]
fn wrong_filler_is_reported() {
    let end = FOURTH_BUFFER + buffer_headers(&small_file(false))[3].1.offset as usize;
    for at in [end, end + 5, FOURTH_BUFFER + 1023] {
        assert_breaks(Rule::Filler, at, at, &[0]);
    }
    let mut many = small_file(false);
    overwrite(&mut many, end + 1, &[7; 20]);
    overwrite(&mut many, 1020, &[7; 4]);
    assert_eq!(
        check_file(&many),
        [(Rule::Filler, 1020), (Rule::Filler, end as u64 + 1)],
        "not reported once per buffer"
    );
}

#[test]
fn impossible_pointer_size_is_reported() {
    for size in [0, 5, 16] {
        assert_breaks(Rule::LogFileHeader, 0x94, HEADER_PAYLOAD_OFFSET + 0x2C, &[size]);
    }
}

#[test]
fn unterminated_name_is_reported() {
    let names = HEADER_PAYLOAD_OFFSET + 0x118;
    let file_name = names + 2 * "fake\0".len();
    let file_end = file_name + 2 * "fake.etl".len();
    assert_breaks(Rule::LogFileHeader, file_name, file_end, b"x");
    let mut neither = small_file(false);
    overwrite(&mut neither, file_name - 2, b"x");
    overwrite(&mut neither, file_end, b"x");
    assert_eq!(check_file(&neither), [(Rule::LogFileHeader, names as u64)]);
}

#[test]
fn repeated_sequence_number_is_reported() {
    assert_breaks(Rule::SequenceNumber, 4 * 1024 + SEQUENCE_NUMBER, FOURTH_BUFFER + SEQUENCE_NUMBER, &[4]);
}

#[test]
fn wrong_unpacked_size_is_reported() {
    let file = small_file(true);
    let (at, header) = buffer_headers(&file)[3];
    assert_breaks_in(file.clone(), Rule::Compression, at, at + OFFSET, &(header.offset + 8).to_le_bytes());
    assert_breaks_in(file.clone(), Rule::Compression, at, at + OFFSET, &((16 << 20) + 8_u32).to_le_bytes());
    let mut damaged = file.clone();
    overwrite(&mut damaged, at + HEADER_SIZE, &[0xFF; 8]);
    assert_eq!(
        check_file(&damaged),
        [(Rule::Compression, at as u64)],
        "a copy from before the first byte is not reported"
    );
    let (events, damage) = read_damaged(&damaged);
    assert_eq!((events.len(), damage), (1 + 22, 1));
}

#[test]
fn compressed_buffer_without_mode_is_reported() {
    let file = small_file(true);
    let first = buffer_headers(&file)[1].0;
    assert_breaks_in(file, Rule::Compression, first + FLAGS, LOG_FILE_MODE_OFFSET, &1_u32.to_le_bytes());
}

#[test]
fn compressed_buffer_larger_than_its_content_is_reported() {
    // A stream of literals only: four bytes of flags for each 32.
    let record = encode_event(ANCHOR + 1, 1, 8);
    let mut stream = Vec::new();
    for part in record.chunks(32) {
        stream.put_u32(0).put(part);
    }
    let mut bytes = build_file(Options { compressed: true, ..options() }, &[(0, vec![record])]);
    let (at, header) = buffer_headers(&bytes)[1];
    bytes.truncate(at + HEADER_SIZE);
    bytes.put(&stream);
    let size = (HEADER_SIZE + stream.len()) as u32;
    assert!(size > header.offset);
    overwrite(&mut bytes, at, &size.to_le_bytes());
    overwrite(&mut bytes, at + FLAGS, &(0x61_u16).to_le_bytes());
    assert_eq!(check_file(&bytes), [(Rule::Compression, at as u64)]);
    assert_eq!(read_data_events(&bytes).len(), 1, "the buffer is not readable");
}

#[test]
fn misplaced_or_missing_flush_marker_is_reported() {
    assert_breaks(Rule::FlushMarker, LAST_BUFFER + FLAGS, LAST_BUFFER + FLAGS, &[0x20]);
    assert_breaks(Rule::FlushMarker, FOURTH_BUFFER + FLAGS, FOURTH_BUFFER + FLAGS, &[0x21]);
}

#[test]
fn invalid_record_is_reported() {
    let first = FOURTH_BUFFER + HEADER_SIZE;
    // An unknown marker, three impossible sizes, and a second record without a marker.
    assert_breaks(Rule::Record, first, first + 3, &[0x40]);
    assert_breaks(Rule::Record, first, first, &[0, 0]);
    assert_breaks(Rule::Record, first, first, &0x4F_u16.to_le_bytes());
    assert_breaks(Rule::Record, first, first, &1000_u16.to_le_bytes());
    assert_breaks(Rule::Record, first + 120, first + 120 + 2, &[19, 0]);
    let mut file = small_file(false);
    overwrite(&mut file, first, &[0, 0, 0, 0]);
    assert_eq!(read_damaged(&file).1, 1, "the reader does not report the record");
}

#[test]
fn extended_items_outside_the_record_are_reported() {
    let items = [Item { kind: ExtType::SID, data: &[1; 12] }];
    let header = EventHeader { time: ANCHOR, items: &items, ..Default::default() };
    let record = encode_record(|out| header.encode(b"payload", out));
    let good = build_file(options(), &[(0, vec![record])]);
    let at = 1024 + HEADER_SIZE;
    // Size, linkage and data size of the item.
    assert_breaks_in(good.clone(), Rule::ExtendedItems, at, at + 0x50, &[0]);
    assert_breaks_in(good.clone(), Rule::ExtendedItems, at, at + 0x54, &[1]);
    assert_breaks_in(good, Rule::ExtendedItems, at, at + 0x56, &[200]);
}

#[test]
fn decreasing_stamps_are_reported() {
    let (first, second) = (FOURTH_BUFFER + HEADER_SIZE, FOURTH_BUFFER + HEADER_SIZE + 120);
    // The second record of a buffer is older than the first.
    assert_breaks(Rule::TimeInBuffer, second, second + 0x10, &(ANCHOR + 19).to_le_bytes());
    // The first record of a processor's first buffer may have any older stamp.
    let mut early = small_file(false);
    overwrite(&mut early, first + 0x10, &ANCHOR.to_le_bytes());
    assert_eq!(check_file(&early), []);
    // The first record of processor 2's second buffer is older than the last one of its first
    // buffer.
    let seventh = 6 * 1024 + HEADER_SIZE;
    assert_breaks(Rule::TimeAcrossBuffers, seventh, seventh + 0x10, &(ANCHOR + 34).to_le_bytes());
}

#[test]
fn every_rule_has_a_unique_name() {
    let rules = [
        Rule::NotFinalised,
        Rule::BuffersWritten,
        Rule::HeaderTimes,
        Rule::ClockType,
        Rule::SessionBufferSize,
        Rule::LogFileHeader,
        Rule::BufferSequence,
        Rule::FirstBuffer,
        Rule::BufferOffset,
        Rule::BufferState,
        Rule::Processor,
        Rule::LoggerId,
        Rule::Filler,
        Rule::BufferKind,
        Rule::SequenceNumber,
        Rule::Compression,
        Rule::FlushMarker,
        Rule::Record,
        Rule::ExtendedItems,
        Rule::TimeInBuffer,
        Rule::TimeAcrossBuffers,
    ];
    let names: std::collections::BTreeSet<_> = rules.iter().map(|r| r.name()).collect();
    assert_eq!(names.len(), rules.len());
    assert_eq!(format!("{:>18}|", Rule::Record), "            record|");
}
