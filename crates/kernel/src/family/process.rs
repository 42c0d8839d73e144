//! Processes and threads: start, end, rundown, names, counters.
//!
//! ```text
//!   FORK   pid = tid   ──▶ 0x0301 process start (program of the parent), 0x0501 thread start
//!                          header: the thread that forked
//!          pid ≠ tid   ──▶ 0x0501
//!   COMM   exec        ──▶ 0x0502 thread end, 0x0302 process end (status 0), 0x0301, 0x0501,
//!                          all with the same time
//!                          program, user, package read anew from /proc
//!          otherwise   ──▶ 0x0548 thread name
//!   EXIT   a thread    ──▶ 0x0502; the last of its process: 0x0302 with the exit status
//!                          status: connector, /proc
//!   /proc              ──▶ rundown: 0x0303, 0x0503 at the start; 0x0304, 0x0504 at the end,
//!                          and 0x0327 for zombies
//! ```
//!
//! 1. The table of tasks is kept whatever groups are enabled, because other families use it. Events
//!    are written for the enabled groups only.
//! 2. Only tracepoints carry stacks. If the stack of a start is requested, the start is written
//!    with `sched_process_fork`, which the kernel emits right after the FORK record, before the new
//!    thread runs. If the stack of an end is requested, the end is written with
//!    `sched_process_exit`, right before the EXIT record, which is then skipped. An exec has no
//!    stack: it is written with the COMM record, before its image events, and its tracepoint comes
//!    after those.
//! 3. `sched_process_exec` wakes the session, so that `/proc` is read while the program runs. If
//!    the program is already gone, only the copy of its stack (`tasks/execs.rs`) and the path
//!    passed to `execve` describe it.
//! 4. While records are handled, `/proc` is read for an exec, for a task whose start was lost or
//!    whose creator is unknown, for an exit status that the connector has not reported, and for
//!    forks inside containers. Nothing is read for other forks and for thread names.

mod payload;
mod rundown;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use traceweir_format::kernel::hook;

use super::{Context, EventFamily, Row, Rundown};
use crate::groups::Group;
use crate::out::Out;
use crate::record::{Sideband, SidebandRecord};
use crate::spec::SampleEvent;
use crate::tasks::facts::{self, RunningProgram, ThreadName};
use crate::tasks::{LiveProcess, LiveThread, TaskIds};

/// Index of a field of `sched_process_exec`.
const FILE_NAME_FIELD: usize = 0;

/// Groups for which execs are captured with their arguments.
pub(crate) const EXEC_GROUPS: &[Group] = &[Group::PROCESS, Group::THREAD, Group::IMAGE_LOAD];
/// Groups whose events this module writes.
pub(crate) const GROUPS: &[Group] = &[Group::PROCESS, Group::THREAD, Group::PROCESS_COUNTERS];
const START_HOOKS: &[u16] = &[hook::PROCESS_START, hook::THREAD_START];
const END_HOOKS: &[u16] = &[hook::PROCESS_END, hook::THREAD_END];

/// The process family. The table of tasks is in the context.
#[derive(Debug, Default)]
pub(crate) struct ProcessFamily {
    /// Starts whose stack has not arrived yet, by the creating thread.
    pending_starts: BTreeMap<u32, PendingStart>,
    /// Threads whose end was written with its stack, until their EXIT record arrives.
    written_exits: BTreeSet<u32>,
}

/// A start whose stack has not arrived yet.
#[derive(Clone, Copy, Debug)]
struct PendingStart {
    creator: TaskIds,
    /// The new thread and its process.
    ids: TaskIds,
    time_ns: u64,
    cpu: u16,
    /// The poll that read the FORK record.
    poll: u32,
}

static ROWS: &[Row<ProcessFamily>] = &[
    Row::tracepoint(
        ("sched", "sched_process_exec"),
        EXEC_GROUPS,
        &[],
        &["filename"],
        |_, event, context, _| complete_program(event, context),
    )
    .with_wakeup(),
    Row::tracepoint(("sched", "sched_process_fork"), &[], START_HOOKS, &[], ProcessFamily::on_fork_sample),
    Row::tracepoint(("sched", "sched_process_exit"), &[], END_HOOKS, &[], ProcessFamily::on_exit_sample),
];

impl EventFamily for ProcessFamily {
    /// The table of tasks contains all processes.
    fn handles_all_processes(&self) -> bool {
        true
    }

    fn rows() -> &'static [Row<Self>] {
        ROWS
    }

    /// Handles FORK, COMM and EXIT records.
    fn on_sideband(&mut self, record: &SidebandRecord<'_>, context: &mut Context, out: &mut Out<'_>) {
        match record.body {
            Sideband::Fork { pid, ppid, tid, ptid } if is_valid_id(pid) && is_valid_id(tid) => {
                self.on_fork(TaskIds { pid: ppid, tid: ptid }, TaskIds { pid, tid }, context, out);
            }
            Sideband::Exit { tid, .. } if self.written_exits.remove(&tid) => {}
            Sideband::Exit { pid, ppid, tid, .. } if is_valid_id(tid) => {
                self.on_exit(TaskIds { pid, tid }, ppid, context, out);
            }
            Sideband::Comm { pid, name, is_exec: true, .. } if is_valid_id(pid) => {
                self.on_exec(pid, name, context, out);
            }
            Sideband::Comm { pid, tid, name, is_exec: false } if is_valid_id(tid) => {
                on_rename(
                    TaskIds { pid: record.pid, tid: record.tid },
                    TaskIds { pid, tid },
                    name,
                    context,
                    out,
                );
            }
            _ => {}
        }
    }

    fn run_down(&mut self, when: Rundown, context: &mut Context, out: &mut Out<'_>) {
        if when == Rundown::End {
            rundown::write_due_unconfirmed(context, None, out);
            while let Some((_, start)) = self.pending_starts.pop_first() {
                start.write(context, out);
            }
        }
        rundown::run_down(when, context, out);
    }
}

impl ProcessFamily {
    /// Finishes a poll: writes unconfirmed tasks (T4 in `tasks.rs`) that turned out to have no
    /// start record, and pending starts whose stack did not arrive. Tasks that this poll found wait
    /// for the next poll, which reads every record written until then.
    pub(crate) fn finish_poll(&mut self, context: &mut Context, out: &mut Out<'_>) {
        let poll = context.tasks.polls;
        rundown::write_due_unconfirmed(context, Some(poll), out);
        self.pending_starts.retain(|_, start| {
            let is_due = start.poll != poll;
            if is_due {
                start.write(context, out);
            }
            !is_due
        });
    }

    fn on_fork(
        &mut self,
        creator: TaskIds,
        TaskIds { pid, tid }: TaskIds,
        context: &mut Context,
        out: &mut Out<'_>,
    ) {
        self.write_pending_start(creator.tid, context, out);
        self.written_exits.remove(&tid);
        let tasks = &mut context.tasks;
        let thread = tasks.build_thread(creator.tid, tid);
        if pid == tid {
            let process = tasks.build_child(creator.pid, pid, out.time);
            tasks.insert(pid, process);
        } else if tasks.get(pid).is_none() {
            // The record of the process's start was lost.
            let unconfirmed_poll = Some(tasks.polls);
            let process = LiveProcess { unconfirmed_poll, ..tasks.read_process(pid, 0) };
            tasks.insert(pid, process);
            tasks.has_unconfirmed = true;
        }
        tasks.insert_thread(pid, tid, thread);
        if !out.is_in_scope {
            return;
        }
        if out.extras.stacks.has_any(START_HOOKS) {
            let (time_ns, cpu, poll) = (out.time, out.cpu, tasks.polls);
            let pending = PendingStart { creator, ids: TaskIds { pid, tid }, time_ns, cpu, poll };
            self.pending_starts.insert(creator.tid, pending);
        } else {
            write_start(creator, TaskIds { pid, tid }, context, out);
        }
    }

    /// Writes the start that the FORK record announced, with the stack of this sample.
    fn on_fork_sample(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        if let Some(start) = self.pending_starts.remove(&event.sample.tid) {
            write_start(start.creator, start.ids, context, out);
        }
    }

    /// Writes the pending start of a creator, if there is one, without its stack.
    fn write_pending_start(&mut self, creator: u32, context: &Context, out: &mut Out<'_>) {
        if let Some(start) = self.pending_starts.remove(&creator) {
            start.write(context, out);
        }
    }

    fn on_exit_sample(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        let ids = TaskIds { pid: event.sample.pid, tid: event.sample.tid };
        if is_valid_id(ids.tid) {
            self.on_exit(ids, 0, context, out);
            self.written_exits.insert(ids.tid);
        }
    }

    /// Writes the end of a thread, and of its process if the thread was the last.
    fn on_exit(
        &mut self,
        TaskIds { pid, tid }: TaskIds,
        parent: u32,
        context: &mut Context,
        out: &mut Out<'_>,
    ) {
        let pid = context.tasks.find_process_of_thread(tid).unwrap_or(pid);
        let ids = TaskIds { pid, tid };
        if !is_valid_id(pid) {
            return;
        }
        self.ensure_started(ids, parent, context, out);
        if let Some(thread) = context.tasks.thread(tid).filter(|_| context.groups.has(Group::THREAD)) {
            payload::write_thread(hook::THREAD_END, ids, ids, thread, out);
        }
        context.tasks.remove_thread(tid);
        if context.tasks.get(pid).is_some_and(|process| process.threads.is_empty()) {
            let status = if out.is_in_scope {
                context.tasks.find_exit_status(ids, out.time)
            } else {
                context.tasks.drop_exit_status(tid);
                0
            };
            if context.groups.has(Group::PROCESS_COUNTERS) {
                payload::write_counters(hook::PROCESS_COUNTERS, pid, out);
            }
            if let Some(process) = context.tasks.remove(pid)
                && context.groups.has(Group::PROCESS)
            {
                payload::write_process(hook::PROCESS_END, ids, pid, &process, status, out);
            }
        } else if tid != pid {
            context.tasks.drop_exit_status(tid);
        }
    }

    /// Writes the start or rundown of a thread if neither has been written so far: the thread is
    /// older than the rings, its record was lost, or its start waits for a stack.
    fn ensure_started(
        &mut self,
        TaskIds { pid, tid }: TaskIds,
        parent: u32,
        context: &mut Context,
        out: &mut Out<'_>,
    ) {
        if context.tasks.get(pid).is_none() {
            let unconfirmed_poll = Some(context.tasks.polls);
            let process = LiveProcess { unconfirmed_poll, ..context.tasks.read_process(pid, parent) };
            context.tasks.insert(pid, process);
        }
        if context.tasks.thread(tid).is_none() {
            let unconfirmed_poll = Some(context.tasks.polls);
            let thread = LiveThread { unconfirmed_poll, ..context.tasks.build_thread(tid, tid) };
            context.tasks.insert_thread(pid, tid, thread);
        }
        let mut pending = self.pending_starts.iter();
        let creator = pending.find(|(_, start)| start.ids.tid == tid).map(|(creator, _)| *creator);
        if let Some(creator) = creator {
            self.write_pending_start(creator, context, out);
        }
        rundown::write_unconfirmed(pid, context, out);
    }

    /// Writes an exec: the end of one program and the start of the next under the same ids, with
    /// the same time.
    fn on_exec(&mut self, pid: u32, name: &[u8], context: &mut Context, out: &mut Out<'_>) {
        let first_tid = context.tasks.get(pid).and_then(|process| process.threads.keys().next().copied());
        self.ensure_started(TaskIds { pid, tid: first_tid.unwrap_or(pid) }, 0, context, out);
        let (is_process_enabled, is_thread_enabled) =
            (context.groups.has(Group::PROCESS), context.groups.has(Group::THREAD));
        let ids = TaskIds { pid, tid: pid };
        let Some(process) = context.tasks.get(pid) else { return };
        // The other threads have ended, and their EXIT records have removed them from the table.
        // The thread that is left called exec, and has the id of the first thread by now. If EXIT
        // records were lost, the thread with the highest id is taken for it.
        let last_thread = process.threads.values().next_back().copied().unwrap_or_default();
        if is_thread_enabled {
            for (tid, thread) in &process.threads {
                payload::write_thread(hook::THREAD_END, ids, TaskIds { pid, tid: *tid }, thread, out);
            }
        }
        if is_process_enabled {
            payload::write_process(hook::PROCESS_END, ids, pid, process, 0, out);
        }
        let other_tids: Vec<u32> = process.threads.keys().copied().filter(|tid| *tid != pid).collect();
        for tid in other_tids {
            context.tasks.remove_thread(tid);
        }
        context.tasks.update_after_exec(pid, name, out.time);
        let affinity = facts::read_affinity(pid);
        let affinity = if affinity == 0 { last_thread.affinity } else { affinity };
        let thread = LiveThread { name: ThreadName::new(name), affinity, seen_in_scan: 0, ..last_thread };
        context.tasks.insert_thread(pid, pid, thread);
        write_start(ids, ids, context, out);
    }
}

impl PendingStart {
    /// Writes the start without its stack.
    fn write(&self, context: &Context, out: &mut Out<'_>) {
        let (origin, sample) = ((out.time, out.cpu), out.sample.take());
        (out.time, out.cpu) = (self.time_ns, self.cpu);
        write_start(self.creator, self.ids, context, out);
        ((out.time, out.cpu), out.sample) = (origin, sample);
    }
}

/// Returns whether an id names a task: 0 stands for a task outside our PID namespace, −1 for a dead
/// one.
fn is_valid_id(id: u32) -> bool {
    id != 0 && id != u32::MAX
}

fn write_start(creator: TaskIds, TaskIds { pid, tid }: TaskIds, context: &Context, out: &mut Out<'_>) {
    let Some(process) = context.tasks.get(pid) else { return };
    if pid == tid && context.groups.has(Group::PROCESS) {
        payload::write_process(hook::PROCESS_START, creator, pid, process, payload::STILL_ACTIVE, out);
    }
    if let Some(thread) = process.threads.get(&tid).filter(|_| context.groups.has(Group::THREAD)) {
        payload::write_thread(hook::THREAD_START, creator, TaskIds { pid, tid }, thread, out);
    }
}

/// Completes the program of an exec, if `/proc` gave no path or no command line at the COMM record.
fn complete_program(event: &SampleEvent<'_>, context: &mut Context) {
    let pid = event.sample.pid;
    let Some(process) = context.tasks.get_mut(pid) else { return };
    let program = &process.program;
    if !program.path.is_empty() && !program.command_line.is_empty() {
        return;
    }
    let current = facts::read_program(pid, &program.image, true);
    if !current.path.is_empty() {
        process.program = Arc::new(current);
    } else if program.path.is_empty() {
        // The process is gone: only the path passed to `execve` is left.
        let path = event.text(FILE_NAME_FIELD).to_vec();
        let image = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
        let path = if path.starts_with(b"/") { path } else { Vec::new() };
        process.program =
            Arc::new(RunningProgram { path, image, command_line: program.command_line.clone() });
    }
}

fn on_rename(
    renamer: TaskIds,
    TaskIds { pid, tid }: TaskIds,
    name: &[u8],
    context: &mut Context,
    out: &mut Out<'_>,
) {
    if let Some(process) = context.tasks.get_mut(pid) {
        if let Some(thread) = process.threads.get_mut(&tid) {
            thread.name = ThreadName::new(name);
        }
        // A kernel thread runs no program: its thread name is its image name.
        let has_no_program = process.program.path.is_empty() && process.program.command_line.is_empty();
        if has_no_program && tid == pid {
            process.program = Arc::new(RunningProgram::new(Vec::new(), name, String::new()));
        }
    }
    if context.groups.has(Group::THREAD) {
        payload::write_thread_name(renamer, TaskIds { pid, tid }, name, out);
    }
}
