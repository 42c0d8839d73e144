use super::*;
use proptest::prelude::*;

/// Further values of `OldThreadState`.
const INITIALIZED: u8 = 0;
const READY: u8 = 1;
const RUNNING: u8 = 2;
/// A value of `OldThreadWaitReason`.
const USER_REQUEST: u8 = 6;

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
    let (ran, back) = scheduler.record_switch(30, switch(0, 7, 0, WAITING), 'b');
    assert_eq!((ran, back), (Some(RunSpan { thread: 7, from: 10, to: 30 }), None));
    scheduler.record_wake(70, 7);
    scheduler.record_wake(75, 7);
    let (idle, back) = scheduler.record_switch(90, switch(0, 0, 7, RUNNING), 'c');
    assert_eq!(idle, Some(RunSpan { thread: 0, from: 30, to: 90 }));
    let absence = Some(Absence { from: 30, reason: Some(USER_REQUEST), stack: 'b' });
    assert_eq!(back, Some(ThreadReturn { thread: 7, to: 90, absence, woken_at: Some(70) }));
}

#[test]
fn preempted_thread_waits_for_nothing() {
    let mut scheduler = Scheduler::default();
    scheduler.record_switch(10, switch(0, 0, 7, RUNNING), ());
    scheduler.record_switch(20, switch(0, 7, 8, READY), ());
    let (_, back) = scheduler.record_switch(35, switch(1, 0, 7, RUNNING), ());
    assert_eq!(
        back.unwrap().absence,
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
    let (_, back) = scheduler.record_switch(35, switch(0, 0, 7, RUNNING), ());
    assert_eq!(back.unwrap().woken_at, None);
}

#[test]
fn time_hidden_by_a_lost_switch_is_not_reported() {
    let mut scheduler = Scheduler::default();
    scheduler.record_switch(10, switch(0, 0, 7, RUNNING), ());
    let (ran, back) = scheduler.record_switch(50, switch(0, 8, 7, WAITING), ());
    assert_eq!((ran, back.unwrap().absence, scheduler.gaps), (None, None, 1));
}

#[test]
fn reused_thread_id_is_another_thread() {
    let mut scheduler = Scheduler::default();
    scheduler.record_switch(10, switch(0, 0, 7, RUNNING), ());
    scheduler.record_switch(20, switch(0, 7, 0, TERMINATED), ());
    let (_, back) = scheduler.record_switch(99, switch(0, 0, 7, RUNNING), ());
    assert_eq!(back.unwrap().absence, None);
}

#[test]
fn switches_that_name_one_thread_report_that_thread() {
    let mut scheduler = Scheduler::default();
    // One thread runs on each of two processors. NO_ID is on both at once, and must not count as a
    // thread that moves between them.
    scheduler.record_switch(10, switch(0, NO_ID, 7, INITIALIZED), 'a');
    scheduler.record_switch(11, switch(1, NO_ID, 8, INITIALIZED), 'b');
    let (ran, back) = scheduler.record_switch(30, switch(0, 7, NO_ID, WAITING), 'c');
    assert_eq!((ran, back), (Some(RunSpan { thread: 7, from: 10, to: 30 }), None));
    let (ran, back) = scheduler.record_switch(41, switch(1, 8, NO_ID, READY), 'd');
    assert_eq!((ran, back), (Some(RunSpan { thread: 8, from: 11, to: 41 }), None));
    scheduler.record_wake(45, NO_ID);
    let (ran, back) = scheduler.record_switch(50, switch(1, NO_ID, 7, INITIALIZED), 'e');
    let absence = Some(Absence { from: 30, reason: Some(USER_REQUEST), stack: 'c' });
    assert_eq!(ran, None, "the time of NO_ID must not be reported");
    assert_eq!(back, Some(ThreadReturn { thread: 7, to: 50, absence, woken_at: None }));
    let (ran, back) = scheduler.record_switch(55, switch(0, NO_ID, 8, INITIALIZED), 'f');
    let absence = Some(Absence { from: 41, reason: None, stack: 'd' });
    assert_eq!((ran, back), (None, Some(ThreadReturn { thread: 8, to: 55, absence, woken_at: None })));
    assert_eq!((scheduler.gaps, scheduler.threads.contains_key(&NO_ID)), (0, false));
    // The switch away from 8 is lost.
    let (ran, _) = scheduler.record_switch(60, switch(0, NO_ID, 9, INITIALIZED), 'g');
    assert_eq!((ran, scheduler.gaps), (None, 1));
}

#[test]
fn number_of_threads_is_limited() {
    let mut scheduler = Scheduler::<()>::default();
    for thread in 1..=MAX_THREADS as u32 + 50 {
        scheduler.record_wake(0, thread);
    }
    assert_eq!((scheduler.threads.len(), scheduler.over_limit), (MAX_THREADS, 50));
}

/// One step of a simulated machine.
///
/// `Take`: a processor switches to a runnable thread or goes idle, and the old thread waits or
/// stays ready. `Wake`: a waiting thread is woken.
#[derive(Clone, Debug)]
enum Step {
    Take { cpu: u16, which: usize, waits: bool, lost: bool },
    Wake(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u16..3, 0_usize..8, any::<bool>(), proptest::bool::weighted(0.05))
            .prop_map(|(cpu, which, waits, lost)| Step::Take { cpu, which, waits, lost }),
        (0_usize..6).prop_map(Step::Wake),
    ]
}

/// An event of the simulation.
#[derive(Clone, Copy, Debug)]
enum SimulatedEvent {
    Switch(ContextSwitch),
    Ready(u32),
}

/// Returns a sequence of events, one per tick, of a machine with three processors and six threads;
/// some switches are lost.
fn simulate(steps: &[Step]) -> Vec<(i64, SimulatedEvent)> {
    let mut on = [0_u32; 3];
    let mut waits = [false; 7];
    let mut events = Vec::new();
    for (step, time) in steps.iter().zip(1_i64..) {
        match step {
            Step::Take { cpu, which, waits: will_wait, lost } => {
                let runnable: Vec<u32> =
                    (1..=6).filter(|t| !on.contains(t) && !waits[*t as usize]).chain([0]).collect();
                let (new, old) = (runnable[which % runnable.len()], on[usize::from(*cpu)]);
                if new == old {
                    continue;
                }
                on[usize::from(*cpu)] = new;
                let state = if old == 0 {
                    RUNNING
                } else if *will_wait {
                    WAITING
                } else {
                    READY
                };
                waits[old as usize] = old != 0 && *will_wait;
                if !lost {
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
            Step::Wake(which) => {
                let asleep: Vec<u32> = (1..=6).filter(|t| waits[*t as usize]).collect();
                if let Some(thread) = asleep.get(*which) {
                    waits[*thread as usize] = false;
                    events.push((time, SimulatedEvent::Ready(*thread)));
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
        SimulatedEvent::Ready(_) => None,
    }
}

/// Returns the index of the last switch before `at` that matches.
fn find_last_switch(
    events: &[(i64, SimulatedEvent)],
    at: usize,
    is_match: impl Fn(&ContextSwitch) -> bool,
) -> Option<usize> {
    (0..at).rev().find(|index| switch_at(events, *index).is_some_and(|switch| is_match(&switch)))
}

/// Returns the time that the old thread of a switch ran. The run began at the previous switch on
/// that processor, if that switch was to this thread and no other processor had the thread since.
fn find_run_naively(events: &[(i64, SimulatedEvent)], at: usize, switch: &ContextSwitch) -> Option<RunSpan> {
    let before = find_last_switch(events, at, |other| other.cpu == switch.cpu)?;
    let elsewhere = switch.old != 0
        && (before + 1..at)
            .any(|index| switch_at(events, index).is_some_and(|other| involves(&other, switch.old)));
    let ran = switch_at(events, before)?.new == switch.old && !elsewhere;
    ran.then_some(RunSpan { thread: switch.old, from: events[before].0, to: events[at].0 })
}

/// Returns when and why the new thread of a switch had left, and when it was first woken after
/// that.
fn find_return_naively(
    events: &[(i64, SimulatedEvent)],
    at: usize,
    switch: &ContextSwitch,
) -> (Option<(i64, Option<u8>)>, Option<i64>) {
    let woken = |from: usize| {
        events[from..at].iter().find_map(|(time, event)| match event {
            SimulatedEvent::Ready(thread) if *thread == switch.new => Some(*time),
            _ => None,
        })
    };
    let Some(before) = find_last_switch(events, at, |other| involves(other, switch.new)) else {
        return (None, woken(0));
    };
    let Some(other) = switch_at(events, before) else { return (None, None) };
    if other.old == switch.new {
        let reason = (other.state == WAITING).then_some(other.reason);
        return (Some((events[before].0, reason)), woken(before));
    }
    // The switch away from the thread was lost. A wake counts from the first switch on the same
    // processor, which shows that another thread had replaced it.
    let replaced =
        (before + 1..at).find(|index| switch_at(events, *index).is_some_and(|event| event.cpu == other.cpu));
    (None, replaced.and_then(woken))
}

proptest! {
    #[test]
    fn times_match_a_naive_search_over_all_events(steps in proptest::collection::vec(any_step(), 0..120)) {
        let events = simulate(&steps);
        let mut scheduler = Scheduler::default();
        for (at, (time, event)) in events.iter().enumerate() {
            match event {
                SimulatedEvent::Ready(thread) => scheduler.record_wake(*time, *thread),
                SimulatedEvent::Switch(switch) => {
                    let (ran, back) = scheduler.record_switch(*time, *switch, ());
                    prop_assert_eq!(ran, find_run_naively(&events, at, switch));
                    let returned = back.map(|b| (b.absence.map(|a| (a.from, a.reason)), b.woken_at));
                    let expected = (switch.new != 0).then(|| find_return_naively(&events, at, switch));
                    prop_assert_eq!(returned, expected, "at {} in {:?}", at, events);
                }
            }
        }
    }
}
