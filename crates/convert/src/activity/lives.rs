//! The processes and threads of all traces, with names, parents and lifetimes.
//!
//! ```text
//!   pid 42   ──start──[ editor ]──end──        ──start──[ shell ]────▶   ids are reused
//!   lookup   (machine, pid, time) ──▶ the process whose life contains the time, else the nearest one
//! ```
//!
//! L1  A process that executes another program ends and starts at the same time. It stays one
//!     process, with the name of the last program.
//! L2  Two traces of one machine may report the same start. Starts less than [`SAME_START_NS`] apart
//!     are one start.
//! L3  If no event describes a thread, its stacks name its process. A stack with another process
//!     shows that the id was reused: a new thread begins with it.
//! L4  The numbers of processes, of threads and of bytes of names are limited. Beyond the limits,
//!     events have no process or thread.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use traceweir_analysis::report::{LifeChange, ProcessEvent, ThreadEvent};
use traceweir_format::header::NO_ID;

/// Two traces stamp the same start of a process or thread less than this time apart.
const SAME_START_NS: i64 = 1_000_000;
const MAX_PROCESSES: usize = 1 << 16;
const MAX_THREADS: usize = 1 << 18;
/// The most lives of one id.
const MAX_LIVES_PER_ID: usize = 1 << 12;
const MAX_NAME_CHARS: usize = 400;
/// The most bytes of all names and command lines.
const MAX_TOTAL_NAME_BYTES: usize = 32 << 20;

/// Index of a process in [`Lives::processes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessIndex(pub u32);

/// Index of a thread in [`Lives::threads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadIndex(pub u32);

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Number of the machine; traces of one machine share the ids of processes and threads.
    pub machine: u16,
    /// Process id.
    pub pid: u32,
    /// Process id of the parent, if known.
    pub parent_pid: Option<u32>,
    /// Name of the last program, if known.
    pub name: Option<Arc<str>>,
    /// Command line of the last program, if known.
    pub command_line: Option<Arc<str>>,
    /// The span in which the process lived.
    pub life: Life,
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Number of the machine.
    pub machine: u16,
    /// Thread id.
    pub tid: u32,
    /// The process of the thread, if known.
    pub process: Option<ProcessIndex>,
    /// The last name of the thread, if it has one.
    pub name: Option<Arc<str>>,
    /// The span in which the thread lived.
    pub life: Life,
}

/// The start and the end of a process or thread, in nanoseconds since the first trace began; `None`
/// if the traces do not contain it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// When it started.
    pub start_ns: Option<i64>,
    /// When it ended.
    pub end_ns: Option<i64>,
}

impl Life {
    /// Returns the distance of a time to the life in nanoseconds; 0 inside.
    fn distance_ns(&self, time_ns: i64) -> u64 {
        match (self.start_ns, self.end_ns) {
            (Some(start), _) if time_ns < start => start.abs_diff(time_ns),
            (_, Some(end)) if time_ns > end => time_ns.abs_diff(end),
            _ => 0,
        }
    }
}

/// The machine and the time of an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineTime {
    pub(super) machine: u16,
    pub(super) time_ns: i64,
}

/// All processes and threads.
#[derive(Debug, Default)]
pub struct Lives {
    processes: Vec<Process>,
    threads: Vec<Thread>,
    by_pid: HashMap<(u16, u32), IdLives<ProcessIndex>>,
    by_tid: HashMap<(u16, u32), IdLives<ThreadIndex>>,
    /// The threads that no event describes, but stacks do.
    seen_in_stacks: HashSet<ThreadIndex>,
    name_bytes: usize,
    /// Number of times that a process or thread beyond the limits was needed.
    pub over_limit: u64,
}

impl Lives {
    /// Returns all processes. More are added while the traces are read, if their ids occur only in
    /// the headers of events.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Returns all threads; see [`Self::processes`].
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Returns a process.
    pub fn process(&self, index: ProcessIndex) -> Option<&Process> {
        self.processes.get(index.0 as usize)
    }

    /// Returns a thread.
    pub fn thread(&self, index: ThreadIndex) -> Option<&Thread> {
        self.threads.get(index.0 as usize)
    }

    /// Returns the process of a thread.
    pub fn process_of(&self, index: ThreadIndex) -> Option<ProcessIndex> {
        self.thread(index)?.process
    }

    /// Finds the process that has an id at a time.
    pub fn find_process(&self, machine: u16, pid: u32, time_ns: i64) -> Option<ProcessIndex> {
        let lives = self.by_pid.get(&(machine, pid))?;
        lives.nearest(time_ns, |index| self.process(index).map(|process| process.life))
    }

    /// Finds the thread that has an id at a time.
    pub fn find_thread(&self, machine: u16, tid: u32, time_ns: i64) -> Option<ThreadIndex> {
        let lives = self.by_tid.get(&(machine, tid))?;
        lives.nearest(time_ns, |index| self.thread(index).map(|thread| thread.life))
    }

    /// Finds the process that has an id at a time, and adds one of unknown name if there is none.
    pub(super) fn find_or_add_process(&mut self, at: MachineTime, pid: u32) -> Option<ProcessIndex> {
        if pid == NO_ID {
            return None;
        }
        match self.find_process(at.machine, pid, at.time_ns) {
            Some(index) => Some(index),
            None => self.add_process(at, pid, Life::default()),
        }
    }

    /// Finds the thread that has an id at a time, and adds one if there is none. `pid` is the process
    /// that the event names; it is used if no event of the traces names the process of the thread.
    pub(super) fn find_or_add_thread(
        &mut self,
        at: MachineTime,
        tid: u32,
        pid: Option<u32>,
    ) -> Option<ThreadIndex> {
        if tid == NO_ID {
            return None;
        }
        let process = match pid {
            Some(pid) => self.find_or_add_process(at, pid),
            // All idle threads have the id 0 and belong to process 0.
            None if tid == 0 => self.find_or_add_process(at, 0),
            None => None,
        };
        if let Some(index) = self.find_thread(at.machine, tid, at.time_ns) {
            if let Some(thread) = self.threads.get_mut(index.0 as usize)
                && thread.process.is_none()
            {
                thread.process = process;
            }
            return Some(index);
        }
        self.add_thread(at, tid, process, Life::default())
    }

    /// Learns from a stack to which process a thread belongs.
    pub(super) fn observe_stack(&mut self, at: MachineTime, tid: u32, pid: u32) {
        let known = self.threads.len();
        let Some(index) = self.find_or_add_thread(at, tid, Some(pid)) else { return };
        if self.threads.len() > known {
            self.seen_in_stacks.insert(index);
        }
        let Some(thread) = self.thread(index) else { return };
        let named_pid = thread.process.and_then(|process| self.process(process)).map(|process| process.pid);
        if named_pid.is_none_or(|named| named == pid) || !self.seen_in_stacks.contains(&index) {
            return;
        }
        let process = self.find_or_add_process(at, pid);
        let life = Life { start_ns: Some(at.time_ns), end_ns: None };
        let Some(next) = self.add_thread(at, tid, process, life) else { return };
        self.seen_in_stacks.insert(next);
        if let Some(thread) = self.threads.get_mut(index.0 as usize) {
            thread.life.end_ns = Some(at.time_ns.saturating_sub(1));
        }
    }

    fn add_process(&mut self, at: MachineTime, pid: u32, life: Life) -> Option<ProcessIndex> {
        let machine = at.machine;
        let index = ProcessIndex(u32::try_from(self.processes.len()).ok()?);
        let processes = &self.processes;
        let life_of = |index: ProcessIndex| processes.get(index.0 as usize).map(|process| process.life);
        // An id gets an entry only with its first life, so the number of entries is limited too.
        let has_room = processes.len() < MAX_PROCESSES
            && self.by_pid.entry((machine, pid)).or_default().add(index, life, at.time_ns, life_of);
        if !has_room {
            self.over_limit = self.over_limit.saturating_add(1);
            return None;
        }
        let (parent_pid, name, command_line) = (None, None, None);
        self.processes.push(Process { machine, pid, parent_pid, name, command_line, life });
        Some(index)
    }

    fn add_thread(
        &mut self,
        at: MachineTime,
        tid: u32,
        process: Option<ProcessIndex>,
        life: Life,
    ) -> Option<ThreadIndex> {
        let machine = at.machine;
        let index = ThreadIndex(u32::try_from(self.threads.len()).ok()?);
        let threads = &self.threads;
        let life_of = |index: ThreadIndex| threads.get(index.0 as usize).map(|thread| thread.life);
        let has_room = threads.len() < MAX_THREADS
            && self.by_tid.entry((machine, tid)).or_default().add(index, life, at.time_ns, life_of);
        if !has_room {
            self.over_limit = self.over_limit.saturating_add(1);
            return None;
        }
        self.threads.push(Thread { machine, tid, process, name: None, life });
        Some(index)
    }

    /// Learns from an event about a process.
    pub(super) fn observe_process(&mut self, at: MachineTime, event: &ProcessEvent) {
        let (pid, change) = (event.pid, event.change);
        let life_of = |index: ProcessIndex| self.process(index).map(|process| process.life);
        let lives = self.by_pid.get(&(at.machine, pid));
        let known = lives.and_then(|lives| lives.find_subject(at.time_ns, change, life_of));
        let Some(index) = known.or_else(|| self.add_process(at, pid, new_life(at.time_ns, change))) else {
            return;
        };
        let Some(process) = self.process(index) else { return };
        let is_replaced = change == LifeChange::Start;
        let needs_name = is_replaced || process.name.is_none();
        let needs_command_line = is_replaced || process.command_line.is_none();
        let name = needs_name.then(|| self.intern(&event.name)).flatten();
        let command_line = needs_command_line.then(|| self.intern(&event.command_line)).flatten();
        let Some(process) = self.processes.get_mut(index.0 as usize) else { return };
        change_life(&mut process.life, at.time_ns, change);
        process.parent_pid = event.parent_pid.filter(|parent| *parent != NO_ID).or(process.parent_pid);
        process.name = name.or(process.name.take());
        process.command_line = command_line.or(process.command_line.take());
    }

    /// Learns from an event about a thread.
    pub(super) fn observe_thread(&mut self, at: MachineTime, event: &ThreadEvent) {
        let (tid, change) = (event.tid, event.change);
        let life_of = |index: ThreadIndex| self.thread(index).map(|thread| thread.life);
        let lives = self.by_tid.get(&(at.machine, tid));
        let known = lives.and_then(|lives| lives.find_subject(at.time_ns, change, life_of));
        let process = event.pid.and_then(|pid| self.find_or_add_process(at, pid));
        let new = || new_life(at.time_ns, change);
        let Some(index) = known.or_else(|| self.add_thread(at, tid, process, new())) else { return };
        let name = self.intern(&event.name);
        let Some(thread) = self.threads.get_mut(index.0 as usize) else { return };
        self.seen_in_stacks.remove(&index);
        change_life(&mut thread.life, at.time_ns, change);
        thread.process = process.or(thread.process);
        thread.name = name.or(thread.name.take());
    }

    /// Shortens and stores a name; `None` if it is empty or the limit is reached.
    fn intern(&mut self, name: &str) -> Option<Arc<str>> {
        let name = name.trim_end();
        let end = name.char_indices().nth(MAX_NAME_CHARS).map_or(name.len(), |(end, _)| end);
        let name = name.get(..end).filter(|name| !name.is_empty())?;
        self.name_bytes = self.name_bytes.saturating_add(name.len());
        (self.name_bytes <= MAX_TOTAL_NAME_BYTES).then(|| Arc::from(name))
    }
}

/// The lives of one id, in the order of their begins.
#[derive(Debug)]
struct IdLives<I>(Vec<(i64, I)>);

impl<I> Default for IdLives<I> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<I: Copy> IdLives<I> {
    /// Returns the lives around a time: the last one that begins at or before it, and the next one.
    fn around(&self, time_ns: i64) -> [Option<I>; 2] {
        let next = self.0.partition_point(|(begin, _)| *begin <= time_ns);
        let get = |at: Option<usize>| at.and_then(|at| self.0.get(at)).map(|(_, index)| *index);
        [get(next.checked_sub(1)), get(Some(next))]
    }

    /// Returns the life that contains a time, else the nearest one.
    fn nearest(&self, time_ns: i64, life_of: impl Fn(I) -> Option<Life>) -> Option<I> {
        let distance = |index: &I| life_of(*index).unwrap_or_default().distance_ns(time_ns);
        self.around(time_ns).into_iter().flatten().min_by_key(distance)
    }

    /// Returns the life that an event is about; `None` if the event begins a new life.
    fn find_subject(
        &self,
        time_ns: i64,
        change: LifeChange,
        life_of: impl Fn(I) -> Option<Life>,
    ) -> Option<I> {
        let is_subject = |index: &I| {
            let life = life_of(*index).unwrap_or_default();
            match change {
                // The same start in another trace (L2), or another program of the same process (L1).
                LifeChange::Start => {
                    let is_same = |start: i64| start.abs_diff(time_ns) < SAME_START_NS.unsigned_abs();
                    life.start_ns.is_some_and(is_same) || life.end_ns == Some(time_ns)
                }
                LifeChange::End | LifeChange::Exists => life.distance_ns(time_ns) == 0,
            }
        };
        self.around(time_ns).into_iter().flatten().find(is_subject)
    }

    /// Adds a life that an event at a time is about. Without a start it begins when the id became
    /// free. Returns false if there are too many.
    fn add(&mut self, index: I, life: Life, time_ns: i64, life_of: impl Fn(I) -> Option<Life>) -> bool {
        if self.0.len() >= MAX_LIVES_PER_ID {
            return false;
        }
        let [previous, _] = self.around(time_ns);
        let free_since = previous.and_then(|previous| life_of(previous)?.end_ns);
        let begin = life.start_ns.or(free_since).unwrap_or(i64::MIN);
        let at = self.0.partition_point(|(other, _)| *other <= begin);
        self.0.insert(at, (begin, index));
        true
    }
}

const fn new_life(time_ns: i64, change: LifeChange) -> Life {
    match change {
        LifeChange::Start => Life { start_ns: Some(time_ns), end_ns: None },
        LifeChange::End => Life { start_ns: None, end_ns: Some(time_ns) },
        LifeChange::Exists => Life { start_ns: None, end_ns: None },
    }
}

fn change_life(life: &mut Life, time_ns: i64, change: LifeChange) {
    match change {
        LifeChange::Start if life.end_ns.is_some_and(|end| end <= time_ns) => life.end_ns = None,
        LifeChange::End => life.end_ns = Some(time_ns),
        LifeChange::Start | LifeChange::Exists => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time_ns: i64) -> MachineTime {
        MachineTime { machine: 0, time_ns }
    }

    fn process(change: LifeChange, pid: u32, name: &str) -> ProcessEvent {
        let (name, parent_pid, command_line) = (name.to_owned(), None, String::new());
        ProcessEvent { change, pid, parent_pid, name, command_line }
    }

    fn name_at(lives: &Lives, pid: u32, time_ns: i64) -> Option<&str> {
        lives.process(lives.find_process(0, pid, time_ns)?)?.name.as_deref()
    }

    #[test]
    fn reused_id_is_another_process() {
        let mut lives = Lives::default();
        lives.observe_process(at(0), &process(LifeChange::Exists, 7, "a"));
        lives.observe_process(at(10_000_000), &process(LifeChange::End, 7, "a"));
        lives.observe_process(at(20_000_000), &process(LifeChange::Start, 7, "b"));
        assert_eq!(lives.processes().len(), 2);
        assert_eq!((name_at(&lives, 7, 5), name_at(&lives, 7, 30_000_000)), (Some("a"), Some("b")));
        assert_eq!(name_at(&lives, 7, 11_000_000), Some("a"), "the nearest life must be found");
        assert_eq!(name_at(&lives, 8, 0), None);
    }

    #[test]
    fn program_execution_keeps_the_process() {
        let mut lives = Lives::default();
        lives.observe_process(at(10), &process(LifeChange::Start, 7, "sh"));
        lives.observe_process(at(5_000_000), &process(LifeChange::End, 7, "sh"));
        lives.observe_process(at(5_000_000), &process(LifeChange::Start, 7, "ls"));
        let life = Life { start_ns: Some(10), end_ns: None };
        assert_eq!(lives.processes().len(), 1);
        assert_eq!((name_at(&lives, 7, 20), lives.processes()[0].life), (Some("ls"), life));
    }

    #[test]
    fn two_traces_report_one_start() {
        let mut lives = Lives::default();
        lives.observe_process(at(5_000_000), &process(LifeChange::Start, 7, "a"));
        lives.observe_process(at(5_000_400), &process(LifeChange::Start, 7, "a"));
        lives.observe_process(at(9_000_000), &process(LifeChange::End, 7, "a"));
        assert_eq!(lives.processes().len(), 1);
        assert_eq!(lives.processes()[0].life, Life { start_ns: Some(5_000_000), end_ns: Some(9_000_000) });
    }

    #[test]
    fn stacks_of_a_reused_thread_id_name_its_processes() {
        let mut lives = Lives::default();
        let pid_at = |lives: &Lives, time_ns: i64| {
            let process = lives.process_of(lives.find_thread(0, 500, time_ns)?)?;
            Some(lives.process(process)?.pid)
        };
        for (time_ns, pid) in [(10, 100), (20, 100), (30, 200), (40, 200)] {
            lives.observe_stack(at(time_ns), 500, pid);
        }
        assert_eq!(
            [0, 10, 29, 30, 50].map(|time_ns| pid_at(&lives, time_ns)),
            [100, 100, 100, 200, 200].map(Some)
        );
        assert_eq!(lives.threads().len(), 2);
        // Events that describe the thread decide.
        let (change, name) = (LifeChange::Exists, String::new());
        lives.observe_thread(at(50), &ThreadEvent { change, pid: Some(200), tid: 500, name });
        lives.observe_stack(at(60), 500, 300);
        assert_eq!((pid_at(&lives, 60), lives.threads().len()), (Some(200), 2));
    }

    #[test]
    fn machines_have_their_own_ids() {
        let mut lives = Lives::default();
        lives.observe_process(at(0), &process(LifeChange::Exists, 7, "a"));
        let other = MachineTime { machine: 1, time_ns: 0 };
        lives.observe_process(other, &process(LifeChange::Exists, 7, "b"));
        assert_eq!(name_at(&lives, 7, 0), Some("a"));
        assert_eq!(lives.processes().len(), 2);
    }

    #[test]
    fn numbers_and_names_are_limited() {
        let mut lives = Lives::default();
        let long = "x".repeat(MAX_NAME_CHARS * 2);
        let (count, beyond) = (MAX_PROCESSES as u32, 10);
        for pid in 0..count + beyond {
            let command_line = long.clone();
            let event = ProcessEvent { command_line, ..process(LifeChange::Exists, pid, &long) };
            lives.observe_process(at(0), &event);
        }
        assert_eq!((lives.processes().len(), lives.by_pid.len()), (MAX_PROCESSES, MAX_PROCESSES));
        assert_eq!(lives.over_limit, u64::from(beyond));
        let names = lives.processes().iter().flat_map(|process| [&process.name, &process.command_line]);
        let bytes: usize = names.flatten().map(|name| name.len()).sum();
        // The names without the limit would be longer than the limit.
        const { assert!(2 * MAX_NAME_CHARS * MAX_PROCESSES > MAX_TOTAL_NAME_BYTES) };
        assert_eq!(bytes, MAX_TOTAL_NAME_BYTES / MAX_NAME_CHARS * MAX_NAME_CHARS);
        let mut reused = Lives::default();
        for time in 0..MAX_LIVES_PER_ID as i64 + 100 {
            reused.observe_process(at(time * 10_000_000), &process(LifeChange::Start, 7, "a"));
        }
        assert_eq!(reused.processes().len(), MAX_LIVES_PER_ID);
        let mut threads = Lives::default();
        for tid in 1..=MAX_THREADS as u32 + 10 {
            threads.find_or_add_thread(at(0), tid, None);
        }
        assert_eq!((threads.threads().len(), threads.by_tid.len()), (MAX_THREADS, MAX_THREADS));
    }

    #[test]
    fn thread_gets_the_process_of_the_first_event_that_names_it() {
        let mut lives = Lives::default();
        let thread = lives.find_or_add_thread(at(5), 9, None).unwrap();
        assert_eq!(lives.process_of(thread), None);
        assert_eq!(lives.find_or_add_thread(at(6), 9, Some(4)), Some(thread));
        let process = lives.process_of(thread).unwrap();
        assert_eq!(lives.process(process).unwrap().pid, 4);
        assert_eq!(lives.find_or_add_thread(at(6), NO_ID, Some(4)), None);
        let idle = lives.find_or_add_thread(at(6), 0, None).unwrap();
        assert_eq!(lives.process(lives.process_of(idle).unwrap()).unwrap().pid, 0);
    }
}
