//! `weir report sched`: times are those of a machine that is played here, microsecond by microsecond.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

use super::scene::{KERNEL, Scene};
use super::{number, report, row, rows};
use crate::util::weir;

const APP: u64 = 0x40_0000;
const PID: u32 = 100;
/// What threads wait for.
const REASON: u8 = 4;

/// A machine of two processors and the threads 1 to 5, and what each has done so far.
#[derive(Default)]
struct Played {
    /// By thread: running, waiting, ready, in microseconds.
    times: BTreeMap<u32, [u64; 3]>,
    /// By thread: from ready to running, after waits.
    latencies: BTreeMap<u32, Vec<u64>>,
    /// By the number of the stack: waiting and being ready after it.
    blocked: BTreeMap<u64, u64>,
    /// By processor: busy and idle.
    processors: BTreeMap<u16, [u64; 2]>,
    switches: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Never seen to leave: what it does is not known.
    Unknown,
    Running,
    Waiting,
    /// Woken, or pushed aside.
    Ready {
        was_waiting: bool,
    },
}

/// What a thread does now, the microseconds of it since it left or came, and where it left.
#[derive(Clone, Copy)]
struct Thread {
    state: State,
    running: u64,
    waiting: u64,
    ready: u64,
    stack: u64,
}

/// Each tick is what happens at it: a processor takes a thread or goes idle, or somebody is woken; `None` is a tick in which nothing happens.
type Tick = Option<(bool, u16, u32, bool)>;

fn ticks() -> impl Strategy<Value = Vec<Tick>> {
    let tick = proptest::option::weighted(0.4, (any::<bool>(), 0_u16..2, 0_u32..=5, any::<bool>()));
    proptest::collection::vec(tick, 0..300)
}

/// Plays the ticks, writes what a kernel would have, and counts in the window from `from` on and before `to`.
#[allow(clippy::too_many_lines)] // One tick after the other, as the machine goes.
fn play(ticks: &[Tick], (from, to): (i64, i64), scene: &mut Scene) -> Played {
    let mut played = Played::default();
    let unknown = Thread { state: State::Unknown, running: 0, waiting: 0, ready: 0, stack: 0 };
    let mut threads = [unknown; 6];
    let mut on: [Option<u32>; 2] = [None; 2];
    let mut pending = [0_u64; 2];
    for (tick, time) in ticks.iter().zip(10_i64..) {
        // First the time that has passed since the tick before.
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
        // The first switch of a processor is from its idle thread, which nobody saw come.
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
        played.switches += u64::from(is_inside);
        let spent = std::mem::take(&mut pending[usize::from(cpu)]);
        if old.is_some() {
            played.processors.entry(cpu).or_default()[usize::from(leaves == 0)] += spent;
        }
        if leaves != 0 {
            let place = 0x10 * (1 + u64::from(leaves) + 8 * (time.unsigned_abs() % 3));
            scene.stack(time, cpu, (PID, leaves), &[KERNEL + 0x10, APP + place]);
            let thread = &mut threads[leaves as usize];
            played.times.entry(leaves).or_default()[0] += thread.running;
            let state = if waits { State::Waiting } else { State::Ready { was_waiting: false } };
            *thread = Thread { state, running: 0, waiting: 0, ready: 0, stack: place };
        }
        if which != 0 {
            let thread = &mut threads[which as usize];
            let sums = played.times.entry(which).or_default();
            sums[1] += thread.waiting;
            sums[2] += thread.ready;
            if let State::Ready { was_waiting: true } = thread.state {
                *played.blocked.entry(thread.stack).or_default() += thread.waiting + thread.ready;
                if is_inside {
                    played.latencies.entry(which).or_default().push(thread.ready);
                }
            }
            *thread = Thread { state: State::Running, running: 0, waiting: 0, ready: 0, stack: 0 };
        }
        on[usize::from(cpu)] = Some(which);
    }
    played
}

fn scene() -> Scene {
    let mut scene = Scene::new();
    scene.process(PID, "app");
    scene.image(PID, APP, 0x1000, "/nowhere/app");
    (1..=5).for_each(|tid| scene.thread(PID, tid));
    scene
}

/// Compares a report with what was played; whole traces have latencies too, windows may cut them.
fn compare(told: &[Value], played: &Played, is_whole: bool) {
    assert_eq!(number(&told[0], "switches"), played.switches);
    assert_eq!(number(&told[0], "gaps"), 0);
    let micros = |row: &Value, key: &str| {
        let nanoseconds = number(row, key);
        assert_eq!(nanoseconds % 1000, 0, "{row}");
        nanoseconds / 1000
    };
    let threads = rows(told, "thread");
    for (tid, [running, waiting, ready]) in &played.times {
        let row =
            threads.iter().find(|row| number(row, "tid") == u64::from(*tid)).expect("a row of each thread");
        let times = ["running_ns", "waiting_ns", "ready_ns"].map(|key| micros(row, key));
        assert_eq!(times, [*running, *waiting, *ready], "thread {tid} in {told:#?}");
        if is_whole {
            let mut latencies = played.latencies.get(tid).cloned().unwrap_or_default();
            latencies.sort_unstable();
            assert_eq!(number(row, "wakes"), latencies.len() as u64);
            assert_eq!(row["latency_max_ns"].as_u64(), latencies.last().map(|it| it * 1000), "thread {tid}");
        }
    }
    for (cpu, [busy, idle]) in &played.processors {
        let row =
            rows(told, "processor").into_iter().find(|row| number(row, "cpu") == u64::from(*cpu)).unwrap();
        assert_eq!([micros(row, "busy_ns"), micros(row, "idle_ns")], [*busy, *idle], "processor {cpu}");
    }
    let blocked: u64 = rows(told, "stack").iter().map(|row| micros(row, "blocked_ns")).sum();
    assert_eq!(blocked, played.blocked.values().sum::<u64>());
    let waiting: u64 = played.times.values().map(|times| times[1]).sum();
    assert_eq!(rows(told, "reason").iter().map(|row| micros(row, "waiting_ns")).sum::<u64>(), waiting);
}

#[test]
fn times_are_those_of_the_machine() {
    // Each case runs the program twice.
    let mut runner = TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&(ticks(), 0_i64..300, 0_i64..300), |(ticks, from, length)| {
        let mut whole = scene();
        let played = play(&ticks, (i64::MIN, i64::MAX), &mut whole);
        if played.switches == 0 {
            weir(["report", "sched", whole.write().to_str().unwrap()]).expect(1);
            return Ok(());
        }
        compare(&report("sched", &whole.write(), &[]), &played, true);
        let mut part = scene();
        let (from, to) = (10 + from, 10 + from + length);
        let played = play(&ticks, (from, to), &mut part);
        let span = ["--from", &format!("{from}us"), "--to", &format!("{to}us")];
        compare(&report("sched", &part.write(), &span), &played, false);
        Ok(())
    });
    outcome.unwrap();
}

/// A thread waits 3 ms for a sleep and 1 ms for a page, is late by 200 µs and 100 µs, and runs for the rest of 10 ms.
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
fn waits_are_told_by_reason_and_stack() {
    let mut scene = sleeper();
    let told = report("sched", &scene.write(), &[]);
    let thread = row(&told, "thread", "app (100)");
    assert_eq!(
        ["running_ns", "waiting_ns", "ready_ns"].map(|key| number(thread, key)),
        [6_000_000, 3_700_000, 300_000]
    );
    assert_eq!((number(thread, "switches"), number(thread, "wakes")), (3, 2));
    assert_eq!(number(thread, "latency_max_ns"), 200_000);
    let reasons: Vec<_> = rows(&told, "reason")
        .iter()
        .map(|it| (it["name"].as_str().unwrap(), number(it, "waiting_ns")))
        .collect();
    assert_eq!(reasons, [("DelayExecution", 2_800_000), ("PageIn", 900_000)]);
    let stacks: Vec<_> = rows(&told, "stack");
    assert_eq!(stacks.len(), 1, "both are in one function of each file, as far as is known");
    assert_eq!(number(stacks[0], "blocked_ns"), 4_000_000);
    assert_eq!(stacks[0]["stack"], serde_json::json!(["app (100)", "app+0x0", "kernel+0x0"]));
    let processor = rows(&told, "processor")[0];
    assert_eq!(["busy_ns", "idle_ns"].map(|key| number(processor, key)), [7_000_000, 3_000_000]);
    let only = report("sched", &scene.write(), &["--process", "busy"]);
    assert_eq!((rows(&only, "thread").len(), rows(&only, "stack").len()), (1, 0));
    // Files of processes that are not reported are not spoken of.
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
fn a_stack_of_the_thread_that_comes_tells_where_it_waited() {
    let mut scene = scene();
    scene.switch(1000, 0, (0, 1), 2, 0);
    scene.switch(2000, 0, (1, 0), 5, 4);
    scene.switch(5000, 1, (0, 1), 2, 0);
    scene.stack(5000, 1, (PID, 1), &[KERNEL + 0x10, APP + 0x10]);
    let told = report("sched", &scene.write(), &[]);
    let stack = rows(&told, "stack")[0];
    assert_eq!(stack["stack"], serde_json::json!(["app (100)", "app+0x0", "kernel+0x0"]));
    assert_eq!(number(stack, "blocked_ns"), 3_000_000);
}

#[test]
fn what_is_missing_is_said_plainly() {
    let mut scene = scene();
    scene.switch(1000, 0, (0, 1), 2, 0);
    scene.switch(2000, 0, (2, 0), 5, 4);
    scene.perf(2500, 0, 0x0525, 2, &[0; 0x58]);
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

/// One thread of a user who may see his own alone: it runs for 2 ms and for 1 ms, and waits between.
fn own() -> Scene {
    let mut scene = scene();
    scene.switch(1000, 0, (u32::MAX, 1), 0, 0);
    scene.switch(3000, 0, (1, u32::MAX), 5, 6);
    scene.switch(8000, 1, (u32::MAX, 1), 0, 0);
    scene.switch(9000, 1, (1, u32::MAX), 5, 6);
    scene
}

#[test]
fn what_processors_did_is_not_known_where_switches_of_some_threads_are_told() {
    let mut scene = own();
    let path = scene.write();
    let told = report("sched", &path, &[]);
    assert_eq!(told[0]["partial"], true);
    assert_eq!(rows(&told, "processor").len(), 2);
    for processor in rows(&told, "processor") {
        assert!(
            ["busy_ns", "idle_ns", "busy_share"].iter().all(|key| processor[key].is_null()),
            "{processor}"
        );
    }
    assert_eq!(number(row(&told, "process", "app (100)"), "running_ns"), 3_000_000);
    // The scene lasts a minute.
    let page = weir(["report", "sched", path.to_str().unwrap()]).expect(0).text();
    for fact in ["% is of the 60.000 s recorded", "not known", "3.000  0.0 "] {
        assert!(page.contains(fact), "{fact} in {page}");
    }
    let whole = weir(["report", "sched", sleeper().write().to_str().unwrap()]).expect(0).text();
    assert!(!whole.contains("not known") && whole.contains("70.0"), "{whole}");
}

#[test]
fn waits_that_linux_gives_no_reason_for_are_not_told_by_one() {
    let page = weir(["report", "sched", own().write().to_str().unwrap()]).expect(0).text();
    assert!(!page.contains("UserRequest") && !page.contains("by cause"), "{page}");
    assert!(page.contains("blocked stacks"), "{page}");
}

#[test]
fn a_headline_says_what_is_of_the_whole_trace() {
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
