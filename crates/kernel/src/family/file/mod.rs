//! Files: their names, and what programs do with them, by system calls.
//!
//! ```text
//!   sys_enter_*   tid ──▶ 0x0440 … 0x044A: the operation starts, IrpPtr = its number ──▶ calls[tid]
//!   sys_exit_*    tid ──▶ 0x044C: it has ended, with bytes and status            ◀────── calls[tid]
//!
//!   (process, descriptor) ──▶ opening: FileObject = FileKey │ position │ name        fork copies, clone and dup share, exec and exit close
//!                                                               ▲
//!                    a probe of the kernel, or /proc/PID/fd/N ──┘ ──▶ 0x0420 when it is sure, 0x0423 at its end
//!                    what is open already: 0x0400 at the start; what is open still: 0x0424 at the end
//! ```
//!
//! 1. An *opening* is what an open call makes: several descriptors, in several processes, may share one. Its number is `FileObject`, and `FileKey` too: which file it
//!    is is not told when it is opened. No number is used again.
//! 2. A name is told only when it is sure: what /proc says of a descriptor is believed once everything that happened before that was read, and none of it closed the
//!    descriptor. What was closed sooner has no name, unless a probe gave the path.
//! 3. Only files are told, which is what has a path: no sockets, no pipes.
//! 4. Calls are the interface: what is mapped, or done by io_uring, is not seen.
//! 5. Everything that is remembered is bounded. What is forgotten is looked up again, as another opening; so is everything where records were lost.

mod calls;
mod look;
mod openings;
pub(crate) mod probe;
mod status;
mod tables;
mod tell;
mod under_way;

use super::Rundown;
use crate::groups::Group;
use crate::out::Out;
use crate::record::{Context, Other, Parts};
use crate::spec::{Event, Handler, Source, Spec};
use crate::state::State as All;

use openings::Openings;

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct State {
    openings: Openings,
    calls: under_way::Calls,
    /// What was open when the capture began, or names were switched on, has been looked at.
    is_scanned: bool,
}

/// Groups that names belong to.
pub(super) const NAMES: &[Group] = &[Group::DISK_FILE_IO, Group::FILE_IO, Group::FILE_IO_INIT];
/// Groups that operations belong to.
const OPERATIONS: &[Group] = &[Group::FILE_IO, Group::FILE_IO_INIT];

/// A row of the entry or the exit of a system call.
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

/// Both rows of each system call.
macro_rules! system_calls {
    ($($name:literal $groups:ident $hooks:tt $fields:tt $on:path;)*) => {
        &[
            $(
                row(concat!("sys_enter_", $name), $groups, &$hooks, &$fields, $on),
                row(concat!("sys_exit_", $name), $groups, &[tell::END], &["ret"], calls::ended),
            )*
        ]
    };
}

/// System calls that are watched: the fewer the better, for each costs whoever calls it.
pub(crate) static SPECS: &[Spec] = system_calls! {
    "close" NAMES [tell::CLEANUP, tell::CLOSE] ["fd"] calls::close;
    "close_range" NAMES [tell::CLEANUP, tell::CLOSE] ["fd", "max_fd", "flags"] calls::close_range;
    "dup" NAMES [] ["fildes"] calls::dup;
    "dup2" NAMES [] ["oldfd", "newfd"] calls::dup2;
    "dup3" NAMES [] ["oldfd", "newfd", "flags"] calls::dup2;
    "lseek" OPERATIONS [] ["fd"] calls::seek;
    "read" OPERATIONS [tell::READ] ["fd", "count"] calls::read;
    "readv" OPERATIONS [tell::READ] ["fd"] calls::read;
    "pread64" OPERATIONS [tell::READ] ["fd", "count", "pos"] calls::read;
    "preadv" OPERATIONS [tell::READ] ["fd", "?", "pos_l"] calls::read;
    "preadv2" OPERATIONS [tell::READ] ["fd", "?", "pos_l"] calls::read;
    "write" OPERATIONS [tell::WRITE] ["fd", "count"] calls::write;
    "writev" OPERATIONS [tell::WRITE] ["fd"] calls::write;
    "pwrite64" OPERATIONS [tell::WRITE] ["fd", "count", "pos"] calls::write;
    "pwritev" OPERATIONS [tell::WRITE] ["fd", "?", "pos_l"] calls::write;
    "pwritev2" OPERATIONS [tell::WRITE] ["fd", "?", "pos_l"] calls::write;
    "sendfile64" OPERATIONS [tell::READ, tell::WRITE] ["in_fd", "out_fd", "count", "offset"] calls::copy;
    "copy_file_range" OPERATIONS [tell::READ, tell::WRITE] ["fd_in", "fd_out", "len", "off_in", "off_out"] calls::copy;
    "fsync" OPERATIONS [tell::FLUSH] ["fd"] calls::flush;
    "fdatasync" OPERATIONS [tell::FLUSH] ["fd"] calls::flush;
    "ftruncate" OPERATIONS [tell::SET_INFO] ["fd", "length"] calls::truncate;
    "truncate" OPERATIONS [tell::SET_INFO] ["?fd", "length"] calls::truncate;
    "fallocate" OPERATIONS [tell::SET_INFO] ["fd", "len"] calls::allocate;
    "fchmod" OPERATIONS [tell::SET_INFO] ["fd"] calls::set_basic;
    "chmod" OPERATIONS [tell::SET_INFO] [] calls::set_basic;
    "fchmodat" OPERATIONS [tell::SET_INFO] [] calls::set_basic;
    "utimensat" OPERATIONS [tell::SET_INFO] [] calls::set_basic;
    "newfstat" OPERATIONS [tell::QUERY_INFO] ["fd"] calls::query;
    "unlink" OPERATIONS [tell::DELETE] [] calls::delete;
    "unlinkat" OPERATIONS [tell::DELETE] [] calls::delete;
    "rmdir" OPERATIONS [tell::DELETE] [] calls::delete;
    "rename" OPERATIONS [tell::RENAME] [] calls::rename;
    "renameat" OPERATIONS [tell::RENAME] [] calls::rename;
    "renameat2" OPERATIONS [tell::RENAME] [] calls::rename;
    "getdents64" OPERATIONS [tell::DIRECTORY] ["fd", "count"] calls::enumerate;
};

/// Calls that open, whose ends wake the session, because a descriptor can be looked at while it is there only; and those that not all matter of.
pub(crate) static OPENING_SPECS: &[Spec] = &[
    row("sys_enter_open", NAMES, &[tell::CREATE], &["flags"], calls::open),
    row("sys_enter_openat", NAMES, &[tell::CREATE], &["flags"], calls::open),
    row("sys_enter_openat2", NAMES, &[tell::CREATE], &[], calls::open_how),
    row("sys_enter_creat", NAMES, &[tell::CREATE], &[], calls::creat),
    // Copies of descriptors, and what becomes of one when another program is run.
    Spec {
        filter: Some("cmd == 0 || cmd == 2 || cmd == 1030"),
        ..row("sys_enter_fcntl", NAMES, &[], &["fd", "cmd", "arg"], calls::fcntl)
    },
    row("sys_exit_fcntl", NAMES, &[], &["ret"], calls::ended),
    // The record of a fork does not tell whether descriptors are shared; this comes right behind it, before the child runs.
    Spec {
        filter: Some("clone_flags & 0x400"),
        ..Spec::tracepoint(("task", "task_newtask"), NAMES, &[], &["pid", "clone_flags"], cloned)
    },
    waking("sys_exit_open"),
    waking("sys_exit_openat"),
    waking("sys_exit_openat2"),
    waking("sys_exit_creat"),
    Spec::tracepoint((probe::SYSTEM, probe::OPEN), NAMES, &[tell::CREATE], &["name"], calls::named),
];

const fn waking(name: &'static str) -> Spec {
    Spec { wakes: true, ..row(name, NAMES, &[tell::END], &["ret"], calls::ended) }
}

/// A process was made, or a thread, that has the descriptors of who made it.
fn cloned(state: &mut All, event: &Event<'_>, _: &mut Out<'_>) {
    const FILES: u64 = libc::CLONE_FILES as u64;
    const THREAD: u64 = libc::CLONE_THREAD as u64;
    let (child, flags) = (event.u32(0), event.u64(1));
    if flags & (FILES | THREAD) == FILES {
        state.files.openings.share_all(event.sample.pid, child);
    }
}

/// Behind those who know which threads there are.
pub(crate) fn on_other(state: &mut All, context: &Context, other: &Other<'_>, out: &mut Out<'_>) {
    if !state.groups.has_any(NAMES) {
        return;
    }
    let (files, groups) = (&mut state.files, state.groups);
    tell::names(&mut files.openings, context.time, out);
    let ended = match *other {
        Other::Fork { pid, ppid, .. } if pid != ppid => return files.openings.fork(ppid, pid),
        Other::Comm { pid, is_exec: true, .. } => files.openings.exec(pid),
        Other::Exit { pid, tid, .. } => {
            files.calls.forget(tid);
            // Descriptors are those of all threads, of which the first may be gone long before the last.
            if state.tasks.knows(pid) {
                return;
            }
            files.openings.exit(pid)
        }
        _ => return,
    };
    for ended in ended {
        let irps = [files.calls.next_irp(), files.calls.next_irp()];
        tell::closing(groups, &irps, ended.key, context.tid, out);
        irps.iter().for_each(|irp| tell::end(groups, *irp, 0, 0, out));
        tell::name_deleted(&ended, out);
    }
}

/// Records were lost, a close among them perhaps: descriptors are looked up again.
pub(crate) fn forget(state: &mut All) {
    state.files.openings.forget_all();
    state.files.calls.forget_all();
}

/// Between looks: what is not watched any more changes unseen.
pub(crate) fn beside(state: &mut All) {
    if !state.groups.has_any(NAMES) {
        forget(state);
        state.files.is_scanned = false;
    } else if !state.groups.has_any(OPERATIONS) {
        state.files.openings.forget_positions();
    }
}

/// Tells what is open: what /proc shows when the capture begins or names are switched on, and what is known then.
pub(crate) fn run_down(state: &mut All, when: Rundown, out: &mut Out<'_>) {
    if !state.groups.has_any(NAMES) {
        return;
    }
    let files = &mut state.files;
    if when == Rundown::Start && !std::mem::replace(&mut files.is_scanned, true) {
        look::all(|process, descriptor, name| files.openings.found(process, descriptor, name));
    }
    let hook = if when == Rundown::Start { tell::NAME } else { tell::NAME_RUNDOWN };
    for (key, name) in files.openings.named() {
        tell::name(hook, key, name, out);
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
        // Above the largest id that Linux gives.
        let (process, thread) = (5_000_000, 5_000_001);
        let Group(names) = Group::DISK_FILE_IO;
        let mut state = All { groups: Groups([names, 0, 0, 0, 0, 0, 0, 0]), ..All::default() };
        let (mut queues, beside, mut too_large) = ([Queue::default()], Beside::default(), 0);
        let mut out = Out::new(&mut queues, &Plain, &beside, &mut too_large);
        let mut hear = |state: &mut All, other| {
            let context = Context { time: 1, pid: process, tid: process };
            crate::family::on_other(state, &context, &other, &mut out);
        };
        hear(&mut state, Other::Fork { pid: process, ppid: 1, tid: process, ptid: 1 });
        hear(&mut state, Other::Fork { pid: process, ppid: process, tid: thread, ptid: process });
        state.files.openings.found(process, 3, "/a".into());
        hear(&mut state, Other::Exit { pid: process, ppid: 1, tid: process });
        assert_eq!(state.files.openings.named().count(), 1, "another thread has it open");
        hear(&mut state, Other::Exit { pid: process, ppid: 1, tid: thread });
        assert_eq!(state.files.openings.named().count(), 0);
    }
}
