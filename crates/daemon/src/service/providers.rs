//! Providers: the registry of processes and enables, and the acknowledgements that are awaited.
//!
//! `regions` gives processes their regions, `enable` carries out the calls of controllers,
//! `wait` holds operations that wait for acknowledgements, and `unserved` holds processes that wait
//! for a region.

mod enable;
mod regions;
mod unserved;
mod wait;

use std::time::{Duration, Instant};

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::Message;

use super::access::ConnectedClient;
use super::core::Core;
use crate::error::Refusal;
use crate::ids::{LinkId, ReplyTo};
use crate::limits::{DescriptorLimit, MAX_LINKS_OF_PROCESS, MAX_PROVIDER_LINKS};
use crate::log::log_warning;
use crate::process::ProcessKey;
use crate::registry::{ProviderProcess, Registry};
pub(super) use enable::{EnableCall, SessionEnable, log_verb};
use unserved::UnservedProcesses;
use wait::{WaitPurpose, Waits};

/// How long a process may take to close a region before the session stops without its
/// acknowledgement.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The processes that register providers, and what sessions enable in them.
pub(super) struct ProviderControl {
    pub(super) registry: Registry,
    waits: Waits,
    unserved: UnservedProcesses,
    pub(super) descriptors: DescriptorLimit,
}

impl Default for ProviderControl {
    fn default() -> Self {
        Self {
            registry: Registry::default(),
            waits: Waits::default(),
            unserved: UnservedProcesses::default(),
            descriptors: DescriptorLimit::current(),
        }
    }
}

impl ProviderControl {
    /// Adds a process that registers providers, if the limits permit it.
    pub(super) fn add_process(
        &mut self,
        link: LinkId,
        client: &ConnectedClient,
        instance: u64,
    ) -> Result<(), Refusal> {
        let limit_refusal = |reason| Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
        let pid = client.peer.pid;
        if self.registry.has_process(pid, instance) {
            return Err(Refusal::new(Status::ERROR_ALREADY_EXISTS, "this process is already connected"));
        }
        if client.uses_reserved_descriptor {
            return limit_refusal("the daemon has too few file descriptors left for another process");
        }
        if self.registry.processes.len() >= MAX_PROVIDER_LINKS {
            return limit_refusal("too many processes are connected");
        }
        // Processes that are not visible from the daemon's namespace all have the id 0.
        if pid != 0 && self.registry.connection_count(pid) >= MAX_LINKS_OF_PROCESS {
            return limit_refusal("this process has too many connections");
        }
        self.registry.processes.insert(link, ProviderProcess::new(client.peer, client.process, instance));
        Ok(())
    }

    /// Counts a process that was refused because of a limit, in every session that enables
    /// providers.
    pub(super) fn count_refused_process(&self, core: &mut Core, process: Option<ProcessKey>) {
        for session in core.sessions.running_ids() {
            if self.registry.has_enables(session) {
                core.sessions.count_refused_process(session, process);
            }
        }
    }

    /// Orders all processes of a session to stop writing; the session finishes when they have
    /// acknowledged, or after [`CLOSE_TIMEOUT`].
    pub(super) fn close_session(&mut self, core: &mut Core, id: u64) {
        let wait = self.waits.next_id();
        let mut waiting = 0;
        for link in self.registry.forget_session(id) {
            let Some(process) = self.registry.processes.get_mut(&link) else { continue };
            let order = process.next_order();
            process.awaited.insert(order, wait);
            self.waits.add_link(wait, link);
            waiting += 1;
            core.turn.send(link, Message::CloseSession { order, session: id });
        }
        if waiting == 0 {
            core.sessions.finish_stop(&core.turn, id);
        } else {
            let deadline = Some(core.turn.now + CLOSE_TIMEOUT);
            self.waits.begin(wait, waiting, deadline, WaitPurpose::Stop(id), None);
        }
    }

    /// Handles an acknowledgement of all orders up to this one.
    pub(super) fn acknowledge(&mut self, core: &mut Core, link: LinkId, order: u32) {
        let waits = self.registry.processes.get_mut(&link).map(|process| process.acknowledge(order));
        self.count_acknowledgements(core, waits.unwrap_or_default());
    }

    /// Ends the waits whose reply would go to a controller that has disconnected.
    pub(super) fn remove_controller(&mut self, link: LinkId) {
        for wait in self.waits.waits_replying_to(link) {
            self.cancel_wait(wait);
        }
    }

    /// Returns whether a reply to a connection waits for processes.
    #[cfg(test)]
    pub(super) fn has_waiting_reply(&self, link: LinkId) -> bool {
        !self.waits.waits_replying_to(link).is_empty()
    }

    /// Returns when [`tick`](Self::tick) or [`retry_unserved`](Self::retry_unserved) next has work
    /// to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.waits.deadline(), self.unserved.deadline()].into_iter().flatten().min()
    }

    /// Ends the waits whose deadline has passed.
    pub(super) fn tick(&mut self, core: &mut Core) {
        for wait in self.waits.expired_waits(core.turn.now) {
            if let Some(purpose) = self.cancel_wait(wait) {
                let reason = "a process did not answer in time; the request stays in effect";
                self.finish_wait(core, purpose, Err(Refusal::new(Status::ERROR_TIMEOUT, reason)));
            }
        }
    }

    fn cancel_wait(&mut self, wait: u64) -> Option<WaitPurpose> {
        for link in self.waits.links(wait) {
            if let Some(process) = self.registry.processes.get_mut(link) {
                process.awaited.retain(|_, awaited| *awaited != wait);
            }
        }
        self.waits.remove(wait)
    }

    /// Counts one acknowledgement for each wait; a disconnected process counts as one that has
    /// acknowledged.
    fn count_acknowledgements(&mut self, core: &mut Core, waits: Vec<u64>) {
        for wait in waits {
            let failure = self.waits.failure(wait);
            if let Some(purpose) = self.waits.acknowledge(wait) {
                self.finish_wait(core, purpose, failure.map_or(Ok(()), Err));
            }
        }
    }

    /// Carries out the purpose of a wait that has ended.
    fn finish_wait(&mut self, core: &mut Core, purpose: WaitPurpose, outcome: Result<(), Refusal>) {
        match purpose {
            WaitPurpose::Answer(reply_to) => core.turn.reply_done(reply_to, outcome),
            WaitPurpose::Confirm(reply_to) => core.turn.reply_done(reply_to, Ok(())),
            WaitPurpose::Stop(session) => {
                if let Err(refusal) = outcome {
                    log_warning!("session {session:#x} stops nevertheless: {refusal}");
                }
                core.sessions.finish_stop(&core.turn, session);
            }
            WaitPurpose::Detach(session, region) => core.sessions.detach(session, region),
        }
    }

    /// Replies with the registrations of a provider.
    pub(super) fn query_registrations(
        &self,
        core: &mut Core,
        reply_to: ReplyTo,
        provider: Guid,
        from: u32,
    ) -> Result<(), Refusal> {
        let is_guest = core.access.is_guest(reply_to.link);
        let shown: Option<Vec<u64>> = is_guest.then(|| {
            core.sessions
                .sessions_shown_to(&core.access, reply_to.link)
                .iter()
                .map(|session| session.id)
                .collect()
        });
        let is_shown = |id: u64| shown.as_ref().is_none_or(|shown| shown.contains(&id));
        let Some(page) = self.registry.registrations_page(provider, from, &is_shown) else {
            let reason = "no process has registered this provider and no session has enabled it";
            return Err(Refusal::new(Status::ERROR_WMI_GUID_NOT_FOUND, reason));
        };
        core.turn.reply(reply_to, page);
        Ok(())
    }
}
