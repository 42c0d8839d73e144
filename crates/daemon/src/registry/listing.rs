//! Lists registrations: those of a provider, and those that a session enables.

use std::collections::BTreeSet;

use traceweir_format::Guid;
use traceweir_format::kernel::providers::kernel_provider_name;
use traceweir_transport::message::{EnableEntry, EnableParams, Message, RegistrationEntry};

use super::{EnableTarget, Registry};
use crate::ids::LinkId;

impl Registry {
    /// Returns a page of the registrations of a provider, starting at an index; `None` if the
    /// provider is neither registered nor enabled, and is not one of the kernel. A provider that is
    /// only enabled has one entry, without a process. Only sessions accepted by `is_shown` are
    /// listed.
    pub(crate) fn registrations_page(
        &self,
        provider: Guid,
        from: u32,
        is_shown: &dyn Fn(u64) -> bool,
    ) -> Option<Message> {
        let target = EnableTarget::Provider(provider);
        let is_of_kernel = kernel_provider_name(&provider).is_some();
        if !is_of_kernel && !self.is_known(target) {
            return None;
        }
        let empty = BTreeSet::new();
        let registrations = self.registered.get(&target).unwrap_or(&empty);
        if registrations.is_empty() {
            let enables = self.enables.get(&target).into_iter().flatten().filter(|(id, _)| is_shown(**id));
            let sessions = enables.map(|(id, enable)| enable_entry(*id, &enable.params)).collect();
            // The kernel registers its providers without a process.
            let only =
                RegistrationEntry { pid: 0, is_pre_enabled: !is_of_kernel, is_classic: false, sessions };
            return Some(Message::registrations_page(1, [only].into_iter().skip(from as usize)));
        }
        let entries = registrations
            .iter()
            .skip(from as usize)
            .filter_map(|(link, number)| self.registration_entry(*link, *number, is_shown));
        Some(Message::registrations_page(registrations.len(), entries))
    }

    fn registration_entry(
        &self,
        link: LinkId,
        number: u32,
        is_shown: &dyn Fn(u64) -> bool,
    ) -> Option<RegistrationEntry> {
        let process = self.processes.get(&link)?;
        let registration = process.registrations.get(&number)?;
        let sessions = registration.sessions.iter().filter(|id| is_shown(**id));
        let enables =
            sessions.filter_map(|id| Some(enable_entry(*id, &self.combined_params(link, number, *id)?)));
        Some(RegistrationEntry {
            pid: process.peer.pid,
            is_pre_enabled: false,
            is_classic: registration.is_classic,
            sessions: enables.collect(),
        })
    }

    pub(crate) fn enabled_registrations_of_session(&self, session: u64) -> Vec<(LinkId, Vec<u32>)> {
        let processes = self.processes.iter().map(|(link, process)| {
            let enabled = process
                .registrations
                .iter()
                .filter(|(_, registration)| registration.sessions.contains(&session));
            (*link, enabled.map(|(number, _)| *number).collect::<Vec<u32>>())
        });
        processes.filter(|(_, numbers)| !numbers.is_empty()).collect()
    }
}

fn enable_entry(session: u64, params: &EnableParams) -> EnableEntry {
    EnableEntry {
        session,
        level: params.level,
        any: params.match_any,
        all: params.match_all,
        property: params.property,
        ..EnableEntry::default()
    }
}
