//! Queries that may never return, with a timeout.
//!
//! To read the environment and the libraries of a process, the kernel takes a lock that the process
//! may hold while it waits for something else. The metadata of its program comes from the file
//! system that the program is on. A thread of its own runs each such query. A thread that gets no
//! answer is abandoned; it ends with this program.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// How long to wait for an answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a query has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// The query took too long.
    Late,
    /// No thread could be started.
    NotAsked,
    /// The thread ended without a result.
    Failed,
}

/// Formatted to follow "is".
impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => {
                write!(
                    f,
                    "not readable within {} s: the process, or a file system that it uses, hangs",
                    ANSWER_TIMEOUT.as_secs()
                )
            }
            Self::NotAsked => f.write_str("not known: no thread could be started (a limit of processes?)"),
            Self::Failed => f.write_str("not known: weir failed while reading"),
        }
    }
}

/// A query that runs in its own thread.
pub(super) struct PendingQuery<T>(Option<Receiver<T>>);

impl<T: Send + 'static> PendingQuery<T> {
    pub(super) fn start(query: impl FnOnce() -> T + Send + 'static) -> Self {
        let (sender, receiver) = sync_channel(1);
        let answer = move || {
            // The receiver is gone if the query took too long.
            let _ = sender.send(query());
        };
        Self(std::thread::Builder::new().spawn(answer).ok().map(|_| receiver))
    }

    /// Waits for the result until a point in time.
    pub(super) fn answer(self, until: Instant) -> Result<T, NoAnswer> {
        let receiver = self.0.ok_or(NoAnswer::NotAsked)?;
        receiver.recv_timeout(until.saturating_duration_since(Instant::now())).map_err(|error| match error {
            RecvTimeoutError::Timeout => NoAnswer::Late,
            RecvTimeoutError::Disconnected => NoAnswer::Failed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_answer_reports_its_cause() {
        let soon = || Instant::now() + Duration::from_secs(60);
        assert_eq!(PendingQuery::start(|| 7).answer(soon()), Ok(7));
        let (hold, held) = sync_channel::<()>(0);
        let hangs = PendingQuery::start(move || held.recv().is_ok());
        let hangs = hangs.answer(Instant::now()).expect_err("it is held");
        drop(hold);
        let failed =
            PendingQuery::<()>::start(|| panic!("a test makes it")).answer(soon()).expect_err("it panics");
        let not_asked = PendingQuery::<()>(None).answer(soon()).expect_err("nobody asks");
        assert_eq!((hangs, failed, not_asked), (NoAnswer::Late, NoAnswer::Failed, NoAnswer::NotAsked));
        assert!(hangs.to_string().contains("within 2 s") && hangs.to_string().contains("hangs"));
        assert!(![failed, not_asked].iter().any(|silence| silence.to_string().contains("hangs")));
    }
}
