//! Back to a daemon that dropped us and is still there.
//!
//! ```text
//!   a daemon that knew us is gone ─▶ connect: it answers ─▶ Hello, and everything as at the start
//!                                        └─ nobody there: it has left, and knocks when it comes again
//!   the same within AGAIN ─▶ once AGAIN has passed: a daemon that drops us each time is not stormed
//!   the program closed the connection (`repair`) ─▶ the same, with SOON in the place of AGAIN
//! ```
//!
//! A daemon drops a process that leaves too much unread: one that was stopped for a while, say. Nothing is enabled until it is back, so the events of that time are
//! not offered to anybody; the sessions count the process itself as a loss.

use std::time::{Duration, Instant};

use super::control::Control;

/// The shortest time between two attempts.
const AGAIN: Duration = Duration::from_secs(1);
/// The same where the program closed the connection: it may close all descriptors twice in a row, and
/// what it writes meanwhile is missed.
const SOON: Duration = Duration::from_millis(50);

/// When the daemons of which folders are to be tried again.
#[derive(Debug, Default)]
pub(super) struct Again {
    due: Vec<(usize, Instant)>,
    tried: Vec<(usize, Instant)>,
}

impl Again {
    /// A daemon of this folder that knew us is gone.
    pub(super) fn lost(&mut self, link: usize) {
        self.plan(link, AGAIN);
    }

    /// The program closed the connection to the daemon of this folder, which is still there.
    pub(super) fn closed_by_program(&mut self, link: usize) {
        self.plan(link, SOON);
    }

    fn plan(&mut self, link: usize, interval: Duration) {
        let tried = self.tried.iter().find(|(its, _)| *its == link).map(|(_, at)| *at);
        let now = Instant::now();
        let at = tried.and_then(|at| at.checked_add(interval)).map_or(now, |at| at.max(now));
        if self.due.iter().all(|(its, _)| *its != link) {
            self.due.push((link, at));
        }
    }

    /// How long until something is to be tried; none where nothing is.
    pub(super) fn within(&self) -> Option<Duration> {
        let next = self.due.iter().map(|(_, at)| *at).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// The folders whose time has come.
    fn take_due(&mut self) -> Vec<usize> {
        let now = Instant::now();
        let due: Vec<usize> = self.due.iter().filter(|(_, at)| *at <= now).map(|(link, _)| *link).collect();
        self.due.retain(|(_, at)| *at > now);
        self.tried.retain(|(link, _)| !due.contains(link));
        self.tried.extend(due.iter().map(|link| (*link, now)));
        due
    }
}

impl Control {
    /// Connects to daemons that have dropped us, unless they were quicker.
    pub(super) fn come_back(&mut self) {
        for link in self.again.take_due() {
            if self.peers.iter().any(|peer| peer.link == link) {
                continue;
            }
            if let Some((connection, door)) = self.links.get(link).and_then(|link| link.connect().ok()) {
                self.greet(connection, door, link);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_attempt_is_made_at_once_and_the_next_only_after_a_while() {
        let mut again = Again::default();
        assert_eq!(again.within(), None);
        again.lost(0);
        again.lost(0);
        assert_eq!(again.within(), Some(Duration::ZERO));
        assert_eq!((again.take_due(), again.within()), (vec![0], None));
        again.lost(0);
        assert!(again.within().is_some_and(|it| it > AGAIN / 2) && again.take_due().is_empty());
        again.lost(1);
        assert_eq!(again.take_due(), [1], "another folder");
        again.closed_by_program(1);
        assert!(again.within().is_some_and(|it| it <= SOON) && SOON < AGAIN / 2);
    }
}
