//! Files: their names, and the operations of programs on them, from system calls.
//!
//! ```text
//!   sys_enter_*   tid ──▶ 0x0440 … 0x044A: operation starts, IrpPtr = its number ──▶ calls[tid]
//!   sys_exit_*    tid ──▶ 0x044C: operation ends, with bytes and status        ◀──── calls[tid]
//!
//!   (process, descriptor) ──▶ open file: FileObject = FileKey │ position │ name
//!       fork copies descriptors, clone and dup share them, exec and exit close them
//!   name: from a kprobe or /proc/PID/fd/N ──▶ 0x0420 when confirmed, 0x0423 at the last close
//!         files open before the capture: 0x0400 at the start; still open: 0x0424 at the end
//! ```
//!
//! 1. An *open file* is the open file description that an open call creates: several descriptors,
//!    in several processes, may share one. Its number is both `FileObject` and `FileKey`, because
//!    the tracepoint does not say which file was opened. Numbers are not reused.
//! 2. A name is written only when it is confirmed. A name that `/proc` gave for a descriptor is
//!    confirmed once all records up to the time of reading are handled and none of them closed the
//!    descriptor. A file that was closed sooner has no name, unless the probe reported the path.
//! 3. Only files are captured, which is what has a path: no sockets, no pipes.
//! 4. Only system calls are captured: accesses to mapped files and operations of io_uring are not.
//! 5. All state is bounded. A descriptor that was dropped from it is looked up again and gets a new
//!    number; so are all descriptors after lost records.

mod calls;
mod open_files;
mod payload;
mod pending_calls;
pub(crate) mod probe;
mod proc_fd;
mod status;
mod tables;

use super::Rundown;
use crate::groups::Group;
use crate::out::Out;
use crate::record::{Context, Other, Parts};
use crate::spec::{Event, Handler, Source, Spec};
use crate::state::State as All;

use open_files::OpenFiles;

/// Open files, and the calls in progress.
#[derive(Debug, Default)]
pub(crate) struct State {
    open_files: OpenFiles,
    calls: pending_calls::PendingCalls,
    /// Whether the files that were open when the capture began, or when names were enabled, have
    /// been scanned.
    is_scanned: bool,
}

/// Groups for which file names are written.
pub(super) const NAME_GROUPS: &[Group] = &[Group::DISK_FILE_IO, Group::FILE_IO, Group::FILE_IO_INIT];
/// Groups for which operations are written.
const OPERATION_GROUPS: &[Group] = &[Group::FILE_IO, Group::FILE_IO_INIT];

/// Builds the row for the entry or the exit of a system call.
const fn row(
    name: &'static str,
    groups: &'static [Group],
    hooks: &'static [u16],
    fields: &'static [&'static str],
    on: Handler,
) -> Spec {
    let source = Source::Tracepoint("syscalls", name);
    Spec { source, groups, hooks, fields, parts: Parts(0), wakes: false, is_for_own: false, filter: None, on }
}

/// Builds both rows of each system call.
macro_rules! system_calls {
    ($($name:literal $groups:ident $hooks:tt $fields:tt $on:path;)*) => {
        &[
            $(
                row(concat!("sys_enter_", $name), $groups, &$hooks, &$fields, $on),
                row(concat!("sys_exit_", $name), $groups, &[payload::END], &["ret"], calls::exit),
            )*
        ]
    };
}

/// System calls without those that open files. Each costs its callers time, so there are as few as
/// possible.
pub(crate) static SPECS: &[Spec] = system_calls! {
    "close" NAME_GROUPS [payload::CLEANUP, payload::CLOSE] ["fd"] calls::close;
    "close_range" NAME_GROUPS [payload::CLEANUP, payload::CLOSE] ["fd", "max_fd", "flags"] calls::close_range;
    "dup" NAME_GROUPS [] ["fildes"] calls::dup;
    "dup2" NAME_GROUPS [] ["oldfd", "newfd"] calls::dup2;
    "dup3" NAME_GROUPS [] ["oldfd", "newfd", "flags"] calls::dup2;
    "lseek" OPERATION_GROUPS [] ["fd"] calls::seek;
    "read" OPERATION_GROUPS [payload::READ] ["fd", "count"] calls::read;
    "readv" OPERATION_GROUPS [payload::READ] ["fd"] calls::read;
    "pread64" OPERATION_GROUPS [payload::READ] ["fd", "count", "pos"] calls::read;
    "preadv" OPERATION_GROUPS [payload::READ] ["fd", "?", "pos_l"] calls::read;
    "preadv2" OPERATION_GROUPS [payload::READ] ["fd", "?", "pos_l"] calls::read;
    "write" OPERATION_GROUPS [payload::WRITE] ["fd", "count"] calls::write;
    "writev" OPERATION_GROUPS [payload::WRITE] ["fd"] calls::write;
    "pwrite64" OPERATION_GROUPS [payload::WRITE] ["fd", "count", "pos"] calls::write;
    "pwritev" OPERATION_GROUPS [payload::WRITE] ["fd", "?", "pos_l"] calls::write;
    "pwritev2" OPERATION_GROUPS [payload::WRITE] ["fd", "?", "pos_l"] calls::write;
    "sendfile64" OPERATION_GROUPS [payload::READ, payload::WRITE] ["in_fd", "out_fd", "count", "offset"] calls::copy;
    "copy_file_range" OPERATION_GROUPS [payload::READ, payload::WRITE] ["fd_in", "fd_out", "len", "off_in", "off_out"] calls::copy;
    "fsync" OPERATION_GROUPS [payload::FLUSH] ["fd"] calls::flush;
    "fdatasync" OPERATION_GROUPS [payload::FLUSH] ["fd"] calls::flush;
    "ftruncate" OPERATION_GROUPS [payload::SET_INFO] ["fd", "length"] calls::truncate;
    "truncate" OPERATION_GROUPS [payload::SET_INFO] ["?fd", "length"] calls::truncate;
    "fallocate" OPERATION_GROUPS [payload::SET_INFO] ["fd", "len"] calls::allocate;
    "fchmod" OPERATION_GROUPS [payload::SET_INFO] ["fd"] calls::set_basic;
    "chmod" OPERATION_GROUPS [payload::SET_INFO] [] calls::set_basic;
    "fchmodat" OPERATION_GROUPS [payload::SET_INFO] [] calls::set_basic;
    "utimensat" OPERATION_GROUPS [payload::SET_INFO] [] calls::set_basic;
    "newfstat" OPERATION_GROUPS [payload::QUERY_INFO] ["fd"] calls::query;
    "unlink" OPERATION_GROUPS [payload::DELETE] [] calls::delete;
    "unlinkat" OPERATION_GROUPS [payload::DELETE] [] calls::delete;
    "rmdir" OPERATION_GROUPS [payload::DELETE] [] calls::delete;
    "rename" OPERATION_GROUPS [payload::RENAME] [] calls::rename;
    "renameat" OPERATION_GROUPS [payload::RENAME] [] calls::rename;
    "renameat2" OPERATION_GROUPS [payload::RENAME] [] calls::rename;
    "getdents64" OPERATION_GROUPS [payload::DIRECTORY] ["fd", "count"] calls::enumerate;
};

/// Calls that open files, and tracepoints that need a filter. The exit of an open call wakes the
/// session, because `/proc` shows a descriptor only while it is open.
pub(crate) static OPEN_SPECS: &[Spec] = &[
    row("sys_enter_open", NAME_GROUPS, &[payload::CREATE], &["flags"], calls::open),
    row("sys_enter_openat", NAME_GROUPS, &[payload::CREATE], &["flags"], calls::open),
    row("sys_enter_openat2", NAME_GROUPS, &[payload::CREATE], &[], calls::openat2),
    row("sys_enter_creat", NAME_GROUPS, &[payload::CREATE], &[], calls::creat),
    // `F_DUPFD`, `F_SETFD` and `F_DUPFD_CLOEXEC`.
    Spec {
        filter: Some("cmd == 0 || cmd == 2 || cmd == 1030"),
        ..row("sys_enter_fcntl", NAME_GROUPS, &[], &["fd", "cmd", "arg"], calls::fcntl)
    },
    row("sys_exit_fcntl", NAME_GROUPS, &[], &["ret"], calls::exit),
    // The FORK record does not say whether descriptors are shared. This tracepoint follows it
    // directly, before the child runs. The filter is `CLONE_FILES`.
    Spec {
        filter: Some("clone_flags & 0x400"),
        ..Spec::tracepoint(("task", "task_newtask"), NAME_GROUPS, &[], &["pid", "clone_flags"], on_newtask)
    },
    waking_row("sys_exit_open"),
    waking_row("sys_exit_openat"),
    waking_row("sys_exit_openat2"),
    waking_row("sys_exit_creat"),
    Spec::tracepoint(
        (probe::SYSTEM, probe::OPEN),
        NAME_GROUPS,
        &[payload::CREATE],
        &["name"],
        calls::open_path,
    ),
];

/// Builds the row for the exit of an open call, which wakes the session.
const fn waking_row(name: &'static str) -> Spec {
    Spec { wakes: true, ..row(name, NAME_GROUPS, &[payload::END], &["ret"], calls::exit) }
}

/// Handles a new process that shares the descriptor table of its creator.
fn on_newtask(state: &mut All, event: &Event<'_>, _: &mut Out<'_>) {
    const FILES: u64 = libc::CLONE_FILES as u64;
    const THREAD: u64 = libc::CLONE_THREAD as u64;
    let (child, flags) = (event.u32(0), event.u64(1));
    if flags & (FILES | THREAD) == FILES {
        state.files.open_files.share_table(event.sample.pid, child);
    }
}

/// Handles FORK, COMM and EXIT records. Must run after the process family, which knows the threads
/// that are left.
pub(crate) fn on_other(state: &mut All, context: &Context, other: &Other<'_>, out: &mut Out<'_>) {
    if !state.groups.has_any(NAME_GROUPS) {
        return;
    }
    let (files, groups) = (&mut state.files, state.groups);
    payload::write_confirmed_names(&mut files.open_files, context.time, out);
    let closed = match *other {
        Other::Fork { pid, ppid, .. } if pid != ppid => return files.open_files.fork(ppid, pid),
        Other::Comm { pid, is_exec: true, .. } => files.open_files.exec(pid),
        Other::Exit { pid, tid, .. } => {
            files.calls.remove(tid);
            // All threads share the descriptors, and the first thread may end long before the last.
            if state.tasks.knows(pid) {
                return;
            }
            files.open_files.exit(pid)
        }
        _ => return,
    };
    for file in closed {
        let irps = [files.calls.next_irp(), files.calls.next_irp()];
        payload::write_close(groups, &irps, file.key, context.tid, out);
        irps.iter().for_each(|irp| payload::write_end(groups, *irp, 0, 0, out));
        payload::write_name_delete(&file, out);
    }
}

/// Drops all open files after lost records, among which a close may have been: descriptors are
/// looked up again.
pub(crate) fn forget(state: &mut All) {
    state.files.open_files.clear();
    state.files.calls.clear();
}

/// Begins a poll: drops state that is no longer kept up to date because its groups are disabled.
pub(crate) fn poll(state: &mut All) {
    if !state.groups.has_any(NAME_GROUPS) {
        forget(state);
        state.files.is_scanned = false;
    } else if !state.groups.has_any(OPERATION_GROUPS) {
        state.files.open_files.forget_positions();
    }
}

/// Writes the names of open files: those found in `/proc` when the capture begins or names are
/// enabled, and those known by then.
pub(crate) fn run_down(state: &mut All, when: Rundown, out: &mut Out<'_>) {
    if !state.groups.has_any(NAME_GROUPS) {
        return;
    }
    let files = &mut state.files;
    if when == Rundown::Start && !std::mem::replace(&mut files.is_scanned, true) {
        proc_fd::scan_all(|process, descriptor, name| {
            files.open_files.add_existing(process, descriptor, name);
        });
    }
    let hook = if when == Rundown::Start { payload::NAME } else { payload::NAME_RUNDOWN };
    for (key, name) in files.open_files.confirmed_names() {
        payload::write_name(hook, key, name, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plain;
    use crate::groups::Groups;
    use crate::out::{Beside, Queue};

    #[test]
    fn descriptors_are_open_until_the_last_thread_ends() {
        // Larger than the largest id that Linux assigns.
        let (process, thread) = (5_000_000, 5_000_001);
        let Group(names) = Group::DISK_FILE_IO;
        let mut state = All { groups: Groups([names, 0, 0, 0, 0, 0, 0, 0]), ..All::default() };
        let (mut queues, beside, mut too_large) = ([Queue::default()], Beside::default(), 0);
        let mut out = Out::new(&mut queues, &Plain, &beside, &mut too_large);
        let mut handle = |state: &mut All, other| {
            let context = Context { time: 1, pid: process, tid: process };
            crate::family::on_other(state, &context, &other, &mut out);
        };
        handle(&mut state, Other::Fork { pid: process, ppid: 1, tid: process, ptid: 1 });
        handle(&mut state, Other::Fork { pid: process, ppid: process, tid: thread, ptid: process });
        state.files.open_files.add_existing(process, 3, "/a".into());
        handle(&mut state, Other::Exit { pid: process, ppid: 1, tid: process });
        assert_eq!(state.files.open_files.confirmed_names().count(), 1, "another thread has it open");
        handle(&mut state, Other::Exit { pid: process, ppid: 1, tid: thread });
        assert_eq!(state.files.open_files.confirmed_names().count(), 0);
    }
}
