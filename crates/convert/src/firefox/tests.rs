//! Reads the written JSON.

use serde_json::Value;
use traceweir_format::kernel::hook;

use super::*;
use crate::activity::ActivitySummary;
use crate::activity::test_input::kernel_trace::{Packet, Switch as TestSwitch, Transfer};
use crate::activity::test_input::{FIXTURES, TestTrace, fixture, input};

fn convert_to_json(input: &ConvertInput) -> (Value, Conversion) {
    let mut bytes = Vec::new();
    let conversion = convert(input, &mut bytes).unwrap();
    (serde_json::from_slice(&bytes).unwrap(), conversion)
}

fn threads(json: &Value) -> &[Value] {
    json["threads"].as_array().unwrap()
}

fn thread<'j>(json: &'j Value, name: &str) -> &'j Value {
    threads(json).iter().find(|thread| thread["name"] == name).unwrap()
}

/// Returns the sum of the lengths of a table in all threads.
fn total(json: &Value, table: &str) -> u64 {
    threads(json).iter().filter_map(|thread| thread[table]["length"].as_u64()).sum()
}

/// Returns the names of the functions of the stack of a sample, innermost first.
fn functions_of_sample(thread: &Value, sample: usize) -> Vec<String> {
    let column = |table: &str, name: &str, row: u64| thread[table][name][row as usize].as_u64();
    let mut names = Vec::new();
    let mut stack = column("samples", "stack", sample as u64);
    while let Some(node) = stack {
        let frame = column("stackTable", "frame", node).unwrap();
        let function = column("frameTable", "func", frame).unwrap();
        let name = column("funcTable", "name", function).unwrap();
        names.push(thread["stringArray"][name as usize].as_str().unwrap().to_owned());
        stack = column("stackTable", "prefix", node);
    }
    names
}

#[test]
fn kernel_trace_has_its_samples_and_markers() {
    let (json, conversion) = convert_to_json(&input(&[fixture("kernel")]));
    assert_eq!(total(&json, "samples"), 2);
    assert_eq!(total(&json, "samples") + total(&json, "markers"), conversion.written);
    let renamed = thread(&json, "renamed");
    assert_eq!((&renamed["processName"], &renamed["tid"]), (&"child.exe".into(), &"3004".into()));
    assert_eq!(functions_of_sample(renamed, 0).len(), 3);
    assert_eq!(json["meta"]["startTime"], 1_714_557_600_000.0);
    assert_eq!(json["meta"]["interval"], 1.0);
}

#[test]
fn all_fixtures_become_profiles() {
    for name in FIXTURES {
        let (json, conversion) = convert_to_json(&input(&[fixture(name)]));
        assert_eq!(total(&json, "samples") + total(&json, "markers"), conversion.written, "{name}");
        for thread in threads(&json) {
            let strings = thread["stringArray"].as_array().unwrap().len();
            let names = thread["markers"]["name"].as_array().unwrap();
            assert!(names.iter().all(|name| (name.as_u64().unwrap() as usize) < strings), "{name}");
        }
    }
}

#[test]
fn markers_have_the_fields_of_their_schema() {
    let (json, _) = convert_to_json(&input(&[fixture("tracelogging")]));
    let schemas = json["meta"]["markerSchema"].as_array().unwrap();
    let mut checked = 0;
    for marker in threads(&json).iter().flat_map(|thread| thread["markers"]["data"].as_array().unwrap()) {
        let schema = schemas.iter().find(|schema| schema["name"] == marker["type"]).unwrap();
        for field in schema["fields"].as_array().unwrap_or(schema["data"].as_array().unwrap_or(&Vec::new())) {
            assert!(!marker[field["key"].as_str().unwrap()].is_null(), "{field} of {marker}");
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked}");
}

#[test]
fn processor_time_is_that_of_the_switches() {
    let trace = TestTrace::write(0, |writer| {
        writer.put_process(70, "app.exe", "").unwrap();
        writer.put_thread(70, 71).unwrap();
        let switch = |new_tid, old_tid, old_state| TestSwitch { new_tid, old_tid, old_state, wait_reason: 6 };
        writer.put_switch(1, 1000, switch(71, 0, 2)).unwrap();
        writer.put_switch(1, 2000, switch(0, 71, 5)).unwrap();
        writer.put_switch(1, 5000, switch(71, 0, 2)).unwrap();
        writer.put_sample(1, 6000, 71, 0x1000).unwrap();
        writer.put_sample(1, 6500, 71, 0x1000).unwrap();
        writer.put_packet(1, 7000, Packet { pid: 70, bytes: 5, local_port: 1, is_sent: true }).unwrap();
        writer.put_packet(1, 7100, Packet { pid: 70, bytes: 6, local_port: 1, is_sent: true }).unwrap();
        let (tid, file, bytes, is_write) = (71, 1, 512, false);
        writer.put_transfer(0, 8000, Transfer { tid, file, bytes, is_write, duration: 30 }).unwrap();
    });
    let (json, _) = convert_to_json(&trace.input());
    let samples = threads(&json).iter().find(|thread| thread["samples"]["length"] == 2).unwrap();
    let delta = &samples["samples"]["threadCPUDelta"];
    // A tick is 100 ns: the thread ran 200 µs and then 50 µs.
    assert_eq!((&delta[0], &delta[1]), (&200.into(), &50.into()), "{}", samples["samples"]);
    let counters = json["counters"].as_array().unwrap();
    let sent = counters.iter().find(|counter| counter["name"] == "TCP send bytes").unwrap();
    let counts: Vec<f64> =
        sent["samples"]["count"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    assert_eq!(counts, [5.0, 6.0]);
}

#[test]
fn processor_time_ends_with_the_thread() {
    let trace = TestTrace::write(0, |writer| {
        writer.put_process(70, "app.exe", "").unwrap();
        writer.put_thread(70, 71).unwrap();
        let payload = writer.payload.clone();
        let switch = |new_tid, old_tid, old_state| TestSwitch { new_tid, old_tid, old_state, wait_reason: 6 };
        writer.put_switch(1, 1000, switch(71, 0, 2)).unwrap();
        writer.put_sample(1, 1500, 71, 0x1000).unwrap();
        writer.payload = payload;
        writer.put_system(hook::THREAD_END, 3, 1, 2000).unwrap();
        // The switch away from the thread is missing; a late sample shows what has been counted.
        writer.put_switch(1, 5000, switch(0, 72, 5)).unwrap();
        writer.put_sample(1, 6000, 71, 0x1000).unwrap();
    });
    let (json, _) = convert_to_json(&trace.input());
    let samples = threads(&json).iter().find(|thread| thread["samples"]["length"] == 2).unwrap();
    let delta = &samples["samples"]["threadCPUDelta"];
    assert_eq!((&delta[0], &delta[1]), (&50.into(), &50.into()), "{}", samples["samples"]);
}

#[test]
fn counter_values_stay_numbers() {
    let summary = read_fixture();
    let mut builder = ProfileBuilder::new();
    for value in [f64::MAX, f64::MIN, f64::NAN, f64::INFINITY, 1.0] {
        builder.set_counter(&summary.tables, 0, None, "a", value);
    }
    assert_eq!((builder.counter_values, builder.left_out.counter_values), (2, 3));
    let json = serde_json::to_value(&builder.profile).unwrap();
    let counts = json["counters"][0]["samples"]["count"].as_array().unwrap();
    assert_eq!(counts.iter().filter_map(Value::as_f64).count(), 2, "{counts:?}");
}

#[test]
fn memory_of_a_profile_is_limited() {
    let summary = read_fixture();
    let mut builder = ProfileBuilder { memory: ProfileMemory::with_limit(1 << 20), ..ProfileBuilder::new() };
    let thread = builder.find_thread(&summary.tables, None);
    let mut number = 0_u64;
    while builder.left_out.markers == 0 {
        let texts = (0..60).map(|_| {
            number += 1;
            (Arc::from("a field"), FieldValue::Text(format!("{number:b}").into()))
        });
        let fields = Fields::from_values(texts.collect());
        let detail = EventDetail { fields, ..EventDetail::default() };
        builder.add_marker(thread, MarkerTiming::Instant(timestamp(0)), &detail);
    }
    assert!(builder.memory.is_full() && builder.markers < MAX_MARKERS, "{}", builder.markers);
    builder.set_counter(&summary.tables, 0, None, "a", 1.0);
    assert_eq!(builder.left_out.counter_values, 1);
}

/// Reads a trace for its tables.
fn read_fixture() -> ActivitySummary {
    let needed = NeededActivity { events: false, event_stacks: false };
    read_activity(&input(&[fixture("kernel")]), needed, |_, _| Ok(())).unwrap()
}

#[test]
fn busy_trace_keeps_its_stacks_and_names() {
    let (json, _) = convert_to_json(&TestTrace::generate(1 << 20).input());
    assert!(total(&json, "samples") > 100);
    assert!(
        threads(&json)
            .iter()
            .any(|thread| { thread["processName"].as_str().is_some_and(|name| name.contains("\"</p>")) })
    );
}
