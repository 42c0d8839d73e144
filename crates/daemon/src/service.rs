//! All state of the daemon. A message goes in and effects come out; no sockets are used here.
//!
//! ```text
//!   connected ─┐                                   ┌─▶ Effect::Send { link, message, descriptors }
//!   handle    ─┤                                   ├─▶ Effect::Close { link }
//!   notice    ─┼─▶ clients, registry, sessions, waits
//!   tick      ─┤        │             ▲
//!   disconnected        └─ Session ───┘ Notice, from the session's threads
//! ```
//!
//! A link is a number that identifies a connection and is never reused. Its life cycle:
//!
//! ```text
//!   connected ──Hello──▶ provider | controller | consumer ──▶ disconnected
//!       └── anything else, or a message out of role: Refused, then Close
//! ```
//!
//! A request that needs acknowledgements from processes, or a finished file from a session's
//! thread, does not block here. The service stores it as a wait or in the state of the session, and
//! replies when the last piece arrives or the deadline passes.

mod access;
mod admit;
mod ask;
mod consume;
mod control;
mod enable;
mod end;
mod info;
mod kernel;
mod notice;
mod own;
mod private;
mod provide;
mod sessions;
mod start;
mod unserved;
mod wait;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Message, Role};
use traceweir_transport::socket::{Envelope, Janitor, Peer};

use crate::access::{Access, Identity};
use crate::error::Refusal;
use crate::limits::{Claimant, Descriptors};
use crate::log::{log_audit, log_client, log_enable, log_info, log_refusal, log_warning};
use crate::logfile::{Files, PassedDescriptors};
use crate::process::{ProcessKey, may_profile};
use crate::registry::Registry;
pub(crate) use notice::{Notice, Post};
pub(crate) use own::OWN;
use private::Privates;
use sessions::Sessions;
use unserved::Unserved;
use wait::{Purpose, Waits};

/// The number of a connection.
pub(crate) type LinkId = u64;

/// An action on a connection that the service requests; effects are carried out in order.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Send a message.
    Send {
        link: LinkId,
        /// Number of the request that the message answers; 0 if it answers none.
        request: u32,
        message: Message,
        /// File descriptors to send with the message.
        descriptors: Vec<OwnedFd>,
    },
    /// Close the connection once everything queued was sent.
    Close { link: LinkId },
}

/// The connection and request that a reply goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyTo {
    link: LinkId,
    request: u32,
}

/// Formats a peer as "uid U, process P" for the log.
#[derive(Clone, Copy, Debug)]
struct PeerName(Option<Peer>);

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Peer { uid, pid, .. }) => write!(f, "uid {uid}, process {pid}"),
            None => f.write_str("a process that has disconnected"),
        }
    }
}

/// The service's state of one connection.
#[derive(Debug)]
struct Client {
    peer: Peer,
    /// Key of the process, if the process was visible when it connected.
    process: Option<ProcessKey>,
    /// Whether the process had the right to profile the system when it connected.
    could_profile: bool,
    /// The peer with all its groups, once they have been looked up.
    identity: Identity,
    role: Option<Role>,
    /// The daemon opened the connection, so only a provider can be at its other end.
    knocked: bool,
    /// The connection uses one of the descriptors reserved for controllers and sessions.
    is_reserved: bool,
    /// When the client last sent a message.
    last_message: Instant,
    /// The session that a consumer reads and its consumer number there.
    consumer_state: ConsumerState,
}

/// The progress of a consumer connection.
#[derive(Debug, PartialEq, Eq)]
enum ConsumerState {
    Nothing,
    Opening,
    Session { session: u64, consumer: traceweir_session::ConsumerId },
}

/// All state of the daemon.
pub(crate) struct Service {
    access: Access,
    access_changes: access::Changes,
    daemon: u64,
    post: Post,
    clients: BTreeMap<LinkId, Client>,
    registry: Registry,
    sessions: Sessions,
    privates: Privates,
    waits: Waits,
    files: Files,
    unserved: Unserved,
    information: info::Information,
    kernels: kernel::Kernels,
    /// Number of file checks under way for sessions that are about to be refused.
    file_checks: usize,
    descriptors: Descriptors,
    janitor: Janitor,
    effects: Vec<Effect>,
    leaving: bool,
    used: Instant,
}

impl Service {
    /// Creates an empty service. `daemon` is a random number chosen for this run, `post` receives
    /// the reports of session threads, and the janitor closes descriptors that no request asked
    /// for.
    pub(crate) fn new(
        access: Access,
        max_sessions: usize,
        daemon: u64,
        post: Post,
        janitor: Janitor,
    ) -> Self {
        Self {
            access,
            access_changes: access::Changes::default(),
            daemon,
            post,
            clients: BTreeMap::new(),
            registry: Registry::default(),
            sessions: Sessions::new(max_sessions),
            privates: Privates::default(),
            waits: Waits::default(),
            files: Files::default(),
            unserved: Unserved::default(),
            information: info::Information::default(),
            kernels: kernel::Kernels::default(),
            file_checks: 0,
            descriptors: Descriptors::current(),
            janitor,
            effects: Vec::new(),
            leaving: false,
            used: Instant::now(),
        }
    }

    /// Removes and returns the effects since the last call.
    pub(crate) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Adds a connection. `knocked`: the daemon opened it.
    pub(crate) fn connected(&mut self, link: LinkId, peer: Peer, process: Option<ProcessKey>, knocked: bool) {
        let (identity, last_message) = (Identity::without_groups(&peer), Instant::now());
        let could_profile = may_profile(peer.pid, peer.uid);
        let (role, consumer_state) = (None, ConsumerState::Nothing);
        let is_reserved = false;
        let client = Client {
            peer,
            process,
            could_profile,
            identity,
            role,
            knocked,
            is_reserved,
            last_message,
            consumer_state,
        };
        self.clients.insert(link, client);
        if knocked {
            self.send(link, 0, Message::Knock { versions: traceweir_transport::message::VERSIONS });
        }
    }

    /// Returns the access rules.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Sets the identity of a connection's peer, once its groups have been looked up.
    pub(crate) fn set_identity(&mut self, link: LinkId, identity: Identity) {
        if let Some(client) = self.clients.get_mut(&link) {
            client.identity = identity;
        }
    }

    /// Marks a connection as using one of the descriptors reserved for controllers and sessions.
    pub(crate) fn mark_reserved(&mut self, link: LinkId) {
        if let Some(client) = self.clients.get_mut(&link) {
            client.is_reserved = true;
        }
    }

    /// Returns whether a connection has completed `Hello`.
    pub(crate) fn is_introduced(&self, link: LinkId) -> bool {
        self.clients.get(&link).is_some_and(|client| client.role.is_some())
    }

    /// Returns whether a connection may send files: only controllers may.
    pub(crate) fn may_send_files(&self, link: LinkId) -> bool {
        self.clients.get(&link).is_some_and(|client| client.role == Some(Role::Controller))
    }

    /// Removes a connection and ends what depends on it.
    pub(crate) fn disconnected(&mut self, link: LinkId) {
        let Some(client) = self.clients.remove(&link) else { return };
        match client.role {
            Some(Role::Provider) => self.provider_disconnected(link),
            Some(Role::Consumer) => {
                self.close_consumer(&client.consumer_state);
                self.used = Instant::now();
            }
            Some(Role::Controller) => {
                for wait in self.waits.for_replies_to(link) {
                    self.cancel_wait(wait);
                }
                self.private_controller_left(link);
                for session in self.sessions.tied_to(link) {
                    self.begin_stop(session, None);
                }
            }
            None => {}
        }
    }

    /// Handles a message.
    pub(crate) fn handle(&mut self, link: LinkId, envelope: Envelope) {
        let Some(client) = self.clients.get_mut(&link) else { return };
        client.last_message = Instant::now();
        let role = client.role;
        let Envelope { request, message, descriptors } = envelope;
        let mut passed = PassedDescriptors::new(descriptors, &self.janitor);
        let reply_to = ReplyTo { link, request };
        match (role, message) {
            (None, Message::Hello { versions, role, instance, program }) => {
                self.hello(reply_to, versions, role, instance, &program);
            }
            (Some(Role::Provider), Message::Region { session, params }) => {
                self.region_offered(reply_to, session, params, &mut passed);
            }
            (Some(Role::Provider), message) => self.handle_provider(reply_to, message),
            (Some(Role::Controller), message) => {
                self.handle_controller(reply_to, message, passed);
            }
            (Some(Role::Consumer), Message::OpenConsumer { session }) => {
                if let Err(refusal) = self.open_consumer(reply_to, &session) {
                    self.refuse(reply_to, refusal);
                }
            }
            _ => self.reject_out_of_role(reply_to),
        }
    }

    /// Refuses and closes a connection that sent a malformed message.
    pub(crate) fn malformed(&mut self, link: LinkId, reason: &str) {
        let refusal = Refusal::new(Status::ERROR_INVALID_PARAMETER, reason);
        self.refuse_and_close(ReplyTo { link, request: 0 }, refusal);
    }

    fn reject_out_of_role(&mut self, reply_to: ReplyTo) {
        let refusal =
            Refusal::new(Status::ERROR_INVALID_PARAMETER, "this message is not allowed in this role");
        self.refuse_and_close(reply_to, refusal);
    }

    /// Returns when [`tick`](Self::tick) next has work to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let others = [self.privates.deadline(), self.information.deadline()];
        [self.waits.deadline(), self.unserved.deadline()].into_iter().chain(others).flatten().min()
    }

    /// Does what is due: ends expired waits, and retries enables for which there was no region.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.serve_unserved(now);
        self.expire_privates(now);
        self.capture_due_states(now);
        for wait in self.waits.expired(now) {
            if let Some(purpose) = self.cancel_wait(wait) {
                let reason = "a process did not answer in time; the request stays in effect";
                self.wait_ended(purpose, Err(Refusal::new(Status::ERROR_TIMEOUT, reason)));
            }
        }
    }

    /// Removes a wait; returns its purpose.
    fn cancel_wait(&mut self, wait: u64) -> Option<Purpose> {
        for link in self.waits.links(wait) {
            if let Some(process) = self.registry.processes.get_mut(link) {
                process.awaited.retain(|_, awaited| *awaited != wait);
            }
        }
        self.waits.remove(wait)
    }

    /// Returns since when the daemon has been idle; `None` while it is in use, or while a new
    /// connection has not sent `Hello` yet.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let needs = |client: &Client| match client.role {
            Some(Role::Consumer) => true,
            Some(Role::Provider | Role::Controller) => false,
            None => !client.knocked,
        };
        // A controller that may be in the middle of its work is given time: its last message counts
        // as use. Queries by a controller that has disconnected do not.
        let controllers = self.clients.values().filter(|client| client.role == Some(Role::Controller));
        let last_message = controllers.map(|client| client.last_message).max();
        let is_idle = self.sessions.is_empty()
            && self.privates.is_empty()
            && self.information.has_no_system_settings()
            && !self.clients.values().any(needs);
        is_idle.then(|| last_message.map_or(self.used, |last_message| last_message.max(self.used)))
    }

    /// Stops all sessions and accepts no new work.
    pub(crate) fn shut_down(&mut self) {
        self.leaving = true;
        for id in self.sessions.running() {
            self.begin_stop(id, None);
        }
    }

    /// Returns whether all sessions have finished after [`shut_down`](Self::shut_down).
    pub(crate) fn is_finished(&self) -> bool {
        self.leaving && self.sessions.is_empty()
    }

    /// Returns the names of sessions that have not finished, for the log.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        self.sessions.names()
    }

    fn refuse_when_leaving(&self) -> Result<(), Refusal> {
        if self.leaving {
            return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, "the daemon is shutting down"));
        }
        Ok(())
    }

    fn send(&mut self, link: LinkId, request: u32, message: Message) {
        self.send_with(link, request, message, Vec::new());
    }

    fn send_with(&mut self, link: LinkId, request: u32, message: Message, descriptors: Vec<OwnedFd>) {
        self.effects.push(Effect::Send { link, request, message, descriptors });
    }

    fn reply(&mut self, reply_to: ReplyTo, message: Message) {
        self.send(reply_to.link, reply_to.request, message);
    }

    fn refuse(&mut self, reply_to: ReplyTo, refusal: Refusal) {
        self.reply(reply_to, refusal.into_message());
    }

    fn refuse_and_close(&mut self, reply_to: ReplyTo, refusal: Refusal) {
        self.refuse(reply_to, refusal);
        self.effects.push(Effect::Close { link: reply_to.link });
    }

    fn peer(&self, link: LinkId) -> Option<Peer> {
        self.clients.get(&link).map(|client| client.peer)
    }

    /// Formats the peer of a connection for the log.
    fn peer_name(&self, link: LinkId) -> PeerName {
        PeerName(self.peer(link))
    }

    /// Returns the user that resources are charged to; the user of a closed connection counts as a
    /// guest.
    fn claimant(&self, reply_to: ReplyTo) -> Claimant {
        let uid = self.peer(reply_to.link).map_or(u32::MAX, |peer| peer.uid);
        Claimant { uid, is_guest: self.is_guest(reply_to.link) }
    }

    /// Returns the process at the other end of a connection and its identity with all groups.
    fn starter(&self, link: LinkId) -> Option<(u32, Identity)> {
        self.clients.get(&link).map(|client| (client.peer.pid, client.identity.clone()))
    }
}

/// How long a process may take to close a region before the session stops without its
/// acknowledgement.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
