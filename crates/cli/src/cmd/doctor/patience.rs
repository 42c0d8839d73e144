//! Questions that may never be answered.
//!
//! The environment and the libraries of a process are told once the kernel has a lock that the process may hold while it waits for something else; what is behind the
//! link to its program is told by the file system that the program lies on. Each such question is asked by a thread of its own, which is left behind where no answer comes: it ends with
//! this program.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// How long an answer is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// A question that was asked.
pub(super) struct Question<T>(Option<Receiver<T>>);

impl<T: Send + 'static> Question<T> {
    pub(super) fn ask(ask: impl FnOnce() -> T + Send + 'static) -> Self {
        let (tell, hear) = sync_channel(1);
        let answer = move || {
            // Nobody listens any more if it took too long.
            let _ = tell.send(ask());
        };
        Self(std::thread::Builder::new().spawn(answer).ok().map(|_| hear))
    }

    /// What was told up to a moment; `None`: nothing.
    pub(super) fn answer(self, until: Instant) -> Option<T> {
        self.0?.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    }
}
