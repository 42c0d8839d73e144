//! Context switches and threads that become ready.
//!
//! ```text
//!   sched:sched_switch  prev_pid, prev_prio, prev_state │ next_pid, next_prio     ──▶  0x0524 context switch
//!   sched:sched_wakeup  pid                                                       ──▶  0x0532 ready thread
//! ```
//!
//! The stack of a switch is that of the thread that is switched away from: it is what the kernel can walk then.

use traceweir_format::wire::Put;

use crate::groups::Group;
use crate::out::Out;
use crate::record::{Context, Other};
use crate::spec::{Event, Spec};
use crate::state::State as All;

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct State;

const CONTEXT_SWITCH: u16 = 0x0524;
const READY_THREAD: u16 = 0x0532;

/// Fields of `sched_switch`, by their place.
const PREV_PID: usize = 0;
const PREV_PRIO: usize = 1;
const PREV_STATE: usize = 2;
const NEXT_PID: usize = 3;
const NEXT_PRIO: usize = 4;

pub(crate) static SPECS: &[Spec] = &[
    Spec::tracepoint(
        ("sched", "sched_switch"),
        &[Group::CSWITCH],
        &[CONTEXT_SWITCH],
        &["prev_pid", "prev_prio", "prev_state", "next_pid", "next_prio"],
        switched,
    ),
    Spec::tracepoint(("sched", "sched_wakeup"), &[Group::DISPATCHER], &[READY_THREAD], &["pid"], woken),
];

fn switched(_: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let mut payload = out.payload();
    payload.put_u32(event.u32(NEXT_PID)).put_u32(event.u32(PREV_PID));
    payload.put_u8(priority(event.number(NEXT_PRIO))).put_u8(priority(event.number(PREV_PRIO)));
    // No C-states are told here, and priorities are not decremented.
    payload.put_u8(0).put_u8(0);
    let (state, reason) = why(event.number(PREV_STATE));
    payload.put_u8(reason).put_u8(0).put_u8(state).put_u8(0);
    payload.put_u32(0).put_u32(0);
    out.perfinfo(CONTEXT_SWITCH, 2, payload);
}

fn woken(_: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let mut payload = out.payload();
    payload.put_u32(event.u32(0)).put_u8(1).put_u8(0).put_u8(0).put_u8(0);
    out.perfinfo(READY_THREAD, 2, payload);
}

/// A priority of Linux (0 is the highest, 139 the lowest) on Windows' scale.
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

/// State and wait reason of a thread that was switched away from.
fn why(state: i64) -> (u8, u8) {
    const READY: u8 = 1;
    const TERMINATED: u8 = 4;
    const WAITING: u8 = 5;
    const EXECUTIVE: u8 = 0;
    const SUSPENDED: u8 = 5;
    const USER_REQUEST: u8 = 6;
    const PREEMPTED: u8 = 32;
    match state & 0xFF {
        0 => (READY, PREEMPTED),
        1 => (WAITING, USER_REQUEST),
        2 => (WAITING, EXECUTIVE),
        4 | 8 => (WAITING, SUSPENDED),
        16 | 32 | 64 | 80 => (TERMINATED, EXECUTIVE),
        _ => (WAITING, EXECUTIVE),
    }
}

pub(crate) fn on_other(_: &mut All, _: &Context, _: &Other<'_>, _: &mut Out<'_>) {}
