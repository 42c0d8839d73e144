//! The keywords and stacks of system providers in recording profiles, as groups and events of
//! `--kernel` and `--stacks`.
//!
//! Source: Documented ("Keyword (in SystemProvider)", "Stack" in the reference of recording
//! profiles).

use crate::grammar::{KernelSelection, describe_absent_groups, parse_kernel};

/// Keywords whose names differ from those of the groups, in lower case.
const KEYWORDS: [(&str, &str); 29] = [
    ("allfaults", "memory_page_faults"),
    ("contiguousmemorygeneration", "contmem_gen"),
    ("diskioinitialization", "disk_io_init"),
    ("drivers", "driver"),
    ("filename", "disk_file_io"),
    ("handle", "object_handle"),
    ("hardfaults", "memory_hard_faults"),
    ("hibernaterundown", "hiber_rundown"),
    ("idlestates", "processor_idle"),
    ("interruptsteering", "interrupt_steer"),
    ("keclock", "clock_interrupt"),
    ("loader", "image_load"),
    ("memoryinfo", "meminfo"),
    ("memoryinfows", "meminfo_ws"),
    ("networktrace", "network_tcpip"),
    ("object", "objects"),
    ("opticalioinitialization", "optical_io_init"),
    ("pmcprofile", "pmc_profile"),
    ("processcounter", "process_counters"),
    ("processthread", "process,thread"),
    ("readythread", "dispatcher"),
    ("referenceset", "refset"),
    ("sampledprofile", "profile"),
    ("synchronizationobjects", "sync_objects"),
    ("threadpriority", "priority"),
    ("virtualallocation", "virtual_alloc"),
    ("wakecounters", "wake_counter"),
    ("workingset", "ws"),
    ("workingsetdetail", "ws_detail"),
];

/// Stacks, in lower case, with the events that Linux has.
const STACKS: [(&str, &str); 38] = [
    ("cswitch", "Thread/CSwitch"),
    ("diskflushinit", "DiskIo/FlushInit"),
    ("diskreadinit", "DiskIo/ReadInit"),
    ("diskwriteinit", "DiskIo/WriteInit"),
    ("filecleanup", "FileIo/Cleanup"),
    ("fileclose", "FileIo/Close"),
    ("filecreate", "FileIo/Create"),
    ("filedelete", "FileIo/Delete"),
    ("filedirenum", "FileIo/DirEnum"),
    ("fileflush", "FileIo/Flush"),
    ("filefsctl", "FileIo/FSControl"),
    ("fileopend", "FileIo/OperationEnd"),
    ("filequeryinformation", "FileIo/QueryInfo"),
    ("fileread", "FileIo/Read"),
    ("filerename", "FileIo/Rename"),
    ("filesetinformation", "FileIo/SetInfo"),
    ("filewrite", "FileIo/Write"),
    ("hardfault", "PageFault/HardFault"),
    ("pagefaultcopyonwrite", "PageFault/CopyOnWrite"),
    ("pagefaultdemandzero", "PageFault/DemandZeroFault"),
    ("pagefaulthard", "PageFault/HardPageFault"),
    ("pagefaulttransition", "PageFault/TransitionFault"),
    ("processcreate", "Process/Start"),
    ("processdelete", "Process/End"),
    ("profile", "PerfInfo/SampleProf"),
    ("readythread", "Thread/ReadyThread"),
    ("sampledprofile", "PerfInfo/SampleProf"),
    ("splitio", "SplitIo/VolMgr"),
    ("syscallenter", "PerfInfo/SysClEnter"),
    ("syscallexit", "PerfInfo/SysClExit"),
    ("threadcreate", "Thread/Start"),
    ("threaddelete", "Thread/End"),
    ("threadsetpriority", "Thread/SetPriority"),
    ("threadsetbasepriority", "Thread/SetBasePriority"),
    ("pagefaultguard", "PageFault/GuardPageFault"),
    ("pagefaultaccessviolation", "PageFault/AccessViolation"),
    ("virtualallocation", "PageFault/VirtualAlloc"),
    ("virtualfree", "PageFault/VirtualFree"),
];

/// The groups of a keyword.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeywordGroups {
    /// Groups that Linux has, in the syntax of `--kernel`; empty if none.
    pub(super) kernel: String,
    /// Why the other groups, or the whole keyword, are left out.
    pub(super) reasons: Vec<String>,
}

/// Returns the groups that a keyword selects: a name or bits of EnableFlags.
pub(super) fn find_groups(keyword: &str) -> KeywordGroups {
    let lower = keyword.to_ascii_lowercase();
    let words = KEYWORDS.iter().find(|(name, _)| *name == lower).map_or(lower.as_str(), |(_, words)| words);
    // Presets and lists are no keywords.
    let is_word =
        !matches!(lower.as_str(), "cpu" | "sched" | "disk" | "net" | "file" | "syscall" | "all" | "none")
            && !lower.contains([',', '+']);
    let Some(selection) = parse_kernel(words).ok().filter(|_| is_word) else {
        let reasons = vec!["Linux has no such events".to_owned()];
        return KeywordGroups { kernel: String::new(), reasons };
    };
    let available = selection.names_without(&KernelSelection::default());
    let to_reason =
        |line: String| line.split_once(": ").map_or(line.clone(), |(_, reason)| reason.to_owned());
    let reasons = describe_absent_groups(&selection.groups).into_iter().map(to_reason).collect();
    KeywordGroups { kernel: available.join(",").to_ascii_lowercase(), reasons }
}

/// Returns the event of a stack, in the syntax of `--stacks`; `None` if Linux does not have it.
pub(super) fn find_stack_event(stack: &str) -> Option<&'static str> {
    let lower = stack.to_ascii_lowercase();
    STACKS.iter().find(|(name, _)| *name == lower).map(|(_, event)| *event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::{StackSelection, parse_stacks};

    #[test]
    fn tables_name_existing_groups_and_events() {
        for (name, words) in KEYWORDS {
            assert!(parse_kernel(words).is_ok(), "{name}: {words}");
        }
        for (name, event) in STACKS {
            let events = parse_stacks(event);
            assert!(
                matches!(&events, Ok(StackSelection::These(list)) if list.len() == 1),
                "{name}: {events:?}"
            );
        }
    }

    #[test]
    fn keywords_select_groups_or_say_why_not() {
        let groups = |keyword: &str| {
            let KeywordGroups { kernel, reasons } = find_groups(keyword);
            (kernel, reasons.join("; "))
        };
        let selects = |kernel: &str| (kernel.to_owned(), String::new());
        assert_eq!(groups("ProcessThread"), selects("process,thread"));
        assert_eq!(groups("CSwitch"), selects("cswitch"));
        assert_eq!(groups("DiskIOInit"), selects("disk_io_init"));
        assert_eq!(groups("0x11"), selects("process,cswitch"));
        assert_eq!(groups("Registry"), (String::new(), "Linux has no registry".to_owned()));
        assert_eq!(groups("0x20010"), ("cswitch".to_owned(), "Linux has no registry".to_owned()));
        for absent in ["Pool", "Nonsense", "all", "cswitch,dpc", "", "0x100000000"] {
            assert_eq!(groups(absent), (String::new(), "Linux has no such events".to_owned()), "{absent}");
        }
    }
}
