//! Module reports for private sessions (TraceProviderBinaryTracking, the only information class
//! that private sessions support).

use traceweir_format::Guid;

use super::{PrivateSessionEntry, PrivateSessions};
use crate::error::Refusal;
use crate::ids::{LinkId, ReplyTo};
use crate::registry::Registry;
use crate::service::core::Core;

impl PrivateSessions {
    /// Turns the recording of provider modules in a private session on or off.
    pub(in crate::service) fn set_module_tracking(
        &mut self,
        core: &mut Core,
        registry: &Registry,
        reply_to: ReplyTo,
        id: u64,
        is_on: bool,
    ) -> Result<(), Refusal> {
        self.check_controller(core, reply_to, id, false)?;
        if let Some(private) = self.sessions.get_mut(&id) {
            private.tracks_binaries = is_on;
        }
        self.request_modules(core, registry, id, None, None);
        Ok(())
    }

    /// Requests the modules of a provider that a process has just registered, for the private
    /// sessions that the process already runs.
    pub(super) fn request_modules_of(
        &mut self,
        core: &mut Core,
        registry: &Registry,
        link: LinkId,
        provider: Guid,
    ) {
        let tracking = self.sessions.iter().filter(|(_, private)| private.tracks_binaries);
        let ids: Vec<u64> = tracking.map(|(id, _)| *id).collect();
        for id in ids {
            self.request_modules(core, registry, id, Some(link), Some(provider));
        }
    }

    /// Asks processes to report the modules of enabled registrations to a session that tracks
    /// binaries; `link` and `provider` restrict the request to one process or one provider.
    pub(super) fn request_modules(
        &mut self,
        core: &mut Core,
        registry: &Registry,
        id: u64,
        link: Option<LinkId>,
        provider: Option<Guid>,
    ) {
        let Some(private) = self.sessions.get(&id).filter(|private| private.tracks_binaries) else {
            return;
        };
        let links: Vec<LinkId> = private
            .members
            .keys()
            .copied()
            .filter(|member| link.is_none_or(|link| link == *member))
            .collect();
        let registrations: Vec<(LinkId, Vec<u32>)> = links
            .into_iter()
            .map(|link| (link, self.enabled_registrations(registry, private, link, provider)))
            .collect();
        for (link, numbers) in registrations {
            core.turn.request_modules(link, numbers, id);
        }
    }

    /// Returns the numbers of the registrations in a process that a session enables by GUID or by
    /// name; `provider` restricts them to one GUID.
    fn enabled_registrations(
        &self,
        registry: &Registry,
        private: &PrivateSessionEntry,
        link: LinkId,
        provider: Option<Guid>,
    ) -> Vec<u32> {
        let by_name = private.members.get(&link).map(|member| &member.by_name);
        let is_enabled = |guid: &Guid| {
            private.enables.contains_key(guid) || by_name.is_some_and(|guids| guids.contains_key(guid))
        };
        if let Some(provider) = provider {
            let is_wanted = is_enabled(&provider);
            return registry.registration_numbers(link, provider).filter(|_| is_wanted).collect();
        }
        let registrations = registry.processes.get(&link).map(|process| &process.registrations);
        let registrations = registrations.into_iter().flatten();
        let enabled = registrations.filter(|(_, registration)| is_enabled(&registration.provider));
        enabled.map(|(number, _)| *number).collect()
    }
}
