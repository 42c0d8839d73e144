//! The first message of a connection: decides which role the peer may have.
//!
//! ```text
//!   Hello ─▶ common version? ─▶ role allowed? ─▶ provider: new, and is there room? ─▶ Welcome
//!                 └──────────────────┴───────────────┴─ no: Refused with the reason, Close,
//!                                                       a line in the log
//! ```

use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Message, Role, common_version};
use traceweir_transport::socket::Peer;

use super::{LinkId, ReplyTo, Service, access, log_refusal};
use crate::error::Refusal;
use crate::limits::{MAX_PER_PROCESS, MAX_PROVIDERS};
use crate::registry::Process;

impl Service {
    pub(super) fn hello(
        &mut self,
        reply_to: ReplyTo,
        versions: (u16, u16),
        role: Role,
        instance: u64,
        program: &str,
    ) {
        match self.admit(reply_to.link, versions, role, instance) {
            Ok(version) => {
                if let Some(client) = self.clients.get_mut(&reply_to.link) {
                    client.role = Some(role);
                    if role == Role::Provider {
                        let process = Process::new(client.peer, client.process, instance);
                        self.registry.processes.insert(reply_to.link, process);
                    }
                }
                self.reply(reply_to, Message::Welcome { version, daemon: self.daemon });
            }
            Err(refusal) => {
                let (uid, pid) = self.peer(reply_to.link).map_or((0, 0), |peer| (peer.uid, peer.pid));
                log_refusal!("{program} of uid {uid}, process {pid}: {refusal}");
                self.refuse_and_close(reply_to, refusal);
            }
        }
    }

    pub(super) fn admit(
        &self,
        link: LinkId,
        versions: (u16, u16),
        role: Role,
        instance: u64,
    ) -> Result<u16, Refusal> {
        let version = common_version(versions).map_err(|e| Refusal::new(e.status(), e.to_string()))?;
        let Some(client) = self.clients.get(&link) else {
            return Err(Refusal::new(Status::ERROR_INVALID_HANDLE, "the connection is closed"));
        };
        if client.knocked && role != Role::Provider {
            return Err(Refusal::new(
                Status::ERROR_INVALID_PARAMETER,
                "a connection that the daemon opened is for a provider only",
            ));
        }
        if !self.access.allows(&client.identity, role) {
            let reason = access::admission_refusal(role, client.peer.uid);
            return Err(Refusal::new(Status::ERROR_ACCESS_DENIED, reason));
        }
        if role == Role::Provider && self.registry.has_process(client.peer.pid, instance) {
            return Err(Refusal::new(Status::ERROR_ALREADY_EXISTS, "this process is already connected"));
        }
        if role == Role::Provider && client.is_reserved {
            let reason = "the daemon has too few file descriptors left for another process";
            return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
        }
        if role == Role::Provider {
            self.check_room(&client.peer)?;
        }
        Ok(version)
    }

    /// Checks that there is room for another provider connection of this peer.
    pub(super) fn check_room(&self, peer: &Peer) -> Result<(), Refusal> {
        let full = |reason| Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
        if self.registry.processes.len() >= MAX_PROVIDERS {
            return full("too many processes are connected");
        }
        // Processes that are not visible from the daemon's namespace all have the id 0.
        if peer.pid != 0 && self.registry.connection_count(peer.pid) >= MAX_PER_PROCESS {
            return full("this process has too many connections");
        }
        Ok(())
    }
}
