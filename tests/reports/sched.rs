//! Tests that the times of `weir report sched` match those of a machine that the test simulates,
//! microsecond by microsecond.

use std::collections::BTreeMap;
use traceweir_format::kernel::hook;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

use super::trace_builder::{
    DELAY_EXECUTION, EXECUTIVE, INITIALIZED, KERNEL, PAGE_IN, READY, RUNNING, TERMINATED, TraceBuilder,
    USER_REQUEST, WAITING,
};
use super::{find_row, number, rows_by, run_report};
use crate::util::weir;

const APP_BASE: u64 = 0x40_0000;
const PID: u32 = 100;
/// The wait reason of all waiting threads of the simulated machine.
const REASON: u8 = DELAY_EXECUTION;

/// Accumulated times of a simulated machine with two processors and the threads 1 to 5.
#[derive(Default)]
struct SimulatedTimes {
    /// Running, waiting and ready microseconds by thread.
    times: BTreeMap<u32, [u64; 3]>,
    /// Microseconds from ready to running after waits, by thread.
    latencies: BTreeMap<u32, Vec<u64>>,
    /// Microseconds of waiting and then being ready, by the offset of the program's frame in the
    /// stack.
    blocked: BTreeMap<u64, u64>,
    /// Busy and idle microseconds by processor.
    processors: BTreeMap<u16, [u64; 2]>,
    switches: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ThreadState {
    /// No switch has named the thread yet.
    Unknown,
    Running,
    Waiting,
    /// Woken or preempted.
    Ready {
        was_waiting: bool,
    },
}

/// A thread: its microseconds in each state since the last switch to or from the thread, and its
/// stack at that switch.
#[derive(Clone, Copy)]
struct SimulatedThread {
    state: ThreadState,
    running: u64,
    waiting: u64,
    ready: u64,
    /// Offset of the program's frame in the stack.
    stack: u64,
}

/// The action of a tick: either the thread `tid` is woken, or a processor switches to it (0: the
/// idle thread).
#[derive(Clone, Copy, Debug)]
struct TickAction {
    is_wake: bool,
    cpu: u16,
    tid: u32,
    /// Whether the old thread of a switch then waits; otherwise it is preempted.
    old_waits: bool,
}

/// A microsecond of the simulation. `None` means that nothing happens.
type Tick = Option<TickAction>;

fn random_ticks() -> impl Strategy<Value = Vec<Tick>> {
    let action = (any::<bool>(), 0_u16..2, 0_u32..=5, any::<bool>())
        .prop_map(|(is_wake, cpu, tid, old_waits)| TickAction { is_wake, cpu, tid, old_waits });
    proptest::collection::vec(proptest::option::weighted(0.4, action), 0..300)
}

/// Simulates the ticks, writes the events that a kernel would write, and sums the times between
/// `from` and `to`. Events at `from` and at `to` are counted.
#[allow(clippy::too_many_lines)] // The steps of one tick in their order.
fn simulate(ticks: &[Tick], (from, to): (i64, i64), trace: &mut TraceBuilder) -> SimulatedTimes {
    let mut simulated = SimulatedTimes::default();
    let unknown = SimulatedThread { state: ThreadState::Unknown, running: 0, waiting: 0, ready: 0, stack: 0 };
    let mut threads = [unknown; 6];
    let mut running_on: [Option<u32>; 2] = [None; 2];
    let mut pending_us = [0_u64; 2];
    // At the last event: the running threads, with their microseconds and those of their processors.
    let mut at_end: Vec<(u16, u32, u64, u64)> = Vec::new();
    for (tick, time) in ticks.iter().zip(10_i64..) {
        // First, add the time since the previous tick.
        let passed_us = u64::from(from < time && time <= to);
        for (cpu, running) in running_on.iter().enumerate() {
            pending_us[cpu] += if running.is_some() { passed_us } else { 0 };
        }
        for thread in &mut threads[1..] {
            match thread.state {
                ThreadState::Running => thread.running += passed_us,
                ThreadState::Waiting => thread.waiting += passed_us,
                ThreadState::Ready { .. } => thread.ready += passed_us,
                ThreadState::Unknown => {}
            }
        }
        let Some(TickAction { is_wake, cpu, tid, old_waits }) = *tick else { continue };
        let is_inside = from <= time && time <= to;
        if is_wake {
            let thread = &mut threads[tid as usize];
            if tid != 0 && thread.state == ThreadState::Waiting {
                thread.state = ThreadState::Ready { was_waiting: true };
                thread.ready = 0;
                trace.add_ready_thread(time, cpu, tid);
                at_end = find_running(running_on, pending_us, &threads);
            }
            continue;
        }
        let old = running_on[usize::from(cpu)];
        let may_run = |state| matches!(state, ThreadState::Unknown | ThreadState::Ready { .. });
        let can_run = tid == 0 || (may_run(threads[tid as usize].state) && !running_on.contains(&Some(tid)));
        if !can_run || old == Some(tid) {
            continue;
        }
        // The first switch of a processor is from its idle thread, to which no switch leads.
        let old_tid = old.unwrap_or(0);
        if old_tid == tid {
            continue;
        }
        let state = if old_tid == 0 {
            RUNNING
        } else if old_waits {
            WAITING
        } else {
            READY
        };
        trace.add_switch(time, cpu, (old_tid, tid), state, REASON);
        simulated.switches += u64::from(is_inside);
        let spent = std::mem::take(&mut pending_us[usize::from(cpu)]);
        if old.is_some() {
            simulated.processors.entry(cpu).or_default()[usize::from(old_tid == 0)] += spent;
        }
        if old_tid != 0 {
            // Each thread has three different stacks.
            let frame = 0x10 * (1 + u64::from(old_tid) + 8 * (time.unsigned_abs() % 3));
            trace.add_stack(time, cpu, (PID, old_tid), &[KERNEL + 0x10, APP_BASE + frame]);
            let thread = &mut threads[old_tid as usize];
            simulated.times.entry(old_tid).or_default()[0] += thread.running;
            let state =
                if old_waits { ThreadState::Waiting } else { ThreadState::Ready { was_waiting: false } };
            *thread = SimulatedThread { state, running: 0, waiting: 0, ready: 0, stack: frame };
        }
        if tid != 0 {
            let thread = &mut threads[tid as usize];
            let sums = simulated.times.entry(tid).or_default();
            sums[1] += thread.waiting;
            sums[2] += thread.ready;
            if let ThreadState::Ready { was_waiting: true } = thread.state {
                *simulated.blocked.entry(thread.stack).or_default() += thread.waiting + thread.ready;
                if is_inside {
                    simulated.latencies.entry(tid).or_default().push(thread.ready);
                }
            }
            *thread =
                SimulatedThread { state: ThreadState::Running, running: 0, waiting: 0, ready: 0, stack: 0 };
        }
        running_on[usize::from(cpu)] = Some(tid);
        at_end = find_running(running_on, pending_us, &threads);
        // A stack is the last event of the trace, a microsecond later.
        let is_stack_later = old_tid != 0 && from <= time && time < to;
        for (_, _, running, pending) in &mut at_end {
            *running += u64::from(is_stack_later);
            *pending += u64::from(is_stack_later);
        }
    }
    for (cpu, tid, running, pending) in at_end {
        simulated.processors.entry(cpu).or_default()[usize::from(tid == 0)] += pending;
        if tid != 0 {
            simulated.times.entry(tid).or_default()[0] += running;
        }
    }
    simulated
}

/// Returns processor, thread, and the microseconds of both since the switch to the thread.
fn find_running(
    running_on: [Option<u32>; 2],
    pending_us: [u64; 2],
    threads: &[SimulatedThread; 6],
) -> Vec<(u16, u32, u64, u64)> {
    let running = (0_u16..).zip(running_on).zip(pending_us);
    let describe = |((cpu, tid), pending): ((u16, Option<u32>), u64)| {
        let tid = tid?;
        Some((cpu, tid, threads[tid as usize].running, pending))
    };
    running.filter_map(describe).collect()
}

fn build_trace() -> TraceBuilder {
    let mut trace = TraceBuilder::new();
    trace.add_process(PID, "app");
    trace.add_image(PID, APP_BASE, 0x1000, "/nowhere/app");
    (1..=5).for_each(|tid| trace.add_thread(PID, tid));
    trace
}

/// Compares a report with the simulation. Latencies are compared only for complete traces: a time
/// range may cut them.
fn compare(objects: &[Value], simulated: &SimulatedTimes, is_complete: bool) {
    assert_eq!(number(&objects[0], "switches"), simulated.switches);
    assert_eq!(number(&objects[0], "gaps"), 0);
    let micros = |row: &Value, key: &str| {
        let nanoseconds = number(row, key);
        assert_eq!(nanoseconds % 1000, 0, "{row}");
        nanoseconds / 1000
    };
    let threads = rows_by(objects, "thread");
    for (tid, [running, waiting, ready]) in &simulated.times {
        let row = threads
            .iter()
            .find(|row| number(row, "tid") == u64::from(*tid))
            .expect("the report has no row of a thread");
        let times = ["running_ns", "waiting_ns", "ready_ns"].map(|key| micros(row, key));
        assert_eq!(times, [*running, *waiting, *ready], "thread {tid} of {objects:#?}");
        if is_complete {
            let mut latencies = simulated.latencies.get(tid).cloned().unwrap_or_default();
            latencies.sort_unstable();
            assert_eq!(number(row, "wakes"), latencies.len() as u64);
            assert_eq!(
                row["latency_max_ns"].as_u64(),
                latencies.last().map(|latency| latency * 1000),
                "thread {tid}"
            );
        }
    }
    for (cpu, [busy, idle]) in &simulated.processors {
        let row = rows_by(objects, "processor")
            .into_iter()
            .find(|row| number(row, "cpu") == u64::from(*cpu))
            .unwrap();
        assert_eq!([micros(row, "busy_ns"), micros(row, "idle_ns")], [*busy, *idle], "processor {cpu}");
    }
    let blocked: u64 = rows_by(objects, "stack").iter().map(|row| micros(row, "blocked_ns")).sum();
    assert_eq!(blocked, simulated.blocked.values().sum::<u64>());
    let waiting: u64 = simulated.times.values().map(|times| times[1]).sum();
    assert_eq!(rows_by(objects, "reason").iter().map(|row| micros(row, "waiting_ns")).sum::<u64>(), waiting);
}

#[test]
fn times_match_the_simulated_machine() {
    // Each case runs the program twice.
    let mut runner = TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
    let result = runner.run(&(random_ticks(), 0_i64..300, 0_i64..300), |(ticks, from, length)| {
        let mut complete = build_trace();
        let simulated = simulate(&ticks, (i64::MIN, i64::MAX), &mut complete);
        if simulated.switches == 0 {
            weir(["report", "sched", complete.write().to_str().unwrap()]).expect(1);
            return Ok(());
        }
        compare(&run_report("sched", &complete.write(), &[]), &simulated, true);
        let mut part = build_trace();
        let (from, to) = (10 + from, 10 + from + length);
        let simulated = simulate(&ticks, (from, to), &mut part);
        let range = ["--from", &format!("{from}us"), "--to", &format!("{to}us")];
        compare(&run_report("sched", &part.write(), &range), &simulated, false);
        Ok(())
    });
    result.unwrap();
}

/// Builds a trace of 10 ms, in which a thread waits 2.8 ms for a sleep and 0.9 ms for a page. After
/// these waits the thread is ready for 200 µs and for 100 µs. It runs for the rest of the time.
fn sleeping_thread_trace() -> TraceBuilder {
    let mut trace = build_trace();
    trace.add_process(300, "busy");
    trace.add_thread(300, 301);
    trace.add_switch(1000, 0, (0, 1), RUNNING, EXECUTIVE);
    trace.add_switch(2000, 0, (1, 0), WAITING, DELAY_EXECUTION);
    trace.add_stack(2000, 0, (PID, 1), &[KERNEL + 0x10, APP_BASE + 0x10]);
    trace.add_ready_thread(4800, 0, 1);
    trace.add_switch(5000, 0, (0, 1), RUNNING, EXECUTIVE);
    trace.add_switch(6000, 0, (1, 301), WAITING, PAGE_IN);
    trace.add_stack(6000, 0, (PID, 1), &[KERNEL + 0x20, APP_BASE + 0x20]);
    trace.add_ready_thread(6900, 0, 1);
    trace.add_switch(7000, 0, (301, 1), READY, EXECUTIVE);
    trace.add_switch(11_000, 0, (1, 301), TERMINATED, EXECUTIVE);
    trace
}

#[test]
fn waits_are_reported_by_reason_and_stack() {
    let mut trace = sleeping_thread_trace();
    let objects = run_report("sched", &trace.write(), &[]);
    let thread = find_row(&objects, "thread", "app (100)");
    assert_eq!(
        ["running_ns", "waiting_ns", "ready_ns"].map(|key| number(thread, key)),
        [6_000_000, 3_700_000, 300_000]
    );
    assert_eq!((number(thread, "switches"), number(thread, "wakes")), (3, 2));
    assert_eq!(number(thread, "latency_max_ns"), 200_000);
    let reasons: Vec<_> = rows_by(&objects, "reason")
        .iter()
        .map(|row| (row["name"].as_str().unwrap(), number(row, "waiting_ns")))
        .collect();
    assert_eq!(reasons, [("DelayExecution", 2_800_000), ("PageIn", 900_000)]);
    let stacks: Vec<_> = rows_by(&objects, "stack");
    assert_eq!(stacks.len(), 1, "stacks of the same functions have separate rows");
    assert_eq!(number(stacks[0], "blocked_ns"), 4_000_000);
    assert_eq!(stacks[0]["stack"], serde_json::json!(["app (100)", "app+0x0", "kernel+0x0"]));
    let processor = rows_by(&objects, "processor")[0];
    assert_eq!(["busy_ns", "idle_ns"].map(|key| number(processor, key)), [7_000_000, 3_000_000]);
    let selected = run_report("sched", &trace.write(), &["--process", "busy"]);
    assert_eq!((rows_by(&selected, "thread").len(), rows_by(&selected, "stack").len()), (1, 0));
    // Files of unreported processes are not mentioned.
    let path = trace.write();
    for command in [["report", "sched"].as_slice(), &["flame", "--collapsed", "--kind", "off-cpu"]] {
        let path = path.to_str().unwrap();
        let unfiltered = weir(command.iter().chain(&[path])).expect(0);
        assert!(unfiltered.stderr.contains("/nowhere/app "), "{}", unfiltered.stderr);
        let filtered = weir(command.iter().chain(&[path, "--process", "busy"]));
        assert!(!filtered.stderr.contains("/nowhere/"), "{}", filtered.stderr);
    }
}

#[test]
fn thread_runs_until_its_end_or_that_of_the_trace() {
    let mut trace = build_trace();
    trace.add_switch(1000, 0, (0, 1), RUNNING, EXECUTIVE);
    trace.add_switch(1000, 1, (0, 2), RUNNING, EXECUTIVE);
    trace.add_thread_end(3000, 0, PID, 1);
    trace.add_ready_thread(9000, 1, 3);
    let objects = run_report("sched", &trace.write(), &[]);
    let running = |tid: u64| {
        let rows = rows_by(&objects, "thread");
        rows.iter().find(|row| number(row, "tid") == tid).map(|row| number(row, "running_ns"))
    };
    assert_eq!((running(1), running(2)), (Some(2_000_000), Some(8_000_000)));
    assert_eq!(number(&objects[0], "gaps"), 0);
}

#[test]
fn stack_of_the_incoming_thread_shows_where_it_waited() {
    let mut trace = build_trace();
    trace.add_switch(1000, 0, (0, 1), RUNNING, EXECUTIVE);
    trace.add_switch(2000, 0, (1, 0), WAITING, DELAY_EXECUTION);
    trace.add_switch(5000, 1, (0, 1), RUNNING, EXECUTIVE);
    trace.add_stack(5000, 1, (PID, 1), &[KERNEL + 0x10, APP_BASE + 0x10]);
    let objects = run_report("sched", &trace.write(), &[]);
    let stack = rows_by(&objects, "stack")[0];
    assert_eq!(stack["stack"], serde_json::json!(["app (100)", "app+0x0", "kernel+0x0"]));
    assert_eq!(number(stack, "blocked_ns"), 3_000_000);
}

#[test]
fn missing_data_is_reported() {
    let mut trace = build_trace();
    trace.add_switch(1000, 0, (0, 1), RUNNING, EXECUTIVE);
    trace.add_switch(2000, 0, (2, 0), WAITING, DELAY_EXECUTION);
    trace.add_perfinfo_event(2500, 0, hook::COMPACT_SWITCHES, 2, &[0; 0x58]);
    let page = weir(["report", "sched", trace.write().to_str().unwrap()]).expect(0).text();
    for fact in [
        "2 switches (1 to idle) and 0 wakes",
        "no wakes",
        "1 interval with a missing switch",
        "1 batch of switches in the compact form",
    ] {
        assert!(page.contains(fact), "no {fact} in {page}");
    }
    let page = weir(["report", "sched", sleeping_thread_trace().write().to_str().unwrap(), "--top", "1"])
        .expect(0)
        .text();
    for fact in [
        "6 switches (1 to idle) and 2 wakes",
        "blocked stacks, 4.000 ms in all",
        "DelayExecution",
        "kernel+0x0",
    ] {
        assert!(page.contains(fact), "no {fact} in {page}");
    }
    let mut empty = TraceBuilder::new();
    let run = weir(["report", "sched", empty.write().to_str().unwrap()]).expect(1);
    assert!(run.stderr.contains("no context switches:"), "{}", run.stderr);
    assert!(run.stderr.contains("weir record --kernel sched"), "{}", run.stderr);
    let run =
        weir(["report", "sched", sleeping_thread_trace().write().to_str().unwrap(), "--process", "bussy"])
            .expect(1);
    assert!(run.stderr.contains("no switches of process bussy; there is busy (300)"), "{}", run.stderr);
}

/// Builds a trace as an ordinary user records it, with switches of one thread of this user only.
/// The thread runs for 2 ms, waits, and runs for 1 ms. The switches do not name the other thread:
/// its id is `u32::MAX`.
fn one_user_trace() -> TraceBuilder {
    let mut trace = build_trace();
    trace.add_switch(1000, 0, (u32::MAX, 1), INITIALIZED, EXECUTIVE);
    trace.add_switch(3000, 0, (1, u32::MAX), WAITING, USER_REQUEST);
    trace.add_switch(8000, 1, (u32::MAX, 1), INITIALIZED, EXECUTIVE);
    trace.add_switch(9000, 1, (1, u32::MAX), WAITING, USER_REQUEST);
    trace
}

#[test]
fn processor_times_are_unknown_if_only_some_threads_are_recorded() {
    let mut trace = one_user_trace();
    let path = trace.write();
    let objects = run_report("sched", &path, &[]);
    assert_eq!(objects[0]["partial"], true);
    assert_eq!(rows_by(&objects, "processor").len(), 2);
    for processor in rows_by(&objects, "processor") {
        assert!(
            ["busy_ns", "idle_ns", "busy_share"].iter().all(|key| processor[key].is_null()),
            "{processor}"
        );
    }
    assert_eq!(number(find_row(&objects, "process", "app (100)"), "running_ns"), 3_000_000);
    // The trace lasts a minute.
    let page = weir(["report", "sched", path.to_str().unwrap()]).expect(0).text();
    for fact in [
        "% is of the 60.000 s recorded",
        "not known",
        "3.000  0.0 ",
        "4 switches (2 to threads out of scope)",
    ] {
        assert!(page.contains(fact), "no {fact} in {page}");
    }
    let page = weir(["report", "sched", sleeping_thread_trace().write().to_str().unwrap()]).expect(0).text();
    assert!(!page.contains("not known") && page.contains("70.0"), "{page}");
}

#[test]
fn waits_without_a_reason_on_linux_have_no_reason_rows() {
    // Linux does not report why a thread sleeps: the reason of all waits is UserRequest.
    let page = weir(["report", "sched", one_user_trace().write().to_str().unwrap()]).expect(0).text();
    assert!(!page.contains("UserRequest") && !page.contains("by cause"), "{page}");
    assert!(page.contains("blocked stacks"), "{page}");
}

#[test]
fn headline_marks_totals_of_the_whole_trace() {
    let mut trace = sleeping_thread_trace();
    let path = trace.write();
    let page = |arguments: &[&str]| {
        weir(["report", "sched", path.to_str().unwrap()].iter().chain(arguments)).expect(0).text()
    };
    let selection = "selected: 1 thread, 2 switches to them, running 1.000 ms; the lines above";
    assert!(page(&["--process", "busy"]).contains(selection), "{}", page(&["--process", "busy"]));
    assert!(page(&["--thread", "301"]).contains(selection));
    assert!(!page(&[]).contains("selected:"));
}
