//! Requests about existing sessions: query, update, flush.
//!
//! ```text
//!   Update, Flush, … ─▶ count_change ─(file named? own thread: check and empty it)─▶
//!       the session's thread ─▶ Changed ─▶ Properties
//! ```

use std::collections::BTreeSet;
use std::path::PathBuf;

use traceweir_format::spec::access::Rights;
use traceweir_format::spec::session::EVENT_TRACE_BUFFERING_MODE;
use traceweir_format::spec::status::Status;
use traceweir_session::{Done, Session};
use traceweir_transport::message::{
    Control, Message, Properties, ProviderEntry, SessionConfig, SessionRef, Update,
};

use super::SessionTable;
use crate::error::Refusal;
use crate::ids::{LinkId, ReplyTo};
use crate::kernel::RequestedGroups;
use crate::logfile::{FileClaim, FileTerms, NamedFiles, OpenedFiles, PassedDescriptors, next_file};
use crate::service::access::{AccessControl, rights_for, rights_to_run};
use crate::service::notice::{NoticePromise, ThreadNotice, spawn_file_thread};
use crate::service::turn::ServiceTurn;

/// Maximum number of changes of one session under way, such as updates and flushes.
const MAX_CHANGES: usize = 64;
/// The reason for refusing a flush that names a file, if the session is not a flight recorder.
const NO_SNAPSHOT: &str = "only a flight recorder writes snapshots";

pub(in crate::service) struct UpdateRequest {
    pub(in crate::service) reply_to: ReplyTo,
    pub(in crate::service) id: u64,
    pub(in crate::service) update: Update,
    /// The descriptors of the file that the update names.
    pub(in crate::service) passed: PassedDescriptors,
    /// The kernel groups before this request, if it has changed them; restored if the update fails.
    pub(in crate::service) before: Option<RequestedGroups>,
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

impl SessionTable {
    /// Checks that a controller may make this request for a session.
    pub(in crate::service) fn check_control(
        &self,
        access: &AccessControl,
        link: LinkId,
        session: &SessionRef,
        control: &Control,
    ) -> Result<(), Refusal> {
        if !access.is_guest(link) {
            return Ok(());
        }
        if matches!(control, Control::Outcome) {
            let guid = self.outcome(session)?.config.guid;
            return access.check_right(link, guid, Rights::WMIGUID_QUERY);
        }
        let id = self.find(session)?;
        let config = self.properties(id).ok_or_else(Refusal::not_running)?.config;
        let right = match control {
            Control::Query | Control::Outcome => Rights::WMIGUID_QUERY,
            Control::Update(update) => {
                let becomes_live = update.real_time == Some(true);
                match (becomes_live, update.log_file.is_some()) {
                    (false, false) => rights_to_run(&config),
                    (becomes_live, has_file) => rights_to_run(&config) | rights_for(becomes_live, has_file),
                }
            }
            Control::ConvertToRealTime => rights_to_run(&config) | Rights::TRACELOG_CREATE_REALTIME,
            Control::Flush { log_file: Some(_) } => rights_to_run(&config) | Rights::TRACELOG_CREATE_ONDISK,
            Control::Stop | Control::Flush { .. } | Control::Increment => rights_to_run(&config),
        };
        access.check_right(link, config.guid, right)?;
        if shows_events(control) { self.check_kernel_access(access, link, id, &config) } else { Ok(()) }
    }

    pub(in crate::service) fn query(
        &self,
        turn: &mut ServiceTurn,
        reply_to: ReplyTo,
        session: &SessionRef,
    ) -> Result<(), Refusal> {
        let id = self.find(session)?;
        let properties = self.properties(id).ok_or_else(Refusal::not_running)?;
        turn.reply(reply_to, Message::Properties(Box::new(properties)));
        Ok(())
    }

    /// Replies with the final properties of a session that has ended.
    pub(in crate::service) fn query_outcome(
        &self,
        turn: &mut ServiceTurn,
        reply_to: ReplyTo,
        session: &SessionRef,
    ) -> Result<(), Refusal> {
        let outcome = self.outcome(session)?.clone();
        turn.reply(reply_to, Message::Properties(Box::new(outcome)));
        Ok(())
    }

    /// Removes a session from the list of ended sessions, if it has ended and the peer of the
    /// connection was allowed to stop it.
    pub(in crate::service) fn dismiss_stopped(
        &mut self,
        access: &AccessControl,
        link: LinkId,
        session: &SessionRef,
    ) {
        let may_stop = |ended: &Properties| {
            !access.is_guest(link) || access.has_right(link, ended.config.guid, rights_to_run(&ended.config))
        };
        if self.outcome(session).is_ok_and(may_stop) {
            self.dismiss_ended(session);
        }
    }

    /// Carries out a change whose request names no file.
    pub(in crate::service) fn change(
        &mut self,
        turn: &ServiceTurn,
        reply_to: ReplyTo,
        session: &SessionRef,
        change: impl FnOnce(&Session, Done<Properties>),
    ) -> Result<(), Refusal> {
        let (id, session) = self.find_running(session)?;
        let session = session.clone();
        self.count_change(id)?;
        change(
            &session,
            promise_change(turn, id, reply_to, false, None)
                .completed_by(|properties| (properties, None))
                .into_callback(),
        );
        Ok(())
    }

    /// Updates a session, except for its kernel events.
    pub(in crate::service) fn update(
        &mut self,
        turn: &ServiceTurn,
        access: &AccessControl,
        request: UpdateRequest,
    ) -> Result<(), Refusal> {
        let UpdateRequest { reply_to, id, mut update, passed, before } = request;
        let session = self.running_session(id).ok_or_else(Refusal::not_running)?.clone();
        let config = session.properties().config;
        self.count_change(id)?;
        self.bound_pool(id, &session, &mut update, access.is_guest(reply_to.link));
        let promise = promise_change(turn, id, reply_to, true, before);
        if update.log_file.is_none() {
            session.update(
                update,
                None,
                promise.completed_by(|properties| (properties, None)).into_callback(),
            );
            return Ok(());
        }
        let (_, identity) = access.process_and_identity(reply_to.link).ok_or_else(Refusal::not_running)?;
        let (files, terms) = (self.files.clone(), FileTerms::for_log(&config, identity.uid));
        spawn_file_thread(move || match passed.open(&files, &terms) {
            Ok(OpenedFiles { file, claim, folder, rights }) => {
                apply_disk_terms(&session, &terms);
                let done = promise.completed_by(|properties| (properties, claim)).into_callback();
                match (file, folder) {
                    (Some(file), Some(folder)) => {
                        let next_file = next_file(folder, identity.into(), rights, files, terms);
                        session.update_with_sequence(update, file, next_file, done);
                    }
                    (file, _) => session.update(update, file, done),
                }
            }
            Err(e) => promise.deliver(Err(e)),
        });
        Ok(())
    }

    /// Limits a requested number of buffers to the memory available, and reserves that memory for
    /// the session.
    fn bound_pool(&mut self, id: u64, session: &Session, update: &mut Update, is_guest: bool) {
        let (config, free_bytes) = (session.properties().config, self.free_pool_bytes(is_guest));
        let (Some(requested), Some(entry)) = (&mut update.maximum_buffers, self.get_mut(id)) else {
            return;
        };
        let max_buffers = buffers_in(free_bytes.saturating_add(entry.pool_bytes), &config);
        *requested = (*requested).min(max_buffers.max(config.maximum_buffers));
        entry.pool_bytes = entry.pool_bytes.max(pool_bytes(&config, *requested));
    }

    /// Flushes a session to its file and consumers, or a flight recorder to a snapshot.
    pub(in crate::service) fn flush(
        &mut self,
        turn: &ServiceTurn,
        access: &AccessControl,
        reply_to: ReplyTo,
        session: &SessionRef,
        log_file: Option<PathBuf>,
        passed: PassedDescriptors,
    ) -> Result<(), Refusal> {
        let (id, session) = self.find_running(session)?;
        let session = session.clone();
        passed.check(NamedFiles::from_mode(0, log_file.is_some()))?;
        // Check before the file is emptied: a file that is not written stays unchanged.
        let mode = session.properties().config.log_file_mode;
        if log_file.is_some() && mode & EVENT_TRACE_BUFFERING_MODE == 0 {
            return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, NO_SNAPSHOT));
        }
        let (_, identity) = access.process_and_identity(reply_to.link).ok_or_else(Refusal::not_running)?;
        let terms = FileTerms::for_snapshot(identity.uid);
        self.count_change(id)?;
        let promise = promise_change(turn, id, reply_to, false, None);
        let Some(path) = log_file else {
            session.flush(None, promise.completed_by(|properties| (properties, None)).into_callback());
            return Ok(());
        };
        let files = self.files.clone();
        spawn_file_thread(move || match passed.open(&files, &terms) {
            Ok(OpenedFiles { file, claim, .. }) => {
                apply_disk_terms(&session, &terms);
                let done = promise.completed_by(|properties| (properties, claim)).into_callback();
                session.flush(file.map(|file| (file, path)), done);
            }
            Err(e) => promise.deliver(Err(e)),
        });
        Ok(())
    }

    fn count_change(&mut self, id: u64) -> Result<(), Refusal> {
        let entry = self.get_mut(id).ok_or_else(Refusal::not_running)?;
        if entry.changes >= MAX_CHANGES {
            return Err(Refusal::new(Status::ERROR_BUSY, "too many changes of this session are under way"));
        }
        entry.changes += 1;
        Ok(())
    }

    /// Finishes a change. A file that the session no longer uses, or never used, becomes free for
    /// other sessions.
    pub(in crate::service) fn finish_change(
        &mut self,
        id: u64,
        keeps_file: bool,
        outcome: traceweir_session::Result<(Properties, Option<FileClaim>)>,
    ) -> traceweir_session::Result<Properties> {
        let Some(entry) = self.get_mut(id) else { return outcome.map(|(properties, _)| properties) };
        entry.changes = entry.changes.saturating_sub(1);
        let (properties, claim) = outcome?;
        if keeps_file {
            entry.file = claim.or(entry.file.take());
        }
        // A session converted to real time no longer uses its file.
        entry.file = entry.file.take().filter(|_| properties.config.log_file.is_some());
        // While other changes are under way, the memory that they may need stays reserved.
        if entry.changes == 0 {
            entry.pool_bytes = pool_bytes(&properties.config, properties.config.maximum_buffers);
        }
        Ok(entry.with_uncounted(properties))
    }

    /// Returns the sessions that the peer of a connection may query.
    pub(in crate::service) fn sessions_shown_to(
        &self,
        access: &AccessControl,
        link: LinkId,
    ) -> Vec<Properties> {
        filter_shown(access, link, self.all_properties())
    }

    /// Returns the listed ended sessions that the peer of a connection may query.
    pub(in crate::service) fn outcomes_shown_to(
        &self,
        access: &AccessControl,
        link: LinkId,
    ) -> Vec<Properties> {
        filter_shown(access, link, self.listed_outcomes())
    }

    /// Removes from a list of providers the sessions that the peer of a connection may not query.
    pub(in crate::service) fn hide_sessions(
        &self,
        access: &AccessControl,
        link: LinkId,
        providers: &mut [ProviderEntry],
    ) {
        if !access.is_guest(link) {
            return;
        }
        let shown: BTreeSet<u64> =
            self.sessions_shown_to(access, link).iter().map(|session| session.id).collect();
        for provider in providers {
            provider.sessions.retain(|enable| shown.contains(&enable.session));
        }
    }
}

/// Returns only the sessions that the peer of a connection may query.
fn filter_shown(access: &AccessControl, link: LinkId, mut sessions: Vec<Properties>) -> Vec<Properties> {
    if access.is_guest(link) {
        sessions.retain(|session| access.has_right(link, session.config.guid, Rights::WMIGUID_QUERY));
    }
    sessions
}

fn promise_change(
    turn: &ServiceTurn,
    id: u64,
    reply_to: ReplyTo,
    keeps_file: bool,
    before: Option<RequestedGroups>,
) -> NoticePromise<(Properties, Option<FileClaim>)> {
    turn.promise(move |outcome| ThreadNotice::Changed { id, reply_to, keeps_file, before, outcome })
}

/// Keeps the session from using the blocks that the file system reserves for root, unless the file
/// is for root.
fn apply_disk_terms(session: &Session, terms: &FileTerms) {
    if !terms.may_use_reserved_blocks() {
        session.give_up_reserved_blocks();
    }
}

/// Returns the size in bytes of a number of buffers of a session.
pub(super) fn pool_bytes(config: &SessionConfig, buffers: u32) -> u64 {
    u64::from(config.buffer_size).saturating_mul(1024).saturating_mul(u64::from(buffers))
}

/// Returns how many buffers of a session fit into a number of bytes.
pub(super) fn buffers_in(bytes: u64, config: &SessionConfig) -> u32 {
    let buffers = bytes.checked_div(pool_bytes(config, 1)).unwrap_or(0);
    u32::try_from(buffers).unwrap_or(u32::MAX)
}
