//! The threads of an index. Thread ids are reused, so an id can stand for several threads.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use traceweir_format::header::NO_ID;

use super::series::{Series, ValueKind};
use super::store::{Put, Reader};
use crate::hash::FastMap;

/// The most threads. Further ones are merged into [`ThreadIndex::OTHER`].
pub(super) const MAX_THREADS: usize = 1 << 17;
/// The most lanes in which slices of a thread are nested.
pub(crate) const MAX_LANES: usize = 16;
/// The most lanes of all threads.
const MAX_TOTAL_LANES: usize = 1 << 17;
/// The threads that the track of a process adds up.
const MAX_BUSIEST_THREADS: usize = 32;
const MAX_NAME_CHARS: usize = 200;

/// A thread by its index in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ThreadIndex(pub(crate) u32);

impl ThreadIndex {
    /// The idle threads of all processors.
    pub(crate) const IDLE: Self = Self(0);
    /// Threads beyond the limit, and events that name no thread.
    pub(crate) const OTHER: Self = Self(1);
}

/// A thread, or the events of a process that name no thread.
#[derive(Debug, Default)]
pub(crate) struct Thread {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// Index in the table of processes.
    pub(crate) process: u32,
    pub(crate) name: Option<Arc<str>>,
    /// Nanoseconds since the first trace began.
    pub(crate) first: i64,
    pub(crate) last: i64,
    /// Trace and raw stamp of the last mention, to look up the process.
    pub(crate) last_stamp: (usize, i64),
    pub(crate) events: u64,
    pub(crate) running_ns: u64,
    /// The time that samples stand for, of traces without context switches.
    pub(crate) sampled_ns: u64,
    pub(crate) states: Series,
    /// The time spans that samples stand for, of traces without context switches.
    pub(crate) estimates: Series,
    /// Nested slices: one series per level.
    pub(crate) lanes: Vec<Series>,
    /// The events of the thread before its first context switch.
    pub(crate) marks: Series,
    /// Index in [`super::Machines`].
    pub(crate) machine: u16,
}

impl Thread {
    /// Returns the time that the thread ran, estimated if the trace has no context switches of it.
    pub(crate) const fn cpu_ns(&self) -> u64 {
        if self.running_ns > 0 { self.running_ns } else { self.sampled_ns }
    }

    /// Returns the states or, without context switches, the time spans that samples stand for.
    pub(crate) fn states_or_estimates(&self) -> &Series {
        if self.states.is_empty() { &self.estimates } else { &self.states }
    }

    /// Returns the lanes that are drawn: the nested slices and, of a thread whose context switches
    /// are not in the trace, its events.
    pub(crate) fn shown_lanes(&self) -> impl Iterator<Item = &Series> {
        let marks = Some(&self.marks).filter(|marks| self.states.is_empty() && !marks.is_empty());
        self.lanes.iter().chain(marks)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) events: u64,
    pub(crate) running_ns: u64,
    /// The time that samples stand for, of threads without context switches.
    pub(crate) sampled_ns: u64,
    pub(crate) machine: u16,
    /// The threads that ran longest, longest first.
    pub(crate) busiest: Vec<ThreadIndex>,
}

impl Process {
    /// Returns the time that the threads ran, estimated of those without context switches.
    pub(crate) const fn cpu_ns(&self) -> u64 {
        self.running_ns.saturating_add(self.sampled_ns)
    }
}

#[derive(Debug)]
pub(crate) struct Threads {
    pub(crate) threads: Vec<Thread>,
    pub(crate) processes: Vec<Process>,
    /// Indices of the newest threads, by machine and thread id.
    by_tid: FastMap<(u16, u32), u32>,
    by_pid: FastMap<(u16, u32), u32>,
    lanes: usize,
    max_threads: usize,
    /// How often a thread beyond the limit was named.
    pub(crate) merged: u64,
}

impl Default for Threads {
    fn default() -> Self {
        Self::with_limit(MAX_THREADS)
    }
}

impl Threads {
    /// Creates a table of at most this many threads.
    pub(super) fn with_limit(max_threads: usize) -> Self {
        let named = |name: &str, pid, tid| Thread {
            name: Some(name.into()),
            pid,
            tid,
            states: Series::new(ValueKind::Classes),
            estimates: Series::new(ValueKind::Classes),
            marks: Series::new(ValueKind::Classes),
            ..Thread::default()
        };
        let threads = vec![named("idle", 0, 0), named("(other)", NO_ID, NO_ID)];
        let (by_tid, by_pid) = (FastMap::default(), FastMap::default());
        Self { threads, processes: Vec::new(), by_tid, by_pid, lanes: 0, max_threads, merged: 0 }
    }
}

/// Time of an event: nanoseconds since the first trace began, and trace and raw stamp.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventTime {
    pub(crate) ns: i64,
    pub(crate) file: usize,
    /// The machine of the trace.
    pub(crate) machine: u16,
    pub(crate) stamp: i64,
}

impl Threads {
    pub(crate) fn get(&self, index: ThreadIndex) -> Option<&Thread> {
        self.threads.get(index.0 as usize)
    }

    pub(crate) fn get_mut(&mut self, index: ThreadIndex) -> Option<&mut Thread> {
        self.threads.get_mut(index.0 as usize)
    }

    /// Returns the thread of an id at a time, and adds it if it is new. `pid` is its process, if the
    /// event names it reliably.
    pub(crate) fn find_or_add(&mut self, tid: u32, pid: Option<u32>, time: EventTime) -> ThreadIndex {
        let pid = pid.filter(|pid| *pid != NO_ID);
        // Only process 0 has threads with the id 0.
        let tid = if tid == 0 && !matches!(pid, None | Some(0)) { NO_ID } else { tid };
        let known = match (tid, pid) {
            (0, _) => Some(ThreadIndex::IDLE.0),
            (NO_ID, None) => Some(ThreadIndex::OTHER.0),
            (NO_ID, Some(pid)) => self.by_pid.get(&(time.machine, pid)).copied(),
            _ => self.by_tid.get(&(time.machine, tid)).copied(),
        };
        if let Some(index) = known
            && let Some(thread) = self.threads.get_mut(index as usize)
        {
            let is_same = index <= ThreadIndex::OTHER.0
                || pid.is_none_or(|pid| thread.pid == NO_ID || thread.pid == pid);
            if is_same {
                if thread.pid == NO_ID && index > ThreadIndex::OTHER.0 {
                    thread.pid = pid.unwrap_or(NO_ID);
                }
                thread.last = thread.last.max(time.ns);
                thread.last_stamp = (time.file, time.stamp);
                return ThreadIndex(index);
            }
        }
        self.add(tid, pid, time)
    }

    fn add(&mut self, tid: u32, pid: Option<u32>, time: EventTime) -> ThreadIndex {
        if self.threads.len() >= self.max_threads {
            self.merged = self.merged.saturating_add(1);
            return ThreadIndex::OTHER;
        }
        let index = u32::try_from(self.threads.len()).unwrap_or(ThreadIndex::OTHER.0);
        self.threads.push(Thread {
            pid: pid.unwrap_or(NO_ID),
            tid,
            first: time.ns,
            last: time.ns,
            last_stamp: (time.file, time.stamp),
            states: Series::new(ValueKind::Classes),
            estimates: Series::new(ValueKind::Classes),
            marks: Series::new(ValueKind::Classes),
            machine: time.machine,
            ..Thread::default()
        });
        match (tid, pid) {
            (NO_ID, Some(pid)) => self.by_pid.insert((time.machine, pid), index),
            _ => self.by_tid.insert((time.machine, tid), index),
        };
        ThreadIndex(index)
    }

    /// Begins a new thread with an id, whatever had it before.
    pub(crate) fn begin(&mut self, tid: u32, pid: u32, time: EventTime) -> ThreadIndex {
        let is_plain = !matches!(tid, 0 | NO_ID);
        let known = self.by_tid.get(&(time.machine, tid));
        let is_new = known.and_then(|index| self.threads.get(*index as usize)).is_none_or(
            // A wake may name the thread just before its start.
            |thread| {
                time.ns.saturating_sub(thread.first) > 1_000_000 || (thread.pid != pid && thread.pid != NO_ID)
            },
        );
        let pid = Some(pid).filter(|pid| *pid != NO_ID);
        if is_plain && is_new { self.add(tid, pid, time) } else { self.find_or_add(tid, pid, time) }
    }

    /// Forgets what only additions need.
    pub(super) fn end_additions(&mut self) {
        (self.by_tid, self.by_pid) = (FastMap::default(), FastMap::default());
    }

    /// Returns whether a thread has a lane, after adding it if there is room.
    pub(super) fn has_lane(&mut self, index: ThreadIndex, lane: usize) -> bool {
        let Some(thread) = self.threads.get_mut(index.0 as usize) else { return false };
        while thread.lanes.len() <= lane && self.lanes < MAX_TOTAL_LANES {
            thread.lanes.push(Series::new(ValueKind::Classes));
            self.lanes += 1;
        }
        thread.lanes.len() > lane
    }

    pub(crate) fn set_name(&mut self, index: ThreadIndex, name: &str) {
        if index > ThreadIndex::OTHER
            && !name.is_empty()
            && let Some(thread) = self.get_mut(index)
        {
            thread.name = Some(name.chars().take(MAX_NAME_CHARS).collect::<String>().into());
        }
    }

    /// Groups the threads by process. `find_process` returns the process of a thread and its name.
    pub(crate) fn group(&mut self, mut find_process: impl FnMut(&Thread) -> (u32, Option<Arc<str>>)) {
        let mut by_key: HashMap<(u16, u32, Option<Arc<str>>), u32> = HashMap::new();
        let mut processes: Vec<Process> = Vec::new();
        for thread in &mut self.threads {
            let (pid, name) = find_process(thread);
            let next = u32::try_from(processes.len()).unwrap_or(0);
            let index = *by_key.entry((thread.machine, pid, name.clone())).or_insert_with(|| {
                let (first, machine) = (thread.first, thread.machine);
                processes.push(Process { pid, name, first, machine, ..Process::default() });
                next
            });
            (thread.process, thread.pid) = (index, pid);
            if let Some(process) = processes.get_mut(index as usize) {
                process.first = process.first.min(thread.first);
                process.last = process.last.max(thread.last);
                process.events = process.events.saturating_add(thread.events);
                process.running_ns = process.running_ns.saturating_add(thread.running_ns);
                if thread.running_ns == 0 {
                    process.sampled_ns = process.sampled_ns.saturating_add(thread.sampled_ns);
                }
            }
        }
        self.processes = processes;
        self.find_busiest();
    }

    /// Finds the busiest threads of each process.
    fn find_busiest(&mut self) {
        for (number, thread) in (0_u32..).zip(&self.threads).filter(|(_, thread)| thread.cpu_ns() > 0) {
            if let Some(process) = self.processes.get_mut(thread.process as usize) {
                process.busiest.push(ThreadIndex(number));
            }
        }
        let running_of = |number: &ThreadIndex| self.threads.get(number.0 as usize).map_or(0, Thread::cpu_ns);
        for process in &mut self.processes {
            process.busiest.sort_by_key(|number| Reverse(running_of(number)));
            process.busiest.truncate(MAX_BUSIEST_THREADS);
            process.busiest.shrink_to_fit();
        }
    }

    pub(crate) fn put(&self, out: &mut impl Put) {
        out.put_varint(self.processes.len() as u64);
        for process in &self.processes {
            out.put_varint(process.pid.into());
            put_name(process.name.as_ref(), out);
            out.put_i64(process.first);
            out.put_i64(process.last);
            let times = [process.running_ns, process.sampled_ns];
            for number in [process.events].into_iter().chain(times).chain([process.machine.into()]) {
                out.put_varint(number);
            }
        }
        out.put_varint(self.threads.len() as u64);
        for thread in &self.threads {
            for id in [thread.pid, thread.tid, thread.process] {
                out.put_varint(id.into());
            }
            put_name(thread.name.as_ref(), out);
            out.put_i64(thread.first);
            out.put_i64(thread.last);
            out.put_varint(thread.last_stamp.0 as u64);
            out.put_i64(thread.last_stamp.1);
            out.put_varint(thread.events);
            out.put_varint(thread.running_ns);
            out.put_varint(thread.sampled_ns);
            out.put_varint(thread.machine.into());
            thread.states.put(out);
            thread.estimates.put(out);
            thread.marks.put(out);
            out.put_varint(thread.lanes.len() as u64);
            thread.lanes.iter().for_each(|lane| lane.put(out));
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>, file_bytes: u64) -> Option<Self> {
        let mut table = Self { threads: Vec::new(), ..Self::default() };
        for _ in 0..reader.count_up_to(MAX_THREADS)? {
            table.processes.push(Process {
                pid: reader.u32()?,
                name: read_name(reader)?,
                first: reader.i64()?,
                last: reader.i64()?,
                events: reader.varint()?,
                running_ns: reader.varint()?,
                sampled_ns: reader.varint()?,
                machine: reader.u16()?,
                busiest: Vec::new(),
            });
        }
        for _ in 0..reader.count_up_to(MAX_THREADS)? {
            let (pid, tid, process) = (reader.u32()?, reader.u32()?, reader.u32()?);
            if process as usize >= table.processes.len() {
                return None;
            }
            let mut thread = Thread {
                pid,
                tid,
                process,
                name: read_name(reader)?,
                first: reader.i64()?,
                last: reader.i64()?,
                last_stamp: (usize::from(reader.u16()?), reader.i64()?),
                events: reader.varint()?,
                running_ns: reader.varint()?,
                sampled_ns: reader.varint()?,
                machine: reader.u16()?,
                states: Series::read(reader, file_bytes)?,
                estimates: Series::read(reader, file_bytes)?,
                marks: Series::read(reader, file_bytes)?,
                ..Thread::default()
            };
            for _ in 0..reader.count_up_to(MAX_LANES + 1)? {
                thread.lanes.push(Series::read(reader, file_bytes)?);
            }
            table.threads.push(thread);
        }
        table.find_busiest();
        Some(table)
    }
}

pub(super) fn put_name(name: Option<&Arc<str>>, out: &mut impl Put) {
    out.put_varint(name.is_some().into());
    out.put_text(name.map(|name| &**name).unwrap_or_default());
}

pub(super) fn read_name(reader: &mut Reader<'_>) -> Option<Option<Arc<str>>> {
    let is_known = reader.varint()? != 0;
    let name = reader.text()?;
    Some(is_known.then(|| name.into()))
}
