//! Groups that can be asked for, and of which nothing will come on Linux: said, for silence would look like a quiet machine.
//!
//! ```text
//!   mask ─▶ less what is GIVEN ─▶ by name: WHY, else the usual reason
//!                              └─▶ bits without a name
//! ```
//!
//! `docs/spec/kernel-events.md` tells of each kind what it is made of, and what is left out.

use traceweir::controller::info::GroupMask;
use traceweir_format::spec::system::{KERNEL_GROUPS, add_group};

use super::group_names;

/// Groups of which there are events, or that say something of them.
const GIVEN: [&str; 27] = [
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

/// Why there is nothing of a group; of others Linux simply has no such events.
const WHY: [(&str, &str); 14] = [
    ("VAMAP", "mappings of files are told as images, where they are code"),
    ("REGISTRY", "Linux has no registry"),
    ("REGISTRY_HIVE", "Linux has no registry"),
    ("REGISTRY_NOTIFICATION", "Linux has no registry"),
    ("DBGPRINT", "messages of the kernel are in its log (dmesg)"),
    ("JOB", "control groups are told with each process, and not by themselves"),
    ("ALPC", "Linux has no such calls between processes"),
    ("DRIVER", "Linux has no stack of drivers: disk_io and disk_io_init tell of requests"),
    ("COMPACT_CSWITCH", "cswitch tells it, and more"),
    ("PMC_PROFILE", "samples of counters come only once a program has chosen some (information class 6)"),
    ("AFFINITY", "no tracepoint tells it"),
    ("OPTICAL_IO", "drives are not told apart: disk_io has their requests"),
    ("OPTICAL_IO_INIT", "drives are not told apart: disk_io_init has their requests"),
    ("HYPERVISOR_PROFILE", "the machine's hypervisor, if any, is not ours to ask"),
];
const USUAL: &str = "Linux has no such events";

/// Names of groups of which there are events.
pub(super) fn given() -> impl Iterator<Item = &'static str> {
    GIVEN.iter().copied()
}

/// A line for each group of a mask of which nothing will come.
pub(crate) fn absent_groups(mask: &GroupMask) -> Vec<String> {
    let names = group_names(&without_given(mask));
    let why = |name: &str| WHY.iter().find(|(it, _)| *it == name).map_or(USUAL, |(_, why)| why);
    names.iter().map(|name| format!("{name}: {}", why(name))).collect()
}

/// A mask without the groups of which there are events, under their other names too.
pub(super) fn without_given(mask: &GroupMask) -> GroupMask {
    let mut given = GroupMask::default();
    let is_given = |name: &str| GIVEN.contains(&name);
    KERNEL_GROUPS.iter().filter(|(_, name)| is_given(name)).for_each(|(it, _)| add_group(&mut given, *it));
    let mut rest = *mask;
    rest.iter_mut().zip(given).for_each(|(word, given)| *word &= !given);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_that_of_a_group_and_has_events_or_a_reason() {
        let is_group = |name: &str| KERNEL_GROUPS.iter().any(|(_, it)| *it == name);
        assert!(GIVEN.iter().all(|name| is_group(name)));
        for (name, why) in WHY {
            assert!(is_group(name) && !GIVEN.contains(&name) && !why.is_empty(), "{name}");
        }
    }

    #[test]
    fn what_will_not_come_is_told_and_why() {
        assert_eq!(absent_groups(&[0x0102_0000, 0, 0, 0, 0, 0, 0, 0]), ["REGISTRY: Linux has no registry"]);
        assert_eq!(absent_groups(&[0x1000_0001, 0x6, 0, 0, 0, 0, 0, 0]), [""; 0], "nor by their other names");
        let told = absent_groups(&[0, 0x40, 0, 8, 0, 0, 0, 0]);
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!(told.first().map(String::as_str), Some("POOL: Linux has no such events"));
    }
}
