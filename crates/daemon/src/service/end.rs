//! How a session comes to run, and to its end.
//!
//! ```text
//!   Started ─▶ Running ─▶ Properties
//!   Stop  ─▶ Stopping, CloseSession to all ─▶ Acks, or a second ─▶ Session::stop ─▶ Stopped ─▶ Properties
//!   end by itself, shut down ─▶ as Stop, for nobody
//! ```

use std::time::Instant;

use traceweir_format::spec::session::EVENT_TRACE_NONSTOPPABLE_MODE;
use traceweir_format::spec::status::Status;
use traceweir_session::FAULT;
use traceweir_transport::message::{Message, Properties};

use super::notice::{Notice, Promise, Started};
use super::sessions::{State, not_running};
use super::wait::Purpose;
use super::{Asker, CLOSE_WITHIN, Service, info, told, warning};
use crate::error::Refusal;

impl Service {
    pub(super) fn stop(&mut self, asker: Asker, id: u64) -> Result<(), Refusal> {
        let mode = self.sessions.session(id).map_or(0, |session| session.properties().config.log_file_mode);
        if mode & EVENT_TRACE_NONSTOPPABLE_MODE != 0 {
            let why = "the session is non-stoppable: it runs for as long as its daemon";
            return Err(Refusal::new(Status::ERROR_ACCESS_DENIED, why));
        }
        match self.sessions.get_mut(id).map(|entry| &mut entry.state) {
            Some(State::Running(_)) => {
                info!("session {:?} is stopped by {}", self.sessions.name(id), self.who(asker.link));
                self.begin_stop(id, Some(asker));
            }
            // It is ending by itself: the first who asks gets the outcome.
            Some(State::Stopping { asker: waiting @ None, .. }) => *waiting = Some(asker),
            Some(State::Stopping { .. }) => {
                let why = "the session is already stopping";
                return Err(Refusal::new(Status::ERROR_ACTIVE_CONNECTIONS, why));
            }
            Some(State::Starting { .. }) | None => return Err(not_running()),
        }
        Ok(())
    }

    /// Tells all processes to write no more; the session is stopped when they have said so.
    pub(super) fn begin_stop(&mut self, id: u64, asker: Option<Asker>) {
        let Some(session) = self.sessions.running_session(id).cloned() else { return };
        let Some(entry) = self.sessions.get_mut(id) else { return };
        entry.state = State::Stopping { session, asker };
        self.information.forget(id);
        self.forget_kernel(id);
        let wait = self.waits.next_id();
        let mut waiting = 0;
        for link in self.registry.forget_session(id) {
            let Some(process) = self.registry.processes.get_mut(&link) else { continue };
            let order = process.next_order();
            process.awaited.insert(order, wait);
            self.waits.is_for(wait, link);
            waiting += 1;
            self.send(link, 0, Message::CloseSession { order, session: id });
        }
        if waiting == 0 {
            self.finish_stop(id);
        } else {
            self.waits.begin(wait, waiting, Some(Instant::now() + CLOSE_WITHIN), Purpose::Stop(id), None);
        }
    }

    /// Nobody writes to the session any more: collect the rest and finish the file.
    pub(super) fn finish_stop(&mut self, id: u64) {
        if let Some(session) = self.sessions.session(id) {
            session.stop(Promise::new(&self.post, move |outcome| Notice::Stopped { id, outcome }).done());
        }
    }

    pub(super) fn started(&mut self, id: u64, outcome: traceweir_session::Result<Started>) {
        let Some(entry) = self.sessions.get_mut(id) else { return };
        let State::Starting { asker, ended } = entry.state else { return };
        match outcome {
            Ok(Started { session, claim, kernel }) => {
                entry.file = claim;
                info!("session {:?} started by {}", entry.name, entry.starter);
                let properties = session.properties();
                entry.state = State::Running(session);
                self.kernels.started(id, kernel);
                self.adjust_kernel(id);
                self.answer(asker, Ok(properties));
                let is_left = self.is_left(id);
                if ended.is_some() || self.leaving || is_left {
                    self.begin_stop(id, None);
                }
            }
            Err(e) => {
                let guid = entry.guid;
                self.sessions.remove(id);
                self.information.forget(id);
                self.forget_kernel(id);
                self.forget_generated(guid);
                self.answer(asker, Err(e));
            }
        }
    }

    /// Whether the connection that a session is tied to ended while it started.
    pub(super) fn is_left(&mut self, id: u64) -> bool {
        let tied_to = self.sessions.get_mut(id).and_then(|entry| entry.tied_to);
        tied_to.is_some_and(|link| !self.clients.contains_key(&link))
    }

    pub(super) fn ended(&mut self, id: u64, status: Status) {
        let Some(entry) = self.sessions.get_mut(id) else { return };
        if status == FAULT {
            warning!(
                "session {:?} failed by an error of this program, which is told above; its file has what was written before, others go on",
                entry.name
            );
        } else {
            info!("session {:?} ended by itself: {status}", entry.name);
        }
        match &mut entry.state {
            State::Starting { ended, .. } => *ended = Some(status),
            State::Running(_) => self.begin_stop(id, None),
            State::Stopping { .. } => {}
        }
    }

    pub(super) fn stopped(&mut self, id: u64, outcome: traceweir_session::Result<Properties>) {
        let Some(entry) = self.sessions.remove(id) else { return };
        let outcome = outcome.map(|properties| entry.with_uncounted(properties));
        match &outcome {
            Ok(it) => {
                let uncounted = match it.uncounted_processes {
                    0 => String::new(),
                    processes => format!("; events of {processes} processes lost, count unknown"),
                };
                let (events, lost) = (it.events, it.events_lost);
                info!("session {:?} stopped: {events} events, {lost} lost{uncounted}", entry.name);
                if let Some(forgotten) = self.sessions.remember(it.clone()) {
                    self.forget_generated(forgotten.config.guid);
                }
            }
            Err(e) => {
                warning!("session {:?} stopped: {e}", entry.name);
                self.forget_generated(entry.guid);
            }
        }
        for lost in self.kernels.stopped(id) {
            told!("session {:?}: {lost}", entry.name);
        }
        self.used = Instant::now();
        if let State::Stopping { asker: Some(asker), .. } = entry.state {
            self.answer(asker, outcome);
        }
    }
}
