//! Private sessions that a controller starts from outside: each process of a provider runs one by itself.
//!
//! ```text
//!   C ──Start (PRIVATE_LOGGER_MODE, guid = the provider)──▶ D ──PrivateStart──▶ every process that has registered it
//!   C ◀──Properties: the sums──────────────────────────── D ◀──PrivateState── each, or time is up
//!        later: P ──Register──▶ D ──PrivateStart, PrivateEnable…──▶ P ─▶ Registered
//! ```
//!
//! The daemon holds no buffer and no file of such a session. It knows who takes part and what each said last, and passes on what is
//! asked of all of them.
//!
//! 1. A process takes part if it has registered the provider (or, of a session that enables it by
//!    its name, the name: `by_name`), belongs to the user who started the session (root: to
//!    anybody), is in no group that he is not in, and passes the session's filters: ids of
//!    processes that were there, names of programs. What other rights it has it looks at itself.
//! 2. The first process gets the log file's name as given, each later one `NAME_PID`; the plain name is not given twice, for its file is the
//!    first one's also when that process is gone.
//! 3. Such sessions are in no list of sessions and not counted with them; there are [`limits::MAX_PRIVATES`] at most. Names are shared with all others, logger ids
//!    with none.
//! 4. A process is waited for as long as [`ANSWER_WITHIN`] says, or [`DISK_WITHIN`] where it may wait for a disk; what it says later still counts. Nobody has to
//!    wait for the processes of others: those that take part in root's session are given [`OTHERS_WITHIN`], and where filters name them [`ANSWER_WITHIN`] at most.
//!    A process that refuses, or is silent at the end, is counted as an uncounted process.
//! 5. Starting one takes the rights of any session, on the provider's GUID; it is controlled by who started it, and by root and the daemon's own user. A file is named
//!    by its starter and by root alone: it is opened with the rights of others.

mod act;
mod answers;
mod by_name;
mod owner;
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

use super::sessions::{is_same_name, name_is_taken};
use super::{ReplyTo, LinkId};
use crate::access::Identity;
use crate::error::Refusal;
use crate::filter::{self, Scope};
use crate::limits::{self, Claimant};
use crate::registry::Process;

/// Providers that one of them enables.
const MAX_ENABLES: usize = 64;
/// GUIDs that one session enables by names in one process.
const MAX_GUIDS_BY_NAME: usize = 64;
/// Those of one controller that may wait for ever.
const MAX_PENDING_OF_ONE: usize = 16;
/// How long processes may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// The same where a disk may be waited for.
const DISK_WITHIN: Duration = Duration::from_secs(50);

/// The same for processes of other users than the starter's, which nobody has asked for by name.
const OTHERS_WITHIN: Duration = Duration::from_secs(1);

/// Their logger ids, which those of the daemon's own sessions never reach: more than private sessions that run or are being stopped.
const LOGGERS: RangeInclusive<u16> = 0x8000..=0xFFFE;

/// Whether a session is one that processes run for a controller.
pub(super) fn is_private(config: &SessionConfig) -> bool {
    let kind = EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC;
    config.log_file_mode & kind == EVENT_TRACE_PRIVATE_LOGGER_MODE
}

/// All of them, and what is asked of their processes.
#[derive(Debug, Default)]
pub(super) struct Privates {
    all: BTreeMap<u64, Private>,
    pending: BTreeMap<u32, Pending>,
    last_order: u32,
    last_logger: u16,
}

/// One session.
#[derive(Debug)]
struct Private {
    /// As adjusted; its GUID is the provider's.
    config: SessionConfig,
    /// The user who started it.
    starter: u32,
    /// The same with all his groups.
    identity: Identity,
    owner: Claimant,
    who: Scope,
    members: BTreeMap<LinkId, Member>,
    /// The file's plain name is taken.
    is_named: bool,
    enables: BTreeMap<Guid, Enabled>,
    tied_to: Option<LinkId>,
    /// What processes that are gone had to say.
    gone: Properties,
    /// Processes that would not run it, or said nothing at its end.
    turned_away: u32,
    /// It is told where providers live.
    tracks_binaries: bool,
}

/// What it wants of a provider.
#[derive(Debug)]
struct Enabled {
    params: EnableParams,
    /// What the provider was called by who asked.
    name: String,
    /// The GUID is the hash of that name: the session enables all GUIDs registered under it.
    is_by_name: bool,
}

/// A process that takes part.
#[derive(Debug, Default)]
struct Member {
    /// It has said that the session runs.
    runs: bool,
    /// It has the file's plain name.
    is_named: bool,
    /// It belongs to another user than the starter.
    is_anothers: bool,
    last: Properties,
    /// The GUIDs that the process was ordered to enable because of a name, each with the hash of
    /// that name. A GUID stays here when its registration goes: the process keeps its enables.
    by_name: BTreeMap<Guid, Guid>,
}

/// What a request was for.
#[derive(Debug)]
enum Purpose {
    Start,
    Query,
    Change,
    Enable,
    /// It is in no list any more.
    Stop(Box<Private>),
}

/// A request that processes have not all answered.
#[derive(Debug)]
struct Pending {
    reply_to: Option<ReplyTo>,
    /// PeerName asked, also when he is gone.
    claimant: Claimant,
    session: u64,
    purpose: Purpose,
    waiting: BTreeSet<LinkId>,
    succeeded: usize,
    failure: Option<Refusal>,
    deadline: Option<Instant>,
    /// Until when those are waited for who need not be.
    others: Option<(Instant, BTreeSet<LinkId>)>,
}

impl Privates {
    /// The session of this id or name.
    pub(super) fn find(&self, reference: &SessionRef) -> Option<u64> {
        match reference {
            SessionRef::Id(id) => self.all.contains_key(id).then_some(*id),
            SessionRef::Name(name) => {
                let is_meant = |it: &Private| is_same_name(&it.config.name, name);
                self.all.iter().find(|(_, it)| is_meant(it)).map(|(id, _)| *id)
            }
        }
    }

    /// The session whose provider a text names, where it is the only one of that provider.
    pub(super) fn only_with_guid(&self, provider: &str) -> Option<u64> {
        let provider = provider.parse::<Guid>().ok()?;
        let mut all = self.all.iter().filter(|(_, it)| it.config.guid == provider);
        all.next().map(|(id, _)| *id).filter(|_| all.next().is_none())
    }

    /// Whether another session may have this name.
    pub(super) fn check_name(&self, name: &str) -> Result<(), Refusal> {
        match self.find(&SessionRef::Name(name.to_owned())) {
            Some(_) => Err(name_is_taken(name)),
            None => Ok(()),
        }
    }

    /// The logger id of a session to come, used again as late as possible.
    fn next_logger(&mut self) -> u16 {
        let stopping = self.pending.values().map(|it| it.session);
        let used: BTreeSet<u64> = self.all.keys().copied().chain(stopping).map(|id| id & 0xFFFF).collect();
        for _ in LOGGERS {
            let next = self.last_logger.saturating_add(1);
            self.last_logger = if LOGGERS.contains(&next) { next } else { *LOGGERS.start() };
            if !used.contains(&self.last_logger.into()) {
                break;
            }
        }
        self.last_logger
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.pending.is_empty()
    }

    /// Those that end with a connection.
    pub(super) fn tied_to(&self, link: LinkId) -> Vec<u64> {
        self.all.iter().filter(|(_, it)| it.tied_to == Some(link)).map(|(id, _)| *id).collect()
    }

    /// When the first request is given up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let others = |it: &Pending| it.others.as_ref().map(|(at, _)| *at);
        self.pending.values().flat_map(|it| [it.deadline, others(it)]).flatten().min()
    }

    /// The same for a controller that may wait for ever: one of them does not take the place of all others.
    fn next_order_of(&mut self, link: LinkId, claimant: Claimant) -> Result<u32, Refusal> {
        let its = self.pending.values().filter(|it| it.reply_to.is_some_and(|reply_to| reply_to.link == link)).count();
        if its >= MAX_PENDING_OF_ONE {
            let reason = "too many calls of this controller are waiting";
            return Err(Refusal::new(Status::ERROR_BUSY, reason));
        }
        self.next_order(claimant)
    }

    /// Whether somebody may ask something more of processes.
    fn check_pending(&self, claimant: Claimant) -> Result<(), Refusal> {
        let held = self.pending.values().map(|it| it.claimant);
        let busy = |reason| Err(Refusal::new(Status::ERROR_BUSY, reason));
        if self.pending.len() >= limits::MAX_PENDING {
            busy("too many requests about private sessions are under way")
        } else if !claimant.has_room(held, limits::MAX_PENDING_OF_GUEST, limits::MAX_PENDING_OF_GUESTS) {
            busy("too many requests of yours about private sessions are under way: wait for some of them")
        } else {
            Ok(())
        }
    }

    /// The number of an order to come; 0 means that nobody waits.
    fn next_order(&mut self, claimant: Claimant) -> Result<u32, Refusal> {
        self.check_pending(claimant)?;
        self.last_order = self.last_order.checked_add(1).unwrap_or(1);
        while self.pending.contains_key(&self.last_order) {
            self.last_order = self.last_order.checked_add(1).unwrap_or(1);
        }
        Ok(self.last_order)
    }

    /// A session that a process may still speak of: one that runs, or one that is being stopped.
    fn spoken_of(&mut self, session: u64) -> Option<&mut Private> {
        if let Some(private) = self.all.get_mut(&session) {
            return Some(private);
        }
        self.pending.values_mut().find(|it| it.session == session).and_then(|it| match &mut it.purpose {
            Purpose::Stop(private) => Some(&mut **private),
            _ => None,
        })
    }
}

impl Private {
    /// Whether a process takes part, where it has registered the provider.
    fn add_link(&self, process: &Process) -> bool {
        let peer = &process.peer;
        (self.starter == 0 || self.starter == peer.uid) && process.is_in(&self.who)
    }

    /// Whether a process has groups that the starter has not: then it may write where he may not.
    fn is_outranked_by(&self, process: &Identity) -> bool {
        let is_his = |group: &u32| *group == self.identity.gid || self.identity.groups.contains(group);
        self.starter != 0 && !(is_his(&process.gid) && process.groups.iter().all(is_his))
    }

    /// The log file of a process: the name as given for who comes first.
    fn path_for(&self, given: Option<&Path>, is_named: bool, pid: u32) -> Option<PathBuf> {
        let mut path = given?.as_os_str().to_owned();
        if !is_named {
            path.push(format!("_{pid}"));
        }
        Some(path.into())
    }

    /// How it is: what all its processes have said, in sum.
    fn properties(&self, id: u64) -> Properties {
        let mut sum = self.gone.clone();
        for member in self.members.values().filter(|it| it.runs) {
            add(&mut sum, &member.last);
            sum.processes = sum.processes.saturating_add(1);
        }
        sum.uncounted_processes = sum.uncounted_processes.saturating_add(self.turned_away);
        Properties { id, config: self.config.clone(), ..sum }
    }

    /// Those of its processes that nobody has to wait for.
    fn others(&self) -> BTreeSet<LinkId> {
        let are_named = self.who.is_some();
        let others = self.members.iter().filter(|(_, it)| it.is_anothers && !are_named);
        others.map(|(link, _)| *link).collect()
    }

    /// How long it may take to do something that waits for a disk: the disks of others are not waited for.
    fn within_for_disk(&self) -> Duration {
        if self.members.values().any(|it| it.is_anothers) { ANSWER_WITHIN } else { DISK_WITHIN }
    }

    /// A process is gone: what it said last still counts.
    fn leave(&mut self, link: LinkId) {
        if let Some(member) = self.members.remove(&link).filter(|it| it.runs) {
            add(&mut self.gone, &member.last);
        }
    }
}

fn add(sum: &mut Properties, one: &Properties) {
    sum.number_of_buffers = sum.number_of_buffers.saturating_add(one.number_of_buffers);
    sum.free_buffers = sum.free_buffers.saturating_add(one.free_buffers);
    sum.buffers_written = sum.buffers_written.saturating_add(one.buffers_written);
    sum.events_lost = sum.events_lost.saturating_add(one.events_lost);
    sum.log_buffers_lost = sum.log_buffers_lost.saturating_add(one.log_buffers_lost);
    sum.events = sum.events.saturating_add(one.events);
    sum.collector_ns = sum.collector_ns.saturating_add(one.collector_ns);
    sum.damaged_regions = sum.damaged_regions.saturating_add(one.damaged_regions);
    sum.uncounted_processes = sum.uncounted_processes.saturating_add(one.uncounted_processes);
    let (all, more) = (&mut sum.lost_by_cause, &one.lost_by_cause);
    all.no_room = all.no_room.saturating_add(more.no_room);
    all.not_written = all.not_written.saturating_add(more.not_written);
    all.damaged = all.damaged.saturating_add(more.damaged);
    all.no_region = all.no_region.saturating_add(more.no_region);
    all.kernel = all.kernel.saturating_add(more.kernel);
    all.overwritten = all.overwritten.saturating_add(more.overwritten);
    sum.overwritten_buffers = sum.overwritten_buffers.saturating_add(one.overwritten_buffers);
    // One of them is as good as another.
    sum.logger_thread_id = one.logger_thread_id;
    sum.end_status = sum.end_status.max(one.end_status);
}

/// Which processes take part, by the session's filters: process ids and names of programs are all that there can be.
fn who_takes_part(provider: &Guid, filters: &[Filter]) -> Result<Scope, Refusal> {
    let is_known = |it: &Filter| matches!(it.kind, EVENT_FILTER_TYPE_PID | EVENT_FILTER_TYPE_EXECUTABLE_NAME);
    if !filters.iter().all(is_known) {
        let reason = "a private session is limited by process ids and names of programs, once each";
        return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, reason));
    }
    let params = EnableParams { filters: filters.to_vec(), ..EnableParams::default() };
    filter::resolve(provider, params).map(|(_, scope)| scope)
}

#[cfg(test)]
impl Privates {
    /// All ids that are in use, those of sessions that are being stopped too.
    pub(super) fn ids(&self) -> Vec<u64> {
        let stopping = self.pending.values().filter(|it| matches!(it.purpose, Purpose::Stop(_)));
        self.all.keys().copied().chain(stopping.map(|it| it.session)).collect()
    }

    /// As if all numbers had been given once.
    pub(super) fn forget_last_logger(&mut self) {
        self.last_logger = *LOGGERS.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_transport::socket::Peer;

    fn private(starter: u32, filters: &[Filter]) -> Private {
        Private {
            config: SessionConfig::default(),
            starter,
            identity: Identity::alone(&Peer { pid: 1, uid: starter, gid: starter }),
            owner: Claimant { uid: starter, is_guest: starter != 0 },
            who: who_takes_part(&Guid::NULL, filters).unwrap(),
            members: BTreeMap::new(),
            is_named: false,
            enables: BTreeMap::new(),
            tied_to: None,
            gone: Properties::default(),
            turned_away: 0,
            tracks_binaries: false,
        }
    }

    fn process(pid: u32, uid: u32) -> Process {
        Process::new(Peer { pid, uid, gid: uid }, crate::process::ProcessKey::from_pid(pid), 1)
    }

    fn names(text: &str) -> Filter {
        let data = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        Filter { kind: EVENT_FILTER_TYPE_EXECUTABLE_NAME, data }
    }

    #[test]
    fn processes_of_the_starters_user_take_part_and_for_root_those_of_everybody() {
        let me = std::process::id();
        for (starter, user, takes_part) in
            [(1000, 1000, true), (1000, 1001, false), (1000, 0, false), (0, 1000, true), (0, 0, true)]
        {
            let session = private(starter, &[]);
            assert_eq!(session.add_link(&process(me, user)), takes_part, "{starter} in a process of {user}");
        }
    }

    #[test]
    fn a_process_in_a_group_that_the_starter_is_not_in_takes_no_part() {
        let peer = Peer { pid: 1, uid: 1000, gid: 1000 };
        let is = |groups: &[u32]| Identity::of(&peer, Some(groups.to_vec()));
        let session = Private { identity: is(&[27, 50]), ..private(1000, &[]) };
        assert!(!session.is_outranked_by(&is(&[27])) && !session.is_outranked_by(&is(&[])));
        assert!(session.is_outranked_by(&is(&[27, 42])));
        assert!(session.is_outranked_by(&Identity { gid: 42, ..is(&[]) }));
        assert!(!private(0, &[]).is_outranked_by(&is(&[42])), "root's");
    }

    #[test]
    fn filters_are_met_by_the_program_that_really_runs() {
        let program = std::env::current_exe().unwrap();
        let program = program.file_name().unwrap().to_string_lossy().to_uppercase();
        let me = process(std::process::id(), 1);
        assert!(private(1, &[names(&format!("other;{program}\0"))]).add_link(&me));
        assert!(!private(1, &[names("other")]).add_link(&me));
        assert!(!private(1, &[names(&program)]).add_link(&process(u32::MAX, 1)), "nobody knows what it runs");
        let pid = |pid: u32| Filter { kind: EVENT_FILTER_TYPE_PID, data: pid.to_le_bytes().to_vec() };
        assert!(private(1, &[pid(std::process::id())]).add_link(&me));
        assert!(!private(1, &[pid(std::process::id()), names("other")]).add_link(&me), "both must be met");
        for wrong in [
            vec![names("")],
            vec![names("a"), names("b")],
            vec![pid(1), pid(2)],
            vec![Filter { kind: 7, data: vec![] }],
        ] {
            assert_eq!(who_takes_part(&Guid::NULL, &wrong).unwrap_err().status.0, 87, "{wrong:?}");
        }
        let odd = Filter { kind: EVENT_FILTER_TYPE_EXECUTABLE_NAME, data: vec![1] };
        assert_eq!(who_takes_part(&Guid::NULL, &[odd]).unwrap_err().status.0, 87);
    }
}
