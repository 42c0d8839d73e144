//! What a daemon asks of this process, carried out by the control thread in the order in which it comes.
//!
//! | Message | What happens |
//! |---|---|
//! | Region | the memory is mapped into a free outlet; or the memory that this process made is taken (`early`) |
//! | Enable | the entry of each registration named is filled or cleared, its callback told, then the order acknowledged |
//! | TellModules | the session gets a record that says where each registration lives |
//! | CloseSession | all entries cleared, the outlet closed, acknowledged; then the callbacks are told, which may take their time |
//! | Registered | the registering thread goes on |
//! | Private… | a private session is run here (`private`) |
//!
//! A daemon can send orders for sessions or registrations that are gone by now: those are acknowledged and otherwise ignored. What cannot be done
//! is said (`Failed`) before it is acknowledged: no outlet is free, the memory cannot be mapped, the registration has no entry left.

use std::os::fd::{AsFd, OwnedFd};

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_transport::abi::RegionParams;
use traceweir_transport::message::{EnableCode, EnableParams, Message};
use traceweir_transport::ring::{RegionSource, Ticket, prepare_wake};

use super::control::Control;
use super::link::{Asked, Early};
use super::outlets::Owner;
use super::wakers::{DOORBELL, Wakers};
use super::{Refused, Shared};
use crate::error::Error;
use crate::provider::{Change, Combined, Handle, for_provider};

/// Why something that a daemon asked for was not done.
struct Trouble {
    /// The registration that it is about; none where it is the session as a whole.
    registration: Option<u32>,
    status: Status,
    reason: String,
}

impl From<Error> for Trouble {
    fn from(e: Error) -> Self {
        Self { registration: None, status: e.status(), reason: e.to_string() }
    }
}

impl Control {
    /// Carries an order out; an error ends the connection.
    pub(super) fn order(
        &mut self,
        at: usize,
        message: Message,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), traceweir_transport::Error> {
        let owner = Owner::Peer(self.peers[at].id);
        match message {
            Message::Region { session, params } if self.peers[at].has_offered(session) => {
                self.peers[at].offered.retain(|(offered, _)| *offered != session);
                if descriptors.len() == 1 {
                    self.region_taken(owner, session, descriptors);
                } else {
                    // The daemon has made some before it read of ours, which is given up.
                    let _ = self.client.end_sessions(|o| o.owner == owner && o.session == session);
                    if let Err(trouble) = self.region(owner, session, &params, descriptors) {
                        self.failed(at, 0, session, trouble);
                    }
                }
            }
            Message::Region { session, params } => {
                if let Err(trouble) = self.region(owner, session, &params, descriptors) {
                    self.failed(at, 0, session, trouble);
                }
            }
            Message::Registered { registration } => {
                self.peers[at].registered(registration);
                self.end_early(at, Asked::Register(registration));
                self.registered(at, registration);
            }
            Message::Enable { order, registrations, session, code, params } => {
                for registration in registrations {
                    let early = self.take_early(at, registration, session);
                    self.note_late(at, registration, session, code, early.is_some());
                    let done = self.enable(owner, registration, session, code, &params, early.as_ref());
                    let Err(trouble) = done else { continue };
                    let is_of_session = trouble.registration.is_none();
                    // That the session has no memory here was said when it came.
                    if order != 0 || !is_of_session {
                        self.failed(at, order, session, trouble);
                    }
                    if is_of_session {
                        break;
                    }
                }
                self.acknowledge(at, order);
            }
            Message::TellModules { registrations, session } => {
                let (owner, session) = self.place_of(at, session);
                for registration in registrations {
                    self.send_module(owner, registration, session);
                }
            }
            Message::CloseSession { order, session } => self.close(at, order, session),
            Message::PrivateStart { order, session, starter, config } => {
                self.private_start(at, order, session, starter, &config);
            }
            Message::PrivateControl { order, session, asker, control } => {
                self.private_control(at, (order, session), asker, control);
            }
            Message::PrivateEnable { order, session, provider, code, params } => {
                self.private_enable(at, (order, session), provider, code, &params);
            }
            other => return Err(traceweir_transport::Error::Unexpected(other.kind())),
        }
        Ok(())
    }

    fn registered(&self, at: usize, registration: u32) {
        let id = self.peers[at].id;
        let mut shared = self.client.lock();
        shared.answered(id, registration, None);
        shared.late.retain(|(p, number)| *number != registration || (*p != id && *p != 0));
        drop(shared);
        self.client.changed.notify_all();
    }

    fn acknowledge(&mut self, at: usize, order: u32) {
        if order != 0 {
            self.peers[at].say(Message::Ack { order });
        }
    }

    fn failed(&mut self, at: usize, order: u32, session: u64, trouble: Trouble) {
        let Trouble { registration, status, reason } = trouble;
        self.peers[at].say(Message::Failed { order, registration, session, status: status.0, reason });
    }

    /// The enable of a registration that the daemon decides about now, where there was one before.
    fn take_early(&mut self, at: usize, registration: u32, session: u64) -> Option<Early> {
        let is_meant =
            |early: &mut Early| (early.asked.registration(), early.session) == (registration, session);
        self.peers[at].early.extract_if(.., is_meant).last()
    }

    /// Reports a registration of which the session may have missed events: the process went on
    /// before the daemon answered the registration or its traits, and was not enabled by the
    /// daemon's file (`was_early`), or the program had closed the connection.
    fn note_late(&mut self, at: usize, registration: u32, session: u64, code: EnableCode, was_early: bool) {
        let id = self.peers[at].id;
        let reason = if self.take_missed(at, session, code) {
            "the program closed descriptors of the library"
        } else if code == EnableCode::Enable && !was_early && self.client.lock().is_late(id, registration) {
            "the process went on before the daemon answered its registration or its traits"
        } else {
            return;
        };
        let (status, reason) = (Status::ERROR_TIMEOUT, reason.to_owned());
        self.failed(at, 0, session, Trouble { registration: Some(registration), status, reason });
    }

    /// The daemon has taken the memory that this process made, and says how to wake it.
    fn region_taken(&self, owner: Owner, session: u64, descriptors: Vec<OwnedFd>) {
        let outlet = self.client.lock().table.find(owner, session).map(|open| open.outlet);
        let wake = descriptors.into_iter().next().filter(|wake| prepare_wake(wake.as_fd()).is_ok());
        if let (Some(outlet), Some(wake)) = (outlet, wake) {
            self.wakers.set(outlet, wake);
            // What was rung before reached nobody.
            DOORBELL.ring_outlet(outlet);
        }
    }

    fn region(
        &self,
        owner: Owner,
        session: u64,
        params: &RegionParams,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Trouble> {
        let mut shared = self.client.lock();
        shared.refused.retain(|r| (r.owner, r.session) != (owner, session));
        let opened = shared.open_region(owner, session, params, descriptors, self.wakers);
        opened.map_err(|e| {
            let (status, reason) = (e.status(), e.to_string());
            shared.refused.push(Refused { owner, session, status, reason });
            e.into()
        })
    }

    fn enable(
        &self,
        owner: Owner,
        registration: u32,
        session: u64,
        code: EnableCode,
        params: &EnableParams,
        early: Option<&Early>,
    ) -> Result<(), Trouble> {
        let mut shared = self.client.lock();
        let Some(handle) = Handle::from_number(registration) else { return Ok(()) };
        let Some((outlet, ticket)) = shared.table.find(owner, session).map(|o| (o.outlet, o.ticket)) else {
            return shared.check_usable(owner, session);
        };
        let change = match code {
            EnableCode::Enable => shared.enable(handle, outlet, ticket, params),
            EnableCode::Disable if handle.slot().disable_sessions(1 << outlet) => Change::Changed,
            EnableCode::Disable => Change::None,
            EnableCode::CaptureState => {
                drop(shared);
                self.capture(handle, outlet, params);
                return Ok(());
            }
        };
        drop(shared);
        // A forked child that takes over its parent's sessions has nothing new to tell.
        let is_known = change == Change::Changed
            && code == EnableCode::Enable
            && early.is_some_and(|early| early.is_confirmed_by(params));
        if change != Change::None && !is_known && super::fork::is_ready() {
            self.tell(vec![handle], params.source, for_provider(&params.filters));
        }
        change.refusal().map_or(Ok(()), |(status, reason)| {
            Err(Trouble { registration: Some(registration), status, reason: reason.to_owned() })
        })
    }

    /// Tells a session where a registration lives; one that tells all sessions has told this one.
    fn send_module(&self, owner: Owner, registration: u32, session: u64) {
        let Some(handle) = Handle::from_number(registration) else { return };
        if handle.slot().sends_module() {
            return;
        }
        // Takes the loader's lock, which must not be waited for under the client's: `client::track_binary` says why.
        let module = handle.find_module();
        let outlet = self.client.lock().table.find(owner, session).map(|open| open.outlet);
        if let Some(outlet) = outlet {
            handle.slot().send_module_to(outlet, &module);
        }
    }

    /// Shuts writers out and says so. Callbacks come last: they may take their time.
    fn close(&mut self, at: usize, order: u32, session: u64) {
        let owner = Owner::Peer(self.peers[at].id);
        self.peers[at].offered.retain(|(offered, _)| *offered != session);
        self.peers[at].early.retain(|early| early.session != session);
        let closed = self.client.end_sessions(|o| o.owner == owner && o.session == session);
        self.client.lock().refused.retain(|r| (r.owner, r.session) != (owner, session));
        if !closed.quiet {
            let reason = "a thread was stopped in the middle of a write, whose event is lost and not counted";
            let (status, reason) = (Status::ERROR_TIMEOUT, reason.to_owned());
            self.failed(at, order, session, Trouble { registration: None, status, reason });
        }
        self.acknowledge(at, order);
        // A connection that is gone is noticed soon enough.
        let _ = self.peers[at].flush();
        self.tell(closed.changed, Guid::NULL, None);
    }

    /// The daemon is gone, and its sessions with it.
    pub(super) fn end_peer(&self, peer: u64) {
        let owner = Owner::Peer(peer);
        let closed = self.client.end_sessions(|o| o.owner == owner);
        self.client.lock().refused.retain(|r| r.owner != owner);
        self.tell(closed.changed, Guid::NULL, None);
    }
}

impl Shared {
    /// A session wants a registration. What came of it.
    pub(crate) fn enable(
        &mut self,
        handle: Handle,
        outlet: u8,
        ticket: Ticket,
        params: &EnableParams,
    ) -> Change {
        let change = handle.enable_session(outlet, ticket, params);
        if let Some(filter) = for_provider(&params.filters)
            && handle.slot().is_registering()
        {
            // Of several sessions the last, as with a callback that is called for each.
            self.filters.retain(|(number, _)| *number != handle.number());
            self.filters.push((handle.number(), filter.clone()));
        }
        change
    }

    /// Maps a session's memory into a free outlet.
    fn open_region(
        &mut self,
        owner: Owner,
        session: u64,
        params: &RegionParams,
        descriptors: Vec<OwnedFd>,
        wakers: &Wakers,
    ) -> Result<(), Error> {
        let refuse = |why: &str| Err(Error::refused(Status::ERROR_INVALID_PARAMETER, why));
        let mut descriptors = descriptors.into_iter();
        let (Some(memory), Some(wake)) = (descriptors.next(), descriptors.next()) else {
            return refuse("memory comes with two descriptors");
        };
        if self.table.find(owner, session).is_some() {
            return refuse("the session has memory in this process already");
        }
        prepare_wake(wake.as_fd())?;
        self.table.open(owner, session, |line, outlet| {
            let ticket = outlet.open(RegionSource::Doorbell { memory, doorbell: &DOORBELL, line }, params)?;
            // No entry names the outlet yet, so nothing rings before this.
            wakers.set(line, wake);
            Ok((ticket, ()))
        })
    }

    /// An order for a session that is not open here: gone by now, which is nobody's fault, or never opened.
    fn check_usable(&self, owner: Owner, session: u64) -> Result<(), Trouble> {
        match self.refused.iter().find(|r| (r.owner, r.session) == (owner, session)) {
            Some(r) => Err(Trouble { registration: None, status: r.status, reason: r.reason.clone() }),
            None => Ok(()),
        }
    }
}

/// Asks a provider for its state, with the level and masks of the session that asks.
pub(crate) fn capture(handle: Handle, outlet: u8, params: &EnableParams) {
    let enable = handle.slot().enable_of_outlet(outlet);
    let enable = enable
        .map_or(Combined { level: params.level, any: params.match_any, all: params.match_all }, |w| {
            Combined { level: w.level, any: w.any, all: w.all }
        });
    handle.slot().resend_module(outlet);
    handle.slot().capture_state(params.source, enable, &params.filters, 1 << (outlet & 63));
}
