//! Processes and threads: start, end, rundown, names, counters.
//!
//! ```text
//!   FORK   pid = tid   ──▶ 0x0301 process start (program of the parent), 0x0501 thread start
//!                          header: the thread that forked
//!          pid ≠ tid   ──▶ 0x0501
//!   COMM   exec        ──▶ 0x0502, 0x0302 (status 0), 0x0301, 0x0501 with one time
//!                          program, user, package read anew from /proc
//!          otherwise   ──▶ 0x0548 thread name
//!   EXIT   a thread    ──▶ 0x0502; the last of its process: 0x0302 with the exit status
//!                          status: connector, /proc
//!   /proc              ──▶ rundown: 0x0303, 0x0503 at the start; 0x0304, 0x0504, 0x0327 at the end
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
//!    the program is already gone, the thread name serves as the image name.
//! 4. `/proc` is read for an exec, for an exit status that the connector has not reported, and for
//!    forks inside containers. Other forks and thread names read nothing.

mod connector;
mod execs;
mod facts;
mod rundown;
mod tasks;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use rundown::{finish_poll, run_down};
pub(crate) use tasks::Tasks;

use std::sync::Arc;

use self::facts::{Name, Program};
use self::tasks::{PendingStart, Thread};
use crate::groups::Group;
use crate::out::Out;
use crate::record::{Context, Other};
use crate::spec::{Event, Spec};
use crate::state::State as All;

/// Index of a field of `sched_process_exec`.
const FILE_NAME: usize = 0;

/// Groups for which execs are captured with their arguments.
const EXEC_GROUPS: &[Group] = &[Group::PROCESS, Group::THREAD, Group::IMAGE_LOAD];
/// Groups whose events this module writes.
pub(super) const GROUPS: &[Group] = &[Group::PROCESS, Group::THREAD, Group::PROCESS_COUNTERS];
const STARTS: &[u16] = &[write::PROCESS_START, write::THREAD_START];
const ENDS: &[u16] = &[write::PROCESS_END, write::THREAD_END];

pub(crate) static SPECS: &[Spec] = &[
    Spec {
        wakes: true,
        ..Spec::tracepoint(
            ("sched", "sched_process_exec"),
            EXEC_GROUPS,
            &[],
            &["filename"],
            on_exec_tracepoint,
        )
    },
    Spec::tracepoint(("sched", "sched_process_fork"), &[], STARTS, &[], on_fork_tracepoint),
    Spec::tracepoint(("sched", "sched_process_exit"), &[], ENDS, &[], on_exit_tracepoint),
];

/// Begins a poll: reads the connector and the execs.
pub(crate) fn poll(state: &mut All) {
    let are_execs_wanted = state.groups.has_any(EXEC_GROUPS);
    state.tasks.poll(are_execs_wanted);
}

/// Handles FORK, COMM and EXIT records.
pub(crate) fn on_other(state: &mut All, context: &Context, other: &Other<'_>, out: &mut Out<'_>) {
    match *other {
        Other::Fork { pid, ppid, tid, ptid } if is_valid_id(pid) && is_valid_id(tid) => {
            on_fork(state, (ppid, ptid), (pid, tid), out);
        }
        Other::Exit { tid, .. } if state.tasks.written_exits.remove(&tid) => {}
        Other::Exit { pid, ppid, tid, .. } if is_valid_id(tid) => on_exit(state, (pid, tid), ppid, out),
        Other::Comm { pid, name, is_exec: true, .. } if is_valid_id(pid) => on_exec(state, pid, name, out),
        Other::Comm { pid, tid, name, is_exec: false } if is_valid_id(tid) => {
            on_rename(state, (context.pid, context.tid), (pid, tid), name, out);
        }
        _ => {}
    }
}

/// Whether an id names a task: 0 stands for a task outside our PID namespace, −1 for a dead one.
fn is_valid_id(id: u32) -> bool {
    id != 0 && id != u32::MAX
}

fn on_fork(state: &mut All, creator: (u32, u32), (pid, tid): (u32, u32), out: &mut Out<'_>) {
    write_pending_start(state, creator.1, out);
    let tasks = &mut state.tasks;
    tasks.written_exits.remove(&tid);
    let thread = tasks.new_thread(creator.1, tid);
    if pid == tid {
        let process = tasks.new_child(creator.0, pid, out.time);
        tasks.insert(pid, process);
    } else if tasks.get(pid).is_none() {
        // The record of the process's start was lost.
        let early = Some(tasks.polls);
        let process = tasks::Process { early, ..tasks.read_process(pid, 0) };
        tasks.insert(pid, process);
        tasks.has_early = true;
    }
    tasks.insert_thread(pid, tid, thread);
    if out.beside.stacks.has_any(STARTS) {
        let (time, cpu, poll) = (out.time, out.cpu, tasks.polls);
        let pending = PendingStart { creator, process: pid, thread: tid, time, cpu, poll };
        tasks.pending_starts.insert(creator.1, pending);
    } else {
        write_start(state, creator, (pid, tid), out);
    }
}

/// Writes the start that the FORK record announced, with the stack of this sample.
fn on_fork_tracepoint(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    if let Some(start) = state.tasks.pending_starts.remove(&event.sample.tid) {
        write_start(state, start.creator, (start.process, start.thread), out);
    }
}

/// Writes a pending start without its stack.
fn write_pending_start(state: &mut All, creator: u32, out: &mut Out<'_>) {
    let Some(start) = state.tasks.pending_starts.remove(&creator) else { return };
    let (now, sample) = ((out.time, out.cpu), out.sample.take());
    (out.time, out.cpu) = (start.time, start.cpu);
    write_start(state, start.creator, (start.process, start.thread), out);
    ((out.time, out.cpu), out.sample) = (now, sample);
}

fn write_start(state: &All, creator: (u32, u32), (pid, tid): (u32, u32), out: &mut Out<'_>) {
    let Some(process) = state.tasks.get(pid) else { return };
    if pid == tid && state.groups.has(Group::PROCESS) {
        write::process(write::PROCESS_START, creator, pid, process, write::STILL_ACTIVE, out);
    }
    if let Some(thread) = process.threads.get(&tid).filter(|_| state.groups.has(Group::THREAD)) {
        write::thread(write::THREAD_START, creator, (pid, tid), thread, out);
    }
}

fn on_exit_tracepoint(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let ids @ (_, tid) = (event.sample.pid, event.sample.tid);
    if is_valid_id(tid) {
        on_exit(state, ids, 0, out);
        state.tasks.written_exits.insert(tid);
    }
}

/// Writes the end of a thread, and of its process if the thread was the last.
fn on_exit(state: &mut All, (pid, tid): (u32, u32), parent: u32, out: &mut Out<'_>) {
    let pid = state.tasks.process_of(tid).unwrap_or(pid);
    if !is_valid_id(pid) {
        return;
    }
    ensure_started(state, (pid, tid), parent, out);
    if let Some(thread) = state.tasks.thread(tid).filter(|_| state.groups.has(Group::THREAD)) {
        write::thread(write::THREAD_END, (pid, tid), (pid, tid), thread, out);
    }
    state.tasks.remove_thread(tid);
    if state.tasks.get(pid).is_some_and(|process| process.threads.is_empty()) {
        let status = find_exit_status(state, (pid, tid), out.time);
        if state.groups.has(Group::PROCESS_COUNTERS) {
            write::counters(write::COUNTERS_END, pid, out);
        }
        if let Some(process) = state.tasks.remove(pid)
            && state.groups.has(Group::PROCESS)
        {
            write::process(write::PROCESS_END, (pid, tid), pid, &process, status, out);
        }
    } else if tid != pid {
        state.tasks.connector().remove_status(tid);
    }
}

/// Writes the start or rundown of a thread if neither has been written so far: the thread is older
/// than the rings, its record was lost, or its start waits for a stack.
fn ensure_started(state: &mut All, (pid, tid): (u32, u32), parent: u32, out: &mut Out<'_>) {
    if state.tasks.get(pid).is_none() {
        let early = Some(state.tasks.polls);
        let process = tasks::Process { early, ..state.tasks.read_process(pid, parent) };
        state.tasks.insert(pid, process);
    }
    if state.tasks.thread(tid).is_none() {
        let early = Some(state.tasks.polls);
        let thread = Thread { early, ..state.tasks.new_thread(tid, tid) };
        state.tasks.insert_thread(pid, tid, thread);
    }
    let mut pending = state.tasks.pending_starts.iter();
    let creator = pending.find(|(_, start)| start.thread == tid).map(|(creator, _)| *creator);
    if let Some(creator) = creator {
        write_pending_start(state, creator, out);
    }
    rundown::write_early(state, pid, out);
}

/// Returns the exit status of a process whose last thread was `tid`.
fn find_exit_status(state: &mut All, (pid, tid): (u32, u32), time: u64) -> i32 {
    let Some(process) = state.tasks.get(pid) else { return write::NOT_KNOWN };
    let (started, can_read) = (process.start_ticks, state.tasks.can_read_exit_code(process));
    loop {
        if let Some(status) = state.tasks.connector().take_status(tid, time) {
            return connector::exit_status(status);
        }
        // `/proc` has the code until the parent has waited for the process; after that the
        // connector's message has arrived or is on its way.
        let stat = facts::stat(&pid.to_string()).filter(|stat| stat.start_ticks.abs_diff(started) <= 1);
        if let Some(stat) = stat {
            return status_from_code(stat.exit_code, can_read);
        }
        state.tasks.connector().drain();
        if let Some(status) = state.tasks.connector().take_status(tid, time) {
            return connector::exit_status(status);
        }
        if !state.tasks.connector().is_open() || !state.tasks.wait_briefly() {
            return write::NOT_KNOWN;
        }
    }
}

/// Converts the exit code of `/proc/PID/stat`, which is also 0 for readers without permission.
fn status_from_code(code: u32, can_read: bool) -> i32 {
    if code == 0 && !can_read { write::NOT_KNOWN } else { connector::exit_status(code) }
}

/// Writes an exec: the end of one program and the start of the next under the same ids, with the
/// same time.
fn on_exec(state: &mut All, pid: u32, name: &[u8], out: &mut Out<'_>) {
    let first = state.tasks.get(pid).and_then(|process| process.threads.keys().next().copied());
    ensure_started(state, (pid, first.unwrap_or(pid)), 0, out);
    let (has_process, has_thread) = (state.groups.has(Group::PROCESS), state.groups.has(Group::THREAD));
    let by = (pid, pid);
    let Some(process) = state.tasks.get(pid) else { return };
    // The thread that called exec has the id of the first thread by now; the others have ended.
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
    state.tasks.update_after_exec(pid, name, out.time);
    let affinity = facts::affinity(pid);
    let affinity = if affinity == 0 { last.affinity } else { affinity };
    let thread = Thread { name: Name::new(name), affinity, seen: 0, ..last };
    state.tasks.insert_thread(pid, pid, thread);
    write_start(state, by, by, out);
}

/// Completes the program of an exec, if `/proc` was read too early or too late before.
fn on_exec_tracepoint(state: &mut All, event: &Event<'_>, _: &mut Out<'_>) {
    let pid = event.sample.pid;
    let Some(process) = state.tasks.get_mut(pid) else { return };
    let program = &process.program;
    if !program.path.is_empty() && !program.command_line.is_empty() {
        return;
    }
    let again = facts::program(pid, &program.image, true);
    if !again.path.is_empty() {
        process.program = Arc::new(again);
    } else if program.path.is_empty() {
        // The process is gone: only the path passed to `execve` is left.
        let path = event.text(FILE_NAME).to_vec();
        let image = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
        let path = if path.starts_with(b"/") { path } else { Vec::new() };
        process.program = Arc::new(Program { path, image, command_line: program.command_line.clone() });
    }
}

fn on_rename(state: &mut All, by: (u32, u32), (pid, tid): (u32, u32), name: &[u8], out: &mut Out<'_>) {
    if let Some(process) = state.tasks.get_mut(pid) {
        if let Some(thread) = process.threads.get_mut(&tid) {
            thread.name = Name::new(name);
        }
        // A kernel thread runs no program: its thread name is its image name.
        let has_no_program = process.program.path.is_empty() && process.program.command_line.is_empty();
        if has_no_program && tid == pid {
            process.program = Arc::new(Program::new(Vec::new(), name, String::new()));
        }
    }
    if state.groups.has(Group::THREAD) {
        write::thread_name(by, (pid, tid), name, out);
    }
}
