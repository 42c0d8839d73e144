//! Groups of kernel events, as EnableFlags and group masks name them.
//!
//! ```text
//!   31 30 29 │ 28 … 0        word of the mask │ bits in it; word 0 is EnableFlags
//! ```
//!
//! Their numbers stand in the published table ([`KERNEL_GROUPS`]); here are those that something is captured for.

use traceweir_format::info::GroupMask;
use traceweir_format::spec::system::{KERNEL_GROUPS, add_group, has_group};

/// One group: the word of the mask in the highest three bits, its bit below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group(pub u32);

#[allow(missing_docs)] // The names are those of the published flags.
impl Group {
    pub const PROCESS: Self = Self::named("PROCESS");
    pub const THREAD: Self = Self::named("THREAD");
    pub const IMAGE_LOAD: Self = Self::named("IMAGE_LOAD");
    pub const PROCESS_COUNTERS: Self = Self::named("PROCESS_COUNTERS");
    pub const CSWITCH: Self = Self::named("CSWITCH");
    pub const DPC: Self = Self::named("DPC");
    pub const INTERRUPT: Self = Self::named("INTERRUPT");
    pub const SYSTEMCALL: Self = Self::named("SYSTEMCALL");
    pub const DISK_IO: Self = Self::named("DISK_IO");
    pub const DISK_FILE_IO: Self = Self::named("DISK_FILE_IO");
    pub const DISK_IO_INIT: Self = Self::named("DISK_IO_INIT");
    pub const DISPATCHER: Self = Self::named("DISPATCHER");
    pub const PAGE_FAULTS: Self = Self::named("MEMORY_PAGE_FAULTS");
    pub const HARD_FAULTS: Self = Self::named("MEMORY_HARD_FAULTS");
    pub const VIRTUAL_ALLOC: Self = Self::named("VIRTUAL_ALLOC");
    pub const VAMAP: Self = Self::named("VAMAP");
    pub const NETWORK: Self = Self::named("NETWORK_TCPIP");
    pub const DBGPRINT: Self = Self::named("DBGPRINT");
    pub const JOB: Self = Self::named("JOB");
    pub const SPLIT_IO: Self = Self::named("SPLIT_IO");
    pub const PROFILE: Self = Self::named("PROFILE");
    pub const FILE_IO: Self = Self::named("FILE_IO");
    pub const FILE_IO_INIT: Self = Self::named("FILE_IO_INIT");
    pub const NO_SYSCONFIG: Self = Self::named("NO_SYSCONFIG");
    pub const PMC_PROFILE: Self = Self::named("PMC_PROFILE");
    pub const AFFINITY: Self = Self::named("AFFINITY");
    pub const PRIORITY: Self = Self::named("PRIORITY");
    pub const CLOCK_INTERRUPT: Self = Self::named("CLOCK_INTERRUPT");
    pub const IPI: Self = Self::named("IPI");

    /// A group of the table; one that is not there does not compile.
    const fn named(name: &str) -> Self {
        let mut rest: &[(u32, &str)] = &KERNEL_GROUPS;
        while let Some(((number, it), others)) = rest.split_first() {
            if is_same(it.as_bytes(), name.as_bytes()) {
                return Self(*number);
            }
            rest = others;
        }
        assert!(!rest.is_empty(), "no group has this name");
        Self(0)
    }
}

const fn is_same(mut one: &[u8], mut other: &[u8]) -> bool {
    while let (Some((a, one_behind)), Some((b, other_behind))) = (one.split_first(), other.split_first()) {
        if *a != *b {
            return false;
        }
        (one, other) = (one_behind, other_behind);
    }
    one.is_empty() && other.is_empty()
}

/// A mask of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups(pub GroupMask);

impl Groups {
    /// These groups.
    #[must_use]
    pub fn of(groups: &[Group]) -> Self {
        let mut all = Self::default();
        groups.iter().for_each(|group| add_group(&mut all.0, group.0));
        all
    }

    /// Whether a group is wanted.
    #[must_use]
    pub fn has(&self, group: Group) -> bool {
        has_group(&self.0, group.0)
    }

    /// Whether one of them is.
    #[must_use]
    pub fn has_any(&self, groups: &[Group]) -> bool {
        groups.iter().any(|group| self.has(*group))
    }

    /// What is in here, and those of the groups that are in the other.
    pub(crate) fn with_those_of(mut self, other: &Self, groups: &[Group]) -> Self {
        groups.iter().filter(|group| other.has(**group)).for_each(|group| add_group(&mut self.0, group.0));
        self
    }

    /// What is in here and not in the other.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut left = *self;
        left.0.iter_mut().zip(other.0).for_each(|(word, not)| *word &= !not);
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_their_published_numbers() {
        assert_eq!(
            [Group::PROCESS, Group::PAGE_FAULTS, Group::NETWORK].map(|it| it.0),
            [1, 0x1000, 0x1_0000]
        );
        assert_eq!([Group::PRIORITY, Group::IPI].map(|it| it.0), [0x2000_2000, 0x4040_0000]);
        assert_eq!(Groups::of(&[Group::CSWITCH, Group::PRIORITY]), Groups([0x10, 0x2000, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn a_group_is_found_in_its_word() {
        let groups = Groups([0x11, 0x2000, 0, 0, 0, 0, 0, 0]);
        assert!(groups.has(Group::PROCESS) && groups.has(Group::CSWITCH) && groups.has(Group::PRIORITY));
        assert!(!groups.has(Group::THREAD) && !groups.has(Group::AFFINITY));
        assert!(groups.has_any(&[Group::THREAD, Group::PROCESS]) && !groups.has_any(&[Group::DISK_IO]));
        let left = groups.without(&Groups([1, 0, 0, 0, 0, 0, 0, u32::MAX]));
        assert_eq!(left, Groups([0x10, 0x2000, 0, 0, 0, 0, 0, 0]));
        let more = left.with_those_of(&groups, &[Group::PROCESS, Group::THREAD, Group::PRIORITY]);
        assert_eq!(more, groups);
    }
}
