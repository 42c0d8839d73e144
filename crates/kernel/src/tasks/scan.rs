//! The scan of `/proc`, which finds the tasks that no record has reported.
//!
//! ```text
//!   /proc ──▶ in the table ──▶ seen by this scan
//!         └─▶ not in it ──▶ started before the time up to which records were read ──▶ added
//!                       └─▶ started later ──▶ added as unconfirmed (T4 of `tasks`)
//! ```
//!
//! 1. A task that ended without a record (the ring was full) leaves the table at the second scan
//!    that does not see it.
//! 2. A process that the scan misses because it starts or ends meanwhile is left out. This is never
//!    an error.

use super::{LiveProcess, LiveThread, Tasks, facts, status_from_code};
use crate::proc;

/// A process that has ended and whose parent has not waited for it.
pub(crate) struct Zombie {
    pub(crate) pid: u32,
    pub(crate) process: LiveProcess,
    pub(crate) status: i32,
}

impl Tasks {
    /// Updates the table from `/proc`. Returns the zombies if `returns_zombies`, otherwise an empty
    /// list.
    pub(crate) fn scan(&mut self, returns_zombies: bool) -> Vec<Zombie> {
        let previous_scan = self.scans;
        self.scans = self.scans.wrapping_add(1);
        let mut zombies = Vec::new();
        for pid in proc::list_processes() {
            let Some(stat) = facts::read_stat(&pid.to_string()) else { continue };
            let unconfirmed_poll = self.poll_if_unconfirmed(stat.start_ticks);
            match self.get(pid).map(|existing| existing.start_ticks.abs_diff(stat.start_ticks) <= 1) {
                Some(true) => self.refresh_user(pid),
                // The exit of the known process and the start of this one are both in a ring.
                Some(false) if unconfirmed_poll.is_some() => continue,
                // With more threads, only the first thread has ended.
                _ if stat.is_zombie() && proc::list_threads(pid).count() <= 1 => {
                    if returns_zombies {
                        let process = self.process_from_proc(pid, &stat);
                        let status = status_from_code(stat.exit_code, self.can_read_exit_code(&process));
                        zombies.push(Zombie { pid, process, status });
                    }
                    continue;
                }
                _ => {
                    let process = LiveProcess { unconfirmed_poll, ..self.process_from_proc(pid, &stat) };
                    self.insert(pid, process);
                    self.has_unconfirmed |= unconfirmed_poll.is_some();
                }
            }
            self.scan_threads(pid);
            let scan = self.scans;
            match self.get_mut(pid) {
                // The process ended meanwhile; its exit record is in a ring.
                Some(process) if process.threads.is_empty() => drop(self.remove(pid)),
                Some(process) => process.seen_in_scan = scan,
                None => {}
            }
        }
        self.remove_unseen(previous_scan);
        zombies
    }

    /// Updates the user of a process, which changes without a record.
    fn refresh_user(&mut self, pid: u32) {
        if let Some(status) = facts::read_status(pid)
            && let Some(process) = self.get_mut(pid)
        {
            process.user = status.user.or(process.user);
        }
    }

    fn scan_threads(&mut self, pid: u32) {
        let scan = self.scans;
        for tid in proc::list_threads(pid) {
            let Some(stat) = facts::read_stat(&format!("{pid}/task/{tid}")) else { continue };
            // The first thread of a process can end before the others.
            if stat.is_zombie() {
                continue;
            }
            if let Some(existing) = self.get_mut(pid).and_then(|process| process.threads.get_mut(&tid)) {
                let current = LiveThread::from_proc(tid, &stat);
                (existing.seen_in_scan, existing.priority, existing.affinity) =
                    (scan, current.priority, current.affinity);
                continue;
            }
            let unconfirmed_poll = self.poll_if_unconfirmed(stat.start_ticks);
            self.insert_thread(
                pid,
                tid,
                LiveThread { seen_in_scan: scan, unconfirmed_poll, ..LiveThread::from_proc(tid, &stat) },
            );
            self.has_unconfirmed |= unconfirmed_poll.is_some();
        }
    }

    /// Removes tasks that neither this scan nor the one before saw. A task that no scan has seen
    /// yet counts as seen by the one before.
    fn remove_unseen(&mut self, previous_scan: u32) {
        let scan = self.scans;
        let mut unseen = Vec::new();
        for (pid, process) in self.iter_processes_mut() {
            let last_seen = process.seen_in_scan;
            if last_seen == 0 {
                process.seen_in_scan = previous_scan;
            } else if last_seen != scan && last_seen < previous_scan {
                unseen.extend(process.threads.keys().map(|tid| (pid, *tid)));
            }
            for (tid, thread) in &mut process.threads {
                if thread.seen_in_scan == 0 {
                    thread.seen_in_scan = previous_scan;
                } else if thread.seen_in_scan != scan && thread.seen_in_scan < previous_scan {
                    unseen.push((pid, *tid));
                }
            }
        }
        for (pid, tid) in unseen {
            self.remove_thread(tid);
            if self.get(pid).is_some_and(|process| process.threads.is_empty()) {
                self.remove(pid);
            }
        }
    }
}
