//! The index of traces: everything that a picture at any zoom level needs, in bounded memory.
//!
//! ```text
//!   events      a row per event: time, position in the trace, thread, kind, processor
//!   cpus, threads, kinds, counters      a Series each: spans or marks with summaries
//!   samples, waits, transfers           tables in time order, with stacks and files
//!   Index ◀── Builder adds records      Index ──▶ queries, also while it grows
//! ```
//!
//! The data blocks are in a file of the cache folder, lists of the blocks in memory. The lists of
//! series have a limit, [`MAX_SERIES_BLOCKS`]; those of tables take 160 bytes per 4,096 rows.

mod build;
pub(crate) mod cache;
pub(crate) mod columns;
pub(crate) mod facts;
mod files;
pub(crate) mod kinds;
pub(crate) mod machines;
pub(crate) mod series;
pub(crate) mod stacks;
pub(crate) mod store;
pub(crate) mod threads;

pub(crate) use build::{Builder, Placed};

use std::collections::HashMap;
use std::fs::File;

use anyhow::Result;

use traceweir_format::kernel::hook;

use columns::Columns;
use files::{Files, MAX_FILES};
use kinds::{Kinds, MAX_KINDS};
use machines::Machines;
use series::{Item, Series, ValueKind};
use stacks::{MAX_NODES, Stacks};
use store::{Put, Reader, Store};
use threads::{MAX_THREADS, ThreadIndex, Threads, put_name, read_name};

/// Widths of the columns: time, position, thread, kind, processor.
const EVENT_WIDTHS: &[usize] = &[8, 8, 4, 2, 2];
/// Time, thread, stack, weight.
const SAMPLE_WIDTHS: &[usize] = &[8, 4, 4, 4];
/// End, duration, thread, stack, waker, reason.
const WAIT_WIDTHS: &[usize] = &[8, 8, 4, 4, 4, 2];
/// Time, duration, bytes, thread, file, [`Transfer`], row of the event.
const TRANSFER_WIDTHS: &[usize] = &[8, 8, 8, 4, 4, 2, 8];
/// Time, position.
const INFORMATIVE_WIDTHS: &[usize] = &[8, 8];
/// The most blocks of series in memory, of 88 bytes each: 66 MiB. Above it, series write their lists
/// of blocks to the file, so that one block of each remains. There are fewer series: three of each of
/// 2^17 threads, 2^17 lanes, and less than 2^17 of kinds, providers and processors.
const MAX_SERIES_BLOCKS: usize = 3 << 18;
/// The most processors; the time of further ones is only in the tracks of threads.
const MAX_CPUS: usize = 1 << 12;
/// The most entries of the tables of an index. Further ones are merged into others, and counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexLimits {
    pub(crate) threads: usize,
    pub(crate) kinds: usize,
    /// Files and connections.
    pub(crate) files: usize,
    pub(crate) cpus: usize,
    /// Frames of all stacks; stacks share the frames of their common callers.
    pub(crate) frames: usize,
}

impl Default for IndexLimits {
    fn default() -> Self {
        Self { threads: MAX_THREADS, kinds: MAX_KINDS, files: MAX_FILES, cpus: MAX_CPUS, frames: MAX_NODES }
    }
}

/// The most counters.
const MAX_COUNTERS: usize = 64;
/// The most losses that are kept.
const MAX_LOSSES: usize = 1 << 16;

/// Indices of the columns of [`Index::events`].
pub(crate) mod event_column {
    pub(crate) const TIME: usize = 0;
    pub(crate) const POSITION: usize = 1;
    pub(crate) const THREAD: usize = 2;
    pub(crate) const KIND: usize = 3;
    pub(crate) const CPU: usize = 4;
}

/// Where a record lies: trace, buffer, and offset in the buffer.
///
/// ```text
///   trace (12 bits) │ buffer (29 bits) │ offset / 8 (23 bits)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowPosition(pub(crate) u64);

impl RowPosition {
    pub(crate) const MAX_FILES: usize = 1 << 12;

    pub(crate) fn new(file: usize, buffer: u32, offset: u32) -> Self {
        let file = (file as u64) & 0xFFF;
        Self(file << 52 | (u64::from(buffer) & 0x1FFF_FFFF) << 23 | (u64::from(offset) / 8) & 0x7F_FFFF)
    }

    pub(crate) const fn file(self) -> usize {
        (self.0 >> 52) as usize
    }

    pub(crate) const fn buffer(self) -> usize {
        (self.0 >> 23 & 0x1FFF_FFFF) as usize
    }

    pub(crate) const fn offset(self) -> u32 {
        ((self.0 & 0x7F_FFFF) * 8) as u32
    }
}

/// What a thread does. The lowest two bits of a value in [`threads::Thread::states`]; the bits above
/// are the processor, the thread that woke it (0 after a preemption), or the wait reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadState {
    Running = 1,
    Ready = 2,
    Waiting = 3,
}

/// The class of a span of a processor in which a thread ran: seen in context switches, or estimated
/// from samples where these are missing.
pub(crate) const RUN: u64 = 1;
pub(crate) const ESTIMATED_RUN: u64 = 2;

/// The kind of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    DiskRead = 0,
    DiskWrite = 1,
    DiskFlush = 2,
    FileRead = 3,
    FileWrite = 4,
    Receive = 5,
    Send = 6,
}

impl Transfer {
    pub(crate) const fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::DiskRead,
            1 => Self::DiskWrite,
            2 => Self::DiskFlush,
            3 => Self::FileRead,
            4 => Self::FileWrite,
            5 => Self::Receive,
            6 => Self::Send,
            _ => return None,
        })
    }

    pub(crate) const fn is_network(self) -> bool {
        matches!(self, Self::Receive | Self::Send)
    }

    pub(crate) const fn is_disk(self) -> bool {
        matches!(self, Self::DiskRead | Self::DiskWrite | Self::DiskFlush)
    }

    pub(crate) const fn is_incoming(self) -> bool {
        matches!(self, Self::DiskRead | Self::FileRead | Self::Receive)
    }
}

/// A processor of a machine by its index in [`Index::cpus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuIndex(usize);

/// A processor.
#[derive(Debug)]
pub(crate) struct Cpu {
    /// Index in [`Machines`].
    pub(crate) machine: u16,
    pub(crate) number: u16,
    /// The value is the thread, the class [`RUN`] or [`ESTIMATED_RUN`], or 0 of an idle thread.
    pub(crate) runs: Series,
}

/// A number over time.
#[derive(Debug)]
pub(crate) struct Counter {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) series: Series,
}

/// Losses and defects of the traces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    pub(crate) events: u64,
    pub(crate) buffers: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) store: Store,
    pub(crate) events: Columns,
    pub(crate) samples: Columns,
    pub(crate) waits: Columns,
    pub(crate) transfers: Columns,
    /// Records that describe others.
    pub(crate) informative: Columns,
    pub(crate) threads: Threads,
    pub(crate) kinds: Kinds,
    pub(crate) stacks: Stacks,
    pub(crate) files: Files,
    pub(crate) machines: Machines,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) counters: Vec<Counter>,
    /// Times of lost events, in nanoseconds since the first trace began.
    pub(crate) loss_times: Vec<i64>,
    pub(crate) losses: Losses,
    /// Time spans with a missing switch.
    pub(crate) gaps: u64,
    /// Spans of processors beyond the limit.
    pub(crate) merged_runs: u64,
    max_cpus: usize,
    /// The thread on each processor, while the index is built.
    running: HashMap<(u16, u16), ThreadIndex>,
    by_cpu: HashMap<(u16, u16), CpuIndex>,
    pub(crate) is_complete: bool,
}

impl Index {
    /// Creates an empty index whose blocks go to a file.
    pub(crate) fn new(file: File) -> Self {
        Self::with_limits(file, IndexLimits::default())
    }

    /// Like [`new`](Self::new), with other limits of the tables.
    pub(crate) fn with_limits(file: File, limits: IndexLimits) -> Self {
        Self {
            store: Store::new(file),
            events: Columns::new(EVENT_WIDTHS),
            samples: Columns::new(SAMPLE_WIDTHS),
            waits: Columns::new(WAIT_WIDTHS),
            transfers: Columns::new(TRANSFER_WIDTHS),
            informative: Columns::new(INFORMATIVE_WIDTHS),
            threads: Threads::with_limit(limits.threads),
            kinds: Kinds::with_limit(limits.kinds),
            stacks: Stacks::with_limit(limits.frames),
            files: Files::with_limit(limits.files),
            cpus: Vec::new(),
            counters: Vec::new(),
            loss_times: Vec::new(),
            losses: Losses::default(),
            gaps: 0,
            merged_runs: 0,
            max_cpus: limits.cpus,
            running: HashMap::new(),
            by_cpu: HashMap::new(),
            machines: Machines::default(),
            is_complete: false,
        }
    }

    /// Returns the time of the last event, in nanoseconds since the first trace began.
    pub(crate) fn end(&self) -> i64 {
        self.events.last_time().max(0)
    }

    pub(crate) fn add_losses(&mut self, mut times: Vec<i64>) {
        times.sort_unstable();
        times.truncate(MAX_LOSSES);
        self.loss_times = times;
    }

    /// Returns the time of the first event.
    pub(crate) fn begin(&self) -> i64 {
        self.events.first_time().unwrap_or(0)
    }

    /// Returns the track of a processor.
    fn find_or_add_cpu(&mut self, machine: u16, number: u16) -> CpuIndex {
        let next = CpuIndex(self.cpus.len());
        if self.cpus.len() >= self.max_cpus {
            return self.by_cpu.get(&(machine, number)).copied().unwrap_or(next);
        }
        let index = *self.by_cpu.entry((machine, number)).or_insert(next);
        if index == next {
            self.cpus.push(Cpu { machine, number, runs: Series::new(ValueKind::Classes) });
        }
        index
    }

    fn add_run(&mut self, cpu: CpuIndex, thread: ThreadIndex, from: i64, to: i64) {
        let duration = u64::try_from(to.saturating_sub(from)).unwrap_or(0);
        let mut number = 0;
        if let Some(cpu) = self.cpus.get_mut(cpu.0) {
            number = cpu.number.into();
            let value = u64::from(thread.0) << 2 | if thread == ThreadIndex::IDLE { 0 } else { RUN };
            cpu.runs.push(Item { start: from, duration, value }, &mut self.store);
        } else {
            self.merged_runs = self.merged_runs.saturating_add(1);
        }
        if thread == ThreadIndex::IDLE {
            return;
        }
        if thread == ThreadIndex::OTHER
            && let Some(thread) = self.threads.get_mut(thread)
        {
            thread.running_ns = thread.running_ns.saturating_add(duration);
        }
        self.add_state(thread, ThreadState::Running, number, from, to);
    }

    /// Adds the time that a sample stands for, of a trace without context switches.
    fn add_estimate(&mut self, cpu: CpuIndex, thread: ThreadIndex, from: i64, to: i64) {
        let duration = u64::try_from(to.saturating_sub(from)).unwrap_or(0);
        if let Some(cpu) = self.cpus.get_mut(cpu.0) {
            let class = if thread == ThreadIndex::IDLE { 0 } else { ESTIMATED_RUN };
            let value = u64::from(thread.0) << 2 | class;
            cpu.runs.push(Item { start: from, duration, value }, &mut self.store);
        } else {
            self.merged_runs = self.merged_runs.saturating_add(1);
        }
        let Some(entry) = self.threads.get_mut(thread).filter(|_| thread != ThreadIndex::IDLE) else {
            return;
        };
        entry.sampled_ns = entry.sampled_ns.saturating_add(duration);
        // Those of several threads would overlap.
        if thread != ThreadIndex::OTHER {
            let value = ThreadState::Running as u64;
            entry.estimates.push(Item { start: from, duration, value }, &mut self.store);
        }
    }

    /// Returns whether the traces have context switches.
    pub(crate) fn has_switches(&self) -> bool {
        self.has_events_of(hook::CONTEXT_SWITCH)
            || self.waits.rows() > 0
            || self.threads.threads.iter().any(|thread| thread.running_ns > 0)
    }

    /// Returns whether the traces have samples.
    pub(crate) fn has_samples(&self) -> bool {
        self.has_events_of(hook::SAMPLED_PROFILE) || self.samples.rows() > 0
    }

    /// Returns whether the use of the processors is estimated from samples.
    pub(crate) fn is_estimated(&self) -> bool {
        self.has_samples() && !self.has_switches()
    }

    fn has_events_of(&self, hook: u16) -> bool {
        self.kinds.kinds.iter().any(|kind| kind.hook == Some(hook) && !kind.marks.is_empty())
    }

    /// Adds a state of a thread. Traces that overlap may have a part of it already.
    fn add_state(&mut self, thread: ThreadIndex, state: ThreadState, detail: u64, from: i64, to: i64) {
        let duration = u64::try_from(to.saturating_sub(from)).unwrap_or(0);
        if duration == 0 && state != ThreadState::Running || thread == ThreadIndex::OTHER {
            return;
        }
        if let Some(thread) = self.threads.get_mut(thread) {
            let item = Item { start: from, duration, value: detail << 2 | state as u64 };
            let added_ns = thread.states.push(item, &mut self.store);
            if state == ThreadState::Running {
                thread.running_ns = thread.running_ns.saturating_add(added_ns);
            }
        }
    }

    fn add_to_counter(&mut self, name: &str, unit: &str, time: i64, value: u64) {
        let known = self.counters.iter().position(|counter| counter.name == name);
        let index = known.unwrap_or_else(|| {
            let (name, unit) = (name.to_owned(), unit.to_owned());
            self.counters.push(Counter { name, unit, series: Series::new(ValueKind::Numbers) });
            self.counters.len() - 1
        });
        if let Some(counter) = self.counters.get_mut(index) {
            // Values of the series are signed.
            let value = value.min(i64::MAX.cast_unsigned());
            counter.series.push(Item { start: time, duration: 0, value }, &mut self.store);
        }
    }

    /// Calls a function for each series and the store that their blocks go to.
    fn for_series(&mut self, mut on_series: impl FnMut(&mut Series, &mut Store)) {
        let Self { store, threads, kinds, cpus, counters, .. } = self;
        cpus.iter_mut().for_each(|cpu| on_series(&mut cpu.runs, store));
        counters.iter_mut().for_each(|counter| on_series(&mut counter.series, store));
        kinds.kinds.iter_mut().for_each(|kind| on_series(&mut kind.marks, store));
        kinds.providers.iter_mut().for_each(|provider| on_series(&mut provider.marks, store));
        for thread in &mut threads.threads {
            on_series(&mut thread.states, store);
            on_series(&mut thread.estimates, store);
            on_series(&mut thread.marks, store);
            thread.lanes.iter_mut().for_each(|lane| on_series(lane, store));
        }
    }

    /// Writes the newest items of tracks, and their lists of blocks, to the file if they take too
    /// much memory.
    pub(crate) fn limit_open_bytes(&mut self, limit: usize) {
        self.limit_open_items(limit);
        self.limit_blocks(MAX_SERIES_BLOCKS);
    }

    /// Closes the blocks with the most items first: a block takes as much memory if it has few.
    fn limit_open_items(&mut self, limit: usize) {
        let mut open = 0_usize;
        self.for_series(|series, _| open = open.saturating_add(series.open_bytes()));
        if open <= limit {
            return;
        }
        for fewest in [512, 128, 32, 8, 1] {
            let mut left = 0_usize;
            self.for_series(|series, store| {
                if series.open_items() >= fewest {
                    series.close_block(store);
                }
                left = left.saturating_add(series.open_bytes());
            });
            if left <= limit / 2 {
                return;
            }
        }
    }

    /// Writes the longest lists of blocks first, so that tracks get few levels of branches.
    fn limit_blocks(&mut self, limit: usize) {
        let mut blocks = self.series_blocks();
        if blocks <= limit {
            return;
        }
        for fewest in [32, 8, 2] {
            self.for_series(|series, store| {
                if series.block_capacity() >= fewest {
                    series.write_branches(store);
                }
            });
            blocks = self.series_blocks();
            if blocks <= limit / 2 {
                return;
            }
        }
    }

    /// Returns for how many blocks of series there is memory.
    fn series_blocks(&mut self) -> usize {
        let mut blocks = 0_usize;
        self.for_series(|series, _| blocks = blocks.saturating_add(series.block_capacity()));
        blocks
    }

    /// Ends additions: writes what the tracks and tables have in memory to the file.
    pub(crate) fn complete(&mut self) {
        self.for_series(Series::close_block);
        self.limit_blocks(MAX_SERIES_BLOCKS);
        let Self { store, events, samples, waits, transfers, informative, .. } = self;
        for table in [events, samples, waits, transfers, informative] {
            table.close_block(store);
        }
        store.flush();
        self.stacks.end_additions();
        self.threads.end_additions();
        self.files.end_additions();
        self.is_complete = true;
    }

    /// Writes the directory of an index after [`complete`](Self::complete). The index can be read
    /// again from the file.
    pub(crate) fn write_directory(&self, identity: &[u8]) -> Result<()> {
        let mut directory = self.store.begin_directory();
        directory.put_varint(identity.len() as u64);
        directory.put_bytes(identity);
        for table in [&self.events, &self.samples, &self.waits, &self.transfers, &self.informative] {
            table.put(&mut directory);
        }
        self.threads.put(&mut directory);
        self.kinds.put(&mut directory);
        self.stacks.put(&mut directory);
        directory.put_varint(self.files.names.len() as u64);
        self.files.names.iter().for_each(|name| put_name(name.as_ref(), &mut directory));
        directory.put_varint(self.cpus.len() as u64);
        for cpu in &self.cpus {
            directory.put_varint(cpu.machine.into());
            directory.put_varint(cpu.number.into());
            cpu.runs.put(&mut directory);
        }
        self.machines.put(&mut directory);
        directory.put_varint(self.counters.len() as u64);
        for counter in &self.counters {
            directory.put_text(&counter.name);
            directory.put_text(&counter.unit);
            counter.series.put(&mut directory);
        }
        directory.put_varint(self.loss_times.len() as u64);
        self.loss_times.iter().for_each(|time| directory.put_i64(*time));
        let merged = [self.threads.merged, self.files.merged, self.merged_runs];
        for number in [self.losses.events, self.losses.buffers, self.gaps].into_iter().chain(merged) {
            directory.put_varint(number);
        }
        directory.finish()
    }

    /// Opens a finished index; `None` if the file is damaged, or belongs to other traces.
    pub(crate) fn open(file: File, length: u64, identity: &[u8]) -> Option<Self> {
        let directory = Store::read_directory(&file, length)?;
        let mut reader = Reader::new(&directory);
        let identity_bytes = reader.count()?;
        let (known, rest) = reader.rest().split_at_checked(identity_bytes)?;
        if known != identity {
            return None;
        }
        let mut reader = Reader::new(rest);
        let reader = &mut reader;
        let mut index = Self::new(file.try_clone().ok()?);
        index.store = Store::open_finished(file, length);
        index.events = Columns::read(EVENT_WIDTHS, reader, length)?;
        index.samples = Columns::read(SAMPLE_WIDTHS, reader, length)?;
        index.waits = Columns::read(WAIT_WIDTHS, reader, length)?;
        index.transfers = Columns::read(TRANSFER_WIDTHS, reader, length)?;
        index.informative = Columns::read(INFORMATIVE_WIDTHS, reader, length)?;
        index.threads = Threads::read(reader, length)?;
        index.kinds = Kinds::read(reader, length)?;
        index.stacks = Stacks::read(reader)?;
        index.files.names.clear();
        for _ in 0..reader.count_up_to(MAX_FILES)? {
            index.files.names.push(read_name(reader)?);
        }
        for _ in 0..reader.count_up_to(MAX_CPUS)? {
            let (machine, number) = (reader.u16()?, reader.u16()?);
            index.cpus.push(Cpu { machine, number, runs: Series::read(reader, length)? });
        }
        index.machines = Machines::read(reader)?;
        for _ in 0..reader.count_up_to(MAX_COUNTERS)? {
            let (name, unit) = (reader.text()?.to_owned(), reader.text()?.to_owned());
            index.counters.push(Counter { name, unit, series: Series::read(reader, length)? });
        }
        for _ in 0..reader.count_up_to(MAX_LOSSES)? {
            index.loss_times.push(reader.i64()?);
        }
        index.losses = Losses { events: reader.varint()?, buffers: reader.varint()? };
        index.gaps = reader.varint()?;
        index.threads.merged = reader.varint()?;
        index.files.merged = reader.varint()?;
        index.merged_runs = reader.varint()?;
        index.is_complete = true;
        reader.rest().is_empty().then_some(index)
    }
}

#[cfg(test)]
mod tests;
