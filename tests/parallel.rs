//! Tests that several threads print what one thread prints, byte for byte.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;
use traceweir_format::Guid;
use traceweir_format::etl::{Options, Summary, Writer};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::{EventDescriptor, ExtType};
use traceweir_format::time::FileTime;
use traceweir_format::tracelogging::MetadataBuilder;
use traceweir_format::wire::Put;

use crate::golden::{ANCHOR, SelfDescribing, kernel, session_options, start_time};
use crate::util::{root, sample, weir};

/// The commands that read with several threads.
const COMMANDS: [&[&str]; 12] = [
    &["dump", "--all"],
    &["dump", "--format", "jsonl"],
    &["dump", "--format", "csv"],
    &["dump", "--format", "xml"],
    &["dump", "--color", "always", "--time", "rel"],
    &["dump", "--event", "CSwitch"],
    &["stats"],
    &["stats", "--json"],
    &["stats", "--grep", "7"],
    &["report", "cpu", "--json"],
    &["report", "sched", "--json"],
    &["flame", "--collapsed"],
];

/// The number of processors in generated traces.
const PROCESSORS: u16 = 64;

/// Runs all commands with one thread and with several, and compares output, messages and status.
fn compare_all(files: &[&Path], thread_counts: &[&str]) {
    compare(&COMMANDS, files, thread_counts);
    compare_relogged(files, thread_counts);
}

/// Relogs traces with one thread and with several, and compares the new files.
fn compare_relogged(files: &[&Path], thread_counts: &[&str]) {
    let folder = TempDir::new().unwrap();
    let run = |threads: &str| {
        let output = folder.path().join("relogged.etl");
        let files = files.iter().map(|file| file.to_str().unwrap());
        let options = ["relog", "--force", "--threads", threads, "-o", output.to_str().unwrap()];
        let run = weir(options.into_iter().chain(files));
        (run.code, run.stderr, std::fs::read(&output).ok())
    };
    let expected = run("1");
    for threads in thread_counts {
        assert!(run(threads) == expected, "relog {files:?}, {threads} threads: {}", expected.1);
    }
}

fn compare(commands: &[&[&str]], files: &[&Path], thread_counts: &[&str]) {
    for command in commands {
        let run = |threads: &str| {
            let files = files.iter().map(|file| file.to_str().unwrap());
            weir(command.iter().copied().chain(files).chain(["--threads", threads]))
        };
        let expected = run("1");
        for threads in thread_counts {
            let actual = run(threads);
            let description = || format!("{command:?} {files:?}, {threads} threads");
            let first_difference = expected.stdout.iter().zip(&actual.stdout).position(|(a, b)| a != b);
            assert_eq!(first_difference, None, "first different byte of {}", description());
            assert_eq!(actual.stdout.len(), expected.stdout.len(), "bytes of {}", description());
            assert_eq!(actual.stderr, expected.stderr, "messages of {}", description());
            assert_eq!(actual.code, expected.code, "status of {}", description());
        }
    }
}

#[test]
fn fixtures_are_printed_alike() {
    let folder = root().join("fixtures/etl");
    let mut fixtures: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    fixtures.retain(|path| path.extension().is_some_and(|extension| extension == "etl"));
    fixtures.sort();
    assert!(fixtures.len() > 8, "{fixtures:?}");
    for fixture in &fixtures {
        compare_all(&[fixture], &["3"]);
    }
    let all: Vec<&Path> = fixtures.iter().map(PathBuf::as_path).collect();
    compare_all(&all, &["2"]);
}

#[test]
fn real_traces_are_printed_alike() {
    let names = [
        "AMSITrace.etl",
        "SelfDescribingSingleEvent.etl",
        "ShutdownPerfDiagLogger.etl",
        "WindowsUpdate.20251008.etl",
        "gcevents.etl",
        "gcrundownevents.etl",
        "net.4.5.2.x64.etl.zip",
        "primitive-types.etl",
    ];
    for name in names {
        let Some(path) = sample(name) else { return };
        compare(&[&["dump"], &["dump", "--format", "jsonl"], &["stats"]], &[&path], &["2"]);
        compare_relogged(&[&path], &["2"]);
    }
}

/// The content of a generated record.
#[derive(Clone, Debug)]
struct GeneratedRecord {
    kind: u8,
    cpu: u16,
    /// Ticks since the record before it. A negative number makes buffers overlap.
    delay: i64,
    value: u32,
}

fn generated_record() -> impl Strategy<Value = GeneratedRecord> {
    let delay = prop_oneof![8 => 0..500_i64, 1 => -20_000..0_i64];
    (0..10_u8, 0..PROCESSORS, delay, 0..40_u32).prop_map(|(kind, cpu, delay, value)| GeneratedRecord {
        kind,
        cpu,
        delay,
        value,
    })
}

fn encode_perfinfo(time: i64, hook: u16, version: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = PerfInfoHeader { pointer_size: 8, version, hook, time, counters: &[] };
    header.encode(payload, &mut bytes).unwrap();
    bytes
}

fn encode_system(time: i64, hook: u16, version: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (process_id, thread_id) = (4, 8);
    let header =
        SystemHeader { pointer_size: 8, version, hook, process_id, thread_id, time, cpu_times: None };
    header.encode(payload, &mut bytes).unwrap();
    bytes
}

/// Threads have ids from 100 to 139; four belong to each process, whose ids begin with 100 too.
fn encode_record(GeneratedRecord { kind, value, .. }: &GeneratedRecord, time: i64) -> Vec<u8> {
    let (thread, process) = (100 + value, 100 + value / 4 * 4);
    let mut payload = Vec::new();
    match kind {
        0 => {
            let name = format!("program-{value}");
            encode_system(
                time,
                hook::PROCESS_START,
                4,
                &kernel::process_payload((process, process), 1, 0, &name, ""),
            )
        }
        1 => encode_system(time, hook::THREAD_START, 3, &kernel::thread_payload((process, thread), "")),
        2 | 3 => {
            let old_thread = 100 + (value + 7) % 40;
            payload.put_u32(thread).put_u32(old_thread).put(&[8, 8, 0, 0, 6, 0, 5, 0]).put_u64(0);
            encode_perfinfo(time, hook::CONTEXT_SWITCH, 3, &payload)
        }
        // An event whose process follows from the context switches.
        4 | 5 => {
            payload.put_u64(0x7FFF_0000 + u64::from(*value));
            encode_perfinfo(time, hook::SYSCALL_ENTER, 2, &payload)
        }
        6 => {
            payload.put_u64(0x40_0000).put_u32(thread).put_u32(1);
            encode_perfinfo(time, hook::SAMPLED_PROFILE, 2, &payload)
        }
        // An event without a schema.
        7 => {
            let descriptor = EventDescriptor { id: 7, ..EventDescriptor::default() };
            let provider = Guid::from_u128(u128::from(value % 3) + 1);
            let mut bytes = Vec::new();
            let header = EventHeader {
                provider,
                descriptor,
                process_id: process,
                thread_id: thread,
                time,
                ..EventHeader::default()
            };
            header.encode(b"unknown", &mut bytes).unwrap();
            bytes
        }
        _ => encode_self_describing(time, (process, thread), *value),
    }
}

fn encode_self_describing(time: i64, (process_id, thread_id): (u32, u32), value: u32) -> Vec<u8> {
    let event = SelfDescribing::new(if value.is_multiple_of(2) { "Generated.Even" } else { "Generated.Odd" });
    let traits = event.traits();
    let mut metadata = MetadataBuilder::new(&format!("Counted{}", value % 5), 0);
    metadata.add_field("value", 8, 0, 0).add_field("text", 2, 0, 0);
    let items = [
        Item { kind: ExtType::PROV_TRAITS, data: &traits },
        Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata.finish().unwrap() },
    ];
    let mut payload = Vec::new();
    payload.put_u32(value).put(&b"seven, eight\0"[..]);
    let mut bytes = Vec::new();
    let header = EventHeader { items: &items, process_id, thread_id, time, ..event.header };
    header.encode(&payload, &mut bytes).unwrap();
    bytes
}

/// The descriptor of an event by which a provider sends its manifest.
const CHUNK_DESCRIPTOR: EventDescriptor =
    EventDescriptor { id: 0xFFFE, version: 1, channel: 0, level: 0, opcode: 0xFE, task: 0xFFFE, keyword: 0 };

/// Encodes an event of the first provider.
fn encode_event(time: i64, descriptor: EventDescriptor, items: &[Item<'_>], payload: &[u8]) -> Vec<u8> {
    let provider = Guid::from_u128(1);
    let mut bytes = Vec::new();
    let header = EventHeader { provider, descriptor, items, time, ..EventHeader::default() };
    header.encode(payload, &mut bytes).unwrap();
    bytes
}

/// Returns the payload of a chunk: a manifest of event 7 with a field.
fn manifest_chunk(provider: &str, field: &str) -> Vec<u8> {
    let xml = format!(
        "<instrumentationManifest xmlns=\"http://schemas.microsoft.com/win/2004/08/events\"><instrumentation>\
         <events><provider name=\"{provider}\" guid=\"{{{}}}\"><templates><template tid=\"t\">\
         <data name=\"{field}\" inType=\"win:UInt32\"/></template></templates>\
         <events><event value=\"7\" template=\"t\"/></events></provider></events>\
         </instrumentation></instrumentationManifest>",
        Guid::from_u128(1)
    );
    [&[1, 1, 0, 0x5B, 1, 0, 0, 0][..], xml.as_bytes()].concat()
}

fn write_records(path: &Path, buffer_size: u32, records: &[Vec<u8>]) {
    let mut writer =
        Writer::create(Vec::new(), Options { buffer_size, ..session_options("generated") }).unwrap();
    for (record, time) in records.iter().zip(ANCHOR..) {
        writer.write(0, time, record).unwrap();
    }
    let end_time = FileTime(start_time().0 + 600_000_000);
    std::fs::write(path, writer.finish(Summary { end_time, ..Summary::default() }).unwrap()).unwrap();
}

#[test]
fn each_event_is_decoded_by_the_last_manifest_before_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("manifests.etl");
    let mut records = Vec::new();
    for (number, field) in (0_u32..).zip(["first", "second", "first"]) {
        let time = ANCHOR + records.len() as i64;
        records.push(encode_event(time, CHUNK_DESCRIPTOR, &[], &manifest_chunk("Replaced", field)));
        let descriptor = EventDescriptor { id: 7, ..EventDescriptor::default() };
        records.push(encode_event(time + 1, descriptor, &[], &number.to_le_bytes()));
    }
    write_records(&path, 0x1_0000, &records);
    compare_all(&[&path], &["2", "4"]);
    let dump = |options: &[&str]| {
        let run = weir(["dump", path.to_str().unwrap()].iter().chain(options));
        let text = String::from_utf8(run.stdout).unwrap();
        let mut fields: Vec<&str> = text
            .split_whitespace()
            .filter(|w| ["first=", "second="].iter().any(|f| w.starts_with(f)))
            .collect();
        fields.sort();
        fields.join(" ")
    };
    assert_eq!(dump(&["--threads", "1"]), "first=0 first=2 second=1");
    // A filter that rejects the manifests changes nothing.
    assert_eq!(dump(&["--threads", "1", "--event", "7"]), "first=0 first=2 second=1");
}

#[test]
fn self_describing_manifest_chunk_names_provider_of_earlier_events() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("chunk.etl");
    let mut metadata = MetadataBuilder::new("Hello", 0);
    metadata.add_field("value", 8, 0, 0);
    let items = [Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata.finish().unwrap() }];
    let descriptor = EventDescriptor { id: 1, ..EventDescriptor::default() };
    let mut records = vec![
        encode_event(ANCHOR, descriptor, &items, &[1, 0, 0, 0]),
        encode_event(ANCHOR + 1, CHUNK_DESCRIPTOR, &items, &manifest_chunk("NamedByManifest", "x")),
    ];
    // Long enough to be read without a survey before the first event.
    let padding = vec![0; 60_000];
    records.extend((2..562).map(|n| encode_event(ANCHOR + n, descriptor, &items, &padding)));
    write_records(&path, 0x10_0000, &records);
    compare(&[&["dump"], &["stats"]], &[&path], &["2"]);
}

fn write_trace(path: &Path, records: &[GeneratedRecord], is_compressed: bool, damage: &[(usize, u8)]) {
    let options = Options {
        buffer_size: 0x800,
        processors: PROCESSORS.into(),
        compressed: is_compressed,
        ..session_options("generated")
    };
    let mut writer = Writer::create(Vec::new(), options).unwrap();
    let mut time = ANCHOR;
    for record in records {
        time = ANCHOR.max(time + record.delay);
        writer.write(record.cpu, time, &encode_record(record, time)).unwrap();
    }
    let end_time = FileTime(start_time().0 + 600_000_000);
    let mut bytes = writer.finish(Summary { end_time, ..Summary::default() }).unwrap();
    for (position, value) in damage {
        let position = position % bytes.len();
        bytes[position] = *value;
    }
    std::fs::write(path, bytes).unwrap();
}

proptest! {
    // Each case starts `weir` 26 times.
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 40, ..ProptestConfig::default() })]

    #[test]
    fn generated_traces_are_printed_alike(
        files in prop::collection::vec(
            (
                prop::collection::vec(generated_record(), 0..1500),
                any::<bool>(),
                prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
            ),
            1..4,
        ),
    ) {
        let folder = TempDir::new().unwrap();
        let mut paths = Vec::new();
        for (number, (records, is_compressed, damage)) in files.iter().enumerate() {
            let path = folder.path().join(format!("{number}.etl"));
            write_trace(&path, records, *is_compressed, damage);
            paths.push(path);
        }
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        compare_all(&paths, &["3"]);
    }
}
