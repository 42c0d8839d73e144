//! Sockets that are known: their ends and their owners, by the kernel's address of them.
//!
//! ```text
//!   TCP    connecting ──▶ established ──▶ closed (stays: what is left may still be read) ──▶ written over by the next socket there
//!   UDP    found in /proc ──▶ asked again in each look whether it is still the same
//! ```
//!
//! 1. Connections change their state visibly, so what is known of them is true. UDP sockets come and go silently: what /proc says of one is believed for the look in
//!    which it was read, and then checked.
//! 2. Everything is bounded, and so is what is read for sockets that nobody knows: [`MAX_SEARCHES`] in a look, and one socket [once a second](PATIENCE).

use std::collections::{HashMap, HashSet};

use super::ends::Ends;
use super::find::{self, Found};
use crate::now_ns;
use crate::out::Written;

/// A process that nobody told of.
pub(super) const NOBODY: u32 = u32::MAX;
/// Sockets that are remembered.
const MAX_SOCKETS: usize = 1 << 16;
/// Searches through /proc in one look.
const MAX_SEARCHES: u32 = 16;
/// Nanoseconds before a socket that was not found is searched again.
const PATIENCE: u64 = 1_000_000_000;
/// Sockets that were not found and are remembered.
const MAX_NOT_FOUND: usize = 1 << 12;

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) ends: Ends,
    /// The process that it belongs to.
    pub(super) owner: u32,
    /// This side asked for the connection.
    pub(super) is_connecting: bool,
    is_closed: bool,
}

impl Socket {
    /// One that asks for a connection.
    pub(super) const fn connecting(ends: Ends, owner: u32) -> Self {
        Self { ends, owner, is_connecting: true, is_closed: false }
    }

    const fn established(ends: Ends, owner: u32) -> Self {
        Self { ends, owner, is_connecting: false, is_closed: false }
    }
}

/// A UDP socket of a process.
#[derive(Clone, Copy, Debug)]
struct Datagrams {
    found: Found,
    /// The look in which that was so.
    look: u64,
}

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct State {
    tcp: HashMap<u64, Socket>,
    /// By socket and process: those of another process are other sockets.
    udp: HashMap<(u64, u32), Datagrams>,
    /// Connections that nobody has used in this look, in which their beginnings were written.
    accepted: HashMap<u64, Written>,
    /// When a socket of a process was searched in vain.
    not_found: HashMap<(u64, u32), u64>,
    look: u64,
    /// When the look began, in nanoseconds.
    now: u64,
    searches: u32,
}

impl State {
    pub(super) fn begin_look(&mut self) {
        self.look = self.look.wrapping_add(1);
        self.now = now_ns();
        self.searches = 0;
        self.accepted.clear();
    }

    /// A connection begins that somebody will accept; or one begins in the place of such a one.
    pub(super) fn accepted(&mut self, sk: u64, begun: Option<Written>) {
        self.accepted.remove(&sk);
        if let Some(begun) = begun.filter(|_| self.accepted.len() < MAX_SOCKETS) {
            self.accepted.insert(sk, begun);
        }
    }

    /// The beginning of a connection that is used for the first time, if it can be completed still.
    pub(super) fn take_accepted(&mut self, sk: u64) -> Option<Written> {
        self.accepted.remove(&sk)
    }

    /// Forgets all sockets. What was searched stays: who makes records be lost must not make us search without end.
    pub(super) fn forget(&mut self) {
        self.tcp.clear();
        self.udp.clear();
        self.accepted.clear();
    }

    pub(super) fn insert(&mut self, sk: u64, socket: Socket) {
        if self.tcp.len() >= MAX_SOCKETS && !self.tcp.contains_key(&sk) {
            self.tcp.retain(|_, it| !it.is_closed);
            if self.tcp.len() >= MAX_SOCKETS {
                self.tcp.clear();
            }
        }
        self.tcp.insert(sk, socket);
    }

    pub(super) fn remove(&mut self, sk: u64) {
        self.tcp.remove(&sk);
    }

    /// A connection is there: its owner asked for it. Who accepts is not known before it is used: a port says nothing, for each network has its own.
    pub(super) fn established(&mut self, sk: u64, ends: Ends) -> Socket {
        let asked = self.tcp.get(&sk).filter(|it| it.is_connecting && !it.is_closed).copied();
        let socket = match asked {
            Some(asked) => Socket { ends, ..asked },
            None => Socket::established(ends, NOBODY),
        };
        self.insert(sk, Socket { is_connecting: false, ..socket });
        socket
    }

    /// A connection has ended.
    pub(super) fn closed(&mut self, sk: u64, ends: Ends) -> Socket {
        let mut socket = self.learn(sk, ends);
        socket.is_closed = true;
        self.insert(sk, socket);
        socket
    }

    /// Something has told the ends of a connection.
    pub(super) fn learn(&mut self, sk: u64, ends: Ends) -> Socket {
        let known = self.tcp.get(&sk).copied();
        let owner = known.map_or(NOBODY, |it| it.owner);
        let socket = known.unwrap_or(Socket::established(ends, owner));
        let socket = Socket { ends, ..socket };
        if known != Some(socket) {
            self.insert(sk, socket);
        }
        socket
    }

    /// The ends of a connection that a process uses, who owns it by that.
    pub(super) fn tcp(&mut self, sk: u64, process: u32, is_v6: bool) -> Ends {
        if let Some(known) = self.tcp.get_mut(&sk) {
            known.owner = process;
            return known.ends;
        }
        let Some(found) =
            self.search(sk, process, |_| find::socket("tcp", is_v6, sk, process, &HashSet::new()))
        else {
            return Ends::unknown(is_v6);
        };
        self.insert(sk, Socket::established(found.ends, process));
        found.ends
    }

    /// The ends of a UDP socket that a process uses.
    pub(super) fn udp(&mut self, sk: u64, process: u32, is_v6: bool) -> Ends {
        let look = self.look;
        if let Some(known) = self.udp.get_mut(&(sk, process)) {
            if known.look == look || known.found.is_there(process) {
                known.look = look;
                return known.found.ends;
            }
            self.udp.remove(&(sk, process));
        }
        let search = |state: &Self| {
            let of_process = |it: (&(u64, u32), &Datagrams)| (it.0.1 == process).then_some(it.1.found.inode);
            let taken: HashSet<u64> = state.udp.iter().filter_map(of_process).collect();
            find::socket("udp", is_v6, sk, process, &taken)
        };
        let Some(found) = self.search(sk, process, search) else { return Ends::unknown(is_v6) };
        if self.udp.len() >= MAX_SOCKETS {
            self.udp.clear();
        }
        self.udp.insert((sk, process), Datagrams { found, look });
        found.ends
    }

    /// Searches for a socket, unless that was done a moment ago, or too much was searched in this look.
    fn search(
        &mut self,
        sk: u64,
        process: u32,
        search: impl FnOnce(&Self) -> Option<Found>,
    ) -> Option<Found> {
        let last = self.not_found.get(&(sk, process)).copied();
        if last.is_some_and(|last| self.now.saturating_sub(last) < PATIENCE) {
            return None;
        }
        self.searches = self.searches.checked_add(1).filter(|it| *it <= MAX_SEARCHES)?;
        let found = search(self);
        if found.is_some() {
            self.not_found.remove(&(sk, process));
        } else {
            if self.not_found.len() >= MAX_NOT_FOUND {
                self.not_found.clear();
            }
            self.not_found.insert((sk, process), self.now);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u32) -> Ends {
        Ends::new((&[1; 16], port), (&[2; 16], 9))
    }

    #[test]
    fn a_connection_belongs_to_who_asked_or_to_nobody_until_it_is_used() {
        let mut state = State::default();
        state.insert(1, Socket::connecting(ends(0), 10));
        let asked = state.established(1, ends(5));
        assert_eq!((asked.owner, asked.is_connecting, asked.ends.local_port()), (10, true, 5));
        assert_eq!(state.established(2, ends(80)).owner, NOBODY);
        state.tcp(2, 20, true);
        assert_eq!(state.learn(2, ends(80)).owner, 20);
    }

    #[test]
    fn who_uses_a_connection_owns_it() {
        let mut state = State::default();
        state.learn(1, ends(5));
        assert_eq!(state.tcp(1, 33, true), ends(5));
        assert_eq!(state.closed(1, ends(5)).owner, 33);
        // The same address is another socket later.
        assert_eq!(state.established(1, ends(6)).owner, NOBODY);
    }

    #[test]
    fn sockets_are_bounded_and_ended_ones_go_first() {
        let mut state = State::default();
        state.learn(0, ends(1));
        for sk in 1..MAX_SOCKETS as u64 + 10 {
            state.closed(sk, ends(2));
        }
        assert!(state.tcp.len() <= MAX_SOCKETS && state.tcp.contains_key(&0));
    }

    #[test]
    fn searches_are_bounded_for_a_look_and_for_a_socket() {
        let mut state = State::default();
        state.begin_look();
        let mut searched = 0;
        for sk in [1; 50].into_iter().chain(2..100) {
            state.search(sk, 7, |_| {
                searched += 1;
                None
            });
        }
        assert_eq!((searched, state.not_found.len()), (MAX_SEARCHES, MAX_SEARCHES as usize));
        state.forget();
        state.search(100, 7, |_| panic!("a loss allows no more"));
        state.begin_look();
        state.forget();
        state.search(1, 7, |_| panic!("it was not found a moment ago"));
    }
}
