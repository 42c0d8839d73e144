//! Tests that the operations, bytes and times of `weir report file` match the trace.

use traceweir_format::kernel::hook;
use traceweir_format::wire::Put;

use super::trace_builder::TraceBuilder;
use super::{find_row, number, rows_by, run_report};
use crate::util::weir;

/// Adds the opening of a file.
fn add_open(trace: &mut TraceBuilder, time: i64, irp: u64, tid: u32, object: u64, path: &str) {
    let mut payload = Vec::new();
    // Request, file, thread, options, attributes, share access, path.
    payload.put_u64(irp).put_u64(object).put_u32(tid).put_u32(0).put_u32(0).put_u32(7).put_wide_z(path);
    trace.add_perfinfo_event(time, 0, hook::FILE_CREATE, 3, &payload);
}

/// Adds the start of a read or write.
fn add_transfer(
    trace: &mut TraceBuilder,
    time: i64,
    hook: u16,
    irp: u64,
    tid: u32,
    (object, bytes): (u64, u32),
) {
    let mut payload = Vec::new();
    // Offset, request, file, key of the file, thread, size, flags.
    payload.put_u64(0).put_u64(irp).put_u64(object).put_u64(object).put_u32(tid).put_u32(bytes).put_u32(0);
    trace.add_perfinfo_event(time, 0, hook, 3, &payload);
}

/// Adds the end of an operation.
fn add_end(trace: &mut TraceBuilder, time: i64, irp: u64, bytes: u64) {
    let mut payload = Vec::new();
    payload.put_u64(irp).put_u64(bytes).put_u32(0);
    trace.add_perfinfo_event(time, 0, hook::FILE_OPERATION_END, 2, &payload);
}

/// Builds a trace in which `app` reads 100 times from `/data/a`, and `other` writes to a file that
/// only its opening names.
fn build_trace() -> TraceBuilder {
    let mut trace = TraceBuilder::new();
    for (pid, tid, name) in [(100, 101, "app"), (200, 201, "other")] {
        trace.add_process(pid, name);
        trace.add_thread(pid, tid);
    }
    for index in 0..100_i64 {
        // 20 of 64 requested bytes are read in 5 µs.
        let time = 1000 + index * 10;
        let irp = 1 + index.unsigned_abs();
        add_transfer(&mut trace, time, hook::FILE_READ, irp, 101, (0xA, 64));
        add_end(&mut trace, time + 5, irp, 20);
    }
    add_open(&mut trace, 5000, 900, 201, 0xB, "/data/b");
    add_end(&mut trace, 5007, 900, 0);
    // The end of this write is not in the trace.
    add_transfer(&mut trace, 5010, hook::FILE_WRITE, 901, 201, (0xB, 512));
    // The end of an operation that began before the trace.
    add_end(&mut trace, 5020, 77, 4096);
    trace.add_file_name(9000, 0xA, "/data/a");
    trace
}

#[test]
fn operations_are_counted_by_process_file_and_kind() {
    let mut trace = build_trace();
    let report = run_report("file", &trace.write(), &[]);
    let app = find_row(&report, "process", "app (100)");
    assert_eq!(
        (number(app, "operations"), number(app, "reads"), number(app, "read_bytes")),
        (100, 100, 2000)
    );
    assert_eq!((number(app, "time_ns"), number(app, "latency_max_ns")), (500_000, 5000));
    let other = find_row(&report, "process", "other (200)");
    assert_eq!((number(other, "operations"), number(other, "timed"), number(other, "time_ns")), (2, 1, 7000));
    assert_eq!(number(other, "written_bytes"), 512, "requested bytes of an operation without an end");
    assert_eq!(number(find_row(&report, "file", "/data/a"), "reads"), 100);
    let named_by_open = find_row(&report, "file", "/data/b");
    assert_eq!((number(named_by_open, "operations"), number(named_by_open, "writes")), (2, 1));
    assert_eq!(number(find_row(&report, "operation", "open"), "operations"), 1);
    let summary = rows_by(&report, "summary")[0];
    assert_eq!((number(summary, "operations"), number(summary, "timed")), (102, 101));
    for by in ["process", "file", "operation"] {
        let sum: u64 = rows_by(&report, by).iter().map(|row| number(row, "operations")).sum();
        assert_eq!(sum, 102, "each operation is not counted once by {by}");
    }
}

#[test]
fn selection_limits_the_report_and_empty_reports_say_what_to_record() {
    let mut trace = build_trace();
    let path = trace.write();
    let report = run_report("file", &path, &["--process", "other"]);
    let summary = rows_by(&report, "summary")[0];
    assert_eq!((number(summary, "operations"), number(summary, "others")), (2, 100));
    let text = weir(["report", "file", path.to_str().unwrap()]).expect(0).text();
    assert!(text.contains("1 operation without a time"), "{text}");
    let run = weir(["report", "file", path.to_str().unwrap(), "--thread", "9"]).expect(1);
    assert!(run.stderr.contains("no file operations of thread 9"), "{}", run.stderr);
    let mut empty = TraceBuilder::new();
    let run = weir(["report", "file", empty.write().to_str().unwrap()]).expect(1);
    assert!(run.stderr.contains("weir record --kernel file"), "{}", run.stderr);
}
