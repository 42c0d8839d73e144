//! Searches tracks by the names and ids of processes, threads and providers.

use serde_json::Value;
use traceweir_format::Guid;

use super::*;
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
