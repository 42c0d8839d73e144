use std::collections::HashSet;

use serde_json::Value;
use traceweir_analysis::pairs::MAX_OPEN_PAIRS;

use super::*;
use crate::otlp::tests::{TestEvent, attribute, build_trace, convert_bytes, input_of, parse_lines};

const ACTIVITY: Guid = Guid::from_u128(0x01020304_0506_0708_090A_0B0C0D0E0F10);
const CHILD: Guid = Guid::from_u128(7);

fn event(name: &'static str, opcode: u8) -> TestEvent<'static> {
    TestEvent { name, opcode, level: 4, thread: 5, ..TestEvent::default() }
}

fn spans_of(events: &[TestEvent<'_>]) -> (Vec<Value>, Conversion) {
    let (lines, conversion) = convert_bytes(&build_trace("p", events, 0), convert);
    let resources = lines.iter().flat_map(|line| line["resourceSpans"].as_array().unwrap());
    let scopes = resources.flat_map(|resource| resource["scopeSpans"].as_array().unwrap());
    (scopes.flat_map(|scope| scope["spans"].as_array().unwrap()).cloned().collect(), conversion)
}

#[test]
fn pairs_of_an_activity_become_spans_of_its_trace() {
    let (spans, conversion) = spans_of(&[
        TestEvent { activity: ACTIVITY, value: 1, ..event("JobStart", 1) },
        TestEvent { activity: CHILD, related: Some(ACTIVITY), ..event("PartStart", 1) },
        TestEvent { activity: CHILD, ..event("PartStop", 2) },
        TestEvent { activity: ACTIVITY, thread: 6, level: 2, value: 2, ..event("JobStop", 2) },
    ]);
    assert_eq!((conversion.events, conversion.written), (4, 2));
    let (part, job) = (&spans[0], &spans[1]);
    assert_eq!((&part["name"], &job["name"]), (&Value::from("Part"), &Value::from("Job")));
    assert_eq!(job["traceId"], "0102030405060708090a0b0c0d0e0f10");
    assert_eq!((&part["traceId"], &part["parentSpanId"]), (&job["traceId"], &job["spanId"]));
    assert_eq!(job["parentSpanId"], Value::Null);
    assert_eq!(job["startTimeUnixNano"], "1714557600000001000");
    assert_eq!(job["endTimeUnixNano"], "1714557600000004000");
    assert_eq!(
        (job["kind"].as_u64(), &job["status"]["code"], &part["status"]),
        (Some(1), &Value::from(2), &Value::Null)
    );
    assert_eq!(attribute(job, "value")["intValue"], "1");
    assert_eq!(attribute(job, "stop.value")["intValue"], "2");
}

#[test]
fn spans_without_activity_nest_by_thread() {
    let (spans, _) = spans_of(&[
        event("OuterStart", 1),
        TestEvent { thread: 9, ..event("OtherStart", 1) },
        event("InnerStart", 1),
        event("InnerStop", 2),
        event("OuterStop", 2),
        TestEvent { thread: 9, ..event("OtherStop", 2) },
    ]);
    let [inner, outer, other] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!((&inner["parentSpanId"], &inner["traceId"]), (&outer["spanId"], &outer["traceId"]));
    assert_eq!((&outer["parentSpanId"], &other["parentSpanId"]), (&Value::Null, &Value::Null));
    assert_ne!(outer["traceId"], other["traceId"]);
    let ids: HashSet<&str> = spans.iter().map(|span| span["spanId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 3);
}

#[test]
fn starts_and_stops_without_partner_are_counted() {
    let (spans, conversion) =
        spans_of(&[event("AStop", 2), event("AStart", 1), event("AStop", 2), event("AStart", 1)]);
    assert_eq!(spans.len(), 1);
    assert_eq!(
        conversion.notes,
        ["1 start event without a stop event", "1 stop event without a start event"]
    );
}

#[test]
fn spans_are_selected_by_their_start() {
    let events = [
        TestEvent { value: 1, ..event("AStart", 1) },
        TestEvent { value: 2, ..event("BStart", 1) },
        event("BStop", 2),
        event("AStop", 2),
        event("Other", 0),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.etl");
    std::fs::write(&path, build_trace("p", &events, 0)).unwrap();
    let run = |name: &str, head| {
        let mut input = input_of(vec![path.clone()]);
        (input.criteria.events, input.criteria.head) = (vec![name.to_owned()], head);
        let mut out = Vec::new();
        let conversion = convert(&input, &mut out).unwrap();
        let lines = parse_lines(&out);
        let spans = lines.iter().map(|line| line["resourceSpans"][0]["scopeSpans"][0]["spans"].clone());
        (spans.collect::<Vec<Value>>(), conversion)
    };
    let (spans, conversion) = run("AStart", None);
    assert_eq!((conversion.events, conversion.written), (1, 1));
    assert!(conversion.notes.is_empty(), "{:?}", conversion.notes);
    assert_eq!(spans[0][0]["endTimeUnixNano"], "1714557600000004000");
    let (spans, _) = run("*Start", Some(1));
    assert_eq!(spans[0][0]["endTimeUnixNano"], "1714557600000004000");
    let (_, conversion) = run("AStop", None);
    assert_eq!((conversion.events, conversion.written), (1, 0));
    assert_eq!(conversion.notes, ["1 stop event whose start event the filters do not select"]);
    let (_, conversion) = run("Other", None);
    assert_eq!((conversion.events, conversion.written), (1, 0));
    assert_eq!(conversion.notes, ["the filters select neither start events nor stop events"]);
    assert_eq!(run("Nothing", None).1.events, 0);
}

#[test]
fn number_of_open_spans_is_bounded() {
    let starts = (0..MAX_OPEN_PAIRS as u32 + 5).map(|thread| TestEvent { thread, ..event("AStart", 1) });
    let (spans, conversion) = spans_of(&starts.collect::<Vec<_>>());
    assert_eq!(spans.len(), 0);
    assert!(
        conversion.notes.iter().any(|note| note.starts_with("5 start events left out")),
        "{:?}",
        conversion.notes
    );
}

#[test]
fn starts_without_stops_do_not_keep_their_memory() {
    let (count, limit) = (20_000_u64, MAX_OPEN_PER_THREAD as u64);
    let mut events = vec![event("AStart", 1); count as usize];
    events.extend(vec![event("AStop", 2); count as usize]);
    let (spans, conversion) = spans_of(&events);
    assert_eq!(spans.len() as u64, limit);
    let missing = traceweir_analysis::text::format_number(count - limit);
    let expected = [
        format!("{missing} start events without a stop event"),
        format!("{missing} stop events without a start event"),
    ];
    assert_eq!(conversion.notes, expected);
}

#[test]
fn memory_of_an_open_span_contains_its_keys_and_names() {
    let mut attributes = Attributes::default();
    (0..1000).for_each(|number| attributes.add_integer(&format!("a key of some length {number}"), 1));
    let json = attributes.json().len();
    let (owner, trace, id) =
        (SpanOwner::Thread((0, 1, 2)), TraceId::from_parts(&[]), SpanId::from_parts(&[]));
    let (parent, start_ns, is_error) = (None, 0, false);
    let (name, provider) = ("n".repeat(1 << 20), "p".repeat(1 << 20));
    let resource = (0, 1, "r".repeat(1 << 20));
    let span =
        OpenSpan { owner, trace, id, parent, name, start_ns, resource, provider, attributes, is_error };
    assert!(span.memory_bytes() > (3 << 20) + json + 1000 * size_of::<(String, u32)>());
}
