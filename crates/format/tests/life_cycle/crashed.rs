//! Files that were not finalised: cut anywhere, with half a buffer, with a tail of zeros.

use super::*;

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
fn a_writer_that_never_finishes_leaves_such_a_file() {
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
