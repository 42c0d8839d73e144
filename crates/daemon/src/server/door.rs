//! PeerName gets in, and what is asked of him before he is trusted with anything.
//!
//! ```text
//!   accepted, or knocked at ─▶ room? ─▶ watched, five seconds to say Hello ─▶ introduced: all the time, and descriptors for controllers
//!                               └─ no: told so, and closed
//! ```
//!
//! Guests lose the right to send descriptors when they are accepted; what they sent before, and their end, are a janitor's business. How much room there is, and for whom, is
//! told in [`limits`](crate::limits).

use std::time::{Duration, Instant};

use rustix::event::epoll;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Message, Role};
use traceweir_transport::socket::Connection;

use super::link::Link;
use super::{PATIENCE, Server};
use crate::access::Identity;
use crate::limits::{Crowd, MAX_LINKS, MAX_LINKS_OF_GUEST};
use crate::log::{log_refusal, log_warning};
use crate::process::ProcessKey;
use crate::service::LinkId;

/// Connections taken in one turn.
const MAX_AT_ONCE: usize = 64;
/// How long a guest's process that was knocked at may take to say hello; it may be stopped, and should be found all the same.
const PATIENCE_WITH_KNOCKED: Duration = Duration::from_secs(60);
/// How long the listener rests when no descriptor is left.
const REST: Duration = Duration::from_millis(100);

impl Server {
    /// Accepts connections at every socket, a number of them at a time: the others are there in the
    /// next turn.
    pub(super) fn accept_all(&mut self) {
        let tokens: Vec<u64> = self.home.listeners().map(|(token, _)| token).collect();
        tokens.into_iter().for_each(|token| self.accept_from(token));
    }

    /// Accepts connections at the socket that the loop knows by this token.
    pub(super) fn accept_from(&mut self, token: u64) {
        for _ in 0..MAX_AT_ONCE {
            let Some((_, listener)) = self.home.listeners().find(|(its, _)| *its == token) else { return };
            match listener.accept() {
                Ok(Some(connection)) => self.adopt(connection.with_janitor(&self.janitor), false),
                Ok(None) => return,
                Err(e) => {
                    // Out of descriptors, most likely: asking again at once would be asking for ever.
                    log_warning!("no connection can be taken: {e}");
                    for (_, listener) in self.home.listeners() {
                        // It may rest already.
                        let _ = epoll::delete(&self.epoll, listener);
                    }
                    self.resting_until = Some(Instant::now() + REST);
                    return;
                }
            }
        }
    }

    pub(super) fn adopt(&mut self, connection: Connection, knocked: bool) {
        let peer = connection.peer();
        if !self.has_room(&connection) {
            let reason = format!(
                "too many connections: the daemon has {MAX_LINKS}, and of one user who does not control it {MAX_LINKS_OF_GUEST}"
            );
            log_refusal!("uid {}, process {}: {reason}", peer.uid, peer.pid);
            let message = Message::Refused { status: Status::ERROR_NO_SYSTEM_RESOURCES.0, reason };
            // It is closed in any case; whether it hears why is its own affair.
            let _ = connection.send(0, &message, &[], Duration::ZERO);
            return;
        }
        let is_guest = self.service.access().is_guest(&peer);
        // A controller among guests may send some again when it has said hello. Processes of root
        // and the daemon's own user send memory.
        let set = if is_guest { connection.refuse_descriptors() } else { connection.take_descriptors() };
        if set.is_err() {
            return;
        }
        let identity = is_guest.then(|| Identity::of(&peer, connection.peer_groups()));
        let process = process_behind(&connection);
        self.last_link += 1;
        let id = self.last_link;
        let is_reserved = self.descriptors.are_scarce(&connection, false);
        let mut link = Link::new(connection);
        if link.watch(&self.epoll, id).is_err() {
            return;
        }
        self.links.insert(id, link);
        self.service.connected(id, peer, process, knocked);
        if is_reserved {
            self.service.mark_reserved(id);
        }
        if let Some(identity) = identity {
            self.service.set_identity(id, identity);
        }
        self.expect(id, hello_within(knocked, is_guest));
    }

    /// Whether there is room for another connection of this peer. Guests leave room for those who control the daemon.
    fn has_room(&self, connection: &Connection) -> bool {
        let (peer, access) = (connection.peer(), self.service.access());
        let peers = || self.links.values().map(Link::peer);
        let crowd = Crowd {
            all: self.links.len(),
            guests: peers().filter(|it| access.is_guest(it)).count(),
            of_user: peers().filter(|it| it.uid == peer.uid).count(),
        };
        let may_control = || access.allows(&Identity::of(&peer, connection.peer_groups()), Role::Controller);
        let is_one_too_many = access.is_guest(&peer)
            && (!crowd.has_room_for_guest() || self.descriptors.are_scarce(connection, true))
            && !may_control();
        crowd.has_room() && !is_one_too_many
    }

    /// A link that has said hello has all the time it wants, and may send what its role has to send.
    pub(super) fn introduced(&mut self, id: LinkId) {
        if self.service.is_introduced(id) {
            self.expect(id, None);
        }
        let takes = self.service.may_send_files(id);
        if takes && self.links.get_mut(&id).is_some_and(|link| !link.take_descriptors()) {
            self.drop_link(id);
        }
    }

    /// Accepts again after a rest.
    pub(super) fn listen_again(&mut self, now: Instant) {
        if self.resting_until.is_none_or(|until| now < until) {
            return;
        }
        self.resting_until = None;
        for (token, listener) in self.home.listeners() {
            let data = epoll::EventData::new_u64(token);
            if let Err(e) = epoll::add(&self.epoll, listener, data, epoll::EventFlags::IN) {
                log_warning!("the listener does not come back: {e}");
            }
        }
    }
}

/// The process at the other end. Its id was fixed when the connection was made: where it has ended since, nobody knows whose that is now.
fn process_behind(connection: &Connection) -> Option<ProcessKey> {
    let key = ProcessKey::from_pid(connection.peer().pid)?;
    // Afterwards: who lives now was the one that had the id.
    (!connection.peer_has_ended()).then_some(key)
}

/// How long a new connection may take to say who it is; `None`: as long as it likes.
fn hello_within(knocked: bool, guest: bool) -> Option<Duration> {
    match (knocked, guest) {
        (false, _) => Some(PATIENCE),
        (true, true) => Some(PATIENCE_WITH_KNOCKED),
        (true, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_says_hello_in_time_but_those_of_ours_who_were_found_asleep() {
        assert_eq!(hello_within(false, false), Some(PATIENCE));
        assert_eq!(hello_within(false, true), Some(PATIENCE));
        assert_eq!(hello_within(true, true), Some(PATIENCE_WITH_KNOCKED));
        assert_eq!(hello_within(true, false), None);
    }
}
