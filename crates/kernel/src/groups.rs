//! Groups of kernel events, as named by EnableFlags and group masks.
//!
//! ```text
//!   31 30 29 │ 28 … 0        word of the mask │ bits in it; word 0 is EnableFlags
//! ```
//!
//! The numbers come from the published table ([`KERNEL_GROUPS`]). This module lists the groups that
//! captures use.

use traceweir_format::info::GroupMask;
use traceweir_format::spec::system::{KERNEL_GROUPS, add_group, has_group};

/// A group of kernel events: the number of its mask word in the top three bits, and its bit within
/// this word in the other 29 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group(pub u32);

#[allow(missing_docs)] // The names are those of the published flags.
impl Group {
    pub const PROCESS: Self = Self::from_name("PROCESS");
    pub const THREAD: Self = Self::from_name("THREAD");
    pub const IMAGE_LOAD: Self = Self::from_name("IMAGE_LOAD");
    pub const PROCESS_COUNTERS: Self = Self::from_name("PROCESS_COUNTERS");
    pub const CSWITCH: Self = Self::from_name("CSWITCH");
    pub const DPC: Self = Self::from_name("DPC");
    pub const INTERRUPT: Self = Self::from_name("INTERRUPT");
    pub const SYSTEMCALL: Self = Self::from_name("SYSTEMCALL");
    pub const DISK_IO: Self = Self::from_name("DISK_IO");
    pub const DISK_FILE_IO: Self = Self::from_name("DISK_FILE_IO");
    pub const DISK_IO_INIT: Self = Self::from_name("DISK_IO_INIT");
    pub const DISPATCHER: Self = Self::from_name("DISPATCHER");
    pub const PAGE_FAULTS: Self = Self::from_name("MEMORY_PAGE_FAULTS");
    pub const HARD_FAULTS: Self = Self::from_name("MEMORY_HARD_FAULTS");
    pub const VIRTUAL_ALLOC: Self = Self::from_name("VIRTUAL_ALLOC");
    pub const NETWORK: Self = Self::from_name("NETWORK_TCPIP");
    pub const SPLIT_IO: Self = Self::from_name("SPLIT_IO");
    pub const PROFILE: Self = Self::from_name("PROFILE");
    pub const FILE_IO: Self = Self::from_name("FILE_IO");
    pub const FILE_IO_INIT: Self = Self::from_name("FILE_IO_INIT");
    pub const NO_SYSCONFIG: Self = Self::from_name("NO_SYSCONFIG");
    pub const PMC_PROFILE: Self = Self::from_name("PMC_PROFILE");
    pub const PRIORITY: Self = Self::from_name("PRIORITY");
    pub const CLOCK_INTERRUPT: Self = Self::from_name("CLOCK_INTERRUPT");
    pub const IPI: Self = Self::from_name("IPI");

    /// Returns the group with this name in the table. An unknown name fails to compile.
    const fn from_name(name: &str) -> Self {
        let mut remaining: &[(u32, &str)] = &KERNEL_GROUPS;
        while let Some(((number, group_name), tail)) = remaining.split_first() {
            if is_same(group_name.as_bytes(), name.as_bytes()) {
                return Self(*number);
            }
            remaining = tail;
        }
        // The loop ends only with an empty list, so this always fails.
        assert!(!remaining.is_empty(), "no group has this name");
        Self(0)
    }
}

const fn is_same(mut left: &[u8], mut right: &[u8]) -> bool {
    while let (Some((a, left_tail)), Some((b, right_tail))) = (left.split_first(), right.split_first()) {
        if *a != *b {
            return false;
        }
        (left, right) = (left_tail, right_tail);
    }
    left.is_empty() && right.is_empty()
}

/// A set of kernel event groups, stored as a group mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups(pub GroupMask);

impl Groups {
    /// Creates the set of these groups.
    #[must_use]
    pub fn new(groups: &[Group]) -> Self {
        let mut set = Self::default();
        groups.iter().for_each(|group| add_group(&mut set.0, group.0));
        set
    }

    /// Returns whether the set contains a group.
    #[must_use]
    pub fn has(&self, group: Group) -> bool {
        has_group(&self.0, group.0)
    }

    /// Returns whether the set contains at least one of these groups.
    #[must_use]
    pub fn has_any(&self, groups: &[Group]) -> bool {
        groups.iter().any(|group| self.has(*group))
    }

    /// Returns this set plus those of `groups` that `enabled` contains.
    pub(crate) fn with_enabled(mut self, enabled: &Self, groups: &[Group]) -> Self {
        groups.iter().filter(|group| enabled.has(**group)).for_each(|group| add_group(&mut self.0, group.0));
        self
    }

    /// Returns the groups of this set that `other` does not contain.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut difference = *self;
        difference.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= !other);
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_their_published_numbers() {
        assert_eq!(
            [Group::PROCESS, Group::PAGE_FAULTS, Group::NETWORK].map(|group| group.0),
            [1, 0x1000, 0x1_0000]
        );
        assert_eq!([Group::PRIORITY, Group::IPI].map(|group| group.0), [0x2000_2000, 0x4040_0000]);
        assert_eq!(Groups::new(&[Group::CSWITCH, Group::PRIORITY]), Groups([0x10, 0x2000, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn set_operations_use_the_word_of_each_group() {
        let groups = Groups([0x11, 0x2000, 0, 0, 0, 0, 0, 0]);
        assert!(groups.has(Group::PROCESS) && groups.has(Group::CSWITCH) && groups.has(Group::PRIORITY));
        assert!(!groups.has(Group::THREAD) && !groups.has(Group::IPI));
        assert!(groups.has_any(&[Group::THREAD, Group::PROCESS]) && !groups.has_any(&[Group::DISK_IO]));
        let left = groups.difference(&Groups([1, 0, 0, 0, 0, 0, 0, u32::MAX]));
        assert_eq!(left, Groups([0x10, 0x2000, 0, 0, 0, 0, 0, 0]));
        let more = left.with_enabled(&groups, &[Group::PROCESS, Group::THREAD, Group::PRIORITY]);
        assert_eq!(more, groups);
    }
}
