//! Opened traces, their index, and what is known about their events: what all queries share.
//!
//! ```text
//!   thread of the index:  records ──▶ Builder ──▶ Index      while holding the lock, for a few ms at a time
//!   queries:              Index ──▶ rows, segments ──▶ with_record: the record of a row
//! ```
//!
//! `fill` indexes the records of files, `follow` those of a session that runs. `buffers` keeps the
//! buffers that queries have loaded.

mod buffers;
mod fill;
mod follow;
mod preview;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::time::{Duration, Instant};

use anyhow::Result;
use traceweir::consumer::TraceFile;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_decode::Decoder;
use traceweir_format::etl::Trace;
use traceweir_format::time::{Clock, FileTime};

use crate::index::facts::Facts;
use crate::index::machines::Machines;
use crate::index::{Index, RowPosition, cache};
use crate::limits::QueryLimits;
use crate::live::LiveTrace;
use crate::symbols::{SharedSymbols, SymbolTurns, Symbols};
pub(crate) use buffers::LoadBudget;
use buffers::LoadedBuffers;
pub(crate) use preview::Preview;

/// Time between two attempts to lock the index in order to change it.
const WRITE_INTERVAL: Duration = Duration::from_micros(500);
/// How long the index lets queries pass that hold its lock one after another.
const MAX_WRITE_ATTEMPTS: Duration = Duration::from_secs(5);

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

/// The parts of a view that its source decides: traces or a session.
struct ViewParts {
    traces: Vec<NamedTrace>,
    live: Option<Arc<LiveTrace>>,
    facts: Facts,
    symbols: SharedSymbols,
    start: FileTime,
    total_bytes: u64,
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
        let start = start.unwrap_or_default();
        Self::with_parts(index, ViewParts { traces, live: None, facts, symbols, start, total_bytes })
    }

    fn with_parts(index: Index, parts: ViewParts) -> Self {
        let ViewParts { traces, live, facts, symbols, start, total_bytes } = parts;
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

    fn must_stop(&self) -> bool {
        self.must_stop.load(Ordering::Acquire)
    }

    /// Lets the symbols learn from the records that were read. The caller holds no lock.
    fn learn_symbols(&self) {
        self.symbols.learn(|| !self.must_stop());
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

    /// Returns the clock of a trace, or of the session.
    pub(crate) fn clock(&self, file: usize) -> Option<&Clock> {
        let clock = self.traces.get(file).map(|named| named.trace.clock());
        clock.or(self.live.as_ref().map(|live| &live.clock))
    }

    /// Returns the raw stamp of a time in a trace.
    pub(crate) fn stamp_at(&self, file: usize, time: i64) -> i64 {
        let wall = FileTime(self.start.0.saturating_add(time / 100));
        self.clock(file).map_or(0, |clock| clock.raw(wall))
    }

    /// Returns whether the index is locked.
    #[cfg(test)]
    pub(crate) fn is_index_locked(&self) -> bool {
        matches!(self.index.try_write(), Err(TryLockError::WouldBlock))
    }
}

#[cfg(test)]
mod answer_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
