use std::path::{Path, PathBuf};

use serde_json::Value;
use traceweir_analysis::filter::FilterCriteria;
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_format::Guid;
use traceweir_format::etl::{Options, Summary, Writer};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor, ExtType};
use traceweir_format::time::FileTime;
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};
use traceweir_format::wire::Put;

use super::*;

/// Returns the input for files.
pub(crate) fn input_of(files: Vec<PathBuf>) -> ConvertInput {
    ConvertInput {
        files,
        schemas: SchemaFiles::default(),
        symbols: SymbolOptions::default(),
        criteria: FilterCriteria::default(),
        observer: Arc::new(()),
    }
}

/// Returns the path of a fixture of this project.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/etl").join(name)
}

/// Parses each line of the output.
pub(crate) fn parse_lines(out: &[u8]) -> Vec<Value> {
    assert!(out.is_empty() || out.ends_with(b"\n"));
    out.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

/// An event of a self-describing provider.
#[derive(Clone, Default)]
pub(crate) struct TestEvent<'e> {
    pub(crate) name: &'e str,
    pub(crate) opcode: u8,
    pub(crate) level: u8,
    pub(crate) activity: Guid,
    pub(crate) related: Option<Guid>,
    pub(crate) thread: u32,
    pub(crate) value: u32,
}

/// Builds a trace with one event each microsecond.
pub(crate) fn build_trace(provider: &str, events: &[TestEvent<'_>], events_lost: u32) -> Vec<u8> {
    let start_time = FileTime::from_unix(1_714_557_600, 0);
    let options =
        Options { start_time, boot_time: start_time, session_name: "s\"".into(), ..Options::default() };
    let mut writer = Writer::create(Vec::new(), options).unwrap();
    let mut traits = TraitsBuilder::new(provider);
    let traits = traits.finish().unwrap();
    for (index, event) in events.iter().enumerate() {
        let mut metadata = MetadataBuilder::new(event.name, 0);
        let metadata = metadata.add_field("value", 8, 0, 0).add_field("text\"}", 2, 0, 0).finish().unwrap();
        let related = event.related.map(Guid::to_bytes).unwrap_or_default();
        let mut items = vec![
            Item { kind: ExtType::PROV_TRAITS, data: traits },
            Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata },
        ];
        if event.related.is_some() {
            items.push(Item { kind: ExtType::RELATED_ACTIVITYID, data: &related });
        }
        let time = (index as i64 + 1) * 10;
        let header = EventHeader {
            time,
            process_id: 44,
            thread_id: event.thread,
            provider: Guid::from_provider_name(provider),
            descriptor: EventDescriptor {
                channel: CHANNEL_TRACELOGGING,
                level: event.level,
                opcode: event.opcode,
                ..EventDescriptor::default()
            },
            activity: event.activity,
            items: &items,
            ..EventHeader::default()
        };
        let (mut payload, mut record) = (Vec::new(), Vec::new());
        payload.put_u32(event.value).put_ansi_z("\"\\\n");
        header.encode(&payload, &mut record).unwrap();
        writer.write(0, time, &record).unwrap();
    }
    let end_time = FileTime::from_unix(1_714_557_601, 0);
    writer.finish(Summary { end_time, events_lost, buffers_lost: 0 }).unwrap()
}

/// Converts a trace with a converter.
pub(crate) fn convert_bytes(
    trace: &[u8],
    convert: fn(&ConvertInput, &mut dyn Write) -> Result<Conversion>,
) -> (Vec<Value>, Conversion) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.etl");
    std::fs::write(&path, trace).unwrap();
    let mut out = Vec::new();
    let conversion = convert(&input_of(vec![path]), &mut out).unwrap();
    (parse_lines(&out), conversion)
}

/// Returns the value of an attribute of a record.
pub(crate) fn attribute<'v>(record: &'v Value, key: &str) -> &'v Value {
    let attributes = record["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    found.map_or(&Value::Null, |attribute| &attribute["value"])
}

const ACTIVITY: Guid = Guid::from_u128(0x01020304_0506_0708_090A_0B0C0D0E0F10);
const CHILD: Guid = Guid::from_u128(7);

#[test]
fn events_become_records_with_severity_time_attributes_and_ids() {
    let event = TestEvent {
        name: "Job\n",
        level: 2,
        activity: ACTIVITY,
        value: 9,
        thread: 5,
        ..TestEvent::default()
    };
    let child = TestEvent { name: "Part", level: 4, activity: CHILD, related: Some(ACTIVITY), ..event };
    let (lines, conversion) = convert_bytes(&build_trace("My\"Provider", &[event, child], 2), convert);
    assert_eq!((lines.len(), conversion.events, conversion.written), (1, 2, 3));
    let resource = &lines[0]["resourceLogs"][0];
    assert_eq!(attribute(&resource["resource"], "process.pid")["intValue"], "44");
    assert_eq!(attribute(&resource["resource"], "etw.session")["stringValue"], "s\"");
    let scope = &resource["scopeLogs"][0];
    assert_eq!(scope["scope"]["name"], "My\"Provider");
    let record = &scope["logRecords"][0];
    assert_eq!(record["timeUnixNano"], "1714557600000001000");
    assert_eq!((record["severityNumber"].as_u64(), &record["eventName"]), (Some(17), &Value::from("Job\n")));
    assert_eq!(attribute(record, "value")["intValue"], "9");
    assert_eq!(attribute(record, "text\"}")["stringValue"], "\"\\\n");
    assert_eq!(attribute(record, "thread.id")["intValue"], "5");
    assert_eq!(record["traceId"], "0102030405060708090a0b0c0d0e0f10");
    let child = &scope["logRecords"][1];
    assert_eq!(child["traceId"], record["traceId"]);
    assert_ne!(child["spanId"], record["spanId"]);
    let losses = &lines[0]["resourceLogs"][1]["scopeLogs"][0]["logRecords"][0];
    assert_eq!(attribute(losses, "etw.lost_events")["intValue"], "2");
    assert_eq!(losses["severityNumber"], 13);
}

#[test]
fn every_fixture_gives_lines_of_whole_records() {
    for entry in std::fs::read_dir(fixture("")).unwrap() {
        let path = entry.unwrap().path();
        let mut out = Vec::new();
        let conversion = convert(&input_of(vec![path.clone()]), &mut out).unwrap();
        let lines = parse_lines(&out);
        let records: usize = lines
            .iter()
            .flat_map(|line| line["resourceLogs"].as_array().unwrap())
            .flat_map(|resource| resource["scopeLogs"].as_array().unwrap())
            .map(|scope| scope["logRecords"].as_array().unwrap().len())
            .sum();
        assert_eq!(records as u64, conversion.written, "{}", path.display());
    }
}

#[test]
fn fields_have_the_types_of_their_schema() {
    let mut out = Vec::new();
    convert(&input_of(vec![fixture("tracelogging.etl")]), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for kind in
        ["intValue", "doubleValue", "boolValue", "bytesValue", "stringValue", "arrayValue", "kvlistValue"]
    {
        assert!(text.contains(&format!("{{\"{kind}\":")), "{kind}");
    }
}

#[test]
fn many_records_make_several_lines() {
    let events = vec![TestEvent { name: "e", ..TestEvent::default() }; 4500];
    let (lines, conversion) = convert_bytes(&build_trace("p", &events, 0), convert);
    let count =
        |line: &Value| line["resourceLogs"][0]["scopeLogs"][0]["logRecords"].as_array().map_or(0, Vec::len);
    let counts: Vec<usize> = lines.iter().map(count).collect();
    assert_eq!((counts.iter().sum::<usize>(), conversion.written), (4500, 4500));
    assert!(lines.len() > 2 && counts.iter().all(|count| *count <= 2000), "{counts:?}");
}
