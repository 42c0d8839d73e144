//! A running session: its events are received on one thread and indexed on another.
//!
//! ```text
//!   session, or its file ──▶ receiver ──▶ Spool, an unlinked file ──▶ TraceView::follow ──▶ Index
//!                                           ▲ the record of a row, for queries
//! ```
//!
//! 1. The receiver never waits for the index, so a slow index loses no events.
//! 2. The file has a limit. When it is full, later events are not shown, and the page reports it.

mod file;
mod spool;

use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use traceweir::consumer::{Closer, Event, Handler, Loss, Trace, Window, deliver};
use traceweir_analysis::traces::TraceSet;
use traceweir_format::header::Record;
use traceweir_format::time::{Clock, FileTime};

pub use file::GrowingFile;
pub(crate) use file::open as open_file;
use spool::{Appended, Spool};
pub(crate) use spool::{Chunk, Cursor, record_at};

/// The most bytes of events that are kept.
const MAX_SPOOL_BYTES: u64 = 4 << 30;
/// Memory for buffers of the session that wait for the receiver.
const QUEUE_BYTES: usize = 64 << 20;
/// The most times of losses between two readings.
const MAX_NEW_LOSSES: usize = 1 << 12;

/// The events of a session that runs, or ran.
pub(crate) struct LiveTrace {
    pub(crate) name: String,
    pub(crate) clock: Clock,
    /// When the page began to follow the session.
    pub(crate) start: FileTime,
    /// Frequency of the performance counter, in Hz.
    pub(crate) counter_hz: u64,
    state: Mutex<State>,
    has_news: Condvar,
    /// Ends the delivery of a session's events.
    closer: Option<Closer>,
}

struct State {
    spool: Spool,
    losses: NewLosses,
    is_ended: bool,
    must_stop: bool,
    problem: Option<String>,
}

/// What a receiver needs to know of a session.
struct SessionFacts {
    name: String,
    clock: Clock,
    start: FileTime,
    perf_freq: i64,
    closer: Option<Closer>,
}

/// Losses since the last reading.
#[derive(Debug, Default)]
pub(crate) struct NewLosses {
    pub(crate) events: u64,
    pub(crate) buffers: u64,
    /// Raw stamps at which losses were noticed.
    pub(crate) stamps: Vec<i64>,
}

/// What the receiver has done.
#[derive(Debug, Default)]
pub(crate) struct LiveNews {
    pub(crate) losses: NewLosses,
    /// No event follows those in the file.
    pub(crate) is_ended: bool,
    /// Why the events ended early.
    pub(crate) problem: Option<String>,
}

impl LiveTrace {
    /// Prepares to receive the events of a session.
    pub(crate) fn new(name: String, session: &Trace) -> Result<Self> {
        let facts = SessionFacts {
            name,
            clock: *session.clock(),
            start: FileTime::now(),
            perf_freq: session.header().perf_freq,
            closer: Some(session.closer()),
        };
        Self::with_limit(facts, MAX_SPOOL_BYTES)
    }

    /// Prepares to receive the events in the file of a session, from the first on.
    pub(crate) fn of_file(name: String, set: &TraceSet) -> Result<Self> {
        let input = set.inputs.first().context("there is no file")?;
        let facts = SessionFacts {
            name,
            clock: *input.trace.clock(),
            start: set.start(),
            perf_freq: input.trace.header().perf_freq,
            closer: None,
        };
        Self::with_limit(facts, MAX_SPOOL_BYTES)
    }

    fn with_limit(facts: SessionFacts, max_bytes: u64) -> Result<Self> {
        let state = State {
            spool: Spool::create(max_bytes)?,
            losses: NewLosses::default(),
            is_ended: false,
            must_stop: false,
            problem: None,
        };
        let SessionFacts { name, clock, start, perf_freq, closer } = facts;
        let counter_hz = u64::try_from(perf_freq).unwrap_or(0);
        Ok(Self {
            name,
            clock,
            start,
            counter_hz,
            state: Mutex::new(state),
            has_news: Condvar::new(),
            closer,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives events until the session ends, the file is full, or [`stop`](Self::stop).
    pub(crate) fn receive(&self, mut session: Trace) {
        session.set_queue_limit(QUEUE_BYTES);
        let result = deliver(vec![session], &Window::default(), &mut Receiver(self));
        self.end(result.map_err(Into::into));
    }

    fn end(&self, result: Result<()>) {
        let mut state = self.lock();
        if let Err(error) = result {
            state.problem.get_or_insert(format!("the events end here: {error:#}"));
        }
        state.is_ended = true;
        drop(state);
        self.has_news.notify_all();
    }

    /// Ends the receiver.
    pub(crate) fn stop(&self) {
        if let Some(closer) = &self.closer {
            closer.close();
        }
        self.lock().must_stop = true;
        self.has_news.notify_all();
    }

    /// Appends a record. Returns `Break` if the receiver must end.
    fn add_record(&self, record: &Record<'_>) -> ControlFlow<()> {
        let mut state = self.lock();
        if state.must_stop {
            return ControlFlow::Break(());
        }
        match state.spool.append(record) {
            Ok(Appended::ToBlock) => {}
            Ok(Appended::ToNewBlock) => self.has_news.notify_one(),
            Err(error) => {
                state.problem = Some(format!("{error:#}; later events are not shown"));
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn add_loss(&self, loss: &Loss) {
        let losses = &mut self.lock().losses;
        losses.events = losses.events.saturating_add(loss.lost.events);
        losses.buffers = losses.buffers.saturating_add(loss.lost.buffers);
        if losses.stamps.len() < MAX_NEW_LOSSES {
            losses.stamps.push(loss.raw);
        }
    }

    /// Waits until there is a complete block after a cursor or the events have ended, at most for a
    /// time.
    pub(crate) fn wait(&self, cursor: Cursor, timeout: Duration) -> LiveNews {
        let is_idle = |state: &mut State| !state.is_ended && !state.spool.has_block_after(cursor);
        let waited = self.has_news.wait_timeout_while(self.lock(), timeout, is_idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        LiveNews {
            losses: std::mem::take(&mut state.losses),
            is_ended: state.is_ended && !state.spool.has_records_after(cursor),
            problem: state.problem.clone(),
        }
    }

    /// Reads the records of a block from a cursor on.
    pub(crate) fn read(&self, cursor: Cursor) -> Result<Chunk> {
        let part = self.lock().spool.find(cursor);
        part.read()
    }

    /// Returns the bytes of all records.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().spool.bytes()
    }
}

struct Receiver<'l>(&'l LiveTrace);

impl Handler for Receiver<'_> {
    fn event(&mut self, event: Event<'_>) -> ControlFlow<()> {
        self.0.add_record(event.record)
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.0.add_loss(&loss);
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests;
