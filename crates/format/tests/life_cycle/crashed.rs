//! Files that were not finalised: truncated anywhere, with half a buffer, with a tail of zeros.

use super::*;
use crate::fake::Buffer;
use traceweir_format::Error;

#[test]
fn a_file_that_was_not_finalised_is_read_to_its_last_event() {
    for compressed in [false, true] {
        let whole = small(compressed);
        for count in [0_u32, 1, 5, 9999] {
            let mut file = whole.clone();
            crash(&mut file);
            put(&mut file, BUFFERS_WRITTEN, &count.to_le_bytes());
            assert_eq!(data(&file), data(&whole));
            assert_eq!(findings(&file), [(Rule::NotFinalised, 0x78), (Rule::BuffersWritten, 0x8C)]);
            let done = repairs(&file);
            assert_eq!((done.buffers, done.salvaged, done.dropped), (13, 0, 0));
            assert_eq!(done.end_time, FileTime(START.0 + 125), "the last event");
        }
    }
}

#[test]
fn writer_that_never_finishes_leaves_an_unfinalised_file() {
    for compressed in [false, true] {
        let mut sink = Vec::new();
        let mut writer = Writer::create(&mut sink, Options { compressed, ..options() }).unwrap();
        for n in 0..20 {
            writer.write_record(n % 2, &event(ANCHOR + i64::from(n), usize::from(n), 64)).unwrap();
        }
        writer.flush().unwrap();
        drop(writer);
        assert!(!Trace::open(&sink).unwrap().is_finalised());
        assert_eq!(data(&sink).len(), 20);
        repairs(&sink);
        let (done, _) = repaired(&sink);
        assert_eq!(Trace::open(&done).unwrap().header().processors, 2, "the writer had begun with one");
    }
}

#[test]
fn half_a_last_buffer_keeps_its_whole_records() {
    for compressed in [false, true] {
        let mut file = small(compressed);
        crash(&mut file);
        let (last, head) = *buffers(&file).last().unwrap();
        let events = data(&file).len();
        // Records of 120 and 180 bytes, then padding and filler.
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
            let cut = &file[..last + keep];
            assert_eq!(salvage(cut).0.len(), events + 1 - lost, "{keep} bytes, compressed {compressed}");
            let done = repairs(cut);
            let salvaged = u32::from(lost < 2);
            assert_eq!(done.salvaged, salvaged);
            assert_eq!(done.buffers, 12 + salvaged);
        }
        assert!(head.buffer_size > 0);
    }
}

#[test]
fn every_cut_of_an_unfinalised_file_is_repaired() {
    for compressed in [false, true] {
        let mut file = small(compressed);
        crash(&mut file);
        let second = buffers(&file)[1].0;
        for length in (second..file.len()).step_by(41) {
            repairs(&file[..length]);
        }
    }
}

#[test]
fn a_cut_header_buffer_is_rebuilt_if_its_event_is_whole() {
    let mut file = small(false);
    crash(&mut file);
    let first_event = HEADER_SIZE + Record::parse(&file[HEADER_SIZE..], 0).unwrap().bytes().len();
    let done = repairs(&file[..first_event]);
    assert_eq!((done.buffers, done.salvaged, done.bytes), (1, 1, 1024));
    assert!(Trace::open(&file[..first_event - 1]).is_err());
}

#[test]
fn a_header_buffer_that_claims_to_end_inside_its_event_is_rebuilt() {
    let mut file = small(false);
    for offset in [0x04, 0x30] {
        put(&mut file, offset, &0x50_u32.to_le_bytes());
    }
    let (sink, done) = repaired(&file);
    assert!(done.salvaged >= 1);
    assert_eq!(Trace::open(&sink).unwrap().header().session_name, "fake");
    assert_eq!(data(&sink), data(&small(false)), "no data buffer is touched");
}

#[test]
fn a_preallocated_tail_of_zeros_is_left_out() {
    for compressed in [false, true] {
        for tail in [1, 7, 0x47, 0x48, 1023, 1024, 1025, 4096, 100_000] {
            let mut file = small(compressed);
            crash(&mut file);
            let length = file.len();
            file.resize(length + tail, 0);
            let trace = Trace::open(&file).unwrap();
            assert_eq!(trace.defects().len(), 1);
            let zeros = trace.defects()[0].to_string().contains("zeros to the end");
            assert_eq!(zeros, tail >= HEADER_SIZE, "{tail}");
            assert!(findings(&file).contains(&(Rule::BufferSequence, length as u64)));
            let done = repairs(&file);
            assert_eq!((done.bytes, done.dropped), (length as u64, 0));
        }
    }
}

/// Makes the last record of each data buffer unreadable.
fn spoil_last_records(file: &mut [u8]) -> usize {
    let data = buffers(file).split_off(1);
    for (at, head) in &data {
        put(file, at + 0x30, &(head.offset - 8).to_le_bytes());
    }
    data.len()
}

#[test]
fn repair_pads_no_more_than_the_input_warrants() {
    const CLAIMED: u32 = 16 << 20;
    let mut file = small(false);
    put(&mut file, LOG_FILE_HEADER, &CLAIMED.to_le_bytes());
    assert_eq!(spoil_last_records(&mut file), 12);
    let done = repairs(&file);
    assert_eq!((done.buffers, done.salvaged), (13, 12));
    assert!(done.unpadded >= 11, "{done:?}");
    assert!(done.bytes <= u64::from(CLAIMED) + 16 * file.len() as u64, "{done:?}");
    // A session of ordinary size keeps its buffers in full.
    let mut file = small(false);
    spoil_last_records(&mut file);
    let done = repairs(&file);
    assert_eq!((done.salvaged, done.unpadded, done.bytes), (12, 0, 13 * 1024));
}

#[test]
fn repair_rejects_damaged_buffers_that_unpack_to_far_more_than_the_input() {
    let large = Options { compressed: true, buffer_size: 1 << 20, ..options() };
    let buffer = |n: i64| -> Buffer { (0, vec![event(ANCHOR + n, 0, 60_000); 16]) };
    let make = |count: usize| {
        let mut file = file(large.clone(), &(0..).map(buffer).take(count).collect::<Vec<_>>());
        assert_eq!(spoil_last_records(&mut file), count);
        file
    };
    assert_eq!(repairs(&make(3)).salvaged, 3);
    let file = make(40);
    assert!(file.len() < 1 << 20, "{} bytes", file.len());
    let refused = repair(&Trace::open(&file[..]).unwrap(), &mut Vec::new());
    assert!(matches!(refused, Err(Error::TooLarge { what: "repaired file", .. })), "{refused:?}");
}
