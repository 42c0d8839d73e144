//! Providers that a session does not have enabled by their group (TraceSetDisallowList).
//!
//! What it means for a registration is in `registry/wish.rs`.

use std::collections::BTreeSet;

use traceweir_format::Guid;

use super::{Registry, Target};
use crate::service::LinkId;

impl Registry {
    /// Replaces the list of a session. Registrations that it has something to do with: those of providers that came to the list or left it, by process, whose
    /// group the session enables.
    pub(crate) fn disallow(&mut self, session: u64, providers: &[Guid]) -> Vec<(LinkId, Vec<u32>)> {
        let now: BTreeSet<Guid> = providers.iter().copied().collect();
        let before = self.disallowed.remove(&session).unwrap_or_default();
        let changed: Vec<Guid> = now.symmetric_difference(&before).copied().collect();
        self.is_changed |= !changed.is_empty();
        if !now.is_empty() {
            self.disallowed.insert(session, now);
        }
        let mut concerned: Vec<(LinkId, Vec<u32>)> = Vec::new();
        for (link, number) in changed.into_iter().flat_map(|it| self.registrations_of(Target::Provider(it))) {
            let registration = self.processes.get(&link).and_then(|it| it.registrations.get(&number));
            let group = registration.and_then(|it| it.group).map(Target::Group);
            let enables = group.and_then(|group| self.enables.get(&group));
            let is_enabled = enables.is_some_and(|it| it.contains_key(&session));
            match concerned.last_mut() {
                _ if !is_enabled => {}
                Some((last, numbers)) if *last == link => numbers.push(number),
                _ => concerned.push((link, vec![number])),
            }
        }
        concerned
    }

    /// Whether a session has a provider enabled by its group.
    pub(super) fn allows(&self, session: u64, provider: &Guid) -> bool {
        !self.disallowed.get(&session).is_some_and(|all| all.contains(provider))
    }
}
