//! What `/proc` says about a process: its start, its namespace or container, its threads. PeerName it is to those who read its events is `traceweir_session::identity`.
//!
//! ```text
//!   the process's view            NSpid line of /proc/PID/task/TID/status         the daemon's view
//!   gettid() = 7          ◀──────  "NSpid:  4711  7": last number, first number ──────▶  4711
//! ```
//!
//! A record carries the thread id that the process saw. Where the process lives in another PID namespace, that number means nothing to
//! readers; [`Translator`] turns it into the daemon's. It reads the whole task folder for an id it does not know, ten times a second at
//! most in the long run, so that a process which invents ids costs little; a few looks more are in reserve, so that threads which start
//! one after the other are all found. An id that is not found is [`UNKNOWN`].

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use traceweir_session::identity::start_ticks;
use traceweir_session::{Threads, cgroup};

/// The thread id of a thread that is gone and unknown.
const UNKNOWN: u32 = u32::MAX;
/// A look at the threads of a process is granted so often.
const REFRESH: Duration = Duration::from_millis(100);
/// Looks that may be saved up.
const RESERVE: u32 = 16;
/// Threads remembered of one process.
const MAX_THREADS: usize = 65_536;

/// One process for as long as it lives: ids are used again, ids with start times are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessKey {
    pid: u32,
    start_ticks: u64,
}

impl ProcessKey {
    /// The process that has this id now, if there is one.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        start_ticks(pid).map(|start_ticks| Self { pid, start_ticks })
    }
}

/// Capabilities of which one lets a process profile the system: CAP_SYS_ADMIN, CAP_PERFMON.
const PROFILING: u64 = 1 << 21 | 1 << 38;

/// Whether a process of this user has a right to profile the system.
///
/// Capabilities are those of its user namespace, where anybody may have all of them: only the daemon's own counts. And a process that became somebody else by what it runs
/// (set-user-id) is not asked for the one who connected.
pub(crate) fn may_profile(pid: u32, user: u32) -> bool {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    let own = namespace("self");
    if pid == 0 || own.is_none() || namespace(&pid.to_string()) != own {
        return false;
    }
    let status = cgroup::beginning(&format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let is_still_him = field("Uid:").is_some_and(|ids| {
        let mut ids = ids.split_whitespace().map(str::parse).peekable();
        ids.peek().is_some() && ids.all(|id| id == Ok(user))
    });
    let bits = field("CapEff:").and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    is_still_him && bits.is_some_and(|bits| bits & PROFILING != 0)
}

/// How thread ids of a process are to be written.
pub(crate) fn threads_of(pid: u32) -> Threads {
    if !is_elsewhere(pid) {
        return Threads::AsGiven;
    }
    let mut translator = Translator::new(pid);
    Threads::Translated(Box::new(move |tid| translator.translate(tid)))
}

/// Whether a process runs in a container: in another PID namespace than the daemon, or in a container by its control groups that the daemon is not in. One that
/// cannot be seen from here at all has the number 0. What cannot be found out is not so.
pub(crate) fn is_contained(pid: u32) -> bool {
    pid == 0 || is_elsewhere(pid) || {
        let container = |pid: u32| cgroup::container(&cgroup::of(pid));
        let its = container(pid);
        its.is_some() && its != container(std::process::id())
    }
}

/// Whether a process is in another PID namespace.
fn is_elsewhere(pid: u32) -> bool {
    let own = fs::read_link("/proc/self/ns/pid").ok();
    let its = fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    match (own, its) {
        (Some(own), Some(its)) => own != its,
        // Whose link may not be read still shows how deep it is.
        _ => match (depth("self"), depth(&pid.to_string())) {
            (Some(own), Some(its)) => own != its,
            _ => false,
        },
    }
}

/// In how many namespaces a process has a number, as far as they can be seen from here.
fn depth(process: &str) -> Option<usize> {
    let status = cgroup::beginning(&format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(line.split_ascii_whitespace().count())
}

/// Turns thread ids of one process's namespace into the daemon's.
struct Translator {
    pid: u32,
    known: HashMap<u32, u32>,
    looks: u32,
    granted: Instant,
}

impl Translator {
    /// Knows the main thread from the start: a process that writes and ends at once often has no other.
    fn new(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let known = namespace_ids(&status).map(|(outer, inner)| (inner, outer)).into_iter().collect();
        Self { pid, known, looks: RESERVE, granted: Instant::now() }
    }

    fn translate(&mut self, tid: u32) -> u32 {
        if !self.known.contains_key(&tid) && self.may_look(Instant::now()) {
            self.look();
        }
        self.known.get(&tid).copied().unwrap_or(UNKNOWN)
    }

    /// Whether a look is left; takes it.
    fn may_look(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.granted).as_millis() / REFRESH.as_millis();
        if let Some(earned) = u32::try_from(passed).ok().filter(|earned| *earned < RESERVE) {
            self.looks = (self.looks + earned).min(RESERVE);
            self.granted += REFRESH * earned;
        } else {
            self.looks = RESERVE;
            self.granted = now;
        }
        let left = self.looks > 0;
        self.looks = self.looks.saturating_sub(1);
        left
    }

    /// Threads that have ended stay known: their last records may still be on the way.
    fn look(&mut self) {
        if self.known.len() > MAX_THREADS {
            self.known.clear();
        }
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return };
        for task in tasks.flatten().take(MAX_THREADS) {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            if let Some((outer, inner)) = namespace_ids(&status) {
                self.known.insert(inner, outer);
            }
        }
    }
}

/// First and last number of the `NSpid` line: the id here and the id that the thread itself sees.
fn namespace_ids(status: &str) -> Option<(u32, u32)> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let mut ids = line.split_ascii_whitespace().map(str::parse::<u32>);
    let outer = ids.next()?.ok()?;
    let inner = ids.next_back().unwrap_or(Ok(outer)).ok()?;
    Some((outer, inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_id_and_start() {
        let own = ProcessKey::from_pid(std::process::id()).unwrap();
        assert_eq!(ProcessKey::from_pid(std::process::id()), Some(own));
        assert!(own.start_ticks > 0);
        assert_ne!(
            own,
            ProcessKey { start_ticks: own.start_ticks + 1, ..own },
            "a later process with this id"
        );
        assert_eq!(ProcessKey::from_pid(u32::MAX), None);
    }

    #[test]
    fn the_outer_and_the_innermost_id_are_taken() {
        assert_eq!(namespace_ids("Name:\tx\nNSpid:\t4711\t12\t7\nNSpgid:\t1\n"), Some((4711, 7)));
        assert_eq!(namespace_ids("NSpid:\t4711\n"), Some((4711, 4711)));
        assert_eq!(namespace_ids("NSpid:\n"), None);
        assert_eq!(namespace_ids("NSpid:\tx\n"), None);
        assert_eq!(namespace_ids("Name:\tx\n"), None);
    }

    #[test]
    fn processes_of_this_namespace_are_in_no_container_and_the_unseen_are_in_one() {
        let own = std::process::id();
        assert!(!is_contained(own) && !is_elsewhere(own));
        assert!(!is_contained(u32::MAX), "gone");
        assert!(is_contained(0));
        assert_eq!(depth("self"), depth(&own.to_string()));
        assert!(depth("self").is_some());
    }

    #[test]
    fn threads_of_the_same_namespace_keep_their_ids() {
        assert!(matches!(threads_of(std::process::id()), Threads::AsGiven));
        assert!(matches!(threads_of(u32::MAX), Threads::AsGiven), "gone");
    }

    #[test]
    fn threads_are_found_and_inventions_are_unknown() {
        let mut translator = Translator::new(std::process::id());
        assert_eq!(translator.known.len(), 1);
        assert_eq!(translator.translate(0x7FFF_FFFE), UNKNOWN);
        // The main thread's number in the innermost namespace is its process id there, whatever namespace the test runs in.
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let (outer, inner) = namespace_ids(&status).unwrap();
        assert_eq!(translator.translate(inner), outer);
        // A thread that started after the last look.
        std::thread::spawn(move || {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            let (outer, inner) = namespace_ids(&status).unwrap();
            assert_eq!(translator.translate(inner), outer);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn looks_are_granted_at_a_steady_rate_with_a_reserve() {
        let mut translator = Translator::new(1);
        let start = translator.granted;
        let mut looks = |at: Duration| (0..100).filter(|_| translator.may_look(start + at)).count();
        assert_eq!(looks(Duration::ZERO), 16);
        assert_eq!(looks(Duration::from_millis(99)), 0);
        assert_eq!(looks(Duration::from_millis(100)), 1);
        assert_eq!(looks(Duration::from_millis(350)), 2);
        assert_eq!(looks(Duration::from_millis(400)), 1, "what was over counts on");
        assert_eq!(looks(Duration::from_secs(3600)), 16);
    }
}
