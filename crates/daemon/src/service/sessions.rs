//! The sessions of the daemon: names, ids, files and how far each has come.
//!
//! ```text
//!   Starting ──Started──▶ Running ──stop, end by itself, shut down──▶ Stopping ──Stopped──▶ gone
//! ```
//!
//! A session id is `generation << 16 | logger id`. The logger id goes into the buffers and is used again as late as possible; the
//! generation begins at the daemon's start time and never repeats, so that a stale id names nothing, also after a restart.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_session::Session;
use traceweir_transport::message::{Properties, SessionRef};

use super::{Asker, LinkId, Who};
use crate::error::Refusal;
use crate::limits::{self, Claimant};
use crate::logfile::Claim;

/// How far a session has come.
pub(super) enum State {
    /// Its threads and its header are being made.
    Starting {
        /// Who waits for it.
        asker: Asker,
        /// It ended before it was seen to run.
        ended: Option<Status>,
    },
    /// It collects.
    Running(Session),
    /// Its processes are told, or its file is being finished.
    Stopping {
        /// It.
        session: Session,
        /// Who waits for it; nobody where it ended by itself.
        asker: Option<Asker>,
    },
}

/// One session.
pub(super) struct Entry {
    /// Its name as given.
    pub(super) name: String,
    /// Its GUID.
    pub(super) guid: Guid,
    /// Its log file.
    pub(super) file: Option<Claim>,
    /// Bytes that its buffers may take.
    pub(super) pool_bytes: u64,
    pub(super) uncounted: Uncounted,
    /// Updates and flushes under way.
    pub(super) changes: usize,
    /// Who started it.
    pub(super) starter: Who,
    /// The same, for what he may use up.
    pub(super) owner: Claimant,
    /// The connection whose end is its end.
    pub(super) tied_to: Option<LinkId>,
    /// How far it is.
    pub(super) state: State,
}

impl Entry {
    /// Adds the processes that had nowhere to count what they lost.
    pub(super) fn with_uncounted(&self, mut properties: Properties) -> Properties {
        let processes = &mut properties.uncounted_processes;
        *processes = processes.saturating_add(self.uncounted.processes);
        properties
    }
}

/// Processes of which a session may have missed events that nothing could count, each once for a
/// connection.
#[derive(Debug, Default)]
pub(super) struct Uncounted {
    processes: u32,
    /// Those of them that are still connected.
    connected: BTreeSet<LinkId>,
}

impl Uncounted {
    pub(super) fn add(&mut self, link: LinkId) {
        if self.connected.insert(link) {
            self.processes = self.processes.saturating_add(1);
        }
    }
}

/// Sessions whose outcome is remembered.
const OUTCOMES: usize = 64;

/// All sessions.
pub(super) struct Sessions {
    most: usize,
    pub(super) pool_budget: u64,
    generation: u64,
    last_logger: u16,
    all: BTreeMap<u64, Entry>,
    /// How the last ones were at their end, the latest first.
    outcomes: VecDeque<Properties>,
    /// GUIDs that were made up for sessions that run, or are remembered.
    pub(super) generated: BTreeSet<Guid>,
}

impl Sessions {
    /// Room for so many.
    pub(super) fn new(most: usize) -> Self {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self {
            most,
            pool_budget: limits::pool_budget(),
            generation: seconds & 0xFFFF_FFFF,
            last_logger: 0,
            all: BTreeMap::new(),
            outcomes: VecDeque::new(),
            generated: BTreeSet::new(),
        }
    }

    /// How many there may be.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Whether a session may have this name and GUID.
    pub(super) fn check_name(&self, name: &str, guid: &Guid) -> Result<(), Refusal> {
        // A name that is the GUID of another would be two sessions to whoever stops one by it.
        if self.known(&SessionRef::Name(name.to_owned())).is_some() {
            return Err(name_is_taken(name));
        }
        let is_taken = |entry: &Entry| entry.guid == *guid || entry.name.parse() == Ok(*guid);
        if self.all.values().any(is_taken) {
            return Err(Refusal::new(Status::ERROR_ALREADY_EXISTS, "a session with this GUID is running"));
        }
        Ok(())
    }

    /// Whether somebody may have another session.
    pub(super) fn check_room(&self, who: Claimant) -> Result<(), Refusal> {
        let full = |why| Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, why));
        if self.all.len() >= self.most {
            return full(format!("{} sessions are running, which is the limit", self.most));
        }
        let (of_guest, of_guests) =
            (limits::sessions_of_guest(self.most), limits::sessions_of_guests(self.most));
        if !who.has_room(self.all.values().map(|entry| entry.owner), of_guest, of_guests) {
            return full(format!(
                "of {} sessions users other than root and the daemon's own may run {of_guests}, and each of them {of_guest}: stop some",
                self.most
            ));
        }
        Ok(())
    }

    /// Bytes that the buffers of another session may take.
    pub(super) fn pool_left(&self, is_guest: bool) -> u64 {
        let taken: u64 = self.all.values().map(|entry| entry.pool_bytes).sum();
        let budget = if is_guest { limits::pool_of_guests(self.pool_budget) } else { self.pool_budget };
        budget.saturating_sub(taken)
    }

    /// An id for a session to come. [`check_room`](Self::check_room) has said that there is room.
    pub(super) fn next_id(&mut self) -> u64 {
        let slots = u16::try_from(self.most.max(64)).unwrap_or(u16::MAX);
        let is_free = |logger: u16| !self.all.keys().any(|id| id & 0xFFFF == u64::from(logger));
        let mut logger = self.last_logger;
        for _ in 0..slots {
            logger = if logger >= slots { 1 } else { logger + 1 };
            if is_free(logger) {
                break;
            }
        }
        self.last_logger = logger;
        self.next_id_with(logger)
    }

    /// An id for a session whose logger id is not one of ours to give.
    pub(super) fn next_id_with(&mut self, logger: u16) -> u64 {
        self.generation += 1;
        self.generation << 16 | u64::from(logger)
    }

    /// Adds a session.
    pub(super) fn insert(&mut self, id: u64, entry: Entry) {
        self.all.insert(id, entry);
    }

    /// Takes a session out.
    pub(super) fn remove(&mut self, id: u64) -> Option<Entry> {
        self.all.remove(&id)
    }

    /// Remembers how a session was at its end; the one that is forgotten for it.
    pub(super) fn remember(&mut self, outcome: Properties) -> Option<Properties> {
        let forgotten = if self.outcomes.len() < OUTCOMES { None } else { self.outcomes.pop_back() };
        self.outcomes.push_front(outcome);
        forgotten
    }

    /// How the session that is meant was at its end.
    pub(super) fn outcome(&self, reference: &SessionRef) -> Result<&Properties, Refusal> {
        if self.find(reference).is_ok() {
            let why = "the session is running: it has no outcome yet";
            return Err(Refusal::new(Status::ERROR_WMI_INSTANCE_NOT_FOUND, why));
        }
        self.remembered(reference).ok_or_else(|| self.gone(reference))
    }

    /// The sessions that have ended and are remembered, the latest first.
    pub(super) fn ended(&self) -> Vec<Properties> {
        self.outcomes.iter().cloned().collect()
    }

    fn remembered(&self, reference: &SessionRef) -> Option<&Properties> {
        let is_meant = |outcome: &&Properties| match reference {
            SessionRef::Id(id) => outcome.id == *id,
            SessionRef::Name(name) => is_same_name(&outcome.config.name, name),
        };
        self.outcomes.iter().find(is_meant)
    }

    /// The refusal for a session that is not there, or not any more, or not named at all.
    fn gone(&self, reference: &SessionRef) -> Refusal {
        if reference.is_nothing() {
            let why = "no session is named: give its name, or its id, which is not 0";
            return Refusal::new(Status::ERROR_INVALID_PARAMETER, why);
        }
        let Some(outcome) = self.remembered(reference) else { return not_running() };
        let (name, status) = (&outcome.config.name, Status(outcome.end_status));
        let why = match status {
            Status::ERROR_SUCCESS => format!("session {name:?} has ended"),
            status => format!("session {name:?} ended by itself: {status} (status {})", status.0),
        };
        Refusal::new(Status::ERROR_WMI_INSTANCE_NOT_FOUND, why)
    }

    /// Those that end with a connection.
    pub(super) fn tied_to(&self, link: LinkId) -> Vec<u64> {
        self.all.iter().filter(|(_, entry)| entry.tied_to == Some(link)).map(|(id, _)| *id).collect()
    }

    /// Counts a process of which the session may have missed events that nothing could count.
    pub(super) fn count_uncounted(&mut self, session: u64, link: LinkId) {
        if let Some(entry) = self.get_mut(session) {
            entry.uncounted.add(link);
        }
    }

    /// Forgets a connection; its process stays counted.
    pub(super) fn forget_link(&mut self, link: LinkId) {
        for entry in self.all.values_mut() {
            entry.uncounted.connected.remove(&link);
        }
    }

    /// One session.
    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Entry> {
        self.all.get_mut(&id)
    }

    /// One session, while it runs.
    pub(super) fn running_session(&self, id: u64) -> Option<&Session> {
        match &self.all.get(&id)?.state {
            State::Running(session) => Some(session),
            State::Starting { .. } | State::Stopping { .. } => None,
        }
    }

    /// One session, from when it runs until it is gone.
    pub(super) fn session(&self, id: u64) -> Option<&Session> {
        match &self.all.get(&id)?.state {
            State::Running(session) | State::Stopping { session, .. } => Some(session),
            State::Starting { .. } => None,
        }
    }

    /// The session that is meant, also while it starts.
    pub(super) fn known(&self, reference: &SessionRef) -> Option<u64> {
        match reference {
            SessionRef::Id(id) => self.all.contains_key(id).then_some(*id),
            SessionRef::Name(name) => self.named(name).or_else(|| {
                let guid = name.parse::<Guid>().ok()?;
                self.all.iter().find(|(_, entry)| entry.guid == guid).map(|(id, _)| *id)
            }),
        }
    }

    /// The session that is meant.
    pub(super) fn find(&self, reference: &SessionRef) -> Result<u64, Refusal> {
        self.known(reference).filter(|id| self.session(*id).is_some()).ok_or_else(|| self.gone(reference))
    }

    /// As [`find`](Self::find), and the session is not about to stop.
    pub(super) fn find_running(&self, reference: &SessionRef) -> Result<(u64, &Session), Refusal> {
        let id = self.find(reference)?;
        self.running_session(id).map(|session| (id, session)).ok_or_else(not_running)
    }

    fn named(&self, name: &str) -> Option<u64> {
        self.all.iter().find(|(_, entry)| is_same_name(&entry.name, name)).map(|(id, _)| *id)
    }

    /// How all are, by id.
    pub(super) fn all_properties(&self) -> Vec<Properties> {
        self.all.keys().filter_map(|id| self.properties(*id)).collect()
    }

    /// How one is.
    pub(super) fn properties(&self, id: u64) -> Option<Properties> {
        let entry = self.all.get(&id)?;
        self.session(id).map(|session| entry.with_uncounted(session.properties()))
    }

    /// Ids of those that run.
    pub(super) fn running(&self) -> Vec<u64> {
        self.all.keys().copied().filter(|id| self.running_session(*id).is_some()).collect()
    }

    /// The name of one.
    pub(super) fn name(&self, id: u64) -> &str {
        self.all.get(&id).map_or("", |entry| &entry.name)
    }

    /// Names of all.
    pub(super) fn names(&self) -> Vec<String> {
        self.all.values().map(|entry| entry.name.clone()).collect()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// Whether two names are one: case does not count, and neither do the braces of a GUID.
pub(super) fn is_same_name(a: &str, b: &str) -> bool {
    let guid = |name: &str| name.parse::<Guid>().ok();
    a.to_lowercase() == b.to_lowercase() || guid(a).is_some_and(|a| guid(b) == Some(a))
}

/// The refusal for a name that a session has.
pub(super) fn name_is_taken(name: &str) -> Refusal {
    Refusal::new(Status::ERROR_ALREADY_EXISTS, format!("a session {name:?} is running"))
}

/// The refusal for a session that is not there.
pub(super) fn not_running() -> Refusal {
    Refusal::new(Status::ERROR_WMI_INSTANCE_NOT_FOUND, "no such session is running")
}

#[cfg(test)]
mod tests;
