//! Private sessions that enable a provider by its name, regardless of the GUID that it registered.
//!
//! ```text
//!   EnableProvider { provider: hash of NAME, name: NAME } of a private session
//!      ├─▶ its processes: PrivateEnable of the hash, and of each GUID registered with NAME there
//!      └─▶ processes that have registered NAME with another GUID take part as well,
//!          but only if the session's own GUID is the hash
//! ```
//!
//! A session *reaches* a GUID in a process under three conditions: it enables a name under which
//! the process has registered the GUID; it does not enable the GUID directly; and its starter has
//! two rights on the GUID: to run a session, and to enable a provider. An enable without a name,
//! such as that of a program that uses the ETW API, applies to its GUID only.
//!
//! For each member of a session, the daemon stores the GUIDs that it ordered the process to enable
//! because of a name, at most [`MAX_GUIDS_BY_NAME`]. If the session no longer reaches such a GUID,
//! the daemon orders the process to disable it, even while the process has no registration of it.

use std::collections::BTreeSet;

use traceweir_format::Guid;
use traceweir_format::spec::access::Rights;
use traceweir_transport::message::{EnableCode, EnableParams, Message};

use super::{MAX_GUIDS_BY_NAME, PrivateSessionEntry, PrivateSessions};
use crate::ids::LinkId;
use crate::log::log_refusal;
use crate::registry::Registry;
use crate::service::access::{AccessControl, rights_to_run};
use crate::service::core::Core;
use crate::service::providers::SessionEnable;

/// An order to a process that follows from an enable by name.
#[derive(Clone, Copy, Debug)]
pub(super) enum OrderByName {
    /// Enable the GUID with the parameters of the name that has this hash.
    Enable {
        provider: Guid,
        hash: Guid,
    },
    Disable {
        provider: Guid,
    },
}

impl OrderByName {
    pub(super) fn provider(self) -> Guid {
        let (Self::Enable { provider, .. } | Self::Disable { provider }) = self;
        provider
    }
}

impl PrivateSessionEntry {
    fn enables_by_name(&self, hash: Guid) -> bool {
        self.enables.get(&hash).is_some_and(|enabled| enabled.is_by_name)
    }

    /// Returns the GUIDs of a process that a call about `provider` may affect: the provider itself
    /// and, if it is the hash of a name, the GUIDs that the name reaches or has reached.
    fn affected_guids(&self, registry: &Registry, link: LinkId, provider: Guid) -> BTreeSet<Guid> {
        let by_name = self.members.get(&link).map(|member| &member.by_name);
        let reached_before = by_name.into_iter().flatten().filter(|(_, hash)| **hash == provider);
        let mut guids: BTreeSet<Guid> = reached_before.map(|(guid, _)| *guid).collect();
        if self.enables_by_name(provider) {
            guids.extend(registry.guids_with_name(link, provider));
        }
        guids.insert(provider);
        guids
    }
}

impl PrivateSessions {
    /// Returns the hash of the name by which a session reaches a GUID in a process; prefers the
    /// name that reached the GUID before.
    fn find_reaching_hash(
        &self,
        core: &Core,
        registry: &Registry,
        private: &PrivateSessionEntry,
        link: LinkId,
        provider: Guid,
    ) -> Option<Guid> {
        if private.enables.contains_key(&provider) {
            return None;
        }
        let old_hash = private.members.get(&link).and_then(|member| member.by_name.get(&provider));
        let names = registry.name_hashes_of_guid(link, provider);
        let mut reaching = None;
        for hash in names.filter(|hash| private.enables_by_name(*hash)) {
            reaching = Some(hash);
            if old_hash == Some(&hash) {
                break;
            }
        }
        reaching.filter(|_| may_run(&core.access, private, provider))
    }

    /// Updates which of these GUIDs a session enables by name in a process, and returns the orders
    /// that the process must get. If the same name reached a GUID before, the process gets another
    /// order to enable it only if `is_due(guid, hash of the name)`.
    fn update_by_name(
        &mut self,
        core: &Core,
        registry: &Registry,
        id: u64,
        link: LinkId,
        guids: BTreeSet<Guid>,
        is_due: impl Fn(Guid, Guid) -> bool,
    ) -> Vec<OrderByName> {
        let mut orders = Vec::new();
        let mut over_limit = 0_usize;
        let mut has_tried_to_drop = false;
        for provider in guids {
            let Some(private) = self.sessions.get(&id) else { break };
            let Some(member) = private.members.get(&link) else { break };
            let old_hash = member.by_name.get(&provider).copied();
            let new_hash = self.find_reaching_hash(core, registry, private, link, provider);
            let is_enabled_directly = private.enables.contains_key(&provider);
            let is_full = old_hash.is_none() && member.by_name.len() >= MAX_GUIDS_BY_NAME;
            if new_hash.is_some() && is_full {
                // Registrations do not change meanwhile, so a second attempt would not help.
                let is_first = !std::mem::replace(&mut has_tried_to_drop, true);
                if !(is_first && self.drop_unregistered(registry, id, link, &mut orders)) {
                    over_limit = over_limit.saturating_add(1);
                    continue;
                }
            }
            let private = self.sessions.get_mut(&id);
            let Some(member) = private.and_then(|private| private.members.get_mut(&link)) else { break };
            match new_hash {
                Some(hash) => {
                    member.by_name.insert(provider, hash);
                    if old_hash != new_hash || is_due(provider, hash) {
                        orders.push(OrderByName::Enable { provider, hash });
                    }
                }
                None => {
                    if member.by_name.remove(&provider).is_some() && !is_enabled_directly {
                        orders.push(OrderByName::Disable { provider });
                    }
                }
            }
        }
        if over_limit > 0
            && let Some(private) = self.sessions.get(&id)
        {
            let pid = registry.processes.get(&link).map_or(0, |process| process.peer.pid);
            let name = &private.config.name;
            log_refusal!(
                "private session {name:?} enables {MAX_GUIDS_BY_NAME} GUIDs by name in process {pid}, the limit: {over_limit} more are not enabled"
            );
        }
        orders
    }

    /// Disables the GUIDs that a session enables by name in a process but that have no registration
    /// there. Returns whether there were any.
    fn drop_unregistered(
        &mut self,
        registry: &Registry,
        id: u64,
        link: LinkId,
        orders: &mut Vec<OrderByName>,
    ) -> bool {
        let Some(private) = self.sessions.get_mut(&id) else { return false };
        let Some(member) = private.members.get_mut(&link) else { return false };
        let enables = &private.enables;
        let registry = &registry;
        let old_count = member.by_name.len();
        member.by_name.retain(|guid, _| {
            let is_registered = registry.registration_numbers(link, *guid).next().is_some();
            if !is_registered && !enables.contains_key(guid) {
                orders.push(OrderByName::Disable { provider: *guid });
            }
            is_registered
        });
        member.by_name.len() < old_count
    }

    /// Updates which GUIDs a session enables by name in a process after a call about `provider`,
    /// and returns the orders that the process must get. `provider` may be the hash of an enabled
    /// name, or a GUID that is registered under one.
    pub(super) fn update_after_call(
        &mut self,
        core: &Core,
        registry: &Registry,
        link: LinkId,
        provider: Guid,
        call: &SessionEnable,
    ) -> Vec<(Guid, EnableCode, EnableParams)> {
        let &SessionEnable { session: id, code, ref params } = call;
        let Some(private) = self.sessions.get(&id) else { return Vec::new() };
        if code == EnableCode::CaptureState {
            let by_name = private.members.get(&link).map(|member| &member.by_name);
            let enabled = by_name.into_iter().flatten().filter(|(_, hash)| **hash == provider);
            let permitted = enabled.filter(|(guid, _)| may_run(&core.access, private, **guid));
            return permitted.map(|(guid, _)| (*guid, code, params.clone())).collect();
        }
        let guids = private.affected_guids(registry, link, provider);
        // The order of a disable call itself disables `provider`. If a name still reaches it, it
        // must be enabled again.
        let is_due = |guid, hash| hash == provider || (guid == provider && code == EnableCode::Disable);
        let orders = self.update_by_name(core, registry, id, link, guids, is_due);
        let is_needed = |order: &OrderByName| !matches!(order, OrderByName::Disable { provider: guid } if *guid == provider);
        let orders = orders.into_iter().filter(is_needed);
        let with_params = orders.filter_map(|order| {
            let (code, params) = self.params_for(id, order, params)?;
            Some((order.provider(), code, params))
        });
        with_params.collect()
    }

    /// Orders a process that has just joined a session to enable the providers that the session
    /// enables by name.
    pub(super) fn enable_names_in(&mut self, core: &mut Core, registry: &Registry, id: u64, link: LinkId) {
        let Some(private) = self.sessions.get(&id) else { return };
        let hashes = private.enables.iter().filter(|(_, enabled)| enabled.is_by_name);
        let guids = hashes.flat_map(|(hash, _)| registry.guids_with_name(link, *hash)).collect();
        let orders = self.update_by_name(core, registry, id, link, guids, |_, _| false);
        self.send_orders_by_name(core, id, link, &orders);
    }

    fn send_orders_by_name(&mut self, core: &mut Core, id: u64, link: LinkId, orders: &[OrderByName]) {
        for order in orders {
            let Some((code, params)) = self.params_for(id, *order, &EnableParams::default()) else {
                continue;
            };
            let params = Box::new(EnableParams { source: Guid::NULL, ..params });
            let provider = order.provider();
            core.turn.send(link, Message::PrivateEnable { order: 0, session: id, provider, code, params });
        }
    }

    /// Returns the parameters of an order: those of the name for an enable, `disable_params` for a
    /// disable.
    pub(super) fn params_for(
        &self,
        id: u64,
        order: OrderByName,
        disable_params: &EnableParams,
    ) -> Option<(EnableCode, EnableParams)> {
        match order {
            OrderByName::Enable { hash, .. } => {
                let enabled = self.sessions.get(&id)?.enables.get(&hash)?;
                Some((EnableCode::Enable, enabled.params.clone()))
            }
            OrderByName::Disable { .. } => Some((EnableCode::Disable, disable_params.clone())),
        }
    }

    /// Starts a session in the processes that have registered a name under a GUID other than its
    /// hash, if that hash is the session's own GUID.
    pub(super) fn join_by_name(&mut self, core: &mut Core, registry: &Registry, id: u64, hash: Guid) {
        let Some(private) = self.sessions.get(&id).filter(|private| private.config.guid == hash) else {
            return;
        };
        let mut links: BTreeSet<LinkId> = BTreeSet::new();
        // The registrations of one process are adjacent.
        let mut last_checked = None;
        for (link, provider) in registry.registrations_with_name(hash) {
            let is_included = match last_checked {
                Some((checked, is_included)) if checked == link => is_included,
                _ => {
                    let process = registry.processes.get(&link);
                    !private.members.contains_key(&link)
                        && process.is_some_and(|process| private.includes(process))
                }
            };
            last_checked = Some((link, is_included));
            if is_included && !links.contains(&link) && check_may_run(&core.access, private, provider) {
                links.insert(link);
            }
        }
        for link in links {
            self.join(core, registry, id, link, 0);
        }
    }

    /// Lets private sessions that enable a name reach a registration that was just added, or has
    /// just got that name.
    pub(super) fn reach_by_name(
        &mut self,
        core: &mut Core,
        registry: &Registry,
        link: LinkId,
        registration: u32,
    ) {
        let Some((hash, provider)) = registry.name_hash_and_guid(link, registration) else {
            return;
        };
        let Some(process) = registry.processes.get(&link) else { return };
        let reaching = self.sessions.iter().filter_map(|(id, private)| {
            if !private.enables_by_name(hash) || private.enables.contains_key(&provider) {
                return None;
            }
            let is_member = private.members.contains_key(&link);
            let is_included = is_member || (private.config.guid == hash && private.includes(process));
            (is_included && check_may_run(&core.access, private, provider)).then_some((*id, is_member))
        });
        for (id, is_member) in reaching.collect::<Vec<_>>() {
            if is_member {
                let orders =
                    self.update_by_name(core, registry, id, link, BTreeSet::from([provider]), |_, _| false);
                self.send_orders_by_name(core, id, link, &orders);
            } else {
                self.join(core, registry, id, link, 0);
            }
        }
    }
}

/// Returns the rights that the starter of a session lacks to run it for a provider whose GUID
/// is not the session's.
fn missing_rights(access: &AccessControl, private: &PrivateSessionEntry, provider: Guid) -> Rights {
    let rights = rights_to_run(&private.config) | Rights::TRACELOG_GUID_ENABLE;
    access.rules().missing_rights(&private.identity, provider, rights)
}

fn may_run(access: &AccessControl, private: &PrivateSessionEntry, provider: Guid) -> bool {
    missing_rights(access, private, provider).is_empty()
}

/// Returns whether the starter of a session may run it for a provider, and logs a refusal.
fn check_may_run(access: &AccessControl, private: &PrivateSessionEntry, provider: Guid) -> bool {
    let missing = missing_rights(access, private, provider);
    if !missing.is_empty() {
        let (name, uid) = (&private.config.name, private.starter);
        log_refusal!(
            "{provider} is not enabled by its name for private session {name:?}: uid {uid} lacks {missing} on the provider"
        );
    }
    missing.is_empty()
}
