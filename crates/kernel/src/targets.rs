//! Whom perf events are opened for: everybody at once, or each thread of this user.
//!
//! ```text
//!   Everything   (all processes, processor)                    one event a row and processor
//!   Own          (thread, processor), passed on to children    one event a row, thread and processor; threads that came otherwise are looked for now and then
//! ```
//!
//! T1 Without `CAP_PERFMON` a user may watch his own threads, in user mode only: that is asked for, and no more. T2 A thread that has ended meanwhile, or that may not be
//! looked at (a set-user-id program), is left out. A process counts as one that came otherwise when nothing was heard of its start for as long as from one look to the
//! next. T3 Where descriptors run out, the rest is left out too, and counted. Who records has other uses for them
//! (connections, files): a part of what it may have stays free.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::control::Scope;
use crate::error::{Error, Result};
use crate::perf_ring::{Attr, Event};
use crate::proc;

/// Descriptors that stay free where threads are watched one by one: half of what the process may have, and at most so many. More than a daemon keeps back from its guests,
/// who would be turned away otherwise.
const MAX_RESERVE: u64 = 2048;

/// Threads that are watched at most.
const MAX_THREADS: usize = 8192;

/// Whom events are opened for.
#[derive(Debug)]
pub(crate) struct Targets {
    scope: Scope,
    threads: BTreeSet<i32>,
    /// Processes that nobody seemed to follow when it was looked last.
    strangers: BTreeSet<u32>,
    left_out: u64,
}

impl Targets {
    pub(crate) fn new(scope: Scope) -> Self {
        if scope == Scope::Own {
            raise_descriptor_limit();
        }
        let strangers = own_processes().into_iter().collect();
        let mut targets = Self { scope, threads: BTreeSet::new(), strangers, left_out: 0 };
        targets.look_for_more(|_| false);
        targets
    }

    /// As perf numbers them: −1 is everybody.
    pub(crate) fn ids(&self) -> Vec<i32> {
        match self.scope {
            Scope::Everything => vec![-1],
            Scope::Own => self.threads.iter().copied().collect(),
        }
    }

    /// Whose event a processor's ring belongs to.
    pub(crate) fn owner(scope: Scope) -> i32 {
        match scope {
            Scope::Everything => -1,
            // The first thread of this process, which lives as long as it does.
            Scope::Own => i32::try_from(std::process::id()).unwrap_or(0),
        }
    }

    /// Threads that there was no room for.
    pub(crate) const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Counts something that is not watched.
    pub(crate) fn leave_out(&mut self) {
        self.left_out = self.left_out.saturating_add(1);
    }

    /// Threads of this user that are not watched yet; `is_followed`: processes that are, because their parents were.
    pub(crate) fn look_for_more(&mut self, is_followed: impl Fn(u32) -> bool) -> Vec<i32> {
        if self.scope == Scope::Everything {
            return Vec::new();
        }
        let mut new = Vec::new();
        let unknown: BTreeSet<u32> = own_processes().into_iter().filter(|it| !is_followed(*it)).collect();
        // One that was just made by a thread that is watched is watched: it takes a while until that is known.
        let strangers = std::mem::replace(&mut self.strangers, unknown);
        for process in self.strangers.intersection(&strangers).copied() {
            for thread in threads_of(process) {
                if self.threads.len() >= MAX_THREADS {
                    self.left_out = self.left_out.saturating_add(1);
                } else if self.threads.insert(thread) {
                    new.push(thread);
                }
            }
        }
        self.threads.retain(|thread| new.contains(thread) || is_alive(*thread));
        new
    }

    /// Asks of an event what this scope allows.
    pub(crate) fn limit(scope: Scope, attr: &mut Attr) {
        if scope == Scope::Own {
            attr.set_inherit(1);
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
            attr.set_exclude_callchain_kernel(1);
        }
    }

    /// Opens an event for one of the targets; `None` where that one is left out.
    pub(crate) fn open(&mut self, attr: &Attr, target: i32, cpu: i32, what: &str) -> Result<Option<Event>> {
        match (Event::open(attr, target, cpu), self.scope) {
            (Ok(event), Scope::Own) if is_of_reserve(&event, descriptors()) => {
                self.leave_out();
                Ok(None)
            }
            (Ok(event), _) => Ok(Some(event)),
            (Err(error), Scope::Own) => match error.raw_os_error() {
                Some(libc::ESRCH | libc::EACCES | libc::EPERM) if target != Self::owner(Scope::Own) => {
                    Ok(None)
                }
                Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
                    self.leave_out();
                    Ok(None)
                }
                _ => Err(Error::system(what, error)),
            },
            (Err(error), Scope::Everything) => Err(Error::system(what, error)),
        }
    }
}

/// Each thread takes some descriptors a processor: the usual soft limit of 1024 is soon reached.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // Where it stays as it is, less is watched.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// How many descriptors this process may have.
fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Whether a descriptor that was just made is one of those that stay free: the lowest free number is taken.
fn is_of_reserve(made: &impl AsFd, limit: u64) -> bool {
    let first = limit.saturating_sub((limit / 2).min(MAX_RESERVE));
    u64::try_from(made.as_fd().as_raw_fd()).is_ok_and(|number| number >= first)
}

/// Processes of this user.
fn own_processes() -> Vec<u32> {
    let user = rustix::process::geteuid().as_raw();
    let is_own = |process: &u32| fs::metadata(format!("/proc/{process}")).is_ok_and(|it| it.uid() == user);
    proc::processes().filter(is_own).collect()
}

fn threads_of(process: u32) -> Vec<i32> {
    proc::threads_of(process).filter_map(|thread| i32::try_from(thread).ok()).take(MAX_THREADS).collect()
}

fn is_alive(thread: i32) -> bool {
    // Threads other than the first are not listed in /proc, but they are there.
    fs::exists(format!("/proc/{thread}")).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_among_its_users_own() {
        let this = std::process::id();
        assert!(own_processes().contains(&this));
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(threads_of(this).contains(&thread) && is_alive(thread));
        let mut own = Targets::new(Scope::Own);
        assert!(own.ids().contains(&thread));
        assert!(own.look_for_more(|_| false).iter().all(|it| *it != thread), "once");
        assert_eq!(Targets::new(Scope::Everything).ids(), [-1]);
    }

    #[test]
    fn a_part_of_the_descriptors_stays_free() {
        let made = fs::File::open("/dev/null").unwrap();
        let number = u64::try_from(made.as_raw_fd()).unwrap();
        let is_kept = |limit| is_of_reserve(&made, limit);
        assert!(is_kept(1) && is_kept(number + 1) && is_kept(2 * number));
        assert!(!is_kept(2 * number + 2), "the first half is there to be used");
        assert!(!is_kept(number + 1 + MAX_RESERVE.max(number + 1)) && !is_kept(u64::MAX));
    }
}
