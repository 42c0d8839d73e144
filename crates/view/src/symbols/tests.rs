//! Names generated code, and fills the queue of the symbols while their lock is held.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde_json::{Value, json};
use traceweir::consumer::TraceFile;
use traceweir_decode::Decoder;
use traceweir_format::etl::Trace;
use traceweir_format::header::event::EventHeader;
use traceweir_format::kernel::hook;

use super::*;
use crate::index::Index;
use crate::json::JsonWriter;
use crate::kernel_trace::{self, KernelTraceLayout, KernelWriter};
use crate::probe::{build_view, endless_limits, new_view};
use crate::query::{
    FlameKind, FlameQuery, TimeSpan, TimelineQuery, describe_event_within, describe_trace, draw_flame,
    draw_timeline,
};
use crate::trace::{NamedTrace, TraceView};

fn write_trace(folder: &Path) -> PathBuf {
    let path = folder.join("kernel.etl");
    let layout = KernelTraceLayout { bytes: 1 << 20, cpus: 2, processes: 4, threads: 2, name_part: "" };
    kernel_trace::write(&path, layout).unwrap();
    path
}

fn ask(fill: impl FnOnce(&mut JsonWriter)) -> Value {
    let mut json = JsonWriter::default();
    fill(&mut json);
    serde_json::from_slice(&json.into_bytes()).unwrap()
}

fn expired_limits() -> QueryLimits {
    QueryLimits::new(Duration::ZERO, Arc::default())
}

fn draw(view: &TraceView, limits: &QueryLimits) -> Value {
    let span = TimeSpan { from: 0, to: i64::MAX };
    let query = FlameQuery { span, kind: FlameKind::Cpu, process: None, thread: None };
    ask(|json| draw_flame(view, &query, limits, json))
}

#[test]
fn flame_graph_has_the_names_of_generated_code() {
    const FUNCTIONS: &str = "7f0000001000 100 work app.js:3\n7f0000002000 100 main app.js:9\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("tmp")).unwrap();
    std::fs::write(folder.path().join("tmp/perf-50.map"), FUNCTIONS).unwrap();
    let path = folder.path().join("kernel.etl");
    let mut writer = KernelWriter::create(&path, 1).unwrap();
    writer.put_process(50, "node", "node app.js").unwrap();
    writer.put_thread(50, 51).unwrap();
    // A path of Linux: other processes have no perf map.
    writer.put_image_path(50, 0x40_0000, "/usr/bin/node").unwrap();
    for (time, frames) in [
        (1000, &[0x7F00_0000_1020, 0x7F00_0000_2008][..]),
        (2000, &[0x7F00_0000_1040, 0x7F00_0000_2008]),
        (3000, &[0x7F00_0000_2010]),
    ] {
        writer.put_sample(0, time, 51, frames[0]).unwrap();
        writer.put_stack(0, time, 50, 51, frames).unwrap();
    }
    writer.finish(10_000, 0).unwrap();
    let trace = Trace::open(TraceFile::from(File::open(&path).unwrap())).unwrap();
    let traces = vec![NamedTrace { name: "kernel.etl".to_owned(), trace }];
    let options = SymbolOptions { root: Some(folder.path().to_owned()), ..SymbolOptions::default() };
    let view = TraceView::new(traces, Decoder::new(), &options, Index::new(tempfile::tempfile().unwrap()));
    view.build(&None, None);
    let flame = draw(&view, &endless_limits());
    let expected = json!([
        ["perf-50.map!work app.js:3", "perf-50.map", 2, 2],
        ["perf-50.map!main app.js:9", "perf-50.map", 1, 3],
    ]);
    assert_eq!(flame["functions"], expected);
    let nodes = flame["nodes"].as_array().unwrap();
    let find = |name: &str| nodes.iter().position(|node| node[1] == name).unwrap();
    assert_eq!(nodes[find("perf-50.map!work app.js:3")][0], find("perf-50.map!main app.js:9"));
}

#[test]
fn index_grows_and_queries_answer_while_symbols_are_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_trace(folder.path());
    let view = new_view(vec![File::open(&path).unwrap()]).unwrap();
    let held = view.symbols(&endless_limits()).unwrap();
    // The test would never end if one of these waited for the symbols.
    view.build(&None, None);
    assert_eq!(ask(|json| describe_trace(&view, json))["complete"], true);
    let span = TimeSpan { from: 0, to: view.index().end() };
    let query = TimelineQuery { span, pixels: 100, tracks: "c0,t2".to_owned(), overview: true };
    assert!(ask(|json| draw_timeline(&view, &query, json))["tracks"]["c0"].is_array());
    let sample = {
        let index = view.index();
        let is_sample = |kind: &&crate::index::kinds::Kind| kind.hook == Some(hook::SAMPLED_PROFILE);
        index.kinds.kinds.iter().find(is_sample).unwrap().first_row
    };
    let limits = QueryLimits::new(Duration::from_millis(500), Arc::default());
    let event = ask(|json| assert!(describe_event_within(&view, sample, &limits, json)));
    assert_eq!(event["partial"], true);
    let frames = event["stack"].as_array().unwrap();
    assert!(!frames.is_empty() && frames.iter().all(|frame| frame[1] == "?"));
    drop(held);
    // The records that waited in the queue are known now.
    let (other, _) = build_view(vec![File::open(&path).unwrap()]).unwrap();
    assert_eq!(draw(&view, &endless_limits()), draw(&other, &endless_limits()));
    let event = ask(|json| assert!(describe_event_within(&view, sample, &endless_limits(), json)));
    assert_eq!(event["partial"], false);
    assert!(event["stack"][0][1].as_str().unwrap().contains("+0x"), "{event}");
}

#[test]
fn query_waits_for_symbols_until_its_limits() {
    let symbols = SharedSymbols::new(Symbols::new(1, &SymbolOptions::default()));
    let held = symbols.lock_within(&endless_limits()).unwrap();
    assert!(symbols.lock_within(&expired_limits()).is_none());
    let begin = Instant::now();
    let limits = QueryLimits::new(Duration::from_millis(30), Arc::default());
    assert!(symbols.lock_within(&limits).is_none() && begin.elapsed() >= Duration::from_millis(30));
    drop(held);
    assert!(symbols.lock_within(&expired_limits()).is_some());
}

#[test]
fn full_queue_makes_the_index_wait_and_is_emptied() {
    let symbols = SharedSymbols::new(Symbols::new(1, &SymbolOptions::default()));
    let queue = symbols.queue();
    let mut bytes = Vec::new();
    EventHeader::default().encode(&[0; 60_000], &mut bytes).unwrap();
    let record = Record::parse(&bytes, 0).unwrap();
    let held = symbols.lock_within(&endless_limits()).unwrap();
    queue.push(0, &record);
    symbols.learn(|| panic!("the queue has room"));
    while queue.lock().size() < MAX_QUEUE_BYTES {
        queue.push(0, &record);
    }
    let mut attempts = 0;
    symbols.learn(|| {
        attempts += 1;
        attempts < 3
    });
    assert_eq!(attempts, 3);
    drop(held);
    symbols.learn(|| panic!("nothing holds the symbols"));
    assert_eq!(queue.lock().size(), 0);
}

#[test]
fn long_query_lets_others_use_the_symbols() {
    let symbols = SharedSymbols::new(Symbols::new(1, &SymbolOptions::default()));
    let (is_locked, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let limits = endless_limits();
            let mut turns = symbols.in_turns(&limits);
            while !is_done.load(Ordering::Acquire) {
                assert!(turns.lock().is_some());
                is_locked.store(true, Ordering::Release);
            }
        });
        while !is_locked.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        for _ in 0..3 {
            assert!(symbols.lock_within(&endless_limits()).is_some());
        }
        is_done.store(true, Ordering::Release);
    });
    let held = symbols.lock_within(&endless_limits()).unwrap();
    assert!(symbols.in_turns(&expired_limits()).lock().is_none());
    drop(held);
}
