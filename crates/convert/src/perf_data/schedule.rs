//! Context switches and threads that become ready.
//!
//! ```text
//!   sched:sched_switch    prev_pid, prev_prio, prev_state, next_pid, next_prio ──▶ 0x0524 switch
//!   sched:sched_waking, sched_wakeup_new   pid, in the context of the waker    ──▶ 0x0532 ready
//!   sched:sched_wakeup    likewise, if the recording has no sched_waking
//!   SWITCH records        if the recording has no sched_switch                 ──▶ 0x0524
//! ```
//!
//! 1. The stack of a switch is that of the thread that is switched in, as on Windows. A recording
//!    has the stack of the thread that is switched out, so it is kept until that thread runs again.
//! 2. The wait time of the new thread counts from its ready event, if that was recorded, else from
//!    its last switch out.

use std::collections::HashMap;

use traceweir_format::etl::WriteAt;
use traceweir_format::kernel::{PayloadLayout, hook, thread_state};
use traceweir_format::linux::schedule::{REASON_PREEMPTED, REASON_USER_REQUEST, SwitchOut, convert_priority};
use traceweir_format::put_kernel_event;

use super::output::{Moment, TraceOutput};
use super::stacks::CallStack;
use super::tracepoint::Tracepoint;

const SWITCH_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONTEXT_SWITCH, 2);
const READY_LAYOUT: PayloadLayout = PayloadLayout::new(hook::READY_THREAD, 2);

/// The id of an unknown thread.
const UNKNOWN_THREAD: u32 = u32::MAX;

/// Bits of `common_flags`: the kernel was in an interrupt or in a softirq.
const IN_INTERRUPT: i64 = 0x08 | 0x10;
/// The flag of a ready event for a wakeup from an interrupt.
const READY_FROM_DPC: u8 = 1;
/// The `AdjustReason` of a ready event: the wait of the thread is over.
const ADJUST_UNWAIT: u8 = 1;

/// The most threads whose wait is remembered.
const MAX_WAITING: usize = 1 << 16;
/// Stacks of waiting threads are kept up to this size in total.
const MAX_STACK_BYTES: usize = 32 << 20;

/// A thread that does not run.
#[derive(Debug, Default)]
struct Waiting {
    since: i64,
    stack: CallStack,
}

/// Writes switches and ready events.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    waiting: HashMap<u32, Waiting>,
    stack_bytes: usize,
    payload: Vec<u8>,
    /// Number of context switches written.
    pub(super) switches: u64,
}

/// A thread of a switch, and its priority on the scale of Windows.
#[derive(Clone, Copy, Debug)]
struct SwitchedThread {
    tid: u32,
    priority: u8,
}

impl Schedule {
    /// Writes the switch of a `sched_switch` sample. Returns false if the format or the data lacks a
    /// field.
    pub(super) fn on_switch<W: WriteAt>(
        &mut self,
        format: &Tracepoint,
        data: &[u8],
        stack: CallStack,
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> traceweir_format::Result<bool> {
        let number = |name: &str| format.field(name)?.number(data);
        let thread = |id: &str, priority: &str| {
            let tid = u32::try_from(number(id)?).ok()?;
            let priority = if tid == 0 { 0 } else { convert_priority(number(priority)?) };
            Some(SwitchedThread { tid, priority })
        };
        let (Some(new), Some(old), Some(state)) =
            (thread("next_pid", "next_prio"), thread("prev_pid", "prev_prio"), number("prev_state"))
        else {
            return Ok(false);
        };
        let switch_out = SwitchOut::new(old.tid, state);
        self.write_switch(new, old, switch_out, at, out)?;
        if old.tid != 0 && switch_out.state != thread_state::TERMINATED {
            self.keep(old.tid, at.time, stack);
        }
        Ok(true)
    }

    /// Writes the switch of a SWITCH record. Of a pair of records that name both threads, the one of
    /// the thread that is switched out is written.
    pub(super) fn on_switch_record<W: WriteAt>(
        &mut self,
        (tid, other): (u32, Option<u32>),
        (is_out, is_preempted): (bool, bool),
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> traceweir_format::Result<()> {
        if !is_out && other.is_some() {
            return Ok(());
        }
        let other = other.unwrap_or(UNKNOWN_THREAD);
        let (new, old) = if is_out { (other, tid) } else { (tid, other) };
        let switch_out = match (is_out, is_preempted) {
            (false, _) => SwitchOut::default(),
            (true, true) => SwitchOut { state: thread_state::READY, reason: REASON_PREEMPTED, mode: 0 },
            (true, false) if old == 0 => SwitchOut::new(0, 0),
            (true, false) => SwitchOut { state: thread_state::WAITING, reason: REASON_USER_REQUEST, mode: 0 },
        };
        let unranked = |tid| SwitchedThread { tid, priority: 0 };
        self.write_switch(unranked(new), unranked(old), switch_out, at, out)?;
        if is_out && old != 0 {
            self.keep(old, at.time, CallStack::default());
        }
        Ok(())
    }

    fn write_switch<W: WriteAt>(
        &mut self,
        new: SwitchedThread,
        old: SwitchedThread,
        switch_out: SwitchOut,
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> traceweir_format::Result<()> {
        let waited = if new.tid == 0 { None } else { self.waiting.remove(&new.tid) };
        let waited_ns = waited.as_ref().map_or(0, |waiting| at.time.saturating_sub(waiting.since));
        self.payload.clear();
        put_kernel_event!(&mut self.payload, SWITCH_LAYOUT, {
            NewThreadId: new.tid,
            OldThreadId: old.tid,
            NewThreadPriority: new.priority,
            OldThreadPriority: old.priority,
            OldThreadWaitReason: switch_out.reason,
            OldThreadWaitMode: switch_out.mode,
            OldThreadState: switch_out.state,
            NewThreadWaitTime: u32::try_from(waited_ns.max(0)).unwrap_or(u32::MAX),
        });
        let event = (hook::CONTEXT_SWITCH, SWITCH_LAYOUT.version());
        let is_written = out.write_perfinfo(at, event, &self.payload)?;
        self.switches = self.switches.saturating_add(1);
        let Some(waiting) = waited else { return Ok(()) };
        self.stack_bytes = self.stack_bytes.saturating_sub(waiting.stack.memory());
        if !is_written || waiting.stack.is_empty() {
            return Ok(());
        }
        waiting.stack.write(new.tid, at, &mut self.payload, out)
    }

    fn keep(&mut self, tid: u32, since: i64, stack: CallStack) {
        if self.waiting.len() >= MAX_WAITING || self.stack_bytes > MAX_STACK_BYTES {
            self.waiting.clear();
            self.stack_bytes = 0;
        }
        self.stack_bytes = self.stack_bytes.saturating_add(stack.memory());
        let replaced = self.waiting.insert(tid, Waiting { since, stack });
        let replaced_bytes = replaced.map_or(0, |waiting| waiting.stack.memory());
        self.stack_bytes = self.stack_bytes.saturating_sub(replaced_bytes);
    }

    /// Writes the ready event of a wakeup. Returns false if the format or the data lacks a field.
    /// `is_new` means that the thread never ran.
    pub(super) fn on_wakeup<W: WriteAt>(
        &mut self,
        format: &Tracepoint,
        data: &[u8],
        is_new: bool,
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> traceweir_format::Result<bool> {
        let thread = format.field("pid").and_then(|field| u32::try_from(field.number(data)?).ok());
        let Some(thread) = thread else { return Ok(false) };
        if let Some(waiting) = self.waiting.get_mut(&thread) {
            waiting.since = at.time;
        } else {
            self.keep(thread, at.time, CallStack::default());
        }
        let common_flags = format.flags.as_ref().and_then(|field| field.number(data)).unwrap_or(0);
        self.payload.clear();
        put_kernel_event!(&mut self.payload, READY_LAYOUT, {
            ThreadId: thread,
            AdjustReason: if is_new { 0_u8 } else { ADJUST_UNWAIT },
            Flags: if common_flags & IN_INTERRUPT != 0 { READY_FROM_DPC } else { 0_u8 },
        });
        out.write_perfinfo(at, (hook::READY_THREAD, READY_LAYOUT.version()), &self.payload)
    }

    /// Forgets the waiting threads, after records were lost.
    pub(super) fn forget_after_loss(&mut self) {
        self.waiting.clear();
        self.stack_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_waiting_threads_is_bounded() {
        let mut schedule = Schedule::default();
        for tid in 0..2 * MAX_WAITING as u32 {
            schedule.keep(tid, 0, CallStack::default());
            assert!(schedule.waiting.len() <= MAX_WAITING);
        }
        for tid in 0..100 {
            let stack = CallStack { kernel: vec![0; 1 << 20], ..CallStack::default() };
            schedule.keep(tid, 0, stack);
            assert!(schedule.stack_bytes <= MAX_STACK_BYTES + (1 << 20));
        }
        schedule.forget_after_loss();
        assert_eq!(schedule.stack_bytes, 0);
    }
}
