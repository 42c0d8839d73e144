//! The first words of a connection: who may come in, and as what.
//!
//! ```text
//!   Hello ─▶ a version that both speak? ─▶ the role is open to this user? ─▶ a provider: new, and is there room? ─▶ Welcome
//!                      └──────────────────────────────┴────────── no: Refused with what is missing, Close, a line in the log
//! ```

use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Message, Role, common_version};
use traceweir_transport::socket::Peer;

use super::{Asker, LinkId, Service, access, refused};
use crate::error::Refusal;
use crate::limits::{MAX_PER_PROCESS, MAX_PROVIDERS};
use crate::registry::Process;

impl Service {
    pub(super) fn hello(
        &mut self,
        asker: Asker,
        versions: (u16, u16),
        role: Role,
        instance: u64,
        program: &str,
    ) {
        match self.admit(asker.link, versions, role, instance) {
            Ok(version) => {
                if let Some(client) = self.clients.get_mut(&asker.link) {
                    client.role = Some(role);
                    if role == Role::Provider {
                        let process = Process::new(client.peer, client.process, instance);
                        self.registry.processes.insert(asker.link, process);
                    }
                }
                self.reply(asker, Message::Welcome { version, daemon: self.daemon });
            }
            Err(refusal) => {
                let (uid, pid) = self.peer(asker.link).map_or((0, 0), |peer| (peer.uid, peer.pid));
                refused!("{program} of uid {uid}, process {pid}: {refusal}");
                self.refuse_and_close(asker, refusal);
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
            return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, "only a provider is knocked at"));
        }
        if !self.access.allows(&client.identity, role) {
            let why = access::not_let_in(role, client.peer.uid);
            return Err(Refusal::new(Status::ERROR_ACCESS_DENIED, why));
        }
        if role == Role::Provider && self.registry.knows(client.peer.pid, instance) {
            return Err(Refusal::new(Status::ERROR_ALREADY_EXISTS, "this process is connected already"));
        }
        if role == Role::Provider && client.is_reserved {
            let why = "the daemon has too few descriptors left for another process";
            return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, why));
        }
        if role == Role::Provider {
            self.check_room(&client.peer)?;
        }
        Ok(version)
    }

    /// Whether there is room for a provider.
    pub(super) fn check_room(&self, peer: &Peer) -> Result<(), Refusal> {
        let full = |why| Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, why));
        if self.registry.processes.len() >= MAX_PROVIDERS {
            return full("too many processes are connected");
        }
        // Processes that cannot be seen from here all have the number 0.
        if peer.pid != 0 && self.registry.connections_of(peer.pid) >= MAX_PER_PROCESS {
            return full("this process has too many connections");
        }
        Ok(())
    }
}
