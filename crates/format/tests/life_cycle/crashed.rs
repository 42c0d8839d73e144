//! Files that were not finalised: truncated anywhere, with half a buffer, with a tail of zeros.

use super::*;
use crate::fake::Buffer;
use traceweir_format::Error;

#[test]
fn unfinalised_file_is_read_to_its_last_event() {
    for compressed in [false, true] {
        let original = small_file(compressed);
        for count in [0_u32, 1, 5, 9999] {
            let mut file = original.clone();
            undo_finalising(&mut file);
            overwrite(&mut file, BUFFERS_WRITTEN_OFFSET, &count.to_le_bytes());
            assert_eq!(read_data_events(&file), read_data_events(&original));
            assert_eq!(
                check_file(&file),
                [
                    (Rule::NotFinalised, END_TIME_OFFSET as u64),
                    (Rule::BuffersWritten, BUFFERS_WRITTEN_OFFSET as u64)
                ]
            );
            let report = assert_repairs(&file);
            // The header buffer and twelve data buffers.
            assert_eq!((report.buffers, report.salvaged, report.dropped), (13, 0, 0));
            // The last event is the second one of buffer 11: 10 * 11 + 15 ticks after the start.
            assert_eq!(report.end_time, FileTime(START.0 + 125), "not the time of the last event");
        }
    }
}

#[test]
fn writer_that_never_finishes_leaves_an_unfinalised_file() {
    for compressed in [false, true] {
        let mut sink = Vec::new();
        let mut writer = Writer::create(&mut sink, Options { compressed, ..options() }).unwrap();
        for n in 0..20 {
            writer.write_record(n % 2, &encode_event(ANCHOR + i64::from(n), usize::from(n), 64)).unwrap();
        }
        writer.flush().unwrap();
        drop(writer);
        assert!(!Trace::open(&sink).unwrap().is_finalised());
        assert_eq!(read_data_events(&sink).len(), 20);
        assert_repairs(&sink);
        let (repaired, _) = repair_file(&sink);
        assert_eq!(
            Trace::open(&repaired).unwrap().header().processors,
            2,
            "the number of processors was not raised"
        );
    }
}

#[test]
fn truncated_last_buffer_keeps_its_whole_records() {
    for compressed in [false, true] {
        let mut file = small_file(compressed);
        undo_finalising(&mut file);
        let (last, _) = *buffer_headers(&file).last().unwrap();
        let events = read_data_events(&file).len();
        // The bytes that are kept of the last buffer, and the records that are lost. The buffer has
        // records of 120 and 180 bytes, then padding and filler.
        let cuts: &[(usize, usize)] = if compressed {
            &[(1, 2), (8, 2)]
        } else {
            &[
                (0, 2),
                (HEADER_SIZE, 2),
                (HEADER_SIZE + 119, 2),
                (HEADER_SIZE + 120, 1),
                (HEADER_SIZE + 299, 1),
                (HEADER_SIZE + 300, 0),
            ]
        };
        for &(keep, lost) in cuts {
            let truncated = &file[..last + keep];
            // `read_damaged` returns the header event too.
            assert_eq!(
                read_damaged(truncated).0.len(),
                events + 1 - lost,
                "{keep} bytes, compressed {compressed}"
            );
            let report = assert_repairs(truncated);
            let salvaged = u32::from(lost < 2);
            assert_eq!(report.salvaged, salvaged);
            assert_eq!(report.buffers, 12 + salvaged);
        }
    }
}

#[test]
fn truncated_unfinalised_file_is_repaired() {
    for compressed in [false, true] {
        let mut file = small_file(compressed);
        undo_finalising(&mut file);
        let second = buffer_headers(&file)[1].0;
        for length in (second..file.len()).step_by(41) {
            assert_repairs(&file[..length]);
        }
    }
}

#[test]
fn truncated_header_buffer_is_rebuilt_if_its_event_is_whole() {
    let mut file = small_file(false);
    undo_finalising(&mut file);
    let first_event = HEADER_SIZE + Record::parse(&file[HEADER_SIZE..], 0).unwrap().bytes().len();
    let report = assert_repairs(&file[..first_event]);
    assert_eq!((report.buffers, report.salvaged, report.bytes), (1, 1, 1024));
    assert!(Trace::open(&file[..first_event - 1]).is_err());
}

#[test]
fn header_buffer_that_ends_inside_its_event_is_rebuilt() {
    let mut file = small_file(false);
    for offset in [SAVED_OFFSET, OFFSET] {
        overwrite(&mut file, offset, &0x50_u32.to_le_bytes());
    }
    let (sink, report) = repair_file(&file);
    assert!(report.salvaged >= 1);
    assert_eq!(Trace::open(&sink).unwrap().header().session_name, "fake");
    assert_eq!(read_data_events(&sink), read_data_events(&small_file(false)), "repair changed a data buffer");
}

#[test]
fn preallocated_zeros_are_left_out() {
    for compressed in [false, true] {
        for tail in [1, 7, 0x47, 0x48, 1023, 1024, 1025, 4096, 100_000] {
            let mut file = small_file(compressed);
            undo_finalising(&mut file);
            let length = file.len();
            file.resize(length + tail, 0);
            let trace = Trace::open(&file).unwrap();
            assert_eq!(trace.defects().len(), 1);
            let reports_zeros = trace.defects()[0].to_string().contains("zeros to the end");
            assert_eq!(reports_zeros, tail >= HEADER_SIZE, "{tail}");
            assert!(check_file(&file).contains(&(Rule::BufferSequence, length as u64)));
            let report = assert_repairs(&file);
            assert_eq!((report.bytes, report.dropped), (length as u64, 0));
        }
    }
}

/// Makes the last record of each data buffer unreadable. Returns the number of data buffers.
fn damage_last_records(file: &mut [u8]) -> usize {
    let data = buffer_headers(file).split_off(1);
    for (at, header) in &data {
        overwrite(file, at + OFFSET, &(header.offset - 8).to_le_bytes());
    }
    data.len()
}

#[test]
fn repair_limits_padding_by_the_size_of_the_input() {
    const CLAIMED: u32 = 16 << 20;
    let mut file = small_file(false);
    overwrite(&mut file, HEADER_PAYLOAD_OFFSET, &CLAIMED.to_le_bytes());
    assert_eq!(damage_last_records(&mut file), 12);
    let report = assert_repairs(&file);
    assert_eq!((report.buffers, report.salvaged), (13, 12));
    assert!(report.unpadded >= 11, "{report:?}");
    assert!(report.bytes <= u64::from(CLAIMED) + 16 * file.len() as u64, "{report:?}");
    // Buffers of an ordinary session are padded to the session's buffer size.
    let mut file = small_file(false);
    damage_last_records(&mut file);
    let report = assert_repairs(&file);
    assert_eq!((report.salvaged, report.unpadded, report.bytes), (12, 0, 13 * 1024));
}

#[test]
fn repair_rejects_damaged_buffers_that_unpack_to_far_more_than_the_input() {
    let large = Options { compressed: true, buffer_size: 1 << 20, ..options() };
    let buffer = |n: i64| -> Buffer { (0, vec![encode_event(ANCHOR + n, 0, 60_000); 16]) };
    let build_damaged = |count: usize| {
        let mut file = build_file(large.clone(), &(0..).map(buffer).take(count).collect::<Vec<_>>());
        assert_eq!(damage_last_records(&mut file), count);
        file
    };
    assert_eq!(assert_repairs(&build_damaged(3)).salvaged, 3);
    let file = build_damaged(40);
    assert!(file.len() < 1 << 20, "{} bytes", file.len());
    let result = repair(&Trace::open(&file[..]).unwrap(), &mut Vec::new());
    assert!(matches!(result, Err(Error::TooLarge { what: "repaired file", .. })), "{result:?}");
}
