//! Reads, checks and repairs files in every state that a session can leave.

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
    ANCHOR, PROVIDER, ReadEvent, START, buffer_headers, build_file, check_file, encode_event, encode_record,
    options, overwrite, read_damaged, read_data_events, read_events, small_file,
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

/// File offset of the log-file header, the payload of the first event.
const HEADER_PAYLOAD_OFFSET: usize = 0x68;

// Offsets of fields in a buffer header.
const SAVED_OFFSET: usize = 0x04;
const SEQUENCE_NUMBER: usize = 0x18;
const PROCESSOR_INDEX: usize = 0x28;
const LOGGER_ID: usize = 0x2A;
const STATE: usize = 0x2C;
const OFFSET: usize = 0x30;
const FLAGS: usize = 0x34;
const TYPE: usize = 0x36;

// File offsets of fields of the log-file header, in the 64-bit layout.
const END_TIME_OFFSET: usize = HEADER_PAYLOAD_OFFSET + 0x10;
const LOG_FILE_MODE_OFFSET: usize = HEADER_PAYLOAD_OFFSET + 0x20;
const BUFFERS_WRITTEN_OFFSET: usize = HEADER_PAYLOAD_OFFSET + 0x24;

/// Undoes finalising, as if the session had crashed.
fn undo_finalising(file: &mut [u8]) {
    overwrite(file, END_TIME_OFFSET, &[0; 8]);
    overwrite(file, BUFFERS_WRITTEN_OFFSET, &[0; 4]);
}

fn repair_file(file: &[u8]) -> (Vec<u8>, Repair) {
    let mut sink = Vec::new();
    let report = repair(&Trace::open(file).unwrap(), &mut sink).unwrap();
    assert_eq!(report.bytes, sink.len() as u64);
    (sink, report)
}

/// Repairs a file, and asserts that the result has no findings and the same events.
fn assert_repairs(file: &[u8]) -> Repair {
    let (before, _) = read_damaged(file);
    let (sink, report) = repair_file(file);
    assert_eq!(check_file(&sink), []);
    // Finalising changes the bytes of the header event.
    let without_header_bytes = |events: Vec<ReadEvent>| -> Vec<ReadEvent> {
        let clear_header = |mut event: ReadEvent| {
            if fake::is_log_file_header(&event.bytes) {
                event.bytes.clear();
            }
            event
        };
        events.into_iter().map(clear_header).collect()
    };
    assert!(
        without_header_bytes(read_events(&sink)) == without_header_bytes(before.clone()),
        "repair changed the events"
    );
    assert_eq!(report.events, before.len() as u64);
    let trace = Trace::open(&sink).unwrap();
    assert_eq!(u64::from(trace.header().buffers_written), trace.buffers().len() as u64);
    report
}

#[test]
fn repaired_file_ends_at_its_last_event_or_its_stated_end() {
    let file = small_file(false);
    let (sink, report) = repair_file(&file);
    assert_eq!((sink, report.end_time), (file, FileTime(START.0 + 10_000)), "repair changed a sound file");
    let mut empty = Vec::new();
    drop(Writer::create(&mut empty, options()).unwrap());
    assert_eq!(assert_repairs(&empty).end_time, START);
    let unset = Options { start_time: FileTime(0), boot_time: FileTime(0), ..options() };
    let mut empty = Vec::new();
    drop(Writer::create(&mut empty, unset).unwrap());
    // An end time of 0 would mark the file as unfinalised.
    assert_eq!(assert_repairs(&empty).end_time, FileTime(1), "the end time marks an unfinalised file");
    assert!(Writer::create(Vec::new(), options()).unwrap().finish(Summary::default()).is_ok());
}
