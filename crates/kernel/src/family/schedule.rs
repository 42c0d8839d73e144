//! Context switches, threads that become ready, and priorities that are lent.
//!
//! ```text
//!   sched:sched_switch       prev_pid, prev_prio, prev_state │ next_pid, next_prio     ──▶  0x0524 context switch
//!   sched:sched_waking       pid, in whose context                                     ──▶  0x0532 ready thread
//!   sched:sched_wakeup_new   the same, for a thread that never ran                     ──▶  0x0532
//!   sched:sched_pi_setprio   pid, oldprio, newprio                                     ──▶  0x0530 priority set
//!
//!   prev_state   0 R     R+ (0x100)   S      D      T t        X Z          P            I
//!   state        ready   ready        wait   wait   wait       terminated   wait         wait
//!   reason       31      32           6      0      5          22           5            0        31 dispatch interrupt, 32 preempted, 22 terminated,
//!   mode         0       0            user   0      0          0            0            0        5 suspended, 6 user request, 0 executive
//! ```
//!
//! 1. The stack of a switch is that of the thread that is switched away from: it is what the kernel can walk then.
//! 2. A thread is told to be ready by who makes it so: `sched_waking` happens there, `sched_wakeup` often on another processor, in an interrupt.
//! 3. A new thread has waited since it was made ready, as far as that was seen, else since it was switched away from; 0: not known, or idle.
//! 4. Thread 0 is idle on each processor, with priority 0 and no reason.

use traceweir_format::wire::Put;

use crate::groups::Group;
use crate::out::Out;
use crate::per_thread::PerThread;
use crate::record::{Context, Other};
use crate::spec::{Event, Spec};
use crate::state::State as All;

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// When a thread was made ready or switched away from, in nanoseconds.
    since: PerThread<u64>,
    /// Thread and priority that each processor was switched to.
    running: Vec<(u32, u8)>,
}

const CONTEXT_SWITCH: u16 = 0x0524;
const SET_PRIORITY: u16 = 0x0530;
const READY_THREAD: u16 = 0x0532;

/// Fields of `sched_switch`, by their place.
const PREV_PID: usize = 0;
const PREV_PRIO: usize = 1;
const PREV_STATE: usize = 2;
const NEXT_PID: usize = 3;
const NEXT_PRIO: usize = 4;

/// Fields of what makes a thread ready.
const WOKEN: &[&str] = &["pid", "common_flags"];
const WOKEN_PID: usize = 0;
const WOKEN_FLAGS: usize = 1;

/// The kernel was in an interrupt, or in what is deferred from one: bits of `common_flags`.
const IN_INTERRUPT: u32 = 0x08 | 0x10;
/// The flag of a ready thread that says so.
const FROM_DPC: u8 = 1;
/// Why a thread is made ready: its wait is over.
const UNWAIT: u8 = 1;

pub(crate) static SPECS: &[Spec] = &[
    Spec::tracepoint(
        ("sched", "sched_switch"),
        &[Group::CSWITCH],
        &[CONTEXT_SWITCH],
        &["prev_pid", "prev_prio", "prev_state", "next_pid", "next_prio"],
        switched,
    ),
    Spec::tracepoint(("sched", "sched_waking"), &[Group::DISPATCHER], &[READY_THREAD], WOKEN, woken),
    Spec::tracepoint(("sched", "sched_wakeup_new"), &[Group::DISPATCHER], &[READY_THREAD], WOKEN, begun),
    Spec::tracepoint(
        ("sched", "sched_pi_setprio"),
        &[Group::PRIORITY],
        &[SET_PRIORITY],
        &["pid", "oldprio", "newprio"],
        lent,
    ),
];

fn switched(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let (new, old) = (event.u32(NEXT_PID), event.u32(PREV_PID));
    let (new_priority, old_priority) =
        (priority_of(new, event.number(NEXT_PRIO)), priority_of(old, event.number(PREV_PRIO)));
    let why = why(old, event.number(PREV_STATE));
    let schedule = &mut state.schedule;
    let time = event.sample.time;
    let waited = match schedule.since.take(new) {
        Some(since) if new != 0 => out.clock.ticks(time.saturating_sub(since)),
        _ => 0,
    };
    if old != 0 && why.state != TERMINATED {
        schedule.since.put(old, time);
    }
    schedule.runs_on(event.sample.cpu, (new, new_priority));
    let mut payload = out.payload();
    payload.put_u32(new).put_u32(old).put_u8(new_priority).put_u8(old_priority);
    // No C-state is told here, and priorities are not decremented.
    payload.put_u8(0).put_u8(0);
    // There are no ideal processors.
    payload.put_u8(why.reason).put_u8(why.mode).put_u8(why.state).put_u8(0);
    payload.put_u32(u32::try_from(waited).unwrap_or(u32::MAX)).put_u32(0);
    out.perfinfo(CONTEXT_SWITCH, 2, payload);
}

fn woken(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    ready(state, event, UNWAIT, out);
}

fn begun(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    ready(state, event, 0, out);
}

fn ready(state: &mut All, event: &Event<'_>, reason: u8, out: &mut Out<'_>) {
    let thread = event.u32(WOKEN_PID);
    state.schedule.since.put(thread, event.sample.time);
    let flags = if event.u32(WOKEN_FLAGS) & IN_INTERRUPT != 0 { FROM_DPC } else { 0 };
    let mut payload = out.payload();
    payload.put_u32(thread).put_u8(reason).put_u8(0).put_u8(flags).put_u8(0);
    out.perfinfo(READY_THREAD, 2, payload);
}

fn lent(_: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let mut payload = out.payload();
    payload.put_u32(event.u32(0));
    payload.put_u8(priority(event.number(1))).put_u8(priority(event.number(2))).put_u16(0);
    out.perfinfo(SET_PRIORITY, 3, payload);
}

impl State {
    pub(crate) fn runs_on(&mut self, cpu: u16, it: (u32, u8)) {
        let index = usize::from(cpu);
        if self.running.len() <= index {
            self.running.resize(index.saturating_add(1), (0, 0));
        }
        if let Some(slot) = self.running.get_mut(index) {
            *slot = it;
        }
    }

    /// The priority of the thread that runs on a processor, as far as it is known; 0 where it is not.
    pub(crate) fn priority_on(&self, cpu: u16, thread: u32) -> u8 {
        let known = self.running.get(usize::from(cpu)).filter(|(running, _)| *running == thread);
        known.map_or(0, |(_, priority)| *priority)
    }
}

/// Records were lost: nobody knows who runs, and since when threads wait.
pub(crate) fn forget(state: &mut All) {
    state.schedule = State::default();
}

fn priority_of(thread: u32, linux: i64) -> u8 {
    if thread == 0 { 0 } else { priority(linux) }
}

/// A priority of Linux (0 is the highest, 139 the lowest; below 0: by deadline) on Windows' scale.
pub(crate) fn priority(linux: i64) -> u8 {
    match linux {
        // Real time: 1 to 99 become 31 to 16.
        ..100 => u8::try_from(31_i64.saturating_sub(linux.clamp(0, 99).saturating_mul(15).div_euclid(99)))
            .unwrap_or(16),
        // Nice −20 to 19 become 15 to 1.
        _ => u8::try_from(
            15_i64.saturating_sub(linux.min(139).saturating_sub(100).saturating_mul(14).div_euclid(39)),
        )
        .unwrap_or(1),
    }
}

const READY: u8 = 1;
/// Wait reasons, and a thread that is not told.
const USER_REQUEST: u8 = 6;
const WR_PREEMPTED: u8 = 32;
const UNKNOWN: u32 = u32::MAX;
const TERMINATED: u8 = 4;
const WAITING: u8 = 5;

/// In which state a thread was switched away from, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Why {
    state: u8,
    reason: u8,
    /// 1: the wait is one that signals end.
    mode: u8,
}

fn why(thread: u32, state: i64) -> Why {
    const EXECUTIVE: u8 = 0;
    const SUSPENDED: u8 = 5;
    const USER_REQUEST: u8 = 6;
    const ENDED: u8 = 22;
    const DISPATCH_INTERRUPT: u8 = 31;
    const PREEMPTED: u8 = 32;
    const IS_PREEMPTED: i64 = 0x100;
    let (state, reason, mode) = match (thread, state & 0xFF) {
        (0, _) => (READY, EXECUTIVE, 0),
        (_, 0) if state & IS_PREEMPTED != 0 => (READY, PREEMPTED, 0),
        (_, 0) => (READY, DISPATCH_INTERRUPT, 0),
        (_, 0x01) => (WAITING, USER_REQUEST, 1),
        // Stopped, traced, parked.
        (_, 0x04 | 0x08 | 0x40) => (WAITING, SUSPENDED, 0),
        (_, 0x10 | 0x20) => (TERMINATED, ENDED, 0),
        // Not to be interrupted, or an idle thread of the kernel.
        _ => (WAITING, EXECUTIVE, 0),
    };
    Why { state, reason, mode }
}

/// Where single threads are watched there is no tracepoint: a thread is switched to, or away from, and the other one is not told.
pub(crate) fn on_other(state: &mut All, context: &Context, other: &Other<'_>, out: &mut Out<'_>) {
    let Other::Switch { is_out, is_preempted } = *other else { return };
    if !state.groups.has(Group::CSWITCH) {
        return;
    }
    let (new, old) = if is_out { (UNKNOWN, context.tid) } else { (context.tid, UNKNOWN) };
    let (thread_state, reason) = match (is_out, is_preempted) {
        (true, true) => (READY, WR_PREEMPTED),
        (true, false) => (WAITING, USER_REQUEST),
        // Nothing is known of the other thread.
        (false, _) => (0, 0),
    };
    let mut payload = out.payload();
    payload.put_u32(new).put_u32(old).put_u32(0);
    payload.put_u8(reason).put_u8(0).put_u8(thread_state).put_u8(0).put_u64(0);
    out.perfinfo(CONTEXT_SWITCH, 2, payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_keep_their_order_and_their_half_of_the_scale() {
        let all: Vec<u8> = (-1..=140).map(priority).collect();
        assert!(all.windows(2).all(|pair| pair[0] >= pair[1]), "{all:?}");
        assert_eq!([-1, 0, 98, 99].map(priority), [31, 31, 17, 16]);
        assert_eq!([100, 120, 139, 140].map(priority), [15, 8, 1, 1]);
        assert_eq!((priority_of(0, 120), priority_of(7, 120)), (0, 8));
    }

    #[test]
    fn states_say_whether_a_thread_could_have_gone_on() {
        let told = |state| {
            let Why { state, reason, mode } = why(7, state);
            (state, reason, mode)
        };
        assert_eq!((told(0), told(0x100)), ((1, 31, 0), (1, 32, 0)));
        assert_eq!((told(1), told(2), told(0x80)), ((5, 6, 1), (5, 0, 0), (5, 0, 0)));
        assert_eq!((told(4), told(8), told(0x40)), ((5, 5, 0), (5, 5, 0), (5, 5, 0)));
        assert_eq!((told(0x10), told(0x20)), ((4, 22, 0), (4, 22, 0)));
        assert_eq!(why(0, 0), Why { state: 1, reason: 0, mode: 0 });
    }

    #[test]
    fn the_priority_of_who_runs_is_that_of_the_last_switch() {
        let mut state = State::default();
        assert_eq!(state.priority_on(3, 7), 0);
        state.runs_on(3, (7, 9));
        assert_eq!((state.priority_on(3, 7), state.priority_on(3, 8), state.priority_on(0, 7)), (9, 0, 0));
    }

    #[test]
    fn a_loss_ends_what_is_known_of_who_runs_and_who_waits() {
        let mut state = All::default();
        state.schedule.runs_on(3, (7, 9));
        state.schedule.since.put(8, 1);
        crate::family::forget(&mut state);
        assert_eq!((state.schedule.priority_on(3, 7), state.schedule.since.take(8)), (0, None));
    }
}
