//! Module reports for private sessions (TraceProviderBinaryTracking, the only information class
//! that private sessions support).

use traceweir_format::Guid;

use super::Private;
use crate::error::Refusal;
use crate::ids::{LinkId, ReplyTo};
use crate::service::Service;

impl Service {
    /// Turns the recording of provider modules in a private session on or off.
    pub(in crate::service) fn track_private(
        &mut self,
        reply_to: ReplyTo,
        id: u64,
        on: bool,
    ) -> Result<(), Refusal> {
        self.check_owner(reply_to, id, false)?;
        if let Some(private) = self.privates.all.get_mut(&id) {
            private.tracks_binaries = on;
        }
        self.request_private_modules(id, None, None);
        Ok(())
    }

    /// Requests the modules of a provider that a process has just registered, for the private
    /// sessions that the process already runs.
    pub(in crate::service) fn request_modules_for_privates(&mut self, link: LinkId, provider: Guid) {
        let tracking = self.privates.all.iter().filter(|(_, private)| private.tracks_binaries);
        let ids: Vec<u64> = tracking.map(|(id, _)| *id).collect();
        for id in ids {
            self.request_private_modules(id, Some(link), Some(provider));
        }
    }

    /// Asks processes to report the modules of registrations to a session that tracks binaries: of
    /// all that the session has enabled, of one process, or of one provider.
    pub(super) fn request_private_modules(&mut self, id: u64, link: Option<LinkId>, provider: Option<Guid>) {
        let Some(private) = self.privates.all.get(&id).filter(|private| private.tracks_binaries) else {
            return;
        };
        let links: Vec<LinkId> = private
            .members
            .keys()
            .copied()
            .filter(|member| link.is_none_or(|link| link == *member))
            .collect();
        let registrations: Vec<(LinkId, Vec<u32>)> =
            links.into_iter().map(|link| (link, self.enabled_in(private, link, provider))).collect();
        for (link, numbers) in registrations {
            self.core.turn.request_modules(link, numbers, id);
        }
    }

    /// Returns the numbers of the registrations in a process that a session enables, by their GUID
    /// or by name: all, or those of one GUID.
    fn enabled_in(&self, private: &Private, link: LinkId, provider: Option<Guid>) -> Vec<u32> {
        let by_name = private.members.get(&link).map(|member| &member.by_name);
        let is_enabled = |guid: &Guid| {
            private.enables.contains_key(guid) || by_name.is_some_and(|guids| guids.contains_key(guid))
        };
        if let Some(provider) = provider {
            let is_wanted = is_enabled(&provider);
            return self.providers.registry.numbers_of(link, provider).filter(|_| is_wanted).collect();
        }
        let registrations =
            self.providers.registry.processes.get(&link).map(|process| &process.registrations);
        let all = registrations.into_iter().flatten();
        let enabled = all.filter(|(_, registration)| is_enabled(&registration.provider));
        enabled.map(|(number, _)| *number).collect()
    }
}
