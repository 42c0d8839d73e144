use super::*;
use proptest::prelude::*;

fn switch(cpu: u16, old: u32, new: u32, state: u8) -> Switch {
    Switch { cpu, new, old, state, reason: 6 }
}

#[test]
fn a_thread_that_waits_is_woken_and_runs_again() {
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
fn a_thread_that_is_pushed_aside_waits_for_nothing() {
    let mut all = Scheduler::default();
    all.switch(10, switch(0, 0, 7, 2), ());
    all.switch(20, switch(0, 7, 8, 1), ());
    let (_, back) = all.switch(35, switch(1, 0, 7, 2), ());
    assert_eq!(back.unwrap().away, Some(Away { from: 20, reason: None, stack: () }), "on another processor");
}

#[test]
fn a_wake_of_what_runs_does_not_count() {
    let mut all = Scheduler::default();
    all.switch(10, switch(0, 0, 7, 2), ());
    all.ready(15, 7);
    all.switch(20, switch(0, 7, 0, WAITING), ());
    let (_, back) = all.switch(35, switch(0, 0, 7, 2), ());
    assert_eq!(back.unwrap().readied, None);
}

#[test]
fn what_a_lost_switch_hides_is_not_made_up() {
    let mut all = Scheduler::default();
    all.switch(10, switch(0, 0, 7, 2), ());
    let (ran, back) = all.switch(50, switch(0, 8, 7, WAITING), ());
    assert_eq!((ran, back.unwrap().away, all.gaps), (None, None, 1));
}

#[test]
fn a_number_that_is_used_again_is_another_thread() {
    let mut all = Scheduler::default();
    all.switch(10, switch(0, 0, 7, 2), ());
    all.switch(20, switch(0, 7, 0, TERMINATED), ());
    let (_, back) = all.switch(99, switch(0, 0, 7, 2), ());
    assert_eq!(back.unwrap().away, None);
}

#[test]
fn what_is_followed_is_bounded() {
    let mut all = Scheduler::default();
    for thread in 1..=MAX_THREADS as u32 + 50 {
        all.ready(0, thread);
    }
    assert_eq!((all.threads.len(), all.beyond), (MAX_THREADS, 50));
}

/// One step of a made-up machine: a processor takes the n-th thread that may run, or goes idle; the one before waits or not; or a thread is woken.
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

/// What happened, as a naive reader keeps it.
#[derive(Clone, Copy, Debug)]
enum Event {
    Switch(Switch),
    Ready(u32),
}

/// A row of events, one a tick, that a machine of three processors and six threads could have had; some switches are lost.
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

/// The time that the old thread of a switch ran, by looking back for the switch before it on that processor.
fn naive_run(events: &[(i64, Event)], at: usize, it: &Switch) -> Option<Ran> {
    let before = events[..at].iter().rev().find_map(|(time, event)| match event {
        Event::Switch(other) if other.cpu == it.cpu => Some((*time, other.new)),
        _ => None,
    })?;
    (before.1 == it.old).then_some(Ran { thread: it.old, from: before.0, to: events[at].0 })
}

/// When a thread left before it comes back, and when it was first woken after that, by looking back over all that names it.
fn naive_back(events: &[(i64, Event)], at: usize, it: &Switch) -> (Option<(i64, Option<u8>)>, Option<i64>) {
    let mut readied = None;
    for (index, (time, event)) in events[..at].iter().enumerate().rev() {
        match event {
            Event::Ready(thread) if *thread == it.new => readied = Some(*time),
            Event::Switch(other) if other.old == it.new => {
                let reason = (other.state == WAITING).then_some(other.reason);
                return (Some((*time, reason)), readied);
            }
            // It came without having left: what was woken in between ran, as far as anybody knows.
            Event::Switch(other) if other.new == it.new && !was_lost(events, index, at, other) => {
                return (None, None);
            }
            Event::Switch(other) if other.new == it.new => {
                return (None, readied_since_loss(events, index, at, other));
            }
            _ => {}
        }
    }
    (None, readied)
}

/// Where the processor that took a thread was next seen, if another thread left it.
fn loss(events: &[(i64, Event)], taken: usize, at: usize, it: &Switch) -> Option<usize> {
    let next = events[taken + 1..=at]
        .iter()
        .position(|(_, event)| matches!(event, Event::Switch(o) if o.cpu == it.cpu))?;
    let place = taken + 1 + next;
    matches!(&events[place].1, Event::Switch(other) if other.old != it.new).then_some(place)
}

fn was_lost(events: &[(i64, Event)], taken: usize, at: usize, it: &Switch) -> bool {
    loss(events, taken, at, it).is_some()
}

fn readied_since_loss(events: &[(i64, Event)], taken: usize, at: usize, it: &Switch) -> Option<i64> {
    let from = loss(events, taken, at, it)?;
    events[from..at].iter().find_map(|(time, event)| match event {
        Event::Ready(thread) if *thread == it.new => Some(*time),
        _ => None,
    })
}

proptest! {
    #[test]
    fn times_are_those_of_a_reader_who_looks_back_over_everything(steps in proptest::collection::vec(step(), 0..120)) {
        let events = play(&steps);
        let mut ours = Scheduler::default();
        for (at, (time, event)) in events.iter().enumerate() {
            match event {
                Event::Ready(thread) => ours.ready(*time, *thread),
                Event::Switch(it) => {
                    let (ran, back) = ours.switch(*time, *it, ());
                    prop_assert_eq!(ran, naive_run(&events, at, it));
                    let told = back.map(|b| (b.away.map(|a| (a.from, a.reason)), b.readied));
                    let wanted = (it.new != 0).then(|| naive_back(&events, at, it));
                    prop_assert_eq!(told, wanted, "at {} in {:?}", at, events);
                }
            }
        }
    }
}
