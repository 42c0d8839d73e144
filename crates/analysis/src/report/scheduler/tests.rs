//! Tests hand-made sequences of switches, and compares random ones with a naive search.

use super::*;
use proptest::prelude::*;
use traceweir_format::kernel::thread_state::READY;

/// `OldThreadState` in switches from `NO_ID`.
const INITIALIZED: u8 = 0;
/// `OldThreadState` of the idle thread.
const RUNNING: u8 = 2;
/// `OldThreadWaitReason` of all switches.
const USER_REQUEST: u8 = 6;

/// Returns a switch from thread `old`, now in `state`, to thread `new`. Thread 0 is idle.
fn switch(cpu: u16, old: u32, new: u32, state: u8) -> ContextSwitch {
    ContextSwitch { cpu, new, old, state, reason: USER_REQUEST }
}

#[test]
fn waiting_thread_is_woken_and_runs_again() {
    let mut scheduler = Scheduler::default();
    assert_eq!(
        scheduler.record_switch(10, switch(0, 0, 7, RUNNING), 'a'),
        (None, Some(ThreadReturn { thread: 7, to: 10, absence: None, woken_at: None })),
        "the idle time before the first switch must not be reported"
    );
    let (run, thread_return) = scheduler.record_switch(30, switch(0, 7, 0, WAITING), 'b');
    assert_eq!((run, thread_return), (Some(RunSpan { thread: 7, from: 10, to: 30 }), None));
    scheduler.record_wake(70, 7);
    scheduler.record_wake(75, 7);
    let (idle, thread_return) = scheduler.record_switch(90, switch(0, 0, 7, RUNNING), 'c');
    assert_eq!(idle, Some(RunSpan { thread: 0, from: 30, to: 90 }));
    let absence = Some(Absence { from: 30, reason: Some(USER_REQUEST), stack: 'b' });
    assert_eq!(thread_return, Some(ThreadReturn { thread: 7, to: 90, absence, woken_at: Some(70) }));
}

#[test]
fn preempted_thread_has_no_wait_reason() {
    let mut scheduler = Scheduler::default();
    scheduler.record_switch(10, switch(0, 0, 7, RUNNING), ());
    scheduler.record_switch(20, switch(0, 7, 8, READY), ());
    let (_, thread_return) = scheduler.record_switch(35, switch(1, 0, 7, RUNNING), ());
    assert_eq!(
        thread_return.unwrap().absence,
        Some(Absence { from: 20, reason: None, stack: () }),
        "a thread that returns on another processor must keep its absence"
    );
}

#[test]
fn wake_of_a_running_thread_does_not_count() {
    let mut scheduler = Scheduler::default();
    scheduler.record_switch(10, switch(0, 0, 7, RUNNING), ());
    scheduler.record_wake(15, 7);
    scheduler.record_switch(20, switch(0, 7, 0, WAITING), ());
    let (_, thread_return) = scheduler.record_switch(35, switch(0, 0, 7, RUNNING), ());
    assert_eq!(thread_return.unwrap().woken_at, None);
}

#[test]
fn time_hidden_by_a_lost_switch_is_not_reported() {
    let mut scheduler = Scheduler::default();
    scheduler.record_switch(10, switch(0, 0, 7, RUNNING), ());
    let (run, thread_return) = scheduler.record_switch(50, switch(0, 8, 7, WAITING), ());
    assert_eq!((run, thread_return.unwrap().absence, scheduler.gaps), (None, None, 1));
}

#[test]
fn reused_thread_id_is_another_thread() {
    let mut scheduler = Scheduler::default();
    scheduler.record_switch(10, switch(0, 0, 7, RUNNING), ());
    scheduler.record_switch(20, switch(0, 7, 0, TERMINATED), ());
    let (_, thread_return) = scheduler.record_switch(99, switch(0, 0, 7, RUNNING), ());
    assert_eq!(thread_return.unwrap().absence, None);
}

#[test]
fn thread_whose_last_switch_is_missing_runs_until_its_end() {
    let mut scheduler = Scheduler::default();
    scheduler.record_switch(10, switch(0, 0, 7, RUNNING), ());
    assert_eq!(scheduler.record_end(40, 7), None);
    let (run, _) = scheduler.record_switch(99, switch(0, 0, 8, RUNNING), ());
    assert_eq!((run, scheduler.gaps), (Some(RunSpan { thread: 7, from: 10, to: 40 }), 0));
    // The switch away from a thread is more exact.
    scheduler.record_end(110, 8);
    let (run, _) = scheduler.record_switch(112, switch(0, 8, 9, TERMINATED), ());
    assert_eq!(run, Some(RunSpan { thread: 8, from: 99, to: 112 }));
    scheduler.record_end(120, 9);
    let run = RunSpan { thread: 9, from: 112, to: 120 };
    assert_eq!(scheduler.end(500), [UnfinishedState::Running(0, run)]);
}

#[test]
fn end_of_a_waiting_thread_returns_its_absence() {
    let mut scheduler = Scheduler::default();
    scheduler.record_switch(10, switch(0, 0, 7, RUNNING), 'a');
    scheduler.record_switch(20, switch(0, 7, 0, WAITING), 'b');
    let absence = Absence { from: 20, reason: Some(USER_REQUEST), stack: 'b' };
    assert_eq!(scheduler.record_end(40, 7), Some((absence, None)));
    assert_eq!(scheduler.record_end(40, 7), None);
    let idle = RunSpan { thread: 0, from: 20, to: 50 };
    assert_eq!(scheduler.end(50), [UnfinishedState::Running(0, idle)]);
}

#[test]
fn switch_with_one_unknown_thread_reports_the_other() {
    let mut scheduler = Scheduler::default();
    // Thread 7 runs on processor 0, thread 8 on processor 1. NO_ID, the unknown thread, is on both
    // at once, and must not count as a thread that moves between them.
    scheduler.record_switch(10, switch(0, NO_ID, 7, INITIALIZED), 'a');
    scheduler.record_switch(11, switch(1, NO_ID, 8, INITIALIZED), 'b');
    let (run, thread_return) = scheduler.record_switch(30, switch(0, 7, NO_ID, WAITING), 'c');
    assert_eq!((run, thread_return), (Some(RunSpan { thread: 7, from: 10, to: 30 }), None));
    let (run, thread_return) = scheduler.record_switch(41, switch(1, 8, NO_ID, READY), 'd');
    assert_eq!((run, thread_return), (Some(RunSpan { thread: 8, from: 11, to: 41 }), None));
    scheduler.record_wake(45, NO_ID);
    let (run, thread_return) = scheduler.record_switch(50, switch(1, NO_ID, 7, INITIALIZED), 'e');
    let absence = Some(Absence { from: 30, reason: Some(USER_REQUEST), stack: 'c' });
    assert_eq!(run, None, "the time of NO_ID must not be reported");
    assert_eq!(thread_return, Some(ThreadReturn { thread: 7, to: 50, absence, woken_at: None }));
    let (run, thread_return) = scheduler.record_switch(55, switch(0, NO_ID, 8, INITIALIZED), 'f');
    let absence = Some(Absence { from: 41, reason: None, stack: 'd' });
    assert_eq!(
        (run, thread_return),
        (None, Some(ThreadReturn { thread: 8, to: 55, absence, woken_at: None }))
    );
    assert_eq!((scheduler.gaps, scheduler.threads.contains_key(&NO_ID)), (0, false));
    // The switch away from 8 is lost.
    let (run, _) = scheduler.record_switch(60, switch(0, NO_ID, 9, INITIALIZED), 'g');
    assert_eq!((run, scheduler.gaps), (None, 1));
}

#[test]
fn number_of_threads_is_limited() {
    let mut scheduler = Scheduler::<()>::default();
    for thread in 1..=MAX_THREADS as u32 + 50 {
        scheduler.record_wake(0, thread);
    }
    assert_eq!((scheduler.threads.len(), scheduler.over_limit), (MAX_THREADS, 50));
    let mut scheduler = Scheduler::<()>::with_max_threads(2);
    for thread in [1, 2, 3, 2, 4] {
        scheduler.record_wake(0, thread);
    }
    assert_eq!((scheduler.threads.len(), scheduler.over_limit), (2, 2));
}

/// One step of a simulated machine.
#[derive(Clone, Debug)]
enum Step {
    /// A processor switches to a runnable thread or goes idle; the old thread waits or stays ready.
    Switch { cpu: u16, choice: usize, will_wait: bool, is_lost: bool },
    /// A waiting thread is woken.
    Wake(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u16..3, 0_usize..8, any::<bool>(), proptest::bool::weighted(0.05))
            .prop_map(|(cpu, choice, will_wait, is_lost)| Step::Switch { cpu, choice, will_wait, is_lost }),
        (0_usize..6).prop_map(Step::Wake),
    ]
}

/// An event of the simulation.
#[derive(Clone, Copy, Debug)]
enum SimulatedEvent {
    Switch(ContextSwitch),
    Wake(u32),
}

/// Returns a sequence of events, one per tick, of a machine with three processors and six threads;
/// some switches are lost.
fn simulate(steps: &[Step]) -> Vec<(i64, SimulatedEvent)> {
    let mut running = [0_u32; 3];
    let mut is_waiting = [false; 7];
    let mut events = Vec::new();
    for (step, time) in steps.iter().zip(1_i64..) {
        match step {
            Step::Switch { cpu, choice, will_wait, is_lost } => {
                let runnable: Vec<u32> =
                    (1..=6).filter(|t| !running.contains(t) && !is_waiting[*t as usize]).chain([0]).collect();
                let (new, old) = (runnable[choice % runnable.len()], running[usize::from(*cpu)]);
                if new == old {
                    continue;
                }
                running[usize::from(*cpu)] = new;
                let state = if old == 0 {
                    RUNNING
                } else if *will_wait {
                    WAITING
                } else {
                    READY
                };
                is_waiting[old as usize] = old != 0 && *will_wait;
                if !is_lost {
                    events.push((
                        time,
                        SimulatedEvent::Switch(ContextSwitch {
                            cpu: *cpu,
                            new,
                            old,
                            state,
                            reason: USER_REQUEST,
                        }),
                    ));
                }
            }
            Step::Wake(choice) => {
                let waiting: Vec<u32> = (1..=6).filter(|t| is_waiting[*t as usize]).collect();
                if let Some(thread) = waiting.get(*choice) {
                    is_waiting[*thread as usize] = false;
                    events.push((time, SimulatedEvent::Wake(*thread)));
                }
            }
        }
    }
    events
}

fn involves(switch: &ContextSwitch, thread: u32) -> bool {
    switch.new == thread || switch.old == thread
}

/// Returns the event at an index if it is a switch.
fn switch_at(events: &[(i64, SimulatedEvent)], index: usize) -> Option<ContextSwitch> {
    match events[index].1 {
        SimulatedEvent::Switch(switch) => Some(switch),
        SimulatedEvent::Wake(_) => None,
    }
}

/// Returns the index of the last switch before `end` that matches.
fn find_last_switch(
    events: &[(i64, SimulatedEvent)],
    end: usize,
    is_match: impl Fn(&ContextSwitch) -> bool,
) -> Option<usize> {
    (0..end).rev().find(|index| switch_at(events, *index).is_some_and(|switch| is_match(&switch)))
}

/// Returns the time span in which the old thread of a switch ran. The span began at the previous
/// switch on that processor, if that was a switch to this thread and no later switch on another
/// processor names the thread.
fn find_run_naively(events: &[(i64, SimulatedEvent)], end: usize, switch: &ContextSwitch) -> Option<RunSpan> {
    let before = find_last_switch(events, end, |other| other.cpu == switch.cpu)?;
    let ran_elsewhere = switch.old != 0
        && (before + 1..end)
            .any(|index| switch_at(events, index).is_some_and(|other| involves(&other, switch.old)));
    let is_run = switch_at(events, before)?.new == switch.old && !ran_elsewhere;
    is_run.then_some(RunSpan { thread: switch.old, from: events[before].0, to: events[end].0 })
}

/// Returns when and why the new thread of a switch was switched out before, and when it was first
/// woken after that.
fn find_return_naively(
    events: &[(i64, SimulatedEvent)],
    end: usize,
    switch: &ContextSwitch,
) -> (Option<(i64, Option<u8>)>, Option<i64>) {
    let find_wake = |from: usize| {
        events[from..end].iter().find_map(|(time, event)| match event {
            SimulatedEvent::Wake(thread) if *thread == switch.new => Some(*time),
            _ => None,
        })
    };
    let Some(before) = find_last_switch(events, end, |other| involves(other, switch.new)) else {
        return (None, find_wake(0));
    };
    let Some(other) = switch_at(events, before) else { return (None, None) };
    if other.old == switch.new {
        let reason = (other.state == WAITING).then_some(other.reason);
        return (Some((events[before].0, reason)), find_wake(before));
    }
    // The switch away from the thread was lost. The next switch on the same processor shows that
    // another thread had replaced this thread, so wakes count from there.
    let replaced =
        (before + 1..end).find(|index| switch_at(events, *index).is_some_and(|event| event.cpu == other.cpu));
    (None, replaced.and_then(find_wake))
}

proptest! {
    #[test]
    fn times_match_a_naive_search_over_all_events(steps in proptest::collection::vec(any_step(), 0..120)) {
        let events = simulate(&steps);
        let mut scheduler = Scheduler::default();
        for (end, (time, event)) in events.iter().enumerate() {
            match event {
                SimulatedEvent::Wake(thread) => scheduler.record_wake(*time, *thread),
                SimulatedEvent::Switch(switch) => {
                    let (run, thread_return) = scheduler.record_switch(*time, *switch, ());
                    prop_assert_eq!(run, find_run_naively(&events, end, switch));
                    let returned = thread_return.map(|returned| {
                        (returned.absence.map(|absence| (absence.from, absence.reason)), returned.woken_at)
                    });
                    let expected = (switch.new != 0).then(|| find_return_naively(&events, end, switch));
                    prop_assert_eq!(returned, expected, "at {} in {:?}", end, events);
                }
            }
        }
    }
}
