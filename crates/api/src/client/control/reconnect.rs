//! Connecting again to a daemon that dropped the connection and still runs, or that lacked
//! resources.
//!
//! ```text
//!   a welcoming daemon is gone ─▶ connect: it answers ─▶ Hello, and everything as at the start
//!                                     └─ no answer: it has exited, and knocks when it starts again
//!   gone again within RECONNECT_INTERVAL ─▶ connect after the interval, to spare the daemon
//!   the program closed the connection (`repair`) ─▶ the same, with RECONNECT_AFTER_CLOSE_INTERVAL
//!   the daemon's queue of connections is full, or it refuses for lack of resources
//!        ─▶ again after FIRST_DELAY, twice that, …, MAX_DELAY, until it welcomes this process
//!                                     └─ no listener: it has exited, as above
//! ```
//!
//! A daemon drops a process that leaves too many messages unread, for example one that was stopped
//! for a while. Nothing is enabled until the process has reconnected, so no session gets the events
//! of that time; the sessions count the process instead of its events.
//!
//! Any user may exhaust the queue or the resources of the system's daemon for a while. Until a
//! later attempt succeeds, registrations *continue*: their calls return without the daemon's
//! answer. Then they (`DaemonPeer::missed_registrations`) are reported to each session that has
//! enabled them, and the session counts the process.

use std::time::{Duration, Instant};

use traceweir_transport::runtime::random;

use super::ControlThread;
use crate::client::link;
use crate::registration::Handle;

/// The shortest time between two attempts.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest time between two attempts if the program closed the connection. It is short,
/// because events in the meantime are missed, and not zero, because the program may close all
/// descriptors twice in a row.
const RECONNECT_AFTER_CLOSE_INTERVAL: Duration = Duration::from_millis(50);

/// The delay between the first failed attempt to reach a running daemon and the next attempt. Each
/// further failure doubles the delay.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The upper limit of this delay, without the random part.
const MAX_DELAY: Duration = Duration::from_secs(16);

/// Returns the time to wait after a number of failures in a row. `random` adds up to a quarter, to
/// spread the attempts of processes that failed at the same moment.
fn delay_after_failures(failures: u32, random: u64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let delay = FIRST_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY);
    let steps = u32::try_from(random % 256).unwrap_or(0);
    delay + delay * steps / 1024
}

/// The folders whose daemons are to be tried again, and when.
#[derive(Debug, Default)]
pub(super) struct ReconnectSchedule {
    due: Vec<(usize, Instant)>,
    last_attempts: Vec<(usize, Instant)>,
    /// Failed attempts in a row, by folder.
    failures: Vec<(usize, u32)>,
}

impl ReconnectSchedule {
    /// Schedules an attempt for a folder whose daemon dropped the connection.
    pub(super) fn schedule_after_loss(&mut self, folder: usize) {
        self.schedule(folder, RECONNECT_INTERVAL);
    }

    /// Schedules an attempt for a folder whose daemon runs but whose connection the program closed.
    pub(super) fn schedule_after_program_close(&mut self, folder: usize) {
        self.schedule(folder, RECONNECT_AFTER_CLOSE_INTERVAL);
    }

    /// Schedules an attempt for a folder whose daemon may run, but could not be reached or lacked
    /// resources for this process.
    pub(super) fn schedule_after_failure(&mut self, folder: usize) {
        let before =
            self.failures.iter().find(|(other, _)| *other == folder).map_or(0, |(_, failures)| *failures);
        let failures = before.saturating_add(1);
        self.cancel(folder);
        self.failures.push((folder, failures));
        self.due.push((folder, Instant::now() + delay_after_failures(failures, random())));
    }

    /// Ends the attempts for a folder: its daemon has sent a Welcome, or does not run.
    pub(super) fn cancel(&mut self, folder: usize) {
        self.failures.retain(|(other, _)| *other != folder);
        self.due.retain(|(other, _)| *other != folder);
    }

    /// Returns whether the last attempt for a folder failed although its daemon may run.
    pub(super) fn has_failed(&self, folder: usize) -> bool {
        self.failures.iter().any(|(other, _)| *other == folder)
    }

    fn schedule(&mut self, folder: usize, interval: Duration) {
        let last = self.last_attempts.iter().find(|(other, _)| *other == folder).map(|(_, at)| *at);
        let now = Instant::now();
        let at = last.and_then(|at| at.checked_add(interval)).map_or(now, |at| at.max(now));
        if self.due.iter().all(|(other, _)| *other != folder) {
            self.due.push((folder, at));
        }
    }

    /// Returns the time until the next attempt, if one is scheduled.
    pub(super) fn time_until_next(&self) -> Option<Duration> {
        let next = self.due.iter().map(|(_, at)| *at).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Removes and returns the folders whose time has come.
    fn take_due_folders(&mut self) -> Vec<usize> {
        let now = Instant::now();
        let due: Vec<usize> =
            self.due.iter().filter(|(_, at)| *at <= now).map(|(folder, _)| *folder).collect();
        self.due.retain(|(_, at)| *at > now);
        self.last_attempts.retain(|(folder, _)| !due.contains(folder));
        self.last_attempts.extend(due.iter().map(|folder| (*folder, now)));
        due
    }
}

impl ControlThread {
    /// Connects to daemons that dropped the connection or lacked resources, unless they connected
    /// first.
    pub(super) fn reconnect_due_folders(&mut self) {
        for index in self.reconnects.take_due_folders() {
            if self.peers.iter().any(|peer| peer.folder == index) {
                // The connection may still be refused, or end without an answer.
                if self.reconnects.has_failed(index) {
                    self.reconnects.schedule_after_failure(index);
                }
                continue;
            }
            match self.folders.get(index).map(|folder| folder.connect()) {
                Some(Ok((connection, kind))) => self.greet_daemon(connection, kind, index),
                Some(Err(e)) if link::may_daemon_run(&e) => self.reconnects.schedule_after_failure(index),
                Some(Err(_)) | None => self.reconnects.cancel(index),
            }
        }
    }

    /// Remembers the registrations that continued before this process could connect to the daemon.
    pub(super) fn mark_missed_registrations(&mut self, index: usize) {
        let shared = self.client.lock();
        let is_waited_for = |handle: &Handle| {
            handle.slot().is_registering()
                && shared.awaited_registrations.iter().any(|awaited| awaited.registration == handle.number())
        };
        let continued = Handle::iter_current().filter(|handle| !is_waited_for(handle));
        self.peers[index].missed_registrations = continued.map(|handle| handle.number()).collect();
    }

    /// Handles a refusal that the daemon sent before it closed the connection. A failed send shows
    /// only that the connection has ended; the refusal is still unread.
    pub(super) fn read_refusal(&mut self, index: usize) {
        if self.peers[index].has_welcomed || !self.peers[index].connection.is_intact() {
            return;
        }
        if let Some((status, reason)) = link::read_last_refusal(&self.peers[index].connection) {
            self.peers[index].has_answered = true;
            // The connection ends in any case.
            let _ = self.handle_refused(index, 0, status, &reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_with_failures_until_cancelled() {
        for random in [0, 77, u64::MAX] {
            let delays: Vec<Duration> =
                (1..40).map(|failures| delay_after_failures(failures, random)).collect();
            assert!(delays.is_sorted() && delays[0] >= FIRST_DELAY && delays[0] < FIRST_DELAY * 2);
            assert!(delays[10..].iter().all(|delay| (MAX_DELAY..MAX_DELAY * 2).contains(delay)));
        }
        let mut reconnects = ReconnectSchedule::default();
        let (mut planned, start) = (Vec::new(), Instant::now());
        for _ in 0..8 {
            reconnects.schedule_after_failure(0);
            let [(0, at)] = *reconnects.due.as_slice() else { panic!("{reconnects:?}") };
            planned.push(at.saturating_duration_since(start));
        }
        assert!(planned[0] >= FIRST_DELAY && planned[7] >= MAX_DELAY);
        assert!(reconnects.has_failed(0) && !reconnects.has_failed(1));
        reconnects.schedule_after_loss(0);
        assert_eq!(reconnects.due.len(), 1);
        reconnects.cancel(0);
        assert!(!reconnects.has_failed(0) && reconnects.time_until_next().is_none());
        // The next failure starts with the first delay again.
        reconnects.schedule_after_failure(0);
        assert_eq!(reconnects.failures, [(0, 1)]);
    }

    #[test]
    fn first_reconnect_is_immediate_and_the_next_is_delayed() {
        let mut reconnects = ReconnectSchedule::default();
        assert_eq!(reconnects.time_until_next(), None);
        reconnects.schedule_after_loss(0);
        reconnects.schedule_after_loss(0);
        assert_eq!(reconnects.time_until_next(), Some(Duration::ZERO));
        assert_eq!((reconnects.take_due_folders(), reconnects.time_until_next()), (vec![0], None));
        reconnects.schedule_after_loss(0);
        assert!(
            reconnects.time_until_next().is_some_and(|left| left > RECONNECT_INTERVAL / 2)
                && reconnects.take_due_folders().is_empty()
        );
        reconnects.schedule_after_loss(1);
        assert_eq!(reconnects.take_due_folders(), [1], "folder 1 must not wait for the interval of folder 0");
        reconnects.schedule_after_program_close(1);
        assert!(
            reconnects.time_until_next().is_some_and(|left| left <= RECONNECT_AFTER_CLOSE_INTERVAL)
                && RECONNECT_AFTER_CLOSE_INTERVAL < RECONNECT_INTERVAL / 2
        );
    }
}
