//! The thread that runs callbacks for the control thread.
//!
//! The control thread has a descriptor table of its own (`process`). Code of the application must not run there: a callback that writes to the program's log
//! would write to one of our sockets. So the control thread has such work done by a second thread, which shares the program's descriptors, and waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::{cell::Cell, io};

use super::process;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(true) };
}

/// Whether this thread may wait for the control thread: neither it nor the thread of callbacks, for which it waits, may.
pub(super) fn may_wait_for_control() -> bool {
    MAY_WAIT.get()
}

/// Notes that the control thread waits for the calling thread, or is it.
pub(super) fn forbid_waiting_for_control() {
    MAY_WAIT.set(false);
}

/// The way to the thread that runs callbacks.
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

    /// Has something done by the thread and waits for it. `None` where it panicked.
    pub(super) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = sync_channel(1);
        let job = move || {
            // The receiver waits as long as this takes.
            let _ = done.send(catch_unwind(AssertUnwindSafe(work)).ok());
        };
        // The thread receives for as long as this sender is there.
        self.0.send(Box::new(job)).ok()?;
        result.recv().ok().flatten()
    }
}
