//! Privileges and limits of a process, read from `/proc`.
//!
//! Capabilities count for perf events and kernel addresses only in the initial user namespace: root
//! in a container has all capabilities there, but none of effect here.

use std::fs;
use std::path::Path;

use traceweir_daemon::machine::container;

use super::files::Files;

pub(super) const CAP_DAC_OVERRIDE: u32 = 1;
pub(super) const CAP_DAC_READ_SEARCH: u32 = 2;
pub(super) const CAP_IPC_LOCK: u32 = 14;
pub(super) const CAP_SYS_PTRACE: u32 = 19;
pub(super) const CAP_SYS_ADMIN: u32 = 21;
pub(super) const CAP_SYSLOG: u32 = 34;
pub(super) const CAP_PERFMON: u32 = 38;

/// The capabilities that tracing uses, with their names.
pub(super) const NAMED: [(u32, &str); 7] = [
    (CAP_PERFMON, "CAP_PERFMON"),
    (CAP_SYS_ADMIN, "CAP_SYS_ADMIN"),
    (CAP_SYS_PTRACE, "CAP_SYS_PTRACE"),
    (CAP_SYSLOG, "CAP_SYSLOG"),
    (CAP_IPC_LOCK, "CAP_IPC_LOCK"),
    (CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
    (CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
];

/// The initial namespaces have these inode numbers in every kernel (`linux/proc_ns.h`).
const FIRST_PIDS: &str = "pid:[4026531836]";
const FIRST_USERS: &str = "user:[4026531837]";

/// Privileges and limits of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// The effective set of capabilities.
    capabilities: u64,
    /// Whether it is in the initial user namespace; `None` if unreadable.
    pub(super) is_of_first_users: Option<bool>,
    /// Whether it is in the initial PID namespace; `None` if unreadable.
    pub(super) sees_all: Option<bool>,
    /// The container named by its control group.
    pub(super) container: Option<String>,
    /// Whether seccomp filters its system calls.
    pub(super) is_filtered: bool,
    /// Bytes that it may lock; `None` if unlimited.
    pub(super) locked_bytes: Option<u64>,
    /// Soft and hard limit of open files; `None` if unlimited.
    pub(super) files: (Option<u64>, Option<u64>),
}

impl Process {
    /// Reads a process by its pid, or `self`, of the machine whose files are below `root`.
    pub(super) fn read(root: &Path, id: &str) -> Self {
        let files = Files(root);
        let status = files.text(&format!("proc/{id}/status")).unwrap_or_default();
        let limits = files.text(&format!("proc/{id}/limits")).unwrap_or_default();
        let groups = files.text(&format!("proc/{id}/cgroup")).unwrap_or_default();
        let namespace = |kind: &str, first: &str| {
            let link = fs::read_link(root.join(format!("proc/{id}/ns/{kind}"))).ok()?;
            Some(link.as_os_str() == first)
        };
        let capabilities = field(&status, "CapEff:").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        Self {
            capabilities: capabilities.unwrap_or(0),
            is_of_first_users: namespace("user", FIRST_USERS),
            sees_all: namespace("pid", FIRST_PIDS),
            container: container(&groups),
            is_filtered: field(&status, "Seccomp:").is_some_and(|mode| mode != "0"),
            locked_bytes: limit(&limits, "Max locked memory").0,
            files: limit(&limits, "Max open files"),
        }
    }

    /// Returns whether it has one of these capabilities, valid for perf events.
    pub(super) fn has(&self, capabilities: &[u32]) -> bool {
        let has = |bit: &u32| self.capabilities.checked_shr(*bit).is_some_and(|rest| rest & 1 != 0);
        self.is_of_first_users != Some(false) && capabilities.iter().any(has)
    }

    /// Returns the names of its capabilities.
    pub(super) fn named(&self) -> Vec<&'static str> {
        NAMED.iter().filter(|(bit, _)| self.has(&[*bit])).map(|(_, name)| *name).collect()
    }
}

/// Returns the value of a line of `/proc/PID/status`.
pub(super) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Returns soft and hard limit of a line of `/proc/PID/limits`; a missing line means unlimited.
fn limit(limits: &str, name: &str) -> (Option<u64>, Option<u64>) {
    let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
    (numbers.next().flatten(), numbers.next().flatten())
}
