//! `weir report cpu`: every share matches the samples of the trace.

use traceweir_format::etl::Summary;
use traceweir_format::time::FileTime;

use super::scene::{KERNEL, Scene};
use super::{number, report, row, rows};
use crate::util::{sample, weir};

const APP: u64 = 0x40_0000;
const LIB: u64 = 0x7F00_0000_0000;

/// Builds a trace of two programs and their library: 30 samples in `app` below `lib`, 10 in `lib`
/// below `app`, 6 in the kernel below `app`, 4 of `other` without a stack, 50 idle.
fn scene() -> Scene {
    let mut scene = Scene::new();
    for (pid, tid, name) in [(100, 101, "app"), (200, 201, "other")] {
        scene.process(pid, name);
        scene.thread(pid, tid);
        scene.image(pid, APP, 0x1000, &format!("/nowhere/{name}"));
        scene.image(pid, LIB, 0x1000, "/nowhere/lib.so");
    }
    scene.thread(100, 102);
    scene.interval(0, 10_000);
    let mut time = 1000;
    let mut next = || {
        time += 1000;
        time
    };
    for index in 0..30 {
        let (at, tid) = (next(), if index < 20 { 101 } else { 102 });
        scene.sample(at, 0, tid, APP + 0x10);
        scene.stack(at, 0, (100, tid), &[APP + 0x10, LIB + 0x20, LIB + 0x30]);
    }
    for _ in 0..10 {
        let at = next();
        scene.sample(at, 1, 101, LIB + 0x50);
        scene.stack_at(at + 700, at, 0, (100, 101), &[LIB + 0x50, APP + 0x60]);
    }
    for _ in 0..6 {
        let at = next();
        scene.sample(at, 1, 101, KERNEL + 0x70);
        scene.stack(at, 1, (100, 101), &[KERNEL + 0x70, KERNEL + 0x80]);
        scene.stack_at(at + 500, at, 0, (100, 101), &[APP + 0x60]);
    }
    for _ in 0..4 {
        scene.sample(next(), 1, 201, APP + 0x10);
    }
    for _ in 0..50 {
        scene.sample(next(), 1, 0, KERNEL + 0x90);
    }
    scene
}

/// Returns own and all samples of a row.
#[track_caller]
fn counts(report: &[serde_json::Value], by: &str, name: &str) -> (u64, u64) {
    let row = row(report, by, name);
    (number(row, "own"), number(row, "all"))
}

#[test]
fn samples_are_counted_by_function_module_process_and_thread() {
    let mut scene = scene();
    let objects = report("cpu", &scene.write(), &[]);
    let summary = &objects[0];
    for (key, wanted) in
        [("samples", 50), ("idle", 50), ("without_stack", 4), ("interval_ns", 1_000_000), ("processors", 2)]
    {
        assert_eq!(number(summary, key), wanted, "{key}");
    }
    assert_eq!(counts(&objects, "function", "app+0x0"), (30, 46));
    assert_eq!(counts(&objects, "function", "lib.so+0x0"), (10, 40));
    assert_eq!(counts(&objects, "function", "kernel+0x0"), (6, 6));
    assert_eq!(counts(&objects, "function", "other+0x0"), (4, 4));
    assert_eq!(counts(&objects, "module", "lib.so"), (10, 40));
    assert_eq!(number(row(&objects, "process", "app (100)"), "samples"), 46);
    assert_eq!(number(row(&objects, "process", "other (200)"), "samples"), 4);
    let threads: Vec<_> =
        rows(&objects, "thread").iter().map(|row| (number(row, "tid"), number(row, "samples"))).collect();
    assert_eq!(threads, [(101, 36), (102, 10), (201, 4)]);
    let share = row(&objects, "function", "app+0x0");
    assert!((share["own_share"].as_f64().unwrap() - 0.6).abs() < 1e-6, "{share}");
    // √(0.6 × 0.4 / 50)
    assert!((share["own_error"].as_f64().unwrap() - 0.069_282).abs() < 1e-6, "{share}");
}

#[test]
fn report_covers_only_the_requested_processes_threads_and_times() {
    let mut scene = scene();
    let path = scene.write();
    let samples = |arguments: &[&str]| number(&report("cpu", &path, arguments)[0], "samples");
    assert_eq!(samples(&["--process", "APP"]), 46);
    assert_eq!(samples(&["--process", "200", "--process", "app"]), 50);
    assert_eq!(samples(&["--process", "o*"]), 4);
    assert_eq!(samples(&["--thread", "102"]), 10);
    assert_eq!(samples(&["--idle"]), 100);
    // Samples are at 2 ms, 3 ms, …, and both ends of the range are included.
    assert_eq!(samples(&["--from", "2ms", "--to", "11ms"]), 10);
    assert_eq!(samples(&["--from", "51ms"]), 1);
}

#[test]
fn report_without_samples_fails() {
    let mut scene = scene();
    let path = scene.write();
    let path = path.to_str().unwrap();
    for (arguments, wanted) in [
        (
            &["--process", "nosuch"][..],
            "no samples of process nosuch; others have them: app (100), other (200)",
        ),
        (&["--process", "ap"], "no samples of process ap; there is app (100)"),
        (&["--process", "othre", "--json"], "there is other (200)"),
        (&["--process", "other", "--thread", "102"], "no samples of process other of thread 102"),
        (&["--to", "1ms"], "no samples: the trace has none in this time"),
    ] {
        let run = weir(["report", "cpu", path].iter().chain(arguments)).expect(1);
        assert!(run.stderr.contains(wanted) && run.stdout.is_empty(), "{wanted} in {}", run.stderr);
    }
    let run = weir(["flame", path, "--collapsed", "--process", "ap"]).expect(1);
    assert!(run.stderr.contains("no samples of process ap; there is app (100)"), "{}", run.stderr);
    let run = weir(["report", "net", path]).expect(2);
    assert!(run.stderr.contains("cpu|sched|disk"), "{}", run.stderr);
}

#[test]
fn missing_data_is_reported() {
    let mut scene = scene();
    let page = weir(["report", "cpu", scene.write().to_str().unwrap(), "--top", "2"]).expect(0).text();
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
        assert!(page.contains(fact), "{fact} in {page}");
    }
    let end_time = FileTime(crate::golden::start_time().0 + 600_000_000);
    let path = scene.write_with(Summary { end_time, events_lost: 41, buffers_lost: 2 });
    let page = weir(["report", "cpu", path.to_str().unwrap()]).expect(4).text();
    assert!(page.contains("lost: 41 events and 2 buffers"), "{page}");
    scene.interval(30_000, 5_000);
    let page = weir(["report", "cpu", scene.write().to_str().unwrap()]).expect(0).text();
    assert!(page.contains("the sampling interval changed (0.500 ms, 1.000 ms)"), "{page}");
    let mut empty = Scene::new();
    let run = weir(["report", "cpu", empty.write().to_str().unwrap()]).expect(1);
    assert!(run.stderr.contains("no samples:") && run.stderr.contains("--kernel cpu"), "{}", run.stderr);
}

#[test]
fn hot_code_without_symbols_is_separated_from_cold() {
    let mut scene = Scene::new();
    for (pid, name) in [(100, "app"), (200, "other")] {
        scene.process(pid, name);
        scene.thread(pid, pid + 1);
        scene.image(pid, APP, 0x10_000, &format!("/nowhere/{name}"));
    }
    for index in 0..10 {
        let offset = if index < 9 { 0x1234 + index } else { 0x2FF };
        scene.sample(1000 + index as i64, 0, 101, APP + offset);
    }
    scene.sample(2000, 0, 201, APP);
    let path = scene.write();
    let objects = report("cpu", &path, &[]);
    assert_eq!(counts(&objects, "function", "app+0x1200"), (9, 9));
    assert_eq!(counts(&objects, "function", "app+0x200"), (1, 1));
    // Missing files are named once, and only those of reported processes.
    let run = weir(["report", "cpu", path.to_str().unwrap()]).expect(0);
    assert!(run.stderr.contains("/nowhere/app and /nowhere/other do not exist"), "{}", run.stderr);
    let run = weir(["report", "cpu", path.to_str().unwrap(), "--process", "other"]).expect(0);
    assert!(run.stderr.contains("/nowhere/other does not exist"), "{}", run.stderr);
    assert!(!run.stderr.contains("/nowhere/app"), "{}", run.stderr);
}

#[test]
fn threads_have_their_latest_name() {
    let mut scene = Scene::new();
    scene.process(100, "app");
    scene.named_thread(100, 101, "app");
    scene.thread(100, 102);
    for (time, tid) in [(1000, 101), (3000, 101), (4000, 102)] {
        scene.sample(time, 0, tid, APP);
    }
    scene.rename(2000, 100, 101, "worker");
    let path = scene.write();
    let objects = report("cpu", &path, &[]);
    let threads: Vec<_> =
        rows(&objects, "thread").iter().map(|row| (number(row, "tid"), &row["thread"])).collect();
    assert_eq!(threads, [(101, &serde_json::json!("worker")), (102, &serde_json::Value::Null)]);
    let page = weir(["report", "cpu", path.to_str().unwrap()]).expect(0).text();
    assert!(page.contains("worker (101)  app (100)"), "{page}");
    let lines = weir(["flame", path.to_str().unwrap(), "--collapsed", "--by-thread"]).expect(0).text();
    for line in ["app (100);app (101);? 1", "app (100);worker (101);? 1", "app (100);thread 102;? 1"] {
        assert!(lines.contains(line), "{line} in {lines}");
    }
}

#[test]
fn stacks_stored_by_key_count_like_others() {
    let mut scene = Scene::new();
    scene.process(100, "app");
    scene.thread(100, 101);
    scene.image(100, APP, 0x1000, "/nowhere/app");
    for at in [1000, 2000] {
        scene.sample(at, 0, 101, KERNEL + 1);
        scene.key(at, 0, (100, 101), true, 5);
        scene.key(at, 1, (100, 101), false, 6);
    }
    scene.definition(9000, 5, &[KERNEL + 1, KERNEL + 2]);
    scene.definition(9000, 6, &[APP + 1, APP + 2]);
    let objects = report("cpu", &scene.write(), &[]);
    assert_eq!(number(&objects[0], "without_stack"), 0);
    assert_eq!(counts(&objects, "function", "app+0x0"), (0, 2));
    assert_eq!(counts(&objects, "function", "kernel+0x0"), (2, 2));
}

#[test]
fn windows_trace_has_the_sample_counts_of_microsofts_reader() {
    let (Some(path), Some(baseline)) =
        (sample("net.4.5.2.x64.etl.zip"), sample("net.4.5.2.x64.traceevent.txt"))
    else {
        return;
    };
    let baseline = std::fs::read_to_string(baseline).unwrap();
    let counted = |name: &str| {
        let line =
            baseline.lines().find_map(|line| line.strip_prefix(&format!("COUNT Windows Kernel/{name}:")));
        line.and_then(|count| count.parse::<u64>().ok()).unwrap_or_else(|| panic!("{name} is counted"))
    };
    let objects = report("cpu", &path, &[]);
    assert_eq!(number(&objects[0], "samples"), counted("PerfInfo/Sample"));
    assert_eq!(number(&objects[0], "interval_ns"), 1_000_000);
    assert_eq!(number(&objects[0], "without_stack"), 2);
    for by in ["process", "thread"] {
        let sum: u64 = rows(&objects, by).iter().map(|row| number(row, "samples")).sum();
        assert_eq!(sum, counted("PerfInfo/Sample"), "each sample is that of one {by}");
    }
    let own: u64 = rows(&objects, "function").iter().map(|row| number(row, "own")).sum();
    assert_eq!(own, counted("PerfInfo/Sample"), "and was taken in one function");
    assert_eq!(rows(&objects, "process")[0]["process"], "Test.x64.exe");
    let disk = report("disk", &path, &[]);
    for (key, name) in [("reads", "Read"), ("writes", "Write"), ("flushes", "FlushBuffers")] {
        assert_eq!(number(&disk[0], key), counted(&format!("DiskIO/{name}")), "{key}");
    }
}
