//! Requests of providers, and how a process gets and gives up its region for a session.
//!
//! ```text
//!   Region + memory ─▶ kept until the registration comes, then used for the session: Region + wake
//!   Register ─▶ for each session that enables the GUID, the name or the group:
//!               [Region + memory, wake]  Enable (order 0)  ─▶ Registered
//!   SetTraits ─▶ for each session that enables the name or the group: the same, also with memory
//!                that the process sent ─▶ Done
//!   Enable of a classic registration by another session ─▶ that session has it from now on, the
//!                                                          previous one is not informed
//!   Unregister, Disable ─▶ last one of the session in this process?  CloseSession, Ack ─▶ detach
//!   Failed (a registration, timeout) ─▶ enabled too late: counts as a loss of unknown size
//!   Failed ─▶ logged, reported to the controller that waits; not enabled there until the next
//!             enable or registration tries again
//!   disconnected ─▶ detach from all sessions: what the process published is still collected
//! ```
//!
//! The registry forgets a region as soon as it is being closed: an enable that comes meanwhile
//! creates a new one. Messages keep their order, so the process closes the old region first.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use traceweir_format::Guid;
use traceweir_format::spec::access::Rights;
use traceweir_format::spec::session::EVENT_TRACE_INDEPENDENT_SESSION_MODE;
use traceweir_format::spec::status::Status;
use traceweir_format::tracelogging::Traits;
use traceweir_session::{Identity, SourceId, Threads};
use traceweir_transport::abi::RegionParams;
use traceweir_transport::enabled::Enabled;
use traceweir_transport::map::{check_headroom, check_memory_file};
use traceweir_transport::message::{EnableCode, EnableParams, Message, PROPERTY_INDEPENDENT};

use super::wait::Purpose;
use super::{LinkId, ReplyTo, Service, log_client, log_refusal, log_warning};
use crate::error::Refusal;
use crate::limits::{MAX_CLOSING, MAX_CLOSING_OF_GUESTS, MAX_OFFERED};
use crate::logfile::PassedDescriptors;
use crate::process;

/// How long a process may take to close a region that it no longer needs.
const DETACH_WITHIN: Duration = Duration::from_secs(10);

impl Service {
    /// Handles a message of a provider process.
    pub(super) fn handle_provider(&mut self, reply_to: ReplyTo, message: Message) {
        match message {
            Message::Register { registration, provider, traits, classic } => {
                let registered = self.register(reply_to.link, registration, provider, &traits, classic);
                if let Some(process) = self.registry.processes.get_mut(&reply_to.link) {
                    // The process discards unused offers when the reply arrives.
                    process.offered.clear();
                }
                match registered {
                    Ok(()) => self.reply(reply_to, Message::Registered { registration }),
                    Err(refusal) => self.refuse(reply_to, refusal),
                }
            }
            Message::SetTraits { registration, traits } => {
                let taken = self.set_traits(reply_to.link, registration, &traits);
                if let Some(process) = self.registry.processes.get_mut(&reply_to.link) {
                    process.offered.clear();
                }
                match taken {
                    Ok(()) => self.reply(reply_to, Message::Done),
                    Err(refusal) => self.refuse(reply_to, refusal),
                }
            }
            Message::Unregister { registration } => {
                if let Some(gone) = self.registry.unregister(reply_to.link, registration) {
                    for session in gone.sessions {
                        self.close_unused(reply_to.link, session);
                    }
                }
                if reply_to.request != 0 {
                    self.reply(reply_to, Message::Done);
                }
            }
            Message::Ack { order } => {
                let waits =
                    self.registry.processes.get_mut(&reply_to.link).map(|process| process.acknowledge(order));
                self.count_acknowledgements(waits.unwrap_or_default());
            }
            Message::Failed { order, registration, session, status, reason } => {
                let refusal = Refusal::new(Status(status), reason);
                self.order_failed(reply_to.link, order, registration, session, refusal);
            }
            Message::PrivateState { order, session, status, reason, properties } => {
                let refusal = Refusal::new(Status(status), reason);
                let outcome = if status == 0 { Ok(*properties) } else { Err(refusal) };
                self.private_state(reply_to.link, (order, session), outcome);
            }
            _ => self.reject_out_of_role(reply_to),
        }
    }

    /// Handles an order that a process could not carry out. Clears the enabled state, so that the
    /// next enable tries again.
    fn order_failed(
        &mut self,
        link: LinkId,
        order: u32,
        registration: Option<u32>,
        session: u64,
        Refusal { status, reason }: Refusal,
    ) {
        let Some(process) = self.registry.processes.get(&link) else { return };
        let pid = process.peer.pid;
        if order == 0 && registration.is_some() && status == Status::ERROR_TIMEOUT {
            // The registration is enabled; the events it wrote before that are lost.
            if process.regions.contains_key(&session) {
                log_client!(
                    "process {pid} wrote events before it was enabled for session {session:#x}: {reason:?}"
                );
                self.sessions.count_uncounted(session, link);
            }
            return;
        }
        log_client!("process {pid} reports for session {session:#x}: {reason:?} (status {})", status.0);
        if order != 0
            && let Some(wait) = process.wait_for_order(order)
        {
            let reason = format!("process {pid}: {reason}; the request stays in effect");
            self.waits.set_failure(wait, Refusal::new(status, reason));
        }
        // An order without a registration: the region's own failure was reported before, or the
        // session is closed.
        if registration.is_some() || order == 0 {
            self.registry.clear_enabled(link, registration, session);
            self.close_unused(link, session);
        }
    }

    /// Adds a registration and sends it the enables that apply to it.
    fn register(
        &mut self,
        link: LinkId,
        registration: u32,
        provider: Guid,
        traits: &[u8],
        classic: bool,
    ) -> Result<(), Refusal> {
        self.check_right(link, provider, Rights::TRACELOG_REGISTER_GUIDS)?;
        // A guest's registrations must not use up the last memory; every other process at worst
        // waits for a region.
        if self.clients.get(&link).is_some_and(|client| self.access.is_guest(&client.peer)) {
            check_headroom(traits.len()).map_err(|e| Refusal::new(e.status(), e.to_string()))?;
        }
        self.check_joining(link, traits)?;
        let added = self.registry.register(link, registration, provider, traits, classic);
        if let Err(refusal) = added {
            log_refusal!("{}: {provider} is not registered: {refusal}", self.peer_name(link));
            return Err(refusal);
        }
        self.admit_by_name(self.registry.matches_of_registration(link, registration));
        self.registry.count_left_out(link, registration);
        let sessions = self.registry.wanted_by(link, registration);
        self.enable_registration(link, registration, sessions);
        self.join_privates_by_name(link, registration);
        self.join_privates(link, provider);
        self.request_modules_for_privates(link, provider);
        Ok(())
    }

    /// Sets the traits of a registration and sends it the enables of its name and of the group that
    /// it joins.
    fn set_traits(&mut self, link: LinkId, registration: u32, traits: &[u8]) -> Result<(), Refusal> {
        self.check_joining(link, traits)?;
        let params_by_session = |service: &Self| {
            let sessions = service.registry.wanted_by(link, registration).into_iter();
            sessions
                .map(|session| (session, service.registry.combined_params(link, registration, session)))
                .collect::<BTreeMap<_, _>>()
        };
        let before = params_by_session(self);
        self.registry.set_traits(link, registration, traits)?;
        self.admit_by_name(self.registry.matches_of_registration(link, registration));
        self.registry.count_left_out(link, registration);
        let changed = params_by_session(self)
            .into_iter()
            .filter(|(session, params)| before.get(session) != Some(params));
        let changed = changed.map(|(session, _)| session).collect();
        self.enable_registration(link, registration, changed);
        self.join_privates_by_name(link, registration);
        if let Some((_, provider)) = self.registry.name_hash_and_guid(link, registration) {
            self.request_modules_for_privates(link, provider);
        }
        Ok(())
    }

    fn check_joining(&self, link: LinkId, traits: &[u8]) -> Result<(), Refusal> {
        match Traits::parse(traits).ok().and_then(|traits| traits.group()) {
            Some(group) => self.check_right(link, group, Rights::TRACELOG_JOIN_GROUP),
            None => Ok(()),
        }
    }

    /// Sends a registration the enables that were made before it was added or joined its group.
    /// Such an enable carries no source.
    fn enable_registration(&mut self, link: LinkId, registration: u32, sessions: Vec<u64>) {
        for session in sessions {
            if let Some(params) = self.registry.combined_params(link, registration, session) {
                // A failure is logged; no controller waits for this.
                let _ = self.enable_registrations(link, &[registration], session, params, 0);
            }
        }
    }

    /// Enables some registrations of a process for a session, and gives the process a region if it
    /// has none. Fails if no region can be created.
    pub(super) fn enable_registrations(
        &mut self,
        link: LinkId,
        numbers: &[u32],
        session: u64,
        params: EnableParams,
        order: u32,
    ) -> Result<(), Refusal> {
        if !self.open_region(link, session)? {
            return Ok(());
        }
        let (mut enabled, mut replaced) = (Vec::new(), BTreeSet::new());
        for number in numbers {
            let Some(registration) = self.registry.registration(link, *number) else { continue };
            if registration.classic {
                replaced.append(&mut registration.sessions);
            }
            registration.sessions.insert(session);
            enabled.push(*number);
        }
        replaced.remove(&session);
        self.send_enable(link, enabled.clone(), session, EnableCode::Enable, params, order);
        if self.information.tracks_binaries(session) {
            self.request_modules(link, enabled, session);
        }
        for other in replaced {
            self.close_unused(link, other);
        }
        Ok(())
    }

    /// Disables those of some registrations that are enabled for a session, and closes the region
    /// if they were the last ones.
    pub(super) fn disable_registrations(
        &mut self,
        link: LinkId,
        mut numbers: Vec<u32>,
        session: u64,
        params: EnableParams,
        order: u32,
    ) {
        let registry = &mut self.registry;
        numbers.retain(|number| {
            registry
                .registration(link, *number)
                .is_some_and(|registration| registration.sessions.remove(&session))
        });
        if !numbers.is_empty() {
            self.send_enable(link, numbers, session, EnableCode::Disable, params, order);
            self.close_unused(link, session);
        }
    }

    /// Sets the property bit of an enable that marks its session as independent.
    fn mark_independent(&self, session: u64, params: &mut EnableParams) {
        let config = self.sessions.session(session).map(|session| session.properties().config);
        let is_independent =
            config.is_some_and(|config| config.log_file_mode & EVENT_TRACE_INDEPENDENT_SESSION_MODE != 0);
        params.property &= !PROPERTY_INDEPENDENT;
        params.property |= if is_independent { PROPERTY_INDEPENDENT } else { 0 };
    }

    /// Sends an enable message to some registrations of a process.
    pub(super) fn send_enable(
        &mut self,
        link: LinkId,
        registrations: Vec<u32>,
        session: u64,
        code: EnableCode,
        mut params: EnableParams,
        order: u32,
    ) {
        self.mark_independent(session, &mut params);
        if !registrations.is_empty() {
            let params = Box::new(params);
            self.send(link, 0, Message::Enable { order, registrations, session, code, params });
        }
    }

    /// Stores memory that a process created for a session, after it read in the daemon's folder
    /// that the session enables one of its providers. The memory is used when the registration
    /// comes, if the session still wants it.
    pub(super) fn region_offered(
        &mut self,
        reply_to: ReplyTo,
        session: u64,
        params: RegionParams,
        passed: &mut PassedDescriptors,
    ) {
        // Guests cannot read that file, and must not fill the daemon's descriptor table.
        if self.is_guest(reply_to.link) {
            return self.reject_out_of_role(reply_to);
        }
        let Some(memory) = passed.take_only() else { return self.reject_out_of_role(reply_to) };
        let Some(process) = self.registry.processes.get_mut(&reply_to.link) else {
            return passed.put_back(memory);
        };
        let is_sound =
            params.check().is_ok() && check_memory_file(memory.as_fd(), params.layout.region_bytes()).is_ok();
        let has_room = process.offered.len() < MAX_OFFERED && !self.descriptors.is_scarce(&memory, false);
        if is_sound && has_room && !process.regions.contains_key(&session) {
            process.offered.insert(session, (params, memory));
        } else {
            let reason = match (is_sound, has_room) {
                (false, _) => "it is not sealed memory of the announced size",
                (_, false) => "too few descriptors are left",
                _ => "the process has a region already",
            };
            let pid = process.peer.pid;
            log_client!("session {session:#x}: memory offered by process {pid} is not used: {reason}");
            passed.put_back(memory);
            self.sessions.count_uncounted(session, reply_to.link);
        }
    }

    /// Returns what is enabled, for processes that start later; `None` if it has not changed since
    /// the last call.
    pub(crate) fn changed_enables(&mut self) -> Option<Vec<Enabled>> {
        if !self.registry.take_changed() {
            return None;
        }
        let mut regions = BTreeMap::new();
        let may_name = |controller: &crate::access::Identity| !self.access.is_guest_user(controller.uid);
        let enabled =
            self.registry.enabled(may_name).into_iter().filter_map(|(target, name, id, mut params)| {
                let region =
                    *regions.entry(id).or_insert_with(|| self.sessions.running_session(id)?.next_region());
                self.mark_independent(id, &mut params);
                Some(Enabled { target, name, session: id, region: region?, params })
            });
        Some(enabled.collect())
    }

    /// Makes sure that the process has a region for the session. Returns `false` if the process or
    /// session is gone, or the process may not write to the session.
    fn open_region(&mut self, link: LinkId, id: u64) -> Result<bool, Refusal> {
        if !self.may_log(link, id) {
            return Ok(false);
        }
        let Some(process) = self.registry.processes.get_mut(&link) else { return Ok(false) };
        if process.regions.contains_key(&id) {
            return Ok(true);
        }
        let Some(session) = self.sessions.running_session(id).cloned() else { return Ok(false) };
        let (pid, uid) = (process.peer.pid, process.peer.uid);
        let identity = process.inspect(|pid| Identity::of(pid, uid));
        if let Some((params, memory)) = process.offered.remove(&id) {
            // A process that has ended by now is identified by the connection: its id at that time,
            // and its user.
            let threads = identity.as_ref().map_or(Threads::AsGiven, |_| process::threads_of(pid));
            let has_ended = identity.is_none();
            let identity = identity.clone();
            let identity = identity.unwrap_or_else(|| Identity { user: Some(uid), ..Identity::from(pid) });
            match session.adopt(memory.as_fd(), &params, identity, threads, has_ended) {
                Ok((source, wake)) => {
                    process.regions.insert(id, source);
                    self.send_with(link, 0, Message::Region { session: id, params }, vec![wake]);
                    return Ok(true);
                }
                // The process gets a region as any other does; the events it wrote before are lost.
                Err(e) => {
                    log_client!("session {id:#x}: memory offered by process {pid} is not used: {e}");
                    self.sessions.count_uncounted(id, link);
                }
            }
        }
        let Some(identity) = identity else {
            self.count_ended_process(link, id, pid);
            return Ok(false);
        };
        let refusal = match session.attach(identity, process::threads_of(pid)) {
            Ok(attached)
                if self.descriptors.is_scarce(&attached.wake, self.access.is_guest(&process.peer)) =>
            {
                session.detach(attached.source);
                Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, "too few file descriptors are left")
            }
            Ok(attached) => {
                process.regions.insert(id, attached.source);
                let message = Message::Region { session: id, params: attached.params };
                self.send_with(link, 0, message, vec![attached.memory, attached.wake]);
                return Ok(true);
            }
            Err(e) => Refusal::new(e.status(), e.to_string()),
        };
        self.add_unserved(link, id, pid, &refusal);
        let reason =
            format!("process {pid} gets no region: {refusal}; the request stays in effect and is retried");
        Err(Refusal::new(refusal.status, reason))
    }

    /// Counts a process that has ended while its connection is still open. Its id may belong to
    /// another process by now, and events of the connection must not get that process's name. The
    /// controller's request does not fail because of this.
    fn count_ended_process(&mut self, link: LinkId, session: u64, pid: u32) {
        log_client!(
            "session {session:#x}: process {pid} has ended, and its id may belong to another process: its connection is not used"
        );
        self.sessions.count_uncounted(session, link);
    }

    /// Closes the region of a process for a session if none of its registrations is enabled there.
    fn close_unused(&mut self, link: LinkId, session: u64) {
        let Some(process) = self.registry.processes.get_mut(&link) else { return };
        if process.has_enabled(session) {
            return;
        }
        let Some(source) = process.regions.remove(&session) else { return };
        let order = process.next_order();
        let closing = process
            .awaited
            .values()
            .filter(|id| matches!(self.waits.purpose(**id), Some(Purpose::Detach(..))));
        let is_crowded = self.access.is_guest(&process.peer) && self.waits.closing() >= MAX_CLOSING_OF_GUESTS;
        if closing.count() >= MAX_CLOSING || is_crowded {
            self.detach(session, source);
        } else {
            let wait = self.waits.next_id();
            process.awaited.insert(order, wait);
            self.waits.add_link(wait, link);
            self.waits.begin(
                wait,
                1,
                Some(Instant::now() + DETACH_WITHIN),
                Purpose::Detach(session, source),
                None,
            );
        }
        self.send(link, 0, Message::CloseSession { order, session });
    }

    /// Counts the process, before its connection is closed for not reading, in the sessions that it
    /// writes to: events that it writes until it reconnects are counted nowhere.
    pub(crate) fn count_unread_losses(&mut self, link: LinkId) {
        let regions =
            self.registry.processes.get(&link).into_iter().flat_map(|process| process.regions.keys());
        for session in regions {
            self.sessions.count_uncounted(*session, link);
        }
    }

    /// Removes a process that has disconnected. Its published events are collected; the daemon does
    /// not wait for anything from it.
    pub(super) fn provider_disconnected(&mut self, link: LinkId) {
        let Some(process) = self.registry.remove(link) else { return };
        self.private_provider_left(link);
        // No registration came for this memory, so its events are lost.
        for session in process.offered.keys() {
            let pid = process.peer.pid;
            log_client!(
                "session {session:#x}: process {pid} offered memory and ended without a registration"
            );
            self.sessions.count_uncounted(*session, link);
        }
        self.sessions.forget_link(link);
        for (session, source) in process.regions {
            self.detach(session, source);
        }
        self.count_acknowledgements(process.awaited.into_values().collect());
    }

    /// Counts acknowledgements that have come, or that will never come.
    fn count_acknowledgements(&mut self, waits: Vec<u64>) {
        for wait in waits {
            let failure = self.waits.failure(wait);
            if let Some(purpose) = self.waits.acknowledge(wait) {
                self.wait_ended(purpose, failure.map_or(Ok(()), Err));
            }
        }
    }

    /// Carries out the purpose of a wait that has ended.
    pub(super) fn wait_ended(&mut self, purpose: Purpose, outcome: Result<(), Refusal>) {
        match purpose {
            Purpose::Answer(reply_to) => self.answer_enable(reply_to, outcome),
            Purpose::Stop(session) => {
                if let Err(refusal) = outcome {
                    log_warning!("session {session:#x} stops nevertheless: {refusal}");
                }
                self.finish_stop(session);
            }
            Purpose::Detach(session, source) => self.detach(session, source),
        }
    }

    fn detach(&self, session: u64, source: SourceId) {
        if let Some(session) = self.sessions.session(session) {
            session.detach(source);
        }
    }
}
