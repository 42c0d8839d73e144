//! Compressed buffers that are invalid, or claim more bytes than they contain.

use super::*;

/// A flag word for a literal and a copy.
const LITERAL_THEN_COPY: u32 = 0x4000_0000;

/// Returns a file of one compressed buffer with this stream.
fn file_with_stream(offset: u32, stream: &[u8]) -> Vec<u8> {
    let mut bytes = build_file(Options { compressed: true, buffer_size: 16 << 20, ..options() }, &[]);
    append_compressed_buffer(&mut bytes, 0, offset, 1, stream);
    bytes
}

/// Encodes a copy of any length. The largest code (7), half byte (15) and byte (255) and a 16-bit 0
/// refer to the next larger field; the last field has 32 bits.
pub(super) fn encode_long_copy(distance: u16, length: u32) -> Vec<u8> {
    let mut copy = Vec::new();
    copy.put_u16((distance - 1) << 3 | 7)
        .put_u8(0x0F)
        .put_u8(0xFF)
        .put_u16(0)
        .put_u32(length.wrapping_sub(3));
    copy
}

#[test]
fn invalid_streams_are_reported_at_an_offset_in_the_file() {
    let stream_with_literal =
        |byte: u8, flags: u32, tail: &[u8]| [&flags.to_le_bytes()[..], &[byte], tail].concat();
    let streams = [
        ("empty", Vec::new()),
        ("flags only", vec![0; 4]),
        ("before the first byte", [&u32::MAX.to_le_bytes()[..], &encode_long_copy(1, 100)].concat()),
        ("too far back", stream_with_literal(0, LITERAL_THEN_COPY, &encode_long_copy(8192, 100))),
        ("past the stated length", stream_with_literal(0, LITERAL_THEN_COPY, &encode_long_copy(1, u32::MAX))),
        ("a length that wraps", stream_with_literal(0, LITERAL_THEN_COPY, &encode_long_copy(1, 1))),
        ("cut in the length", stream_with_literal(0, LITERAL_THEN_COPY, &encode_long_copy(1, 100)[..7])),
        ("cut in the token", stream_with_literal(0, LITERAL_THEN_COPY, &[7])),
    ];
    for (what, stream) in streams {
        // 0x48 is the size of a buffer header.
        for offset in [0x48 + 8, 0x1000, 1 << 20, 16 << 20] {
            let bytes = file_with_stream(offset, &stream);
            let (outcome, peak) = measure_peak(|| read_check_and_repair(&bytes).unwrap());
            assert_eq!(outcome.events, 1, "{what}");
            assert!(!outcome.defects.is_empty(), "{what}");
            assert!(outcome.defects.iter().all(|d| offset_of(d) <= bytes.len() as u64), "{what}");
            assert!(peak < 2 * MIB, "{what}: {peak}");
        }
    }
}

#[test]
fn copy_that_overlaps_itself_is_valid_and_bounded() {
    // A byte FF, repeated to 16 MiB: a buffer of filler.
    let filler =
        [&LITERAL_THEN_COPY.to_le_bytes()[..], &[0xFF], &encode_long_copy(1, (16 << 20) - 0x48 - 1)].concat();
    let (outcome, peak) =
        measure_peak(|| read_check_and_repair(&file_with_stream(16 << 20, &filler)).unwrap());
    assert_eq!((outcome.events, outcome.defects.len()), (1, 0));
    assert!(peak < 36 * MIB, "{peak}");
    // A byte 0, repeated: no record begins with a marker of 0.
    let zeros =
        [&LITERAL_THEN_COPY.to_le_bytes()[..], &[0], &encode_long_copy(1, (16 << 20) - 0x48 - 1)].concat();
    assert_eq!(read_check_and_repair(&file_with_stream(16 << 20, &zeros)).unwrap().defects.len(), 1);
}

#[test]
fn large_claimed_size_of_a_short_file_allocates_little() {
    for size in [16_u32 << 20, 64 << 20, u32::MAX] {
        let mut bytes = build_file(options(), &[]);
        // BufferSize and Offset of the header buffer, and the buffer size of the session.
        overwrite(&mut bytes, 0, &size.to_le_bytes());
        overwrite(&mut bytes, 0x30, &size.to_le_bytes());
        overwrite(&mut bytes, 0x68, &(16_u32 << 20).to_le_bytes());
        assert_eq!(bytes.len(), 1024);
        let ((events, findings), peak) = measure_peak(|| {
            let trace = Trace::open(&bytes).unwrap();
            let mut events = trace.events();
            let mut count = 0;
            while events.next().unwrap().is_some() {
                count += 1;
            }
            (count, check_file(&bytes))
        });
        assert_eq!(events, 1, "{size:#x}");
        assert!(!findings.is_empty());
        assert!(peak < MIB, "{size:#x}: {peak}");
    }
}
