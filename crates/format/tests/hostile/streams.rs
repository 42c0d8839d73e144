//! Compressed buffers that are invalid, or claim more than they hold.

use super::*;

/// Returns a file of one compressed buffer with this stream.
fn with_stream(offset: u32, stream: &[u8]) -> Vec<u8> {
    let mut bytes = file(Options { compressed: true, buffer_size: 16 << 20, ..options() }, &[]);
    append_packed(&mut bytes, 0, offset, 1, stream);
    bytes
}

/// Encodes a copy of any length: code 7, half 15, byte 255, 16-bit 0, then 32 bits.
pub(super) fn long_copy(distance: u16, length: u32) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u16((distance - 1) << 3 | 7).put_u8(0x0F).put_u8(0xFF).put_u16(0).put_u32(length.wrapping_sub(3));
    out
}

#[test]
fn impossible_copies_are_reported_with_their_offset() {
    let literal = |byte: u8, flags: u32, rest: &[u8]| [&flags.to_le_bytes()[..], &[byte], rest].concat();
    let one_then_copy = 0x4000_0000;
    let streams = [
        ("empty", Vec::new()),
        ("flags only", vec![0; 4]),
        ("before the first byte", [&u32::MAX.to_le_bytes()[..], &long_copy(1, 100)].concat()),
        ("too far back", literal(0, one_then_copy, &long_copy(8192, 100))),
        ("past the stated length", literal(0, one_then_copy, &long_copy(1, u32::MAX))),
        ("a length that wraps", literal(0, one_then_copy, &long_copy(1, 1))),
        ("cut in the length", literal(0, one_then_copy, &long_copy(1, 100)[..7])),
        ("cut in the token", literal(0, one_then_copy, &[7])),
    ];
    for (what, stream) in streams {
        for offset in [0x48 + 8, 0x1000, 1 << 20, 16 << 20] {
            let bytes = with_stream(offset, &stream);
            let (outcome, peak) = peak_of(|| survive(&bytes).unwrap());
            assert_eq!(outcome.events, 1, "{what}");
            assert!(!outcome.defects.is_empty(), "{what}");
            assert!(outcome.defects.iter().all(|d| offset_of(d) <= bytes.len() as u64), "{what}");
            assert!(peak < 2 * MIB, "{what}: {peak}");
        }
    }
}

#[test]
fn a_copy_that_overlaps_itself_is_legal_and_bounded() {
    // One byte FF repeated to 16 MiB: a buffer of filler.
    let fill = [&0x4000_0000_u32.to_le_bytes()[..], &[0xFF], &long_copy(1, (16 << 20) - 0x48 - 1)].concat();
    let (outcome, peak) = peak_of(|| survive(&with_stream(16 << 20, &fill)).unwrap());
    assert_eq!((outcome.events, outcome.defects.len()), (1, 0));
    assert!(peak < 36 * MIB, "{peak}");
    // One byte 0, repeated: no marker is 0.
    let zeros = [&0x4000_0000_u32.to_le_bytes()[..], &[0], &long_copy(1, (16 << 20) - 0x48 - 1)].concat();
    assert_eq!(survive(&with_stream(16 << 20, &zeros)).unwrap().defects.len(), 1);
}

#[test]
fn a_claim_of_16_mib_costs_a_short_file_nothing() {
    for size in [16_u32 << 20, 64 << 20, u32::MAX] {
        let mut bytes = file(options(), &[]);
        put(&mut bytes, 0, &size.to_le_bytes());
        put(&mut bytes, 0x30, &size.to_le_bytes());
        put(&mut bytes, 0x68, &(16_u32 << 20).to_le_bytes());
        assert_eq!(bytes.len(), 1024);
        let ((outcome, findings), peak) = peak_of(|| {
            let trace = Trace::open(&bytes).unwrap();
            let mut events = trace.events();
            let mut count = 0;
            while events.next().unwrap().is_some() {
                count += 1;
            }
            (count, findings(&bytes))
        });
        assert_eq!(outcome, 1, "{size:#x}");
        assert!(!findings.is_empty());
        assert!(peak < MIB, "{size:#x}: {peak}");
    }
}
