//! What each request needs, and how lists of rights are changed.
//!
//! ```text
//!   request ─▶ check_right(link, object, right) ─ missing ─▶ ERROR_ACCESS_DENIED, which names right, object and remedy; a line in the log
//!
//!   SetAccess    ─▶ waiting ─▶ the list as it will be ─(own thread: file)─▶ AccessSaved ─▶ it holds; Done; a line in the log
//!   RemoveAccess ─┘   one at a time: the next begins with what the one before it has left
//! ```
//!
//! Stopping and flushing a session takes the right to run one like it: the published table speaks of starting and updating, and whoever may
//! replace the file of a session can end its recording.

use std::collections::{BTreeSet, VecDeque};

use traceweir_format::Guid;
use traceweir_format::security::SecurityDescriptor;
use traceweir_format::spec::access::{DEFAULT_TRACE_SECURITY, Rights};
use traceweir_format::spec::session::{EVENT_TRACE_REAL_TIME_MODE, EVENT_TRACE_SECURE_MODE};
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{
    Control, Message, Properties, ProviderEntry, Role, SessionConfig, SessionRef,
};
use traceweir_transport::socket::Peer;

use super::control::apart;
use super::notice::{Notice, Promise};
use super::sessions::not_running;
use super::{Asker, LinkId, Service, audit, info, refused};
use crate::access::{Change, GROUP};
use crate::error::Refusal;

/// Changes of lists that may wait for the disk.
const MAX_CHANGES: usize = 64;

/// Changes of lists that were asked for.
#[derive(Debug, Default)]
pub(super) struct Changes {
    waiting: VecDeque<Asked>,
    /// The one that is on its way to the disk, and the list that holds afterwards.
    saving: Option<(Asked, Option<SecurityDescriptor>)>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    asker: Asker,
    /// Who asked: the connection may be gone when it is carried out.
    peer: Peer,
    object: Guid,
    change: Change,
    /// It is about a session whose GUID was made up: its list lives no longer than that, and is in memory only.
    is_passing: bool,
}

/// The rights that running a session takes.
pub(super) fn rights_to_run(config: &SessionConfig) -> Rights {
    rights_for(config.log_file_mode & EVENT_TRACE_REAL_TIME_MODE != 0, config.log_file.is_some())
}

/// What is neither live nor in a file is in memory, to be written to one.
fn rights_for(is_live: bool, has_file: bool) -> Rights {
    match (is_live, has_file) {
        (true, false) => Rights::TRACELOG_CREATE_REALTIME,
        (true, true) => Rights::TRACELOG_CREATE_REALTIME | Rights::TRACELOG_CREATE_ONDISK,
        (false, _) => Rights::TRACELOG_CREATE_ONDISK,
    }
}

/// Whether events go to where they did not go before: to a file that the controller names, or to consumers.
fn shows_events(control: &Control) -> bool {
    match control {
        Control::Update(update) => update.log_file.is_some() || update.real_time == Some(true),
        Control::Flush { log_file } => log_file.is_some(),
        Control::ConvertToRealTime => true,
        Control::Query | Control::Outcome | Control::Stop | Control::Increment => false,
    }
}

impl Service {
    /// Whether the peer of a connection has these rights on a session, provider or group, by its GUID. If not, the log tells.
    pub(super) fn check_right(
        &self,
        link: LinkId,
        object: Guid,
        right: impl Into<Rights>,
    ) -> Result<(), Refusal> {
        let Some(client) = self.clients.get(&link) else {
            return Err(Refusal::new(Status::ERROR_INVALID_HANDLE, "the connection is closed"));
        };
        let missing = self.access.missing(&client.identity, object, right.into());
        if missing.is_empty() {
            return Ok(());
        }
        let (what, uid, pid) = (told(object, missing), client.peer.uid, client.peer.pid);
        refused!("uid {uid}, process {pid}: no {missing} on {what}");
        let remedy = remedy(&typed(object), uid, missing);
        Err(Refusal::new(Status::ERROR_ACCESS_DENIED, format!("this needs {missing} on {what}; {remedy}")))
    }

    /// As [`check_right`](Self::check_right), of somebody who did not ask for anything in particular.
    pub(super) fn has_right(&self, link: LinkId, object: Guid, right: Rights) -> bool {
        let client = self.clients.get(&link);
        client.is_some_and(|client| self.access.missing(&client.identity, object, right).is_empty())
    }

    pub(super) fn is_guest(&self, link: LinkId) -> bool {
        self.peer(link).is_none_or(|peer| self.access.is_guest(&peer))
    }

    /// Whether a controller may do this to a session.
    pub(super) fn check_control(
        &self,
        link: LinkId,
        session: &SessionRef,
        control: &Control,
    ) -> Result<(), Refusal> {
        if !self.is_guest(link) {
            return Ok(());
        }
        if matches!(control, Control::Outcome) {
            let guid = self.sessions.outcome(session)?.config.guid;
            return self.check_right(link, guid, Rights::WMIGUID_QUERY);
        }
        let id = self.sessions.find(session)?;
        let config = self.sessions.properties(id).ok_or_else(not_running)?.config;
        let right = match control {
            Control::Query | Control::Outcome => Rights::WMIGUID_QUERY,
            Control::Update(update) => {
                let becomes_live = update.real_time == Some(true);
                match (becomes_live, update.log_file.is_some()) {
                    (false, false) => rights_to_run(&config),
                    (live, file) => rights_to_run(&config) | rights_for(live, file),
                }
            }
            Control::ConvertToRealTime => rights_to_run(&config) | Rights::TRACELOG_CREATE_REALTIME,
            Control::Flush { log_file: Some(_) } => rights_to_run(&config) | Rights::TRACELOG_CREATE_ONDISK,
            Control::Stop | Control::Flush { .. } | Control::Increment => rights_to_run(&config),
        };
        self.check_right(link, config.guid, right)?;
        if shows_events(control) { self.check_sight(link, &config) } else { Ok(()) }
    }

    /// The sessions that the peer of a connection may query.
    pub(super) fn sessions_shown_to(&self, link: LinkId) -> Vec<Properties> {
        self.shown_to(link, self.sessions.all_properties())
    }

    /// The sessions that have ended and that it might query.
    pub(super) fn ended_shown_to(&self, link: LinkId) -> Vec<Properties> {
        self.shown_to(link, self.sessions.ended())
    }

    fn shown_to(&self, link: LinkId, mut sessions: Vec<Properties>) -> Vec<Properties> {
        if self.is_guest(link) {
            sessions.retain(|it| self.has_right(link, it.config.guid, Rights::WMIGUID_QUERY));
        }
        sessions
    }

    /// Takes out of a list of providers what is about sessions that the peer of a connection may not query.
    pub(super) fn hide_sessions(&self, link: LinkId, providers: &mut [ProviderEntry]) {
        if !self.is_guest(link) {
            return;
        }
        let shown: BTreeSet<u64> = self.sessions_shown_to(link).iter().map(|it| it.id).collect();
        for provider in providers {
            provider.sessions.retain(|it| shown.contains(&it.session));
        }
    }

    /// Whether a process may write to a session: to a secure one only who has the right. Others are not told; it is not they who asked.
    pub(super) fn may_log(&self, link: LinkId, session: u64) -> bool {
        if !self.is_guest(link) {
            return true;
        }
        let Some(config) = self.sessions.session(session).map(|session| session.properties().config) else {
            return true;
        };
        config.log_file_mode & EVENT_TRACE_SECURE_MODE == 0
            || self.check_right(link, config.guid, Rights::TRACELOG_LOG_EVENT).is_ok()
    }

    /// Answers what is asked about lists, and begins to change them.
    pub(super) fn access_asked(&mut self, asker: Asker, message: Message) -> Result<(), Refusal> {
        match message {
            Message::SetAccess { object, operation, sid, rights, allow } => {
                let change = Change::new(operation, &sid, rights, allow)?;
                self.change_access(asker, object, change)
            }
            Message::RemoveAccess { object } => self.change_access(asker, object, Change::Remove),
            Message::QueryAccess { object } => {
                let descriptor = self.access.lists.of(object).to_bytes();
                let descriptor = descriptor.map_err(|e| Refusal::new(e.status(), e.to_string()))?;
                self.reply(asker, Message::Access { descriptor });
                Ok(())
            }
            Message::QueryAccessLists { from } => {
                let page = Message::access_lists_page(&self.access.lists.objects(), from);
                self.reply(asker, page);
                Ok(())
            }
            _ => {
                self.out_of_role(asker);
                Ok(())
            }
        }
    }

    fn change_access(&mut self, asker: Asker, object: Guid, change: Change) -> Result<(), Refusal> {
        self.refuse_when_leaving()?;
        if object.is_null() {
            return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, "the null GUID is no object"));
        }
        self.check_right(asker.link, object, Rights::WMIGUID_SET)?;
        if self.access_changes.waiting.len() >= MAX_CHANGES {
            return Err(Refusal::new(Status::ERROR_BUSY, "too many changes of access lists are under way"));
        }
        if let Some(peer) = self.peer(asker.link) {
            let is_passing = self.sessions.generated.contains(&object);
            self.access_changes.waiting.push_back(Asked { asker, peer, object, change, is_passing });
        }
        self.begin_changes();
        Ok(())
    }

    /// Begins the next change, where none is on its way.
    fn begin_changes(&mut self) {
        while self.access_changes.saving.is_none()
            && let Some(asked) = self.access_changes.waiting.pop_front()
        {
            // A change that was waited for may have taken the right to this one.
            let may = self.check_right(asked.asker.link, asked.object, Rights::WMIGUID_SET);
            let is_there = !asked.is_passing || self.sessions.generated.contains(&asked.object);
            let may = may.and_then(|()| if is_there { Ok(()) } else { Err(not_running()) });
            match may.and_then(|()| self.access.lists.after(asked.object, &asked.change)) {
                Ok(list) => self.save_access(asked, list),
                Err(refusal) => self.refuse(asked.asker, refusal),
            }
        }
    }

    /// A disk may take its time: the file is written on a thread of its own.
    fn save_access(&mut self, asked: Asked, list: Option<(SecurityDescriptor, Vec<u8>)>) {
        let (list, bytes) = list.unzip();
        self.access_changes.saving = Some((asked, list));
        let folder = self.access.folder.clone().filter(|_| !asked.is_passing);
        let Some(folder) = folder else { return self.settle_access(Ok(Ok(()))) };
        let promise = Promise::new(&self.post, |outcome| Notice::AccessSaved { outcome });
        apart(move || {
            promise.keep(Ok(match bytes {
                Some(bytes) => folder.save(asked.object, &bytes),
                None => folder.remove(asked.object),
            }));
        });
    }

    /// The GUID that was made up for a session is nobody's any more, and so is its list.
    pub(super) fn forget_generated(&mut self, guid: Guid) {
        if self.sessions.generated.remove(&guid) && self.access.lists.has(guid) {
            self.access.lists.put(guid, None);
            info!("access to {guid} is forgotten with its session, whose GUID was made up");
        }
    }

    /// A change is on the disk, or could not be brought there: then all is as it was.
    pub(super) fn access_saved(&mut self, outcome: traceweir_session::Result<std::io::Result<()>>) {
        self.settle_access(outcome);
        self.begin_changes();
    }

    fn settle_access(&mut self, outcome: traceweir_session::Result<std::io::Result<()>>) {
        let Some((asked, list)) = self.access_changes.saving.take() else { return };
        let Asked { asker, peer: Peer { uid, pid, .. }, object, change, is_passing } = asked;
        let failure = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(e)) => Some((traceweir_transport::error::status_of(&e), e.to_string())),
            Err(e) => Some((Status::ERROR_NO_SYSTEM_RESOURCES, e.to_string())),
        };
        match failure {
            None => {
                self.access.lists.put(object, list);
                let until = if is_passing { ", for as long as the session is known" } else { "" };
                audit!("access to {object} changed by uid {uid}, process {pid}: {change}{until}");
                self.reply(asker, Message::Done);
            }
            Some((status, why)) => {
                audit!("access to {object} not changed for uid {uid}, process {pid}: {change}: {why}");
                let why = format!("the access list cannot be kept, and is as it was: {why}");
                self.refuse(asker, Refusal::new(status, why));
            }
        }
    }
}

/// Why somebody whom no list names is not let in.
pub(super) fn not_let_in(role: Role, uid: u32) -> String {
    match role {
        Role::Provider => format!(
            "this daemon serves its own user and root only, and uid {uid} is another; the system's daemon serves all (weir daemon --system)"
        ),
        Role::Controller => format!(
            "uid {uid} may not control this daemon's sessions: no list grants it one of the rights query, change-access, create-realtime, \
             create-file and enable, which the built-in list grants to the group {GROUP}; an administrator can put the user in it with: \
             usermod -aG {GROUP} USER, or grant a right with: weir access grant OBJECT --user {uid} RIGHT…"
        ),
        Role::Consumer => {
            let right = Rights::TRACELOG_ACCESS_REALTIME;
            let remedy = remedy("SESSION", uid, right);
            format!(
                "uid {uid} may not read this daemon's sessions, which needs {right} on the session (the built-in list grants it to the group {GROUP}); {remedy}"
            )
        }
    }
}

/// An object and what it must be, by the rights that are missing.
fn told(object: Guid, rights: Rights) -> String {
    if object == DEFAULT_TRACE_SECURITY {
        return format!("the default list {{{object}}}");
    }
    let kind = if rights.intersects(Rights::TRACELOG_GUID_ENABLE | Rights::TRACELOG_REGISTER_GUIDS) {
        "provider"
    } else if rights.intersects(Rights::TRACELOG_JOIN_GROUP) {
        "group"
    } else if rights.intersects(Rights::WMIGUID_SET) {
        "object"
    } else {
        "session"
    };
    format!("{kind} {{{object}}}")
}

/// An object as it is typed.
fn typed(object: Guid) -> String {
    if object == DEFAULT_TRACE_SECURITY { "default".to_owned() } else { object.to_string() }
}

/// What an administrator can do.
fn remedy(object: &str, uid: u32, rights: Rights) -> String {
    let named = Rights::NAMED.iter().filter(|(right, ..)| rights.contains(*right));
    let names: String = named.map(|(.., short)| format!(" {short}")).collect();
    format!("an administrator can grant it with: weir access grant {object} --user {uid}{names}")
}
