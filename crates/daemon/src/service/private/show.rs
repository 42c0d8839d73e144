//! What private sessions enable, for those whom it concerns.
//!
//! Such sessions are in no list of sessions. PeerName asks about providers is told which of his own enable them; root and the daemon's own user are told
//! of all.

use std::collections::BTreeSet;

use traceweir_format::Guid;
use traceweir_transport::message::{EnableEntry, EnableParams, Message, ProviderEntry};

use super::Private;
use crate::registry::Target;
use crate::service::{ReplyTo, LinkId, Service};

impl Service {
    /// The providers behind one, with what private sessions want of them.
    pub(in crate::service) fn providers_page(&self, reply_to: ReplyTo, after: Option<(Guid, bool)>) -> Message {
        let shown: Vec<(u64, &Private)> = self.privates_shown_to(reply_to);
        let others: BTreeSet<Target> =
            shown.iter().flat_map(|(_, it)| it.enables.keys()).map(|guid| Target::Provider(*guid)).collect();
        let entries = self.registry.providers(after, &others).map(|mut entry| {
            if !entry.is_group {
                let enables = shown.iter().filter_map(|(id, it)| self.private_entry(*id, it, &entry));
                entry.privates = enables.collect();
            }
            entry
        });
        Message::providers_page(entries)
    }

    fn privates_shown_to(&self, reply_to: ReplyTo) -> Vec<(u64, &Private)> {
        let (uid, sees_all) = (self.uid(reply_to).ok(), !self.is_guest(reply_to.link));
        let is_shown = |it: &Private| sees_all || uid == Some(it.starter);
        self.privates.all.iter().filter(|(_, it)| is_shown(it)).map(|(id, it)| (*id, it)).collect()
    }

    fn private_entry(&self, id: u64, private: &Private, entry: &ProviderEntry) -> Option<EnableEntry> {
        let enabled = private.enables.get(&entry.provider)?;
        let EnableParams { level, match_any, match_all, property, ref filters, .. } = enabled.params;
        let has_it: BTreeSet<LinkId> = self
            .registry
            .registrations_of(Target::Provider(entry.provider))
            .into_iter()
            .map(|it| it.0)
            .collect();
        let traced = private.members.iter().filter(|(link, it)| it.runs && has_it.contains(link)).count();
        Some(EnableEntry {
            session: id,
            level,
            any: match_any,
            all: match_all,
            property,
            filters: filters.clone(),
            name: enabled.name.clone(),
            traced: u32::try_from(traced).unwrap_or(u32::MAX),
            left_out: 0,
        })
    }
}
