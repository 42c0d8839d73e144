//! Reads the written JSON.

use std::collections::HashMap;

use serde_json::Value;
use traceweir_analysis::filter::FilterCriteria;
use traceweir_analysis::text::Moment;
use traceweir_format::kernel::hook;

use super::*;
use crate::activity::test_input::kernel_trace::{Packet, Switch as TestSwitch, Transfer};
use crate::activity::test_input::{FIXTURES, TestTrace, expected_events, fixture, input, write_turns};

fn convert_to_json(input: &ConvertInput) -> Value {
    let mut bytes = Vec::new();
    let conversion = convert(input, &mut bytes).unwrap();
    let json: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(json["traceEvents"].as_array().unwrap().len() as u64, conversion.written);
    json
}

fn events<'j>(json: &'j Value, phase: &str) -> Vec<&'j Value> {
    json["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == phase).collect()
}

#[test]
fn all_fixtures_become_valid_events() {
    for name in FIXTURES {
        let json = convert_to_json(&input(&[fixture(name)]));
        for event in json["traceEvents"].as_array().unwrap() {
            assert!(
                event["pid"].is_u64() && event["tid"].is_u64() && event["ts"].is_number(),
                "{name}: {event}"
            );
            assert!(event["name"].is_string(), "{name}: {event}");
        }
        assert_eq!(events(&json, "B").len(), events(&json, "E").len(), "{name}");
        assert_eq!(events(&json, "b").len(), events(&json, "e").len(), "{name}");
    }
}

#[test]
fn samples_have_their_stacks() {
    let json = convert_to_json(&input(&[fixture("kernel")]));
    let samples = events(&json, "P");
    assert_eq!(samples.len(), 2);
    let mut frame = samples[0]["sf"].to_string();
    let mut names = Vec::new();
    while let Value::Object(node) = &json["stackFrames"][&frame] {
        names.push(node["name"].as_str().unwrap().to_owned());
        frame = node.get("parent").map(Value::to_string).unwrap_or_default();
    }
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(json["otherData"]["start"], "2024-05-01T10:00:00.0000000Z");
}

#[test]
fn threads_run_on_processors() {
    let trace = TestTrace::write(0, |writer| {
        writer.put_process(70, "a\"b.exe", "").unwrap();
        writer.put_thread(70, 71).unwrap();
        let switch = |new_tid, old_tid, old_state| TestSwitch { new_tid, old_tid, old_state, wait_reason: 6 };
        writer.put_ready(1, 50, 71).unwrap();
        writer.put_switch(1, 100, switch(71, 0, 2)).unwrap();
        writer.put_switch(1, 250, switch(0, 71, 5)).unwrap();
        writer.put_switch(1, 300, switch(71, 0, 2)).unwrap();
        writer.put_packet(1, 400, Packet { pid: 70, bytes: 5, local_port: 1, is_sent: true }).unwrap();
        let (tid, file, bytes, is_write) = (71, 1, 512, false);
        writer.put_transfer(0, 450, Transfer { tid, file, bytes, is_write, duration: 30 }).unwrap();
    });
    let json = convert_to_json(&trace.input());
    let runs = events(&json, "X");
    let describe = |run: &&Value| (run["ts"].as_f64().unwrap(), run["dur"].as_f64().unwrap());
    assert_eq!(runs.iter().map(describe).collect::<Vec<_>>(), [(10.0, 15.0), (30.0, 15.0)]);
    assert_eq!(runs[0]["name"], "a\"b.exe (71)");
    assert_eq!(
        (&runs[0]["args"]["end"], &runs[1]["args"]["end"]),
        (&"UserRequest".into(), &"end of trace".into())
    );
    assert_eq!(runs[0]["args"]["wake latency ns"], 5000);
    let disk = events(&json, "b");
    assert_eq!((disk[0]["ts"].as_f64(), &disk[0]["args"]["bytes"]), (Some(42.0), &512.into()));
    let names: Vec<&Value> = events(&json, "M").iter().map(|event| &event["args"]["name"]).collect();
    assert!(names.contains(&&Value::from("a\"b.exe")), "{names:?}");
}

#[test]
fn thread_does_not_run_after_its_end() {
    let trace = TestTrace::write(0, |writer| {
        writer.put_process(70, "app.exe", "").unwrap();
        writer.put_thread(70, 72).unwrap();
        writer.put_thread(70, 71).unwrap();
        let payload = writer.payload.clone();
        let switch = |new_tid, old_tid, old_state| TestSwitch { new_tid, old_tid, old_state, wait_reason: 6 };
        writer.put_switch(1, 100, switch(71, 0, 2)).unwrap();
        writer.payload = payload;
        writer.put_system(hook::THREAD_END, 3, 1, 200).unwrap();
        // The switch away from the thread that ended is missing.
        writer.put_ready(1, 300, 72).unwrap();
        writer.put_switch(1, 400, switch(72, 0, 2)).unwrap();
        // A wake of a thread that runs is not the wake of its next run.
        writer.put_ready(0, 450, 72).unwrap();
        writer.put_switch(1, 500, switch(0, 72, 5)).unwrap();
        writer.put_switch(1, 600, switch(72, 0, 2)).unwrap();
        // The thread moves to another processor: the switch away from it is missing.
        writer.put_switch(0, 700, switch(72, 0, 2)).unwrap();
        writer.put_switch(0, 800, switch(0, 72, 5)).unwrap();
    });
    let json = convert_to_json(&trace.input());
    let runs: Vec<(f64, f64, &str, Option<u64>)> = events(&json, "X")
        .iter()
        .map(|run| {
            let args = &run["args"];
            let [ts, dur] = ["ts", "dur"].map(|key| run[key].as_f64().unwrap());
            (ts, dur, args["end"].as_str().unwrap(), args["wake latency ns"].as_u64())
        })
        .collect();
    let expected = [
        (10.0, 10.0, "end", None),
        (40.0, 10.0, "UserRequest", Some(10_000)),
        (70.0, 10.0, "UserRequest", None),
    ];
    assert_eq!(runs, expected);
}

#[test]
fn made_up_processes_have_ids_of_no_process() {
    let trace = TestTrace::write(1, |writer| {
        for pid in [2_000_000_000, 2_000_000_001, 2_000_000_002, i32::MAX.cast_unsigned()] {
            writer.put_process(pid, "app.exe", "").unwrap();
            writer.put_packet(1, 400, Packet { pid, bytes: 5, local_port: 1, is_sent: true }).unwrap();
        }
    });
    let json = convert_to_json(&trace.input());
    let names = events(&json, "M").into_iter().filter(|event| event["name"] == "process_name");
    let mut by_pid: HashMap<u64, HashSet<&str>> = HashMap::new();
    for event in names {
        let name = event["args"]["name"].as_str().unwrap();
        by_pid.entry(event["pid"].as_u64().unwrap()).or_default().insert(name);
    }
    assert_eq!(by_pid.len(), 5, "{by_pid:?}");
    assert!(by_pid.values().all(|names| names.len() == 1), "{by_pid:?}");
}

#[test]
fn hostile_names_stay_in_their_strings() {
    let json = convert_to_json(&TestTrace::generate(1 << 19).input());
    assert!(events(&json, "P").len() > 10);
    let is_process = |event: &&&Value| event["name"] == "process_name";
    assert!(
        events(&json, "M")
            .iter()
            .filter(is_process)
            .any(|event| { event["args"]["name"].as_str().is_some_and(|name| name.contains("</p>")) })
    );
}

#[test]
fn filters_select_whole_runs_of_threads() {
    let trace = write_turns();
    let read_runs = |set: fn(&mut FilterCriteria)| {
        let mut input = trace.input();
        set(&mut input.criteria);
        let json = convert_to_json(&input);
        let describe = |run: &&Value| {
            let [ts, dur] = ["ts", "dur"].map(|key| run[key].as_f64().unwrap());
            (run["args"]["tid"].as_u64().unwrap(), ts, dur)
        };
        events(&json, "X").iter().map(describe).collect::<Vec<_>>()
    };
    let (first, second) = ([(71, 10.0, 15.0), (71, 30.0, 10.0)], [(81, 25.0, 5.0), (81, 40.0, 0.0)]);
    assert_eq!(read_runs(|_| {}), [first[0], second[0], first[1], second[1]]);
    assert_eq!(read_runs(|criteria| criteria.pids = vec![70]), first);
    assert_eq!(read_runs(|criteria| criteria.tids = vec![81]), second);
    assert_eq!(read_runs(|criteria| criteria.text = Some("first.exe".to_owned())), first);
    assert!(read_runs(|criteria| criteria.cpus = vec![0]).is_empty());
    assert!(read_runs(|criteria| criteria.events = vec!["SampleProf".to_owned()]).is_empty());
    // A run that the time span cuts ends with the span.
    let to = Some(Moment::Offset(200));
    let mut input = trace.input();
    input.criteria.to = to;
    let json = convert_to_json(&input);
    assert_eq!(events(&json, "X")[0]["dur"].as_f64(), Some(10.0));
}

#[test]
fn runs_that_began_before_the_time_span_begin_with_it() {
    let trace = write_turns();
    let mut input = trace.input();
    for (from, first) in [(200, (71, 20.0, 5.0)), (270, (81, 27.0, 3.0)), (300, (71, 30.0, 10.0))] {
        input.criteria.from = Some(Moment::Offset(from));
        let json = convert_to_json(&input);
        let run = &events(&json, "X")[0];
        let numbers = ["ts", "dur"].map(|key| run[key].as_f64().unwrap());
        assert_eq!((run["args"]["tid"].as_u64().unwrap(), numbers[0], numbers[1]), first);
    }
    // The filters select a run that began before the time span as they do others.
    input.criteria.from = Some(Moment::Offset(200));
    input.criteria.pids = vec![80];
    let json = convert_to_json(&input);
    assert_eq!(events(&json, "X")[0]["ts"].as_f64(), Some(25.0));
}

#[test]
fn slices_have_names_of_pairs_and_fields_of_both_events() {
    let json = convert_to_json(&input(&[fixture("eventsource")]));
    let begins: Vec<&Value> = events(&json, "b").into_iter().chain(events(&json, "B")).collect();
    assert!(!begins.is_empty() && begins.iter().all(|begin| begin["name"] == "Order"), "{begins:?}");
    let expected = expected_events("eventsource");
    let start = expected.iter().find(|event| event["event"] == "Order/Start").unwrap();
    assert!(start["message"].is_string());
    assert!(begins.iter().any(|begin| begin["args"]["message"] == start["message"]), "{begins:?}");
    assert!(begins.iter().all(|begin| begin["args"]["level"] == 4 && begin["args"]["keyword"] == "0x1"));
    let mut ends = events(&json, "e").into_iter().chain(events(&json, "E"));
    assert!(ends.any(|end| end["args"]["stop.event id"] == 2), "{json}");
}
