//! Breaks each rule of the check by changing a few bytes of a good file.

use super::*;

/// Changes a good file and asserts that exactly this rule breaks at exactly this offset.
fn breaks(rule: Rule, offset: usize, at: usize, value: &[u8]) {
    breaks_in(small(false), rule, offset, at, value);
}

fn breaks_in(mut file: Vec<u8>, rule: Rule, offset: usize, at: usize, value: &[u8]) {
    assert_eq!(findings(&file), []);
    put(&mut file, at, value);
    assert_eq!(findings(&file), [(rule, offset as u64)]);
}

/// Offset of the fourth buffer of the small file.
const FOURTH: usize = 3 * 1024;
const LAST: usize = 12 * 1024;

#[test]
fn good_files_break_no_rule() {
    for compressed in [false, true] {
        assert_eq!(findings(&small(compressed)), []);
    }
}

#[test]
fn an_end_time_of_zero() {
    breaks(Rule::NotFinalised, 0x78, END_TIME, &[0; 8]);
}

#[test]
fn a_wrong_count_of_buffers() {
    breaks(Rule::BuffersWritten, 0x8C, BUFFERS_WRITTEN, &[12]);
    breaks(Rule::BuffersWritten, 0x8C, BUFFERS_WRITTEN, &[14]);
}

#[test]
fn times_in_the_wrong_order() {
    breaks(Rule::HeaderTimes, 0x78, END_TIME, &(START.0 - 1).to_le_bytes());
    breaks(Rule::HeaderTimes, 0x160, LOG_FILE_HEADER + 0xF8, &(START.0 + 1).to_le_bytes());
}

#[test]
fn a_clock_that_does_not_tick() {
    breaks(Rule::ClockType, 0x178, LOG_FILE_HEADER + 0x110, &[4]);
    breaks(Rule::ClockType, 0x178, LOG_FILE_HEADER + 0x110, &[0]);
    breaks(Rule::ClockType, 0x178, LOG_FILE_HEADER + 0x100, &[0; 8]);
    let mut cycles = small(false);
    put(&mut cycles, LOG_FILE_HEADER + 0x110, &[3]);
    breaks_in(cycles, Rule::ClockType, 0x178, LOG_FILE_HEADER + 0x34, &[0; 4]);
}

#[test]
fn a_session_buffer_size_that_no_session_has() {
    breaks(Rule::SessionBufferSize, 0x68, LOG_FILE_HEADER, &1023_u32.to_le_bytes());
    breaks(Rule::SessionBufferSize, 0x68, LOG_FILE_HEADER, &((16_u32 << 20) + 1).to_le_bytes());
}

#[test]
fn buffers_that_do_not_lead_to_the_end() {
    breaks(Rule::BufferSequence, FOURTH, FOURTH, &[0; 4]);
    breaks(Rule::BufferSequence, FOURTH, FOURTH, &[0xFF; 4]);
    breaks(Rule::BufferSequence, FOURTH, FOURTH, &1500_u32.to_le_bytes());
    for junk in [1, 0x47] {
        let mut file = small(false);
        file.resize(file.len() + junk, 7);
        assert_eq!(findings(&file), [(Rule::BufferSequence, LAST as u64 + 1024)]);
    }
    let file = small(false);
    assert_eq!(findings(&file[..file.len() - 1]), [(Rule::BufferSequence, LAST as u64)]);
}

#[test]
fn an_impossible_offset() {
    let offset = buffers(&small(false))[3].1.offset;
    breaks(Rule::BufferOffset, FOURTH + 0x30, FOURTH + 0x30, &(offset + 1).to_le_bytes());
    breaks(Rule::BufferOffset, FOURTH + 0x30, FOURTH + 0x30, &0x40_u32.to_le_bytes());
    breaks(Rule::BufferOffset, FOURTH + 0x30, FOURTH + 0x30, &1032_u32.to_le_bytes());
    assert_eq!(data(&small(false)).len(), 24);
}

#[test]
fn unknown_flags_and_types() {
    breaks(Rule::BufferKind, FOURTH + 0x34, FOURTH + 0x34, &0x00A0_u16.to_le_bytes());
    breaks(Rule::BufferKind, 0x34, 0x34, &0x0061_u16.to_le_bytes());
    breaks(Rule::BufferKind, FOURTH + 0x36, FOURTH + 0x36, &[8]);
}

#[test]
fn a_state_that_is_not_flush() {
    breaks(Rule::BufferState, FOURTH + 0x2C, FOURTH + 0x2C, &[1]);
    breaks(Rule::BufferState, 0x2C, 0x2C, &[0]);
}

#[test]
fn a_first_buffer_that_is_no_header_buffer() {
    breaks(Rule::FirstBuffer, 0x36, 0x36, &[0]);
}

#[test]
fn a_processor_that_the_machine_does_not_have() {
    breaks(Rule::Processor, LAST + 0x28, LAST + 0x28, &[3]);
    let mut unknown = small(false);
    put(&mut unknown, LOG_FILE_HEADER + 0x0C, &[0]);
    put(&mut unknown, LAST + 0x28, &[3]);
    assert_eq!(findings(&unknown), [], "the number of processors is unknown");
}

#[test]
fn a_logger_id_of_another_session() {
    breaks(Rule::LoggerId, FOURTH + 0x2A, FOURTH + 0x2A, &[8]);
    let mut every_other = small(false);
    for (at, _) in buffers(&every_other).into_iter().skip(1).step_by(2) {
        put(&mut every_other, at + 0x2A, &[8]);
    }
    assert_eq!(findings(&every_other), [(Rule::LoggerId, 2 * 1024 + 0x2A)], "once a file");
    let mut header = small(false);
    put(&mut header, 0x2A, &[8]);
    assert_eq!(findings(&header), []);
}

#[test]
fn loss_flags_break_no_rule() {
    for flag in [0x02, 0x04, 0x08, 0x10] {
        let mut file = small(false);
        put(&mut file, FOURTH + 0x34, &[0x20 | flag]);
        assert_eq!(findings(&file), [], "{flag:#x}");
    }
}

#[test]
fn filler_with_other_bytes() {
    let end = FOURTH + buffers(&small(false))[3].1.offset as usize;
    for at in [end, end + 5, FOURTH + 1023] {
        breaks(Rule::Filler, at, at, &[0]);
    }
    let mut many = small(false);
    put(&mut many, end + 1, &[7; 20]);
    put(&mut many, 1020, &[7; 4]);
    assert_eq!(findings(&many), [(Rule::Filler, 1020), (Rule::Filler, end as u64 + 1)], "once a buffer");
}

#[test]
fn a_pointer_size_that_no_machine_has() {
    for size in [0, 5, 16] {
        breaks(Rule::LogFileHeader, 0x94, LOG_FILE_HEADER + 0x2C, &[size]);
    }
}

#[test]
fn names_that_do_not_end() {
    let names = LOG_FILE_HEADER + 0x118;
    let file_name = names + 2 * "fake\0".len();
    let file_end = file_name + 2 * "fake.etl".len();
    breaks(Rule::LogFileHeader, file_name, file_end, b"x");
    let mut neither = small(false);
    put(&mut neither, file_name - 2, b"x");
    put(&mut neither, file_end, b"x");
    assert_eq!(findings(&neither), [(Rule::LogFileHeader, names as u64)]);
}

#[test]
fn a_sequence_number_used_twice() {
    breaks(Rule::SequenceNumber, 4 * 1024 + 0x18, FOURTH + 0x18, &[4]);
}

#[test]
fn a_stream_that_unpacks_to_a_wrong_size() {
    let file = small(true);
    let (at, head) = buffers(&file)[3];
    breaks_in(file.clone(), Rule::Compression, at, at + 0x30, &(head.offset + 8).to_le_bytes());
    breaks_in(file.clone(), Rule::Compression, at, at + 0x30, &((16 << 20) + 8_u32).to_le_bytes());
    let mut damaged = file.clone();
    put(&mut damaged, at + HEADER_SIZE, &[0xFF; 8]);
    assert_eq!(findings(&damaged), [(Rule::Compression, at as u64)], "a copy from before the first byte");
    let (seen, damage) = salvage(&damaged);
    assert_eq!((seen.len(), damage), (1 + 22, 1));
}

#[test]
fn a_compressed_buffer_that_the_mode_does_not_announce() {
    let file = small(true);
    let first = buffers(&file)[1].0;
    breaks_in(file, Rule::Compression, first + 0x34, MODE, &1_u32.to_le_bytes());
}

#[test]
fn a_compressed_buffer_larger_than_its_contents() {
    // A stream of literals only: four bytes of flags for each 32.
    let record = event(ANCHOR + 1, 1, 8);
    let mut stream = Vec::new();
    for part in record.chunks(32) {
        stream.put_u32(0).put(part);
    }
    let mut bytes = file(Options { compressed: true, ..options() }, &[(0, vec![record])]);
    let (at, head) = buffers(&bytes)[1];
    bytes.truncate(at + HEADER_SIZE);
    bytes.put(&stream);
    let size = (HEADER_SIZE + stream.len()) as u32;
    assert!(size > head.offset);
    put(&mut bytes, at, &size.to_le_bytes());
    put(&mut bytes, at + 0x34, &(0x61_u16).to_le_bytes());
    assert_eq!(findings(&bytes), [(Rule::Compression, at as u64)]);
    assert_eq!(data(&bytes).len(), 1, "it is read all the same");
}

#[test]
fn a_flush_marker_where_none_belongs() {
    breaks(Rule::FlushMarker, LAST + 0x34, LAST + 0x34, &[0x20]);
    breaks(Rule::FlushMarker, FOURTH + 0x34, FOURTH + 0x34, &[0x21]);
}

#[test]
fn an_invalid_record() {
    let first = FOURTH + HEADER_SIZE;
    breaks(Rule::Record, first, first + 3, &[0x40]);
    breaks(Rule::Record, first, first, &[0, 0]);
    breaks(Rule::Record, first, first, &0x4F_u16.to_le_bytes());
    breaks(Rule::Record, first, first, &1000_u16.to_le_bytes());
    breaks(Rule::Record, first + 120, first + 120 + 2, &[19, 0]);
    let mut file = small(false);
    put(&mut file, first, &[0, 0, 0, 0]);
    assert_eq!(salvage(&file).1, 1, "reading reports it too");
}

#[test]
fn extended_items_that_leave_the_record() {
    let items = [Item { kind: ExtType::SID, data: &[1; 12] }];
    let header = EventHeader { time: ANCHOR, items: &items, ..Default::default() };
    let record = encode(|out| header.encode(b"payload", out));
    let good = file(options(), &[(0, vec![record])]);
    let at = 1024 + HEADER_SIZE;
    breaks_in(good.clone(), Rule::ExtendedItems, at, at + 0x50, &[0]);
    breaks_in(good.clone(), Rule::ExtendedItems, at, at + 0x54, &[1]);
    breaks_in(good, Rule::ExtendedItems, at, at + 0x56, &[200]);
}

#[test]
fn stamps_that_decrease() {
    // The second record of a buffer, then the first one of a processor's later buffer.
    let (first, second) = (FOURTH + HEADER_SIZE, FOURTH + HEADER_SIZE + 120);
    breaks(Rule::TimeInBuffer, second, second + 0x10, &(ANCHOR + 19).to_le_bytes());
    let mut late = small(false);
    put(&mut late, first + 0x10, &ANCHOR.to_le_bytes());
    assert_eq!(findings(&late), []);
    let sixth = 6 * 1024 + HEADER_SIZE;
    breaks(Rule::TimeAcrossBuffers, sixth, sixth + 0x10, &(ANCHOR + 34).to_le_bytes());
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
