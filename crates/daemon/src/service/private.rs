//! Private sessions that a controller starts from outside: each process of a provider runs its own.
//!
//! ```text
//!   C ──Start (PRIVATE_LOGGER_MODE, guid = the provider)──▶ D ──PrivateStart──▶ every process that
//!                                                                               has registered it
//!   C ◀──Properties: the sums──────────────────────────── D ◀──PrivateState── each, or a timeout
//!        later: P ──Register──▶ D ──PrivateStart, PrivateEnable…──▶ P ─▶ Registered
//!
//!   C: controller   D: daemon   P: a process
//! ```
//!
//! The daemon holds no buffer and no file of such a session. It stores the participating processes
//! and the last report of each, and passes requests on to all of them.
//!
//! 1. A process takes part if it meets three conditions. It has registered the provider or, in a
//!    session that enables the provider by name, any provider of that name (`by_name`). It belongs
//!    to the user who started the session, and the starter is in all groups of the process; a
//!    session of root includes all users and groups. It passes the session's filters: ids of
//!    existing processes, names of programs. The process itself checks further rights.
//! 2. The first process gets the log file's name as given (the plain name), each later process gets
//!    `NAME_PID`. The file with the plain name belongs to the first process that runs the session,
//!    even after that process has ended.
//! 3. Private sessions are in no list of sessions and not counted with them; there are at most
//!    [`limits::MAX_PRIVATE_SESSIONS`]. Their names are unique among all sessions. Their logger ids
//!    are separate from those of other sessions.
//! 4. The daemon waits for the answers to a start or query up to [`ANSWER_TIMEOUT`], and to an
//!    enable as long as the call says. A change or stop may have to wait for a disk and gets
//!    [`DISK_TIMEOUT`], but only [`ANSWER_TIMEOUT`] if a process belongs to another user than the
//!    starter, which is possible in a session of root. Processes of other users get only
//!    [`OTHER_USERS_TIMEOUT`], unless filters name them. A later report still counts.
//!    `uncounted_processes` includes each process that refuses to run the session, and each process
//!    of another user that does not report at the end. If any other process does not answer in
//!    time, a change, an enable or a stop is answered with ERROR_TIMEOUT.
//! 5. Starting a private session requires the same rights as starting any session, but on the
//!    provider's GUID. Its starter, root and the daemon's own user control it. Only its starter and
//!    root may name a file, because processes open it with the rights of their own users.

mod answers;
mod by_name;
mod owner;
mod requests;
mod show;
mod track;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use traceweir_format::Guid;
use traceweir_format::spec::enable::{EVENT_FILTER_TYPE_EXECUTABLE_NAME, EVENT_FILTER_TYPE_PID};
use traceweir_format::spec::session::{EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE};
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{EnableParams, Filter, Properties, SessionConfig, SessionRef};

use super::sessions::is_same_name;
use crate::access::UserIdentity;
use crate::error::Refusal;
use crate::filter::{self, ProcessScope};
use crate::ids::{LinkId, ReplyTo};
use crate::limits::{self, Claimant};
use crate::registry::ProviderProcess;

/// Maximum number of providers that one private session enables.
const MAX_ENABLED_PROVIDERS: usize = 64;
/// Maximum number of GUIDs that one session enables by name in one process.
const MAX_GUIDS_BY_NAME: usize = 64;
/// Maximum number of unanswered requests of one controller. At this number, an enable that waits
/// for its processes is refused.
const MAX_PENDING_OF_CONTROLLER: usize = 16;
/// How long processes may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long processes may take to answer if they may have to wait for a disk.
const DISK_TIMEOUT: Duration = Duration::from_secs(50);

/// How long processes of users other than the starter may take to answer, unless filters name them.
const OTHER_USERS_TIMEOUT: Duration = Duration::from_secs(1);

/// The logger ids of private sessions, which the daemon's own sessions never use. There are more
/// ids than private sessions that run or are being stopped.
const PRIVATE_LOGGER_IDS: RangeInclusive<u16> = 0x8000..=0xFFFE;

/// Returns whether processes run this session for a controller.
pub(super) fn is_private(config: &SessionConfig) -> bool {
    let private_modes = EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC;
    config.log_file_mode & private_modes == EVENT_TRACE_PRIVATE_LOGGER_MODE
}

/// All private sessions, and the requests to their processes.
#[derive(Debug, Default)]
pub(super) struct PrivateSessions {
    sessions: BTreeMap<u64, PrivateSessionEntry>,
    /// The unanswered requests by order number.
    pending: BTreeMap<u32, UnansweredRequest>,
    last_order: u32,
    last_logger_id: u16,
    /// When a request was last concluded.
    pub(super) last_used: Option<Instant>,
}

#[derive(Debug)]
struct PrivateSessionEntry {
    /// The adjusted configuration; its GUID is the provider's.
    config: SessionConfig,
    /// The uid of the user who started the session.
    starter: u32,
    /// The identity of that user with all groups.
    identity: UserIdentity,
    claimant: Claimant,
    participants: ProcessScope,
    members: BTreeMap<LinkId, SessionMember>,
    /// Whether the log file's plain name was given to a process.
    is_plain_name_used: bool,
    enables: BTreeMap<Guid, ListedEnable>,
    tied_to: Option<LinkId>,
    /// The sums of processes that have disconnected.
    disconnected_sums: Properties,
    /// Number of processes that did not run the session, or did not report at its end.
    uncounted: u32,
    /// Whether the session records the modules of its providers.
    tracks_binaries: bool,
}

#[derive(Debug)]
struct ListedEnable {
    params: EnableParams,
    /// The provider name given by the controller.
    name: String,
    /// Whether the GUID is the hash of that name, so that the session enables all GUIDs registered
    /// under it.
    is_by_name: bool,
}

/// A process that takes part in a session.
#[derive(Debug, Default)]
struct SessionMember {
    /// Whether the process has reported that the session runs.
    is_running: bool,
    /// Whether the log file of the process has the plain name.
    has_plain_name: bool,
    /// Whether the process belongs to a user other than the starter.
    has_other_user: bool,
    last_report: Properties,
    /// The GUIDs that the process was ordered to enable because of a name, each with the hash of
    /// that name. A GUID stays here when its registration goes: the process keeps its enables.
    by_name: BTreeMap<Guid, Guid>,
}

#[derive(Debug)]
enum RequestPurpose {
    Start,
    Query,
    Change,
    Enable,
    /// Holds the session, which is no longer in `PrivateSessions::sessions`.
    Stop(Box<PrivateSessionEntry>),
}

/// A request that some processes have not answered yet.
#[derive(Debug)]
struct UnansweredRequest {
    reply_to: Option<ReplyTo>,
    /// The user who made the request; kept when the connection is closed.
    claimant: Claimant,
    session: u64,
    purpose: RequestPurpose,
    /// The processes that have not answered.
    waiting: BTreeSet<LinkId>,
    succeeded: usize,
    failure: Option<Refusal>,
    deadline: Option<Instant>,
    /// The deadline for processes of other users, and these processes.
    others: Option<(Instant, BTreeSet<LinkId>)>,
}

impl UnansweredRequest {
    fn new(reply_to: Option<ReplyTo>, claimant: Claimant, session: u64, purpose: RequestPurpose) -> Self {
        Self {
            reply_to,
            claimant,
            session,
            purpose,
            waiting: BTreeSet::new(),
            succeeded: 0,
            failure: None,
            deadline: None,
            others: None,
        }
    }
}

impl PrivateSessions {
    /// Finds a session by id or name.
    pub(super) fn find(&self, reference: &SessionRef) -> Option<u64> {
        match reference {
            SessionRef::Id(id) => self.sessions.contains_key(id).then_some(*id),
            SessionRef::Name(name) => {
                let has_name = |private: &PrivateSessionEntry| is_same_name(&private.config.name, name);
                self.sessions.iter().find(|(_, private)| has_name(private)).map(|(id, _)| *id)
            }
        }
    }

    /// Finds the session whose provider has this GUID, if it is the only session of that provider.
    pub(super) fn find_only_session_of_provider(&self, provider: &str) -> Option<u64> {
        let provider = provider.parse::<Guid>().ok()?;
        let mut sessions = self.sessions.iter().filter(|(_, private)| private.config.guid == provider);
        sessions.next().map(|(id, _)| *id).filter(|_| sessions.next().is_none())
    }

    /// Checks that another session may have this name.
    pub(super) fn check_name(&self, name: &str) -> Result<(), Refusal> {
        match self.find(&SessionRef::Name(name.to_owned())) {
            Some(_) => Err(Refusal::name_taken(name)),
            None => Ok(()),
        }
    }

    /// Returns the logger id of a new session; ids are reused as late as possible.
    fn next_logger_id(&mut self) -> u16 {
        let stopping = self.pending.values().map(|pending| pending.session);
        let used: BTreeSet<u64> =
            self.sessions.keys().copied().chain(stopping).map(|id| id & 0xFFFF).collect();
        for _ in PRIVATE_LOGGER_IDS {
            let next = self.last_logger_id.saturating_add(1);
            self.last_logger_id =
                if PRIVATE_LOGGER_IDS.contains(&next) { next } else { *PRIVATE_LOGGER_IDS.start() };
            if !used.contains(&self.last_logger_id.into()) {
                break;
            }
        }
        self.last_logger_id
    }

    /// Returns whether there are neither sessions nor pending requests.
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.pending.is_empty()
    }

    /// Returns the sessions that end when a connection closes.
    pub(super) fn sessions_tied_to(&self, link: LinkId) -> Vec<u64> {
        self.sessions.iter().filter(|(_, private)| private.tied_to == Some(link)).map(|(id, _)| *id).collect()
    }

    /// Returns the earliest deadline of a request.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let other_users_deadline = |pending: &UnansweredRequest| pending.others.as_ref().map(|(at, _)| *at);
        self.pending
            .values()
            .flat_map(|pending| [pending.deadline, other_users_deadline(pending)])
            .flatten()
            .min()
    }

    /// Returns an order number for an enable that waits, possibly without a deadline; limits the
    /// unanswered requests of its controller.
    fn next_order_for(&mut self, link: LinkId, claimant: Claimant) -> Result<u32, Refusal> {
        let count = self
            .pending
            .values()
            .filter(|pending| pending.reply_to.is_some_and(|reply_to| reply_to.link == link))
            .count();
        if count >= MAX_PENDING_OF_CONTROLLER {
            let reason = "too many calls of this controller are waiting";
            return Err(Refusal::new(Status::ERROR_BUSY, reason));
        }
        self.next_order(claimant)
    }

    /// Checks that a user may make another request to processes.
    fn check_pending(&self, claimant: Claimant) -> Result<(), Refusal> {
        let holders = self.pending.values().map(|pending| pending.claimant);
        let busy_refusal = |reason| Err(Refusal::new(Status::ERROR_BUSY, reason));
        if self.pending.len() >= limits::MAX_PENDING_REQUESTS {
            busy_refusal("too many requests about private sessions are under way")
        } else if !claimant.is_below_limits(
            holders,
            limits::MAX_PENDING_REQUESTS_PER_GUEST,
            limits::MAX_PENDING_REQUESTS_OF_ALL_GUESTS,
        ) {
            busy_refusal("you have too many requests about private sessions under way: wait for some of them")
        } else {
            Ok(())
        }
    }

    /// Returns the number of the next order; 0 is not used because it means that no reply is
    /// awaited.
    fn next_order(&mut self, claimant: Claimant) -> Result<u32, Refusal> {
        self.check_pending(claimant)?;
        self.last_order = self.last_order.checked_add(1).unwrap_or(1);
        while self.pending.contains_key(&self.last_order) {
            self.last_order = self.last_order.checked_add(1).unwrap_or(1);
        }
        Ok(self.last_order)
    }

    /// Finds a session that runs or is being stopped, so that processes may report on it.
    fn find_reported(&mut self, session: u64) -> Option<&mut PrivateSessionEntry> {
        if let Some(private) = self.sessions.get_mut(&session) {
            return Some(private);
        }
        self.pending.values_mut().find(|pending| pending.session == session).and_then(|pending| {
            match &mut pending.purpose {
                RequestPurpose::Stop(private) => Some(&mut **private),
                _ => None,
            }
        })
    }
}

impl PrivateSessionEntry {
    /// Returns whether a process belongs to a user whom the starter may include, and passes the
    /// session's filters. [`is_outranked_by`](Self::is_outranked_by) checks its groups.
    fn includes(&self, process: &ProviderProcess) -> bool {
        let peer = &process.peer;
        (self.starter == 0 || self.starter == peer.uid) && process.is_in_scope(&self.participants)
    }

    /// Returns whether a process has groups that the starter does not have, and could thus write
    /// where the starter cannot.
    fn is_outranked_by(&self, process: &UserIdentity) -> bool {
        let starter_has = |group: &u32| *group == self.identity.gid || self.identity.groups.contains(group);
        self.starter != 0 && !(starter_has(&process.gid) && process.groups.iter().all(starter_has))
    }

    /// Returns the log file name of a process: the given name, followed by the process id unless
    /// the process has the plain name.
    fn log_file_of_process(&self, name: Option<&Path>, has_plain_name: bool, pid: u32) -> Option<PathBuf> {
        let mut path = name?.as_os_str().to_owned();
        if !has_plain_name {
            path.push(format!("_{pid}"));
        }
        Some(path.into())
    }

    /// Returns the session's properties: the sums of all its processes.
    fn properties(&self, id: u64) -> Properties {
        let mut sum = self.disconnected_sums.clone();
        for member in self.members.values().filter(|member| member.is_running) {
            add_counters(&mut sum, &member.last_report);
            sum.processes = sum.processes.saturating_add(1);
        }
        sum.uncounted_processes = sum.uncounted_processes.saturating_add(self.uncounted);
        Properties { id, config: self.config.clone(), ..sum }
    }

    /// Returns the processes of other users, which the controller need not wait for; none if
    /// filters name the processes.
    fn processes_of_other_users(&self) -> BTreeSet<LinkId> {
        let are_named = self.participants.is_some();
        let others = self.members.iter().filter(|(_, member)| member.has_other_user && !are_named);
        others.map(|(link, _)| *link).collect()
    }

    /// Returns the timeout for requests that may wait for a disk. It is the short one if a process
    /// belongs to another user, because the controller does not wait for disks of other users.
    fn disk_timeout(&self) -> Duration {
        if self.members.values().any(|member| member.has_other_user) { ANSWER_TIMEOUT } else { DISK_TIMEOUT }
    }

    /// Removes a process that has disconnected; its last report still counts.
    fn remove_member(&mut self, link: LinkId) {
        if let Some(member) = self.members.remove(&link).filter(|member| member.is_running) {
            add_counters(&mut self.disconnected_sums, &member.last_report);
        }
    }
}

fn add_counters(sum: &mut Properties, report: &Properties) {
    sum.number_of_buffers = sum.number_of_buffers.saturating_add(report.number_of_buffers);
    sum.free_buffers = sum.free_buffers.saturating_add(report.free_buffers);
    sum.buffers_written = sum.buffers_written.saturating_add(report.buffers_written);
    sum.events_lost = sum.events_lost.saturating_add(report.events_lost);
    sum.log_buffers_lost = sum.log_buffers_lost.saturating_add(report.log_buffers_lost);
    sum.events = sum.events.saturating_add(report.events);
    sum.collector_ns = sum.collector_ns.saturating_add(report.collector_ns);
    sum.damaged_regions = sum.damaged_regions.saturating_add(report.damaged_regions);
    sum.uncounted_processes = sum.uncounted_processes.saturating_add(report.uncounted_processes);
    let (causes, more) = (&mut sum.lost_by_cause, &report.lost_by_cause);
    causes.no_room = causes.no_room.saturating_add(more.no_room);
    causes.not_written = causes.not_written.saturating_add(more.not_written);
    causes.damaged = causes.damaged.saturating_add(more.damaged);
    causes.no_region = causes.no_region.saturating_add(more.no_region);
    causes.kernel = causes.kernel.saturating_add(more.kernel);
    causes.overwritten = causes.overwritten.saturating_add(more.overwritten);
    sum.overwritten_buffers = sum.overwritten_buffers.saturating_add(report.overwritten_buffers);
    // The thread id of one of the processes is enough.
    sum.logger_thread_id = report.logger_thread_id;
    sum.end_status = sum.end_status.max(report.end_status);
}

/// Returns which processes take part according to the session's filters: process ids and names of
/// programs are allowed.
fn resolve_participants(provider: &Guid, filters: &[Filter]) -> Result<ProcessScope, Refusal> {
    let is_known =
        |filter: &Filter| matches!(filter.kind, EVENT_FILTER_TYPE_PID | EVENT_FILTER_TYPE_EXECUTABLE_NAME);
    if !filters.iter().all(is_known) {
        let reason =
            "the filters of a private session are process ids and names of programs, at most one of each";
        return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, reason));
    }
    let params = EnableParams { filters: filters.to_vec(), ..EnableParams::default() };
    filter::resolve_filters(provider, params).map(|(_, scope)| scope)
}

#[cfg(test)]
impl PrivateSessions {
    /// Returns all ids in use, including those of sessions that are being stopped.
    pub(super) fn session_ids(&self) -> Vec<u64> {
        let stopping =
            self.pending.values().filter(|pending| matches!(pending.purpose, RequestPurpose::Stop(_)));
        self.sessions.keys().copied().chain(stopping.map(|pending| pending.session)).collect()
    }

    /// Makes the next logger id wrap around.
    pub(super) fn wrap_logger_ids(&mut self) {
        self.last_logger_id = *PRIVATE_LOGGER_IDS.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_transport::socket::Peer;

    fn session_entry(starter: u32, filters: &[Filter]) -> PrivateSessionEntry {
        PrivateSessionEntry {
            config: SessionConfig::default(),
            starter,
            identity: UserIdentity::without_groups(&Peer { pid: 1, uid: starter, gid: starter }),
            claimant: Claimant { uid: starter, is_guest: starter != 0 },
            participants: resolve_participants(&Guid::NULL, filters).unwrap(),
            members: BTreeMap::new(),
            is_plain_name_used: false,
            enables: BTreeMap::new(),
            tied_to: None,
            disconnected_sums: Properties::default(),
            uncounted: 0,
            tracks_binaries: false,
        }
    }

    fn process(pid: u32, uid: u32) -> ProviderProcess {
        ProviderProcess::new(Peer { pid, uid, gid: uid }, crate::process::ProcessKey::from_pid(pid), 1)
    }

    fn name_filter(text: &str) -> Filter {
        let data = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        Filter { kind: EVENT_FILTER_TYPE_EXECUTABLE_NAME, data }
    }

    #[test]
    fn session_includes_processes_of_its_starter_and_all_for_root() {
        let own_pid = std::process::id();
        for (starter, user, takes_part) in
            [(1000, 1000, true), (1000, 1001, false), (1000, 0, false), (0, 1000, true), (0, 0, true)]
        {
            let session = session_entry(starter, &[]);
            assert_eq!(
                session.includes(&process(own_pid, user)),
                takes_part,
                "{starter} in a process of {user}"
            );
        }
    }

    #[test]
    fn process_in_groups_that_the_starter_is_not_in_takes_no_part() {
        let peer = Peer { pid: 1, uid: 1000, gid: 1000 };
        let with_groups = |groups: &[u32]| UserIdentity::with_groups(&peer, Some(groups.to_vec()));
        let session = PrivateSessionEntry { identity: with_groups(&[27, 50]), ..session_entry(1000, &[]) };
        assert!(!session.is_outranked_by(&with_groups(&[27])) && !session.is_outranked_by(&with_groups(&[])));
        assert!(session.is_outranked_by(&with_groups(&[27, 42])));
        assert!(session.is_outranked_by(&UserIdentity { gid: 42, ..with_groups(&[]) }));
        assert!(
            !session_entry(0, &[]).is_outranked_by(&with_groups(&[42])),
            "a session of root has no outranking process"
        );
    }

    #[test]
    fn name_filter_tests_the_program_that_actually_runs() {
        let program = std::env::current_exe().unwrap();
        let program = program.file_name().unwrap().to_string_lossy().to_uppercase();
        let own_process = process(std::process::id(), 1);
        assert!(session_entry(1, &[name_filter(&format!("other;{program}\0"))]).includes(&own_process));
        assert!(!session_entry(1, &[name_filter("other")]).includes(&own_process));
        assert!(
            !session_entry(1, &[name_filter(&program)]).includes(&process(u32::MAX, 1)),
            "the program of an ended process is unknown"
        );
        let pid = |pid: u32| Filter { kind: EVENT_FILTER_TYPE_PID, data: pid.to_le_bytes().to_vec() };
        assert!(session_entry(1, &[pid(std::process::id())]).includes(&own_process));
        assert!(
            !session_entry(1, &[pid(std::process::id()), name_filter("other")]).includes(&own_process),
            "all filters must match"
        );
        for wrong in [
            vec![name_filter("")],
            vec![name_filter("a"), name_filter("b")],
            vec![pid(1), pid(2)],
            vec![Filter { kind: 7, data: vec![] }],
        ] {
            assert_eq!(
                resolve_participants(&Guid::NULL, &wrong).unwrap_err().status,
                Status::ERROR_INVALID_PARAMETER,
                "{wrong:?}"
            );
        }
        let odd_length = Filter { kind: EVENT_FILTER_TYPE_EXECUTABLE_NAME, data: vec![1] };
        assert_eq!(
            resolve_participants(&Guid::NULL, &[odd_length]).unwrap_err().status,
            Status::ERROR_INVALID_PARAMETER
        );
    }
}
