//! Closing a trace while it is processed.
//!
//! ```text
//!   processing thread                          any other thread
//!   ─────────────────                          ────────────────
//!   locks the trace's gate                     close(): sets `closed`, signals, locks the gate once
//!     closed? ─▶ leaves                                                          │
//!     callback                                                                   │
//!     closed? … next callback                                                    │
//!   unlocks (another trace's turn, or waiting) ─────────────────────────────────▶ returns
//! ```
//!
//! 1. A callback runs only while its trace's gate is locked and after `closed` was found unset under that lock: once `close` had the gate,
//!    no callback follows.
//! 2. `close` from within a callback does not wait: the gate is held by its own caller, or by another thread that may be closing ours.
//! 3. A callback that panics leaves the gate open.
//! 4. `end` only says that nothing new is wanted: a live trace or a stream of buffers delivers what has come, a file ends.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::EventfdFlags;

use crate::error::Result;

thread_local! {
    /// Whether this thread delivers to callbacks.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// What a trace and its closers share.
#[derive(Debug)]
pub(super) struct Gate {
    closed: AtomicBool,
    ending: AtomicBool,
    lock: Mutex<()>,
    /// Readable once the trace is closed or ends.
    signal: OwnedFd,
}

impl Gate {
    pub(super) fn new() -> Result<Arc<Self>> {
        let signal = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| traceweir_transport::Error::system("eventfd", e))?;
        Ok(Arc::new(Self {
            closed: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            lock: Mutex::new(()),
            signal,
        }))
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        // Relaxed is enough: who closes takes the lock afterwards, and whoever gets it later sees the flag.
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether nothing new is wanted.
    #[inline]
    pub(super) fn is_ending(&self) -> bool {
        // Relaxed: it is looked at again and again, and what it ends is not ordered against anything.
        self.ending.load(Ordering::Relaxed)
    }

    /// Whether a source that has everything at once is to be left.
    #[inline]
    pub(super) fn is_left(&self) -> bool {
        self.is_closed() || self.is_ending()
    }

    fn ring(&self) {
        // The counter is far from full; nobody reads it, so it stays readable.
        let _ = rustix::io::write(&self.signal, &1_u64.to_ne_bytes());
    }

    pub(super) fn signal(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }

    /// Locks the gate for a run of callbacks, each of which must see [`is_closed`](Self::is_closed) unset first.
    pub(super) fn enter(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs what calls callbacks, and nothing else that closes, in the knowledge that it does: once for all of them, as a look at a thread's own memory
/// is a call in a shared library.
pub(super) fn inside<T>(callback: impl FnOnce() -> T) -> T {
    struct Leave(bool);
    impl Drop for Leave {
        fn drop(&mut self) {
            INSIDE.set(self.0);
        }
    }
    let _leave = Leave(INSIDE.replace(true));
    callback()
}

/// Ends processing from another thread or from the callback.
#[derive(Clone, Debug)]
pub struct Closer {
    pub(super) gate: Arc<Gate>,
}

impl Closer {
    /// No callback for this trace is made after the return, unless called from within a callback. What is queued is dropped, and
    /// [`process`](super::process) goes on with the other traces or returns `Ok`.
    ///
    /// Waits for a callback that is running, but not when called from within one.
    pub fn close(&self) {
        self.gate.closed.store(true, Ordering::Relaxed);
        self.gate.ring();
        if !INSIDE.get() {
            drop(self.gate.enter());
        }
    }

    /// Nothing new comes out of this trace: what a live session has delivered or a stream was given follows, a file ends where it is.
    /// Waits for nobody.
    pub fn end(&self) {
        self.gate.ending.store(true, Ordering::Relaxed);
        self.gate.ring();
    }
}
