//! Registrations that do not wait for a busy daemon.
//!
//! ```text
//!   connect ─▶ the daemon's file lists its enables ─▶ regions created here
//!           ─▶ Hello, Region + memory, Register: they wait in the connection
//!           ─▶ registrations enabled, events written
//!   traits  ─▶ the file lists enables by name or group ─▶ the same, SetTraits instead of Register
//!   daemon  ─▶ Welcome, Region with its wake eventfd only (the memory was taken), Enable, Registered
//! ```
//!
//! The daemon decides: enables that it has not sent when it answers the registration are reverted
//! here, and memory that it did not take is dropped. If the process ends before the daemon reads
//! the connection, its events are in the memory that waits there.

use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP as GROUP;
use traceweir_format::{Guid, tracelogging};
use traceweir_transport::enabled::ListedEnable;
use traceweir_transport::message::EnableParams;
use traceweir_transport::ring::{RegionSource, create_memory};

use super::ControlThread;
use crate::client::link::{DaemonPeer, EarlyEnable, PendingRequest};
use crate::client::shared::SharedState;
use crate::client::wakers::DOORBELL;
use crate::error::Result;
use crate::process::fork;
use crate::process::outlets::SessionOwner;
use crate::registration::enable::EnableChange;
use crate::registration::{Handle, provider_filter};

impl ControlThread {
    /// Returns the enables that the daemon's file lists for a registration with these traits, except
    /// those of sessions that have enabled it already. Creates the missing regions of these sessions
    /// and queues them for the daemon, ahead of the `pending` Register or SetTraits.
    pub(super) fn prepare_early_enables(
        &mut self,
        index: usize,
        pending: PendingRequest,
        traits: &[u8],
    ) -> Vec<ListedEnable> {
        let peer = &mut self.peers[index];
        let Some(handle) = Handle::from_number(pending.registration()) else { return Vec::new() };
        let enabled = self.folders.get(peer.folder).map(|folder| folder.read_enables_of(peer));
        let mut enables = find_enables(&handle, traits, &enabled.unwrap_or_default());
        let owner = SessionOwner::Peer(peer.id);
        let mut shared = self.client.lock();
        // The daemon does not send existing enables again when traits change. If they were treated
        // as early enables, they would be reverted as unconfirmed.
        enables.retain(|listed| {
            let outlet = shared.outlets.find(owner, listed.session).map(|open| open.outlet);
            outlet.is_none_or(|outlet| handle.slot().find_enable(outlet).is_none())
        });
        // A session whose region cannot be created here waits for the daemon's region.
        enables.retain(|listed| shared.open_early_session(peer, pending, listed).is_ok());
        enables
    }

    /// Enables a registration for the sessions of
    /// [`prepare_early_enables`](Self::prepare_early_enables), whose regions have been sent: the
    /// process may end as soon as it has written an event.
    pub(super) fn apply_early_enables(
        &mut self,
        index: usize,
        pending: PendingRequest,
        enables: &[ListedEnable],
    ) {
        let Some(handle) = Handle::from_number(pending.registration()) else { return };
        let (mut is_changed, mut filter) = (false, None);
        let mut shared = self.client.lock();
        for listed in enables {
            if shared.enable_early(&mut self.peers[index], handle, pending, listed) {
                // The filter of the last session stays, as if the callback ran for each session.
                (is_changed, filter) = (true, provider_filter(&listed.params.filters));
            }
        }
        drop(shared);
        if is_changed && fork::may_write() {
            self.run_callbacks(vec![handle], Guid::NULL, filter);
        }
    }

    /// Reverts early enables that a daemon has not confirmed when it answers a registration or its
    /// traits, and drops offered regions that no request needs any more.
    pub(super) fn revert_unconfirmed_enables(&mut self, index: usize, answered: PendingRequest) {
        let peer = &mut self.peers[index];
        let (owner, registration) = (SessionOwner::Peer(peer.id), answered.registration());
        let unconfirmed: Vec<EarlyEnable> =
            peer.early_enables.extract_if(.., |early| early.pending == answered).collect();
        let mut is_changed = false;
        let mut shared = self.client.lock();
        for EarlyEnable { session, .. } in unconfirmed {
            let outlet = shared.outlets.find(owner, session).map(|open| open.outlet);
            if let (Some(outlet), Some(handle)) = (outlet, Handle::from_number(registration)) {
                is_changed |= handle.slot().disable_sessions(1 << outlet);
            }
        }
        drop(shared);
        let mut unused_sessions = Vec::new();
        for offered in std::mem::take(&mut peer.offered_regions) {
            let is_used = peer.early_enables.iter().any(|early| early.session == offered.session);
            if is_used || peer.awaits_answer_to(offered.pending) {
                peer.offered_regions.push(offered);
            } else {
                unused_sessions.push(offered.session);
            }
        }
        if !unused_sessions.is_empty() {
            let closed = self
                .client
                .end_sessions(|open| open.owner == owner && unused_sessions.contains(&open.session));
            self.run_callbacks(closed.changed, Guid::NULL, None);
        }
        if let Some(handle) = Handle::from_number(registration).filter(|_| is_changed) {
            self.run_callbacks(vec![handle], Guid::NULL, None);
        }
    }
}

impl SharedState {
    /// Creates the region of a session, unless this process has one.
    fn open_early_session(
        &mut self,
        peer: &mut DaemonPeer,
        pending: PendingRequest,
        listed: &ListedEnable,
    ) -> Result<()> {
        let (owner, session) = (SessionOwner::Peer(peer.id), listed.session);
        if self.outlets.find(owner, session).is_some() {
            return Ok(());
        }
        let memory = create_memory(&listed.region)?;
        let own_memory = memory.try_clone().map_err(|e| traceweir_transport::Error::system("dup", e))?;
        self.outlets.open(owner, session, |line, outlet| {
            let source = RegionSource::Doorbell { memory: own_memory, doorbell: &DOORBELL, line };
            Ok((outlet.open(source, &listed.region)?, ()))
        })?;
        peer.offer_region(session, pending, listed.region, memory);
        Ok(())
    }

    /// Enables a registration for a session and returns whether its callback must run.
    fn enable_early(
        &mut self,
        peer: &mut DaemonPeer,
        handle: Handle,
        pending: PendingRequest,
        listed: &ListedEnable,
    ) -> bool {
        let (owner, session) = (SessionOwner::Peer(peer.id), listed.session);
        let Some((outlet, ticket)) = self.outlets.find(owner, session).map(|open| (open.outlet, open.ticket))
        else {
            return false;
        };
        peer.early_enables.push(EarlyEnable { session, params: listed.params.clone(), pending });
        self.enable(handle, outlet, ticket, &listed.params) != EnableChange::None
    }
}

impl EarlyEnable {
    /// Returns whether the daemon's enable is the one that was applied early and reported to the
    /// callback. Ignores the source and the group property.
    pub(super) fn is_confirmed_by(&self, params: &EnableParams) -> bool {
        let without_source = |params: &EnableParams| EnableParams {
            property: params.property & !GROUP,
            source: Guid::NULL,
            ..params.clone()
        };
        without_source(&self.params) == without_source(params)
    }
}

/// Returns the enables of a registration with these traits, one for each session; for a classic
/// provider only the latest that is not for a group.
fn find_enables(handle: &Handle, traits: &[u8], enabled: &[ListedEnable]) -> Vec<ListedEnable> {
    let slot = handle.slot();
    let traits = tracelogging::Traits::parse(traits).ok();
    let group = traits.as_ref().and_then(|traits| traits.group());
    let name = traits.as_ref().map_or_else(Default::default, |traits| String::from_utf8_lossy(traits.name));
    let mut matching = enabled.iter().filter(|listed| listed.applies_to(slot.provider(), group, &name));
    if slot.is_classic() {
        let latest = matching.rfind(|listed| listed.params.property & GROUP == 0);
        return latest.cloned().map(reduce_to_classic).into_iter().collect();
    }
    let mut enables: Vec<ListedEnable> = Vec::new();
    for listed in matching {
        match enables.iter_mut().find(|known| known.session == listed.session) {
            Some(known) => known.params = widen_params(&known.params, &listed.params),
            None => enables.push(listed.clone()),
        }
    }
    enables
}

/// Reduces an enable to the parameters that a classic provider gets.
fn reduce_to_classic(listed: ListedEnable) -> ListedEnable {
    let EnableParams { level, match_any, .. } = listed.params;
    let params =
        EnableParams { level, match_any: match_any & u64::from(u32::MAX), ..EnableParams::default() };
    ListedEnable { params, ..listed }
}

/// Returns parameters that pass every event that one of two enables passes, until the daemon sends
/// the exact parameters.
fn widen_params(first: &EnableParams, second: &EnableParams) -> EnableParams {
    let max_level = |params: &EnableParams| if params.level == 0 { u8::MAX } else { params.level };
    let any_mask = |params: &EnableParams| if params.match_any == 0 { u64::MAX } else { params.match_any };
    EnableParams {
        level: max_level(first).max(max_level(second)),
        match_any: any_mask(first) | any_mask(second),
        match_all: first.match_all & second.match_all,
        property: first.property & second.property,
        source: Guid::NULL,
        filters: Vec::new(),
    }
}
