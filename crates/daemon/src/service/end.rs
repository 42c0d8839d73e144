//! How a session gets to run, and how it ends.
//!
//! ```text
//!   Started ─▶ Running ─▶ Properties
//!   Stop ─▶ Stopping, CloseSession to all ─▶ Acks, or a second ─▶ Session::stop ─▶ Stopped
//!       ─▶ Properties
//!   end by itself, shut down ─▶ as Stop, without a reply
//! ```

use std::time::Instant;

use traceweir_format::spec::session::EVENT_TRACE_NONSTOPPABLE_MODE;
use traceweir_format::spec::status::Status;
use traceweir_session::FAULT;
use traceweir_transport::message::{Message, Properties};

use super::notice::{Notice, Promise, Started};
use super::sessions::{State, not_running};
use super::wait::Purpose;
use super::{CLOSE_WITHIN, ReplyTo, Service, log_client, log_info, log_warning};
use crate::error::Refusal;

impl Service {
    pub(super) fn stop(&mut self, reply_to: ReplyTo, id: u64) -> Result<(), Refusal> {
        let mode = self.sessions.session(id).map_or(0, |session| session.properties().config.log_file_mode);
        if mode & EVENT_TRACE_NONSTOPPABLE_MODE != 0 {
            let reason = "the session is non-stoppable: it runs for as long as its daemon";
            return Err(Refusal::new(Status::ERROR_ACCESS_DENIED, reason));
        }
        match self.sessions.get_mut(id).map(|entry| &mut entry.state) {
            Some(State::Running(_)) => {
                log_info!(
                    "session {:?} is stopped by {}",
                    self.sessions.name(id),
                    self.peer_name(reply_to.link)
                );
                self.begin_stop(id, Some(reply_to));
            }
            // The session is ending by itself: the first controller that stops it gets the outcome.
            Some(State::Stopping { reply_to: waiting @ None, .. }) => *waiting = Some(reply_to),
            Some(State::Stopping { .. }) => {
                let reason = "the session is already stopping";
                return Err(Refusal::new(Status::ERROR_ACTIVE_CONNECTIONS, reason));
            }
            Some(State::Starting { .. }) | None => return Err(not_running()),
        }
        Ok(())
    }

    /// Sends all processes of a session the order to stop writing; the session stops when they have
    /// acknowledged.
    pub(super) fn begin_stop(&mut self, id: u64, reply_to: Option<ReplyTo>) {
        let Some(session) = self.sessions.running_session(id).cloned() else { return };
        let Some(entry) = self.sessions.get_mut(id) else { return };
        entry.state = State::Stopping { session, reply_to };
        self.information.forget(id);
        self.forget_kernel(id);
        let wait = self.waits.next_id();
        let mut waiting = 0;
        for link in self.registry.forget_session(id) {
            let Some(process) = self.registry.processes.get_mut(&link) else { continue };
            let order = process.next_order();
            process.awaited.insert(order, wait);
            self.waits.add_link(wait, link);
            waiting += 1;
            self.send(link, 0, Message::CloseSession { order, session: id });
        }
        if waiting == 0 {
            self.finish_stop(id);
        } else {
            self.waits.begin(wait, waiting, Some(Instant::now() + CLOSE_WITHIN), Purpose::Stop(id), None);
        }
    }

    /// Lets the session collect the rest and finish its file, once no process writes to it any
    /// more.
    pub(super) fn finish_stop(&mut self, id: u64) {
        if let Some(session) = self.sessions.session(id) {
            session.stop(
                Promise::new(&self.post, move |outcome| Notice::Stopped { id, outcome }).into_callback(),
            );
        }
    }

    pub(super) fn session_started(&mut self, id: u64, outcome: traceweir_session::Result<Started>) {
        let Some(entry) = self.sessions.get_mut(id) else { return };
        let State::Starting { reply_to, ended } = entry.state else { return };
        match outcome {
            Ok(Started { session, claim, kernel }) => {
                entry.file = claim;
                log_info!("session {:?} started by {}", entry.name, entry.starter);
                let properties = session.properties();
                entry.state = State::Running(session);
                self.kernels.started(id, kernel);
                self.adjust_kernel(id);
                self.reply_with_properties(reply_to, Ok(properties));
                let has_lost_owner = self.has_lost_owner(id);
                if ended.is_some() || self.leaving || has_lost_owner {
                    self.begin_stop(id, None);
                }
            }
            Err(e) => {
                let guid = entry.guid;
                self.sessions.remove(id);
                self.information.forget(id);
                self.forget_kernel(id);
                self.forget_generated(guid);
                self.reply_with_properties(reply_to, Err(e));
            }
        }
    }

    /// Returns whether the connection that a session is tied to has closed while the session
    /// started.
    pub(super) fn has_lost_owner(&mut self, id: u64) -> bool {
        let tied_to = self.sessions.get_mut(id).and_then(|entry| entry.tied_to);
        tied_to.is_some_and(|link| !self.clients.contains_key(&link))
    }

    pub(super) fn session_ended(&mut self, id: u64, status: Status) {
        let Some(entry) = self.sessions.get_mut(id) else { return };
        if status == FAULT {
            log_warning!(
                "session {:?} failed because of a bug in this program, reported above; its file keeps what was written before, other sessions continue",
                entry.name
            );
        } else {
            log_info!("session {:?} ended by itself: {status}", entry.name);
        }
        match &mut entry.state {
            State::Starting { ended, .. } => *ended = Some(status),
            State::Running(_) => self.begin_stop(id, None),
            State::Stopping { .. } => {}
        }
    }

    pub(super) fn session_stopped(&mut self, id: u64, outcome: traceweir_session::Result<Properties>) {
        let Some(entry) = self.sessions.remove(id) else { return };
        let outcome = outcome.map(|properties| entry.with_uncounted(properties));
        match &outcome {
            Ok(properties) => {
                let uncounted = match properties.uncounted_processes {
                    0 => String::new(),
                    processes => format!("; events of {processes} processes lost, count unknown"),
                };
                let (events, lost) = (properties.events, properties.events_lost);
                log_info!("session {:?} stopped: {events} events, {lost} lost{uncounted}", entry.name);
                if let Some(forgotten) = self.sessions.remember(properties.clone()) {
                    self.forget_generated(forgotten.config.guid);
                }
            }
            Err(e) => {
                log_warning!("session {:?} stopped: {e}", entry.name);
                self.forget_generated(entry.guid);
            }
        }
        for lost in self.kernels.stopped(id) {
            log_client!("session {:?}: {lost}", entry.name);
        }
        self.used = Instant::now();
        if let State::Stopping { reply_to: Some(reply_to), .. } = entry.state {
            self.reply_with_properties(reply_to, outcome);
        }
    }
}
