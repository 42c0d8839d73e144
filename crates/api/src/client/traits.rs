//! Traits that are set after the registration.
//!
//! ```text
//!   set_traits ──command──▶ control thread ──SetTraits──▶ each daemon that knows the registration
//!        ▲                                                     │ joins the group, applies enables
//!        └── all daemons have answered, or the timeout ────────┘ Done, or Refused
//!            for sending or for replies has passed (an unresponsive daemon is not waited for)
//! ```
//!
//! 1. Traits are set once: a registration that has traits, or is getting them, gets no others.
//! 2. If a daemon refuses the traits and no daemon accepts them, nothing is set. Otherwise they
//!    take effect, also without any daemon.
//! 3. A daemon that connects while others are answering gets the traits too; one that connects
//!    later gets them with the registration.
//! 4. If the daemon's file lists a session that enables the name or the group, events go to that
//!    session before the daemon answers (`early`). Other sessions enable the registration only with
//!    the answer. If the process did not wait for it, it reports to them that they may have missed
//!    events (`SharedState::is_late`).

use traceweir_format::spec::status::Status;
use traceweir_format::tracelogging;
use traceweir_transport::message::Message;

use super::link::DaemonPeer;
use super::shared::{AwaitedAnswer, ControlCommand, ControlThreadState, PendingTraits, SharedState, UNSENT};
use super::{Client, RequestDeadline, callbacks};
use crate::error::{Error, Result};
use crate::registration::{DecodeGuidWords, Handle, ProviderTraits};

/// Sets the traits of a registration that has none.
pub(crate) fn set_traits(handle: Handle, traits: &[u8]) -> Result<()> {
    tracelogging::Traits::parse_strict(traits).map_err(|e| invalid_error(e.to_string()))?;
    let client = Client::get();
    let mut shared = client.lock();
    let number = handle.number();
    if !handle.is_current() || handle.slot().is_classic() {
        return Err(invalid_error("the registration has ended, or is of a classic provider"));
    }
    let is_being_set = shared.pending_traits.iter().any(|pending| pending.registration == number);
    if is_being_set || !handle.slot().traits().is_empty() {
        return Err(invalid_error("the traits of a registration are set once"));
    }
    let decoding = DecodeGuidWords::from_traits(traits, handle.slot().provider());
    let decoding = decoding.map(|decoding| shared.interned.intern_decoding(decoding));
    let traits = shared.interned.intern_traits(traits);
    if matches!(shared.control_thread, ControlThreadState::Running) {
        shared.commands.push(ControlCommand::SetTraits(number, traits));
        client.wake_control_thread();
        // A callback cannot wait for the control thread, which waits for the callback: the traits
        // take effect whatever the daemons answer.
        if callbacks::may_wait_for_control() {
            shared.pending_traits.push(PendingTraits::new(number, traits));
            shared = client.await_traits(shared, number);
            shared.take_traits_result(number)?;
        }
    }
    // Under the lock: the slot is not reused meanwhile.
    if handle.is_current() {
        handle.slot().set_traits(Some(traits), decoding);
    }
    Ok(())
}

fn invalid_error(reason: impl Into<String>) -> Error {
    Error::refused(Status::ERROR_INVALID_PARAMETER, reason)
}

impl PendingTraits {
    fn new(registration: u32, traits: &'static ProviderTraits) -> Self {
        Self { registration, traits, is_sent: false, awaited: Vec::new(), is_accepted: false, refusal: None }
    }
}

impl Client {
    fn await_traits<'s>(
        &'s self,
        mut shared: std::sync::MutexGuard<'s, SharedState>,
        number: u32,
    ) -> std::sync::MutexGuard<'s, SharedState> {
        let mut deadline = RequestDeadline::new();
        while shared.is_awaiting_traits(number) {
            let is_sent = shared.find_pending_traits(number).is_none_or(|pending| pending.is_sent);
            match deadline.remaining_wait(is_sent, self) {
                Some(left) => shared = self.wait_for_change(shared, left),
                None => {
                    shared.has_unresponsive_daemon |= deadline.is_sent;
                    break;
                }
            }
        }
        shared.note_late_traits(number);
        shared
    }
}

impl SharedState {
    fn find_pending_traits(&mut self, registration: u32) -> Option<&mut PendingTraits> {
        self.pending_traits.iter_mut().find(|pending| pending.registration == registration)
    }

    /// Returns whether the control thread has yet to send the traits of a registration, or a
    /// responsive daemon has yet to answer them.
    fn is_awaiting_traits(&mut self, registration: u32) -> bool {
        let is_unresponsive = self.has_unresponsive_daemon;
        let pending = self.find_pending_traits(registration);
        pending.is_some_and(|pending| !pending.is_sent || !(is_unresponsive || pending.awaited.is_empty()))
    }

    /// Records the daemons that have not answered the traits of a registration when it continues.
    fn note_late_traits(&mut self, registration: u32) {
        let Some(pending) = self.find_pending_traits(registration) else { return };
        let unsent = (!pending.is_sent).then_some(UNSENT);
        let peers = pending.awaited.iter().copied().chain(unsent);
        let mut late: Vec<AwaitedAnswer> = peers.map(|peer| AwaitedAnswer { peer, registration }).collect();
        self.late_traits.append(&mut late);
    }

    /// Removes pending traits and returns their result: an error if a daemon refused the traits and
    /// none accepted them.
    fn take_traits_result(&mut self, registration: u32) -> Result<()> {
        let Some(at) = self.pending_traits.iter().position(|pending| pending.registration == registration)
        else {
            return Ok(());
        };
        match self.pending_traits.swap_remove(at) {
            PendingTraits { is_accepted: false, refusal: Some((status, reason)), .. } => {
                Err(Error::refused(status, reason))
            }
            _ => Ok(()),
        }
    }

    /// Records that traits were sent to a daemon or, if `peer` is `None`, to all daemons.
    pub(super) fn mark_traits_sent(&mut self, registration: u32, peer: Option<u64>) {
        if let Some(pending) = self.find_pending_traits(registration) {
            pending.is_sent |= peer.is_none();
            pending.awaited.extend(peer);
        }
    }

    pub(super) fn record_traits_answer(
        &mut self,
        peer: u64,
        registration: u32,
        refusal: Option<(Status, String)>,
    ) {
        self.has_unresponsive_daemon = false;
        self.late_traits
            .retain(|late| late.registration != registration || (late.peer != peer && late.peer != UNSENT));
        if let Some(pending) = self.find_pending_traits(registration) {
            pending.awaited.retain(|p| *p != peer);
            pending.is_accepted |= refusal.is_none();
            pending.refusal = pending.refusal.take().or(refusal);
        }
    }

    /// Sends traits that other daemons are answering to a daemon that has just connected.
    pub(super) fn queue_pending_traits(&mut self, peer: &mut DaemonPeer, registration: u32) {
        let id = peer.id;
        let is_missing = |pending: &&mut PendingTraits| pending.is_sent && !pending.awaited.contains(&id);
        if let Some(pending) = self.find_pending_traits(registration).filter(is_missing) {
            pending.awaited.push(id);
            peer.queue_request(Message::SetTraits { registration, traits: pending.traits.bytes().to_vec() });
        }
    }
}
