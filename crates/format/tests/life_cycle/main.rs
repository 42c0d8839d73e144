//! Files in every state a session can leave them in: read, checked and repaired.

mod crashed;
#[path = "../fake/mod.rs"]
mod fake;
mod holes;
mod modes;
mod mutations;
mod old_layouts;
mod rules;
mod seen_in_passing;

use fake::{
    ANCHOR, PROVIDER, START, Seen, buffers, data, encode, event, file, findings, options, put, read, salvage,
    small,
};
use traceweir_format::Record;
use traceweir_format::buffer::HEADER_SIZE;
use traceweir_format::etl::{Options, Repair, Rule, Summary, Trace, Writer, repair};
use traceweir_format::header::Family;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::spec::event::ExtType;
use traceweir_format::spec::session::{
    BUFFER_FLAG_BUFFER_LOST, BUFFER_FLAG_EVENTS_LOST, BUFFER_FLAG_RTBACKUP_CORRUPT,
    EVENT_TRACE_FILE_MODE_APPEND, EVENT_TRACE_FILE_MODE_CIRCULAR,
};
use traceweir_format::time::{ClockKind, FileTime};
use traceweir_format::wire::Put;

const LOG_FILE_HEADER: usize = 0x68;
const END_TIME: usize = LOG_FILE_HEADER + 0x10;
const MODE: usize = LOG_FILE_HEADER + 0x20;
const BUFFERS_WRITTEN: usize = LOG_FILE_HEADER + 0x24;

/// Undoes finalising, as if the session had crashed.
fn crash(file: &mut [u8]) {
    put(file, END_TIME, &[0; 8]);
    put(file, BUFFERS_WRITTEN, &[0; 4]);
}

fn repaired(file: &[u8]) -> (Vec<u8>, Repair) {
    let mut sink = Vec::new();
    let done = repair(&Trace::open(file).unwrap(), &mut sink).unwrap();
    assert_eq!(done.bytes, sink.len() as u64);
    (sink, done)
}

/// Repairs a file, and asserts that the result has no findings and the same events.
fn repairs(file: &[u8]) -> Repair {
    let (before, _) = salvage(file);
    let (sink, done) = repaired(file);
    assert_eq!(findings(&sink), []);
    // Finalising changes the header event, which is an event of the file too.
    let but_header = |seen: Vec<Seen>| -> Vec<Seen> {
        seen.into_iter()
            .map(|s| if fake::is_log_file_header(&s.bytes) { Seen { bytes: Vec::new(), ..s } } else { s })
            .collect()
    };
    assert!(but_header(read(&sink)) == but_header(before.clone()), "other events than before");
    assert_eq!(done.events, before.len() as u64);
    let trace = Trace::open(&sink).unwrap();
    assert_eq!(u64::from(trace.header().buffers_written), trace.buffers().len() as u64);
    done
}

#[test]
fn repaired_file_ends_at_its_last_event_or_its_stated_end() {
    let file = small(false);
    let (sink, done) = repaired(&file);
    assert_eq!((sink, done.end_time), (file, FileTime(START.0 + 10_000)), "a good file stays as it is");
    let mut empty = Vec::new();
    drop(Writer::create(&mut empty, options()).unwrap());
    assert_eq!(repairs(&empty).end_time, START);
    let unset = Options { start_time: FileTime(0), boot_time: FileTime(0), ..options() };
    let mut empty = Vec::new();
    drop(Writer::create(&mut empty, unset).unwrap());
    assert_eq!(repairs(&empty).end_time, FileTime(1), "0 would mean that it is not finalised");
    assert!(Writer::create(Vec::new(), options()).unwrap().finish(Summary::default()).is_ok());
}
