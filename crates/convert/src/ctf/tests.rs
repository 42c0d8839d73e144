//! Tests with a reader of CTF that knows only the metadata.

mod reader;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value as Json;
use traceweir_analysis::filter::FilterCriteria;
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_decode::format::push_json;
use traceweir_decode::schema::{Count, Field, FieldKind, Length, Schema, ValueMap};
use traceweir_decode::value::Value;
use traceweir_decode::walk::Visitor;
use traceweir_format::spec::types::{InType, OutType};
use traceweir_format::time::UNIX_EPOCH_AS_FILETIME;

use self::reader::{Metadata, ReadEvent, Tree, read_folder};
use super::encode::NUL_SYMBOL;
use super::layout::{Layout, push_declarations};
use super::tsdl::NameSet;
use super::*;

/// A folder that is removed at the end of the test.
struct TestFolder(PathBuf);

impl TestFolder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("traceweir-ctf-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn fixture_input(name: &str) -> ConvertInput {
    let fixture = |path: &str| PathBuf::from(format!("{}/../../fixtures/{path}", env!("CARGO_MANIFEST_DIR")));
    let mut schemas = SchemaFiles::default();
    match name {
        "manifest" | "narrow" => schemas.manifests.push(fixture("manifests/everything.man")),
        "wpp" => schemas.tmf.push(fixture("tmf/sample.tmf")),
        _ => {}
    }
    ConvertInput {
        files: vec![fixture(&format!("etl/{name}.etl"))],
        schemas,
        symbols: SymbolOptions::default(),
        criteria: FilterCriteria::default(),
        observer: Arc::new(()),
    }
}

fn convert_and_read(name: &str, input: &ConvertInput) -> (Conversion, Vec<ReadEvent>) {
    let folder = TestFolder::new(name);
    let conversion = convert(input, &folder.0).unwrap();
    let events = read_folder(&folder.0);
    (conversion, events)
}

/// Returns the lines that `weir dump --numeric --format jsonl` prints for a fixture, as far as the
/// fixtures have them: with names of values.
fn expected_lines(name: &str) -> Vec<Json> {
    let path = format!("{}/../../fixtures/expected/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns whether a line is an event that describes the file. Of the events of its class, the end of
/// the rundown and the groups at the end do not; the process of a writer has a header without a thread.
fn line_describes_file(line: &Json) -> bool {
    match line["event"].as_str().unwrap_or_default() {
        "Process/DCStart" => line["tid"] == -1 && line["pid"] != -1,
        "EventTrace/RDComplete" | "EventTrace/EndExtension" => false,
        name => name.starts_with("EventTrace/"),
    }
}

/// Formats a time as the JSON output does, with 100 ns.
fn format_time(time: u64) -> String {
    let units = i64::try_from(time / 100).unwrap() + UNIX_EPOCH_AS_FILETIME;
    let civil = FileTime(units).civil();
    let date = format!("{:04}-{:02}-{:02}", civil.year, civil.month, civil.day);
    format!("{date}T{:02}:{:02}:{:02}.{:07}Z", civil.hour, civil.minute, civil.second, civil.units)
}

#[test]
fn fixtures_have_the_same_events_times_and_fields_as_in_json() {
    let names =
        ["tracelogging", "manifest", "eventsource", "kernel", "wpp", "merged", "narrow", "compressed"];
    for name in names.into_iter().chain(["crashed", "undecodable"]) {
        let (conversion, mut events) = convert_and_read(name, &fixture_input(name));
        let mut lines = expected_lines(name);
        assert_eq!(events.len(), lines.len(), "{name}");
        let counted = lines.iter().filter(|line| !line_describes_file(line)).count();
        assert_eq!((conversion.events, conversion.written), (counted as u64, counted as u64), "{name}");
        assert!(counted < lines.len(), "{name}");
        // Events of different processors with equal times may come in another order.
        let line_key =
            |line: &Json| (line["time"].as_str().unwrap().to_owned(), line["cpu"].as_u64().unwrap());
        lines.sort_by_key(line_key);
        events.sort_by_key(|event| (format_time(event.time), event.context["_cpu"].as_int() as u64));
        for (event, line) in events.iter().zip(&lines) {
            let message = format!("{name}: {line}\n{event:?}");
            assert_eq!(
                (format_time(event.time), event.context["_cpu"].as_int()),
                (line_key(line).0, line_key(line).1.into()),
                "{message}"
            );
            let ids = if line["attributed"].is_null() { line } else { &line["attributed"] };
            assert_eq!(Some(event.context["_pid"].as_int() as i64), ids["pid"].as_i64(), "{message}");
            assert_eq!(Some(event.context["_tid"].as_int() as i64), ids["tid"].as_i64(), "{message}");
            for (member, key) in
                [("_process", "process"), ("_activity", "activity"), ("_related_activity", "related")]
            {
                assert_eq!(event.context[member].as_text(), line[key].as_str().unwrap_or("-"), "{message}");
            }
            assert_eq!(event.context["_provider"].as_text(), line["guid"].as_str().unwrap(), "{message}");
            if let Some(name) = line["event"].as_str() {
                assert!(event.name.ends_with(&format!(":{name}")), "{message}");
            }
            let stack: Vec<String> =
                event.context["_stack"].elements().iter().map(|f| format!("{:#x}", f.as_int())).collect();
            let expected: Vec<&str> =
                line["stack"].as_array().into_iter().flatten().map(|f| f.as_str().unwrap()).collect();
            assert_eq!(stack, expected, "{message}");
            if line["undecoded"].is_string() {
                assert!(event.fields["_payload"].matches(&line["raw"]), "{message}");
                continue;
            }
            let mut expected = line["fields"].as_object().unwrap().clone();
            for key in ["extra", "message"] {
                if !line[key].is_null() {
                    expected.insert(key.to_owned(), line[key].clone());
                }
            }
            let mut fields = event.fields.clone();
            fields.values.retain(|(name, tree)| {
                !(name == "_message" && line["message"].is_null() && tree.as_text().is_empty())
            });
            assert!(Tree::Struct(fields).matches(&Json::Object(expected)), "{message}");
        }
    }
}

#[test]
fn filters_select_events() {
    let mut input = fixture_input("tracelogging");
    input.criteria.head = Some(2);
    let (conversion, events) = convert_and_read("head", &input);
    let described = events.iter().filter(|event| !event.name.starts_with("Windows Kernel:")).count();
    // The events that describe the file are written, but not counted.
    assert_eq!((conversion.written, described), (2, 2), "{events:?}");
}

#[test]
fn equal_inputs_give_equal_bytes() {
    let read = |name: &str| {
        let folder = TestFolder::new(name);
        convert(&fixture_input("kernel"), &folder.0).unwrap();
        let mut files = BTreeMap::new();
        for entry in folder.0.read_dir().unwrap() {
            let path = entry.unwrap().path();
            files.insert(path.file_name().unwrap().to_owned(), fs::read(&path).unwrap());
        }
        files
    };
    assert_eq!(read("first"), read("second"));
}

#[test]
fn events_out_of_order_keep_their_times() {
    let folder = TestFolder::new("order");
    let mut streams = StreamSet::new(&folder.0, [7; 16]);
    let times = [50, 40, 60, 30, 45, 60, 1, 2, 3];
    for time in times {
        streams.add_event(PacketEvent { file: 0, cpu: 3, time, class: 0, bytes: &[] }).unwrap();
    }
    assert_eq!(streams.finish([5].into_iter()).unwrap(), 0);
    let mut found = Vec::new();
    let mut discarded = 0;
    for entry in folder.0.read_dir().unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        let mut last = 0;
        for packet in reader::split_packets(&bytes) {
            assert_eq!(packet.cpu, 3);
            discarded += packet.discarded;
            for event in packet.events.chunks(12) {
                let time = u64::from_le_bytes(event[4..].try_into().unwrap());
                assert!(time >= last && (packet.begin..=packet.end).contains(&time));
                last = time;
                found.push(time);
            }
        }
    }
    let mut times = times.to_vec();
    times.sort_unstable();
    found.sort_unstable();
    assert_eq!((found, discarded), (times, 5));
}

#[test]
fn lanes_and_streams_are_limited() {
    let folder = TestFolder::new("lanes");
    let mut streams = StreamSet::new(&folder.0, [7; 16]);
    for time in (0..100).rev() {
        streams.add_event(PacketEvent { file: 0, cpu: 0, time, class: 0, bytes: &[] }).unwrap();
    }
    for cpu in 0..3000 {
        streams.add_event(PacketEvent { file: 0, cpu, time: 1000, class: 0, bytes: &[] }).unwrap();
    }
    assert_eq!(streams.finish(std::iter::empty()).unwrap(), 92, "eight lanes take one event each");
    let files = folder.0.read_dir().unwrap().count();
    assert!(files <= 1024 + 8, "{files}");
    let events: usize = folder
        .0
        .read_dir()
        .unwrap()
        .map(|entry| {
            let bytes = fs::read(entry.unwrap().path()).unwrap();
            reader::split_packets(&bytes).iter().map(|packet| packet.events.len() / 12).sum::<usize>()
        })
        .sum();
    assert_eq!(events, 3100);
}

/// Returns the fields of a payload as JSON, through the visitor of another format.
#[derive(Default)]
struct JsonTree {
    open: Vec<Vec<Json>>,
    top: Vec<Json>,
}

impl JsonTree {
    fn add(&mut self, json: Json) {
        self.open.last_mut().unwrap_or(&mut self.top).push(json);
    }
}

impl<'p> Visitor<'p> for JsonTree {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let mut text = Vec::new();
        push_json(field, &value, Style { numeric: true }, &mut text);
        self.add(serde_json::from_slice(&text).unwrap());
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {
        self.open.push(Vec::new());
    }
    fn end_array(&mut self, _: usize, _: &Field) {
        let array = self.open.pop().unwrap();
        self.add(Json::Array(array));
    }
    fn begin_struct(&mut self, _: usize, _: &Field) {
        self.open.push(Vec::new());
    }
    fn end_struct(&mut self, index: usize, field: &Field) {
        self.end_array(index, field);
    }
}

fn any_value_field() -> impl Strategy<Value = Field> {
    let input = prop_oneof![(0..=25_u16).prop_filter("a structure", |n| *n != 24), 300..=310_u16];
    let output = prop_oneof![Just(0_u16), 0..=38_u16, 300..=301_u16];
    let count = prop_oneof![
        4 => Just(Count::One), 1 => (0..4_u16).prop_map(Count::Fixed),
        1 => Just(Count::Prefixed), 1 => Just(Count::ToEnd)
    ];
    let length = prop_oneof![3 => Just(Length::Natural), 1 => (0..9_u16).prop_map(Length::Fixed)];
    (".{0,6}", input, output, count, length, any::<bool>()).prop_map(
        |(name, input, output, count, length, has_map)| {
            let entries = [(1, "one\"; }"), (2, ""), (255, "all\n"), (u64::MAX, "wide")];
            let map = ValueMap::new("map", false, entries.map(|(value, name)| (value, name.to_owned())));
            let (input, output) = (InType(input), OutType(output));
            let map = (has_map && output == OutType::NULL).then(|| Arc::new(map));
            Field::value(&name, input, output).with_count(count).with_length(length).with_map(map)
        },
    )
}

/// Returns schemas with structures in structures.
fn any_schema() -> impl Strategy<Value = Schema> {
    let structure = (
        proptest::collection::vec(any_value_field(), 0..4),
        prop_oneof![Just(Count::One), Just(Count::Fixed(2)), Just(Count::Prefixed)],
    );
    (proptest::collection::vec(any_value_field(), 0..6), proptest::collection::vec(structure, 0..3)).prop_map(
        |(values, structures)| {
            let mut fields = values;
            let top = fields.len() + structures.len();
            let mut first = top;
            let mut members = Vec::new();
            for (inner, count) in structures {
                let kind = FieldKind::Struct { first: first as u16, members: inner.len() as u16 };
                fields.push(Field::new("s", kind).with_count(count));
                first += inner.len();
                members.extend(inner);
            }
            fields.extend(members);
            Schema::default().seal(fields, top).unwrap()
        },
    )
}

/// Encodes a payload and reads it with the text of its class; `None` if it does not fit its schema.
fn encode_and_read(schema: &Schema, payload: &[u8]) -> Option<Vec<Tree>> {
    let layout = Layout::new(schema);
    let mut bytes = Vec::new();
    let mut encoder = PayloadEncoder::new(&layout, &mut bytes);
    let walked = Walker::default().walk(schema, payload, 8, &mut encoder);
    let present = encoder.finish();
    walked.ok()?;
    let (present, _) = present.expect("a payload that fits its schema must be encoded");
    let mut text = String::new();
    push_declarations(schema, &layout, present, &mut NameSet::default(), &mut text);
    let fields = Metadata::parse_fields(&text);
    let (read, rest) = reader::decode_struct(&fields, &bytes);
    assert!(rest.is_empty(), "bytes without a field: {rest:?}\n{text}");
    Some(read.values.into_iter().map(|(_, tree)| tree).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn bytes_fit_their_declarations(schema in any_schema(), payload in proptest::collection::vec(prop_oneof![any::<u8>(), 0..3_u8], 0..90)) {
        let mut json = JsonTree::default();
        let walked = Walker::default().walk(&schema, &payload, 8, &mut json);
        let read = encode_and_read(&schema, &payload);
        prop_assert_eq!(walked.is_ok(), read.is_some());
        if let Some(read) = read {
            prop_assert_eq!(read.len(), json.top.len());
            for (tree, json) in read.iter().zip(&json.top) {
                prop_assert!(tree.matches(json), "{:?} is not {}", tree, json);
            }
        }
    }

    #[test]
    fn texts_of_any_content_stay_one_text(text in any::<Vec<u8>>()) {
        let mut bytes = Vec::new();
        push_text_field(&text, &mut bytes);
        prop_assert_eq!(bytes.iter().position(|byte| *byte == 0), Some(bytes.len() - 1));
        let expected = String::from_utf8_lossy(&text).replace('\0', NUL_SYMBOL);
        prop_assert_eq!(std::str::from_utf8(&bytes[..bytes.len() - 1]), Ok(&*expected));
    }
}
