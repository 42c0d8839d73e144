//! Registrations that do not wait for a busy daemon.
//!
//! ```text
//!   connect ─▶ the daemon's file lists its enables ─▶ memory made here, entries filled, events
//!              are written
//!           ─▶ Hello, Region + memory, Register: they wait in the connection
//!   traits  ─▶ the file lists enables by name or group ─▶ the same, Region + memory, SetTraits
//!   daemon  ─▶ Welcome, Region + wake (the memory is taken), Enable, Registered
//! ```
//!
//! The daemon decides: enables that it has not sent when it answers the registration are reverted
//! here, and memory that it did not take is dropped. A process that ends before the daemon reads
//! has left its events in the connection.

use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP as GROUP;
use traceweir_format::{Guid, tracelogging};
use traceweir_transport::enabled::Enabled;
use traceweir_transport::message::EnableParams;
use traceweir_transport::ring::{RegionSource, create_memory};

use super::Control;
use crate::client::link::{EarlyEnable, Peer, PendingRequest};
use crate::client::shared::Shared;
use crate::client::wakers::DOORBELL;
use crate::error::Result;
use crate::process::fork;
use crate::process::outlets::Owner;
use crate::registration::enable::Change;
use crate::registration::{Handle, provider_filter};

impl Control {
    /// Makes the memory for sessions that enable a registration with these traits by the daemon's
    /// file, if there is none, and queues it for the daemon before the request. Returns the enables
    /// of those sessions.
    pub(super) fn prepare_early(
        &mut self,
        at: usize,
        pending: PendingRequest,
        traits: &[u8],
    ) -> Vec<Enabled> {
        let peer = &mut self.peers[at];
        let Some(handle) = Handle::from_number(pending.registration()) else { return Vec::new() };
        let enabled = self.links.get(peer.link).map(|link| link.enabled_by(peer));
        let mut wanted = wanted_of(&handle, traits, &enabled.unwrap_or_default());
        let owner = Owner::Peer(peer.id);
        let mut shared = self.client.lock();
        // The daemon repeats no enable that traits do not change: existing enables stay until it
        // answers.
        wanted.retain(|one| {
            let outlet = shared.table.find(owner, one.session).map(|open| open.outlet);
            outlet.is_none_or(|outlet| handle.slot().enable_of_outlet(outlet).is_none())
        });
        // Sessions whose memory cannot be made here wait for the daemon.
        wanted.retain(|one| shared.open_early(peer, pending, one).is_ok());
        wanted
    }

    /// Enables a registration for the sessions that it was prepared for. The memory was sent
    /// before: the process may end as soon as it has written an event.
    pub(super) fn enable_early(&mut self, at: usize, pending: PendingRequest, wanted: &[Enabled]) {
        let Some(handle) = Handle::from_number(pending.registration()) else { return };
        let (mut is_changed, mut filter) = (false, None);
        let mut shared = self.client.lock();
        for one in wanted {
            if shared.enable_early(&mut self.peers[at], handle, pending, one) {
                // With several sessions the last filter, as with a callback that runs for each.
                (is_changed, filter) = (true, provider_filter(&one.params.filters));
            }
        }
        drop(shared);
        if is_changed && fork::is_ready() {
            self.run_callbacks(vec![handle], Guid::NULL, filter);
        }
    }

    /// Reverts early enables that a daemon has not confirmed when it answers a registration or its
    /// traits.
    pub(super) fn end_early(&mut self, at: usize, answered: PendingRequest) {
        let peer = &mut self.peers[at];
        let (owner, registration) = (Owner::Peer(peer.id), answered.registration());
        let unwanted: Vec<EarlyEnable> =
            peer.early.extract_if(.., |early| early.pending == answered).collect();
        let mut is_changed = false;
        let mut shared = self.client.lock();
        for EarlyEnable { session, .. } in unwanted {
            let outlet = shared.table.find(owner, session).map(|open| open.outlet);
            if let (Some(outlet), Some(handle)) = (outlet, Handle::from_number(registration)) {
                is_changed |= handle.slot().disable_sessions(1 << outlet);
            }
        }
        drop(shared);
        let mut given_up = Vec::new();
        for (session, pending) in std::mem::take(&mut peer.offered) {
            let is_used = peer.early.iter().any(|early| early.session == session);
            if is_used || peer.awaits(pending) {
                peer.offered.push((session, pending));
            } else {
                given_up.push(session);
            }
        }
        if !given_up.is_empty() {
            let closed =
                self.client.end_sessions(|open| open.owner == owner && given_up.contains(&open.session));
            self.run_callbacks(closed.changed, Guid::NULL, None);
        }
        if let Some(handle) = Handle::from_number(registration).filter(|_| is_changed) {
            self.run_callbacks(vec![handle], Guid::NULL, None);
        }
    }
}

impl Shared {
    /// Makes the memory of this process for a session, unless it has some.
    fn open_early(&mut self, peer: &mut Peer, pending: PendingRequest, wanted: &Enabled) -> Result<()> {
        let (owner, session) = (Owner::Peer(peer.id), wanted.session);
        if self.table.find(owner, session).is_some() {
            return Ok(());
        }
        let memory = create_memory(&wanted.region)?;
        let shared = memory.try_clone().map_err(|e| traceweir_transport::Error::system("dup", e))?;
        self.table.open(owner, session, |line, outlet| {
            let source = RegionSource::Doorbell { memory: shared, doorbell: &DOORBELL, line };
            Ok((outlet.open(source, &wanted.region)?, ()))
        })?;
        peer.offer(session, pending, wanted.region, memory);
        Ok(())
    }

    /// Enables a registration for a session and returns whether its callback must run.
    fn enable_early(
        &mut self,
        peer: &mut Peer,
        handle: Handle,
        pending: PendingRequest,
        wanted: &Enabled,
    ) -> bool {
        let (owner, session) = (Owner::Peer(peer.id), wanted.session);
        let Some((outlet, ticket)) = self.table.find(owner, session).map(|open| (open.outlet, open.ticket))
        else {
            return false;
        };
        peer.early.push(EarlyEnable { session, params: wanted.params.clone(), pending });
        self.enable(handle, outlet, ticket, &wanted.params) != Change::None
    }
}

impl EarlyEnable {
    /// Returns whether the daemon's enable equals the one in its file, which the callback has
    /// already.
    pub(super) fn is_confirmed_by(&self, params: &EnableParams) -> bool {
        let plain = |params: &EnableParams| EnableParams {
            property: params.property & !GROUP,
            source: Guid::NULL,
            ..params.clone()
        };
        plain(&self.params) == plain(params)
    }
}

/// Returns the enables of a registration with these traits, one for each session; for a classic
/// provider only the latest.
fn wanted_of(handle: &Handle, traits: &[u8], enabled: &[Enabled]) -> Vec<Enabled> {
    let slot = handle.slot();
    let traits = tracelogging::Traits::parse(traits).ok();
    let group = traits.as_ref().and_then(|traits| traits.group());
    let name = traits.as_ref().map_or_else(Default::default, |traits| String::from_utf8_lossy(traits.name));
    let mut meant = enabled.iter().filter(|one| one.is_for(slot.provider(), group, &name));
    if slot.is_classic() {
        let latest = meant.rfind(|one| one.params.property & GROUP == 0);
        return latest.cloned().map(classic).into_iter().collect();
    }
    let mut wanted: Vec<Enabled> = Vec::new();
    for one in meant {
        match wanted.iter_mut().find(|other| other.session == one.session) {
            Some(other) => other.params = widest(&other.params, &one.params),
            None => wanted.push(one.clone()),
        }
    }
    wanted
}

/// Reduces an enable to the parameters that a classic provider gets.
fn classic(one: Enabled) -> Enabled {
    let EnableParams { level, match_any, .. } = one.params;
    let params =
        EnableParams { level, match_any: match_any & u64::from(u32::MAX), ..EnableParams::default() };
    Enabled { params, ..one }
}

/// All that either of two enables lets through, until the daemon says exactly what it wants.
fn widest(one: &EnableParams, other: &EnableParams) -> EnableParams {
    let level = |params: &EnableParams| if params.level == 0 { u8::MAX } else { params.level };
    let any = |params: &EnableParams| if params.match_any == 0 { u64::MAX } else { params.match_any };
    EnableParams {
        level: level(one).max(level(other)),
        match_any: any(one) | any(other),
        match_all: one.match_all & other.match_all,
        property: one.property & other.property,
        source: Guid::NULL,
        filters: Vec::new(),
    }
}
