//! Fuzzes the records of one buffer, and every accessor of a record.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir_format::buffer::{BufferHeader, Records};
use traceweir_fuzz::RecordRenderer;

fuzz_target!(|data: &[u8]| {
    if let Some(header) = data.first_chunk() {
        let header = BufferHeader::parse(header);
        assert!(header.valid_bytes(data.len()) <= data.len());
        assert_eq!(BufferHeader::parse(&header.to_bytes()).to_bytes(), header.to_bytes());
    }
    // The first byte has the offset of the first record in bits 3 to 7. Its lowest bit says whether
    // instance headers are short.
    let Some((flags, bytes)) = data.split_first() else { return };
    let mut records = Records::new(bytes, usize::from(flags & 0xF8), 0, 1, flags & 1 != 0);
    let mut renderer = RecordRenderer::default();
    let mut position = records.position();
    while let Ok(Some(record)) = records.next() {
        assert!(records.position() >= position + 8, "the walk must go forward");
        position = records.position();
        assert!(record.bytes().ends_with(record.payload()) && record.bytes().len() <= 0xFFFF);
        let _ = (record.thread_id(), record.process_id(), record.hook(), record.provider());
        let _ = (record.descriptor(), record.flags(), record.activity(), record.cpu_times());
        let _ = (record.instance(), record.pmc_counters().len(), record.has_damaged_items());
        let _ = (record.items().count(), record.items().stack().map(|stack| stack.frames().count()));
        renderer.render_record(&record);
    }
});
