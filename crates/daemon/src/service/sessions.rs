//! The sessions of the daemon: names, ids, files and phases.
//!
//! ```text
//!   Starting ──Started──▶ Running ──stop, end by itself, shut down──▶ Stopping ──Stopped──▶ gone
//! ```
//!
//! A session id is `generation << 16 | logger id`. The logger id goes into the buffers and is
//! reused as late as possible; the generation begins at the daemon's start time and never repeats,
//! so that a stale id matches no session, even after a restart.

mod consume;
mod control;
mod start;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_session::{RegionId, Session};
use traceweir_transport::message::{Properties, SessionConfig, SessionRef};

use super::access::{AccessControl, PeerName};
use super::notice::ThreadNotice;
use super::turn::ServiceTurn;
use crate::error::Refusal;
use crate::ids::{LinkId, ReplyTo};
use crate::limits::{self, Claimant};
use crate::logfile::{ClaimedFiles, FileClaim};
use crate::process::ProcessKey;
pub(super) use control::UpdateRequest;
pub(super) use start::{RequestedLogFile, check_config};

pub(super) enum SessionPhase {
    /// The session's threads and the header of its log file are being created.
    Starting {
        /// The start request to reply to.
        reply_to: ReplyTo,
        /// The status of a session that ended before the service handled its `Started` notice.
        ended: Option<Status>,
    },
    /// The session collects events.
    Running(Session),
    /// The session's processes are ordered to stop writing, or its file is being finished.
    Stopping {
        session: Session,
        /// The stop request to reply to; `None` if no controller has requested the stop.
        reply_to: Option<ReplyTo>,
    },
}

pub(super) struct SessionEntry {
    /// The name as given by the controller.
    pub(super) name: String,
    pub(super) guid: Guid,
    /// The claim on the log file.
    pub(super) file: Option<FileClaim>,
    /// Maximum size of all buffers of the session in bytes.
    pub(super) pool_bytes: u64,
    pub(super) uncounted: UncountedProcesses,
    /// Number of changes under way, such as updates and flushes.
    pub(super) changes: usize,
    /// The process that started the session, for the log.
    pub(super) starter: PeerName,
    /// The user that the session's resources are charged to.
    pub(super) claimant: Claimant,
    /// The connection at whose end the session ends too.
    pub(super) tied_to: Option<LinkId>,
    /// Whether the session has enabled one of the kernel's manifest providers.
    pub(super) has_kernel_events: bool,
    pub(super) phase: SessionPhase,
}

impl SessionEntry {
    /// Adds the number of processes with unknown losses to the properties.
    pub(super) fn with_uncounted(&self, mut properties: Properties) -> Properties {
        let processes = &mut properties.uncounted_processes;
        *processes = processes.saturating_add(self.uncounted.processes);
        properties
    }
}

/// Maximum number of refused processes per session that are recognised when they connect again.
const MAX_REFUSED: usize = 1024;

/// Processes that may have lost an unknown number of events. Each connection counts once, and a
/// process that is refused repeatedly counts once.
#[derive(Debug, Default)]
pub(super) struct UncountedProcesses {
    processes: u32,
    /// The counted processes that are still connected.
    connected: BTreeSet<LinkId>,
    /// Counted processes that have no connection, because they were refused.
    refused: BTreeSet<ProcessKey>,
}

impl UncountedProcesses {
    pub(super) fn add(&mut self, link: LinkId) {
        if self.connected.insert(link) {
            self.processes = self.processes.saturating_add(1);
        }
    }

    /// Adds a process that was refused; `None` if the daemon cannot recognise it another time.
    fn add_refused(&mut self, process: Option<ProcessKey>) {
        let process = process.filter(|process| *process != ProcessKey::ENDED);
        if process.is_some_and(|process| self.refused.contains(&process)) {
            return;
        }
        self.refused.extend(process.filter(|_| self.refused.len() < MAX_REFUSED));
        self.processes = self.processes.saturating_add(1);
    }
}

/// Maximum number of ended sessions whose outcome is kept.
const MAX_OUTCOMES: usize = 64;

/// A session that has ended.
struct EndedSession {
    /// The final properties.
    outcome: Properties,
    /// The user who started it.
    uid: u32,
    /// Whether a controller sent a stop after the session had ended, or a later session of the same
    /// name and user has ended. Such a session is no longer listed; its outcome is still returned.
    is_dismissed: bool,
}

/// All sessions, with the outcomes (the final properties) of the last that ended.
pub(super) struct SessionTable {
    max_sessions: usize,
    /// Maximum size in bytes of the buffers of all sessions.
    pub(super) pool_budget: u64,
    generation: u64,
    last_logger_id: u16,
    by_id: BTreeMap<u64, SessionEntry>,
    /// The last ended sessions, the latest first.
    ended: VecDeque<EndedSession>,
    /// The files that sessions write.
    pub(super) files: ClaimedFiles,
    /// Number of file checks under way for sessions that are about to be refused.
    pub(super) file_checks: usize,
    /// Whether processes whose connections cannot be accepted may have written to regions that they
    /// created themselves. A session that is stopped meanwhile counts one such process: their
    /// number is not known.
    pub(super) has_unaccepted_processes: bool,
}

impl SessionTable {
    /// Creates an empty table for at most `max_sessions` sessions of a daemon that started at this
    /// time.
    pub(super) fn new(max_sessions: usize, started: SystemTime) -> Self {
        let seconds = started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self {
            max_sessions,
            pool_budget: limits::max_pool_bytes(),
            generation: seconds & 0xFFFF_FFFF,
            last_logger_id: 0,
            by_id: BTreeMap::new(),
            ended: VecDeque::new(),
            files: ClaimedFiles::default(),
            file_checks: 0,
            has_unaccepted_processes: false,
        }
    }

    pub(super) fn max_sessions(&self) -> usize {
        self.max_sessions
    }

    /// Checks that a new session may have this name and GUID.
    pub(super) fn check_name(&self, name: &str, guid: &Guid) -> Result<(), Refusal> {
        // The GUID of another session is refused as a name too: it would be ambiguous.
        if self.find_any(&SessionRef::Name(name.to_owned())).is_some() {
            return Err(Refusal::name_taken(name));
        }
        let is_taken = |entry: &SessionEntry| entry.guid == *guid || entry.name.parse() == Ok(*guid);
        if self.by_id.values().any(is_taken) {
            return Err(Refusal::new(Status::ERROR_ALREADY_EXISTS, "a session with this GUID is running"));
        }
        Ok(())
    }

    /// Checks that a user may have another session.
    pub(super) fn check_session_limit(&self, claimant: Claimant) -> Result<(), Refusal> {
        let limit_refusal = |reason| Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
        if self.by_id.len() >= self.max_sessions {
            return limit_refusal(format!("{} sessions are running, which is the limit", self.max_sessions));
        }
        let (per_guest, all_guests) = (
            limits::max_sessions_per_guest(self.max_sessions),
            limits::max_sessions_of_all_guests(self.max_sessions),
        );
        if !claimant.is_below_limits(self.by_id.values().map(|entry| entry.claimant), per_guest, all_guests) {
            return limit_refusal(format!(
                "of {} sessions, users other than root and the daemon's own user may run {all_guests} in total and {per_guest} each: stop some",
                self.max_sessions
            ));
        }
        Ok(())
    }

    /// Returns how many bytes the buffers of another session may use.
    pub(super) fn free_pool_bytes(&self, is_guest: bool) -> u64 {
        let used_bytes: u64 = self.by_id.values().map(|entry| entry.pool_bytes).sum();
        let budget =
            if is_guest { limits::max_pool_bytes_of_all_guests(self.pool_budget) } else { self.pool_budget };
        budget.saturating_sub(used_bytes)
    }

    /// Returns an id for a new session. [`check_session_limit`](Self::check_session_limit) has made
    /// sure that an id is free.
    pub(super) fn next_id(&mut self) -> u64 {
        // Logger ids range from 1 to this number: at least 64, so that ids are reused late.
        let slots = u16::try_from(self.max_sessions.max(64)).unwrap_or(u16::MAX);
        let is_free = |logger: u16| !self.by_id.keys().any(|id| id & 0xFFFF == u64::from(logger));
        let mut logger = self.last_logger_id;
        for _ in 0..slots {
            logger = if logger >= slots { 1 } else { logger + 1 };
            if is_free(logger) {
                break;
            }
        }
        self.last_logger_id = logger;
        self.next_id_with_logger(logger)
    }

    /// Returns a new session id with this logger id.
    pub(super) fn next_id_with_logger(&mut self, logger: u16) -> u64 {
        self.generation += 1;
        self.generation << 16 | u64::from(logger)
    }

    pub(super) fn insert(&mut self, id: u64, entry: SessionEntry) {
        self.by_id.insert(id, entry);
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<SessionEntry> {
        self.by_id.remove(&id)
    }

    /// Stores the final properties of a session that a user started; returns the oldest stored
    /// properties if they were dropped.
    pub(super) fn store_outcome(&mut self, outcome: Properties, uid: u32) -> Option<Properties> {
        let forgotten = if self.ended.len() < MAX_OUTCOMES { None } else { self.ended.pop_back() };
        self.dismiss_by_name(&outcome.config.name, uid);
        self.ended.push_front(EndedSession { outcome, uid, is_dismissed: false });
        forgotten.map(|ended| ended.outcome)
    }

    /// Removes an ended session, and earlier ones of the same name and user, from the list of ended
    /// sessions. Their outcomes are still returned.
    pub(super) fn dismiss_ended(&mut self, reference: &SessionRef) {
        if let Some(ended) = self.find_ended(reference) {
            let (name, uid) = (ended.outcome.config.name.clone(), ended.uid);
            self.dismiss_by_name(&name, uid);
        }
    }

    fn dismiss_by_name(&mut self, name: &str, uid: u32) {
        let is_same =
            |ended: &&mut EndedSession| ended.uid == uid && is_same_name(&ended.outcome.config.name, name);
        self.ended.iter_mut().filter(is_same).for_each(|ended| ended.is_dismissed = true);
    }

    /// Returns the final properties of a session that has ended.
    pub(super) fn outcome(&self, reference: &SessionRef) -> Result<&Properties, Refusal> {
        if self.find(reference).is_ok() {
            let reason = "the session is running: it has no outcome yet";
            return Err(Refusal::new(Status::ERROR_WMI_INSTANCE_NOT_FOUND, reason));
        }
        self.find_outcome(reference).ok_or_else(|| self.unknown_session_refusal(reference))
    }

    /// Returns the outcomes of the sessions that are not dismissed, the latest first.
    pub(super) fn listed_outcomes(&self) -> Vec<Properties> {
        let listed = self.ended.iter().filter(|ended| !ended.is_dismissed);
        listed.map(|ended| ended.outcome.clone()).collect()
    }

    fn find_outcome(&self, reference: &SessionRef) -> Option<&Properties> {
        self.find_ended(reference).map(|ended| &ended.outcome)
    }

    fn find_ended(&self, reference: &SessionRef) -> Option<&EndedSession> {
        self.ended.iter().find(|EndedSession { outcome, .. }| match reference {
            SessionRef::Id(id) => outcome.id == *id,
            SessionRef::Name(name) => is_same_name(&outcome.config.name, name),
        })
    }

    /// Returns the refusal for a reference that names no running session.
    fn unknown_session_refusal(&self, reference: &SessionRef) -> Refusal {
        if reference.names_no_session() {
            let reason = "no session is named: give its name, or its id, which is not 0";
            return Refusal::new(Status::ERROR_INVALID_PARAMETER, reason);
        }
        let Some(outcome) = self.find_outcome(reference) else { return Refusal::not_running() };
        let (name, status) = (&outcome.config.name, Status(outcome.end_status));
        let reason = match status {
            Status::ERROR_SUCCESS => format!("session {name:?} has ended"),
            status => format!("session {name:?} ended by itself: {status}"),
        };
        Refusal::new(Status::ERROR_WMI_INSTANCE_NOT_FOUND, reason)
    }

    /// Returns the sessions that end when a connection closes.
    pub(super) fn sessions_tied_to(&self, link: LinkId) -> Vec<u64> {
        self.by_id.iter().filter(|(_, entry)| entry.tied_to == Some(link)).map(|(id, _)| *id).collect()
    }

    /// Counts a process that may have lost an unknown number of events.
    pub(super) fn count_uncounted(&mut self, session: u64, link: LinkId) {
        if let Some(entry) = self.get_mut(session) {
            entry.uncounted.add(link);
        }
    }

    /// Counts a process that was refused because of a limit, and may write events that are lost.
    pub(super) fn count_refused_process(&mut self, session: u64, process: Option<ProcessKey>) {
        if let Some(entry) = self.get_mut(session) {
            entry.uncounted.add_refused(process);
        }
    }

    /// Notes the connection of a process that was refused and counted before, so that it is not
    /// counted again.
    pub(super) fn note_return_of_refused(&mut self, link: LinkId, process: Option<ProcessKey>) {
        let Some(process) = process else { return };
        for entry in self.by_id.values_mut() {
            if entry.uncounted.refused.remove(&process) {
                entry.uncounted.connected.insert(link);
            }
        }
    }

    /// Forgets a connection; its process stays counted.
    pub(super) fn forget_link(&mut self, link: LinkId) {
        for entry in self.by_id.values_mut() {
            entry.uncounted.connected.remove(&link);
        }
    }

    /// Marks a running session as stopping; returns `false` if it is not running.
    pub(super) fn begin_stop(&mut self, id: u64, reply_to: Option<ReplyTo>) -> bool {
        let Some(session) = self.running_session(id).cloned() else { return false };
        let Some(entry) = self.by_id.get_mut(&id) else { return false };
        entry.phase = SessionPhase::Stopping { session, reply_to };
        if self.has_unaccepted_processes {
            entry.uncounted.processes = entry.uncounted.processes.saturating_add(1);
        }
        true
    }

    /// Lets the session collect the remaining events and finish its file, once no process writes to
    /// it any more.
    pub(super) fn finish_stop(&self, turn: &ServiceTurn, id: u64) {
        if let Some(session) = self.session(id) {
            session.stop(turn.promise(move |outcome| ThreadNotice::Stopped { id, outcome }).into_callback());
        }
    }

    /// Detaches the region of a process from a session.
    pub(super) fn detach(&self, id: u64, region: RegionId) {
        if let Some(session) = self.session(id) {
            session.detach(region);
        }
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut SessionEntry> {
        self.by_id.get_mut(&id)
    }

    /// Marks a session that enables one of the kernel's manifest providers.
    pub(super) fn mark_kernel_events(&mut self, id: u64) {
        if let Some(entry) = self.by_id.get_mut(&id) {
            entry.has_kernel_events = true;
        }
    }

    /// Checks that the peer of a connection may read a session, or have its events written to a
    /// file. This needs the right to kernel events if the session is a system logger or has enabled
    /// one of the kernel's manifest providers.
    fn check_kernel_access(
        &self,
        access: &AccessControl,
        link: LinkId,
        id: u64,
        config: &SessionConfig,
    ) -> Result<(), Refusal> {
        match self.by_id.get(&id) {
            Some(SessionEntry { has_kernel_events: true, .. }) => access.check_kernel_right(link),
            _ => access.check_kernel_access(link, config),
        }
    }

    /// Checks that all who receive the events of a session may have kernel events: its consumers,
    /// and the user who started it, unless that user is the peer of `link`, whose right is checked
    /// elsewhere.
    pub(super) fn check_kernel_receivers(
        &self,
        access: &AccessControl,
        link: LinkId,
        id: u64,
    ) -> Result<(), Refusal> {
        let refuse = |who: String| {
            let reason = format!("kernel events: {who} would receive them and has no right to them");
            Err(Refusal::new(Status::ERROR_ACCESS_DENIED, reason))
        };
        let caller = access.peer(link).map(|peer| peer.uid);
        match self.by_id.get(&id).map(|entry| entry.claimant) {
            Some(claimant) if claimant.is_guest && Some(claimant.uid) != caller => {
                return refuse(format!("uid {}, who started the session,", claimant.uid));
            }
            _ => {}
        }
        for consumer in access.consumers_of(id) {
            if access.check_kernel_right(consumer).is_err() {
                return refuse(access.peer_name(consumer).to_string());
            }
        }
        Ok(())
    }

    pub(super) fn running_session(&self, id: u64) -> Option<&Session> {
        match &self.by_id.get(&id)?.phase {
            SessionPhase::Running(session) => Some(session),
            SessionPhase::Starting { .. } | SessionPhase::Stopping { .. } => None,
        }
    }

    /// Returns a session that is running or stopping.
    pub(super) fn session(&self, id: u64) -> Option<&Session> {
        match &self.by_id.get(&id)?.phase {
            SessionPhase::Running(session) | SessionPhase::Stopping { session, .. } => Some(session),
            SessionPhase::Starting { .. } => None,
        }
    }

    /// Finds a session in any phase, including while it starts.
    pub(super) fn find_any(&self, reference: &SessionRef) -> Option<u64> {
        match reference {
            SessionRef::Id(id) => self.by_id.contains_key(id).then_some(*id),
            SessionRef::Name(name) => self.find_by_name(name).or_else(|| {
                let guid = name.parse::<Guid>().ok()?;
                self.by_id.iter().find(|(_, entry)| entry.guid == guid).map(|(id, _)| *id)
            }),
        }
    }

    /// Finds a session that is running or stopping.
    pub(super) fn find(&self, reference: &SessionRef) -> Result<u64, Refusal> {
        self.find_any(reference)
            .filter(|id| self.session(*id).is_some())
            .ok_or_else(|| self.unknown_session_refusal(reference))
    }

    /// Finds a session that is running, and not stopping.
    pub(super) fn find_running(&self, reference: &SessionRef) -> Result<(u64, &Session), Refusal> {
        let id = self.find(reference)?;
        self.running_session(id).map(|session| (id, session)).ok_or_else(Refusal::not_running)
    }

    fn find_by_name(&self, name: &str) -> Option<u64> {
        self.by_id.iter().find(|(_, entry)| is_same_name(&entry.name, name)).map(|(id, _)| *id)
    }

    /// Returns the properties of all running and stopping sessions, in the order of their ids.
    pub(super) fn all_properties(&self) -> Vec<Properties> {
        self.by_id.keys().filter_map(|id| self.properties(*id)).collect()
    }

    pub(super) fn properties(&self, id: u64) -> Option<Properties> {
        let entry = self.by_id.get(&id)?;
        self.session(id).map(|session| entry.with_uncounted(session.properties()))
    }

    pub(super) fn running_ids(&self) -> Vec<u64> {
        self.by_id.keys().copied().filter(|id| self.running_session(*id).is_some()).collect()
    }

    /// Returns the name of a session; empty if the session does not exist.
    pub(super) fn name(&self, id: u64) -> &str {
        self.by_id.get(&id).map_or("", |entry| &entry.name)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.by_id.values().map(|entry| entry.name.clone()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

/// Returns whether two names are the same, ignoring case and the braces of a GUID.
pub(super) fn is_same_name(a: &str, b: &str) -> bool {
    let guid = |name: &str| name.parse::<Guid>().ok();
    a.to_lowercase() == b.to_lowercase() || guid(a).is_some_and(|a| guid(b) == Some(a))
}

#[cfg(test)]
mod tests;
