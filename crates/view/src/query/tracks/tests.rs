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
