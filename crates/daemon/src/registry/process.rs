//! A process that registers providers: who it is, what it has, what is awaited from it.
//!
//! Who it is was fixed when it connected. What its id tells later counts only while the id is still the same process's.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_ENABLE_SILOS;
use traceweir_session::SourceId;
use traceweir_transport::abi::RegionParams;
use traceweir_transport::socket::Peer;

use super::{Enable, Registration, Target};
use crate::filter::{Conditions, Facts, Scope};
use crate::process::{self, ProcessKey};

/// A process that registers providers.
#[derive(Debug)]
pub(crate) struct Process {
    /// Who it is.
    pub(crate) peer: Peer,
    /// The number its library drew.
    pub(super) instance: u64,
    /// The process itself, where `/proc` showed it when it connected.
    pub(super) key: Option<ProcessKey>,
    /// What filters ask of it, once one did.
    facts: OnceCell<Facts>,
    /// Whether it runs in a container, once that counted.
    contained: OnceCell<bool>,
    /// Its registrations by their numbers.
    pub(crate) registrations: BTreeMap<u32, Registration>,
    /// Its open regions by session.
    pub(crate) regions: BTreeMap<u64, SourceId>,
    /// Enables that leave it out because it runs in a container.
    pub(super) left_out_of: BTreeSet<(Target, u64)>,
    /// Memory that it has made for sessions before the daemon answered, by session.
    pub(crate) offered: BTreeMap<u64, (RegionParams, OwnedFd)>,
    /// What its acknowledgements are waited for by.
    pub(crate) awaited: BTreeMap<u32, u64>,
    pub(super) last_order: u32,
    pub(super) name_bytes: usize,
}

impl Process {
    /// A process that just said hello, and what it was known by when it connected.
    pub(crate) fn new(peer: Peer, key: Option<ProcessKey>, instance: u64) -> Self {
        Self {
            peer,
            instance,
            key,
            facts: OnceCell::new(),
            contained: OnceCell::new(),
            registrations: BTreeMap::new(),
            regions: BTreeMap::new(),
            left_out_of: BTreeSet::new(),
            offered: BTreeMap::new(),
            awaited: BTreeMap::new(),
            last_order: 0,
            name_bytes: 0,
        }
    }

    /// The same, as if the system told these things about it.
    #[cfg(test)]
    pub(crate) fn with_facts(self, facts: Facts, contained: bool) -> Self {
        Self { facts: OnceCell::from(facts), contained: OnceCell::from(contained), ..self }
    }

    /// The next order number; 0 means "no order" and is left out.
    pub(crate) fn next_order(&mut self) -> u32 {
        self.last_order = self.last_order.checked_add(1).unwrap_or(1);
        self.last_order
    }

    /// Whether this scope holds the process.
    pub(crate) fn is_in(&self, scope: &Scope) -> bool {
        let facts = || self.facts.get_or_init(|| self.look_up(Facts::of).unwrap_or_default());
        scope.as_ref().is_none_or(|conditions| conditions.are_met(self.key, facts))
    }

    /// Whether an enable is for this process. One in a container is meant by name, or where the enable is for containers too.
    pub(super) fn is_meant_by(&self, enable: &Enable) -> bool {
        self.is_in(&enable.scope) && (enable.is_for_containers() || !self.is_contained())
    }

    /// Whether an enable would be for this process if it ran in no container.
    pub(super) fn is_left_out_by(&self, enable: &Enable) -> bool {
        self.is_in(&enable.scope) && !enable.is_for_containers() && self.is_contained()
    }

    /// Whether it runs in a container that the daemon is not in.
    pub(super) fn is_contained(&self) -> bool {
        *self.contained.get_or_init(|| self.look_up(process::is_contained).unwrap_or(false))
    }

    /// What is found out about the process by its id; nothing where the id is another's by now.
    pub(crate) fn look_up<T>(&self, look: impl FnOnce(u32) -> T) -> Option<T> {
        let found = look(self.peer.pid);
        // Afterwards: who had the id now had it while it was looked at.
        (ProcessKey::of(self.peer.pid) == self.key).then_some(found)
    }

    /// Whether any registration is enabled for the session.
    pub(crate) fn uses(&self, session: u64) -> bool {
        self.registrations.values().any(|registration| registration.sessions.contains(&session))
    }

    /// The wait that an order counts for: the last order of each is awaited.
    pub(crate) fn waits_for(&self, order: u32) -> Option<u64> {
        self.awaited.range(order..).next().map(|(_, wait)| *wait)
    }

    /// The waits that an acknowledgement of everything up to this order ends.
    pub(crate) fn acknowledged(&mut self, order: u32) -> Vec<u64> {
        let later = order.checked_add(1).map(|next| self.awaited.split_off(&next)).unwrap_or_default();
        std::mem::replace(&mut self.awaited, later).into_values().collect()
    }
}

impl Enable {
    /// Whether it is for processes in containers: it says so, or names processes or containers.
    fn is_for_containers(&self) -> bool {
        self.params.property & EVENT_ENABLE_PROPERTY_ENABLE_SILOS != 0
            || self.scope.as_ref().is_some_and(Conditions::name_processes)
    }
}
