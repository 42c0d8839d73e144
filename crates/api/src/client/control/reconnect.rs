//! Reconnecting to a daemon that dropped the connection and still runs.
//!
//! ```text
//!   a welcoming daemon is gone ─▶ connect: it answers ─▶ Hello, and everything as at the start
//!                                     └─ no answer: it has left, and knocks when it starts again
//!   again within RECONNECT_INTERVAL ─▶ waits until it has passed, to not flood the daemon
//!   the program closed the connection (`repair`) ─▶ the same, with RECONNECT_SOON as the interval
//! ```
//!
//! A daemon drops a process that leaves too much unread, for example one that was stopped for a
//! while. Nothing is enabled until it is back, so events of that time are not offered to any
//! session; the sessions count the process itself as a loss.

use std::time::{Duration, Instant};

use super::Control;

/// The shortest time between two attempts.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest time if the program closed the connection: it may close all descriptors twice in a
/// row, and events in the meantime are missed.
const RECONNECT_SOON: Duration = Duration::from_millis(50);

/// The folders whose daemons are to be tried again, and when.
#[derive(Debug, Default)]
pub(super) struct Reconnects {
    due: Vec<(usize, Instant)>,
    tried: Vec<(usize, Instant)>,
}

impl Reconnects {
    /// Schedules an attempt for a folder whose daemon is gone after its Welcome.
    pub(super) fn lost(&mut self, link: usize) {
        self.plan(link, RECONNECT_INTERVAL);
    }

    /// Schedules an attempt for a folder whose daemon runs but whose connection the program closed.
    pub(super) fn closed_by_program(&mut self, link: usize) {
        self.plan(link, RECONNECT_SOON);
    }

    fn plan(&mut self, link: usize, interval: Duration) {
        let tried = self.tried.iter().find(|(its, _)| *its == link).map(|(_, at)| *at);
        let now = Instant::now();
        let at = tried.and_then(|at| at.checked_add(interval)).map_or(now, |at| at.max(now));
        if self.due.iter().all(|(its, _)| *its != link) {
            self.due.push((link, at));
        }
    }

    /// Returns the time until the next attempt, if one is scheduled.
    pub(super) fn within(&self) -> Option<Duration> {
        let next = self.due.iter().map(|(_, at)| *at).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Removes and returns the folders whose time has come.
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
    /// Connects to daemons that dropped the connection, unless they connected first.
    pub(super) fn reconnect_due(&mut self) {
        for link in self.reconnects.take_due() {
            if self.peers.iter().any(|peer| peer.link == link) {
                continue;
            }
            if let Some((connection, kind)) = self.links.get(link).and_then(|link| link.connect().ok()) {
                self.greet(connection, kind, link);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_reconnect_is_immediate_and_the_next_is_delayed() {
        let mut reconnects = Reconnects::default();
        assert_eq!(reconnects.within(), None);
        reconnects.lost(0);
        reconnects.lost(0);
        assert_eq!(reconnects.within(), Some(Duration::ZERO));
        assert_eq!((reconnects.take_due(), reconnects.within()), (vec![0], None));
        reconnects.lost(0);
        assert!(
            reconnects.within().is_some_and(|left| left > RECONNECT_INTERVAL / 2)
                && reconnects.take_due().is_empty()
        );
        reconnects.lost(1);
        assert_eq!(reconnects.take_due(), [1], "another folder");
        reconnects.closed_by_program(1);
        assert!(
            reconnects.within().is_some_and(|left| left <= RECONNECT_SOON)
                && RECONNECT_SOON < RECONNECT_INTERVAL / 2
        );
    }
}
