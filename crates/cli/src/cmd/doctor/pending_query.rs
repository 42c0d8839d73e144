//! Queries that may never return, with a timeout.
//!
//! To read the environment and the libraries of a process, the kernel takes a lock that the process
//! may hold while it waits for something else. The metadata of its program comes from the file
//! system that the program is on, which may not respond. Each such query runs in a separate thread.
//! A thread that gets no answer is abandoned, and ends with this program.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// How long callers wait for an answer. [`NoAnswer::Late`] prints it.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The reason why a query has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// The query took too long.
    Late,
    /// No thread could be started.
    NotStarted,
    /// The thread ended without a result.
    Failed,
}

/// Formats the reason so that it can follow "is".
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
            Self::NotStarted => f.write_str("not known: no thread could be started (a limit of processes?)"),
            Self::Failed => f.write_str("not known: weir failed while reading"),
        }
    }
}

/// A query that runs in its own thread.
pub(super) struct PendingQuery<T>(Option<Receiver<T>>);

impl<T: Send + 'static> PendingQuery<T> {
    pub(super) fn start(query: impl FnOnce() -> T + Send + 'static) -> Self {
        let (sender, receiver) = sync_channel(1);
        let run_query = move || {
            // The receiver is gone if the query took too long.
            let _ = sender.send(query());
        };
        Self(std::thread::Builder::new().spawn(run_query).ok().map(|_| receiver))
    }

    /// Waits for the result until a deadline.
    pub(super) fn wait_for_answer(self, deadline: Instant) -> Result<T, NoAnswer> {
        let receiver = self.0.ok_or(NoAnswer::NotStarted)?;
        receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())).map_err(|error| match error
        {
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
        let far_deadline = || Instant::now() + Duration::from_secs(60);
        assert_eq!(PendingQuery::start(|| 7).wait_for_answer(far_deadline()), Ok(7));
        let (release, blocked) = sync_channel::<()>(0);
        let blocked_query = PendingQuery::start(move || blocked.recv().is_ok());
        let late =
            blocked_query.wait_for_answer(Instant::now()).expect_err("a query that blocks must time out");
        drop(release);
        let failed = PendingQuery::<()>::start(|| panic!("the query of this test panics"))
            .wait_for_answer(far_deadline())
            .expect_err("a query that panics must fail");
        let not_started = PendingQuery::<()>(None)
            .wait_for_answer(far_deadline())
            .expect_err("a query without a thread must fail");
        assert_eq!((late, failed, not_started), (NoAnswer::Late, NoAnswer::Failed, NoAnswer::NotStarted));
        assert!(late.to_string().contains("within 2 s") && late.to_string().contains("hangs"));
        assert!(![failed, not_started].iter().any(|no_answer| no_answer.to_string().contains("hangs")));
    }
}
