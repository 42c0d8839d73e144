//! Processes and threads that are alive, by the records of the rings; `/proc` tells of those that were there before.
//!
//! ```text
//!   fork ──▶ child: program, user, place of its parent     exec ──▶ program, user, place anew     exit of the last thread ──▶ gone
//! ```
//!
//! T1 A thread is in the table of its process and in the index by id, or in neither. T2 A process is in the table as long as one of its threads is. T3 Keys are ids of
//! tasks, of which a machine has at most `kernel.pid_max` (4,194,304): the table cannot outgrow it. T4 What a scan of `/proc` finds while the record of its start may
//! still lie in a ring is *early*: it is told of only when it is certain that there is no such record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use traceweir_format::linux::{boot_key, start_key};

use super::connector::Connector;
use super::execs::{Exec, Execs};
use super::facts::{self, NO_SESSION, Name, Place, Program, Stat};
use crate::family::schedule::priority;
use crate::now_ns;

/// How far the times of records and the ticks of `/proc` may disagree.
const SLACK_NS: u64 = 30_000_000;
/// How long one look waits for programs that are being begun and messages that are on their way, at most.
const PATIENCE: Duration = Duration::from_millis(5);
const NAP: Duration = Duration::from_micros(50);

/// Processes and threads that are alive.
#[derive(Debug)]
pub(crate) struct Tasks {
    processes: BTreeMap<u32, Process>,
    /// The process of a thread.
    threads: BTreeMap<u32, u32>,
    /// Starts whose stack is still to come, by the thread that made the new one.
    pub(super) awaited: BTreeMap<u32, Awaited>,
    /// Threads whose end was told with its stack, until their exit record comes.
    pub(super) ended: BTreeSet<u32>,
    connector: Option<Connector>,
    execs: Option<Execs>,
    clock: BootClock,
    boot: u16,
    /// Whether the kernel tells us everything about everybody.
    may_trace: bool,
    /// Records up to here have been read.
    since: u64,
    /// When this look began.
    looked: u64,
    pub(super) looks: u32,
    pub(super) scans: u32,
    pub(super) has_early: bool,
    patience: Duration,
}

/// A process that is alive.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(super) start_ticks: u64,
    pub(super) key: u64,
    pub(super) parent: u32,
    pub(super) session: u32,
    pub(super) user: Option<u32>,
    /// Its id in the innermost namespace.
    pub(super) inner: Option<u32>,
    pub(super) program: Arc<Program>,
    pub(super) place: Arc<Place>,
    pub(super) threads: BTreeMap<u32, Thread>,
    /// The scan that saw it last.
    pub(super) seen: u32,
    /// The look that found it early.
    pub(super) early: Option<u32>,
}

/// A thread that is alive.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Thread {
    pub(super) name: Name,
    /// On Windows' scale.
    pub(super) priority: u8,
    /// The first 64 processors that it may run on; 0: not known.
    pub(super) affinity: u64,
    pub(super) seen: u32,
    pub(super) early: Option<u32>,
}

impl Thread {
    /// A thread as `/proc` has it.
    pub(super) fn found(tid: u32, stat: &Stat) -> Self {
        let (name, priority) = (stat.name, priority(stat.priority));
        Self { name, priority, affinity: facts::affinity(tid), ..Self::default() }
    }
}

/// A start whose stack is still to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Awaited {
    pub(super) creator: (u32, u32),
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) time: u64,
    pub(super) cpu: u16,
    pub(super) look: u32,
}

/// From the clock of records to the ticks of `/proc`.
#[derive(Clone, Copy, Debug)]
struct BootClock {
    /// What the clock since boot is ahead of that of records.
    ahead_ns: u64,
    tick_ns: u64,
}

impl BootClock {
    fn now() -> Self {
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(boot.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
        let boot = seconds.saturating_add(u64::try_from(boot.tv_nsec).unwrap_or(0));
        let hertz = rustix::param::clock_ticks_per_second().max(1);
        Self { ahead_ns: boot.wrapping_sub(now_ns()), tick_ns: 1_000_000_000_u64.div_euclid(hertz).max(1) }
    }

    fn ticks(self, ns: u64) -> u64 {
        ns.wrapping_add(self.ahead_ns).checked_div(self.tick_ns).unwrap_or(0)
    }
}

impl Default for Tasks {
    /// Made before the rings begin: what started before now is in none of them.
    fn default() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let now = now_ns();
        Self {
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            awaited: BTreeMap::new(),
            ended: BTreeSet::new(),
            connector: None,
            execs: None,
            clock: BootClock::now(),
            boot: boot_key(&boot),
            may_trace: facts::may_trace(),
            since: now,
            looked: now,
            looks: 0,
            scans: 0,
            has_early: false,
            patience: PATIENCE,
        }
    }
}

impl Tasks {
    /// All processes, by their ids.
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.processes.keys().copied()
    }

    /// The process of a thread, where it is known. The idle threads are those of process 0.
    pub(crate) fn process_of(&self, thread: u32) -> Option<u32> {
        if thread == 0 { Some(0) } else { self.threads.get(&thread).copied() }
    }

    /// Whether a process is known to be alive.
    pub(crate) fn knows(&self, process: u32) -> bool {
        self.processes.contains_key(&process)
    }

    pub(super) fn get(&self, process: u32) -> Option<&Process> {
        self.processes.get(&process)
    }

    pub(super) fn get_mut(&mut self, process: u32) -> Option<&mut Process> {
        self.processes.get_mut(&process)
    }

    /// Where exit statuses are told.
    pub(super) fn connector(&mut self) -> &mut Connector {
        self.connector.get_or_insert_with(Connector::open)
    }

    /// Whether `/proc` tells us how a process ended.
    pub(super) fn may_know(&self, process: &Process) -> bool {
        self.may_trace || process.user == Some(rustix::process::geteuid().as_raw())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &Process)> {
        self.processes.iter().map(|(pid, process)| (*pid, process))
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = (u32, &mut Process)> {
        self.processes.iter_mut().map(|(pid, process)| (*pid, process))
    }

    pub(super) fn thread(&self, thread: u32) -> Option<&Thread> {
        self.get(self.process_of(thread)?)?.threads.get(&thread)
    }

    /// Begins a look. `are_wanted`: whether processes are told of, and not just known.
    pub(super) fn look(&mut self, are_wanted: bool) {
        self.looks = self.looks.wrapping_add(1);
        (self.since, self.looked) = (self.looked, now_ns());
        self.clock = BootClock::now();
        self.patience = PATIENCE;
        self.connector().look();
        if are_wanted {
            self.execs.get_or_insert_with(Execs::open).look();
        } else {
            self.execs = None;
        }
    }

    /// This look, where the record of a start at these ticks may not have been read yet.
    pub(super) fn early(&self, start_ticks: u64) -> Option<u32> {
        let is_early = start_ticks >= self.clock.ticks(self.since.saturating_sub(SLACK_NS));
        is_early.then_some(self.looks)
    }

    /// Puts a process into the table, in the place of one whose end nobody told.
    pub(super) fn insert(&mut self, pid: u32, process: Process) {
        self.remove(pid);
        self.processes.insert(pid, process);
    }

    pub(super) fn remove(&mut self, pid: u32) -> Option<Process> {
        let process = self.processes.remove(&pid)?;
        for tid in process.threads.keys() {
            self.threads.remove(tid);
        }
        Some(process)
    }

    /// Puts a thread into the table of its process, which is there.
    pub(super) fn insert_thread(&mut self, pid: u32, tid: u32, thread: Thread) {
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

    pub(super) fn remove_thread(&mut self, tid: u32) {
        if let Some(pid) = self.threads.remove(&tid)
            && let Some(process) = self.processes.get_mut(&pid)
        {
            process.threads.remove(&tid);
        }
    }

    /// A process as its parent makes it, at a time in nanoseconds.
    pub(super) fn child_of(&self, parent: u32, pid: u32, time: u64) -> Process {
        let start_ticks = self.clock.ticks(time);
        let key = start_key(self.boot, start_ticks, pid);
        match self.get(parent) {
            Some(by) => Process {
                start_ticks,
                key,
                parent,
                session: by.session,
                user: by.user,
                // It has an id of its own there, which is all that is not its parent's.
                inner: by.inner.and_then(|_| facts::status(pid)?.inner),
                program: Arc::clone(&by.program),
                place: Arc::clone(&by.place),
                threads: BTreeMap::new(),
                seen: 0,
                early: None,
            },
            None => {
                let stat = Stat { start_ticks, parent, ..facts::stat(&pid.to_string()).unwrap_or_default() };
                Process { start_ticks, key, parent, ..self.found(pid, &stat) }
            }
        }
    }

    /// A process as `/proc` has it.
    pub(super) fn found(&self, pid: u32, stat: &Stat) -> Process {
        let status = facts::status(pid).unwrap_or_default();
        Process {
            start_ticks: stat.start_ticks,
            key: start_key(self.boot, stat.start_ticks, pid),
            parent: stat.parent,
            session: facts::session(pid),
            user: status.user,
            inner: status.inner,
            program: Arc::new(facts::program(pid, stat.name.as_bytes(), false)),
            place: facts::place(pid, status.inner.is_some()),
            threads: BTreeMap::new(),
            seen: 0,
            early: None,
        }
    }

    /// The idle threads' process.
    pub(super) fn kernel_itself(&self) -> Process {
        let program = Program { image: b"swapper".to_vec(), ..Program::default() };
        Process {
            start_ticks: 0,
            key: start_key(self.boot, 0, 0),
            parent: 0,
            session: NO_SESSION,
            user: Some(0),
            inner: None,
            program: Arc::new(program),
            place: Arc::default(),
            threads: BTreeMap::new(),
            seen: 0,
            early: None,
        }
    }

    /// A process of which nothing is left but its id.
    pub(super) fn unknown(&self, pid: u32, parent: u32) -> Process {
        let mut process = match facts::stat(&pid.to_string()) {
            Some(stat) => self.found(pid, &stat),
            None => Process { session: NO_SESSION, ..self.found(pid, &Stat::default()) },
        };
        if parent != 0 {
            process.parent = parent;
        }
        process
    }

    /// A thread as another one makes it.
    pub(super) fn thread_of(&self, creator: u32, tid: u32) -> Thread {
        match self.thread(creator) {
            Some(by) => Thread { seen: 0, early: None, ..*by },
            None => facts::stat(&tid.to_string()).map(|stat| Thread::found(tid, &stat)).unwrap_or_default(),
        }
    }

    /// What a process is behind an exec at this time: another program, and whatever it became on the way there.
    pub(super) fn renew(&mut self, pid: u32, name: &[u8], time: u64) {
        let program = Arc::new(self.begun(pid, name, time));
        let status = facts::status(pid);
        let session = facts::session(pid);
        let place = status.map(|status| facts::place(pid, status.inner.is_some()));
        let Some(process) = self.get_mut(pid) else { return };
        process.program = program;
        if let (Some(status), Some(place)) = (status, place) {
            (process.user, process.inner, process.session) = (status.user, status.inner, session);
            process.place = place;
        }
    }

    /// The program that a process began at this time, by its new stack or by `/proc`.
    fn begun(&mut self, pid: u32, name: &[u8], time: u64) -> Program {
        loop {
            if let Some(exec) = self.execs.as_mut().and_then(|execs| execs.take(pid, time)) {
                return by_exec(name, exec);
            }
            let is_ready = facts::arguments(pid).is_none_or(|arguments| !arguments.is_empty());
            let has_ended = || facts::stat(&pid.to_string()).is_none_or(|stat| stat.is_zombie());
            // If not, it is still being begun, and has no arguments so far.
            if is_ready || has_ended() || !self.nap() {
                return facts::program(pid, name, true);
            }
        }
    }

    /// Waits a moment for something that is about to happen, as long as this look has patience.
    pub(super) fn nap(&mut self) -> bool {
        if self.patience.is_zero() {
            return false;
        }
        let begun = Instant::now();
        std::thread::sleep(NAP);
        self.patience = self.patience.saturating_sub(begun.elapsed());
        true
    }
}

/// A program by what came with its exec. Where its arguments are not known, the file that was asked for is all that is left of it.
fn by_exec(name: &[u8], exec: Exec) -> Program {
    let is_known = !exec.arguments.is_empty();
    let mut line = facts::command_line(if is_known { &exec.arguments } else { &exec.file_name }, true);
    if !is_known {
        line.push_str(" …");
    }
    let path = if exec.path.is_empty() { exec.file_name } else { exec.path };
    Program::new(if path.starts_with(b"/") { path } else { Vec::new() }, name, line)
}
