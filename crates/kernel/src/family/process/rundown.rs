//! Rundown of processes and threads: a scan of `/proc`, compared with the records read so far.
//!
//! ```text
//!   /proc ──▶ in the table ──▶ written
//!         └─▶ not in it ──▶ older than the records read so far ──▶ written
//!                       └─▶ younger: early ──▶ its start is in a ring: a start event, no rundown
//!                                          └─▶ no start when all rings are read: written late
//! ```
//!
//! 1. The rundown at the start writes what `/proc` lists: the end of a process that has just exited
//!    is in a ring. The rundown at the end writes every task that has not ended by the records.
//! 2. A task that ended without a record (the ring was full) leaves the table at the second scan
//!    that does not see it.
//! 3. A process that starts or ends during the scan is left out; it is never an error.

use super::payload;
use crate::family::{Context, Rundown};
use crate::groups::Group;
use crate::out::Out;
use crate::proc;
use crate::settings::Scope;
use crate::tasks::facts::{self, Name, Stat};
use crate::tasks::{Process, Tasks, Thread};

/// Writes the rundown of all processes and threads in scope.
pub(super) fn run_down(when: Rundown, context: &mut Context, out: &mut Out<'_>) {
    let defunct = scan(&mut context.tasks, when);
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
        for (pid, process, stat) in &defunct {
            let status = context.tasks.zombie_status(process, stat);
            payload::write_process_rundown(payload::PROCESS_DEFUNCT, *pid, process, status, out);
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
            Rundown::Start => payload::PROCESS_RUNDOWN_START,
            Rundown::End => payload::PROCESS_RUNDOWN_END,
        };
        payload::write_process_rundown(hook, pid, process, payload::STILL_ACTIVE, out);
    }
    if context.groups.has(Group::PROCESS_COUNTERS) {
        payload::write_counters(payload::COUNTERS_RUNDOWN, pid, out);
    }
}

fn write_thread(ids: (u32, u32), thread: &Thread, when: Rundown, context: &Context, out: &mut Out<'_>) {
    if context.groups.has(Group::THREAD) {
        let hook = match when {
            Rundown::Start => payload::THREAD_RUNDOWN_START,
            Rundown::End => payload::THREAD_RUNDOWN_END,
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

/// Updates the table from `/proc`. Returns the zombies, at the end only: before that, their exit
/// records may still be in a ring.
fn scan(tasks: &mut Tasks, when: Rundown) -> Vec<(u32, Process, Stat)> {
    let before = tasks.scans;
    tasks.scans = tasks.scans.wrapping_add(1);
    let mut defunct = Vec::new();
    for pid in proc::processes() {
        let Some(stat) = facts::stat(&pid.to_string()) else { continue };
        let early = tasks.poll_if_early(stat.start_ticks);
        match tasks.get(pid).map(|known| known.start_ticks.abs_diff(stat.start_ticks) <= 1) {
            Some(true) => refresh(tasks, pid),
            // The exit of the known process and the start of this one are both in a ring.
            Some(false) if early.is_some() => continue,
            _ if stat.is_zombie() && proc::threads_of(pid).count() <= 1 => {
                if when == Rundown::End {
                    defunct.push((pid, tasks.process_from_proc(pid, &stat), stat));
                }
                continue;
            }
            _ => {
                let process = Process { early, ..tasks.process_from_proc(pid, &stat) };
                tasks.insert(pid, process);
                tasks.has_early |= early.is_some();
            }
        }
        scan_threads(tasks, pid);
        let scan = tasks.scans;
        match tasks.get_mut(pid) {
            // The process ended meanwhile; its exit record is in a ring.
            Some(process) if process.threads.is_empty() => drop(tasks.remove(pid)),
            Some(process) => process.seen = scan,
            None => {}
        }
    }
    remove_unseen(tasks, before);
    defunct
}

/// Updates the user of a process, which changes without a record.
fn refresh(tasks: &mut Tasks, pid: u32) {
    if let Some(status) = facts::status(pid)
        && let Some(process) = tasks.get_mut(pid)
    {
        process.user = status.user.or(process.user);
    }
}

fn scan_threads(tasks: &mut Tasks, pid: u32) {
    let scan = tasks.scans;
    for tid in proc::threads_of(pid) {
        let Some(stat) = facts::stat(&format!("{pid}/task/{tid}")) else { continue };
        // The first thread of a process can end before the others.
        if stat.is_zombie() {
            continue;
        }
        if let Some(known) = tasks.get_mut(pid).and_then(|process| process.threads.get_mut(&tid)) {
            let now = Thread::from_proc(tid, &stat);
            (known.seen, known.priority, known.affinity) = (scan, now.priority, now.affinity);
            continue;
        }
        let early = tasks.poll_if_early(stat.start_ticks);
        tasks.insert_thread(pid, tid, Thread { seen: scan, early, ..Thread::from_proc(tid, &stat) });
        tasks.has_early |= early.is_some();
    }
}

/// Removes tasks that neither this scan nor the one before saw. A task that no scan has seen yet
/// counts as seen by the one before.
fn remove_unseen(tasks: &mut Tasks, before: u32) {
    let scan = tasks.scans;
    let mut gone = Vec::new();
    for (pid, process) in tasks.entries_mut() {
        let last_seen = process.seen;
        if last_seen == 0 {
            process.seen = before;
        } else if last_seen != scan && last_seen < before {
            gone.extend(process.threads.keys().map(|tid| (pid, *tid)));
        }
        for (tid, thread) in &mut process.threads {
            if thread.seen == 0 {
                thread.seen = before;
            } else if thread.seen != scan && thread.seen < before {
                gone.push((pid, *tid));
            }
        }
    }
    for (pid, tid) in gone {
        tasks.remove_thread(tid);
        if tasks.get(pid).is_some_and(|process| process.threads.is_empty()) {
            tasks.remove(pid);
        }
    }
}
