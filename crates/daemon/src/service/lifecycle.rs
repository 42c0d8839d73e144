//! How a session starts, runs and ends: the order in which the service calls its parts.
//!
//! ```text
//!   Start ─▶ checks, in the documented order of StartTrace's errors ─▶ Starting ─▶ Started
//!       ─▶ Running ─▶ Properties
//!   Stop ─▶ Stopping, CloseSession to all ─▶ Acks, or one second ─▶ Session::stop ─▶ Stopped
//!       ─▶ Properties
//!   end by itself, shut down ─▶ as Stop, without a reply
//! ```

use traceweir_format::Guid;
use traceweir_format::spec::access::DEFAULT_TRACE_SECURITY;
use traceweir_format::spec::session::EVENT_TRACE_NONSTOPPABLE_MODE;
use traceweir_format::spec::status::Status;
use traceweir_session::FAULT;
use traceweir_session::config::is_system_logger;
use traceweir_transport::message::{Properties, SessionConfig};

use super::Service;
use super::access::rights_to_run;
use super::core::Core;
use super::notice::StartedSession;
use super::sessions::{RequestedLogFile, SessionPhase, check_config};
use crate::error::Refusal;
use crate::ids::ReplyTo;
use crate::kernel::RequestedGroups;
use crate::log::{log_client, log_info, log_warning};
use crate::logfile::{FileTerms, NamedFiles, PassedDescriptors};

impl Service {
    pub(super) fn start(
        &mut self,
        reply_to: ReplyTo,
        mut config: SessionConfig,
        passed: PassedDescriptors,
    ) -> Result<(), Refusal> {
        let generated = if config.guid.is_null() { Some(random_guid()?) } else { None };
        config.guid = generated.unwrap_or(config.guid);
        // The stack configuration moves from `config` to `settings` (below).
        let stacks = std::mem::take(&mut config.kernel_stacks);
        let config = check_config(reply_to.link, config)?;
        let properties = config.properties();
        // A session name can imply a fixed GUID, which then replaces the generated one.
        let is_generated = generated == Some(properties.guid);
        // A generated GUID has no access list; the default list applies.
        let access_object = if is_generated { DEFAULT_TRACE_SECURITY } else { properties.guid };
        self.core.access.check_right(reply_to.link, access_object, rights_to_run(properties))?;
        let requested =
            is_system_logger(properties).then(|| RequestedGroups::from_flags(properties.enable_flags));
        if let Some(requested) = &requested {
            self.core.access.check_kernel_access(reply_to.link, properties)?;
            self.system_loggers.check_events(&self.core.access, reply_to.link, &requested.combined())?;
        }
        let settings = self.core.information.settings_at_start(properties, &stacks)?;
        self.core.sessions.check_name(&properties.name, &properties.guid)?;
        self.private_sessions.check_name(&properties.name)?;
        let (pid, identity) =
            self.core.access.process_and_identity(reply_to.link).ok_or_else(Refusal::not_running)?;
        passed.check(NamedFiles::from_mode(properties.log_file_mode, properties.log_file.is_some()))?;
        let terms = FileTerms::for_log(properties, identity.uid);
        let claimant = self.core.access.claimant(reply_to.link);
        let limits = self.core.sessions.check_session_limit(claimant);
        let limits = limits.and_then(|()| {
            requested.as_ref().map_or(Ok(()), |_| self.system_loggers.check_logger_limit(properties))
        });
        let config = match limits.and_then(|()| self.core.sessions.reduce_pool(config, claimant.is_guest)) {
            Ok(config) => config,
            // Missing disk space takes precedence over these limits, so the file is checked before
            // the refusal is sent.
            Err(refusal) => {
                let Core { turn, sessions, .. } = &mut self.core;
                return sessions.refuse_after_file_check(turn, reply_to, passed, terms, refusal);
            }
        };
        let properties = config.properties();
        let id = self.core.sessions.add(&self.core.access, reply_to, claimant, properties);
        if is_generated {
            self.core.access.add_generated(properties.guid);
        }
        if let Some(settings) = settings {
            self.core.information.store_settings(id, settings);
        }
        let information = &self.core.information;
        let capture_settings = requested
            .map(|requested| self.system_loggers.add(id, config.properties(), requested, information));
        self.core.sessions.launch(
            &self.core.turn,
            id,
            config,
            capture_settings,
            RequestedLogFile { passed, terms, pid, identity },
        );
        Ok(())
    }

    pub(super) fn stop(&mut self, reply_to: ReplyTo, id: u64) -> Result<(), Refusal> {
        let mode =
            self.core.sessions.session(id).map_or(0, |session| session.properties().config.log_file_mode);
        if mode & EVENT_TRACE_NONSTOPPABLE_MODE != 0 {
            let reason = "the session is non-stoppable: it runs for as long as its daemon";
            return Err(Refusal::new(Status::ERROR_ACCESS_DENIED, reason));
        }
        match self.core.sessions.get_mut(id).map(|entry| &mut entry.phase) {
            Some(SessionPhase::Running(_)) => {
                log_info!(
                    "session {:?} is stopped by {}",
                    self.core.sessions.name(id),
                    self.core.access.peer_name(reply_to.link)
                );
                self.begin_stop(id, Some(reply_to));
            }
            // The session is ending by itself: the first controller that stops it gets the outcome.
            Some(SessionPhase::Stopping { reply_to: waiting @ None, .. }) => *waiting = Some(reply_to),
            Some(SessionPhase::Stopping { .. }) => {
                let reason = "the session is already stopping";
                return Err(Refusal::new(Status::ERROR_ACTIVE_CONNECTIONS, reason));
            }
            Some(SessionPhase::Starting { .. }) | None => return Err(Refusal::not_running()),
        }
        Ok(())
    }

    /// Sends all processes of a session the order to stop writing. The session stops when they have
    /// acknowledged, or after a timeout.
    pub(super) fn begin_stop(&mut self, id: u64, reply_to: Option<ReplyTo>) {
        if !self.core.sessions.begin_stop(id, reply_to) {
            return;
        }
        self.core.information.forget(id);
        self.system_loggers.forget(id);
        self.providers.close_session(&mut self.core, id);
    }

    pub(super) fn handle_session_started(
        &mut self,
        id: u64,
        outcome: traceweir_session::Result<StartedSession>,
    ) {
        let Some(entry) = self.core.sessions.get_mut(id) else { return };
        let SessionPhase::Starting { reply_to, ended } = entry.phase else { return };
        let tied_to = entry.tied_to;
        match outcome {
            Ok(StartedSession { session, claim, kernel }) => {
                entry.file = claim;
                log_info!("session {:?} started by {}", entry.name, entry.starter);
                let properties = session.properties();
                entry.phase = SessionPhase::Running(session);
                self.system_loggers.mark_started(id, kernel);
                self.system_loggers.adjust_capture(&mut self.core, &mut self.providers.registry, id);
                self.core.turn.reply_with_properties(reply_to, Ok(properties));
                // The connection that the session is tied to may have closed while it started.
                let has_lost_connection = tied_to.is_some_and(|link| self.core.access.client(link).is_none());
                if ended.is_some() || self.is_shutting_down || has_lost_connection {
                    self.begin_stop(id, None);
                }
            }
            Err(e) => {
                let guid = entry.guid;
                self.core.sessions.remove(id);
                self.core.information.forget(id);
                self.system_loggers.forget(id);
                self.core.access.forget_generated(guid);
                self.core.turn.reply_with_properties(reply_to, Err(e));
            }
        }
    }

    pub(super) fn handle_session_ended(&mut self, id: u64, status: Status) {
        let Some(entry) = self.core.sessions.get_mut(id) else { return };
        if status == FAULT {
            log_warning!(
                "session {:?} failed because of a bug in this program, reported above; its file keeps what was written before, other sessions continue",
                entry.name
            );
        } else {
            log_info!("session {:?} ended by itself: {status}", entry.name);
        }
        match &mut entry.phase {
            SessionPhase::Starting { ended, .. } => *ended = Some(status),
            SessionPhase::Running(_) => self.begin_stop(id, None),
            SessionPhase::Stopping { .. } => {}
        }
    }

    pub(super) fn handle_session_stopped(&mut self, id: u64, outcome: traceweir_session::Result<Properties>) {
        let Some(entry) = self.core.sessions.remove(id) else { return };
        let outcome = outcome.map(|properties| entry.with_uncounted(properties));
        match &outcome {
            Ok(properties) => {
                let uncounted = match properties.uncounted_processes {
                    0 => String::new(),
                    1 => "; 1 process may have lost events that are not counted".to_owned(),
                    processes => format!("; {processes} processes may have lost events that are not counted"),
                };
                let (events, lost) = (properties.events, properties.events_lost);
                log_info!("session {:?} stopped: {events} events, {lost} lost{uncounted}", entry.name);
                if let Some(forgotten) =
                    self.core.sessions.store_outcome(properties.clone(), entry.claimant.uid)
                {
                    self.core.access.forget_generated(forgotten.config.guid);
                }
            }
            Err(e) => {
                log_warning!("session {:?} stopped: {e}", entry.name);
                self.core.access.forget_generated(entry.guid);
            }
        }
        for lost in self.system_loggers.take_loss_messages(id) {
            log_client!("session {:?}: {lost}", entry.name);
        }
        self.kernel_providers.forget(id);
        self.last_used = self.core.turn.now;
        if let SessionPhase::Stopping { reply_to: Some(reply_to), .. } = entry.phase {
            self.core.turn.reply_with_properties(reply_to, outcome);
        }
    }
}

fn random_guid() -> Result<Guid, Refusal> {
    let no_random = || Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, "no random number for a GUID");
    traceweir_session::config::new_guid().ok_or_else(no_random)
}
