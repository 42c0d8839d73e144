//! The thread that runs callbacks for the control thread.
//!
//! The control thread has its own descriptor table (`process`). Code of the application must not
//! run there: a callback that writes to the program's log would write to a socket of the library.
//! So a second thread, which shares the program's descriptors, does such work, and the control
//! thread waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::{cell::Cell, io};

use crate::process;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(true) };
}

/// Returns whether this thread may wait for the control thread: neither the control thread nor the
/// callback thread, for which it waits, may.
pub(super) fn may_wait_for_control() -> bool {
    MAY_WAIT.get()
}

/// Marks the calling thread as one that is, or may be awaited by, the control thread.
pub(super) fn forbid_waiting_for_control() {
    MAY_WAIT.set(false);
}

/// A sender of jobs to the thread that runs callbacks.
#[derive(Clone, Debug)]
pub(super) struct Callbacks(Sender<Job>);

impl Callbacks {
    /// Starts the thread. The caller shares the program's descriptors, and so will the thread.
    pub(super) fn start() -> io::Result<Self> {
        let (jobs, inbox): (Sender<Job>, Receiver<Job>) = channel();
        process::spawn_quiet("traceweir-call", move || {
            forbid_waiting_for_control();
            while let Ok(job) = inbox.recv() {
                job();
            }
        })?;
        Ok(Self(jobs))
    }

    /// Runs `work` on the thread and waits for it. `None` if it panicked.
    pub(super) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = sync_channel(1);
        let job = move || {
            // The receiver waits as long as this takes.
            let _ = done.send(catch_unwind(AssertUnwindSafe(work)).ok());
        };
        // The thread receives as long as this sender exists.
        self.0.send(Box::new(job)).ok()?;
        result.recv().ok().flatten()
    }
}
