//! Tests that the counts and times of `weir report syscall` match the trace.

use traceweir_format::kernel::hook;
use traceweir_format::wire::Put;

use super::trace_builder::{KERNEL, TraceBuilder, WAITING};
use super::{find_row, number, rows_by, run_report};
use crate::util::weir;

fn add_enter(trace: &mut TraceBuilder, time: i64, cpu: u16, address: u64) {
    let mut payload = Vec::new();
    payload.put_u64(address);
    trace.add_perfinfo_event(time, cpu, hook::SYSCALL_ENTER, 2, &payload);
}

fn add_exit(trace: &mut TraceBuilder, time: i64, cpu: u16, status: u32) {
    let mut payload = Vec::new();
    payload.put_u32(status);
    trace.add_perfinfo_event(time, cpu, hook::SYSCALL_EXIT, 2, &payload);
}

/// Builds a trace in which `app` makes ten short calls, and then a call that waits while `other`
/// runs, and that returns on another processor.
fn build_trace() -> TraceBuilder {
    let mut trace = TraceBuilder::new();
    for (pid, tid, name) in [(100, 101, "app"), (200, 201, "other")] {
        trace.add_process(pid, name);
        trace.add_thread(pid, tid);
    }
    trace.add_switch(500, 0, (0, 101), WAITING, 0);
    for index in 0..10 {
        add_enter(&mut trace, 1000 + 10 * index, 0, KERNEL + 0x1000);
        // Two calls fail.
        add_exit(&mut trace, 1004 + 10 * index, 0, if index < 2 { (-2_i32).cast_unsigned() } else { 3 });
    }
    add_enter(&mut trace, 2000, 0, KERNEL + 0x2000);
    trace.add_switch(2010, 0, (101, 201), WAITING, 6);
    add_enter(&mut trace, 2020, 0, KERNEL + 0x1000);
    add_exit(&mut trace, 2030, 0, 0);
    trace.add_switch(2900, 1, (0, 101), WAITING, 0);
    add_exit(&mut trace, 3000, 1, 0);
    trace
}

#[test]
fn calls_are_counted_by_name_and_process_with_their_time() {
    let mut trace = build_trace();
    let report = run_report("syscall", &trace.write(), &[]);
    let counts =
        |row: &serde_json::Value| (number(row, "calls"), number(row, "failures"), number(row, "time_ns"));
    assert_eq!(counts(find_row(&report, "process", "app (100)")), (11, 2, 1_040_000));
    assert_eq!(counts(find_row(&report, "process", "other (200)")), (1, 0, 10_000));
    // The kernel of this trace has no symbols.
    assert_eq!(counts(find_row(&report, "call", "kernel+0x1000")), (11, 2, 50_000));
    assert_eq!(counts(find_row(&report, "call", "kernel+0x2000")), (1, 0, 1_000_000), "it moved");
    let both = find_row(&report, "process_call", "app (100)  kernel+0x2000");
    assert_eq!((counts(both), &both["call"]), ((1, 0, 1_000_000), &"kernel+0x2000".into()));
    let summary = rows_by(&report, "summary")[0];
    assert_eq!((number(summary, "calls"), number(summary, "timed")), (12, 12));
    assert_eq!(number(summary, "without_thread"), 0);
}

#[test]
fn calls_without_context_switches_are_counted_without_time() {
    let mut trace = TraceBuilder::new();
    add_enter(&mut trace, 1000, 0, KERNEL + 0x1000);
    add_exit(&mut trace, 1010, 0, 0);
    let path = trace.write();
    let report = run_report("syscall", &path, &[]);
    let summary = rows_by(&report, "summary")[0];
    assert_eq!((number(summary, "calls"), number(summary, "timed")), (1, 0));
    assert_eq!(number(find_row(&report, "process", "(no process)"), "calls"), 1);
    let text = weir(["report", "syscall", path.to_str().unwrap()]).expect(0).text();
    assert!(text.contains("1 call of unknown threads") && text.contains("--kernel syscall"), "{text}");
    let mut empty = TraceBuilder::new();
    let run = weir(["report", "syscall", empty.write().to_str().unwrap()]).expect(1);
    assert!(run.stderr.contains("weir record --kernel syscall"), "{}", run.stderr);
}
