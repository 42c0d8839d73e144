//! Where the providers of a private session live (TraceProviderBinaryTracking, the one information class for private sessions).

use traceweir_format::Guid;

use super::Private;
use crate::error::Refusal;
use crate::service::{ReplyTo, LinkId, Service};

impl Service {
    /// Has a private session told where its providers live, from now on, or no longer.
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
        self.tell_private_modules(id, None, None);
        Ok(())
    }

    /// A process has registered a provider: private sessions that it runs already are told of that one too.
    pub(in crate::service) fn request_modules_for_privates(&mut self, link: LinkId, provider: Guid) {
        let tracking = self.privates.all.iter().filter(|(_, it)| it.tracks_binaries);
        let ids: Vec<u64> = tracking.map(|(id, _)| *id).collect();
        for id in ids {
            self.tell_private_modules(id, Some(link), Some(provider));
        }
    }

    /// Has processes tell a session that tracks binaries where their registrations live: all that it has enabled, or those of one process, or one provider.
    pub(super) fn tell_private_modules(&mut self, id: u64, link: Option<LinkId>, provider: Option<Guid>) {
        let Some(private) = self.privates.all.get(&id).filter(|it| it.tracks_binaries) else { return };
        let links: Vec<LinkId> =
            private.members.keys().copied().filter(|it| link.is_none_or(|link| link == *it)).collect();
        let told: Vec<(LinkId, Vec<u32>)> =
            links.into_iter().map(|link| (link, self.enabled_in(private, link, provider))).collect();
        for (link, numbers) in told {
            self.request_modules(link, numbers, id);
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
            let is_meant = is_enabled(&provider);
            return self.registry.numbers_of(link, provider).filter(|_| is_meant).collect();
        }
        let registrations = self.registry.processes.get(&link).map(|process| &process.registrations);
        let all = registrations.into_iter().flatten();
        let enabled = all.filter(|(_, registration)| is_enabled(&registration.provider));
        enabled.map(|(number, _)| *number).collect()
    }
}
