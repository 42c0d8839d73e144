//! Accepting connections, and the checks before a connection is served.
//!
//! ```text
//!   accepted, or knocked at ─▶ limits ─▶ watched, with a deadline to send Hello ─▶ introduced
//!                               └─ exceeded: refused, counted, and closed
//!
//!   introduced: no deadline, controllers may send descriptors
//! ```
//!
//! Guests lose the right to send descriptors when they are accepted. A janitor closes the
//! descriptors that they sent before, and later their connections. [`limits`](crate::limits)
//! defines the maximum numbers of connections.

use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventFlags};
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Message, Role};
use traceweir_transport::socket::Connection;

use super::link::ClientLink;
use super::{LINK_TIMEOUT, Server};
use crate::access::UserIdentity;
use crate::ids::LinkId;
use crate::limits::{
    ConnectionCounts, MAX_LINKS, MAX_LINKS_BEFORE_HELLO_PER_GUEST, MAX_LINKS_OF_ALL_GUESTS,
    MAX_LINKS_PER_GUEST,
};
use crate::log::{log_refusal, log_warning};
use crate::process::ProcessKey;

/// Maximum number of connections accepted in one turn.
const MAX_ACCEPTS_PER_TURN: usize = 64;
/// How long a guest's process that the daemon connected to may take to send `Hello`: long, so that
/// a process that is stopped for a while is found too.
const KNOCKED_HELLO_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the listeners pause when no descriptor is left.
const LISTENER_PAUSE: Duration = Duration::from_millis(100);

impl Server {
    /// Accepts a limited number of connections at every socket; others stay ready for the next
    /// turn.
    pub(super) fn accept_all(&mut self) {
        let tokens: Vec<u64> = self.served_folder.listeners().map(|(token, _)| token).collect();
        tokens.into_iter().for_each(|token| self.accept_from(token));
    }

    /// Accepts connections at the socket with this epoll token.
    pub(super) fn accept_from(&mut self, token: u64) {
        for accepted in 0..MAX_ACCEPTS_PER_TURN {
            let Some((_, listener)) = self.served_folder.listeners().find(|(other, _)| *other == token)
            else {
                return;
            };
            match listener.accept() {
                Ok(Some(connection)) => self.add_link(connection.with_janitor(&self.janitor), false),
                Ok(None) => return self.note_accepted(token, accepted, false),
                Err(e) => {
                    // Most likely out of descriptors: trying again at once would loop forever.
                    log_warning!("no connection can be accepted: {e}");
                    for (_, listener) in self.served_folder.listeners() {
                        // The listener may be paused already.
                        let _ = epoll::delete(&self.epoll, listener);
                    }
                    self.paused_until = Some(Instant::now() + LISTENER_PAUSE);
                    self.turns.note_pause();
                    return self.note_accepted(token, accepted, false);
                }
            }
        }
        self.note_accepted(token, MAX_ACCEPTS_PER_TURN, true);
    }

    /// Counts connections of processes that may have sent regions before the daemon accepted them:
    /// requests of controllers wait until these regions are attached. Processes at other listeners
    /// write only after the daemon's reply.
    fn note_accepted(&mut self, token: u64, count: usize, has_more: bool) {
        if self.served_folder.receives_early_regions(token) {
            self.turns.note_accepted(count, has_more);
        }
    }

    /// Adds a connection, or refuses it because of a limit.
    pub(super) fn add_link(&mut self, connection: Connection, is_from_knock: bool) {
        let peer = connection.peer();
        if !self.can_accept(&connection, is_from_knock) {
            let reason = format!(
                "too many connections or descriptors: the daemon accepts {MAX_LINKS} connections, {MAX_LINKS_OF_ALL_GUESTS} of users who may not control it, {MAX_LINKS_PER_GUEST} of each such user, {MAX_LINKS_BEFORE_HELLO_PER_GUEST} of them before Hello"
            );
            // The peer may be a provider process: only its `Hello` would show the role.
            self.service.count_refused_process(peer_process(&connection));
            log_refusal!("uid {}, process {}: {reason}", peer.uid, peer.pid);
            let message = Message::Refused { status: Status::ERROR_NO_SYSTEM_RESOURCES.0, reason };
            // The connection is closed in any case, whether or not the peer reads the reason.
            let _ = connection.send(0, &message, &[], Duration::ZERO);
            return;
        }
        let is_guest = self.service.access().is_guest(&peer);
        // A guest's controller may send descriptors again after `Hello`. Processes of root and the
        // daemon's own user send regions.
        let result = if is_guest { connection.refuse_descriptors() } else { connection.allow_descriptors() };
        if result.is_err() {
            return;
        }
        let identity = is_guest.then(|| UserIdentity::with_groups(&peer, connection.peer_groups()));
        let process = peer_process(&connection);
        self.last_link += 1;
        let id = self.last_link;
        let uses_reserved_descriptor = self.descriptors.is_withheld(&connection, false);
        let mut link = ClientLink::new(connection);
        if link.watch(&self.epoll, id).is_err() {
            return;
        }
        self.links.insert(id, link);
        self.service.add_connection(id, peer, process, is_from_knock, Instant::now());
        if uses_reserved_descriptor {
            self.service.mark_reserved_descriptor(id);
        }
        if let Some(identity) = identity {
            self.service.set_identity(id, identity);
        }
        self.expect_within(id, hello_timeout(is_from_knock, is_guest));
    }

    /// Returns whether the limits permit another connection of this peer. Guests who may not
    /// control the daemon have lower limits, so that connections are left for other users.
    fn can_accept(&mut self, connection: &Connection, is_from_knock: bool) -> bool {
        let peer = connection.peer();
        let mut connections = self.count_connections(peer.uid);
        if !self.service.access().is_guest(&peer) {
            return connections.is_below_total_limit();
        }
        if !is_from_knock && connections.has_too_many_before_hello() {
            // A `Hello` that has arrived counts, even if the loop had no time to read it. The time
            // is up at once, so one message of each connection is handled.
            for id in self.links_before_hello(peer.uid) {
                self.serve_link(id, EventFlags::IN, Some(Instant::now()));
            }
            connections = self.count_connections(peer.uid);
        }
        let access = self.service.access();
        let may_control =
            || access.admits(&UserIdentity::with_groups(&peer, connection.peer_groups()), Role::Controller);
        let exceeds_guest_limits = !connections.is_below_guest_limits()
            || (!is_from_knock && connections.has_too_many_before_hello())
            || self.descriptors.is_withheld(connection, true);
        connections.is_below_total_limit() && (!exceeds_guest_limits || may_control())
    }

    fn count_connections(&self, uid: u32) -> ConnectionCounts {
        let access = self.service.access();
        let peers = || self.links.values().map(ClientLink::peer);
        ConnectionCounts {
            all: self.links.len(),
            guests: peers().filter(|peer| access.is_guest(peer)).count(),
            of_user: peers().filter(|peer| peer.uid == uid).count(),
            before_hello_of_user: self.links_before_hello(uid).len(),
        }
    }

    /// Returns the accepted connections of a user that have not sent `Hello`.
    fn links_before_hello(&self, uid: u32) -> Vec<LinkId> {
        let links = self.links.iter().filter(|(_, link)| link.peer().uid == uid);
        links.map(|(id, _)| *id).filter(|id| self.service.is_before_hello(*id)).collect()
    }

    /// Removes the deadline of a link that has sent `Hello`, and lets a controller send
    /// descriptors.
    pub(super) fn finish_hello(&mut self, id: LinkId) {
        if self.service.is_introduced(id) {
            self.expect_within(id, None);
        }
        let may_send = self.service.may_send_files(id);
        if may_send && self.links.get_mut(&id).is_some_and(|link| !link.allow_descriptors()) {
            self.drop_link(id);
        }
    }

    /// Accepts connections again after a pause.
    pub(super) fn resume_listening(&mut self, now: Instant) {
        if self.paused_until.is_none_or(|until| now < until) {
            return;
        }
        self.paused_until = None;
        self.resume_waiting_controllers();
        for (token, listener) in self.served_folder.listeners() {
            let data = epoll::EventData::new_u64(token);
            if let Err(e) = epoll::add(&self.epoll, listener, data, EventFlags::IN) {
                log_warning!("the listener cannot be resumed: {e}");
            }
        }
    }
}

/// Returns the key of the process at the other end, if it is visible. Its id was fixed when the
/// connection was made: if that process has ended since, the id may belong to another process, and
/// the key is [`ProcessKey::ENDED`].
fn peer_process(connection: &Connection) -> Option<ProcessKey> {
    let key = ProcessKey::from_pid(connection.peer().pid);
    // The check comes after the key was read: a process that still runs had the id all the time.
    if connection.peer_has_ended() { Some(ProcessKey::ENDED) } else { key }
}

/// Returns how long a new connection may take to send `Hello`; `None`: without limit.
fn hello_timeout(is_from_knock: bool, is_guest: bool) -> Option<Duration> {
    match (is_from_knock, is_guest) {
        (false, _) => Some(LINK_TIMEOUT),
        (true, true) => Some(KNOCKED_HELLO_TIMEOUT),
        (true, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_has_a_deadline_unless_daemon_knocked_at_a_process_that_is_no_guest() {
        assert_eq!(hello_timeout(false, false), Some(LINK_TIMEOUT));
        assert_eq!(hello_timeout(false, true), Some(LINK_TIMEOUT));
        assert_eq!(hello_timeout(true, true), Some(KNOCKED_HELLO_TIMEOUT));
        assert_eq!(hello_timeout(true, false), None);
    }
}
