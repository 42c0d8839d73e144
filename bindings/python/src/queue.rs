//! The bounded queue between a reader thread and Python.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::batch::EventBatch;

/// Batches that wait for Python.
const MAX_READY: usize = 4;
/// Emptied batches that are kept to be filled again.
const MAX_SPARE: usize = 4;

/// How a reader thread ended.
pub(crate) type Outcome<T> = Result<T, anyhow::Error>;

/// The queue; `T` is what the reader thread returns.
pub(crate) struct EventQueue<T> {
    state: Mutex<QueueState<T>>,
    filled: Condvar,
    drained: Condvar,
    is_stopped: AtomicBool,
}

struct QueueState<T> {
    ready: VecDeque<EventBatch>,
    spare: Vec<EventBatch>,
    outcome: Option<Outcome<T>>,
    has_ended: bool,
}

/// What a wait for events has found.
pub(crate) enum Taken<T> {
    /// The next events.
    Batch(EventBatch),
    /// No event follows. The outcome is returned once.
    End(Option<Outcome<T>>),
    /// Nothing happened during the wait.
    Nothing,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Self {
        let state = QueueState { ready: VecDeque::new(), spare: Vec::new(), outcome: None, has_ended: false };
        Self {
            state: Mutex::new(state),
            filled: Condvar::new(),
            drained: Condvar::new(),
            is_stopped: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that the reader thread end.
    pub(crate) fn stop(&self) {
        // The lock makes sure that no reader is between its check and its wait.
        let mut state = self.lock();
        self.is_stopped.store(true, Ordering::Relaxed);
        state.ready.clear();
        self.drained.notify_all();
        self.filled.notify_all();
    }

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Adds a batch, and waits while the queue is full. Returns an empty batch.
    pub(crate) fn send(&self, batch: EventBatch) -> EventBatch {
        let mut state = self.lock();
        while state.ready.len() >= MAX_READY && !self.is_stopped() {
            state = self.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !self.is_stopped() {
            state.ready.push_back(batch);
            self.filled.notify_one();
        }
        state.spare.pop().unwrap_or_default()
    }

    /// Calls `add` with the last batch of the queue, and waits before while the queue is full. An
    /// event that is added this way is available at once.
    pub(crate) fn add_to_last(&self, add: impl FnOnce(&mut EventBatch)) {
        let mut state = self.lock();
        loop {
            if self.is_stopped() {
                return;
            }
            let needs_batch = state.ready.back().is_none_or(EventBatch::is_full);
            if needs_batch && state.ready.len() >= MAX_READY {
                state = self.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            if needs_batch {
                let batch = state.spare.pop().unwrap_or_default();
                state.ready.push_back(batch);
            }
            break;
        }
        if let Some(batch) = state.ready.back_mut() {
            add(batch);
            if state.ready.len() == 1 && state.ready.back().is_some_and(|batch| batch.len() == 1) {
                self.filled.notify_one();
            }
        }
    }

    /// Ends the queue; the events in it are still delivered.
    pub(crate) fn end(&self, outcome: Outcome<T>) {
        let mut state = self.lock();
        state.outcome = Some(outcome);
        state.has_ended = true;
        self.filled.notify_all();
    }

    /// Returns the next batch, and waits for it up to a time. The emptied batch is used again.
    pub(crate) fn take(&self, mut emptied: EventBatch, timeout: Duration) -> Taken<T> {
        emptied.clear();
        let mut state = self.lock();
        if state.spare.len() < MAX_SPARE {
            state.spare.push(emptied);
        }
        if state.ready.is_empty() && !state.has_ended {
            let waited = self.filled.wait_timeout_while(state, timeout, |state| {
                state.ready.is_empty() && !state.has_ended && !self.is_stopped()
            });
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(batch) = state.ready.pop_front() {
            self.drained.notify_one();
            return Taken::Batch(batch);
        }
        if state.has_ended || self.is_stopped() { Taken::End(state.outcome.take()) } else { Taken::Nothing }
    }
}
