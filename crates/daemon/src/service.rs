//! All state of the daemon; a message in, effects out, no sockets.
//!
//! ```text
//!   connected ─┐                                              ┌─▶ Effect::Send { link, message, descriptors }
//!   handle    ─┤                                              ├─▶ Effect::Close { link }
//!   notice    ─┼─▶ clients · registry · sessions · waits ─────┘
//!   tick      ─┤        │             ▲
//!   disconnected        └─ Session ───┘ Notice, from the session's threads
//! ```
//!
//! A link is a number that stands for a connection and is never used twice. Its life:
//!
//! ```text
//!   connected ──Hello──▶ provider | controller | consumer ──▶ disconnected
//!       └── anything else, or a message out of role: Refused, then Close
//! ```
//!
//! What a request needs from a process (acknowledgements) or from a session's thread (a finished file) is not waited for here: it is
//! remembered as a wait or as the state of the session, and the answer follows when the last piece comes or time is up.

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
use crate::log::{audit, enabled, info, refused, told, warning};
use crate::logfile::{Files, Passed};
use crate::process::{ProcessKey, may_profile};
use crate::registry::Registry;
pub(crate) use notice::{Notice, Post};
pub(crate) use own::OWN;
use private::Privates;
use sessions::Sessions;
use unserved::Unserved;
use wait::{Purpose, Waits};

/// Stands for a connection.
pub(crate) type LinkId = u64;

/// What the service wants done to a connection, in order.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Send it this.
    Send {
        /// To whom.
        link: LinkId,
        /// Number of the request it answers; 0 for none.
        request: u32,
        /// What.
        message: Message,
        /// Along with it.
        descriptors: Vec<OwnedFd>,
    },
    /// Close it once all was sent.
    Close {
        /// Whom.
        link: LinkId,
    },
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    link: LinkId,
    request: u32,
}

/// Somebody as the log names him: user and process.
#[derive(Clone, Copy, Debug)]
struct Who(Option<Peer>);

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Peer { uid, pid, .. }) => write!(f, "uid {uid}, process {pid}"),
            None => f.write_str("somebody who is gone"),
        }
    }
}

/// A connection as the service knows it.
#[derive(Debug)]
struct Client {
    peer: Peer,
    /// The process itself, where it was there and could be seen when it connected.
    process: Option<ProcessKey>,
    /// Whether it had a right to profile the system then.
    could_profile: bool,
    /// The same with all its groups, where they count.
    identity: Identity,
    role: Option<Role>,
    /// The daemon made the connection: only a provider is at its other end.
    knocked: bool,
    /// The connection took one of the descriptors that are kept for controllers and sessions.
    is_reserved: bool,
    /// When it last said something.
    spoke: Instant,
    /// The session it reads and its number there, once that is settled.
    reads: Reads,
}

/// How far a consumer has come.
#[derive(Debug, PartialEq, Eq)]
enum Reads {
    Nothing,
    Opening,
    Session { session: u64, consumer: u64 },
}

/// All state.
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
    /// Files that are looked at for sessions that there is no place for.
    looking: usize,
    descriptors: Descriptors,
    janitor: Janitor,
    effects: Vec<Effect>,
    leaving: bool,
    used: Instant,
}

impl Service {
    /// An empty service; `daemon` is a random number for its life, `post` takes what session threads report, the janitor what
    /// nobody asked for.
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
            looking: 0,
            descriptors: Descriptors::of_process(),
            janitor,
            effects: Vec::new(),
            leaving: false,
            used: Instant::now(),
        }
    }

    /// What is to be done to connections since the last call.
    pub(crate) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Somebody connected, or (`knocked`) was connected to.
    pub(crate) fn connected(&mut self, link: LinkId, peer: Peer, process: Option<ProcessKey>, knocked: bool) {
        let (identity, spoke) = (Identity::alone(&peer), Instant::now());
        let could_profile = may_profile(peer.pid, peer.uid);
        let (role, reads) = (None, Reads::Nothing);
        let is_reserved = false;
        let client =
            Client { peer, process, could_profile, identity, role, knocked, is_reserved, spoke, reads };
        self.clients.insert(link, client);
        if knocked {
            self.send(link, 0, Message::Knock { versions: traceweir_transport::message::VERSIONS });
        }
    }

    /// Who may do what.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// The groups of who is at the other end of a connection have become known.
    pub(crate) fn identified(&mut self, link: LinkId, identity: Identity) {
        if let Some(client) = self.clients.get_mut(&link) {
            client.identity = identity;
        }
    }

    /// A connection took one of the descriptors that are kept for controllers and sessions.
    pub(crate) fn took_reserved_descriptor(&mut self, link: LinkId) {
        if let Some(client) = self.clients.get_mut(&link) {
            client.is_reserved = true;
        }
    }

    /// Whether a connection has said who it is.
    pub(crate) fn is_introduced(&self, link: LinkId) -> bool {
        self.clients.get(&link).is_some_and(|client| client.role.is_some())
    }

    /// Whether a connection is of those that have files to send.
    pub(crate) fn sends_files(&self, link: LinkId) -> bool {
        self.clients.get(&link).is_some_and(|client| client.role == Some(Role::Controller))
    }

    /// A connection is gone.
    pub(crate) fn disconnected(&mut self, link: LinkId) {
        let Some(client) = self.clients.remove(&link) else { return };
        match client.role {
            Some(Role::Provider) => self.vanished(link),
            Some(Role::Consumer) => {
                self.stopped_reading(&client.reads);
                self.used = Instant::now();
            }
            Some(Role::Controller) => {
                for wait in self.waits.of(link) {
                    self.give_up(wait);
                }
                self.private_controller_left(link);
                for session in self.sessions.tied_to(link) {
                    self.begin_stop(session, None);
                }
            }
            None => {}
        }
    }

    /// A message came.
    pub(crate) fn handle(&mut self, link: LinkId, envelope: Envelope) {
        let Some(client) = self.clients.get_mut(&link) else { return };
        client.spoke = Instant::now();
        let role = client.role;
        let Envelope { request, message, descriptors } = envelope;
        let mut passed = Passed::new(descriptors, &self.janitor);
        let asker = Asker { link, request };
        match (role, message) {
            (None, Message::Hello { versions, role, instance, program }) => {
                self.hello(asker, versions, role, instance, &program);
            }
            (Some(Role::Provider), Message::Region { session, params }) => {
                self.region_offered(asker, session, params, &mut passed);
            }
            (Some(Role::Provider), message) => self.provider_says(asker, message),
            (Some(Role::Controller), message) => {
                self.controller_says(asker, message, passed);
            }
            (Some(Role::Consumer), Message::OpenConsumer { session }) => {
                if let Err(refusal) = self.open_consumer(asker, &session) {
                    self.refuse(asker, refusal);
                }
            }
            _ => self.out_of_role(asker),
        }
    }

    /// A connection sent something that is no message.
    pub(crate) fn malformed(&mut self, link: LinkId, why: &str) {
        let refusal = Refusal::new(Status::ERROR_INVALID_PARAMETER, why);
        self.refuse_and_close(Asker { link, request: 0 }, refusal);
    }

    fn out_of_role(&mut self, asker: Asker) {
        let refusal = Refusal::new(Status::ERROR_INVALID_PARAMETER, "this message has no place here");
        self.refuse_and_close(asker, refusal);
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let others = [self.privates.deadline(), self.information.deadline()];
        [self.waits.deadline(), self.unserved.deadline()].into_iter().chain(others).flatten().min()
    }

    /// Time has passed: ends waits whose time is up, and tries again what there was no room for.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.serve_unserved(now);
        self.expire_privates(now);
        self.capture_due_states(now);
        for wait in self.waits.expired(now) {
            if let Some(purpose) = self.give_up(wait) {
                let why = "a process did not answer in time; what was asked for stands";
                self.wait_ended(purpose, Err(Refusal::new(Status::ERROR_TIMEOUT, why)));
            }
        }
    }

    /// Waits no more; what it was for.
    fn give_up(&mut self, wait: u64) -> Option<Purpose> {
        for link in self.waits.links(wait) {
            if let Some(process) = self.registry.processes.get_mut(link) {
                process.awaited.retain(|_, awaited| *awaited != wait);
            }
        }
        self.waits.remove(wait)
    }

    /// Since when nobody has needed the daemon; `None` while somebody does, or is about to say whether he does.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let needs = |client: &Client| match client.role {
            Some(Role::Consumer) => true,
            Some(Role::Provider | Role::Controller) => false,
            None => !client.knocked,
        };
        // A controller in the middle of its work is given time; questions of one that has left are not held against us.
        let controllers = self.clients.values().filter(|client| client.role == Some(Role::Controller));
        let spoke = controllers.map(|client| client.spoke).max();
        let is_idle = self.sessions.is_empty()
            && self.privates.is_empty()
            && self.information.is_of_sessions_only()
            && !self.clients.values().any(needs);
        is_idle.then(|| spoke.map_or(self.used, |spoke| spoke.max(self.used)))
    }

    /// Takes no new work and stops all sessions.
    pub(crate) fn shut_down(&mut self) {
        self.leaving = true;
        for id in self.sessions.running() {
            self.begin_stop(id, None);
        }
    }

    /// Whether all sessions are finished.
    pub(crate) fn is_finished(&self) -> bool {
        self.leaving && self.sessions.is_empty()
    }

    /// Names of sessions that are not finished, for the log.
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

    fn reply(&mut self, asker: Asker, message: Message) {
        self.send(asker.link, asker.request, message);
    }

    fn refuse(&mut self, asker: Asker, refusal: Refusal) {
        self.reply(asker, refusal.message());
    }

    fn refuse_and_close(&mut self, asker: Asker, refusal: Refusal) {
        self.refuse(asker, refusal);
        self.effects.push(Effect::Close { link: asker.link });
    }

    fn peer(&self, link: LinkId) -> Option<Peer> {
        self.clients.get(&link).map(|client| client.peer)
    }

    /// Who is at the other end of a connection, as the log names him.
    fn who(&self, link: LinkId) -> Who {
        Who(self.peer(link))
    }

    /// Who asks, for what he may use up; one who is gone is a guest.
    fn claimant(&self, asker: Asker) -> Claimant {
        let uid = self.peer(asker.link).map_or(u32::MAX, |peer| peer.uid);
        Claimant { uid, is_guest: self.is_guest(asker.link) }
    }

    /// The process at the other end of a connection, and who it is with its groups.
    fn starter(&self, link: LinkId) -> Option<(u32, Identity)> {
        self.clients.get(&link).map(|client| (client.peer.pid, client.identity.clone()))
    }
}

/// How long a process may take to close a region before the session goes on without its word.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
