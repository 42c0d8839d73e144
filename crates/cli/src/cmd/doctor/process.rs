//! Privileges and limits of a process, read from `/proc`.
//!
//! Capabilities count for perf events and kernel addresses only in the initial user namespace: root
//! in a container may have all capabilities in its namespace, but they have no effect on perf
//! events.

use std::fs;
use std::path::Path;

use traceweir_daemon::machine::container;

use super::files::RootFiles;

pub(super) const CAP_DAC_OVERRIDE: u32 = 1;
pub(super) const CAP_DAC_READ_SEARCH: u32 = 2;
pub(super) const CAP_IPC_LOCK: u32 = 14;
pub(super) const CAP_SYS_PTRACE: u32 = 19;
pub(super) const CAP_SYS_ADMIN: u32 = 21;
pub(super) const CAP_SYSLOG: u32 = 34;
pub(super) const CAP_PERFMON: u32 = 38;

/// The capabilities that tracing uses, with their names.
pub(super) const CAPABILITY_NAMES: [(u32, &str); 7] = [
    (CAP_PERFMON, "CAP_PERFMON"),
    (CAP_SYS_ADMIN, "CAP_SYS_ADMIN"),
    (CAP_SYS_PTRACE, "CAP_SYS_PTRACE"),
    (CAP_SYSLOG, "CAP_SYSLOG"),
    (CAP_IPC_LOCK, "CAP_IPC_LOCK"),
    (CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
    (CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
];

/// The link of the initial PID namespace; its inode number is fixed (`linux/proc_ns.h`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";
/// The link of the initial user namespace; its inode number is fixed too.
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

/// Privileges and limits of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessPrivileges {
    /// The effective capabilities, one bit each.
    capabilities: u64,
    /// Whether the process is in the initial user namespace; `None` if unreadable.
    pub(super) is_in_initial_user_namespace: Option<bool>,
    /// Whether the process is in the initial PID namespace; `None` if unreadable.
    pub(super) is_in_initial_pid_namespace: Option<bool>,
    /// The container that the control group names.
    pub(super) container: Option<String>,
    pub(super) has_seccomp_filter: bool,
    /// Memory that the process may lock; `None` if unlimited.
    pub(super) max_locked_bytes: Option<u64>,
    /// Soft and hard limit of open files; `None` if unlimited.
    pub(super) open_files: (Option<u64>, Option<u64>),
}

impl ProcessPrivileges {
    /// Reads a process by its pid, or `self`, of the machine whose files are below `root`.
    pub(super) fn read(root: &Path, id: &str) -> Self {
        let files = RootFiles(root);
        let status = files.read_text(&format!("proc/{id}/status")).unwrap_or_default();
        let limits = files.read_text(&format!("proc/{id}/limits")).unwrap_or_default();
        let cgroups = files.read_text(&format!("proc/{id}/cgroup")).unwrap_or_default();
        let is_in_namespace = |kind: &str, initial: &str| {
            let link = fs::read_link(root.join(format!("proc/{id}/ns/{kind}"))).ok()?;
            Some(link.as_os_str() == initial)
        };
        let capabilities =
            find_status_field(&status, "CapEff:").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        Self {
            capabilities: capabilities.unwrap_or(0),
            is_in_initial_user_namespace: is_in_namespace("user", INITIAL_USER_NAMESPACE),
            is_in_initial_pid_namespace: is_in_namespace("pid", INITIAL_PID_NAMESPACE),
            container: container(&cgroups),
            has_seccomp_filter: find_status_field(&status, "Seccomp:").is_some_and(|mode| mode != "0"),
            max_locked_bytes: find_limits(&limits, "Max locked memory").0,
            open_files: find_limits(&limits, "Max open files"),
        }
    }

    /// Returns whether the process has one of these capabilities in the initial user namespace. An
    /// unknown namespace counts as the initial one.
    pub(super) fn has_any(&self, capabilities: &[u32]) -> bool {
        let has_bit = |bit: &u32| self.capabilities.checked_shr(*bit).is_some_and(|shifted| shifted & 1 != 0);
        self.is_in_initial_user_namespace != Some(false) && capabilities.iter().any(has_bit)
    }

    /// Returns the names of the capabilities that the process has and that tracing uses.
    pub(super) fn capability_names(&self) -> Vec<&'static str> {
        CAPABILITY_NAMES.iter().filter(|(bit, _)| self.has_any(&[*bit])).map(|(_, name)| *name).collect()
    }
}

/// Returns the value of a line of `/proc/PID/status`.
pub(super) fn find_status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Returns soft and hard limit of a line of `/proc/PID/limits`; `None` for `unlimited`, and for a
/// missing line.
fn find_limits(limits: &str, name: &str) -> (Option<u64>, Option<u64>) {
    let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
    (numbers.next().flatten(), numbers.next().flatten())
}
