//! What processors do: context switches, threads that become ready, threads that end, and samples.

use std::collections::HashMap;

use anyhow::Result;

use super::fields::{ftrace, packet, perf_sample, sched};
use super::writer::PerfettoWriter;
use crate::activity::{ActivityTables, Sample, StackFrame, Switch, Thread, ThreadIndex};
use crate::protobuf::Message;

/// Bytes of scheduling events of one processor, and of all, to collect before they become packets.
const MAX_BUNDLE_BYTES: usize = 1 << 15;
const MAX_BUNDLES_BYTES: usize = 4 << 20;
/// The priority of threads whose priority the trace does not contain: the default of Linux.
const DEFAULT_PRIORITY: i64 = 120;
/// The thread id that stands for threads that a trace does not name.
pub(super) const UNKNOWN_TID: u32 = i32::MAX.cast_unsigned();
/// The thread id that stands for threads that the filters do not select.
pub(super) const OTHER_TID: u32 = UNKNOWN_TID - 1;

impl PerfettoWriter<'_> {
    /// Adds a scheduling event to the bundle of a processor.
    pub(super) fn add_to_bundle(&mut self, cpu: u32, write: impl FnOnce(&mut Message)) -> Result<()> {
        let bundle = self.bundles.entry(cpu).or_default();
        let before = bundle.bytes().len();
        bundle.put_message(ftrace::EVENT, write);
        let length = bundle.bytes().len();
        self.bundle_bytes = self.bundle_bytes.saturating_add(length.saturating_sub(before));
        if length > MAX_BUNDLE_BYTES {
            self.write_bundle(cpu, false)?;
        }
        if self.bundle_bytes > MAX_BUNDLES_BYTES {
            self.write_bundles()?;
        }
        Ok(())
    }

    pub(super) fn write_bundle(&mut self, cpu: u32, has_lost_events: bool) -> Result<()> {
        let events = self.bundles.remove(&cpu).unwrap_or_default();
        self.bundle_bytes = self.bundle_bytes.saturating_sub(events.bytes().len());
        self.packet.put_message(packet::FTRACE_EVENTS, |bundle| {
            bundle.put_u64(ftrace::CPU, cpu.into());
            bundle.append(&events);
            if has_lost_events {
                bundle.put_u64(ftrace::LOST_EVENTS, 1);
            }
        });
        self.end_packet()
    }

    pub(super) fn write_bundles(&mut self) -> Result<()> {
        while let Some(cpu) = self.bundles.keys().next().copied() {
            self.write_bundle(cpu, false)?;
        }
        Ok(())
    }

    pub(super) fn add_switch(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        cpu: u32,
        switch: &Switch,
    ) -> Result<()> {
        let was_selected = self.selected_runs.insert(cpu, switch.selects_new);
        if !switch.selects_new && was_selected != Some(true) {
            return Ok(());
        }
        // The old thread is the new one of the switch before.
        let is_old_named = was_selected.unwrap_or(switch.selects_old);
        let find = |thread, is_named| if is_named { Task::find(tables, thread) } else { Task::OTHER };
        let (old, new) = (find(switch.old, is_old_named), find(switch.new, switch.selects_new));
        self.add_to_bundle(cpu, |message| {
            message.put_u64(ftrace::TIMESTAMP, at).put_u64(ftrace::PID, old.tid.into());
            message.put_message(ftrace::SCHED_SWITCH, |message| {
                message.put_text(sched::PREV_COMM, old.name).put_u64(sched::PREV_PID, old.tid.into());
                message.put_i64(sched::PREV_PRIO, switch.old_priority.into());
                message.put_u64(sched::PREV_STATE, task_state(switch.state, switch.reason));
                message.put_text(sched::NEXT_COMM, new.name).put_u64(sched::NEXT_PID, new.tid.into());
                message.put_i64(sched::NEXT_PRIO, switch.new_priority.into());
            });
        })
    }

    /// Writes which threads run when the time span of the filters begins. A thread whose next switch
    /// is lost may have ended or moved to another processor. The threads that ran before them may have
    /// run elsewhere since then, so they are not named.
    pub(super) fn write_first_switches(&mut self, tables: &ActivityTables) -> Result<()> {
        let Some(start_ns) = self.start_ns else { return Ok(()) };
        let at = start_ns.saturating_add(u64::try_from(tables.from_ns).unwrap_or(0));
        let switches = std::mem::take(&mut self.first_switches);
        let mut last_times = HashMap::new();
        for (time_ns, switch) in switches.values() {
            let last = last_times.entry(switch.new).or_insert(*time_ns);
            *last = (*last).max(*time_ns);
        }
        for (cpu, (time_ns, switch)) in switches {
            let thread = switch.new.and_then(|thread| tables.lives.thread(thread));
            let has_ended =
                |thread: &Thread| thread.life.end_ns.is_some_and(|end_ns| end_ns <= tables.from_ns);
            let has_moved =
                |thread: &Thread| thread.tid != 0 && last_times.get(&switch.new) != Some(&time_ns);
            if thread.is_some_and(|thread| has_ended(thread) || has_moved(thread)) {
                continue;
            }
            self.add_switch(tables, at, cpu, &Switch { selects_old: false, ..switch })?;
        }
        Ok(())
    }

    pub(super) fn add_wake(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        cpu: u32,
        (thread, waker): (Option<ThreadIndex>, Option<ThreadIndex>),
    ) -> Result<()> {
        let (task, waker) = (Task::find(tables, thread), tables.output_ids(waker).1);
        self.add_to_bundle(cpu, |message| {
            message.put_u64(ftrace::TIMESTAMP, at).put_u64(ftrace::PID, waker.unwrap_or(0).into());
            message.put_message(ftrace::SCHED_WAKING, |message| {
                message.put_text(sched::WAKING_COMM, task.name).put_u64(sched::WAKING_PID, task.tid.into());
                message.put_i64(sched::WAKING_PRIO, DEFAULT_PRIORITY).put_u64(sched::WAKING_SUCCESS, 1);
                message.put_u64(sched::WAKING_TARGET_CPU, cpu.into());
            });
        })
    }

    pub(super) fn add_thread_end(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        cpu: u32,
        thread: ThreadIndex,
    ) -> Result<()> {
        let task = Task::find(tables, Some(thread));
        self.add_to_bundle(cpu, |message| {
            message.put_u64(ftrace::TIMESTAMP, at).put_u64(ftrace::PID, task.tid.into());
            message.put_message(ftrace::SCHED_PROCESS_FREE, |message| {
                message.put_text(sched::FREE_COMM, task.name).put_u64(sched::FREE_PID, task.tid.into());
                message.put_i64(sched::FREE_PRIO, DEFAULT_PRIORITY);
            });
        })
    }

    pub(super) fn add_sample(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        cpu: u32,
        sample: &Sample,
        stack: &[StackFrame],
    ) -> Result<()> {
        if sample.is_idle {
            self.idle_samples = self.idle_samples.saturating_add(sample.weight);
            return Ok(());
        }
        if sample.interval_ns != self.interval_ns {
            self.interval_ns = sample.interval_ns;
            self.clear_interned();
        }
        let callstack = self.intern_stack(tables, stack);
        let (pid, tid) = tables.output_ids(sample.thread);
        self.begin_interned_packet(at);
        self.packet.put_message(packet::PERF_SAMPLE, |message| {
            message.put_u64(perf_sample::CPU, cpu.into());
            message.put_u64(perf_sample::PID, pid.unwrap_or(UNKNOWN_TID).into());
            message.put_u64(perf_sample::TID, tid.unwrap_or(UNKNOWN_TID).into());
            let mode = if sample.is_kernel { perf_sample::MODE_KERNEL } else { perf_sample::MODE_USER };
            message.put_u64(perf_sample::CPU_MODE, mode);
            message.put_u64(perf_sample::TIMEBASE_COUNT, sample.weight);
            if let Some(iid) = callstack {
                message.put_u64(perf_sample::CALLSTACK_IID, iid);
            }
        });
        self.end_packet()
    }
}

/// A thread as scheduling events name it.
struct Task<'t> {
    tid: u32,
    name: &'t str,
}

impl<'t> Task<'t> {
    const OTHER: Self = Self { tid: OTHER_TID, name: "(other)" };

    fn find(tables: &'t ActivityTables, thread: Option<ThreadIndex>) -> Self {
        let Some((index, thread)) = thread.and_then(|index| Some((index, tables.lives.thread(index)?)))
        else {
            return Self { tid: UNKNOWN_TID, name: "(unknown)" };
        };
        let tid = ActivityTables::output_id(thread.machine, thread.tid);
        let process = tables.lives.process_of(index).and_then(|process| tables.lives.process(process));
        let name = match (&thread.name, process.and_then(|process| process.name.as_deref())) {
            _ if thread.tid == 0 => "swapper",
            (Some(name), _) => name,
            (None, Some(name)) => name,
            (None, None) => "",
        };
        Self { tid, name }
    }
}

/// Returns the Linux state of a thread that stops running.
const fn task_state(state: u8, reason: u8) -> u64 {
    /// Wait reasons of waits in the kernel that signals cannot end, and of suspended threads.
    const EXECUTIVE: u8 = 0;
    const SUSPENDED: u8 = 5;
    match (state, reason) {
        (Switch::TERMINATED, _) => sched::STATE_DEAD,
        (Switch::WAITING, EXECUTIVE) => sched::STATE_UNINTERRUPTIBLE,
        (Switch::WAITING, SUSPENDED) => sched::STATE_STOPPED,
        (Switch::WAITING, _) => sched::STATE_INTERRUPTIBLE,
        _ => sched::STATE_RUNNABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_threads_are_those_of_linux() {
        assert_eq!(task_state(Switch::WAITING, 6), sched::STATE_INTERRUPTIBLE);
        assert_eq!(task_state(Switch::WAITING, 0), sched::STATE_UNINTERRUPTIBLE);
        assert_eq!(task_state(Switch::TERMINATED, 0), sched::STATE_DEAD);
        assert_eq!(task_state(1, 0), sched::STATE_RUNNABLE);
    }
}
