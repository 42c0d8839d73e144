//! Fuzzes message formats of WPP: TMF text and PDB files.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use traceweir_decode::source::wpp::{MAX_MESSAGES, MAX_WARNINGS, ParsedFormats, pdb, tmf};
use traceweir_format::Record;
use traceweir_format::header::message::MessageHeader;
use traceweir_fuzz::RecordRenderer;

fn check_limits(parsed: &ParsedFormats) {
    assert!(parsed.formats.len() <= MAX_MESSAGES && parsed.warnings.len() <= MAX_WARNINGS);
}

fuzz_target!(|data: &[u8]| {
    if data.starts_with(b"Microsoft C/C++") {
        if let Ok(parsed) = pdb::load(Cursor::new(data)) {
            check_limits(&parsed);
        }
        return;
    }
    let Ok(parsed) = tmf::parse(data) else { return };
    check_limits(&parsed);
    let mut renderer = RecordRenderer::default();
    let _ = renderer.decoder.add_tmf(data);
    for format in parsed.formats.iter().take(16) {
        let (guid, number) = (Some(format.guid), format.number);
        let header =
            MessageHeader { number, guid, pointer_size: 8, sequence: None, time: Some(1), ids: Some((1, 2)) };
        let mut bytes = Vec::new();
        header.encode(&data[..data.len().min(128)], &mut bytes).expect("the message fits into a record");
        renderer.render_record(&Record::parse(&bytes, 0).expect("an encoded record can be parsed"));
    }
});
