//! Fuzzes decompression of any bytes, and compression, whose result must decompress to its input.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir_format::{lznt1, xpress};

fuzz_target!(|data: &[u8]| {
    // The input is the length of the output, the length of a prefix, and the stream.
    let Some(([a, b, c, d], src)) = data.split_first_chunk() else { return };
    let length = usize::from(u16::from_le_bytes([*a, *b]));
    let prefix_length = usize::from(u16::from_le_bytes([*c, *d]));
    let (mut complete_output, mut part) = (Vec::new(), Vec::new());
    let result = xpress::decompress(src, length, &mut complete_output);
    assert!(complete_output.len() <= length);
    assert_eq!(
        result.is_ok(),
        complete_output.len() == length,
        "decompression must succeed exactly if it returns all bytes"
    );
    let prefix = xpress::decompress_prefix(src, prefix_length, length, &mut part);
    assert!(
        part.len() <= length && complete_output.starts_with(&part),
        "the prefix must be the start of the complete output"
    );
    assert_eq!(prefix.is_ok(), part.len() >= prefix_length.min(length));

    let (mut packed, mut back) = (Vec::new(), Vec::new());
    xpress::Compressor::new().compress(src, &mut packed);
    xpress::decompress(&packed, src.len(), &mut back).expect("a compressed stream can be decompressed");
    assert_eq!(back, src, "compressed bytes must read back equal");

    let mut text = Vec::new();
    let _ = lznt1::decompress(src, length, &mut text);
    assert!(text.len() <= length);
});
