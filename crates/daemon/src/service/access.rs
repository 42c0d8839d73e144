//! The rights that each request needs, and how access lists are changed.
//!
//! ```text
//!   request ─▶ check_right(link, object, right) ─ missing ─▶ ERROR_ACCESS_DENIED, line in the log
//!                              the error names the right, the object and the remedy
//!
//!   SetAccess    ─▶ waiting ─▶ the future list ─(own thread: file)─▶ AccessSaved
//!   RemoveAccess ─┘   │                              ─▶ in effect, Done, a line in the log
//!                     └─ one at a time: the next one starts from the result of the previous one
//! ```
//!
//! Stopping and flushing a session requires the right to run one like it: the published table
//! covers starting and updating, and a user who may replace the file of a session can end its
//! recording.

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

use super::control::spawn_file_thread;
use super::notice::{Notice, Promise};
use super::sessions::not_running;
use super::{LinkId, ReplyTo, Service, log_audit, log_info, log_refusal};
use crate::access::{Change, GROUP};
use crate::error::Refusal;

/// Maximum number of access list changes that wait for the disk.
const MAX_CHANGES: usize = 64;

/// The changes of access lists under way.
#[derive(Debug, Default)]
pub(super) struct Changes {
    waiting: VecDeque<ChangeRequest>,
    /// The change that is being saved, and the list that will be in effect afterwards.
    saving: Option<(ChangeRequest, Option<SecurityDescriptor>)>,
}

#[derive(Clone, Copy, Debug)]
struct ChangeRequest {
    reply_to: ReplyTo,
    /// The requesting process; its connection may be closed when the change is carried out.
    peer: Peer,
    object: Guid,
    change: Change,
    /// The object is a session with a generated GUID: its list lives no longer than the session, in
    /// memory only.
    is_temporary: bool,
}

/// Returns the rights that running a session requires.
pub(super) fn rights_to_run(config: &SessionConfig) -> Rights {
    rights_for(config.log_file_mode & EVENT_TRACE_REAL_TIME_MODE != 0, config.log_file.is_some())
}

/// Returns the rights for a kind of session. A session that is neither live nor written to a file
/// is in memory, to be written to a file later.
fn rights_for(is_live: bool, has_file: bool) -> Rights {
    match (is_live, has_file) {
        (true, false) => Rights::TRACELOG_CREATE_REALTIME,
        (true, true) => Rights::TRACELOG_CREATE_REALTIME | Rights::TRACELOG_CREATE_ONDISK,
        (false, _) => Rights::TRACELOG_CREATE_ONDISK,
    }
}

/// Returns whether the request sends events to a new destination: a file that the controller names,
/// or consumers.
fn shows_events(control: &Control) -> bool {
    match control {
        Control::Update(update) => update.log_file.is_some() || update.real_time == Some(true),
        Control::Flush { log_file } => log_file.is_some(),
        Control::ConvertToRealTime => true,
        Control::Query | Control::Outcome | Control::Stop | Control::Increment => false,
    }
}

impl Service {
    /// Checks that the peer of a connection has these rights on a session, provider or group, given
    /// by GUID. Logs a refusal.
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
        let (what, uid, pid) = (describe_object(object, missing), client.peer.uid, client.peer.pid);
        log_refusal!("uid {uid}, process {pid}: no {missing} on {what}");
        let remedy = remedy(&typed(object), uid, missing);
        Err(Refusal::new(Status::ERROR_ACCESS_DENIED, format!("this needs {missing} on {what}; {remedy}")))
    }

    /// Like [`check_right`](Self::check_right), without logging a refusal.
    pub(super) fn has_right(&self, link: LinkId, object: Guid, right: Rights) -> bool {
        let client = self.clients.get(&link);
        client.is_some_and(|client| self.access.missing(&client.identity, object, right).is_empty())
    }

    pub(super) fn is_guest(&self, link: LinkId) -> bool {
        self.peer(link).is_none_or(|peer| self.access.is_guest(&peer))
    }

    /// Checks that a controller may do this to a session.
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
        if shows_events(control) { self.check_kernel_access(link, &config) } else { Ok(()) }
    }

    /// Returns the sessions that the peer of a connection may query.
    pub(super) fn sessions_shown_to(&self, link: LinkId) -> Vec<Properties> {
        self.shown_to(link, self.sessions.all_properties())
    }

    /// Returns the ended sessions that the peer of a connection may query.
    pub(super) fn ended_shown_to(&self, link: LinkId) -> Vec<Properties> {
        self.shown_to(link, self.sessions.ended())
    }

    fn shown_to(&self, link: LinkId, mut sessions: Vec<Properties>) -> Vec<Properties> {
        if self.is_guest(link) {
            sessions.retain(|session| self.has_right(link, session.config.guid, Rights::WMIGUID_QUERY));
        }
        sessions
    }

    /// Removes the sessions that the peer of a connection may not query from a list of providers.
    pub(super) fn hide_sessions(&self, link: LinkId, providers: &mut [ProviderEntry]) {
        if !self.is_guest(link) {
            return;
        }
        let shown: BTreeSet<u64> = self.sessions_shown_to(link).iter().map(|session| session.id).collect();
        for provider in providers {
            provider.sessions.retain(|enable| shown.contains(&enable.session));
        }
    }

    /// Returns whether a process may write to a session: a secure session requires the right. A
    /// process without it gets no error, since it did not request anything.
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

    /// Answers queries about access lists, and begins to change them.
    pub(super) fn handle_access(&mut self, reply_to: ReplyTo, message: Message) -> Result<(), Refusal> {
        match message {
            Message::SetAccess { object, operation, sid, rights, allow } => {
                let change = Change::new(operation, &sid, rights, allow)?;
                self.change_access(reply_to, object, change)
            }
            Message::RemoveAccess { object } => self.change_access(reply_to, object, Change::Remove),
            Message::QueryAccess { object } => {
                let descriptor = self.access.lists.list_for(object).to_bytes();
                let descriptor = descriptor.map_err(|e| Refusal::new(e.status(), e.to_string()))?;
                self.reply(reply_to, Message::Access { descriptor });
                Ok(())
            }
            Message::QueryAccessLists { from } => {
                let page = Message::access_lists_page(&self.access.lists.objects(), from);
                self.reply(reply_to, page);
                Ok(())
            }
            _ => {
                self.reject_out_of_role(reply_to);
                Ok(())
            }
        }
    }

    fn change_access(&mut self, reply_to: ReplyTo, object: Guid, change: Change) -> Result<(), Refusal> {
        self.refuse_when_leaving()?;
        if object.is_null() {
            return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, "the null GUID is not an object"));
        }
        self.check_right(reply_to.link, object, Rights::WMIGUID_SET)?;
        if self.access_changes.waiting.len() >= MAX_CHANGES {
            return Err(Refusal::new(Status::ERROR_BUSY, "too many changes of access lists are under way"));
        }
        if let Some(peer) = self.peer(reply_to.link) {
            let is_temporary = self.sessions.generated.contains(&object);
            self.access_changes.waiting.push_back(ChangeRequest {
                reply_to,
                peer,
                object,
                change,
                is_temporary,
            });
        }
        self.begin_next_change();
        Ok(())
    }

    /// Begins the next change, unless one is being saved.
    fn begin_next_change(&mut self) {
        while self.access_changes.saving.is_none()
            && let Some(request) = self.access_changes.waiting.pop_front()
        {
            // An earlier change may have removed the right to this one.
            let may = self.check_right(request.reply_to.link, request.object, Rights::WMIGUID_SET);
            let is_there = !request.is_temporary || self.sessions.generated.contains(&request.object);
            let may = may.and_then(|()| if is_there { Ok(()) } else { Err(not_running()) });
            match may.and_then(|()| self.access.lists.after(request.object, &request.change)) {
                Ok(list) => self.save_access(request, list),
                Err(refusal) => self.refuse(request.reply_to, refusal),
            }
        }
    }

    /// Saves a changed list, on a thread of its own because the disk may be slow.
    fn save_access(&mut self, request: ChangeRequest, list: Option<(SecurityDescriptor, Vec<u8>)>) {
        let (list, bytes) = list.unzip();
        self.access_changes.saving = Some((request, list));
        let folder = self.access.folder.clone().filter(|_| !request.is_temporary);
        let Some(folder) = folder else { return self.finish_change(Ok(Ok(()))) };
        let promise = Promise::new(&self.post, |outcome| Notice::AccessSaved { outcome });
        spawn_file_thread(move || {
            promise.keep(Ok(match bytes {
                Some(bytes) => folder.save(request.object, &bytes),
                None => folder.remove(request.object),
            }));
        });
    }

    /// Removes a generated GUID, and its access list, when its session is no longer known.
    pub(super) fn forget_generated(&mut self, guid: Guid) {
        if self.sessions.generated.remove(&guid) && self.access.lists.has_list(guid) {
            self.access.lists.put(guid, None);
            log_info!("access to {guid} is removed with its session, whose GUID was generated");
        }
    }

    /// Handles the result of saving a change; if saving failed, the list stays as it was.
    pub(super) fn access_saved(&mut self, outcome: traceweir_session::Result<std::io::Result<()>>) {
        self.finish_change(outcome);
        self.begin_next_change();
    }

    fn finish_change(&mut self, outcome: traceweir_session::Result<std::io::Result<()>>) {
        let Some((request, list)) = self.access_changes.saving.take() else { return };
        let ChangeRequest { reply_to, peer: Peer { uid, pid, .. }, object, change, is_temporary } = request;
        let failure = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(e)) => Some((traceweir_transport::error::status_of(&e), e.to_string())),
            Err(e) => Some((Status::ERROR_NO_SYSTEM_RESOURCES, e.to_string())),
        };
        match failure {
            None => {
                self.access.lists.put(object, list);
                let until = if is_temporary { ", for as long as the session is known" } else { "" };
                log_audit!("access to {object} changed by uid {uid}, process {pid}: {change}{until}");
                self.reply(reply_to, Message::Done);
            }
            Some((status, reason)) => {
                log_audit!("access to {object} not changed for uid {uid}, process {pid}: {change}: {reason}");
                let reason = format!("the access list cannot be saved and stays as it was: {reason}");
                self.refuse(reply_to, Refusal::new(status, reason));
            }
        }
    }
}

/// Returns the reason why a user is refused who is in no access list.
pub(super) fn admission_refusal(role: Role, uid: u32) -> String {
    match role {
        Role::Provider => format!(
            "this daemon serves its own user and root only, and uid {uid} is neither; the system daemon serves all users"
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

/// Names an object and its kind, derived from the missing rights.
fn describe_object(object: Guid, rights: Rights) -> String {
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

/// Returns an object as it is typed on a command line.
fn typed(object: Guid) -> String {
    if object == DEFAULT_TRACE_SECURITY { "default".to_owned() } else { object.to_string() }
}

/// Returns the command with which an administrator can grant the rights.
fn remedy(object: &str, uid: u32, rights: Rights) -> String {
    let named = Rights::NAMED.iter().filter(|(right, ..)| rights.contains(*right));
    let names: String = named.map(|(.., short)| format!(" {short}")).collect();
    format!("an administrator can grant it with: weir access grant {object} --user {uid}{names}")
}
