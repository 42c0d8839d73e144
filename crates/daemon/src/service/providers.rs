//! Providers: the registry of processes and enables, and the acknowledgements that are awaited.

use traceweir_format::spec::status::Status;
use traceweir_transport::message::Message;

use super::Core;
use super::access::Client;
use super::unserved::Unserved;
use super::wait::{Purpose, Waits};
use crate::error::Refusal;
use crate::ids::LinkId;
use crate::limits::{Descriptors, MAX_PER_PROCESS, MAX_PROVIDERS};
use crate::registry::{Process, Registry};

use std::time::Duration;

/// How long a process may take to close a region before the session stops without its
/// acknowledgement.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// The processes that register providers, and what sessions enable in them.
pub(super) struct Providers {
    pub(super) registry: Registry,
    pub(super) waits: Waits,
    pub(super) unserved: Unserved,
    pub(super) descriptors: Descriptors,
}

impl Default for Providers {
    fn default() -> Self {
        Self {
            registry: Registry::default(),
            waits: Waits::default(),
            unserved: Unserved::default(),
            descriptors: Descriptors::current(),
        }
    }
}

impl Providers {
    /// Adds a process that registers providers, if there is room for it.
    pub(super) fn add_process(
        &mut self,
        link: LinkId,
        client: &Client,
        instance: u64,
    ) -> Result<(), Refusal> {
        let full = |reason| Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
        let pid = client.peer.pid;
        if self.registry.has_process(pid, instance) {
            return Err(Refusal::new(Status::ERROR_ALREADY_EXISTS, "this process is already connected"));
        }
        if client.is_reserved {
            return full("the daemon has too few file descriptors left for another process");
        }
        if self.registry.processes.len() >= MAX_PROVIDERS {
            return full("too many processes are connected");
        }
        // Processes that are not visible from the daemon's namespace all have the id 0.
        if pid != 0 && self.registry.connection_count(pid) >= MAX_PER_PROCESS {
            return full("this process has too many connections");
        }
        self.registry.processes.insert(link, Process::new(client.peer, client.process, instance));
        Ok(())
    }

    /// Orders all processes of a session to stop writing; the session finishes when they have
    /// acknowledged, or after [`CLOSE_WITHIN`].
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
            let deadline = Some(core.turn.now + CLOSE_WITHIN);
            self.waits.begin(wait, waiting, deadline, Purpose::Stop(id), None);
        }
    }
}
