use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::{Compressor, decompress, decompress_prefix};
use crate::Error;

/// Decodes by the documented procedure, step by step. Returns the output and, if the stream is
/// valid, the number of bytes that were used.
fn reference_decode(src: &[u8], output_length: usize) -> (Vec<u8>, Option<usize>) {
    let mut out = Vec::new();
    let used = reference_steps(src, output_length, &mut out);
    (out, used)
}

fn reference_steps(src: &[u8], output_length: usize, out: &mut Vec<u8>) -> Option<usize> {
    let read_number = |at: &mut usize, n: usize| {
        let bytes = src.get(*at..*at + n)?;
        *at += n;
        Some(bytes.iter().rev().fold(0_usize, |v, &b| v << 8 | usize::from(b)))
    };
    let (mut at, mut flags, mut count, mut half_byte) = (0, 0, 0, None);
    while out.len() < output_length {
        if count == 0 {
            (flags, count) = (read_number(&mut at, 4)?, 32);
        }
        count -= 1;
        if flags >> count & 1 == 0 {
            out.push(read_number(&mut at, 1)? as u8);
            continue;
        }
        let token = read_number(&mut at, 2)?;
        let (mut length, distance) = (token & 7, (token >> 3) + 1);
        if length == 7 {
            length = match half_byte.take() {
                Some(offset) => usize::from(src[offset]) >> 4,
                None => {
                    half_byte = Some(at);
                    read_number(&mut at, 1)? & 15
                }
            };
            if length == 15 {
                length = read_number(&mut at, 1)?;
                if length == 255 {
                    length = match read_number(&mut at, 2)? {
                        0 => read_number(&mut at, 4)?,
                        short => short,
                    };
                    // The stored length includes the 15 and 7 that are added below.
                    length = length.checked_sub(22)?;
                }
                length += 15;
            }
            length += 7;
        }
        length += 3;
        if distance > out.len() || length > output_length - out.len() {
            return None;
        }
        for _ in 0..length {
            out.push(out[out.len() - distance]);
        }
    }
    Some(at)
}

fn compress(data: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    Compressor::new().compress(data, &mut stream);
    stream
}

fn assert_equals_reference(stream: &[u8], output_length: usize) {
    let (expected, used) = reference_decode(stream, output_length);
    // Old content of the output must not matter.
    let mut out = vec![0xA5; 1000];
    let result = decompress(stream, output_length, &mut out);
    assert_eq!(result.is_ok(), used.is_some(), "{result:?}");
    assert_eq!(out, expected);
}

/// Text of few words, with repetitions at many distances and lengths.
fn repetitive_data() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..40),
        (any::<u8>(), 1_usize..400).prop_map(|(b, n)| vec![b; n]),
        (0_u8..20).prop_map(|n| vec![b'a' + n, b' ', n]),
        Just(b"event trace ".to_vec()),
    ];
    prop::collection::vec(word, 0..200).prop_map(|words| words.concat())
}

/// Streams of mostly valid tokens: random flags, literals, and copies from short distances.
fn plausible_stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 4..12),
        4 => (0_u16..64).prop_map(|m| m.to_le_bytes().to_vec()),
        1 => Just(vec![0; 4]),
        1 => Just(vec![0xFF, 0xFF, 0x00, 0x01]),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| [vec![0, 0, 0, 0x10], pieces.concat()].concat())
}

proptest! {
    #[test]
    fn compressed_data_decompresses_to_the_original(data in repetitive_data()) {
        let stream = compress(&data);
        let mut out = Vec::new();
        prop_assert_eq!(decompress(&stream, data.len(), &mut out), Ok(()));
        prop_assert_eq!(&out, &data);
        // The whole stream is used, except for a last flag word without tokens. A reader that does
        // not know the length needs that word.
        let (expected, used) = reference_decode(&stream, data.len());
        prop_assert_eq!(expected, data);
        prop_assert!([&[][..], &[0xFF; 4]].contains(&&stream[used.unwrap()..]));
    }

    #[test]
    fn arbitrary_bytes_decode_like_the_reference(
        stream in prop::collection::vec(any::<u8>(), 0..400),
        output_length in 0_usize..2000,
    ) {
        assert_equals_reference(&stream, output_length);
    }

    #[test]
    fn plausible_streams_decode_like_the_reference(
        stream in plausible_stream(),
        output_length in 0_usize..5000,
    ) {
        assert_equals_reference(&stream, output_length);
    }

    #[test]
    fn corrupted_streams_decode_like_the_reference(
        data in repetitive_data(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        stated_length in 0_usize..20_000,
    ) {
        let mut stream = compress(&data);
        for (index, byte) in changes {
            let index = index.index(stream.len());
            stream[index] = byte;
        }
        assert_equals_reference(&stream, data.len());
        assert_equals_reference(&stream, stated_length);
    }

    #[test]
    fn prefix_equals_the_start_of_the_data(data in repetitive_data(), wanted_bytes in 0_usize..3000) {
        let mut out = Vec::new();
        decompress_prefix(&compress(&data), wanted_bytes, data.len(), &mut out).unwrap();
        prop_assert!(out.len() >= wanted_bytes.min(data.len()) && data.starts_with(&out));
    }
}

#[test]
fn documented_examples_compress_and_decompress() {
    // A flag word of 26 literals (zeros) and six unused bits (ones).
    let mut alphabet = vec![0x3F, 0, 0, 0];
    alphabet.extend(b'a'..=b'z');
    assert_eq!(compress(&alphabet[4..]), alphabet);

    let abc = b"abc".repeat(100);
    // Flags of three literals and a copy; "abc"; the token (distance 3, longer form of the length),
    // the half byte 15 and the byte 255, then 297 bytes minus 3 in 16 bits.
    let stream = [0xFF, 0xFF, 0xFF, 0x1F, 0x61, 0x62, 0x63, 0x17, 0x00, 0x0F, 0xFF, 0x26, 0x01];
    assert_eq!(compress(&abc), stream);
    let mut out = Vec::new();
    assert_eq!(decompress(&stream, 300, &mut out), Ok(()));
    assert_eq!(out, abc);
}

#[test]
fn full_last_flag_word_is_followed_by_an_empty_one() {
    assert_eq!(compress(&[]), [0xFF; 4]);
    let distinct: Vec<u8> = (0..32).collect();
    let stream = compress(&distinct);
    assert_eq!((stream.len(), &stream[..4], &stream[36..]), (40, &[0; 4][..], &[0xFF; 4][..]));
}

#[test]
fn copies_overlap_themselves_at_every_short_distance_and_length() {
    for distance in 1_usize..40 {
        for length in 3..400 {
            let seed: Vec<u8> = (0..distance as u8).collect();
            let data: Vec<u8> = seed.iter().cycle().take(distance + length).copied().collect();
            let mut out = Vec::new();
            decompress(&compress(&data), data.len(), &mut out).unwrap();
            assert_eq!(out, data, "{length} bytes from {distance} back");
        }
    }
}

#[test]
fn every_form_of_length_is_written_and_read() {
    // Shortest and longest lengths of 3 bits, a half byte, a byte, 16 bits and 32 bits.
    for length in [3, 9, 10, 24, 25, 279, 280, 281, 65_538, 65_539, 200_000] {
        let data = vec![7; length + 1];
        let stream = compress(&data);
        let mut out = Vec::new();
        assert_eq!(decompress(&stream, data.len(), &mut out), Ok(()), "{length}");
        assert_eq!(out, data);
        assert!(stream.len() < 40, "{length} bytes took {}", stream.len());
    }
}

#[test]
fn length_of_32_bits_is_read() {
    // One literal, then a copy of 100,003 bytes: the last four bytes are this length minus 3.
    let stream = [0xFF, 0xFF, 0xFF, 0x7F, b'x', 0x07, 0x00, 0x0F, 0xFF, 0, 0, 0xA0, 0x86, 0x01, 0x00];
    let mut out = Vec::new();
    assert_eq!(decompress(&stream, 100_004, &mut out), Ok(()));
    assert_eq!(out, vec![b'x'; 100_004]);
    assert!(decompress(&stream, 100_003, &mut out).is_err());
    assert_eq!(out, b"x");
}

#[test]
fn truncated_stream_decodes_up_to_the_truncation() {
    let data: Vec<u8> = (0_u32..600).flat_map(|i| (i * i % 97).to_le_bytes()).collect();
    let stream = compress(&data);
    let mut out = Vec::new();
    let mut longest = 0;
    for end in 0..stream.len() {
        let result = decompress(&stream[..end], data.len(), &mut out);
        assert!(data.starts_with(&out) && out.len() >= longest, "cut at {end}");
        assert_eq!(result.is_err(), out.len() < data.len(), "cut at {end}");
        longest = out.len();
    }
}

#[test]
fn defects_are_reported_with_their_offset() {
    let mut out = Vec::new();
    // Returns the offset of the defect, and the number of bytes that were decoded before it.
    let mut decode_error = |stream: &[u8], output_length| match decompress(stream, output_length, &mut out) {
        Err(Error::Invalid { offset, .. } | Error::Truncated { offset, .. }) => (offset, out.len()),
        other => panic!("{other:?}"),
    };
    assert_eq!(decode_error(&[], 1), (0, 0), "an empty stream");
    assert_eq!(decode_error(&[0, 0, 0], 1), (0, 0), "part of a flag word");
    assert_eq!(
        decode_error(&[0, 0, 0, 0x40, b'a', 8, 0], 9),
        (5, 1),
        "a copy from two bytes back after one byte"
    );
    assert_eq!(decode_error(&[0, 0, 0, 0x40, b'a', 6, 0], 9), (5, 1), "a copy of nine bytes with eight left");
    assert_eq!(
        decode_error(&[0, 0, 0, 0x40, b'a', 7, 0, 15, 255, 21, 0], 99),
        (9, 1),
        "length 21 in the long form"
    );
    assert_eq!(decode_error(&[0, 0, 0, 0x40, b'a', 7, 0, 15], 99), (8, 1), "no byte after the half byte");
    assert_eq!(decode_error(&[0, 0, 0, 0, b'a', b'b'], 3), (6, 2), "one literal is missing");
}

#[test]
fn large_stated_length_allocates_little_memory() {
    let mut out = Vec::new();
    assert!(decompress(&[0, 0, 0, 0, b'a'], usize::MAX, &mut out).is_err());
    assert_eq!(out, b"a");
    assert!(out.capacity() <= 1 << 16);
}

#[test]
fn reused_compressor_writes_the_same_stream_as_a_new_one() {
    let mut compressor = Compressor::new();
    let mut stream = Vec::new();
    for n in 0..50_u32 {
        let data: Vec<u8> = (0..n * 40).flat_map(|i| (i % 23 * n).to_le_bytes()).collect();
        compressor.compress(&data, &mut stream);
        assert_eq!(stream, compress(&data));
    }
}

#[test]
fn positions_that_wrap_do_not_change_the_data() {
    // Longer than 16-bit positions reach, with repetitions of which some are too far back.
    let mut state = 1_u32;
    let mut data: Vec<u8> = Vec::new();
    while data.len() < 300_000 {
        state = state.wrapping_mul(0x0019_660D).wrapping_add(0x3C6E_F35F);
        let distance = (state >> 8) as usize % 70_000 + 1;
        let length = (state >> 3) as usize % 40;
        match data.len().checked_sub(distance) {
            Some(from) => data.extend_from_within(from..from + length.min(distance)),
            None => data.extend_from_slice(&state.to_le_bytes()),
        }
    }
    let mut out = Vec::new();
    decompress(&compress(&data), data.len(), &mut out).unwrap();
    assert_eq!(out, data);
}
