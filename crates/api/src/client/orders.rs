//! What a daemon asks of this process, carried out by the control thread in the order in which it comes.
//!
//! | Message | What happens |
//! |---|---|
//! | Region | the memory is mapped into a free outlet |
//! | Enable | the entry of the registration is filled or cleared, its callback told, then the order acknowledged |
//! | CloseSession | all entries cleared, the outlet closed, acknowledged; then the callbacks are told, which may take their time |
//! | Registered | the registering thread goes on |
//!
//! A daemon can send orders for sessions or registrations that are gone by now: those are acknowledged and otherwise ignored.

use std::os::fd::OwnedFd;

use traceweir_format::Guid;
use traceweir_transport::abi::RegionParams;
use traceweir_transport::message::{EnableCode, EnableParams, Message};
use traceweir_transport::ring::{RegionSource, Ticket};

use super::control::Control;
use super::outlets::Owner;
use super::{Shared, tell_all};
use crate::error::Error;
use crate::provider::{Change, Combined, Handle, for_provider};

impl Control {
    pub(super) fn order(&mut self, at: usize, message: Message, descriptors: Vec<OwnedFd>) {
        let peer = self.peers[at].id;
        match message {
            Message::Region { session, params } => self.region(peer, session, &params, descriptors),
            Message::Registered { registration } => {
                let mut shared = self.client.lock();
                shared.awaited.retain(|a| *a != (peer, registration));
                shared.silent = false;
                drop(shared);
                self.client.changed.notify_all();
            }
            Message::Enable { order, registration, session, code, params } => {
                self.enable(Owner::Peer(peer), registration, session, code, &params);
                self.acknowledge(at, order);
            }
            Message::CloseSession { order, session } => {
                let changed =
                    self.client.end_sessions(|o| o.owner == Owner::Peer(peer) && o.session == session);
                self.acknowledge(at, order);
                let _ = self.peers[at].flush();
                tell_all(&changed, Guid::NULL, None);
            }
            // A newer daemon may say more than this version knows; the greeting has agreed on what matters.
            _ => {}
        }
    }

    fn acknowledge(&mut self, at: usize, order: u32) {
        if order != 0 {
            self.peers[at].say(Message::Ack { order });
        }
    }

    fn region(&self, peer: u64, session: u64, params: &RegionParams, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        let (Some(memory), Some(wake)) = (descriptors.next(), descriptors.next()) else { return };
        let owner = Owner::Peer(peer);
        let mut shared = self.client.lock();
        if shared.table.find(owner, session).is_some() {
            return;
        }
        let opened = shared.table.open(owner, session, |outlet| {
            let ticket = outlet.open(RegionSource::File { memory, wake }, params).map_err(Error::from)?;
            Ok((ticket, ()))
        });
        if let Err(e) = opened {
            shared.links.push(format!("session {session:#x} cannot be written to: {e}"));
        }
    }

    fn enable(&self, owner: Owner, registration: u32, session: u64, code: EnableCode, params: &EnableParams) {
        let mut shared = self.client.lock();
        let Some(handle) = Handle::from_number(registration) else { return };
        let Some((outlet, ticket)) = shared.table.find(owner, session).map(|o| (o.outlet, o.ticket)) else {
            return;
        };
        let changed = match code {
            EnableCode::Enable => shared.enable(handle, outlet, ticket, params),
            EnableCode::Disable => handle.slot().unwish(1 << outlet),
            EnableCode::CaptureState => {
                drop(shared);
                return capture(handle, outlet, params);
            }
        };
        drop(shared);
        // A forked child that takes over its parent's sessions has nothing new to tell.
        if changed && super::fork::is_ready() {
            tell_all(&[handle], params.source, for_provider(&params.filters));
        }
    }

    /// The daemon is gone, and its sessions with it.
    pub(super) fn end_peer(&self, peer: u64) {
        let changed = self.client.end_sessions(|o| o.owner == Owner::Peer(peer));
        tell_all(&changed, Guid::NULL, None);
    }
}

impl Shared {
    /// A session wants a registration. Whether its callback is to be told.
    pub(crate) fn enable(
        &mut self,
        handle: Handle,
        outlet: u8,
        ticket: Ticket,
        params: &EnableParams,
    ) -> bool {
        let change = handle.slot().wish(outlet, ticket, params);
        if change == Change::Full {
            self.links.push(format!("{}: enabled by too many sessions", handle.slot().provider()));
        }
        if let Some(filter) = for_provider(&params.filters)
            && handle.slot().is_registering()
        {
            self.filters.push((handle.number(), filter.clone()));
        }
        change == Change::Changed
    }
}

/// Asks a provider for its state, with the level and masks of the session that asks.
pub(crate) fn capture(handle: Handle, outlet: u8, params: &EnableParams) {
    let wish = handle.slot().wish_of(outlet);
    let wish = wish
        .map_or(Combined { level: params.level, any: params.match_any, all: params.match_all }, |w| {
            Combined { level: w.level, any: w.any, all: w.all }
        });
    handle.slot().capture_state(params.source, wish, for_provider(&params.filters));
}
