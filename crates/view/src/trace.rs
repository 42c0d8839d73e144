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
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
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
use crate::index::{Builder, Index, Losses, Placed, RowPosition, cache};
use crate::live::{Cursor, LiveTrace, record_at};
use crate::symbols::Symbols;
pub(crate) use preview::Preview;

/// Shorter traces are indexed before a preview could be seen.
const MIN_PREVIEW_BYTES: u64 = 16 << 20;
/// How long the index holds its lock at a time.
const BATCH_TIME: Duration = Duration::from_millis(8);
/// Records between two looks at the clock.
const BATCH_RECORDS: usize = 2048;
/// The most kinds of events whose names are looked up again at the end.
const MAX_LATE_KINDS: usize = 4096;
/// Memory for buffers that queries have loaded.
const MAX_LOADED_BYTES: usize = 48 << 20;

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
    symbols: Arc<Mutex<Symbols>>,
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
        let symbols = Arc::new(Mutex::new(Symbols::new(traces.len(), symbols)));
        let facts = Facts::new(traces.len(), decoder, Arc::clone(&symbols), |file| {
            let header = traces.get(file).map(|t| t.trace.header());
            header.map_or(0, |header| u64::try_from(header.perf_freq).unwrap_or(0))
        });
        Self::with_parts(traces, None, index, (facts, symbols), (start.unwrap_or_default(), total_bytes))
    }

    fn with_parts(
        traces: Vec<NamedTrace>,
        live: Option<Arc<LiveTrace>>,
        index: Index,
        (facts, symbols): (Facts, Arc<Mutex<Symbols>>),
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

    pub(crate) fn symbols(&self) -> MutexGuard<'_, Symbols> {
        self.symbols.lock().unwrap_or_else(PoisonError::into_inner)
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
            let _ = self.preview.set(Preview::read(&self.traces, self.start));
            self.index.write().unwrap_or_else(PoisonError::into_inner).add_losses(self.loss_times());
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
                let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
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
            while self.waiting.load(Ordering::Acquire) > 0 {
                std::thread::yield_now();
            }
        }
        if !is_done {
            return Ok(());
        }
        self.load_programs();
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        builder.finish(&mut index);
        self.name_late_kinds(&mut index);
        resolve_names(&self.facts(), &mut index, |_, known| known);
        index.losses = self.traces.iter().fold(Losses::default(), |losses, t| Losses {
            events: losses.events.saturating_add(t.trace.header().events_lost.into()),
            buffers: losses.buffers.saturating_add(t.trace.header().buffers_lost.into()),
        });
        let times = self.loss_times();
        index.add_losses(times);
        self.bytes_read.store(self.total_bytes, Ordering::Relaxed);
        index.finish(identity.as_deref().unwrap_or_default()).context("the index is not kept")?;
        if names.is_some() {
            let file = index.store.file()?;
            drop(index);
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
    fn name_late_kinds(&self, index: &mut Index) {
        let mut left = MAX_LATE_KINDS;
        let mut budget = LoadBudget::default();
        for kind in 1..index.kinds.kinds.len() {
            if left == 0 {
                break;
            }
            let Some(row) =
                index.kinds.kinds.get(kind).filter(|kind| kind.name.is_none()).map(|k| k.first_row)
            else {
                continue;
            };
            left -= 1;
            let Some(values) = index.events.row(row, &index.store) else { continue };
            let position =
                RowPosition(values.get(crate::index::event_column::POSITION).copied().unwrap_or(0));
            let mut facts = self.facts();
            let names = self.with_record_within(&mut budget, position, 0, |record| {
                let schema = facts.decoder.find(record).ok()?;
                let names = &schema.prepared.schema.names;
                Some((names.provider.clone(), schema.prepared.event_name.clone()))
            });
            let Some(Some((provider_name, name))) = names else { continue };
            let Some(kind) = index.kinds.kinds.get_mut(kind) else { continue };
            kind.name = name;
            let provider = kind.provider;
            if let Some(name) = provider_name {
                index.kinds.set_provider_name(provider, &name);
            }
        }
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
        for (done, position) in (0_u64..).zip(positions) {
            if self.must_stop.load(Ordering::Acquire) {
                break;
            }
            let position = RowPosition(position);
            let mut facts = self.facts();
            self.with_record(position, 0, |record| facts.observe(position.file(), record));
            self.bytes_read.store(self.total_bytes / total * done, Ordering::Relaxed);
        }
        self.load_programs();
        self.bytes_read.store(self.total_bytes, Ordering::Relaxed);
        Ok(())
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
mod hostile_tests;
#[cfg(test)]
mod tests;
