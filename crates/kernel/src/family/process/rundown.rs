//! Rundown of processes and threads, from a scan of `/proc`.
//!
//! ```text
//!   listed in /proc ──▶ started before the time up to which records were read ──▶ written
//!                   └─▶ started later: unconfirmed
//!                         ├─▶ its start record is in a ring: a start event, no rundown
//!                         └─▶ no start record when all rings are read: written late
//! ```
//!
//! The rundown at the start writes the tasks that `/proc` lists. It leaves out a process that has
//! just exited, whose exit record is still in a ring. The rundown at the end writes every task
//! whose end was not captured.

use traceweir_format::kernel::hook;

use super::payload;
use crate::family::{Context, Rundown};
use crate::groups::Group;
use crate::out::Out;
use crate::settings::CaptureScope;
use crate::tasks::facts::ThreadName;
use crate::tasks::{LiveProcess, LiveThread, TaskIds, Zombie};

/// Writes the rundown of all processes and threads in scope.
pub(super) fn run_down(when: Rundown, context: &mut Context, out: &mut Out<'_>) {
    // Only the rundown at the end includes zombies: before that, their exit records may still be
    // in a ring.
    let zombies = context.tasks.scan(when == Rundown::End);
    if let Some(scope) = &mut context.scope {
        scope.adopt(context.tasks.iter_processes().map(|(pid, process)| (pid, process.parent)));
    }
    write_idle_process(when, context, out);
    let scan = context.tasks.scans;
    let processes = context.tasks.iter_processes();
    for (pid, process) in processes.filter(|(pid, process)| is_in_scope(*pid, process, context)) {
        let is_due = |seen_in_scan: u32, unconfirmed: Option<u32>| {
            when == Rundown::End || seen_in_scan == scan && unconfirmed.is_none()
        };
        if is_due(process.seen_in_scan, process.unconfirmed_poll) {
            write_process(pid, process, when, context, out);
        }
        for (tid, thread) in &process.threads {
            if is_due(thread.seen_in_scan, thread.unconfirmed_poll) {
                write_thread(TaskIds { pid, tid: *tid }, thread, when, context, out);
            }
        }
    }
    if context.groups.has(Group::PROCESS) {
        let is_in_scope =
            |zombie: &&Zombie| context.is_task_in_scope(TaskIds { pid: zombie.pid, tid: zombie.pid });
        for Zombie { pid, process, status } in zombies.iter().filter(is_in_scope) {
            payload::write_process_rundown(hook::PROCESS_DEFUNCT, *pid, process, *status, out);
        }
    }
}

/// Writes unconfirmed tasks, except those that the poll `except_poll` found.
pub(super) fn write_due_unconfirmed(context: &mut Context, except_poll: Option<u32>, out: &mut Out<'_>) {
    if !std::mem::take(&mut context.tasks.has_unconfirmed) {
        return;
    }
    let is_due = |unconfirmed: Option<u32>| unconfirmed.is_some() && unconfirmed != except_poll;
    let (mut due, mut has_more) = (Vec::new(), false);
    for (pid, process) in context.tasks.iter_processes() {
        let threads = || process.threads.values().map(|thread| thread.unconfirmed_poll);
        if is_due(process.unconfirmed_poll) || threads().any(is_due) {
            due.push(pid);
        } else if process.unconfirmed_poll.is_some() || threads().any(|unconfirmed| unconfirmed.is_some()) {
            has_more = true;
        }
    }
    context.tasks.has_unconfirmed = has_more;
    for pid in due {
        write_unconfirmed(pid, context, out);
    }
}

/// Writes the rundown of a process and of its threads, as far as they are unconfirmed.
pub(super) fn write_unconfirmed(pid: u32, context: &mut Context, out: &mut Out<'_>) {
    let is_in_scope = context.tasks.get(pid).is_some_and(|process| is_in_scope(pid, process, context));
    let Some(process) = context.tasks.get_mut(pid) else { return };
    let is_unconfirmed = process.unconfirmed_poll.take().is_some();
    let threads = process.threads.iter_mut();
    let take_unconfirmed =
        |(tid, thread): (&u32, &mut LiveThread)| thread.unconfirmed_poll.take().map(|_| (*tid, *thread));
    let threads: Vec<(u32, LiveThread)> = threads.filter_map(take_unconfirmed).collect();
    if !is_in_scope {
        return;
    }
    if is_unconfirmed && let Some(process) = context.tasks.get(pid) {
        write_process(pid, process, Rundown::Start, context, out);
    }
    for (tid, thread) in threads {
        write_thread(TaskIds { pid, tid }, &thread, Rundown::Start, context, out);
    }
}

/// Returns whether the session captures this process.
fn is_in_scope(pid: u32, process: &LiveProcess, context: &Context) -> bool {
    let is_permitted = context.settings.scope == CaptureScope::Everything
        || process.user == Some(rustix::process::geteuid().as_raw());
    is_permitted && context.is_process_in_scope(pid)
}

fn write_process(pid: u32, process: &LiveProcess, when: Rundown, context: &Context, out: &mut Out<'_>) {
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

fn write_thread(ids: TaskIds, thread: &LiveThread, when: Rundown, context: &Context, out: &mut Out<'_>) {
    if context.groups.has(Group::THREAD) {
        let hook = match when {
            Rundown::Start => hook::THREAD_DC_START,
            Rundown::End => hook::THREAD_DC_END,
        };
        payload::write_thread(hook, ids, ids, thread, out);
    }
}

/// Writes process 0 with thread 0, which stands for the idle threads of all processors: `/proc`
/// does not list them, but context switches name them.
fn write_idle_process(when: Rundown, context: &Context, out: &mut Out<'_>) {
    let process = context.tasks.build_idle_process();
    let thread = LiveThread { name: ThreadName::new(&process.program.image), ..LiveThread::default() };
    write_process(0, &process, when, context, out);
    write_thread(TaskIds::default(), &thread, when, context, out);
}
