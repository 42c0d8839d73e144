//! Tests that every event of traces that Windows recorded is read in order, and decoded if a schema
//! is available.
//!
//! The expected counts come from an independent walk over every byte of the samples; two public
//! readers find the same counts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use serde_json::Value;
use traceweir_decode::schema::{FieldKind, Schema};
use traceweir_decode::source::{WellKnownProvider, read_manifest};
use traceweir_format::etl::Trace;
use traceweir_format::header::Family;

use crate::util::{sample, weir};

/// Known facts about a sample.
struct SampleFacts {
    file: &'static str,
    events: usize,
    buffers: u64,
    compressed_buffers: u64,
    buffer_bytes: u64,
    mode: &'static str,
    build: u64,
    events_lost: u64,
    session: &'static str,
    /// Number of records by header: SYSTEM64, SYSTEM32, PERFINFO64, FULL64, FULL32, EVENT64,
    /// EVENT32.
    headers: [usize; 7],
    /// Provider, id and version of events that no schema describes, with the manifest of .NET Core
    /// 3.1 loaded.
    undecoded: &'static [(&'static str, u64, u64)],
    /// Provider, id and version of events with bytes after their last field. Most of these events
    /// are newer than their schema.
    extra_bytes: &'static [(&'static str, u64, u64)],
}

const RUNTIME_PROVIDER: &str = "Microsoft-Windows-DotNETRuntime";
const PRIVATE_PROVIDER: &str = "Microsoft-Windows-DotNETRuntimePrivate";

const AMSI_TRACE: SampleFacts = SampleFacts {
    file: "AMSITrace.etl",
    events: 21,
    buffers: 6,
    compressed_buffers: 0,
    buffer_bytes: 65_536,
    mode: "0x8000001",
    build: 18_362,
    events_lost: 3,
    session: "AMSITraceSession",
    headers: [2, 0, 0, 0, 0, 19, 0],
    undecoded: &[],
    extra_bytes: &[],
};

const SELF_DESCRIBING: SampleFacts = SampleFacts {
    file: "SelfDescribingSingleEvent.etl",
    events: 23,
    buffers: 3,
    compressed_buffers: 2,
    buffer_bytes: 65_536,
    mode: "0x4010001",
    build: 22_000,
    events_lost: 0,
    session: "Relogger",
    headers: [4, 0, 0, 18, 0, 1, 0],
    undecoded: &[],
    extra_bytes: &[],
};

const SHUTDOWN: SampleFacts = SampleFacts {
    file: "ShutdownPerfDiagLogger.etl",
    events: 17_078,
    buffers: 49,
    compressed_buffers: 0,
    buffer_bytes: 65_536,
    mode: "0x2000080",
    build: 18_362,
    events_lost: 0,
    session: "PerfDiag Logger",
    headers: [8433, 0, 8645, 0, 0, 0, 0],
    undecoded: &[],
    extra_bytes: &[],
};

const DOTNET_X64: SampleFacts = SampleFacts {
    file: "net.4.5.2.x64.etl.zip",
    events: 179_474,
    buffers: 360,
    compressed_buffers: 359,
    buffer_bytes: 65_536,
    mode: "0x4010001",
    build: 9200,
    events_lost: 0,
    session: "Relogger",
    headers: [3189, 2, 100_157, 7956, 27, 34_765, 33_378],
    undecoded: &[],
    // Event 82 is a stack walk: its schema has two frames, its payload has more. The other two
    // events have more bytes than their manifests describe.
    extra_bytes: &[(RUNTIME_PROVIDER, 82, 0), (PRIVATE_PROVIDER, 4, 2), ("PerfView", 13, 0)],
};

const PRIMITIVE_TYPES: SampleFacts = SampleFacts {
    file: "primitive-types.etl",
    events: 7,
    buffers: 2,
    compressed_buffers: 0,
    buffer_bytes: 8192,
    mode: "0x0",
    build: 19_043,
    events_lost: 0,
    session: "solar_system",
    headers: [2, 0, 0, 0, 0, 5, 0],
    undecoded: &[],
    extra_bytes: &[],
};

const GC_EVENTS: SampleFacts = SampleFacts {
    file: "gcevents.etl",
    events: 71,
    buffers: 5,
    compressed_buffers: 0,
    buffer_bytes: 65_536,
    mode: "0x8000002",
    build: 19_045,
    events_lost: 0,
    session: "PerfViewSession",
    headers: [2, 0, 0, 0, 0, 69, 0],
    undecoded: &[],
    extra_bytes: &[(RUNTIME_PROVIDER, 4, 2), (RUNTIME_PROVIDER, 10, 4), (RUNTIME_PROVIDER, 205, 4)],
};

const GC_RUNDOWN: SampleFacts = SampleFacts {
    file: "gcrundownevents.etl",
    events: 112,
    buffers: 2,
    compressed_buffers: 0,
    buffer_bytes: 65_536,
    mode: "0x8000001",
    build: 19_045,
    events_lost: 0,
    session: "PerfViewSessionRundown",
    headers: [2, 0, 0, 0, 0, 110, 0],
    undecoded: &[],
    extra_bytes: &[],
};

const WINDOWS_UPDATE: SampleFacts = SampleFacts {
    file: "WindowsUpdate.20251008.etl",
    events: 82,
    buffers: 7,
    compressed_buffers: 0,
    buffer_bytes: 4096,
    mode: "0x11002009",
    build: 22_631,
    events_lost: 41,
    session: "WindowsUpdate_trace_log",
    headers: [2, 0, 0, 0, 0, 80, 0],
    undecoded: &[],
    extra_bytes: &[],
};

#[test]
fn amsi_is_read_completely_and_reports_lost_events() {
    check_sample(&AMSI_TRACE);
}

#[test]
fn self_describing_single_event_is_read_completely() {
    check_sample(&SELF_DESCRIBING);
}

#[test]
fn shutdown_is_read_completely() {
    check_sample(&SHUTDOWN);
}

#[test]
fn net_64_is_read_completely_from_its_archive() {
    check_sample(&DOTNET_X64);
}

#[test]
fn primitive_types_is_read_completely() {
    check_sample(&PRIMITIVE_TYPES);
}

#[test]
fn gc_events_are_read_completely() {
    check_sample(&GC_EVENTS);
}

#[test]
fn gc_rundown_events_are_read_completely() {
    check_sample(&GC_RUNDOWN);
}

#[test]
fn net_events_decode_completely_without_a_manifest() {
    for facts in [GC_EVENTS, GC_RUNDOWN] {
        let Some(path) = sample(facts.file) else { return };
        // The built-in schemas are newer than the manifest, so no event has bytes after its fields.
        let facts = SampleFacts { undecoded: &[], extra_bytes: &[], ..facts };
        let run = weir(["dump".as_ref(), "--format".as_ref(), "jsonl".as_ref(), path.as_os_str()]).expect(0);
        assert!(run.stderr.is_empty(), "{}", run.stderr);
        check_events(&facts, &run.text());
    }
}

#[test]
fn built_in_schemas_match_the_compiled_manifest_of_net() {
    let Some(path) = sample("clretwrc.dll") else { return };
    let compiled = read_manifest(&std::fs::read(path).expect("the sample cannot be read"))
        .expect("the compiled manifest cannot be read");
    let (mut compared, mut differing) = (0, Vec::new());
    for provider in &compiled {
        let Some(built_in) = WellKnownProvider::find(&provider.id) else { continue };
        let built_in = built_in.parse().expect("the built-in schemas cannot be parsed");
        for event in &provider.events {
            let d = &event.descriptor;
            let ours =
                built_in.events.iter().find(|e| e.descriptor.id == d.id && e.descriptor.version == d.version);
            let ours = ours.unwrap_or_else(|| panic!("no event {} version {}", d.id, d.version));
            // Newer runtimes corrected levels and the spelling of names.
            assert_eq!((ours.descriptor.task, ours.descriptor.opcode), (d.task, d.opcode), "event {}", d.id);
            let describe = |schema: &Schema| -> Vec<_> {
                let kind = |kind: &FieldKind| match kind {
                    FieldKind::Value { input, .. } => Some(*input),
                    FieldKind::Struct { .. } => None,
                };
                schema.fields().iter().map(|f| (f.name.clone(), kind(&f.kind), f.count, f.length)).collect()
            };
            if describe(&ours.schema) != describe(&event.schema) {
                differing.push((provider.name.clone(), d.id, d.version));
            }
            compared += 1;
        }
    }
    assert!(compared > 300, "{compared} events");
    assert_eq!(differing, [], "events with other fields");
}

#[test]
fn windows_update_is_read_completely_and_reports_lost_events() {
    check_sample(&WINDOWS_UPDATE);
}

fn check_sample(facts: &SampleFacts) {
    let (Some(path), Some(schemas)) = (sample(facts.file), sample("clretwrc.dll")) else { return };
    check_info(facts, &path);
    // `weir check --strict` exits with 4 if the session lost events; reading the trace is no failure.
    let code = if facts.events_lost > 0 { 4 } else { 0 };
    let check = weir(["check".as_ref(), "--strict".as_ref(), path.as_os_str()]).expect(code);
    assert_eq!(check.stdout, b"", "weir check reports a finding");
    let check = weir(["check".as_ref(), "--json".as_ref(), path.as_os_str()]).expect(0);
    assert_eq!(check.stdout, b"", "weir check reports a finding");
    check_headers(facts, &path);
    let dump: [&std::ffi::OsStr; 6] = [
        "dump".as_ref(),
        "--format".as_ref(),
        "jsonl".as_ref(),
        "--manifest".as_ref(),
        schemas.as_ref(),
        path.as_ref(),
    ];
    check_events(facts, &weir(dump).expect(0).text());
}

fn check_info(facts: &SampleFacts, path: &Path) {
    let info = weir(["info".as_ref(), "--json".as_ref(), path.as_os_str()]).expect(0);
    let info = &info.json()[0];
    let events = info["events"].as_u64().expect("the output has no count of events");
    let file_events = info["file_events"].as_u64().expect("the output has no count of the file's events");
    assert!(file_events > 0, "the header is not counted");
    assert_eq!(events + file_events, facts.events as u64);
    assert_eq!(info["session"], facts.session);
    assert_eq!(info["mode"], facts.mode);
    assert_eq!(info["build"], facts.build);
    assert_eq!(info["clock"], "qpc");
    assert_eq!(info["clock_hz"], 10_000_000);
    assert_eq!(info["pointer_size"], 8);
    assert_eq!(info["finalised"], true);
    assert_eq!((&info["buffers"], &info["buffers_written"]), (&facts.buffers.into(), &facts.buffers.into()));
    assert_eq!(info["compressed_buffers"], facts.compressed_buffers);
    assert_eq!(info["buffer_size"], facts.buffer_bytes);
    assert_eq!((&info["events_lost"], &info["buffers_lost"]), (&facts.events_lost.into(), &0.into()));
    let by_provider = info["providers"].as_array().expect("the output does not list providers").iter();
    assert_eq!(
        by_provider
            .map(|provider| provider["events"].as_u64().expect("a provider has no count"))
            .sum::<u64>(),
        events
    );
}

fn check_headers(facts: &SampleFacts, path: &Path) {
    let trace = Trace::open(read_trace_bytes(path)).expect("the trace cannot be opened");
    let mut headers = [0; 7];
    let mut events = trace.events();
    while let Some(record) = events.next().expect("a record cannot be read") {
        let index = match (record.family(), record.pointer_size()) {
            (Family::System, 8) => 0,
            (Family::System, _) => 1,
            (Family::PerfInfo, 8) => 2,
            (Family::Full, 8) => 3,
            (Family::Full, _) => 4,
            (Family::Event, 8) => 5,
            (Family::Event, _) => 6,
            unexpected => panic!("unexpected header: {unexpected:?}"),
        };
        headers[index] += 1;
    }
    assert_eq!(headers, facts.headers);
}

/// Returns the bytes of a trace, which may be in a ZIP archive.
fn read_trace_bytes(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut file = std::fs::File::open(path).expect("the sample cannot be opened");
    if path.extension().is_some_and(|extension| extension == "zip") {
        let mut archive = zip::ZipArchive::new(file).expect("the sample is not a ZIP archive");
        archive
            .by_index(0)
            .expect("the archive has no trace")
            .read_to_end(&mut bytes)
            .expect("the trace cannot be unpacked");
    } else {
        file.read_to_end(&mut bytes).expect("the sample cannot be read");
    }
    bytes
}

fn check_events(facts: &SampleFacts, lines: &str) {
    let (mut count, mut previous_time) = (0, String::new());
    let (mut undecoded, mut extra_bytes) = (BTreeSet::new(), BTreeSet::new());
    for line in lines.lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        count += 1;
        check_keys_and_values(&event);
        let time = event["time"].as_str().expect("an event has no time").to_owned();
        assert!(previous_time <= time, "an event at {time} follows one at {previous_time}");
        previous_time = time;
        let identity = || {
            let provider = event["provider"].as_str().unwrap_or_default().to_owned();
            (
                provider,
                event["id"].as_u64().expect("an event has no id"),
                event["version"].as_u64().expect("an event has no version"),
            )
        };
        if !event["undecoded"].is_null() {
            undecoded.insert(identity());
        }
        if !event["extra"].is_null() {
            extra_bytes.insert(identity());
        }
    }
    assert_eq!(count, facts.events);
    let to_set = |rows: &[(&str, u64, u64)]| -> BTreeSet<_> {
        rows.iter().map(|&(provider, id, version)| (provider.to_owned(), id, version)).collect()
    };
    assert_eq!(undecoded, to_set(facts.undecoded), "other events than expected have no schema");
    assert_eq!(
        extra_bytes,
        to_set(facts.extra_bytes),
        "other events than expected have bytes after their last field"
    );
}

/// Checks the keys of an event and the form of its values.
fn check_keys_and_values(event: &Value) {
    let text = |key: &str| event[key].as_str().unwrap_or_else(|| panic!("{key} is not a string: {event}"));
    let time = text("time");
    assert!(time.len() == "2020-07-29T00:07:00.6236167Z".len() && time.ends_with('Z'), "{event}");
    assert!(event["ms"].is_f64() && event["provider"].is_string(), "{event}");
    let guid = text("guid");
    assert!(guid.len() == 36 && guid == guid.to_ascii_lowercase(), "{event}");
    assert!(event["event"].is_string() || !event["undecoded"].is_null(), "{event}");
    for key in ["id", "version", "level", "opcode", "task", "cpu", "len"] {
        assert!(event[key].is_u64(), "{key}: {event}");
    }
    for key in ["pid", "tid"] {
        assert!(event[key].as_i64().is_some_and(|id| id >= -1), "{key}: {event}");
    }
    assert!(text("keywords").starts_with("0x") && event["fields"].is_object(), "{event}");
    let byte_count = |key: &str| event[key].as_str().map_or(0, |hex| hex.len() as u64 / 2);
    let len = event["len"].as_u64().expect("an event has no length");
    assert_eq!(event["undecoded"].is_null(), event["raw"].is_null(), "{event}");
    assert!(event["raw"].is_null() || byte_count("raw") == len, "{event}");
    assert!(byte_count("extra") <= len, "{event}");
}

/// Returns the events of a sample, or `None` if the sample is not on this machine.
fn dump_sample(facts: &SampleFacts) -> Option<Vec<Value>> {
    let path = sample(facts.file)?;
    Some(weir(["dump".as_ref(), "--format".as_ref(), "jsonl".as_ref(), path.as_os_str()]).json())
}

#[test]
fn primitive_types_have_the_written_values() {
    let Some(events) = dump_sample(&PRIMITIVE_TYPES) else { return };
    let mercury = &events[2]["fields"];
    let expected = serde_json::json!({
        "string_type": "Mercury",
        "boolean_type": false,
        "char_type": "M",
        "int16_type": -51,
        "int32_type": -102,
        "uint16_type": 51,
        "uint32_type": 102,
        // The provider declares the field as unsigned and writes -204.
        "int64_type": "18446744073709551412",
        "uint64_type": 204,
        "guid_type": "0ad614c4-0ef4-4225-8013-f44f37cb0397",
        "file_time_type": "2021-09-09T14:59:35.7990000Z",
        "system_time_type": "2021-09-09T14:59:35.7990000Z",
    });
    assert_eq!(*mercury, expected);
    let names: Vec<_> = events[2..]
        .iter()
        .map(|event| event["fields"]["string_type"].as_str().expect("an event has no name"))
        .collect();
    assert_eq!(names, ["Mercury", "Venus", "Earth", "Mars", "Jupiter"]);
    assert_eq!(events[2]["time"], "2021-09-09T14:59:35.8001567Z");
}

#[test]
fn structure_keeps_its_members() {
    let Some(events) = dump_sample(&SELF_DESCRIBING) else { return };
    let event = events.iter().find(|event| event["provider"] == "MySource").expect("the event is missing");
    assert_eq!((&event["event"], &event["id"]), (&"TestEvent".into(), &3.into()));
    assert_eq!(event["guid"], "a61ea624-4944-55fc-c2a8-37838829438d");
    assert_eq!(event["fields"], serde_json::json!({ "a": { "b": "Hello", "c": "World!" } }));
}

#[test]
fn array_of_code_units_is_text() {
    let Some(events) = dump_sample(&AMSI_TRACE) else { return };
    let scripts: Vec<_> = events.iter().filter(|event| event["provider"] == "AmsiTrace").collect();
    assert_eq!(scripts.len(), 19);
    for event in &scripts {
        let (script, raw) = (
            &event["fields"]["Script"],
            event["fields"]["Raw Script"].as_str().expect("the field is not a string"),
        );
        assert!(script.is_string() && !raw.is_empty(), "{event}");
    }
    let first = &scripts[0]["fields"];
    let script =
        "IWshShell3.Run(\"powershell.exe -nop -w 1 -enc RwBlAHQALQBBAGwAaQBhAHMA\", \"0\", \"true\");\r\n";
    assert_eq!(*first, serde_json::json!({ "Engine": "VBScript", "Script": script, "Raw Script": script }));
}

#[test]
fn packed_xml_is_unpacked() {
    let Some(events) = dump_sample(&SELF_DESCRIBING) else { return };
    let packed = events.iter().filter(|event| event["guid"] == "ed54dff8-c409-4cf6-bf83-05e1e61a09c4");
    let sizes_and_tags: Vec<_> = packed
        .map(|event| {
            let xml = event["fields"]["Xml"].as_str().expect("the field is not a string");
            let tag = xml.trim_start_matches('<').split('>').next().unwrap_or_default().to_owned();
            assert!(xml.ends_with(&format!("</{tag}>")), "{xml}");
            // The unpacked bytes end with a terminator.
            let packed_bytes = event["len"].as_u64().expect("an event has no length");
            (packed_bytes, (xml.encode_utf16().count() + 1) * 2, tag)
        })
        .collect();
    // Packed bytes, unpacked bytes, outermost element.
    let expected = [(412, 1052, "WinSPR"), (633, 2348, "Metrics"), (4146, 17_888, "SystemConfig")];
    assert_eq!(sizes_and_tags, expected.map(|(packed, unpacked, tag)| (packed, unpacked, tag.to_owned())));
}

#[test]
fn kernel_events_have_their_names_and_counts() {
    let Some(events) = dump_sample(&SHUTDOWN) else { return };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for event in &events {
        *counts.entry(event["event"].as_str().expect("an event has no name")).or_default() += 1;
    }
    let expected = [
        ("EventTrace/EndExtension", 2),
        ("EventTrace/Extension", 3),
        ("EventTrace/Header", 1),
        ("EventTrace/PartitionInfoExtension", 1),
        ("EventTrace/RDComplete", 2),
        ("Image/DCEnd", 2145),
        ("Image/DCStart", 6745),
        ("Image/HypercallPage", 1),
        ("Image/KernelBase", 1),
        ("Image/Load", 72),
        ("Image/UnLoad", 4791),
        ("Process/DCEnd", 37),
        ("Process/DCStart", 94),
        ("Process/Defunct", 5),
        ("Process/End", 60),
        ("Process/Terminate", 60),
        ("Thread/DCEnd", 501),
        ("Thread/DCStart", 1175),
        ("Thread/End", 1032),
        ("Thread/Start", 350),
    ];
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected);
    let names: Vec<_> = events.iter().filter_map(|event| event["fields"]["ThreadName"].as_str()).collect();
    // All thread events have the field, and 94 of them have a name.
    assert_eq!((names.len(), names.iter().filter(|name| !name.is_empty()).count()), (3058, 94));
    assert!(names.contains(&"Win32k Raw Input Thread"));
    let masks = events
        .iter()
        .find(|event| event["event"] == "EventTrace/Extension")
        .expect("the trace has no group masks");
    assert_eq!(masks["fields"]["KernelEventVersion"], 70);
}

#[test]
fn one_stream_for_all_cpus_prints_cpu_0() {
    let Some(events) = dump_sample(&WINDOWS_UPDATE) else { return };
    assert!(events.iter().all(|event| event["cpu"] == 0), "an event has another processor number");
    assert_eq!(events.iter().filter(|event| event["provider"] == "WUTraceLogging").count(), 80);
    assert!(events[2..].iter().all(|event| event["fields"]["Info"].is_string()), "an event has no log line");
}

#[test]
fn events_of_a_well_known_provider_need_no_manifest() {
    let Some(path) = sample(DOTNET_X64.file) else { return };
    let private = "763fd754-7086-4dfe-95eb-c01a46faf4ca";
    let args = ["dump", "--format", "jsonl", "--provider", private].map(std::ffi::OsStr::new);
    let events = weir(args.into_iter().chain([path.as_os_str()])).expect(0).json();
    assert_eq!(events.len(), 1627);
    for event in events {
        assert!(event["undecoded"].is_null() && event["provider"] == PRIVATE_PROVIDER, "{event}");
    }
}

#[test]
fn event_prints_the_stack_that_it_carries() {
    let Some(path) = sample(DOTNET_X64.file) else { return };
    let args = ["dump", "--format", "jsonl", "--provider", "System.Threading.Tasks.TplEventSource"];
    let events = weir(args.map(std::ffi::OsStr::new).into_iter().chain([path.as_os_str()])).expect(0).json();
    assert_eq!(events.len(), 8);
    let stack = events[0]["stack"].as_array().expect("the event has no stack");
    assert!(
        stack.len() > 10
            && stack.iter().all(|frame| frame.as_str().is_some_and(|text| text.starts_with("0x"))),
        "{stack:?}"
    );
}
