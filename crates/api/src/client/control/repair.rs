//! Recovery from descriptors that the program closed.
//!
//! ```text
//!   the library has its own table ─▶ the program cannot reach it: nothing to do
//!   a sandbox refuses that ─▶ high numbers, checked before each use (`eventfds`, `socket::Held`)
//!        └─ a number is not ours any more ─▶ neither used nor closed, and forgotten
//!             the bell of the control thread  made again
//!             a listener                      listens again, under another name
//!             a connection, an eventfd        the connection is lost (`control`)
//!                                             ─▶ connected again (`reconnect`)
//!                                             ─▶ each session that comes back counts the process
//! ```
//!
//! The check precedes the use, so a program that closes a number and opens a file under it between
//! the two is still harmed. A separate table is the only protection without that window.

use std::collections::VecDeque;
use std::time::Duration;

use traceweir_transport::message::EnableCode;

use super::Control;
use crate::client::link::Link;
use crate::process;
use crate::process::outlets::Owner;

/// The interval at which unused descriptors are checked.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of remembered sessions; some end and never come back.
const MAX_MISSED: usize = 256;

/// Sessions that may have missed events while the library had lost its descriptors: folder and
/// session.
#[derive(Debug, Default)]
pub(super) struct MissedSessions(VecDeque<(usize, u64)>);

impl MissedSessions {
    fn add(&mut self, link: usize, session: u64) {
        if !self.0.contains(&(link, session)) {
            self.0.push_back((link, session));
        }
        if self.0.len() > MAX_MISSED {
            self.0.pop_front();
        }
    }
}

impl Control {
    /// Returns how long the control thread may sleep before it checks its descriptors.
    pub(super) fn check_within(&self) -> Option<Duration> {
        process::shares_descriptors().then_some(CHECK_EVERY)
    }

    /// Finds descriptors that the program closed, and replaces them.
    pub(super) fn repair(&mut self) {
        if !process::shares_descriptors() {
            return;
        }
        // If no descriptor is available now, the next check tries again.
        let _ = self.wakers.renew_bell();
        let lost = self.wakers.take_lost();
        let shared = self.client.lock();
        let of_lost = shared.table.open.iter().filter(|open| lost & (1 << open.outlet) != 0);
        let owners: Vec<Owner> = of_lost.map(|open| open.owner).collect();
        drop(shared);
        for at in (0..self.peers.len()).rev() {
            let peer = &self.peers[at];
            if peer.is_closed_by_program() {
                self.drop_peer(at);
            } else if owners.contains(&Owner::Peer(peer.id)) {
                let link = peer.link;
                self.note_missed(at);
                self.reconnects.closed_by_program(link);
                self.drop_peer(at);
            }
        }
        let replaced = self.links.iter_mut().filter_map(|link| link.replace_lost_listener().then_some(()));
        if replaced.count() > 0 {
            self.client.lock().sockets = self.links.iter().filter_map(Link::socket).collect();
            self.plan_try();
        }
    }

    /// Remembers which sessions of a connection miss events from now on.
    pub(super) fn note_missed(&mut self, at: usize) {
        let peer = &self.peers[at];
        let owner = Owner::Peer(peer.id);
        let shared = self.client.lock();
        for open in shared.table.open.iter().filter(|open| open.owner == owner) {
            self.missed.add(peer.link, open.session);
        }
    }

    /// Returns whether a session that enables a registration has missed events, and forgets it.
    pub(super) fn take_missed(&mut self, at: usize, session: u64, code: EnableCode) -> bool {
        let link = self.peers[at].link;
        let before = self.missed.0.len();
        if code == EnableCode::Enable {
            self.missed.0.retain(|missed| *missed != (link, session));
        }
        self.missed.0.len() < before
    }
}
