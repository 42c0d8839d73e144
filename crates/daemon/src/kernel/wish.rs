//! The groups of kernel events that a session wants, wish by wish.
//!
//! ```text
//!   EnableFlags ─▶ word 0 ─┐
//!   class 4     ─▶ words ──┴─▶ mask ─┐
//!   enable of a system provider ─────┴─▶ sum: what is captured, and what class 4 tells
//! ```

use std::collections::BTreeMap;

use traceweir_format::Guid;
use traceweir_format::info::GroupMask;
use traceweir_session::groups::{with_enable_flags, with_twins};

/// All wishes of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// By EnableFlags and class 4, which replace each other.
    mask: GroupMask,
    /// By what is enabled; there are no more than system providers.
    providers: BTreeMap<Guid, GroupMask>,
}

impl Wishes {
    /// Those of a session that begins with these EnableFlags.
    pub(crate) fn of_flags(flags: u32) -> Self {
        Self::default().with_flags(flags)
    }

    /// With other EnableFlags.
    pub(crate) fn with_flags(mut self, flags: u32) -> Self {
        self.mask = with_enable_flags(self.mask, flags);
        self
    }

    /// With another mask.
    pub(crate) fn with_mask(mut self, mask: GroupMask) -> Self {
        self.mask = with_twins(mask);
        self
    }

    /// With what a provider is enabled for, or without what it was.
    pub(crate) fn with_provider(mut self, provider: Guid, groups: Option<GroupMask>) -> Self {
        match groups {
            Some(groups) => drop(self.providers.insert(provider, groups)),
            None => drop(self.providers.remove(&provider)),
        }
        self
    }

    /// All of them together.
    pub(crate) fn sum(&self) -> GroupMask {
        let mut sum = self.mask;
        for groups in self.providers.values() {
            for (word, more) in sum.iter_mut().zip(groups) {
                *word |= more;
            }
        }
        with_twins(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_wish_takes_back_another_may_still_want() {
        let (a, b) = (Guid::from_u128(1), Guid::from_u128(2));
        let wishes = Wishes::of_flags(0x3).with_provider(a, Some([0x12, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(wishes.sum(), [0x13, 4, 0, 0, 0, 0, 0, 0], "with its other name");
        let wishes = wishes.with_provider(b, Some([0x10, 0x2000, 0, 0, 0, 0, 0, 0]));
        assert_eq!(wishes.clone().with_provider(a, None).sum(), [0x13, 0x2004, 0, 0, 0, 0, 0, 0]);
        assert_eq!(wishes.clone().with_flags(0).sum(), [0x12, 0x2004, 0, 0, 0, 0, 0, 0]);
        let wishes = wishes.with_mask([0, 0, 0x40, 0, 0, 0, 0, 0]).with_provider(a, None);
        assert_eq!(wishes.with_provider(b, None).sum(), [0x80, 0, 0x40, 0, 0, 0, 0, 0]);
    }
}
