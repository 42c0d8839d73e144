//! Fuzzes decompression of any bytes, and compression, which must read back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir_format::{lznt1, xpress};

fuzz_target!(|data: &[u8]| {
    let Some(([a, b, c, d], src)) = data.split_first_chunk() else { return };
    let limit = usize::from(u16::from_le_bytes([*a, *b]));
    let want = usize::from(u16::from_le_bytes([*c, *d]));
    let (mut whole, mut part) = (Vec::new(), Vec::new());
    let complete = xpress::decompress(src, limit, &mut whole);
    assert!(whole.len() <= limit);
    assert_eq!(complete.is_ok(), whole.len() == limit, "success is all bytes");
    let prefix = xpress::decompress_prefix(src, want, limit, &mut part);
    assert!(part.len() <= limit && whole.starts_with(&part), "a prefix is the start of the whole");
    assert_eq!(prefix.is_ok(), part.len() >= want.min(limit));

    let (mut packed, mut back) = (Vec::new(), Vec::new());
    xpress::Compressor::new().compress(src, &mut packed);
    xpress::decompress(&packed, src.len(), &mut back).expect("our own stream");
    assert_eq!(back, src, "what was compressed reads back");

    let mut text = Vec::new();
    let _ = lznt1::decompress(src, limit, &mut text);
    assert!(text.len() <= limit);
});
