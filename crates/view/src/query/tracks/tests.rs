//! Searches tracks by the names and ids of processes, threads and providers.

use serde_json::Value;
use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;

use super::*;
use crate::index::kinds::{KindKey, KindNames, NewKind};
use crate::index::series::Item;
use crate::index::threads::EventTime;
use crate::probe::new_view_with;
use crate::test_trace::{TestTrace, ask, view_of};

/// Returns the processes with the ids of their threads.
fn processes_of(answer: &Value) -> Vec<(String, Vec<u64>)> {
    let processes = answer["processes"].as_array().unwrap().iter();
    processes
        .map(|process| {
            let threads = process["threads"].as_array().unwrap().iter();
            let tids = threads.map(|thread| thread["tid"].as_u64().unwrap());
            (process["name"].as_str().unwrap_or("?").to_owned(), tids.filter(|tid| *tid < 1000).collect())
        })
        .collect()
}

#[test]
fn search_finds_processes_threads_and_providers() {
    let mut trace = TestTrace::new(0);
    trace.add_process(1, 100, "Alpha.exe");
    trace.add_process(2, 200, "beta.exe");
    let (first, second) = (Guid::from_u128(0xAAAA), Guid::from_u128(0xBBBB));
    for (time, ids) in [(10, (100, 11)), (20, (100, 12)), (30, (200, 21))] {
        trace.add_event(time, first, (1, 0), ids, &[]);
    }
    trace.add_event(40, second, (2, 0), (200, 22), &[]);
    let view = view_of(vec![trace]);
    let search = |text: &str| ask(|json| list_tracks(&view, text, json));
    let alpha = ("Alpha.exe".to_owned(), vec![11, 12]);
    let beta = ("beta.exe".to_owned(), vec![21, 22]);
    let sorted = |text: &str| {
        let mut processes = processes_of(&search(text));
        processes.iter_mut().for_each(|(_, threads)| threads.sort_unstable());
        processes.sort();
        processes
    };
    assert_eq!(sorted(""), [alpha.clone(), beta.clone()]);
    // A process whose name or id fits is listed with all threads.
    assert_eq!(sorted("ALPHA"), [alpha]);
    assert_eq!(sorted("200"), [beta]);
    // Otherwise only the threads that fit are.
    assert_eq!(sorted("21"), [("beta.exe".to_owned(), vec![21])]);
    assert!(sorted("nothing of this name").is_empty());
    let providers = |text: &str| {
        let answer = search(text);
        let providers = answer["providers"].as_array().unwrap().iter();
        providers.map(|provider| provider["guid"].as_str().unwrap().to_owned()).collect::<Vec<String>>()
    };
    assert_eq!(providers(&second.to_string().to_lowercase()), [second.to_string()]);
    assert_eq!(providers("alpha"), Vec::<String>::new());
    // Processors and counters stay.
    assert_eq!(search("nothing of this name")["cpus"], search("")["cpus"]);
}

#[test]
fn reply_has_a_limit_of_bytes() {
    let name = "\u{1}".repeat(200);
    let mut index = Index::new(tempfile::tempfile().unwrap());
    for tid in 0..20_000 {
        let at = EventTime { ns: 0, file: 0, machine: 0, stamp: 0 };
        let thread = index.threads.find_or_add(100 + tid, Some(1000 + tid / 60 * 4), at);
        index.threads.set_name(thread, &name);
        index.threads.get_mut(thread).unwrap().events = 1;
    }
    index.threads.group(|thread| (thread.pid, Some("\u{1}".repeat(1000).into())));
    for number in 0..30_000_u16 {
        let provider = Guid::from_u128(u128::from(number / 100));
        let descriptor = EventDescriptor { id: number, ..EventDescriptor::default() };
        let key = KindKey { provider, descriptor, hook: None, schema: None };
        let event = format!("{}{name}", number % 100).into();
        let names = KindNames { provider: None, event: Some(&event) };
        let kind = index.kinds.add(NewKind { key, names, row: 0 });
        let mark = Item { start: 0, duration: 0, value: 0 };
        index.kinds.get_mut(kind).unwrap().marks.push(mark, &mut index.store);
    }
    let view = new_view_with(Vec::new(), index).unwrap();
    let mut json = JsonWriter::default();
    list_tracks(&view, "", &mut json);
    let bytes = json.into_bytes();
    assert!(bytes.len() < 2 * MAX_PART_BYTES + (64 << 10), "{} bytes", bytes.len());
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    for (list, more, parts, total) in
        [("processes", "more_processes", "threads", 334), ("providers", "more_providers", "kinds", 300)]
    {
        let entries = answer[list].as_array().unwrap();
        assert!(entries.len() > 10, "{list}: {}", entries.len());
        assert_eq!(entries.len() as u64 + answer[more].as_u64().unwrap(), total, "{list}");
        let last = entries.last().unwrap();
        let size = if list == "processes" { 60 } else { 100 };
        assert_eq!(last[parts].as_array().unwrap().len() as u64 + last["more"].as_u64().unwrap(), size);
    }
}

#[test]
fn samples_estimate_what_ran_without_switches() {
    let mut trace = TestTrace::new(0);
    trace.add_process(1, 100, "busy.exe");
    trace.add_process(2, 200, "quiet.exe");
    trace.add_sample_interval(3, 20_000);
    for number in 1..=10 {
        let tid = if number <= 7 { 11 } else { 21 };
        trace.add_event(
            number * 20_000,
            Guid::from_u128(1),
            (1, 0),
            (if tid == 11 { 100 } else { 200 }, tid),
            &[],
        );
        trace.add_sample(number * 20_000, 0, tid, 1);
        // Many events of idle processors.
        (0..30).for_each(|_| trace.add_sample(number * 20_000, 1, 0, 1));
    }
    let view = view_of(vec![trace]);
    let tracks = ask(|json| list_tracks(&view, "", json));
    assert_eq!((&tracks["estimated"], tracks["cpus"].as_array().unwrap().len()), (&true.into(), 2));
    let processes = tracks["processes"].as_array().unwrap();
    let shown: Vec<(&str, u64)> = processes
        .iter()
        .map(|process| (process["name"].as_str().unwrap_or("?"), process["running"].as_u64().unwrap()))
        .filter(|(name, _)| *name != "?")
        .collect();
    assert_eq!(shown, [("busy.exe", 14_000_000), ("quiet.exe", 6_000_000)]);
    let query = crate::query::TimelineQuery {
        span: TimeSpan { from: 0, to: 20_000_000 },
        pixels: 10,
        tracks: format!("p{},c0,c1", processes[0]["id"]),
        overview: true,
    };
    let answer = ask(|json| crate::query::draw_timeline(&view, &query, json));
    let busy = |track: &str| {
        let numbers = answer["tracks"][track].as_array().unwrap();
        numbers.chunks(5).map(|item| item[4].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((busy("c0"), busy("c1")), (20_000_000, 0));
    assert_eq!(busy(&format!("p{}", processes[0]["id"])), 14_000_000);
    let overview = &answer["overview"];
    assert_eq!((&overview["estimated"], &overview["cpus"]), (&true.into(), &2.into()));
    // One of two processors is busy.
    assert_eq!(overview["busy"].as_array().unwrap()[5], 0.5);
}

#[test]
fn idle_process_is_last() {
    let mut trace = TestTrace::new(0);
    trace.add_event(5, Guid::from_u128(1), (1, 0), (100, 11), &[]);
    for time in 10..30 {
        trace.add_event(time, Guid::from_u128(1), (1, 0), (0, 5), &[]);
    }
    let view = view_of(vec![trace]);
    let tracks = ask(|json| list_tracks(&view, "", json));
    let pids: Vec<u64> = tracks["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| process["pid"].as_u64().unwrap())
        .collect();
    assert_eq!(pids, [100, 0]);
}

#[test]
fn samples_of_a_trace_with_switches_are_not_added_to_its_tracks() {
    let mut trace = TestTrace::new(0);
    trace.add_switch(10_000, 0, (0, 11), 2);
    trace.add_sample(20_000, 0, 11, 1);
    trace.add_switch(30_000, 0, (11, 0), 5);
    trace.add_sample(40_000, 0, 12, 1);
    let view = view_of(vec![trace]);
    let tracks = ask(|json| list_tracks(&view, "", json));
    assert_eq!(tracks["estimated"], false);
    let index = view.index();
    let times = index.threads.threads.iter().map(|thread| (thread.running_ns, thread.sampled_ns));
    assert_eq!(times.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)), (2_000_000, 0));
}

#[test]
fn links_of_threads_have_the_ids_that_are_shown() {
    let mut trace = TestTrace::new(0);
    for (time, ids) in [(10, (100, 11)), (20, (200, 11)), (30, (200, 12))] {
        trace.add_event(time, Guid::from_u128(1), (1, 0), ids, &[]);
    }
    let view = view_of(vec![trace]);
    let tracks = ask(|json| list_tracks(&view, "", json));
    let mut links: Vec<String> = Vec::new();
    for process in tracks["processes"].as_array().unwrap() {
        links.push(format!("process:{}", process["link"].as_str().unwrap()));
        let threads = process["threads"].as_array().unwrap();
        links.extend(threads.iter().map(|thread| format!("thread:{}", thread["link"].as_str().unwrap())));
    }
    links.sort();
    assert_eq!(links, ["process:100", "process:200", "thread:11@1", "thread:11@2", "thread:12"]);
}
