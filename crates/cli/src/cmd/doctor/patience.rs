//! Questions that may never be answered.
//!
//! The environment and the libraries of a process are told once the kernel has a lock that the process may hold while it waits for something else; what is behind the
//! link to its program is told by the file system that the program lies on. Each such question is asked by a thread of its own, which is left behind where no answer comes: it ends with
//! this program.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// How long an answer is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// It took too long.
    Late,
    /// No thread could be had that asks.
    NotAsked,
    /// The thread has ended without one.
    Failed,
}

/// Behind "is".
impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => {
                write!(
                    f,
                    "not told within {} s: the process, or a file system that it uses, hangs",
                    PATIENCE.as_secs()
                )
            }
            Self::NotAsked => f.write_str("not known: no thread could be had to ask (a limit of processes?)"),
            Self::Failed => f.write_str("not known: weir failed while it looked"),
        }
    }
}

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

    /// What was told up to a moment.
    pub(super) fn answer(self, until: Instant) -> Result<T, Silence> {
        let hear = self.0.ok_or(Silence::NotAsked)?;
        hear.recv_timeout(until.saturating_duration_since(Instant::now())).map_err(|silence| match silence {
            RecvTimeoutError::Timeout => Silence::Late,
            RecvTimeoutError::Disconnected => Silence::Failed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_there_is_no_answer_is_told() {
        let soon = || Instant::now() + Duration::from_secs(60);
        assert_eq!(Question::ask(|| 7).answer(soon()), Ok(7));
        let (hold, held) = sync_channel::<()>(0);
        let hangs = Question::ask(move || held.recv().is_ok());
        let hangs = hangs.answer(Instant::now()).expect_err("it is held");
        drop(hold);
        let failed = Question::<()>::ask(|| panic!("a test makes it")).answer(soon()).expect_err("it panics");
        let not_asked = Question::<()>(None).answer(soon()).expect_err("nobody asks");
        assert_eq!((hangs, failed, not_asked), (Silence::Late, Silence::Failed, Silence::NotAsked));
        assert!(hangs.to_string().contains("within 2 s") && hangs.to_string().contains("hangs"));
        assert!(![failed, not_asked].iter().any(|it| it.to_string().contains("hangs")));
    }
}
