//! The state of one connection in the service.

use std::fmt;
use std::time::Instant;

use traceweir_transport::message::Role;
use traceweir_transport::socket::Peer;

use crate::access::UserIdentity;
use crate::process::{ProcessKey, may_profile};

/// One connection: its peer, rights and role.
#[derive(Debug)]
pub(in crate::service) struct ConnectedClient {
    pub(in crate::service) peer: Peer,
    /// Key of the process. `None` if the process was not visible when it connected,
    /// [`ProcessKey::ENDED`] if it had ended already.
    pub(in crate::service) process: Option<ProcessKey>,
    /// Whether the process had the right to profile the system when it connected.
    pub(super) could_profile: bool,
    /// The peer with all its groups, once they have been looked up.
    pub(in crate::service) identity: UserIdentity,
    pub(in crate::service) role: Option<Role>,
    /// The daemon opened the connection, so only a provider can be at its other end.
    pub(in crate::service) is_from_knock: bool,
    /// The connection uses one of the descriptors reserved for controllers and sessions.
    pub(in crate::service) uses_reserved_descriptor: bool,
    /// When the client last sent a message.
    pub(in crate::service) last_message: Instant,
    pub(in crate::service) consumer_state: ConsumerState,
}

impl ConnectedClient {
    /// Creates the state of a connection that has just been made. `is_from_knock`: the daemon
    /// opened it.
    pub(in crate::service) fn new(
        peer: Peer,
        process: Option<ProcessKey>,
        is_from_knock: bool,
        now: Instant,
    ) -> Self {
        Self {
            peer,
            process,
            could_profile: may_profile(peer.pid, peer.uid),
            identity: UserIdentity::without_groups(&peer),
            role: None,
            is_from_knock,
            uses_reserved_descriptor: false,
            last_message: now,
            consumer_state: ConsumerState::Nothing,
        }
    }

    /// Creates the state of the daemon's link to itself, which has no connection.
    pub(super) fn for_daemon(now: Instant) -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let peer = Peer { pid: std::process::id(), uid, gid };
        let role = Some(Role::Controller);
        Self { could_profile: false, role, ..Self::new(peer, None, false, now) }
    }
}

/// The progress of a consumer connection: it reads no session, a queue was requested from a
/// session, or the consumer has the queue.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::service) enum ConsumerState {
    Nothing,
    Opening,
    Session { session: u64, consumer: traceweir_session::ConsumerId },
}

/// Formats a peer as "uid U, process P" for the log.
#[derive(Clone, Copy, Debug)]
pub(in crate::service) struct PeerName(pub(in crate::service) Option<Peer>);

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Peer { uid, pid, .. }) => write!(f, "uid {uid}, process {pid}"),
            None => f.write_str("a process that has disconnected"),
        }
    }
}
