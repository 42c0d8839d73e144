//! Relogging: events are kept byte for byte, clocks are reconciled, changes are applied, and
//! failures leave no output file.

mod changes;
mod clocks;
mod failures;
mod live;
mod stacks;

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use traceweir::Guid;
use traceweir::consumer::Event;
use traceweir::relog::{Output, Relogger, Settings, Summary};
use traceweir_format::etl::{self, Options, Summary as FileSummary, Trace, Writer};
use traceweir_format::header::classic::ClassicHeader;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::message::MessageHeader;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::hook;
use traceweir_format::spec::session::{EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_RELOG_MODE};
use traceweir_format::time::FileTime;

const START_TIME: i64 = 132_400_000_000_000_000;
const PROVIDER: Guid = Guid::from_u128(0x1111_2222);

/// Processor, timestamp and bytes of an event.
type RecordedEvent = (u16, i64, Vec<u8>);

/// Returns options whose clock counts units of 100 ns, and has the value 5,000 at the start.
fn options() -> Options {
    Options {
        buffer_size: 4096,
        processors: 4,
        anchor: 5_000,
        start_time: FileTime(START_TIME),
        boot_time: FileTime(START_TIME - 77),
        session_name: "before".into(),
        file_name: "before.etl".into(),
        starter: (8, 9),
        ..Options::default()
    }
}

fn encode_event(time: i64, process_id: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let header = EventHeader { time, process_id, thread_id: 3, provider: PROVIDER, ..EventHeader::default() };
    header.encode(payload, &mut out).unwrap();
    out
}

fn encode_kernel_event(time: i64, hook: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    PerfInfoHeader { pointer_size: 8, version: 2, hook, time, counters: &[] }
        .encode(payload, &mut out)
        .unwrap();
    out
}

/// Writes a file of these records, each with its processor.
fn write_file(path: &Path, options: Options, records: &[(u16, Vec<u8>)], counts: FileSummary) -> PathBuf {
    let mut writer = Writer::create(Vec::new(), options).unwrap();
    for (cpu, record) in records {
        writer.write_record(*cpu, record).unwrap();
    }
    std::fs::write(path, writer.finish(counts).unwrap()).unwrap();
    path.to_owned()
}

/// Returns the summary of a session that ended `seconds` after its start.
fn ended_after(seconds: i64) -> FileSummary {
    FileSummary { end_time: FileTime(START_TIME + seconds * 10_000_000), ..FileSummary::default() }
}

fn open_trace(path: &Path) -> Trace<Vec<u8>> {
    Trace::open(std::fs::read(path).unwrap()).unwrap()
}

/// Returns all events except the log-file header.
fn read_events(path: &Path) -> Vec<RecordedEvent> {
    let trace = open_trace(path);
    let mut events = trace.events();
    let mut seen = Vec::new();
    while let Some(record) = events.next().unwrap() {
        seen.push((record.cpu(), record.time(), record.bytes().to_vec()));
    }
    seen.remove(0);
    seen
}

/// Returns the rules that a file breaks.
fn broken_rules(path: &Path) -> Vec<String> {
    let mut broken_rules = Vec::new();
    etl::check(&open_trace(path), &mut |finding| {
        broken_rules.push(format!("{}: {}", finding.rule, finding.detail))
    })
    .unwrap();
    broken_rules
}

fn keep_event(event: &Event<'_>, output: &mut Output) -> traceweir::Result<()> {
    output.keep(event)
}

/// Relogs all events.
fn relog_all(inputs: &[PathBuf], out: &Path, settings: Settings) -> Summary {
    let mut relogger = Relogger::new();
    for input in inputs {
        relogger.add_file(input).unwrap();
    }
    relogger.set_output(out);
    relogger.set(settings);
    relogger.process(keep_event).unwrap()
}

/// Returns a record of one of the record families.
fn any_record(kind: u8, time: i64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match kind % 5 {
        0 => return encode_event(time, 4, payload),
        1 => return encode_kernel_event(time, hook::SAMPLED_PROFILE, payload),
        2 => SystemHeader {
            pointer_size: 4,
            version: 2,
            hook: hook::THREAD_START,
            thread_id: 1,
            process_id: 2,
            time,
            cpu_times: Some((1, 2)),
        }
        .encode(payload, &mut out),
        3 => ClassicHeader {
            pointer_size: 8,
            opcode: 1,
            level: 2,
            version: 3,
            thread_id: 1,
            process_id: 2,
            time,
            class: PROVIDER,
            cpu_times: (0, 0),
            instance: None,
        }
        .encode(payload, &mut out),
        // A record without a timestamp.
        _ => MessageHeader {
            number: 3,
            pointer_size: 8,
            sequence: None,
            guid: Some(PROVIDER),
            time: None,
            ids: None,
        }
        .encode(payload, &mut out),
    }
    .unwrap();
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn relogged_event_keeps_bytes_time_and_processor(
        records in proptest::collection::vec((0_u16..4, any::<u8>(), 0_i64..5_000, 0_usize..300), 0..300),
        (is_input_compressed, compress_output) in any::<(bool, bool)>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut time = 5_000;
        let records: Vec<(u16, Vec<u8>)> = records.iter().map(|(cpu, kind, step, length)| {
            time += step;
            (*cpu, any_record(*kind, time, &vec![*kind; *length]))
        }).collect();
        let input = Options { compressed: is_input_compressed, ..options() };
        let input = write_file(&folder.path().join("in.etl"), input, &records, ended_after(9));
        let out = folder.path().join("out.etl");
        let settings = Settings::default().compressed(compress_output);
        let summary = relog_all(std::slice::from_ref(&input), &out, settings);
        prop_assert_eq!(read_events(&out), read_events(&input));
        prop_assert_eq!(broken_rules(&out), Vec::<String>::new());
        // The log-file header counts as an event.
        prop_assert_eq!(summary.events, records.len() as u64 + 1);
        let (before, after) = (open_trace(&input), open_trace(&out));
        prop_assert_eq!(before.clock(), after.clock());
        prop_assert_eq!(after.is_compressed(), compress_output);
        prop_assert_eq!(after.header().end_time, before.header().end_time);
    }
}

#[test]
fn header_keeps_its_fields_and_is_marked_as_relogged() {
    let folder = tempfile::tempdir().unwrap();
    let before = Options {
        header_records: encode_kernel_event(5_000, hook::BUILD_INFO, b"build\0"),
        os_version: [6, 3],
        build: 9600,
        pointer_size: 4,
        timer_resolution: 100_000,
        ..options()
    };
    let counts = FileSummary { events_lost: 5, buffers_lost: 2, ..ended_after(9) };
    let input =
        write_file(&folder.path().join("in.etl"), before, &[(2, encode_event(6_000, 1, b"x"))], counts);
    let out = folder.path().join("out.etl");
    let summary = relog_all(std::slice::from_ref(&input), &out, Settings::default().compressed(false));
    let (before, after) = (open_trace(&input).header().clone(), open_trace(&out).header().clone());
    assert_eq!(after.log_file_mode, EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_RELOG_MODE);
    assert_eq!(
        traceweir_format::logfile::LogFileHeader { log_file_mode: before.log_file_mode, ..after },
        before
    );
    assert_eq!(read_events(&out), read_events(&input));
    assert_eq!((summary.events, summary.events_lost, summary.buffers_lost), (3, 5, 2));
    assert_eq!(open_trace(&out).buffers().len(), 2, "the build information left the header buffer");
    assert_eq!(broken_rules(&out), Vec::<String>::new());
}

#[test]
fn file_from_before_vista_is_relogged_in_the_current_layout() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(Vec::new(), Options { buffer_size: 4096, ..options() }).unwrap();
    // An INSTANCE record (type 21) of the old layout: 0x38 bytes of header, with handles instead of
    // classes. Thread 3, process 4, instance 77, and a payload that begins with 99.
    let mut old = vec![0; 0x40];
    old[..4].copy_from_slice(&[0x40, 0, 21, 0xC0]);
    old[0x10..0x18].copy_from_slice(&6_000_i64.to_le_bytes());
    (old[0x08], old[0x0C], old[0x20], old[0x38]) = (3, 4, 77, 99);
    writer.write(0, 6_000, &old).unwrap();
    writer.write_record(0, &encode_event(7_000, 1, b"after")).unwrap();
    let mut bytes = writer.finish(ended_after(9)).unwrap();
    // Version 5.1 of the system, then version 1.0 of the layout, at offset 4 of the log-file
    // header, which follows a buffer header (0x48 bytes) and a record header (0x20 bytes).
    bytes[0x48 + 0x20 + 4..][..4].copy_from_slice(&[5, 1, 1, 0]);
    let input = folder.path().join("in.etl");
    std::fs::write(&input, bytes).unwrap();
    let out = folder.path().join("out.etl");
    relog_all(std::slice::from_ref(&input), &out, Settings::default());
    assert_eq!(broken_rules(&out), Vec::<String>::new());
    let events = read_events(&out);
    let [(_, _, instance_bytes), (_, second_time, _)] = &events[..] else { panic!("{events:?}") };
    let record = traceweir_format::header::Record::parse(instance_bytes, 0).unwrap();
    assert_eq!((record.instance().unwrap().id, record.thread_id(), record.process_id()), (77, 3, 4));
    assert_eq!((record.payload()[0], *second_time), (99, 7_000));
}
