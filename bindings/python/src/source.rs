//! The Python side of a queue: takes events out of it, one at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::batch::{EventBatch, EventData};
use crate::fork::OwnerProcess;
use crate::queue::{EventQueue, Outcome, Taken};

/// How often a wait checks for signals, such as that of Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Takes events out of a queue.
///
/// Several threads may share a source: each event goes to one of them.
pub(crate) struct EventSource<T> {
    queue: Arc<EventQueue<T>>,
    batch: Mutex<EventBatch>,
    /// The thread that waits for events, by Python's number; 0 if none does.
    waiting_thread: AtomicU64,
    /// The process that the reader thread runs in.
    process: OwnerProcess,
}

/// The next event, or why there is none.
pub(crate) enum NextEvent<T> {
    /// The next event.
    Event(EventData),
    /// No event follows. The outcome of the reader thread is returned once.
    End(Option<Outcome<T>>),
    /// No event arrived in time.
    Timeout,
}

impl<T: Send> EventSource<T> {
    pub(crate) fn new(queue: Arc<EventQueue<T>>) -> Self {
        let (batch, waiting_thread) = (Mutex::default(), AtomicU64::new(0));
        Self { queue, batch, waiting_thread, process: OwnerProcess::current() }
    }

    /// Requests that the reader thread end.
    pub(crate) fn stop(&self) {
        if self.process.is_current() {
            self.queue.stop();
        }
    }

    /// Returns the next event. Other Python threads run while this one waits.
    #[inline]
    pub(crate) fn next(&self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<NextEvent<T>> {
        self.process.check()?;
        let mut batch = match self.batch.try_lock() {
            Ok(batch) => batch,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => self.lock_slowly(py)?,
        };
        match batch.take_first() {
            Some(event) => Ok(NextEvent::Event(event)),
            None => self.wait(py, deadline, batch),
        }
    }

    #[cold]
    fn lock_slowly(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, EventBatch>> {
        if self.waiting_thread.load(Ordering::Relaxed) == current_thread_number() {
            // A signal handler called this function while its own thread waits.
            return Err(PyValueError::new_err("this thread already waits for the next event"));
        }
        loop {
            let waited = py.detach(|| {
                std::thread::sleep(Duration::from_micros(200));
                self.batch.try_lock().is_ok()
            });
            py.check_signals()?;
            if waited {
                match self.batch.try_lock() {
                    Ok(batch) => return Ok(batch),
                    Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                    Err(TryLockError::WouldBlock) => {}
                }
            }
        }
    }

    #[cold]
    fn wait(
        &self,
        py: Python<'_>,
        deadline: Option<Instant>,
        mut batch: MutexGuard<'_, EventBatch>,
    ) -> PyResult<NextEvent<T>> {
        self.waiting_thread.store(current_thread_number(), Ordering::Relaxed);
        let next = self.wait_for_batch(py, deadline, &mut batch);
        self.waiting_thread.store(0, Ordering::Relaxed);
        next
    }

    fn wait_for_batch(
        &self,
        py: Python<'_>,
        deadline: Option<Instant>,
        batch: &mut EventBatch,
    ) -> PyResult<NextEvent<T>> {
        loop {
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let timeout = remaining.map_or(SIGNAL_INTERVAL, |remaining| remaining.min(SIGNAL_INTERVAL));
            let (queue, emptied) = (&self.queue, std::mem::take(batch));
            match py.detach(|| queue.take(emptied, timeout)) {
                Taken::Batch(mut taken) => {
                    let event = taken.take_first();
                    *batch = taken;
                    if let Some(event) = event {
                        return Ok(NextEvent::Event(event));
                    }
                }
                Taken::End(outcome) => return Ok(NextEvent::End(outcome)),
                Taken::Nothing if remaining.is_some_and(|remaining| remaining <= timeout) => {
                    return Ok(NextEvent::Timeout);
                }
                Taken::Nothing => {}
            }
            py.check_signals()?;
        }
    }
}

impl<T> Drop for EventSource<T> {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.queue.stop();
        }
    }
}

/// Returns a number for the current thread that is never 0.
fn current_thread_number() -> u64 {
    thread_local! {
        static NUMBER: u64 = {
            static NEXT: AtomicU64 = AtomicU64::new(1);
            NEXT.fetch_add(1, Ordering::Relaxed)
        };
    }
    NUMBER.with(|number| *number)
}

/// Ignores that a thread has panicked while it held a lock: the values that locks of this package
/// guard are valid at any time.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
