//! Access control: the connections, and the identities and rights of their peers.
//!
//! ```text
//!   Hello ─▶ common version? ─▶ role allowed? ─▶ provider: new, below limits? ─▶ Welcome
//!                 └──────────────────┴───────────────┴─ no: Refused with the reason, Close,
//!                                                       a line in the log
//!   request ─▶ check_right(link, object, right) ─ missing ─▶ ERROR_ACCESS_DENIED, line in the log
//!                              the error names the right, the object and the remedy
//! ```
//!
//! Stopping or flushing a session requires the rights to start such a session. The ETW
//! documentation defines rights only for starting and updating, and a user who may update a session
//! can end its recording anyway, by replacing its file. The module `changes` changes access lists.
//!
//! The daemon is also a controller: it starts autologgers through the same requests as any
//! controller, over the link [`OWN_LINK`], which has no connection. The server delivers messages
//! for this link to the part of the daemon that made the request. The link is never closed.

mod changes;
mod client;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use traceweir_format::Guid;
use traceweir_format::spec::access::{DEFAULT_TRACE_SECURITY, Rights};
use traceweir_format::spec::event::class::SYSTEM_TRACE_CONTROL;
use traceweir_format::spec::session::{EVENT_TRACE_REAL_TIME_MODE, EVENT_TRACE_SECURE_MODE};
use traceweir_format::spec::status::Status;
use traceweir_session::config::is_system_logger;
use traceweir_transport::message::{Role, SessionConfig, common_version};
use traceweir_transport::socket::Peer;

use crate::access::{AccessRules, CONTROLLER_GROUP, UserIdentity};
use crate::error::Refusal;
use crate::ids::LinkId;
use crate::limits::Claimant;
use crate::log::log_refusal;
use crate::process::{self, ProcessKey};
use changes::PendingChanges;
pub(super) use client::{ConnectedClient, ConsumerState, PeerName};

/// The link of the daemon itself; connections have higher numbers.
pub(crate) const OWN_LINK: LinkId = 0;

/// The connections and their rights.
#[derive(Debug)]
pub(super) struct AccessControl {
    rules: AccessRules,
    clients: BTreeMap<LinkId, ConnectedClient>,
    changes: PendingChanges,
    /// GUIDs that were generated for sessions which run, or whose outcome is kept.
    generated_guids: BTreeSet<Guid>,
}

/// Returns the rights that running a session requires.
pub(super) fn rights_to_run(config: &SessionConfig) -> Rights {
    rights_for(config.log_file_mode & EVENT_TRACE_REAL_TIME_MODE != 0, config.log_file.is_some())
}

/// Returns the rights that running a kind of session requires. A session that is neither live nor
/// written to a file keeps its events in memory and can write them to a file later.
pub(super) fn rights_for(is_live: bool, has_file: bool) -> Rights {
    match (is_live, has_file) {
        (true, false) => Rights::TRACELOG_CREATE_REALTIME,
        (true, true) => Rights::TRACELOG_CREATE_REALTIME | Rights::TRACELOG_CREATE_ONDISK,
        (false, _) => Rights::TRACELOG_CREATE_ONDISK,
    }
}

impl AccessControl {
    pub(super) fn new(rules: AccessRules) -> Self {
        Self {
            rules,
            clients: BTreeMap::new(),
            changes: PendingChanges::default(),
            generated_guids: BTreeSet::new(),
        }
    }

    pub(super) fn rules(&self) -> &AccessRules {
        &self.rules
    }

    #[cfg(test)]
    pub(super) fn rules_mut(&mut self) -> &mut AccessRules {
        &mut self.rules
    }

    pub(super) fn add_client(&mut self, link: LinkId, client: ConnectedClient) {
        self.clients.insert(link, client);
    }

    /// Adds the daemon itself as a controller.
    pub(super) fn add_own_link(&mut self, now: Instant) {
        self.clients.insert(OWN_LINK, ConnectedClient::for_daemon(now));
    }

    pub(super) fn remove_client(&mut self, link: LinkId) -> Option<ConnectedClient> {
        self.clients.remove(&link)
    }

    pub(super) fn client(&self, link: LinkId) -> Option<&ConnectedClient> {
        self.clients.get(&link)
    }

    pub(super) fn client_mut(&mut self, link: LinkId) -> Option<&mut ConnectedClient> {
        self.clients.get_mut(&link)
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = &ConnectedClient> {
        self.clients.values()
    }

    /// Returns the connections that read a session.
    pub(super) fn consumers_of(&self, id: u64) -> impl Iterator<Item = LinkId> {
        let reads = move |client: &ConnectedClient| matches!(client.consumer_state, ConsumerState::Session { session, .. } if session == id);
        self.clients.iter().filter(move |(_, client)| reads(client)).map(|(link, _)| *link)
    }

    pub(super) fn peer(&self, link: LinkId) -> Option<Peer> {
        self.client(link).map(|client| client.peer)
    }

    pub(super) fn peer_name(&self, link: LinkId) -> PeerName {
        PeerName(self.peer(link))
    }

    /// Returns the user at the other end of a connection.
    pub(super) fn uid(&self, link: LinkId) -> Result<u32, Refusal> {
        self.peer(link).map(|peer| peer.uid).ok_or_else(closed_connection)
    }

    /// Returns the user that resources are charged to; the user of a closed connection counts as a
    /// guest.
    pub(super) fn claimant(&self, link: LinkId) -> Claimant {
        Claimant { uid: self.uid(link).unwrap_or(u32::MAX), is_guest: self.is_guest(link) }
    }

    /// Returns the process at the other end of a connection and its identity with all groups.
    pub(super) fn process_and_identity(&self, link: LinkId) -> Option<(u32, UserIdentity)> {
        self.client(link).map(|client| (client.peer.pid, client.identity.clone()))
    }

    /// Returns whether access lists and the limits for guests apply to the peer of a connection.
    pub(super) fn is_guest(&self, link: LinkId) -> bool {
        self.peer(link).is_none_or(|peer| self.rules.is_guest(&peer))
    }

    /// Checks that the peer of a connection may have a role; returns the version of the protocol.
    pub(super) fn admit(&self, link: LinkId, versions: (u16, u16), role: Role) -> Result<u16, Refusal> {
        let version = common_version(versions).map_err(|e| Refusal::new(e.status(), e.to_string()))?;
        let client = self.client(link).ok_or_else(closed_connection)?;
        if client.is_from_knock && role != Role::Provider {
            return Err(Refusal::new(
                Status::ERROR_INVALID_PARAMETER,
                "a connection that the daemon opened is for a provider only",
            ));
        }
        if !self.rules.admits(&client.identity, role) {
            let reason = admission_refusal(role, client.peer.uid);
            return Err(Refusal::new(Status::ERROR_ACCESS_DENIED, reason));
        }
        Ok(version)
    }

    /// Checks that the peer of a connection has these rights on a session, provider or group, given
    /// by GUID. Logs a refusal.
    pub(super) fn check_right(
        &self,
        link: LinkId,
        object: Guid,
        right: impl Into<Rights>,
    ) -> Result<(), Refusal> {
        let client = self.client(link).ok_or_else(closed_connection)?;
        let missing = self.rules.missing_rights(&client.identity, object, right.into());
        if missing.is_empty() {
            return Ok(());
        }
        let (object_name, uid, pid) = (describe_object(object, missing), client.peer.uid, client.peer.pid);
        log_refusal!("uid {uid}, process {pid}: no {missing} on {object_name}");
        let remedy = grant_command(&object_argument(object), uid, missing);
        Err(Refusal::new(
            Status::ERROR_ACCESS_DENIED,
            format!("this needs {missing} on {object_name}; {remedy}"),
        ))
    }

    /// Like [`check_right`](Self::check_right), without logging a refusal.
    pub(super) fn has_right(&self, link: LinkId, object: Guid, right: Rights) -> bool {
        self.client(link)
            .is_some_and(|client| self.rules.missing_rights(&client.identity, object, right).is_empty())
    }

    /// Checks that the peer of a connection may enable a provider at all, in whichever session.
    pub(super) fn check_enable(&self, link: LinkId, provider: Guid) -> Result<(), Refusal> {
        self.check_right(link, provider, Rights::TRACELOG_GUID_ENABLE)
    }

    /// Returns whether a guest's process may write to a session: a secure session requires
    /// `TRACELOG_LOG_EVENT`. A process without that right gets no error, since it did not request
    /// anything.
    pub(super) fn may_log(&self, link: LinkId, config: &SessionConfig) -> bool {
        config.log_file_mode & EVENT_TRACE_SECURE_MODE == 0
            || self.check_right(link, config.guid, Rights::TRACELOG_LOG_EVENT).is_ok()
    }

    /// Checks that the peer of a connection may start or read a session with this configuration, or
    /// have its events written to a file. For a system logger, this requires the right to kernel
    /// events. Reading another user's system logger shows as much of the machine as starting one.
    /// Its current groups do not matter, since they can change at any moment.
    pub(super) fn check_kernel_access(&self, link: LinkId, config: &SessionConfig) -> Result<(), Refusal> {
        if is_system_logger(config) { self.check_kernel_right(link) } else { Ok(()) }
    }

    /// Checks that the peer of a connection may see kernel events: by the access list of the
    /// kernel's GUID, or by its own right to profile the system.
    pub(super) fn check_kernel_right(&self, link: LinkId) -> Result<(), Refusal> {
        if self.has_right(link, SYSTEM_TRACE_CONTROL, Rights::TRACELOG_ACCESS_KERNEL_LOGGER) {
            return Ok(());
        }
        self.check_profiling(link).map_err(about_kernel_events)
    }

    /// Checks that the peer of a connection may profile the system. The process must be the one
    /// that connected, must have had the right when it connected, and must still have it. A process
    /// can execute another program meanwhile, and the right of that program must not serve the
    /// holder of the connection.
    pub(super) fn check_profiling(&self, link: LinkId) -> Result<(), Refusal> {
        let is_permitted = self.client(link).is_some_and(|client| {
            let is_permitted = client.could_profile && process::may_profile(client.peer.pid, client.peer.uid);
            is_permitted
                && client.process.is_some()
                && ProcessKey::from_pid(client.peer.pid) == client.process
        });
        if is_permitted {
            return Ok(());
        }
        let reason = "profiling the system requires CAP_PERFMON or CAP_SYS_ADMIN: run as root, or grant it with setcap cap_perfmon+ep PROGRAM";
        Err(Refusal::new(Status::ERROR_PRIVILEGE_NOT_HELD, reason))
    }

    /// Removes the right to profile from the peer of a connection.
    #[cfg(test)]
    pub(super) fn forbid_profiling(&mut self, link: LinkId) {
        if let Some(client) = self.clients.get_mut(&link) {
            client.could_profile = false;
        }
    }
}

/// Prefixes a refusal with its subject, since a session may be refused for other reasons.
pub(super) fn about_kernel_events(refusal: Refusal) -> Refusal {
    Refusal { reason: format!("kernel events: {}", refusal.reason), ..refusal }
}

fn closed_connection() -> Refusal {
    Refusal::new(Status::ERROR_INVALID_HANDLE, "the connection is closed")
}

/// Returns the reason for not admitting a user in a role.
fn admission_refusal(role: Role, uid: u32) -> String {
    match role {
        Role::Provider => format!(
            "this daemon serves its own user and root only, and uid {uid} is neither; the system daemon serves all users"
        ),
        Role::Controller => format!(
            "uid {uid} may not control this daemon's sessions: no list grants it one of the rights query, change-access, create-realtime, \
             create-file and enable, which the built-in list grants to the group {CONTROLLER_GROUP}; an administrator can put the user in it with: \
             usermod -aG {CONTROLLER_GROUP} USER, or grant a right with: weir access grant OBJECT --user {uid} RIGHT…"
        ),
        Role::Consumer => {
            let right = Rights::TRACELOG_ACCESS_REALTIME;
            let remedy = grant_command("SESSION", uid, right);
            format!(
                "uid {uid} may not read this daemon's sessions, which needs {right} on the session (the built-in list grants it to the group {CONTROLLER_GROUP}); {remedy}"
            )
        }
    }
}

/// Names an object and its kind, derived from the missing rights.
fn describe_object(object: Guid, rights: Rights) -> String {
    if object == DEFAULT_TRACE_SECURITY {
        return format!("the default list {{{object}}}");
    }
    let kind = if rights.intersects(Rights::TRACELOG_GUID_ENABLE | Rights::TRACELOG_REGISTER_GUIDS) {
        "provider"
    } else if rights.intersects(Rights::TRACELOG_JOIN_GROUP) {
        "group"
    } else if rights.intersects(Rights::WMIGUID_SET) {
        "object"
    } else {
        "session"
    };
    format!("{kind} {{{object}}}")
}

/// Returns the command-line argument for an object.
fn object_argument(object: Guid) -> String {
    if object == DEFAULT_TRACE_SECURITY { "default".to_owned() } else { object.to_string() }
}

/// Returns the command with which an administrator can grant the rights.
fn grant_command(object: &str, uid: u32, rights: Rights) -> String {
    let named = Rights::NAMED.iter().filter(|(right, ..)| rights.contains(*right));
    let names: String = named.map(|(.., short)| format!(" {short}")).collect();
    format!("an administrator can grant it with: weir access grant {object} --user {uid}{names}")
}
