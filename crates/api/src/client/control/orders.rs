//! Orders of a daemon, carried out by the control thread in the order in which they arrive.
//!
//! | Message | Effect |
//! |---|---|
//! | Region | maps the memory into a free outlet; or confirms memory of this process (`early`) |
//! | Enable | updates the entry of each named registration, runs its callback, acknowledges |
//! | ReportModules | sends the session a record with the module of each registration |
//! | CloseSession | clears all entries, closes the outlet, acknowledges; then runs callbacks |
//! | Registered | lets the registering thread continue |
//! | Private… | runs a private session here (`private`) |
//!
//! A daemon can send orders for sessions or registrations that have ended. Such orders are
//! acknowledged and otherwise ignored. An order fails if no outlet is free, the memory cannot be
//! mapped, the registration has no entry left, or a filter is refused: `Failed` is sent before the
//! acknowledgement.

use std::os::fd::{AsFd, OwnedFd};

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_transport::abi::RegionParams;
use traceweir_transport::message::{EnableCode, EnableParams, Message};
use traceweir_transport::ring::{RegionSource, prepare_wake};

use super::ControlThread;
use crate::client::link::{EarlyEnable, PendingRequest};
use crate::client::shared::{SharedState, UNSENT, UnusableSession};
use crate::client::wakers::{DOORBELL, Wakers};
use crate::error::Error;
use crate::process::fork;
use crate::process::outlets::SessionOwner;
use crate::registration::enable::EnableChange;
use crate::registration::{Handle, provider_filter};

/// The reason why an order of a daemon failed.
struct OrderFailure {
    /// The registration that failed; `None` if the session failed.
    registration: Option<u32>,
    status: Status,
    reason: String,
}

impl From<Error> for OrderFailure {
    fn from(e: Error) -> Self {
        Self { registration: None, status: e.status(), reason: e.to_string() }
    }
}

impl ControlThread {
    /// Carries out an order; an error ends the connection.
    pub(super) fn handle_order(
        &mut self,
        index: usize,
        message: Message,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), traceweir_transport::Error> {
        let owner = SessionOwner::Peer(self.peers[index].id);
        match message {
            Message::Region { session, params } if self.peers[index].has_offered_region(session) => {
                self.peers[index].offered_regions.retain(|offered| offered.session != session);
                if descriptors.len() == 1 {
                    self.wake_owner_of_taken_region(owner, session, descriptors);
                } else {
                    // The daemon created a region before it read the offer of this process, whose
                    // own region is dropped.
                    let _ = self.client.end_sessions(|open| open.owner == owner && open.session == session);
                    if let Err(failure) = self.map_region(owner, session, &params, descriptors) {
                        self.report_failure(index, 0, session, failure);
                    }
                }
            }
            Message::Region { session, params } => {
                if let Err(failure) = self.map_region(owner, session, &params, descriptors) {
                    self.report_failure(index, 0, session, failure);
                }
            }
            Message::Registered { registration } => {
                self.peers[index].mark_registered(registration);
                self.revert_unconfirmed_enables(index, PendingRequest::Register(registration));
                self.finish_registration(index, registration);
            }
            Message::Enable { order, registrations, session, code, params } => {
                let mut changed = Vec::new();
                for registration in registrations {
                    let early = self.take_early_enable(index, registration, session);
                    self.report_missed_events(index, registration, session, code, early.is_some());
                    let (must_run, result) =
                        self.enable_registration(owner, registration, session, code, &params, early.as_ref());
                    changed.extend(Handle::from_number(registration).filter(|_| must_run));
                    let Err(failure) = result else { continue };
                    let is_session_failure = failure.registration.is_none();
                    // That the session is unusable was reported when its region arrived.
                    if order != 0 || !is_session_failure {
                        self.report_failure(index, order, session, failure);
                    }
                    if is_session_failure {
                        break;
                    }
                }
                // Callbacks come after the loop: they may take long, and must not delay other
                // registrations.
                self.run_callbacks(changed, params.source, provider_filter(&params.filters));
                self.acknowledge(index, order);
            }
            Message::ReportModules { registrations, session } => {
                let (owner, session) = self.find_session_owner(index, session);
                for registration in registrations {
                    self.send_module(owner, registration, session);
                }
            }
            Message::CloseSession { order, session } => self.close_session(index, order, session),
            Message::PrivateStart { order, session, starter: user, config } => {
                self.start_private_session(index, order, session, user, &config);
            }
            Message::PrivateControl { order, session, user, control } => {
                self.control_private_session(index, order, session, user, control);
            }
            Message::PrivateEnable { order, session, provider, code, params } => {
                self.enable_private_session(index, order, session, provider, code, &params);
            }
            other => return Err(traceweir_transport::Error::Unexpected(other.kind())),
        }
        Ok(())
    }

    fn finish_registration(&self, index: usize, registration: u32) {
        let id = self.peers[index].id;
        let mut shared = self.client.lock();
        shared.record_answer(id, registration, None);
        shared
            .late_registrations
            .retain(|late| late.registration != registration || (late.peer != id && late.peer != UNSENT));
        drop(shared);
        self.client.state_changed.notify_all();
    }

    /// Acknowledges an order. For the number 0 the daemon expects no acknowledgement.
    fn acknowledge(&mut self, index: usize, order: u32) {
        if order != 0 {
            self.peers[index].queue(Message::Ack { order });
        }
    }

    fn report_failure(&mut self, index: usize, order: u32, session: u64, failure: OrderFailure) {
        let OrderFailure { registration, status, reason } = failure;
        self.peers[index].queue(Message::Failed { order, registration, session, status: status.0, reason });
    }

    /// Removes and returns the early enable that the daemon decides about now, if there was one.
    fn take_early_enable(&mut self, index: usize, registration: u32, session: u64) -> Option<EarlyEnable> {
        let is_meant = |early: &mut EarlyEnable| {
            (early.pending.registration(), early.session) == (registration, session)
        };
        self.peers[index].early_enables.extract_if(.., is_meant).last()
    }

    /// Reports a registration whose events the session may have missed. There are three reasons:
    /// the process continued before the daemon answered the registration or its traits, and the
    /// daemon's file did not enable it (`!was_early`); the process continued before it could
    /// connect to the daemon; or the program closed the connection.
    fn report_missed_events(
        &mut self,
        index: usize,
        registration: u32,
        session: u64,
        code: EnableCode,
        was_early: bool,
    ) {
        let id = self.peers[index].id;
        let is_missed = self.peers[index].missed_registrations.contains(&registration);
        let is_late = || is_missed || (!was_early && self.client.lock().is_late(id, registration));
        let reason = if self.take_missed_session(index, session, code) {
            "the program closed descriptors of the library"
        } else if code == EnableCode::Enable && is_late() {
            "the process went on before the daemon answered its registration or its traits"
        } else {
            return;
        };
        let (status, reason) = (Status::ERROR_TIMEOUT, reason.to_owned());
        self.report_failure(
            index,
            0,
            session,
            OrderFailure { registration: Some(registration), status, reason },
        );
        // Send the report before the registration is enabled: the process may end at any time after
        // that.
        let _ = self.peers[index].flush();
    }

    /// Sets the eventfd that wakes the daemon, which has taken the memory of this process.
    fn wake_owner_of_taken_region(&self, owner: SessionOwner, session: u64, descriptors: Vec<OwnedFd>) {
        let outlet = self.client.lock().outlets.find(owner, session).map(|open| open.outlet);
        let wake = descriptors.into_iter().next().filter(|wake| prepare_wake(wake.as_fd()).is_ok());
        if let (Some(outlet), Some(wake)) = (outlet, wake) {
            self.wakers.set(outlet, wake);
            // Earlier rings of the doorbell had no effect.
            DOORBELL.ring_outlet(outlet);
        }
    }

    fn map_region(
        &self,
        owner: SessionOwner,
        session: u64,
        params: &RegionParams,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), OrderFailure> {
        let mut shared = self.client.lock();
        shared.unusable_sessions.retain(|unusable| (unusable.owner, unusable.session) != (owner, session));
        let opened = shared.open_region(owner, session, params, descriptors, self.wakers);
        opened.map_err(|e| {
            let (status, reason) = (e.status(), e.to_string());
            shared.unusable_sessions.push(UnusableSession { owner, session, status, reason });
            e.into()
        })
    }

    /// Carries out an enable for one registration; also returns whether its callback must run.
    fn enable_registration(
        &self,
        owner: SessionOwner,
        registration: u32,
        session: u64,
        code: EnableCode,
        params: &EnableParams,
        early: Option<&EarlyEnable>,
    ) -> (bool, Result<(), OrderFailure>) {
        let mut shared = self.client.lock();
        let Some(handle) = Handle::from_number(registration) else { return (false, Ok(())) };
        let Some((outlet, ticket)) =
            shared.outlets.find(owner, session).map(|open| (open.outlet, open.ticket))
        else {
            return (false, shared.check_session_usable(owner, session));
        };
        let change = match code {
            EnableCode::Enable => shared.enable(handle, outlet, ticket, params),
            EnableCode::Disable if handle.slot().disable_sessions(1 << outlet) => EnableChange::Changed,
            EnableCode::Disable => EnableChange::None,
            EnableCode::CaptureState => {
                drop(shared);
                self.capture_state(handle, outlet, params);
                return (false, Ok(()));
            }
        };
        drop(shared);
        // The callback has already got a confirmed early enable. A forked child that takes over its
        // parent's sessions has no change to report.
        let is_reported = change == EnableChange::Changed
            && code == EnableCode::Enable
            && early.is_some_and(|early| early.is_confirmed_by(params));
        let must_run = change != EnableChange::None && !is_reported && fork::may_write();
        let result = change.refusal().map_or(Ok(()), |(status, reason)| {
            Err(OrderFailure { registration: Some(registration), status, reason: reason.to_owned() })
        });
        (must_run, result)
    }

    /// Sends a session the module of a registration, unless the registration sends it to all
    /// sessions.
    fn send_module(&self, owner: SessionOwner, registration: u32, session: u64) {
        let Some(handle) = Handle::from_number(registration) else { return };
        if handle.slot().is_module_tracked() {
            return;
        }
        // Takes the loader's lock, which must not be waited for under the client's lock (see
        // `client::track_binary`).
        let module = handle.find_module();
        let outlet = self.client.lock().outlets.find(owner, session).map(|open| open.outlet);
        if let Some(outlet) = outlet {
            handle.slot().send_module_to(outlet, &module);
        }
    }

    /// Closes a session to writers and acknowledges it. Callbacks come last: they may take long.
    fn close_session(&mut self, index: usize, order: u32, session: u64) {
        let owner = SessionOwner::Peer(self.peers[index].id);
        self.peers[index].offered_regions.retain(|offered| offered.session != session);
        self.peers[index].early_enables.retain(|early| early.session != session);
        let closed = self.client.end_sessions(|open| open.owner == owner && open.session == session);
        self.client
            .lock()
            .unusable_sessions
            .retain(|unusable| (unusable.owner, unusable.session) != (owner, session));
        if !closed.have_writers_finished {
            let reason = "a thread was stopped in the middle of a write, whose event is lost and not counted";
            let (status, reason) = (Status::ERROR_TIMEOUT, reason.to_owned());
            self.report_failure(index, order, session, OrderFailure { registration: None, status, reason });
        }
        self.acknowledge(index, order);
        // Ignore the error: the next flush reports it and drops the peer.
        let _ = self.peers[index].flush();
        self.run_callbacks(closed.changed, Guid::NULL, None);
    }

    /// Ends the sessions of a daemon whose connection has ended.
    pub(super) fn end_sessions_of_peer(&self, peer: u64) {
        let owner = SessionOwner::Peer(peer);
        let closed = self.client.end_sessions(|open| open.owner == owner);
        self.client.lock().unusable_sessions.retain(|unusable| unusable.owner != owner);
        self.run_callbacks(closed.changed, Guid::NULL, None);
    }
}

impl SharedState {
    /// Maps a session's memory into a free outlet.
    fn open_region(
        &mut self,
        owner: SessionOwner,
        session: u64,
        params: &RegionParams,
        descriptors: Vec<OwnedFd>,
        wakers: &Wakers,
    ) -> Result<(), Error> {
        let refuse = |reason: &str| Err(Error::refused(Status::ERROR_INVALID_PARAMETER, reason));
        let mut descriptors = descriptors.into_iter();
        let (Some(memory), Some(wake)) = (descriptors.next(), descriptors.next()) else {
            return refuse("a region needs two descriptors");
        };
        if self.outlets.find(owner, session).is_some() {
            return refuse("the session has a region in this process already");
        }
        prepare_wake(wake.as_fd())?;
        self.outlets.open(owner, session, |line, outlet| {
            let ticket = outlet.open(RegionSource::Doorbell { memory, doorbell: &DOORBELL, line }, params)?;
            // No entry names the outlet yet, so nothing rings before this.
            wakers.set(line, wake);
            Ok((ticket, ()))
        })
    }

    /// Checks an order for a session that is not open here: fails if its region could not be
    /// opened; a session that has ended is not an error.
    fn check_session_usable(&self, owner: SessionOwner, session: u64) -> Result<(), OrderFailure> {
        match self
            .unusable_sessions
            .iter()
            .find(|unusable| (unusable.owner, unusable.session) == (owner, session))
        {
            Some(UnusableSession { status, reason, .. }) => {
                Err(OrderFailure { registration: None, status: *status, reason: reason.clone() })
            }
            None => Ok(()),
        }
    }
}
