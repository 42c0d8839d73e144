//! Tests that the operations, bytes and latencies of `weir report disk` match the trace.

use super::trace_builder::TraceBuilder;
use super::{find_row, number, rows_by, run_report};
use crate::util::weir;
use traceweir_format::kernel::hook;

/// Builds a trace in which `app` reads 100 times from the file 0xA on disk 0. On disk 1, `other`
/// writes to the file 0xB and flushes, and `app` writes to the file 0xC, which has no name.
fn build_trace() -> TraceBuilder {
    let mut trace = TraceBuilder::new();
    for (pid, tid, name) in [(100, 101, "app"), (200, 201, "other")] {
        trace.add_process(pid, name);
        trace.add_thread(pid, tid);
    }
    for index in 0..100 {
        // Latencies of 10 µs, 20 µs, … 1000 µs.
        let latency_us = (index + 1) * 10;
        trace.add_transfer(1000 + index as i64, hook::DISK_READ, (0, 101), 0xA, (4096, latency_us));
    }
    trace.add_transfer(5000, hook::DISK_WRITE, (1, 201), 0xB, (512, 77));
    trace.add_transfer(5001, hook::DISK_WRITE, (1, 101), 0xC, (512, 78));
    trace.add_flush(6000, 1, 201, 5000);
    trace.add_file_name(9000, 0xA, "/data/a");
    trace.add_file_name(9000, 0xB, "/data/b");
    trace
}

/// Fails unless a latency is exact, or too large by at most one part in 32, the resolution of the
/// report.
#[track_caller]
fn assert_latency(row: &serde_json::Value, key: &str, exact: u64) {
    let reported = number(row, key);
    assert!(reported >= exact && reported - exact <= exact / 32, "{key} is {reported}, not {exact}");
}

#[test]
fn operations_are_counted_by_disk_process_and_file() {
    let mut trace = build_trace();
    let objects = run_report("disk", &trace.write(), &[]);
    let disk_0 = find_row(&objects, "disk", "disk 0");
    assert_eq!((number(disk_0, "reads"), number(disk_0, "read_bytes")), (100, 409_600));
    assert_latency(disk_0, "latency_p50_ns", 500_000);
    assert_latency(disk_0, "latency_p99_ns", 990_000);
    assert_eq!(number(disk_0, "latency_max_ns"), 1_000_000);
    assert_eq!(number(disk_0, "latency_sum_ns"), 50_500_000);
    let disk_1 = find_row(&objects, "disk", "disk 1");
    assert_eq!(
        (number(disk_1, "writes"), number(disk_1, "written_bytes"), number(disk_1, "flushes")),
        (2, 1024, 1)
    );
    assert_eq!(number(disk_1, "latency_max_ns"), 5_000_000);
    let process = find_row(&objects, "process", "other (200)");
    assert_eq!((number(process, "writes"), number(process, "flushes"), number(process, "reads")), (1, 1, 0));
    assert_eq!(
        number(find_row(&objects, "file", "/data/a"), "reads"),
        100,
        "the name at the end of the trace was not used"
    );
    assert_eq!(number(find_row(&objects, "file", "/data/b"), "writes"), 1);
    assert_eq!(number(find_row(&objects, "file", "(no file)"), "flushes"), 1, "the flush has a file");
    assert_eq!(rows_by(&objects, "file").len(), 3);
}

#[test]
fn disks_have_names_and_unnamed_files_are_omitted() {
    let mut trace = TraceBuilder::new();
    trace.add_process(100, "app");
    trace.add_thread(100, 101);
    // Linux numbers its disks by major << 20 | minor.
    let (linux, unnamed) = (254 << 20, (8 << 20) | 16);
    for (index, disk) in [linux, unnamed, 0].into_iter().enumerate() {
        trace.add_transfer(1000 * (1 + index as i64), hook::DISK_READ, (disk, 101), 0, (512, 9));
    }
    trace.add_disk_name(linux, "vda");
    trace.add_disk_name(0, "Contoso");
    let path = trace.write();
    let objects = run_report("disk", &path, &[]);
    assert_eq!(find_row(&objects, "disk", "vda (254:0)")["disk_name"], "vda");
    assert!(find_row(&objects, "disk", "disk 8:16")["disk_name"].is_null());
    assert_eq!(number(find_row(&objects, "disk", "Contoso (disk 0)"), "reads"), 1);
    assert_eq!(rows_by(&objects, "file").len(), 0);
    let page = weir(["report", "disk", path.to_str().unwrap()]).expect(0).text();
    for fact in
        ["vda (254:0)", "3 operations from first to last in 0.002 s, of 60.000 s recorded", "no files: "]
    {
        assert!(page.contains(fact), "no {fact} in {page}");
    }
    assert!(!page.contains("(no file)"), "{page}");
}

#[test]
fn truncated_file_is_reported() {
    let mut trace = build_trace();
    for index in 0..20_000 {
        trace.add_transfer(10_000 + index, hook::DISK_READ, (0, 101), 0xA, (4096, 1));
    }
    let path = trace.write();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let page = weir(["report", "disk", path.to_str().unwrap()]).expect(3).text();
    assert!(page.contains("the file is truncated: ") && !page.contains("lost: nothing"), "{page}");
    let objects = weir(["report", "disk", path.to_str().unwrap(), "--json"]).expect(3).json();
    assert_eq!(objects[0]["damaged"], true);
}

#[test]
fn report_covers_only_the_requested_processes_and_times() {
    let mut trace = build_trace();
    let path = trace.write();
    let summary = |arguments: &[&str]| run_report("disk", &path, arguments).remove(0);
    assert_eq!(number(&summary(&["--process", "other"]), "reads"), 0);
    assert_eq!(number(&summary(&["--process", "other"]), "writes"), 1);
    assert_eq!(number(&summary(&["--thread", "101"]), "writes"), 1);
    assert_eq!(number(&summary(&["--to", "1049us"]), "reads"), 50);
    let page = weir(["report", "disk", path.to_str().unwrap(), "--top", "1"]).expect(0).text();
    for fact in ["103 operations from", "100 reads of 409,600 bytes", "1 flush", "/data/a", "1,000.0"] {
        assert!(page.contains(fact), "no {fact} in {page}");
    }
    let mut empty = TraceBuilder::new();
    let run = weir(["report", "disk", empty.write().to_str().unwrap()]).expect(1);
    assert!(run.stderr.contains("no disk operations in the trace"), "{}", run.stderr);
}
