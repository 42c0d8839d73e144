//! What a process may do, as the kernel tells of it.
//!
//! Capabilities count for perf events and addresses of the kernel only in the first user namespace: root of a container has all of them, and none.

use std::fs;
use std::path::Path;

use traceweir_daemon::machine::container;

use super::machine::Files;

pub(super) const CAP_DAC_OVERRIDE: u32 = 1;
pub(super) const CAP_DAC_READ_SEARCH: u32 = 2;
pub(super) const CAP_IPC_LOCK: u32 = 14;
pub(super) const CAP_SYS_PTRACE: u32 = 19;
pub(super) const CAP_SYS_ADMIN: u32 = 21;
pub(super) const CAP_SYSLOG: u32 = 34;
pub(super) const CAP_PERFMON: u32 = 38;

/// Those that are of use here, by name.
pub(super) const NAMED: [(u32, &str); 7] = [
    (CAP_PERFMON, "CAP_PERFMON"),
    (CAP_SYS_ADMIN, "CAP_SYS_ADMIN"),
    (CAP_SYS_PTRACE, "CAP_SYS_PTRACE"),
    (CAP_SYSLOG, "CAP_SYSLOG"),
    (CAP_IPC_LOCK, "CAP_IPC_LOCK"),
    (CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
    (CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
];

/// The first namespaces of a system have these names in every kernel (`linux/proc_ns.h`).
const FIRST_PIDS: &str = "pid:[4026531836]";
const FIRST_USERS: &str = "user:[4026531837]";

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// The effective set.
    capabilities: u64,
    /// Whether it lives in the first user namespace; `None`: it does not let us look.
    pub(super) is_of_first_users: Option<bool>,
    /// The same for process ids.
    pub(super) sees_all: Option<bool>,
    /// The container that it is in, where its control group names one.
    pub(super) container: Option<String>,
    /// Whether system calls are filtered.
    pub(super) is_filtered: bool,
    /// Bytes that may be locked; `None`: not limited.
    pub(super) locked_bytes: Option<u64>,
    /// Files that may be open: now, and when it asks for more.
    pub(super) files: (Option<u64>, Option<u64>),
}

impl Process {
    /// A process by its id, or `self`, of the machine whose files begin there.
    pub(super) fn at(root: &Path, id: &str) -> Self {
        let files = Files(root);
        let status = files.text(&format!("proc/{id}/status")).unwrap_or_default();
        let limits = files.text(&format!("proc/{id}/limits")).unwrap_or_default();
        let groups = files.text(&format!("proc/{id}/cgroup")).unwrap_or_default();
        let namespace = |kind: &str, first: &str| {
            let link = fs::read_link(root.join(format!("proc/{id}/ns/{kind}"))).ok()?;
            Some(link.as_os_str() == first)
        };
        let capabilities = field(&status, "CapEff:").and_then(|it| u64::from_str_radix(it, 16).ok());
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

    /// Whether it has one of these where it counts.
    pub(super) fn has(&self, capabilities: &[u32]) -> bool {
        let has = |bit: &u32| self.capabilities.checked_shr(*bit).is_some_and(|rest| rest & 1 != 0);
        self.is_of_first_users != Some(false) && capabilities.iter().any(has)
    }

    /// The names of those that it has.
    pub(super) fn named(&self) -> Vec<&'static str> {
        NAMED.iter().filter(|(bit, _)| self.has(&[*bit])).map(|(_, name)| *name).collect()
    }
}

/// A line of `/proc/PID/status`.
pub(super) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// A line of `/proc/PID/limits`: soft and hard; one that is not there limits nothing.
fn limit(limits: &str, name: &str) -> (Option<u64>, Option<u64>) {
    let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let mut numbers = line.split_whitespace().map(|it| it.parse().ok());
    (numbers.next().flatten(), numbers.next().flatten())
}
