//! Builds indexes of generated traces and asks them; damages index files.

#[path = "../../../../tests/support/kernel_trace.rs"]
mod kernel_trace;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use crate::index::store::seal_again;
use crate::index::threads::ThreadIndex;
use crate::json::JsonWriter;
use crate::query::{
    EventLists, EventQuery, FieldQuery, FlameKind, FlameQuery, TableQuery, TimeSpan, TimelineQuery,
    describe_event, describe_field, describe_trace, draw_flame, draw_timeline, fill_table, list_events,
    list_tracks, locate_event,
};
use kernel_trace::KernelTraceLayout;

const IDENTITY: &[u8] = b"test";

fn write_trace(folder: &Path) -> PathBuf {
    let path = folder.join("kernel.etl");
    let layout = KernelTraceLayout { bytes: 2 << 20, cpus: 2, processes: 5, threads: 3, name_part: "" };
    kernel_trace::write(&path, layout).unwrap();
    path
}

fn open_trace(path: &Path) -> Vec<NamedTrace> {
    let trace = Trace::open(TraceFile::from(File::open(path).unwrap())).unwrap();
    vec![NamedTrace { name: "kernel.etl".to_owned(), trace }]
}

/// Returns a view with a complete index, and the bytes of the index file.
fn build(path: &Path) -> (TraceView, Vec<u8>) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let index = Index::new(file.reopen().unwrap());
    let view = TraceView::new(open_trace(path), Decoder::new(), &SymbolOptions::default(), index);
    view.build(&Some(IDENTITY.to_vec()), None);
    assert_eq!(view.progress().problem, None);
    file.flush().unwrap();
    let bytes = std::fs::read(file.path()).unwrap();
    (view, bytes)
}

/// Opens a view with the index in a file.
fn reopen(path: &Path, index: &[u8]) -> Option<TraceView> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(index).unwrap();
    let index = Index::open(file, index.len() as u64, IDENTITY)?;
    let view = TraceView::new(open_trace(path), Decoder::new(), &SymbolOptions::default(), index);
    view.build(&None, None);
    Some(view)
}

/// Asks every question, and returns the answers.
fn ask_all(view: &TraceView) -> Vec<String> {
    let end = view.index().end();
    let span = TimeSpan { from: end / 4, to: end / 2 };
    let whole = TimeSpan { from: 0, to: end };
    let lists = EventLists::default();
    let mut answers = Vec::new();
    let mut ask = |question: &dyn Fn(&mut JsonWriter)| {
        let mut json = JsonWriter::default();
        question(&mut json);
        answers.push(String::from_utf8(json.into_bytes()).unwrap());
    };
    ask(&|json| list_tracks(view, "", json));
    for span in [span, whole] {
        let tracks = "c0,c1,t2,t3,t4,t5,s2,k1,k2,k3,v1,v2,n0,n1".to_owned();
        ask(&|json| {
            draw_timeline(
                view,
                &TimelineQuery { span, pixels: 700, tracks: tracks.clone(), overview: true },
                json,
            )
        });
        for kind in [FlameKind::Cpu, FlameKind::Waits] {
            ask(&|json| draw_flame(view, &FlameQuery { span, kind, process: None, thread: None }, json));
        }
        for name in ["processes", "threads", "events", "files", "connections"] {
            let query = TableQuery { name: name.to_owned(), span, search: String::new() };
            ask(&|json| assert!(fill_table(view, &query, json)));
        }
        ask(&|json| {
            describe_field(view, &FieldQuery { kind: 3, field: "FileName".to_owned(), span }, json);
        });
    }
    for filter in ["", "event:CSwitch cpu:1", "pid:101", "level:4"] {
        let query = || EventQuery::parse(filter).unwrap();
        ask(&|json| list_events(view, &lists, query(), 5, 20, json));
        ask(&|json| locate_event(view, &lists, query(), end / 2, json));
    }
    for row in [0, 100, 5000] {
        ask(&|json| {
            describe_event(view, row, json);
        });
    }
    answers
}

#[test]
fn index_from_the_cache_gives_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_trace(folder.path());
    let (view, bytes) = build(&path);
    let again = reopen(&path, &bytes).expect("the index is not read");
    for (number, (new, cached)) in ask_all(&view).into_iter().zip(ask_all(&again)).enumerate() {
        let at = new.bytes().zip(cached.bytes()).position(|(a, b)| a != b).unwrap_or(0);
        let part = |text: &str| {
            text.get(at.saturating_sub(200)..(at + 80).min(text.len())).unwrap_or_default().to_owned()
        };
        assert!(new == cached, "answer {number} differs:\n{}\n{}", part(&new), part(&cached));
        // What does not exist has no answer.
        if !new.is_empty() {
            serde_json::from_str::<serde_json::Value>(&new).unwrap();
        }
    }
    let mut json = JsonWriter::default();
    describe_trace(&again, &mut json);
    let trace: serde_json::Value = serde_json::from_slice(&json.into_bytes()).unwrap();
    assert_eq!(trace["complete"], true);
}

/// Time that each thread ran, by the switches of the trace.
#[test]
fn run_times_agree_with_the_switches() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_trace(folder.path());
    let (view, _) = build(&path);
    let index = view.index();
    let mut by_cpu = 0_u64;
    for cpu in &index.cpus {
        cpu.runs.for_each(0, i64::MAX, &index.store, |item| {
            by_cpu += if item.value & 3 == 1 { item.duration } else { 0 };
            true
        });
    }
    let by_thread: u64 = index.threads.threads.iter().map(|thread| thread.running_ns).sum();
    assert_eq!(by_cpu, by_thread);
    let busiest = index.threads.threads.iter().skip(2).max_by_key(|thread| thread.running_ns).unwrap();
    let summary = busiest.states.summarize(0, i64::MAX, &index.store);
    assert_eq!(summary.totals[1].unsigned_abs(), busiest.running_ns);
    assert!(summary.totals[2] > 0 && summary.totals[3] > 0, "threads must be ready and wait too");
    assert!(index.threads.get(ThreadIndex(2)).is_some_and(|thread| thread.pid >= 100));
    assert!(index.samples.rows() > 100 && index.waits.rows() > 100 && index.transfers.rows() > 10);
    assert_eq!(index.gaps, 0);
}

#[test]
fn index_of_other_traces_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_trace(folder.path());
    let (_, bytes) = build(&path);
    let open = |bytes: &[u8], identity: &[u8]| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Index::open(file, bytes.len() as u64, identity).is_some()
    };
    assert!(open(&bytes, IDENTITY));
    assert!(!open(&bytes, b"other") && !open(&bytes, b"") && !open(b"", IDENTITY));
    assert!(!open(&bytes[..bytes.len() - 1], IDENTITY) && !open(&bytes[1..], IDENTITY));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn damaged_index_is_refused_or_answers(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..60),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = write_trace(folder.path());
        let (_, mut bytes) = build(&path);
        let directory = bytes.len() - bytes.len() / 5;
        for (index, byte, is_in_directory) in damage {
            let from = if is_in_directory { directory } else { 0 };
            let at = from + index.index(bytes.len() - from);
            bytes[at] = byte;
        }
        seal_again(&mut bytes);
        if let Some(view) = reopen(&path, &bytes) {
            ask_all(&view);
        }
    }
}
