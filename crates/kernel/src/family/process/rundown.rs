//! Everything that is there: a scan of `/proc`, compared with what the records told.
//!
//! ```text
//!   /proc ──▶ in the table already ──▶ told
//!         └─▶ not there ──▶ older than what has been read of the rings ──▶ told
//!                       └─▶ younger: early ──▶ its start is in a ring: a start, no rundown
//!                                          └─▶ it is in none, when all is read: told late
//! ```
//!
//! 1. At the start those are told that `/proc` has: a process that just ended has its end in a ring. At the end all are told that have not ended by the records.
//! 2. What ended without a record (the ring had no room) leaves the table at the second scan that does not see it.
//! 3. A process that comes or goes while it is read is a process less, never an error.

use super::facts::{self, Name, Stat};
use super::tasks::{Process, Tasks, Thread};
use super::{exit_of, write};
use crate::control::Scope;
use crate::family::Rundown;
use crate::groups::Group;
use crate::out::Out;
use crate::proc;
use crate::state::State as All;

pub(crate) fn run_down(state: &mut All, when: Rundown, out: &mut Out<'_>) {
    if when == Rundown::End {
        settle_early(state, None, out);
        while let Some(creator) = state.tasks.awaited.keys().next().copied() {
            super::tell_awaited(state, creator, out);
        }
    }
    let defunct = scan(&mut state.tasks, when);
    idle(state, when, out);
    let scan = state.tasks.scans;
    for (pid, process) in state.tasks.all().filter(|(_, process)| is_told(state, process)) {
        let is_due = |seen: u32, early: Option<u32>| when == Rundown::End || seen == scan && early.is_none();
        if is_due(process.seen, process.early) {
            tell_process(state, pid, process, when, out);
        }
        for (tid, thread) in &process.threads {
            if is_due(thread.seen, thread.early) {
                tell_thread(state, (pid, *tid), thread, when, out);
            }
        }
    }
    if state.groups.has(Group::PROCESS) {
        for (pid, process, stat) in &defunct {
            let status = exit_of(stat.exit_code, state.tasks.may_know(process));
            write::process_rundown(write::PROCESS_DEFUNCT, *pid, process, status, out);
        }
    }
}

/// At the end of a look: what turned out to have no record of its start is told, and so are starts whose stack does not come. What this look found waits for the next,
/// which reads everything that was written until it was found.
pub(crate) fn settle(state: &mut All, out: &mut Out<'_>) {
    let look = state.tasks.looks;
    settle_early(state, Some(look), out);
    while let Some((creator, _)) = state.tasks.awaited.iter().find(|(_, it)| it.look != look) {
        let creator = *creator;
        super::tell_awaited(state, creator, out);
    }
}

fn settle_early(state: &mut All, but: Option<u32>, out: &mut Out<'_>) {
    if !std::mem::take(&mut state.tasks.has_early) {
        return;
    }
    let is_due = |early: Option<u32>| early.is_some() && early != but;
    let (mut due, mut are_left) = (Vec::new(), false);
    for (pid, process) in state.tasks.all() {
        let threads = || process.threads.values().map(|thread| thread.early);
        if is_due(process.early) || threads().any(is_due) {
            due.push(pid);
        } else if process.early.is_some() || threads().any(|early| early.is_some()) {
            are_left = true;
        }
    }
    state.tasks.has_early = are_left;
    for pid in due {
        tell_early(state, pid, out);
    }
}

/// Tells of a process and those of its threads that were found before it was certain that they are older than the rings.
pub(super) fn tell_early(state: &mut All, pid: u32, out: &mut Out<'_>) {
    let is_told = state.tasks.get(pid).is_some_and(|process| is_told(state, process));
    let Some(process) = state.tasks.get_mut(pid) else { return };
    let is_early = process.early.take().is_some();
    let early = process.threads.iter_mut().filter_map(|(tid, it)| it.early.take().map(|_| (*tid, *it)));
    let threads: Vec<(u32, Thread)> = early.collect();
    if !is_told {
        return;
    }
    if is_early && let Some(process) = state.tasks.get(pid) {
        tell_process(state, pid, process, Rundown::Start, out);
    }
    for (tid, thread) in threads {
        tell_thread(state, (pid, tid), &thread, Rundown::Start, out);
    }
}

/// Whether a process is one of those that are captured.
fn is_told(state: &All, process: &Process) -> bool {
    state.scope == Scope::Everything || process.user == Some(rustix::process::geteuid().as_raw())
}

fn tell_process(state: &All, pid: u32, process: &Process, when: Rundown, out: &mut Out<'_>) {
    if state.groups.has(Group::PROCESS) {
        let hook = match when {
            Rundown::Start => write::PROCESS_RUNDOWN_START,
            Rundown::End => write::PROCESS_RUNDOWN_END,
        };
        write::process_rundown(hook, pid, process, write::STILL_ACTIVE, out);
    }
    if state.groups.has(Group::PROCESS_COUNTERS) {
        write::counters(write::COUNTERS_RUNDOWN, pid, out);
    }
}

fn tell_thread(state: &All, ids: (u32, u32), thread: &Thread, when: Rundown, out: &mut Out<'_>) {
    if state.groups.has(Group::THREAD) {
        let hook = match when {
            Rundown::Start => write::THREAD_RUNDOWN_START,
            Rundown::End => write::THREAD_RUNDOWN_END,
        };
        write::thread(hook, ids, ids, thread, out);
    }
}

/// The idle threads, all with the id 0: `/proc` does not list them, and every switch to nothing names them.
fn idle(state: &All, when: Rundown, out: &mut Out<'_>) {
    let process = state.tasks.kernel_itself();
    let thread = Thread { name: Name::new(&process.program.image), ..Thread::default() };
    tell_process(state, 0, &process, when, out);
    tell_thread(state, (0, 0), &thread, when, out);
}

/// Compares the table with `/proc`. Gives processes that have ended and wait for their parents, at the end only: before, their end may be in a ring.
fn scan(tasks: &mut Tasks, when: Rundown) -> Vec<(u32, Process, Stat)> {
    let before = tasks.scans;
    tasks.scans = tasks.scans.wrapping_add(1);
    let mut defunct = Vec::new();
    for pid in proc::processes() {
        let Some(stat) = facts::stat(&pid.to_string()) else { continue };
        let early = tasks.early(stat.start_ticks);
        match tasks.get(pid).map(|known| known.start_ticks.abs_diff(stat.start_ticks) <= 1) {
            Some(true) => refresh(tasks, pid),
            // Both the end of the one and the start of the other are in a ring.
            Some(false) if early.is_some() => continue,
            _ if stat.is_zombie() && proc::threads_of(pid).count() <= 1 => {
                if when == Rundown::End {
                    defunct.push((pid, tasks.found(pid, &stat), stat));
                }
                continue;
            }
            _ => {
                let process = Process { early, ..tasks.found(pid, &stat) };
                tasks.insert(pid, process);
                tasks.has_early |= early.is_some();
            }
        }
        scan_threads(tasks, pid);
        let scan = tasks.scans;
        match tasks.get_mut(pid) {
            // It ended meanwhile, which a ring tells.
            Some(process) if process.threads.is_empty() => drop(tasks.remove(pid)),
            Some(process) => process.seen = scan,
            None => {}
        }
    }
    forget(tasks, before);
    defunct
}

/// Users change without a record.
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
        // The first thread of a process may have ended before the others.
        if stat.is_zombie() {
            continue;
        }
        if let Some(known) = tasks.get_mut(pid).and_then(|process| process.threads.get_mut(&tid)) {
            let now = Thread::found(tid, &stat);
            (known.seen, known.priority, known.affinity) = (scan, now.priority, now.affinity);
            continue;
        }
        let early = tasks.early(stat.start_ticks);
        tasks.insert_thread(pid, tid, Thread { seen: scan, early, ..Thread::found(tid, &stat) });
        tasks.has_early |= early.is_some();
    }
}

/// Takes those out of the table that neither this scan nor the one before saw. One that no scan has seen yet counts as seen by the one before.
fn forget(tasks: &mut Tasks, before: u32) {
    let scan = tasks.scans;
    let mut gone = Vec::new();
    for (pid, process) in tasks.all_mut() {
        let last = process.seen;
        if last == 0 {
            process.seen = before;
        } else if last != scan && last < before {
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
