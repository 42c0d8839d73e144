//! Names of code addresses. Files with symbols are read on first use, which can take seconds.
//!
//! ```text
//!   index:    record ──▶ SymbolQueue                          never waits for a file with symbols
//!   queries:  lock ──▶ Symbols ◀── records of the queue ──▶ names
//! ```
//!
//! The index never waits for the lock while it holds another one, so only queries that need names
//! wait for files with symbols. A long query lets the others use the symbols between its frames.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use traceweir_analysis::images::LoadedImages;
use traceweir_analysis::report::{CodeLocation, FunctionId, FunctionTable};
use traceweir_analysis::symbols::{SymbolOptions, TraceSymbols};
use traceweir_decode::managed_code::ManagedCode;
use traceweir_decode::stack::Stack;
use traceweir_format::header::Record;

use crate::limits::QueryLimits;
use crate::record_copies::RecordCopies;

/// The memory for files with symbols, of all traces.
const MAX_LOADED_BYTES: usize = 96 << 20;

/// A queue of this size is emptied before the index continues.
const MAX_QUEUE_BYTES: usize = 16 << 20;
/// A queue of this size takes no further record. The index empties it every few milliseconds, in
/// which it reads far less about code than the difference, unless a trace is made to.
const MAX_BATCH_BYTES: usize = 24 << 20;
/// Time between two attempts to lock the symbols.
const LOCK_INTERVAL: Duration = Duration::from_millis(2);
/// How long a query uses the symbols while others wait for them, give or take a file with symbols.
const TURN_TIME: Duration = Duration::from_millis(40);

/// Records of all traces that the symbols have not learnt from yet, in the order of time.
#[derive(Debug, Default)]
pub(crate) struct SymbolQueue(Mutex<RecordCopies>);

impl SymbolQueue {
    fn lock(&self) -> MutexGuard<'_, RecordCopies> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a copy of a record, if there is room.
    pub(crate) fn push(&self, file: usize, record: &Record<'_>) {
        let mut records = self.lock();
        if records.size() < MAX_BATCH_BYTES {
            records.push(file, record);
        }
    }

    /// Moves the records to the symbols, whose lock is held: only one thread empties the queue.
    fn drain(&self, symbols: &mut Symbols) {
        let records = std::mem::take(&mut *self.lock());
        records.for_each(|copied| symbols.observe(copied.file, &copied.record));
    }
}

/// The symbols, and the records from which they learn before the next use.
pub(crate) struct SharedSymbols {
    symbols: Mutex<Symbols>,
    queue: Arc<SymbolQueue>,
    /// Queries that wait for the symbols.
    waiting: AtomicUsize,
}

impl SharedSymbols {
    pub(crate) fn new(symbols: Symbols) -> Self {
        Self { symbols: Mutex::new(symbols), queue: Arc::default(), waiting: AtomicUsize::new(0) }
    }

    /// Returns the queue that the index fills.
    pub(crate) fn queue(&self) -> Arc<SymbolQueue> {
        Arc::clone(&self.queue)
    }

    /// Waits for the symbols, at most until the limits of a query are reached.
    pub(crate) fn lock_within(&self, limits: &QueryLimits) -> Option<MutexGuard<'_, Symbols>> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut symbols = self.try_lock();
        while symbols.is_none() && !limits.is_over() {
            std::thread::sleep(LOCK_INTERVAL);
            symbols = self.try_lock();
        }
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        symbols
    }

    /// Returns the symbols for a query that resolves many frames.
    pub(crate) fn in_turns<'s>(&'s self, limits: &'s QueryLimits) -> SymbolTurns<'s> {
        SymbolTurns { shared: self, limits, symbols: None, since: Instant::now() }
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Symbols>> {
        let mut symbols = match self.symbols.try_lock() {
            Ok(symbols) => symbols,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.queue.drain(&mut symbols);
        Some(symbols)
    }

    /// Empties the queue if no query resolves names, or if the queue is full and `may_wait`. The
    /// caller holds no other lock.
    pub(crate) fn learn(&self, mut may_wait: impl FnMut() -> bool) {
        while self.queued_bytes() > 0 && self.try_lock().is_none() {
            if self.queued_bytes() < MAX_QUEUE_BYTES || !may_wait() {
                return;
            }
            std::thread::sleep(LOCK_INTERVAL);
        }
    }

    fn queued_bytes(&self) -> usize {
        self.queue.lock().size()
    }
}

/// The symbols for a long query, which others use in turns with it.
pub(crate) struct SymbolTurns<'s> {
    shared: &'s SharedSymbols,
    limits: &'s QueryLimits,
    symbols: Option<MutexGuard<'s, Symbols>>,
    /// When this turn began.
    since: Instant,
}

impl SymbolTurns<'_> {
    /// Returns the symbols, after a turn of another query if one waits; `None` if others have them
    /// until the limits are reached.
    pub(crate) fn lock(&mut self) -> Option<&mut Symbols> {
        let is_wanted = || self.shared.waiting.load(Ordering::Acquire) > 0;
        if self.symbols.is_some() && self.since.elapsed() >= TURN_TIME && is_wanted() {
            self.symbols = None;
            // Long enough for another query to notice that the symbols are free.
            std::thread::sleep(2 * LOCK_INTERVAL);
        }
        if self.symbols.is_none() {
            self.symbols = self.shared.lock_within(self.limits);
            self.since = Instant::now();
        }
        self.symbols.as_deref_mut()
    }
}

/// The symbols of each trace.
pub(crate) struct Symbols {
    pub(crate) files: Vec<TraceSymbols>,
}

/// The process of a stack, and when it ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadCode {
    pub(crate) file: usize,
    pub(crate) pid: u32,
    pub(crate) stamp: i64,
}

impl Symbols {
    pub(crate) fn new(files: usize, options: &SymbolOptions) -> Self {
        let new_symbols = |_| {
            let mut symbols = TraceSymbols::new(options.clone(), Arc::new(()));
            symbols.limit_loaded_bytes(MAX_LOADED_BYTES / files.max(1));
            symbols.share_limits(files);
            symbols
        };
        Self { files: (0..files).map(new_symbols).collect() }
    }

    /// Returns whether [`observe`](Self::observe) can learn from a record.
    #[inline]
    pub(crate) fn is_informative(record: &Record<'_>) -> bool {
        LoadedImages::is_relevant(record) || ManagedCode::is_informative(record)
    }

    pub(crate) fn observe(&mut self, file: usize, record: &Record<'_>) {
        if let Some(symbols) = self.files.get_mut(file) {
            symbols.observe(record);
        }
    }

    /// Appends the functions of a stack, outermost first.
    pub(crate) fn resolve_stack(
        &mut self,
        functions: &mut FunctionTable,
        stack: &Stack,
        code: ThreadCode,
        program: Option<&str>,
        out: &mut Vec<FunctionId>,
    ) {
        let location = CodeLocation { process: code.pid, time: code.stamp, pointer_size: 8, program };
        if let Some(symbols) = self.files.get_mut(code.file) {
            functions.resolve_stack(symbols, stack, location, out);
        }
    }
}

#[cfg(test)]
mod tests;
