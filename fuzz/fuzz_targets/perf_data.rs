//! Fuzzes the import of recordings of perf. It must return an error, or a trace that reads without
//! damage.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir_format::etl::Trace;

fuzz_target!(|recording: &[u8]| {
    let Ok((trace, _)) = traceweir_convert::perf_data::import_bytes(recording) else { return };
    let trace = Trace::open(&*trace).expect("the trace opens");
    let mut events = trace.events();
    while events.next().expect("the trace is in memory").is_some() {}
    assert_eq!(events.damage().count, 0, "the trace is damaged");
});
