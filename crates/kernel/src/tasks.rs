//! Table of the processes and threads that are alive. Perf records keep it up to date; tasks that
//! started before the perf rings were opened come from `/proc`.
//!
//! ```text
//!   fork ──▶ child: program, user, package of its parent
//!   exec ──▶ program, user, package read anew
//!   exit of the last thread ──▶ removed
//! ```
//!
//! - T1 A thread is in the table of its process and in the index by id, or in neither.
//! - T2 A process is in the table as long as one of its threads is.
//! - T3 Keys are task ids, of which a machine has at most `kernel.pid_max` (4,194,304): that bounds
//!   the table.
//! - T4 A task is *unconfirmed* if a scan of `/proc` finds it while its start record may still lie
//!   in a perf ring, or if the first record that names it is not its start record. Its rundown is
//!   written only when it is certain that there is no start record.

mod connector;
mod execs;
pub(crate) mod facts;
mod scan;

pub(crate) use self::scan::Zombie;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use traceweir_format::linux::schedule::convert_priority;
use traceweir_format::linux::{boot_key, start_key};

use self::connector::Connector;
use self::execs::{Exec, Execs};
use self::facts::{AppIdentity, NO_SESSION, ProcStat, RunningProgram, ThreadName};
use crate::clock::{now_ns, read_clock_ns};

/// The exit status of a process whose status is unknown: no exit code and no signal has this value.
const UNKNOWN_STATUS: i32 = i32::MIN;

/// How far the times of records and the ticks of `/proc` may disagree.
const SLACK_NS: u64 = 30_000_000;
/// How long one poll waits in all for unfinished execs and for connector messages.
const MAX_WAIT_PER_POLL: Duration = Duration::from_millis(5);
const WAIT_STEP: Duration = Duration::from_micros(50);

/// The ids of a thread and of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskIds {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
}

/// The processes and threads that are alive.
#[derive(Debug)]
pub(crate) struct Tasks {
    processes: BTreeMap<u32, LiveProcess>,
    /// The process of each thread.
    threads: BTreeMap<u32, u32>,
    connector: Option<Connector>,
    execs: Option<Execs>,
    clock: BootClock,
    /// A hash of the boot id, for process keys.
    boot: u16,
    /// Whether this program has `CAP_SYS_PTRACE`, and so can read everything in `/proc`.
    can_trace: bool,
    /// All records up to this time have been read.
    read_until_ns: u64,
    /// When this poll began.
    poll_began_ns: u64,
    pub(crate) polls: u32,
    pub(crate) scans: u32,
    /// Whether the table contains unconfirmed tasks.
    pub(crate) has_unconfirmed: bool,
    remaining_wait: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct LiveProcess {
    pub(crate) start_ticks: u64,
    /// The `UniqueProcessKey` of process events.
    pub(crate) key: u64,
    pub(crate) parent: u32,
    /// The audit session of the login.
    pub(crate) session: u32,
    pub(crate) user: Option<u32>,
    /// The id in the innermost PID namespace.
    pub(crate) inner_pid: Option<u32>,
    pub(crate) program: Arc<RunningProgram>,
    pub(crate) app: Arc<AppIdentity>,
    pub(crate) threads: BTreeMap<u32, LiveThread>,
    /// Number of the last scan that saw the process; 0 if no scan has.
    pub(crate) seen_in_scan: u32,
    /// The poll that found the process, if it is unconfirmed.
    pub(crate) unconfirmed_poll: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LiveThread {
    pub(crate) name: ThreadName,
    /// The priority on the scale of Windows.
    pub(crate) priority: u8,
    /// Mask of the first 64 processors that the thread may run on; 0 if it is unknown.
    pub(crate) affinity: u64,
    pub(crate) seen_in_scan: u32,
    pub(crate) unconfirmed_poll: Option<u32>,
}

impl LiveThread {
    /// Builds a thread from its `/proc` files.
    fn from_proc(tid: u32, stat: &ProcStat) -> Self {
        let (name, priority) = (stat.name, convert_priority(stat.priority));
        Self { name, priority, affinity: facts::read_affinity(tid), ..Self::default() }
    }
}

/// Converts times of perf records to the clock ticks of `/proc`.
#[derive(Clone, Copy, Debug)]
struct BootClock {
    /// How far `CLOCK_BOOTTIME` is ahead of the clock of records.
    ahead_ns: u64,
    tick_ns: u64,
}

impl BootClock {
    fn now() -> Self {
        let boot_ns = read_clock_ns(rustix::time::ClockId::Boottime);
        let hertz = rustix::param::clock_ticks_per_second().max(1);
        Self { ahead_ns: boot_ns.wrapping_sub(now_ns()), tick_ns: 1_000_000_000_u64.div_euclid(hertz).max(1) }
    }

    fn to_ticks(self, ns: u64) -> u64 {
        ns.wrapping_add(self.ahead_ns).checked_div(self.tick_ns).unwrap_or(0)
    }
}

impl Default for Tasks {
    /// Must run before the perf rings are opened: a task that started before this call counts as
    /// one without a start record.
    fn default() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let now = now_ns();
        Self {
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            connector: None,
            execs: None,
            clock: BootClock::now(),
            boot: boot_key(&boot),
            can_trace: facts::has_cap_sys_ptrace(),
            read_until_ns: now,
            poll_began_ns: now,
            polls: 0,
            scans: 0,
            has_unconfirmed: false,
            remaining_wait: MAX_WAIT_PER_POLL,
        }
    }
}

impl Tasks {
    pub(crate) fn process_ids(&self) -> impl Iterator<Item = u32> {
        self.processes.keys().copied()
    }

    /// Returns the process of a thread, if it is known. The idle threads belong to process 0.
    pub(crate) fn find_process_of_thread(&self, thread: u32) -> Option<u32> {
        if thread == 0 { Some(0) } else { self.threads.get(&thread).copied() }
    }

    /// Returns whether a process is in the table.
    pub(crate) fn has_process(&self, process: u32) -> bool {
        self.processes.contains_key(&process)
    }

    pub(crate) fn get(&self, process: u32) -> Option<&LiveProcess> {
        self.processes.get(&process)
    }

    pub(crate) fn get_mut(&mut self, process: u32) -> Option<&mut LiveProcess> {
        self.processes.get_mut(&process)
    }

    /// Returns the process connector, which the first call opens.
    fn connector(&mut self) -> &mut Connector {
        self.connector.get_or_insert_with(Connector::open)
    }

    /// Drops the exit status of a thread that was not the last of its process.
    pub(crate) fn drop_exit_status(&mut self, thread: u32) {
        self.connector().remove_status(thread);
    }

    /// Returns the exit status of a process whose last thread was `tid`.
    pub(crate) fn find_exit_status(&mut self, TaskIds { pid, tid }: TaskIds, time: u64) -> i32 {
        let Some(process) = self.get(pid) else { return UNKNOWN_STATUS };
        let (start_ticks, can_read) = (process.start_ticks, self.can_read_exit_code(process));
        loop {
            if let Some(status) = self.connector().take_status(tid, time) {
                return connector::to_exit_status(status);
            }
            // `/proc` has the code until the parent has waited for the process; after that the
            // connector's message has arrived or is on its way. Ticks computed from a record may
            // be off by one; a larger difference means that another process has the id.
            let stat =
                facts::read_stat(&pid.to_string()).filter(|stat| stat.start_ticks.abs_diff(start_ticks) <= 1);
            if let Some(stat) = stat {
                return status_from_code(stat.exit_code, can_read);
            }
            self.connector().drain();
            if let Some(status) = self.connector().take_status(tid, time) {
                return connector::to_exit_status(status);
            }
            if !self.connector().is_open() || !self.wait_briefly() {
                return UNKNOWN_STATUS;
            }
        }
    }

    /// Returns whether this program may read the exit code of `process` in `/proc`.
    fn can_read_exit_code(&self, process: &LiveProcess) -> bool {
        self.can_trace || process.user == Some(rustix::process::geteuid().as_raw())
    }

    pub(crate) fn iter_processes(&self) -> impl Iterator<Item = (u32, &LiveProcess)> {
        self.processes.iter().map(|(pid, process)| (*pid, process))
    }

    fn iter_processes_mut(&mut self) -> impl Iterator<Item = (u32, &mut LiveProcess)> {
        self.processes.iter_mut().map(|(pid, process)| (*pid, process))
    }

    pub(crate) fn thread(&self, thread: u32) -> Option<&LiveThread> {
        self.get(self.find_process_of_thread(thread)?)?.threads.get(&thread)
    }

    /// Starts or stops the capture of the arguments of execs.
    pub(crate) fn set_exec_capture(&mut self, is_enabled: bool) {
        if is_enabled {
            self.execs.get_or_insert_with(Execs::open);
        } else {
            self.execs = None;
        }
    }

    /// Begins a poll.
    pub(crate) fn poll(&mut self) {
        self.polls = self.polls.wrapping_add(1);
        (self.read_until_ns, self.poll_began_ns) = (self.poll_began_ns, now_ns());
        self.clock = BootClock::now();
        self.remaining_wait = MAX_WAIT_PER_POLL;
        self.connector().poll();
        if let Some(execs) = &mut self.execs {
            execs.poll();
        }
    }

    /// Returns the number of this poll if the record of a start at these ticks may not have been
    /// read yet.
    fn poll_if_unconfirmed(&self, start_ticks: u64) -> Option<u32> {
        let is_unconfirmed = start_ticks >= self.clock.to_ticks(self.read_until_ns.saturating_sub(SLACK_NS));
        is_unconfirmed.then_some(self.polls)
    }

    /// Inserts a process and replaces one with the same id whose exit record was lost.
    pub(crate) fn insert(&mut self, pid: u32, process: LiveProcess) {
        self.remove(pid);
        self.processes.insert(pid, process);
    }

    pub(crate) fn remove(&mut self, pid: u32) -> Option<LiveProcess> {
        let process = self.processes.remove(&pid)?;
        for tid in process.threads.keys() {
            self.threads.remove(tid);
        }
        Some(process)
    }

    /// Inserts a thread into its process, if that is in the table.
    pub(crate) fn insert_thread(&mut self, pid: u32, tid: u32, thread: LiveThread) {
        if let Some(old) = self.threads.insert(tid, pid)
            && old != pid
            && let Some(process) = self.processes.get_mut(&old)
        {
            process.threads.remove(&tid);
            if process.threads.is_empty() {
                self.processes.remove(&old);
            }
        }
        if let Some(process) = self.processes.get_mut(&pid) {
            process.threads.insert(tid, thread);
        } else {
            self.threads.remove(&tid);
        }
    }

    pub(crate) fn remove_thread(&mut self, tid: u32) {
        if let Some(pid) = self.threads.remove(&tid)
            && let Some(process) = self.processes.get_mut(&pid)
        {
            process.threads.remove(&tid);
        }
    }

    /// Builds the child that `parent` forked at `time` (nanoseconds).
    pub(crate) fn build_child(&self, parent: u32, pid: u32, time: u64) -> LiveProcess {
        let start_ticks = self.clock.to_ticks(time);
        let key = start_key(self.boot, start_ticks, pid);
        match self.get(parent) {
            Some(creator) => LiveProcess {
                start_ticks,
                key,
                parent,
                session: creator.session,
                user: creator.user,
                // All other facts are inherited; this id has to be read.
                inner_pid: creator.inner_pid.and_then(|_| facts::read_status(pid)?.inner_pid),
                program: Arc::clone(&creator.program),
                app: Arc::clone(&creator.app),
                threads: BTreeMap::new(),
                seen_in_scan: 0,
                unconfirmed_poll: None,
            },
            None => {
                let stat = ProcStat {
                    start_ticks,
                    parent,
                    ..facts::read_stat(&pid.to_string()).unwrap_or_default()
                };
                LiveProcess { start_ticks, key, parent, ..self.process_from_proc(pid, &stat) }
            }
        }
    }

    /// Builds a process from its `/proc` files.
    fn process_from_proc(&self, pid: u32, stat: &ProcStat) -> LiveProcess {
        let status = facts::read_status(pid).unwrap_or_default();
        LiveProcess {
            start_ticks: stat.start_ticks,
            key: start_key(self.boot, stat.start_ticks, pid),
            parent: stat.parent,
            session: facts::read_audit_session(pid),
            user: status.user,
            inner_pid: status.inner_pid,
            program: Arc::new(facts::read_program(pid, stat.name.as_bytes(), false)),
            app: facts::read_app_identity(pid, status.inner_pid.is_some()),
            threads: BTreeMap::new(),
            seen_in_scan: 0,
            unconfirmed_poll: None,
        }
    }

    /// Builds the process of the idle threads.
    pub(crate) fn build_idle_process(&self) -> LiveProcess {
        let program = RunningProgram { image: b"swapper".to_vec(), ..RunningProgram::default() };
        LiveProcess {
            start_ticks: 0,
            key: start_key(self.boot, 0, 0),
            parent: 0,
            session: NO_SESSION,
            user: Some(0),
            inner_pid: None,
            program: Arc::new(program),
            app: Arc::default(),
            threads: BTreeMap::new(),
            seen_in_scan: 0,
            unconfirmed_poll: None,
        }
    }

    /// Builds a process without a start record from the facts that `/proc` still shows; a `parent`
    /// other than 0 takes precedence.
    pub(crate) fn read_process(&self, pid: u32, parent: u32) -> LiveProcess {
        let mut process = match facts::read_stat(&pid.to_string()) {
            Some(stat) => self.process_from_proc(pid, &stat),
            None => LiveProcess { session: NO_SESSION, ..self.process_from_proc(pid, &ProcStat::default()) },
        };
        if parent != 0 {
            process.parent = parent;
        }
        process
    }

    /// Builds a thread that inherits from its creator; if that is unknown, from `/proc`.
    pub(crate) fn build_thread(&self, creator: u32, tid: u32) -> LiveThread {
        match self.thread(creator) {
            Some(creator) => LiveThread { seen_in_scan: 0, unconfirmed_poll: None, ..*creator },
            None => facts::read_stat(&tid.to_string())
                .map(|stat| LiveThread::from_proc(tid, &stat))
                .unwrap_or_default(),
        }
    }

    /// Updates a process after an exec at `time`: its program, and user, session and package, which
    /// may have changed since the fork.
    pub(crate) fn update_after_exec(&mut self, pid: u32, name: &[u8], time: u64) {
        let program = Arc::new(self.find_program(pid, name, time));
        let status = facts::read_status(pid);
        let session = facts::read_audit_session(pid);
        let app = status.map(|status| facts::read_app_identity(pid, status.inner_pid.is_some()));
        let Some(process) = self.get_mut(pid) else { return };
        process.program = program;
        if let (Some(status), Some(app)) = (status, app) {
            (process.user, process.inner_pid, process.session) = (status.user, status.inner_pid, session);
            process.app = app;
        }
    }

    /// Returns the program that a process executed at `time`, from the arguments that perf copied
    /// at the exec ([`Execs`]) or from `/proc`.
    fn find_program(&mut self, pid: u32, name: &[u8], time: u64) -> RunningProgram {
        loop {
            if let Some(exec) = self.execs.as_mut().and_then(|execs| execs.take_exec(pid, time)) {
                return program_from_exec(name, exec);
            }
            let is_ready = facts::read_arguments(pid).is_none_or(|arguments| !arguments.is_empty());
            let has_ended = || facts::read_stat(&pid.to_string()).is_none_or(|stat| stat.is_zombie());
            // Empty arguments of a running process mean that the exec is not finished yet.
            if is_ready || has_ended() || !self.wait_briefly() {
                return facts::read_program(pid, name, true);
            }
        }
    }

    /// Sleeps for a moment. Returns false, without sleeping, once this poll has used up its waiting
    /// time.
    fn wait_briefly(&mut self) -> bool {
        if self.remaining_wait.is_zero() {
            return false;
        }
        let start = Instant::now();
        std::thread::sleep(WAIT_STEP);
        self.remaining_wait = self.remaining_wait.saturating_sub(start.elapsed());
        true
    }
}

/// Converts the exit code of `/proc/PID/stat`, which is also 0 for readers without permission.
fn status_from_code(code: u32, can_read: bool) -> i32 {
    if code == 0 && !can_read { UNKNOWN_STATUS } else { connector::to_exit_status(code) }
}

/// Builds a program from its exec. If the arguments are unknown, the path passed to `execve`,
/// followed by " …", is the command line.
fn program_from_exec(name: &[u8], exec: Exec) -> RunningProgram {
    let has_arguments = !exec.arguments.is_empty();
    let mut line = facts::join_arguments(if has_arguments { &exec.arguments } else { &exec.file_name }, true);
    if !has_arguments {
        line.push_str(" …");
    }
    let path = if exec.path.is_empty() { exec.file_name } else { exec.path };
    RunningProgram::new(if path.starts_with(b"/") { path } else { Vec::new() }, name, line)
}
