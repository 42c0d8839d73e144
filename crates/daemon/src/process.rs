//! Process information from `/proc`: start time, namespace or container, threads.
//! `traceweir_session::identity` describes processes to the readers of a trace.
//!
//! ```text
//!   the process's view       NSpid line of /proc/PID/task/TID/status             the daemon's view
//!   gettid() = 7          ◀──  "NSpid:  4711  7": last number, first number ──▶  4711
//! ```
//!
//! A record carries the thread id that the process saw. If the process lives in another PID
//! namespace, that number means nothing to readers; [`ThreadIdTranslator`] turns it into the id
//! that the daemon sees. For an unknown id it reads the whole task folder, in the long run at most
//! ten times a second, so that a process which invents ids costs little. A few extra scans are kept
//! in reserve, so that threads which start one after the other are all found. An id that is not
//! found becomes [`UNKNOWN_THREAD_ID`].

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use traceweir_format::linux::stat_fields;
use traceweir_session::identity::{read_start_ticks, start_ticks_in};
use traceweir_session::{ThreadIdMapping, cgroup};

/// The thread id recorded for a thread that was not found.
const UNKNOWN_THREAD_ID: u32 = u32::MAX;
/// One scan of a process's threads is granted per this interval.
const SCAN_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of scans that can accumulate.
const MAX_SAVED_SCANS: u32 = 16;
/// Maximum number of ancestors that are followed.
const MAX_ANCESTORS: usize = 64;
/// Maximum number of thread ids kept per process.
const MAX_THREADS: usize = 65_536;

/// Identifies one process during its lifetime: ids are reused, ids with start times are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessKey {
    pid: u32,
    start_ticks: u64,
}

impl ProcessKey {
    /// Stands for a process that had ended when its connection was accepted.
    pub(crate) const ENDED: Self = Self { pid: u32::MAX, start_ticks: u64::MAX };

    /// Returns the key of the process that has this id now, if such a process exists.
    pub(crate) fn from_pid(pid: u32) -> Option<Self> {
        read_start_ticks(pid).map(|start_ticks| Self { pid, start_ticks })
    }
}

/// Returns the process that has this id now, and its ancestors, as far as `/proc` shows them.
pub(crate) fn read_ancestry(pid: u32) -> Vec<ProcessKey> {
    let mut ancestry: Vec<ProcessKey> = Vec::new();
    let mut next = pid;
    while next != 0 && ancestry.len() < MAX_ANCESTORS {
        let Some(stat) = cgroup::read_limited(&format!("/proc/{next}/stat")) else { break };
        let Some(start_ticks) = start_ticks_in(stat.as_bytes()) else { break };
        // A process that started later than its child has got the id of a parent that has ended.
        if ancestry.last().is_some_and(|child| child.start_ticks < start_ticks) {
            break;
        }
        ancestry.push(ProcessKey { pid: next, start_ticks });
        let parent = stat_fields(stat.as_bytes()).nth(1).and_then(|field| std::str::from_utf8(field).ok());
        next = parent.and_then(|parent| parent.parse().ok()).unwrap_or(0);
    }
    ancestry
}

/// Returns whether the process with this id and key has ended. A process that its parent has not
/// reaped has ended too. Without a key, the process was not visible in `/proc` before, so a process
/// with this id that is visible now is another one. If `/proc` cannot be read, the answer is no.
pub(crate) fn has_ended(pid: u32, key: Option<ProcessKey>) -> bool {
    let stat = |process: &str| cgroup::read_limited(&format!("/proc/{process}/stat"));
    // The id 0 stands for a process of a namespace that is not visible from here.
    if pid == 0 || stat("self").is_none() {
        return false;
    }
    stat(&pid.to_string()).is_none_or(|stat| {
        let start_ticks = start_ticks_in(stat.as_bytes());
        is_dead(stat.as_bytes()) || start_ticks != key.map(|key| key.start_ticks)
    })
}

/// Returns whether the text of `/proc/PID/stat` describes a process without a running thread.
fn is_dead(stat: &[u8]) -> bool {
    // The state is followed, 17 fields later, by the number of threads.
    let mut fields = stat_fields(stat);
    let (state, threads) = (fields.next(), fields.nth(16));
    match state {
        // Other threads may run on after the first one has ended.
        Some(b"Z") => matches!(threads, Some(b"0" | b"1")),
        Some(b"X" | b"x") => true,
        _ => false,
    }
}

/// Returns whether a process with this id may exist. For the id 0, which stands for a process that
/// is not visible from the daemon's namespace, the answer is yes.
pub(crate) fn may_exist(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Capabilities that allow a process to profile the system, each by itself: CAP_SYS_ADMIN,
/// CAP_PERFMON.
const PROFILING_CAPABILITIES: u64 = 1 << 21 | 1 << 38;

/// Returns whether a process of this user has the right to profile the system.
///
/// The process must be in the daemon's user namespace, because any user can have all capabilities
/// in a user namespace of their own. All its user ids must be `user`: the capabilities of a
/// set-user-id program do not give rights to the user who runs it.
pub(crate) fn may_profile(pid: u32, user: u32) -> bool {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    let own = namespace("self");
    if pid == 0 || own.is_none() || namespace(&pid.to_string()) != own {
        return false;
    }
    let status = cgroup::read_limited(&format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let has_same_user = field("Uid:").is_some_and(|ids| {
        let mut ids = ids.split_whitespace().map(str::parse).peekable();
        ids.peek().is_some() && ids.all(|id| id == Ok(user))
    });
    let bits = field("CapEff:").and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    has_same_user && bits.is_some_and(|bits| bits & PROFILING_CAPABILITIES != 0)
}

/// Returns how the thread ids of a process are recorded: unchanged, or translated from its
/// namespace.
pub(crate) fn thread_id_mapping(pid: u32) -> ThreadIdMapping {
    if !is_in_other_namespace(pid) {
        return ThreadIdMapping::AsGiven;
    }
    let mut translator = ThreadIdTranslator::new(pid);
    ThreadIdMapping::Translated(Arc::new(Mutex::new(move |tid| translator.translate(tid))))
}

/// Returns whether a process runs in a container: its PID namespace is not the daemon's, or its
/// control groups name a container that the daemon is not in. A process with the id 0 is not
/// visible from the daemon's namespace, so it is in another namespace. If the information is not
/// available, the answer is no.
pub(crate) fn is_contained(pid: u32) -> bool {
    pid == 0 || is_in_other_namespace(pid) || {
        let container = |pid: u32| cgroup::container(&cgroup::read(pid));
        let its_container = container(pid);
        its_container.is_some() && its_container != container(std::process::id())
    }
}

fn is_in_other_namespace(pid: u32) -> bool {
    let own = fs::read_link("/proc/self/ns/pid").ok();
    let other = fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    match (own, other) {
        (Some(own), Some(other)) => own != other,
        // If a link cannot be read, a difference in depth shows that the namespaces differ.
        _ => match (namespace_depth("self"), namespace_depth(&pid.to_string())) {
            (Some(own), Some(other)) => own != other,
            _ => false,
        },
    }
}

/// Returns in how many PID namespaces a process has an id, as far as they are visible from here.
fn namespace_depth(process: &str) -> Option<usize> {
    let status = cgroup::read_limited(&format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(line.split_ascii_whitespace().count())
}

/// Translates thread ids of one process's namespace into the daemon's.
struct ThreadIdTranslator {
    pid: u32,
    /// The daemon's ids of threads, by the ids that the process sees.
    outer_ids: HashMap<u32, u32>,
    scans_left: u32,
    last_grant: Instant,
}

impl ThreadIdTranslator {
    /// Creates a translator that knows the main thread: a process that writes and ends at once
    /// often has no other.
    fn new(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let outer_ids = namespace_ids(&status).map(|(outer, inner)| (inner, outer)).into_iter().collect();
        Self { pid, outer_ids, scans_left: MAX_SAVED_SCANS, last_grant: Instant::now() }
    }

    fn translate(&mut self, tid: u32) -> u32 {
        if !self.outer_ids.contains_key(&tid) && self.take_scan(Instant::now()) {
            self.scan_threads();
        }
        self.outer_ids.get(&tid).copied().unwrap_or(UNKNOWN_THREAD_ID)
    }

    /// Takes one scan from the reserve; returns `false` if the reserve is empty.
    fn take_scan(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.last_grant).as_millis() / SCAN_INTERVAL.as_millis();
        if let Some(earned) = u32::try_from(passed).ok().filter(|earned| *earned < MAX_SAVED_SCANS) {
            self.scans_left = (self.scans_left + earned).min(MAX_SAVED_SCANS);
            self.last_grant += SCAN_INTERVAL * earned;
        } else {
            self.scans_left = MAX_SAVED_SCANS;
            self.last_grant = now;
        }
        let has_scan = self.scans_left > 0;
        self.scans_left = self.scans_left.saturating_sub(1);
        has_scan
    }

    /// Reads all threads of the process. Ended threads stay known, because their last records may
    /// not have been collected yet.
    fn scan_threads(&mut self) {
        if self.outer_ids.len() > MAX_THREADS {
            self.outer_ids.clear();
        }
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return };
        for task in tasks.flatten().take(MAX_THREADS) {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            if let Some((outer, inner)) = namespace_ids(&status) {
                self.outer_ids.insert(inner, outer);
            }
        }
    }
}

/// Returns the first and last number of the `NSpid` line: the id here and the id that the thread
/// itself sees.
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
    fn ancestry_leads_from_the_process_to_its_parents() {
        let own = std::process::id();
        let ancestry = read_ancestry(own);
        let parent = ProcessKey::from_pid(std::os::unix::process::parent_id());
        assert_eq!(ancestry.first().copied(), ProcessKey::from_pid(own));
        assert_eq!(ancestry.get(1).copied(), parent);
        assert!(read_ancestry(u32::MAX).is_empty() && read_ancestry(0).is_empty());
    }

    #[test]
    fn process_key_holds_id_and_start_time() {
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
    fn unreaped_and_reaped_processes_have_ended() {
        let own = std::process::id();
        let key = ProcessKey::from_pid(own).unwrap();
        assert!(!has_ended(own, Some(key)));
        assert!(
            has_ended(own, Some(ProcessKey { start_ticks: key.start_ticks + 1, ..key })),
            "another process has the id"
        );
        assert!(has_ended(own, None), "the process was not visible when it connected");
        assert!(!has_ended(0, None), "a process that is not visible has not ended");
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let (pid, key) = (child.id(), ProcessKey::from_pid(child.id()));
        assert!(key.is_some() && !has_ended(pid, key));
        child.kill().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !has_ended(pid, key) {
            assert!(Instant::now() < deadline, "the killed process still counts as running");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(ProcessKey::from_pid(pid), key, "the process is not reaped yet");
        child.wait().unwrap();
        assert!(has_ended(pid, key) && has_ended(pid, None));
    }

    #[test]
    fn process_is_dead_without_running_threads() {
        let stat = |state: &str, threads: u32| {
            format!("7 (a ) b) {state} 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 99 0")
        };
        let is_dead = |state, threads| is_dead(stat(state, threads).as_bytes());
        assert!(is_dead("Z", 1) && is_dead("Z", 0) && is_dead("X", 1));
        assert!(!is_dead("Z", 2), "the first thread has ended, another one runs");
        assert!(!is_dead("S", 1) && !is_dead("R", 3));
        assert!(!super::is_dead(b"") && !super::is_dead(b"7 (Z) Z"));
    }

    #[test]
    fn outermost_and_innermost_ids_are_parsed() {
        assert_eq!(namespace_ids("Name:\tx\nNSpid:\t4711\t12\t7\nNSpgid:\t1\n"), Some((4711, 7)));
        assert_eq!(namespace_ids("NSpid:\t4711\n"), Some((4711, 4711)));
        assert_eq!(namespace_ids("NSpid:\n"), None);
        assert_eq!(namespace_ids("NSpid:\tx\n"), None);
        assert_eq!(namespace_ids("Name:\tx\n"), None);
    }

    #[test]
    fn process_that_is_not_visible_counts_as_contained() {
        let own = std::process::id();
        assert!(!is_contained(own) && !is_in_other_namespace(own));
        assert!(!is_contained(u32::MAX), "the process does not exist");
        assert!(is_contained(0));
        assert_eq!(namespace_depth("self"), namespace_depth(&own.to_string()));
        assert!(namespace_depth("self").is_some());
    }

    #[test]
    fn threads_of_the_same_namespace_keep_their_ids() {
        assert!(matches!(thread_id_mapping(std::process::id()), ThreadIdMapping::AsGiven));
        assert!(
            matches!(thread_id_mapping(u32::MAX), ThreadIdMapping::AsGiven),
            "the process does not exist"
        );
    }

    #[test]
    fn threads_are_found_and_invented_ids_are_unknown() {
        let mut translator = ThreadIdTranslator::new(std::process::id());
        assert_eq!(translator.outer_ids.len(), 1);
        assert_eq!(translator.translate(0x7FFF_FFFE), UNKNOWN_THREAD_ID);
        // The main thread's number in the innermost namespace is its process id there, in whichever
        // namespace the test runs.
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let (outer, inner) = namespace_ids(&status).unwrap();
        assert_eq!(translator.translate(inner), outer);
        // A thread that started after the last scan.
        std::thread::spawn(move || {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            let (outer, inner) = namespace_ids(&status).unwrap();
            assert_eq!(translator.translate(inner), outer);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn scans_are_granted_at_a_steady_rate_with_a_reserve() {
        let mut translator = ThreadIdTranslator::new(1);
        let start = translator.last_grant;
        let mut count_scans = |at: Duration| (0..100).filter(|_| translator.take_scan(start + at)).count();
        assert_eq!(count_scans(Duration::ZERO), 16);
        assert_eq!(count_scans(Duration::from_millis(99)), 0);
        assert_eq!(count_scans(Duration::from_millis(100)), 1);
        assert_eq!(count_scans(Duration::from_millis(350)), 2);
        assert_eq!(count_scans(Duration::from_millis(400)), 1, "the remaining 50 ms count");
        assert_eq!(count_scans(Duration::from_secs(3600)), 16);
    }
}
