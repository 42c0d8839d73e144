//! Parses kernel events: the groups, and the events that are followed by a call stack.
//!
//! ```text
//!   KERNEL  =  WHAT { ("," | "+") WHAT }
//!   WHAT    =  cpu | sched | disk | net | file | all    presets: groups that belong together, with
//!                                                       useful stacks
//!           |  CSWITCH | DISK_IO | …                    a group by name; case, "-", "_" and the
//!                                                       prefix EVENT_TRACE_FLAG_ are ignored
//!           |  PROC_THREAD | LOADER | …                 names from xperf
//!           |  0x… | decimal                            EnableFlags
//!           |  none                                     no kernel events: only alone, for updates
//!   STACKS  =  none | default | all | EVENT { ("," | "+") EVENT }
//!   EVENT   =  Class/Type | Type | Class | 0xHOOK       Thread/CSwitch, CSwitch, DiskIo, 0x0524
//! ```
//!
//! A preset includes processes, threads and images, which resolve samples and switches.

mod absent;
mod nearest;

use traceweir::controller::info::{ClassicEventId, GroupMask};
use traceweir_format::kernel::hook::hook_of;
use traceweir_format::kernel::{event_name, events_named};
use traceweir_format::spec::system::{
    GROUP_TWINS, KERNEL_GROUPS, NO_SYSCONFIG, OWN_GROUPS, add_group, has_group,
};

use crate::text::parse_mask;
pub(crate) use absent::absent_groups;

/// Maximum number of events in one list (`TraceStackTracingInfo`).
const MAX_STACKS: usize = 256;

/// PROCESS, THREAD, IMAGE_LOAD: the processes, and where their code is.
const PROCESSES: u32 = 0x7;
const PROFILE: u32 = 0x0100_0000;
/// CSWITCH, DISPATCHER.
const SWITCHES: u32 = 0x0810;
/// DISK_IO, DISK_FILE_IO, DISK_IO_INIT.
const DISK: u32 = 0x0700;
const NETWORK: u32 = 0x0001_0000;
/// FILE_IO, FILE_IO_INIT, DISK_FILE_IO.
const FILE: u32 = 0x0600_0200;
/// PROCESS_COUNTERS, DPC, INTERRUPT, SYSTEMCALL, the page faults, VIRTUAL_ALLOC, SPLIT_IO.
const OTHERS: u32 = 0x0020_70E8;
/// PRIORITY.
const FURTHER: [u32; 1] = [0x2000_2000];
/// Names of groups in xperf that differ from the documented names.
const XPERF: [(&str, u32); 7] = [
    ("PROC_THREAD", 0x3),
    ("LOADER", 0x4),
    ("SYSCALL", 0x80),
    ("FILENAME", 0x200),
    ("ALL_FAULTS", 0x1000),
    ("HARD_FAULTS", 0x2000),
    ("NETWORKTRACE", NETWORK),
];
const PREFIX: &str = "EVENT_TRACE_FLAG_";
const SEPARATORS: [char; 2] = [',', '+'];

/// A preset of groups that belong together.
struct Profile {
    name: &'static str,
    flags: u32,
    further: &'static [u32],
    stacks: &'static [&'static str],
}

const SAMPLES: &str = "PerfInfo/SampleProf";
const PROFILES: [Profile; 6] = [
    Profile { name: "cpu", flags: PROCESSES | PROFILE, further: &[], stacks: &[SAMPLES] },
    Profile {
        name: "sched",
        flags: PROCESSES | PROFILE | SWITCHES,
        further: &[],
        stacks: &[SAMPLES, "Thread/CSwitch", "Thread/ReadyThread"],
    },
    Profile { name: "disk", flags: PROCESSES | DISK, further: &[], stacks: DISK_STACKS },
    Profile { name: "net", flags: PROCESSES | NETWORK, further: &[], stacks: NET_STACKS },
    Profile { name: "file", flags: PROCESSES | FILE, further: &[], stacks: FILE_STACKS },
    Profile {
        name: "all",
        flags: PROCESSES | PROFILE | SWITCHES | DISK | NETWORK | FILE | OTHERS,
        further: &FURTHER,
        stacks: &[SAMPLES, "Thread/CSwitch", "Thread/ReadyThread"],
    },
];
/// The useful stacks of each group.
const BY_GROUP: [(u32, &[&str]); 6] = [
    (PROFILE, &[SAMPLES]),
    (0x0010, &["Thread/CSwitch"]),
    (0x0800, &["Thread/ReadyThread"]),
    (0x0400, DISK_STACKS),
    (NETWORK, NET_STACKS),
    (0x0400_0000, FILE_STACKS),
];
const DISK_STACKS: &[&str] = &["DiskIo/ReadInit", "DiskIo/WriteInit", "DiskIo/FlushInit"];
const NET_STACKS: &[&str] =
    &["TcpIp/Send", "TcpIp/SendIPV6", "TcpIp/Connect", "TcpIp/ConnectIPV6", "UdpIp/Send", "UdpIp/SendIPV6"];
const FILE_STACKS: &[&str] = &["FileIo/Create", "FileIo/Read", "FileIo/Write", "FileIo/Delete"];

/// Classes of events that exist on Linux: the meaning of "all" for stacks.
const CLASSES: [&str; 9] =
    ["Process", "Thread", "PerfInfo", "DiskIo", "FileIo", "PageFault", "TcpIp", "UdpIp", "SplitIo"];

/// A selection of kernel events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) groups: GroupMask,
    /// Events whose stacks are recorded by default.
    stacks: Vec<ClassicEventId>,
}

/// The events that are followed by a call stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stacks {
    None,
    Default,
    All,
    These(Vec<ClassicEventId>),
}

impl Kernel {
    /// Returns the EnableFlags.
    pub(crate) fn flags(&self) -> u32 {
        let [first, ..] = self.groups;
        first
    }

    /// Returns whether there are groups that EnableFlags cannot express.
    pub(crate) fn has_further(&self) -> bool {
        self.groups.iter().skip(1).any(|word| *word != 0)
    }

    /// Returns the groups that a user may record of their own processes, with the same stacks, and
    /// the names of the other groups that Linux has. Returns `None` if there are no other groups,
    /// or nothing but processes would be left.
    pub(crate) fn allowed_for_own_processes(&self) -> Option<(Self, Vec<String>)> {
        let own = [self.flags() & (OWN_GROUPS | NO_SYSCONFIG), 0, 0, 0, 0, 0, 0, 0];
        let mut rest = self.groups;
        rest.iter_mut().zip(own).for_each(|(word, own)| *word &= !own);
        let is_part = self.flags() & OWN_GROUPS & !PROCESSES != 0 && rest.iter().any(|word| *word != 0);
        let absent = absent::without_available(&rest);
        rest.iter_mut().zip(absent).for_each(|(word, absent)| *word &= !absent);
        is_part.then(|| (Self { groups: own, stacks: self.stacks.clone() }, group_names(&rest)))
    }

    /// Returns the events to be followed by a call stack.
    pub(crate) fn stacks(&self, wanted: Option<&Stacks>) -> Vec<ClassicEventId> {
        match wanted {
            Some(Stacks::None) => Vec::new(),
            Some(Stacks::Default) if self.stacks.is_empty() => default_stacks(&self.groups),
            None | Some(Stacks::Default) => self.stacks.clone(),
            Some(Stacks::All) => CLASSES.iter().fold(Vec::new(), |all, class| with(all, &named(class))),
            Some(Stacks::These(events)) => events.clone(),
        }
    }
}

/// Returns the events with useful stacks in the groups of a session, by the presets that contain
/// such a group.
pub(crate) fn default_stacks(groups: &GroupMask) -> Vec<ClassicEventId> {
    let group_events = |(group, names): &(u32, &[&str])| {
        let names = if has_group(groups, *group) { *names } else { &[] };
        names.iter().flat_map(|name| named(name)).collect::<Vec<_>>()
    };
    BY_GROUP.iter().map(group_events).fold(Vec::new(), |all, events| with(all, &events))
}

/// Parses the kernel events of an option.
pub(crate) fn parse_kernel(text: &str) -> Result<Kernel, String> {
    let mut kernel = Kernel::default();
    if text.eq_ignore_ascii_case("none") {
        return Ok(kernel);
    }
    for word in text.split(SEPARATORS).map(str::trim) {
        if let Some(profile) = PROFILES.iter().find(|profile| profile.name.eq_ignore_ascii_case(word)) {
            add_flags(&mut kernel.groups, profile.flags);
            profile.further.iter().for_each(|group| add_group(&mut kernel.groups, *group));
            kernel.stacks = profile.stacks.iter().fold(kernel.stacks, |all, name| with(all, &named(name)));
        } else if let Some((group, _)) = KERNEL_GROUPS.iter().find(|(_, name)| is_same_name(name, word)) {
            add_group(&mut kernel.groups, *group);
        } else if let Some((_, flags)) = XPERF.iter().find(|(name, _)| is_same_name(name, word)) {
            add_flags(&mut kernel.groups, *flags);
        } else if let Some(flags) = parse_mask(word).ok().and_then(|bits| u32::try_from(bits).ok()) {
            add_flags(&mut kernel.groups, flags);
        } else {
            return Err(unknown_group(word));
        }
    }
    Ok(kernel)
}

/// Returns the message for an unknown group, with suggestions.
fn unknown_group(word: &str) -> String {
    let names = PROFILES.iter().map(|profile| profile.name.to_owned());
    let names = names.chain(absent::available().map(str::to_ascii_lowercase));
    let near = nearest::nearest(&plain_name(word), names, plain_name);
    let near = if near.is_empty() { String::new() } else { format!(" Did you mean {}?", near.join(" or ")) };
    format!(
        "{word:?} is not a group of kernel events.{near} Use cpu, sched, disk, net, file or all, groups by name (cswitch, disk_io …: weir record --help), or EnableFlags (0x10)"
    )
}

fn add_flags(groups: &mut GroupMask, flags: u32) {
    let [first, ..] = groups;
    *first |= flags;
}

/// Compares names without separators and prefix: `disk-io` is DISK_IO, and so is
/// EVENT_TRACE_FLAG_DISK_IO.
fn is_same_name(name: &str, typed: &str) -> bool {
    plain_name(name) == plain_name(typed)
}

fn plain_name(text: &str) -> String {
    let has_prefix = text.get(..PREFIX.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(PREFIX));
    let name = text.get(PREFIX.len()..).filter(|_| has_prefix).unwrap_or(text);
    name.to_ascii_lowercase().replace(['-', '_'], "")
}

/// Parses the stacks of an option.
pub(crate) fn parse_stacks(text: &str) -> Result<Stacks, String> {
    match text.to_ascii_lowercase().as_str() {
        "none" => return Ok(Stacks::None),
        "default" => return Ok(Stacks::Default),
        "all" => return Ok(Stacks::All),
        _ => {}
    }
    let mut events = Vec::new();
    for word in text.split(SEPARATORS).map(str::trim) {
        let matching = named(word);
        if matching.is_empty() {
            return Err(format!(
                "{word:?} is not a kernel event: use none, default, all, or events such as Process/Start, CSwitch, ReadyThread, SampledProfile, DiskIo/Read, \
                 a whole class (FileIo), a hook (0x0524)"
            ));
        }
        events = with(events, &matching);
    }
    if events.len() > MAX_STACKS {
        return Err(format!(
            "{} events are more than the {MAX_STACKS} that a session may have",
            events.len()
        ));
    }
    Ok(Stacks::These(events))
}

/// Returns the events of a name that have a hook id.
fn named(name: &str) -> Vec<ClassicEventId> {
    let events = events_named(name).into_iter().filter(|(class, opcode)| hook_of(class, *opcode).is_some());
    events.map(|(class, opcode)| ClassicEventId { class, opcode }).collect()
}

fn with(mut all: Vec<ClassicEventId>, more: &[ClassicEventId]) -> Vec<ClassicEventId> {
    for event in more {
        if !all.contains(event) {
            all.push(*event);
        }
    }
    all
}

/// Returns the names of groups; bits without a name are given by word and bits.
pub(crate) fn group_names(mask: &GroupMask) -> Vec<String> {
    let mut rest = *mask;
    let named = KERNEL_GROUPS.iter().filter(|(group, _)| has_group(mask, *group));
    let mut names = Vec::new();
    for (group, name) in named {
        let mut bits = GroupMask::default();
        add_group(&mut bits, *group);
        rest.iter_mut().zip(bits).for_each(|(word, bits)| *word &= !bits);
        names.push((*name).to_owned());
    }
    // Removes the alternative bits of groups that are already named.
    for (_, word, twin) in GROUP_TWINS {
        if let Some(word) = rest.get_mut(word) {
            *word &= !twin;
        }
    }
    let unnamed = rest.iter().enumerate().filter(|(_, bits)| **bits != 0);
    names.extend(unnamed.map(|(word, bits)| format!("word {word}: {bits:#x}")));
    names
}

/// Returns the names of events.
pub(crate) fn event_names(events: &[ClassicEventId]) -> Vec<String> {
    events.iter().map(|event| event_name(&event.class, event.opcode)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(text: &str) -> GroupMask {
        parse_kernel(text).unwrap_or_else(|e| panic!("{text}: {e}")).groups
    }

    #[test]
    fn groups_parse_from_names_presets_and_bits() {
        assert_eq!(groups("cpu"), [0x0100_0007, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(groups("sched"), [0x0100_0817, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(groups("CSWITCH,disk-io"), [0x110, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(groups("memory_page_faults, 0x2000"), [0x3000, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(groups("cpu,priority"), [0x0100_0007, 0x2000, 0, 0, 0, 0, 0, 0]);
        assert_eq!(groups("16"), [0x10, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(groups("none"), [0; 8]);
        assert_eq!(groups("EVENT_TRACE_FLAG_CSWITCH,event_trace_flag_profile"), groups("profile+cswitch"));
        assert_eq!(groups("PROC_THREAD+LOADER"), [7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(groups("all").map(|word| u64::from(word.count_ones())).iter().sum::<u64>(), 21);
        assert_eq!(absent_groups(&groups("all")), [""; 0], "of all there is something");
        assert!(parse_kernel("all").unwrap().has_further());
        for wrong in ["", "cpu,", "swtich", "0x100000000", "none,cpu"] {
            assert!(parse_kernel(wrong).unwrap_err().contains("cswitch"), "{wrong}");
        }
    }

    #[test]
    fn unknown_group_suggests_similar_names() {
        let error_of = |word: &str| parse_kernel(word).unwrap_err();
        assert!(error_of("swtich").contains("Did you mean cswitch?"), "{}", error_of("swtich"));
        assert!(error_of("dsk").contains("disk"), "{}", error_of("dsk"));
        assert!(error_of("EVENT_TRACE_FLAG_DISPATCH").contains("dispatcher?"), "a beginning");
        assert!(!error_of("zzzzzz").contains("Did you mean"), "{}", error_of("zzzzzz"));
        assert!(!error_of("registri").contains("registry?"), "not what has no events");
    }

    #[test]
    fn presets_have_default_stacks_of_existing_events() {
        for profile in &PROFILES {
            for name in profile.stacks {
                assert_eq!(named(name).len(), 1, "{name}");
            }
            assert!(!parse_kernel(profile.name).unwrap().stacks(None).is_empty());
        }
        let sched = parse_kernel("sched").unwrap();
        let names = ["PerfInfo/SampleProf", "Thread/CSwitch", "Thread/ReadyThread"];
        assert_eq!(event_names(&sched.stacks(None)), names);
        assert_eq!(sched.stacks(Some(&Stacks::None)), []);
        let all = sched.stacks(Some(&Stacks::All));
        assert!(all.len() > 30 && all.len() <= MAX_STACKS, "{}", all.len());
        assert_eq!(parse_kernel("cswitch").unwrap().stacks(None), [], "a group alone has none");
    }

    #[test]
    fn groups_have_default_stacks_and_an_unprivileged_part() {
        for name in ["cpu", "sched", "disk", "net", "file"] {
            let kernel = parse_kernel(name).unwrap();
            assert_eq!(default_stacks(&kernel.groups), kernel.stacks(None), "{name}");
        }
        let plain = parse_kernel("cswitch").unwrap();
        assert_eq!(event_names(&plain.stacks(Some(&Stacks::Default))), ["Thread/CSwitch"], "asked for");
        let (own, rest) = parse_kernel("sched,priority").unwrap().allowed_for_own_processes().unwrap();
        assert_eq!((own.groups[0], rest.join(" ")), (0x0100_0017, "DISPATCHER PRIORITY".to_owned()));
        assert_eq!(own.stacks(None).len(), 3);
        let whole = ["cpu", "dispatcher", "none", "registry", "disk"]
            .map(|name| parse_kernel(name).unwrap().allowed_for_own_processes());
        assert_eq!(whole, [const { None }; 5]);
    }

    #[test]
    fn stacks_parse_from_event_class_and_hook_id() {
        let these = |text: &str| match parse_stacks(text) {
            Ok(Stacks::These(events)) => event_names(&events),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(these("CSwitch, 0x0524,sampledprofile"), ["Thread/CSwitch", "PerfInfo/SampleProf"]);
        assert!(these("DiskIo").len() > 4);
        assert_eq!(parse_stacks("Default"), Ok(Stacks::Default));
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
