//! Processes and threads.
//!
//! ```text
//!   before the first time   FORK, COMM, EXIT fill the table; then the rundown: 0x0303, 0x0503
//!   FORK   new process ──▶ 0x0301 process start with the name of its parent, 0x0501 thread start
//!          new thread  ──▶ 0x0501
//!   COMM   exec        ──▶ 0x0502, 0x0302 end, 0x0301, 0x0501 start, all at the same time
//!          otherwise   ──▶ 0x0548 thread name
//!   EXIT               ──▶ 0x0502; the last thread of its process: 0x0302
//!   an unknown thread in any other record ──▶ its rundown
//! ```
//!
//! 1. A process has the name (`comm`) of its first thread: a recording has neither the command line
//!    nor the user, and reports no exit status.
//! 2. The table is bounded. Tasks beyond the limit are written, but not kept.

use std::collections::BTreeMap;

use traceweir_format::etl::WriteAt;
use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;
use traceweir_format::security::Sid;

use super::output::{Moment, TaskIds, TraceOutput};

const PROCESS_LAYOUT: PayloadLayout = PayloadLayout::shared(
    &[hook::PROCESS_START, hook::PROCESS_END, hook::PROCESS_DC_START, hook::PROCESS_DC_END],
    4,
);
const THREAD_LAYOUT: PayloadLayout = PayloadLayout::shared(
    &[hook::THREAD_START, hook::THREAD_END, hook::THREAD_DC_START, hook::THREAD_DC_END],
    3,
);
const THREAD_NAME_LAYOUT: PayloadLayout = PayloadLayout::new(hook::THREAD_SET_NAME, 2);

/// The exit status of a process that runs.
const STILL_ACTIVE: i32 = 259;
/// The session of a process without one.
const NO_SESSION: u32 = u32::MAX;
/// The most processes and threads that are kept.
const MAX_PROCESSES: usize = 1 << 16;
const MAX_THREADS: usize = 1 << 18;
/// The longest name in bytes. Linux keeps 15.
const MAX_NAME_BYTES: usize = 64;
/// The name of the idle threads of all processors, as perf prints it.
const IDLE_NAME: &[u8] = b"swapper";

type WriteResult = traceweir_format::Result<()>;

#[derive(Debug, Default)]
struct Process {
    parent: u32,
    name: Box<[u8]>,
    threads: u32,
    /// Tells apart the processes that had the same id.
    key: u64,
}

#[derive(Debug, Default)]
struct Thread {
    pid: u32,
    name: Box<[u8]>,
}

/// The processes and threads that exist.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    processes: BTreeMap<u32, Process>,
    threads: BTreeMap<u32, Thread>,
    /// Whether the rundown has been written.
    is_running: bool,
    last_key: u64,
    payload: Vec<u8>,
}

fn is_valid(id: u32) -> bool {
    id != u32::MAX
}

fn shorten(name: &[u8]) -> Box<[u8]> {
    name.get(..MAX_NAME_BYTES).unwrap_or(name).into()
}

impl Tasks {
    /// Writes the rundown of all tasks before the first event with a time.
    pub(super) fn begin<W: WriteAt>(&mut self, at: Moment, out: &mut TraceOutput<W>) -> WriteResult {
        if std::mem::replace(&mut self.is_running, true) {
            return Ok(());
        }
        self.add_process(0, 0, IDLE_NAME);
        self.add_thread(TaskIds::default(), IDLE_NAME);
        let Self { processes, threads, payload, .. } = self;
        for (pid, process) in &*processes {
            write_process(hook::PROCESS_DC_START, TaskIds::default(), (*pid, process), at, payload, out)?;
        }
        for (tid, thread) in &*threads {
            let ids = TaskIds { pid: thread.pid, tid: *tid };
            write_thread(hook::THREAD_DC_START, ids, ids, &thread.name, at, payload, out)?;
        }
        Ok(())
    }

    /// Writes the rundown of a thread, and of its process, that no record has named before.
    pub(super) fn ensure<W: WriteAt>(
        &mut self,
        ids: TaskIds,
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> WriteResult {
        let TaskIds { pid, tid } = ids;
        if !self.is_running || !is_valid(pid) || !is_valid(tid) {
            return Ok(());
        }
        // Each processor has an idle thread with the id 0.
        if self.threads.get(&tid).is_some_and(|thread| thread.pid == pid) || tid == 0 {
            return Ok(());
        }
        if self.threads.len() >= MAX_THREADS {
            return Ok(());
        }
        if !self.processes.contains_key(&pid) {
            self.add_process(pid, 0, &[]);
            let Self { processes, payload, .. } = self;
            if let Some(process) = processes.get(&pid) {
                write_process(hook::PROCESS_DC_START, TaskIds::default(), (pid, process), at, payload, out)?;
            }
        }
        self.remove_thread(tid);
        self.add_thread(ids, &[]);
        write_thread(hook::THREAD_DC_START, ids, ids, &[], at, &mut self.payload, out)
    }

    /// Handles a new process or thread.
    pub(super) fn on_fork<W: WriteAt>(
        &mut self,
        creator: TaskIds,
        ids: TaskIds,
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> WriteResult {
        let TaskIds { pid, tid } = ids;
        if !is_valid(pid) || !is_valid(tid) || tid == 0 {
            return Ok(());
        }
        if !self.is_running {
            self.learn_task(creator.pid, ids);
            return Ok(());
        }
        let name = self.threads.get(&creator.tid).map(|thread| thread.name.clone()).unwrap_or_default();
        let is_new_process = pid == tid;
        if is_new_process {
            let program = self.processes.get(&creator.pid).map(|parent| parent.name.clone());
            self.add_process(pid, creator.pid, program.as_deref().unwrap_or(&name));
        } else {
            self.ensure_process(pid, at, out)?;
        }
        self.remove_thread(tid);
        self.add_thread(ids, &name);
        let Self { processes, payload, .. } = self;
        if is_new_process && let Some(process) = processes.get(&pid) {
            write_process(hook::PROCESS_START, creator, (pid, process), at, payload, out)?;
        }
        write_thread(hook::THREAD_START, creator, ids, &name, at, payload, out)
    }

    /// Adds a task that existed before the recording. Its name may be known already.
    fn learn_task(&mut self, parent: u32, ids: TaskIds) {
        let TaskIds { pid, tid } = ids;
        if !self.processes.contains_key(&pid) {
            self.add_process(pid, 0, &[]);
        }
        if pid == tid
            && let Some(process) = self.processes.get_mut(&pid)
        {
            process.parent = parent;
        }
        if !self.threads.contains_key(&tid) {
            self.add_thread(ids, &[]);
        }
    }

    fn ensure_process<W: WriteAt>(&mut self, pid: u32, at: Moment, out: &mut TraceOutput<W>) -> WriteResult {
        if self.processes.contains_key(&pid) {
            return Ok(());
        }
        self.add_process(pid, 0, &[]);
        let Self { processes, payload, .. } = self;
        let Some(process) = processes.get(&pid) else { return Ok(()) };
        write_process(hook::PROCESS_DC_START, TaskIds::default(), (pid, process), at, payload, out)
    }

    /// Handles a new name of a thread.
    pub(super) fn on_comm<W: WriteAt>(
        &mut self,
        ids: TaskIds,
        name: &[u8],
        is_exec: bool,
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> WriteResult {
        let TaskIds { pid, tid } = ids;
        if !is_valid(pid) || !is_valid(tid) || tid == 0 {
            return Ok(());
        }
        if !self.is_running {
            if !self.processes.contains_key(&pid) {
                self.add_process(pid, 0, name);
            }
            self.rename(ids, name);
            return Ok(());
        }
        self.ensure(ids, at, out)?;
        if is_exec {
            return self.on_exec(pid, name, at, out);
        }
        self.rename(ids, name);
        self.payload.clear();
        put_kernel_event!(
            &mut self.payload,
            THREAD_NAME_LAYOUT,
            { ProcessId: pid, ThreadId: tid },
            { ThreadName: &*String::from_utf8_lossy(&shorten(name)) }
        );
        let event = (hook::THREAD_SET_NAME, THREAD_NAME_LAYOUT.version());
        out.write_system(at, event, ids, &self.payload).map(drop)
    }

    /// Handles the end of one program and the start of the next in a process. The thread that is
    /// left has the id of the process.
    fn on_exec<W: WriteAt>(
        &mut self,
        pid: u32,
        name: &[u8],
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> WriteResult {
        let ids = TaskIds { pid, tid: pid };
        let parent = self.processes.get(&pid).map_or(0, |process| process.parent);
        if let Some(thread) = self.threads.get(&pid) {
            write_thread(hook::THREAD_END, ids, ids, &thread.name, at, &mut self.payload, out)?;
        }
        self.write_process_end(ids, at, out)?;
        self.remove_thread(pid);
        self.add_process(pid, parent, name);
        self.add_thread(ids, name);
        let Self { processes, payload, .. } = self;
        if let Some(process) = processes.get(&pid) {
            write_process(hook::PROCESS_START, ids, (pid, process), at, payload, out)?;
        }
        write_thread(hook::THREAD_START, ids, ids, name, at, payload, out)
    }

    fn write_process_end<W: WriteAt>(
        &mut self,
        ids: TaskIds,
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> WriteResult {
        let Self { processes, payload, .. } = self;
        let Some(process) = processes.get(&ids.pid) else { return Ok(()) };
        write_process(hook::PROCESS_END, ids, (ids.pid, process), at, payload, out)
    }

    /// Handles the end of a thread. Returns whether its process ended.
    pub(super) fn on_exit<W: WriteAt>(
        &mut self,
        ids: TaskIds,
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> traceweir_format::Result<bool> {
        let TaskIds { pid, tid } = ids;
        if !is_valid(pid) || !is_valid(tid) || tid == 0 {
            return Ok(false);
        }
        self.ensure(ids, at, out)?;
        let Some(thread) = self.remove_thread(tid) else { return Ok(false) };
        if self.is_running {
            write_thread(hook::THREAD_END, ids, ids, &thread.name, at, &mut self.payload, out)?;
        }
        let has_ended = self.processes.get(&pid).is_some_and(|process| process.threads == 0);
        if has_ended {
            if self.is_running {
                self.write_process_end(ids, at, out)?;
            }
            self.processes.remove(&pid);
        }
        Ok(has_ended)
    }

    fn add_process(&mut self, pid: u32, parent: u32, name: &[u8]) {
        self.last_key = self.last_key.wrapping_add(1);
        let threads = self.processes.get(&pid).map_or(0, |process| process.threads);
        let process = Process { parent, name: shorten(name), threads, key: self.last_key };
        if self.processes.len() < MAX_PROCESSES || self.processes.contains_key(&pid) {
            self.processes.insert(pid, process);
        }
    }

    fn add_thread(&mut self, ids: TaskIds, name: &[u8]) {
        if self.threads.len() >= MAX_THREADS {
            return;
        }
        self.threads.insert(ids.tid, Thread { pid: ids.pid, name: shorten(name) });
        if let Some(process) = self.processes.get_mut(&ids.pid) {
            process.threads = process.threads.saturating_add(1);
        }
    }

    fn remove_thread(&mut self, tid: u32) -> Option<Thread> {
        let thread = self.threads.remove(&tid)?;
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.threads = process.threads.saturating_sub(1);
        }
        Some(thread)
    }

    /// Renames a thread and, if it is the first of its process, the process.
    fn rename(&mut self, ids: TaskIds, name: &[u8]) {
        match self.threads.get_mut(&ids.tid) {
            Some(thread) => thread.name = shorten(name),
            None => self.add_thread(ids, name),
        }
        let is_first = ids.pid == ids.tid;
        // Once the process is written, a new name of the thread is no new program.
        if !self.is_running
            && is_first
            && let Some(process) = self.processes.get_mut(&ids.pid)
        {
            process.name = shorten(name);
        }
    }
}

fn write_process<W: WriteAt>(
    hook: u16,
    header_ids: TaskIds,
    (pid, process): (u32, &Process),
    at: Moment,
    payload: &mut Vec<u8>,
    out: &mut TraceOutput<W>,
) -> WriteResult {
    payload.clear();
    let user: Option<&Sid> = None;
    put_kernel_event!(
        payload,
        PROCESS_LAYOUT,
        {
            UniqueProcessKey: process.key,
            ProcessId: pid,
            ParentId: process.parent,
            SessionId: NO_SESSION,
            ExitStatus: if hook == hook::PROCESS_END { 0 } else { STILL_ACTIVE },
        },
        { UserSID: user, ImageFileName: &*process.name, CommandLine: "", PackageFullName: "", ApplicationId: "" }
    );
    let event = (hook, PROCESS_LAYOUT.version());
    // The header of a rundown event names no process.
    match hook {
        hook::PROCESS_DC_START => out.write_perfinfo(at, event, payload),
        _ => out.write_system(at, event, header_ids, payload),
    }
    .map(drop)
}

fn write_thread<W: WriteAt>(
    hook: u16,
    header_ids: TaskIds,
    ids: TaskIds,
    name: &[u8],
    at: Moment,
    payload: &mut Vec<u8>,
    out: &mut TraceOutput<W>,
) -> WriteResult {
    payload.clear();
    put_kernel_event!(
        payload,
        THREAD_LAYOUT,
        { ProcessId: ids.pid, TThreadId: ids.tid },
        { ThreadName: &*String::from_utf8_lossy(&shorten(name)) }
    );
    out.write_system(at, (hook, THREAD_LAYOUT.version()), header_ids, payload).map(drop)
}
