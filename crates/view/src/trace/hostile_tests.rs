//! Indexes traces that are made to take memory, time or the page, and checks the limits of answers
//! in `docs/spec/view-protocol.md`.

use std::io::{Read, Seek};

use serde_json::Value;
use traceweir_format::{Guid, dotnet};

use crate::index::{Index, IndexLimits};
use crate::probe::{ask_all, build_view, endless_limits, new_view_with, open_view};
use crate::query::{
    TableQuery, TimeSpan, TimelineQuery, describe_event, describe_trace, draw_timeline, fill_table,
    list_tracks,
};
use crate::test_trace::{MARKUP, TestTrace, ask, view_of};
use crate::trace::TraceView;

fn tracks_of(view: &TraceView) -> Value {
    ask(|json| list_tracks(view, "", json))
}

fn draw(view: &TraceView, span: TimeSpan, tracks: &str) -> Value {
    let query = TimelineQuery { span, pixels: 1000, tracks: tracks.to_owned(), overview: false };
    ask(|json| draw_timeline(view, &query, json))
}

#[test]
fn answers_about_a_million_processes_are_bounded() {
    let mut trace = TestTrace::new(0);
    for number in 0..1_000_000_u32 {
        trace.add_process(i64::from(number), 4 + number, if number % 3 == 0 { MARKUP } else { "p.exe" });
    }
    let view = view_of(vec![trace]);
    assert!(view.index().threads.threads.len() <= 1 << 17);
    assert_eq!(view.index().events.rows(), 1_000_000);
    let tracks = tracks_of(&view);
    assert_eq!(tracks["processes"].as_array().unwrap().len(), 200);
    assert!(tracks["more_processes"].as_u64().unwrap() > 100_000);
    for name in ["processes", "threads", "events"] {
        let span = TimeSpan { from: 0, to: i64::MAX };
        let query = TableQuery { name: name.to_owned(), span, search: String::new(), sort: None };
        let table = ask(|json| assert!(fill_table(&view, &query, &endless_limits(), json)));
        assert!(table["rows"].as_array().unwrap().len() <= 500);
    }
    let drawn = draw(&view, TimeSpan { from: 0, to: i64::MAX }, "c0,t2,s2,k1,v1");
    assert!(drawn.to_string().len() < 1 << 20);
}

#[test]
fn huge_and_strange_events_are_bounded() {
    let mut trace = TestTrace::new(0);
    for number in 0..300_u32 {
        let provider = Guid::from_u128(u128::from(number));
        let payload = vec![b'<'; 60_000];
        trace.add_event(i64::from(number), provider, (7, 0), (1, 2), &payload);
    }
    let huge_name = MARKUP.repeat(100);
    trace.add_process(3000, 77, &huge_name);
    let view = view_of(vec![trace]);
    let answers = ask_all(&view);
    for answer in &answers {
        assert!(answer.len() < 1 << 20, "an answer has {} bytes", answer.len());
        if !answer.is_empty() {
            serde_json::from_slice::<Value>(answer).unwrap();
        }
    }
    let tracks = tracks_of(&view);
    assert_eq!(tracks["providers"].as_array().unwrap().len(), 200);
    let event = ask(|json| assert!(describe_event(&view, 0, json)));
    assert_eq!(event["raw"].as_str().unwrap().len(), 2 * 4096);
}

#[test]
fn negative_and_backward_times_are_put_in_order() {
    let mut trace = TestTrace::new(0);
    for time in [50, -1_000_000, 40, i64::MIN / 2, 60, 10, 0] {
        trace.add_switch(time, 0, (10, 11), 5);
        trace.add_event(time, Guid::from_u128(1), (1, 1), (5, 6), &[]);
    }
    let view = view_of(vec![trace]);
    let index = view.index();
    let mut times = Vec::new();
    index.events.for_rows(0, u64::MAX, &index.store, |_, values| {
        times.push(values[0].cast_signed());
        true
    });
    drop(index);
    assert!(times.len() == 14 && times.is_sorted() && times[0] >= 0, "{times:?}");
    let answers = ask_all(&view);
    assert!(answers.iter().all(|answer| answer.len() < 1 << 18));
}

#[test]
fn traces_of_two_machines_stay_apart() {
    let mut traces = [TestTrace::new(1 << 40), TestTrace::new(1 << 50)];
    for (trace, name) in traces.iter_mut().zip(["one.exe", "two.exe"]) {
        trace.add_process(1, 100, name);
        trace.add_event(2, Guid::from_u128(1), (1, 0), (100, 7), &[]);
        trace.add_switch(10, 0, (0, 7), 5);
        trace.add_switch(30, 0, (7, 0), 5);
    }
    let view = view_of(traces.into());
    let tracks = tracks_of(&view);
    assert_eq!(tracks["cpus"], serde_json::json!([0, 1]));
    assert_eq!(tracks["cpu_names"], serde_json::json!(["CPU 0 · trace-0.etl", "CPU 0 · trace-1.etl"]));
    let mut names: Vec<&str> = tracks["processes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|process| process["name"].as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["one.exe", "two.exe"]);
    let threads = view.index().threads.threads.iter().filter(|thread| thread.tid == 7).count();
    assert_eq!(threads, 2);
}

#[test]
fn states_last_until_the_end_of_the_trace() {
    let mut trace = TestTrace::new(0);
    trace.add_switch(1000, 0, (0, 7), 5);
    trace.add_switch(2000, 0, (7, 8), 5);
    trace.add_event(5000, Guid::from_u128(1), (1, 0), (4, 9), &[]);
    let view = view_of(vec![trace]);
    let about = ask(|json| describe_trace(&view, json));
    assert_eq!((&about["begin"], &about["end"]), (&Value::from(100_000), &Value::from(500_000)));
    let tids = |tid| view.index().threads.threads.iter().position(|thread| thread.tid == tid).unwrap();
    let (waiting, running) = (tids(7), tids(8));
    let span = TimeSpan { from: 0, to: 600_000 };
    let drawn = draw(&view, span, &format!("c0,t{waiting},t{running}"));
    let last_end = |track: &str, width: usize| {
        let numbers = drawn["tracks"][track].as_array().unwrap();
        numbers[numbers.len() - width + 1].as_i64()
    };
    assert_eq!(last_end("c0", 5), Some(500_000));
    assert_eq!(last_end(&format!("t{waiting}"), 7), Some(500_000));
    assert_eq!(last_end(&format!("t{running}"), 7), Some(500_000));
}

#[test]
fn garbage_collections_and_lone_events_are_slices() {
    let mut trace = TestTrace::new(0);
    let ids = (50, 60);
    // A background collection contains a short one, and ends on another thread.
    for (time, id, opcode, number, tid) in
        [(10, 1, 1, 5_u32, 60), (20, 1, 1, 6, 60), (30, 2, 2, 6, 60), (40, 2, 2, 5, 61)]
    {
        trace.add_event(
            time,
            dotnet::RUNTIME,
            (id, opcode),
            (ids.0, tid),
            &[&number.to_le_bytes()[..], &[0; 16]].concat(),
        );
    }
    trace.add_event(50, Guid::from_u128(1), (1, 0), (50, 62), &[]);
    let view = view_of(vec![trace]);
    let position = |tid| view.index().threads.threads.iter().position(|thread| thread.tid == tid).unwrap();
    let (collector, lone) = (position(60), position(62));
    let drawn = draw(&view, TimeSpan { from: 0, to: 10_000 }, &format!("s{collector},s{lone}"));
    let lanes = drawn["tracks"][format!("s{collector}")].as_array().unwrap();
    let spans: Vec<(i64, i64)> =
        lanes.iter().take(2).map(|lane| (lane[0].as_i64().unwrap(), lane[1].as_i64().unwrap())).collect();
    assert_eq!(spans, [(1000, 4000), (2000, 3000)]);
    // The last lane has the events of a thread without context switches.
    assert_eq!(
        drawn["tracks"][format!("s{lone}")],
        serde_json::json!([[5000, 5000, 1, 4, position_of_kind(&view, 4)]])
    );
}

/// Returns the kind of a row.
fn position_of_kind(view: &TraceView, row: u64) -> u64 {
    let index = view.index();
    index.events.row(row, &index.store).unwrap()[crate::index::event_column::KIND]
}

#[test]
fn what_limits_merge_is_reported_and_kept() {
    let mut trace = TestTrace::new(0);
    for number in 0..40_u32 {
        let time = i64::from(number) * 100;
        trace.add_process(time, 100 + number, "p.exe");
        let tid = 1000 + number % 2 * 100 + number / 2;
        trace.add_switch(time + 10, (number % 2) as u16, (tid, tid + 1), 5);
        trace.add_event(time + 20, Guid::from_u128(1), (number as u16, 0), (4, 5), &[]);
    }
    let file = trace.finish();
    let merged_of = |limits: IndexLimits| {
        let mut index_file = tempfile::tempfile().unwrap();
        let index = Index::with_limits(index_file.try_clone().unwrap(), limits);
        let view = new_view_with(vec![file.try_clone().unwrap()], index).unwrap();
        view.build(&None, None);
        let about = ask(|json| describe_trace(&view, json));
        assert_eq!(about["events"], 120);
        // Every question has an answer.
        assert!(!ask_all(&view).is_empty());
        let mut bytes = Vec::new();
        index_file.rewind().unwrap();
        index_file.read_to_end(&mut bytes).unwrap();
        let again = open_view(vec![file.try_clone().unwrap()], &bytes, b"").unwrap().unwrap();
        assert_eq!(ask(|json| describe_trace(&again, json))["merged"], about["merged"]);
        about["merged"].clone()
    };
    let whole = IndexLimits::default();
    assert_eq!(merged_of(whole), serde_json::json!({}));
    let names = |merged: &Value| merged.as_object().unwrap().keys().cloned().collect::<Vec<String>>();
    assert_eq!(names(&merged_of(IndexLimits { threads: 10, ..whole })), ["threads"]);
    let kinds = merged_of(IndexLimits { kinds: 10, ..whole });
    // Kind 0 takes the place of one of ten; the process and the switch take two.
    assert_eq!(kinds, serde_json::json!({ "kinds": 40 - 7 }));
    assert_eq!(names(&merged_of(IndexLimits { cpus: 1, ..whole })), ["cpus"]);
}

#[test]
fn track_of_a_provider_has_the_events_of_all_kinds() {
    const KINDS: u16 = 300;
    let mut trace = TestTrace::new(0);
    for number in 0..KINDS * 3 {
        trace.add_event(i64::from(number) * 10, Guid::from_u128(9), (number % KINDS, 0), (4, 5), &[]);
    }
    let file = trace.finish();
    let (view, bytes) = build_view(vec![file.try_clone().unwrap()]).unwrap();
    let reopened = open_view(vec![file], &bytes, b"test").unwrap().unwrap();
    for view in [view, reopened] {
        let tracks = tracks_of(&view);
        let provider = &tracks["providers"][0];
        assert_eq!(provider["count"], u64::from(KINDS) * 3);
        let id = format!("v{}", provider["id"]);
        for to in [900_000, 1_000_000_000] {
            let drawn = draw(&view, TimeSpan { from: 0, to }, &id);
            let numbers = drawn["tracks"][&id].as_array().unwrap();
            let count: u64 = numbers.chunks(4).map(|mark| mark[2].as_u64().unwrap()).sum();
            assert_eq!(count, u64::from(KINDS) * 3);
            let (first, last) = (&numbers[..4], &numbers[numbers.len() - 4..]);
            assert_eq!((&first[0], &first[3]), (&Value::from(0), &Value::from(0)));
            assert_eq!(last[1], (i64::from(KINDS) * 3 - 1) * 1000);
        }
    }
}

#[test]
fn small_index_file_cannot_describe_much_data() {
    let mut trace = TestTrace::new(0);
    trace.add_process(1, 5, "a");
    let file = trace.finish();
    let (_, bytes) = build_view(vec![file.try_clone().unwrap()]).unwrap();
    for cut in 1..bytes.len() {
        assert!(open_view(vec![file.try_clone().unwrap()], &bytes[..cut], b"test").unwrap().is_none());
    }
}
