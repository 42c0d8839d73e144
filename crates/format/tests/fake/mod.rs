//! Builds small traces from numbered events and chosen buffers, and reads and checks them.
#![allow(dead_code)] // Each test binary uses only some of the functions.

use traceweir_format::buffer::{BufferHeader, HEADER_SIZE};
#[cfg(feature = "std")]
use traceweir_format::etl::{BufferThreads, Damage};
use traceweir_format::etl::{Finding, Options, Rule, Summary, Trace, Writer, check};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::message::MessageHeader;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::time::FileTime;
use traceweir_format::{Guid, Record, Result};

pub(crate) const PROVIDER: Guid = Guid::from_u128(0x7357_0000_0001_4000_8000_0000_0000_00AA);
pub(crate) const START: FileTime = FileTime(133_500_000_000_000_000);
/// The stamp at [`START`].
pub(crate) const ANCHOR: i64 = 1_000;

/// An event from a reader: processor, stamp and record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadEvent {
    pub(crate) cpu: u16,
    pub(crate) time: i64,
    pub(crate) bytes: Vec<u8>,
}

impl ReadEvent {
    pub(crate) fn from_record(record: &Record<'_>) -> Self {
        Self { cpu: record.cpu(), time: record.time(), bytes: record.bytes().to_vec() }
    }
}

/// A data buffer to be written: its processor and its records.
pub(crate) type Buffer = (u16, Vec<Vec<u8>>);

pub(crate) fn options() -> Options {
    Options {
        buffer_size: 1024,
        logger_id: 7,
        session_name: "fake".into(),
        file_name: "fake.etl".into(),
        anchor: ANCHOR,
        start_time: START,
        boot_time: FileTime(START.0 - 1),
        ..Options::default()
    }
}

pub(crate) fn encode_record(write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    out
}

/// Encodes an event with the id `number`. Each of its `payload_bytes` bytes is `number` too.
pub(crate) fn encode_event(time: i64, number: usize, payload_bytes: usize) -> Vec<u8> {
    let header = EventHeader {
        time,
        provider: PROVIDER,
        thread_id: 10,
        process_id: 20,
        descriptor: EventDescriptor { id: number as u16, ..Default::default() },
        ..Default::default()
    };
    encode_record(|out| header.encode(&vec![number as u8; payload_bytes], out))
}

/// Encodes a WPP message without a stamp.
pub(crate) fn encode_unstamped_message(number: u16) -> Vec<u8> {
    let header = MessageHeader { number, pointer_size: 8, sequence: None, guid: None, time: None, ids: None };
    encode_record(|out| header.encode(b"args", out))
}

/// Builds a finalised file with these data buffers.
pub(crate) fn build_file(options: Options, buffers: &[Buffer]) -> Vec<u8> {
    let mut writer = Writer::create(Vec::new(), options).unwrap();
    for (cpu, records) in buffers {
        writer.append(*cpu, ANCHOR + 9_999, &records.concat()).unwrap();
    }
    writer.finish(Summary { end_time: FileTime(START.0 + 10_000), ..Default::default() }).unwrap()
}

/// Builds a file of three processors with twelve data buffers, two events each. The buffers are in
/// time order.
pub(crate) fn small_file(compressed: bool) -> Vec<u8> {
    let buffers: Vec<_> = (0..12_usize)
        .map(|n| {
            let time = ANCHOR + 10 * n as i64;
            ((n % 3) as u16, vec![encode_event(time, 2 * n, 40), encode_event(time + 15, 2 * n + 1, 100)])
        })
        .collect();
    build_file(Options { compressed, ..options() }, &buffers)
}

/// Reads a file that may be damaged. Returns all events in time order, and the number of defects
/// inside buffers.
pub(crate) fn read_damaged(bytes: &[u8]) -> (Vec<ReadEvent>, u64) {
    let trace = Trace::open(bytes).unwrap();
    let mut events = trace.events();
    let mut read = Vec::new();
    while let Some(record) = events.next().unwrap() {
        read.push(ReadEvent::from_record(&record));
    }
    let damage = events.damage().clone();
    #[cfg(feature = "std")]
    compare_with_threads(bytes, &read, &damage);
    (read, damage.count)
}

/// Reads a file with threads that load its buffers, and compares events and defects.
#[cfg(feature = "std")]
fn compare_with_threads(bytes: &[u8], expected: &[ReadEvent], damage: &Damage) {
    let threads = BufferThreads::start(2);
    let trace = Trace::open(std::sync::Arc::<Vec<u8>>::new(bytes.to_vec())).unwrap();
    let mut events = trace.events_with(&threads);
    let mut read = Vec::new();
    while let Some(record) = events.next().unwrap() {
        read.push(ReadEvent::from_record(&record));
    }
    assert!(read == expected, "other threads change the events");
    assert_eq!(events.damage().count, damage.count);
    assert_eq!(format!("{:?}", events.damage().defects), format!("{:?}", damage.defects));
}

/// Reads all events of an undamaged file.
pub(crate) fn read_events(bytes: &[u8]) -> Vec<ReadEvent> {
    let (events, damage) = read_damaged(bytes);
    assert_eq!(damage, 0, "the file is damaged");
    events
}

/// Like [`read_events`], without log-file header events.
pub(crate) fn read_data_events(bytes: &[u8]) -> Vec<ReadEvent> {
    read_events(bytes).into_iter().filter(|event| !is_log_file_header(&event.bytes)).collect()
}

/// Returns whether the record has a system header (type 1 or 2) and the hook id 0.
pub(crate) fn is_log_file_header(record: &[u8]) -> bool {
    matches!(record[2..8], [1 | 2, 0xC0, _, _, 0, 0])
}

/// Runs the checker. Returns the broken rules with their offsets.
pub(crate) fn check_file(bytes: &[u8]) -> Vec<(Rule, u64)> {
    let mut broken_rules = Vec::new();
    let trace = Trace::open(bytes).unwrap();
    check(&trace, &mut |Finding { rule, offset, detail }| {
        assert!(!detail.is_empty());
        broken_rules.push((rule, offset));
    })
    .unwrap();
    broken_rules
}

/// Parses the header of each buffer. Returns the file offset of each buffer and its header.
pub(crate) fn buffer_headers(bytes: &[u8]) -> Vec<(usize, BufferHeader)> {
    let mut headers = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let header = BufferHeader::parse(bytes[at..].first_chunk::<HEADER_SIZE>().unwrap());
        headers.push((at, header));
        at += header.buffer_size as usize;
    }
    headers
}

pub(crate) fn overwrite(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}
