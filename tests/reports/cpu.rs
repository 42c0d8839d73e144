//! Tests that the counts and shares of `weir report cpu` match the samples of the trace.

use traceweir_format::etl::Summary;
use traceweir_format::time::FileTime;

use super::trace_builder::{KERNEL, TraceBuilder};
use super::{find_row, number, rows_by, run_report};
use crate::util::{sample, weir};

const APP_BASE: u64 = 0x40_0000;
const LIB_BASE: u64 = 0x7F00_0000_0000;

/// Builds a trace of two programs and their library: 30 samples in `app` called by `lib.so`, 10 in
/// `lib.so` called by `app`, 6 in the kernel called by `app`, 4 of `other` without a stack, and 50
/// of idle processors.
fn build_trace() -> TraceBuilder {
    let mut trace = TraceBuilder::new();
    for (pid, tid, name) in [(100, 101, "app"), (200, 201, "other")] {
        trace.add_process(pid, name);
        trace.add_thread(pid, tid);
        trace.add_image(pid, APP_BASE, 0x1000, &format!("/nowhere/{name}"));
        trace.add_image(pid, LIB_BASE, 0x1000, "/nowhere/lib.so");
    }
    trace.add_thread(100, 102);
    trace.add_sampling_interval(0, 10_000);
    let mut time = 1000;
    let mut next_time = || {
        time += 1000;
        time
    };
    for index in 0..30 {
        let (sample_time, tid) = (next_time(), if index < 20 { 101 } else { 102 });
        trace.add_sample(sample_time, 0, tid, APP_BASE + 0x10);
        trace.add_stack(sample_time, 0, (100, tid), &[APP_BASE + 0x10, LIB_BASE + 0x20, LIB_BASE + 0x30]);
    }
    for _ in 0..10 {
        let sample_time = next_time();
        trace.add_sample(sample_time, 1, 101, LIB_BASE + 0x50);
        // The stack is written later, and on another processor.
        trace.add_stack_at(
            sample_time + 700,
            sample_time,
            0,
            (100, 101),
            &[LIB_BASE + 0x50, APP_BASE + 0x60],
        );
    }
    for _ in 0..6 {
        let sample_time = next_time();
        trace.add_sample(sample_time, 1, 101, KERNEL + 0x70);
        // The kernel part of the stack, and later its user part.
        trace.add_stack(sample_time, 1, (100, 101), &[KERNEL + 0x70, KERNEL + 0x80]);
        trace.add_stack_at(sample_time + 500, sample_time, 0, (100, 101), &[APP_BASE + 0x60]);
    }
    for _ in 0..4 {
        trace.add_sample(next_time(), 1, 201, APP_BASE + 0x10);
    }
    for _ in 0..50 {
        trace.add_sample(next_time(), 1, 0, KERNEL + 0x90);
    }
    trace
}

/// Returns the numbers of own samples and of all samples of a row: those in the function or module
/// itself, and those with it anywhere in the stack.
#[track_caller]
fn own_and_all_samples(report: &[serde_json::Value], by: &str, name: &str) -> (u64, u64) {
    let row = find_row(report, by, name);
    (number(row, "own"), number(row, "all"))
}

#[test]
fn samples_are_counted_by_function_module_process_and_thread() {
    let mut trace = build_trace();
    let objects = run_report("cpu", &trace.write(), &[]);
    let summary = &objects[0];
    for (key, expected) in
        [("samples", 50), ("idle", 50), ("without_stack", 4), ("interval_ns", 1_000_000), ("processors", 2)]
    {
        assert_eq!(number(summary, key), expected, "{key}");
    }
    assert_eq!(own_and_all_samples(&objects, "function", "app+0x0"), (30, 46));
    assert_eq!(own_and_all_samples(&objects, "function", "lib.so+0x0"), (10, 40));
    assert_eq!(own_and_all_samples(&objects, "function", "kernel+0x0"), (6, 6));
    assert_eq!(own_and_all_samples(&objects, "function", "other+0x0"), (4, 4));
    assert_eq!(own_and_all_samples(&objects, "module", "lib.so"), (10, 40));
    assert_eq!(number(find_row(&objects, "process", "app (100)"), "samples"), 46);
    assert_eq!(number(find_row(&objects, "process", "other (200)"), "samples"), 4);
    let threads: Vec<_> =
        rows_by(&objects, "thread").iter().map(|row| (number(row, "tid"), number(row, "samples"))).collect();
    assert_eq!(threads, [(101, 36), (102, 10), (201, 4)]);
    let app_row = find_row(&objects, "function", "app+0x0");
    assert!((app_row["own_share"].as_f64().unwrap() - 0.6).abs() < 1e-6, "{app_row}");
    // The standard error is √(0.6 × 0.4 / 50).
    assert!((app_row["own_error"].as_f64().unwrap() - 0.069_282).abs() < 1e-6, "{app_row}");
}

#[test]
fn report_covers_only_the_requested_processes_threads_and_times() {
    let mut trace = build_trace();
    let path = trace.write();
    let sample_count = |arguments: &[&str]| number(&run_report("cpu", &path, arguments)[0], "samples");
    assert_eq!(sample_count(&["--process", "APP"]), 46);
    assert_eq!(sample_count(&["--process", "200", "--process", "app"]), 50);
    assert_eq!(sample_count(&["--process", "o*"]), 4);
    assert_eq!(sample_count(&["--thread", "102"]), 10);
    assert_eq!(sample_count(&["--idle"]), 100);
    // Samples are at 2 ms, 3 ms, …, and the range includes its start and its end.
    assert_eq!(sample_count(&["--from", "2ms", "--to", "11ms"]), 10);
    assert_eq!(sample_count(&["--from", "51ms"]), 1);
}

#[test]
fn report_without_samples_fails() {
    let mut trace = build_trace();
    let path = trace.write();
    let path = path.to_str().unwrap();
    for (arguments, message) in [
        (
            &["--process", "nosuch"][..],
            "no samples of process nosuch; others have them: app (100), other (200)",
        ),
        (&["--process", "ap"], "no samples of process ap; there is app (100)"),
        (&["--process", "othre", "--json"], "there is other (200)"),
        (&["--process", "other", "--thread", "102"], "no samples of process other of thread 102"),
        (&["--to", "1ms"], "no samples: the trace has no CPU samples, or none in the selected time"),
    ] {
        let run = weir(["report", "cpu", path].iter().chain(arguments)).expect(1);
        assert!(run.stderr.contains(message) && run.stdout.is_empty(), "no {message} in {}", run.stderr);
    }
    let run = weir(["flame", path, "--collapsed", "--process", "ap"]).expect(1);
    assert!(run.stderr.contains("no samples of process ap; there is app (100)"), "{}", run.stderr);
    let run = weir(["report", "nosuch", path]).expect(2);
    assert!(run.stderr.contains("cpu|sched|disk"), "{}", run.stderr);
}

#[test]
fn missing_data_is_reported() {
    let mut trace = build_trace();
    let page = weir(["report", "cpu", trace.write().to_str().unwrap(), "--top", "2"]).expect(0).text();
    for fact in [
        "100 samples in",
        "on 2 processors",
        "sampled every 1.000 ms",
        "of idle processors: 50 (50.0 %)",
        "without a stack: 4 (8.0 %)",
        "lost: nothing",
        "60.0 ±6.9",
        "more (--top 0 shows all)",
    ] {
        assert!(page.contains(fact), "no {fact} in {page}");
    }
    let end_time = FileTime(crate::golden::start_time().0 + 600_000_000);
    let path = trace.write_with_summary(Summary { end_time, events_lost: 41, buffers_lost: 2 });
    let page = weir(["report", "cpu", path.to_str().unwrap()]).expect(0).text();
    assert!(page.contains("lost: 41 events and 2 buffers"), "{page}");
    trace.add_sampling_interval(30_000, 5_000);
    let page = weir(["report", "cpu", trace.write().to_str().unwrap()]).expect(0).text();
    assert!(page.contains("the sampling interval changed (0.500 ms, 1.000 ms)"), "{page}");
    let mut empty = TraceBuilder::new();
    let run = weir(["report", "cpu", empty.write().to_str().unwrap()]).expect(1);
    assert!(run.stderr.contains("no samples:") && run.stderr.contains("--kernel cpu"), "{}", run.stderr);
}

#[test]
fn hot_code_without_symbols_is_separated_from_cold() {
    let mut trace = TraceBuilder::new();
    for (pid, name) in [(100, "app"), (200, "other")] {
        trace.add_process(pid, name);
        trace.add_thread(pid, pid + 1);
        trace.add_image(pid, APP_BASE, 0x10_000, &format!("/nowhere/{name}"));
    }
    // Without symbols, each block of 256 bytes counts as a function.
    for index in 0..10 {
        let offset = if index < 9 { 0x1234 + index } else { 0x2FF };
        trace.add_sample(1000 + index as i64, 0, 101, APP_BASE + offset);
    }
    trace.add_sample(2000, 0, 201, APP_BASE);
    let path = trace.write();
    let objects = run_report("cpu", &path, &[]);
    assert_eq!(own_and_all_samples(&objects, "function", "app+0x1200"), (9, 9));
    assert_eq!(own_and_all_samples(&objects, "function", "app+0x200"), (1, 1));
    // Each missing file is named once, and only if a reported process has it.
    let run = weir(["report", "cpu", path.to_str().unwrap()]).expect(0);
    assert!(run.stderr.contains("/nowhere/app and /nowhere/other cannot be opened"), "{}", run.stderr);
    let run = weir(["report", "cpu", path.to_str().unwrap(), "--process", "other"]).expect(0);
    assert!(run.stderr.contains("/nowhere/other cannot be opened"), "{}", run.stderr);
    assert!(!run.stderr.contains("/nowhere/app"), "{}", run.stderr);
}

#[test]
fn threads_have_their_latest_name() {
    let mut trace = TraceBuilder::new();
    trace.add_process(100, "app");
    trace.add_named_thread(100, 101, "app");
    trace.add_thread(100, 102);
    for (time, tid) in [(1000, 101), (3000, 101), (4000, 102)] {
        trace.add_sample(time, 0, tid, APP_BASE);
    }
    trace.add_thread_name(2000, 100, 101, "worker");
    let path = trace.write();
    let objects = run_report("cpu", &path, &[]);
    let threads: Vec<_> =
        rows_by(&objects, "thread").iter().map(|row| (number(row, "tid"), &row["thread"])).collect();
    assert_eq!(threads, [(101, &serde_json::json!("worker")), (102, &serde_json::Value::Null)]);
    let page = weir(["report", "cpu", path.to_str().unwrap()]).expect(0).text();
    assert!(page.contains("worker (101)  app (100)"), "{page}");
    let lines = weir(["flame", path.to_str().unwrap(), "--collapsed", "--by-thread"]).expect(0).text();
    for line in ["app (100);app (101);? 1", "app (100);worker (101);? 1", "app (100);thread 102;? 1"] {
        assert!(lines.contains(line), "no {line} in {lines}");
    }
}

#[test]
fn stacks_stored_by_key_count_like_others() {
    let mut trace = TraceBuilder::new();
    trace.add_process(100, "app");
    trace.add_thread(100, 101);
    trace.add_image(100, APP_BASE, 0x1000, "/nowhere/app");
    for sample_time in [1000, 2000] {
        trace.add_sample(sample_time, 0, 101, KERNEL + 1);
        trace.add_stack_key(sample_time, 0, (100, 101), true, 5);
        trace.add_stack_key(sample_time, 1, (100, 101), false, 6);
    }
    trace.add_stack_key_definition(9000, 5, &[KERNEL + 1, KERNEL + 2]);
    trace.add_stack_key_definition(9000, 6, &[APP_BASE + 1, APP_BASE + 2]);
    let objects = run_report("cpu", &trace.write(), &[]);
    assert_eq!(number(&objects[0], "without_stack"), 0);
    assert_eq!(own_and_all_samples(&objects, "function", "app+0x0"), (0, 2));
    assert_eq!(own_and_all_samples(&objects, "function", "kernel+0x0"), (2, 2));
}

#[test]
fn windows_trace_has_the_sample_counts_of_microsofts_reader() {
    let (Some(path), Some(baseline)) =
        (sample("net.4.5.2.x64.etl.zip"), sample("net.4.5.2.x64.traceevent.txt"))
    else {
        return;
    };
    let baseline = std::fs::read_to_string(baseline).unwrap();
    let baseline_count = |name: &str| {
        let line =
            baseline.lines().find_map(|line| line.strip_prefix(&format!("COUNT Windows Kernel/{name}:")));
        line.and_then(|count| count.parse::<u64>().ok()).unwrap_or_else(|| panic!("{name} has no count"))
    };
    let objects = run_report("cpu", &path, &[]);
    assert_eq!(number(&objects[0], "samples"), baseline_count("PerfInfo/Sample"));
    assert_eq!(number(&objects[0], "interval_ns"), 1_000_000);
    assert_eq!(number(&objects[0], "without_stack"), 2);
    for by in ["process", "thread"] {
        let sum: u64 = rows_by(&objects, by).iter().map(|row| number(row, "samples")).sum();
        assert_eq!(sum, baseline_count("PerfInfo/Sample"), "the samples of all rows by {by} do not add up");
    }
    let own: u64 = rows_by(&objects, "function").iter().map(|row| number(row, "own")).sum();
    assert_eq!(own, baseline_count("PerfInfo/Sample"), "the own samples of all functions do not add up");
    assert_eq!(rows_by(&objects, "process")[0]["process"], "Test.x64.exe");
    let disk = run_report("disk", &path, &[]);
    for (key, name) in [("reads", "Read"), ("writes", "Write"), ("flushes", "FlushBuffers")] {
        assert_eq!(number(&disk[0], key), baseline_count(&format!("DiskIO/{name}")), "{key}");
    }
}
