//! Providers that a session's enables of their group leave out (TraceSetDisallowList).
//!
//! `registry/combine.rs` applies the lists.

use std::collections::BTreeSet;

use traceweir_format::Guid;

use super::{EnableTarget, Registry};
use crate::ids::LinkId;

impl Registry {
    /// Replaces the list of a session. Returns, by process, the registrations that change: their
    /// provider was added to the list or removed from it, and the session enables their group. A
    /// process may occur once for each such provider.
    pub(crate) fn set_disallowed(&mut self, session: u64, providers: &[Guid]) -> Vec<(LinkId, Vec<u32>)> {
        let new_list: BTreeSet<Guid> = providers.iter().copied().collect();
        let old_list = self.disallowed.remove(&session).unwrap_or_default();
        let changed: Vec<Guid> = new_list.symmetric_difference(&old_list).copied().collect();
        self.is_changed |= !changed.is_empty();
        if !new_list.is_empty() {
            self.disallowed.insert(session, new_list);
        }
        let mut affected: Vec<(LinkId, Vec<u32>)> = Vec::new();
        for (link, number) in changed
            .into_iter()
            .flat_map(|provider| self.registrations_of_target(EnableTarget::Provider(provider)))
        {
            let registration =
                self.processes.get(&link).and_then(|process| process.registrations.get(&number));
            let group = registration.and_then(|registration| registration.group).map(EnableTarget::Group);
            let enables = group.and_then(|group| self.enables.get(&group));
            let is_enabled = enables.is_some_and(|sessions| sessions.contains_key(&session));
            match affected.last_mut() {
                _ if !is_enabled => {}
                Some((last, numbers)) if *last == link => numbers.push(number),
                _ => affected.push((link, vec![number])),
            }
        }
        affected
    }

    /// Returns whether a session's enable of a group applies to this member of the group.
    pub(super) fn allows(&self, session: u64, provider: &Guid) -> bool {
        !self.disallowed.get(&session).is_some_and(|providers| providers.contains(provider))
    }
}
