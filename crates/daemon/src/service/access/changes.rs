//! How access lists are changed.
//!
//! ```text
//!   SetAccess    ─▶ waiting ─▶ the future list ─(own thread: file)─▶ AccessSaved
//!   RemoveAccess ─┘   │                              ─▶ in effect, Done, a line in the log
//!                     └─ one at a time: each change starts from the result of the previous change
//! ```

use std::collections::VecDeque;

use traceweir_format::Guid;
use traceweir_format::security::SecurityDescriptor;
use traceweir_format::spec::access::Rights;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::Message;
use traceweir_transport::socket::Peer;

use super::AccessControl;
use crate::access::AccessChange;
use crate::error::Refusal;
use crate::ids::ReplyTo;
use crate::log::{log_audit, log_info};
use crate::service::notice::{ThreadNotice, spawn_file_thread};
use crate::service::turn::ServiceTurn;

/// The outcome of the thread, which contains the outcome of saving the list.
type SaveOutcome = traceweir_session::Result<std::io::Result<()>>;

/// Maximum number of access list changes that wait for the disk.
const MAX_CHANGES: usize = 64;

/// The changes of access lists under way.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
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
    change: AccessChange,
    /// The object is a session with a generated GUID: its list is in memory only, until the daemon
    /// forgets the outcome of the session.
    is_temporary: bool,
}

impl AccessControl {
    /// Replies with the list that applies to an object.
    pub(in crate::service) fn reply_with_list(
        &self,
        turn: &mut ServiceTurn,
        reply_to: ReplyTo,
        object: Guid,
    ) -> Result<(), Refusal> {
        let descriptor = self.rules.lists.list_for(object).to_bytes();
        let descriptor = descriptor.map_err(|e| Refusal::new(e.status(), e.to_string()))?;
        turn.reply(reply_to, Message::Access { descriptor });
        Ok(())
    }

    /// Replies with a page of the objects that have a list.
    pub(in crate::service) fn reply_with_objects(
        &self,
        turn: &mut ServiceTurn,
        reply_to: ReplyTo,
        from: u32,
    ) {
        turn.reply(reply_to, Message::access_lists_page(&self.rules.lists.objects(), from));
    }

    pub(in crate::service) fn change_list(
        &mut self,
        turn: &mut ServiceTurn,
        reply_to: ReplyTo,
        object: Guid,
        change: AccessChange,
    ) -> Result<(), Refusal> {
        if object.is_null() {
            return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, "the null GUID is not an object"));
        }
        self.check_right(reply_to.link, object, Rights::WMIGUID_SET)?;
        if self.changes.waiting.len() >= MAX_CHANGES {
            return Err(Refusal::new(Status::ERROR_BUSY, "too many changes of access lists are under way"));
        }
        if let Some(peer) = self.peer(reply_to.link) {
            let is_temporary = self.generated_guids.contains(&object);
            self.changes.waiting.push_back(ChangeRequest { reply_to, peer, object, change, is_temporary });
        }
        self.begin_next_change(turn);
        Ok(())
    }

    /// Begins the next change, unless one is being saved.
    fn begin_next_change(&mut self, turn: &mut ServiceTurn) {
        while self.changes.saving.is_none()
            && let Some(request) = self.changes.waiting.pop_front()
        {
            // An earlier change may have removed the right to this one.
            let permitted = self.check_right(request.reply_to.link, request.object, Rights::WMIGUID_SET);
            let exists = !request.is_temporary || self.generated_guids.contains(&request.object);
            let permitted =
                permitted.and_then(|()| if exists { Ok(()) } else { Err(Refusal::not_running()) });
            match permitted.and_then(|()| self.rules.lists.compute_change(request.object, &request.change)) {
                Ok(list) => self.save_list(turn, request, list),
                Err(refusal) => turn.refuse(request.reply_to, refusal),
            }
        }
    }

    /// Saves a changed list on a separate thread, because the disk may be slow.
    fn save_list(
        &mut self,
        turn: &mut ServiceTurn,
        request: ChangeRequest,
        list: Option<(SecurityDescriptor, Vec<u8>)>,
    ) {
        let (list, bytes) = list.unzip();
        self.changes.saving = Some((request, list));
        let folder = self.rules.folder.clone().filter(|_| !request.is_temporary);
        let Some(folder) = folder else { return self.finish_change(turn, Ok(Ok(()))) };
        let promise = turn.promise(|outcome| ThreadNotice::AccessSaved { outcome });
        spawn_file_thread(move || {
            promise.deliver(Ok(match bytes {
                Some(bytes) => folder.save(request.object, &bytes),
                None => folder.remove(request.object),
            }));
        });
    }

    pub(in crate::service) fn add_generated(&mut self, guid: Guid) {
        self.generated_guids.insert(guid);
    }

    /// Removes a generated GUID and its access list once neither the session nor its outcome is
    /// kept.
    pub(in crate::service) fn forget_generated(&mut self, guid: Guid) {
        if self.generated_guids.remove(&guid) && self.rules.lists.has_list(guid) {
            self.rules.lists.set_list(guid, None);
            log_info!("access to {guid} is removed with its session, whose GUID was generated");
        }
    }

    /// Handles the result of saving a change; if saving failed, the list stays unchanged.
    pub(in crate::service) fn handle_saved_list(&mut self, turn: &mut ServiceTurn, outcome: SaveOutcome) {
        self.finish_change(turn, outcome);
        self.begin_next_change(turn);
    }

    fn finish_change(&mut self, turn: &mut ServiceTurn, outcome: SaveOutcome) {
        let Some((request, list)) = self.changes.saving.take() else { return };
        let ChangeRequest { reply_to, peer: Peer { uid, pid, .. }, object, change, is_temporary } = request;
        let failure = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(e)) => Some((traceweir_transport::error::status_of(&e), e.to_string())),
            Err(e) => Some((Status::ERROR_NO_SYSTEM_RESOURCES, e.to_string())),
        };
        match failure {
            None => {
                self.rules.lists.set_list(object, list);
                let until = if is_temporary { ", for as long as the session is known" } else { "" };
                log_audit!("access to {object} changed by uid {uid}, process {pid}: {change}{until}");
                turn.reply(reply_to, Message::Done);
            }
            Some((status, reason)) => {
                log_audit!("access to {object} not changed for uid {uid}, process {pid}: {change}: {reason}");
                let reason = format!("the access list cannot be saved and stays as it was: {reason}");
                turn.refuse(reply_to, Refusal::new(status, reason));
            }
        }
    }
}
