use super::*;
use proptest::prelude::*;

fn switch(cpu: u16, old: u32, new: u32, state: u8) -> Switch {
    Switch { cpu, new, old, state, reason: 6 }
}

#[test]
fn waiting_thread_is_woken_and_runs_again() {
    let mut all = Scheduler::default();
    assert_eq!(
        all.switch(10, switch(0, 0, 7, 2), 'a'),
        (None, Some(Back { thread: 7, to: 10, away: None, readied: None })),
        "how long the processor was idle before is not known"
    );
    let (ran, back) = all.switch(30, switch(0, 7, 0, WAITING), 'b');
    assert_eq!((ran, back), (Some(Ran { thread: 7, from: 10, to: 30 }), None));
    all.ready(70, 7);
    all.ready(75, 7);
    let (idle, back) = all.switch(90, switch(0, 0, 7, 2), 'c');
    assert_eq!(idle, Some(Ran { thread: 0, from: 30, to: 90 }));
    let away = Some(Away { from: 30, reason: Some(6), stack: 'b' });
    assert_eq!(back, Some(Back { thread: 7, to: 90, away, readied: Some(70) }));
}

#[test]
fn preempted_thread_waits_for_nothing() {
    let mut all = Scheduler::default();
    all.switch(10, switch(0, 0, 7, 2), ());
    all.switch(20, switch(0, 7, 8, 1), ());
    let (_, back) = all.switch(35, switch(1, 0, 7, 2), ());
    assert_eq!(back.unwrap().away, Some(Away { from: 20, reason: None, stack: () }), "on another processor");
}

#[test]
fn wake_of_a_running_thread_does_not_count() {
    let mut all = Scheduler::default();
    all.switch(10, switch(0, 0, 7, 2), ());
    all.ready(15, 7);
    all.switch(20, switch(0, 7, 0, WAITING), ());
    let (_, back) = all.switch(35, switch(0, 0, 7, 2), ());
    assert_eq!(back.unwrap().readied, None);
}

#[test]
fn time_hidden_by_a_lost_switch_is_not_reported() {
    let mut all = Scheduler::default();
    all.switch(10, switch(0, 0, 7, 2), ());
    let (ran, back) = all.switch(50, switch(0, 8, 7, WAITING), ());
    assert_eq!((ran, back.unwrap().away, all.gaps), (None, None, 1));
}

#[test]
fn reused_thread_id_is_another_thread() {
    let mut all = Scheduler::default();
    all.switch(10, switch(0, 0, 7, 2), ());
    all.switch(20, switch(0, 7, 0, TERMINATED), ());
    let (_, back) = all.switch(99, switch(0, 0, 7, 2), ());
    assert_eq!(back.unwrap().away, None);
}

#[test]
fn switches_that_name_one_thread_report_that_thread() {
    let mut all = Scheduler::default();
    // Two processors, on each of which one thread comes and goes: NO_ID is on both at once, and is
    // not a thread that moves.
    all.switch(10, switch(0, NO_ID, 7, 0), 'a');
    all.switch(11, switch(1, NO_ID, 8, 0), 'b');
    let (ran, back) = all.switch(30, switch(0, 7, NO_ID, WAITING), 'c');
    assert_eq!((ran, back), (Some(Ran { thread: 7, from: 10, to: 30 }), None));
    let (ran, back) = all.switch(41, switch(1, 8, NO_ID, 1), 'd');
    assert_eq!((ran, back), (Some(Ran { thread: 8, from: 11, to: 41 }), None));
    all.ready(45, NO_ID);
    let (ran, back) = all.switch(50, switch(1, NO_ID, 7, 0), 'e');
    let away = Some(Away { from: 30, reason: Some(6), stack: 'c' });
    assert_eq!(ran, None, "what the processor did for NO_ID is not known");
    assert_eq!(back, Some(Back { thread: 7, to: 50, away, readied: None }));
    let (ran, back) = all.switch(55, switch(0, NO_ID, 8, 0), 'f');
    let away = Some(Away { from: 41, reason: None, stack: 'd' });
    assert_eq!((ran, back), (None, Some(Back { thread: 8, to: 55, away, readied: None })));
    assert_eq!((all.gaps, all.threads.contains_key(&NO_ID)), (0, false));
    // The switch away from 8 is lost.
    let (ran, _) = all.switch(60, switch(0, NO_ID, 9, 0), 'g');
    assert_eq!((ran, all.gaps), (None, 1));
}

#[test]
fn number_of_threads_is_limited() {
    let mut all = Scheduler::<()>::default();
    for thread in 1..=MAX_THREADS as u32 + 50 {
        all.ready(0, thread);
    }
    assert_eq!((all.threads.len(), all.beyond), (MAX_THREADS, 50));
}

/// One step of a simulated machine: a processor takes the n-th runnable thread, or goes idle, and
/// the thread before waits or not; or a thread is woken.
#[derive(Clone, Debug)]
enum Step {
    Take { cpu: u16, which: usize, waits: bool, lost: bool },
    Wake(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u16..3, 0_usize..8, any::<bool>(), proptest::bool::weighted(0.05))
            .prop_map(|(cpu, which, waits, lost)| Step::Take { cpu, which, waits, lost }),
        (0_usize..6).prop_map(Step::Wake),
    ]
}

/// An event of the simulation.
#[derive(Clone, Copy, Debug)]
enum Event {
    Switch(Switch),
    Ready(u32),
}

/// Returns a sequence of events, one per tick, of a machine with three processors and six threads;
/// some switches are lost.
fn play(steps: &[Step]) -> Vec<(i64, Event)> {
    let mut on = [0_u32; 3];
    let mut waits = [false; 7];
    let mut events = Vec::new();
    for (step, time) in steps.iter().zip(1_i64..) {
        match step {
            Step::Take { cpu, which, waits: will_wait, lost } => {
                let can: Vec<u32> =
                    (1..=6).filter(|t| !on.contains(t) && !waits[*t as usize]).chain([0]).collect();
                let (new, old) = (can[which % can.len()], on[usize::from(*cpu)]);
                if new == old {
                    continue;
                }
                on[usize::from(*cpu)] = new;
                let state = if old == 0 {
                    2
                } else if *will_wait {
                    WAITING
                } else {
                    1
                };
                waits[old as usize] = old != 0 && *will_wait;
                if !lost {
                    events.push((time, Event::Switch(Switch { cpu: *cpu, new, old, state, reason: 6 })));
                }
            }
            Step::Wake(which) => {
                let asleep: Vec<u32> = (1..=6).filter(|t| waits[*t as usize]).collect();
                if let Some(thread) = asleep.get(*which) {
                    waits[*thread as usize] = false;
                    events.push((time, Event::Ready(*thread)));
                }
            }
        }
    }
    events
}

fn names(switch: &Switch, thread: u32) -> bool {
    switch.new == thread || switch.old == thread
}

/// Returns the switch at an index, if the event there is one.
fn switch_at(events: &[(i64, Event)], index: usize) -> Option<Switch> {
    match events[index].1 {
        Event::Switch(switch) => Some(switch),
        Event::Ready(_) => None,
    }
}

/// Returns the index of the last switch before `at` that matches.
fn last(events: &[(i64, Event)], at: usize, is_match: impl Fn(&Switch) -> bool) -> Option<usize> {
    (0..at).rev().find(|index| switch_at(events, *index).is_some_and(|switch| is_match(&switch)))
}

/// Returns the time that the old thread of a switch ran: since the switch before on that processor,
/// if that was to it and it was not seen elsewhere since.
fn naive_run(events: &[(i64, Event)], at: usize, switch: &Switch) -> Option<Ran> {
    let before = last(events, at, |other| other.cpu == switch.cpu)?;
    let elsewhere = switch.old != 0
        && (before + 1..at)
            .any(|place| switch_at(events, place).is_some_and(|other| names(&other, switch.old)));
    let ran = switch_at(events, before)?.new == switch.old && !elsewhere;
    ran.then_some(Ran { thread: switch.old, from: events[before].0, to: events[at].0 })
}

/// Returns when a thread left before it comes back, and when it was first woken after that.
fn naive_back(
    events: &[(i64, Event)],
    at: usize,
    switch: &Switch,
) -> (Option<(i64, Option<u8>)>, Option<i64>) {
    let woken = |from: usize| {
        events[from..at].iter().find_map(|(time, event)| match event {
            Event::Ready(thread) if *thread == switch.new => Some(*time),
            _ => None,
        })
    };
    let Some(before) = last(events, at, |other| names(other, switch.new)) else { return (None, woken(0)) };
    let Some(other) = switch_at(events, before) else { return (None, None) };
    if other.old == switch.new {
        let reason = (other.state == WAITING).then_some(other.reason);
        return (Some((events[before].0, reason)), woken(before));
    }
    // It came, and no switch away from it was recorded: a wake counts from when another thread was
    // seen in its place.
    let replaced =
        (before + 1..at).find(|place| switch_at(events, *place).is_some_and(|o| o.cpu == other.cpu));
    (None, replaced.and_then(woken))
}

proptest! {
    #[test]
    fn times_match_a_naive_search_over_all_events(steps in proptest::collection::vec(step(), 0..120)) {
        let events = play(&steps);
        let mut ours = Scheduler::default();
        for (at, (time, event)) in events.iter().enumerate() {
            match event {
                Event::Ready(thread) => ours.ready(*time, *thread),
                Event::Switch(switch) => {
                    let (ran, back) = ours.switch(*time, *switch, ());
                    prop_assert_eq!(ran, naive_run(&events, at, switch));
                    let ours_back = back.map(|b| (b.away.map(|a| (a.from, a.reason)), b.readied));
                    let wanted = (switch.new != 0).then(|| naive_back(&events, at, switch));
                    prop_assert_eq!(ours_back, wanted, "at {} in {:?}", at, events);
                }
            }
        }
    }
}
