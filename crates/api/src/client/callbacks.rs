//! The thread that runs callbacks for the control thread.
//!
//! The control thread has its own descriptor table (`process`). Code of the application must not
//! run there: a callback that writes to the program's log would write to a socket of the library.
//! So another thread, which shares the program's descriptors, does such work, and the control
//! thread waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::time::{Duration, Instant};
use std::{cell::Cell, fs, io};

use traceweir_format::linux::stat_fields;

use super::foreign_lock::ControlThreadWatch;
use super::{REPLY_TIMEOUT, SEND_TIMEOUT};
use crate::process::{self, load};

type CallbackJob = Box<dyn FnOnce() + Send>;

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(true) };
}

/// Returns whether this thread may wait for the control thread. The control thread itself may not,
/// nor may the callback thread, which the control thread waits for, nor any thread before the
/// control thread can run (`process::load`).
pub(super) fn may_wait_for_control() -> bool {
    MAY_WAIT.get() && !load::is_loading()
}

/// Marks the calling thread as one that must not wait for the control thread.
pub(super) fn forbid_waiting_for_control() {
    MAY_WAIT.set(false);
}

/// Lets the calling thread wait for channels without calling `malloc` from now on: the first wait of
/// a thread registers a destructor with the C library, which allocates.
pub(super) fn allocate_channel_state() {
    let (sender, receiver) = sync_channel::<()>(0);
    let _ = receiver.recv_timeout(Duration::from_millis(1));
    drop(sender);
}

/// A sender of jobs to the thread that runs callbacks.
#[derive(Clone, Debug)]
pub(super) struct CallbackThread {
    jobs: Sender<CallbackJob>,
    watch: &'static ControlThreadWatch,
}

impl CallbackThread {
    /// Starts the thread. The caller shares the program's descriptors, and so will the thread.
    pub(super) fn start(watch: &'static ControlThreadWatch) -> io::Result<Self> {
        let (jobs, inbox): (Sender<CallbackJob>, Receiver<CallbackJob>) = channel();
        process::spawn_without_signals("traceweir-call", move || {
            forbid_waiting_for_control();
            if load::is_malloc_replaced() {
                allocate_channel_state();
            }
            while let Ok(job) = inbox.recv() {
                job();
            }
        })?;
        Ok(Self { jobs, watch })
    }

    /// Runs `work` on the thread and waits for it. `None` if it panicked.
    pub(super) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = sync_channel(1);
        let job = move || {
            // The receiver waits as long as this takes.
            let _ = done.send(catch_unwind(AssertUnwindSafe(work)).ok());
        };
        // The thread receives as long as this sender exists.
        self.jobs.send(Box::new(job)).ok()?;
        self.watch.await_callback(|| result.recv().ok().flatten())
    }
}

/// The program's callback that runs on the callback thread now, if one does. It consists of
/// atomics: a callback may fork, and a lock that another thread held would stay locked in the
/// child.
#[derive(Debug)]
pub(super) struct CurrentCallback {
    created: Instant,
    /// When the callback began, in milliseconds after `created`, plus one; 0 if no callback runs.
    began_ms_plus_one: AtomicU64,
    /// The thread that runs the callback.
    thread: AtomicI32,
}

impl CurrentCallback {
    pub(super) fn new() -> Self {
        Self { created: Instant::now(), began_ms_plus_one: AtomicU64::new(0), thread: AtomicI32::new(0) }
    }

    /// Runs a callback on the calling thread.
    pub(super) fn run(&self, callback: impl FnOnce()) {
        /// Marks the end of a callback, even if it panics.
        struct ClearOnDrop<'a>(&'a AtomicU64);
        impl Drop for ClearOnDrop<'_> {
            fn drop(&mut self) {
                self.0.store(0, Ordering::Release);
            }
        }
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        let began_ms = u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.began_ms_plus_one.store(began_ms.saturating_add(1), Ordering::Release);
        let _clear = ClearOnDrop(&self.began_ms_plus_one);
        callback();
    }

    /// Returns for how long the callback has run; zero if none runs.
    pub(super) fn elapsed(&self) -> Duration {
        self.elapsed_since(self.began_ms_plus_one.load(Ordering::Acquire))
    }

    fn elapsed_since(&self, began_ms_plus_one: u64) -> Duration {
        let began_at = began_ms_plus_one.checked_sub(1).map(Duration::from_millis);
        began_at.map_or(Duration::ZERO, |began_at| self.created.elapsed().saturating_sub(began_at))
    }

    /// Returns whether the control thread has waited for a callback for so long that other threads
    /// should stop waiting: the callback may wait for a lock that one of them holds.
    pub(super) fn is_stuck(&self) -> bool {
        let began_ms_plus_one = self.began_ms_plus_one.load(Ordering::Acquire);
        let thread = self.thread.load(Ordering::Relaxed);
        let elapsed = self.elapsed_since(began_ms_plus_one);
        // Another callback may have begun since then.
        is_too_long(elapsed, || is_runnable(thread))
            && self.began_ms_plus_one.load(Ordering::Acquire) == began_ms_plus_one
    }
}

/// Returns whether other threads should stop waiting for a callback that has run for `elapsed`. The
/// limit is `SEND_TIMEOUT` if the callback uses a processor or waits for one, else `REPLY_TIMEOUT`.
fn is_too_long(elapsed: Duration, is_runnable: impl FnOnce() -> bool) -> bool {
    elapsed >= SEND_TIMEOUT || (elapsed >= REPLY_TIMEOUT && !is_runnable())
}

/// Returns whether a thread of this process runs or waits for a processor; `false` if it sleeps, or
/// if `/proc` is not available.
fn is_runnable(thread: i32) -> bool {
    let stat = fs::read(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    stat_fields(&stat).next() == Some(b"R")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_callback_has_a_shorter_timeout_than_a_runnable_one() {
        let one_ms = Duration::from_millis(1);
        assert!(!is_too_long(REPLY_TIMEOUT - one_ms, || false));
        assert!(is_too_long(REPLY_TIMEOUT, || false));
        assert!(!is_too_long(SEND_TIMEOUT - one_ms, || true));
        assert!(is_too_long(SEND_TIMEOUT, || true));
    }

    #[test]
    fn sleeping_thread_is_not_runnable() {
        assert!(is_runnable(rustix::thread::gettid().as_raw_nonzero().get()), "this thread must be runnable");
        assert!(!is_runnable(i32::MAX), "a thread that does not exist must not be runnable");
        let (id, thread_id) = channel();
        let (end, wait) = channel::<()>();
        let sleeper = std::thread::spawn(move || {
            id.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _ = wait.recv();
        });
        let thread = thread_id.recv().unwrap();
        // The thread sleeps as soon as it calls `recv`.
        while is_runnable(thread) {
            std::thread::yield_now();
        }
        drop(end);
        sleeper.join().unwrap();
    }

    #[test]
    fn callback_is_stuck_from_its_timeout_until_its_end() {
        let current = CurrentCallback::new();
        assert!(!current.is_stuck());
        let aged = CurrentCallback { created: Instant::now() - SEND_TIMEOUT, ..CurrentCallback::new() };
        let caught = catch_unwind(AssertUnwindSafe(|| {
            aged.run(|| {
                assert!(
                    aged.began_ms_plus_one.load(Ordering::Relaxed) > 0 && !aged.is_stuck(),
                    "a callback that has just begun must not be stuck"
                );
                // As if the callback had begun at `created`, which was `SEND_TIMEOUT` ago.
                aged.began_ms_plus_one.store(1, Ordering::Relaxed);
                assert!(aged.is_stuck());
                panic!("the test ends the callback by a panic");
            });
        }));
        assert!(caught.is_err() && !aged.is_stuck() && aged.began_ms_plus_one.load(Ordering::Relaxed) == 0);
    }
}
