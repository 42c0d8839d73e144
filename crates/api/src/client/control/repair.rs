//! Recovery after the program closed descriptors of the library.
//!
//! ```text
//!   the library has its own descriptor table ─▶ the program cannot reach it: nothing to do
//!   a sandbox refuses that ─▶ high numbers, checked before each use (`eventfds`,
//!        │                    `socket::GuardedDescriptor`)
//!        └─ the program closed a number ─▶ neither used nor closed, and forgotten
//!             the bell of the control thread  made again
//!             a listener                      listens again, under another name
//!             a connection, an eventfd        the connection is lost (`control`)
//!                                             ─▶ connected again (`reconnect`)
//!                                             ─▶ each session that enables a provider again gets a
//!                                                report that it may have missed events
//! ```
//!
//! The check precedes the use, so a program that closes a number and opens a file under it between
//! check and use is still harmed. A separate table is the only protection without that window.

use std::collections::VecDeque;
use std::time::Duration;

use traceweir_transport::message::EnableCode;

use super::ControlThread;
use crate::client::link::DaemonFolder;
use crate::process;
use crate::process::outlets::SessionOwner;

/// The interval at which an idle control thread checks its descriptors.
const DESCRIPTOR_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of remembered sessions; some end and never come back.
const MAX_MISSED_SESSIONS: usize = 256;

/// Sessions that may have missed events while the library had lost its descriptors: folder and
/// session.
#[derive(Debug, Default)]
pub(super) struct MissedSessions(VecDeque<(usize, u64)>);

impl MissedSessions {
    fn add(&mut self, folder: usize, session: u64) {
        if !self.0.contains(&(folder, session)) {
            self.0.push_back((folder, session));
        }
        if self.0.len() > MAX_MISSED_SESSIONS {
            self.0.pop_front();
        }
    }
}

impl ControlThread {
    /// Returns how long the control thread may sleep before it checks its descriptors; `None` if
    /// the program cannot close them.
    pub(super) fn descriptor_check_interval(&self) -> Option<Duration> {
        process::shares_descriptors().then_some(DESCRIPTOR_CHECK_INTERVAL)
    }

    /// Finds descriptors that the program closed, and replaces them.
    pub(super) fn replace_closed_descriptors(&mut self) {
        if !process::shares_descriptors() {
            return;
        }
        // If no descriptor is available now, the next check tries again.
        let _ = self.wakers.renew_bell();
        let lost = self.wakers.take_lost();
        let shared = self.client.lock();
        let lost_sessions = shared.outlets.sessions.iter().filter(|open| lost & (1 << open.outlet) != 0);
        let owners: Vec<SessionOwner> = lost_sessions.map(|open| open.owner).collect();
        drop(shared);
        for index in (0..self.peers.len()).rev() {
            let peer = &self.peers[index];
            if peer.is_closed_by_program() {
                // `drop_peer` remembers the sessions and schedules the reconnect itself.
                self.drop_peer(index);
            } else if owners.contains(&SessionOwner::Peer(peer.id)) {
                let folder = peer.folder;
                self.remember_missed_sessions(index);
                self.reconnects.schedule_after_program_close(folder);
                self.drop_peer(index);
            }
        }
        let replaced =
            self.folders.iter_mut().filter_map(|folder| folder.replace_lost_listener().then_some(()));
        if replaced.count() > 0 {
            self.client.lock().sockets = self.folders.iter().filter_map(DaemonFolder::socket_path).collect();
            self.schedule_folder_retry();
        }
    }

    /// Remembers which sessions of a connection miss events from now on.
    pub(super) fn remember_missed_sessions(&mut self, index: usize) {
        let peer = &self.peers[index];
        let owner = SessionOwner::Peer(peer.id);
        let shared = self.client.lock();
        for open in shared.outlets.sessions.iter().filter(|open| open.owner == owner) {
            self.missed.add(peer.folder, open.session);
        }
    }

    /// Returns whether a session that enables a registration may have missed events, and forgets
    /// the session. Returns `false` for other codes than an enable.
    pub(super) fn take_missed_session(&mut self, index: usize, session: u64, code: EnableCode) -> bool {
        let folder = self.peers[index].folder;
        let before = self.missed.0.len();
        if code == EnableCode::Enable {
            self.missed.0.retain(|missed| *missed != (folder, session));
        }
        self.missed.0.len() < before
    }
}
