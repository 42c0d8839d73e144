//! What is told of one provider: registration by registration, with what each session wants of it.

use std::collections::BTreeSet;

use traceweir_format::Guid;
use traceweir_transport::message::{EnableEntry, EnableParams, Message, RegistrationEntry};

use super::{Registry, Target};
use crate::service::LinkId;

impl Registry {
    /// The registrations of a provider from an index on, of sessions that may be `shown`; `None` where nobody has registered or enabled it.
    pub(crate) fn registrations_page(
        &self,
        provider: Guid,
        from: u32,
        shown: &dyn Fn(u64) -> bool,
    ) -> Option<Message> {
        let target = Target::Provider(provider);
        if !self.is_known(target) {
            return None;
        }
        let none = BTreeSet::new();
        let all = self.registered.get(&target).unwrap_or(&none);
        if all.is_empty() {
            let enables = self.enables.get(&target).into_iter().flatten().filter(|(id, _)| shown(**id));
            let sessions = enables.map(|(id, enable)| entry_of(*id, &enable.params)).collect();
            let ahead = RegistrationEntry { pid: 0, is_ahead: true, is_classic: false, sessions };
            return Some(Message::registrations_page(1, [ahead].into_iter().skip(from as usize)));
        }
        let told = all.iter().skip(from as usize).filter_map(|it| self.registration_entry(*it, shown));
        Some(Message::registrations_page(all.len(), told))
    }

    fn registration_entry(
        &self,
        (link, number): (LinkId, u32),
        shown: &dyn Fn(u64) -> bool,
    ) -> Option<RegistrationEntry> {
        let process = self.processes.get(&link)?;
        let registration = process.registrations.get(&number)?;
        let sessions = registration.sessions.iter().filter(|id| shown(**id));
        let wishes = sessions.filter_map(|id| Some(entry_of(*id, &self.wish(link, number, *id)?)));
        Some(RegistrationEntry {
            pid: process.peer.pid,
            is_ahead: false,
            is_classic: registration.classic,
            sessions: wishes.collect(),
        })
    }

    /// The registrations of each process that a session has enabled.
    pub(crate) fn enabled_for(&self, session: u64) -> Vec<(LinkId, Vec<u32>)> {
        let enabled = self.processes.iter().map(|(link, process)| {
            let its = process.registrations.iter().filter(|(_, it)| it.sessions.contains(&session));
            (*link, its.map(|(number, _)| *number).collect::<Vec<u32>>())
        });
        enabled.filter(|(_, numbers)| !numbers.is_empty()).collect()
    }
}

fn entry_of(session: u64, params: &EnableParams) -> EnableEntry {
    EnableEntry {
        session,
        level: params.level,
        any: params.match_any,
        all: params.match_all,
        property: params.property,
        ..EnableEntry::default()
    }
}
