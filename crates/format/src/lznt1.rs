//! LZNT1 decompression, for the XML that system assessments (WinSat) put into merged traces.
//!
//! A stream is a sequence of chunks, each of which decodes to 4096 bytes; only the last may give
//! fewer. The stream ends at the end of the input or at a chunk header of 0.
//!
//! ```text
//! chunk     u16 header   bits 0-11 data size - 1 │ bits 12-14 signature, 3 │ bit 15 compressed
//!           data         plain bytes, or groups of a flag byte and 8 tokens, lowest flag first
//!
//! flag 0    literal  u8
//! flag 1    copy     u16  ┌ distance - 1 ┬ length - 3 ┐
//!                         high bits         low bits
//! ```
//!
//! The boundary between the two parts of a copy depends on the position in the chunk.
//! `distance - 1` gets as many bits as its largest possible value needs, but at least 4. That value
//! is the number of bytes decoded in this chunk so far, minus 1. `length - 3` gets the remaining
//! bits. No copy reaches out of its chunk.
//!
//! There is no compressor, because no trace needs it. Arguments and errors are those of
//! [`crate::xpress`].
//!
//! Source: Documented ("\[MS-XCA\]: Xpress Compression Algorithm", LZNT1). Observed: the three
//! WinSat events of a merged trace decode to the lengths that they state.

use alloc::vec::Vec;

use crate::wire::Cursor;
use crate::{Error, Result};

const WHAT: &str = "LZNT1 stream";
/// The output of every chunk except the last, in bytes.
const CHUNK_BYTES: usize = 4096;
const SIGNATURE: u16 = 3;

/// Decodes `src` into `out`, which is cleared first, until exactly `length` bytes are decoded.
///
/// Fewer bytes are an error, and so is a copy that reaches out of its chunk or past `length`. After
/// an error, `out` holds the bytes decoded up to the defect.
///
/// ```
/// # use traceweir_format::lznt1;
/// let mut out = Vec::new();
/// lznt1::decompress(&[0x04, 0xb0, 0x02, b'a', 0x02, 0x00, b'b', 0, 0], 7, &mut out)?;
/// assert_eq!(out, b"aaaaaab");
/// # Ok::<(), traceweir_format::Error>(())
/// ```
pub fn decompress(src: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    let mut src = Cursor::new(WHAT, src);
    decompress_chunks(&mut src, length, out)?;
    if out.len() < length {
        return Err(src.invalid("ends before the stated length"));
    }
    Ok(())
}

/// Like [`decompress`], but the stream may also end earlier: `out` then has fewer than `max_bytes`.
pub fn decompress_up_to(src: &[u8], max_bytes: usize, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    decompress_chunks(&mut Cursor::new(WHAT, src), max_bytes, out)
}

/// Decodes chunks until `out` has `length` bytes or the stream ends.
fn decompress_chunks(src: &mut Cursor<'_>, length: usize, out: &mut Vec<u8>) -> Result<()> {
    while out.len() < length && !src.is_empty() {
        let header = src.u16()?;
        if header == 0 {
            break;
        }
        if header >> 12 & 7 != SIGNATURE {
            return Err(src.invalid("chunk without signature"));
        }
        // Only the last chunk may give fewer bytes.
        if !out.len().is_multiple_of(CHUNK_BYTES) {
            return Err(src.invalid("chunk after one that is not full"));
        }
        let size = usize::from(header & 0xFFF).saturating_add(1);
        let start = src.position();
        let data = src.rest().get(..size).unwrap_or(src.rest());
        let max_bytes = CHUNK_BYTES.min(length.saturating_sub(out.len()));
        if header >> 15 == 0 {
            out.extend(data.iter().take(max_bytes));
        } else {
            decompress_chunk(data, start, max_bytes, out)?;
        }
        if out.len() < length {
            src.bytes(size)?;
        }
    }
    Ok(())
}

/// Decodes the tokens of one chunk, until `max_bytes` bytes are added or the tokens end. `start` is
/// the offset of `data` in the stream, for errors.
fn decompress_chunk(data: &[u8], start: usize, max_bytes: usize, out: &mut Vec<u8>) -> Result<()> {
    let first = out.len();
    let mut tokens = Cursor::new(WHAT, data);
    let stream_offset = |offset: usize| start.saturating_add(offset) as u64;
    while !tokens.is_empty() {
        let flags = tokens.u8()?;
        for bit in 0..8 {
            let written = out.len().saturating_sub(first);
            if written >= max_bytes || tokens.is_empty() {
                break;
            }
            if flags >> bit & 1 == 0 {
                out.push(tokens.u8()?);
                continue;
            }
            let offset = stream_offset(tokens.position());
            let token =
                tokens.u16().map_err(|_| Error::Truncated { what: WHAT, offset, needed: 2, available: 1 })?;
            let (distance, length) = split_token(token, written);
            if distance > written || length > max_bytes.saturating_sub(written) {
                return Err(Error::Invalid {
                    what: WHAT,
                    offset,
                    reason: "copy out of its chunk or past the stated length",
                });
            }
            copy_within(out, distance, length);
        }
        if out.len().saturating_sub(first) >= max_bytes {
            break;
        }
    }
    Ok(())
}

/// Returns the distance and length of a copy after `written` bytes of its chunk.
fn split_token(token: u16, written: usize) -> (usize, usize) {
    let bits = usize::BITS.saturating_sub(written.saturating_sub(1).leading_zeros()).clamp(4, 12);
    let length_bits = 16_u32.saturating_sub(bits);
    let length = token & u16::MAX.wrapping_shr(bits);
    (usize::from(token.wrapping_shr(length_bits)).saturating_add(1), usize::from(length).saturating_add(3))
}

/// Appends `length` bytes from `distance` back; the source may overlap the copy itself.
fn copy_within(out: &mut Vec<u8>, distance: usize, length: usize) {
    let from = out.len().saturating_sub(distance);
    let end = out.len().saturating_add(length);
    while out.len() < end {
        let step = out.len().saturating_sub(from).min(end.saturating_sub(out.len()));
        out.extend_from_within(from..from.saturating_add(step));
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use proptest::prelude::*;

    use super::*;

    /// The example of the published specification: its copies cover several splits of distance and
    /// length.
    const EXAMPLE: [u8; 59] = [
        0x38, 0xb0, 0x88, 0x46, 0x23, 0x20, 0x00, 0x20, 0x47, 0x20, 0x41, 0x00, 0x10, 0xa2, 0x47, 0x01, 0xa0,
        0x45, 0x20, 0x44, 0x00, 0x08, 0x45, 0x01, 0x50, 0x79, 0x00, 0xc0, 0x45, 0x20, 0x05, 0x24, 0x13, 0x88,
        0x05, 0xb4, 0x02, 0x4a, 0x44, 0xef, 0x03, 0x58, 0x02, 0x8c, 0x09, 0x16, 0x01, 0x48, 0x45, 0x00, 0xbe,
        0x00, 0x9e, 0x00, 0x04, 0x01, 0x18, 0x90, 0x00,
    ];
    const EXAMPLE_TEXT: &[u8] =
        b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E E F# D E F# G F# D E F# G F# E D E A \
          F# F# G A A G F# E D D E F# E D D\0";

    fn plain_chunk(data: &[u8]) -> Vec<u8> {
        let header = (data.len() - 1) as u16 | SIGNATURE << 12;
        [&header.to_le_bytes()[..], data].concat()
    }

    #[test]
    fn published_example_decodes() {
        let mut out = Vec::new();
        assert_eq!(decompress(&EXAMPLE, EXAMPLE_TEXT.len(), &mut out), Ok(()));
        assert_eq!(out, EXAMPLE_TEXT);
    }

    #[test]
    fn stream_may_end_before_the_limit() {
        let mut out = Vec::new();
        for limit in [EXAMPLE_TEXT.len(), EXAMPLE_TEXT.len() + 1, 1 << 20] {
            assert_eq!(decompress_up_to(&EXAMPLE, limit, &mut out), Ok(()));
            assert_eq!(out, EXAMPLE_TEXT);
            // The end of a stream may be marked.
            assert_eq!(decompress_up_to(&[&EXAMPLE[..], &[0, 0, 9]].concat(), limit, &mut out), Ok(()));
            assert_eq!(out, EXAMPLE_TEXT);
        }
        assert!(decompress_up_to(&EXAMPLE[..20], 1 << 20, &mut out).is_err());
    }

    #[test]
    fn distances_gain_a_bit_as_the_chunk_grows() {
        for (written, bits) in
            [(1, 4), (16, 4), (17, 5), (32, 5), (33, 6), (2048, 11), (2049, 12), (4095, 12)]
        {
            let longest = (0xFFFF >> bits) + 3;
            assert_eq!(split_token(0xFFFF, written), (1 << bits, longest), "after {written}");
        }
    }

    #[test]
    fn chunks_follow_each_other_and_may_be_plain() {
        // A zero, then a copy of 4095 bytes from one byte back.
        let zeros = [0x03, 0xb0, 0x02, 0x00, 0xfc, 0x0f];
        let stream = [&zeros[..], &plain_chunk(&[5; 4096]), &zeros, &plain_chunk(b"end")].concat();
        let mut out = Vec::new();
        assert_eq!(decompress(&stream, 3 * 4096 + 3, &mut out), Ok(()));
        assert_eq!(out, [vec![0; 4096], vec![5; 4096], vec![0; 4096], b"end".to_vec()].concat());
    }

    #[test]
    fn truncated_stream_decodes_up_to_the_truncation() {
        let stream = [plain_chunk(&[9; 4096]), EXAMPLE.to_vec()].concat();
        let expected = [&[9; 4096][..], EXAMPLE_TEXT].concat();
        let mut out = Vec::new();
        for end in 0..stream.len() {
            assert!(decompress(&stream[..end], expected.len(), &mut out).is_err(), "cut at {end}");
            assert!(expected.starts_with(&out), "cut at {end}");
            assert!(out.len() + 2 >= end.min(4098), "cut at {end}");
        }
    }

    #[test]
    fn defects_are_errors_with_an_offset() {
        let mut out = Vec::new();
        let mut error_offset = |stream: &[u8]| match decompress(stream, 100, &mut out) {
            Err(Error::Invalid { offset, .. } | Error::Truncated { offset, .. }) => offset,
            other => panic!("{other:?}"),
        };
        assert_eq!(error_offset(&[]), 0);
        assert_eq!(error_offset(&[0, 0]), 2, "the end mark before the stated length");
        assert_eq!(error_offset(&[0x01, 0xc0, 0, 0]), 2, "signature 4");
        assert_eq!(
            error_offset(&[0x03, 0xb0, 0x02, b'a', 0x00, 0x10]),
            4,
            "a copy from two bytes back after one byte"
        );
        assert_eq!(error_offset(&[0x03, 0xb0, 0x02, b'a', 0xff, 0x00]), 4, "a copy past the stated length");
        assert_eq!(error_offset(&[0x02, 0xb0, 0x02, b'a', 0xff]), 4, "half a copy");
        assert_eq!(
            error_offset(&[0x00, 0x30, b'a', 0x00, 0x30, b'b']),
            5,
            "a chunk after an incomplete chunk"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_give_at_most_the_stated_length(
            mut stream in prop::collection::vec(any::<u8>(), 2..300),
            compressed in any::<bool>(),
            length in 0_usize..9000,
        ) {
            stream[1] = stream[1] & 0x0F | if compressed { 0xB0 } else { 0x30 };
            let mut out = Vec::new();
            let result = decompress(&stream, length, &mut out);
            prop_assert!(out.len() <= length);
            prop_assert_eq!(result.is_ok() && out.len() < length, false);
        }
    }
}
