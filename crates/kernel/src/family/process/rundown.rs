//! Rundown of processes and threads, from a scan of `/proc`.
//!
//! ```text
//!   seen by the scan ──▶ older than the records read so far ──▶ written
//!                    └─▶ early ──▶ its start is in a ring: a start event, no rundown
//!                              └─▶ no start when all rings are read: written late
//! ```
//!
//! The rundown at the start writes what `/proc` lists: the end of a process that has just exited is
//! in a ring. The rundown at the end writes every task that has not ended by the records.

use traceweir_format::kernel::hook;

use super::payload;
use crate::family::{Context, Rundown};
use crate::groups::Group;
use crate::out::Out;
use crate::settings::Scope;
use crate::tasks::facts::Name;
use crate::tasks::{Process, Thread, Zombie};

/// Writes the rundown of all processes and threads in scope.
pub(super) fn run_down(when: Rundown, context: &mut Context, out: &mut Out<'_>) {
    // Before the end, the exit records of zombies may still be in a ring.
    let zombies = context.tasks.scan(when == Rundown::End);
    write_idle(when, context, out);
    let scan = context.tasks.scans;
    for (pid, process) in context.tasks.entries().filter(|(_, process)| is_in_scope(process, context)) {
        let is_due = |seen: u32, early: Option<u32>| when == Rundown::End || seen == scan && early.is_none();
        if is_due(process.seen, process.early) {
            write_process(pid, process, when, context, out);
        }
        for (tid, thread) in &process.threads {
            if is_due(thread.seen, thread.early) {
                write_thread((pid, *tid), thread, when, context, out);
            }
        }
    }
    if context.groups.has(Group::PROCESS) {
        for Zombie { pid, process, status } in &zombies {
            payload::write_process_rundown(hook::PROCESS_DEFUNCT, *pid, process, *status, out);
        }
    }
}

/// Writes early tasks, except those that the poll `except` found.
pub(super) fn write_due_early(context: &mut Context, except: Option<u32>, out: &mut Out<'_>) {
    if !std::mem::take(&mut context.tasks.has_early) {
        return;
    }
    let is_due = |early: Option<u32>| early.is_some() && early != except;
    let (mut due, mut are_left) = (Vec::new(), false);
    for (pid, process) in context.tasks.entries() {
        let threads = || process.threads.values().map(|thread| thread.early);
        if is_due(process.early) || threads().any(is_due) {
            due.push(pid);
        } else if process.early.is_some() || threads().any(|early| early.is_some()) {
            are_left = true;
        }
    }
    context.tasks.has_early = are_left;
    for pid in due {
        write_early(pid, context, out);
    }
}

/// Writes the rundown of a process and of those of its threads that are early.
pub(super) fn write_early(pid: u32, context: &mut Context, out: &mut Out<'_>) {
    let is_in_scope = context.tasks.get(pid).is_some_and(|process| is_in_scope(process, context));
    let Some(process) = context.tasks.get_mut(pid) else { return };
    let is_early = process.early.take().is_some();
    let early = process.threads.iter_mut();
    let early = early.filter_map(|(tid, thread)| thread.early.take().map(|_| (*tid, *thread)));
    let threads: Vec<(u32, Thread)> = early.collect();
    if !is_in_scope {
        return;
    }
    if is_early && let Some(process) = context.tasks.get(pid) {
        write_process(pid, process, Rundown::Start, context, out);
    }
    for (tid, thread) in threads {
        write_thread((pid, tid), &thread, Rundown::Start, context, out);
    }
}

/// Whether the session captures this process.
fn is_in_scope(process: &Process, context: &Context) -> bool {
    context.settings.scope == Scope::Everything || process.user == Some(rustix::process::geteuid().as_raw())
}

fn write_process(pid: u32, process: &Process, when: Rundown, context: &Context, out: &mut Out<'_>) {
    if context.groups.has(Group::PROCESS) {
        let hook = match when {
            Rundown::Start => hook::PROCESS_DC_START,
            Rundown::End => hook::PROCESS_DC_END,
        };
        payload::write_process_rundown(hook, pid, process, payload::STILL_ACTIVE, out);
    }
    if context.groups.has(Group::PROCESS_COUNTERS) {
        payload::write_counters(hook::PROCESS_COUNTERS_RUNDOWN, pid, out);
    }
}

fn write_thread(ids: (u32, u32), thread: &Thread, when: Rundown, context: &Context, out: &mut Out<'_>) {
    if context.groups.has(Group::THREAD) {
        let hook = match when {
            Rundown::Start => hook::THREAD_DC_START,
            Rundown::End => hook::THREAD_DC_END,
        };
        payload::write_thread(hook, ids, ids, thread, out);
    }
}

/// Writes the idle threads, which all have the id 0: `/proc` does not list them, but context
/// switches name them.
fn write_idle(when: Rundown, context: &Context, out: &mut Out<'_>) {
    let process = context.tasks.idle_process();
    let thread = Thread { name: Name::new(&process.program.image), ..Thread::default() };
    write_process(0, &process, when, context, out);
    write_thread((0, 0), &thread, when, context, out);
}
