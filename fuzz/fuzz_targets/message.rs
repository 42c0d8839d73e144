//! Fuzzes event messages: any text parses, any insert formats, output is bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir_decode::message::{EventMessage, InsertFormat};

/// Largest number of bytes that one insert may become: its width and precision are at most 255.
const MAX_BYTES_PER_INSERT: usize = 1024;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let message = EventMessage::parse(&text);
    for has_inserts in [true, false] {
        let mut out = Vec::new();
        let mut inserts = 0;
        message.expand(&mut out, &mut |number, spec, out| {
            inserts += 1;
            if has_inserts {
                match spec {
                    Some(spec) if spec.is_text() => spec.push_text("é\"x", out),
                    Some(spec) => spec.push_number(-(number as i128) << (number % 60), 8, out),
                    None => out.push(b'x'),
                }
            }
            has_inserts
        });
        assert!(std::str::from_utf8(&out).is_ok(), "the message must be UTF-8");
        assert!(out.len() <= text.len() * 3 + inserts * MAX_BYTES_PER_INSERT);
    }
    let mut out = Vec::new();
    if let Some(spec) = InsertFormat::parse(&text) {
        for value in [i128::from(i64::MIN), -1, 0, 65, i128::from(u64::MAX)] {
            (1..=8).for_each(|bytes| spec.push_number(value, bytes, &mut out));
        }
        spec.push_text(&text, &mut out);
        assert!(std::str::from_utf8(&out).is_ok());
    }
});
