//! Context switches, threads that become ready, and priority inheritance.
//!
//! ```text
//!   sched:sched_switch       prev_pid, prev_prio, prev_state │ next_pid, next_prio
//!                                                             ──▶  0x0524 context switch
//!   sched:sched_waking       pid, in the waker's context       ──▶  0x0532 ready thread
//!   sched:sched_wakeup_new   pid, of a thread that never ran   ──▶  0x0532
//!   sched:sched_pi_setprio   pid, oldprio, newprio             ──▶  0x0530 priority set
//! ```
//!
//! The states, wait reasons and priorities are those of [`traceweir_format::linux::schedule`].
//!
//! 1. The stack of a switch is that of the thread that is switched to, as on Windows. The kernel can
//!    walk only the stack of the thread that is switched out, so that stack is kept and written with
//!    the thread's next switch in: it shows where the thread waited. The stacks are in a table of
//!    fixed size (`per_task.rs`); a thread whose entry was replaced has no stack.
//! 2. A ready event is written in the context of the waker: `sched_waking` occurs there, while
//!    `sched_wakeup` often occurs on another processor, in an interrupt.
//! 3. The wait time of the new thread counts from its ready event, if that was captured, else from
//!    its last switch out. An unknown wait time is 0, and so is that of the idle thread.
//! 4. With a scope, a switch is written if one of its two threads is in scope, and a ready event if
//!    the thread or its waker is. The other thread of the switch counts as unknown, even if it is
//!    the idle thread: what its processor does next is not recorded.
//! 5. Thread 0 is the idle thread of each processor, with priority 0 and reason 0.

use traceweir_format::kernel::{PayloadLayout, hook, thread_state};
use traceweir_format::linux::schedule::{REASON_PREEMPTED, REASON_USER_REQUEST, SwitchOut, convert_priority};
use traceweir_format::put_kernel_event;

use super::{Context, EventFamily, Row};
use crate::groups::Group;
use crate::out::{KeptStack, Out};
use crate::per_task::PerTask;
use crate::record::{Sideband, SidebandRecord};
use crate::spec::SampleEvent;

#[derive(Debug, Default)]
pub(crate) struct ScheduleFamily {
    /// When a thread became ready or was switched out, in nanoseconds.
    waiting_since_ns: PerTask<u64>,
    /// The stacks of threads that are switched out.
    stacks: PerTask<KeptStack>,
}

const SWITCH_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONTEXT_SWITCH, 2);
const READY_LAYOUT: PayloadLayout = PayloadLayout::new(hook::READY_THREAD, 2);
const PRIORITY_LAYOUT: PayloadLayout = PayloadLayout::new(hook::SET_PRIORITY, 3);

// Indexes of the fields of `sched_switch`.
const PREV_PID_FIELD: usize = 0;
const PREV_PRIO_FIELD: usize = 1;
const PREV_STATE_FIELD: usize = 2;
const NEXT_PID_FIELD: usize = 3;
const NEXT_PRIO_FIELD: usize = 4;

/// Fields of the tracepoints that make a thread ready.
const WOKEN_FIELDS: &[&str] = &["pid", "common_flags"];
const WOKEN_PID_FIELD: usize = 0;
const WOKEN_FLAGS_FIELD: usize = 1;

/// Bits of `common_flags`: the kernel was in an interrupt or in a softirq.
const IN_INTERRUPT: u32 = 0x08 | 0x10;
/// The flag of a ready event for a wakeup from an interrupt.
const READY_FROM_DPC: u8 = 1;
/// The `AdjustReason` of a ready event: the wait of the thread is over.
const ADJUST_UNWAIT: u8 = 1;

static ROWS: &[Row<ScheduleFamily>] = &[
    Row::tracepoint(
        ("sched", "sched_switch"),
        &[Group::CSWITCH],
        &[hook::CONTEXT_SWITCH],
        &["prev_pid", "prev_prio", "prev_state", "next_pid", "next_prio"],
        ScheduleFamily::on_switch,
    ),
    Row::tracepoint(
        ("sched", "sched_waking"),
        &[Group::DISPATCHER],
        &[hook::READY_THREAD],
        WOKEN_FIELDS,
        |schedule, event, context, out| schedule.write_ready(event, ADJUST_UNWAIT, context, out),
    ),
    Row::tracepoint(
        ("sched", "sched_wakeup_new"),
        &[Group::DISPATCHER],
        &[hook::READY_THREAD],
        WOKEN_FIELDS,
        |schedule, event, context, out| schedule.write_ready(event, 0, context, out),
    ),
    Row::tracepoint(
        ("sched", "sched_pi_setprio"),
        &[Group::PRIORITY],
        &[hook::SET_PRIORITY],
        &["pid", "oldprio", "newprio"],
        |_, event, context, out| write_set_priority(event, context, out),
    ),
];

impl EventFamily for ScheduleFamily {
    fn rows() -> &'static [Row<Self>] {
        ROWS
    }

    /// An event names two threads, and is in scope if one of them is.
    fn handles_all_processes(&self) -> bool {
        true
    }

    /// Writes the context switches of a capture of the user's own processes (`CaptureScope::Own`),
    /// which cannot use tracepoints. The records do not name the other thread.
    fn on_sideband(&mut self, record: &SidebandRecord<'_>, context: &mut Context, out: &mut Out<'_>) {
        let Sideband::Switch { is_out, is_preempted } = record.body else { return };
        if !context.groups.has(Group::CSWITCH) {
            return;
        }
        let (new, old) = if is_out { (UNKNOWN_THREAD, record.tid) } else { (record.tid, UNKNOWN_THREAD) };
        let (thread_state, reason) = match (is_out, is_preempted) {
            (true, true) => (thread_state::READY, REASON_PREEMPTED),
            (true, false) => (thread_state::WAITING, REASON_USER_REQUEST),
            // The other thread is unknown.
            (false, _) => (0, 0),
        };
        let mut payload = out.new_payload();
        put_kernel_event!(&mut payload, SWITCH_LAYOUT, {
            NewThreadId: new,
            OldThreadId: old,
            OldThreadWaitReason: reason,
            OldThreadState: thread_state,
        });
        out.write_perfinfo(hook::CONTEXT_SWITCH, SWITCH_LAYOUT.version(), payload);
    }

    fn forget_after_loss(&mut self) {
        *self = Self::default();
    }
}

impl ScheduleFamily {
    fn on_switch(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        let (new, old) = (event.u32(NEXT_PID_FIELD), event.u32(PREV_PID_FIELD));
        let new_priority = thread_priority(new, event.number(NEXT_PRIO_FIELD));
        let old_priority = thread_priority(old, event.number(PREV_PRIO_FIELD));
        let switch_out = SwitchOut::new(old, event.number(PREV_STATE_FIELD));
        let time = event.sample.time;
        let waited_ticks = match self.waiting_since_ns.take(new) {
            Some(since) if new != 0 => out.clock.ticks(time.saturating_sub(since)),
            _ => 0,
        };
        let stack = self.stacks.take(new).filter(|_| new != 0);
        let is_old_in_scope = context.is_thread_in_scope(old);
        let is_new_in_scope = context.is_thread_in_scope(new);
        out.is_in_scope = is_old_in_scope || is_new_in_scope;
        if old != 0 && switch_out.state != thread_state::TERMINATED {
            self.waiting_since_ns.put(old, time);
            if is_old_in_scope && let Some(stack) = out.keep_stack(hook::CONTEXT_SWITCH, old) {
                self.stacks.put(old, stack);
            }
        }
        context.activity.set_running(event.sample.cpu, new, new_priority);
        let (new, new_priority) = if is_new_in_scope { (new, new_priority) } else { (UNKNOWN_THREAD, 0) };
        let (old, old_priority, switch_out) = if is_old_in_scope {
            (old, old_priority, switch_out)
        } else {
            (UNKNOWN_THREAD, 0, SwitchOut::default())
        };
        let mut payload = out.new_payload();
        // The tracepoint reports no C-state, and Linux has no ideal processors.
        put_kernel_event!(&mut payload, SWITCH_LAYOUT, {
            NewThreadId: new,
            OldThreadId: old,
            NewThreadPriority: new_priority,
            OldThreadPriority: old_priority,
            OldThreadWaitReason: switch_out.reason,
            OldThreadWaitMode: switch_out.mode,
            OldThreadState: switch_out.state,
            NewThreadWaitTime: u32::try_from(waited_ticks).unwrap_or(u32::MAX),
        });
        let version = SWITCH_LAYOUT.version();
        out.write_perfinfo_with_stack(hook::CONTEXT_SWITCH, version, payload, stack.as_ref());
    }

    fn write_ready(&mut self, event: &SampleEvent<'_>, reason: u8, context: &Context, out: &mut Out<'_>) {
        let thread = event.u32(WOKEN_PID_FIELD);
        out.is_in_scope |= context.is_thread_in_scope(thread);
        self.waiting_since_ns.put(thread, event.sample.time);
        let flags = if event.u32(WOKEN_FLAGS_FIELD) & IN_INTERRUPT != 0 { READY_FROM_DPC } else { 0 };
        let mut payload = out.new_payload();
        put_kernel_event!(&mut payload, READY_LAYOUT, { ThreadId: thread, AdjustReason: reason, Flags: flags });
        out.write_perfinfo(hook::READY_THREAD, READY_LAYOUT.version(), payload);
    }
}

fn write_set_priority(event: &SampleEvent<'_>, context: &Context, out: &mut Out<'_>) {
    out.is_in_scope |= context.is_thread_in_scope(event.u32(0));
    let mut payload = out.new_payload();
    put_kernel_event!(&mut payload, PRIORITY_LAYOUT, {
        ThreadId: event.u32(0),
        OldPriority: convert_priority(event.number(1)),
        NewPriority: convert_priority(event.number(2)),
    });
    out.write_perfinfo(hook::SET_PRIORITY, PRIORITY_LAYOUT.version(), payload);
}

fn thread_priority(thread: u32, linux_priority: i64) -> u8 {
    if thread == 0 { 0 } else { convert_priority(linux_priority) }
}

/// The id of an unknown thread.
const UNKNOWN_THREAD: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use traceweir_format::Record;
    use traceweir_format::stack_walk::StackWalk;
    use traceweir_format::wire::{u32_at, u64_at};

    use super::*;
    use crate::clock::NanosecondClock;
    use crate::family::testing::{assert_written, run_row_with_numbers};
    use crate::groups::Groups;
    use crate::out::RecordQueue;
    use crate::record::PerfSample;
    use crate::settings::{EventExtras, HookSet};
    use crate::stack::USER_MARKER;

    #[test]
    fn payloads_have_the_documented_layout() {
        let (mut schedule, mut context) = (ScheduleFamily::default(), Context::default());
        context.groups = Groups::new(&[Group::CSWITCH]);
        let write = |out: &mut Out<'_>| {
            let mut run = |name: &str, time, numbers: &[u64]| {
                let sample = PerfSample { time, ..PerfSample::default() };
                run_row_with_numbers(&mut schedule, &mut context, name, sample, numbers, out);
            };
            run("sched:sched_waking", 1000, &[0x0A11, 0x10]);
            run("sched:sched_wakeup_new", 1000, &[0x0A12, 0]);
            run("sched:sched_switch", 1777, &[0x0A13, 120, 1, 0x0A11, 50]);
            run("sched:sched_pi_setprio", 2000, &[0x0A14, 120, 98]);
            let body = Sideband::Switch { is_out: true, is_preempted: true };
            let record = SidebandRecord { time: 3000, pid: 0x0A15, tid: 0x0A16, body };
            schedule.on_sideband(&record, &mut context, out);
        };
        // Hook id, version, payload.
        assert_written(
            write,
            &[
                "0532 02 110a0000 01 00 01 00",
                "0532 02 120a0000 00 00 00 00",
                "0524 02 110a0000 130a0000 18 08 00 00 06 01 05 00 09030000 00000000",
                "0530 03 140a0000 08 11 0000",
                "0524 02 ffffffff 160a0000 00 00 00 00 20 00 01 00 00000000 00000000",
            ],
        );
    }

    #[test]
    fn idle_thread_has_priority_0() {
        assert_eq!((thread_priority(0, 120), thread_priority(7, 120)), (0, 8));
    }

    #[test]
    fn switch_out_maps_to_documented_state_reason_and_mode() {
        let values = |prev_state| {
            let SwitchOut { state, reason, mode } = SwitchOut::new(7, prev_state);
            (state, reason, mode)
        };
        assert_eq!((values(0), values(0x100)), ((1, 31, 0), (1, 32, 0)));
        assert_eq!((values(1), values(2), values(0x80)), ((5, 6, 1), (5, 0, 0), (5, 0, 0)));
        assert_eq!((values(4), values(8), values(0x40)), ((5, 5, 0), (5, 5, 0), (5, 5, 0)));
        assert_eq!((values(0x10), values(0x20)), ((4, 22, 0), (4, 22, 0)));
        assert_eq!(SwitchOut::new(0, 0), SwitchOut { state: 1, reason: 0, mode: 0 });
    }

    #[test]
    fn times_of_waiting_threads_are_forgotten_after_a_loss() {
        let mut schedule = ScheduleFamily::default();
        schedule.waiting_since_ns.put(8, 1);
        schedule.forget_after_loss();
        assert_eq!(schedule.waiting_since_ns.take(8), None);
    }

    #[test]
    fn stack_of_a_switch_is_that_of_the_thread_that_is_switched_to() {
        let (mut schedule, mut context) = (ScheduleFamily::default(), Context::default());
        let extras = EventExtras { stacks: HookSet::new(&[hook::CONTEXT_SWITCH]), ..EventExtras::default() };
        let (mut queues, mut lost_records) = ([RecordQueue::default()], 0);
        // Old thread, its state, new thread, the user frame of the old thread, and the thread id in
        // the sample.
        let switches = [
            (7, 1, 8, 0x7001, 7),
            // The thread is ending, so the sample does not name it.
            (8, 1, 0, 0x8001, u32::MAX),
            (0, 0, 7, 0x1, 0),
            // The thread ends, and another one gets its id.
            (7, 0x10, 8, 0x7002, 7),
            (8, 0, 7, 0x8002, 8),
        ];
        for (old, state, new, frame, tid) in switches {
            let chain = [USER_MARKER, frame].map(u64::to_le_bytes).concat();
            let sample = PerfSample { pid: 6, tid, callchain: &chain, ..PerfSample::default() };
            let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records);
            (out.sample, out.max_frames) = (Some(sample), 8);
            let numbers = [old, 120, state, new, 120];
            let name = "sched:sched_switch";
            run_row_with_numbers(&mut schedule, &mut context, name, sample, &numbers, &mut out);
        }
        let mut written = Vec::new();
        while let Some(next) = queues[0].peek() {
            let mut bytes = vec![0; next.length];
            queues[0].pop_into(&mut bytes);
            let record = Record::parse(&bytes, 0).unwrap();
            let payload = record.payload();
            written.push(match StackWalk::is_stack_walk(&record) {
                true => format!(
                    "stack of {}/{} {:x}",
                    u32_at(payload, 8),
                    u32_at(payload, 12),
                    u64_at(payload, 16)
                ),
                false => format!("switch to {}", u32_at(payload, 0)),
            });
        }
        let expected = [
            "switch to 8",
            "switch to 0",
            "switch to 7",
            "stack of 6/7 7001",
            "switch to 8",
            "stack of 6/8 8001",
            "switch to 7",
        ];
        assert_eq!(written, expected);
    }
}
