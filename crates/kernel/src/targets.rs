//! The targets of perf events: all processes at once, or each thread of this user.
//!
//! ```text
//!   Everything   (all processes, processor)                  one event per row and processor
//!   Own          (thread, processor), inherited by children  one event per row, thread, processor;
//!                                                            periodic search for other threads
//! ```
//!
//! - T1 Without `CAP_PERFMON` users may watch only their own threads, in user mode. The events
//!   request no more than that.
//! - T2 A thread that has ended meanwhile, or that may not be watched (a set-user-id program), is
//!   skipped. A process that a search finds may inherit the events of its parent; then a record
//!   reports its start, but may not have been read yet. So the process is watched only if there is
//!   still no such record at the next search.
//! - T3 Threads with the highest ids, usually the newest, are watched first, because a command that
//!   was started to be recorded is new. When file descriptors run out, the remaining threads are
//!   skipped and counted. The recording process needs descriptors for other purposes (connections,
//!   files), so a part of its limit stays free.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{Error, Result};
use crate::perf_ring::{Attr, PerfEvent};
use crate::proc;
use crate::scope::ProcessScope;
use crate::settings::{CaptureScope, ProcessTree};

/// In a capture that watches each thread, half of the limit on file descriptors stays free, but at
/// most this many descriptors. This is more than the daemon withholds from its clients, so that a
/// capture does not make the daemon reject clients.
const MAX_RESERVED_DESCRIPTORS: u64 = 2048;

/// The largest number of watched threads.
const MAX_THREADS: usize = 8192;

/// The processes or threads for which events are opened.
#[derive(Debug)]
pub(crate) struct Targets {
    scope: CaptureScope,
    threads: BTreeSet<i32>,
    /// Processes that were not followed at the last search: no record had reported their start.
    unfollowed: BTreeSet<u32>,
    unwatched_targets: u64,
}

impl Targets {
    /// Finds the threads to watch: those of this user's processes that belong to `trees`, or of all
    /// of its processes if there are no trees.
    pub(crate) fn new(scope: CaptureScope, trees: &[ProcessTree]) -> Self {
        let mut targets =
            Self { scope, threads: BTreeSet::new(), unfollowed: BTreeSet::new(), unwatched_targets: 0 };
        if scope == CaptureScope::Own {
            raise_descriptor_limit();
            let process_scope = ProcessScope::new(trees);
            targets.unfollowed = list_own_processes().into_iter().collect();
            targets.find_new_threads(process_scope.as_ref(), |_| false);
        }
        targets
    }

    /// Returns the targets to pass to `perf_event_open`: −1, which stands for all processes, or the
    /// ids of the threads, highest first.
    pub(crate) fn target_ids(&self) -> Vec<i32> {
        match self.scope {
            CaptureScope::Everything => vec![-1],
            CaptureScope::Own => self.threads.iter().rev().copied().collect(),
        }
    }

    /// Returns the target of the events that own the rings.
    pub(crate) fn ring_target(scope: CaptureScope) -> i32 {
        match scope {
            CaptureScope::Everything => -1,
            // The first thread of this process, which lives as long as the process.
            CaptureScope::Own => i32::try_from(std::process::id()).unwrap_or(0),
        }
    }

    /// Returns the number of threads, or events of threads, that are not watched for lack of
    /// resources.
    pub(crate) const fn unwatched_targets(&self) -> u64 {
        self.unwatched_targets
    }

    /// Counts a thread or event that is not watched.
    pub(crate) fn count_unwatched(&mut self) {
        self.unwatched_targets = self.unwatched_targets.saturating_add(1);
    }

    /// Finds threads of this user that are not watched yet, the newest first. With a scope, only the
    /// processes in scope are watched, and the roots whose children are. `is_followed` returns
    /// whether a process is watched already because its parent was.
    pub(crate) fn find_new_threads(
        &mut self,
        process_scope: Option<&ProcessScope>,
        is_followed: impl Fn(u32) -> bool,
    ) -> Vec<i32> {
        if self.scope == CaptureScope::Everything {
            return Vec::new();
        }
        let mut new = Vec::new();
        let processes = list_own_processes().into_iter();
        let is_wanted = |pid: &u32| process_scope.is_none_or(|scope| scope.has_process_or_root(*pid));
        let unfollowed: BTreeSet<u32> =
            processes.filter(|process| is_wanted(process) && !is_followed(*process)).collect();
        // A new child of a watched thread is watched, but its record takes a while to arrive.
        let unfollowed_before = std::mem::replace(&mut self.unfollowed, unfollowed);
        let processes: Vec<u32> = self.unfollowed.intersection(&unfollowed_before).copied().collect();
        for process in processes.into_iter().rev() {
            for thread in list_threads(process) {
                if self.threads.len() >= MAX_THREADS {
                    self.unwatched_targets = self.unwatched_targets.saturating_add(1);
                } else if self.threads.insert(thread) {
                    new.push(thread);
                }
            }
        }
        self.threads.retain(|thread| new.contains(thread) || is_alive(*thread));
        new.sort_unstable_by_key(|thread| Reverse(*thread));
        new
    }

    /// Restricts the attributes of an event to what the scope allows. In scope `Own`, children of
    /// the target inherit the event.
    pub(crate) fn restrict_attr(scope: CaptureScope, attr: &mut Attr) {
        if scope == CaptureScope::Own {
            attr.set_inherit(1);
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
            attr.set_exclude_callchain_kernel(1);
        }
    }

    /// Opens an event for a target. Returns `None` if the target is skipped. An error names the
    /// `purpose` of the event.
    pub(crate) fn open(
        &mut self,
        attr: &Attr,
        target: i32,
        cpu: i32,
        purpose: &str,
    ) -> Result<Option<PerfEvent>> {
        match (PerfEvent::open(attr, target, cpu), self.scope) {
            (Ok(event), CaptureScope::Own) if is_in_reserve(&event, descriptor_limit()) => {
                self.count_unwatched();
                Ok(None)
            }
            (Ok(event), _) => Ok(Some(event)),
            (Err(error), CaptureScope::Own) => match error.raw_os_error() {
                Some(libc::ESRCH | libc::EACCES | libc::EPERM)
                    if target != Self::ring_target(CaptureScope::Own) =>
                {
                    Ok(None)
                }
                Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
                    self.count_unwatched();
                    Ok(None)
                }
                _ => Err(Error::system(purpose, error)),
            },
            (Err(error), CaptureScope::Everything) => Err(Error::system(purpose, error)),
        }
    }
}

/// Raises the soft limit on file descriptors to the hard limit. Each thread takes several
/// descriptors per processor, so the usual soft limit of 1024 is soon reached.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // If this fails, fewer threads are watched.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// Returns the limit on file descriptors of this process.
fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns whether a new descriptor belongs to the part of the limit that stays free. The kernel
/// always assigns the lowest free number.
fn is_in_reserve(descriptor: &impl AsFd, limit: u64) -> bool {
    let first_reserved = limit.saturating_sub((limit / 2).min(MAX_RESERVED_DESCRIPTORS));
    u64::try_from(descriptor.as_fd().as_raw_fd()).is_ok_and(|number| number >= first_reserved)
}

fn list_own_processes() -> Vec<u32> {
    let user = rustix::process::geteuid().as_raw();
    let is_own =
        |process: &u32| fs::metadata(format!("/proc/{process}")).is_ok_and(|metadata| metadata.uid() == user);
    proc::list_processes().filter(is_own).collect()
}

fn list_threads(process: u32) -> Vec<i32> {
    proc::list_threads(process).filter_map(|thread| i32::try_from(thread).ok()).take(MAX_THREADS).collect()
}

fn is_alive(thread: i32) -> bool {
    // /proc lists only first threads, but the paths of other threads exist.
    fs::exists(format!("/proc/{thread}")).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_thread_is_found_once() {
        let own_pid = std::process::id();
        assert!(list_own_processes().contains(&own_pid));
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(list_threads(own_pid).contains(&thread) && is_alive(thread));
        let mut own = Targets::new(CaptureScope::Own, &[]);
        assert!(own.target_ids().contains(&thread));
        assert!(
            own.find_new_threads(None, |_| false).iter().all(|new_thread| *new_thread != thread),
            "a watched thread was found again"
        );
        assert_eq!(Targets::new(CaptureScope::Everything, &[]).target_ids(), [-1]);
    }

    #[test]
    fn newest_threads_come_first() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let is_newest_first = |ids: &[i32]| ids.is_sorted_by(|a, b| a > b);
        let mut own = Targets::new(CaptureScope::Own, &[]);
        let ids = own.target_ids();
        own.threads.clear();
        let new_threads = own.find_new_threads(None, |_| false);
        child.kill().and_then(|()| child.wait()).unwrap();
        // At least the threads of this process and of its child.
        assert!(ids.len() >= 2 && is_newest_first(&ids), "{ids:?}");
        assert!(new_threads.len() >= 2 && is_newest_first(&new_threads), "{new_threads:?}");
    }

    #[test]
    fn part_of_the_descriptors_stays_free() {
        let file = fs::File::open("/dev/null").unwrap();
        let number = u64::try_from(file.as_raw_fd()).unwrap();
        let is_reserved = |limit| is_in_reserve(&file, limit);
        assert!(is_reserved(1) && is_reserved(number + 1) && is_reserved(2 * number));
        assert!(!is_reserved(2 * number + 2), "reserved a part of the first half");
        assert!(
            !is_reserved(number + 1 + MAX_RESERVED_DESCRIPTORS.max(number + 1)) && !is_reserved(u64::MAX)
        );
    }
}
