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
//!    descriptor. A file that was closed sooner has no name, unless the kprobe reported the path.
//! 3. Only files that have a path are captured: no sockets, no pipes.
//! 4. Only system calls are captured: accesses to mapped files and operations of io_uring are not.
//! 5. All state is bounded. A descriptor that was dropped at a bound is looked up again when it is
//!    used, and its open file gets a new number. After lost records, all descriptors are dropped.

mod calls;
mod open_files;
mod payload;
mod pending_calls;
pub(crate) mod probe;
mod proc_fd;
mod status;
mod tables;

use traceweir_format::kernel::hook;

use self::open_files::OpenFiles;
use super::{Context, EventFamily, Row, Rundown, SampleHandler};
use crate::groups::Group;
use crate::out::Out;
use crate::record::{Sideband, SidebandRecord};
use crate::spec::SampleEvent;

/// The file family: open files, and the calls in progress.
#[derive(Debug, Default)]
pub(crate) struct FileFamily {
    open_files: OpenFiles,
    calls: pending_calls::PendingCalls,
    /// Whether the files that were open when the capture began, or when names were enabled, have
    /// been scanned.
    is_scanned: bool,
}

/// Groups for which file names are written.
pub(crate) const NAME_GROUPS: &[Group] = &[Group::DISK_FILE_IO, Group::FILE_IO, Group::FILE_IO_INIT];
/// Groups for which operations are written.
const OPERATION_GROUPS: &[Group] = &[Group::FILE_IO, Group::FILE_IO_INIT];

/// Builds the row for the entry or the exit of a system call.
const fn syscall_row(
    name: &'static str,
    groups: &'static [Group],
    hooks: &'static [u16],
    fields: &'static [&'static str],
    on_sample: SampleHandler<FileFamily>,
) -> Row<FileFamily> {
    Row::tracepoint(("syscalls", name), groups, hooks, fields, on_sample)
}

/// Builds the row for the exit of an open call. It wakes the session, because `/proc` shows a
/// descriptor only while it is open.
const fn open_exit_row(name: &'static str) -> Row<FileFamily> {
    syscall_row(name, NAME_GROUPS, &[hook::FILE_OPERATION_END], &["ret"], FileFamily::exit).with_wakeup()
}

/// Builds the rows for entry and exit of each system call, and appends further rows.
macro_rules! rows {
    ($($name:literal $groups:ident $hooks:tt $fields:tt $on:path;)* [$($further:expr,)*]) => {
        &[
            $(
                syscall_row(concat!("sys_enter_", $name), $groups, &$hooks, &$fields, $on),
                syscall_row(concat!("sys_exit_", $name), $groups, &[hook::FILE_OPERATION_END], &["ret"], FileFamily::exit),
            )*
            $($further,)*
        ]
    };
}

/// System calls on files: name, groups, hook ids of the entry, fields, handler of the entry. Each
/// row slows a call of programs, so there are as few rows as possible.
///
/// Handlers read fields by index: `?` fills an index that the call has no field for, and a name
/// with `?` is optional.
static ROWS: &[Row<FileFamily>] = rows! {
    "close" NAME_GROUPS [hook::FILE_CLEANUP, hook::FILE_CLOSE] ["fd"] FileFamily::close;
    "close_range" NAME_GROUPS [hook::FILE_CLEANUP, hook::FILE_CLOSE] ["fd", "max_fd", "flags"] FileFamily::close_range;
    "dup" NAME_GROUPS [] ["fildes"] FileFamily::dup;
    "dup2" NAME_GROUPS [] ["oldfd", "newfd"] FileFamily::dup2;
    "dup3" NAME_GROUPS [] ["oldfd", "newfd", "flags"] FileFamily::dup2;
    "lseek" OPERATION_GROUPS [] ["fd"] FileFamily::seek;
    "read" OPERATION_GROUPS [hook::FILE_READ] ["fd", "count"] FileFamily::read;
    "readv" OPERATION_GROUPS [hook::FILE_READ] ["fd"] FileFamily::read;
    "pread64" OPERATION_GROUPS [hook::FILE_READ] ["fd", "count", "pos"] FileFamily::read;
    "preadv" OPERATION_GROUPS [hook::FILE_READ] ["fd", "?", "pos_l"] FileFamily::read;
    "preadv2" OPERATION_GROUPS [hook::FILE_READ] ["fd", "?", "pos_l"] FileFamily::read;
    "write" OPERATION_GROUPS [hook::FILE_WRITE] ["fd", "count"] FileFamily::write;
    "writev" OPERATION_GROUPS [hook::FILE_WRITE] ["fd"] FileFamily::write;
    "pwrite64" OPERATION_GROUPS [hook::FILE_WRITE] ["fd", "count", "pos"] FileFamily::write;
    "pwritev" OPERATION_GROUPS [hook::FILE_WRITE] ["fd", "?", "pos_l"] FileFamily::write;
    "pwritev2" OPERATION_GROUPS [hook::FILE_WRITE] ["fd", "?", "pos_l"] FileFamily::write;
    "sendfile64" OPERATION_GROUPS [hook::FILE_READ, hook::FILE_WRITE] ["in_fd", "out_fd", "count", "offset"] FileFamily::copy;
    "copy_file_range" OPERATION_GROUPS [hook::FILE_READ, hook::FILE_WRITE] ["fd_in", "fd_out", "len", "off_in", "off_out"] FileFamily::copy;
    "fsync" OPERATION_GROUPS [hook::FILE_FLUSH] ["fd"] FileFamily::flush;
    "fdatasync" OPERATION_GROUPS [hook::FILE_FLUSH] ["fd"] FileFamily::flush;
    "ftruncate" OPERATION_GROUPS [hook::FILE_SET_INFO] ["fd", "length"] FileFamily::truncate;
    "truncate" OPERATION_GROUPS [hook::FILE_SET_INFO] ["?fd", "length"] FileFamily::truncate;
    "fallocate" OPERATION_GROUPS [hook::FILE_SET_INFO] ["fd", "len"] FileFamily::allocate;
    "fchmod" OPERATION_GROUPS [hook::FILE_SET_INFO] ["fd"] FileFamily::set_basic;
    "chmod" OPERATION_GROUPS [hook::FILE_SET_INFO] [] FileFamily::set_basic;
    "fchmodat" OPERATION_GROUPS [hook::FILE_SET_INFO] [] FileFamily::set_basic;
    "utimensat" OPERATION_GROUPS [hook::FILE_SET_INFO] [] FileFamily::set_basic;
    "newfstat" OPERATION_GROUPS [hook::FILE_QUERY_INFO] ["fd"] FileFamily::query;
    "unlink" OPERATION_GROUPS [hook::FILE_DELETE] [] FileFamily::delete;
    "unlinkat" OPERATION_GROUPS [hook::FILE_DELETE] [] FileFamily::delete;
    "rmdir" OPERATION_GROUPS [hook::FILE_DELETE] [] FileFamily::delete;
    "rename" OPERATION_GROUPS [hook::FILE_RENAME] [] FileFamily::rename;
    "renameat" OPERATION_GROUPS [hook::FILE_RENAME] [] FileFamily::rename;
    "renameat2" OPERATION_GROUPS [hook::FILE_RENAME] [] FileFamily::rename;
    "getdents64" OPERATION_GROUPS [hook::FILE_DIR_ENUM] ["fd", "count"] FileFamily::enumerate;
    [
        syscall_row("sys_enter_open", NAME_GROUPS, &[hook::FILE_CREATE], &["flags"], FileFamily::open),
        syscall_row("sys_enter_openat", NAME_GROUPS, &[hook::FILE_CREATE], &["flags"], FileFamily::open),
        syscall_row("sys_enter_openat2", NAME_GROUPS, &[hook::FILE_CREATE], &[], FileFamily::openat2),
        syscall_row("sys_enter_creat", NAME_GROUPS, &[hook::FILE_CREATE], &[], FileFamily::creat),
        // `F_DUPFD`, `F_SETFD` and `F_DUPFD_CLOEXEC`.
        syscall_row("sys_enter_fcntl", NAME_GROUPS, &[], &["fd", "cmd", "arg"], FileFamily::fcntl)
            .with_filter("cmd == 0 || cmd == 2 || cmd == 1030"),
        syscall_row("sys_exit_fcntl", NAME_GROUPS, &[], &["ret"], FileFamily::exit),
        // The FORK record does not say whether descriptors are shared. This tracepoint follows it
        // directly, before the child runs. The filter is `CLONE_FILES`.
        Row::tracepoint(("task", "task_newtask"), NAME_GROUPS, &[], &["pid", "clone_flags"], FileFamily::on_newtask)
            .with_filter("clone_flags & 0x400"),
        open_exit_row("sys_exit_open"),
        open_exit_row("sys_exit_openat"),
        open_exit_row("sys_exit_openat2"),
        open_exit_row("sys_exit_creat"),
        Row::tracepoint((probe::SYSTEM, probe::OPEN), NAME_GROUPS, &[hook::FILE_CREATE], &["name"], FileFamily::open_path),
    ]
};

impl EventFamily for FileFamily {
    fn rows() -> &'static [Row<Self>] {
        ROWS
    }

    /// Handles FORK, COMM and EXIT records. Must run after the process family, which knows the
    /// threads that are left.
    fn on_sideband(&mut self, record: &SidebandRecord<'_>, context: &mut Context, out: &mut Out<'_>) {
        let groups = context.groups;
        if !groups.has_any(NAME_GROUPS) {
            return;
        }
        payload::write_confirmed_names(&mut self.open_files, record.time, out);
        let closed = match record.body {
            Sideband::Fork { pid, ppid, .. } if pid != ppid => return self.open_files.fork(ppid, pid),
            Sideband::Comm { pid, is_exec: true, .. } => self.open_files.exec(pid),
            Sideband::Exit { pid, tid, .. } => {
                self.calls.remove(tid);
                // All threads share the descriptors, and the first thread may end long before the
                // last.
                if context.tasks.has_process(pid) {
                    return;
                }
                self.open_files.exit(pid)
            }
            _ => return,
        };
        for file in closed {
            let irps = [self.calls.next_irp(), self.calls.next_irp()];
            payload::write_close(groups, &irps, file.key, record.tid, out);
            irps.iter().for_each(|irp| payload::write_end(groups, *irp, 0, 0, out));
            payload::write_name_delete(&file, out);
        }
    }

    /// Writes the confirmed names of open files. Scans `/proc` first when the capture begins or
    /// names are enabled.
    fn run_down(&mut self, when: Rundown, context: &mut Context, out: &mut Out<'_>) {
        if !context.groups.has_any(NAME_GROUPS) {
            return;
        }
        if when == Rundown::Start && !std::mem::replace(&mut self.is_scanned, true) {
            let is_in_scope = |process| context.is_process_in_scope(process);
            proc_fd::scan_open_files(is_in_scope, |process, descriptor, name| {
                self.open_files.add_existing(process, descriptor, name);
            });
        }
        let hook = if when == Rundown::Start { hook::FILE_NAME } else { hook::FILE_NAME_RUNDOWN };
        for (key, name) in self.open_files.confirmed_names() {
            payload::write_name(hook, key, name, out);
        }
    }

    fn begin_poll(&mut self, context: &Context) {
        if !context.groups.has_any(NAME_GROUPS) {
            self.forget_after_loss();
            self.is_scanned = false;
        } else if !context.groups.has_any(OPERATION_GROUPS) {
            self.open_files.forget_positions();
        }
    }

    /// Drops all open files, because a close may have been lost: descriptors are looked up again.
    fn forget_after_loss(&mut self) {
        self.open_files.clear();
        self.calls.clear();
    }
}

impl FileFamily {
    /// Handles a new process that shares the descriptor table of its creator.
    fn on_newtask(&mut self, event: &SampleEvent<'_>, _: &mut Context, _: &mut Out<'_>) {
        const CLONE_FILES: u64 = libc::CLONE_FILES as u64;
        const CLONE_THREAD: u64 = libc::CLONE_THREAD as u64;
        let (child, flags) = (event.u32(0), event.u64(1));
        if flags & (CLONE_FILES | CLONE_THREAD) == CLONE_FILES {
            self.open_files.share_table(event.sample.pid, child);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::NanosecondClock;
    use crate::families::Families;
    use crate::groups::Groups;
    use crate::out::RecordQueue;
    use crate::settings::EventExtras;

    #[test]
    fn descriptors_are_open_until_the_last_thread_ends() {
        // Larger than the largest id that Linux assigns.
        let (process, thread) = (5_000_000, 5_000_001);
        let mut families = Families::default();
        families.context.groups = Groups::new(&[Group::DISK_FILE_IO]);
        let (mut queues, extras, mut lost_records) = ([RecordQueue::default()], EventExtras::default(), 0);
        let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records);
        let mut handle = |families: &mut Families, body| {
            let record = SidebandRecord { time: 1, pid: process, tid: process, body };
            families.on_sideband(&record, &mut out);
        };
        let open_count = |families: &Families| families.files.open_files.confirmed_names().count();
        handle(&mut families, Sideband::Fork { pid: process, ppid: 1, tid: process, ptid: 1 });
        handle(&mut families, Sideband::Fork { pid: process, ppid: process, tid: thread, ptid: process });
        families.files.open_files.add_existing(process, 3, "/a".into());
        handle(&mut families, Sideband::Exit { pid: process, ppid: 1, tid: process });
        assert_eq!(open_count(&families), 1, "closed before the last thread ended");
        handle(&mut families, Sideband::Exit { pid: process, ppid: 1, tid: thread });
        assert_eq!(open_count(&families), 0);
    }
}
