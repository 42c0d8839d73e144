//! The state of the daemon, in parts. A message goes in and effects come out; no sockets are used
//! here, and no clock is read: the event loop passes the time in.
//!
//! ```text
//!   add_connection ────┐                ┌─▶ LinkEffect::Send { link, message, … }
//!   handle ────────────┤                ├─▶ LinkEffect::Close { link }
//!   handle_notice ─────┼─▶ Service ─▶ the part that is concerned
//!   tick ──────────────┤
//!   remove_connection ─┘      handle_notice takes the ThreadNotice of another thread
//!
//!   private sessions   providers   system loggers
//!              └───────────┼───────────┘
//!                         core           turn (time, effects), access control, sessions, settings
//! ```
//!
//! A part owns its state and uses only the parts below it, with one exception: the service passes
//! the registry of the providers to other parts. The service dispatches each message to its part.
//! When several parts are involved, as at the start or end of a session, the service calls them in
//! order (`lifecycle`).
//!
//! A link id identifies a connection and is never reused. The life cycle of a connection:
//!
//! ```text
//!   connected ──Hello──▶ provider | controller | consumer ──▶ disconnected
//!       └── anything else, or a message out of role: Refused, then Close
//! ```
//!
//! A request that needs acknowledgements from processes, or a finished file from a session's
//! thread, does not block here. A part stores it in its list of waits or in the phase of the
//! session, and replies when the last acknowledgement or notice arrives or the deadline passes.

mod access;
mod core;
mod info;
mod kernel;
mod lifecycle;
mod notice;
mod private;
mod providers;
mod route;
mod sessions;
mod turn;

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant, SystemTime};

use traceweir_format::spec::status::Status;
use traceweir_transport::enabled::ListedEnable;
use traceweir_transport::message::{Message, Role, VERSIONS};
use traceweir_transport::socket::{Envelope, Janitor, Peer};

use crate::access::{AccessRules, UserIdentity};
use crate::error::Refusal;
use crate::ids::{LinkId, ReplyTo};
use crate::kernel::daemon_scope;
use crate::log::log_refusal;
use crate::logfile::PassedDescriptors;
use crate::process::ProcessKey;
pub(crate) use access::OWN_LINK;
use access::{AccessControl, ConnectedClient};
use core::Core;
pub(crate) use notice::{NoticeSender, ThreadNotice};
use private::PrivateSessions;
use providers::ProviderControl;
use sessions::SessionTable;
pub(crate) use turn::LinkEffect;
use turn::ServiceTurn;

/// All state of the daemon.
pub(crate) struct Service {
    core: Core,
    providers: ProviderControl,
    system_loggers: kernel::SystemLoggers,
    kernel_providers: kernel::KernelProviders,
    private_sessions: PrivateSessions,
    /// The random number of this run, which `Welcome` carries.
    run_id: u64,
    janitor: Janitor,
    is_shutting_down: bool,
    /// When the daemon was last in use, not counting messages of connected controllers.
    last_used: Instant,
}

impl Service {
    /// Creates an empty service. `run_id` is a random number chosen for this run, `post` receives
    /// the notices of session threads, the janitor closes unused descriptors, and `started` is the
    /// time when the daemon started.
    pub(crate) fn new(
        access: AccessRules,
        max_sessions: usize,
        run_id: u64,
        post: NoticeSender,
        janitor: Janitor,
        now: Instant,
        started: SystemTime,
    ) -> Self {
        Self {
            core: Core {
                turn: ServiceTurn::new(now, post),
                access: AccessControl::new(access),
                sessions: SessionTable::new(max_sessions, started),
                information: info::Information::default(),
            },
            providers: ProviderControl::default(),
            system_loggers: kernel::SystemLoggers::default(),
            kernel_providers: kernel::KernelProviders::with_scope(daemon_scope()),
            private_sessions: PrivateSessions::default(),
            run_id,
            janitor,
            is_shutting_down: false,
            last_used: now,
        }
    }

    /// Removes and returns the effects since the last call.
    pub(crate) fn take_effects(&mut self) -> Vec<LinkEffect> {
        std::mem::take(&mut self.core.turn.effects)
    }

    /// Adds a connection. `is_from_knock`: the daemon opened it.
    pub(crate) fn add_connection(
        &mut self,
        link: LinkId,
        peer: Peer,
        process: Option<ProcessKey>,
        is_from_knock: bool,
        now: Instant,
    ) {
        self.core.turn.now = now;
        self.core.access.add_client(link, ConnectedClient::new(peer, process, is_from_knock, now));
        if is_from_knock {
            self.core.turn.send(link, Message::Knock { versions: VERSIONS });
        }
    }

    /// Adds the daemon itself as a controller.
    pub(crate) fn add_own_link(&mut self, now: Instant) {
        self.core.access.add_own_link(now);
    }

    pub(crate) fn access(&self) -> &AccessRules {
        self.core.access.rules()
    }

    /// Sets the identity of a connection's peer, once its groups have been looked up.
    pub(crate) fn set_identity(&mut self, link: LinkId, identity: UserIdentity) {
        if let Some(client) = self.core.access.client_mut(link) {
            client.identity = identity;
        }
    }

    /// Marks a connection as using one of the descriptors reserved for controllers and sessions.
    pub(crate) fn mark_reserved_descriptor(&mut self, link: LinkId) {
        if let Some(client) = self.core.access.client_mut(link) {
            client.uses_reserved_descriptor = true;
        }
    }

    /// Returns whether a connection has completed `Hello`.
    pub(crate) fn is_introduced(&self, link: LinkId) -> bool {
        self.core.access.client(link).is_some_and(|client| client.role.is_some())
    }

    /// Returns whether a connection that the daemon accepted has not completed `Hello`.
    pub(crate) fn is_before_hello(&self, link: LinkId) -> bool {
        self.core.access.client(link).is_some_and(|client| client.role.is_none() && !client.is_from_knock)
    }

    /// Returns whether a connection may send files: only controllers may.
    pub(crate) fn may_send_files(&self, link: LinkId) -> bool {
        self.core.access.client(link).is_some_and(|client| client.role == Some(Role::Controller))
    }

    /// Sets the reserve in MB: a log file is created on the file system of `/` only if that much
    /// space, in addition to the maximum size of the file, is free.
    pub(crate) fn set_reserve_mb(&self, reserve: u32) {
        self.core.sessions.set_reserve_mb(reserve);
    }

    /// Sets, for the message that is handled next, whether there may be processes that wrote to
    /// regions of their own and whose connections the daemon has not accepted yet.
    pub(crate) fn set_unaccepted_processes(&mut self, has_unaccepted_processes: bool) {
        self.core.sessions.has_unaccepted_processes = has_unaccepted_processes;
    }

    /// Removes a connection, and ends the requests and sessions that depend on it.
    pub(crate) fn remove_connection(&mut self, link: LinkId, now: Instant) {
        self.core.turn.now = now;
        let Some(client) = self.core.access.remove_client(link) else { return };
        match client.role {
            Some(Role::Provider) => {
                self.private_sessions.remove_provider(&mut self.core, link);
                self.providers.remove_process(&mut self.core, link);
            }
            Some(Role::Consumer) => {
                self.core.sessions.close_consumer(&client.consumer_state);
                self.last_used = now;
            }
            Some(Role::Controller) => {
                self.providers.remove_controller(link);
                self.private_sessions.remove_controller(&mut self.core, link);
                for session in self.core.sessions.sessions_tied_to(link) {
                    self.begin_stop(session, None);
                }
            }
            None => {}
        }
    }

    pub(crate) fn handle(&mut self, link: LinkId, envelope: Envelope, now: Instant) {
        self.core.turn.now = now;
        let Some(client) = self.core.access.client_mut(link) else { return };
        client.last_message = now;
        let role = client.role;
        let Envelope { request, message, descriptors } = envelope;
        let mut passed = PassedDescriptors::new(descriptors, &self.janitor);
        let reply_to = ReplyTo { link, request };
        match (role, message) {
            (None, Message::Hello { versions, role, instance, program }) => {
                self.handle_hello(reply_to, versions, role, instance, &program);
            }
            (Some(Role::Provider), Message::Region { session, params }) => {
                self.providers.store_offered_region(&mut self.core, reply_to, session, params, &mut passed);
            }
            (Some(Role::Provider), message) => self.handle_provider(reply_to, message),
            (Some(Role::Controller), message) => {
                self.handle_controller(reply_to, message, passed);
            }
            (Some(Role::Consumer), Message::OpenConsumer { session }) => {
                let Core { turn, access, sessions, .. } = &mut self.core;
                let opened = refuse_if_shutting_down(self.is_shutting_down)
                    .and_then(|()| sessions.open_consumer(turn, access, reply_to, &session));
                if let Err(refusal) = opened {
                    turn.refuse(reply_to, refusal);
                }
            }
            _ => self.core.turn.reject_out_of_role(reply_to),
        }
    }

    fn handle_hello(
        &mut self,
        reply_to: ReplyTo,
        versions: (u16, u16),
        role: Role,
        instance: u64,
        program: &str,
    ) {
        let Core { turn, access, sessions, .. } = &mut self.core;
        let admitted = access.admit(reply_to.link, versions, role).and_then(|version| {
            if let Some(client) = access.client_mut(reply_to.link) {
                if role == Role::Provider {
                    self.providers.add_process(reply_to.link, client, instance)?;
                    sessions.note_return_of_refused(reply_to.link, client.process);
                }
                client.role = Some(role);
            }
            Ok(version)
        });
        match admitted {
            Ok(version) => turn.reply(reply_to, Message::Welcome { version, daemon: self.run_id }),
            Err(refusal) => {
                let (uid, pid) = access.peer(reply_to.link).map_or((0, 0), |peer| (peer.uid, peer.pid));
                log_refusal!("{program} of uid {uid}, process {pid}: {refusal}");
                let is_full = refusal.status == Status::ERROR_NO_SYSTEM_RESOURCES;
                turn.refuse_and_close(reply_to, refusal);
                if role == Role::Provider && is_full {
                    let process = access.client(reply_to.link).and_then(|client| client.process);
                    self.count_refused_process(process);
                }
            }
        }
    }

    /// Handles a report of another thread.
    pub(crate) fn handle_notice(&mut self, notice: ThreadNotice, now: Instant) {
        self.core.turn.now = now;
        let Core { turn, access, sessions, .. } = &mut self.core;
        match notice {
            ThreadNotice::Started { id, outcome } => self.handle_session_started(id, outcome),
            ThreadNotice::FileChecked { reply_to, refusal, outcome } => {
                sessions.handle_file_check(turn, reply_to, refusal, outcome);
            }
            ThreadNotice::Ended { id, status } => self.handle_session_ended(id, status),
            ThreadNotice::Changed { id, reply_to, keeps_file, before, outcome } => {
                let outcome = sessions.finish_change(id, keeps_file, outcome);
                if let (Err(_), Some(groups)) = (&outcome, before) {
                    let registry = &mut self.providers.registry;
                    self.system_loggers.restore_groups(&mut self.core, registry, id, groups);
                }
                self.core.turn.reply_with_properties(reply_to, outcome);
            }
            ThreadNotice::KernelChanged { outcome } => {
                self.system_loggers.handle_change_outcome(
                    &mut self.core,
                    &mut self.providers.registry,
                    outcome,
                );
                self.resume_all_deferred();
            }
            ThreadNotice::ProvidersApplied { applied, outcome } => {
                let registry = &mut self.providers.registry;
                let loggers = &mut self.system_loggers;
                self.kernel_providers.handle_applied(&mut self.core, registry, loggers, applied, outcome);
                self.resume_all_deferred();
            }
            ThreadNotice::ProvidersRestored { outcome } => {
                self.kernel_providers.handle_restored(&mut self.system_loggers, outcome);
                self.resume_all_deferred();
            }
            ThreadNotice::Stopped { id, outcome } => self.handle_session_stopped(id, outcome),
            ThreadNotice::ConsumerOpened { id, reply_to, outcome } => {
                sessions.handle_opened_consumer(turn, access, id, reply_to, outcome);
            }
            ThreadNotice::AccessSaved { outcome } => access.handle_saved_list(turn, outcome),
        }
    }

    /// Refuses and closes a connection that sent a malformed message.
    pub(crate) fn reject_malformed(&mut self, link: LinkId, reason: &str) {
        let refusal = Refusal::new(Status::ERROR_INVALID_PARAMETER, reason);
        self.core.turn.refuse_and_close(ReplyTo { link, request: 0 }, refusal);
    }

    /// Returns when [`tick`](Self::tick) next has work to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let parts =
            [self.providers.deadline(), self.private_sessions.deadline(), self.core.information.deadline()];
        parts.into_iter().flatten().min()
    }

    /// Ends expired waits, requests state captures that are due, and retries enables that got no
    /// region.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.core.turn.now = now;
        self.providers.retry_unserved(&mut self.core);
        self.private_sessions.tick(&mut self.core);
        self.capture_due_states();
        self.providers.tick(&mut self.core);
    }

    /// Returns whether the daemon has been idle for this long.
    pub(crate) fn is_idle_for(&self, time: Duration, now: Instant) -> bool {
        self.idle_since().is_some_and(|since| now.saturating_duration_since(since) >= time)
    }

    /// Returns since when the daemon has been idle; `None` while it is in use, or while a new
    /// connection has not sent `Hello` yet.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let keeps_daemon_busy = |client: &ConnectedClient| match client.role {
            Some(Role::Consumer) => true,
            Some(Role::Provider | Role::Controller) => false,
            None => !client.is_from_knock,
        };
        // A controller that may be in the middle of its work is given time: its last message counts
        // as use. Queries by a controller that has disconnected do not count.
        let controllers = self.core.access.clients().filter(|client| client.role == Some(Role::Controller));
        let last_message = controllers.map(|client| client.last_message).max();
        let last_used =
            [Some(self.last_used), self.private_sessions.last_used, last_message].into_iter().flatten().max();
        let is_idle = self.core.sessions.is_empty()
            && self.private_sessions.is_empty()
            && self.core.information.has_no_system_settings()
            && !self.core.access.clients().any(keeps_daemon_busy);
        last_used.filter(|_| is_idle)
    }

    /// Returns the enables for processes that start later; `None` if they have not changed since
    /// the last call.
    pub(crate) fn changed_enables(&mut self) -> Option<Vec<ListedEnable>> {
        self.providers.changed_enables(&self.core)
    }

    /// Adds a process to `uncounted_processes` of all sessions that it writes to. Its connection is
    /// about to be closed, because the process does not read its messages. Nothing counts the
    /// events that it loses until it reconnects.
    pub(crate) fn count_nonreading_process(&mut self, link: LinkId) {
        self.providers.count_nonreading_process(&mut self.core, link);
    }

    /// Counts a process that was refused because of a limit: it may write events that no session
    /// gets. Every session that enables providers counts it.
    pub(crate) fn count_refused_process(&mut self, process: Option<ProcessKey>) {
        self.providers.count_refused_process(&mut self.core, process);
    }

    /// Stops all sessions except private ones, and accepts no new work.
    pub(crate) fn shut_down(&mut self, now: Instant) {
        self.core.turn.now = now;
        self.is_shutting_down = true;
        for id in self.core.sessions.running_ids() {
            self.begin_stop(id, None);
        }
    }

    /// Returns whether all sessions have finished after [`shut_down`](Self::shut_down).
    pub(crate) fn is_finished(&self) -> bool {
        self.is_shutting_down && self.core.sessions.is_empty()
    }

    /// Returns the names of sessions that have not finished, for the log.
    pub(crate) fn unfinished_names(&self) -> Vec<String> {
        self.core.sessions.names()
    }

    fn refuse_when_shutting_down(&self) -> Result<(), Refusal> {
        refuse_if_shutting_down(self.is_shutting_down)
    }
}

fn refuse_if_shutting_down(is_shutting_down: bool) -> Result<(), Refusal> {
    if is_shutting_down {
        return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, "the daemon is shutting down"));
    }
    Ok(())
}
