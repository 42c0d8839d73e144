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
    let Some((flags, bytes)) = data.split_first() else { return };
    let mut records = Records::new(bytes, usize::from(flags & 0xF8), 0, 1, flags & 1 != 0);
    let mut renderer = RecordRenderer::default();
    let mut position = records.position();
    while let Ok(Some(r)) = records.next() {
        assert!(records.position() >= position + 8, "the walk must go forward");
        position = records.position();
        assert!(r.bytes().ends_with(r.payload()) && r.bytes().len() <= 0xFFFF);
        let _ = (r.thread_id(), r.process_id(), r.hook(), r.provider(), r.descriptor(), r.flags());
        let _ = (r.activity(), r.cpu_times(), r.instance(), r.pmc_counters().len(), r.items_damaged());
        let _ = (r.items().count(), r.items().stack().map(|s| s.frames().count()));
        renderer.render_record(&r);
    }
});
