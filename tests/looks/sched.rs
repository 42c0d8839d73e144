//! `weir report sched`: times match those of a machine that this test simulates, microsecond by
//! microsecond.

use std::collections::BTreeMap;
use traceweir_format::kernel::hook;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

use super::scene::{KERNEL, Scene};
use super::{number, report, row, rows};
use crate::util::weir;

const APP: u64 = 0x40_0000;
const PID: u32 = 100;
/// The wait reason of all waiting threads.
const REASON: u8 = 4;

/// A simulated machine with two processors and the threads 1 to 5, and its accumulated times.
#[derive(Default)]
struct Simulated {
    /// Running, waiting and ready microseconds by thread.
    times: BTreeMap<u32, [u64; 3]>,
    /// Microseconds from ready to running after waits, by thread.
    latencies: BTreeMap<u32, Vec<u64>>,
    /// Microseconds of waiting and of being ready afterwards, by stack number.
    blocked: BTreeMap<u64, u64>,
    /// Busy and idle microseconds by processor.
    processors: BTreeMap<u16, [u64; 2]>,
    switches: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Never seen to leave a processor: its state is unknown.
    Unknown,
    Running,
    Waiting,
    /// Woken or preempted.
    Ready {
        was_waiting: bool,
    },
}

/// State of a thread, the microseconds in it since the thread left or came, and the stack where it
/// left.
#[derive(Clone, Copy)]
struct Thread {
    state: State,
    running: u64,
    waiting: u64,
    ready: u64,
    stack: u64,
}

/// What happens at a tick: a processor takes a thread or goes idle, or a thread is woken; `None`
/// means nothing.
type Tick = Option<(bool, u16, u32, bool)>;

fn ticks() -> impl Strategy<Value = Vec<Tick>> {
    let tick = proptest::option::weighted(0.4, (any::<bool>(), 0_u16..2, 0_u32..=5, any::<bool>()));
    proptest::collection::vec(tick, 0..300)
}

/// Simulates the ticks, writes the events of a kernel, and counts times in the window from `from`
/// (inclusive) to `to` (exclusive).
#[allow(clippy::too_many_lines)] // One tick after the other, as the machine goes.
fn simulate(ticks: &[Tick], (from, to): (i64, i64), scene: &mut Scene) -> Simulated {
    let mut simulated = Simulated::default();
    let unknown = Thread { state: State::Unknown, running: 0, waiting: 0, ready: 0, stack: 0 };
    let mut threads = [unknown; 6];
    let mut on: [Option<u32>; 2] = [None; 2];
    let mut pending = [0_u64; 2];
    for (tick, time) in ticks.iter().zip(10_i64..) {
        // First, account for the time since the previous tick.
        let passed = u64::from(from < time && time <= to);
        for (cpu, running) in on.iter().enumerate() {
            pending[cpu] += if running.is_some() { passed } else { 0 };
        }
        for thread in &mut threads[1..] {
            match thread.state {
                State::Running => thread.running += passed,
                State::Waiting => thread.waiting += passed,
                State::Ready { .. } => thread.ready += passed,
                State::Unknown => {}
            }
        }
        let Some((is_wake, cpu, which, waits)) = *tick else { continue };
        let is_inside = from <= time && time <= to;
        if is_wake {
            let thread = &mut threads[which as usize];
            if which != 0 && thread.state == State::Waiting {
                thread.state = State::Ready { was_waiting: true };
                thread.ready = 0;
                scene.ready(time, cpu, which);
            }
            continue;
        }
        let old = on[usize::from(cpu)];
        let may_run = |state| matches!(state, State::Unknown | State::Ready { .. });
        let is_free = which == 0 || (may_run(threads[which as usize].state) && !on.contains(&Some(which)));
        if !is_free || old == Some(which) {
            continue;
        }
        // The first switch of a processor is from its idle thread, which was never seen to start.
        let leaves = old.unwrap_or(0);
        if leaves == which {
            continue;
        }
        let state = if leaves == 0 {
            2
        } else if waits {
            5
        } else {
            1
        };
        scene.switch(time, cpu, (leaves, which), state, REASON);
        simulated.switches += u64::from(is_inside);
        let spent = std::mem::take(&mut pending[usize::from(cpu)]);
        if old.is_some() {
            simulated.processors.entry(cpu).or_default()[usize::from(leaves == 0)] += spent;
        }
        if leaves != 0 {
            let frame = 0x10 * (1 + u64::from(leaves) + 8 * (time.unsigned_abs() % 3));
            scene.stack(time, cpu, (PID, leaves), &[KERNEL + 0x10, APP + frame]);
            let thread = &mut threads[leaves as usize];
            simulated.times.entry(leaves).or_default()[0] += thread.running;
            let state = if waits { State::Waiting } else { State::Ready { was_waiting: false } };
            *thread = Thread { state, running: 0, waiting: 0, ready: 0, stack: frame };
        }
        if which != 0 {
            let thread = &mut threads[which as usize];
            let sums = simulated.times.entry(which).or_default();
            sums[1] += thread.waiting;
            sums[2] += thread.ready;
            if let State::Ready { was_waiting: true } = thread.state {
                *simulated.blocked.entry(thread.stack).or_default() += thread.waiting + thread.ready;
                if is_inside {
                    simulated.latencies.entry(which).or_default().push(thread.ready);
                }
            }
            *thread = Thread { state: State::Running, running: 0, waiting: 0, ready: 0, stack: 0 };
        }
        on[usize::from(cpu)] = Some(which);
    }
    simulated
}

fn scene() -> Scene {
    let mut scene = Scene::new();
    scene.process(PID, "app");
    scene.image(PID, APP, 0x1000, "/nowhere/app");
    (1..=5).for_each(|tid| scene.thread(PID, tid));
    scene
}

/// Compares a report with the simulation. Complete traces have latencies too; windows may cut them.
fn compare(objects: &[Value], simulated: &Simulated, is_complete: bool) {
    assert_eq!(number(&objects[0], "switches"), simulated.switches);
    assert_eq!(number(&objects[0], "gaps"), 0);
    let micros = |row: &Value, key: &str| {
        let nanoseconds = number(row, key);
        assert_eq!(nanoseconds % 1000, 0, "{row}");
        nanoseconds / 1000
    };
    let threads = rows(objects, "thread");
    for (tid, [running, waiting, ready]) in &simulated.times {
        let row =
            threads.iter().find(|row| number(row, "tid") == u64::from(*tid)).expect("a row of each thread");
        let times = ["running_ns", "waiting_ns", "ready_ns"].map(|key| micros(row, key));
        assert_eq!(times, [*running, *waiting, *ready], "thread {tid} in {objects:#?}");
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
        let row =
            rows(objects, "processor").into_iter().find(|row| number(row, "cpu") == u64::from(*cpu)).unwrap();
        assert_eq!([micros(row, "busy_ns"), micros(row, "idle_ns")], [*busy, *idle], "processor {cpu}");
    }
    let blocked: u64 = rows(objects, "stack").iter().map(|row| micros(row, "blocked_ns")).sum();
    assert_eq!(blocked, simulated.blocked.values().sum::<u64>());
    let waiting: u64 = simulated.times.values().map(|times| times[1]).sum();
    assert_eq!(rows(objects, "reason").iter().map(|row| micros(row, "waiting_ns")).sum::<u64>(), waiting);
}

#[test]
fn times_match_the_simulated_machine() {
    // Each case runs the program twice.
    let mut runner = TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&(ticks(), 0_i64..300, 0_i64..300), |(ticks, from, length)| {
        let mut complete = scene();
        let simulated = simulate(&ticks, (i64::MIN, i64::MAX), &mut complete);
        if simulated.switches == 0 {
            weir(["report", "sched", complete.write().to_str().unwrap()]).expect(1);
            return Ok(());
        }
        compare(&report("sched", &complete.write(), &[]), &simulated, true);
        let mut part = scene();
        let (from, to) = (10 + from, 10 + from + length);
        let simulated = simulate(&ticks, (from, to), &mut part);
        let span = ["--from", &format!("{from}us"), "--to", &format!("{to}us")];
        compare(&report("sched", &part.write(), &span), &simulated, false);
        Ok(())
    });
    outcome.unwrap();
}

/// Builds a trace of a thread that waits 3 ms for a sleep and 1 ms for a page, is scheduled late by
/// 200 µs and 100 µs, and runs for the rest of 10 ms.
fn sleeper() -> Scene {
    let mut scene = scene();
    scene.process(300, "busy");
    scene.thread(300, 301);
    scene.switch(1000, 0, (0, 1), 2, 0);
    scene.switch(2000, 0, (1, 0), 5, 4);
    scene.stack(2000, 0, (PID, 1), &[KERNEL + 0x10, APP + 0x10]);
    scene.ready(4800, 0, 1);
    scene.switch(5000, 0, (0, 1), 2, 0);
    scene.switch(6000, 0, (1, 301), 5, 2);
    scene.stack(6000, 0, (PID, 1), &[KERNEL + 0x20, APP + 0x20]);
    scene.ready(6900, 0, 1);
    scene.switch(7000, 0, (301, 1), 1, 0);
    scene.switch(11_000, 0, (1, 301), 4, 0);
    scene
}

#[test]
fn waits_are_reported_by_reason_and_stack() {
    let mut scene = sleeper();
    let objects = report("sched", &scene.write(), &[]);
    let thread = row(&objects, "thread", "app (100)");
    assert_eq!(
        ["running_ns", "waiting_ns", "ready_ns"].map(|key| number(thread, key)),
        [6_000_000, 3_700_000, 300_000]
    );
    assert_eq!((number(thread, "switches"), number(thread, "wakes")), (3, 2));
    assert_eq!(number(thread, "latency_max_ns"), 200_000);
    let reasons: Vec<_> = rows(&objects, "reason")
        .iter()
        .map(|row| (row["name"].as_str().unwrap(), number(row, "waiting_ns")))
        .collect();
    assert_eq!(reasons, [("DelayExecution", 2_800_000), ("PageIn", 900_000)]);
    let stacks: Vec<_> = rows(&objects, "stack");
    assert_eq!(stacks.len(), 1, "both are in one function of each file, as far as is known");
    assert_eq!(number(stacks[0], "blocked_ns"), 4_000_000);
    assert_eq!(stacks[0]["stack"], serde_json::json!(["app (100)", "app+0x0", "kernel+0x0"]));
    let processor = rows(&objects, "processor")[0];
    assert_eq!(["busy_ns", "idle_ns"].map(|key| number(processor, key)), [7_000_000, 3_000_000]);
    let only = report("sched", &scene.write(), &["--process", "busy"]);
    assert_eq!((rows(&only, "thread").len(), rows(&only, "stack").len()), (1, 0));
    // Files of unreported processes are not mentioned.
    let path = scene.write();
    for command in [["report", "sched"].as_slice(), &["flame", "--collapsed", "--kind", "off-cpu"]] {
        let path = path.to_str().unwrap();
        let all = weir(command.iter().chain(&[path])).expect(0);
        assert!(all.stderr.contains("/nowhere/app "), "{}", all.stderr);
        let some = weir(command.iter().chain(&[path, "--process", "busy"]));
        assert!(!some.stderr.contains("/nowhere/"), "{}", some.stderr);
    }
}

#[test]
fn stack_of_the_incoming_thread_shows_where_it_waited() {
    let mut scene = scene();
    scene.switch(1000, 0, (0, 1), 2, 0);
    scene.switch(2000, 0, (1, 0), 5, 4);
    scene.switch(5000, 1, (0, 1), 2, 0);
    scene.stack(5000, 1, (PID, 1), &[KERNEL + 0x10, APP + 0x10]);
    let objects = report("sched", &scene.write(), &[]);
    let stack = rows(&objects, "stack")[0];
    assert_eq!(stack["stack"], serde_json::json!(["app (100)", "app+0x0", "kernel+0x0"]));
    assert_eq!(number(stack, "blocked_ns"), 3_000_000);
}

#[test]
fn missing_data_is_reported() {
    let mut scene = scene();
    scene.switch(1000, 0, (0, 1), 2, 0);
    scene.switch(2000, 0, (2, 0), 5, 4);
    scene.perf(2500, 0, hook::COMPACT_SWITCHES, 2, &[0; 0x58]);
    let page = weir(["report", "sched", scene.write().to_str().unwrap()]).expect(0).text();
    for fact in [
        "2 switches and 0 wakes",
        "no wakes",
        "1 interval with a missing switch",
        "1 batch of switches in the compact form",
    ] {
        assert!(page.contains(fact), "{fact} in {page}");
    }
    let page = weir(["report", "sched", sleeper().write().to_str().unwrap(), "--top", "1"]).expect(0).text();
    for fact in ["6 switches and 2 wakes", "blocked stacks, 4.000 ms in all", "DelayExecution", "kernel+0x0"]
    {
        assert!(page.contains(fact), "{fact} in {page}");
    }
    let mut empty = Scene::new();
    let run = weir(["report", "sched", empty.write().to_str().unwrap()]).expect(1);
    assert!(run.stderr.contains("no context switches:"), "{}", run.stderr);
    assert!(run.stderr.contains("weir record --kernel sched"), "{}", run.stderr);
    let run = weir(["report", "sched", sleeper().write().to_str().unwrap(), "--process", "bussy"]).expect(1);
    assert!(run.stderr.contains("no switches of process bussy; there is busy (300)"), "{}", run.stderr);
}

/// Builds a trace of a user who sees only their own thread: it runs for 2 ms and for 1 ms, and
/// waits in between.
fn own() -> Scene {
    let mut scene = scene();
    scene.switch(1000, 0, (u32::MAX, 1), 0, 0);
    scene.switch(3000, 0, (1, u32::MAX), 5, 6);
    scene.switch(8000, 1, (u32::MAX, 1), 0, 0);
    scene.switch(9000, 1, (1, u32::MAX), 5, 6);
    scene
}

#[test]
fn processor_times_are_unknown_if_only_some_threads_are_recorded() {
    let mut scene = own();
    let path = scene.write();
    let objects = report("sched", &path, &[]);
    assert_eq!(objects[0]["partial"], true);
    assert_eq!(rows(&objects, "processor").len(), 2);
    for processor in rows(&objects, "processor") {
        assert!(
            ["busy_ns", "idle_ns", "busy_share"].iter().all(|key| processor[key].is_null()),
            "{processor}"
        );
    }
    assert_eq!(number(row(&objects, "process", "app (100)"), "running_ns"), 3_000_000);
    // The scene lasts a minute.
    let page = weir(["report", "sched", path.to_str().unwrap()]).expect(0).text();
    for fact in ["% is of the 60.000 s recorded", "not known", "3.000  0.0 "] {
        assert!(page.contains(fact), "{fact} in {page}");
    }
    let page = weir(["report", "sched", sleeper().write().to_str().unwrap()]).expect(0).text();
    assert!(!page.contains("not known") && page.contains("70.0"), "{page}");
}

#[test]
fn waits_without_a_reason_on_linux_have_no_reason_rows() {
    let page = weir(["report", "sched", own().write().to_str().unwrap()]).expect(0).text();
    assert!(!page.contains("UserRequest") && !page.contains("by cause"), "{page}");
    assert!(page.contains("blocked stacks"), "{page}");
}

#[test]
fn headline_marks_totals_of_the_whole_trace() {
    let mut scene = sleeper();
    let path = scene.write();
    let page = |arguments: &[&str]| {
        weir(["report", "sched", path.to_str().unwrap()].iter().chain(arguments)).expect(0).text()
    };
    let asked = "selected: 1 thread, 2 switches to them, running 1.000 ms; the lines above";
    assert!(page(&["--process", "busy"]).contains(asked), "{}", page(&["--process", "busy"]));
    assert!(page(&["--thread", "301"]).contains(asked));
    assert!(!page(&[]).contains("selected:"));
}
