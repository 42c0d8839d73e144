//! Processes and threads: start, end, rundown, names, counters.
//!
//! ```text
//!   FORK   pid = tid   ──▶ 0x0301 process start (program of the parent), 0x0501 thread start      header: who forked
//!          pid ≠ tid   ──▶ 0x0501
//!   COMM   exec        ──▶ 0x0502, 0x0302 (status 0), 0x0301, 0x0501 at one time                  program, user, place anew from /proc
//!          otherwise   ──▶ 0x0548 thread name
//!   EXIT   a thread    ──▶ 0x0502;  the last of its process: 0x0302 with the exit status          status: connector, /proc
//!   /proc              ──▶ 0x0303, 0x0503 at the start, 0x0304, 0x0504 and 0x0327 at the end      `rundown`
//! ```
//!
//! 1. The table is kept whatever is wanted, because others look things up in it; records are written for the groups that are wanted.
//! 2. Stacks come with tracepoints only. Where the stack of a start is wanted, the start is written when `sched_process_fork` comes, which the kernel makes right behind
//!    the FORK record, before the new thread runs; where that of an end is wanted, it is written when `sched_process_exit` comes, right before the EXIT record, which is
//!    then passed over. An exec has no stack: it is written with the COMM record, in front of its image events, and its tracepoint comes behind those.
//! 3. `sched_process_exec` wakes the session, so that `/proc` is read while the program runs. At worst (it is gone already) the name of the thread is the image.
//! 4. `/proc` is read for an exec, for the exit status where the connector has not told it, and for forks inside containers. Other forks and names read nothing.

mod connector;
mod execs;
mod facts;
mod rundown;
mod tasks;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use rundown::{run_down, settle};
pub(crate) use tasks::Tasks;

use std::sync::Arc;

use self::facts::{Name, Program};
use self::tasks::{Awaited, Thread};
use crate::groups::Group;
use crate::out::Out;
use crate::record::{Context, Other};
use crate::spec::{Event, Spec};
use crate::state::State as All;

/// Fields of `sched_process_exec`.
const FILE_NAME: usize = 0;

/// Groups for which the beginning of programs is followed closely.
const WANTED: &[Group] = &[Group::PROCESS, Group::THREAD, Group::IMAGE_LOAD];
/// Groups that are told of here.
pub(super) const TOLD: &[Group] = &[Group::PROCESS, Group::THREAD, Group::PROCESS_COUNTERS];
const STARTS: &[u16] = &[write::PROCESS_START, write::THREAD_START];
const ENDS: &[u16] = &[write::PROCESS_END, write::THREAD_END];

pub(crate) static SPECS: &[Spec] = &[
    Spec {
        wakes: true,
        ..Spec::tracepoint(("sched", "sched_process_exec"), WANTED, &[], &["filename"], exec_point)
    },
    Spec::tracepoint(("sched", "sched_process_fork"), &[], STARTS, &[], fork_point),
    Spec::tracepoint(("sched", "sched_process_exit"), &[], ENDS, &[], exit_point),
];

pub(crate) fn beside(state: &mut All) {
    let are_wanted = state.groups.has_any(WANTED);
    state.tasks.look(are_wanted);
}

pub(crate) fn on_other(state: &mut All, context: &Context, other: &Other<'_>, out: &mut Out<'_>) {
    match *other {
        Other::Fork { pid, ppid, tid, ptid } if is_id(pid) && is_id(tid) => {
            forked(state, (ppid, ptid), (pid, tid), out);
        }
        Other::Exit { tid, .. } if state.tasks.ended.remove(&tid) => {}
        Other::Exit { pid, ppid, tid, .. } if is_id(tid) => ended(state, (pid, tid), ppid, out),
        Other::Comm { pid, name, is_exec: true, .. } if is_id(pid) => execed(state, pid, name, out),
        Other::Comm { pid, tid, name, is_exec: false } if is_id(tid) => {
            renamed(state, (context.pid, context.tid), (pid, tid), name, out);
        }
        _ => {}
    }
}

/// Whether the kernel has told an id: 0 is a task outside of our namespace, −1 one that is dead.
fn is_id(id: u32) -> bool {
    id != 0 && id != u32::MAX
}

fn forked(state: &mut All, creator: (u32, u32), (pid, tid): (u32, u32), out: &mut Out<'_>) {
    tell_awaited(state, creator.1, out);
    let tasks = &mut state.tasks;
    tasks.ended.remove(&tid);
    let thread = tasks.thread_of(creator.1, tid);
    if pid == tid {
        let process = tasks.child_of(creator.0, pid, out.time);
        tasks.insert(pid, process);
    } else if tasks.get(pid).is_none() {
        // The record of its start was lost.
        let early = Some(tasks.looks);
        let process = tasks::Process { early, ..tasks.unknown(pid, 0) };
        tasks.insert(pid, process);
        tasks.has_early = true;
    }
    tasks.insert_thread(pid, tid, thread);
    if out.beside.stacks.has_any(STARTS) {
        let (time, cpu, look) = (out.time, out.cpu, tasks.looks);
        tasks.awaited.insert(creator.1, Awaited { creator, process: pid, thread: tid, time, cpu, look });
    } else {
        tell_start(state, creator, (pid, tid), out);
    }
}

/// The stack of a start: writes what the FORK record said.
fn fork_point(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    if let Some(it) = state.tasks.awaited.remove(&event.sample.tid) {
        tell_start(state, it.creator, (it.process, it.thread), out);
    }
}

/// Writes a start whose stack does not come.
fn tell_awaited(state: &mut All, creator: u32, out: &mut Out<'_>) {
    let Some(it) = state.tasks.awaited.remove(&creator) else { return };
    let (now, sample) = ((out.time, out.cpu), out.sample.take());
    (out.time, out.cpu) = (it.time, it.cpu);
    tell_start(state, it.creator, (it.process, it.thread), out);
    ((out.time, out.cpu), out.sample) = (now, sample);
}

fn tell_start(state: &All, creator: (u32, u32), (pid, tid): (u32, u32), out: &mut Out<'_>) {
    let Some(process) = state.tasks.get(pid) else { return };
    if pid == tid && state.groups.has(Group::PROCESS) {
        write::process(write::PROCESS_START, creator, pid, process, write::STILL_ACTIVE, out);
    }
    if let Some(thread) = process.threads.get(&tid).filter(|_| state.groups.has(Group::THREAD)) {
        write::thread(write::THREAD_START, creator, (pid, tid), thread, out);
    }
}

fn exit_point(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let ids @ (_, tid) = (event.sample.pid, event.sample.tid);
    if is_id(tid) {
        ended(state, ids, 0, out);
        state.tasks.ended.insert(tid);
    }
}

/// A thread ended, and its process where it was the last.
fn ended(state: &mut All, (pid, tid): (u32, u32), parent: u32, out: &mut Out<'_>) {
    let pid = state.tasks.process_of(tid).unwrap_or(pid);
    if !is_id(pid) {
        return;
    }
    meet(state, (pid, tid), parent, out);
    if let Some(thread) = state.tasks.thread(tid).filter(|_| state.groups.has(Group::THREAD)) {
        write::thread(write::THREAD_END, (pid, tid), (pid, tid), thread, out);
    }
    state.tasks.remove_thread(tid);
    if state.tasks.get(pid).is_some_and(|process| process.threads.is_empty()) {
        let status = status_of(state, (pid, tid), out.time);
        if state.groups.has(Group::PROCESS_COUNTERS) {
            write::counters(write::COUNTERS_END, pid, out);
        }
        if let Some(process) = state.tasks.remove(pid)
            && state.groups.has(Group::PROCESS)
        {
            write::process(write::PROCESS_END, (pid, tid), pid, &process, status, out);
        }
    } else if tid != pid {
        state.tasks.connector().forget(tid);
    }
}

/// Tells of a thread whose start has not been told so far: it was there before the rings, or its record was lost.
fn meet(state: &mut All, (pid, tid): (u32, u32), parent: u32, out: &mut Out<'_>) {
    if state.tasks.get(pid).is_none() {
        let process = tasks::Process { early: Some(state.tasks.looks), ..state.tasks.unknown(pid, parent) };
        state.tasks.insert(pid, process);
    }
    if state.tasks.thread(tid).is_none() {
        let thread = Thread { early: Some(state.tasks.looks), ..state.tasks.thread_of(tid, tid) };
        state.tasks.insert_thread(pid, tid, thread);
    }
    let late = state.tasks.awaited.iter().find(|(_, it)| it.thread == tid).map(|(creator, _)| *creator);
    if let Some(creator) = late {
        tell_awaited(state, creator, out);
    }
    rundown::tell_early(state, pid, out);
}

/// How a process ended whose last thread this was.
fn status_of(state: &mut All, (pid, tid): (u32, u32), time: u64) -> i32 {
    let Some(process) = state.tasks.get(pid) else { return write::NOT_KNOWN };
    let (started, may_know) = (process.start_ticks, state.tasks.may_know(process));
    loop {
        if let Some(told) = state.tasks.connector().take(tid, time) {
            return connector::exit_status(told);
        }
        // While it is there its code is in `/proc`; when it is not, the message is there or on its way.
        let left = facts::stat(&pid.to_string()).filter(|it| it.start_ticks.abs_diff(started) <= 1);
        if let Some(left) = left {
            return exit_of(left.exit_code, may_know);
        }
        state.tasks.connector().drain();
        if let Some(told) = state.tasks.connector().take(tid, time) {
            return connector::exit_status(told);
        }
        if !state.tasks.connector().is_open() || !state.tasks.nap() {
            return write::NOT_KNOWN;
        }
    }
}

/// The status of a process by its `/proc/PID/stat`, where 0 is also what those are told who may not know.
fn exit_of(code: u32, may_know: bool) -> i32 {
    if code == 0 && !may_know { write::NOT_KNOWN } else { connector::exit_status(code) }
}

/// A process runs another program: the end of one and the start of the next under the same ids, at one time.
fn execed(state: &mut All, pid: u32, name: &[u8], out: &mut Out<'_>) {
    let first = state.tasks.get(pid).and_then(|process| process.threads.keys().next().copied());
    meet(state, (pid, first.unwrap_or(pid)), 0, out);
    let (has_process, has_thread) = (state.groups.has(Group::PROCESS), state.groups.has(Group::THREAD));
    let by = (pid, pid);
    let Some(process) = state.tasks.get(pid) else { return };
    // One that was not the first has become it by now; the others have ended.
    let last = process.threads.values().next_back().copied().unwrap_or_default();
    if has_thread {
        for (tid, thread) in &process.threads {
            write::thread(write::THREAD_END, by, (pid, *tid), thread, out);
        }
    }
    if has_process {
        write::process(write::PROCESS_END, by, pid, process, 0, out);
    }
    let others: Vec<u32> = process.threads.keys().copied().filter(|tid| *tid != pid).collect();
    for tid in others {
        state.tasks.remove_thread(tid);
    }
    state.tasks.renew(pid, name, out.time);
    let affinity = facts::affinity(pid);
    let affinity = if affinity == 0 { last.affinity } else { affinity };
    let thread = Thread { name: Name::new(name), affinity, seen: 0, ..last };
    state.tasks.insert_thread(pid, pid, thread);
    tell_start(state, by, by, out);
}

/// The tracepoint behind an exec: what `/proc` did not tell in time is known better now.
fn exec_point(state: &mut All, event: &Event<'_>, _: &mut Out<'_>) {
    let pid = event.sample.pid;
    let Some(process) = state.tasks.get_mut(pid) else { return };
    let known = &process.program;
    if !known.path.is_empty() && !known.command_line.is_empty() {
        return;
    }
    let again = facts::program(pid, &known.image, true);
    if !again.path.is_empty() {
        process.program = Arc::new(again);
    } else if known.path.is_empty() {
        // It is gone: the file is all that is left of it.
        let path = event.text(FILE_NAME).to_vec();
        let image = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
        let path = if path.starts_with(b"/") { path } else { Vec::new() };
        process.program = Arc::new(Program { path, image, command_line: known.command_line.clone() });
    }
}

fn renamed(state: &mut All, by: (u32, u32), (pid, tid): (u32, u32), name: &[u8], out: &mut Out<'_>) {
    if let Some(process) = state.tasks.get_mut(pid) {
        if let Some(thread) = process.threads.get_mut(&tid) {
            thread.name = Name::new(name);
        }
        // A thread of the kernel, which runs no program: it is known by its name.
        let is_nameless = process.program.path.is_empty() && process.program.command_line.is_empty();
        if is_nameless && tid == pid {
            process.program = Arc::new(Program::new(Vec::new(), name, String::new()));
        }
    }
    if state.groups.has(Group::THREAD) {
        write::thread_name(by, (pid, tid), name, out);
    }
}
