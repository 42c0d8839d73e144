//! Groups of kernel events, as EnableFlags and group masks name them.
//!
//! ```text
//!   31 30 29 │ 28 … 0        word of the mask │ bits in it; word 0 is EnableFlags
//! ```

use traceweir_format::info::GroupMask;

/// One group: the word of the mask in the highest three bits, its bit below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group(pub u32);

#[allow(missing_docs)] // The names are those of the published flags.
impl Group {
    pub const PROCESS: Self = Self(0x1);
    pub const THREAD: Self = Self(0x2);
    pub const IMAGE_LOAD: Self = Self(0x4);
    pub const PROCESS_COUNTERS: Self = Self(0x8);
    pub const CSWITCH: Self = Self(0x10);
    pub const DPC: Self = Self(0x20);
    pub const INTERRUPT: Self = Self(0x40);
    pub const SYSTEMCALL: Self = Self(0x80);
    pub const DISK_IO: Self = Self(0x100);
    pub const DISK_FILE_IO: Self = Self(0x200);
    pub const DISK_IO_INIT: Self = Self(0x400);
    pub const DISPATCHER: Self = Self(0x800);
    pub const PAGE_FAULTS: Self = Self(0x1000);
    pub const HARD_FAULTS: Self = Self(0x2000);
    pub const VIRTUAL_ALLOC: Self = Self(0x4000);
    pub const VAMAP: Self = Self(0x8000);
    pub const NETWORK: Self = Self(0x1_0000);
    pub const DBGPRINT: Self = Self(0x4_0000);
    pub const JOB: Self = Self(0x8_0000);
    pub const SPLIT_IO: Self = Self(0x20_0000);
    pub const PROFILE: Self = Self(0x100_0000);
    pub const FILE_IO: Self = Self(0x200_0000);
    pub const FILE_IO_INIT: Self = Self(0x400_0000);
    pub const NO_SYSCONFIG: Self = Self(0x1000_0000);
    pub const PMC_PROFILE: Self = Self(0x2000_0400);
    pub const AFFINITY: Self = Self(0x2000_1000);
    pub const PRIORITY: Self = Self(0x2000_2000);
    pub const CLOCK_INTERRUPT: Self = Self(0x4004_0000);
    pub const IPI: Self = Self(0x4040_0000);

    const fn word(self) -> usize {
        (self.0 >> 29) as usize
    }

    const fn bits(self) -> u32 {
        self.0 & 0x1FFF_FFFF
    }
}

/// A mask of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups(pub GroupMask);

impl Groups {
    /// Whether a group is wanted.
    #[must_use]
    pub fn has(&self, group: Group) -> bool {
        self.0.get(group.word()).is_some_and(|word| word & group.bits() != 0)
    }

    /// Whether one of them is.
    #[must_use]
    pub fn has_any(&self, groups: &[Group]) -> bool {
        groups.iter().any(|group| self.has(*group))
    }

    /// What is in here, and those of the groups that are in the other.
    pub(crate) fn with_those_of(mut self, other: &Self, groups: &[Group]) -> Self {
        for group in groups.iter().filter(|group| other.has(**group)) {
            if let Some(word) = self.0.get_mut(group.word()) {
                *word |= group.bits();
            }
        }
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
