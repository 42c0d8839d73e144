//! Fair scheduling of connections that are ready at the same time.
//!
//! ```text
//!   a turn:  hung up ─▶ listeners, inbox, signals ─▶ root and the daemon's own user ─▶ guests
//!            └ guests: as in the last step           └ controllers last     user by user ┘
//!                                          GUEST_SLICE each, ALL_GUESTS_SLICE in total ┘
//! ```
//!
//! 1. The loop handles at most [`MAX_MESSAGES_IN_A_ROW`] messages of a connection in a row, but
//!    only one of a controller of root or the daemon's own user. These maxima do not apply to a
//!    connection that was hung up. The loop begins to handle a guest's message only within the
//!    slice of that user. Further messages stay ready for the next turn.
//! 2. The guests' part of a turn begins with the user after the last user of the previous turn, and
//!    each user's part with the connection after the one served last: no client waits forever. A
//!    connection that was hung up is dropped once all its messages are handled, in a later turn if
//!    need be. Until then, the loop does not read the `Hello` of new connections of the same guest:
//!    one of them may replace the old connection.
//! 3. All guests together therefore delay root by at most two times [`ALL_GUESTS_SLICE`], one
//!    message, and the connections that are accepted in one turn.
//! 4. Messages of processes of root and the daemon's own user, including new connections, are
//!    handled before the requests of their controllers: a process that registered, wrote and ended
//!    before a stop was requested is in the session. These controllers also wait while connections
//!    with early regions are not accepted yet, but for at most [`MAX_UNACCEPTED`] connections:
//!    those accepted later were made after the request. No guest can make such a connection. If
//!    none can be accepted for lack of descriptors, the controllers wait for
//!    [`MAX_LISTENER_PAUSES`] pauses of the listeners. A session that is stopped then counts a
//!    process whose events it may have missed.
//! 5. If a request of a guest's controller fills the queue of a process, the loop does not read
//!    from that controller until the queue is short again. The process has [`LINK_TIMEOUT`] to
//!    read; then it is dropped, and its sessions count it as a process with uncounted losses.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use traceweir_transport::socket::BACKLOG;

use super::link::Received;
use super::{FIRST_LINK, HANGUPS, INBOX, LINK_TIMEOUT, LISTENER, OWN_LISTENER, SIGNALS, STOPPER, Server};
use crate::ids::LinkId;
use crate::log::log_client;

/// Maximum number of messages of one connection handled in a row.
const MAX_MESSAGES_IN_A_ROW: usize = 32;
/// Time for one guest in a turn.
const GUEST_SLICE: Duration = Duration::from_millis(4);
/// Time for all guests in a turn: once for connections that were hung up, once for the others.
const ALL_GUESTS_SLICE: Duration = Duration::from_millis(20);

/// Maximum number of connections that wait to be accepted at a listener.
const MAX_UNACCEPTED: usize = BACKLOG as usize + 1;
/// Maximum number of failed attempts to accept connections that a controller waits for.
const MAX_LISTENER_PAUSES: usize = 3;

/// Epoll flags for a closed other end.
const HUNG_UP: EventFlags = EventFlags::HUP.union(EventFlags::ERR);

/// The positions of guests, and the controllers that wait.
#[derive(Debug, Default)]
pub(super) struct TurnSchedule {
    guests: Rotation,
    /// The positions of guests whose connections were hung up.
    ended_guests: Rotation,
    /// A process whose queue became long since this was last cleared.
    crowded: Option<LinkId>,
    /// Controllers that the loop does not read from, and the processes they wait for.
    paused_for_queue: BTreeMap<LinkId, LinkId>,
    /// Connections accepted in this turn, at a listener that receives early regions.
    accepted: usize,
    /// Whether connections that this turn did not accept may wait at such a listener.
    are_more_waiting: bool,
    /// 1 if accepting failed in this turn and the listeners pause, else 0.
    pauses: usize,
    /// The controllers that wait until connections are accepted.
    waiting: BTreeMap<LinkId, ListenerProgress>,
    /// Controllers that the loop does not read from while the listeners pause.
    paused_for_listeners: Vec<LinkId>,
}

/// The accepted connections and pauses since a controller began to wait.
#[derive(Debug, Default)]
struct ListenerProgress {
    accepted: usize,
    pauses: usize,
}

/// Whether a controller's request is handled now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestStart {
    Now,
    /// Now, although connections made before the request cannot be accepted.
    NowDespiteUnaccepted,
    Later,
}

impl TurnSchedule {
    /// Notes how many connections a listener that receives early regions gave in this turn, and
    /// whether it may have more.
    pub(super) fn note_accepted(&mut self, count: usize, has_more: bool) {
        self.accepted += count;
        self.are_more_waiting |= has_more;
    }

    /// Notes that connections could not be accepted, and that the listeners pause.
    pub(super) fn note_pause(&mut self) {
        // All listeners pause together.
        self.pauses = 1;
    }

    /// Decides whether a controller's request waits for connections that were made before it.
    fn decide_start(&mut self, controller: LinkId) -> RequestStart {
        if !self.are_more_waiting {
            self.waiting.clear();
            return RequestStart::Now;
        }
        let waited = self.waiting.entry(controller).or_default();
        waited.accepted += self.accepted;
        waited.pauses += self.pauses;
        let start = match waited {
            ListenerProgress { accepted: MAX_UNACCEPTED.., .. } => RequestStart::Now,
            ListenerProgress { pauses: MAX_LISTENER_PAUSES.., .. } => RequestStart::NowDespiteUnaccepted,
            _ => return RequestStart::Later,
        };
        self.waiting.remove(&controller);
        start
    }
}

/// The positions at which the next turn of the guests continues.
#[derive(Debug, Default)]
struct Rotation {
    last_guest: u32,
    /// The connection served last, for each guest of the last turn.
    last_links: BTreeMap<u32, LinkId>,
}

type ReadyLink = (LinkId, EventFlags);
type ReadyGuests = BTreeMap<u32, Vec<ReadyLink>>;

impl Server {
    /// Handles ready tokens and links in the order that the module documentation describes.
    pub(super) fn serve_ready(&mut self, ready: impl Iterator<Item = (u64, EventFlags)>) {
        let (mut tokens, mut ended, mut own) = (Vec::new(), Vec::new(), Vec::new());
        let (mut ended_guests, mut guests) = (ReadyGuests::new(), ReadyGuests::new());
        for (token, flags) in ready {
            if token < FIRST_LINK {
                tokens.push(token);
                continue;
            }
            match self.links.get(&token).map(|link| link.peer()) {
                Some(peer) if self.service.access().is_guest(&peer) => {
                    let has_ended = flags.intersects(HUNG_UP);
                    let group = if has_ended { &mut ended_guests } else { &mut guests };
                    group.entry(peer.uid).or_default().push((token, flags));
                }
                Some(_) if flags.intersects(HUNG_UP) && !self.is_own_controller(token) => {
                    ended.push((token, flags));
                }
                _ => own.push((token, flags)),
            }
        }
        for (id, flags) in ended {
            self.serve_link(id, flags, None);
        }
        let mut rotation = std::mem::take(&mut self.turns.ended_guests);
        self.serve_guests(&ended_guests, &mut rotation);
        self.turns.ended_guests = rotation;
        let last_link = self.last_link;
        (self.turns.accepted, self.turns.are_more_waiting, self.turns.pauses) = (0, false, 0);
        tokens.into_iter().for_each(|token| self.serve_token(token));
        self.turns.are_more_waiting |= self.paused_until.is_some() && self.served_folder.has_unaccepted();
        // New connections of processes come before the requests of controllers (rule 4).
        for id in last_link.saturating_add(1)..=self.last_link {
            if !self.is_guest(id) {
                self.serve_link(id, EventFlags::IN, None);
            }
        }
        own.sort_by_key(|(id, _)| self.is_own_controller(*id));
        for (id, flags) in own {
            let start =
                if self.is_own_controller(id) { self.turns.decide_start(id) } else { RequestStart::Now };
            if start == RequestStart::Later {
                self.defer_request(id, flags);
                continue;
            }
            self.service.set_unaccepted_processes(start == RequestStart::NowDespiteUnaccepted);
            self.serve_link(id, flags, None);
            self.service.set_unaccepted_processes(false);
        }
        // New connections of a guest wait until its old ones are dropped (rule 2).
        for (uid, links) in ended_guests {
            let Some(ready) = guests.get_mut(&uid) else { continue };
            if links.iter().any(|(id, _)| self.links.contains_key(id)) {
                ready.retain(|(id, _)| self.service.is_introduced(*id));
            }
        }
        let mut rotation = std::mem::take(&mut self.turns.guests);
        self.serve_guests(&guests, &mut rotation);
        self.turns.guests = rotation;
    }

    /// Leaves the request of a controller for a later turn, after the pause if the listeners pause.
    fn defer_request(&mut self, id: LinkId, flags: EventFlags) {
        if flags.contains(EventFlags::OUT) {
            self.flush_link(id);
        }
        if self.paused_until.is_some() && !self.turns.paused_for_listeners.contains(&id) {
            self.turns.paused_for_listeners.push(id);
            self.set_reading_paused(id, true);
        }
    }

    /// Reads again from controllers that waited until the listeners resume.
    pub(super) fn resume_waiting_controllers(&mut self) {
        for id in std::mem::take(&mut self.turns.paused_for_listeners) {
            self.set_reading_paused(id, false);
        }
    }

    fn serve_token(&mut self, token: u64) {
        match token {
            LISTENER | OWN_LISTENER => self.accept_from(token),
            INBOX => self.handle_inbox(),
            SIGNALS => self.read_signals(),
            HANGUPS => self.read_hangups(),
            STOPPER => self.stop_requests = self.stop_requests.max(1),
            _ => {}
        }
        self.apply_effects();
    }

    fn serve_guests(&mut self, guests: &ReadyGuests, rotation: &mut Rotation) {
        let until = Instant::now() + ALL_GUESTS_SLICE;
        let last = std::mem::take(&mut rotation.last_links);
        let (after, up_to) = (Excluded(rotation.last_guest), rotation.last_guest);
        let order = guests.range((after, Unbounded)).chain(guests.range(..=up_to));
        for (uid, links) in order {
            let last = last.get(uid).copied();
            let now = Instant::now();
            // A user without time in this turn keeps the position.
            let served = if now >= until {
                last
            } else {
                rotation.last_guest = *uid;
                self.serve_guest(links, last.unwrap_or(0), until.min(now + GUEST_SLICE))
            };
            rotation.last_links.extend(served.map(|id| (*uid, id)));
        }
    }

    /// Serves the connections of one guest, starting after connection `last`; returns the last
    /// served connection.
    fn serve_guest(&mut self, links: &[ReadyLink], last: LinkId, until: Instant) -> Option<LinkId> {
        let mut links = links.to_vec();
        links.sort_unstable_by_key(|(id, _)| (*id <= last, *id));
        let mut served = None;
        for (id, flags) in links {
            self.serve_link(id, flags, Some(until));
            served = Some(id);
            if Instant::now() >= until {
                break;
            }
        }
        served
    }

    /// Handles the messages of a link, up to a maximum number and until the given time, but at
    /// least one.
    pub(super) fn serve_link(&mut self, id: LinkId, flags: EventFlags, until: Option<Instant>) {
        if flags.contains(EventFlags::OUT) {
            self.flush_link(id);
        }
        let has_ended = flags.intersects(HUNG_UP);
        // Messages sent before the other end was closed are still handled; those of a guest in
        // later turns, if its time is up.
        let mut is_time_up = false;
        let max_messages = if has_ended { usize::MAX } else { MAX_MESSAGES_IN_A_ROW };
        for _ in 0..max_messages {
            let Some(link) = self.links.get(&id) else { return };
            self.turns.crowded = None;
            match link.receive() {
                Received::Message(envelope) => {
                    self.service.handle(id, envelope, Instant::now());
                    self.finish_hello(id);
                }
                Received::Nothing => break,
                Received::Malformed(reason) => self.service.reject_malformed(id, &reason),
                Received::Closed => return self.drop_link(id),
            }
            self.apply_effects();
            // A later request may depend on messages that processes have sent since this turn
            // began.
            let reads_no_more = self.pause_for_crowded(id) || self.is_own_controller(id);
            is_time_up = until.is_some_and(|until| Instant::now() >= until);
            if (reads_no_more && !has_ended) || is_time_up {
                break;
            }
        }
        if has_ended && !is_time_up {
            self.drop_link(id);
        }
        self.apply_effects();
    }

    fn is_own_controller(&self, id: LinkId) -> bool {
        self.service.may_send_files(id) && !self.is_guest(id)
    }

    fn is_guest(&self, id: LinkId) -> bool {
        self.links.get(&id).is_some_and(|link| self.service.access().is_guest(&link.peer()))
    }

    /// Gives a client whose queue has become long a deadline to read it.
    pub(super) fn mark_crowded(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.has_long_queue()) else { return };
        self.turns.crowded = Some(id);
        if !std::mem::replace(&mut link.is_crowded, true) && link.expires.is_none() {
            self.expect_within(id, Some(LINK_TIMEOUT));
        }
    }

    /// Removes the deadline of a link whose queue is short again.
    pub(super) fn mark_relieved(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.is_crowded && !link.has_long_queue())
        else {
            return;
        };
        link.is_crowded = false;
        self.expect_within(id, None);
    }

    /// Stops reading from a guest's controller that has just made a queue long; returns whether it
    /// did.
    fn pause_for_crowded(&mut self, id: LinkId) -> bool {
        let Some(process) = self.turns.crowded.take().filter(|process| *process != id) else { return false };
        if !self.is_guest(id) || !self.service.may_send_files(id) {
            return false;
        }
        self.set_reading_paused(id, true);
        self.turns.paused_for_queue.insert(id, process);
        true
    }

    /// Reads again from controllers whose processes have a short queue or are gone.
    pub(super) fn resume_uncrowded(&mut self) {
        let is_crowded = |process: &LinkId| self.links.get(process).is_some_and(|link| link.is_crowded);
        let relieved: Vec<LinkId> = self
            .turns
            .paused_for_queue
            .iter()
            .filter(|(_, process)| !is_crowded(process))
            .map(|(id, _)| *id)
            .collect();
        for id in relieved {
            self.turns.paused_for_queue.remove(&id);
            self.set_reading_paused(id, false);
        }
    }

    fn set_reading_paused(&mut self, id: LinkId, is_reading_paused: bool) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.is_reading_paused = is_reading_paused;
        if link.watch(&self.epoll, id).is_err() {
            self.drop_link(id);
        }
    }

    /// Drops a link whose deadline has passed, unless a message that the loop had no time to read,
    /// such as `Hello`, removes the deadline.
    pub(super) fn drop_expired(&mut self, id: LinkId, deadline: Instant) {
        self.serve_link(id, EventFlags::IN, Some(deadline));
        if self.links.get(&id).is_some_and(|link| link.expires == Some(deadline)) {
            self.drop_link(id);
        }
    }

    /// Drops a link that leaves too much unread. The sessions that its process writes to count the
    /// process.
    pub(super) fn drop_unread(&mut self, id: LinkId) {
        let Some(link) = self.links.get(&id) else { return };
        log_client!(
            "connection {id} of process {} does not read its messages and is dropped",
            link.peer().pid
        );
        self.service.count_nonreading_process(id);
        self.drop_link(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROLLER: LinkId = 20;

    /// Returns when a controller's request is handled in a turn with these events.
    fn run_turn(turns: &mut TurnSchedule, accepted: usize, has_failed: bool, has_more: bool) -> RequestStart {
        (turns.accepted, turns.are_more_waiting, turns.pauses) = (0, false, 0);
        turns.note_accepted(accepted, has_more);
        if has_failed {
            turns.note_pause();
            turns.note_pause();
        }
        turns.decide_start(CONTROLLER)
    }

    #[test]
    fn request_waits_for_connections_that_were_made_before_it() {
        let mut turns = TurnSchedule::default();
        assert_eq!(run_turn(&mut turns, 0, false, false), RequestStart::Now);
        for _ in 0..2 {
            assert_eq!(run_turn(&mut turns, MAX_UNACCEPTED - 1, false, true), RequestStart::Later);
            assert_eq!(
                run_turn(&mut turns, 0, false, false),
                RequestStart::Now,
                "all connections are accepted"
            );
        }
        assert_eq!(run_turn(&mut turns, MAX_UNACCEPTED - 1, false, true), RequestStart::Later);
        assert_eq!(
            run_turn(&mut turns, 1, false, true),
            RequestStart::Now,
            "the other connections were made after the request"
        );
    }

    #[test]
    fn request_waits_for_a_few_pauses_of_the_listeners() {
        let mut turns = TurnSchedule::default();
        for pause in 1..MAX_LISTENER_PAUSES {
            assert_eq!(run_turn(&mut turns, 0, true, true), RequestStart::Later, "{pause}");
            assert_eq!(
                run_turn(&mut turns, 0, false, true),
                RequestStart::Later,
                "the request waits during the pause"
            );
        }
        assert_eq!(run_turn(&mut turns, 0, true, true), RequestStart::NowDespiteUnaccepted);
        assert_eq!(run_turn(&mut turns, 0, true, true), RequestStart::Later, "the next request waits again");
        assert_eq!(run_turn(&mut turns, 1, false, false), RequestStart::Now, "descriptors are free again");
        assert_eq!(run_turn(&mut turns, 0, true, true), RequestStart::Later);
    }
}
