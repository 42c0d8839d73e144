//! Requests of providers, and how a process gets and gives up its region for a session.
//!
//! ```text
//!   wake: the descriptor with which a process wakes the session's collector
//!   Region + memory ─▶ kept until the process registers, then the session adopts it: Region + wake
//!   Register ─▶ for each session that enables the GUID, the name or the group:
//!               [Region + memory, wake]  Enable (order 0)  ─▶ Registered
//!   SetTraits ─▶ for each session that enables the name or the group: as for Register, also with
//!                memory that the process sent ─▶ Done
//!   Enable of a classic registration by another session ─▶ that session has it from now on; the
//!                                               process gets no Disable for the previous one
//!   Unregister, Disable ─▶ no enabled registration left?  CloseSession, Ack ─▶ detach
//!   Failed (a registration, timeout) ─▶ enabled too late: counts as a loss of unknown size
//!   Failed ─▶ logged, reported to the controller that waits; not enabled in that process until the
//!             next enable or registration tries again
//!   disconnected ─▶ detach from all sessions: what the process published is still collected
//! ```
//!
//! The registry forgets a region as soon as it is being closed: an enable that comes meanwhile
//! creates a new one. Messages keep their order, so the process closes the old region first.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::time::Duration;

use traceweir_format::Guid;
use traceweir_format::spec::access::Rights;
use traceweir_format::spec::session::EVENT_TRACE_INDEPENDENT_SESSION_MODE;
use traceweir_format::spec::status::Status;
use traceweir_format::tracelogging::Traits;
use traceweir_session::{Identity, Session, ThreadIdMapping};
use traceweir_transport::abi::RegionParams;
use traceweir_transport::enabled::ListedEnable;
use traceweir_transport::map::{check_headroom, check_memory_file};
use traceweir_transport::message::{EnableCode, EnableParams, Message, PROPERTY_INDEPENDENT};

use super::ProviderControl;
use super::wait::WaitPurpose;
use crate::error::Refusal;
use crate::ids::{LinkId, ReplyTo};
use crate::limits::{CLOSING_REGIONS_BEFORE_GUESTS_DETACH, MAX_CLOSING_REGIONS, MAX_OFFERED_REGIONS};
use crate::log::{log_client, log_refusal};
use crate::logfile::PassedDescriptors;
use crate::process;
use crate::registry::{PublishedEnable, Registry};
use crate::service::core::Core;
use crate::service::sessions::SessionTable;

/// How long a process may take to close a region that it no longer needs.
const DETACH_TIMEOUT: Duration = Duration::from_secs(10);

impl ProviderControl {
    /// Handles the report of a process that it could not carry out an order, or enabled a
    /// registration too late. Clears the enabled state of what failed, so that a later enable tries
    /// again.
    pub(in crate::service) fn handle_failed_order(
        &mut self,
        core: &mut Core,
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
                core.sessions.count_uncounted(session, link);
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
        // A failed order that names no registration changes nothing: the failure of the region was
        // reported before, or the session is closed.
        if registration.is_some() || order == 0 {
            self.registry.clear_enabled(link, registration, session);
            self.close_unused_region(core, link, session);
        }
    }

    /// Adds a registration and sends it the enables that apply to it.
    pub(in crate::service) fn register(
        &mut self,
        core: &mut Core,
        link: LinkId,
        registration: u32,
        provider: Guid,
        traits: &[u8],
        is_classic: bool,
    ) -> Result<(), Refusal> {
        core.access.check_right(link, provider, Rights::TRACELOG_REGISTER_GUIDS)?;
        // A guest's registrations must not use up the last memory. Those of other users are always
        // accepted: at worst their processes wait for a region.
        if core.access.client(link).is_some_and(|client| core.access.rules().is_guest(&client.peer)) {
            check_headroom(traits.len()).map_err(|e| Refusal::new(e.status(), e.to_string()))?;
        }
        self.check_group_right(core, link, traits)?;
        let added = self.registry.register(link, registration, provider, traits, is_classic);
        if let Err(refusal) = added {
            log_refusal!("{}: {provider} is not registered: {refusal}", core.access.peer_name(link));
            return Err(refusal);
        }
        self.admit_by_name(core, self.registry.matches_of_registration(link, registration));
        self.registry.count_left_out(link, registration);
        let sessions = self.registry.sessions_wanting(link, registration);
        self.enable_registration(core, link, registration, sessions);
        Ok(())
    }

    /// Removes a registration, and closes the regions that only it used.
    pub(in crate::service) fn unregister(&mut self, core: &mut Core, link: LinkId, registration: u32) {
        let Some(removed) = self.registry.unregister(link, registration) else { return };
        for session in removed.sessions {
            self.close_unused_region(core, link, session);
        }
    }

    /// Drops the memory that a process offered for its registration: the process discards unused
    /// offers when the reply arrives.
    pub(in crate::service) fn drop_offers(&mut self, link: LinkId) {
        if let Some(process) = self.registry.processes.get_mut(&link) {
            process.offered.clear();
        }
    }

    /// Sets the traits of a registration and sends it the enables of its name and of the group that
    /// it joins.
    pub(in crate::service) fn set_traits(
        &mut self,
        core: &mut Core,
        link: LinkId,
        registration: u32,
        traits: &[u8],
    ) -> Result<(), Refusal> {
        self.check_group_right(core, link, traits)?;
        let params_by_session = |registry: &Registry| {
            let sessions = registry.sessions_wanting(link, registration).into_iter();
            sessions
                .map(|session| (session, registry.combined_params(link, registration, session)))
                .collect::<BTreeMap<_, _>>()
        };
        let old_params = params_by_session(&self.registry);
        self.registry.set_traits(link, registration, traits)?;
        self.admit_by_name(core, self.registry.matches_of_registration(link, registration));
        self.registry.count_left_out(link, registration);
        let changed = params_by_session(&self.registry)
            .into_iter()
            .filter(|(session, params)| old_params.get(session) != Some(params));
        let changed = changed.map(|(session, _)| session).collect();
        self.enable_registration(core, link, registration, changed);
        Ok(())
    }

    fn check_group_right(&self, core: &Core, link: LinkId, traits: &[u8]) -> Result<(), Refusal> {
        match Traits::parse(traits).ok().and_then(|traits| traits.group()) {
            Some(group) => core.access.check_right(link, group, Rights::TRACELOG_JOIN_GROUP),
            None => Ok(()),
        }
    }

    /// Sends a registration the enables that were made before it was added or got its traits. Such
    /// an enable carries no GUID of the controller (`EnableParams::source`).
    fn enable_registration(&mut self, core: &mut Core, link: LinkId, registration: u32, sessions: Vec<u64>) {
        for session in sessions {
            if let Some(params) = self.registry.combined_params(link, registration, session) {
                // A failure is logged; no controller waits for this.
                let _ = self.enable_registrations(core, link, &[registration], session, params, 0);
            }
        }
    }

    /// Enables some registrations of a process for a session, and gives the process a region if it
    /// has none. Does nothing if the process or the session has ended, or if the process may not
    /// write to the session. Fails if no region can be created.
    pub(in crate::service) fn enable_registrations(
        &mut self,
        core: &mut Core,
        link: LinkId,
        numbers: &[u32],
        session: u64,
        params: EnableParams,
        order: u32,
    ) -> Result<(), Refusal> {
        if !self.open_region(core, link, session)? {
            return Ok(());
        }
        let (mut enabled, mut replaced_sessions) = (Vec::new(), BTreeSet::new());
        for number in numbers {
            let Some(registration) = self.registry.registration_mut(link, *number) else { continue };
            if registration.is_classic {
                replaced_sessions.append(&mut registration.sessions);
            }
            registration.sessions.insert(session);
            enabled.push(*number);
        }
        replaced_sessions.remove(&session);
        send_enable(core, link, enabled.clone(), session, EnableCode::Enable, params, order);
        if core.information.tracks_binaries(session) {
            core.turn.request_modules(link, enabled, session);
        }
        for replaced in replaced_sessions {
            self.close_unused_region(core, link, replaced);
        }
        Ok(())
    }

    /// Disables the given registrations that are enabled for a session, and closes the region if no
    /// enabled registration is left.
    pub(in crate::service) fn disable_registrations(
        &mut self,
        core: &mut Core,
        link: LinkId,
        mut numbers: Vec<u32>,
        session: u64,
        params: EnableParams,
        order: u32,
    ) {
        let registry = &mut self.registry;
        numbers.retain(|number| {
            registry
                .registration_mut(link, *number)
                .is_some_and(|registration| registration.sessions.remove(&session))
        });
        if !numbers.is_empty() {
            send_enable(core, link, numbers, session, EnableCode::Disable, params, order);
            self.close_unused_region(core, link, session);
        }
    }

    /// Stores memory that a process created for a session, after it read in the daemon's folder
    /// that the session enables one of its providers. The memory is used when the registration
    /// comes, if the session still wants it.
    pub(in crate::service) fn store_offered_region(
        &mut self,
        core: &mut Core,
        reply_to: ReplyTo,
        session: u64,
        params: RegionParams,
        passed: &mut PassedDescriptors,
    ) {
        // Guests cannot read the file of enabled providers, and must not fill the daemon's
        // descriptor table.
        if core.access.is_guest(reply_to.link) {
            return core.turn.reject_out_of_role(reply_to);
        }
        let Some(memory) = passed.take_only() else { return core.turn.reject_out_of_role(reply_to) };
        let Some(process) = self.registry.processes.get_mut(&reply_to.link) else {
            return passed.put_back(memory);
        };
        let is_sound =
            params.check().is_ok() && check_memory_file(memory.as_fd(), params.layout.region_bytes()).is_ok();
        let has_room =
            process.offered.len() < MAX_OFFERED_REGIONS && !self.descriptors.is_withheld(&memory, false);
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
            core.sessions.count_uncounted(session, reply_to.link);
        }
    }

    /// Returns the enables for processes that start later; `None` if they have not changed since
    /// the last call.
    pub(in crate::service) fn changed_enables(&mut self, core: &Core) -> Option<Vec<ListedEnable>> {
        if !self.registry.take_changed() {
            return None;
        }
        let mut regions = BTreeMap::new();
        let may_name =
            |controller: &crate::access::UserIdentity| !core.access.rules().is_guest_user(controller.uid);
        let enables = self.registry.published_enables(may_name).into_iter();
        let enabled = enables.filter_map(|PublishedEnable { target, name, session: id, mut params }| {
            let region =
                *regions.entry(id).or_insert_with(|| core.sessions.running_session(id)?.next_region());
            mark_independent(&core.sessions, id, &mut params);
            Some(ListedEnable { target, name, session: id, region: region?, params })
        });
        Some(enabled.collect())
    }

    /// Makes sure that the process has a region for the session. Returns `false` if the process or
    /// session is gone, or the process may not write to the session.
    fn open_region(&mut self, core: &mut Core, link: LinkId, id: u64) -> Result<bool, Refusal> {
        let (access, session) = (&core.access, core.sessions.session(id));
        let may_log = |session: &Session| access.may_log(link, &session.properties().config);
        if access.is_guest(link) && !session.is_none_or(may_log) {
            return Ok(false);
        }
        let Some(process) = self.registry.processes.get_mut(&link) else { return Ok(false) };
        if process.regions.contains_key(&id) {
            return Ok(true);
        }
        let Some(session) = core.sessions.running_session(id).cloned() else { return Ok(false) };
        let (pid, uid) = (process.peer.pid, process.peer.uid);
        let describes_processes = session.properties().config.describes_processes();
        let identity = process.inspect(|pid| {
            let identity = Identity::read(pid, uid);
            if describes_processes { identity.with_program() } else { identity }
        });
        if let Some((params, memory)) = process.offered.remove(&id) {
            // A process that has ended by now is identified by the id and user that it had when it
            // connected.
            let thread_ids =
                identity.as_ref().map_or(ThreadIdMapping::AsGiven, |_| process::thread_id_mapping(pid));
            let has_ended = process.has_ended();
            let identity = identity.clone();
            let identity = identity.unwrap_or_else(|| Identity { user: Some(uid), ..Identity::from(pid) });
            match session.adopt(memory.as_fd(), &params, identity, thread_ids, has_ended) {
                Ok((region, wake)) => {
                    process.regions.insert(id, region);
                    core.turn.send_with(link, Message::Region { session: id, params }, vec![wake]);
                    return Ok(true);
                }
                // The process gets a new region; the events in the offered memory are lost.
                Err(e) => {
                    log_client!("session {id:#x}: memory offered by process {pid} is not used: {e}");
                    core.sessions.count_uncounted(id, link);
                }
            }
        }
        let Some(identity) = identity else {
            self.count_ended_process(core, link, id, pid);
            return Ok(false);
        };
        let refusal = match session.attach(identity, process::thread_id_mapping(pid)) {
            Ok(attached)
                if self
                    .descriptors
                    .is_withheld(&attached.wake, core.access.rules().is_guest(&process.peer)) =>
            {
                session.detach(attached.id);
                Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, "too few file descriptors are left")
            }
            Ok(attached) => {
                process.regions.insert(id, attached.id);
                let message = Message::Region { session: id, params: attached.params };
                core.turn.send_with(link, message, vec![attached.memory, attached.wake]);
                return Ok(true);
            }
            Err(e) => Refusal::new(e.status(), e.to_string()),
        };
        self.add_unserved(core, link, id, pid, &refusal);
        let reason =
            format!("process {pid} gets no region: {refusal}; the request stays in effect and is retried");
        Err(Refusal::new(refusal.status, reason))
    }

    /// Counts a process that has ended while its connection is still open. Its id may belong to
    /// another process by now, and events of the connection must not get that process's name. The
    /// controller's request does not fail because of this.
    fn count_ended_process(&mut self, core: &mut Core, link: LinkId, session: u64, pid: u32) {
        log_client!(
            "session {session:#x}: process {pid} has ended, and its id may belong to another process: its connection is not used"
        );
        core.sessions.count_uncounted(session, link);
    }

    /// Closes the region of a process for a session if none of its registrations is enabled there.
    fn close_unused_region(&mut self, core: &mut Core, link: LinkId, session: u64) {
        let Some(process) = self.registry.processes.get_mut(&link) else { return };
        if process.is_enabled_for(session) {
            return;
        }
        let Some(region) = process.regions.remove(&session) else { return };
        let order = process.next_order();
        let closing = process
            .awaited
            .values()
            .filter(|id| matches!(self.waits.purpose(**id), Some(WaitPurpose::Detach(..))));
        let is_crowded = core.access.rules().is_guest(&process.peer)
            && self.waits.closing_count() >= CLOSING_REGIONS_BEFORE_GUESTS_DETACH;
        // If too many regions are being closed, this one is detached without waiting for the
        // process.
        if closing.count() >= MAX_CLOSING_REGIONS || is_crowded {
            core.sessions.detach(session, region);
        } else {
            let wait = self.waits.next_id();
            process.awaited.insert(order, wait);
            self.waits.add_link(wait, link);
            self.waits.begin(
                wait,
                1,
                Some(core.turn.now + DETACH_TIMEOUT),
                WaitPurpose::Detach(session, region),
                None,
            );
        }
        core.turn.send(link, Message::CloseSession { order, session });
    }

    /// Adds a process to `uncounted_processes` of all sessions that it writes to. Its connection is
    /// about to be closed, because the process does not read its messages. Nothing counts the
    /// events that it loses until it reconnects.
    pub(in crate::service) fn count_nonreading_process(&mut self, core: &mut Core, link: LinkId) {
        let regions =
            self.registry.processes.get(&link).into_iter().flat_map(|process| process.regions.keys());
        for session in regions {
            core.sessions.count_uncounted(*session, link);
        }
    }

    /// Removes a process that has disconnected. Its published events are collected; the daemon does
    /// not wait for anything from it.
    pub(in crate::service) fn remove_process(&mut self, core: &mut Core, link: LinkId) {
        let Some(process) = self.registry.remove_process(link) else { return };
        // No registration came for this memory, so its events are lost.
        for session in process.offered.keys() {
            let pid = process.peer.pid;
            log_client!(
                "session {session:#x}: process {pid} offered memory and disconnected without a registration"
            );
            core.sessions.count_uncounted(*session, link);
        }
        core.sessions.forget_link(link);
        for (session, region) in process.regions {
            core.sessions.detach(session, region);
        }
        self.count_acknowledgements(core, process.awaited.into_values().collect());
    }
}

/// Sets or clears the property bit of an enable that marks its session as independent.
fn mark_independent(sessions: &SessionTable, session: u64, params: &mut EnableParams) {
    let config = sessions.session(session).map(|session| session.properties().config);
    let is_independent =
        config.is_some_and(|config| config.log_file_mode & EVENT_TRACE_INDEPENDENT_SESSION_MODE != 0);
    params.property &= !PROPERTY_INDEPENDENT;
    params.property |= if is_independent { PROPERTY_INDEPENDENT } else { 0 };
}

pub(super) fn send_enable(
    core: &mut Core,
    link: LinkId,
    registrations: Vec<u32>,
    session: u64,
    code: EnableCode,
    mut params: EnableParams,
    order: u32,
) {
    mark_independent(&core.sessions, session, &mut params);
    if !registrations.is_empty() {
        let params = Box::new(params);
        core.turn.send(link, Message::Enable { order, registrations, session, code, params });
    }
}
