//! Warns about groups that have no events on Linux, because otherwise an empty trace would look
//! like an idle machine.
//!
//! ```text
//!   mask ─▶ minus AVAILABLE   ─▶ by name: REASONS, else the default reason
//!                              └─▶ bits without a name
//! ```
//!
//! `docs/spec/kernel-events.md` describes the source of each kind of event, and the events that are
//! left out.

use traceweir::controller::info::GroupMask;
use traceweir_format::spec::system::{KERNEL_GROUPS, add_group};

use super::group_names;

/// Groups that have events, or that affect events.
const AVAILABLE: [&str; 27] = [
    "PROCESS",
    "THREAD",
    "IMAGE_LOAD",
    "PROCESS_COUNTERS",
    "CSWITCH",
    "DPC",
    "INTERRUPT",
    "SYSTEMCALL",
    "DISK_IO",
    "DISK_FILE_IO",
    "DISK_IO_INIT",
    "DISPATCHER",
    "MEMORY_PAGE_FAULTS",
    "MEMORY_HARD_FAULTS",
    "VIRTUAL_ALLOC",
    "NETWORK_TCPIP",
    "SPLIT_IO",
    "PROFILE",
    "FILE_IO",
    "FILE_IO_INIT",
    "PRIORITY",
    "CLOCK_INTERRUPT",
    "IPI",
    "CONFIG_SYSTEM",
    "CONFIG_STORAGE",
    "CONFIG_NETWORK",
    "NO_SYSCONFIG",
];

/// Reasons why groups have no events. [`DEFAULT_REASON`] applies to groups that are not listed.
const REASONS: [(&str, &str); 14] = [
    ("VAMAP", "file mappings with code are recorded as images"),
    ("REGISTRY", "Linux has no registry"),
    ("REGISTRY_HIVE", "Linux has no registry"),
    ("REGISTRY_NOTIFICATION", "Linux has no registry"),
    ("DBGPRINT", "kernel messages are in the kernel's log (dmesg)"),
    ("JOB", "control groups are recorded with each process, not separately"),
    ("ALPC", "Linux has no such calls between processes"),
    ("DRIVER", "Linux has no driver stack: disk_io and disk_io_init record requests"),
    ("COMPACT_CSWITCH", "cswitch records the same, and more"),
    ("PMC_PROFILE", "counters are sampled only after a program has selected some (information class 6)"),
    ("AFFINITY", "Linux has no tracepoint for it"),
    ("OPTICAL_IO", "optical drives are not distinguished: disk_io records their requests"),
    ("OPTICAL_IO_INIT", "optical drives are not distinguished: disk_io_init records their requests"),
    ("HYPERVISOR_PROFILE", "the hypervisor of the machine, if any, cannot be sampled"),
];
const DEFAULT_REASON: &str = "Linux has no such events";

/// Returns the names of groups that have or affect events.
pub(super) fn available_groups() -> impl Iterator<Item = &'static str> {
    AVAILABLE.iter().copied()
}

/// Returns a line with name and reason for each group of a mask that has no events.
pub(crate) fn describe_absent_groups(mask: &GroupMask) -> Vec<String> {
    let names = group_names(&remove_available_groups(mask));
    let find_reason = |name: &str| {
        REASONS.iter().find(|(group, _)| *group == name).map_or(DEFAULT_REASON, |(_, reason)| reason)
    };
    names.iter().map(|name| format!("{name}: {}", find_reason(name))).collect()
}

/// Returns a mask without the available groups and their alternative bits.
pub(super) fn remove_available_groups(mask: &GroupMask) -> GroupMask {
    let mut available = GroupMask::default();
    let is_available = |name: &str| AVAILABLE.contains(&name);
    KERNEL_GROUPS
        .iter()
        .filter(|(_, name)| is_available(name))
        .for_each(|(group, _)| add_group(&mut available, *group));
    let mut absent = *mask;
    absent.iter_mut().zip(available).for_each(|(word, available)| *word &= !available);
    absent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_groups_exist_and_are_in_only_one_list() {
        let is_group = |name: &str| KERNEL_GROUPS.iter().any(|(_, group)| *group == name);
        assert!(AVAILABLE.iter().all(|name| is_group(name)));
        for (name, reason) in REASONS {
            assert!(is_group(name) && !AVAILABLE.contains(&name) && !reason.is_empty(), "{name}");
        }
    }

    #[test]
    fn absent_groups_have_reasons() {
        assert_eq!(
            describe_absent_groups(&[0x0102_0000, 0, 0, 0, 0, 0, 0, 0]),
            ["REGISTRY: Linux has no registry"]
        );
        assert_eq!(
            describe_absent_groups(&[0x1000_0001, 0x6, 0, 0, 0, 0, 0, 0]),
            [""; 0],
            "groups with events must not be reported by their alternative bits"
        );
        let absent = describe_absent_groups(&[0, 0x40, 0, 8, 0, 0, 0, 0]);
        assert_eq!(absent.len(), 2, "{absent:?}");
        assert_eq!(absent.first().map(String::as_str), Some("POOL: Linux has no such events"));
    }
}
