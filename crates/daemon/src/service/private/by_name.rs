//! Private sessions that enable a provider by its name, whatever GUID it has registered under that
//! name.
//!
//! ```text
//!   EnableProvider { provider: hash of NAME, name: NAME } of a private session
//!      ├─▶ its processes: PrivateEnable of the hash, and of each GUID registered with NAME there
//!      └─▶ processes that have registered NAME with another GUID take part as well,
//!          where the session's own GUID is the hash
//! ```
//!
//! The starter of the session needs the rights that it takes to run and enable one for each such
//! GUID. A session that was started and enabled by a GUID alone, as programs do that use the
//! published API, is that GUID's and nothing else's. An enable of a GUID by itself counts more than
//! that of its name.

use std::collections::BTreeMap;

use traceweir_format::Guid;
use traceweir_format::spec::access::Rights;
use traceweir_transport::message::{EnableCode, EnableParams, Message};

use super::Private;
use crate::log::refused;
use crate::service::access::rights_to_run;
use crate::service::{LinkId, Service};

/// What a private session reaches in a process by names: the hash of the name and how it is
/// enabled, by GUID.
pub(super) type Reached = BTreeMap<Guid, (Guid, EnableParams)>;

impl Service {
    /// The GUIDs that a process has registered under names which a private session enables, and
    /// what it enables them with.
    pub(super) fn reached_by_name(&self, private: &Private, link: LinkId) -> Reached {
        let names = self.registry.names_of(link);
        let params = |hash, provider| self.params_by_name(private, hash, provider).cloned();
        names.filter_map(|(hash, provider)| Some((provider, (hash, params(hash, provider)?)))).collect()
    }

    /// What a private session enables a GUID with by the name whose hash this is, where it does and
    /// may.
    fn params_by_name<'p>(
        &self,
        private: &'p Private,
        hash: Guid,
        provider: Guid,
    ) -> Option<&'p EnableParams> {
        let enable = private.enables.get(&hash).filter(|enable| hash.is_hash_of(&enable.name))?;
        let is_meant = !private.enables.contains_key(&provider) && self.may_run(private, provider);
        is_meant.then_some(&enable.params)
    }

    /// The same in all processes of a session.
    pub(super) fn reached_in_members(&self, id: u64) -> BTreeMap<LinkId, Reached> {
        let private = self.privates.all.get(&id);
        let members =
            private.into_iter().flat_map(|private| private.members.keys().map(move |it| (private, *it)));
        members.map(|(private, link)| (link, self.reached_by_name(private, link))).collect()
    }

    /// What follows for other GUIDs of a process from a call about `provider`, whose name may stand
    /// for them: `before` is what the session reached there until now.
    pub(super) fn orders_by_name(
        &self,
        (id, link): (u64, LinkId),
        before: &Reached,
        (provider, code): (Guid, EnableCode),
        params: &EnableParams,
    ) -> Vec<(Guid, EnableCode, EnableParams)> {
        let Some(private) = self.privates.all.get(&id) else { return Vec::new() };
        let now = self.reached_by_name(private, link);
        if code == EnableCode::CaptureState {
            let meant = now.iter().filter(|(_, (hash, _))| *hash == provider);
            return meant.map(|(guid, _)| (*guid, code, params.clone())).collect();
        }
        let is_over = |guid: &&Guid| !now.contains_key(guid) && !private.enables.contains_key(guid);
        let over = before.keys().filter(is_over).map(|guid| (*guid, EnableCode::Disable, params.clone()));
        let is_new = |guid: &Guid, hash: &Guid| *hash == provider || !before.contains_key(guid);
        let new = now.iter().filter(|(guid, (hash, _))| is_new(guid, hash));
        let new = new.map(|(guid, (_, params))| (*guid, EnableCode::Enable, params.clone()));
        over.chain(new).collect()
    }

    /// Whether the starter of a session has the rights to run it for a provider of another GUID
    /// than the session's.
    fn may_run(&self, private: &Private, provider: Guid) -> bool {
        let rights = rights_to_run(&private.config) | Rights::TRACELOG_GUID_ENABLE;
        let missing = self.access.missing(&private.identity, provider, rights);
        if !missing.is_empty() {
            let (name, uid) = (&private.config.name, private.starter);
            refused!(
                "{provider} is not enabled by its name for private session {name:?}: uid {uid} has no {missing} on it"
            );
        }
        missing.is_empty()
    }

    /// Has the processes take part that have registered a name with another GUID than its hash,
    /// where that is the GUID of a session.
    pub(super) fn join_by_name(&mut self, id: u64, hash: Guid) {
        let Some(private) = self.privates.all.get(&id).filter(|it| it.config.guid == hash) else { return };
        let named = self.registry.registrations_named(hash);
        let meant: Vec<LinkId> = named
            .into_iter()
            .filter(|(link, provider)| {
                !private.members.contains_key(link) && self.may_run(private, *provider)
            })
            .map(|(link, _)| link)
            .collect();
        for link in meant {
            self.join(id, link, 0);
        }
    }

    /// A process has registered a provider, or given it a name: private sessions that enable the
    /// name reach it from now on.
    pub(in crate::service) fn join_privates_by_name(&mut self, link: LinkId, registration: u32) {
        let Some((hash, provider)) = self.registry.name_of(link, registration) else { return };
        let enabling = self.privates.all.iter().filter_map(|(id, private)| {
            let params = self.params_by_name(private, hash, provider)?.clone();
            let is_member = private.members.contains_key(&link);
            (is_member || private.config.guid == hash).then_some((*id, is_member, params))
        });
        for (session, is_member, params) in enabling.collect::<Vec<_>>() {
            if !is_member {
                self.join(session, link, 0);
                continue;
            }
            let (code, params) =
                (EnableCode::Enable, Box::new(EnableParams { source: Guid::NULL, ..params }));
            self.send(link, 0, Message::PrivateEnable { order: 0, session, provider, code, params });
        }
    }
}
