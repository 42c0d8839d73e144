//! Tests of the attribution of events without ids (they belong to the thread that runs on their
//! processor), and of the names of processes after exec.

use std::path::Path;
use traceweir_format::kernel::hook;

use serde_json::Value;

use super::trace_builder::{EXECUTIVE, INITIALIZED, TraceBuilder, USER_REQUEST, WAITING};
use crate::util::weir;

const ENTER: u16 = hook::SYSCALL_ENTER;
const EXIT: u16 = hook::SYSCALL_EXIT;
/// Process ids.
const SHOP: u32 = 100;
const TILL: u32 = 200;
/// Stands for an id that is missing in the output.
const NOT_ATTRIBUTED: i64 = -9;

/// Builds a trace of two processes with one thread each, which make system calls on two processors.
/// The last two calls are by a thread of an unknown process, and on a processor without switches.
/// Times are in microseconds.
fn build_trace() -> TraceBuilder {
    let mut trace = TraceBuilder::new();
    for (pid, tid, name) in [(SHOP, 101, "shop"), (TILL, 201, "till")] {
        trace.add_process(pid, name);
        trace.add_thread(pid, tid);
    }
    let add_call = |trace: &mut TraceBuilder, time, cpu| {
        trace.add_perfinfo_event(time, cpu, ENTER, 2, &0x1000_u64.to_le_bytes())
    };
    add_call(&mut trace, 10, 0);
    trace.add_switch(20, 0, (101, 201), WAITING, USER_REQUEST);
    add_call(&mut trace, 30, 0);
    add_call(&mut trace, 31, 1);
    trace.add_switch(40, 1, (0, 101), INITIALIZED, EXECUTIVE);
    add_call(&mut trace, 50, 1);
    trace.add_perfinfo_event(51, 1, EXIT, 2, &(-110_i32).to_le_bytes());
    trace.add_switch(60, 0, (201, 999), WAITING, USER_REQUEST);
    add_call(&mut trace, 70, 0);
    add_call(&mut trace, 71, 7);
    trace
}

fn dump_system_calls(file: &Path, options: &[&str]) -> Vec<Value> {
    let mut args = vec!["dump", "--format", "jsonl", "--event", "SysCl*"];
    args.extend(options);
    args.push(file.to_str().unwrap());
    weir(args).expect(0).json()
}

fn attributed_ids(events: &[Value]) -> Vec<(i64, i64)> {
    let id = |event: &Value, key: &str| event["attributed"][key].as_i64().unwrap_or(NOT_ATTRIBUTED);
    events.iter().map(|event| (id(event, "pid"), id(event, "tid"))).collect()
}

#[test]
fn event_without_ids_belongs_to_the_thread_running_on_its_processor() {
    let mut trace = build_trace();
    let file = trace.write();
    let calls = dump_system_calls(&file, &[]);
    // Process and thread of each system call, in the order of their times.
    let expected = [
        (100, 101),
        (200, 201),
        // The first switch on processor 1, which comes later, is from the idle thread.
        (0, 0),
        (100, 101),
        (100, 101),
        // A thread whose process is unknown, and a processor without switches.
        (-1, 999),
        (NOT_ATTRIBUTED, NOT_ATTRIBUTED),
    ];
    assert_eq!(attributed_ids(&calls), expected);
    assert!(
        calls.iter().all(|event| event["pid"] == -1 && event["tid"] == -1),
        "an id of the header changed"
    );
    assert_eq!(calls[0]["process"], "shop");
    for (options, count) in [(["--pid", "100"], 3), (["--pid", "200"], 1), (["--tid", "999"], 1)] {
        assert_eq!(dump_system_calls(&file, &options).len(), count, "{options:?}");
    }
    // Switches that a filter drops are used for attribution, too.
    assert_eq!(attributed_ids(&dump_system_calls(&file, &["--from", "0.05ms"])), expected[3..]);
}

#[test]
fn stats_count_system_calls_by_calling_process() {
    let mut trace = build_trace();
    let file = trace.write();
    let args = ["stats", "--json", "--by", "process", "--event", "SysCl*", file.to_str().unwrap()];
    let rows = weir(args).expect(0).json();
    let count_events_of =
        |pid: i64| rows.iter().find(|row| row["pid"] == pid).map(|row| row["events"].as_u64().unwrap());
    assert_eq!(
        (count_events_of(100), count_events_of(200), count_events_of(0), count_events_of(-1)),
        (Some(3), Some(1), Some(1), Some(2))
    );
}

#[test]
fn process_after_exec_has_the_name_of_the_new_program() {
    let mut trace = TraceBuilder::new();
    trace.add_process_event(10, hook::PROCESS_START, SHOP, "weir");
    trace.add_process_event(20, hook::PROCESS_END, SHOP, "weir");
    trace.add_process_event(20, hook::PROCESS_START, SHOP, "shop");
    trace.add_process_event(30, hook::PROCESS_END, SHOP, "shop");
    let file = trace.write();
    let file = file.to_str().unwrap();
    let events = weir(["dump", "--format", "jsonl", "--pid", "100", file]).expect(0).json();
    let names: Vec<_> = events
        .iter()
        .map(|event| (event["process"].as_str(), event["fields"]["ImageFileName"].as_str()))
        .collect();
    let expected = ["weir", "weir", "shop", "shop"].map(|name| (Some(name), Some(name)));
    assert_eq!(names, expected);
    let rows = weir(["stats", "--json", "--by", "process", file]).expect(0).json();
    let row = rows.iter().find(|row| row["pid"] == SHOP).unwrap();
    assert_eq!((&row["name"], &row["events"]), (&Value::from("shop (100)"), &Value::from(4)));
}
