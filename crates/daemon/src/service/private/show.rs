//! The enables of private sessions in provider listings.
//!
//! Private sessions are in no list of sessions. In a provider listing a user sees the enables of
//! their own private sessions; root and the daemon's own user see those of all.

use std::collections::BTreeSet;

use traceweir_format::Guid;
use traceweir_transport::message::{EnableEntry, EnableParams, Message, ProviderEntry};

use super::{PrivateSessionEntry, PrivateSessions};
use crate::ids::{LinkId, ReplyTo};
use crate::registry::{EnableTarget, Registry};
use crate::service::core::Core;

impl PrivateSessions {
    /// Returns a page of providers with the enables of private sessions. `after` is the last entry
    /// of the previous page: its GUID, and whether it is a group.
    pub(in crate::service) fn providers_page(
        &self,
        core: &Core,
        registry: &Registry,
        reply_to: ReplyTo,
        after: Option<(Guid, bool)>,
    ) -> Message {
        let shown: Vec<(u64, &PrivateSessionEntry)> = self.sessions_shown_to(core, reply_to);
        let private_targets: BTreeSet<EnableTarget> = shown
            .iter()
            .flat_map(|(_, private)| private.enables.keys())
            .map(|guid| EnableTarget::Provider(*guid))
            .collect();
        let entries = registry.providers(after, &private_targets).map(|mut entry| {
            if !entry.is_group {
                let enables = shown
                    .iter()
                    .filter_map(|(id, private)| self.enable_entry(registry, *id, private, &entry));
                entry.privates = enables.collect();
            }
            entry
        });
        Message::providers_page(entries)
    }

    fn sessions_shown_to(&self, core: &Core, reply_to: ReplyTo) -> Vec<(u64, &PrivateSessionEntry)> {
        let (uid, sees_all) = (core.access.uid(reply_to.link).ok(), !core.access.is_guest(reply_to.link));
        let is_shown = |private: &PrivateSessionEntry| sees_all || uid == Some(private.starter);
        self.sessions
            .iter()
            .filter(|(_, private)| is_shown(private))
            .map(|(id, private)| (*id, private))
            .collect()
    }

    fn enable_entry(
        &self,
        registry: &Registry,
        id: u64,
        private: &PrivateSessionEntry,
        entry: &ProviderEntry,
    ) -> Option<EnableEntry> {
        let enabled = private.enables.get(&entry.provider)?;
        let EnableParams { level, match_any, match_all, property, ref filters, .. } = enabled.params;
        let registered_in: BTreeSet<LinkId> = registry
            .registrations_of_target(EnableTarget::Provider(entry.provider))
            .into_iter()
            .map(|(link, _)| link)
            .collect();
        let traced = private
            .members
            .iter()
            .filter(|(link, member)| member.is_running && registered_in.contains(link))
            .count();
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
