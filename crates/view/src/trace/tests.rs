//! Builds indexes of generated traces and asks them; damages index files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use proptest::prelude::*;
use traceweir_format::Guid;
use traceweir_format::etl::MergedFiles;

use super::buffers::LoadedBuffers;
use super::fill::{MAX_FACT_RECORDS, add_batch};
use super::*;
use crate::index::store::seal_again;
use crate::index::threads::ThreadIndex;
use crate::index::{Builder, ThreadState};
use crate::json::JsonWriter;
use crate::kernel_trace::{self, KernelTraceLayout, KernelWriter, Switch, WAITING};
use crate::probe::{ask_all, build_view, new_view, open_view};
use crate::query::describe_trace;
use crate::test_trace::{TestTrace, view_of};

const IDENTITY: &[u8] = b"test";

fn write_trace(folder: &Path) -> PathBuf {
    let path = folder.join("kernel.etl");
    let layout = KernelTraceLayout { bytes: 2 << 20, cpus: 2, processes: 5, threads: 3, name_part: "" };
    kernel_trace::write(&path, layout).unwrap();
    path
}

/// Returns a view with a complete index, and the bytes of the index file.
fn build(path: &Path) -> (TraceView, Vec<u8>) {
    build_view(vec![File::open(path).unwrap()]).unwrap()
}

/// Opens a view with the index in a file.
fn reopen(path: &Path, index: &[u8], identity: &[u8]) -> Option<TraceView> {
    open_view(vec![File::open(path).unwrap()], index, identity).unwrap()
}

#[test]
fn index_from_the_cache_gives_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_trace(folder.path());
    let (view, bytes) = build(&path);
    let again = reopen(&path, &bytes, IDENTITY).expect("the index is not read");
    for (number, (new, cached)) in ask_all(&view).into_iter().zip(ask_all(&again)).enumerate() {
        let at = new.iter().zip(&cached).position(|(a, b)| a != b).unwrap_or(0);
        let part = |bytes: &[u8]| {
            let part = &bytes[at.saturating_sub(200).min(bytes.len())..(at + 80).min(bytes.len())];
            String::from_utf8_lossy(part).into_owned()
        };
        assert!(new == cached, "answer {number} differs:\n{}\n{}", part(&new), part(&cached));
        // What does not exist has no answer.
        if !new.is_empty() {
            serde_json::from_slice::<serde_json::Value>(&new).unwrap();
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

/// State of a thread that waits.
const WAITS: i8 = 5;

/// Returns the running time of a thread by the table of threads, by its track, and by the tracks of
/// the processors.
fn running_times(view: &TraceView, tid: u32) -> [u64; 3] {
    let index = view.index();
    let number = index.threads.threads.iter().position(|thread| thread.tid == tid).unwrap();
    let thread = &index.threads.threads[number];
    let mut by_cpu = 0;
    for cpu in &index.cpus {
        cpu.runs.for_each(0, i64::MAX, &index.store, |item| {
            by_cpu += if item.value >> 2 == number as u64 { item.duration } else { 0 };
            true
        });
    }
    let [_, running, ..] = thread.states.summarize(0, i64::MAX, &index.store).totals;
    [thread.running_ns, running.unsigned_abs(), by_cpu]
}

#[test]
fn thread_without_last_switch_runs_until_its_end() {
    let mut trace = TestTrace::new(0);
    trace.add_process(1, 100, "a.exe");
    trace.add_switch(1_000, 0, (0, 11), 2);
    trace.add_thread_end(3_000, 0, (100, 11));
    trace.add_event(100_000, Guid::from_u128(1), (1, 0), (200, 21), &[]);
    let view = view_of(vec![trace]);
    assert_eq!(running_times(&view, 11), [200_000; 3]);
    assert_eq!(view.index().gaps, 0);
}

#[test]
fn switch_to_another_thread_after_an_end_is_no_gap() {
    let mut trace = TestTrace::new(0);
    trace.add_switch(1_000, 0, (0, 11), 2);
    trace.add_thread_end(3_000, 0, (100, 11));
    trace.add_switch(8_000, 0, (0, 12), 2);
    trace.add_switch(9_000, 0, (12, 0), WAITS);
    let view = view_of(vec![trace]);
    assert_eq!(running_times(&view, 11), [200_000; 3]);
    assert_eq!(running_times(&view, 12), [100_000; 3]);
    assert_eq!(view.index().gaps, 0);
}

#[test]
fn thread_that_ends_while_it_waits_has_no_state_after_it() {
    let mut trace = TestTrace::new(0);
    trace.add_switch(1_000, 0, (0, 11), 2);
    trace.add_switch(2_000, 0, (11, 0), WAITS);
    trace.add_thread_end(3_000, 1, (100, 11));
    trace.add_switch(9_000, 0, (0, 12), 2);
    let view = view_of(vec![trace]);
    let index = view.index();
    let thread = index.threads.threads.iter().find(|thread| thread.tid == 11).unwrap();
    assert_eq!(thread.states.summarize(0, i64::MAX, &index.store).totals, [0, 100_000, 0, 100_000]);
}

#[test]
fn states_end_with_the_trace_of_the_thread() {
    let mut first = TestTrace::new(0);
    first.add_switch(1_000, 0, (0, 11), 2);
    first.add_switch(1_000, 1, (0, 12), 2);
    first.add_switch(2_000, 1, (12, 0), WAITS);
    first.add_event(3_000, Guid::from_u128(1), (1, 0), (200, 21), &[]);
    // Five minutes later.
    const LATER: i64 = 3_000_000_000;
    let mut second = TestTrace::new(0);
    second.add_switch(LATER, 0, (0, 13), 2);
    second.add_switch(LATER + 1_000, 0, (13, 0), WAITS);
    second.add_event(LATER + 5_000, Guid::from_u128(1), (1, 0), (200, 21), &[]);
    let view = view_of(vec![first, second]);
    assert_eq!(running_times(&view, 11), [200_000; 3]);
    assert_eq!(running_times(&view, 13), [100_000; 3]);
    let index = view.index();
    let waiter = index.threads.threads.iter().find(|thread| thread.tid == 12).unwrap();
    assert_eq!(waiter.states.summarize(0, i64::MAX, &index.store).totals, [0, 100_000, 0, 100_000]);
}

#[test]
fn time_in_several_traces_counts_once() {
    let add = || {
        let mut trace = TestTrace::new(0);
        trace.add_switch(1_000, 0, (0, 11), 2);
        trace.add_switch(2_000, 0, (11, 0), WAITS);
        trace
    };
    assert_eq!(running_times(&view_of(vec![add(), add()]), 11), [100_000; 3]);
}

#[test]
fn waker_that_the_trace_does_not_name_is_0() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.etl");
    let mut output = KernelWriter::create(&path, 4).unwrap();
    let switch = |new_tid, old_tid| Switch { new_tid, old_tid, old_state: WAITING, wait_reason: 6 };
    output.put_process(200, "a.exe", "a.exe").unwrap();
    output.put_thread(200, 2001).unwrap();
    output.put_switch(0, 1000, switch(2001, 0)).unwrap();
    output.put_switch(0, 2000, switch(0, 2001)).unwrap();
    // The trace has no switch on processor 3.
    output.put_ready(3, 3000, 2001).unwrap();
    output.put_switch(0, 4000, switch(2001, 0)).unwrap();
    output.finish(5000, 0).unwrap();
    let (view, _) = build(&path);
    let index = view.index();
    let thread = index.threads.threads.iter().find(|thread| thread.tid == 2001).unwrap();
    let mut wakers = Vec::new();
    thread.states.for_each(0, i64::MAX, &index.store, |state| {
        if state.value & 3 == ThreadState::Ready as u64 {
            wakers.push(state.value >> 2);
        }
        true
    });
    assert_eq!(wakers, [0]);
}

#[test]
fn spent_budget_reads_only_loaded_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_trace(folder.path());
    let (_, bytes) = build(&path);
    let view = reopen(&path, &bytes, IDENTITY).unwrap();
    *view.lock_buffers() = LoadedBuffers::default();
    let index = view.index();
    let position = |row: u64| RowPosition(index.events.row(row, &index.store).unwrap()[1]);
    let (first, last) = (position(0), position(index.events.rows() - 1));
    let mut budget = LoadBudget { bytes_left: 1 };
    let mut is_read = |position| view.with_record_within(&mut budget, position, 0, |_| ()).is_some();
    assert!(is_read(first) && is_read(first), "one buffer fits");
    assert!(!is_read(last) && is_read(first));
    assert!(budget.is_spent());
}

#[test]
fn facts_are_copied_in_the_order_of_time() {
    let folder = tempfile::tempdir().unwrap();
    let (view, _) = build(&write_trace(folder.path()));
    let mut positions = Vec::new();
    let index = view.index();
    index.informative.for_rows(0, u64::MAX, &index.store, |_, values| {
        positions.push(values[1]);
        true
    });
    drop(index);
    // The last first: the order is that of the positions, and not that of the buffers.
    positions.reverse();
    let records = view.copy_records(&positions).unwrap();
    assert!(positions.len() > 10 && records.offsets.len() == positions.len());
    for ((number, (known, offset)), position) in records.offsets.iter().enumerate().zip(&positions) {
        let (copied, _) = records.copies.find(*offset).unwrap();
        let is_same = view.with_record(RowPosition(*position), 0, |record| {
            record.bytes() == copied.record.bytes() && record.time() == copied.record.time()
        });
        assert_eq!((number, is_same), (*known, Some(true)));
    }
    view.stop();
    assert!(view.copy_records(&positions).unwrap().offsets.is_empty(), "a stopped view reads");
}

#[test]
fn facts_of_a_long_trace_are_read_in_parts() {
    const REST: u32 = 1000;
    let processes = u32::try_from(MAX_FACT_RECORDS).unwrap() + REST;
    let mut trace = TestTrace::new(0);
    for number in 0..processes {
        trace.add_process(number.into(), 4 + number, "p.exe");
    }
    let file = trace.finish();
    let (_, bytes) = build_view(vec![file.try_clone().unwrap()]).unwrap();
    let view = open_view(vec![file], &bytes, IDENTITY).unwrap().unwrap();
    assert_eq!(view.index().informative.rows(), u64::from(processes));
    let parts = [0, MAX_FACT_RECORDS, 2 * MAX_FACT_RECORDS];
    let lengths = parts.map(|row| view.informative_positions(row as u64).len());
    assert_eq!(lengths, [MAX_FACT_RECORDS, REST as usize, 0]);
    for pid in [4, 4 + processes - 1] {
        let facts = view.facts();
        assert_eq!(facts.files[0].actors.image_of(pid, processes.into()), Some("p.exe"), "{pid}");
    }
}

#[test]
fn batch_of_large_records_ends_at_a_number_of_bytes() {
    let mut trace = TestTrace::new(0);
    for time in 0..400 {
        trace.add_event(time, Guid::from_u128(1), (7, 0), (1, 2), &[0; 60_000]);
    }
    let view = new_view(vec![trace.finish()]).unwrap();
    let traces = [&view.traces[0].trace];
    let (mut files, mut builder) = (MergedFiles::new(traces), Builder::new(view.start));
    let is_end =
        add_batch(&traces, &mut files, &mut builder, &mut view.facts(), &mut view.index_mut()).unwrap();
    let bytes = view.index().events.rows() * 60_000;
    assert!(!is_end && bytes > 7 << 20 && bytes < 9 << 20, "{bytes}");
}

#[test]
fn index_of_other_traces_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_trace(folder.path());
    let (_, bytes) = build(&path);
    let open = |bytes: &[u8], identity: &[u8]| reopen(&path, bytes, identity).is_some();
    assert!(open(&bytes, IDENTITY));
    assert!(!open(&bytes, b"other") && !open(&bytes, b"") && !open(b"", IDENTITY));
    assert!(!open(&bytes[..bytes.len() - 1], IDENTITY) && !open(&bytes[1..], IDENTITY));
}

/// Returns a small trace and its index.
fn example_index() -> &'static (PathBuf, Vec<u8>) {
    static EXAMPLE: OnceLock<(tempfile::TempDir, (PathBuf, Vec<u8>))> = OnceLock::new();
    let (_, example) = EXAMPLE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernel.etl");
        let layout = KernelTraceLayout { bytes: 600 << 10, cpus: 2, processes: 5, threads: 3, name_part: "" };
        kernel_trace::write(&path, layout).unwrap();
        let (_, bytes) = build(&path);
        (folder, (path, bytes))
    });
    example
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn damaged_index_is_refused_or_answers(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..60),
    ) {
        let (path, bytes) = example_index();
        let mut bytes = bytes.clone();
        let directory = bytes.len() - bytes.len() / 5;
        for (index, byte, is_in_directory) in damage {
            let from = if is_in_directory { directory } else { 0 };
            let at = from + index.index(bytes.len() - from);
            bytes[at] = byte;
        }
        seal_again(&mut bytes);
        if let Some(view) = reopen(path, &bytes, IDENTITY) {
            ask_all(&view);
        }
    }
}
