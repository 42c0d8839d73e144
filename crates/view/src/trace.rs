//! Opened traces, their index, and what is known about their events: what all queries share.
//!
//! ```text
//!   thread of the index:  records ──▶ Builder ──▶ Index      while holding the lock, for a few ms at a time
//!   queries:              Index ──▶ rows, segments ──▶ EventReader: the record of a row, decoded
//! ```
//!
//! The records come from files or, in `follow`, from a session that runs.

mod follow;

mod preview;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use traceweir::consumer::TraceFile;
use traceweir_analysis::schema_files::load_traced_programs;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_decode::Decoder;
use traceweir_format::etl::{BufferThreads, MergedFiles, Trace};
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::time::{Clock, FileTime};

use crate::index::facts::Facts;
use crate::index::machines::Machines;
use crate::index::threads::Thread;
use crate::index::{Builder, Index, Losses, Placed, RowPosition, cache, event_column};
use crate::limits::QueryLimits;
use crate::live::{Cursor, LiveTrace, record_at};
use crate::record_copies::RecordCopies;
use crate::symbols::{SharedSymbols, SymbolTurns, Symbols};
pub(crate) use preview::Preview;

/// Shorter traces are indexed before a preview could be seen.
const MIN_PREVIEW_BYTES: u64 = 16 << 20;
/// How long the index holds its lock at a time.
const BATCH_TIME: Duration = Duration::from_millis(8);
/// Time between two attempts to lock the index in order to change it.
const WRITE_INTERVAL: Duration = Duration::from_micros(500);
/// How long the index lets queries pass that hold its lock one after another.
const MAX_WRITE_ATTEMPTS: Duration = Duration::from_secs(5);
/// Records between two looks at the clock.
const BATCH_RECORDS: usize = 2048;
/// The most kinds of events whose names are looked up again at the end.
const MAX_LATE_KINDS: usize = 4096;
/// Memory for buffers that queries have loaded.
const MAX_LOADED_BYTES: usize = 48 << 20;

/// The most records of facts that are copied at a time, and the most bytes of them.
const MAX_FACT_RECORDS: usize = 1 << 16;
const MAX_FACT_BYTES: usize = 16 << 20;

/// The most bytes that a question loads.
const MAX_QUESTION_BYTES: usize = 256 << 20;

/// A trace and its name for people.
pub(crate) struct NamedTrace {
    /// The name, for titles.
    pub(crate) name: String,
    /// The opened trace.
    pub(crate) trace: Trace<TraceFile>,
}

/// The traces that are shown.
pub(crate) struct TraceView {
    traces: Vec<NamedTrace>,
    /// The session that is shown instead of traces.
    live: Option<Arc<LiveTrace>>,
    index: RwLock<Index>,
    /// Queries that wait for the lock; the indexing thread lets them pass.
    waiting: AtomicUsize,
    facts: Mutex<Facts>,
    symbols: SharedSymbols,
    reader: Mutex<LoadedBuffers>,
    pub(crate) start: FileTime,
    /// Whether schemas are read from programs that the traces name.
    reads_programs: bool,
    bytes_read: AtomicU64,
    total_bytes: u64,
    preview: OnceLock<Preview>,
    /// Whether the facts are those of the whole trace.
    has_all_facts: AtomicBool,
    must_stop: AtomicBool,
    problem: Mutex<Option<String>>,
}

/// How far the index is.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pub(crate) bytes_read: u64,
    pub(crate) total_bytes: u64,
    pub(crate) is_complete: bool,
    /// The events come from a session, and are followed.
    pub(crate) is_live: bool,
    /// The events of a session are not followed any more, although it may still run.
    pub(crate) has_stopped: bool,
    pub(crate) problem: Option<String>,
}

/// A trace, and a buffer in it.
type BufferKey = (usize, usize);

/// Buffers that queries have loaded, the most recent one last.
#[derive(Debug, Default)]
struct LoadedBuffers {
    buffers: VecDeque<(BufferKey, Arc<Vec<u8>>)>,
    bytes: usize,
}

/// The bytes that a question may still load.
#[derive(Debug)]
pub(crate) struct LoadBudget {
    bytes_left: usize,
}

impl Default for LoadBudget {
    fn default() -> Self {
        Self { bytes_left: MAX_QUESTION_BYTES }
    }
}

impl LoadBudget {
    /// Returns whether only buffers that are loaded can be read.
    pub(crate) const fn is_spent(&self) -> bool {
        self.bytes_left == 0
    }

    fn charge(&mut self, bytes: usize) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes.max(1));
    }
}

/// The bytes that identify an index in the cache; `None` for one that is not kept.
pub(crate) type Identity = Option<Vec<u8>>;

impl TraceView {
    /// Opens the index of traces, or begins one that [`build`](Self::build) fills.
    pub(crate) fn open(
        traces: Vec<NamedTrace>,
        decoder: Decoder,
        symbols: &SymbolOptions,
        reads_programs: bool,
        identity: Option<&cache::IndexIdentity>,
    ) -> Result<(Self, Option<cache::IndexNames>)> {
        anyhow::ensure!(traces.len() <= RowPosition::MAX_FILES, "too many traces");
        let cached = identity.and_then(|identity| {
            let (file, length) = cache::open(identity)?;
            Index::open(file, length, &identity.bytes)
        });
        let (index, names) = match cached {
            Some(index) => (index, None),
            None => {
                let (file, names) = cache::create(identity)?.into_parts();
                (Index::new(file), names)
            }
        };
        let mut view = Self::new(traces, decoder, symbols, index);
        view.reads_programs = reads_programs;
        Ok((view, names))
    }

    pub(crate) fn new(
        traces: Vec<NamedTrace>,
        decoder: Decoder,
        symbols: &SymbolOptions,
        mut index: Index,
    ) -> Self {
        if !index.is_complete {
            index.machines =
                Machines::from_traces(traces.iter().map(|t| (t.name.as_str(), t.trace.header())));
        }
        let start = traces.iter().map(|t| t.trace.clock().file_time(t.trace.clock().anchor)).min();
        let total_bytes = traces.iter().map(|t| t.trace.file_size()).fold(0, u64::saturating_add);
        let symbols = SharedSymbols::new(Symbols::new(traces.len(), symbols));
        let facts = Facts::new(traces.len(), decoder, symbols.queue(), |file| {
            let header = traces.get(file).map(|t| t.trace.header());
            header.map_or(0, |header| u64::try_from(header.perf_freq).unwrap_or(0))
        });
        Self::with_parts(traces, None, index, (facts, symbols), (start.unwrap_or_default(), total_bytes))
    }

    fn with_parts(
        traces: Vec<NamedTrace>,
        live: Option<Arc<LiveTrace>>,
        index: Index,
        (facts, symbols): (Facts, SharedSymbols),
        (start, total_bytes): (FileTime, u64),
    ) -> Self {
        Self {
            traces,
            live,
            index: RwLock::new(index),
            waiting: AtomicUsize::new(0),
            facts: Mutex::new(facts),
            symbols,
            reader: Mutex::new(LoadedBuffers::default()),
            start,
            reads_programs: false,
            bytes_read: AtomicU64::new(0),
            total_bytes,
            preview: OnceLock::new(),
            has_all_facts: AtomicBool::new(false),
            must_stop: AtomicBool::new(false),
            problem: Mutex::new(None),
        }
    }

    /// Locks the index for a query.
    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        index
    }

    pub(crate) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the symbols for a query; `None` if another query holds them until the limits are
    /// reached.
    pub(crate) fn symbols(&self, limits: &QueryLimits) -> Option<MutexGuard<'_, Symbols>> {
        self.symbols.lock_within(limits)
    }

    /// Returns the symbols for a query that resolves many frames.
    pub(crate) fn symbols_in_turns<'s>(&'s self, limits: &'s QueryLimits) -> SymbolTurns<'s> {
        self.symbols.in_turns(limits)
    }

    /// Lets the symbols learn from the records that were read. The caller holds no lock.
    fn learn_symbols(&self) {
        self.symbols.learn(|| !self.must_stop.load(Ordering::Acquire));
    }

    /// Locks the index to change it. A thread that waited for this lock would stop all readers that
    /// come later, so the index tries again and again, and waits only if that has failed for long.
    fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        let begin = Instant::now();
        while begin.elapsed() < MAX_WRITE_ATTEMPTS {
            match self.index.try_write() {
                Ok(index) => return index,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::thread::sleep(WRITE_INTERVAL),
            }
        }
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the names of the traces, or that of the session.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let live = self.live.iter().map(|live| live.name.as_str());
        self.traces.iter().map(|trace| trace.name.as_str()).chain(live)
    }

    pub(crate) fn progress(&self) -> Progress {
        let is_complete = self.has_all_facts.load(Ordering::Acquire);
        let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Progress {
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            total_bytes: self.live.as_ref().map_or(self.total_bytes, |live| live.bytes()),
            is_complete,
            is_live: self.live.is_some() && !is_complete,
            has_stopped: self.live.is_some() && is_complete && problem.is_some(),
            problem,
        }
    }

    /// Returns the first picture while the index is incomplete.
    pub(crate) fn preview(&self) -> Option<&Preview> {
        self.preview.get().filter(|_| !self.has_all_facts.load(Ordering::Acquire))
    }

    pub(crate) fn stop(&self) {
        self.must_stop.store(true, Ordering::Release);
        if let Some(live) = &self.live {
            live.stop();
        }
    }

    /// Fills the index, or reads the facts of the traces if the index is complete. An error is kept
    /// for [`progress`](Self::progress); what was read before it stays visible.
    pub(crate) fn build(&self, identity: &Identity, names: Option<cache::IndexNames>) {
        let is_complete = self.index().is_complete;
        let result = match &self.live {
            Some(live) => self.follow(live),
            None if is_complete => self.read_facts(),
            None => self.read_all(identity, names),
        };
        if let Err(error) = result {
            *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{error:#}"));
        }
        self.has_all_facts.store(true, Ordering::Release);
    }

    fn read_all(&self, identity: &Identity, names: Option<cache::IndexNames>) -> Result<()> {
        let traces: Vec<&Trace<TraceFile>> = self.traces.iter().map(|t| &t.trace).collect();
        if self.total_bytes > MIN_PREVIEW_BYTES {
            let _ = self.preview.set(Preview::read(&self.traces, self.start, &self.must_stop));
            self.index_mut().add_losses(self.loss_times());
        }
        let mut files = MergedFiles::new(traces.iter().copied());
        let threads = BufferThreads::start(1);
        if self.total_bytes > 4 << 20 {
            files.load_with(&threads);
        }
        let mut builder = Builder::new(self.start);
        let mut last_names = Instant::now();
        let mut is_done = false;
        while !is_done && !self.must_stop.load(Ordering::Acquire) {
            {
                let mut index = self.index_mut();
                let mut facts = self.facts();
                let begin = Instant::now();
                while !is_done && begin.elapsed() < BATCH_TIME {
                    is_done = add_batch(&traces, &mut files, &mut builder, &mut facts, &mut index)?;
                }
                if last_names.elapsed() > Duration::from_millis(500) {
                    resolve_names(&facts, &mut index, |_, known| known);
                    last_names = Instant::now();
                }
            }
            self.bytes_read.store(files.bytes_read(), Ordering::Relaxed);
            self.learn_symbols();
            while self.waiting.load(Ordering::Acquire) > 0 {
                std::thread::yield_now();
            }
        }
        if !is_done {
            return Ok(());
        }
        self.load_programs();
        builder.finish(&mut self.index_mut());
        self.name_late_kinds();
        let mut index = self.index_mut();
        resolve_names(&self.facts(), &mut index, |_, known| known);
        index.losses = self.traces.iter().fold(Losses::default(), |losses, t| Losses {
            events: losses.events.saturating_add(t.trace.header().events_lost.into()),
            buffers: losses.buffers.saturating_add(t.trace.header().buffers_lost.into()),
        });
        let times = self.loss_times();
        index.add_losses(times);
        self.bytes_read.store(self.total_bytes, Ordering::Relaxed);
        index.complete();
        drop(index);
        // No other thread changes the index.
        let index = self.index();
        index.write_directory(identity.as_deref().unwrap_or_default()).context("the index is not kept")?;
        let file = index.store.file()?;
        drop(index);
        if names.is_some() {
            // The name must not survive a crash that the content does not survive.
            file.sync_data().context("the index is not kept")?;
            cache::NewIndexFile::keep(names);
        }
        Ok(())
    }

    /// Returns when events were lost, by the flags of buffers.
    fn loss_times(&self) -> Vec<i64> {
        let mut times = Vec::new();
        for named in &self.traces {
            let clock = named.trace.clock();
            let offset = clock.start.0.saturating_sub(self.start.0).saturating_mul(100);
            let flagged = named.trace.buffers().iter().filter(|buffer| buffer.follows_loss());
            times
                .extend(flagged.map(|b| offset.saturating_add(clock.nanos_since_start(b.first_time)).max(0)));
        }
        times
    }

    /// Names kinds whose schema came after their first event.
    fn name_late_kinds(&self) {
        let unnamed = self.unnamed_kinds();
        let mut budget = LoadBudget::default();
        let mut found = Vec::new();
        for (position, number) in unnamed {
            let mut facts = self.facts();
            let names = self.with_record_within(&mut budget, position, 0, |record| {
                let schema = facts.decoder.find(record).ok()?;
                let names = &schema.prepared.schema.names;
                Some((names.provider.clone(), schema.prepared.event_name.clone()))
            });
            found.extend(names.flatten().map(|names| (number, names)));
        }
        let mut index = self.index_mut();
        for (number, (provider_name, name)) in found {
            let Some(kind) = index.kinds.kinds.get_mut(number) else { continue };
            kind.name = name;
            let provider = kind.provider;
            if let Some(name) = provider_name {
                index.kinds.set_provider_name(provider, &name);
            }
        }
    }

    /// Returns the kinds without a name and the position of the first event of each, in the order of
    /// the buffers.
    fn unnamed_kinds(&self) -> Vec<(RowPosition, usize)> {
        let index = self.index();
        let kinds = index.kinds.kinds.iter().enumerate().skip(1).filter(|(_, kind)| kind.name.is_none());
        let position_of = |row| {
            let values = index.events.row(row, &index.store)?;
            values.get(event_column::POSITION).copied().map(RowPosition)
        };
        let mut unnamed: Vec<(RowPosition, usize)> = kinds
            .take(MAX_LATE_KINDS)
            .filter_map(|(number, kind)| Some((position_of(kind.first_row)?, number)))
            .collect();
        unnamed.sort_by_key(|(position, _)| position.0);
        unnamed
    }

    /// Reads the records that describe others.
    fn read_facts(&self) -> Result<()> {
        let mut positions: Vec<u64> = Vec::new();
        {
            let index = self.index();
            index.informative.for_rows(0, u64::MAX, &index.store, |_, values| {
                positions.extend(values.get(1));
                true
            });
        }
        let total = positions.len().max(1) as u64;
        let mut rest = positions.as_slice();
        let mut most = MAX_FACT_RECORDS;
        while !rest.is_empty() && !self.must_stop.load(Ordering::Acquire) {
            let (part, later) = rest.split_at(most.min(rest.len()));
            let Some(records) = self.copy_records(part) else {
                most = part.len().div_ceil(2);
                continue;
            };
            for offsets in records.offsets.chunks(BATCH_RECORDS) {
                records.observe(offsets, &mut self.facts());
            }
            self.learn_symbols();
            rest = later;
            let done = total.saturating_sub(rest.len() as u64);
            self.bytes_read.store(self.total_bytes / total * done, Ordering::Relaxed);
        }
        self.load_programs();
        self.bytes_read.store(self.total_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Copies the records at some positions. They are read buffer by buffer: in order of time, each
    /// could lie in another buffer than the one before. Returns `None` if several records together
    /// are too large.
    fn copy_records(&self, positions: &[u64]) -> Option<OrderedRecords> {
        let mut by_buffer: Vec<(u64, usize)> = positions.iter().copied().zip(0..).collect();
        by_buffer.sort_unstable();
        let mut records = OrderedRecords::default();
        for (position, number) in by_buffer {
            let position = RowPosition(position);
            let copies = &mut records.copies;
            let offset = self.with_record(position, 0, |record| copies.push(position.file(), record));
            records.offsets.extend(offset.map(|offset| (number, offset)));
            if records.copies.size() > MAX_FACT_BYTES && positions.len() > 1 {
                return None;
            }
        }
        records.offsets.sort_unstable();
        Some(records)
    }

    /// Loads the schemas of the programs that the traces name.
    fn load_programs(&self) {
        if self.reads_programs {
            load_traced_programs(&mut self.facts().decoder, &());
        }
    }

    /// Returns the clock of a trace, or of the session.
    pub(crate) fn clock(&self, file: usize) -> Option<&Clock> {
        let clock = self.traces.get(file).map(|named| named.trace.clock());
        clock.or(self.live.as_ref().map(|live| &live.clock))
    }

    /// Calls a function with the record at a position; `None` if there is none. `time` is the stamp
    /// of a record whose header has none.
    pub(crate) fn with_record<T>(
        &self,
        position: RowPosition,
        time: i64,
        on_record: impl FnOnce(&Record<'_>) -> T,
    ) -> Option<T> {
        let mut unlimited = LoadBudget { bytes_left: usize::MAX };
        self.with_record_within(&mut unlimited, position, time, on_record)
    }

    /// Like [`with_record`](Self::with_record), but loads no buffer when the budget is spent.
    pub(crate) fn with_record_within<T>(
        &self,
        budget: &mut LoadBudget,
        position: RowPosition,
        time: i64,
        on_record: impl FnOnce(&Record<'_>) -> T,
    ) -> Option<T> {
        if let Some(live) = &self.live {
            let block = self.load_block(live, position, budget)?;
            return Some(on_record(&record_at(&block, position.offset())?));
        }
        let trace = &self.traces.get(position.file())?.trace;
        let buffer = trace.buffers().get(position.buffer())?;
        let key = (position.file(), position.buffer());
        let loaded = self.lock_buffers().find(key);
        let loaded = match loaded {
            Some(loaded) => loaded,
            None if budget.is_spent() => return None,
            None => {
                let mut bytes = Vec::new();
                let result = trace.load(buffer, &mut bytes);
                budget.charge(bytes.len().max(buffer.size as usize));
                result.ok()?;
                let bytes = Arc::new(bytes);
                self.lock_buffers().add(key, Arc::clone(&bytes));
                bytes
            }
        };
        let time = self.stamp_at(position.file(), time);
        let record = trace.record_at(&loaded, position.offset(), buffer.cpu, time)?;
        Some(on_record(&record))
    }

    /// Loads the block of a session's records that contains a position.
    fn load_block(
        &self,
        live: &LiveTrace,
        position: RowPosition,
        budget: &mut LoadBudget,
    ) -> Option<Arc<Vec<u8>>> {
        let key = (0, position.buffer());
        if let Some(loaded) = self.lock_buffers().find(key) {
            return Some(loaded);
        }
        if budget.is_spent() {
            return None;
        }
        let chunk = live.read(Cursor { block: u32::try_from(position.buffer()).ok()?, offset: 0 }).ok()?;
        let is_complete = chunk.ends_block();
        let bytes = Arc::new(chunk.into_bytes());
        budget.charge(bytes.len());
        if is_complete {
            self.lock_buffers().add(key, Arc::clone(&bytes));
        }
        Some(bytes)
    }

    /// Returns the raw stamp of a time in a trace.
    pub(crate) fn stamp_at(&self, file: usize, time: i64) -> i64 {
        let wall = FileTime(self.start.0.saturating_add(time / 100));
        self.clock(file).map_or(0, |clock| clock.raw(wall))
    }

    fn lock_buffers(&self) -> MutexGuard<'_, LoadedBuffers> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoadedBuffers {
    fn find(&self, key: (usize, usize)) -> Option<Arc<Vec<u8>>> {
        self.buffers.iter().rev().find(|(known, _)| *known == key).map(|(_, bytes)| Arc::clone(bytes))
    }

    fn add(&mut self, key: (usize, usize), bytes: Arc<Vec<u8>>) {
        self.bytes = self.bytes.saturating_add(bytes.len());
        self.buffers.push_back((key, bytes));
        while self.bytes > MAX_LOADED_BYTES && self.buffers.len() > 1 {
            let Some((_, oldest)) = self.buffers.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(oldest.len());
        }
    }
}

/// Records that were read buffer by buffer, with their order of time.
#[derive(Debug, Default)]
struct OrderedRecords {
    copies: RecordCopies,
    /// The number of each record in the order of time, and its offset in the copies.
    offsets: Vec<(usize, usize)>,
}

impl OrderedRecords {
    /// Lets the facts learn from some of the records.
    fn observe(&self, offsets: &[(usize, usize)], facts: &mut Facts) {
        for (_, offset) in offsets {
            if let Some((copied, _)) = self.copies.find(*offset) {
                facts.observe(copied.file, &copied.record);
            }
        }
    }
}

/// Adds some records to an index. Returns whether the traces are at their end.
fn add_batch(
    traces: &[&Trace<TraceFile>],
    files: &mut MergedFiles<'_, TraceFile>,
    builder: &mut Builder,
    facts: &mut Facts,
    index: &mut Index,
) -> Result<bool> {
    for _ in 0..BATCH_RECORDS {
        let Some(file) = files.next_file() else { return Ok(true) };
        let location = match files.events_mut(file) {
            Some(events) => events.peek_time()?.and_then(|_| events.peek_location()),
            None => None,
        };
        let (Some(record), Some(trace)) = (files.read(file)?, traces.get(file)) else { continue };
        let Some(location) = location else { continue };
        let position = RowPosition::new(file, location.buffer, location.offset);
        let placed = Placed { file, clock: trace.clock(), record: &record, position };
        builder.add(placed, facts, index);
    }
    Ok(false)
}

/// A process id and the name of the process.
type NamedProcess = (u32, Option<Arc<str>>);

/// Finds the processes of threads and their names. `complete` adds what the facts do not contain.
fn resolve_names(
    facts: &Facts,
    index: &mut Index,
    mut complete: impl FnMut(&Thread, NamedProcess) -> NamedProcess,
) {
    index.threads.group(|thread| {
        let (file, stamp) = thread.last_stamp;
        let Some(actors) = facts.files.get(file).map(|facts| &facts.actors) else {
            return (thread.pid, None);
        };
        let pid = match thread.pid {
            NO_ID if thread.tid != NO_ID => actors.process_of(thread.tid, stamp).unwrap_or(NO_ID),
            pid => pid,
        };
        complete(thread, (pid, actors.image_of(pid, stamp).map(Into::into)))
    });
}

#[cfg(test)]
mod answer_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
