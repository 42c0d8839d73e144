//! Closing a trace while it is processed.
//!
//! ```text
//!   processing thread                          any other thread
//!   ─────────────────                          ────────────────
//!   locks the trace's gate                     close(): sets `is_closed`, signals, locks
//!     closed? ─▶ leaves                                                          │
//!     callback                                                                   │
//!     closed? … next callback                                                    │
//!   unlocks (another trace's turn, or waiting) ─────────────────────────────────▶ returns
//! ```
//!
//! 1. A callback runs only while its trace's gate is locked and after `is_closed` was found unset
//!    under that lock: once `close` has locked the gate, no callback follows.
//! 2. `close` from within a callback does not wait. The calling thread may hold the gate itself, or
//!    two callbacks may close each other's traces, and each thread would wait for the other.
//! 3. A callback that panics leaves the gate unlocked.
//! 4. `end` only stops new input: a live trace or one with added buffers delivers the events that
//!    have arrived; a file ends at once.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::EventfdFlags;

use crate::error::Result;

thread_local! {
    /// Whether this thread delivers to callbacks.
    static IS_DELIVERING: Cell<bool> = const { Cell::new(false) };
}

/// The state that a trace and its closers share.
#[derive(Debug)]
pub(super) struct CloseGate {
    is_closed: AtomicBool,
    is_ending: AtomicBool,
    lock: Mutex<()>,
    /// Readable once the trace is closed or ending.
    signal: OwnedFd,
}

impl CloseGate {
    pub(super) fn new() -> Result<Arc<Self>> {
        let signal = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| traceweir_transport::Error::system("eventfd", e))?;
        Ok(Arc::new(Self {
            is_closed: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            lock: Mutex::new(()),
            signal,
        }))
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        // Relaxed is enough: the closing thread takes the lock afterwards, and every later holder
        // sees the flag.
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Returns whether no new input is wanted.
    #[inline]
    pub(super) fn is_ending(&self) -> bool {
        // Relaxed: it is read repeatedly, and the end is not ordered against anything.
        self.is_ending.load(Ordering::Relaxed)
    }

    /// Returns whether the processing of a file, which has all its input, must end.
    #[inline]
    pub(super) fn is_closed_or_ending(&self) -> bool {
        self.is_closed() || self.is_ending()
    }

    fn wake_waiter(&self) {
        // The counter is far from full; no thread reads it, so it stays readable.
        let _ = rustix::io::write(&self.signal, &1_u64.to_ne_bytes());
    }

    pub(super) fn signal(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }

    /// Locks the gate for a series of callbacks; before each one, the caller must check that
    /// [`is_closed`](Self::is_closed) is unset.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `deliver` with this thread marked as delivering. The mark is set once for all callbacks,
/// because in a shared library each access to thread-local memory is a function call.
pub(super) fn run_as_delivering<T>(deliver: impl FnOnce() -> T) -> T {
    struct RestoreOnDrop(bool);
    impl Drop for RestoreOnDrop {
        fn drop(&mut self) {
            IS_DELIVERING.set(self.0);
        }
    }
    let _restore = RestoreOnDrop(IS_DELIVERING.replace(true));
    deliver()
}

/// Ends the processing of a trace from another thread or from the callback.
#[derive(Clone, Debug)]
pub struct Closer {
    pub(super) gate: Arc<CloseGate>,
}

impl Closer {
    /// Closes the trace. No callback for it runs after this call returns, unless the call came from
    /// within a callback.
    ///
    /// Queued events are dropped, and [`process`](super::process) continues with the other traces
    /// or returns `Ok`.
    ///
    /// Waits for a running callback, but not when called from within one.
    pub fn close(&self) {
        self.gate.is_closed.store(true, Ordering::Relaxed);
        self.gate.wake_waiter();
        if !IS_DELIVERING.get() {
            drop(self.gate.lock());
        }
    }

    /// Stops the input of the trace, without waiting.
    ///
    /// Events that have arrived from a live session or in added buffers still follow; a file ends
    /// at its current position.
    pub fn end(&self) {
        self.gate.is_ending.store(true, Ordering::Relaxed);
        self.gate.wake_waiter();
    }
}
