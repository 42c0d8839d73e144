//! Parses kernel events: the groups (`--kernel WHAT`), and the events that are followed by a call
//! stack (`--stacks EVENTS`).
//!
//! ```text
//!   WHAT    =  PART { ("," | "+") PART }
//!   PART    =  cpu | sched | disk | net | file | all    presets: groups that belong together, with
//!                                                       useful stacks
//!           |  CSWITCH | DISK_IO | …                    a group by name; case, "-", "_" and the
//!                                                       prefix EVENT_TRACE_FLAG_ are ignored
//!           |  PROC_THREAD | LOADER | …                 names from xperf
//!           |  0x… | decimal                            EnableFlags
//!           |  none                                     no kernel events: only alone, for updates
//!   EVENTS  =  none | default | all | EVENT { ("," | "+") EVENT }
//!   EVENT   =  Class/Type | Type | Class | 0xHOOK       Thread/CSwitch, CSwitch, DiskIo, 0x0524
//! ```
//!
//! A preset includes processes, threads and images: they give samples and switches their names.

mod absent;

use traceweir::controller::info::{ClassicEventId, GroupMask};
use traceweir_format::kernel::hook::hook_of;
use traceweir_format::kernel::{event_name, find_events};
use traceweir_format::spec::system::{
    GROUP_TWINS, KERNEL_GROUPS, NO_SYSCONFIG, OWN_GROUPS, add_group, has_group,
};

use crate::text::{find_similar_names, format_question, parse_mask};
pub(crate) use absent::describe_absent_groups;

/// Maximum number of events in `TraceStackTracingInfo`.
const MAX_STACK_EVENTS: usize = 256;

/// The groups PROCESS, THREAD and IMAGE_LOAD.
const PROCESS_GROUPS: u32 = 0x7;
const IMAGE_LOAD: u32 = 0x4;
const PROFILE: u32 = 0x0100_0000;
const CSWITCH: u32 = 0x0010;
const DISPATCHER: u32 = 0x0800;
const SWITCH_GROUPS: u32 = CSWITCH | DISPATCHER;
const DISK_IO: u32 = 0x0100;
const DISK_FILE_IO: u32 = 0x0200;
const DISK_IO_INIT: u32 = 0x0400;
const DISK_GROUPS: u32 = DISK_IO | DISK_FILE_IO | DISK_IO_INIT;
const NETWORK: u32 = 0x0001_0000;
const FILE_IO: u32 = 0x0200_0000;
const FILE_IO_INIT: u32 = 0x0400_0000;
const FILE_GROUPS: u32 = FILE_IO | FILE_IO_INIT | DISK_FILE_IO;
const SYSTEMCALL: u32 = 0x80;
/// Groups of the preset `all` only: PROCESS_COUNTERS, DPC, INTERRUPT, the page faults,
/// VIRTUAL_ALLOC, SPLIT_IO.
const OTHER_GROUPS: u32 = 0x0020_7068;
/// Groups that are not bits of EnableFlags: PRIORITY. The upper three bits of a group are the index
/// of its word in the mask, the others its bit in that word.
const EXTRA_GROUPS: [u32; 1] = [0x2000_2000];
/// Names of groups in xperf that differ from the documented names.
const XPERF_NAMES: [(&str, u32); 6] = [
    ("PROC_THREAD", 0x3),
    ("LOADER", 0x4),
    ("FILENAME", 0x200),
    ("ALL_FAULTS", 0x1000),
    ("HARD_FAULTS", 0x2000),
    ("NETWORKTRACE", NETWORK),
];
const FLAG_PREFIX: &str = "EVENT_TRACE_FLAG_";
const SEPARATORS: [char; 2] = [',', '+'];

/// A preset of groups that belong together.
struct KernelPreset {
    name: &'static str,
    flags: u32,
    extra_groups: &'static [u32],
    stacks: &'static [&'static str],
}

const SYSCALL_PRESET: &str = "syscall";
const SAMPLE_EVENT: &str = "PerfInfo/SampleProf";
const PRESETS: [KernelPreset; 7] = [
    KernelPreset { name: "cpu", flags: PROCESS_GROUPS | PROFILE, extra_groups: &[], stacks: &[SAMPLE_EVENT] },
    KernelPreset {
        name: "sched",
        flags: PROCESS_GROUPS | PROFILE | SWITCH_GROUPS,
        extra_groups: &[],
        stacks: &[SAMPLE_EVENT, "Thread/CSwitch", "Thread/ReadyThread"],
    },
    KernelPreset {
        name: "disk",
        flags: PROCESS_GROUPS | DISK_GROUPS,
        extra_groups: &[],
        stacks: DISK_STACKS,
    },
    KernelPreset { name: "net", flags: PROCESS_GROUPS | NETWORK, extra_groups: &[], stacks: NET_STACKS },
    KernelPreset {
        name: "file",
        flags: PROCESS_GROUPS | FILE_GROUPS,
        extra_groups: &[],
        stacks: FILE_STACKS,
    },
    // Only context switches show which thread makes the calls.
    KernelPreset {
        name: SYSCALL_PRESET,
        flags: PROCESS_GROUPS | CSWITCH | SYSTEMCALL,
        extra_groups: &[],
        stacks: &[],
    },
    KernelPreset {
        name: "all",
        flags: PROCESS_GROUPS
            | PROFILE
            | SWITCH_GROUPS
            | DISK_GROUPS
            | NETWORK
            | FILE_GROUPS
            | SYSTEMCALL
            | OTHER_GROUPS,
        extra_groups: &EXTRA_GROUPS,
        stacks: &[SAMPLE_EVENT, "Thread/CSwitch", "Thread/ReadyThread"],
    },
];
/// The events of each group whose stacks are useful.
const STACKS_BY_GROUP: [(u32, &[&str]); 6] = [
    (PROFILE, &[SAMPLE_EVENT]),
    (CSWITCH, &["Thread/CSwitch"]),
    (DISPATCHER, &["Thread/ReadyThread"]),
    (DISK_IO_INIT, DISK_STACKS),
    (NETWORK, NET_STACKS),
    (FILE_IO_INIT, FILE_STACKS),
];
const DISK_STACKS: &[&str] = &["DiskIo/ReadInit", "DiskIo/WriteInit", "DiskIo/FlushInit"];
const NET_STACKS: &[&str] =
    &["TcpIp/Send", "TcpIp/SendIPV6", "TcpIp/Connect", "TcpIp/ConnectIPV6", "UdpIp/Send", "UdpIp/SendIPV6"];
const FILE_STACKS: &[&str] = &["FileIo/Create", "FileIo/Read", "FileIo/Write", "FileIo/Delete"];

/// Event classes that exist on Linux; `--stacks all` selects them.
const EVENT_CLASSES: [&str; 9] =
    ["Process", "Thread", "PerfInfo", "DiskIo", "FileIo", "PageFault", "TcpIp", "UdpIp", "SplitIo"];

/// A selection of kernel events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelSelection {
    pub(crate) groups: GroupMask,
    /// The EnableFlags without those that only show whose events the others are.
    wanted_flags: u32,
    /// Events whose stacks are recorded by default.
    stacks: Vec<ClassicEventId>,
}

/// The events that are followed by a call stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StackSelection {
    None,
    Default,
    All,
    These(Vec<ClassicEventId>),
}

impl KernelSelection {
    pub(crate) fn flags(&self) -> u32 {
        let [first, ..] = self.groups;
        first
    }

    /// Returns whether context switches are wanted for themselves.
    pub(crate) fn has_switches(&self) -> bool {
        self.wanted_flags & CSWITCH != 0
    }

    pub(crate) fn has_images(&self) -> bool {
        self.flags() & IMAGE_LOAD != 0
    }

    pub(crate) fn has_wakeups(&self) -> bool {
        self.wanted_flags & DISPATCHER != 0
    }

    /// Returns whether there are groups beyond the EnableFlags.
    pub(crate) fn has_extra_groups(&self) -> bool {
        self.groups.iter().skip(1).any(|word| *word != 0)
    }

    /// Returns the groups that an unprivileged user may record for their own processes, with the
    /// same stacks, and the names of the other groups that Linux has. Returns `None` if there are
    /// no other groups, or if only groups would be left that show whose events others are.
    pub(crate) fn allowed_for_own_processes(&self) -> Option<(Self, Vec<String>)> {
        let allowed = [self.flags() & (OWN_GROUPS | NO_SYSCONFIG), 0, 0, 0, 0, 0, 0, 0];
        let mut other_groups = self.groups;
        other_groups.iter_mut().zip(allowed).for_each(|(word, own)| *word &= !own);
        let has_both = self.wanted_flags & OWN_GROUPS & !PROCESS_GROUPS != 0
            && other_groups.iter().any(|word| *word != 0);
        let absent = absent::remove_available_groups(&other_groups);
        other_groups.iter_mut().zip(absent).for_each(|(word, absent)| *word &= !absent);
        let (wanted_flags, stacks) = (self.wanted_flags, self.stacks.clone());
        has_both.then(|| (Self { groups: allowed, wanted_flags, stacks }, group_names(&other_groups)))
    }

    /// Returns the groups and stacks of both selections.
    pub(crate) fn merge(mut self, other: &Self) -> Self {
        self.groups.iter_mut().zip(other.groups).for_each(|(word, bits)| *word |= bits);
        let wanted_flags = self.wanted_flags | other.wanted_flags;
        Self { groups: self.groups, wanted_flags, stacks: merge_events(self.stacks, &other.stacks) }
    }

    /// Returns the names of the groups that another selection leaves out, as far as Linux has them.
    pub(crate) fn names_without(&self, other: &Self) -> Vec<String> {
        let mut missing = self.groups;
        missing.iter_mut().zip(other.groups).for_each(|(word, bits)| *word &= !bits);
        let absent = absent::remove_available_groups(&missing);
        missing.iter_mut().zip(absent).for_each(|(word, absent)| *word &= !absent);
        group_names(&missing)
    }

    /// Returns the events to be followed by a call stack.
    pub(crate) fn events_with_stacks(&self, selection: Option<&StackSelection>) -> Vec<ClassicEventId> {
        match selection {
            Some(StackSelection::None) => Vec::new(),
            Some(StackSelection::Default) if self.stacks.is_empty() => default_stacks(&self.groups),
            None | Some(StackSelection::Default) => self.stacks.clone(),
            Some(StackSelection::All) => {
                EVENT_CLASSES.iter().fold(Vec::new(), |all, class| merge_events(all, &events_by_name(class)))
            }
            Some(StackSelection::These(events)) => events.clone(),
        }
    }
}

/// Returns the events with useful stacks in the groups of a session.
pub(crate) fn default_stacks(groups: &GroupMask) -> Vec<ClassicEventId> {
    let group_events = |(group, names): &(u32, &[&str])| {
        let names = if has_group(groups, *group) { *names } else { &[] };
        names.iter().flat_map(|name| events_by_name(name)).collect::<Vec<_>>()
    };
    STACKS_BY_GROUP.iter().map(group_events).fold(Vec::new(), |all, events| merge_events(all, &events))
}

pub(crate) fn parse_kernel(text: &str) -> Result<KernelSelection, String> {
    let mut kernel = KernelSelection::default();
    if text.eq_ignore_ascii_case("none") {
        return Ok(kernel);
    }
    for word in text.split(SEPARATORS).map(str::trim) {
        let earlier_flags = std::mem::take(&mut kernel.groups[0]);
        if let Some(preset) = PRESETS.iter().find(|preset| preset.name.eq_ignore_ascii_case(word)) {
            add_flags(&mut kernel.groups, preset.flags);
            preset.extra_groups.iter().for_each(|group| add_group(&mut kernel.groups, *group));
            kernel.stacks = preset
                .stacks
                .iter()
                .fold(kernel.stacks, |all, name| merge_events(all, &events_by_name(name)));
        } else if let Some((group, _)) = KERNEL_GROUPS.iter().find(|(_, name)| is_same_name(name, word)) {
            add_group(&mut kernel.groups, *group);
        } else if let Some((_, flags)) = XPERF_NAMES.iter().find(|(name, _)| is_same_name(name, word)) {
            add_flags(&mut kernel.groups, *flags);
        } else if let Some(flags) = parse_mask(word).ok().and_then(|bits| u32::try_from(bits).ok()) {
            add_flags(&mut kernel.groups, flags);
        } else {
            return Err(unknown_group_message(word));
        }
        let is_of_syscalls = word.eq_ignore_ascii_case(SYSCALL_PRESET);
        kernel.wanted_flags |= kernel.groups[0] & if is_of_syscalls { !CSWITCH } else { u32::MAX };
        kernel.groups[0] |= earlier_flags;
    }
    Ok(kernel)
}

/// Returns the message for an unknown group, with suggestions.
fn unknown_group_message(word: &str) -> String {
    let names = PRESETS.iter().map(|preset| preset.name.to_owned());
    let names = names.chain(absent::available_groups().map(str::to_ascii_lowercase));
    let similar = find_similar_names(word, names, normalize_name);
    let suggestion = format_question(&similar).map_or_else(String::new, |question| format!(" {question}"));
    format!(
        "{word:?} is not a group of kernel events.{suggestion} Use cpu, sched, disk, net, file, syscall or all, groups by name (cswitch, disk_io …: weir record --help), or EnableFlags (0x10)"
    )
}

fn add_flags(groups: &mut GroupMask, flags: u32) {
    let [first, ..] = groups;
    *first |= flags;
}

/// Compares names without separators and prefix: `disk-io` is DISK_IO, and so is
/// EVENT_TRACE_FLAG_DISK_IO.
fn is_same_name(name: &str, typed: &str) -> bool {
    normalize_name(name) == normalize_name(typed)
}

fn normalize_name(text: &str) -> String {
    let has_prefix =
        text.get(..FLAG_PREFIX.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(FLAG_PREFIX));
    let name = text.get(FLAG_PREFIX.len()..).filter(|_| has_prefix).unwrap_or(text);
    name.to_ascii_lowercase().replace(['-', '_'], "")
}

pub(crate) fn parse_stacks(text: &str) -> Result<StackSelection, String> {
    match text.to_ascii_lowercase().as_str() {
        "none" => return Ok(StackSelection::None),
        "default" => return Ok(StackSelection::Default),
        "all" => return Ok(StackSelection::All),
        _ => {}
    }
    let mut events = Vec::new();
    for word in text.split(SEPARATORS).map(str::trim) {
        let matching = events_by_name(word);
        if matching.is_empty() {
            return Err(format!(
                "{word:?} is not a kernel event: use none, default, all, or events such as Process/Start, CSwitch, ReadyThread, SampledProfile, DiskIo/Read, \
                 a whole class (FileIo), a hook (0x0524)"
            ));
        }
        events = merge_events(events, &matching);
    }
    if events.len() > MAX_STACK_EVENTS {
        return Err(format!(
            "{} events are more than the {MAX_STACK_EVENTS} that a session may have",
            events.len()
        ));
    }
    Ok(StackSelection::These(events))
}

/// Returns the events that a text names: an event, a class or a hook id. Events without a hook id
/// are left out.
fn events_by_name(name: &str) -> Vec<ClassicEventId> {
    let events = find_events(name).into_iter().filter(|(class, opcode)| hook_of(class, *opcode).is_some());
    events.map(|(class, opcode)| ClassicEventId { class, opcode }).collect()
}

fn merge_events(mut events: Vec<ClassicEventId>, more: &[ClassicEventId]) -> Vec<ClassicEventId> {
    for event in more {
        if !events.contains(event) {
            events.push(*event);
        }
    }
    events
}

/// Returns the names of groups; bits without a name are given by word and bits.
pub(crate) fn group_names(mask: &GroupMask) -> Vec<String> {
    let mut unnamed_bits = *mask;
    let named_groups = KERNEL_GROUPS.iter().filter(|(group, _)| has_group(mask, *group));
    let mut names = Vec::new();
    for (group, name) in named_groups {
        let mut bits = GroupMask::default();
        add_group(&mut bits, *group);
        unnamed_bits.iter_mut().zip(bits).for_each(|(word, bits)| *word &= !bits);
        names.push((*name).to_owned());
    }
    // Removes the alternative bits of groups that are already named.
    for (_, word, twin) in GROUP_TWINS {
        if let Some(word) = unnamed_bits.get_mut(word) {
            *word &= !twin;
        }
    }
    let unnamed = unnamed_bits.iter().enumerate().filter(|(_, bits)| **bits != 0);
    names.extend(unnamed.map(|(word, bits)| format!("word {word}: {bits:#x}")));
    names
}

pub(crate) fn event_names(events: &[ClassicEventId]) -> Vec<String> {
    events.iter().map(|event| event_name(&event.class, event.opcode)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_groups(text: &str) -> GroupMask {
        parse_kernel(text).unwrap_or_else(|e| panic!("{text}: {e}")).groups
    }

    #[test]
    fn groups_parse_from_names_presets_and_bits() {
        assert_eq!(parse_groups("cpu"), [0x0100_0007, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse_groups("sched"), [0x0100_0817, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse_groups("CSWITCH,disk-io"), [0x110, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse_groups("memory_page_faults, 0x2000"), [0x3000, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse_groups("cpu,priority"), [0x0100_0007, 0x2000, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse_groups("16"), [0x10, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse_groups("none"), [0; 8]);
        assert_eq!(
            parse_groups("EVENT_TRACE_FLAG_CSWITCH,event_trace_flag_profile"),
            parse_groups("profile+cswitch")
        );
        assert_eq!(parse_groups("PROC_THREAD+LOADER"), [7, 0, 0, 0, 0, 0, 0, 0]);
        // The number of groups in the preset.
        assert_eq!(parse_groups("all").map(|word| u64::from(word.count_ones())).iter().sum::<u64>(), 21);
        assert_eq!(
            describe_absent_groups(&parse_groups("all")),
            [""; 0],
            "every group of the preset all must have events"
        );
        assert!(parse_kernel("all").unwrap().has_extra_groups());
        for wrong in ["", "cpu,", "swtich", "0x100000000", "none,cpu"] {
            assert!(parse_kernel(wrong).unwrap_err().contains("cswitch"), "{wrong}");
        }
    }

    #[test]
    fn unknown_group_suggests_similar_names() {
        let error_of = |word: &str| parse_kernel(word).unwrap_err();
        assert!(error_of("swtich").contains("Did you mean cswitch?"), "{}", error_of("swtich"));
        assert!(error_of("dsk").contains("disk"), "{}", error_of("dsk"));
        assert!(
            error_of("EVENT_TRACE_FLAG_DISPATCH").contains("dispatcher?"),
            "the beginning of a name must suggest the name"
        );
        assert!(!error_of("zzzzzz").contains("Did you mean"), "{}", error_of("zzzzzz"));
        assert!(!error_of("registri").contains("registry?"), "groups without events must not be suggested");
    }

    #[test]
    fn presets_have_default_stacks_of_existing_events() {
        for preset in &PRESETS {
            for name in preset.stacks {
                assert_eq!(events_by_name(name).len(), 1, "{name}");
            }
            let has_stacks = !parse_kernel(preset.name).unwrap().events_with_stacks(None).is_empty();
            assert_eq!(has_stacks, preset.name != SYSCALL_PRESET, "{}", preset.name);
        }
        let sched = parse_kernel("sched").unwrap();
        let names = ["PerfInfo/SampleProf", "Thread/CSwitch", "Thread/ReadyThread"];
        assert_eq!(event_names(&sched.events_with_stacks(None)), names);
        assert_eq!(sched.events_with_stacks(Some(&StackSelection::None)), []);
        let event_count = sched.events_with_stacks(Some(&StackSelection::All)).len();
        assert!(event_count > 30 && event_count <= MAX_STACK_EVENTS, "{event_count}");
        assert_eq!(
            parse_kernel("cswitch").unwrap().events_with_stacks(None),
            [],
            "a group by name must have no stacks by default"
        );
    }

    #[test]
    fn groups_have_default_stacks_and_an_unprivileged_part() {
        for name in ["cpu", "sched", "disk", "net", "file"] {
            let kernel = parse_kernel(name).unwrap();
            assert_eq!(default_stacks(&kernel.groups), kernel.events_with_stacks(None), "{name}");
        }
        let cswitch = parse_kernel("cswitch").unwrap();
        assert_eq!(
            event_names(&cswitch.events_with_stacks(Some(&StackSelection::Default))),
            ["Thread/CSwitch"],
            "--stacks default must use the stacks of the group"
        );
        let (own, other_names) = parse_kernel("sched,priority").unwrap().allowed_for_own_processes().unwrap();
        assert_eq!((own.groups[0], other_names.join(" ")), (0x0100_0017, "DISPATCHER PRIORITY".to_owned()));
        assert_eq!(own.events_with_stacks(None).len(), 3);
        let without_own_part = ["cpu", "dispatcher", "none", "registry", "disk", "syscall", "syscall,file"]
            .map(|name| parse_kernel(name).unwrap().allowed_for_own_processes());
        assert_eq!(without_own_part, [const { None }; 7]);
        assert!(parse_kernel("syscall,cswitch").unwrap().allowed_for_own_processes().is_some());
    }

    #[test]
    fn stacks_parse_from_event_class_and_hook_id() {
        let parse_events = |text: &str| match parse_stacks(text) {
            Ok(StackSelection::These(events)) => event_names(&events),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(parse_events("CSwitch, 0x0524,sampledprofile"), ["Thread/CSwitch", "PerfInfo/SampleProf"]);
        assert!(parse_events("DiskIo").len() > 4);
        assert_eq!(parse_stacks("Default"), Ok(StackSelection::Default));
        for wrong in ["", "Start", "CSwitch,", "0xFFFF", "Nothing/Here"] {
            assert!(parse_stacks(wrong).unwrap_err().contains("Process/Start"), "{wrong}");
        }
    }

    #[test]
    fn mask_prints_names_and_unnamed_bits() {
        assert_eq!(group_names(&[0x11, 4, 0, 0, 0, 0, 0, 0]), ["PROCESS", "CSWITCH"]);
        assert_eq!(group_names(&[0, 0x2000, 0, 8, 0, 0, 0, 0]), ["PRIORITY", "word 3: 0x8"]);
        assert_eq!(group_names(&[0; 8]), [""; 0]);
    }
}
