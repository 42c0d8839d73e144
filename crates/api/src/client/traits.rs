//! Traits that are set after the registration.
//!
//! ```text
//!   set_traits ──command──▶ control thread ──SetTraits──▶ each daemon that knows the registration
//!        ▲                                                     │ joins the group, applies enables
//!        └── all have answered, or a second passed after ──────┘ Done, or Refused
//!            sending (a second passed before: not waited for); or they could not be sent in time
//! ```
//!
//! 1. Traits are set once: a registration that has traits, or is getting them, gets no others.
//! 2. They take effect when a daemon accepted them or there was none. If a daemon refuses and none
//!    accepts them, nothing is set.
//! 3. A daemon that connects while others are answering gets them too; one that connects later gets
//!    them with the registration.
//! 4. Sessions that enable the name or the group are written to before the daemon answers, by its
//!    file (`early`). For other sessions that the daemon then enables, the process reports that it
//!    continued before the answer (`Shared::is_late`).

use traceweir_format::spec::status::Status;
use traceweir_format::tracelogging;
use traceweir_transport::message::Message;

use super::link::Peer;
use super::shared::{Command, PendingTraits, Shared, Thread};
use super::{Client, Deadline, callbacks};
use crate::error::{Error, Result};
use crate::registration::{Decoding, Handle, Traits};

/// Sets the traits of a registration that has none.
pub(crate) fn set_traits(handle: Handle, traits: &[u8]) -> Result<()> {
    tracelogging::Traits::parse_strict(traits).map_err(|e| invalid(e.to_string()))?;
    let client = Client::get();
    let mut shared = client.lock();
    let number = handle.number();
    if !handle.is_current() || handle.slot().is_classic() {
        return Err(invalid("the registration has ended"));
    }
    let is_being_set = shared.settings.iter().any(|setting| setting.registration == number);
    if is_being_set || !handle.slot().traits().is_empty() {
        return Err(invalid("the traits of a registration are set once"));
    }
    let decoding = Decoding::from_traits(traits, handle.slot().provider());
    let decoding = decoding.map(|decoding| shared.interned.decoding(decoding));
    let traits = shared.interned.traits(traits);
    if matches!(shared.thread, Thread::Running) {
        shared.commands.push(Command::SetTraits(number, traits));
        client.wake();
        // A callback cannot wait for the control thread, which waits for it: the traits are sent,
        // and the answers recorded.
        if callbacks::may_wait_for_control() {
            shared.settings.push(PendingTraits::new(number, traits));
            shared = client.await_traits(shared, number);
            shared.take_setting(number)?;
        }
    }
    // Under the lock: the slot is not reused meanwhile.
    if handle.is_current() {
        handle.slot().set_traits(Some(traits), decoding);
    }
    Ok(())
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::refused(Status::ERROR_INVALID_PARAMETER, reason)
}

impl PendingTraits {
    fn new(registration: u32, traits: &'static Traits) -> Self {
        Self { registration, traits, is_sent: false, awaited: Vec::new(), accepted: false, refused: None }
    }
}

impl Client {
    fn await_traits<'s>(
        &'s self,
        mut shared: std::sync::MutexGuard<'s, Shared>,
        number: u32,
    ) -> std::sync::MutexGuard<'s, Shared> {
        let mut deadline = Deadline::new();
        while shared.is_awaiting_traits(number) {
            let is_sent = shared.setting(number).is_none_or(|setting| setting.is_sent);
            match deadline.left(is_sent, &self.callback) {
                Some(left) => shared = self.wait(shared, left),
                None => {
                    shared.silent |= deadline.is_sent;
                    break;
                }
            }
        }
        shared.note_late_traits(number);
        shared
    }
}

impl Shared {
    fn setting(&mut self, registration: u32) -> Option<&mut PendingTraits> {
        self.settings.iter_mut().find(|setting| setting.registration == registration)
    }

    /// Returns whether the control thread has yet to send the traits of a registration, or a
    /// responsive daemon has yet to answer them.
    fn is_awaiting_traits(&mut self, registration: u32) -> bool {
        let is_silent = self.silent;
        let setting = self.setting(registration);
        setting.is_some_and(|setting| !setting.is_sent || !(is_silent || setting.awaited.is_empty()))
    }

    /// Records the daemons that have not answered the traits of a registration when it continues.
    fn note_late_traits(&mut self, registration: u32) {
        let Some(setting) = self.setting(registration) else { return };
        let unsent = (!setting.is_sent).then_some(0);
        let peers = setting.awaited.iter().copied().chain(unsent);
        let mut late: Vec<(u64, u32)> = peers.map(|peer| (peer, registration)).collect();
        self.late_traits.append(&mut late);
    }

    /// Removes the setting and returns its result: refused if a daemon refused the traits and none
    /// accepted them.
    fn take_setting(&mut self, registration: u32) -> Result<()> {
        let Some(at) = self.settings.iter().position(|setting| setting.registration == registration) else {
            return Ok(());
        };
        match self.settings.swap_remove(at) {
            PendingTraits { accepted: false, refused: Some((status, reason)), .. } => {
                Err(Error::refused(status, reason))
            }
            _ => Ok(()),
        }
    }

    /// Records that traits were sent to a daemon; `None`: to all of them.
    pub(super) fn mark_traits_sent(&mut self, registration: u32, peer: Option<u64>) {
        if let Some(setting) = self.setting(registration) {
            setting.is_sent |= peer.is_none();
            setting.awaited.extend(peer);
        }
    }

    /// Records a daemon's answer.
    pub(super) fn traits_answered(
        &mut self,
        peer: u64,
        registration: u32,
        refused: Option<(Status, String)>,
    ) {
        self.silent = false;
        self.late_traits.retain(|(p, number)| *number != registration || (*p != peer && *p != 0));
        if let Some(setting) = self.setting(registration) {
            setting.awaited.retain(|p| *p != peer);
            setting.accepted |= refused.is_none();
            setting.refused = setting.refused.take().or(refused);
        }
    }

    /// Sends traits that other daemons are answering to a daemon that has just connected.
    pub(super) fn queue_pending_traits(&mut self, peer: &mut Peer, registration: u32) {
        let id = peer.id;
        let is_unsent = |setting: &&mut PendingTraits| setting.is_sent && !setting.awaited.contains(&id);
        if let Some(setting) = self.setting(registration).filter(is_unsent) {
            setting.awaited.push(id);
            peer.queue_request(Message::SetTraits { registration, traits: setting.traits.bytes().to_vec() });
        }
    }
}
