//! Reports of processes about private sessions, combined for the controller.
//!
//! ```text
//!   await_processes ─▶ UnansweredRequest { waiting, others }
//!       ──last answer, disconnect, or timeout──▶ conclude ─▶ reply to the controller
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Message, Properties, SessionConfig};

use super::{OTHER_USERS_TIMEOUT, PrivateSessionEntry, PrivateSessions, RequestPurpose, UnansweredRequest};
use crate::error::Refusal;
use crate::ids::LinkId;
use crate::log::{log_client, log_warning};
use crate::registry::Registry;
use crate::service::core::Core;

impl PrivateSessions {
    /// Stores a request until processes have answered its order, at most for the given time.
    pub(super) fn await_processes(
        &mut self,
        core: &mut Core,
        order: u32,
        mut pending: UnansweredRequest,
        waiting: BTreeSet<LinkId>,
        within: Option<Duration>,
    ) {
        let now = core.turn.now;
        pending.waiting = waiting;
        pending.deadline = within.map(|within| now + within);
        let private = match &pending.purpose {
            RequestPurpose::Stop(private) => Some(&**private),
            _ => self.sessions.get(&pending.session),
        };
        let others =
            private.map(PrivateSessionEntry::processes_of_other_users).filter(|others| !others.is_empty());
        pending.others = others.map(|others| (now + OTHER_USERS_TIMEOUT, others));
        self.pending.insert(order, pending);
        self.conclude_if_answered(core, order);
    }

    /// Handles a process's report on an order. Reports of processes that take no part are ignored.
    pub(in crate::service) fn handle_state_report(
        &mut self,
        core: &mut Core,
        registry: &Registry,
        link: LinkId,
        order: u32,
        session: u64,
        outcome: Result<Properties, Refusal>,
    ) {
        let Some(private) = self.find_reported(session) else { return };
        let Some(member) = private.members.get_mut(&link) else { return };
        let failure = match outcome {
            Ok(properties) => {
                // The daemon has the configuration already. Dropping it bounds the memory that a
                // process can use in the daemon.
                let config = SessionConfig::default();
                (member.is_running, member.last_report) = (true, Properties { config, ..properties });
                None
            }
            Err(refusal) => {
                let pid = registry.processes.get(&link).map_or(0, |process| process.peer.pid);
                let (name, reason, status) = (&private.config.name, &refusal.reason, refusal.status.0);
                log_client!(
                    "process {pid} reports for private session {name:?}: {reason:?} (status {status})"
                );
                if !member.is_running {
                    // The session never ran there, so another process may get the plain name.
                    private.is_plain_name_used &= !member.has_plain_name;
                    private.members.remove(&link);
                    private.uncounted = private.uncounted.saturating_add(1);
                }
                Some(Refusal::new(refusal.status, format!("process {pid}: {refusal}")))
            }
        };
        if let Some(pending) = self.pending.get_mut(&order).filter(|pending| pending.session == session)
            && pending.waiting.remove(&link)
        {
            pending.succeeded += usize::from(failure.is_none());
            pending.failure = pending.failure.take().or(failure);
        }
        self.conclude_if_answered(core, order);
    }

    /// Removes a disconnected process from its private sessions.
    pub(in crate::service) fn remove_provider(&mut self, core: &mut Core, link: LinkId) {
        for private in self.sessions.values_mut() {
            private.remove_member(link);
        }
        let mut orders = Vec::new();
        for (order, pending) in &mut self.pending {
            if let RequestPurpose::Stop(private) = &mut pending.purpose {
                private.remove_member(link);
            }
            if pending.waiting.remove(&link) {
                orders.push(*order);
            }
        }
        for order in orders {
            self.conclude_if_answered(core, order);
        }
    }

    /// Removes a controller that has disconnected: its requests get no reply, and sessions tied to
    /// it end.
    pub(in crate::service) fn remove_controller(&mut self, core: &mut Core, link: LinkId) {
        let is_requester =
            |pending: &UnansweredRequest| pending.reply_to.is_some_and(|reply_to| reply_to.link == link);
        // A pending enable is dropped; any other request goes on without a reply.
        self.pending.retain(|_, pending| {
            !(is_requester(pending) && matches!(pending.purpose, RequestPurpose::Enable))
        });
        for pending in self.pending.values_mut() {
            pending.reply_to = pending.reply_to.filter(|reply_to| reply_to.link != link);
        }
        for id in self.sessions_tied_to(link) {
            self.stop(core, None, id);
        }
    }

    /// Stops waiting for the processes of other users whose deadline has passed.
    pub(super) fn expire_others(&mut self, core: &mut Core) {
        let (now, mut orders) = (core.turn.now, Vec::new());
        for (order, pending) in &mut self.pending {
            let Some((_, others)) = pending.others.take_if(|(deadline, _)| *deadline <= now) else {
                continue;
            };
            orders.push(*order);
            let silent = others.iter().filter(|link| pending.waiting.remove(*link)).count();
            if let (RequestPurpose::Stop(private), 1..) = (&mut pending.purpose, silent) {
                log_warning!(
                    "private session {:?}: {silent} of other users' processes did not report how it ended",
                    private.config.name
                );
                let silent = u32::try_from(silent).unwrap_or(u32::MAX);
                private.uncounted = private.uncounted.saturating_add(silent);
            }
        }
        for order in orders {
            self.conclude_if_answered(core, order);
        }
    }

    /// Ends the requests whose deadline has passed.
    pub(in crate::service) fn tick(&mut self, core: &mut Core) {
        self.expire_others(core);
        let now = core.turn.now;
        let is_late = |pending: &UnansweredRequest| pending.deadline.is_some_and(|deadline| deadline <= now);
        let late: Vec<u32> =
            self.pending.iter().filter(|(_, pending)| is_late(pending)).map(|(order, _)| *order).collect();
        for order in late {
            if let Some(mut pending) = self.pending.remove(&order) {
                let reason = "a process did not answer in time; the request stays in effect";
                let timeout = Refusal::new(Status::ERROR_TIMEOUT, reason);
                // A start succeeds even if a process is slow.
                let timeout = Some(timeout).filter(|_| !matches!(pending.purpose, RequestPurpose::Start));
                pending.failure = pending.failure.take().or(timeout);
                self.conclude(core, pending);
            }
        }
    }

    pub(super) fn conclude_if_answered(&mut self, core: &mut Core, order: u32) {
        if self.pending.get(&order).is_some_and(|pending| pending.waiting.is_empty())
            && let Some(pending) = self.pending.remove(&order)
        {
            self.conclude(core, pending);
        }
    }

    /// Replies to the controller with the result of a request.
    pub(super) fn conclude(&mut self, core: &mut Core, pending: UnansweredRequest) {
        let UnansweredRequest { reply_to, session, purpose, succeeded, failure, .. } = pending;
        self.last_used = Some(core.turn.now);
        let properties = match &purpose {
            RequestPurpose::Stop(private) => Some(private.properties(session)),
            _ => self.sessions.get(&session).map(|private| private.properties(session)),
        };
        let failure = match purpose {
            // A process may refuse while others run the session; if none runs it, there is no
            // session.
            RequestPurpose::Start if succeeded == 0 && failure.is_some() => {
                self.stop(core, None, session);
                failure
            }
            RequestPurpose::Start | RequestPurpose::Query => None,
            RequestPurpose::Change | RequestPurpose::Enable | RequestPurpose::Stop(_) => failure,
        };
        let Some(reply_to) = reply_to else { return };
        match (failure, purpose, properties) {
            (Some(refusal), ..) => core.turn.refuse(reply_to, refusal),
            (None, RequestPurpose::Enable, _) => core.turn.reply(reply_to, Message::Done),
            (None, _, Some(properties)) => {
                core.turn.reply(reply_to, Message::Properties(Box::new(properties)))
            }
            (None, _, None) => core.turn.refuse(reply_to, Refusal::not_running()),
        }
    }
}
