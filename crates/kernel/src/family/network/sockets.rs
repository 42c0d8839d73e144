//! Known sockets: their endpoints and owners, by the kernel's address of the socket.
//!
//! ```text
//!   TCP    connecting ──▶ established ──▶ closed (kept: remaining data may still be read)
//!          ──▶ replaced by the next socket at this address
//!   UDP    found in /proc ──▶ used in a later poll: first checked to be still the same socket
//! ```
//!
//! 1. State changes of TCP connections are captured, so their entries are correct. UDP sockets
//!    are opened and closed without a record: what `/proc` shows is used in the poll in which it
//!    was read, and checked in later ones.
//! 2. All tables are bounded, and so are the searches for unknown sockets: [`MAX_SEARCHES`] in a
//!    poll, and for the same socket [one a second](RETRY_NS).

use std::collections::{HashMap, HashSet};

use super::endpoints::Endpoints;
use super::find::{self, ProcSocket};
use crate::clock::now_ns;
use crate::out::PayloadPosition;

/// The process id of an unknown owner.
pub(super) const UNKNOWN_PROCESS: u32 = u32::MAX;
/// The most sockets in each table.
const MAX_SOCKETS: usize = 1 << 16;
/// The most searches of `/proc` in one poll.
const MAX_SEARCHES: u32 = 16;
/// Nanoseconds before a socket that was not found is searched for again.
const RETRY_NS: u64 = 1_000_000_000;
/// The most sockets that are kept as not found.
const MAX_NOT_FOUND: usize = 1 << 12;

/// A TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpSocket {
    pub(super) endpoints: Endpoints,
    /// The process that uses the connection.
    pub(super) owner: u32,
    /// Whether this side requested the connection, which is not established yet.
    /// [`Sockets::establish`] returns the value from before the connection was established.
    pub(super) is_connecting: bool,
    is_closed: bool,
}

impl TcpSocket {
    /// Builds a socket that requests a connection.
    pub(super) const fn new_connecting(endpoints: Endpoints, owner: u32) -> Self {
        Self { endpoints, owner, is_connecting: true, is_closed: false }
    }

    pub(super) const fn new_established(endpoints: Endpoints, owner: u32) -> Self {
        Self { endpoints, owner, is_connecting: false, is_closed: false }
    }
}

/// A UDP socket of a process.
#[derive(Clone, Copy, Debug)]
struct UdpSocket {
    socket: ProcSocket,
    /// The last poll in which the socket was checked.
    poll: u64,
}

/// An accepted connection whose process is unknown until the connection is used.
#[derive(Clone, Copy, Debug)]
pub(super) enum PendingAccept {
    /// The event was written in this poll and can be completed.
    Written(PayloadPosition),
    /// The event is written when its process is known, if that is in scope.
    Deferred(Endpoints),
}

/// All known sockets.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    tcp: HashMap<u64, TcpSocket>,
    /// UDP sockets by kernel address and process. A socket that processes share has an entry for
    /// each.
    udp: HashMap<(u64, u32), UdpSocket>,
    /// Accept events whose process is still unknown, by the kernel's address of the connection's
    /// socket.
    pending_accepts: HashMap<u64, PendingAccept>,
    /// When a search for a socket of a process last failed.
    not_found: HashMap<(u64, u32), u64>,
    poll: u64,
    /// When the poll began, in nanoseconds.
    poll_start_ns: u64,
    search_count: u32,
}

impl Sockets {
    pub(super) fn begin_poll(&mut self) {
        self.poll = self.poll.wrapping_add(1);
        self.poll_start_ns = now_ns();
        self.search_count = 0;
        self.pending_accepts.retain(|_, accept| matches!(accept, PendingAccept::Deferred(_)));
    }

    /// Stores the accept event of a new connection. `None`, for a connection that this side
    /// requested, removes the event of an earlier socket at the same address.
    pub(super) fn set_pending_accept(&mut self, sk: u64, accept: Option<PendingAccept>) {
        self.pending_accepts.remove(&sk);
        if let Some(accept) = accept.filter(|_| self.pending_accepts.len() < MAX_SOCKETS) {
            self.pending_accepts.insert(sk, accept);
        }
    }

    /// Removes and returns the accept event of a connection, if it can still be completed.
    pub(super) fn take_pending_accept(&mut self, sk: u64) -> Option<PendingAccept> {
        self.pending_accepts.remove(&sk)
    }

    /// Drops all sockets. Failed searches are kept: a program that causes lost records must not
    /// cause endless searches.
    pub(super) fn clear(&mut self) {
        self.tcp.clear();
        self.udp.clear();
        self.pending_accepts.clear();
    }

    pub(super) fn insert(&mut self, sk: u64, socket: TcpSocket) {
        if self.tcp.len() >= MAX_SOCKETS && !self.tcp.contains_key(&sk) {
            self.tcp.retain(|_, socket| !socket.is_closed);
            if self.tcp.len() >= MAX_SOCKETS {
                self.tcp.clear();
            }
        }
        self.tcp.insert(sk, socket);
    }

    pub(super) fn remove(&mut self, sk: u64) -> Option<TcpSocket> {
        self.tcp.remove(&sk)
    }

    /// Handles an established connection. A connection that this side requested keeps its owner.
    /// The process that accepts a connection is unknown until it uses the connection: the port does
    /// not identify the process, because each network namespace has its own ports.
    pub(super) fn establish(&mut self, sk: u64, endpoints: Endpoints) -> TcpSocket {
        let existing = self.tcp.get(&sk).copied();
        let requested = existing.filter(|socket| socket.is_connecting && !socket.is_closed);
        let socket = match requested {
            Some(requested) => TcpSocket { endpoints, ..requested },
            None => TcpSocket::new_established(endpoints, UNKNOWN_PROCESS),
        };
        self.insert(sk, TcpSocket { is_connecting: false, ..socket });
        socket
    }

    pub(super) fn close(&mut self, sk: u64, endpoints: Endpoints) -> TcpSocket {
        let mut socket = self.update_endpoints(sk, endpoints);
        socket.is_closed = true;
        self.insert(sk, socket);
        socket
    }

    /// Sets the endpoints of a connection from a record that contains them.
    pub(super) fn update_endpoints(&mut self, sk: u64, endpoints: Endpoints) -> TcpSocket {
        let existing = self.tcp.get(&sk).copied();
        let owner = existing.map_or(UNKNOWN_PROCESS, |socket| socket.owner);
        let socket = existing.unwrap_or(TcpSocket::new_established(endpoints, owner));
        let socket = TcpSocket { endpoints, ..socket };
        if existing != Some(socket) {
            self.insert(sk, socket);
        }
        socket
    }

    /// Returns the endpoints of a connection that a process uses, and makes the process its owner.
    pub(super) fn use_tcp(&mut self, sk: u64, process: u32, is_v6: bool) -> Endpoints {
        if let Some(existing) = self.tcp.get_mut(&sk) {
            existing.owner = process;
            return existing.endpoints;
        }
        let search = |_: &Self| find::find_socket("tcp", is_v6, sk, process, &HashSet::new());
        let Some(socket) = self.search_if_due(sk, process, search) else {
            return Endpoints::with_unknown_addresses(is_v6);
        };
        self.insert(sk, TcpSocket::new_established(socket.endpoints, process));
        socket.endpoints
    }

    /// Returns the endpoints of a UDP socket that a process uses.
    pub(super) fn use_udp(&mut self, sk: u64, process: u32, is_v6: bool) -> Endpoints {
        let poll = self.poll;
        if let Some(existing) = self.udp.get_mut(&(sk, process)) {
            if existing.poll == poll || existing.socket.is_open(process) {
                existing.poll = poll;
                return existing.socket.endpoints;
            }
            self.udp.remove(&(sk, process));
        }
        let search = |sockets: &Self| {
            let known_sockets = sockets.udp.iter().filter(|((_, owner), _)| *owner == process);
            let taken: HashSet<u64> = known_sockets.map(|(_, existing)| existing.socket.inode).collect();
            find::find_socket("udp", is_v6, sk, process, &taken)
        };
        let Some(socket) = self.search_if_due(sk, process, search) else {
            return Endpoints::with_unknown_addresses(is_v6);
        };
        if self.udp.len() >= MAX_SOCKETS {
            self.udp.clear();
        }
        self.udp.insert((sk, process), UdpSocket { socket, poll });
        socket.endpoints
    }

    /// Runs a search for a socket, unless it failed less than [`RETRY_NS`] ago or this poll has
    /// used up its searches.
    fn search_if_due(
        &mut self,
        sk: u64,
        process: u32,
        search: impl FnOnce(&Self) -> Option<ProcSocket>,
    ) -> Option<ProcSocket> {
        let failed_ns = self.not_found.get(&(sk, process)).copied();
        if failed_ns.is_some_and(|failed_ns| self.poll_start_ns.saturating_sub(failed_ns) < RETRY_NS) {
            return None;
        }
        self.search_count = self.search_count.checked_add(1).filter(|count| *count <= MAX_SEARCHES)?;
        let socket = search(self);
        if socket.is_some() {
            self.not_found.remove(&(sk, process));
        } else {
            if self.not_found.len() >= MAX_NOT_FOUND {
                self.not_found.clear();
            }
            self.not_found.insert((sk, process), self.poll_start_ns);
        }
        socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(port: u32) -> Endpoints {
        Endpoints::new((&[1; 16], port), (&[2; 16], 9))
    }

    #[test]
    fn connection_is_owned_by_its_requester_or_first_user() {
        let mut sockets = Sockets::default();
        sockets.insert(1, TcpSocket::new_connecting(endpoints(0), 10));
        let requested = sockets.establish(1, endpoints(5));
        let (owner, is_connecting) = (requested.owner, requested.is_connecting);
        assert_eq!((owner, is_connecting, requested.endpoints.local_port()), (10, true, 5));
        assert_eq!(sockets.establish(2, endpoints(80)).owner, UNKNOWN_PROCESS);
        sockets.use_tcp(2, 20, true);
        assert_eq!(sockets.update_endpoints(2, endpoints(80)).owner, 20);
    }

    #[test]
    fn user_of_a_connection_owns_it() {
        let mut sockets = Sockets::default();
        sockets.update_endpoints(1, endpoints(5));
        assert_eq!(sockets.use_tcp(1, 33, true), endpoints(5));
        assert_eq!(sockets.close(1, endpoints(5)).owner, 33);
        // The address now belongs to another socket.
        assert_eq!(sockets.establish(1, endpoints(6)).owner, UNKNOWN_PROCESS);
    }

    #[test]
    fn sockets_are_bounded_and_closed_ones_dropped_first() {
        let mut sockets = Sockets::default();
        sockets.update_endpoints(0, endpoints(1));
        for sk in 1..MAX_SOCKETS as u64 + 10 {
            sockets.close(sk, endpoints(2));
        }
        assert!(sockets.tcp.len() <= MAX_SOCKETS && sockets.tcp.contains_key(&0));
    }

    #[test]
    fn searches_are_bounded_per_poll_and_per_socket() {
        let mut sockets = Sockets::default();
        sockets.begin_poll();
        let mut searched = 0;
        for sk in [1; 50].into_iter().chain(2..100) {
            sockets.search_if_due(sk, 7, |_| {
                searched += 1;
                None
            });
        }
        assert_eq!((searched, sockets.not_found.len()), (MAX_SEARCHES, MAX_SEARCHES as usize));
        sockets.clear();
        sockets.search_if_due(100, 7, |_| panic!("more searches than a poll allows"));
        sockets.begin_poll();
        sockets.clear();
        sockets.search_if_due(1, 7, |_| panic!("a search too soon after a failed one"));
    }
}
