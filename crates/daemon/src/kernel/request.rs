//! The groups of kernel events that a session requests, stored separately for each request.
//!
//! ```text
//!   EnableFlags ─▶ word 0 ─┐
//!   class 4     ─▶ words ──┴─▶ mask ─┐
//!   enable of a system provider ─────┴─▶ combined: the captured groups, which class 4 returns
//! ```
//!
//! Class 4 is the information class `TraceSystemTraceEnableFlagsInfo`.

use std::collections::BTreeMap;

use traceweir_format::Guid;
use traceweir_format::info::GroupMask;
use traceweir_session::groups::{with_enable_flags, with_twins};

/// All groups of kernel events that one session requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestedGroups {
    /// Groups requested by EnableFlags, which replace the first word, and by class 4, which
    /// replaces all words.
    mask: GroupMask,
    /// Groups requested by enabling system providers; bounded by the number of system providers.
    providers: BTreeMap<Guid, GroupMask>,
}

impl RequestedGroups {
    /// Creates the request of a session that starts with these EnableFlags.
    pub(crate) fn from_flags(flags: u32) -> Self {
        Self::default().with_flags(flags)
    }

    pub(crate) fn with_flags(mut self, flags: u32) -> Self {
        self.mask = with_enable_flags(self.mask, flags);
        self
    }

    pub(crate) fn with_mask(mut self, mask: GroupMask) -> Self {
        self.mask = with_twins(mask);
        self
    }

    /// Sets the groups that a provider is enabled for, or removes them.
    pub(crate) fn with_provider(mut self, provider: Guid, groups: Option<GroupMask>) -> Self {
        match groups {
            Some(groups) => drop(self.providers.insert(provider, groups)),
            None => drop(self.providers.remove(&provider)),
        }
        self
    }

    /// Returns the union of all requested groups.
    pub(crate) fn combined(&self) -> GroupMask {
        let mut combined = self.mask;
        for groups in self.providers.values() {
            for (word, more) in combined.iter_mut().zip(groups) {
                *word |= more;
            }
        }
        with_twins(combined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_stays_requested_until_no_request_wants_it() {
        let (a, b) = (Guid::from_u128(1), Guid::from_u128(2));
        let requested = RequestedGroups::from_flags(0x3).with_provider(a, Some([0x12, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(requested.combined(), [0x13, 4, 0, 0, 0, 0, 0, 0], "a group includes its twin group");
        let requested = requested.with_provider(b, Some([0x10, 0x2000, 0, 0, 0, 0, 0, 0]));
        assert_eq!(requested.clone().with_provider(a, None).combined(), [0x13, 0x2004, 0, 0, 0, 0, 0, 0]);
        assert_eq!(requested.clone().with_flags(0).combined(), [0x12, 0x2004, 0, 0, 0, 0, 0, 0]);
        let requested = requested.with_mask([0, 0, 0x40, 0, 0, 0, 0, 0]).with_provider(a, None);
        assert_eq!(requested.with_provider(b, None).combined(), [0x80, 0, 0x40, 0, 0, 0, 0, 0]);
    }
}
