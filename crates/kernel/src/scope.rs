//! The processes that a capture is restricted to: process trees, kept up to date by forks and exits.
//!
//! ```text
//!   trees ──▶ /proc at the start: roots and their descendants ─┐
//!   FORK by a member ──▶ the child is a member ────────────────┼─▶ members ──▶ is a task in scope?
//!   EXIT of the last thread ──▶ no longer a member ────────────┘
//! ```
//!
//! - S1 Membership is inherited at the fork. A process stays a member when its parent ends and it
//!   gets another parent.
//! - S2 A thread that has ended is still in scope until another thread gets its id: its last
//!   context switch and the wakeup of its parent follow its EXIT record.
//! - S3 After lost records `/proc` is read again: a child of a member is a member. A process whose
//!   fork was lost and whose parent has ended is missed.
//! - S4 This process, which runs the capture, is a member only if it is a root: a daemon may be a
//!   child of the program that started it.
//! - S5 Some events have no reliable process: disk completions, packets in softirqs. Families
//!   attribute them to the process that caused them. Events that cannot be attributed are left out
//!   and counted.

use std::collections::{BTreeMap, BTreeSet};

use crate::per_task::PerTask;
use crate::proc;
use crate::settings::ProcessTree;
use crate::tasks::facts;
use crate::tasks::{TaskIds, Tasks};

/// The id of the kernel's thread daemon, the parent of all kernel threads.
const KTHREADD: u32 = 2;

/// The processes and threads in scope.
#[derive(Debug, Default)]
pub(crate) struct ProcessScope {
    members: BTreeSet<u32>,
    /// Roots that are not in scope themselves; their children are.
    outside_roots: BTreeSet<u32>,
    /// Threads of members that have ended (S2).
    ended_threads: PerTask<()>,
    /// Whether forks may have been lost since `/proc` was last read.
    has_lost_forks: bool,
    unattributed_events: u64,
}

impl ProcessScope {
    /// Returns the scope of these trees, with the descendants that `/proc` shows; `None` if there
    /// are no trees, which means all processes.
    pub(crate) fn new(trees: &[ProcessTree]) -> Option<Self> {
        if trees.is_empty() {
            return None;
        }
        let mut scope = Self::from_trees(trees);
        scope.adopt_from_proc();
        Some(scope)
    }

    /// Returns the scope of these trees without their descendants.
    fn from_trees(trees: &[ProcessTree]) -> Self {
        let mut scope = Self::default();
        for tree in trees {
            let roots = if tree.includes_root { &mut scope.members } else { &mut scope.outside_roots };
            roots.insert(tree.root);
        }
        scope
    }

    /// Returns whether a process is in scope.
    pub(crate) fn has_process(&self, pid: u32) -> bool {
        self.members.contains(&pid)
    }

    /// Returns whether a process is in scope or its children are.
    pub(crate) fn has_process_or_root(&self, pid: u32) -> bool {
        self.has_process(pid) || self.outside_roots.contains(&pid)
    }

    /// Returns whether a thread is in scope. `pid` is its process, if it is known.
    fn has_thread(&self, tid: u32, pid: Option<u32>) -> bool {
        pid.is_some_and(|pid| self.has_process(pid)) || self.ended_threads.has(tid)
    }

    /// Handles the start of a thread, or of a process if `child.pid` differs from `creator`.
    pub(crate) fn note_fork(&mut self, creator: u32, child: TaskIds) {
        self.ended_threads.take(child.tid);
        if child.pid == creator {
            return;
        }
        // An earlier process with this id has ended; its EXIT record may be lost.
        self.outside_roots.remove(&child.pid);
        if self.has_process_or_root(creator) && child.pid != std::process::id() {
            self.members.insert(child.pid);
        } else {
            self.members.remove(&child.pid);
        }
    }

    /// Handles the end of a thread; `is_last` is whether its process has ended too.
    pub(crate) fn note_exit(&mut self, ids: TaskIds, is_last: bool) {
        if self.has_process(ids.pid) {
            self.ended_threads.put(ids.tid, ());
        }
        if is_last {
            self.members.remove(&ids.pid);
            self.outside_roots.remove(&ids.pid);
        }
    }

    /// Prepares for forks and exits that are among lost records.
    pub(crate) fn note_loss(&mut self) {
        self.has_lost_forks = true;
        self.ended_threads = PerTask::default();
    }

    /// Reads `/proc` again if forks may have been lost.
    pub(crate) fn recover_from_loss(&mut self) {
        if std::mem::take(&mut self.has_lost_forks) {
            self.adopt_from_proc();
        }
    }

    /// Adds the descendants of members that `/proc` shows.
    pub(crate) fn adopt_from_proc(&mut self) {
        let parent = |pid: u32| Some((pid, facts::read_stat(&pid.to_string())?.parent));
        self.adopt(proc::list_processes().filter_map(parent));
    }

    /// Adds the descendants of members among these processes, given with their parents.
    pub(crate) fn adopt(&mut self, processes: impl Iterator<Item = (u32, u32)>) {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (pid, parent) in processes.filter(|(pid, _)| *pid != std::process::id()) {
            children.entry(parent).or_default().push(pid);
        }
        let mut unvisited: Vec<u32> = self.members.union(&self.outside_roots).copied().collect();
        while let Some(parent) = unvisited.pop() {
            // Removing the entry makes the loop end even if ids form a cycle.
            for child in children.remove(&parent).unwrap_or_default() {
                self.members.insert(child);
                unvisited.push(child);
            }
        }
    }

    /// Counts an event that cannot be attributed to a process (S5).
    pub(crate) fn count_unattributed(&mut self) {
        self.unattributed_events = self.unattributed_events.saturating_add(1);
    }

    /// Returns the number of events that were left out because their process is unknown.
    pub(crate) const fn unattributed_events(&self) -> u64 {
        self.unattributed_events
    }
}

/// Returns whether a thread is in scope; without a scope all are.
pub(crate) fn is_thread_in_scope(scope: Option<&ProcessScope>, tasks: &Tasks, tid: u32) -> bool {
    scope.is_none_or(|scope| scope.has_thread(tid, tasks.find_process_of_thread(tid)))
}

/// Returns whether a task is in scope; without a scope all are.
pub(crate) fn is_task_in_scope(scope: Option<&ProcessScope>, ids: TaskIds) -> bool {
    scope.is_none_or(|scope| scope.has_thread(ids.tid, Some(ids.pid)))
}

/// Returns whether a process is a kernel thread, which works for processes that it does not name.
pub(crate) fn is_kernel_thread(tasks: &Tasks, pid: u32) -> bool {
    pid == KTHREADD || tasks.get(pid).is_some_and(|process| process.parent == KTHREADD)
}

#[cfg(test)]
mod tests;
