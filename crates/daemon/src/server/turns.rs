//! PeerName is served when, where many want something at once.
//!
//! ```text
//!   a turn:  hung up ─▶ door, inbox, signals ─▶ root and the daemon's own user ─▶ guests, user after user
//!            └ of guests, together GUESTS_SLICE    └ controllers last            └ each GUEST_SLICE, together GUESTS_SLICE
//! ```
//!
//! 1. A connection has [`MAX_IN_A_ROW`] messages in a row, a controller of root or the daemon's own user one, and of a guest's only
//!    as many as begin within its user's slice. What is left over is ready in the next turn.
//! 2. The first user of a turn is the one behind the last of the turn before, and so it is with the connections of each user: nobody waits for ever.
//! 3. So what guests do, all of them together, holds up root for two slices and one message at most.
//! 4. What processes of root and the daemon's own user have sent, and those that connect for the first time, is handled before the requests of their
//!    controllers: a process that registered, wrote and ended before a stop was asked for is in the session.
//! 5. A guest's controller whose request filled the queue of a process is not listened to until that has room again. The process is given
//!    [`PATIENCE`] to make some; then it is dropped, which shows as lost events in its sessions.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;

use super::link::Received;
use super::{FIRST_LINK, HANGUPS, INBOX, LISTENER, OWN_LISTENER, PATIENCE, SIGNALS, STOPPER, Server};
use crate::log::log_client;
use crate::service::LinkId;

/// Messages of one connection handled in a row.
const MAX_IN_A_ROW: usize = 32;
/// How long one guest has in a turn.
const GUEST_SLICE: Duration = Duration::from_millis(4);
/// How long all guests have.
const GUESTS_SLICE: Duration = Duration::from_millis(20);

/// The other end is gone.
const ENDED: EventFlags = EventFlags::HUP.union(EventFlags::ERR);

/// Whose turn it was, and who has to wait.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The guest served last, and of each that was there in the last turn the connection served last.
    last_guest: u32,
    last_links: BTreeMap<u32, LinkId>,
    /// A process whose queue has become long since this was cleared.
    crowded: Option<LinkId>,
    /// Controllers that are not listened to, and the processes they wait for.
    held: BTreeMap<LinkId, LinkId>,
}

type Ready = (LinkId, EventFlags);

impl Server {
    /// Handles what is ready, in the order that is due to each.
    pub(super) fn serve_ready(&mut self, ready: impl Iterator<Item = (u64, EventFlags)>) {
        let (mut ended, mut own, mut guests) = (Vec::new(), Vec::new(), BTreeMap::<u32, Vec<Ready>>::new());
        let mut tokens = Vec::new();
        for (token, flags) in ready {
            if token < FIRST_LINK {
                tokens.push(token);
                continue;
            }
            match self.links.get(&token).map(|link| link.peer()) {
                Some(peer) if self.service.access().is_guest(&peer) && !flags.intersects(ENDED) => {
                    guests.entry(peer.uid).or_default().push((token, flags));
                }
                Some(_) if flags.intersects(ENDED) && !self.is_own_controller(token) => {
                    ended.push((token, flags));
                }
                _ => own.push((token, flags)),
            }
        }
        let until = Instant::now() + GUESTS_SLICE;
        for (id, flags) in ended {
            let until = self.is_guest(id).then_some(until);
            self.serve_link(id, flags, until);
        }
        let last_link = self.last_link;
        tokens.into_iter().for_each(|token| self.serve_token(token));
        for id in last_link.saturating_add(1)..=self.last_link {
            if !self.is_guest(id) {
                self.serve_link(id, EventFlags::IN, None);
            }
        }
        own.sort_by_key(|(id, _)| self.is_own_controller(*id));
        for (id, flags) in own {
            self.serve_link(id, flags, None);
        }
        self.serve_guests(guests);
    }

    fn serve_token(&mut self, token: u64) {
        match token {
            LISTENER | OWN_LISTENER => self.accept_from(token),
            INBOX => self.take_inbox(),
            SIGNALS => self.take_signals(),
            HANGUPS => self.take_hangups(),
            STOPPER => self.stop_requests = self.stop_requests.max(1),
            _ => {}
        }
        self.carry_out();
    }

    fn serve_guests(&mut self, guests: BTreeMap<u32, Vec<Ready>>) {
        let until = Instant::now() + GUESTS_SLICE;
        let last = std::mem::take(&mut self.turns.last_links);
        let (behind, before) = (Excluded(self.turns.last_guest), self.turns.last_guest);
        let order = guests.range((behind, Unbounded)).chain(guests.range(..=before));
        for (uid, links) in order {
            let now = Instant::now();
            if now >= until {
                // Whoever had no turn is where he was.
                self.turns.last_links.extend(last.get_key_value(uid));
                continue;
            }
            self.turns.last_guest = *uid;
            self.serve_guest(*uid, links, last.get(uid).copied().unwrap_or(0), until.min(now + GUEST_SLICE));
        }
    }

    /// Serves the connections of one guest, the one behind the last first.
    fn serve_guest(&mut self, uid: u32, links: &[Ready], last: LinkId, until: Instant) {
        let mut links = links.to_vec();
        links.sort_unstable_by_key(|(id, _)| (*id <= last, *id));
        for (id, flags) in links {
            self.serve_link(id, flags, Some(until));
            self.turns.last_links.insert(uid, id);
            if Instant::now() >= until {
                return;
            }
        }
    }

    /// Handles what a link has to say, as far as it begins in time.
    fn serve_link(&mut self, id: LinkId, flags: EventFlags, until: Option<Instant>) {
        if flags.contains(EventFlags::OUT) {
            self.flush(id);
        }
        let ended = flags.intersects(ENDED);
        // What was said before the end still counts, as far as there is time.
        let most = if ended { usize::MAX } else { MAX_IN_A_ROW };
        for _ in 0..most {
            let Some(link) = self.links.get(&id) else { return };
            self.turns.crowded = None;
            match link.receive() {
                Received::Message(envelope) => {
                    self.service.handle(id, envelope);
                    self.introduced(id);
                }
                Received::Nothing => break,
                Received::Malformed(reason) => self.service.malformed(id, &reason),
                Received::Closed => return self.drop_link(id),
            }
            self.carry_out();
            // A later request may depend on what processes have sent since this turn began.
            let is_held = self.hold_for_crowded(id) || self.is_own_controller(id);
            if (is_held && !ended) || until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
        }
        if ended {
            self.drop_link(id);
        }
        self.carry_out();
    }

    fn is_own_controller(&self, id: LinkId) -> bool {
        self.service.may_send_files(id) && !self.is_guest(id)
    }

    fn is_guest(&self, id: LinkId) -> bool {
        self.links.get(&id).is_some_and(|link| self.service.access().is_guest(&link.peer()))
    }

    /// Something was queued: a process with a long queue has a while to read it.
    pub(super) fn note_crowded(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.is_long()) else { return };
        self.turns.crowded = Some(id);
        if !std::mem::replace(&mut link.is_crowded, true) && link.expires.is_none() {
            self.expect(id, Some(PATIENCE));
        }
    }

    /// Something was sent: whoever has a short queue again has all the time.
    pub(super) fn note_relieved(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.is_crowded && !link.is_long()) else {
            return;
        };
        link.is_crowded = false;
        self.expect(id, None);
    }

    /// Listens no more to a guest who has just made a queue long; whether it does not.
    fn hold_for_crowded(&mut self, id: LinkId) -> bool {
        let Some(process) = self.turns.crowded.take().filter(|process| *process != id) else { return false };
        if !self.is_guest(id) || !self.service.may_send_files(id) {
            return false;
        }
        self.set_held(id, true);
        self.turns.held.insert(id, process);
        true
    }

    /// Listens again to those whose processes have room, or are gone.
    pub(super) fn release(&mut self) {
        let is_crowded = |process: &LinkId| self.links.get(process).is_some_and(|link| link.is_crowded);
        let free: Vec<LinkId> =
            self.turns.held.iter().filter(|(_, process)| !is_crowded(process)).map(|(id, _)| *id).collect();
        for id in free {
            self.turns.held.remove(&id);
            self.set_held(id, false);
        }
    }

    fn set_held(&mut self, id: LinkId, is_held: bool) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.is_held = is_held;
        if link.watch(&self.epoll, id).is_err() {
            self.drop_link(id);
        }
    }

    /// Drops a link that leaves too much unread. Its sessions tell of the loss.
    pub(super) fn drop_unread(&mut self, id: LinkId) {
        let Some(link) = self.links.get(&id) else { return };
        log_client!(
            "connection {id} of process {} does not read what is said to it, and is dropped",
            link.peer().pid
        );
        self.service.count_unread_losses(id);
        self.drop_link(id);
    }
}
