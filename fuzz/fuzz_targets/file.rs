//! Fuzzes a whole trace file: opened, walked in time order, decoded, checked, repaired, and
//! continued as by a session that appends to it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir_format::etl::{Tail, Trace, Writer, check, repair};
use traceweir_fuzz::RecordRenderer;

fuzz_target!(|data: &[u8]| {
    if let Ok(tail) = Tail::find(&data) {
        let length = usize::try_from(tail.length()).expect("the tail ends within the file");
        let mut continued = data[..length].to_vec();
        let writer = Writer::reopen(&mut continued, &tail);
        assert!(writer.and_then(|writer| writer.finish(Default::default())).is_ok());
        assert!(Trace::open(continued).is_ok(), "a continued file must open");
    }
    let Ok(trace) = Trace::open(data) else { return };
    let mut renderer = RecordRenderer::default();
    let mut events = trace.events();
    let mut count = 0_u64;
    while let Ok(Some(record)) = events.next() {
        renderer.render_record(&record);
        let _ = trace.clock().file_time(record.time()).to_string();
        count += 1;
    }
    assert!(
        count <= data.len() as u64 * 2048 / 8,
        "there are more records than the decompressed file can hold"
    );
    let mut findings = 0_u64;
    let _ = check(&trace, &mut |finding| {
        assert!(!finding.detail.is_empty() && !finding.rule.name().is_empty());
        findings += 1;
    });
    let mut end = 0;
    for (offset, size) in trace.holes() {
        assert!(offset >= end && size > 0, "holes must not overlap");
        end = offset + size;
    }
    assert!(end <= data.len() as u64, "holes must lie within the file");
    let mut repaired = Vec::new();
    if let Ok(summary) = repair(&trace, &mut repaired) {
        let repaired = Trace::open(repaired).expect("a repaired file can be opened");
        assert_eq!(
            repaired.buffers().len(),
            summary.buffers as usize,
            "a repaired file must have the reported buffers"
        );
        assert_eq!(
            repaired.header().buffers_written,
            summary.buffers,
            "BuffersWritten of a repaired file must be right"
        );
        let mut events = repaired.events();
        let mut readable = 0;
        while let Ok(Some(_)) = events.next() {
            readable += 1;
        }
        assert_eq!(readable, summary.events, "a repaired file must have the reported events");
    }
});
